//! Verification of stored arrays: compares them with their checksums, on every copy.

use super::StorageError;
use super::checksum::Checksum;
use super::content::Content;
use super::manifest::Entry;
use super::page_checksums::{BYTES_AT_ONCE, UNIT, parts};
use super::volume::Volume;
use crate::engine::EngineError;
use serde::Serialize;

/// Result of [`Volume::verify`].
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

/// State of an array, as found by [`Volume::verify`].
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
    /// Returns true if no array is damaged or was left interrupted. Changed arrays count as intact.
    pub fn is_intact(&self) -> bool {
        let is_right = |a: &CheckedArray| !matches!(a.state, ArrayState::Damaged | ArrayState::Interrupted);
        self.arrays.iter().all(is_right)
    }
}

/// State of reading one copy of one array.
struct Pass {
    copy: Option<usize>,
    sum: Checksum,
    damaged: Vec<DamagedRange>,
}

impl Volume {
    /// Reads all stored arrays, on every copy of a replicated volume, and compares them with their checksums. These are
    /// the arrays' own checksums, and page checksums where they were stored
    /// ([`VolumeBuilder::page_checksums`](super::VolumeBuilder::page_checksums)). With `repair`, damaged data of one
    /// copy is written again from a copy that has the right checksum. A copy that fails this write is left out.
    ///
    /// Call it after a flush. Writes of a cache that are not flushed yet look like damage.
    ///
    /// # Errors
    ///
    /// * [`StorageError::NoPath`] while kernels run.
    /// * [`StorageError::Manifest`] as for [`Volume::manifest`].
    /// * [`StorageError::Engine`] if the engine was cancelled.
    /// * [`StorageError::Nvme`] if a device fails a command. Failed reads of arrays are not errors; they are in the
    ///   result. Reads of a volume without copies that get no completion are errors.
    pub fn verify(&self, repair: bool) -> Result<Verification, StorageError> {
        if !self.engine().is_idle() {
            let reason = "kernels run, which could change the arrays; finish the run first".to_owned();
            return Err(StorageError::NoPath {
                what: "verification".to_owned(),
                device: self.name().to_owned(),
                reason,
                remedies: Vec::new(),
            });
        }
        // A repair could undo a concurrent write of the host.
        let _alone = repair.then(|| self.without_writes());
        let content = self.current()?;
        let mut found = Verification { page_checksums: self.has_page_checksums(), ..Verification::default() };
        for entry in content.block.manifest.entries() {
            self.verify_array(&content, entry, repair, &mut found)?;
        }
        if found.repaired_bytes > 0 {
            self.flush_devices()?;
        }
        Ok(found)
    }

    fn verify_array(
        &self,
        content: &Content,
        entry: &Entry,
        repair: bool,
        found: &mut Verification,
    ) -> Result<(), StorageError> {
        let copies: Vec<Option<usize>> =
            if self.is_replicated() { self.0.in_use()?.into_iter().map(Some).collect() } else { vec![None] };
        let mut passes: Vec<Pass> =
            copies.into_iter().map(|copy| Pass { copy, sum: Checksum::default(), damaged: Vec::new() }).collect();
        for pass in &mut passes {
            self.read_whole(entry, pass)?;
            found.bytes += entry.bytes();
        }
        let states: Vec<ArrayState> =
            passes.iter().map(|p| self.state_of(content, entry, p)).collect::<Result<_, _>>()?;
        let good = states.iter().position(|s| *s == ArrayState::Intact).and_then(|i| passes[i].copy);
        for (pass, mut state) in passes.into_iter().zip(states) {
            if let (true, Some(copy), ArrayState::Damaged | ArrayState::Interrupted) = (repair, pass.copy, state) {
                let (written, whole) = match good {
                    Some(good) => self.copy_array(entry, good, copy)?,
                    None => self.copy_damaged(&pass.damaged, copy)?,
                };
                found.repaired_bytes += written;
                if whole {
                    state = ArrayState::Repaired;
                }
            }
            let copy = pass.copy.map(|c| self.0.names[c].clone());
            found.arrays.push(CheckedArray { name: entry.name.clone(), bytes: entry.bytes(), copy, state });
            found.damaged.extend(pass.damaged);
        }
        Ok(())
    }

    fn state_of(&self, content: &Content, entry: &Entry, pass: &Pass) -> Result<ArrayState, StorageError> {
        Ok(match self.check_data(content, entry, pass.sum.finish()) {
            _ if !pass.damaged.is_empty() => ArrayState::Damaged,
            Ok(()) if pass.sum.finish() == entry.checksum => ArrayState::Intact,
            Ok(()) => ArrayState::Changed,
            Err(_) if content.interrupted => ArrayState::Interrupted,
            Err(StorageError::Manifest { .. }) => ArrayState::Damaged,
            Err(e) => return Err(e),
        })
    }

    /// Reads from one copy, or from the volume if `copy` is `None`.
    fn read_from(&self, copy: Option<usize>, offset: u64, out: &mut [u8]) -> Result<(), StorageError> {
        if self.engine().is_cancelled() {
            return Err(EngineError::Cancelled.into());
        }
        let first = offset >> self.block_shift();
        match copy {
            Some(device) => self.with_queue(device, |q, ns| q.read(ns, first, out)),
            None => self.read_blocks(first, out),
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
            for unit in self.wrong_units(part.offset, data)? {
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
            Some(device) => (device, offset >> self.block_shift()),
            None => self.0.stripe.locate(offset >> self.block_shift()),
        };
        let device = self.0.names[device].clone();
        if let Some(last) = pass.damaged.last_mut() {
            if offset < last.offset + last.bytes {
                // The unit could not be read, and is recorded already.
                return;
            }
            let follows = last.offset + last.bytes == offset && last.lba + (last.bytes >> self.block_shift()) == lba;
            if follows && last.device == device && last.error.is_some() == error.is_some() {
                last.bytes += UNIT as u64;
                return;
            }
        }
        pass.damaged.push(DamagedRange { array: entry.name.clone(), device, offset, bytes: UNIT as u64, lba, error });
    }

    /// Writes the units of an array that differ from copy `from` to copy `to`. Returns the bytes written, and true if
    /// no write failed.
    fn copy_array(&self, entry: &Entry, from: usize, to: usize) -> Result<(u64, bool), StorageError> {
        let (mut good, mut bad) = (vec![0; BYTES_AT_ONCE], vec![0; BYTES_AT_ONCE]);
        let mut written = 0;
        for part in parts(entry) {
            let (good, bad) = (&mut good[..part.whole], &mut bad[..part.whole]);
            self.read_from(Some(from), part.offset, good)?;
            let readable = self.read_from(Some(to), part.offset, bad).is_ok();
            let units = good.chunks(UNIT).zip(bad.chunks(UNIT)).zip((part.offset..).step_by(UNIT));
            for ((unit, _), offset) in units.filter(|((good, bad), _)| !readable || good != bad) {
                if !self.write_back(to, offset >> self.block_shift(), unit)? {
                    return Ok((written, false));
                }
                written += UNIT as u64;
            }
        }
        Ok((written, true))
    }

    /// Writes damaged units to copy `to`, from any copy that has their checksums. Returns the bytes written, and true
    /// if these are all units.
    fn copy_damaged(&self, damaged: &[DamagedRange], to: usize) -> Result<(u64, bool), StorageError> {
        let others: Vec<usize> = self.0.in_use()?.into_iter().filter(|d| *d != to).collect();
        let mut data = vec![0; UNIT];
        let (mut written, mut all) = (0, self.has_page_checksums());
        for offset in damaged.iter().flat_map(|d| (d.offset..d.offset + d.bytes).step_by(UNIT)) {
            let known = self.is_known(offset)?;
            let mut found = false;
            for from in others.iter().take_while(|_| known) {
                let read = self.read_from(Some(*from), offset, &mut data).is_ok();
                found = read && self.wrong_units(offset, &data)?.is_empty();
                if found {
                    break;
                }
            }
            if found && self.write_back(to, offset >> self.block_shift(), &data)? {
                written += UNIT as u64;
            } else {
                all = false;
            }
        }
        Ok((written, all && !damaged.is_empty()))
    }
}
