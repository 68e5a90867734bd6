//! Mapping backends: ways to give a PCIe device an address for GPU memory, best first.
//!
//! Each backend is tried in turn. A device writes through the new mapping, and the GPU reads the bytes back before the
//! mapping is trusted. `auto` takes the first backend that works and keeps the reasons against the others. A backend
//! that is chosen by name works or is an error.
//!
//! The kernel modules of the backends are called directly. Their structures are copied from their
//! headers, which each file names.

mod backend;
mod backends;
#[cfg(feature = "internals")]
mod cpu_view;
mod dmabuf;
mod dmabuf_import;
mod gdrdrv;
mod iommu_map_pa;
mod libnvm;
mod reason;
mod site;
mod syscalls;
#[cfg(test)]
mod tests;

pub use backend::{Attempt, BackendChoice, MappingBackend, Outcome, UnknownBackend};
pub use backends::MappingError;
internal!(backends::{MappingBackends, Probe, SCRATCH_BYTES, survey});
#[cfg(feature = "internals")]
pub use cpu_view::CpuView;
pub(crate) use gdrdrv::FILE as GDRDRV;
pub(crate) use reason::TOPOLOGY_CHECK;
internal!(reason::{BackendError, ProbeError});
internal!(site::{DmaBufExport, DriverDmaBuf, MappingDevice});
internal!(syscalls::{Linux, Syscalls});
// Devices get access to GPU memory in this unit (nv-p2p.h: NVIDIA_P2P_PAGE_SIZE_64KB).
internal!(crate::cuda::GPU_PAGE);
