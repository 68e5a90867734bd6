//! Receive entries: lists of data segments without a control segment, in slots of 2^n segments.

use super::SEGMENT_BYTES;
use super::segment::DataSegment;
use super::send_ring::LOG_BLOCKS;
use super::wqe::WqeError;

/// log2 of the largest slot in segments (3 bits in the queue pair's context).
pub const MAX_LOG_STRIDE: u32 = 7;

/// A receive queue of 2^n slots of 2^m segments. Positions count slots from the queue's creation, and never wrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceiveRing {
    log_slots: u32,
    log_stride: u32,
}

impl ReceiveRing {
    /// Creates a ring of `1 << log_slots` slots of `1 << log_stride` segments. Returns `None` for more than 32,768
    /// slots, which 16-bit positions could not tell apart, and for strides above [`MAX_LOG_STRIDE`].
    pub fn new(log_slots: u32, log_stride: u32) -> Option<Self> {
        (log_slots <= *LOG_BLOCKS.end() && log_stride <= MAX_LOG_STRIDE).then_some(Self { log_slots, log_stride })
    }
    /// Returns the number of slots.
    pub const fn slots(self) -> u64 {
        1 << self.log_slots
    }
    /// Returns the bytes of a slot.
    pub const fn slot_bytes(self) -> usize {
        SEGMENT_BYTES << self.log_stride
    }
    /// Returns the size in bytes.
    pub const fn bytes(self) -> usize {
        self.slot_bytes() << self.log_slots
    }
    /// Returns the byte offset of the slot at a position.
    pub const fn offset(self, index: u64) -> usize {
        (index & (self.slots() - 1)) as usize * self.slot_bytes()
    }
    /// Returns the number of posted receives that the receive word of a doorbell record stands for, where the first
    /// `taken` receives were taken. Returns `None` if the word announces more receives than the ring has slots.
    pub const fn posted(self, record: u32, taken: u64) -> Option<u64> {
        let ahead = (record as u16).wrapping_sub(taken as u16) as u64;
        if record > u16::MAX as u32 || ahead > self.slots() { None } else { Some(taken + ahead) }
    }
}

/// Encodes a slot of `1 << log_stride` segments (at most [`MAX_LOG_STRIDE`]) with the given pieces. End markers fill
/// the rest.
///
/// # Errors
/// * [`WqeError::Truncated`] if there are more pieces than segments.
/// * [`WqeError::PieceLength`] if the length of a piece is 0 or above [`DataSegment::MAX_BYTES`].
pub fn slot(pieces: &[DataSegment], log_stride: u32) -> Result<Vec<u8>, WqeError> {
    let segments = 1usize << log_stride.min(MAX_LOG_STRIDE);
    if pieces.len() > segments {
        return Err(WqeError::Truncated { ds: pieces.len(), bytes: segments * SEGMENT_BYTES });
    }
    if let Some(bad) = pieces.iter().map(|p| p.bytes.get()).find(|n| !(1..=DataSegment::MAX_BYTES).contains(n)) {
        return Err(WqeError::PieceLength(bad));
    }
    let all = pieces.iter().chain(std::iter::repeat(&DataSegment::END)).take(segments);
    Ok(all.flat_map(|p| bytemuck::bytes_of(p).to_vec()).collect())
}

/// Decodes the pieces in a slot, up to the end marker.
///
/// # Errors
/// [`WqeError::PieceLength`] if the length of a piece is 0 or above [`DataSegment::MAX_BYTES`].
pub fn pieces(slot: &[u8]) -> Result<Vec<DataSegment>, WqeError> {
    slot.chunks_exact(SEGMENT_BYTES)
        .map(bytemuck::pod_read_unaligned::<DataSegment>)
        .take_while(|p| p.key.get() != DataSegment::INVALID_KEY)
        .map(|p| match p.bytes.get() {
            1..=DataSegment::MAX_BYTES => Ok(p),
            other => Err(WqeError::PieceLength(other)),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::mlx5::vectors;
    use proptest::prelude::*;

    #[test]
    fn golden_entries() {
        let mut seen = 0;
        for v in vectors::all().filter(|v| v.what == "receive") {
            let log_stride = v.get("log_stride") as u32;
            assert_eq!(slot(&v.pieces(), log_stride).as_ref(), Ok(&v.bytes), "{v:x?}");
            assert_eq!(v.bytes.len(), SEGMENT_BYTES << log_stride);
            assert_eq!(pieces(&v.bytes), Ok(v.pieces()), "{v:x?}");
            seen += 1;
        }
        assert_eq!(seen, 4);
    }

    #[test]
    fn the_list_ends_before_the_slot_does() {
        let one = DataSegment::new(0x7f00_0010_0000, 0x10_1200, 0x40);
        let bytes = slot(&[one], 1).expect("it fits");
        assert_eq!(bytes[..16], [0, 0, 0, 0x40, 0, 0x10, 0x12, 0, 0, 0, 0x7f, 0, 0, 0x10, 0, 0]);
        assert_eq!(bytes[16..], [0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(pieces(&bytes), Ok(vec![one]));
        assert_eq!(slot(&[one; 3], 1), Err(WqeError::Truncated { ds: 3, bytes: 32 }));
        assert_eq!(slot(&[DataSegment::new(0, 1, 0)], 0), Err(WqeError::PieceLength(0)));
    }

    #[test]
    fn a_ring_knows_how_many_receives_a_record_announces() {
        let ring = ReceiveRing::new(3, 1).expect("a size");
        assert_eq!((ring.slots(), ring.slot_bytes(), ring.bytes(), ring.offset(9)), (8, 32, 256, 32));
        assert_eq!((ring.posted(8, 0), ring.posted(9, 0)), (Some(8), None));
        assert_eq!((ring.posted(3, 0xffff), ring.posted(0xfffe, 0xffff)), (Some(0x1_0003), None), "over the 16 bits");
        assert_eq!(ring.posted(0x1_0000, 0), None, "the upper half is zero");
        assert_eq!((ReceiveRing::new(16, 0), ReceiveRing::new(0, 8)), (None, None));
    }

    proptest! {
        #[test]
        fn pieces_come_back(lengths in proptest::collection::vec(1..=DataSegment::MAX_BYTES, 0..8), key in 0x200u32.., spare in 0u32..3) {
            let list: Vec<_> = (0..).zip(&lengths).map(|(i, &n)| DataSegment::new(i << 33, key, n)).collect();
            let log = list.len().next_power_of_two().trailing_zeros() + spare;
            prop_assert_eq!(pieces(&slot(&list, log).expect("it fits")), Ok(list));
        }

        #[test]
        fn arbitrary_slots_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(list) = pieces(&bytes) {
                prop_assert!(list.len() <= bytes.len() / SEGMENT_BYTES);
            }
        }
    }
}
