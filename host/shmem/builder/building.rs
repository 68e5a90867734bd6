//! The steps that build a world.

use super::heaps::Group;
use super::ranks::Ranks;
use super::reach;
use crate::engine::{Engine, abi};
use crate::rdma::Adapter;
use crate::shmem::bootstrap::{self, Bootstrap, Environment, Route, Secret};
use crate::shmem::heap::{DescriptorListener, Heap, HeapKind, Links};
use crate::shmem::network::{self, Available, Network, NetworkPlan, NetworkSettings, Opening, Prepared};
use crate::shmem::path::{Handover, Link, NetworkPath, WorldPath};
use crate::shmem::peer_info::{self, HeapPlan, HostId, PeerInfo};
use crate::shmem::world::{OwnMemory, WorldParts};
use crate::shmem::{ShmemError, Transport};
use bytemuck::Zeroable;
use std::net::IpAddr;

/// Prefix of the purpose from which the key of a world's software NICs is derived. The key proves that a NIC belongs to
/// the world.
const KEY_PURPOSE: &str = "software NICs of the world of ";

/// A heap as one rank has mapped it, with the links to the other heaps.
pub(super) struct MadeHeap {
    pub(super) heap: Heap,
    pub(super) links: Links,
    pub(super) handover: Handover,
}

/// The settings that this rank requests.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) heap_bytes: Option<usize>,
    pub(super) heap_kind: HeapKind,
    pub(super) transport: Transport,
    pub(super) network: NetworkSettings,
    pub(super) address: Option<IpAddr>,
    /// An adapter that the program provides.
    pub(super) adapter: Option<Box<dyn Adapter>>,
    /// The name that the program gives its host.
    pub(super) host: Option<String>,
}

pub(super) struct Building<'a> {
    pub(super) engine: &'a Engine,
    pub(super) ranks: Ranks<'a>,
    pub(super) checked: bool,
}

impl Building<'_> {
    pub(super) fn run(&self, asked: Request) -> Result<WorldParts, ShmemError> {
        let heap_bytes = asked.heap_bytes;
        let listener = DescriptorListener::open().map_err(|e| format!("cannot open a Unix socket: {e}"));
        let ready = self.engine.prepare("").map_err(|e| e.to_string());
        let peer_info = match &listener {
            Ok(listener) => {
                ready.and_then(|()| PeerInfo::of(self.engine, heap_bytes, asked.heap_kind)).map(|peer_info| PeerInfo {
                    host: HostId::called(asked.host.clone()),
                    listener: listener.name.clone(),
                    token: listener.token.clone(),
                    transport: asked.transport,
                    network: asked.network,
                    address: asked.address,
                    route: self.ranks.bootstrap.route(),
                    ..peer_info
                })
            }
            Err(e) => Err(e.clone()),
        };
        let peer_infos = self.ranks.vote(&peer_info)?.map_err(|e| self.no_heap(heap_bytes, e))?;
        let listener = listener.map_err(|e| self.no_heap(heap_bytes, e))?;
        let plan = HeapPlan::of(&peer_infos)?;

        let all = Group::new((0..peer_infos.len()).collect(), peer_infos.len());
        let one_host = reach::one_host(&peer_infos).is_ok();
        let by_fabric = plan.kind != HeapKind::Host && reach::one_fabric(&peer_infos);
        let mut note = None;
        if asked.transport == Transport::Peer || asked.transport == Transport::Auto && (one_host || by_fabric) {
            match self.heaps(&listener, &peer_infos, &plan, &all, false)? {
                Ok((made, note)) => return self.finish(made, None, &peer_infos, &plan, note, &all),
                // Other transports exist between hosts.
                Err(reason) if asked.transport == Transport::Auto && !one_host => note = Some(reason),
                Err(reason) => return Err(self.no_heap(Some(plan.asked), reason)),
            }
        }
        let group = reach::group(&peer_infos, self.ranks.me());
        let (adapter, why) = self.adapter(asked.transport, asked.adapter, &peer_infos)?;
        let serviced_by_threads = adapter.path().transport == crate::rdma::Transport::Soft;
        let heaps = self.heaps(&listener, &peer_infos, &plan, &group, serviced_by_threads)?;
        let (made, second) = heaps.map_err(|reason| self.no_heap(Some(plan.asked), reason))?;
        let network = self.network(asked.transport, adapter, &made.heap, &peer_infos, &plan, &group)?;
        let notes: Vec<String> = [note, why, second].into_iter().flatten().collect();
        let note = (!notes.is_empty()).then(|| notes.join("; "));
        self.finish(made, Some(network), &peer_infos, &plan, note, &group)
    }

    /// Builds the heaps of the PEs of a group. Collective.
    ///
    /// Returns this rank's heap, with a note if the heaps are not in their first choice of memory; or the reason why
    /// there are none.
    ///
    /// CPU threads move the data of a software NIC (`serviced_by_threads`). Heaps are then in host memory unless
    /// another place was requested.
    fn heaps(
        &self,
        listener: &DescriptorListener,
        peer_infos: &[PeerInfo],
        plan: &HeapPlan,
        group: &Group,
        serviced_by_threads: bool,
    ) -> Result<Result<(MadeHeap, Option<String>), String>, ShmemError> {
        let gpus = peer_infos.iter().filter(|c| c.gpu.is_some()).count();
        let auto = plan.kind == HeapKind::Auto;
        let mut note = None;
        if gpus > 0 && plan.kind != HeapKind::Host && !(auto && serviced_by_threads) {
            match self.on_device(listener, peer_infos, plan, group)? {
                Ok(made) => return Ok(Ok((made, None))),
                // A CPU engine reaches no GPU's memory. That is expected and needs no note.
                Err(reason) if auto => note = (gpus == peer_infos.len()).then_some(reason),
                Err(reason) => return Ok(Err(reason)),
            }
        }
        Ok(match self.in_host(listener, peer_infos, plan, group)? {
            Ok(made) => Ok((made, note)),
            Err(second) => {
                let first = note.map(|n| format!("; in GPU memory: {n}")).unwrap_or_default();
                Err(second + &first)
            }
        })
    }

    /// Opens the best adapter that every PE has. Also returns the reason why the adapter is not a better one.
    /// Collective.
    fn adapter(
        &self,
        asked: Transport,
        given: Option<Box<dyn Adapter>>,
        peer_infos: &[PeerInfo],
    ) -> Result<(Box<dyn Adapter>, Option<String>), ShmemError> {
        let me = self.ranks.me();
        let opened: Vec<_> = match given {
            Some(adapter) => vec![(adapter.path().transport, Ok(adapter))],
            None => {
                let opening = self.opening(peer_infos)?;
                let open = |t| (t, network::open(t, &opening).map_err(|e| e.to_string()));
                network::candidates(asked.adapter()).into_iter().map(open).collect()
            }
        };
        let why = |(t, o): &(_, Result<_, String>)| (*t, o.as_ref().err().cloned());
        let mine: Result<Available, String> = Ok(Available::of(opened.iter().map(why)));
        let pes = peer_infos.len();
        let none = |reason: String| ShmemError::Transport { transport: asked, pes, reason };
        let all = self.ranks.vote(&mine)?.map_err(none)?;
        let (chosen, note) = network::choose(&all).map_err(none)?;
        let found = opened.into_iter().find(|(t, _)| *t == chosen).and_then(|(_, o)| o.ok());
        let adapter = found.ok_or_else(|| none(format!("rank {me} has no {chosen} adapter")))?;
        Ok((adapter, note))
    }

    fn opening(&self, peer_infos: &[PeerInfo]) -> Result<Opening, ShmemError> {
        let me = self.ranks.me();
        let routes: Vec<Route> = peer_infos.iter().map(|c| c.route).collect();
        Ok(Opening {
            space: self.engine.space().clone(),
            key: self.key(peer_infos)?,
            address: peer_infos[me].address.or_else(|| network::reached_at(me, &routes)),
            across: peer_infos.iter().any(|c| c.host != peer_infos[me].host),
            sharers: peer_infos.iter().filter(|c| c.host == peer_infos[me].host).count(),
        })
    }

    /// Returns the key that software NICs of this world use to authenticate each other. Other worlds with the same
    /// secret have other keys. Collective.
    fn key(&self, peer_infos: &[PeerInfo]) -> Result<Option<[u8; 32]>, ShmemError> {
        if peer_infos.iter().any(|c| c.process != peer_infos[0].process) {
            return Ok(secret_key(self.ranks.bootstrap, &format!("{KEY_PURPOSE}{}", peer_infos[0].token)));
        }
        // NICs of one process exchange nothing that leaves the process.
        let mine = bootstrap::random_key().map_err(|e| e.to_string());
        Ok(self.ranks.vote(&mine)?.ok().and_then(|all| all.first().copied()))
    }

    /// Connects every PE with every other PE. Collective.
    fn network(
        &self,
        asked: Transport,
        adapter: Box<dyn Adapter>,
        heap: &Heap,
        peer_infos: &[PeerInfo],
        plan: &HeapPlan,
        group: &Group,
    ) -> Result<Network, ShmemError> {
        let (me, pes) = (self.ranks.me(), peer_infos.len());
        let transport = if asked == Transport::Auto { adapter.path().transport.into() } else { asked };
        let none = |reason: String| ShmemError::Transport { transport, pes, reason };
        let size = NetworkPlan::new(peer_infos[0].network, pes, peer_infos.iter().any(|c| c.gpu.is_some()));
        // SAFETY: the network is dropped before its heap everywhere: here, in `finish`, and with the world.
        let mut prepared = unsafe { Prepared::new(adapter, heap.range(), self.engine, size, pes) };
        let mine = prepared.as_ref().map(Prepared::connection_info).map_err(ToString::to_string);
        let connection_infos = self.ranks.vote(&mine)?.map_err(none)?;
        let own = abi::Network {
            control: self.engine.control_address(),
            local: heap.address(),
            heap_bytes: plan.bytes as u64,
            stride: plan.stride as u64,
            pe: me as u32,
            size: pes as u32,
            ..abi::Network::zeroed()
        };
        let near: Vec<bool> = (0..pes).map(|pe| group.members.contains(&pe)).collect();
        let tables = match &mut prepared {
            Ok(prepared) => prepared.connect(me, &connection_infos, &near, own),
            Err(e) => Err(e.to_string()),
        };
        let tables = self.ranks.agree(tables)?.map_err(none)?;
        Ok(prepared.map_err(|e| none(e.to_string()))?.connected(tables))
    }

    fn finish(
        &self,
        made: MadeHeap,
        network: Option<Network>,
        peer_infos: &[PeerInfo],
        plan: &HeapPlan,
        note: Option<String>,
        group: &Group,
    ) -> Result<WorldParts, ShmemError> {
        let place = (self.ranks.me(), peer_infos.len());
        let own = OwnMemory::new(self.engine, &made.heap, plan.asked, place, self.checked, plan.bounce);
        let own = self.ranks.agree(own.map_err(|e| e.to_string()))?;
        let own = own.map_err(|e| self.no_heap(Some(plan.asked), e))?;
        let path = self.path(&made, network.as_ref(), peer_infos, plan, note, group);
        let hosts = peer_infos.iter().map(|c| c.host.clone()).collect();
        Ok(WorldParts { heap: made.heap, own, path, hosts, network })
    }

    fn no_heap(&self, bytes: Option<usize>, reason: String) -> ShmemError {
        ShmemError::Heap { bytes: bytes.unwrap_or(0), pes: self.ranks.bootstrap.size(), reason }
    }

    fn path(
        &self,
        made: &MadeHeap,
        network: Option<&Network>,
        peer_infos: &[PeerInfo],
        plan: &HeapPlan,
        note: Option<String>,
        group: &Group,
    ) -> WorldPath {
        let (links, on_device) = (made.links, made.heap.is_on_device());
        let gpus = group.members.iter().any(|pe| peer_infos[*pe].gpu.is_some());
        let link = match (group.members.len(), on_device) {
            (1, _) => Link::Alone,
            (_, true) if links.one_gpu => Link::OneGpu,
            (_, true) if links.atomics => Link::NvLink,
            (_, true) => Link::Pcie,
            (_, false) if gpus => Link::HostMemory,
            (_, false) => Link::SharedMemory,
        };
        let network = network.map(|n| NetworkPath::new(n, peer_infos, |pe| reach::group(peer_infos, pe).members));
        WorldPath {
            transport: network.as_ref().map_or("peer", NetworkPath::transport),
            pes: peer_infos.len(),
            hosts: peer_info::hosts(peer_infos).len(),
            link,
            handover: made.handover,
            heap_bytes: plan.asked,
            on_device,
            atomics: network.is_none() && links.atomics,
            network,
            note,
            via: self.ranks.bootstrap.via(),
        }
    }
}

/// Returns the key of all ranks: the bootstrap's key, or one derived from the secret in the environment.
fn secret_key(bootstrap: &dyn Bootstrap, purpose: &str) -> Option<[u8; 32]> {
    bootstrap.key(purpose).or_else(|| {
        let variable = |name: &str| Some((name.to_owned(), std::env::var(name).ok()?));
        let environment: Environment =
            ["WARPBELL_SECRET", "WARPBELL_SECRET_FILE"].into_iter().filter_map(variable).collect();
        Some(Secret::find(&environment).ok()??.key(purpose))
    })
}
