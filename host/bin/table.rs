//! Runs `warpbell table`: stores rows of files as tables, and lists, describes, verifies and removes tables.

use crate::args::{DeadlineArgs, DeviceArgs, JsonArgs};
use crate::interrupt::Interrupt;
use crate::output::{Failure, say, write_json};
use crate::progress::Loading;
use crate::workloads::graph::seconds;
use crate::workloads::report::nanoseconds;
use crate::{device, engine};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Instant;
use warpbell::storage::{
    ElementType, NpyError, RowFile, RowFileError, RowFileOptions, StoredTable, Table, TableLayout, Volume,
};
use warpbell::units::{Bytes, counted};

#[derive(Debug, Subcommand)]
pub enum TableCommand {
    /// Store the rows of a file on a device under a name, for kernels that gather rows by their numbers
    #[command(
        after_help = "Examples:\n  warpbell table import vectors.npy --name vectors --device soft:tables.img\n  warpbell table import vectors.parquet --columns embedding --name v2 --device nvme:0000:65:00.0"
    )]
    Import(ImportArgs),
    /// List the tables that are stored on a device
    #[command(after_help = "Example:\n  warpbell table list --device soft:tables.img")]
    List(ListArgs),
    /// Show the shape and the sizes of a stored table
    #[command(after_help = "Example:\n  warpbell table info vectors --device soft:tables.img")]
    Info(NamedArgs),
    /// Read a stored table completely, and compare it with its checksum
    #[command(after_help = "Example:\n  warpbell table verify vectors --device soft:tables.img")]
    Verify(NamedArgs),
    /// Remove a stored table; its space can be used again
    #[command(after_help = "Example:\n  warpbell table delete vectors --device soft:tables.img")]
    Delete(NamedArgs),
}

#[derive(Args, Clone, Debug)]
pub struct ImportArgs {
    /// A file of rows: an array in .npy, little-endian and in C order; or .parquet, .arrow or .feather with lists of one
    /// length, or with numbers of one type in each column
    pub input: PathBuf,
    /// Name of the stored table: 1 to 40 letters, digits, `.`, `_` and `-`
    #[arg(long)]
    pub name: String,
    /// Columns of a Parquet or Arrow file that make a row, in this order; separate several with commas [default: all]
    #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
    pub columns: Vec<String>,
    /// Elements of a row, for an .npy file of one dimension
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=65_536))]
    pub row_elements: Option<u64>,
    /// Type of elements that the file cannot name: raw bytes of an .npy file are taken as it, and u16 as bf16
    /// [possible values: bf16, f16, f32, f64, u8, i8, and so on; fp8 for bytes]
    #[arg(long, value_name = "TYPE", value_parser = element)]
    pub element: Option<ElementType>,
    #[command(flatten)]
    pub json: JsonArgs,
    #[command(flatten)]
    pub wait: DeadlineArgs,
    #[command(flatten)]
    pub device: DeviceArgs,
}

#[derive(Args, Clone, Debug)]
pub struct ListArgs {
    #[command(flatten)]
    pub json: JsonArgs,
    #[command(flatten)]
    pub wait: DeadlineArgs,
    #[command(flatten)]
    pub device: DeviceArgs,
}

#[derive(Args, Clone, Debug)]
pub struct NamedArgs {
    /// The name of the stored table
    #[arg(value_name = "NAME")]
    pub name: String,
    #[command(flatten)]
    pub json: JsonArgs,
    #[command(flatten)]
    pub wait: DeadlineArgs,
    #[command(flatten)]
    pub device: DeviceArgs,
}

/// Runs a command about tables.
///
/// # Errors
/// * [`Failure::Usage`] if no device is named that keeps data.
/// * [`Failure::BrokenPipe`] if standard output was closed.
/// * [`Failure::Error`] if a file or a device fails, or a table of this name is there, or is not.
pub fn run(command: TableCommand, interrupt: &Interrupt) -> Result<(), Failure> {
    match command {
        TableCommand::Import(args) => import(&args, interrupt),
        TableCommand::List(args) => list(&args, interrupt),
        TableCommand::Info(args) => info(&args, interrupt),
        TableCommand::Verify(args) => verify(&args, interrupt),
        TableCommand::Delete(args) => delete(&args, interrupt),
    }
}

/// Parses the type that `--element` names.
fn element(text: &str) -> Result<ElementType, String> {
    ElementType::from_name(text).ok_or_else(|| {
        "a type is bf16, f16, f32, f64, u8 to u64, i8 to i64, or fp8, which is stored as bytes".to_owned()
    })
}

fn import(args: &ImportArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    device::check_lasting(&args.device)?;
    interrupt.doing("reading the rows");
    let options = RowFileOptions::default().columns(args.columns.iter().cloned());
    let options = options.row_elements(args.row_elements).element(args.element);
    let rows = match RowFile::open(&args.input, &options) {
        Err(e @ RowFileError::Flat { .. }) => return Err(Failure::Error(format!("{e} (--row-elements)"))),
        Err(RowFileError::Npy { path, source: e @ NpyError::Raw { bytes, .. } }) => {
            let example = match bytes {
                1 => "fp8",
                2 => "bf16",
                _ => "TYPE",
            };
            return Err(Failure::Error(format!("{} {e} (--element {example})", path.display())));
        }
        other => other?,
    };
    let plan = rows.layout().plan(&args.name).map_err(warpbell::storage::StorageError::from)?;
    let layout = rows.layout().clone();
    interrupt.doing("storing the table");
    let engine = engine::for_host(args.wait.deadline)?;
    let started = Instant::now();
    let _stop = interrupt.stops(&engine);
    // Nothing is left to protect if --yes-destroy names every device that holds stored arrays.
    let replaces = |volume: &Volume| Ok::<_, Failure>(volume.stored()?.is_empty());
    let volume = device::with_space(&args.device, &engine, &plan, |volume| {
        if replaces(volume)? { Ok(()) } else { Ok(Table::check_free(volume, &args.name)?) }
    })?;
    let replace = replaces(&volume)?;
    let bar = Loading::new();
    rows.store(&volume, &args.name, replace, &mut |written| bar.filled(written, layout.bytes()))?;
    drop(bar);
    let written = started.elapsed();
    if let Some(path) = &args.json.json {
        let mut report = described(&args.name, &volume, &layout);
        report["write_ns"] = json!(nanoseconds(written));
        return write_json("table import", &report, path);
    }
    say!("{}", words(&layout))?;
    say!("{} on {}   {}   {}", args.name, volume.name(), Bytes(layout.bytes()), seconds(written))
}

fn list(args: &ListArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    interrupt.doing("listing the stored tables");
    let volume = open(&args.device, &args.wait)?;
    let _stop = interrupt.stops(volume.engine());
    let tables = Table::list(&volume)?;
    if let Some(path) = &args.json.json {
        let report: Vec<Value> = tables.iter().map(|t| entry(t, &volume)).collect();
        return write_json("table list", &json!({ "device": volume.name(), "tables": report }), path);
    }
    if tables.is_empty() {
        return say!("no table is stored on {}", volume.name());
    }
    let longest = tables.iter().map(|t| t.name.len()).max().unwrap_or(0);
    for t in &tables {
        let facts = t.layout.as_ref().map_or_else(ToString::to_string, words);
        say!("{:<longest$}  {:>10}  {facts}", t.name, Bytes(t.bytes).to_string())?;
    }
    Ok(())
}

/// Returns a line such as `1,000,000 rows  128 f32 each  512 bytes`.
fn words(layout: &TableLayout) -> String {
    let shape: Vec<String> = layout.row_shape().iter().map(ToString::to_string).collect();
    let (rows, element) = (counted(layout.rows(), "row", "rows"), layout.element());
    format!("{rows}  {} {element} each  {}", shape.join(" x "), counted(layout.row_bytes(), "byte", "bytes"))
}

fn described(name: &str, volume: &Volume, layout: &TableLayout) -> Value {
    json!({
        "name": name, "device": volume.name(), "rows": layout.rows(), "row_shape": layout.row_shape(),
        "element": layout.element().to_string(), "row_bytes": layout.row_bytes(), "bytes": layout.bytes(),
    })
}

fn entry(table: &StoredTable, volume: &Volume) -> Value {
    let mut value = match &table.layout {
        Ok(layout) => described(&table.name, volume, layout),
        Err(e) => json!({ "name": table.name, "device": volume.name(), "error": e.to_string() }),
    };
    value["stored_bytes"] = json!(table.bytes);
    value["changed"] = json!(table.changed);
    value
}

/// Returns the entry of a table, which can be opened.
fn find(volume: &Volume, name: &str) -> Result<StoredTable, Failure> {
    // An absent name, or a damaged table, is the error of opening it.
    Table::open(volume, name).build()?;
    Table::list(volume)?
        .into_iter()
        .find(|t| t.name == name)
        .ok_or_else(|| Failure::Error(format!("{}: table `{name}` was removed meanwhile", volume.name())))
}

fn info(args: &NamedArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    interrupt.doing("opening the stored table");
    let volume = open(&args.device, &args.wait)?;
    let _stop = interrupt.stops(volume.engine());
    let table = find(&volume, &args.name)?;
    if let Some(path) = &args.json.json {
        return write_json("table info", &entry(&table, &volume), path);
    }
    say!("{} on {}   {}", table.name, volume.name(), Bytes(table.bytes))?;
    if let Ok(layout) = &table.layout {
        say!("{}", words(layout))?;
    }
    if table.changed { say!("rows were written since it was stored") } else { Ok(()) }
}

fn verify(args: &NamedArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    let volume = open(&args.device, &args.wait)?;
    interrupt.doing("reading the stored table");
    let _stop = interrupt.stops(volume.engine());
    let compared = Table::open(&volume, &args.name).build()?.verify()?;
    if let Some(path) = &args.json.json {
        let report = json!({ "name": args.name, "device": volume.name(), "intact": true, "compared": compared });
        return write_json("table verify", &report, path);
    }
    let (name, device) = (&args.name, volume.name());
    if compared {
        say!("{name} on {device} is intact")
    } else {
        say!(
            "{name} on {device} can be read; rows were written since it was stored, so there is no checksum to compare"
        )
    }
}

fn delete(args: &NamedArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    interrupt.doing("removing the stored table");
    let engine = engine::for_host(args.wait.deadline)?;
    let _stop = interrupt.stops(&engine);
    let volume = device::changed(&args.device, &engine)?;
    Table::remove(&volume, &args.name)?;
    if let Some(path) = &args.json.json {
        let report = json!({ "name": args.name, "device": volume.name(), "deleted": true });
        return write_json("table delete", &report, path);
    }
    say!("deleted {} from {}", args.name, volume.name())
}

fn open(args: &DeviceArgs, wait: &DeadlineArgs) -> Result<Volume, Failure> {
    device::stored(args, &engine::for_host(wait.deadline)?, Bytes(4096))
}
