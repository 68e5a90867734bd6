//! Distances of shortest paths as kernels hold them, and the ranges in which they are relaxed.

use super::edges::{GraphError, GraphOnEngine};
use super::vertex_values::VertexValues;
use crate::engine::EngineKind;

/// Representation of distances: integers in 32 bits if no path can be longer, otherwise in 64, and real numbers as the
/// bits of a double.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    Narrow,
    Wide,
    Real,
}

impl Word {
    pub(super) fn bits(self) -> u32 {
        if self == Self::Narrow { u32::BITS } else { u64::BITS }
    }

    /// Allocates one distance for each vertex.
    pub(super) fn allocate(self, graph: &GraphOnEngine) -> Result<VertexValues, GraphError> {
        Ok(match self {
            Self::Narrow => VertexValues::allocate::<u32>(graph),
            Self::Wide => VertexValues::allocate::<u64>(graph),
            Self::Real => VertexValues::allocate::<f64>(graph),
        }?)
    }

    /// Returns the threshold `delta` beyond the least waiting distance. The range below it always includes that
    /// distance, however small `delta` is.
    pub(super) fn beyond(self, least: u64, delta: f64) -> u64 {
        match self {
            Self::Narrow | Self::Wide => least.saturating_add((delta as u64).max(1)),
            Self::Real => (f64::from_bits(least) + delta).to_bits().max(least + 1),
        }
    }

    /// Returns the largest word of a distance that does not exceed `distance`.
    pub(super) fn of(self, distance: f64) -> u64 {
        match self {
            Self::Narrow | Self::Wide => distance as u64,
            // The sum makes -0.0 the word 0.
            Self::Real => (distance + 0.0).to_bits(),
        }
    }

    /// Reads the word of a vertex inside. Returns the largest word if the vertex was not reached.
    pub(super) fn read(self, distances: &VertexValues, v: u64) -> Result<u64, GraphError> {
        let at = v as usize * (self.bits() / u8::BITS) as usize;
        if self != Self::Narrow {
            return Ok(distances.inside().get(at)?);
        }
        let word = distances.inside().get::<u32>(at)?;
        Ok(if word == u32::MAX { u64::MAX } else { word.into() })
    }

    pub(super) fn value(self, word: u64) -> f64 {
        if self == Self::Real { f64::from_bits(word) } else { word as f64 }
    }
}

/// Width of the ranges of distances. Lattices and chains have many ranges of few items, whose rounds cost more than relaxations
/// in vain: ranges grow there.
#[derive(Clone, Copy, Debug)]
pub(super) struct RangeWidth {
    first: f64,
    pub(super) now: f64,
    /// Items of a round below which it has few. Measured on a lattice: with 2048 instead of 512, a GPU takes 1.25 times as long.
    few: u64,
    /// Ranges whose rounds had few items, one after the other.
    few_in_turn: u32,
}

impl RangeWidth {
    /// Ranges of few items after which the width doubles. Most searches have few items in their first and last ranges.
    const FEW_RANGES: u32 = 4;

    pub(super) fn new(first: f64, kind: EngineKind) -> Self {
        let few = match kind {
            EngineKind::Gpu => 512,
            EngineKind::Cpu => 64,
        };
        Self { first, now: first, few, few_in_turn: 0 }
    }

    /// Notes that a range ended whose rounds had so many items on average.
    pub(super) fn note(&mut self, items_of_round: u64) {
        if items_of_round >= self.few {
            self.few_in_turn = 0;
            if items_of_round >= 16 * self.few {
                self.now = self.first;
            }
        } else {
            self.few_in_turn += 1;
            if self.few_in_turn == Self::FEW_RANGES {
                (self.now, self.few_in_turn) = (2.0 * self.now, 0);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_widen_while_they_have_few_items_and_no_longer() {
        let mut width = RangeWidth::new(3.0, EngineKind::Cpu);
        let mut after = |items: &[u64]| {
            items.iter().for_each(|n| width.note(*n));
            width.now
        };
        assert_eq!(after(&[1, 63, 0]), 3.0, "most searches begin and end with few");
        assert_eq!(after(&[64, 1, 1, 1]), 3.0);
        assert_eq!(after(&[1]), 6.0);
        assert_eq!(after(&[1; 4]), 12.0);
        assert_eq!(after(&[64, 1023]), 12.0);
        assert_eq!(after(&[1024]), 3.0);
        assert_eq!(after(&[1; 4]), 6.0);
    }
}
