//! Bindings of rdma-core's libibverbs and libmlx5, which are loaded at run time. No program links them.
//!
//! `bindings.rs` is generated (`generate`, beside it). `tests/rdma_reference` compares it with the C headers and with
//! rdma-sys. librdmacm is not loaded: connections exchange their addresses through the store of a world.

// Layouts and names are C's. The C documentation states each function's safety. Not all functions of the structs are
// called.
#[allow(non_camel_case_types, non_snake_case, dead_code)]
#[allow(clippy::all, clippy::undocumented_unsafe_blocks)]
mod bindings;
mod inline;
mod loader;
mod newer;

pub(super) use bindings::*;
pub(super) use inline::{poll_cq, post_recv, post_send, query_port};

use super::RdmaError;
use libloading::Library;
use loader::Shared;
use newer::Mlx5Export;
use std::fmt;

/// File name of libibverbs. Its interface is the same in all versions of rdma-core.
pub(super) const LIBIBVERBS: &str = "libibverbs.so.1";
/// File name of NVIDIA's provider, whose own functions `mlx5dv.h` declares.
pub(super) const LIBMLX5: &str = "libmlx5.so.1";

// SAFETY: the functions are declared as in the library's own header.
static VERBS: Shared<Verbs> = unsafe { Shared::new(LIBIBVERBS, 28, Verbs::from_library::<Library>) };
// SAFETY: as above.
static DMA_BUF: Shared<VerbsDmaBuf> = unsafe { Shared::new(LIBIBVERBS, 34, VerbsDmaBuf::from_library::<Library>) };
// SAFETY: as above.
static MLX5: Shared<Mlx5dv> = unsafe { Shared::new(LIBMLX5, 44, Mlx5dv::from_library::<Library>) };

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

// SAFETY: as above.
static MLX5_EXPORT: Shared<Mlx5Export> = unsafe { Shared::new(LIBMLX5, 62, Mlx5Export::from_library) };

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
