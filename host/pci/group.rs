//! IOMMU groups: functions that the IOMMU cannot distinguish, so that VFIO takes them only together.

use super::{Bdf, Sysfs};
use std::fmt;

/// Base class of bridges (PCI Code and ID Assignment 1.16, 1.7), the top byte of the class.
const BASE_BRIDGE: u64 = 0x06;

/// A function in a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMember {
    /// Address.
    pub bdf: Bdf,
    /// Class code: base class, sub-class, programming interface.
    pub class: u32,
    /// Kernel driver that holds it, if one does.
    pub driver: Option<String>,
}

impl GroupMember {
    /// Returns true if VFIO accepts the function in a group: a bridge, a function without a driver, or one of user
    /// space.
    fn is_harmless(&self) -> bool {
        let bridge = u64::from(self.class >> 16) == BASE_BRIDGE;
        bridge || self.driver.as_deref().is_none_or(|d| is_vfio(d) || d == "pci-stub")
    }
}

impl fmt::Display for GroupMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.driver {
            Some(driver) => write!(f, "{} ({driver})", self.bdf),
            None => write!(f, "{}", self.bdf),
        }
    }
}

/// Returns true if a driver gives devices to user space through VFIO: vfio-pci, or a variant of it for a kind of
/// device.
pub fn is_vfio(driver: &str) -> bool {
    driver == "vfio-pci" || driver.ends_with("-vfio-pci") || driver.ends_with("_vfio_pci")
}

/// Returns true if a group of this type (`type` in the group's folder) translates the kernel's own mappings of its functions;
/// `None` for a type that says neither (Linux, Documentation/ABI/testing/sysfs-kernel-iommu_groups).
pub fn type_translates(kind: &str) -> Option<bool> {
    match kind {
        "identity" => Some(false),
        kind if kind.starts_with("DMA") => Some(true),
        _ => None,
    }
}

/// Returns true if an IOMMU translates the mappings of a function's own driver; `None` if the kernel does not report it.
pub fn translates(sysfs: &Sysfs, bdf: Bdf) -> Option<bool> {
    if !sysfs.exists(format!("/sys/bus/pci/devices/{bdf}")) {
        return None;
    }
    match IommuGroup::of(sysfs, bdf) {
        Some(IommuGroup { number, is_no_iommu: false, .. }) => {
            type_translates(&sysfs.text(format!("/sys/kernel/iommu_groups/{number}/type")).ok()?)
        }
        _ => Some(false),
    }
}

/// IOMMU group of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IommuGroup {
    /// Number of the group.
    pub number: u32,
    /// True if VFIO created the group because there is no IOMMU.
    pub is_no_iommu: bool,
    /// All functions of the group, by address.
    pub members: Vec<GroupMember>,
}

impl IommuGroup {
    /// Returns the group of a function; `None` if it is in no group, which means that no IOMMU translates for it.
    pub fn of(sysfs: &Sysfs, bdf: Bdf) -> Option<Self> {
        let number = sysfs.link_name(format!("/sys/bus/pci/devices/{bdf}/iommu_group"))?.parse().ok()?;
        let folder = format!("/sys/kernel/iommu_groups/{number}");
        let is_no_iommu = sysfs.text(format!("{folder}/name")).is_ok_and(|n| n == "vfio-noiommu");
        let members = sysfs.names(format!("{folder}/devices")).into_iter().filter_map(|name| {
            let device = format!("/sys/bus/pci/devices/{name}");
            Some(GroupMember {
                bdf: name.parse().ok()?,
                class: sysfs.number(format!("{device}/class")).and_then(|c| u32::try_from(c).ok()).unwrap_or(0),
                driver: sysfs.link_name(format!("{device}/driver")),
            })
        });
        Some(Self { number, is_no_iommu, members: members.collect() })
    }

    /// Returns the members other than `bdf` that host drivers hold. Because of them VFIO would not take the group.
    pub fn in_the_way(&self, bdf: Bdf) -> impl Iterator<Item = &GroupMember> {
        self.members.iter().filter(move |m| m.bdf != bdf && !m.is_harmless())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree::Tree;
    use super::*;

    #[test]
    fn bridges_and_free_functions_are_fine_and_others_are_named() {
        let tree = Tree::new();
        tree.function("0000:64:00.0", 0x06_04_00, Some("pcieport"), Some(12));
        tree.function("0000:65:00.0", 0x01_08_02, Some("vfio-pci"), Some(12));
        tree.function("0000:65:00.1", 0x02_00_00, None, Some(12));
        tree.function("0000:66:00.0", 0x01_08_02, Some("nvme"), Some(13));
        let bdf = "0000:65:00.0".parse().unwrap();
        let group = IommuGroup::of(&tree.sysfs(), bdf).unwrap();
        assert_eq!((group.number, group.is_no_iommu, group.members.len()), (12, false, 3));
        assert_eq!(group.in_the_way(bdf).count(), 0);
        tree.function("0000:65:00.2", 0x02_00_00, Some("ixgbe"), Some(12));
        let group = IommuGroup::of(&tree.sysfs(), bdf).unwrap();
        let named: Vec<String> = group.in_the_way(bdf).map(ToString::to_string).collect();
        assert_eq!(named, ["0000:65:00.2 (ixgbe)"]);
    }

    #[test]
    fn no_group_and_a_made_up_one_are_told_apart() {
        let tree = Tree::new();
        tree.function("0000:65:00.0", 0x01_08_02, Some("nvme"), None);
        let bdf = "0000:65:00.0".parse().unwrap();
        assert_eq!(IommuGroup::of(&tree.sysfs(), bdf), None);
        tree.function("0000:66:00.0", 0x01_08_02, Some("vfio-pci"), Some(0));
        tree.write("sys/kernel/iommu_groups/0/name", "vfio-noiommu\n");
        assert!(IommuGroup::of(&tree.sysfs(), "0000:66:00.0".parse().unwrap()).unwrap().is_no_iommu);
    }

    #[test]
    fn the_type_of_a_group_says_if_it_translates() {
        let tree = Tree::new();
        let of = |text: &str| translates(&tree.sysfs(), text.parse().unwrap());
        for (i, (kind, expected)) in
            [("DMA", Some(true)), ("DMA-FQ", Some(true)), ("identity", Some(false)), ("blocked", None)]
                .into_iter()
                .enumerate()
        {
            let name = format!("0000:6{i}:00.0");
            tree.function(&name, 0x03_02_00, Some("nvidia"), Some(i as u32));
            assert_eq!(of(&name), None, "a group without a type");
            tree.write(&format!("sys/kernel/iommu_groups/{i}/type"), format!("{kind}\n"));
            assert_eq!(of(&name), expected, "{kind}");
        }
        tree.write("sys/kernel/iommu_groups/0/name", "vfio-noiommu\n");
        assert_eq!(of("0000:60:00.0"), Some(false));
        tree.function("0000:70:00.0", 0x03_02_00, Some("nvidia"), None);
        assert_eq!(of("0000:70:00.0"), Some(false), "no group");
        assert_eq!(of("0000:71:00.0"), None, "no such function");
    }

    #[test]
    fn variants_of_vfio_pci_are_known() {
        assert!(is_vfio("vfio-pci") && is_vfio("mlx5_vfio_pci") && is_vfio("virtio-vfio-pci"));
        assert!(!is_vfio("nvme") && !is_vfio("pci-stub"));
    }
}
