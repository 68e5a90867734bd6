//! Tests resets by others, and processes that die with commands in flight.

use super::host;
use super::machine::{self, BOUND, MATE, PORT_RESET, bind, config_read, config_write, spec, text};
use serde_json::json;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};
use warpbell::engine::Engine;
use warpbell::nvme::vfio::{self, VfioApi, VfioConfig};
use warpbell::nvme::{HostQueue, HostQueueOptions, Notice};
use warpbell::storage::{Drive, Volume};

/// Bridge Control of a root port, and its Secondary Bus Reset bit (PCI-to-PCI Bridge Architecture 1.2, 3.2.5.18).
const BRIDGE_CONTROL: u64 = 0x3e;
const SECONDARY_BUS_RESET: u8 = 1 << 6;
/// Deadline of a wait inside a kernel in the runs that are disturbed.
const DEADLINE: &str = "2s";

/// Starts a process that reads a drive for a minute, and returns when it has begun.
fn reader(device: &str) -> (Child, BufReader<ChildStdout>) {
    let arguments = ["bench", "nvme", "--engine", "cpu", "--runtime", "60s", "--iodepth", "64", "--deadline", DEADLINE];
    let mut child = Command::new("warpbell")
        .args(arguments)
        .args(["--device", device])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    // The last line before the measurement describes the measurement.
    while !line.starts_with("# rw") {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "it ended before it began");
    }
    std::thread::sleep(Duration::from_millis(500));
    (child, said)
}

/// Checks that the next process finds a working drive.
fn is_taken_over(device: &str) {
    let drive = Drive::open(device).unwrap();
    let ns = drive.namespace().clone();
    let mut queue = HostQueue::create(drive.controller(), HostQueueOptions::default()).unwrap();
    let data: Vec<u8> = (0..64u32 << 10).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 9) as u8).collect();
    queue.write(&ns, 100, &data).unwrap();
    let mut out = vec![0; data.len()];
    queue.read(&ns, 100, &mut out).unwrap();
    assert!(out == data);
}

/// Checks that the reader ends soon, with one line that names device and outcome, or continues undisturbed.
fn ends_by_name(mut child: Child, what: &str) {
    let started = Instant::now();
    let status = machine::until(what, BOUND, || child.try_wait().unwrap());
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut said).unwrap();
    println!("  {what}: {status} after {:?}: {}", started.elapsed(), said.trim());
    assert_eq!(status.code(), Some(1), "{what} went unnoticed");
    assert!(said.lines().any(|l| l.starts_with("error: ")), "{said}");
}

#[test]
#[ignore = "needs the rig"]
fn a_killed_process_leaves_a_drive_that_the_next_one_takes() {
    machine::inside();
    bind(MATE);
    for _ in 0..3 {
        let (mut child, _said) = reader(&spec(MATE, 1));
        child.kill().unwrap();
        child.wait().unwrap();
        is_taken_over(&spec(MATE, 1));
    }
}

#[test]
#[ignore = "needs the rig"]
fn a_function_reset_under_a_running_job_is_an_outcome() {
    machine::inside();
    bind(MATE);
    let (child, _said) = reader(&spec(MATE, 1));
    std::fs::write(machine::device(MATE).join("reset"), "1").unwrap();
    ends_by_name(child, "function reset");
    is_taken_over(&spec(MATE, 1));
}

#[test]
#[ignore = "needs the rig"]
fn a_bus_reset_under_a_running_job_is_an_outcome() {
    machine::inside();
    let bdf = machine::behind(PORT_RESET).unwrap();
    bind(&bdf);
    let (child, _said) = reader(&spec(&bdf, 1));
    let control = config_read(PORT_RESET, BRIDGE_CONTROL, 1)[0];
    config_write(PORT_RESET, BRIDGE_CONTROL, &[control | SECONDARY_BUS_RESET]);
    std::thread::sleep(Duration::from_millis(20));
    config_write(PORT_RESET, BRIDGE_CONTROL, &[control & !SECONDARY_BUS_RESET]);
    ends_by_name(child, "bus reset");
    is_taken_over(&spec(&bdf, 1));
}

/// Tests that the driver gets a notice of a fatal error of the bus.
#[test]
#[ignore = "needs the rig"]
fn a_bus_error_is_noticed() {
    machine::inside();
    let bdf = machine::behind(PORT_RESET).unwrap();
    bind(&bdf);
    let api = if machine::vfio() == "group" { VfioApi::Group } else { VfioApi::Cdev };
    // The controller stays disabled: QEMU 7.2's model of one with queues often crashes in the reset that follows.
    let open = vfio::open(&VfioConfig::new(bdf.parse().unwrap()).api(api)).unwrap();
    assert_eq!(open.device.notice(), None);
    // A malformed packet, found by the root port (PCI Express Base 6.0, 6.2.7); the kernel then resets the link.
    host::qmp("human-monitor-command", json!({ "command-line": "pcie_aer_inject_error port-reset MALF_TLP" }));
    let notice = machine::until("a notice of the error", BOUND, || open.device.notice());
    println!("  {notice}");
    assert_eq!(notice, Notice::BusError);
    // The notice comes before the reset of the link. QEMU's model must not have queues during that reset either.
    machine::until("the end of the kernel's recovery", BOUND, || {
        machine::kernel_log().contains("AER: device recovery").then_some(())
    });
    drop(open);
    is_taken_over(&spec(&bdf, 1));
}

/// Tests a reset inside one process: the run fails, the volume recovers, and the repeated run returns the right data.
#[test]
#[ignore = "needs the rig"]
fn a_volume_recovers_from_a_function_reset() {
    machine::inside();
    bind(MATE);
    let engine = Engine::cpu().unwrap();
    let volume = Volume::on(&engine, [Drive::open(&spec(MATE, 1)).unwrap()]).queues(2).build().unwrap();
    volume.set_deadline(Duration::from_secs(2)).unwrap();
    let data: Vec<u8> = (0..4u32 << 20).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 12) as u8).collect();
    volume.write_blocks(0, &data).unwrap();
    let buffer = volume.allocate_data(data.len()).unwrap();
    let blocks = (data.len() / volume.block_bytes()) as u64;
    let read = || volume.start_read(0, blocks, 1, &buffer).unwrap().finish_within(BOUND);
    read().unwrap();
    let resetting = std::thread::spawn(|| {
        std::thread::sleep(Duration::from_millis(100));
        std::fs::write(machine::device(MATE).join("reset"), "1").unwrap();
    });
    // A read of everything takes long enough to be hit; if one was not, the next is.
    let e = machine::until("a run to fail", BOUND, || read().err());
    resetting.join().unwrap();
    println!("  {e}");
    println!("  {}", volume.recover().unwrap());
    buffer.write(0, &vec![0; data.len()]).unwrap();
    read().unwrap();
    let mut out = vec![0; data.len()];
    buffer.read(0, &mut out).unwrap();
    assert!(out == data);
    volume.check().unwrap();
}

/// Tests a driver that resets the controller itself and continues with it.
#[test]
#[ignore = "needs the rig"]
fn a_controller_reset_of_ones_own_rebuilds_the_queues() {
    machine::inside();
    bind(MATE);
    let drive = Drive::open(&spec(MATE, 1)).unwrap();
    let ns = drive.namespace().clone();
    let mut queue = HostQueue::create(drive.controller(), HostQueueOptions::default()).unwrap();
    queue.write(&ns, 7, &[0xa7; 4096]).unwrap();
    drop(queue);
    drive.controller().reset().unwrap();
    let mut queue = HostQueue::create(drive.controller(), HostQueueOptions::default()).unwrap();
    let mut out = [0; 4096];
    queue.read(&ns, 7, &mut out).unwrap();
    assert!(out == [0xa7; 4096], "{}", text(&out[..16]));
}
