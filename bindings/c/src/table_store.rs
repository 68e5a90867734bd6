//! Tables as a volume stores them: written, imported from files, listed, removed.

use crate::element;
use crate::engine::as_json;
use crate::error::{Error, guard, wb_code};
use crate::options::{Options, owned_text};
use crate::pointer::{In, Out, Text};
use crate::stored_array::{WB_STORE_ADD, WB_STORE_REPLACE};
use crate::table::{described, wb_table_layout, wb_table_t};
use crate::volume::wb_volume_t;
use serde_json::json;
use std::ffi::{c_char, c_void};
use warpbell::storage::{RowFile, RowFileOptions, Table, TableWriter};

/// Options of `wb_table_import`. All fields but `size` may be zero.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct wb_table_import_options {
    /// `sizeof(wb_table_import_options)`.
    pub size: usize,
    /// Columns of a Parquet or Arrow file that make a row, in this order; null for all columns.
    pub columns: In<Text>,
    /// Number of them.
    pub column_count: usize,
    /// Elements of a row, which an `.npy` file of one dimension does not say; otherwise 0.
    pub row_elements: u64,
    /// `WB_STORE_ADD` or `WB_STORE_REPLACE`.
    pub mode: u32,
    /// Type of elements that the file cannot name: raw bytes of an `.npy` file are taken as it, and unsigned integers of 16 bits as
    /// `WB_BF16`. 0 for the type of the file.
    pub dtype: u32,
}

// SAFETY: numbers and a pointer; the size comes first.
unsafe impl Options for wb_table_import_options {
    const NAME: &str = "wb_table_import_options";
}

/// Returns true if a table of the same name is to be replaced.
fn replaces(mode: u32) -> Result<bool, Error> {
    match mode {
        WB_STORE_ADD => Ok(false),
        WB_STORE_REPLACE => Ok(true),
        other => Err(Error::argument(format!("`mode` is {other}; use WB_STORE_ADD or WB_STORE_REPLACE"))),
    }
}

/// Stores a table, and returns it if the program asks for it. `rows` gets the bytes of all rows and returns them, or `None`
/// for zeros.
fn store<'a>(
    volume: In<wb_volume_t>,
    name: Text,
    layout: In<wb_table_layout>,
    mode: u32,
    table: Out<*mut wb_table_t>,
    rows: impl FnOnce(u64) -> Result<Option<&'a [u8]>, Error>,
) -> Result<(), Error> {
    if layout.is_null() {
        return Err(Error::argument("`layout` is null; pass number, type and shape of the rows"));
    }
    let layout = layout.read()?.checked()?;
    let (volume, name) = (volume.get()?, name.text("name")?);
    let (rows, replace) = (rows(layout.bytes())?, replaces(mode)?);
    let mut writer = TableWriter::new(volume, name, &layout, replace)?;
    match rows {
        Some(rows) => writer.append_bytes(rows)?,
        None => writer.append_zeros()?,
    }
    give_optional(table, writer.finish()?)
}

fn give_optional(out: Out<*mut wb_table_t>, table: Table) -> Result<(), Error> {
    if out.is_null() { Ok(()) } else { out.give(table) }
}

/// Stores a table of zeros beside everything that the volume holds. It is durable when the call returns. On the volume it is two
/// arrays, of 128 and of `rows * row_bytes` bytes: `wb_volume_bytes_for` returns the space that both need.
///
/// @param name Name: 1 to 40 letters, digits, `.`, `_` and `-`.
/// @param layout Number, type and shape of the rows.
/// @param mode `WB_STORE_ADD`, or `WB_STORE_REPLACE` for the place of a table of the same name, which is whole until then.
/// @param table Receives the table, opened without caches; may be null.
/// @return `WB_OK`; `WB_ERR_ARGUMENT` for a name or rows that tables cannot have; `WB_ERR_EXISTS` if the volume holds a table of
///   the name; `WB_ERR_SPACE` if the volume is too small; `WB_ERR_IO` or `WB_ERR_TIMEOUT` if a device fails; `WB_ERR_STOPPED` on a
///   cancelled engine.
/// @note One call at a time for a volume.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_table_create(
    volume: In<wb_volume_t>,
    name: Text,
    layout: In<wb_table_layout>,
    mode: u32,
    table: Out<*mut wb_table_t>,
) -> wb_code {
    guard(|| store(volume, name, layout, mode, table, |_| Ok(None)))
}

/// Stores a table of rows from memory of the host, as `wb_table_create` does.
///
/// @param name Name: 1 to 40 letters, digits, `.`, `_` and `-`.
/// @param layout Number, type and shape of the rows.
/// @param data Rows, one behind the other, `rows * row_bytes` bytes; may be memory of a mapped file.
/// @param mode `WB_STORE_ADD` or `WB_STORE_REPLACE`.
/// @param table Receives the table, opened without caches; may be null.
/// @return As `wb_table_create`.
/// @note One call at a time for a volume.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_table_store(
    volume: In<wb_volume_t>,
    name: Text,
    layout: In<wb_table_layout>,
    data: In<c_void>,
    mode: u32,
    table: Out<*mut wb_table_t>,
) -> wb_code {
    guard(|| {
        let rows = |bytes: u64| {
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            data.bytes(bytes, "data").map(Some)
        };
        store(volume, name, layout, mode, table, rows)
    })
}

/// Stores the rows of a file as a table: `.npy`, and in a library with feature `parquet` `.parquet`, `.arrow` and `.feather`.
///
/// The first dimension of an array counts the rows. In a file of columns a row is a list of fixed length, or the numbers of
/// all columns, or both one behind the other.
///
/// @param name Name: 1 to 40 letters, digits, `.`, `_` and `-`.
/// @param path The file. Its ending names the format.
/// @param options Options, or null for the defaults.
/// @param table Receives the table, opened without caches; may be null.
/// @return As `wb_table_create`; `WB_ERR_NOT_FOUND` if there is no such file; `WB_ERR_IO` if the file cannot be read;
///   `WB_ERR_INPUT` if its content is no table; `WB_ERR_ARGUMENT` for an ending that names no format, or an option that does not
///   fit the file; `WB_ERR_UNSUPPORTED` for a format that needs the feature.
/// @note One call at a time for a volume.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_table_import(
    volume: In<wb_volume_t>,
    name: Text,
    path: Text,
    options: In<wb_table_import_options>,
    table: Out<*mut wb_table_t>,
) -> wb_code {
    guard(|| {
        let (volume, name) = (volume.get()?, name.text("name")?);
        let (path, options) = (path.text("path")?, options.read()?);
        let replace = replaces(options.mode)?;
        let columns = options.columns.list(options.column_count, "columns")?;
        let columns = columns.iter().map(|column| column.text("an entry of columns"));
        let columns = columns.collect::<Result<Vec<_>, _>>()?;
        let row_elements = Some(options.row_elements).filter(|n| *n != 0);
        let element = if options.dtype == 0 { None } else { Some(element::element_type(options.dtype)?) };
        let chosen = RowFileOptions::default().columns(columns).row_elements(row_elements).element(element);
        let file = RowFile::open(path, &chosen)?;
        let stored = file.store(volume, name, replace, &mut |_| {})?;
        give_optional(table, stored)
    })
}

/// Lists the tables of a volume as JSON: name, number, type, shape and bytes of the rows, bytes that are stored, and whether
/// rows were written since; or the error of a table that cannot be opened.
///
/// @param json Receives a list, which is empty if no table is stored. Free it with `wb_string_free`.
/// @return As `wb_volume_arrays`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_table_list(volume: In<wb_volume_t>, json: Out<*mut c_char>) -> wb_code {
    guard(|| {
        json.check("json")?;
        let tables = Table::list(volume.get()?)?;
        let list = tables.iter().map(|t| {
            let mut facts = match &t.layout {
                Ok(layout) => described(&t.name, layout),
                Err(e) => json!({ "name": t.name, "error": e.to_string() }),
            };
            facts["stored_bytes"] = t.bytes.into();
            facts["changed"] = t.changed.into();
            facts
        });
        let list: Vec<_> = list.collect();
        json.write("json", owned_text(as_json(&list)?))
    })
}

/// Removes a stored table, which frees its space. The data itself is not erased. Tables that are open must not be used any
/// more.
///
/// @param name Name of the table.
/// @return `WB_OK`; `WB_ERR_NOT_FOUND` if the volume holds no such table; `WB_ERR_IO` or `WB_ERR_TIMEOUT` if a device fails.
/// @note One call at a time for a volume.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_table_remove(volume: In<wb_volume_t>, name: Text) -> wb_code {
    guard(|| {
        let (volume, name) = (volume.get()?, name.text("name")?);
        Ok(Table::remove(volume, name)?)
    })
}
