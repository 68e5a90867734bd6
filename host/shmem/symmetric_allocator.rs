//! The allocator of the symmetric heap. Every PE keeps its own copy with the same state: all PEs make all changes
//! together, in the same order.

use super::ShmemError;
use crate::engine::abi;
use crate::memory::FirstFit;
use std::collections::BTreeMap;
use std::ops::Range;

/// The smallest alignment of allocations: a line of a GPU's L2, so that different owners do not share a line.
pub(super) const ALIGN: usize = 128;

/// Bits in a word of the allocation map.
const BITS: usize = u32::BITS as usize;

/// The allocator of one world's heap.
#[derive(Debug)]
pub(super) struct SymmetricAllocator {
    pes: usize,
    heap: usize,
    free: FirstFit,
    /// Live allocations, by offset.
    live: BTreeMap<usize, Block>,
    /// Bytes below this offset were allocated at least once, and so may not be zero.
    touched: usize,
    /// Offsets that this PE has dropped since the last collective call.
    dropped: Vec<usize>,
    /// The allocation map: one bit for each granule of the heap. Kernels with checks read it.
    map: Vec<u32>,
}

#[derive(Debug)]
struct Block {
    /// Requested bytes.
    bytes: usize,
    /// Allocated bytes, a multiple of [`ALIGN`].
    room: usize,
    /// Number of PEs that have dropped the allocation.
    dropped: usize,
}

/// A new allocation.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Allocation {
    /// Offset of the first byte.
    pub(super) offset: usize,
    /// The bytes of the allocation that may not be zero.
    pub(super) dirty: Range<usize>,
}

impl SymmetricAllocator {
    /// Creates an allocator for a free heap of `heap` bytes.
    pub(super) fn new(pes: usize, heap: usize) -> Self {
        let free = FirstFit::new(Some(0..heap as u64));
        let map = vec![0; heap.div_ceil(abi::HEAP_GRANULE * BITS)];
        Self { pes, heap, free, live: BTreeMap::new(), touched: 0, dropped: Vec::new(), map }
    }

    /// Allocates `bytes` bytes at a multiple of `align`, a power of two.
    pub(super) fn take(&mut self, bytes: usize, align: usize) -> Result<Allocation, ShmemError> {
        let full = |free: &FirstFit| ShmemError::HeapFull {
            bytes,
            free: free.free_bytes() as usize,
            live: self.live.len(),
            heap: self.heap,
        };
        let Some(room) = bytes.max(1).checked_next_multiple_of(ALIGN) else { return Err(full(&self.free)) };
        let Some(offset) = self.free.take(room as u64, align.max(ALIGN) as u64) else { return Err(full(&self.free)) };
        let offset = offset as usize;
        self.live.insert(offset, Block { bytes, room, dropped: 0 });
        self.mark(offset, bytes, true);
        let dirty = offset.min(self.touched)..(offset + bytes).min(self.touched);
        self.touched = self.touched.max(offset + bytes);
        Ok(Allocation { offset, dirty: dirty.start.max(offset)..dirty.end.max(offset) })
    }

    /// Frees the allocation at `offset`. Returns false if there is none.
    pub(super) fn give_back(&mut self, offset: usize) -> bool {
        let Some(block) = self.live.remove(&offset) else { return false };
        self.free.give_back(offset as u64, block.room as u64);
        self.mark(offset, block.bytes, false);
        true
    }

    /// Notes that this PE has dropped an allocation. The other PEs learn of it at the next collective call.
    pub(super) fn dropped_here(&mut self, offset: usize) {
        self.dropped.push(offset);
    }

    /// Takes the offsets that the next collective call sends to the other PEs.
    pub(super) fn take_dropped(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.dropped)
    }

    /// Notes that one PE has dropped an allocation. Frees it and returns true once all PEs have dropped it.
    pub(super) fn dropped_by_one(&mut self, offset: usize) -> bool {
        let Some(block) = self.live.get_mut(&offset) else { return false };
        block.dropped += 1;
        block.dropped >= self.pes && self.give_back(offset)
    }

    /// Returns the requested bytes of the allocation at this offset.
    pub(super) fn bytes_at(&self, offset: usize) -> Option<usize> {
        self.live.get(&offset).map(|b| b.bytes)
    }

    /// Returns the number of free bytes.
    pub(super) fn free_bytes(&self) -> usize {
        self.free.free_bytes() as usize
    }

    /// Returns the allocation map, with one bit for each granule of the heap.
    pub(super) fn map(&self) -> &[u32] {
        &self.map
    }

    fn mark(&mut self, offset: usize, bytes: usize, taken: bool) {
        let (first, end) = (offset / abi::HEAP_GRANULE, (offset + bytes).div_ceil(abi::HEAP_GRANULE));
        for granule in first..end {
            let (word, bit) = (granule / BITS, 1 << (granule % BITS));
            if taken {
                self.map[word] |= bit;
            } else {
                self.map[word] &= !bit;
            }
        }
    }

    /// Returns the words of the map that cover a range of the heap.
    pub(super) fn words(offset: usize, bytes: usize) -> Range<usize> {
        let granules = offset / abi::HEAP_GRANULE..(offset + bytes).div_ceil(abi::HEAP_GRANULE);
        granules.start / BITS..granules.end.div_ceil(BITS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn memory_is_free_when_the_last_has_dropped_it() {
        let mut allocator = SymmetricAllocator::new(3, 1024);
        let a = allocator.take(1000, 1).unwrap();
        assert_eq!(a, Allocation { offset: 0, dirty: 0..0 });
        let e = allocator.take(1, 1).unwrap_err().to_string();
        assert!(e.contains("1 bytes") && e.contains("1024"), "{e}");
        assert!(!allocator.dropped_by_one(0) && !allocator.dropped_by_one(0));
        assert_eq!(allocator.free_bytes(), 0);
        assert!(allocator.dropped_by_one(0));
        assert_eq!((allocator.free_bytes(), allocator.bytes_at(0)), (1024, None));
        assert!(!allocator.dropped_by_one(0) && !allocator.give_back(0));
        // Only memory that was allocated before may not be zero.
        assert_eq!(allocator.take(100, 1).unwrap().dirty, 0..100);
        assert!(allocator.take(900, 1).unwrap_err().to_string().contains("896"));
        assert_eq!(allocator.take(896, 1).unwrap().dirty, 128..1000);
        assert!(allocator.take(usize::MAX, 1).is_err());
    }

    /// A step of a program that all PEs run.
    #[derive(Clone, Debug)]
    enum Step {
        Take { bytes: usize, align: u32 },
        Free { which: usize },
        Drop { which: usize, pe: usize },
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (0usize..3000, 0u32..13).prop_map(|(bytes, align)| Step::Take { bytes, align }),
            1 => any::<usize>().prop_map(|which| Step::Free { which }),
            4 => (any::<usize>(), 0usize..3).prop_map(|(which, pe)| Step::Drop { which, pe }),
        ]
    }

    struct Model {
        offset: usize,
        bytes: usize,
        dropped: [bool; 3],
    }

    proptest! {
        #[test]
        fn every_pe_comes_to_the_same_allocations(steps in prop::collection::vec(step(), 1..120)) {
            const HEAP: usize = 16 << 10;
            let mut books: Vec<SymmetricAllocator> = (0..3).map(|_| SymmetricAllocator::new(3, HEAP)).collect();
            let mut live: Vec<Model> = Vec::new();
            let mut written = [false; HEAP];
            for step in steps {
                match step {
                    Step::Take { bytes, align } => {
                        let taken: Vec<_> = books.iter_mut().map(|b| b.take(bytes, 1 << align).ok()).collect();
                        prop_assert!(taken.windows(2).all(|w| w[0] == w[1]));
                        let Some(Some(t)) = taken.into_iter().next() else { continue };
                        prop_assert!(t.offset.is_multiple_of(1 << align) && t.offset.is_multiple_of(ALIGN));
                        prop_assert!(t.offset + bytes <= HEAP);
                        for m in &live {
                            let apart = m.offset + m.bytes.max(1) <= t.offset || t.offset + bytes.max(1) <= m.offset;
                            prop_assert!(apart);
                        }
                        for (at, written) in written.iter_mut().enumerate().skip(t.offset).take(bytes) {
                            prop_assert!(!*written || t.dirty.contains(&at), "byte {} is not known to be dirty", at);
                            *written = true;
                        }
                        live.push(Model { offset: t.offset, bytes, dropped: [false; 3] });
                    }
                    Step::Free { which } if !live.is_empty() => {
                        let m = live.swap_remove(which % live.len());
                        prop_assert!(books.iter_mut().all(|b| b.give_back(m.offset)));
                    }
                    Step::Drop { which, pe } if !live.is_empty() => {
                        let i = which % live.len();
                        if std::mem::replace(&mut live[i].dropped[pe], true) {
                            continue;
                        }
                        let last = live[i].dropped == [true; 3];
                        let offset = live[i].offset;
                        prop_assert!(books.iter_mut().all(|b| b.dropped_by_one(offset) == last));
                        if last {
                            live.swap_remove(i);
                        }
                    }
                    _ => {}
                }
                let mut expected = vec![0u32; books[0].map().len()];
                for m in &live {
                    let granules = m.offset / abi::HEAP_GRANULE..(m.offset + m.bytes).div_ceil(abi::HEAP_GRANULE);
                    granules.for_each(|g| expected[g / BITS] |= 1 << (g % BITS));
                }
                let room: usize = live.iter().map(|m| m.bytes.max(1).next_multiple_of(ALIGN)).sum();
                for allocator in &books {
                    prop_assert_eq!(allocator.map(), &expected[..]);
                    prop_assert_eq!(allocator.free_bytes(), HEAP - room);
                }
            }
        }
    }
}
