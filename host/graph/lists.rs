//! Values that a graph keeps for each arc: neighbours in 32 or 64 bits, weights as integers or real numbers.

use crate::graph::parallel;
use std::fmt;

/// A vertex number as it is stored: in 32 bits if they suffice, otherwise in 64.
pub trait VertexId: bytemuck::Pod + Ord + Default + Send + Sync + fmt::Debug + fmt::Display + 'static {
    /// Value that stands for "no vertex".
    const NONE: Self;
    /// Size in bytes, 4 or 8.
    const WIDTH: usize = size_of::<Self>();
    /// Converts an index that is known to fit.
    fn from_index(index: usize) -> Self;
    /// Returns the number as an index into arrays over the vertices.
    fn index(self) -> usize;
    /// Returns the number in 64 bits.
    fn number(self) -> u64;
}

impl VertexId for u32 {
    const NONE: Self = Self::MAX;
    fn from_index(index: usize) -> Self {
        index as Self
    }
    fn index(self) -> usize {
        self as usize
    }
    fn number(self) -> u64 {
        self as u64
    }
}

impl VertexId for u64 {
    const NONE: Self = Self::MAX;
    fn from_index(index: usize) -> Self {
        index as Self
    }
    fn index(self) -> usize {
        self as usize
    }
    fn number(self) -> u64 {
        self
    }
}

/// Largest number of vertices with 32-bit neighbours; the largest value stands for "no vertex".
pub const MAX_NARROW_VERTICES: u64 = u32::MAX as u64;

/// All neighbour lists, one after another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Neighbours {
    /// Neighbours in 32 bits, for graphs of fewer than 2^32 vertices.
    U32(Vec<u32>),
    /// Neighbours in 64 bits, for larger graphs, or when the options ask for it.
    U64(Vec<u64>),
}

/// Calls generic code with the slice of neighbours of either width.
macro_rules! with_neighbours {
    ($neighbours:expr, $name:ident => $body:expr) => {
        match $neighbours {
            $crate::graph::lists::Neighbours::U32($name) => $body,
            $crate::graph::lists::Neighbours::U64($name) => $body,
        }
    };
}
pub(crate) use with_neighbours;

impl Neighbours {
    /// Returns the number of neighbours.
    pub fn len(&self) -> usize {
        with_neighbours!(self, list => list.len())
    }

    /// Returns true if there are no neighbours.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes of one neighbour: 4 or 8.
    pub fn width(&self) -> usize {
        match self {
            Self::U32(_) => 4,
            Self::U64(_) => 8,
        }
    }

    /// Returns the neighbour at `index`.
    ///
    /// # Panics
    /// If `index` is not below [`Self::len`].
    pub fn get(&self, index: usize) -> u64 {
        match self {
            Self::U32(list) => u64::from(list[index]),
            Self::U64(list) => list[index],
        }
    }

    /// Returns the bytes as they are stored (native order).
    pub fn bytes(&self) -> &[u8] {
        with_neighbours!(self, list => bytemuck::cast_slice(list))
    }

    /// Returns the list if it has 32-bit numbers.
    pub fn as_u32(&self) -> Option<&[u32]> {
        match self {
            Self::U32(list) => Some(list),
            Self::U64(_) => None,
        }
    }

    /// Returns the list if it has 64-bit numbers.
    pub fn as_u64(&self) -> Option<&[u64]> {
        match self {
            Self::U32(_) => None,
            Self::U64(list) => Some(list),
        }
    }
}

/// Edge weights, in the order of the neighbours. No weight is negative, and real weights are finite.
#[derive(Clone, Debug, PartialEq)]
pub enum Weights {
    /// Integers.
    U32(Vec<u32>),
    /// Real numbers in single precision.
    F32(Vec<f32>),
    /// Real numbers in double precision.
    F64(Vec<f64>),
}

impl Weights {
    /// Returns the number of weights.
    pub fn len(&self) -> usize {
        match self {
            Self::U32(w) => w.len(),
            Self::F32(w) => w.len(),
            Self::F64(w) => w.len(),
        }
    }

    /// Returns true if there are no weights.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes of one weight: 4 or 8.
    pub fn width(&self) -> usize {
        match self {
            Self::U32(_) | Self::F32(_) => 4,
            Self::F64(_) => 8,
        }
    }

    /// Returns the bytes as they are stored (native order).
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::U32(w) => bytemuck::cast_slice(w),
            Self::F32(w) => bytemuck::cast_slice(w),
            Self::F64(w) => bytemuck::cast_slice(w),
        }
    }

    /// Returns the sum of the weights.
    pub(crate) fn sum(&self) -> f64 {
        match self {
            Self::U32(w) => parallel::sum(w.len(), |i| u64::from(w[i])) as f64,
            Self::F32(w) => parallel::sum(w.len(), |i| f64::from(w[i])),
            Self::F64(w) => parallel::sum(w.len(), |i| w[i]),
        }
    }

    /// Returns the largest weight, or 0 if there are none.
    pub fn max(&self) -> f64 {
        match self {
            Self::U32(w) => parallel::fold(w.len(), || 0, |most, i| w[i].max(most), u32::max).into(),
            Self::F32(w) => parallel::fold(w.len(), || 0.0, |most, i| w[i].max(most), f32::max).into(),
            Self::F64(w) => parallel::fold(w.len(), || 0.0, |most, i| w[i].max(most), f64::max),
        }
    }
}
