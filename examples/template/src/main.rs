//! Sums four million numbers that a kernel reads from storage.

mod engine;

use std::error::Error;
use std::time::Duration;
use warpbell::args;
use warpbell::memory::Place;
use warpbell::storage::{Array, Cache, Drive, OverwritePolicy, Plan, Volume};

fn main() {
    if let Err(error) = run() {
        eprintln!("error: {error}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let engine = engine::open()?;
    println!("engine {engine}");

    // A software controller in memory. `soft:numbers.img` is one over a file, `nvme:0000:01:00.0` a physical drive.
    let device = std::env::args().nth(1).unwrap_or("soft:mem".to_owned());
    let numbers: Vec<u32> = (0..1 << 22).collect();
    let plan = Plan::new().array::<u32>("numbers", numbers.len() as u64);
    let drive = Drive::create(&device, plan.bytes(), &OverwritePolicy::none())?;
    let volume = Volume::on(&engine, [drive]).build()?;
    volume.store_array("numbers", &numbers)?;
    println!("{}", volume.path());

    // The cache holds a sixteenth of the array.
    let cache = Cache::on(&volume).bytes(1 << 20).build()?;
    let array: Array<u32> = cache.open("numbers")?;
    let result = engine.allocate(Place::Device, 8)?;
    // SAFETY: the parameters of the kernel `sum` have these types, in this order.
    let run = unsafe { engine.launch("sum", engine.grid(256, 1), args!(&array, &result)) }?;
    run.finish_within(Duration::from_secs(30))?;

    let found: u64 = result.get(0)?;
    let expected: u64 = numbers.iter().map(|&n| u64::from(n)).sum();
    println!("sum {found}: {}", if found == expected { "correct" } else { "wrong" });
    println!("the kernel read {} pages of 4 KiB", volume.stats()?.fills);
    if found == expected { Ok(()) } else { Err(format!("the sum is {expected}").into()) }
}
