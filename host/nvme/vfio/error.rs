//! How opening a device through VFIO fails: what is in the way, and the command that clears it.

use crate::memory::IommuError;
use crate::pci::{Sysfs, vfio_holder};
use crate::remedy::{Remedies, Remedy};
use std::io;
use std::path::PathBuf;

/// Why a controller could not be had through VFIO, or did not do what only VFIO can ask of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VfioError {
    /// No such function.
    #[error("{device}: there is no PCI function of this address (lspci -D lists them)")]
    NoDevice {
        /// Which address.
        device: String,
    },
    /// Not an NVMe controller.
    #[error("{device} is not an NVMe controller: its class is {class:#08x}, not 0x010802")]
    NotNvme {
        /// Which device.
        device: String,
        /// Class code.
        class: u32,
    },
    /// Another driver has it, or none.
    #[error("{device} is {}: bind it with `warpbell nvme bind {device}`", held(.driver.as_deref()))]
    NotBound {
        /// Which device.
        device: String,
        /// Who has it.
        driver: Option<String>,
    },
    /// No IOMMU translates for it.
    #[error(
        "{device} is in no IOMMU group: turn the IOMMU on (VT-d or AMD-Vi in the firmware's setup, intel_iommu=on or amd_iommu=on on the kernel's command line)"
    )]
    NoGroup {
        /// Which device.
        device: String,
    },
    /// There is an IOMMU group, but no IOMMU behind it.
    #[error("{device} has no IOMMU behind it, so it could write to any memory of this machine")]
    Unsafe {
        /// Which device.
        device: String,
    },
    /// Another member of the group is in the kernel's hands.
    #[error(
        "{device}: IOMMU group {group} also holds {}: bind them to vfio-pci too, or unbind them; devices of one group can reach each other's memory",
        .others.join(", ")
    )]
    NotViable {
        /// Which device.
        device: String,
        /// IOMMU group.
        group: u32,
        /// Members that host drivers have, with the drivers.
        others: Vec<String>,
    },
    /// A device node is not there.
    #[error("{}: no such file; {hint}", .path.display())]
    NoNode {
        /// Which.
        path: PathBuf,
        /// What makes it appear.
        hint: &'static str,
    },
    /// The user may not open a device node.
    #[error(
        "{}: permission denied; give the user the right (chown USER {}, or a udev rule SUBSYSTEM==\"vfio\", GROUP=\"vfio\", MODE=\"0660\")",
        .path.display(), .path.display()
    )]
    Rights {
        /// Which.
        path: PathBuf,
    },
    /// Somebody else has it open.
    #[error("{device} is in use: {} is taken by {}", .path.display(), .holder)]
    Busy {
        /// Which device.
        device: String,
        /// The node.
        path: PathBuf,
        /// Which process, as far as can be seen.
        holder: String,
    },
    /// A device node could not be opened for another reason.
    #[error("{}: {source}", .path.display())]
    Open {
        /// Which.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The kernel refused a request.
    #[error("{device}: {call}: {source}{hint}")]
    Call {
        /// Which device.
        device: String,
        /// The request in the kernel's words.
        call: &'static str,
        /// The system's answer.
        source: io::Error,
        /// What to do, after a semicolon; empty where nothing is known.
        hint: &'static str,
    },
    /// The interface that was asked for is not there.
    #[error("{device}: {api} is not possible: {reason}")]
    NoInterface {
        /// Which device.
        device: String,
        /// Which interface.
        api: &'static str,
        /// Why, and what to do.
        reason: String,
    },
    /// The registers cannot be reached.
    #[error("{device}: BAR 0 cannot be used: {reason}")]
    Registers {
        /// Which device.
        device: String,
        /// Why.
        reason: String,
    },
    /// The configuration space cannot be read or written.
    #[error("{device}: configuration space at {offset:#x}: {source}")]
    Config {
        /// Which device.
        device: String,
        /// Offset.
        offset: u32,
        /// The system's answer.
        source: io::Error,
    },
    /// Interrupts that the device does not have.
    #[error("{device}: MSI-X vectors {first} to {last} asked for, the device has {vectors}")]
    Vectors {
        /// Which device.
        device: String,
        /// First one.
        first: u32,
        /// Last one.
        last: u32,
        /// How many there are.
        vectors: u32,
    },
    /// Mapping memory.
    #[error(transparent)]
    Iommu(#[from] IommuError),
}

impl Remedies for VfioError {
    fn remedies(&self) -> Vec<Remedy> {
        match self {
            Self::Unsafe { .. } => vec![Remedy::step("turn the IOMMU on"), Remedy::AcceptNoIommu],
            _ => Vec::new(),
        }
    }
}

fn held(driver: Option<&str>) -> String {
    match driver {
        Some(d) => format!("held by the driver {d}"),
        None => "not bound to any driver".to_owned(),
    }
}

impl VfioError {
    /// Sorts the ways in which opening a node fails.
    pub(super) fn opening(device: &str, path: PathBuf, source: io::Error, hint: &'static str) -> Self {
        match source.raw_os_error() {
            Some(libc::ENOENT | libc::ENODEV) => Self::NoNode { path, hint },
            Some(libc::EACCES | libc::EPERM) => Self::Rights { path },
            Some(libc::EBUSY) => {
                // This process may have the file open already, without having got the device.
                let others = |b| vfio_holder(&Sysfs::system(), b, Some(std::process::id()));
                let unseen =
                    || "another process, or in the kernel's hands (as root, `fuser -v` shows which)".to_owned();
                let holder = device.parse().ok().and_then(others).unwrap_or_else(unseen);
                Self::Busy { device: device.to_owned(), path, holder }
            }
            _ => Self::Open { path, source },
        }
    }

    pub(super) fn call(device: &str, call: &'static str, source: io::Error) -> Self {
        Self::Call { device: device.to_owned(), call, source, hint: "" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_what_to_do() {
        let e = VfioError::NotBound { device: "0000:65:00.0".into(), driver: Some("nvme".into()) };
        let text = "0000:65:00.0 is held by the driver nvme: bind it with `warpbell nvme bind 0000:65:00.0`";
        assert_eq!(e.to_string(), text);
        let e = |number| {
            let source = io::Error::from_raw_os_error(number);
            VfioError::opening("0000:65:00.0", "/dev/vfio/12".into(), source, "load the module vfio-pci").to_string()
        };
        assert_eq!(e(libc::ENOENT), "/dev/vfio/12: no such file; load the module vfio-pci");
        assert!(e(libc::EACCES).contains("chown USER /dev/vfio/12"));
        assert!(e(libc::EBUSY).starts_with("0000:65:00.0 is in use: /dev/vfio/12 is taken by "));
        assert!(e(libc::EIO).starts_with("/dev/vfio/12: "));
    }
}
