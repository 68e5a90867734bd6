//! Runs `warpbell info`: describes the machine, in the terms that the other commands print.

use crate::args::InfoArgs;
use crate::output::{Failure, report};
use serde::Serialize;
use std::path::PathBuf;
use warpbell::cuda::{DeviceInfo, PeerLink, peer_link};
use warpbell::engine::Engine;
use warpbell::memory::Space;
use warpbell::pci::{NvmeFunction, nvme_functions};
use warpbell::processors;
use warpbell::shmem::bootstrap::Launched;
use warpbell::shmem::{TransportFacts, transports};
use warpbell::soft::model::SHIPPED;
use warpbell::units::Bytes;

#[derive(Serialize)]
struct Info {
    version: &'static str,
    /// Processors that the system gives this process.
    cores: usize,
    /// Processors that the program uses: `cores`, unless `WARPBELL_PROCESSORS` replaces it.
    processors: usize,
    cpu_warp_width: Option<u32>,
    /// True if the calls of a world check their addresses on CPU threads.
    cpu_checked: bool,
    /// True if the calls of a world check their addresses on GPUs.
    gpu_checked: bool,
    image_archs: Vec<&'static str>,
    gpus: Vec<Gpu>,
    /// Reason why there is no GPU.
    no_gpu: Option<String>,
    world: WorldFacts,
    /// Transports between PEs that cannot reach each other's memory by loads and stores.
    transports: Vec<TransportFacts>,
    nvme: Vec<NvmeFunction>,
    /// Names of the models of drives whose timing a software controller can have.
    models: Vec<&'static str>,
    qemu: Option<PathBuf>,
    headers: PathBuf,
}

#[derive(Serialize)]
struct Gpu {
    #[serde(flatten)]
    device: DeviceInfo,
    #[serde(skip_serializing_if = "Option::is_none")]
    link: Option<Link>,
}

/// Facts that NVML has and the driver API lacks.
#[derive(Serialize)]
struct Link {
    bar1_bytes: u64,
    pcie_generation: u32,
    pcie_width: u32,
}

/// Facts about the world that this process would open.
#[derive(Serialize)]
struct WorldFacts {
    /// Name of the launcher, if one started this process.
    launcher: Option<&'static str>,
    rank: usize,
    size: usize,
    store: Option<String>,
    /// Error in the launcher's environment variables.
    problem: Option<String>,
    /// Access of each GPU to the memory of every other GPU.
    links: Vec<GpuLink>,
}

/// Access of one GPU to the memory of another.
#[derive(Serialize)]
struct GpuLink {
    from: usize,
    to: usize,
    #[serde(flatten)]
    link: PeerLink,
}

impl WorldFacts {
    fn of(gpus: &[Gpu]) -> Self {
        let environment = std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
        let (launched, problem) = match Launched::find(&environment.collect()) {
            Ok(launched) => (launched, None),
            Err(e) => (None, Some(e.to_string())),
        };
        let ordinals: Vec<usize> = gpus.iter().map(|g| g.device.ordinal).collect();
        let pairs = ordinals.iter().flat_map(|a| ordinals.iter().map(move |b| (*a, *b))).filter(|(a, b)| a != b);
        // GPUs without an answer from the driver count as not linked.
        let links =
            pairs.filter_map(|(from, to)| Some(GpuLink { from, to, link: peer_link(from, to).ok()? })).collect();
        let (rank, size) = launched.as_ref().map_or((0, 1), |l| (l.rank, l.size));
        let store = launched.as_ref().and_then(|l| l.store.clone());
        Self { launcher: launched.map(|l| l.via), rank, size, store, problem, links }
    }

    fn say(&self, gpus: &[Gpu]) -> Result<(), Failure> {
        match (&self.problem, self.launcher) {
            (Some(problem), _) => report!("world          no: {problem}")?,
            (None, None) => report!(
                "world          one PE: no launcher started this process; warpbell run -n N -- PROGRAM starts N"
            )?,
            (None, Some(via)) => {
                let store = self.store.as_deref().unwrap_or("no store; set WARPBELL_STORE");
                report!("world          rank {} of {} by {via}, ranks meet at {store}", self.rank, self.size)?;
            }
        }
        if gpus.len() > 1 {
            let name = |g: &Gpu| format!("gpu {}", g.device.ordinal);
            let head: String = gpus.iter().map(|g| format!("  {:<8}", name(g))).collect();
            report!("peer access    {:<6}{}", "", head.trim_end())?;
            for from in gpus {
                let cell = |to: &Gpu| format!("  {:<8}", self.cell(from.device.ordinal, to.device.ordinal));
                let row: String = gpus.iter().map(cell).collect();
                report!("               {:<6}{}", name(from), row.trim_end())?;
            }
            report!(
                "               atomics: loads, stores and atomics; access: loads and stores; no: heaps are in host memory"
            )?;
        }
        report!(
            "transport      peer: yes (GPU memory where GPUs reach each other, else host memory; shared memory on cpu)"
        )
    }

    fn cell(&self, from: usize, to: usize) -> &'static str {
        if from == to {
            return "self";
        }
        match self.links.iter().find(|l| (l.from, l.to) == (from, to)) {
            Some(l) if l.link.native_atomics => "atomics",
            Some(l) if l.link.access => "access",
            _ => "no",
        }
    }
}

/// Prints the description, or writes it as JSON.
///
/// # Errors
/// [`Failure::BrokenPipe`] if standard output was closed, [`Failure::Error`] if the output cannot be written.
pub fn run(args: &InfoArgs) -> Result<(), Failure> {
    let info = gather();
    if let Some(path) = &args.json.json {
        return crate::output::write_json("info", &info, path);
    }
    report!("warpbell {}", info.version)?;
    match info.cpu_warp_width {
        Some(width) => {
            let set = if info.processors == info.cores {
                String::new()
            } else {
                format!(" ({} is set; the system gives {} processors)", processors::VARIABLE, info.cores)
            };
            report!("engine cpu     {} threads{set}, warp width {width}{}", info.processors, checks(info.cpu_checked))?;
        }
        None => report!("engine cpu     no: built without the CPU image")?,
    }
    if let Some(reason) = &info.no_gpu {
        report!("engine gpu     no: {reason}")?;
    }
    for gpu in &info.gpus {
        let d = &gpu.device;
        let bdf = d.bdf.map(|b| format!(" {b}")).unwrap_or_default();
        report!("engine gpu     {d}{bdf}  memory {}  L2 {}", Bytes(d.memory_bytes as u64), Bytes(d.l2_bytes as u64))?;
        let yes = |b: bool| if b { "yes" } else { "no" };
        let (rdma, dma_buf) = (yes(d.gpu_direct_rdma), yes(d.dma_buf));
        report!("               writes ordering {}  GPUDirect RDMA {rdma}  dma-buf {dma_buf}", d.writes_ordering)?;
        if let Some(l) = &gpu.link {
            let bar1 = Bytes(l.bar1_bytes);
            report!("               BAR1 {bar1}  PCIe generation {} x{}", l.pcie_generation, l.pcie_width)?;
        }
        let archs: Vec<u32> = info.image_archs.iter().filter_map(|a| a.parse().ok()).collect();
        if !archs.is_empty() && !warpbell::doctor::runs_on(&archs, d.generation()) {
            report!(
                "               the image has no code for sm_{}: build again with WARPBELL_CUDA_ARCHS set",
                d.generation()
            )?;
        }
    }
    match &info.image_archs[..] {
        [] => report!("image gpu      no: nvcc was not found at build time; set NVCC or CUDA_HOME and build again")?,
        archs => {
            let archs = archs.iter().map(|a| format!("sm_{a}")).collect::<Vec<_>>().join(" ");
            report!("image gpu      {archs}{}", checks(info.gpu_checked))?;
        }
    }
    info.world.say(&info.gpus)?;
    for t in &info.transports {
        match (&t.path, &t.reason) {
            (Some(path), _) => report!("               {}: yes ({path})", t.transport)?,
            (None, reason) => {
                report!("               {}: no ({})", t.transport, reason.as_deref().unwrap_or("unknown"))?
            }
        }
    }
    report!("device soft    yes: queues host, landing bounce on a gpu and direct on cpu, doorbell by the kernels")?;
    report!("               model {}: the timing of a drive (--device soft:mem,model=NAME)", info.models.join(", "))?;
    match &info.qemu {
        Some(path) => report!("device qtest   yes: {}, doorbell cpu", path.display())?,
        None => report!("device qtest   no: qemu-system-x86_64 is not installed (apt install qemu-system-x86)")?,
    }
    for f in &info.nvme {
        let driver = f.driver.as_deref().unwrap_or("no driver");
        let group = f.iommu_group.as_deref().map_or("no IOMMU".to_owned(), |g| format!("IOMMU group {g}"));
        let way = match f.driver.as_deref() {
            Some(d) if warpbell::pci::is_vfio(d) => format!("--device nvme:{}", f.bdf),
            _ => format!("warpbell nvme bind {} takes it from the kernel", f.bdf),
        };
        report!("device nvme    {} ({driver}, {group}): {way}", f.bdf)?;
    }
    if info.nvme.is_empty() {
        report!("device nvme    none")?;
    }
    report!("headers        {}", info.headers.display())?;
    report!("               `warpbell doctor` shows which faster data paths this machine lacks, and why")
}

/// Returns the remark on an image with checked calls, which take longer; empty for other images.
fn checks(checked: bool) -> &'static str {
    if checked { ", checked calls" } else { "" }
}

fn gather() -> Info {
    let (gpus, no_gpu) = match DeviceInfo::all() {
        Ok(all) if all.is_empty() => (Vec::new(), Some("the CUDA driver finds no GPU".to_owned())),
        Ok(all) => (all, None),
        Err(e) => (Vec::new(), Some(e.reason())),
    };
    let nvml = nvml_wrapper::Nvml::init().ok();
    let gpus: Vec<Gpu> =
        gpus.into_iter().map(|device| Gpu { link: nvml.as_ref().and_then(|n| link(n, &device)), device }).collect();
    let world = WorldFacts::of(&gpus);
    let cpu = Engine::cpu().ok();
    Info {
        version: env!("CARGO_PKG_VERSION"),
        cores: processors::of_system(),
        processors: processors::count(),
        cpu_warp_width: cpu.as_ref().map(Engine::warp_width),
        cpu_checked: cpu.is_some_and(|e| e.is_checked()),
        gpu_checked: cfg!(feature = "checked") && !warpbell::engine::IMAGE_ARCHS.is_empty(),
        image_archs: env!("WARPBELL_IMAGE_ARCHS").split_whitespace().collect(),
        gpus,
        no_gpu,
        world,
        transports: transports(&Space::cpu()),
        nvme: nvme_functions(),
        models: SHIPPED.iter().map(|(name, _)| *name).collect(),
        qemu: find_on_path("qemu-system-x86_64"),
        headers: crate::headers::folder(),
    }
}

fn link(nvml: &nvml_wrapper::Nvml, device: &DeviceInfo) -> Option<Link> {
    let d = nvml.device_by_pci_bus_id(device.bdf?.to_string()).ok()?;
    Some(Link {
        bar1_bytes: d.bar1_memory_info().ok()?.total,
        pcie_generation: d.current_pcie_link_gen().ok()?,
        pcie_width: d.current_pcie_link_width().ok()?,
    })
}

fn find_on_path(program: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?).map(|d| d.join(program)).find(|p| p.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_have_the_keys_of_the_schema() {
        let link = Link { bar1_bytes: 1 << 38, pcie_generation: 5, pcie_width: 16 };
        crate::schema_keys::same("info.schema.json#/properties/gpus/items/properties/link", &link);
    }
}
