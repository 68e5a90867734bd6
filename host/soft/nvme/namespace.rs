//! Namespaces: a store, its blocks, and the blocks that were declared unreadable.

use super::SoftError;
use super::backend::Store;
use super::config::NamespaceConfig;
use crate::wire::nvme::{SqEntry, Status, status};
use parking_lot::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// One namespace of the controller.
#[derive(Debug)]
pub(super) struct Namespace {
    pub(super) store: Store,
    pub(super) block_shift: u32,
    /// Number of blocks; fewer than those of the store once the fault plan has shrunk the namespace.
    blocks: AtomicU64,
    pub(super) read_only: bool,
    pub(super) unreadable: BlockSet,
}

/// A range of blocks, and its bytes in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) slba: u64,
    pub(super) blocks: u64,
    pub(super) offset: u64,
    pub(super) bytes: usize,
}

impl Namespace {
    pub(super) fn open(config: &NamespaceConfig) -> Result<Self, SoftError> {
        let store = Store::open(config)?;
        let block_shift = config.block_bytes.trailing_zeros();
        Ok(Self {
            blocks: AtomicU64::new(store.bytes() >> block_shift),
            read_only: store.read_only(),
            block_shift,
            store,
            unreadable: BlockSet::default(),
        })
    }

    /// Returns the number of blocks.
    #[inline]
    pub(super) fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::Relaxed)
    }

    /// Shrinks the namespace to `blocks` blocks, if it has more.
    pub(super) fn shrink(&self, blocks: u64) {
        self.blocks.fetch_min(blocks, Ordering::Relaxed);
    }

    /// Returns the range of `blocks` blocks at `slba`, if the namespace has them.
    #[inline]
    pub(super) fn span(&self, slba: u64, blocks: u64) -> Result<Span, Status> {
        match slba.checked_add(blocks) {
            Some(end) if end <= self.blocks() => Ok(Span {
                slba,
                blocks,
                offset: slba << self.block_shift,
                bytes: (blocks << self.block_shift) as usize,
            }),
            _ => Err(status::LBA_OUT_OF_RANGE.dnr()),
        }
    }

    /// Returns the range that a command names in dwords 10 to 12.
    #[inline]
    pub(super) fn span_of(&self, e: &SqEntry) -> Result<Span, Status> {
        self.span(e.slba(), u64::from(e.blocks()))
    }

    /// Fails if the namespace is read-only.
    #[inline]
    pub(super) fn check_writable(&self) -> Result<(), Status> {
        if self.read_only { Err(status::NAMESPACE_WRITE_PROTECTED.dnr()) } else { Ok(()) }
    }
}

/// Set of block ranges, usually empty.
#[derive(Debug, Default)]
pub(super) struct BlockSet {
    /// Number of ranges: makes the usual case one load.
    count: AtomicUsize,
    /// Maps the first block of each range to the block after its last. Ranges neither overlap nor touch.
    ranges: Mutex<BTreeMap<u64, u64>>,
}

impl BlockSet {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.ranges.lock()
    }

    /// Returns true if one of the blocks is in the set.
    #[inline]
    pub(super) fn meets(&self, span: &Span) -> bool {
        self.count.load(Ordering::Acquire) != 0 && self.meets_slowly(span)
    }

    #[cold]
    fn meets_slowly(&self, span: &Span) -> bool {
        self.lock().range(..span.slba + span.blocks).next_back().is_some_and(|(_, end)| *end > span.slba)
    }

    /// Adds blocks.
    pub(super) fn insert(&self, span: &Span) {
        let mut ranges = self.lock();
        let (mut start, mut end) = (span.slba, span.slba + span.blocks);
        while let Some((s, e)) = ranges.range(..=end).next_back().map(|(s, e)| (*s, *e)).filter(|(_, e)| *e >= start) {
            ranges.remove(&s);
            (start, end) = (start.min(s), end.max(e));
        }
        ranges.insert(start, end);
        self.count.store(ranges.len(), Ordering::Release);
    }

    /// Removes blocks.
    #[inline]
    pub(super) fn remove(&self, span: &Span) {
        if self.count.load(Ordering::Acquire) != 0 {
            self.remove_slowly(span);
        }
    }

    #[cold]
    fn remove_slowly(&self, span: &Span) {
        let mut ranges = self.lock();
        let (start, end) = (span.slba, span.slba + span.blocks);
        while let Some((s, e)) = ranges.range(..end).next_back().map(|(s, e)| (*s, *e)).filter(|(_, e)| *e > start) {
            ranges.remove(&s);
            if s < start {
                ranges.insert(s, start);
            }
            if e > end {
                ranges.insert(end, e);
            }
        }
        self.count.store(ranges.len(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn span(slba: u64, blocks: u64) -> Span {
        Span { slba, blocks, offset: 0, bytes: 0 }
    }

    proptest! {
        /// Compares the set with one flag per block.
        #[test]
        fn a_block_set_is_a_set(steps in prop::collection::vec((any::<bool>(), 0u64..40, 1u64..12), 1..40)) {
            let set = BlockSet::default();
            let mut model = [false; 64];
            for (add, slba, blocks) in steps {
                if add { set.insert(&span(slba, blocks)) } else { set.remove(&span(slba, blocks)) }
                model[slba as usize..(slba + blocks) as usize].fill(add);
                for b in 0..64 {
                    prop_assert_eq!(set.meets(&span(b, 1)), model[b as usize], "block {}", b);
                }
                prop_assert_eq!(set.count.load(Ordering::Relaxed) != 0, model.contains(&true));
            }
        }
    }
}
