//! Kinds of the errors of engines and runs, and the operations that they name.

use super::{EngineError, OperationError, Outcome, RunError};
use crate::failure::{ErrorKind, FailedCommand, FailedDevice, Failure};
use crate::memory::MemoryError;

impl Failure for EngineError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Cuda(e) => e.kind(),
            Self::Memory(e) => e.kind(),
            Self::Processors(e) => e.kind(),
            Self::NoDeviceImage | Self::NoCpuImage | Self::MissingImage { .. } => ErrorKind::Unsupported,
            Self::AbiMismatch { .. } | Self::NoCudaStreams | Self::WarpWidth { .. } => ErrorKind::Unsupported,
            Self::NoKernel(_) => ErrorKind::NotFound,
            Self::DuplicateKernel { .. } => ErrorKind::Exists,
            Self::EmptyImage { .. } | Self::Arguments { .. } => ErrorKind::Argument,
            Self::Grid { .. } | Self::ForeignStream => ErrorKind::Argument,
            Self::Busy { .. } => ErrorKind::Busy,
            Self::Thread(_) => ErrorKind::Io,
            Self::Cancelled => ErrorKind::Stopped,
            // Worlds stop the engine for a PE that is gone.
            Self::Stopped { .. } => ErrorKind::LostPe,
            Self::Poisoned => ErrorKind::Kernel,
        }
    }
}

impl OperationError {
    /// Returns the kind of the error.
    pub fn kind(&self) -> ErrorKind {
        match self.outcome {
            Outcome::TimedOut => ErrorKind::TimedOut,
            Outcome::Stopped => ErrorKind::Stopped,
            Outcome::BadArgument if self.table_index().is_some() => ErrorKind::RowIndex,
            Outcome::BadArgument => ErrorKind::Argument,
            Outcome::Unreachable => ErrorKind::Unsupported,
            Outcome::NetworkError { .. } => ErrorKind::World,
            Outcome::Damaged => ErrorKind::Damaged,
            Outcome::DeviceError(_) | Outcome::NoFrame | Outcome::Poisoned => ErrorKind::Operation,
            Outcome::Done | Outcome::Unknown(_) => ErrorKind::Operation,
        }
    }

    fn command(&self) -> FailedCommand {
        let status = self.outcome.to_string();
        FailedCommand { device: FailedDevice::Number(self.device), lba: Some(self.lba), status }
    }
}

impl Failure for RunError {
    fn kind(&self) -> ErrorKind {
        match self {
            // The error that caused the others is the first.
            Self::Operations { errors, .. } => errors.first().map_or(ErrorKind::Operation, OperationError::kind),
            Self::Stopped { .. } => ErrorKind::Stopped,
            Self::TimedOut { .. } => ErrorKind::TimedOut,
            Self::Stuck { .. } | Self::Broken { .. } => ErrorKind::Kernel,
            Self::Memory(e) => e.kind(),
        }
    }

    fn command(&self) -> Option<FailedCommand> {
        self.operations().first().map(OperationError::command)
    }
}

/// An error that may be that of a run.
pub trait Operations: Failure {
    /// Returns the operations that failed inside a kernel; those that caused the others come first. Returns none if the
    /// error has another cause.
    fn operations(&self) -> &[OperationError] {
        &[]
    }
}

impl Operations for RunError {
    fn operations(&self) -> &[OperationError] {
        match self {
            Self::Operations { errors, .. } | Self::Stopped { errors, .. } | Self::Stuck { errors, .. } => errors,
            Self::TimedOut { .. } | Self::Broken { .. } | Self::Memory(_) => &[],
        }
    }
}

impl Operations for EngineError {}

impl Operations for MemoryError {}
