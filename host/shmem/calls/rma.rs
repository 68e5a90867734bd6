//! Calls on one other PE: put, get, p, g, signals; fence and quiet (OpenSHMEM 1.5, 9.6 to 9.10).

use crate::args;
use crate::engine::{Args, KernelArg, Stream};
use crate::memory::Region;
use crate::shmem::sym::Block;
use crate::shmem::{ShmemError, Sym, SymSlice, World};
use bytemuck::Pod;
use std::marker::PhantomData;
use std::sync::Arc;

/// Up to this many bytes one block puts them and the signal; more are put by many, and the signal follows.
const ONE_BLOCK_BYTES: usize = 16 << 10;

/// What a signal does to the word (OpenSHMEM 1.5, 9.8.3; the numbers of `warpbell::signal`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum SignalOp {
    /// It becomes the value.
    Set = 9,
    /// The value is added.
    Add = 10,
}

/// How a wait compares (OpenSHMEM 1.5, 9.10; the numbers of `warpbell::cmp`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Cmp {
    /// Equal.
    Eq = 0,
    /// Not equal.
    Ne = 1,
    /// Greater.
    Gt = 2,
    /// Less or equal.
    Le = 3,
    /// Less.
    Lt = 4,
    /// Greater or equal.
    Ge = 5,
}

/// Elements that this PE's kernels reach: in its symmetric heap, or in a region of its engine.
pub struct LocalSlice<'a, T> {
    address: u64,
    len: usize,
    owner: Owner<'a>,
    _type: PhantomData<&'a T>,
}

/// Memory that elements are in.
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
    /// `len` elements of a region of this world's engine, from byte `offset` on.
    pub fn in_region(world: &World, region: &'a Region, offset: usize, len: usize) -> Result<Self, ShmemError> {
        let bytes = len.checked_mul(size_of::<T>());
        let inside = bytes.and_then(|b| b.checked_add(offset)).is_some_and(|end| end <= region.len());
        if !inside || !offset.is_multiple_of(align_of::<T>()) || !region.space().same(world.engine().space()) {
            return Err(ShmemError::Region { offset, len, element: size_of::<T>(), bytes: region.len() });
        }
        let address = region.address() + offset as u64;
        Ok(Self { address, len, owner: Owner::Region(region), _type: PhantomData })
    }

    /// How many elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
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
        args.keep(match self.owner {
            Owner::Region(region) => region.owner(),
            Owner::Heap(block) => block.clone(),
        });
    }
}

impl World {
    // --- host memory -----------------------------------------------------------------------------------------------------

    /// Writes elements of PE `pe` from host memory, from the first of `dest` on; complete when it returns.
    pub fn put<'a, T: Pod>(&self, dest: impl Into<SymSlice<'a, T>>, source: &[T], pe: usize) -> Result<(), ShmemError> {
        self.own(dest.into())?.put(0, source, pe)
    }

    /// The elements of PE `pe`.
    pub fn get<'a, T: Pod>(&self, source: impl Into<SymSlice<'a, T>>, pe: usize) -> Result<Vec<T>, ShmemError> {
        let source = self.own(source.into())?;
        source.get(0, source.len(), pe)
    }

    /// Writes the first element of `dest` on PE `pe`.
    pub fn p<'a, T: Pod>(&self, dest: impl Into<SymSlice<'a, T>>, value: T, pe: usize) -> Result<(), ShmemError> {
        self.put(dest, &[value], pe)
    }

    /// The first element of `source` on PE `pe`.
    pub fn g<'a, T: Pod>(&self, source: impl Into<SymSlice<'a, T>>, pe: usize) -> Result<T, ShmemError> {
        Ok(self.own(source.into())?.get(0, 1, pe)?[0])
    }

    // --- memory of the engine --------------------------------------------------------------------------------------------

    /// Copies elements of this PE to `dest` on PE `pe`, as many as there are in `source`; complete when it returns.
    pub fn put_from<'a, T: Pod>(
        &self,
        dest: impl Into<SymSlice<'a, T>>,
        source: impl Into<LocalSlice<'a, T>>,
        pe: usize,
    ) -> Result<(), ShmemError> {
        self.copy(None, "wb_shmem_put", dest.into(), source.into(), pe)
    }

    /// The same in a stream.
    pub fn put_from_on<'a, T: Pod>(
        &self,
        stream: &Stream,
        dest: impl Into<SymSlice<'a, T>>,
        source: impl Into<LocalSlice<'a, T>>,
        pe: usize,
    ) -> Result<(), ShmemError> {
        self.copy(Some(stream), "wb_shmem_put", dest.into(), source.into(), pe)
    }

    /// Copies elements of PE `pe` to `dest` on this PE, as many as there are in `dest`; complete when it returns.
    pub fn get_into<'a, T: Pod>(
        &self,
        dest: impl Into<LocalSlice<'a, T>>,
        source: impl Into<SymSlice<'a, T>>,
        pe: usize,
    ) -> Result<(), ShmemError> {
        self.copy(None, "wb_shmem_get", source.into(), dest.into(), pe)
    }

    /// The same in a stream.
    pub fn get_into_on<'a, T: Pod>(
        &self,
        stream: &Stream,
        dest: impl Into<LocalSlice<'a, T>>,
        source: impl Into<SymSlice<'a, T>>,
        pe: usize,
    ) -> Result<(), ShmemError> {
        self.copy(Some(stream), "wb_shmem_get", source.into(), dest.into(), pe)
    }

    fn copy<'a, T: Pod>(
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
        // SAFETY: the kernel's own arguments, checked above; they keep what they stand for.
        unsafe { self.call(on, kernel, self.call_grid(bytes), args) }
    }

    // --- signals ---------------------------------------------------------------------------------------------------------

    /// Copies elements of this PE to `dest` on PE `pe`, then updates the first word of `signal` there: who sees the signal sees the
    /// elements.
    pub fn put_signal<'a, T: Pod>(
        &self,
        dest: impl Into<SymSlice<'a, T>>,
        source: impl Into<LocalSlice<'a, T>>,
        signal: impl Into<SymSlice<'a, u64>>,
        (value, how): (u64, SignalOp),
        pe: usize,
    ) -> Result<(), ShmemError> {
        self.put_signal_how(None, dest.into(), source.into(), signal.into(), (value, how), pe)
    }

    /// The same in a stream.
    pub fn put_signal_on<'a, T: Pod>(
        &self,
        stream: &Stream,
        dest: impl Into<SymSlice<'a, T>>,
        source: impl Into<LocalSlice<'a, T>>,
        signal: impl Into<SymSlice<'a, u64>>,
        (value, how): (u64, SignalOp),
        pe: usize,
    ) -> Result<(), ShmemError> {
        self.put_signal_how(Some(stream), dest.into(), source.into(), signal.into(), (value, how), pe)
    }

    fn put_signal_how<'a, T: Pod>(
        &self,
        on: Option<&Stream>,
        dest: SymSlice<'a, T>,
        source: LocalSlice<'a, T>,
        signal: SymSlice<'a, u64>,
        (value, how): (u64, SignalOp),
        pe: usize,
    ) -> Result<(), ShmemError> {
        let dest = self.remote(dest, source.len(), pe)?;
        let word = self.remote(signal, 1, pe)?;
        let bytes = source.len() * size_of::<T>();
        if bytes > ONE_BLOCK_BYTES {
            self.copy(on, "wb_shmem_put", dest, source, pe)?;
            return self.signal_how(on, word, (value, how), pe);
        }
        let grid = crate::engine::Grid { blocks: 1, ..self.call_grid(bytes) };
        let args = args!(self, dest, source, bytes as u64, word, value, how as u32, pe as u32);
        // SAFETY: the kernel's own arguments, checked above; they keep what they stand for.
        unsafe { self.call(on, "wb_shmem_put_signal", grid, args) }
    }

    /// Updates the first word of `signal` on PE `pe`. What this PE's calls put before is there before it.
    pub fn signal_op<'a>(
        &self,
        signal: impl Into<SymSlice<'a, u64>>,
        value: u64,
        how: SignalOp,
        pe: usize,
    ) -> Result<(), ShmemError> {
        let word = self.remote(signal.into(), 1, pe)?;
        self.signal_how(None, word, (value, how), pe)
    }

    /// The same in a stream.
    pub fn signal_op_on<'a>(
        &self,
        stream: &Stream,
        signal: impl Into<SymSlice<'a, u64>>,
        value: u64,
        how: SignalOp,
        pe: usize,
    ) -> Result<(), ShmemError> {
        let word = self.remote(signal.into(), 1, pe)?;
        self.signal_how(Some(stream), word, (value, how), pe)
    }

    fn signal_how<'a>(
        &self,
        on: Option<&Stream>,
        word: SymSlice<'a, u64>,
        (value, how): (u64, SignalOp),
        pe: usize,
    ) -> Result<(), ShmemError> {
        let args = args!(self, word, value, how as u32, pe as u32);
        // SAFETY: the kernel's own arguments, checked above; they keep what they stand for.
        unsafe { self.call(on, "wb_shmem_signal", self.small_grid(), args) }
    }

    /// Waits until the first word of `signal` on this PE compares so with `value`, at most the engine's deadline. What was put
    /// before the signal is then there.
    pub fn signal_wait_until<'a>(
        &self,
        signal: impl Into<SymSlice<'a, u64>>,
        how: Cmp,
        value: u64,
    ) -> Result<(), ShmemError> {
        self.wait_how(None, signal.into(), how, value)
    }

    /// The same in a stream: what is behind it starts once the signal has come.
    pub fn signal_wait_until_on<'a>(
        &self,
        stream: &Stream,
        signal: impl Into<SymSlice<'a, u64>>,
        how: Cmp,
        value: u64,
    ) -> Result<(), ShmemError> {
        self.wait_how(Some(stream), signal.into(), how, value)
    }

    fn wait_how<'a>(
        &self,
        on: Option<&Stream>,
        signal: SymSlice<'a, u64>,
        how: Cmp,
        value: u64,
    ) -> Result<(), ShmemError> {
        let word = self.remote(signal, 1, self.my_pe())?;
        // SAFETY: the kernel's own arguments, checked above; they keep what they stand for.
        unsafe { self.call(on, "wb_shmem_signal_wait", self.small_grid(), args!(self, word, how as u32, value)) }
    }

    // --- order -----------------------------------------------------------------------------------------------------------

    /// What this PE's host calls put before is there before what they put after. They are complete when they return, so that this
    /// holds without doing anything; in a stream the order of the launches sees to it.
    pub fn fence(&self) {}

    /// What this PE put, got or changed before is done, and seen by all.
    pub fn quiet(&self) -> Result<(), ShmemError> {
        // SAFETY: the kernel's own arguments, checked above; they keep what they stand for.
        unsafe { self.call(None, "wb_shmem_quiet", self.small_grid(), args!(self)) }
    }

    /// The same in a stream, for what is in it.
    pub fn quiet_on(&self, stream: &Stream) -> Result<(), ShmemError> {
        // SAFETY: the kernel's own arguments, checked above; they keep what they stand for.
        unsafe { self.call(Some(stream), "wb_shmem_quiet", self.small_grid(), args!(self)) }
    }

    fn own<'a, T>(&self, s: SymSlice<'a, T>) -> Result<SymSlice<'a, T>, ShmemError> {
        if s.world().is_same(self) { Ok(s) } else { Err(ShmemError::Foreign) }
    }

    /// The first `n` of some elements on PE `pe`.
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
