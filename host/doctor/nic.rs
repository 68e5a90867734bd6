//! Checks of RDMA devices and their ports: driver, rights of this process, and properties of the packets' path.

use super::check::{Area, Check, Checks};
use super::machine::Machine;
use super::pci::Pair;
use super::process::Access;
use crate::pci::{Distance, Function, Link, Sysfs, is_vfio};
use crate::rdma::{
    ClassOverride, LinkLayer, PhysicalState, Port, PortState, Priorities, RdmaDevice, TrafficClass, VerbsLibrary,
    mlx5_model,
};
use crate::remedy::Remedy;

/// Class of InfiniBand controllers (PCI Code and ID Assignment 1.16, 1.3: network controllers).
const CLASS_INFINIBAND: u16 = 0x0207;
/// Base class of network controllers.
const BASE_NETWORK: u32 = 0x02;
/// Largest path MTU in bytes.
const FULL_PATH_MTU: u32 = 4096;
/// MTU of an interface, in bytes, that leaves enough space for the largest path MTU.
const JUMBO: u32 = 9000;
/// Priority that RoCE guides keep lossless.
const USUAL_PRIORITY: u8 = 3;

/// Returns the usual name of a port, as in `mlx5_0:1`.
pub(super) fn port_subject(device: &RdmaDevice, port: &Port) -> String {
    format!("{}:{}", device.name, port.number)
}

pub(super) fn check(
    sysfs: &Sysfs,
    machine: &Machine,
    nics: &[RdmaDevice],
    library: Option<&VerbsLibrary>,
    pairs: &[Pair],
    all: &mut Vec<Check>,
) {
    let idle: Vec<&Function> = machine.topology.functions().filter(|f| is_idle(f, nics)).collect();
    if nics.is_empty() && idle.is_empty() {
        let mut c = Checks::of(Area::Nic, "", all);
        c.skip("driver", "no RDMA device; PEs of this host reach each other through memory");
    }
    for nic in nics {
        let mut c = Checks::of(Area::Nic, nic.name.clone(), all);
        driver(nic, &mut c);
        let may = rights(sysfs, machine, nic, &mut c);
        if nic.is_mlx5() {
            devx(may, library, &mut c);
        }
        if nic.bdf.is_some() {
            link(sysfs, nic, &mut c);
            iommu(machine, nic, pairs, &mut c);
        }
        for p in &nic.ports {
            let mut c = Checks::of(Area::Nic, port_subject(nic, p), all);
            port(p, &mut c);
            if p.is_active() {
                gid(machine, p, &mut c);
                if p.link_layer == LinkLayer::Ethernet {
                    mtu(nic, p, &mut c);
                    if nic.is_mlx5() {
                        traffic_class(nics, nic, p, &mut c);
                        pfc(p, &mut c);
                        ecn(p, &mut c);
                    }
                }
            }
        }
    }
    for f in idle {
        let mut c = Checks::of(Area::Nic, f.bdf.to_string(), all);
        not_shown(machine, f, &mut c);
    }
}

/// Returns true if a function could be an RDMA device but the kernel shows none for it.
fn is_idle(f: &Function, nics: &[RdmaDevice]) -> bool {
    let mlx5 = f.vendor.zip(f.device).is_some_and(|(v, d)| mlx5_model(v, d).is_some());
    let network = f.class.is_some_and(|c| c >> 16 == BASE_NETWORK);
    let able = f.class_pair() == Some(CLASS_INFINIBAND) || (mlx5 && network);
    able && nics.iter().all(|n| n.bdf != Some(f.bdf))
}

fn not_shown(machine: &Machine, f: &Function, c: &mut Checks<'_>) {
    let model = f.vendor.zip(f.device).and_then(|(v, d)| mlx5_model(v, d)).unwrap_or("an InfiniBand controller");
    match f.driver.as_deref() {
        Some(d) if is_vfio(d) => c.skip("driver", format!("{model}, held by {d}, for a virtual machine")),
        Some(d) if machine.container.is_some() => c.warn(
            "driver",
            format!("{model}, held by {d}, without an RDMA device that this container sees"),
            "on the host: modprobe mlx5_ib; where `rdma system` says exclusive, start the container with --network host"
                .to_owned(),
        ),
        Some(d) if d.starts_with("mlx5_core") => {
            c.warn("driver", format!("{model}, held by {d}, without an RDMA device"), "modprobe mlx5_ib".to_owned());
        }
        Some(d) => c.skip("driver", format!("{model}, held by {d}, without an RDMA device")),
        None => c.warn("driver", format!("{model}: no driver holds it"), "modprobe mlx5_core mlx5_ib".to_owned()),
    }
}

fn driver(nic: &RdmaDevice, c: &mut Checks<'_>) {
    let mut about = String::new();
    if let Some(firmware) = &nic.firmware {
        about += &format!(", firmware {firmware}");
    }
    if let Some(board) = &nic.board {
        about += &format!(" ({board})");
    }
    if let Some(guid) = &nic.node_guid {
        about += &format!(", node GUID {guid}");
    }
    match &nic.driver {
        Some(driver) if nic.is_mlx5() => c.ok("driver", format!("{driver}{about}")),
        Some(driver) => c.ok("driver", format!("{driver}{about}; not mlx5: a CPU has to drive its queues")),
        None if nic.software => {
            let on = nic.parent.as_ref().map(|p| format!(" on {p}")).unwrap_or_default();
            c.ok("driver", format!("software RDMA{on}{about}: the CPU moves the data"));
        }
        None => c.unknown("driver", format_args!("the kernel does not report its driver{about}")),
    }
}

/// Checks that this process may open the device. Returns true if it may.
fn rights(sysfs: &Sysfs, machine: &Machine, nic: &RdmaDevice, c: &mut Checks<'_>) -> bool {
    let Some(node) = &nic.verbs_node else {
        c.fail(
            "rights",
            "it has no node under /dev/infiniband: ib_uverbs is not loaded",
            "modprobe ib_uverbs".to_owned(),
        );
        return false;
    };
    match machine.process.access(sysfs, node) {
        Access::Allowed => {
            c.ok("rights", format!("{node} can be opened"));
            return true;
        }
        Access::Denied => c.fail(
            "rights",
            format!("this user may not open {node}"),
            format!(
                "chmod 666 {node}  (for good: install rdma-core, or KERNEL==\"uverbs*\", MODE=\"0666\" in /etc/udev/rules.d/60-rdma.rules)"
            ),
        ),
        Access::Missing if machine.container.is_some() => c.fail(
            "rights",
            format!("this container has no {node}"),
            format!("start the container with --device {node} --cap-add IPC_LOCK --ulimit memlock=-1"),
        ),
        Access::Missing => {
            let fix = "udevadm trigger --subsystem-match=infiniband_verbs --action=add".to_owned();
            c.fail("rights", format!("there is no {node}"), fix);
        }
    }
    false
}

/// Checks that commands can be sent to mlx5 firmware, which creates the queues that a GPU drives.
fn devx(may: bool, library: Option<&VerbsLibrary>, c: &mut Checks<'_>) {
    match (may, library) {
        (false, _) => c.skip("devx", "firmware commands need the device node, which cannot be opened"),
        (true, Some(found)) if !found.has_mlx5 => c.warn(
            "devx",
            format!("there is no libmlx5.so.1 next to {}: firmware commands need it", found.path),
            "apt install ibverbs-providers (dnf install libibverbs)".to_owned(),
        ),
        (true, None) => c.skip("devx", "firmware commands need libmlx5, which is installed with libibverbs"),
        (true, Some(_)) => {
            c.ok(
                "devx",
                "the device node and libmlx5 are present; firmware commands are tested when the device is opened",
            );
        }
    }
}

/// Checks the PCIe link. Unlike GPUs, these devices do not slow down an idle link.
fn link(sysfs: &Sysfs, nic: &RdmaDevice, c: &mut Checks<'_>) {
    let link = nic.bdf.map(|b| Link::read(sysfs, b));
    let Some(Link { now: Some(now), max: Some(max) }) = link else {
        return c.unknown("link", "the kernel does not report it, as in many virtual machines");
    };
    if now.width < max.width || now.rate < max.rate {
        let fix = "move the card to a slot with as many lanes of that generation, or seat it again".to_owned();
        return c.warn("link", format!("{now}, of {max} that it can do"), fix);
    }
    c.ok("link", now.to_string());
}

/// Checks whether an IOMMU affects transfers between the device and GPU memory. Adds no check without a GPU.
fn iommu(machine: &Machine, nic: &RdmaDevice, pairs: &[Pair], c: &mut Checks<'_>) {
    let mut apis = pairs.iter().filter(|p| p.peer == nic.name).peekable();
    if apis.peek().is_none() {
        return;
    }
    let near = apis.find(|p| p.distance.is_some_and(Distance::shares_switch));
    match (nic.bdf.and_then(|b| machine.translates(b)), near) {
        (Some(false), _) => c.ok("iommu", "does not translate for it"),
        (Some(true), None) => c.ok("iommu", "translates for it, which adds little: no GPU is below the same switch"),
        (Some(true), Some(pair)) => c.warn(
            "iommu",
            format!("translates for it: transfers of {}'s memory go up to the root complex and back", pair.gpu),
            format!("iommu=pt {}", super::host::GRUB),
        ),
        (None, _) => c.unknown("iommu", "the kernel does not report whether it translates for this device"),
    }
}

fn port(p: &Port, c: &mut Checks<'_>) {
    let Some(state) = p.state else {
        return c.unknown("port", "the kernel does not report its state");
    };
    let mut words = vec![state.to_string()];
    words.extend(p.physical.map(|s| s.to_string()));
    words.push(p.link_layer.to_string());
    if p.is_active() {
        words.extend(p.rate.as_ref().map(ToString::to_string));
        words.extend(p.lid.map(|l| format!("LID {l}")));
        words.extend(p.netdev.clone());
        return c.ok("port", words.join(", "));
    }
    let words = words.join(", ");
    let netdev = p.netdev.as_deref();
    match (p.link_layer, state, p.physical) {
        (LinkLayer::InfiniBand, PortState::Init | PortState::Armed, _) => c.warn(
            "port",
            format!("{words}: no subnet manager has made it active"),
            "start a subnet manager: that of the switch, or opensm on one host".to_owned(),
        ),
        (_, _, Some(PhysicalState::Polling)) => c.warn(
            "port",
            format!("{words}: no cable, or nothing at its other end"),
            "connect a cable to an active port".to_owned(),
        ),
        (LinkLayer::Ethernet, _, _) => {
            c.warn("port", words, format!("ip link set {} up", netdev.unwrap_or("INTERFACE")));
        }
        (_, _, Some(PhysicalState::Disabled)) => c.warn("port", words, "ibportstate -D 0 PORT enable".to_owned()),
        _ => c.warn("port", words, None),
    }
}

fn gid(machine: &Machine, p: &Port, c: &mut Checks<'_>) {
    let netdev = p.netdev.as_deref().unwrap_or("INTERFACE");
    let address = format!("ip addr add ADDRESS/PREFIX dev {netdev}");
    let Some(choice) = &p.gid else {
        let fix = match (p.link_layer, &machine.container) {
            (LinkLayer::Ethernet, Some(_)) => {
                Some(Remedy::step("start the container with --network host: GIDs belong to a network namespace"))
            }
            (LinkLayer::Ethernet, None) => Some(Remedy::step(format!("ip link set {netdev} up, then {address}"))),
            _ => None,
        };
        return c.fail("gid", "its GID table has no valid entry", fix);
    };
    let of = match (p.link_layer, &p.netdev) {
        (LinkLayer::Ethernet, Some(netdev)) => format!(" of {netdev}"),
        _ => String::new(),
    };
    let detail = format!("index {}, {}{of}: {}", choice.index, choice.gid, choice.reason);
    match choice.routed {
        true => c.ok("gid", detail),
        false => c.warn("gid", format!("{detail}: it reaches only peers on the same link"), address),
    }
}

fn mtu(nic: &RdmaDevice, p: &Port, c: &mut Checks<'_>) {
    let (Some(bytes), Some(netdev)) = (p.netdev_mtu, &p.netdev) else {
        return c.unknown("mtu", "the interface's MTU cannot be read");
    };
    let fix = format!("ip link set {netdev} mtu {JUMBO}, and the same at the switch and at every peer");
    match p.path_mtu() {
        None => c.fail("mtu", format!("{netdev} has {bytes}: too little for any path MTU"), fix),
        Some(path) if path == FULL_PATH_MTU || nic.software => {
            c.ok("mtu", format!("{netdev} has {bytes}: path MTU {path}"));
        }
        Some(path) => c.warn("mtu", format!("{netdev} has {bytes}: path MTU {path}, of {FULL_PATH_MTU}"), fix),
    }
}

/// Checks the traffic class that the driver forces on queue pairs of verbs.
///
/// Queue pairs that are created by commands to the firmware are not affected by it. Without a class their packets
/// travel in priority 0, which networks do not keep lossless.
fn traffic_class(nics: &[RdmaDevice], nic: &RdmaDevice, p: &Port, c: &mut Checks<'_>) {
    let file = ClassOverride::file(&nic.name, p.number);
    let set =
        |class: TrafficClass| format!("echo {} > {file}  (or the class that your switches keep lossless)", class.0);
    let lossless = p.bridging.as_ref().map(|b| b.lossless);
    let priority = p.forced_priority().unwrap_or(0);
    let usual = || set(advised(p));
    match p.traffic_class {
        ClassOverride::NoFile => c.unknown("traffic class", format_args!("this driver has no {file}")),
        ClassOverride::Unknown => c.unknown("traffic class", format_args!("{file} cannot be read")),
        ClassOverride::Unset => {
            c.warn(
                "traffic class",
                "none is forced: packets travel in priority 0 unless a program sets another",
                usual(),
            );
        }
        ClassOverride::Forced(class) if lossless.is_some_and(|l| !l.is_empty() && !l.contains(priority)) => {
            let kept = lossless.unwrap_or_default();
            let detail = format!("{class} is forced: priority {priority}, which is not lossless here; {kept} is");
            c.warn("traffic class", detail, usual());
        }
        ClassOverride::Forced(class) if priority == 0 && lossless.is_none_or(Priorities::is_empty) => c.warn(
            "traffic class",
            format!("{class} is forced: priority 0, which networks do not keep lossless"),
            usual(),
        ),
        ClassOverride::Forced(class) => match odd_one_out(nics, class) {
            Some((other, theirs)) => c.warn(
                "traffic class",
                format!("{class} is forced, and {theirs} on {other}: one job's packets would travel in two priorities"),
                set(theirs),
            ),
            None => c.ok("traffic class", format!("{class} is forced: priority {priority}")),
        },
    }
}

/// Returns the class for a priority that the interface keeps lossless, or for the usual priority if there is none or it
/// is unknown.
fn advised(p: &Port) -> TrafficClass {
    let kept = p.bridging.as_ref().and_then(|b| Some((b, b.lossless.iter().next()?)));
    kept.map_or(TrafficClass::customary(USUAL_PRIORITY), |(bridging, priority)| bridging.class_for(priority))
}

/// Returns a port that has another class, if at least as many ports have that class.
fn odd_one_out(nics: &[RdmaDevice], class: TrafficClass) -> Option<(String, TrafficClass)> {
    let ports = || nics.iter().flat_map(|n| n.active_ports().map(move |p| (n, p)));
    let count = |wanted| ports().filter(|(_, p)| p.traffic_class.forced() == Some(wanted)).count();
    ports()
        .filter_map(|(n, p)| Some((port_subject(n, p), p.traffic_class.forced()?)))
        .filter(|(_, theirs)| theirs.dscp() != class.dscp())
        // If two classes are equally frequent, each is reported for the other.
        .find(|(_, theirs)| count(*theirs) >= count(class))
}

fn pfc(p: &Port, c: &mut Checks<'_>) {
    let netdev = p.netdev.as_deref().unwrap_or("INTERFACE");
    let Some(bridging) = &p.bridging else {
        let ask = format!("to see them: mlnx_qos -i {netdev}");
        return c.unknown("pfc", format_args!("the driver does not report which priorities are lossless; {ask}"));
    };
    if !bridging.lossless.is_empty() {
        return c.ok("pfc", format!("{} is lossless", bridging.lossless));
    }
    let fix = format!(
        "mlnx_qos -i {netdev} --trust dscp --pfc 0,0,0,1,0,0,0,0, and the same at the switch; a fabric that is meant to be lossy needs none"
    );
    c.warn("pfc", "no priority is lossless: full receivers drop packets", fix);
}

fn ecn(p: &Port, c: &mut Checks<'_>) {
    let counted = |n: Option<u64>| n.map_or("?".to_owned(), |n| n.to_string());
    let n = p.congestion;
    let history = match n.is_at_work() {
        true => format!(
            "{} packets marked, {} notifications sent, {} handled so far",
            counted(n.marked),
            counted(n.notified),
            counted(n.slowed)
        ),
        false => "no packet was marked so far".to_owned(),
    };
    let Some(control) = p.congestion_control else {
        return match n.is_at_work() {
            true => c.ok("ecn", format!("{history}; the driver does not report in which priorities")),
            false => {
                c.unknown("ecn", format_args!("the driver does not report in which priorities it is on; {history}"))
            }
        };
    };
    // If the forced class is of no use, checks the priority of the class that `advised` returns.
    let priority = p.forced_priority().filter(|n| *n > 0).unwrap_or_else(|| p.priority_of(advised(p)));
    if control.complete().contains(priority) {
        return c.ok("ecn", format!("notifies in {}, slows down in {}; {history}", control.notifies, control.reacts));
    }
    let netdev = p.netdev.as_deref().unwrap_or("INTERFACE");
    let fix = format!("for s in roce_np roce_rp; do echo 1 > /sys/class/net/{netdev}/ecn/$s/enable/{priority}; done");
    let detail =
        format!("notifies in {}, slows down in {}, not both in priority {priority}", control.notifies, control.reacts);
    c.warn("ecn", detail, fix);
}

/// Returns a heading such as `0000:18:00.0   ConnectX-7  firmware 28.39.1002  node 0`.
pub(super) fn heading(nic: &RdmaDevice) -> String {
    let mut parts = Vec::new();
    parts.extend(nic.model.map(str::to_owned));
    if nic.software {
        parts.push("software".to_owned());
    }
    parts.extend(nic.driver.as_ref().map(|d| format!("driver {d}")));
    parts.extend(nic.firmware.as_ref().map(|f| format!("firmware {f}")));
    parts.extend(nic.numa_node.map(|n| format!("node {n}")));
    let bdf = nic.bdf.map(|b| format!(" {b}")).unwrap_or_default();
    format!("{}{bdf}   {}", nic.name, parts.join("  "))
}
