//! Ranges of allocation units that an object occupies.

use bytemuck::Zeroable;

/// Most extents of an object.
pub(super) const MOST: usize = 8;
/// Bits of a run's length in its packed form.
const LENGTH_BITS: u32 = 24;
/// Largest number of units in a run.
pub(super) const LONGEST: u64 = (1 << LENGTH_BITS) - 1;
/// Largest number of units in a store.
pub(super) const UNITS: u64 = 1 << (u64::BITS - LENGTH_BITS);

/// A range of allocation units of a slab, packed: the first unit in the upper 40 bits, their number in the lower 24.
/// Runs are ordered by their first units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Zeroable)]
pub(super) struct Run(u64);

impl Run {
    /// Makes a run of units that a store can have.
    pub(super) fn new(start: u64, units: u64) -> Self {
        debug_assert!(start < UNITS && units <= LONGEST, "run of {units} units at {start}");
        Self(start << LENGTH_BITS | units)
    }

    pub(super) fn of_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(super) fn bits(self) -> u64 {
        self.0
    }

    pub(super) fn start(self) -> u64 {
        self.0 >> LENGTH_BITS
    }

    pub(super) fn units(self) -> u64 {
        self.0 & LONGEST
    }

    pub(super) fn end(self) -> u64 {
        self.start() + self.units()
    }
}

/// Runs of one object, in the order of its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Runs {
    runs: [Run; MOST],
    count: u8,
}

impl Runs {
    /// Adds a run. The object has fewer than [`MOST`].
    pub(super) fn push(&mut self, run: Run) {
        self.runs[usize::from(self.count)] = run;
        self.count += 1;
    }

    pub(super) fn as_slice(&self) -> &[Run] {
        &self.runs[..usize::from(self.count)]
    }

    /// Returns the runs in the order of their units.
    pub(super) fn sorted(mut self) -> Self {
        self.runs[..usize::from(self.count)].sort_unstable();
        self
    }

    pub(super) fn units(&self) -> u64 {
        self.as_slice().iter().map(|r| r.units()).sum()
    }
}

impl FromIterator<Run> for Runs {
    fn from_iter<T: IntoIterator<Item = Run>>(runs: T) -> Self {
        let mut all = Self::default();
        runs.into_iter().for_each(|run| all.push(run));
        all
    }
}
