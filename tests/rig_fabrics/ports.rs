//! Two ports and two subsystems of the kernel's target; a host that it wants to authenticate.

use crate::setting::{
    self, Kernel, KernelController, Keyed, NQN, PORT, SECOND, TargetDisk, TargetPort, disk, inside, pattern,
    target_disk, until,
};
use crate::{BLOCK, GENEROUS, config, queue};
use std::net::Ipv4Addr;
use std::time::Duration;
use warpbell::engine::{Engine, RunError};
use warpbell::nvme::RecoveryPolicy;
use warpbell::nvme::fabrics::{FabricsConfig, FabricsError, FabricsTransport, PortAddress};
use warpbell::remedy::Remedies;
use warpbell::remote;
use warpbell::remote::RemoteController;
use warpbell::soft::target::{Target, TargetConfig};
use warpbell::storage::{Drive, Volume};
use warpbell::wire::nvme::ana::AccessState;

const STATES: [AccessState; 3] = [AccessState::Inaccessible, AccessState::PersistentLoss, AccessState::Change];

/// Returns the configuration for the subsystem at its two ports.
fn both() -> FabricsConfig {
    let second = PortAddress { host: setting::address().to_owned(), port: PORT + 1 };
    config().more_ports(vec![second]).reconnect_delay(Duration::from_millis(500))
}

fn of(subsystem: &str) -> FabricsConfig {
    let mut c = config();
    c.subsystem = subsystem.to_owned();
    c
}

fn port(number: u32) -> String {
    format!("{}:{}", setting::address(), PORT + number as u16 - 1)
}

fn uses(connection: &RemoteController, number: u32) {
    until(&format!("the association by port {number}"), || connection.port() == port(number));
}

/// Moves blocks by kernels. Returns false if the port was lost meanwhile; the volume is recovered then.
pub fn move_blocks(v: &Volume, data: &[u8], each: u32) -> bool {
    let blocks = (data.len() >> v.block_shift()) as u64;
    let buffer = v.allocate_data(data.len()).unwrap();
    buffer.write(0, data).unwrap();
    let moved = v.start_write(0, blocks, each, &buffer).unwrap().finish_within(GENEROUS).and_then(|_| {
        buffer.fill(0, data.len(), 0xee).unwrap();
        v.start_read(0, blocks, each, &buffer).unwrap().finish_within(GENEROUS)
    });
    match moved {
        Ok(_) => {
            let mut back = vec![0; data.len()];
            buffer.read(0, &mut back).unwrap();
            assert!(back == data, "kernels read other data than they wrote");
            true
        }
        Err(RunError::Operations { errors, .. }) => {
            println!("{}", errors.iter().map(|e| e.to_string()).collect::<Vec<_>>().join("\n"));
            v.recover().unwrap();
            false
        }
        Err(other) => panic!("{other}"),
    }
}

#[test]
#[ignore = "needs the rig"]
fn a_port_of_two_is_taken_away_during_transfers() {
    inside();
    let (connection, mut q, namespace) = queue(&both());
    q.set_recovery(RecoveryPolicy::requeue().attempts(100));
    let mut rounds = 0;
    let mut transfer = || {
        rounds += 1;
        let data = pattern(4 * BLOCK, rounds);
        q.write(&namespace, 0, &data).unwrap();
        let mut back = vec![0; data.len()];
        q.read(&namespace, 0, &mut back).unwrap();
        assert!(back == data, "round {rounds}");
    };
    for lost in [1, 2, 1] {
        let left = 3 - lost;
        transfer();
        assert_eq!(connection.port(), port(lost));
        std::thread::scope(|s| {
            s.spawn(|| TargetPort(lost).unlink());
            until("the other port", || {
                transfer();
                connection.port() == port(left)
            });
        });
        transfer();
        TargetPort(lost).link_again();
    }
    let c = connection.counters();
    println!("{c:?}; {:?}", connection.last_loss());
    assert!(c.port_changes >= 3, "{c:?}");
}

#[test]
#[ignore = "needs the rig"]
fn kernels_go_on_by_the_other_port_of_the_kernels_target() {
    inside();
    let connection = remote::connect(&both().namespace(Some(2))).unwrap();
    let drive = Drive::attach(connection.attachment(), Some(2)).unwrap();
    let volume = Volume::on(&Engine::cpu().unwrap(), [drive]).queues(1).depth(8).deadline(GENEROUS).build().unwrap();
    let data = pattern(16 * BLOCK, 7);
    for lost in [1, 2] {
        assert!(move_blocks(&volume, &data, 2), "nothing is lost yet");
        std::thread::scope(|s| {
            s.spawn(|| TargetPort(lost).unlink());
            until("the other port", || {
                move_blocks(&volume, &data, 2);
                connection.port() == port(3 - lost)
            });
        });
        TargetPort(lost).link_again();
        volume.recover().unwrap();
    }
    assert!(move_blocks(&volume, &data, 2));
    let c = connection.counters();
    println!("{c:?}");
    if setting::transport() == FabricsTransport::Rdma {
        assert!(c.kernel_commands > 0 && c.host_posts == 0, "{c:?}");
    }
    assert!(target_disk(2).read(0, data.len()) == data);
}

#[test]
#[ignore = "needs the rig"]
fn access_states_of_the_kernels_target_are_followed() {
    inside();
    let (connection, mut q, namespace) = queue(&both());
    q.set_recovery(RecoveryPolicy::requeue().attempts(100));
    let data = pattern(BLOCK, 80);
    q.write(&namespace, 0, &data).unwrap();
    for state in STATES {
        for left in [1, 2] {
            assert_eq!(connection.port(), port(left));
            TargetPort(left).set_access(state);
            uses(&connection, 3 - left);
            let told = connection.last_loss().unwrap();
            println!("{told}");
            assert!(told.contains(&format!("ANA group 1 is {state}")) || told.contains("asymmetric access"), "{told}");
            let mut back = vec![0; BLOCK];
            q.read(&namespace, 0, &mut back).unwrap();
            assert!(back == data, "{state}");
            TargetPort(left).set_access(AccessState::Optimized);
        }
    }
    // An optimized port is preferred.
    TargetPort(1).set_access(AccessState::NonOptimized);
    assert_eq!(remote::connect(&both()).unwrap().port(), port(2));
    let report = remote::check(&both()).unwrap();
    let states: Vec<_> = report.ports.iter().map(|p| p.access).collect();
    assert_eq!(states, [Some(AccessState::NonOptimized), Some(AccessState::Optimized)]);
    TargetPort(1).set_access(AccessState::Optimized);
}

#[test]
#[ignore = "needs the rig"]
fn a_port_in_another_state_is_refused_by_name() {
    inside();
    for state in STATES {
        TargetPort(1).set_access(state);
        let refused = remote::connect(&config()).map(|c| c.port());
        TargetPort(1).set_access(AccessState::Optimized);
        match refused.unwrap_err() {
            FabricsError::Inaccessible { peer, namespace: 1, group: 1, state: told } => {
                assert_eq!((peer, told), (port(1), state));
            }
            other => panic!("{other}"),
        }
    }
}

#[test]
#[ignore = "needs the rig"]
fn the_kernels_initiator_follows_the_access_states_of_our_target() {
    inside();
    if setting::transport() != FabricsTransport::Tcp {
        println!("SKIP: the software target has no transport over RDMA devices");
        return;
    }
    const OURS: &str = "nqn.2026-01.org.warpbell:ports";
    let drive = Drive::open("soft:mem:16M,threads=1").unwrap();
    let config = TargetConfig::new(OURS).more_ports(vec![(Ipv4Addr::LOCALHOST, 0).into()]);
    let target = Target::start(drive.controller(), config).unwrap();
    let ports = target.addresses();
    let kernel = Kernel::connect("127.0.0.1", ports[0].port(), OURS);
    let second = KernelController::connect("127.0.0.1", ports[1].port(), OURS);
    let controllers = [kernel.controller(), &second];
    let sees = |port: usize, state: AccessState| {
        let word = state.to_string().replace(' ', "-");
        until(&format!("{word} by port {}", port + 1), || controllers[port].access().as_deref() == Some(&word));
    };
    sees(0, AccessState::Optimized);
    sees(1, AccessState::Optimized);
    for (round, state) in STATES.into_iter().chain([AccessState::NonOptimized]).enumerate() {
        for port in [0, 1] {
            target.set_access(port, state);
            sees(port, state);
            let data = pattern(64 << 10, round * 2 + port);
            disk(kernel.disk()).write(0, &data);
            assert!(disk(kernel.disk()).read(0, data.len()) == data, "{state} by port {}", port + 1);
            target.set_access(port, AccessState::Optimized);
            sees(port, AccessState::Optimized);
        }
    }
}

#[test]
#[ignore = "needs the rig"]
fn two_subsystems_make_one_volume() {
    inside();
    const CHUNK: usize = 64 << 10;
    let connections = [NQN, SECOND].map(|subsystem| remote::connect(&of(subsystem)).unwrap());
    let drives = connections.each_ref().map(|c| Drive::attach(c.attachment(), None).unwrap());
    let builder = Volume::on(&Engine::cpu().unwrap(), drives).chunk(CHUNK as u64).queues(1).depth(8);
    let volume = builder.deadline(GENEROUS).build().unwrap();
    let data = pattern(7 * CHUNK, 90);
    assert!(move_blocks(&volume, &data, 16));
    for (i, chunk) in data.chunks(CHUNK).enumerate() {
        let device = TargetDisk(["/dev/ram0", "/dev/ram1"][i % 2]);
        assert!(device.read((i / 2 * CHUNK) as u64, CHUNK) == chunk, "chunk {i} on {}", device.0);
    }
    for c in connections.map(|c| c.counters()) {
        println!("{c:?}");
        match setting::transport() {
            FabricsTransport::Rdma => assert!(c.kernel_commands > 0 && c.host_posts == 0, "{c:?}"),
            _ => assert!(c.commands > 0, "{c:?}"),
        }
    }
}

#[test]
#[ignore = "needs the rig"]
fn a_target_that_demands_authentication_is_refused_by_name() {
    inside();
    let host = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555";
    let of = |host: &str| of(SECOND).host_nqn(Some(host.to_owned()));
    let keyed = Keyed::new(SECOND, host);
    let demanded = remote::check(&of(host)).unwrap_err();
    let refused = remote::check(&of("nqn.2026-01.org.example:other")).unwrap_err();
    drop(keyed);
    println!("{demanded}; {refused}");
    assert!(
        matches!(&demanded, FabricsError::AuthenticationRequired { subsystem, .. } if subsystem == SECOND),
        "{demanded}"
    );
    assert!(demanded.to_string().contains("DH-HMAC-CHAP") && !demanded.remedies().is_empty());
    assert!(matches!(refused, FabricsError::Refused { .. }), "{refused}");
    remote::check(&of(host)).unwrap();
}
