//! Reasons why a GPU refuses to map a device's registers, and the fix for each.

use super::error::{code, next_step};
use std::path::Path;

/// First kernel version that has neither `follow_pfn` (until 6.9) nor `follow_pte` (until 6.11), with which older drivers
/// find the pages of a mapping.
pub(crate) const KERNEL_WITHOUT_FOLLOW_PTE: (u32, u32) = (6, 12);
/// First driver version that uses their replacement, `follow_pfnmap_start`.
pub(crate) const DRIVER_WITH_PFNMAP: &str = "570.133.07";
/// Driver option that lets every user register I/O memory (nvrm_registry.h: NV_REG_STR_RM_PEERMAPPING_OVERRIDE).
const OVERRIDE: &str = "PeerMappingOverride=1";
/// Steps to set the override.
const SET_OVERRIDE: &str = "put `options nvidia NVreg_RegistryDwords=\"PeerMappingOverride=1;\"` in /etc/modprobe.d, then rebuild the \
                            initramfs (update-initramfs -u, or dracut -f) and reboot";

/// Facts that decide whether a GPU maps I/O memory on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
#[non_exhaustive]
pub struct IoMemoryFacts {
    /// True if this process is root, or has CAP_SYS_ADMIN, which the driver treats alike.
    pub privileged: bool,
    /// True if PeerMappingOverride is set; `None` if the driver's parameters cannot be read.
    pub peer_mapping_override: Option<bool>,
    /// Major and minor version of the Linux kernel.
    pub kernel: Option<(u32, u32)>,
    /// Version of the GPU driver's kernel module.
    pub driver: Option<String>,
}

impl IoMemoryFacts {
    /// Reads the facts of this machine and process. `driver` is the version of the driver's kernel module.
    pub fn of_this_process(driver: Option<&str>) -> Self {
        Self::below(Path::new("/"), driver)
    }

    /// Reads the facts from a copy of `/proc` below `root`. `driver` is the version of the driver's kernel module.
    pub fn below(root: &Path, driver: Option<&str>) -> Self {
        let text = |file: &str| std::fs::read_to_string(root.join(file)).ok();
        Self {
            privileged: text("proc/self/status").is_some_and(|t| has_sys_admin(&t)),
            peer_mapping_override: text("proc/driver/nvidia/params").map(|t| overrides(&t)),
            kernel: text("proc/sys/kernel/osrelease").and_then(|t| release(&t)),
            driver: driver.map(str::to_owned),
        }
    }

    /// Returns true if the driver may have been built without `follow_pfnmap`, the only way to find a
    /// mapping's pages on this kernel.
    fn may_lack_pfnmap(&self) -> bool {
        self.kernel.is_none_or(|k| k >= KERNEL_WITHOUT_FOLLOW_PTE)
    }

    fn old_driver(&self) -> bool {
        self.driver.as_deref().is_some_and(predates_pfnmap)
    }

    fn has_right(&self) -> bool {
        self.privileged || self.peer_mapping_override == Some(true)
    }

    fn set_override(&self) -> String {
        format!("run as root, or allow it for every user: {SET_OVERRIDE}; until then use the cpu doorbell")
    }

    /// Returns the next step after the driver failed with `answer` to register I/O memory.
    pub(super) fn advice(&self, answer: i32) -> String {
        match answer {
            code::NOT_PERMITTED if self.has_right() => {
                let driver = self.driver.as_deref().unwrap_or("unknown");
                format!(
                    "this process may register I/O memory (root, or {OVERRIDE} is set), but the driver refused: in a container, \
                     add --privileged or --cap-add SYS_ADMIN; otherwise see dmesg for NVRM lines (driver {driver}), or use \
                     the cpu doorbell"
                )
            }
            code::NOT_PERMITTED => {
                let state = match self.peer_mapping_override {
                    Some(_) => "PeerMappingOverride is not set",
                    None => "whether PeerMappingOverride is set cannot be read",
                };
                format!("this process is not root and {state}: {}", self.set_override())
            }
            code::INVALID_VALUE if self.has_right() || self.peer_mapping_override.is_none() => self.lost_pages(),
            code::INVALID_VALUE => {
                format!(
                    "this process is not root and PeerMappingOverride is not set: {}; if the error stays, {}",
                    self.set_override(),
                    self.lost_pages()
                )
            }
            code::NOT_SUPPORTED => {
                "this driver or kernel registers no I/O memory (virtual GPUs never do): use the cpu doorbell".to_owned()
            }
            other => next_step(other).to_owned(),
        }
    }

    /// Returns the next step after the driver found no pages behind the mapping.
    fn lost_pages(&self) -> String {
        let driver = self.driver.as_deref().unwrap_or("of unknown version");
        if !self.may_lack_pfnmap() {
            return "the mapping has no pages yet, or is not of one BAR through VFIO or sysfs: read a register before registering \
                    the mapping, or use the cpu doorbell"
                .to_owned();
        }
        let fix = if self.old_driver() {
            format!("install driver {DRIVER_WITH_PFNMAP} or newer")
        } else {
            "build its kernel module again against this kernel's headers (dkms build nvidia, then reboot): its configuration test \
             missed follow_pfnmap_start in Module.symvers"
                .to_owned()
        };
        format!(
            "driver {driver} was built without follow_pfnmap, the only way that this kernel has to find a mapping's pages \
             (follow_pfn and follow_pte are gone), so every registration of I/O memory fails: {fix}; until then use the cpu doorbell"
        )
    }
}

fn has_sys_admin(status: &str) -> bool {
    /// linux/capability.h.
    const CAP_SYS_ADMIN: u32 = 21;
    let effective = status.lines().find_map(|l| l.strip_prefix("CapEff:"));
    effective.and_then(|e| u64::from_str_radix(e.trim(), 16).ok()).is_some_and(|e| e >> CAP_SYS_ADMIN & 1 != 0)
}

fn overrides(params: &str) -> bool {
    params.lines().any(|l| l.starts_with("RegistryDwords:") && l.replace(' ', "").contains(OVERRIDE))
}

fn release(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.trim().split(['.', '-', '+']);
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Returns true if this driver's version is older than [`DRIVER_WITH_PFNMAP`].
pub(crate) fn predates_pfnmap(driver: &str) -> bool {
    numbers(driver) < numbers(DRIVER_WITH_PFNMAP)
}

fn numbers(version: &str) -> Vec<u32> {
    version.split('.').map(|p| p.parse().unwrap_or(0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(privileged: bool, over: Option<bool>, kernel: (u32, u32), driver: &str) -> IoMemoryFacts {
        IoMemoryFacts { privileged, peer_mapping_override: over, kernel: Some(kernel), driver: Some(driver.into()) }
    }

    #[test]
    fn privileges_come_first() {
        let text = facts(false, Some(false), (6, 1), "580.159.04").advice(code::NOT_PERMITTED);
        for part in ["not root", "PeerMappingOverride is not set", "/etc/modprobe.d", "initramfs", "cpu doorbell"] {
            assert!(text.contains(part), "{text}");
        }
        let text = facts(true, Some(false), (6, 1), "580.159.04").advice(code::NOT_PERMITTED);
        assert!(text.contains("container") && text.contains("580.159.04"), "{text}");
    }

    #[test]
    fn a_kernel_without_follow_pfn_is_named() {
        let text = facts(true, Some(false), (6, 17), "590.48.01").advice(code::INVALID_VALUE);
        assert!(text.contains("follow_pfnmap") && text.contains("dkms"), "{text}");
        let text = facts(false, Some(true), (6, 12), "550.54.15").advice(code::INVALID_VALUE);
        assert!(text.contains("install driver 570.133.07"), "{text}");
        // 550 finds the pages with follow_pte there.
        let text = facts(true, Some(false), (6, 11), "550.54.15").advice(code::INVALID_VALUE);
        assert!(!text.contains("follow_pfnmap") && text.contains("read a register"), "{text}");
        let text = facts(false, Some(false), (6, 17), "590.48.01").advice(code::INVALID_VALUE);
        assert!(text.contains("PeerMappingOverride") && text.contains("follow_pfnmap"), "{text}");
        assert!(facts(true, None, (6, 1), "1").advice(code::NOT_SUPPORTED).contains("cpu doorbell"));
    }

    #[test]
    fn facts_are_read_from_proc() {
        let dir = tempfile::tempdir().unwrap();
        let put = |file: &str, text: &str| {
            let path = dir.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        assert_eq!(IoMemoryFacts::below(dir.path(), None), IoMemoryFacts::default());
        put("proc/self/status", "Name:\tx\nCapEff:\t0000000000200000\n");
        put("proc/driver/nvidia/params", "ResmanDebugLevel: 4294967295\nRegistryDwords: \"PeerMappingOverride=1;\"\n");
        put("proc/sys/kernel/osrelease", "6.12.41+deb13-amd64\n");
        let seen = IoMemoryFacts::below(dir.path(), Some("580.1"));
        assert_eq!(seen, facts(true, Some(true), (6, 12), "580.1"));
        put("proc/driver/nvidia/params", "RegistryDwords: \"\"\n");
        put("proc/self/status", "CapEff:\t0000000000000000\n");
        let seen = IoMemoryFacts::below(dir.path(), None);
        assert_eq!((seen.privileged, seen.peer_mapping_override), (false, Some(false)));
    }
}
