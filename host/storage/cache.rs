//! The page cache of a volume, in memory near the kernels.

use super::array::Array;
use super::geometry::Geometry;
use super::manifest::Element;
use super::registered_region::DataBuffer;
use super::volume::Volume;
use super::{Stats, StorageError};
use crate::engine::{Args, KernelArg, abi};
use crate::memory::{Place, Region};
use serde::Serialize;
use std::fmt;
use std::sync::Arc;

/// Pages of a volume in memory near the kernels, which reach them through [`Array`]s. Cheap to clone.
///
/// What kernels and [`Array::write`] change stays here until [`Cache::flush`]: dropping the last clone, and the last array, loses it.
#[derive(Clone)]
pub struct Cache(pub(super) Arc<Inner>);

/// Fields in the order in which they go: the memory, then the volume.
pub(super) struct Inner {
    /// `wb_cache` as kernels see it.
    shared: Region,
    /// Tags, pins, tokens, locks and hands.
    metadata: Region,
    /// Keeps the frames.
    _frames: DataBuffer,
    /// What `shared` holds.
    pub(super) constants: abi::Cache,
    geometry: Geometry,
    pub(super) volume: Volume,
}

/// What a cache will be. See [`Cache::on`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build`"]
pub struct CacheBuilder {
    volume: Volume,
    bytes: u64,
    page: usize,
}

/// A kernel takes a cache as `const wb_cache*`.
impl KernelArg for Cache {
    fn push(&self, args: &mut Args) {
        args.push_value(self.address());
        args.keep(self.0.clone());
    }
}

/// What is in a cache at a moment at which no kernel runs. In pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Occupancy {
    /// Pages that it can hold.
    pub frames: u64,
    /// Pages that it holds.
    pub valid: u64,
    /// Of these, changed and not yet written.
    pub dirty: u64,
    /// Reads and writes in flight.
    pub busy: u64,
    /// Pages whose last read or write failed.
    pub failed: u64,
    /// Pages that a kernel did not let go of: more than 0 only when one was torn down.
    pub pinned: u64,
}

/// Memory of a cache unless told otherwise.
const DEFAULT_BYTES: u64 = 64 << 20;
/// Page of a cache unless told otherwise.
const DEFAULT_PAGE: usize = 4096;

impl CacheBuilder {
    /// Memory for pages, in bytes (64 MiB). Up to an eighth is lost to rounding; another 28 bytes a page, at most, are used beside it. A
    /// cache is never larger than its volume.
    pub fn bytes(mut self, bytes: u64) -> Self {
        self.bytes = bytes;
        self
    }

    /// Bytes of a page (4096, or a block if that is larger): a power of two from 512 to 65,536.
    pub fn page(mut self, bytes: usize) -> Self {
        self.page = bytes;
        self
    }

    /// Allocates the cache, empty.
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
                "the stripe unit of {chunk} bytes is no multiple of it, use a smaller page or another chunk"
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
        let inner = Inner { shared, metadata, _frames: frames, constants, geometry, volume: self.volume };
        let inner = Arc::new(inner);
        inner.volume.0.caches.lock().push(Arc::downgrade(&inner));
        Ok(Cache(inner))
    }
}

/// Pages that were on their way when their commands were dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Completed {
    /// Reads: the frames are empty.
    pub(super) emptied: u64,
    /// Writes: the pages are dirty again.
    pub(super) dirty: u64,
}

/// Bits of a tag.
mod tag {
    pub use crate::engine::abi::{
        TAG_DIRTY as DIRTY, TAG_FAILED as FAILED, TAG_FILLING as FILLING, TAG_PAGE_SHIFT as PAGE_SHIFT,
        TAG_UNCHECKED as UNCHECKED, TAG_VALID as VALID, TAG_VERSION_SHIFT as VERSION_SHIFT, TAG_WRITING as WRITING,
    };
    /// State and version; the page is above.
    const BELOW_PAGE: u64 = (1 << PAGE_SHIFT) - 1;
    const STATE: u64 = (1 << VERSION_SHIFT) - 1;

    /// No page, and another version, so that nobody takes new bytes for old ones.
    pub fn emptied(tag: u64) -> u64 {
        tag & !BELOW_PAGE | tag.wrapping_add(1 << VERSION_SHIFT) & BELOW_PAGE & !STATE
    }
}

impl Inner {
    /// Ends what was on its way: no command of it exists any more, and no kernel runs. A page that was being read is gone; one that
    /// was being written is dirty again. Pins and locks of kernels that were torn down go too.
    pub(super) fn complete(&self) -> Result<Completed, StorageError> {
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

impl Cache {
    /// Begins a cache of this volume.
    pub fn on(volume: &Volume) -> CacheBuilder {
        let page = DEFAULT_PAGE.max(volume.block_bytes());
        CacheBuilder { volume: volume.clone(), bytes: DEFAULT_BYTES, page }
    }

    /// The address of `wb_cache` as kernels see it.
    pub fn address(&self) -> u64 {
        self.0.shared.address()
    }

    /// The volume behind it.
    pub fn volume(&self) -> &Volume {
        &self.0.volume
    }

    /// Bytes of a page.
    pub fn page_bytes(&self) -> usize {
        self.0.geometry.page
    }

    /// Pages that it can hold.
    pub fn frames(&self) -> usize {
        self.0.geometry.frames()
    }

    /// Bytes of pages that it can hold.
    pub fn bytes(&self) -> u64 {
        self.0.geometry.bytes() as u64
    }

    /// Sets, and ways of each.
    pub fn sets_and_ways(&self) -> (u32, u32) {
        (self.0.geometry.sets, self.0.geometry.ways)
    }

    /// `count` elements from the start of page `first_page` of the volume.
    pub fn array<T: Element>(&self, first_page: u64, count: u64) -> Result<Array<T>, StorageError> {
        Array::new(self, None, first_page, count)
    }

    /// The array that the volume's manifest calls `name`.
    pub fn open<T: Element>(&self, name: &str) -> Result<Array<T>, StorageError> {
        let v = self.volume();
        let manifest = v.manifest()?;
        let entry = manifest.find_typed::<T>(name);
        let entry = entry.map_err(|source| StorageError::Manifest { device: v.name().to_owned(), source })?;
        let page = self.page_bytes() as u64;
        if !entry.offset.is_multiple_of(page) {
            return Err(StorageError::Option(format!(
                "array `{name}` starts at byte {}, which is no multiple of the cache's page of {page} bytes: use a smaller page",
                entry.offset
            )));
        }
        let unit = abi::CHECKSUM_BYTES as u64;
        if page < unit && v.has_page_checksums() {
            return Err(StorageError::Option(format!(
                "array `{name}` has checksums of {unit} bytes each, which cannot be compared with pages of {page} bytes: use a page of {unit} or more, or open the volume without page checksums"
            )));
        }
        Array::new(self, Some(name), entry.offset / page, entry.count)
    }

    /// Writes every changed page and waits until the devices have acknowledged a Flush. Pages stay in the cache.
    pub fn flush(&self) -> Result<(), StorageError> {
        // SAFETY: the arguments that this kernel takes.
        unsafe { self.run("wb_cache_flush", crate::args!(self)) }?;
        self.volume().flush()
    }

    /// Empties the cache but for changed pages: the next access reads from the device. Pages that failed are tried again.
    /// [`Cache::flush`] first to drop all.
    pub fn reset(&self) -> Result<(), StorageError> {
        // SAFETY: the arguments that this kernel takes.
        unsafe { self.run("wb_cache_drop", crate::args!(self, 0u64, u64::MAX, 0u32)) }
    }

    /// Empties the cache. What was changed and not flushed is lost.
    pub fn discard(&self) -> Result<(), StorageError> {
        // SAFETY: the arguments that this kernel takes.
        unsafe { self.run("wb_cache_drop", crate::args!(self, 0u64, u64::MAX, 1u32)) }
    }

    /// Counters of the volume and all caches on it; the difference of two is what happened between, as for one run.
    pub fn stats(&self) -> Result<Stats, StorageError> {
        self.volume().stats()
    }

    /// What is in it. Meaningful while no kernel runs.
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

    /// Runs one of the cache's own kernels to its end.
    ///
    /// # Safety
    /// The arguments are those that this kernel of `kernels/storage/cache.cu` takes.
    pub(super) unsafe fn run(&self, kernel: &str, args: Args) -> Result<(), StorageError> {
        const THREADS: u32 = 128;
        const BLOCKS: u32 = 2;
        let engine = self.volume().engine();
        // SAFETY: the caller's promise; the arguments keep what they stand for.
        let run = unsafe { engine.launch(kernel, engine.grid(THREADS, BLOCKS), args) }?;
        run.finish()?;
        Ok(())
    }
}

impl fmt::Display for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "page {}  cache {}", super::error::size(self.page_bytes() as u64), super::error::size(self.bytes()))
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cache({:?} on {})", self.0.geometry, self.volume().name())
    }
}
