//! Reads lines of text in parallel. Each task reads and parses a piece of the file.

use super::bytes::Bytes;
use super::error::ImportError;
use super::line_fault::LineFault;
use super::{Progress, ProgressFn, Stage};
use crate::graph::parallel;
use crate::units::visible;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Bytes that one task reads and parses.
pub(crate) const PIECE: u64 = 4 << 20;
/// Least bytes that one task reads and parses.
const LEAST_PIECE: u64 = 64 << 10;
/// Longest line in bytes. Only a comment could be longer, and edge lists have no such comments.
pub(crate) const MAX_LINE: u64 = 1 << 20;
/// Bytes that are read at a time where a line continues beyond its piece.
const TAIL: u64 = 1 << 10;
/// Characters of the input that a message quotes.
const QUOTED: usize = 40;
/// Separators of the columns of tables, other than tabs.
pub(super) const SEPARATORS: [u8; 3] = [b',', b';', b'|'];

/// Returns the name of a separator in the plural.
pub(super) fn separator_name(separator: u8) -> &'static str {
    match separator {
        b';' => "semicolons",
        b'|' => "vertical bars",
        b'\t' => "tabs",
        _ => "commas",
    }
}

impl Bytes<'_> {
    /// Returns the whole lines that begin in `range`.
    fn lines_of(&self, range: std::ops::Range<u64>, start: u64) -> Result<Piece, ImportError> {
        // The byte before the piece tells whether a line begins with the piece.
        let first = if range.start > start { range.start - 1 } else { range.start };
        let mut text = vec![0; (range.end - first) as usize];
        self.read(first, &mut text)?;
        let skip = if range.start > start {
            match text.iter().position(|&b| b == b'\n') {
                Some(end) => end + 1,
                None => return Ok(Piece::default()),
            }
        } else {
            0
        };
        if skip == text.len() {
            return Ok(Piece::default());
        }
        let mut end = range.end;
        while end < self.len() && text.last() != Some(&b'\n') {
            let more = TAIL.min(self.len() - end) as usize;
            let old = text.len();
            text.resize(old + more, 0);
            self.read(end, &mut text[old..])?;
            if let Some(newline) = text[old..].iter().position(|&b| b == b'\n') {
                text.truncate(old + newline + 1);
            }
            end += more as u64;
            if end - range.end > MAX_LINE {
                break;
            }
        }
        Ok(Piece { text, skip })
    }
}

#[derive(Default)]
struct Piece {
    text: Vec<u8>,
    skip: usize,
}

/// Input range and options of [`parse`].
pub(crate) struct Plan<'a> {
    /// First byte of the lines.
    pub start: u64,
    /// Number of the first line, from 1.
    pub first_line: u64,
    pub pieces: PieceSizes,
    pub progress: Option<ProgressFn<'a>>,
}

/// Sizes of the pieces of a file, each of which is parsed by one task.
#[derive(Clone, Copy)]
pub(crate) struct PieceSizes {
    /// Bytes of a piece.
    pub bytes: u64,
    /// Number of pieces that are parsed before their parsers are handed over.
    pub group: usize,
}

impl PieceSizes {
    /// Returns sizes for files whose parsers all fit into memory.
    pub(crate) const fn of(bytes: u64) -> Self {
        Self { bytes, group: usize::MAX }
    }

    /// Returns sizes with which text and parsers of a group take about a quarter of `memory` bytes.
    pub(crate) fn within(memory: u64) -> Self {
        let threads = rayon::current_num_threads() as u64;
        Self { bytes: (memory / (64 * threads)).clamp(LEAST_PIECE, PIECE), group: 4 * threads as usize }
    }
}

/// Passes each line to a parser, with one parser for each piece of the file, and the line's number in its piece, from 1.
/// Hands the parsers over in the file's order, with the number of lines in front of their pieces. The error is that of the
/// first faulty line, for any number of threads.
pub(crate) fn parse<P: Default + Send>(
    bytes: &Bytes<'_>,
    plan: &Plan<'_>,
    line: impl Fn(&mut P, u64, &[u8]) -> Result<(), LineFault> + Sync,
    mut take: impl FnMut(P, u64) -> Result<(), ImportError>,
) -> Result<(), ImportError> {
    enum End {
        Whole(u64),
        Fault(u64, LineFault),
        Other(ImportError),
        Skipped,
    }
    let length = bytes.len().saturating_sub(plan.start);
    let pieces = length.div_ceil(plan.pieces.bytes) as usize;
    let first_bad = AtomicUsize::new(usize::MAX);
    let done = AtomicU64::new(0);
    let parsed = |i: usize| -> (P, End) {
        let mut parser = P::default();
        // Pieces behind an error have no effect. Pieces before it are needed to count its line.
        if i > first_bad.load(Ordering::Relaxed) {
            return (parser, End::Skipped);
        }
        let from = plan.start + i as u64 * plan.pieces.bytes;
        let to = bytes.len().min(from + plan.pieces.bytes);
        let end = match bytes.lines_of(from..to, plan.start) {
            Err(error) => End::Other(error),
            Ok(piece) => {
                let mut lines = 0;
                let mut rest = &piece.text[piece.skip..];
                let mut end = None;
                while !rest.is_empty() && end.is_none() {
                    let length = rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len());
                    lines += 1;
                    let result = if length as u64 > MAX_LINE {
                        Err(LineFault::LongLine { limit: MAX_LINE })
                    } else {
                        line(&mut parser, lines, &rest[..length])
                    };
                    end = result.err().map(|fault| End::Fault(lines, fault));
                    rest = &rest[rest.len().min(length + 1)..];
                }
                end.unwrap_or(End::Whole(lines))
            }
        };
        if !matches!(end, End::Whole(_)) {
            first_bad.fetch_min(i, Ordering::Relaxed);
        }
        if let Some(progress) = plan.progress {
            let done = done.fetch_add(to - from, Ordering::Relaxed) + to - from;
            progress(Progress { stage: Stage::Read, done, total: length });
        }
        (parser, end)
    };
    let mut before = plan.first_line;
    let mut first = 0;
    while first < pieces {
        let end = pieces.min(first.saturating_add(plan.pieces.group));
        let group: Vec<(P, End)> = parallel::map(end - first, |i| parsed(first + i));
        for (parser, end) in group {
            let in_front = before - 1;
            match end {
                End::Whole(lines) => before += lines,
                End::Fault(lines, fault) => return Err(bytes.fault(before + lines - 1, fault)),
                End::Other(error) => return Err(error),
                // Only pieces behind an error are skipped, and the loop has returned that error.
                End::Skipped => break,
            }
            take(parser, in_front)?;
        }
        first = end;
    }
    Ok(())
}

/// Reads lines one by one from the start of a file, for headers.
pub(crate) struct Header<'a, 'b> {
    bytes: &'a Bytes<'b>,
    offset: u64,
    line: u64,
}

impl<'a, 'b> Header<'a, 'b> {
    pub(crate) fn new(bytes: &'a Bytes<'b>) -> Self {
        Self { bytes, offset: 0, line: 0 }
    }

    /// Returns the next line, or `None` at the end of the file.
    pub(crate) fn next(&mut self) -> Result<Option<Vec<u8>>, ImportError> {
        let mut text = Vec::new();
        let mut at = self.offset;
        while at < self.bytes.len() {
            let more = TAIL.min(self.bytes.len() - at) as usize;
            let old = text.len();
            text.resize(old + more, 0);
            self.bytes.read(at, &mut text[old..])?;
            at += more as u64;
            if let Some(newline) = text[old..].iter().position(|&b| b == b'\n') {
                text.truncate(old + newline + 1);
                break;
            }
            if text.len() as u64 > MAX_LINE {
                return Err(self.bytes.fault(self.line + 1, LineFault::LongLine { limit: MAX_LINE }));
            }
        }
        if text.is_empty() {
            return Ok(None);
        }
        self.offset += text.len() as u64;
        self.line += 1;
        if text.last() == Some(&b'\n') {
            text.pop();
        }
        Ok(Some(text))
    }

    /// Returns the number of the line that [`Header::next`] returned last, from 1.
    pub(crate) fn line(&self) -> u64 {
        self.line
    }

    /// Returns the offset of the next line.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }
}

/// Returns a line without a byte order mark, which some programs write in front of the first line.
pub(crate) fn without_mark(line: &[u8]) -> &[u8] {
    line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line)
}

/// Returns true if the line is a comment. A blank line is none.
pub(crate) fn is_comment(line: &[u8], comments: &[u8]) -> bool {
    without_mark(line).iter().find(|&&b| !is_blank(b)).is_some_and(|b| comments.contains(b))
}

/// Words of a line.
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | 0x0b | 0x0c)
}

impl<'a> Fields<'a> {
    /// Returns the words of a line, or `None` for blank lines and comments.
    pub(crate) fn of(line: &'a [u8], comments: &[u8]) -> Option<Self> {
        let line = without_mark(line);
        let start = line.iter().position(|&b| !is_blank(b))?;
        (!comments.contains(&line[start])).then_some(Self { rest: &line[start..] })
    }

    /// Returns what follows the last word, with the blanks in front of it.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn next(&mut self) -> Option<&'a [u8]> {
        let start = self.rest.iter().position(|&b| !is_blank(b))?;
        let word = &self.rest[start..];
        let end = word.iter().position(|&b| is_blank(b)).unwrap_or(word.len());
        self.rest = &word[end..];
        Some(&word[..end])
    }

    /// Parses the next word as a whole number. This is fast, since most words are whole numbers.
    pub(crate) fn vertex(&mut self) -> Option<Result<u64, LineFault>> {
        /// Number of digits that always fit into 64 bits.
        const SAFE_DIGITS: usize = 19;
        let start = self.rest.iter().position(|&b| !is_blank(b))?;
        let word = &self.rest[start..];
        let mut value = 0u64;
        let mut length = 0;
        while let Some(&byte) = word.get(length) {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                break;
            }
            value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
            length += 1;
        }
        if length > 0 && length <= SAFE_DIGITS && word.get(length).is_none_or(|&b| is_blank(b)) {
            self.rest = &word[length..];
            return Some(Ok(value));
        }
        self.next().map(vertex)
    }

    /// Returns the number of remaining words.
    pub(crate) fn count(mut self) -> usize {
        let mut words = 0;
        while self.next().is_some() {
            words += 1;
        }
        words
    }
}

/// Quotes a word of the input, shortened for a message.
pub(crate) fn quote(word: &[u8]) -> String {
    let text = String::from_utf8_lossy(word);
    let text = text.trim_end_matches('\r');
    let mut out = visible(&text.chars().take(QUOTED).collect::<String>());
    if text.chars().nth(QUOTED).is_some() {
        out.push_str("...");
    }
    out
}

/// Returns a fault if the word has a byte that is not text.
fn binary(word: &[u8]) -> Option<LineFault> {
    word.iter().copied().find(|&b| b < 0x20 || b == 0x7f).map(|byte| LineFault::Binary { byte })
}

/// Parses a vertex identifier, or returns the most specific fault.
pub(crate) fn vertex(word: &[u8]) -> Result<u64, LineFault> {
    let digits = |w: &[u8]| !w.is_empty() && w.iter().all(u8::is_ascii_digit);
    if digits(word) {
        let text = std::str::from_utf8(word).unwrap_or_default();
        return text.parse().map_err(|_| LineFault::HugeVertex { found: quote(word) });
    }
    Err(match word.strip_prefix(b"-") {
        Some(rest) if digits(rest) => LineFault::NegativeVertex { found: quote(word) },
        _ => binary(word).unwrap_or_else(|| match word.iter().position(|b| SEPARATORS.contains(b)) {
            // The word is a number followed by a separator of tables.
            Some(end) if digits(&word[..end]) => {
                LineFault::Commas { found: quote(word), separator: separator_name(word[end]) }
            }
            _ => LineFault::NotAVertex { found: quote(word) },
        }),
    })
}

/// Returns true if a word is written as a number, of any sign and size.
pub(crate) fn is_number(word: &[u8]) -> bool {
    word.iter().any(u8::is_ascii_digit) && std::str::from_utf8(word).is_ok_and(|text| text.parse::<f64>().is_ok())
}

/// A weight of the input.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Weight {
    Integer(u32),
    Real(f64),
}

/// Parses a weight, which must be finite and not negative.
pub(crate) fn weight(word: &[u8]) -> Result<Weight, LineFault> {
    let found = || quote(word);
    if let Some(fault) = binary(word) {
        return Err(fault);
    }
    let text = std::str::from_utf8(word).map_err(|_| LineFault::NotAWeight { found: found() })?;
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) {
        return text.parse().map(Weight::Integer).map_err(|_| LineFault::HugeWeight { found: found() });
    }
    text.parse().map_err(|_| LineFault::NotAWeight { found: found() }).and_then(|value| real(value, found))
}

/// Checks a real weight, which must be finite and not negative. `found` is the weight as text, for the fault.
pub(crate) fn real(value: f64, found: impl Fn() -> String) -> Result<Weight, LineFault> {
    match value {
        value if !value.is_finite() => Err(LineFault::NotFinite { found: found() }),
        value if value < 0.0 => Err(LineFault::NegativeWeight { found: found() }),
        // Adding zero turns negative zero into zero.
        value => Ok(Weight::Real(value + 0.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::Path;

    fn lines(text: &[u8], piece: u64) -> Result<Vec<Vec<u8>>, ImportError> {
        grouped_lines(text, PieceSizes::of(piece))
    }

    fn grouped_lines(text: &[u8], pieces: PieceSizes) -> Result<Vec<Vec<u8>>, ImportError> {
        let bytes = Bytes::memory(Path::new("t"), text);
        let plan = Plan { start: 0, first_line: 1, pieces, progress: None };
        let mut lines = Vec::new();
        let take = |own: Vec<Vec<u8>>, in_front: u64| {
            assert_eq!(in_front, lines.len() as u64);
            lines.extend(own);
            Ok(())
        };
        let line = |own: &mut Vec<Vec<u8>>, number: u64, line: &[u8]| {
            assert_eq!(number, own.len() as u64 + 1);
            if line == b"bad" {
                return Err(LineFault::ZeroIndex);
            }
            own.push(line.to_vec());
            Ok(())
        };
        parse(&bytes, &plan, line, take)?;
        Ok(lines)
    }

    proptest! {
        #[test]
        fn pieces_of_any_size_give_the_same_lines(text in "[a\n]{0,60}", piece in 1u64..70, group in 1usize..9) {
            let mut expected: Vec<Vec<u8>> = text.split('\n').map(|l| l.as_bytes().to_vec()).collect();
            if text.is_empty() || text.ends_with('\n') {
                expected.pop();
            }
            prop_assert_eq!(grouped_lines(text.as_bytes(), PieceSizes { bytes: piece, group }).unwrap(), expected);
        }

        #[test]
        fn the_first_bad_line_is_named(good in 0usize..20, rest in 0usize..20, piece in 1u64..40, group in 1usize..9) {
            let text = format!("{}bad\n{}bad\n", "ok\n".repeat(good), "ok\n".repeat(rest));
            match grouped_lines(text.as_bytes(), PieceSizes { bytes: piece, group }) {
                Err(ImportError::Line { line, .. }) => prop_assert_eq!(line, good as u64 + 1),
                other => prop_assert!(false, "{:?}", other),
            }
        }

        #[test]
        fn numbers_read_as_the_standard_library_reads_them(value: u64, text in "[0-9]{1,24}") {
            let mut fields = Fields { rest: text.as_bytes() };
            let read = fields.vertex().unwrap();
            prop_assert_eq!(read.ok(), text.parse::<u64>().ok());
            let text = format!(" \t{value}\r");
            prop_assert_eq!(Fields { rest: text.as_bytes() }.vertex(), Some(Ok(value)));
        }
    }

    #[test]
    fn a_long_line_is_refused_and_a_long_comment_is_not_read_twice() {
        let mut text = vec![b'#'; MAX_LINE as usize];
        text.extend_from_slice(b"\nx\n");
        assert_eq!(lines(&text, 1 << 16).unwrap().len(), 2);
        text.insert(0, b'#');
        match lines(&text, 1 << 16) {
            Err(ImportError::Line { line: 1, fault: LineFault::LongLine { .. }, .. }) => (),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn weights_say_what_is_wrong_with_them() {
        assert_eq!(weight(b"7"), Ok(Weight::Integer(7)));
        assert_eq!(weight(b"7.5e1"), Ok(Weight::Real(75.0)));
        assert!(matches!(weight(b"-0.0"), Ok(Weight::Real(w)) if w.is_sign_positive()));
        assert!(matches!(weight(b"-3"), Err(LineFault::NegativeWeight { .. })));
        assert!(matches!(weight(b"nan"), Err(LineFault::NotFinite { .. })));
        assert!(matches!(weight(b"1e999"), Err(LineFault::NotFinite { .. })));
        assert!(matches!(weight(b"4294967296"), Err(LineFault::HugeWeight { .. })));
        assert!(matches!(weight(b"x"), Err(LineFault::NotAWeight { .. })));
        assert!(matches!(weight(b"\x01"), Err(LineFault::Binary { byte: 1 })));
        assert!(matches!(weight(b"\xff\xfe"), Err(LineFault::NotAWeight { .. })));
    }
}
