//! Why a rung was passed over, and what to do about it.

use super::MappingBackend;
use super::syscalls::{ENOTSUPP, Syscalls, words};
use crate::memory::{IommuError, MemoryError};
use std::io;

/// The GPU driver checks where a device stands before it attaches a dma-buf to it (nv-dmabuf.c).
const TOPOLOGY: &str = "the GPU driver lets no device at that place of the PCI tree attach its dma-bufs: options nvidia \
                        NVreg_GrdmaPciTopoCheckOverride=1 in /etc/modprobe.d, then reboot";

/// Why a rung does not work here.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackendError {
    /// The module's device file cannot be opened.
    #[error("{file}: {}", words(.source))]
    Open {
        /// Which file.
        file: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The module, or the driver behind it, refused.
    #[error("{call}: {}", words(.source))]
    Refused {
        /// The request in its header's words, as in `GDRDRV_IOC_PIN_BUFFER`.
        call: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// The module is of another version than the one that is spoken.
    #[error("{module} is version {found}, and {wanted} is spoken here")]
    Version {
        /// Which module.
        module: &'static str,
        /// Its version.
        found: String,
        /// Those that are spoken.
        wanted: &'static str,
    },
    /// The GPU driver gave no dma-buf.
    #[error("no dma-buf of GPU memory: {0}")]
    Export(MemoryError),
    /// The IOMMU refused the mapping.
    #[error(transparent)]
    Iommu(#[from] IommuError),
    /// Something that the rung rests on is not there.
    #[error("{what}")]
    Requires {
        /// What is not there.
        what: String,
        /// What to do.
        next: String,
    },
    /// The bus addresses of the memory have gaps, and one mapping has one first address.
    #[error("its bus addresses are not consecutive: {before:#x} and then {after:#x}")]
    Gap {
        /// Where the address after the last page should be.
        before: u64,
        /// Where it is.
        after: u64,
    },
    /// The module gave addresses for another length than the memory has.
    #[error("{found} bytes were mapped of {wanted}")]
    Length {
        /// Bytes that the addresses cover.
        found: u64,
        /// Bytes of the memory.
        wanted: u64,
    },
    /// The memory does not start and end on pages of the GPU.
    #[error("{bytes} bytes at {address:#x} are not whole GPU pages of 65536 bytes")]
    Unaligned {
        /// GPU address.
        address: u64,
        /// Length.
        bytes: usize,
    },
    /// Memory of the process around the mapping.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// What one side wrote was not what the other saw.
    #[error("read back: {0}")]
    Mismatch(#[from] ProbeError),
}

/// Why a mapping is not trusted.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct ProbeError {
    /// What was done, what was expected and what was seen.
    pub reason: String,
    /// The device may still write to the mapping, so neither it nor its memory may ever be given back.
    pub still_in_use: bool,
}

impl ProbeError {
    /// A comparison that failed; the device is done with the memory.
    pub fn differs(reason: impl Into<String>) -> Self {
        Self { reason: reason.into(), still_in_use: false }
    }
}

impl BackendError {
    /// Returns the remedy, on a machine with these system calls.
    pub fn next(&self, backend: MappingBackend, sys: &dyn Syscalls) -> String {
        let errno = |e: &io::Error| e.raw_os_error().unwrap_or(0);
        let attaching = match self {
            Self::Refused { source, .. } => errno(source),
            Self::Iommu(e) => e.errno().unwrap_or(0),
            _ => 0,
        };
        // The same number from mapping the buffer into the CPU is no device's fault.
        if attaching == ENOTSUPP && backend != MappingBackend::DmaBufMmap {
            return TOPOLOGY.to_owned();
        }
        match self {
            Self::Open { file, source } => match errno(source) {
                libc::ENOENT | libc::ENODEV | libc::ENXIO => backend.how_to_get().to_owned(),
                libc::EACCES | libc::EPERM => {
                    format!("run as root, or give this user the file: setfacl -m u:$USER:rw {file}")
                }
                _ => format!("look at dmesg for what {file} says"),
            },
            Self::Refused { source, .. } => match (backend, errno(source)) {
                (MappingBackend::IommuMapPa, libc::EINVAL) => {
                    "bind the controller to vfio-pci; releases of iommu_map_pa that ask for the VFIO device's descriptor \
                     are not spoken: use one with two reserved words in its request"
                        .to_owned()
                }
                (_, libc::EPERM | libc::EACCES) => "run as root".to_owned(),
                (MappingBackend::DmaBufMmap, _) => {
                    "nothing to do with this GPU driver: it does not let a dma-buf be mapped; load gdrdrv for the rung above"
                        .to_owned()
                }
                (_, libc::ENOMEM) => {
                    "BAR1 may be full (nvidia-smi -q -d MEMORY): map less memory, or close other users of it".to_owned()
                }
                (_, libc::EINVAL) => {
                    "the memory is not one that the GPU driver lets others reach, or the GPU has no peer memory: see dmesg"
                        .to_owned()
                }
                (_, libc::ENOTTY) => "the module is of another release: build the one that the documentation names".to_owned(),
                _ => "see dmesg for the module's reason".to_owned(),
            },
            Self::Version { module, .. } => format!("install a release of {module} that speaks this version"),
            Self::Export(_) => {
                "dma-bufs of GPU memory need the open kernel modules of the driver (nvidia-open) and a data-center GPU".to_owned()
            }
            Self::Iommu(e) => match (e, e.errno()) {
                (IommuError::Unsupported { .. }, _) => "take another rung".to_owned(),
                (_, Some(libc::EOPNOTSUPP | libc::EINVAL | libc::EFAULT)) => match backend {
                    MappingBackend::Iommufd => {
                        "iommufd maps dma-bufs of vfio-pci devices only, from Linux 6.19 on: take another rung".to_owned()
                    }
                    _ => "this kernel does not map a CPU mapping of device memory: take another rung".to_owned(),
                },
                (IommuError::MemoryLock { .. }, _) => "raise the limit on locked memory: ulimit -l unlimited".to_owned(),
                // The limit is not reached, as far as this process sees: other processes of the user count in iommufd too.
                (_, Some(libc::ENOMEM)) => {
                    "map less memory at once: the kernel has none left for the mapping, or other processes of this user hold what \
                     may be locked (ulimit -l unlimited)"
                        .to_owned()
                }
                _ => "see dmesg for the kernel's reason".to_owned(),
            },
            Self::Requires { next, .. } => next.clone(),
            Self::Gap { .. } | Self::Length { .. } => {
                "map less memory at once (2 MiB are always consecutive), or use a rung that has an IOMMU: gdrdrv or iommu-map-pa"
                    .to_owned()
            }
            Self::Unaligned { .. } => "allocate it in whole GPU pages of 64 KiB".to_owned(),
            Self::Memory(_) => "free memory, or ask for less".to_owned(),
            Self::Mismatch(_) if sys.encrypts_memory() => {
                "AMD's memory encryption is on, with which the CPU and devices see other bytes in BAR1 than the GPU: boot with \
                 mem_encrypt=off on the kernel command line"
                    .to_owned()
            }
            Self::Mismatch(_) => {
                "the device does not reach GPU memory this way: check that the path allows peer traffic (warpbell doctor: ACS, \
                 root ports), and use the host rung until then"
                    .to_owned()
            }
        }
    }

    /// Whether the device may still write to the mapping.
    pub(super) fn still_in_use(&self) -> bool {
        matches!(self, Self::Mismatch(p) if p.still_in_use)
    }
}
