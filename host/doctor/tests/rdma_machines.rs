//! Fixtures of machines with RDMA devices.

use super::shapes::*;
use crate::doctor::{GpuFacts, GpuPeer};
use crate::pci::fixture::{Device, Fixture};
use crate::rdma::fixture::{Link, Nic};

/// Adds loaded kernel modules.
pub fn modules(tree: &Fixture, names: &[&str]) {
    for name in names {
        tree.folder(&format!("/sys/module/{name}"));
    }
}

/// Adds rdma-core of a version, with or without mlx5's library.
pub fn rdma_core(tree: &Fixture, version: &str, mlx5: bool) {
    let folder = "/usr/lib/x86_64-linux-gnu";
    let file = format!("{folder}/libibverbs.so.1.14.{version}");
    tree.file(&file, "").link(&format!("{folder}/libibverbs.so.1"), &file);
    if mlx5 {
        tree.file(&format!("{folder}/libmlx5.so.1"), "");
    }
}

/// Adds the limits of a user's process: locked memory, and open files, soft and hard.
pub fn limits(tree: &Fixture, memlock: &str, files: (u32, u32)) {
    let (soft, hard) = files;
    tree.file(
        "/proc/self/limits",
        format!("Max locked memory {memlock} {memlock} bytes\nMax open files {soft} {hard} files\n"),
    );
}

const NAMES: [&str; 8] = ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_7"];

/// Returns a server with eight GPUs and eight InfiniBand devices, a pair below each switch, four switches on each
/// socket. NVLink connects all GPUs. The IOMMU is in pass-through mode. The ports of one switch redirect. One drive,
/// bound to vfio-pci, is below the first switch.
pub fn big_server() -> (Fixture, GpuFacts) {
    let tree = Fixture::new();
    kernel(&tree, "6.8.0-60-generic", "GenuineIntel", "vmx", "iommu=pt");
    tree.file("/sys/devices/system/node/online", "0-1\n");
    process(&tree, tree.stranger(), "0", "unlimited");
    limits(&tree, "unlimited", (1_048_576, 1_048_576));
    nvidia(&tree, "580.159.04", true, "PeerMappingOverride=1;");
    modules(&tree, &["ib_core", "ib_uverbs", "mlx5_core", "mlx5_ib", "nvidia_peermem"]);
    rdma_core(&tree, "50.0", true);
    tree.folder("/sys/class/iommu/dmar0");
    let mut gpus = Vec::new();
    for (i, name) in NAMES.into_iter().enumerate() {
        let (socket, base) = ((i / 4) as u32, i * 0x10 + 0x10);
        let group = 10 * i as u32;
        let redirects = if i == 5 { Some(0x1d) } else { Some(0) };
        let on = |d: Device, n: u32| Device { node: Some(socket), group: Some(group + n), ..d };
        let b = |n: usize| format!("0000:{:02x}:00.0", base + n);
        let root = format!("pci0000:{base:02x}/0000:{base:02x}:01.0");
        let up = format!("{root}/{}", b(1));
        let down = |n: usize| format!("{up}/0000:{:02x}:{n:02x}.0", base + 2);
        tree.pci(&root, &on(port(4, Some(0)), 0)).pci(&up, &on(port(5, None), 1));
        tree.pci(&down(0), &on(port(6, redirects), 2)).pci(&down(1), &on(port(6, redirects), 3));
        tree.pci(&format!("{}/{}", down(0), b(3)), &on(h200_device(), 4));
        let nic = Nic::connectx7(name).place(&format!("{}/{}", down(1), b(4)));
        nic.on(socket, Some(group + 5)).node(i as u32, Some(0o666)).build(&tree);
        if i == 0 {
            let drive = Device { driver: Some("vfio-pci"), ..on(nvme(), 7) };
            tree.pci(&down(2), &on(port(6, redirects), 6)).pci(&format!("{}/{}", down(2), b(5)), &drive);
        }
        for n in 0..8 {
            tree.group_type(group + n, "identity");
        }
        gpus.push(h200(i, &b(3)));
    }
    tree.node("/dev/vfio/vfio", 0o666).node("/dev/vfio/7", 0o666);
    let mut facts = facts(gpus);
    facts.peers = all_peers(8);
    (tree, facts)
}

/// Returns the access of `n` GPUs that all reach each other over NVLink.
pub fn all_peers(n: usize) -> Vec<GpuPeer> {
    let pairs = (0..n).flat_map(|gpu| (0..n).map(move |peer| (gpu, peer))).filter(|(a, b)| a != b);
    let peer = |(gpu, peer)| GpuPeer {
        gpu,
        peer,
        access: Some(Ok(())),
        atomics: Some(true),
        nvlink: Some(true),
        cuda: Some(true),
    };
    pairs.map(peer).collect()
}

/// Returns the big server as seen in a container that was given the GPUs and no RDMA device.
pub fn big_container() -> (Fixture, GpuFacts) {
    let (tree, facts) = big_server();
    tree.file("/.dockerenv", "");
    limits(&tree, "65536", (1024, 1024));
    std::fs::remove_dir_all(tree.root().join("dev/infiniband")).unwrap();
    std::fs::remove_dir_all(tree.root().join("usr/lib/x86_64-linux-gnu")).unwrap();
    (tree, facts)
}

/// Returns a server with a two-port RoCE card of older software. Its second port is down, the first sends in the wrong
/// class with a small MTU, and congestion control is half on. One GPU on the other socket exports no dma-buf.
pub fn roce_server() -> (Fixture, GpuFacts) {
    let tree = Fixture::new();
    kernel(&tree, "5.15.0-112-generic", "GenuineIntel", "vmx", "intel_iommu=on");
    tree.file("/sys/devices/system/node/online", "0-1\n");
    process(&tree, tree.stranger(), "0", "8388608");
    limits(&tree, "8388608", (1024, 524_288));
    nvidia(&tree, "550.54.15", false, "");
    modules(&tree, &["ib_core", "ib_uverbs", "mlx5_core", "mlx5_ib"]);
    rdma_core(&tree, "39.0", true);
    tree.folder("/sys/class/iommu/dmar0");
    let (root, gpu_root) = ("pci0000:3a/0000:3a:00.0", "pci0000:ae/0000:ae:00.0");
    let on = |d: Device, node, group| Device { node: Some(node), group: Some(group), ..d };
    tree.pci(root, &on(port(4, Some(0x1d)), 0, 1)).pci(gpu_root, &on(port(4, Some(0x1d)), 1, 2));
    tree.pci(&format!("{gpu_root}/0000:af:00.0"), &on(h200_device(), 1, 3));
    let nic = |name, function, number| {
        let nic = Nic::connectx6dx(name).place(&format!("{root}/0000:3b:00.{function}"));
        nic.on(0, Some(4 + number)).node(number, Some(0o660))
    };
    let up = Link::roce("ens1f0np0", "192.168.0.2").mtu(1500);
    nic("mlx5_0", 0, 0).link(up).traffic_class("Global tclass=0\n").ecn(0xff, 0).node(0, Some(0o666)).build(&tree);
    nic("mlx5_1", 1, 1).link(Link::down("ens1f1np1")).traffic_class("").ecn(0xff, 0).build(&tree);
    for group in 1..6 {
        tree.group_type(group, "DMA-FQ");
    }
    let gpu = super::super::Gpu { dma_buf: Some(false), ..h200(0, "0000:af:00.0") };
    (tree, facts(vec![gpu]))
}

/// Returns a laptop with Soft-RoCE on its wireless interface.
pub fn soft_roce() -> (Fixture, GpuFacts) {
    let (tree, facts) = laptop();
    limits(&tree, "8388608", (1024, 1_048_576));
    modules(&tree, &["ib_core", "ib_uverbs", "rdma_rxe"]);
    rdma_core(&tree, "52.0", false);
    Nic::soft_roce("rxe0").link(Link::soft("wlp2s0", "10.0.0.7")).build(&tree);
    (tree, facts)
}

/// Returns a cloud's virtual machine with a GPU, and an RDMA device that is not mlx5.
pub fn cloud() -> (Fixture, GpuFacts) {
    let (tree, facts) = guest();
    kernel(&tree, "6.1.0-25-cloud-amd64", "GenuineIntel", "hypervisor", "console=ttyS0");
    limits(&tree, "unlimited", (65_535, 65_535));
    modules(&tree, &["ib_core", "ib_uverbs", "efa"]);
    rdma_core(&tree, "55.0", false);
    Nic::efa("efa_0").place("pci0000:00/0000:00:08.0").build(&tree);
    (tree, facts)
}
