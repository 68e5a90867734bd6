//! Inputs and results of mapping backends: the memory, the device, device addresses from its IOMMU.

use super::reason::{BackendError, ProbeError};
use super::syscalls::{self, Syscalls};
use crate::cuda::GPU_PAGE;
use crate::memory::{IommuMap, MemoryError, Region};
use crate::pci::Bdf;
use std::any::Any;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

/// Device that memory is mapped for.
#[derive(Clone, Debug)]
pub struct MappingDevice {
    /// Name of the device for messages.
    pub name: String,
    /// PCI function of the device, if it has one.
    pub bdf: Option<Bdf>,
    /// IOMMU that translates for the device; `None` if the device uses bus addresses directly.
    pub iommu: Option<Arc<dyn IommuMap>>,
}

/// Exports regions of GPU memory as dma-bufs.
pub trait DmaBufExport: Send + Sync + std::fmt::Debug {
    /// Exports all of the region's memory as a dma-buf.
    ///
    /// # Errors
    /// [`MemoryError::NoDmaBuf`] if the memory is not GPU memory, [`MemoryError::Cuda`] if the GPU
    /// driver fails to export it.
    fn export(&self, region: &Region) -> Result<OwnedFd, MemoryError>;
}

/// Exports dma-bufs with the GPU driver.
#[derive(Clone, Copy, Debug, Default)]
pub struct DriverDmaBuf;

impl DmaBufExport for DriverDmaBuf {
    fn export(&self, region: &Region) -> Result<OwnedFd, MemoryError> {
        region.export_dma_buf()
    }
}

/// Inputs of a mapping backend.
pub(super) struct Site<'a> {
    pub sys: &'a Arc<dyn Syscalls>,
    pub export: &'a dyn DmaBufExport,
    pub region: &'a Region,
    pub device: Option<&'a MappingDevice>,
}

impl Site<'_> {
    pub fn bytes(&self) -> u64 {
        self.region.len() as u64
    }

    pub fn whole_pages(&self) -> Result<(), BackendError> {
        let (address, bytes) = (self.region.address(), self.region.len());
        if address.is_multiple_of(GPU_PAGE as u64) && bytes.is_multiple_of(GPU_PAGE) {
            return Ok(());
        }
        Err(BackendError::Unaligned { address, bytes })
    }

    pub fn export(&self) -> Result<OwnedFd, BackendError> {
        self.export.export(self.region).map_err(BackendError::Export)
    }

    /// Opens the device file of a kernel module.
    pub fn open(&self, file: &str) -> Result<syscalls::File, BackendError> {
        let failed = |source| BackendError::Open { file: file.to_owned(), source };
        syscalls::File::open(self.sys, Path::new(file)).map_err(failed)
    }

    /// Fails if an IOMMU would translate the bus addresses that a module returns.
    pub fn bus_addresses(&self, module: &str) -> Result<(), BackendError> {
        match self.device.and_then(|d| d.iommu.as_ref()) {
            None => Ok(()),
            Some(iommu) => Err(BackendError::Requires {
                what: format!("{module} returns bus addresses, but {} translates the addresses that the device uses", iommu.name()),
                next: "use a mapping backend that maps through the IOMMU, or give the controller to the module with the IOMMU off or in \
                       pass-through (iommu=pt)"
                    .to_owned(),
            }),
        }
    }
}

/// A mapping that a backend made.
pub(super) struct Mapped {
    pub iova: u64,
    pub guard: Arc<dyn Any + Send + Sync>,
}

/// A range of device addresses: allocated from the device's IOMMU, and mapped there.
pub(super) struct IovaRange {
    pub iommu: Arc<dyn IommuMap>,
    pub iova: u64,
    pub bytes: u64,
    /// True if the IOMMU holds a mapping at the range.
    pub mapped: bool,
}

impl IovaRange {
    pub fn take(iommu: &Arc<dyn IommuMap>, bytes: u64) -> Result<Self, BackendError> {
        /// Bytes that an IOMMU translates with one entry if addresses and memory are aligned to it.
        const LARGE: u64 = 2 << 20;
        let align = if bytes >= LARGE { LARGE } else { GPU_PAGE as u64 };
        let iova = iommu.allocate_iova(bytes, align)?;
        Ok(Self { iommu: iommu.clone(), iova, bytes, mapped: false })
    }
}

impl Drop for IovaRange {
    fn drop(&mut self) {
        if self.mapped
            && let Err(error) = self.iommu.unmap(self.iova, self.bytes)
        {
            // The device addresses still lead to the memory, so they are not freed.
            tracing::warn!(%error, "a mapping of GPU memory could not be removed");
            return;
        }
        self.iommu.free_iova(self.iova, self.bytes);
    }
}

/// Compares a CPU mapping of the region with the GPU's own copies, at the first and the last word. Restores both words.
pub(super) fn compare_cpu_view(site: &Site<'_>, base: std::ptr::NonNull<u8>) -> Result<(), BackendError> {
    const PATTERN: u64 = 0x7761_7270_6265_6c6c;
    let last = site.region.len() - size_of::<u64>();
    for (at, pattern) in [(0, PATTERN), (last, !PATTERN)] {
        let before: u64 = site.region.get(at)?;
        site.region.set(at, pattern)?;
        // SAFETY: `base` is a mapping of the region's length, and `at` is a multiple of eight within it.
        let seen = unsafe { base.as_ptr().add(at).cast::<u64>().read_volatile() };
        site.region.set(at, before)?;
        if seen != pattern {
            return Err(ProbeError::differs(format!(
                "the CPU mapping shows {seen:#018x} at byte {at}, where {pattern:#018x} was written through the GPU"
            ))
            .into());
        }
    }
    Ok(())
}
