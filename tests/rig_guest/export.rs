//! A device's memory as vfio-pci exports it: mapped into this process, and as a dma-buf that iommufd maps for another
//! device.

use super::machine::{self, BOUND, PEER, driver};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;

/// Requests of linux/vfio.h: `_IO(';', 100 + n)`.
const GET_REGION_INFO: libc::Ioctl = 0x3b6c;
const DEVICE_FEATURE: libc::Ioctl = 0x3b75;
const BIND_IOMMUFD: libc::Ioctl = 0x3b76;
/// VFIO_DEVICE_FEATURE_GET, and VFIO_DEVICE_FEATURE_DMA_BUF (Linux 6.19).
const FEATURE_GET: u32 = 1 << 16;
const FEATURE_DMA_BUF: u32 = 11;
/// BAR 2, and configuration space (VFIO_PCI_CONFIG_REGION_INDEX).
const BAR: u32 = 2;
const CONFIG: u32 = 7;
/// The command register, and its bit for memory accesses (PCI Local Bus 3.0, 6.2.2).
const COMMAND: u64 = 4;
const COMMAND_MEMORY: u16 = 2;

/// `struct vfio_region_info`
#[repr(C)]
#[derive(Default)]
struct RegionInfo {
    argsz: u32,
    flags: u32,
    index: u32,
    cap_offset: u32,
    size: u64,
    offset: u64,
}

/// `struct vfio_device_bind_iommufd`
#[repr(C)]
#[derive(Default)]
struct BindIommufd {
    argsz: u32,
    flags: u32,
    iommufd: i32,
    out_devid: u32,
}

/// `struct vfio_device_feature`, and after it `struct vfio_device_feature_dma_buf` with one range.
#[repr(C)]
struct FeatureDmaBuf {
    argsz: u32,
    flags: u32,
    region_index: u32,
    open_flags: u32,
    buffer_flags: u32,
    nr_ranges: u32,
    offset: u64,
    length: u64,
}

/// Makes a request that accesses no memory outside its structure.
fn call<T>(file: &File, request: libc::Ioctl, argument: &mut T) -> io::Result<i32> {
    // SAFETY: the structures here are the headers' with their own size in `argsz`, and name no other memory.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), request, std::ptr::from_mut(argument)) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// The peer device, bound to vfio-pci. The binding ends when all mappings are gone.
#[derive(Debug)]
pub struct PeerMemory {
    /// Closed by hand: the driver can be unbound only from a device that no process has open.
    device: ManuallyDrop<File>,
    _iommu: File,
    offset: u64,
    pub bytes: usize,
}

impl PeerMemory {
    pub fn open() -> Arc<Self> {
        let folder = machine::device(PEER);
        fs::write(folder.join("driver_override"), "vfio-pci").unwrap();
        fs::write("/sys/bus/pci/drivers_probe", PEER).unwrap();
        assert_eq!(driver(PEER).as_deref(), Some("vfio-pci"));
        let node = fs::read_dir(folder.join("vfio-dev")).unwrap().next().unwrap().unwrap().file_name();
        let open = |path: &Path| OpenOptions::new().read(true).write(true).open(path).unwrap();
        let (iommu, device) = (open("/dev/iommu".as_ref()), open(&Path::new("/dev/vfio/devices").join(node)));
        let argsz = size_of::<BindIommufd>() as u32;
        let mut bind = BindIommufd { argsz, iommufd: iommu.as_raw_fd(), ..Default::default() };
        call(&device, BIND_IOMMUFD, &mut bind).unwrap();
        let region = |index| {
            let mut info = RegionInfo { argsz: size_of::<RegionInfo>() as u32, index, ..Default::default() };
            call(&device, GET_REGION_INFO, &mut info).unwrap();
            info
        };
        let (config, bar) = (region(CONFIG), region(BAR));
        // vfio-pci exports only memory that is enabled.
        let at = config.offset + COMMAND;
        let mut command = [0; 2];
        device.read_exact_at(&mut command, at).unwrap();
        device.write_all_at(&(u16::from_le_bytes(command) | COMMAND_MEMORY).to_le_bytes(), at).unwrap();
        let (device, bytes) = (ManuallyDrop::new(device), bar.size as usize);
        Arc::new(Self { device, _iommu: iommu, offset: bar.offset, bytes })
    }

    /// Returns a dma-buf of the first bytes of the memory.
    ///
    /// # Errors
    ///
    /// Fails with the kernel's error if vfio-pci exports no dma-buf of this memory.
    pub fn dma_buf(&self, bytes: usize) -> io::Result<OwnedFd> {
        let mut feature = FeatureDmaBuf {
            argsz: size_of::<FeatureDmaBuf>() as u32,
            flags: FEATURE_GET | FEATURE_DMA_BUF,
            region_index: BAR,
            open_flags: (libc::O_RDWR | libc::O_CLOEXEC) as u32,
            buffer_flags: 0,
            nr_ranges: 1,
            offset: 0,
            length: bytes as u64,
        };
        let fd = call(&self.device, DEVICE_FEATURE, &mut feature)?;
        // SAFETY: a fresh descriptor without another owner.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }
}

impl Drop for PeerMemory {
    fn drop(&mut self) {
        // SAFETY: not used after this.
        unsafe { ManuallyDrop::drop(&mut self.device) };
        fs::write(machine::device(PEER).join("driver_override"), "\n").unwrap();
        fs::write(machine::device(PEER).join("driver/unbind"), PEER).unwrap();
        machine::until("the peer without a driver", BOUND, || driver(PEER).is_none().then_some(()));
    }
}

/// The peer's memory from its start, mapped into this process.
#[derive(Debug)]
pub struct View {
    pub base: NonNull<u8>,
    bytes: usize,
    _memory: Arc<PeerMemory>,
}

// SAFETY: an address and a length; holders of parts of it do the accesses.
unsafe impl Send for View {}
// SAFETY: no access goes through a shared `View`; holders of parts of it make theirs.
unsafe impl Sync for View {}

impl View {
    /// Maps the memory at `wish` if nothing is there yet, and zeroes it.
    pub fn new(memory: &Arc<PeerMemory>, wish: usize, bytes: usize) -> Self {
        let (both, fd) = (libc::PROT_READ | libc::PROT_WRITE, memory.device.as_raw_fd());
        let at = wish as *mut libc::c_void;
        // SAFETY: a new shared mapping; without MAP_FIXED it replaces nothing.
        let base = unsafe { libc::mmap(at, bytes, both, libc::MAP_SHARED, fd, memory.offset as libc::off_t) };
        assert_ne!(base, libc::MAP_FAILED, "{}", io::Error::last_os_error());
        let base = NonNull::new(base.cast::<u8>()).unwrap();
        // SAFETY: within the mapping.
        unsafe { std::ptr::write_bytes(base.as_ptr(), 0, bytes) };
        Self { base, bytes, _memory: memory.clone() }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

/// Returns a dma-buf of the peer's memory. Returns `None`, after a check of the error, if this kernel's vfio-pci
/// exports none.
pub fn dma_buf(memory: &PeerMemory, bytes: usize) -> Option<OwnedFd> {
    const FIRST: (u32, u32) = (6, 19);
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse::<u32>().unwrap());
    let kernel = (numbers.next().unwrap(), numbers.next().unwrap());
    match memory.dma_buf(bytes) {
        Ok(buffer) => Some(buffer),
        Err(e) if kernel < FIRST => {
            println!("  no dma-buf, as expected of Linux {}: {e}", release.trim());
            assert_eq!(e.raw_os_error(), Some(libc::ENOTTY));
            None
        }
        Err(e) => panic!("Linux {}: VFIO_DEVICE_FEATURE_DMA_BUF: {e}", release.trim()),
    }
}
