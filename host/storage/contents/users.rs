//! Stored arrays whose data kernels move by name. They keep their place until that is over.

use super::Contents;
use super::manifest::{Entry, Manifest};
use crate::storage::error::StorageError;
use parking_lot::{Mutex, MutexGuard};
use std::fmt;
use std::sync::{Arc, Weak};

/// A stored array that something uses at its place, until the last clone of the `Arc` is dropped.
#[derive(Debug)]
pub(in crate::storage) struct ArrayUse {
    name: String,
    /// First byte in the volume, and the first one behind the array.
    place: (u64, u64),
}

/// Maker of uses, which looks from time to time whether they are over.
pub(in crate::storage) trait ArrayUser: Send + Sync {
    /// Drops uses that are over.
    fn release(&self);
}

type Uses = Vec<(Weak<ArrayUse>, Weak<dyn ArrayUser>)>;

/// Uses of arrays, and their makers.
#[derive(Default)]
pub(in crate::storage) struct ArrayUses(Mutex<Uses>);

/// Locked uses: none is added meanwhile.
pub(in crate::storage) type LockedUses<'a> = MutexGuard<'a, Uses>;

impl Contents {
    /// Locks the uses for new content, in which every array that is used keeps its place.
    ///
    /// # Errors
    /// [`StorageError::NoPath`] if an array is used that `next` does not have there.
    pub(in crate::storage) fn lock_uses(&self, next: &Manifest) -> Result<LockedUses<'_>, StorageError> {
        let users: Vec<_> = self.uses.0.lock().iter().filter_map(|(_, user)| user.upgrade()).collect();
        users.iter().for_each(|user| user.release());
        let mut all = self.uses.0.lock();
        all.retain(|(array, _)| array.strong_count() > 0);
        let used: Vec<Arc<ArrayUse>> = all.iter().filter_map(|(array, _)| array.upgrade()).collect();
        let is_there =
            |used: &ArrayUse| next.entries().iter().any(|e| e.name == used.name && (e.offset, e.end()) == used.place);
        match used.iter().find(|used| !is_there(used)) {
            None => Ok(all),
            Some(used) => Err(StorageError::NoPath {
                what: "another manifest".to_owned(),
                device: self.disk.name().to_owned(),
                reason: format!(
                    "a transfer moves data of array `{}`, which would lose its space; finish the transfer first, or open the volume again \
                     if a device did not reply",
                    used.name
                ),
                remedies: Vec::new(),
            }),
        }
    }

    /// Begins a use of an array: calls `begin` with its entry and the use, and fails as that does.
    ///
    /// # Errors
    /// [`StorageError::Manifest`] if there is no such array; as for [`Contents::manifest`], which is read if it is not known.
    pub(in crate::storage) fn use_array<T>(
        &self,
        name: &str,
        user: Weak<dyn ArrayUser>,
        begin: impl FnOnce(&Entry, Arc<ArrayUse>) -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        let mut all = self.uses.0.lock();
        if self.content.lock().is_none() {
            self.current()?;
        }
        let found = match self.content.lock().as_ref() {
            Some(content) => content.block.manifest.find(name).cloned(),
            None => Err(crate::storage::error::ManifestError::Absent),
        };
        let entry = found.map_err(|source| self.wrong_manifest(source))?;
        let used = Arc::new(ArrayUse { name: entry.name.clone(), place: (entry.offset, entry.end()) });
        let begun = begin(&entry, used.clone())?;
        all.retain(|(array, _)| array.strong_count() > 0);
        all.push((Arc::downgrade(&used), user));
        Ok(begun)
    }
}

impl fmt::Debug for ArrayUses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ArrayUses({})", self.0.lock().len())
    }
}
