//! One batch of rows at a time: its stream, and memory that is used again for the next batch.

use super::indices::{Memory, Source};
use super::{RowIndices, RowOutput, Table, TableError};
use crate::engine::{Args, Engine, Grid, Stream, abi};
use crate::memory::{MemoryError, Place, Region};
use crate::storage::{DataBuffer, LandingPath, StorageError, Volume};
use bytemuck::{Pod, Zeroable};
use std::time::Duration;

/// Time limit of batches that are waited for without one: waits inside kernels have deadlines.
pub(super) const FOREVER: Duration = Duration::from_secs(365 * 24 * 3600);
/// Threads of a block, as the kernels are compiled for.
const THREADS: u32 = 128;
/// Last epoch of a hash table, which is cleared then.
const LAST_EPOCH: u32 = 65_534;
/// Fewest slots of a hash table.
const FEWEST_SLOTS: u64 = 1024;

/// Stream and memory of one batch.
pub(super) struct Batch {
    stream: Stream,
    indices: Option<Region>,
    slots: Slots,
    staging: Option<DataBuffer>,
    /// Output of the batch, unless it goes to memory of the caller.
    own: Option<DataBuffer>,
}

/// The hash table of a batch (`table/batch.cuh`).
#[derive(Default)]
struct Slots {
    region: Option<Region>,
    count: u64,
    epoch: u32,
}

impl Slots {
    /// Makes a table for `rows` rows, or begins another epoch of the one that there is.
    fn prepare(&mut self, engine: &Engine, rows: u64, fill: u8) -> Result<(), MemoryError> {
        let bytes = |slots: u64| usize::try_from(slots.saturating_mul(16)).unwrap_or(usize::MAX);
        let wanted = rows.saturating_mul(2).max(FEWEST_SLOTS).checked_next_power_of_two().unwrap_or(u64::MAX);
        if self.region.is_none() || self.count < wanted {
            self.region = None;
            let region = engine.allocate(Place::Device, bytes(wanted))?;
            if fill != 0 {
                region.fill(0, bytes(wanted), fill)?;
            }
            (self.region, self.count, self.epoch) = (Some(region), wanted, 0);
        }
        if self.epoch == LAST_EPOCH
            && let Some(region) = &self.region
        {
            region.fill(0, bytes(self.count), fill)?;
            self.epoch = 0;
        }
        self.epoch += 1;
        Ok(())
    }
}

impl Batch {
    pub(super) fn new(engine: &Engine) -> Result<Self, StorageError> {
        Ok(Self { stream: engine.stream()?, indices: None, slots: Slots::default(), staging: None, own: None })
    }

    /// Starts to gather rows into memory of the caller, which the stream keeps.
    pub(super) fn start_gather(
        &mut self,
        table: &Table,
        indices: RowIndices<'_>,
        out: RowOutput<'_>,
    ) -> Result<(), StorageError> {
        check(table, indices, out)?;
        let volume = table.volume();
        if indices.is_empty() {
            return Ok(());
        }
        let direct = out.is_registered() || volume.path().landing == LandingPath::Bounce;
        let scratch = self.scratch(table, indices.len(), !(direct && table.0.parts.aligned))?;
        let kernel = if indices.width() == 4 { "wb_table_gather_u32" } else { "wb_table_gather_u64" };
        let args = Args::new().with(table);
        let args = self.with_indices(volume, indices, args)?.with(indices.len()).with(out);
        let args = self.with_scratch(scratch, args);
        let grid = grid(volume.engine(), kernel, indices.len().min(scratch.in_flight.into()))?;
        // SAFETY: these are the arguments that the kernel takes. `check` has compared the lengths of indices and output, both
        // in the engine's address space. The stream keeps the owners of all memory until it was waited for.
        Ok(unsafe { self.stream.launch(kernel, grid, args) }?)
    }

    /// Starts to gather rows into memory of the batch.
    pub(super) fn gather_to_own(&mut self, table: &Table, indices: RowIndices<'_>) -> Result<(), StorageError> {
        let bytes = indices.len().saturating_mul(table.layout().row_bytes());
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let own = match self.own.take().filter(|own| own.len() >= bytes) {
            Some(own) => own,
            None => table.volume().allocate_data(bytes)?,
        };
        let started = self.start_gather(table, indices, RowOutput(Memory::Buffer(&own)));
        self.own = Some(own);
        started
    }

    /// Returns the first elements of the batch's own output.
    pub(super) fn read_own<T: Pod>(&self, count: usize) -> Result<Vec<T>, StorageError> {
        self.own.as_ref().map_or_else(|| Ok(Vec::new()), |own| own.get_slice(0, count))
    }

    /// Waits at most `within` for the batch.
    pub(super) fn finish(&mut self, table: &Table, within: Duration) -> Result<(), StorageError> {
        self.stream.synchronize(within).map_err(|e| table.run_error(e))?;
        Ok(())
    }

    /// Prepares the memory of a batch of `rows` rows.
    fn scratch(&mut self, table: &Table, rows: u64, staged: bool) -> Result<abi::TableScratch, StorageError> {
        let (volume, parts) = (table.volume(), &table.0.parts);
        let in_flight = parts.in_flight(volume, table.0.in_flight, staged);
        self.slots.prepare(volume.engine(), rows, 0)?;
        let mut scratch = abi::TableScratch {
            slots: self.slots.region.as_ref().map_or(0, Region::address),
            slot_mask: self.slots.count - 1,
            staging_bytes: parts.bytes,
            in_flight,
            epoch: self.slots.epoch,
            ..abi::TableScratch::zeroed()
        };
        if staged {
            let bytes = in_flight as usize * parts.bytes as usize;
            if self.staging.as_ref().is_none_or(|s| s.len() < bytes) {
                self.staging = None;
                self.staging = Some(volume.allocate_data(bytes)?);
            }
            scratch.staging = self.staging.as_ref().map_or(0, DataBuffer::address);
        }
        Ok(scratch)
    }

    /// Appends the scratch, and the owners of its memory.
    fn with_scratch(&self, scratch: abi::TableScratch, mut args: Args) -> Args {
        args.push_value(scratch);
        self.slots.region.iter().for_each(|region| args.keep(region.owner()));
        self.staging.iter().for_each(|staging| staging.keep(&mut args));
        args
    }

    /// Appends the indices. Those in memory of the program are copied to memory of the batch.
    fn with_indices(&mut self, volume: &Volume, indices: RowIndices<'_>, args: Args) -> Result<Args, StorageError> {
        let bytes: &[u8] = match indices.0 {
            Source::Region { region, .. } => return Ok(args.with(region)),
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

/// Checks that indices and output fit each other and the table's engine.
fn check(table: &Table, indices: RowIndices<'_>, out: RowOutput<'_>) -> Result<(), StorageError> {
    let name = table.name();
    let space = table.volume().engine().space();
    let foreign = |what: &str| {
        let why =
            format!("table `{name}`: the {what} are memory of another engine: use the engine of the table's volume");
        Err(StorageError::Option(why))
    };
    if let Source::Region { region, count, .. } = indices.0 {
        if !region.space().same(space) {
            return foreign("indices");
        }
        let (has, needed) = (region.len() as u64, count.saturating_mul(indices.width()));
        if needed > has {
            return Err(StorageError::Option(format!(
                "table `{name}`: {count} indices have {needed} bytes and their region has {has}: allocate a larger one"
            )));
        }
    }
    if !out.space().same(space) {
        return foreign("rows");
    }
    let needed = indices.len().saturating_mul(table.layout().row_bytes());
    if needed > out.bytes() {
        return Err(
            TableError::Bytes { name: name.to_owned(), indices: indices.len(), needed, given: out.bytes() }.into()
        );
    }
    Ok(())
}

/// Returns the grid of a kernel for `warps` warps, or as many as the engine holds at once.
fn grid(engine: &Engine, kernel: &str, warps: u64) -> Result<Grid, StorageError> {
    let full = engine.grid(THREADS, engine.occupancy(kernel, THREADS)?);
    let each = u64::from((full.threads / engine.warp_width()).max(1));
    Ok(Grid { blocks: warps.div_ceil(each).clamp(1, full.blocks.into()) as u32, ..full })
}
