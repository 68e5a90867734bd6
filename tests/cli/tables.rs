//! Tests tables: imported from files, listed, verified, removed.

use super::program::*;
use serde_json::Value;
use warpbell::engine::Engine;
use warpbell::storage::{Drive, Table, Volume};

impl Image {
    fn json(&self, command: &[&str]) -> Value {
        serde_json::from_str(&succeeds(&self.args(command, &["--json"]))).unwrap()
    }

    fn npy(&self, file: &str, shape: &str, kind: &str, data: &[u8]) -> String {
        let text = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}");
        let mut bytes = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
        bytes.extend(format!("{text:117}\n").bytes());
        bytes.extend(data);
        write(&self.folder, file, bytes)
    }
}

fn words(count: u32) -> Vec<u8> {
    (0..count).flat_map(|i| i.wrapping_mul(0x9e37_79b9).to_le_bytes()).collect()
}

#[test]
fn an_array_is_imported_once_and_found_by_its_name() {
    let image = Image::of("table");
    mentions(&fails(&image.args(&["list"], &[])), &["tables.img"]);
    let data = words(3000 * 33);
    let file = image.npy("v.npy", "(3000, 33)", "<u4", &data);
    let text = succeeds(&image.args(&["import", &file, "--name", "vectors"], &[]));
    mentions(&text, &["3,000 rows  33 u32 each  132 bytes", "vectors on soft:", "tables.img", "KiB"]);
    let cubes = image.npy("c.npy", "(8, 4, 4, 4)", "<f8", &[0; 8 * 64 * 8]);
    let report: Value =
        serde_json::from_str(&succeeds(&image.args(&["import", &cubes, "--name", "cubes"], &["--json"]))).unwrap();
    assert_eq!((&report["command"], &report["row_shape"]), (&"table import".into(), &serde_json::json!([4, 4, 4])));
    let list = succeeds(&image.args(&["list"], &[]));
    let lines: Vec<&str> = list.lines().collect();
    assert_eq!(lines.len(), 2, "{list}");
    assert!(lines[0].starts_with("cubes ") && lines[0].ends_with("8 rows  4 x 4 x 4 f64 each  512 bytes"), "{list}");
    assert!(lines[1].starts_with("vectors "), "{list}");
    assert_eq!(image.json(&["list"])["tables"][1]["rows"], 3000);
    let info = image.json(&["info", "vectors"]);
    assert_eq!((&info["element"], &info["row_bytes"], &info["changed"]), (&"u32".into(), &132.into(), &false.into()));
    mentions(&succeeds(&image.args(&["info", "cubes"], &[])), &["cubes on soft:", "8 rows"]);
    mentions(&succeeds(&image.args(&["verify", "vectors"], &[])), &["vectors on soft:", "is intact"]);
    assert_eq!(image.json(&["verify", "cubes"])["compared"], true);

    // A program gathers what was in the file.
    let volume = Volume::on(&Engine::cpu().unwrap(), [Drive::open(&image.device).unwrap()]).build().unwrap();
    let rows = Table::open(&volume, "vectors").build().unwrap().gather_to_vec::<u32>(&[2999u64, 0]).unwrap();
    let expected: Vec<u32> = data.as_chunks().0.iter().map(|b| u32::from_le_bytes(*b)).collect();
    assert_eq!((&rows[..33], &rows[33..]), (&expected[2999 * 33..], &expected[..33]));
    drop(volume);

    mentions(&succeeds(&image.args(&["delete", "cubes"], &[])), &["deleted cubes from soft:"]);
    assert_eq!(succeeds(&image.args(&["list"], &[])).lines().count(), 1);
    for command in ["info", "verify", "delete"] {
        mentions(&fails(&image.args(&[command, "cubes"], &[])), &["no table is called `cubes`", "`vectors`"]);
    }
    assert_eq!(image.json(&["delete", "vectors"])["deleted"], true);
    mentions(&succeeds(&image.args(&["list"], &[])), &["no table is stored on soft:"]);
}

#[test]
fn floats_of_16_and_8_bits_are_imported() {
    let image = Image::of("table");
    let data = words(10 * 32);
    let shown = |name: &str| image.json(&["info", name])["element"].clone();
    let half = image.npy("half.npy", "(10, 64)", "<f2", &data);
    let text = succeeds(&image.args(&["import", &half, "--name", "half"], &[]));
    mentions(&text, &["10 rows  64 f16 each  128 bytes"]);
    assert_eq!(shown("half"), "f16");
    // As numpy saves bfloat16, float8_e4m3fn and float8_e5m2 of ml_dtypes, and the bits of bfloat16.
    for (file, kind, each, element, stored, example) in [
        ("brain.npy", "<V2", 64, "bf16", "bf16", Some("--element bf16")),
        ("bits.npy", "<u2", 64, "bfloat16", "bf16", None),
        ("e4m3.npy", "<V1", 128, "fp8", "u8", Some("--element fp8")),
        ("e5m2.npy", "<f1", 128, "float8_e5m2", "u8", Some("--element fp8")),
    ] {
        let path = image.npy(file, &format!("(10, {each})"), kind, &data);
        let name = file.trim_end_matches(".npy");
        if let Some(example) = example {
            let text = fails(&image.args(&["import", &path, "--name", name], &[]));
            mentions(&text, &[file, kind, "array.view(", example]);
            assert!(!text.contains("save array.astype") && !text.contains("convert it with astype"), "{text}");
        }
        succeeds(&image.args(&["import", &path, "--name", name, "--element", element], &[]));
        assert_eq!(shown(name), stored);
        assert_eq!(image.json(&["verify", name])["compared"], true);
    }
    let list = succeeds(&image.args(&["list"], &[]));
    mentions(&list, &["64 bf16 each", "64 f16 each", "128 u8 each"]);
    let other = fails(&image.args(&["import", &half, "--name", "x", "--element", "bf16"], &[]));
    mentions(&other, &["half.npy", "'<f2', not bf16"]);
    let o = warpbell(&image.args(&["import", &half, "--name", "x", "--element", "f128"], &[]));
    assert_eq!(o.status.code(), Some(2));
    mentions(&String::from_utf8_lossy(&o.stderr), &["f128", "bf16"]);
}

#[test]
fn a_name_that_is_taken_is_not_overwritten() {
    let image = Image::of("table");
    let (old, new) = (image.npy("a.npy", "(9, 64)", "|u1", &[1; 576]), image.npy("b.npy", "(5, 64)", "|u1", &[2; 320]));
    succeeds(&image.args(&["import", &old, "--name", "t"], &[]));
    succeeds(&["graph", "import", "kron:6", "--name", "t", "--device", &image.device]);
    let again = image.args(&["import", &new, "--name", "t"], &[]);
    mentions(&fails(&again), &["a table is called `t` already; nothing was written", "--yes-destroy", "tables.img"]);
    assert_eq!(image.json(&["info", "t"])["rows"], 9);
    succeeds(&[&again[..], &["--yes-destroy", name(&image.path)]].concat());
    assert_eq!(image.json(&["info", "t"])["rows"], 5);
    // The graph of the same name is another thing.
    mentions(&succeeds(&["graph", "verify", "t", "--device", &image.device]), &["is intact"]);
    mentions(&succeeds(&["volume", "verify", &image.device]), &["array `t:rows`", "intact"]);
    let other = image.folder.path().join("thesis.img");
    std::fs::write(&other, "somebody's thesis").unwrap();
    let device = format!("soft:{}", name(&other));
    let foreign = ["table", "import", &old, "--name", "t", "--device", &device];
    mentions(&fails(&foreign), &["thesis.img", "--yes-destroy"]);
    assert_eq!(std::fs::read(&other).unwrap(), b"somebody's thesis");
}

#[test]
fn files_and_devices_that_hold_no_table_are_named() {
    let image = Image::of("table");
    let refused = |file: &str, more: &[&str]| fails(&image.args(&["import", file, "--name", "t"], more));
    let big = image.npy("big.npy", "(2, 16)", ">f4", &[0; 128]);
    mentions(&refused(&big, &[]), &["big.npy", "big-endian", "astype"]);
    let flat = image.npy("flat.npy", "(128,)", "|u1", &[0; 128]);
    mentions(&refused(&flat, &[]), &["flat.npy", "one dimension", "--row-elements"]);
    succeeds(&image.args(&["import", &flat, "--name", "flat", "--row-elements", "64"], &[]));
    assert_eq!(image.json(&["info", "flat"])["rows"], 2);
    mentions(&refused(&flat, &["--row-elements", "100"]), &["128 elements are no whole rows of 100"]);
    let thin = image.npy("thin.npy", "(4, 8)", "<f4", &[0; 128]);
    mentions(&refused(&thin, &[]), &["thin.npy", "rows of 32 bytes", "64 to 65536"]);
    let short = image.npy("short.npy", "(4, 64)", "<f4", &[0; 128]);
    mentions(&refused(&short, &[]), &["short.npy", "1024 bytes of rows, and 128 follow"]);
    mentions(&refused("absent.npy", &[]), &["absent.npy", "No such file"]);
    let text = write(&image.folder, "rows.txt", "1 2 3\n");
    mentions(&refused(&text, &[]), &["rows.txt", ".npy, .parquet, .arrow or .feather"]);
    let good = image.npy("good.npy", "(100, 64)", "|u1", &[0; 6400]);
    for bad in ["a/b", "", "a b"] {
        mentions(&fails(&image.args(&["import", &good, "--name", bad], &[])), &["cannot be the name of a table"]);
    }
    let o = warpbell(&["table", "import", &good, "--name", "t"]);
    assert_eq!(o.status.code(), Some(2));
    mentions(&stderr(&o), &["soft:mem ends with the program"]);
    // A file of a fixed size.
    let device = format!("soft:{},size=128k", name(&image.folder.path().join("small.img")));
    let large = image.npy("large.npy", "(4000, 64)", "|u1", &[0; 256_000]);
    let small = ["table", "import", &large, "--name", "t", "--device", &device];
    mentions(&fails(&small), &["small.img"]);
}

#[test]
fn damaged_rows_are_found() {
    let image = Image::of("table");
    let file = image.npy("v.npy", "(1000, 64)", "<f4", &words(64_000));
    succeeds(&image.args(&["import", &file, "--name", "v"], &[]));
    let mut bytes = std::fs::read(&image.path).unwrap();
    // The rows are the only part that is so large.
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&image.path, bytes).unwrap();
    mentions(&fails(&image.args(&["verify", "v"], &[])), &["v:rows"]);
}

#[cfg(feature = "parquet")]
#[test]
fn columns_are_imported() {
    use std::sync::Arc;
    use warpbell::storage::Table;
    let image = Image::of("table");
    let path = image.folder.path().join("v.parquet");
    let columns = |c: i64| arrow_array::Int64Array::from_iter_values((0..50).map(|row| row * 100 + c));
    let columns = (0..8).map(|c| (format!("c{c}"), Arc::new(columns(c)) as arrow_array::ArrayRef));
    let batch = arrow_array::RecordBatch::try_from_iter(columns).unwrap();
    let file = std::fs::File::create(&path).unwrap();
    let mut writer = parquet::arrow::ArrowWriter::try_new(file, batch.schema(), None).unwrap();
    writer.write(&batch).unwrap();
    writer.close().unwrap();
    mentions(&succeeds(&image.args(&["import", name(&path), "--name", "v"], &[])), &["50 rows  8 i64 each  64 bytes"]);
    let volume = Volume::on(&Engine::cpu().unwrap(), [Drive::open(&image.device).unwrap()]).build().unwrap();
    let row = Table::open(&volume, "v").build().unwrap().gather_to_vec::<i64>(&[49u64]).unwrap();
    assert_eq!(row, (0..8).map(|c| 4900 + c).collect::<Vec<_>>());
    drop(volume);
    let few = ["import", name(&path), "--name", "w", "--columns", "c7,c1"];
    mentions(&fails(&image.args(&few, &[])), &["rows of 16 bytes"]);
    let absent = ["import", name(&path), "--name", "w", "--columns", "c9"];
    mentions(&fails(&image.args(&absent, &[])), &["no column `c9`", "`c7`"]);
}
