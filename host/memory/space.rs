//! Address spaces: kernels run on a GPU or on CPU threads, which decides what memory they can access.

use super::{MemoryError, Region};
use crate::cuda;
use std::any::Any;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Kind of memory that a region is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Memory that kernels access fastest: GPU memory, or the heap if kernels run on CPU threads.
    Device,
    /// Host memory that kernels also access: pinned and mapped into the GPU.
    Host,
}

/// An address space in which kernels run. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Space(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    gpu: Option<Arc<cuda::Context>>,
    /// True after a kernel did not end: memory that it may still access is never freed.
    poisoned: AtomicBool,
}

impl Space {
    /// Creates a space for kernels on CPU threads. Both places are then memory of this process.
    pub fn cpu() -> Self {
        Self(Arc::new(Inner { gpu: None, poisoned: AtomicBool::new(false) }))
    }

    /// Creates a space for kernels on a GPU.
    pub(crate) fn gpu(context: Arc<cuda::Context>) -> Self {
        Self(Arc::new(Inner { gpu: Some(context), poisoned: AtomicBool::new(false) }))
    }

    /// Returns the GPU context if kernels run on a GPU.
    pub fn gpu_context(&self) -> Option<&Arc<cuda::Context>> {
        self.0.gpu.as_ref()
    }

    /// Allocates zeroed memory of at least `bytes` bytes, aligned to 4 KiB or more. GPU memory has
    /// whole, aligned pages of 64 KiB.
    ///
    /// # Errors
    /// - [`MemoryError::Host`] if the process's memory is exhausted, or `bytes` is too large to round up.
    /// - [`MemoryError::Cuda`] if the GPU driver fails to allocate GPU memory or pinned memory.
    pub fn allocate(&self, place: Place, bytes: usize) -> Result<Region, MemoryError> {
        Region::allocate(self, place, bytes)
    }

    /// Makes existing host memory accessible to kernels. For a GPU, `base` and `bytes` must be multiples of 4096.
    ///
    /// `io_memory` means that the range holds a device's registers, mapped by VFIO or sysfs. `keep` owns the memory and
    /// lives as long as the region.
    ///
    /// # Errors
    /// [`MemoryError::Cuda`] if the GPU driver refuses to map the range.
    ///
    /// # Safety
    /// `base..base + bytes` must be valid for reads and writes for as long as `keep` lives.
    pub unsafe fn import_host(
        &self,
        base: NonNull<u8>,
        bytes: usize,
        io_memory: bool,
        keep: Arc<dyn Any + Send + Sync>,
    ) -> Result<Region, MemoryError> {
        // SAFETY: this function's caller makes the same promise.
        unsafe { Region::import_host(self, base, bytes, io_memory, keep) }
    }

    /// Makes a device's registers, which are mapped in this process at `base` and which `dma_buf` has from its first byte on, accessible to
    /// kernels by that dma-buf.
    ///
    /// # Errors
    /// [`MemoryError::Cuda`] if the GPU's driver does not import the dma-buf: by cuda.h only Jetson's does, from Thor on.
    ///
    /// # Safety
    /// As for [`Space::import_host`].
    pub(crate) unsafe fn import_exported(
        &self,
        base: NonNull<u8>,
        bytes: usize,
        dma_buf: OwnedFd,
        keep: Arc<dyn Any + Send + Sync>,
    ) -> Result<Region, MemoryError> {
        // SAFETY: this function's caller makes the same promise.
        unsafe { Region::import_exported(self, base, bytes, dma_buf, keep) }
    }

    /// Makes existing device memory accessible to kernels and, where its kind permits that, to devices: reads of storage
    /// controllers and RDMA adapters then land in a program's own allocation. Device memory is GPU memory of the space's
    /// GPU, or memory of this process if kernels run on CPU threads.
    ///
    /// Any GPU memory that kernels of the space's context can use may be imported: of `cuMemAlloc` (`cudaMalloc`), of
    /// stream-ordered pools, and mapped physical memory. [`Region::reaches_devices`] tells whether devices reach it.
    /// Direct landing needs whole pages of [`GPU_PAGE`](crate::cuda::GPU_PAGE) bytes. `pointer` is the address of the
    /// first byte. `keep` owns the memory and lives as long as the region; runs whose arguments include the region keep
    /// the region.
    ///
    /// # Errors
    /// - [`MemoryError::NotImportable`] if the range is empty, is not within one gapless allocation, or is host memory,
    ///   managed memory, memory of another GPU or of another context.
    /// - [`MemoryError::Cuda`] if the driver call fails.
    ///
    /// # Safety
    /// The range must be valid for reads and writes by kernels, devices and the host for as long as `keep` lives. While
    /// a kernel or device uses a part of it, no reference of Rust code to that part exists.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use warpbell::memory::Space;
    ///
    /// let mut numbers = vec![7u64; 512];
    /// let (pointer, bytes) = (numbers.as_mut_ptr() as u64, numbers.len() * 8);
    /// let space = Space::cpu();
    /// // SAFETY: the region owns the vector, whose elements do not move with it.
    /// let region = unsafe { space.import_device(pointer, bytes, Arc::new(numbers)) }?;
    /// assert_eq!(region.address(), pointer);
    /// assert_eq!(region.get::<u64>(8 * 511)?, 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub unsafe fn import_device(
        &self,
        pointer: u64,
        bytes: usize,
        keep: Arc<dyn Any + Send + Sync>,
    ) -> Result<Region, MemoryError> {
        // SAFETY: this function's caller makes the same promise.
        unsafe { Region::import_device(self, pointer, bytes, keep) }
    }

    /// Records that a kernel of this space did not end. From then on the space's memory is leaked instead of freed.
    pub(crate) fn poison(&self) {
        self.0.poisoned.store(true, Ordering::Release);
    }

    /// Returns true if a kernel of this space did not end.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.0.poisoned.load(Ordering::Acquire)
    }

    /// Returns true if both are the same space.
    pub fn same(&self, other: &Space) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
