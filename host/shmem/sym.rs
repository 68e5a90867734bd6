//! Symmetric arrays: as many elements on every PE, at the same offset of its heap.

use super::{ShmemError, World};
use crate::engine::{Args, KernelArg};
use bytemuck::Pod;
use std::fmt;
use std::marker::PhantomData;

/// `len` elements of `T` on every PE. What kernels get is the address of this PE's part: `sym<T>` of `shmem.cuh`.
///
/// Dropping it gives the memory back once every PE has dropped its own.
pub struct Sym<T> {
    world: World,
    offset: usize,
    len: usize,
    _type: PhantomData<T>,
}

impl<T: Pod> Sym<T> {
    pub(super) fn new(world: World, offset: usize, len: usize) -> Self {
        Self { world, offset, len, _type: PhantomData }
    }

    /// Elements on each PE.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The world that it is in.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Where the first element is in every heap, in bytes from its beginning.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The address of this PE's first element, as its kernels see it.
    pub fn address(&self) -> u64 {
        self.world.heap_address() + self.offset as u64
    }

    /// `count` elements from `first` on of this PE.
    pub fn read(&self, first: usize, count: usize) -> Result<Vec<T>, ShmemError> {
        self.get(first, count, self.world.my_pe())
    }

    /// Writes elements of this PE, from `first` on.
    pub fn write(&self, first: usize, values: &[T]) -> Result<(), ShmemError> {
        self.put(first, values, self.world.my_pe())
    }

    /// `count` elements from `first` on of another PE; complete when it returns.
    pub fn get(&self, first: usize, count: usize, pe: usize) -> Result<Vec<T>, ShmemError> {
        let mut out = vec![T::zeroed(); count];
        let at = self.range(first, count, pe)?;
        self.world.heap().read(pe, at, bytemuck::cast_slice_mut(&mut out));
        Ok(out)
    }

    /// Writes elements of another PE, from `first` on; complete when it returns.
    pub fn put(&self, first: usize, values: &[T], pe: usize) -> Result<(), ShmemError> {
        let at = self.range(first, values.len(), pe)?;
        self.world.heap().write(pe, at, bytemuck::cast_slice(values));
        Ok(())
    }

    /// The offset in the heap of a range of elements that is inside the array.
    fn range(&self, first: usize, count: usize, pe: usize) -> Result<usize, ShmemError> {
        let size = self.world.n_pes();
        if pe >= size {
            return Err(ShmemError::NoPe { pe, size });
        }
        if first.checked_add(count).is_none_or(|end| end > self.len) {
            return Err(ShmemError::OutOfBounds { first, count, len: self.len });
        }
        Ok(self.offset + first * size_of::<T>())
    }
}

impl<T> Drop for Sym<T> {
    fn drop(&mut self) {
        self.world.dropped(self.offset);
    }
}

impl<T> fmt::Debug for Sym<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sym({} x {} bytes at offset {})", self.len, size_of::<T>(), self.offset)
    }
}

impl<'a, T: Pod> KernelArg<'a> for &'a Sym<T> {
    fn push(&self, args: &mut Args<'a>) {
        args.push_value(self.address());
    }
}
