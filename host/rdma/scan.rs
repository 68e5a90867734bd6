//! The machine's RDMA devices, from `/sys/class/infiniband`.

use super::Port;
use crate::pci::{Bdf, Sysfs};
use serde::Serialize;

/// PCI vendor identifier of Mellanox, now NVIDIA's networking division.
const VENDOR_MELLANOX: u16 = 0x15b3;

/// Models of devices that mlx5_core drives, by PCI device identifier (the PCI ID Repository, vendor 15b3). Up to
/// ConnectX-6, a virtual function has the identifier after its physical function's. Later models share one.
const MLX5_MODELS: [(u16, &str); 22] = [
    (0x1011, "Connect-IB"),
    (0x1012, "Connect-IB virtual function"),
    (0x1013, "ConnectX-4"),
    (0x1014, "ConnectX-4 virtual function"),
    (0x1015, "ConnectX-4 Lx"),
    (0x1016, "ConnectX-4 Lx virtual function"),
    (0x1017, "ConnectX-5"),
    (0x1018, "ConnectX-5 virtual function"),
    (0x1019, "ConnectX-5 Ex"),
    (0x101a, "ConnectX-5 Ex virtual function"),
    (0x101b, "ConnectX-6"),
    (0x101c, "ConnectX-6 virtual function"),
    (0x101d, "ConnectX-6 Dx"),
    (0x101e, "ConnectX virtual function"),
    (0x101f, "ConnectX-6 Lx"),
    (0x1021, "ConnectX-7"),
    (0x1023, "ConnectX-8"),
    (0x1025, "ConnectX-9"),
    (0xa2d2, "BlueField"),
    (0xa2d6, "BlueField-2"),
    (0xa2dc, "BlueField-3"),
    (0xa2df, "BlueField-4"),
];

/// Returns the model of a device that mlx5_core drives; `None` for any other device.
pub fn mlx5_model(vendor: u16, device: u16) -> Option<&'static str> {
    let of_vendor = vendor == VENDOR_MELLANOX;
    MLX5_MODELS.iter().find(|(id, _)| of_vendor && *id == device).map(|(_, model)| *model)
}

/// An RDMA device as its files describe it. Unknown properties are `None`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RdmaDevice {
    /// Name in the kernel, as in `mlx5_0`.
    pub name: String,
    /// PCI address; `None` for a software device.
    #[serde(serialize_with = "as_text")]
    pub bdf: Option<Bdf>,
    /// PCI vendor identifier.
    pub vendor: Option<u16>,
    /// PCI device identifier.
    pub device: Option<u16>,
    /// Kernel driver of the PCI function.
    pub driver: Option<String>,
    /// Model, if its name is known.
    pub model: Option<&'static str>,
    /// Firmware version.
    pub firmware: Option<String>,
    /// Board identifier, as in `MT_0000000838`.
    pub board: Option<String>,
    /// Node GUID, as in `0c42:a103:00b2:c3d4`.
    pub node_guid: Option<String>,
    /// Network interface that a software device uses.
    pub parent: Option<String>,
    /// True for devices in software: Soft-RoCE, Soft-iWARP.
    pub software: bool,
    /// True for iWARP devices (`node_type` RNIC). Only rdma_cm connects their queue pairs.
    pub iwarp: bool,
    /// NUMA node.
    pub numa_node: Option<u32>,
    /// Device node for verbs, as in `/dev/infiniband/uverbs0`; `None` if ib_uverbs has created none.
    pub verbs_node: Option<String>,
    /// Ports, by number.
    pub ports: Vec<Port>,
}

fn as_text<S: serde::Serializer>(bdf: &Option<Bdf>, s: S) -> Result<S::Ok, S::Error> {
    match bdf {
        Some(b) => s.collect_str(b),
        None => s.serialize_none(),
    }
}

impl RdmaDevice {
    /// Reads all devices, sorted by name: `mlx5_2` precedes `mlx5_10`.
    pub fn all(sysfs: &Sysfs) -> Vec<Self> {
        let mut names = sysfs.names("/sys/class/infiniband");
        names.sort_by_key(|n| {
            let stem = n.trim_end_matches(|c: char| c.is_ascii_digit());
            (stem.to_owned(), n[stem.len()..].parse::<u64>().unwrap_or(0))
        });
        let nodes = verbs_nodes(sysfs);
        names.into_iter().map(|name| Self::read(sysfs, name, &nodes)).collect()
    }

    fn read(sysfs: &Sysfs, name: String, nodes: &[(String, String)]) -> Self {
        let folder = format!("/sys/class/infiniband/{name}");
        let text = |file: &str| sysfs.text(format!("{folder}/{file}")).ok().filter(|t| !t.is_empty());
        let number = |file: &str| sysfs.number(format!("{folder}/device/{file}"));
        let bdf = function(sysfs, &folder);
        let (vendor, device) = (
            number("vendor").and_then(|n| u16::try_from(n).ok()),
            number("device").and_then(|n| u16::try_from(n).ok()),
        );
        let parent = text("parent");
        let mut ports: Vec<u32> =
            sysfs.names(format!("{folder}/ports")).iter().filter_map(|n| n.parse().ok()).collect();
        ports.sort_unstable();
        let netdev = |port| parent.clone().or_else(|| netdev_of(sysfs, &folder, port, ports.len()));
        Self {
            bdf,
            vendor,
            device,
            driver: sysfs.link_name(format!("{folder}/device/driver")),
            model: vendor.zip(device).and_then(|(v, d)| mlx5_model(v, d)),
            firmware: text("fw_ver"),
            board: text("board_id"),
            node_guid: text("node_guid"),
            // A software device has no device behind it.
            software: bdf.is_none() && (parent.is_some() || is_virtual(sysfs, &folder)),
            // `4: RNIC` (the kernel's enum rdma_node_type).
            iwarp: text("node_type").is_some_and(|t| t.starts_with("4:")),
            numa_node: number("numa_node").and_then(|n| u32::try_from(n).ok()),
            verbs_node: nodes.iter().find(|(of, _)| *of == name).map(|(_, node)| format!("/dev/infiniband/{node}")),
            ports: ports.iter().map(|&n| Port::read(sysfs, &name, n, netdev(n))).collect(),
            parent,
            name,
        }
    }

    /// Returns true if mlx5_core drives the device. Kernels on a GPU can then drive its queues.
    pub fn is_mlx5(&self) -> bool {
        match (&self.driver, self.bdf) {
            (Some(driver), _) => driver.starts_with("mlx5_core"),
            (None, Some(_)) => self.model.is_some(),
            (None, None) => false,
        }
    }

    /// Returns the ports that carry data.
    pub fn active_ports(&self) -> impl Iterator<Item = &Port> {
        self.ports.iter().filter(|p| p.is_active())
    }
}

/// Returns the PCI function behind a device. The function of a sub-function lies above its auxiliary device.
fn function(sysfs: &Sysfs, folder: &str) -> Option<Bdf> {
    let real = sysfs.real(format!("{folder}/device")).ok()?;
    real.components().rev().find_map(|c| c.as_os_str().to_str()?.parse().ok())
}

fn is_virtual(sysfs: &Sysfs, folder: &str) -> bool {
    sysfs.real(folder).is_ok_and(|real| real.starts_with("/sys/devices/virtual"))
}

/// Returns the interface that a device's own folder names for a port. `dev_port` counts from 0.
fn netdev_of(sysfs: &Sysfs, folder: &str, port: u32, ports: usize) -> Option<String> {
    let all = sysfs.names(format!("{folder}/device/net"));
    let of_port = |n: &&String| {
        sysfs.number(format!("{folder}/device/net/{n}/dev_port")).is_some_and(|p| p + 1 == u64::from(port))
    };
    match all.as_slice() {
        [only] if ports == 1 => Some(only.clone()),
        several => several.iter().find(of_port).cloned(),
    }
}

/// Returns pairs of RDMA device and verbs node.
fn verbs_nodes(sysfs: &Sysfs) -> Vec<(String, String)> {
    const FOLDER: &str = "/sys/class/infiniband_verbs";
    let device = |node: String| Some((sysfs.text(format!("{FOLDER}/{node}/ibdev")).ok()?, node));
    sysfs.names(FOLDER).into_iter().filter(|n| n.starts_with("uverbs")).filter_map(device).collect()
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Link, Nic};
    use super::super::{ClassOverride, LinkLayer, TrafficClass};
    use super::*;
    use crate::pci::fixture::{Device, Fixture};

    fn all(tree: &Fixture) -> Vec<RdmaDevice> {
        RdmaDevice::all(&Sysfs::at(tree.root()))
    }

    #[test]
    fn an_infiniband_device_is_read() {
        let tree = Fixture::new();
        Nic::connectx7("mlx5_0").place("pci0000:00/0000:00:01.0/0000:18:00.0").build(&tree);
        let d = all(&tree).remove(0);
        assert_eq!((d.name.as_str(), d.bdf, d.model), ("mlx5_0", "18:00.0".parse().ok(), Some("ConnectX-7")));
        assert_eq!((d.driver.as_deref(), d.firmware.as_deref()), (Some("mlx5_core"), Some("28.39.1002")));
        assert_eq!((d.board.as_deref(), d.numa_node), (Some("MT_0000000838"), Some(0)));
        assert_eq!(d.verbs_node.as_deref(), Some("/dev/infiniband/uverbs0"));
        assert!(d.is_mlx5() && !d.software);
        let p = &d.ports[0];
        assert_eq!((p.link_layer, p.lid, p.sm_lid), (LinkLayer::InfiniBand, Some(0x11), Some(1)));
        assert_eq!((p.gid.as_ref().unwrap().index, p.gids.len()), (0, 1));
        assert_eq!((p.traffic_class, p.congestion_control, p.path_mtu()), (ClassOverride::NoFile, None, None));
        assert_eq!(d.active_ports().count(), 1);
    }

    #[test]
    fn a_roce_device_has_an_interface() {
        let tree = Fixture::new();
        let nic = Nic::connectx6dx("mlx5_0").place("pci0000:00/0000:3b:00.0");
        nic.link(Link::roce("ens1f0np0", "192.168.0.2")).traffic_class("Global tclass=106\n").build(&tree);
        let d = all(&tree).remove(0);
        let p = &d.ports[0];
        assert_eq!(
            (p.link_layer, p.netdev.as_deref(), p.netdev_mtu),
            (LinkLayer::Ethernet, Some("ens1f0np0"), Some(9000))
        );
        assert_eq!((p.lid, p.path_mtu()), (None, Some(4096)));
        assert_eq!(p.traffic_class, ClassOverride::Forced(TrafficClass(106)));
        let choice = p.gid.as_ref().unwrap();
        assert_eq!((choice.index, choice.gid.to_string().as_str()), (3, "::ffff:192.168.0.2"));
    }

    #[test]
    fn a_software_device_has_no_function() {
        let tree = Fixture::new();
        Nic::soft_roce("rxe0").link(Link::soft("wlp2s0", "10.0.0.7")).build(&tree);
        let d = all(&tree).remove(0);
        assert!(d.software && !d.is_mlx5());
        assert_eq!((d.bdf, d.driver, d.parent.as_deref()), (None, None, Some("wlp2s0")));
        assert_eq!((d.firmware, d.ports[0].netdev.as_deref()), (None, Some("wlp2s0")));
    }

    #[test]
    fn names_are_in_the_order_of_their_numbers() {
        let tree = Fixture::new();
        for i in [10, 2, 0] {
            tree.folder(&format!("/sys/class/infiniband/mlx5_{i}/ports/1"));
        }
        tree.folder("/sys/class/infiniband/efa");
        let devices = all(&tree);
        assert_eq!(devices.iter().map(|d| d.name.as_str()).collect::<Vec<_>>(), ["efa", "mlx5_0", "mlx5_2", "mlx5_10"]);
        assert!(devices.iter().all(|d| !d.is_mlx5() && d.verbs_node.is_none()), "a name proves nothing");
        assert!(all(&Fixture::new()).is_empty());
    }

    #[test]
    fn a_sub_function_belongs_to_the_function_above_it() {
        let tree = Fixture::new();
        tree.pci("pci0000:00/0000:3b:00.0", &Device { id: (0x15b3, 0x1021), class: 0x02_00_00, ..Device::default() });
        let at = "/sys/devices/pci0000:00/0000:3b:00.0/mlx5_core.sf.2";
        tree.folder(at).folder("/sys/bus/auxiliary/drivers/mlx5_core.sf");
        tree.link(&format!("{at}/driver"), "/sys/bus/auxiliary/drivers/mlx5_core.sf");
        tree.folder("/sys/class/infiniband/mlx5_2/ports/1").link("/sys/class/infiniband/mlx5_2/device", at);
        let d = all(&tree).remove(0);
        assert_eq!((d.bdf, d.is_mlx5(), d.software), ("3b:00.0".parse().ok(), true, false));
    }

    #[test]
    fn interfaces_of_a_device_with_two_ports_are_told_apart() {
        let tree = Fixture::new();
        for (netdev, port) in [("ens1", 0), ("ens1d1", 1)] {
            tree.file(&format!("/sys/class/infiniband/mlx4_0/device/net/{netdev}/dev_port"), format!("{port}\n"));
        }
        tree.folder("/sys/class/infiniband/mlx4_0/ports/1").folder("/sys/class/infiniband/mlx4_0/ports/2");
        let ports = all(&tree).remove(0).ports;
        assert_eq!(ports.iter().map(|p| p.netdev.as_deref()).collect::<Vec<_>>(), [Some("ens1"), Some("ens1d1")]);
    }

    #[test]
    fn models_are_known_by_their_numbers() {
        assert_eq!(mlx5_model(0x15b3, 0xa2dc), Some("BlueField-3"));
        assert_eq!(mlx5_model(0x15b3, 0x1003), None, "mlx4");
        assert_eq!(mlx5_model(0x1d0f, 0x1021), None, "another vendor");
    }
}
