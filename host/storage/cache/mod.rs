//! The page cache of a volume, in memory near the kernels.

mod array;
mod geometry;
mod open_arrays;
mod untyped_array;

pub use array::Array;
pub use untyped_array::UntypedArray;

use crate::engine::{Args, KernelArg, abi};
use crate::memory::{Place, Region};
use crate::storage::disk::{DataBuffer, Stats};
use crate::storage::error::{StorageError, size};
use crate::storage::volume::{Completed, InFlight, Volume};
use geometry::Geometry;
use serde::Serialize;
use std::fmt;
use std::sync::Arc;

/// Pages of a volume in memory near the kernels, which access them through [`Array`]s. Cheap to clone.
///
/// Changes by kernels and by [`Array::write`] stay in the cache until [`Cache::flush`]. Dropping the last clone and the
/// last array loses them. It waits for pages in flight, at most for the engine's deadline; if a command is lost, the memory
/// is not freed, unless [`Volume::recover`] was called before.
///
/// # Examples
///
/// ```
/// use warpbell::engine::Engine;
/// use warpbell::storage::{Array, Cache, Drive, OverwritePolicy, Volume};
///
/// let engine = Engine::cpu()?;
/// let drive = Drive::create("soft:mem", 1 << 20, &OverwritePolicy::none())?;
/// let volume = Volume::on(&engine, [drive]).build()?;
/// volume.store_array("numbers", &(0..100_000u32).collect::<Vec<_>>())?;
///
/// // 256 KiB of pages of 4 KiB; the array has 400 KB.
/// let cache = Cache::on(&volume).bytes(256 << 10).page(4096).build()?;
/// let numbers: Array<u32> = cache.open("numbers")?;
/// // A kernel gets the array with `args!(&numbers)`. The host reads through the same cache.
/// assert_eq!(numbers.read(99_998..100_000)?, [99_998, 99_999]);
/// assert_eq!(cache.frames(), 64);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Cache(pub(in crate::storage) Arc<Inner>);

/// State of a cache. Fields are dropped in order: the memory before the volume.
pub(in crate::storage) struct Inner {
    /// `wb_cache`, which kernels read.
    shared: Region,
    /// Tags, pins, command tokens, set locks and clock hands.
    metadata: Region,
    frames: DataBuffer,
    /// Contents of `shared`.
    pub(in crate::storage) constants: abi::Cache,
    geometry: Geometry,
    pub(in crate::storage) volume: Volume,
}

/// Options of a new cache. See [`Cache::on`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build`"]
pub struct CacheBuilder {
    volume: Volume,
    bytes: u64,
    page: usize,
}

/// Kernels get a cache as `const wb_cache*`.
impl KernelArg for Cache {
    fn push(&self, args: &mut Args) {
        args.push_value(self.address());
        args.keep(self.0.clone());
    }
}

/// Numbers of pages in a cache by state, at a moment when no kernel runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Occupancy {
    /// Pages that the cache can hold.
    pub frames: u64,
    /// Pages that the cache holds.
    pub valid: u64,
    /// Pages among them that were changed and are not written yet.
    pub dirty: u64,
    /// Pages with a read or write in flight.
    pub busy: u64,
    /// Pages whose last read or write failed.
    pub failed: u64,
    /// Pages that a kernel has not unpinned: more than 0 only after a kernel was torn down.
    pub pinned: u64,
}

/// Default memory of a cache, in bytes.
const DEFAULT_BYTES: u64 = 64 << 20;
/// Default page size of a cache, in bytes.
const DEFAULT_PAGE: usize = 4096;
/// Threads of a block, and blocks, of the cache's own kernels.
const THREADS: u32 = 128;
const BLOCKS: u32 = 2;

impl CacheBuilder {
    /// Sets the memory for pages, in bytes (default 64 MiB). Rounding loses up to an eighth of it. Metadata takes at
    /// most another 28 bytes per page. A cache is never larger than its volume.
    pub fn bytes(mut self, bytes: u64) -> Self {
        self.bytes = bytes;
        self
    }

    /// Sets the page size in bytes: a power of two from 512 to 65,536. The default is 4096, or a block if blocks are
    /// larger.
    pub fn page(mut self, bytes: usize) -> Self {
        self.page = bytes;
        self
    }

    /// Allocates an empty cache.
    ///
    /// # Errors
    /// * [`StorageError::Option`] if the page size is not a power of two from 512 to 65,536. Also if it does not fit the
    ///   volume's block, command and stripe unit sizes, or if the memory holds fewer pages than one set.
    /// * [`StorageError::Memory`] or [`StorageError::Dma`] if the memory cannot be allocated, or a device cannot reach
    ///   it.
    pub fn build(self) -> Result<Cache, StorageError> {
        let v = &self.volume;
        let geometry = Geometry::new(self.bytes, self.page, v.bytes() / self.page.max(1) as u64)?;
        let (page, block) = (geometry.page, v.block_bytes());
        let refuse =
            |what: String| Err(StorageError::Option(format!("a cache page of {page} bytes on {}: {what}", v.name())));
        if page < block {
            return refuse(format!("a block there has {block} bytes, use a page of {block} or more"));
        }
        if page > v.max_transfer_bytes() {
            let most = v.max_transfer_bytes();
            return refuse(format!(
                "one command moves {most} bytes at most, use a smaller page or a larger transfer size"
            ));
        }
        let chunk = v.chunk_bytes();
        if chunk < v.bytes() && !chunk.is_multiple_of(page as u64) {
            return refuse(format!(
                "the stripe unit of {chunk} bytes is not a multiple of it, use a smaller page or another stripe unit"
            ));
        }
        let space = v.engine().space();
        let frames = v.allocate_data(geometry.bytes())?;
        let (parts, bytes) = geometry.parts();
        let metadata = space.allocate(Place::Device, bytes)?;
        let shared = space.allocate(Place::Device, size_of::<abi::Cache>())?;
        let at = metadata.address();
        let constants = abi::Cache {
            volume: v.address(),
            frames: frames.address(),
            tag: at + parts.tag,
            pins: at + parts.pins,
            fill: at + parts.fill,
            set_lock: at + parts.set_lock,
            hand: at + parts.hand,
            pages: v.bytes() >> page.ilog2(),
            ..geometry.constants(v.block_shift())
        };
        shared.set(0, constants)?;
        let inner = Inner { shared, metadata, frames, constants, geometry, volume: self.volume };
        let inner = Arc::new(inner);
        inner.volume.recovers(Arc::<Inner>::downgrade(&inner));
        Ok(Cache(inner))
    }
}

/// Bits of a tag.
mod tag {
    pub(super) use crate::engine::abi::{
        TAG_DIRTY as DIRTY, TAG_FAILED as FAILED, TAG_FILLING as FILLING, TAG_PAGE_SHIFT as PAGE_SHIFT,
        TAG_UNCHECKED as UNCHECKED, TAG_VALID as VALID, TAG_VERSION_SHIFT as VERSION_SHIFT, TAG_WRITING as WRITING,
    };
    /// Bits of state and version; the page number lies above them.
    const BELOW_PAGE: u64 = (1 << PAGE_SHIFT) - 1;
    const STATE: u64 = (1 << VERSION_SHIFT) - 1;

    /// Returns the tag of an emptied frame: no page, and the next version, so that no reader takes new bytes for old
    /// ones.
    pub fn emptied(tag: u64) -> u64 {
        tag & !BELOW_PAGE | tag.wrapping_add(1 << VERSION_SHIFT) & BELOW_PAGE & !STATE
    }
}

impl InFlight for Inner {
    /// Resets the state of pages in flight, after all their commands were dropped and while no kernel runs. Frames
    /// whose page was being read become empty. Pages that were being written become dirty again. Pins and locks of
    /// kernels that were torn down are cleared.
    fn complete(&self) -> Result<Completed, StorageError> {
        let (parts, _) = self.geometry.parts();
        let (frames, sets) = (self.geometry.frames(), self.geometry.sets as usize);
        let m = &self.metadata;
        let mut tags = m.get_slice::<u64>(parts.tag as usize, frames)?;
        let mut completed = Completed::default();
        for t in &mut tags {
            if *t & tag::FILLING != 0 {
                *t = tag::emptied(*t);
                completed.emptied += 1;
            } else if *t & tag::WRITING != 0 {
                *t = *t & !tag::WRITING | tag::DIRTY;
                completed.dirty += 1;
            }
        }
        if completed != Completed::default() {
            m.set_slice(parts.tag as usize, &tags)?;
        }
        m.fill(parts.pins as usize, frames * size_of::<u32>(), 0)?;
        m.fill(parts.set_lock as usize, sets * size_of::<u32>(), 0)?;
        Ok(completed)
    }
}

impl Inner {
    /// Returns true if a page is in flight. The thread that finishes its command changes the tag.
    fn is_busy(&self) -> Result<bool, StorageError> {
        let (parts, _) = self.geometry.parts();
        let tags = self.metadata.get_slice::<u64>(parts.tag as usize, self.geometry.frames())?;
        Ok(tags.iter().any(|t| t & (tag::FILLING | tag::WRITING) != 0))
    }

    /// Drops all pages, those in flight once their commands have ended.
    fn drain(&self) -> Result<(), StorageError> {
        let args = Args::new().with(self.shared.address()).with(0u64).with(self.constants.pages).with(1u32);
        let engine = self.volume.engine();
        // SAFETY: these are the arguments that the kernel takes. The memory that it uses is this object's, whose drop waits for
        // the kernel, and is not freed if the kernel does not end.
        unsafe { engine.launch_to_clean_up("wb_cache_drop", engine.grid(THREADS, BLOCKS), args) }?.finish()?;
        Ok(())
    }
}

/// Kernels leave pages in flight: those that they requested ahead, and all when a run fails. Another kernel finishes their
/// commands whenever it needs room in the queue, and changes tags and frames then. So the memory stays until that is over.
impl Drop for Inner {
    fn drop(&mut self) {
        let is_busy = |inner: &Self| inner.is_busy().unwrap_or(true);
        if !is_busy(self) || self.volume.engine().space().is_poisoned() {
            return;
        }
        let drained = self.drain();
        if is_busy(self) {
            let error = drained.err().map(|e| e.to_string()).unwrap_or_default();
            tracing::warn!(error, "pages of a cache are still in flight when it is dropped; its memory is not freed");
            for region in [&self.shared, &self.metadata, self.frames.region()] {
                std::mem::forget(region.clone());
            }
        }
    }
}

impl Cache {
    /// Bytes of adjacent pages that kernels read by one command. Only smaller pages are read together, on volumes whose
    /// commands move as much ([`VolumeBuilder::transfer`](crate::storage::VolumeBuilder::transfer)).
    #[cfg(feature = "internals")]
    pub const COMMAND_BYTES: usize = abi::CACHE_COMMAND_BYTES;

    /// Begins a cache of `volume`.
    pub fn on(volume: &Volume) -> CacheBuilder {
        let page = DEFAULT_PAGE.max(volume.block_bytes());
        CacheBuilder { volume: volume.clone(), bytes: DEFAULT_BYTES, page }
    }

    /// Returns the address of the `wb_cache` that kernels read.
    pub fn address(&self) -> u64 {
        self.0.shared.address()
    }

    /// Returns the volume whose pages the cache keeps.
    pub fn volume(&self) -> &Volume {
        &self.0.volume
    }

    /// Returns the page size in bytes.
    pub fn page_bytes(&self) -> usize {
        self.0.geometry.page
    }

    /// Returns the number of pages that the cache can hold.
    pub fn frames(&self) -> usize {
        self.0.geometry.frames()
    }

    /// Returns the size of the frames in bytes.
    pub fn bytes(&self) -> u64 {
        self.0.geometry.bytes() as u64
    }

    /// Returns the number of sets, and of ways in each set.
    pub fn sets_and_ways(&self) -> (u32, u32) {
        (self.0.geometry.sets, self.0.geometry.ways)
    }

    /// Writes every changed page, and waits until the devices have completed a Flush. Pages stay in the cache.
    ///
    /// # Errors
    /// [`StorageError::Run`] if a page cannot be written; [`StorageError::Engine`] if the engine starts no kernel;
    /// otherwise as for [`Volume::flush`].
    ///
    /// # Examples
    ///
    /// ```
    /// use warpbell::engine::Engine;
    /// use warpbell::storage::{Array, Cache, Drive, OverwritePolicy, Volume};
    ///
    /// let engine = Engine::cpu()?;
    /// let drive = Drive::create("soft:mem", 1 << 20, &OverwritePolicy::none())?;
    /// let volume = Volume::on(&engine, [drive]).build()?;
    /// volume.store_array("numbers", &(0..100_000u32).collect::<Vec<_>>())?;
    ///
    /// let cache = Cache::on(&volume).bytes(64 << 10).build()?;
    /// let numbers: Array<u32> = cache.open("numbers")?;
    /// numbers.write(0, &[7, 8])?;
    /// // Changed pages stay in the cache until their frames are needed, or until a flush.
    /// cache.flush()?;
    /// assert_eq!(volume.read_array::<u32>("numbers")?[..3], [7, 8, 2]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn flush(&self) -> Result<(), StorageError> {
        // SAFETY: these are the arguments that this kernel takes.
        unsafe { self.run("wb_cache_flush", crate::args!(self)) }?;
        self.volume().flush()
    }

    /// Drops all unchanged pages, so that the next access reads them from the device. Pages that failed are read again.
    /// Dirty pages stay: call [`Cache::flush`] first to drop all.
    ///
    /// # Errors
    /// [`StorageError::Engine`] if the engine starts no kernel; [`StorageError::Run`] if the kernel fails.
    pub fn reset(&self) -> Result<(), StorageError> {
        // SAFETY: these are the arguments that this kernel takes.
        unsafe { self.run("wb_cache_drop", crate::args!(self, 0u64, u64::MAX, 0u32)) }
    }

    /// Drops all pages. Changes that were not flushed are lost.
    ///
    /// # Errors
    /// [`StorageError::Engine`] if the engine starts no kernel; [`StorageError::Run`] if the kernel fails.
    pub fn discard(&self) -> Result<(), StorageError> {
        // SAFETY: these are the arguments that this kernel takes.
        unsafe { self.run("wb_cache_drop", crate::args!(self, 0u64, u64::MAX, 1u32)) }
    }

    /// Returns the counters of the volume and all its caches. The difference of two values counts the events between
    /// them, such as those of one run.
    ///
    /// # Errors
    /// [`StorageError::Memory`] if the counters cannot be read.
    pub fn stats(&self) -> Result<Stats, StorageError> {
        self.volume().stats()
    }

    /// Counts the pages by state. Meaningful only while no kernel runs.
    ///
    /// # Errors
    /// [`StorageError::Memory`] if the metadata cannot be read.
    pub fn occupancy(&self) -> Result<Occupancy, StorageError> {
        use tag::{DIRTY, FAILED, FILLING, UNCHECKED, VALID, WRITING};
        let m = &self.0.metadata;
        let (parts, _) = self.0.geometry.parts();
        let frames = self.frames();
        let mut o = Occupancy { frames: frames as u64, ..Occupancy::default() };
        for tag in m.get_slice::<u64>(parts.tag as usize, frames)? {
            o.valid += u64::from(tag & VALID != 0 || tag & (UNCHECKED | FILLING) == UNCHECKED);
            o.dirty += u64::from(tag & DIRTY != 0);
            o.busy += u64::from(tag & (FILLING | WRITING) != 0);
            o.failed += u64::from(tag & FAILED != 0);
        }
        o.pinned = m.get_slice::<u32>(parts.pins as usize, frames)?.into_iter().filter(|p| *p != 0).count() as u64;
        Ok(o)
    }

    /// Runs one of the cache's own kernels and waits for its end.
    ///
    /// # Safety
    /// `args` must be those that this kernel of `warpbell/cache_kernels.cuh` takes.
    pub(in crate::storage) unsafe fn run(&self, kernel: &str, args: Args) -> Result<(), StorageError> {
        let engine = self.volume().engine();
        // SAFETY: the caller promises fitting arguments, and the arguments keep alive the memory that they name.
        let run = unsafe { engine.launch(kernel, engine.grid(THREADS, BLOCKS), args) }?;
        run.finish()?;
        Ok(())
    }
}

impl fmt::Display for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "page {}  cache {}", size(self.page_bytes() as u64), size(self.bytes()))
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cache({:?} on {})", self.0.geometry, self.volume().name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args;
    use crate::engine::testing;
    use crate::storage::{Drive, LandingChoice};
    use std::time::Duration;

    /// Returns a cache with pages in flight, which a kernel that was told to stop has left.
    fn busy(spec: &str, landing: LandingChoice) -> Cache {
        // On a busy machine the kernel may go on until its reads have ended.
        for latency in ["100ms", "2s", "20s"] {
            let drive = Drive::open(&format!("{spec},latency={latency}")).unwrap();
            let volume = Volume::on(&testing::cpu(), [drive]).queues(2).depth(16).landing(landing).build().unwrap();
            let cache = Cache::on(&volume).bytes(256 << 10).build().unwrap();
            let engine = volume.engine();
            let mut touch =
                testing::start(engine, "wb_cache_touch", engine.grid(32, 1), args!(&cache, 0u64, 16u64)).unwrap();
            while cache.occupancy().unwrap().busy == 0 && !touch.is_finished().unwrap() {
                std::thread::yield_now();
            }
            touch.stop().unwrap();
            testing::finish_stopped(touch);
            if cache.occupancy().unwrap().busy > 0 {
                return cache;
            }
        }
        panic!("no kernel left a page in flight");
    }

    #[test]
    fn dropping_a_cache_waits_for_its_pages_in_flight() {
        for landing in [LandingChoice::Direct, LandingChoice::Bounce] {
            for cancelled in [false, true] {
                let cache = busy("soft:mem:1M", landing);
                if cancelled {
                    cache.volume().engine().cancel().unwrap();
                }
                let (memory, geometry) = (cache.0.metadata.clone(), cache.0.geometry);
                drop(cache);
                let tags = memory.get_slice::<u64>(geometry.parts().0.tag as usize, geometry.frames()).unwrap();
                assert!(tags.iter().all(|t| t & (tag::FILLING | tag::WRITING) == 0));
                let weak = memory.downgrade();
                drop(memory);
                assert!(weak.upgrade().is_none(), "the memory is freed");
            }
        }
    }

    #[test]
    fn a_launch_that_fails_may_drop_the_last_share_of_a_cache() {
        for on_stream in [false, true] {
            let cache = busy("soft:mem:1M", LandingChoice::Direct);
            let engine = cache.volume().engine().clone();
            let args = args!(&cache);
            drop(cache);
            let (stream, grid) = (engine.stream().unwrap(), engine.grid(32, 1));
            let failed = if on_stream {
                testing::put(&stream, "wb_none", grid, args)
            } else {
                testing::start(&engine, "wb_none", grid, args).map(drop)
            };
            assert!(matches!(failed, Err(crate::engine::EngineError::NoKernel(_))));
        }
    }

    #[test]
    fn memory_of_a_cache_with_a_lost_command_is_not_freed() {
        for recovered in [false, true] {
            let cache = busy("soft:mem:1M,lose-completion=every:1", LandingChoice::Bounce);
            let volume = cache.volume().clone();
            volume.set_deadline(Duration::from_millis(200)).unwrap();
            if recovered {
                volume.recover().unwrap();
            }
            let memory = cache.0.metadata.downgrade();
            drop(cache);
            assert_eq!(memory.upgrade().is_none(), recovered);
        }
    }
}
