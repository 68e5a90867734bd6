//! Collective calls of a team (OpenSHMEM 1.5, 9.9) and of the world.

use super::{Reducible, Reduction};
use crate::args;
use crate::engine::{Args, Stream, abi};
use crate::shmem::{ShmemError, SymSlice, Team, World};
use bytemuck::Pod;

impl World {
    /// Enqueues [`World::barrier_all`] on `stream`.
    ///
    /// # Errors
    /// [`ShmemError::Engine`] if the stream belongs to another engine or the kernel cannot be launched.
    pub fn barrier_all_on(&self, stream: &Stream) -> Result<(), ShmemError> {
        // SAFETY: the arguments match the kernel's parameters and were checked above; they keep their memory alive.
        unsafe { self.call(Some(stream), "wb_shmem_barrier", self.small_grid(), args!(self)) }
    }

    /// Runs a kernel in which all PEs meet. Afterwards each PE can get the data that the others wrote to their own
    /// memory before. Collective.
    ///
    /// # Errors
    /// The errors of [`World::barrier_all`].
    pub fn sync_all(&self) -> Result<(), ShmemError> {
        self.team_world().sync()
    }

    /// Enqueues [`World::sync_all`] on `stream`.
    ///
    /// # Errors
    /// [`ShmemError::Engine`] if the stream belongs to another engine or the kernel cannot be launched.
    pub fn sync_all_on(&self, stream: &Stream) -> Result<(), ShmemError> {
        // SAFETY: the arguments match the kernel's parameters and were checked above; they keep their memory alive.
        unsafe { self.call(Some(stream), "wb_shmem_sync", self.small_grid(), args!(self)) }
    }
}

impl Team {
    /// Runs a kernel in which all members meet. On return all earlier puts of the members have arrived. Collective.
    ///
    /// # Errors
    /// - [`ShmemError::Engine`] if the kernel cannot be launched.
    /// - [`ShmemError::Run`] if the kernel fails, for example because a member does not arrive before the engine's
    ///   deadline.
    /// - [`ShmemError::Network`] if the kernel fails and connections of this PE have failed.
    pub fn barrier(&self) -> Result<(), ShmemError> {
        self.synchronize(None, "wb_shmem_team_barrier")
    }

    /// Enqueues [`Team::barrier`] on `stream`.
    ///
    /// # Errors
    /// [`ShmemError::Engine`] if the stream belongs to another engine or the kernel cannot be launched.
    pub fn barrier_on(&self, stream: &Stream) -> Result<(), ShmemError> {
        self.synchronize(Some(stream), "wb_shmem_team_barrier")
    }

    /// Runs a kernel in which all members meet. Afterwards each member can get the data that the others wrote to their
    /// own memory before. Collective.
    ///
    /// # Errors
    /// The errors of [`Team::barrier`].
    pub fn sync(&self) -> Result<(), ShmemError> {
        self.synchronize(None, "wb_shmem_team_sync")
    }

    /// Enqueues [`Team::sync`] on `stream`.
    ///
    /// # Errors
    /// [`ShmemError::Engine`] if the stream belongs to another engine or the kernel cannot be launched.
    pub fn sync_on(&self, stream: &Stream) -> Result<(), ShmemError> {
        self.synchronize(Some(stream), "wb_shmem_team_sync")
    }

    fn synchronize(&self, on: Option<&Stream>, kernel: &str) -> Result<(), ShmemError> {
        // SAFETY: the arguments match the kernel's parameters and were checked above; they keep their memory alive.
        unsafe { self.world().call(on, kernel, self.world().small_grid(), args!(self)) }
    }

    /// Copies `source` of member `root` to `dest` of every member. Collective.
    ///
    /// Both arrays have the same number of elements, and may be the same array. No PE may still read or write `dest` on
    /// any member; a preceding sync or barrier ensures this (see `collective.cuh`).
    ///
    /// # Errors
    /// - [`ShmemError::Foreign`] if an array belongs to another world, [`ShmemError::Lengths`] if the lengths differ.
    /// - [`ShmemError::NoPe`] if the team has no member `root`, [`ShmemError::Overlap`] if the arrays overlap in part.
    /// - [`ShmemError::Engine`] if the kernel cannot be launched, [`ShmemError::Run`] or [`ShmemError::Network`] if it
    ///   fails.
    pub fn broadcast<'a, T: Pod>(
        &self,
        dest: impl Into<SymSlice<'a, T>>,
        source: impl Into<SymSlice<'a, T>>,
        root: usize,
    ) -> Result<(), ShmemError> {
        self.broadcast_how(None, dest.into(), source.into(), root)
    }

    /// Enqueues [`Team::broadcast`] on `stream`.
    ///
    /// # Errors
    /// The argument errors of [`Team::broadcast`], and [`ShmemError::Engine`] if the stream belongs to another engine
    /// or the kernel cannot be launched.
    pub fn broadcast_on<'a, T: Pod>(
        &self,
        stream: &Stream,
        dest: impl Into<SymSlice<'a, T>>,
        source: impl Into<SymSlice<'a, T>>,
        root: usize,
    ) -> Result<(), ShmemError> {
        self.broadcast_how(Some(stream), dest.into(), source.into(), root)
    }

    fn broadcast_how<'a, T: Pod>(
        &self,
        on: Option<&Stream>,
        dest: SymSlice<'a, T>,
        source: SymSlice<'a, T>,
        root: usize,
    ) -> Result<(), ShmemError> {
        const CALL: &str = "broadcast";
        self.fit(CALL, &dest, &source, (1, 1), "the lengths must be equal")?;
        if root >= self.n_pes() {
            return Err(ShmemError::NoPe { pe: root, size: self.n_pes() });
        }
        if dest.offset() != source.offset() {
            apart(CALL, &dest, &source)?;
        }
        let bytes = size_of::<T>() * source.len();
        let args = args!(self, dest, source, bytes as u64, root as u32);
        // SAFETY: the arguments match the kernel's parameters and were checked above; they keep their memory alive.
        unsafe { self.world().call(on, "wb_shmem_broadcast", self.world().call_grid(bytes), args) }
    }

    /// Concatenates the `source` of all members, in order, in `dest` of every member (all-gather). Collective.
    ///
    /// `dest` has as many times the elements of `source` as the team has members. `source` may be its own place in
    /// `dest`. No PE may still read or write `dest` on any member.
    ///
    /// # Errors
    /// - [`ShmemError::Foreign`] if an array belongs to another world, [`ShmemError::Lengths`] if the lengths do not
    ///   match.
    /// - [`ShmemError::Overlap`] if the arrays overlap in another way.
    /// - [`ShmemError::Engine`] if the kernel cannot be launched, [`ShmemError::Run`] or [`ShmemError::Network`] if it
    ///   fails.
    pub fn fcollect<'a, T: Pod>(
        &self,
        dest: impl Into<SymSlice<'a, T>>,
        source: impl Into<SymSlice<'a, T>>,
    ) -> Result<(), ShmemError> {
        self.fcollect_how(None, dest.into(), source.into())
    }

    /// Enqueues [`Team::fcollect`] on `stream`.
    ///
    /// # Errors
    /// The argument errors of [`Team::fcollect`], and [`ShmemError::Engine`] if the stream belongs to another engine or
    /// the kernel cannot be launched.
    pub fn fcollect_on<'a, T: Pod>(
        &self,
        stream: &Stream,
        dest: impl Into<SymSlice<'a, T>>,
        source: impl Into<SymSlice<'a, T>>,
    ) -> Result<(), ShmemError> {
        self.fcollect_how(Some(stream), dest.into(), source.into())
    }

    fn fcollect_how<'a, T: Pod>(
        &self,
        on: Option<&Stream>,
        dest: SymSlice<'a, T>,
        source: SymSlice<'a, T>,
    ) -> Result<(), ShmemError> {
        const CALL: &str = "fcollect";
        self.fit(CALL, &dest, &source, (self.n_pes(), 1), "the destination must hold the elements of all PEs")?;
        let bytes = size_of::<T>() * source.len();
        // The source may be this member's place in the destination.
        if source.offset() != dest.offset() + self.my_pe() * bytes {
            apart(CALL, &dest, &source)?;
        }
        let args = args!(self, abi::CALL_FCOLLECT, dest, bytes as u64, source, 0u64, bytes as u64);
        self.exchange(on, bytes, args)
    }

    /// Copies this member's part of each member's `source` to that member's part of `dest`. Collective.
    ///
    /// Both arrays have one part for each member, of the same length. Part m of `dest` gets this member's part of the
    /// `source` of member m. No PE may still read or write `dest` on any member.
    ///
    /// # Errors
    /// - [`ShmemError::Foreign`] if an array belongs to another world.
    /// - [`ShmemError::Lengths`] if the lengths differ, or are no multiple of the number of members.
    /// - [`ShmemError::Overlap`] if the arrays overlap.
    /// - [`ShmemError::Engine`] if the kernel cannot be launched, [`ShmemError::Run`] or [`ShmemError::Network`] if it
    ///   fails.
    pub fn alltoall<'a, T: Pod>(
        &self,
        dest: impl Into<SymSlice<'a, T>>,
        source: impl Into<SymSlice<'a, T>>,
    ) -> Result<(), ShmemError> {
        self.alltoall_how(None, dest.into(), source.into())
    }

    /// Enqueues [`Team::alltoall`] on `stream`.
    ///
    /// # Errors
    /// The argument errors of [`Team::alltoall`], and [`ShmemError::Engine`] if the stream belongs to another engine or
    /// the kernel cannot be launched.
    pub fn alltoall_on<'a, T: Pod>(
        &self,
        stream: &Stream,
        dest: impl Into<SymSlice<'a, T>>,
        source: impl Into<SymSlice<'a, T>>,
    ) -> Result<(), ShmemError> {
        self.alltoall_how(Some(stream), dest.into(), source.into())
    }

    fn alltoall_how<'a, T: Pod>(
        &self,
        on: Option<&Stream>,
        dest: SymSlice<'a, T>,
        source: SymSlice<'a, T>,
    ) -> Result<(), ShmemError> {
        const CALL: &str = "alltoall";
        const RULE: &str = "the lengths must be equal, and a multiple of the number of PEs";
        self.fit(CALL, &dest, &source, (1, 1), RULE)?;
        if !source.len().is_multiple_of(self.n_pes()) {
            return Err(self.lengths(CALL, &dest, &source, RULE));
        }
        apart(CALL, &dest, &source)?;
        let bytes = size_of::<T>() * (source.len() / self.n_pes());
        let pitch = bytes as u64;
        self.exchange(on, bytes, args!(self, abi::CALL_ALLTOALL, dest, pitch, source, pitch, pitch))
    }

    fn exchange(&self, on: Option<&Stream>, bytes: usize, args: Args) -> Result<(), ShmemError> {
        // SAFETY: the arguments match the kernel's parameters and were checked above; they keep their memory alive.
        unsafe { self.world().call(on, "wb_shmem_exchange", self.world().call_grid(bytes), args) }
    }

    /// Combines the `source` of all members, element by element, into `dest` of every member: `team.reduce(Sum, &total,
    /// &mine)`. Collective.
    ///
    /// Both arrays have the same number of elements, and may be the same array.
    ///
    /// # Errors
    /// - [`ShmemError::Foreign`] if an array belongs to another world, [`ShmemError::Lengths`] if the lengths differ.
    /// - [`ShmemError::Overlap`] if the arrays overlap in part.
    /// - [`ShmemError::Engine`] if the kernel cannot be launched, [`ShmemError::Run`] or [`ShmemError::Network`] if it
    ///   fails.
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
    ///     use warpbell::shmem::calls::Sum;
    ///
    ///     let mine = world.malloc::<u32>(2)?;
    ///     mine.write(0, &[world.my_pe() as u32, 10])?;
    ///     let sums = world.malloc::<u32>(2)?;
    ///     world.team_world().reduce::<u32>(Sum, &sums, &mine)?;
    ///     assert_eq!(sums.read(0, 2)?, [1, 20]);
    ///     Ok(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    /// ```
    pub fn reduce<'a, T: Reducible>(
        &self,
        how: impl Reduction<T>,
        dest: impl Into<SymSlice<'a, T>>,
        source: impl Into<SymSlice<'a, T>>,
    ) -> Result<(), ShmemError> {
        self.reduce_how(None, how, dest.into(), source.into())
    }

    /// Enqueues [`Team::reduce`] on `stream`.
    ///
    /// # Errors
    /// The argument errors of [`Team::reduce`], and [`ShmemError::Engine`] if the stream belongs to another engine or
    /// the kernel cannot be launched.
    pub fn reduce_on<'a, T: Reducible>(
        &self,
        stream: &Stream,
        how: impl Reduction<T>,
        dest: impl Into<SymSlice<'a, T>>,
        source: impl Into<SymSlice<'a, T>>,
    ) -> Result<(), ShmemError> {
        self.reduce_how(Some(stream), how, dest.into(), source.into())
    }

    fn reduce_how<'a, T: Reducible>(
        &self,
        on: Option<&Stream>,
        how: impl Reduction<T>,
        dest: SymSlice<'a, T>,
        source: SymSlice<'a, T>,
    ) -> Result<(), ShmemError> {
        const CALL: &str = "reduce";
        self.fit(CALL, &dest, &source, (1, 1), "the lengths must be equal")?;
        if dest.offset() != source.offset() {
            apart(CALL, &dest, &source)?;
        }
        let (kernel, what) = (format!("wb_shmem_reduce_{}", how.kernel()), how.number());
        let n = (source.len() * how.units()) as u64;
        let grid = self.world().call_grid(size_of::<T>() * source.len());
        // SAFETY: the arguments match the kernel's parameters and were checked above; they keep their memory alive.
        unsafe { self.world().call(on, &kernel, grid, args!(self, what, dest, source, n)) }
    }

    /// Checks that both arrays belong to this world and that their lengths have the given ratio.
    fn fit<T>(
        &self,
        call: &'static str,
        dest: &SymSlice<'_, T>,
        source: &SymSlice<'_, T>,
        (times_dest, times_source): (usize, usize),
        rule: &'static str,
    ) -> Result<(), ShmemError> {
        if !dest.world().is_same(self.world()) || !source.world().is_same(self.world()) {
            return Err(ShmemError::Foreign);
        }
        if source.len().checked_mul(times_dest) != dest.len().checked_mul(times_source) {
            return Err(self.lengths(call, dest, source, rule));
        }
        Ok(())
    }

    fn lengths<T>(
        &self,
        call: &'static str,
        dest: &SymSlice<'_, T>,
        source: &SymSlice<'_, T>,
        rule: &'static str,
    ) -> ShmemError {
        ShmemError::Lengths { call, dest: dest.len(), source_len: source.len(), pes: self.n_pes(), rule }
    }
}

/// Checks that two arrays of one heap do not overlap.
fn apart<T>(call: &'static str, a: &SymSlice<'_, T>, b: &SymSlice<'_, T>) -> Result<(), ShmemError> {
    let end = |s: &SymSlice<'_, T>| s.offset() + s.len() * size_of::<T>();
    let clear = a.is_empty() || b.is_empty() || end(a) <= b.offset() || end(b) <= a.offset();
    if clear { Ok(()) } else { Err(ShmemError::Overlap { call }) }
}
