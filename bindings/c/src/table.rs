//! Tables: rows of equal size on a volume, which kernels gather by number.

use crate::element;
use crate::engine::as_json;
use crate::error::{Error, guard, wb_code};
use crate::object::object;
use crate::options::{Options, owned_text};
use crate::pointer::{In, Out, Owned, Text};
use crate::volume::wb_volume_t;
use serde_json::{Value, json};
use std::ffi::c_char;
use warpbell::engine::abi::{TableStats as wb_table_stats, TableView as wb_table_view};
use warpbell::storage::{Table, TableLayout};

/// Rows of equal size on a volume, which kernels gather by number as a `warpbell::table_ref`. `wb_table_open` makes it.
pub struct wb_table_t {
    _private: (),
}

object!(wb_table_t: Table, "table");

/// Most dimensions of a row.
pub const WB_ROW_DIMENSIONS: usize = 8;

/// Number, type and shape of the rows of a table. A row has 64 to 65536 bytes, a multiple of 4.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct wb_table_layout {
    /// `sizeof(wb_table_layout)`.
    pub size: usize,
    /// Number of rows, fewer than 2^40.
    pub rows: u64,
    /// Type of the elements: `WB_U8` to `WB_F64`, `WB_F16` or `WB_BF16`.
    pub dtype: u32,
    /// Number of dimensions of a row: 1 to 8.
    pub dimensions: u32,
    /// Elements in each dimension of a row; zeros behind the last one.
    pub shape: [u64; WB_ROW_DIMENSIONS],
    /// Bytes of a row. In a layout of the program it may be 0.
    pub row_bytes: u64,
}

// SAFETY: numbers; the size comes first.
unsafe impl Options for wb_table_layout {
    const NAME: &str = "wb_table_layout";
}

impl wb_table_layout {
    fn of(layout: &TableLayout) -> Self {
        let mut shape = [0; WB_ROW_DIMENSIONS];
        shape.iter_mut().zip(layout.row_shape()).for_each(|(to, from)| *to = *from);
        Self {
            size: size_of::<Self>(),
            rows: layout.rows(),
            dtype: element::dtype_of(layout.element()),
            dimensions: layout.row_shape().len() as u32,
            shape,
            row_bytes: layout.row_bytes(),
        }
    }

    /// Returns the layout that the program describes.
    pub(crate) fn checked(&self) -> Result<TableLayout, Error> {
        let element = element::element_type(self.dtype)?;
        let used = self.dimensions as usize;
        if used == 0 || used > WB_ROW_DIMENSIONS {
            return Err(Error::argument(format!("`dimensions` is {used}; a row has 1 to {WB_ROW_DIMENSIONS}")));
        }
        let (shape, rest) = self.shape.split_at(used);
        if let Some(more) = rest.iter().position(|n| *n != 0) {
            let at = used + more;
            return Err(Error::argument(format!(
                "`shape[{at}]` is {}, and `dimensions` is {used}: count all dimensions, or set the rest to 0",
                self.shape[at]
            )));
        }
        let layout = TableLayout::new(element, shape, self.rows)?;
        match (self.row_bytes, layout.row_bytes()) {
            (0, _) => Ok(layout),
            (given, found) if given == found => Ok(layout),
            (given, found) => Err(Error::argument(format!(
                "`row_bytes` is {given}, and a row of {shape:?} elements of type {element} has {found}; 0 is correct, too"
            ))),
        }
    }
}

/// Options of `wb_table_open`. All fields but `size` may be zero.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct wb_table_options {
    /// `sizeof(wb_table_options)`.
    pub size: usize,
    /// Bytes of rows in a cache near the kernels, at least 16 rows; 0 for none. Metadata takes another 9 bytes for each row.
    pub cache_bytes: u64,
    /// Bytes of rows in a cache in pinned host memory, likewise; 0 for none. Its metadata is near the kernels.
    pub host_cache_bytes: u64,
    /// Rows that stay in memory near the kernels; or null. `wb_table_open` reads them.
    pub hot_rows: In<u64>,
    /// Number of them.
    pub hot_count: usize,
    /// Reads that a batch has in flight; 0 for 8192, or as many as the queues of the volume hold. Rows that need staging
    /// memory have fewer: a batch gets 64 MiB of it at most.
    pub in_flight: u32,
    /// Warps of a batch's kernel; 0 for 8 on each multiprocessor of a GPU, or as many as run at once on CPU threads. Fewer
    /// leave more room for other kernels.
    pub warps: u32,
}

// SAFETY: numbers and a pointer; the size comes first.
unsafe impl Options for wb_table_options {
    const NAME: &str = "wb_table_options";
}

/// Opens the table of a name.
///
/// @param name Name under which the table was stored.
/// @param options Options, or null for the defaults: no rows stay in memory.
/// @param table Receives the table, with one reference. It keeps the volume.
/// @return `WB_OK`; `WB_ERR_NOT_FOUND` if the volume holds no such table; `WB_ERR_ARGUMENT` if a cache holds fewer than 16 rows
///   or a hot row is none of the table, with its position; `WB_ERR_DAMAGED` or `WB_ERR_UNSUPPORTED` if the stored description is
///   damaged, or of a later version; `WB_ERR_MEMORY` without memory; `WB_ERR_OPERATION` if a hot row cannot be read;
///   otherwise as `wb_volume_arrays`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_table_open(
    volume: In<wb_volume_t>,
    name: Text,
    options: In<wb_table_options>,
    table: Out<*mut wb_table_t>,
) -> wb_code {
    guard(|| {
        table.check("table")?;
        let (volume, name) = (volume.get()?, name.text("name")?);
        let options = options.read()?;
        let hot = options.hot_rows.list(options.hot_count, "hot_rows")?;
        let mut builder = Table::open(volume, name)
            .cache_bytes(options.cache_bytes)
            .host_cache_bytes(options.host_cache_bytes)
            .hot_rows(hot);
        if options.in_flight != 0 {
            builder = builder.in_flight(options.in_flight);
        }
        if options.warps != 0 {
            builder = builder.warps(options.warps);
        }
        table.give(builder.build()?)
    })
}

/// Adds a reference to a table.
///
/// @return The table; null with an error if it is no table.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_table_retain(table: Owned<wb_table_t>) -> *mut wb_table_t {
    table.retain()
}

/// Gives a reference to a table back. Batches, scratches, and runs with the table among their arguments keep the table.
///
/// @param table The table; null is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_table_release(table: Owned<wb_table_t>) {
    table.release()
}

/// Returns number, type and shape of the rows of a table.
///
/// @param layout Receives the layout, as many fields as its `size` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_table_get_layout(table: In<wb_table_t>, layout: Out<wb_table_layout>) -> wb_code {
    guard(|| {
        let found = wb_table_layout::of(table.get()?.layout());
        layout.fill("layout", found)
    })
}

/// Describes a table as JSON: name, name of the volume, number, type, shape and bytes of its rows.
///
/// @param json Receives the text. Free it with `wb_string_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_table_info(table: In<wb_table_t>, json: Out<*mut c_char>) -> wb_code {
    guard(|| {
        json.check("json")?;
        let table = table.get()?;
        let mut facts = described(table.name(), table.layout());
        facts["volume"] = table.volume().name().into();
        json.write("json", owned_text(as_json(&facts)?))
    })
}

/// Returns the facts about a table, as `warpbell table` names them.
pub(crate) fn described(name: &str, layout: &TableLayout) -> Value {
    json!({
        "name": name, "rows": layout.rows(), "row_shape": layout.row_shape(), "element": layout.element().to_string(),
        "row_bytes": layout.row_bytes(), "bytes": layout.bytes(),
    })
}

/// Returns the form in which kernels get a table: `table_ref` of `table.cuh` is made from it.
///
/// @param view Receives the view, to be passed by value. It is valid while the program or a run holds the table.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_table_get_view(table: In<wb_table_t>, view: Out<wb_table_view>) -> wb_code {
    guard(|| {
        let found = table.get()?.view();
        view.write("view", found)
    })
}

/// Reads all rows of a table, past its caches, and compares them with the checksum that was stored.
///
/// @param compared Receives 1; or 0 if rows were written since the table was stored, so that there is nothing to compare.
/// @return `WB_OK`; `WB_ERR_DAMAGED` if the rows are not what was stored; `WB_ERR_NOT_FOUND` if the table was removed;
///   `WB_ERR_IO` or `WB_ERR_TIMEOUT` if a device fails; `WB_ERR_STOPPED` on a cancelled engine.
/// @note After a flush, and while no kernel writes rows.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_table_verify(table: In<wb_table_t>, compared: Out<u32>) -> wb_code {
    guard(|| {
        compared.check("compared")?;
        let found = table.get()?.verify()?;
        compared.write("compared", found.into())
    })
}

/// Drops all rows from the caches of a table, so that the next gather reads them from the devices. Hot rows are read again.
/// For changes around the table, by `wb_volume_write` or another table of the same name.
///
/// @return `WB_OK`; `WB_ERR_OPERATION` if a hot row cannot be read; `WB_ERR_STOPPED` on a cancelled engine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_table_drop_caches(table: In<wb_table_t>) -> wb_code {
    guard(|| on_engine(table.get()?, |table| table.drop_caches()))
}

/// Makes rows that were written durable: `wb_volume_flush` of the volume of the table.
///
/// @return As `wb_volume_flush`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_table_flush(table: In<wb_table_t>) -> wb_code {
    guard(|| Ok(table.get()?.flush()?))
}

/// Makes a call that runs kernels. Tells kernels that a lost rank has stopped from those that the program has stopped.
pub(crate) fn on_engine<T, E: Into<Error>>(
    table: &Table,
    call: impl FnOnce(&Table) -> Result<T, E>,
) -> Result<T, Error> {
    call(table).map_err(|e| e.into().on_engine(table.volume().engine()))
}

/// Returns the counters of a table, since the table was opened or `wb_table_reset_stats`. The commands that read the rows are
/// among those of `wb_volume_stats`.
///
/// @param stats Receives the counters. Those of a batch are complete when the batch is finished.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_table_get_stats(table: In<wb_table_t>, stats: Out<wb_table_stats>) -> wb_code {
    guard(|| {
        let s = table.get()?.stats()?;
        let found = wb_table_stats {
            rows: s.rows,
            duplicates: s.duplicates,
            hot_hits: s.hot_hits,
            cache_hits: s.cache_hits,
            host_hits: s.host_hits,
            device_reads: s.device_reads,
            admissions: s.admissions,
            host_admissions: s.host_admissions,
            retries: s.retries,
            written: s.written,
            reserved: [0; 6],
        };
        stats.write("stats", found)
    })
}

/// Sets all counters of a table to 0.
///
/// @note Not while kernels run: counts of that time may be lost.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_table_reset_stats(table: In<wb_table_t>) -> wb_code {
    guard(|| Ok(table.get()?.reset_stats()?))
}
