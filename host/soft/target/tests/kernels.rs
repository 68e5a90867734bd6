//! Kernels that post command capsules themselves: data, counters, faults, recovery.

use super::*;
use crate::engine::{Engine, Outcome, RunError, abi};
use crate::memory::Space;
use crate::nvme::{Doorbell, DoorbellChoice, QueueOptions};
use crate::storage::{LandingChoice, Volume};
use crate::wire::nvme::ana::AccessState;
use crate::wire::nvme::status;

/// A volume on the target's device, with its connection.
pub(super) struct Mounted {
    pub(super) connection: RemoteController,
    pub(super) volume: Volume,
}

impl Mounted {
    fn new(config: &FabricsConfig, landing: LandingChoice, queues: u32, depth: u32, deadline: Duration) -> Self {
        Self::over(connect(config).unwrap(), landing, queues, depth, deadline)
    }

    pub(super) fn over(
        connection: RemoteController,
        landing: LandingChoice,
        queues: u32,
        depth: u32,
        deadline: Duration,
    ) -> Self {
        let drive = Drive::attach(connection.attachment(), None).unwrap();
        let volume = Volume::on(&Engine::cpu().unwrap(), [drive]).landing(landing).queues(queues).depth(depth);
        Self { connection, volume: volume.deadline(deadline).build().unwrap() }
    }

    /// Writes and reads blocks by kernels, each call `each` blocks. Returns the error of the first run that fails.
    pub(super) fn move_blocks(&self, data: &[u8], each: u32) -> Result<(), RunError> {
        let (v, blocks) = (&self.volume, (data.len() >> self.volume.block_shift()) as u64);
        let buffer = v.allocate_data(data.len()).unwrap();
        buffer.write(0, data).unwrap();
        v.start_write(1, blocks, each, &buffer).unwrap().finish_within(GENEROUS)?;
        buffer.fill(0, data.len(), 0xee).unwrap();
        v.start_read(1, blocks, each, &buffer).unwrap().finish_within(GENEROUS)?;
        let mut back = vec![0; data.len()];
        buffer.read(0, &mut back).unwrap();
        assert!(back == data, "{v}: kernels read other data than they wrote");
        Ok(())
    }

    /// Reads one block at a time until a run fails, and returns its errors. Data of successful runs is 0.
    pub(super) fn first_errors(&self, runs: u32) -> Vec<crate::engine::OperationError> {
        let buffer = self.volume.allocate_data(64 << 9).unwrap();
        for _ in 0..runs {
            match self.volume.start_read(0, 64, 1, &buffer).unwrap().finish_within(GENEROUS) {
                Ok(_) => {}
                Err(RunError::Operations { errors, .. }) => return errors,
                Err(other) => panic!("{other}"),
            }
        }
        panic!("no error in {runs} runs");
    }
}

pub(super) fn is_pathing_error(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::DeviceError(s) if s.without_flags() == status::HOST_PATHING_ERROR)
}

fn exported(device: &str) -> Exported {
    Exported::new(TargetTransport::Soft, device, |c| c)
}

#[test]
fn kernels_move_data_and_the_host_posts_nothing() {
    for block in [512u32, 4096] {
        let e = exported(&format!("soft:mem:4M,block={block},threads=1"));
        for landing in [LandingChoice::Direct, LandingChoice::Bounce] {
            for (queues, depth) in [(1, 2), (3, 8)] {
                let m = Mounted::new(&e.config(), landing, queues, depth, GENEROUS);
                let (before, seen) = (m.connection.counters(), e.target().commands());
                let most = (m.volume.max_transfer_bytes() as u32 / block).min(128 << 10);
                assert!(landing == LandingChoice::Bounce || most * block == 128 << 10, "MDTS is the limit");
                for each in [1, 3, most, most + 1] {
                    m.move_blocks(&pattern(160 << 10, each as usize), each).unwrap();
                }
                let (after, stats) = (m.connection.counters(), m.volume.stats().unwrap());
                assert_eq!(after.kernel_commands - before.kernel_commands, stats.reads + stats.writes);
                assert_eq!(e.target().commands() - seen, stats.reads + stats.writes);
                assert!(stats.reads > 2 * u64::from(queues * depth), "the rings wrap");
                assert_eq!((after.host_posts, after.commands), (0, before.commands), "host threads carry nothing");
                assert_eq!((after.losses, stats.errors), (0, 0));
            }
        }
    }
}

#[test]
fn small_writes_of_kernels_go_with_their_capsules() {
    for (limit, block) in [(0, 512), (1024, 512), (8192, 4096)] {
        let e = Exported::new(TargetTransport::Soft, &format!("soft:mem:1M,block={block},threads=1"), |c| {
            c.in_capsule_bytes(limit)
        });
        for landing in [LandingChoice::Direct, LandingChoice::Bounce] {
            let m = Mounted::new(&e.config(), landing, 2, 4, GENEROUS);
            let blocks = 48;
            for each in 1..=4 {
                let before = e.target().commands_with_data();
                m.move_blocks(&pattern((blocks * block) as usize, each as usize), each).unwrap();
                // Bounce buffers of one block split the calls.
                let commanded = each.min(m.volume.max_transfer_bytes() as u32 / block);
                let expected = if commanded * block <= limit { blocks / commanded } else { 0 };
                let with_data = e.target().commands_with_data() - before;
                assert_eq!(with_data, u64::from(expected), "{each} blocks of {block} bytes, at most {limit}");
            }
            let counters = m.connection.counters();
            assert_eq!((counters.host_posts, counters.losses), (0, 0));
        }
    }
}

#[test]
fn an_option_brings_the_commands_back_to_host_threads() {
    let e = exported("soft:mem:1M,threads=1");
    let drive = Drive::attach(connect(&e.config()).unwrap().attachment(), None).unwrap();
    let v = Volume::on(&Engine::cpu().unwrap(), [drive]).doorbell(DoorbellChoice::Cpu).build().unwrap();
    assert_eq!(v.path().doorbell, Doorbell::Cpu);
    let buffer = v.allocate_data(4096).unwrap();
    v.start_read(0, 8, 1, &buffer).unwrap().finish_within(GENEROUS).unwrap();
}

#[test]
fn without_a_queue_pair_for_the_host_its_threads_carry_the_commands() {
    let e = exported("soft:mem:1M,threads=1");
    for (queues, by_kernels) in [(2, false), (1, true)] {
        let connection = connect(&e.config().queues(Some(2))).unwrap();
        let drive = Drive::attach(connection.attachment(), None).unwrap();
        let v = Volume::on(&Engine::cpu().unwrap(), [drive]).queues(queues).deadline(GENEROUS).build().unwrap();
        let told = v.path().notes.iter().any(|n| n.contains("one queue pair fewer"));
        assert_eq!(told, !by_kernels, "{:?}", v.path().notes);
        let data = pattern(200 << 10, 9);
        v.write_blocks(0, &data).unwrap();
        let buffer = v.allocate_data(data.len()).unwrap();
        v.start_read(0, (data.len() >> 9) as u64, 8, &buffer).unwrap().finish_within(GENEROUS).unwrap();
        let mut back = vec![0; data.len()];
        buffer.read(0, &mut back).unwrap();
        assert!(back == data, "{queues} queues");
        assert_eq!(connection.counters().kernel_commands != 0, by_kernels, "{queues} queues");
    }
}

#[test]
fn the_host_cannot_borrow_a_queue_of_capsules() {
    let e = exported("soft:mem:1M,threads=1");
    let connection = connect(&e.config()).unwrap();
    let controller = Controller::new(connection.attachment()).unwrap().enable().map_err(|(_, e)| e).unwrap();
    let mut set = Arc::new(controller).create_queues(&Space::cpu(), QueueOptions::default().depth(16)).unwrap();
    let refused = HostQueue::on(&mut set, 0).unwrap_err();
    assert!(refused.to_string().contains("create a separate queue"), "{refused}");
}

#[test]
fn a_local_and_a_remote_device_make_one_volume() {
    let e = exported("soft:mem:1M,threads=1");
    for replicated in [false, true] {
        let drives = [
            Drive::open("soft:mem:1M,threads=1").unwrap(),
            Drive::attach(connect(&e.config()).unwrap().attachment(), None).unwrap(),
        ];
        let v =
            Volume::on(&Engine::cpu().unwrap(), drives).replicated(replicated).chunk(8192).queues(2).build().unwrap();
        let data = pattern(300 << 10, 5);
        let blocks = (data.len() >> 9) as u64;
        let buffer = v.allocate_data(data.len()).unwrap();
        buffer.write(0, &data).unwrap();
        v.start_write(5, blocks, 7, &buffer).unwrap().finish_within(GENEROUS).unwrap();
        let mut back = vec![0; data.len()];
        v.read_blocks(5, &mut back).unwrap();
        assert!(back == data, "the host reads what kernels wrote");
        buffer.fill(0, data.len(), 0).unwrap();
        v.start_read(5, blocks, 9, &buffer).unwrap().finish_within(GENEROUS).unwrap();
        buffer.read(0, &mut back).unwrap();
        assert!(back == data);
        assert!(e.target().commands() > 0);
    }
}

#[test]
fn violations_end_the_connection_with_their_cause_and_the_next_one_works() {
    let faults = TargetFaults::default();
    for (faults, word) in [
        (TargetFaults { unknown_cid: Some(50), ..faults.clone() }, "not outstanding"),
        (TargetFaults { repeat_response: Some(50), ..faults.clone() }, "completed before"),
        (TargetFaults { wrong_head: Some(50), ..faults.clone() }, "SQHD"),
        (TargetFaults { short_response: Some(50), ..faults.clone() }, "of 8 bytes"),
        (TargetFaults { close_at: Some(50), ..faults }, ""),
    ] {
        let e = Exported::faulty(TargetTransport::Soft, faults.clone());
        let m = Mounted::new(&e.config(), LandingChoice::Direct, 2, 8, GENEROUS);
        // The command itself may have succeeded, as with a response that is repeated.
        let errors = m.first_errors(20);
        let first = &errors[0];
        assert!(is_pathing_error(first.outcome) || first.outcome == Outcome::Stopped, "{faults:?}: {first:?}");
        until("the loss", || m.connection.counters().losses > 0);
        let told = m.connection.last_loss().unwrap();
        assert!(told.contains(word), "{faults:?}: {told}");
        until("the association", || m.connection.counters().reconnects > 0);
        m.volume.recover().unwrap();
        let buffer = m.volume.allocate_data(512).unwrap();
        m.volume.start_read(0, 1, 1, &buffer).unwrap().finish_within(GENEROUS).unwrap();
        assert_eq!(m.connection.counters().host_posts, 0);
    }
}

#[test]
fn a_wrong_key_ends_its_connection_and_nothing_is_written() {
    let e = exported("soft:mem:1M,threads=1");
    let m = Mounted::new(&e.config(), LandingChoice::Direct, 1, 4, GENEROUS);
    let buffer = m.volume.allocate_data(512).unwrap();
    buffer.fill(0, 512, 0xee).unwrap();
    let key = std::mem::offset_of!(abi::Volume, window) + std::mem::offset_of!(abi::RegisteredRegion, key);
    let key = (m.volume.address() as usize + key) as *mut u32;
    // SAFETY: the volume's description is memory of this process, which no kernel reads now.
    unsafe { key.write(key.read() ^ 1) };
    let failed = m.volume.start_read(0, 1, 1, &buffer).unwrap().finish_within(GENEROUS).unwrap_err();
    let RunError::Operations { errors, .. } = failed else { panic!("{failed}") };
    assert!(is_pathing_error(errors[0].outcome), "{errors:?}");
    assert_eq!(buffer.get_slice::<u8>(0, 512).unwrap(), [0xee; 512]);
    // SAFETY: the volume's description is memory of this process, which no kernel reads now.
    unsafe { key.write(key.read() ^ 1) };
    until("the association", || m.connection.counters().reconnects > 0);
    m.volume.recover().unwrap();
    m.volume.start_read(0, 1, 1, &buffer).unwrap().finish_within(GENEROUS).unwrap();
    assert_eq!(buffer.get_slice::<u8>(0, 512).unwrap(), [0; 512]);
}

#[test]
fn kernels_go_on_when_the_target_starts_again() {
    let mut e = exported("soft:mem:1M,threads=1");
    let m = Mounted::new(&e.config(), LandingChoice::Direct, 1, 4, GENEROUS);
    let data = pattern(64 << 10, 3);
    m.move_blocks(&data, 4).unwrap();
    for round in 1..=3 {
        e.restart();
        until("the association", || m.connection.counters().reconnects >= round);
        // Nothing was in flight: kernels switch to the new connection, and the host rebuilds nothing.
        m.move_blocks(&data, 4).unwrap();
    }
    let c = m.connection.counters();
    assert_eq!((c.losses, c.host_posts), (c.reconnects, 0));
}

#[test]
fn commands_wait_for_the_next_connection() {
    let mut e = exported("soft:mem:1M,threads=1");
    let m = Mounted::new(&e.config(), LandingChoice::Bounce, 1, 4, GENEROUS);
    let address = e.target().address();
    e.target = None;
    until("the loss", || m.connection.counters().losses > 0);
    let buffer = m.volume.allocate_data(4096).unwrap();
    let mut run = m.volume.start_read(0, 8, 1, &buffer).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    assert!(!run.is_finished().unwrap(), "there is no target");
    let config = TargetConfig::new(NQN).transport(TargetTransport::Soft).listen(address);
    e.target = Some(Target::start(e.device.controller(), config).unwrap());
    run.finish_within(GENEROUS).unwrap();
}

#[test]
fn commands_fail_when_the_target_stays_away() {
    let mut e = exported("soft:mem:1M,threads=1");
    let config = e.config().controller_loss(Some(Duration::from_millis(200)));
    let m = Mounted::new(&config, LandingChoice::Direct, 1, 4, GENEROUS);
    let address = e.target().address();
    e.target = None;
    assert!(is_pathing_error(m.first_errors(1)[0].outcome));
    until("the end of all attempts", || m.volume.check().is_err());
    assert!(m.volume.recover().is_err(), "nobody listens");
    let config = TargetConfig::new(NQN).transport(TargetTransport::Soft).listen(address);
    e.target = Some(Target::start(e.device.controller(), config).unwrap());
    m.volume.recover().unwrap();
    m.move_blocks(&pattern(4096, 1), 1).unwrap();
}

#[test]
fn a_command_without_response_ends_at_its_deadline_and_its_queue_is_made_anew() {
    let e = Exported::faulty(TargetTransport::Soft, TargetFaults { ignore_io: true, ..TargetFaults::default() });
    let m = Mounted::new(&e.config(), LandingChoice::Direct, 1, 4, SHORT);
    let errors = m.first_errors(1);
    assert!(errors.iter().any(|e| e.outcome == Outcome::TimedOut), "{errors:?}");
    let report = m.volume.recover().unwrap();
    assert!(format!("{report:?}").contains("RebuildQueues"), "{report:?}");
    m.volume.check().unwrap();
}

#[test]
fn queues_larger_than_the_target_accepts_are_refused() {
    let e = Exported::new(TargetTransport::Soft, "soft:mem:1M,threads=1", |c| c.queue_entries(16));
    let drive = Drive::attach(connect(&e.config()).unwrap().attachment(), None).unwrap();
    assert_eq!(drive.controller().cap().max_queue_entries(), 16);
    let options = crate::nvme::QueueOptions::default().depth(32);
    let error = drive.controller().create_queues(&crate::memory::Space::cpu(), options).unwrap_err();
    assert!(matches!(error, NvmeError::TooDeep { fits: 16, .. }), "{error}");
}

/// Moves blocks by kernels until `done`. Runs may fail with errors of the port; the volume is recovered after each.
fn move_blocks_until(m: &Mounted, data: &[u8], done: impl Fn() -> bool) {
    let started = Instant::now();
    while !done() {
        assert!(started.elapsed() < GENEROUS, "{:?}", m.connection.counters());
        match m.move_blocks(data, 4) {
            Ok(()) => {}
            Err(RunError::Operations { errors, .. }) => {
                let is_of_access = |o| matches!(o, Outcome::DeviceError(s) if AccessState::of_status(s).is_some());
                let is_of_path = |o| is_pathing_error(o) || is_of_access(o) || o == Outcome::Stopped;
                assert!(errors.iter().all(|e| is_of_path(e.outcome)), "{errors:?}");
                m.volume.recover().unwrap();
            }
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn kernels_go_on_by_the_other_port() {
    let e = Exported::with_two_ports(TargetTransport::Soft, "soft:mem:1M,threads=1", TargetFaults::default());
    let m = Mounted::new(&e.config(), LandingChoice::Direct, 2, 8, GENEROUS);
    let data = pattern(64 << 10, 3);
    m.move_blocks(&data, 4).unwrap();
    // Nothing is in flight: kernels switch to the connection by the other port, and no run fails.
    for lost in [0, 1, 0] {
        e.target().close_port(lost);
        until("the other port", || m.connection.port() == e.port(1 - lost));
        m.move_blocks(&data, 4).unwrap();
        e.target().open_port(lost);
    }
    e.target().set_access(1, AccessState::Inaccessible);
    until("the other port", || m.connection.port() == e.port(0));
    m.move_blocks(&data, 4).unwrap();
    let c = m.connection.counters();
    assert_eq!((c.port_changes, c.losses, c.host_posts), (4, 4, 0));
}

#[test]
fn a_port_is_lost_while_kernels_run() {
    let e = Exported::with_two_ports(TargetTransport::Soft, "soft:mem:1M,threads=1", TargetFaults::default());
    let m = Mounted::new(&e.config(), LandingChoice::Direct, 2, 8, GENEROUS);
    let data = pattern(64 << 10, 4);
    for round in 0..3 {
        let (lost, left) = (round % 2, e.port(1 - round % 2));
        std::thread::scope(|s| {
            s.spawn(|| {
                std::thread::sleep(Duration::from_millis(50));
                match round {
                    2 => e.target().set_access(lost, AccessState::Change),
                    _ => e.target().close_port(lost),
                }
            });
            move_blocks_until(&m, &data, || m.connection.port() == left);
        });
        e.target().open_port(lost);
        m.volume.recover().unwrap();
        m.move_blocks(&data, 4).unwrap();
    }
    assert_eq!(m.connection.counters().host_posts, 0);
}
