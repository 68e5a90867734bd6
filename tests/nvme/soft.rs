//! Tests the driver against the software controller, and against its faults.
#![cfg(all(feature = "storage", feature = "soft"))]

use std::sync::Arc;
use std::time::{Duration, Instant};
use warpbell::memory::{Place, Space};
use warpbell::nvme::{
    Controller, Disabled, Doorbell, HostQueue, HostQueueOptions, Landing, NvmeError, QueueOptions, Ready,
};
use warpbell::soft::nvme::{
    Access, FaultPlan, MediaError, Readiness, Selector, SoftConfig, SoftController, StuckQueue, Trigger,
};
use warpbell::wire::nvme::log::{AsyncEvent, EventKind};
use warpbell::wire::nvme::{feature, io, log_page, register, status};

const MIB: usize = 1 << 20;
/// Long enough that no command passes it by chance, short enough to wait for.
const SHORT: Duration = Duration::from_millis(100);
/// Time within which everything has ended, even on a busy machine.
const BOUND: Duration = Duration::from_secs(60);

fn memory() -> SoftConfig {
    SoftConfig::memory(MIB as u64).threads(1)
}

fn faulty(change: impl FnOnce(&mut FaultPlan)) -> SoftConfig {
    let mut plan = FaultPlan::default();
    change(&mut plan);
    memory().faults(plan)
}

fn attach(config: SoftConfig) -> Controller<Disabled> {
    let mut controller = Controller::new(SoftController::start(config).unwrap().attachment()).unwrap();
    controller.set_command_deadline(Duration::from_secs(5));
    controller
}

fn open(config: SoftConfig) -> Arc<Controller<Ready>> {
    Arc::new(attach(config).enable().map_err(|(_, e)| e).unwrap())
}

fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    (0..bytes as u64 / 8).flat_map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed).to_le_bytes()).collect()
}

#[test]
fn bring_up_and_identify() {
    let controller = open(memory().max_queue_pairs(7).max_transfer_bytes(64 << 10));
    assert_eq!((controller.kind(), controller.granted_queues()), ("soft", 7));
    assert_eq!(controller.max_data_transfer(), Some(64 << 10));
    assert!(!controller.identify().model().is_empty());
    assert_eq!(controller.namespaces().unwrap(), [1]);
    let ns = controller.namespace(1).unwrap();
    assert_eq!((ns.bytes(), ns.block_bytes()), (MIB as u64, 512));
    assert_eq!(controller.feature(feature::NUMBER_OF_QUEUES).unwrap(), 6 << 16 | 6);
    controller.health().unwrap();
    assert!(controller.error_log().unwrap().is_empty());
    assert!(matches!(controller.namespace(2), Err(NvmeError::NoNamespace { nsid: 2, .. })));
    // A failed admin command is an error of queue 0.
    assert!(controller.error_log().unwrap().iter().all(|e| e.sqid == 0 && !e.status.is_success()));
    controller.check().unwrap();
}

#[test]
fn what_is_written_is_read() {
    for block in [512, 4096] {
        let controller = open(memory().block_bytes(block));
        let ns = controller.namespace(1).unwrap();
        for bytes_per_command in [4096, 8192, 64 << 10] {
            let options = HostQueueOptions::default().depth(8).bytes_per_command(bytes_per_command);
            let mut queue = HostQueue::create(&controller, options).unwrap();
            let data = pattern(bytes_per_command as u64, MIB);
            queue.write(&ns, 0, &data).unwrap();
            queue.flush(&ns).unwrap();
            let mut out = vec![0; MIB];
            queue.read(&ns, 0, &mut out).unwrap();
            assert!(out == data, "blocks of {block}, commands of {bytes_per_command}");
        }
    }
}

#[test]
fn kernels_get_doorbells_of_their_own_and_rings_anywhere() {
    let controller = open(memory().doorbell_stride(2));
    let ns = controller.namespace(1).unwrap();
    for (memory, landing) in [
        (Place::Host, Landing::Bounce { bytes_per_slot: 512 }),
        (Place::Device, Landing::Bounce { bytes_per_slot: 8192 }),
        (Place::Device, Landing::Direct),
    ] {
        let options = QueueOptions::default()
            .count(3)
            .depth(16)
            .memory(memory)
            .landing(landing)
            .first_ticket(0u32.wrapping_sub(64));
        let mut set = controller.create_queues(&Space::cpu(), options).unwrap();
        assert_eq!((set.doorbell(), set.doorbell_note()), (Doorbell::CpuEngine, None));
        assert_eq!((set.memory(), set.landing()), (memory, landing));
        for index in 0..3 {
            let mut queue = HostQueue::on(&mut set, index).unwrap();
            let data = pattern(u64::from(index), 100 << 10);
            queue.write(&ns, 0, &data).unwrap();
            let mut out = vec![0; data.len()];
            queue.read(&ns, 0, &mut out).unwrap();
            assert!(out == data, "{memory:?} {landing:?} queue {index}");
        }
        // Twice from the same doorbells: a new queue begins at 0 whatever doorbell value its predecessor wrote last.
        set.reset().unwrap();
        HostQueue::on(&mut set, 1).unwrap().flush(&ns).unwrap();
    }
}

#[test]
fn reset_shutdown_and_a_controller_left_enabled() {
    let soft = SoftController::start(memory()).unwrap();
    let enable = || Controller::new(soft.attachment()).unwrap().enable().map_err(|(_, e)| e).unwrap();
    let check = |controller: Controller<Ready>| {
        let controller = Arc::new(controller);
        let ns = controller.namespace(1).unwrap();
        HostQueue::create(&controller, HostQueueOptions::default()).unwrap().read(&ns, 0, &mut [0; 4096]).unwrap();
        Arc::into_inner(controller).expect("the queue gave its share back")
    };
    let again = check(enable()).disable().unwrap().enable().map_err(|(_, e)| e).unwrap();
    check(check(again).shutdown().unwrap().enable().map_err(|(_, e)| e).unwrap());
    let left = Arc::new(enable());
    std::mem::forget(left.create_queues(&Space::cpu(), QueueOptions::default()).unwrap());
    std::mem::forget(left);
    check(enable());
}

// --- faults ----------------------------------------------------------------------------------------------------------

#[test]
fn a_controller_that_is_never_ready_is_given_up() {
    let config = faulty(|p| p.ready = Readiness::Never).ready_timeout(Duration::from_millis(500));
    let (_disabled, e) = attach(config).enable().unwrap_err();
    assert!(matches!(e, NvmeError::NotReady { what: "become ready", .. }), "{e}");
}

#[test]
fn a_slow_one_is_waited_for() {
    let config = faulty(|p| p.ready = Readiness::Slow(SHORT));
    let started = Instant::now();
    let controller = open(config);
    assert!(started.elapsed() >= SHORT);
    controller.check().unwrap();
}

#[test]
fn a_media_error_names_its_block() {
    let bad = MediaError { blocks: 40..=41, access: Access::Read };
    let controller = open(faulty(|p| p.media_errors = vec![bad]));
    let ns = controller.namespace(1).unwrap();
    let mut queue =
        HostQueue::create(&controller, HostQueueOptions::default().depth(8).bytes_per_command(512)).unwrap();
    let e = queue.read(&ns, 32, &mut [0; 16 * 512]).unwrap_err();
    assert_eq!(e.status().unwrap().without_flags(), status::UNRECOVERED_READ_ERROR);
    assert!(e.to_string().contains("read of 1 block(s) at LBA 4"), "{e}");
    queue.read(&ns, 42, &mut [0; 512]).unwrap();
    let log = controller.error_log().unwrap();
    assert!(log.iter().any(|l| l.lba == 40 && l.status.without_flags() == status::UNRECOVERED_READ_ERROR), "{log:?}");
}

#[test]
fn completions_in_any_order_belong_to_their_commands() {
    let controller = open(faulty(|p| (p.reorder, p.seed) = (true, 7)));
    let ns = controller.namespace(1).unwrap();
    let mut queue =
        HostQueue::create(&controller, HostQueueOptions::default().depth(32).bytes_per_command(512)).unwrap();
    let data = pattern(1, MIB);
    queue.write(&ns, 0, &data).unwrap();
    let mut out = vec![0; MIB];
    queue.read(&ns, 0, &mut out).unwrap();
    assert!(out == data);
}

#[test]
fn a_lost_completion_ends_by_time_and_names_the_command() {
    let controller = open(faulty(|p| p.lose_completion = Some(Selector::Blocks(100..=100))));
    let ns = controller.namespace(1).unwrap();
    let mut set = controller.create_queues(&Space::cpu(), QueueOptions::default()).unwrap();
    let mut queue = HostQueue::on(&mut set, 0).unwrap();
    queue.set_deadline(SHORT);
    let started = Instant::now();
    let e = queue.read(&ns, 100, &mut [0; 512]).unwrap_err();
    assert!(matches!(e, NvmeError::TimedOut { queue: 1, opcode: io::READ, .. }), "{e}");
    assert!(e.to_string().contains("read of 1 block(s) at LBA 100"), "{e}");
    assert!(started.elapsed() < BOUND);
    // The rest of the queue continues, and after the hand-over the queue has all its slots again.
    queue.read(&ns, 101, &mut [0; 512]).unwrap();
    drop(queue);
    HostQueue::on(&mut set, 0).unwrap().read(&ns, 101, &mut [0; 512]).unwrap();
}

#[test]
fn a_stuck_queue_ends_by_time_and_can_be_deleted() {
    let stuck = StuckQueue { queue: Some(1), after: 3 };
    let controller = open(faulty(|p| p.stuck_queue = Some(stuck)));
    let ns = controller.namespace(1).unwrap();
    let mut queue =
        HostQueue::create(&controller, HostQueueOptions::default().depth(8).bytes_per_command(512)).unwrap();
    queue.set_deadline(SHORT);
    let e = queue.read(&ns, 0, &mut [0; 8 * 512]).unwrap_err();
    assert!(matches!(e, NvmeError::TimedOut { .. }), "{e}");
    drop(queue);
    assert_eq!(controller.free_queues(), controller.granted_queues());
}

#[test]
fn a_fatal_status_is_reported_before_the_deadline() {
    let controller = open(faulty(|p| p.fatal = Some(Trigger::After(5))));
    let ns = controller.namespace(1).unwrap();
    let mut queue =
        HostQueue::create(&controller, HostQueueOptions::default().depth(8).bytes_per_command(512)).unwrap();
    queue.set_deadline(BOUND);
    let started = Instant::now();
    let e = queue.read(&ns, 0, &mut [0; 64 * 512]).unwrap_err();
    assert!(matches!(e, NvmeError::Fatal { .. }), "{e}");
    assert!(started.elapsed() < BOUND);
    assert!(matches!(controller.check(), Err(NvmeError::Fatal { .. })));
}

#[test]
fn a_controller_that_disappears_is_reported_and_let_go() {
    let controller = open(faulty(|p| p.disappear = Some(Trigger::Blocks(8..=8))));
    let ns = controller.namespace(1).unwrap();
    let mut queue =
        HostQueue::create(&controller, HostQueueOptions::default().depth(8).bytes_per_command(512)).unwrap();
    queue.set_deadline(BOUND);
    let started = Instant::now();
    let e = queue.read(&ns, 0, &mut [0; 64 * 512]).unwrap_err();
    assert!(matches!(e, NvmeError::Gone { .. }), "{e}");
    drop(queue);
    assert!(matches!(controller.namespaces(), Err(NvmeError::Gone { .. })));
    drop(controller);
    assert!(started.elapsed() < BOUND);
}

// --- events that the controller reports by itself --------------------------------------------------------------------

fn next_event(controller: &Controller<Ready>) -> AsyncEvent {
    let started = Instant::now();
    loop {
        if let Some(event) = controller.events().unwrap().first() {
            return *event;
        }
        assert!(started.elapsed() < BOUND);
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn events_come_once_until_their_log_page_is_read() {
    let controller = open(memory());
    controller.watch_events().unwrap();
    // A doorbell of a queue that does not exist.
    let stride = controller.cap().doorbell_stride();
    let ring = |value| controller.port().write32(register::sq_tail(9, stride), value).unwrap();
    ring(1);
    let event = next_event(&controller);
    assert_eq!((event.kind(), event.log_page()), (EventKind::Error, log_page::ERROR), "{event}");
    assert_eq!(event.name(), "write to an invalid doorbell register");
    // The log entry belongs to no command.
    assert!(controller.error_log().unwrap().iter().any(|e| (e.sqid, e.cid) == (u16::MAX, u16::MAX)));
    ring(2);
    assert_eq!(next_event(&controller).kind(), EventKind::Error);
    // Another type of event comes although the first was not acknowledged by reading its log page.
    controller.set_feature(feature::TEMPERATURE_THRESHOLD, 290).unwrap();
    let event = next_event(&controller);
    assert_eq!((event.kind(), event.log_page()), (EventKind::Health, log_page::HEALTH), "{event}");
    assert_eq!(controller.health().unwrap().warnings(), ["a temperature is beyond its threshold"]);
}

#[test]
fn health_counts_what_was_done() {
    let controller = open(faulty(|p| {
        p.media_errors = vec![MediaError { blocks: 100..=100, access: Access::Read }];
    }));
    let ns = controller.namespace(1).unwrap();
    let mut queue =
        HostQueue::create(&controller, HostQueueOptions::default().depth(8).bytes_per_command(4096)).unwrap();
    queue.write(&ns, 0, &pattern(1, 64 << 10)).unwrap();
    queue.read(&ns, 0, &mut vec![0; 32 << 10]).unwrap();
    queue.read(&ns, 100, &mut [0; 512]).unwrap_err();
    let health = controller.health().unwrap();
    assert!(health.read_commands >= 8 && health.write_commands == 16, "{health:?}");
    assert_eq!((health.media_errors, health.data_units_written), (1, 1));
    let errors = controller.error_log().unwrap();
    assert_eq!((errors[0].lba, errors[0].nsid, errors[0].sqid), (100, 1, queue.id()));
    assert_eq!(health.error_log_entries, u128::from(errors[0].count));
    let slots = controller.firmware_slots().unwrap();
    assert_eq!((slots.active, slots.revisions[0].as_str()), (1, env!("CARGO_PKG_VERSION")));
}
