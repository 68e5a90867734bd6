//! Kinds of errors, and the place of a failed command; uses `remedy`.
//!
//! Each error type of the library implements [`Failure`], with a `match` over all of its variants. Programs, and the
//! bindings for C and Python, decide by the kind, whatever the type is that a call returns.
//!
//! ```
//! use warpbell::engine::Engine;
//! use warpbell::failure::{ErrorKind, Failure};
//! use warpbell::storage::{Drive, Volume};
//!
//! let volume = Volume::on(&Engine::cpu()?, [Drive::open("soft:mem:1M")?]).build()?;
//! let error = volume.read_array::<u32>("numbers").unwrap_err();
//! assert_eq!(error.kind(), ErrorKind::NotFound);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::remedy::Remedies;
use std::fmt;
use std::io;

/// Defines the kinds, and the list of all of them.
macro_rules! kinds {
    ($($(#[$text:meta])+ $kind:ident,)+) => {
        /// Kind of an error, which tells a program what to do about it. The text of the error has the details.
        ///
        /// A `match` over the kinds needs no arm for others: a new kind is a new interface.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ErrorKind {
            $($(#[$text])+ $kind,)+
        }

        impl ErrorKind {
            /// All kinds.
            pub const ALL: &[Self] = &[$(Self::$kind),+];
        }
    };
}

kinds! {
    /// An argument or option is out of its range, or does not fit the object.
    Argument,
    /// An index is no row of a table.
    RowIndex,
    /// The object is not in a state for the call: it lacks data that the call reads, or has been left.
    State,
    /// No kernel, array, table, graph, file or device has the name.
    NotFound,
    /// The name is in use, or the target holds data that must not be overwritten.
    Exists,
    /// A volume or a file system has too little space.
    Space,
    /// The symmetric heap has too little space, or cannot be allocated.
    HeapSpace,
    /// Memory of the host or of the GPU could not be allocated or accessed.
    Memory,
    /// This machine, engine, stream or memory does not support the request.
    Unsupported,
    /// Stored data, or a result, does not match its checksum or its description.
    Damaged,
    /// An input file cannot be parsed, or its content is invalid.
    Input,
    /// Operations inside a kernel failed.
    Operation,
    /// A file, a device or the operating system failed.
    Io,
    /// A device, a kernel or another process did not respond or end within its limit.
    TimedOut,
    /// The engine's work was stopped, by a cancel for example.
    Stopped,
    /// Kernels in flight, or another owner, use the object. The call may succeed later.
    Busy,
    /// A kernel broke, or did not end when it was told to stop.
    Kernel,
    /// A call of the CUDA driver failed.
    Cuda,
    /// PEs of a world disagree, or a connection between them failed.
    World,
    /// A PE of the world is gone.
    LostPe,
}

impl ErrorKind {
    /// Returns the kind of an error of a file operation.
    pub(crate) fn of_io(e: &io::Error) -> Self {
        if e.kind() == io::ErrorKind::NotFound { Self::NotFound } else { Self::Io }
    }
}

/// Name of a device, or its number in the volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FailedDevice {
    /// Name, as in `nvme:0000:65:00.0`.
    Name(String),
    /// Number in the volume, from 0. For a call between PEs, the other PE.
    Number(u32),
}

impl fmt::Display for FailedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Number(number) => write!(f, "device {number}"),
        }
    }
}

/// Place and outcome of a command that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailedCommand {
    /// The device.
    pub device: FailedDevice,
    /// First logical block, where the error has it as a number.
    pub lba: Option<u64>,
    /// Outcome, such as `timed out` or the status of the completion.
    pub status: String,
}

impl FailedCommand {
    pub(crate) fn on(device: &str, lba: Option<u64>, status: impl ToString) -> Self {
        Self { device: FailedDevice::Name(device.to_owned()), lba, status: status.to_string() }
    }
}

/// An error that tells its kind, and the command that failed.
pub trait Failure: Remedies {
    /// Returns the kind of the error: that of the cause, where an error passes another one on.
    fn kind(&self) -> ErrorKind;

    /// Returns the command that is the cause, if the error is that of a command: the first of several.
    fn command(&self) -> Option<FailedCommand> {
        None
    }
}

#[cfg(test)]
mod tests;
