//! Tests of files that become tables.

use super::*;
use crate::engine::testing;
use crate::storage::{Drive, ElementType};
use tempfile::TempDir;

fn volume(bytes: &str) -> Volume {
    Volume::on(&testing::cpu(), [Drive::open(&format!("soft:mem:{bytes}")).unwrap()]).build().unwrap()
}

fn npy(shape: &str, kind: &str, data: &[u8]) -> Vec<u8> {
    let text = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}");
    let mut file = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    file.extend(format!("{text:117}\n").bytes());
    file.extend(data);
    file
}

fn write(folder: &TempDir, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

fn refused(path: &Path, options: &RowFileOptions) -> String {
    let text = RowFile::open(path, options).unwrap_err().to_string();
    assert!(text.contains(path.file_name().unwrap().to_str().unwrap()) && !text.contains('\n'), "{text}");
    text
}

#[test]
fn arrays_become_tables() {
    let folder = tempfile::tempdir().unwrap();
    let v = volume("16M");
    // More than one piece, which ends within a row.
    let words: Vec<u32> = (0..1_300_000u32).map(|i| i.wrapping_mul(0x9e37_79b9)).collect();
    let path = write(&folder, "w.NPY", &npy("(13000, 100)", "<u4", bytemuck::cast_slice(&words)));
    let file = RowFile::open(&path, &RowFileOptions::default()).unwrap();
    assert_eq!((file.layout().rows(), file.layout().row_shape()), (13_000, &[100][..]));
    let mut seen = Vec::new();
    let table = file.store(&v, "words", false, &mut |bytes| seen.push(bytes)).unwrap();
    assert_eq!(seen, [4 << 20, 5_200_000]);
    assert!(table.gather_to_vec::<u32>(&[12_999u64, 0, 10_486]).unwrap()[..100] == words[1_299_900..]);
    let all: Vec<u64> = (0..13_000).collect();
    assert!(table.gather_to_vec::<u32>(&all).unwrap() == words);

    let solid = write(&folder, "solid.npy", &npy("(3, 4, 8)", "<f8", &[1; 3 * 4 * 8 * 8]));
    let file = RowFile::open(&solid, &RowFileOptions::default()).unwrap();
    assert_eq!((file.layout().row_shape(), file.layout().element()), (&[4, 8][..], ElementType::F64));
    let flat = write(&folder, "flat.npy", &npy("(256,)", "|i1", &[3; 256]));
    let file = RowFile::open(&flat, &RowFileOptions::default().row_elements(Some(64))).unwrap();
    assert_eq!((file.layout().rows(), file.layout().row_bytes()), (4, 64));
    let again = file.store(&v, "words", false, &mut |_| {});
    assert!(matches!(again, Err(RowFileError::Storage(StorageError::Table(TableError::Exists { .. })))));
    let file = RowFile::open(&flat, &RowFileOptions::default().row_elements(Some(128))).unwrap();
    assert_eq!(file.store(&v, "words", true, &mut |_| {}).unwrap().gather_to_vec::<i8>(&[1u64]).unwrap(), [3; 128]);
    let none = write(&folder, "none.npy", &npy("(0, 64)", "|u1", &[]));
    let file = RowFile::open(&none, &RowFileOptions::default()).unwrap();
    assert_eq!(file.layout().rows(), 0);
}

#[test]
fn floats_of_16_and_8_bits_become_tables() {
    let folder = tempfile::tempdir().unwrap();
    let v = volume("1M");
    let plain = RowFileOptions::default;
    let bits: Vec<u16> = (0..20 * 64).map(|i| 0x3c00 + i).collect();
    let data = bytemuck::cast_slice(&bits);
    // numpy names float16, and writes bfloat16 and float8_e4m3fn of ml_dtypes as raw bytes.
    let half = write(&folder, "half.npy", &npy("(20, 64)", "<f2", data));
    let brain = write(&folder, "brain.npy", &npy("(20, 64)", "<V2", data));
    let view = write(&folder, "view.npy", &npy("(20, 64)", "<u2", data));
    let bytes = write(&folder, "bytes.npy", &npy("(20, 128)", "<V1", data));
    for (path, options, element) in [
        (&half, plain(), ElementType::F16),
        (&brain, plain().element(Some(ElementType::Bf16)), ElementType::Bf16),
        (&view, plain().element(Some(ElementType::Bf16)), ElementType::Bf16),
    ] {
        let file = RowFile::open(path, &options).unwrap();
        assert_eq!((file.layout().element(), file.layout().row_bytes()), (element, 128));
        let table = file.store(&v, "t", true, &mut |_| {}).unwrap();
        assert!(table.verify().unwrap());
        assert_eq!(table.gather_to_vec::<u16>(&[19u64, 0]).unwrap(), [&bits[19 * 64..], &bits[..64]].concat());
        let text = table.gather_to_vec::<i16>(&[19u64]).unwrap_err().to_string();
        assert!(text.contains(&format!("holds {element}, not i16")), "{text}");
        assert_eq!(Table::list(&v).unwrap()[0].layout.as_ref().unwrap().element(), element);
    }
    let file = RowFile::open(&bytes, &plain().element(ElementType::from_name("float8_e4m3fn"))).unwrap();
    let table = file.store(&v, "t", true, &mut |_| {}).unwrap();
    assert_eq!(table.gather_to_vec::<u8>(&[19u64]).unwrap(), data[19 * 128..]);
    assert!(refused(&brain, &plain()).contains("2 raw bytes, as NumPy writes bfloat16; name their type"));
    assert!(refused(&bytes, &plain()).contains("array.view(\"uint8\")"));
    assert!(refused(&half, &plain().element(Some(ElementType::Bf16))).contains("'<f2', not bf16"));
}

#[test]
fn files_that_are_no_tables_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let plain = RowFileOptions::default();
    let file = |name: &str, bytes: &[u8]| write(&folder, name, bytes);
    assert!(refused(&folder.path().join("absent.npy"), &plain).contains("No such file"));
    assert!(refused(&file("t.csv", b"1,2"), &plain).contains("names no format of rows"));
    assert!(refused(&file("p.npy", b"PK\x03\x04"), &plain).contains("numpy.save"));
    assert!(refused(&file("big.npy", &npy("(2, 16)", ">f4", &[0; 128])), &plain).contains("big-endian"));
    assert!(refused(&file("one.npy", &npy("(64,)", "|u1", &[0; 64])), &plain).contains("one dimension"));
    assert!(refused(&file("zero.npy", &npy("()", "<u8", &[0; 8])), &plain).contains("single number"));
    assert!(refused(&file("thin.npy", &npy("(8, 8)", "|u1", &[0; 64])), &plain).contains("64 to 65536"));
    let short = refused(&file("short.npy", &npy("(2, 64)", "|u1", &[0; 127])), &plain);
    assert!(short.contains("describes 128 bytes of rows, and 127 follow"), "{short}");
    assert!(refused(&file("long.npy", &npy("(2, 64)", "|u1", &[0; 129])), &plain).contains("129 follow"));
    let huge = file("huge.npy", &npy("(1099511627775, 65536)", "|u1", &[]));
    assert!(refused(&huge, &plain).contains("and 0 follow"));
    let flat = file("flat.npy", &npy("(100,)", "|u1", &[0; 100]));
    for each in [0, 64] {
        assert!(refused(&flat, &plain.clone().row_elements(Some(each))).contains("no whole rows"), "{each}");
    }
    let two = file("two.npy", &npy("(2, 64)", "|u1", &[0; 128]));
    assert!(refused(&two, &plain.clone().row_elements(Some(32))).contains("has not 32 elements"));
    assert!(refused(&two, &plain.clone().columns(["a"])).contains("columns are chosen"));
    let small = volume("64K");
    let rows = file("rows.npy", &npy("(2000, 64)", "|u1", &[0; 128_000]));
    let rows = RowFile::open(&rows, &plain).unwrap();
    assert!(matches!(rows.store(&small, "t", false, &mut |_| {}), Err(RowFileError::Storage(_))));
    assert!(Table::list(&small).unwrap().is_empty());
    #[cfg(not(feature = "parquet"))]
    assert!(refused(&file("t.parquet", b""), &plain).contains("feature `parquet`"));
}

#[cfg(feature = "parquet")]
mod columns {
    use super::*;
    use arrow_array::types::Float32Type;
    use arrow_array::*;
    use arrow_ipc::writer::FileWriter;
    use arrow_schema::{DataType, Field};
    use parquet::arrow::ArrowWriter;
    use parquet::file::properties::WriterProperties;
    use std::sync::Arc;

    /// Writes a table in both formats, in several batches.
    fn files(folder: &TempDir, columns: Vec<(&str, ArrayRef)>) -> [PathBuf; 2] {
        let columns = columns.into_iter().map(|(name, array)| (name, array, true));
        let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
        let properties = WriterProperties::builder().set_max_row_group_row_count(Some(7)).build();
        let mut parquet = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(properties)).unwrap();
        parquet.write(&batch).unwrap();
        let mut arrow = FileWriter::try_new(Vec::new(), &batch.schema()).unwrap();
        for start in (0..batch.num_rows()).step_by(5) {
            arrow.write(&batch.slice(start, 5.min(batch.num_rows() - start))).unwrap();
        }
        [
            write(folder, "t.parquet", &parquet.into_inner().unwrap()),
            write(folder, "t.arrow", &arrow.into_inner().unwrap()),
        ]
    }

    fn floats(rows: usize, each: usize, first: usize) -> Vec<f32> {
        (0..rows * each).map(|i| (i + first) as f32).collect()
    }

    fn fixed(values: Vec<f32>, each: i32) -> ArrayRef {
        let item = Arc::new(Field::new("item", DataType::Float32, false));
        Arc::new(FixedSizeListArray::try_new(item, each, Arc::new(Float32Array::from(values)), None).unwrap())
    }

    fn lists(rows: &[Vec<f32>]) -> ArrayRef {
        let rows = rows.iter().map(|row| Some(row.iter().map(|v| Some(*v)).collect::<Vec<_>>()));
        Arc::new(ListArray::from_iter_primitive::<Float32Type, _, _>(rows))
    }

    #[test]
    fn lists_and_numbers_become_rows() {
        let folder = tempfile::tempdir().unwrap();
        let all = floats(20, 16, 0);
        let rows: Vec<Vec<f32>> = all.chunks(16).map(<[f32]>::to_vec).collect();
        let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..20));
        let scores: Vec<f32> = floats(20, 1, 5000);
        let score: ArrayRef = Arc::new(Float32Array::from(scores.clone()));
        for list in [fixed(all.clone(), 16), lists(&rows)] {
            let columns = vec![("id", ids.clone()), ("vector", list), ("score", score.clone())];
            for path in files(&folder, columns) {
                let stored = |names: &[&str]| {
                    let options = RowFileOptions::default().columns(names.iter().copied());
                    let file = RowFile::open(&path, &options).unwrap();
                    assert_eq!(file.layout().rows(), 20);
                    let table = file.store(&volume("1M"), "t", false, &mut |_| {}).unwrap();
                    table.gather_to_vec::<f32>(&(0..20u64).collect::<Vec<_>>()).unwrap()
                };
                assert_eq!(stored(&["vector"]), all, "{}", path.display());
                let both = stored(&["score", "vector"]);
                for (i, row) in both.chunks(17).enumerate() {
                    assert_eq!((row[0], &row[1..]), (scores[i], &all[16 * i..16 * i + 16]));
                }
                let text = refused(&path, &RowFileOptions::default());
                assert!(text.contains("column `id` holds i64 and column `vector` holds f32"), "{text}");
                let text = refused(&path, &RowFileOptions::default().columns(["vectors"]));
                assert!(text.contains("no column `vectors`; there are `id`, `vector`, `score`"), "{text}");
            }
        }
        // Every column is a number.
        let many: Vec<Vec<f32>> = (0..16).map(|c| floats(9, 1, c * 9)).collect();
        let names: Vec<String> = (0..16).map(|c| format!("c{c}")).collect();
        let arrays = many.iter().map(|c| Arc::new(Float32Array::from(c.clone())) as ArrayRef);
        for path in files(&folder, names.iter().map(String::as_str).zip(arrays).collect()) {
            let file = RowFile::open(&path, &RowFileOptions::default()).unwrap();
            let table = file.store(&volume("1M"), "t", false, &mut |_| {}).unwrap();
            let row = table.gather_to_vec::<f32>(&[8u64]).unwrap();
            assert_eq!(row, many.iter().map(|c| c[8]).collect::<Vec<_>>());
        }
    }

    #[test]
    fn floats_of_16_bits_become_rows() {
        let folder = tempfile::tempdir().unwrap();
        let bits: Vec<u16> = (0..9 * 64).map(|i| 0x3c00 + i).collect();
        let list = |item: DataType, values: ArrayRef| -> ArrayRef {
            Arc::new(FixedSizeListArray::try_new(Arc::new(Field::new("item", item, false)), 64, values, None).unwrap())
        };
        let words = UInt16Array::from(bits.clone());
        let half = words.to_data().into_builder().data_type(DataType::Float16).build().unwrap();
        let half = list(DataType::Float16, Arc::new(Float16Array::from(half)));
        let words = list(DataType::UInt16, Arc::new(words));
        for (column, wanted, element) in [
            (&half, None, ElementType::F16),
            (&words, Some(ElementType::Bf16), ElementType::Bf16),
            (&words, None, ElementType::U16),
        ] {
            for path in files(&folder, vec![("v", column.clone())]) {
                let file = RowFile::open(&path, &RowFileOptions::default().element(wanted)).unwrap();
                assert_eq!(file.layout().element(), element);
                let table = file.store(&volume("1M"), "t", false, &mut |_| {}).unwrap();
                assert_eq!(table.gather_to_vec::<u16>(&[8u64]).unwrap(), bits[8 * 64..]);
                let text = refused(&path, &RowFileOptions::default().element(Some(ElementType::F32)));
                assert!(text.contains("not f32"), "{text}");
            }
        }
    }

    #[test]
    fn rows_that_are_none_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let plain = RowFileOptions::default();
        let mut rows: Vec<Vec<f32>> = floats(20, 16, 0).chunks(16).map(<[f32]>::to_vec).collect();
        rows[11].pop();
        for path in files(&folder, vec![("v", lists(&rows))]) {
            let file = RowFile::open(&path, &plain).unwrap();
            let v = volume("1M");
            let text = file.store(&v, "t", false, &mut |_| {}).unwrap_err().to_string();
            assert!(text.contains("row 11 of column `v` has 15 elements, and the first row has 16"), "{text}");
            assert!(Table::list(&v).unwrap().is_empty());
        }
        let gap: ArrayRef = Arc::new(Float64Array::from(vec![Some(1.0), None]));
        let full: Vec<(String, ArrayRef)> = (0..8).map(|c| (format!("c{c}"), gap.clone())).collect();
        for path in files(&folder, full.iter().map(|(n, a)| (n.as_str(), a.clone())).collect()) {
            let stored = RowFile::open(&path, &plain).unwrap().store(&volume("1M"), "t", false, &mut |_| {});
            let text = stored.unwrap_err().to_string();
            assert!(text.contains("row 1 of column `c0` is null"), "{text}");
        }
        let words: ArrayRef = Arc::new(StringArray::from(vec!["a"; 3]));
        for path in files(&folder, vec![("name", words)]) {
            assert!(refused(&path, &plain).contains("column `name` has the type Utf8"));
            assert!(refused(&path, &plain.clone().row_elements(Some(4))).contains("those of its columns"));
            let whole = std::fs::read(&path).unwrap();
            for cut in [0, 1, whole.len() / 2, whole.len() - 1] {
                std::fs::write(&path, &whole[..cut]).unwrap();
                assert!(refused(&path, &plain).contains("cannot be decoded"), "{cut}");
            }
        }
    }
}
