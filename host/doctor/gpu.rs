//! Checks of GPUs, their driver and its parameters.

use super::check::{Area, Check, Checks};
use super::gpu_facts::{Gpu, GpuFacts, runs_on};
use super::machine::Machine;
use super::nvidia;
use super::process::{Access, capability};
use crate::cuda::{DRIVER_WITH_PFNMAP, KERNEL_WITHOUT_FOLLOW_PTE, WritesOrdering, predates_pfnmap};
use crate::pci::{Bdf, Found, Function, Sysfs, memory_bars, resizable_bars};
use crate::remedy::Remedy;
use crate::units::Bytes;

/// PCI-SIG's vendor ID of NVIDIA.
const VENDOR_NVIDIA: u16 = 0x10de;
/// Classes of display controllers: VGA compatible, 3D (PCI Code and ID Assignment 1.16, 1.4).
const CLASSES_GPU: [u16; 2] = [0x0300, 0x0302];
/// Size of BAR1 in bytes on GPUs whose BAR1 was not enlarged.
const SMALL_BAR1: u64 = 256 << 20;
/// Steps after a change of module parameters.
const AFTER: &str = "then rebuild the initramfs (update-initramfs -u, or dracut -f) and reboot";

/// Returns true if a function is a GPU of NVIDIA's.
pub(super) fn is_gpu(f: &Function) -> bool {
    f.vendor == Some(VENDOR_NVIDIA) && f.class_pair().is_some_and(|c| CLASSES_GPU.contains(&c))
}

/// Returns a remedy that sets a parameter of the kernel module.
fn parameter(line: &str) -> String {
    format!("options nvidia {line}  in /etc/modprobe.d/nvidia.conf, {AFTER}")
}

/// Returns the subject of a GPU's checks: its number. (The subject of a GPU that CUDA does not show is its PCI
/// address.)
pub(super) fn subject(gpu: &Gpu) -> String {
    gpu.ordinal.to_string()
}

pub(super) fn check(sysfs: &Sysfs, machine: &Machine, facts: &GpuFacts, all: &mut Vec<Check>) {
    let on_pci: Vec<&Function> = machine.topology.functions().filter(|f| is_gpu(f)).collect();
    if facts.shown().is_empty() && on_pci.is_empty() {
        let reason = facts.gpus.as_ref().err().map_or("", String::as_str);
        let mut c = Checks::of(Area::Gpu, "", all);
        c.skip("driver", format!("no NVIDIA GPU on the PCI bus; kernels run on CPU threads ({reason})"));
        return;
    }
    for gpu in facts.shown() {
        let mut c = Checks::of(Area::Gpu, subject(gpu), all);
        driver(machine, Some(gpu), &mut c);
        kernels(&facts.image_archs, gpu, &mut c);
        peer_memory(machine, gpu, &mut c);
        ordering(gpu, &mut c);
        window(sysfs, gpu.bdf, gpu.bar1_bytes, gpu.memory_bytes, &mut c);
        doorbell(machine, true, &mut c);
        remap(machine, gpu.bdf, true, &mut c);
        super::shares::check(sysfs, facts, gpu, &mut c);
        super::network::peers(sysfs, machine, facts, gpu, &mut c);
    }
    for f in on_pci.iter().filter(|f| facts.shown().iter().all(|g| g.bdf != Some(f.bdf))) {
        let mut c = Checks::of(Area::Gpu, f.bdf.to_string(), all);
        not_shown(sysfs, machine, facts, f, &mut c);
        window(sysfs, Some(f.bdf), None, None, &mut c);
        doorbell(machine, false, &mut c);
        remap(machine, Some(f.bdf), false, &mut c);
    }
}

fn driver(machine: &Machine, gpu: Option<&Gpu>, c: &mut Checks<'_>) {
    let cuda = gpu.map(|g| format!(", CUDA {}.{}", g.cuda_version.0, g.cuda_version.1)).unwrap_or_default();
    let Some(version) = &machine.nvidia.version else {
        return c.unknown("driver", format_args!("/proc/driver/nvidia/version has no version{cuda}"));
    };
    match machine.nvidia.open {
        Some(true) => c.ok("driver", format!("{version}, open kernel modules{cuda}")),
        Some(false) => c.warn(
            "driver",
            format!("{version}, proprietary kernel modules{cuda}: they export no dma-buf of GPU memory"),
            "install the open kernel modules (nvidia-open; Turing or newer) and reboot".to_owned(),
        ),
        None => c.unknown("driver", format_args!("{version}, open or proprietary is not reported{cuda}")),
    }
}

/// Checks a GPU on the PCI bus that CUDA does not show.
fn not_shown(sysfs: &Sysfs, machine: &Machine, facts: &GpuFacts, f: &Function, c: &mut Checks<'_>) {
    let reason = match &facts.gpus {
        Err(reason) => reason.clone(),
        Ok(_) => "the CUDA driver does not show it; is it left out of CUDA_VISIBLE_DEVICES?".to_owned(),
    };
    let driver = f.driver.as_deref();
    if driver.is_some_and(|d| d.starts_with("vfio")) {
        let name = driver.unwrap_or_default();
        let fix = format!("echo {} > /sys/bus/pci/drivers/{name}/unbind, then modprobe nvidia", f.bdf);
        return c.fail("driver", format!("held by {name}, for a virtual machine: CUDA cannot use it"), fix);
    }
    if driver == Some("nouveau") {
        let fix = "install NVIDIA's driver; its package keeps nouveau from loading".to_owned();
        return c.fail("driver", "the nouveau driver holds it: CUDA cannot use it", fix);
    }
    if !machine.has_nvidia_module() {
        let fix = match &machine.container {
            Some(_) => format!("load NVIDIA's driver on the host, and {}", machine.gpu_option()),
            None => "install NVIDIA's driver with the open kernel modules (nvidia-open)".to_owned(),
        };
        return c.fail("driver", format!("no NVIDIA kernel module is loaded ({reason})"), fix);
    }
    match machine.process.access(sysfs, "/dev/nvidiactl") {
        Access::Missing => {
            let fix = match &machine.container {
                Some(_) => machine.gpu_option(),
                None => "nvidia-modprobe -u -c 0",
            };
            c.fail("driver", format!("there is no /dev/nvidiactl ({reason})"), fix.to_owned());
        }
        Access::Denied => c.fail(
            "driver",
            format!("this user may not open /dev/nvidiactl ({reason})"),
            "add the user to the group that owns /dev/nvidia*, or chmod 666 /dev/nvidia*".to_owned(),
        ),
        Access::Allowed => {
            let version = machine.nvidia.version.as_deref().unwrap_or("unknown");
            // A container whose CUDA shows no GPU may have the files without the driver's libraries. If it shows some, it
            // has its part of the GPUs.
            let fix = machine.container.as_ref().filter(|_| facts.gpus.is_err());
            let fix = fix.map(|_| Remedy::step(machine.gpu_option()));
            c.fail("driver", format!("kernel module {version} is loaded, but: {reason}"), fix);
        }
    }
}

fn kernels(archs: &[u32], gpu: &Gpu, c: &mut Checks<'_>) {
    if archs.is_empty() {
        let fix = "set NVCC or CUDA_HOME and build again".to_owned();
        return c.fail("kernels", "this build has no GPU image: nvcc was not found", fix);
    }
    let list = archs.iter().map(|a| format!("sm_{a}")).collect::<Vec<_>>().join(" ");
    let generation = gpu.generation;
    match &gpu.kernels {
        Some(Ok(())) => c.ok("kernels", format!("image {list}, loads")),
        _ if !runs_on(archs, generation) => {
            let fix = format!("WARPBELL_CUDA_ARCHS={generation} cargo build --release");
            c.fail("kernels", format!("image {list} has no code for sm_{generation}"), fix);
        }
        Some(Err(reason)) => c.fail("kernels", format!("image {list}: {reason}"), None),
        None => c.unknown("kernels", format_args!("image {list}, not loaded")),
    }
}

fn peer_memory(machine: &Machine, gpu: &Gpu, c: &mut Checks<'_>) {
    let words = |v: Option<bool>| match v {
        Some(true) => "yes",
        Some(false) => "no",
        None => "unknown",
    };
    let detail = format!("GPUDirect RDMA {}, dma-buf {}", words(gpu.gpu_direct_rdma), words(gpu.dma_buf));
    match (gpu.gpu_direct_rdma, gpu.dma_buf) {
        (None, None) => c.unknown("peer memory", detail),
        (_, Some(true)) => c.ok("peer memory", detail),
        (Some(false), _) => {
            c.warn("peer memory", format!("{detail}: queues and landing stay in host memory"), None);
        }
        _ => {
            let closed = machine.nvidia.open == Some(false);
            let fix = closed.then(|| Remedy::step("install the open kernel modules (nvidia-open) and reboot"));
            c.warn("peer memory", format!("{detail}: mapping backends that take a dma-buf are closed"), fix);
        }
    }
}

fn ordering(gpu: &Gpu, c: &mut Checks<'_>) {
    match gpu.writes_ordering {
        Some(o @ (WritesOrdering::Owner | WritesOrdering::All)) => {
            c.ok("ordering", format!("{o}: a device's writes are in order for this GPU's kernels"));
        }
        Some(WritesOrdering::None) => c.warn(
            "ordering",
            "none: data written directly to GPU memory may arrive after its completion, so landing stays bounce",
            None,
        ),
        None => c.unknown("ordering", "the driver does not report it"),
    }
}

/// Checks the region through which other devices access GPU memory: NVIDIA's BAR1, which is the second memory BAR.
fn window(sysfs: &Sysfs, bdf: Option<Bdf>, told: Option<u64>, memory: Option<u64>, c: &mut Checks<'_>) {
    let bar = bdf.and_then(|b| memory_bars(sysfs, b)).and_then(|bars| bars.get(1).copied());
    let Some(bytes) = told.or(bar.map(|b| b.bytes)) else {
        return c.unknown("BAR1", "neither NVML nor the PCI resources report its size");
    };
    let size = Bytes(bytes);
    let larger = match (bdf.map(|b| resizable_bars(sysfs, b)), bar) {
        (Some(Found::Yes(all)), Some(bar)) => all.iter().find(|r| r.index == bar.index).map(|r| r.max_bytes),
        _ => None,
    };
    if memory.is_some_and(|m| bytes >= m) || (memory.is_none() && bytes > SMALL_BAR1) {
        let covers = if memory.is_some() { ", covers all of the memory" } else { "" };
        return c.ok("BAR1", format!("{size}{covers}"));
    }
    if bytes > SMALL_BAR1 {
        let memory = Bytes(memory.unwrap_or_default());
        return c.ok("BAR1", format!("{size} of {memory}: no more GPU memory than this can be mapped for devices"));
    }
    let detail = format!("{size}: hardly any GPU memory can be mapped for devices");
    match larger {
        Some(max) if max > bytes => {
            let fix = format!(
                "enable Above 4G Decoding and Resizable BAR in the firmware setup (this GPU offers {})",
                Bytes(max)
            );
            c.warn("BAR1", detail, fix);
        }
        Some(_) => c.warn("BAR1", format!("{detail}, and this GPU offers no more"), None),
        None => {
            let fix = "enable Above 4G Decoding and Resizable BAR in the firmware setup, if the GPU has it".to_owned();
            c.warn("BAR1", detail, fix);
        }
    }
}

/// Checks that a mapping of a device's registers can be registered with the GPU.
fn doorbell(machine: &Machine, shown: bool, c: &mut Checks<'_>) {
    const FIX: &str = "NVreg_RegistryDwords=\"PeerMappingOverride=1;\"";
    // A sandbox may hide the module's files and offer the GPU all the same.
    if !machine.nvidia.is_loaded() && !shown {
        return c.skip("doorbell", "no NVIDIA kernel module: CPU threads write the doorbells");
    }
    if let (Some(version), Some(kernel)) = (&machine.nvidia.version, machine.kernel_version())
        && kernel >= KERNEL_WITHOUT_FOLLOW_PTE
        && predates_pfnmap(version)
    {
        return c.fail(
            "doorbell",
            format!(
                "driver {version} looks I/O memory up with a function that Linux {}.{} no longer has",
                kernel.0, kernel.1
            ),
            format!("install driver {DRIVER_WITH_PFNMAP} or later"),
        );
    }
    let override_set = machine.nvidia.parameters.as_ref().map(|p| p.registry("PeerMappingOverride").unwrap_or(0) != 0);
    match (override_set, machine.process.may(capability::SYS_ADMIN)) {
        (Some(true), _) => c.ok("doorbell", "PeerMappingOverride is 1: every user may register I/O memory"),
        (_, Some(true)) => {
            c.ok("doorbell", "this user is an administrator (CAP_SYS_ADMIN), who may register I/O memory")
        }
        (Some(false), Some(false)) => c.fail(
            "doorbell",
            "I/O memory cannot be registered: PeerMappingOverride is 0, and this user lacks CAP_SYS_ADMIN",
            parameter(FIX),
        ),
        (None, _) => {
            c.unknown("doorbell", "/proc/driver/nvidia/params cannot be read, and this user lacks CAP_SYS_ADMIN")
        }
        (Some(false), None) => {
            c.unknown("doorbell", "PeerMappingOverride is 0, and /proc/self/status lists no capabilities")
        }
    }
}

/// Checks that the driver maps a peer's registers in the GPU's own IOMMU domain.
fn remap(machine: &Machine, bdf: Option<Bdf>, shown: bool, c: &mut Checks<'_>) {
    if !machine.nvidia.is_loaded() && !shown {
        return;
    }
    match bdf.and_then(|b| machine.translates(b)) {
        Some(false) => c.ok("peer remap", "the IOMMU does not translate for this GPU: nothing to map"),
        Some(true) => match machine.nvidia.parameters.as_ref().and_then(|p| p.number("DmaRemapPeerMmio")) {
            Some(0) => c.fail(
                "peer remap",
                "the IOMMU translates for this GPU, and DmaRemapPeerMmio is 0: a store to a doorbell faults",
                parameter("NVreg_DmaRemapPeerMmio=1"),
            ),
            Some(_) => c.ok("peer remap", "DmaRemapPeerMmio is 1: the driver maps peers in the GPU's IOMMU domain"),
            None => c.unknown("peer remap", "the IOMMU translates for this GPU; DmaRemapPeerMmio cannot be read"),
        },
        None => c.unknown("peer remap", "the kernel does not report whether the IOMMU translates for this GPU"),
    }
}

/// Returns a heading such as
/// `NVIDIA H200 0000:00:06.0   driver 580.159.04 (open)  sm_90  BAR1 256 GiB  writes-ordering owner`.
pub(super) fn heading(machine: &Machine, gpu: &Gpu) -> String {
    let mut text = gpu.name.clone();
    if let Some(bdf) = gpu.bdf {
        text += &format!(" {bdf}");
    }
    if let nvidia::Module { version: Some(version), open, .. } = &machine.nvidia {
        let kind = match open {
            Some(true) => " (open)",
            Some(false) => " (proprietary)",
            None => "",
        };
        text += &format!("   driver {version}{kind}");
    }
    text += &format!("  sm_{}", gpu.generation);
    if let Some(bar1) = gpu.bar1_bytes {
        text += &format!("  BAR1 {}", Bytes(bar1));
    }
    if let Some(ordering) = gpu.writes_ordering {
        text += &format!("  writes-ordering {ordering}");
    }
    text
}
