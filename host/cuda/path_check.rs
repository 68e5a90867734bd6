//! CUDA's check of the path between GPUs that only PCIe joins. From 13.5 on, queries of peer access are also denied by the IOMMU
//! and by ACS.

use crate::pci::{AcsPath, Bdf, Sysfs, Topology, translates};

/// First CUDA version of drivers with the check (CUDA Features Archive, 13.5, "CUDA Platform").
const CHECKED_FROM: (u32, u32) = (13, 5);
/// Environment variable that overrides the result of the check if its value is 1.
pub const OVERRIDE_VARIABLE: &str = "CUDA_DISABLE_IOMMU_ACS_P2P_CAPABILITY_CHECK";

/// Returns true if a driver of this CUDA version has the check, and the environment does not override it.
///
/// `variable` is the value of [`OVERRIDE_VARIABLE`].
pub fn is_checked(cuda_version: (u32, u32), variable: Option<&str>) -> bool {
    cuda_version >= CHECKED_FROM && variable != Some("1")
}

/// Properties of the PCIe paths from one GPU to others that CUDA checks, as the kernel's files show them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathCheck {
    /// GPUs for which the IOMMU translates.
    translated: Vec<Bdf>,
    /// Effect of ACS on the paths.
    acs: AcsPath,
    /// Facts that the files do not show.
    unknown: Vec<String>,
}

impl PathCheck {
    /// Reads the files. `gpu` and `peers` are PCI addresses; `None` for a GPU whose driver reports none.
    pub fn read(sysfs: &Sysfs, topology: &Topology, gpu: Option<Bdf>, peers: &[Option<Bdf>]) -> Self {
        let mut this = Self::default();
        let mut ports = Vec::new();
        for bdf in peers.iter().chain([&gpu]).flatten() {
            match translates(sysfs, *bdf) {
                Some(true) => this.translated.push(*bdf),
                Some(false) => {}
                None => this.unknown.push(format!("the kernel does not report whether the IOMMU translates for {bdf}")),
            }
        }
        for peer in peers {
            let path = gpu.zip(*peer).map(|(gpu, peer)| topology.path(gpu, peer));
            match path.filter(|p| p.distance.is_some() || !p.ports.is_empty()) {
                Some(path) => ports.extend(path.ports),
                None => this.unknown.push(match peer {
                    Some(peer) => format!("the kernel does not report the PCI path to {peer}"),
                    None => "the driver does not report a peer's PCI address".to_owned(),
                }),
            }
        }
        this.translated.sort();
        ports.sort();
        ports.dedup();
        this.acs = AcsPath::read(sysfs, &ports);
        if !this.acs.hidden.is_empty() {
            this.unknown.push(format!("the kernel shows the ACS registers of {} to root only", list(&this.acs.hidden)));
        }
        this
    }

    /// Returns the cause with what was found on this machine.
    pub fn cause(&self) -> String {
        let mut found = Vec::new();
        if !self.translated.is_empty() {
            found.push(format!("the IOMMU translates for {}", list(&self.translated)));
        }
        if !self.acs.redirecting.is_empty() {
            found.push(format!("ACS redirects at {}", list(&self.acs.redirecting)));
        }
        if found.is_empty() {
            found.push(
                "no translation and no redirection is found (a virtual machine does not see its host's)".to_owned(),
            );
        }
        found.extend(self.unknown.iter().cloned());
        let (major, minor) = CHECKED_FROM;
        format!(
            "from CUDA {major}.{minor} on, the driver also checks IOMMU and ACS between GPUs that only PCIe joins; here {}",
            found.join(", ")
        )
    }

    /// Returns the remedies: the setting that removes the cause, and the variable with its risk.
    pub fn remedy(&self) -> String {
        let mut steps = Vec::new();
        if !self.translated.is_empty() {
            steps.push("iommu=pt (Arm: iommu.passthrough=1) on the kernel command line and reboot".to_owned());
        }
        if !self.acs.redirecting.is_empty() {
            steps.push(self.acs.switch_off());
        }
        let safe = if steps.is_empty() { String::new() } else { format!("{}; or, ", steps.join("; and ")) };
        format!(
            "{safe}at a risk, {OVERRIDE_VARIABLE}=1 for all ranks: where the IOMMU translates or ACS redirects, the check keeps \
             transfers from going wrong, and without it data may be lost or corrupted; verify with warpbell bench shmem first"
        )
    }
}

fn list(all: &[Bdf]) -> String {
    all.iter().map(Bdf::to_string).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pci::fixture::{Device, Fixture, pcie_gpus};

    fn bdf(text: &str) -> Option<Bdf> {
        Some(text.parse().unwrap())
    }

    fn read(tree: &Fixture, peers: &[Option<Bdf>]) -> PathCheck {
        let sysfs = Sysfs::at(tree.root());
        PathCheck::read(&sysfs, &Topology::read(&sysfs), bdf("01:00.0"), peers)
    }

    #[test]
    fn the_check_is_that_of_drivers_from_13_5_on_without_the_variable() {
        for (version, variable, expected) in [
            ((13, 4), None, false),
            ((12, 9), None, false),
            ((13, 5), None, true),
            ((14, 0), None, true),
            ((13, 5), Some("1"), false),
            ((13, 5), Some("0"), true),
            ((13, 5), Some(""), true),
        ] {
            assert_eq!(is_checked(version, variable), expected, "{version:?} {variable:?}");
        }
    }

    #[test]
    fn translation_and_redirection_are_named_with_their_settings() {
        let both = read(&pcie_gpus(Some(0x1d), "DMA-FQ"), &[bdf("81:00.0")]);
        let (cause, remedy) = (both.cause(), both.remedy());
        assert!(cause.starts_with("from CUDA 13.5 on"), "{cause}");
        let found =
            "here the IOMMU translates for 0000:01:00.0 0000:81:00.0, ACS redirects at 0000:00:01.0 0000:80:01.0";
        assert!(cause.ends_with(found), "{cause}");
        assert!(remedy.starts_with("iommu=pt"), "{remedy}");
        assert!(remedy.contains("; and pci=disable_acs_redir=0000:00:01.0;0000:80:01.0 on the kernel"), "{remedy}");
        assert!(remedy.contains(&format!("{OVERRIDE_VARIABLE}=1")), "{remedy}");
        assert!(remedy.contains("lost or corrupted") && remedy.contains("bench shmem"), "{remedy}");
    }

    #[test]
    fn only_what_is_there_is_named() {
        let translated = read(&pcie_gpus(Some(0), "DMA"), &[bdf("81:00.0")]);
        assert!(!translated.cause().contains("ACS redirects") && translated.cause().contains("IOMMU translates"));
        assert!(!translated.remedy().contains("setpci") && translated.remedy().contains("iommu=pt"));
        let redirected = read(&pcie_gpus(Some(0x1d), "identity"), &[bdf("81:00.0")]);
        assert!(redirected.cause().contains("ACS redirects") && !redirected.cause().contains("translates for"));
        assert!(!redirected.remedy().contains("iommu=pt") && redirected.remedy().contains("setpci"));
        let neither = read(&pcie_gpus(Some(0), "identity"), &[bdf("81:00.0")]);
        assert!(neither.cause().ends_with("(a virtual machine does not see its host's)"), "{}", neither.cause());
        assert!(neither.remedy().starts_with("at a risk, "), "{}", neither.remedy());
    }

    #[test]
    fn what_the_files_do_not_show_is_said() {
        let hidden = read(&pcie_gpus(None, "DMA"), &[bdf("81:00.0")]).cause();
        assert!(
            hidden.contains("translates for 0000:01:00.0 0000:81:00.0, the kernel shows the ACS registers of"),
            "{hidden}"
        );
        assert!(hidden.ends_with("0000:00:01.0 0000:80:01.0 to root only"), "{hidden}");
        let absent = read(&pcie_gpus(Some(0), "identity"), &[bdf("91:00.0"), None]).cause();
        for words in [
            "no translation and no redirection is found",
            "whether the IOMMU translates for 0000:91:00.0",
            "the PCI path to 0000:91:00.0",
            "the driver does not report a peer's PCI address",
        ] {
            assert!(absent.contains(words), "no `{words}` in {absent}");
        }
        let tree = pcie_gpus(Some(0x1d), "DMA");
        let sysfs = Sysfs::at(tree.root());
        let alone = PathCheck::read(&sysfs, &Topology::read(&sysfs), None, &[bdf("81:00.0")]).cause();
        assert!(alone.contains("translates for 0000:81:00.0, the kernel does not report the PCI path"), "{alone}");
    }

    #[test]
    fn ports_of_several_paths_are_named_once() {
        let tree = pcie_gpus(Some(0x1d), "DMA");
        let gpu = Device { class: 0x03_02_00, node: Some(1), ..Device::default() };
        tree.pci("pci0000:80/0000:80:01.0/0000:82:00.0", &gpu);
        let cause = read(&tree, &[bdf("81:00.0"), bdf("82:00.0")]).cause();
        assert!(
            cause.ends_with("for 0000:01:00.0 0000:81:00.0, ACS redirects at 0000:00:01.0 0000:80:01.0"),
            "{cause}"
        );
    }
}
