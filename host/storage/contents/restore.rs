//! Repair of what [`Volume::verify`](crate::storage::Volume::verify) finds: damaged data of one copy, wrong page checksums, copies that were left out.
//!
//! The checksum of an array proves its data, whatever page checksums say. Nothing is written over data that is proven.
//! A copy that was left out gets all data and only then a superblock; until then it has none.

use super::checksum_table::TablePlace;
use super::manifest::Entry;
use super::page_checksums::{BYTES_AT_ONCE, NewTable, parts};
use super::superblock::{Head, Superblock, are_zeros};
use super::verify::{ArrayState, DamagedRange, Pass, Passes, Verification};
use super::{Content, Contents};
use crate::storage::checksum::Checksum;
use crate::storage::disk::UNIT;
use crate::storage::error::StorageError;
use crate::storage::format::MANIFEST_BYTES;
use std::collections::BTreeSet;
use xxhash_rust::xxh3::xxh3_64;

/// Page checksums that are wrong, or whose table is damaged.
#[derive(Debug, Default)]
pub(in crate::storage) struct WrongChecksums {
    units: BTreeSet<u64>,
    table: Option<TablePlace>,
}

impl WrongChecksums {
    pub(in crate::storage) fn count(&self) -> u64 {
        self.table.map_or(self.units.len() as u64, TablePlace::entries)
    }

    fn touches(&self, entry: &Entry) -> bool {
        let end = entry.end().div_ceil(UNIT as u64);
        self.units.range(entry.offset / UNIT as u64..end).next().is_some()
    }
}

impl Contents {
    /// Compares the table of page checksums with its own checksum, on each copy.
    pub(in crate::storage) fn verify_table(&self, content: &Content) -> Result<WrongChecksums, StorageError> {
        let manifest = &content.block.manifest;
        let place =
            manifest.checksum_table().filter(|_| !content.interrupted && self.use_page_checksums != Some(false));
        let Some(place) = place else { return Ok(WrongChecksums::default()) };
        let mut is_damaged = !self.has_page_checksums();
        if let Some(checksum) = manifest.table_checksum().filter(|_| !is_damaged) {
            let mut table = self.new_table(place)?;
            for copy in self.copies_in_use()? {
                is_damaged |= match self.read_table_from(&mut table, copy) {
                    Ok(()) => table.checksum(manifest) != checksum,
                    Err(StorageError::Nvme(_)) => true,
                    Err(e) => return Err(e),
                };
            }
        }
        Ok(WrongChecksums { table: is_damaged.then_some(place), ..WrongChecksums::default() })
    }

    /// Adds page checksums that contradict an array whose own checksum is right.
    pub(in crate::storage) fn wrong_checksums(passes: &Passes, wrong: &mut WrongChecksums) {
        for (pass, _) in passes.iter().filter(|(_, state)| *state == ArrayState::Intact) {
            let units = pass.damaged.iter().flat_map(|d| (d.offset..d.offset + d.bytes).step_by(UNIT));
            wrong.units.extend(units.map(|offset| offset / UNIT as u64));
        }
    }

    /// Reads all arrays, and repairs what can be repaired.
    pub(in crate::storage) fn restore(
        &self,
        content: &Content,
        mut wrong: WrongChecksums,
        found: &mut Verification,
    ) -> Result<(), StorageError> {
        // A repair could undo a concurrent write of the host.
        let alone = self.disk.without_writes();
        let mut back = self.coming_back(content)?;
        let receiving = self.disk.receive(&back)?;
        for entry in content.block.manifest.entries() {
            let mut copies = self.copies_in_use()?;
            copies.extend(back.iter().copied().map(Some));
            let mut passes = self.read_passes(content, entry, &copies, found)?;
            Self::wrong_checksums(&passes, &mut wrong);
            found.repaired_bytes += self.restore_array(content, entry, &mut passes, &mut back)?;
            passes.into_iter().for_each(|(pass, state)| self.conclude(entry, pass, state, found));
        }
        drop(alone);
        if found.repaired_bytes > 0 {
            self.disk.flush_devices()?;
        }
        found.wrong_checksums = wrong.count();
        let rebuilt = if found.wrong_checksums > 0 { self.rebuild(content, &wrong)? } else { None };
        if rebuilt.is_none() && back.is_empty() {
            return Ok(());
        }
        let mut next = Superblock { generation: content.latest + 1, ..content.block.clone() };
        let stored = if rebuilt.is_none() { self.stored_table(content)? } else { None };
        if let Some(table) = rebuilt.as_ref().or(stored.as_ref()) {
            self.put_table(table)?;
            let extension = table.extension(&next.manifest);
            next.manifest.set_extension(extension);
        }
        self.publish_as(next, 1 - content.slot, content.interrupted)?;
        if let Some(table) = &rebuilt {
            self.use_page_checksums(table)?;
            found.rebuilt_checksums = found.wrong_checksums;
            found.page_checksums = true;
        }
        let members = self.content.lock().as_ref().map_or(0, |c| c.block.members);
        let members = back.iter().fold(0, |all, device| all | 1 << device) & members;
        let restored = receiving.take_in(members)?;
        found.restored = restored.into_iter().map(|device| self.disk.names[device].clone()).collect();
        Ok(())
    }

    /// Returns the copies that are left out and can get all data again. Erases their superblocks: from now on they do
    /// not hold the generation that these describe.
    fn coming_back(&self, content: &Content) -> Result<Vec<usize>, StorageError> {
        if !self.disk.is_replicated() {
            return Ok(Vec::new());
        }
        let mut back = Vec::new();
        for device in self.disk.responding()? {
            let Ok(head) = self.head(device) else { continue };
            if head.latest(content.block.uuid).is_none() && !self.is_blank(device, &head) {
                let reason = "it holds other data, which is not overwritten".to_owned();
                self.disk.leave_out(device, reason, true)?;
                continue;
            }
            // Superblocks that cannot be written and read again would be of no use.
            if self.erase_head(device).is_ok() && self.head(device).is_ok_and(|h| h.is_zero()) {
                back.push(device);
            }
        }
        Ok(back)
    }

    /// Returns true if both ends of a device are zeros, as on a new one.
    fn is_blank(&self, device: usize, head: &Head) -> bool {
        let bytes = self.disk.drives[device].lock().bytes();
        let mut tail = vec![0; bytes.min(MANIFEST_BYTES as u64) as usize];
        let first = (bytes - tail.len() as u64) >> self.disk.block_shift();
        let read = self.disk.with_queue(device, |q, ns| q.read(ns, first, &mut tail));
        head.is_zero() && read.is_ok() && are_zeros(&tail)
    }

    /// Repairs one array on the copies in use, and writes it to the copies in `back`. Removes from `back` those that
    /// cannot get it. Returns the bytes written.
    fn restore_array(
        &self,
        content: &Content,
        entry: &Entry,
        passes: &mut Passes,
        back: &mut Vec<usize>,
    ) -> Result<u64, StorageError> {
        let mut written = 0;
        let is_back = |pass: &Pass, back: &[usize]| pass.copy.is_some_and(|c| back.contains(&c));
        let proven = passes.iter().find(|(_, s)| *s == ArrayState::Intact).and_then(|(p, _)| p.copy);
        if let Some(good) = proven {
            for (pass, state) in passes.iter_mut() {
                let Some(copy) = pass.copy.filter(|c| *c != good) else { continue };
                // Nothing is written over data that is right, even if what follows the array differs.
                if *state == ArrayState::Intact {
                    continue;
                }
                let (bytes, is_whole) = self.copy_array(entry, good, copy, true)?;
                written += bytes;
                match is_whole {
                    true => *state = ArrayState::Repaired,
                    false => back.retain(|b| *b != copy),
                }
            }
            return Ok(written);
        }
        let sources: Vec<usize> = passes.iter().filter_map(|(p, _)| p.copy).collect();
        let has_checksum = !entry.changed && !self.is_touched(entry, &self.disk.integrity.changed()?);
        let is_any_wrong = passes.iter().any(|(_, s)| matches!(s, ArrayState::Damaged | ArrayState::Interrupted));
        if has_checksum
            && is_any_wrong
            && sources.len() > 1
            && let Some(bytes) = self.assemble(entry, &sources, back)?
        {
            passes.iter_mut().for_each(|(_, state)| *state = ArrayState::Repaired);
            return Ok(bytes);
        }
        for (pass, state) in passes.iter_mut() {
            if let (Some(copy), ArrayState::Damaged, false) = (pass.copy, *state, is_back(pass, back)) {
                let (bytes, is_whole) = self.copy_damaged(&pass.damaged, copy)?;
                written += bytes;
                if is_whole {
                    *state = ArrayState::Repaired;
                }
            }
        }
        // Without a checksum, or if it is wrong because a program ended too early, copies are alike at best.
        let right = |p: &Pass, s: ArrayState| match s {
            ArrayState::Changed | ArrayState::Repaired => true,
            ArrayState::Interrupted => content.interrupted && p.damaged.is_empty(),
            _ => false,
        };
        let good = passes.iter().find(|(p, s)| !is_back(p, back) && right(p, *s)).and_then(|(p, _)| p.copy);
        for (pass, state) in passes.iter_mut() {
            let Some(copy) = pass.copy.filter(|c| back.contains(c)) else { continue };
            let (bytes, is_whole) = match good {
                Some(good) => self.copy_array(entry, good, copy, false)?,
                None => (0, false),
            };
            written += bytes;
            match is_whole {
                true => *state = ArrayState::Repaired,
                false => back.retain(|b| *b != copy),
            }
        }
        Ok(written)
    }

    /// Writes the units of an array that differ from copy `from` to copy `to`. Returns the bytes written, and true if
    /// `to` is right now. What is read from `from` must have the array's checksum if `is_proven`, and must read the same
    /// twice otherwise.
    fn copy_array(&self, entry: &Entry, from: usize, to: usize, is_proven: bool) -> Result<(u64, bool), StorageError> {
        let (mut good, mut bad, mut again) = (vec![0; BYTES_AT_ONCE], vec![0; BYTES_AT_ONCE], Vec::new());
        let (mut written, mut sum) = (0, Checksum::default());
        for part in parts(entry) {
            let (good, bad) = (&mut good[..part.whole], &mut bad[..part.whole]);
            self.read_from(Some(from), part.offset, good)?;
            sum.update(&good[..part.bytes]);
            if !is_proven {
                again.resize(part.whole, 0);
                self.read_from(Some(from), part.offset, &mut again)?;
                if again != *good {
                    return Ok((written, false));
                }
            }
            let is_readable = self.read_from(Some(to), part.offset, bad).is_ok();
            let units = good.chunks(UNIT).zip(bad.chunks(UNIT)).zip((part.offset..).step_by(UNIT));
            for ((unit, _), offset) in units.filter(|((good, bad), _)| !is_readable || good != bad) {
                if !self.disk.write_back(to, offset >> self.disk.block_shift(), unit)? {
                    return Ok((written, false));
                }
                written += UNIT as u64;
            }
        }
        Ok((written, !is_proven || sum.finish() == entry.checksum))
    }

    /// Puts an array together from copies of which none is right as a whole, and writes it to all if it then has its
    /// checksum. Returns the bytes written, or `None` if it has not.
    fn assemble(&self, entry: &Entry, copies: &[usize], back: &mut Vec<usize>) -> Result<Option<u64>, StorageError> {
        let (mut sum, mut chosen, mut written) = (Checksum::default(), Vec::new(), 0);
        let mut versions = vec![vec![0; UNIT]; copies.len()];
        for (offset, bytes) in units(entry) {
            let is_read = self.read_versions(copies, offset, &mut versions)?;
            let Some(best) = self.best_version(offset, &versions, &is_read)? else { return Ok(None) };
            sum.update(&versions[best][..bytes]);
            chosen.push((best, xxh3_64(&versions[best])));
        }
        if sum.finish() != entry.checksum {
            return Ok(None);
        }
        for ((offset, _), (best, hash)) in units(entry).zip(chosen) {
            let is_read = self.read_versions(copies, offset, &mut versions)?;
            if !is_read[best] || xxh3_64(&versions[best]) != hash {
                return Ok(None);
            }
            for (i, copy) in copies.iter().enumerate() {
                if is_read[i] && versions[i] == versions[best] {
                    continue;
                }
                match self.disk.write_back(*copy, offset >> self.disk.block_shift(), &versions[best])? {
                    true => written += UNIT as u64,
                    false => back.retain(|b| b != copy),
                }
            }
        }
        Ok(Some(written))
    }

    /// Reads a unit from each copy. Returns true for those that can be read.
    fn read_versions(&self, copies: &[usize], offset: u64, out: &mut [Vec<u8>]) -> Result<Vec<bool>, StorageError> {
        let read = copies.iter().zip(out).map(|(copy, unit)| match self.read_from(Some(*copy), offset, unit) {
            Ok(()) => Ok(true),
            Err(StorageError::Nvme(_)) => Ok(false),
            Err(e) => Err(e),
        });
        read.collect()
    }

    /// Returns the version of a unit that has its page checksum, or the only one that there is.
    fn best_version(&self, offset: u64, versions: &[Vec<u8>], is_read: &[bool]) -> Result<Option<usize>, StorageError> {
        let read: Vec<usize> = (0..versions.len()).filter(|i| is_read[*i]).collect();
        if self.disk.page_checksums.is_known(offset)? {
            for i in &read {
                if self.disk.page_checksums.wrong_units(offset, &versions[*i])?.is_empty() {
                    return Ok(Some(*i));
                }
            }
        }
        let first = read.first().copied();
        Ok(first.filter(|first| read.iter().all(|i| versions[*i] == versions[*first])))
    }

    /// Writes damaged units to copy `to`, from any copy in use that has their checksums. Returns the bytes written, and
    /// true if these are all units.
    fn copy_damaged(&self, damaged: &[DamagedRange], to: usize) -> Result<(u64, bool), StorageError> {
        let others: Vec<usize> = self.disk.in_use()?.into_iter().filter(|d| *d != to).collect();
        let mut data = vec![0; UNIT];
        let (mut written, mut all) = (0, self.has_page_checksums());
        for offset in damaged.iter().flat_map(|d| (d.offset..d.offset + d.bytes).step_by(UNIT)) {
            let is_known = self.disk.page_checksums.is_known(offset)?;
            let mut found = false;
            for from in others.iter().take_while(|_| is_known) {
                let read = self.read_from(Some(*from), offset, &mut data).is_ok();
                found = read && self.disk.page_checksums.wrong_units(offset, &data)?.is_empty();
                if found {
                    break;
                }
            }
            if found && self.disk.write_back(to, offset >> self.disk.block_shift(), &data)? {
                written += UNIT as u64;
            } else {
                all = false;
            }
        }
        Ok((written, all && !damaged.is_empty()))
    }

    /// Computes wrong page checksums again, from arrays that have their own checksum. Returns `None` where none has.
    fn rebuild(&self, content: &Content, wrong: &WrongChecksums) -> Result<Option<NewTable>, StorageError> {
        let Some(mut table) = self.page_checksums(content)? else { return Ok(None) };
        let is_new = !self.has_page_checksums();
        let changed = self.disk.integrity.changed()?;
        for entry in content.block.manifest.entries() {
            let is_proof = !entry.changed && !self.is_touched(entry, &changed);
            if is_proof
                && (is_new || wrong.touches(entry))
                && self.checksum_of(entry, Some(&mut table))? != entry.checksum
            {
                table.forget(entry);
            }
        }
        Ok(Some(table))
    }

    /// Returns the table of page checksums as the volume has it, for a copy that lacks it.
    fn stored_table(&self, content: &Content) -> Result<Option<NewTable>, StorageError> {
        match content.block.manifest.checksum_table() {
            Some(_) if self.has_page_checksums() => self.page_checksums(content),
            Some(place) => self.read_table(place, &content.block.manifest),
            None => Ok(None),
        }
    }
}

/// Returns the first byte of each unit of an array, with the number of bytes there that are the array's.
fn units(entry: &Entry) -> impl Iterator<Item = (u64, usize)> + use<> {
    let end = entry.end();
    (entry.offset..end).step_by(UNIT).map(move |offset| (offset, UNIT.min((end - offset) as usize)))
}
