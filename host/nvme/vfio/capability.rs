//! Capability chains that VFIO appends to its replies (linux/vfio.h, struct vfio_info_cap_header).

use std::ops::Range;

/// Size of a header in bytes: identifier and version of 16 bits each, and the offset of the next header in the reply.
const HEADER: usize = 8;
/// Longest chain to follow: more than the kernel has kinds of capabilities. A longer chain is a loop.
const LONGEST_CHAIN: usize = 64;

fn word16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

fn word32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn word64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

/// Returns the bytes behind the header of the first capability `id`, to the end of the reply. `first` is the offset
/// of the chain's first header.
pub(super) fn find(answer: &[u8], first: u32, id: u16) -> Option<&[u8]> {
    let mut at = first as usize;
    for _ in 0..LONGEST_CHAIN {
        if at == 0 {
            return None;
        }
        if word16(answer, at)? == id {
            return answer.get(at.checked_add(HEADER)?..);
        }
        at = word32(answer, at.checked_add(4)?)? as usize;
    }
    None
}

/// Parses pairs of 64-bit words after a count: the format of both kinds of lists.
fn pairs(body: &[u8]) -> Vec<(u64, u64)> {
    const FIRST: usize = 8;
    let count = word32(body, 0).unwrap_or(0) as usize;
    (0..count).map_while(|i| Some((word64(body, FIRST + i * 16)?, word64(body, FIRST + i * 16 + 8)?))).collect()
}

/// Parses the address ranges that the IOMMU translates (struct
/// vfio_iommu_type1_info_cap_iova_range, with inclusive ends).
pub(super) fn iova_ranges(body: &[u8]) -> Vec<Range<u64>> {
    inclusive(pairs(body))
}

/// Converts pairs with inclusive ends to ranges. A range cannot contain the last 64-bit address, which is never needed.
pub(super) fn inclusive(pairs: impl IntoIterator<Item = (u64, u64)>) -> Vec<Range<u64>> {
    pairs.into_iter().filter(|(s, l)| s <= l).map(|(start, last)| start..last.saturating_add(1)).collect()
}

/// Parses the mappable parts of a region (struct vfio_region_info_cap_sparse_mmap), as offset and size.
pub(super) fn sparse_areas(body: &[u8]) -> Vec<(u64, u64)> {
    pairs(body).into_iter().filter(|(_, size)| *size > 0).collect()
}

/// Parses the number of DMA mappings left (struct vfio_iommu_type1_info_dma_avail).
pub(super) fn dma_available(body: &[u8]) -> Option<u64> {
    word32(body, 0).map(u64::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Builds a chain at offset 24, where the kernel appends it to the IOMMU's information.
    fn answer(capabilities: &[(u16, &[u8])]) -> Vec<u8> {
        let mut out = vec![0; 24];
        for (i, (id, body)) in capabilities.iter().enumerate() {
            let next = if i + 1 == capabilities.len() { 0 } else { (out.len() + HEADER + body.len()) as u32 };
            out.extend(id.to_ne_bytes());
            out.extend(1u16.to_ne_bytes());
            out.extend(next.to_ne_bytes());
            out.extend(*body);
        }
        out
    }

    #[test]
    fn ranges_and_counts_are_found_in_a_chain() {
        let mut ranges = vec![];
        for n in [2u64, 0, 0xfedf_ffff, 0xfef0_0000, (1 << 39) - 1] {
            ranges.extend(n.to_ne_bytes());
        }
        let all = answer(&[(2, &[0; 24]), (1, &ranges), (3, &65_535u32.to_ne_bytes())]);
        let body = find(&all, 24, 1).unwrap();
        assert_eq!(iova_ranges(body), [0..0xfee0_0000, 0xfef0_0000..1 << 39]);
        assert_eq!(dma_available(find(&all, 24, 3).unwrap()), Some(65_535));
        assert!(find(&all, 24, 9).is_none() && find(&all, 0, 1).is_none());
    }

    #[test]
    fn a_chain_in_circles_ends() {
        let mut all = answer(&[(7, &[])]);
        all[28..32].copy_from_slice(&24u32.to_ne_bytes());
        assert!(find(&all, 24, 1).is_none());
    }

    #[test]
    fn whole_ranges_do_not_overflow() {
        assert_eq!(inclusive([(0, u64::MAX), (5, 4), (6, 7)]), [0..u64::MAX, 6..8]);
    }

    proptest! {
        #[test]
        fn no_answer_panics(bytes in prop::collection::vec(any::<u8>(), 0..200), first in 0u32..220, id in 0u16..4) {
            if let Some(body) = find(&bytes, first, id) {
                let _ = (iova_ranges(body), sparse_areas(body), dma_available(body));
            }
        }
    }
}
