//! Address table: the valid device addresses, and the host memory behind them. All DMA of the controller goes through
//! it.
//!
//! Service threads read an immutable snapshot without locks, and announce its generation. An unmapping publishes a new
//! snapshot and waits until every thread has announced it. From then on no thread can access the memory.

use crate::data_path::choices;
use crate::memory::{DmaError, DmaRegion, Place, Region, Space};
use crossbeam::utils::CachePadded;
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// Granularity of device addresses in bytes: the smallest NVMe memory page.
const PAGE: u64 = 4096;
/// First device address in use, so that null and small numbers in a command are never valid.
const FIRST: u64 = 1 << 32;
/// End of the device's address space.
const LIMIT: u64 = 1 << 48;
/// Longest time that an unmapping waits for the service threads. After it, the memory is leaked instead of freed.
const UNMAP_LIMIT: Duration = Duration::from_secs(5);
/// Generation that a thread announces when it will use no snapshot any more.
const ENDED: u64 = u64::MAX;

choices! {
    /// Use of non-temporal stores, which bypass the CPU's cache, for data that goes to the pages of a command.
    #[derive(Default)]
    #[non_exhaustive]
    Streaming:
    /// For pages that a GPU reads.
    #[default]
    Auto = "auto",
    /// Always, if the processor has such stores.
    Always = "always",
    /// Never.
    Never = "never"
}

impl Streaming {
    fn wanted(self, gpu: bool) -> bool {
        match self {
            Self::Auto => gpu,
            Self::Always => true,
            Self::Never => false,
        }
    }
}

/// A range of device addresses and the host memory behind it.
#[derive(Clone, Copy)]
pub(crate) struct Range {
    start: u64,
    bytes: u64,
    host: *mut u8,
    stream: bool,
}

impl Range {
    /// Returns an empty range.
    pub(crate) const fn none() -> Self {
        Self { start: 0, bytes: 0, host: std::ptr::null_mut(), stream: false }
    }

    #[inline]
    fn at(&self, address: u64, bytes: usize) -> Option<Target> {
        let offset = address.wrapping_sub(self.start);
        let inside = offset < self.bytes && self.bytes - offset >= bytes as u64;
        // wrapping_add keeps the arithmetic defined; `inside` ensures that the result is in the region.
        inside.then(|| Target { host: self.host.wrapping_add(offset as usize), stream: self.stream })
    }
}

/// Host memory behind a device address.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    pub(crate) host: *mut u8,
    /// True if a GPU reads the memory, so that stores should bypass the CPU's cache.
    pub(crate) stream: bool,
}

/// The table at one point in time.
pub(crate) struct Snapshot {
    ranges: Vec<Range>,
    pub(crate) generation: u64,
    /// Number of mappings that had ended by then.
    pub(crate) unmapped: u64,
}

// SAFETY: a snapshot holds plain addresses. Their memory stays valid until every reader has announced a later snapshot.
unsafe impl Send for Snapshot {}
// SAFETY: a snapshot never changes.
unsafe impl Sync for Snapshot {}

impl Snapshot {
    /// Returns the host memory of `bytes` bytes at a device address, if all of it is in one mapping. `hint` caches the
    /// mapping.
    #[inline]
    pub(crate) fn resolve(&self, address: u64, bytes: usize, hint: &mut Range) -> Option<Target> {
        if let Some(t) = hint.at(address, bytes) {
            return Some(t);
        }
        let after = self.ranges.partition_point(|r| r.start <= address);
        let range = self.ranges.get(after.checked_sub(1)?)?;
        let target = range.at(address, bytes)?;
        *hint = *range;
        Some(target)
    }
}

#[derive(Debug)]
struct Tables {
    ranges: BTreeMap<u64, (u64, usize, bool)>,
    next: u64,
    generation: u64,
    unmapped: u64,
    snapshot: Arc<Snapshot>,
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Snapshot({} ranges, generation {})", self.ranges.len(), self.generation)
    }
}

/// The device addresses of one controller.
#[derive(Debug)]
pub(crate) struct AddressTable {
    device: String,
    stream: Streaming,
    tables: Mutex<Tables>,
    generation: AtomicU64,
    seen: Box<[CachePadded<AtomicU64>]>,
    readers: OnceLock<Vec<Thread>>,
}

impl AddressTable {
    /// Creates a table for `readers` reader threads.
    pub(crate) fn new(device: String, stream: Streaming, readers: usize) -> Self {
        let snapshot = Arc::new(Snapshot { ranges: Vec::new(), generation: 0, unmapped: 0 });
        Self {
            device,
            stream,
            tables: Mutex::new(Tables { ranges: BTreeMap::new(), next: FIRST, generation: 0, unmapped: 0, snapshot }),
            generation: AtomicU64::new(0),
            seen: (0..readers).map(|_| CachePadded::new(AtomicU64::new(0))).collect(),
            readers: OnceLock::new(),
        }
    }

    /// Sets the threads that an unmapping wakes.
    pub(crate) fn set_readers(&self, threads: Vec<Thread>) {
        // A second call would set the same threads, so the first one stays.
        let _ = self.readers.set(threads);
    }

    fn lock(&self) -> MutexGuard<'_, Tables> {
        // A thread that panicked while it held the lock left the entries consistent: each change is one insert or
        // remove.
        self.tables.lock()
    }

    /// Returns the generation that readers should use.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns the current table.
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        self.lock().snapshot.clone()
    }

    /// Returns true if a reader has not announced the current table.
    pub(crate) fn is_stale(&self, reader: usize) -> bool {
        self.seen[reader].load(Ordering::Relaxed) != self.generation()
    }

    /// Announces that a reader uses no snapshot older than `generation` any more.
    pub(crate) fn announce(&self, reader: usize, generation: u64) {
        self.seen[reader].store(generation, Ordering::SeqCst);
    }

    /// Announces that a reader has ended.
    pub(crate) fn retire(&self, reader: usize) {
        self.announce(reader, ENDED);
    }

    fn publish(&self, tables: &mut Tables) -> u64 {
        tables.generation += 1;
        let ranges = tables.ranges.iter().map(|(start, (bytes, host, stream))| Range {
            start: *start,
            bytes: *bytes,
            host: *host as *mut u8,
            stream: *stream,
        });
        tables.snapshot =
            Arc::new(Snapshot { ranges: ranges.collect(), generation: tables.generation, unmapped: tables.unmapped });
        self.generation.store(tables.generation, Ordering::SeqCst);
        tables.generation
    }

    fn insert(&self, host: *mut u8, bytes: usize, stream: bool) -> Result<u64, DmaError> {
        // The device address has the same offset in its page as the host address, so PRP rules apply to both alike.
        let offset = host as u64 % PAGE;
        let span = (offset + bytes as u64).next_multiple_of(PAGE);
        let mut tables = self.lock();
        let page = tables.find(span).ok_or_else(|| DmaError::Exhausted {
            device: self.device.clone(),
            bytes,
            free: tables.free() as usize,
        })?;
        // One unmapped page follows each mapping, so an access beyond the end fails instead of reaching the next
        // mapping.
        tables.next = page + span + PAGE;
        tables.ranges.insert(page + offset, (bytes as u64, host as usize, stream));
        self.publish(&mut tables);
        Ok(page + offset)
    }

    /// Removes a mapping and waits for the readers. Returns false if one of them did not announce the new snapshot in
    /// time.
    fn remove(&self, start: u64) -> bool {
        let generation = {
            let mut tables = self.lock();
            tables.ranges.remove(&start);
            tables.unmapped += 1;
            self.publish(&mut tables)
        };
        fence(Ordering::SeqCst);
        let deadline = Instant::now() + UNMAP_LIMIT;
        for (i, seen) in self.seen.iter().enumerate() {
            let mut looks = 0u32;
            while seen.load(Ordering::SeqCst) < generation {
                if let Some(t) = self.readers.get().and_then(|r| r.get(i)) {
                    t.unpark();
                }
                crate::assist::assist();
                if looks < 64 {
                    std::thread::yield_now();
                } else {
                    std::thread::sleep(Duration::from_micros(50));
                    if Instant::now() > deadline {
                        tracing::error!(
                            device = %self.device, address = start,
                            "a service thread still uses a mapping after {UNMAP_LIMIT:?}; its memory is leaked"
                        );
                        return false;
                    }
                }
                looks += 1;
            }
        }
        true
    }

    /// Maps a region for the device.
    pub(crate) fn map(self: &Arc<Self>, region: &Region) -> Result<DmaRegion, DmaError> {
        let host = region.host().ok_or_else(|| DmaError::Unreachable {
            device: self.device.clone(),
            reason:
                "it is in GPU memory, and the controller's threads run on the CPU; use host memory and bounce landing"
                    .into(),
        })?;
        let stream = self.stream.wanted(region.space().gpu_context().is_some());
        let iova = self.insert(host.as_ptr(), region.len(), stream)?;
        let guard = Mapping { table: self.clone(), start: iova, region: Some(region.clone()) };
        Ok(DmaRegion {
            region: region.clone(),
            offset: 0,
            bytes: region.len(),
            iova,
            remote: None,
            guard: Arc::new(guard),
        })
    }

    /// Allocates host memory and maps it for the device.
    pub(crate) fn allocate(self: &Arc<Self>, space: &Space, bytes: usize) -> Result<DmaRegion, DmaError> {
        self.map(&space.allocate(Place::Host, bytes)?)
    }
}

impl Tables {
    /// Returns the first address of `span` free bytes: after the newest mapping, so that stale addresses stay invalid
    /// for long. Once the end of the address space was reached, returns the first gap that is large enough.
    fn find(&self, span: u64) -> Option<u64> {
        if self.next.checked_add(span).is_some_and(|end| end <= LIMIT) {
            return Some(self.next);
        }
        let mut free = FIRST;
        for (start, (bytes, ..)) in &self.ranges {
            if start / PAGE * PAGE >= free + span + PAGE {
                return Some(free);
            }
            free = (start + bytes).next_multiple_of(PAGE) + PAGE;
        }
        free.checked_add(span).is_some_and(|end| end <= LIMIT).then_some(free)
    }

    fn free(&self) -> u64 {
        LIMIT - FIRST - self.ranges.values().map(|(bytes, ..)| *bytes).sum::<u64>()
    }
}

/// Ends a mapping when dropped.
struct Mapping {
    table: Arc<AddressTable>,
    start: u64,
    region: Option<Region>,
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if !self.table.remove(self.start) {
            std::mem::forget(self.region.take());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Arc<AddressTable> {
        Arc::new(AddressTable::new("soft:test".into(), Streaming::Auto, 0))
    }

    #[test]
    fn addresses_lead_to_the_region_and_nowhere_else() {
        let t = table();
        let a = t.allocate(&Space::cpu(), 10_000).unwrap();
        let b = t.allocate(&Space::cpu(), 4096).unwrap();
        assert_eq!((a.bytes, a.iova % PAGE, b.iova % PAGE), (12_288, 0, 0));
        let s = t.snapshot();
        let mut hint = Range::none();
        let host = |d: &DmaRegion| d.host().unwrap().as_ptr();
        for _ in 0..2 {
            assert_eq!(s.resolve(a.iova + 5, 100, &mut hint).unwrap().host, host(&a).wrapping_add(5));
            assert_eq!(s.resolve(b.iova, 4096, &mut hint).unwrap().host, host(&b));
        }
        for (address, bytes) in [
            (a.iova + 12_288, 1),
            (a.iova + 12_280, 16),
            (a.iova - 1, 2),
            (b.iova + 1, 4096),
            (0, 1),
            (u64::MAX, 1),
            (u64::MAX - 10, 100),
        ] {
            assert!(s.resolve(address, bytes, &mut hint).is_none(), "{address:#x} + {bytes}");
        }
    }

    #[test]
    fn a_dropped_mapping_is_gone_from_the_next_snapshot() {
        let t = table();
        let a = t.allocate(&Space::cpu(), 4096).unwrap();
        let iova = a.iova;
        let before = t.snapshot();
        drop(a);
        let after = t.snapshot();
        assert_eq!(after.unmapped, before.unmapped + 1);
        assert!(after.resolve(iova, 1, &mut Range::none()).is_none());
        assert_ne!(t.allocate(&Space::cpu(), 4096).unwrap().iova, iova, "a stale address must stay invalid");
    }

    #[test]
    fn unmapping_waits_for_every_reader() {
        let t = Arc::new(AddressTable::new("soft:test".into(), Streaming::Auto, 1));
        let a = t.allocate(&Space::cpu(), 4096).unwrap();
        t.announce(0, t.generation());
        let dropped = Arc::new(std::sync::atomic::AtomicBool::new(false));
        std::thread::scope(|s| {
            let done = dropped.clone();
            let before = t.generation();
            s.spawn(move || {
                drop(a);
                done.store(true, Ordering::SeqCst);
            });
            while t.generation() == before {
                std::thread::yield_now();
            }
            assert!(!dropped.load(Ordering::SeqCst), "the reader has not announced yet");
            t.announce(0, t.generation());
        });
        assert!(dropped.load(Ordering::SeqCst));
    }

    #[test]
    fn a_full_address_space_is_searched_for_gaps() {
        let t = table();
        let a = t.allocate(&Space::cpu(), 4096).unwrap();
        let _b = t.allocate(&Space::cpu(), 4096).unwrap();
        let hole = a.iova;
        drop(a);
        t.lock().next = LIMIT;
        assert_eq!(t.allocate(&Space::cpu(), 4096).unwrap().iova, hole);
        assert!(t.lock().find(LIMIT).is_none());
    }
}
