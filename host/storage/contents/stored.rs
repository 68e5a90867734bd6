//! Arrays that the devices of a volume already hold, which a new store would overwrite.

use super::Contents;
use super::manifest::Manifest;
use crate::storage::error::{ManifestError, StorageError};
use std::path::PathBuf;

/// A device with stored arrays that no [`OverwritePolicy`](crate::storage::OverwritePolicy) allows to overwrite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The file, or the device as it was named.
    pub device: PathBuf,
    /// The arrays, or the error of a manifest that is damaged or of a later version.
    pub manifest: Result<Manifest, ManifestError>,
    /// True if the arrays are those of this volume, not of the device alone or of another volume that it was part of.
    pub of_volume: bool,
}

impl Contents {
    /// Returns the devices that hold stored arrays and may not be overwritten.
    pub(in crate::storage) fn stored(&self) -> Result<Vec<Stored>, StorageError> {
        let mut found = Vec::new();
        // The parts of a stripe are one volume only together.
        let whole = if self.disk.is_replicated() { None } else { self.find_content().ok().map(|c| c.block.manifest) };
        for (index, drive) in self.disk.drives.iter().enumerate() {
            let device = match &*drive.lock() {
                drive if drive.may_be_overwritten() => continue,
                drive => drive.file().map_or_else(|| drive.name().into(), PathBuf::from),
            };
            let head = self.head(index)?;
            let manifest = match (&whole, head.newest()) {
                (Some(whole), _) => Ok(whole.clone()),
                (None, Err(ManifestError::Absent)) => continue,
                (None, newest) => newest.map(|s| s.manifest.clone()),
            };
            let of_volume = self.disk.is_replicated() || whole.is_some();
            if manifest.as_ref().map_or(true, |m| !m.entries().is_empty()) {
                found.push(Stored { device, manifest, of_volume });
            }
        }
        Ok(found)
    }
}
