//! A driver small enough to be obviously correct, built on the public interface alone: registers, rings, PRPs.
//!
//! The benchmark and the fuzz target include this file too, so it names the crate as they do.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use warpbell::memory::{DmaRegion, Space};
use warpbell::nvme::Attachment;
use warpbell::soft::nvme::{SoftConfig, SoftController};
use warpbell::wire::nvme::{Cap, CqEntry, SqEntry, Status, admin, cc, csts, register, status};

pub const PAGE: usize = 4096;
/// Far longer than any step takes; only a hang reaches it.
pub const DEADLINE: Duration = Duration::from_secs(120);

/// Waits for something that must happen: busily at first, then with pauses, which leave the processor to others.
pub fn until(what: &str, mut happened: impl FnMut() -> bool) {
    let (end, mut rounds) = (Instant::now() + DEADLINE, 0u64);
    while !happened() {
        assert!(Instant::now() < end, "still waiting for {what}");
        rounds += 1;
        if rounds < 1000 { std::thread::yield_now() } else { std::thread::sleep(Duration::from_micros(50)) }
    }
}

/// One queue pair.
pub struct Pair {
    pub id: u16,
    pub sq: DmaRegion,
    pub cq: DmaRegion,
    pub entries: u32,
    pub tail: u32,
    pub head: u32,
    pub phase: bool,
    /// True to store doorbells to memory, as kernels do, instead of writing the register.
    pub by_memory: bool,
    next_cid: u16,
}

impl Pair {
    /// Places an entry without writing the doorbell.
    pub fn place(&mut self, e: SqEntry) {
        self.sq.region.set(self.tail as usize * 64, e).unwrap();
        self.tail = (self.tail + 1) % self.entries;
    }

    pub fn ring(&self, driver: &Driver) {
        driver.doorbell(register::sq_tail(self.id, driver.stride), self.tail, self.by_memory);
    }

    /// Returns the next completion, if there is one.
    pub fn poll(&mut self, driver: &Driver) -> Option<CqEntry> {
        let at = self.cq.host().unwrap().as_ptr().cast::<CqEntry>().wrapping_add(self.head as usize);
        // SAFETY: the entry's last dword, inside the region and aligned to 4; the controller writes it meanwhile, hence
        // an atomic load.
        let last = unsafe { AtomicU32::from_ptr(at.cast::<u32>().add(3)) };
        // The phase first: one load of all 16 bytes is several loads of the processor, and those before the phase may
        // be older. The data of a completion is also read after the phase.
        if (last.load(Ordering::Acquire) >> 16 & 1 == 1) != self.phase {
            return None;
        }
        // SAFETY: inside the region; the controller leaves the entry alone until the head has passed it.
        let e = unsafe { at.read_volatile() };
        self.head += 1;
        if self.head == self.entries {
            self.head = 0;
            self.phase = !self.phase;
        }
        driver.doorbell(register::cq_head(self.id, driver.stride), self.head, self.by_memory);
        Some(e)
    }

    pub fn wait(&mut self, driver: &Driver) -> CqEntry {
        let mut e = None;
        until("a completion", || {
            e = self.poll(driver);
            e.is_some()
        });
        e.unwrap()
    }

    pub fn cid(&mut self) -> u16 {
        self.next_cid = self.next_cid.wrapping_add(1);
        self.next_cid
    }

    /// Submits one command and waits for it.
    pub fn run(&mut self, driver: &Driver, mut e: SqEntry) -> CqEntry {
        let cid = self.cid();
        e.cdw0 = e.cdw0 & 0xffff | u32::from(cid) << 16;
        self.place(e);
        self.ring(driver);
        let c = self.wait(driver);
        assert_eq!((c.cid(), c.sqid()), (cid, self.id));
        c
    }

    pub fn status(&mut self, driver: &Driver, e: SqEntry) -> Status {
        self.run(driver, e).status()
    }
}

/// An enabled controller, with its admin queue.
pub struct Driver {
    pub attachment: Attachment,
    pub stride: u8,
    pub admin: Option<Pair>,
}

impl Driver {
    /// Attaches to a controller without enabling it.
    pub fn new(controller: &SoftController) -> Self {
        let attachment = controller.attachment();
        let stride = Cap(attachment.port.read64(register::CAP).unwrap()).doorbell_stride();
        Self { attachment, stride, admin: None }
    }

    /// Starts a controller and enables it.
    pub fn start(config: SoftConfig) -> (SoftController, Self) {
        let c = SoftController::start(config).unwrap();
        let mut d = Self::new(&c);
        d.enable();
        (c, d)
    }

    pub fn read(&self, offset: u32) -> u32 {
        self.attachment.port.read32(offset).unwrap()
    }

    pub fn write(&self, offset: u32, value: u32) {
        self.attachment.port.write32(offset, value).unwrap();
    }

    pub fn doorbell(&self, offset: u32, value: u32, by_memory: bool) {
        if !by_memory {
            return self.write(offset, value);
        }
        let w = self.attachment.port.doorbells().unwrap();
        let at = (offset - register::DOORBELLS) as usize;
        assert!(at + 4 <= w.bytes);
        // SAFETY: inside the registered region and aligned; all threads access it by atomics.
        let word = unsafe { std::sync::atomic::AtomicU32::from_ptr(w.base.as_ptr().add(at).cast()) };
        word.store(value, std::sync::atomic::Ordering::Release);
    }

    pub fn memory(&self, bytes: usize) -> DmaRegion {
        self.attachment.dma.allocate(&Space::cpu(), bytes).unwrap()
    }

    pub fn pair_memory(&self, id: u16, entries: u32) -> Pair {
        let sq = self.memory(entries as usize * 64);
        let cq = self.memory(entries as usize * 16);
        Pair { id, sq, cq, entries, tail: 0, head: 0, phase: true, by_memory: id % 2 == 1, next_cid: 0 }
    }

    /// Sets AQA, ASQ and ACQ and EN, without waiting.
    pub fn begin(&mut self, entries: u32) {
        let pair = self.pair_memory(0, entries);
        self.write(register::AQA, (entries - 1) << 16 | (entries - 1));
        self.attachment.port.write64(register::ASQ, pair.sq.iova).unwrap();
        self.attachment.port.write64(register::ACQ, pair.cq.iova).unwrap();
        self.write(register::CC, cc::EN | cc::IOSQES_64 | cc::IOCQES_16);
        self.admin = Some(pair);
    }

    pub fn enable(&mut self) {
        self.begin(32);
        self.until_ready(true);
    }

    /// Enables the controller again with other entry or page sizes in CC; its fresh admin queue stays.
    pub fn enable_with(&mut self, cc: u32) {
        self.enable();
        self.stop();
        self.write(register::CC, cc::EN | cc);
        self.until_ready(true);
    }

    pub fn disable(&mut self) {
        self.stop();
        self.admin = None;
    }

    /// Clears CC.EN, which is allowed only once CSTS.RDY has followed it (NVMe Base 2.1, 3.1.4.5).
    fn stop(&self) {
        self.write(register::CC, 0);
        self.until_ready(false);
    }

    fn until_ready(&self, ready: bool) {
        until("CSTS.RDY", || (self.read(register::CSTS) & csts::RDY != 0) == ready);
    }

    pub fn admin(&mut self, e: SqEntry) -> CqEntry {
        let mut a = self.admin.take().unwrap();
        let c = a.run(self, e);
        self.admin = Some(a);
        c
    }

    pub fn admin_status(&mut self, e: SqEntry) -> Status {
        self.admin(e).status()
    }

    /// Sends Identify, by CNS. Returns the page.
    ///
    /// # Errors
    ///
    /// Fails with the command's status if that is not success.
    pub fn identify(&mut self, cns: u8, nsid: u32) -> Result<Vec<u8>, Status> {
        let page = self.memory(PAGE);
        let mut e = SqEntry::new(admin::IDENTIFY, 0, nsid);
        (e.prp1, e.cdw10) = (page.iova, u32::from(cns));
        match self.admin_status(e) {
            s if s.is_success() => Ok(page.region.get_slice(0, PAGE).unwrap()),
            s => Err(s),
        }
    }

    pub fn create_cq(&self, p: &Pair) -> SqEntry {
        let mut e = SqEntry::new(admin::CREATE_CQ, 0, 0);
        e.prp1 = p.cq.iova;
        e.cdw10 = u32::from(p.id) | (p.entries - 1) << 16;
        e.cdw11 = 1;
        e
    }

    pub fn create_sq(&self, p: &Pair) -> SqEntry {
        let mut e = SqEntry::new(admin::CREATE_SQ, 0, 0);
        e.prp1 = p.sq.iova;
        e.cdw10 = u32::from(p.id) | (p.entries - 1) << 16;
        e.cdw11 = 1 | u32::from(p.id) << 16;
        e
    }

    pub fn delete(&self, opcode: u8, id: u16) -> SqEntry {
        SqEntry { cdw10: u32::from(id), ..SqEntry::new(opcode, 0, 0) }
    }

    /// Creates an I/O queue pair.
    pub fn pair(&mut self, id: u16, entries: u32) -> Pair {
        let p = self.pair_memory(id, entries);
        let (cq, sq) = (self.create_cq(&p), self.create_sq(&p));
        assert_eq!(self.admin_status(cq), status::SUCCESS);
        assert_eq!(self.admin_status(sq), status::SUCCESS);
        p
    }
}

/// Returns a command over blocks with its data in consecutive pages of a region. The PRP list, if the command needs
/// one, is at `list`.
pub fn command(
    opcode: u8,
    slba: u64,
    blocks: u32,
    bytes: usize,
    data: &DmaRegion,
    list: Option<(&DmaRegion, usize)>,
) -> SqEntry {
    let mut e = SqEntry::new(opcode, 0, 1);
    e.set_range(slba, blocks);
    e.prp1 = data.iova;
    let pages = bytes.div_ceil(PAGE);
    match (pages, list) {
        (0 | 1, _) => {}
        (2, _) => e.prp2 = data.iova + PAGE as u64,
        (_, Some((region, begin))) => {
            e.prp2 = region.iova + begin as u64;
            let mut at = begin;
            for i in 1..pages {
                if at % PAGE == PAGE - 8 && i != pages - 1 {
                    let next = at / PAGE * PAGE + PAGE;
                    region.region.set(at, region.iova + next as u64).unwrap();
                    at = next;
                }
                region.region.set(at, data.iova + (i * PAGE) as u64).unwrap();
                at += 8;
            }
        }
        _ => panic!("{bytes} bytes need a list"),
    }
    e
}

/// Returns bytes that identify their block.
pub fn pattern(slba: u64, bytes: usize, salt: u64) -> Vec<u8> {
    let words: Vec<u64> =
        (0..bytes as u64 / 8).map(|i| (slba << 20 ^ i ^ salt).wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
    bytemuck::cast_slice(&words).to_vec()
}
