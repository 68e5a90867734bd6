//! What a graph keeps for each arc: neighbours in 32 or 64 bits, weights as integers or real numbers.

use rayon::prelude::*;
use std::fmt;

/// A vertex number as it is stored: 32 bits when they suffice, else 64.
pub trait VertexId: bytemuck::Pod + Ord + Default + Send + Sync + fmt::Debug + fmt::Display + 'static {
    /// The value that stands for "no vertex".
    const NONE: Self;
    /// From a number that is known to fit.
    fn from_index(index: usize) -> Self;
    /// As an index into arrays over the vertices.
    fn index(self) -> usize;
    /// In 64 bits.
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

/// Most vertices that 32-bit neighbours can number; the largest value stands for "no vertex".
pub const MAX_NARROW_VERTICES: u64 = u32::MAX as u64;

/// The neighbour lists, one after another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Neighbours {
    /// Graphs of fewer than 2^32 vertices.
    U32(Vec<u32>),
    /// Larger ones, or when it was asked for.
    U64(Vec<u64>),
}

/// Calls generic code with the slice of neighbours, whatever its width.
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
    /// How many.
    pub fn len(&self) -> usize {
        with_neighbours!(self, list => list.len())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of one: 4 or 8.
    pub fn width(&self) -> usize {
        match self {
            Self::U32(_) => 4,
            Self::U64(_) => 8,
        }
    }

    /// The one at `index`, which must be below [`Self::len`].
    pub fn get(&self, index: usize) -> u64 {
        match self {
            Self::U32(list) => u64::from(list[index]),
            Self::U64(list) => list[index],
        }
    }

    /// The bytes as they go to storage (native order).
    pub fn bytes(&self) -> &[u8] {
        with_neighbours!(self, list => bytemuck::cast_slice(list))
    }

    /// The list, when it is of 32-bit numbers.
    pub fn as_u32(&self) -> Option<&[u32]> {
        match self {
            Self::U32(list) => Some(list),
            Self::U64(_) => None,
        }
    }

    /// The list, when it is of 64-bit numbers.
    pub fn as_u64(&self) -> Option<&[u64]> {
        match self {
            Self::U32(_) => None,
            Self::U64(list) => Some(list),
        }
    }
}

/// Edge weights, in the order of the neighbours. None is negative, and real ones are finite.
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
    /// How many.
    pub fn len(&self) -> usize {
        match self {
            Self::U32(w) => w.len(),
            Self::F32(w) => w.len(),
            Self::F64(w) => w.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of one: 4 or 8.
    pub fn width(&self) -> usize {
        match self {
            Self::U32(_) | Self::F32(_) => 4,
            Self::F64(_) => 8,
        }
    }

    /// The bytes as they go to storage (native order).
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::U32(w) => bytemuck::cast_slice(w),
            Self::F32(w) => bytemuck::cast_slice(w),
            Self::F64(w) => bytemuck::cast_slice(w),
        }
    }

    /// The largest weight; 0 when there are none.
    pub fn max(&self) -> f64 {
        match self {
            Self::U32(w) => w.par_iter().copied().max().unwrap_or(0).into(),
            Self::F32(w) => w.par_iter().copied().reduce(|| 0.0, f32::max).into(),
            Self::F64(w) => w.par_iter().copied().reduce(|| 0.0, f64::max),
        }
    }
}
