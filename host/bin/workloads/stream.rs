//! Transfers between two kernels, by three methods: the host transfers, a kernel of this crate transfers, the stream transfers.

use super::error::{MeasureError, refuse};
use serde::Serialize;
use std::fmt;
use std::time::{Duration, Instant};
use warpbell::args;
use warpbell::engine::{Engine, Stream};
use warpbell::memory::{Place, Region};
use warpbell::shmem::calls::{Cmp, SignalOp, StreamCalls};
use warpbell::shmem::{Sym, World};
use warpbell::storage::{DataBuffer, StreamQueue, Volume};

/// Longest wait for a stream, as a multiple of the engine's deadline.
const DEADLINES: u32 = 10;
/// First line of the table.
pub const HEAD: &str = "  method        one transfer            p99    behind one another";

/// Part that starts a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Method {
    /// The kernels alone, without a transfer.
    None,
    /// The host waits for the kernel before, transfers, and launches the kernel behind.
    Host,
    /// A kernel of this crate, launched on the stream.
    Kernel,
    /// Steps of the stream.
    Stream,
}

impl Method {
    const ALL: [Self; 3] = [Self::Host, Self::Kernel, Self::Stream];
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::None => "none",
            Self::Host => "host",
            Self::Kernel => "kernel",
            Self::Stream => "stream",
        })
    }
}

/// Times of one method, in nanoseconds. All data was verified.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Row {
    pub method: Method,
    /// From the launch of the kernel before the transfer until the host knows that the kernel behind it has ended. Median and 99th
    /// percentile. For puts: half of a round trip, with the host between the rounds.
    pub one_ns: u64,
    pub one_p99_ns: u64,
    /// For each of many transfers on the stream, each between two kernels; for puts half of a round trip.
    pub chained_ns: u64,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = |ns: u64| ns as f64 / 1e3;
        let (one, p99, chained) = (us(self.one_ns), us(self.one_p99_ns), us(self.chained_ns));
        write!(f, "  {:<10} {one:>12.2} us {p99:>12.2} us {chained:>15.2} us", self.method)
    }
}

/// Numbers of transfers.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Counts {
    /// Transfers that are measured one by one.
    pub single: u32,
    /// Transfers on the stream behind one another.
    pub chained: u32,
}

/// Returns the median and the 99th percentile.
fn spread(mut times: Vec<Duration>) -> (u64, u64) {
    times.sort();
    let at = |part: usize| times.get(times.len() * part / 100).map_or(0, |t| t.as_nanos() as u64);
    (at(50), at(99))
}

fn within(engine: &Engine) -> Duration {
    engine.deadline().saturating_mul(DEADLINES)
}

/// Reads or writes of one volume.
pub struct VolumeTransfers<'a> {
    volume: &'a Volume,
    bytes: usize,
    writes: bool,
    counts: Counts,
    data: DataBuffer,
    word: Region,
    stream: Stream,
    queue: StreamQueue,
}

impl<'a> VolumeTransfers<'a> {
    /// Allocates memory for transfers of `bytes` bytes, and fills the blocks that are read.
    ///
    /// # Errors
    /// [`MeasureError::Refused`] if the volume is too small or `bytes` is not whole blocks; [`MeasureError::Storage`] if a device fails.
    pub fn new(volume: &'a Volume, bytes: usize, writes: bool, counts: Counts) -> Result<Self, MeasureError> {
        let engine = volume.engine();
        let all = bytes.saturating_mul(counts.chained as usize);
        if bytes == 0 || !bytes.is_multiple_of(volume.block_bytes()) {
            return refuse!("{bytes} bytes are not whole blocks of {}", volume.block_bytes());
        }
        if all as u64 > volume.bytes() {
            let (chained, has) = (counts.chained, volume.bytes());
            return refuse!(
                "{chained} transfers of {bytes} bytes exceed the {has} bytes of the device: use fewer, or a larger one"
            );
        }
        let data = volume.allocate_data(all)?;
        let word = engine.allocate(Place::Device, size_of::<u64>())?;
        let stream = engine.stream()?;
        let queue = StreamQueue::new(&stream, volume)?;
        let made = Self { volume, bytes, writes, counts, data, word, stream, queue };
        let content = made.content(0);
        if writes {
            made.data.write(0, &content)?
        } else {
            volume.write_bytes(0, &content)?
        }
        Ok(made)
    }

    /// Returns the content of all blocks; each seed has another one.
    fn content(&self, seed: u64) -> Vec<u8> {
        let words = (self.bytes * self.counts.chained as usize / 8) as u64;
        (0..words).flat_map(|i| (i ^ seed << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_ne_bytes()).collect()
    }

    /// Transfers once, and launches the kernel behind the transfer.
    fn one(&self, method: Method, nth: u32) -> Result<(), MeasureError> {
        let blocks = (self.bytes / self.volume.block_bytes()) as u64;
        let (first, at) = (u64::from(nth) * blocks, nth as usize * self.bytes);
        match method {
            Method::None => {}
            Method::Host => {
                self.stream.synchronize(within(self.volume.engine()))?;
                let mut bytes = vec![0; self.bytes];
                if self.writes {
                    self.data.read(at, &mut bytes)?;
                    self.volume.write_blocks(first, &bytes)?;
                } else {
                    self.volume.read_blocks(first, &mut bytes)?;
                    self.data.write(at, &bytes)?;
                }
            }
            Method::Kernel => {
                let kernel = if self.writes { "wb_write_blocks" } else { "wb_read_blocks" };
                let engine = self.volume.engine();
                let grid = engine.grid(engine.info().warp_width, 1);
                let args = args!(self.volume, first, blocks, blocks as u32).with(self.data.address() + at as u64);
                // SAFETY: these are the arguments that both kernels take. The blocks are the volume's, and the buffer, which lives
                // longer than the stream's work, holds that many.
                unsafe { self.stream.launch(kernel, warpbell::engine::Grid { blocks: 1, ..grid }, args) }?;
            }
            Method::Stream => {
                if self.writes {
                    self.queue.prepare_write(first, blocks, &self.data, at)?;
                } else {
                    self.queue.prepare_read(first, blocks, &self.data, at)?;
                }
                self.queue.trigger()?;
            }
        }
        self.kernel()
    }

    /// Launches a kernel that does next to nothing.
    fn kernel(&self) -> Result<(), MeasureError> {
        let engine = self.volume.engine();
        let grid = warpbell::engine::Grid { blocks: 1, threads: engine.info().warp_width };
        // SAFETY: these are the types of the parameters of `wb_iota`: out, count, start, step.
        Ok(unsafe { self.stream.launch("wb_iota", grid, args!(&self.word, 1u64, 1u64, 0u64)) }?)
    }

    fn synchronize(&self) -> Result<(), MeasureError> {
        self.stream.synchronize(within(self.volume.engine()))?;
        Ok(())
    }

    /// Measures all methods and compares the data of each.
    ///
    /// # Errors
    /// [`MeasureError::Wrong`] if data is not what was stored, and errors of the engine and the device.
    pub fn measure(&self) -> Result<Vec<Row>, MeasureError> {
        let mut rows = Vec::new();
        for (seed, method) in [Method::None].into_iter().chain(Method::ALL).enumerate() {
            self.renew(seed as u64 + 1)?;
            let times = self.times(method)?;
            let started = Instant::now();
            self.kernel()?;
            // A queue of the stream holds so many commands until the host has waited for them.
            let at_once = if method == Method::Stream { self.queue.capacity() as u32 / 2 } else { u32::MAX };
            for nth in 0..self.counts.chained {
                self.one(method, nth)?;
                if (nth + 1).is_multiple_of(at_once.max(1)) {
                    self.synchronize()?;
                }
            }
            self.synchronize()?;
            let chained = started.elapsed() / self.counts.chained;
            if method != Method::None {
                self.compare(seed as u64 + 1, method)?;
            }
            rows.push(Row { method, one_ns: times.0, one_p99_ns: times.1, chained_ns: chained.as_nanos() as u64 });
        }
        Ok(rows)
    }

    fn times(&self, method: Method) -> Result<(u64, u64), MeasureError> {
        let mut times = Vec::new();
        for nth in 0..self.counts.single {
            let started = Instant::now();
            self.kernel()?;
            self.one(method, nth % self.counts.chained)?;
            self.synchronize()?;
            times.push(started.elapsed());
        }
        Ok(spread(times))
    }

    /// Stores new content where transfers take it, and other content where they put it.
    fn renew(&self, seed: u64) -> Result<(), MeasureError> {
        let (content, none) = (self.content(seed), vec![0xee; self.data.len()]);
        let (on_volume, in_memory) = if self.writes { (&none, &content) } else { (&content, &none) };
        self.volume.write_bytes(0, on_volume)?;
        Ok(self.data.write(0, in_memory)?)
    }

    fn compare(&self, seed: u64, method: Method) -> Result<(), MeasureError> {
        let mut found = vec![0; self.data.len()];
        if self.writes {
            self.volume.read_bytes(0, &mut found)?
        } else {
            self.data.read(0, &mut found)?
        }
        match found.iter().zip(self.content(seed)).position(|(a, b)| *a != b) {
            None => Ok(()),
            Some(at) => Err(MeasureError::Wrong(format!("method {method}: byte {at} of {} is wrong", found.len()))),
        }
    }
}

/// Puts with a signal between PE 0 and PE 1, there and back. Other PEs only take part in barriers.
pub struct Puts<'a> {
    world: &'a World,
    counts: Counts,
    mine: Sym<u64>,
    inbox: Sym<u64>,
    signal: Sym<u64>,
    stream: Stream,
    calls: StreamCalls,
}

impl<'a> Puts<'a> {
    /// Allocates symmetric memory for messages of `bytes` bytes. All PEs call this together.
    ///
    /// # Errors
    /// [`MeasureError::Refused`] if the world has one PE or `bytes` is not a multiple of 8; [`MeasureError::Shmem`] without memory.
    pub fn new(world: &'a World, bytes: usize, counts: Counts) -> Result<Self, MeasureError> {
        if world.n_pes() < 2 || bytes == 0 || !bytes.is_multiple_of(8) {
            return refuse!(
                "a put needs two PEs and a multiple of 8 bytes; there are {} PEs and {bytes} bytes",
                world.n_pes()
            );
        }
        let (mine, inbox) = (world.calloc(bytes / 8)?, world.calloc(bytes / 8)?);
        let signal = world.calloc(1)?;
        let stream = world.engine().stream()?;
        let calls = StreamCalls::new(&stream, world)?;
        Ok(Self { world, counts, mine, inbox, signal, stream, calls })
    }

    /// Measures all methods and compares the data. All PEs call this together; the times are those of PE 0.
    ///
    /// # Errors
    /// [`MeasureError::Wrong`] if data is not what was put, and errors of the engine and the world.
    pub fn measure(&self) -> Result<Vec<Row>, MeasureError> {
        let mut rows = Vec::new();
        let mut round = 0;
        for method in Method::ALL {
            let me = self.world.my_pe() as u64;
            let words = self.mine.len() as u64;
            let of = |pe: u64| (0..words).map(|i| (i + round + 1) << 8 | pe).collect::<Vec<u64>>();
            self.mine.write(0, &of(me))?;
            self.world.barrier_all()?;
            let mut times = Vec::new();
            for _ in 0..self.counts.single {
                round += 1;
                let started = Instant::now();
                self.trip(method, round)?;
                self.stream.synchronize(within(self.world.engine()))?;
                times.push(started.elapsed() / 2);
            }
            self.world.barrier_all()?;
            // A trip takes two requests of a queue pair, which has room again once the host has waited.
            let room = self.calls.capacity().map_or(self.counts.chained, |c| (c / 2) as u32);
            let started = Instant::now();
            for trip in 0..self.counts.chained {
                if method == Method::Stream && trip > 0 && trip.is_multiple_of(room) {
                    self.stream.synchronize(within(self.world.engine()))?;
                }
                round += 1;
                self.trip(method, round)?;
            }
            self.stream.synchronize(within(self.world.engine()))?;
            let chained = started.elapsed() / (2 * self.counts.chained);
            if me < 2 {
                let first = round - u64::from(self.counts.single + self.counts.chained);
                let expected: Vec<u64> = (0..words).map(|i| (i + first + 1) << 8 | (1 - me)).collect();
                if self.inbox.read(0, self.inbox.len())? != expected {
                    return Err(MeasureError::Wrong(format!(
                        "method {method}: PE {me} has not got what the other PE has put"
                    )));
                }
            }
            let (one_ns, one_p99_ns) = spread(times);
            rows.push(Row { method, one_ns, one_p99_ns, chained_ns: chained.as_nanos() as u64 });
            self.world.barrier_all()?;
        }
        Ok(rows)
    }

    /// One trip there and back.
    fn trip(&self, method: Method, round: u64) -> Result<(), MeasureError> {
        match self.world.my_pe() {
            0 => {
                self.put(method, 1, round)?;
                self.wait(method, round)?;
            }
            1 => {
                self.wait(method, round)?;
                self.put(method, 0, round)?;
            }
            _ => {}
        }
        if method == Method::Stream { Ok(self.calls.trigger()?) } else { Ok(()) }
    }

    fn put(&self, method: Method, pe: usize, round: u64) -> Result<(), MeasureError> {
        let (to, from, signal) = (&self.inbox, &self.mine, &self.signal);
        match method {
            Method::None => {}
            Method::Host => self.world.put_signal(to, from, signal, (round, SignalOp::Set), pe)?,
            Method::Kernel => self.world.put_signal_on(&self.stream, to, from, signal, (round, SignalOp::Set), pe)?,
            Method::Stream => {
                self.calls.prepare_put(to, from, pe)?;
                self.calls.prepare_signal(signal, round, pe)?;
            }
        }
        Ok(())
    }

    fn wait(&self, method: Method, round: u64) -> Result<(), MeasureError> {
        match method {
            Method::None => {}
            Method::Host => self.world.signal_wait_until(&self.signal, Cmp::Ge, round)?,
            Method::Kernel => self.world.signal_wait_until_on(&self.stream, &self.signal, Cmp::Ge, round)?,
            Method::Stream => self.calls.prepare_wait(&self.signal, round)?,
        }
        Ok(())
    }
}
