//! Memory that is freed only when no kernel runs.

use super::driver::{CUdeviceptr, CUmodule, Driver, call};
use super::virtual_memory::Mapped;
use std::any::Any;
use std::ffi::c_void;
use std::sync::Arc;

/// Memory, or a module, that has no owner any more and waits to be freed.
pub(super) enum Garbage {
    Device(CUdeviceptr),
    Pinned(*mut c_void),
    Module(CUmodule),
    /// Handle of physical memory. The driver frees the memory itself with its last mapping.
    Physical(u64),
    /// Reserved address range and its mappings.
    Range {
        base: CUdeviceptr,
        bytes: usize,
        mapped: Vec<Mapped>,
    },
    /// Mapping of another process's allocation.
    Ipc(CUdeviceptr),
    /// Registered host memory. `_keep` owns the memory and must outlive the registration.
    Registered {
        base: *mut c_void,
        _keep: Arc<dyn Any + Send + Sync>,
    },
    /// Imported memory and its mapping, which may be missing. `_keep` owns the memory and must outlive the import.
    External {
        handle: *mut c_void,
        at: CUdeviceptr,
        _keep: Arc<dyn Any + Send + Sync>,
    },
}

// SAFETY: the addresses are passed only to the driver, and the owner may be dropped on any thread.
unsafe impl Send for Garbage {}

impl Garbage {
    /// Frees the memory, and drops its owners. A context is current. Failures are only logged.
    pub(super) fn free(self, driver: &'static Driver) {
        let what = "freeing memory";
        // SAFETY: each was made by the matching call, its owner is gone, and no kernel of this crate uses it.
        let freed = unsafe {
            match &self {
                Self::Device(p) => call!(driver, cuMemFree_v2(*p), what),
                Self::Pinned(p) => call!(driver, cuMemFreeHost(*p), what),
                Self::Module(module) => call!(driver, cuModuleUnload(*module), what),
                Self::Physical(handle) => call!(driver, cuMemRelease(*handle), what),
                Self::Range { base, bytes, mapped } => mapped
                    .iter()
                    .try_for_each(|m| call!(driver, cuMemUnmap(m.at, m.memory.len()), what))
                    .and_then(|()| call!(driver, cuMemAddressFree(*base, *bytes), what)),
                Self::Ipc(at) => call!(driver, cuIpcCloseMemHandle(*at), what),
                Self::Registered { base, .. } => call!(driver, cuMemHostUnregister(*base), what),
                Self::External { handle, at, .. } => {
                    let unmapped = if *at == 0 { Ok(()) } else { call!(driver, cuMemFree_v2(*at), what) };
                    unmapped.and_then(|()| call!(driver, cuDestroyExternalMemory(*handle), what))
                }
            }
        };
        if let Err(error) = freed {
            tracing::debug!(memory = ?self, %error, "memory could not be freed");
        }
    }

    /// Returns true if freeing this waits for every kernel of the context.
    pub(super) fn waits(&self) -> bool {
        !matches!(self, Self::Physical(_) | Self::Range { .. })
    }
}

impl std::fmt::Debug for Garbage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Device(p) => write!(f, "Device({p:#x})"),
            Self::Pinned(p) => write!(f, "Pinned({p:p})"),
            Self::Module(raw) => write!(f, "Module({raw:p})"),
            Self::Physical(handle) => write!(f, "Physical({handle:#x})"),
            Self::Range { base, bytes, mapped } => write!(f, "Range({base:#x} + {bytes}, {} mapped)", mapped.len()),
            Self::Ipc(at) => write!(f, "Ipc({at:#x})"),
            Self::Registered { base, .. } => write!(f, "Registered({base:p})"),
            Self::External { handle, at, .. } => write!(f, "External({handle:p} at {at:#x})"),
        }
    }
}
