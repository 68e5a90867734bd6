//! Functions that are newer than the headers from which `bindings.rs` is generated.

use super::bindings::mlx5dv_devx_uar;
use libloading::Library;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::raw::c_int;
use std::ptr::NonNull;

/// `mlx5dv_devx_uar_export_dmabuf_fd` of libmlx5 (MLX5_1.26, rdma-core 62).
pub(in crate::rdma) struct Mlx5Export {
    export_uar: unsafe extern "C" fn(*mut mlx5dv_devx_uar) -> c_int,
    _library: Library,
}

impl Mlx5Export {
    /// # Safety
    /// The library is libmlx5.
    pub(super) unsafe fn from_library(library: Library) -> Result<Self, libloading::Error> {
        // SAFETY: the function's declaration in mlx5dv.h.
        let export_uar = *unsafe { library.get(b"mlx5dv_devx_uar_export_dmabuf_fd\0") }?;
        Ok(Self { export_uar, _library: library })
    }

    /// Returns a dma-buf of a register's page. The kernel refuses with EOPNOTSUPP if it cannot export it.
    ///
    /// # Safety
    /// The register is allocated.
    pub(in crate::rdma) unsafe fn export_uar(&self, uar: NonNull<mlx5dv_devx_uar>) -> io::Result<OwnedFd> {
        // SAFETY: the caller's promise.
        let fd = unsafe { (self.export_uar)(uar.as_ptr()) };
        // SAFETY: a descriptor that the call has opened for its caller.
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(unsafe { OwnedFd::from_raw_fd(fd) }) }
    }
}
