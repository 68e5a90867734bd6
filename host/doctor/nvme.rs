//! Checks of NVMe controllers: their drivers, their uses, and the rights of this process to drive them.

use super::check::{Area, Check, Checks};
use super::machine::{IommuState, Machine};
use super::process::Access;
use crate::memory::mapping::GDRDRV;
use crate::pci::{Bdf, Function, GroupMember, InUse, IommuGroup, Link, Sysfs, in_use, is_vfio};
use crate::remedy::Remedy;
use serde::Serialize;

/// PCI class: mass storage, non-volatile memory, programming interface NVM Express (PCI Code and ID Assignment 1.16,
/// 1.2).
const CLASS_NVME: u32 = 0x01_08_02;
/// Device specification of a controller that is used without an IOMMU.
pub(super) const WITHOUT_IOMMU: &str = "nvme:ADDRESS,unsafe-no-iommu";

/// A controller, as the kernel describes it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Controller {
    /// PCI address.
    #[serde(serialize_with = "as_text")]
    pub bdf: Bdf,
    /// Kernel driver that holds it.
    pub driver: Option<String>,
    /// Name in the kernel, as in `nvme0`, while the kernel's own driver holds it.
    pub name: Option<String>,
    /// Model, while the kernel's driver holds it.
    pub model: Option<String>,
    /// Serial number, while the kernel's driver holds it.
    pub serial: Option<String>,
    /// IOMMU group.
    pub iommu_group: Option<u32>,
    /// Name of its file under `/dev/vfio/devices`, if the kernel has such files.
    pub vfio_device: Option<String>,
    /// NUMA node.
    pub numa_node: Option<u32>,
    /// State of the PCIe link.
    pub link: Link,
    /// Uses by the system that this process sees, the most severe first, or the reason why they are unknown.
    #[serde(serialize_with = "as_list")]
    pub uses: Result<Vec<String>, String>,
    /// True if its group has no IOMMU.
    pub without_iommu: bool,
    /// VFIO interfaces through which this process can open it, in the order in which opening tries them; empty if there
    /// is none.
    pub reach: Vec<Reach>,
    /// Reason why this process cannot open it.
    pub blocked: Option<String>,
}

/// VFIO interface through which this process opens a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Reach {
    /// `/dev/vfio/devices/vfioN` and `/dev/iommu`.
    Cdev,
    /// `/dev/vfio/GROUP` and a container.
    Group,
}

fn as_text<S: serde::Serializer>(bdf: &Bdf, s: S) -> Result<S::Ok, S::Error> {
    s.collect_str(bdf)
}

/// Serialises as a list, or null.
fn as_list<S: serde::Serializer>(uses: &Result<Vec<String>, String>, s: S) -> Result<S::Ok, S::Error> {
    uses.as_ref().ok().serialize(s)
}

/// Returns the device files `/dev/libnvm0` and so on.
pub(super) fn libnvm_nodes(sysfs: &Sysfs) -> Vec<String> {
    let numbered =
        |n: &String| n.strip_prefix("libnvm").is_some_and(|r| !r.is_empty() && r.bytes().all(|b| b.is_ascii_digit()));
    sysfs.names("/dev").into_iter().filter(numbered).map(|n| format!("/dev/{n}")).collect()
}

impl Controller {
    /// Returns all controllers, by address.
    pub(super) fn all(sysfs: &Sysfs, machine: &Machine) -> Vec<Self> {
        let nvme = machine.topology.functions().filter(|f| f.class == Some(CLASS_NVME));
        nvme.map(|f| Self::read(sysfs, machine, f)).collect()
    }

    fn read(sysfs: &Sysfs, machine: &Machine, f: &Function) -> Self {
        let bdf = f.bdf;
        let device = format!("/sys/bus/pci/devices/{bdf}");
        let name = sysfs.names(format!("{device}/nvme")).into_iter().next();
        let text = |file: &str| {
            let name = name.as_ref()?;
            sysfs.text(format!("{device}/nvme/{name}/{file}")).ok().filter(|t| !t.is_empty())
        };
        let (model, serial) = (text("model"), text("serial"));
        let mut this = Self {
            bdf,
            driver: f.driver.clone(),
            model,
            serial,
            iommu_group: f.iommu_group,
            vfio_device: sysfs.names(format!("{device}/vfio-dev")).into_iter().next(),
            numa_node: f.numa_node,
            link: Link::read(sysfs, bdf),
            uses: match (f.driver.as_deref(), &name) {
                (Some("nvme"), Some(_)) => uses(sysfs, bdf),
                (Some("nvme"), None) => Err("the kernel's driver shows no controller".to_owned()),
                // Only the kernel's own driver creates block devices.
                _ => Ok(Vec::new()),
            },
            name,
            without_iommu: machine.group_of(bdf).is_some_and(|g| g.without_iommu),
            reach: Vec::new(),
            blocked: None,
        };
        match this.apis(sysfs, machine) {
            Ok(reach) => this.reach = reach,
            Err(reason) => this.blocked = Some(reason),
        }
        this
    }

    /// Returns the device files that VFIO needs for driving the controller; none while another driver holds it.
    pub(super) fn nodes(&self) -> Vec<String> {
        match (self.is_vfio(), self.iommu_group) {
            (true, Some(group)) => vec!["/dev/vfio/vfio".to_owned(), self.group_node(group)],
            _ => Vec::new(),
        }
    }

    pub(super) fn group_node(&self, group: u32) -> String {
        if self.without_iommu { format!("/dev/vfio/noiommu-{group}") } else { format!("/dev/vfio/{group}") }
    }

    /// Returns true if this process can drive the controller.
    pub fn is_drivable(&self) -> bool {
        !self.reach.is_empty()
    }

    pub(super) fn is_vfio(&self) -> bool {
        self.driver.as_deref().is_some_and(is_vfio)
    }

    fn is_libnvm(&self) -> bool {
        self.driver.as_deref().is_some_and(|d| d.starts_with("libnvm"))
    }

    /// Returns the functions of its group that host drivers hold. They keep VFIO from taking the group.
    fn strangers(&self, sysfs: &Sysfs) -> Vec<GroupMember> {
        let group = IommuGroup::of(sysfs, self.bdf);
        group.map(|g| g.in_the_way(self.bdf).cloned().collect()).unwrap_or_default()
    }

    fn apis(&self, sysfs: &Sysfs, machine: &Machine) -> Result<Vec<Reach>, String> {
        if !self.is_vfio() {
            return Err(match &self.driver {
                Some(driver) => format!("held by {driver}, not by vfio-pci"),
                None => "no driver holds it".to_owned(),
            });
        }
        if machine.iommu == IommuState::Off || self.without_iommu {
            return Err("there is no IOMMU".to_owned());
        }
        let Some(group) = self.iommu_group else { return Err("it is in no IOMMU group".to_owned()) };
        if let Some(stranger) = self.strangers(sysfs).first() {
            return Err(format!("IOMMU group {group} also has {stranger}"));
        }
        let may = |name: &str| machine.process.access(sysfs, name);
        let mut apis = Vec::new();
        let by_file = self.vfio_device.as_ref().map(|d| format!("/dev/vfio/devices/{d}"));
        if by_file.is_some_and(|d| may(&d) == Access::Allowed) && may("/dev/iommu") == Access::Allowed {
            apis.push(Reach::Cdev);
        }
        let nodes = [self.group_node(group), "/dev/vfio/vfio".to_owned()];
        match nodes.iter().map(|n| (n, may(n))).find(|(_, access)| *access != Access::Allowed) {
            None => apis.push(Reach::Group),
            Some(_) if !apis.is_empty() => {}
            Some((node, Access::Missing)) => return Err(format!("there is no {node}")),
            Some((node, _)) => return Err(format!("this user may not open {node}")),
        }
        // Opening a controller prefers the same: only the group's type1 IOMMU maps memory that gdrdrv maps.
        if may(GDRDRV) == Access::Allowed {
            apis.reverse();
        }
        Ok(apis)
    }
}

/// Returns the uses of a controller that the kernel's own driver holds, in words, the most severe first, or the reason
/// why they are unknown.
fn uses(sysfs: &Sysfs, bdf: Bdf) -> Result<Vec<String>, String> {
    let reasons = in_use(sysfs, bdf);
    let known: Vec<String> =
        reasons.iter().filter(|r| !matches!(r, InUse::Unreadable { .. })).map(ToString::to_string).collect();
    if !known.is_empty() {
        return Ok(known);
    }
    if let Some(InUse::Unreadable { block, reason }) = reasons.first() {
        return Err(format!("its contents cannot be read (/dev/{block}: {reason})"));
    }
    // No use was found. That is reliable only if the files that would show one can be read.
    if !sysfs.text("/proc/self/mountinfo").is_ok_and(|t| t.contains(" - ")) {
        return Err("/proc/self/mountinfo does not list the mounts".to_owned());
    }
    if sysfs.names("/sys/class/block").is_empty() {
        return Err("/sys/class/block shows no block device".to_owned());
    }
    Ok(Vec::new())
}

pub(super) fn check(sysfs: &Sysfs, machine: &Machine, controllers: &[Controller], all: &mut Vec<Check>) {
    if controllers.is_empty() {
        let mut c = Checks::of(Area::Nvme, "", all);
        c.skip("driver", "no NVMe controller on the PCI bus; warpbell uses the software controller");
    }
    for controller in controllers {
        let mut c = Checks::of(Area::Nvme, controller.bdf.to_string(), all);
        driver(machine, controller, &mut c);
        group(sysfs, machine, controller, &mut c);
        rights(sysfs, machine, controller, &mut c);
        link(controller, &mut c);
    }
    for name in machine.topology.unnamed() {
        if sysfs.number(format!("/sys/bus/pci/devices/{name}/class")) == Some(u64::from(CLASS_NVME)) {
            let mut c = Checks::of(Area::Nvme, name.clone(), all);
            let fix = "switch VMD off for its slot in the firmware setup (the system must not boot from it)".to_owned();
            c.warn("driver", "behind an Intel volume management device (VMD): VFIO cannot open it separately", fix);
        }
    }
}

fn driver(machine: &Machine, controller: &Controller, c: &mut Checks<'_>) {
    let bdf = controller.bdf;
    // In a container /sys is read-only, and only the host sees whether it uses the controller.
    let bind = |rehearse| Remedy::Bind { function: bdf.to_string(), rehearse: rehearse || machine.container.is_some() };
    match controller.driver.as_deref() {
        Some(d) if is_vfio(d) => c.ok("driver", d),
        Some(d) if controller.is_libnvm() => {
            c.warn("driver", format!("{d}: BaM's module, which only BaM's programs can use"), bind(false));
        }
        Some("nvme") if controller.uses.is_err() => {
            c.unknown("driver", format_args!("nvme; {}", controller.uses.as_ref().err().map_or("", String::as_str)));
        }
        Some("nvme") if controller.uses.as_ref().is_ok_and(|u| !u.is_empty()) => {
            let gravest = controller.uses.as_ref().ok().and_then(|u| u.first()).map_or("", String::as_str);
            c.skip("driver", format!("nvme; it {gravest}"));
        }
        Some("nvme") if machine.container.is_some() => {
            c.warn("driver", "nvme; this container cannot tell whether the host uses it", bind(true))
        }
        Some("nvme") => c.warn("driver", "nvme; it is free: not mounted, no partitions, no file system", bind(false)),
        Some(other) => c.skip("driver", format!("held by {other}")),
        None => c.warn("driver", "no driver holds it", bind(false)),
    }
}

fn group(sysfs: &Sysfs, machine: &Machine, controller: &Controller, c: &mut Checks<'_>) {
    if controller.without_iommu {
        let fix = Remedy::OpenAs {
            before: "switch an IOMMU on (see host iommu); the unsafe alternative is ",
            device: WITHOUT_IOMMU.to_owned(),
            after: "",
        };
        return c.fail("group", "VFIO without an IOMMU: the controller could overwrite any memory", fix);
    }
    match (controller.iommu_group, machine.iommu) {
        (None, IommuState::Off) => c.skip("group", "no IOMMU"),
        (None, IommuState::On) => c.fail("group", "the IOMMU has no group for it", None),
        (None, IommuState::Unknown) => c.unknown("group", "the kernel does not report it"),
        (Some(number), _) => {
            let members = machine.groups.get(&number).map_or(0, |g| g.members.len());
            let strangers = controller.strangers(sysfs);
            let Some(first) = strangers.first().map(|s| s.bdf) else {
                let alone = if members > 1 { format!(", shared with {}", members - 1) } else { ", alone".to_owned() };
                return c.ok("group", format!("IOMMU group {number}{alone}"));
            };
            let list: Vec<_> = strangers.iter().map(ToString::to_string).collect();
            let fix = format!("bind {first} to vfio-pci too, or move the drive to a slot whose port has ACS");
            let detail = format!("IOMMU group {number} also has {}: VFIO opens only whole groups", list.join(", "));
            c.fail("group", detail, fix);
        }
    }
}

fn rights(sysfs: &Sysfs, machine: &Machine, controller: &Controller, c: &mut Checks<'_>) {
    if !controller.is_vfio() {
        return c.skip("rights", "it is not bound to vfio-pci");
    }
    let Some(number) = controller.iommu_group else { return c.skip("rights", "it is in no IOMMU group") };
    if controller.reach.first() == Some(&Reach::Cdev) {
        let device = controller.vfio_device.as_deref().unwrap_or_default();
        return c.ok("rights", format!("/dev/vfio/devices/{device} and /dev/iommu can be opened"));
    }
    let node = controller.group_node(number);
    match machine.process.access(sysfs, &node) {
        Access::Allowed => c.ok("rights", format!("{node} can be opened")),
        Access::Denied if machine.process.user_namespace == Some(true) && machine.container.is_some() => {
            let fix = format!(
                "on the host: chown {node} to the user that starts the container (podman: or to a group of that user, and --group-add keep-groups)"
            );
            c.fail("rights", format!("this user may not open {node}"), fix);
        }
        Access::Denied => {
            let fix = format!(
                "chown $USER {node}  (for good: SUBSYSTEM==\"vfio\", GROUP=\"vfio\", MODE=\"0660\" in /etc/udev/rules.d/60-vfio.rules)"
            );
            c.fail("rights", format!("this user may not open {node}"), fix);
        }
        Access::Missing if machine.container.is_some() => {
            let fix = format!("start the container with --device /dev/vfio/vfio --device {node}");
            c.fail("rights", format!("this container has no {node}"), fix);
        }
        Access::Missing => c.fail("rights", format!("there is no {node}"), "modprobe vfio-pci".to_owned()),
    }
}

fn link(controller: &Controller, c: &mut Checks<'_>) {
    let Link { now: Some(now), max: Some(max) } = controller.link else {
        return c.unknown("link", "the kernel does not report it, as in many virtual machines");
    };
    if controller.link.is_narrow() || controller.link.is_slow() {
        let fix = "move the drive to a slot with as many lanes of that generation, or seat it again".to_owned();
        c.warn("link", format!("{now}, of {max} that it can do"), fix);
    } else {
        c.ok("link", format!("{now}"));
    }
}

/// Returns a heading such as `Samsung SSD 990 PRO   driver nvme (nvme0)  IOMMU group 14  Gen4 x4  node 0`.
pub(super) fn heading(controller: &Controller) -> String {
    let mut parts = Vec::new();
    let driver = controller.driver.as_deref().unwrap_or("none");
    match &controller.name {
        Some(name) => parts.push(format!("driver {driver} ({name})")),
        None => parts.push(format!("driver {driver}")),
    }
    if let Some(group) = controller.iommu_group {
        parts.push(format!("IOMMU group {group}"));
    }
    if let Some(now) = controller.link.now {
        parts.push(now.to_string());
    }
    if let Some(node) = controller.numa_node {
        parts.push(format!("node {node}"));
    }
    let model = controller.model.as_ref().map(|m| format!("{m}   ")).unwrap_or_default();
    format!("{model}{}", parts.join("  "))
}
