//! Arrays that the devices of a volume hold already: what a new store would overwrite.

use super::StorageError;
use super::manifest::{MANIFEST_BYTES, Manifest, ManifestError};
use super::volume::{Volume, lock};
use std::path::PathBuf;

/// A device that holds stored arrays, and that nobody allowed to overwrite ([`Consent`](super::Consent)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The file, or the device as it was named.
    pub device: PathBuf,
    /// The arrays; an error for a manifest that is damaged or of a later version.
    pub manifest: Result<Manifest, ManifestError>,
    /// The arrays are those of this volume, not of the device alone or of another volume that it was part of.
    pub of_volume: bool,
}

impl Volume {
    /// Returns the devices that hold stored arrays and were not named to be overwritten.
    ///
    /// # Errors
    ///
    /// [`StorageError::Nvme`] if a device cannot be read.
    pub fn stored(&self) -> Result<Vec<Stored>, StorageError> {
        let mut found = Vec::new();
        let copies = self.is_replicated();
        for (index, drive) in self.0.drives.iter().enumerate() {
            let (device, bytes) = match &*lock(drive) {
                drive if drive.may_be_overwritten() => continue,
                drive => (drive.file().map_or_else(|| drive.name().into(), PathBuf::from), drive.bytes()),
            };
            let mut head = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX).min(MANIFEST_BYTES)];
            self.with_queue(index, |queue, namespace| queue.read(namespace, 0, &mut head))?;
            if !Manifest::is_ours(&head) {
                continue;
            }
            // A stripe's manifest begins on its first device, and may go on on the next.
            let of_stripe = if index == 0 && !copies { self.manifest().ok() } else { None };
            let of_volume = copies || of_stripe.is_some();
            let manifest = of_stripe.map_or_else(|| Manifest::parse(&head), Ok);
            if manifest.as_ref().map_or(true, |m| !m.entries().is_empty()) {
                found.push(Stored { device, manifest, of_volume });
            }
        }
        Ok(found)
    }
}
