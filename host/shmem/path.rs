//! How the PEs of a world reach each other, in words.

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

/// The way between the PEs of a world: what was chosen, and why if there was a choice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WorldPath {
    /// The transport between all pairs of PEs.
    pub transport: &'static str,
    /// How many PEs there are.
    pub pes: usize,
    /// On how many hosts.
    pub hosts: usize,
    /// How they reach each other.
    pub link: Link,
    /// How memory was handed over.
    pub handover: Handover,
    /// Bytes of each heap that programs can have.
    pub heap_bytes: usize,
    /// Whether heaps are in GPU memory.
    pub on_device: bool,
    /// Whether atomic operations work between all PEs.
    pub atomics: bool,
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
        write!(f, "{} {} PE{s} ({link}", self.transport, self.pes)?;
        if self.hosts > 1 {
            write!(f, ", {} hosts", self.hosts)?;
        }
        match self.handover {
            Handover::VirtualMemory => f.write_str(", VMM")?,
            Handover::Fabric => f.write_str(", fabric handles")?,
            Handover::OneMapping | Handover::MemoryFile => {}
        }
        let place = if self.on_device { "device" } else { "host" };
        let atomics = if self.atomics { "native" } else { "none" };
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
