//! Lists the NVMe controllers of the system under any driver.

use super::find::{functions, nvme_nodes};
use super::{Bdf, Sysfs};
use serde::Serialize;

/// Unit of `/sys/block/*/size` in bytes.
const SECTOR: u64 = 512;

/// A namespace that the kernel's driver shows as a block device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ListedNamespace {
    /// Name of the block device, as in `nvme0n1`.
    pub name: String,
    /// Namespace identifier.
    pub nsid: u64,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Size of a logical block in bytes.
    pub block_bytes: u64,
}

/// A controller on PCI Express.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ListedController {
    /// PCI address.
    #[serde(serialize_with = "super::scan::as_text")]
    pub address: Bdf,
    /// PCI vendor ID.
    pub vendor: Option<u64>,
    /// PCI device ID.
    pub device: Option<u64>,
    /// Kernel driver that holds it, if one does.
    pub driver: Option<String>,
    /// IOMMU group, if there is an IOMMU.
    pub iommu_group: Option<String>,
    /// NUMA node.
    pub numa_node: Option<u64>,
    /// Name in the kernel, as in `nvme0`, if the kernel's NVMe driver has it.
    pub name: Option<String>,
    /// Model, known while the kernel's driver has it.
    pub model: Option<String>,
    /// Serial number, known while the kernel's driver has it.
    pub serial: Option<String>,
    /// Firmware revision, known while the kernel's driver has it.
    pub firmware: Option<String>,
    /// Namespaces, by identifier.
    pub namespaces: Vec<ListedNamespace>,
}

/// Returns the NVMe controllers of the machine, by address.
pub fn nvme_listing(sysfs: &Sysfs) -> Vec<ListedController> {
    let nodes = nvme_nodes(sysfs);
    functions(sysfs)
        .into_iter()
        .map(|bdf| {
            let folder = format!("/sys/bus/pci/devices/{bdf}");
            let node = nodes.iter().find(|n| n.bdf == Some(bdf));
            let known = |text: String| (!text.is_empty()).then_some(text);
            let firmware = node.and_then(|n| sysfs.text(format!("/sys/class/nvme/{}/firmware_rev", n.name)).ok());
            ListedController {
                address: bdf,
                vendor: sysfs.number(format!("{folder}/vendor")),
                device: sysfs.number(format!("{folder}/device")),
                driver: sysfs.link_name(format!("{folder}/driver")),
                iommu_group: sysfs.link_name(format!("{folder}/iommu_group")),
                numa_node: sysfs.number(format!("{folder}/numa_node")),
                name: node.map(|n| n.name.clone()),
                model: node.and_then(|n| known(n.model.clone())),
                serial: node.and_then(|n| known(n.serial.clone())),
                firmware: firmware.and_then(known),
                namespaces: node.map_or_else(Vec::new, |n| namespaces(sysfs, &n.name)),
            }
        })
        .collect()
}

fn namespaces(sysfs: &Sysfs, node: &str) -> Vec<ListedNamespace> {
    let folder = format!("/sys/class/nvme/{node}");
    let names = sysfs.names(&folder).into_iter();
    let mut all: Vec<_> = names
        .filter_map(|entry| {
            let number = |file: &str| sysfs.number(format!("{folder}/{entry}/{file}"));
            Some(ListedNamespace {
                name: block_device(&entry)?,
                nsid: number("nsid")?,
                size_bytes: number("size")? * SECTOR,
                block_bytes: number("queue/logical_block_size").unwrap_or(SECTOR),
            })
        })
        .collect();
    all.sort_by(|a, b| (a.nsid, &a.name).cmp(&(b.nsid, &b.name)));
    all
}

/// Returns `nvme0n1` for `nvme0n1` and for `nvme0c1n1`, which is one of several paths to it; `None` if `entry` is no
/// namespace.
fn block_device(entry: &str) -> Option<String> {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let (controller, namespace) = entry.strip_prefix("nvme")?.split_once('n')?;
    let subsystem = match controller.split_once('c') {
        Some((subsystem, path)) if number(path) => subsystem,
        Some(_) => return None,
        None => controller,
    };
    (number(subsystem) && number(namespace)).then(|| format!("nvme{subsystem}n{namespace}"))
}

#[cfg(test)]
mod tests {
    use super::super::tree::Tree;
    use super::*;

    #[test]
    fn controllers_are_listed_whoever_drives_them() {
        let tree = Tree::new();
        tree.function("0000:65:00.0", 0x01_08_02, Some("nvme"), Some(3));
        tree.write("sys/bus/pci/devices/0000:65:00.0/vendor", "0x144d\n");
        tree.write("sys/bus/pci/devices/0000:65:00.0/numa_node", "-1\n");
        tree.node("nvme0", "0000:65:00.0", "S1", "ACME Fast 1TB");
        tree.write("sys/class/nvme/nvme0/firmware_rev", "1.0     \n");
        for (name, nsid, size, block) in [("nvme0n1", 1, 2_000_000, 512), ("nvme0c0n2", 2, 8, 4096)] {
            tree.write(&format!("sys/class/nvme/nvme0/{name}/nsid"), format!("{nsid}\n"));
            tree.write(&format!("sys/class/nvme/nvme0/{name}/size"), format!("{size}\n"));
            tree.write(&format!("sys/class/nvme/nvme0/{name}/queue/logical_block_size"), format!("{block}\n"));
        }
        tree.function("0000:17:00.0", 0x01_08_02, Some("vfio-pci"), None);
        tree.function("0000:06:00.0", 0x03_02_00, Some("nvidia"), None);
        let all = nvme_listing(&tree.sysfs());
        let addresses: Vec<_> = all.iter().map(|c| c.address.to_string()).collect();
        assert_eq!(addresses, ["0000:17:00.0", "0000:65:00.0"]);
        assert_eq!((all[0].driver.as_deref(), &all[0].name, &all[0].iommu_group), (Some("vfio-pci"), &None, &None));
        let c = &all[1];
        assert_eq!((c.name.as_deref(), c.model.as_deref()), (Some("nvme0"), Some("ACME Fast 1TB")));
        assert_eq!((c.serial.as_deref(), c.firmware.as_deref()), (Some("S1"), Some("1.0")));
        assert_eq!((c.vendor, c.numa_node, c.iommu_group.as_deref()), (Some(0x144d), None, Some("3")));
        let sizes: Vec<_> =
            c.namespaces.iter().map(|n| (n.name.as_str(), n.nsid, n.size_bytes, n.block_bytes)).collect();
        assert_eq!(sizes, [("nvme0n1", 1, 1_024_000_000, 512), ("nvme0n2", 2, 4096, 4096)]);
        assert!(nvme_listing(&Sysfs::at("/nowhere")).is_empty());
    }

    #[test]
    fn only_namespaces_are_block_devices() {
        assert_eq!(block_device("nvme10n2").as_deref(), Some("nvme10n2"));
        assert_eq!(block_device("nvme1c3n2").as_deref(), Some("nvme1n2"));
        for other in ["hwmon1", "nvme0", "nvmen1", "nvme0c0", "ng0n1", "nvme0cxn1", "power"] {
            assert_eq!(block_device(other), None, "{other}");
        }
    }
}
