//! Cost of a measurement on a GPU: the registers, warps and multiprocessors that it holds, and the rest for other kernels.

use super::error::{MeasureError, refuse};
use super::params::{OCCUPY_BLOCKS, OCCUPY_PROCESSORS, Occupy};
use super::report::nanoseconds;
use serde::Serialize;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use warpbell::engine::{Args, Engine, Grid, KernelArg, Stream};
use warpbell::memory::{Place, Region};
use warpbell::units::counted;

impl KernelArg for Occupy {
    fn push(&self, args: &mut Args) {
        args.push_value(*self);
    }
}

const KERNEL: &str = "wb_occupy_processors";
/// Time in which all blocks of the computing kernel come to their places.
const PLACED: Duration = Duration::from_secs(10);
/// Time between two looks at them.
const LOOK: Duration = Duration::from_micros(200);
/// Time for which the computing kernel runs alone.
const ALONE: Duration = Duration::from_millis(200);
/// Longest time for which it counts its rounds: the kernel's sum has 64 bits.
pub const MOST: Duration = Duration::from_secs(4 * 3600);
/// Time in which it ends when it is told to.
const ENDS: Duration = Duration::from_secs(30);

/// Share of a GPU that a kernel holds while it is measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct GpuCost {
    /// Multiprocessors of the GPU.
    pub of: u32,
    /// Multiprocessors that the measurement was kept to, or that its blocks can be on at most.
    pub multiprocessors: u32,
    /// Warps of the kernel.
    pub warps: u32,
    /// Registers per thread.
    pub registers: u32,
    /// Rate of a kernel that computes on the other multiprocessors, as a share of its rate alone on all; absent unless
    /// the measurement is kept to some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute_left: Option<f64>,
}

impl GpuCost {
    /// Returns the cost of a kernel with this grid; `None` on a CPU engine.
    ///
    /// # Errors
    /// [`MeasureError::Engine`] if no image has the kernel.
    pub fn of(engine: &Engine, kernel: &str, grid: Grid, sms: Option<u32>) -> Result<Option<Self>, MeasureError> {
        let Some(gpu) = engine.info().gpu else { return Ok(None) };
        let registers = engine.registers(kernel)?;
        let warps = grid.blocks.saturating_mul(grid.threads / engine.info().warp_width);
        let multiprocessors = sms.unwrap_or(gpu.processors).min(grid.blocks);
        Ok(Some(Self { of: gpu.processors, multiprocessors, warps, registers, compute_left: None }))
    }

    /// Returns what two kernels hold that run at the same time.
    pub fn beside(self, other: Self) -> Self {
        Self {
            of: self.of,
            multiprocessors: self.of.min(self.multiprocessors.saturating_add(other.multiprocessors)),
            warps: self.warps.saturating_add(other.warps),
            registers: self.registers.max(other.registers),
            compute_left: None,
        }
    }
}

impl fmt::Display for GpuCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (warps, registers) = (counted(self.warps, "warp", "warps"), self.registers);
        let on = counted(self.of, "multiprocessor", "multiprocessors");
        write!(f, "  gpu: {} of {on}, {warps} of {registers} registers a thread", self.multiprocessors)?;
        self.compute_left.map_or(Ok(()), |left| write!(f, "; {:.1} % of a computing kernel left", left * 100.0))
    }
}

/// Checks the number of multiprocessors that a measurement is kept to, and returns the engine's number where none is
/// given. On a CPU engine it must not be given.
///
/// # Errors
/// [`MeasureError::Refused`] if there are not that many, or the engine is no GPU.
pub fn checked(engine: &Engine, sms: Option<u32>) -> Result<Option<u32>, MeasureError> {
    match (engine.info().gpu, sms) {
        (Some(gpu), Some(sms)) if sms == 0 || sms > gpu.processors => {
            refuse!("--sms {sms}: the GPU has {}; give 1 to that", gpu.processors)
        }
        (None, Some(sms)) => {
            refuse!(
                "--sms {sms} is about multiprocessors of a GPU, and this engine runs on CPU threads; give --threads there"
            )
        }
        (gpu, sms) => Ok(sms.or(gpu.map(|gpu| gpu.processors))),
    }
}

/// Keeps kernels to some multiprocessors of a GPU: another kernel computes on the others, and leaves no room there.
/// Dropping it ends that kernel.
#[derive(Debug)]
pub struct Occupied {
    stream: Stream,
    memory: Arc<OccupyMemory>,
    /// True when the kernel has been waited for.
    ended: bool,
}

/// Memory that the kernel uses.
#[derive(Debug)]
struct OccupyMemory {
    /// Blocks and rank of each multiprocessor, then the counts.
    counts: Region,
    rate: Region,
    ready: Region,
    stop: Region,
    sum: Region,
}

impl Occupied {
    /// Occupies all multiprocessors but `left`. Returns when it has them. The kernel ends by itself after `within`.
    ///
    /// # Errors
    /// [`MeasureError::Refused`] if other work is on the GPU. [`MeasureError::Memory`], [`MeasureError::Engine`] or
    /// [`MeasureError::Run`] if memory or the kernel fails.
    pub fn but(engine: &Engine, left: u32, within: Duration) -> Result<Self, MeasureError> {
        let grid = grid(engine)?;
        Self::with(engine, grid, left, within)
    }

    fn with(engine: &Engine, grid: Grid, left: u32, within: Duration) -> Result<Self, MeasureError> {
        let numbers = OCCUPY_PROCESSORS as usize * size_of::<u32>();
        let memory = Arc::new(OccupyMemory {
            counts: engine.allocate(Place::Device, 2 * numbers + 3 * size_of::<u32>())?,
            rate: engine.allocate(Place::Device, size_of::<u64>())?,
            ready: engine.allocate(Place::Host, size_of::<u32>())?,
            stop: engine.allocate(Place::Host, size_of::<u32>())?,
            sum: engine.allocate(Place::Device, size_of::<f32>())?,
        });
        for region in [&memory.counts, &memory.rate, &memory.ready, &memory.stop] {
            region.fill(0, region.len(), 0)?;
        }
        let at = memory.counts.address();
        let parameters = Occupy {
            blocks_of: at,
            rank_of: at + numbers as u64,
            counts: at + 2 * numbers as u64,
            rate: memory.rate.address(),
            ready: memory.ready.address(),
            stop: memory.stop.address(),
            limit_ns: nanoseconds(within),
            left,
            padding: 0,
        };
        let stream = engine.stream()?;
        let mut args = Args::new().with(parameters).with(&memory.sum);
        args.keep(memory.clone());
        // SAFETY: the arguments are this kernel's parameters, and the stream keeps all of their memory.
        unsafe { stream.launch(KERNEL, grid, args) }?;
        let this = Self { stream, memory, ended: false };
        let started = Instant::now();
        while this.memory.ready.get::<u32>(0)? == 0 {
            if started.elapsed() > PLACED {
                return refuse!(
                    "the multiprocessors cannot be occupied within {PLACED:?}: other programs use the GPU; end them, or leave --sms out"
                );
            }
            if engine.is_cancelled() {
                return Err(MeasureError::Stopped);
            }
            std::thread::sleep(LOOK);
        }
        Ok(this)
    }

    /// Ends the kernel. Returns its rate: rounds in 1,000 seconds.
    ///
    /// # Errors
    /// [`MeasureError::Memory`] or [`MeasureError::Run`] if memory or the kernel fails.
    pub fn end(mut self) -> Result<f64, MeasureError> {
        self.stop()?;
        Ok(self.memory.rate.get::<u64>(0)? as f64)
    }

    fn stop(&mut self) -> Result<(), MeasureError> {
        self.ended = true;
        self.memory.stop.set(0, 1u32)?;
        self.stream.synchronize(ENDS)?;
        Ok(())
    }
}

impl Drop for Occupied {
    fn drop(&mut self) {
        if !self.ended {
            // The stream keeps the memory of a kernel that does not end.
            let _ = self.stop();
        }
    }
}

/// Returns a grid that fills every multiprocessor, so that nothing else fits there.
fn grid(engine: &Engine) -> Result<Grid, MeasureError> {
    let Some(gpu) = engine.info().gpu else { return refuse!("--sms needs a GPU") };
    let threads = gpu.threads_per_processor / OCCUPY_BLOCKS;
    if engine.occupancy(KERNEL, threads)? != OCCUPY_BLOCKS {
        return refuse!(
            "--sms: {OCCUPY_BLOCKS} blocks of {threads} threads do not fill a multiprocessor of this GPU; leave it out"
        );
    }
    Ok(Grid { blocks: gpu.processors * OCCUPY_BLOCKS, threads })
}

/// Rate of the computing kernel on all multiprocessors, with which the others are compared.
#[derive(Clone, Copy, Debug)]
pub struct Compute {
    alone: f64,
}

impl Compute {
    /// Measures it.
    ///
    /// # Errors
    /// As for [`Occupied::but`] and [`Occupied::end`].
    pub fn measure(engine: &Engine) -> Result<Self, MeasureError> {
        let all = Occupied::but(engine, 0, PLACED)?;
        std::thread::sleep(ALONE);
        Ok(Self { alone: all.end()? })
    }

    /// Calls `measured`, where `this` is given while all multiprocessors but `sms` are occupied. Returns its result, and
    /// the share of the computing kernel's rate that was left. `measured` takes less than `within`, and launches no kernel
    /// for the first time: the driver may wait for all running ones then, to give it local memory.
    ///
    /// # Errors
    /// As for [`Occupied::but`] and [`Occupied::end`], and those of `measured`.
    pub fn beside<T>(
        this: Option<Self>,
        engine: &Engine,
        sms: Option<u32>,
        within: Duration,
        measured: impl FnOnce() -> Result<T, MeasureError>,
    ) -> Result<(T, Option<f64>), MeasureError> {
        let (Some(this), Some(sms)) = (this, sms) else { return Ok((measured()?, None)) };
        if engine.info().gpu.is_none_or(|gpu| sms >= gpu.processors) {
            // Nothing is occupied, and nothing is left.
            return Ok((measured()?, Some(0.0)));
        }
        let (within, started) = (within.min(MOST), Instant::now());
        let others = Occupied::but(engine, sms, within)?;
        let result = measured()?;
        if started.elapsed() >= within {
            // The computing kernel has ended by itself, and the others had all multiprocessors.
            return refuse!("--sms {sms}: the measurement took longer than {within:?}; give it less to do");
        }
        Ok((result, Some(others.end()? / this.alone.max(1.0))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Multiprocessors of the CPU engine's machine, as the kernel sees them.
    const PROCESSORS: u32 = 3;

    fn engine() -> Engine {
        Engine::builder().threads((PROCESSORS * OCCUPY_BLOCKS) as usize).cpu().unwrap()
    }

    #[test]
    fn blocks_stay_but_on_those_that_are_left() {
        let engine = engine();
        let grid = Grid { blocks: PROCESSORS * OCCUPY_BLOCKS, threads: engine.info().warp_width };
        for left in 0..PROCESSORS {
            let occupied = Occupied::with(&engine, grid, left, ENDS).unwrap();
            let counts = OCCUPY_PROCESSORS as usize * 2 * size_of::<u32>();
            let [processors, come, stay] = occupied.memory.counts.get_slice::<u32>(counts, 3).unwrap()[..] else {
                panic!("three counts")
            };
            assert_eq!((processors, come), (PROCESSORS, grid.blocks));
            assert_eq!(stay, (PROCESSORS - left) * OCCUPY_BLOCKS);
            assert!(occupied.end().unwrap() > 0.0, "{left} are left, and the others do not compute");
        }
    }

    #[test]
    fn a_kernel_that_nobody_ends_is_ended_by_its_owner() {
        let engine = engine();
        let grid = Grid { blocks: PROCESSORS * OCCUPY_BLOCKS, threads: engine.info().warp_width };
        drop(Occupied::with(&engine, grid, 1, ENDS).unwrap());
        // The engine's threads are free again.
        Occupied::with(&engine, grid, 0, ENDS).unwrap().end().unwrap();
        // It ends by itself, too.
        let mut occupied = Occupied::with(&engine, grid, 1, Duration::from_millis(1)).unwrap();
        occupied.stream.synchronize(ENDS).unwrap();
        occupied.ended = true;
    }

    #[test]
    fn a_number_of_multiprocessors_is_that_of_a_gpu() {
        let engine = engine();
        assert_eq!(checked(&engine, None).unwrap(), None);
        let refused = checked(&engine, Some(4)).unwrap_err().to_string();
        assert!(refused.contains("--sms 4") && refused.contains("--threads"), "{refused}");
        assert_eq!(GpuCost::of(&engine, KERNEL, Grid { blocks: 1, threads: 1 }, None).unwrap(), None);
    }

    #[test]
    fn the_text_says_what_is_held_and_what_is_left() {
        let cost = GpuCost { of: 132, multiprocessors: 8, warps: 128, registers: 128, compute_left: Some(0.9312) };
        let held = "  gpu: 8 of 132 multiprocessors, 128 warps of 128 registers a thread";
        assert_eq!(cost.to_string(), format!("{held}; 93.1 % of a computing kernel left"));
        assert_eq!(GpuCost { compute_left: None, ..cost }.to_string(), held);
    }
}
