//! The PCI tree, and the bridges between two functions.

use super::{Bdf, Sysfs};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// Distance between two functions, in the letters of `nvidia-smi topo -m`. A smaller value is nearer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Distance {
    /// A device and itself.
    #[serde(rename = "X")]
    Same,
    /// At most one PCIe switch or bridge.
    Pix,
    /// Several switches or bridges, without the host bridge.
    Pxb,
    /// Through a host bridge.
    Phb,
    /// Between host bridges of one NUMA node.
    Node,
    /// Between NUMA nodes.
    Sys,
}

impl Distance {
    /// Returns true if the path stays below one switch, so that transfers between peers do not load the root complex.
    pub fn shares_switch(self) -> bool {
        self <= Self::Pxb
    }

    /// Returns the meaning of the letters.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Same => "itself",
            Self::Pix => "at most one PCIe switch or bridge",
            Self::Pxb => "several PCIe switches or bridges, no host bridge",
            Self::Phb => "through a host bridge (the processor)",
            Self::Node => "between host bridges of one NUMA node",
            Self::Sys => "between NUMA nodes",
        }
    }
}

impl fmt::Display for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Same => "X",
            Self::Pix => "PIX",
            Self::Pxb => "PXB",
            Self::Phb => "PHB",
            Self::Node => "NODE",
            Self::Sys => "SYS",
        })
    }
}

/// A PCI function and its place in the tree. Facts that its files do not contain are `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Function {
    /// Address.
    pub bdf: Bdf,
    /// Class code, three bytes.
    pub class: Option<u32>,
    /// Vendor identifier.
    pub vendor: Option<u16>,
    /// Device identifier.
    pub device: Option<u16>,
    /// Kernel driver that holds it.
    pub driver: Option<String>,
    /// IOMMU group, if there is one.
    pub iommu_group: Option<u32>,
    /// NUMA node. The firmware of machines with one node often names none.
    pub numa_node: Option<u32>,
    /// Host bridge by its name in the kernel, as in `pci0000:00`.
    pub host_bridge: Option<String>,
    /// Bridges and switch ports from the host bridge down to this function.
    pub bridges: Vec<Bdf>,
}

impl Function {
    fn read(sysfs: &Sysfs, bdf: Bdf) -> Self {
        let file = |name: &str| format!("/sys/bus/pci/devices/{bdf}/{name}");
        let number = |name| sysfs.number(file(name));
        let (host_bridge, bridges) =
            sysfs.real(format!("/sys/bus/pci/devices/{bdf}")).map_or((None, Vec::new()), |real| place(&real, bdf));
        Self {
            bdf,
            class: number("class").and_then(|n| u32::try_from(n).ok()),
            vendor: number("vendor").and_then(|n| u16::try_from(n).ok()),
            device: number("device").and_then(|n| u16::try_from(n).ok()),
            driver: sysfs.link_name(file("driver")),
            iommu_group: sysfs.link_name(file("iommu_group")).and_then(|n| n.parse().ok()),
            numa_node: number("numa_node").and_then(|n| u32::try_from(n).ok()),
            host_bridge,
            bridges,
        }
    }

    /// Returns base class and subclass: 0x0108 for non-volatile memory, 0x0604 for a bridge.
    pub fn class_pair(&self) -> Option<u16> {
        self.class.map(|c| (c >> 8) as u16)
    }

    /// Returns true for a bridge or a switch port (PCI Code and ID Assignment 1.16, 1.7: base class 06h).
    pub fn is_bridge(&self) -> bool {
        self.class.is_some_and(|c| c >> 16 == 0x06)
    }
}

/// Returns the host bridge and the bridges in a path such as
/// `/sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0`.
fn place(real: &Path, bdf: Bdf) -> (Option<String>, Vec<Bdf>) {
    let (mut host, mut bridges) = (None, Vec::new());
    for part in real.components().filter_map(|c| c.as_os_str().to_str()) {
        if part.strip_prefix("pci").is_some_and(|rest| rest.contains(':')) {
            // A host bridge below another function (a volume management device) begins a separate tree.
            host = Some(part.to_owned());
            bridges.clear();
        } else if let Ok(bridge) = part.parse::<Bdf>()
            && bridge != bdf
        {
            bridges.push(bridge);
        }
    }
    (host, bridges)
}

/// Path between two functions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PciPath {
    /// Distance, if it is known.
    pub distance: Option<Distance>,
    /// Nearest bridge above both functions.
    pub common: Option<Bdf>,
    /// Ports below the common bridge that peer traffic passes (all ports if there is no common bridge): the first
    /// function's before the second's, each from the top.
    pub ports: Vec<Bdf>,
}

/// The PCI functions of a machine.
#[derive(Clone, Debug, Default)]
pub struct Topology {
    functions: BTreeMap<Bdf, Function>,
    unnamed: Vec<String>,
    nodes: Option<usize>,
}

impl Topology {
    /// Reads `/sys/bus/pci/devices`. A machine without PCI has no functions.
    pub fn read(sysfs: &Sysfs) -> Self {
        let mut this = Self {
            nodes: sysfs.text("/sys/devices/system/node/online").ok().and_then(|t| count(&t)),
            ..Self::default()
        };
        for name in sysfs.names("/sys/bus/pci/devices") {
            match name.parse() {
                Ok(bdf) => {
                    this.functions.insert(bdf, Function::read(sysfs, bdf));
                }
                Err(_) => this.unnamed.push(name),
            }
        }
        this
    }

    /// Returns the function with an address.
    pub fn get(&self, bdf: Bdf) -> Option<&Function> {
        self.functions.get(&bdf)
    }

    /// Returns all functions, by address.
    pub fn functions(&self) -> impl Iterator<Item = &Function> {
        self.functions.values()
    }

    /// Returns the names under `/sys/bus/pci/devices` that are not addresses with a 16-bit domain. Controllers behind
    /// an Intel volume management device have domains from 10000 on.
    pub fn unnamed(&self) -> &[String] {
        &self.unnamed
    }

    /// Returns the path between two functions.
    pub fn path(&self, a: Bdf, b: Bdf) -> PciPath {
        let unknown = PciPath { distance: None, common: None, ports: Vec::new() };
        if a == b {
            return PciPath { distance: Some(Distance::Same), ..unknown };
        }
        let (Some(a), Some(b)) = (self.get(a), self.get(b)) else { return unknown };
        let (Some(host_a), Some(host_b)) = (&a.host_bridge, &b.host_bridge) else { return unknown };
        let shared = match host_a == host_b {
            true => a.bridges.iter().zip(&b.bridges).take_while(|(x, y)| x == y).count(),
            false => 0,
        };
        let (below_a, below_b) = (&a.bridges[shared..], &b.bridges[shared..]);
        let distance = if shared > 0 {
            // At most one port below the common bridge on each side: these are downstream ports of the same switch.
            let one = below_a.len() <= 1 && below_b.len() <= 1;
            Some(if one { Distance::Pix } else { Distance::Pxb })
        } else if host_a == host_b {
            Some(Distance::Phb)
        } else {
            self.across(a.numa_node, b.numa_node)
        };
        PciPath { distance, common: a.bridges[..shared].last().copied(), ports: [below_a, below_b].concat() }
    }

    /// Returns the distance between functions below different host bridges.
    fn across(&self, a: Option<u32>, b: Option<u32>) -> Option<Distance> {
        match (a, b) {
            (Some(a), Some(b)) => Some(if a == b { Distance::Node } else { Distance::Sys }),
            // On a machine with one node, everything is on that node.
            _ => (self.nodes == Some(1)).then_some(Distance::Node),
        }
    }
}

/// Counts the numbers in a list such as `0-1,4`.
fn count(list: &str) -> Option<usize> {
    let mut n = 0usize;
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        n = n.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    Some(n)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Device, Fixture};
    use super::*;
    use proptest::prelude::*;

    /// Returns a machine with two sockets. On the first are a root port with a switch that contains another one, and
    /// two more root ports.
    fn two_sockets(tree: &Fixture) -> Topology {
        let on = |node| Device { node, ..Device::default() };
        for place in [
            "pci0000:00/0000:00:01.0",
            "pci0000:00/0000:00:01.0/0000:01:00.0",
            "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0",
            "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0",
            "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:03:00.0",
            "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/0000:04:00.0",
            "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:02.0/0000:05:00.0/0000:06:00.0/0000:07:00.0",
            "pci0000:00/0000:00:02.0/0000:08:00.0",
            "pci0000:40/0000:40:01.0/0000:41:00.0",
        ] {
            tree.pci(place, &on(Some(0)));
        }
        tree.pci("pci0000:80/0000:80:01.0/0000:81:00.0", &on(Some(1)));
        tree.pci("pci0000:c0/0000:c0:01.0/0000:c1:00.0", &on(None));
        tree.file("/sys/devices/system/node/online", "0-1\n");
        Topology::read(&Sysfs::at(tree.root()))
    }

    fn bdf(text: &str) -> Bdf {
        text.parse().unwrap()
    }

    #[test]
    fn distances_have_nvidia_smis_letters() {
        let tree = Fixture::new();
        let t = two_sockets(&tree);
        let d = |a, b| t.path(bdf(a), bdf(b)).distance.map(|d| d.to_string());
        let is = |a, b, letters: &str| {
            assert_eq!(d(a, b).as_deref(), Some(letters), "{a} {b}");
            assert_eq!(d(b, a).as_deref(), Some(letters), "{b} {a}");
        };
        is("03:00.0", "03:00.0", "X");
        is("03:00.0", "04:00.0", "PIX");
        is("03:00.0", "07:00.0", "PXB");
        is("03:00.0", "08:00.0", "PHB");
        is("03:00.0", "41:00.0", "NODE");
        is("03:00.0", "81:00.0", "SYS");
        assert_eq!(d("03:00.0", "c1:00.0"), None, "a node that the firmware does not name is not guessed");
        assert_eq!(d("03:00.0", "ff:00.0"), None);
    }

    #[test]
    fn the_ports_of_a_path_are_those_below_the_common_bridge() {
        let tree = Fixture::new();
        let t = two_sockets(&tree);
        let path = t.path(bdf("03:00.0"), bdf("07:00.0"));
        assert_eq!(path.common, Some(bdf("01:00.0")));
        assert_eq!(path.ports, ["02:00.0", "02:02.0", "05:00.0", "06:00.0"].map(bdf));
        let path = t.path(bdf("08:00.0"), bdf("81:00.0"));
        assert_eq!((path.common, path.ports), (None, ["00:02.0", "80:01.0"].map(bdf).to_vec()));
    }

    #[test]
    fn a_machine_with_one_node_needs_no_names_for_it() {
        let tree = Fixture::new();
        tree.pci("pci0000:00/0000:00:01.0", &Device::default()).pci("pci0000:40/0000:40:01.0", &Device::default());
        let path = |t: &Topology| t.path(bdf("00:01.0"), bdf("40:01.0")).distance;
        assert_eq!(path(&Topology::read(&Sysfs::at(tree.root()))), None);
        tree.file("/sys/devices/system/node/online", "0\n");
        assert_eq!(path(&Topology::read(&Sysfs::at(tree.root()))), Some(Distance::Node));
    }

    #[test]
    fn functions_are_read_as_far_as_their_files_go() {
        let tree = Fixture::new();
        let nvme = Device {
            id: (0x144d, 0xa80a),
            class: 0x01_08_02,
            driver: Some("nvme"),
            group: Some(14),
            ..Device::default()
        };
        tree.pci("pci0000:00/0000:00:1d.0/0000:02:00.0", &nvme);
        tree.file("/sys/bus/pci/devices/0000:03:00.0/class", "nonsense");
        tree.file("/sys/bus/pci/devices/10000:e1:00.0/class", "0x010802");
        let t = Topology::read(&Sysfs::at(tree.root()));
        let f = t.get(bdf("02:00.0")).unwrap();
        assert_eq!((f.vendor, f.class_pair(), f.iommu_group), (Some(0x144d), Some(0x0108), Some(14)));
        assert_eq!((f.driver.as_deref(), f.numa_node), (Some("nvme"), None));
        assert_eq!((f.host_bridge.as_deref(), &f.bridges[..]), (Some("pci0000:00"), &[bdf("00:1d.0")][..]));
        let garbled = t.get(bdf("03:00.0")).unwrap();
        assert_eq!((garbled.class, garbled.host_bridge.as_deref()), (None, None));
        assert_eq!(t.unnamed(), ["10000:e1:00.0"]);
        assert_eq!(Topology::read(&Sysfs::at("/nowhere")).functions().count(), 0);
    }

    proptest! {
        #[test]
        fn no_list_panics(text in "[0-9,-]{0,24}|.*") {
            let _ = count(&text);
        }
    }
}
