//! Bindings of rdma-core's libibverbs, libmlx5 and librdmacm, which are loaded at run time. No program links them.
//!
//! `bindings.rs` is generated (`generate`, beside it). `tests/rdma_reference` compares it with the C headers and with
//! rdma-sys. Only drives of other machines need librdmacm: queue pairs of a world exchange their addresses through its
//! store.

// Layouts and names are C's. The C documentation states each function's safety. Not all functions of the structs are
// called.
#[allow(non_camel_case_types, non_snake_case, dead_code)]
#[allow(clippy::all, clippy::undocumented_unsafe_blocks)]
mod bindings;
// As above.
#[allow(non_camel_case_types, dead_code)]
pub(super) mod cm;
mod inline;
mod loader;
mod newer;

pub(super) use bindings::*;
pub(super) use inline::{poll_cq, post_recv, post_send, query_port};

use super::RdmaError;
use cm::Cm;
use libloading::Library;
use loader::{Package, Shared};
use newer::Mlx5Export;
use std::fmt;

/// File name of libibverbs. Its interface is the same in all versions of rdma-core.
pub(super) const LIBIBVERBS: &str = "libibverbs.so.1";
/// File name of NVIDIA's provider, whose own functions `mlx5dv.h` declares.
pub(super) const LIBMLX5: &str = "libmlx5.so.1";
/// File name of rdma-core's connection manager.
pub(super) const LIBRDMACM: &str = "librdmacm.so.1";

// SAFETY: the functions are declared as in the library's own header.
static VERBS: Shared<Verbs> = unsafe { Shared::new(LIBIBVERBS, Package::VERBS, 28, Verbs::from_library::<Library>) };
// SAFETY: the functions are declared as in the library's own header.
static DMA_BUF: Shared<VerbsDmaBuf> =
    unsafe { Shared::new(LIBIBVERBS, Package::VERBS, 34, VerbsDmaBuf::from_library::<Library>) };
// SAFETY: the functions are declared as in the library's own header.
static MLX5: Shared<Mlx5dv> = unsafe { Shared::new(LIBMLX5, Package::VERBS, 44, Mlx5dv::from_library::<Library>) };

impl fmt::Debug for Verbs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Verbs")
    }
}

impl fmt::Debug for Mlx5dv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mlx5dv")
    }
}

// SAFETY: the functions are declared as in the library's own header.
static MLX5_EXPORT: Shared<Mlx5Export> = unsafe { Shared::new(LIBMLX5, Package::VERBS, 62, Mlx5Export::from_library) };

// SAFETY: the functions are declared as in the library's own header.
static CM: Shared<Cm> = unsafe { Shared::new(LIBRDMACM, Package::CM, 28, Cm::from_library) };

/// Returns the functions of libibverbs. The first call loads the library.
///
/// # Errors
/// [`RdmaError::Library`] if libibverbs is missing or older than rdma-core 28.
pub(super) fn verbs() -> Result<&'static Verbs, RdmaError> {
    VERBS.get()
}

/// Returns libibverbs' functions for dma-buf memory.
///
/// # Errors
/// [`RdmaError::Library`] if libibverbs is missing or older than rdma-core 34.
pub(super) fn dma_buf() -> Result<&'static VerbsDmaBuf, RdmaError> {
    DMA_BUF.get()
}

/// Returns the functions of libmlx5. The first call loads the library.
///
/// # Errors
/// [`RdmaError::Library`] if libmlx5 is missing or older than rdma-core 44.
pub(super) fn mlx5() -> Result<&'static Mlx5dv, RdmaError> {
    MLX5.get()
}

/// Returns libmlx5's function that exports doorbell registers.
///
/// # Errors
/// [`RdmaError::Library`] if libmlx5 is missing or older than rdma-core 62.
pub(super) fn mlx5_export() -> Result<&'static Mlx5Export, RdmaError> {
    MLX5_EXPORT.get()
}

/// Returns the functions of librdmacm. The first call loads the library.
///
/// # Errors
/// [`RdmaError::Library`] if librdmacm is missing or older than rdma-core 28.
pub(super) fn cm() -> Result<&'static Cm, RdmaError> {
    CM.get()
}
