//! Writing of rows by number.

use super::batch::{Batch, allocate, check_sizes};
use super::indices::Rows;
use super::{RowIndices, RowInput, RowOutput, Table};
use crate::engine::{Args, NO_LIMIT, abi};
use crate::storage::{Cache, DataBuffer, ElementType, StorageError};

/// Memory of the page cache through which rows are written that are not whole blocks.
const PAGES_BYTES: u64 = 16 << 20;
/// Page of that cache, unless the volume has larger blocks or shorter commands.
const PAGE: usize = 4096;

/// Treatment of a row that several positions of a batch name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Combine {
    /// The row at the highest position is stored.
    Last,
    /// The sum of their rows is stored, element by element. For f32, f64, and integers of 32 or 64 bits, which wrap around.
    Sum,
    /// The sum of their rows is added to the row that is stored.
    Add,
}

/// Memory of a write.
pub(super) struct Writer {
    batch: Batch,
    /// Rows that were copied from memory of the program.
    rows: Option<DataBuffer>,
    pages: Option<Cache>,
}

impl Table {
    /// Writes rows: row `i` of `rows` to row `indices[i]` of the table. Returns when the rows are on the devices, and every
    /// later gather finds them. They are durable after [`Table::flush`]. Writes of a table and its clones are made one after
    /// the other. Order those of several tables that were opened under one name yourself, and call [`Table::drop_caches`] of
    /// the others afterwards.
    ///
    /// A gather at the same time finds the old row, the new one, or a mix of both. Sums of floating-point
    /// numbers are rounded in no particular order.
    ///
    /// # Errors
    /// * [`TableError::Index`](super::TableError::Index) if an index is no row; nothing was written then.
    /// * [`TableError::Type`](super::TableError::Type) if `rows` are elements of another type, and
    ///   [`TableError::Layout`](super::TableError::Layout) if elements of the table's type have no sum.
    /// * [`TableError::Bytes`](super::TableError::Bytes) if `rows` is a list of another number of rows than there are
    ///   indices, or memory with fewer.
    /// * [`StorageError::Run`] if rows cannot be written or, to be added to, read. Some may have been written then.
    /// * Otherwise as for [`Table::gather`].
    ///
    /// # Examples
    ///
    /// ```
    /// use warpbell::engine::Engine;
    /// use warpbell::storage::{Combine, Drive, ElementType, OverwritePolicy, Table, Volume};
    ///
    /// let drive = Drive::create("soft:mem", 1 << 20, &OverwritePolicy::none())?;
    /// let volume = Volume::on(&Engine::cpu()?, [drive]).build()?;
    /// let table = Table::create(&volume, "vectors", ElementType::F32, 16, 1000)?;
    ///
    /// // Gradients of three positions, two of which are of one row.
    /// table.scatter(&[7u64, 8, 7], &[0.5f32; 3 * 16], Combine::Add)?;
    /// table.flush()?;
    /// assert_eq!(table.gather_to_vec::<f32>(&[7u64, 8])?[15..17], [1.0, 0.5]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn scatter<'a>(
        &self,
        indices: impl Into<RowIndices<'a>>,
        rows: impl Into<RowInput<'a>>,
        combine: Combine,
    ) -> Result<(), StorageError> {
        let (indices, rows) = (indices.into(), rows.into());
        self.check_rows(indices, rows, combine)?;
        if indices.is_empty() {
            return Ok(());
        }
        self.refresh()?;
        let mut slot = self.0.writer.lock();
        let mut writer = match slot.take() {
            Some(writer) => writer,
            None => Writer { batch: Batch::new(self.volume().engine(), 0xff)?, rows: None, pages: None },
        };
        let written = writer.write(self, indices, rows, combine);
        if written.is_ok() {
            *slot = Some(writer);
        }
        written
    }

    /// Makes rows that were written durable: [`Volume::flush`](crate::storage::Volume::flush) of the table's volume.
    ///
    /// # Errors
    /// As for [`Volume::flush`](crate::storage::Volume::flush).
    pub fn flush(&self) -> Result<(), StorageError> {
        self.volume().flush()
    }

    fn check_rows(&self, indices: RowIndices<'_>, rows: RowInput<'_>, combine: Combine) -> Result<(), StorageError> {
        use super::TableError::{Bytes, Layout};
        use ElementType::{F32, F64, I32, I64, U32, U64};
        let element = self.layout().element();
        let needed = indices.len().saturating_mul(self.layout().row_bytes());
        match rows.0 {
            Rows::Elements { bytes, element } => {
                self.check_type(element)?;
                check_sizes(self, indices, None, bytes.len() as u64)?;
                if bytes.len() as u64 != needed {
                    let (name, given) = (self.name().to_owned(), bytes.len() as u64);
                    return Err(Bytes { name, indices: indices.len(), needed, given }.into());
                }
            }
            Rows::Memory(memory) => {
                let memory = RowOutput(memory);
                check_sizes(self, indices, Some(memory.space()), memory.bytes())?;
            }
        }
        if combine != Combine::Last && ![F32, F64, I32, I64, U32, U64].contains(&element) {
            let name = self.name();
            let why = format!(
                "table `{name}`: elements of type {element} have no sum; write the last row of each, or use f32"
            );
            return Err(Layout(why).into());
        }
        Ok(())
    }
}

impl Writer {
    fn write(
        &mut self,
        table: &Table,
        indices: RowIndices<'_>,
        rows: RowInput<'_>,
        combine: Combine,
    ) -> Result<(), StorageError> {
        match rows.0 {
            Rows::Memory(memory) => self.write_from(table, indices, RowOutput(memory), combine),
            Rows::Elements { bytes, .. } => {
                let copy = self.copied(table, bytes)?;
                let written = self.write_from(table, indices, RowOutput::from(&copy), combine);
                self.rows = Some(copy);
                written
            }
        }
    }

    fn write_from(
        &mut self,
        table: &Table,
        indices: RowIndices<'_>,
        given: RowOutput<'_>,
        combine: Combine,
    ) -> Result<(), StorageError> {
        let sums = match combine {
            Combine::Last => None,
            Combine::Sum | Combine::Add => Some(self.batch.take_own(table, indices.len())?),
        };
        let source = sums.as_ref().map_or(given, RowOutput::from);
        // Rows that are not whole blocks go through pages.
        let staged = table.0.reads.aligned && !source.is_reached_by(table.volume());
        let scratch = self.batch.scratch(table, indices.len(), staged, table.0.in_flight)?;
        let call = Call { table, indices, scratch };
        call.run(&mut self.batch, "wb_table_scatter_claim", |args| args)?;
        if let Some(sums) = &sums {
            self.sum(&call, given, sums, combine)?;
        }
        let put = self.put(&call, source);
        let put = put.and_then(|()| call.run(&mut self.batch, "wb_table_scatter_complete", |args| args.with(source)));
        if put.is_err() {
            // Rows on the devices may differ from those of caches.
            *table.0.stale.lock() = true;
        }
        self.batch.release();
        if let Some(sums) = sums {
            self.batch.return_own(sums);
        }
        put
    }

    /// Copies rows of the program to memory that kernels read.
    fn copied(&mut self, table: &Table, bytes: &[u8]) -> Result<DataBuffer, StorageError> {
        let buffer = match self.rows.take().filter(|buffer| buffer.len() >= bytes.len()) {
            Some(buffer) => buffer,
            None => allocate(table, bytes.len())?,
        };
        buffer.write(0, bytes)?;
        Ok(buffer)
    }

    /// Sums the rows of each index in memory, where the position that acts for the index is.
    fn sum(
        &mut self,
        call: &Call<'_>,
        given: RowOutput<'_>,
        sums: &DataBuffer,
        combine: Combine,
    ) -> Result<(), StorageError> {
        let (table, indices) = (call.table, call.indices);
        if combine == Combine::Add {
            table.start(indices, sums)?.finish(NO_LIMIT)?;
        } else {
            sums.fill(0, (indices.len() * table.layout().row_bytes()) as usize, 0)?;
        }
        let element = table.layout().element();
        let bytes = element.bytes().unwrap_or(0);
        let real = u32::from(matches!(element, ElementType::F32 | ElementType::F64));
        call.run(&mut self.batch, "wb_table_scatter_add", |args| args.with(given).with(sums).with(bytes).with(real))
    }

    /// Writes the rows of the positions that act to the devices.
    fn put(&mut self, call: &Call<'_>, source: RowOutput<'_>) -> Result<(), StorageError> {
        let table = call.table;
        if table.0.reads.aligned {
            return call.run(&mut self.batch, "wb_table_scatter_write", |args| args.with(source));
        }
        let pages = match self.pages.take() {
            Some(pages) => pages,
            None => pages_of(table)?,
        };
        call.run(&mut self.batch, "wb_table_scatter_write_pages", |args| args.with(source).with(&pages))?;
        pages.flush()?;
        // Other programs, or other writes of this one, may change the blocks before the next write.
        pages.reset()?;
        self.pages = Some(pages);
        Ok(())
    }
}

/// One write: arguments that all of its kernels take.
struct Call<'a> {
    table: &'a Table,
    indices: RowIndices<'a>,
    scratch: abi::TableScratch,
}

impl Call<'_> {
    /// Runs a kernel with more arguments behind those that all take, and waits for it.
    fn run(&self, batch: &mut Batch, kernel: &str, more: impl FnOnce(Args) -> Args) -> Result<(), StorageError> {
        let args = Args::new().with(self.table);
        let wide = u32::from(self.indices.width() == 8);
        let args = batch.with_indices(self.table.volume(), self.indices, args)?.with(wide).with(self.indices.len());
        let args = more(batch.with_scratch(self.scratch, args));
        let warps = self.indices.len().min(self.scratch.in_flight.into());
        // SAFETY: the callers pass the arguments of the kernels of kernels/storage/table.cu. Lengths of indices and rows were
        // compared, and the owners of all memory are kept.
        unsafe { batch.run(self.table, kernel, warps, args) }
    }
}

/// Makes the page cache for rows that are not whole blocks.
fn pages_of(table: &Table) -> Result<Cache, StorageError> {
    let volume = table.volume();
    let fits = |page: usize| {
        page >= volume.block_bytes()
            && page <= volume.max_transfer_bytes()
            && (volume.devices() == 1 || volume.chunk_bytes().is_multiple_of(page as u64))
    };
    let page = if fits(PAGE) { PAGE } else { volume.block_bytes() };
    Cache::on(volume).bytes(PAGES_BYTES).page(page).build()
}
