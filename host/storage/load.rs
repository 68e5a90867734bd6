//! Storing arrays on a volume: planned first, then streamed, named in the manifest last.

use super::StorageError;
use super::checksum::Checksum;
use super::contents::Contents;
use super::copies::Receiving;
use super::error::size;
use super::manifest::{ARRAY_ALIGN, Element, ElementType, Entry, MANIFEST_BYTES, Manifest, ManifestError};
use super::page_checksums::{NewTable, TablePlace};
use super::stripe::Stripe;
use super::superblock::{Layout, Superblock};
use super::unit_checksums::UNIT;
use crate::engine::EngineError;

/// Bytes that are gathered into one write.
const GATHER: usize = 4 << 20;

/// UUID, latest generation and slot of the content that new content follows.
type Predecessor = ([u8; 16], u64, usize);

/// Arrays to be stored, planned before the volume exists. [`Plan::bytes`] returns the size that the volume needs.
///
/// # Examples
///
/// ```
/// use warpbell::engine::Engine;
/// use warpbell::storage::{Drive, OverwritePolicy, Plan, Volume};
///
/// let plan = Plan::new().array::<u32>("ids", 1000).array::<f64>("ranks", 1000);
/// let engine = Engine::cpu()?;
/// let drive = Drive::create("soft:mem", plan.bytes(), &OverwritePolicy::none())?;
/// let volume = Volume::on(&engine, [drive]).build()?;
/// let mut writer = volume.store(plan, "an example")?;
/// writer.append("ids", &(0..1000u32).collect::<Vec<_>>())?;
/// // Arrays may be appended in parts.
/// writer.append("ranks", &[0.5f64; 400])?;
/// writer.append("ranks", &[0.25f64; 600])?;
/// writer.finish()?;
/// assert_eq!(volume.read_array::<u32>("ids")?[999], 999);
/// assert_eq!(volume.read_array::<f64>("ranks")?[400], 0.25);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub(super) entries: Vec<Entry>,
    pub(super) end: u64,
    pub(super) page_checksums: bool,
}

impl Plan {
    /// Makes an empty plan.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an array of `count` elements of type `T`.
    pub fn array<T: Element>(self, name: &str, count: u64) -> Self {
        self.untyped(name, T::TYPE, size_of::<T>() as u32, count)
    }

    /// Adds an array of `count` records of `bytes` bytes each.
    pub fn records(self, name: &str, bytes: u32, count: u64) -> Self {
        self.untyped(name, ElementType::Record, bytes, count)
    }

    /// Adds an array of `count` elements, whose type is known at run time only. `element_bytes` is the size of an element
    /// of this type; a record may have any size.
    pub fn untyped(mut self, name: &str, element_type: ElementType, element_bytes: u32, count: u64) -> Self {
        let offset = self.end.max(MANIFEST_BYTES as u64);
        // Where the sum exceeds 64 bits it stays at the largest value, and the manifest refuses the array by name.
        let bytes = count.saturating_mul(element_bytes.into());
        let end = offset.saturating_add(bytes);
        self.end = end.checked_next_multiple_of(ARRAY_ALIGN).unwrap_or(u64::MAX - u64::MAX % ARRAY_ALIGN);
        let name = name.to_owned();
        self.entries.push(Entry { name, element_type, element_bytes, count, offset, checksum: 0, changed: false });
        self
    }

    /// Returns the plan with other names for its arrays.
    pub(crate) fn renamed(mut self, name: impl Fn(&str) -> String) -> Self {
        self.entries.iter_mut().for_each(|e| e.name = name(&e.name));
        self
    }

    /// Returns true if `manifest` names these arrays, in this order. Their offsets and data may differ.
    pub(crate) fn has_layout_of(&self, manifest: &Manifest) -> bool {
        let plain = |e: &Entry| Entry { offset: 0, checksum: 0, changed: false, ..e.clone() };
        manifest.entries().iter().map(plain).eq(self.entries.iter().map(plain))
    }

    /// Reserves space for page checksums, for a volume that is built with
    /// [`VolumeBuilder::page_checksums`](super::VolumeBuilder::page_checksums).
    pub fn page_checksums(self, wanted: bool) -> Self {
        Self { page_checksums: wanted, ..self }
    }

    /// Returns true if the plan reserves space for page checksums.
    pub fn has_page_checksums(&self) -> bool {
        self.page_checksums
    }

    /// Returns the bytes that the arrays need on a volume of one drive or of copies, manifest included.
    pub fn bytes(&self) -> u64 {
        self.end_from(MANIFEST_BYTES as u64)
    }

    /// Returns the bytes that each of `drives` drives needs, striped in units of `chunk` bytes.
    pub fn bytes_for_each(&self, drives: usize, chunk: u64) -> u64 {
        let (drives, chunk) = (drives.max(1), chunk.max(1));
        let chunk_bytes = if drives == 1 { 0 } else { chunk };
        let layout = Layout { drives: u32::try_from(drives).unwrap_or(u32::MAX), chunk_bytes, replicated: false };
        Stripe { devices: drives as u64, chunk, replicated: false }.needed(self.end_from(layout.data_start()))
    }

    /// Returns the first byte behind the arrays and their checksums, if the arrays begin at byte `start`.
    pub(super) fn end_from(&self, start: u64) -> u64 {
        let arrays_end = start.saturating_add(self.end.max(MANIFEST_BYTES as u64) - MANIFEST_BYTES as u64);
        if self.page_checksums { TablePlace::behind(arrays_end).end() } else { arrays_end }
    }

    /// Returns the first byte for the arrays on a volume of `bytes` bytes, and true if this leaves the arrays of `old`
    /// intact.
    fn place(&self, layout: Layout, bytes: u64, old: Option<&Manifest>) -> (u64, bool) {
        let start = layout.data_start();
        let Some(old) = old else { return (start, false) };
        let behind = old.end().max(start);
        if self.end_from(behind) <= bytes {
            return (behind, true);
        }
        let first = old.entries().iter().filter(|e| e.count > 0).map(|e| e.offset).min();
        (start, first.is_none_or(|first| self.end_from(start) <= first))
    }
}

impl Contents {
    /// Begins to store arrays. The new manifest is written when all arrays are complete. If both fit, the volume keeps
    /// its old content until then ([`VolumeWriter::keeps_old`]). Otherwise this call erases the old content. `what`
    /// names the data in errors, as in `the graph`.
    pub(super) fn store(&self, mut plan: Plan, what: &str) -> Result<VolumeWriter<'_>, StorageError> {
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
        *self.content.lock() = None;
        self.disk.integrity.set_pending(false)?;
        self.close_page_checksums()?;
        let manifest = Manifest::default();
        let none = Superblock { uuid, generation: latest + 1, layout, index: 0, members: 0, manifest };
        self.publish(none, 1 - slot)?;
        let erased = self.content.lock().as_ref().map(|c| (c.block.uuid, c.latest, c.slot));
        Ok(erased)
    }

    /// Stores one array, in place of everything that the volume held.
    pub(super) fn store_array<T: Element>(&self, name: &str, values: &[T]) -> Result<Manifest, StorageError> {
        let plan = Plan::new().array::<T>(name, values.len() as u64);
        let mut writer = self.store(plan, &format!("array `{name}`"))?;
        writer.append(name, values)?;
        writer.finish()
    }
}

/// Writer of the planned arrays. Takes their data in any order, in pieces of any size.
#[derive(Debug)]
#[must_use = "nothing has a name before finish"]
pub struct VolumeWriter<'a> {
    pub(super) contents: &'a Contents,
    pub(super) arrays: Vec<Filling>,
    pub(super) checksums: Option<NewTable>,
    pub(super) next: Superblock,
    pub(super) slot: usize,
    pub(super) keeps_old: bool,
    /// For arrays that are added to those that the volume holds: names of the arrays that they replace.
    pub(super) beside: Option<Vec<String>>,
    /// Copies that were left out and receive the data.
    pub(super) receiving: Option<Receiving<'a>>,
}

/// Destination of the data of all arrays.
struct Target<'a> {
    contents: &'a Contents,
    checksums: &'a mut Option<NewTable>,
}

#[derive(Debug)]
pub(super) struct Filling {
    entry: Entry,
    checksum: Checksum,
    /// Bytes written: a multiple of the block size until the end.
    written: u64,
    /// Bytes that were taken and are not written yet.
    gathered: Vec<u8>,
}

impl Filling {
    pub(super) fn new(entry: &Entry) -> Self {
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

    fn take(&mut self, to: &mut Target<'_>, mut bytes: &[u8]) -> Result<(), StorageError> {
        if self.given() + bytes.len() as u64 > self.entry.bytes() {
            return Err(self.count_error(bytes.len() as u64));
        }
        self.checksum.update(bytes);
        while !bytes.is_empty() {
            // Large pieces are written directly; small ones are gathered.
            let whole = bytes.len() / GATHER * GATHER;
            if self.gathered.is_empty() && whole > 0 {
                self.write(to, &bytes[..whole])?;
                bytes = &bytes[whole..];
                continue;
            }
            let n = bytes.len().min(GATHER - self.gathered.len());
            self.gathered.extend_from_slice(&bytes[..n]);
            bytes = &bytes[n..];
            if self.gathered.len() == GATHER {
                let full = std::mem::take(&mut self.gathered);
                self.write(to, &full)?;
                self.gathered = full;
                self.gathered.clear();
            }
        }
        Ok(())
    }

    fn write(&mut self, to: &mut Target<'_>, blocks: &[u8]) -> Result<(), StorageError> {
        let Target { contents, checksums } = to;
        if contents.disk.engine.is_cancelled() {
            return Err(EngineError::Cancelled.into());
        }
        let at = self.entry.offset + self.written;
        contents.disk.put_blocks(at >> contents.disk.block_shift(), blocks)?;
        if let Some(table) = checksums {
            table.take(at, blocks);
        }
        self.written += blocks.len() as u64;
        Ok(())
    }

    /// Writes the gathered bytes, padded with zeros to a whole block, or to a whole unit of page checksums. The next
    /// array begins behind that.
    fn finish(&mut self, to: &mut Target<'_>) -> Result<(), StorageError> {
        let whole = if to.checksums.is_some() { UNIT } else { to.contents.disk.block_bytes() };
        let bytes = self.gathered.len();
        self.gathered.resize(bytes.next_multiple_of(whole), 0);
        let rest = std::mem::take(&mut self.gathered);
        if !rest.is_empty() {
            self.write(to, &rest)?;
        }
        self.entry.checksum = self.checksum.finish();
        Ok(())
    }
}

impl VolumeWriter<'_> {
    /// Appends elements to an array.
    ///
    /// # Errors
    /// * [`StorageError::Manifest`] if the plan has no such array, or one of another type.
    /// * [`StorageError::Count`] if the array gets more elements than planned.
    /// * [`StorageError::Engine`] if the engine was cancelled; otherwise as for [`Volume::write_blocks`](crate::storage::Volume::write_blocks).
    pub fn append<T: Element>(&mut self, name: &str, values: &[T]) -> Result<(), StorageError> {
        self.append_bytes(name, T::TYPE, bytemuck::cast_slice(values))
    }

    /// Appends whole records to an array of records.
    ///
    /// # Errors
    /// As for [`VolumeWriter::append`].
    pub fn append_records(&mut self, name: &str, bytes: &[u8]) -> Result<(), StorageError> {
        self.append_bytes(name, ElementType::Record, bytes)
    }

    /// Appends whole elements, as bytes, to an array whose elements have the type `asked`.
    ///
    /// # Errors
    /// As for [`VolumeWriter::append`].
    pub fn append_bytes(&mut self, name: &str, asked: ElementType, bytes: &[u8]) -> Result<(), StorageError> {
        let there = || self.arrays.iter().map(|a| a.entry.name.clone()).collect();
        let wrong = |source| StorageError::Manifest { device: self.contents.disk.name().to_owned(), source };
        let Some(i) = self.arrays.iter().position(|a| a.entry.name == name) else {
            return Err(wrong(ManifestError::Unknown { name: name.to_owned(), there: there() }));
        };
        let found = self.arrays[i].entry.element_type;
        if found != asked {
            return Err(wrong(ManifestError::Type { name: name.to_owned(), found, asked }));
        }
        self.arrays[i].take(&mut Target { contents: self.contents, checksums: &mut self.checksums }, bytes)
    }

    /// Returns true if the volume keeps its old content until [`VolumeWriter::finish`] returns, and if `finish` is
    /// never called.
    pub fn keeps_old(&self) -> bool {
        self.keeps_old
    }

    /// Writes the remaining data, flushes, and then writes the manifest. With that the new content replaces the old, or
    /// joins it after [`Volume::add`](crate::storage::Volume::add). A file that was made for the volume gets its name.
    ///
    /// # Errors
    /// [`StorageError::Count`] if an array lacks elements; [`StorageError::File`] if a new file cannot get its name;
    /// otherwise as for [`VolumeWriter::append`].
    pub fn finish(mut self) -> Result<Manifest, StorageError> {
        let contents = self.contents;
        self.arrays.iter().try_for_each(Filling::complete)?;
        let mut to = Target { contents, checksums: &mut self.checksums };
        self.arrays.iter_mut().try_for_each(|a| a.finish(&mut to))?;
        let mut entries: Vec<Entry> = self.arrays.into_iter().map(|a| a.entry).collect();
        if let Some(replaced) = &self.beside {
            let content = contents.flushed_content()?;
            if let (Some(new), Some(old)) = (&mut self.checksums, contents.page_checksums(&content)?) {
                new.take_unknown(&old);
            }
            (self.next.generation, self.slot) = (content.latest + 1, 1 - content.slot);
            let others = content.block.manifest.entries().iter().filter(|e| !replaced.contains(&e.name));
            entries.splice(0..0, others.cloned());
        }
        let mut manifest = Manifest::new(entries).map_err(|source| contents.wrong_manifest(source))?;
        if let Some(table) = &self.checksums {
            contents.put_table(table)?;
            let extension = table.extension(&manifest);
            manifest.set_extension(extension);
        }
        if self.beside.is_none() || contents.disk.engine.is_idle() {
            contents.disk.integrity.clear_changed()?;
        }
        contents.publish(Superblock { manifest: manifest.clone(), ..self.next }, self.slot)?;
        if let Some(receiving) = self.receiving {
            let members = contents.content.lock().as_ref().map_or(0, |c| c.block.members);
            receiving.take_in(members)?;
        }
        contents.disk.keep()?;
        match &self.checksums {
            Some(table) => contents.use_page_checksums(table)?,
            None => contents.close_page_checksums()?,
        }
        Ok(manifest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;
    use crate::storage::{Drive, OverwritePolicy, Volume};

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
