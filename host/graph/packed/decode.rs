//! Decoder of packed lists on the host, which trusts nothing.

use super::{BEFORE_LIST, BLOCK_ARCS, GROUP_ARCS, GROUPS, Group, index_words};

/// Contradiction within a block, or between a block and others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// The index contradicts itself, or the number of words.
    #[error("the index of its groups contradicts itself")]
    Index,
    /// A group has a width that its largest value does not need.
    #[error("group {group} has not the width of its largest gap")]
    Width {
        /// Index of the group within its block.
        group: usize,
    },
    /// The block names another arc in front of it.
    #[error("it continues behind neighbour {found}, and the neighbour there is {expected}")]
    Before {
        /// The arc that the block names.
        found: u32,
        /// The arc that is in front of it.
        expected: u32,
    },
    /// A gap leads behind the last vertex.
    #[error("arc {arc} leads to vertex {found}, and there are {vertices} vertices")]
    Neighbour {
        /// Number of the arc.
        arc: u64,
        /// The vertex that it leads to.
        found: u64,
        /// Number of vertices.
        vertices: u64,
    },
}

/// Checks that a block continues the list that the block in front of it ends with, if one does. `before` is the last arc
/// of that block.
///
/// # Errors
/// [`Damage::Before`] if it does not.
pub(crate) fn check_continuation(
    block: &[u32],
    before: Option<u32>,
    first: u64,
    offsets: &[u64],
) -> Result<(), Damage> {
    let found = block.first().copied().unwrap_or(BEFORE_LIST);
    let expected = if begins_list(first, offsets) { BEFORE_LIST } else { before.unwrap_or(BEFORE_LIST) };
    if found == expected { Ok(()) } else { Err(Damage::Before { found, expected }) }
}

fn begins_list(first: u64, offsets: &[u64]) -> bool {
    offsets.binary_search(&first).is_ok()
}

/// Decodes the block that begins with arc `first`, and appends its arcs: neighbours, and the bits of their weights or 0.
/// `offsets` are those of the whole graph. What the block says about the arc in front of it is believed
/// (`check_continuation`), so that blocks can be decoded in any order.
///
/// # Errors
/// A [`Damage`], with no arc appended that does not exist. Of all words, only those that the encoder writes are accepted.
pub fn decode_block(
    block: &[u32],
    first: u64,
    offsets: &[u64],
    vertices: u64,
    weighted: bool,
    arcs: &mut Vec<(u32, u32)>,
) -> Result<(), Damage> {
    let all = offsets.last().copied().unwrap_or_default();
    let count = all.saturating_sub(first).min(BLOCK_ARCS as u64) as usize;
    let index = index_words(weighted);
    let groups = groups(block, weighted).ok_or(Damage::Index)?;
    let mut list = offsets.partition_point(|&o| o <= first).saturating_sub(1);
    let mut previous = block[0];
    for (g, group) in groups.iter().enumerate() {
        let own = (g * GROUP_ARCS).min(count)..((g + 1) * GROUP_ARCS).min(count);
        let words = &block[index + group.start as usize..][..group.words() as usize];
        let (gaps, weights) = words.split_at(group.width as usize);
        let gaps = values(gaps, own.len()).ok_or(Damage::Width { group: g })?;
        let weights = values(weights, own.len()).ok_or(Damage::Width { group: g })?;
        for (k, arc) in own.clone().zip(first + own.start as u64..) {
            while offsets[list + 1] <= arc {
                list += 1;
            }
            let gap = u64::from(gaps[k - own.start]);
            let found = if offsets[list] == arc { gap } else { u64::from(previous) + 1 + gap };
            if found >= vertices.min(u32::MAX.into()) {
                return Err(Damage::Neighbour { arc, found, vertices });
            }
            previous = found as u32;
            arcs.push((previous, weights[k - own.start]));
        }
    }
    Ok(())
}

/// Returns the groups of a block, or `None` if their places are not those behind each other, up to the last word.
fn groups(block: &[u32], weighted: bool) -> Option<[Group; GROUPS]> {
    if block.len() < index_words(weighted) {
        return None;
    }
    let groups: [Group; GROUPS] = std::array::from_fn(|g| Group::read(block, g, weighted));
    let mut start = 0;
    for group in groups {
        if group.start != start || group.width > 32 || group.weight_width > 32 {
            return None;
        }
        start += group.words();
    }
    (index_words(weighted) + start as usize == block.len()).then_some(groups)
}

/// Returns the first `count` values of a group, or `None` if the largest needs another width, or bits behind them are set.
pub(super) fn values(words: &[u32], count: usize) -> Option<[u32; GROUP_ARCS]> {
    let width = words.len();
    let value = |k: usize| {
        let bit = k * width;
        let at = |i: usize| u64::from(words.get(i).copied().unwrap_or_default());
        let both = at(bit / 32) | at(bit / 32 + 1) << 32;
        (both >> (bit % 32)) as u32 & ((1u64 << width) - 1) as u32
    };
    let values: [u32; GROUP_ARCS] = std::array::from_fn(value);
    let largest = values.iter().fold(0, |all, v| all | v);
    let is_canonical = 32 - largest.leading_zeros() == width as u32 && values[count..].iter().all(|v| *v == 0);
    is_canonical.then_some(values)
}
