//! Feeds arbitrary bytes as a command stream to the controller. For any input, each well-delivered command gets one
//! completion, memory that the commands cannot name stays unchanged, and a reset makes the controller usable again.

use super::driver::{Driver, PAGE, Pair, command, pattern, until};
use std::collections::HashSet;
use warpbell::memory::DmaRegion;
use warpbell::soft::nvme::SoftConfig;
use warpbell::wire::nvme::{SqEntry, admin, csts, io, register, status};

/// Bytes of a step: its kind, and a command or two numbers.
const STEP: usize = 65;
const ENTRIES: u32 = 16;

struct World {
    driver: Driver,
    io: Pair,
    admin: Pair,
    /// Memory that the commands may name.
    data: DmaRegion,
    /// An address that was valid once.
    stale: u64,
    /// True while every doorbell write was valid, so that every command must be completed.
    tame: bool,
    /// Asynchronous Event Requests that may still be completed.
    events: HashSet<u16>,
    cid: u16,
}

/// Runs one input.
///
/// # Panics
/// When the controller violates the specification.
pub fn run(input: &[u8]) {
    let config = SoftConfig::parse("mem:256k,namespaces=2,threads=1,entries=64,queues=3,transfer=64k");
    run_on(config.expect("a valid specification"), input);
}

/// Runs one input on a controller of this configuration, which has the limits of that in [`run`].
///
/// # Panics
/// When the controller violates the specification.
pub fn run_on(config: SoftConfig, input: &[u8]) {
    let (controller, mut driver) = Driver::start(config);
    let data = driver.memory(32 * PAGE);
    let canary = driver.memory(PAGE);
    let witness = pattern(1, PAGE, 2);
    canary.region.write(0, &witness).expect("in bounds");
    let gone = driver.memory(PAGE);
    gone.region.write(0, &witness).expect("in bounds");
    let (stale, unmapped) = (gone.iova, gone.region.clone());
    drop(gone);
    let io = driver.pair(1, ENTRIES);
    let admin = driver.admin.take().expect("enabled");
    let mut world = World { driver, io, admin, data, stale, tame: true, events: HashSet::new(), cid: 0 };
    for step in input.chunks_exact(STEP) {
        world.step(step[0], &step[1..]);
    }
    for region in [&canary.region, &unmapped] {
        let now = region.get_slice::<u8>(0, PAGE).expect("in bounds");
        assert!(now == witness, "memory was written that no command could name");
    }
    let mut driver = world.driver;
    drop((world.io, world.admin));
    driver.disable();
    driver.enable();
    let mut p = driver.pair(1, ENTRIES);
    let again = driver.memory(PAGE);
    for opcode in [io::WRITE, io::READ] {
        again.region.write(0, &witness).expect("in bounds");
        assert_eq!(p.status(&driver, command(opcode, 3, 8, PAGE, &again, None)), status::SUCCESS);
    }
    assert_eq!(again.region.get_slice::<u8>(0, PAGE).expect("in bounds"), witness);
    drop((p, driver));
    drop(controller);
}

fn number(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

impl World {
    fn step(&mut self, kind: u8, bytes: &[u8]) {
        let mut e: SqEntry = bytemuck::pod_read_unaligned(bytes);
        match kind % 7 {
            0 => self.io(e),
            // A command with a shape that gets further than the first check.
            1 | 2 => {
                self.shape(&mut e);
                self.io(e);
            }
            3 => {
                self.shape(&mut e);
                e.cdw0 = e.cdw0 & !0xff | u32::from(admin_opcode(e.cdw0 as u8));
                e.cdw10 &= 0xffff_01ff;
                self.admin(e);
            }
            4 => {
                // A PRP list of arbitrary entries, most of them nearly valid.
                for i in 0..8 {
                    let n = number(bytes, 8 * i);
                    let entry = if n.is_multiple_of(5) { n } else { self.page(n) };
                    self.data.region.set(8 * i, entry).expect("in bounds");
                    self.data.region.set(PAGE - 64 + 8 * i, entry).expect("in bounds");
                }
            }
            5 => {
                self.tame = false;
                let offset = register::DOORBELLS + (number(bytes, 0) % 0x900) as u32;
                self.driver.doorbell(offset, number(bytes, 8) as u32 % 70, false);
            }
            _ => {
                self.tame = false;
                // CAP to ACQ and the reserved rest of the page.
                let offset = (number(bytes, 0) % 0x60) as u32 & !3;
                self.driver.write(offset, number(bytes, 8) as u32);
                assert!(self.driver.read(register::CSTS) != u32::MAX);
            }
        }
        self.drain();
    }

    /// Returns one of the pages that commands may name, sometimes with an offset or an unmapped address.
    fn page(&self, n: u64) -> u64 {
        match n >> 8 & 15 {
            0 => self.stale,
            1 => n,
            2 => self.data.iova + 32 * PAGE as u64,
            3 => self.data.iova + (n >> 16) % (32 * PAGE as u64),
            _ => self.data.iova + ((n >> 16) % 32) * PAGE as u64,
        }
    }

    fn shape(&self, e: &mut SqEntry) {
        e.nsid %= 4;
        // No fused operations and no SGLs, most of the time.
        if e.cdw2 & 7 != 0 {
            e.cdw0 &= !0xc3ff | 0x0f;
        }
        (e.prp1, e.prp2) = (self.page(e.prp1), self.page(e.prp2));
        (e.cdw10, e.cdw11) = (e.cdw10 & 0x3ff, e.cdw11 & 4);
        if e.opcode() != io::DATASET_MANAGEMENT {
            e.cdw11 = 0;
        }
        e.cdw12 &= 0x4000_00ff;
    }

    fn next_cid(&mut self) -> u16 {
        self.cid = self.cid.wrapping_add(1);
        self.cid
    }

    fn io(&mut self, mut e: SqEntry) {
        let cid = self.next_cid();
        e.cdw0 = e.cdw0 & 0xffff | u32::from(cid) << 16;
        self.io.place(e);
        self.io.ring(&self.driver);
        if self.tame {
            let c = self.io.wait(&self.driver);
            assert_eq!((c.cid(), c.sqid()), (cid, 1), "{e:?}");
        }
    }

    fn admin(&mut self, mut e: SqEntry) {
        let cid = self.next_cid();
        e.cdw0 = e.cdw0 & 0xffff | u32::from(cid) << 16;
        let waits = e.opcode() == admin::ASYNC_EVENT_REQUEST && e.cdw0 & 0xc300 == 0;
        self.admin.place(e);
        self.admin.ring(&self.driver);
        if waits {
            self.events.insert(cid);
            return;
        }
        if matches!(e.opcode(), admin::CREATE_SQ | admin::CREATE_CQ | admin::DELETE_SQ | admin::DELETE_CQ) {
            self.tame = false;
        }
        while self.tame {
            let c = self.admin.wait(&self.driver);
            if c.cid() == cid {
                break;
            }
            assert!(self.events.remove(&c.cid()), "an answer to nothing: {c:?}");
        }
    }

    /// Takes new completions off the queues.
    fn drain(&mut self) {
        if !self.tame {
            while self.io.poll(&self.driver).is_some() {}
        }
        while let Some(c) = self.admin.poll(&self.driver) {
            assert!(!self.tame || self.events.remove(&c.cid()), "an answer to nothing: {c:?}");
        }
        if self.driver.read(register::CSTS) & csts::CFS != 0 {
            self.tame = false;
            self.driver.disable();
            until("the reset", || self.driver.read(register::CSTS) & csts::CFS == 0);
        }
    }
}

/// Returns an opcode, mostly one that exists.
fn admin_opcode(n: u8) -> u8 {
    const KNOWN: [u8; 11] = [
        admin::DELETE_SQ,
        admin::CREATE_SQ,
        admin::GET_LOG_PAGE,
        admin::DELETE_CQ,
        admin::CREATE_CQ,
        admin::IDENTIFY,
        admin::ABORT,
        admin::SET_FEATURES,
        admin::GET_FEATURES,
        admin::ASYNC_EVENT_REQUEST,
        admin::KEEP_ALIVE,
    ];
    if n < 16 { n } else { KNOWN[usize::from(n) % KNOWN.len()] }
}
