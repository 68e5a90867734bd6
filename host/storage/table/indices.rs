//! Arguments of gather and scatter: indices, and the memory of the rows.

use crate::engine::{Args, KernelArg};
use crate::memory::{Region, Space};
use crate::storage::{DataBuffer, Element, ElementType, LandingPath, Volume};

/// Numbers of rows: in memory of the program, or in a region or buffer that kernels read.
#[derive(Clone, Copy, Debug)]
pub struct RowIndices<'a>(pub(super) Source<'a>);

#[derive(Clone, Copy, Debug)]
pub(super) enum Source<'a> {
    U32(&'a [u32]),
    U64(&'a [u64]),
    Memory { memory: Memory<'a>, count: u64, wide: bool },
}

impl<'a> RowIndices<'a> {
    /// Takes `count` numbers of 32 bits from the first byte of a [`Region`] or [`DataBuffer`] on.
    pub fn u32(memory: impl Into<RowOutput<'a>>, count: u64) -> Self {
        Self(Source::Memory { memory: memory.into().0, count, wide: false })
    }

    /// Takes `count` numbers of 64 bits from the first byte of a [`Region`] or [`DataBuffer`] on.
    pub fn u64(memory: impl Into<RowOutput<'a>>, count: u64) -> Self {
        Self(Source::Memory { memory: memory.into().0, count, wide: true })
    }

    /// Returns the number of indices.
    pub fn len(&self) -> u64 {
        match self.0 {
            Source::U32(list) => list.len() as u64,
            Source::U64(list) => list.len() as u64,
            Source::Memory { count, .. } => count,
        }
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes of an index.
    pub(super) fn width(&self) -> u64 {
        match self.0 {
            Source::U32(_) | Source::Memory { wide: false, .. } => 4,
            Source::U64(_) | Source::Memory { wide: true, .. } => 8,
        }
    }
}

macro_rules! from_slices {
    ($($t:ty: $kind:ident),*) => {$(
        impl<'a> From<&'a [$t]> for RowIndices<'a> {
            fn from(list: &'a [$t]) -> Self {
                Self(Source::$kind(list))
            }
        }
        impl<'a> From<&'a Vec<$t>> for RowIndices<'a> {
            fn from(list: &'a Vec<$t>) -> Self {
                Self(Source::$kind(list))
            }
        }
        impl<'a, const N: usize> From<&'a [$t; N]> for RowIndices<'a> {
            fn from(list: &'a [$t; N]) -> Self {
                Self(Source::$kind(list))
            }
        }
    )*};
}
from_slices!(u32: U32, u64: U64);

/// Memory that rows are gathered to. Devices with direct landing reach a [`DataBuffer`]; rows for a plain [`Region`] are then
/// copied to it. With bounce landing both are the same.
#[derive(Clone, Copy, Debug)]
pub struct RowOutput<'a>(pub(super) Memory<'a>);

#[derive(Clone, Copy, Debug)]
pub(super) enum Memory<'a> {
    Region(&'a Region),
    Buffer(&'a DataBuffer),
}

impl RowOutput<'_> {
    pub(super) fn bytes(&self) -> u64 {
        let bytes = match self.0 {
            Memory::Region(region) => region.len(),
            Memory::Buffer(buffer) => buffer.len(),
        };
        bytes as u64
    }

    pub(super) fn space(&self) -> &Space {
        match self.0 {
            Memory::Region(region) => region.space(),
            Memory::Buffer(buffer) => buffer.space(),
        }
    }

    /// Returns true if the data of a volume's commands goes straight to and from the memory.
    pub(super) fn is_reached_by(&self, volume: &Volume) -> bool {
        volume.path().landing == LandingPath::Bounce
            || matches!(self.0, Memory::Buffer(buffer) if buffer.is_mapped_for(volume.disk()))
    }
}

impl KernelArg for RowOutput<'_> {
    fn push(&self, args: &mut Args) {
        match self.0 {
            Memory::Region(region) => region.push(args),
            Memory::Buffer(buffer) => buffer.push(args),
        }
    }
}

impl<'a> From<&'a Region> for RowOutput<'a> {
    fn from(region: &'a Region) -> Self {
        Self(Memory::Region(region))
    }
}

impl<'a> From<&'a DataBuffer> for RowOutput<'a> {
    fn from(buffer: &'a DataBuffer) -> Self {
        Self(Memory::Buffer(buffer))
    }
}

/// Rows that are written: elements in memory of the program, or memory that kernels read. Devices with direct landing reach a
/// [`DataBuffer`]; rows of a plain [`Region`] are then copied first.
#[derive(Clone, Copy, Debug)]
pub struct RowInput<'a>(pub(super) Rows<'a>);

#[derive(Clone, Copy, Debug)]
pub(super) enum Rows<'a> {
    Elements { bytes: &'a [u8], element: ElementType },
    Memory(Memory<'a>),
}

impl<'a> RowInput<'a> {
    /// Takes elements of a type that is known at run time, as little-endian bytes.
    pub fn bytes(bytes: &'a [u8], element: ElementType) -> Self {
        Self(Rows::Elements { bytes, element })
    }
}

impl<'a, T: Element> From<&'a [T]> for RowInput<'a> {
    fn from(elements: &'a [T]) -> Self {
        Self::bytes(bytemuck::cast_slice(elements), T::TYPE)
    }
}

impl<'a, T: Element> From<&'a Vec<T>> for RowInput<'a> {
    fn from(elements: &'a Vec<T>) -> Self {
        elements.as_slice().into()
    }
}

impl<'a, T: Element, const N: usize> From<&'a [T; N]> for RowInput<'a> {
    fn from(elements: &'a [T; N]) -> Self {
        elements.as_slice().into()
    }
}

impl<'a> From<&'a Region> for RowInput<'a> {
    fn from(region: &'a Region) -> Self {
        Self(Rows::Memory(Memory::Region(region)))
    }
}

impl<'a> From<&'a DataBuffer> for RowInput<'a> {
    fn from(buffer: &'a DataBuffer) -> Self {
        Self(Rows::Memory(Memory::Buffer(buffer)))
    }
}
