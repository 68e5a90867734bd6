//! Order of objects by their last use.

const NONE: u32 = u32::MAX;
/// Neighbour of an object that is not in the order.
const OUT: u32 = u32::MAX - 1;

/// Doubly linked list of slots, from the one that was used last to the least recently used one.
#[derive(Debug)]
pub(super) struct Recency {
    /// Slot that was used after this one.
    newer: Vec<u32>,
    /// Slot that was used before this one.
    older: Vec<u32>,
    newest: u32,
    oldest: u32,
}

impl Recency {
    /// Makes an empty order for `slots` slots, fewer than 2^32 - 2.
    pub(super) fn new(slots: usize) -> Self {
        Self { newer: vec![OUT; slots], older: vec![NONE; slots], newest: NONE, oldest: NONE }
    }

    /// Returns true if the slot is in the order.
    pub(super) fn contains(&self, slot: u32) -> bool {
        self.newer[slot as usize] != OUT
    }

    /// Makes a slot the one that was used last.
    pub(super) fn touch(&mut self, slot: u32) {
        if self.newest == slot {
            return;
        }
        self.remove(slot);
        self.newer[slot as usize] = NONE;
        self.older[slot as usize] = self.newest;
        match self.newest {
            NONE => self.oldest = slot,
            before => self.newer[before as usize] = slot,
        }
        self.newest = slot;
    }

    /// Takes a slot out of the order, if it is there.
    pub(super) fn remove(&mut self, slot: u32) {
        if !self.contains(slot) {
            return;
        }
        let (newer, older) = (self.newer[slot as usize], self.older[slot as usize]);
        match newer {
            NONE => self.newest = older,
            newer => self.older[newer as usize] = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.newer[older as usize] = newer,
        }
        self.newer[slot as usize] = OUT;
    }

    /// Returns the least recently used slot.
    pub(super) fn oldest(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    /// Returns the bytes of memory.
    pub(super) fn memory(&self) -> usize {
        (self.newer.capacity() + self.older.capacity()) * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_order_is_that_of_a_list(steps in prop::collection::vec((0u32..3, 0u32..12), 0..300)) {
            let (mut order, mut model) = (Recency::new(12), Vec::new());
            for (kind, slot) in steps {
                model.retain(|s| *s != slot);
                if kind > 0 {
                    order.touch(slot);
                    model.push(slot);
                } else {
                    order.remove(slot);
                }
                prop_assert_eq!(order.oldest(), model.first().copied());
                prop_assert!((0..12).all(|s| order.contains(s) == model.contains(&s)));
            }
            for slot in model {
                prop_assert_eq!(order.oldest(), Some(slot));
                order.remove(slot);
            }
            prop_assert_eq!(order.oldest(), None);
        }
    }
}
