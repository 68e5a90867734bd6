//! A printable description of the links between the PEs of a world.

use super::network::{Network, NetworkPlan};
use super::peer_info::PeerInfo;
use super::transport::Transport;
use crate::rdma::{self, AdapterPath};
use crate::units::Bytes;
use serde::Serialize;
use std::fmt;

/// The link by which loads and stores reach heaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Link {
    /// The PE is alone.
    Alone,
    /// PEs are threads of one process, with CPU engines.
    Threads,
    /// PEs are processes of one host that share memory.
    SharedMemory,
    /// PEs share one GPU.
    OneGpu,
    /// Each PE has a GPU; the links between them carry atomics.
    NvLink,
    /// Each PE has a GPU; the links between some do not carry atomics.
    Pcie,
    /// GPUs access heaps in host memory.
    HostMemory,
}

/// The mechanism that shares a heap's memory with the other PEs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Handover {
    /// One mapping in one process.
    OneMapping,
    /// A memory file (memfd).
    MemoryFile,
    /// GPU memory of the CUDA virtual memory API. Other processes get file descriptors.
    VirtualMemory,
    /// GPU memory, shared between hosts by fabric handles.
    Fabric,
}

/// The path to PEs that loads and stores do not reach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NetworkPath {
    /// This PE's adapter.
    pub adapter: AdapterPath,
    /// The links that carry the data between these PEs, for example `Unix sockets`, `tcp 10.0.0.1:40123` or
    /// `mlx5_0 port 1, RoCE v2 ...`.
    pub route: String,
    /// Number and size of queue pairs and rings.
    pub size: NetworkPlan,
    /// Groups of PEs that reach each other by loads and stores. All other pairs of PEs use the adapter.
    pub within_reach: Vec<Vec<usize>>,
}

impl NetworkPath {
    pub(super) fn new(network: &Network, peer_infos: &[PeerInfo], group: impl Fn(usize) -> Vec<usize>) -> Self {
        let mut within_reach: Vec<Vec<usize>> = Vec::new();
        for pe in 0..peer_infos.len() {
            if !within_reach.iter().any(|g| g.contains(&pe)) {
                within_reach.push(group(pe));
            }
        }
        let (adapter, size) = (network.path().clone(), network.plan());
        Self { route: route(&adapter, peer_infos), adapter, size, within_reach }
    }

    /// Returns the name of the transport, for example `soft`, or `peer+soft` if some pairs use loads and stores.
    pub(super) fn transport(&self) -> &'static str {
        use rdma::Transport::{Mlx5, Soft, Verbs};
        match (self.is_mixed(), self.adapter.transport) {
            (false, Mlx5) => "mlx5",
            (false, Verbs) => "verbs",
            (false, Soft) => "soft",
            (true, Mlx5) => "peer+mlx5",
            (true, Verbs) => "peer+verbs",
            (true, Soft) => "peer+soft",
        }
    }

    fn is_mixed(&self) -> bool {
        self.within_reach.iter().any(|g| g.len() > 1)
    }

    /// Returns the transport between PEs `a` and `b`.
    pub fn between(&self, a: usize, b: usize) -> Transport {
        let together = self.within_reach.iter().any(|g| g.contains(&a) && g.contains(&b));
        if together { Transport::Peer } else { self.adapter.transport.into() }
    }
}

/// Names the adapter's links that connect these PEs. A software NIC has a link for each distance.
fn route(adapter: &AdapterPath, peer_infos: &[PeerInfo]) -> String {
    let (device, link) = (&adapter.device, &adapter.link);
    if adapter.transport != rdma::Transport::Soft {
        return if link.is_empty() { device.clone() } else { format!("{device}, {link}") };
    }
    let has = |name: &str| link.split(", ").find(|l| l.starts_with(name));
    let over_tcp = has("tcp").unwrap_or("tcp").to_owned();
    let between = |a: &PeerInfo, b: &PeerInfo| match (has("one process"), has("Unix")) {
        (Some(_), _) if a.process == b.process => "one process".to_owned(),
        (_, Some(_)) if a.host.is_machine_of(&b.host) => "Unix sockets".to_owned(),
        _ => over_tcp.clone(),
    };
    // Distances are symmetric, so each pair of PEs is looked at once.
    let mut routes: Vec<String> = Vec::new();
    for (i, a) in peer_infos.iter().enumerate() {
        let others = peer_infos[i + 1..].iter().filter(|b| a.host != b.host || a.transport.adapter().is_some());
        for found in others.map(|b| between(a, b)) {
            if !routes.contains(&found) {
                routes.push(found);
            }
        }
    }
    if routes.is_empty() { "one process".to_owned() } else { routes.join(", ") }
}

/// The path between the PEs of a world: the choice that was made, and the reason if there was an alternative.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WorldPath {
    /// The transport between the PEs: `peer`, `mlx5`, `verbs` or `soft`; for example `peer+soft` if pairs differ.
    pub transport: &'static str,
    /// Number of PEs.
    pub pes: usize,
    /// Number of hosts.
    pub hosts: usize,
    /// The link between PEs that reach each other by loads and stores.
    pub link: Link,
    /// The mechanism that shares heap memory between PEs.
    pub handover: Handover,
    /// Bytes of each heap that programs can allocate.
    pub heap_bytes: usize,
    /// True if heaps are in GPU memory.
    pub on_device: bool,
    /// True if atomic instructions work between all PEs. Always false in a world with a network, whose adapters do the
    /// atomic operations.
    pub atomics: bool,
    /// The path to PEs that loads and stores do not reach, if there are any.
    pub network: Option<NetworkPath>,
    /// The reason why the first choice was not available.
    pub note: Option<String>,
    /// The mechanism by which the ranks found each other.
    pub via: String,
}

impl fmt::Display for WorldPath {
    /// Writes one line, as in `peer 4 PEs (NVLink, VMM), heap 1 GiB device, atomics native`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let link = match self.link {
            Link::Alone => "alone",
            Link::Threads => "threads",
            Link::SharedMemory => "shared memory",
            Link::OneGpu => "one GPU",
            Link::NvLink => "NVLink",
            Link::Pcie => "PCIe",
            Link::HostMemory => "host memory",
        };
        let s = if self.pes == 1 { "" } else { "s" };
        let (pes, hosts) = (self.pes, self.hosts);
        let is_mixed = self.network.as_ref().is_some_and(NetworkPath::is_mixed);
        match &self.network {
            None => write!(f, "{} {pes} PE{s} ({link}", self.transport)?,
            Some(n) if is_mixed => {
                let (within, between) = if hosts > 1 {
                    ("within hosts", format!("between {hosts} hosts"))
                } else {
                    ("within groups", "elsewhere".to_owned())
                };
                write!(f, "peer {within} ({link}), {} {between} ({}), {pes} PE{s}", n.adapter.transport, n.route)?;
            }
            Some(n) => write!(f, "{} {pes} PE{s} ({}", self.transport, n.route)?,
        }
        if !is_mixed {
            if hosts > 1 {
                write!(f, ", {hosts} hosts")?;
            }
            match self.handover {
                Handover::VirtualMemory => f.write_str(", VMM")?,
                Handover::Fabric => f.write_str(", fabric handles")?,
                Handover::OneMapping | Handover::MemoryFile => {}
            }
            f.write_str(")")?;
        }
        let place = if self.on_device { "device" } else { "host" };
        let atomics = match (&self.network, self.atomics) {
            (Some(_), _) => "by adapter",
            (None, true) => "native",
            (None, false) => "none",
        };
        write!(f, ", heap {} {place}, atomics {atomics}", Bytes(self.heap_bytes as u64))?;
        match &self.note {
            Some(note) => write!(f, " ({note})"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_one_line() {
        let path = WorldPath {
            transport: "peer",
            pes: 4,
            hosts: 1,
            link: Link::NvLink,
            handover: Handover::VirtualMemory,
            heap_bytes: 1 << 30,
            on_device: true,
            atomics: true,
            network: None,
            note: None,
            via: "torchrun".into(),
        };
        assert_eq!(path.to_string(), "peer 4 PEs (NVLink, VMM), heap 1 GiB device, atomics native");
        let host = WorldPath {
            link: Link::HostMemory,
            handover: Handover::MemoryFile,
            on_device: false,
            atomics: false,
            note: Some("rank 0: GPU 0 cannot reach GPU 1".into()),
            ..path
        };
        let text = host.to_string();
        let adapter = AdapterPath::new(rdma::Transport::Soft, "soft nic");
        let size = NetworkPlan { queues_per_peer: 1, queue_blocks: 256, staging_bytes: 4096 };
        let groups = vec![vec![0, 1], vec![2, 3]];
        let network = NetworkPath { adapter, route: "tcp 10.0.0.1:7".into(), size, within_reach: groups };
        let mixed = WorldPath {
            network: Some(network.clone()),
            hosts: 2,
            link: Link::SharedMemory,
            note: None,
            ..host.clone()
        };
        let expected = "peer within hosts (shared memory), soft between 2 hosts (tcp 10.0.0.1:7), 4 PEs, heap 1 GiB host, atomics by adapter";
        assert_eq!(mixed.to_string(), expected);
        let alone =
            NetworkPath { within_reach: (0..4).map(|pe| vec![pe]).collect(), route: "Unix sockets".into(), ..network };
        let forced = WorldPath { transport: "soft", network: Some(alone), hosts: 1, ..mixed };
        assert_eq!(forced.to_string(), "soft 4 PEs (Unix sockets), heap 1 GiB host, atomics by adapter");
        assert!(text.starts_with("peer 4 PEs (host memory), heap 1 GiB host, atomics none (rank 0"), "{text}");
    }
}
