//! Tests with fixtures of several machines: what is found, which remedies are given, and what is not claimed.

mod containers;
mod nics;
mod pcie;
mod rdma_machines;
pub(super) mod shapes;
mod shares;
mod text;

use super::{Area, Check, GpuFacts, Report, Require, State, Status, examine};
use crate::engine::EngineKind;
use crate::pci::fixture::{Config, Device, Fixture};
use crate::pci::{Distance, Sysfs};
use crate::remedy::Remedy;
use crate::storage::{Doorbell, LandingPath, QueueMemory};
use proptest::prelude::*;
use shapes::*;

const ALL: [Require; 3] = [Require::Gpu, Require::Nvme, Require::P2p];

fn look(shape: &(Fixture, GpuFacts)) -> Report {
    examine(&Sysfs::at(shape.0.root()), &shape.1, &ALL)
}

fn find<'a>(report: &'a Report, area: Area, subject: &str, name: &str) -> &'a Check {
    let found = report.checks.iter().find(|c| c.area == area && c.subject == subject && c.name == name);
    found.unwrap_or_else(|| panic!("no {area} {subject} {name} in {:#?}", report.checks))
}

/// Expects a check with a status, words in its detail, and words in its remedy (`None`: no remedy).
#[track_caller]
fn expect(report: &Report, (area, subject, name): (Area, &str, &str), status: Status, detail: &str, fix: Option<&str>) {
    let c = find(report, area, subject, name);
    assert_eq!(c.status, status, "{c:#?}");
    assert!(c.detail.contains(detail), "no `{detail}` in {c:#?}");
    match (fix, &c.fix) {
        (None, found) => assert_eq!(*found, None),
        (Some(words), found) => {
            assert!(found.as_ref().is_some_and(|f| f.to_string().contains(words)), "no `{words}` in {c:#?}")
        }
    }
}

fn possible(report: &Report) -> Vec<bool> {
    report.requirements.iter().map(|r| r.possible).collect()
}

use Area::{Gpu as GPU, Host, Nvme, Path, Pci};
use Status::{Fail, Ok as Fine, Skip, Warn};

#[test]
fn a_laptop_lacks_everything_and_fails_nothing() {
    let r = look(&laptop());
    assert!(r.checks.iter().all(|c| c.status != Fail), "{:#?}", r.checks);
    expect(&r, (GPU, "", "driver"), Skip, "no NVIDIA GPU on the PCI bus", None);
    expect(&r, (Nvme, "", "driver"), Skip, "no NVMe controller", None);
    expect(&r, (Host, "", "iommu"), Skip, "no NVMe controller that would need it", None);
    expect(&r, (Host, "", "memlock"), Warn, "8 MiB", Some("/etc/security/limits.d"));
    expect(&r, (Path, "", "soft"), Fine, "needs nothing", None);
    assert_eq!(
        (r.storage.device.as_str(), r.storage.engine, r.storage.doorbell),
        ("soft:mem", EngineKind::Cpu, Doorbell::CpuEngine)
    );
    assert_eq!(possible(&r), [false, false, false]);
    let unmet = r.unmet().unwrap();
    assert!(unmet.starts_with("gpu is required and not possible: gpu driver: no NVIDIA GPU"), "{unmet}");
}

#[test]
fn a_workstation_keeps_its_boot_drive_and_learns_what_its_card_lacks() {
    let r = look(&workstation());
    expect(&r, (GPU, "0", "driver"), Warn, "570.86.15, proprietary", Some("nvidia-open"));
    expect(&r, (GPU, "0", "kernels"), Fine, "sm_80 sm_90 sm_100, loads", None);
    expect(&r, (GPU, "0", "peer memory"), Warn, "GPUDirect RDMA no, dma-buf no", None);
    expect(&r, (GPU, "0", "ordering"), Warn, "landing stays bounce", None);
    expect(
        &r,
        (GPU, "0", "BAR1"),
        Warn,
        "256 MiB",
        Some("Resizable BAR in the firmware setup (this GPU offers 32 GiB)"),
    );
    expect(
        &r,
        (GPU, "0", "doorbell"),
        Fail,
        "PeerMappingOverride is 0",
        Some("options nvidia NVreg_RegistryDwords=\"PeerMappingOverride=1;\"  in /etc/modprobe.d/nvidia.conf"),
    );
    expect(&r, (Nvme, "0000:02:00.0", "driver"), Skip, "nvme; it is the controller of /", None);
    expect(&r, (Nvme, "0000:02:00.0", "rights"), Skip, "not bound", None);
    expect(&r, (Host, "", "iommu"), Fail, "off", Some("remove amd_iommu=off in GRUB_CMDLINE_LINUX"));
    expect(&r, (Pci, "gpu 0", "link"), Warn, "Gen1 x8, of Gen4 x16", Some("16 lanes"));
    expect(&r, (Pci, "gpu 0 0000:02:00.0", "distance"), Warn, "PHB", Some("below the GPU's switch"));
    expect(&r, (Pci, "gpu 0 0000:02:00.0", "acs"), Skip, "share no switch", None);
    assert!(r.checks.iter().all(|c| !matches!(c.fix, Some(Remedy::Bind { .. }))), "a boot drive is not offered");
    assert_eq!((r.storage.by, r.storage.engine, r.storage.landing), ("soft", EngineKind::Gpu, LandingPath::Bounce));
    assert_eq!(possible(&r), [true, false, false]);
}

#[test]
fn a_server_has_a_path_and_is_told_about_access_control() {
    let r = look(&server());
    for gpu in ["0", "1"] {
        expect(&r, (GPU, gpu, "driver"), Fine, "580.159.04, open kernel modules, CUDA 13.0", None);
        expect(&r, (GPU, gpu, "BAR1"), Fine, "256 GiB, covers all", None);
        expect(&r, (GPU, gpu, "doorbell"), Fine, "PeerMappingOverride is 1", None);
        expect(&r, (GPU, gpu, "peer remap"), Fine, "DmaRemapPeerMmio is 1", None);
    }
    expect(&r, (Nvme, "0000:04:00.0", "driver"), Fine, "vfio-pci", None);
    expect(&r, (Nvme, "0000:04:00.0", "group"), Fine, "IOMMU group 15, alone", None);
    expect(&r, (Nvme, "0000:04:00.0", "rights"), Fine, "/dev/vfio/15 can be opened", None);
    expect(
        &r,
        (Nvme, "0000:84:00.0", "driver"),
        Warn,
        "it is free: not mounted",
        Some("bind 0000:84:00.0 to vfio-pci"),
    );
    expect(&r, (Pci, "gpu 0 0000:04:00.0", "distance"), Fine, "PIX", None);
    expect(
        &r,
        (Pci, "gpu 0 0000:04:00.0", "acs"),
        Warn,
        "redirects at 0000:02:00.0 0000:02:01.0",
        Some(
            "only for mapping backends of kernel modules, with iommu=pt: pci=disable_acs_redir=0000:02:00.0;0000:02:01.0 on the kernel command line",
        ),
    );
    expect(&r, (Pci, "gpu 1 0000:84:00.0", "distance"), Fine, "PIX", None);
    expect(&r, (Host, "", "iommu"), Fine, "on (dmar0 dmar1), 12 groups, translating", None);
    expect(&r, (Host, "", "memlock"), Fine, "without limit", None);
    expect(&r, (Path, "", "gdrdrv"), Skip, "there is no /dev/gdrdrv", Some("modprobe gdrdrv"));
    expect(&r, (Path, "", "dma-buf-mmap"), Skip, "driver 580 does not let", None);
    expect(&r, (Path, "", "iommufd"), Skip, "this user may not open /dev/iommu", Some("chown $USER /dev/iommu"));
    expect(&r, (Path, "", "host"), Fine, "0000:04:00.0 maps pinned host memory through vfio group", None);
    assert_eq!(r.storage.device, "nvme:0000:04:00.0");
    assert_eq!(
        (r.storage.queues, r.storage.landing, r.storage.doorbell),
        (QueueMemory::Host, LandingPath::Bounce, Doorbell::Gpu)
    );
    assert_eq!(r.storage.why, ["controllers cannot access GPU memory: gdrdrv: there is no /dev/gdrdrv"]);
    let across = r.distances.iter().find(|p| p.gpu == "gpu 0" && p.peer == "0000:84:00.0").unwrap();
    assert_eq!(across.distance, Some(Distance::Sys));
    assert_eq!(possible(&r), [true, true, false]);
    let unmet =
        "p2p is required and not possible: path gdrdrv: there is no /dev/gdrdrv; install GDRCopy's kernel module";
    assert!(r.unmet().unwrap().contains(unmet), "{:?}", r.unmet());
}

#[test]
fn a_server_with_gdrdrv_is_ready_for_peers_and_claims_no_more() {
    let shape = server();
    shape.0.node("/dev/gdrdrv", 0o666);
    let r = look(&shape);
    expect(&r, (Path, "", "gdrdrv"), Skip, "ready: its requirements are met; it is tested", None);
    assert_eq!((r.storage.queues, r.storage.landing), (QueueMemory::Gpu, LandingPath::Direct));
    assert!(r.storage.why[0].contains("if its read-back succeeds"), "{:?}", r.storage.why);
    assert_eq!(possible(&r), [true, true, true]);
    assert_eq!(r.unmet(), None);
}

#[test]
fn what_was_tried_outweighs_what_files_suggest() {
    let mut shape = server();
    shape.0.node("/dev/gdrdrv", 0o666);
    let refused = super::paths::Tried {
        name: "gdrdrv".into(),
        works: false,
        reason: "/dev/gdrdrv: Operation not permitted".into(),
        next: "modprobe gdrdrv".into(),
    };
    shape.1.tried.push(refused);
    let r = look(&shape);
    expect(&r, (Path, "", "gdrdrv"), Skip, "closed: /dev/gdrdrv: Operation not permitted", Some("modprobe gdrdrv"));
    assert_eq!(possible(&r), [true, true, false]);
}

#[test]
fn a_guest_without_an_iommu_is_told_how_to_get_one() {
    let r = look(&guest());
    expect(&r, (GPU, "0", "vgpu"), Fine, "passed through", None);
    expect(&r, (GPU, "0", "doorbell"), Fine, "CAP_SYS_ADMIN", None);
    expect(&r, (GPU, "0", "peer remap"), Fine, "does not translate", None);
    expect(&r, (Host, "", "iommu"), Fail, "off", Some("-device intel-iommu,intremap=on,caching-mode=on"));
    expect(&r, (Host, "", "vfio"), Fail, "vfio-pci is not loaded", Some("modprobe vfio-pci"));
    expect(&r, (Nvme, "0000:00:07.0", "group"), Skip, "no IOMMU", None);
    expect(&r, (Nvme, "0000:00:07.0", "link"), Skip, "unknown: ", None);
    expect(&r, (Pci, "gpu 0 0000:00:07.0", "distance"), Warn, "the host's tree may differ", Some("nvidia-smi topo -m"));
    expect(&r, (Path, "", "iommufd"), Skip, "there is no /dev/iommu", Some("modprobe iommufd"));
    assert_eq!((r.storage.by, r.storage.landing, r.storage.doorbell), ("soft", LandingPath::Bounce, Doorbell::Gpu));
    assert_eq!(possible(&r), [true, false, false]);
    assert!(r.requirements[1].because.as_ref().unwrap().detail.starts_with("host iommu: off"), "{:?}", r.requirements);
}

#[test]
fn a_container_is_told_what_was_not_passed_in() {
    let r = look(&container());
    expect(&r, (Host, "", "vfio"), Fail, "this container has no /dev/vfio/vfio", Some("--device /dev/vfio/vfio"));
    expect(&r, (Host, "", "memlock"), Fail, "64 KiB", Some("--ulimit memlock=-1"));
    expect(
        &r,
        (Host, "", "container"),
        Warn,
        "docker, memory limited to 8 GiB of 62.5 GiB, /dev/vfio/15, /dev/vfio/vfio not passed in",
        Some("--device /dev/vfio/15 --device /dev/vfio/vfio"),
    );
    expect(&r, (Nvme, "0000:04:00.0", "rights"), Fail, "has no /dev/vfio/15", Some("--device /dev/vfio/15"));
    expect(
        &r,
        (Nvme, "0000:84:00.0", "driver"),
        Warn,
        "cannot tell whether the host uses it",
        Some("on the host: find out whether"),
    );
    assert_eq!(possible(&r), [true, false, false]);
    assert!(r.unmet().unwrap().contains("--device /dev/vfio/15"));
}

#[test]
fn libnvm_wants_what_vfio_cannot_use() {
    let r = look(&libnvm());
    expect(&r, (Host, "", "iommu"), Fail, "off, as BaM's libnvm", Some("remove intel_iommu=off"));
    expect(&r, (Nvme, "0000:1b:00.0", "driver"), Warn, "BaM's module", Some("bind 0000:1b:00.0 to vfio-pci"));
    expect(&r, (Nvme, "0000:1b:00.0", "rights"), Skip, "not bound", None);
    expect(&r, (Pci, "gpu 0 0000:1b:00.0", "acs"), Fine, "off at every port", None);
    expect(&r, (Path, "", "libnvm"), Skip, "closed: it returns bus addresses", Some("unsafe-no-iommu"));
    assert_eq!((r.storage.by, r.storage.queues, r.storage.landing), ("soft", QueueMemory::Host, LandingPath::Bounce));
    assert_eq!(possible(&r), [true, false, false]);
}

#[test]
fn groups_are_handed_out_whole() {
    let shape = server();
    let neighbour = Device { driver: Some("ixgbe"), group: Some(15), class: 0x02_00_00, ..Device::default() };
    shape.0.pci("pci0000:00/0000:00:1f.0", &neighbour);
    let r = look(&shape);
    let (detail, fix) = ("also has 0000:00:1f.0 (ixgbe)", Some("bind 0000:00:1f.0 to vfio-pci too"));
    expect(&r, (Nvme, "0000:04:00.0", "group"), Fail, detail, fix);
    assert_eq!(possible(&r), [true, false, false]);
    assert!(r.unmet().unwrap().contains("group 15 also has"), "{:?}", r.unmet());
}

#[test]
fn a_group_that_belongs_to_somebody_else_is_refused_by_name() {
    let shape = server();
    shape.0.node("/dev/vfio/15", 0o600);
    let r = look(&shape);
    expect(&r, (Nvme, "0000:04:00.0", "rights"), Fail, "may not open /dev/vfio/15", Some("chown $USER /dev/vfio/15"));
    assert_eq!(possible(&r), [true, false, false]);
}

#[test]
fn device_files_do_without_the_group() {
    let shape = server();
    shape.0.node("/dev/vfio/15", 0o600).node("/dev/iommu", 0o666).node("/dev/vfio/devices/vfio3", 0o666);
    shape.0.folder("/sys/bus/pci/devices/0000:04:00.0/vfio-dev/vfio3");
    let r = look(&shape);
    expect(&r, (Nvme, "0000:04:00.0", "rights"), Fine, "/dev/vfio/devices/vfio3 and /dev/iommu", None);
    assert_eq!((r.storage.by, possible(&r)), ("vfio cdev", vec![true, true, false]));
    expect(&r, (Path, "", "iommufd"), Skip, "Linux 6.14 maps no dma-bufs", Some("6.19"));

    // gdrdrv's mapping needs the group, which this user may not open.
    shape.0.node("/dev/gdrdrv", 0o666);
    let r = look(&shape);
    expect(
        &r,
        (Path, "", "gdrdrv"),
        Skip,
        "closed: this user may not open /dev/vfio/15",
        Some("chown $USER /dev/vfio/15"),
    );
    assert_eq!((r.storage.by, r.storage.queues), ("vfio cdev", QueueMemory::Host));

    // With access to the group, a volume is opened through the group.
    shape.0.node("/dev/vfio/15", 0o666);
    let r = look(&shape);
    expect(&r, (Path, "", "gdrdrv"), Skip, "ready", None);
    expect(&r, (Nvme, "0000:04:00.0", "rights"), Fine, "/dev/vfio/15 can be opened", None);
    assert_eq!(
        (r.storage.by, r.storage.queues, r.storage.landing),
        ("vfio group", QueueMemory::Gpu, LandingPath::Direct)
    );
    std::fs::remove_file(shape.0.root().join("dev/gdrdrv")).unwrap();
    assert_eq!(look(&shape).storage.by, "vfio cdev");
}

#[test]
fn memory_encryption_of_amd_is_warned_about() {
    let tree = Fixture::new();
    let with = |flags: &str, arguments: &str| {
        kernel(&tree, "6.14.0", "AuthenticAMD", flags, arguments);
        examine(&Sysfs::at(tree.root()), &GpuFacts::none("no CUDA driver"), &[])
    };
    let warned = |r: &Report| r.checks.iter().any(|c| c.name == "encryption");
    assert!(!warned(&with("svm sme", "quiet")) && !warned(&with("svm", "mem_encrypt=on")));
    let r = with("svm sme", "mem_encrypt=on");
    expect(&r, (Host, "", "encryption"), Warn, "mem_encrypt=on", Some("remove mem_encrypt=on"));
}

#[test]
fn a_gpu_that_does_not_keep_writes_in_order_gets_no_direct_landing() {
    let (tree, mut facts) = server();
    tree.node("/dev/gdrdrv", 0o666);
    facts.gpus.as_mut().unwrap()[0].writes_ordering = Some(crate::cuda::WritesOrdering::None);
    let r = look(&(tree, facts));
    assert_eq!((r.storage.queues, r.storage.landing), (QueueMemory::Gpu, LandingPath::Bounce));
}

#[test]
fn vfio_without_an_iommu_is_refused() {
    let (tree, facts) = server();
    for group in 10..26 {
        let _ = std::fs::remove_dir_all(tree.root().join(format!("sys/kernel/iommu_groups/{group}")));
    }
    tree.file("/sys/kernel/iommu_groups/15/name", "vfio-noiommu\n");
    let r = look(&(tree, facts));
    expect(&r, (Nvme, "0000:04:00.0", "group"), Fail, "overwrite any memory", Some("unsafe-no-iommu"));
    expect(&r, (Host, "", "iommu"), Fail, "off", Some("intel_iommu=on"));
    assert!(!possible(&r)[1]);
}

#[test]
fn access_control_that_only_root_may_read_is_unknown() {
    let (tree, facts) = libnvm();
    let hidden = Config { header_only: true, ..Config::default() };
    tree.file("/sys/bus/pci/devices/0000:19:00.0/config", hidden.bytes());
    let r = look(&(tree, facts));
    expect(
        &r,
        (Pci, "gpu 0 0000:1b:00.0", "acs"),
        Skip,
        "unknown: the kernel shows the registers of 0000:19:00.0 to root",
        None,
    );
}

#[test]
fn a_gpu_that_cuda_does_not_show_is_named() {
    let (tree, _) = guest();
    let facts = GpuFacts::none("no CUDA driver: libcuda.so.1 not found");
    let with = |r: &Report| find(r, GPU, "0000:00:06.0", "driver").clone();
    let r = look(&(tree, facts.clone()));
    assert!(with(&r).detail.contains("580.159.04 is loaded, but: no CUDA driver"), "{:?}", with(&r));
    expect(&r, (GPU, "0000:00:06.0", "BAR1"), Fine, "256 GiB", None);

    let bare = Fixture::new();
    kernel(&bare, "6.12.9", "GenuineIntel", "", "");
    bare.pci("pci0000:00/0000:00:06.0", &Device { driver: None, ..h200_device() });
    let r = look(&(bare, facts.clone()));
    expect(&r, (GPU, "0000:00:06.0", "driver"), Fail, "no NVIDIA kernel module", Some("nvidia-open"));

    let passed_through = Fixture::new();
    passed_through.pci("pci0000:00/0000:00:06.0", &Device { driver: Some("vfio-pci"), ..h200_device() });
    let r = look(&(passed_through, facts));
    expect(&r, (GPU, "0000:00:06.0", "driver"), Fail, "held by vfio-pci", Some("unbind"));
}

#[test]
fn instances_shares_and_builds_without_code_are_said() {
    let (tree, _) = server();
    let gpu = super::Gpu {
        mig: Some(true),
        virtualization: Some(super::gpu_facts::Virtualization::Vgpu),
        generation: 75,
        kernels: Some(Err("no code".into())),
        ..h200(0, "0000:03:00.0")
    };
    let r = look(&(tree, facts(vec![gpu])));
    expect(&r, (GPU, "0", "mig"), Warn, "on: a process uses one instance", Some("nvidia-smi -i 0000:03:00.0 -mig 0"));
    expect(&r, (GPU, "0", "vgpu"), Warn, "a share", Some("whole GPU"));
    expect(&r, (GPU, "0", "kernels"), Fail, "no code for sm_75", Some("WARPBELL_CUDA_ARCHS=75"));
    assert!(!possible(&r)[0]);
    let (tree, mut none) = server();
    none.image_archs.clear();
    expect(&look(&(tree, none)), (GPU, "0", "kernels"), Fail, "no GPU image", Some("CUDA_HOME"));
}

#[test]
fn a_drive_whose_use_is_not_told_is_not_called_free() {
    let (tree, facts) = guest();
    std::fs::remove_file(tree.root().join("proc/self/mountinfo")).unwrap();
    let r = look(&(tree, facts));
    expect(&r, (Nvme, "0000:00:07.0", "driver"), Skip, "unknown: nvme; /proc/self/mountinfo", None);
    let (tree, facts) = guest();
    std::fs::remove_file(tree.root().join("dev/nvme0n1")).unwrap();
    let r = look(&(tree, facts));
    expect(
        &r,
        (Nvme, "0000:00:07.0", "driver"),
        Skip,
        "unknown: nvme; its contents cannot be read (/dev/nvme0n1: No such file",
        None,
    );
}

#[test]
fn a_sandbox_that_hides_the_modules_files_is_unknown() {
    let (tree, _) = laptop();
    let r = look(&(tree, facts(vec![h200(0, "0000:03:00.0")])));
    for name in ["driver", "doorbell"] {
        expect(&r, (GPU, "0", name), Skip, "unknown: ", None);
    }
}

#[test]
fn an_old_driver_on_a_new_kernel_is_named_as_the_cause() {
    let (tree, facts) = server();
    nvidia(&tree, "550.54.15", true, "PeerMappingOverride=1;");
    let r = look(&(tree, facts));
    expect(&r, (GPU, "0", "doorbell"), Fail, "Linux 6.14 no longer has", Some("570.133.07"));
}

#[test]
fn a_switched_off_remap_and_a_device_behind_vmd_are_said() {
    let (tree, facts) = server();
    tree.file("/proc/driver/nvidia/params", "DmaRemapPeerMmio: 0\nRegistryDwords: \"\"\n");
    tree.file("/sys/bus/pci/devices/10000:e1:00.0/class", "0x010802\n");
    let r = look(&(tree, facts));
    expect(&r, (GPU, "0", "peer remap"), Fail, "DmaRemapPeerMmio is 0", Some("NVreg_DmaRemapPeerMmio=1"));
    expect(&r, (Nvme, "10000:e1:00.0", "driver"), Warn, "volume management", Some("VMD"));
}

/// Checks every remedy, status and claim for a tree without files, and for files with random content.
#[test]
fn nothing_is_guessed_from_nothing() {
    let facts = GpuFacts::none("no CUDA driver: libcuda.so.1 not found");
    let empty = Fixture::new();
    let garbled = server();
    scramble(garbled.0.root());
    let garbled_nics = rdma_machines::roce_server();
    scramble(garbled_nics.0.root());
    let nics = look(&(garbled_nics.0, facts.clone()));
    assert!(nics.nics.iter().all(|n| n.active_ports().next().is_none()) && !nics.to_string().is_empty());
    assert_eq!((nics.network.mlx5_ports, nics.network.verbs_ports), (0, 0));
    let nothing = look(&(empty, facts.clone()));
    expect(&nothing, (Host, "", "iommu"), Skip, "unknown", None);
    expect(&nothing, (Pci, "", "tree"), Skip, "unknown", None);
    for r in [nothing, look(&(garbled.0, facts))] {
        for c in r.checks.iter().filter(|c| c.area == Host && !["container", "vfio", "iommu"].contains(&c.name)) {
            assert!(c.status == Skip, "{c:#?}");
        }
        assert_eq!(r.storage.by, "soft");
        assert_eq!(possible(&r), [false, false, false]);
        assert!(r.backends.iter().all(|r| r.state != State::Ready));
        assert!(!r.to_string().is_empty() && serde_json::to_string(&r).is_ok());
    }
}

/// Overwrites every file with bytes that are not text. Links stay.
fn scramble(folder: &std::path::Path) {
    files(folder, &mut |file| std::fs::write(file, [0xff, 0x00, 0xc3, 0x28, b'\n', b':', b'-']).unwrap());
}

fn files(folder: &std::path::Path, each: &mut impl FnMut(&std::path::Path)) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            files(&entry.path(), each);
        } else if kind.is_file() {
            each(&entry.path());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8, failure_persistence: None, ..ProptestConfig::default() })]

    /// Truncates files or changes a byte, as a kernel of another version might.
    #[test]
    fn no_damage_to_a_tree_panics(damage in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>(), any::<u8>()), 8)) {
        let shape = if damage[0].0 { server() } else { rdma_machines::roce_server() };
        let mut n = 0;
        files(shape.0.root(), &mut |file| {
            let (cut, at, byte) = damage[n % damage.len()];
            n += 1;
            let mut bytes = std::fs::read(file).unwrap();
            if bytes.is_empty() {
                return;
            }
            let at = at.index(bytes.len());
            if cut { bytes.truncate(at) } else { bytes[at] = byte }
            std::fs::write(file, bytes).unwrap();
        });
        let r = look(&shape);
        prop_assert!(!r.to_string().is_empty() && serde_json::to_string(&r).is_ok());
    }
}

#[test]
fn every_check_is_explained() {
    let page = include_str!("../../../docs/doctor.md");
    let heading = |c: &Check| format!("### {} {}", c.area, c.name);
    let others = [laptop(), workstation(), server(), guest(), container(), libnvm()];
    let with_nics =
        [rdma_machines::big_server(), rdma_machines::roce_server(), rdma_machines::soft_roce(), rdma_machines::cloud()];
    for shape in others.into_iter().chain(with_nics) {
        for c in look(&shape).checks {
            assert!(page.lines().any(|l| l == heading(&c)), "docs/doctor.md has no `{}`", heading(&c));
            assert!(c.docs.starts_with("docs/doctor.md#"));
        }
    }
}

#[test]
fn json_keys_are_stable() {
    let json = serde_json::to_value(look(&server())).unwrap();
    let keys = |v: &serde_json::Value| v.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(
        keys(&json),
        [
            "backends",
            "checks",
            "distances",
            "gpu_peers",
            "gpus",
            "host",
            "network",
            "nic_distances",
            "nics",
            "no_gpu",
            "nvme",
            "requirements",
            "storage",
            "verbs_library",
            "version"
        ]
    );
    assert_eq!(keys(&json["checks"][0]), ["area", "detail", "docs", "fix", "name", "status", "subject"]);
    assert_eq!(json["distances"][0]["distance"], "PIX");
    assert_eq!(json["nvme"][0]["reach"], serde_json::json!(["group"]));
    assert_eq!(json["nvme"][1]["blocked"], "held by nvme, not by vfio-pci");
    assert_eq!(json["gpus"][0]["writes_ordering"], "owner");
    assert_eq!(json["requirements"][2]["possible"], false);

    let json = serde_json::to_value(look(&rdma_machines::roce_server())).unwrap();
    let nic = &json["nics"][0];
    assert_eq!((&nic["name"], &nic["bdf"], &nic["vendor"]), (&"mlx5_0".into(), &"0000:3b:00.0".into(), &0x15b3.into()));
    let port = &nic["ports"][0];
    assert_eq!(
        (&port["state"], &port["physical"], &port["link_layer"]),
        (&"ACTIVE".into(), &"LinkUp".into(), &"Ethernet".into())
    );
    assert_eq!((&port["gid"]["index"], &port["gid"]["gid"]), (&3.into(), &"::ffff:192.168.0.2".into()));
    assert_eq!((&port["gids"][0]["kind"], &port["gids"][3]["kind"]), (&"IB/RoCE v1".into(), &"RoCE v2".into()));
    assert_eq!(port["traffic_class"], serde_json::json!({"forced": 0}));
    assert_eq!(port["congestion_control"]["notifies"], serde_json::json!([0, 1, 2, 3, 4, 5, 6, 7]));
    assert_eq!(json["nics"][1]["ports"][0]["traffic_class"], "unset");
    assert_eq!(
        keys(&json["network"]),
        ["mlx5_ports", "peer_gpus", "peer_pairs", "shared_memory", "verbs_ports", "why"]
    );
    assert_eq!(keys(&json["nic_distances"][0]), ["common_bridge", "distance", "nic", "nic_bdf", "peer"]);
    let json = serde_json::to_value(look(&rdma_machines::big_server())).unwrap();
    assert_eq!(
        json["gpu_peers"][0],
        serde_json::json!({"gpu": 0, "peer": 1, "access": "yes", "atomics": true, "nvlink": true, "cuda": true})
    );
}
