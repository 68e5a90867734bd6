//! Memory of batches that kernels of the program gather.

use super::Table;
use super::batch::Batch;
use crate::engine::{Args, KernelArg, abi};
use crate::storage::{DataBuffer, StorageError};
use bytemuck::Zeroable;

/// Memory of one batch at a time, for kernels of the program that gather rows (`table_ref` of `table.cuh`): staging memory
/// of reads, and the hash table that finds duplicates.
///
/// # Examples
///
/// ```
/// use warpbell::args;
/// use warpbell::engine::Engine;
/// use warpbell::memory::Place;
/// use warpbell::storage::{Drive, OverwritePolicy, Table, Volume};
///
/// let engine = Engine::cpu()?;
/// let drive = Drive::create("soft:mem", 1 << 20, &OverwritePolicy::none())?;
/// let volume = Volume::on(&engine, [drive]).build()?;
/// let table = Table::from_rows(&volume, "ids", &(0..1000u32 * 32).collect::<Vec<_>>(), 32)?;
///
/// let (indices, out) = (engine.allocate(Place::Device, 4096)?, engine.allocate(Place::Device, 3 * 128)?);
/// indices.set_slice(0, &[5u64, 5, 6])?;
/// let mut scratch = table.scratch(3, 64)?;
/// scratch.begin()?;
/// // SAFETY: these are the types of the parameters of this kernel, which calls `gather_grid`.
/// let run = unsafe {
///     engine.launch("wb_table_gather_u64", engine.grid(128, 1), args!(&table, &indices, 3u64, &out, &scratch))
/// }?;
/// run.finish()?;
/// assert_eq!(out.get_slice::<u32>(128, 33)?[31..], [191, 192]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TableScratch {
    table: Table,
    batch: Batch,
    rows: u64,
    in_flight: u32,
    staging: DataBuffer,
    view: abi::TableScratch,
}

impl Table {
    /// Allocates memory for batches of at most `rows` rows, which kernels of the program gather one after the other. All
    /// warps of a batch together have `in_flight` reads in flight, fewer if that takes more than 64 MiB.
    ///
    /// # Errors
    /// [`StorageError::Memory`] or [`StorageError::Dma`] if the memory cannot be allocated, or a device does not reach it;
    /// [`StorageError::Option`] if the volume can register no more memory.
    pub fn scratch(&self, rows: u64, in_flight: u32) -> Result<TableScratch, StorageError> {
        let batch = Batch::new(self.volume().engine(), 0)?;
        let (table, reads) = (self.clone(), &self.0.reads);
        let in_flight = reads.in_flight(self.volume(), Some(in_flight), true);
        let staging = self.volume().allocate_data(in_flight as usize * reads.bytes as usize)?;
        let mut scratch = TableScratch { table, batch, rows, in_flight, staging, view: abi::TableScratch::zeroed() };
        scratch.begin()?;
        Ok(scratch)
    }
}

impl TableScratch {
    /// Begins another batch. Call it before each launch that uses the scratch, when kernels of the batch before have ended.
    /// After a run that failed, allocate another scratch: commands that were given up may still write to this one.
    ///
    /// # Errors
    /// [`StorageError::Memory`] if the hash table cannot be cleared, once in 65,534 batches; [`StorageError::Run`] or
    /// [`StorageError::Engine`] if cached rows cannot be dropped and read again after a write that failed.
    pub fn begin(&mut self) -> Result<(), StorageError> {
        self.table.refresh()?;
        let view = self.batch.scratch(&self.table, self.rows, false, Some(self.in_flight))?;
        self.view = abi::TableScratch { staging: self.staging.address(), ..view };
        Ok(())
    }

    /// Returns the `wb_table_scratch` of this batch, as [`Table::view`] returns the table.
    pub fn view(&self) -> abi::TableScratch {
        self.view
    }
}

/// Kernels get the scratch as a `wb_table_scratch`.
impl KernelArg for TableScratch {
    fn push(&self, args: &mut Args) {
        args.push_value(self.view);
        self.batch.keep(args);
        self.staging.keep(args);
    }
}

impl std::fmt::Debug for TableScratch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TableScratch({} rows of {:?})", self.rows, self.table)
    }
}
