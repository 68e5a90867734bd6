//! Where kernels run decides what memory they can reach.

use super::{MemoryError, Region};
use crate::cuda;
use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whose memory a region is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Cheapest for kernels: GPU memory, or the heap when kernels run on CPU threads.
    Device,
    /// Host memory that kernels also reach: pinned and mapped into the GPU.
    Host,
}

/// An address space in which kernels run. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Space(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    gpu: Option<Arc<cuda::Context>>,
    /// A kernel would not end: nothing that it may still touch is ever given back.
    poisoned: AtomicBool,
}

impl Space {
    /// Kernels on CPU threads: every place is the process's own memory.
    pub fn cpu() -> Self {
        Self(Arc::new(Inner { gpu: None, poisoned: AtomicBool::new(false) }))
    }

    /// Kernels on a GPU.
    pub fn gpu(context: Arc<cuda::Context>) -> Self {
        Self(Arc::new(Inner { gpu: Some(context), poisoned: AtomicBool::new(false) }))
    }

    /// The GPU context, if kernels run on one.
    pub fn gpu_context(&self) -> Option<&Arc<cuda::Context>> {
        self.0.gpu.as_ref()
    }

    /// Zeroed memory, aligned to at least 4 KiB; in the GPU, whole and aligned pages of 64 KiB.
    pub fn allocate(&self, place: Place, bytes: usize) -> Result<Region, MemoryError> {
        Region::allocate(self, place, bytes)
    }

    /// Makes host memory that exists already reachable for kernels. `base` must be page aligned on a GPU.
    ///
    /// `keep` is whatever owns the memory; it lives as long as the region.
    ///
    /// # Safety
    /// `base..base+bytes` must be valid for reads and writes for as long as `keep` lives.
    pub unsafe fn import_host(
        &self,
        base: NonNull<u8>,
        bytes: usize,
        io_memory: bool,
        keep: Arc<dyn Any + Send + Sync>,
    ) -> Result<Region, MemoryError> {
        // SAFETY: the caller's promise is the same.
        unsafe { Region::import_host(self, base, bytes, io_memory, keep) }
    }

    /// Marks the space as holding a kernel that would not end: its memory is leaked from here on, never freed under it.
    pub fn poison(&self) {
        self.0.poisoned.store(true, Ordering::Release);
    }

    /// Whether a kernel of this space would not end.
    pub fn is_poisoned(&self) -> bool {
        self.0.poisoned.load(Ordering::Acquire)
    }

    /// Whether both are the same space.
    pub fn same(&self, other: &Space) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
