//! Own kernels between a graph search and a world, all on one engine.
//!
//! ```text
//! $ cargo run --example embedding
//! engine cpu (2 threads; ...)
//! peer 2 PEs (threads), heap 1 MiB host, atomics native
//! 2 PEs: the weights of the 1000 vertices that each search reached sum to 999000 together: correct
//! ```
//!
//! A program that launches its kernels itself (`<<<>>>`, cuLaunchKernel) passes the same views, within
//! `Engine::external`: docs/embedding.md.

#[path = "support/pes.rs"]
mod pes;
mod support;

use std::time::Duration;
use support::{Failure, Options};
use warpbell::engine::{Args, Grid};
use warpbell::graph::{BfsOptions, Csr, CsrOptions, Graph, Placement};
use warpbell::memory::Place;
use warpbell::shmem::World;
use warpbell::storage::{Cache, Drive, OverwritePolicy, Plan, Volume};

/// Size of the symmetric heap of each PE in bytes.
const HEAP: usize = 1 << 20;
/// Vertices of the graph, the first half of which are a path.
const VERTICES: u64 = 2000;
const REACHED: u64 = VERTICES / 2;

fn main() -> Result<(), Failure> {
    let options = Options::parse("--engine auto|gpu|cpu --pes N")?;
    pes::on_each(&options, HEAP, run)
}

fn run(world: &World) -> Result<(), Failure> {
    let engine = world.engine();
    // Kernels of the library leave the depths in the engine's memory.
    let path: Vec<(u64, u64)> = (0..REACHED - 1).map(|v| (v, v + 1)).collect();
    let graph = Graph::from_csr(engine, Csr::from_edges(VERTICES, &path, CsrOptions::default())?, Placement::Gpu)?;
    let depth = graph.bfs_on_device(0, &BfsOptions::default())?.depth;

    let weights: Vec<u32> = (0..VERTICES as u32).collect();
    let plan = Plan::new().array::<u32>("weights", VERTICES);
    let drive = Drive::create("soft:mem", plan.bytes(), &OverwritePolicy::none())?;
    let volume = Volume::on(engine, [drive]).build()?;
    volume.store_array("weights", &weights)?;
    let array = Cache::on(&volume).bytes(64 << 10).build()?.open::<u32>("weights")?;

    // Own kernels read the depths and the array, and reach the other PEs.
    let sum = engine.allocate(Place::Device, 8)?;
    let total = world.calloc::<u64>(1)?;
    let (mut weigh, mut add) = (Args::new(), Args::new());
    weigh.push_value(array.view());
    add.push_value(world.view());
    let stream = engine.stream()?;
    // SAFETY: the arguments have the types of the kernels' parameters. The array, of which there is only the view, and
    // the world live until the stream was waited for.
    unsafe {
        stream.launch("weigh_reached", engine.grid(256, 1), weigh.with(&depth).with(&sum))?;
        stream.launch("add_everywhere", Grid { blocks: 1, ..engine.grid(256, 1) }, add.with(&sum).with(&total))?;
    }
    stream.synchronize(Duration::from_secs(30))?;
    // Host calls of the world are kernels of the library as well.
    world.barrier_all()?;

    let expected = world.n_pes() as u64 * weights[..REACHED as usize].iter().map(|w| u64::from(*w)).sum::<u64>();
    let found = total.read(0, 1)?[0];
    if found != expected {
        return Err(format!("PE {}: the sum is {found}, expected {expected}", world.my_pe()).into());
    }
    if world.my_pe() == 0 {
        let pes = world.n_pes();
        println!(
            "{pes} PEs: the weights of the {REACHED} vertices that each search reached sum to {found} together: correct"
        );
    }
    // No PE ends before its neighbours have read what it added.
    world.barrier_host()?;
    Ok(())
}
