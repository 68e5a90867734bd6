//! Drives: enabled controllers, each with one of its namespaces.

mod naming;
mod nvme;
#[cfg_attr(not(feature = "soft"), path = "no_soft.rs")]
mod soft;
mod spec;
mod target;

pub use spec::DriveSpec;
pub use target::OverwritePolicy;

use crate::nvme::{Attachment, Controller, Namespace, Ready};
use crate::storage::error::{StorageError, size};
use std::any::Any;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
#[cfg(feature = "internals")]
use std::time::Duration;
use target::NewFile;

/// An enabled controller without a namespace: [`DriveSpec::open_controller`](crate::storage::DriveSpec::open_controller).
pub struct OpenController {
    pub(in crate::storage) controller: Arc<Controller<Ready>>,
    /// The software device, if it is one. Declared after the controller, which must be disabled first.
    pub(in crate::storage) keeper: Option<Arc<dyn Any + Send + Sync>>,
}

#[cfg(feature = "internals")]
impl OpenController {
    /// Returns the controller.
    pub fn controller(&self) -> &Arc<Controller<Ready>> {
        &self.controller
    }

    /// Sets the deadline of one admin command, but to no less than the time in which the controller may become ready
    /// (CAP.TO).
    pub fn set_deadline(&self, deadline: Duration) {
        self.controller.give_commands(deadline);
    }
}

impl fmt::Debug for OpenController {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept = if self.keeper.is_some() { " in this process" } else { "" };
        write!(f, "OpenController({}{kept})", self.controller.name())
    }
}

/// An enabled controller and one of its namespaces.
///
/// # Examples
///
/// ```
/// use warpbell::storage::{Drive, OverwritePolicy};
///
/// // A software NVMe controller in memory, with a namespace of at least 1 MiB.
/// let drive = Drive::create("soft:mem", 1 << 20, &OverwritePolicy::none())?;
/// assert!(drive.bytes() >= 1 << 20);
/// assert_eq!(drive.namespace().block_bytes(), 512);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Drive {
    pub(in crate::storage) name: String,
    controller: Arc<Controller<Ready>>,
    namespace: Namespace,
    pub(in crate::storage) in_memory: bool,
    pub(in crate::storage) new: Option<NewFile>,
    /// The file that [`Drive::create`] prepared, by its current or future name.
    pub(in crate::storage) file: Option<PathBuf>,
    /// True if the overwrite policy names the device.
    pub(in crate::storage) consented: bool,
    /// The software device, if it is one. Declared after the controller, which must be disabled first.
    pub(in crate::storage) keeper: Option<Arc<dyn Any + Send + Sync>>,
}

impl Drive {
    /// Enables a controller that no driver uses yet. `nsid` chooses the namespace; the default is the first.
    ///
    /// # Errors
    /// [`StorageError::Nvme`] if the controller cannot be enabled, or has no such namespace; [`StorageError::Members`]
    /// if it has no namespace at all.
    pub fn attach(attachment: Attachment, nsid: Option<u32>) -> Result<Self, StorageError> {
        Self::on(Self::enable(attachment)?, nsid)
    }

    pub(in crate::storage) fn enable(attachment: Attachment) -> Result<Arc<Controller<Ready>>, StorageError> {
        Ok(Arc::new(Controller::new(attachment)?.enable().map_err(|(_, e)| e)?))
    }

    pub(in crate::storage) fn on(controller: Arc<Controller<Ready>>, nsid: Option<u32>) -> Result<Self, StorageError> {
        let nsid = match nsid {
            Some(n) => n,
            None => controller.namespaces()?.first().copied().ok_or_else(|| StorageError::Members {
                reason: format!("{} has no namespace; create one first (nvme create-ns)", controller.name()),
            })?,
        };
        let namespace = controller.namespace(nsid)?;
        let name = controller.name().to_owned();
        Ok(Self {
            name,
            controller,
            namespace,
            in_memory: false,
            new: None,
            file: None,
            consented: false,
            keeper: None,
        })
    }

    /// Checks the state of the controller by its registers.
    ///
    /// # Errors
    /// [`StorageError::Nvme`] if the controller is gone, has failed, or is no longer ready.
    pub fn check(&self) -> Result<(), StorageError> {
        Ok(self.controller().check()?)
    }

    /// Returns the device's name as given in its specification, or the controller's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name of the model of a drive whose timing the device has; `None` for a device with a time of its own.
    pub(in crate::storage) fn model(&self) -> Option<&str> {
        self.controller.port().model()
    }

    /// Returns the device's name, and the model if it has the timing of one.
    pub(in crate::storage) fn described(&self) -> String {
        match self.model() {
            Some(model) => format!("{} (model {model})", self.name),
            None => self.name.clone(),
        }
    }

    /// Returns the controller.
    pub fn controller(&self) -> &Arc<Controller<Ready>> {
        &self.controller
    }

    /// Returns the namespace.
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Returns the size of the namespace in bytes.
    pub fn bytes(&self) -> u64 {
        self.namespace.bytes()
    }

    /// Returns true if the drive's blocks are memory of this process.
    pub(in crate::storage) fn is_in_memory(&self) -> bool {
        self.in_memory
    }

    /// Returns the file that [`Drive::create`] prepared, if any.
    pub(in crate::storage) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Returns true if the overwrite policy given to [`Drive::create`] allows overwriting stored arrays.
    pub(in crate::storage) fn may_be_overwritten(&self) -> bool {
        self.consented
    }

    /// Gives a file that [`Drive::create`] made its final name. Without this call the file is removed with the drive.
    ///
    /// # Errors
    /// [`StorageError::File`] if a file of that name has appeared meanwhile, or the file system fails.
    pub fn keep(&mut self) -> Result<(), StorageError> {
        match self.new.take() {
            Some(new) => new.keep(),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Drive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}, blocks of {} bytes", self.name, size(self.bytes()), self.namespace.block_bytes())?;
        self.model().map_or(Ok(()), |model| write!(f, ", model {model}"))?;
        f.write_str(")")
    }
}

impl fmt::Debug for Drive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Drive({}, namespace {})", self.name, self.namespace.id())
    }
}
