//! Kinds of the errors of the CUDA driver.

use super::CudaError;
use crate::failure::{ErrorKind, Failure};

impl Failure for CudaError {
    fn kind(&self) -> ErrorKind {
        match self {
            Self::NoDriver | Self::NoDevice { .. } | Self::OldDriver { .. } => ErrorKind::Unsupported,
            Self::Capturing { .. } | Self::BadStream { .. } => ErrorKind::Unsupported,
            Self::Call(_) | Self::NoAnswer { .. } => ErrorKind::Cuda,
        }
    }
}
