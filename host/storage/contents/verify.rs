//! Verification of stored arrays: compares them with their checksums, on every copy. `restore.rs` has the repair.

use super::manifest::Entry;
use super::page_checksums::{BYTES_AT_ONCE, parts};
use super::{Content, Contents};
use crate::engine::EngineError;
use crate::storage::checksum::Checksum;
use crate::storage::disk::UNIT;
use crate::storage::error::StorageError;
use serde::Serialize;

/// Result of [`Volume::verify`](crate::storage::Volume::verify).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Verification {
    /// True if the arrays have page checksums, which locate damage.
    pub page_checksums: bool,
    /// State of each array, for each copy of a replicated volume.
    pub arrays: Vec<CheckedArray>,
    /// Damaged ranges that were located, in the order of the arrays.
    pub damaged: Vec<DamagedRange>,
    /// Number of bytes read.
    pub bytes: u64,
    /// Number of bytes that were written to a copy from another one.
    pub repaired_bytes: u64,
    /// Number of page checksums that contradict data with the array's checksum; all of them if their table is damaged.
    pub wrong_checksums: u64,
    /// Number of these that were computed again from the data.
    pub rebuilt_checksums: u64,
    /// Names of the devices that were left out, and hold all data again.
    pub restored: Vec<String>,
}

/// Result for one array, or for one copy of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CheckedArray {
    /// Name of the array.
    pub name: String,
    /// Bytes of the array.
    pub bytes: u64,
    /// Name of the copy's device as given, if the volume is replicated.
    pub copy: Option<String>,
    /// State of the array.
    pub state: ArrayState,
}

/// State of an array, as found by [`Volume::verify`](crate::storage::Volume::verify).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ArrayState {
    /// The array has the checksum that was stored.
    Intact,
    /// The array was changed since it was stored, so its own checksum is invalid. Its known page checksums are correct.
    Changed,
    /// A program was changing the array and ended before its flush. The data differs from the stored data.
    Interrupted,
    /// The array does not have the checksum that was stored, or cannot be read.
    Damaged,
    /// The array was damaged, and was written again from another copy.
    Repaired,
}

/// A damaged range of bytes of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DamagedRange {
    /// Name of the array.
    pub array: String,
    /// Name of the device that holds the bytes, as given.
    pub device: String,
    /// First byte in the volume.
    pub offset: u64,
    /// Number of bytes: a multiple of 4096.
    pub bytes: u64,
    /// First logical block on the device.
    pub lba: u64,
    /// Error of the device, if the bytes could not be read.
    pub error: Option<String>,
}

impl Verification {
    /// Returns true if no array is damaged or was left interrupted, and no page checksum is wrong. Changed arrays count
    /// as intact.
    pub fn is_intact(&self) -> bool {
        let is_right = |a: &CheckedArray| !matches!(a.state, ArrayState::Damaged | ArrayState::Interrupted);
        self.arrays.iter().all(is_right) && self.wrong_checksums == self.rebuilt_checksums
    }
}

/// Result of reading one copy of one array.
pub(in crate::storage) struct Pass {
    pub(in crate::storage) copy: Option<usize>,
    sum: Checksum,
    /// Units that cannot be read, or contradict their page checksums.
    pub(in crate::storage) damaged: Vec<DamagedRange>,
}

/// Passes over one array, with the states that they found.
pub(in crate::storage) type Passes = Vec<(Pass, ArrayState)>;

impl Contents {
    /// Reads all stored arrays, on every copy of a replicated volume, and compares them with their checksums. These are
    /// the arrays' own checksums, and page checksums where they were stored
    /// ([`VolumeBuilder::page_checksums`](crate::storage::VolumeBuilder::page_checksums)). An array's own checksum decides: where
    /// it is right and a page checksum contradicts it, the page checksum is wrong.
    pub(in crate::storage) fn verify(&self, repair: bool) -> Result<Verification, StorageError> {
        if !self.disk.engine().is_idle() {
            let reason = "kernels run, which could change the arrays; finish the run first".to_owned();
            return Err(StorageError::NoPath {
                what: "verification".to_owned(),
                device: self.disk.name().to_owned(),
                reason,
                remedies: Vec::new(),
            });
        }
        let content = self.current()?;
        let mut found = Verification { page_checksums: self.has_page_checksums(), ..Verification::default() };
        let table = self.verify_table(&content)?;
        if repair {
            self.restore(&content, table, &mut found)?;
        } else {
            let mut wrong = table;
            for entry in content.block.manifest.entries() {
                let passes = self.read_passes(&content, entry, &self.copies_in_use()?, &mut found)?;
                Self::wrong_checksums(&passes, &mut wrong);
                passes.into_iter().for_each(|(pass, state)| self.conclude(entry, pass, state, &mut found));
            }
            found.wrong_checksums = wrong.count();
        }
        Ok(found)
    }

    /// Returns the copies in use; on a volume that is not replicated, the volume itself.
    pub(in crate::storage) fn copies_in_use(&self) -> Result<Vec<Option<usize>>, StorageError> {
        Ok(if self.disk.is_replicated() { self.disk.in_use()?.into_iter().map(Some).collect() } else { vec![None] })
    }

    /// Reads an array from each of these copies.
    pub(in crate::storage) fn read_passes(
        &self,
        content: &Content,
        entry: &Entry,
        copies: &[Option<usize>],
        found: &mut Verification,
    ) -> Result<Passes, StorageError> {
        let mut passes = Vec::with_capacity(copies.len());
        for copy in copies {
            let mut pass = Pass { copy: *copy, sum: Checksum::default(), damaged: Vec::new() };
            self.read_whole(entry, &mut pass)?;
            found.bytes += entry.bytes();
            let state = self.state_of(content, entry, &pass)?;
            passes.push((pass, state));
        }
        Ok(passes)
    }

    /// Adds the result of one pass.
    pub(in crate::storage) fn conclude(&self, entry: &Entry, pass: Pass, state: ArrayState, found: &mut Verification) {
        let copy = pass.copy.map(|c| self.disk.names[c].clone());
        found.arrays.push(CheckedArray { name: entry.name.clone(), bytes: entry.bytes(), copy, state });
        if state != ArrayState::Intact {
            found.damaged.extend(pass.damaged);
        }
    }

    fn state_of(&self, content: &Content, entry: &Entry, pass: &Pass) -> Result<ArrayState, StorageError> {
        let is_unread = pass.damaged.iter().any(|d| d.error.is_some());
        Ok(match self.check_data(content, entry, pass.sum.finish()) {
            _ if is_unread => ArrayState::Damaged,
            // Whatever page checksums say.
            Ok(()) if pass.sum.finish() == entry.checksum => ArrayState::Intact,
            Ok(()) if !pass.damaged.is_empty() => ArrayState::Damaged,
            Ok(()) => ArrayState::Changed,
            Err(_) if content.interrupted => ArrayState::Interrupted,
            Err(StorageError::Manifest { .. }) => ArrayState::Damaged,
            Err(e) => return Err(e),
        })
    }

    /// Reads from one copy, or from the volume if `copy` is `None`.
    pub(in crate::storage) fn read_from(
        &self,
        copy: Option<usize>,
        offset: u64,
        out: &mut [u8],
    ) -> Result<(), StorageError> {
        if self.disk.engine().is_cancelled() {
            return Err(EngineError::Cancelled.into());
        }
        let first = offset >> self.disk.block_shift();
        match copy {
            Some(device) => self.disk.with_queue(device, |q, ns| q.read(ns, first, out)),
            None => self.disk.read_blocks(first, out),
        }
    }

    /// Reads an array, computes its checksum, and records its damaged units.
    fn read_whole(&self, entry: &Entry, pass: &mut Pass) -> Result<(), StorageError> {
        let mut buffer = vec![0; BYTES_AT_ONCE];
        for part in parts(entry) {
            let data = &mut buffer[..part.whole];
            match self.read_from(pass.copy, part.offset, data) {
                Ok(()) => {}
                // Data that a device does not return is not damaged, and each further read would have to be waited for.
                Err(StorageError::Nvme(e)) if pass.copy.is_none() && e.is_without_completion() => return Err(e.into()),
                Err(StorageError::Nvme(_)) => self.read_by_units(entry, pass, part.offset, data)?,
                Err(e) => return Err(e),
            }
            pass.sum.update(&data[..part.bytes]);
            for unit in self.disk.page_checksums.wrong_units(part.offset, data)? {
                self.enter(entry, pass, unit * UNIT as u64, None);
            }
        }
        Ok(())
    }

    /// Reads unit by unit, to find those that the device cannot read.
    fn read_by_units(&self, entry: &Entry, pass: &mut Pass, at: u64, part: &mut [u8]) -> Result<(), StorageError> {
        for (unit, offset) in part.chunks_mut(UNIT).zip((at..).step_by(UNIT)) {
            match self.read_from(pass.copy, offset, unit) {
                Ok(()) => {}
                Err(StorageError::Nvme(e)) if pass.copy.is_none() && e.is_without_completion() => return Err(e.into()),
                Err(e @ StorageError::Nvme(_)) => {
                    unit.fill(0);
                    self.enter(entry, pass, offset, Some(e.to_string()));
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Records a damaged unit. Joins it with the previous one if both are neighbours on one device.
    fn enter(&self, entry: &Entry, pass: &mut Pass, offset: u64, error: Option<String>) {
        let (device, lba) = match pass.copy {
            Some(device) => (device, offset >> self.disk.block_shift()),
            None => self.disk.stripe.locate(offset >> self.disk.block_shift()),
        };
        let device = self.disk.names[device].clone();
        if let Some(last) = pass.damaged.last_mut() {
            if offset < last.offset + last.bytes {
                // The unit could not be read, and is recorded already.
                return;
            }
            let follows =
                last.offset + last.bytes == offset && last.lba + (last.bytes >> self.disk.block_shift()) == lba;
            if follows && last.device == device && last.error.is_some() == error.is_some() {
                last.bytes += UNIT as u64;
                return;
            }
        }
        pass.damaged.push(DamagedRange { array: entry.name.clone(), device, offset, bytes: UNIT as u64, lba, error });
    }
}
