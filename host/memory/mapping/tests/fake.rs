//! A machine with fake kernel modules, IOMMU and device. GPU memory is heap memory; its bus address is its address plus
//! [`BUS`]. [`Machine::left`] lists what is still open, pinned or mapped.

use super::super::dmabuf_import::{self, Attach};
use super::super::gdrdrv::{self, PinBuffer, UnpinBuffer, Version};
use super::super::iommu_map_pa::{self, MapPa, UnmapPa};
use super::super::libnvm::{self, MapMemory};
use super::super::{DmaBufExport, GPU_PAGE, MappingDevice, Probe, ProbeError, Syscalls};
use crate::memory::{DmaAccess, DmaRegion, IommuError, IommuKind, IommuMap, MemoryError, Region, Space};
use crate::pci::Bdf;
use parking_lot::{Mutex, MutexGuard};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::{BTreeMap, HashMap};
use std::ffi::c_void;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::Arc;
use std::thread::ThreadId;

/// Offset between the bus addresses of GPU memory and the addresses that kernels use.
pub const BUS: u64 = 0x1000_0000_0000;
/// First descriptor of fake files. Real descriptors are smaller.
const FIRST_FD: RawFd = 1 << 20;
const PAGE: u64 = 4096;

/// Faults that the fake machine injects.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    /// Error numbers of `open`, by file.
    pub open: HashMap<&'static str, i32>,
    /// Error numbers of ioctl requests, by request.
    pub request: HashMap<u32, i32>,
    /// Error number of mapping a dma-buf, or gdrdrv's memory, into the CPU.
    pub map: Option<i32>,
    /// Error number of IOMMU mappings.
    pub iommu: Option<i32>,
    /// True if CPU mappings show other memory.
    pub wrong_view: bool,
    /// Bytes by which the device's writes miss their target.
    pub astray: u64,
    /// True if the device reads zeroes.
    pub reads_nothing: bool,
    /// True if the second GPU page lies elsewhere on the bus.
    pub gap: bool,
    /// True if modules return addresses for only a part of the memory.
    pub short: bool,
    /// Version word of gdrdrv.
    pub version: Option<u32>,
    /// True if the device does not complete commands and may still write.
    pub hangs: bool,
    /// True if the processor encrypts memory.
    pub encrypts_memory: bool,
    /// Page size of the host, if it is not 4096.
    pub host_page: Option<u64>,
}

#[derive(Debug, Default)]
struct State {
    faults: Faults,
    next: u64,
    files: HashMap<RawFd, &'static str>,
    /// gdrdrv: handle to address and length.
    pins: HashMap<u64, (u64, u64)>,
    cpu_maps: HashMap<u64, usize>,
    /// libnvm: address to length and owner.
    nvm: HashMap<u64, (u64, ThreadId)>,
    /// dmabuf_import: file and buffer to address and length.
    attached: HashMap<(RawFd, RawFd), (u64, u64)>,
    /// iommu_map_pa: handle to its pages.
    entered: HashMap<u64, Vec<u64>>,
    /// dma-bufs by inode.
    buffers: HashMap<u64, (u64, u64)>,
    /// The IOMMU: device page to address.
    table: BTreeMap<u64, u64>,
    ranges: HashMap<u64, u64>,
}

/// The fake machine. `new` names the loaded modules.
#[derive(Clone)]
pub struct Machine(Arc<Inner>);

struct Inner {
    modules: Vec<&'static str>,
    state: Mutex<State>,
    elsewhere: Vec<u64>,
}

impl fmt::Debug for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Machine({:?})", self.0.modules)
    }
}

fn error(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

/// Memory that starts on a GPU page.
struct Aligned(NonNull<u8>, Layout);
// SAFETY: an address and a layout.
unsafe impl Send for Aligned {}
// SAFETY: no access goes through a shared `Aligned`.
unsafe impl Sync for Aligned {}

impl Drop for Aligned {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.0.as_ptr(), self.1) };
    }
}

pub fn gpu_memory(bytes: usize) -> Region {
    let layout = Layout::from_size_align(bytes, GPU_PAGE).unwrap();
    // SAFETY: not of size zero.
    let base = NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap();
    // SAFETY: the region keeps the memory.
    unsafe { Space::cpu().import_host(base, bytes, false, Arc::new(Aligned(base, layout))) }.unwrap()
}

impl Machine {
    pub fn new(modules: &[&'static str], faults: Faults) -> Self {
        let state = Mutex::new(State { faults, next: 1, ..State::default() });
        Self(Arc::new(Inner { modules: modules.to_vec(), state, elsewhere: vec![0; GPU_PAGE] }))
    }

    pub fn sys(&self) -> Arc<dyn Syscalls> {
        Arc::new(self.clone())
    }

    pub fn device(&self, kind: Option<IommuKind>) -> MappingDevice {
        let iommu = kind.map(|kind| Arc::new(FakeIommu { machine: self.clone(), kind }) as Arc<dyn IommuMap>);
        MappingDevice { name: "0000:65:00.0".into(), bdf: Some("0000:65:00.0".parse().unwrap()), iommu }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock()
    }

    /// Lists the resources that were not released.
    pub fn left(&self) -> Vec<String> {
        let s = self.state();
        let mut left = Vec::new();
        let mut note = |what: &str, count: usize| {
            if count > 0 {
                left.push(format!("{count} {what}"));
            }
        };
        note("files", s.files.len());
        note("pins", s.pins.len());
        note("CPU mappings", s.cpu_maps.len());
        note("libnvm mappings", s.nvm.len());
        note("attachments", s.attached.len());
        note("entered mappings", s.entered.len());
        note("IOMMU pages", s.table.len());
        note("IOMMU ranges", s.ranges.len());
        left
    }

    fn buffer(&self, fd: RawFd) -> io::Result<(u64, u64)> {
        // SAFETY: a descriptor that the caller holds, borrowed for this call.
        let ino = File::from(unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned()?).metadata()?.ino();
        self.state().buffers.get(&ino).copied().ok_or_else(|| error(libc::EINVAL))
    }

    /// Returns the memory address that a device access to `iova` reaches.
    fn resolve(&self, iova: u64, translated: bool) -> Option<u64> {
        let s = self.state();
        match translated {
            true => s.table.get(&(iova / PAGE * PAGE)).map(|to| to + iova % PAGE),
            false => Some(iova - BUS),
        }
    }
}

impl DmaBufExport for Machine {
    fn export(&self, region: &Region) -> Result<OwnedFd, MemoryError> {
        let file = tempfile::tempfile().unwrap();
        self.state().buffers.insert(file.metadata().unwrap().ino(), (region.address(), region.len() as u64));
        Ok(file.into())
    }
}

impl Syscalls for Machine {
    fn page_bytes(&self) -> u64 {
        self.state().faults.host_page.unwrap_or(PAGE)
    }

    fn encrypts_memory(&self) -> bool {
        self.state().faults.encrypts_memory
    }

    fn open(&self, path: &Path) -> io::Result<RawFd> {
        let mut s = self.state();
        let Some(&module) = self.0.modules.iter().find(|m| Path::new(m) == path) else {
            return Err(error(libc::ENOENT));
        };
        if let Some(&code) = s.faults.open.get(module) {
            return Err(error(code));
        }
        s.next += 1;
        let fd = FIRST_FD + s.next as RawFd;
        s.files.insert(fd, module);
        Ok(fd)
    }

    unsafe fn ioctl(&self, fd: RawFd, request: u32, argument: *mut c_void) -> io::Result<i32> {
        let module = *self.state().files.get(&fd).ok_or_else(|| error(libc::EBADF))?;
        if let Some(&code) = self.state().faults.request.get(&request) {
            return Err(error(code));
        }
        // SAFETY: the mapping backends pass the structure of the request, which the arms name.
        unsafe {
            match (module, request) {
                ("/dev/gdrdrv", gdrdrv::GET_VERSION) => {
                    let module = self.state().faults.version.unwrap_or(0x2_0005);
                    *argument.cast() = Version { module, least_api: 0x2_0000 };
                }
                ("/dev/gdrdrv", gdrdrv::PIN_BUFFER) => {
                    let pin = &mut *argument.cast::<PinBuffer>();
                    assert!(pin.addr.is_multiple_of(GPU_PAGE as u64) && pin.p2p_token == 0 && pin.va_space == 0);
                    let mut s = self.state();
                    s.next += 1;
                    pin.handle = s.next;
                    let handle = pin.handle;
                    s.pins.insert(handle, (pin.addr, pin.size));
                }
                ("/dev/gdrdrv", gdrdrv::UNPIN_BUFFER) => {
                    let handle = (*argument.cast::<UnpinBuffer>()).handle;
                    self.state().pins.remove(&handle).ok_or_else(|| error(libc::EINVAL))?;
                }
                ("/dev/libnvm0", libnvm::MAP_DEVICE_MEMORY) => {
                    let map = *argument.cast::<MapMemory>();
                    let mut s = self.state();
                    for i in 0..map.n_pages {
                        let far = if s.faults.gap && i > 0 { BUS } else { 0 };
                        *map.ioaddrs.add(i) = map.vaddr_start + BUS + far + (i * GPU_PAGE) as u64;
                    }
                    s.nvm.insert(map.vaddr_start, ((map.n_pages * GPU_PAGE) as u64, std::thread::current().id()));
                }
                ("/dev/libnvm0", libnvm::UNMAP_MEMORY) => {
                    let address = *argument.cast::<u64>();
                    let mut s = self.state();
                    match s.nvm.get(&address) {
                        Some((_, owner)) if *owner == std::thread::current().id() => s.nvm.remove(&address),
                        _ => return Err(error(libc::EINVAL)),
                    };
                }
                ("/dev/dmabuf_import", dmabuf_import::ATTACH) => {
                    let attach = &mut *argument.cast::<Attach>();
                    let (address, bytes) = self.buffer(attach.fd)?;
                    attach.count = (bytes / GPU_PAGE as u64) as u32;
                    self.state().attached.insert((fd, attach.fd), (address, bytes));
                }
                ("/dev/dmabuf_import", dmabuf_import::GET_MAP) => {
                    let header = *argument.cast::<Attach>();
                    let s = self.state();
                    let (address, bytes) = *s.attached.get(&(fd, header.fd)).ok_or_else(|| error(libc::EINVAL))?;
                    let pages = (bytes / GPU_PAGE as u64).min(header.count.into()) as usize;
                    for i in 0..pages - usize::from(s.faults.short) {
                        let far = if s.faults.gap && i > 0 { BUS } else { 0 };
                        let piece = argument.cast::<u64>().add(1 + 2 * i);
                        *piece = address + BUS + far + (i * GPU_PAGE) as u64;
                        *piece.add(1) = GPU_PAGE as u64;
                    }
                }
                ("/dev/dmabuf_import", dmabuf_import::DETACH) => {
                    let buffer = *argument.cast::<i32>();
                    self.state().attached.remove(&(fd, buffer)).ok_or_else(|| error(libc::EINVAL))?;
                }
                ("/dev/iommu_map_pa", iommu_map_pa::MAP_PA) => {
                    let map = &mut *argument.cast::<MapPa>();
                    if !map.bdf.starts_with(b"0000:65:00.0\0") || map.reserved != [0; 2] {
                        return Err(error(libc::EINVAL));
                    }
                    self.buffer(map.dmabuf_fd)?;
                    let physical = std::slice::from_raw_parts(map.user_phys_ptr as *const u64, map.nphys as usize);
                    let mut s = self.state();
                    let mut pages = Vec::new();
                    for (i, bus) in physical.iter().enumerate() {
                        for at in (0..u64::from(map.page_size)).step_by(PAGE as usize) {
                            let iova = map.iova_base + i as u64 * u64::from(map.page_size) + at;
                            assert!(s.table.insert(iova, bus + at - BUS).is_none(), "mapped twice");
                            pages.push(iova);
                        }
                    }
                    s.next += 1;
                    map.map_handle = s.next;
                    let handle = map.map_handle;
                    s.entered.insert(handle, pages);
                }
                ("/dev/iommu_map_pa", iommu_map_pa::UNMAP_PA) => {
                    let handle = (*argument.cast::<UnmapPa>()).map_handle;
                    let mut s = self.state();
                    let pages = s.entered.remove(&handle).ok_or_else(|| error(libc::ENOENT))?;
                    pages.iter().for_each(|p| _ = s.table.remove(p));
                }
                _ => return Err(error(libc::ENOTTY)),
            }
        }
        Ok(0)
    }

    fn map(&self, fd: RawFd, offset: u64, bytes: usize) -> io::Result<NonNull<u8>> {
        if let Some(code) = self.state().faults.map {
            return Err(error(code));
        }
        // As offset, the module takes its handle, counted in pages.
        let handle = offset / self.page_bytes();
        let pinned = self.state().pins.get(&handle).copied();
        let (address, length) = match pinned {
            Some(pin) => pin,
            None => self.buffer(fd)?,
        };
        if bytes as u64 != length {
            return Err(error(libc::EINVAL));
        }
        let mut s = self.state();
        let address = if s.faults.wrong_view { self.0.elsewhere.as_ptr() as u64 } else { address };
        s.cpu_maps.insert(address, bytes);
        NonNull::new(address as *mut u8).ok_or_else(|| error(libc::EFAULT))
    }

    unsafe fn unmap(&self, base: NonNull<u8>, bytes: usize) -> io::Result<()> {
        let was = self.state().cpu_maps.remove(&(base.as_ptr() as u64));
        if was == Some(bytes) { Ok(()) } else { Err(error(libc::EINVAL)) }
    }

    fn close(&self, fd: RawFd) {
        let mut s = self.state();
        assert!(s.files.remove(&fd).is_some(), "closed twice");
        s.attached.retain(|(file, _), _| *file != fd);
    }
}

#[derive(Debug)]
struct FakeIommu {
    machine: Machine,
    kind: IommuKind,
}

impl FakeIommu {
    fn enter(&self, iova: u64, address: u64, bytes: u64) -> Result<(), IommuError> {
        let mut s = self.machine.state();
        if let Some(code) = s.faults.iommu {
            let (device, call) = ("0000:65:00.0".to_owned(), "map");
            return Err(IommuError::Refused { device, call, iova, bytes, source: error(code) });
        }
        for at in (0..bytes).step_by(PAGE as usize) {
            assert!(s.table.insert(iova + at, address + at).is_none(), "mapped twice");
        }
        Ok(())
    }
}

impl IommuMap for FakeIommu {
    fn allocate_iova(&self, bytes: u64, align: u64) -> Result<u64, IommuError> {
        let mut s = self.machine.state();
        s.next += 1;
        let iova = (s.next << 32).next_multiple_of(align);
        s.ranges.insert(iova, bytes);
        Ok(iova)
    }
    fn free_iova(&self, iova: u64, bytes: u64) {
        let mut s = self.machine.state();
        assert_eq!(s.ranges.remove(&iova), Some(bytes));
        assert_eq!(s.table.range(iova..iova + bytes).count(), 0, "given back while mapped");
    }
    unsafe fn map_host(&self, host: NonNull<u8>, bytes: u64, iova: u64, access: DmaAccess) -> Result<(), IommuError> {
        assert!(access.reads() && access.writes() && self.kind == IommuKind::Type1);
        self.enter(iova, host.as_ptr() as u64, bytes)
    }
    fn map_dmabuf(
        &self,
        fd: BorrowedFd<'_>,
        offset: u64,
        bytes: u64,
        iova: u64,
        _access: DmaAccess,
    ) -> Result<(), IommuError> {
        assert_eq!((self.kind, offset), (IommuKind::Iommufd, 0));
        let (address, length) = self.machine.buffer(fd.as_raw_fd()).unwrap();
        assert_eq!(length, bytes);
        self.enter(iova, address, bytes)
    }
    fn unmap(&self, iova: u64, bytes: u64) -> Result<(), IommuError> {
        let mut s = self.machine.state();
        for at in (0..bytes).step_by(PAGE as usize) {
            assert!(s.table.remove(&(iova + at)).is_some(), "not mapped");
        }
        Ok(())
    }
    fn page_bytes(&self) -> u64 {
        PAGE
    }
    fn kind(&self) -> IommuKind {
        self.kind
    }
    fn bdf(&self) -> Bdf {
        "0000:65:00.0".parse().unwrap()
    }
    fn name(&self) -> String {
        format!("vfio {} of 0000:65:00.0", self.kind)
    }
}

/// A device, with or without an IOMMU in front of it.
pub struct Device {
    pub machine: Machine,
    pub translated: bool,
}

impl Probe for Device {
    fn device_writes(&self, mapping: &DmaRegion, offset: usize) -> Result<(), ProbeError> {
        let faults = self.machine.state().faults.clone();
        if faults.hangs {
            return Err(ProbeError { reason: "no completion".into(), still_in_use: true });
        }
        let to = self.machine.resolve(mapping.iova + offset as u64, self.translated);
        let to = to.ok_or_else(|| ProbeError::differs("the IOMMU faulted"))? + faults.astray;
        let pattern: Vec<u8> = (0..PAGE).map(|i| (i * 7 + offset as u64) as u8).collect();
        if faults.astray < GPU_PAGE as u64 {
            // SAFETY: memory of the region under test, which is longer than the stray writes reach.
            unsafe { std::ptr::copy_nonoverlapping(pattern.as_ptr(), to as *mut u8, pattern.len()) };
        }
        let mut seen = vec![0; pattern.len()];
        mapping.region.read(offset, &mut seen).unwrap();
        if seen == pattern { Ok(()) } else { Err(ProbeError::differs("kernels see other bytes")) }
    }

    fn device_reads(&self, mapping: &DmaRegion, offset: usize) -> Result<(), ProbeError> {
        mapping.region.set(offset, 0x1122_3344_5566_7788u64).unwrap();
        let from = self.machine.resolve(mapping.iova + offset as u64, self.translated).unwrap();
        // SAFETY: memory of the region under test.
        let seen = unsafe { (from as *const u64).read_volatile() };
        let seen = if self.machine.state().faults.reads_nothing { 0 } else { seen };
        if seen == 0x1122_3344_5566_7788 { Ok(()) } else { Err(ProbeError::differs("the device reads other bytes")) }
    }
}
