//! Allocator of I/O queue identifiers.

use parking_lot::{Mutex, MutexGuard};

/// Identifiers from 1 to the number of pairs that the controller grants. A pair whose deletion failed is lost: the
/// controller may still use it, so its identifier is not allocated again.
#[derive(Debug)]
pub(super) struct QueueIds(Mutex<Vec<Use>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Free,
    Taken,
    Lost,
}

impl QueueIds {
    pub(super) fn new(granted: u32) -> Self {
        Self(Mutex::new(vec![Use::Free; granted as usize]))
    }

    fn uses(&self) -> MutexGuard<'_, Vec<Use>> {
        self.0.lock()
    }

    pub(super) fn granted(&self) -> u32 {
        self.uses().len() as u32
    }

    pub(super) fn used(&self) -> u32 {
        self.uses().iter().filter(|u| **u != Use::Free).count() as u32
    }

    pub(super) fn lost(&self) -> Vec<u16> {
        self.with(|u| u == Use::Lost)
    }

    fn with(&self, wanted: impl Fn(Use) -> bool) -> Vec<u16> {
        (1u16..).zip(self.uses().iter()).filter(|(_, u)| wanted(**u)).map(|(id, _)| id).collect()
    }

    /// Takes `count` identifiers. Returns `None` and takes none if fewer are free.
    pub(super) fn take(&self, count: u32) -> Option<Vec<u16>> {
        let mut uses = self.uses();
        let free: Vec<usize> = (0..uses.len()).filter(|i| uses[*i] == Use::Free).take(count as usize).collect();
        if free.len() < count as usize {
            return None;
        }
        free.iter().for_each(|i| uses[*i] = Use::Taken);
        Some(free.iter().map(|i| *i as u16 + 1).collect())
    }

    pub(super) fn give_back(&self, id: u16) {
        self.uses()[usize::from(id) - 1] = Use::Free;
    }

    /// Frees the lost identifiers. To be called after a reset, which removes all queues from the controller.
    pub(super) fn find_lost(&self) {
        self.uses().iter_mut().filter(|u| **u == Use::Lost).for_each(|u| *u = Use::Free);
    }

    pub(super) fn lose(&self, id: u16) {
        self.uses()[usize::from(id) - 1] = Use::Lost;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_taken_together_and_lost_ones_stay_out() {
        let ids = QueueIds::new(4);
        assert_eq!(ids.take(3), Some(vec![1, 2, 3]));
        assert_eq!(ids.take(2), None);
        assert_eq!((ids.granted(), ids.used()), (4, 3));
        ids.give_back(2);
        ids.lose(1);
        assert_eq!(ids.take(2), Some(vec![2, 4]));
        assert_eq!(ids.lost(), [1]);
        assert_eq!(ids.take(1), None);
        ids.find_lost();
        assert_eq!(ids.take(1), Some(vec![1]));
    }
}
