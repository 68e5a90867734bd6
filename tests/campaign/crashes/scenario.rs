//! Steps of the campaign on a volume, with the states that may be found afterwards.

use super::image::Progress;
use super::recorder::Log;
use crate::random::Random;
use std::collections::BTreeMap;
use warpbell::storage::{ManifestError, StorageError, Volume};

/// Steps on a volume. Each is announced before it begins, and when it is acknowledged.
pub(super) trait Scenario: Send + Sync {
    /// Stores what is there before the first step.
    fn prepare(&mut self, v: &Volume) -> Result<(), String>;

    /// Makes the steps.
    fn run(&mut self, v: &Volume, log: &Log) -> Result<(), String>;

    /// Checks what is found after a loss of power. Returns the class of what is found.
    fn check(&self, v: &Volume, at: Progress) -> Result<&'static str, String>;

    /// Returns further steps, which begin with what is there.
    fn follow_up(&self, v: &Volume, random: &mut Random) -> Result<Box<dyn Scenario>, String>;

    /// Returns true if the user has to allow the steps to overwrite what is there.
    fn overwrites(&self) -> bool {
        false
    }

    /// Changes the files of devices between preparation and steps.
    fn disturb(&self, _files: &mut [Vec<u8>]) {}
}

/// Names and bytes of all arrays.
pub(super) type Snapshot = BTreeMap<String, Vec<u8>>;

/// Reads all arrays of a volume, each of which is compared with its checksum; `None` if nothing is stored there.
pub(super) fn snapshot(v: &Volume) -> Result<Option<Snapshot>, StorageError> {
    let manifest = match v.manifest() {
        Err(StorageError::Manifest { source: ManifestError::Absent, .. }) => return Ok(None),
        other => other?,
    };
    let read = |e: &warpbell::storage::Entry| {
        let mut bytes = vec![0; e.bytes() as usize];
        v.read_array_bytes(&e.name, e.element_type, &mut bytes)?;
        Ok((e.name.clone(), bytes))
    };
    manifest.entries().iter().map(read).collect::<Result<Snapshot, _>>().map(Some)
}

/// Repairs the volume. All of it must be intact then, on all copies.
pub(super) fn repair(v: &Volume) -> Result<(), String> {
    match v.verify(true) {
        Err(StorageError::Manifest { source: ManifestError::Absent, .. }) => return Ok(()),
        Err(e) => return Err(format!("repair: {e}")),
        Ok(found) if !found.is_intact() => return Err(format!("not repaired: {found:?}")),
        Ok(_) => {}
    }
    let lost = v.redundancy().map_err(|e| e.to_string())?.lost;
    if lost.is_empty() { Ok(()) } else { Err(format!("copies are left out after a repair: {lost:?}")) }
}

/// Returns values that depend on a seed alone.
pub(super) fn values(seed: u64, count: u64) -> Vec<u64> {
    (0..count).map(|i| (seed ^ i).wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect()
}
