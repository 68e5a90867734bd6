//! Creates /sys and /proc trees for tests.

use super::Sysfs;
use super::fixture::folder_in_memory;
use std::fs;
use std::os::unix::fs::symlink;
use tempfile::TempDir;

/// Files of a machine in a temporary folder.
pub(super) struct Tree(TempDir);

impl Tree {
    pub(super) fn new() -> Self {
        Self(folder_in_memory())
    }

    pub(super) fn sysfs(&self) -> Sysfs {
        Sysfs::at(self.0.path())
    }

    /// Writes a file, and creates its folders.
    pub(super) fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let path = self.0.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    /// Creates a symbolic link as in sysfs: only the last part of the target matters, unless files behind the link are
    /// read.
    pub(super) fn link(&self, name: &str, target: &str) {
        let path = self.0.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let _ = fs::remove_file(&path);
        let target = target.strip_prefix('/').map_or_else(|| target.into(), |t| self.0.path().join(t));
        symlink(target, path).unwrap();
    }

    pub(super) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.0.path().join(name)).unwrap()
    }

    /// Adds a PCI function with its driver and IOMMU group.
    pub(super) fn function(&self, bdf: &str, class: u32, driver: Option<&str>, group: Option<u32>) {
        let device = format!("sys/bus/pci/devices/{bdf}");
        self.write(&format!("{device}/class"), format!("0x{class:06x}\n"));
        self.write(&format!("{device}/driver_override"), "(null)\n");
        self.write("sys/bus/pci/drivers_probe", "");
        if let Some(driver) = driver {
            self.write(&format!("sys/bus/pci/drivers/{driver}/unbind"), "");
            self.link(&format!("{device}/driver"), &format!("/sys/bus/pci/drivers/{driver}"));
        }
        if let Some(group) = group {
            self.write(&format!("sys/kernel/iommu_groups/{group}/devices/{bdf}"), "");
            self.link(&format!("{device}/iommu_group"), &format!("/sys/kernel/iommu_groups/{group}"));
        }
    }

    /// Adds a controller of the kernel's NVMe driver.
    pub(super) fn node(&self, name: &str, address: &str, serial: &str, model: &str) {
        let folder = format!("sys/class/nvme/{name}");
        for (file, text) in [("address", address), ("serial", serial), ("model", model), ("transport", "pcie")] {
            // The kernel pads with blanks.
            self.write(&format!("{folder}/{file}"), format!("{text:<20}\n"));
        }
    }

    /// Adds a block device of 8 MiB.
    pub(super) fn block(&self, name: &str, number: &str) {
        self.write(&format!("sys/class/block/{name}/dev"), format!("{number}\n"));
        self.write(&format!("sys/class/block/{name}/size"), "16384\n");
    }

    /// Adds a partition of a block device.
    pub(super) fn partition(&self, of: &str, name: &str, number: &str) {
        self.block(name, number);
        self.write(&format!("sys/class/block/{of}/{name}/partition"), "1\n");
    }

    /// Adds a block device that consists of another one.
    pub(super) fn holder(&self, of: &str, name: &str, number: &str) {
        self.block(name, number);
        self.write(&format!("sys/class/block/{of}/holders/{name}/dev"), format!("{number}\n"));
    }

    pub(super) fn remove(&self, name: &str) {
        fs::remove_file(self.0.path().join(name)).unwrap();
    }
}
