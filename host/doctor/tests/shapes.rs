//! Fixtures of machines.

use crate::cuda::WritesOrdering;
use crate::doctor::gpu_facts::{ComputeMode, Gpu, GpuFacts, GpuUse, Virtualization};
use crate::pci::fixture::{Config, Device, Fixture};

pub const GIB: u64 = 1 << 30;
/// No other process.
pub const ALONE: GpuUse = GpuUse { others: 0, mps_clients: 0, mode: ComputeMode::Default };

/// Adds a user's process: no capabilities, 8 MiB of locked memory.
pub fn user(tree: &Fixture) {
    let uid = tree.stranger();
    process(tree, uid, "0000000000000000", "8388608");
}

/// Adds root's process.
pub fn root(tree: &Fixture) {
    process(tree, 0, "000001ffffffffff", "unlimited");
}

pub fn process(tree: &Fixture, uid: u32, capabilities: &str, memlock: &str) {
    tree.file(
        "/proc/self/status",
        format!("Name:\twarpbell\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nGid:\t{uid}\t{uid}\t{uid}\t{uid}\nGroups:\t \nCapEff:\t{capabilities}\n"),
    );
    tree.file("/proc/self/uid_map", "         0          0 4294967295\n");
    tree.file(
        "/proc/self/limits",
        format!("Limit                     Soft Limit           Hard Limit           Units     \nMax locked memory         {memlock}              {memlock}              bytes     \nMax open files            1024                 524288               files     \n"),
    );
}

/// Adds kernel, processor and command line.
pub fn kernel(tree: &Fixture, release: &str, vendor: &str, flags: &str, arguments: &str) {
    tree.file("/proc/sys/kernel/osrelease", format!("{release}\n"));
    tree.file("/proc/cpuinfo", format!("processor\t: 0\nvendor_id\t: {vendor}\nflags\t\t: fpu {flags}\n"));
    tree.file("/proc/cmdline", format!("BOOT_IMAGE=/vmlinuz root=/dev/sda2 {arguments}\n"));
    tree.file("/proc/meminfo", "MemTotal:       65536000 kB\n");
    tree.file("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "0\n");
    tree.file("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "0\n");
    tree.file("/sys/kernel/security/lockdown", "[none] integrity confidentiality\n");
    tree.file("/sys/devices/system/node/online", "0\n");
}

/// Adds NVIDIA's kernel module.
pub fn nvidia(tree: &Fixture, version: &str, open: bool, registry: &str) {
    let kind = if open { "NVIDIA UNIX Open Kernel Module for x86_64" } else { "NVIDIA UNIX x86_64 Kernel Module" };
    tree.file("/proc/driver/nvidia/version", format!("NVRM version: {kind}  {version}  Release Build\n"));
    tree.file(
        "/proc/driver/nvidia/params",
        format!("DmaRemapPeerMmio: 1\nGrdmaPciTopoCheckOverride: 0\nRegistryDwords: \"{registry}\"\n"),
    );
    for node in ["nvidiactl", "nvidia-uvm", "nvidia0"] {
        tree.node(&format!("/dev/{node}"), 0o666);
    }
}

pub fn port(kind: u8, acs: Option<u16>) -> Device {
    Device {
        id: (0x1000, 0xc030),
        class: 0x06_04_00,
        driver: Some("pcieport"),
        node: Some(0),
        config: Some(Config { port: kind, acs: acs.map(|c| (0x5f, c)), ..Config::default() }),
        ..Device::default()
    }
}

pub fn nvme() -> Device {
    Device {
        id: (0x144d, 0xa824),
        class: 0x01_08_02,
        driver: Some("nvme"),
        node: Some(0),
        link: Some(("16.0", 4, "16.0", 4)),
        bars: &[32 << 10],
        config: Some(Config::default()),
        ..Device::default()
    }
}

/// Adds a controller that the kernel's own driver holds, with a namespace whose partitions are mounted at `mounts`.
pub fn kernel_drive(tree: &Fixture, place: &str, device: &Device, name: &str, mounts: &[&str]) {
    tree.pci(place, device);
    let bdf = place.rsplit('/').next().unwrap();
    let at = format!("/sys/devices/{place}/nvme/{name}");
    tree.file(&format!("{at}/model"), "SAMSUNG MZQL23T8HCLS            \n")
        .file(&format!("{at}/serial"), "S64HNS0T000001\n");
    tree.folder(&format!("{at}/{name}n1"));
    let block = |name: &str, number: u32| {
        tree.file(&format!("/sys/class/block/{name}/dev"), format!("259:{number}\n"));
        tree.file(&format!("/sys/class/block/{name}/size"), "256\n");
        tree.file(&format!("/dev/{name}"), vec![0; 128 << 10]);
    };
    block(&format!("{name}n1"), 0);
    let mut table = String::from("25 1 0:21 / /proc rw - proc proc rw\n");
    for (i, point) in mounts.iter().enumerate() {
        let part = format!("{name}n1p{}", i + 1);
        tree.file(&format!("/sys/class/block/{name}n1/{part}/partition"), format!("{}\n", i + 1));
        block(&part, i as u32 + 1);
        table += &format!("{} 1 259:{} / {point} rw shared:1 - ext4 /dev/{part} rw\n", 30 + i, i + 1);
    }
    tree.file("/proc/self/mountinfo", table);
    assert!(bdf.parse::<crate::pci::Bdf>().is_ok());
}

/// Returns the driver's facts about an H200.
pub fn h200(ordinal: usize, bdf: &str) -> Gpu {
    Gpu {
        ordinal,
        name: "NVIDIA H200".into(),
        bdf: Some(bdf.parse().unwrap()),
        generation: 90,
        cuda_version: (13, 0),
        memory_bytes: Some(140 * GIB),
        bar1_bytes: Some(256 * GIB),
        writes_ordering: Some(WritesOrdering::Owner),
        dma_buf: Some(true),
        gpu_direct_rdma: Some(true),
        host_register: Some(true),
        mig: Some(false),
        virtualization: Some(Virtualization::Bare),
        usage: Some(ALONE),
        kernels: Some(Ok(())),
    }
}

pub fn facts(gpus: Vec<Gpu>) -> GpuFacts {
    GpuFacts { gpus: Ok(gpus), image_archs: vec![80, 90, 100], ..GpuFacts::none("") }
}

pub fn h200_device() -> Device {
    Device {
        id: (0x10de, 0x2335),
        class: 0x03_02_00,
        driver: Some("nvidia"),
        node: Some(0),
        link: Some(("32.0", 16, "32.0", 16)),
        bars: &[16 << 20, 0, 256 << 30, 0, 32 << 20],
        config: Some(Config::default()),
        ..Device::default()
    }
}

/// Returns a laptop without a GPU of NVIDIA's and without NVMe.
pub fn laptop() -> (Fixture, GpuFacts) {
    let tree = Fixture::new();
    kernel(&tree, "6.12.9-amd64", "GenuineIntel", "vmx", "quiet");
    user(&tree);
    tree.pci("pci0000:00/0000:00:02.0", &Device { id: (0x8086, 0x46a6), class: 0x03_00_00, ..Device::default() });
    (tree, GpuFacts::none("no CUDA driver: libcuda.so.1 not found"))
}

/// Returns a workstation: a consumer card with a small BAR1 and proprietary modules, one drive, which it boots from,
/// IOMMU off.
pub fn workstation() -> (Fixture, GpuFacts) {
    let tree = Fixture::new();
    kernel(&tree, "6.8.0-45-generic", "AuthenticAMD", "svm", "amd_iommu=off quiet");
    user(&tree);
    nvidia(&tree, "570.86.15", false, "");
    let card = Device {
        id: (0x10de, 0x2484),
        class: 0x03_00_00,
        driver: Some("nvidia"),
        link: Some(("2.5", 8, "16.0", 16)),
        bars: &[16 << 20, 256 << 20, 0, 32 << 20],
        config: Some(Config { resizable: Some((1, 0xff00, 8)), ..Config::default() }),
        ..Device::default()
    };
    tree.pci("pci0000:00/0000:00:01.1", &port(4, None)).pci("pci0000:00/0000:00:01.1/0000:01:00.0", &card);
    tree.pci("pci0000:00/0000:00:02.1", &port(4, None));
    kernel_drive(&tree, "pci0000:00/0000:00:02.1/0000:02:00.0", &nvme(), "nvme0", &["/boot", "/"]);
    let gpu = Gpu {
        name: "NVIDIA GeForce RTX 3070".into(),
        generation: 86,
        memory_bytes: Some(8 * GIB),
        bar1_bytes: Some(256 << 20),
        writes_ordering: Some(WritesOrdering::None),
        dma_buf: Some(false),
        gpu_direct_rdma: Some(false),
        virtualization: Some(Virtualization::Bare),
        usage: Some(ALONE),
        ..h200(0, "0000:01:00.0")
    };
    (tree, facts(vec![gpu]))
}

/// Returns a server: two H200s, each below a switch with a drive, open modules, IOMMU on, access control on. The first
/// drive is bound to vfio-pci and its file belongs to this user; the second is free.
pub fn server() -> (Fixture, GpuFacts) {
    let tree = Fixture::new();
    kernel(&tree, "6.14.0-27-generic", "GenuineIntel", "vmx", "intel_iommu=on");
    tree.file("/sys/devices/system/node/online", "0-1\n");
    process(&tree, tree.stranger(), "0", "unlimited");
    nvidia(&tree, "580.159.04", true, "PeerMappingOverride=1;");
    tree.folder("/sys/class/iommu/dmar0").folder("/sys/class/iommu/dmar1");
    for (bus, node, first) in [("00", 0, 10), ("80", 1, 20)] {
        let on = |d: Device, group: u32| Device { node: Some(node), group: Some(group), ..d };
        // Bus numbers: root port, upstream port, two downstream ports, the GPU and the drive.
        let base = u32::from_str_radix(bus, 16).unwrap();
        let b = |n: u32| format!("0000:{:02x}:00.0", base + n);
        let root = format!("pci0000:{bus}/0000:{bus}:01.0");
        let up = format!("{root}/{}", b(1));
        let (left, right) = (format!("{up}/{}", b(2)), format!("{up}/0000:{:02x}:01.0", base + 2));
        tree.pci(&root, &on(port(4, Some(0x1d)), first)).pci(&up, &on(port(5, None), first + 1));
        tree.pci(&left, &on(port(6, Some(0x1d)), first + 2)).pci(&right, &on(port(6, Some(0x1d)), first + 3));
        tree.pci(&format!("{left}/{}", b(3)), &on(h200_device(), first + 4));
        let drive = format!("{right}/{}", b(4));
        if node == 0 {
            tree.pci(&drive, &Device { driver: Some("vfio-pci"), ..on(nvme(), first + 5) });
        } else {
            kernel_drive(&tree, &drive, &on(nvme(), first + 5), "nvme1", &[]);
        }
        for group in first..first + 6 {
            tree.group_type(group, "DMA-FQ");
        }
    }
    tree.node("/dev/vfio/vfio", 0o666).node("/dev/vfio/15", 0o666).node("/dev/iommu", 0o600);
    (tree, facts(vec![h200(0, "0000:03:00.0"), h200(1, "0000:83:00.0")]))
}

/// Returns a virtual machine with a GPU passed through, no IOMMU, a drive of the hypervisor's, user root, closed
/// parameters.
pub fn guest() -> (Fixture, GpuFacts) {
    let tree = Fixture::new();
    kernel(&tree, "5.15.0-100-generic", "GenuineIntel", "hypervisor", "console=ttyS0");
    root(&tree);
    nvidia(&tree, "580.159.04", true, "");
    tree.pci("pci0000:00/0000:00:06.0", &Device { link: None, node: None, ..h200_device() });
    kernel_drive(
        &tree,
        "pci0000:00/0000:00:07.0",
        &Device { link: None, node: None, id: (0x1b36, 0x10), ..nvme() },
        "nvme0",
        &[],
    );
    let gpu = Gpu { virtualization: Some(Virtualization::Passthrough), ..h200(0, "0000:00:06.0") };
    (tree, facts(vec![gpu]))
}

/// Returns a container on such a server: the drive is bound, its device file was not passed in, memory and locked
/// memory are limited.
pub fn container() -> (Fixture, GpuFacts) {
    let (tree, facts) = server();
    tree.file("/.dockerenv", "").file("/sys/fs/cgroup/memory.max", "8589934592\n");
    process(&tree, tree.stranger(), "0", "65536");
    std::fs::remove_dir_all(tree.root().join("dev/vfio")).unwrap();
    std::fs::remove_file(tree.root().join("dev/iommu")).unwrap();
    (tree, facts)
}

/// Returns a machine set up as for BaM: no IOMMU, switches without access control, the drive held by libnvm, user root.
pub fn libnvm() -> (Fixture, GpuFacts) {
    let tree = Fixture::new();
    kernel(&tree, "5.8.0-63-generic", "GenuineIntel", "vmx", "intel_iommu=off");
    root(&tree);
    nvidia(&tree, "550.54.15", true, "");
    let root_port = "pci0000:17/0000:17:00.0";
    tree.pci(root_port, &port(4, None)).pci(&format!("{root_port}/0000:18:00.0"), &port(5, None));
    let (left, right) =
        (format!("{root_port}/0000:18:00.0/0000:19:00.0"), format!("{root_port}/0000:18:00.0/0000:19:01.0"));
    tree.pci(&left, &port(6, Some(0))).pci(&right, &port(6, Some(0)));
    tree.pci(&format!("{left}/0000:1a:00.0"), &h200_device());
    tree.pci(&format!("{right}/0000:1b:00.0"), &Device { driver: Some("libnvm helper"), ..nvme() });
    tree.node("/dev/libnvm0", 0o600);
    (tree, facts(vec![h200(0, "0000:1a:00.0")]))
}
