//! Columns separated by commas or tabs (RFC 4180, but for line ends in quoted fields): `.csv` and `.tsv`. Semicolons,
//! vertical bars and the other format's character are found by the first line.
//!
//! The first line is a header if it names a column of vertices, such as `source` or `target`, or one that the options
//! choose ([`ColumnNames`](super::ColumnNames)). Other columns are ignored. Without a header the first two columns are
//! the vertices, and a third is the weight.

use super::bytes::Bytes;
use super::error::ImportError;
use super::headings::{Columns, First, FirstLine};
use super::line_fault::LineFault;
use super::names::is_heading_above;
use super::notice::Notice;
use super::raw::Read;
use super::text::{self, Fields, Header};
use super::{Format, Reader};
use crate::graph::quoting::{self, COMMENTS, QuoteFault};
use std::borrow::Cow;

/// Form of a table.
struct Table {
    separator: u8,
    columns: Columns,
    /// First byte and number of the lines with edges.
    start: (u64, u64),
    /// Words of a first line that is not known as a heading.
    words: Option<String>,
}

impl Reader<'_> {
    pub(crate) fn separated(&self, bytes: &Bytes<'_>, usual: u8) -> Result<Read, ImportError> {
        self.check_text(bytes)?;
        let table = self.form(bytes, usual)?;
        let Table { separator, columns, start: (start, first_line), .. } = table;
        let weight = columns.weight.filter(|_| self.wants_weights());
        let precision = self.options.precision;
        let places = [columns.source, columns.target];
        let vertices = self.vertices_of(bytes, first_line, table.words.as_deref(), |line| {
            Fields::of(line, COMMENTS)?;
            let fields = fields(line, separator).unwrap_or_default();
            Some(places.map(|column| fields.get(column).cloned()))
        })?;
        let pieces = self.parse(bytes, &self.lines_from(start, first_line), |own, at, line| {
            if Fields::of(line, COMMENTS).is_none() {
                return Ok(());
            }
            let fields = fields(line, separator)?;
            if fields.len() != columns.count {
                return Err(LineFault::Columns { found: fields.len(), expected: columns.count });
            }
            let (from, to) = (vertices.of(&fields[columns.source])?, vertices.of(&fields[columns.target])?);
            if let Some(weight) = weight {
                own.push_weight(fields[weight].trim_ascii(), at, precision)?;
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

    /// Decides by the first lines, and by the options, how lines are read.
    fn form(&self, bytes: &Bytes<'_>, usual: u8) -> Result<Table, ImportError> {
        let mut header = Header::new(bytes);
        let no_vertices = || Self::no_vertices(bytes.path().to_owned(), bytes.len());
        let line = next_row(&mut header)?.ok_or_else(no_vertices)?;
        let number = header.line();
        let fault = |fault| bytes.fault(number, fault);
        let separator = separator(&line, usual).map_err(fault)?;
        if separator != usual {
            self.note(Notice::Separator { found: text::separator_name(separator) });
        }
        let words = fields(&line, separator).map_err(fault)?;
        let first = First { path: bytes.path(), words: &words, one_suffices: true };
        let meaning = first.meaning(self.options.columns)?;
        let behind = (header.offset(), number + 1);
        let below = next_row(&mut header)?;
        let below = below.as_ref().map(|line| fields(line, separator).unwrap_or_default()).unwrap_or_default();
        let above_numbers = |places: [usize; 2]| {
            let of = |row: &[Cow<'_, [u8]>]| places.map(|place| row.get(place).map(|word| Cow::Owned(word.to_vec())));
            is_heading_above(&of(&words), &of(&below))
        };
        let in_order = Columns { source: 0, target: 1, weight: (words.len() > 2).then_some(2), count: words.len() };
        let (columns, is_heading) = match meaning {
            FirstLine::Heading(columns) => (columns, true),
            FirstLine::HeadingAboveNumbers(columns) if above_numbers([columns.source, columns.target]) => {
                (columns, true)
            }
            FirstLine::HeadingAboveNumbers(_) => {
                self.note(Notice::NotAHeading { found: String::from_utf8_lossy(line.trim_ascii()).into_owned() });
                (in_order, false)
            }
            FirstLine::Edge(Some(columns)) => (columns, above_numbers([columns.source, columns.target])),
            FirstLine::Edge(None) => (in_order, false),
        };
        let most = columns.source.max(columns.target);
        if most >= words.len() {
            return Err(fault(LineFault::Columns { found: words.len(), expected: most + 1 }));
        }
        if is_heading && columns.weight.is_none() {
            self.note_numbers(&words, |column| {
                let is = |word: &Cow<'_, [u8]>| text::weight(word.trim_ascii()).is_ok();
                ![columns.source, columns.target].contains(&column) && below.get(column).is_some_and(is)
            });
        } else if !is_heading && columns == in_order && words.len() > 3 {
            self.note(Notice::Unread { columns: (4, words.len()) });
        }
        Ok(Table {
            separator,
            columns,
            start: if is_heading { behind } else { (0, 1) },
            words: (!is_heading).then(|| first.list()),
        })
    }

    /// Notes the columns that may be the weight, if weights are asked for and nobody chose the columns.
    pub(super) fn note_numbers(&self, names: &[Cow<'_, [u8]>], is_number: impl Fn(usize) -> bool) {
        let columns: Vec<String> =
            (0..names.len()).filter(|&column| is_number(column)).map(|column| text::quote(&names[column])).collect();
        if self.wants_weights() && self.options.columns.is_none() && !columns.is_empty() {
            self.note(Notice::NoWeight { columns });
        }
    }
}

/// Returns the next line that is neither blank nor a comment.
fn next_row(header: &mut Header<'_, '_>) -> Result<Option<Vec<u8>>, ImportError> {
    while let Some(line) = header.next()? {
        if Fields::of(&line, COMMENTS).is_some() {
            return Ok(Some(line));
        }
    }
    Ok(None)
}

/// Returns the character that separates the columns of a line: the usual one, unless only another one gives columns.
/// With commas as decimal marks, as in `1;2;0,5`, the semicolons separate.
fn separator(line: &[u8], usual: u8) -> Result<u8, LineFault> {
    let columns = |separator| fields(line, separator);
    let numbers = |separator| {
        let is_number = |word: &Cow<'_, [u8]>| text::vertex(word).is_ok();
        columns(separator).is_ok_and(|words| words.len() > 1 && words[..2].iter().all(is_number))
    };
    let found = columns(usual)?;
    let decimal = usual == b',' && !numbers(usual) && numbers(b';');
    if found.len() > 1 && !decimal {
        return Ok(usual);
    }
    let others = [b';', b'\t', b'|', b','].into_iter().filter(|&other| other != usual);
    let mut others = others.filter(|&other| columns(other).is_ok_and(|words| words.len() > 1));
    others.next().ok_or_else(|| LineFault::NoSeparator { found: text::quote(line) })
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
