//! A software NIC that carries out the rings' entries: worlds run on commands, registers and rings alone.
//!
//! A thread polls the registers like a device. Before it announces entries, it checks the kernels' promise of
//! [`WB_SEND_NEAR`](abi::SEND_NEAR). Every byte that an entry reads or fetches must be in the posting GPU's memory.

use super::super::adapter::{Facts, Kernels, Memories, Mlx5Adapter};
use super::super::devx::UarKind;
use super::firmware::Rings;
use super::interface;
use super::registers::Register;
use super::{Driver, Firmware};
use crate::cuda::WritesOrdering;
use crate::engine::abi;
use crate::idle::{Idle, Pace};
use crate::memory::{Place, Region, Space};
use crate::rdma::connection::tests::roce;
use crate::rdma::{
    Adapter, AdapterPath, DeviceChoice, Gid, MemoryRange, PortFacts, QueueAddress, QueuePair, QueuePlan, QueueRings,
    RdmaError, ReceivePlan, RecordChoice, Registration, Rights, Route, TrafficClass,
};
use crate::responsive::Responsive;
use crate::soft::nic::{SoftNic, SoftNicConfig, SoftQueuePair};
use crate::wire::mlx5::doorbell::SendDoorbell;
use crate::wire::mlx5::segment::DataSegment;
use crate::wire::mlx5::wqe::Payload;
use crate::wire::mlx5::{BLOCK_BYTES, Operation, Transport, Wqe};
use parking_lot::{Mutex, MutexGuard};
use std::collections::{HashMap, HashSet};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Pauses of the polling thread: other threads need the processor too.
const PACE: Pace = Pace { spin: Duration::ZERO, yields: 100, naps: [Duration::from_micros(50); 2] };
/// Far more time than the release of memory takes.
const DEADLINE: Duration = Duration::from_secs(20);
/// Largest number of blocks of an entry.
const MOST_BLOCKS: usize = 16;
/// Distance of the halves of a register that takes entries, in bytes: half of 2^9, as the firmware reports.
const FLAME_HALF: u64 = 0x100;
/// Offset in a page of the register for queue pairs without a doorbell record.
const WITHOUT_RECORD: u64 = 0x600;

/// Key of the software NICs.
pub(super) const KEY: [u8; 32] = [7; 32];

/// Returns the queue pairs of all stand-ins of this process, by port GID and number.
fn network() -> &'static Mutex<HashMap<(u128, u32), QueueAddress>> {
    static NETWORK: OnceLock<Mutex<HashMap<(u128, u32), QueueAddress>>> = OnceLock::new();
    NETWORK.get_or_init(Mutex::default)
}

/// The device behind the commands.
#[derive(Debug)]
pub(in crate::rdma) struct Wire {
    nic: SoftNic,
    gid: u128,
    state: Mutex<State>,
    stop: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    pairs: HashMap<u32, RingUser>,
    /// Page and address of each register, with its last doorbell value.
    registers: Vec<(u32, u64, u64)>,
    /// `wb_send_queue` flags given to kernels, by queue pair.
    flags: HashMap<u32, u32>,
    /// Registered memory: address, bytes, place.
    memory: Vec<(u64, u64, Place)>,
    /// Queue pairs that were destroyed: a doorbell for them may be seen late, and kernels that have not noticed the end of
    /// a connection may still write one.
    ended: HashSet<u32>,
    violations: Vec<String>,
}

#[derive(Debug)]
struct RingUser {
    pair: SoftQueuePair,
    memory: Arc<QueueRings>,
    rings: Rings,
    /// Blocks announced so far.
    announced: u16,
}

/// Wraps memory of the code under test, which keeps it while its queue pair exists.
fn foreign(address: u64, bytes: u64) -> Region {
    let base = NonNull::new(address as *mut u8).expect("registered memory");
    // SAFETY: registered as queue memory, which lives until the queue pair is destroyed; `close` waits for the software
    // NIC to drop it.
    unsafe { Space::cpu().import_host(base, bytes as usize, false, Arc::new(())) }.expect("host memory")
}

impl Wire {
    fn start(gid: u128, options: &str) -> Arc<Self> {
        let config = SoftNicConfig::new(KEY).options(options).expect("options of a software NIC");
        let nic = SoftNic::start(config).expect("a software NIC");
        let wire = Arc::new(Self { nic, gid, state: Mutex::default(), stop: AtomicBool::new(false) });
        let (weak, name) = (Arc::downgrade(&wire), "stand-in".to_owned());
        let look = move || {
            let _responsive = Responsive::enter();
            let mut idle = Idle::new(PACE);
            while let Some(wire) = weak.upgrade() {
                if wire.stop.load(Ordering::Relaxed) {
                    return;
                }
                let busy = wire.listen();
                drop(wire);
                match busy {
                    true => idle.busy(),
                    false => idle.rest(),
                }
            }
        };
        std::thread::Builder::new().name(name).spawn(look).expect("a thread");
        wire
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Polls one more register for doorbells: both halves if it takes entries, and its page's register for queue pairs
    /// without a record.
    pub(super) fn watch(&self, register: &Register, kind: UarKind) {
        let (base, at) = (register.base().as_ptr() as u64, register.at.as_ptr() as u64);
        let half = (kind == UarKind::BlueFlame).then_some(at + FLAME_HALF);
        let mut state = self.state();
        for at in [Some(at), half, Some(base + WITHOUT_RECORD)].into_iter().flatten() {
            if !state.registers.iter().any(|r| r.1 == at) {
                state.registers.push((register.page, at, 0));
            }
        }
    }

    /// Creates a queue pair over this memory and returns its number.
    pub(super) fn serve(&self, rings: Rings) -> u32 {
        let blocks = 1u64 << rings.log_blocks;
        let plan = QueuePlan {
            space: Space::cpu(),
            log_blocks: rings.log_blocks as u32,
            collapsed: rings.completions.collapsed,
            data: Place::Host,
            receives: rings.receives.map(|r| ReceivePlan {
                log_slots: r.log_slots as u32,
                log_stride: r.log_stride as u32,
                data_in_entries: r.in_entries,
            }),
        };
        let received = rings.receives.map(|r| {
            let ring = foreign(r.ring, interface::PIECE << r.log_stride << r.log_slots);
            (ring, foreign(r.completions.address, interface::COMPLETION << r.completions.log_size))
        });
        let entries = 1u64 << rings.completions.log_size;
        let ring = foreign(rings.ring, blocks * BLOCK_BYTES as u64);
        let completions = foreign(rings.completions.address, entries * interface::COMPLETION);
        // The record, and the word behind it that a software NIC polls.
        let bytes = QueueRings::doorbell_offset() + size_of::<u64>();
        let records = foreign(rings.record, bytes as u64);
        let memory = Arc::new(QueueRings::over(plan, ring, completions, received, records));
        let pair = self.nic.serve(memory.clone()).expect("a queue pair");
        let number = pair.number();
        network().lock().insert((self.gid, number), pair.address());
        let mut state = self.state();
        state.ended.remove(&number);
        state.pairs.insert(number, RingUser { pair, memory, rings, announced: 0 });
        number
    }

    /// Returns the address of a queue pair's software queue pair.
    pub(super) fn address(&self, number: u32) -> Option<QueueAddress> {
        network().lock().get(&(self.gid, number)).cloned()
    }

    /// Makes a software queue pair known by a GID and a number, as if a NIC of this network had it.
    pub(super) fn announce(gid: Gid, number: u32, address: QueueAddress) {
        network().lock().insert((u128::from_be_bytes(gid.0), number), address);
    }

    pub(super) fn connect(&self, number: u32, gid: u128, remote: u32) -> Result<(), RdmaError> {
        let peer = network().lock().get(&(gid, remote)).cloned();
        let peer = peer.ok_or_else(|| RdmaError::Queue { blocks: 0, reason: format!("no queue pair {remote:#x}") })?;
        let mut state = self.state();
        state.pairs.get_mut(&number).expect("it was made").pair.connect(&peer)
    }

    pub(super) fn has_failed(&self, number: u32) -> bool {
        self.state().pairs.get(&number).is_some_and(|s| s.pair.failure().is_some())
    }

    /// Destroys a queue pair. Its memory is unused when this returns.
    pub(super) fn close(&self, number: u32) {
        network().lock().remove(&(self.gid, number));
        let mut state = self.state();
        let Some(RingUser { pair, memory, .. }) = state.pairs.remove(&number) else { return };
        state.ended.insert(number);
        drop(state);
        drop(pair);
        let until = Instant::now() + DEADLINE;
        while Arc::strong_count(&memory) > 1 {
            assert!(Instant::now() < until, "queue pair {number:#x} is still served");
            std::thread::yield_now();
        }
    }

    /// Forwards new doorbells. Returns true if there were any.
    fn listen(&self) -> bool {
        let mut state = self.state();
        let State { pairs, registers, flags, memory, ended, violations } = &mut *state;
        let mut heard = false;
        for (page, at, last) in registers {
            // SAFETY: a word of a page that the pool keeps while the device is open, as it is here.
            let bell = unsafe { AtomicU64::from_ptr(*at as *mut u64) }.load(Ordering::Acquire);
            if bell == *last {
                continue;
            }
            (*last, heard) = (bell, true);
            let told = SendDoorbell::from_bytes(bell.to_ne_bytes());
            let (named, has_record) = (told.qpn, *at % 4096 != WITHOUT_RECORD);
            let user = pairs.get_mut(&named).filter(|s| s.rings.page == *page && s.rings.has_record == has_record);
            let Some(user) = user else {
                if ended.contains(&named) {
                    continue;
                }
                violations.push(format!("a doorbell at {at:#x} of page {page:#x} names queue pair {named:#x}"));
                continue;
            };
            if !has_record {
                user.pass_on(named, told.next, flags.get(&named).copied().unwrap_or(0), memory, violations);
                continue;
            }
            // The visible doorbell may have overwritten another queue pair's: a register here holds only one.
            for (number, one) in pairs.iter_mut().filter(|(_, s)| s.rings.page == *page && s.rings.has_record) {
                let next = one.record();
                one.pass_on(*number, next, flags.get(number).copied().unwrap_or(0), memory, violations);
            }
        }
        heard
    }

    /// Returns the broken promises so far.
    pub(in crate::rdma) fn violations(&self) -> Vec<String> {
        self.state().violations.clone()
    }
}

impl RingUser {
    /// Returns the block behind those that the doorbell record announces.
    fn record(&self) -> u16 {
        u32::from_be(self.word().load(Ordering::Acquire)) as u16
    }

    /// Returns the record's send word.
    fn word(&self) -> &AtomicU32 {
        // SAFETY: the record's second word, aligned, in memory that stays while this exists.
        unsafe { AtomicU32::from_ptr((self.rings.record + 4) as *mut u32) }
    }

    fn pass_on(
        &mut self,
        number: u32,
        next: u16,
        flags: u32,
        memory: &[(u64, u64, Place)],
        violations: &mut Vec<String>,
    ) {
        if !self.rings.has_record && self.record() != self.announced {
            violations.push(format!("queue pair {number:#x} has no doorbell record, and kernels write one"));
        }
        if next == self.announced {
            return;
        }
        if flags & abi::SEND_NEAR != 0 {
            self.check_near(number, next, memory, violations);
        }
        self.announced = next;
        if !self.rings.has_record {
            // The software NIC behind this one needs a record.
            self.word().store(u32::from(next).to_be(), Ordering::Release);
        }
        let mut bell = [0; 8];
        bell[1..3].copy_from_slice(&next.to_be_bytes());
        bell[4..8].copy_from_slice(&(number << 8).to_be_bytes());
        let at = self.rings.record + QueueRings::doorbell_offset() as u64;
        // SAFETY: the word behind the record, aligned, in memory that stays while this exists.
        unsafe { AtomicU64::from_ptr(at as *mut u64) }.store(u64::from_ne_bytes(bell), Ordering::Release);
    }

    /// Checks that everything that these entries read or fetch is in GPU memory.
    fn check_near(&self, number: u32, next: u16, memory: &[(u64, u64, Place)], violations: &mut Vec<String>) {
        let blocks = 1u16.checked_shl(self.rings.log_blocks as u32).unwrap_or(0);
        let mut index = self.announced;
        while index != next {
            let mut bytes = [0; MOST_BLOCKS * BLOCK_BYTES];
            let announced = usize::from(next.wrapping_sub(index)).min(MOST_BLOCKS);
            for i in 0..announced {
                let at = usize::from(index.wrapping_add(i as u16) % blocks) * BLOCK_BYTES;
                self.memory.ring().read(at, &mut bytes[i * BLOCK_BYTES..][..BLOCK_BYTES]).expect("within the ring");
            }
            // The number of 16-byte segments: the low bits of the control segment's second word.
            let long = usize::from(bytes[7] & 0x3f).div_ceil(4).clamp(1, announced);
            match Wqe::parse(&bytes[..long * BLOCK_BYTES], Transport::ReliableConnection) {
                Ok(entry) => {
                    for piece in pieces(&entry.operation) {
                        let (from, bytes) = (piece.address.get(), u64::from(piece.bytes.get()));
                        let near =
                            |m: &(u64, u64, Place)| m.2 == Place::Device && m.0 <= from && from + bytes <= m.0 + m.1;
                        if !memory.iter().any(near) {
                            violations.push(format!(
                                "queue pair {number:#x}: near flag, and {bytes} bytes at {from:#x} are not in device memory"
                            ));
                        }
                    }
                }
                Err(e) => violations.push(format!("queue pair {number:#x}: block {index:#x}: {e}")),
            }
            index = index.wrapping_add(long as u16);
        }
    }
}

/// Returns the local memory that an entry reads or fetches to.
fn pieces(operation: &Operation<'_>) -> Vec<DataSegment> {
    match operation {
        Operation::Write { payload: Payload::Pieces(all), .. }
        | Operation::Send { payload: Payload::Pieces(all), .. } => all.to_vec(),
        Operation::Read { into, .. } => into.to_vec(),
        Operation::Atomic { landing, .. } => vec![*landing],
        Operation::Dump { piece } => vec![*piece],
        _ => Vec::new(),
    }
}

/// Registers memory with the software NIC.
#[derive(Debug)]
struct Keys(Arc<Wire>);

impl Memories for Keys {
    unsafe fn register(&self, memory: MemoryRange, rights: Rights) -> Result<Box<dyn Registration>, RdmaError> {
        self.0.state().memory.push((memory.address, memory.bytes as u64, memory.place));
        // SAFETY: the caller makes the same promise.
        unsafe { self.0.nic.register(memory, rights) }
    }
    fn registration_path(&self) -> String {
        "stand-in".to_owned()
    }
}

/// An adapter over the stand-in. It passes the flags of its queue pairs to the stand-in.
#[derive(Debug)]
pub(super) struct Watched {
    inner: Mlx5Adapter,
    pub(super) wire: Arc<Wire>,
    firmware: Firmware,
}

#[derive(Debug)]
struct WatchedPair {
    inner: Box<dyn QueuePair>,
    wire: Arc<Wire>,
}

/// Creates a NIC and the adapter in front of it. The adapter treats kernels as if they ran on a GPU, though they run on
/// CPU threads. `options` are those of the software NIC behind it.
pub(crate) fn adapter(choice: &DeviceChoice, options: &str) -> Box<dyn Adapter> {
    Box::new(watched(choice, options))
}

pub(super) fn watched(choice: &DeviceChoice, options: &str) -> Watched {
    static NUMBERS: AtomicU32 = AtomicU32::new(1);
    let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
    let gid: Gid = format!("::ffff:10.{}.{}.1", number >> 8 & 0xff, number & 0xff).parse().expect("an identifier");
    let wire = Wire::start(u128::from_be_bytes(gid.0), options);
    let firmware = Firmware::over(wire.clone());
    firmware.log().capabilities.no_record = choice.record == RecordChoice::Off;
    let facts = Facts {
        name: "stand-in port 1".to_owned(),
        link: "RoCE v2".to_owned(),
        port: PortFacts { gid: Some((3, gid)), ..roce(1).0 },
        forced: None,
        priorities: (0..=255u8).map(|c| TrafficClass(c).default_priority()).collect(),
    };
    let kernels = Kernels { space: Space::cpu(), mapper: Box::new(Driver::default()), gpu: Some(WritesOrdering::All) };
    let (devx, keys) = (Box::new(firmware.clone()), Box::new(Keys(wire.clone())));
    let inner = Mlx5Adapter::new(devx, keys, facts, choice, kernels).expect("the stand-in has what kernels need");
    Watched { inner, wire, firmware }
}

impl Adapter for Watched {
    fn path(&self) -> AdapterPath {
        self.inner.path()
    }
    unsafe fn register(&self, memory: MemoryRange, rights: Rights) -> Result<Box<dyn Registration>, RdmaError> {
        // SAFETY: the caller makes the same promise.
        unsafe { self.inner.register(memory, rights) }
    }
    fn create(&self, plan: QueuePlan) -> Result<Box<dyn QueuePair>, RdmaError> {
        let pair = WatchedPair { inner: self.inner.create(plan)?, wire: self.wire.clone() };
        Ok(Box::new(pair))
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.wire.stop.store(true, Ordering::Relaxed);
        // The thread may be at its last look: afterwards the registers' pages are unmapped with the adapter.
        self.wire.state().registers.clear();
        if !std::thread::panicking() {
            assert_eq!(self.wire.violations(), Vec::<String>::new());
            assert_eq!(self.firmware.log().violations, Vec::<String>::new());
        }
    }
}

impl QueuePair for WatchedPair {
    fn number(&self) -> u32 {
        self.inner.number()
    }
    fn address(&self) -> QueueAddress {
        self.inner.address()
    }
    fn connect(&mut self, peer: &QueueAddress) -> Result<(), RdmaError> {
        self.inner.connect(peer)
    }
    fn connect_along(&mut self, route: &Route) -> Result<(), RdmaError> {
        self.inner.connect_along(route)
    }
    fn memory(&self) -> &QueueRings {
        self.inner.memory()
    }
    fn flags(&self) -> u32 {
        let flags = self.inner.flags();
        self.wire.state().flags.insert(self.number(), flags);
        flags
    }
    fn failure(&self) -> Option<String> {
        self.inner.failure()
    }
    fn reset(&mut self) -> Result<(), RdmaError> {
        self.inner.reset()
    }
}
