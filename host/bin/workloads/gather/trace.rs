//! Traces: numbers of rows in a file, in the order in which a program used them.

use crate::workloads::error::{MeasureError, refuse};
use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::Path;
use warpbell::storage::{ElementType, read_npy};
use warpbell::suggest::hint;

/// Reads a trace: an `.npy` file of integers, or text with a number on each line, where `#` begins a comment.
///
/// # Errors
/// [`MeasureError::Refused`] if the file cannot be read, holds no number, or something else than row numbers.
pub fn read(path: &Path) -> Result<Vec<u64>, MeasureError> {
    let is_npy = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("npy"));
    let rows = if is_npy { npy(path)? } else { text(path)? };
    if rows.is_empty() {
        return refuse!("{}: holds no number; a trace has the number of a row on each line", path.display());
    }
    Ok(rows)
}

fn text(path: &Path) -> Result<Vec<u64>, MeasureError> {
    let name = path.display();
    let file = match File::open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == ErrorKind::NotFound => {
            let words = ["uniform", "zipf:0.99", "sample:kron:20"];
            let given = path.to_string_lossy();
            return refuse!(
                "--indices {name}: there is no such file; write uniform, zipf:EXPONENT, sample:GRAPH or the name of a trace{}",
                hint(&given, words)
            );
        }
        Err(e) => return refuse!("{name}: {e}"),
    };
    let mut rows = Vec::new();
    let (mut reader, mut line, mut number) = (BufReader::new(file), Vec::new(), 0u64);
    loop {
        line.clear();
        number += 1;
        match reader.read_until(b'\n', &mut line) {
            Ok(0) => return Ok(rows),
            Ok(_) => {}
            Err(e) => return refuse!("{name}: line {number} cannot be read: {e}"),
        }
        let used = line.split(|c| *c == b'#').next().unwrap_or_default().trim_ascii();
        if used.is_empty() {
            continue;
        }
        match str::from_utf8(used).ok().and_then(|digits| digits.parse().ok()) {
            Some(row) => rows.push(row),
            None => {
                let shown: String = String::from_utf8_lossy(used).chars().take(40).collect();
                return refuse!("{name}: line {number} is `{shown}`, and a trace has the number of a row on each line");
            }
        }
    }
}

fn npy(path: &Path) -> Result<Vec<u64>, MeasureError> {
    let name = path.display();
    let (file, header) = match read_npy(path) {
        Ok(read) => read,
        Err(e) => return refuse!("{e}"),
    };
    let (Some(bytes), element) = (header.data_bytes(), header.element()) else {
        return refuse!("{name}: its shape {:?} is larger than any file; save the array again", header.shape());
    };
    let has = file.metadata().map_or(0, |m| m.len().saturating_sub(header.data_offset()));
    if bytes > has {
        return refuse!(
            "{name}: its header describes {bytes} bytes of numbers, and {has} follow: the file is cut short"
        );
    }
    let mut data = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
    if let Err(e) = file.read_exact_at(&mut data, header.data_offset()) {
        return refuse!("{name}: {e}");
    }
    macro_rules! numbers {
        ($type:ty) => {{
            let (each, rest) = data.as_chunks::<{ size_of::<$type>() }>();
            debug_assert!(rest.is_empty());
            each.iter().map(|n| u64::try_from(<$type>::from_le_bytes(*n)).ok()).collect::<Option<Vec<u64>>>()
        }};
    }
    // NumPy's own integers have a sign.
    let rows = match element {
        ElementType::U32 => numbers!(u32),
        ElementType::U64 => numbers!(u64),
        ElementType::I32 => numbers!(i32),
        ElementType::I64 => numbers!(i64),
        _ => {
            return refuse!(
                "{name}: holds {element}, and row numbers are integers of 32 or 64 bits: convert it with astype"
            );
        }
    };
    match rows {
        Some(rows) => Ok(rows),
        None => refuse!("{name}: holds negative numbers, and rows are numbered from 0"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_arrays_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        assert_eq!(read(&file("t.txt", b"# rows\n5\n\n 7 # twice\r\n18446744073709551615")).unwrap(), [5, 7, u64::MAX]);
        let npy = |kind: &str, shape: &str, data: &[u8]| {
            let text = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}");
            let mut bytes = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
            bytes.extend(format!("{text:117}\n").bytes());
            bytes.extend(data);
            file("t.npy", &bytes)
        };
        assert_eq!(read(&npy("<u4", "(2,)", &[1, 0, 0, 0, 2, 1, 0, 0])).unwrap(), [1, 258]);
        assert_eq!(read(&npy("<i8", "(1, 1)", &[9, 0, 0, 0, 0, 0, 0, 0])).unwrap(), [9]);
        let refused = |path: &Path| read(path).unwrap_err().to_string();
        assert!(refused(&npy("<i4", "(1,)", &[255; 4])).contains("negative"));
        assert!(refused(&npy("<f4", "(1,)", &[0; 4])).contains("holds f32"));
        assert!(refused(&npy("<u4", "(3,)", &[0; 8])).contains("12 bytes of numbers, and 8 follow"));
        assert!(refused(&npy("<u4", "(0,)", &[])).contains("holds no number"));
        assert!(refused(&file("t.txt", b"1\ntwo\n")).contains("line 2 is `two`"));
        assert!(refused(&file("t.txt", b"1\n-2\n")).contains("line 2 is `-2`"));
        assert!(refused(&file("t.txt", b"#\n")).contains("holds no number"));
        assert!(refused(Path::new("unifor")).contains("uniform"));
    }
}
