//! Memory that this PE has registered as symmetric. It stays registered until every PE has dropped its window: the others
//! may still put to it and get from it.

use super::network::Registrations;
use crate::memory::Region;
use std::collections::BTreeMap;

/// This PE's memory in a window.
#[derive(Debug)]
pub(super) struct RegisteredMemory {
    /// Registrations with the adapter, if the world has one. They end before the memory.
    pub(super) registrations: Option<Registrations>,
    /// The memory. PEs of this process that use it are owners, too.
    pub(super) region: Region,
    /// True if other processes may have the memory mapped in a way that does not keep it.
    pub(super) is_exported: bool,
}

/// A window that not every PE has dropped.
#[derive(Debug, Default)]
struct Live {
    /// Number of PEs that have dropped it.
    dropped: usize,
    /// This PE's memory, once this PE has dropped the window.
    memory: Option<RegisteredMemory>,
}

/// The windows of a world, as one PE knows them. All PEs give them the same numbers.
#[derive(Debug, Default)]
pub(super) struct Windows {
    last: u64,
    live: BTreeMap<u64, Live>,
    /// Windows that this PE has dropped since the last collective call.
    dropped: Vec<u64>,
}

impl Windows {
    /// Returns the number of the last window that this PE knows.
    pub(super) fn last(&self) -> u64 {
        self.last
    }

    /// Returns the number of a new window: one that none of the PEs has used, by their last ones.
    pub(super) fn begin(&mut self, last: impl Iterator<Item = u64>) -> u64 {
        self.last = last.max().unwrap_or(self.last) + 1;
        self.live.insert(self.last, Live::default());
        self.last
    }

    /// Forgets a window that could not be made on all PEs. Returns this PE's memory.
    pub(super) fn cancel(&mut self, id: u64) -> Option<RegisteredMemory> {
        self.live.remove(&id)?.memory
    }

    /// Notes that this PE has dropped a window. The other PEs learn of it at the next collective call.
    pub(super) fn dropped_here(&mut self, id: u64, memory: RegisteredMemory) {
        if let Some(live) = self.live.get_mut(&id) {
            live.memory = Some(memory);
            self.dropped.push(id);
        }
    }

    /// Takes the numbers that the next collective call sends to the other PEs.
    pub(super) fn take_dropped(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.dropped)
    }

    /// Puts back numbers that the other PEs did not get.
    pub(super) fn not_sent(&mut self, dropped: Vec<u64>) {
        self.dropped.extend(dropped);
    }

    /// Notes that one PE of `pes` has dropped a window. Returns this PE's memory once all PEs have dropped it.
    pub(super) fn dropped_by_one(&mut self, id: u64, pes: usize) -> Option<RegisteredMemory> {
        let live = self.live.get_mut(&id)?;
        live.dropped += 1;
        if live.dropped < pes {
            return None;
        }
        self.live.remove(&id)?.memory
    }

    /// Takes the memory of the windows that not every PE has dropped, at the end of the world.
    pub(super) fn take_all(&mut self) -> Vec<RegisteredMemory> {
        std::mem::take(&mut self.live).into_values().filter_map(|live| live.memory).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{Place, Space};

    fn memory() -> RegisteredMemory {
        let region = Space::cpu().allocate(Place::Host, 64).unwrap();
        RegisteredMemory { registrations: None, region, is_exported: false }
    }

    #[test]
    fn memory_is_returned_once_every_pe_has_dropped_its_window() {
        let mut windows = Windows::default();
        let (a, b) = (windows.begin([0, 0].into_iter()), windows.begin([1, 7].into_iter()));
        assert_eq!((a, b, windows.last()), (1, 8, 8));
        assert!(windows.dropped_by_one(a, 2).is_none());
        windows.dropped_here(a, memory());
        windows.dropped_here(b, memory());
        let sent = windows.take_dropped();
        assert_eq!(sent, [a, b]);
        // The call failed: the next one sends them.
        windows.not_sent(sent);
        assert_eq!(windows.take_dropped(), [a, b]);
        assert!(windows.dropped_by_one(a, 2).is_some());
        assert!(windows.dropped_by_one(b, 2).is_none());
        assert_eq!(windows.take_all().len(), 1);
        assert!(windows.dropped_by_one(b, 2).is_none());
    }

    #[test]
    fn a_window_that_was_not_made_is_forgotten() {
        let mut windows = Windows::default();
        let id = windows.begin([0].into_iter());
        windows.dropped_here(id, memory());
        assert!(windows.cancel(id).is_some());
        windows.dropped_here(id, memory());
        assert_eq!(windows.take_dropped(), [id]);
        assert!(windows.dropped_by_one(id, 1).is_none());
    }
}
