//! Rows of a table by number: gathered and written by one call, and the arguments of such calls.

use crate::buffer::wb_buffer_t;
use crate::element;
use crate::error::{Error, guard, wb_code};
use crate::options::Options;
use crate::pointer::{In, Out};
use crate::region::wb_region_t;
use crate::table::{on_engine, wb_table_t};
use std::ffi::c_void;
use warpbell::engine::NO_LIMIT;
use warpbell::memory::Region;
use warpbell::storage::{Combine, DataBuffer, RowIndices, RowInput, RowOutput, Table, TableError};

/// The row at the highest position of a batch is stored.
pub const WB_SCATTER_LAST: u32 = 0;
/// The sum of the rows of a batch with one number is stored, element by element. Integers wrap around.
pub const WB_SCATTER_SUM: u32 = 1;
/// The sum of the rows of a batch with one number is added to the row that is stored.
pub const WB_SCATTER_ADD: u32 = 2;

/// Numbers of rows: a list of the program, or memory that kernels read. One of `list`, `region` and `buffer` is set.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct wb_row_indices {
    /// `sizeof(wb_row_indices)`.
    pub size: usize,
    /// Indices in memory of the host, which the call copies; or null.
    pub list: In<c_void>,
    /// Region that begins with the indices; or null. The batch keeps it; the program changes its contents after the end of the batch.
    pub region: In<wb_region_t>,
    /// Buffer that begins with the indices; or null. As for `region`.
    pub buffer: In<wb_buffer_t>,
    /// Number of indices.
    pub count: u64,
    /// Bytes of an index: 4 for `uint32_t`, 8 for `uint64_t`.
    pub width: u32,
    /// Zero.
    pub reserved: u32,
}

// SAFETY: numbers and pointers; the size comes first.
unsafe impl Options for wb_row_indices {
    const NAME: &str = "wb_row_indices";
}

/// Memory of the rows of a batch, one behind the other. One of `data`, `region` and `buffer` is set.
///
/// Devices write straight to a buffer, and to any memory with bounce landing. With direct landing they do not reach a plain
/// region: its rows are copied.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct wb_row_memory {
    /// `sizeof(wb_row_memory)`.
    pub size: usize,
    /// Memory of the host; or null. `wb_table_scatter` only reads it.
    pub data: Out<c_void>,
    /// Bytes of `data`; 0 for regions and buffers.
    pub bytes: usize,
    /// Region; or null.
    pub region: In<wb_region_t>,
    /// Buffer; or null.
    pub buffer: In<wb_buffer_t>,
    /// Type of the elements, which must be that of the table; 0 for whatever type the table has.
    pub dtype: u32,
    /// Zero.
    pub reserved: u32,
}

// SAFETY: numbers and pointers; the size comes first.
unsafe impl Options for wb_row_memory {
    const NAME: &str = "wb_row_memory";
}

/// Memory that kernels access.
enum Shared<'a> {
    Region(&'a Region),
    Buffer(&'a DataBuffer),
}

impl<'a> From<Shared<'a>> for RowOutput<'a> {
    fn from(memory: Shared<'a>) -> Self {
        match memory {
            Shared::Region(region) => region.into(),
            Shared::Buffer(buffer) => buffer.into(),
        }
    }
}

/// Returns the memory that a structure names: `None` if it is `host`, which stands for memory of the host.
fn shared<'a>(
    (is_host, field): (bool, &str),
    region: &'a In<wb_region_t>,
    buffer: &'a In<wb_buffer_t>,
    name: &str,
) -> Result<Option<Shared<'a>>, Error> {
    let set = usize::from(is_host) + usize::from(!region.is_null()) + usize::from(!buffer.is_null());
    if set > 1 {
        return Err(Error::argument(format!(
            "`{name}` names {set} kinds of memory; set one of `{field}`, `region` and `buffer`"
        )));
    }
    if let Some(region) = region.optional().map_err(|e| e.within(name))? {
        return Ok(Some(Shared::Region(region)));
    }
    let buffer = buffer.optional().map_err(|e| e.within(name))?;
    Ok(buffer.map(Shared::Buffer))
}

/// Reads the structure of the indices of a call.
pub(crate) fn given_indices(indices: In<wb_row_indices>) -> Result<wb_row_indices, Error> {
    if indices.is_null() {
        return Err(Error::argument("`indices` is null; pass the numbers of the rows"));
    }
    indices.read()
}

/// Returns the indices that a structure names.
pub(crate) fn indices(given: &wb_row_indices) -> Result<RowIndices<'_>, Error> {
    let wb_row_indices { list, region, buffer, count, width, .. } = given;
    let (count, width) = (*count, *width);
    if width != 4 && width != 8 {
        return Err(Error::argument(format!("`indices.width` is {width}; an index has 4 or 8 bytes")));
    }
    if let Some(memory) = shared((!list.is_null(), "list"), region, buffer, "indices")? {
        return Ok(if width == 4 { RowIndices::u32(memory, count) } else { RowIndices::u64(memory, count) });
    }
    let length = usize::try_from(count).unwrap_or(usize::MAX);
    Ok(match width {
        4 => list.of::<u32>(length, "indices.list")?.into(),
        _ => list.of::<u64>(length, "indices.list")?.into(),
    })
}

/// Memory of rows as a call names it.
enum Rows<'a> {
    Host(Out<c_void>, usize),
    Shared(Shared<'a>),
}

/// Reads the structure of the memory of a call's rows.
pub(crate) fn given_rows(rows: In<wb_row_memory>) -> Result<wb_row_memory, Error> {
    if rows.is_null() {
        return Err(Error::argument("`rows` is null; pass the memory of the rows"));
    }
    rows.read()
}

/// Returns the memory that a structure names, whose elements have the type of the table.
fn rows<'a>(table: &Table, given: &'a wb_row_memory) -> Result<Rows<'a>, Error> {
    let wb_row_memory { data, bytes, region, buffer, dtype, .. } = given;
    let (bytes, dtype) = (*bytes, *dtype);
    let found = table.layout().element();
    if dtype != 0 {
        let asked = element::element_type(dtype)?;
        if !table.layout().is_held_by(asked) {
            return Err(TableError::Type { name: table.name().to_owned(), found, asked }.into());
        }
    }
    match shared((!data.is_null(), "data"), region, buffer, "rows")? {
        None => Ok(Rows::Host(*data, bytes)),
        Some(memory) if bytes == 0 => Ok(Rows::Shared(memory)),
        Some(_) => Err(Error::argument(format!(
            "`rows.bytes` is {bytes}, and `rows.data` is null; regions and buffers know their length"
        ))),
    }
}

/// Reads the memory of rows that are gathered in the background.
pub(crate) fn shared_rows<'a>(table: &Table, memory: &'a wb_row_memory) -> Result<RowOutput<'a>, Error> {
    match rows(table, memory)? {
        Rows::Shared(memory) => Ok(memory.into()),
        Rows::Host(..) => Err(Error::argument(
            "`rows` has neither `region` nor `buffer`; for rows in memory of the host use wb_table_prefetch and wb_batch_read",
        )),
    }
}

/// Gathers rows: row `indices[i]` comes to byte `i * row_bytes` of the memory. Waits for all of them. In a batch each row is
/// read once, however often its number occurs.
///
/// @param indices Numbers of rows. An empty list is no error.
/// @param rows Memory for at least as many rows. To memory of the host they are copied at the end.
/// @return `WB_OK`; `WB_ERR_ARGUMENT` if an index is no row, with its position, the memory is too small, or it belongs to another
///   engine; `WB_ERR_OPERATION` if a row cannot be read, with device and LBA; `WB_ERR_MEMORY` without memory; `WB_ERR_STOPPED` on
///   a cancelled engine; `WB_ERR_HANDLE` for a region or buffer that is none.
/// @note After an error the contents of the memory are undefined. After `WB_ERR_OPERATION` and `WB_ERR_STOPPED` commands that were
///   given up may still write to a region or buffer, and other batches in flight on the engine fail, too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_table_gather(
    table: In<wb_table_t>,
    indices: In<wb_row_indices>,
    rows: In<wb_row_memory>,
) -> wb_code {
    guard(|| {
        let table = table.get()?;
        let indices = given_indices(indices)?;
        let indices = self::indices(&indices)?;
        let rows = given_rows(rows)?;
        match self::rows(table, &rows)? {
            Rows::Shared(memory) => on_engine(table, |table| table.gather(indices, memory)),
            Rows::Host(mut data, given) => {
                let data = data.bytes(given, "rows.data")?;
                let needed = indices.len().saturating_mul(table.layout().row_bytes());
                let Some(data) = usize::try_from(needed).ok().and_then(|needed| data.get_mut(..needed)) else {
                    let (name, given) = (table.name().to_owned(), given as u64);
                    return Err(TableError::Bytes { name, indices: indices.len(), needed, given }.into());
                };
                let gathered = on_engine(table, |table| table.prefetch(indices)?.take(NO_LIMIT))?;
                Ok(gathered.buffer().map_or(Ok(()), |buffer| buffer.read(0, data))?)
            }
        }
    })
}

/// Writes rows: the row at byte `i * row_bytes` of the memory to row `indices[i]` of the table. Returns when the rows are on the
/// devices; they are durable after `wb_table_flush`.
///
/// A gather at the same time finds the old row, the new one, or a mix of both; later ones find the new row.
///
/// @param indices Numbers of rows.
/// @param rows Rows. `data` has exactly as many as there are indices, a region or buffer at least as many.
/// @param combine Treatment of a number that occurs several times: `WB_SCATTER_LAST`, `WB_SCATTER_SUM` or `WB_SCATTER_ADD`. Sums are
///   for `WB_F32`, `WB_F64`, and integers of 32 and 64 bits; those of floating-point numbers are rounded in no particular order.
/// @return `WB_OK`; `WB_ERR_ARGUMENT` if an index is no row, with its position, and nothing was written then, or for wrong sizes,
///   types and `combine`; `WB_ERR_OPERATION` if rows cannot be written, with device and LBA, and some may have been written then;
///   otherwise as `wb_table_gather`.
/// @note Calls on one table are made one after the other. The program orders those of tables that were opened apart under one name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_table_scatter(
    table: In<wb_table_t>,
    indices: In<wb_row_indices>,
    rows: In<wb_row_memory>,
    combine: u32,
) -> wb_code {
    guard(|| {
        let table = table.get()?;
        let indices = given_indices(indices)?;
        let indices = self::indices(&indices)?;
        let combine = match combine {
            WB_SCATTER_LAST => Combine::Last,
            WB_SCATTER_SUM => Combine::Sum,
            WB_SCATTER_ADD => Combine::Add,
            other => {
                return Err(Error::argument(format!(
                    "`combine` is {other}; use WB_SCATTER_LAST, WB_SCATTER_SUM or WB_SCATTER_ADD"
                )));
            }
        };
        let rows = given_rows(rows)?;
        let input = match self::rows(table, &rows)? {
            Rows::Shared(Shared::Region(region)) => RowInput::from(region),
            Rows::Shared(Shared::Buffer(buffer)) => RowInput::from(buffer),
            Rows::Host(_, bytes) => {
                RowInput::bytes(rows.data.read_bytes(bytes, "rows.data")?, table.layout().element())
            }
        };
        on_engine(table, |table| table.scatter(indices, input, combine))
    })
}
