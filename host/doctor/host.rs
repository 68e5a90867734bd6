//! Checks of the kernel, and of the rights and limits of this process.

use super::check::{Area, Check, Checks};
use super::machine::{IommuState, KUBERNETES, Machine, Vendor};
use super::nvme::{Controller, libnvm_nodes};
use super::process::{Access, Limit, capability};
use crate::pci::Sysfs;
use crate::rdma::RdmaDevice;
use crate::units::Bytes;

/// Bytes of locked memory that a volume of usual size needs for queues and bounce slots: 8 pairs of 1024 entries with 4
/// KiB each take 33 MiB.
const MEMLOCK_USUAL: u64 = 64 << 20;
/// Bytes of locked memory below which not even an admin queue pair and one small I/O queue pair with its slots fit.
const MEMLOCK_LEAST: u64 = 1 << 20;

/// First kernel with device files for VFIO.
pub(super) const KERNEL_CDEV: (u32, u32) = (6, 6);
/// First kernel whose iommufd takes dma-bufs of VFIO devices.
pub(super) const KERNEL_DMABUF: (u32, u32) = (6, 19);

const OFF: [&str; 5] = ["intel_iommu=off", "amd_iommu=off", "iommu=off", "iommu.off", "noiommu"];
pub(super) const GRUB: &str = "in GRUB_CMDLINE_LINUX of /etc/default/grub, then update-grub and reboot";

pub(super) fn check(
    sysfs: &Sysfs,
    machine: &Machine,
    controllers: &[Controller],
    nics: &[RdmaDevice],
    all: &mut Vec<Check>,
) {
    let mut c = Checks::of(Area::Host, "", all);
    kernel(machine, &mut c);
    iommu(sysfs, machine, controllers, &mut c);
    vfio(sysfs, machine, controllers, &mut c);
    memlock(machine, !nics.is_empty(), &mut c);
    capabilities(machine, &mut c);
    encryption(sysfs, &mut c);
    huge_pages(machine, &mut c);
    lockdown(machine, &mut c);
    container(sysfs, machine, controllers, nics, &mut c);
}

fn kernel(machine: &Machine, c: &mut Checks<'_>) {
    let Some(version) = machine.kernel_version() else {
        return c.unknown("kernel", "/proc/sys/kernel/osrelease has no version");
    };
    let cdev = if version >= KERNEL_CDEV { "device files with iommufd possible" } else { "VFIO by group only" };
    let dmabuf = if version >= KERNEL_DMABUF { "iommufd takes dma-bufs of VFIO devices" } else { "dma-buf needs 6.19" };
    c.ok("kernel", format!("{}.{}: {cdev}, {dmabuf}", version.0, version.1));
}

fn iommu(sysfs: &Sysfs, machine: &Machine, controllers: &[Controller], c: &mut Checks<'_>) {
    match machine.iommu {
        IommuState::Unknown => c.unknown("iommu", "there is no /sys/kernel"),
        IommuState::On => {
            let names =
                if machine.iommus.is_empty() { String::new() } else { format!(" ({})", machine.iommus.join(" ")) };
            let n = machine.groups.len();
            let kinds = |wanted| machine.groups.values().filter(|g| g.translates() == Some(wanted)).count();
            let mode = match (kinds(true), kinds(false)) {
                (0, 0) => "mode of the groups unknown",
                (0, _) => "pass-through for the kernel's own drivers; VFIO translates regardless",
                (_, 0) => "translating",
                _ => "translating for some groups, pass-through for others",
            };
            c.ok("iommu", format!("on{names}, {n} groups, {mode}"));
        }
        IommuState::Off => {
            let fix = switch_on(machine);
            if controllers.is_empty() {
                return c.skip("iommu", "off; there is no NVMe controller that would need it");
            }
            let libnvm = if libnvm_nodes(sysfs).is_empty() { "" } else { ", as BaM's libnvm module requires" };
            c.fail("iommu", format!("off{libnvm}: VFIO has no address translation to work with"), fix);
        }
    }
}

/// Returns the steps that switch an IOMMU on.
fn switch_on(machine: &Machine) -> String {
    if let Some(argument) = machine.argument(&OFF) {
        return format!("remove {argument} {GRUB}");
    }
    if machine.is_virtual == Some(true) {
        return "give the virtual machine an IOMMU (QEMU: -machine q35,kernel-irqchip=split -device intel-iommu,intremap=on,caching-mode=on) and boot it with intel_iommu=on".to_owned();
    }
    match machine.vendor {
        Vendor::Intel => format!("enable VT-d in the firmware setup, and add intel_iommu=on {GRUB}"),
        Vendor::Amd => "enable the IOMMU (AMD-Vi) in the firmware setup and reboot".to_owned(),
        Vendor::Other => "enable the IOMMU (SMMU) in the firmware setup and reboot".to_owned(),
    }
}

fn vfio(sysfs: &Sysfs, machine: &Machine, controllers: &[Controller], c: &mut Checks<'_>) {
    let loaded = sysfs.exists("/sys/bus/pci/drivers/vfio-pci");
    let node = |name| machine.process.access(sysfs, name);
    match (node("/dev/vfio/vfio"), node("/dev/iommu")) {
        (Access::Allowed, Access::Allowed) => {
            c.ok("vfio", "/dev/vfio/vfio (groups) and /dev/iommu (iommufd) can be opened")
        }
        (Access::Allowed, Access::Denied) => {
            c.ok("vfio", "/dev/vfio/vfio (groups) can be opened; /dev/iommu (iommufd) not by this user");
        }
        (Access::Allowed, Access::Missing) => c.ok("vfio", "/dev/vfio/vfio (groups) can be opened; no iommufd"),
        (_, Access::Allowed) => c.ok("vfio", "/dev/iommu (iommufd) can be opened"),
        (Access::Denied, _) | (_, Access::Denied) => {
            c.fail("vfio", "this user may not open /dev/vfio/vfio", "chmod 666 /dev/vfio/vfio".to_owned());
        }
        (Access::Missing, Access::Missing) if controllers.is_empty() => {
            c.skip("vfio", "not loaded; there is no NVMe controller that would need it");
        }
        (Access::Missing, Access::Missing) => match (&machine.container, loaded) {
            (Some(_), _) => c.fail(
                "vfio",
                "this container has no /dev/vfio/vfio and no /dev/iommu",
                "on the host: modprobe vfio-pci; then start the container with --device /dev/vfio/vfio".to_owned(),
            ),
            (None, true) => c.fail(
                "vfio",
                "vfio-pci is loaded, but there is no /dev/vfio/vfio",
                "modprobe vfio_iommu_type1".to_owned(),
            ),
            (None, false) => c.fail("vfio", "vfio-pci is not loaded", "modprobe vfio-pci".to_owned()),
        },
    }
}

fn memlock(machine: &Machine, with_nics: bool, c: &mut Checks<'_>) {
    if machine.process.may(capability::IPC_LOCK) == Some(true) {
        return c.ok("memlock", "without limit (CAP_IPC_LOCK)");
    }
    let (soft, hard) = match machine.process.memlock {
        None => return c.unknown("memlock", "/proc/self/limits does not report it"),
        Some((Limit::Unlimited, _)) => return c.ok("memlock", "without limit"),
        Some((Limit::Number(soft), hard)) => (soft, hard),
    };
    let detail = format!("{} of memory can be locked for devices", Bytes(soft));
    if soft >= MEMLOCK_USUAL && !with_nics {
        return c.ok("memlock", detail);
    }
    let fix = match (&machine.container, hard) {
        (_, Limit::Unlimited) => "ulimit -l unlimited".to_owned(),
        // A user's engine cannot raise its user's limit.
        (Some(_), _) if machine.process.user_namespace == Some(true) => "on the host: `* - memlock unlimited` in /etc/security/limits.d/warpbell.conf, then log in again and start the container with --ulimit memlock=-1".to_owned(),
        (Some(engine), _) if engine == KUBERNETES => "raise LimitMEMLOCK of the node's container runtime, or add IPC_LOCK to a container of root".to_owned(),
        (Some(_), _) => "start the container with --ulimit memlock=-1".to_owned(),
        (None, _) => "`* - memlock unlimited` in /etc/security/limits.d/warpbell.conf, then log in again (a service: LimitMEMLOCK=infinity)".to_owned(),
    };
    let detail = match with_nics {
        true => format!("{detail}; RDMA locks all registered memory, so `unlimited` is usual"),
        false => format!("{detail}; queues and their bounce slots usually need {}", Bytes(MEMLOCK_USUAL)),
    };
    if soft < MEMLOCK_LEAST { c.fail("memlock", detail, fix) } else { c.warn("memlock", detail, fix) }
}

fn capabilities(machine: &Machine, c: &mut Checks<'_>) {
    let p = &machine.process;
    if p.capabilities.is_none() {
        return c.unknown("rights", "/proc/self/status lists no capabilities");
    }
    if p.user_namespace == Some(true) {
        return c.ok("rights", "a user namespace: capabilities do not reach the host's devices; VFIO needs none");
    }
    let names = [
        (capability::SYS_ADMIN, "CAP_SYS_ADMIN"),
        (capability::SYS_RAWIO, "CAP_SYS_RAWIO"),
        (capability::IPC_LOCK, "CAP_IPC_LOCK"),
    ];
    let list = |wanted: bool| {
        let all = names.iter().filter(|(n, _)| (p.may(*n) == Some(true)) == wanted);
        all.map(|(_, name)| *name).collect::<Vec<_>>().join(" ")
    };
    match (list(true), list(false)) {
        (has, lacks) if lacks.is_empty() => c.ok("rights", has),
        (has, lacks) if has.is_empty() => c.ok("rights", format!("without {lacks}; VFIO needs none of them")),
        (has, lacks) => c.ok("rights", format!("{has}, without {lacks}")),
    }
}

fn encryption(sysfs: &Sysfs, c: &mut Checks<'_>) {
    if sysfs.encrypts_memory() {
        let detail = "AMD's memory encryption is on (mem_encrypt=on): the CPU and devices see other bytes in a GPU's BAR1 than the GPU";
        c.warn("encryption", detail, format!("remove mem_encrypt=on {GRUB}"));
    }
}

fn huge_pages(machine: &Machine, c: &mut Checks<'_>) {
    if machine.huge_pages.is_empty() {
        return c.unknown("hugepages", "/sys/kernel/mm/hugepages does not report them");
    }
    let each = machine.huge_pages.iter().map(|p| format!("{}: {} free of {}", Bytes(p.bytes), p.free, p.total));
    c.ok("hugepages", format!("{} (none is needed)", each.collect::<Vec<_>>().join(", ")));
}

fn lockdown(machine: &Machine, c: &mut Checks<'_>) {
    match machine.lockdown.as_deref() {
        Some("none") => c.ok("lockdown", "none"),
        Some(mode) => c.warn(
            "lockdown",
            format!("{mode}: modules without a signature and BARs through sysfs are refused; VFIO works"),
            "sign the module (mokutil --import), or switch Secure Boot off in the firmware setup".to_owned(),
        ),
        None => c.skip("lockdown", "unknown: /sys/kernel/security/lockdown does not report it"),
    }
}

fn container(sysfs: &Sysfs, machine: &Machine, controllers: &[Controller], nics: &[RdmaDevice], c: &mut Checks<'_>) {
    let Some(engine) = &machine.container else {
        return c.skip("container", "none detected");
    };
    let mut missing: Vec<String> = Vec::new();
    for controller in controllers {
        missing.extend(controller.nodes().into_iter().filter(|n| !sysfs.exists(n)));
    }
    missing.extend(nics.iter().filter_map(|n| n.verbs_node.clone()).filter(|n| !sysfs.exists(n)));
    missing.sort();
    missing.dedup();
    let devices = missing.clone();
    if machine.has_nvidia_module() {
        missing.extend(nvidia_nodes(sysfs));
    }
    let limit = match (machine.memory_limit, machine.memory_bytes) {
        (Some(limit), Some(all)) => format!(", memory limited to {} of {}", Bytes(limit), Bytes(all)),
        (Some(limit), None) => format!(", memory limited to {}", Bytes(limit)),
        (None, _) => String::new(),
    };
    if missing.is_empty() {
        return c.ok("container", format!("{engine}{limit}, no device node is missing"));
    }
    let options = devices.iter().map(|n| format!("--device {n}")).collect::<Vec<_>>().join(" ");
    let by_device = match engine.as_str() {
        _ if devices.is_empty() => None,
        KUBERNETES => Some("give the container the resource of a device plugin for them".to_owned()),
        _ => Some(format!("start the container with {options}")),
    };
    let by_driver = (devices.len() < missing.len()).then(|| machine.gpu_option().to_owned());
    let fix = by_device.into_iter().chain(by_driver).collect::<Vec<_>>().join("; ");
    c.warn("container", format!("{engine}{limit}, {} not passed in", missing.join(", ")), fix);
}

/// Returns the device files of NVIDIA's driver that this process does not see. One GPU's file is enough: a container may
/// have a part of the GPUs.
fn nvidia_nodes(sysfs: &Sysfs) -> Vec<String> {
    let numbered = |n: &String| n.strip_prefix("nvidia").is_some_and(|r| r.parse::<u32>().is_ok());
    let any = sysfs.names("/dev").iter().any(numbered);
    let names = ["/dev/nvidiactl", "/dev/nvidia-uvm"];
    let missing = names.into_iter().filter(|n| !sysfs.exists(n));
    missing.chain((!any).then_some("/dev/nvidia0")).map(str::to_owned).collect()
}
