//! Kinds of the errors of PCI functions.

#[cfg(feature = "internals")]
use super::BindError;
use super::FindError;
use crate::failure::{ErrorKind, Failure};
use crate::remedy::Remedies;

impl Remedies for FindError {}

impl Failure for FindError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::None { .. } => ErrorKind::NotFound,
            Self::NotNvme { .. } | Self::NotPci { .. } | Self::Several { .. } => ErrorKind::Argument,
        }
    }
}

#[cfg(feature = "internals")]
impl Failure for BindError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::NoDevice { .. } => ErrorKind::NotFound,
            Self::InUse { .. } | Self::Open { .. } => ErrorKind::Busy,
            Self::NoDriver | Self::NoIommu { .. } => ErrorKind::Unsupported,
            Self::NotVfio { .. } => ErrorKind::Argument,
            Self::Write { .. } | Self::NotTaken { .. } => ErrorKind::Io,
        }
    }
}
