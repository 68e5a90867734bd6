//! rdma-core as the loader finds it at run time: libibverbs and libmlx5, with the declarations of their headers. No program links them.
//!
//! `bindings.rs` is generated (`generate`, beside it); `tests/rdma_reference` compares it with the C headers and with rdma-sys. librdmacm is
//! not loaded: connections exchange their addresses through the store of a world.

// Layouts and names are C's; each function's safety is its C documentation; what a struct of functions offers is not all called.
#[allow(non_camel_case_types, non_snake_case, dead_code)]
#[allow(clippy::all, clippy::undocumented_unsafe_blocks)]
mod bindings;
mod inline;
mod loader;

pub(super) use bindings::*;
pub(super) use inline::{poll_cq, post_recv, post_send, query_port};

use super::RdmaError;
use libloading::Library;
use loader::Shared;
use std::fmt;

// SAFETY: the functions are declared as in the library's own header.
static VERBS: Shared<Verbs> = unsafe { Shared::new("libibverbs.so.1", 28, Verbs::from_library::<Library>) };
// SAFETY: as above.
static DMA_BUF: Shared<VerbsDmaBuf> =
    unsafe { Shared::new("libibverbs.so.1", 34, VerbsDmaBuf::from_library::<Library>) };
// SAFETY: as above.
static MLX5: Shared<Mlx5dv> = unsafe { Shared::new("libmlx5.so.1", 44, Mlx5dv::from_library::<Library>) };

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

/// Returns libibverbs, loaded at the first call.
///
/// # Errors
/// [`RdmaError::Library`] when it is absent, or older than rdma-core 28.
pub(super) fn verbs() -> Result<&'static Verbs, RdmaError> {
    VERBS.get()
}

/// Returns what libibverbs has for memory that is a dma-buf.
///
/// # Errors
/// [`RdmaError::Library`] when libibverbs is absent, or older than rdma-core 34.
pub(super) fn dma_buf() -> Result<&'static VerbsDmaBuf, RdmaError> {
    DMA_BUF.get()
}

/// Returns libmlx5, loaded at the first call.
///
/// # Errors
/// [`RdmaError::Library`] when it is absent, or older than rdma-core 44.
pub(super) fn mlx5() -> Result<&'static Mlx5dv, RdmaError> {
    MLX5.get()
}
