//! Examines what this machine can do: GPUs, the PCI tree, NVMe controllers, RDMA devices. Each comes with the mapping
//! backend that it gets, the reason, and how to fix what is missing.
//!
//! There are two sources, and both can be replaced: files under `/sys`, `/proc` and `/dev` through [`Sysfs`], and the
//! reports of the CUDA driver and NVML in [`GpuFacts`]. The report marks a fact that no source has as unknown.

mod check;
mod gpu;
mod gpu_facts;
mod host;
mod machine;
mod network;
mod nic;
mod nvidia;
mod nvme;
mod paths;
mod pci;
mod probes;
mod process;
mod rdma;
#[cfg(feature = "internals")]
mod remote;
mod shares;
#[cfg(test)]
mod tests;
mod text;

pub use gpu_facts::GpuFacts;
#[cfg(feature = "internals")]
pub use gpu_facts::runs_on;

#[cfg(feature = "internals")]
use crate::nvme::fabrics::FabricsConfig;
use crate::pci::Sysfs;
use crate::rdma::{RdmaDevice, VerbsLibrary};
use crate::remedy::Remedy;
use check::{Area, Check, Status};
use gpu_facts::{Gpu, GpuPeer};
use machine::Machine;
use network::{By, Fabric, NetworkPath, Obstacle};
use nvme::Controller;
use paths::{BackendReport, State, StoragePath};
use pci::{NicPair, Pair};
use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// A capability that can be required.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Require {
    /// A GPU that loads this program's kernels.
    Gpu,
    /// A physical NVMe controller that this process can drive.
    Nvme,
    /// Access of such a controller to GPU memory: a mapping backend that is ready.
    P2p,
    /// An RDMA device that carries data, by mlx5 or by verbs.
    Rdma,
    /// An mlx5 device whose queues kernels can drive.
    Mlx5,
    /// An RDMA device that carries data by verbs.
    Verbs,
}

impl Require {
    /// All capabilities, with their names.
    pub const ALL: [(&'static str, Self); 6] = [
        ("gpu", Self::Gpu),
        ("nvme", Self::Nvme),
        ("p2p", Self::P2p),
        ("rdma", Self::Rdma),
        ("mlx5", Self::Mlx5),
        ("verbs", Self::Verbs),
    ];
}

impl fmt::Display for Require {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(Self::ALL.iter().find(|(_, r)| r == self).map_or("", |(name, _)| name))
    }
}

/// Error of a name that is no requirement.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{}` cannot be required; there are gpu, nvme, p2p, rdma, mlx5 and verbs{}",
    .0,
    crate::suggest::hint(.0, Require::ALL.map(|(name, _)| name))
)]
pub struct UnknownRequirement(String);

impl FromStr for Require {
    type Err = UnknownRequirement;

    fn from_str(word: &str) -> Result<Self, UnknownRequirement> {
        let found = Self::ALL.iter().find(|(name, _)| *name == word).map(|(_, require)| *require);
        found.ok_or_else(|| UnknownRequirement(word.to_owned()))
    }
}

/// Result of one requirement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Requirement {
    /// Capability that was required.
    pub require: Require,
    /// True if it is possible.
    pub possible: bool,
    /// The check that shows why it is not possible.
    pub because: Option<Blocker>,
}

/// The check that prevents a requirement. Prints and serialises as one sentence: detail, then remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocker {
    /// The check and its finding.
    pub detail: String,
    /// Remedy, if there is one.
    pub fix: Option<Remedy>,
    /// Number of other mapping backends that are closed, too.
    pub more_backends: usize,
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)?;
        if let Some(fix) = &self.fix {
            write!(f, "; {fix}")?;
        }
        if self.more_backends > 0 { write!(f, " (and {} more mapping backends)", self.more_backends) } else { Ok(()) }
    }
}

impl Serialize for Blocker {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Everything that was found. Prints as text for people. Serialises with the stable keys of `warpbell doctor --json`, which
/// `docs/doctor.md` lists.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// Version of this crate.
    pub version: &'static str,
    /// Kernel, kind of machine, container, user.
    pub host: String,
    /// GPUs that the CUDA driver shows.
    gpus: Vec<Gpu>,
    /// Reason why there are none.
    no_gpu: Option<String>,
    /// Access of each GPU's kernels to the memory of the other GPUs.
    gpu_peers: Vec<GpuPeer>,
    /// NVMe controllers on the PCI bus.
    nvme: Vec<Controller>,
    /// RDMA devices.
    nics: Vec<RdmaDevice>,
    /// The verbs library, if there is one.
    verbs_library: Option<VerbsLibrary>,
    /// Distances between every GPU and every controller, RDMA device and GPU.
    distances: Vec<Pair>,
    /// Distances between every RDMA device and every controller and RDMA device.
    nic_distances: Vec<NicPair>,
    /// All checks, by area and subject.
    checks: Vec<Check>,
    /// Mapping backends, best first.
    backends: Vec<BackendReport>,
    /// The path that a volume would get.
    storage: StoragePath,
    /// Paths that carry data between PEs.
    network: NetworkPath,
    /// Results of the requirements.
    pub requirements: Vec<Requirement>,
    #[serde(skip)]
    machine: Machine,
    #[serde(skip)]
    locations: Vec<pci::DeviceLocation>,
    #[serde(skip)]
    nic_locations: Vec<pci::DeviceLocation>,
}

impl Report {
    fn gpus(&self) -> &[Gpu] {
        &self.gpus
    }

    /// Returns the report with the text of every remedy replaced by `words`, so that a program can name its own
    /// options.
    pub fn with_remedies(mut self, words: impl Fn(&Remedy) -> String) -> Self {
        let checks = self.checks.iter_mut().map(|c| &mut c.fix);
        let backends = self.backends.iter_mut().map(|r| &mut r.fix);
        let requirements = self.requirements.iter_mut().flat_map(|r| &mut r.because).map(|b| &mut b.fix);
        for fix in checks.chain(backends).chain(requirements).flatten() {
            *fix = Remedy::step(words(fix));
        }
        self
    }

    /// Adds the checks of a drive of another machine. They connect to its target, and read and write no block.
    #[cfg(feature = "internals")]
    pub fn add_remote(&mut self, config: &FabricsConfig) {
        let mut checks = Vec::new();
        remote::check(config, &mut checks);
        let before = self.checks.iter().position(|c| c.area == Area::Path).unwrap_or(self.checks.len());
        self.checks.splice(before..before, checks);
    }

    /// Returns a sentence with the requirements that are not possible and the checks that show why; `None` if all are
    /// possible.
    pub fn unmet(&self) -> Option<String> {
        let all: Vec<String> = self
            .requirements
            .iter()
            .filter_map(|r| Some(format!("{} is required and not possible: {}", r.require, r.because.as_ref()?)))
            .collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

/// Examines the machine whose files `sysfs` shows.
///
/// `facts` are the reports of the CUDA driver and NVML. `required` are the requirements to evaluate. RDMA devices are
/// opened only if `sysfs` is this machine.
pub fn examine(sysfs: &Sysfs, facts: &GpuFacts, required: &[Require]) -> Report {
    let machine = Machine::read(sysfs);
    let controllers = Controller::all(sysfs, &machine);
    let locations = pci::locations(&machine, facts);
    let nics = RdmaDevice::all(sysfs);
    let library = VerbsLibrary::find(sysfs);
    let nic_locations = pci::nic_locations(&nics);
    let pairs = pci::pairs(sysfs, &machine, &locations, &controllers, &nic_locations);
    let nic_distances = pci::nic_pairs(&machine, &nic_locations, &controllers);
    let with_gpus = !locations.is_empty() || !facts.shown().is_empty();
    let mut checks = Vec::new();
    gpu::check(sysfs, &machine, facts, &mut checks);
    nvme::check(sysfs, &machine, &controllers, &mut checks);
    nic::check(sysfs, &machine, &nics, library.as_ref(), &pairs, &mut checks);
    pci::check(sysfs, &machine, &locations, &controllers, &nics, &pairs, &mut checks);
    host::check(sysfs, &machine, &controllers, &nics, &mut checks);
    rdma::check(sysfs, &machine, facts, &nics, library.as_ref(), with_gpus, &mut checks);
    // The devices of a fixture cannot be opened.
    if sysfs.is_system() {
        let gpu = facts.shown().iter().find(|g| g.is_usable()).map(|g| g.ordinal);
        probes::check(&probes::try_all(&nics, gpu), &mut checks);
    }
    let site =
        paths::Site { sysfs, machine: &machine, facts, controllers: &controllers, pairs: &pairs, checks: &checks };
    let backends = site.backends();
    let storage = site.storage(&backends);
    let network = NetworkPath::of(sysfs, &machine, facts, &nics, &checks);
    let fabric = Fabric { sysfs, machine: &machine, nics: &nics, has_library: library.is_some(), checks: &checks };
    let mut requirements: Vec<Requirement> = Vec::new();
    for &require in required {
        if requirements.iter().all(|r| r.require != require) {
            let because = blocker(require, &site, &backends, &fabric);
            requirements.push(Requirement { require, possible: because.is_none(), because });
        }
    }
    paths::check(&backends, &mut checks);
    Report {
        version: env!("CARGO_PKG_VERSION"),
        host: host_line(&machine),
        gpus: facts.shown().to_vec(),
        no_gpu: facts.gpus.as_ref().err().cloned(),
        gpu_peers: facts.peers.clone(),
        nvme: controllers,
        nics,
        verbs_library: library,
        distances: pairs,
        nic_distances,
        checks,
        backends,
        storage,
        network,
        requirements,
        machine,
        locations,
        nic_locations,
    }
}

/// Returns the check that prevents a requirement; `None` if it is possible.
fn blocker(
    require: Require,
    site: &paths::Site<'_>,
    backends: &[BackendReport],
    fabric: &Fabric<'_>,
) -> Option<Blocker> {
    let of_check =
        |c: &Check| Blocker { detail: format!("{}: {}", c.title(), c.detail), fix: c.fix.clone(), more_backends: 0 };
    let plain = |detail: &str| Blocker { detail: detail.to_owned(), fix: None, more_backends: 0 };
    let carries = |by: By| match fabric.obstacle(by)? {
        Obstacle::Nothing(detail) => Some(plain(detail)),
        Obstacle::Check(check) => Some(of_check(check)),
    };
    let nvme = || {
        let locked = site.checks.iter().find(|c| c.name == "memlock" && c.status == Status::Fail);
        match (site.controllers.iter().any(Controller::is_drivable), locked) {
            (true, None) => None,
            (true, Some(check)) => Some(of_check(check)),
            (false, _) => {
                Some(site.nvme_blocker().map_or_else(|| plain("nvme: no controller can be driven"), of_check))
            }
        }
    };
    let gpu = || {
        if site.facts.shown().iter().any(Gpu::is_usable) {
            return None;
        }
        let of = |status: Status, names: &[&str]| {
            site.checks.iter().find(|c| c.area == Area::Gpu && c.status == status && names.contains(&c.name))
        };
        let found = of(Status::Fail, &["driver", "kernels"]).or_else(|| of(Status::Skip, &["kernels", "driver"]));
        Some(found.map_or_else(|| plain("gpu: none can be used"), of_check))
    };
    match require {
        Require::Gpu => gpu(),
        Require::Nvme => nvme(),
        Require::Mlx5 => carries(By::Mlx5),
        Require::Verbs => carries(By::Verbs),
        Require::Rdma => carries(By::Verbs).filter(|_| carries(By::Mlx5).is_some()),
        Require::P2p => gpu().or_else(nvme).or_else(|| {
            let direct: Vec<&BackendReport> = backends.iter().filter(|r| r.reaches_gpu_memory).collect();
            if direct.iter().any(|r| matches!(r.state, State::Open | State::Ready)) {
                return None;
            }
            let first = direct.first()?;
            let detail = format!("path {}: {}", first.name, first.reason);
            Some(Blocker { detail, fix: first.fix.clone(), more_backends: direct.len() - 1 })
        }),
    }
}

/// Returns the first line's facts, as in `Linux 6.12.9  bare metal  container docker  uid 1000`.
fn host_line(machine: &Machine) -> String {
    let mut parts = vec![machine.kernel.as_ref().map_or("kernel unknown".to_owned(), |k| format!("Linux {k}"))];
    match machine.is_virtual {
        Some(true) => parts.push("virtual machine".to_owned()),
        Some(false) => parts.push("bare metal".to_owned()),
        None => {}
    }
    if let Some(container) = &machine.container {
        parts.push(format!("container {container}"));
    }
    if let Some(uid) = machine.process.uid {
        parts.push(format!("uid {uid}"));
    }
    parts.join("  ")
}
