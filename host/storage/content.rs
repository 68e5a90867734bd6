//! Content of a volume as described by the superblocks of its drives: finding, publishing, and keeping it correct while
//! arrays change.
//!
//! New content becomes valid with the last superblock of a generation. The order is data, Flush, superblocks, Flush,
//! commit. Until then the superblocks of the previous generation are intact in the other slot.
//!
//! A superblock names the copies that hold its content, its members. If one of them fails while superblocks are
//! written, another generation without it follows at once.
//!
//! Before the first write to stored arrays, the kernel or host thread that writes puts a mark on the medium. A flush
//! records in the manifest which arrays have changed since they were stored; their checksums are invalid from then on.
//! If a program ends between mark and flush, the mark remains. It tells interrupted arrays from damaged ones.

use super::StorageError;
use super::checksum::Checksum;
use super::contents::Contents;
use super::manifest::{Entry, MANIFEST_BYTES, Manifest, ManifestError};
use super::newest::{Doubt, ReadHead, newest};
use super::page_checksums::{BYTES_AT_ONCE, NewTable, parts};
use super::superblock::{COMMIT_AT, Head, Layout, MARK_AT, SLOTS, Superblock, commit, mark};
use crate::nvme::NvmeError;

/// Reads of a drive's first bytes before its error, or its damage, counts.
const HEAD_READS: usize = 3;

/// Content on which the superblocks agree.
#[derive(Clone, Debug)]
pub(super) struct Content {
    pub(super) block: Superblock,
    pub(super) slot: usize,
    /// The latest generation that is on any drive.
    pub(super) latest: u64,
    /// True if a program ended while it changed arrays.
    pub(super) interrupted: bool,
    /// True if a copy that holds the content lacks its superblock or its commit.
    pub(super) is_behind: bool,
}

/// Returns true if the first write to these arrays has to be marked: some of them have checksums that hold.
fn needs_mark(block: &Superblock) -> bool {
    let is_checked = |e: &Entry| !e.changed || block.manifest.checksum_table().is_some();
    block.manifest.entries().iter().any(|e| is_checked(e) && e.count > 0)
}

impl Contents {
    /// Returns the layout of the data on the drives.
    pub(super) fn layout(&self) -> Layout {
        let stripe = &self.disk.stripe;
        let is_striped = stripe.devices > 1 && !stripe.replicated;
        Layout {
            drives: stripe.devices as u32,
            chunk_bytes: if is_striped { stripe.chunk << self.disk.block_shift() } else { 0 },
            replicated: stripe.replicated,
        }
    }

    /// Reads the first bytes of one drive. Reads them again if that fails, or if they are damaged, since either may pass.
    pub(super) fn head(&self, device: usize) -> Result<Head, StorageError> {
        let mut best = self.head_once(device);
        for _ in 1..HEAD_READS {
            match &best {
                Ok(head) if !head.is_clean() => {}
                Err(StorageError::Nvme(NvmeError::Command { .. })) => {}
                _ => break,
            }
            let again = self.head_once(device);
            let rank =
                |h: &Result<Head, _>| h.as_ref().ok().map(|h| (h.newest().ok().map(|s| s.generation), h.is_clean()));
            if rank(&again) > rank(&best) {
                best = again;
            }
        }
        best
    }

    fn head_once(&self, device: usize) -> Result<Head, StorageError> {
        let bytes = self.disk.drives[device].lock().bytes();
        let mut head = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX).min(MANIFEST_BYTES)];
        self.disk.with_queue(device, |queue, namespace| queue.read(namespace, 0, &mut head))?;
        Ok(Head::parse(&head))
    }

    /// Finds the content on which the drives agree. Leaves out copies that lack it, and copies that cannot be read if
    /// the content of the others is known to be the newest.
    pub(super) fn find_content(&self) -> Result<Content, StorageError> {
        let mut found = if self.disk.is_replicated() {
            self.find_newest()?
        } else {
            let heads = (0..self.disk.drives.len()).map(|device| self.head(device)).collect::<Result<Vec<_>, _>>()?;
            self.find_common(&heads).map_err(|source| self.wrong_manifest(source))?
        };
        // A generation whose superblocks could not be written may be on a drive that is not read any more.
        let known = self.content.lock();
        if let Some(known) = known.as_ref().filter(|k| k.block.uuid == found.block.uuid) {
            found.latest = found.latest.max(known.latest);
        }
        Ok(found)
    }

    /// Finds the newest content of a replicated volume.
    fn find_newest(&self) -> Result<Content, StorageError> {
        let used = self.disk.in_use()?;
        let mut heads: Vec<ReadHead> = Vec::with_capacity(self.disk.drives.len());
        for device in 0..self.disk.drives.len() {
            let head = if used.contains(&device) { Some(self.head(device)) } else { None };
            heads.push(match head {
                None => Err("it is left out".to_owned()),
                Some(Ok(head)) => Ok(head),
                Some(Err(StorageError::Nvme(e))) => Err(e.to_string()),
                Some(Err(e)) => return Err(e),
            });
        }
        for (device, head) in heads.iter().enumerate() {
            if let Some((_, block)) = head.as_ref().ok().and_then(|h| h.whole().first().copied()) {
                self.check_layout(device, block).map_err(|source| self.wrong_manifest(source))?;
            }
        }
        let known = *self.known.lock();
        let found = newest(&heads, &self.disk.names, known).map_err(|doubt| self.doubtful(doubt))?;
        let interrupted = (0..heads.len()).filter(|d| !found.outdated.iter().any(|(o, _)| o == d));
        let interrupted = interrupted.filter_map(|d| heads[d].as_ref().ok()).any(|h| h.is_marked(found.block));
        *self.known.lock() = Some((found.block.uuid, found.block.generation));
        for (device, reason) in found.outdated.into_iter().filter(|(d, _)| used.contains(d)) {
            self.disk.leave_out(device, reason, true)?;
        }
        let (block, slot, is_behind) = (found.block.clone(), found.slot, found.is_behind);
        Ok(Content { latest: block.generation, block, slot, interrupted, is_behind })
    }

    fn doubtful(&self, doubt: Doubt) -> StorageError {
        let name = |device: usize| self.disk.names[device].clone();
        match doubt {
            Doubt::Manifest(source) => self.wrong_manifest(source),
            Doubt::Unread { copies, newest } => {
                let (copies, errors) = copies.into_iter().map(|(device, e)| (name(device), e)).unzip();
                let newest = newest.map(|(device, generation)| (name(device), generation));
                StorageError::Unread { device: self.disk.name().to_owned(), copies, errors, newest }
            }
        }
    }

    pub(super) fn wrong_manifest(&self, source: ManifestError) -> StorageError {
        StorageError::Manifest { device: self.disk.name().to_owned(), source }
    }

    /// Finds the newest content that every drive of a stripe has.
    fn find_common(&self, heads: &[Head]) -> Result<Content, ManifestError> {
        let newest: Vec<_> = heads.iter().enumerate().filter_map(|(d, h)| Some((d, h.whole().first()?.1))).collect();
        let first_error = || heads.iter().find_map(|h| h.newest().err()).unwrap_or(ManifestError::Absent);
        let Some(latest) = newest.iter().map(|(_, s)| s.generation).max() else { return Err(first_error()) };
        for (device, s) in &newest {
            self.check_layout(*device, s)?;
            if s.uuid != newest[0].1.uuid {
                return Err(ManifestError::Member { drive: self.disk.names[*device].clone() });
            }
        }
        let [first, others @ ..] = heads else { return Err(ManifestError::Absent) };
        let has = |h: &Head, g: u64| h.whole().iter().any(|(_, s)| s.generation == g);
        let chosen = first.whole().into_iter().find(|(_, s)| others.iter().all(|h| has(h, s.generation)));
        let Some((slot, block)) = chosen else {
            let bad = heads.iter().position(|h| h.newest().is_err()).unwrap_or(0);
            return Err(ManifestError::Member { drive: self.disk.names[bad].clone() });
        };
        // A drive knows that all had a later generation, which one of them has no more.
        let known = self.content.lock().as_ref().map(|k| (k.block.uuid, k.block.generation));
        let known = known.filter(|(uuid, _)| *uuid == block.uuid).map(|(_, generation)| generation);
        let committed = heads.iter().filter_map(|h| h.committed(block.uuid)).chain(known).max();
        if let Some(generation) = committed.filter(|g| *g > block.generation) {
            return Err(ManifestError::Lost { generation, found: block.generation });
        }
        let interrupted = heads.iter().any(|h| h.is_marked(block));
        Ok(Content { block: block.clone(), slot, latest, interrupted, is_behind: false })
    }

    fn check_layout(&self, device: usize, s: &Superblock) -> Result<(), ManifestError> {
        let layout = self.layout();
        if s.layout != layout {
            return Err(ManifestError::Layout { stored: s.layout.to_string(), asked: layout.to_string() });
        }
        if s.index as usize != device {
            let (name, of) = (&self.disk.names[device], layout.drives);
            return Err(ManifestError::Layout {
                stored: format!("with {name} as drive {} of {of}", s.index.saturating_add(1)),
                asked: format!("with it as drive {}", device + 1),
            });
        }
        Ok(())
    }

    /// Returns the names and positions of the arrays that the volume holds, read from the superblocks of its drives.
    pub(super) fn manifest(&self) -> Result<Manifest, StorageError> {
        Ok(self.current()?.block.manifest)
    }

    /// Finds the content and remembers it, so that later changes of it are recorded.
    pub(super) fn current(&self) -> Result<Content, StorageError> {
        let found = self.find_content()?;
        let fits = found.block.manifest.check_fits(self.disk.bytes());
        fits.map_err(|source| self.wrong_manifest(source))?;
        let mut known = self.content.lock();
        let is_new = known
            .as_ref()
            .is_none_or(|k| (k.block.uuid, k.block.generation) != (found.block.uuid, found.block.generation));
        if is_new {
            self.open_page_checksums(&found)?;
            self.arm(&found.block)?;
            *known = Some(found.clone());
        }
        Ok(found)
    }

    /// Arranges that a mark of this generation precedes the next write to the volume.
    fn arm(&self, block: &Superblock) -> Result<(), StorageError> {
        let pending = needs_mark(block);
        let bytes = mark(block.uuid, block.generation, self.disk.block_bytes());
        let at = (MARK_AT >> self.disk.block_shift()) as u64;
        let stripe = &self.disk.stripe;
        // The mark's place on the first drive, as a block of the volume.
        let row = if stripe.devices == 1 || stripe.replicated { 0 } else { at / stripe.chunk };
        let block = at + row * stripe.chunk * (stripe.devices - 1);
        if let Err(error) = self.disk.arm(&bytes, block, pending) {
            // The content is correct. Without the mark, only arrays that a killed program was changing look damaged.
            tracing::warn!(volume = self.disk.name(), %error, "stored arrays are not marked as changing; if a program is killed while it changes them, they look damaged");
            self.disk.integrity.set_pending(false)?;
        }
        Ok(())
    }

    /// Writes the superblocks of new content to its members, and flushes. The data must be on the medium already. While
    /// members fail, writes another generation without them. Returns the slot of the last one.
    fn write_superblocks(
        &self,
        next: &mut Superblock,
        mut slot: usize,
        interrupted: bool,
    ) -> Result<usize, StorageError> {
        loop {
            if interrupted {
                // The generation is marked, too, so that interrupted arrays stay known as such.
                self.write_mark(next)?;
            }
            let lba = (SLOTS[slot] >> self.disk.block_shift()) as u64;
            let write = |device: usize| {
                let bytes = Superblock { index: device as u32, ..next.clone() }.to_bytes();
                self.disk.with_queue(device, |q, ns| q.write(ns, lba, &bytes))
            };
            self.disk.on_each_of(self.disk.members(next.members), "write", lba, write)?;
            self.disk.flush_devices()?;
            let left = self.disk.written()? & next.members;
            if left == next.members {
                break;
            }
            next.members = left;
            next.generation += 1;
            slot = 1 - slot;
        }
        if self.disk.is_replicated() {
            *self.known.lock() = Some((next.uuid, next.generation));
            self.disk.set_missed(!next.members)?;
        }
        self.write_commit(next);
        Ok(slot)
    }

    /// Records on each drive that a generation is on the medium of all.
    fn write_commit(&self, block: &Superblock) {
        let bytes = commit(block.uuid, block.generation, self.disk.block_bytes());
        let lba = (COMMIT_AT >> self.disk.block_shift()) as u64;
        for device in self.disk.members(block.members) {
            if let Err(error) = self.disk.with_queue(device, |q, ns| q.write(ns, lba, &bytes)) {
                // The content is correct. The commit only tells later damage of its superblock from a write cut off.
                tracing::warn!(device = self.disk.names[device], %error, "a stored generation was not recorded as complete");
            }
        }
    }

    /// Publishes new content, whose data was written to all copies that are written to: flushes the data, then writes
    /// the superblocks.
    pub(super) fn publish(&self, next: Superblock, slot: usize) -> Result<(), StorageError> {
        self.publish_as(next, slot, false)
    }

    /// Publishes content as [`Contents::publish`] does, or content whose arrays stay interrupted.
    pub(super) fn publish_as(&self, mut next: Superblock, slot: usize, interrupted: bool) -> Result<(), StorageError> {
        self.disk.flush_devices()?;
        next.members = self.disk.written()?;
        let written = self.write_superblocks(&mut next, slot, interrupted);
        let mut known = self.content.lock();
        if let Some(known) = known.as_mut().filter(|k| k.block.uuid == next.uuid) {
            known.latest = known.latest.max(next.generation);
        }
        let slot = written?;
        self.arm(&next)?;
        *known = Some(Content { latest: next.generation, block: next, slot, interrupted, is_behind: false });
        Ok(())
    }

    /// Erases the content, in memory and on the drives.
    pub(super) fn erase_content(&self) -> Result<(), StorageError> {
        *self.content.lock() = None;
        *self.known.lock() = None;
        self.disk.integrity.set_pending(false)?;
        self.close_page_checksums()?;
        self.disk.on_each("write", 0, |device| self.erase_head(device))?;
        self.disk.flush_devices()
    }

    /// Writes zeros over the superblocks of one drive.
    pub(super) fn erase_head(&self, device: usize) -> Result<(), StorageError> {
        let bytes = self.disk.drives[device].lock().bytes().min(MANIFEST_BYTES as u64);
        self.disk.with_queue(device, |q, ns| q.write(ns, 0, &vec![0; bytes as usize]))
    }

    /// Records in the manifest which arrays have changed, and which copies are left out. A flush calls this after the
    /// data.
    pub(super) fn record_changes(&self) -> Result<(), StorageError> {
        let mut known = self.content.lock();
        let Some(content) = known.as_mut() else { return Ok(()) };
        let mut next = Superblock { generation: content.latest + 1, ..content.block.clone() };
        let changed = self.disk.integrity.changed()?;
        let mut has_new = next.manifest.set_changed(|e| self.is_touched(e, &changed));
        // A write to arrays that are recorded as changed has put a mark, too. It would outlast this program.
        has_new |= !content.interrupted && needs_mark(&content.block) && !self.disk.integrity.is_pending()?;
        if next.manifest.checksum_table().is_some()
            && !self.disk.integrity.is_pending()?
            && changed.iter().any(|w| *w != 0)
        {
            // A mark must precede later writes again, since the table that is written here does not cover them.
            self.arm(&next)?;
            if self.has_page_checksums() {
                if let Some(table) = self.page_checksums(content)? {
                    self.put_table(&table)?;
                    let extension = table.extension(&next.manifest);
                    next.manifest.set_extension(extension);
                }
                has_new = true;
            } else if !content.interrupted {
                has_new |= next.manifest.drop_page_checksums();
            }
        }
        // Copies that are written to and hold other content are no members.
        next.members = self.disk.used()? & content.block.members;
        let is_needed = has_new || next.members != content.block.members;
        if !is_needed && !content.is_behind {
            return Ok(());
        }
        let interrupted = content.interrupted;
        let written = self.write_superblocks(&mut next, 1 - content.slot, interrupted);
        content.latest = next.generation;
        let slot = match written {
            // Nothing has changed. The devices may be read-only.
            Err(error) if !is_needed => {
                tracing::warn!(volume = self.disk.name(), %error, "superblocks that a copy lacks were not written");
                return Ok(());
            }
            other => other?,
        };
        self.arm(&next)?;
        *content = Content { latest: next.generation, block: next, slot, interrupted, is_behind: false };
        Ok(())
    }

    fn write_mark(&self, block: &Superblock) -> Result<(), StorageError> {
        let bytes = mark(block.uuid, block.generation, self.disk.block_bytes());
        let lba = (MARK_AT >> self.disk.block_shift()) as u64;
        self.disk.on_each("write", lba, |device| self.disk.with_queue(device, |q, ns| q.write(ns, lba, &bytes)))?;
        self.disk.flush_devices()
    }

    pub(super) fn is_touched(&self, e: &Entry, changed: &[u64]) -> bool {
        let shift = self.disk.block_shift();
        e.bytes() > 0 && self.disk.integrity.is_touched(changed, e.offset >> shift, (e.end() - 1) >> shift)
    }

    /// Records that the host is about to write to blocks, and writes the mark if it is pending.
    pub(super) fn announce(&self, first: u64, blocks: u64) -> Result<(), StorageError> {
        if blocks == 0 {
            return Ok(());
        }
        self.disk.integrity.touch(first, first + blocks - 1);
        self.disk.page_checksums.forget(first, blocks)?;
        if self.disk.integrity.is_pending()? {
            let known = self.content.lock();
            if let Some(content) = known.as_ref() {
                self.write_mark(&content.block)?;
                self.disk.integrity.set_pending(false)?;
            }
        }
        Ok(())
    }

    /// Compares the checksum of data that was read with the manifest. An array that was changed since it was stored is
    /// not checked.
    pub(super) fn check_data(&self, content: &Content, entry: &Entry, computed: u64) -> Result<(), StorageError> {
        if entry.changed || computed == entry.checksum || self.is_touched(entry, &self.disk.integrity.changed()?) {
            return Ok(());
        }
        let (name, found) = (entry.name.clone(), entry.checksum);
        Err(self.wrong_manifest(if content.interrupted {
            ManifestError::Interrupted { name, found, computed }
        } else {
            ManifestError::Data { name, found, computed }
        }))
    }

    /// Accepts the arrays as they are. Computes the checksums of arrays that were changed since they were stored, or
    /// that a program was changing when it ended. Writes the checksums to the manifest. Reads these arrays completely.
    pub(super) fn accept_changes(&self) -> Result<Manifest, StorageError> {
        if !self.disk.engine.is_idle() {
            let reason = "kernels run, which could change the arrays; finish the run first".to_owned();
            return Err(StorageError::NoPath {
                what: "checksums".to_owned(),
                device: self.disk.name().to_owned(),
                reason,
                remedies: Vec::new(),
            });
        }
        self.flush()?;
        let content = self.current()?;
        let mut next = Superblock { generation: content.latest + 1, ..content.block.clone() };
        let mut table = self.page_checksums(&content)?;
        for (i, entry) in content.block.manifest.entries().iter().enumerate() {
            if entry.changed || content.interrupted {
                next.manifest.set_checksum(i, self.checksum_of(entry, table.as_mut())?);
            }
        }
        if next.manifest != content.block.manifest || content.interrupted {
            if let Some(table) = &table {
                self.put_table(table)?;
                let extension = table.extension(&next.manifest);
                next.manifest.set_extension(extension);
            }
            self.publish(next.clone(), 1 - content.slot)?;
            self.disk.integrity.clear_changed()?;
            if let Some(table) = &table {
                self.use_page_checksums(table)?;
            }
        }
        Ok(next.manifest)
    }

    /// Reads a whole array and returns its checksum. Stores the page checksums of its units in `table`.
    pub(super) fn checksum_of(&self, entry: &Entry, mut table: Option<&mut NewTable>) -> Result<u64, StorageError> {
        let (mut sum, mut buffer) = (Checksum::default(), vec![0; BYTES_AT_ONCE]);
        for part in parts(entry) {
            let data = &mut buffer[..part.whole];
            self.disk.read_bytes(part.offset, data)?;
            sum.update(&data[..part.bytes]);
            if let Some(table) = table.as_deref_mut() {
                table.take(part.offset, data);
            }
        }
        Ok(sum.finish())
    }
}
