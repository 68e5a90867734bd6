//! Which way data takes: asked for, chosen, printed.

use super::StorageError;
use crate::engine::EngineKind;
use crate::nvme::{MappingReport, WriteCache};
use serde::Serialize;
use std::fmt;
use std::str::FromStr;

macro_rules! choices {
    ($(#[$doc:meta])* $name:ident: $($(#[$vdoc:meta])* $variant:ident = $text:literal),*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
        #[serde(rename_all = "kebab-case")]
        pub enum $name {
            $($(#[$vdoc])* $variant,)*
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$variant => $text,)* })
            }
        }

        impl FromStr for $name {
            type Err = StorageError;
            fn from_str(text: &str) -> Result<Self, StorageError> {
                match text {
                    $($text => Ok(Self::$variant),)*
                    other => Err(StorageError::Word { word: other.to_owned(), known: concat!($("`", $text, "` "),*).trim_end() }),
                }
            }
        }
    };
}

choices! {
    /// Where data should land.
    LandingChoice:
    /// The best that works; the path says which.
    Auto = "auto",
    /// In the memory that the kernel names, written by the device.
    Direct = "direct",
    /// In a host buffer of the queue slot; lanes copy it from there.
    Bounce = "bounce"
}

choices! {
    /// Where queues should be.
    QueueMemoryChoice:
    /// The best that works; the path says which.
    Auto = "auto",
    /// In host memory that kernels reach.
    Host = "host",
    /// In GPU memory.
    Gpu = "gpu",
    /// Submission queues in the controller's own memory; completion queues where data lands.
    Cmb = "cmb"
}

choices! {
    /// Who should ring.
    DoorbellChoice:
    /// Kernels where they can; the path says who.
    Auto = "auto",
    /// Kernels on a GPU.
    Gpu = "gpu",
    /// A host thread that forwards what kernels store.
    Cpu = "cpu"
}

choices! {
    /// Where queues are.
    QueueMemory:
    /// In host memory that kernels reach.
    Host = "host",
    /// In GPU memory.
    Gpu = "gpu",
    /// Submission queues in the controller's own memory; completion queues where data lands.
    Cmb = "cmb"
}

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
    /// Where data lands.
    LandingPath:
    /// In the memory that the kernel names, written by the device.
    Direct = "direct",
    /// In a host buffer of the queue slot; lanes copy it from there.
    Bounce = "bounce"
}

choices! {
    /// Who rings.
    Doorbell:
    /// A kernel's store on a GPU reaches the device.
    Gpu = "gpu",
    /// A kernel's store on a CPU thread reaches the device.
    CpuEngine = "cpu-engine",
    /// A host thread forwards what kernels store.
    Cpu = "cpu"
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

    #[test]
    fn words_are_read_back_and_others_are_refused() {
        for c in [LandingChoice::Auto, LandingChoice::Direct, LandingChoice::Bounce] {
            assert_eq!(c.to_string().parse::<LandingChoice>().unwrap(), c);
        }
        let text = "fast".parse::<QueueMemoryChoice>().unwrap_err().to_string();
        assert!(text.contains("`fast`") && text.contains("`host`"), "{text}");
    }
}
