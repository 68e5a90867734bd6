//! Runs `warpbell bench mapping`.

use crate::args::MappingArgs;
use crate::interrupt::Interrupt;
use crate::output::{Failure, Text};
use crate::rows::Rows;
use crate::workloads::mapping::{self, Access};
use crate::workloads::report::Report;
use crate::{engine, output};
use serde_json::json;
use warpbell::memory::mapping::CpuView;
use warpbell::memory::{MemoryError, Place, Region};

struct Mapped<'a>(&'a CpuView);
struct Copied<'a>(&'a Region);

impl Access for Mapped<'_> {
    fn read(&self, out: &mut [u8]) -> Result<(), MemoryError> {
        self.0.read(0, out)
    }
    fn write(&self, data: &[u8]) -> Result<(), MemoryError> {
        self.0.write(0, data)
    }
}

impl Access for Copied<'_> {
    fn read(&self, out: &mut [u8]) -> Result<(), MemoryError> {
        self.0.read(0, out)
    }
    fn write(&self, data: &[u8]) -> Result<(), MemoryError> {
        self.0.write(0, data)
    }
}

/// Measures the CPU's access to GPU memory, and prints a row for each size.
///
/// # Errors
/// [`Failure::Error`] if there is no GPU or GDRCopy's module is missing, or an access fails.
pub fn run(args: &MappingArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    let text = Text::of_measurement(&args.output)?;
    let sizes = mapping::sizes(args.min_size.0, args.max_size.0)?;
    let engine = engine::open(&args.engine)?;
    if !engine.is_gpu() {
        return Err(Failure::Error(format!(
            "bench mapping: engine {engine} has no GPU memory to map; use --engine gpu on a machine with a GPU and GDRCopy's module (/dev/gdrdrv)"
        )));
    }
    text.line(format_args!("# warpbell {}  bench mapping  engine {engine}", env!("CARGO_PKG_VERSION")))?;
    let region = engine.allocate(Place::Device, mapping::SIZES[1])?;
    let view = CpuView::open(&region)?;
    text.line(format_args!("# mapped: loads and stores of the CPU through /dev/gdrdrv; copied: copies of the driver"))?;
    text.line(format_args!("{}", mapping::HEAD))?;
    let _stop = interrupt.stops(&engine);
    let mut rows = Vec::new();
    for bytes in sizes {
        if interrupt.end().is_some() {
            return Err(crate::workloads::error::MeasureError::Stopped.into());
        }
        let row = mapping::measure(&Mapped(&view), &Copied(&region), bytes)?;
        text.line(format_args!("{row}"))?;
        rows.push(row);
    }
    if let Some(to) = &args.output.csv {
        output::write_rows(&Rows::of(&rows)?, to)?;
    }
    if let Some(path) = &args.output.report.json {
        let config = json!({ "min_bytes": args.min_size, "max_bytes": args.max_size });
        output::write_json("bench mapping", &Report::new(config, &engine, None, rows), path)?;
    }
    Ok(())
}
