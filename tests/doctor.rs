//! `warpbell doctor` as its users run it, on recorded trees.
#![cfg(feature = "cli")]

#[path = "../host/pci/recorded.rs"]
#[allow(dead_code)]
mod recorded;

use recorded::{Device, Recorded};
use serde_json::Value;
use std::process::{Command, Output, Stdio};

/// A machine with a drive that its own driver holds and nobody uses, and an IOMMU.
fn machine() -> Recorded {
    let tree = Recorded::new();
    tree.file("/proc/sys/kernel/osrelease", "6.12.9\n")
        .file("/proc/self/mountinfo", "25 1 0:21 / /proc rw - proc proc rw\n");
    tree.file("/proc/self/limits", "Max locked memory  unlimited  unlimited  bytes\n");
    let drive =
        Device { id: (0x144d, 0xa824), class: 0x01_08_02, driver: Some("nvme"), group: Some(7), ..Device::default() };
    tree.pci("pci0000:00/0000:00:03.0", &drive).group_type(7, "DMA");
    tree.folder("/sys/devices/pci0000:00/0000:00:03.0/nvme/nvme0/nvme0n1").file("/sys/class/block/nvme0n1/size", "8\n");
    tree.file("/dev/nvme0n1", [0; 4096]);
    tree
}

fn doctor(tree: &Recorded, args: &[&str]) -> Output {
    let mut c = Command::new(env!("CARGO_BIN_EXE_warpbell"));
    c.arg("doctor").arg("--root").arg(tree.root()).args(args).stdin(Stdio::null()).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn a_report_is_no_failure() {
    let o = doctor(&machine(), &[]);
    let out = text(&o.stdout);
    assert!(o.status.success() && o.stderr.is_empty(), "{out}");
    assert!(out.contains("warn  driver") && out.contains("warpbell nvme bind 0000:00:03.0"), "{out}");
    assert!(out.lines().any(|l| l.starts_with("storage path   soft:mem")), "{out}");
    assert!(!out.contains('\u{1b}'), "no colours in a pipe");
}

#[test]
fn what_is_required_and_not_possible_ends_with_one() {
    let o = doctor(&machine(), &["--require", "nvme,gpu"]);
    let err = text(&o.stderr);
    assert_eq!(o.status.code(), Some(1), "{err}");
    assert_eq!(err.lines().count(), 1, "{err}");
    assert!(err.starts_with("error: nvme is required and not possible: "), "{err}");
    assert!(err.contains("warpbell nvme bind 0000:00:03.0") && err.contains("gpu is required"), "{err}");
    assert!(text(&o.stdout).contains("required       nvme: not possible"));
}

#[test]
fn what_is_required_and_possible_ends_with_none() {
    let tree = Recorded::new();
    let drive = Device { class: 0x01_08_02, driver: Some("vfio-pci"), group: Some(7), ..Device::default() };
    tree.pci("pci0000:00/0000:00:03.0", &drive).group_type(7, "DMA");
    tree.node("/dev/vfio/vfio", 0o666).node("/dev/vfio/7", 0o666);
    let o = doctor(&tree, &["--require", "nvme"]);
    assert!(o.status.success(), "{}", text(&o.stderr));
    assert!(text(&o.stdout).contains("storage path   nvme:0000:00:03.0 by vfio group"), "{}", text(&o.stdout));
}

#[test]
fn json_goes_to_standard_output_or_to_a_file() {
    let tree = machine();
    let file = tree.root().join("report.json");
    for args in [&["--json"][..], &["--json", "-"], &["--json", file.to_str().unwrap()]] {
        let o = doctor(&tree, args);
        let json = if args.len() == 2 && args[1] != "-" { std::fs::read(&file).unwrap() } else { o.stdout };
        let json: Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(json["command"], "doctor");
        assert_eq!(json["nvme"][0]["bdf"], "0000:00:03.0");
        assert!(json["checks"].as_array().unwrap().iter().any(|c| c["fix"] == "warpbell nvme bind 0000:00:03.0"));
    }
}

#[test]
fn other_words_are_a_usage_error() {
    let o = doctor(&machine(), &["--require", "speed"]);
    assert_eq!(o.status.code(), Some(2));
    assert!(text(&o.stderr).contains("there are gpu, nvme and p2p"), "{}", text(&o.stderr));
}

#[test]
fn this_machine_is_looked_at_without_a_failure() {
    let o = Command::new(env!("CARGO_BIN_EXE_warpbell")).arg("doctor").stdin(Stdio::null()).output().unwrap();
    assert!(o.status.success(), "{}", text(&o.stderr));
    assert!(text(&o.stdout).contains("storage path"));
}
