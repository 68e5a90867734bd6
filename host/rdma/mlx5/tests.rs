mod receives;

use super::adapter::{Facts, Kernels, Memories, Mlx5Adapter};
use super::devx::UarKind;
use super::doorbell::{DoorbellWriter, Doorbells};
use super::queue::transitions;
use super::stand_in::{Capabilities, Driver, Firmware, nothing_wrong};
use crate::cuda::WritesOrdering;
use crate::cuda::fake::{self, Allocation};
use crate::data_path::{Doorbell, QueueMemory};
use crate::engine::abi;
use crate::memory::{Place, Space};
use crate::rdma::connection::tests::roce;
use crate::rdma::{
    Adapter, DeviceChoice, DoorbellChoice, Endpoint, MemoryRange, QueueChoice, QueuePair, QueuePlan, RdmaError,
    RecordChoice, Registration, Rights, Route, TrafficClass,
};
use crate::refused::{self, Interface};
use crate::this_host::testing::with_page_bytes;
use crate::wire::mlx5::devx::{CreateCq, CreateQp, ModifyQp, Transition};
use crate::wire::mlx5::doorbell::RecordMode;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[derive(Debug)]
struct NoMemories;

impl Memories for NoMemories {
    unsafe fn register(&self, memory: MemoryRange, _: Rights) -> Result<Box<dyn Registration>, RdmaError> {
        let reason = "the stand-in has none".to_owned();
        Err(RdmaError::Registration { address: memory.address, bytes: memory.bytes, reason })
    }
    fn registration_path(&self) -> String {
        "host".to_owned()
    }
}

/// Creates kernels as on a GPU, with the GPU's driver.
fn kernels() -> Kernels {
    Kernels { space: Space::cpu(), mapper: Box::new(Driver::default()), gpu: Some(WritesOrdering::All) }
}

fn open(firmware: &Firmware, choice: &DeviceChoice) -> Result<Mlx5Adapter, RdmaError> {
    let facts = Facts {
        name: "mlx5_0 port 1".to_owned(),
        link: "RoCE v2".to_owned(),
        port: roce(1).0,
        forced: Some(TrafficClass(106)),
        priorities: (0..=255u8).map(|c| TrafficClass(c).default_priority()).collect(),
    };
    Mlx5Adapter::new(Box::new(firmware.clone()), Box::new(NoMemories), facts, choice, kernels())
}

fn plan(log_blocks: u32) -> QueuePlan {
    QueuePlan { space: Space::cpu(), log_blocks, collapsed: false, data: Place::Device, receives: None }
}

fn peer() -> Endpoint {
    roce(2).1
}

fn bring_up(firmware: &Firmware) -> Result<(Mlx5Adapter, Box<dyn QueuePair>), RdmaError> {
    let adapter = open(firmware, &DeviceChoice::default())?;
    let mut pair = adapter.create(plan(7))?;
    pair.connect(&peer().to_address())?;
    Ok((adapter, pair))
}

/// Returns the non-zero words of a command as offset and value.
fn words(command: &[u8]) -> Vec<(usize, u32)> {
    let word = |c: &[u8]| u32::from_be_bytes(c.try_into().unwrap());
    command.chunks_exact(4).map(word).enumerate().map(|(i, w)| (4 * i, w)).filter(|&(_, w)| w != 0).collect()
}

#[test]
fn objects_are_made_and_given_back_in_order() {
    let firmware = Firmware::default();
    let (adapter, pair) = bring_up(&firmware).unwrap();
    let made = "capabilities 0,capabilities 3,capabilities 4,event queue,uar Uncached,umem,umem,umem,cq,qp,RST2INIT_QP,mac,INIT2RTR_QP,\
                RTR2RTS_QP";
    assert_eq!(firmware.log().calls.join(","), made);
    let path = adapter.path();
    assert_eq!((path.doorbell, path.queues), (Doorbell::Gpu, QueueMemory::Gpu));
    assert_eq!(pair.failure(), None);
    firmware.log().calls.clear();
    // The adapter may be dropped first: a queue pair keeps the parts that it needs.
    drop(adapter);
    assert!(firmware.log().calls.is_empty());
    drop(pair);
    assert_eq!(firmware.log().calls.join(","), "free qp,free cq,free umem,free umem,free umem,free uar");
    let log = firmware.log();
    assert!(log.alive.is_empty() && log.violations.is_empty(), "{log:?}");
}

#[test]
fn commands_have_their_golden_words() {
    let firmware = Firmware::default();
    let (_adapter, pair) = bring_up(&firmware).unwrap();
    let log = firmware.log();
    // Numbers follow the order of calls: send ring, completions, records.
    let cq = CreateCq::from_bytes(&log.commands[0]).unwrap();
    let (uar, ring, entries, records) = (cq.uar_page, cq.umem_id - 1, cq.umem_id, cq.dbr_umem_id);
    assert_eq!(records, entries + 1);
    let golden = [
        (0x00, 0x0400_0000),
        (0x10, 0x0202_0000),
        (0x14, records),
        (0x1c, 0x0700_0000 | uar),
        (0x24, 0x105),
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
        (0xac, 0x16ab_cdef),
    ];
    assert_eq!(words(&log.commands[3]), golden);
    assert!(receive.udp_sport >= 0xc000);
    let send = ModifyQp::from_bytes(&log.commands[4]).unwrap().context;
    let golden = [
        (0x00, 0x0504_0000),
        (0x08, number),
        (0x38, 0x8000_0000),
        (0x54, 0x1_0000),
        (0x88, 0x0087_c000),
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
        let [(step, _, receive), _] = transitions(1, &route, None);
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
fn a_refused_command_is_kept_with_its_bytes() {
    let firmware = Firmware::default();
    drop(bring_up(&firmware).unwrap());
    let step = firmware.log().calls.iter().position(|c| c == "INIT2RTR_QP").unwrap();
    let firmware = Firmware::default();
    firmware.log().fail_at = Some(step);
    bring_up(&firmware).map(drop).unwrap_err();
    let kept = refused::tests::of_device("mlx5_0 port 1");
    let kept = kept.iter().find(|c| c.command.contains("ready to receive") && c.input.starts_with("0503")).unwrap();
    assert_eq!((kept.interface, kept.status, kept.syndrome), (Interface::Mlx5, 0x03, Some(0x001a_2b3c)));
    assert!(kept.output.starts_with("03000000001a2b3c"), "{}", kept.output);
    // All 272 bytes.
    assert_eq!(kept.input.len(), 544);
    assert!(kept.meaning.contains("syndrome 0x001a2b3c"), "{}", kept.meaning);
}

#[test]
fn a_failure_at_any_step_leaves_nothing_behind() {
    let firmware = Firmware::default();
    drop(bring_up(&firmware).unwrap());
    // Freeing cannot fail.
    let steps = firmware.log().calls.iter().filter(|c| !c.starts_with("free")).count();
    let mut failed = 0;
    for nth in 0..steps + 1 {
        let firmware = Firmware::default();
        firmware.log().fail_at = Some(nth);
        let outcome = bring_up(&firmware);
        let step = firmware.log().calls.get(nth).cloned().unwrap_or_default();
        match outcome.map(drop) {
            // Retries exist for a page (second kind), GPU memory (host memory) and a queue pair (second timestamp
            // format). Without the capabilities of RoCE no port is wrong.
            Ok(()) => {
                assert!(
                    step.is_empty()
                        || ["uar", "umem", "qp", "free", "capabilities 4"].iter().any(|s| step.starts_with(s)),
                    "{step}"
                )
            }
            Err(e) => {
                failed += 1;
                let text = e.to_string();
                let firmware = ["capabilities 0", "capabilities 3", "RST2INIT_QP", "INIT2RTR_QP", "RTR2RTS_QP"];
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
        let log = firmware.log();
        assert_eq!(log.alive, Vec::<String>::new(), "after a failure of {step}");
        assert_eq!(log.violations, Vec::<String>::new(), "after a failure of {step}");
    }
    // Two groups of capabilities, event queue, completion queue, hardware address, three transitions.
    assert_eq!(failed, 8);
}

#[test]
fn the_other_timestamp_format_is_tried() {
    let firmware = Firmware::default();
    firmware.log().no_format = Some(1);
    let (_adapter, _pair) = bring_up(&firmware).unwrap();
    let log = firmware.log();
    let formats: Vec<u8> =
        log.commands.iter().filter_map(|c| CreateQp::from_bytes(c).ok()).map(|c| c.context.ts_format).collect();
    assert_eq!(formats, [1, 0]);
}

#[test]
fn a_nic_that_lacks_something_says_what() {
    let firmware = Firmware::default();
    firmware.log().no_atomics = true;
    let text = open(&firmware, &DeviceChoice::default()).unwrap_err().to_string();
    assert!(text.contains("no masked atomics") && text.contains("transport verbs"), "{text}");
    let firmware = Firmware::default();
    firmware.log().swapped_atomics = true;
    let text = open(&firmware, &DeviceChoice::default()).unwrap_err().to_string();
    assert!(text.contains("atomic_req_8B_endianness_mode is 0"), "{text}");
    let firmware = Firmware::default();
    let adapter = open(&firmware, &DeviceChoice { doorbell: DoorbellChoice::Cpu, ..DeviceChoice::default() }).unwrap();
    firmware.log().no_registers = vec![UarKind::Uncached, UarKind::SharedUncached, UarKind::BlueFlame];
    assert!(adapter.create(plan(7)).unwrap_err().to_string().contains("no doorbell register"));
    firmware.log().no_registers.clear();
    assert!(adapter.create(plan(0)).is_err());
    assert!(adapter.create(plan(16)).unwrap_err().to_string().contains("at most 32768 blocks"));
}

/// Returns the text of the error with which a NIC is refused.
fn denied(choice: &DeviceChoice, change: impl FnOnce(&mut Capabilities)) -> String {
    let firmware = Firmware::default();
    change(&mut firmware.log().capabilities);
    open(&firmware, choice).unwrap_err().to_string()
}

#[test]
fn capabilities_are_refused_by_name_with_the_value_found() {
    let plain = DeviceChoice::default();
    let flame = DeviceChoice { blue_flame: true, ..DeviceChoice::default() };
    let cpu = DeviceChoice { doorbell: DoorbellChoice::Cpu, ..flame.clone() };
    let both = DeviceChoice { record: RecordChoice::Off, ..flame.clone() };
    let off = DeviceChoice { record: RecordChoice::Off, ..DeviceChoice::default() };
    for (text, parts) in [
        (denied(&plain, |a| a.cqe_version = 0), ["version 0 (cqe_version)", "transport verbs"]),
        (denied(&plain, |a| a.overrun_ignore = false), ["cq_oi is 0", "transport verbs"]),
        (denied(&plain, |a| a.max_entry_bytes = 64), ["at most 64 bytes (max_wqe_sz_sq)", "transport verbs"]),
        (denied(&off, |_| ()), ["send_dbr_mode_no_dbr_ext is 0", "WARPBELL_RDMA_RECORD=auto"]),
        (denied(&flame, |a| a.blue_flame = false), ["bf is 0", "unset WARPBELL_RDMA_BLUEFLAME"]),
        (denied(&flame, |a| a.log_blue_flame = 6), ["2^6 bytes (log_bf_reg_size)", "unset WARPBELL_RDMA_BLUEFLAME"]),
        (denied(&cpu, |_| ()), ["a CPU thread writes the doorbells", "WARPBELL_RDMA_DOORBELL=auto"]),
        (denied(&both, |a| a.no_record = true), ["with a doorbell record", "WARPBELL_RDMA_RECORD=auto"]),
    ] {
        assert!(text.contains("mlx5_0 port 1: ") && parts.iter().all(|p| text.contains(p)), "{text}");
    }
}

#[test]
fn a_nic_that_needs_no_doorbell_record_has_none() {
    let firmware = Firmware::default();
    firmware.log().capabilities.no_record = true;
    let auto = DeviceChoice { record: RecordChoice::Auto, ..DeviceChoice::default() };
    let adapter = open(&firmware, &auto).unwrap();
    let pair = adapter.create(plan(7)).unwrap();
    assert!(firmware.log().calls.join(",").contains("capabilities 3,capabilities 32,capabilities 4,"));
    let modes: Vec<_> = words(&firmware.log().commands[1]).into_iter().filter(|(at, _)| *at == 0x28).collect();
    assert_eq!(modes, [(0x28, 0x4000_0000)]);
    let queue = pair.memory().send_queue(pair.number(), pair.flags());
    assert_eq!((queue.doorbell % 4096, queue.flame), (0x600, 0));
    assert_ne!(queue.flags & abi::SEND_NO_RECORD, 0);
    assert!(adapter.path().note.unwrap().contains("queue pairs have no doorbell records"));

    // Records unless other queue pairs are asked for.
    let firmware = Firmware::default();
    firmware.log().capabilities.no_record = true;
    let pair = open(&firmware, &DeviceChoice::default()).unwrap().create(plan(7)).unwrap();
    let queue = pair.memory().send_queue(pair.number(), pair.flags());
    assert_eq!((queue.doorbell % 4096, queue.flags & abi::SEND_NO_RECORD), (0x800, 0));
    nothing_wrong(&firmware.log());
}

#[test]
fn firmware_that_refuses_queue_pairs_without_a_record_gets_some_with_one() {
    let firmware = Firmware::default();
    firmware.log().capabilities.no_record = true;
    firmware.log().refuses_no_record = true;
    let auto = DeviceChoice { record: RecordChoice::Auto, ..DeviceChoice::default() };
    let adapter = open(&firmware, &auto).unwrap();
    let pair = adapter.create(plan(7)).unwrap();
    let queue = pair.memory().send_queue(pair.number(), pair.flags());
    assert_eq!((queue.doorbell % 4096, queue.flags & abi::SEND_NO_RECORD), (0x800, 0));
    let note = adapter.path().note.unwrap();
    assert!(note.contains("the firmware refused one without") && note.contains("syndrome 0x001a2b3c"), "{note}");
    // The next one is not tried without.
    firmware.log().calls.clear();
    adapter.create(plan(7)).unwrap();
    assert_eq!(firmware.log().calls.iter().filter(|c| *c == "qp").count(), 1);
    let choice = DeviceChoice { record: RecordChoice::Off, ..DeviceChoice::default() };
    let text = open(&firmware, &choice).unwrap().create(plan(7)).unwrap_err().to_string();
    assert!(text.contains("without a doorbell record") && text.contains("WARPBELL_RDMA_RECORD=on"), "{text}");
    nothing_wrong(&firmware.log());
}

#[test]
fn a_blue_flame_register_has_one_queue_pair() {
    let firmware = Firmware::default();
    let choice = DeviceChoice { blue_flame: true, ..DeviceChoice::default() };
    let adapter = open(&firmware, &choice).unwrap();
    let pairs: Vec<_> = (0..20).map(|_| adapter.create(plan(7)).unwrap()).collect();
    let queues: Vec<_> = pairs.iter().map(|p| p.memory().send_queue(p.number(), p.flags())).collect();
    let flames: Vec<u64> = queues.iter().filter(|q| q.flame != 0).map(|q| q.doorbell).collect();
    assert_eq!(flames.iter().collect::<std::collections::BTreeSet<_>>().len(), 16);
    assert!(queues[..16].iter().all(|q| q.flame == 0x100 && [0x800, 0xa00].contains(&(q.doorbell % 4096))));
    assert!(queues[16..].iter().all(|q| q.flame == 0 && !flames.contains(&q.doorbell)));
    assert!(adapter.path().note.unwrap().contains("BlueFlame registers"));
    nothing_wrong(&firmware.log());

    // Registers that kernels cannot access.
    let firmware = Firmware::default();
    firmware.log().no_registers = vec![UarKind::BlueFlame];
    let adapter = open(&firmware, &choice).unwrap();
    assert_eq!(adapter.path().doorbell, Doorbell::Cpu);
    assert!(adapter.path().note.unwrap().contains("BlueFlame is not used"));
    let pair = adapter.create(plan(7)).unwrap();
    assert_eq!(pair.memory().send_queue(pair.number(), 0).flame, 0);
}

#[test]
fn ports_of_roce_are_those_that_the_nic_accepts() {
    let firmware = Firmware::default();
    firmware.log().capabilities.udp = [4790, 0xd000, 0xd00f];
    let (adapter, _pair) = bring_up(&firmware).unwrap();
    let receive = ModifyQp::from_bytes(&firmware.log().commands[3]).unwrap().context;
    assert!((0xd000..=0xd00f).contains(&receive.udp_sport), "{:#x}", receive.udp_sport);
    let note = adapter.path().note.unwrap();
    assert!(note.contains("UDP port 4790 (r_roce_dest_udp_port), not 4791"), "{note}");
}

#[test]
fn a_queue_pair_fails_when_it_says_so_and_not_when_it_says_nothing() {
    let firmware = Firmware::default();
    let (_adapter, pair) = bring_up(&firmware).unwrap();
    assert_eq!(pair.failure(), None);
    firmware.log().no_queries = true;
    assert_eq!(pair.failure(), None);
    firmware.log().no_queries = false;
    // Reset to ready to send, drained, and an undefined state do not fail; send queue error and error do.
    for (state, fails) in [(0, false), (3, false), (5, false), (9, false), (4, true), (6, true)] {
        firmware.log().state = Some(state);
        assert_eq!(pair.failure().is_some(), fails, "state {state}");
    }
    nothing_wrong(&firmware.log());
}

#[test]
fn memory_that_devices_do_not_reach_is_named_before_any_attempt() {
    let (gpu, context) = fake::Gpu::open();
    let space = Space::gpu(context);
    let firmware = Firmware::default();
    let adapter = open(&firmware, &DeviceChoice::default()).unwrap();
    let before = firmware.log().calls.len();
    let pool = Allocation { pool: 9, ..Allocation::plain(1 << 16) };
    let mapped = Allocation { is_mapped: true, ..Allocation::plain(1 << 16) };
    for (like, cause, next) in
        [(pool, "stream-ordered pool", "cuMemAlloc"), (mapped, "gpuDirectRDMACapable", "CUmemAllocationProp")]
    {
        // SAFETY: memory of the fake stays until the process ends.
        let region = unsafe { space.import_device(gpu.allocate(like), 1 << 16, Arc::new(())) }.unwrap();
        let refusals = [
            adapter.register_region(&region, Rights::LOCAL_WRITE).unwrap_err(),
            super::devx::register(&firmware, &region, "the send ring").unwrap_err(),
        ];
        for e in refusals {
            assert!(matches!(e, RdmaError::Registration { bytes: 65536, .. }), "{e:?}");
            let text = e.to_string();
            let (fact, remedy) = text.split_once("; ").unwrap();
            assert!(fact.contains(cause) && remedy.contains(next), "{text}");
        }
    }
    assert_eq!(firmware.log().calls.len(), before, "{:?}", firmware.log().calls);
}

#[test]
fn registers_of_one_page_are_mapped_once() {
    let firmware = Firmware::default();
    let adapter = open(&firmware, &DeviceChoice::default()).unwrap();
    assert_eq!(adapter.path().doorbell, Doorbell::Gpu);
    let pairs: Vec<_> = (0..20).map(|_| adapter.create(plan(7)).unwrap()).collect();
    let doorbells: Vec<u64> = pairs.iter().map(|p| p.memory().send_queue(p.number(), 0).doorbell).collect();
    let different = |all: &[u64]| all.iter().collect::<std::collections::BTreeSet<_>>().len();
    // Sixteen registers of four pages, all of one kind. Later queue pairs share them.
    assert_eq!((different(&doorbells[..16]), different(&doorbells)), (16, 16));
    let pages: Vec<u64> = doorbells.iter().map(|d| d / 4096).collect();
    assert_eq!(different(&pages), 4);
    assert!(!firmware.log().calls.iter().any(|c| c == "uar BlueFlame"));
}

/// A system page of 64 KiB holds several register pages. Kernels get the registers' own addresses, and no system page is
/// mapped twice.
#[test]
fn registers_are_found_in_larger_pages_of_the_system() {
    for record in [RecordChoice::On, RecordChoice::Off] {
        with_page_bytes(64 << 10, || {
            let firmware = Firmware::default();
            firmware.log().capabilities.no_record = true;
            let adapter = open(&firmware, &DeviceChoice { record, ..DeviceChoice::default() }).unwrap();
            assert_eq!(adapter.path().doorbell, Doorbell::Gpu);
            let pairs: Vec<_> = (0..16).map(|_| adapter.create(plan(7)).unwrap()).collect();
            let doorbells = pairs.iter().map(|p| p.memory().send_queue(p.number(), p.flags()).doorbell);
            let expected = firmware.registers().into_iter().map(|r| match record {
                RecordChoice::Off => r.as_ptr() as u64 & !0xfff | 0x600,
                _ => r.as_ptr() as u64,
            });
            assert_eq!(doorbells.collect::<Vec<_>>(), expected.collect::<Vec<_>>());
            nothing_wrong(&firmware.log());
        });
    }
}

#[test]
fn what_is_sent_from_host_memory_is_not_near_and_has_its_rings_beside_it() {
    let near = |choice: QueueChoice, data| {
        let choice = DeviceChoice { queues: choice, ..DeviceChoice::default() };
        let adapter = open(&Firmware::default(), &choice).unwrap();
        let pair = adapter.create(QueuePlan { data, ..plan(7) })?;
        Ok::<_, RdmaError>((pair.memory().place(), pair.flags() & abi::SEND_NEAR != 0))
    };
    assert_eq!(near(QueueChoice::Auto, Place::Device).unwrap(), (Place::Device, true));
    assert_eq!(near(QueueChoice::Gpu, Place::Device).unwrap(), (Place::Device, true));
    assert_eq!(near(QueueChoice::Host, Place::Device).unwrap(), (Place::Host, false));
    assert_eq!(near(QueueChoice::Auto, Place::Host).unwrap(), (Place::Host, false));
    assert_eq!(near(QueueChoice::Host, Place::Host).unwrap(), (Place::Host, false));
    let text = near(QueueChoice::Gpu, Place::Host).unwrap_err().to_string();
    assert!(text.contains("WARPBELL_RDMA_QUEUES=gpu"), "{text}");
}

#[test]
fn a_failed_queue_pair_is_made_anew() {
    let firmware = Firmware::default();
    let (_adapter, mut pair) = bring_up(&firmware).unwrap();
    let before = pair.number();
    firmware.log().state = Some(6);
    let text = pair.failure().unwrap();
    assert!(text.contains("error state") && text.contains("block 0x3 of 0x5"), "{text}");
    pair.memory().records().set(4, 9u32).unwrap();
    firmware.log().calls.clear();
    pair.reset().unwrap();
    assert_eq!(firmware.log().calls.join(","), "2ERR_QP,2RST_QP,free qp,free cq,cq,qp,RST2INIT_QP");
    assert_ne!(pair.number(), before);
    assert_eq!(Endpoint::from_address(&pair.address(), 1).unwrap().number, pair.number());
    assert_eq!(pair.memory().records().get::<u32>(4).unwrap(), 0);
    pair.connect(&peer().to_address()).unwrap();
    drop(pair);
    assert_eq!(firmware.log().violations, Vec::<String>::new());
}

#[test]
fn kernels_ring_at_the_register_or_at_a_mailbox() {
    // With a register, kernels get an address in the NIC's page.
    let firmware = Firmware::default();
    let adapter = open(&firmware, &DeviceChoice::default()).unwrap();
    let pair = adapter.create(plan(7)).unwrap();
    let queue = pair.memory().send_queue(pair.number(), pair.flags());
    assert_eq!(queue.doorbell % 4096, 0x800);

    // With a mailbox, a thread forwards it.
    let choice = DeviceChoice { doorbell: DoorbellChoice::Cpu, queues: QueueChoice::Host, ..DeviceChoice::default() };
    let firmware = Firmware::default();
    let adapter = open(&firmware, &choice).unwrap();
    assert_eq!(adapter.path().doorbell, Doorbell::Cpu);
    let pair = adapter.create(plan(7)).unwrap();
    let queue = pair.memory().send_queue(pair.number(), pair.flags());
    let value = 0x0102_0304_0506_0708u64;
    // SAFETY: the mailbox of a live queue pair, aligned; the thread reads it in one access.
    unsafe { std::sync::atomic::AtomicU64::from_ptr(queue.doorbell as *mut u64) }
        .store(value, std::sync::atomic::Ordering::Release);
    let [register] = firmware.registers()[..] else { panic!("one queue pair has one register") };
    let until = Instant::now() + Duration::from_secs(20);
    // SAFETY: a register of the live stand-in, stored in one access.
    while unsafe { register.cast::<u64>().read_volatile() } != value {
        assert!(Instant::now() < until, "nobody forwards the mailbox");
        std::thread::yield_now();
    }
    drop(pair);
}

#[test]
fn a_page_that_kernels_do_not_reach_leaves_the_ringing_to_the_cpu() {
    let firmware = Firmware::default();
    firmware.log().no_registers = vec![UarKind::Uncached, UarKind::BlueFlame];
    let adapter = open(&firmware, &DeviceChoice::default()).unwrap();
    let path = adapter.path();
    assert_eq!(path.doorbell, Doorbell::Cpu);
    assert!(path.note.unwrap().contains("a CPU thread writes the doorbells: Uncached register"));
    adapter.create(plan(7)).unwrap();
    assert!(firmware.log().calls.contains(&"uar SharedUncached".to_owned()));
    let choice = DeviceChoice { doorbell: DoorbellChoice::Gpu, ..DeviceChoice::default() };
    let text = open(&firmware, &choice).unwrap_err().to_string();
    assert!(text.contains("WARPBELL_RDMA_DOORBELL=cpu"), "{text}");
}

#[test]
fn registers_are_mapped_by_a_dma_buf_where_the_gpus_driver_refuses_their_address() {
    let mapper = || Box::new(Driver::of_dma_bufs());
    for exports in [true, false] {
        let firmware = Firmware::default();
        firmware.log().capabilities.exports_registers = exports;
        let doorbells = Doorbells::new(mapper(), None);
        let doorbell_writer = doorbells.probe(&firmware, DoorbellChoice::Auto).unwrap();
        if !exports {
            let DoorbellWriter::Cpu { why: Some(why) } = doorbell_writer else { panic!("{doorbell_writer:?}") };
            assert!(
                why.contains("CUDA_ERROR_NOT_PERMITTED") && why.contains("as a dma-buf: Operation not supp"),
                "{why}"
            );
            let e = doorbells.probe(&firmware, DoorbellChoice::Gpu).unwrap_err().to_string();
            assert!(e.contains("as a dma-buf") && e.contains("WARPBELL_RDMA_DOORBELL=cpu"), "{e}");
            continue;
        }
        assert_eq!(doorbell_writer, DoorbellWriter::Kernels);
        let taken: Vec<_> = (0..6).map(|_| doorbells.take(&firmware, &doorbell_writer).unwrap()).collect();
        for (i, doorbell) in taken.iter().enumerate() {
            let (page, offset) = doorbell.mapped(RecordMode::Valid).unwrap();
            let (kernels, own) = (page.address() + offset as u64, doorbell.register());
            assert_ne!(kernels, own.as_ptr() as u64);
            // SAFETY: two mappings of one register, in memory.
            unsafe {
                (kernels as *mut u64).write_volatile(7 + i as u64);
                assert_eq!(own.cast::<u64>().read_volatile(), 7 + i as u64);
            }
        }
        drop((doorbells, taken));
        assert_eq!(firmware.log().alive, Vec::<String>::new());
    }
}
