//! Windows: memory of each PE that was allocated elsewhere and registered as symmetric.

mod reach;
mod register;
#[cfg(test)]
mod tests;

use super::registered::RegisteredMemory;
use super::sym::bounds;
use super::{ShmemError, World};
use crate::engine::{Args, KernelArg, abi};
use crate::memory::Region;
use bytemuck::Pod;
use reach::Reach;
use std::marker::PhantomData;
use std::ops::RangeBounds;
use std::sync::Arc;

/// `len` elements of `T` on every PE, in memory that the PEs have registered as symmetric
/// ([`World::symmetric_from`]). Kernels get it as `window<T>` of `shmem.cuh`.
///
/// The memory stays registered until every PE has dropped its `Window` and the clones of it. Kernels in flight and
/// streams that were not synchronised hold clones.
pub struct Window<T> {
    shared: Arc<Shared>,
    len: usize,
    _type: PhantomData<T>,
}

/// A range of elements of a [`Window`], on every PE. Borrows the window, so that the memory stays registered.
pub struct WindowSlice<'a, T> {
    shared: &'a Arc<Shared>,
    /// Byte of the first element.
    offset: usize,
    len: usize,
    _type: PhantomData<&'a T>,
}

/// The memory of all PEs, as this PE reaches it. The last owner gives up this PE's use; kernels in flight are owners too.
#[derive(Debug)]
pub(super) struct Shared {
    world: World,
    /// Number of the window, the same on all PEs.
    id: u64,
    /// `wb_window_peer` of each PE.
    table: Region,
    /// Address of each PE's memory for this PE's loads and stores; 0 where they do not reach it.
    here: Vec<u64>,
    reaches: Vec<Reach>,
    /// Address and length of this PE's memory.
    base: u64,
    bytes: usize,
    /// This PE's memory. `None` while this value is dropped.
    own: Option<RegisteredMemory>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        let reaches = std::mem::take(&mut self.reaches);
        // A kernel that did not end may still use the memory of the others.
        if self.world.engine().space().is_poisoned() {
            std::mem::forget(reaches);
        }
        if let Some(own) = self.own.take() {
            self.world.windows().dropped_here(self.id, own);
        }
    }
}

impl Shared {
    /// Returns the region of a PE whose memory this process can access by copies.
    fn region(&self, pe: usize) -> Option<&Region> {
        match self.reaches.get(pe) {
            Some(Reach::Here(region)) => Some(region),
            _ => None,
        }
    }
}

impl<T> Clone for Window<T> {
    /// Returns a share of the same window.
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), len: self.len, _type: PhantomData }
    }
}

impl<T> Clone for WindowSlice<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for WindowSlice<'_, T> {}

impl<T> Window<T> {
    fn new(shared: Arc<Shared>, len: usize) -> Self {
        Self { shared, len, _type: PhantomData }
    }

    /// Returns the number of elements on each PE.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns false: a window has at least one element.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the world whose PEs registered the memory.
    pub fn world(&self) -> &World {
        &self.shared.world
    }

    /// Returns the address of the first element of PE `pe`, as this PE's kernels see it. Returns `None` if loads and
    /// stores do not reach that PE's memory.
    pub fn ptr(&self, pe: usize) -> Option<u64> {
        self.shared.here.get(pe).copied().filter(|at| *at != 0)
    }

    /// Returns the `wb_window`, the form in which this PE's kernels get the window: `window<T>` of `shmem.cuh` is made from it.
    ///
    /// The view holds addresses that are valid while a clone of the window lives; kernels that use it must have ended before the
    /// last clone is dropped. A run ensures that for a launch with the window among its arguments, and for
    /// [`Run::keep`](crate::engine::Run::keep). The values are for kernels of this process and of the world's engine.
    pub fn view(&self) -> abi::Window {
        WindowSlice::from(self).view()
    }

    /// Returns a range of the elements, as a kernel argument or for host calls.
    ///
    /// # Errors
    /// [`ShmemError::OutOfBounds`] if the range is reversed or ends behind the last element.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<WindowSlice<'_, T>, ShmemError> {
        WindowSlice::from(self).slice(range)
    }
}

impl<'a, T> From<&'a Window<T>> for WindowSlice<'a, T> {
    fn from(all: &'a Window<T>) -> Self {
        Self { shared: &all.shared, offset: 0, len: all.len, _type: PhantomData }
    }
}

impl<'a, T> WindowSlice<'a, T> {
    /// Returns the number of elements on each PE.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the slice has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the world whose PEs registered the memory.
    pub(super) fn world(&self) -> &'a World {
        &self.shared.world
    }

    /// Returns a range of these elements.
    ///
    /// # Errors
    /// [`ShmemError::OutOfBounds`] if the range is reversed or ends behind the last element.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Self, ShmemError> {
        let (first, count) = bounds(range, self.len)?;
        Ok(Self { offset: self.offset + first * size_of::<T>(), len: count, ..*self })
    }

    fn view(&self) -> abi::Window {
        let Shared { table, base, bytes, .. } = &**self.shared;
        abi::Window { peers: table.address(), base: *base, bytes: *bytes as u64, at: base + self.offset as u64 }
    }
}

impl<T: Pod> WindowSlice<'_, T> {
    /// Copies elements of PE `pe`, as many as `out` has, from host to host. Returns false if this process cannot.
    pub(super) fn read(&self, pe: usize, out: &mut [T]) -> Result<bool, ShmemError> {
        let region = self.shared.region(pe);
        region.map(|region| region.read(self.offset, bytemuck::cast_slice_mut(out))).transpose()?;
        Ok(region.is_some())
    }

    /// Copies values to PE `pe`, as [`Self::read`].
    pub(super) fn write(&self, pe: usize, values: &[T]) -> Result<bool, ShmemError> {
        let region = self.shared.region(pe);
        region.map(|region| region.write(self.offset, bytemuck::cast_slice(values))).transpose()?;
        Ok(region.is_some())
    }
}

/// Passes the window to a kernel as `window<T>` of `shmem.cuh`.
impl<T> KernelArg for Window<T> {
    fn push(&self, args: &mut Args) {
        WindowSlice::from(self).push(args);
    }
}

/// Passes the place of the first element to a kernel as `window<T>` of `shmem.cuh`.
impl<T> KernelArg for WindowSlice<'_, T> {
    fn push(&self, args: &mut Args) {
        args.push_value(self.view());
        args.keep(self.shared.clone());
    }
}
