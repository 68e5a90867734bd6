//! The kernel's view of the machine, read below a root so that a recorded tree is read the same way as the real one.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Where `/sys`, `/proc` and `/dev` are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sysfs {
    root: PathBuf,
}

impl Default for Sysfs {
    fn default() -> Self {
        Self::system()
    }
}

impl Sysfs {
    /// The machine itself.
    pub fn system() -> Self {
        Self::at("/")
    }

    /// A recorded tree: `root/sys`, `root/proc` and `root/dev` stand for the real ones.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Whether this is the machine itself, so that asking the kernel says more than reading files.
    pub fn is_system(&self) -> bool {
        self.root == Path::new("/")
    }

    /// The path of a file by its name on a real machine, with or without the leading slash.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        let name = name.as_ref();
        self.root.join(name.strip_prefix("/").unwrap_or(name))
    }

    /// A file's text without surrounding white space.
    pub fn text(&self, name: impl AsRef<Path>) -> io::Result<String> {
        Ok(std::fs::read_to_string(self.path(name))?.trim().to_owned())
    }

    /// A file's bytes, at most `limit` of them.
    pub fn bytes(&self, name: impl AsRef<Path>, limit: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        std::fs::File::open(self.path(name))?.take(limit).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Where a file really is once links are followed, by its name on a real machine.
    pub fn real(&self, name: impl AsRef<Path>) -> io::Result<PathBuf> {
        let (real, root) = (self.path(name).canonicalize()?, self.root.canonicalize()?);
        Ok(Path::new("/").join(real.strip_prefix(&root).unwrap_or(&real)))
    }

    /// A file's number, decimal or hexadecimal after `0x`; `None` where there is no such file or no number in it.
    pub fn number(&self, name: impl AsRef<Path>) -> Option<u64> {
        let text = self.text(name).ok()?;
        match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => text.parse().ok(),
        }
    }

    /// The last part of what a symbolic link points to, which is how sysfs names drivers and groups.
    pub fn link_name(&self, name: impl AsRef<Path>) -> Option<String> {
        let target = std::fs::read_link(self.path(name)).ok()?;
        Some(target.file_name()?.to_string_lossy().into_owned())
    }

    /// The names in a folder, sorted; none where there is no such folder.
    pub fn names(&self, folder: impl AsRef<Path>) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.path(folder)) else { return Vec::new() };
        let mut names: Vec<_> = entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Returns true if the processor encrypts memory: it has AMD's SME, and the kernel was told to use that. Kernels that were built to
    /// use it without being told are not known by their files.
    pub fn encrypts_memory(&self) -> bool {
        let has = |file: &str, word: &str| self.text(file).is_ok_and(|t| t.split_whitespace().any(|w| w == word));
        has("/proc/cmdline", "mem_encrypt=on") && has("/proc/cpuinfo", "sme")
    }

    /// Whether there is such a file or folder.
    pub fn exists(&self, name: impl AsRef<Path>) -> bool {
        self.path(name).exists()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_recorded_tree_is_read_like_the_machine() {
        let dir = tempfile::tempdir().unwrap();
        let sysfs = Sysfs::at(dir.path());
        let device = dir.path().join("sys/bus/pci/devices/0000:65:00.0");
        fs::create_dir_all(&device).unwrap();
        fs::write(device.join("class"), "0x010802\n").unwrap();
        fs::write(device.join("numa_node"), "-1\n").unwrap();
        fs::write(device.join("max_link_width"), "16\n").unwrap();
        std::os::unix::fs::symlink("../../../drivers/vfio-pci", device.join("driver")).unwrap();
        let name = |f: &str| format!("/sys/bus/pci/devices/0000:65:00.0/{f}");
        assert_eq!(sysfs.text(name("class")).unwrap(), "0x010802");
        assert_eq!(sysfs.number(name("class")), Some(0x01_08_02));
        assert_eq!(sysfs.number(name("max_link_width")), Some(16));
        assert_eq!(sysfs.number(name("numa_node")), None);
        assert_eq!(sysfs.link_name(name("driver")).as_deref(), Some("vfio-pci"));
        assert_eq!(sysfs.link_name(name("iommu_group")), None);
        assert_eq!(sysfs.names("sys/bus/pci/devices"), ["0000:65:00.0"]);
        assert!(sysfs.names("/sys/nowhere").is_empty() && !sysfs.exists("/sys/nowhere"));
    }
}
