//! Rows of Parquet and Arrow IPC files: lists of one length, or the numbers of several columns.

use super::{RowFileError, RowFileOptions};
use crate::columnar::{self, Source, damaged, guarded};
use crate::memory::free_host_memory;
use crate::storage::{ElementType, TableLayout};
use arrow_array::cast::AsArray;
use arrow_array::types::*;
use arrow_array::{Array, RecordBatch};
use arrow_ipc::reader::FileReader;
use arrow_schema::{ArrowError, DataType, Schema};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ParquetRecordBatchReaderBuilder};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Calls a macro with the Arrow type of each element type that tables hold.
macro_rules! numbers {
    ($each:ident) => {
        $each!(Int8: Int8Type = I8, Int16: Int16Type = I16, Int32: Int32Type = I32, Int64: Int64Type = I64,
            UInt8: UInt8Type = U8, UInt16: UInt16Type = U16, UInt32: UInt32Type = U32, UInt64: UInt64Type = U64,
            Float16: Float16Type = F16, Float32: Float32Type = F32, Float64: Float64Type = F64)
    };
}

/// Rows of a batch that a Parquet file is decoded into.
const BATCH: usize = 1 << 12;

type Batches = Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>>>;

/// The columns of a file that make its rows.
#[derive(Debug)]
pub(super) struct Columns {
    path: PathBuf,
    source: Source,
    is_parquet: bool,
    /// Columns of the file, in the order of a row.
    chosen: Vec<usize>,
    names: Vec<String>,
    /// Type of the elements as the file has it.
    element: ElementType,
    /// Type that they are stored as.
    stored: ElementType,
    /// Elements of each chosen column in a row.
    widths: Vec<u64>,
    rows: u64,
}

impl Columns {
    /// Opens a file of columns, and finds those that make a row.
    pub(super) fn open(path: &Path, ending: &str, options: &RowFileOptions) -> Result<Self, RowFileError> {
        let io = |source| RowFileError::Io { path: path.to_owned(), source };
        let file = File::open(path).map_err(io)?;
        let bytes = file.metadata().map_err(io)?.len();
        let source = Source::File(Arc::new(file), bytes);
        let wrong = |reason: String| RowFileError::Content { path: path.to_owned(), reason };
        let is_parquet = ending == "parquet";
        let (schema, rows) = guarded(wrong, || described(&source, is_parquet).map_err(wrong))?;
        let choice = |reason| RowFileError::Choice { path: path.to_owned(), reason };
        let chosen = choose(&schema, &options.columns).map_err(choice)?;
        let names: Vec<String> = chosen.iter().map(|c| schema.field(*c).name().clone()).collect();
        let mut element = None;
        for (column, name) in chosen.iter().zip(&names) {
            let kind = schema.field(*column).data_type();
            let Some(found) = element_of(kind) else {
                return Err(wrong(format!(
                    "column `{name}` has the type {kind}, and rows are numbers or lists of numbers: choose other columns"
                )));
            };
            match element {
                Some((first, other)) if first != found => {
                    return Err(wrong(format!(
                        "column `{other}` holds {first} and column `{name}` holds {found}, and a row has one type: choose columns of one type, or convert them"
                    )));
                }
                _ => element = Some((found, name)),
            }
        }
        let Some((element, _)) = element else { return Err(wrong("it has no columns".to_owned())) };
        let stored = match (element, options.element) {
            (found, None) => found,
            // No type of these formats is bfloat16, whose bits are kept so.
            (ElementType::U16, Some(ElementType::Bf16)) => ElementType::Bf16,
            (found, Some(wanted)) if found == wanted => found,
            (found, Some(wanted)) => {
                return Err(choice(format!(
                    "its columns hold {found}, not {wanted}: only u16 is taken as another type, bf16; leave the type out, or convert the columns"
                )));
            }
        };
        let path = path.to_owned();
        let widths = Vec::new();
        let mut columns = Self { path, source, is_parquet, widths, chosen, names, element, stored, rows };
        columns.widths = columns.find_widths(&schema)?;
        Ok(columns)
    }

    pub(super) fn layout(&self) -> Result<TableLayout, RowFileError> {
        TableLayout::new(self.stored, &[self.widths.iter().sum()], self.rows)
            .map_err(|source| RowFileError::Layout { path: self.path.clone(), source })
    }

    /// Calls `append` with all rows, about `piece` bytes at a time.
    pub(super) fn each_piece(
        &self,
        piece: usize,
        append: &mut dyn FnMut(&[u8]) -> Result<(), RowFileError>,
    ) -> Result<(), RowFileError> {
        let (mut bytes, mut row, mut batches) = (Vec::new(), 0, self.batches()?);
        while let Some(batch) = self.next(&mut batches)? {
            let lists = self.lists(&batch, row)?;
            for i in 0..batch.num_rows() {
                for (list, width) in lists.iter().zip(&self.widths) {
                    let Some(elements) = list.row(i, *width) else { return Err(self.length(&batch, &lists, row, i)) };
                    bytes.extend_from_slice(elements);
                }
                if bytes.len() >= piece {
                    append(&bytes)?;
                    bytes.clear();
                }
            }
            row += batch.num_rows() as u64;
        }
        append(&bytes)
    }

    fn wrong(&self, reason: String) -> RowFileError {
        RowFileError::Content { path: self.path.clone(), reason }
    }

    /// Returns the elements of each column in a row: those of a list without a fixed length are counted in the first row.
    fn find_widths(&self, schema: &Schema) -> Result<Vec<u64>, RowFileError> {
        let mut first = None;
        let mut widths = Vec::new();
        for (place, column) in self.chosen.iter().enumerate() {
            widths.push(match schema.field(*column).data_type() {
                DataType::FixedSizeList(_, length) => u64::try_from(*length).unwrap_or(0),
                DataType::List(_) | DataType::LargeList(_) => {
                    if first.is_none() {
                        let mut batches = self.batches()?;
                        while let Some(batch) = self.next(&mut batches)? {
                            if batch.num_rows() > 0 {
                                first = Some(batch);
                                break;
                            }
                        }
                    }
                    match &first {
                        Some(batch) => self.lists(batch, 0)?[place].length(0),
                        None => {
                            let name = &self.names[place];
                            return Err(self.wrong(format!("column `{name}` has no list, so a row has no length")));
                        }
                    }
                }
                _ => 1,
            });
        }
        Ok(widths)
    }

    /// Begins to decode the chosen columns.
    fn batches(&self) -> Result<Batches, RowFileError> {
        let begin = || -> Result<Batches, RowFileError> {
            if self.is_parquet {
                let builder = ParquetRecordBatchReaderBuilder::try_new(self.source.clone());
                let builder = builder.map_err(|e| self.wrong(damaged(&e)))?;
                let mask = ProjectionMask::roots(builder.parquet_schema(), self.chosen.iter().copied());
                let reader = builder.with_projection(mask).with_batch_size(BATCH).build();
                return Ok(Box::new(reader.map_err(|e| self.wrong(damaged(&e)))?));
            }
            let mut ascending = self.chosen.clone();
            ascending.sort_unstable();
            let reader = FileReader::try_new_buffered(self.source.at(0), Some(ascending));
            Ok(Box::new(reader.map_err(|e| self.wrong(damaged(&e)))?))
        };
        guarded(|reason| self.wrong(reason), begin)
    }

    fn next(&self, batches: &mut Batches) -> Result<Option<RecordBatch>, RowFileError> {
        let next = || batches.next().transpose().map_err(|e| self.wrong(damaged(&e)));
        guarded(|reason| self.wrong(reason), next)
    }

    /// Returns the chosen columns of a batch, whose first row is row `first` of the file, in the order of a row.
    fn lists<'a>(&self, batch: &'a RecordBatch, first: u64) -> Result<Vec<Lists<'a>>, RowFileError> {
        let of = |(column, name): (&usize, &String)| {
            // A projection keeps the order of the file.
            let place = self.chosen.iter().filter(|other| *other < column).count();
            let array: &dyn Array = batch.column(place);
            let is_missing = |row: &usize| array.is_null(*row);
            if let Some(row) = (0..array.len()).find(is_missing).filter(|_| array.null_count() > 0) {
                let row = first + row as u64;
                return Err(self.wrong(format!("row {row} of column `{name}` is null: fill it or drop the row")));
            }
            let lists = Lists::of(array).filter(|lists| lists.element == self.element).ok_or_else(|| {
                self.wrong(format!("column `{name}` has lists with nulls, or another type than the schema: fill them"))
            })?;
            Ok(lists)
        };
        self.chosen.iter().zip(&self.names).map(of).collect()
    }

    /// Returns the error about a row with a list of another length than the first one's.
    fn length(&self, batch: &RecordBatch, lists: &[Lists<'_>], first: u64, row: usize) -> RowFileError {
        debug_assert!(row < batch.num_rows());
        let wrong = |(list, width): &(&Lists<'_>, &u64)| list.length(row) != **width;
        let all = lists.iter().zip(&self.widths);
        match all.zip(&self.names).find(|(pair, _)| wrong(pair)) {
            Some(((list, width), name)) => self.wrong(format!(
                "row {} of column `{name}` has {} elements, and the first row has {width}: rows have one length",
                first + row as u64,
                list.length(row)
            )),
            None => self.wrong("a list lies beyond its elements; the file is damaged".to_owned()),
        }
    }
}

/// Returns the columns and the number of rows of a file.
fn described(source: &Source, is_parquet: bool) -> Result<(Arc<Schema>, u64), String> {
    if is_parquet {
        let metadata = ArrowReaderMetadata::load(source, Default::default()).map_err(|e| damaged(&e))?;
        let groups = metadata.metadata().row_groups().iter();
        let rows = groups.map(|g| u64::try_from(g.num_rows()).unwrap_or(0)).fold(0, u64::saturating_add);
        return Ok((metadata.schema().clone(), rows));
    }
    let blocks = columnar::check(source)?;
    // The decoder takes memory for a whole block, however much the file says.
    let (most, free) = (blocks.iter().map(|b| b.bytes).max().unwrap_or(0), free_host_memory());
    if let Some(free) = free.filter(|free| u128::from(*free) < most) {
        return Err(format!("a batch of it takes {most} bytes of memory, and {free} are free: write smaller batches"));
    }
    let rows = blocks.iter().filter(|b| b.is_batch).map(|b| b.rows).fold(0, u64::saturating_add);
    let reader = FileReader::try_new(source.at(0), None).map_err(|e| damaged(&e))?;
    Ok((reader.schema(), rows))
}

/// Returns the places of the columns with these names, in their order; all columns if there are none.
fn choose(schema: &Schema, wanted: &[String]) -> Result<Vec<usize>, String> {
    if wanted.is_empty() {
        return Ok((0..schema.fields().len()).collect());
    }
    let mut chosen = Vec::new();
    for name in wanted {
        let Ok(place) = schema.index_of(name) else {
            let names: Vec<&str> = schema.fields().iter().take(8).map(|f| f.name().as_str()).collect();
            return Err(format!("it has no column `{name}`; there are `{}`", names.join("`, `")));
        };
        if chosen.contains(&place) {
            return Err(format!("column `{name}` is named twice: name it once"));
        }
        chosen.push(place);
    }
    Ok(chosen)
}

/// Returns the type of a column's numbers, or `None` for a column that no row is made of.
fn element_of(kind: &DataType) -> Option<ElementType> {
    macro_rules! each {
        ($($name:ident: $type:ty = $element:ident),*) => {
            match kind {
                $(DataType::$name => Some(ElementType::$element),)*
                DataType::FixedSizeList(item, _) | DataType::List(item) | DataType::LargeList(item)
                    if !item.data_type().is_nested() =>
                {
                    element_of(item.data_type())
                }
                _ => None,
            }
        };
    }
    numbers!(each)
}

/// Numbers of one column of a batch, as bytes, and where each row has its own.
struct Lists<'a> {
    element: ElementType,
    each: usize,
    values: &'a [u8],
    starts: Starts<'a>,
}

enum Starts<'a> {
    /// First element of row 0, and elements of each row.
    Fixed(usize, usize),
    Narrow(&'a [i32]),
    Wide(&'a [i64]),
}

impl<'a> Lists<'a> {
    /// Takes a column, or returns `None` for one of another type, or with lists that have nulls.
    fn of(array: &'a dyn Array) -> Option<Self> {
        let (values, starts): (&dyn Array, Starts<'a>) = match array.data_type() {
            DataType::FixedSizeList(..) => {
                let lists = array.as_fixed_size_list_opt()?;
                let first = if lists.is_empty() { 0 } else { lists.value_offset_at(0) };
                (lists.values(), Starts::Fixed(first, usize::try_from(lists.value_length()).ok()?))
            }
            DataType::List(_) => {
                let lists = array.as_list_opt::<i32>()?;
                (lists.values(), Starts::Narrow(lists.value_offsets()))
            }
            DataType::LargeList(_) => {
                let lists = array.as_list_opt::<i64>()?;
                (lists.values(), Starts::Wide(lists.value_offsets()))
            }
            _ => (array, Starts::Fixed(0, 1)),
        };
        if values.null_count() > 0 {
            return None;
        }
        macro_rules! each {
            ($($name:ident: $type:ty = $element:ident),*) => {
                match values.data_type() {
                    $(DataType::$name => {
                        (ElementType::$element, values.as_primitive_opt::<$type>()?.values().inner().as_slice())
                    })*
                    _ => return None,
                }
            };
        }
        let (element, values) = numbers!(each);
        Some(Self { element, each: element.bytes()? as usize, values, starts })
    }

    /// Returns the place of the first element of a row, and that behind its last one.
    fn range(&self, row: usize) -> (u64, u64) {
        match self.starts {
            Starts::Fixed(first, length) => ((first + row * length) as u64, (first + (row + 1) * length) as u64),
            Starts::Narrow(offsets) => (offsets[row] as u64, offsets[row + 1] as u64),
            Starts::Wide(offsets) => (offsets[row] as u64, offsets[row + 1] as u64),
        }
    }

    /// Returns the number of elements in a row.
    fn length(&self, row: usize) -> u64 {
        let (start, end) = self.range(row);
        end.saturating_sub(start)
    }

    /// Returns the bytes of a row, or `None` if it has not `width` elements.
    fn row(&self, row: usize, width: u64) -> Option<&'a [u8]> {
        let (start, end) = self.range(row);
        let bytes = self.values.get(start as usize * self.each..end as usize * self.each)?;
        (self.length(row) == width).then_some(bytes)
    }
}
