//! Graphs of the 9th DIMACS Implementation Challenge (shortest paths, 2006): `.gr`. The line `p sp VERTICES ARCS` comes
//! first, then `a FROM TO WEIGHT` for each arc. Lines that begin with `c` are comments. Arcs have a direction.

use super::bytes::Bytes;
use super::error::{ImportError, LineFault};
use super::matrix_market::index;
use super::raw::Read;
use super::text::{self, Fields, Header};
use super::{Format, Reader, Sizes};
use crate::graph::ids::Ids;

/// No character begins a comment in every line: `c` is a word of its own.
const COMMENTS: &[u8] = b"";
/// Length of the shortest arc: `a`, two digits and a weight, with blanks and the end of the line.
const LEAST_ARC_BYTES: u64 = 8;
const SIZES: &str = "p sp VERTICES ARCS";

impl Reader<'_> {
    pub(crate) fn dimacs(&self, bytes: &Bytes<'_>) -> Result<Read, ImportError> {
        let mut header = Header::new(bytes);
        let (vertices, arcs) = loop {
            let no_sizes = || ImportError::NoSizeLine { what: SIZES, path: bytes.path().to_owned() };
            let line = header.next()?.ok_or_else(no_sizes)?;
            if let Some(sizes) = problem(&line).map_err(|fault| bytes.fault(header.line(), fault))? {
                break sizes;
            }
        };
        let weighted = self.wants_weights();
        let sizes = Sizes { vertices, entries: arcs, least_entry_bytes: LEAST_ARC_BYTES, mirrored: false, weighted };
        let plan = self.plan_behind(bytes, &header, &sizes)?;
        let precision = self.options.precision;
        let pieces = self.parse(bytes, &plan, |own, line| {
            let Some(mut fields) = Fields::of(line, COMMENTS) else { return Ok(()) };
            match fields.next() {
                Some(b"c") => return Ok(()),
                Some(b"a") => (),
                Some(b"p") => return wrong(line, "there is one problem line `p sp` only"),
                _ => return wrong(line, "lines of arcs are `a FROM TO WEIGHT`, and comments begin with `c`"),
            }
            let columns = |found| LineFault::Columns { found, expected: 4 };
            let from = index(fields.vertex().ok_or_else(|| columns(1))??, "vertices", vertices)?;
            let to = index(fields.vertex().ok_or_else(|| columns(2))??, "vertices", vertices)?;
            let weight = fields.next().ok_or_else(|| columns(3))?;
            if weighted {
                own.push_weight(weight, precision)?;
            }
            own.push(from, to);
            if fields.next().is_some() { Err(columns(5 + fields.count())) } else { Ok(()) }
        })?;
        let found = pieces.edges();
        if found != arcs {
            return Err(ImportError::Entries { path: bytes.path().to_owned(), expected: arcs, found });
        }
        Ok(Read {
            format: Format::Dimacs,
            path: bytes.path().to_owned(),
            pieces,
            ids: Some(Ids::dense(1, vertices)),
            // Road networks have each road as two arcs, and are undirected then.
            directed: None,
            called_directed: true,
            mirrored: false,
            both_listed: false,
            translation: None,
            weighted,
            bytes: bytes.len(),
        })
    }
}

fn wrong<T>(line: &[u8], reason: &'static str) -> Result<T, LineFault> {
    Err(LineFault::Dimacs { found: text::quote(line), reason })
}

/// Returns the vertices and arcs of the problem line; `None` for a comment.
fn problem(line: &[u8]) -> Result<Option<(u64, u64)>, LineFault> {
    let Some(mut fields) = Fields::of(line, COMMENTS) else { return Ok(None) };
    match fields.next() {
        Some(b"c") => return Ok(None),
        Some(b"p") => (),
        _ => return wrong(line, "the problem line `p sp VERTICES ARCS` comes before the arcs"),
    }
    if fields.next() != Some(b"sp") {
        return wrong(line, "only shortest-path problems are supported: `p sp VERTICES ARCS`");
    }
    let sizes = [fields.vertex(), fields.vertex()].map(|n| n.and_then(Result::ok));
    match (sizes, fields.next()) {
        ([Some(vertices), Some(arcs)], None) => Ok(Some((vertices, arcs))),
        _ => wrong(line, "the problem line has two whole numbers: `p sp VERTICES ARCS`"),
    }
}
