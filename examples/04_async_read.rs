//! Reads asynchronously with tokens: every thread keeps four reads in flight and sums the oldest.
//!
//! ```text
//! $ cargo run --example 04_async_read
//! engine cpu (2 threads; ...)
//! device soft:mem  queues host  landing direct  doorbell cpu-engine
//! 4096 blocks, four in flight for each thread: sum 137438691328, correct
//! ```
//!
//! `--engine gpu` runs the same kernel on a GPU, `--device soft:FILE` or `--device qtest:FILE` on another device.

mod support;

use std::time::Duration;
use warpbell::args;
use warpbell::memory::Place;
use warpbell::storage::{Drive, OverwritePolicy, Volume};

const BYTES: u64 = 2 << 20;
/// Number of reads in flight for each thread: `ahead` in async_read.cu.
const IN_FLIGHT: usize = 4;

fn main() -> Result<(), support::Failure> {
    let options = support::Options::parse("--engine auto|gpu|cpu --device SPEC")?;
    let engine = support::engine(&options, 0)?;
    println!("engine {engine}");
    let drive = Drive::create(&options.get("device", "soft:mem".to_owned())?, BYTES, &OverwritePolicy::none())?;
    let volume = Volume::on(&engine, [drive]).build()?;
    println!("{}", volume.path());

    let words: Vec<u32> = (0..BYTES as u32 / 4).collect();
    volume.write_blocks(0, bytemuck::cast_slice(&words))?;
    let blocks = BYTES / volume.block_bytes() as u64;

    let grid = engine.grid(128, 1);
    let threads = grid.blocks as usize * grid.threads as usize;
    let tiles = volume.allocate_data(threads * IN_FLIGHT * volume.block_bytes())?;
    let sum = engine.allocate(Place::Device, 8)?;
    // SAFETY: the kernel's own arguments; what they name is passed by reference, which keeps it.
    let run = unsafe { engine.launch("async_read", grid, args!(&volume, &tiles, &sum, blocks)) }?;
    run.finish_within(Duration::from_secs(30))?;

    let found: u64 = sum.get(0)?;
    let expected: u64 = words.iter().map(|w| u64::from(*w)).sum();
    if found != expected {
        return Err(format!("the kernel's sum is {found}, expected {expected}").into());
    }
    println!("{blocks} blocks, four in flight for each thread: sum {found}, correct");
    Ok(())
}
