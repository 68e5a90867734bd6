//! Kernels that post capsules by the rings of an mlx5 NIC: a stand-in, whose firmware checks each command.

use super::kernels::{Mounted, is_pathing_error};
use super::*;
use crate::rdma::stand_in;
use crate::rdma::{DeviceChoice, DoorbellChoice, RecordChoice};
use crate::remote::RdmaTransport;
use crate::storage::LandingChoice;

/// Connects to the target's port through a stand-in.
fn connect_by(choice: &DeviceChoice, config: &FabricsConfig) -> RemoteController {
    let manager = stand_in::manager(choice);
    RemoteController::connect_over(config, Arc::new(RdmaTransport::new(manager))).unwrap()
}

/// Choices of the writer of doorbells and of their records.
fn choices() -> [DeviceChoice; 3] {
    let mailbox = DeviceChoice { doorbell: DoorbellChoice::Cpu, ..DeviceChoice::default() };
    let unrecorded = DeviceChoice { record: RecordChoice::Off, ..DeviceChoice::default() };
    [DeviceChoice::default(), mailbox, unrecorded]
}

#[test]
fn kernels_move_data_by_an_mlx5_nic() {
    for (choice, block) in choices().iter().zip([512u32, 4096, 512]) {
        let e = Exported::new(TargetTransport::Soft, &format!("soft:mem:4M,block={block},threads=1"), |c| c);
        for landing in [LandingChoice::Direct, LandingChoice::Bounce] {
            for (queues, depth) in [(1, 2), (3, 8)] {
                let connection = connect_by(choice, &e.config());
                let m = Mounted::over(connection, landing, queues, depth, GENEROUS);
                let before = m.connection.counters();
                let most = (m.volume.max_transfer_bytes() as u32 / block).min(128 << 10);
                for each in [1, 3, most] {
                    m.move_blocks(&pattern(160 << 10, each as usize), each).unwrap();
                }
                let (after, stats) = (m.connection.counters(), m.volume.stats().unwrap());
                assert_eq!(after.kernel_commands - before.kernel_commands, stats.reads + stats.writes);
                assert!(stats.reads > 2 * u64::from(queues * depth), "the rings wrap");
                assert_eq!((after.host_posts, after.commands, after.losses), (0, before.commands, 0));
            }
        }
    }
}

#[test]
fn kernels_go_on_with_new_queue_pairs_when_the_target_starts_again() {
    for choice in choices() {
        let mut e = Exported::new(TargetTransport::Soft, "soft:mem:1M,threads=1", |c| c);
        let m = Mounted::over(connect_by(&choice, &e.config()), LandingChoice::Direct, 1, 4, GENEROUS);
        let data = pattern(64 << 10, 3);
        m.move_blocks(&data, 4).unwrap();
        for round in 1..=2 {
            e.restart();
            until("the association", || m.connection.counters().reconnects >= round);
            m.move_blocks(&data, 4).unwrap();
        }
        let c = m.connection.counters();
        assert_eq!((c.losses, c.host_posts), (c.reconnects, 0));
    }
}

#[test]
fn a_violation_ends_the_connection_and_the_next_one_works() {
    let faults = TargetFaults { unknown_cid: Some(50), ..TargetFaults::default() };
    let e = Exported::faulty(TargetTransport::Soft, faults);
    let connection = connect_by(&DeviceChoice::default(), &e.config());
    let m = Mounted::over(connection, LandingChoice::Direct, 2, 8, GENEROUS);
    let errors = m.first_errors(20);
    assert!(errors.iter().any(|e| is_pathing_error(e.outcome)), "{errors:?}");
    until("the loss", || m.connection.counters().losses > 0);
    let told = m.connection.last_loss().unwrap();
    assert!(told.contains("not outstanding"), "{told}");
    until("the association", || m.connection.counters().reconnects > 0);
    m.volume.recover().unwrap();
    m.move_blocks(&pattern(4096, 1), 1).unwrap();
    assert_eq!(m.connection.counters().host_posts, 0);
}
