//! Edges of an input, piece by piece, in memory or in a temporary file.

use super::error::ImportError;
use super::raw::{Pairs, RawEdges, RawWeights, Rounding};
use crate::graph::external::{Budget, Spill, SpillError};
use parking_lot::Mutex;

/// The pieces of an input in its order. Without a [`Budget`] all are in memory. With one, those beyond half of its memory
/// are in a temporary file.
#[derive(Default)]
pub(crate) struct Pieces {
    list: Vec<Mutex<Piece>>,
    lengths: Vec<usize>,
    is_real: bool,
    rounding: Rounding,
    held_bytes: u64,
    budget: Option<Budget>,
    file: Option<Spill>,
}

/// One piece. It is empty after [`Pieces::take`].
enum Piece {
    Held(RawEdges),
    Spilled(Place),
}

/// Place of a piece in the file: pairs, with weights behind them.
#[derive(Clone, Copy)]
struct Place {
    at: u64,
    edges: usize,
    is_wide: bool,
    weights: WeightForm,
}

#[derive(Clone, Copy, PartialEq)]
enum WeightForm {
    None,
    Integer,
    Real,
}

impl Pieces {
    pub(crate) fn new(budget: Option<&Budget>) -> Self {
        Self { budget: budget.cloned(), ..Self::default() }
    }

    /// Appends a piece, in front of which the input has `in_front` lines.
    pub(crate) fn push(&mut self, edges: RawEdges, in_front: u64) -> Result<(), ImportError> {
        self.lengths.push(edges.len());
        self.rounding.append(edges.rounding, in_front);
        self.is_real |= edges.is_real();
        let bytes = edges.bytes();
        let piece = match &self.budget {
            Some(budget) if self.held_bytes + bytes > budget.memory / 2 => {
                let file = match self.file.take() {
                    Some(file) => file,
                    None => Spill::create(&budget.folder)?,
                };
                let place = Place::write(&edges, &file)?;
                self.file = Some(file);
                Piece::Spilled(place)
            }
            _ => {
                self.held_bytes += bytes;
                Piece::Held(edges)
            }
        };
        self.list.push(Mutex::new(piece));
        Ok(())
    }

    /// Returns the number of pieces.
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns the number of edges of each piece.
    pub(crate) fn lengths(&self) -> &[usize] {
        &self.lengths
    }

    /// Returns the number of edges of all pieces.
    pub(crate) fn edges(&self) -> u64 {
        self.lengths.iter().map(|&edges| edges as u64).sum()
    }

    /// Returns true if a weight is a real number.
    pub(crate) fn is_real(&self) -> bool {
        self.is_real
    }

    /// Returns the loss of the weights in 32-bit floats.
    pub(super) fn rounding(&self) -> Rounding {
        self.rounding
    }

    /// Returns true if some pieces are not in memory.
    pub(crate) fn is_spilled(&self) -> bool {
        self.file.is_some()
    }

    /// Calls `look` with piece `i`.
    pub(crate) fn with(&self, i: usize, look: &mut dyn FnMut(&RawEdges)) -> Result<(), SpillError> {
        match &*self.list[i].lock() {
            Piece::Held(edges) => look(edges),
            Piece::Spilled(place) => look(&self.read(*place)?),
        }
        Ok(())
    }

    /// Returns piece `i`, whose memory is free with the result.
    pub(crate) fn take(&self, i: usize) -> Result<RawEdges, SpillError> {
        match std::mem::replace(&mut *self.list[i].lock(), Piece::Held(RawEdges::default())) {
            Piece::Held(edges) => Ok(edges),
            Piece::Spilled(place) => self.read(place),
        }
    }

    fn read(&self, place: Place) -> Result<RawEdges, SpillError> {
        self.file.as_ref().map_or_else(|| Ok(RawEdges::default()), |file| place.read(file))
    }
}

impl Place {
    fn write(edges: &RawEdges, file: &Spill) -> Result<Self, SpillError> {
        let (weights, kept): (&[u8], _) = match &edges.weights {
            RawWeights::Integer(list) if list.is_empty() => (&[], WeightForm::None),
            RawWeights::Integer(list) => (bytemuck::cast_slice(list), WeightForm::Integer),
            RawWeights::Real(list) => (bytemuck::cast_slice(list), WeightForm::Real),
        };
        let (pairs, is_wide): (&[u8], _) = match &edges.pairs {
            Pairs::Narrow(list) => (bytemuck::cast_slice(list), false),
            Pairs::Wide(list) => (bytemuck::cast_slice(list), true),
        };
        let mut reserved = file.reserve((pairs.len() + weights.len()) as u64);
        let at = reserved.offset();
        reserved.write(pairs)?;
        reserved.write(weights)?;
        Ok(Self { at, edges: edges.len(), is_wide, weights: kept })
    }

    fn read(self, file: &Spill) -> Result<RawEdges, SpillError> {
        let mut at = self.at;
        let pairs = if self.is_wide {
            Pairs::Wide(self.part(file, &mut at)?)
        } else {
            Pairs::Narrow(self.part(file, &mut at)?)
        };
        let weights = match self.weights {
            WeightForm::None => RawWeights::default(),
            WeightForm::Integer => RawWeights::Integer(self.part(file, &mut at)?),
            WeightForm::Real => RawWeights::Real(self.part(file, &mut at)?),
        };
        Ok(RawEdges { pairs, weights, rounding: Rounding::default() })
    }

    /// Reads one value for each edge, and moves `at` behind them.
    fn part<T: bytemuck::Pod>(self, file: &Spill, at: &mut u64) -> Result<Vec<T>, SpillError> {
        let mut values = vec![T::zeroed(); self.edges];
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut values);
        file.read(*at, bytes)?;
        *at += bytes.len() as u64;
        Ok(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::import::Precision;

    #[test]
    fn pieces_come_back_from_memory_and_from_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let budget = Budget { memory: 64, folder: folder.path().to_owned() };
        let mut pieces = Pieces::new(Some(&budget));
        type Kind = (&'static [(u64, u64)], &'static [&'static str]);
        let kinds: [Kind; 4] =
            [(&[(1, 2), (3, 4)], &[]), (&[(5, 6)], &["7"]), (&[(7, 1 << 40), (2, 3)], &["1", "2.5"]), (&[], &[])];
        let of = |(pairs, weights): Kind| {
            let mut edges = RawEdges::default();
            weights.iter().for_each(|w| edges.push_weight(w.as_bytes(), 1, Precision::Single).unwrap());
            pairs.iter().for_each(|&(from, to)| edges.push(from, to));
            edges
        };
        kinds.iter().for_each(|kind| pieces.push(of(*kind), 0).unwrap());
        assert!(pieces.is_spilled() && pieces.is_real());
        assert_eq!((pieces.edges(), pieces.lengths()), (5, &[2, 1, 2, 0][..]));
        for (i, kind) in kinds.iter().enumerate() {
            let expected = of(*kind);
            pieces.with(i, &mut |edges| assert_eq!(*edges, expected)).unwrap();
            assert_eq!(pieces.take(i).unwrap(), expected);
            assert_eq!(pieces.take(i).unwrap().len(), 0);
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "the file has no name");
    }

    #[test]
    fn a_folder_that_does_not_exist_is_named() {
        let budget = Budget { memory: 0, folder: "/no/such/folder".into() };
        let mut edges = RawEdges::default();
        edges.push(1, 2);
        let error = Pieces::new(Some(&budget)).push(edges, 0).unwrap_err().to_string();
        assert!(error.starts_with("temporary file in /no/such/folder: "), "{error}");
    }
}
