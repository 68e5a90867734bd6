//! Errors of RDMA adapters.

use crate::memory::MemoryError;

/// Error of an adapter, a queue pair or a registration.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RdmaError {
    /// Memory could not be allocated or accessed.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// A queue pair has an unsupported shape, is closed, or cannot be created.
    #[error("queue pair of {blocks} blocks: {reason}")]
    Queue {
        /// Size of its send ring in blocks of 64 bytes.
        blocks: u32,
        /// Reason.
        reason: String,
    },
    /// The adapter does not exist or cannot be used.
    #[error("{transport} adapter: {reason}")]
    Unavailable {
        /// Kind of adapter.
        transport: super::Transport,
        /// Reason, and remedy.
        reason: String,
    },
    /// A device name has an invalid form.
    #[error("device `{name}`: {reason}")]
    DeviceName {
        /// The given name.
        name: String,
        /// The valid form.
        reason: &'static str,
    },
    /// Memory could not be registered.
    #[error("registering {bytes} bytes at {address:#x}: {reason}")]
    Registration {
        /// Address as kernels see it.
        address: u64,
        /// Length in bytes.
        bytes: usize,
        /// Reason, and remedy.
        reason: String,
    },
    /// A library of rdma-core is missing or too old.
    #[error("{library}: {reason}; {remedy}")]
    Library {
        /// Name given to the loader.
        library: &'static str,
        /// Reason in the loader's words.
        reason: String,
        /// Package and version that contain the library.
        remedy: String,
    },
    /// The peer is unreachable, or its address or its link does not fit this side's.
    #[error("connecting queue pair {number:#x} with {peer}: {reason}")]
    Connect {
        /// This side's queue pair.
        number: u32,
        /// The peer.
        peer: String,
        /// Reason.
        reason: String,
    },
    /// A call of the operating system or a driver failed.
    #[error("{what}: {source}")]
    System {
        /// The attempted operation.
        what: String,
        /// Error of the call.
        #[source]
        source: std::io::Error,
    },
}
