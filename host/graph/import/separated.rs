//! Columns separated by commas or tabs (RFC 4180, but for line ends in quoted fields): `.csv` and `.tsv`.
//!
//! The first line is a header if it names a column of vertices: `source`, `src`, `from` or `start`, and `target`, `dst`,
//! `to` or `end`. `weight`, `cost`, `distance` or `value` names the weights. Other columns are ignored. Without a header
//! the first two columns are the vertices, and a third is the weight.

use super::bytes::Bytes;
use super::error::{ImportError, LineFault};
use super::raw::Read;
use super::text::{self, Fields, Header};
use super::{Format, Reader};
use crate::graph::quoting::{self, COMMENTS, QuoteFault};
use std::borrow::Cow;

const SOURCES: [&str; 7] = ["source", "src", "from", "start", "source_id", "from_id", ":start_id"];
const TARGETS: [&str; 9] = ["target", "dst", "to", "end", "dest", "destination", "target_id", "to_id", ":end_id"];
const WEIGHTS: [&str; 5] = ["weight", "cost", "distance", "value", "w"];

/// Positions of the columns that are read, from 0.
pub(super) struct Columns {
    pub source: usize,
    pub target: usize,
    pub weight: Option<usize>,
    /// Number of columns of each line.
    pub count: usize,
}

impl Reader<'_> {
    pub(crate) fn separated(&self, bytes: &Bytes<'_>, separator: u8) -> Result<Read, ImportError> {
        self.check_text(bytes)?;
        let mut header = Header::new(bytes);
        let (mut start, mut first_line) = (0, 1);
        let columns = loop {
            let Some(line) = header.next()? else {
                return Err(Self::no_vertices(bytes.path().to_owned(), bytes.len()));
            };
            if Fields::of(&line, COMMENTS).is_none() {
                continue;
            }
            let fields = fields(&line, separator).map_err(|fault| bytes.fault(header.line(), fault))?;
            match named(&fields, bytes)? {
                Some(columns) => {
                    (start, first_line) = (header.offset(), header.line() + 1);
                    break columns;
                }
                None => {
                    let count = fields.len();
                    if count < 2 {
                        return Err(bytes.fault(header.line(), LineFault::Columns { found: count, expected: 2 }));
                    }
                    break Columns { source: 0, target: 1, weight: (count > 2).then_some(2), count };
                }
            }
        };
        let weight = columns.weight.filter(|_| self.wants_weights());
        let precision = self.options.precision;
        let vertices = self.vertices_of(bytes, first_line, |line| {
            Fields::of(line, COMMENTS)?;
            let fields = fields(line, separator).unwrap_or_default();
            Some([columns.source, columns.target].map(|column| fields.get(column).cloned()))
        })?;
        let pieces = self.parse(bytes, &self.lines_from(start, first_line), |own, line| {
            if Fields::of(line, COMMENTS).is_none() {
                return Ok(());
            }
            let fields = fields(line, separator)?;
            if fields.len() != columns.count {
                return Err(LineFault::Columns { found: fields.len(), expected: columns.count });
            }
            let (from, to) = (vertices.of(&fields[columns.source])?, vertices.of(&fields[columns.target])?);
            if let Some(weight) = weight {
                own.push_weight(fields[weight].trim_ascii(), precision)?;
            }
            own.push(from, to);
            Ok(())
        })?;
        let read = Read {
            format: Format::Separated,
            path: bytes.path().to_owned(),
            pieces,
            ids: None,
            directed: None,
            called_directed: false,
            mirrored: false,
            both_listed: false,
            translation: None,
            weighted: weight.is_some(),
            bytes: bytes.len(),
        };
        vertices.finish(read, self)
    }
}

/// Returns the columns that a header names, or `None` if the line is no header.
pub(super) fn named(fields: &[Cow<'_, [u8]>], bytes: &Bytes<'_>) -> Result<Option<Columns>, ImportError> {
    let names: Vec<String> =
        fields.iter().map(|f| String::from_utf8_lossy(f.trim_ascii()).to_ascii_lowercase()).collect();
    let find = |known: &[&str]| {
        let mut all = names.iter().enumerate().filter(|(_, name)| known.contains(&name.as_str())).map(|(i, _)| i);
        (all.next(), all.next())
    };
    let (source, target, weight) = (find(&SOURCES), find(&TARGETS), find(&WEIGHTS));
    let wrong = |found: &str| Err(ImportError::Header { path: bytes.path().to_owned(), found: found.to_owned() });
    match (source, target, weight) {
        ((None, _), (None, _), _) => Ok(None),
        ((Some(_), Some(_)), ..) => wrong("two columns of sources"),
        (_, (Some(_), Some(_)), _) => wrong("two columns of targets"),
        (.., (Some(_), Some(_))) => wrong("two columns of weights"),
        ((None, _), ..) => wrong("no column of sources"),
        (_, (None, _), _) => wrong("no column of targets"),
        ((Some(source), None), (Some(target), None), (weight, None)) => {
            Ok(Some(Columns { source, target, weight, count: fields.len() }))
        }
        // The second of a name is found only behind a first.
        ((Some(_), None), (Some(_), None), (None, Some(_))) => Ok(None),
    }
}

/// Returns the fields of a line, without the blanks around them.
fn fields(line: &[u8], separator: u8) -> Result<Vec<Cow<'_, [u8]>>, LineFault> {
    let line = text::without_mark(line);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    quoting::fields(line, separator).map_err(|fault| match fault {
        QuoteFault::Open => LineFault::OpenQuote,
        QuoteFault::Behind => LineFault::BehindQuote,
    })
}
