//! Transfers between objects of a volume and segments of memory, as kernels on a stream.
//!
//! The host divides objects into commands (`list.rs`) and launches one kernel (`segments.cuh`), which posts them, moves the data and
//! counts what is complete. Lists and outcomes are in pinned host memory (`memory.rs`), so that a launch copies nothing.

#[cfg(test)]
mod array_tests;
#[cfg(feature = "internals")]
mod arrays;
mod list;
mod memory;
#[cfg(test)]
mod tests;
mod transfer;

pub use list::{PagedTensors, SegmentList};
pub use transfer::{SegmentOutcome, SegmentTransfer};

use super::Volume;
use crate::engine::{Args, Grid, Stream, abi};
use crate::memory::Region;
use crate::storage::contents::{ArrayUse, ArrayUser, Entry};
use crate::storage::error::StorageError;
use list::{Limits, refuse};
use memory::{Counters, Lists, Staging};
use parking_lot::Mutex;
use std::any::Any;
use std::fmt;
use std::sync::{Arc, Weak};
use transfer::Launched;

/// Threads of a block, as the kernels are compiled for.
const THREADS: u32 = 128;
/// Blocks on each multiprocessor: 8 warps.
const BLOCKS: u32 = 2;
/// Multiprocessors of a GPU and commands of each warp in flight, unless the program says otherwise: these carry what a link carries. More
/// in flight need more memory for their data, which then leaves the host's cache.
const PROCESSORS: u32 = 16;
const IN_FLIGHT: u32 = 1;
/// Largest command, unless the program says otherwise or the devices take less.
const COMMAND_BYTES: usize = 128 << 10;

/// Options of a [`SegmentQueue`].
#[derive(Clone, Copy, Debug, Default)]
#[must_use = "call `build`"]
pub struct SegmentQueueBuilder<'q> {
    queue: Option<(&'q Stream, &'q Volume)>,
    multiprocessors: Option<u32>,
    in_flight: Option<u32>,
    command_bytes: Option<usize>,
}

/// Transfers between objects of a volume and lists of segments of memory, one after the other on a stream.
///
/// [`load`](Self::load) and [`store`](Self::store) add one kernel to the stream, which makes all commands of a [`SegmentList`] itself. The
/// host does not take part. Kernels that are launched on the stream afterwards find the data; those of another stream find the data of a
/// group after [`SegmentTransfer::wait_group`], while later groups are still under way.
///
/// A stored object is durable after [`Volume::flush`]. Page checksums are neither compared nor known afterwards.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use warpbell::engine::Engine;
/// use warpbell::memory::Place;
/// use warpbell::storage::{Drive, Extent, OverwritePolicy, SegmentList, SegmentQueue, Volume};
///
/// let engine = Engine::cpu()?;
/// let volume = Volume::on(&engine, [Drive::create("soft:mem", 1 << 20, &OverwritePolicy::none())?]).build()?;
/// let (stream, pages) = (engine.stream()?, engine.allocate(Place::Device, 64 << 10)?);
/// pages.set(32 << 10, 7u64)?;
/// let queue = SegmentQueue::on(&stream, &volume).build()?;
///
/// let mut list = SegmentList::new();
/// list.object(&[Extent::new(16, 8)], 4096)?; // blocks 16 to 23
/// list.segment(&pages, 32 << 10, 2048, 0)?;
/// list.segment(&pages, 8 << 10, 2048, 0)?;
/// queue.store(list)?.finish(Duration::from_secs(10))?;
///
/// let mut stored = [0; 8];
/// volume.read_bytes(16 * 512, &mut stored)?;
/// assert_eq!(u64::from_le_bytes(stored), 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct SegmentQueue(Arc<Inner>);

struct Inner {
    stream: Stream,
    volume: Volume,
    limits: Limits,
    in_flight: u32,
    loads: Grid,
    stores: Grid,
    state: Arc<Mutex<State>>,
}

/// Memory of the transfers, which the stream keeps until it was waited for.
struct State {
    /// Number of the last transfer.
    number: u64,
    staging: Arc<Staging>,
    counters: Counters,
    /// Transfers whose end was not seen yet.
    running: Vec<Running>,
    /// Lists of transfers that were dropped.
    dropped: Vec<(u64, Lists)>,
}

/// A transfer that its kernel may still make.
struct Running {
    number: u64,
    lists: Lists,
    objects: usize,
    stores: bool,
    /// The stored array that it is for.
    array: Option<Arc<ArrayUse>>,
    /// Owners of the segments' memory.
    _kept: Vec<Arc<dyn Any + Send + Sync>>,
}

impl Running {
    /// Takes the array of a transfer that is over, if a device may still write to it.
    fn take_late_array(&mut self) -> Option<Arc<ArrayUse>> {
        if !self.stores || self.array.is_none() {
            return None;
        }
        let outcomes = self.lists.outcomes(self.objects);
        match outcomes.is_ok_and(|all| all.iter().all(|object| object.given_up == 0)) {
            true => None,
            false => self.array.take(),
        }
    }
}

impl State {
    /// Removes the transfers that have ended, for the caller to drop without locks: what they keep may be of any kind.
    fn take_ended(&mut self) -> Vec<Running> {
        let (over, running) = self.running.drain(..).partition(|running| running.lists.ended() == running.number);
        self.running = running;
        over
    }

    /// Removes and returns memory of at least so many bytes that a dropped transfer had, and that no kernel uses.
    fn take_unused(&mut self, bytes: usize) -> Option<Region> {
        // A kernel stores the number of its transfer last, and does not use the lists afterwards.
        let running = &self.running;
        let at = self.dropped.iter().position(|(number, lists)| {
            lists.region().len() >= bytes && running.iter().all(|running| running.number != *number)
        })?;
        Some(self.dropped.swap_remove(at).1.region().clone())
    }
}

impl SegmentQueueBuilder<'_> {
    /// Keeps the kernels to so many multiprocessors of a GPU: 16 without this, 8 warps on each.
    pub fn multiprocessors(mut self, count: u32) -> Self {
        self.multiprocessors = Some(count);
        self
    }

    /// Sets the commands that each warp has in flight: 1 without this, at most one for each lane.
    pub fn in_flight(mut self, commands: u32) -> Self {
        self.in_flight = Some(commands);
        self
    }

    /// Sets the bytes of the largest command: 128 KiB without this, at most what the devices take.
    pub fn command_bytes(mut self, bytes: usize) -> Self {
        self.command_bytes = Some(bytes);
        self
    }

    /// Allocates staging memory for the commands in flight.
    ///
    /// # Errors
    /// * [`StorageError::Option`] if stream and volume belong to different engines, or an option is out of its range.
    /// * [`StorageError::Engine`] if a kernel cannot be prepared.
    /// * [`StorageError::Memory`] or [`StorageError::Dma`] if memory cannot be allocated, or a device does not reach it.
    pub fn build(self) -> Result<SegmentQueue, StorageError> {
        let Some((stream, volume)) = self.queue else {
            return refuse("a queue needs a stream and a volume; use SegmentQueue::on".to_owned());
        };
        let engine = volume.engine();
        if !engine.is_same(stream.engine()) {
            return refuse(format!(
                "{}: the stream belongs to another engine; use a stream of the volume's engine",
                volume.name()
            ));
        }
        let width = engine.warp_width();
        let in_flight = self.in_flight.unwrap_or(IN_FLIGHT);
        if !(1..=width).contains(&in_flight) {
            return refuse(format!("{in_flight} commands in flight of each warp; give 1 to {width}"));
        }
        let (block, largest) = (volume.block_bytes(), volume.max_transfer_bytes());
        let command_bytes = self.command_bytes.unwrap_or(COMMAND_BYTES.min(largest).max(block)) / block * block;
        if command_bytes == 0 || command_bytes > largest {
            return refuse(format!("commands of {command_bytes} bytes; give {block} to {largest}, in whole blocks"));
        }
        let grid = |kernel: &str| -> Result<Grid, StorageError> {
            let full = engine.grid(THREADS, BLOCKS.min(engine.occupancy(kernel, THREADS)?));
            let all = engine.info().gpu.map_or(full.blocks, |gpu| gpu.processors);
            let count = self.multiprocessors.unwrap_or(PROCESSORS.min(all));
            if !(1..=all).contains(&count) {
                return refuse(format!("{count} multiprocessors; the engine has {all}"));
            }
            // Blocks are spread over all multiprocessors before any of them gets a second one.
            Ok(Grid { blocks: (full.blocks / all.max(1) * count).max(1), ..full })
        };
        let (loads, stores) = (grid(LOAD)?, grid(STORE)?);
        let warps = |g: Grid| u64::from(g.blocks) * u64::from((g.threads / width).max(1));
        let commands = warps(loads).max(warps(stores)) * u64::from(in_flight);
        let staging = Staging::new(volume, commands as usize * command_bytes)?;
        let limits = Limits {
            block_shift: volume.block_shift(),
            bytes: command_bytes as u64,
            chunk_blocks: volume.chunk_bytes() >> volume.block_shift(),
        };
        let state = State {
            number: 0,
            staging: Arc::new(staging),
            counters: Counters::new(engine, 1, 1)?,
            running: Vec::new(),
            dropped: Vec::new(),
        };
        Ok(SegmentQueue(Arc::new(Inner {
            stream: stream.clone(),
            volume: volume.clone(),
            limits,
            in_flight,
            loads,
            stores,
            state: Arc::new(Mutex::new(state)),
        })))
    }
}

const LOAD: &str = "wb_segments_load";
const STORE: &str = "wb_segments_store";

impl SegmentQueue {
    /// Begins the options of a queue on a stream.
    pub fn on<'q>(stream: &'q Stream, volume: &'q Volume) -> SegmentQueueBuilder<'q> {
        SegmentQueueBuilder { queue: Some((stream, volume)), ..SegmentQueueBuilder::default() }
    }

    /// Returns the stream.
    pub fn stream(&self) -> &Stream {
        &self.0.stream
    }

    /// Returns the volume.
    pub fn volume(&self) -> &Volume {
        &self.0.volume
    }

    /// Returns the kernel of loads, or of stores, and its grid.
    #[cfg(feature = "internals")]
    pub fn kernel(&self, loads: bool) -> (&'static str, Grid) {
        if loads { (LOAD, self.0.loads) } else { (STORE, self.0.stores) }
    }

    /// Adds to the stream the reads of a list's objects into its segments.
    ///
    /// # Errors
    /// * [`StorageError::Option`] if an object lacks blocks or segments, or a segment is memory of another engine.
    /// * [`StorageError::Range`] if blocks are not within the volume.
    /// * [`StorageError::Memory`] without memory; [`StorageError::Engine`] if the kernel cannot be launched.
    pub fn load(&self, list: SegmentList) -> Result<SegmentTransfer, StorageError> {
        self.0.clone().launch(LOAD, self.0.loads, list, None)
    }

    /// Adds to the stream the writes of a list's objects from its segments, with what these have when the stream comes to it. Zeros fill
    /// the last block of an object. A group is complete when its segments may change again.
    ///
    /// # Errors
    /// As for [`Self::load`].
    pub fn store(&self, list: SegmentList) -> Result<SegmentTransfer, StorageError> {
        self.0.clone().launch(STORE, self.0.stores, list, None)
    }
}

impl ArrayUser for Inner {
    fn release(&self) {
        self.release(true);
    }
}

impl SegmentQueue {
    /// Launches the transfer of a list, which `list` makes of an array's entry. The array called `name` keeps its place until the transfer
    /// has ended.
    ///
    /// # Errors
    /// [`StorageError::Manifest`] if the volume holds no such array; as for [`Self::load`].
    pub(in crate::storage) fn launch_within(
        &self,
        name: &str,
        loads: bool,
        list: impl FnOnce(&Entry) -> Result<SegmentList, StorageError>,
    ) -> Result<SegmentTransfer, StorageError> {
        let inner = &self.0;
        let (kernel, grid) = if loads { (LOAD, inner.loads) } else { (STORE, inner.stores) };
        // A weak reference of the queue's own type becomes one of the trait.
        let user = Arc::downgrade(inner) as Weak<dyn ArrayUser>;
        // Outside of the volume's lock on uses: owners of memory may be of any kind.
        inner.release(true);
        let contents = inner.volume.contents();
        contents.use_array(name, user, |entry, array| inner.clone().launch(kernel, grid, list(entry)?, Some(array)))
    }
}

impl Inner {
    fn launch(
        self: Arc<Self>,
        kernel: &str,
        grid: Grid,
        list: SegmentList,
        array: Option<Arc<ArrayUse>>,
    ) -> Result<SegmentTransfer, StorageError> {
        list.complete()?;
        let engine = self.volume.engine();
        if list.spaces.iter().any(|space| !space.same(engine.space())) {
            return refuse("a segment is memory of another engine; use the engine of the volume".to_owned());
        }
        let (mut first, mut end) = (u64::MAX, 0);
        for extent in list.objects.iter().flat_map(|object| &object.extents) {
            self.volume.disk().check_blocks(extent.block, extent.blocks)?;
            (first, end) = (first.min(extent.block), end.max(extent.block + extent.blocks));
        }
        let self_checked = first < end && self.volume.contents().is_self_checked(first, end - first);
        let commands = list::commands(&list, self.limits)?;
        let (objects, groups) = (list.objects.len(), list.groups.len());
        if array.is_none() {
            self.release(true);
        }
        let mut state = self.state.lock();
        let state = &mut *state;
        state.counters.reserve(engine, objects, groups)?;
        let lists = Lists::fill(engine, |bytes| state.take_unused(bytes), &commands, &list)?;
        let number = state.number + 1;
        let job = abi::SegmentJob {
            volume: self.volume.view().volume,
            number,
            staging_bytes: self.limits.bytes as u32,
            in_flight: self.in_flight,
            commands: commands.len() as u32,
            segments: list.segments.len() as u32,
            groups: groups as u32,
            objects: objects as u32,
            self_checked: self_checked.into(),
            ..state.staging.describe(state.counters.describe(lists.describe()))
        };
        let mut args = Args::new();
        args.push_value(job);
        args.keep(self.volume.0.clone());
        state.staging.keep(&mut args);
        args.keep(state.counters.region().owner());
        // Has the lists of the transfer and the owners of its segments until its end was seen.
        args.keep(self.state.clone());
        let failed_waits = self.stream.failed_waits();
        // SAFETY: this is the argument that both kernels take. Blocks and sizes were compared; segments are in memory that the list's
        // maker vouches for; the stream keeps the owners of all other memory until it was waited for. Transfers with the same counters
        // and staging memory follow each other on the stream.
        unsafe { self.stream.launch(kernel, grid, args) }?;
        state.number = number;
        state.running.push(Running {
            number,
            lists: lists.clone(),
            objects,
            stores: kernel == STORE,
            array,
            _kept: list.kept,
        });
        let (staging, counters) = (state.staging.clone(), state.counters.clone());
        let launched = Launched { number, failed_waits, groups, objects, lists, counters, staging };
        Ok(SegmentTransfer::new(self.clone(), launched))
    }

    /// Releases what was kept for transfers that have ended. With `stopped`, asks the stream whether others will never run. Returns true
    /// if none is left.
    fn release(&self, stopped: bool) -> bool {
        let mut state = self.state.lock();
        let mut over = state.take_ended();
        // Under the lock that launches take: none of them is between its launch and its entry.
        if stopped && !state.running.is_empty() && self.stream.is_finished().unwrap_or(false) {
            over.append(&mut state.running);
        }
        // Under the lock, too: the next transfer may have the same lists.
        let late: Vec<_> = over.iter_mut().filter_map(Running::take_late_array).collect();
        let none_left = state.running.is_empty();
        drop(state);
        for array in late {
            tracing::warn!(
                ?array,
                "a stored array keeps its place until the volume is opened again: a device may still write to it"
            );
            std::mem::forget(array);
        }
        none_left
    }

    /// Replaces staging memory to which a device or a kernel may still write, and the counters that belong to a transfer that was broken
    /// off, unless another transfer did so.
    fn replace(&self, staging: &Arc<Staging>) -> Result<(), StorageError> {
        let mut state = self.state.lock();
        if Arc::ptr_eq(&state.staging, staging) {
            state.counters = state.counters.another(self.volume.engine())?;
            state.staging = Arc::new(Staging::new(&self.volume, staging.bytes())?);
        }
        Ok(())
    }
}

impl fmt::Debug for SegmentQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SegmentQueue({} on {:?})", self.0.volume.name(), self.0.stream)
    }
}
