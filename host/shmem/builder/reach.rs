//! The PEs whose memory is within reach of loads, stores and atomics, as far as the peer infos tell.

use super::heaps::Group;
use crate::cuda::{self, DeviceInfo, FABRIC_HANDLE_BYTES, OVERRIDE_VARIABLE, PathCheck, PeerLink};
use crate::pci::{Bdf, Sysfs, Topology};
use crate::shmem::heap::{Links, Peer, Source};
use crate::shmem::peer_info::{self, PeerInfo};
use crate::shmem::vote::ranges;

/// Combines the links of all ranks: a property holds if it holds on every rank.
pub(super) fn all(links: &[Links]) -> Links {
    Links { one_gpu: links.iter().all(|l| l.one_gpu), atomics: links.iter().all(|l| l.atomics) }
}

pub(super) fn peer(peer_infos: &[PeerInfo], rank: usize) -> Peer {
    Peer { rank, name: peer_infos[rank].listener.clone(), token: peer_infos[rank].token.clone() }
}

pub(super) fn one_gpu(peer_infos: &[&PeerInfo]) -> bool {
    let first = peer_infos[0].gpu.as_ref().map(|g| g.uuid);
    first.is_some() && peer_infos.iter().all(|c| c.gpu.as_ref().map(|g| g.uuid) == first)
}

/// Returns true if atomics on host memory work between all PEs. They do on CPU threads, on one GPU, and on GPUs whose
/// link to the host carries atomics. CUDA guarantees no other case.
pub(super) fn host_atomics(peer_infos: &[&PeerInfo]) -> bool {
    one_gpu(peer_infos) || peer_infos.iter().filter_map(|c| c.gpu.as_ref()).all(|g| g.host_atomics)
}

/// Checks that all PEs are on one host. Loads and stores do not reach other hosts, except between GPUs of one NVLink
/// domain.
pub(super) fn one_host(peer_infos: &[PeerInfo]) -> Result<(), String> {
    let hosts = peer_info::hosts(peer_infos);
    if hosts.len() == 1 {
        return Ok(());
    }
    let names: Vec<String> = hosts.iter().map(|(host, ranks)| format!("rank {} on {host}", ranges(ranks))).collect();
    Err(format!(
        "loads and stores do not reach PEs on other hosts, in other network namespaces or of other users ({}): start \
         all ranks on one host, use GPUs of one NVLink domain, or another transport (WARPBELL_TRANSPORT=auto)",
        names.join(", ")
    ))
}

/// Returns true if all GPUs may reach each other's memory over an NVLink domain, even between hosts. Only mapping the
/// memory shows if they do.
pub(super) fn one_fabric(peer_infos: &[PeerInfo]) -> bool {
    peer_infos.iter().all(|c| c.gpu.as_ref().is_some_and(|g| g.descriptors && g.fabric))
}

/// Returns the PEs that PE `me` reaches by loads and stores when other hosts are out of reach.
pub(super) fn group(peer_infos: &[PeerInfo], me: usize) -> Group {
    let alone = peer_infos[me].transport.adapter().is_some();
    let near = |pe: &usize| if alone { *pe == me } else { peer_infos[*pe].host == peer_infos[me].host };
    Group::new((0..peer_infos.len()).filter(near).collect(), peer_infos.len())
}

/// Returns the source from which this rank gets the memory of PE `pe`.
pub(super) fn source(peer_infos: &[PeerInfo], me: usize, pe: usize, fabric: Option<&[u8]>) -> Result<Source, String> {
    let (mine, peer_info) = (&peer_infos[me], &peer_infos[pe]);
    if pe == me {
        Ok(Source::OwnMemory)
    } else if peer_info.process == mine.process {
        Ok(Source::Here(peer_info.token.clone()))
    } else if peer_info.host == mine.host {
        Ok(Source::Host(peer(peer_infos, pe)))
    } else {
        let handle: Option<[u8; FABRIC_HANDLE_BYTES]> = fabric.and_then(|h| h.try_into().ok());
        handle.map(Source::Fabric).ok_or_else(|| format!("rank {pe} sent no fabric handle"))
    }
}

/// Checks that this rank's GPU reaches the memory of all other PEs of its group, as far as that is known before
/// mapping. Returns true if atomics reach the memory too.
pub(super) fn reach(peer_infos: &[PeerInfo], me: usize, group: &Group) -> Result<bool, String> {
    let Some(mine) = &peer_infos[me].gpu else {
        return Err("it runs on a CPU engine, which cannot access GPU memory".to_owned());
    };
    if !mine.descriptors {
        return Err(format!(
            "{} cannot share its memory with other processes (cuMemCreate); use a heap in host memory",
            mine.name
        ));
    }
    if group.members.iter().any(|pe| peer_infos[*pe].host != peer_infos[me].host) && !mine.fabric {
        one_host(peer_infos)?;
    }
    let visible = DeviceInfo::all().map_err(|e| e.to_string())?;
    let device = |uuid| visible.iter().find(|d| d.uuid == uuid);
    let here = device(mine.uuid);
    let mut atomics = true;
    for &rank in &group.members {
        let peer_info = &peer_infos[rank];
        let Some(theirs) = &peer_info.gpu else {
            return Err(format!(
                "rank {rank} runs on a CPU engine, whose memory is not on a GPU; use a heap in host memory"
            ));
        };
        if theirs.uuid == mine.uuid {
            continue;
        }
        // This process cannot query a GPU that it does not see (CUDA_VISIBLE_DEVICES, another host): mapping the memory
        // shows.
        let (Some(from), Some(to)) = (here, device(theirs.uuid)) else {
            atomics &= peer_info.host != peer_infos[me].host;
            continue;
        };
        let link = cuda::peer_link(from.ordinal, to.ordinal).map_err(|e| e.to_string())?;
        if !link.access {
            let (mine, theirs) = (format!("{} of rank {me}", mine.name), format!("{} of rank {rank}", theirs.name));
            let variable = std::env::var(OVERRIDE_VARIABLE).ok();
            let path = path_check(&Sysfs::system(), link, from.cuda_version, [from.bdf, to.bdf], variable.as_deref());
            return Err(denied(&mine, &theirs, path.as_ref()));
        }
        atomics &= link.native_atomics;
    }
    Ok(atomics)
}

/// Returns the properties of the path between two GPUs, which may be why CUDA denies access; `None` if CUDA does not check them.
///
/// `cuda_version` is that of the driver, `bdfs` are the GPUs' PCI addresses, and `variable` is the value of
/// [`OVERRIDE_VARIABLE`].
pub(super) fn path_check(
    sysfs: &Sysfs,
    link: PeerLink,
    cuda_version: (u32, u32),
    [from, to]: [Option<Bdf>; 2],
    variable: Option<&str>,
) -> Option<PathCheck> {
    let is_checked = link.is_denied_over_pcie() && cuda::is_checked(cuda_version, variable);
    is_checked.then(|| PathCheck::read(sysfs, &Topology::read(sysfs), from, &[to]))
}

/// Returns the error of two GPUs, each with its rank, that CUDA denies access to each other.
pub(super) fn denied(from: &str, to: &str, path: Option<&PathCheck>) -> String {
    let (cause, remedy) = match path {
        Some(path) => (format!("; {}", path.cause()), format!("{}; or ", path.remedy())),
        None => (String::new(), String::new()),
    };
    format!(
        "{from} cannot reach the memory of {to} (cuDeviceCanAccessPeer){cause}: {remedy}use GPUs that NVLink or a PCIe switch \
         connects (nvidia-smi topo -p2p r), or a heap in host memory (WARPBELL_HEAP=host)"
    )
}
