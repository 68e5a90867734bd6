//! Gathers rows of a table by number: a first epoch from the device, a second one partly from the row cache, and the next batch while
//! the host looks at this one.
//!
//! ```text
//! $ cargo run --example 08_gather_rows
//! engine cpu (2 threads; ...)
//! 4096 rows of 512 bytes, 16 batches of 256 rows
//! epoch 1: 1830 rows read from the device, 0 hits, 2266 duplicates
//! epoch 2: 918 rows read from the device, 1263 hits, 1915 duplicates, correct
//! ```
//!
//! `--engine gpu` runs the same kernel on a GPU, `--device soft:FILE` stores the table in a file.

mod support;

use std::time::Duration;
use warpbell::storage::{Drive, ElementType, OverwritePolicy, Table, TableLayout, TableWriter, Volume};

const ROWS: u64 = 4096;
const ELEMENTS: u64 = 128;
const BATCHES: u64 = 16;
const BATCH: u64 = 256;

/// Returns the rows of a batch: low numbers are drawn more often, as nodes with many neighbours are.
fn batch(number: u64) -> Vec<u64> {
    let draw = |i: u64| {
        let x = (number * BATCH + i).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        (x * x >> 24) * ROWS >> 24
    };
    (0..BATCH).map(draw).collect()
}

fn element(row: u64, column: u64) -> f32 {
    (row * ELEMENTS + column) as f32
}

fn main() -> Result<(), support::Failure> {
    let options = support::Options::parse("--engine auto|gpu|cpu --device SPEC")?;
    let engine = support::engine(&options, 0)?;
    println!("engine {engine}");
    let layout = TableLayout::new(ElementType::F32, &[ELEMENTS], ROWS)?;
    let bytes = layout.plan("vectors")?.bytes();
    let drive = Drive::create(&options.get("device", "soft:mem".to_owned())?, bytes, &OverwritePolicy::none())?;
    let volume = Volume::on(&engine, [drive]).build()?;

    let mut writer = TableWriter::new(&volume, "vectors", &layout, true)?;
    for row in 0..ROWS {
        writer.append(&(0..ELEMENTS).map(|column| element(row, column)).collect::<Vec<_>>())?;
    }
    writer.finish()?;
    println!("{ROWS} rows of {} bytes, {BATCHES} batches of {BATCH} rows", layout.row_bytes());

    // A quarter of the rows fits into the cache.
    let table = Table::open(&volume, "vectors").cache_bytes(layout.bytes() / 4).build()?;
    for epoch in 1..=2 {
        table.reset_stats()?;
        let mut next = Some(table.prefetch(&batch(0))?);
        for number in 0..BATCHES {
            let rows = match next.take() {
                Some(prefetch) => prefetch.take(Duration::from_secs(30))?,
                None => return Err("there is a batch in flight".into()),
            };
            if number + 1 < BATCHES {
                next = Some(table.prefetch(&batch(number + 1))?);
            }
            let found: Vec<f32> = rows.to_vec()?;
            for (row, found) in batch(number).iter().zip(found.chunks(ELEMENTS as usize)) {
                if (0..ELEMENTS).any(|column| found[column as usize] != element(*row, column)) {
                    return Err(format!("row {row} is wrong: {found:?}").into());
                }
            }
        }
        let s = table.stats()?;
        let end = if epoch == 2 { ", correct" } else { "" };
        println!(
            "epoch {epoch}: {} rows read from the device, {} hits, {} duplicates{end}",
            s.device_reads, s.cache_hits, s.duplicates
        );
    }
    Ok(())
}
