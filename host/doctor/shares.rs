//! Checks of shares of a GPU: MIG instances, vGPUs, processes that take turns, and MPS.

use super::check::Checks;
use super::gpu_facts::{ComputeMode, Gpu, GpuFacts, GpuUse, Virtualization};
use crate::pci::Sysfs;

pub(super) fn check(sysfs: &Sysfs, facts: &GpuFacts, gpu: &Gpu, c: &mut Checks<'_>) {
    mig(gpu, c);
    vgpu(gpu, c);
    processes(mps(sysfs, facts), gpu, c);
}

/// Checks MIG. NVIDIA's MIG guide, "Application Considerations": no peer access between GPUs or instances, CUDA IPC only
/// inside one GPU instance, GPUDirect RDMA and MPS are supported. A process uses one instance.
fn mig(gpu: &Gpu, c: &mut Checks<'_>) {
    match gpu.mig {
        Some(true) => c.warn(
            "mig",
            "on: a process uses one instance. Loads and stores reach no other GPU and no other instance, and processes share memory only within one GPU instance; other PEs need an RDMA transport. Devices reach the instance's memory as `peer memory` says",
            format!(
                "for loads and stores between PEs: nvidia-smi -i {} -mig 0",
                gpu.bdf.map_or(gpu.ordinal.to_string(), |b| b.to_string())
            ),
        ),
        Some(false) => c.ok("mig", "off"),
        None => c.unknown("mig", "NVML does not report it"),
    }
}

/// Checks virtualization. NVIDIA's vGPU pages on peer-to-peer transfers and GPUDirect: peers over NVLink only, between
/// time-sliced vGPUs that have all memory of their GPUs; GPUDirect on a subset of vGPUs and guests.
fn vgpu(gpu: &Gpu, c: &mut Checks<'_>) {
    match gpu.virtualization {
        Some(Virtualization::Vgpu) => c.warn(
            "vgpu",
            "a share of a GPU: loads and stores reach another vGPU only over NVLink, if each has all memory of its GPU and is not an instance; over PCIe they do not. Devices reach its memory as `peer memory` says, which few vGPU types allow",
            "give the virtual machine a whole GPU (pass-through)".to_owned(),
        ),
        Some(Virtualization::VgpuHost) => c.warn("vgpu", "this host shares the GPU among virtual machines", None),
        Some(Virtualization::Passthrough) => c.ok("vgpu", "no: the whole GPU is passed through to this machine"),
        Some(Virtualization::Bare) => c.ok("vgpu", "no"),
        None => c.unknown("vgpu", "NVML does not report it"),
    }
}

/// State of the MPS control daemon.
enum Mps {
    /// Its process runs.
    Running,
    /// Its pipe is there, and no process is known.
    PipeOnly,
    Absent,
}

/// Looks for the MPS control daemon: its pipe directory has the pipe, and a file with the number of its process.
fn mps(sysfs: &Sysfs, facts: &GpuFacts) -> Mps {
    let at = |name: &str| format!("{}/{name}", facts.mps_directory.trim_end_matches('/'));
    let process = sysfs.text(at("nvidia-cuda-mps-control.pid")).ok().and_then(|t| t.trim().parse::<u32>().ok());
    match process {
        Some(process) if sysfs.exists(format!("/proc/{process}")) => Mps::Running,
        _ if sysfs.exists(at("control")) => Mps::PipeOnly,
        _ => Mps::Absent,
    }
}

/// Checks other processes on the GPU. Without MPS, processes take turns: no kernel of one runs beside a kernel of
/// another.
fn processes(mps: Mps, gpu: &Gpu, c: &mut Checks<'_>) {
    const NAME: &str = "sharing";
    const START: &str = "nvidia-cuda-mps-control -d, before the processes start";
    let clients = gpu.usage.map_or(0, |u| u.mps_clients);
    match gpu.usage.map(|u| u.mode) {
        Some(ComputeMode::Prohibited) => {
            return c.fail(NAME, "the compute mode is PROHIBITED: no process may use it", "nvidia-smi -c 0".to_owned());
        }
        Some(ComputeMode::ExclusiveProcess) if clients == 0 && !matches!(mps, Mps::Running) => {
            return c.warn(
                NAME,
                "the compute mode is EXCLUSIVE_PROCESS: one process at a time, so one PE in each process and one process on this GPU",
                format!("nvidia-smi -c 0, or MPS: {START}"),
            );
        }
        _ => {}
    }
    let together = "kernels of several processes run at the same time, so PEs of several processes may share this GPU. A kernel that faults ends the work of all clients";
    match (mps, gpu.usage) {
        (_, Some(GpuUse { mps_clients: n @ 1.., .. })) => {
            c.ok(NAME, format!("MPS, {n} client{}: {together}", if n == 1 { "" } else { "s" }));
        }
        (Mps::Running, _) => c.ok(NAME, format!("MPS runs: {together}")),
        (Mps::PipeOnly, _) => c.warn(
            NAME,
            "the pipe of an MPS control daemon is there, but no daemon is seen: it has ended, or runs in another container",
            "ask it: echo get_server_list | nvidia-cuda-mps-control".to_owned(),
        ),
        (Mps::Absent, Some(GpuUse { others: 0, .. })) => c.ok(NAME, "no other process uses it"),
        (Mps::Absent, Some(GpuUse { others, .. })) => c.warn(
            NAME,
            format!(
                "{others} process{} beside this program, without MPS: processes take turns (time slices). A PE that waits for a PE of another process on this GPU waits whole slices, and figures vary",
                if others == 1 { "" } else { "es" }
            ),
            format!("use another GPU, or MPS: {START}"),
        ),
        (Mps::Absent, None) => c.unknown(NAME, "NVML does not report the processes"),
    }
}
