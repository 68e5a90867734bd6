//! One batch of rows at a time: its stream, and memory that is used again for the next batch.

use super::indices::Source;
use super::staging::Slice;
use super::{RowIndices, RowOutput, Table, TableError};
use crate::engine::{Args, Engine, Grid, NO_LIMIT, RunError, Stream, abi};
use crate::memory::{MemoryError, Place, Region, Space};
use crate::storage::{DataBuffer, StorageError, Volume};
use bytemuck::Zeroable;
use std::time::Duration;

/// Threads of a block, as the kernels are compiled for.
const THREADS: u32 = 128;
/// Blocks of a gather on each multiprocessor: 8 warps, each with many reads in flight. More leave no room for kernels beside it, and
/// take their turns to issue instructions, since each warp looks for completions all the time.
const BLOCKS: u32 = 2;
/// Last epoch of a hash table, which is cleared then.
const LAST_EPOCH: u32 = 65_534;
/// Fewest slots of a hash table.
const FEWEST_SLOTS: u64 = 1024;

/// Stream and memory of one batch.
pub(super) struct Batch {
    stream: Stream,
    /// Stream of the batch in flight, and the failed waits there before its launch.
    launched: Option<(Stream, u64)>,
    /// True if a kernel has failed. Commands that were given up may still write to the memory, so no other batch gets it.
    failed: bool,
    indices: Option<Region>,
    slots: Slots,
    staging: Option<Slice>,
    /// Rows of the batch, unless they are in memory of the caller.
    own: Option<DataBuffer>,
}

/// The hash table of a batch (`table/batch.cuh`).
struct Slots {
    /// Value of all bytes at first.
    fill: u8,
    region: Option<Region>,
    count: u64,
    epoch: u32,
}

impl Slots {
    /// Makes a table for `rows` rows, or begins another epoch of the one that there is.
    fn prepare(&mut self, engine: &Engine, rows: u64) -> Result<(), MemoryError> {
        let bytes = |slots: u64| usize::try_from(slots.saturating_mul(16)).unwrap_or(usize::MAX);
        let wanted = rows.saturating_mul(2).max(FEWEST_SLOTS).checked_next_power_of_two().unwrap_or(u64::MAX);
        if self.region.is_none() || self.count < wanted {
            self.region = None;
            let region = engine.allocate(Place::Device, bytes(wanted))?;
            if self.fill != 0 {
                region.fill(0, bytes(wanted), self.fill)?;
            }
            (self.region, self.count, self.epoch) = (Some(region), wanted, 0);
        }
        if self.epoch == LAST_EPOCH
            && let Some(region) = &self.region
        {
            region.fill(0, bytes(self.count), self.fill)?;
            self.epoch = 0;
        }
        self.epoch += 1;
        Ok(())
    }
}

impl Batch {
    /// Makes a batch whose hash table is filled with this byte at first.
    pub(super) fn new(engine: &Engine, fill: u8) -> Result<Self, StorageError> {
        let slots = Slots { fill, region: None, count: 0, epoch: 0 };
        Ok(Self {
            stream: engine.stream()?,
            launched: None,
            failed: false,
            indices: None,
            slots,
            staging: None,
            own: None,
        })
    }

    /// Starts to gather rows into memory of the caller, which the stream keeps: a stream of the batch's own, or `on`. `view`
    /// is the table's, or a part of it.
    pub(super) fn start_gather(
        &mut self,
        table: &Table,
        view: &abi::TableView,
        indices: RowIndices<'_>,
        out: RowOutput<'_>,
        on: Option<&Stream>,
    ) -> Result<(), StorageError> {
        check(table, indices, out)?;
        let volume = table.volume();
        if indices.is_empty() {
            return Ok(());
        }
        let direct = out.is_reached_by(volume);
        let scratch = self.scratch(table, indices.len(), !(direct && table.0.reads.aligned), table.0.in_flight)?;
        let kernel = if indices.width() == 4 { "wb_table_gather_u32" } else { "wb_table_gather_u64" };
        let mut args = Args::new();
        args.push_value(*view);
        args.keep(table.0.clone());
        let args = self.with_indices(volume, indices, args)?.with(indices.len()).with(out);
        let args = self.with_scratch(scratch, args);
        let grid = gather_grid(table, kernel, indices.len().min(scratch.in_flight.into()))?;
        // SAFETY: these are the arguments that the kernel takes. `check` has compared the lengths of indices and output, both
        // in the engine's address space. The stream keeps the owners of all memory until it was waited for.
        unsafe { self.launch(on, kernel, grid, args) }
    }

    /// Starts to gather rows into memory of the batch.
    pub(super) fn gather_to_own(&mut self, table: &Table, indices: RowIndices<'_>) -> Result<(), StorageError> {
        let own = self.take_own(table, indices.len())?;
        let started = self.start_gather(table, &table.0.view, indices, RowOutput::from(&own), None);
        self.own = Some(own);
        started
    }

    /// Takes memory for `rows` rows, that of an earlier batch if it is large enough.
    pub(super) fn take_own(&mut self, table: &Table, rows: u64) -> Result<DataBuffer, StorageError> {
        let bytes = row_bytes(table, rows);
        match self.own.take().filter(|own| own.len() >= bytes) {
            Some(own) => Ok(own),
            None => allocate(table, bytes),
        }
    }

    /// Returns the memory that `take_own` took to the batch.
    pub(super) fn return_own(&mut self, own: DataBuffer) {
        self.own = Some(own);
    }

    /// Returns the batch's own memory.
    pub(super) fn own(&self) -> Option<&DataBuffer> {
        self.own.as_ref()
    }

    /// Launches a kernel of the batch on a stream of the caller, or on the own one.
    ///
    /// # Safety
    /// As for [`Stream::launch`].
    unsafe fn launch(&mut self, on: Option<&Stream>, kernel: &str, grid: Grid, args: Args) -> Result<(), StorageError> {
        let stream = on.unwrap_or(&self.stream);
        // Before the launch: another thread's wait may fail right after it.
        let failed_waits = stream.failed_waits();
        // SAFETY: the caller's promise.
        unsafe { stream.launch(kernel, grid, args) }?;
        self.launched = Some((stream.clone(), failed_waits));
        Ok(())
    }

    /// Waits at most `within` for the batch. Returns true if it is over, or has failed.
    pub(super) fn wait_for(&self, table: &Table, within: Duration) -> Result<bool, StorageError> {
        let Some((stream, _)) = &self.launched else { return Ok(true) };
        stream.wait(within).map_err(|e| table.run_error(e))
    }

    /// Returns true if the batch is over.
    pub(super) fn is_finished(&self, table: &Table) -> Result<bool, StorageError> {
        let Some((stream, _)) = &self.launched else { return Ok(true) };
        stream.is_finished().map_err(|e| table.run_error(e))
    }

    /// Returns true if the memory may serve another batch.
    pub(super) fn is_usable(&self) -> bool {
        !self.failed
    }

    /// Waits at most `within` for the batch, and gives its staging memory back.
    pub(super) fn finish(&mut self, table: &Table, within: Duration) -> Result<(), StorageError> {
        self.wait(table, within)?;
        self.release();
        Ok(())
    }

    fn wait(&mut self, table: &Table, within: Duration) -> Result<(), StorageError> {
        let Some((stream, failed_waits)) = self.launched.take() else { return Ok(()) };
        let ended = stream.synchronize(within).and_then(|_| match stream.failed_waits() {
            same if same == failed_waits => Ok(()),
            // That wait has returned the error, and emptied the stream.
            _ => {
                let reason =
                    "an earlier wait for its stream has failed, so its rows may be incomplete; gather them again";
                Err(RunError::Stopped { kernel: "a gather".to_owned(), reason: reason.to_owned(), errors: Vec::new() })
            }
        });
        ended.map_err(|e| {
            self.failed = true;
            self.staging.take().iter().for_each(Slice::spoil);
            table.run_error(e)
        })
    }

    /// Runs one of the kernels that write rows, and waits for it. The batch keeps its staging memory for the next one.
    ///
    /// # Safety
    /// The kernel takes `args`, which keep the owners of all memory that they name.
    pub(super) unsafe fn run(
        &mut self,
        table: &Table,
        kernel: &str,
        warps: u64,
        args: Args,
    ) -> Result<(), StorageError> {
        let grid = grid(table.volume().engine(), kernel, warps)?;
        // SAFETY: the caller's promise.
        unsafe { self.launch(None, kernel, grid, args) }?;
        self.wait(table, NO_LIMIT)
    }

    /// Prepares the memory of a batch of `rows` rows.
    pub(super) fn scratch(
        &mut self,
        table: &Table,
        rows: u64,
        staged: bool,
        in_flight: Option<u32>,
    ) -> Result<abi::TableScratch, StorageError> {
        let (volume, parts) = (table.volume(), &table.0.reads);
        let in_flight = parts.in_flight(volume, in_flight, staged);
        self.slots.prepare(volume.engine(), rows)?;
        let mut scratch = abi::TableScratch {
            slots: self.slots.region.as_ref().map_or(0, Region::address),
            slot_mask: self.slots.count - 1,
            staging_bytes: parts.bytes,
            in_flight,
            epoch: self.slots.epoch,
            ..abi::TableScratch::zeroed()
        };
        self.release();
        if staged {
            let slice = table.0.staging.take(volume, in_flight, parts.bytes)?;
            (scratch.staging, scratch.in_flight) = (slice.address(), slice.reads.min(in_flight));
            self.staging = Some(slice);
        }
        Ok(scratch)
    }

    /// Appends the scratch, and the owners of its memory.
    pub(super) fn with_scratch(&self, scratch: abi::TableScratch, mut args: Args) -> Args {
        args.push_value(scratch);
        self.keep(&mut args);
        args
    }

    /// Gives the staging memory back, which no kernel uses any more.
    pub(super) fn release(&mut self) {
        self.staging = None;
    }

    /// Keeps the memory of the scratch until a kernel has ended.
    pub(super) fn keep(&self, args: &mut Args) {
        self.slots.region.iter().for_each(|region| args.keep(region.owner()));
        self.staging.iter().for_each(|slice| args.keep(slice.buffer.clone()));
    }

    /// Appends the indices. Those in memory of the program are copied to memory of the batch.
    pub(super) fn with_indices(
        &mut self,
        volume: &Volume,
        indices: RowIndices<'_>,
        args: Args,
    ) -> Result<Args, StorageError> {
        let bytes: &[u8] = match indices.0 {
            Source::Memory { memory, .. } => return Ok(args.with(RowOutput(memory))),
            Source::U32(list) => bytemuck::cast_slice(list),
            Source::U64(list) => bytemuck::cast_slice(list),
        };
        let region = match self.indices.take().filter(|r| r.len() >= bytes.len()) {
            Some(region) => region,
            None => volume.engine().allocate(Place::Device, bytes.len())?,
        };
        region.write(0, bytes)?;
        let args = args.with(&region);
        self.indices = Some(region);
        Ok(args)
    }
}

/// Returns the bytes of `rows` rows, or the largest number if no memory holds them.
pub(super) fn row_bytes(table: &Table, rows: u64) -> usize {
    usize::try_from(rows.saturating_mul(table.layout().row_bytes())).unwrap_or(usize::MAX)
}

/// Allocates memory for rows. The devices reach it directly if rows may land there and the volume can register more memory;
/// otherwise the rows go through staging memory.
pub(super) fn allocate(table: &Table, bytes: usize) -> Result<DataBuffer, StorageError> {
    if !table.0.reads.aligned {
        return table.volume().disk().allocate_unmapped(bytes);
    }
    match table.volume().allocate_data(bytes) {
        Err(StorageError::Option(_)) => table.volume().disk().allocate_unmapped(bytes),
        other => other,
    }
}

/// Checks that indices and output fit each other and the table's engine.
fn check(table: &Table, indices: RowIndices<'_>, out: RowOutput<'_>) -> Result<(), StorageError> {
    check_sizes(table, indices, Some(out.space()), out.bytes())
}

/// Checks that indices and `bytes` bytes of rows fit each other, and that both are memory of the table's engine.
pub(super) fn check_sizes(
    table: &Table,
    indices: RowIndices<'_>,
    rows: Option<&Space>,
    bytes: u64,
) -> Result<(), StorageError> {
    let name = table.name();
    let space = table.volume().engine().space();
    let foreign = |what: &str| {
        let why =
            format!("table `{name}`: the {what} are memory of another engine: use the engine of the table's volume");
        Err(StorageError::Option(why))
    };
    if let Source::Memory { memory, count, .. } = indices.0 {
        let memory = RowOutput(memory);
        if !memory.space().same(space) {
            return foreign("indices");
        }
        let (has, needed) = (memory.bytes(), count.saturating_mul(indices.width()));
        if needed > has {
            return Err(StorageError::Option(format!(
                "table `{name}`: {count} indices have {needed} bytes and their memory has {has}: allocate more of it"
            )));
        }
    }
    if rows.is_some_and(|rows| !rows.same(space)) {
        return foreign("rows");
    }
    let needed = indices.len().saturating_mul(table.layout().row_bytes());
    if needed > bytes {
        return Err(TableError::Bytes { name: name.to_owned(), indices: indices.len(), needed, given: bytes }.into());
    }
    Ok(())
}

/// Returns the grid of a kernel for `warps` warps, or as many as the engine holds at once.
pub(super) fn grid(engine: &Engine, kernel: &str, warps: u64) -> Result<Grid, StorageError> {
    let blocks = engine.occupancy(kernel, THREADS)?;
    Ok(grid_of(engine, blocks, warps))
}

/// Returns the grid of a gather for `warps` warps at most.
fn gather_grid(table: &Table, kernel: &str, warps: u64) -> Result<Grid, StorageError> {
    let engine = table.volume().engine();
    match table.0.warps {
        Some(most) => grid(engine, kernel, warps.min(most.into())),
        None => Ok(grid_of(engine, BLOCKS.min(engine.occupancy(kernel, THREADS)?), warps)),
    }
}

fn grid_of(engine: &Engine, blocks_per_processor: u32, warps: u64) -> Grid {
    let full = engine.grid(THREADS, blocks_per_processor);
    let each = u64::from((full.threads / engine.warp_width()).max(1));
    Grid { blocks: warps.div_ceil(each).clamp(1, full.blocks.into()) as u32, ..full }
}
