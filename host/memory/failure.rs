//! Kinds of the errors of memory.

use super::mapping::{BackendError, MappingError};
use super::{DmaError, IommuError, MemoryError};
use crate::failure::{ErrorKind, Failure};
use crate::remedy::Remedies;

impl Failure for MemoryError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Host { .. } | Self::Cuda { .. } => ErrorKind::Memory,
            Self::OutOfBounds { .. } => ErrorKind::Argument,
            Self::NotImportable { .. } | Self::NotReachable { .. } | Self::NoDmaBuf { .. } => ErrorKind::Unsupported,
        }
    }
}

impl Failure for DmaError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Memory(e) => e.kind(),
            Self::Iommu(e) => e.kind(),
            Self::MappingBackends(e) => e.kind(),
            Self::Unreachable { .. } => ErrorKind::Unsupported,
            Self::Exhausted { .. } => ErrorKind::Memory,
        }
    }
}

impl Remedies for IommuError {}

impl Failure for IommuError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Refused { .. } | Self::Unsupported { .. } | Self::Unaligned { .. } => ErrorKind::Unsupported,
            // Limits that the machine sets for the user.
            Self::MemoryLock { .. } | Self::NoAddress { .. } | Self::NoEntry { .. } => ErrorKind::Unsupported,
        }
    }
}

impl Remedies for MappingError {}

impl Failure for MappingError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::MappingBackend { .. } | Self::NoBackend { .. } => ErrorKind::Unsupported,
        }
    }
}

impl Remedies for BackendError {}

impl Failure for BackendError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Open { .. } | Self::Refused { .. } | Self::Mismatch(_) => ErrorKind::Io,
            Self::Version { .. } | Self::Requires { .. } => ErrorKind::Unsupported,
            Self::Gap { .. } | Self::Length { .. } | Self::Unaligned { .. } => ErrorKind::Unsupported,
            Self::Export(e) | Self::Memory(e) => e.kind(),
            Self::Iommu(e) => e.kind(),
        }
    }
}
