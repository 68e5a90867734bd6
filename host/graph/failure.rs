//! Kinds of the errors of graphs.

#[cfg(feature = "internals")]
use super::output::OutputError;
use super::stored::StoredError;
#[cfg(feature = "internals")]
use super::verify::VerifyError;
use super::{CsrError, GraphError, ImportError, NamesError, UnknownVertex};
use crate::engine::{OperationError, Operations};
use crate::failure::{ErrorKind, FailedCommand, Failure};
use crate::remedy::Remedies;

impl Failure for GraphError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Memory(e) => e.kind(),
            Self::Engine(e) => e.kind(),
            Self::Run(e) => e.kind(),
            Self::Storage(e) => e.kind(),
            Self::Stored(e) => e.kind(),
            Self::Import(e) => e.kind(),
            #[cfg(feature = "shmem")]
            Self::Shmem(e) => e.kind(),
            Self::NotPlaced { .. } | Self::Distributed { .. } => ErrorKind::State,
            Self::Occupied { .. } => ErrorKind::Exists,
            Self::Corrupt { .. } => ErrorKind::Damaged,
            Self::DistanceOverflow { .. } | Self::Directed { .. } | Self::TooManyPaths { .. } => ErrorKind::Input,
            Self::TooManyRounds { .. } => ErrorKind::TimedOut,
            Self::NoSuchVertex { .. } | Self::Parameter { .. } => ErrorKind::Argument,
            Self::Searches { .. } | Self::NoSearch { .. } => ErrorKind::Argument,
            Self::Depths { .. } => ErrorKind::Memory,
            Self::OtherPe { .. } | Self::OutOfStep | Self::OtherWorld { .. } => ErrorKind::World,
        }
    }

    fn command(&self) -> Option<FailedCommand> {
        match self {
            Self::Run(e) => e.command(),
            Self::Storage(e) => e.command(),
            _ => None,
        }
    }
}

impl Operations for GraphError {
    fn operations(&self) -> &[OperationError] {
        match self {
            Self::Run(e) => e.operations(),
            Self::Storage(e) => e.operations(),
            #[cfg(feature = "shmem")]
            Self::Shmem(e) => e.operations(),
            _ => &[],
        }
    }
}

impl Failure for StoredError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Name(_) => ErrorKind::Argument,
            Self::Unknown { .. } => ErrorKind::NotFound,
            Self::Exists { .. } => ErrorKind::Exists,
            Self::Format { .. } => ErrorKind::Unsupported,
            Self::Damaged { .. } => ErrorKind::Damaged,
            Self::NoWeights { .. } | Self::Part { .. } => ErrorKind::State,
            Self::OtherPart { .. } | Self::OtherImport { .. } => ErrorKind::State,
        }
    }
}

impl Operations for StoredError {}

impl Remedies for ImportError {}

impl Failure for ImportError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Io { source, .. } => ErrorKind::of_io(source),
            Self::TemporaryFile { .. } => ErrorKind::Io,
            Self::MissingPart { .. } => ErrorKind::NotFound,
            Self::UnknownEnding { .. } | Self::NoFormat { .. } => ErrorKind::Argument,
            Self::NumberedFormat { .. } | Self::Generator { .. } | Self::PartCount { .. } => ErrorKind::Argument,
            Self::Feature { .. } => ErrorKind::Unsupported,
            Self::Memory { .. } | Self::Refused { .. } => ErrorKind::Memory,
            Self::LargeText { .. } | Self::SmallBudget { .. } => ErrorKind::Memory,
            Self::NotAFile { .. } | Self::Compressed { .. } | Self::Header { .. } => ErrorKind::Input,
            Self::CountedVertices { .. } | Self::FixedColumns { .. } => ErrorKind::Input,
            Self::SeveralGraphs { .. } | Self::MetisLoops { .. } | Self::LargeWindow { .. } => ErrorKind::Input,
            Self::Rows { .. } | Self::Empty { .. } | Self::Shrunk { .. } => ErrorKind::Input,
            Self::Line { .. } | Self::Row { .. } | Self::Table { .. } | Self::NoSizeLine { .. } => ErrorKind::Input,
            Self::Entries { .. } | Self::TooManyEntries { .. } => ErrorKind::Input,
            Self::Serialized { .. } | Self::BvGraph { .. } | Self::NoVertices { .. } => ErrorKind::Input,
        }
    }
}

impl Operations for ImportError {}

impl Remedies for CsrError {}

impl Failure for CsrError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Offsets { .. } | Self::Offset { .. } | Self::Neighbour { .. } => ErrorKind::Argument,
            Self::Weights { .. } | Self::Weight { .. } | Self::OneWay { .. } => ErrorKind::Argument,
        }
    }
}

impl Operations for CsrError {}

impl Remedies for NamesError {}

impl Failure for NamesError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Offset { .. } | Self::NoOffsets | Self::Order { .. } | Self::Name { .. } => ErrorKind::Argument,
        }
    }
}

impl Remedies for UnknownVertex {}

impl Failure for UnknownVertex {
    fn kind(&self) -> ErrorKind {
        ErrorKind::NotFound
    }
}

impl Operations for UnknownVertex {}

#[cfg(feature = "internals")]
impl Remedies for OutputError {}

#[cfg(feature = "internals")]
impl Failure for OutputError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Destination(e) => e.kind(),
            Self::Feature { .. } => ErrorKind::Unsupported,
            Self::Length { .. } | Self::Component { .. } | Self::Parent { .. } => ErrorKind::Argument,
        }
    }
}

#[cfg(feature = "internals")]
impl Remedies for VerifyError {}

#[cfg(feature = "internals")]
impl Failure for VerifyError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Length { .. } | Self::Weights { .. } | Self::Kind => ErrorKind::Argument,
            Self::Source { .. } | Self::NoSuchVertex { .. } => ErrorKind::Argument,
            Self::Depth { .. } | Self::Parent { .. } | Self::Component { .. } => ErrorKind::Damaged,
            Self::Label { .. } | Self::StrongComponent { .. } | Self::Score { .. } => ErrorKind::Damaged,
            Self::Rank { .. } | Self::RankSum { .. } | Self::Ranks { .. } => ErrorKind::Damaged,
            Self::Distance { .. }
            | Self::Relaxable { .. }
            | Self::Triangles { .. }
            | Self::TriangleTotal { .. }
            | Self::Coefficient { .. }
            | Self::Core { .. } => ErrorKind::Damaged,
        }
    }
}
