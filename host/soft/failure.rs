//! Kinds of the errors of software devices.

use crate::failure::{ErrorKind, Failure};
use crate::remedy::Remedies;

#[cfg(feature = "storage")]
impl Remedies for super::nvme::SoftError {}

#[cfg(feature = "storage")]
impl Failure for super::nvme::SoftError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Config { .. } | Self::NoSize | Self::Size { .. } | Self::NotAFile { .. } => ErrorKind::Argument,
            Self::Memory { .. } => ErrorKind::Memory,
            Self::File { .. } | Self::Thread { .. } => ErrorKind::Io,
            Self::Locked { .. } => ErrorKind::Busy,
            Self::Direct { .. } => ErrorKind::Unsupported,
            Self::Spec(e) => e.kind(),
            Self::Model(e) => e.kind(),
        }
    }
}

#[cfg(feature = "storage")]
impl Remedies for super::model::ModelError {}

#[cfg(feature = "storage")]
impl Failure for super::model::ModelError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Read { .. } => ErrorKind::Io,
            Self::Syntax { .. } | Self::Unknown { .. } | Self::Missing { .. } => ErrorKind::Argument,
            Self::Value { .. } | Self::Contradiction { .. } => ErrorKind::Argument,
        }
    }
}

#[cfg(feature = "storage")]
impl Remedies for super::fabrics::TargetError {}

#[cfg(feature = "storage")]
impl Failure for super::fabrics::TargetError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::Config { .. } => ErrorKind::Argument,
            Self::Listen { .. } => ErrorKind::Io,
            Self::Device(e) => e.kind(),
        }
    }
}

#[cfg(feature = "shmem")]
impl Remedies for super::nic::FaultError {}

#[cfg(feature = "shmem")]
impl Failure for super::nic::FaultError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::UnknownAction { .. } | Self::UnknownSelector { .. } => ErrorKind::Argument,
            Self::UnknownOperation { .. } | Self::NoValue { .. } => ErrorKind::Argument,
            Self::NeedlessValue { .. } | Self::BadValue { .. } => ErrorKind::Argument,
        }
    }
}
