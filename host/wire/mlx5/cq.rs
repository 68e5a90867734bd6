//! Arithmetic of completion queues: rings whose entries carry an owner bit, and queues collapsed into one entry.

use super::CQE_BYTES;
use super::cqe::{CqeOpcode, OWNER};

/// A completion queue of a power of two of entries, each written in its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompletionRing {
    log_entries: u32,
}

impl CompletionRing {
    /// The largest queue, as a power of two of entries: the consumer index on the wire has 24 bits, one of them for the lap.
    pub const MAX_LOG_ENTRIES: u32 = 23;

    /// A ring of `1 << log_entries` entries; `None` if that is too many.
    pub fn new(log_entries: u32) -> Option<Self> {
        (log_entries <= Self::MAX_LOG_ENTRIES).then_some(Self { log_entries })
    }
    /// Its entries.
    pub const fn entries(self) -> u64 {
        1 << self.log_entries
    }
    /// Its bytes.
    pub const fn bytes(self) -> usize {
        CQE_BYTES << self.log_entries
    }
    /// Where entry `index` is, in bytes from the ring's start.
    pub const fn offset(self, index: u64) -> usize {
        (index & (self.entries() - 1)) as usize * CQE_BYTES
    }
    /// The owner bit of entry `index`: 0 in the first lap.
    pub const fn owner(self, index: u64) -> bool {
        index >> self.log_entries & 1 != 0
    }
    /// Whether the last byte of what stands at entry `index` says that the adapter has written it.
    pub const fn is_written(self, index: u64, op_own: u8) -> bool {
        op_own >> 4 != CqeOpcode::Invalid as u8 && (op_own & OWNER != 0) == self.owner(index)
    }
}

/// A completion queue collapsed into its first entry, which always shows the latest completion. Entries of one queue pair
/// complete in order, so it also tells of all before it. Counters are of blocks of the send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collapsed {
    entries: u16,
}

impl Collapsed {
    /// For a send queue of `1 << log_blocks` blocks, at most 32,768; `None` beyond that.
    pub fn new(log_blocks: u32) -> Option<Self> {
        super::send_ring::LOG_BLOCKS.contains(&log_blocks).then(|| Self { entries: 1 << log_blocks })
    }
    /// Whether everything before block `index` is complete when the entry shows `wqe_counter`. The block must have been rung
    /// for, must not be known complete for 65,536 blocks, and the entry before it must be of one block and signalled: what
    /// completes names its first block.
    pub const fn is_complete(self, index: u64, wqe_counter: u16) -> bool {
        (index as u16).wrapping_sub(wqe_counter).wrapping_sub(2) >= self.entries
    }
    /// How many blocks are complete, where everything before `index` is.
    pub const fn completed(self, index: u64, wqe_counter: u16) -> u64 {
        let next = wqe_counter.wrapping_add(1);
        let lap = if index as u16 > next { 1 << 16 } else { 0 };
        (index & !0xffff | next as u64).wrapping_add(lap)
    }
    /// How many blocks are complete, where `reserved` is the newest counter and fewer than 65,536 blocks are outstanding.
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
        // The filling is of the lap before the first even without a look at the opcode.
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
            // Rung up to `rung`; complete up to `completed`, at least one block; asked about `index`.
            let rung = base + 65_536;
            let completed = rung - ahead % (blocks + 1);
            let index = rung - back % blocks;
            let counter = (completed - 1) as u16;
            prop_assert_eq!(cq.is_complete(index, counter), index <= completed);
            if index <= completed {
                prop_assert_eq!(cq.completed(index, counter), completed);
            }
            prop_assert_eq!(Collapsed::completed_before(rung, counter), completed);
        }
    }
}
