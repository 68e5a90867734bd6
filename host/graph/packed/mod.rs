//! Packed neighbour lists: gaps between neighbours, in groups of one width each. `kernels/graph/packed.cuh` describes the words and
//! decodes them.
//!
//! All lists of a graph are coded one behind the other, in blocks of [`BLOCK_ARCS`] arcs. A block can be decoded by itself.

mod decode;
mod encode;
mod values;

pub(crate) use decode::check_continuation;
pub use decode::{Damage, decode_block};
pub use encode::Encoder;
pub use values::{pack_values, unpack_values};

use super::params::{GRAPH_PIECE_EDGES, PACKED_GROUP_EDGES};

/// Arcs of a block.
pub(crate) const BLOCK_ARCS: usize = GRAPH_PIECE_EDGES as usize;
/// Arcs of a group.
const GROUP_ARCS: usize = PACKED_GROUP_EDGES;
const GROUPS: usize = BLOCK_ARCS / GROUP_ARCS;
/// In front of the first arc of a list.
const BEFORE_LIST: u32 = u32::MAX;
/// The most words of a block, with weights.
pub(crate) const MOST_BLOCK_WORDS: u64 = (1 + GROUPS + 2 * BLOCK_ARCS) as u64;

/// Returns the words in front of the groups of a block.
fn index_words(weighted: bool) -> usize {
    1 + if weighted { GROUPS } else { GROUPS / 2 }
}

/// Returns the fewest words of a block.
pub(crate) fn least_block_words(weighted: bool) -> u64 {
    index_words(weighted) as u64
}

/// Returns the number of blocks of so many arcs.
pub(crate) fn blocks(arcs: u64) -> u64 {
    arcs.div_ceil(GRAPH_PIECE_EDGES)
}

/// Place and widths of a group, as the index of a block has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Group {
    /// First word behind the index.
    start: u32,
    width: u32,
    weight_width: u32,
}

impl Group {
    /// Returns the number of words.
    fn words(self) -> u32 {
        self.width + self.weight_width
    }

    /// Reads the description of group `g` of a block.
    fn read(block: &[u32], g: usize, weighted: bool) -> Self {
        if weighted {
            let entry = block[1 + g];
            Self { start: entry & 0xfff, width: entry >> 12 & 63, weight_width: entry >> 18 }
        } else {
            let half = block[1 + g / 2] >> (16 * (g % 2)) & 0xffff;
            Self { start: half & 0x3ff, width: half >> 10, weight_width: 0 }
        }
    }

    /// Writes the description of group `g` into a block whose index is 0 there.
    fn write(self, block: &mut [u32], g: usize, weighted: bool) {
        if weighted {
            block[1 + g] = self.start | self.width << 12 | self.weight_width << 18;
        } else {
            block[1 + g / 2] |= (self.start | self.width << 10) << (16 * (g % 2));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Lists of a graph.
    #[derive(Clone, Debug)]
    struct Sample {
        offsets: Vec<u64>,
        neighbours: Vec<u32>,
        weights: Option<Vec<u32>>,
    }

    fn lists(vertices: u32, weighted: bool) -> impl Strategy<Value = Sample> {
        let list = prop_oneof![
            6 => prop::collection::btree_set(0..vertices, 0..8),
            2 => prop::collection::btree_set(0..vertices, 0..100),
            1 => (0..vertices / 2, 1u32..3000).prop_map(move |(first, count)| (first..(first + count).min(vertices)).collect()),
        ];
        let bits = prop_oneof![Just(0u32), Just(1), Just(255), Just(u32::MAX)];
        (prop::collection::vec(list, 0..60), bits, any::<u64>()).prop_map(move |(lists, most, seed)| {
            let mut offsets = vec![0];
            let mut neighbours = Vec::new();
            for list in lists {
                neighbours.extend(list);
                offsets.push(neighbours.len() as u64);
            }
            let weight = |i: usize| (crate::graph::generate::mix(seed.wrapping_add(i as u64)) as u32) & most;
            let weights = weighted.then(|| (0..neighbours.len()).map(weight).collect());
            Sample { offsets, neighbours, weights }
        })
    }

    /// Encodes lists in parts of so many vertices.
    fn encoded(sample: &Sample, part: usize) -> (Vec<u64>, Vec<u32>) {
        let mut encoder = Encoder::new(sample.weights.is_some());
        let mut words = Vec::new();
        let vertices = sample.offsets.len() - 1;
        for first in (0..vertices).step_by(part) {
            let own = &sample.offsets[first..=vertices.min(first + part)];
            let arcs = own[0] as usize..own[own.len() - 1] as usize;
            let weights = sample.weights.as_ref().map(|w| &w[arcs.clone()]);
            words.extend(encoder.push(own, &sample.neighbours[arcs], weights));
        }
        let (positions, last) = encoder.finish();
        words.extend(last);
        (positions, words)
    }

    fn decoded(sample: &Sample, positions: &[u64], words: &[u32], vertices: u64) -> Result<Vec<(u32, u32)>, Damage> {
        let mut arcs = Vec::new();
        for (b, ends) in positions.windows(2).enumerate() {
            let block = &words[ends[0] as usize..ends[1] as usize];
            let before = arcs.last().map(|a: &(u32, u32)| a.0);
            let first = (b * BLOCK_ARCS) as u64;
            check_continuation(block, before, first, &sample.offsets)?;
            decode_block(block, first, &sample.offsets, vertices, sample.weights.is_some(), &mut arcs)?;
        }
        Ok(arcs)
    }

    fn arcs_of(sample: &Sample) -> Vec<(u32, u32)> {
        let weight = |i: usize| sample.weights.as_ref().map_or(0, |w| w[i]);
        sample.neighbours.iter().enumerate().map(|(i, n)| (*n, weight(i))).collect()
    }

    proptest! {
        #[test]
        fn what_is_packed_is_unpacked(
            sample in prop_oneof![lists(200, false), lists(u32::MAX, false), lists(9000, true)], part in 1usize..70,
        ) {
            let (positions, words) = encoded(&sample, part);
            prop_assert_eq!(positions.len() as u64, blocks(sample.neighbours.len() as u64) + 1);
            prop_assert_eq!(positions.last().copied(), Some(words.len() as u64));
            prop_assert_eq!(&encoded(&sample, 1), &(positions.clone(), words.clone()), "parts make a difference");
            let arcs = decoded(&sample, &positions, &words, u64::from(u32::MAX)).unwrap();
            prop_assert_eq!(arcs, arcs_of(&sample));
        }

        /// A changed bit is an error, or changes an arc: two sets of words never mean the same lists.
        #[test]
        fn a_changed_bit_is_found_or_changes_an_arc(
            sample in prop_oneof![lists(200, false), lists(200, true)], at in any::<prop::sample::Index>(), bit in 0u32..32,
        ) {
            let (positions, mut words) = encoded(&sample, 7);
            prop_assume!(!words.is_empty());
            let at = at.index(words.len());
            words[at] ^= 1 << bit;
            if let Ok(arcs) = decoded(&sample, &positions, &words, 200) {
                prop_assert!(arcs != arcs_of(&sample));
                prop_assert!(arcs.iter().all(|a| a.0 < 200));
            }
        }

        /// Whatever words there are, decoding ends, and makes only arcs to vertices that exist.
        #[test]
        fn any_words_are_decoded_or_refused(
            words in prop::collection::vec(any::<u32>(), 0..200), weighted in any::<bool>(), degrees in prop::collection::vec(0u64..90, 1..30),
        ) {
            let offsets: Vec<u64> =
                std::iter::once(0).chain(degrees.iter().scan(0, |sum, d| { *sum += d; Some(*sum) })).collect();
            let mut arcs = Vec::new();
            if decode_block(&words, 0, &offsets, 1000, weighted, &mut arcs).is_ok() {
                prop_assert!(arcs.iter().all(|a| a.0 < 1000));
            }
        }
    }

    #[test]
    fn a_dense_list_takes_a_word_and_a_half_for_each_group() {
        let sample = Sample { offsets: vec![0, 4096], neighbours: (0..4096).collect(), weights: None };
        let (positions, words) = encoded(&sample, 1);
        // Gaps of 0 have no bits: the index is all there is.
        assert_eq!(positions, [0, 17, 34, 51, 68]);
        assert_eq!([words[0], words[17], words[34]], [BEFORE_LIST, 1023, 2047]);
    }
}
