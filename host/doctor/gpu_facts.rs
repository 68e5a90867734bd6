//! Gathers the facts about GPUs that the CUDA driver and NVML report.

use super::paths::Tried;
use crate::cuda::{DeviceInfo, OVERRIDE_VARIABLE, PeerLink, WritesOrdering, peer_link};
use crate::engine::Engine;
use crate::memory::Place;
use crate::memory::mapping::{DriverDmaBuf, Linux, MappingBackend, Outcome, SCRATCH_BYTES, Syscalls, survey};
use crate::pci::Bdf;
use crate::remedy::told;
use serde::Serialize;
use std::sync::Arc;

/// Sharing of a GPU between virtual machines, in NVML's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Virtualization {
    /// The machine's own GPU.
    Bare,
    /// A whole GPU, passed through to this virtual machine.
    Passthrough,
    /// A part of a GPU, in a virtual machine.
    Vgpu,
    /// A GPU of a host that assigns parts of it to virtual machines.
    VgpuHost,
}

/// Number of processes that may use a GPU at the same time, in NVML's terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ComputeMode {
    /// Any number.
    Default,
    /// One, which may be the MPS server.
    ExclusiveProcess,
    /// None.
    Prohibited,
}

/// Processes on a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct GpuUse {
    /// Processes with a CUDA context on it, without this one.
    pub others: usize,
    /// Clients of MPS.
    pub mps_clients: usize,
    /// Processes that may use it.
    pub mode: ComputeMode,
}

/// A GPU that the CUDA driver shows. Facts that the driver does not report are `None`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Gpu {
    /// Position in the driver's list, from 0.
    pub ordinal: usize,
    /// Name, as in `NVIDIA H200`.
    pub name: String,
    /// PCI address.
    #[serde(serialize_with = "as_text")]
    pub bdf: Option<Bdf>,
    /// Generation in the notation of compilers: 90 for compute capability 9.0.
    pub generation: u32,
    /// CUDA version of the driver: major, minor.
    pub cuda_version: (u32, u32),
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Size in bytes of BAR1, through which other devices access its memory.
    pub bar1_bytes: Option<u64>,
    /// Observers for which a device's writes to its memory are in order.
    pub writes_ordering: Option<WritesOrdering>,
    /// True if its memory can be exported as dma-buf.
    pub dma_buf: Option<bool>,
    /// True if other devices can read and write its memory.
    pub gpu_direct_rdma: Option<bool>,
    /// True if host memory can be registered with it.
    pub host_register: Option<bool>,
    /// True if it is split into MIG instances.
    pub mig: Option<bool>,
    /// Sharing between virtual machines.
    pub virtualization: Option<Virtualization>,
    /// Processes that use it.
    pub usage: Option<GpuUse>,
    /// Result of loading this program's kernels, with the reason for a failure; `None` if loading was not tried.
    #[serde(serialize_with = "as_answer")]
    pub kernels: Option<Result<(), String>>,
}

fn as_text<S: serde::Serializer>(bdf: &Option<Bdf>, s: S) -> Result<S::Ok, S::Error> {
    match bdf {
        Some(b) => s.collect_str(b),
        None => s.serialize_none(),
    }
}

/// Serialises as `loads`, the reason, or null.
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
            usage: None,
            kernels,
            name: info.name,
        }
    }

    /// Returns true if this program's kernels are known to load.
    pub fn is_usable(&self) -> bool {
        self.kernels == Some(Ok(()))
    }
}

/// Reason for which NVML's status leaves no other: the GPU itself has no peer access.
const NO_PEER_ACCESS: &str = "the GPU does not support it";
/// Reason for which NVML's status leaves no other: peer access is switched off.
const SWITCHED_OFF: &str = "a driver parameter switches it off";
/// Reason of a pair whose only obstacle is CUDA's answer.
const DENIED: &str = "CUDA denies it (cuDeviceCanAccessPeer)";

/// Access of one GPU's kernels to another GPU's memory, as NVML and CUDA report it. Facts that neither reports are `None`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GpuPeer {
    /// GPU that runs the kernels.
    pub gpu: usize,
    /// GPU that owns the memory.
    pub peer: usize,
    /// `Ok` if loads and stores reach the memory, otherwise the reason.
    #[serde(serialize_with = "as_access")]
    pub access: Option<Result<(), String>>,
    /// True if atomic operations on the memory are atomic.
    pub atomics: Option<bool>,
    /// True for a connection over NVLink, false for PCIe.
    pub nvlink: Option<bool>,
    /// CUDA's own answer: true if it gives kernels access.
    pub cuda: Option<bool>,
}

impl GpuPeer {
    /// Adds CUDA's answer, which decides: NVML's status may lack the reason for which CUDA denies access.
    fn with_cuda(mut self, link: PeerLink) -> Self {
        self.cuda = Some(link.access);
        self.atomics = self.atomics.or(Some(link.native_atomics));
        self.nvlink = self.nvlink.or(Some(link.link_atomics));
        self.access = match (self.access, link.access) {
            (Some(Err(reason)), _) => Some(Err(reason)),
            (_, true) => Some(Ok(())),
            (_, false) => Some(Err(DENIED.to_owned())),
        };
        self
    }

    /// Returns true if CUDA denies access over PCIe alone, for a reason that may lie in the path.
    pub(super) fn is_denied_over_pcie(&self) -> bool {
        let is_of_gpu = |reason: &String| [NO_PEER_ACCESS, SWITCHED_OFF].contains(&reason.as_str());
        let of_gpu = matches!(&self.access, Some(Err(reason)) if is_of_gpu(reason));
        self.cuda == Some(false) && self.nvlink != Some(true) && !of_gpu
    }
}

/// Serialises as `yes`, the reason, or null.
fn as_access<S: serde::Serializer>(answer: &Option<Result<(), String>>, s: S) -> Result<S::Ok, S::Error> {
    match answer {
        Some(Ok(())) => s.serialize_str("yes"),
        Some(Err(reason)) => s.serialize_str(reason),
        None => s.serialize_none(),
    }
}

/// All facts about GPUs from sources other than files.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuFacts {
    /// GPUs by their ordinals, or the reason why the CUDA driver shows none.
    pub(super) gpus: Result<Vec<Gpu>, String>,
    /// GPU generations in the image of this build, as in 90; empty without an image.
    pub(super) image_archs: Vec<u32>,
    /// Results of trying the mapping backends with memory of the first GPU; empty if they were not tried.
    pub(super) tried: Vec<Tried>,
    /// Access between every pair of GPUs, as far as NVML and CUDA report it.
    pub(super) peers: Vec<GpuPeer>,
    /// Value of the environment variable that overrides CUDA's check of the path between GPUs.
    pub(super) path_check_variable: Option<String>,
    /// Pipe directory of the MPS control daemon: `CUDA_MPS_PIPE_DIRECTORY`, or `/tmp/nvidia-mps`.
    pub(super) mps_directory: String,
}

/// Pipe directory of MPS unless the environment names another.
const MPS_DIRECTORY: &str = "/tmp/nvidia-mps";

impl GpuFacts {
    /// Queries the driver and NVML, and loads the kernels on every GPU that the image has code for.
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
                        tried = try_backends(engine);
                    }
                    Gpu::new(info, engine.map(|e| e.map(drop).map_err(|e| told(&e))))
                })
                .collect()),
            Err(e) => Err(told(&e)),
        };
        let mps_directory = std::env::var("CUDA_MPS_PIPE_DIRECTORY").unwrap_or_else(|_| MPS_DIRECTORY.to_owned());
        let path_check_variable = std::env::var(OVERRIDE_VARIABLE).ok();
        let mut this = Self { gpus, image_archs, tried, peers: Vec::new(), path_check_variable, mps_directory };
        this.ask_nvml();
        this.add_links(|gpu, peer| peer_link(gpu, peer).ok());
        this
    }

    /// Returns facts without a GPU, for a fixture: no driver is queried. `reason` tells why there is no GPU.
    pub fn none(reason: impl Into<String>) -> Self {
        let (image_archs, tried, peers) = (Vec::new(), Vec::new(), Vec::new());
        let mps_directory = MPS_DIRECTORY.to_owned();
        Self { gpus: Err(reason.into()), image_archs, tried, peers, path_check_variable: None, mps_directory }
    }

    /// Adds CUDA's answer for every pair of GPUs, also for pairs that NVML does not report.
    fn add_links(&mut self, link: impl Fn(usize, usize) -> Option<PeerLink>) {
        let ordinals: Vec<usize> = self.shown().iter().map(|g| g.ordinal).collect();
        for (gpu, peer) in ordinals.iter().flat_map(|a| ordinals.iter().map(move |b| (*a, *b))).filter(|(a, b)| a != b)
        {
            let Some(link) = link(gpu, peer) else { continue };
            let at = self.peers.iter().position(|p| (p.gpu, p.peer) == (gpu, peer));
            let known = at.map(|at| self.peers.remove(at));
            let known = known.unwrap_or(GpuPeer { gpu, peer, access: None, atomics: None, nvlink: None, cuda: None });
            self.peers.push(known.with_cuda(link));
        }
    }

    /// Returns the GPUs that the driver shows.
    pub(super) fn shown(&self) -> &[Gpu] {
        self.gpus.as_deref().unwrap_or_default()
    }

    /// Returns the access of a GPU to another GPU's memory, if it is known.
    pub(super) fn peer(&self, gpu: usize, peer: usize) -> Option<&GpuPeer> {
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
            // A GPU without MIG returns "not supported", which means that MIG is off.
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
            gpu.usage = nvml_use(&device);
        }
    }

    #[cfg(not(feature = "nvml"))]
    fn ask_nvml(&mut self) {}
}

/// Queries NVML for the processes on a GPU.
#[cfg(feature = "nvml")]
fn nvml_use(device: &nvml_wrapper::Device<'_>) -> Option<GpuUse> {
    use nvml_wrapper::enum_wrappers::device::ComputeMode as Mode;
    let mode = match device.compute_mode().ok()? {
        Mode::Prohibited => ComputeMode::Prohibited,
        Mode::ExclusiveProcess | Mode::ExclusiveThread => ComputeMode::ExclusiveProcess,
        Mode::Default => ComputeMode::Default,
    };
    let own = std::process::id();
    let others = device.running_compute_processes().ok()?.iter().filter(|p| p.pid != own).count();
    // Older drivers do not list clients.
    let clients = device.mps_running_compute_processes().unwrap_or_default();
    Some(GpuUse { others, mps_clients: clients.iter().filter(|p| p.pid != own).count(), mode })
}

/// Queries NVML for every pair of GPUs.
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
                (Some(s), Some(P2pStatus::Ok)) | (_, Some(s)) => Some(Err(failure(s).to_owned())),
                _ => None,
            };
            let (atomics, nvlink) = (is(Index::Atomics), is(Index::NvLink));
            all.push(GpuPeer { gpu: *gpu, peer: *peer, access, atomics, nvlink, cuda: None });
        }
    }
    all
}

/// Returns the reason why two GPUs do not reach each other's memory.
#[cfg(feature = "nvml")]
fn failure(status: nvml_wrapper::enum_wrappers::device::P2pStatus) -> &'static str {
    use nvml_wrapper::enum_wrappers::device::P2pStatus;
    match status {
        P2pStatus::ChipsetNotSupported => "the chipset does not support it",
        P2pStatus::GpuNotSupported => NO_PEER_ACCESS,
        P2pStatus::IohTopologyNotSupported => "the path through the processor does not support it",
        P2pStatus::DisabledByRegkey => SWITCHED_OFF,
        _ => "the driver does not support it",
    }
}

/// Tries the mapping backends for GPU memory, as far as that needs no controller. Returns no results if there is no
/// memory to try them with.
fn try_backends(engine: &Engine) -> Vec<Tried> {
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

/// Returns true if an image with code for `archs` runs on `generation`. Machine code runs on its own major generation
/// from its minor generation upwards. The PTX of the newest generation runs on everything newer.
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

    /// Returns a pair as NVML reports it, and CUDA's answer for a link over PCIe.
    fn pair(access: Option<Result<(), String>>, nvlink: Option<bool>, cuda: bool) -> GpuPeer {
        let link = PeerLink { access: cuda, native_atomics: false, performance_rank: 0, link_atomics: false };
        GpuPeer { gpu: 0, peer: 1, access, atomics: None, nvlink, cuda: None }.with_cuda(link)
    }

    #[test]
    fn cudas_answer_decides_and_nvmls_reason_stays() {
        let reason = |p: &GpuPeer| p.access.clone().unwrap();
        let is_path = GpuPeer::is_denied_over_pcie;
        let p = pair(Some(Ok(())), Some(false), false);
        assert_eq!((reason(&p), is_path(&p)), (Err(DENIED.to_owned()), true));
        let p = pair(None, None, false);
        assert_eq!((reason(&p), is_path(&p), p.nvlink), (Err(DENIED.to_owned()), true, Some(false)));
        let p = pair(None, None, true);
        assert_eq!((reason(&p), is_path(&p), p.atomics), (Ok(()), false, Some(false)));
        let p = pair(Some(Ok(())), Some(true), false);
        assert_eq!((reason(&p), is_path(&p)), (Err(DENIED.to_owned()), false), "NVLink");
        let chipset = "the chipset does not support it".to_owned();
        let p = pair(Some(Err(chipset.clone())), Some(false), false);
        assert_eq!((reason(&p), is_path(&p)), (Err(chipset), true));
        for own in [NO_PEER_ACCESS, SWITCHED_OFF] {
            let p = pair(Some(Err(own.to_owned())), Some(false), false);
            assert_eq!((reason(&p), is_path(&p)), (Err(own.to_owned()), false));
        }
    }

    #[test]
    fn every_pair_gets_cudas_answer_once() {
        use crate::doctor::tests::shapes::{facts, h200};
        let mut facts = facts(vec![h200(0, "0000:03:00.0"), h200(1, "0000:83:00.0"), h200(2, "0000:84:00.0")]);
        let known =
            GpuPeer { gpu: 0, peer: 1, access: Some(Ok(())), atomics: Some(true), nvlink: Some(true), cuda: None };
        facts.peers.push(known.clone());
        let link = PeerLink { access: true, native_atomics: false, performance_rank: 0, link_atomics: false };
        // The driver fails to report one pair.
        facts.add_links(|gpu, peer| ((gpu, peer) != (2, 1)).then_some(link));
        assert_eq!(facts.peers.len(), 5);
        assert_eq!(facts.peer(0, 1), Some(&GpuPeer { cuda: Some(true), ..known }));
        assert!(facts.peer(1, 0).unwrap().access == Some(Ok(())) && facts.peer(2, 1).is_none());
    }

    #[test]
    fn gathering_never_panics() {
        match GpuFacts::gather().gpus {
            Ok(all) => assert!(!all.is_empty()),
            Err(reason) => assert!(!reason.is_empty()),
        }
    }
}
