//! gdrdrv backend: GDRCopy's kernel module maps GPU memory into the CPU through BAR1, and VFIO
//! type1 maps that for a device.
//!
//! Requests and structures: gdrdrv.h of GDRCopy 2.x. The module releases a file's pins and
//! mappings when the file is closed.

use super::reason::BackendError;
use super::site::{IovaRange, Mapped, Site, compare_cpu_view};
use super::syscalls::{Direction, File, Mapping, request};
use crate::memory::{DmaAccess, IommuKind, IommuMap, Region};
use std::sync::Arc;

/// Device file of the module. If it can be opened, a controller is best opened through VFIO type1.
pub(crate) const FILE: &str = "/dev/gdrdrv";
/// GDRDRV_IOCTL.
const KIND: u8 = 0xda;
/// Major version in 31:16 of a version word, minor in 15:0.
const MAJOR: u32 = 2;
const MAJOR_SHIFT: u32 = 16;

/// GDRDRV_IOC_PIN_BUFFER_PARAMS.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PinBuffer {
    pub(super) addr: u64,
    pub(super) size: u64,
    pub(super) p2p_token: u64,
    pub(super) va_space: u32,
    pub(super) padding: u32,
    pub(super) handle: u64,
}

/// GDRDRV_IOC_GET_VERSION_PARAMS.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Version {
    pub(super) module: u32,
    pub(super) least_api: u32,
}

/// GDRDRV_IOC_UNPIN_BUFFER_PARAMS.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UnpinBuffer {
    pub(super) handle: u64,
}

const _: () = {
    assert!(size_of::<PinBuffer>() == 40 && std::mem::offset_of!(PinBuffer, handle) == 32);
    assert!(size_of::<Version>() == 8);
    assert!(size_of::<UnpinBuffer>() == 8);
};

pub(super) const PIN_BUFFER: u32 = request(Direction::ReadWrite, KIND, 1, size_of::<PinBuffer>());
/// The header declares this request and the next with the size of a pointer.
pub(super) const UNPIN_BUFFER: u32 = request(Direction::ReadWrite, KIND, 2, size_of::<usize>());
pub(super) const GET_VERSION: u32 = request(Direction::ReadWrite, KIND, 255, size_of::<usize>());

/// Pinned GPU memory.
pub(super) struct Pinned {
    file: File,
    handle: u64,
}

impl Pinned {
    fn new(file: File, address: u64, bytes: u64) -> Result<Self, BackendError> {
        let mut pin = PinBuffer { addr: address, size: bytes, ..PinBuffer::default() };
        // SAFETY: the request takes this structure; the module checks the address with the GPU driver.
        unsafe { file.control(PIN_BUFFER, &mut pin) }
            .map_err(|source| BackendError::Refused { call: "GDRDRV_IOC_PIN_BUFFER", source })?;
        Ok(Self { file, handle: pin.handle })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        let mut unpin = UnpinBuffer { handle: self.handle };
        // SAFETY: the request takes this structure; the CPU mapping of the handle is already gone.
        if let Err(error) = unsafe { self.file.control(UNPIN_BUFFER, &mut unpin) } {
            tracing::warn!(%error, "GPU memory stays pinned until gdrdrv's file is closed");
        }
    }
}

/// Fields in drop order.
struct Guard {
    _iova: IovaRange,
    _cpu: Mapping,
    _pinned: Pinned,
    _region: Region,
}

fn check_version(file: &File) -> Result<(), BackendError> {
    let mut version = Version::default();
    // SAFETY: the request writes this structure.
    unsafe { file.control(GET_VERSION, &mut version) }
        .map_err(|source| BackendError::Refused { call: "GDRDRV_IOC_GET_VERSION", source })?;
    if version.module >> MAJOR_SHIFT != MAJOR || version.least_api >> MAJOR_SHIFT > MAJOR {
        let found = format!("{}.{}", version.module >> MAJOR_SHIFT, version.module & 0xffff);
        return Err(BackendError::Version { module: "gdrdrv", found, wanted: "2.x" });
    }
    Ok(())
}

/// Returns the device's IOMMU if it maps CPU mappings of device memory; `None` without a device.
pub(super) fn type1(site: &Site<'_>) -> Result<Option<Arc<dyn IommuMap>>, BackendError> {
    let Some(device) = site.device else { return Ok(None) };
    match &device.iommu {
        Some(iommu) if iommu.kind() == IommuKind::Type1 => Ok(Some(iommu.clone())),
        Some(iommu) => Err(BackendError::Requires {
            what: format!("{} cannot map a CPU mapping of device memory; only VFIO type1 can", iommu.name()),
            next: "open the controller through its VFIO group (api=group)".to_owned(),
        }),
        None => Err(BackendError::Requires {
            what: format!("{} is not behind an IOMMU that this process can map through", device.name),
            next: "bind the controller to vfio-pci with the IOMMU on: warpbell nvme bind ADDRESS".to_owned(),
        }),
    }
}

/// Maps a CPU mapping through type1. Before Linux 6.15 type1 maps page by page, which takes about a second for 32 GB.
/// The owner of the CPU mapping must keep it until the range is dropped.
pub(super) fn map_cpu_mapping(iommu: &Arc<dyn IommuMap>, cpu: &Mapping, bytes: u64) -> Result<IovaRange, BackendError> {
    let mut range = IovaRange::take(iommu, bytes)?;
    // SAFETY: the CPU mapping has this length, and the callers' guards drop the range before it.
    unsafe { iommu.map_host(cpu.base, bytes, range.iova, DmaAccess::ReadWrite) }?;
    range.mapped = true;
    Ok(range)
}

/// Pins the region and maps it into the CPU. Fields in drop order.
pub(super) fn map_into_cpu(site: &Site<'_>) -> Result<(Mapping, Pinned), BackendError> {
    let file = site.open(FILE)?;
    check_version(&file)?;
    let pinned = Pinned::new(file, site.region.address(), site.bytes())?;
    // As offset, the module takes its handle, counted in pages.
    let offset = pinned.handle.wrapping_mul(site.sys.page_bytes());
    let cpu = Mapping::new(site.sys, pinned.file.fd, offset, site.region.len())
        .map_err(|source| BackendError::Refused { call: "mmap of /dev/gdrdrv", source })?;
    compare_cpu_view(site, cpu.base)?;
    Ok((cpu, pinned))
}

pub(super) fn map(site: &Site<'_>) -> Result<Option<Mapped>, BackendError> {
    let (cpu, pinned) = map_into_cpu(site)?;
    let Some(iommu) = type1(site)? else { return Ok(None) };
    let range = map_cpu_mapping(&iommu, &cpu, site.bytes())?;
    let iova = range.iova;
    let guard = Guard { _iova: range, _cpu: cpu, _pinned: pinned, _region: site.region.clone() };
    Ok(Some(Mapped { iova, guard: Arc::new(guard) }))
}
