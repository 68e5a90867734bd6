//! Exchanges halos inside a kernel: Jacobi's iteration for the heat equation on a plate whose rows are partitioned over
//! the PEs. All steps run in one launch. Neighbours' rows arrive by `put_signal` while the kernel computes.
//!
//! The result is compared with a serial computation, bit for bit. `--pes N`, `--rows N`, `--cols N` and `--steps N`
//! choose the size. `warpbell run -n 4 -- target/debug/examples/06_stencil` makes each PE a process. Blocks wait for each
//! other between steps, so no more are launched than run at once.

#[path = "support/pes.rs"]
mod pes;
mod support;

use support::{Failure, Options};
use warpbell::args;
use warpbell::engine::Grid;
use warpbell::memory::Place;
use warpbell::shmem::World;

/// Threads in a block on a GPU.
const THREADS: u32 = 256;
/// Additional heap for a world's own data.
const HEAP_SLACK: usize = 4 << 20;

/// The whole plate.
#[derive(Clone, Copy)]
struct Plate {
    rows: u32,
    cols: u32,
    steps: u32,
}

impl Plate {
    /// Returns a point before the first step. Points at the plate's edge never change.
    fn initial(&self, row: u32, col: u32) -> f64 {
        match (row, col) {
            (0, _) => 1.0,
            (_, 0) => 0.5,
            _ => f64::from((row * 31 + col * 17) % 97) / 97.0,
        }
    }

    /// Returns the rows of PE `pe`, without its neighbours': the first row, counted with the plate's edge, and their
    /// number.
    fn part(&self, pe: usize, pes: usize) -> (u32, u32) {
        let inner = u64::from(self.rows) - 2;
        let start = |pe: usize| (inner * pe as u64 / pes as u64) as u32;
        (1 + start(pe), start(pe + 1) - start(pe))
    }

    /// Returns the number of rows for which every PE has memory, including its neighbours' rows.
    fn plane_rows(&self, pes: usize) -> u32 {
        (self.rows - 2).div_ceil(pes as u32) + 2
    }

    /// Returns the plate after all steps, computed row by row.
    fn serial(&self) -> Vec<f64> {
        let cols = self.cols as usize;
        let points = (0..self.rows).flat_map(|r| (0..self.cols).map(move |c| (r, c)));
        let mut now: Vec<f64> = points.map(|(r, c)| self.initial(r, c)).collect();
        let mut next = now.clone();
        for _ in 0..self.steps {
            for r in 1..self.rows as usize - 1 {
                for i in r * cols + 1..(r + 1) * cols - 1 {
                    next[i] = ((now[i - cols] + now[i + cols]) + (now[i - 1] + now[i + 1])) * 0.25;
                }
            }
            std::mem::swap(&mut now, &mut next);
        }
        now
    }
}

fn main() -> Result<(), Failure> {
    let options = Options::parse("--engine auto|gpu|cpu --pes N --rows N --cols N --steps N")?;
    let large = support::engine(&options, 0)?.is_gpu();
    let side = if large { 4096 } else { 256 };
    let plate =
        Plate { rows: options.get("rows", side)?, cols: options.get("cols", side)?, steps: options.get("steps", 100)? };
    let range = 3..=1 << 16;
    if !range.contains(&plate.rows) || !range.contains(&plate.cols) {
        return Err("--rows and --cols: a plate has 3 to 65536 of each".into());
    }
    // Enough for one PE alone.
    let planes = 2 * 8 * plate.rows as usize * plate.cols as usize;
    pes::on_each(&options, planes + HEAP_SLACK, |world| run(world, plate))
}

fn run(world: &World, plate: Plate) -> Result<(), Failure> {
    let (me, pes, cols) = (world.my_pe(), world.n_pes(), plate.cols as usize);
    if pes as u32 > plate.rows - 2 {
        return Err(format!("{pes} PEs share {} rows: give each at least one", plate.rows - 2).into());
    }
    let (first, rows) = plate.part(me, pes);
    let plane_rows = plate.plane_rows(pes);
    let plane = plane_rows as usize * cols;
    let planes = world.malloc::<f64>(2 * plane)?;
    let came = world.malloc::<u64>(2)?;
    let arrived = world.engine().allocate(Place::Device, size_of::<u32>())?;

    // Both planes: points that no step writes are the plate's edge, which stays.
    let own = (first - 1..first + rows + 1).flat_map(|r| (0..plate.cols).map(move |c| (r, c)));
    let own: Vec<f64> = own.map(|(r, c)| plate.initial(r, c)).collect();
    planes.write(0, &own)?;
    planes.write(plane, &own)?;
    world.barrier_host()?;

    let above = if me > 0 { plate.part(me - 1, pes).1 } else { 0 };
    let grid = grid(world, rows)?;
    let args = args!(world, &planes, &came, &arrived, rows, above, plane_rows, plate.cols, plate.steps);
    // SAFETY: the kernel's own arguments; what they name is passed by reference, which keeps it.
    let seconds = unsafe { world.engine().launch("stencil", grid, args) }?.finish()?.elapsed.as_secs_f64();

    let found = planes.read(plate.steps as usize % 2 * plane + cols, rows as usize * cols)?;
    let expected = &plate.serial()[first as usize * cols..][..found.len()];
    let wrong = found.iter().zip(expected).filter(|(f, e)| f.to_bits() != e.to_bits()).count() as u64;

    let told = world.allgather(bytemuck::bytes_of(&[seconds.to_bits(), wrong]))?;
    let told: Vec<[u64; 2]> = told.iter().filter_map(|t| bytemuck::try_pod_read_unaligned(t).ok()).collect();
    let slowest = told.iter().map(|t| f64::from_bits(t[0])).fold(0.0, f64::max);
    let wrong: u64 = told.iter().map(|t| t[1]).sum();
    if me == 0 {
        let Plate { rows, cols, steps } = plate;
        let updated = f64::from(rows - 2) * f64::from(cols - 2) * f64::from(steps);
        let rate = updated / slowest / 1e9;
        println!("{rows} x {cols} points, {steps} steps: {:.1} ms, {rate:.3} G points/s", slowest * 1e3);
        match wrong {
            0 => println!("every point is the serial computation's, bit for bit: correct"),
            n => println!("{n} points differ from the serial computation: wrong"),
        }
    }
    if wrong > 0 { Err(format!("{wrong} points are wrong").into()) } else { Ok(()) }
}

/// Returns a grid whose blocks run at once, even beside those of other PEs on the same GPU. It has one block on each
/// multiprocessor, partitioned over the PEs, and no more than there are rows. Collective.
fn grid(world: &World, rows: u32) -> Result<Grid, Failure> {
    let engine = world.engine();
    if engine.occupancy("stencil", THREADS)? == 0 {
        return Err(format!("no multiprocessor holds a block of {THREADS} threads").into());
    }
    let full = engine.grid(THREADS, 1);
    let gpu =
        engine.info().gpu.map(|g| format!("{:?} {:?}", world.host_name(world.my_pe()), g.bdf)).unwrap_or_default();
    let sharers = world
        .allgather(gpu.as_bytes())?
        .iter()
        .filter(|other| !gpu.is_empty() && **other == gpu.as_bytes())
        .count()
        .max(1);
    Ok(Grid { blocks: (full.blocks / sharers as u32).clamp(1, rows), ..full })
}
