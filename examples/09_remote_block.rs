//! A kernel reads a block of another machine's drive, and puts what it derived to another PE, in one launch.
//!
//! ```text
//! $ cargo run --example 09_remote_block
//! engine cpu (2 threads; ...)
//! peer 2 PEs (threads), heap 1 MiB host, atomics native
//! device nvmf:soft://127.0.0.1:35729/...  queues host  landing direct  doorbell cpu-engine
//! PE 1 has the sum of block 7, which a kernel of PE 0 read in 1 command: correct
//! ```
//!
//! Without `--device` the example exports a software device itself. `warpbell nvme serve soft:mem:1M --transport soft`
//! exports one from another process or machine, for `--device nvmf:soft://HOST:PORT/NQN`. The device is written to.

#[path = "support/pes.rs"]
mod pes;
mod support;

use support::{Failure, Options};
use warpbell::args;
use warpbell::engine::Grid;
use warpbell::memory::Place;
use warpbell::shmem::World;
use warpbell::soft::target::{Target, TargetConfig, TargetTransport};
use warpbell::storage::{Drive, OverwritePolicy, Volume};

/// Size of the symmetric heap of each PE in bytes.
const HEAP: usize = 1 << 20;
/// Block that the kernel reads.
const BLOCK: u64 = 7;
const BYTES: u64 = 1 << 20;
const NQN: &str = "nqn.2026-01.org.warpbell:example";

fn main() -> Result<(), Failure> {
    let options = Options::parse("--engine auto|gpu|cpu --pes N --device SPEC")?;
    pes::on_each(&options, HEAP, |world| run(world, &options))
}

fn run(world: &World, options: &Options) -> Result<(), Failure> {
    if world.n_pes() < 2 {
        return Err("one PE: the block goes from PE 0 to PE 1; use --pes 2".into());
    }
    let sum = world.calloc::<u64>(1)?;
    let arrived = world.calloc::<u64>(1)?;
    world.barrier_host()?;
    match world.my_pe() {
        0 => send(world, options, &sum, &arrived)?,
        1 => receive(world, &sum, &arrived)?,
        _ => {}
    }
    world.barrier_host()?;
    Ok(())
}

type Numbers = warpbell::shmem::Sym<u64>;

/// Words of the block.
fn words(bytes: usize) -> Vec<u32> {
    (0..bytes as u32 / 4).map(|i| i * 3 + 1).collect()
}

fn send(world: &World, options: &Options, sum: &Numbers, arrived: &Numbers) -> Result<(), Failure> {
    // The drive of the "other machine", unless one is named.
    let own = Drive::open("soft:mem:1M")?;
    let target = Target::start(own.controller(), TargetConfig::new(NQN).transport(TargetTransport::Soft))?;
    let spec = options.get("device", format!("nvmf:soft://{}/{NQN}", target.address()))?;
    let drive = Drive::create(&spec, BYTES, &OverwritePolicy::none())?;
    let volume = Volume::on(world.engine(), [drive]).build()?;
    println!("{}", volume.path());
    volume.write_blocks(BLOCK, bytemuck::cast_slice(&words(volume.block_bytes())))?;

    let buffer = volume.allocate_data(volume.block_bytes())?;
    let grid = Grid { blocks: 1, ..world.engine().grid(32, 1) };
    let args = args!(world, &volume, &buffer, BLOCK, sum, arrived);
    // SAFETY: the kernel's own arguments; what they name is passed by reference, which keeps it.
    unsafe { world.engine().launch("remote_block_send", grid, args) }?.finish()?;
    if volume.stats()?.reads != 1 {
        return Err("the kernel's block was not one command".into());
    }
    Ok(())
}

fn receive(world: &World, sum: &Numbers, arrived: &Numbers) -> Result<(), Failure> {
    let result = world.engine().allocate(Place::Device, 8)?;
    let grid = Grid { blocks: 1, ..world.engine().grid(32, 1) };
    // SAFETY: the kernel's own arguments; memory passed by reference outlives the run.
    unsafe { world.engine().launch("remote_block_receive", grid, args!(world, sum, arrived, &result)) }?.finish()?;
    let found: u64 = result.get(0)?;
    // Blocks have 512 or 4096 bytes.
    let sums = [512, 4096].map(|bytes| words(bytes).iter().map(|w| u64::from(*w)).sum::<u64>());
    if !sums.contains(&found) {
        return Err(format!("PE 1 has {found}, which is not the sum of block {BLOCK}").into());
    }
    println!("PE 1 has the sum of block {BLOCK}, which a kernel of PE 0 read in 1 command: correct");
    Ok(())
}
