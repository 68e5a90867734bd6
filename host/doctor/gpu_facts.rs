//! What the CUDA driver and NVML say about the GPUs, gathered in one place.

use super::paths::Tried;
use crate::cuda::{DeviceInfo, WritesOrdering};
use crate::engine::Engine;
use crate::memory::Place;
use crate::memory::mapping::{DriverDmaBuf, Linux, MappingBackend, Outcome, SCRATCH_BYTES, Syscalls, survey};
use crate::pci::Bdf;
use crate::remedy::told;
use serde::Serialize;
use std::sync::Arc;

/// How a GPU is shared between virtual machines, in NVML's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Virtualization {
    /// The machine's own GPU.
    Bare,
    /// Given to this virtual machine as a whole.
    Passthrough,
    /// A share of a GPU, in a virtual machine.
    Vgpu,
    /// A GPU of a host that deals out shares.
    VgpuHost,
}

/// A GPU that the CUDA driver shows. What the driver does not tell is `None`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Gpu {
    /// Position in the driver's list, from 0.
    pub ordinal: usize,
    /// Name, as in `NVIDIA H200`.
    pub name: String,
    /// PCI address.
    #[serde(serialize_with = "as_text")]
    pub bdf: Option<Bdf>,
    /// Generation as compilers name it: 90 for compute capability 9.0.
    pub generation: u32,
    /// CUDA version of the driver: major, minor.
    pub cuda_version: (u32, u32),
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Bytes of the window through which other devices reach its memory.
    pub bar1_bytes: Option<u64>,
    /// For whom a device's writes to its memory are in order.
    pub writes_ordering: Option<WritesOrdering>,
    /// Its memory can be exported as dma-buf.
    pub dma_buf: Option<bool>,
    /// Other devices can read and write its memory.
    pub gpu_direct_rdma: Option<bool>,
    /// Host memory can be registered with it.
    pub host_register: Option<bool>,
    /// It is cut into instances.
    pub mig: Option<bool>,
    /// How it is shared.
    pub virtualization: Option<Virtualization>,
    /// Whether this program's kernels load, and why not; `None` where it was not tried.
    #[serde(serialize_with = "as_answer")]
    pub kernels: Option<Result<(), String>>,
}

fn as_text<S: serde::Serializer>(bdf: &Option<Bdf>, s: S) -> Result<S::Ok, S::Error> {
    match bdf {
        Some(b) => s.collect_str(b),
        None => s.serialize_none(),
    }
}

/// `loads`, the reason, or null.
fn as_answer<S: serde::Serializer>(answer: &Option<Result<(), String>>, s: S) -> Result<S::Ok, S::Error> {
    match answer {
        Some(Ok(())) => s.serialize_str("loads"),
        Some(Err(reason)) => s.serialize_str(reason),
        None => s.serialize_none(),
    }
}

impl Gpu {
    fn new(info: DeviceInfo, kernels: Option<Result<(), String>>) -> Self {
        Self {
            ordinal: info.ordinal,
            bdf: info.bdf,
            generation: info.generation(),
            cuda_version: info.cuda_version,
            memory_bytes: Some(info.memory_bytes as u64),
            bar1_bytes: None,
            writes_ordering: Some(info.writes_ordering),
            dma_buf: Some(info.dma_buf),
            gpu_direct_rdma: Some(info.gpu_direct_rdma),
            host_register: Some(info.host_register),
            mig: None,
            virtualization: None,
            kernels,
            name: info.name,
        }
    }

    /// Whether it is one whose kernels are known to load.
    pub fn is_usable(&self) -> bool {
        self.kernels == Some(Ok(()))
    }
}

/// What one GPU's kernels can do with another's memory, as NVML tells it. What it does not tell is `None`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GpuPeer {
    /// The GPU whose kernels they are.
    pub gpu: usize,
    /// The GPU whose memory it is.
    pub peer: usize,
    /// Loads and stores reach it, and why not.
    #[serde(serialize_with = "as_access")]
    pub access: Option<Result<(), String>>,
    /// Atomic operations are atomic there.
    pub atomics: Option<bool>,
    /// Over NVLink, not PCIe.
    pub nvlink: Option<bool>,
}

/// `yes`, the reason, or null.
fn as_access<S: serde::Serializer>(answer: &Option<Result<(), String>>, s: S) -> Result<S::Ok, S::Error> {
    match answer {
        Some(Ok(())) => s.serialize_str("yes"),
        Some(Err(reason)) => s.serialize_str(reason),
        None => s.serialize_none(),
    }
}

/// All that is known about GPUs without looking at files.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuFacts {
    /// GPUs by their ordinals, or why the CUDA driver shows none.
    pub gpus: Result<Vec<Gpu>, String>,
    /// GPU generations in the image of this build, as in 90; empty without one.
    pub image_archs: Vec<u32>,
    /// What came of trying the rungs of the mapping ladder with memory of the first GPU; empty where that was not done.
    pub tried: Vec<Tried>,
    /// Every GPU with every other, as far as NVML tells.
    pub peers: Vec<GpuPeer>,
}

impl GpuFacts {
    /// Asks the driver, and loads the kernels on every GPU that the image has code for.
    pub fn gather() -> Self {
        let image_archs: Vec<u32> =
            crate::engine::IMAGE_ARCHS.split_whitespace().filter_map(|a| a.parse().ok()).collect();
        let mut tried = Vec::new();
        let gpus = match DeviceInfo::all() {
            Ok(all) if all.is_empty() => Err("the CUDA driver finds no GPU".to_owned()),
            Ok(all) => Ok(all
                .into_iter()
                .map(|info| {
                    let engine = (!image_archs.is_empty()).then(|| Engine::gpu(info.ordinal));
                    if let (true, Some(Ok(engine))) = (tried.is_empty(), &engine) {
                        tried = try_rungs(engine);
                    }
                    Gpu::new(info, engine.map(|e| e.map(drop).map_err(|e| told(&e))))
                })
                .collect()),
            Err(e) => Err(told(&e)),
        };
        let mut this = Self { gpus, image_archs, tried, peers: Vec::new() };
        this.ask_nvml();
        this
    }

    /// For a recorded tree: no driver is asked.
    pub fn none(reason: impl Into<String>) -> Self {
        Self { gpus: Err(reason.into()), image_archs: Vec::new(), tried: Vec::new(), peers: Vec::new() }
    }

    /// GPUs that the driver shows.
    pub fn shown(&self) -> &[Gpu] {
        self.gpus.as_deref().unwrap_or_default()
    }

    /// What is known about a GPU's way to another's memory.
    pub fn peer(&self, gpu: usize, peer: usize) -> Option<&GpuPeer> {
        self.peers.iter().find(|p| (p.gpu, p.peer) == (gpu, peer))
    }

    #[cfg(feature = "nvml")]
    fn ask_nvml(&mut self) {
        use nvml_wrapper::enum_wrappers::device::GpuVirtualizationMode as Mode;
        let (Ok(gpus), Ok(nvml)) = (&mut self.gpus, nvml_wrapper::Nvml::init()) else { return };
        self.peers = nvml_peers(&nvml, gpus);
        for gpu in gpus {
            let Some(device) = gpu.bdf.and_then(|b| nvml.device_by_pci_bus_id(b.to_string()).ok()) else { continue };
            gpu.bar1_bytes = device.bar1_memory_info().ok().map(|m| m.total);
            // A GPU that cannot be cut answers "not supported", which is also a no.
            gpu.mig = match device.mig_mode() {
                Ok(mode) => Some(mode.current != 0),
                Err(nvml_wrapper::error::NvmlError::NotSupported) => Some(false),
                Err(_) => None,
            };
            gpu.virtualization = device.virtualization_mode().ok().map(|mode| match mode {
                Mode::Bare => Virtualization::Bare,
                Mode::PassThrough => Virtualization::Passthrough,
                Mode::Vgpu => Virtualization::Vgpu,
                Mode::HostVgpu | Mode::HostVsga => Virtualization::VgpuHost,
            });
        }
    }

    #[cfg(not(feature = "nvml"))]
    fn ask_nvml(&mut self) {}
}

/// Asks NVML about every pair.
#[cfg(feature = "nvml")]
fn nvml_peers(nvml: &nvml_wrapper::Nvml, gpus: &[Gpu]) -> Vec<GpuPeer> {
    use nvml_wrapper::enum_wrappers::device::{P2pCapabilitiesIndex as Index, P2pStatus};
    let device = |g: &Gpu| Some((g.ordinal, nvml.device_by_pci_bus_id(g.bdf?.to_string()).ok()?));
    let devices: Vec<_> = gpus.iter().filter_map(device).collect();
    let mut all = Vec::new();
    for (gpu, a) in &devices {
        for (peer, b) in devices.iter().filter(|(peer, _)| peer != gpu) {
            let status = |index| a.p2p_status(b, index).ok().filter(|s| *s != P2pStatus::Unknown);
            let is = |index| status(index).map(|s| s == P2pStatus::Ok);
            let access = match (status(Index::Read), status(Index::Write)) {
                (Some(P2pStatus::Ok), Some(P2pStatus::Ok)) => Some(Ok(())),
                (Some(s), Some(P2pStatus::Ok)) | (_, Some(s)) => Some(Err(refusal(s).to_owned())),
                _ => None,
            };
            let (atomics, nvlink) = (is(Index::Atomics), is(Index::NvLink));
            all.push(GpuPeer { gpu: *gpu, peer: *peer, access, atomics, nvlink });
        }
    }
    all
}

/// Why two GPUs do not reach each other.
#[cfg(feature = "nvml")]
fn refusal(status: nvml_wrapper::enum_wrappers::device::P2pStatus) -> &'static str {
    use nvml_wrapper::enum_wrappers::device::P2pStatus;
    match status {
        P2pStatus::ChipsetNotSupported => "the chipset does not support it",
        P2pStatus::GpuNotSupported => "the GPU does not support it",
        P2pStatus::IohTopologyNotSupported => "the way through the processor does not support it",
        P2pStatus::DisabledByRegkey => "a driver parameter switches it off",
        _ => "the driver does not support it",
    }
}

/// Tries the rungs that reach GPU memory as far as they go without a controller; none where there is no memory to try them with.
fn try_rungs(engine: &Engine) -> Vec<Tried> {
    let Ok(probe) = engine.allocate(Place::Device, SCRATCH_BYTES) else { return Vec::new() };
    let system: Arc<dyn Syscalls> = Arc::new(Linux);
    let attempts = survey(&system, &DriverDmaBuf, Some(&Arc::new(probe)))
        .into_iter()
        .filter(|a| a.backend != MappingBackend::Host);
    attempts
        .map(|a| Tried {
            name: a.backend.name().to_owned(),
            works: a.outcome != Outcome::PassedOver,
            reason: a.reason,
            next: a.next,
        })
        .collect()
}

/// Whether an image serves a generation: machine code runs on its own major generation from its minor upwards, and the PTX of
/// the newest on everything newer.
pub fn runs_on(archs: &[u32], generation: u32) -> bool {
    let same = archs.iter().any(|a| a / 10 == generation / 10 && *a <= generation);
    same || archs.iter().max().is_some_and(|newest| *newest <= generation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_and_ptx_serve_what_they_can() {
        let archs = [80, 90, 100];
        for (generation, serves) in [(80, true), (86, true), (90, true), (75, false), (103, true), (120, true)] {
            assert_eq!(runs_on(&archs, generation), serves, "sm_{generation}");
        }
        assert!(!runs_on(&[], 90));
    }

    #[test]
    fn gathering_never_panics() {
        match GpuFacts::gather().gpus {
            Ok(all) => assert!(!all.is_empty()),
            Err(reason) => assert!(!reason.is_empty()),
        }
    }
}
