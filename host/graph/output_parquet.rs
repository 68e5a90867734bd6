//! Results as a Parquet file: columns `source` (for several sources), `vertex`, one named after the value, and `parent`
//! (where results have parents).
//!
//! Vertices are u64, or strings if they have names. Depths are u32, integer distances u64, real numbers as wide as they
//! are. Vertices that were not reached have nulls.

use super::ids::Ids;
use super::names::VertexName;
use super::output::{NO_PARENT, Values, Written};
use super::verify::{Distances, UNREACHED};
use arrow_array::{ArrayRef, Float32Array, Float64Array, RecordBatch, StringArray, UInt32Array, UInt64Array};
use arrow_schema::{DataType, Field, Schema};
use parking_lot::Mutex;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use std::io::{self, Write};
use std::ops::Range;
use std::sync::Arc;

/// Rows that are encoded at a time.
const BATCH: usize = 1 << 16;
/// Rows of a row group, which is in memory until it is written.
const GROUP: usize = 1 << 20;

/// Bytes that the encoder has written, until they are passed on.
#[derive(Clone, Default)]
struct Pending(Arc<Mutex<Vec<u8>>>);

impl Pending {
    fn pass_on(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&std::mem::take(&mut *self.0.lock()))
    }
}

impl Write for Pending {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes the results of all sources. Components must be numbers of vertices.
pub(super) fn write(out: &mut dyn Write, ids: &Ids, results: &[Written<'_>]) -> io::Result<()> {
    let Some(first) = results.first() else { return Ok(()) };
    let id = if ids.names().is_some() { DataType::Utf8 } else { DataType::UInt64 };
    let value = value_type(&first.values, &id);
    let source = first.source.as_ref().map(|_| Field::new("source", id.clone(), false));
    let parent = first.parents.map(|_| Field::new("parent", id.clone(), true));
    let rest = [Field::new("vertex", id, false), Field::new(first.values.heading(), value, true)];
    let schema = Arc::new(Schema::new(source.into_iter().chain(rest).chain(parent).collect::<Vec<_>>()));
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_max_row_group_row_count(Some(GROUP))
        .build();
    let pending = Pending::default();
    let mut writer =
        ArrowWriter::try_new(pending.clone(), schema.clone(), Some(properties)).map_err(io::Error::other)?;
    for result in results {
        let values = &result.values;
        for start in (0..values.len()).step_by(BATCH) {
            let rows = start..values.len().min(start + BATCH);
            let source = result.source.as_ref().map(|source| repeated(source, rows.len()));
            let parent = result.parents.map(|parents| parents_or_null(ids, &parents[rows.clone()]));
            let rest = [identifiers(ids, rows.clone().map(|v| v as u64)), column(values, ids, rows)];
            let columns = source.into_iter().chain(rest).chain(parent).collect();
            let batch = RecordBatch::try_new(schema.clone(), columns).map_err(io::Error::other)?;
            writer.write(&batch).map_err(io::Error::other)?;
            pending.pass_on(out)?;
        }
    }
    writer.close().map_err(io::Error::other)?;
    pending.pass_on(out)
}

fn value_type(values: &Values<'_>, id: &DataType) -> DataType {
    match values {
        Values::Depths(_) | Values::Distances(Distances::U32(_)) => DataType::UInt32,
        Values::Distances(Distances::U64(_)) | Values::Triangles(_) | Values::Cores(_) => DataType::UInt64,
        Values::Distances(Distances::F32(_)) | Values::Ranks32(_) => DataType::Float32,
        Values::Distances(Distances::F64(_)) | Values::Ranks64(_) | Values::Coefficients(_) | Values::Scores(_) => {
            DataType::Float64
        }
        Values::Components(_) | Values::WideComponents(_) | Values::Labels(_) => id.clone(),
    }
}

/// Returns the identifiers of vertices.
fn identifiers(ids: &Ids, vertices: impl Iterator<Item = u64>) -> ArrayRef {
    match ids.names() {
        Some(names) => Arc::new(StringArray::from_iter_values(vertices.map(|v| names.get(v)))),
        None => Arc::new(UInt64Array::from_iter_values(vertices.filter_map(|v| ids.id(v).number()))),
    }
}

/// Returns the identifiers of parents.
fn parents_or_null(ids: &Ids, parents: &[u64]) -> ArrayRef {
    let known = parents.iter().map(|&v| (v != NO_PARENT).then_some(v));
    match ids.names() {
        Some(names) => Arc::new(known.map(|v| Some(names.get(v?))).collect::<StringArray>()),
        None => Arc::new(known.map(|v| ids.id(v?).number()).collect::<UInt64Array>()),
    }
}

fn repeated(source: &VertexName<'_>, count: usize) -> ArrayRef {
    match source {
        VertexName::Number(number) => Arc::new(UInt64Array::from_iter_values(std::iter::repeat_n(*number, count))),
        VertexName::Text(text) => Arc::new(StringArray::from_iter_values(std::iter::repeat_n(text, count))),
    }
}

fn column(values: &Values<'_>, ids: &Ids, rows: Range<usize>) -> ArrayRef {
    match values {
        Values::Depths(d) => {
            Arc::new(rows.map(|v| (d[v] != UNREACHED).then_some(d[v])).collect::<UInt32Array>()) as ArrayRef
        }
        Values::Distances(all) => {
            let reached = |v: &usize| all.reached(*v);
            match all {
                Distances::U32(d) => Arc::new(rows.map(|v| reached(&v).then(|| d[v])).collect::<UInt32Array>()),
                Distances::U64(d) => Arc::new(rows.map(|v| reached(&v).then(|| d[v])).collect::<UInt64Array>()),
                Distances::F32(d) => Arc::new(rows.map(|v| reached(&v).then(|| d[v])).collect::<Float32Array>()),
                Distances::F64(d) => Arc::new(rows.map(|v| reached(&v).then(|| d[v])).collect::<Float64Array>()),
            }
        }
        Values::Ranks32(ranks) => Arc::new(Float32Array::from_iter_values(ranks[rows].iter().copied())),
        Values::Triangles(n) | Values::Cores(n) => Arc::new(UInt64Array::from_iter_values(n[rows].iter().copied())),
        Values::Ranks64(ranks) | Values::Coefficients(ranks) | Values::Scores(ranks) => {
            Arc::new(Float64Array::from_iter_values(ranks[rows].iter().copied()))
        }
        Values::Components(labels) => identifiers(ids, labels[rows].iter().map(|&v| v.into())),
        Values::WideComponents(labels) | Values::Labels(labels) => identifiers(ids, labels[rows].iter().copied()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::names::Names;
    use super::super::output::Output;
    use super::*;
    use arrow_array::cast::AsArray;
    use arrow_array::types::{Float64Type, UInt32Type, UInt64Type};
    use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

    fn only(values: Values<'_>) -> [Written<'_>; 1] {
        [Written { source: None, values, parents: None }]
    }

    fn written(ids: &Ids, results: &[Written<'_>]) -> Vec<RecordBatch> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.parquet");
        Output::create(&path).unwrap().finish_all(ids, results).unwrap();
        let file = std::fs::File::open(path).unwrap();
        ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap().map(Result::unwrap).collect()
    }

    #[test]
    fn every_kind_of_result_is_a_column() {
        let numbers = Ids::Sparse(vec![3, u64::MAX]);
        let batch = &written(&numbers, &only(Values::Depths(&[1, UNREACHED])))[0];
        assert_eq!(batch.column_by_name("vertex").unwrap().as_primitive::<UInt64Type>().values(), &[3, u64::MAX]);
        let depths: Vec<Option<u32>> =
            batch.column_by_name("depth").unwrap().as_primitive::<UInt32Type>().iter().collect();
        assert_eq!(depths, [Some(1), None]);
        let batch = &written(&numbers, &only(Values::Distances(Distances::F64(&[0.5, f64::INFINITY]))))[0];
        let lengths: Vec<_> = batch.column_by_name("distance").unwrap().as_primitive::<Float64Type>().iter().collect();
        assert_eq!(lengths, [Some(0.5), None]);
        let names = Ids::Named(Names::new(" ca,b".to_owned(), vec![0, 2, 5]).unwrap());
        let result = |source: &'static str, labels, parents| Written {
            source: Some(source.into()),
            values: Values::Components(labels),
            parents: Some(parents),
        };
        let results = [result("a,b", &[0, 0], &[1, NO_PARENT]), result(" c", &[0, 1], &[0, 1])];
        let batch = &written(&names, &results)[0];
        let strings = |column: &str| {
            batch.column_by_name(column).unwrap().as_string::<i32>().iter().flatten().collect::<Vec<_>>().join("|")
        };
        assert_eq!(strings("source"), "a,b|a,b| c| c");
        assert_eq!((strings("parent"), batch.column_by_name("parent").unwrap().null_count()), ("a,b| c|a,b".into(), 1));
        assert_eq!((strings("vertex"), strings("component")), (" c|a,b| c|a,b".into(), " c| c| c|a,b".into()));
    }

    #[test]
    fn many_rows_come_in_order() {
        let ranks: Vec<f64> = (0..GROUP + BATCH + 3).map(|v| v as f64 / 7.0).collect();
        let batches = written(&Ids::dense(5, ranks.len() as u64), &only(Values::Ranks64(&ranks)));
        let found: Vec<f64> =
            batches.iter().flat_map(|b| b.column(1).as_primitive::<Float64Type>().values().to_vec()).collect();
        assert_eq!(found, ranks);
    }
}
