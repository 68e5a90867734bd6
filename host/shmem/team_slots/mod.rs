//! Team slots in the symmetric heap: their layout, and the slots that this PE uses.

mod areas;

pub(super) use areas::{Areas, NOTE_WORDS};

use super::ShmemError;
use super::symmetric_allocator::ALIGN;
use crate::engine::{Engine, abi};
use crate::memory::{Place, Region};
use bytemuck::Zeroable;
use parking_lot::{Mutex, MutexGuard};

/// Returns the bytes at the beginning of each heap that the library needs in addition to the programs' `heap_bytes`.
pub(super) fn own_bytes(heap_bytes: usize, pes: usize) -> usize {
    Areas::plan(heap_bytes, pes).bytes().next_multiple_of(ALIGN)
}

/// The team slots of one PE.
#[derive(Debug)]
pub(super) struct Teams {
    areas: Areas,
    /// Address of the slots in this PE's heap.
    address: u64,
    /// Offset of the slots in the heap, in bytes.
    offset: usize,
    /// `wb_team_rounds[CHANNELS]` of each slot.
    rounds: Region,
    /// One word in which the kernel of a host call leaves its result.
    answer: Mutex<Region>,
    all: abi::Team,
    /// Bit i is set while this PE is in a team in slot i.
    used: Mutex<u64>,
}

const ROUNDS_BYTES: usize = abi::CHANNELS * size_of::<abi::TeamRounds>();

impl Teams {
    /// Sets up the slots of PE `pe` of `pes`, in zeroed memory at `offset` of the heap that begins at address `heap`.
    pub(super) fn new(
        engine: &Engine,
        heap: u64,
        offset: usize,
        areas: Areas,
        (pe, pes): (usize, usize),
    ) -> Result<Self, ShmemError> {
        let rounds = engine.allocate(Place::Device, areas.slots() * ROUNDS_BYTES)?;
        let answer = Mutex::new(engine.allocate(Place::Host, size_of::<u64>())?);
        let address = heap + offset as u64;
        let mut this = Self { areas, address, offset, rounds, answer, all: abi::Team::zeroed(), used: Mutex::new(1) };
        let all = abi::Team { pe: pe as u32, size: pes as u32, start: 0, stride: 1, ..abi::Team::zeroed() };
        this.all = this.in_slot(0, all);
        Ok(this)
    }

    /// Returns the team of all PEs, as kernels get it.
    pub(super) fn of_all(&self) -> abi::Team {
        self.all
    }

    /// Returns `team` with the addresses of a slot.
    pub(super) fn in_slot(&self, slot: usize, team: abi::Team) -> abi::Team {
        let s = self.areas.slot(slot);
        abi::Team {
            sync: self.address + s.sync as u64,
            signals: self.address + s.signals as u64,
            scratch: self.address + s.scratch as u64,
            scratch_bytes: s.scratch_bytes as u32,
            rounds: self.rounds.address() + (slot * ROUNDS_BYTES) as u64,
            ..team
        }
    }

    /// Returns the free slots of this PE: bit i is set if slot i exists and is free.
    pub(super) fn free(&self) -> u64 {
        let there = if self.areas.slots() == 64 { u64::MAX } else { (1 << self.areas.slots()) - 1 };
        there & !*self.used()
    }

    /// Returns the heap offset of the notes through which the members of a slot's team make new teams.
    pub(super) fn notes(&self, slot: usize) -> usize {
        self.offset + self.areas.slot(slot).notes
    }

    /// Locks the word in which the kernel of one host call leaves its result.
    pub(super) fn answer(&self) -> MutexGuard<'_, Region> {
        self.answer.lock()
    }

    /// Returns the number of teams that a PE can be in.
    pub(super) fn limit(&self) -> usize {
        self.areas.slots()
    }

    /// Returns the slots of the teams that this PE is in, with their heap ranges.
    pub(super) fn in_use(&self) -> Vec<(usize, std::ops::Range<usize>)> {
        let used = *self.used();
        let mine = (0..self.areas.slots()).filter(|slot| used >> slot & 1 == 1);
        mine.map(|slot| (slot, self.room(slot))).collect()
    }

    fn room(&self, slot: usize) -> std::ops::Range<usize> {
        let s = self.areas.slot(slot);
        self.offset + s.sync..self.offset + s.end
    }

    /// Takes a slot and returns its heap range. The caller must zero the range and the slot's counters.
    pub(super) fn take(&self, slot: usize) -> std::ops::Range<usize> {
        *self.used() |= 1 << slot;
        self.room(slot)
    }

    /// Zeroes the counters of a slot.
    pub(super) fn reset(&self, slot: usize) -> Result<(), ShmemError> {
        Ok(self.rounds.fill(slot * ROUNDS_BYTES, ROUNDS_BYTES, 0)?)
    }

    /// Frees a slot.
    pub(super) fn give_back(&self, slot: usize) {
        *self.used() &= !(1 << slot);
    }

    fn used(&self) -> MutexGuard<'_, u64> {
        self.used.lock()
    }
}
