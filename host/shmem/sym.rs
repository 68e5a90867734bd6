//! Symmetric arrays: the same number of elements on every PE, at the same offset of its heap.

use super::{ShmemError, World};
use crate::engine::{Args, KernelArg};
use bytemuck::Pod;
use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A symmetric array of `len` elements of `T` on every PE. Kernels get the address of this PE's part as `sym<T>` of
/// `shmem.cuh`.
///
/// The memory is free again once every PE has dropped its `Sym` and the clones of it. [`World::free`] frees the memory
/// at once.
///
/// # Examples
///
/// ```
/// use warpbell::shmem::World;
///
/// # fn on_each(worlds: Vec<World>, work: fn(&World) -> Result<(), Failure>) -> Result<(), Failure> {
/// #     let pes: Vec<_> = worlds.into_iter().map(|world| std::thread::spawn(move || work(&world))).collect();
/// #     pes.into_iter().try_for_each(|pe| pe.join().expect("no panic"))
/// # }
/// # type Failure = Box<dyn std::error::Error + Send + Sync>;
/// // Two PEs with CPU engines; a closure runs for each PE, in a thread of its own.
/// on_each(World::local(2)?, |world| {
///     // Every PE allocates the same: the memory has one offset in all heaps.
///     let table = world.malloc::<u32>(100)?;
///     table.write(0, &[7; 100])?;
///     let offsets = world.allgather(&table.offset().to_le_bytes())?;
///     assert_eq!(offsets[0], offsets[1]);
///     world.free(table)?;
///     Ok(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
pub struct Sym<T> {
    block: Arc<Block>,
    len: usize,
    _type: PhantomData<T>,
}

/// A range of the symmetric heap. The last owner releases the range; kernels in flight are owners too.
pub(super) struct Block {
    world: World,
    offset: usize,
    /// True once a collective call has freed the range.
    freed: AtomicBool,
}

impl Drop for Block {
    fn drop(&mut self) {
        if !*self.freed.get_mut() {
            self.world.dropped(self.offset);
        }
    }
}

/// A range of elements of a [`Sym`], on every PE. Borrows the array, so that the memory stays allocated.
///
/// # Examples
///
/// ```
/// use warpbell::shmem::World;
///
/// # fn on_each(worlds: Vec<World>, work: fn(&World) -> Result<(), Failure>) -> Result<(), Failure> {
/// #     let pes: Vec<_> = worlds.into_iter().map(|world| std::thread::spawn(move || work(&world))).collect();
/// #     pes.into_iter().try_for_each(|pe| pe.join().expect("no panic"))
/// # }
/// # type Failure = Box<dyn std::error::Error + Send + Sync>;
/// // Two PEs with CPU engines; a closure runs for each PE, in a thread of its own.
/// on_each(World::local(2)?, |world| {
///     let table = world.calloc::<u32>(10)?;
///     world.put(table.slice(2..4)?, &[5, 6], world.my_pe())?;
///     assert_eq!(table.read(0, 5)?, [0, 0, 5, 6, 0]);
///     Ok(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
pub struct SymSlice<'a, T> {
    block: &'a Arc<Block>,
    offset: usize,
    len: usize,
    _type: PhantomData<&'a T>,
}

/// Returns first element and number of elements of a range of `len` elements.
pub(super) fn bounds(range: impl RangeBounds<usize>, len: usize) -> Result<(usize, usize), ShmemError> {
    let first = match range.start_bound() {
        Bound::Included(n) => *n,
        Bound::Excluded(n) => n.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(n) => n.saturating_add(1),
        Bound::Excluded(n) => *n,
        Bound::Unbounded => len,
    };
    if end < first || end > len {
        return Err(ShmemError::OutOfBounds { first, count: end.saturating_sub(first), len });
    }
    Ok((first, end - first))
}

impl<T> Clone for Sym<T> {
    /// Returns a share of the same memory. [`World::free`] fails with [`ShmemError::InUse`] while there are several.
    fn clone(&self) -> Self {
        Self { block: self.block.clone(), len: self.len, _type: PhantomData }
    }
}

impl<T> Clone for SymSlice<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for SymSlice<'_, T> {}

impl World {
    /// Allocates zeroed memory for `count` elements on every PE. Collective; an error on one PE is an error on all.
    ///
    /// OpenSHMEM leaves the contents of new memory undefined. Here new memory is always zero: memory that was never
    /// used is already zero, and reused memory is cleared.
    ///
    /// # Errors
    /// - [`ShmemError::HeapFull`] if the heap has no free range that is large enough.
    /// - [`ShmemError::OnRanks`] or [`ShmemError::Memory`] if clearing the memory failed on some ranks.
    /// - [`ShmemError::Bootstrap`] if a rank is gone or does not call within [`World::timeout`],
    ///   [`ShmemError::OutOfStep`] if the ranks make different calls.
    pub fn malloc<T: Pod>(&self, count: usize) -> Result<Sym<T>, ShmemError> {
        Sym::allocate(self, "malloc", count, align_of::<T>())
    }

    /// Allocates zeroed memory like [`World::malloc`]. Collective.
    ///
    /// # Errors
    /// The errors of [`World::malloc`].
    pub fn calloc<T: Pod>(&self, count: usize) -> Result<Sym<T>, ShmemError> {
        Sym::allocate(self, "calloc", count, align_of::<T>())
    }

    /// Allocates zeroed memory like [`World::malloc`], aligned to `align` bytes: a power of two up to 2 MiB.
    /// Collective.
    ///
    /// # Errors
    /// [`ShmemError::Alignment`] if `align` is not a power of two or too large, and the errors of [`World::malloc`].
    pub fn align<T: Pod>(&self, count: usize, align: usize) -> Result<Sym<T>, ShmemError> {
        Sym::allocate(self, "align", count, align)
    }

    /// Frees memory at once, on all PEs. Collective.
    ///
    /// # Errors
    /// - [`ShmemError::InUse`] on all PEs if a kernel, a stream or a clone on one PE still uses the memory; over an adapter
    ///   also if any kernel is in flight or a connection has failed, because requests for the memory cannot be completed
    ///   then. It is freed later, without another `free`.
    /// - [`ShmemError::Foreign`] if the memory belongs to another world.
    /// - [`ShmemError::Bootstrap`] if a rank is gone or does not call within [`World::timeout`],
    ///   [`ShmemError::OutOfStep`] if the ranks make different calls.
    /// - [`ShmemError::Memory`] if the allocation map of kernels with checks cannot be written.
    pub fn free<T>(&self, memory: Sym<T>) -> Result<(), ShmemError> {
        if !memory.world().is_same(self) {
            return Err(ShmemError::Foreign);
        }
        let (offset, len) = (memory.offset(), memory.len());
        let call = format!("free of {len} elements at offset {offset} of the heap");
        // Kernels in flight, and streams that were not synchronised, hold clones of the `Arc`. An adapter may still write the
        // memory for `_nbi` calls that kernels left unfinished.
        let in_use = Arc::strong_count(&memory.block) > 1 || !self.completes_requests();
        let all = self.exchange(&call, &[u8::from(in_use)])?;
        let pes: Vec<usize> = (0..all.len()).filter(|pe| all[*pe] != [0]).collect();
        if !pes.is_empty() {
            return Err(ShmemError::InUse { pes, offset, len });
        }
        memory.block.freed.store(true, Ordering::Relaxed);
        self.give_back(offset)
    }
}

impl<T> Sym<T> {
    /// Returns the number of elements on each PE.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the array has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the world that allocated the array.
    pub fn world(&self) -> &World {
        &self.block.world
    }

    /// Returns the offset of the first element in every heap, in bytes.
    pub fn offset(&self) -> usize {
        self.block.offset
    }

    /// Returns the address of this PE's first element, as this PE's kernels see it.
    pub fn address(&self) -> u64 {
        self.all().address()
    }

    /// Returns the address of the first element of PE `pe`, as this PE's kernels see it (`shmem_ptr`, OpenSHMEM 1.5,
    /// 9.1.8). Returns `None` if loads and stores do not reach that PE.
    pub fn ptr(&self, pe: usize) -> Option<u64> {
        self.all().ptr(pe)
    }

    /// Returns a share of the memory that only keeps it allocated. [`World::free`] fails while there are shares.
    pub fn owner(&self) -> Arc<dyn Any + Send + Sync> {
        self.block.clone()
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

    /// Returns a range of the elements, as a kernel argument or for host access.
    ///
    /// # Errors
    /// [`ShmemError::OutOfBounds`] if the range is reversed or ends behind the last element.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<SymSlice<'_, T>, ShmemError> {
        self.all().slice(range)
    }

    /// Copies `count` elements of this PE, from element `first` on, to host memory.
    ///
    /// # Errors
    /// [`ShmemError::OutOfBounds`] if the elements are outside the array, [`ShmemError::Memory`] if the copy fails.
    pub fn read(&self, first: usize, count: usize) -> Result<Vec<T>, ShmemError> {
        self.all().read(first, count)
    }

    /// Copies `values` to the elements of this PE, from element `first` on.
    ///
    /// # Errors
    /// [`ShmemError::OutOfBounds`] if the elements are outside the array, [`ShmemError::Memory`] if the copy fails.
    pub fn write(&self, first: usize, values: &[T]) -> Result<(), ShmemError> {
        self.all().write(first, values)
    }

    /// Copies `count` elements of PE `pe`, from element `first` on, to host memory. The copy is complete on return.
    ///
    /// # Errors
    /// The errors of [`SymSlice::get`].
    pub fn get(&self, first: usize, count: usize, pe: usize) -> Result<Vec<T>, ShmemError> {
        self.all().get(first, count, pe)
    }

    /// Copies `values` to the elements of PE `pe`, from element `first` on. The copy is complete on return.
    ///
    /// # Errors
    /// The errors of [`SymSlice::put`].
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
    /// Returns the world that allocated the array.
    pub fn world(&self) -> &'a World {
        &self.block.world
    }

    /// Returns the number of elements on each PE.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the slice has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the offset of the first element in every heap, in bytes.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Returns the address of this PE's first element, as this PE's kernels see it.
    pub fn address(&self) -> u64 {
        self.world().heap().address() + self.offset as u64
    }

    /// Returns the address of the first element of PE `pe`, as this PE's kernels see it. Returns `None` if loads and
    /// stores do not reach that PE.
    pub fn ptr(&self, pe: usize) -> Option<u64> {
        let world = self.world();
        let near = pe < world.n_pes() && world.heap().reaches(pe);
        near.then(|| world.heap().address_of(pe) + self.offset as u64)
    }

    /// Returns the heap range that the slice is part of.
    pub(super) fn block(&self) -> &'a Arc<Block> {
        self.block
    }
}

impl<'a, T: Pod> SymSlice<'a, T> {
    /// Returns a range of these elements.
    ///
    /// # Errors
    /// [`ShmemError::OutOfBounds`] if the range is reversed or ends behind the last element.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Self, ShmemError> {
        let (first, count) = bounds(range, self.len)?;
        let offset = self.at(first, count)?;
        Ok(Self { offset, len: count, ..*self })
    }

    /// Copies `count` elements of this PE, from element `first` on, to host memory.
    ///
    /// # Errors
    /// [`ShmemError::OutOfBounds`] if the elements are outside the slice, [`ShmemError::Memory`] if the copy fails.
    pub fn read(&self, first: usize, count: usize) -> Result<Vec<T>, ShmemError> {
        self.get(first, count, self.world().my_pe())
    }

    /// Copies `values` to the elements of this PE, from element `first` on.
    ///
    /// # Errors
    /// [`ShmemError::OutOfBounds`] if the elements are outside the slice, [`ShmemError::Memory`] if the copy fails.
    pub fn write(&self, first: usize, values: &[T]) -> Result<(), ShmemError> {
        self.put(first, values, self.world().my_pe())
    }

    /// Copies `count` elements of PE `pe`, from element `first` on, to host memory. The copy is complete on return.
    ///
    /// # Errors
    /// - [`ShmemError::NoPe`] if the world has no PE `pe`, [`ShmemError::OutOfBounds`] if the elements are outside the
    ///   slice.
    /// - [`ShmemError::Memory`] if the copy fails.
    /// - [`ShmemError::Engine`], [`ShmemError::Run`] or [`ShmemError::Network`] if the data goes through an adapter and
    ///   the kernel that moves it fails.
    pub fn get(&self, first: usize, count: usize, pe: usize) -> Result<Vec<T>, ShmemError> {
        // The bounds come first, so that no memory is allocated for a count that is too large.
        self.of(first, count, pe)?;
        let mut out = vec![T::zeroed(); count];
        self.get_to(first, &mut out, pe)?;
        Ok(out)
    }

    /// Copies elements of PE `pe`, from element `first` on, to `out`. The copy is complete on return.
    ///
    /// # Errors
    /// The errors of [`SymSlice::get`].
    pub fn get_to(&self, first: usize, out: &mut [T], pe: usize) -> Result<(), ShmemError> {
        let at = self.of(first, out.len(), pe)?;
        self.world().read_heap(pe, at, bytemuck::cast_slice_mut(out))
    }

    /// Returns the same memory as elements of another type.
    ///
    /// # Errors
    /// [`ShmemError::Cast`] if the memory is not aligned for them, or is no whole number of them.
    pub fn cast<U: Pod>(self) -> Result<SymSlice<'a, U>, ShmemError> {
        let (bytes, element) = (self.len * size_of::<T>(), size_of::<U>());
        if element == 0 || !bytes.is_multiple_of(element) || !self.offset.is_multiple_of(align_of::<U>()) {
            return Err(ShmemError::Cast { bytes, offset: self.offset, element });
        }
        Ok(SymSlice { block: self.block, offset: self.offset, len: bytes / element, _type: PhantomData })
    }

    /// Copies `values` to the elements of PE `pe`, from element `first` on. The copy is complete on return.
    ///
    /// # Errors
    /// The errors of [`SymSlice::get`].
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

    /// Returns the heap offset of a range of elements, in bytes, after a bounds check.
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
