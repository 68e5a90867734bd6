//! Edge tables in columns: Parquet files, and Arrow IPC files (`.arrow`, `.feather`).
//!
//! Columns are chosen by the names that headers of `.csv` files have. Columns of integers hold numbers, columns of
//! strings hold names, which [`IdKind`](super::IdKind) may change.

mod column;
#[cfg(test)]
mod tests;

use super::bytes::Bytes;
use super::error::ImportError;
use super::headings::{Columns, First, FirstLine};
use super::line_fault::LineFault;
use super::names::Vertices;
use super::raw::{RawEdges, Read};
use super::{Format, IdKind, Pieces, Progress, Reader, Stage, memory};
use crate::columnar::{self, Source};
use crate::graph::parallel;
use arrow_array::RecordBatch;
use arrow_ipc::reader::FileReader;
use arrow_schema::{DataType, Schema};
use column::{Identifiers, Weights};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ParquetRecordBatchReaderBuilder};
use std::borrow::Cow;
use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Rows of a batch that a Parquet file is decoded into.
const BATCH: usize = 1 << 16;

/// The columns that are read, and the parser of their vertices.
struct Table<'a> {
    bytes: &'a Bytes<'a>,
    /// Positions of the columns in the file, ascending.
    roots: Vec<usize>,
    /// Positions in `roots`.
    source: usize,
    target: usize,
    weight: Option<usize>,
    vertices: Vertices,
    reader: &'a Reader<'a>,
}

impl Reader<'_> {
    /// Reads a Parquet file, or an Arrow IPC file.
    pub(crate) fn columnar(&self, bytes: &Bytes<'_>, format: Format) -> Result<Read, ImportError> {
        columnar::guarded(
            |reason| wrong(bytes, reason),
            || match format {
                Format::Arrow => self.arrow(bytes),
                _ => self.parquet(bytes),
            },
        )
    }

    /// Reads a Parquet file. Each task decodes a row group.
    fn parquet(&self, bytes: &Bytes<'_>) -> Result<Read, ImportError> {
        let source = source_of(bytes)?;
        let metadata = ArrowReaderMetadata::load(&source, Default::default()).map_err(|e| damaged(bytes, &e))?;
        let groups = metadata.metadata().row_groups();
        let starts: Vec<u64> = groups
            .iter()
            .scan(0u64, |row, group| {
                let start = *row;
                *row = row.saturating_add(u64::try_from(group.num_rows()).unwrap_or(0));
                Some(start)
            })
            .collect();
        let rows = groups.iter().map(|g| u64::try_from(g.num_rows()).unwrap_or(0)).fold(0, u64::saturating_add);
        let table = self.table(bytes, metadata.schema(), rows)?;
        let done = AtomicU64::new(0);
        let read = |group: usize| -> Result<RawEdges, ImportError> {
            let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(source.clone(), metadata.clone());
            let mask = ProjectionMask::roots(builder.parquet_schema(), table.roots.iter().copied());
            let batches = builder.with_projection(mask).with_row_groups(vec![group]).with_batch_size(BATCH).build();
            let (mut edges, mut row) = (RawEdges::default(), starts[group]);
            for batch in batches.map_err(|e| damaged(bytes, &e))? {
                let batch = batch.map_err(|e| damaged(bytes, &e))?;
                table.append(&batch, row, &mut edges)?;
                row += batch.num_rows() as u64;
                let more = batch.num_rows() as u64;
                self.rows_read(done.fetch_add(more, Ordering::Relaxed) + more, rows);
            }
            Ok(edges)
        };
        let mut pieces = self.pieces();
        let at_once = if self.budget.is_some() { rayon::current_num_threads() } else { groups.len().max(1) };
        for first in (0..groups.len()).step_by(at_once) {
            let last = groups.len().min(first + at_once);
            let edges: Vec<Result<RawEdges, ImportError>> = parallel::map(last - first, |i| read(first + i));
            // The first row group with an error decides, for any number of threads.
            edges.into_iter().try_for_each(|edges| pieces.push(edges?, 0))?;
        }
        table.finish(pieces, Format::Parquet)
    }

    /// Reads an Arrow IPC file, one batch after the other.
    fn arrow(&self, bytes: &Bytes<'_>) -> Result<Read, ImportError> {
        let source = source_of(bytes)?;
        for block in columnar::check(&source).map_err(|reason| wrong(bytes, reason))? {
            let what = bytes.path().display().to_string();
            memory::check(&what, 0, block.rows.into(), block.bytes, self.options.memory)?;
        }
        let schema = FileReader::try_new(source.at(0), None).map_err(|e| damaged(bytes, &e))?.schema();
        let table = self.table(bytes, &schema, 0)?;
        let file = FileReader::try_new_buffered(source.at(0), Some(table.roots.clone()));
        let (mut pieces, mut row) = (self.pieces(), 0);
        let file = file.map_err(|e| damaged(bytes, &e))?;
        let batches = file.num_batches() as u64;
        for (index, batch) in file.enumerate() {
            let batch = batch.map_err(|e| damaged(bytes, &e))?;
            let mut edges = RawEdges::default();
            table.append(&batch, row, &mut edges)?;
            row += batch.num_rows() as u64;
            table.check_memory(row)?;
            pieces.push(edges, 0)?;
            self.rows_read(index as u64 + 1, batches);
        }
        table.finish(pieces, Format::Arrow)
    }

    fn rows_read(&self, done: u64, total: u64) {
        if let Some(progress) = self.options.progress {
            progress(Progress { stage: Stage::Read, done, total });
        }
    }

    /// Chooses the columns of a table of at least `rows` rows.
    fn table<'a>(&'a self, bytes: &'a Bytes<'a>, schema: &Schema, rows: u64) -> Result<Table<'a>, ImportError> {
        let names: Vec<Cow<'_, [u8]>> = schema.fields().iter().map(|f| Cow::Borrowed(f.name().as_bytes())).collect();
        let first = First { path: bytes.path(), words: &names, one_suffices: true };
        let Columns { source, target, weight, .. } = match first.meaning(self.options.columns)? {
            FirstLine::Heading(columns) | FirstLine::HeadingAboveNumbers(columns) => columns,
            FirstLine::Edge(Some(columns)) if columns.source.max(columns.target) < names.len() => columns,
            FirstLine::Edge(_) => return Err(first.wrong(format!("no columns of vertices among {}", first.list()))),
        };
        if weight.is_none() {
            self.note_numbers(&names, |column| {
                ![source, target].contains(&column) && column::is_number(schema.field(column).data_type())
            });
        }
        let weight = weight.filter(|_| self.wants_weights());
        let mut has_strings = false;
        for column in [source, target] {
            let field = schema.field(column);
            match column::identifiers(field.data_type()) {
                Some(strings) => has_strings |= strings,
                None => {
                    return Err(wrong_type(bytes, field.name(), field.data_type(), "vertices are integers or strings"));
                }
            }
        }
        if let Some(field) = weight.map(|column| schema.field(column))
            && !column::is_number(field.data_type())
        {
            return Err(wrong_type(bytes, field.name(), field.data_type(), "weights are integers or floats"));
        }
        let vertices = match self.options.ids {
            IdKind::Numbers => self.numbered(false),
            IdKind::Auto if !has_strings => self.numbered(false),
            IdKind::Auto | IdKind::Names => self.named(bytes.path())?,
        };
        let mut roots: Vec<usize> = [source, target].into_iter().chain(weight).collect();
        roots.sort_unstable();
        roots.dedup();
        let place = |column: usize| roots.partition_point(|&root| root < column);
        let (source, target, weight) = (place(source), place(target), weight.map(place));
        let table = Table { bytes, source, target, weight, roots, vertices, reader: self };
        table.check_memory(rows)?;
        Ok(table)
    }
}

impl Table<'_> {
    /// Returns an error if so many edges cannot fit into memory.
    fn check_memory(&self, rows: u64) -> Result<(), ImportError> {
        if self.reader.budget.is_some() {
            return Ok(());
        }
        let what = self.bytes.path().display().to_string();
        let needed = u128::from(rows) * if self.weight.is_some() { 12 } else { 8 };
        memory::check(&what, 0, rows.into(), needed, self.reader.options.memory)
    }

    /// Adds the edges of a batch, whose first row is row `first` of the file, counted from 0.
    fn append(&self, batch: &RecordBatch, first: u64, edges: &mut RawEdges) -> Result<(), ImportError> {
        let name = |column: usize| batch.schema_ref().field(column).name().clone();
        let fault = |row: usize, fault: LineFault| ImportError::Row {
            path: self.bytes.path().to_owned(),
            row: first + row as u64 + 1,
            fault,
        };
        let ends = [self.source, self.target].map(|column| Identifiers::of(batch.column(column)));
        let [Some(mut source), Some(mut target)] = ends else {
            return Err(wrong(self.bytes, "its batches have other columns than its schema; it is damaged".to_owned()));
        };
        let mut weights = match self.weight {
            None => None,
            Some(column) => match Weights::of(batch.column(column)) {
                None => {
                    return Err(wrong(self.bytes, "its weights are not those of its schema; it is damaged".to_owned()));
                }
                weights => weights,
            },
        };
        let null = |column: usize| LineFault::Null { column: name(column) };
        for row in 0..batch.num_rows() {
            let vertex = |ids: &mut Identifiers<'_>, column| match ids.at(row, &self.vertices) {
                None => Err(fault(row, null(column))),
                Some(vertex) => vertex.map_err(|e| fault(row, e)),
            };
            let (from, to) = (vertex(&mut source, self.source)?, vertex(&mut target, self.target)?);
            if let (Some(weights), Some(column)) = (&mut weights, self.weight) {
                let weight = weights.at(row).ok_or_else(|| fault(row, null(column)))?;
                let number = first + row as u64 + 1;
                let weight = weight.and_then(|w| edges.push_parsed(w, number, self.reader.options.precision));
                weight.map_err(|e| fault(row, e))?;
            }
            edges.push(from, to);
        }
        Ok(())
    }

    fn finish(self, pieces: Pieces, format: Format) -> Result<Read, ImportError> {
        let read = Read {
            format,
            path: self.bytes.path().to_owned(),
            pieces,
            ids: None,
            translation: None,
            directed: None,
            called_directed: false,
            mirrored: false,
            both_listed: false,
            weighted: self.weight.is_some(),
            bytes: self.bytes.len(),
        };
        self.vertices.finish(read, self.reader)
    }
}

fn wrong(bytes: &Bytes<'_>, reason: String) -> ImportError {
    ImportError::Table { path: bytes.path().to_owned(), reason }
}

fn wrong_type(bytes: &Bytes<'_>, column: &str, found: &DataType, expected: &str) -> ImportError {
    wrong(bytes, format!("column `{}` has the type {found}, but {expected}", super::text::quote(column.as_bytes())))
}

/// Converts an error of the decoder.
fn damaged(bytes: &Bytes<'_>, error: &dyn Display) -> ImportError {
    wrong(bytes, columnar::damaged(error))
}

/// Takes the contents of an input. Those that are not in a file are copied.
fn source_of(bytes: &Bytes<'_>) -> Result<Source, ImportError> {
    if let Some(file) = bytes.file() {
        let file = file.try_clone().map_err(|source| ImportError::Io { path: bytes.path().to_owned(), source })?;
        return Ok(Source::File(Arc::new(file), bytes.len()));
    }
    let mut all = vec![0; bytes.len() as usize];
    bytes.read(0, &mut all)?;
    Ok(Source::Memory(all.into()))
}
