//! How RDMA adapters fail.

use crate::memory::MemoryError;

/// Why an adapter, a queue pair or a registration could not be had.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RdmaError {
    /// Memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// A queue pair that cannot be.
    #[error("queue pair of {blocks} blocks: {reason}")]
    Queue {
        /// Blocks of 64 bytes.
        blocks: u32,
        /// Why.
        reason: String,
    },
    /// There is no such adapter, or it cannot be used.
    #[error("{transport} adapter: {reason}")]
    Unavailable {
        /// Which kind.
        transport: super::Transport,
        /// Why, and what to do.
        reason: String,
    },
    /// The name of a device that has another form than such names have.
    #[error("device `{name}`: {reason}")]
    DeviceName {
        /// The name as it was given.
        name: String,
        /// The form that names have.
        reason: &'static str,
    },
    /// Memory that could not be registered.
    #[error("registering {bytes} bytes at {address:#x}: {reason}")]
    Registration {
        /// As kernels see it.
        address: u64,
        /// Bytes.
        bytes: usize,
        /// Why, and what to do.
        reason: String,
    },
    /// A library of rdma-core that is absent, or too old.
    #[error("{library}: {reason}; {remedy}")]
    Library {
        /// Name that the loader was given.
        library: &'static str,
        /// Why it is not available, in the loader's words.
        reason: String,
        /// Package, and the version of it, that has the library.
        remedy: String,
    },
    /// The other side could not be reached, or is not what it should be.
    #[error("connecting queue pair {number:#x} with {peer}: {reason}")]
    Connect {
        /// This side's queue pair.
        number: u32,
        /// The other side.
        peer: String,
        /// Why.
        reason: String,
    },
    /// A call of the operating system or a driver.
    #[error("{what}: {source}")]
    System {
        /// What was tried.
        what: String,
        /// Its answer.
        #[source]
        source: std::io::Error,
    },
}
