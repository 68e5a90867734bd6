//! Collective calls of a team (OpenSHMEM 1.5, 9.11), and of the world's.

use super::{Reducible, Reduction};
use crate::args;
use crate::engine::{Args, Stream, abi};
use crate::shmem::{ShmemError, SymSlice, Team, World};
use bytemuck::Pod;

impl World {
    /// [`World::barrier_all`] in a stream.
    pub fn barrier_all_on(&self, stream: &Stream) -> Result<(), ShmemError> {
        // SAFETY: the kernel's own arguments, checked above; they keep what they stand for.
        unsafe { self.call(Some(stream), "wb_shmem_barrier", self.small_grid(), args!(self)) }
    }

    /// All PEs meet in a kernel. What each wrote to its own memory is there for the others to get.
    pub fn sync_all(&self) -> Result<(), ShmemError> {
        self.team_world().sync()
    }

    /// The same in a stream.
    pub fn sync_all_on(&self, stream: &Stream) -> Result<(), ShmemError> {
        // SAFETY: the kernel's own arguments, checked above; they keep what they stand for.
        unsafe { self.call(Some(stream), "wb_shmem_sync", self.small_grid(), args!(self)) }
    }
}

impl Team {
    /// All members meet in a kernel, and what they put before has arrived.
    pub fn barrier(&self) -> Result<(), ShmemError> {
        self.meet(None, "wb_shmem_team_barrier")
    }

    /// The same in a stream.
    pub fn barrier_on(&self, stream: &Stream) -> Result<(), ShmemError> {
        self.meet(Some(stream), "wb_shmem_team_barrier")
    }

    /// All members meet in a kernel. What each wrote to its own memory is there for the others to get.
    pub fn sync(&self) -> Result<(), ShmemError> {
        self.meet(None, "wb_shmem_team_sync")
    }

    /// The same in a stream.
    pub fn sync_on(&self, stream: &Stream) -> Result<(), ShmemError> {
        self.meet(Some(stream), "wb_shmem_team_sync")
    }

    fn meet(&self, on: Option<&Stream>, kernel: &str) -> Result<(), ShmemError> {
        // SAFETY: the kernel's own arguments, checked above; they keep what they stand for.
        unsafe { self.world().call(on, kernel, self.world().small_grid(), args!(self)) }
    }

    /// `dest` of every member becomes `source` of member `root`; as many elements. `dest` must be ready on every member: see
    /// `collective.cuh`.
    pub fn broadcast<'a, T: Pod>(
        &self,
        dest: impl Into<SymSlice<'a, T>>,
        source: impl Into<SymSlice<'a, T>>,
        root: usize,
    ) -> Result<(), ShmemError> {
        self.broadcast_how(None, dest.into(), source.into(), root)
    }

    /// The same in a stream.
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
        self.fit(CALL, &dest, &source, (1, 1), "both have as many")?;
        if root >= self.n_pes() {
            return Err(ShmemError::NoPe { pe: root, size: self.n_pes() });
        }
        if dest.offset() != source.offset() {
            apart(CALL, &dest, &source)?;
        }
        let bytes = size_of::<T>() * source.len();
        let args = args!(self, dest, source, bytes as u64, root as u32);
        // SAFETY: the kernel's own arguments, checked above; they keep what they stand for.
        unsafe { self.world().call(on, "wb_shmem_broadcast", self.world().call_grid(bytes), args) }
    }

    /// `dest` becomes the `source` of all members, one after the other (all-gather): as many times the elements. `dest` must be ready
    /// on every member.
    pub fn fcollect<'a, T: Pod>(
        &self,
        dest: impl Into<SymSlice<'a, T>>,
        source: impl Into<SymSlice<'a, T>>,
    ) -> Result<(), ShmemError> {
        self.fcollect_how(None, dest.into(), source.into())
    }

    /// The same in a stream.
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
        self.fit(CALL, &dest, &source, (self.n_pes(), 1), "the destination has room for every PE's elements")?;
        let bytes = size_of::<T>() * source.len();
        // The source may be its own place in the destination.
        if source.offset() != dest.offset() + self.my_pe() * bytes {
            apart(CALL, &dest, &source)?;
        }
        let args = args!(self, abi::CALL_FCOLLECT, dest, bytes as u64, source, 0u64, bytes as u64);
        self.exchange(on, bytes, args)
    }

    /// Part m of `dest` becomes this member's part of `source` of member m: both have a part for each member. `dest` must be ready
    /// on every member.
    pub fn alltoall<'a, T: Pod>(
        &self,
        dest: impl Into<SymSlice<'a, T>>,
        source: impl Into<SymSlice<'a, T>>,
    ) -> Result<(), ShmemError> {
        self.alltoall_how(None, dest.into(), source.into())
    }

    /// The same in a stream.
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
        const RULE: &str = "both have as many for every PE";
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
        // SAFETY: the kernel's own arguments, checked above; they keep what they stand for.
        unsafe { self.world().call(on, "wb_shmem_exchange", self.world().call_grid(bytes), args) }
    }

    /// `dest` of every member becomes the elements of all members' `source`, combined: `team.reduce(Sum, &total, &mine)`. Both have
    /// as many elements, and may be the same array.
    pub fn reduce<'a, T: Reducible>(
        &self,
        how: impl Reduction<T>,
        dest: impl Into<SymSlice<'a, T>>,
        source: impl Into<SymSlice<'a, T>>,
    ) -> Result<(), ShmemError> {
        self.reduce_how(None, how, dest.into(), source.into())
    }

    /// The same in a stream.
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
        self.fit(CALL, &dest, &source, (1, 1), "both have as many")?;
        if dest.offset() != source.offset() {
            apart(CALL, &dest, &source)?;
        }
        let (kernel, what) = (format!("wb_shmem_reduce_{}", how.kernel()), how.number());
        let n = (source.len() * how.units()) as u64;
        let grid = self.world().call_grid(size_of::<T>() * source.len());
        // SAFETY: the kernel's own arguments, checked above; they keep what they stand for.
        unsafe { self.world().call(on, &kernel, grid, args!(self, what, dest, source, n)) }
    }

    /// Both arrays are this world's, and one has so many times the elements of the other.
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

/// That two arrays of one heap do not overlap.
fn apart<T>(call: &'static str, a: &SymSlice<'_, T>, b: &SymSlice<'_, T>) -> Result<(), ShmemError> {
    let end = |s: &SymSlice<'_, T>| s.offset() + s.len() * size_of::<T>();
    let clear = a.is_empty() || b.is_empty() || end(a) <= b.offset() || end(b) <= a.offset();
    if clear { Ok(()) } else { Err(ShmemError::Overlap { call }) }
}
