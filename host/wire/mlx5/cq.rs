//! Index arithmetic of completion queues: rings with an owner bit in each entry, and queues collapsed into one entry.

use super::CQE_BYTES;
use super::cqe::{CqeOpcode, OWNER};

/// A completion queue of 2^n entries, which the adapter writes in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletionRing {
    log_entries: u32,
}

impl CompletionRing {
    /// log2 of the largest queue in entries. The consumer index on the wire has 24 bits, one of which tells laps apart.
    pub const MAX_LOG_ENTRIES: u32 = 23;

    /// Creates a ring of `1 << log_entries` entries; `None` above [`Self::MAX_LOG_ENTRIES`].
    pub fn new(log_entries: u32) -> Option<Self> {
        (log_entries <= Self::MAX_LOG_ENTRIES).then_some(Self { log_entries })
    }
    /// Returns the number of entries.
    pub const fn entries(self) -> u64 {
        1 << self.log_entries
    }
    /// Returns the size in bytes.
    pub const fn bytes(self) -> usize {
        CQE_BYTES << self.log_entries
    }
    /// Returns the byte offset of entry `index`.
    pub const fn offset(self, index: u64) -> usize {
        (index & (self.entries() - 1)) as usize * CQE_BYTES
    }
    /// Returns the owner bit of entry `index`: 0 in the first lap.
    pub const fn owner(self, index: u64) -> bool {
        index >> self.log_entries & 1 != 0
    }
    /// Returns true if the adapter has written entry `index`. `op_own` is the entry's last byte.
    pub const fn is_written(self, index: u64, op_own: u8) -> bool {
        op_own >> 4 != CqeOpcode::Invalid as u8 && (op_own & OWNER != 0) == self.owner(index)
    }
}

/// A completion queue collapsed into one entry, which always shows the latest completion. Entries of a queue pair
/// complete in order, so that completion implies all earlier ones. Positions count blocks of the send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collapsed {
    entries: u16,
}

impl Collapsed {
    /// Creates the arithmetic for a send queue of `1 << log_blocks` blocks; `None` unless that is 2 to 32,768.
    pub fn new(log_blocks: u32) -> Option<Self> {
        super::send_ring::LOG_BLOCKS.contains(&log_blocks).then(|| Self { entries: 1 << log_blocks })
    }
    /// Returns true if everything before block `index` is complete when the entry shows `wqe_counter`.
    ///
    /// The blocks before `index` must be announced, and not have been complete for 65,536 blocks or more. The entry
    /// that ends before `index` must have one block and be signalled, since a completion names its entry's first block.
    pub const fn is_complete(self, index: u64, wqe_counter: u16) -> bool {
        (index as u16).wrapping_sub(wqe_counter).wrapping_sub(2) >= self.entries
    }
    /// Returns the number of complete blocks, if everything before `index` is complete.
    pub const fn completed(self, index: u64, wqe_counter: u16) -> u64 {
        let next = wqe_counter.wrapping_add(1);
        let lap = if index as u16 > next { 1 << 16 } else { 0 };
        (index & !0xffff | next as u64).wrapping_add(lap)
    }
    /// Returns the number of complete blocks. `reserved` is the newest position, with fewer than 65,536 blocks
    /// outstanding.
    pub const fn completed_before(reserved: u64, wqe_counter: u16) -> u64 {
        reserved.saturating_sub((reserved as u16).wrapping_sub(wqe_counter.wrapping_add(1)) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::mlx5::cqe::NEVER_WRITTEN;
    use crate::wire::mlx5::vectors;
    use proptest::prelude::*;

    #[test]
    fn ring_poll_vectors() {
        let mut seen = 0;
        for v in vectors::all().filter(|v| v.what == "ring") {
            let ring = CompletionRing::new(v.get("entries").ilog2()).expect("a size");
            let written = ring.is_written(v.get("ci"), v.get("op_own") as u8);
            assert_eq!(u64::from(written), v.get("written"), "{v:?}");
            seen += 1;
        }
        assert_eq!(seen, 9);
    }

    #[test]
    fn collapsed_poll_vectors() {
        let mut seen = 0;
        for v in vectors::all().filter(|v| v.what == "collapsed") {
            let cq = Collapsed::new(v.get("entries").ilog2()).expect("a size");
            let (index, counter) = (v.get("index"), v.get("counter") as u16);
            let answer = if cq.is_complete(index, counter) { cq.completed(index, counter) } else { 0 };
            assert_eq!(answer, v.get("completed"), "{v:?}");
            seen += 1;
        }
        assert_eq!(seen, 14);
    }

    #[test]
    fn a_fresh_ring_holds_nothing() {
        let ring = CompletionRing::new(3).expect("a size");
        assert!((0..8).all(|i| !ring.is_written(i, NEVER_WRITTEN) && !ring.is_written(i, 0xff)));
        // The initial bytes belong to the lap before the first, even without a check of the opcode.
        assert!((0..8).all(|i| !ring.owner(i) && NEVER_WRITTEN & OWNER != 0));
        assert_eq!((CompletionRing::new(24), Collapsed::new(16)), (None, None));
        assert_eq!((ring.bytes(), ring.offset(9)), (512, 64));
    }

    proptest! {
        #[test]
        fn an_entry_is_written_in_its_own_lap_only(log in 0u32..12, index in 0u64..1 << 40, laps in 0u64..5, kind in 0u8..15) {
            let ring = CompletionRing::new(log).expect("a size");
            let op_own = kind << 4 | u8::from(ring.owner(index));
            let later = index + laps * ring.entries();
            prop_assert_eq!(ring.is_written(later, op_own), laps % 2 == 0);
            prop_assert_eq!(ring.offset(later), ring.offset(index));
        }

        #[test]
        fn a_collapsed_entry_tells_the_truth(log in 7u32..=15, base in 0u64..1 << 40, ahead in 0u64..32_769, back in 0u64..32_768) {
            let cq = Collapsed::new(log).expect("a size");
            let blocks = 1u64 << log;
            // Blocks are announced up to `announced` and complete up to `completed`, at least one.
            let announced = base + 65_536;
            let completed = announced - ahead % (blocks + 1);
            let index = announced - back % blocks;
            let counter = (completed - 1) as u16;
            prop_assert_eq!(cq.is_complete(index, counter), index <= completed);
            if index <= completed {
                prop_assert_eq!(cq.completed(index, counter), completed);
            }
            prop_assert_eq!(Collapsed::completed_before(announced, counter), completed);
        }
    }
}
