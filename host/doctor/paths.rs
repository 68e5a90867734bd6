//! The mapping backends on this machine, the path that a volume would get, and the reasons why it is no better.

use super::check::{Area, Check, Checks, IntoFix, Status};
use super::gpu_facts::{Gpu, GpuFacts};
use super::machine::{IommuState, Machine};
use super::nvme::{Controller, Reach, WITHOUT_IOMMU, libnvm_nodes};
use super::pci::{Pair, nearest};
use super::process::Access;
use crate::cuda::WritesOrdering;
use crate::engine::EngineKind;
use crate::memory::mapping::{GDRDRV, MappingBackend};
use crate::pci::Sysfs;
use crate::remedy::Remedy;
use crate::storage::{Doorbell, LandingPath, QueueMemory};
use serde::Serialize;

/// State of a mapping backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It works.
    Open,
    /// Everything that it needs is present. Only a controller that writes through it can show that it works; opening a
    /// volume does that.
    Ready,
    /// Something that it needs is missing.
    Closed,
    /// The kernel does not report what it needs.
    Unknown,
}

/// Report on a mapping backend, by which a device gets an address for memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BackendReport {
    /// Name of the backend.
    pub name: &'static str,
    /// True if queues and data can be in GPU memory.
    pub reaches_gpu_memory: bool,
    /// State of the backend.
    pub state: State,
    /// Reason for the state.
    pub reason: String,
    /// Remedy that opens the backend.
    pub fix: Option<Remedy>,
}

/// Result of trying the steps of a mapping backend with GPU memory and without a controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tried {
    /// Name of the backend.
    pub name: String,
    /// True if every step that needs no controller worked.
    pub works: bool,
    /// Observation.
    pub reason: String,
    /// Steps that make the backend work; empty if there are none.
    pub next: String,
}

/// The path that a volume on this machine would get, as far as it is known without opening one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StoragePath {
    /// Specification of its device.
    pub device: String,
    /// Interface to the device: `vfio group`, `vfio cdev` or `soft`.
    pub by: &'static str,
    /// Kind of engine.
    pub engine: EngineKind,
    /// Memory of the queues.
    pub queues: QueueMemory,
    /// Landing of the data.
    pub landing: LandingPath,
    /// Doorbell path.
    pub doorbell: Doorbell,
    /// Reasons why the path is no better: one sentence for each property that could be better.
    pub why: Vec<String>,
}

/// An unmet need of a mapping backend.
struct Missing {
    state: State,
    reason: String,
    fix: Option<Remedy>,
}

impl Missing {
    fn closed(reason: impl Into<String>, fix: impl IntoFix) -> Self {
        Self { state: State::Closed, reason: reason.into(), fix: fix.into_fix() }
    }
}

/// Facts by which mapping backends are evaluated.
pub(super) struct Site<'a> {
    pub sysfs: &'a Sysfs,
    pub machine: &'a Machine,
    pub facts: &'a GpuFacts,
    pub controllers: &'a [Controller],
    pub pairs: &'a [Pair],
    pub checks: &'a [Check],
}

impl Site<'_> {
    /// Returns the controller that a volume would be opened on: of those that this process can drive, the nearest to a
    /// GPU.
    fn controller(&self) -> Option<&Controller> {
        let distance = |c: &Controller| nearest(self.pairs, c).and_then(|p| p.distance).map_or(u8::MAX, |d| d as u8);
        self.controllers.iter().filter(|c| c.is_drivable()).min_by_key(|c| distance(c))
    }

    /// Returns the GPU that would run the kernels.
    fn gpu(&self) -> Option<&Gpu> {
        self.facts.shown().iter().find(|g| g.is_usable())
    }

    fn node(&self, name: &str, get: &str) -> Result<(), Missing> {
        match self.machine.process.access(self.sysfs, name) {
            Access::Allowed => Ok(()),
            Access::Missing => Err(Missing::closed(format!("there is no {name}"), get.to_owned())),
            Access::Denied => {
                Err(Missing::closed(format!("this user may not open {name}"), format!("chown $USER {name}")))
            }
        }
    }

    /// Returns the first GPU, if it gives other devices access to its memory.
    fn peer(&self) -> Result<&Gpu, Missing> {
        let Some(gpu) = self.facts.shown().first() else {
            return Err(Missing::closed("the CUDA driver shows no GPU", None));
        };
        match (gpu.gpu_direct_rdma, gpu.dma_buf) {
            (Some(false), Some(false)) => {
                Err(Missing::closed("this GPU gives other devices no access to its memory", None))
            }
            (None, None) => Err(Missing {
                state: State::Unknown,
                reason: "the driver does not report whether other devices may access this GPU's memory".into(),
                fix: None,
            }),
            _ => Ok(gpu),
        }
    }

    fn dma_buf(&self) -> Result<(), Missing> {
        match self.peer()?.dma_buf {
            Some(false) => Err(Missing::closed(
                "the driver exports no dma-buf",
                "install the open kernel modules (nvidia-open) and reboot".to_owned(),
            )),
            _ => Ok(()),
        }
    }

    /// Checks that this process can open a controller through one of these VFIO interfaces. Returns the option that
    /// selects the interface if opening would try another one first.
    fn reached(&self, apis: &[Reach], words: &str) -> Result<Option<Remedy>, Missing> {
        let of = |c: &&Controller| c.reach.iter().any(|r| apis.contains(r));
        if self.controllers.iter().filter(of).any(|c| c.reach.first().is_some_and(|r| apis.contains(r))) {
            return Ok(None);
        }
        if let Some(c) = self.controllers.iter().find(of) {
            let api = if apis.contains(&Reach::Group) { "group" } else { "cdev" };
            let device = format!("nvme:{},api={api}", c.bdf);
            return Ok(Some(Remedy::OpenAs { before: "", device, after: "" }));
        }
        let free = self.controllers.iter().find(|c| !c.is_vfio() && c.uses.as_ref().is_ok_and(Vec::is_empty));
        let bind = |c: &Controller| Remedy::Bind { function: c.bdf.to_string(), rehearse: false };
        let fix = free.filter(|_| self.machine.iommu == IommuState::On).map(bind);
        Err(Missing::closed(format!("no controller {words}"), fix))
    }

    fn by_group(&self) -> Result<Option<Remedy>, Missing> {
        self.reached(&[Reach::Group], "can be driven through a VFIO group").or_else(|missing| {
            // A controller that this process can drive without its group lacks only the group's files.
            if let Some((c, group)) = self.controller().and_then(|c| Some((c, c.iommu_group?))) {
                let node = c.group_node(group);
                let get = format!("modprobe vfio-pci; in a container: --device /dev/vfio/vfio --device {node}");
                self.node("/dev/vfio/vfio", &get)?;
                self.node(&node, &get)?;
            }
            Err(missing)
        })
    }

    /// Rejects backends of kernel modules that return bus addresses. They work only if no IOMMU translates the
    /// controller's addresses.
    fn untranslated(&self) -> Result<Option<Remedy>, Missing> {
        let reason = "it returns bus addresses, but under VFIO the IOMMU translates a controller's addresses";
        let fix = Remedy::OpenAs { before: "only without an IOMMU: ", device: WITHOUT_IOMMU.to_owned(), after: "" };
        Err(Missing::closed(reason, fix))
    }

    /// Returns the result of trying a backend's steps with GPU memory, if they were tried.
    fn tried(&self, name: &str) -> Option<Result<(), Missing>> {
        let tried = self.facts.tried.iter().find(|t| t.name == name)?;
        Some(if tried.works {
            Ok(())
        } else {
            let fix = (!tried.next.is_empty()).then(|| Remedy::step(tried.next.clone()));
            Err(Missing::closed(tried.reason.clone(), fix))
        })
    }

    /// Evaluates a backend: first its own need, by the result of trying it or else by files, then its need of a
    /// controller.
    fn judge(
        &self,
        name: &'static str,
        by_files: impl FnOnce() -> Result<(), Missing>,
        controller: impl FnOnce() -> Result<Option<Remedy>, Missing>,
    ) -> BackendReport {
        let own = self.tried(name).unwrap_or_else(by_files);
        match own.and_then(|()| controller()) {
            Ok(option) => BackendReport {
                name,
                reaches_gpu_memory: true,
                state: State::Ready,
                reason: "its requirements are met; it is tested with a read-back when a volume is opened".into(),
                fix: option,
            },
            Err(m) => BackendReport { name, reaches_gpu_memory: true, state: m.state, reason: m.reason, fix: m.fix },
        }
    }

    /// Returns the reports on all mapping backends, best first.
    pub(super) fn backends(&self) -> Vec<BackendReport> {
        let mut all = vec![
            self.judge(
                "gdrdrv",
                || {
                    self.peer()?;
                    self.node(GDRDRV, "install GDRCopy's kernel module: modprobe gdrdrv")
                },
                || self.by_group(),
            ),
            self.judge("dma-buf-mmap", || self.dma_buf().and_then(|()| self.mappable()), || self.by_group()),
            self.judge(
                "iommufd",
                || {
                    self.dma_buf()?;
                    self.node("/dev/iommu", "modprobe iommufd")
                },
                || {
                    self.importer()?;
                    self.reached(&[Reach::Cdev], "can be driven through /dev/vfio/devices")
                },
            ),
            self.judge("libnvm", || self.peer().and_then(|_| self.libnvm()), || self.untranslated()),
            self.judge(
                "dmabuf-import",
                || {
                    self.dma_buf()?;
                    self.node("/dev/dmabuf_import", "install uPCIe's dmabuf-import-dkms: modprobe dmabuf_import")
                },
                || self.untranslated(),
            ),
            self.judge(
                "iommu-map-pa",
                || {
                    self.dma_buf()?;
                    self.node("/dev/iommu_map_pa", "install uPCIe's iommu-map-pa-dkms: modprobe iommu_map_pa")
                },
                || self.reached(&[Reach::Group, Reach::Cdev], "can be driven through VFIO"),
            ),
        ];
        all.push(self.host());
        all.push(BackendReport {
            name: "soft",
            reaches_gpu_memory: false,
            state: State::Open,
            reason: "the software controller needs nothing".into(),
            fix: None,
        });
        all
    }

    /// Fails for drivers up to 580, which do not let a process map their dma-bufs.
    fn mappable(&self) -> Result<(), Missing> {
        const REFUSES: u32 = 580;
        match self.machine.nvidia.release().and_then(|r| r.first().copied()) {
            Some(major) if major <= REFUSES => {
                Err(Missing::closed(format!("driver {major} does not let a process map its dma-bufs"), None))
            }
            _ => Ok(()),
        }
    }

    /// Fails with the reason why iommufd cannot import the dma-bufs of a GPU driver: so far no kernel does.
    fn importer(&self) -> Result<(), Missing> {
        match self.machine.kernel_version() {
            Some(v) if v < super::host::KERNEL_DMABUF => {
                let fix = "run Linux 6.19 or later".to_owned();
                Err(Missing::closed(format!("Linux {}.{} maps no dma-bufs through iommufd", v.0, v.1), fix))
            }
            Some(_) => Err(Missing::closed(
                "so far Linux maps only dma-bufs of vfio-pci devices, not those of a GPU driver",
                None,
            )),
            None => Err(Missing {
                state: State::Unknown,
                reason: "the kernel does not report its version".into(),
                fix: None,
            }),
        }
    }

    fn libnvm(&self) -> Result<(), Missing> {
        let nodes = libnvm_nodes(self.sysfs);
        match nodes.first() {
            Some(first) => self.node(first, ""),
            None => Err(Missing::closed("there is no /dev/libnvm0", MappingBackend::Libnvm.how_to_get().to_owned())),
        }
    }

    /// Reports on pinned host memory, which needs only a controller.
    fn host(&self) -> BackendReport {
        let of = |state, reason, fix| BackendReport { name: "host", reaches_gpu_memory: false, state, reason, fix };
        if let Some(c) = self.controller() {
            return of(State::Open, format!("{} maps pinned host memory through {}", c.bdf, by(c)), None);
        }
        let need = self.nvme_blocker();
        match need {
            Some(check) => of(State::Closed, format!("{}: {}", check.title(), check.detail), check.fix.clone()),
            None => of(State::Closed, "there is no NVMe controller".into(), None),
        }
    }

    /// Returns the check that prevents driving any controller: a problem of the machine first, then one of the
    /// controller that is nearest to being usable.
    pub(super) fn nvme_blocker(&self) -> Option<&Check> {
        let of = |area, name, status| {
            self.checks.iter().find(move |c| c.area == area && c.name == name && c.status == status)
        };
        of(Area::Host, "iommu", Status::Fail)
            .or_else(|| of(Area::Nvme, "rights", Status::Fail))
            .or_else(|| {
                of(Area::Host, "vfio", Status::Fail).filter(|_| self.controllers.iter().any(|c| c.nodes().len() > 1))
            })
            .or_else(|| {
                of(Area::Nvme, "group", Status::Fail).filter(|_| self.controllers.iter().any(|c| !c.nodes().is_empty()))
            })
            .or_else(|| of(Area::Nvme, "driver", Status::Warn))
            .or_else(|| of(Area::Nvme, "driver", Status::Skip))
            .or_else(|| of(Area::Host, "memlock", Status::Fail))
    }

    /// Returns the path that a volume would get.
    pub(super) fn storage(&self, backends: &[BackendReport]) -> StoragePath {
        let gpu = self.gpu();
        let engine = if gpu.is_some() { EngineKind::Gpu } else { EngineKind::Cpu };
        let mut why = Vec::new();
        let Some(controller) = self.controller() else {
            if let Some(host) = backends.iter().find(|r| r.name == "host") {
                why.push(format!("no real controller: {}", host.reason));
            }
            let (landing, doorbell) = match engine {
                EngineKind::Gpu => (LandingPath::Bounce, Doorbell::Gpu),
                EngineKind::Cpu => (LandingPath::Direct, Doorbell::CpuEngine),
            };
            return StoragePath {
                device: "soft:mem".into(),
                by: "soft",
                engine,
                queues: QueueMemory::Host,
                landing,
                doorbell,
                why,
            };
        };
        let doorbell_check = self.checks.iter().find(|c| {
            c.area == Area::Gpu && c.name == "doorbell" && gpu.is_some_and(|g| c.subject == super::gpu::subject(g))
        });
        let doorbell = match (gpu, doorbell_check) {
            (None, _) => Doorbell::CpuEngine,
            (Some(_), Some(Check { status: Status::Ok, .. })) => Doorbell::Gpu,
            (Some(_), check) => {
                let reason = check.map_or("unknown", |c| c.detail.as_str());
                why.push(format!("the doorbell is forwarded by a host thread: {reason}"));
                Doorbell::Cpu
            }
        };
        let mut direct = backends.iter().filter(|r| r.reaches_gpu_memory);
        // A backend with a remedy is used only after the remedy was applied.
        let ready = direct.clone().find(|r| matches!(r.state, State::Open | State::Ready) && r.fix.is_none());
        let (queues, landing) = match (gpu, ready) {
            (None, _) => (QueueMemory::Host, LandingPath::Direct),
            (Some(gpu), Some(backend)) => {
                let otherwise = "if its read-back succeeds, else in host memory with bounce landing";
                why.push(format!("queues in GPU memory through {} {otherwise}", backend.name));
                if gpu.writes_ordering.is_some_and(|o| o >= WritesOrdering::Owner) {
                    (QueueMemory::Gpu, LandingPath::Direct)
                } else {
                    why.push("landing is bounce: the GPU does not keep a device's writes in order".to_owned());
                    (QueueMemory::Gpu, LandingPath::Bounce)
                }
            }
            (Some(_), None) => {
                let first = direct.next().map(|r| format!("{}: {}", r.name, r.reason)).unwrap_or_default();
                why.push(format!("controllers cannot access GPU memory: {first}"));
                (QueueMemory::Host, LandingPath::Bounce)
            }
        };
        StoragePath {
            device: format!("nvme:{}", controller.bdf),
            by: by(controller),
            engine,
            queues,
            landing,
            doorbell,
            why,
        }
    }
}

fn by(controller: &Controller) -> &'static str {
    match controller.reach.first() {
        Some(Reach::Group) => "vfio group",
        Some(Reach::Cdev) => "vfio cdev",
        None => "nothing",
    }
}

/// Adds one check for each mapping backend.
pub(super) fn check(backends: &[BackendReport], all: &mut Vec<Check>) {
    for backend in backends {
        let mut c = Checks::of(Area::Path, "", all);
        match backend.state {
            State::Open => c.ok(backend.name, backend.reason.clone()),
            State::Ready => c.skip(backend.name, format!("ready: {}", backend.reason)),
            State::Unknown => c.unknown(backend.name, &backend.reason),
            State::Closed => c.skip(backend.name, format!("closed: {}", backend.reason)),
        }
        if let Some(last) = all.last_mut() {
            last.fix = backend.fix.clone();
        }
    }
}
