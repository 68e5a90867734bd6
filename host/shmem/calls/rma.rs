//! Calls on one other PE: put, get, p, g; fence and quiet (OpenSHMEM 1.5, 9.6 and 9.11).

use crate::args;
use crate::engine::{Args, KernelArg, Stream};
use crate::memory::Region;
use crate::shmem::sym::Block;
use crate::shmem::{ShmemError, Sym, SymSlice, World};
use bytemuck::Pod;
use std::any::Any;
use std::marker::PhantomData;
use std::sync::Arc;

/// Elements that this PE's kernels can access: in its symmetric heap, or in a region of its engine.
pub struct LocalSlice<'a, T> {
    address: u64,
    len: usize,
    owner: Owner<'a>,
    _type: PhantomData<&'a T>,
}

/// The owner of the elements' memory.
#[derive(Clone, Copy)]
enum Owner<'a> {
    Region(&'a Region),
    Heap(&'a Arc<Block>),
}

impl<T> Clone for LocalSlice<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for LocalSlice<'_, T> {}

impl<'a, T: Pod> LocalSlice<'a, T> {
    /// Returns `len` elements in a region of this world's engine, from byte `offset` on.
    ///
    /// # Errors
    /// [`ShmemError::Region`] if the elements are misaligned or not inside the region, or the region belongs to another
    /// engine.
    pub fn in_region(world: &World, region: &'a Region, offset: usize, len: usize) -> Result<Self, ShmemError> {
        let bytes = len.checked_mul(size_of::<T>());
        let inside = bytes.and_then(|b| b.checked_add(offset)).is_some_and(|end| end <= region.len());
        if !inside || !offset.is_multiple_of(align_of::<T>()) || !region.space().same(world.engine().space()) {
            return Err(ShmemError::Region { offset, len, element: size_of::<T>(), bytes: region.len() });
        }
        let address = region.address() + offset as u64;
        Ok(Self { address, len, owner: Owner::Region(region), _type: PhantomData })
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<T> LocalSlice<'_, T> {
    /// Returns the address of the first element, as kernels and streams see it.
    pub(super) fn address(&self) -> u64 {
        self.address
    }

    /// Returns the region that has the elements; `None` for the symmetric heap.
    pub(super) fn region(&self) -> Option<&Region> {
        match self.owner {
            Owner::Region(region) => Some(region),
            Owner::Heap(_) => None,
        }
    }

    /// Returns the owner of the elements' memory.
    pub(super) fn owner(&self) -> Arc<dyn Any + Send + Sync> {
        match self.owner {
            Owner::Region(region) => region.owner(),
            Owner::Heap(block) => block.clone(),
        }
    }
}

impl<'a, T> From<SymSlice<'a, T>> for LocalSlice<'a, T> {
    fn from(s: SymSlice<'a, T>) -> Self {
        Self { address: s.address(), len: s.len(), owner: Owner::Heap(s.block()), _type: PhantomData }
    }
}

impl<'a, T> From<&'a Sym<T>> for LocalSlice<'a, T> {
    fn from(s: &'a Sym<T>) -> Self {
        SymSlice::from(s).into()
    }
}

impl<T: Pod> KernelArg for LocalSlice<'_, T> {
    fn push(&self, args: &mut Args) {
        args.push_value(self.address);
        args.keep(self.owner());
    }
}

impl World {
    // --- host memory -----------------------------------------------------------------------------------------------------

    /// Copies `source` from host memory to the first elements of `dest` on PE `pe`. The copy is complete on return.
    ///
    /// # Errors
    /// [`ShmemError::Foreign`] if `dest` belongs to another world, and the errors of [`SymSlice::put`].
    pub fn put<'a, T: Pod>(&self, dest: impl Into<SymSlice<'a, T>>, source: &[T], pe: usize) -> Result<(), ShmemError> {
        self.own(dest.into())?.put(0, source, pe)
    }

    /// Copies the elements of `source` on PE `pe` to host memory.
    ///
    /// # Errors
    /// [`ShmemError::Foreign`] if `source` belongs to another world, and the errors of [`SymSlice::get`].
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
    ///     let squares = world.malloc::<u64>(1)?;
    ///     squares.write(0, &[(world.my_pe() as u64 + 3).pow(2)])?;
    ///     world.barrier_all()?;
    ///     assert_eq!(world.get(&squares, 1)?, [16]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn get<'a, T: Pod>(&self, source: impl Into<SymSlice<'a, T>>, pe: usize) -> Result<Vec<T>, ShmemError> {
        let source = self.own(source.into())?;
        source.get(0, source.len(), pe)
    }

    /// Writes the first element of `dest` on PE `pe`. The write is complete on return.
    ///
    /// # Errors
    /// The errors of [`World::put`].
    pub fn p<'a, T: Pod>(&self, dest: impl Into<SymSlice<'a, T>>, value: T, pe: usize) -> Result<(), ShmemError> {
        self.put(dest, &[value], pe)
    }

    /// Returns the first element of `source` on PE `pe`.
    ///
    /// # Errors
    /// The errors of [`World::get`].
    pub fn g<'a, T: Pod>(&self, source: impl Into<SymSlice<'a, T>>, pe: usize) -> Result<T, ShmemError> {
        Ok(self.own(source.into())?.get(0, 1, pe)?[0])
    }

    // --- memory of the engine --------------------------------------------------------------------------------------------

    /// Copies all elements of `source` on this PE to `dest` on PE `pe`. The copy is complete on return.
    ///
    /// # Errors
    /// - [`ShmemError::NoPe`] if the world has no PE `pe`, [`ShmemError::Foreign`] if `dest` belongs to another world.
    /// - [`ShmemError::OutOfBounds`] if `dest` has fewer elements than `source`.
    /// - [`ShmemError::Engine`] if the kernel cannot be launched, [`ShmemError::Run`] or [`ShmemError::Network`] if it
    ///   fails.
    pub fn put_from<'a, T: Pod>(
        &self,
        dest: impl Into<SymSlice<'a, T>>,
        source: impl Into<LocalSlice<'a, T>>,
        pe: usize,
    ) -> Result<(), ShmemError> {
        self.copy(None, "wb_shmem_put", dest.into(), source.into(), pe)
    }

    /// Enqueues [`World::put_from`] on `stream`.
    ///
    /// # Errors
    /// The argument errors of [`World::put_from`], and [`ShmemError::Engine`] if the stream belongs to another engine
    /// or the kernel cannot be launched.
    pub fn put_from_on<'a, T: Pod>(
        &self,
        stream: &Stream,
        dest: impl Into<SymSlice<'a, T>>,
        source: impl Into<LocalSlice<'a, T>>,
        pe: usize,
    ) -> Result<(), ShmemError> {
        self.copy(Some(stream), "wb_shmem_put", dest.into(), source.into(), pe)
    }

    /// Copies elements of `source` on PE `pe` to all elements of `dest` on this PE. The copy is complete on return.
    ///
    /// # Errors
    /// - [`ShmemError::NoPe`] if the world has no PE `pe`, [`ShmemError::Foreign`] if `source` belongs to another
    ///   world.
    /// - [`ShmemError::OutOfBounds`] if `source` has fewer elements than `dest`.
    /// - [`ShmemError::Engine`] if the kernel cannot be launched, [`ShmemError::Run`] or [`ShmemError::Network`] if it
    ///   fails.
    pub fn get_into<'a, T: Pod>(
        &self,
        dest: impl Into<LocalSlice<'a, T>>,
        source: impl Into<SymSlice<'a, T>>,
        pe: usize,
    ) -> Result<(), ShmemError> {
        self.copy(None, "wb_shmem_get", source.into(), dest.into(), pe)
    }

    /// Enqueues [`World::get_into`] on `stream`.
    ///
    /// # Errors
    /// The argument errors of [`World::get_into`], and [`ShmemError::Engine`] if the stream belongs to another engine
    /// or the kernel cannot be launched.
    pub fn get_into_on<'a, T: Pod>(
        &self,
        stream: &Stream,
        dest: impl Into<LocalSlice<'a, T>>,
        source: impl Into<SymSlice<'a, T>>,
        pe: usize,
    ) -> Result<(), ShmemError> {
        self.copy(Some(stream), "wb_shmem_get", source.into(), dest.into(), pe)
    }

    pub(super) fn copy<'a, T: Pod>(
        &self,
        on: Option<&Stream>,
        kernel: &str,
        there: SymSlice<'a, T>,
        here: LocalSlice<'a, T>,
        pe: usize,
    ) -> Result<(), ShmemError> {
        let there = self.remote(there, here.len(), pe)?;
        let bytes = here.len() * size_of::<T>();
        let args = match kernel {
            "wb_shmem_get" => args!(self, here, there, bytes as u64, pe as u32),
            _ => args!(self, there, here, bytes as u64, pe as u32),
        };
        // SAFETY: the arguments match the kernel's parameters and were checked above; they keep their memory alive.
        unsafe { self.call(on, kernel, self.call_grid(bytes), args) }
    }

    // --- order -----------------------------------------------------------------------------------------------------------

    /// Orders the earlier puts of this PE's host calls before the later ones. Does nothing: host calls are complete
    /// when they return, and a stream runs its kernels in order.
    pub fn fence(&self) {}

    /// Waits until all puts, gets and atomic operations of this PE are complete and visible to all PEs.
    ///
    /// # Errors
    /// [`ShmemError::Engine`] if the kernel cannot be launched, [`ShmemError::Run`] or [`ShmemError::Network`] if it
    /// fails.
    pub fn quiet(&self) -> Result<(), ShmemError> {
        // SAFETY: the arguments match the kernel's parameters and were checked above; they keep their memory alive.
        unsafe { self.call(None, "wb_shmem_quiet", self.small_grid(), args!(self)) }
    }

    /// Enqueues [`World::quiet`] on `stream`, for the operations before it in the stream.
    ///
    /// # Errors
    /// [`ShmemError::Engine`] if the stream belongs to another engine or the kernel cannot be launched.
    pub fn quiet_on(&self, stream: &Stream) -> Result<(), ShmemError> {
        // SAFETY: the arguments match the kernel's parameters and were checked above; they keep their memory alive.
        unsafe { self.call(Some(stream), "wb_shmem_quiet", self.small_grid(), args!(self)) }
    }

    fn own<'a, T>(&self, s: SymSlice<'a, T>) -> Result<SymSlice<'a, T>, ShmemError> {
        if s.world().is_same(self) { Ok(s) } else { Err(ShmemError::Foreign) }
    }

    /// Returns the first `n` of some elements, after checks of the PE, the world and the bounds.
    pub(super) fn remote<'a, T: Pod>(
        &self,
        s: SymSlice<'a, T>,
        n: usize,
        pe: usize,
    ) -> Result<SymSlice<'a, T>, ShmemError> {
        if pe >= self.n_pes() {
            return Err(ShmemError::NoPe { pe, size: self.n_pes() });
        }
        self.own(s)?.slice(..n)
    }
}
