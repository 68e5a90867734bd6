//! What each PE tells the others about itself when a world is built, and what all make of it.

use super::bootstrap::Route;
use super::heap::{HEAP_ALIGN, HeapKind};
use super::network::{BOUNCE_BYTES, NetworkSettings};
use super::team_slots::own_bytes;
use super::{ShmemError, Transport, variable};
use crate::cuda::{PhysicalMemory, Sharing};
use crate::engine::{Engine, abi};
use crate::this_host::{self, Machine};
use crate::units::Bytes;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;
use std::sync::OnceLock;

/// Bytes of a CPU engine's heap unless told otherwise.
pub(super) const CPU_HEAP: usize = 64 << 20;
/// Bytes of a GPU's heap unless told otherwise, and if they fit: NVSHMEM's default.
const GPU_HEAP: usize = 1 << 30;

/// A host, whatever its processes call it: the same until it is started again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct HostId {
    /// The machine's boot.
    boot: String,
    /// Its name, which containers have of their own.
    pub(crate) name: String,
    /// Its network namespace: Unix sockets, by which memory is handed over, do not reach into another.
    #[serde(default)]
    net: String,
}

/// What a host is called, if not by its name: processes that call it differently share no memory.
const HOST_VARIABLE: &str = "WARPBELL_HOST_ID";

impl HostId {
    /// This host.
    pub(crate) fn here() -> Self {
        Self::called(None)
    }

    /// This host, called so by the program, or by the environment, or by itself.
    pub(crate) fn called(name: Option<String>) -> Self {
        let called = name.or_else(|| variable::text(HOST_VARIABLE));
        let machine = Machine::here();
        Self { boot: machine.boot().to_owned(), name: called.unwrap_or_else(this_host::name), net: machine.network() }
    }

    /// Whether both are on one machine and in one network namespace, whatever they call it: Unix sockets reach.
    pub(super) fn is_machine_of(&self, other: &Self) -> bool {
        (&self.boot, &self.net) == (&other.boot, &other.net)
    }
}

impl fmt::Display for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.name.is_empty() { "a host without a name" } else { &self.name })
    }
}

/// The GPU of a PE.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct GpuInfo {
    /// The same in every process.
    pub(super) uuid: [u8; 16],
    /// As people know it.
    pub(super) name: String,
    /// Its memory can be handed to other processes.
    pub(super) descriptors: bool,
    /// And to other hosts of its NVLink domain.
    pub(super) fabric: bool,
    /// Atomics on host memory work together with those of others.
    pub(super) host_atomics: bool,
    /// What lengths of memory that can be handed on are multiples of.
    pub(super) granularity: usize,
    /// Bytes free.
    pub(super) free: usize,
}

/// One PE.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PeerInfo {
    /// Of the device library.
    pub(super) abi: u64,
    /// Where it runs.
    pub(super) host: HostId,
    /// The same for all PEs of a process, and for no others.
    pub(super) process: String,
    /// If its kernels run on a GPU.
    pub(super) gpu: Option<GpuInfo>,
    /// What it asks for.
    pub(super) heap_bytes: Option<usize>,
    /// What it asks for.
    pub(super) heap_kind: HeapKind,
    /// Where to ask for its memory, and what to show there.
    pub(super) listener: String,
    /// See `door`.
    pub(super) token: String,
    /// What it asks for.
    pub(super) transport: Transport,
    /// What it asks for.
    pub(super) network: NetworkSettings,
    /// By which address of its host others are to reach it, if it was told.
    pub(super) address: Option<IpAddr>,
    /// By which they may reach it otherwise.
    pub(super) route: Route,
}

impl PeerInfo {
    /// The card of a PE with this engine.
    pub(super) fn of(engine: &Engine, heap_bytes: Option<usize>, heap_kind: HeapKind) -> Result<Self, String> {
        let gpu = engine.space().gpu_context().map(|context| {
            let info = context.info();
            let (free, _) = context.memory().map_err(|e| e.to_string())?;
            let memory = info.virtual_memory;
            let granularity = if memory.supported && memory.descriptors {
                PhysicalMemory::granularity(context, Sharing::Host).map_err(|e| e.to_string())?
            } else {
                1
            };
            let bdf = info.bdf.map(|b| format!(", {b}")).unwrap_or_default();
            Ok::<_, String>(GpuInfo {
                uuid: info.uuid,
                name: format!("GPU {} ({}{bdf})", info.ordinal, info.name),
                descriptors: memory.supported && memory.descriptors,
                fabric: memory.supported && memory.fabric,
                host_atomics: info.host_native_atomics,
                granularity,
                free,
            })
        });
        Ok(Self {
            abi: abi::fingerprint(),
            host: HostId::here(),
            process: process_id()?,
            gpu: gpu.transpose()?,
            heap_bytes,
            heap_kind,
            listener: String::new(),
            token: String::new(),
            transport: Transport::default(),
            network: NetworkSettings::default(),
            address: None,
            route: Route::default(),
        })
    }
}

/// A name of this process that no other has.
fn process_id() -> Result<String, String> {
    static ID: OnceLock<String> = OnceLock::new();
    if let Some(id) = ID.get() {
        return Ok(id.clone());
    }
    let id = super::heap::secret().map_err(|e| format!("no random numbers: {e}"))?;
    Ok(ID.get_or_init(|| id).clone())
}

/// The heap that all PEs agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeapPlan {
    /// Bytes of each that programs can have.
    pub(super) asked: usize,
    /// With what the library itself needs.
    pub(super) bytes: usize,
    /// Bytes from one to the next.
    pub(super) stride: usize,
    /// What was asked for.
    pub(super) kind: HeapKind,
    /// What host calls move data through, where some PEs may be out of reach.
    pub(super) bounce: usize,
}

impl HeapPlan {
    /// What all agree on; the same on every PE, since all have the same cards.
    pub(super) fn of(peer_infos: &[PeerInfo]) -> Result<Self, ShmemError> {
        all_equal("the device library's ABI", peer_infos, |c| format!("{:#018x}", c.abi))?;
        all_equal("the kind of heap", peer_infos, |c| c.heap_kind.to_string())?;
        all_equal("the size of the symmetric heap", peer_infos, |c| match c.heap_bytes {
            Some(bytes) => Bytes(bytes as u64).to_string(),
            None => "the default".to_owned(),
        })?;
        all_equal("the transport (WARPBELL_TRANSPORT)", peer_infos, |c| c.transport.to_string())?;
        all_equal("the settings of the network", peer_infos, |c| {
            let NetworkSettings { queues_per_peer, queue_blocks, staging_bytes } = c.network;
            let text = |n: Option<usize>| n.map_or("default".to_owned(), |n| n.to_string());
            let (queues, staging) = (text(queues_per_peer), text(staging_bytes));
            format!("queues per peer {queues}, blocks {}, staging {staging}", text(queue_blocks.map(|n| n as usize)))
        })?;
        let pes = peer_infos.len();
        let peers = peer_infos[0].transport == Transport::Peer;
        let near = peer_infos[0].transport == Transport::Auto && hosts(peer_infos).len() == 1;
        let bounce = if peers || near { 0 } else { BOUNCE_BYTES };
        let asked = match peer_infos[0].heap_bytes {
            Some(bytes) => bytes,
            None => default_bytes(peer_infos)?,
        };
        let kind = peer_infos[0].heap_kind;
        let granularity = peer_infos.iter().filter_map(|c| c.gpu.as_ref()).map(|g| g.granularity).max().unwrap_or(1);
        let unit = granularity.max(HEAP_ALIGN);
        let too_large =
            || ShmemError::Heap { bytes: asked, pes, reason: "more than 64 bits can address; ask for less".to_owned() };
        let bytes = own_bytes(asked, pes)
            .checked_add(asked)
            .and_then(|b| b.checked_add(bounce))
            .and_then(|b| b.checked_next_multiple_of(super::symmetric_allocator::ALIGN));
        let bytes = bytes.ok_or_else(too_large)?;
        let stride = bytes.checked_next_multiple_of(unit).ok_or_else(too_large)?;
        // What files and mappings can be.
        stride.checked_mul(pes).filter(|all| isize::try_from(*all).is_ok()).ok_or_else(too_large)?;
        Ok(Self { asked, bytes, stride, kind, bounce })
    }
}

/// An error that names who differs, unless all say the same.
fn all_equal(what: &'static str, peer_infos: &[PeerInfo], say: impl Fn(&PeerInfo) -> String) -> Result<(), ShmemError> {
    let asked: Vec<String> = peer_infos.iter().map(say).collect();
    if asked.iter().all(|a| *a == asked[0]) { Ok(()) } else { Err(ShmemError::Unequal { what, asked }) }
}

/// 64 MiB where CPU engines take part. On GPUs 1 GiB, or what fits beside the other PEs of the GPU, with a quarter left for others.
fn default_bytes(peer_infos: &[PeerInfo]) -> Result<usize, ShmemError> {
    let mut least = GPU_HEAP;
    for (rank, peer_info) in peer_infos.iter().enumerate() {
        let Some(gpu) = &peer_info.gpu else { return Ok(CPU_HEAP) };
        let is_same = |c: &&PeerInfo| c.gpu.as_ref().is_some_and(|g| g.uuid == gpu.uuid);
        let sharing = peer_infos.iter().filter(is_same).count();
        let fits = (gpu.free / 4 * 3 / sharing) / HEAP_ALIGN * HEAP_ALIGN;
        let with_own = |asked: usize| asked + own_bytes(asked, peer_infos.len());
        let mut asked = fits.min(GPU_HEAP);
        while asked > 0 && with_own(asked) > fits {
            asked = asked.saturating_sub(HEAP_ALIGN);
        }
        if asked == 0 {
            let reason = format!(
                "{} of rank {rank} has {} free for {sharing} PEs: free memory on it (nvidia-smi), or use fewer PEs",
                gpu.name,
                Bytes(gpu.free as u64)
            );
            return Err(ShmemError::Heap { bytes: GPU_HEAP, pes: peer_infos.len(), reason });
        }
        least = least.min(asked);
    }
    Ok(least)
}

/// Hosts by name with the ranks on each, as in `ranks 0-3 on a, 4-7 on b`.
pub(super) fn hosts(peer_infos: &[PeerInfo]) -> Vec<(HostId, Vec<usize>)> {
    let mut hosts: Vec<(HostId, Vec<usize>)> = Vec::new();
    for (rank, peer_info) in peer_infos.iter().enumerate() {
        match hosts.iter_mut().find(|(host, _)| *host == peer_info.host) {
            Some((_, ranks)) => ranks.push(rank),
            None => hosts.push((peer_info.host.clone(), vec![rank])),
        }
    }
    hosts
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(crate) fn peer_info() -> PeerInfo {
        PeerInfo::of(&Engine::cpu().unwrap(), None, HeapKind::Auto).unwrap()
    }

    fn gpu(uuid: u8, free: usize) -> PeerInfo {
        let gpu = GpuInfo {
            uuid: [uuid; 16],
            name: format!("GPU {uuid}"),
            descriptors: true,
            fabric: false,
            host_atomics: false,
            granularity: HEAP_ALIGN,
            free,
        };
        PeerInfo { gpu: Some(gpu), ..peer_info() }
    }

    #[test]
    fn defaults_are_what_fits() {
        let plan = |peer_infos: &[PeerInfo]| HeapPlan::of(peer_infos);
        assert_eq!(plan(&[peer_info(), peer_info()]).unwrap().asked, CPU_HEAP);
        assert_eq!(plan(&[gpu(1, 140 << 30), peer_info()]).unwrap().asked, CPU_HEAP);
        assert_eq!(plan(&[gpu(1, 140 << 30), gpu(2, 140 << 30)]).unwrap().asked, GPU_HEAP);
        // Two on one GPU share what is free.
        let two = plan(&[gpu(1, 1 << 30), gpu(1, 1 << 30)]).unwrap();
        assert!(two.stride <= 384 << 20 && two.asked > 300 << 20, "{two:?}");
        let e = plan(&[gpu(1, 1 << 30), gpu(2, 2 << 20)]).unwrap_err().to_string();
        assert!(e.contains("GPU 2") && e.contains("2 MiB free"), "{e}");
    }

    #[test]
    fn ranks_that_ask_for_different_heaps_are_named() {
        let asks = |bytes| PeerInfo { heap_bytes: bytes, ..peer_info() };
        let e = HeapPlan::of(&[asks(Some(1 << 20)), asks(Some(1 << 20)), asks(None), asks(Some(2 << 20))]).unwrap_err();
        let e = e.to_string();
        assert!(
            e.contains("ranks 0-1: 1 MiB") && e.contains("rank 2: the default") && e.contains("rank 3: 2 MiB"),
            "{e}"
        );
        let kinds = [peer_info(), PeerInfo { heap_kind: HeapKind::Host, ..peer_info() }];
        let e = HeapPlan::of(&kinds).unwrap_err().to_string();
        assert!(e.contains("rank 0: auto") && e.contains("rank 1: host"), "{e}");
        assert!(HeapPlan::of(&[asks(Some(usize::MAX))]).is_err());
        assert!(HeapPlan::of(&[asks(Some(1 << 62)), asks(Some(1 << 62))]).is_err());
    }

    #[test]
    fn hosts_are_listed_with_their_ranks() {
        let mut other = peer_info();
        other.host.name = "elsewhere".to_owned();
        let all = [peer_info(), other.clone(), peer_info(), other];
        let found: Vec<Vec<usize>> = hosts(&all).into_iter().map(|(_, ranks)| ranks).collect();
        assert_eq!(found, [vec![0, 2], vec![1, 3]]);
    }

    #[test]
    fn peer_infos_come_back() {
        let peer_info = gpu(3, 5);
        let text = serde_json::to_string(&peer_info).unwrap();
        assert_eq!(serde_json::from_str::<PeerInfo>(&text).unwrap(), peer_info);
    }
}
