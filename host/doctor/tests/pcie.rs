//! Tests of GPUs that only PCIe joins, on drivers that check the path between them.

use super::shapes::*;
use super::{Fine, GPU, Warn, expect, find, look};
use crate::cuda::OVERRIDE_VARIABLE;
use crate::doctor::gpu_facts::{Gpu, GpuFacts, GpuPeer, Virtualization};
use crate::pci::fixture::{Fixture, pcie_gpus};

const PEERS: (super::Area, &str, &str) = (GPU, "0", "peers");

/// Returns a machine with two L40S that CUDA 13.5 denies access to each other.
fn machine(acs: Option<u16>, group_type: &str) -> (Fixture, GpuFacts) {
    let tree = pcie_gpus(acs, group_type);
    kernel(&tree, "6.14.0-27-generic", "GenuineIntel", "vmx", "intel_iommu=on");
    tree.file("/sys/devices/system/node/online", "0-1\n");
    user(&tree);
    nvidia(&tree, "620.10.01", true, "PeerMappingOverride=1;");
    let gpu =
        |ordinal, bdf| Gpu { name: "NVIDIA L40S".into(), generation: 89, cuda_version: (13, 5), ..h200(ordinal, bdf) };
    let mut facts = facts(vec![gpu(0, "0000:01:00.0"), gpu(1, "0000:81:00.0")]);
    facts.peers = vec![denied(0, 1), denied(1, 0)];
    (tree, facts)
}

fn denied(gpu: usize, peer: usize) -> GpuPeer {
    let access = Some(Err("CUDA denies it (cuDeviceCanAccessPeer)".to_owned()));
    GpuPeer { gpu, peer, access, atomics: Some(false), nvlink: Some(false), cuda: Some(false) }
}

/// Expects that the path is not named as the cause after a change of the facts.
#[track_caller]
fn no_path(change: impl FnOnce(&mut GpuFacts)) {
    let (tree, mut facts) = machine(Some(0x1d), "DMA-FQ");
    change(&mut facts);
    let r = look(&(tree, facts));
    expect(&r, PEERS, Warn, "gpu 1: out of reach: ", None);
    let detail = &find(&r, GPU, "0", "peers").detail;
    assert!(!detail.contains("IOMMU"), "{detail}");
}

#[test]
fn translation_and_redirection_are_named_with_their_remedies() {
    let r = look(&machine(Some(0x1d), "DMA-FQ"));
    let found = "gpu 1: out of reach: CUDA denies it (cuDeviceCanAccessPeer); from CUDA 13.5 on, the driver also checks IOMMU and \
                 ACS between GPUs that only PCIe joins; here the IOMMU translates for 0000:01:00.0 0000:81:00.0, ACS redirects at \
                 0000:00:01.0 0000:80:01.0";
    for words in [
        "iommu=pt",
        "pci=disable_acs_redir=0000:00:01.0;0000:80:01.0",
        &format!("{OVERRIDE_VARIABLE}=1"),
        "data may be lost or corrupted",
        "warpbell bench shmem",
    ] {
        expect(&r, PEERS, Warn, found, Some(words));
        expect(&r, (GPU, "1", "peers"), Warn, "the IOMMU translates for", Some(words));
    }
    assert_eq!((r.network.peer_pairs.apart, r.network.peer_pairs.reach), (1, 0));
}

#[test]
fn registers_that_only_root_sees_are_not_taken_for_clear_ones() {
    let r = look(&machine(None, "identity"));
    expect(&r, PEERS, Warn, "no translation and no redirection is found", Some(OVERRIDE_VARIABLE));
    expect(&r, PEERS, Warn, "ACS registers of 0000:00:01.0 0000:80:01.0 to root only", Some("at a risk"));
}

#[test]
fn another_cause_excludes_the_path() {
    no_path(|f| f.path_check_variable = Some("1".into()));
    no_path(|f| f.gpus.as_mut().unwrap().iter_mut().for_each(|g| g.cuda_version = (13, 4)));
    no_path(|f| f.gpus.as_mut().unwrap()[0].mig = Some(true));
    no_path(|f| f.gpus.as_mut().unwrap()[1].mig = Some(true));
    no_path(|f| f.gpus.as_mut().unwrap()[1].virtualization = Some(Virtualization::Vgpu));
    no_path(|f| f.peers[0].nvlink = Some(true));
    no_path(|f| f.peers[0].access = Some(Err("the GPU does not support it".into())));
}

#[test]
fn gpus_in_reach_are_fine_whatever_the_path() {
    let (tree, mut facts) = machine(Some(0x1d), "DMA-FQ");
    for p in &mut facts.peers {
        (p.access, p.cuda) = (Some(Ok(())), Some(true));
    }
    expect(&look(&(tree, facts)), PEERS, Fine, "gpu 1: loads, stores over PCIe", None);
}

#[test]
fn only_peers_that_are_denied_count() {
    let (tree, mut facts) = machine(Some(0x1d), "DMA-FQ");
    let third = Gpu { ordinal: 2, bdf: Some("0000:91:00.0".parse().unwrap()), ..facts.shown()[1].clone() };
    facts.gpus.as_mut().unwrap().push(third);
    let reached = GpuPeer { access: Some(Ok(())), nvlink: Some(true), cuda: Some(true), ..denied(0, 2) };
    facts.peers.push(reached);
    let r = look(&(tree, facts));
    expect(&r, PEERS, Warn, "gpu 2: loads, stores over NVLink; from CUDA 13.5 on", Some(OVERRIDE_VARIABLE));
    let detail = &find(&r, GPU, "0", "peers").detail;
    assert!(!detail.contains("0000:91:00.0"), "{detail}");
}
