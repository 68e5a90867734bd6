//! VFIO by device file: `/dev/vfio/devices/vfioN` bound to an I/O address space of `/dev/iommu` (Linux 6.6).

use super::addresses::Addresses;
use super::capability;
use super::error::VfioError;
use super::memlock;
use super::uapi::{call, iommufd as uapi, vfio};
use crate::memory::{DmaAccess, IommuError, IommuKind, IommuMap};
use crate::pci::{Bdf, Sysfs};
use std::fmt;
use std::fs::OpenOptions;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::Arc;

const DEVICE_HINT: &str =
    "the kernel needs CONFIG_VFIO_DEVICE_CDEV; in a container, pass /dev/vfio in; or use api=group";
const IOMMU_HINT: &str = "load the module (modprobe iommufd); in a container, pass /dev/iommu in; or use api=group";
/// Number of ranges to request from an IOMMU at first. Its reply says if it has more.
const RANGES: u32 = 64;

/// Returns the path of the device's file, if the kernel has one for it.
pub(super) fn device_node(sysfs: &Sysfs, bdf: Bdf) -> Option<PathBuf> {
    let names = sysfs.names(format!("/sys/bus/pci/devices/{bdf}/vfio-dev"));
    names.iter().find(|n| n.starts_with("vfio")).map(|n| sysfs.path(format!("/dev/vfio/devices/{n}")))
}

/// Returns true if the device's file and `/dev/iommu` exist.
pub(super) fn is_there(sysfs: &Sysfs, bdf: Bdf) -> bool {
    device_node(sysfs, bdf).is_some_and(|n| n.exists()) && sysfs.exists("/dev/iommu")
}

/// Opens the device, and attaches it to an I/O address space of its own.
pub(super) fn open(sysfs: &Sysfs, bdf: Bdf) -> Result<(OwnedFd, Arc<Ioas>), VfioError> {
    let device = bdf.to_string();
    let Some(node) = device_node(sysfs, bdf) else {
        let reason =
            "the kernel has no device file for it (CONFIG_VFIO_DEVICE_CDEV, Linux 6.6); use api=group".to_owned();
        return Err(VfioError::NoInterface { device, api: "VFIO by device file", reason });
    };
    let open = |path: PathBuf, hint| {
        let file = OpenOptions::new().read(true).write(true).open(&path);
        file.map(OwnedFd::from).map_err(|e| VfioError::opening(&device, path, e, hint))
    };
    let iommu = open(sysfs.path("/dev/iommu"), IOMMU_HINT)?;
    let fd = open(node.clone(), DEVICE_HINT)?;
    let mut bind = vfio::DeviceBindIommufd { iommufd: iommu.as_raw_fd(), ..vfio::DeviceBindIommufd::new() };
    call(fd.as_fd(), &mut bind).map_err(|source| match source.raw_os_error() {
        // Several processes can open the file, but only one can bind it.
        Some(libc::EBUSY | libc::EINVAL) => {
            VfioError::opening(&device, node, io::Error::from_raw_os_error(libc::EBUSY), "")
        }
        _ => VfioError::call(&device, "VFIO_DEVICE_BIND_IOMMUFD", source),
    })?;
    let mut space = uapi::IoasAlloc::new();
    call(iommu.as_fd(), &mut space).map_err(|source| VfioError::call(&device, "IOMMU_IOAS_ALLOC", source))?;
    let mut attach = vfio::DeviceAttachIommufdPt { pt_id: space.out_ioas_id, ..vfio::DeviceAttachIommufdPt::new() };
    call(fd.as_fd(), &mut attach).map_err(|source| {
        let hint = match source.raw_os_error() {
            Some(libc::EPERM) => "; the machine cannot remap interrupts: turn that on in its firmware, or allow it for iommufd (allow_unsafe_interrupts=1)",
            _ => "",
        };
        VfioError::Call { device: device.clone(), call: "VFIO_DEVICE_ATTACH_IOMMUFD_PT", source, hint }
    })?;
    let (ranges, page) = ranges(iommu.as_fd(), space.out_ioas_id)
        .map_err(|source| VfioError::call(&device, "IOMMU_IOAS_IOVA_RANGES", source))?;
    tracing::debug!(device, page, ?ranges, "VFIO with iommufd");
    let ioas = Ioas { fd: iommu, id: space.out_ioas_id, addresses: Addresses::new(&ranges, page), bdf, device };
    Ok((fd, Arc::new(ioas)))
}

/// Reads the address ranges that can be mapped, and the alignment of mappings in bytes.
fn ranges(iommu: BorrowedFd<'_>, id: u32) -> io::Result<(Vec<Range<u64>>, u64)> {
    let mut room = RANGES;
    loop {
        let mut list = vec![uapi::IovaRange { start: 0, last: 0 }; room as usize];
        let mut request = uapi::IoasIovaRanges {
            size: size_of::<uapi::IoasIovaRanges>() as u32,
            ioas_id: id,
            num_iovas: room,
            reserved: 0,
            allowed_iovas: list.as_mut_ptr() as u64,
            out_iova_alignment: 0,
        };
        // SAFETY: the kernel writes the structure, and at most `num_iovas` ranges to the list, which has that many.
        let done = unsafe { libc::ioctl(iommu.as_raw_fd(), uapi::IOVA_RANGES as _, &mut request) };
        if done == 0 {
            list.truncate(request.num_iovas as usize);
            let ranges = capability::inclusive(list.iter().map(|r| (r.start, r.last)));
            return Ok((ranges, request.out_iova_alignment.max(1).next_power_of_two()));
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EMSGSIZE) || request.num_iovas <= room {
            return Err(error);
        }
        room = request.num_iovas;
    }
}

/// An I/O address space with one device.
pub(super) struct Ioas {
    fd: OwnedFd,
    id: u32,
    addresses: Addresses,
    bdf: Bdf,
    device: String,
}

impl Ioas {
    fn flags(access: DmaAccess) -> u32 {
        let mut flags = uapi::IOMMU_IOAS_MAP_FIXED_IOVA;
        if access.reads() {
            flags |= uapi::IOMMU_IOAS_MAP_READABLE;
        }
        if access.writes() {
            flags |= uapi::IOMMU_IOAS_MAP_WRITEABLE;
        }
        flags
    }

    fn refused(&self, call: &'static str, iova: u64, bytes: u64, source: io::Error) -> IommuError {
        IommuError::Refused { device: self.device.clone(), call, iova, bytes, source }
    }
}

impl fmt::Debug for Ioas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ioas({} of {})", self.id, self.device)
    }
}

impl IommuMap for Ioas {
    fn allocate_iova(&self, bytes: u64, align: u64) -> Result<u64, IommuError> {
        self.addresses.take(&self.device, bytes, align)
    }

    fn free_iova(&self, iova: u64, bytes: u64) {
        self.addresses.give_back(iova, bytes);
    }

    unsafe fn map_host(&self, host: NonNull<u8>, bytes: u64, iova: u64, access: DmaAccess) -> Result<(), IommuError> {
        self.addresses.check(&self.device, bytes, host.as_ptr() as u64)?;
        self.addresses.check(&self.device, bytes, iova)?;
        let mut map = uapi::IoasMap {
            flags: Self::flags(access),
            ioas_id: self.id,
            user_va: host.as_ptr() as u64,
            length: bytes,
            iova,
            ..uapi::IoasMap::new()
        };
        // The caller keeps the memory valid until it is unmapped.
        call(self.fd.as_fd(), &mut map).map_err(|e| {
            let explained = memlock::explain(IommuKind::Iommufd, &self.device, bytes, &e);
            explained.unwrap_or_else(|| self.refused("IOMMU_IOAS_MAP", iova, bytes, e))
        })?;
        Ok(())
    }

    fn map_dmabuf(
        &self,
        fd: BorrowedFd<'_>,
        offset: u64,
        bytes: u64,
        iova: u64,
        access: DmaAccess,
    ) -> Result<(), IommuError> {
        self.addresses.check(&self.device, bytes, offset)?;
        self.addresses.check(&self.device, bytes, iova)?;
        let mut map = uapi::IoasMapFile {
            flags: Self::flags(access),
            ioas_id: self.id,
            fd: fd.as_raw_fd(),
            start: offset,
            length: bytes,
            iova,
            ..uapi::IoasMapFile::new()
        };
        match call(self.fd.as_fd(), &mut map) {
            Ok(_) => Ok(()),
            Err(e) if e.raw_os_error() == Some(libc::ENOTTY) => Err(IommuError::Unsupported {
                device: self.device.clone(),
                what: "mapping a file",
                kind: IommuKind::Iommufd,
                reason: "the kernel has no IOMMU_IOAS_MAP_FILE; it came with Linux 6.13, and takes dma-bufs from 6.19"
                    .to_owned(),
            }),
            Err(e) => Err(self.refused("IOMMU_IOAS_MAP_FILE", iova, bytes, e)),
        }
    }

    fn unmap(&self, iova: u64, bytes: u64) -> Result<(), IommuError> {
        let mut unmap = uapi::IoasUnmap { ioas_id: self.id, iova, length: bytes, ..uapi::IoasUnmap::new() };
        call(self.fd.as_fd(), &mut unmap).map_err(|e| self.refused("IOMMU_IOAS_UNMAP", iova, bytes, e))?;
        Ok(())
    }

    fn page_bytes(&self) -> u64 {
        self.addresses.page()
    }

    fn kind(&self) -> IommuKind {
        IommuKind::Iommufd
    }

    fn bdf(&self) -> Bdf {
        self.bdf
    }

    fn name(&self) -> String {
        format!("vfio iommufd (address space {}) of {}", self.id, self.device)
    }
}
