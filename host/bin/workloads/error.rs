//! Errors of measurements.

use super::cufile::CufileError;
use warpbell::engine::{EngineError, RunError};
use warpbell::memory::MemoryError;
use warpbell::rdma::{PostError, RdmaError};
use warpbell::remedy::{Remedies, Remedy};
use warpbell::shmem::ShmemError;
use warpbell::shmem::bootstrap::BootstrapError;
use warpbell::storage::StorageError;

/// Reason why a measurement did not complete.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error(transparent)]
    Shmem(#[from] ShmemError),
    #[error(transparent)]
    Rdma(#[from] RdmaError),
    #[error(transparent)]
    Post(#[from] PostError),
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    #[error(transparent)]
    Memory(#[from] MemoryError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error(transparent)]
    Cufile(#[from] CufileError),
    /// A setting that cannot be measured. The text names the setting, its numbers, and valid values.
    #[error("{0}")]
    Refused(String),
    /// Wrong data or counts: the figures of the measurement mean nothing.
    #[error("{0}")]
    Wrong(String),
    /// A message or the other side of a measurement failed.
    #[error("{0}")]
    Failed(String),
    /// The user pressed Ctrl-C.
    #[error("stopped")]
    Stopped,
}

/// Fails with [`MeasureError::Refused`]: `refuse!("a queue of {depth} entries: ...")`.
macro_rules! refuse {
    ($($text:tt)*) => { Err($crate::workloads::error::MeasureError::Refused(format!($($text)*))) };
}
pub(super) use refuse;

impl Remedies for MeasureError {
    fn remedies(&self) -> Vec<Remedy> {
        match self {
            Self::Storage(e) => e.remedies(),
            Self::Shmem(e) => e.remedies(),
            Self::Memory(e) => e.remedies(),
            Self::Engine(e) => e.remedies(),
            Self::Run(e) => e.remedies(),
            _ => Vec::new(),
        }
    }
}
