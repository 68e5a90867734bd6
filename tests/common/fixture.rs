//! Fixtures of machines for tests: trees of `/sys`, `/proc` and `/dev` in a temporary folder, with the kernel's layout.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Creates an empty folder in memory where the system has such a file system, and in the folder for temporary files elsewhere.
/// On a disk, creating and removing the thousand files of a machine takes seconds.
pub fn folder_in_memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// A tree that is removed when this value is dropped.
pub struct Fixture {
    folder: tempfile::TempDir,
}

/// The files of one PCI function.
#[derive(Clone, Debug, Default)]
pub struct Device {
    /// Vendor and device identifiers.
    pub id: (u16, u16),
    /// Class code, three bytes.
    pub class: u32,
    /// Kernel driver.
    pub driver: Option<&'static str>,
    /// IOMMU group.
    pub group: Option<u32>,
    /// NUMA node; `None` is written as -1.
    pub node: Option<u32>,
    /// GT/s and lanes now, GT/s and lanes at most.
    pub link: Option<(&'static str, u32, &'static str, u32)>,
    /// Bytes of the memory BARs, by index; 0 for a BAR that does not exist.
    pub bars: &'static [u64],
    /// Configuration space.
    pub config: Option<Config>,
}

/// The contents of a function's configuration space.
#[derive(Clone, Copy, Debug, Default)]
pub struct Config {
    /// Device/Port Type of the PCI Express capability: 0 endpoint, 4 root port, 5 upstream, 6 downstream port.
    pub port: u8,
    /// Access control: the capability register and the control register.
    pub acs: Option<(u16, u16)>,
    /// Resizable BAR: index, sizes supported (bit n is 2^n MiB), size now as a power of two in MiB.
    pub resizable: Option<(u8, u32, u8)>,
    /// True for the first 64 bytes only, which is what the kernel shows to users other than root.
    pub header_only: bool,
}

impl Config {
    /// Returns the bytes, as in the file `config`.
    pub fn bytes(self) -> Vec<u8> {
        let mut c = vec![0u8; 4096];
        c[0x06] = 0x10; // status: there is a capability list
        c[0x34] = 0x40;
        c[0x40] = 0x01; // power management, before PCI Express, so that a reader has to walk the list
        c[0x41] = 0x60;
        c[0x60] = 0x10;
        c[0x62] = 0x02 | self.port << 4;
        let mut at = 0x100;
        let mut extended = |id: u16, body: &[u8], last: bool| {
            let next = if last { 0u32 } else { at as u32 + 0x40 };
            c[at..at + 4].copy_from_slice(&(u32::from(id) | 1 << 16 | next << 20).to_le_bytes());
            c[at + 4..at + 4 + body.len()].copy_from_slice(body);
            at += 0x40;
        };
        // Error reporting comes first on real ports.
        extended(0x0001, &[], self.acs.is_none() && self.resizable.is_none());
        if let Some((capability, control)) = self.acs {
            let [a, b] = capability.to_le_bytes();
            let [d, e] = control.to_le_bytes();
            extended(0x000d, &[a, b, d, e], self.resizable.is_none());
        }
        if let Some((index, sizes, now)) = self.resizable {
            let control = u32::from(index) | 1 << 5 | u32::from(now) << 8;
            let body: Vec<u8> = [(sizes << 4).to_le_bytes(), control.to_le_bytes()].concat();
            extended(0x0015, &body, true);
        }
        c.truncate(if self.header_only { 64 } else { 4096 });
        c
    }
}

impl Default for Fixture {
    fn default() -> Self {
        Self::new()
    }
}

impl Fixture {
    /// Returns an empty machine.
    pub fn new() -> Self {
        Self { folder: folder_in_memory() }
    }

    /// Returns the folder that stands for `/`.
    pub fn root(&self) -> &Path {
        self.folder.path()
    }

    /// Returns a user that owns none of the files.
    pub fn stranger(&self) -> u32 {
        fs::metadata(self.root()).unwrap().uid() + 1
    }

    fn path(&self, name: &str) -> PathBuf {
        let path = self.root().join(name.trim_start_matches('/'));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        path
    }

    /// Writes a file with a text, or with bytes.
    pub fn file(&self, name: &str, text: impl AsRef<[u8]>) -> &Self {
        fs::write(self.path(name), text).unwrap();
        self
    }

    /// Creates a folder.
    pub fn folder(&self, name: &str) -> &Self {
        fs::create_dir_all(self.path(name)).unwrap();
        self
    }

    /// Creates a device node, which is a plain file here, with its mode.
    pub fn node(&self, name: &str, mode: u32) -> &Self {
        self.file(name, "");
        fs::set_permissions(self.path(name), fs::Permissions::from_mode(mode)).unwrap();
        self
    }

    /// Creates a symbolic link to another name in the tree.
    pub fn link(&self, name: &str, target: &str) -> &Self {
        let up = "../".repeat(name.trim_start_matches('/').matches('/').count());
        symlink(format!("{up}{}", target.trim_start_matches('/')), self.path(name)).unwrap();
        self
    }

    /// Creates a PCI function by its place below `/sys/devices`, as in `pci0000:00/0000:00:01.0/0000:01:00.0`.
    pub fn pci(&self, place: &str, device: &Device) -> &Self {
        let at = format!("/sys/devices/{place}");
        let bdf = place.rsplit('/').next().unwrap();
        let file = |name: &str, text: String| {
            self.file(&format!("{at}/{name}"), text + "\n");
        };
        file("vendor", format!("0x{:04x}", device.id.0));
        file("device", format!("0x{:04x}", device.id.1));
        file("class", format!("0x{:06x}", device.class));
        file("numa_node", device.node.map_or("-1".into(), |n| n.to_string()));
        let (mut base, mut resource) = (0x20_0000_0000u64, String::new());
        for i in 0..13 {
            let bytes = device.bars.get(i).copied().unwrap_or(0);
            // Flags: memory, 64 bits (linux/ioport.h).
            let (start, end, flags) = if bytes == 0 { (0, 0, 0) } else { (base, base + bytes - 1, 0x14_0204u64) };
            resource += &format!("0x{start:016x} 0x{end:016x} 0x{flags:016x}\n");
            base = (end + 1).max(base).next_multiple_of(1 << 40);
        }
        self.file(&format!("{at}/resource"), resource);
        if let Some((speed, width, max_speed, max_width)) = device.link {
            file("current_link_speed", format!("{speed} GT/s PCIe"));
            file("current_link_width", width.to_string());
            file("max_link_speed", format!("{max_speed} GT/s PCIe"));
            file("max_link_width", max_width.to_string());
        }
        if let Some(config) = device.config {
            self.file(&format!("{at}/config"), config.bytes());
        }
        self.link(&format!("/sys/bus/pci/devices/{bdf}"), &at);
        if let Some(driver) = device.driver {
            self.folder(&format!("/sys/bus/pci/drivers/{driver}"));
            self.link(&format!("{at}/driver"), &format!("/sys/bus/pci/drivers/{driver}"));
        }
        if let Some(group) = device.group {
            let folder = format!("/sys/kernel/iommu_groups/{group}");
            self.link(&format!("{folder}/devices/{bdf}"), &at);
            self.link(&format!("{at}/iommu_group"), &folder);
        }
        self
    }

    /// Sets the type of an IOMMU group, as in `DMA` or `identity`.
    pub fn group_type(&self, group: u32, text: &str) -> &Self {
        self.file(&format!("/sys/kernel/iommu_groups/{group}/type"), format!("{text}\n"))
    }
}

/// Returns a machine with two GPUs, `01:00.0` and `81:00.0`, that only PCIe joins. Each is below a root port with this ACS
/// control register, which the kernel hides if it is `None`, and in an IOMMU group of this type.
pub fn pcie_gpus(acs: Option<u16>, group_type: &str) -> Fixture {
    let tree = Fixture::new();
    let config = match acs {
        Some(control) => Config { port: 4, acs: Some((0x5f, control)), ..Config::default() },
        None => Config { port: 4, header_only: true, ..Config::default() },
    };
    for (i, bus, next) in [(0, "00", "01"), (1, "80", "81")] {
        let port = Device { class: 0x06_04_00, node: Some(i), config: Some(config), ..Device::default() };
        let gpu = Device {
            id: (0x10de, 0x26b9),
            class: 0x03_02_00,
            driver: Some("nvidia"),
            node: Some(i),
            group: Some(i),
            ..Device::default()
        };
        let root = format!("pci0000:{bus}/0000:{bus}:01.0");
        tree.pci(&root, &port).pci(&format!("{root}/0000:{next}:00.0"), &gpu).group_type(i, group_type);
    }
    tree
}
