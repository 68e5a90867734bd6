//! Kinds of the errors of storage and of tables.

use super::{KvError, ManifestError, NpyError, RowFileError, StorageError, TableError, UnknownWord};
use crate::engine::{OperationError, Operations};
use crate::failure::{ErrorKind, FailedCommand, Failure};
use crate::remedy::Remedies;

impl Failure for StorageError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Missing { .. } => ErrorKind::NotFound,
            Self::Word(e) => e.kind(),
            Self::Nvme(e) => e.kind(),
            Self::Fabrics(e) => e.kind(),
            Self::Vfio(e) => e.kind(),
            Self::Find(e) => e.kind(),
            Self::Dma(e) => e.kind(),
            Self::Memory(e) => e.kind(),
            Self::Engine(e) => e.kind(),
            Self::Run(e) => e.kind(),
            Self::Manifest { source, .. } => source.kind(),
            Self::Table(e) => e.kind(),
            Self::Kv(e) => e.kind(),
            Self::File { .. } | Self::NoCopy { .. } | Self::Unread { .. } => ErrorKind::Io,
            Self::NotOurs { .. } | Self::InUse(_) => ErrorKind::Exists,
            Self::NoSpace { .. } | Self::Capacity { .. } => ErrorKind::Space,
            Self::NoPath { .. } => ErrorKind::Unsupported,
            Self::Spec { .. } | Self::Twice { .. } | Self::Members { .. } => ErrorKind::Argument,
            Self::Option(_) | Self::Range { .. } | Self::Count { .. } => ErrorKind::Argument,
        }
    }

    fn command(&self) -> Option<FailedCommand> {
        match self {
            Self::Nvme(e) => e.command(),
            Self::Fabrics(e) => e.command(),
            Self::Run(e) => e.command(),
            Self::NoCopy { device, first, errors, .. } => {
                Some(FailedCommand::on(device, Some(*first), errors.join("; ")))
            }
            _ => None,
        }
    }
}

impl Operations for StorageError {
    fn operations(&self) -> &[OperationError] {
        if let Self::Run(e) = self { e.operations() } else { &[] }
    }
}

impl Failure for TableError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Unknown { .. } => ErrorKind::NotFound,
            Self::Exists { .. } => ErrorKind::Exists,
            Self::Format { .. } => ErrorKind::Unsupported,
            Self::Damaged { .. } => ErrorKind::Damaged,
            Self::Index { .. } => ErrorKind::RowIndex,
            Self::Name(_) | Self::Layout(_) | Self::Type { .. } | Self::Bytes { .. } => ErrorKind::Argument,
        }
    }
}

impl Operations for TableError {}

impl Failure for KvError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Unknown { .. } | Self::Absent { .. } => ErrorKind::NotFound,
            Self::Exists { .. } => ErrorKind::Exists,
            Self::Open { .. } => ErrorKind::Busy,
            Self::Format { .. } => ErrorKind::Unsupported,
            Self::Damaged { .. } | Self::Data { .. } => ErrorKind::Damaged,
            Self::Full { .. } => ErrorKind::Space,
            Self::Removed { .. } | Self::Name(_) | Self::Options(_) | Self::KeyBytes { .. } => ErrorKind::Argument,
            Self::KeySize { .. } | Self::Twice { .. } | Self::Size { .. } => ErrorKind::Argument,
            Self::Short { .. } | Self::Checksums { .. } => ErrorKind::Argument,
        }
    }
}

impl Operations for KvError {}

impl Failure for RowFileError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Io { source, .. } => ErrorKind::of_io(source),
            Self::Flat { .. } | Self::Choice { .. } => ErrorKind::Argument,
            Self::Feature { .. } => ErrorKind::Unsupported,
            Self::Npy { source, .. } => source.kind(),
            Self::Content { .. } | Self::Layout { .. } => ErrorKind::Input,
            Self::Storage(e) => e.kind(),
        }
    }

    fn command(&self) -> Option<FailedCommand> {
        if let Self::Storage(e) = self { e.command() } else { None }
    }
}

impl Operations for RowFileError {
    fn operations(&self) -> &[OperationError] {
        if let Self::Storage(e) = self { e.operations() } else { &[] }
    }
}

impl Remedies for NpyError {}

impl Failure for NpyError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Magic | Self::Version(..) | Self::Short { .. } | Self::Long(_) => ErrorKind::Input,
            Self::Syntax { .. } | Self::Type { .. } | Self::Raw { .. } => ErrorKind::Input,
            Self::Other { .. } | Self::Order => ErrorKind::Input,
        }
    }
}

impl Remedies for ManifestError {}

impl Failure for ManifestError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Absent | Self::Unknown { .. } => ErrorKind::NotFound,
            Self::Twice(_) => ErrorKind::Exists,
            Self::TooMany(_) => ErrorKind::Space,
            Self::Version(_) | Self::Extension { .. } => ErrorKind::Unsupported,
            Self::Name(_) | Self::Type { .. } | Self::Layout { .. } | Self::Member { .. } => ErrorKind::Argument,
            Self::Truncated { .. } | Self::Lost { .. } | Self::Diverged { .. } => ErrorKind::Damaged,
            Self::Interrupted { .. } | Self::Checksum { .. } | Self::Entry { .. } => ErrorKind::Damaged,
            Self::Overlap { .. } | Self::Beyond { .. } | Self::Data { .. } => ErrorKind::Damaged,
        }
    }
}

impl Operations for UnknownWord {}
