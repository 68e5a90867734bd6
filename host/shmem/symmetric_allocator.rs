//! What of the symmetric heap is taken. Every PE keeps the same book: all changes are made by all PEs together, in the same order.

use super::ShmemError;
use crate::engine::abi;
use crate::memory::FirstFit;
use std::collections::BTreeMap;
use std::ops::Range;

/// What allocations are aligned to at least: a line of a GPU's L2, so that different owners do not share one.
pub(super) const ALIGN: usize = 128;

/// Bits in a word of the map of what is allocated.
const BITS: usize = u32::BITS as usize;

/// The book of one world.
#[derive(Debug)]
pub(super) struct SymmetricAllocator {
    pes: usize,
    heap: usize,
    free: FirstFit,
    /// By offset.
    live: BTreeMap<usize, Block>,
    /// Bytes before it were given out at least once, and so may not be zero.
    touched: usize,
    /// What this PE has dropped since the last collective call.
    dropped: Vec<usize>,
    /// A bit for each granule, as kernels of checked builds see it.
    map: Vec<u32>,
}

#[derive(Debug)]
struct Block {
    /// Bytes asked for.
    bytes: usize,
    /// Bytes taken.
    room: usize,
    /// PEs that have dropped it.
    dropped: usize,
}

/// Memory that was taken.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Taken {
    /// Its first byte.
    pub(super) offset: usize,
    /// What of it may not be zero.
    pub(super) dirty: Range<usize>,
}

impl SymmetricAllocator {
    /// Nothing of `heap` bytes is taken.
    pub(super) fn new(pes: usize, heap: usize) -> Self {
        let free = FirstFit::new(Some(0..heap as u64));
        let map = vec![0; heap.div_ceil(abi::HEAP_GRANULE * BITS)];
        Self { pes, heap, free, live: BTreeMap::new(), touched: 0, dropped: Vec::new(), map }
    }

    /// Takes `bytes` bytes at a multiple of `align`, a power of two.
    pub(super) fn take(&mut self, bytes: usize, align: usize) -> Result<Taken, ShmemError> {
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
        Ok(Taken { offset, dirty: dirty.start.max(offset)..dirty.end.max(offset) })
    }

    /// Gives memory back; whether there was some at this offset.
    pub(super) fn give_back(&mut self, offset: usize) -> bool {
        let Some(block) = self.live.remove(&offset) else { return false };
        self.free.give_back(offset as u64, block.room as u64);
        self.mark(offset, block.bytes, false);
        true
    }

    /// This PE uses it no more; the others hear of it at the next collective call.
    pub(super) fn dropped_here(&mut self, offset: usize) {
        self.dropped.push(offset);
    }

    /// What to tell the others.
    pub(super) fn take_dropped(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.dropped)
    }

    /// A PE has dropped memory. What all have dropped is free, which the answer says.
    pub(super) fn dropped_by_one(&mut self, offset: usize) -> bool {
        let Some(block) = self.live.get_mut(&offset) else { return false };
        block.dropped += 1;
        block.dropped >= self.pes && self.give_back(offset)
    }

    /// Bytes of the memory at this offset.
    pub(super) fn bytes_at(&self, offset: usize) -> Option<usize> {
        self.live.get(&offset).map(|b| b.bytes)
    }

    /// Bytes that are free.
    pub(super) fn free_bytes(&self) -> usize {
        self.free.free_bytes() as usize
    }

    /// A bit for each granule of the heap that is taken.
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

    /// The words of the map that stand for a range of the heap.
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
        assert_eq!(a, Taken { offset: 0, dirty: 0..0 });
        let e = allocator.take(1, 1).unwrap_err().to_string();
        assert!(e.contains("1 bytes") && e.contains("1024"), "{e}");
        assert!(!allocator.dropped_by_one(0) && !allocator.dropped_by_one(0));
        assert_eq!(allocator.free_bytes(), 0);
        assert!(allocator.dropped_by_one(0));
        assert_eq!((allocator.free_bytes(), allocator.bytes_at(0)), (1024, None));
        assert!(!allocator.dropped_by_one(0) && !allocator.give_back(0));
        // Only what was given out before may not be zero.
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
