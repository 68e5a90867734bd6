//! Checks of the PCI tree between GPUs, controllers and RDMA devices.

use super::check::{Area, Check, Checks};
use super::gpu::is_gpu;
use super::gpu_facts::GpuFacts;
use super::machine::{IommuState, Machine};
use super::nvme::Controller;
use crate::pci::{AcsPath, Bdf, Distance, Link, Sysfs};
use crate::rdma::RdmaDevice;
use serde::Serialize;

/// Most columns of a line of the matrix: a report has 80, and indents these lines by two.
const MATRIX: usize = 78;

/// Name and PCI address of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DeviceLocation {
    /// Name: `gpu 0`, `gpu` and an address for a GPU that the driver does not show, or `mlx5_0`.
    pub name: String,
    pub bdf: Bdf,
}

/// Returns the RDMA devices with a PCI address.
pub(super) fn nic_locations(nics: &[RdmaDevice]) -> Vec<DeviceLocation> {
    nics.iter().filter_map(|n| Some(DeviceLocation { name: n.name.clone(), bdf: n.bdf? })).collect()
}

/// Returns the GPUs with a PCI address; those that the driver shows come first.
pub(super) fn locations(machine: &Machine, facts: &GpuFacts) -> Vec<DeviceLocation> {
    let shown =
        facts.shown().iter().filter_map(|g| Some(DeviceLocation { name: format!("gpu {}", g.ordinal), bdf: g.bdf? }));
    let mut all: Vec<DeviceLocation> = shown.collect();
    for f in machine.topology.functions().filter(|f| is_gpu(f)) {
        if all.iter().all(|s| s.bdf != f.bdf) {
            all.push(DeviceLocation { name: format!("gpu {}", f.bdf), bdf: f.bdf });
        }
    }
    all
}

/// Path between a GPU and another device: one cell of the matrix.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pair {
    /// The GPU, as in `gpu 0`.
    pub gpu: String,
    /// PCI address of the GPU.
    #[serde(serialize_with = "as_text")]
    pub gpu_bdf: Bdf,
    /// The other device: a controller's address, an RDMA device as in `mlx5_0`, or a GPU as in `gpu 1`.
    pub peer: String,
    /// Distance, in the letters of `nvidia-smi topo -m`; `None` if it is unknown.
    pub distance: Option<Distance>,
    /// Nearest bridge above both devices.
    #[serde(serialize_with = "as_optional_text")]
    pub common_bridge: Option<Bdf>,
    /// Effect of access control (ACS) on the path, for a controller or an RDMA device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acs: Option<AcsPath>,
}

/// Path between an RDMA device and another one, or an NVMe controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NicPair {
    /// The RDMA device, as in `mlx5_0`.
    pub nic: String,
    /// PCI address of the RDMA device.
    #[serde(serialize_with = "as_text")]
    pub nic_bdf: Bdf,
    /// The other device: a controller's address, or another RDMA device.
    pub peer: String,
    /// Distance; `None` if it is unknown.
    pub distance: Option<Distance>,
    /// Nearest bridge above both devices.
    #[serde(serialize_with = "as_optional_text")]
    pub common_bridge: Option<Bdf>,
}

/// Returns the paths between every RDMA device and every controller and RDMA device.
pub(super) fn nic_pairs(machine: &Machine, nics: &[DeviceLocation], controllers: &[Controller]) -> Vec<NicPair> {
    let others = || {
        let controllers = controllers.iter().map(|c| (c.bdf.to_string(), c.bdf));
        controllers.chain(nics.iter().map(|n| (n.name.clone(), n.bdf)))
    };
    let pair = |nic: &DeviceLocation, (peer, bdf)| {
        let path = machine.topology.path(nic.bdf, bdf);
        let (distance, common_bridge) = (path.distance, path.common);
        NicPair { nic: nic.name.clone(), nic_bdf: nic.bdf, peer, distance, common_bridge }
    };
    nics.iter().flat_map(|nic| others().map(move |other| pair(nic, other))).collect()
}

fn as_text<S: serde::Serializer>(bdf: &Bdf, s: S) -> Result<S::Ok, S::Error> {
    s.collect_str(bdf)
}

fn as_optional_text<S: serde::Serializer>(bdf: &Option<Bdf>, s: S) -> Result<S::Ok, S::Error> {
    match bdf {
        Some(b) => s.collect_str(b),
        None => s.serialize_none(),
    }
}

/// Returns the paths between every GPU and every controller, RDMA device and GPU.
pub(super) fn pairs(
    sysfs: &Sysfs,
    machine: &Machine,
    locations: &[DeviceLocation],
    controllers: &[Controller],
    nics: &[DeviceLocation],
) -> Vec<Pair> {
    let mut all = Vec::new();
    for gpu in locations {
        let controllers = controllers.iter().map(|c| (c.bdf.to_string(), c.bdf));
        for (peer, bdf) in controllers.chain(nics.iter().map(|n| (n.name.clone(), n.bdf))) {
            let path = machine.topology.path(gpu.bdf, bdf);
            all.push(Pair {
                gpu: gpu.name.clone(),
                gpu_bdf: gpu.bdf,
                peer,
                distance: path.distance,
                common_bridge: path.common,
                acs: Some(AcsPath::read(sysfs, &path.ports)),
            });
        }
        for other in locations {
            let path = machine.topology.path(gpu.bdf, other.bdf);
            all.push(Pair {
                gpu: gpu.name.clone(),
                gpu_bdf: gpu.bdf,
                peer: other.name.clone(),
                distance: path.distance,
                common_bridge: path.common,
                acs: None,
            });
        }
    }
    all
}

/// Returns the path from the GPU nearest to a controller.
pub(super) fn nearest<'a>(pairs: &'a [Pair], controller: &Controller) -> Option<&'a Pair> {
    let peer = controller.bdf.to_string();
    pairs.iter().filter(|p| p.peer == peer).min_by_key(|p| p.distance.map_or(u8::MAX, |d| d as u8))
}

pub(super) fn check(
    sysfs: &Sysfs,
    machine: &Machine,
    locations: &[DeviceLocation],
    controllers: &[Controller],
    nics: &[RdmaDevice],
    pairs: &[Pair],
    all: &mut Vec<Check>,
) {
    if machine.topology.functions().next().is_none() {
        let mut c = Checks::of(Area::Pci, "", all);
        return c.unknown("tree", "/sys/bus/pci/devices is empty");
    }
    for location in locations {
        let mut c = Checks::of(Area::Pci, location.name.clone(), all);
        link(sysfs, location, &mut c);
    }
    for controller in controllers {
        let Some(pair) = nearest(pairs, controller) else { continue };
        let mut c = Checks::of(Area::Pci, format!("{} {}", pair.gpu, pair.peer), all);
        distance(machine, pair, Peer::Drive, &mut c);
        acs(machine, pair, Peer::Drive, &mut c);
    }
    for location in locations {
        let Some(pair) = nearest_nic(pairs, location, nics) else { continue };
        let mut c = Checks::of(Area::Pci, format!("{} {}", pair.gpu, pair.peer), all);
        distance(machine, pair, Peer::Nic, &mut c);
        acs(machine, pair, Peer::Nic, &mut c);
    }
}

/// Kind of device at the other end of a path from a GPU.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Peer {
    /// An NVMe controller, driven through VFIO.
    Drive,
    /// An RDMA device, driven by the kernel's own driver.
    Nic,
}

/// Returns the path to the RDMA device nearest to a GPU; devices with an active port come before others.
fn nearest_nic<'a>(pairs: &'a [Pair], location: &DeviceLocation, nics: &[RdmaDevice]) -> Option<&'a Pair> {
    let rank = |p: &Pair| {
        let nic = nics.iter().find(|n| n.name == p.peer)?;
        Some((nic.active_ports().next().is_none(), p.distance.map_or(u8::MAX, |d| d as u8)))
    };
    let of_gpu = pairs.iter().filter(|p| p.gpu_bdf == location.bdf);
    of_gpu.filter_map(|p| Some((rank(p)?, p))).min_by_key(|(rank, _)| *rank).map(|(_, p)| p)
}

/// Checks the width of a GPU's link. The rate is not checked: GPUs slow down their links while idle.
fn link(sysfs: &Sysfs, location: &DeviceLocation, c: &mut Checks<'_>) {
    let link = Link::read(sysfs, location.bdf);
    let (Some(now), Some(max)) = (link.now, link.max) else {
        return c.unknown("link", "the kernel does not report it, as in many virtual machines");
    };
    if link.is_narrow() {
        let fix = format!("move the GPU to a slot with {} lanes, or seat it again", max.width);
        return c.warn("link", format!("{now}, of {max} that it can do"), fix);
    }
    let idle = if link.is_slow() { format!(" now, {max} under load") } else { String::new() };
    c.ok("link", format!("{now}{idle}"));
}

fn distance(machine: &Machine, pair: &Pair, peer: Peer, c: &mut Checks<'_>) {
    let Some(distance) = pair.distance else {
        return c.unknown("distance", "the kernel reports no NUMA node, or no PCI tree");
    };
    let detail = format!("{distance}: {}", distance.meaning());
    if distance.shares_switch() {
        return c.ok("distance", detail);
    }
    if machine.is_virtual == Some(true) {
        let detail = format!("{detail}, in this virtual machine; the host's tree may differ");
        return c.warn("distance", detail, "run on the host: nvidia-smi topo -m, lspci -tv".to_owned());
    }
    let checked = machine.nvidia.parameters.as_ref().and_then(|p| p.number("GrdmaPciTopoCheckOverride"));
    let topology = match checked {
        Some(1) => "",
        _ => "; if the driver refuses the peer, NVreg_GrdmaPciTopoCheckOverride=1",
    };
    let fix = match peer {
        Peer::Drive => {
            format!(
                "move the drive below the GPU's switch for direct landing{topology}; bounce landing is not affected"
            )
        }
        Peer::Nic => format!("move the card below the GPU's switch, if the machine has one{topology}"),
    };
    c.warn(
        "distance",
        format!("{detail}; they share no switch, so peer traffic loads the processor's root complex"),
        fix,
    );
}

fn acs(machine: &Machine, pair: &Pair, peer: Peer, c: &mut Checks<'_>) {
    let (Some(acs), Some(distance)) = (&pair.acs, pair.distance) else {
        return c.unknown("acs", "the kernel does not report the PCI path between them");
    };
    let list = |all: &[Bdf]| all.iter().map(Bdf::to_string).collect::<Vec<_>>();
    if !distance.shares_switch() {
        return c.skip("acs", "they share no switch: peer traffic goes through the root complex in any case");
    }
    if !acs.redirecting.is_empty() {
        let at = list(&acs.redirecting).join(" ");
        let detail = format!("redirects at {at}: peer traffic goes up to the root complex and back");
        let off = acs.switch_off();
        // Through VFIO a device sends addresses that only the root complex can translate.
        let translated = machine.iommu == IommuState::On;
        return if translated && peer == Peer::Drive {
            let detail = format!("{detail}, as VFIO's translation needs it");
            c.warn("acs", detail, format!("only for mapping backends of kernel modules, with iommu=pt: {off}"));
        } else {
            c.warn("acs", detail, off);
        };
    }
    if !acs.hidden.is_empty() {
        let hidden = list(&acs.hidden).join(" ");
        return c.unknown("acs", format_args!("the kernel shows the registers of {hidden} to root only"));
    }
    c.ok("acs", "off at every port on the path: peers reach each other through the switch");
}

/// Returns the lines of the distance matrix: GPUs, then RDMA devices, against all devices. Columns that do not fit side by
/// side follow below.
pub(super) fn matrix(
    locations: &[DeviceLocation],
    nics: &[DeviceLocation],
    controllers: &[Controller],
    pairs: &[Pair],
    nic_pairs: &[NicPair],
) -> Vec<String> {
    let names = |all: &[DeviceLocation]| all.iter().map(|s| s.name.clone()).collect::<Vec<_>>();
    let mut columns: Vec<String> = controllers.iter().map(|c| c.bdf.to_string()).collect();
    columns.extend(names(nics));
    columns.extend(names(locations));
    let first = locations.iter().chain(nics).map(|s| s.name.len()).max().unwrap_or(0);
    let of_gpu = |gpu: &str, peer: &str| pairs.iter().find(|p| p.gpu == gpu && p.peer == peer)?.distance;
    let of_nic = |nic: &str, peer: &str| nic_pairs.iter().find(|p| p.nic == nic && p.peer == peer)?.distance;
    let distance = |row: &str, column: &str| {
        // The distance is the same in both directions.
        of_gpu(row, column).or_else(|| of_nic(row, column)).or_else(|| of_gpu(column, row))
    };
    let mut lines = Vec::new();
    for columns in side_by_side(&columns, MATRIX.saturating_sub(first)) {
        lines.push(format!("{:first$}  {}", "", columns.join("  ")));
        for location in locations.iter().chain(nics) {
            let mut line = format!("{:first$}", location.name);
            for column in columns {
                let letters = distance(&location.name, column).map_or("?".to_owned(), |d| d.to_string());
                line += &format!("  {letters:<width$}", width = column.len());
            }
            lines.push(line.trim_end().to_owned());
        }
    }
    lines
}

/// Divides columns into groups, each of which takes at most `width` characters with two spaces before each column.
fn side_by_side(mut columns: &[String], width: usize) -> Vec<&[String]> {
    let mut groups = Vec::new();
    while !columns.is_empty() {
        let mut taken = 0;
        let fits = |column: &&String| {
            taken += 2 + column.len();
            taken <= width
        };
        let count = columns.iter().take_while(fits).count().max(1);
        let (group, rest) = columns.split_at(count);
        groups.push(group);
        columns = rest;
    }
    groups
}
