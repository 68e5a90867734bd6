//! Which way data takes: asked for, chosen, printed.

use crate::data_path::choices;
pub use crate::data_path::{Doorbell, DoorbellChoice, LandingChoice, LandingPath, QueueMemory, QueueMemoryChoice};
use crate::engine::EngineKind;
use crate::nvme::{MappingReport, WriteCache};
use serde::Serialize;
use std::fmt;

choices! {
    /// What keeps a device's data before its completion, as kernels see them.
    WritesOrder:
    /// Kernels run on processors, which see a device's writes in their order.
    Processor = "processor",
    /// Both land in host memory, and the bus keeps their order there.
    HostMemory = "host-memory",
    /// Both land in GPU memory, and the GPU promises their order to its own kernels
    /// (GPU_DIRECT_RDMA_WRITES_ORDERING is owner).
    GpuOwner = "gpu-owner",
    /// The same, to kernels of every GPU.
    GpuAll = "gpu-all"
}

choices! {
    /// The volatile write caches of a volume's devices: whether what was written needs a Flush to stay.
    WriteCaches:
    /// No device has one: what has been written is on the medium, and a flush has nothing to do.
    None = "none",
    /// Every device that has one has it switched off.
    Off = "off",
    /// At least one is on.
    On = "on"
}

impl WriteCaches {
    pub(super) fn of(all: impl IntoIterator<Item = WriteCache>) -> Self {
        all.into_iter().fold(Self::None, |sum, one| match (sum, one) {
            (Self::On, _) | (_, WriteCache::On) => Self::On,
            (Self::Off, _) | (_, WriteCache::Off) => Self::Off,
            (Self::None, WriteCache::None) => Self::None,
        })
    }
}

/// The path that a volume got.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Path {
    /// Its devices, as they were named.
    pub device: String,
    /// Where queues are.
    pub queues: QueueMemory,
    /// Where data lands.
    pub landing: LandingPath,
    /// Who rings.
    pub doorbell: Doorbell,
    /// Kind of engine.
    pub engine: EngineKind,
    /// What keeps data before its completion.
    pub order: WritesOrder,
    /// How each device got addresses for GPU memory, or why it did not: every rung of the mapping ladder that was tried. Empty
    /// where no device looked for one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mapping: Vec<MappingReport>,
    /// Whether what was written needs a Flush to stay.
    pub write_cache: WriteCaches,
    /// Why a better path was not taken, where `auto` had to choose.
    pub notes: Vec<String>,
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, queues, landing, doorbell, .. } = self;
        write!(f, "device {device}  queues {queues}  landing {landing}  doorbell {doorbell}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_reads_and_serialises_the_same_words() {
        let path = Path {
            device: "soft:mem".into(),
            queues: QueueMemory::Host,
            landing: LandingPath::Direct,
            doorbell: Doorbell::CpuEngine,
            engine: EngineKind::Cpu,
            order: WritesOrder::Processor,
            mapping: Vec::new(),
            write_cache: WriteCaches::of([WriteCache::None, WriteCache::Off]),
            notes: Vec::new(),
        };
        assert_eq!(path.to_string(), "device soft:mem  queues host  landing direct  doorbell cpu-engine");
        let json = serde_json::to_value(&path).unwrap();
        assert_eq!(json["doorbell"], "cpu-engine");
        assert_eq!(json["landing"], "direct");
        assert_eq!((&json["order"], json.get("mapping")), (&"processor".into(), None));
        assert_eq!(json["write_cache"], "off");
    }
}
