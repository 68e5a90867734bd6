//! Storing arrays on a volume: planned first, then streamed, named in the manifest last.

use super::Contents;
use super::checksum_table::TablePlace;
use super::manifest::Manifest;
use super::plan::Plan;
use super::superblock::{Layout, Superblock};
use super::writer::{Filling, VolumeWriter};
use crate::storage::element::Element;
use crate::storage::error::{StorageError, size};
use crate::storage::format::MANIFEST_BYTES;

/// UUID, latest generation and slot of the content that new content follows.
type Predecessor = ([u8; 16], u64, usize);

impl Contents {
    /// Begins to store arrays. The new manifest is written when all arrays are complete. If both fit, the volume keeps
    /// its old content until then ([`VolumeWriter::keeps_old`]). Otherwise this call erases the old content. `what`
    /// names the data in errors, as in `the graph`.
    pub(in crate::storage) fn store(&self, mut plan: Plan, what: &str) -> Result<VolumeWriter<'_>, StorageError> {
        let manifest = |source| StorageError::Manifest { device: self.disk.name().to_owned(), source };
        let mut checked = Manifest::new(plan.entries.clone()).map_err(manifest)?;
        let layout = self.layout();
        let found = match self.find_content() {
            Ok(found) => Some(found),
            // There is nothing that could be kept.
            Err(StorageError::Manifest { .. }) => None,
            Err(_) if self.disk.drives.iter().all(|d| d.lock().may_be_overwritten()) => None,
            Err(e) => return Err(e),
        };
        let old = found.as_ref().filter(|c| c.block.manifest.check_fits(self.disk.bytes()).is_ok());
        let had_checksums = old.is_some_and(|c| c.block.manifest.checksum_table().is_some());
        plan.page_checksums = self.use_page_checksums.unwrap_or(plan.page_checksums || had_checksums);
        let needs = plan.end_from(layout.data_start());
        if needs > self.disk.bytes() {
            return Err(StorageError::Capacity {
                device: self.disk.name().to_owned(),
                holds: self.disk.bytes(),
                what: what.to_owned(),
                needs,
                next: format!("give a device or file of {} or more", size(needs)),
            });
        }
        let (first, keeps_old) = plan.place(layout, self.disk.bytes(), old.map(|c| &c.block.manifest));
        checked.move_by(first - MANIFEST_BYTES as u64).map_err(manifest)?;
        // The new data is complete, so copies that only lack old data may receive it.
        let receiving = self.disk.receive(&self.ready_to_receive()?)?;
        let mut found = found.map(|c| (c.block.uuid, c.latest, c.slot));
        if !keeps_old {
            // The old manifest must not describe data that is being overwritten.
            found = self.erase(found, layout)?;
        }
        let uuid = match found {
            Some((uuid, ..)) => uuid,
            None => crate::random::bytes().map_err(|source| StorageError::File {
                path: "the system's random numbers".into(),
                doing: "naming the volume",
                source,
            })?,
        };
        let generation = found.map_or(0, |(_, latest, _)| latest) + 1;
        let keeps_slot = keeps_old || self.disk.is_replicated();
        let slot = found.filter(|_| keeps_slot).map_or(0, |(.., slot)| 1 - slot);
        let arrays = checked.entries().iter().map(Filling::new).collect();
        let place = plan.page_checksums.then(|| TablePlace::behind(checked.arrays_end()));
        let checksums = place.map(|place| self.new_table(place)).transpose()?;
        let next = Superblock { uuid, generation, layout, index: 0, members: 0, manifest: checked };
        let receiving = Some(receiving);
        Ok(VolumeWriter { contents: self, arrays, checksums, next, slot, keeps_old, beside: None, receiving })
    }

    /// Returns the copies that are left out and can hold new content. Superblocks of a copy that cannot be read, or are
    /// damaged, are erased: an old one must not come back.
    fn ready_to_receive(&self) -> Result<Vec<usize>, StorageError> {
        let is_ready = |device: usize| {
            let is_whole = |v: &Self| v.head(device).is_ok_and(|h| h.is_zero() || h.newest().is_ok());
            is_whole(self) || (self.erase_head(device).is_ok() && is_whole(self))
        };
        Ok(self.disk.responding()?.into_iter().filter(|d| is_ready(*d)).collect())
    }

    /// Erases the content. Copies that are written to keep its UUID and a later generation without arrays, so that a copy
    /// which is left out stays outdated. Returns these and the slot.
    fn erase(&self, found: Option<Predecessor>, layout: Layout) -> Result<Option<Predecessor>, StorageError> {
        let Some((uuid, latest, slot)) = found.filter(|_| self.disk.is_replicated()) else {
            self.erase_content()?;
            return Ok(found);
        };
        {
            let _uses = self.lock_uses(&Manifest::default())?;
            *self.content.lock() = None;
        }
        self.disk.integrity.set_pending(false)?;
        self.close_page_checksums()?;
        let manifest = Manifest::default();
        let none = Superblock { uuid, generation: latest + 1, layout, index: 0, members: 0, manifest };
        self.publish(none, 1 - slot)?;
        let erased = self.content.lock().as_ref().map(|c| (c.block.uuid, c.latest, c.slot));
        Ok(erased)
    }

    /// Stores one array, in place of everything that the volume held.
    pub(in crate::storage) fn store_array<T: Element>(
        &self,
        name: &str,
        values: &[T],
    ) -> Result<Manifest, StorageError> {
        let plan = Plan::new().array::<T>(name, values.len() as u64);
        let mut writer = self.store(plan, &format!("array `{name}`"))?;
        writer.append(name, values)?;
        writer.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;
    use crate::storage::{ARRAY_ALIGN, Drive, OverwritePolicy, Volume};

    fn volume(specs: &[&str]) -> Volume {
        let drives = specs.iter().map(|s| Drive::open(s).unwrap());
        Volume::on(&Engine::cpu().unwrap(), drives).chunk(8192).build().unwrap()
    }

    #[test]
    fn arrays_come_back_by_name() {
        for specs in [&["soft:mem:8M"][..], &["soft:mem:4M,block=4096"; 3]] {
            let v = volume(specs);
            let edges: Vec<u32> = (0..700_001).map(|i| i * 7).collect();
            let ranks: Vec<f64> = (0..1000).map(f64::from).collect();
            let plan = Plan::new()
                .array::<f64>("ranks", 1000)
                .array::<u32>("edges", edges.len() as u64)
                .array::<u8>("none", 0);
            assert_eq!(plan.bytes() % ARRAY_ALIGN, 0);
            let mut w = v.store(plan, "the graph").unwrap();
            edges.chunks(99_991).for_each(|part| w.append("edges", part).unwrap());
            ranks.chunks(1).for_each(|part| w.append("ranks", part).unwrap());
            let made = w.finish().unwrap();
            assert_eq!(v.manifest().unwrap(), made);
            assert_eq!(v.read_array::<u32>("edges").unwrap(), edges);
            assert_eq!(v.read_array::<f64>("ranks").unwrap(), ranks);
            assert!(v.read_array::<u8>("none").unwrap().is_empty());
            assert!(v.read_array::<f32>("edges").unwrap_err().to_string().contains("u32, not f32"));
        }
    }

    #[test]
    fn damaged_data_is_named() {
        let v = volume(&["soft:mem:1M"]);
        let m = v.store_array("edges", &[1u32, 2, 3]).unwrap();
        // Changes the data without the volume's knowledge of the array.
        v.disk().put_blocks(m.entries()[0].offset >> v.block_shift(), &[9; 512]).unwrap();
        let text = v.read_array::<u32>("edges").unwrap_err().to_string();
        assert!(text.contains("`edges` is damaged"), "{text}");
    }

    #[test]
    fn what_is_not_complete_has_no_manifest() {
        let v = volume(&["soft:mem:1M"]);
        v.store_array("old", &[1u8]).unwrap();
        let mut w = v.store(Plan::new().array::<u32>("edges", 3), "edges").unwrap();
        w.append("edges", &[1u32]).unwrap();
        assert!(w.append("edges", &[2u32, 3, 4]).unwrap_err().to_string().contains("4 elements were written, but 3"));
        assert!(w.append("edge", &[2u32]).unwrap_err().to_string().contains("there is `edges`"));
        assert!(w.append("edges", &[2f32]).is_err());
        assert!(w.keeps_old());
        assert!(w.finish().unwrap_err().to_string().contains("1 elements were written, but 3"));
        assert_eq!(v.read_array::<u8>("old").unwrap(), [1]);
        // The volume cannot hold both, so the old content is erased first.
        let w = v.store(Plan::new().array::<u8>("edges", 950_000), "edges").unwrap();
        assert!(!w.keeps_old());
        drop(w);
        assert!(v.manifest().unwrap_err().to_string().contains("no manifest"));
    }

    #[test]
    fn too_small_a_volume_is_told_before_anything_is_written() {
        let v = volume(&["soft:mem:1M"]);
        v.store_array("old", &[1u8]).unwrap();
        let text = v.store(Plan::new().array::<u64>("edges", 430_000), "the graph").unwrap_err().to_string();
        assert!(text.starts_with("soft:mem:1M holds 1.0 MiB, the graph needs 3.4 MiB"), "{text}");
        assert_eq!(v.read_array::<u8>("old").unwrap(), [1]);
        assert!(v.store(Plan::new().array::<u64>("edges", u64::MAX), "the graph").is_err());
    }

    #[test]
    fn a_plan_knows_what_striped_drives_need() {
        let plan = Plan::new().array::<u8>("a", 1 << 20);
        assert_eq!(plan.bytes(), (1 << 20) + (64 << 10));
        assert_eq!(plan.bytes_for_each(1, 8192), plan.bytes());
        let each = plan.bytes_for_each(3, 8192);
        // Each drive has a manifest of its own.
        let needs = (1 << 20) + 3 * MANIFEST_BYTES as u64;
        assert!(each * 3 >= needs && each.is_multiple_of(8192) && (each - 8192) * 3 < needs);
    }

    #[test]
    fn a_new_file_gets_its_name_with_the_manifest() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("graph.img");
        let spec = format!("soft:{}", path.display());
        let plan = Plan::new().array::<u16>("a", 5);
        {
            let drive = Drive::create(&spec, plan.bytes(), &OverwritePolicy::none()).unwrap();
            let v = Volume::on(&Engine::cpu().unwrap(), [drive]).build().unwrap();
            let mut w = v.store(plan.clone(), "it").unwrap();
            w.append("a", &[1u16, 2, 3, 4, 5]).unwrap();
            assert!(!path.exists());
            w.finish().unwrap();
            assert!(path.exists());
        }
        let v = Volume::on(&Engine::cpu().unwrap(), [Drive::open(&spec).unwrap()]).build().unwrap();
        assert_eq!(v.read_array::<u16>("a").unwrap(), [1, 2, 3, 4, 5]);
        drop(v);
        // The drive may be overwritten, since its manifest is warpbell's. A new file that is not kept leaves nothing.
        assert!(Drive::create(&spec, plan.bytes(), &OverwritePolicy::none()).is_ok());
        let other = format!("soft:{}", dir.path().join("other.img").display());
        drop(Drive::create(&other, plan.bytes(), &OverwritePolicy::none()).unwrap());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
