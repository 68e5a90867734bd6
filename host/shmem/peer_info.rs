//! The data that each PE sends to all others when a world is built, and the heap plan that all PEs derive from it.

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

/// Default size of a heap in bytes, if it fits. A world is often a guest: the rest of the GPU's memory is the program's.
pub(super) const DEFAULT_HEAP: usize = 64 << 20;

/// The identity of a host. It changes when the machine boots.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct HostId {
    /// The boot id of the machine.
    boot: String,
    /// The name of the host. A container has its own name.
    pub(crate) name: String,
    /// The network namespace. Unix sockets pass the memory of heaps, and do not reach into another namespace.
    #[serde(default)]
    net: String,
    /// The user. Containers of one pod may run as different users, which are not given each other's memory.
    #[serde(default)]
    user: String,
}

/// The environment variable that names the host. Processes that give their host different names share no memory.
const HOST_VARIABLE: &str = "WARPBELL_HOST_ID";

impl HostId {
    /// Returns the identity of this host.
    pub(crate) fn here() -> Self {
        Self::called(None)
    }

    /// Returns the identity of this host under `name`, otherwise the environment's name, otherwise the host's own name.
    pub(crate) fn called(name: Option<String>) -> Self {
        let called = name.or_else(|| variable::text(HOST_VARIABLE));
        let machine = Machine::here();
        Self {
            boot: machine.boot().to_owned(),
            name: called.unwrap_or_else(this_host::name),
            net: machine.network(),
            user: this_host::user(),
        }
    }

    /// Returns true if both are on one machine, in one network namespace, and of one user, whatever their names. Unix
    /// sockets then work between them.
    pub(super) fn is_machine_of(&self, other: &Self) -> bool {
        (&self.boot, &self.net, &self.user) == (&other.boot, &other.net, &other.user)
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
    /// The UUID of the GPU, which is the same in every process.
    pub(super) uuid: [u8; 16],
    /// The name of the GPU in messages.
    pub(super) name: String,
    /// True if the GPU's memory can be shared with other processes by file descriptors.
    pub(super) descriptors: bool,
    /// True if the GPU's memory can be shared with other hosts of its NVLink domain by fabric handles.
    pub(super) fabric: bool,
    /// True if the GPU's atomics on host memory are atomic with respect to other processors.
    pub(super) host_atomics: bool,
    /// Granularity of shareable memory: lengths are multiples of this many bytes.
    pub(super) granularity: usize,
    /// Free bytes.
    pub(super) free: usize,
}

/// One PE, as it describes itself to the others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PeerInfo {
    /// The ABI fingerprint of the device library.
    pub(super) abi: u64,
    /// The host of the PE.
    pub(super) host: HostId,
    /// An id that all PEs of one process share, and no other PE has.
    pub(super) process: String,
    /// The GPU that runs the PE's kernels, if any.
    pub(super) gpu: Option<GpuInfo>,
    /// Requested bytes of each heap.
    pub(super) heap_bytes: Option<usize>,
    /// Requested kind of heap.
    pub(super) heap_kind: HeapKind,
    /// Name of the descriptor listener that hands out the PE's memory.
    pub(super) listener: String,
    /// Token that a caller must show to the descriptor listener.
    pub(super) token: String,
    /// Requested transport.
    pub(super) transport: Transport,
    /// Requested network settings.
    pub(super) network: NetworkSettings,
    /// The address of its host that other PEs shall use, if one was configured.
    pub(super) address: Option<IpAddr>,
    /// The addresses that the bootstrap knows for this rank.
    pub(super) route: Route,
}

impl PeerInfo {
    /// Describes a PE with this engine. The caller fills in the listener, the transport, the network and the addresses.
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

/// Returns an id of this process that no other process has.
fn process_id() -> Result<String, String> {
    static ID: OnceLock<String> = OnceLock::new();
    if let Some(id) = ID.get() {
        return Ok(id.clone());
    }
    let id = super::heap::secret().map_err(|e| format!("no random numbers: {e}"))?;
    Ok(ID.get_or_init(|| id).clone())
}

/// The layout of the heaps, on which all PEs agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HeapPlan {
    /// Bytes of each heap that programs can allocate.
    pub(super) asked: usize,
    /// Bytes of each heap, including those that the library itself needs.
    pub(super) bytes: usize,
    /// Bytes from the beginning of one heap to the next.
    pub(super) stride: usize,
    /// Requested kind of heap.
    pub(super) kind: HeapKind,
    /// Bytes of the bounce buffer for host calls; 0 if loads and stores are sure to reach all PEs.
    pub(super) bounce: usize,
}

impl HeapPlan {
    /// Derives the plan from the infos of all PEs. The result is the same on every PE, since all have the same infos.
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
        let too_large = || ShmemError::Heap {
            bytes: asked,
            pes,
            reason: "the heaps together exceed 64-bit addresses; use a smaller heap".to_owned(),
        };
        let bytes = own_bytes(asked, pes)
            .checked_add(asked)
            .and_then(|b| b.checked_add(bounce))
            .and_then(|b| b.checked_next_multiple_of(super::symmetric_allocator::ALIGN));
        let bytes = bytes.ok_or_else(too_large)?;
        let stride = bytes.checked_next_multiple_of(unit).ok_or_else(too_large)?;
        // A file or a mapping cannot be larger than `isize::MAX`.
        stride.checked_mul(pes).filter(|all| isize::try_from(*all).is_ok()).ok_or_else(too_large)?;
        Ok(Self { asked, bytes, stride, kind, bounce })
    }
}

/// Fails with an error that names the ranks that differ, unless all give the same value.
fn all_equal(what: &'static str, peer_infos: &[PeerInfo], say: impl Fn(&PeerInfo) -> String) -> Result<(), ShmemError> {
    let asked: Vec<String> = peer_infos.iter().map(say).collect();
    if asked.iter().all(|a| *a == asked[0]) { Ok(()) } else { Err(ShmemError::Unequal { what, asked }) }
}

/// Returns the default heap size in bytes: 64 MiB, or less on GPUs with little free memory. The heaps of all PEs of a GPU
/// fit into three quarters of that memory.
fn default_bytes(peer_infos: &[PeerInfo]) -> Result<usize, ShmemError> {
    let mut least = DEFAULT_HEAP;
    for (rank, peer_info) in peer_infos.iter().enumerate() {
        let Some(gpu) = &peer_info.gpu else { return Ok(DEFAULT_HEAP) };
        let is_same = |c: &&PeerInfo| c.gpu.as_ref().is_some_and(|g| g.uuid == gpu.uuid);
        let sharing = peer_infos.iter().filter(is_same).count();
        let fits = (gpu.free / 4 * 3 / sharing) / HEAP_ALIGN * HEAP_ALIGN;
        let with_own = |asked: usize| asked + own_bytes(asked, peer_infos.len());
        let mut asked = fits.min(DEFAULT_HEAP);
        while asked > 0 && with_own(asked) > fits {
            asked = asked.saturating_sub(HEAP_ALIGN);
        }
        if asked == 0 {
            let reason = format!(
                "{} of rank {rank} has {} free for {sharing} PEs: free memory on it (nvidia-smi), or use fewer PEs",
                gpu.name,
                Bytes(gpu.free as u64)
            );
            return Err(ShmemError::Heap { bytes: DEFAULT_HEAP, pes: peer_infos.len(), reason });
        }
        least = least.min(asked);
    }
    Ok(least)
}

/// Returns the hosts, each with its ranks.
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
        assert_eq!(plan(&[peer_info(), peer_info()]).unwrap().asked, DEFAULT_HEAP);
        assert_eq!(plan(&[gpu(1, 140 << 30), peer_info()]).unwrap().asked, DEFAULT_HEAP);
        assert_eq!(plan(&[gpu(1, 140 << 30), gpu(2, 140 << 30)]).unwrap().asked, DEFAULT_HEAP);
        // Two PEs on one GPU share its free memory.
        let two = plan(&[gpu(1, 128 << 20), gpu(1, 128 << 20)]).unwrap();
        assert!(two.stride <= 48 << 20 && two.asked > 30 << 20, "{two:?}");
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
        // Pods have network namespaces of their own, perhaps with one name, and their containers perhaps other users.
        for differ in [|h: &mut HostId| h.net = "net:[1]".to_owned(), |h: &mut HostId| h.user = "7".to_owned()] {
            let mut pod = peer_info();
            differ(&mut pod.host);
            assert!(!pod.host.is_machine_of(&peer_info().host));
            assert_eq!(hosts(&[peer_info(), pod]).len(), 2);
        }
    }

    #[test]
    fn peer_infos_come_back() {
        let peer_info = gpu(3, 5);
        let text = serde_json::to_string(&peer_info).unwrap();
        assert_eq!(serde_json::from_str::<PeerInfo>(&text).unwrap(), peer_info);
    }
}
