//! How the PEs of a world reach each other, in words.

use super::card::Card;
use super::network::{Network, NetworkPlan, Transport};
use crate::rdma::{self, AdapterPath};
use crate::units::Bytes;
use serde::Serialize;
use std::fmt;

/// How heaps are reached by loads and stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Link {
    /// There is nobody else.
    Alone,
    /// PEs are threads of one process, on CPU engines.
    Threads,
    /// PEs are processes of one host that share memory.
    SharedMemory,
    /// PEs share one GPU.
    OneGpu,
    /// Each PE has a GPU; the links between them carry atomics.
    NvLink,
    /// Each PE has a GPU; the links between some do not carry atomics.
    Pcie,
    /// GPUs reach the heaps in host memory.
    HostMemory,
}

/// How a heap's memory came to the other PEs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Handover {
    /// One mapping of one process.
    OneMapping,
    /// A file in memory.
    MemoryFile,
    /// GPU memory, mapped by its handle, as file descriptors where there are several processes.
    VirtualMemory,
    /// GPU memory, as fabric handles between hosts.
    Fabric,
}

/// How PEs reach those that loads and stores do not reach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NetworkPath {
    /// This PE's adapter.
    pub adapter: AdapterPath,
    /// Queue pairs and rings.
    pub size: NetworkPlan,
    /// PEs that reach each other by loads and stores, group by group; all other pairs go through the adapter.
    pub within_reach: Vec<Vec<usize>>,
}

impl NetworkPath {
    pub(super) fn new(network: &Network, cards: &[Card], group: impl Fn(usize) -> Vec<usize>) -> Self {
        let mut within_reach: Vec<Vec<usize>> = Vec::new();
        for pe in 0..cards.len() {
            if !within_reach.iter().any(|g| g.contains(&pe)) {
                within_reach.push(group(pe));
            }
        }
        Self { adapter: network.path().clone(), size: network.plan(), within_reach }
    }

    /// `soft`; `peer+soft` where some pairs reach each other by loads and stores.
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

    /// The way between two PEs of these.
    pub fn between(&self, a: usize, b: usize) -> Transport {
        let together = self.within_reach.iter().any(|g| g.contains(&a) && g.contains(&b));
        if together { Transport::Peer } else { self.adapter.transport.into() }
    }
}

/// The way between the PEs of a world: what was chosen, and why if there was a choice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WorldPath {
    /// The transport between all pairs of PEs: `peer`, `mlx5`, `verbs`, `soft`; `peer+soft` where pairs differ.
    pub transport: &'static str,
    /// How many PEs there are.
    pub pes: usize,
    /// On how many hosts.
    pub hosts: usize,
    /// How those reach each other that do so by loads and stores.
    pub link: Link,
    /// How memory was handed over.
    pub handover: Handover,
    /// Bytes of each heap that programs can have.
    pub heap_bytes: usize,
    /// Whether heaps are in GPU memory.
    pub on_device: bool,
    /// Whether atomic instructions work between all PEs; through an adapter atomic operations always do.
    pub atomics: bool,
    /// How PEs reach the others, where loads and stores do not reach all.
    pub network: Option<NetworkPath>,
    /// Why the first choice was not to be had.
    pub note: Option<String>,
    /// How the ranks were found.
    pub via: String,
}

impl fmt::Display for WorldPath {
    /// `peer 4 PEs (NVLink, VMM), heap 1 GiB device, atomics native`.
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
        let by_adapter = |n: &NetworkPath| match n.adapter.link.as_str() {
            "" => n.adapter.device.clone(),
            _ if n.adapter.transport == rdma::Transport::Soft => n.adapter.link.clone(),
            link => format!("{}, {link}", n.adapter.device),
        };
        match &self.network {
            None => write!(f, "{} {pes} PE{s} ({link}", self.transport)?,
            Some(n) if n.is_mixed() => {
                let (within, between) = if hosts > 1 {
                    ("within hosts", format!("between {hosts} hosts"))
                } else {
                    ("within groups", "elsewhere".to_owned())
                };
                let (adapter, way) = (n.adapter.transport, by_adapter(n));
                write!(f, "peer {within} ({link}), {adapter} {between} ({way}), {pes} PE{s} (mixed")?;
            }
            Some(n) => write!(f, "{} {pes} PE{s} ({}", self.transport, by_adapter(n))?,
        }
        if hosts > 1 {
            write!(f, ", {hosts} hosts")?;
        }
        match self.handover {
            Handover::VirtualMemory => f.write_str(", VMM")?,
            Handover::Fabric => f.write_str(", fabric handles")?,
            Handover::OneMapping | Handover::MemoryFile => {}
        }
        let place = if self.on_device { "device" } else { "host" };
        let atomics = match (&self.network, self.atomics) {
            (Some(_), _) => "by adapter",
            (None, true) => "native",
            (None, false) => "none",
        };
        write!(f, "), heap {} {place}, atomics {atomics}", Bytes(self.heap_bytes as u64))?;
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
        assert!(text.starts_with("peer 4 PEs (host memory), heap 1 GiB host, atomics none (rank 0"), "{text}");
    }
}
