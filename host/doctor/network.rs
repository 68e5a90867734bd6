//! Paths between PEs: GPUs that access each other's memory, shared memory, and the RDMA devices of the machine.

use super::check::{Area, Check, Checks, Status};
use super::gpu_facts::{Gpu, GpuFacts, GpuPeer, Virtualization};
use super::machine::Machine;
use super::process::Access;
use crate::cuda::{PathCheck, is_checked};
use crate::pci::{Bdf, Sysfs};
use crate::rdma::RdmaDevice;
use serde::Serialize;

/// Paths that can carry data between PEs, as far as they are known without a world.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NetworkPath {
    /// Number of GPUs that load the kernels.
    pub peer_gpus: usize,
    /// Pairs of these GPUs, each counted for both directions together.
    pub peer_pairs: PeerPairs,
    /// True if PEs on CPU threads of one host share memory.
    pub shared_memory: bool,
    /// Number of active ports of mlx5 devices that this process may open.
    pub mlx5_ports: usize,
    /// Number of active ports of all RDMA devices that this process may open.
    pub verbs_ports: usize,
    /// Obstacles to better paths, and paths that are not used.
    pub why: Vec<String>,
}

/// Numbers of pairs of GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PeerPairs {
    /// Pairs whose kernels read and write each other's memory.
    pub reach: usize,
    /// Pairs whose kernels do not.
    pub apart: usize,
    /// Pairs for which that is unknown.
    pub unknown: usize,
}

impl PeerPairs {
    fn of(facts: &GpuFacts, gpus: &[&Gpu]) -> Self {
        let mut this = Self::default();
        for (i, a) in gpus.iter().enumerate() {
            for b in &gpus[i + 1..] {
                let access = |x: &Gpu, y: &Gpu| facts.peer(x.ordinal, y.ordinal).and_then(|p| p.access.as_ref());
                match (access(a, b), access(b, a)) {
                    (Some(Ok(())), Some(Ok(()))) => this.reach += 1,
                    (Some(Err(_)), _) | (_, Some(Err(_))) => this.apart += 1,
                    _ => this.unknown += 1,
                }
            }
        }
        this
    }

    /// Returns the words after the number of GPUs.
    fn words(self) -> String {
        let all = self.reach + self.apart + self.unknown;
        match self {
            _ if all == 0 => String::new(),
            Self { reach, .. } if reach == all => " that reach each other".to_owned(),
            Self { apart: 0, .. } => ", whether they reach each other is not reported".to_owned(),
            Self { reach: 0, .. } => " that do not reach each other".to_owned(),
            Self { reach, .. } => format!(", {reach} of {all} pairs reach each other"),
        }
    }
}

/// Returns true if this process may open an RDMA device.
fn opens(sysfs: &Sysfs, machine: &Machine, nic: &RdmaDevice) -> bool {
    nic.verbs_node.as_ref().is_some_and(|node| machine.process.access(sysfs, node) == Access::Allowed)
}

/// Way in which an RDMA device is driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// By verbs calls of a CPU thread.
    Verbs,
    /// By kernels, on queues that firmware commands create.
    Mlx5,
}

/// Reason why no RDMA device carries data.
pub(super) enum Obstacle<'a> {
    /// There is no such device.
    Nothing(&'static str),
    /// A check found the reason.
    Check(&'a Check),
}

/// RDMA devices of a machine, with all that says if they carry data.
pub(super) struct Fabric<'a> {
    pub sysfs: &'a Sysfs,
    pub machine: &'a Machine,
    pub nics: &'a [RdmaDevice],
    /// True if there is a verbs library.
    pub has_library: bool,
    pub checks: &'a [Check],
}

impl<'a> Fabric<'a> {
    /// Returns the first check of a device, by name, that is not in order.
    fn bad(&self, nic: &RdmaDevice, names: &[&str]) -> Option<&'a Check> {
        let is_bad = |c: &&Check| matches!(c.status, Status::Fail | Status::Warn);
        let own = self.checks.iter().filter(|c| c.area == Area::Nic && c.subject.split(':').next() == Some(&nic.name));
        let own: Vec<&Check> = own.filter(is_bad).collect();
        names.iter().find_map(|name| own.iter().find(|c| c.name == *name).copied())
    }

    /// Returns the reason why no RDMA device carries data; `None` if one does. The results of probes count where there
    /// are any.
    pub(super) fn obstacle(&self, by: By) -> Option<Obstacle<'a>> {
        let candidates: Vec<&RdmaDevice> =
            self.nics.iter().filter(|n| !n.iwarp && (by == By::Verbs || n.is_mlx5())).collect();
        let library = || self.checks.iter().find(|c| c.name == "verbs library").filter(|_| !self.has_library);
        // In the order in which one failure hides the next.
        let (probes, all): (&[&str], &[&str]) = match by {
            By::Verbs => (
                &["opening", "host memory", "queues"],
                &["driver", "rights", "opening", "host memory", "port", "gid", "queues"],
            ),
            By::Mlx5 => (
                &["opening", "host memory", "commands", "mlx5 queues"],
                &["driver", "rights", "devx", "opening", "host memory", "port", "gid", "commands", "mlx5 queues"],
            ),
        };
        let carries = |nic: &&RdmaDevice| {
            let is_open = opens(self.sysfs, self.machine, nic) && nic.active_ports().next().is_some();
            is_open && self.bad(nic, probes).is_none()
        };
        if candidates.is_empty() {
            return Some(Obstacle::Nothing(match by {
                By::Verbs => "nic: no InfiniBand or RoCE device (/sys/class/infiniband has none)",
                By::Mlx5 => "nic: no mlx5 device (/sys/class/infiniband has none)",
            }));
        }
        if let Some(check) = library() {
            return Some(Obstacle::Check(check));
        }
        if candidates.iter().any(carries) {
            return None;
        }
        let none = Obstacle::Nothing("nic: no port of such a device is active, or this user may not open the device");
        Some(candidates.iter().find_map(|nic| self.bad(nic, all)).map_or(none, Obstacle::Check))
    }
}

impl NetworkPath {
    pub(super) fn of(
        sysfs: &Sysfs,
        machine: &Machine,
        facts: &GpuFacts,
        nics: &[RdmaDevice],
        checks: &[Check],
    ) -> Self {
        let usable: Vec<&Gpu> = facts.shown().iter().filter(|g| g.is_usable()).collect();
        let ports = |wanted: fn(&RdmaDevice) -> bool| {
            nics.iter()
                .filter(|n| wanted(n) && opens(sysfs, machine, n))
                .map(|n| n.active_ports().count())
                .sum::<usize>()
        };
        let (mlx5_ports, verbs_ports) = (ports(RdmaDevice::is_mlx5), ports(|_| true));
        let mut why = Vec::new();
        let library = checks.iter().find(|c| c.name == "verbs library" && c.status == Status::Warn);
        if verbs_ports > 0
            && let Some(check) = library
        {
            why.push(format!("{}: {}", check.title(), check.detail));
        }
        let blocker = checks.iter().filter(|c| c.area == Area::Nic);
        let gravest =
            |status| blocker.clone().find(|c| c.status == status && ["driver", "rights", "port"].contains(&c.name));
        if verbs_ports == 0
            && let Some(check) = gravest(Status::Fail).or_else(|| gravest(Status::Warn))
        {
            why.push(format!("no RDMA port can be used: {}: {}", check.title(), check.detail));
        }
        Self {
            peer_gpus: usable.len(),
            peer_pairs: PeerPairs::of(facts, &usable),
            shared_memory: true,
            mlx5_ports,
            verbs_ports,
            why,
        }
    }

    /// Returns a line such as
    /// `peer 2 GPUs that reach each other, shared memory ok; this machine has mlx5 none, verbs none`.
    pub(super) fn line(&self) -> String {
        let ports = |n: usize| match n {
            0 => "none".to_owned(),
            1 => "1 port".to_owned(),
            n => format!("{n} ports"),
        };
        let s = if self.peer_gpus == 1 { "" } else { "s" };
        format!(
            "peer {} GPU{s}{}, shared memory ok; this machine has mlx5 {}, verbs {}",
            self.peer_gpus,
            self.peer_pairs.words(),
            ports(self.mlx5_ports),
            ports(self.verbs_ports)
        )
    }
}

/// Checks the access of a GPU's kernels to the memory of every other GPU. Adds no check if there is a single GPU.
pub(super) fn peers(sysfs: &Sysfs, machine: &Machine, facts: &GpuFacts, gpu: &Gpu, c: &mut Checks<'_>) {
    let others: Vec<&Gpu> = facts.shown().iter().filter(|g| g.ordinal != gpu.ordinal).collect();
    if others.is_empty() {
        return;
    }
    let describe = |other: &Gpu| -> (Status, String) {
        match facts.peer(gpu.ordinal, other.ordinal) {
            Some(p) => match &p.access {
                Some(Ok(())) => {
                    let atomics = if p.atomics == Some(true) { ", atomics" } else { "" };
                    let by = match p.nvlink {
                        Some(true) => " over NVLink",
                        Some(false) => " over PCIe",
                        None => "",
                    };
                    (Status::Ok, format!("loads, stores{atomics}{by}"))
                }
                Some(Err(reason)) => (Status::Warn, format!("out of reach: {reason}")),
                None => (Status::Skip, "unknown: neither NVML nor CUDA reports it".to_owned()),
            },
            None => (Status::Skip, "unknown: neither NVML nor CUDA reports it".to_owned()),
        }
    };
    let mut groups: Vec<(Status, String, Vec<String>)> = Vec::new();
    for other in others {
        let (status, words) = describe(other);
        match groups.iter_mut().find(|(_, w, _)| *w == words) {
            Some((_, _, members)) => members.push(other.ordinal.to_string()),
            None => groups.push((status, words, vec![other.ordinal.to_string()])),
        }
    }
    if let [(Status::Skip, words, _)] = &groups[..] {
        return c.skip("peers", words.clone());
    }
    let text: Vec<_> = groups.iter().map(|(_, words, all)| format!("gpu {}: {words}", all.join(" "))).collect();
    if groups.iter().all(|(status, ..)| *status != Status::Warn) {
        return c.ok("peers", text.join("; "));
    }
    match path_check(sysfs, machine, facts, gpu) {
        Some(path) => c.warn("peers", format!("{}; {}", text.join("; "), path.cause()), path.remedy()),
        None => c.warn("peers", text.join("; "), None),
    }
}

/// Returns the properties of the paths to the GPUs that CUDA denies over PCIe; `None` if there are none, or if CUDA does not
/// check the paths. A share of a GPU has no peer access over PCIe whatever the path.
fn path_check(sysfs: &Sysfs, machine: &Machine, facts: &GpuFacts, gpu: &Gpu) -> Option<PathCheck> {
    let is_share = |g: &Gpu| g.mig == Some(true) || g.virtualization == Some(Virtualization::Vgpu);
    let is_denied = |g: &&Gpu| {
        !is_share(gpu) && !is_share(g) && facts.peer(gpu.ordinal, g.ordinal).is_some_and(GpuPeer::is_denied_over_pcie)
    };
    let denied: Vec<Option<Bdf>> = facts.shown().iter().filter(is_denied).map(|g| g.bdf).collect();
    let is_checked = !denied.is_empty() && is_checked(gpu.cuda_version, facts.path_check_variable.as_deref());
    is_checked.then(|| PathCheck::read(sysfs, &machine.topology, gpu.bdf, &denied))
}
