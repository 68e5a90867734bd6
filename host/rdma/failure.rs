//! Kinds of the errors of RDMA adapters.

use super::ring_service::QueueError;
use super::{ConnectError, PostError, RdmaError};
use crate::failure::{ErrorKind, Failure};
use crate::remedy::Remedies;

impl Remedies for RdmaError {}

impl Failure for RdmaError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Memory(e) => e.kind(),
            Self::DeviceName { .. } => ErrorKind::Argument,
            Self::Queue { .. } | Self::Unavailable { .. } => ErrorKind::Unsupported,
            Self::Library { .. } | Self::Registration { .. } => ErrorKind::Unsupported,
            Self::Connect { .. } | Self::System { .. } => ErrorKind::Io,
        }
    }
}

impl Remedies for ConnectError {}

impl Failure for ConnectError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Unreachable { .. } | Self::Rejected { .. } | Self::Protocol { .. } => ErrorKind::Io,
            Self::TimedOut { .. } => ErrorKind::TimedOut,
            Self::Rdma(e) => e.kind(),
        }
    }
}

impl Remedies for PostError {}

impl Failure for PostError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::OutOfReach { .. } | Self::Ring { .. } => ErrorKind::Unsupported,
            Self::Entry { .. } | Self::NoReceives { .. } => ErrorKind::Argument,
            Self::Full { .. } => ErrorKind::Busy,
            Self::TimedOut { .. } => ErrorKind::TimedOut,
            Self::Failed { .. } | Self::Receive { .. } | Self::Completion { .. } => ErrorKind::Io,
            Self::Unknown { .. } | Self::Verbs { .. } => ErrorKind::Io,
        }
    }
}

impl Remedies for QueueError {}

impl Failure for QueueError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Entry(_) | Self::Unfinished { .. } | Self::Doorbell { .. } => ErrorKind::Argument,
            Self::Index { .. } | Self::Record { .. } | Self::ReceiveRecord { .. } => ErrorKind::Argument,
        }
    }
}
