//! Tests the driver's reaction to time-outs, failed controllers and devices that leave, against the software controller
//! and against QEMU's.
#![cfg(all(feature = "storage", feature = "soft", feature = "cpu-image"))]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::NamedTempFile;
use warpbell::engine::{Engine, Outcome, RunError};
use warpbell::memory::Space;
use warpbell::nvme::qtest::{self, QtestConfig, QtestError};
use warpbell::nvme::{
    Attachment, Controller, Ending, HostQueue, HostQueueOptions, InFlight, NvmeError, QueueOptions, Ready,
    RecoveryAction, RecoveryPolicy,
};
use warpbell::soft::nvme::{SoftConfig, SoftController};
use warpbell::storage::{Drive, Volume};
use warpbell::wire::nvme::{SqEntry, io};

const MIB: usize = 1 << 20;
/// Long enough that no command passes it by chance, short enough to wait for.
const SHORT: Duration = Duration::from_millis(250);
/// Time within which everything has ended, even on a busy machine.
const BOUND: Duration = Duration::from_secs(60);

fn soft(spec: &str) -> Arc<Controller<Ready>> {
    enable(SoftController::start(SoftConfig::parse(spec).unwrap()).unwrap().attachment())
}

fn enable(attachment: Attachment) -> Arc<Controller<Ready>> {
    let mut controller = Controller::new(attachment).unwrap();
    controller.set_command_deadline(Duration::from_secs(2));
    Arc::new(controller.enable().map_err(|(_, e)| e).unwrap())
}

/// Returns QEMU over an image in which every 8 bytes hold their own offset; `None` without QEMU.
fn qemu(options: &str) -> Option<(NamedTempFile, Attachment)> {
    let file = NamedTempFile::new().unwrap();
    std::fs::write(file.path(), pattern(0, MIB)).unwrap();
    let spec = format!("{},ram=64M{options}", file.path().display());
    match qtest::start(QtestConfig::parse(&spec).unwrap()) {
        Ok(attachment) => Some((file, attachment)),
        Err(e @ QtestError::NoQemu { .. }) => {
            assert!(std::env::var_os("WARPBELL_REQUIRE_QEMU").is_none(), "{e}");
            println!("SKIP: {e}");
            None
        }
        Err(e) => panic!("{e}"),
    }
}

fn pattern(offset: usize, bytes: usize) -> Vec<u8> {
    (offset..offset + bytes).step_by(8).flat_map(|o| (o as u64 ^ 0x5a5a_0000_0000_0000).to_le_bytes()).collect()
}

fn queue(controller: &Arc<Controller<Ready>>, policy: RecoveryPolicy) -> HostQueue<'static> {
    let options = HostQueueOptions::default().depth(8).bytes_per_command(4096);
    let mut queue = HostQueue::create(controller, options).unwrap();
    queue.set_deadline(SHORT);
    queue.set_recovery(policy);
    queue
}

fn quick(in_flight: InFlight, attempts: u32) -> RecoveryPolicy {
    RecoveryPolicy::default().in_flight(in_flight).attempts(attempts).abort_grace(SHORT)
}

// --- host queues on the software controller ------------------------------------------------------------------------------

#[test]
fn lost_completions_are_submitted_again_when_that_is_asked_for() {
    let controller = soft("mem:256k,threads=1,lose-completion=every:40");
    let ns = controller.namespace(1).unwrap();
    let mut q = queue(&controller, quick(InFlight::Requeue, 10));
    let data = pattern(0, 256 << 10);
    q.write(&ns, 0, &data).unwrap();
    let mut out = vec![0; data.len()];
    q.read(&ns, 0, &mut out).unwrap();
    assert!(out == data);
    assert_eq!(controller.free_queues() + 1, controller.granted_queues(), "nothing was lost on the way");
}

#[test]
fn a_stuck_queue_is_created_again() {
    let controller = soft("mem:256k,threads=1,stuck-queue=1:after:20");
    let ns = controller.namespace(1).unwrap();
    let data = pattern(0, 256 << 10);
    let mut q = queue(&controller, quick(InFlight::Requeue, 10));
    q.write(&ns, 0, &data).unwrap();
    let mut out = vec![0; data.len()];
    q.read(&ns, 0, &mut out).unwrap();
    assert!(out == data);
}

#[test]
fn a_command_that_never_ends_fails_after_its_attempts() {
    let controller = soft("mem:256k,threads=1,lose-completion=100-100");
    let ns = controller.namespace(1).unwrap();
    let mut q = queue(&controller, quick(InFlight::Requeue, 2));
    let started = Instant::now();
    let e = q.read(&ns, 96, &mut [0; 16 * 512]).unwrap_err();
    assert!(matches!(e, NvmeError::TimedOut { opcode: io::READ, .. }), "{e}");
    assert!(e.to_string().contains("read of 8 block(s) at LBA 96"), "{e}");
    assert!(started.elapsed() > 2 * SHORT && started.elapsed() < BOUND);
    // `recover` returns what happened; the queue continues afterwards.
    let report = q.recover().unwrap();
    assert_eq!(report.commands.len(), 1, "{report}");
    let lost = report.commands[0];
    assert_eq!((lost.queue, lost.opcode, lost.lba, lost.blocks), (1, io::READ, Some(96), 8), "{report}");
    assert_eq!((lost.ending, report.last_action()), (Ending::QueueDeleted, Some(RecoveryAction::RebuildQueues)));
    q.set_deadline(BOUND);
    q.read(&ns, 104, &mut [0; 8 * 512]).unwrap();
    assert!(q.recover().unwrap().steps.is_empty());
}

#[test]
fn a_fatal_status_is_reset_and_everything_in_flight_submitted_again() {
    let controller = soft("mem:256k,threads=1,fatal=once:70");
    let ns = controller.namespace(1).unwrap();
    let data = pattern(0, 256 << 10);
    let mut q = queue(&controller, quick(InFlight::Requeue, 10));
    let mut other = queue(&controller, RecoveryPolicy::default());
    let mut kernels = controller.create_queues(&Space::cpu(), QueueOptions::default()).unwrap();
    q.write(&ns, 0, &data).unwrap();
    let mut out = vec![0; data.len()];
    q.read(&ns, 0, &mut out).unwrap();
    assert!(out == data);
    controller.check().unwrap();
    // The other queues of the controller were lost with the reset. Those of the host are created again at their next
    // use.
    other.set_deadline(BOUND);
    other.read(&ns, 0, &mut out[..4096]).unwrap();
    assert!(kernels.is_stale() && matches!(kernels.check(), Err(NvmeError::QueuesLost { .. })));
    kernels.reset().unwrap();
    kernels.check().unwrap();
}

#[test]
fn a_fatal_status_fails_where_nothing_is_to_be_repeated() {
    let controller = soft("mem:256k,threads=1,fatal=once:5");
    let ns = controller.namespace(1).unwrap();
    let mut q = queue(&controller, quick(InFlight::Fail, 3));
    let e = q.read(&ns, 0, &mut [0; 64 * 512]).unwrap_err();
    assert!(matches!(e, NvmeError::Fatal { .. }), "{e}");
    let report = q.recover().unwrap();
    assert_eq!(report.last_action(), Some(RecoveryAction::ResetController), "{report}");
    assert!(report.cause.as_deref().is_some_and(|c| c.contains("fatal")), "{report}");
    assert!(!report.commands.is_empty(), "{report}");
    assert!(report.commands.iter().all(|c| c.ending != Ending::Unknown && c.lba.is_some()), "{report}");
    q.set_deadline(BOUND);
    q.read(&ns, 0, &mut [0; 64 * 512]).unwrap();
}

#[test]
fn a_device_that_left_is_not_waited_for() {
    let controller = soft("mem:256k,threads=1,disappear=after:5");
    let ns = controller.namespace(1).unwrap();
    let mut q = queue(&controller, quick(InFlight::Requeue, 5));
    q.set_deadline(BOUND);
    let started = Instant::now();
    let e = q.read(&ns, 0, &mut [0; 64 * 512]).unwrap_err();
    assert!(e.is_gone(), "{e}");
    let NvmeError::NotRecovered { report, .. } = &e else { panic!("{e}") };
    assert!(report.steps.is_empty() && report.commands.iter().all(|c| c.ending == Ending::Unknown), "{report}");
    drop(q);
    assert!(started.elapsed() < BOUND);
}

#[test]
fn flushes_and_zeroes_are_repeated_too() {
    let controller = soft("mem:256k,threads=1,lose-completion=every:2");
    let ns = controller.namespace(1).unwrap();
    let mut q = queue(&controller, quick(InFlight::Requeue, 10));
    for _ in 0..3 {
        q.flush_always(&ns).unwrap();
    }
    q.write(&ns, 0, &[7; 4096]).unwrap();
    q.write_zeroes(&ns, 1..3, false).unwrap();
    q.deallocate(&ns, &[4..5, 6..8]).unwrap();
    let mut out = [1; 4096];
    q.read(&ns, 0, &mut out).unwrap();
    let zero: Vec<bool> = out.chunks(512).map(|b| b.iter().all(|x| *x == 0)).collect();
    assert_eq!(zero, [false, true, true, false, true, false, true, true]);
}

#[test]
fn a_controller_that_a_crashed_program_left_with_commands_in_flight_is_taken_over() {
    let device = SoftController::start(SoftConfig::parse("mem:256k,threads=1,lose-completion=8-8").unwrap()).unwrap();
    let first = enable(device.attachment());
    let ns = first.namespace(1).unwrap();
    let mut q = queue(&first, RecoveryPolicy::default());
    q.set_deadline(BOUND);
    q.write(&ns, 0, &[5; 512]).unwrap();
    let cid = q.reserve().unwrap();
    let mut entry = SqEntry::new(io::READ, 0, 1);
    entry.set_range(8, 1);
    entry.prp1 = q.data_pointers(cid, 512).0;
    q.submit(cid, entry).unwrap();
    // Simulates a process that is killed: nothing is deleted, nothing disabled.
    std::mem::forget((q, first));
    let controller = Controller::new(device.attachment()).unwrap();
    assert!(controller.is_enabled().unwrap());
    let second = Arc::new(controller.enable().map_err(|(_, e)| e).unwrap());
    assert_eq!(second.free_queues(), second.granted_queues());
    let mut out = [0; 512];
    let mut q = queue(&second, RecoveryPolicy::default());
    q.set_deadline(BOUND);
    q.read(&ns, 0, &mut out).unwrap();
    assert_eq!(out, [5; 512]);
}

#[test]
fn slow_readiness_is_waited_for_in_a_reset_too() {
    let controller = soft("mem:256k,threads=1,slow-ready=300ms");
    let started = Instant::now();
    controller.reset().unwrap();
    assert!(started.elapsed() >= Duration::from_millis(300));
    let mut q = queue(&controller, RecoveryPolicy::default());
    q.set_deadline(BOUND);
    q.read(&controller.namespace(1).unwrap(), 0, &mut [0; 512]).unwrap();
}

// --- QEMU's controller ---------------------------------------------------------------------------------------------------

/// Tests a drive of one command per second: a command that was given up completes later, and does no harm.
#[test]
fn a_late_completion_of_a_command_that_was_given_up() {
    let Some((_file, attachment)) = qemu(",throttle-iops=1") else { return };
    let controller = enable(attachment);
    let ns = controller.namespace(1).unwrap();
    let mut q = queue(&controller, quick(InFlight::Fail, 1));
    let mut out = [0; 512];
    let free = |q: &mut HostQueue<'_>| {
        let all: Vec<u16> = std::iter::from_fn(|| q.reserve()).collect();
        all.iter().for_each(|slot| q.release(*slot));
        all.len()
    };
    let slots = free(&mut q);
    let e = (0..8u64).find_map(|i| q.read(&ns, i, &mut out).err()).expect("one command in a second is too slow");
    assert!(matches!(e, NvmeError::TimedOut { queue: 1, .. }), "{e}");
    // The completion comes some time later; until then the slot stays taken.
    let started = Instant::now();
    let freed = |q: &mut HostQueue<'_>| {
        q.poll().unwrap();
        free(q) == slots
    };
    assert_eq!(free(&mut q), slots - 1);
    while !freed(&mut q) {
        assert!(started.elapsed() < BOUND, "{e}");
        std::thread::sleep(Duration::from_millis(20));
    }
    q.set_deadline(BOUND);
    for lba in [100, 3] {
        q.read(&ns, lba, &mut out).unwrap();
        assert!(out[..] == pattern(lba as usize * 512, 512));
    }
}

#[test]
fn a_slow_drive_is_recovered_and_its_commands_submitted_again() {
    let Some((file, attachment)) = qemu(",throttle-iops=8") else { return };
    let controller = enable(attachment);
    let ns = controller.namespace(1).unwrap();
    let mut q = queue(&controller, quick(InFlight::Requeue, 100));
    let data = pattern(MIB, 3 * 4096);
    q.write(&ns, 64, &data).unwrap();
    let mut out = vec![0; data.len()];
    q.read(&ns, 64, &mut out).unwrap();
    assert!(out == data);
    q.set_deadline(BOUND);
    q.flush_always(&ns).unwrap();
    let mut stored = vec![0; data.len()];
    File::open(file.path()).unwrap().read_exact_at(&mut stored, 64 * 512).unwrap();
    assert!(stored == data);
}

#[test]
fn a_run_on_a_slow_drive_ends_and_can_be_repeated() {
    let Some((_file, attachment)) = qemu(",throttle-iops=4") else { return };
    let engine = Engine::cpu().unwrap();
    let drive = Drive::attach(attachment, None).unwrap();
    let volume = Volume::on(&engine, [drive]).queues(2).depth(8).deadline(SHORT).build().unwrap();
    let buffer = volume.allocate_data(8 * 4096).unwrap();
    let run = || volume.start_read(0, 64, 8, &buffer).unwrap().finish_within(BOUND);
    let Err(RunError::Operations { errors, .. }) = run() else { panic!("eight commands take two seconds") };
    assert!(errors.iter().any(|e| e.outcome == Outcome::TimedOut), "{errors:?}");
    let report = volume.recover().unwrap();
    let commands = &report.devices[0].commands;
    assert!(!commands.is_empty() && commands.iter().all(|c| c.ending != Ending::Unknown), "{report}");
    assert!(commands.iter().all(|c| c.opcode == io::READ && c.lba.is_some_and(|l| l % 8 == 0)), "{report}");
    volume.check().unwrap();
    volume.set_deadline(BOUND).unwrap();
    run().unwrap();
    let mut out = vec![0; 8 * 4096];
    buffer.read(0, &mut out).unwrap();
    assert!(out == pattern(0, 8 * 4096));
}

#[test]
fn a_reset_of_qemus_controller_ends_what_is_in_flight() {
    let Some((_file, attachment)) = qemu(",throttle-iops=1") else { return };
    let controller = enable(attachment);
    let mut q = queue(&controller, quick(InFlight::Fail, 1));
    for lba in 0..4 {
        let cid = q.reserve().unwrap();
        let mut entry = SqEntry::new(io::READ, 0, 1);
        entry.set_range(lba, 1);
        entry.prp1 = q.data_pointers(cid, 512).0;
        q.submit(cid, entry).unwrap();
    }
    controller.reset().unwrap();
    controller.check().unwrap();
    assert_eq!(controller.namespaces().unwrap(), [1]);
    q.set_deadline(BOUND);
    let report = q.recover().unwrap();
    assert_eq!(report.commands.len(), 4, "{report}");
    let mut out = [0; 512];
    q.read(&controller.namespace(1).unwrap(), 9, &mut out).unwrap();
    assert!(out[..] == pattern(9 * 512, 512));
}
