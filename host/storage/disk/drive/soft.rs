//! The software controller as a drive.

use crate::nvme::Attachment;
use crate::soft::nvme::{Backing, SoftConfig, SoftController};
use crate::spec::{DeviceSpec, SpecError};
use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;

/// A software controller that is not started yet.
#[derive(Clone, Debug)]
pub(in crate::storage) struct SoftDrive(Box<SoftConfig>);

impl SoftDrive {
    pub(in crate::storage) fn read(spec: &DeviceSpec) -> Result<Self, SpecError> {
        Ok(Self(Box::new(spec.try_into()?)))
    }

    /// Divides the default number of the controller's service threads by `sharers`. Has no effect if the options set
    /// the number.
    #[cfg(feature = "internals")]
    pub(in crate::storage) fn share_processors(&mut self, sharers: usize) {
        let threads = self.0.service_threads().div_ceil(sharers.max(1));
        self.0.threads.get_or_insert(threads);
    }

    pub(in crate::storage) fn needs_bytes(&self) -> bool {
        self.0.needs_bytes()
    }

    pub(in crate::storage) fn set_bytes(&mut self, bytes: u64) {
        self.0.set_bytes(bytes);
    }

    /// Returns true if the namespace at this index is memory of this process.
    pub(in crate::storage) fn is_memory(&self, index: usize) -> bool {
        self.0.namespaces.get(index).is_some_and(|n| matches!(n.backing, Backing::Memory { .. }))
    }

    /// Returns the file of each namespace, in order.
    pub(in crate::storage) fn files(&mut self) -> Vec<Option<&mut PathBuf>> {
        let files = self.0.namespaces.iter_mut().map(|n| match &mut n.backing {
            Backing::File { path, .. } => Some(path),
            _ => None,
        });
        files.collect()
    }

    /// Opens files for reading alone, together with other readers.
    pub(in crate::storage) fn set_read_only(&mut self) {
        for n in &mut self.0.namespaces {
            n.read_only = matches!(n.backing, Backing::File { .. });
        }
    }

    /// Sets the name that the file of the namespace at this index finally gets.
    pub(in crate::storage) fn set_final_path(&mut self, index: usize, path: PathBuf) {
        self.0.namespaces[index].final_path = Some(path);
    }

    /// Starts the controller, and returns a value that keeps it running.
    pub(in crate::storage) fn start(self) -> Result<(Attachment, Arc<dyn Any + Send + Sync>), String> {
        let controller = SoftController::start(*self.0).map_err(|e| e.to_string())?;
        Ok((controller.attachment(), Arc::new(controller)))
    }

    #[cfg(test)]
    pub(in crate::storage) fn threads(&self) -> Option<usize> {
        self.0.threads
    }
}
