//! dma-buf of the GPU driver: either mapped into the CPU for VFIO type1, or passed directly to iommufd.

use super::gdrdrv::{map_cpu_mapping, type1};
use super::reason::BackendError;
use super::site::{IovaRange, Mapped, Site, compare_cpu_view};
use super::syscalls::Mapping;
use crate::memory::{DmaAccess, IommuKind, Region};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

pub(super) const IOMMU_FILE: &str = "/dev/iommu";

/// Fields in drop order.
struct CpuGuard {
    _iova: IovaRange,
    _cpu: Mapping,
    _dmabuf: OwnedFd,
    _region: Region,
}

/// The IOMMU's mapping holds the dma-buf, so the guard keeps no file.
struct FileGuard {
    _iova: IovaRange,
    _region: Region,
}

pub(super) fn map_cpu(site: &Site<'_>) -> Result<Option<Mapped>, BackendError> {
    let dmabuf = site.export()?;
    let cpu = Mapping::new(site.sys, dmabuf.as_raw_fd(), 0, site.region.len())
        .map_err(|source| BackendError::Refused { call: "mmap of the dma-buf", source })?;
    compare_cpu_view(site, cpu.base)?;
    let Some(iommu) = type1(site)? else { return Ok(None) };
    let range = map_cpu_mapping(&iommu, &cpu, site.bytes())?;
    let iova = range.iova;
    let guard = CpuGuard { _iova: range, _cpu: cpu, _dmabuf: dmabuf, _region: site.region.clone() };
    Ok(Some(Mapped { iova, guard: Arc::new(guard) }))
}

pub(super) fn map_file(site: &Site<'_>) -> Result<Option<Mapped>, BackendError> {
    let dmabuf = site.export()?;
    let iommu = match site.device {
        None => {
            site.open(IOMMU_FILE)?;
            return Ok(None);
        }
        Some(device) => match &device.iommu {
            Some(iommu) if iommu.kind() == IommuKind::Iommufd => iommu.clone(),
            other => {
                let has = other.as_ref().map_or_else(|| "no IOMMU at all".to_owned(), |i| i.name());
                return Err(BackendError::Requires {
                    what: format!("only iommufd maps a dma-buf, and {} is opened through {has}", device.name),
                    next: "open the controller through its VFIO device file (api=cdev, Linux 6.6 or newer)".to_owned(),
                });
            }
        },
    };
    let mut range = IovaRange::take(&iommu, site.bytes())?;
    iommu.map_dmabuf(dmabuf.as_fd(), 0, site.bytes(), range.iova, DmaAccess::ReadWrite)?;
    range.mapped = true;
    let iova = range.iova;
    let guard = FileGuard { _iova: range, _region: site.region.clone() };
    Ok(Some(Mapped { iova, guard: Arc::new(guard) }))
}
