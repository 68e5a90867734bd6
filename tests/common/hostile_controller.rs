//! A controller whose registers, completions and data are arbitrary bytes. For any input, the driver ends every call in
//! time, with a result or with an error of one line, and accesses no memory but its own.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use warpbell::memory::{DmaError, DmaRegion, Place, Region, Space};
use warpbell::nvme::{
    Attachment, Controller, DmaSpace, DoorbellPages, HostQueue, HostQueueOptions, NvmeError, PciId, Port, PortError,
    QueueOptions, Ready, RecoveryPolicy,
};
use warpbell::wire::nvme::{CqEntry, SqEntry, Status, admin, cc, csts, register};

/// Long enough for a controller that replies at once, short enough to run many inputs.
const DEADLINE: Duration = Duration::from_millis(2);
/// Longer than any operation of one input takes.
const BOUND: Duration = Duration::from_secs(60);
/// CAP with small queues, TO of 500 ms and the NVM command set.
const CAP: u64 = 63 | 1 << 16 | 1 << 24 | 1 << 37;
const PAGE: usize = 4096;

/// Arbitrary bytes, used one after the other.
struct Bytes {
    left: Vec<u8>,
}

impl Bytes {
    /// Returns `None` once there are no more bytes: from then on the device is gone.
    fn byte(&mut self) -> Option<u8> {
        self.left.pop()
    }
    fn word(&mut self) -> Option<u32> {
        let mut take = || self.byte().map(u32::from);
        Some(take()? | take()? << 8 | take()? << 16 | take()? << 24)
    }
}

#[derive(Default)]
struct Ring {
    sq: u64,
    cq: u64,
    entries: u32,
    head: u32,
    cq_tail: u32,
    phase: bool,
}

struct State {
    bytes: Bytes,
    cc: u32,
    aqa: u32,
    asq: u64,
    acq: u64,
    rings: HashMap<u16, Ring>,
    /// Memory that the device may address, as behind an IOMMU.
    mapped: Vec<Region>,
}

struct Hostile(Mutex<State>);

impl std::fmt::Debug for Hostile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hostile")
    }
}

impl State {
    /// Returns the region that holds these bytes, and the offset there.
    fn reach(&self, iova: u64, bytes: usize) -> Option<(&Region, usize)> {
        self.mapped.iter().find_map(|r| {
            let offset = usize::try_from(iova.checked_sub(r.address())?).ok()?;
            (offset.checked_add(bytes)? <= r.len()).then_some((r, offset))
        })
    }

    fn write(&self, iova: u64, data: &[u8]) {
        if let Some((region, offset)) = self.reach(iova, data.len()) {
            region.write(offset, data).expect("within the region");
        }
    }

    fn complete(&mut self, id: u16, entry: CqEntry) {
        let Some(ring) = self.rings.get_mut(&id) else { return };
        let at = ring.cq + u64::from(ring.cq_tail) * size_of::<CqEntry>() as u64;
        ring.cq_tail += 1;
        if ring.cq_tail >= ring.entries {
            ring.cq_tail = 0;
            ring.phase = !ring.phase;
        }
        self.write(at, bytemuck::bytes_of(&entry));
    }

    /// Takes the entries that a tail announces, and completes them as the bytes say.
    fn submitted(&mut self, id: u16, tail: u32) {
        // At most a ring's worth, whatever the tail says.
        for _ in 0..self.rings.get(&id).map_or(0, |r| r.entries) {
            let Some(ring) = self.rings.get_mut(&id) else { return };
            if ring.head == tail % ring.entries.max(1) {
                return;
            }
            let at = ring.sq + u64::from(ring.head) * size_of::<SqEntry>() as u64;
            ring.head = (ring.head + 1) % ring.entries;
            let (head, phase) = (ring.head as u16, ring.phase);
            let Some((region, offset)) = self.reach(at, size_of::<SqEntry>()) else { return };
            let entry: SqEntry = region.get(offset).expect("within the region");
            let Some(choice) = self.bytes.byte() else { return };
            let (mut result, mut status) = (3 << 16 | 3, Status(0));
            if id == 0 {
                self.admin(&entry, choice);
            } else if choice & 0x80 != 0 {
                self.scribble(entry.prp1);
            }
            let answer = |result, status, cid| CqEntry::new(result, head, id, cid, phase, status);
            match choice % 12 {
                0..=5 => self.complete(id, answer(result, status, entry.cid())),
                6 => {
                    let Some(word) = self.bytes.word() else { return };
                    (result, status) = (word, Status((word >> 3) as u16 & 0x7fff));
                    self.complete(id, answer(result, status, entry.cid()));
                }
                7 => {}
                8 => {
                    let Some(word) = self.bytes.word() else { return };
                    self.complete(id, answer(word, status, word as u16));
                }
                9 => {
                    let words = [0; 4].map(|_: u32| self.bytes.word().unwrap_or(u32::MAX));
                    self.complete(id, bytemuck::must_cast(words));
                }
                10 => {
                    let (first, second) = (answer(result, status, entry.cid()), answer(0, status, entry.cid()));
                    self.complete(id, first);
                    let phase = self.rings.get(&id).is_some_and(|r| r.phase);
                    self.complete(
                        id,
                        CqEntry { status: second.status & !(1 << 16) | u32::from(phase) << 16, ..second },
                    );
                }
                _ => {
                    // A whole ring of new completions.
                    for _ in 0..self.rings.get(&id).map_or(0, |r| r.entries) {
                        let phase = self.rings.get(&id).is_some_and(|r| r.phase);
                        let one = answer(result, status, entry.cid());
                        self.complete(id, CqEntry { status: one.status & !(1 << 16) | u32::from(phase) << 16, ..one });
                    }
                }
            }
        }
    }

    /// Writes a page of data: mostly zeros and values that a driver looks for, in part arbitrary.
    fn scribble(&mut self, iova: u64) {
        let mut page = [0; PAGE];
        let Some(count) = self.bytes.byte() else { return };
        for _ in 0..count % 32 {
            let (Some(at), Some(value)) = (self.bytes.word(), self.bytes.byte()) else { break };
            page[at as usize % PAGE] = value;
        }
        self.write(iova, &page);
    }

    fn admin(&mut self, entry: &SqEntry, choice: u8) {
        let id = entry.cdw10 as u16;
        let entries = (entry.cdw10 >> 16) + 1;
        match entry.opcode() {
            admin::IDENTIFY | admin::GET_LOG_PAGE if choice & 0x40 != 0 => self.scribble(entry.prp1),
            admin::IDENTIFY => {
                let mut page = [0; PAGE];
                match entry.cdw10 & 0xff {
                    0 => {
                        page[..8].copy_from_slice(&1000u64.to_le_bytes());
                        page[130] = 9 + choice % 4;
                    }
                    1 => {
                        (page[77], page[512], page[513], page[520], page[525]) =
                            (choice % 8, 0x66, 0x44, 0x0c, choice & 1);
                        page[262] = choice;
                        page[261] = choice & 4;
                    }
                    2 => page[..8].copy_from_slice(&[1, 0, 0, 0, 3, 0, 0, 0]),
                    _ => {}
                }
                self.write(entry.prp1, &page);
            }
            admin::CREATE_CQ => {
                self.rings.insert(id, Ring { cq: entry.prp1, entries, phase: true, ..Ring::default() });
            }
            admin::CREATE_SQ => {
                if let Some(ring) = self.rings.get_mut(&id) {
                    ring.sq = entry.prp1;
                }
            }
            admin::DELETE_CQ => drop(self.rings.remove(&id)),
            _ => {}
        }
    }

    fn read(&mut self, offset: u32) -> u32 {
        // The device is gone once there are no more bytes, so that everything ends.
        let Some(choice) = self.bytes.byte() else { return u32::MAX };
        match choice {
            0..=239 => {}
            240..=243 => return 0,
            244..=246 => return u32::MAX,
            _ => return self.bytes.word().unwrap_or(u32::MAX),
        }
        match offset {
            register::CAP => CAP as u32,
            0x04 => (CAP >> 32) as u32,
            register::VS => 0x0001_0400,
            register::CC => self.cc,
            register::CSTS => {
                let shut_down = if self.cc & cc::SHN_MASK != 0 { csts::SHST_COMPLETE } else { 0 };
                self.cc & cc::EN | shut_down
            }
            _ => 0,
        }
    }

    fn store(&mut self, offset: u32, value: u32) {
        let halves = |old: u64, high: bool| match high {
            true => old & 0xffff_ffff | u64::from(value) << 32,
            false => old >> 32 << 32 | u64::from(value),
        };
        match offset {
            register::CC => {
                if value & cc::EN != 0 && self.cc & cc::EN == 0 {
                    self.rings.clear();
                    let entries = (self.aqa & 0xfff) + 1;
                    let (sq, cq) = (self.asq, self.acq);
                    self.rings.insert(0, Ring { sq, cq, entries, phase: true, ..Ring::default() });
                }
                self.cc = value;
            }
            register::AQA => self.aqa = value,
            register::ASQ => self.asq = halves(self.asq, false),
            0x2c => self.asq = halves(self.asq, true),
            register::ACQ => self.acq = halves(self.acq, false),
            0x34 => self.acq = halves(self.acq, true),
            register::DOORBELLS.. => {
                let index = (offset - register::DOORBELLS) / 4;
                if index.is_multiple_of(2) {
                    self.submitted((index / 2) as u16, value);
                }
            }
            _ => {}
        }
    }
}

impl Hostile {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }
}

impl Port for Hostile {
    fn read32(&self, offset: u32) -> Result<u32, PortError> {
        Ok(self.state().read(offset))
    }
    fn write32(&self, offset: u32, value: u32) -> Result<(), PortError> {
        self.state().store(offset, value);
        Ok(())
    }
    fn doorbells(&self) -> Option<DoorbellPages> {
        None
    }
    fn name(&self) -> String {
        "hostile".to_owned()
    }
    fn kind(&self) -> &'static str {
        "hostile"
    }
    fn pci_id(&self) -> Option<PciId> {
        // An identifier of a controller that lists its namespaces one by one.
        self.state().bytes.byte().filter(|b| *b > 200).map(|_| PciId { vendor: 0x8086, device: 0x5845 })
    }
}

/// DMA space whose addresses are the process's own. The device does not reach unmapped memory.
#[derive(Debug)]
struct Identity(Arc<Hostile>);

impl DmaSpace for Identity {
    fn allocate(&self, space: &Space, bytes: usize) -> Result<DmaRegion, DmaError> {
        self.map(&space.allocate(Place::Host, bytes)?)
    }
    fn map(&self, region: &Region) -> Result<DmaRegion, DmaError> {
        self.0.state().mapped.push(region.clone());
        let (bytes, iova) = (region.len(), region.address());
        Ok(DmaRegion { region: region.clone(), offset: 0, bytes, iova, remote: None, guard: Arc::new(region.clone()) })
    }
}

/// Runs one input.
///
/// # Panics
/// When the driver does what it must not: an error of several lines, or a call that takes too long.
pub fn run(input: &[u8]) {
    let started = Instant::now();
    let left: Vec<u8> = input.iter().rev().copied().collect();
    let state = State {
        bytes: Bytes { left },
        cc: u32::from(input.first().is_some_and(|b| b & 1 != 0)),
        aqa: 0,
        asq: 0,
        acq: 0,
        rings: HashMap::new(),
        mapped: Vec::new(),
    };
    let port = Arc::new(Hostile(Mutex::new(state)));
    let attachment = Attachment { port: port.clone(), dma: Arc::new(Identity(port.clone())) };
    if let Err(e) = drive(attachment, &port) {
        let text = e.to_string();
        assert!(!text.is_empty() && !text.contains('\n'), "{text}");
    }
    assert!(started.elapsed() < BOUND, "took {:?}", started.elapsed());
}

/// Returns the value of a result. Success or failure does not matter, only that the call ended.
fn note<T>(result: Result<T, NvmeError>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(e) => {
            assert!(!e.to_string().contains('\n'), "{e}");
            None
        }
    }
}

fn drive(attachment: Attachment, port: &Arc<Hostile>) -> Result<(), NvmeError> {
    let mut controller = Controller::new(attachment)?;
    controller.set_command_deadline(DEADLINE);
    let controller = controller.enable().map_err(|(_, e)| e)?;
    look(&controller);
    let controller = Arc::new(controller);
    queues(&controller, port);
    note(controller.reset());
    look(&controller);
    queues(&controller, port);
    match Arc::try_unwrap(controller) {
        Ok(controller) => controller.shutdown().map(drop),
        // A queue that was not deleted keeps its share.
        Err(_) => Ok(()),
    }
}

fn look(controller: &Controller<Ready>) {
    note(controller.check());
    note(controller.health());
    note(controller.error_log());
    note(controller.firmware_slots());
    note(controller.changed_namespaces());
    note(controller.watch_events());
    note(controller.write_cache());
    note(controller.limits());
    note(controller.feature(1));
    for event in note(controller.events()).unwrap_or_default() {
        assert!(!event.to_string().is_empty());
    }
    // A hostile controller may name any number of namespaces; each costs a command.
    for nsid in note(controller.namespaces()).unwrap_or_default().into_iter().take(3) {
        note(controller.namespace(nsid));
    }
}

fn queues(controller: &Arc<Controller<Ready>>, port: &Arc<Hostile>) {
    let choose = || port.state().bytes.byte().unwrap_or(0);
    let options = QueueOptions::default().count(1 + u32::from(choose() % 3)).depth(2 << (choose() % 4));
    if let Some(mut set) = note(controller.create_queues(&Space::cpu(), options)) {
        note(controller.recover(&mut [&mut set], &RecoveryPolicy::default()));
        note(set.check());
    }
    let options = HostQueueOptions::default().depth(4 << (choose() % 3)).bytes_per_command(512 << (choose() % 6));
    let Some(mut queue) = note(HostQueue::create(controller, options)) else { return };
    queue.set_deadline(DEADLINE);
    let mut policy = if choose() & 1 == 0 { RecoveryPolicy::default() } else { RecoveryPolicy::requeue() };
    policy.abort_grace = DEADLINE;
    queue.set_recovery(policy);
    let Some(namespace) = note(controller.namespace(1)) else { return };
    let mut data = vec![0; 24 << 10];
    note(queue.write(&namespace, 3, &data));
    note(queue.read(&namespace, 5, &mut data));
    note(queue.flush_always(&namespace));
    note(queue.write_zeroes(&namespace, 1..9, true));
    note(queue.deallocate(&namespace, &[0..4, 8..9]));
    note(queue.recover());
    note(queue.read(&namespace, 0, &mut data[..4096]));
    if let Some(cid) = queue.reserve() {
        note(queue.execute(cid, SqEntry::new(choose(), cid, 1)));
        note(queue.take_buffer(cid, &mut data[..512]));
        queue.release(cid);
    }
}
