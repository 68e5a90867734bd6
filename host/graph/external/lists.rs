//! Neighbour lists in temporary files.

use super::spill::{Spill, SpillError};
use crate::graph::csr::{Neighbours, VertexId, Weights};
use crate::graph::stored::WeightType;
use std::ops::Range;
use std::path::Path;

/// Neighbour lists in ascending order: offsets in memory, neighbours and weights in temporary files.
#[derive(Debug)]
pub(crate) struct FileLists {
    offsets: Vec<u64>,
    neighbours: Spill,
    width: usize,
    weights: Option<(Spill, WeightType)>,
}

impl FileLists {
    /// Returns the offset of each vertex's first neighbour, and the number of arcs as the last element.
    pub(crate) fn offsets(&self) -> &[u64] {
        &self.offsets
    }

    /// Returns the bytes of a neighbour.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// Returns the kind of the weights, if there are some.
    pub(crate) fn weights(&self) -> Option<WeightType> {
        self.weights.as_ref().map(|(_, kind)| *kind)
    }

    /// Reads the lists of some vertices.
    pub(crate) fn read(&self, vertices: Range<usize>) -> Result<(Neighbours, Option<Weights>), SpillError> {
        let arcs = self.offsets[vertices.start]..self.offsets[vertices.end];
        let neighbours = match self.width {
            4 => Neighbours::U32(values(&self.neighbours, &arcs)?),
            _ => Neighbours::U64(values(&self.neighbours, &arcs)?),
        };
        let weights = match &self.weights {
            None => None,
            Some((file, WeightType::U32)) => Some(Weights::U32(values(file, &arcs)?)),
            Some((file, WeightType::F32)) => Some(Weights::F32(values(file, &arcs)?)),
            Some((file, WeightType::F64)) => Some(Weights::F64(values(file, &arcs)?)),
        };
        Ok((neighbours, weights))
    }
}

fn values<T: bytemuck::Pod>(file: &Spill, range: &Range<u64>) -> Result<Vec<T>, SpillError> {
    let mut values = vec![T::zeroed(); (range.end - range.start) as usize];
    file.read(range.start * size_of::<T>() as u64, bytemuck::cast_slice_mut(&mut values))?;
    Ok(values)
}

/// Writer of [`FileLists`], which takes arcs in ascending order.
pub(crate) struct ListsWriter {
    lists: FileLists,
}

impl ListsWriter {
    /// Begins lists of so many vertices, with neighbours of `V`.
    pub(crate) fn create<V: VertexId>(
        folder: &Path,
        vertices: usize,
        weights: Option<WeightType>,
    ) -> Result<Self, SpillError> {
        let offsets = vec![0; vertices + 1];
        let neighbours = Spill::create(folder)?;
        let weights = weights.map(|kind| Spill::create(folder).map(|file| (file, kind))).transpose()?;
        Ok(Self { lists: FileLists { offsets, neighbours, width: V::WIDTH, weights } })
    }

    /// Appends the neighbours of the next arcs, and their weights if the lists have some.
    pub(crate) fn append<V: VertexId>(&self, neighbours: &[V], weights: Option<&Weights>) -> Result<(), SpillError> {
        self.lists.neighbours.append(bytemuck::cast_slice(neighbours))?;
        if let (Some((file, _)), Some(weights)) = (&self.lists.weights, weights) {
            file.append(weights.bytes())?;
        }
        Ok(())
    }

    /// Adds to the number of neighbours of a vertex.
    pub(crate) fn count(&mut self, vertex: usize, arcs: u64) {
        self.lists.offsets[vertex + 1] += arcs;
    }

    /// Sums the numbers of neighbours up to offsets.
    pub(crate) fn finish(mut self) -> FileLists {
        let mut sum = 0;
        for offset in &mut self.lists.offsets {
            sum += *offset;
            *offset = sum;
        }
        self.lists
    }
}
