//! Queues in a controller memory buffer. The buffer is heap memory whose device address equals its host address, so the
//! fake controller fetches commands that kernels stored there.

use super::fake::{CAP, Fake, Quirks};
use super::{SHORT, options};
use crate::memory::{DmaAccess, DmaError, DmaRegion, IommuError, IommuKind, IommuMap, MemoryError, Region, Space};
use crate::nvme::{
    Attachment, BarMapping, Controller, DmaSpace, DoorbellPages, HostQueue, NvmeError, Port, PortError, QueueOptions,
    Ready,
};
use crate::pci::Bdf;
use crate::wire::nvme::register;
use parking_lot::Mutex;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const BYTES: usize = 256 << 10;
/// CMBSZ: 64 units of 4 KiB, submission queues.
const SIZE: u32 = 64 << 12 | 1;
/// CMBLOC: one unit into BAR 2.
const LOCATION: u32 = 1 << 12 | 2;
const OFFSET: usize = 4096;
const CMBS: u64 = 1 << 57;
/// IOMMU page size in bytes, and the size of one submission ring in these tests.
const PAGE: u64 = 4096;

#[derive(Debug)]
struct WithBuffer {
    inner: Arc<Fake>,
    size: u32,
    mapped: bool,
    refuses: bool,
    control: [AtomicU32; 2],
    /// Offsets of the writes to the control register, in order.
    order: Mutex<Vec<u32>>,
    memory: Region,
}

impl WithBuffer {
    fn base(&self) -> u64 {
        let high = u64::from(self.control[1].load(Ordering::Relaxed));
        high << 32 | u64::from(self.control[0].load(Ordering::Relaxed) & !0xfff)
    }
}

impl Port for WithBuffer {
    fn read32(&self, offset: u32) -> Result<u32, PortError> {
        let shown = self.control[0].load(Ordering::Relaxed) & 1 != 0;
        match offset {
            register::CMBLOC if shown => Ok(LOCATION),
            register::CMBSZ if shown => Ok(self.size),
            register::CMBSTS => Ok(self.refuses.into()),
            _ => self.inner.read32(offset),
        }
    }
    fn write32(&self, offset: u32, value: u32) -> Result<(), PortError> {
        const HIGH: u32 = register::CMBMSC + 4;
        if let register::CMBMSC | HIGH = offset {
            self.order.lock().push(offset);
            self.control[usize::from(offset == HIGH)].store(value, Ordering::Relaxed);
            return Ok(());
        }
        self.inner.write32(offset, value)
    }
    fn doorbells(&self) -> Option<DoorbellPages> {
        None
    }
    fn name(&self) -> String {
        "fake".into()
    }
    fn kind(&self) -> &'static str {
        "fake"
    }
    fn memory(&self, bar: u8) -> Option<BarMapping> {
        let window = BarMapping { base: self.memory.host()?, bytes: BYTES + OFFSET, io_memory: true };
        (bar == 2 && self.mapped).then_some(window)
    }
}

/// Allocates the buffer's own address as its device address.
#[derive(Debug)]
struct Identity {
    inner: Arc<dyn DmaSpace>,
    base: u64,
    held: AtomicU32,
}

#[derive(Debug)]
struct WithIommu(Arc<Identity>);

impl DmaSpace for WithIommu {
    fn allocate(&self, space: &Space, bytes: usize) -> Result<DmaRegion, DmaError> {
        self.0.inner.allocate(space, bytes)
    }
    fn map(&self, region: &Region) -> Result<DmaRegion, DmaError> {
        self.0.inner.map(region)
    }
    fn iommu(&self) -> Option<Arc<dyn IommuMap>> {
        Some(self.0.clone())
    }
}

impl IommuMap for Identity {
    fn allocate_iova(&self, bytes: u64, align: u64) -> Result<u64, IommuError> {
        assert!(bytes == BYTES as u64 && self.base.is_multiple_of(align));
        self.held.fetch_add(1, Ordering::Relaxed);
        Ok(self.base)
    }
    fn free_iova(&self, iova: u64, bytes: u64) {
        assert_eq!((iova, bytes), (self.base, BYTES as u64));
        self.held.fetch_sub(1, Ordering::Relaxed);
    }
    unsafe fn map_host(&self, _: NonNull<u8>, _: u64, _: u64, _: DmaAccess) -> Result<(), IommuError> {
        unreachable!("the controller decodes its buffer itself")
    }
    fn map_dmabuf(&self, _: BorrowedFd<'_>, _: u64, _: u64, _: u64, _: DmaAccess) -> Result<(), IommuError> {
        unreachable!("as above")
    }
    fn unmap(&self, _: u64, _: u64) -> Result<(), IommuError> {
        unreachable!("as above")
    }
    fn page_bytes(&self) -> u64 {
        PAGE
    }
    fn kind(&self) -> IommuKind {
        IommuKind::Type1
    }
    fn bdf(&self) -> Bdf {
        "65:00.0".parse().unwrap()
    }
    fn name(&self) -> String {
        "identity".into()
    }
}

struct Rig {
    fake: Arc<Fake>,
    port: Arc<WithBuffer>,
    iommu: Arc<Identity>,
    controller: Arc<Controller<Ready>>,
}

fn rig(change: impl FnOnce(&mut WithBuffer)) -> Rig {
    let (fake, attachment) = Fake::new(Quirks { cap: CAP | CMBS, ..Quirks::default() });
    let memory = Space::cpu().allocate(crate::memory::Place::Host, BYTES + OFFSET).unwrap();
    let base = memory.address() + OFFSET as u64;
    let mut port = WithBuffer {
        inner: fake.clone(),
        size: SIZE,
        mapped: true,
        refuses: false,
        control: Default::default(),
        order: Mutex::default(),
        memory,
    };
    change(&mut port);
    let port = Arc::new(port);
    let iommu = Arc::new(Identity { inner: attachment.dma, base, held: AtomicU32::new(0) });
    let dma = Arc::new(WithIommu(iommu.clone()));
    let mut controller = Controller::new(Attachment { port: port.clone(), dma }).unwrap();
    controller.set_command_deadline(SHORT);
    let controller = Arc::new(controller.enable().map_err(|(_, e)| e).unwrap());
    Rig { fake, port, iommu, controller }
}

fn in_buffer(count: u32, depth: u32) -> QueueOptions {
    QueueOptions { submission_in_buffer: true, ..options(count, depth) }
}

/// If a previous driver's address stayed in effect, the controller would claim accesses to this process's memory.
#[test]
fn what_a_predecessor_has_set_up_is_hidden() {
    let r = rig(|port| port.control = [AtomicU32::new(0x1_0003), AtomicU32::new(1)]);
    assert_eq!(r.port.control.each_ref().map(|half| half.load(Ordering::Relaxed)), [0, 0]);
}

#[test]
fn submission_rings_are_in_the_buffer_and_completions_in_memory() {
    let r = rig(|_| ());
    let mut set = r.controller.create_queues(&Space::cpu(), in_buffer(3, 16)).unwrap();
    assert!(set.submission_in_buffer());
    let buffer = r.controller.memory_buffer().unwrap();
    assert_eq!((buffer.bytes(), buffer.base()), (BYTES as u64, r.iommu.base));
    assert_eq!(buffer.free_bytes(), BYTES as u64 - 3 * PAGE);
    assert_eq!(r.port.base(), r.iommu.base);
    // Controllers act on the low half, so it is always written last.
    assert!(r.port.order.lock().chunks(2).all(|w| *w == [register::CMBMSC + 4, register::CMBMSC]));
    for i in 0..3 {
        let q = super::queue_of(&set, i);
        let inside = r.iommu.base..r.iommu.base + BYTES as u64;
        assert!(inside.contains(&q.sq) && !inside.contains(&q.cq));
    }
    let ns = r.controller.namespace(1).unwrap();
    for i in [0, 2] {
        HostQueue::on(&mut set, i).unwrap().read(&ns, 0, &mut [0; 512]).unwrap();
    }
    assert_ne!(r.port.memory.get::<u64>(OFFSET + 2 * PAGE as usize).unwrap(), 0, "the command was stored there");
    drop(set);
    assert_eq!(buffer.free_bytes(), BYTES as u64);
    drop(buffer);
    assert_eq!(r.iommu.held.load(Ordering::Relaxed), 1);
    drop(r.controller);
    assert_eq!((r.iommu.held.load(Ordering::Relaxed), r.port.control[0].load(Ordering::Relaxed)), (0, 0));
    assert!(!r.fake.is_enabled());
}

#[test]
fn a_reset_tells_the_controller_the_address_again() {
    let r = rig(|_| ());
    let mut set = r.controller.create_queues(&Space::cpu(), in_buffer(1, 8)).unwrap();
    r.port.control.iter().for_each(|w| w.store(0, Ordering::Relaxed));
    r.controller.reset().unwrap();
    assert_eq!(r.port.base(), r.iommu.base);
    set.reset().unwrap();
    let ns = r.controller.namespace(1).unwrap();
    HostQueue::on(&mut set, 0).unwrap().read(&ns, 0, &mut [0; 512]).unwrap();
}

#[test]
fn a_buffer_that_cannot_be_used_says_why() {
    let refused = |change: fn(&mut WithBuffer)| {
        let r = rig(change);
        let e = r.controller.create_queues(&Space::cpu(), in_buffer(1, 8)).unwrap_err();
        assert!(matches!(e, NvmeError::NoMemoryBuffer { .. }), "{e}");
        assert_eq!((r.iommu.held.load(Ordering::Relaxed), r.controller.free_queues()), (0, 4));
        e.to_string()
    };
    assert!(refused(|p| p.size = 0).contains("no size"));
    assert!(refused(|p| p.size &= !1).contains("submission queues may not"));
    assert!(refused(|p| p.size = 65 << 12 | 1).contains("do not lie in"));
    assert!(refused(|p| p.mapped = false).contains("cannot map BAR 2"));
    assert!(refused(|p| p.refuses = true).contains("CMBSTS.CBAI"));
    let (_fake, controller) = super::ready(Quirks::default());
    assert!(controller.memory_buffer().unwrap_err().to_string().contains("CAP.CMBS is 0"));
    let r = rig(|_| ());
    let text = r.controller.create_queues(&Space::cpu(), in_buffer(1, 8192)).unwrap_err().to_string();
    assert!(text.contains("262144 bytes are free"), "{text}");
}

#[test]
fn memory_errors_are_not_hidden() {
    let r = rig(|_| ());
    let buffer = r.controller.memory_buffer().unwrap();
    let part = buffer.allocate("fake", &Space::cpu(), 8192).unwrap();
    assert!(matches!(part.region.get::<u64>(BYTES), Err(MemoryError::OutOfBounds { .. })));
    assert_eq!((part.iova, part.bytes), (r.iommu.base, 8192));
}
