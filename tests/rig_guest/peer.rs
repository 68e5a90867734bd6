//! Tests queues and data in the memory of another PCI device, the nearest equivalent of a GPU's BAR in an emulator.
//!
//! It proves that this driver asks VFIO correctly for a mapping of device memory. It also proves that queues, lists and
//! data work at the resulting addresses, and that nothing goes through host memory. It does not prove that a GPU driver
//! allows such a mapping. Nor does it show how a switch or root complex routes such transfers, or in which order a GPU
//! sees a device's writes.

use super::export::{self, PeerMemory, View};
use super::machine::{self, BOUND, MATE, PEER, bind};
use std::any::Any;
use std::fs::{self, OpenOptions};
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};
use warpbell::engine::Engine;
use warpbell::memory::{DmaAccess, DmaError, DmaRegion, IommuMap, Region, Space};
use warpbell::nvme::vfio::{self, Vfio, VfioApi, VfioConfig};
use warpbell::nvme::{Attachment, DmaSpace};
use warpbell::storage::{Drive, LandingChoice, Volume};

const PAGE: usize = 4096;
/// Bytes of the peer's BAR 2.
const BAR_BYTES: usize = 16 << 20;

/// The peer's BAR, mapped into this process and for the drive.
#[derive(Debug)]
struct Bar {
    base: NonNull<u8>,
    iova: u64,
    iommu: Arc<dyn IommuMap>,
    used: Mutex<usize>,
    /// Unmaps the BAR from this process.
    _owner: Box<dyn Any + Send + Sync>,
}

/// A mapping of the BAR through the kernel's own files in /sys.
struct Mapped(NonNull<u8>);

// SAFETY: an address.
unsafe impl Send for Mapped {}
// SAFETY: no access goes through a shared `Mapped`.
unsafe impl Sync for Mapped {}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: mapped in `Bar::map` with this length; every region in it holds a share of the `Bar`.
        unsafe { libc::munmap(self.0.as_ptr().cast(), BAR_BYTES) };
    }
}

// SAFETY: an address, and a length that is constant; holders of parts of it do the accesses.
unsafe impl Send for Bar {}
// SAFETY: no access goes through a shared `Bar`; holders of parts of it make theirs.
unsafe impl Sync for Bar {}

impl Bar {
    /// Maps the BAR for the drive by this process's mapping.
    fn map(iommu: Arc<dyn IommuMap>) -> Result<Self, String> {
        fs::write(machine::device(PEER).join("enable"), "1").unwrap();
        let file = OpenOptions::new().read(true).write(true).open(machine::device(PEER).join("resource2")).unwrap();
        let both = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new shared mapping of the whole BAR at an address of the kernel's choice.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), BAR_BYTES, both, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        assert_ne!(base, libc::MAP_FAILED);
        let base = NonNull::new(base.cast::<u8>()).unwrap();
        let owner = Box::new(Mapped(base));
        // Pages are mapped on the first access.
        // SAFETY: within the mapping.
        unsafe { std::ptr::write_bytes(base.as_ptr(), 0, BAR_BYTES) };
        let iova = iommu.allocate_iova(BAR_BYTES as u64, 2 << 20).unwrap();
        // SAFETY: the mapping stays until `Bar` is dropped, which unmaps it for the drive first.
        unsafe { iommu.map_host(base, BAR_BYTES as u64, iova, DmaAccess::ReadWrite) }.map_err(|e| e.to_string())?;
        Ok(Self { base, iova, iommu, used: Mutex::new(0), _owner: owner })
    }

    /// Maps the BAR for the drive by a dma-buf; `None` if the kernel exports none.
    fn export(iommu: Arc<dyn IommuMap>) -> Option<Self> {
        let memory = PeerMemory::open();
        assert_eq!(memory.bytes, BAR_BYTES);
        let buffer = export::dma_buf(&memory, BAR_BYTES)?;
        let view = View::new(&memory, 0, BAR_BYTES);
        let iova = iommu.allocate_iova(BAR_BYTES as u64, 2 << 20).unwrap();
        iommu.map_dmabuf(buffer.as_fd(), 0, BAR_BYTES as u64, iova, DmaAccess::ReadWrite).unwrap();
        println!("  dma-buf of {PEER} mapped at {iova:#x} through {}", iommu.name());
        Some(Self { base: view.base, iova, iommu, used: Mutex::new(0), _owner: Box::new((buffer, view)) })
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.iommu.unmap(self.iova, BAR_BYTES as u64).unwrap();
    }
}

/// DMA space whose memory is all the peer's.
#[derive(Debug)]
struct PeerSpace(Arc<Bar>);

impl DmaSpace for PeerSpace {
    fn allocate(&self, space: &Space, bytes: usize) -> Result<DmaRegion, DmaError> {
        let bytes = bytes.next_multiple_of(PAGE);
        let mut used = self.0.used.lock().unwrap();
        let offset = *used;
        if offset + bytes > BAR_BYTES {
            return Err(DmaError::Exhausted { device: PEER.to_owned(), bytes, free: BAR_BYTES - offset });
        }
        *used += bytes;
        // SAFETY: within the mapping.
        let base = unsafe { self.0.base.add(offset) };
        // SAFETY: the range is handed out once, and the mapping lives as long as the share that the region keeps.
        let region = unsafe { space.import_host(base, bytes, false, self.0.clone()) }?;
        let iova = self.0.iova + offset as u64;
        Ok(DmaRegion { region, offset: 0, bytes, iova, remote: None, guard: self.0.clone() })
    }

    fn map(&self, region: &Region) -> Result<DmaRegion, DmaError> {
        let base = self.0.base.as_ptr() as usize;
        let offset = region.host().map_or(usize::MAX, |p| (p.as_ptr() as usize).wrapping_sub(base));
        if offset.checked_add(region.len()).is_none_or(|end| end > BAR_BYTES) {
            let reason = "it is not the peer's memory".to_owned();
            return Err(DmaError::Unreachable { device: PEER.to_owned(), reason });
        }
        let iova = self.0.iova + offset as u64;
        Ok(DmaRegion {
            region: region.clone(),
            offset: 0,
            bytes: region.len(),
            iova,
            remote: None,
            guard: self.0.clone(),
        })
    }
}

#[test]
#[ignore = "needs the rig"]
fn queues_and_data_live_in_another_devices_memory() {
    machine::inside();
    bind(MATE);
    let api = if machine::vfio() == "group" { VfioApi::Group } else { VfioApi::Cdev };
    let opened = vfio::open(&VfioConfig::new(MATE.parse().unwrap()).api(api)).unwrap();
    let iommu = opened.attachment.dma.iommu().unwrap();
    let bar = match Bar::map(iommu) {
        Ok(bar) => Arc::new(bar),
        // iommufd takes device memory only as a dma-buf.
        Err(e) if api == VfioApi::Cdev => {
            println!("  refused, as expected of this kernel's iommufd: {e}");
            assert!(e.contains("IOMMU_IOAS_MAP") && e.contains(MATE), "{e}");
            return;
        }
        Err(e) => panic!("{e}"),
    };
    verify(&opened, &bar);
}

#[test]
#[ignore = "needs the rig"]
fn queues_and_data_live_behind_a_dma_buf_of_another_device() {
    machine::inside();
    assert_eq!(machine::vfio(), "iommufd", "only iommufd maps dma-bufs");
    bind(MATE);
    let opened = vfio::open(&VfioConfig::new(MATE.parse().unwrap()).api(VfioApi::Cdev)).unwrap();
    if let Some(bar) = Bar::export(opened.attachment.dma.iommu().unwrap()) {
        verify(&opened, &Arc::new(bar));
    }
}

/// Tests kernels that read and write with all of the drive's DMA memory in the BAR; the host reads what they wrote.
fn verify(opened: &Vfio, bar: &Arc<Bar>) {
    let attachment = Attachment { port: opened.attachment.port.clone(), dma: Arc::new(PeerSpace(bar.clone())) };
    let engine = Engine::cpu().unwrap();
    for landing in [LandingChoice::Direct, LandingChoice::Bounce] {
        let drive = Drive::attach(attachment.clone(), None).unwrap();
        let volume = Volume::on(&engine, [drive]).queues(2).depth(16).landing(landing).transfer(16384).build().unwrap();
        let before = *bar.used.lock().unwrap();
        let buffer = volume.allocate_data(1 << 20).unwrap();
        if landing == LandingChoice::Direct {
            let at = (buffer.address() as usize).wrapping_sub(bar.base.as_ptr() as usize);
            assert!(at < BAR_BYTES, "data is not in the peer's BAR");
            assert_eq!(*bar.used.lock().unwrap(), before + (1 << 20));
        }
        println!("  {volume}, {before} bytes of queues and lists in {PEER}");
        let data: Vec<u8> = (0..1u32 << 20).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 10) as u8).collect();
        buffer.write(0, &data).unwrap();
        volume.start_write(64, 2048, 32, &buffer).unwrap().finish_within(BOUND).unwrap();
        buffer.write(0, &vec![0; 1 << 20]).unwrap();
        volume.start_read(64, 2048, 32, &buffer).unwrap().finish_within(BOUND).unwrap();
        let mut out = vec![0; 1 << 20];
        buffer.read(0, &mut out).unwrap();
        assert!(out == data, "{landing:?}");
        volume.read_blocks(64, &mut out).unwrap();
        assert!(out == data, "{landing:?}: by the host");
    }
}
