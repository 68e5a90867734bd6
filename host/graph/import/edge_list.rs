//! Edge lists: `.el`, `.txt` and `.wel`, with the header comments of SNAP's and KONECT's files, and networkx's attributes.

use super::attributes;
use super::bytes::Bytes;
use super::error::ImportError;
use super::headings::{self, First, FirstLine};
use super::konect::Konect;
use super::line_fault::LineFault;
use super::names::{Ends, Vertices, is_heading_above};
use super::notice::Notice;
use super::raw::{RawEdges, Read};
use super::text::{Fields, Header};
use super::{Format, Precision, Reader};
use crate::graph::quoting::COMMENTS;
use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};

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

/// Form of a list.
struct Layout {
    /// First byte and number of the lines behind a heading.
    start: (u64, u64),
    shape: Shape,
    /// Words of a first line that is not known as a heading.
    words: Option<String>,
}

/// Columns of each line.
enum Shape {
    /// Two vertices, what follows them, and the number of columns.
    InOrder(ThirdColumn, usize),
    /// Two vertices, and attributes in braces.
    Attributes,
    /// Columns at other positions.
    At(headings::Columns),
}

impl Reader<'_> {
    pub(crate) fn edge_list(&self, bytes: &Bytes<'_>, format: Format, columns: Columns) -> Result<Read, ImportError> {
        self.check_text(bytes)?;
        let declared = declared(bytes)?;
        let layout = self.layout(bytes, columns, declared.konect)?;
        let (start, first_line) = layout.start;
        let precision = self.options.precision;
        let wants = self.wants_weights();
        let places = match layout.shape {
            Shape::At(columns) => [columns.source, columns.target],
            _ => [0, 1],
        };
        let vertices = self.vertices_of(bytes, first_line, layout.words.as_deref(), |line| ends(line, places))?;
        let second = self.second_column(bytes, declared.konect, &vertices)?;
        let plan = self.lines_from(start, first_line);
        // Attributes of the first edge do not tell whether others have a weight.
        let has_weight = AtomicBool::new(false);
        let pieces = match layout.shape {
            Shape::InOrder(third, count) => match second {
                None => self.parse(bytes, &plan, |own, at, line| {
                    edge(own, (at, line), (third, count), precision, |fields, _| vertices.next_of(fields))
                }),
                Some(first) => self.parse(bytes, &plan, |own, at, line| {
                    edge(own, (at, line), (third, count), precision, |fields, side| {
                        vertices.next_of(fields).map(|id| of_side(id?, side, first))
                    })
                }),
            },
            Shape::Attributes => self.parse(bytes, &plan, |own, at, line| {
                let Some(mut fields) = Fields::of(line, COMMENTS) else { return Ok(()) };
                let columns = |found| LineFault::Columns { found, expected: 2 };
                let from = vertices.next_of(&mut fields).ok_or_else(|| columns(0))??;
                let to = vertices.next_of(&mut fields).ok_or_else(|| columns(1))??;
                let weight = attributes::weight(fields.rest())?;
                if wants {
                    // networkx's weight of an edge without one is 1.
                    own.push_weight(weight.unwrap_or(b"1"), at, precision)?;
                    if weight.is_some() {
                        has_weight.store(true, Ordering::Relaxed);
                    }
                }
                own.push(from, to);
                Ok(())
            }),
            Shape::At(columns) => self.parse(bytes, &plan, |own, at, line| {
                let Some(words) = words(line) else { return Ok(()) };
                if words.len() != columns.count {
                    return Err(LineFault::Columns { found: words.len(), expected: columns.count });
                }
                let id = |side: usize, column: usize| {
                    let id = vertices.of(words[column])?;
                    second.map_or(Ok(id), |first| of_side(id, side, first))
                };
                let (from, to) = (id(0, columns.source)?, id(1, columns.target)?);
                if let Some(weight) = columns.weight.filter(|_| wants) {
                    own.push_weight(words[weight], at, precision)?;
                }
                own.push(from, to);
                Ok(())
            }),
        }?;
        let weighted = match layout.shape {
            Shape::InOrder(third, _) => third == ThirdColumn::Weight,
            Shape::Attributes => has_weight.into_inner(),
            Shape::At(columns) => wants && columns.weight.is_some(),
        };
        let read = Read {
            format,
            path: bytes.path().to_owned(),
            pieces,
            ids: None,
            directed: declared.directed,
            called_directed: declared.called_directed,
            mirrored: false,
            both_listed: false,
            translation: None,
            weighted,
            bytes: bytes.len(),
        };
        vertices.finish(read, self)
    }

    /// Decides by the first line, and by the options, how lines are read.
    fn layout(&self, bytes: &Bytes<'_>, columns: Columns, konect: Option<Konect>) -> Result<Layout, ImportError> {
        let mut header = Header::new(bytes);
        let Some(line) = next_edge(&mut header)? else {
            return Ok(Layout { start: (0, 1), shape: Shape::InOrder(ThirdColumn::Absent, 2), words: None });
        };
        let list: Vec<Cow<'_, [u8]>> = words(&line).unwrap_or_default().into_iter().map(Cow::Borrowed).collect();
        let first = First { path: bytes.path(), words: &list, one_suffices: false };
        let meaning = first.meaning(self.options.columns)?;
        let number = header.line();
        let behind = (header.offset(), number + 1);
        let below = next_edge(&mut header)?;
        let above_numbers = |places: [usize; 2]| {
            let below = below.as_ref().and_then(|line| ends(line, places));
            below.is_some_and(|below| is_heading_above(&ends(&line, places).unwrap_or_default(), &below))
        };
        match meaning {
            FirstLine::HeadingAboveNumbers(c) if !above_numbers([c.source, c.target]) => {
                let found = String::from_utf8_lossy(line.trim_ascii()).into_owned();
                self.note(Notice::NotAHeading { found });
            }
            FirstLine::Heading(columns) | FirstLine::HeadingAboveNumbers(columns) => {
                self.note(Notice::Heading { columns: read_columns(&columns, &list, self.wants_weights()) });
                return Ok(Layout { start: behind, shape: Shape::At(columns), words: None });
            }
            FirstLine::Edge(Some(columns)) => {
                let most = columns.source.max(columns.target);
                if most >= list.len() {
                    let fault = LineFault::Columns { found: list.len(), expected: most + 1 };
                    return Err(bytes.fault(number, fault));
                }
                let start = if above_numbers([columns.source, columns.target]) { behind } else { (0, 1) };
                return Ok(Layout { start, shape: Shape::At(columns), words: None });
            }
            FirstLine::Edge(None) => {}
        }
        let layout = |shape| Ok(Layout { start: (0, 1), shape, words: Some(first.list()) });
        let weight = if self.wants_weights() { ThirdColumn::Weight } else { ThirdColumn::Ignored };
        let count = list.len();
        let third = match columns {
            _ if has_attributes(&line) => return layout(Shape::Attributes),
            Columns::Two if konect.is_none() => return layout(Shape::InOrder(ThirdColumn::Forbidden, 2)),
            Columns::Three if konect.is_none() => weight,
            _ if count > 2 => weight,
            _ => return layout(Shape::InOrder(ThirdColumn::Absent, 2)),
        };
        if count > 3 {
            self.note(Notice::Unread { columns: (4, count) });
        }
        // A `.wel` file has weights by its name, and KONECT's columns are known.
        if third == ThirdColumn::Weight && columns != Columns::Three && konect.is_none() && is_time(&list[2]) {
            self.note(Notice::TimeAsWeight { found: String::from_utf8_lossy(&list[2]).into_owned() });
        }
        layout(Shape::InOrder(third, count.max(3)))
    }

    /// Returns the number of vertices of the first column, which those of the second follow, for a bipartite list.
    fn second_column(
        &self,
        bytes: &Bytes<'_>,
        konect: Option<Konect>,
        vertices: &Vertices,
    ) -> Result<Option<u64>, ImportError> {
        let Some(Konect::Bipartite { first }) = konect else { return Ok(None) };
        if self.vertices().is_some() {
            let reason = "a bipartite list has its own numbers of vertices".to_owned();
            return Err(ImportError::CountedVertices { path: bytes.path().to_owned(), reason });
        }
        let reason = match (first, vertices) {
            (_, Vertices::Names(_)) => "give them different names, and remove the header `% bip`",
            (None, _) => {
                "add the comment `% EDGES FIRST SECOND` with the numbers of edges and vertices below the first line, or number them differently and remove the header `% bip`"
            }
            (Some(first), _) => {
                self.note(Notice::Bipartite { first });
                return Ok(Some(first));
            }
        };
        Err(bytes.fault(1, LineFault::Bipartite { reason }))
    }

    /// Returns the content of the column behind the vertices.
    pub(crate) fn third_column(&self, bytes: &Bytes<'_>) -> Result<ThirdColumn, ImportError> {
        let mut header = Header::new(bytes);
        let columns = next_edge(&mut header)?.and_then(|line| words(&line).map(|words| words.len())).unwrap_or(0);
        Ok(match self.wants_weights() {
            _ if columns < 3 => ThirdColumn::Absent,
            true => ThirdColumn::Weight,
            false => ThirdColumn::Ignored,
        })
    }
}

/// Returns the next line that is neither blank nor a comment.
fn next_edge(header: &mut Header<'_, '_>) -> Result<Option<Vec<u8>>, ImportError> {
    while let Some(line) = header.next()? {
        if Fields::of(&line, COMMENTS).is_some() {
            return Ok(Some(line));
        }
    }
    Ok(None)
}

/// Returns the words of a line up to a remark behind the vertices, or `None` for blank lines and comments.
fn words(line: &[u8]) -> Option<Vec<&[u8]>> {
    let mut fields = Fields::of(line, COMMENTS)?;
    let mut words = Vec::new();
    while let Some(word) = fields.next().filter(|word| words.len() < 2 || !is_remark(word)) {
        words.push(word);
    }
    Some(words)
}

/// Returns true if a word behind the vertices begins a remark.
fn is_remark(word: &[u8]) -> bool {
    COMMENTS.contains(&word[0])
}

fn ends(line: &[u8], places: [usize; 2]) -> Option<Ends<'_>> {
    let words = words(line)?;
    Some(places.map(|place| words.get(place).copied().map(Cow::Borrowed)))
}

/// Returns true if attributes in braces follow the vertices.
fn has_attributes(line: &[u8]) -> bool {
    Fields::of(line, COMMENTS).is_some_and(|mut fields| {
        fields.next();
        fields.next();
        fields.next().is_some_and(|word| word[0] == b'{')
    })
}

/// Returns true for the seconds, milliseconds or nanoseconds from 1970 to a day from 1990 to 2100.
fn is_time(word: &[u8]) -> bool {
    const YEAR: u64 = 31_556_952;
    let is = |unit: u64, time: u64| (20 * YEAR * unit..130 * YEAR * unit).contains(&time);
    let time = std::str::from_utf8(word).ok().and_then(|word| word.parse::<u64>().ok());
    time.is_some_and(|time| is(1, time) || is(1000, time) || is(1_000_000_000, time))
}

/// Returns the columns of a heading that are read, in words.
fn read_columns(columns: &headings::Columns, words: &[Cow<'_, [u8]>], wants: bool) -> String {
    let weight = columns.weight.filter(|_| wants);
    let roles = [("source", Some(columns.source)), ("target", Some(columns.target)), ("weight", weight)];
    let named = |(role, at): (&str, Option<usize>)| at.map(|at| format!("{role} `{}`", super::text::quote(&words[at])));
    roles.into_iter().filter_map(named).collect::<Vec<_>>().join(", ")
}

/// Numbers a vertex of a bipartite list. Both columns count from 1; `first` is the number of vertices in the first.
fn of_side(id: u64, side: usize, first: u64) -> Result<u64, LineFault> {
    match (id, side) {
        (0, _) => Err(LineFault::ZeroIndex),
        (_, 0) if id > first => {
            Err(LineFault::BeyondHeader { found: id, what: "vertices of the first column", limit: first })
        }
        (_, 0) => Ok(id),
        _ => id.checked_add(first).ok_or_else(|| LineFault::HugeVertex { found: id.to_string() }),
    }
}

/// Facts in the comments above the first edge.
#[derive(Default)]
struct Declared {
    directed: Option<bool>,
    /// True if the list may still have each edge in both directions.
    called_directed: bool,
    konect: Option<Konect>,
}

/// Reads SNAP's header `# Undirected graph ...` or `# Directed graph ...`, or KONECT's, above the first edge.
fn declared(bytes: &Bytes<'_>) -> Result<Declared, ImportError> {
    let mut header = Header::new(bytes);
    let mut found = Declared::default();
    while let Some(line) = header.next()? {
        if Fields::of(&line, COMMENTS).is_some() {
            break;
        }
        let text = String::from_utf8_lossy(&line).to_ascii_lowercase();
        if let Some(comment) = text.trim().strip_prefix('%') {
            if let (Some(konect), 2) = (found.konect, header.line()) {
                found.konect = Some(konect.with_sizes(comment));
            }
            if let (Some(konect), 1) = (Konect::of(comment), header.line()) {
                found.konect = Some(konect);
                found.directed = Some(konect == Konect::Directed);
            }
        }
        if found.konect.is_some() {
            continue;
        }
        let mut words = text.split(|c: char| c.is_whitespace() || COMMENTS.contains(&(c as u8)) || c == ':');
        let mut word = || words.by_ref().find(|w| !w.is_empty());
        match (word(), word()) {
            (Some("undirected"), Some("graph")) => return Ok(Declared { directed: Some(false), ..found }),
            // Such a list may have each edge in both directions.
            (Some("directed"), Some("graph")) => return Ok(Declared { called_directed: true, ..found }),
            _ => {}
        }
    }
    Ok(found)
}

/// Content of the third column.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ThirdColumn {
    /// None, because the first line has none.
    Absent,
    /// None, because the format has none.
    Forbidden,
    /// Weights that are read.
    Weight,
    /// Weights that are not read, since the options do not ask for them.
    Ignored,
}

/// Parses one line: two vertices, a weight if `third` says so, and further columns up to `count`, which are not read. A
/// remark may follow. `vertex` parses the next word of side 0 or 1, and returns the number to store for it.
pub(crate) fn edge(
    own: &mut RawEdges,
    (at, line): (u64, &[u8]),
    (third, count): (ThirdColumn, usize),
    precision: Precision,
    vertex: impl Fn(&mut Fields<'_>, usize) -> Option<Result<u64, LineFault>>,
) -> Result<(), LineFault> {
    let Some(mut fields) = Fields::of(line, COMMENTS) else { return Ok(()) };
    let expected = if matches!(third, ThirdColumn::Absent | ThirdColumn::Forbidden) { 2 } else { count };
    let columns = |found| LineFault::Columns { found, expected };
    let from = vertex(&mut fields, 0).ok_or_else(|| columns(0))??;
    let to = vertex(&mut fields, 1).ok_or_else(|| columns(1))??;
    match (third, fields.next().filter(|word| !is_remark(word))) {
        (ThirdColumn::Absent | ThirdColumn::Forbidden, None) => {
            own.push(from, to);
            return Ok(());
        }
        (ThirdColumn::Ignored, Some(_)) => own.push(from, to),
        (ThirdColumn::Forbidden, Some(_)) => return Err(LineFault::UnexpectedWeight),
        (ThirdColumn::Weight, Some(word)) => {
            own.push_weight(word, at, precision)?;
            own.push(from, to);
        }
        (ThirdColumn::Weight | ThirdColumn::Ignored, None) => return Err(columns(2)),
        (ThirdColumn::Absent, Some(_)) => return Err(columns(3 + further(&mut fields))),
    }
    match 3 + further(&mut fields) {
        found if found != expected => Err(columns(found)),
        _ => Ok(()),
    }
}

/// Returns the number of words up to a remark.
fn further(fields: &mut Fields<'_>) -> usize {
    let mut words = 0;
    while fields.next().is_some_and(|word| !is_remark(word)) {
        words += 1;
    }
    words
}
