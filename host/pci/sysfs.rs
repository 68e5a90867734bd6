//! Reads the kernel's files about the machine below a root folder, so that a fixture is read in the same way as the
//! real machine.

use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Root folder of `/sys`, `/proc` and `/dev`.
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
    /// Returns the files of this machine.
    pub fn system() -> Self {
        Self::at("/")
    }

    /// Returns the files of a fixture: `root/sys`, `root/proc` and `root/dev` replace the real ones.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Returns true for this machine, where the kernel can be asked for more than files show.
    pub(crate) fn is_system(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Returns the path of a file from its name on a real machine, with or without the leading slash.
    pub(crate) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        let name = name.as_ref();
        self.root.join(name.strip_prefix("/").unwrap_or(name))
    }

    /// Returns a file's text without surrounding white space.
    ///
    /// # Errors
    /// [`io::Error`] if the file cannot be read or is not UTF-8.
    pub(crate) fn text(&self, name: impl AsRef<Path>) -> io::Result<String> {
        Ok(std::fs::read_to_string(self.path(name))?.trim().to_owned())
    }

    /// Returns a file's bytes, at most `limit` of them.
    ///
    /// # Errors
    /// [`io::Error`] if the file cannot be read.
    pub(crate) fn bytes(&self, name: impl AsRef<Path>, limit: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        std::fs::File::open(self.path(name))?.take(limit).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Follows symbolic links, and returns the file's name on a real machine.
    ///
    /// # Errors
    /// [`io::Error`] if the file does not exist or a link cannot be followed.
    pub(crate) fn real(&self, name: impl AsRef<Path>) -> io::Result<PathBuf> {
        let (real, root) = (self.path(name).canonicalize()?, self.root.canonicalize()?);
        Ok(Path::new("/").join(real.strip_prefix(&root).unwrap_or(&real)))
    }

    /// Returns a file's number, decimal or hexadecimal after `0x`; `None` without such a file or without a number in
    /// it.
    pub(crate) fn number(&self, name: impl AsRef<Path>) -> Option<u64> {
        let text = self.text(name).ok()?;
        match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => text.parse().ok(),
        }
    }

    /// Returns the last component of a symbolic link's target, which sysfs uses to name drivers and groups.
    pub(crate) fn link_name(&self, name: impl AsRef<Path>) -> Option<String> {
        let target = std::fs::read_link(self.path(name)).ok()?;
        Some(target.file_name()?.to_string_lossy().into_owned())
    }

    /// Returns the names in a folder, sorted; none if there is no such folder.
    pub(crate) fn names(&self, folder: impl AsRef<Path>) -> Vec<String> {
        let Ok(entries) = std::fs::read_dir(self.path(folder)) else { return Vec::new() };
        let mut names: Vec<_> = entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Returns true if the processor encrypts memory: it has AMD's SME, and the kernel's command line switches it on. A
    /// kernel that was built to switch it on by default is not detected by its files.
    pub(crate) fn encrypts_memory(&self) -> bool {
        let has = |file: &str, word: &str| self.text(file).is_ok_and(|t| t.split_whitespace().any(|w| w == word));
        has("/proc/cmdline", "mem_encrypt=on") && has("/proc/cpuinfo", "sme")
    }

    /// Returns true if there is such a file or folder.
    pub(crate) fn exists(&self, name: impl AsRef<Path>) -> bool {
        self.path(name).exists()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_fixture_is_read_like_the_machine() {
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
