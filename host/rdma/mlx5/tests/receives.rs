//! Queue pairs with a receive ring: their commands, connections along the route of a connection manager, and messages
//! by the rings that the commands name.

use super::*;
use crate::memory::Region;
use crate::rdma::mlx5::stand_in;
use crate::rdma::{CpuReceiveQueue, CpuSendQueue, Gid, Message, PathMtu, PostError, PostRequests, ReceivePlan};
use crate::wire::mlx5::segment::DataSegment;
use crate::wire::mlx5::wqe::SendWith;
use crate::wire::mlx5::{Operation, Payload};

/// Far more time than anything in a test takes.
const LIMIT: Duration = Duration::from_secs(60);

/// Returns the plan of a queue pair with 16 blocks, and receives of one piece.
fn with_receives(log_slots: u32, data_in_entries: bool) -> QueuePlan {
    let receives = ReceivePlan { log_slots, log_stride: 0, data_in_entries };
    QueuePlan::new(Space::cpu(), Place::Host).log_blocks(4).receives(Some(receives))
}

/// Returns a route as a connection manager tells it.
fn route() -> Route {
    Route {
        remote: 0x5678,
        receive_psn: 0x01_0203,
        send_psn: 0x0a_0b0c,
        mtu: PathMtu::from_field(3).unwrap(),
        port: 1,
        ethernet: true,
        lid: 0,
        global: Some((3, "::ffff:10.0.0.2".parse::<Gid>().unwrap())),
        traffic_class: TrafficClass(0x20),
        service_level: 5,
        reads_out: 0,
        reads_in: 12,
        ack_timeout: 18,
        udp_source: 0,
    }
}

/// Opens a NIC whose driver forces this class on queue pairs of verbs.
fn open_forced(firmware: &Firmware, forced: Option<TrafficClass>) -> Mlx5Adapter {
    let facts = Facts {
        name: "mlx5_0 port 1".to_owned(),
        link: "RoCE v2".to_owned(),
        port: roce(1).0,
        forced,
        priorities: (0..=255u8).map(|c| TrafficClass(c).default_priority()).collect(),
    };
    Mlx5Adapter::new(Box::new(firmware.clone()), Box::new(NoMemories), facts, &DeviceChoice::default(), kernels())
        .unwrap()
}

#[test]
fn commands_with_receives_have_their_golden_words() {
    for (scatters, asked, cs_res) in [(true, true, 1), (true, false, 0), (false, true, 0)] {
        let firmware = Firmware::default();
        firmware.log().capabilities.scatters = scatters;
        let adapter = open(&firmware, &DeviceChoice::default()).unwrap();
        let pair = adapter.create(with_receives(7, asked)).unwrap();
        let log = firmware.log();
        assert_eq!(log.calls.join(",").split("uar Uncached,").nth(1), Some("umem,umem,umem,umem,cq,cq,qp,RST2INIT_QP"));
        let sends = CreateCq::from_bytes(&log.commands[0]).unwrap();
        let receives = CreateCq::from_bytes(&log.commands[1]).unwrap();
        let uar = sends.uar_page;
        // Numbers follow the order of calls: work queues, both completion rings, records.
        let work = sends.umem_id - 1;
        let (received, records) = (work + 2, work + 3);
        let golden = [
            (0x00, 0x0400_0000),
            (0x10, 0x0202_0000),
            (0x14, records),
            (0x1c, 0x0700_0000 | uar),
            (0x24, 0x105),
            (0x4c, 16),
            (0x58, received),
            (0x5c, 0x8000_0000),
        ];
        assert_eq!(words(&log.commands[1]), golden);
        assert_eq!((sends.log_size, sends.dbr_offset, receives.dbr_umem_id), (4, 8, sends.dbr_umem_id));
        let context = CreateQp::from_bytes(&log.commands[2]).unwrap().context;
        assert_ne!(context.cqn_send, context.cqn_receive);
        let golden = [
            (0x00, 0x0500_0000),
            (0x18, 0x1800),
            (0x1c, 0x42),
            // 128 receives of one segment, 16 blocks.
            (0x20, 0x0038_2040),
            (0x24, uar),
            (0x94, context.cqn_send),
            (0xb4, context.cqn_receive),
            (0xdc, cs_res),
            (0xe8, 0x1000_0000),
            (0xfc, records),
            (0x108, work),
            (0x10c, 0x8000_0000),
        ];
        let golden: Vec<_> = golden.into_iter().filter(|(_, word)| *word != 0).collect();
        assert_eq!(words(&log.commands[2]), golden);
        let number = pair.number();
        assert_eq!(words(&log.commands[3]), [(0x00, 0x0502_0000), (0x08, number), (0x54, 0x1_0000), (0xa8, 0x3_e000)]);
        nothing_wrong(&log);
    }
}

#[test]
fn the_send_ring_begins_behind_the_receives_at_a_block() {
    for (log_slots, log_stride, front) in [(0, 2, 64), (1, 1, 64), (2, 0, 64), (3, 0, 128)] {
        let firmware = Firmware::default();
        let pair = open(&firmware, &DeviceChoice::default()).unwrap().create(with_receives(log_slots, false)).unwrap();
        let context = CreateQp::from_bytes(&firmware.log().commands[2]).unwrap().context;
        assert_eq!((u32::from(context.log_rq_size), context.log_rq_stride), (log_slots, log_stride));
        let (memory, receives) = (pair.memory(), pair.memory().receives().unwrap());
        assert_eq!(receives.ring().address(), memory.work().address());
        assert_eq!(memory.ring().address(), memory.work().address() + front);
        assert_eq!(receives.completions().len() % 64, 0);
        nothing_wrong(&firmware.log());
    }
}

#[test]
fn receives_that_the_nic_does_not_have_are_refused_by_name() {
    let firmware = Firmware::default();
    let adapter = open(&firmware, &DeviceChoice::default()).unwrap();
    let plan = |log_slots, log_stride| {
        let receives = ReceivePlan { log_slots, log_stride, data_in_entries: false };
        QueuePlan::new(Space::cpu(), Place::Host).receives(Some(receives))
    };
    adapter.create(plan(15, 5)).unwrap();
    for (log_slots, log_stride, text) in [
        (16, 0, "65536 receives of 1 pieces; mlx5_0 port 1 supports at most 32768 (log_max_qp_sz) of 32"),
        (3, 6, "8 receives of 64 pieces; mlx5_0 port 1 supports at most 32768 (log_max_qp_sz) of 32 (max_wqe_sz_rq)"),
        (3, 64, "of 18446744073709551615 pieces"),
    ] {
        let before = firmware.log().calls.len();
        let said = adapter.create(plan(log_slots, log_stride)).unwrap_err().to_string();
        assert!(said.contains(text), "{said}");
        assert_eq!(firmware.log().calls.len(), before, "nothing is asked of the firmware");
    }
}

#[test]
fn a_failure_at_any_step_leaves_nothing_behind() {
    let run = |firmware: &Firmware| {
        let mut pair = open(firmware, &DeviceChoice::default())?.create(with_receives(3, true))?;
        pair.connect_along(&route())
    };
    let firmware = Firmware::default();
    run(&firmware).unwrap();
    let steps = firmware.log().calls.iter().filter(|c| !c.starts_with("free")).count();
    for nth in 0..steps {
        let firmware = Firmware::default();
        firmware.log().fail_at = Some(nth);
        let outcome = run(&firmware);
        let log = firmware.log();
        let step = log.calls[nth].clone();
        // The register has a second kind, the queue pair a second timestamp format, and ports are valid anyway.
        let again = ["uar", "qp", "capabilities 4"].iter().any(|s| step.starts_with(s));
        assert_eq!(outcome.is_ok(), again, "{step}: {outcome:?}");
        assert_eq!((log.alive.len(), log.violations.len()), (0, 0), "{step}: {:?} {:?}", log.alive, log.violations);
    }
}

#[test]
fn the_route_of_a_connection_manager_has_its_golden_words() {
    for (forced, class_and_source, priority) in
        [(None, 0x0008_0000, 0x5001_0c42), (Some(TrafficClass(106)), 0x009a_0000, 0x3001_0c42)]
    {
        let firmware = Firmware::default();
        let adapter = open_forced(&firmware, forced);
        let mut pair = adapter.create(with_receives(3, true)).unwrap();
        pair.connect_along(&route()).unwrap();
        let log = firmware.log();
        let (number, receive) = (pair.number(), ModifyQp::from_bytes(&log.commands[4]).unwrap().context);
        let golden = [
            (0x00, 0x0503_0000),
            (0x08, number),
            (0x20, 0x7e00_0000),
            (0x2c, 0x5678),
            (0x38, 0x0003_0040),
            (0x48, 0xffff),
            (0x4c, 0x0a00_0002),
            (0x50, class_and_source | u32::from(receive.udp_sport)),
            (0x54, priority),
            (0x58, 0xa1b2_c3d4),
            // The target may have 12 reads outstanding: 16 fit.
            (0xa8, 0x80_0000),
            (0xac, 0x1601_0203),
        ];
        assert_eq!(words(&log.commands[4]), golden);
        // The kernel chooses the source port of queue pairs of verbs alone.
        assert!(receive.udp_sport >= 0xc000);
        let golden = [
            (0x00, 0x0504_0000),
            (0x08, number),
            (0x38, 0x9000_0000),
            (0x54, 0x1_0000),
            (0x88, 0x0007_c000),
            (0x90, 0x0a_0b0c),
        ];
        assert_eq!(words(&log.commands[5]), golden);
        nothing_wrong(&log);
    }
    // InfiniBand has neither ports nor Ethernet's priorities.
    let firmware = Firmware::default();
    let mut pair = open_forced(&firmware, None).create(with_receives(3, true)).unwrap();
    let infiniband = Route { ethernet: false, lid: 7, global: None, service_level: 2, ..route() };
    pair.connect_along(&infiniband).unwrap();
    let receive = ModifyQp::from_bytes(&firmware.log().commands[4]).unwrap().context;
    assert_eq!((receive.rlid, receive.sl, receive.udp_sport, receive.eth_prio, receive.dscp), (7, 2, 0, 0, 0));
}

#[test]
fn kernels_of_another_gpu_have_doorbells_of_their_own() {
    let firmware = Firmware::default();
    let adapter = open(&firmware, &DeviceChoice::default()).unwrap();
    let host = adapter.create(with_receives(3, true)).unwrap();
    assert_eq!(adapter.path().doorbell, Doorbell::Gpu);
    let (_, context) = fake::Gpu::open();
    let space = Space::gpu(context);
    // The stand-in for the GPU's driver maps no registers.
    let plan = || QueuePlan { space: space.clone(), ..with_receives(3, true) };
    let pairs = [adapter.create(plan()).unwrap(), adapter.create(plan()).unwrap()];
    let doorbell = |pair: &dyn QueuePair| pair.memory().send_queue(0, 0).doorbell;
    assert_eq!(doorbell(&*host) % 4096, 0x800);
    assert_ne!(doorbell(&*pairs[0]), doorbell(&*pairs[1]));
    assert_eq!(pairs[0].flags() & abi::SEND_NEAR, 0);
    // A thread of the host posts there, too, through the mailbox.
    let [registers @ .., last] = &firmware.registers()[..] else { panic!("no registers") };
    assert!(!registers.is_empty());
    let [pair, _] = pairs;
    let number = pair.number();
    let mut queue = CpuSendQueue::new(pair).unwrap();
    queue.post(send(Payload::Inline(&[1; 4])), true).unwrap();
    queue.ring();
    let expected = u64::from_ne_bytes(crate::wire::mlx5::doorbell::SendDoorbell::new(number, 1).to_bytes());
    let until = Instant::now() + LIMIT;
    // SAFETY: registers of the live stand-in, stored in one access.
    let seen = || firmware.registers().iter().any(|r| unsafe { r.cast::<u64>().read_volatile() } == expected);
    while !seen() {
        assert!(Instant::now() < until, "nobody forwards the mailbox to {last:?}");
        std::thread::yield_now();
    }
    drop((queue, host, adapter));
    nothing_wrong(&firmware.log());
}

fn send(payload: Payload<'_>) -> Operation<'_> {
    Operation::Send { payload, with: SendWith::Nothing }
}

/// One end of a connection, with memory of its own.
struct End {
    send: CpuSendQueue,
    receives: CpuReceiveQueue,
    keys: Box<dyn Registration>,
    memory: Region,
    _adapter: Box<dyn Adapter>,
}

const SLOTS: u64 = 4;
/// Bytes of memory for a receive.
const EACH: usize = 64;

impl End {
    fn piece(&self, at: usize, bytes: u32) -> DataSegment {
        DataSegment::new(self.keys.address() + at as u64, self.keys.local_key(), bytes)
    }

    fn post_receive(&mut self) {
        let piece = self.piece((self.receives.posted() % SLOTS) as usize * EACH, EACH as u32);
        self.receives.post(&[piece]).unwrap();
    }

    fn send(&mut self, message: &[u8]) {
        let at = SLOTS as usize * EACH;
        self.memory.write(at, message).unwrap();
        let piece = [self.piece(at, message.len() as u32)];
        let end = self.send.post(send(Payload::Pieces(&piece)), true).unwrap();
        self.send.ring();
        let until = Instant::now() + LIMIT;
        while self.send.poll().unwrap() < end {
            assert!(Instant::now() < until, "a send does not complete");
            std::thread::yield_now();
        }
    }

    fn receive(&mut self) -> Result<Message, PostError> {
        let until = Instant::now() + LIMIT;
        loop {
            if let Some(message) = self.receives.poll()? {
                return Ok(message);
            }
            assert!(Instant::now() < until, "no message arrives");
            std::thread::yield_now();
        }
    }
}

/// Connects two NICs that are driven by commands and rings alone.
fn ends(choice: &DeviceChoice, data_in_entries: bool) -> [End; 2] {
    let adapters = [stand_in::adapter(choice, ""), stand_in::adapter(choice, "")];
    let mut pairs = adapters.each_ref().map(|a| a.create(with_receives(SLOTS.ilog2(), data_in_entries)).unwrap());
    // Receives are posted before the queue pairs are connected.
    let receives = pairs.each_ref().map(|p| CpuReceiveQueue::new(&**p).unwrap());
    let addresses = pairs.each_ref().map(|p| p.address());
    pairs[0].connect(&addresses[1]).unwrap();
    pairs[1].connect(&addresses[0]).unwrap();
    let mut parts = adapters.into_iter().zip(pairs).zip(receives);
    std::array::from_fn(|_| {
        let ((adapter, pair), receives) = parts.next().unwrap();
        let memory = Space::cpu().allocate(Place::Host, 4096).unwrap();
        let keys = adapter.register_region(&memory, Rights::LOCAL_WRITE).unwrap();
        End { send: CpuSendQueue::new(pair).unwrap(), receives, keys, memory, _adapter: adapter }
    })
}

#[test]
fn messages_go_both_ways_for_many_laps() {
    let flame = DeviceChoice { blue_flame: true, ..DeviceChoice::default() };
    let mailbox = DeviceChoice { doorbell: DoorbellChoice::Cpu, ..DeviceChoice::default() };
    let unrecorded = DeviceChoice { record: RecordChoice::Off, ..DeviceChoice::default() };
    for choice in [DeviceChoice::default(), flame, mailbox, unrecorded] {
        for data_in_entries in [true, false] {
            let mut ends = ends(&choice, data_in_entries);
            for end in &mut ends {
                (0..SLOTS).for_each(|_| end.post_receive());
            }
            // Rings of 16 blocks and 4 receives wrap.
            for i in 0..40u64 {
                let bytes = [16, 32, 33, 64][i as usize % 4];
                let message: Vec<u8> = (0..bytes).map(|n| (n as u64 * 3 + i) as u8).collect();
                let (from, to) = (i as usize % 2, 1 - i as usize % 2);
                ends[from].send(&message);
                let m = ends[to].receive().unwrap();
                assert_eq!((m.position, m.bytes), (i / 2, bytes as u32));
                let mut landed = vec![0; bytes];
                ends[to].memory.read((m.position % SLOTS) as usize * EACH, &mut landed).unwrap();
                match m.in_entry {
                    Some(entry) => assert!(data_in_entries && bytes <= 32 && entry[..bytes] == message),
                    None => assert!((!data_in_entries || bytes > 32) && landed == message, "{choice:?} {bytes}"),
                }
                ends[to].post_receive();
            }
        }
    }
}

#[test]
fn a_queue_pair_that_is_made_anew_has_an_empty_receive_ring() {
    let firmware = Firmware::default();
    let mut pair = open(&firmware, &DeviceChoice::default()).unwrap().create(with_receives(2, true)).unwrap();
    let mut receives = CpuReceiveQueue::new(&*pair).unwrap();
    receives.post(&[DataSegment::new(0x1000, 7, 16)]).unwrap();
    pair.connect_along(&route()).unwrap();
    assert_eq!(pair.memory().records().get::<u32>(0).unwrap(), 1u32.to_be());
    pair.memory().receives().unwrap().completions().fill(0, 64, 0).unwrap();
    firmware.log().calls.clear();
    pair.reset().unwrap();
    assert_eq!(firmware.log().calls.join(","), "2ERR_QP,2RST_QP,free qp,free cq,free cq,cq,cq,qp,RST2INIT_QP");
    let memory = pair.memory();
    assert_eq!(memory.records().get::<u32>(0).unwrap(), 0);
    assert_eq!(memory.receives().unwrap().ring().get::<u64>(0).unwrap(), 0);
    assert_eq!(memory.receives().unwrap().completions().get::<u8>(63).unwrap(), 0xff);
    pair.connect_along(&route()).unwrap();
    drop(pair);
    let log = firmware.log();
    assert!(log.alive.is_empty() && log.violations.is_empty(), "{log:?}");
}
