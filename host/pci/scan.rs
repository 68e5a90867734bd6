//! Finds NVMe functions under `/sys/bus/pci`.

use super::Bdf;
use serde::Serialize;
use std::path::Path;

/// PCI class: mass storage, non-volatile memory, NVM Express (PCI Code and ID Assignment 1.16, 1.2). The low byte is
/// the programming interface.
const NVME_CLASS: u32 = 0x01_08_02;

/// A PCI function whose class is that of an NVMe controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct NvmeFunction {
    /// PCI address.
    #[serde(serialize_with = "as_text")]
    pub bdf: Bdf,
    /// Kernel driver that holds it, if one does.
    pub driver: Option<String>,
    /// IOMMU group, if there is an IOMMU.
    pub iommu_group: Option<String>,
}

pub(super) fn as_text<S: serde::Serializer>(bdf: &Bdf, s: S) -> Result<S::Ok, S::Error> {
    s.collect_str(bdf)
}

/// Returns the NVMe controllers of this machine, by address. A machine without PCI has none.
pub fn nvme_functions() -> Vec<NvmeFunction> {
    scan(Path::new("/sys/bus/pci/devices"))
}

fn scan(devices: &Path) -> Vec<NvmeFunction> {
    let Ok(entries) = std::fs::read_dir(devices) else { return Vec::new() };
    let mut found: Vec<_> = entries
        .flatten()
        .filter_map(|entry| {
            let class = std::fs::read_to_string(entry.path().join("class")).ok()?;
            let class = u32::from_str_radix(class.trim().strip_prefix("0x")?, 16).ok()?;
            let link = |name: &str| {
                let target = std::fs::read_link(entry.path().join(name)).ok()?;
                Some(target.file_name()?.to_string_lossy().into_owned())
            };
            let bdf = entry.file_name().to_str()?.parse().ok()?;
            (class == NVME_CLASS).then(|| NvmeFunction {
                bdf,
                driver: link("driver"),
                iommu_group: link("iommu_group"),
            })
        })
        .collect();
    found.sort_by_key(|f| (f.bdf.domain, f.bdf.bus, f.bdf.device, f.bdf.function));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_nvme_controllers_are_listed() {
        let folder = tempfile::tempdir().unwrap();
        for (name, class) in
            [("0000:65:00.0", "0x010802\n"), ("0000:17:00.1", "0x010802\n"), ("0000:06:00.0", "0x030200\n")]
        {
            std::fs::create_dir(folder.path().join(name)).unwrap();
            std::fs::write(folder.path().join(name).join("class"), class).unwrap();
        }
        std::fs::create_dir(folder.path().join("not an address")).unwrap();
        std::os::unix::fs::symlink("../../drivers/vfio-pci", folder.path().join("0000:65:00.0/driver")).unwrap();
        let found = scan(folder.path());
        assert_eq!(found.iter().map(|f| f.bdf.to_string()).collect::<Vec<_>>(), ["0000:17:00.1", "0000:65:00.0"]);
        assert_eq!(found[0].driver, None);
        assert_eq!(found[1].driver.as_deref(), Some("vfio-pci"));
        assert!(scan(Path::new("/nowhere")).is_empty());
    }
}
