//! Tests mapping backends with another PCI device's memory instead of a GPU's: a module that maps this memory, and
//! dma-bufs of it that vfio-pci exports. VFIO's mapping and the controller's read-backs are real.

use super::export::{self, PeerMemory, View as Given};
use super::machine::{self, MATE, PEER, bind};
use std::ffi::c_void;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use warpbell::memory::mapping::{
    BackendChoice, DmaBufExport, MappingBackend, MappingBackends, MappingDevice, MappingError, SCRATCH_BYTES, Syscalls,
};
use warpbell::memory::{MemoryError, Region, Space};
use warpbell::nvme::Controller;
use warpbell::nvme::vfio::{self, VfioApi, VfioConfig};

/// A descriptor number that no file has.
const MODULE: RawFd = 1 << 20;
/// GDRDRV_IOC_PIN_BUFFER, _UNPIN_BUFFER and _GET_VERSION (gdrdrv.h).
const PIN: u32 = 0xc028_da01;
const UNPIN: u32 = 0xc008_da02;
const VERSION: u32 = 0xc008_daff;
/// Offset of the handle in the structure of PIN.
const HANDLE: usize = 32;

/// An address aligned to a GPU's page. Memory there looks like a GPU's.
const GPU_LIKE: usize = 0x6000_0000_0000;

/// A mapping of the peer's memory from its start.
struct View(NonNull<u8>, usize);
// SAFETY: an address and a length.
unsafe impl Send for View {}
// SAFETY: no access goes through a shared `View`.
unsafe impl Sync for View {}

impl View {
    /// Maps the memory at `wish` if nothing is there yet.
    fn new(wish: usize, bytes: usize) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(machine::device(PEER).join("resource2"))?;
        let both = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new shared mapping; without MAP_FIXED it replaces nothing.
        let base = unsafe { libc::mmap(wish as *mut c_void, bytes, both, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        match NonNull::new(base.cast()) {
            Some(p) if base != libc::MAP_FAILED => Ok(Self(p, bytes)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // SAFETY: mapped in `new` with this length.
        unsafe { libc::munmap(self.0.as_ptr().cast(), self.1) };
    }
}

/// Simulates gdrdrv, as if the peer were a GPU.
#[derive(Debug)]
struct Module;

impl Syscalls for Module {
    fn open(&self, path: &Path) -> io::Result<RawFd> {
        if path == Path::new("/dev/gdrdrv") { Ok(MODULE) } else { Err(io::Error::from_raw_os_error(libc::ENOENT)) }
    }
    unsafe fn ioctl(&self, fd: RawFd, request: u32, argument: *mut c_void) -> io::Result<i32> {
        assert_eq!(fd, MODULE);
        match request {
            // SAFETY: two words of the request's structure.
            VERSION => unsafe { argument.cast::<[u32; 2]>().write([0x2_0005, 0x2_0000]) },
            // SAFETY: the handle lies within the request's structure.
            PIN => unsafe { argument.byte_add(HANDLE).cast::<u64>().write(0) },
            UNPIN => {}
            other => panic!("request {other:#x}"),
        }
        Ok(0)
    }
    fn map(&self, fd: RawFd, offset: u64, bytes: usize) -> io::Result<NonNull<u8>> {
        assert_eq!((fd, offset), (MODULE, 0));
        let view = std::mem::ManuallyDrop::new(View::new(0, bytes)?);
        Ok(view.0)
    }
    unsafe fn unmap(&self, base: NonNull<u8>, bytes: usize) -> io::Result<()> {
        drop(View(base, bytes));
        Ok(())
    }
    fn close(&self, fd: RawFd) {
        assert_eq!(fd, MODULE);
    }
}

#[derive(Debug)]
struct NoBuffers;

impl DmaBufExport for NoBuffers {
    fn export(&self, region: &Region) -> Result<OwnedFd, MemoryError> {
        region.export_dma_buf()
    }
}

/// Returns memory of the peer that starts on a page of 64 KiB, as kernels would see it.
fn memory(bytes: usize) -> Region {
    let view = Arc::new(View::new(GPU_LIKE, bytes).unwrap());
    // SAFETY: the view is mapped as long as the region keeps it.
    unsafe { Space::cpu().import_host(view.0, bytes, false, view.clone()) }.unwrap()
}

#[test]
#[ignore = "needs the rig"]
fn a_mapping_of_another_devices_memory_is_read_back() {
    machine::inside();
    bind(MATE);
    fs::write(machine::device(PEER).join("enable"), "1").unwrap();
    let group = machine::vfio() == "group";
    let api = if group { VfioApi::Group } else { VfioApi::Cdev };
    let opened = vfio::open(&VfioConfig::new(MATE.parse().unwrap()).api(api)).unwrap();
    let iommu = opened.attachment.dma.iommu();
    let controller = Controller::new(opened.attachment.clone()).unwrap().enable().map_err(|(_, e)| e).unwrap();
    let device = MappingDevice { name: MATE.to_owned(), bdf: Some(MATE.parse().unwrap()), iommu };
    let backends = MappingBackends::with(
        Arc::new(Module),
        Arc::new(NoBuffers),
        device,
        BackendChoice::Only(MappingBackend::Gdrdrv),
    );
    let scratch = memory(SCRATCH_BYTES);
    let chosen = backends.choose(&scratch, &controller.read_back());
    for attempt in backends.attempts() {
        println!("  {attempt}");
    }
    match chosen {
        Ok(backend) => {
            assert!(group && backend == MappingBackend::Gdrdrv);
            let mapping = backends.map(&scratch, &controller.read_back()).unwrap();
            assert_eq!(mapping.bytes, SCRATCH_BYTES);
        }
        Err(MappingError::MappingBackend { reason, next, .. }) => {
            assert!(!group && reason.contains("only VFIO type1") && next.contains("group"), "{reason}; {next}");
        }
        Err(other) => panic!("{other}"),
    }
}

/// A file at gdrdrv's path that can be opened: the choice of an interface tests for it.
struct Beside;

impl Beside {
    const FILE: &str = "/dev/gdrdrv";

    fn new() -> Self {
        fs::write(Self::FILE, "").unwrap();
        Self
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        fs::remove_file(Self::FILE).unwrap();
    }
}

/// Tests that the default interface is the one through which gdrdrv's mapping can be mapped, and that the mapping
/// works.
#[test]
#[ignore = "needs the rig"]
fn beside_gdrdrv_the_group_is_taken_and_its_mapping_is_read_back() {
    machine::inside();
    bind(MATE);
    fs::write(machine::device(PEER).join("enable"), "1").unwrap();
    let auto = VfioConfig::new(MATE.parse().unwrap());
    {
        let _beside = Beside::new();
        let opened = vfio::open(&auto).unwrap();
        println!("  {MATE} is opened by {}", opened.api);
        let iommu = opened.attachment.dma.iommu();
        let controller = Controller::new(opened.attachment.clone()).unwrap().enable().map_err(|(_, e)| e).unwrap();
        let device = MappingDevice { name: MATE.to_owned(), bdf: Some(auto.bdf), iommu };
        let backends = MappingBackends::with(Arc::new(Module), Arc::new(NoBuffers), device, BackendChoice::Auto);
        let scratch = memory(SCRATCH_BYTES);
        let chosen = backends.choose(&scratch, &controller.read_back());
        for attempt in backends.attempts() {
            println!("  {attempt}");
        }
        assert_eq!((opened.api, chosen.unwrap()), (VfioApi::Group, MappingBackend::Gdrdrv));
        assert_eq!(backends.map(&scratch, &controller.read_back()).unwrap().bytes, SCRATCH_BYTES);
    }
    let newer = if machine::vfio() == "group" { VfioApi::Group } else { VfioApi::Cdev };
    assert_eq!(vfio::open(&auto).unwrap().api, newer);
}

/// Exports dma-bufs of the peer's memory for regions at its start.
#[derive(Debug)]
struct PeerBuffers(Arc<PeerMemory>);

impl DmaBufExport for PeerBuffers {
    fn export(&self, region: &Region) -> Result<OwnedFd, MemoryError> {
        Ok(self.0.dma_buf(region.len()).unwrap())
    }
}

#[test]
#[ignore = "needs the rig"]
fn a_dma_buf_of_another_device_is_read_back() {
    machine::inside();
    assert_eq!(machine::vfio(), "iommufd", "only iommufd maps dma-bufs");
    bind(MATE);
    let memory = PeerMemory::open();
    if export::dma_buf(&memory, SCRATCH_BYTES).is_none() {
        return;
    }
    let opened = vfio::open(&VfioConfig::new(MATE.parse().unwrap()).api(VfioApi::Cdev)).unwrap();
    let iommu = opened.attachment.dma.iommu();
    let controller = Controller::new(opened.attachment.clone()).unwrap().enable().map_err(|(_, e)| e).unwrap();
    let device = MappingDevice { name: MATE.to_owned(), bdf: Some(MATE.parse().unwrap()), iommu };
    let buffers = Arc::new(PeerBuffers(memory.clone()));
    let backends =
        MappingBackends::with(Arc::new(Module), buffers, device, BackendChoice::Only(MappingBackend::Iommufd));
    let view = Arc::new(Given::new(&memory, GPU_LIKE, SCRATCH_BYTES));
    // SAFETY: the view is mapped as long as the region keeps it.
    let scratch = unsafe { Space::cpu().import_host(view.base, SCRATCH_BYTES, false, view.clone()) };
    let scratch = Arc::new(scratch.unwrap());
    let backend = backends.choose(&scratch, &controller.read_back()).unwrap();
    for attempt in backends.attempts() {
        println!("  {attempt}");
    }
    assert_eq!(backend, MappingBackend::Iommufd);
    let mapping = backends.map(&scratch, &controller.read_back()).unwrap();
    assert_eq!(mapping.bytes, SCRATCH_BYTES);
}
