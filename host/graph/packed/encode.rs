//! Encoder of packed lists.

use super::{BEFORE_LIST, BLOCK_ARCS, GROUP_ARCS, GROUPS, Group, index_words};
use crate::graph::parallel;

/// Encoder of lists that come part by part.
#[derive(Debug)]
pub struct Encoder {
    weighted: bool,
    /// First word of each block, and the words so far.
    positions: Vec<u64>,
    /// Arcs of the last block, which is not full: their gaps and weights.
    gaps: Vec<u32>,
    weights: Vec<u32>,
    /// The arc in front of these.
    before: u32,
}

impl Encoder {
    /// Begins. `weighted` lists have a 32-bit weight for each arc: an integer, or the bits of a float.
    pub fn new(weighted: bool) -> Self {
        Self { weighted, positions: vec![0], gaps: Vec::new(), weights: Vec::new(), before: BEFORE_LIST }
    }

    /// Encodes the lists of the next vertices, which ascend strictly, and returns the words of the blocks that are full
    /// now. `offsets` are those of the vertices and their end, in the numbering of all arcs; `neighbours` begin at the
    /// first. There are as many weights as neighbours if the lists are weighted.
    pub fn push(&mut self, offsets: &[u64], neighbours: &[u32], weights: Option<&[u32]>) -> Vec<u32> {
        debug_assert_eq!(weights.is_some(), self.weighted);
        let held = self.gaps.len();
        let origin = offsets[0];
        // The last arc in front of each block, or none if a list begins there.
        let list_at = |i: usize| offsets.partition_point(|&o| o <= origin + i as u64) - 1;
        let gap = |i: usize, starts: bool| if starts { neighbours[i] } else { neighbours[i] - neighbours[i - 1] - 1 };
        let first = self.gaps.len();
        self.gaps.resize(held + neighbours.len(), 0);
        parallel::each_part(self.gaps[first..].chunks_mut(BLOCK_ARCS).collect(), |(), part, gaps| {
            let mut list = list_at(part * BLOCK_ARCS);
            for (i, out) in (part * BLOCK_ARCS..).zip(gaps) {
                let arc = origin + i as u64;
                while offsets[list + 1] <= arc {
                    list += 1;
                }
                *out = gap(i, offsets[list] == arc);
            }
        });
        self.weights.extend_from_slice(weights.unwrap_or_default());
        let full = self.gaps.len() / BLOCK_ARCS;
        let before = |block: usize| match (block * BLOCK_ARCS).checked_sub(held) {
            // The part has no arc in front of the first block, or the block begins with its first list.
            None => self.before,
            Some(i) if i < neighbours.len() && offsets[list_at(i)] < origin + i as u64 => neighbours[i - 1],
            Some(_) => BEFORE_LIST,
        };
        let blocks = parallel::map(full, |b| {
            let arcs = b * BLOCK_ARCS..(b + 1) * BLOCK_ARCS;
            let weights = if self.weighted { &self.weights[arcs.clone()] } else { &[] };
            block(before(b), &self.gaps[arcs], weights)
        });
        self.before = before(full);
        self.gaps.drain(..full * BLOCK_ARCS);
        self.weights.drain(..(full * BLOCK_ARCS).min(self.weights.len()));
        self.take(blocks)
    }

    /// Returns the first word of each block and the number of words, and the words of the last block, if it is not empty.
    pub fn finish(mut self) -> (Vec<u64>, Vec<u32>) {
        let last = if self.gaps.is_empty() { Vec::new() } else { vec![block(self.before, &self.gaps, &self.weights)] };
        let words = self.take(last);
        (self.positions, words)
    }

    fn take(&mut self, blocks: Vec<Vec<u32>>) -> Vec<u32> {
        for block in &blocks {
            let end = self.positions.last().copied().unwrap_or_default();
            self.positions.push(end + block.len() as u64);
        }
        blocks.concat()
    }
}

/// Returns the words of a block. Weights are as many as gaps, or none.
fn block(before: u32, gaps: &[u32], weights: &[u32]) -> Vec<u32> {
    let weighted = !weights.is_empty();
    let mut words = vec![0; index_words(weighted)];
    words[0] = before;
    for g in 0..GROUPS {
        let arcs = (g * GROUP_ARCS).min(gaps.len())..((g + 1) * GROUP_ARCS).min(gaps.len());
        let start = (words.len() - index_words(weighted)) as u32;
        let width = put(&mut words, &gaps[arcs.clone()]);
        let weight_width = if weighted { put(&mut words, &weights[arcs]) } else { 0 };
        Group { start, width, weight_width }.write(&mut words, g, weighted);
    }
    words
}

/// Appends values in the width of the largest, which is returned.
pub(super) fn put(words: &mut Vec<u32>, values: &[u32]) -> u32 {
    let width = 32 - values.iter().fold(0, |all, v| all | v).leading_zeros();
    let first = words.len();
    words.resize(first + width as usize, 0);
    for (k, &value) in values.iter().enumerate() {
        let bit = k * width as usize;
        let shifted = u64::from(value) << (bit % 32);
        if width > 0 {
            words[first + bit / 32] |= shifted as u32;
        }
        if shifted >> 32 != 0 {
            words[first + bit / 32 + 1] |= (shifted >> 32) as u32;
        }
    }
    width
}
