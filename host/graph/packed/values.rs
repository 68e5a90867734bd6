//! Numbers of vertices, such as degrees, in groups of one width each.

use super::GROUP_ARCS;
use super::decode::values;
use super::encode::put;

/// Packs values: the width of each group of 32, and the words of all groups one behind the other.
pub fn pack_values(all: &[u32]) -> (Vec<u8>, Vec<u32>) {
    let mut words = Vec::new();
    let widths = all.chunks(GROUP_ARCS).map(|group| put(&mut words, group) as u8).collect();
    (widths, words)
}

/// Returns `count` values, or `None` if [`pack_values`] does not make these widths and words of any.
pub fn unpack_values(widths: &[u8], words: &[u32], count: usize) -> Option<Vec<u32>> {
    if widths.len() != count.div_ceil(GROUP_ARCS) || widths.iter().any(|w| *w > 32) {
        return None;
    }
    let mut rest = words;
    let mut all = Vec::with_capacity(count);
    for &width in widths {
        let (group, behind) = rest.split_at_checked(width.into())?;
        rest = behind;
        let own = (count - all.len()).min(GROUP_ARCS);
        all.extend_from_slice(&values(group, own)?[..own]);
    }
    rest.is_empty().then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_packed_is_unpacked(values in prop::collection::vec(prop_oneof![0u32..5, any::<u32>()], 0..200)) {
            let (widths, words) = pack_values(&values);
            prop_assert_eq!(unpack_values(&widths, &words, values.len()), Some(values.clone()));
            prop_assert_eq!(unpack_values(&widths, &words, values.len() + 32), None);
        }

        #[test]
        fn any_words_are_unpacked_or_refused(
            widths in prop::collection::vec(any::<u8>(), 0..9), words in prop::collection::vec(any::<u32>(), 0..90), count in 0usize..300,
        ) {
            prop_assert!(unpack_values(&widths, &words, count).is_none_or(|all| all.len() == count));
        }
    }
}
