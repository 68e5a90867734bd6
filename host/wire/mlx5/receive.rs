//! Receive entries: lists of data segments without a control segment, in slots of 2^n segments.

use super::SEGMENT_BYTES;
use super::segment::DataSegment;
use super::wqe::WqeError;

/// log2 of the largest slot in segments (3 bits in the queue pair's context).
pub const MAX_LOG_STRIDE: u32 = 7;

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
    use proptest::prelude::*;

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
