//! Batches: rows that are gathered while the program does something else.

use crate::error::{Error, WB_ERR_STATE, guard, wb_code};
use crate::object::object;
use crate::options;
use crate::pointer::{In, Out, Owned};
use crate::stream::wb_stream_t;
use crate::table::{on_engine, wb_table_t};
use crate::table_rows::{given_indices, given_rows, indices, shared_rows, wb_row_indices, wb_row_memory};
use std::ffi::c_void;
use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};
use warpbell::engine::{NO_LIMIT, RunError};
use warpbell::memory::MemoryError;
use warpbell::storage::{GatheredRows, Gathering, Prefetch, StorageError, Table};

/// Rows of a table on their way to memory. `wb_table_prefetch` and `wb_table_start` make it.
pub struct wb_batch_t {
    _private: (),
}

object!(wb_batch_t: Batch, "batch");

pub(crate) struct Batch {
    table: Table,
    rows: u64,
    state: Mutex<State>,
}

enum State {
    /// In flight to memory of the table.
    Prefetching(Prefetch),
    /// In flight to memory of the program.
    Gathering(Gathering),
    /// A thread waits in `wb_batch_finish`.
    Finishing,
    /// The rows are in memory of the table.
    Rows(GatheredRows),
    /// The rows are in memory of the program.
    Finished,
    Failed,
    /// The kernel did not end when it was told to stop, and may still run.
    Stuck,
}

impl Batch {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bytes(&self) -> usize {
        usize::try_from(self.rows.saturating_mul(self.table.layout().row_bytes())).unwrap_or(usize::MAX)
    }
}

fn wrong_state(why: &str) -> Error {
    Error::new(WB_ERR_STATE, why)
}

/// Returns the rows of a finished batch that are in memory of the table.
fn gathered(state: &State) -> Result<&GatheredRows, Error> {
    match state {
        State::Rows(rows) => Ok(rows),
        State::Prefetching(_) | State::Finishing => {
            Err(wrong_state("the batch is in flight; finish it before its rows are used"))
        }
        State::Gathering(_) | State::Finished => {
            Err(wrong_state("the rows of the batch are in memory of the program, which wb_table_start was given"))
        }
        State::Failed | State::Stuck => Err(wrong_state("the batch has failed, and has no rows; gather them again")),
    }
}

/// Starts to gather rows into memory of the table, on a stream of its own, and returns at once. Several batches may be in
/// flight: each has memory of its own, which later batches use again.
///
/// @param indices Numbers of rows.
/// @param batch Receives the batch. Finish it with `wb_batch_finish`; `wb_batch_address` then has the rows for kernels, and
///   `wb_batch_read` for the host.
/// @return As `wb_table_gather`, as far as the call itself can tell. An index that is no row is an error of `wb_batch_finish`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_table_prefetch(
    table: In<wb_table_t>,
    indices: In<wb_row_indices>,
    batch: Out<*mut wb_batch_t>,
) -> wb_code {
    guard(|| {
        batch.check("batch")?;
        let table = table.get()?;
        let indices = given_indices(indices)?;
        let indices = self::indices(&indices)?;
        let started = State::Prefetching(on_engine(table, |table| table.prefetch(indices))?);
        let made = Batch { table: table.clone(), rows: indices.len(), state: Mutex::new(started) };
        batch.give(made)
    })
}

/// Starts to gather rows into memory of the program, and returns at once. The memory is kept until the batch is over; its
/// contents are undefined until then.
///
/// @param indices Numbers of rows.
/// @param rows A region or a buffer, for at least as many rows.
/// @param stream Stream behind whose work the rows are gathered, and whose later work finds the rows; null for a stream of
///   the table.
/// @param batch Receives the batch. Finish it with `wb_batch_finish`.
/// @return As `wb_table_gather`, as far as the call itself can tell; `WB_ERR_ARGUMENT` if the stream belongs to another engine;
///   `WB_ERR_UNSUPPORTED` if the stream is being captured into a CUDA graph.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_table_start(
    table: In<wb_table_t>,
    indices: In<wb_row_indices>,
    rows: In<wb_row_memory>,
    stream: In<wb_stream_t>,
    batch: Out<*mut wb_batch_t>,
) -> wb_code {
    guard(|| {
        batch.check("batch")?;
        let (table, stream) = (table.get()?, stream.optional()?);
        let (indices, rows) = (given_indices(indices)?, given_rows(rows)?);
        let (indices, rows) = (self::indices(&indices)?, shared_rows(table, &rows)?);
        let started = on_engine(table, |table| match stream {
            Some(stream) => table.start_on(stream, indices, rows),
            None => table.start(indices, rows),
        })?;
        let state = Mutex::new(State::Gathering(started));
        batch.give(Batch { table: table.clone(), rows: indices.len(), state })
    })
}

/// Waits for the rows of a batch. The batch is finished then.
///
/// @param seconds Limit of the wait; 0 for none: reads inside kernels have deadlines. After the limit the reads are told to
///   stop.
/// @return As `wb_table_gather`; `WB_ERR_TIMEOUT` after the limit; `WB_ERR_STATE` if the batch is finished already;
///   `WB_ERR_STOPPED`, or `WB_ERR_OPERATION` with the reads that it has ended, after `wb_engine_cancel`. `WB_ERR_STOPPED` also if
///   an earlier wait for the stream of the batch has failed: the rows may be incomplete then.
/// @note On a stream of the program this waits for all kernels of the stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_batch_finish(batch: In<wb_batch_t>, seconds: f64) -> wb_code {
    guard(|| {
        let within = options::seconds(seconds, "seconds")?.unwrap_or(NO_LIMIT);
        let batch = batch.get()?;
        let flight = {
            let mut state = batch.state();
            match &*state {
                State::Prefetching(_) | State::Gathering(_) => mem::replace(&mut *state, State::Finishing),
                State::Finishing => return Err(wrong_state("another thread finishes the batch; it is finished once")),
                _ => return Err(wrong_state("the batch is finished already; a batch is finished once")),
            }
        };
        let done = match flight {
            State::Prefetching(prefetch) => prefetch.take(within).map(State::Rows),
            State::Gathering(gathering) => gathering.finish(within).map(|()| State::Finished),
            other => Ok(other),
        };
        let (state, result) = match done {
            Ok(state) => (state, Ok(())),
            Err(e @ StorageError::Run(RunError::Stuck { .. })) => (State::Stuck, Err(e)),
            Err(e) => (State::Failed, Err(e)),
        };
        *batch.state() = state;
        on_engine(&batch.table, |_| result)
    })
}

/// Returns true if the reads of a batch have ended. Their errors are known after `wb_batch_finish`.
///
/// @param ended Receives 1 or 0. It stays 0 while another thread waits in `wb_batch_finish`, and if the reads did not end when they
///   were told to stop.
/// @return `WB_OK`; `WB_ERR_KERNEL` if the kernel broke.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_batch_has_ended(batch: In<wb_batch_t>, ended: Out<u32>) -> wb_code {
    guard(|| {
        let now = match &*batch.get()?.state() {
            State::Prefetching(prefetch) => prefetch.is_finished()?,
            State::Gathering(gathering) => gathering.is_finished()?,
            State::Finishing | State::Stuck => false,
            State::Rows(_) | State::Finished | State::Failed => true,
        };
        ended.write("ended", u32::from(now))
    })
}

/// Returns the number of rows of a batch, which is that of its indices.
///
/// @param rows Receives the number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_batch_rows(batch: In<wb_batch_t>, rows: Out<u64>) -> wb_code {
    guard(|| {
        let found = batch.get()?.rows;
        rows.write("rows", found)
    })
}

/// Returns the address of the first row of a finished batch of `wb_table_prefetch`, as kernels see it.
///
/// @param address Receives the address; null if the batch has no rows. It is valid while the program or a run holds the batch.
/// @return `WB_OK`; `WB_ERR_STATE` if the batch is in flight, has failed, or its rows are in memory of the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_batch_address(batch: In<wb_batch_t>, address: Out<*mut c_void>) -> wb_code {
    guard(|| {
        let batch = batch.get()?;
        let found = gathered(&batch.state())?.buffer().map_or(0, |buffer| buffer.address());
        address.write("address", found as *mut c_void)
    })
}

/// Copies bytes of the rows of a finished batch of `wb_table_prefetch` to the host.
///
/// @param offset First byte: row `i` begins at `i * row_bytes`.
/// @param data Destination.
/// @param bytes Number of bytes.
/// @return `WB_OK`; `WB_ERR_ARGUMENT` if the range lies outside the rows; `WB_ERR_STATE` as for `wb_batch_address`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_batch_read(
    batch: In<wb_batch_t>,
    offset: usize,
    mut data: Out<c_void>,
    bytes: usize,
) -> wb_code {
    guard(|| {
        let data = data.bytes(bytes, "data")?;
        let batch = batch.get()?;
        let state = batch.state();
        let rows = gathered(&state)?;
        // The memory may be longer than the rows are.
        let len = batch.bytes();
        if offset.checked_add(bytes).is_none_or(|end| end > len) {
            return Err(MemoryError::OutOfBounds { offset, bytes, len }.into());
        }
        Ok(rows.buffer().map_or(Ok(()), |buffer| buffer.read(offset, data))?)
    })
}

/// Adds a reference to a batch.
///
/// @return The batch; null with an error if it is no batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_batch_retain(batch: Owned<wb_batch_t>) -> *mut wb_batch_t {
    batch.retain()
}

/// Gives a reference to a batch back. The last one waits for reads in flight, and gives the memory of the rows back to the
/// table: kernels that read the rows have ended by then, or their run keeps the batch.
///
/// @param batch The batch; null is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_batch_release(batch: Owned<wb_batch_t>) {
    batch.release()
}
