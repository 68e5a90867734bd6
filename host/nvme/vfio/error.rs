//! Errors of VFIO devices: the obstacle, and the command that removes it.

use crate::memory::IommuError;
use crate::pci::{Sysfs, vfio_holder};
use crate::remedy::{Remedies, Remedy};
use std::io;
use std::path::PathBuf;

/// Error of opening a controller through VFIO, or of a function that only VFIO has.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VfioError {
    /// There is no PCI function with this address.
    #[error("{device}: there is no PCI function at this address (lspci -D lists them)")]
    NoDevice {
        /// Address that was requested.
        device: String,
    },
    /// The device is not an NVMe controller.
    #[error("{device} is not an NVMe controller: its class is {class:#08x}, not 0x010802")]
    NotNvme {
        /// PCI address of the device.
        device: String,
        /// Class code that it has.
        class: u32,
    },
    /// The device is bound to another driver than vfio-pci, or to none.
    #[error("{device} is {}: bind it with `warpbell nvme bind {device}`", held(.driver.as_deref()))]
    NotBound {
        /// PCI address of the device.
        device: String,
        /// Driver that it is bound to, if any.
        driver: Option<String>,
    },
    /// The device is in no IOMMU group.
    #[error(
        "{device} is in no IOMMU group: turn the IOMMU on (VT-d or AMD-Vi in the firmware's setup, intel_iommu=on or amd_iommu=on on the kernel's command line)"
    )]
    NoGroup {
        /// PCI address of the device.
        device: String,
    },
    /// The device has an IOMMU group, but no IOMMU behind it.
    #[error("{device} has no IOMMU behind it, so it could write to any memory of this machine")]
    Unsafe {
        /// PCI address of the device.
        device: String,
    },
    /// A host driver uses another member of the IOMMU group.
    #[error(
        "{device}: IOMMU group {group} also holds {}: bind them to vfio-pci too, or unbind them; devices of one group can reach each other's memory",
        .others.join(", ")
    )]
    NotViable {
        /// PCI address of the device.
        device: String,
        /// Number of the IOMMU group.
        group: u32,
        /// Members that host drivers use, with their drivers.
        others: Vec<String>,
    },
    /// A device node does not exist.
    #[error("{}: no such file; {hint}", .path.display())]
    NoNode {
        /// Path of the node.
        path: PathBuf,
        /// Steps that create it.
        hint: &'static str,
    },
    /// The user may not open a device node.
    #[error(
        "{}: permission denied; give this user access (chown USER {}, or a udev rule SUBSYSTEM==\"vfio\", GROUP=\"vfio\", MODE=\"0660\")",
        .path.display(), .path.display()
    )]
    Rights {
        /// Path of the node.
        path: PathBuf,
    },
    /// Another process or driver uses the device.
    #[error("{device} is in use: {} is taken by {}", .path.display(), .holder)]
    Busy {
        /// PCI address of the device.
        device: String,
        /// Path of the node.
        path: PathBuf,
        /// Process that holds it, if known.
        holder: String,
    },
    /// A device node did not open for another reason.
    #[error("{}: {source}", .path.display())]
    Open {
        /// Path of the node.
        path: PathBuf,
        /// Error of the system call.
        source: io::Error,
    },
    /// The kernel refused a request.
    #[error("{device}: {call}: {source}{hint}")]
    Call {
        /// PCI address of the device.
        device: String,
        /// Name of the request.
        call: &'static str,
        /// Error of the system call.
        source: io::Error,
        /// Next step for the user, after a semicolon; empty if none is known.
        hint: &'static str,
    },
    /// The requested interface is not available.
    #[error("{device}: {api} is not possible: {reason}")]
    NoInterface {
        /// PCI address of the device.
        device: String,
        /// Name of the interface.
        api: &'static str,
        /// Cause and remedy.
        reason: String,
    },
    /// The registers cannot be accessed.
    #[error("{device}: BAR 0 cannot be used: {reason}")]
    Registers {
        /// PCI address of the device.
        device: String,
        /// Cause, as text.
        reason: String,
    },
    /// The configuration space cannot be read or written.
    #[error("{device}: configuration space at {offset:#x}: {source}")]
    Config {
        /// PCI address of the device.
        device: String,
        /// Offset in bytes.
        offset: u32,
        /// Error of the system call.
        source: io::Error,
    },
    /// The device does not have the requested interrupt vectors.
    #[error("{device}: MSI-X vectors {first} to {last} were requested, the device has {vectors}")]
    Vectors {
        /// PCI address of the device.
        device: String,
        /// First requested vector.
        first: u32,
        /// Last requested vector.
        last: u32,
        /// Number of vectors that the device has.
        vectors: u32,
    },
    /// Memory was not mapped for the device.
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
    /// Creates the error for a node that did not open.
    pub(super) fn opening(device: &str, path: PathBuf, source: io::Error, hint: &'static str) -> Self {
        match source.raw_os_error() {
            Some(libc::ENOENT | libc::ENODEV) => Self::NoNode { path, hint },
            Some(libc::EACCES | libc::EPERM) => Self::Rights { path },
            Some(libc::EBUSY) => {
                // This process may have the file open already, although it does not have the device.
                let others = |b| vfio_holder(&Sysfs::system(), b, Some(std::process::id()));
                let unseen = || "another process or the kernel (as root, `fuser -v` shows which)".to_owned();
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
