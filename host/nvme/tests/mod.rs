//! Tests of the driver with registers and admin behaviour that real controllers seldom show.

mod buffer;
mod fake;
#[path = "../../../tests/common/hostile_controller.rs"]
mod hostile;
mod manners;
mod peer;

use super::{
    Controller, Disabled, Doorbell, HostQueue, HostQueueOptions, Landing, NvmeError, QueueOptions, QueueSet, Ready,
};
use crate::engine::abi;
use crate::memory::{Place, Region, Space};
use crate::refused::Interface;
use crate::wire::nvme::{SqEntry, admin, io, status};
use fake::{CAP, Fake, Quirks};
use proptest::prelude::*;
use std::sync::Arc;
use std::time::Duration;

/// Deadline that is long enough to prevent false results, and short enough to wait for.
const SHORT: Duration = Duration::from_millis(60);

fn open(quirks: Quirks) -> (Arc<Fake>, Result<Controller<Disabled>, NvmeError>) {
    let (fake, attachment) = Fake::new(quirks);
    (fake, Controller::new(attachment))
}

fn enable(quirks: Quirks) -> (Arc<Fake>, Result<Controller<Ready>, NvmeError>) {
    let (fake, controller) = open(quirks);
    let mut controller = controller.unwrap();
    controller.set_command_deadline(SHORT);
    (fake, controller.enable().map_err(|(_, e)| e))
}

fn ready(quirks: Quirks) -> (Arc<Fake>, Arc<Controller<Ready>>) {
    let (fake, controller) = enable(quirks);
    (fake, Arc::new(controller.unwrap()))
}

fn options(count: u32, depth: u32) -> QueueOptions {
    QueueOptions { count, depth, ..QueueOptions::default() }
}

// --- bring-up --------------------------------------------------------------------------------------------------------

#[test]
fn looking_writes_nothing() {
    let (fake, controller) = open(Quirks { left_enabled: true, ..Quirks::default() });
    let controller = controller.unwrap();
    assert!(controller.is_enabled().unwrap());
    assert_eq!(controller.version(), (1, 4, 0));
    drop(controller);
    assert_eq!(fake.register_writes(), 0);
    assert!(fake.is_enabled());
}

#[test]
fn registers_that_cannot_be_driven_are_refused_by_name() {
    let refused = |quirks| open(quirks).1.unwrap_err();
    let quirks = Quirks::default;
    assert!(matches!(refused(Quirks { cap: u64::MAX, ..quirks() }), NvmeError::Gone { register: "CAP", .. }));
    assert!(matches!(refused(Quirks { version: u32::MAX, ..quirks() }), NvmeError::Gone { register: "VS", .. }));
    assert!(matches!(refused(Quirks { version: 0, ..quirks() }), NvmeError::NotAController { .. }));
    assert!(matches!(refused(Quirks { cap: 0, ..quirks() }), NvmeError::NotAController { .. }));
    // MPSMIN 1 is 8 KiB.
    assert!(matches!(refused(Quirks { cap: CAP | 1 << 48, ..quirks() }), NvmeError::PageSize { smallest: 8192, .. }));
    // CSS without the NVM command set.
    assert!(matches!(
        refused(Quirks { cap: CAP & !(1 << 37) | 1 << 44, ..quirks() }),
        NvmeError::CommandSet { css: 0x80, .. }
    ));
}

#[test]
fn interrupts_are_masked_where_the_registers_for_that_are_defined() {
    let (fake, controller) = ready(Quirks::default());
    assert_eq!(fake.interrupt_masks(), (vec![(0x0c, u32::MAX)], 0));
    drop(controller);
    let (fake, controller) = ready(Quirks { msix: true, ..Quirks::default() });
    assert_eq!(fake.interrupt_masks(), (vec![], 0), "accesses are undefined with MSI-X");
    drop(controller);
}

#[test]
fn a_controller_that_never_becomes_ready_is_given_up() {
    let (fake, e) = enable(Quirks { ready_after: None, ..Quirks::default() });
    let text = e.unwrap_err().to_string();
    assert!(text.contains("did not become ready within 500ms"), "{text}");
    assert!(!fake.is_enabled());
}

#[test]
fn a_slow_controller_is_waited_for() {
    // CAP.TO is two minutes, because a busy machine may need long for 300 reads.
    let (fake, controller) = enable(Quirks { cap: CAP | 0xff << 24, ready_after: Some(300), ..Quirks::default() });
    let controller = controller.unwrap();
    assert_eq!(controller.identify().serial(), "FAKE");
    assert!(fake.is_enabled());
}

#[test]
fn a_fatal_status_ends_bring_up_at_once_and_the_controller_comes_back() {
    let (fake, attachment) = Fake::new(Quirks { fatal_on_enable: true, ..Quirks::default() });
    let (disabled, e) = Controller::new(attachment).unwrap().enable().unwrap_err();
    assert!(matches!(e, NvmeError::Fatal { .. }), "{e}");
    // The enable can be repeated once the fault is removed.
    fake.with_quirks(|q| q.fatal_on_enable = false);
    assert!(disabled.enable().is_ok());
}

#[test]
fn a_controller_that_was_left_enabled_is_reset_first() {
    let (fake, controller) = ready(Quirks { left_enabled: true, ..Quirks::default() });
    controller.check().unwrap();
    assert!(fake.is_enabled());
    drop(controller);
    assert!(!fake.is_enabled());
}

#[test]
fn the_doorbell_stride_is_kept() {
    // DSTRD 2: the fake refuses writes between two doorbells.
    let (_fake, controller) = ready(Quirks { cap: CAP | 2 << 32, ..Quirks::default() });
    let set = controller.create_queues(&Space::cpu(), options(2, 4)).unwrap();
    let mut set = set;
    let ns = controller.namespace(1).unwrap();
    HostQueue::on(&mut set, 1).unwrap().flush_always(&ns).unwrap();
}

// --- admin commands --------------------------------------------------------------------------------------------------

#[test]
fn late_completions_do_not_confuse_later_commands() {
    let (fake, controller) = ready(Quirks::default());
    fake.with_quirks(|q| q.lose = vec![admin::IDENTIFY]);
    let e = controller.namespace(1).unwrap_err();
    assert!(matches!(e, NvmeError::TimedOut { queue: 0, opcode: admin::IDENTIFY, .. }), "{e}");
    fake.with_quirks(|q| q.lose.clear());
    // One late completion arrives before the next command is submitted, one after.
    fake.release_lost();
    assert_eq!(controller.namespace(1).unwrap().blocks(), 1000);
    fake.with_quirks(|q| q.lose = vec![admin::IDENTIFY]);
    assert!(controller.namespace(1).is_err());
    fake.with_quirks(|q| q.lose.clear());
    assert_eq!(controller.namespace(1).unwrap().blocks(), 1000);
    fake.release_lost();
    assert_eq!(controller.namespace(1).unwrap().blocks(), 1000);
}

#[test]
fn data_pages_run_out_with_an_error_not_with_a_wait() {
    let (fake, mut controller) = enable(Quirks::default());
    let controller = controller.as_mut().unwrap();
    controller.set_command_deadline(Duration::from_millis(5));
    fake.with_quirks(|q| q.lose = vec![admin::IDENTIFY]);
    let last = (0..20).map(|_| controller.namespace(1).unwrap_err()).last().unwrap();
    assert!(matches!(last, NvmeError::QueueStuck { queue: 0, outstanding: 8, .. }), "{last}");
    fake.with_quirks(|q| q.lose.clear());
    fake.release_lost();
    assert!(controller.namespace(1).is_ok());
}

#[test]
fn a_failed_command_says_which() {
    let (_fake, controller) = ready(Quirks::default());
    let e = controller.feature(0x55).unwrap_err();
    assert_eq!(e.status(), Some(status::INVALID_OPCODE.dnr()));
    assert!(e.to_string().contains("get features (feature 0x55) on the admin queue"), "{e}");
    // Opcode 0x0a in the first byte, the feature in the tenth word; other tests of this process refuse other commands.
    let kept = crate::refused::tests::of_device(controller.name());
    let kept = kept.iter().find(|c| c.input.starts_with("0a") && c.input[80..88] == *"55000000").unwrap();
    assert_eq!((kept.interface, kept.status, kept.syndrome), (Interface::NvmeAdmin, 0x01, None));
    assert_eq!((kept.input.len(), kept.output.len()), (128, 32));
}

#[test]
fn a_stray_completion_is_an_error() {
    let (fake, controller) = ready(Quirks::default());
    fake.stray(0, 999);
    assert!(matches!(controller.namespace(1), Err(NvmeError::StrayCompletion { cid: 999, .. })));
}

#[test]
fn a_device_that_left_is_reported_soon() {
    let (fake, mut controller) = enable(Quirks::default());
    let controller = controller.as_mut().unwrap();
    controller.set_command_deadline(Duration::from_secs(600));
    fake.disappear();
    assert!(matches!(controller.check(), Err(NvmeError::Gone { .. })));
    assert!(matches!(controller.namespace(1), Err(NvmeError::Gone { .. })));
}

#[test]
fn a_fatal_status_ends_a_wait() {
    let (fake, mut controller) = enable(Quirks::default());
    let controller = controller.as_mut().unwrap();
    controller.set_command_deadline(Duration::from_secs(600));
    fake.with_quirks(|q| q.lose = vec![admin::IDENTIFY]);
    fake.fail();
    assert!(matches!(controller.namespace(1), Err(NvmeError::Fatal { .. })));
}

#[test]
fn shutdown_notifies_and_disables() {
    let (fake, controller) = enable(Quirks::default());
    let disabled = controller.unwrap().shutdown().unwrap();
    assert!(!fake.is_enabled());
    assert!(disabled.enable().is_ok());
}

#[test]
fn a_shutdown_that_does_not_end_is_given_up() {
    let (fake, controller) = enable(Quirks { never_shut_down: true, ..Quirks::default() });
    let e = controller.unwrap().shutdown().unwrap_err();
    assert!(e.to_string().contains("did not finish its shutdown"), "{e}");
    assert!(!fake.is_enabled());
}

#[test]
fn a_controller_that_somebody_else_disabled_is_reported() {
    let (fake, mut controller) = enable(Quirks::default());
    let controller = controller.as_mut().unwrap();
    controller.set_command_deadline(Duration::from_secs(600));
    fake.steal();
    assert!(matches!(controller.check(), Err(NvmeError::NoLongerReady { .. })));
    assert!(matches!(controller.namespaces(), Err(NvmeError::NoLongerReady { .. })));
}

// --- queues ----------------------------------------------------------------------------------------------------------

fn queue_of(set: &QueueSet, index: u32) -> abi::Queue {
    // SAFETY: on CPU threads, kernel addresses are the process's own, and the set owns the array.
    unsafe { (set.address() as *const abi::Queue).add(index as usize).read_volatile() }
}

fn words(address: u64, count: u32) -> Vec<u32> {
    // SAFETY: on CPU threads, kernel addresses are the process's own. Tests pass arrays of at least `count` words that
    // live for the call.
    (0..count as usize).map(|i| unsafe { (address as *const u32).add(i).read_volatile() }).collect()
}

#[test]
fn queue_options_that_cannot_be_say_what_can() {
    // MQES of 100 entries.
    let (_fake, controller) = ready(Quirks { cap: CAP & !0xffff | 99, ..Quirks::default() });
    let create = |o| controller.create_queues(&Space::cpu(), o).unwrap_err();
    for depth in [0, 1, 3, 100, 131_072] {
        assert!(matches!(create(options(1, depth)), NvmeError::Depth { .. }), "{depth}");
    }
    assert!(matches!(create(options(1, 128)), NvmeError::TooDeep { most: 100, fits: 64, .. }));
    assert!(matches!(create(options(5, 16)), NvmeError::TooManyQueues { asked: 5, granted: 4, used: 0, .. }));
    assert!(create(options(0, 16)).to_string().contains("one or more"));
    let bad = QueueOptions { first_ticket: 16, ..options(1, 16) };
    assert!(create(bad).to_string().contains("not a multiple of 32"));
    let bad = QueueOptions { landing: Landing::Bounce { bytes_per_slot: 1000 }, ..options(1, 16) };
    assert!(create(bad).to_string().contains("1000"));
    // Nothing was left behind: all four are available.
    let set = controller.create_queues(&Space::cpu(), options(3, 64)).unwrap();
    assert_eq!(controller.free_queues(), 1);
    assert!(matches!(create(options(2, 16)), NvmeError::TooManyQueues { asked: 2, granted: 4, used: 3, .. }));
    drop(set);
    assert_eq!(controller.free_queues(), 4);
}

#[test]
fn a_queue_set_is_laid_out_for_kernels() {
    let (fake, controller) = ready(Quirks::default());
    let landing = Landing::Bounce { bytes_per_slot: 16 << 10 };
    let first_ticket = 0u32.wrapping_sub(32);
    let set =
        controller.create_queues(&Space::cpu(), QueueOptions { landing, first_ticket, ..options(3, 16) }).unwrap();
    assert_eq!((set.count(), set.depth(), set.max_transfer_bytes()), (3, 16, 16 << 10));
    assert_eq!((set.doorbell(), set.landing()), (Doorbell::Cpu, landing));
    assert!(set.doorbell_note().is_some());
    assert_eq!(fake.io_queues(), (3, 3));
    for i in 0..3 {
        let q = queue_of(&set, i);
        assert_eq!((q.depth, q.log2_depth, q.bounce_bytes, q.index), (16, 4, 16 << 10, i));
        assert_eq!([q.ticket, q.frontier, q.tail, q.head], [first_ticket; 4]);
        assert_eq!((q.credit, q.tail_lock, q.head_lock), (0, 0, 0));
        let lap = first_ticket >> 4;
        assert!(words(q.slot, 16).iter().all(|w| *w == lap << 3));
        assert!(words(q.mark, 16).iter().all(|w| *w == lap));
        assert!(words(q.outcome, 16).iter().all(|w| *w == 0));
        assert_eq!((q.sq % 4096, q.cq % 4096, q.bounce % 4096), (0, 0, 0));
        for slot in 0..16u64 {
            // Device addresses of the fake are process addresses, so the test can read the list at the
            // address that a command names.
            let list = words(q.prp_list_iova + slot * 4096, 6);
            let pages: Vec<u64> = list.chunks(2).map(|w| u64::from(w[0]) | u64::from(w[1]) << 32).collect();
            let buffer = q.bounce_iova + slot * (16 << 10);
            assert_eq!(pages, [buffer + 4096, buffer + 8192, buffer + 12_288]);
        }
    }
    drop(set);
    assert_eq!(fake.io_queues(), (0, 0));
    let log = fake.admin_log();
    let last: Vec<u8> = log[log.len() - 6..].to_vec();
    assert_eq!(last, [[admin::DELETE_SQ; 3], [admin::DELETE_CQ; 3]].concat());
}

#[test]
fn rings_may_be_in_the_memory_of_kernels() {
    let (_fake, controller) = ready(Quirks::default());
    let options = QueueOptions { memory: Place::Device, landing: Landing::Direct, ..options(2, 8) };
    let mut set = controller.create_queues(&Space::cpu(), options).unwrap();
    assert_eq!((set.memory(), set.landing(), set.max_transfer_bytes()), (Place::Device, Landing::Direct, 2 << 20));
    let q = queue_of(&set, 1);
    assert_eq!((q.bounce, q.bounce_bytes), (0, 0));
    assert_ne!(q.prp_list, 0);
    let ns = controller.namespace(1).unwrap();
    HostQueue::on(&mut set, 1).unwrap().flush_always(&ns).unwrap();
    set.check().unwrap();
}

#[test]
fn a_controller_that_does_not_delete_keeps_the_identifiers_and_the_memory() {
    let (fake, controller) = ready(Quirks::default());
    let set = controller.create_queues(&Space::cpu(), options(2, 8)).unwrap();
    let slot = queue_of(&set, 0).slot;
    fake.with_quirks(|q| q.lose = vec![admin::DELETE_SQ]);
    drop(set);
    assert_eq!(controller.free_queues(), 2);
    // Still readable: the memory was not freed.
    assert_eq!(words(slot, 8), [0; 8]);
    fake.with_quirks(|q| q.lose.clear());
    drop(controller);
    assert!(!fake.is_enabled());
}

#[test]
fn a_reset_controller_serves_queue_sets_again() {
    let (fake, controller) = ready(Quirks::default());
    let lost = controller.create_queues(&Space::cpu(), options(1, 8)).unwrap();
    let mut set = controller.create_queues(&Space::cpu(), options(2, 8)).unwrap();
    let dropped = controller.create_queues(&Space::cpu(), options(1, 8)).unwrap();
    fake.with_quirks(|q| q.lose = vec![admin::DELETE_SQ, admin::IDENTIFY]);
    drop(lost);
    assert!(controller.namespace(1).is_err());
    assert_eq!(controller.free_queues(), 0);
    fake.with_quirks(|q| q.lose.clear());
    controller.reset().unwrap();
    assert_eq!((fake.io_queues(), controller.free_queues()), ((0, 0), 1));
    let ns = controller.namespace(1).unwrap();
    set.reset().unwrap();
    HostQueue::on(&mut set, 1).unwrap().flush_always(&ns).unwrap();
    // Queues that a reset ended are not deleted again.
    drop(dropped);
    assert_eq!((fake.io_queues(), controller.free_queues()), ((2, 2), 2));
    drop(set);
    assert_eq!((fake.io_queues(), controller.free_queues()), ((0, 0), 4));
}

#[test]
fn a_failed_creation_leaves_nothing_behind() {
    let (fake, controller) = ready(Quirks::default());
    fake.with_quirks(|q| q.lose = vec![admin::CREATE_SQ]);
    let e = controller.create_queues(&Space::cpu(), options(2, 8)).unwrap_err();
    assert!(matches!(e, NvmeError::TimedOut { opcode: admin::CREATE_SQ, .. }), "{e}");
    assert_eq!((fake.io_queues(), controller.free_queues()), ((0, 0), 4));
}

#[test]
fn a_set_that_a_launch_has_is_not_reset() {
    let (_fake, controller) = ready(Quirks::default());
    let mut set = Arc::new(controller.create_queues(&Space::cpu(), options(1, 8)).unwrap());
    let args = crate::args!(&set);
    assert_eq!(args.sizes(), [8]);
    assert!(Arc::get_mut(&mut set).is_none());
    drop(args);
    Arc::get_mut(&mut set).expect("nobody else has it").reset().unwrap();
}

// --- host queue ------------------------------------------------------------------------------------------------------

#[test]
fn a_host_queue_hands_back_an_idle_queue() {
    let (_fake, controller) = ready(Quirks::default());
    let first_ticket = 0u32.wrapping_sub(16);
    let mut set = controller.create_queues(&Space::cpu(), QueueOptions { first_ticket, ..options(1, 8) }).unwrap();
    let ns = controller.namespace(1).unwrap();
    let mut queue = HostQueue::on(&mut set, 0).unwrap();
    // Past the wrap-around of tickets, with an odd number of laps.
    for _ in 0..29 {
        queue.flush_always(&ns).unwrap();
    }
    drop(queue);
    let q = queue_of(&set, 0);
    assert_eq!([q.ticket, q.frontier, q.tail, q.head], [13; 4]);
    let laps = [2, 2, 2, 2, 2, 1, 1, 1];
    assert_eq!(words(q.slot, 8), laps.map(|l: u32| l << 3));
    assert_eq!(words(q.mark, 8), laps);
    // The next queue continues from there.
    HostQueue::on(&mut set, 0).unwrap().flush_always(&ns).unwrap();
    assert_eq!(queue_of(&set, 0).ticket, 14);
    assert!(HostQueue::on(&mut set, 1).is_err());
}

#[test]
fn a_late_command_is_aborted() {
    let (fake, controller) = ready(Quirks { lose_io: true, ..Quirks::default() });
    let mut queue = HostQueue::create(&controller, HostQueueOptions { depth: 4, bytes_per_command: 4096 }).unwrap();
    queue.set_deadline(SHORT);
    let ns = controller.namespace(1).unwrap();
    let e = queue.flush_always(&ns).unwrap_err();
    assert!(matches!(e, NvmeError::TimedOut { queue: 1, opcode: io::FLUSH, .. }), "{e}");
    assert!(e.to_string().contains("was aborted"), "{e}");
    fake.with_quirks(|q| q.lose_io = false);
    queue.flush_always(&ns).unwrap();
}

#[test]
fn a_command_that_cannot_be_aborted_keeps_its_slot_until_it_ends() {
    let (fake, controller) = ready(Quirks { lose_io: true, aborts: false, ..Quirks::default() });
    let mut queue = HostQueue::create(&controller, HostQueueOptions { depth: 4, bytes_per_command: 4096 }).unwrap();
    queue.set_deadline(SHORT);
    let ns = controller.namespace(1).unwrap();
    let e = queue.read(&ns, 0, &mut [0; 512]).unwrap_err();
    assert!(e.to_string().contains("read of 1 block(s) at LBA 0") && e.to_string().contains("reset the queues"), "{e}");
    let free = |queue: &mut HostQueue<'_>| {
        let all: Vec<u16> = std::iter::from_fn(|| queue.reserve()).collect();
        all.iter().for_each(|c| queue.release(*c));
        all.len()
    };
    assert_eq!(free(&mut queue), 2);
    fake.with_quirks(|q| q.lose_io = false);
    queue.flush_always(&ns).unwrap();
    fake.release_lost();
    assert!(queue.poll().unwrap().is_none());
    assert_eq!(free(&mut queue), 3);
}

#[test]
fn a_queue_left_with_commands_in_flight_is_reset() {
    let (fake, controller) = ready(Quirks { lose_io: true, aborts: false, ..Quirks::default() });
    let mut set = controller.create_queues(&Space::cpu(), options(2, 8)).unwrap();
    let ns = controller.namespace(1).unwrap();
    let mut queue = HostQueue::on(&mut set, 0).unwrap();
    queue.set_deadline(SHORT);
    queue.flush_always(&ns).unwrap_err();
    drop(queue);
    fake.with_quirks(|q| q.lose_io = false);
    assert_eq!((queue_of(&set, 0).ticket, fake.io_queues()), (0, (2, 2)));
    HostQueue::on(&mut set, 1).unwrap().flush_always(&ns).unwrap();
    HostQueue::on(&mut set, 0).unwrap().flush_always(&ns).unwrap();
}

#[test]
fn a_dead_controller_ends_a_transfer_before_its_deadline() {
    let (fake, controller) = ready(Quirks { lose_io: true, ..Quirks::default() });
    let mut queue = HostQueue::create(&controller, HostQueueOptions::default()).unwrap();
    queue.set_deadline(Duration::from_secs(600));
    let ns = controller.namespace(1).unwrap();
    fake.fail();
    assert!(matches!(queue.read(&ns, 0, &mut [0; 4096]), Err(NvmeError::Fatal { .. })));
}

#[test]
fn transfers_outside_the_namespace_are_refused() {
    let (_fake, controller) = ready(Quirks::default());
    let mut queue = HostQueue::create(&controller, HostQueueOptions::default()).unwrap();
    let ns = controller.namespace(1).unwrap();
    for (lba, bytes) in [(1000, 512), (999, 1024), (u64::MAX, 512), (0, 100)] {
        let e = queue.read(&ns, lba, &mut vec![0; bytes]).unwrap_err();
        assert!(matches!(e, NvmeError::Range { .. }), "{e}");
    }
    queue.read(&ns, 0, &mut []).unwrap();
    assert!(queue.submit(0, SqEntry::default()).is_err(), "only reserved slots are submitted");
    assert!(queue.wait().is_err(), "there is nothing to wait for");
}

#[test]
fn regions_of_a_poisoned_space_stay() {
    let (_fake, controller) = ready(Quirks::default());
    let space = Space::cpu();
    let set = controller.create_queues(&space, options(1, 8)).unwrap();
    let other: Region = space.allocate(Place::Host, 1).unwrap();
    let sq = queue_of(&set, 0).sq;
    space.poison();
    drop((set, other));
    assert_eq!(words(sq, 4), [0; 4]);
    // A kernel that did not end may still write the doorbell of its identifier.
    assert_eq!(controller.free_queues(), 3);
}

// --- misbehaving controllers -----------------------------------------------------------------------------------------

#[test]
fn no_bytes_are_no_controller() {
    hostile::run(&[]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// `cargo fuzz run controller` runs this test with far more inputs.
    #[test]
    fn no_controller_makes_the_driver_panic_or_hang(input in proptest::collection::vec(any::<u8>(), 0..6000)) {
        hostile::run(&input);
    }

    /// Mostly valid inputs, so that the driver gets further.
    #[test]
    fn nor_one_that_behaves_well_at_first(input in proptest::collection::vec(prop_oneof![9 => 0u8..200, 1 => any::<u8>()], 3000..6000)) {
        let polite: Vec<u8> = input.into_iter().enumerate().map(|(i, b)| if i < 60 { b / 12 * 12 % 240 } else { b }).collect();
        hostile::run(&polite);
    }
}
