//! Reports of programs that measure: finds out whose a file is, and reads its figures.

use super::source::Source;
use super::{fio, gdsio, nccl, nvbandwidth, perftest, warpbell};
use serde_json::Value;
use std::path::Path;

/// Reasons why a file has no figures.
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
    let text = contents(path)?;
    with_figures(path.display().to_string(), parse(&text))
}

/// Reads the JSON of a report.
///
/// # Errors
/// [`ReadError`] names the file, and what is wrong with it.
pub fn document_of(path: &Path) -> Result<Value, ReadError> {
    document(&contents(path)?).ok_or_else(|| ReadError::Unknown { path: path.display().to_string() })
}

fn contents(path: &Path) -> Result<String, ReadError> {
    let bytes = std::fs::read(path).map_err(|source| ReadError::File { path: path.display().to_string(), source })?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Reads a report from the text that a program has printed. In errors `name` stands for its file.
///
/// # Errors
/// [`ReadError`] has the name, and what is wrong with the report.
pub fn of_text(name: &str, text: &str) -> Result<Source, ReadError> {
    with_figures(name.to_owned(), parse(text))
}

/// Reads a report that is in memory. In errors `name` stands for its file.
///
/// # Errors
/// [`ReadError`] has the name, and what is wrong with the report.
pub fn of_document(name: &str, document: &Value) -> Result<Source, ReadError> {
    with_figures(name.to_owned(), parse_document(document))
}

fn with_figures(path: String, found: Option<Result<Source, String>>) -> Result<Source, ReadError> {
    let Some(found) = found else { return Err(ReadError::Unknown { path }) };
    match found {
        Ok(source) if source.figures.is_empty() => {
            let reason = format!("this report of {} has no figures; name one of a finished measurement", source.tool);
            Err(ReadError::Content { path, reason })
        }
        Ok(source) => Ok(source),
        Err(reason) => Err(ReadError::Content { path, reason }),
    }
}

/// Returns `None` if the text is no report that is known.
fn parse(text: &str) -> Option<Result<Source, String>> {
    match document(text) {
        Some(document) => parse_document(&document),
        None => gdsio::is_report(text).then(|| gdsio::read(text)),
    }
}

/// Returns `None` if the object is no report that is known.
fn parse_document(document: &Value) -> Option<Result<Source, String>> {
    Some(match document {
        _ if document.get("schema").is_some() => warpbell::read(document),
        _ if document.get("fio version").is_some() => fio::read(document),
        _ if document.get("nccl_version").is_some() => nccl::read(document),
        _ if document.get("nvbandwidth").is_some() => nvbandwidth::read(document),
        _ if perftest::is_report(document) => perftest::read(document),
        _ => return None,
    })
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
