//! Sums an array on NVMe, through the page cache.
//!
//! ```text
//! $ cargo run --example 02_array_sum
//! engine cpu (2 threads; ...)
//! device soft:mem  queues host  landing direct  doorbell cpu-engine
//! 1048576 numbers, 4 MiB through a cache of 1 MiB: sum 549755289600, correct (1024 pages read)
//! ```
//!
//! `--engine gpu` runs the same kernel on a GPU, `--device soft:FILE` or `--device qtest:FILE` on another device.

mod support;

use std::time::Duration;
use warpbell::args;
use warpbell::memory::Place;
use warpbell::storage::{Array, Cache, Drive, OverwritePolicy, Plan, Volume};

fn main() -> Result<(), support::Failure> {
    let numbers: Vec<u32> = (0..1 << 20).collect();
    let plan = Plan::new().array::<u32>("numbers", numbers.len() as u64);

    let options = support::Options::parse("--engine auto|gpu|cpu --device SPEC")?;
    let engine = support::engine(&options, 0)?;
    println!("engine {engine}");
    let drive = Drive::create(&options.get("device", "soft:mem".to_owned())?, plan.bytes(), &OverwritePolicy::none())?;
    let volume = Volume::on(&engine, [drive]).build()?;
    println!("{}", volume.path());
    volume.store_array("numbers", &numbers)?;

    let cache = Cache::on(&volume).bytes(1 << 20).build()?;
    let array: Array<u32> = cache.open("numbers")?;
    let sum = engine.allocate(Place::Device, 8)?;
    // SAFETY: the arguments have the types of the kernel's parameters, in their order.
    let run = unsafe { engine.launch("array_sum", engine.grid(256, 1), args!(&array, &sum)) }?;
    run.finish_within(Duration::from_secs(30))?;

    let found: u64 = sum.get(0)?;
    let expected: u64 = numbers.iter().map(|n| u64::from(*n)).sum();
    if found != expected {
        return Err(format!("the kernel's sum is {found}, expected {expected}").into());
    }
    let pages = volume.stats()?.fills;
    println!("{} numbers, 4 MiB through a cache of 1 MiB: sum {found}, correct ({pages} pages read)", numbers.len());
    Ok(())
}
