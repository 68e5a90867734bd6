//! Tests the command line on the rig's drives.

use super::machine::{self, BOUND, FAULTY, MATE, TWO, bind, driver, spec, text, warpbell};
use serde_json::Value;
use std::fs;
use std::process::{Command, Output};

const GRAPH: &str = "/rig/enron.txt";
/// Vertices that a search from vertex 1 reaches, of 36,692.
const REACHED: &str = "reached 33,695 ";

/// Returns the distances that a search prints with these options, after it has verified them.
pub fn distances(name: &str, options: &[&str]) -> Vec<u8> {
    let out = format!("/tmp/{name}.txt");
    let mut arguments = vec!["graph", "bfs", GRAPH, "--source", "1", "--engine", "cpu", "--out", &out];
    arguments.extend(options);
    let done = warpbell(&arguments);
    assert!(done.status.success());
    let said = text(&done.stdout);
    assert!(said.contains(REACHED) && said.contains("verified (GAP rules)"), "{said}");
    fs::read(out).unwrap()
}

#[test]
#[ignore = "needs the rig"]
fn a_search_over_drives_equals_that_over_the_software_controller() {
    machine::inside();
    bind(TWO);
    bind(MATE);
    let (small, large, mate) = (spec(TWO, 1), spec(TWO, 2), spec(MATE, 1));
    let expected = distances("soft", &["--device", "soft:mem"]);
    assert!(expected.len() > 100_000);
    for (name, options) in [
        ("blocks-512", vec!["--device", &small]),
        ("blocks-4096", vec!["--device", &large]),
        ("striped", vec!["--device", &small, "--device", &mate]),
        ("replicated", vec!["--device", &small, "--device", &mate, "--replicate"]),
    ] {
        let policy: Vec<&str> = options.iter().flat_map(|o| policy(o)).collect();
        let options: Vec<&str> = options.into_iter().chain(policy).collect();
        assert!(distances(name, &options) == expected, "{name}: other distances");
    }
}

/// Returns the options that allow overwriting: earlier tests wrote to the drives.
pub fn policy(device: &str) -> Vec<&str> {
    if device.starts_with("nvme:") { vec!["--yes-destroy", device] } else { Vec::new() }
}

#[test]
#[ignore = "needs the rig"]
fn bind_and_unbind_hand_the_drive_over_and_back() {
    machine::inside();
    assert!(warpbell(&["nvme", "unbind", MATE]).status.success());
    machine::until("the kernel's driver", BOUND, || (driver(MATE).as_deref() == Some("nvme")).then_some(()));
    let dry = warpbell(&["nvme", "bind", MATE, "--dry-run"]);
    assert!(dry.status.success());
    assert_eq!(driver(MATE).as_deref(), Some("nvme"), "a dry run changed something");
    bind(MATE);
}

/// Runs an acceptance run on a drive that the kernel has. Returns its report, after it has checked that the kernel has
/// the drive again.
fn accepted(bdf: &str, options: &[&str]) -> (Output, Value) {
    if driver(bdf).as_deref() != Some("nvme") {
        assert!(warpbell(&["nvme", "unbind", bdf]).status.success());
        machine::until("the kernel's driver", BOUND, || (driver(bdf).as_deref() == Some("nvme")).then_some(()));
    }
    let report = "/tmp/accept.json";
    let short = ["--size", "1M", "--runtime", "50ms", "--soak", "50ms", "--yes-destroy", bdf, "--json", report];
    let done = warpbell(&[&["accept", "nvme", bdf], &short[..], options].concat());
    assert_eq!(driver(bdf).as_deref(), Some("nvme"), "the driver is not restored");
    (done, serde_json::from_slice(&fs::read(report).unwrap()).unwrap())
}

#[test]
#[ignore = "needs the rig"]
fn a_drive_is_accepted_from_cold_to_done() {
    machine::inside();
    let (done, report) = accepted(MATE, &[]);
    assert!(done.status.success());
    assert_eq!(report["accepted"], true);
    let steps = report["steps"].as_array().unwrap();
    let passed = steps.iter().filter(|s| s["status"] == "passed").count();
    // All but the four of a GPU.
    assert_eq!((passed, steps.len()), (12, 16));
    assert_eq!(report["subject"]["controller"]["serial"], "RIG-MATE");
}

/// Tests that a drive with unreadable sectors fails where it is read first, with the bytes of the command.
#[test]
#[ignore = "needs the rig"]
fn a_faulty_drive_is_not_accepted_and_is_given_back() {
    machine::inside();
    let (done, report) = accepted(FAULTY, &[]);
    assert_eq!(done.status.code(), Some(1));
    let steps = report["steps"].as_array().unwrap();
    let failed = steps.iter().find(|s| s["status"] == "failed").unwrap();
    assert!(["read", "cpu"].contains(&failed["name"].as_str().unwrap()), "{failed}");
    assert!(text(&done.stderr).contains("nrecovered"), "{}", text(&done.stderr));
    let commands = failed["commands"].as_array().unwrap();
    let refused = commands.iter().find_map(|c| c["refused"].get(0)).unwrap();
    assert_eq!((&refused["interface"], refused["input"].as_str().unwrap().len()), (&"nvme-io".into(), 128));
    assert_eq!(report["restored"].as_array().unwrap().len(), 1);
    bind(FAULTY);
}

/// Tests the other commands on a controller behind VFIO.
#[test]
#[ignore = "needs the rig"]
fn controllers_are_listed_and_read() {
    machine::inside();
    bind(FAULTY);
    let listed = warpbell(&["nvme", "list"]);
    assert!(listed.status.success());
    assert!([TWO, MATE, FAULTY].iter().all(|bdf| text(&listed.stdout).contains(bdf)));
    for (command, says) in
        [("id", "RIG-FAULTY"), ("smart", "temperature"), ("error-log", ""), ("format-check", "usable")]
    {
        let done = warpbell(&["nvme", command, &spec(FAULTY, 1)]);
        assert!(done.status.success(), "{command}");
        assert!(text(&done.stdout).contains(says), "{command} says nothing of {says}");
    }
}

/// Tests that the doctor reports drives behind an IOMMU and no GPU.
#[test]
#[ignore = "needs the rig"]
fn the_doctor_tells_what_this_machine_has() {
    machine::inside();
    bind(TWO);
    let all = warpbell(&["doctor", "--require", "nvme"]);
    assert!(all.status.success());
    assert!(text(&all.stdout).contains(TWO));
    let lacking = warpbell(&["doctor", "--require", "gpu"]);
    assert_eq!(lacking.status.code(), Some(1));
    assert!(text(&lacking.stderr).contains("gpu"), "{}", text(&lacking.stderr));
}

/// IOPS and mean latency in microseconds.
struct Measured {
    iops: f64,
    mean_us: f64,
}

fn by_fio(device: &str, depth: u32, engine: &str) -> Measured {
    let arguments = [
        "--name=read",
        "--rw=randread",
        "--bs=4k",
        "--direct=1",
        "--time_based",
        "--runtime=2",
        "--output-format=json",
        &format!("--filename={device}"),
        &format!("--iodepth={depth}"),
        &format!("--ioengine={engine}"),
    ];
    let done = Command::new("fio").args(arguments).output().unwrap();
    assert!(done.status.success(), "{}{}", text(&done.stdout), text(&done.stderr));
    let said = text(&done.stdout);
    let report: Value = serde_json::from_str(&said[said.find('{').unwrap()..]).unwrap();
    let read = &report["jobs"][0]["read"];
    Measured { iops: read["iops"].as_f64().unwrap(), mean_us: read["clat_ns"]["mean"].as_f64().unwrap() / 1e3 }
}

fn by_bench(device: &str, depth: u32) -> Measured {
    let depth = depth.to_string();
    let done = Command::new("warpbell")
        .args(["bench", "nvme", "--engine", "cpu", "--rw", "randread", "--bs", "4k", "--runtime", "2s", "--json", "-"])
        .args(["--iodepth", &depth, "--device", device])
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", text(&done.stderr));
    let said = text(&done.stdout);
    let report: Value = serde_json::from_str(&said[said.find('{').unwrap()..]).unwrap();
    let read = &report["results"][0]["runs"][0]["read"];
    Measured { iops: read["iops"].as_f64().unwrap(), mean_us: read["latency"]["mean_ns"].as_f64().unwrap() / 1e3 }
}

/// Measures the same emulated drive with the kernel's driver under fio and with kernels on CPU threads. The figures
/// describe the emulator only.
#[test]
#[ignore = "needs the rig"]
fn fio_and_bench_side_by_side() {
    machine::inside();
    const DEPTHS: [u32; 3] = [1, 8, 32];
    if driver(MATE).as_deref() != Some("nvme") {
        assert!(warpbell(&["nvme", "unbind", MATE]).status.success());
    }
    let block_device = machine::until("the kernel's block device", BOUND, || {
        let controller = fs::read_dir(machine::device(MATE).join("nvme")).ok()?.next()?.ok()?.path();
        let names = fs::read_dir(controller).ok()?.map(|e| e.unwrap().file_name().into_string().unwrap());
        let name = names.into_iter().find(|n| n.starts_with("nvme") && n.contains('n') && n.ends_with("n1"))?;
        let path = format!("/dev/{name}");
        fs::metadata(&path).ok().map(|_| path)
    });
    let kernel: Vec<Measured> = DEPTHS.iter().map(|d| by_fio(&block_device, *d, "libaio")).collect();
    bind(MATE);
    println!("random 4 KiB reads of one emulated drive; an emulator's figures, nothing about hardware");
    println!("{:>8}  {:>22}  {:>22}", "", "fio, kernel driver", "warpbell bench, vfio");
    println!("{:>8}  {:>10}  {:>10}  {:>10}  {:>10}", "iodepth", "IOPS", "mean us", "IOPS", "mean us");
    for (depth, fio) in DEPTHS.iter().zip(kernel) {
        let ours = by_bench(&spec(MATE, 1), *depth);
        println!("{depth:>8}  {:>10.0}  {:>10.1}  {:>10.0}  {:>10.1}", fio.iops, fio.mean_us, ours.iops, ours.mean_us);
        assert!(fio.iops > 0.0 && ours.iops > 0.0);
    }
}
