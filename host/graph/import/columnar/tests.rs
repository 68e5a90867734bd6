//! Tests of Parquet and Arrow files, which the tests write, beside tables with commas of the same edges.

use crate::graph::import::tests::{WEIGHTED, message};
use crate::graph::import::*;
use crate::graph::quoting::{Field as Quoted, Separator};
use arrow_array::*;
use arrow_ipc::CompressionType;
use arrow_ipc::writer::{FileWriter, IpcWriteOptions};
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use proptest::prelude::*;
use std::sync::Arc;

fn table(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(columns.into_iter().map(|(name, array)| (name, array, true))).unwrap()
}

fn parquet(batch: &RecordBatch, group: usize, compression: Compression) -> Vec<u8> {
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(group)).set_compression(compression);
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties.build())).unwrap();
    writer.write(batch).unwrap();
    writer.into_inner().unwrap()
}

fn arrow(batch: &RecordBatch, rows: usize, compression: Option<CompressionType>) -> Vec<u8> {
    let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
    let mut writer = FileWriter::try_new_with_options(Vec::new(), &batch.schema(), options).unwrap();
    for start in (0..batch.num_rows()).step_by(rows) {
        writer.write(&batch.slice(start, rows.min(batch.num_rows() - start))).unwrap();
    }
    writer.into_inner().unwrap()
}

/// Reads a table in each form, compressed and in small pieces, from memory and from a file. All forms are the same graph.
fn loaded(batch: &RecordBatch, options: &LoadOptions<'_>) -> Result<Loaded, ImportError> {
    let folder = tempfile::tempdir().unwrap();
    let zstd = Compression::ZSTD(ZstdLevel::default());
    let mut all = Vec::new();
    for (name, bytes) in [
        ("plain.parquet", parquet(batch, 1 << 20, Compression::UNCOMPRESSED)),
        ("snappy.parquet", parquet(batch, 3, Compression::SNAPPY)),
        ("zstd.PARQUET", parquet(batch, 7, zstd)),
        ("plain.arrow", arrow(batch, 1 << 20, None)),
        ("lz4.feather", arrow(batch, 3, Some(CompressionType::LZ4_FRAME))),
        ("zstd.arrow", arrow(batch, 5, Some(CompressionType::ZSTD))),
    ] {
        let path = folder.path().join(name);
        std::fs::write(&path, &bytes).unwrap();
        let [file, memory] = [load(&path, options), load_bytes(name, &bytes, options)];
        match (&file, &memory) {
            (Ok(file), Ok(memory)) => assert_eq!(file, memory, "{name}"),
            (Err(file), Err(memory)) => assert!(file.to_string().ends_with(&memory.to_string()), "{file} {memory}"),
            other => panic!("{name}: {other:?}"),
        }
        all.push(memory);
    }
    let first = all.remove(0);
    for other in &all {
        match (&first, other) {
            (Ok(a), Ok(b)) => assert_eq!(a.csr, b.csr),
            (Err(_), Err(_)) => {}
            other => panic!("{other:?}"),
        }
    }
    first
}

fn u64s(list: &[u64]) -> ArrayRef {
    Arc::new(UInt64Array::from(list.to_vec()))
}

#[test]
fn every_type_of_identifiers_and_weights_is_read() {
    let expected = load_bytes("g.csv", b"source,target,weight\n1,2,5\n2,100,0\n", &WEIGHTED).unwrap().csr;
    let integers: [(ArrayRef, ArrayRef); 8] = [
        (Arc::new(Int8Array::from(vec![1, 2])), Arc::new(Int8Array::from(vec![2, 100]))),
        (Arc::new(Int16Array::from(vec![1, 2])), Arc::new(Int16Array::from(vec![2, 100]))),
        (Arc::new(Int32Array::from(vec![1, 2])), Arc::new(Int32Array::from(vec![2, 100]))),
        (Arc::new(Int64Array::from(vec![1, 2])), Arc::new(Int64Array::from(vec![2, 100]))),
        (Arc::new(UInt8Array::from(vec![1, 2])), Arc::new(UInt8Array::from(vec![2, 100]))),
        (Arc::new(UInt16Array::from(vec![1, 2])), Arc::new(UInt16Array::from(vec![2, 100]))),
        (Arc::new(UInt32Array::from(vec![1, 2])), Arc::new(UInt32Array::from(vec![2, 100]))),
        (u64s(&[1, 2]), u64s(&[2, 100])),
    ];
    for (from, to) in integers {
        let weights: ArrayRef = Arc::new(Int16Array::from(vec![5, 0]));
        // Columns are found by their names, in any order.
        let csr = loaded(&table(vec![("Cost", weights), ("x", to.clone()), ("DST", to), ("from", from)]), &WEIGHTED)
            .unwrap()
            .csr;
        assert_eq!(csr, expected);
    }
    let names = load_bytes("g.csv", b"from,to,w\nann,\"b,c\",0.5\n\"b,c\",1,2.5\n", &WEIGHTED).unwrap().csr;
    let (from, to) = (vec!["ann", "b,c"], vec!["b,c", "1"]);
    let dictionary =
        |list: &[&str]| -> ArrayRef { Arc::new(list.iter().copied().collect::<DictionaryArray<types::Int8Type>>()) };
    let strings: [(ArrayRef, ArrayRef); 4] = [
        (Arc::new(StringArray::from(from.clone())), Arc::new(StringArray::from(to.clone()))),
        (Arc::new(LargeStringArray::from(from.clone())), Arc::new(LargeStringArray::from(to.clone()))),
        (Arc::new(StringViewArray::from(from.clone())), Arc::new(StringViewArray::from(to.clone()))),
        (dictionary(&from), dictionary(&to)),
    ];
    for (from, to) in strings {
        for weights in
            [Arc::new(Float32Array::from(vec![0.5, 2.5])) as ArrayRef, Arc::new(Float64Array::from(vec![0.5, 2.5]))]
        {
            assert_eq!(
                loaded(&table(vec![("src", from.clone()), ("dst", to.clone()), ("w", weights)]), &WEIGHTED)
                    .unwrap()
                    .csr,
                names
            );
        }
    }
}

#[test]
fn the_type_of_a_column_may_be_overruled() {
    let numbers = table(vec![("source", u64s(&[10, 9])), ("target", u64s(&[9, 8]))]);
    let names = loaded(&numbers, &LoadOptions::default().ids(IdKind::Names)).unwrap().csr;
    assert_eq!(names.ids().names().unwrap().iter().collect::<Vec<_>>(), ["10", "8", "9"]);
    let strings = |to| {
        table(vec![("source", u64s(&[10, 9])), ("target", Arc::new(StringArray::from(vec!["9", to])) as ArrayRef)])
    };
    let numbers = loaded(&strings("8"), &LoadOptions::default().ids(IdKind::Numbers)).unwrap().csr;
    assert_eq!(numbers.ids(), &crate::graph::Ids::dense(8, 3));
    assert_eq!(loaded(&strings("8"), &LoadOptions::default()).unwrap().csr, names);
    let found = message(loaded(&strings("x"), &LoadOptions::default().ids(IdKind::Numbers)));
    assert!(found.contains("row 2: `x` is not a vertex identifier"), "{found}");
}

#[test]
fn values_of_a_dictionary_that_no_row_has_are_no_vertices() {
    let values = Arc::new(StringArray::from(vec![Some("unused"), Some("a"), None, Some("b")]));
    let column =
        |keys: Vec<Option<i8>>| -> ArrayRef { Arc::new(DictionaryArray::new(Int8Array::from(keys), values.clone())) };
    let batch = table(vec![("source", column(vec![Some(1)])), ("target", column(vec![Some(3)]))]);
    assert_eq!(loaded(&batch, &LoadOptions::default()).unwrap().csr.ids().len(), 2);
    for key in [None, Some(2)] {
        let batch = table(vec![("source", column(vec![Some(1), Some(1)])), ("target", column(vec![Some(3), key]))]);
        let found = message(loaded(&batch, &LoadOptions::default()));
        assert!(found.contains("row 2: column `target` is null"), "{found}");
    }
}

#[test]
fn wrong_rows_and_columns_are_named() {
    let ids = || u64s(&[1, 2, 3, 4]);
    let weights = |list: Vec<Option<f64>>| -> ArrayRef { Arc::new(Float64Array::from(list)) };
    let weighted = |w: ArrayRef| table(vec![("source", ids()), ("target", ids()), ("weight", w)]);
    for (batch, expected) in [
        (
            table(vec![
                ("source", ids()),
                ("target", Arc::new(UInt64Array::from(vec![Some(1), Some(2), Some(3), None]))),
            ]),
            "row 4: column `target` is null",
        ),
        (
            table(vec![("source", ids()), ("target", Arc::new(Int64Array::from(vec![1, 2, 3, -4])))]),
            "row 4: vertex -4 is negative",
        ),
        (weighted(weights(vec![Some(1.0), None, Some(1.0), Some(1.0)])), "row 2: column `weight` is null"),
        (weighted(weights(vec![Some(1.0), Some(2.0), Some(3.0), Some(-0.5)])), "row 4: weight -0.5 is negative"),
        (weighted(weights(vec![Some(1.0), Some(f64::NAN), Some(3.0), Some(0.5)])), "row 2: weight NaN is not a finite"),
        (
            weighted(weights(vec![Some(1.0), Some(1e39), Some(3.0), Some(0.5)])),
            "row 2: weight 1000000000000000000000000000000000000000 does not fit into 32 bits",
        ),
        (weighted(u64s(&[1, 2, 1 << 32, 4])), "row 3: integer weight 4294967296 is larger"),
        (
            weighted(Arc::new(StringArray::from(vec!["1"; 4]))),
            "column `weight` has the type Utf8, but weights are integers or floats",
        ),
        (
            table(vec![("source", weights(vec![Some(1.0)])), ("target", weights(vec![Some(1.0)]))]),
            "column `source` has the type Float64, but vertices are integers or strings",
        ),
        (table(vec![("a", ids()), ("b", ids())]), "no columns of vertices among `a`, `b`; known are source, src"),
        (table(vec![("source", ids()), ("b", ids())]), "no column of targets"),
        (table(vec![("source", u64s(&[])), ("target", u64s(&[]))]), "holds no vertex"),
        (
            table(vec![("source", ids()), ("target", Arc::new(StringArray::from(vec!["a", "b", "", "d"])))]),
            "row 3: ``: the name of a vertex is empty",
        ),
    ] {
        let found = message(loaded(&batch, &WEIGHTED));
        assert!(found.contains(expected), "{found}");
    }
    // Weights that nobody asked for are not read.
    assert!(loaded(&weighted(weights(vec![None; 4])), &LoadOptions::default()).is_ok());
    let none = RecordBatch::new_empty(Arc::new(Schema::new(vec![Field::new("source", DataType::Int8, false)])));
    assert!(message(loaded(&none, &WEIGHTED)).contains("no column of targets"));
}

#[test]
fn files_that_are_cut_or_of_another_kind_are_refused() {
    let batch = table(vec![("source", u64s(&[1, 2])), ("target", u64s(&[2, 3]))]);
    for (name, whole) in [("g.parquet", parquet(&batch, 9, Compression::SNAPPY)), ("g.arrow", arrow(&batch, 9, None))] {
        for bytes in [&whole[..whole.len() - 5], &whole[..10], b"source,target\n1,2\n"] {
            let found = message(load_bytes(name, bytes, &LoadOptions::default()));
            assert!(found.starts_with(&format!("{name}: cannot be decoded")), "{found}");
        }
    }
    let many = u64s(&(0..10_000).collect::<Vec<_>>());
    let batch = table(vec![("source", many.clone()), ("target", many)]);
    let found = message(loaded(&batch, &LoadOptions::default().memory(Some(70_000))));
    assert!(found.contains("10,000 edges need about 78.1 KiB of memory"), "{found}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn columns_are_the_table_of_the_same_edges(
        edges in prop::collection::vec(("[a-c1é,\"]{1,3}", "[a-c1é ]{1,3}", any::<u16>()), 1..40), named: bool, directed: bool,
    ) {
        let orientation = if directed { Orientation::Directed } else { Orientation::Undirected };
        let ids = if named { IdKind::Names } else { IdKind::Auto };
        let options = LoadOptions { orientation, ids, ..WEIGHTED };
        let csv = |text: &str| Quoted { text, separator: Separator::Comma }.to_string();
        let number = |text: &str| text.bytes().fold(0u64, |n, b| n * 7 + u64::from(b));
        let (mut text, mut columns) = ("source,target,weight\n".to_owned(), (Vec::new(), Vec::new()));
        for (from, to, weight) in &edges {
            if named {
                text += &format!("{},{},{weight}\n", csv(from), csv(to));
            } else {
                columns.0.push(number(from));
                columns.1.push(number(to));
                text += &format!("{},{},{weight}\n", number(from), number(to));
            }
        }
        let strings = |column: fn(&(String, String, u16)) -> &str| -> ArrayRef {
            Arc::new(StringArray::from_iter_values(edges.iter().map(column)))
        };
        let [from, to] = if named { [strings(|e| &e.0), strings(|e| &e.1)] } else { [u64s(&columns.0), u64s(&columns.1)] };
        let weights: ArrayRef = Arc::new(UInt16Array::from_iter_values(edges.iter().map(|e| e.2)));
        let csr = loaded(&table(vec![("source", from), ("target", to), ("weight", weights)]), &options).unwrap().csr;
        prop_assert_eq!(csr, load_bytes("g.csv", text.as_bytes(), &options).unwrap().csr);
    }

    #[test]
    fn damaged_files_are_errors_or_graphs(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6), is_parquet: bool, names: bool,
    ) {
        let column = |list: [&str; 4]| -> ArrayRef {
            if names { Arc::new(StringArray::from(list.to_vec())) } else { u64s(&list.map(|s| s.len() as u64)) }
        };
        let batch = table(vec![("source", column(["a", "bb", "a", "c"])), ("target", column(["bb", "c", "dddd", "a"]))]);
        let mut bytes = if is_parquet { parquet(&batch, 2, Compression::SNAPPY) } else { arrow(&batch, 2, None) };
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let options = LoadOptions::default().memory(Some(1 << 26));
        match load_bytes(if is_parquet { "g.parquet" } else { "g.arrow" }, &bytes, &options) {
            Ok(loaded) => prop_assert!(loaded.csr.vertices() > 0),
            Err(error) => prop_assert!(!error.to_string().contains('\n')),
        }
    }
}
