use super::adapter::{Facts, Memories, Mlx5Adapter};
use super::devx::*;
use super::queue::transitions;
use crate::memory::Space;
use crate::rdma::connection::tests::roce;
use crate::rdma::{
    Adapter, DeviceChoice, DoorbellChoice, Endpoint, MemoryRange, QueueChoice, QueuePair, QueuePlan, RdmaError,
    Registration, Rights, Route, TrafficClass,
};
use crate::wire::mlx5::devx::{
    AtomicCapabilities, Capabilities, CreateCq, CreateQp, ModifyQp, QpCommand, QpContext, QpState, QueryQp, Reply,
    Transition, opcode,
};
use std::io;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// What the fake firmware did, and what it is to refuse.
#[derive(Debug, Default)]
struct Log {
    calls: Vec<String>,
    commands: Vec<Vec<u8>>,
    /// What is alive: `qp 1`.
    alive: Vec<String>,
    /// Things given back while others still used them.
    violations: Vec<String>,
    next: u32,
    /// The call with this number fails.
    fail_at: Option<usize>,
    /// Kinds of pages that are not to be had.
    no_pages: Vec<UarKind>,
    /// Queue pairs with this timestamp format are refused.
    no_format: Option<u8>,
    state: u8,
    no_atomics: bool,
}

impl Log {
    fn call(&mut self, what: String) -> io::Result<u32> {
        let nth = self.calls.len();
        self.calls.push(what);
        self.next += 1;
        if self.fail_at == Some(nth) { Err(io::Error::from_raw_os_error(libc::EREMOTEIO)) } else { Ok(self.next) }
    }
    fn gone(&mut self, what: &str) {
        self.alive.retain(|a| a != what);
        let kind = what.split(' ').next().unwrap_or_default();
        let before: &[&str] = match kind {
            "qp" => &[],
            "cq" => &["qp"],
            _ => &["qp", "cq"],
        };
        for user in before {
            if self.alive.iter().any(|a| a.starts_with(user)) {
                self.violations.push(format!("{what} went before a {user}"));
            }
        }
        self.calls.push(format!("free {kind}"));
    }
}

#[derive(Clone, Debug, Default)]
struct Fake(Arc<Mutex<Log>>);

impl Fake {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
    fn make(&self, kind: &'static str, what: String) -> io::Result<Thing> {
        let number = self.log().call(what)?;
        let name = format!("{kind} {number}");
        self.log().alive.push(name.clone());
        Ok(Thing { fake: self.clone(), name, number, page: Box::new(Page([0; 4096])) })
    }
}

/// Anything that is given back. Its page serves as a page of registers.
#[derive(Debug)]
struct Thing {
    fake: Fake,
    name: String,
    number: u32,
    page: Box<Page>,
}

#[derive(Debug)]
#[repr(align(4096))]
struct Page([u8; 4096]);

impl Drop for Thing {
    fn drop(&mut self) {
        self.fake.log().gone(&self.name);
    }
}

impl Umem for Thing {
    fn id(&self) -> u32 {
        self.number
    }
}

impl Uar for Thing {
    fn page(&self) -> u32 {
        self.number
    }
    fn register(&self) -> NonNull<u8> {
        NonNull::from(&self.page.0[0x800]).cast()
    }
}

fn refuse(output: &mut [u8]) {
    let reply = Reply { status: 3, syndrome: 0x1a_2b3c, object: 0 }.to_bytes().unwrap();
    output[..reply.len()].copy_from_slice(&reply);
}

impl DevxObject for Thing {
    fn modify(&mut self, input: &[u8], output: &mut [u8]) -> io::Result<()> {
        let mut log = self.fake.log();
        log.commands.push(input.to_vec());
        let what = match QpCommand::from_bytes(input) {
            Ok((command, number)) => {
                assert_eq!(number, self.number);
                format!("{command:?}")
            }
            Err(_) => {
                let command = ModifyQp::from_bytes(input).unwrap();
                assert_eq!(command.qpn, self.number);
                format!("{:?}", command.transition)
            }
        };
        log.call(what).map(|_| ()).inspect_err(|_| refuse(output))
    }
    fn query(&self, input: &[u8], output: &mut [u8]) -> io::Result<()> {
        assert_eq!(QpCommand::from_bytes(input).unwrap(), (QpCommand::Query, self.number));
        let state = self.fake.log().state;
        QpContext { state, hw_sq_block: 3, sw_sq_block: 5, ..QpContext::default() }.put(output).unwrap();
        assert_eq!(output.len(), QueryQp::BYTES);
        Ok(())
    }
}

impl Devx for Fake {
    fn command(&self, input: &[u8], output: &mut [u8]) -> io::Result<()> {
        let kind = u16::from_be_bytes([input[6], input[7]]) >> 1;
        let mut log = self.log();
        log.call(format!("capabilities {kind}")).inspect_err(|_| refuse(output))?;
        let capabilities = &mut output[0x10..];
        match kind {
            0 => Capabilities { cqe_version: 1, cq_overrun_ignore: true, log_max_qp_size: 15, ..Default::default() }
                .put(capabilities)
                .unwrap(),
            _ => {
                let operations = if log.no_atomics { 3 } else { 15 };
                AtomicCapabilities { operations, sizes_qp: 12, ..Default::default() }.put(capabilities).unwrap();
            }
        }
        Ok(())
    }
    fn create(&self, input: &[u8], output: &mut [u8]) -> io::Result<Box<dyn DevxObject>> {
        self.log().commands.push(input.to_vec());
        let kind = match u16::from_be_bytes([input[0], input[1]]) {
            opcode::CREATE_CQ => "cq",
            opcode::CREATE_QP => "qp",
            other => panic!("command {other:#x} makes nothing"),
        };
        if kind == "qp" && self.log().no_format == Some(CreateQp::from_bytes(input).unwrap().context.ts_format) {
            refuse(output);
            return Err(io::Error::from_raw_os_error(libc::EREMOTEIO));
        }
        let thing = self.make(kind, kind.to_owned()).inspect_err(|_| refuse(output))?;
        let reply = Reply { object: thing.number, ..Reply::default() }.to_bytes().unwrap();
        output[..reply.len()].copy_from_slice(&reply);
        Ok(Box::new(thing))
    }
    fn alloc_uar(&self, kind: UarKind) -> io::Result<Arc<dyn Uar>> {
        if self.log().no_pages.contains(&kind) {
            return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        }
        Ok(Arc::new(self.make("uar", format!("uar {kind:?}"))?))
    }
    fn register(&self, source: UmemSource<'_>, bytes: usize) -> io::Result<Box<dyn Umem>> {
        let page = |n: u64| n.is_multiple_of(4096);
        let found = match source {
            UmemSource::Address(address) => page(address) && page(bytes as u64),
            UmemSource::DmaBuf(fd) => panic!("host memory has no dma-buf ({fd:?})"),
        };
        assert!(found, "queue memory is whole pages");
        Ok(Box::new(self.make("umem", "umem".to_owned())?))
    }
    fn event_queue(&self) -> io::Result<u32> {
        self.log().call("event queue".to_owned()).map(|_| 5)
    }
    fn protection_domain(&self) -> u32 {
        0x42
    }
    fn remote_mac(&self, route: &Route) -> io::Result<[u8; 6]> {
        assert!(route.ethernet && route.global.is_some());
        self.log().call("mac".to_owned())?;
        Ok([0x0c, 0x42, 0xa1, 0xb2, 0xc3, 0xd4])
    }
}

#[derive(Debug)]
struct NoMemories;

impl Memories for NoMemories {
    fn register(&self, memory: MemoryRange, _: Rights) -> Result<Box<dyn Registration>, RdmaError> {
        let reason = "the fake has none".to_owned();
        Err(RdmaError::Registration { address: memory.address, bytes: memory.bytes, reason })
    }
    fn way(&self) -> String {
        "host".to_owned()
    }
}

fn open(fake: &Fake, choice: &DeviceChoice) -> Result<Mlx5Adapter, RdmaError> {
    let facts = Facts {
        name: "mlx5_0 port 1".to_owned(),
        link: "RoCE v2".to_owned(),
        port: roce(1).0,
        forced: Some(TrafficClass(106)),
        priorities: (0..=255u8).map(|c| TrafficClass(c).default_priority()).collect(),
    };
    Mlx5Adapter::new(Box::new(fake.clone()), Box::new(NoMemories), facts, choice, &Space::cpu())
}

fn plan(log_blocks: u32) -> QueuePlan {
    QueuePlan { space: Space::cpu(), log_blocks, collapsed: false }
}

fn peer() -> Endpoint {
    roce(2).1
}

fn bring_up(fake: &Fake) -> Result<(Mlx5Adapter, Box<dyn QueuePair>), RdmaError> {
    let adapter = open(fake, &DeviceChoice::default())?;
    let mut pair = adapter.create(plan(7))?;
    pair.connect(&peer().to_address())?;
    Ok((adapter, pair))
}

/// The words of a command that are not zero, as offset and value.
fn words(command: &[u8]) -> Vec<(usize, u32)> {
    let word = |c: &[u8]| u32::from_be_bytes(c.try_into().unwrap());
    command.chunks_exact(4).map(word).enumerate().map(|(i, w)| (4 * i, w)).filter(|&(_, w)| w != 0).collect()
}

#[test]
fn objects_are_made_and_given_back_in_order() {
    let fake = Fake::default();
    let (adapter, pair) = bring_up(&fake).unwrap();
    let made = "capabilities 0,capabilities 3,event queue,uar Uncached,free uar,uar Uncached,umem,umem,umem,cq,qp,mac,\
                ResetToInit,InitToReadyToReceive,ReadyToReceiveToSend";
    assert_eq!(fake.log().calls.join(","), made);
    let path = adapter.path();
    assert_eq!((path.doorbell, path.queues), ("cpu-engine", "host"));
    assert_eq!(pair.failure(), None);
    fake.log().calls.clear();
    // The adapter may go first: a queue pair keeps what it needs of it.
    drop(adapter);
    assert!(fake.log().calls.is_empty());
    drop(pair);
    assert_eq!(fake.log().calls.join(","), "free qp,free cq,free umem,free umem,free umem,free uar");
    let log = fake.log();
    assert!(log.alive.is_empty() && log.violations.is_empty(), "{log:?}");
}

#[test]
fn commands_have_their_golden_words() {
    let fake = Fake::default();
    let (_adapter, pair) = bring_up(&fake).unwrap();
    let log = fake.log();
    // Numbers are given in the order of the calls: send ring, completions, records.
    let cq = CreateCq::from_bytes(&log.commands[0]).unwrap();
    let (uar, ring, entries, records) = (cq.uar_page, cq.umem_id - 1, cq.umem_id, cq.dbr_umem_id);
    assert_eq!(records, entries + 1);
    let golden = [
        (0x00, 0x0400_0000),
        (0x10, 0x0202_0000),
        (0x14, records),
        (0x1c, 0x0700_0000 | uar),
        (0x24, 5),
        (0x4c, 8),
        (0x58, entries),
        (0x5c, 0x8000_0000),
    ];
    assert_eq!(words(&log.commands[0]), golden);
    let cqn = CreateQp::from_bytes(&log.commands[1]).unwrap().context.cqn_send;
    let golden = [
        (0x00, 0x0500_0000),
        (0x18, 0x1800),
        (0x1c, 0x42),
        (0x20, 0x3840),
        (0x24, uar),
        (0x94, cqn),
        (0xb4, cqn),
        (0xc4, 0x0300_0000),
        (0xe8, 0x1000_0000),
        (0xfc, records),
        (0x108, ring),
        (0x10c, 0x8000_0000),
    ];
    assert_eq!(words(&log.commands[1]), golden);
    let number = pair.number();
    assert_eq!(words(&log.commands[2]), [(0x00, 0x0502_0000), (0x08, number), (0x54, 0x1_0000), (0xa8, 0x3_e000)]);
    let receive = ModifyQp::from_bytes(&log.commands[3]).unwrap().context;
    let golden = [
        (0x00, 0x0503_0000),
        (0x08, number),
        (0x20, 0xbe00_0000),
        (0x2c, peer().number),
        (0x38, 0x0003_0040),
        (0x48, 0xffff),
        (0x4c, 0x0a00_0002),
        (0x50, 0x009a_0000 | u32::from(receive.udp_sport)),
        (0x54, 0x3001_0c42),
        (0x58, 0xa1b2_c3d4),
        (0xa8, 0x80_0000),
        (0xac, 0x0cab_cdef),
    ];
    assert_eq!(words(&log.commands[3]), golden);
    assert!(receive.udp_sport >= 0xc000);
    let send = ModifyQp::from_bytes(&log.commands[4]).unwrap().context;
    let golden = [
        (0x00, 0x0504_0000),
        (0x08, number),
        (0x38, 0x8000_0000),
        (0x54, 0x1_0000),
        (0x88, 0x0087_e000),
        (0x90, send.next_send_psn),
    ];
    assert_eq!(words(&log.commands[4]), golden);
}

#[test]
fn an_infiniband_path_has_no_ethernet_fields() {
    let (mut port, mut own) = roce(1);
    (port.link, port.lid) = (crate::rdma::LinkLayer::InfiniBand, 4);
    (own.ethernet, own.lid) = (false, 4);
    let mut other = peer();
    (other.ethernet, other.lid) = (false, 5);
    let choice = DeviceChoice { service_level: Some(2), ..DeviceChoice::default() };
    let of = |other: &Endpoint| {
        let route = Route::between(&port, &own, other, &choice, Some(TrafficClass(106)), |_| 3).unwrap();
        let [_, (step, _, receive), _] = transitions(1, &route, None);
        assert_eq!(step, Transition::InitToReadyToReceive);
        receive
    };
    let receive = of(&other);
    assert_eq!((receive.rlid, receive.sl, receive.grh, receive.tclass), (5, 2, false, 0));
    assert_eq!(
        (receive.eth_prio, receive.dscp, receive.udp_sport, receive.rmac_low, receive.rgid_low),
        (0, 0, 0, 0, 0)
    );
    other.route_header = true;
    let receive = of(&other);
    assert_eq!((receive.grh, receive.tclass, receive.src_gid_index, receive.eth_prio), (true, 106, 3, 0));
}

#[test]
fn a_failure_at_any_step_leaves_nothing_behind() {
    let fake = Fake::default();
    drop(bring_up(&fake).unwrap());
    // Freeing is not a step that can fail.
    let steps = fake.log().calls.iter().filter(|c| !c.starts_with("free")).count();
    let mut failed = 0;
    for nth in 0..steps + 1 {
        let fake = Fake::default();
        fake.log().fail_at = Some(nth);
        let outcome = bring_up(&fake);
        let step = fake.log().calls.get(nth).cloned().unwrap_or_default();
        match outcome.map(drop) {
            // A page has a second kind, GPU memory a substitute, a queue pair a second timestamp format.
            Ok(()) => {
                assert!(step.is_empty() || ["uar", "umem", "qp", "free"].iter().any(|s| step.starts_with(s)), "{step}")
            }
            Err(e) => {
                failed += 1;
                let text = e.to_string();
                let firmware =
                    ["capabilities 0", "capabilities 3", "ResetToInit", "InitToReadyToReceive", "ReadyToReceiveToSend"];
                let mut chain = text.clone();
                let mut source = std::error::Error::source(&e);
                while let Some(s) = source {
                    chain += &format!(": {s}");
                    source = s.source();
                }
                if firmware.contains(&step.as_str()) {
                    assert!(chain.contains("bad parameter (0x03), syndrome 0x001a2b3c"), "{step}: {chain}");
                }
            }
        }
        let log = fake.log();
        assert_eq!(log.alive, Vec::<String>::new(), "after a failure of {step}");
        assert_eq!(log.violations, Vec::<String>::new(), "after a failure of {step}");
    }
    // Capabilities, event queue, completion queue, hardware address, three transitions.
    assert_eq!(failed, 8);
}

#[test]
fn the_other_timestamp_format_is_tried() {
    let fake = Fake::default();
    fake.log().no_format = Some(1);
    let (_adapter, _pair) = bring_up(&fake).unwrap();
    let log = fake.log();
    let formats: Vec<u8> =
        log.commands.iter().filter_map(|c| CreateQp::from_bytes(c).ok()).map(|c| c.context.ts_format).collect();
    assert_eq!(formats, [1, 0]);
}

#[test]
fn a_nic_that_lacks_something_says_what() {
    let fake = Fake::default();
    fake.log().no_atomics = true;
    let text = open(&fake, &DeviceChoice::default()).unwrap_err().to_string();
    assert!(text.contains("no masked atomics") && text.contains("transport verbs"), "{text}");
    let fake = Fake::default();
    let adapter = open(&fake, &DeviceChoice::default()).unwrap();
    fake.log().no_pages = vec![UarKind::Uncached, UarKind::BlueFlame];
    assert!(adapter.create(plan(7)).unwrap_err().to_string().contains("no doorbell page"));
    fake.log().no_pages.clear();
    assert!(adapter.create(plan(0)).is_err());
    assert!(adapter.create(plan(16)).unwrap_err().to_string().contains("32768 blocks at most"));
}

#[test]
fn a_failed_queue_pair_is_made_anew() {
    let fake = Fake::default();
    let (_adapter, mut pair) = bring_up(&fake).unwrap();
    let before = pair.number();
    fake.log().state = QpState::Error as u8;
    let text = pair.failure().unwrap();
    assert!(text.contains("error state") && text.contains("block 0x3 of 0x5"), "{text}");
    pair.memory().records().set(4, 9u32).unwrap();
    fake.log().calls.clear();
    pair.reset().unwrap();
    assert_eq!(fake.log().calls.join(","), "ToError,ToReset,free qp,free cq,cq,qp");
    assert_ne!(pair.number(), before);
    assert_eq!(Endpoint::from_address(&pair.address(), 1).unwrap().number, pair.number());
    assert_eq!(pair.memory().records().get::<u32>(4).unwrap(), 0);
    pair.connect(&peer().to_address()).unwrap();
    drop(pair);
    assert_eq!(fake.log().violations, Vec::<String>::new());
}

#[test]
fn kernels_ring_at_the_register_or_at_a_mailbox() {
    // At the register: what kernels are told is in the page of the NIC.
    let fake = Fake::default();
    let adapter = open(&fake, &DeviceChoice::default()).unwrap();
    let pair = adapter.create(plan(7)).unwrap();
    let queue = pair.memory().send_queue(pair.number(), pair.flags());
    assert_eq!(queue.doorbell % 4096, 0x800);

    // At a mailbox, which a thread forwards.
    let choice = DeviceChoice { doorbell: DoorbellChoice::Cpu, queues: QueueChoice::Host, ..DeviceChoice::default() };
    let kept = Keeper::default();
    let devx = Kept { fake: fake.clone(), kept: kept.clone() };
    let facts = Facts {
        name: "mlx5_0 port 1".to_owned(),
        link: String::new(),
        port: roce(1).0,
        forced: None,
        priorities: Vec::new(),
    };
    let adapter = Mlx5Adapter::new(Box::new(devx), Box::new(NoMemories), facts, &choice, &Space::cpu()).unwrap();
    assert_eq!(adapter.path().doorbell, "cpu");
    let pair = adapter.create(plan(7)).unwrap();
    let queue = pair.memory().send_queue(pair.number(), pair.flags());
    let value = 0x0102_0304_0506_0708u64;
    // SAFETY: the mailbox of a live queue pair, aligned; the thread reads it whole.
    unsafe { std::sync::atomic::AtomicU64::from_ptr(queue.doorbell as *mut u64) }
        .store(value, std::sync::atomic::Ordering::Release);
    let page = kept.0.lock().unwrap().last().cloned().unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    // SAFETY: the register of a page that is kept here.
    while unsafe { page.register().cast::<u64>().read_volatile() } != value {
        assert!(Instant::now() < until, "nobody forwards the mailbox");
        std::thread::yield_now();
    }
    drop(pair);
}

#[test]
fn a_page_that_kernels_do_not_reach_leaves_the_ringing_to_the_cpu() {
    let fake = Fake::default();
    fake.log().no_pages = vec![UarKind::Uncached, UarKind::BlueFlame];
    let adapter = open(&fake, &DeviceChoice::default()).unwrap();
    let path = adapter.path();
    assert_eq!(path.doorbell, "cpu");
    assert!(path.note.unwrap().contains("kernels do not ring: Uncached page"));
    adapter.create(plan(7)).unwrap();
    assert!(fake.log().calls.contains(&"uar SharedUncached".to_owned()));
    let choice = DeviceChoice { doorbell: DoorbellChoice::Gpu, ..DeviceChoice::default() };
    let text = open(&fake, &choice).unwrap_err().to_string();
    assert!(text.contains("WARPBELL_RDMA_DOORBELL=cpu"), "{text}");
}

/// Pages that were given out.
#[derive(Clone, Debug, Default)]
struct Keeper(Arc<Mutex<Vec<Arc<dyn Uar>>>>);

/// A fake whose pages can be looked at.
#[derive(Debug)]
struct Kept {
    fake: Fake,
    kept: Keeper,
}

impl Devx for Kept {
    fn command(&self, input: &[u8], output: &mut [u8]) -> io::Result<()> {
        self.fake.command(input, output)
    }
    fn create(&self, input: &[u8], output: &mut [u8]) -> io::Result<Box<dyn DevxObject>> {
        self.fake.create(input, output)
    }
    fn alloc_uar(&self, kind: UarKind) -> io::Result<Arc<dyn Uar>> {
        let uar = self.fake.alloc_uar(kind)?;
        self.kept.0.lock().unwrap().push(uar.clone());
        Ok(uar)
    }
    fn register(&self, source: UmemSource<'_>, bytes: usize) -> io::Result<Box<dyn Umem>> {
        self.fake.register(source, bytes)
    }
    fn event_queue(&self) -> io::Result<u32> {
        self.fake.event_queue()
    }
    fn protection_domain(&self) -> u32 {
        self.fake.protection_domain()
    }
    fn remote_mac(&self, route: &Route) -> io::Result<[u8; 6]> {
        self.fake.remote_mac(route)
    }
}
