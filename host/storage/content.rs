//! Content of a volume as described by the superblocks of its drives: finding, publishing, and keeping it correct while
//! arrays change.
//!
//! New content becomes valid with the last superblock of a generation. The order is data, Flush, superblocks, Flush.
//! Until then the superblocks of the previous generation are intact in the other slot.
//!
//! Before the first write to stored arrays, the kernel or host thread that writes puts a mark on the medium. A flush
//! records in the manifest which arrays have changed since they were stored; their checksums are invalid from then on.
//! If a program ends between mark and flush, the mark remains. It tells interrupted arrays from damaged ones.

use super::StorageError;
use super::checksum::Checksum;
use super::manifest::{Entry, MANIFEST_BYTES, Manifest, ManifestError};
use super::page_checksums::{BYTES_AT_ONCE, NewTable, parts};
use super::stripe::Piece;
use super::superblock::{Head, Layout, MARK_AT, SLOTS, Superblock, mark};
use super::volume::Volume;

/// Content on which the superblocks agree.
#[derive(Clone, Debug)]
pub(super) struct Content {
    pub(super) block: Superblock,
    pub(super) slot: usize,
    /// The latest generation that is on any drive.
    pub(super) latest: u64,
    /// True if a program ended while it changed arrays.
    pub(super) interrupted: bool,
}

/// Returns true if the first write to these arrays has to be marked: some of them have checksums that hold.
fn needs_mark(block: &Superblock) -> bool {
    let is_checked = |e: &Entry| !e.changed || block.manifest.checksum_table().is_some();
    block.manifest.entries().iter().any(|e| is_checked(e) && e.count > 0)
}

impl Volume {
    /// Returns the layout of the data on the drives.
    pub(super) fn layout(&self) -> Layout {
        let stripe = &self.0.stripe;
        let is_striped = stripe.devices > 1 && !stripe.replicated;
        Layout {
            drives: stripe.devices as u32,
            chunk_bytes: if is_striped { stripe.chunk << self.block_shift() } else { 0 },
            replicated: stripe.replicated,
        }
    }

    /// Reads the first bytes of the drives in use. Skips a copy that cannot be read.
    fn heads(&self) -> Result<Vec<(usize, Head)>, StorageError> {
        let mut heads = Vec::new();
        for device in self.0.in_use()? {
            match self.head(device) {
                Ok(head) => heads.push((device, head)),
                Err(StorageError::Nvme(_)) if self.is_replicated() => {}
                Err(e) => return Err(e),
            }
        }
        Ok(heads)
    }

    /// Reads the first bytes of one drive.
    pub(super) fn head(&self, device: usize) -> Result<Head, StorageError> {
        let bytes = self.0.drives[device].lock().bytes();
        let mut head = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX).min(MANIFEST_BYTES)];
        self.with_queue(device, |queue, namespace| queue.read(namespace, 0, &mut head))?;
        Ok(Head::parse(&head))
    }

    /// Finds the content on which the drives agree. Leaves out copies that lack it.
    pub(super) fn find_content(&self) -> Result<Content, StorageError> {
        let heads = self.heads()?;
        let content = self.choose(&heads).map_err(|source| self.wrong_manifest(source))?;
        if self.is_replicated() {
            for (device, head) in &heads {
                let is_member = content.block.members >> device & 1 != 0 && head.newest().is_ok();
                if !is_member {
                    let reason = format!("it lacks generation {} of the data", content.block.generation);
                    self.0.leave_out(*device, reason, true)?;
                }
            }
        }
        Ok(content)
    }

    pub(super) fn wrong_manifest(&self, source: ManifestError) -> StorageError {
        StorageError::Manifest { device: self.name().to_owned(), source }
    }

    fn choose(&self, heads: &[(usize, Head)]) -> Result<Content, ManifestError> {
        let newest: Vec<_> = heads.iter().filter_map(|(d, h)| Some((*d, h.newest().ok()?))).collect();
        let first_error = || heads.iter().find_map(|(_, h)| h.newest().err()).unwrap_or(ManifestError::Absent);
        let Some(latest) = newest.iter().map(|(_, s)| s.generation).max() else { return Err(first_error()) };
        for (device, s) in &newest {
            self.check_layout(*device, s)?;
            if s.uuid != newest[0].1.uuid {
                return Err(ManifestError::Member { drive: self.0.names[*device].clone() });
            }
        }
        let chosen = if self.is_replicated() {
            heads.iter().flat_map(|(_, h)| h.whole()).find(|(_, s)| s.generation == latest)
        } else {
            // Every drive of a stripe must have this generation.
            let [(_, first), others @ ..] = heads else { return Err(ManifestError::Absent) };
            let has = |h: &Head, g: u64| h.whole().iter().any(|(_, s)| s.generation == g);
            first.whole().into_iter().find(|(_, s)| others.iter().all(|(_, h)| has(h, s.generation)))
        };
        let Some((slot, block)) = chosen else {
            let bad = heads.iter().find(|(_, h)| h.newest().is_err()).map_or(0, |(d, _)| *d);
            return Err(ManifestError::Member { drive: self.0.names[bad].clone() });
        };
        let interrupted = heads.iter().any(|(_, h)| h.is_marked(block));
        Ok(Content { block: block.clone(), slot, latest, interrupted })
    }

    fn check_layout(&self, device: usize, s: &Superblock) -> Result<(), ManifestError> {
        let layout = self.layout();
        if s.layout != layout {
            return Err(ManifestError::Layout { stored: s.layout.to_string(), asked: layout.to_string() });
        }
        if s.index as usize != device {
            let (name, of) = (&self.0.names[device], layout.drives);
            return Err(ManifestError::Layout {
                stored: format!("with {name} as drive {} of {of}", s.index.saturating_add(1)),
                asked: format!("with it as drive {}", device + 1),
            });
        }
        Ok(())
    }

    /// Returns the names and positions of the arrays that the volume holds, read from the superblocks of its drives.
    ///
    /// # Errors
    ///
    /// * [`StorageError::Manifest`] if nothing is stored there, or the manifest is damaged or of another version. Also if
    ///   the drives are not combined as when the data was stored.
    /// * [`StorageError::Nvme`] if a drive fails a read; [`StorageError::NoPath`] if running kernels have all queue
    ///   pairs of a controller, or the table of page checksums does not fit into memory.
    pub fn manifest(&self) -> Result<Manifest, StorageError> {
        Ok(self.current()?.block.manifest)
    }

    /// Finds the content and remembers it, so that later changes of it are recorded.
    pub(super) fn current(&self) -> Result<Content, StorageError> {
        let found = self.find_content()?;
        let fits = found.block.manifest.check_fits(self.bytes());
        fits.map_err(|source| self.wrong_manifest(source))?;
        let mut known = self.0.content.lock();
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
        let bytes = mark(block.uuid, block.generation, self.block_bytes());
        let at = (MARK_AT >> self.block_shift()) as u64;
        let stripe = &self.0.stripe;
        // The mark's place on the first drive, as a block of the volume.
        let row = if stripe.devices == 1 || stripe.replicated { 0 } else { at / stripe.chunk };
        let block = at + row * stripe.chunk * (stripe.devices - 1);
        if let Err(error) = self.0.arm(&bytes, block, pending) {
            // The content is correct. Without the mark, only arrays that a killed program was changing look damaged.
            tracing::warn!(volume = self.name(), %error, "stored arrays are not marked as changing; if a program is killed while it changes them, they look damaged");
            self.0.integrity.set_pending(false)?;
        }
        Ok(())
    }

    /// Writes the superblocks of new content, and flushes. The data must be on the medium already.
    fn write_superblocks(&self, next: &Superblock, slot: usize) -> Result<(), StorageError> {
        let lba = (SLOTS[slot] >> self.block_shift()) as u64;
        let write = |device: usize| {
            let bytes = Superblock { index: device as u32, ..next.clone() }.to_bytes();
            self.with_queue(device, |q, ns| q.write(ns, lba, &bytes))
        };
        self.on_each("write", lba, write)?;
        self.flush_devices()
    }

    /// Runs `work` for every drive. On a replicated volume, copies that fail are left out.
    pub(super) fn on_each(
        &self,
        what: &'static str,
        lba: u64,
        work: impl Fn(usize) -> Result<(), StorageError> + Sync,
    ) -> Result<(), StorageError> {
        if self.is_replicated() {
            return self.on_copies(what, &Piece { device: 0, lba, at: 0, blocks: 1 }, self.0.in_use()?, work);
        }
        (0..self.0.drives.len()).try_for_each(work)
    }

    /// Publishes new content, whose data was written: flushes the data, then writes the superblocks.
    pub(super) fn publish(&self, mut next: Superblock, slot: usize) -> Result<(), StorageError> {
        self.flush_devices()?;
        next.members = self.0.in_use()?.iter().fold(0, |all, device| all | 1 << device);
        self.write_superblocks(&next, slot)?;
        let mut known = self.0.content.lock();
        self.arm(&next)?;
        *known = Some(Content { latest: next.generation, block: next, slot, interrupted: false });
        Ok(())
    }

    /// Erases the content, in memory and on the drives.
    pub(super) fn erase_content(&self) -> Result<(), StorageError> {
        *self.0.content.lock() = None;
        self.0.integrity.set_pending(false)?;
        self.close_page_checksums()?;
        let erase = |device: usize| {
            let bytes = self.0.drives[device].lock().bytes().min(MANIFEST_BYTES as u64);
            self.with_queue(device, |q, ns| q.write(ns, 0, &vec![0; bytes as usize]))
        };
        self.on_each("write", 0, erase)?;
        self.flush_devices()
    }

    /// Records in the manifest which arrays have changed, and which copies are left out. A flush calls this after the
    /// data.
    pub(super) fn record_changes(&self) -> Result<(), StorageError> {
        let mut known = self.0.content.lock();
        let Some(content) = known.as_mut() else { return Ok(()) };
        let mut next = Superblock { generation: content.latest + 1, ..content.block.clone() };
        let changed = self.0.integrity.changed()?;
        let mut has_new = next.manifest.set_changed(|e| self.is_touched(e, &changed));
        // A write to arrays that are recorded as changed has put a mark, too. It would outlast this program.
        has_new |= !content.interrupted && needs_mark(&content.block) && !self.0.integrity.is_pending()?;
        if next.manifest.checksum_table().is_some()
            && !self.0.integrity.is_pending()?
            && changed.iter().any(|w| *w != 0)
        {
            // A mark must precede later writes again, since the table that is written here does not cover them.
            self.arm(&next)?;
            if self.has_page_checksums() {
                if let Some(table) = self.page_checksums(content)? {
                    self.put_table(&table)?;
                }
                has_new = true;
            } else if !content.interrupted {
                has_new |= next.manifest.drop_page_checksums();
            }
        }
        next.members = self.0.in_use()?.iter().fold(0, |all, device| all | 1 << device);
        if !has_new && next.members == content.block.members {
            return Ok(());
        }
        if content.interrupted {
            // The next generation is marked, too, so that interrupted arrays stay known as such.
            self.write_mark(&next)?;
        }
        let slot = 1 - content.slot;
        self.write_superblocks(&next, slot)?;
        self.arm(&next)?;
        *content = Content { latest: next.generation, block: next, slot, interrupted: content.interrupted };
        Ok(())
    }

    fn write_mark(&self, block: &Superblock) -> Result<(), StorageError> {
        let bytes = mark(block.uuid, block.generation, self.block_bytes());
        let lba = (MARK_AT >> self.block_shift()) as u64;
        self.on_each("write", lba, |device| self.with_queue(device, |q, ns| q.write(ns, lba, &bytes)))?;
        self.flush_devices()
    }

    pub(super) fn is_touched(&self, e: &Entry, changed: &[u64]) -> bool {
        let shift = self.block_shift();
        e.bytes() > 0 && self.0.integrity.is_touched(changed, e.offset >> shift, (e.end() - 1) >> shift)
    }

    /// Records that the host is about to write to blocks, and writes the mark if it is pending.
    pub(super) fn announce(&self, first: u64, blocks: u64) -> Result<(), StorageError> {
        if blocks == 0 {
            return Ok(());
        }
        self.0.integrity.touch(first, first + blocks - 1);
        self.forget_checksums(first, blocks)?;
        if self.0.integrity.is_pending()? {
            let known = self.0.content.lock();
            if let Some(content) = known.as_ref() {
                self.write_mark(&content.block)?;
                self.0.integrity.set_pending(false)?;
            }
        }
        Ok(())
    }

    /// Compares the checksum of data that was read with the manifest. An array that was changed since it was stored is
    /// not checked.
    pub(super) fn check_data(&self, content: &Content, entry: &Entry, computed: u64) -> Result<(), StorageError> {
        if entry.changed || computed == entry.checksum || self.is_touched(entry, &self.0.integrity.changed()?) {
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
    ///
    /// # Errors
    ///
    /// [`StorageError::NoPath`] while kernels run, since they could change the arrays; [`StorageError::Manifest`] as
    /// for [`Volume::manifest`]; otherwise as for [`Volume::flush`].
    pub fn accept_changes(&self) -> Result<Manifest, StorageError> {
        if !self.0.engine.is_idle() {
            let reason = "kernels run, which could change the arrays; finish the run first".to_owned();
            return Err(StorageError::NoPath {
                what: "checksums".to_owned(),
                device: self.name().to_owned(),
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
            }
            self.publish(next.clone(), 1 - content.slot)?;
            self.0.integrity.clear_changed()?;
            if let Some(table) = &table {
                self.use_page_checksums(table)?;
            }
        }
        Ok(next.manifest)
    }

    /// Reads a whole array and returns its checksum. Stores the page checksums of its units in `table`.
    fn checksum_of(&self, entry: &Entry, mut table: Option<&mut NewTable>) -> Result<u64, StorageError> {
        let (mut sum, mut buffer) = (Checksum::default(), vec![0; BYTES_AT_ONCE]);
        for part in parts(entry) {
            let data = &mut buffer[..part.whole];
            self.read_bytes(part.offset, data)?;
            sum.update(&data[..part.bytes]);
            if let Some(table) = table.as_deref_mut() {
                table.take(part.offset, data);
            }
        }
        Ok(sum.finish())
    }
}
