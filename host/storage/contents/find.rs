//! Finding the content of a disk on which the superblocks of its drives agree.

use super::manifest::Manifest;
use super::newest::{Doubt, ReadHead, newest};
use super::superblock::{Head, Layout, Superblock};
use super::{Content, Contents};
use crate::nvme::NvmeError;
use crate::storage::error::{ManifestError, StorageError};
use crate::storage::format::MANIFEST_BYTES;

/// Reads of a drive's first bytes before its error, or its damage, counts.
const HEAD_READS: usize = 3;

impl Contents {
    /// Returns the layout of the data on the drives.
    pub(in crate::storage) fn layout(&self) -> Layout {
        let stripe = &self.disk.stripe;
        let is_striped = stripe.devices > 1 && !stripe.replicated;
        Layout {
            drives: stripe.devices as u32,
            chunk_bytes: if is_striped { stripe.chunk << self.disk.block_shift() } else { 0 },
            replicated: stripe.replicated,
        }
    }

    /// Reads the first bytes of one drive. Reads them again if that fails, or if they are damaged, since either may pass.
    pub(in crate::storage) fn head(&self, device: usize) -> Result<Head, StorageError> {
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
    pub(in crate::storage) fn find_content(&self) -> Result<Content, StorageError> {
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

    pub(in crate::storage) fn wrong_manifest(&self, source: ManifestError) -> StorageError {
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
    pub(in crate::storage) fn manifest(&self) -> Result<Manifest, StorageError> {
        Ok(self.current()?.block.manifest)
    }

    /// Finds the content and remembers it, so that later changes of it are recorded.
    pub(in crate::storage) fn current(&self) -> Result<Content, StorageError> {
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
}
