//! Tests that run only in the virtual machines of `tests/rig/run --fabrics`: the kernel's NVMe target in one machine, and
//! ours and the kernel's initiator in another, over TCP or over RDMA by Soft-RoCE. Elsewhere the tests are ignored, and fail
//! if they are run.
#![cfg(all(feature = "storage", feature = "soft", feature = "shmem"))]

mod network;
mod ports;
mod setting;

use setting::{Kernel, NQN, PORT, TargetPort, disk, inside, pattern, target_disk};
use std::io::ErrorKind;
use std::time::Duration;
use warpbell::engine::Engine;
use warpbell::nvme::fabrics::{FabricsConfig, FabricsError, FabricsTransport};
use warpbell::nvme::{Controller, HostQueue, HostQueueOptions, Namespace};
use warpbell::remote;
use warpbell::remote::RemoteController;
use warpbell::soft::target::{Target, TargetConfig};
use warpbell::storage::{Cache, Drive, Volume};
use warpbell::wire::nvme::tcp::Digests;

/// Deadline of what must succeed on emulated processors.
const GENEROUS: Duration = Duration::from_secs(100);
const BLOCK: usize = 4096;

fn config() -> FabricsConfig {
    FabricsConfig::tcp(setting::address(), PORT, NQN)
        .transport(setting::transport())
        .queues(Some(2))
        .threads(Some(1))
        .keep_alive(Duration::from_secs(60))
        .connect_timeout(GENEROUS)
}

fn queue(config: &FabricsConfig) -> (RemoteController, HostQueue<'static>, Namespace) {
    queue_of(config, 1)
}

fn queue_of(config: &FabricsConfig, nsid: u32) -> (RemoteController, HostQueue<'static>, Namespace) {
    let connection = remote::connect(config).unwrap();
    let controller = Controller::new(connection.attachment()).unwrap().enable().map_err(|(_, e)| e).unwrap();
    let namespace = controller.namespace(nsid).unwrap();
    let mut q = HostQueue::create(&controller.into(), HostQueueOptions::default()).unwrap();
    q.set_deadline(GENEROUS);
    (connection, q, namespace)
}

#[test]
#[ignore = "needs the rig"]
fn blocks_of_the_kernels_target_are_those_of_its_device() {
    inside();
    let over_tcp = setting::transport() == FabricsTransport::Tcp;
    let digests = if over_tcp { &[0, 3][..] } else { &[0] };
    let cases = digests.iter().flat_map(|bits| [(*bits, 1, 512), (*bits, 2, BLOCK)]);
    for (seed, (bits, nsid, block_bytes)) in cases.enumerate() {
        let (connection, mut q, namespace) = queue_of(&config().digests(Digests::from_bits(bits)), nsid);
        println!("limits: {:?}", connection.limits());
        let (block, device) = (namespace.block_bytes(), target_disk(nsid));
        assert_eq!(block, block_bytes);
        for (i, bytes) in [block, BLOCK, 3 * BLOCK, 128 << 10, 1 << 20].into_iter().enumerate() {
            let data = pattern(bytes, seed * 10 + i);
            let at = (i * 2) as u64 * (1 << 20);
            q.write(&namespace, at / block as u64, &data).unwrap();
            q.flush_always(&namespace).unwrap();
            let mut back = vec![0; bytes];
            q.read(&namespace, at / block as u64, &mut back).unwrap();
            assert!(back == data, "{bytes} bytes over the connection, digests {bits}");
            assert!(device.read(at, bytes) == data, "{bytes} bytes on {}", device.0);
            let other = pattern(bytes.next_multiple_of(BLOCK), seed * 10 + i + 100);
            device.write(at, &other);
            q.read(&namespace, at / block as u64, &mut back).unwrap();
            assert!(back == other[..bytes], "{bytes} bytes that {} got", device.0);
        }
        assert_eq!(connection.counters().losses, 0);
    }
}

#[test]
#[ignore = "needs the rig"]
fn both_initiators_see_the_same_blocks_of_the_kernels_target() {
    inside();
    let (_connection, mut q, namespace) = queue(&config());
    let kernel = Kernel::connect(setting::address(), PORT, NQN);
    let data = pattern(256 << 10, 50);
    q.write(&namespace, 0, &data).unwrap();
    assert!(disk(kernel.disk()).read(0, data.len()) == data, "the kernel reads what we wrote");
    let data = pattern(256 << 10, 51);
    disk(kernel.disk()).write(1 << 20, &data);
    let mut back = vec![0; data.len()];
    q.read(&namespace, (1 << 20) / namespace.block_bytes() as u64, &mut back).unwrap();
    assert!(back == data, "we read what the kernel wrote");
}

#[test]
#[ignore = "needs the rig"]
fn the_kernels_initiator_uses_our_target() {
    inside();
    if setting::transport() != FabricsTransport::Tcp {
        println!("SKIP: the software target has no transport over RDMA devices");
        return;
    }
    const OURS: &str = "nqn.2026-01.org.warpbell:rig";
    for device in ["soft:mem:16M,threads=1", "soft:mem:16M,block=4096,threads=1"] {
        let drive = Drive::open(device).unwrap();
        let target = Target::start(drive.controller(), TargetConfig::new(OURS)).unwrap();
        let kernel = Kernel::connect("127.0.0.1", target.address().port(), OURS);
        let data = pattern(512 << 10, 60);
        disk(kernel.disk()).write(0, &data);
        assert!(disk(kernel.disk()).read(0, data.len()) == data, "{device}");
        let mut local = HostQueue::create(drive.controller(), HostQueueOptions::default()).unwrap();
        let mut back = vec![0; data.len()];
        local.read(drive.namespace(), 0, &mut back).unwrap();
        assert!(back == data, "{device}: what the kernel wrote is on the device");
        assert!(target.commands() > 0);
    }
}

#[test]
#[ignore = "needs the rig"]
fn kernels_read_an_array_from_the_kernels_target() {
    inside();
    let connection = remote::connect(&config()).unwrap();
    let drive = Drive::attach(connection.attachment(), None).unwrap();
    let volume = Volume::on(&Engine::cpu().unwrap(), [drive]).queues(1).depth(16).build().unwrap();
    volume.set_deadline(GENEROUS).unwrap();
    let values: Vec<u32> = (0..100_000u32).map(|i| i.wrapping_mul(0x9e37_79b9)).collect();
    volume.store_array("a", &values).unwrap();
    let cache = Cache::on(&volume).bytes(64 << 10).build().unwrap();
    assert!(cache.open::<u32>("a").unwrap().read(0..20_000).unwrap() == values[..20_000]);
    let c = connection.counters();
    println!("{c:?}");
    match setting::transport() {
        FabricsTransport::Rdma => {
            assert!(c.kernel_commands > 0 && c.host_posts == 0, "kernels post the capsules: {c:?}")
        }
        _ => assert!(c.commands > 0, "{c:?}"),
    }
}

#[test]
#[ignore = "needs the rig"]
fn the_kernels_target_is_discovered_and_checked() {
    inside();
    // Without a port: that of discovery controllers refuses the connection, and the port of I/O controllers is next.
    let host = setting::address();
    let records = remote::discover(setting::transport(), host, |c| c.connect_timeout(GENEROUS)).unwrap();
    println!("{records:?}");
    let found = records.iter().find(|r| r.subsystem == NQN).expect("the subsystem");
    assert_eq!((found.address.as_str(), found.service.as_str()), (host, &PORT.to_string()[..]));
    assert_eq!(setting::discovered_by_nvme_cli(), setting::discovered_by_warpbell());
    let report = remote::check(&config()).unwrap();
    println!("{report:?}");
    assert_eq!(report.namespaces, [1, 2]);
    let mut other = config();
    other.subsystem = "nqn.2026-01.org.example:none".into();
    match remote::check(&other).unwrap_err() {
        FabricsError::Refused { parameter, .. } => assert!(parameter.contains("name of the subsystem"), "{parameter}"),
        other => panic!("{other}"),
    }
}

#[test]
#[ignore = "needs the rig"]
fn a_port_of_the_kernels_target_that_goes_and_comes_is_survived() {
    inside();
    let (connection, mut q, namespace) = queue(&config().reconnect_delay(Duration::from_millis(200)));
    let data = pattern(BLOCK, 70);
    q.write(&namespace, 0, &data).unwrap();
    TargetPort(1).unlink();
    setting::until("the loss", || connection.counters().losses > 0);
    TargetPort(1).link_again();
    setting::until("the association", || connection.counters().reconnects > 0);
    let mut back = vec![0; BLOCK];
    q.read(&namespace, 0, &mut back).unwrap();
    assert!(back == data);
}

#[test]
#[ignore = "needs the rig"]
fn a_port_without_a_target_and_an_address_without_a_path_say_so() {
    inside();
    let mut closed = config();
    closed.port = PORT + 100;
    match remote::check(&closed).unwrap_err() {
        FabricsError::Unreachable { source, .. } => assert_eq!(source.kind(), ErrorKind::ConnectionRefused),
        other => panic!("{other}"),
    }
    if setting::transport() == FabricsTransport::Rdma {
        // Reached by the loopback interface, which has no RDMA device.
        let mut elsewhere = config().connect_timeout(Duration::from_secs(5));
        elsewhere.host = "127.0.0.1".into();
        let e = remote::check(&elsewhere).unwrap_err();
        println!("{e}");
        assert!(matches!(e, FabricsError::Unreachable { .. }), "{e:?}");
    }
}

#[test]
#[ignore = "needs the rig"]
fn a_search_over_the_kernels_target_equals_that_of_the_software_controller() {
    inside();
    let device = format!("{},queues=2,threads=1,keep-alive=60,nsid=2", config());
    let local = setting::search(None);
    assert!(!local.is_empty());
    assert!(setting::search(Some(&device)) == local);
    let said = setting::warpbell(&["nvme", "connect-check", &config().to_string()]);
    assert!(said.contains("namespaces : 1 2"), "{said}");
    let words = format!("nvmf:{}:traddr={},trsvcid={PORT},subnqn={NQN}", setting::transport(), setting::address());
    assert!(setting::warpbell(&["nvme", "connect-check", &words]).contains("namespaces : 1 2"));
    let found =
        setting::warpbell(&["nvme", "discover", setting::address(), "--transport", &setting::transport().to_string()]);
    assert!(found.contains(&format!("--device {}", config())), "{found}");
    let doctor = setting::warpbell(&["doctor", "--device", &config().to_string()]);
    let route = if setting::transport() == FabricsTransport::Rdma { "rxe0 port 1" } else { "10.8.0.1 from 10.8.0.2" };
    // The doctor breaks its lines.
    let doctor = doctor.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(doctor.contains(route) && doctor.contains("2 namespaces"), "{doctor}");
}
