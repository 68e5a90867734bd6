//! Measures GUPS: random remote atomic updates, HPC Challenge's RandomAccess, by kernels of all PEs at once.
//!
//! ```text
//! $ cargo run --example 07_gups -- --engine cpu --log2 10
//! engine cpu (2 threads)
//! peer 2 PEs (threads), heap 4.0 MiB host, atomics native
//! 2 x 1024 entries, 8192 updates: 0.019 GUPS, 0.4 ms
//! errors 0 of 2048 entries (HPC Challenge allows 1 %, atomic updates none): correct
//! ```
//!
//! `--pes N` and `--log2 M` (2^M entries on each PE) choose the size. `warpbell run -n 4 -- target/debug/examples/07_gups`
//! makes each PE a process. Updates are checked as in HPC Challenge: they are repeated, which must restore the table.
//! Up to 2^24 updates are also checked against a serial computation.

#[path = "support/pes.rs"]
mod pes;
mod support;

use support::{Failure, Options};
use warpbell::args;
use warpbell::engine::Engine;
use warpbell::memory::{Place, Region};
use warpbell::shmem::{Sym, World};

/// Entries of each PE: a size that a CPU or a GPU finishes in a moment.
const CPU_LOG2: u32 = 16;
const GPU_LOG2: u32 = 24;
/// Updates for each entry of the table.
const UPDATES_PER_ENTRY: u64 = 4;
/// Maximum number of updates that are repeated serially.
const SERIAL_UPDATES: u64 = 1 << 24;
/// Additional heap for a world's own data.
const HEAP_SLACK: usize = 4 << 20;

fn main() -> Result<(), Failure> {
    let options = Options::parse("--engine auto|gpu|cpu --pes N --log2 M")?;
    let suited = if support::engine(&options, 0)?.is_gpu() { GPU_LOG2 } else { CPU_LOG2 };
    let log2: u32 = options.get("log2", suited)?;
    if !(1..=32).contains(&log2) {
        return Err(format!("--log2 {log2}: 2^1 to 2^32 entries on each PE").into());
    }
    pes::on_each(&options, (8 << log2) + HEAP_SLACK, |world| run(world, log2))
}

fn run(world: &World, log2: u32) -> Result<(), Failure> {
    let (me, pes, entries) = (world.my_pe() as u64, world.n_pes() as u64, 1u64 << log2);
    let updates = UPDATES_PER_ENTRY * entries;
    let engine = world.engine();
    let table = world.malloc::<u64>(entries as usize)?;
    let squares = engine.allocate(Place::Device, 64 * 8)?;
    squares.set_slice(0, &squares_of_x())?;
    let grid = engine.grid(256, 4);
    // SAFETY: the kernel's own arguments; what they name is passed by reference, which keeps it.
    unsafe { engine.launch("gups_fill", grid, args!(&table, entries, me * entries)) }?.finish()?;
    world.barrier_host()?;

    let job = Job { world, engine, table: &table, squares: &squares, log2, updates };
    let seconds = job.update()?;
    // The slowest PE's time is the time of all.
    let all = world.allgather(&seconds.to_le_bytes())?;
    let slowest = all.iter().filter_map(|t| Some(f64::from_le_bytes(t[..].try_into().ok()?))).fold(0.0, f64::max);

    let mut wrong = 0;
    if pes * updates <= SERIAL_UPDATES {
        let found = table.read(0, entries as usize)?;
        let expected = serial(pes * entries, pes * updates, me * entries, entries);
        wrong += found.iter().zip(&expected).filter(|(f, e)| f != e).count() as u64;
    }
    world.barrier_host()?;
    job.update()?;
    let restored = table.read(0, entries as usize)?;
    wrong += restored.iter().zip(me * entries..).filter(|(found, i)| *found != i).count() as u64;

    let all = world.allgather(&wrong.to_le_bytes())?;
    let errors: u64 = all.iter().filter_map(|w| Some(u64::from_le_bytes(w[..].try_into().ok()?))).sum();
    if me == 0 {
        let rate = (pes * updates) as f64 / slowest / 1e9;
        println!("{pes} x {entries} entries, {} updates: {rate:.3} GUPS, {:.1} ms", pes * updates, slowest * 1e3);
        let result = if errors == 0 { "correct" } else { "wrong" };
        let of = pes * entries;
        println!("errors {errors} of {of} entries (HPC Challenge allows 1 %, atomic updates none): {result}");
    }
    if errors > 0 { Err(format!("{errors} entries are wrong").into()) } else { Ok(()) }
}

/// Parameters of one PE's updates.
struct Job<'a> {
    world: &'a World,
    engine: &'a Engine,
    table: &'a Sym<u64>,
    squares: &'a Region,
    log2: u32,
    updates: u64,
}

impl Job<'_> {
    /// Executes this PE's share of the updates, and waits until every PE has done so. Returns this PE's time in
    /// seconds.
    fn update(&self) -> Result<f64, Failure> {
        let first = self.world.my_pe() as u64 * self.updates;
        let args = args!(self.world, self.table, self.squares, self.log2, first, self.updates);
        // SAFETY: the kernel's own arguments; what they name is passed by reference, which keeps it.
        let report = unsafe { self.engine.launch("gups", self.engine.grid(256, 4), args) }?.finish()?;
        self.world.barrier_host()?;
        Ok(report.elapsed.as_secs_f64())
    }
}

/// Returns the next value of the sequence: multiplication by x modulo x^63 + x^2 + x + 1 over GF(2) (HPC Challenge,
/// RandomAccess).
fn next(x: u64) -> u64 {
    (x << 1) ^ if (x as i64) < 0 { 7 } else { 0 }
}

/// Returns x^(2j) for j below 64, from which the kernel computes squares.
fn squares_of_x() -> [u64; 64] {
    let mut power = 1;
    std::array::from_fn(|_| {
        let this = power;
        power = next(next(power));
        this
    })
}

/// Returns `count` entries from `first` on after all updates, computed one after the other.
fn serial(entries: u64, updates: u64, first: u64, count: u64) -> Vec<u64> {
    let mut table: Vec<u64> = (first..first + count).collect();
    let mut x = 1;
    for _ in 0..updates {
        x = next(x);
        if let Some(entry) = (x % entries).checked_sub(first).and_then(|i| table.get_mut(i as usize)) {
            *entry ^= x;
        }
    }
    table
}
