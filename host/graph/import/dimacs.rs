//! Graphs of the DIMACS Implementation Challenges: `.gr` and `.col`. The problem line names the kind.
//!
//! * `p sp VERTICES ARCS` (9th challenge, shortest paths, 2006): `a FROM TO WEIGHT` for each arc. Arcs have a direction.
//! * `p edge VERTICES EDGES`, also written `p col` (2nd challenge, cliques and colouring, 1993): `e A B` for each edge.
//!   Edges have no direction. Lines that begin with `n`, `d`, `v` or `x` describe vertices, and are not read.
//!
//! Lines that begin with `c` are comments.

use super::bytes::Bytes;
use super::error::ImportError;
use super::line_fault::LineFault;
use super::matrix_market::index;
use super::raw::Read;
use super::text::{self, Fields, Header};
use super::{Format, Reader, Sizes};
use crate::graph::ids::Ids;

/// No character begins a comment in every line: `c` is a word of its own.
const COMMENTS: &[u8] = b"";
const SIZES: &str = "p sp VERTICES ARCS, or p edge VERTICES EDGES";

/// Kind of problem.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    ShortestPaths,
    Edges,
}

impl Kind {
    /// Returns the length of the shortest line of an edge: its letter, two digits, for arcs a weight, with blanks and
    /// the end of the line. Files of edges may name each edge twice in their sizes, and list it once.
    fn least_entry_bytes(self) -> u64 {
        match self {
            Self::ShortestPaths => 8,
            Self::Edges => 3,
        }
    }
}

impl Reader<'_> {
    pub(crate) fn dimacs(&self, bytes: &Bytes<'_>) -> Result<Read, ImportError> {
        let mut header = Header::new(bytes);
        let (kind, vertices, entries) = loop {
            let no_sizes = || ImportError::NoSizeLine { what: SIZES, path: bytes.path().to_owned() };
            let line = header.next()?.ok_or_else(no_sizes)?;
            if let Some(sizes) = problem(&line).map_err(|fault| bytes.fault(header.line(), fault))? {
                break sizes;
            }
        };
        let is_edges = kind == Kind::Edges;
        let weighted = self.wants_weights() && !is_edges;
        let least_entry_bytes = kind.least_entry_bytes();
        let sizes = Sizes { vertices, entries, least_entry_bytes, mirrored: is_edges, weighted };
        let plan = self.plan_behind(bytes, &header, &sizes)?;
        let precision = self.options.precision;
        let pieces = self.parse(bytes, &plan, |own, at, line| {
            let Some(mut fields) = Fields::of(line, COMMENTS) else { return Ok(()) };
            let (letter, expected) = if is_edges { (&b"e"[..], 3) } else { (&b"a"[..], 4) };
            match fields.next() {
                Some(b"c") => return Ok(()),
                Some(word) if word == letter => (),
                Some(b"n" | b"d" | b"v" | b"x") if is_edges => return Ok(()),
                Some(b"p") => return wrong(line, "there is one problem line only"),
                _ if is_edges => return wrong(line, "lines of edges are `e A B`, and comments begin with `c`"),
                _ => return wrong(line, "lines of arcs are `a FROM TO WEIGHT`, and comments begin with `c`"),
            }
            let columns = |found| LineFault::Columns { found, expected };
            let from = index(fields.vertex().ok_or_else(|| columns(1))??, "vertices", vertices)?;
            let to = index(fields.vertex().ok_or_else(|| columns(2))??, "vertices", vertices)?;
            if !is_edges {
                let weight = fields.next().ok_or_else(|| columns(3))?;
                if weighted {
                    own.push_weight(weight, at, precision)?;
                }
            }
            own.push(from, to);
            if fields.next().is_some() { Err(columns(expected + 1 + fields.count())) } else { Ok(()) }
        })?;
        let found = pieces.edges();
        // Known files of edges count or list each edge at both of its ends, or only one of the two.
        let is_listed = found == entries || is_edges && (2 * found == entries || found == entries.saturating_mul(2));
        if !is_listed {
            return Err(ImportError::Entries { path: bytes.path().to_owned(), expected: entries, found });
        }
        Ok(Read {
            format: Format::Dimacs,
            path: bytes.path().to_owned(),
            pieces,
            ids: Some(Ids::dense(1, vertices)),
            // Road networks have each road as two arcs, and are undirected then.
            directed: is_edges.then_some(false),
            called_directed: !is_edges,
            mirrored: is_edges,
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

/// Returns the kind, the vertices and the entries of the problem line; `None` for a comment.
fn problem(line: &[u8]) -> Result<Option<(Kind, u64, u64)>, LineFault> {
    let Some(mut fields) = Fields::of(line, COMMENTS) else { return Ok(None) };
    match fields.next() {
        Some(b"c") => return Ok(None),
        Some(b"p") => (),
        _ => return wrong(line, "the problem line, such as `p sp VERTICES ARCS`, comes first"),
    }
    let kind = match fields.next() {
        Some(b"sp") => Kind::ShortestPaths,
        Some(b"edge" | b"edges" | b"col") => Kind::Edges,
        _ => return wrong(line, "problems are `p sp VERTICES ARCS` and `p edge VERTICES EDGES`"),
    };
    let sizes = [fields.vertex(), fields.vertex()].map(|n| n.and_then(Result::ok));
    match (sizes, fields.next()) {
        ([Some(vertices), Some(entries)], None) => Ok(Some((kind, vertices, entries))),
        _ => wrong(line, "the problem line has two whole numbers: the vertices, and the arcs or edges"),
    }
}
