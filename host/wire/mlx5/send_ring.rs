//! Index arithmetic of the send queue: 64-bit positions in blocks that never wrap, and their low 16 bits on the wire.

use super::{BLOCK_BYTES, segment::ControlSegment};

/// log2 of the smallest and of the largest ring in blocks. In larger rings, 16-bit differences could not tell the laps
/// apart.
pub const LOG_BLOCKS: std::ops::RangeInclusive<u32> = 1..=15;

/// A send queue of 2^n blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SendRing {
    log_blocks: u32,
}

impl SendRing {
    /// Creates a ring of `1 << log_blocks` blocks; `None` outside [`LOG_BLOCKS`].
    pub fn new(log_blocks: u32) -> Option<Self> {
        LOG_BLOCKS.contains(&log_blocks).then_some(Self { log_blocks })
    }
    /// Returns the number of blocks.
    pub const fn blocks(self) -> u64 {
        1 << self.log_blocks
    }
    /// Returns the size in bytes.
    pub const fn bytes(self) -> usize {
        BLOCK_BYTES << self.log_blocks
    }
    /// Returns the byte offset of block `index`.
    pub const fn offset(self, index: u64) -> usize {
        (index & (self.blocks() - 1)) as usize * BLOCK_BYTES
    }
    /// Returns true if `blocks` more blocks fit behind position `reserved` while all blocks from `completed` on are in
    /// use.
    pub const fn has_room(self, reserved: u64, blocks: u64, completed: u64) -> bool {
        reserved.wrapping_add(blocks).wrapping_sub(completed) <= self.blocks()
    }
    /// Copies the entry at block `index` out of a ring, also if it wraps around the end. Its control segment tells its
    /// length. Returns `None` if `ring` is too short, or the entry is longer than the ring or than `available` blocks.
    pub fn gather(self, ring: &[u8], index: u64, available: u64) -> Option<Vec<u8>> {
        let first = ring.get(self.offset(index)..)?.get(..size_of::<ControlSegment>())?;
        let blocks = bytemuck::pod_read_unaligned::<ControlSegment>(first).blocks().max(1) as u64;
        if blocks > available.min(self.blocks()) {
            return None;
        }
        let mut entry = Vec::with_capacity(blocks as usize * BLOCK_BYTES);
        for i in 0..blocks {
            entry.extend_from_slice(ring.get(self.offset(index.wrapping_add(i))..)?.get(..BLOCK_BYTES)?);
        }
        Some(entry)
    }
    /// Copies an entry of whole blocks into a ring. Returns `None` and copies nothing if the entry does not fit.
    pub fn scatter(self, ring: &mut [u8], index: u64, entry: &[u8]) -> Option<()> {
        if ring.len() < self.bytes() || entry.len() > self.bytes() || !entry.len().is_multiple_of(BLOCK_BYTES) {
            return None;
        }
        for (i, block) in (0..).zip(entry.chunks_exact(BLOCK_BYTES)) {
            ring.get_mut(self.offset(index.wrapping_add(i))..)?.get_mut(..BLOCK_BYTES)?.copy_from_slice(block);
        }
        Some(())
    }
}

/// Returns a position as it appears on the wire: its low 16 bits.
pub const fn wire_index(index: u64) -> u16 {
    index as u16
}

/// Returns the position that the wire's 16 bits stand for: the first one from `seen` on.
pub const fn advance(seen: u64, wire: u16) -> u64 {
    seen.wrapping_add(wire.wrapping_sub(seen as u16) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::mlx5::{Flags, Operation, Payload, Remote, Transport, Wqe};
    use proptest::prelude::*;

    fn entry(index: u64, inline: &[u8]) -> Vec<u8> {
        let remote = Remote { address: 0x1000, key: 1 };
        let operation = Operation::Write { remote, payload: Payload::Inline(inline), immediate: None };
        let wqe = Wqe { index: wire_index(index), qpn: 5, flags: Flags::UNSIGNALLED, target: None, operation };
        wqe.to_bytes().expect("it fits")
    }

    #[test]
    fn seventy_thousand_blocks_go_round_a_ring_of_128() {
        let ring = SendRing::new(7).expect("a size");
        let mut memory = vec![0; ring.bytes()];
        let (mut index, mut turn) = (0u64, 0usize);
        let mut split = 0;
        while index < 70_000 {
            // Alternates entries of one, two and five blocks. The ring's size is no multiple of the pattern.
            let inline: Vec<u8> = (0..[8, 64, 256, 256][turn % 4]).map(|i| (i + turn) as u8).collect();
            let e = entry(index, &inline);
            let blocks = (e.len() / BLOCK_BYTES) as u64;
            split += u32::from(ring.offset(index) + e.len() > ring.bytes());
            ring.scatter(&mut memory, index, &e).expect("it fits");
            let back = ring.gather(&memory, index, blocks).expect("all there");
            let w = Wqe::parse(&back, Transport::ReliableConnection).expect("well formed");
            assert_eq!(w.index, (index % 65_536) as u16);
            assert!(matches!(w.operation, Operation::Write { payload: Payload::Inline(b), .. } if b == inline));
            assert_eq!(ring.gather(&memory, index, blocks - 1), None, "it is not complete");
            index += blocks;
            turn += 1;
        }
        assert!(split > 100, "only {split} entries went across the ring's end");
    }

    #[test]
    fn sizes_are_bounded() {
        assert_eq!(SendRing::new(0), None);
        assert_eq!(SendRing::new(16), None);
        let ring = SendRing::new(1).expect("a size");
        assert!(ring.has_room(7, 2, 7) && !ring.has_room(8, 2, 7));
        let mut memory = vec![0; ring.bytes()];
        assert_eq!(ring.scatter(&mut memory, 0, &[0; 3 * BLOCK_BYTES]), None);
        assert_eq!(ring.scatter(&mut memory, 0, &[0; 7]), None);
        // The control segment announces three blocks.
        memory[7] = 12;
        assert_eq!(ring.gather(&memory, 0, 100), None);
        assert_eq!(ring.gather(&memory[..64], 1, 100), None);
    }

    proptest! {
        #[test]
        fn sixteen_bits_say_where_a_counter_is(seen in 0u64..1 << 60, ahead in 0u64..1 << 16) {
            prop_assert_eq!(advance(seen, wire_index(seen + ahead)), seen + ahead);
        }

        #[test]
        fn gathering_arbitrary_bytes_never_fails(bytes in proptest::collection::vec(any::<u8>(), 0..600), index: u64, log in 1u32..4) {
            let ring = SendRing::new(log).expect("a size");
            if let Some(e) = ring.gather(&bytes, index, u64::MAX) {
                let _ = Wqe::parse(&e, Transport::ReliableConnection);
                let _ = Wqe::parse(&e, Transport::DynamicInitiator);
            }
        }
    }
}
