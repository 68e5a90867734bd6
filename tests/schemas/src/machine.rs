//! Reports on the machine, on running processes, and of acceptance runs.

use crate::fixture::{Device, Fixture};
use crate::program::{command, folder, name, stderr, stdout};
use crate::validator::{check, has, report, report_of};
use serde_json::Value;
use std::process::Stdio;
use std::time::{Duration, Instant};

#[test]
fn the_machine_is_described() {
    report("info");
    report("doctor");
    let o = command(&["doctor", "--require", "gpu,nvme,p2p,rdma,mlx5,verbs", "--json", "-"]).output().unwrap();
    let required: Value = serde_json::from_slice(&o.stdout).unwrap();
    check(&required);
    has(&required, &["/requirements/5/require"]);
}

#[test]
fn controllers_and_adapters_of_a_machine_are_described() {
    let tree = Fixture::new();
    tree.file("/proc/sys/kernel/osrelease", "6.12.9\n");
    let link = Some(("16.0", 4, "32.0", 4));
    let drive = Device {
        id: (0x144d, 0xa824),
        class: 0x01_08_02,
        driver: Some("nvme"),
        group: Some(7),
        link,
        ..Device::default()
    };
    tree.pci("pci0000:00/0000:00:03.0", &drive).group_type(7, "DMA");
    let card = Device { id: (0x15b3, 0x1021), class: 0x02_00_00, driver: Some("mlx5_core"), ..Device::default() };
    tree.pci("pci0000:00/0000:00:05.0", &card);
    let at = "/sys/devices/pci0000:00/0000:00:05.0/infiniband/mlx5_0";
    tree.folder(at)
        .link("/sys/class/infiniband/mlx5_0", at)
        .link(&format!("{at}/device"), "/sys/devices/pci0000:00/0000:00:05.0");
    let port = [
        ("state", "4: ACTIVE"),
        ("phys_state", "5: LinkUp"),
        ("link_layer", "Ethernet"),
        ("rate", "400 Gb/sec (4X NDR)"),
        ("lid", "0x0"),
    ];
    for (file, text) in port {
        tree.file(&format!("{at}/ports/1/{file}"), format!("{text}\n"));
    }
    tree.file(&format!("{at}/ports/1/gids/0"), "fe80:0000:0000:0000:0e42:a1ff:feb2:c3d4\n");
    tree.file(&format!("{at}/ports/1/gid_attrs/types/0"), "RoCE v2\n");
    tree.file(&format!("{at}/tc/1/traffic_class"), "Global tclass=96\n");
    let found = report(&format!("doctor --root {}", name(tree.root())));
    let pointers = [
        "/nvme/0/link/now/tenths_of_gt_per_s",
        "/nics/0/ports/0/rate/tenths_of_gbit",
        "/nics/0/ports/0/gid/reason",
        "/nics/0/ports/0/traffic_class/forced",
        "/nic_distances/0/distance",
    ];
    has(&found, &pointers);
}

#[test]
fn running_processes_are_described() {
    let folder = folder();
    let mut measuring = command(&["bench", "nvme", "--engine", "cpu", "--runtime", "10m", "--size", "1M"]);
    let mut measuring =
        measuring.env("XDG_RUNTIME_DIR", folder.path()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let end = Instant::now() + Duration::from_secs(300);
    // A busy machine may give the process no time within one interval.
    let shown = loop {
        let mut top = command(&["top", "--once", "--interval", "200ms", "--json", "--queues"]);
        let o = top.env("XDG_RUNTIME_DIR", folder.path()).output().unwrap();
        assert!(o.status.success(), "{}", stderr(&o));
        let shown: Value = serde_json::from_str(&stdout(&o)).unwrap();
        check(&shown);
        if shown.pointer("/processes/0/queues/0/latency_ns").is_some_and(Value::is_number) || Instant::now() > end {
            break shown;
        }
    };
    measuring.kill().unwrap();
    measuring.wait().unwrap();
    has(&shown, &["/processes/0/queues/0/latency_ns", "/processes/0/latency_ns"]);
}

#[test]
fn acceptance_runs_are_described() {
    let folder = folder();
    let device = format!("soft:{}", name(&folder.path().join("new.img")));
    let short = "--size 256K --runtime 20ms --soak 20ms";
    let accepted = report(&format!("accept nvme {device} {short}"));
    has(&accepted, &["/subject/controller/driver/version", "/subject/machine/host", "/restored/0"]);
    let failed = report_of(&format!("accept nvme {device} {short} --fault read=media-error=0-2047"), 1);
    let steps = failed["steps"].as_array().unwrap();
    let read = steps.iter().find(|step| step["name"] == "read").unwrap();
    has(read, &["/remedy", "/commands/0/refused/0/input"]);
    report(&format!("accept nvme {device} {short} --until identify"));
    // The reports of the commands have schemas of their own.
    let steps = accepted["steps"].as_array().unwrap();
    let reports = steps.iter().flat_map(|step| step["commands"].as_array().unwrap()).filter_map(|c| c.get("report"));
    let with_schema = reports.filter(|report| !report["command"].as_str().unwrap().starts_with("accept probe"));
    assert!(with_schema.inspect(|report| check(report)).count() > 3);
}

#[test]
fn acceptance_runs_of_adapters_are_described() {
    let folder = folder();
    let file = folder.path().join("report.json");
    let args = ["accept", "rdma", "--runtime", "20ms", "--soak", "20ms", "--json", name(&file)];
    // The exit code depends on the machine.
    command(&args).output().unwrap();
    check(&crate::program::json(&file));
}
