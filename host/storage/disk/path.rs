//! Data path of a volume: the options, the path that was chosen, and its text form.

use crate::data_path::choices;
pub use crate::data_path::{Doorbell, DoorbellChoice, LandingChoice, LandingPath, QueueMemory, QueueMemoryChoice};
use crate::engine::EngineKind;
use crate::nvme::{MappingReport, WriteCache};
use serde::Serialize;
use std::fmt;

choices! {
    /// Mechanism by which kernels see a device's data before its completion entry.
    WritesOrder:
    /// Kernels run on processors, which see a device's writes in order.
    Processor = "processor",
    /// Data and completions land in host memory, and the bus keeps their order there.
    HostMemory = "host-memory",
    /// Data and completions land in GPU memory, and the GPU guarantees their order to its own kernels
    /// (GPU_DIRECT_RDMA_WRITES_ORDERING is owner).
    GpuOwner = "gpu-owner",
    /// Data and completions land in GPU memory, and the GPU guarantees their order to kernels of every GPU.
    GpuAll = "gpu-all"
}

choices! {
    /// State of the volatile write caches of a volume's devices: with `on`, data needs a Flush to be durable.
    WriteCaches:
    /// No device has a write cache: completed writes are on the medium, and a flush has nothing to do.
    None = "none",
    /// Every device with a write cache has it disabled.
    Off = "off",
    /// At least one device has its write cache enabled.
    On = "on"
}

impl WriteCaches {
    pub(in crate::storage) fn of(all: impl IntoIterator<Item = WriteCache>) -> Self {
        all.into_iter().fold(Self::None, |sum, one| match (sum, one) {
            (Self::On, _) | (_, WriteCache::On) => Self::On,
            (Self::Off, _) | (_, WriteCache::Off) => Self::Off,
            (Self::None, WriteCache::None) => Self::None,
        })
    }
}

/// The data path of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Path {
    /// The devices as they were named, each followed by the model of a drive if it has the timing of one.
    pub device: String,
    /// Models whose timing the devices have, each once. Rates and times are then those of the models, and not of drives.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
    /// Memory of the queues.
    pub queues: QueueMemory,
    /// Memory in which data lands.
    pub landing: LandingPath,
    /// Part that writes the doorbells.
    pub doorbell: Doorbell,
    /// Kind of the engine.
    pub engine: EngineKind,
    /// Mechanism that keeps data before its completion.
    pub order: WritesOrder,
    /// For each device, the mapping backend that gave addresses for GPU memory, and every backend that was tried with
    /// its result. Empty if no device needed one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mapping: Vec<MappingReport>,
    /// State of the write caches: with `on`, data needs a Flush to be durable.
    pub write_cache: WriteCaches,
    /// Reasons why `auto` did not choose a better path.
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
            models: Vec::new(),
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
        assert_eq!((&json["order"], json.get("mapping"), json.get("models")), (&"processor".into(), None, None));
        assert_eq!(json["write_cache"], "off");
    }
}
