//! VFIO by group: `/dev/vfio/vfio` and `/dev/vfio/<group>`, with the type1v2 backend. Every kernel with VFIO has it.

use super::addresses::Addresses;
use super::capability;
use super::error::VfioError;
use super::memlock;
use super::uapi::{call, call_growing, call_number, vfio as uapi};
use crate::memory::{DmaAccess, IommuError, IommuKind, IommuMap};
use crate::pci::{Bdf, Sysfs};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ffi::CString;
use std::fmt;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

/// Page size in bytes that every IOMMU supports. Used if the kernel does not report page sizes.
const SMALLEST_PAGE: u64 = 4096;
const CONTAINER_HINT: &str = "load the module (modprobe vfio-pci); in a container, pass /dev/vfio in";
const GROUP_HINT: &str = "bind the device to vfio-pci first; in a container, pass /dev/vfio in";

/// A group in a container of its own. Devices of one group share it, because the group can be opened only once.
pub(super) struct Container {
    number: u32,
    // Dropped before the container that the group is attached to.
    group: OwnedFd,
    fd: OwnedFd,
    /// Addresses that the IOMMU translates; `None` without an IOMMU.
    addresses: Option<Addresses>,
    /// Largest number of mappings of the container.
    entries: u64,
}

/// Groups that this process has open.
static GROUPS: Mutex<Option<HashMap<u32, Weak<Container>>>> = Mutex::new(None);

impl Container {
    /// Opens the group, or shares it if this process already has it open.
    pub(super) fn open(sysfs: &Sysfs, device: &str, number: u32, no_iommu: bool) -> Result<Arc<Self>, VfioError> {
        let mut groups = GROUPS.lock();
        let groups = groups.get_or_insert_default();
        if let Some(open) = groups.get(&number).and_then(Weak::upgrade) {
            return Ok(open);
        }
        let container = Arc::new(Self::open_new(sysfs, device, number, no_iommu)?);
        groups.insert(number, Arc::downgrade(&container));
        Ok(container)
    }

    fn open_new(sysfs: &Sysfs, device: &str, number: u32, no_iommu: bool) -> Result<Self, VfioError> {
        let open = |path: PathBuf, hint| {
            let file = OpenOptions::new().read(true).write(true).open(&path);
            file.map(OwnedFd::from).map_err(|e| VfioError::opening(device, path, e, hint))
        };
        let fd = open(sysfs.path("/dev/vfio/vfio"), CONTAINER_HINT)?;
        let failed = |name: &'static str| move |source| VfioError::call(device, name, source);
        let version = call_number(fd.as_fd(), uapi::VFIO_GET_API_VERSION, 0).map_err(failed("VFIO_GET_API_VERSION"))?;
        let back_end = if no_iommu { uapi::VFIO_NOIOMMU_IOMMU } else { uapi::VFIO_TYPE1V2_IOMMU };
        let extension = call_number(fd.as_fd(), uapi::VFIO_CHECK_EXTENSION, back_end);
        if version != uapi::VFIO_API_VERSION || extension.map_err(failed("VFIO_CHECK_EXTENSION"))? == 0 {
            let reason = if no_iommu {
                "the kernel was built without no-IOMMU mode (CONFIG_VFIO_NOIOMMU)".to_owned()
            } else {
                format!("the kernel has VFIO version {version} without type1v2; load vfio_iommu_type1")
            };
            return Err(VfioError::NoInterface { device: device.to_owned(), api: "VFIO by group", reason });
        }
        let node = if no_iommu { format!("/dev/vfio/noiommu-{number}") } else { format!("/dev/vfio/{number}") };
        let group = open(sysfs.path(node), GROUP_HINT)?;
        let mut status = uapi::GroupGetStatus::new();
        call(group.as_fd(), &mut status).map_err(failed("VFIO_GROUP_GET_STATUS"))?;
        if status.flags & uapi::VFIO_GROUP_FLAGS_VIABLE == 0 {
            let others = vec!["a device that is bound to a host driver".to_owned()];
            return Err(VfioError::NotViable { device: device.to_owned(), group: number, others });
        }
        let container_fd: libc::c_int = fd.as_raw_fd();
        // SAFETY: the request reads one descriptor number from the address.
        let set = unsafe { libc::ioctl(group.as_raw_fd(), uapi::VFIO_GROUP_SET_CONTAINER as _, &container_fd) };
        if set < 0 {
            return Err(VfioError::call(device, "VFIO_GROUP_SET_CONTAINER", io::Error::last_os_error()));
        }
        if let Err(source) = call_number(fd.as_fd(), uapi::VFIO_SET_IOMMU, back_end) {
            let hint = match source.raw_os_error() {
                Some(libc::EPERM) => {
                    "; the machine cannot remap interrupts: turn that on in its firmware, or allow it for vfio_iommu_type1 (allow_unsafe_interrupts=1)"
                }
                _ => "",
            };
            return Err(VfioError::Call { device: device.to_owned(), call: "VFIO_SET_IOMMU", source, hint });
        }
        let (addresses, entries) = if no_iommu { (None, 0) } else { Self::translation(fd.as_fd(), device)? };
        Ok(Self { number, group, fd, addresses, entries })
    }

    /// Reads the addresses that the IOMMU translates, and the largest number of mappings.
    fn translation(fd: BorrowedFd<'_>, device: &str) -> Result<(Option<Addresses>, u64), VfioError> {
        let answer = call_growing(fd, uapi::IommuGetInfo::new())
            .map_err(|source| VfioError::call(device, "VFIO_IOMMU_GET_INFO", source))?;
        let info: uapi::IommuGetInfo = bytemuck::pod_read_unaligned(&answer[..size_of::<uapi::IommuGetInfo>()]);
        let page = match info.flags & uapi::VFIO_IOMMU_INFO_PGSIZES != 0 && info.iova_pgsizes != 0 {
            true => 1 << info.iova_pgsizes.trailing_zeros(),
            false => SMALLEST_PAGE,
        };
        let first = if info.flags & uapi::VFIO_IOMMU_INFO_CAPS != 0 { info.cap_offset } else { 0 };
        let mut ranges = capability::find(&answer, first, uapi::VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE)
            .map(capability::iova_ranges)
            .unwrap_or_default();
        if ranges.is_empty() {
            // Kernels before 5.4 do not report ranges. x86 IOMMUs have at least 39 bits; the interrupt
            // message window is left out.
            ranges = vec![0..0xfee0_0000, 0xfef0_0000..1 << 39];
        }
        let entries = capability::find(&answer, first, uapi::VFIO_IOMMU_TYPE1_INFO_DMA_AVAIL)
            .and_then(capability::dma_available)
            .unwrap_or(u64::from(u16::MAX));
        tracing::debug!(device, page, ?ranges, entries, "VFIO type1");
        Ok((Some(Addresses::new(&ranges, page)), entries))
    }

    /// Returns a new descriptor of a device of the group.
    pub(super) fn device(&self, bdf: Bdf) -> Result<OwnedFd, VfioError> {
        let device = bdf.to_string();
        let name = CString::new(device.clone()).map_err(|_| VfioError::NoDevice { device: device.clone() })?;
        // SAFETY: the request reads a C string from the address.
        let fd = unsafe { libc::ioctl(self.group.as_raw_fd(), uapi::VFIO_GROUP_GET_DEVICE_FD as _, name.as_ptr()) };
        if fd < 0 {
            return Err(VfioError::call(&device, "VFIO_GROUP_GET_DEVICE_FD", io::Error::last_os_error()));
        }
        // SAFETY: a new descriptor that nothing else owns; VFIO sets its close-on-exec flag.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

impl fmt::Debug for Container {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Container(group {})", self.number)
    }
}

/// Address space of the container, for one of its devices.
#[derive(Debug)]
pub(super) struct Type1Map {
    container: Arc<Container>,
    bdf: Bdf,
    device: String,
}

impl Type1Map {
    pub(super) fn new(container: Arc<Container>, bdf: Bdf) -> Self {
        Self { container, bdf, device: bdf.to_string() }
    }

    fn addresses(&self) -> Result<&Addresses, IommuError> {
        self.container.addresses.as_ref().ok_or_else(|| IommuError::Unsupported {
            device: self.device.clone(),
            what: "translating addresses",
            kind: IommuKind::Type1,
            reason: "the group has no IOMMU".to_owned(),
        })
    }
}

impl IommuMap for Type1Map {
    fn allocate_iova(&self, bytes: u64, align: u64) -> Result<u64, IommuError> {
        self.addresses()?.take(&self.device, bytes, align)
    }

    fn free_iova(&self, iova: u64, bytes: u64) {
        if let Some(addresses) = &self.container.addresses {
            addresses.give_back(iova, bytes);
        }
    }

    unsafe fn map_host(&self, host: NonNull<u8>, bytes: u64, iova: u64, access: DmaAccess) -> Result<(), IommuError> {
        let addresses = self.addresses()?;
        addresses.check(&self.device, bytes, host.as_ptr() as u64)?;
        addresses.check(&self.device, bytes, iova)?;
        let mut map = uapi::IommuMapDma { vaddr: host.as_ptr() as u64, iova, size: bytes, ..uapi::IommuMapDma::new() };
        if access.reads() {
            map.flags |= uapi::VFIO_DMA_MAP_FLAG_READ;
        }
        if access.writes() {
            map.flags |= uapi::VFIO_DMA_MAP_FLAG_WRITE;
        }
        // The caller keeps the memory valid until it is unmapped.
        call(self.container.fd.as_fd(), &mut map).map(|_| ()).map_err(|source| match source.raw_os_error() {
            Some(libc::ENOSPC) => IommuError::NoEntry { device: self.device.clone(), limit: self.container.entries },
            _ => memlock::explain(IommuKind::Type1, &self.device, bytes, &source).unwrap_or_else(|| {
                let (device, call) = (self.device.clone(), "VFIO_IOMMU_MAP_DMA");
                IommuError::Refused { device, call, iova, bytes, source }
            }),
        })
    }

    fn map_dmabuf(
        &self,
        _fd: BorrowedFd<'_>,
        _offset: u64,
        _bytes: u64,
        _iova: u64,
        _access: DmaAccess,
    ) -> Result<(), IommuError> {
        Err(IommuError::Unsupported {
            device: self.device.clone(),
            what: "mapping a dma-buf",
            kind: IommuKind::Type1,
            reason: "it maps only memory that the CPU has mapped: map the buffer into the process first, or open the device with api=cdev".to_owned(),
        })
    }

    fn unmap(&self, iova: u64, bytes: u64) -> Result<(), IommuError> {
        let refused = |source| {
            let (device, call) = (self.device.clone(), "VFIO_IOMMU_UNMAP_DMA");
            IommuError::Refused { device, call, iova, bytes, source }
        };
        let mut unmap = uapi::IommuUnmapDma { iova, size: bytes, ..uapi::IommuUnmapDma::new() };
        call(self.container.fd.as_fd(), &mut unmap).map_err(refused)?;
        if unmap.size != bytes {
            return Err(refused(io::Error::other(format!("{} bytes were mapped there", unmap.size))));
        }
        Ok(())
    }

    fn page_bytes(&self) -> u64 {
        self.container.addresses.as_ref().map_or(SMALLEST_PAGE, Addresses::page)
    }

    fn kind(&self) -> IommuKind {
        IommuKind::Type1
    }

    fn bdf(&self) -> Bdf {
        self.bdf
    }

    fn name(&self) -> String {
        format!("vfio type1 (group {}) of {}", self.container.number, self.device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    /// Creates a map whose kernel knows no requests.
    fn map() -> Type1Map {
        let file = || OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let addresses = Some(Addresses::new(std::slice::from_ref(&(0..1 << 39)), SMALLEST_PAGE));
        let container = Container { number: 12, group: file(), fd: file(), addresses, entries: 0 };
        Type1Map::new(Arc::new(container), "0000:65:00.0".parse().unwrap())
    }

    /// The kernel does not count device memory, and this process cannot tell which memory belongs to a device.
    #[test]
    fn memory_is_the_kernels_to_refuse() {
        let mut limited = Command::new(std::env::current_exe().unwrap());
        limited.args(["--exact", "nvme::vfio::group::tests::with_nothing_left_to_lock", "--ignored", "--nocapture"]);
        let limit = || {
            const CAP_IPC_LOCK: libc::c_ulong = 14;
            let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            // SAFETY: two system calls with values and a structure that lives for the call. A process that may not drop
            // the capability does not have it either.
            unsafe {
                libc::prctl(libc::PR_CAPBSET_DROP, CAP_IPC_LOCK, 0, 0, 0);
                if libc::setrlimit(libc::RLIMIT_MEMLOCK, &none) != 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            Ok(())
        };
        // SAFETY: the closure makes two system calls and allocates nothing.
        let output = unsafe { limited.pre_exec(limit) }.output().unwrap();
        let said = [output.stderr, output.stdout].map(|b| String::from_utf8_lossy(&b).into_owned()).concat();
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
    }

    #[test]
    #[ignore = "another test starts it as a process"]
    fn with_nothing_left_to_lock() {
        let map = map();
        let mut page = vec![0u8; 2 * SMALLEST_PAGE as usize];
        let at = page.as_mut_ptr().align_offset(SMALLEST_PAGE as usize);
        let host = NonNull::new(page[at..].as_mut_ptr()).unwrap();
        let iova = map.allocate_iova(SMALLEST_PAGE, 1).unwrap();
        // SAFETY: the page lives, and nothing maps it.
        let refused = unsafe { map.map_host(host, SMALLEST_PAGE, iova, DmaAccess::ReadWrite) }.unwrap_err();
        assert_eq!(refused.errno(), Some(libc::ENOTTY), "{refused}");
    }
}
