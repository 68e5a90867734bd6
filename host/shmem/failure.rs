//! Kinds of the errors of worlds.

use super::ShmemError;
use super::bootstrap::BootstrapError;
#[cfg(feature = "internals")]
use super::launcher::LaunchError;
use crate::engine::{OperationError, Operations};
use crate::failure::{ErrorKind, FailedCommand, Failure};
use crate::remedy::Remedies;

impl Failure for ShmemError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Bootstrap(e) => e.kind(),
            Self::Engine(e) => e.kind(),
            Self::Run(e) => e.kind(),
            Self::Memory(e) => e.kind(),
            Self::Registration(e) => e.kind(),
            // A wait that was told to end is no failure of the connections.
            Self::Network { source, .. } if source.kind() == ErrorKind::Stopped => ErrorKind::Stopped,
            Self::Network { .. } | Self::StreamConnection { .. } => ErrorKind::World,
            Self::Unequal { .. } | Self::OutOfStep { .. } | Self::OnRanks { .. } => ErrorKind::World,
            Self::Crowded { .. } | Self::Transport { .. } | Self::OutOfReach { .. } => ErrorKind::Unsupported,
            Self::ScatteredNode { .. } => ErrorKind::Unsupported,
            Self::Heap { .. } | Self::HeapFull { .. } | Self::TeamLimit { .. } => ErrorKind::HeapSpace,
            Self::InUse { .. } | Self::Busy { .. } | Self::StreamFull { .. } => ErrorKind::Busy,
            Self::Setting { .. } | Self::Alignment { .. } | Self::NoKeys { .. } | Self::Foreign => ErrorKind::Argument,
            Self::NoTeam { .. } | Self::Lengths { .. } | Self::Region { .. } | Self::Cast { .. } => ErrorKind::Argument,
            Self::Overlap { .. } | Self::NoPe { .. } | Self::OutOfBounds { .. } | Self::Signals { .. } => {
                ErrorKind::Argument
            }
        }
    }

    fn command(&self) -> Option<FailedCommand> {
        match self {
            Self::Run(e) | Self::Network { source: e, .. } => e.command(),
            _ => None,
        }
    }
}

impl Operations for ShmemError {
    fn operations(&self) -> &[OperationError] {
        match self {
            Self::Run(e) | Self::Network { source: e, .. } => e.operations(),
            _ => &[],
        }
    }
}

impl Remedies for BootstrapError {}

impl Failure for BootstrapError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Missing { .. } | Self::Connect { .. } => ErrorKind::TimedOut,
            Self::Lost(_) => ErrorKind::LostPe,
            Self::Disagree(_) | Self::WrongSecret { .. } => ErrorKind::World,
            Self::NotAStore { .. } | Self::Protocol { .. } => ErrorKind::World,
            Self::Listen { .. } | Self::System { .. } => ErrorKind::Io,
            Self::Left { .. } => ErrorKind::State,
            Self::Variable { .. } | Self::HalfSet { .. } | Self::NoStore { .. } => ErrorKind::Argument,
            Self::NoSecret { .. } | Self::BadSecret { .. } | Self::SecretFile { .. } => ErrorKind::Argument,
            Self::NoRank { .. } | Self::UniqueId { .. } | Self::TooLarge { .. } => ErrorKind::Argument,
        }
    }
}

impl Operations for BootstrapError {}

#[cfg(feature = "internals")]
impl Remedies for LaunchError {}

#[cfg(feature = "internals")]
impl Failure for LaunchError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Ranks(_) => ErrorKind::Argument,
            Self::Program { .. } | Self::Start { .. } | Self::OutputGone => ErrorKind::Io,
            Self::Store(e) => e.kind(),
            Self::Failed { .. } => ErrorKind::LostPe,
            Self::TimedOut { .. } | Self::Stuck(_) => ErrorKind::TimedOut,
        }
    }
}
