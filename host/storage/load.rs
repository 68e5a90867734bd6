//! Arrays onto a volume: planned, streamed, named last.

use super::StorageError;
use super::checksum::Checksum;
use super::error::size;
use super::manifest::{ARRAY_ALIGN, Element, ElementType, Entry, MANIFEST_BYTES, Manifest, ManifestError};
use super::stripe::Stripe;
use super::volume::Volume;
use crate::engine::EngineError;

/// Bytes that are gathered before they are written.
const GATHER: usize = 4 << 20;

/// Which arrays a volume is to hold, before there is a volume: [`Plan::bytes`] says how large it must be.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    entries: Vec<Entry>,
    end: u64,
}

impl Plan {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an array of `count` elements.
    pub fn array<T: Element>(self, name: &str, count: u64) -> Self {
        self.add(name, T::TYPE, size_of::<T>() as u32, count)
    }

    /// Adds an array of `count` records of `bytes` bytes.
    pub fn records(self, name: &str, bytes: u32, count: u64) -> Self {
        self.add(name, ElementType::Record, bytes, count)
    }

    fn add(mut self, name: &str, element_type: ElementType, element_bytes: u32, count: u64) -> Self {
        let offset = self.end.max(MANIFEST_BYTES as u64);
        // Past 64 bits the sum stays at the end, and the manifest refuses the array by name.
        let bytes = count.saturating_mul(element_bytes.into());
        let end = offset.saturating_add(bytes);
        self.end = end.checked_next_multiple_of(ARRAY_ALIGN).unwrap_or(u64::MAX - u64::MAX % ARRAY_ALIGN);
        let name = name.to_owned();
        self.entries.push(Entry { name, element_type, element_bytes, count, offset, checksum: 0 });
        self
    }

    /// Returns true if `manifest` names these arrays in the same places. Their data may differ.
    pub(crate) fn has_layout_of(&self, manifest: &Manifest) -> bool {
        let plain = |e: &Entry| Entry { checksum: 0, ..e.clone() };
        manifest.entries().iter().map(plain).eq(self.entries.iter().map(plain))
    }

    /// Bytes of volume that it takes, manifest included.
    pub fn bytes(&self) -> u64 {
        self.end.max(MANIFEST_BYTES as u64)
    }

    /// Bytes that each of `drives` drives needs, striped in units of `chunk` bytes.
    pub fn bytes_for_each(&self, drives: usize, chunk: u64) -> u64 {
        Stripe { devices: drives.max(1) as u64, chunk: chunk.max(1), replicated: false }.needed(self.bytes())
    }
}

impl Volume {
    /// Begins to store arrays. What the volume held is gone from here on; the new manifest is written when all is complete.
    /// `what` names the data in errors, as in `the graph`.
    pub fn store(&self, plan: Plan, what: &str) -> Result<VolumeWriter<'_>, StorageError> {
        let manifest = |source| StorageError::Manifest { device: self.name().to_owned(), source };
        let checked = Manifest::new(plan.entries.clone()).map_err(manifest)?;
        if plan.bytes() > self.bytes() {
            return Err(StorageError::Capacity {
                device: self.name().to_owned(),
                holds: self.bytes(),
                what: what.to_owned(),
                needs: plan.bytes(),
                next: format!("give a device or file of {} or more", size(plan.bytes())),
            });
        }
        // First the old manifest goes: it must not describe what is being overwritten.
        self.write_blocks(0, &vec![0; MANIFEST_BYTES.max(self.block_bytes())])?;
        self.flush()?;
        let arrays = checked.entries().iter().map(Filling::new).collect();
        Ok(VolumeWriter { volume: self, arrays })
    }

    /// Stores one array, in place of whatever the volume held.
    pub fn store_array<T: Element>(&self, name: &str, values: &[T]) -> Result<Manifest, StorageError> {
        let plan = Plan::new().array::<T>(name, values.len() as u64);
        let mut writer = self.store(plan, &format!("array `{name}`"))?;
        writer.append(name, values)?;
        writer.finish()
    }

    /// Reads a whole array, and refuses it if its data is not what was stored.
    pub fn read_array<T: Element>(&self, name: &str) -> Result<Vec<T>, StorageError> {
        let failed = |source| StorageError::Manifest { device: self.name().to_owned(), source };
        let manifest = self.manifest()?;
        let entry = manifest.find_typed::<T>(name).map_err(failed)?;
        let too_many =
            || StorageError::Option(format!("array `{name}` of {} does not fit into memory", size(entry.bytes())));
        let count = usize::try_from(entry.count).map_err(|_| too_many())?;
        let mut values = Vec::new();
        values.try_reserve_exact(count).map_err(|_| too_many())?;
        values.resize(count, T::zeroed());
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut values);
        self.read_bytes(entry.offset, bytes)?;
        let computed = Checksum::of(bytes);
        if computed != entry.checksum {
            let name = name.to_owned();
            return Err(failed(ManifestError::Data { name, found: entry.checksum, computed }));
        }
        Ok(values)
    }
}

/// Takes the data of the planned arrays, in any order and in pieces of any size.
#[derive(Debug)]
#[must_use = "nothing has a name before finish"]
pub struct VolumeWriter<'a> {
    volume: &'a Volume,
    arrays: Vec<Filling>,
}

#[derive(Debug)]
struct Filling {
    entry: Entry,
    checksum: Checksum,
    /// Bytes written, a multiple of the block size until the end.
    written: u64,
    /// Bytes taken and not yet written.
    gathered: Vec<u8>,
}

impl Filling {
    fn new(entry: &Entry) -> Self {
        Self { entry: entry.clone(), checksum: Checksum::default(), written: 0, gathered: Vec::new() }
    }

    fn given(&self) -> u64 {
        self.written + self.gathered.len() as u64
    }

    fn complete(&self) -> Result<(), StorageError> {
        if self.given() == self.entry.bytes() { Ok(()) } else { Err(self.count_error(0)) }
    }

    fn count_error(&self, more: u64) -> StorageError {
        let each = u64::from(self.entry.element_bytes).max(1);
        let given = (self.given() + more) / each;
        StorageError::Count { name: self.entry.name.clone(), given, planned: self.entry.count }
    }

    fn take(&mut self, volume: &Volume, mut bytes: &[u8]) -> Result<(), StorageError> {
        if self.given() + bytes.len() as u64 > self.entry.bytes() {
            return Err(self.count_error(bytes.len() as u64));
        }
        self.checksum.update(bytes);
        while !bytes.is_empty() {
            // Large pieces go out as they are; small ones are gathered.
            let whole = bytes.len() / GATHER * GATHER;
            if self.gathered.is_empty() && whole > 0 {
                self.write(volume, &bytes[..whole])?;
                bytes = &bytes[whole..];
                continue;
            }
            let n = bytes.len().min(GATHER - self.gathered.len());
            self.gathered.extend_from_slice(&bytes[..n]);
            bytes = &bytes[n..];
            if self.gathered.len() == GATHER {
                let full = std::mem::take(&mut self.gathered);
                self.write(volume, &full)?;
                self.gathered = full;
                self.gathered.clear();
            }
        }
        Ok(())
    }

    fn write(&mut self, volume: &Volume, blocks: &[u8]) -> Result<(), StorageError> {
        if volume.engine().is_cancelled() {
            return Err(EngineError::Cancelled.into());
        }
        volume.write_blocks((self.entry.offset + self.written) >> volume.block_shift(), blocks)?;
        self.written += blocks.len() as u64;
        Ok(())
    }

    /// Writes what is left, filled up with zeros to a whole block.
    fn finish(&mut self, volume: &Volume) -> Result<(), StorageError> {
        let bytes = self.gathered.len();
        self.gathered.resize(bytes.next_multiple_of(volume.block_bytes()), 0);
        let rest = std::mem::take(&mut self.gathered);
        if !rest.is_empty() {
            self.write(volume, &rest)?;
        }
        self.entry.checksum = self.checksum.finish();
        Ok(())
    }
}

impl VolumeWriter<'_> {
    /// Adds elements to the end of an array.
    pub fn append<T: Element>(&mut self, name: &str, values: &[T]) -> Result<(), StorageError> {
        self.append_bytes(name, T::TYPE, bytemuck::cast_slice(values))
    }

    /// Adds whole records to the end of an array of records.
    pub fn append_records(&mut self, name: &str, bytes: &[u8]) -> Result<(), StorageError> {
        self.append_bytes(name, ElementType::Record, bytes)
    }

    pub(crate) fn append_bytes(&mut self, name: &str, asked: ElementType, bytes: &[u8]) -> Result<(), StorageError> {
        let there = || self.arrays.iter().map(|a| a.entry.name.clone()).collect();
        let wrong = |source| StorageError::Manifest { device: self.volume.name().to_owned(), source };
        let Some(i) = self.arrays.iter().position(|a| a.entry.name == name) else {
            return Err(wrong(ManifestError::Unknown { name: name.to_owned(), there: there() }));
        };
        let found = self.arrays[i].entry.element_type;
        if found != asked {
            return Err(wrong(ManifestError::Type { name: name.to_owned(), found, asked }));
        }
        self.arrays[i].take(self.volume, bytes)
    }

    /// Writes what is left, flushes, and then writes the manifest: only now the volume has its new contents, and a file that was
    /// made for it its name.
    pub fn finish(mut self) -> Result<Manifest, StorageError> {
        let volume = self.volume;
        self.arrays.iter().try_for_each(Filling::complete)?;
        self.arrays.iter_mut().try_for_each(|a| a.finish(volume))?;
        volume.flush()?;
        let manifest = Manifest::new(self.arrays.into_iter().map(|a| a.entry).collect())
            .map_err(|source| StorageError::Manifest { device: volume.name().to_owned(), source })?;
        let mut head = manifest.to_bytes();
        head.resize(MANIFEST_BYTES, 0);
        volume.write_blocks(0, &head)?;
        volume.flush()?;
        volume.keep()?;
        Ok(manifest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;
    use crate::storage::{Consent, Drive};

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
        v.write_bytes(m.entries()[0].offset + 5, &[9]).unwrap();
        let text = v.read_array::<u32>("edges").unwrap_err().to_string();
        assert!(text.contains("`edges` is damaged"), "{text}");
    }

    #[test]
    fn what_is_not_complete_has_no_manifest() {
        let v = volume(&["soft:mem:1M"]);
        v.store_array("old", &[1u8]).unwrap();
        let mut w = v.store(Plan::new().array::<u32>("edges", 3), "edges").unwrap();
        w.append("edges", &[1u32]).unwrap();
        assert!(w.append("edges", &[2u32, 3, 4]).unwrap_err().to_string().contains("4 elements were given, 3"));
        assert!(w.append("edge", &[2u32]).unwrap_err().to_string().contains("there is `edges`"));
        assert!(w.append("edges", &[2f32]).is_err());
        assert!(w.finish().unwrap_err().to_string().contains("1 elements were given, 3"));
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
        assert!(each * 3 >= plan.bytes() && each.is_multiple_of(8192) && (each - 8192) * 3 < plan.bytes());
    }

    #[test]
    fn a_new_file_gets_its_name_with_the_manifest() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("graph.img");
        let spec = format!("soft:{}", path.display());
        let plan = Plan::new().array::<u16>("a", 5);
        {
            let drive = Drive::create(&spec, plan.bytes(), &Consent::none()).unwrap();
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
        // Its own manifest is consent enough to store again; a file that is given up leaves nothing.
        assert!(Drive::create(&spec, plan.bytes(), &Consent::none()).is_ok());
        let other = format!("soft:{}", dir.path().join("other.img").display());
        drop(Drive::create(&other, plan.bytes(), &Consent::none()).unwrap());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
