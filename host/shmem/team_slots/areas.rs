//! The layout of the team slots in the symmetric heap.
//!
//! A world reserves space for several teams when it is built, at the same place on every PE. Some PEs create a team
//! without the others, so a collective allocation is not available then. Slot 0 belongs to the team of all PEs.

use crate::engine::abi;

/// Alignment of the parts of a slot: a line of a GPU's L2.
const LINE: usize = 128;
/// Words that each member sends to the others when they make a team. They fit the smallest scratch.
pub(in crate::shmem) const NOTE_WORDS: usize = 4;
const _: () = assert!(NOTE_WORDS * size_of::<u64>() <= abi::SCRATCH_LEAST_BYTES / 2);
/// The team of all PEs may use one in `SHARE` bytes of the heap for its slot. The other teams together may use as much.
const SHARE: usize = 16;

/// The layout of all slots. It depends only on the heap's size and the number of PEs, and so is the same on all PEs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::shmem) struct Areas {
    pes: usize,
    /// Scratch bytes of the team of all PEs, for each channel and member, twice.
    first_scratch: usize,
    /// Scratch bytes of each other team.
    scratch: usize,
    slots: usize,
}

/// Offsets of one slot's parts from the beginning of the slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    pub sync: usize,
    pub signals: usize,
    pub notes: usize,
    pub scratch: usize,
    pub scratch_bytes: usize,
    pub end: usize,
}

impl Areas {
    /// Plans the layout for heaps of `heap_bytes` on `pes` PEs.
    pub(in crate::shmem) fn plan(heap_bytes: usize, pes: usize) -> Self {
        let room = heap_bytes / SHARE;
        let largest = |room: usize| {
            let mut bytes = abi::SCRATCH_BYTES;
            while bytes > abi::SCRATCH_LEAST_BYTES && slot_bytes(pes, bytes) > room {
                bytes /= 2;
            }
            bytes
        };
        // Prefers many teams with a small scratch to few with a large one, until there are enough.
        let scratch = largest(room / (abi::MAX_TEAMS - 1));
        let slots = 1 + (room / slot_bytes(pes, scratch)).min(abi::MAX_TEAMS - 1);
        Self { pes, first_scratch: largest(room), scratch, slots }
    }

    /// Returns the bytes of all slots.
    pub(in crate::shmem) fn bytes(&self) -> usize {
        slot_bytes(self.pes, self.first_scratch) + (self.slots - 1) * slot_bytes(self.pes, self.scratch)
    }

    /// Returns the number of slots, including that of the team of all PEs.
    pub(super) fn slots(&self) -> usize {
        self.slots
    }

    /// Returns the offsets of slot `index`.
    pub(super) fn slot(&self, index: usize) -> Slot {
        let (sync, scratch_bytes) = match index {
            0 => (0, self.first_scratch),
            _ => (
                slot_bytes(self.pes, self.first_scratch) + (index - 1) * slot_bytes(self.pes, self.scratch),
                self.scratch,
            ),
        };
        let signals = sync + sync_bytes();
        let notes = signals + signal_bytes(self.pes);
        let scratch = notes + notes_bytes(self.pes);
        Slot { sync, signals, notes, scratch, scratch_bytes, end: sync + slot_bytes(self.pes, scratch_bytes) }
    }
}

fn sync_bytes() -> usize {
    abi::CHANNELS * abi::SYNC_ROUNDS * abi::SYNC_SLOTS * size_of::<u64>()
}

fn signal_bytes(pes: usize) -> usize {
    (abi::CHANNELS * pes * size_of::<u64>()).next_multiple_of(LINE)
}

fn notes_bytes(pes: usize) -> usize {
    (pes * NOTE_WORDS * size_of::<u64>()).next_multiple_of(LINE)
}

fn slot_bytes(pes: usize, scratch_bytes: usize) -> usize {
    sync_bytes() + signal_bytes(pes) + notes_bytes(pes) + abi::CHANNELS * 2 * pes * scratch_bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn slots_lie_side_by_side(heap in (1usize << 16)..(1 << 40), pes in 1usize..=1024) {
            let areas = Areas::plan(heap, pes);
            prop_assert!((1..=abi::MAX_TEAMS).contains(&areas.slots()));
            let mut end = 0;
            for i in 0..areas.slots() {
                let s = areas.slot(i);
                prop_assert_eq!(s.sync, end);
                prop_assert!(s.sync.is_multiple_of(LINE) && s.signals.is_multiple_of(LINE) && s.scratch.is_multiple_of(LINE));
                prop_assert!(s.sync + sync_bytes() <= s.signals && s.signals + abi::CHANNELS * pes * 8 <= s.notes);
                prop_assert!(s.notes.is_multiple_of(LINE) && s.notes + pes * NOTE_WORDS * 8 <= s.scratch);
                prop_assert!((abi::SCRATCH_LEAST_BYTES..=abi::SCRATCH_BYTES).contains(&s.scratch_bytes));
                prop_assert_eq!(s.end, s.scratch + abi::CHANNELS * 2 * pes * s.scratch_bytes);
                end = s.end;
            }
            prop_assert_eq!(end, areas.bytes());
            let least = slot_bytes(pes, abi::SCRATCH_LEAST_BYTES);
            prop_assert!(areas.bytes() <= (heap / SHARE).max(least) + heap / SHARE);
        }
    }

    #[test]
    fn a_large_heap_has_all_teams_and_a_small_one_has_at_least_the_first() {
        assert_eq!(Areas::plan(8 << 30, 4).slots(), abi::MAX_TEAMS);
        assert_eq!(Areas::plan(8 << 30, 4).slot(0).scratch_bytes, abi::SCRATCH_BYTES);
        assert_eq!(Areas::plan(64 << 10, 4).slots(), 1);
    }
}
