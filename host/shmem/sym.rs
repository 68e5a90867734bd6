//! Symmetric arrays: as many elements on every PE, at the same offset of its heap.

use super::{ShmemError, World};
use crate::engine::{Args, KernelArg};
use bytemuck::Pod;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// `len` elements of `T` on every PE. What kernels get is the address of this PE's part: `sym<T>` of `shmem.cuh`.
///
/// Dropping it gives the memory back once every PE has dropped its own; [`World::free`] does so at once.
pub struct Sym<T> {
    block: Arc<Block>,
    len: usize,
    _type: PhantomData<T>,
}

/// Memory of the symmetric heap, given back when the last share is dropped: kernels in flight have some.
pub(super) struct Block {
    world: World,
    offset: usize,
    /// Given back by a collective call already.
    freed: AtomicBool,
}

impl Drop for Block {
    fn drop(&mut self) {
        if !*self.freed.get_mut() {
            self.world.dropped(self.offset);
        }
    }
}

/// Some elements of a [`Sym`], on every PE. Borrowed from it, so that the memory stays.
pub struct SymSlice<'a, T> {
    block: &'a Arc<Block>,
    offset: usize,
    len: usize,
    _type: PhantomData<&'a T>,
}

impl<T> Clone for SymSlice<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for SymSlice<'_, T> {}

impl World {
    /// Zeroed memory for `count` elements on every PE. Collective; an error on one PE is an error on all.
    ///
    /// OpenSHMEM leaves open what is in new memory. Here it is always zero: what was never used is so already, and the rest is cleared.
    pub fn malloc<T: Pod>(&self, count: usize) -> Result<Sym<T>, ShmemError> {
        Sym::allocate(self, "malloc", count, align_of::<T>())
    }

    /// Zeroed memory, as of [`World::malloc`]. Collective.
    pub fn calloc<T: Pod>(&self, count: usize) -> Result<Sym<T>, ShmemError> {
        Sym::allocate(self, "calloc", count, align_of::<T>())
    }

    /// Zeroed memory, aligned to `align` bytes, a power of two up to 2 MiB. Collective.
    pub fn align<T: Pod>(&self, count: usize, align: usize) -> Result<Sym<T>, ShmemError> {
        Sym::allocate(self, "align", count, align)
    }

    /// Gives memory back at once, on all PEs. Collective.
    ///
    /// # Errors
    /// [`ShmemError::InUse`] on all PEs if a kernel or a stream of one of them has a share of it: it then comes back by itself when those
    /// have ended. [`ShmemError::Foreign`] for memory of another world, and what a collective call answers.
    pub fn free<T>(&self, memory: Sym<T>) -> Result<(), ShmemError> {
        if !memory.world().is_same(self) {
            return Err(ShmemError::Foreign);
        }
        let (offset, len) = (memory.offset(), memory.len());
        let call = format!("free of {len} elements at offset {offset} of the heap");
        // Kernels in flight, and streams that were not waited for, have shares.
        let all = self.meet(&call, &[u8::from(Arc::strong_count(&memory.block) > 1)])?;
        let pes: Vec<usize> = (0..all.len()).filter(|pe| all[*pe] != [0]).collect();
        if !pes.is_empty() {
            return Err(ShmemError::InUse { pes, offset, len });
        }
        memory.block.freed.store(true, Ordering::Relaxed);
        self.give_back(offset)
    }
}

impl<T> Sym<T> {
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
        &self.block.world
    }

    /// Where the first element is in every heap, in bytes from its beginning.
    pub fn offset(&self) -> usize {
        self.block.offset
    }

    /// The address of this PE's first element, as its kernels see it.
    pub fn address(&self) -> u64 {
        self.all().address()
    }

    /// The address of the first element of another PE, as this PE's kernels see it (`shmem_ptr`, OpenSHMEM 1.5, 9.3.4). Nothing for
    /// one that loads and stores do not reach.
    pub fn ptr(&self, pe: usize) -> Option<u64> {
        self.all().ptr(pe)
    }

    fn all(&self) -> SymSlice<'_, T> {
        SymSlice { block: &self.block, offset: self.block.offset, len: self.len, _type: PhantomData }
    }
}

impl<T: Pod> Sym<T> {
    fn allocate(world: &World, name: &str, count: usize, align: usize) -> Result<Self, ShmemError> {
        let offset = world.take::<T>(name, count, align)?;
        let block = Arc::new(Block { world: world.clone(), offset, freed: AtomicBool::new(false) });
        Ok(Self { block, len: count, _type: PhantomData })
    }

    /// Some of the elements, as an argument for a kernel or to read and write.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<SymSlice<'_, T>, ShmemError> {
        self.all().slice(range)
    }

    /// `count` elements from `first` on of this PE.
    pub fn read(&self, first: usize, count: usize) -> Result<Vec<T>, ShmemError> {
        self.all().read(first, count)
    }

    /// Writes elements of this PE, from `first` on.
    pub fn write(&self, first: usize, values: &[T]) -> Result<(), ShmemError> {
        self.all().write(first, values)
    }

    /// `count` elements from `first` on of another PE; complete when it returns.
    pub fn get(&self, first: usize, count: usize, pe: usize) -> Result<Vec<T>, ShmemError> {
        self.all().get(first, count, pe)
    }

    /// Writes elements of another PE, from `first` on; complete when it returns.
    pub fn put(&self, first: usize, values: &[T], pe: usize) -> Result<(), ShmemError> {
        self.all().put(first, values, pe)
    }
}

impl<'a, T> From<&'a Sym<T>> for SymSlice<'a, T> {
    fn from(all: &'a Sym<T>) -> Self {
        all.all()
    }
}

impl<'a, T> SymSlice<'a, T> {
    /// The world that it is in.
    pub fn world(&self) -> &'a World {
        &self.block.world
    }

    /// Elements on each PE.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where the first element is in every heap, in bytes from its beginning.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// The address of this PE's first element, as its kernels see it.
    pub fn address(&self) -> u64 {
        self.world().heap().address() + self.offset as u64
    }

    /// The address of the first element of another PE, as this PE's kernels see it. Nothing for one that loads and stores do
    /// not reach.
    pub fn ptr(&self, pe: usize) -> Option<u64> {
        let world = self.world();
        let near = pe < world.n_pes() && world.heap().reaches(pe);
        near.then(|| world.heap().address_of(pe) + self.offset as u64)
    }

    /// The memory that it is part of.
    pub(super) fn block(&self) -> &'a Arc<Block> {
        self.block
    }
}

impl<'a, T: Pod> SymSlice<'a, T> {
    /// Some of these elements.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Self, ShmemError> {
        let first = match range.start_bound() {
            Bound::Included(n) => *n,
            Bound::Excluded(n) => n.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(n) => n.saturating_add(1),
            Bound::Excluded(n) => *n,
            Bound::Unbounded => self.len,
        };
        let count = end.saturating_sub(first);
        if end < first {
            return Err(ShmemError::OutOfBounds { first, count, len: self.len });
        }
        let offset = self.at(first, count)?;
        Ok(Self { offset, len: count, ..*self })
    }

    /// `count` elements from `first` on of this PE.
    pub fn read(&self, first: usize, count: usize) -> Result<Vec<T>, ShmemError> {
        self.get(first, count, self.world().my_pe())
    }

    /// Writes elements of this PE, from `first` on.
    pub fn write(&self, first: usize, values: &[T]) -> Result<(), ShmemError> {
        self.put(first, values, self.world().my_pe())
    }

    /// `count` elements from `first` on of another PE; complete when it returns.
    pub fn get(&self, first: usize, count: usize, pe: usize) -> Result<Vec<T>, ShmemError> {
        let at = self.of(first, count, pe)?;
        let mut out = vec![T::zeroed(); count];
        self.world().read_heap(pe, at, bytemuck::cast_slice_mut(&mut out))?;
        Ok(out)
    }

    /// Writes elements of another PE, from `first` on; complete when it returns.
    pub fn put(&self, first: usize, values: &[T], pe: usize) -> Result<(), ShmemError> {
        let at = self.of(first, values.len(), pe)?;
        self.world().write_heap(pe, at, bytemuck::cast_slice(values))
    }

    fn of(&self, first: usize, count: usize, pe: usize) -> Result<usize, ShmemError> {
        let size = self.world().n_pes();
        if pe >= size {
            return Err(ShmemError::NoPe { pe, size });
        }
        self.at(first, count)
    }

    /// The offset in the heap of a range of elements that is inside.
    fn at(&self, first: usize, count: usize) -> Result<usize, ShmemError> {
        if first.checked_add(count).is_none_or(|end| end > self.len) {
            return Err(ShmemError::OutOfBounds { first, count, len: self.len });
        }
        Ok(self.offset + first * size_of::<T>())
    }
}

impl<T> fmt::Debug for Sym<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sym({} x {} bytes at offset {})", self.len, size_of::<T>(), self.offset())
    }
}

impl<T> fmt::Debug for SymSlice<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SymSlice({} x {} bytes at offset {})", self.len, size_of::<T>(), self.offset)
    }
}

impl<T: Pod> KernelArg for Sym<T> {
    fn push(&self, args: &mut Args) {
        self.all().push(args);
    }
}

impl<T: Pod> KernelArg for SymSlice<'_, T> {
    fn push(&self, args: &mut Args) {
        args.push_value(self.address());
        args.keep(self.block.clone());
    }
}
