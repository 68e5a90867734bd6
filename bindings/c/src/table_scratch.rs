//! Scratches: memory of batches that kernels of the program gather.

use crate::error::{Error, guard, wb_code};
use crate::object::object;
use crate::pointer::{In, Out, Owned};
use crate::table::{on_engine, wb_table_t};
use std::sync::{Mutex, MutexGuard, PoisonError};
use warpbell::engine::abi::TableScratch as wb_table_scratch;
use warpbell::storage::{Table, TableScratch};

/// Memory of one batch at a time, for kernels of the program that gather rows (`table_ref` of `table.cuh`): staging memory of
/// reads, and the hash table that finds duplicates. `wb_table_scratch_create` makes it.
pub struct wb_table_scratch_t {
    _private: (),
}

object!(wb_table_scratch_t: Scratch, "scratch");

pub(crate) struct Scratch {
    table: Table,
    memory: Mutex<TableScratch>,
}

impl Scratch {
    fn memory(&self) -> MutexGuard<'_, TableScratch> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Allocates memory for batches of a table that kernels of the program gather one after the other. Blocks or warps that gather
/// at the same time have one each.
///
/// @param rows Most rows of a batch, at least 1.
/// @param in_flight Reads that all warps of a batch together have in flight, at least 1; fewer if that takes more than 64 MiB.
/// @param scratch Receives the scratch, with one reference. It keeps the table, and is ready for a batch.
/// @return `WB_OK`; `WB_ERR_ARGUMENT` if a number is 0, or the volume has no free entry for memory (it has 16); `WB_ERR_MEMORY`
///   without memory; `WB_ERR_UNSUPPORTED` if a device does not reach the memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_table_scratch_create(
    table: In<wb_table_t>,
    rows: u64,
    in_flight: u32,
    scratch: Out<*mut wb_table_scratch_t>,
) -> wb_code {
    guard(|| {
        scratch.check("scratch")?;
        if rows == 0 || in_flight == 0 {
            return Err(Error::argument(format!(
                "`rows` is {rows} and `in_flight` is {in_flight}; a batch has at least one row, and one read in flight"
            )));
        }
        let table = table.get()?;
        let memory = Mutex::new(on_engine(table, |table| table.scratch(rows, in_flight))?);
        scratch.give(Scratch { table: table.clone(), memory })
    })
}

/// Begins another batch. Call it between two launches that use the scratch, when the kernels of the first have ended. After a run
/// that failed, create another scratch: commands that were given up may still write to this one.
///
/// @return `WB_OK`; `WB_ERR_MEMORY` if the hash table cannot be cleared; `WB_ERR_OPERATION` if, after a write that failed, a hot row
///   cannot be read again; `WB_ERR_STOPPED` if that is so on a cancelled engine.
/// @note The view has another value for each batch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_table_scratch_begin(scratch: In<wb_table_scratch_t>) -> wb_code {
    guard(|| {
        let scratch = scratch.get()?;
        on_engine(&scratch.table, |_| scratch.memory().begin())
    })
}

/// Returns the form in which kernels get a scratch for the batch that was begun.
///
/// @param view Receives the view, to be passed by value. It is valid for one batch, while the program or a run holds the scratch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_table_scratch_get_view(
    scratch: In<wb_table_scratch_t>,
    view: Out<wb_table_scratch>,
) -> wb_code {
    guard(|| {
        let found = scratch.get()?.memory().view();
        view.write("view", found)
    })
}

/// Adds a reference to a scratch.
///
/// @return The scratch; null with an error if it is no scratch.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_table_scratch_retain(scratch: Owned<wb_table_scratch_t>) -> *mut wb_table_scratch_t {
    scratch.retain()
}

/// Gives a reference to a scratch back. Runs keep the scratches among their arguments.
///
/// @param scratch The scratch; null is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_table_scratch_release(scratch: Owned<wb_table_scratch_t>) {
    scratch.release()
}
