//! Graphs of METIS (manual of version 5.1.0, 4.1.1): `.graph`. The first line has the numbers of vertices and edges, a
//! format and the number of vertex weights. Then each line has the neighbours of one vertex, counted from 1; also an
//! empty line does. Each edge is on the lines of both of its ends. `%` begins comment lines.

use super::bytes::Bytes;
use super::error::ImportError;
use super::line_fault::LineFault;
use super::matrix_market::index;
use super::raw::{RawEdges, Read};
use super::text::{self, Fields, Header};
use super::{Format, Reader, Sizes};
use crate::graph::ids::Ids;

const COMMENTS: &[u8] = b"%";
/// Length of the shortest neighbour: a digit, and a blank or the end of the line.
const LEAST_NEIGHBOUR_BYTES: u64 = 2;
const SIZES: &str = "vertices and edges";

/// First line of a file.
struct Head {
    vertices: u64,
    edges: u64,
    /// Numbers in front of the neighbours: the vertex size and the vertex weights.
    leading: usize,
    /// True if each neighbour is followed by the weight of the edge.
    valued: bool,
}

/// Lines of one piece of a file. Its first vertex is known when all pieces are parsed.
#[derive(Default)]
struct Rows {
    rows: u64,
    edges: RawEdges,
}

impl Reader<'_> {
    pub(crate) fn metis(&self, bytes: &Bytes<'_>) -> Result<Read, ImportError> {
        let mut header = Header::new(bytes);
        let head = loop {
            let no_sizes = || ImportError::NoSizeLine { what: SIZES, path: bytes.path().to_owned() };
            let line = header.next()?.ok_or_else(no_sizes)?;
            if let Some(fields) = Fields::of(&line, COMMENTS) {
                break head(fields, &line).map_err(|fault| bytes.fault(header.line(), fault))?;
            }
        };
        let entries = head.edges.saturating_mul(2);
        let weighted = head.valued && self.wants_weights();
        let sizes = Sizes {
            vertices: head.vertices,
            entries,
            least_entry_bytes: LEAST_NEIGHBOUR_BYTES,
            mirrored: false,
            weighted,
        };
        let plan = self.plan_behind(bytes, &header, &sizes)?;
        let (mut pieces, mut found) = (self.pieces(), Found::default());
        let line = |own: &mut Rows, at, line: &[u8]| self.row(own, (at, line), &head, weighted);
        text::parse(bytes, &plan, line, |rows, in_front| pieces.push(found.absolute(rows), in_front))?;
        if let Some(vertex) = found.first_loop {
            let (path, loops) = (bytes.path().to_owned(), found.loops);
            return Err(ImportError::MetisLoops { path, vertex: vertex + 1, loops });
        }
        // Empty rows behind the last vertex are not counted: editors leave empty lines at the end of a file.
        if found.last.is_none_or(|last| last < head.vertices) {
            found.rows = found.rows.min(head.vertices);
        }
        if found.rows != head.vertices {
            let (expected, found) = (head.vertices, found.rows);
            return Err(ImportError::Rows { path: bytes.path().to_owned(), expected, found });
        }
        // Each edge is at both ends: half of the entries lead to a larger vertex.
        if found.entries != entries || found.ascending != head.edges {
            let found = if found.entries == entries { 2 * found.ascending } else { found.entries };
            return Err(ImportError::Entries { path: bytes.path().to_owned(), expected: entries, found });
        }
        Ok(Read {
            format: Format::Metis,
            path: bytes.path().to_owned(),
            pieces,
            ids: Some(Ids::dense(1, head.vertices)),
            directed: Some(false),
            called_directed: false,
            mirrored: true,
            both_listed: false,
            translation: None,
            weighted,
            bytes: bytes.len(),
        })
    }

    /// Parses the line of one vertex.
    fn row(&self, own: &mut Rows, (at, line): (u64, &[u8]), head: &Head, weighted: bool) -> Result<(), LineFault> {
        let row = own.rows;
        let Some(mut fields) = Fields::of(line, COMMENTS) else {
            own.rows += u64::from(!text::is_comment(line, COMMENTS));
            return Ok(());
        };
        own.rows += 1;
        let short = |found, expected| LineFault::MetisColumns { found, expected };
        for before in 0..head.leading {
            fields.next().ok_or(short(before, "the header names a vertex size or more vertex weights"))?;
        }
        let mut found = head.leading;
        while let Some(neighbour) = fields.vertex() {
            own.edges.push(row, index(neighbour?, "vertices", head.vertices)?);
            found += 1;
            if head.valued {
                let weight = fields.next().ok_or(short(found, "each neighbour has a weight behind it"))?;
                if weighted {
                    own.edges.push_weight(weight, at, self.options.precision)?;
                }
                found += 1;
            }
        }
        Ok(())
    }
}

/// Counts over the pieces of a file so far.
#[derive(Default)]
struct Found {
    rows: u64,
    /// The last vertex with a neighbour.
    last: Option<u64>,
    entries: u64,
    /// Entries that lead to a larger vertex.
    ascending: u64,
    /// Entries that lead to their own vertex, and the first such vertex.
    loops: u64,
    first_loop: Option<u64>,
}

impl Found {
    /// Counts the next piece, gives its rows their vertices, and keeps each edge at its smaller end.
    fn absolute(&mut self, piece: Rows) -> RawEdges {
        let first = self.rows;
        self.rows += piece.rows;
        self.last = piece.edges.last_from().map(|row| first + row).or(self.last);
        self.entries += piece.edges.len() as u64;
        let own = |[row, to]: [u64; 2]| (first + row == to).then_some(to);
        let mut own = (0..piece.edges.len()).filter_map(|i| own(piece.edges.pair(i)));
        if let Some(vertex) = own.next() {
            self.loops += 1 + own.count() as u64;
            self.first_loop = self.first_loop.or(Some(vertex));
        }
        let edges = piece.edges.retained(|from, to| (first + from < to).then_some([first + from, to]));
        self.ascending += edges.len() as u64;
        edges
    }
}

fn head(mut fields: Fields<'_>, line: &[u8]) -> Result<Head, LineFault> {
    let bad = || LineFault::MetisHeader { found: text::quote(line) };
    let mut number = || fields.vertex().and_then(Result::ok).ok_or_else(bad);
    let (vertices, edges) = (number()?, number()?);
    let format = fields.next().unwrap_or(b"0");
    let weights = fields.vertex().map_or(Ok(None), |n| n.map(Some)).map_err(|_| bad())?;
    if fields.next().is_some() || format.len() > 3 || format.iter().any(|b| !matches!(b, b'0' | b'1')) {
        return Err(bad());
    }
    let digit = |from_last: usize| format.iter().rev().nth(from_last) == Some(&b'1');
    let (valued, has_weights, has_size) = (digit(0), digit(1), digit(2));
    let weights = match (has_weights, weights) {
        (true, None) => 1,
        (true, Some(count)) if (1..=1024).contains(&count) => count as usize,
        (false, None | Some(0)) => 0,
        _ => return Err(bad()),
    };
    Ok(Head { vertices, edges, leading: weights + usize::from(has_size), valued })
}
