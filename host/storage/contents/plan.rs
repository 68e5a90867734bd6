//! Plans of arrays to be stored.

use super::checksum_table::TablePlace;
use super::manifest::{Entry, Manifest};
use super::superblock::Layout;
use crate::storage::disk::Stripe;
use crate::storage::element::{Element, ElementType};
use crate::storage::format::{ARRAY_ALIGN, MANIFEST_BYTES};

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
    pub(in crate::storage) entries: Vec<Entry>,
    pub(in crate::storage) end: u64,
    pub(in crate::storage) page_checksums: bool,
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
        let (checksum, changed, self_checked) = (0, false, false);
        let entry = Entry { name, element_type, element_bytes, count, offset, checksum, changed, self_checked };
        self.entries.push(entry);
        self
    }

    /// Adds an array of `count` records of `bytes` bytes each, which has checksums of its own within its data. The writer
    /// need not write all of it.
    pub(in crate::storage) fn self_checked(self, name: &str, bytes: u32, count: u64) -> Self {
        let mut plan = self.records(name, bytes, count);
        if let Some(entry) = plan.entries.last_mut() {
            (entry.changed, entry.self_checked) = (true, true);
        }
        plan
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
    /// [`VolumeBuilder::page_checksums`](crate::storage::VolumeBuilder::page_checksums).
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
    pub(in crate::storage) fn end_from(&self, start: u64) -> u64 {
        let arrays_end = start.saturating_add(self.end.max(MANIFEST_BYTES as u64) - MANIFEST_BYTES as u64);
        if self.page_checksums { TablePlace::behind(arrays_end).end() } else { arrays_end }
    }

    /// Returns the first byte for the arrays on a volume of `bytes` bytes, and true if this leaves the arrays of `old`
    /// intact.
    pub(in crate::storage) fn place(&self, layout: Layout, bytes: u64, old: Option<&Manifest>) -> (u64, bool) {
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
