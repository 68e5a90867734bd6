//! Stand-in for the software controller in builds without feature `soft`: every specification is an error.

use crate::nvme::Attachment;
use crate::spec::{DeviceSpec, SpecError};
use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;

/// A software controller. This build has none, so the type has no values.
#[derive(Clone, Debug)]
pub(in crate::storage) enum SoftDrive {}

impl SoftDrive {
    pub(in crate::storage) fn read(_: &DeviceSpec) -> Result<Self, SpecError> {
        Err(SpecError::NotBuilt { devices: "software devices", feature: "soft" })
    }

    #[cfg(feature = "internals")]
    pub(in crate::storage) fn share_processors(&mut self, _: usize) {
        match *self {}
    }

    pub(in crate::storage) fn needs_bytes(&self) -> bool {
        match *self {}
    }

    pub(in crate::storage) fn set_bytes(&mut self, _: u64) {
        match *self {}
    }

    pub(in crate::storage) fn is_memory(&self, _: usize) -> bool {
        match *self {}
    }

    pub(in crate::storage) fn files(&mut self) -> Vec<Option<&mut PathBuf>> {
        match *self {}
    }

    pub(in crate::storage) fn set_read_only(&mut self) {
        match *self {}
    }

    pub(in crate::storage) fn set_final_path(&mut self, _: usize, _: PathBuf) {
        match *self {}
    }

    pub(in crate::storage) fn start(self) -> Result<(Attachment, Arc<dyn Any + Send + Sync>), String> {
        match self {}
    }
}
