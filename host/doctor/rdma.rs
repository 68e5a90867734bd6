//! Checks of the needs of all RDMA devices: kernel modules, the verbs library, access to GPU memory, limits.

use super::check::{Area, Check, Checks};
use super::gpu_facts::GpuFacts;
use super::machine::Machine;
use super::process::Limit;
use crate::pci::Sysfs;
use crate::rdma::{RdmaDevice, VerbsLibrary};

/// Kernel modules for access to RDMA devices and GPU memory, by their names under `/sys/module`.
const MODULES: [&str; 6] = ["ib_core", "ib_uverbs", "mlx5_ib", "nvidia_peermem", "gdrdrv", "rdma_rxe"];
/// First version of rdma-core whose libraries create queues in memory given as a dma-buf.
const RDMA_CORE: u32 = 44;
/// First kernel in which mlx5 can have queues in memory given as a dma-buf.
const KERNEL_DMABUF_QUEUES: (u32, u32) = (6, 1);
/// Number of files that a world of many PEs opens: several for each queue pair.
const FILES_RDMA: u64 = 16 << 10;
/// Maximum number of files that the PEs of one host need.
const FILES_USUAL: u64 = 1 << 10;

pub(super) fn check(
    sysfs: &Sysfs,
    machine: &Machine,
    facts: &GpuFacts,
    nics: &[RdmaDevice],
    library: Option<&VerbsLibrary>,
    with_gpus: bool,
    all: &mut Vec<Check>,
) {
    let mut c = Checks::of(Area::Host, "", all);
    files(machine, nics, &mut c);
    if nics.is_empty() {
        return;
    }
    modules(sysfs, &mut c);
    verbs_library(library, &mut c);
    if with_gpus && nics.iter().any(|n| !n.software) {
        peermem(sysfs, machine, facts, &mut c);
    }
}

/// Returns true if a module is loaded or built into the kernel.
fn is_loaded(sysfs: &Sysfs, module: &str) -> bool {
    let listed = || {
        let text = sysfs.text("/proc/modules").unwrap_or_default();
        text.lines().any(|l| l.split_whitespace().next() == Some(module))
    };
    // A module that is built in and has no parameters has no folder of its own. The class of ib_uverbs shows its
    // presence.
    let built_in = || module == "ib_uverbs" && sysfs.exists("/sys/class/infiniband_verbs");
    sysfs.exists(format!("/sys/module/{module}")) || listed() || built_in()
}

fn modules(sysfs: &Sysfs, c: &mut Checks<'_>) {
    if !sysfs.exists("/sys/module") && !sysfs.exists("/proc/modules") {
        return c.unknown("modules", "neither /sys/module nor /proc/modules exists");
    }
    let (loaded, missing): (Vec<&str>, Vec<&str>) = MODULES.iter().partition(|m| is_loaded(sysfs, m));
    let list = |names: &[&str]| if names.is_empty() { "none".to_owned() } else { names.join(" ") };
    let detail = format!("loaded: {}; not loaded: {}", list(&loaded), list(&missing));
    match missing.contains(&"ib_uverbs") {
        true => c.warn("modules", detail, "modprobe ib_uverbs".to_owned()),
        false => c.ok("modules", detail),
    }
}

fn verbs_library(library: Option<&VerbsLibrary>, c: &mut Checks<'_>) {
    let Some(found) = library else {
        let fix = "apt install libibverbs1 ibverbs-providers (dnf install libibverbs)".to_owned();
        return c.warn("verbs library", "the loader finds no libibverbs.so.1", fix);
    };
    match found.rdma_core {
        Some((major, minor)) if major < RDMA_CORE => c.warn(
            "verbs library",
            format!("rdma-core {major}.{minor}: {}; queues in GPU memory need {RDMA_CORE}", found.path),
            format!("install rdma-core {RDMA_CORE} or later"),
        ),
        Some((major, minor)) => c.ok("verbs library", format!("rdma-core {major}.{minor}: {}", found.path)),
        None => c.ok("verbs library", format!("{}, whose name does not show its version", found.path)),
    }
}

/// Checks how GPU memory is registered with a NIC: as a dma-buf, or by NVIDIA's older module.
fn peermem(sysfs: &Sysfs, machine: &Machine, facts: &GpuFacts, c: &mut Checks<'_>) {
    let peermem = is_loaded(sysfs, "nvidia_peermem") || is_loaded(sysfs, "nv_peer_mem");
    let gpus = facts.shown();
    let any = |what: fn(&super::Gpu) -> Option<bool>, is| gpus.iter().any(|g| what(g) == Some(is));
    let kernel = machine.kernel_version();
    let queues = kernel.is_some_and(|k| k >= KERNEL_DMABUF_QUEUES);
    let release = kernel.map_or("this kernel".to_owned(), |k| format!("Linux {}.{}", k.0, k.1));
    let (major, minor) = KERNEL_DMABUF_QUEUES;
    let fix = "modprobe nvidia_peermem".to_owned();
    if any(|g| g.dma_buf, true) && queues {
        let also = if peermem { "; nvidia_peermem is loaded too" } else { "" };
        return c.ok("peermem", format!("dma-buf, for data and queues ({release}){also}"));
    }
    if any(|g| g.dma_buf, true) && kernel.is_some() {
        let detail =
            format!("dma-buf, for data only: queues in GPU memory need Linux {major}.{minor}, this is {release}");
        return match peermem {
            true => c.ok("peermem", format!("{detail}; nvidia_peermem registers them instead")),
            false => c.warn("peermem", detail, fix),
        };
    }
    match (peermem, gpus.is_empty()) {
        (_, false) if gpus.iter().all(|g| g.gpu_direct_rdma == Some(false) && g.dma_buf == Some(false)) => {
            c.warn("peermem", "no GPU gives other devices access to its memory: host memory is used", None);
        }
        (true, _) => c.ok("peermem", "nvidia_peermem is loaded; the GPUs are not known to export dma-bufs"),
        (false, true) => {
            c.unknown("peermem", "nvidia_peermem is not loaded, and the GPUs do not report their capabilities")
        }
        (false, false) => c.warn(
            "peermem",
            "GPU memory cannot be registered with a NIC: no dma-buf, and nvidia_peermem is not loaded",
            format!("{fix}, or install the open kernel modules (nvidia-open) on Linux {major}.{minor} or later"),
        ),
    }
}

fn files(machine: &Machine, nics: &[RdmaDevice], c: &mut Checks<'_>) {
    let (soft, hard) = match machine.process.files {
        None => return c.unknown("files", "/proc/self/limits does not report it"),
        Some((Limit::Unlimited, _)) => return c.ok("files", "without limit"),
        Some((Limit::Number(soft), hard)) => (soft, hard),
    };
    let usual = if nics.is_empty() { FILES_USUAL } else { FILES_RDMA };
    let detail = format!("{soft} files can be open");
    if soft >= usual {
        return c.ok("files", detail);
    }
    let fix = match (hard, &machine.container) {
        (Limit::Unlimited, _) => format!("ulimit -n {usual}"),
        (Limit::Number(hard), _) if hard >= usual => format!("ulimit -n {usual}"),
        (_, Some(_)) => format!("start the container with --ulimit nofile={usual}"),
        (_, None) => format!(
            "`* - nofile {usual}` in /etc/security/limits.d/warpbell.conf, then log in again (a service: LimitNOFILE={usual})"
        ),
    };
    let why = if nics.is_empty() {
        "each PE opens files of the other PEs of its host"
    } else {
        "large worlds on RDMA open several for each pair of PEs"
    };
    c.warn("files", format!("{detail}; {why}"), fix);
}
