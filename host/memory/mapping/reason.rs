//! Reasons why a mapping backend does not work, and the remedy for each.

use super::MappingBackend;
use super::syscalls::{ENOTSUPP, Syscalls, words};
use crate::memory::{IommuError, MemoryError};
use std::io;

/// Remedy for a failed topology check: the GPU driver checks a device's place in the PCI tree before it attaches a
/// dma-buf to the device (nv-dmabuf.c).
pub(crate) const TOPOLOGY_CHECK: &str = "the GPU driver lets no device at this place in the PCI tree attach its dma-bufs: put `options nvidia \
                        NVreg_GrdmaPciTopoCheckOverride=1` in /etc/modprobe.d, then reboot";

/// Error of one mapping backend.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// The device file of the module cannot be opened.
    #[error("{file}: {}", words(.source))]
    Open {
        /// Path of the device file.
        file: String,
        /// Error of the system call.
        source: io::Error,
    },
    /// The module, or the driver below it, refused a request.
    #[error("{call}: {}", words(.source))]
    Refused {
        /// Name of the request in the module's header, as in `GDRDRV_IOC_PIN_BUFFER`.
        call: &'static str,
        /// Error of the system call.
        source: io::Error,
    },
    /// The module's version is not supported.
    #[error("{module} has version {found}, but warpbell supports {wanted}")]
    Version {
        /// Name of the module.
        module: &'static str,
        /// Version of the module.
        found: String,
        /// Versions that are supported.
        wanted: &'static str,
    },
    /// The GPU driver exported no dma-buf.
    #[error("no dma-buf of GPU memory: {0}")]
    Export(MemoryError),
    /// The IOMMU refused the mapping.
    #[error(transparent)]
    Iommu(#[from] IommuError),
    /// Something that the backend needs is missing.
    #[error("{what}")]
    Requires {
        /// Missing prerequisite, as text.
        what: String,
        /// Next step for the user.
        next: String,
    },
    /// The bus addresses of the memory have gaps. A mapping needs consecutive addresses.
    #[error("its bus addresses are not consecutive: {before:#x} and then {after:#x}")]
    Gap {
        /// Address at which the next page was expected.
        before: u64,
        /// Address at which it is.
        after: u64,
    },
    /// The module returned addresses for fewer bytes than the memory has.
    #[error("only {found} of {wanted} bytes were mapped")]
    Length {
        /// Bytes that the addresses cover.
        found: u64,
        /// Length of the memory in bytes.
        wanted: u64,
    },
    /// The memory does not start and end at GPU page boundaries.
    #[error("{bytes} bytes at {address:#x} are not whole GPU pages of 65536 bytes")]
    Unaligned {
        /// GPU address of the memory.
        address: u64,
        /// Length in bytes.
        bytes: usize,
    },
    /// Memory of this process, for example for the read-back, was not accessible.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The read-back failed: one side did not see the bytes that the other side wrote.
    #[error("read back: {0}")]
    Mismatch(#[from] ProbeError),
}

/// Error of a read-back: the mapping is not trusted.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct ProbeError {
    /// Operation, expected result and observed result.
    pub reason: String,
    /// True if the device may still write to the mapping, so neither the mapping nor its memory may ever be freed.
    pub still_in_use: bool,
}

impl ProbeError {
    /// Creates the error of a comparison that failed. The device does not use the memory any more.
    pub fn differs(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), still_in_use: false }
    }
}

impl BackendError {
    /// Returns the remedy for this error of `backend`. `sys` tells whether the machine encrypts memory.
    pub fn next(&self, backend: MappingBackend, sys: &dyn Syscalls) -> String {
        let errno = |e: &io::Error| e.raw_os_error().unwrap_or(0);
        let attaching = match self {
            Self::Refused { source, .. } => errno(source),
            Self::Iommu(e) => e.errno().unwrap_or(0),
            _ => 0,
        };
        // A CPU mapping of the buffer can fail with the same number, but then the device's place is not the cause.
        if attaching == ENOTSUPP && backend != MappingBackend::DmaBufMmap {
            return TOPOLOGY_CHECK.to_owned();
        }
        match self {
            Self::Open { file, source } => match errno(source) {
                libc::ENOENT | libc::ENODEV | libc::ENXIO => backend.how_to_get().to_owned(),
                libc::EACCES | libc::EPERM => {
                    format!("run as root, or give this user access: setfacl -m u:$USER:rw {file}")
                }
                _ => format!("look for messages of the driver of {file} in dmesg"),
            },
            Self::Refused { source, .. } => match (backend, errno(source)) {
                (MappingBackend::IommuMapPa, libc::EINVAL) => {
                    "bind the controller to vfio-pci; if it is bound, install a release of iommu_map_pa with two reserved words \
                     in its request: those that ask for the VFIO device's descriptor are not supported"
                        .to_owned()
                }
                (_, libc::EPERM | libc::EACCES) => "run as root".to_owned(),
                (MappingBackend::DmaBufMmap, _) => {
                    "this GPU driver does not map a dma-buf into the CPU: load gdrdrv and use the mapping backend of that name"
                        .to_owned()
                }
                (_, libc::ENOMEM) => {
                    "BAR1 may be full (nvidia-smi -q -d MEMORY): map less memory, or close other users of it".to_owned()
                }
                (_, libc::EINVAL) => {
                    "the GPU driver does not give other devices access to this memory, or the GPU does not support it: see dmesg"
                        .to_owned()
                }
                (_, libc::ENOTTY) => "the module is of another release: build the one that the documentation names".to_owned(),
                _ => "see dmesg for the module's reason".to_owned(),
            },
            Self::Version { module, .. } => format!("install a release of {module} with a supported version"),
            Self::Export(MemoryError::NotReachable { next, .. }) => (*next).to_owned(),
            Self::Export(_) => {
                "dma-bufs of GPU memory need the open kernel modules of the driver (nvidia-open) and a data-center GPU".to_owned()
            }
            Self::Iommu(e) => match (e, e.errno()) {
                (IommuError::Unsupported { .. }, _) => "use another mapping backend".to_owned(),
                (_, Some(libc::EOPNOTSUPP | libc::EINVAL | libc::EFAULT)) => match backend {
                    MappingBackend::Iommufd => {
                        "iommufd maps dma-bufs of vfio-pci devices only, from Linux 6.19 on: use another mapping backend".to_owned()
                    }
                    _ => "this kernel does not map a CPU mapping of device memory: use another mapping backend".to_owned(),
                },
                (IommuError::MemoryLock { .. }, _) => "raise the limit on locked memory: ulimit -l unlimited".to_owned(),
                // This process sees no reached limit, but in iommufd other processes of the user count too.
                (_, Some(libc::ENOMEM)) => {
                    "map less memory at once, or raise the limit on locked memory (ulimit -l unlimited): the kernel is out of \
                     memory, or processes of this user have locked all that the limit allows"
                        .to_owned()
                }
                _ => "see dmesg for the kernel's reason".to_owned(),
            },
            Self::Requires { next, .. } => next.clone(),
            Self::Gap { .. } | Self::Length { .. } => {
                "map less memory at once (2 MiB are always consecutive), or use a mapping backend that has an IOMMU: gdrdrv or iommu-map-pa"
                    .to_owned()
            }
            Self::Unaligned { .. } => "allocate it, or import it, in whole GPU pages of 64 KiB".to_owned(),
            Self::Memory(MemoryError::NotReachable { next, .. }) => (*next).to_owned(),
            Self::Memory(_) => "free memory, or map less".to_owned(),
            Self::Mismatch(_) if sys.encrypts_memory() => {
                "AMD memory encryption is on, so the CPU and devices see other bytes in BAR1 than the GPU: boot with \
                 mem_encrypt=off on the kernel command line"
                    .to_owned()
            }
            Self::Mismatch(_) => {
                "the device does not reach GPU memory this way: check that the path allows peer traffic (warpbell doctor: ACS, \
                 root ports), and use the host mapping backend until then"
                    .to_owned()
            }
        }
    }

    /// Returns true if the device may still write to the mapping.
    pub(super) fn still_in_use(&self) -> bool {
        matches!(self, Self::Mismatch(p) if p.still_in_use)
    }
}
