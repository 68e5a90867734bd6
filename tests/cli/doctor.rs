//! Tests `warpbell doctor` as its users run it, on fixtures.

use crate::fixture::{Device, Fixture};
use crate::program::one_line;
use crate::tree;
use serde_json::Value;
use std::process::{Command, Output, Stdio};

/// Returns a machine with an IOMMU and a drive that has the kernel's driver and is unused.
fn machine() -> Fixture {
    let tree = Fixture::new();
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

fn doctor(tree: &Fixture, args: &[&str]) -> Output {
    let mut c = Command::new(tree::program());
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
    let tree = Fixture::new();
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
        assert_eq!((&json["schema"], &json["command"]), (&1.into(), &"doctor".into()));
        assert_eq!(json["nvme"][0]["bdf"], "0000:00:03.0");
        assert!(json["checks"].as_array().unwrap().iter().any(|c| c["fix"] == "warpbell nvme bind 0000:00:03.0"));
    }
}

#[test]
fn rdma_devices_are_listed_with_what_their_ports_lack() {
    let tree = machine();
    let card = Device { id: (0x15b3, 0x1021), class: 0x02_00_00, driver: Some("mlx5_core"), ..Device::default() };
    tree.pci("pci0000:00/0000:00:05.0", &card);
    let at = "/sys/devices/pci0000:00/0000:00:05.0/infiniband/mlx5_0";
    tree.folder(at)
        .link("/sys/class/infiniband/mlx5_0", at)
        .link(&format!("{at}/device"), "/sys/devices/pci0000:00/0000:00:05.0");
    for (file, text) in [("state", "4: ACTIVE"), ("phys_state", "5: LinkUp"), ("link_layer", "Ethernet")] {
        tree.file(&format!("{at}/ports/1/{file}"), format!("{text}\n"));
    }
    tree.file(&format!("{at}/ports/1/gids/0"), "fe80:0000:0000:0000:0e42:a1ff:feb2:c3d4\n");
    tree.file(&format!("{at}/ports/1/gid_attrs/types/0"), "RoCE v2\n");
    tree.file("/sys/class/infiniband_verbs/uverbs0/ibdev", "mlx5_0\n");
    let out = one_line(&text(&doctor(&tree, &[]).stdout));
    for words in
        ["nic mlx5_0 0000:00:05.0 ConnectX-7", "there is no /dev/infiniband/uverbs0", "RoCE v2, link-local IPv6"]
    {
        assert!(out.contains(words), "no `{words}` in {out}");
    }
    let path = "network path peer 0 GPUs, shared memory ok; this machine has mlx5 none, verbs none";
    assert!(out.contains(path), "{out}");
    tree.node("/dev/infiniband/uverbs0", 0o666);
    let json: Value = serde_json::from_slice(&doctor(&tree, &["--json"]).stdout).unwrap();
    assert_eq!((&json["network"]["mlx5_ports"], &json["network"]["verbs_ports"]), (&1.into(), &1.into()));
    assert_eq!(json["nics"][0]["ports"][0]["gid"]["index"], 0);
}

#[test]
fn other_words_are_a_usage_error() {
    let o = doctor(&machine(), &["--require", "speed"]);
    assert_eq!(o.status.code(), Some(2));
    assert!(text(&o.stderr).contains("there are gpu, nvme, p2p, rdma, mlx5 and verbs"), "{}", text(&o.stderr));
}

#[test]
fn this_machine_is_looked_at_without_a_failure() {
    let o = Command::new(tree::program()).arg("doctor").stdin(Stdio::null()).output().unwrap();
    assert!(o.status.success(), "{}", text(&o.stderr));
    assert!(text(&o.stdout).contains("storage path") && text(&o.stdout).contains("network path"));
}
