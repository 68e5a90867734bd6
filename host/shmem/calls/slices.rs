//! The two ends of a put or get: memory of this PE, and memory that each PE has.

use crate::engine::{Args, KernelArg};
use crate::memory::Region;
use crate::shmem::sym::Block;
use crate::shmem::{ShmemError, Sym, SymSlice, Window, WindowSlice, World};
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
    pub(in crate::shmem) fn address(&self) -> u64 {
        self.address
    }

    /// Returns the region that has the elements; `None` for the symmetric heap.
    pub(in crate::shmem) fn region(&self) -> Option<&Region> {
        match self.owner {
            Owner::Region(region) => Some(region),
            Owner::Heap(_) => None,
        }
    }

    /// Returns the owner of the elements' memory.
    pub(in crate::shmem) fn owner(&self) -> Arc<dyn Any + Send + Sync> {
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

/// Elements that each PE has: of a symmetric array, or of a window.
pub struct RemoteSlice<'a, T>(pub(super) Remote<'a, T>);

/// The memory of the elements.
pub(super) enum Remote<'a, T> {
    Heap(SymSlice<'a, T>),
    Window(WindowSlice<'a, T>),
}

impl<T> Clone for RemoteSlice<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for RemoteSlice<'_, T> {}

impl<T> Clone for Remote<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Remote<'_, T> {}

impl<'a, T> From<SymSlice<'a, T>> for RemoteSlice<'a, T> {
    fn from(s: SymSlice<'a, T>) -> Self {
        Self(Remote::Heap(s))
    }
}
impl<'a, T> From<&'a Sym<T>> for RemoteSlice<'a, T> {
    fn from(s: &'a Sym<T>) -> Self {
        SymSlice::from(s).into()
    }
}
impl<'a, T> From<WindowSlice<'a, T>> for RemoteSlice<'a, T> {
    fn from(s: WindowSlice<'a, T>) -> Self {
        Self(Remote::Window(s))
    }
}
impl<'a, T> From<&'a Window<T>> for RemoteSlice<'a, T> {
    fn from(s: &'a Window<T>) -> Self {
        WindowSlice::from(s).into()
    }
}

impl<T> RemoteSlice<'_, T> {
    pub(super) fn len(&self) -> usize {
        match self.0 {
            Remote::Heap(s) => s.len(),
            Remote::Window(s) => s.len(),
        }
    }

    pub(super) fn world(&self) -> &World {
        match self.0 {
            Remote::Heap(s) => s.world(),
            Remote::Window(s) => s.world(),
        }
    }

    /// Returns the one of two kernels that takes these elements: of the symmetric heap, or of a window.
    pub(super) fn kernel(&self, of_heap: &'static str, of_window: &'static str) -> &'static str {
        match self.0 {
            Remote::Heap(_) => of_heap,
            Remote::Window(_) => of_window,
        }
    }
}

impl<T: Pod> RemoteSlice<'_, T> {
    pub(super) fn first(&self, n: usize) -> Result<Self, ShmemError> {
        Ok(match self.0 {
            Remote::Heap(s) => s.slice(..n)?.into(),
            Remote::Window(s) => s.slice(..n)?.into(),
        })
    }
}

impl<T: Pod> KernelArg for RemoteSlice<'_, T> {
    fn push(&self, args: &mut Args) {
        match self.0 {
            Remote::Heap(s) => s.push(args),
            Remote::Window(s) => s.push(args),
        }
    }
}
