//! Fixtures of machines that share a GPU: MIG instances, a vGPU, processes in turns, MPS.

use super::shapes::*;
use super::{Area, Fixture, GpuFacts, Report, Status, expect, look};
use crate::doctor::gpu_facts::{ComputeMode, Gpu, GpuUse, Virtualization};

const SHARING: (Area, &str, &str) = (Area::Gpu, "0", "sharing");

/// Returns the server with one H200 that `usage` describes.
fn used(usage: GpuUse) -> (Fixture, GpuFacts) {
    let (tree, _) = server();
    (tree, facts(vec![Gpu { usage: Some(usage), ..h200(0, "0000:03:00.0") }]))
}

/// Adds the files of an MPS control daemon, which is process 4711.
fn daemon(tree: &Fixture, folder: &str) {
    tree.file(&format!("{folder}/control"), "").file(&format!("{folder}/nvidia-cuda-mps-control.pid"), "4711\n");
}

/// A machine of a cluster whose GPUs are split: CUDA shows the process one instance, with less memory and no peers.
fn instance() -> Report {
    let (tree, _) = server();
    let gpu = Gpu {
        name: "NVIDIA H200 MIG 3g.71gb".into(),
        mig: Some(true),
        memory_bytes: Some(70 * GIB),
        ..h200(0, "0000:03:00.0")
    };
    look(&(tree, facts(vec![gpu])))
}

#[test]
fn an_instance_has_devices_and_no_peers() {
    let r = instance();
    let mig = (Area::Gpu, "0", "mig");
    expect(&r, mig, Status::Warn, "reach no other GPU and no other instance", Some("-mig 0"));
    expect(&r, mig, Status::Warn, "share memory only within one GPU instance", Some("-mig 0"));
    // GPUDirect RDMA works from an instance.
    expect(&r, (Area::Gpu, "0", "peer memory"), Status::Ok, "GPUDirect RDMA yes", None);
    expect(&r, SHARING, Status::Ok, "no other process", None);
    assert!(r.requirements[0].possible);
}

#[test]
fn a_vgpu_has_what_its_type_allows() {
    let (tree, _) = server();
    let gpu = Gpu {
        name: "NVIDIA H100-20C".into(),
        virtualization: Some(Virtualization::Vgpu),
        gpu_direct_rdma: Some(false),
        dma_buf: Some(false),
        usage: None,
        ..h200(0, "0000:03:00.0")
    };
    let r = look(&(tree, facts(vec![gpu])));
    expect(&r, (Area::Gpu, "0", "vgpu"), Status::Warn, "only over NVLink", Some("pass-through"));
    expect(&r, (Area::Gpu, "0", "peer memory"), Status::Warn, "stay in host memory", None);
    expect(&r, SHARING, Status::Skip, "unknown: NVML", None);
}

#[test]
fn processes_without_mps_take_turns() {
    let r = look(&used(GpuUse { others: 1, ..ALONE }));
    expect(&r, SHARING, Status::Warn, "1 process beside this program", Some("nvidia-cuda-mps-control -d"));
    let r = look(&used(GpuUse { others: 3, ..ALONE }));
    expect(
        &r,
        SHARING,
        Status::Warn,
        "3 processes beside this program, without MPS: processes take turns",
        Some("MPS"),
    );
}

#[test]
fn mps_is_seen_by_its_clients_or_its_daemon() {
    let r = look(&used(GpuUse { others: 1, mps_clients: 2, ..ALONE }));
    expect(&r, SHARING, Status::Ok, "MPS, 2 clients: kernels of several processes run at the same time", None);
    // The daemon runs, nobody has connected yet. The server needs the GPU for itself: MPS is the way to share it.
    for mode in [ComputeMode::Default, ComputeMode::ExclusiveProcess] {
        let (tree, facts) = used(GpuUse { others: 1, mode, ..ALONE });
        daemon(&tree, "/tmp/nvidia-mps");
        tree.folder("/proc/4711");
        expect(&look(&(tree, facts)), SHARING, Status::Ok, "MPS runs", None);
    }
    // Another folder, which the environment names.
    let (tree, mut facts) = used(ALONE);
    daemon(&tree, "/run/mps");
    tree.folder("/proc/4711");
    facts.mps_directory = "/run/mps/".to_owned();
    expect(&look(&(tree, facts)), SHARING, Status::Ok, "MPS runs", None);
}

#[test]
fn a_daemon_that_has_ended_is_not_taken_for_mps() {
    let (tree, facts) = used(GpuUse { others: 2, ..ALONE });
    daemon(&tree, "/tmp/nvidia-mps");
    expect(&look(&(tree, facts)), SHARING, Status::Warn, "no daemon is seen", Some("get_server_list"));
}

#[test]
fn compute_modes_are_told() {
    let r = look(&used(GpuUse { mode: ComputeMode::ExclusiveProcess, ..ALONE }));
    expect(&r, SHARING, Status::Warn, "EXCLUSIVE_PROCESS", Some("nvidia-smi -c 0"));
    let r = look(&used(GpuUse { mode: ComputeMode::Prohibited, ..ALONE }));
    expect(&r, SHARING, Status::Fail, "PROHIBITED", Some("nvidia-smi -c 0"));
}
