//! Checks commands, executes them and logs them.

use super::super::devx::{Devx, DevxObject, Uar, UarKind, Umem, UmemSource};
use super::Wire;
use super::interface::{self, Command, Status, capability, cq, qp};
use super::registers::{AllocatedRegister, Pool};
use crate::rdma::Route;
use parking_lot::{Mutex, MutexGuard};
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Number of the event queue. It needs more than eight bits.
pub const EVENT_QUEUE: u32 = 0x105;
pub const DOMAIN: u32 = 0x42;

/// Log of the firmware's work, and its configured faults.
#[derive(Debug, Default)]
pub struct Log {
    pub calls: Vec<String>,
    pub commands: Vec<Vec<u8>>,
    /// Live objects, as in `qp 1`.
    pub alive: Vec<String>,
    /// Violations: objects freed while others still used them, invalid commands, entries that break a promise.
    pub violations: Vec<String>,
    next: u32,
    /// Index of the call that fails.
    pub fail_at: Option<usize>,
    /// Kinds of registers that are not available.
    pub no_registers: Vec<UarKind>,
    /// Timestamp format that the firmware rejects in queue pairs.
    pub no_format: Option<u64>,
    /// State that queries report for all queue pairs.
    pub state: Option<u8>,
    /// True if queries fail with an error of the system and no reply.
    pub no_queries: bool,
    pub no_atomics: bool,
    /// Capabilities that differ from those of a ConnectX-5.
    pub capabilities: Capabilities,
    /// True if the firmware has queue pairs without a doorbell record only on paper.
    pub refuses_no_record: bool,
    /// True if 8-byte results of atomics are not in this machine's byte order.
    pub swapped_atomics: bool,
    /// Address and length of registered memory.
    umems: HashMap<u64, (u64, u64)>,
    cqs: HashMap<u64, Completions>,
    pairs: HashMap<u32, Pair>,
    /// Objects that each live queue uses.
    uses: HashMap<String, Vec<String>>,
}

/// Capabilities of a generation of NICs.
#[derive(Clone, Debug)]
pub struct Capabilities {
    pub cqe_version: u64,
    pub overrun_ignore: bool,
    pub no_record: bool,
    pub blue_flame: bool,
    /// The kernel exports doorbell registers as dma-bufs.
    pub exports_registers: bool,
    pub log_blue_flame: u64,
    pub max_entry_bytes: u64,
    pub max_receive_bytes: u64,
    /// Messages can go into their completion entry.
    pub scatters: bool,
    /// UDP destination port, and the smallest and largest source port.
    pub udp: [u64; 3],
}

impl Default for Capabilities {
    fn default() -> Self {
        Self {
            cqe_version: 1,
            overrun_ignore: true,
            no_record: false,
            blue_flame: true,
            exports_registers: false,
            log_blue_flame: 9,
            max_entry_bytes: 1024,
            max_receive_bytes: 512,
            scatters: true,
            udp: [4791, 0xc000, 0xffff],
        }
    }
}

/// Memory of a completion queue.
#[derive(Clone, Copy, Debug)]
pub struct Completions {
    pub address: u64,
    pub log_size: u64,
    pub collapsed: bool,
}

/// A live queue pair.
#[derive(Clone, Copy, Debug)]
struct Pair {
    state: u8,
    /// Address of its doorbell record.
    record: u64,
    receives: bool,
}

/// Memory of a queue pair's receive ring.
#[derive(Clone, Copy, Debug)]
pub struct Receives {
    pub ring: u64,
    pub log_slots: u64,
    pub log_stride: u64,
    pub completions: Completions,
    /// Short messages go into their completion entry.
    pub in_entries: bool,
}

/// Memory of a queue pair's rings.
#[derive(Clone, Copy, Debug)]
pub struct Rings {
    pub ring: u64,
    pub log_blocks: u64,
    pub completions: Completions,
    pub receives: Option<Receives>,
    pub record: u64,
    /// False if the queue pair has no doorbell record.
    pub has_record: bool,
    pub page: u32,
}

impl Log {
    pub fn call(&mut self, what: String) -> io::Result<u32> {
        let nth = self.calls.len();
        self.calls.push(what);
        self.next += 1;
        if self.fail_at == Some(nth) { Err(io::Error::from_raw_os_error(libc::EREMOTEIO)) } else { Ok(self.next) }
    }

    pub fn gone(&mut self, what: &str) {
        self.alive.retain(|a| a != what);
        self.uses.remove(what);
        for (user, used) in &self.uses {
            if used.iter().any(|u| u == what) {
                self.violations.push(format!("{what} went before {user}"));
            }
        }
        self.calls.push(format!("free {}", what.split(' ').next().unwrap_or_default()));
    }

    /// Returns the address of `bytes` bytes of registered memory at an offset.
    fn memory(&self, id: u64, offset: u64, bytes: u64) -> Result<u64, Status> {
        let (address, len) = self.umems.get(&id).copied().ok_or(Status::Resource)?;
        let end = offset.checked_add(bytes).ok_or(Status::Parameter)?;
        if end <= len { Ok(address + offset) } else { Err(Status::Parameter) }
    }
}

impl Log {
    /// Returns the receive ring of a queue pair to be created, which comes before its send ring.
    fn receives(&self, input: &[u8]) -> Result<Option<Receives>, Status> {
        let field = |b: interface::Bits| b.of(input);
        let (log_slots, log_stride, scatter) = (field(qp::LOG_RECEIVE), field(qp::LOG_STRIDE), field(qp::SCATTER));
        match field(qp::RECEIVE_KIND) {
            0 => {}
            3 if (log_slots, log_stride, scatter) == (0, 0, 0) => return Ok(None),
            _ => return Err(Status::Parameter),
        }
        let (entry, sends) = (interface::PIECE << log_stride, field(qp::SEND_COMPLETIONS));
        let completions = self.cqs.get(&field(qp::RECEIVE_COMPLETIONS)).copied().ok_or(Status::Resource)?;
        // The send ring begins at a block. No completion overwrites one that was not taken, as none is reported taken.
        let has_space = entry << log_slots >= interface::BLOCK
            && completions.log_size >= log_slots
            && !completions.collapsed
            && field(qp::RECEIVE_COMPLETIONS) != sends;
        let scatters = scatter == 0 || scatter == 1 && self.capabilities.scatters;
        if !has_space || !scatters || entry > self.capabilities.max_receive_bytes {
            return Err(Status::Parameter);
        }
        let ring = self.memory(field(qp::MEMORY), field(qp::OFFSET), entry << log_slots)?;
        Ok(Some(Receives { ring, log_slots, log_stride, completions, in_entries: scatter == 1 }))
    }
}

impl Pair {
    /// Returns true if the receive word of the doorbell record announces receives.
    fn has_posted_receives(&self) -> bool {
        // SAFETY: an aligned word of registered memory, which the code under test keeps while the queue pair exists.
        unsafe { AtomicU32::from_ptr(self.record as *mut u32) }.load(Ordering::Acquire) != 0
    }
}

#[derive(Debug, Default)]
struct Inner {
    log: Mutex<Log>,
    pool: Mutex<Pool>,
    wire: Option<Arc<Wire>>,
}

/// The stand-in NIC.
#[derive(Clone, Debug, Default)]
pub(in crate::rdma) struct Firmware(Arc<Inner>);

/// Writes a reply that rejects the command, and returns the system's error for it.
fn refuse(output: &mut [u8], status: Status, syndrome: u32) -> io::Error {
    output.fill(0);
    interface::STATUS.put(output, status as u64);
    interface::SYNDROME.put(output, syndrome.into());
    io::Error::from_raw_os_error(libc::EREMOTEIO)
}

/// Returns the command if its opcode and its lengths are those of the interface.
fn parse(input: &[u8], output: &[u8]) -> Result<&'static Command, Status> {
    if input.len() < 2 {
        return Err(Status::InputLength);
    }
    let opcode = interface::OPCODE.of(input) as u16;
    let command = interface::COMMANDS.iter().find(|c| c.opcode == opcode).ok_or(Status::Opcode)?;
    if input.len() != command.input {
        return Err(Status::InputLength);
    }
    if output.len() != command.output {
        return Err(Status::OutputLength);
    }
    Ok(command)
}

impl Firmware {
    /// Creates a NIC whose queue pairs a software NIC carries out.
    pub(in crate::rdma) fn over(wire: Arc<Wire>) -> Self {
        Self(Arc::new(Inner { wire: Some(wire), ..Inner::default() }))
    }

    pub fn log(&self) -> MutexGuard<'_, Log> {
        self.0.log.lock()
    }

    /// Returns the allocated registers in order of allocation. They live as long as this NIC.
    pub fn registers(&self) -> Vec<std::ptr::NonNull<u8>> {
        self.pool().taken.iter().map(|r| r.at).collect()
    }

    pub(super) fn pool(&self) -> MutexGuard<'_, Pool> {
        self.0.pool.lock()
    }

    /// Checks a command's form. An invalid command is also a violation: the code under test must not send one.
    fn accept(&self, input: &[u8], output: &mut [u8]) -> io::Result<&'static Command> {
        self.log().commands.push(input.to_vec());
        parse(input, output).map_err(|status| {
            let (i, o) = (input.len(), output.len());
            let what = format!("command {:#x} of {i} bytes with room for {o}: {status:?}", interface::OPCODE.of(input));
            self.log().violations.push(what);
            refuse(output, status, 0x51_0000)
        })
    }

    fn object(&self, kind: &'static str, number: u32) -> Object {
        let name = format!("{kind} {number}");
        self.log().alive.push(name.clone());
        Object { firmware: self.clone(), name, number }
    }

    fn make_cq(&self, input: &[u8]) -> Result<u32, Status> {
        let mut log = self.log();
        let field = |b: interface::Bits| b.of(input);
        let entries = 1u64 << field(cq::LOG_SIZE);
        let address = log.memory(field(cq::MEMORY), field(cq::OFFSET), entries * interface::COMPLETION)?;
        log.memory(field(cq::RECORD_MEMORY), field(cq::RECORD_OFFSET), interface::RECORD)?;
        let in_memory = field(cq::IN_MEMORY) == 1 && field(cq::RECORD_IN_MEMORY) == 1;
        if field(cq::EVENT_QUEUE) != u64::from(EVENT_QUEUE) || !self.pool().knows(field(cq::PAGE)) {
            return Err(Status::Resource);
        }
        // The consumer index is never reported to the queue.
        if !in_memory || field(cq::OVERRUN_IGNORED) == 0 {
            return Err(Status::Parameter);
        }
        let number = log.next;
        let used = [cq::MEMORY, cq::RECORD_MEMORY].map(|b| format!("umem {}", field(b)));
        log.uses.insert(format!("cq {number}"), used.to_vec());
        let completions = Completions { address, log_size: field(cq::LOG_SIZE), collapsed: field(cq::COLLAPSED) == 1 };
        log.cqs.insert(number.into(), completions);
        Ok(number)
    }

    fn make_qp(&self, input: &[u8]) -> Result<u32, Status> {
        let rings = {
            let log = self.log();
            let field = |b: interface::Bits| b.of(input);
            if log.no_format == Some(field(qp::TIMESTAMPS)) {
                return Err(Status::Parameter);
            }
            let receives = log.receives(input)?;
            let front = receives.map_or(0, |r| interface::PIECE << r.log_stride << r.log_slots);
            let log_blocks = field(qp::LOG_SEND);
            let ring = log.memory(field(qp::MEMORY), field(qp::OFFSET) + front, interface::BLOCK << log_blocks)?;
            let record = log.memory(field(qp::RECORD_MEMORY), field(qp::RECORD_OFFSET), interface::RECORD)?;
            let completions = log.cqs.get(&field(qp::SEND_COMPLETIONS)).copied().ok_or(Status::Resource)?;
            let known = log.cqs.contains_key(&field(qp::RECEIVE_COMPLETIONS)) && self.pool().knows(field(qp::PAGE));
            if !known || field(qp::DOMAIN) != u64::from(DOMAIN) {
                return Err(Status::Resource);
            }
            if field(qp::IN_MEMORY) == 0 || field(qp::RECORD_IN_MEMORY) == 0 {
                return Err(Status::Parameter);
            }
            let has_record = match field(qp::RECORD_MODE) {
                0 => true,
                1 if log.capabilities.no_record && !log.refuses_no_record => false,
                _ => return Err(Status::Parameter),
            };
            Rings { ring, log_blocks, completions, receives, record, has_record, page: field(qp::PAGE) as u32 }
        };
        let number = match &self.0.wire {
            Some(wire) => wire.serve(rings),
            None => self.log().next,
        };
        let mut log = self.log();
        log.pairs.insert(number, Pair { state: 0, record: rings.record, receives: rings.receives.is_some() });
        let mut used = [qp::MEMORY, qp::RECORD_MEMORY].map(|b| format!("umem {}", b.of(input))).to_vec();
        used.extend([qp::SEND_COMPLETIONS, qp::RECEIVE_COMPLETIONS].map(|b| format!("cq {}", b.of(input))));
        log.uses.insert(format!("qp {number}"), used);
        Ok(number)
    }

    /// Executes a transition if the queue pair is in one of its valid states.
    fn transit(&self, command: &Command, number: u32, input: &[u8]) -> Result<(), Status> {
        let (from, to): (&[u8], u8) = match command.name {
            "RST2INIT_QP" => (&[0], 1),
            "INIT2RTR_QP" => (&[1], 2),
            "RTR2RTS_QP" => (&[2], 3),
            "2ERR_QP" => (&[0, 1, 2, 3, 4, 5, 6], 6),
            "2RST_QP" => (&[0, 1, 2, 3, 4, 5, 6], 0),
            _ => return Err(Status::Opcode),
        };
        let pair = self.log().pairs.get(&number).copied().filter(|p| from.contains(&p.state));
        let pair = pair.ok_or(Status::QpState)?;
        // 7 means forever, and no receive will be posted.
        if to == 3 && !pair.receives && qp::RNR_RETRY.of(input) == 7 {
            self.log().violations.push(format!("queue pair {number:#x} without receives is tried for ever"));
        }
        // No receive is posted in the reset state (InfiniBand Architecture 1.7, vol. 1, 10.3.1.1).
        if to == 1 && pair.has_posted_receives() {
            self.log().violations.push(format!("receives were posted to queue pair {number:#x} in the reset state"));
        }
        if let (Some(wire), 2) = (&self.0.wire, to) {
            let [high, low] = qp::REMOTE_GID.map(|b| b.of(input));
            let gid = u128::from(high) << 64 | u128::from(low);
            wire.connect(number, gid, qp::REMOTE.of(input) as u32).map_err(|_| Status::Parameter)?;
        }
        self.log().pairs.insert(number, Pair { state: to, ..pair });
        Ok(())
    }

    /// Returns a queue pair's state. With a wire, a failed connection is in the error state; otherwise the log decides.
    fn state(&self, number: u32) -> u8 {
        let failed = self.0.wire.as_ref().is_some_and(|w| w.has_failed(number));
        let log = self.log();
        log.state.unwrap_or(if failed { 6 } else { log.pairs.get(&number).map_or(0, |p| p.state) })
    }
}

impl Devx for Firmware {
    fn command(&self, input: &[u8], output: &mut [u8]) -> io::Result<()> {
        self.accept(input, output)?;
        let group = capability::GROUP.of(input);
        let mut log = self.log();
        log.commands.pop();
        let asked = log.call(format!("capabilities {group}"));
        asked.map_err(|_| refuse(output, Status::Parameter, 0x1a_2b3c))?;
        let (operations, order) =
            (if log.no_atomics { 0b0011 } else { 0b1111 }, if log.swapped_atomics { 0 } else { 1 });
        let capabilities = log.capabilities.clone();
        output.fill(0);
        match group {
            0 => {
                capability::HAS_MORE.put(output, capabilities.no_record.into());
                capability::LOG_MAX_QP_BLOCKS.put(output, 15);
                capability::CQE_VERSION.put(output, capabilities.cqe_version);
                capability::CQ_OVERRUN_IGNORE.put(output, capabilities.overrun_ignore.into());
                capability::BLUE_FLAME.put(output, capabilities.blue_flame.into());
                capability::LOG_BLUE_FLAME.put(output, capabilities.log_blue_flame);
                capability::MAX_ENTRY_BYTES.put(output, capabilities.max_entry_bytes);
                capability::MAX_RECEIVE_BYTES.put(output, capabilities.max_receive_bytes);
                capability::SCATTER_TO_CQE.put(output, capabilities.scatters.into());
            }
            4 => {
                capability::UDP_DESTINATION.put(output, capabilities.udp[0]);
                capability::UDP_SOURCE_MIN.put(output, capabilities.udp[1]);
                capability::UDP_SOURCE_MAX.put(output, capabilities.udp[2]);
            }
            0x20 => capability::NO_RECORD.put(output, capabilities.no_record.into()),
            _ => {
                capability::ATOMIC_ENDIANNESS.put(output, order);
                capability::ATOMIC_OPERATIONS.put(output, operations);
                capability::ATOMIC_SIZES.put(output, 4 | 8);
            }
        }
        Ok(())
    }

    fn create(&self, input: &[u8], output: &mut [u8]) -> io::Result<Box<dyn DevxObject>> {
        let command = self.accept(input, output)?;
        let kind = match command.name {
            "CREATE_CQ" => "cq",
            "CREATE_QP" => "qp",
            other => panic!("{other} makes nothing"),
        };
        let asked = self.log().call(kind.to_owned());
        asked.map_err(|_| refuse(output, Status::Parameter, 0x1a_2b3c))?;
        let made = if kind == "cq" { self.make_cq(input) } else { self.make_qp(input) };
        let number = made.map_err(|status| refuse(output, status, 0x1a_2b3c))?;
        output.fill(0);
        interface::OBJECT.put(output, number.into());
        Ok(Box::new(self.object(kind, number)))
    }

    fn alloc_uar(&self, kind: UarKind) -> io::Result<Arc<dyn Uar>> {
        if self.log().no_registers.contains(&kind) {
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        let number = self.log().call(format!("uar {kind:?}"))?;
        let name = format!("uar {number}");
        self.log().alive.push(name.clone());
        // A register in memory holds one doorbell, and queue pairs without a record share a page's only one.
        let alone = self.log().capabilities.no_record;
        let register = self.pool().take(kind, alone);
        if let Some(wire) = &self.0.wire {
            wire.watch(&register, kind);
        }
        Ok(Arc::new(AllocatedRegister { firmware: self.clone(), kind, name, register }))
    }

    fn register(&self, source: UmemSource<'_>, bytes: usize) -> io::Result<Box<dyn Umem>> {
        let UmemSource::Address(address) = source else { panic!("host memory has no dma-buf") };
        assert!(address.is_multiple_of(4096) && bytes.is_multiple_of(4096), "queue memory is whole pages");
        let number = self.log().call("umem".to_owned())?;
        self.log().umems.insert(number.into(), (address, bytes as u64));
        Ok(Box::new(self.object("umem", number)))
    }

    fn event_queue(&self) -> io::Result<u32> {
        self.log().call("event queue".to_owned()).map(|_| EVENT_QUEUE)
    }

    fn protection_domain(&self) -> u32 {
        DOMAIN
    }

    fn remote_mac(&self, route: &Route) -> io::Result<[u8; 6]> {
        assert!(route.ethernet && route.global.is_some());
        self.log().call("mac".to_owned())?;
        Ok([0x0c, 0x42, 0xa1, 0xb2, 0xc3, 0xd4])
    }
}

/// An object that is freed when dropped.
#[derive(Debug)]
struct Object {
    firmware: Firmware,
    name: String,
    number: u32,
}

impl Drop for Object {
    fn drop(&mut self) {
        if let (Some(wire), true) = (&self.firmware.0.wire, self.name.starts_with("qp")) {
            wire.close(self.number);
        }
        self.firmware.log().gone(&self.name);
    }
}

impl Umem for Object {
    fn id(&self) -> u32 {
        self.number
    }
}

impl DevxObject for Object {
    fn modify(&mut self, input: &[u8], output: &mut [u8]) -> io::Result<()> {
        let command = self.firmware.accept(input, output)?;
        assert_eq!(interface::QPN.of(input), u64::from(self.number), "{}", command.name);
        let asked = self.firmware.log().call(command.name.to_owned());
        asked.map_err(|_| refuse(output, Status::Parameter, 0x1a_2b3c))?;
        let done = self.firmware.transit(command, self.number, input);
        done.map_err(|status| refuse(output, status, 0x1a_2b3c))?;
        output.fill(0);
        Ok(())
    }

    fn query(&self, input: &[u8], output: &mut [u8]) -> io::Result<()> {
        let command = self.firmware.accept(input, output)?;
        self.firmware.log().commands.pop();
        assert_eq!((command.name, interface::QPN.of(input)), ("QUERY_QP", u64::from(self.number)));
        if self.firmware.log().no_queries {
            return Err(io::Error::from_raw_os_error(libc::EINTR));
        }
        let state = self.firmware.state(self.number);
        output.fill(0);
        qp::STATE.put(output, state.into());
        qp::SEEN_BY_HARDWARE.put(output, 3);
        qp::ANNOUNCED.put(output, 5);
        Ok(())
    }
}

/// Asserts that no two commands share an opcode, and that the log has no violation.
pub fn nothing_wrong(log: &Log) {
    let opcodes: HashSet<u16> = interface::COMMANDS.iter().map(|c| c.opcode).collect();
    assert_eq!(opcodes.len(), interface::COMMANDS.len());
    assert_eq!(log.violations, Vec::<String>::new());
}
