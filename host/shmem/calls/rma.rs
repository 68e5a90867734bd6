//! Calls on one other PE between memory of engines: put and get; fence and quiet (OpenSHMEM 1.5, 9.6 and 9.11).

use super::slices::{LocalSlice, RemoteSlice};
use crate::args;
use crate::engine::Stream;
use crate::shmem::{ShmemError, SymSlice, World};
use bytemuck::Pod;

/// The direction of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Put,
    Get,
}

impl World {
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
        dest: impl Into<RemoteSlice<'a, T>>,
        source: impl Into<LocalSlice<'a, T>>,
        pe: usize,
    ) -> Result<(), ShmemError> {
        self.copy(None, Direction::Put, dest.into(), source.into(), pe)
    }

    /// Enqueues [`World::put_from`] on `stream`.
    ///
    /// # Errors
    /// The argument errors of [`World::put_from`], and [`ShmemError::Engine`] if the stream belongs to another engine
    /// or the kernel cannot be launched.
    pub fn put_from_on<'a, T: Pod>(
        &self,
        stream: &Stream,
        dest: impl Into<RemoteSlice<'a, T>>,
        source: impl Into<LocalSlice<'a, T>>,
        pe: usize,
    ) -> Result<(), ShmemError> {
        self.copy(Some(stream), Direction::Put, dest.into(), source.into(), pe)
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
        source: impl Into<RemoteSlice<'a, T>>,
        pe: usize,
    ) -> Result<(), ShmemError> {
        self.copy(None, Direction::Get, source.into(), dest.into(), pe)
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
        source: impl Into<RemoteSlice<'a, T>>,
        pe: usize,
    ) -> Result<(), ShmemError> {
        self.copy(Some(stream), Direction::Get, source.into(), dest.into(), pe)
    }

    pub(super) fn copy<'a, T: Pod>(
        &self,
        on: Option<&Stream>,
        direction: Direction,
        there: RemoteSlice<'a, T>,
        here: LocalSlice<'a, T>,
        pe: usize,
    ) -> Result<(), ShmemError> {
        let there = self.remote_end(there, here.len(), pe)?;
        let bytes = here.len() * size_of::<T>();
        let (kernel, args) = match direction {
            Direction::Get => {
                (there.kernel("wb_shmem_get", "wb_shmem_window_get"), args!(self, here, there, bytes as u64, pe as u32))
            }
            Direction::Put => {
                (there.kernel("wb_shmem_put", "wb_shmem_window_put"), args!(self, there, here, bytes as u64, pe as u32))
            }
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

    /// Returns the first `n` of some elements, after checks of the PE, the world and the bounds.
    pub(super) fn remote_end<'a, T: Pod>(
        &self,
        s: RemoteSlice<'a, T>,
        n: usize,
        pe: usize,
    ) -> Result<RemoteSlice<'a, T>, ShmemError> {
        if pe >= self.n_pes() {
            return Err(ShmemError::NoPe { pe, size: self.n_pes() });
        }
        if s.world().is_same(self) { s.first(n) } else { Err(ShmemError::Foreign) }
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
