//! Reads blocks from a kernel: every thread reads its own blocks, without a cache.
//!
//! ```text
//! $ cargo run --example 03_raw_read
//! engine cpu (2 threads; ...)
//! device soft:mem  queues host  landing direct  doorbell cpu-engine
//! 4096 blocks of 512 bytes read by the kernel in 4096 commands: correct
//! ```
//!
//! `--engine gpu` runs the same kernel on a GPU, `--device soft:FILE` or `--device qtest:FILE` on another device.

mod support;

use std::time::Duration;
use warpbell::args;
use warpbell::memory::Place;
use warpbell::storage::{Drive, OverwritePolicy, Volume};

const BYTES: u64 = 2 << 20;

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
    // Memory that the devices reach: with direct transfers they write to it.
    let buffer = volume.allocate_data(threads * volume.block_bytes())?;
    let sums = engine.allocate(Place::Device, blocks as usize * 8)?;
    // SAFETY: the kernel's own arguments; what they name is passed by reference, which keeps it.
    let run = unsafe { engine.launch("raw_read", grid, args!(&volume, &buffer, &sums, blocks)) }?;
    run.finish_within(Duration::from_secs(30))?;

    let found = sums.get_slice::<u64>(0, blocks as usize)?;
    let expected = words.chunks(volume.block_bytes() / 4).map(|b| b.iter().map(|w| u64::from(*w)).sum::<u64>());
    if !found.iter().copied().eq(expected) {
        return Err("the kernel's sums are not those of the blocks that were written".into());
    }
    let (size, commands) = (volume.block_bytes(), volume.stats()?.reads);
    println!("{blocks} blocks of {size} bytes read by the kernel in {commands} commands: correct");
    Ok(())
}
