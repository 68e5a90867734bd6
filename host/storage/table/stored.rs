//! Tables as a volume stores them: writing, listing, removing.

use super::layout::{Raw, check_name, header_of, rows_of, table_of};
use super::{Table, TableError, TableLayout};
use crate::storage::{Element, ElementType, Entry, ManifestError, StorageError, Volume, VolumeWriter};

/// Bytes of zeros that are written at once.
const ZEROS: u64 = 4 << 20;

/// Writer of a new table, which takes rows in pieces of any size. The table appears on the volume when it is complete.
///
/// # Examples
///
/// ```
/// use warpbell::engine::Engine;
/// use warpbell::storage::{Drive, ElementType, OverwritePolicy, TableLayout, TableWriter, Volume};
///
/// let drive = Drive::create("soft:mem", 1 << 20, &OverwritePolicy::none())?;
/// let volume = Volume::on(&Engine::cpu()?, [drive]).build()?;
/// let layout = TableLayout::new(ElementType::U32, &[32], 100)?;
/// let mut writer = TableWriter::new(&volume, "ids", &layout, false)?;
/// for row in 0..100u32 {
///     writer.append(&[row; 32])?;
/// }
/// let table = writer.finish()?;
/// assert_eq!(table.gather_to_vec::<u32>(&[7u64])?, [7; 32]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "the table appears with finish"]
pub struct TableWriter<'a> {
    writer: VolumeWriter<'a>,
    volume: &'a Volume,
    name: String,
    layout: TableLayout,
    /// Bytes of rows that are not written yet.
    left: u64,
}

impl<'a> TableWriter<'a> {
    /// Begins to write a table beside everything that the volume holds. With `replace` it takes the place of a table of
    /// the same name, which is whole until [`TableWriter::finish`].
    ///
    /// # Errors
    /// * [`StorageError::Table`] if no table can have this name, or another table has it.
    /// * Otherwise as for [`Volume::replace`].
    pub fn new(volume: &'a Volume, name: &str, layout: &TableLayout, replace: bool) -> Result<Self, StorageError> {
        let plan = layout.plan(name)?;
        if !replace {
            Table::check_free(volume, name)?;
        }
        let old = arrays_of(volume, name)?;
        let old: Vec<&str> = old.iter().map(String::as_str).collect();
        let mut writer = volume.replace(plan, &format!("table `{name}`"), &old)?;
        writer.append(&header_of(name), &[layout.to_raw()])?;
        Ok(Self { writer, volume, name: name.to_owned(), layout: layout.clone(), left: layout.bytes() })
    }

    /// Appends elements of the next rows. A piece may end within a row.
    ///
    /// # Errors
    /// [`StorageError::Table`] if the table holds elements of another type; otherwise as for
    /// [`TableWriter::append_bytes`].
    pub fn append<T: Element>(&mut self, elements: &[T]) -> Result<(), StorageError> {
        let (name, found, asked) = (&self.name, self.layout.element(), T::TYPE);
        if found != asked {
            return Err(TableError::Type { name: name.clone(), found, asked }.into());
        }
        self.append_bytes(bytemuck::cast_slice(elements))
    }

    /// Appends bytes of the next rows, little-endian. A piece may end within a row.
    ///
    /// # Errors
    /// As for [`VolumeWriter::append`].
    pub fn append_bytes(&mut self, bytes: &[u8]) -> Result<(), StorageError> {
        self.writer.append_bytes(&rows_of(&self.name), ElementType::Record, bytes)?;
        self.left = self.left.saturating_sub(bytes.len() as u64);
        Ok(())
    }

    /// Appends zeros to the end of the table.
    ///
    /// # Errors
    /// As for [`VolumeWriter::append`].
    pub fn append_zeros(&mut self) -> Result<(), StorageError> {
        let zeros = vec![0; self.left.min(ZEROS) as usize];
        while self.left > 0 {
            self.append_bytes(&zeros[..self.left.min(ZEROS) as usize])?;
        }
        Ok(())
    }

    /// Completes the table, and opens it without caches.
    ///
    /// # Errors
    /// As for [`VolumeWriter::finish`] and [`TableBuilder::build`](super::TableBuilder::build).
    pub fn finish(self) -> Result<Table, StorageError> {
        self.writer.finish()?;
        Table::open(self.volume, &self.name).build()
    }
}

/// A table of a volume: [`Table::list`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StoredTable {
    /// Name of the table.
    pub name: String,
    /// Number, type and shape of its rows, or the error of a table that cannot be opened.
    pub layout: Result<TableLayout, TableError>,
    /// Size of its arrays in bytes.
    pub bytes: u64,
    /// True if rows were written since the table was stored, so that its checksum says nothing.
    pub changed: bool,
}

impl Table {
    /// Stores a table of zeros, and opens it without caches.
    ///
    /// # Errors
    /// [`StorageError::Table`] if rows of this size cannot be ([`TableLayout::new`]); otherwise as for
    /// [`TableWriter::new`] and [`TableWriter::finish`].
    pub fn create(
        volume: &Volume,
        name: &str,
        element: ElementType,
        row_elements: u64,
        rows: u64,
    ) -> Result<Self, StorageError> {
        let layout = TableLayout::new(element, &[row_elements], rows)?;
        let mut writer = TableWriter::new(volume, name, &layout, false)?;
        writer.append_zeros()?;
        writer.finish()
    }

    /// Stores a table of these rows, each of `row_elements` elements, and opens it without caches.
    ///
    /// # Errors
    /// [`StorageError::Table`] if rows of this size cannot be, or the last one is not whole; otherwise as for
    /// [`TableWriter::new`] and [`TableWriter::finish`].
    ///
    /// # Examples
    ///
    /// ```
    /// use warpbell::engine::Engine;
    /// use warpbell::storage::{Drive, OverwritePolicy, Table, Volume};
    ///
    /// let drive = Drive::create("soft:mem", 1 << 20, &OverwritePolicy::none())?;
    /// let volume = Volume::on(&Engine::cpu()?, [drive]).build()?;
    /// let rows: Vec<f32> = (0..1000 * 64).map(|i| i as f32).collect();
    /// let table = Table::from_rows(&volume, "vectors", &rows, 64)?;
    /// let batch = table.gather_to_vec::<f32>(&[999u64, 0, 999])?;
    /// assert_eq!((batch.len(), batch[0], batch[64]), (3 * 64, 63936.0, 0.0));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn from_rows<T: Element>(
        volume: &Volume,
        name: &str,
        elements: &[T],
        row_elements: u64,
    ) -> Result<Self, StorageError> {
        let count = elements.len() as u64;
        let layout = TableLayout::new(T::TYPE, &[row_elements], count / row_elements.max(1))?;
        if !count.is_multiple_of(row_elements) {
            let why = format!("{count} elements are no whole rows of {row_elements}: complete the last row");
            return Err(TableError::Layout(why).into());
        }
        let mut writer = TableWriter::new(volume, name, &layout, false)?;
        writer.append(elements)?;
        writer.finish()
    }

    /// Returns the tables of a volume, in the order of their names.
    ///
    /// # Errors
    /// [`StorageError`] if the volume cannot be read. A table that cannot be opened is no error.
    pub fn list(volume: &Volume) -> Result<Vec<StoredTable>, StorageError> {
        let entries = entries(volume)?;
        let mut names: Vec<&str> = entries.iter().filter_map(|e| table_of(&e.name)).collect();
        names.sort_unstable();
        names.dedup();
        let of = |name: &str| {
            let own: Vec<&Entry> = entries.iter().filter(|e| table_of(&e.name) == Some(name)).collect();
            let layout = match place(volume, name) {
                Ok(place) => Ok(place.layout),
                Err(StorageError::Table(e)) => Err(e),
                Err(StorageError::Manifest { source, .. }) => {
                    Err(TableError::Damaged { name: name.to_owned(), reason: source.to_string() })
                }
                Err(e) => return Err(e),
            };
            let (bytes, changed) = (own.iter().map(|e| e.bytes()).sum(), own.iter().any(|e| e.changed));
            Ok(StoredTable { name: name.to_owned(), layout, bytes, changed })
        };
        names.into_iter().map(of).collect()
    }

    /// Removes a table from a volume. Its space can be used again; its data is not erased.
    ///
    /// # Errors
    /// [`TableError::Unknown`] if the volume holds no such table; otherwise as for [`Volume::remove`].
    pub fn remove(volume: &Volume, name: &str) -> Result<(), StorageError> {
        let arrays = arrays_of(volume, name)?;
        if arrays.is_empty() {
            return Err(unknown(volume, name)?.into());
        }
        volume.remove(&arrays.iter().map(String::as_str).collect::<Vec<_>>())?;
        Ok(())
    }

    /// Checks that a volume holds no table of this name.
    ///
    /// # Errors
    /// [`TableError::Exists`] if it does; [`TableError::Name`] if no table can have this name; otherwise as for
    /// [`Volume::manifest`].
    pub fn check_free(volume: &Volume, name: &str) -> Result<(), StorageError> {
        check_name(name)?;
        if arrays_of(volume, name)?.is_empty() {
            return Ok(());
        }
        let protected = volume.stored()?.into_iter().map(|s| s.device).collect();
        Err(TableError::Exists { device: volume.name().to_owned(), name: name.to_owned(), protected }.into())
    }
}

/// Place of a table on its volume.
pub(super) struct Place {
    pub(super) layout: TableLayout,
    /// First byte of row 0 in the volume.
    pub(super) first: u64,
}

/// Reads the header of a table, and finds its rows. Both are untrusted.
pub(super) fn place(volume: &Volume, name: &str) -> Result<Place, StorageError> {
    check_name(name)?;
    let raw: Vec<Raw> = match volume.read_array(&header_of(name)) {
        Ok(raw) => raw,
        Err(StorageError::Manifest { source: ManifestError::Absent | ManifestError::Unknown { .. }, .. }) => {
            return Err(unknown(volume, name)?.into());
        }
        Err(e) => return Err(e),
    };
    let damaged = |reason: String| TableError::Damaged { name: name.to_owned(), reason };
    let [raw] = raw[..] else { return Err(damaged(format!("it has {} headers", raw.len())).into()) };
    let layout = TableLayout::parse(name, &raw)?;
    let manifest = volume.manifest()?;
    let rows = manifest.find(&rows_of(name)).map_err(|source| volume.contents().wrong_manifest(source))?;
    if (rows.count, u64::from(rows.element_bytes)) != (layout.rows(), layout.row_bytes()) {
        let (count, each) = (rows.count, rows.element_bytes);
        let (wanted, bytes) = (layout.rows(), layout.row_bytes());
        return Err(damaged(format!("it has {count} rows of {each} bytes, its header says {wanted} of {bytes}")).into());
    }
    if !rows.offset.is_multiple_of(volume.block_bytes() as u64) {
        let (at, block) = (rows.offset, volume.block_bytes());
        return Err(damaged(format!("its rows begin at byte {at}, and a block has {block} bytes")).into());
    }
    if rows.end() > volume.bytes() {
        return Err(damaged(format!("its rows begin at byte {} of a smaller volume", rows.offset)).into());
    }
    Ok(Place { layout, first: rows.offset })
}

/// Returns the names of a table's arrays on a volume.
fn arrays_of(volume: &Volume, name: &str) -> Result<Vec<String>, StorageError> {
    Ok(entries(volume)?.into_iter().map(|e| e.name).filter(|array| table_of(array) == Some(name)).collect())
}

/// Returns the arrays of a volume; none if nothing is stored there.
fn entries(volume: &Volume) -> Result<Vec<Entry>, StorageError> {
    match volume.manifest() {
        Ok(manifest) => Ok(manifest.entries().to_vec()),
        Err(StorageError::Manifest { source: ManifestError::Absent, .. }) => Ok(Vec::new()),
        Err(e) => Err(e),
    }
}

pub(super) fn unknown(volume: &Volume, name: &str) -> Result<TableError, StorageError> {
    let entries = entries(volume)?;
    let mut there: Vec<String> = entries.iter().filter_map(|e| table_of(&e.name).map(str::to_owned)).collect();
    there.sort();
    there.dedup();
    Ok(TableError::Unknown { device: volume.name().to_owned(), name: name.to_owned(), there })
}
