//! Connections that cannot be closed for others: each has a slot until it ends.

use super::limits::{Admission, Limits, Source, Stranger};
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Instant;

/// Slots of a listener.
#[derive(Clone, Debug)]
pub struct Slots {
    limits: Limits,
    taken: Arc<Mutex<Taken>>,
}

#[derive(Debug, Default)]
struct Taken {
    next: u64,
    all: Vec<(u64, Stranger)>,
}

/// A slot of one connection. Dropping it gives it back.
#[derive(Debug)]
pub struct Slot {
    id: u64,
    of: Arc<Mutex<Taken>>,
}

impl Slots {
    /// Creates as many slots as the limits permit.
    pub fn new(limits: Limits) -> Self {
        Self { limits, taken: Arc::default() }
    }

    /// Takes a slot for a source. Returns `None` if there is none for it.
    pub fn take(&self, source: Source, known: bool) -> Option<Slot> {
        let mut taken = self.taken.lock();
        let all: Vec<Stranger> = taken.all.iter().map(|(_, stranger)| *stranger).collect();
        if self.limits.admit(&all, source, known, false) != Admission::Keep {
            return None;
        }
        let id = taken.next;
        taken.next += 1;
        taken.all.push((id, Stranger { source, known, since: Instant::now(), silent: false }));
        Some(Slot { id, of: self.taken.clone() })
    }

    /// Returns the limits.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Returns the number of slots that are taken.
    pub fn taken(&self) -> usize {
        self.taken.lock().all.len()
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let id = self.id;
        self.of.lock().all.retain(|(other, _)| *other != id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_free_again_when_its_connection_ends() {
        let slots = Slots::new(Limits { all: 4, of_one_source: 3, reserved: 1 });
        let [a, b] = [1, 2].map(|n| Source::of([10, 0, 0, n].into()));
        let mut held: Vec<Slot> = (0..3).filter_map(|_| slots.take(a, false)).collect();
        assert_eq!((held.len(), slots.taken()), (3, 3));
        assert!(slots.take(b, false).is_none(), "the last one is for known sources");
        held.extend(slots.take(b, true));
        assert_eq!(held.len(), 4);
        assert!(slots.take(b, true).is_none());
        held.swap_remove(0);
        assert!(slots.take(b, false).is_some());
        held.clear();
        assert_eq!(slots.taken(), 0);
    }
}
