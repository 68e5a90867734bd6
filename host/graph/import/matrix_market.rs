//! Matrix Market files: the coordinate format of Boisvert, Pozo, Remington, "The Matrix Market Exchange Formats", NISTIR
//! 5935, 1996. An entry in row `i` and column `j` is an edge from `i` to `j`.

use super::bytes::Bytes;
use super::error::ImportError;
use super::line_fault::LineFault;
use super::raw::Read;
use super::text::{self, Fields, Header};
use super::{Format, Reader, Sizes};
use crate::graph::ids::Ids;

/// First character of comment lines: only `%` in this format.
const COMMENTS: &[u8] = b"%";
/// Length of the shortest entry: two digits, a blank and the end of the line.
const LEAST_ENTRY_BYTES: u64 = 4;

/// Words of the first line: what each is, and what it says for a graph.
const WORDS: [(&str, &str); 5] = [
    ("name", "`%%MatrixMarket`"),
    ("object", "`matrix`"),
    ("format", "`coordinate`"),
    ("field", "`pattern`, `integer` or `real`"),
    ("symmetry", "`general`, or `symmetric` if only one triangle is listed"),
];

#[derive(Debug)]
struct Banner {
    /// True if entries have a value behind the indices.
    valued: bool,
    symmetric: bool,
}

impl Reader<'_> {
    pub(crate) fn matrix_market(&self, bytes: &Bytes<'_>) -> Result<Read, ImportError> {
        let mut header = Header::new(bytes);
        let no_size_line =
            || ImportError::NoSizeLine { what: "rows, columns and entries", path: bytes.path().to_owned() };
        let first = header.next()?.ok_or_else(no_size_line)?;
        let banner = banner(&first).map_err(|fault| bytes.fault(1, fault))?;
        let size = loop {
            let line = header.next()?.ok_or_else(no_size_line)?;
            if let Some(fields) = Fields::of(&line, COMMENTS) {
                break size(fields, &line).map_err(|fault| bytes.fault(header.line(), fault))?;
            }
        };
        let weighted = banner.valued && self.wants_weights();
        let sizes = Sizes {
            vertices: size.rows,
            entries: size.entries,
            least_entry_bytes: LEAST_ENTRY_BYTES,
            mirrored: banner.symmetric,
            weighted,
        };
        let plan = self.plan_behind(bytes, &header, &sizes)?;
        let precision = self.options.precision;
        let pieces = self.parse(bytes, &plan, |own, at, line| {
            let Some(mut fields) = Fields::of(line, COMMENTS) else { return Ok(()) };
            let expected = if banner.valued { 3 } else { 2 };
            let columns = |found| LineFault::Columns { found, expected };
            let row = index(fields.vertex().ok_or_else(|| columns(0))??, "rows", size.rows)?;
            let column = index(fields.vertex().ok_or_else(|| columns(1))??, "columns", size.rows)?;
            if banner.valued {
                let value = fields.next().ok_or_else(|| columns(2))?;
                if weighted {
                    own.push_weight(value, at, precision)?;
                }
            }
            // A remark may follow the entry.
            if fields.next().is_some_and(|word| !COMMENTS.contains(&word[0])) {
                return Err(columns(expected + 1 + fields.count()));
            }
            own.push(row, column);
            Ok(())
        })?;
        let found = pieces.edges();
        if found != size.entries {
            return Err(ImportError::Entries { path: bytes.path().to_owned(), expected: size.entries, found });
        }
        Ok(Read {
            format: Format::MatrixMarket,
            path: bytes.path().to_owned(),
            pieces,
            ids: Some(Ids::dense(1, size.rows)),
            directed: banner.symmetric.then_some(false),
            called_directed: false,
            mirrored: banner.symmetric,
            both_listed: false,
            translation: None,
            weighted,
            bytes: bytes.len(),
        })
    }
}

/// Converts an index, which is counted from 1, to a vertex, which is counted from 0.
pub(super) fn index(found: u64, what: &'static str, limit: u64) -> Result<u64, LineFault> {
    match found.checked_sub(1) {
        None => Err(LineFault::ZeroIndex),
        Some(_) if found > limit => Err(LineFault::BeyondHeader { found, what, limit }),
        Some(vertex) => Ok(vertex),
    }
}

fn banner(line: &[u8]) -> Result<Banner, LineFault> {
    let text = String::from_utf8_lossy(line).to_ascii_lowercase();
    let words: Vec<&str> = text.split_whitespace().collect();
    // Some programs write one percent sign.
    if !matches!(words.first(), Some(&("%%matrixmarket" | "%matrixmarket"))) {
        return Err(LineFault::Banner { found: text::quote(line) });
    }
    let [_, object, format, field, symmetry] = words[..] else {
        return Err(match WORDS.get(words.len()) {
            Some(&(missing, choice)) => LineFault::ShortBanner { found: text::quote(line), missing, choice },
            None => LineFault::Banner { found: text::quote(line) },
        });
    };
    let refuse =
        |what, found: &str, advice| Err(LineFault::Unsupported { what, found: text::quote(found.as_bytes()), advice });
    if object != "matrix" {
        return refuse("object", object, "a graph is a `matrix`");
    }
    match format {
        "coordinate" => (),
        "array" => return refuse("format", format, "write the non-zero entries in `coordinate` format"),
        _ => return refuse("format", format, "it must be `coordinate`"),
    }
    let valued = match field {
        "pattern" => false,
        // SciPy writes unsigned numbers as `unsigned-integer`, which the report does not have.
        "integer" | "unsigned-integer" | "real" | "double" => true,
        "complex" => return refuse("field", field, "write absolute values as `real`, or drop them as `pattern`"),
        _ => return refuse("field", field, "it must be `pattern`, `integer` or `real`"),
    };
    let symmetric = match symmetry {
        "general" => false,
        "symmetric" => true,
        "skew-symmetric" | "hermitian" => {
            return refuse("symmetry", symmetry, "write all entries as `general`, or one triangle as `symmetric`");
        }
        _ => return refuse("symmetry", symmetry, "it must be `general` or `symmetric`"),
    };
    Ok(Banner { valued, symmetric })
}

struct Size {
    rows: u64,
    entries: u64,
}

fn size(mut fields: Fields<'_>, line: &[u8]) -> Result<Size, LineFault> {
    let bad = || LineFault::SizeLine { found: text::quote(line) };
    let mut number = || fields.vertex().and_then(Result::ok).ok_or_else(bad);
    let (rows, columns, entries) = (number()?, number()?, number()?);
    if fields.next().is_some() {
        return Err(bad());
    }
    if rows != columns { Err(LineFault::NotSquare { rows, columns }) } else { Ok(Size { rows, entries }) }
}
