//! Layout of a queue set in memory: rings, bounce buffers, PRP lists, and the arrays that
//! kernels share. Arithmetic only.

use super::controller::PAGE_BYTES;
use crate::engine::abi;
use crate::wire::nvme::{CqEntry, SqEntry};

/// Smallest and largest number of ring entries (NVMe Base 2.1, 3.3.3.1).
pub(super) const DEPTHS: std::ops::RangeInclusive<u32> = 2..=65_536;
/// PRP entries in one page.
const LIST_ENTRIES: usize = PAGE_BYTES / 8;
/// Largest transfer of one command in bytes: the pages that one PRP list names. Lists are not chained.
pub(super) const MAX_TRANSFER: usize = LIST_ENTRIES * PAGE_BYTES;
/// Smallest bounce buffer in bytes: the smallest block.
const MIN_BOUNCE: usize = 512;
/// Alignment in bytes of the parts of the shared arrays.
const LINE: usize = 128;

/// Layout of one pair's rings: submission ring first, both page aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rings {
    pub(super) cq_offset: usize,
    pub(super) bytes: usize,
}

pub(super) fn rings(depth: u32) -> Rings {
    let sq = (depth as usize * size_of::<SqEntry>()).next_multiple_of(PAGE_BYTES);
    let cq = (depth as usize * size_of::<CqEntry>()).next_multiple_of(PAGE_BYTES);
    Rings { cq_offset: sq, bytes: sq + cq }
}

/// Layout of the arrays that kernels use for `count` queues: `wb_queue[count]`, then slot words, marks, outcomes
/// and records of each queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Arrays {
    depth: usize,
    first: usize,
    words: usize,
    each: usize,
    pub(super) bytes: usize,
}

impl Arrays {
    pub(super) fn new(count: u32, depth: u32) -> Self {
        let depth = depth as usize;
        let first = count as usize * size_of::<abi::Queue>();
        let words = (depth * size_of::<u32>()).next_multiple_of(LINE);
        let each = 3 * words + (depth * size_of::<abi::Record>()).next_multiple_of(LINE);
        Self { depth, first, words, each, bytes: first + count as usize * each }
    }
    pub(super) fn queue(&self, index: u32) -> usize {
        index as usize * size_of::<abi::Queue>()
    }
    pub(super) fn slot(&self, index: u32) -> usize {
        self.first + index as usize * self.each
    }
    pub(super) fn mark(&self, index: u32) -> usize {
        self.slot(index) + self.words
    }
    pub(super) fn outcome(&self, index: u32) -> usize {
        self.slot(index) + 2 * self.words
    }
    pub(super) fn record(&self, index: u32) -> usize {
        self.slot(index) + 3 * self.words
    }
    /// Returns the length in bytes of outcomes and records, which start as zero.
    pub(super) fn rest_bytes(&self) -> usize {
        self.words + self.depth * size_of::<abi::Record>()
    }
}

/// Checks a bounce buffer size: a power of two below a page, so that no buffer crosses a page boundary, or whole pages.
pub(super) fn check_bounce(bytes: usize) -> Result<(), String> {
    let packed = bytes.is_power_of_two() && (MIN_BOUNCE..PAGE_BYTES).contains(&bytes);
    let pages = bytes.is_multiple_of(PAGE_BYTES) && (PAGE_BYTES..=MAX_TRANSFER).contains(&bytes);
    if packed || pages {
        return Ok(());
    }
    Err(format!(
        "bounce buffers of {bytes} bytes: use 512, 1024 or 2048 bytes, or a multiple of 4096 bytes up to {MAX_TRANSFER}"
    ))
}

/// Returns true if commands of up to `bytes` bytes need PRP lists. The command itself names two pages. Data that does
/// not start on a page boundary, which never happens in a bounce buffer of whole pages, takes one page more.
pub(super) fn needs_lists(bytes: usize, aligned: bool) -> bool {
    bytes > if aligned { 2 * PAGE_BYTES } else { PAGE_BYTES }
}

/// Returns the PRP list of a bounce buffer: entry i is the address of page i + 1.
pub(super) fn list_of(buffer: u64, bytes: usize) -> Vec<u64> {
    (1..bytes.div_ceil(PAGE_BYTES)).map(|page| buffer + (page * PAGE_BYTES) as u64).collect()
}

/// Returns the mask of a lap number in a slot word: a ticket has so many bits above those of the slot.
fn lap_mask(log2_depth: u32) -> u32 {
    u32::MAX >> log2_depth
}

/// State of an idle queue whose next ticket is `ticket`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Idle {
    log2_depth: u32,
    ticket: u32,
}

/// Bits of a slot word below the lap.
const STATE_BITS: u32 = 3;

impl Idle {
    pub(super) fn new(depth: u32, ticket: u32) -> Self {
        Self { log2_depth: depth.trailing_zeros(), ticket }
    }

    /// Returns the lap of the next ticket that uses this slot.
    fn lap(&self, slot: u32) -> u32 {
        let depth = 1u32 << self.log2_depth;
        let behind = slot.wrapping_sub(self.ticket) & (depth - 1);
        self.ticket.wrapping_add(behind) >> self.log2_depth
    }

    /// Returns the slot word that means free for that lap.
    pub(super) fn slot_word(&self, slot: u32) -> u32 {
        (self.lap(slot) & lap_mask(self.log2_depth)) << STATE_BITS
    }

    /// Returns the mark that the previous lap left: the previous lap's number + 1.
    pub(super) fn mark(&self, slot: u32) -> u32 {
        self.lap(slot) & lap_mask(self.log2_depth)
    }
}

/// State bit of a slot word: a poller has seen the completion (`slot::completed` in `ring.cuh`).
const COMPLETED: u32 = 1;
const STATES: u32 = (1 << STATE_BITS) - 1;

/// Words of a queue in kernel memory, read while no kernel runs.
#[derive(Clone, Debug)]
pub(super) struct KernelWords {
    pub(super) depth: u32,
    pub(super) ticket: u32,
    pub(super) head: u32,
    pub(super) slots: Vec<u32>,
    pub(super) marks: Vec<u32>,
}

impl KernelWords {
    /// Returns the slots whose command was submitted and whose completion no poller has seen, oldest first.
    pub(super) fn in_flight(&self) -> Vec<u32> {
        let log2 = self.depth.trailing_zeros();
        let mask = lap_mask(log2);
        (1..=self.depth)
            .rev()
            .map(|back| self.ticket.wrapping_sub(back))
            .filter(|ticket| {
                let slot = (ticket & (self.depth - 1)) as usize;
                let lap = ticket >> log2;
                let state = self.slots[slot] ^ (lap & mask) << STATE_BITS;
                let marked = self.marks[slot] & mask == lap.wrapping_add(1) & mask;
                marked && state <= STATES && state & COMPLETED == 0
            })
            .map(|ticket| ticket & (self.depth - 1))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rings_are_page_aligned() {
        assert_eq!(rings(2), Rings { cq_offset: 4096, bytes: 8192 });
        assert_eq!(rings(1024), Rings { cq_offset: 65_536, bytes: 65_536 + 16_384 });
    }

    #[test]
    fn bounce_sizes() {
        for good in [512, 1024, 2048, 4096, 12_288, MAX_TRANSFER] {
            assert_eq!(check_bounce(good), Ok(()), "{good}");
        }
        for bad in [0, 256, 513, 1536, 4608, MAX_TRANSFER + 4096] {
            assert!(check_bounce(bad).unwrap_err().contains(&bad.to_string()));
        }
        assert_eq!(list_of(0x10000, 16_384), [0x11000, 0x12000, 0x13000]);
        assert!(list_of(0x10000, 4096).is_empty());
        assert!(!needs_lists(8192, true) && needs_lists(12_288, true) && needs_lists(8192, false));
    }

    #[test]
    fn a_fresh_queue_is_all_zero() {
        let idle = Idle::new(64, 0);
        assert!((0..64).all(|s| idle.slot_word(s) == 0 && idle.mark(s) == 0));
        let late = Idle::new(64, 0u32.wrapping_sub(128));
        assert!((0..64).all(|s| late.mark(s) == (1 << 26) - 2));
    }

    proptest! {
        /// Any commands in flight, at any place of the ring; the waiters of some gave up.
        #[test]
        fn commands_in_flight_are_found(log2 in 1u32..8, first: u32, open in 0u32..200, kinds in proptest::collection::vec(0u32..3, 200)) {
            let depth = 1u32 << log2;
            let open = open % depth;
            let idle = Idle::new(depth, first);
            let mut words = KernelWords {
                depth,
                ticket: first.wrapping_add(open),
                head: first,
                slots: (0..depth).map(|s| idle.slot_word(s)).collect(),
                marks: (0..depth).map(|s| idle.mark(s)).collect(),
            };
            let quiet = KernelWords { ticket: first, ..words.clone() };
            prop_assert!(quiet.in_flight().is_empty());
            let mut expected = Vec::new();
            for i in 0..open {
                let ticket = first.wrapping_add(i);
                let slot = (ticket & (depth - 1)) as usize;
                words.marks[slot] = (ticket >> log2).wrapping_add(1);
                match kinds[i as usize] {
                    0 => words.slots[slot] |= COMPLETED,
                    1 => {
                        words.slots[slot] |= 4;
                        expected.push(slot as u32);
                    }
                    _ => expected.push(slot as u32),
                }
            }
            prop_assert_eq!(words.in_flight(), expected);
        }

        #[test]
        fn parts_do_not_overlap(count in 1u32..70, log2 in 1u32..13) {
            let depth = 1u32 << log2;
            let a = Arrays::new(count, depth);
            let mut parts: Vec<(usize, usize)> = Vec::new();
            for i in 0..count {
                parts.push((a.queue(i), size_of::<abi::Queue>()));
                for at in [a.slot(i), a.mark(i), a.outcome(i)] {
                    parts.push((at, 4 * depth as usize));
                }
                parts.push((a.record(i), size_of::<abi::Record>() * depth as usize));
                prop_assert!(a.outcome(i) + a.rest_bytes() <= a.bytes);
            }
            parts.sort();
            prop_assert!(parts.windows(2).all(|w| w[0].0 + w[0].1 <= w[1].0));
            prop_assert!(parts.iter().all(|p| p.0 % 128 == 0) && parts.last().unwrap().0 + parts.last().unwrap().1 <= a.bytes);
        }

        /// A queue that started at `first` and advanced by `steps` tickets is in the state of a queue that starts
        /// there.
        #[test]
        fn idle_state_follows_the_tickets(log2 in 1u32..10, first: u32, steps in 0u32..3000) {
            let depth = 1u32 << log2;
            let start = Idle::new(depth, first);
            let mut slots: Vec<u32> = (0..depth).map(|s| start.slot_word(s)).collect();
            let mut marks: Vec<u32> = (0..depth).map(|s| start.mark(s)).collect();
            for i in 0..steps {
                let ticket = first.wrapping_add(i);
                let (slot, lap) = ((ticket & (depth - 1)) as usize, ticket >> log2);
                prop_assert_eq!(slots[slot], (lap & lap_mask(log2)) << STATE_BITS);
                slots[slot] = (lap.wrapping_add(1) & lap_mask(log2)) << STATE_BITS;
                marks[slot] = lap.wrapping_add(1) & lap_mask(log2);
            }
            let end = Idle::new(depth, first.wrapping_add(steps));
            prop_assert!((0..depth).all(|s| slots[s as usize] == end.slot_word(s) && marks[s as usize] == end.mark(s)));
        }
    }
}
