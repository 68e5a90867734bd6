//! Kinds of the errors of NVMe controllers.

use super::fabrics::FabricsError;
use super::qtest::QtestError;
use super::vfio::VfioError;
use super::{NvmeError, PortError};
use crate::failure::{ErrorKind, FailedCommand, Failure};
use crate::remedy::Remedies;

impl Failure for NvmeError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Port(e) => e.kind(),
            Self::Dma(e) => e.kind(),
            Self::Memory(e) => e.kind(),
            Self::TimedOut { .. } | Self::BudgetExhausted { .. } => ErrorKind::TimedOut,
            Self::NoNamespace { .. } => ErrorKind::NotFound,
            Self::Unsupported { .. } | Self::PageSize { .. } | Self::CommandSet { .. } => ErrorKind::Unsupported,
            Self::NoDoorbell { .. } | Self::NoKernelDoorbell { .. } => ErrorKind::Unsupported,
            Self::NoMemoryBuffer { .. } => ErrorKind::Unsupported,
            Self::Options { .. } | Self::Depth { .. } | Self::TooDeep { .. } => ErrorKind::Argument,
            Self::TooManyQueues { .. } | Self::Range { .. } => ErrorKind::Argument,
            Self::Gone { .. } | Self::NotReady { .. } | Self::NoLongerReady { .. } => ErrorKind::Io,
            Self::NotAController { .. } | Self::EntrySizes { .. } | Self::NotIo { .. } => ErrorKind::Io,
            Self::Fatal { .. } | Self::Command { .. } | Self::QueueStuck { .. } => ErrorKind::Io,
            Self::QueuesLost { .. } | Self::NotRecovered { .. } | Self::StrayCompletion { .. } => ErrorKind::Io,
            Self::Format { .. } | Self::Forwarder { .. } => ErrorKind::Io,
        }
    }

    fn command(&self) -> Option<FailedCommand> {
        match self {
            Self::Command { device, status, .. } => Some(FailedCommand::on(device, None, status)),
            Self::TimedOut { device, .. } => Some(FailedCommand::on(device, None, "timed out")),
            Self::NotRecovered { source, .. } => source.command(),
            _ => None,
        }
    }
}

impl Remedies for PortError {}

impl Failure for PortError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Lost { .. } | Self::Reset { .. } => ErrorKind::Io,
        }
    }
}

impl Failure for FabricsError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Resolve { .. } => ErrorKind::NotFound,
            Self::TimedOut { .. } => ErrorKind::TimedOut,
            Self::Unreachable { .. } | Self::Lost { .. } | Self::Protocol { .. } => ErrorKind::Io,
            Self::Terminated { .. } | Self::Rejected { .. } | Self::Adapter { .. } => ErrorKind::Io,
            Self::Refused { .. } | Self::Command { .. } | Self::NotReady { .. } => ErrorKind::Io,
            Self::Inaccessible { .. } | Self::System { .. } => ErrorKind::Io,
            Self::AuthenticationRequired { .. } | Self::Unsupported { .. } => ErrorKind::Unsupported,
            Self::Options { .. } | Self::Identity { .. } => ErrorKind::Argument,
            // The first port is the one that the user names first.
            Self::NoPort { causes, .. } => causes.first().map_or(ErrorKind::Io, Self::kind),
        }
    }

    fn command(&self) -> Option<FailedCommand> {
        match self {
            Self::Command { peer, status, .. } => Some(FailedCommand::on(peer, None, status)),
            _ => None,
        }
    }
}

impl Failure for VfioError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::NoDevice { .. } => ErrorKind::NotFound,
            Self::NotNvme { .. } => ErrorKind::Argument,
            Self::Open { .. } | Self::Call { .. } | Self::Registers { .. } => ErrorKind::Io,
            Self::Config { .. } | Self::Vectors { .. } => ErrorKind::Io,
            // Drivers, groups, rights and other users of the device.
            Self::NotBound { .. } | Self::NoGroup { .. } | Self::Unsafe { .. } => ErrorKind::Unsupported,
            Self::NotViable { .. } | Self::NoNode { .. } | Self::Rights { .. } => ErrorKind::Unsupported,
            Self::Busy { .. } | Self::NoInterface { .. } => ErrorKind::Unsupported,
            Self::Iommu(e) => e.kind(),
        }
    }
}

impl Remedies for QtestError {}

impl Failure for QtestError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::NoQemu { .. } => ErrorKind::NotFound,
            Self::Config { .. } => ErrorKind::Argument,
            Self::File { .. } | Self::Ram { .. } | Self::Start { .. } | Self::Qemu { .. } => ErrorKind::Io,
        }
    }
}
