//! Reports of programs that measure: finds out whose a file is, and reads its figures.

use super::source::Source;
use super::{fio, gdsio, nccl, nvbandwidth, perftest, warpbell};
use serde_json::Value;
use std::path::Path;

/// Reasons why a file has no figures to compare.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("{path}: {source}")]
    File { path: String, source: std::io::Error },
    #[error(
        "{path} is no report that is known; it has to be the JSON of a bench or graph command of warpbell (--json), of fio (--output-format=json), of nccl-tests (-J), of perftest (--out_json) or of nvbandwidth (-j), or lines of gdsio"
    )]
    Unknown { path: String },
    #[error("{path}: {reason}")]
    Content { path: String, reason: String },
}

/// Reads a report.
///
/// # Errors
/// [`ReadError`] names the file, and what is wrong with it.
pub fn read(path: &Path) -> Result<Source, ReadError> {
    let shown = path.display().to_string();
    let bytes = std::fs::read(path).map_err(|source| ReadError::File { path: shown.clone(), source })?;
    let text = String::from_utf8_lossy(&bytes);
    let found = parse(&text).ok_or_else(|| ReadError::Unknown { path: shown.clone() })?;
    let source = found.map_err(|reason| ReadError::Content { path: shown.clone(), reason })?;
    if source.figures.is_empty() {
        return Err(ReadError::Content {
            path: shown,
            reason: format!("this report of {} has no figures", source.tool),
        });
    }
    Ok(source)
}

/// Returns `None` if the text is no report that is known.
fn parse(text: &str) -> Option<Result<Source, String>> {
    match document(text) {
        Some(document) if document.get("schema").is_some() => Some(warpbell::read(&document)),
        Some(document) if document.get("fio version").is_some() => Some(fio::read(&document)),
        Some(document) if document.get("nccl_version").is_some() => Some(nccl::read(&document)),
        Some(document) if document.get("nvbandwidth").is_some() => Some(nvbandwidth::read(&document)),
        Some(document) if perftest::is_report(&document) => Some(perftest::read(&document)),
        Some(_) => None,
        None => gdsio::is_report(text).then(|| gdsio::read(text)),
    }
}

/// Returns the last whole JSON object that begins a line. fio prints notes in front of one, and one after another with
/// `--status-interval`; objects inside of others are indented.
fn document(text: &str) -> Option<Value> {
    let next = |at: usize| match &text[at..] {
        rest if rest.starts_with('{') => Some(at),
        rest => rest.find("\n{").map(|end| at + end + 1),
    };
    let (mut last, mut at) = (None, 0);
    while let Some(begin) = next(at) {
        let mut documents = serde_json::Deserializer::from_str(&text[begin..]).into_iter::<Value>();
        at = match documents.next() {
            Some(Ok(document)) => {
                last = Some(document);
                begin + documents.byte_offset()
            }
            _ => begin + 1,
        };
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_last_object_behind_notes_counts() {
        let of = |text| document(text).map(|d| d.to_string());
        assert_eq!(of("note: x\n{\"a\":1}\n"), Some("{\"a\":1}".into()));
        assert_eq!(of("{\"a\":1}\n{\"a\":{\"b\":2}}"), Some("{\"a\":{\"b\":2}}".into()));
        assert_eq!(of("{\"a\":1}\n{\"a\": {\"b\":2},\n  {}"), Some("{\"a\":1}".into()), "the second one was cut off");
        assert_eq!(of("no report"), None);
    }

    #[test]
    fn other_files_are_refused_with_what_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.json");
        std::fs::write(&file, "{\"a\": 1}").unwrap();
        let error = read(&file).unwrap_err().to_string();
        assert!(error.contains("x.json is no report that is known") && error.contains("fio"), "{error}");
        let error = read(&folder.path().join("none.json")).unwrap_err().to_string();
        assert!(error.contains("none.json"), "{error}");
    }

    proptest! {
        #[test]
        fn no_text_is_a_panic(text in "\\PC{0,200}", json in "[\\[\\]{}\",:0-9a-z ]{0,200}") {
            let _ = (parse(&text), parse(&json));
        }
    }
}
