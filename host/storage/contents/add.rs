//! Arrays that are stored beside others, and removed.

use super::checksum_table::TablePlace;
use super::manifest::Manifest;
use super::plan::Plan;
use super::superblock::{Layout, Superblock};
use super::writer::{Filling, VolumeWriter};
use super::{Content, Contents};
#[cfg(feature = "internals")]
use crate::storage::disk::Stripe;
use crate::storage::error::{ManifestError, StorageError, size};
use crate::storage::format::{ARRAY_ALIGN, MANIFEST_BYTES};

/// Place of new arrays beside others.
struct Place {
    /// First byte of the new arrays.
    first: u64,
    /// First byte behind all arrays and their checksums.
    end: u64,
    table: Option<TablePlace>,
}

impl Plan {
    /// Returns the first byte for the arrays beside those of `old`, in the first gap that is large enough, or behind
    /// everything else. The table of page checksums of `old` stays where it is if it is behind the arrays there, too.
    fn place_beside(&self, layout: Layout, old: &Manifest) -> Place {
        let bytes = self.end.max(MANIFEST_BYTES as u64) - MANIFEST_BYTES as u64;
        let table = old.checksum_table();
        let mut used: Vec<(u64, u64)> = old.entries().iter().map(|e| (e.offset, e.end())).collect();
        used.extend(table.map(|t| (t.at, t.end())));
        used.sort_unstable();
        let mut first = layout.data_start();
        for (start, end) in used.into_iter().filter(|(start, end)| start < end) {
            if first.saturating_add(bytes) <= start {
                break;
            }
            first = first.max(end.checked_next_multiple_of(ARRAY_ALIGN).unwrap_or(u64::MAX - u64::MAX % ARRAY_ALIGN));
        }
        let arrays_end = first.saturating_add(bytes);
        let table = (self.page_checksums || table.is_some()).then(|| match table {
            Some(old) if arrays_end <= old.at => old,
            _ => TablePlace::behind(arrays_end.max(old.end())),
        });
        Place { first, end: table.map_or(arrays_end, TablePlace::end).max(old.end()), table }
    }
}

impl Contents {
    /// Begins to store arrays beside those that the volume holds. These stay as they are, until and after
    /// [`VolumeWriter::finish`]. The volume must have space for both ([`Contents::needs_beside`]). `what` names the data
    /// in errors, as in `the graph`.
    pub(in crate::storage) fn add(&self, plan: Plan, what: &str) -> Result<VolumeWriter<'_>, StorageError> {
        self.replace(plan, what, &[])
    }

    /// Begins to store arrays as [`Contents::add`] does. With [`VolumeWriter::finish`] they take the place of the arrays
    /// in `replaced`, which are whole until then.
    pub(in crate::storage) fn replace(
        &self,
        mut plan: Plan,
        what: &str,
        replaced: &[&str],
    ) -> Result<VolumeWriter<'_>, StorageError> {
        if self.holds_nothing()? {
            return self.store(plan, what);
        }
        let manifest = |source| self.wrong_manifest(source);
        plan.page_checksums = self.use_page_checksums.unwrap_or(plan.page_checksums);
        let content = self.flushed_content()?;
        let old = &content.block.manifest;
        let layout = self.layout();
        let place = plan.place_beside(layout, old);
        if place.end > self.disk.bytes() {
            return Err(StorageError::Capacity {
                device: self.disk.name().to_owned(),
                holds: self.disk.bytes(),
                what: format!("{what} beside the stored arrays"),
                needs: place.end,
                next: format!("remove stored arrays, or give a device or file of {} or more", size(place.end)),
            });
        }
        let mut new = Manifest::new(plan.entries).map_err(manifest)?;
        new.move_by(place.first - MANIFEST_BYTES as u64).map_err(manifest)?;
        for name in replaced {
            old.find(name).map_err(manifest)?;
        }
        let others = old.entries().iter().filter(|e| !replaced.contains(&e.name.as_str()));
        let together = others.chain(new.entries()).cloned().collect();
        Manifest::new(together).map_err(manifest)?;
        let beside = Some(replaced.iter().map(|n| (*n).to_owned()).collect());
        let arrays = new.entries().iter().map(Filling::new).collect();
        let checksums = place.table.map(|place| self.new_table(place)).transpose()?;
        let next = Superblock { manifest: new, ..content.block };
        Ok(VolumeWriter { contents: self, arrays, checksums, next, slot: 0, keeps_old: true, beside, receiving: None })
    }

    /// Returns the bytes that the volume needs to hold `plan` beside what it holds, as [`Contents::add`] stores it.
    #[cfg(feature = "internals")]
    pub(in crate::storage) fn needs_beside(&self, plan: &Plan) -> Result<u64, StorageError> {
        let layout = self.layout();
        if self.holds_nothing()? {
            return Ok(plan.end_from(layout.data_start()));
        }
        Ok(plan.place_beside(layout, &self.current()?.block.manifest).end)
    }

    /// Returns the size in bytes that each drive needs for the volume to have `bytes` bytes.
    #[cfg(feature = "internals")]
    pub(in crate::storage) fn bytes_of_each_drive(&self, bytes: u64) -> u64 {
        let stripe = &self.disk.stripe;
        let chunk = stripe.chunk << self.disk.block_shift();
        Stripe { devices: stripe.devices, chunk, replicated: stripe.replicated }.needed(bytes)
    }

    /// Removes arrays, and with that frees their space. The others stay as they are. The data itself is not erased.
    pub(in crate::storage) fn remove(&self, names: &[&str]) -> Result<Manifest, StorageError> {
        let content = self.flushed_content()?;
        let old = &content.block.manifest;
        for name in names {
            old.find(name).map_err(|source| self.wrong_manifest(source))?;
        }
        let rest = old.entries().iter().filter(|e| !names.contains(&e.name.as_str())).cloned().collect();
        let manifest = Manifest::new(rest).map_err(|source| self.wrong_manifest(source))?;
        let extensions = self.extensions_for(&content, &manifest)?;
        let manifest = manifest.with_extensions(extensions);
        let next = Superblock { generation: content.latest + 1, manifest: manifest.clone(), ..content.block.clone() };
        self.publish(next, 1 - content.slot)?;
        Ok(manifest)
    }

    fn holds_nothing(&self) -> Result<bool, StorageError> {
        match self.find_content() {
            Err(StorageError::Manifest { source: ManifestError::Absent, .. }) => Ok(true),
            other => other.map(|_| false),
        }
    }

    /// Returns the content with all changes of its arrays recorded.
    pub(in crate::storage) fn flushed_content(&self) -> Result<Content, StorageError> {
        self.current()?;
        self.flush()?;
        let content = self.current()?;
        if content.interrupted {
            return Err(StorageError::NoPath {
                what: "another manifest".to_owned(),
                device: self.disk.name().to_owned(),
                reason: "a program ended while it changed the stored arrays; verify the volume and accept the changes first (`Volume::accept_changes`)".to_owned(),
                remedies: Vec::new(),
            });
        }
        Ok(content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;
    use crate::storage::{Drive, OverwritePolicy, Volume};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn volume(specs: &[&str], checksums: bool) -> Volume {
        let drives = specs.iter().map(|s| Drive::open(s).unwrap());
        Volume::on(&Engine::cpu().unwrap(), drives).chunk(8192).page_checksums(checksums).build().unwrap()
    }

    fn add(volume: &Volume, name: &str, values: &[u32]) -> Result<Manifest, StorageError> {
        let mut writer = volume.add(Plan::new().array::<u32>(name, values.len() as u64), "it")?;
        writer.append(name, values)?;
        writer.finish()
    }

    fn values(seed: u32, count: usize) -> Vec<u32> {
        (0..count as u32).map(|i| i.wrapping_mul(seed | 1)).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn arrays_stay_whole_while_others_come_and_go(
            steps in prop::collection::vec((0u32..6, 0usize..60_000, any::<u32>()), 1..14),
            checksums: bool, striped: bool,
        ) {
            let specs: &[&str] = if striped { &["soft:mem:512k"; 3] } else { &["soft:mem:1536k"] };
            let v = volume(specs, checksums);
            let mut held: BTreeMap<String, Vec<u32>> = BTreeMap::new();
            for (number, count, seed) in steps {
                let name = format!("a{number}");
                if held.remove(&name).is_some() {
                    v.remove(&[&name]).unwrap();
                } else {
                    match add(&v, &name, &values(seed, count)) {
                        Ok(_) => drop(held.insert(name, values(seed, count))),
                        Err(e) => prop_assert!(matches!(e, StorageError::Capacity { .. }), "{}", e),
                    }
                }
                for (name, values) in &held {
                    prop_assert_eq!(&v.read_array::<u32>(name).unwrap(), values);
                }
                if !held.is_empty() {
                    prop_assert_eq!(v.manifest().unwrap().entries().len(), held.len());
                    prop_assert!(v.verify(false).unwrap().is_intact());
                    prop_assert_eq!(v.has_page_checksums(), checksums);
                }
            }
        }
    }

    #[test]
    fn space_of_removed_arrays_is_used_again() {
        let v = volume(&["soft:mem:1M"], false);
        for round in 0..20 {
            add(&v, "large", &values(round, 150_000)).unwrap();
            add(&v, "small", &values(round, 100)).unwrap();
            let e = add(&v, "third", &values(round, 150_000)).unwrap_err().to_string();
            assert!(e.contains("it beside the stored arrays needs") && e.contains("remove stored arrays"), "{e}");
            v.remove(&["large"]).unwrap();
            assert_eq!(v.read_array::<u32>("small").unwrap(), values(round, 100));
            v.remove(&["small"]).unwrap();
        }
    }

    #[test]
    fn names_are_checked() {
        let v = volume(&["soft:mem:1M"], false);
        add(&v, "a", &[1]).unwrap();
        assert!(add(&v, "a", &[2]).unwrap_err().to_string().contains("two arrays are called `a`"));
        assert!(v.remove(&["b"]).unwrap_err().to_string().contains("no array `b`; there is `a`"));
        assert_eq!(v.read_array::<u32>("a").unwrap(), [1]);
    }

    #[test]
    fn what_is_not_finished_changes_nothing() {
        let v = volume(&["soft:mem:1M"], true);
        add(&v, "a", &values(3, 1000)).unwrap();
        let mut writer = v.add(Plan::new().array::<u32>("b", 70_000), "it").unwrap();
        writer.append("b", &values(5, 69_999)).unwrap();
        drop(writer);
        assert_eq!(v.read_array::<u32>("a").unwrap(), values(3, 1000));
        assert_eq!(v.manifest().unwrap().entries().len(), 1);
        assert!(v.verify(false).unwrap().is_intact());
    }

    #[test]
    fn changes_of_other_arrays_are_kept() {
        let v = volume(&["soft:mem:1M"], true);
        let first = add(&v, "a", &values(3, 5000)).unwrap();
        let writer = v.add(Plan::new().array::<u32>("b", 0), "it").unwrap();
        v.write_bytes(first.entries()[0].offset, &[7; 8]).unwrap();
        let both = writer.finish().unwrap();
        assert!(both.find("a").unwrap().changed && !both.find("b").unwrap().changed);
        assert_eq!(v.read_array::<u32>("a").unwrap()[..2], [0x0707_0707; 2]);
        assert!(v.verify(false).unwrap().is_intact());
    }

    #[test]
    fn an_added_array_is_there_when_the_file_is_opened_again() {
        let folder = tempfile::tempdir().unwrap();
        let spec = format!("soft:{}", folder.path().join("v.img").display());
        let open = |drive| Volume::on(&Engine::cpu().unwrap(), [drive]).build().unwrap();
        let v = open(Drive::create(&spec, 1 << 20, &OverwritePolicy::none()).unwrap());
        add(&v, "a", &values(3, 1000)).unwrap();
        add(&v, "b", &values(4, 1000)).unwrap();
        drop(v);
        let v = open(Drive::open(&spec).unwrap());
        assert_eq!(v.read_array::<u32>("b").unwrap(), values(4, 1000));
        v.remove(&["a"]).unwrap();
        drop(v);
        let v = open(Drive::open(&spec).unwrap());
        assert_eq!(v.manifest().unwrap().entries().len(), 1);
        assert_eq!(v.read_array::<u32>("b").unwrap(), values(4, 1000));
    }
}
