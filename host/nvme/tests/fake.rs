//! A minimal controller for registers and admin behaviour that well-behaved controllers do not show. Its device
//! addresses are the process's own addresses.

use crate::memory::{DmaError, DmaRegion, Place, Region, Space};
use crate::nvme::{Attachment, DmaSpace, DoorbellPages, PciId, Port, PortError};
use crate::wire::nvme::{CqEntry, SqEntry, Status, admin, cc, csts, feature, register, status};
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;

/// Deviations of the fake controller.
#[derive(Clone, Debug)]
pub(super) struct Quirks {
    pub cap: u64,
    pub version: u32,
    /// Number of CSTS reads from EN until RDY follows; `None` for never.
    pub ready_after: Option<u32>,
    /// True to report CFS instead of becoming ready.
    pub fatal_on_enable: bool,
    /// True if a previous driver left the controller enabled.
    pub left_enabled: bool,
    /// Opcodes of admin commands that get no completion until `release_lost`.
    pub lose: Vec<u8>,
    /// True if I/O commands get no completion. With `aborts`, Abort ends them.
    pub lose_io: bool,
    pub aborts: bool,
    /// Number of queue pairs to grant.
    pub queues: u32,
    /// True if CSTS.SHST never reports completion.
    pub never_shut_down: bool,
    /// Bytes of Identify Controller that are not zero: offset and value.
    pub identify: Vec<(usize, u8)>,
    /// Identifiers of the PCI function that it reports.
    pub pci_id: Option<PciId>,
    /// Value of CRTO.
    pub crto: u32,
    /// Largest number of event requests in flight.
    pub event_requests: usize,
    /// True if it signals interrupts by MSI-X.
    pub msix: bool,
}

/// Interrupt Mask Set and Clear (NVMe Base 2.1, figure 33: offsets Ch and 10h).
const INTERRUPT_MASKS: std::ops::RangeInclusive<u32> = 0x0c..=0x10;

/// CAP with TO of 500 ms, and support for any depth.
pub(super) const CAP: u64 = 0xffff | 1 << 16 | 1 << 24 | 1 << 37;

impl Default for Quirks {
    fn default() -> Self {
        Self {
            cap: CAP,
            version: 0x1_0400,
            ready_after: Some(0),
            fatal_on_enable: false,
            left_enabled: false,
            lose: Vec::new(),
            lose_io: false,
            aborts: true,
            queues: 4,
            never_shut_down: false,
            identify: Vec::new(),
            pci_id: None,
            crto: 0,
            event_requests: 4,
            msix: false,
        }
    }
}

#[derive(Debug, Default)]
struct Queue {
    sq: u64,
    depth: u32,
    head: u32,
    cq: u64,
    cq_tail: u32,
    phase: bool,
    has_sq: bool,
}

#[derive(Debug, Default)]
struct State {
    cc: u32,
    csts: u32,
    aqa: u32,
    asq: u64,
    acq: u64,
    polls: u32,
    gone: bool,
    queues: HashMap<u16, Queue>,
    /// Commands without completion: queue and command.
    lost: Vec<(u16, SqEntry)>,
    /// True if registers read as zero, as they do on some virtual machines after the device has left.
    blank: bool,
    /// Event requests in flight.
    events: Vec<SqEntry>,
    /// Opcodes of all admin commands that were executed.
    log: Vec<u8>,
    writes: u32,
    /// Writes to the interrupt masks: offset and value.
    masked: Vec<(u32, u32)>,
    /// Number of accesses to the interrupt masks while MSI-X is in use. Their effect is undefined.
    undefined: u32,
}

#[derive(Debug)]
pub(super) struct Fake {
    quirks: Mutex<Quirks>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct Identity;

impl DmaSpace for Identity {
    fn allocate(&self, space: &Space, bytes: usize) -> Result<DmaRegion, DmaError> {
        self.map(&space.allocate(Place::Host, bytes)?)
    }
    fn map(&self, region: &Region) -> Result<DmaRegion, DmaError> {
        let (bytes, iova) = (region.len(), region.address());
        Ok(DmaRegion { region: region.clone(), offset: 0, bytes, iova, remote: None, guard: region.owner() })
    }
}

impl Fake {
    pub(super) fn new(quirks: Quirks) -> (Arc<Self>, Attachment) {
        let state = State {
            cc: if quirks.left_enabled { cc::EN } else { 0 },
            csts: if quirks.left_enabled { csts::RDY } else { 0 },
            ..State::default()
        };
        let fake = Arc::new(Self { quirks: Mutex::new(quirks), state: Mutex::new(state) });
        (fake.clone(), Attachment { port: fake, dma: Arc::new(Identity) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    pub(super) fn with_quirks(&self, change: impl FnOnce(&mut Quirks)) {
        change(&mut self.quirks.lock());
    }

    pub(super) fn disappear(&self) {
        self.state().gone = true;
    }

    pub(super) fn go_blank(&self) {
        self.state().blank = true;
    }

    /// Reports an event. Returns true if an event request was in flight.
    pub(super) fn report(&self, event: u32) -> bool {
        let mut s = self.state();
        let Some(request) = s.events.pop() else { return false };
        complete(&mut s, 0, &request, event, status::SUCCESS);
        true
    }

    pub(super) fn waiting_requests(&self) -> usize {
        self.state().events.len()
    }

    /// Puts the registers into the state that a driver left that died while it enabled the
    /// controller: CC.EN without CSTS.RDY.
    pub(super) fn half_enabled(&self) {
        let mut s = self.state();
        (s.cc, s.csts) = (cc::EN, 0);
    }

    /// Disables the controller, as another driver would.
    pub(super) fn steal(&self) {
        self.enable(&mut self.state(), 0);
    }

    pub(super) fn fail(&self) {
        self.state().csts |= csts::CFS;
    }

    pub(super) fn is_enabled(&self) -> bool {
        self.state().cc & cc::EN != 0
    }

    pub(super) fn register_writes(&self) -> u32 {
        self.state().writes
    }

    pub(super) fn interrupt_masks(&self) -> (Vec<(u32, u32)>, u32) {
        let s = self.state();
        (s.masked.clone(), s.undefined)
    }

    pub(super) fn admin_log(&self) -> Vec<u8> {
        self.state().log.clone()
    }

    /// Returns the number of I/O completion queues, and of those with a submission queue.
    pub(super) fn io_queues(&self) -> (usize, usize) {
        let s = self.state();
        (s.queues.keys().filter(|k| **k != 0).count(), s.queues.iter().filter(|(k, q)| **k != 0 && q.has_sq).count())
    }

    /// Completes the commands that got no completion, late.
    pub(super) fn release_lost(&self) {
        let mut s = self.state();
        for (queue, entry) in std::mem::take(&mut s.lost) {
            complete(&mut s, queue, &entry, 0, status::SUCCESS);
        }
    }

    /// Writes a completion for a command that was never submitted.
    pub(super) fn stray(&self, queue: u16, cid: u16) {
        complete(&mut self.state(), queue, &SqEntry::new(0, cid, 0), 0, status::SUCCESS);
    }

    fn submitted(&self, s: &mut State, id: u16, tail: u32) {
        loop {
            let Some(q) = s.queues.get_mut(&id) else { return };
            if q.head == tail {
                return;
            }
            // SAFETY: DMA addresses are host addresses of live rings in these tests.
            let entry = unsafe { std::ptr::read_volatile((q.sq as *const SqEntry).add(q.head as usize)) };
            q.head = (q.head + 1) % q.depth;
            let quirks = self.quirks.lock().clone();
            if if id == 0 { quirks.lose.contains(&entry.opcode()) } else { quirks.lose_io } {
                s.lost.push((id, entry));
                continue;
            }
            if id == 0 && entry.opcode() == admin::ASYNC_EVENT_REQUEST && s.events.len() < quirks.event_requests {
                s.log.push(entry.opcode());
                s.events.push(entry);
                continue;
            }
            let (result, status) = if id == 0 { self.admin(s, &entry, &quirks) } else { (0, status::SUCCESS) };
            complete(s, id, &entry, result, status);
        }
    }

    fn admin(&self, s: &mut State, entry: &SqEntry, quirks: &Quirks) -> (u32, Status) {
        s.log.push(entry.opcode());
        let id = entry.cdw10 as u16;
        let depth = (entry.cdw10 >> 16) + 1;
        match entry.opcode() {
            admin::IDENTIFY => {
                let mut bytes = [0u8; 4096];
                bytes[4..8].copy_from_slice(b"FAKE");
                if entry.cdw10 == 1 {
                    quirks.identify.iter().for_each(|(at, value)| bytes[*at] = *value);
                }
                if entry.cdw10 == 0 {
                    if entry.nsid > 2 {
                        return (0, status::INVALID_NAMESPACE.dnr());
                    }
                    bytes[..8].copy_from_slice(&1000u64.to_le_bytes());
                    bytes[130] = 9;
                }
                // SAFETY: `prp1` is the address of the driver's data page.
                unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), entry.prp1 as *mut u8, 4096) };
                (0, status::SUCCESS)
            }
            admin::SET_FEATURES if entry.cdw10 as u8 == feature::ASYNC_EVENT_CONFIG => (0, status::SUCCESS),
            admin::ASYNC_EVENT_REQUEST => (0, status::ASYNC_EVENT_LIMIT.dnr()),
            admin::SET_FEATURES if entry.cdw10 as u8 == feature::NUMBER_OF_QUEUES => {
                ((quirks.queues - 1) << 16 | (quirks.queues - 1), status::SUCCESS)
            }
            admin::CREATE_CQ => {
                s.queues.insert(id, Queue { cq: entry.prp1, depth, phase: true, ..Queue::default() });
                (0, status::SUCCESS)
            }
            admin::CREATE_SQ => match s.queues.get_mut(&id) {
                Some(q) => {
                    (q.sq, q.has_sq) = (entry.prp1, true);
                    (0, status::SUCCESS)
                }
                None => (0, status::INVALID_CQ),
            },
            admin::DELETE_SQ => match s.queues.get_mut(&id).filter(|q| q.has_sq) {
                Some(q) => {
                    q.has_sq = false;
                    (0, status::SUCCESS)
                }
                None => (0, status::INVALID_QUEUE_ID),
            },
            admin::DELETE_CQ => match s.queues.get(&id) {
                Some(q) if q.has_sq => (0, status::INVALID_QUEUE_DELETION),
                Some(_) => {
                    s.queues.remove(&id);
                    (0, status::SUCCESS)
                }
                None => (0, status::INVALID_QUEUE_ID),
            },
            admin::ABORT => {
                let cid = (entry.cdw10 >> 16) as u16;
                let found = s.lost.iter().position(|(q, e)| (*q, e.cid()) == (id, cid)).filter(|_| quirks.aborts);
                match found {
                    Some(i) => {
                        let (queue, lost) = s.lost.remove(i);
                        complete(s, queue, &lost, 0, status::ABORT_REQUESTED);
                        (0, status::SUCCESS)
                    }
                    None => (1, status::SUCCESS),
                }
            }
            _ => (0, status::INVALID_OPCODE.dnr()),
        }
    }

    fn enable(&self, s: &mut State, value: u32) {
        let was = s.cc & cc::EN != 0;
        s.cc = value;
        let quirks = self.quirks.lock();
        if value & cc::EN != 0 && !was {
            s.polls = 0;
            s.queues.clear();
            s.lost.clear();
            s.events.clear();
            let depth = (s.aqa & 0xfff) + 1;
            s.queues.insert(0, Queue { sq: s.asq, cq: s.acq, depth, phase: true, has_sq: true, ..Queue::default() });
            if quirks.fatal_on_enable {
                s.csts |= csts::CFS;
            }
        } else if value & cc::EN == 0 {
            s.csts = 0;
            s.queues.clear();
        }
        if value & cc::SHN_MASK != 0 && !quirks.never_shut_down {
            s.csts |= csts::SHST_COMPLETE;
        }
    }
}

fn complete(s: &mut State, id: u16, entry: &SqEntry, result: u32, status: Status) {
    let Some(q) = s.queues.get_mut(&id) else { return };
    let done = CqEntry::new(result, q.head as u16, id, entry.cid(), q.phase, status);
    // SAFETY: DMA addresses are host addresses of live rings in these tests. A volatile store of the entry writes the
    // last word, which the driver polls, in one access.
    unsafe { std::ptr::write_volatile((q.cq as *mut CqEntry).add(q.cq_tail as usize), done) };
    q.cq_tail += 1;
    if q.cq_tail == q.depth {
        q.cq_tail = 0;
        q.phase = !q.phase;
    }
}

impl Port for Fake {
    fn read32(&self, offset: u32) -> Result<u32, PortError> {
        let mut s = self.state();
        if s.gone {
            return Ok(u32::MAX);
        }
        if s.blank {
            return Ok(0);
        }
        let quirks = self.quirks.lock();
        if INTERRUPT_MASKS.contains(&offset) && quirks.msix {
            s.undefined += 1;
        }
        Ok(match offset {
            register::CRTO => quirks.crto,
            register::CAP => quirks.cap as u32,
            0x04 => (quirks.cap >> 32) as u32,
            register::VS => quirks.version,
            register::CC => s.cc,
            register::CSTS => {
                if s.cc & cc::EN != 0 && s.csts & (csts::RDY | csts::CFS) == 0 {
                    s.polls += 1;
                    if quirks.ready_after.is_some_and(|n| s.polls > n) {
                        s.csts |= csts::RDY;
                    }
                }
                s.csts
            }
            _ => 0,
        })
    }

    fn write32(&self, offset: u32, value: u32) -> Result<(), PortError> {
        let mut s = self.state();
        s.writes += 1;
        if s.gone || s.blank {
            return Ok(());
        }
        if INTERRUPT_MASKS.contains(&offset) {
            s.undefined += u32::from(self.quirks.lock().msix);
            s.masked.push((offset, value));
        }
        match offset {
            register::CC => self.enable(&mut s, value),
            register::AQA => s.aqa = value,
            register::ASQ => s.asq = s.asq >> 32 << 32 | u64::from(value),
            0x2c => s.asq = s.asq & 0xffff_ffff | u64::from(value) << 32,
            register::ACQ => s.acq = s.acq >> 32 << 32 | u64::from(value),
            0x34 => s.acq = s.acq & 0xffff_ffff | u64::from(value) << 32,
            register::DOORBELLS.. => {
                let step = 4u32 << (self.quirks.lock().cap >> 32 & 0xf);
                let at = offset - register::DOORBELLS;
                assert!(at.is_multiple_of(step), "doorbell {offset:#x} does not lie on the stride");
                let index = at / step;
                if index.is_multiple_of(2) {
                    self.submitted(&mut s, (index / 2) as u16, value);
                }
            }
            _ => {}
        }
        Ok(())
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

    fn uses_msix(&self) -> bool {
        self.quirks.lock().msix
    }

    fn pci_id(&self) -> Option<PciId> {
        self.quirks.lock().pci_id
    }
}
