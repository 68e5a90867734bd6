//! Imports damaged Parquet and Arrow files. The result is a consistent graph, or an error of one line.
//!
//! The first byte chooses a file. The rest are changes: three bytes for the place, one for the new value.
#![no_main]

use arrow_array::{ArrayRef, Float32Array, RecordBatch, StringArray, UInt64Array};
use libfuzzer_sys::fuzz_target;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use std::sync::{Arc, OnceLock};
use warpbell::graph::import::{LoadOptions, WeightMode, load_bytes};

/// Memory limit: small, so that a header that claims much is rejected and does not stop the fuzzer.
const MEMORY: u64 = 64 << 20;
const ROWS: u64 = 40;

/// Returns undamaged files, with their names.
fn files() -> &'static [(&'static str, Vec<u8>)] {
    static FILES: OnceLock<Vec<(&str, Vec<u8>)>> = OnceLock::new();
    FILES.get_or_init(|| {
        // The decoders panic on some files, which the library turns into errors. libFuzzer's own hook would end the process.
        std::panic::set_hook(Box::new(|_| {}));
        let numbers = |step: u64| Arc::new(UInt64Array::from_iter_values((0..ROWS).map(|i| i * step % 23))) as ArrayRef;
        let names = |step: u64| {
            Arc::new(StringArray::from_iter_values((0..ROWS).map(|i| format!("v{}", i * step % 23)))) as ArrayRef
        };
        let weights = Arc::new(Float32Array::from_iter_values((0..ROWS).map(|i| i as f32 / 4.0))) as ArrayRef;
        let of =
            |src, dst| RecordBatch::try_from_iter([("src", src), ("dst", dst), ("weight", weights.clone())]).unwrap();
        let batches = [of(numbers(3), numbers(5)), of(names(3), names(5))];
        let parquet = |batch: &RecordBatch, compression| {
            let options = WriterProperties::builder().set_compression(compression).build();
            let mut bytes = Vec::new();
            let mut writer = ArrowWriter::try_new(&mut bytes, batch.schema(), Some(options)).unwrap();
            writer.write(batch).unwrap();
            writer.close().unwrap();
            bytes
        };
        let arrow = |batch: &RecordBatch| {
            let mut writer = arrow_ipc::writer::FileWriter::try_new(Vec::new(), &batch.schema()).unwrap();
            writer.write(batch).unwrap();
            writer.into_inner().unwrap()
        };
        vec![
            ("g.parquet", parquet(&batches[0], Compression::UNCOMPRESSED)),
            ("g.parquet", parquet(&batches[1], Compression::SNAPPY)),
            ("g.parquet", parquet(&batches[0], Compression::ZSTD(ZstdLevel::default()))),
            ("g.arrow", arrow(&batches[0])),
            ("g.arrow", arrow(&batches[1])),
        ]
    })
}

fuzz_target!(|data: &[u8]| {
    let files = files();
    let Some((&choice, changes)) = data.split_first() else { return };
    let (name, bytes) = &files[usize::from(choice) % files.len()];
    let mut bytes = bytes.clone();
    for change in changes.chunks_exact(4) {
        let at = u32::from_le_bytes([change[0], change[1], change[2], 0]) as usize % bytes.len();
        bytes[at] = change[3];
    }
    let mode = if choice & 0x80 == 0 { WeightMode::Ignore } else { WeightMode::Input };
    match load_bytes(name, &bytes, &LoadOptions::default().weights(mode).memory(Some(MEMORY))) {
        Ok(loaded) => {
            let csr = loaded.csr;
            assert!(csr.vertices() > 0);
            assert_eq!(csr.offsets().last(), Some(&csr.arcs()));
            assert!((0..csr.vertices()).all(|v| csr.neighbours_of(v).is_sorted_by(|a, b| a < b)));
        }
        Err(error) => assert!(!error.to_string().contains('\n')),
    }
});
