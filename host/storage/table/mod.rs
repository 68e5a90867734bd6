//! Tables: rows of equal size on a volume, which kernels gather by number.
//!
//! A table consists of two arrays of the volume's manifest, beside any others:
//!
//! | array | content |
//! |---|---|
//! | `NAME:table` | record of 128 bytes: version, element type, shape of a row, number of rows |
//! | `NAME:rows` | the rows, one behind the other |

mod batch;
mod builder;
mod geometry;
mod import;
mod indices;
mod layout;
mod prefetch;
mod scatter;
mod scratch;
mod staging;
mod stats;
mod stored;
#[cfg(test)]
mod tests;
mod tiers;
mod verify;
#[cfg(test)]
mod write_tests;

use crate::storage::error::TableError;
pub use builder::TableBuilder;
#[cfg(feature = "internals")]
pub use import::read_npy;
pub use import::{NpyError, NpyHeader, RowFile, RowFileError, RowFileOptions};
pub use indices::{RowIndices, RowInput, RowOutput};
pub use layout::TableLayout;
pub use prefetch::{GatheredRows, Gathering, Prefetch};
pub use scatter::Combine;
pub use scratch::TableScratch;
pub use stats::TableStats;
pub use stored::{StoredTable, TableWriter};

use super::{DataBuffer, Element, ElementType, StorageError, Volume};
use crate::engine::{Args, KernelArg, NO_LIMIT, RunError, abi};
use crate::metrics::Registration;
use batch::Batch;
use geometry::RowReads;
use parking_lot::Mutex;
use scatter::Writer;
use staging::Staging;
use std::fmt;
use std::sync::Arc;
use tiers::TableMemory;

/// Rows of a volume by number, for kernels as `warpbell::table_ref`. Cheap to clone.
///
/// [`Table::gather`] brings rows at random places into a dense output, in one launch. In a batch each row is read once,
/// however often it is asked for. [`Table::prefetch`] does so while other kernels run. [`Table::scatter`] writes rows.
/// [`TableBuilder`] has options for rows that stay in memory.
///
/// # Examples
///
/// ```
/// use warpbell::engine::Engine;
/// use warpbell::memory::Place;
/// use warpbell::storage::{Drive, OverwritePolicy, Table, Volume};
///
/// let engine = Engine::cpu()?;
/// let drive = Drive::create("soft:mem", 1 << 20, &OverwritePolicy::none())?;
/// let volume = Volume::on(&engine, [drive]).build()?;
/// let rows: Vec<u32> = (0..1000 * 32).collect();
/// Table::from_rows(&volume, "ids", &rows, 32)?;
///
/// let table = Table::open(&volume, "ids").build()?;
/// let out = volume.allocate_data(2 * table.layout().row_bytes() as usize)?;
/// table.gather(&[3u64, 500], &out)?;
/// assert_eq!(out.get_slice::<u32>(0, 33)?[31..], [127, 16_000]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Table(Arc<Inner>);

struct Inner {
    /// Counters for monitoring. Dropped first, so that nothing reads them later.
    _metrics: Registration,
    name: String,
    layout: TableLayout,
    reads: RowReads,
    view: abi::TableView,
    in_flight: Option<u32>,
    warps: Option<u32>,
    /// Memory of batches that are not in flight, to be used again.
    batches: Mutex<Vec<Batch>>,
    staging: Staging,
    /// Memory of writes, one of which is made at a time.
    writer: Mutex<Option<Writer>>,
    /// True if a write has failed and the caches may have rows that differ from the volume's.
    stale: Mutex<bool>,
    /// Memory that the view names.
    memory: TableMemory,
    volume: Volume,
}

/// Kernels get a table as a `wb_table_view`.
impl KernelArg for Table {
    fn push(&self, args: &mut Args) {
        args.push_value(self.view());
        args.keep(self.0.clone());
    }
}

impl Table {
    /// Begins to open the table called `name` ([`TableBuilder::build`]).
    pub fn open(volume: &Volume, name: &str) -> TableBuilder {
        TableBuilder::new(volume, name)
    }

    /// Returns the `wb_table_view`, the form in which kernels get the table: `table_ref` of `table.cuh` is made from it.
    ///
    /// The view holds addresses of memory that the table owns. It stays valid while a clone of the table lives; kernels that
    /// use it must have ended before the last clone is dropped. A run ensures that for a launch with the table among its
    /// arguments, and for [`Run::keep`](crate::engine::Run::keep). The values are for kernels of this process and of
    /// the table's engine.
    pub fn view(&self) -> abi::TableView {
        self.0.view
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Returns number, type and shape of the rows.
    pub fn layout(&self) -> &TableLayout {
        &self.0.layout
    }

    /// Returns the volume that holds the table.
    pub fn volume(&self) -> &Volume {
        &self.0.volume
    }

    /// Allocates memory for `rows` rows, to which rows are gathered best: the devices reach it directly if rows are whole blocks and may
    /// land there.
    ///
    /// # Errors
    /// [`StorageError::Memory`] or [`StorageError::Dma`] if memory cannot be allocated.
    ///
    /// # Examples
    ///
    /// ```
    /// use warpbell::engine::Engine;
    /// use warpbell::storage::{Drive, ElementType, OverwritePolicy, Table, Volume};
    ///
    /// let drive = Drive::create("soft:mem", 1 << 20, &OverwritePolicy::none())?;
    /// let volume = Volume::on(&Engine::cpu()?, [drive]).build()?;
    /// let table = Table::create(&volume, "vectors", ElementType::F32, 16, 1000)?;
    /// let rows = table.allocate_rows(3)?;
    /// assert_eq!(rows.len(), 3 * 64);
    /// table.gather(&[7u64, 8, 7], &rows)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn allocate_rows(&self, rows: u64) -> Result<DataBuffer, StorageError> {
        batch::allocate(self, batch::row_bytes(self, rows))
    }

    /// Gathers rows: row `indices[i]` comes to byte `i` times [`TableLayout::row_bytes`] of the output. Waits for all of
    /// them. Several threads may gather at the same time.
    ///
    /// # Errors
    /// * [`TableError::Index`] if an index is no row.
    /// * [`TableError::Bytes`] if the output is too small; [`StorageError::Option`] if it is memory of another engine.
    /// * [`StorageError::Run`] if a row cannot be read; the output is then incomplete, and commands that were given up may
    ///   still write to it. Other batches that are in flight on the engine fail with it. Once none is in flight, the next one works if the device does.
    /// * [`StorageError::Memory`], [`StorageError::Dma`] or [`StorageError::Engine`] if memory of the batch cannot be
    ///   allocated, or the engine starts no kernel.
    pub fn gather<'a>(
        &self,
        indices: impl Into<RowIndices<'a>>,
        out: impl Into<RowOutput<'a>>,
    ) -> Result<(), StorageError> {
        self.start(indices, out)?.finish(NO_LIMIT)
    }

    /// Gathers rows and returns their elements.
    ///
    /// # Errors
    /// [`TableError::Type`] if the table holds elements of another type; otherwise as for [`Table::gather`].
    pub fn gather_to_vec<'a, T: Element>(&self, indices: impl Into<RowIndices<'a>>) -> Result<Vec<T>, StorageError> {
        self.check_type(T::TYPE)?;
        self.prefetch(indices)?.take(NO_LIMIT)?.to_vec()
    }

    /// Drops all rows from the row caches, so that the next gather reads them from the devices. Hot rows stay, and are read
    /// again.
    ///
    /// # Errors
    /// [`StorageError::Engine`] if the engine starts no kernel; [`StorageError::Run`] if a hot row cannot be read.
    pub fn drop_caches(&self) -> Result<(), StorageError> {
        let mut stale = self.0.stale.lock();
        *stale = true;
        self.refresh_if(&mut stale)
    }

    /// Makes caches and hot rows agree with the volume again, if a write has failed. Nobody passes while that is under way.
    fn refresh(&self) -> Result<(), StorageError> {
        self.refresh_if(&mut self.0.stale.lock())
    }

    fn refresh_if(&self, stale: &mut bool) -> Result<(), StorageError> {
        if *stale {
            self.drop_rows()?;
            self.read_hot_rows()?;
            *stale = false;
        }
        Ok(())
    }

    fn drop_rows(&self) -> Result<(), StorageError> {
        if self.0.memory.caches.is_empty() {
            return Ok(());
        }
        let (engine, kernel) = (self.0.volume.engine(), "wb_table_drop");
        let grid = batch::grid(engine, kernel, u64::MAX)?;
        // A row of host memory may be copied near the kernels, so it is dropped there first.
        for tier in (0..abi::ROW_TIERS as u32).rev() {
            // SAFETY: these are the arguments that the kernel takes.
            unsafe { engine.launch(kernel, grid, crate::args!(self, tier)) }?.finish()?;
        }
        Ok(())
    }

    /// Reads the hot rows from the devices into their frames.
    fn read_hot_rows(&self) -> Result<(), StorageError> {
        let Some(hot) = &self.0.memory.hot else { return Ok(()) };
        let mut batch = Batch::new(self.0.volume.engine(), 0)?;
        let plain = self.0.memory.plain(&self.0.view);
        batch.start_gather(self, &plain, RowIndices::from(&hot.rows), RowOutput::from(&hot.frames), None)?;
        batch.finish(self, NO_LIMIT)
    }

    fn check_type(&self, asked: ElementType) -> Result<(), TableError> {
        let found = self.layout().element();
        if self.layout().is_held_by(asked) {
            Ok(())
        } else {
            Err(TableError::Type { name: self.name().to_owned(), found, asked })
        }
    }

    fn take_batch(&self) -> Result<Batch, StorageError> {
        self.refresh()?;
        let free = self.0.batches.lock().pop();
        free.map_or_else(|| Batch::new(self.0.volume.engine(), 0), Ok)
    }

    fn give_back(&self, batch: Batch) {
        if batch.is_usable() {
            self.0.batches.lock().push(batch);
        }
    }

    /// Returns the error of a kernel of this table: an index that is no row by its own error.
    fn run_error(&self, e: RunError) -> StorageError {
        let RunError::Operations { errors, .. } = &e else { return e.into() };
        match errors.iter().filter_map(|e| e.table_index()).min() {
            Some((position, index, rows)) => {
                TableError::Index { name: self.name().to_owned(), position, index, rows }.into()
            }
            None => e.into(),
        }
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let layout = self.layout();
        write!(f, "Table({}, {} rows of {} bytes)", self.name(), layout.rows(), layout.row_bytes())
    }
}
