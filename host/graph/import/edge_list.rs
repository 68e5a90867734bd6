//! Edge lists: `.el`, `.txt` and `.wel`, with the header comments of SNAP's files.

use super::bytes::Bytes;
use super::error::{ImportError, LineFault};
use super::raw::{RawEdges, Read};
use super::text::{Fields, Header};
use super::{Format, Precision, Reader};
use crate::graph::quoting::COMMENTS;
use std::borrow::Cow;

/// Columns of an edge list.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Columns {
    /// Two vertices.
    Two,
    /// Two vertices and a weight.
    Three,
    /// As many columns as the first line has.
    AsFirstLine,
}

impl Reader<'_> {
    pub(crate) fn edge_list(&self, bytes: &Bytes<'_>, format: Format, columns: Columns) -> Result<Read, ImportError> {
        self.check_text(bytes)?;
        let third = self.third_column(bytes, columns)?;
        let declared = declared(bytes)?;
        let weighted = third == Third::Weight;
        let precision = self.options.precision;
        let vertices = self.vertices_of(bytes, 1, |line| {
            let mut fields = Fields::of(line, COMMENTS)?;
            Some([fields.next(), fields.next()].map(|word| word.map(Cow::Borrowed)))
        })?;
        let pieces = self.parse(bytes, &self.whole(), |own, line| {
            edge(own, line, third, precision, |fields| vertices.next_of(fields))
        })?;
        let read = Read {
            format,
            path: bytes.path().to_owned(),
            pieces,
            ids: None,
            // A list with the header `Directed` may have each edge in both directions.
            directed: declared.filter(|directed| !directed),
            called_directed: declared == Some(true),
            mirrored: false,
            both_listed: false,
            translation: None,
            weighted,
            bytes: bytes.len(),
        };
        vertices.finish(read, self)
    }

    /// Returns the content of the column behind the vertices.
    pub(crate) fn third_column(&self, bytes: &Bytes<'_>, columns: Columns) -> Result<Third, ImportError> {
        let weight = if self.wants_weights() { Third::Weight } else { Third::Ignored };
        Ok(match columns {
            Columns::Two => Third::Forbidden,
            Columns::Three => weight,
            Columns::AsFirstLine => {
                let mut header = Header::new(bytes);
                let mut found = Third::Absent;
                while let Some(line) = header.next()? {
                    if let Some(fields) = Fields::of(&line, COMMENTS) {
                        found = if fields.count() > 2 { weight } else { Third::Absent };
                        break;
                    }
                }
                found
            }
        })
    }
}

/// Reads SNAP's header `# Undirected graph ...` or `# Directed graph ...` above the first edge.
fn declared(bytes: &Bytes<'_>) -> Result<Option<bool>, ImportError> {
    let mut header = Header::new(bytes);
    while let Some(line) = header.next()? {
        if Fields::of(&line, COMMENTS).is_some() {
            break;
        }
        let text = String::from_utf8_lossy(&line).to_ascii_lowercase();
        let mut words = text.split(|c: char| c.is_whitespace() || COMMENTS.contains(&(c as u8)) || c == ':');
        let mut word = || words.by_ref().find(|w| !w.is_empty());
        match (word(), word()) {
            (Some("undirected"), Some("graph")) => return Ok(Some(false)),
            (Some("directed"), Some("graph")) => return Ok(Some(true)),
            _ => {}
        }
    }
    Ok(None)
}

/// Content of the third column.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Third {
    /// None, because the first line has none.
    Absent,
    /// None, because the format has none.
    Forbidden,
    /// Weights that are read.
    Weight,
    /// Weights that are not read, since the options do not ask for them.
    Ignored,
}

/// Parses one line: two vertices, and a weight if `third` says so. `vertex` parses the next word, and returns the number
/// to store for it.
pub(crate) fn edge(
    own: &mut RawEdges,
    line: &[u8],
    third: Third,
    precision: Precision,
    vertex: impl Fn(&mut Fields<'_>) -> Option<Result<u64, LineFault>>,
) -> Result<(), LineFault> {
    let Some(mut fields) = Fields::of(line, COMMENTS) else { return Ok(()) };
    let expected = if matches!(third, Third::Absent | Third::Forbidden) { 2 } else { 3 };
    let columns = |found| LineFault::Columns { found, expected };
    let from = vertex(&mut fields).ok_or_else(|| columns(0))??;
    let to = vertex(&mut fields).ok_or_else(|| columns(1))??;
    let rest = fields.next();
    match (third, rest) {
        (Third::Absent | Third::Forbidden, None) | (Third::Ignored, Some(_)) => own.push(from, to),
        (Third::Forbidden, Some(_)) => return Err(LineFault::UnexpectedWeight),
        (Third::Weight, Some(word)) => {
            own.push_weight(word, precision)?;
            own.push(from, to);
        }
        (Third::Weight | Third::Ignored, None) => return Err(columns(2)),
        (Third::Absent, Some(_)) => return Err(columns(3 + fields.count())),
    }
    if expected == 3 && fields.next().is_some() {
        return Err(columns(4 + fields.count()));
    }
    Ok(())
}
