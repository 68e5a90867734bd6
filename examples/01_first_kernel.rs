//! Runs a kernel: memory, grid, arguments, launch, result. Nothing of storage or networks yet.
//!
//! ```text
//! $ cargo run --example 01_first_kernel
//! engine cpu (2 threads; ...)
//! 1000000 elements: correct
//! ```
//!
//! `--engine gpu` runs the same kernel on a GPU.

mod support;

use std::time::Duration;
use warpbell::args;
use warpbell::memory::Place;

const COUNT: usize = 1_000_000;

fn main() -> Result<(), support::Failure> {
    let options = support::Options::parse("--engine auto|gpu|cpu")?;
    let engine = support::engine(&options, 0)?;
    println!("engine {engine}");

    let x: Vec<f32> = (0..COUNT).map(|i| (i % 1000) as f32).collect();
    let (on_x, on_y) = (engine.allocate(Place::Device, COUNT * 4)?, engine.allocate(Place::Device, COUNT * 4)?);
    on_x.set_slice(0, &x)?;
    on_y.set_slice(0, &vec![1f32; COUNT])?;

    // One block of 256 threads on each multiprocessor, or on each thread of the CPU engine.
    let grid = engine.grid(256, 1);
    // SAFETY: the arguments of `saxpy`, in its order; memory passed by reference outlives the run.
    let run = unsafe { engine.launch("saxpy", grid, args!(2f32, &on_x, &on_y, COUNT as u64)) }?;
    // A kernel that fails, or takes longer, is an error that says where.
    run.finish_within(Duration::from_secs(30))?;

    let y: Vec<f32> = on_y.get_slice(0, COUNT)?;
    match x.iter().zip(&y).position(|(x, y)| *y != 2.0 * x + 1.0) {
        None => println!("{COUNT} elements: correct"),
        Some(i) => return Err(format!("element {i} is {}, expected {}", y[i], 2.0 * x[i] + 1.0).into()),
    }
    Ok(())
}
