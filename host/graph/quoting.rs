//! Quoted fields, as RFC 4180 describes them: written where a text would be ambiguous, and read from lines.

use std::borrow::Cow;
use std::fmt::{self, Write};

/// First characters of comment lines: `#` in SNAP's files, `%` in KONECT's.
pub(crate) const COMMENTS: &[u8] = b"#%";

/// Text between which fields stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Separator {
    /// Blanks of any kind.
    Blank,
    /// A comma.
    Comma,
}

/// A field that is put into double quotes if a reader could not tell where it begins or ends. Double quotes inside are
/// doubled.
pub(crate) struct Field<'a> {
    pub text: &'a str,
    pub separator: Separator,
}

impl Field<'_> {
    /// Returns true if the field is written in double quotes.
    pub(crate) fn is_quoted(&self) -> bool {
        let first = self.text.as_bytes().first().copied();
        // A line that begins so is a comment; a byte order mark at its beginning is skipped.
        let hidden = first.is_none_or(|b| COMMENTS.contains(&b)) || self.text.starts_with('\u{feff}');
        hidden
            || match self.separator {
                Separator::Blank => self.text.contains(|c: char| c == '"' || c.is_whitespace()),
                Separator::Comma => {
                    self.text.contains([',', '"', '\r', '\n', '\t'])
                        || self.text.starts_with(char::is_whitespace)
                        || self.text.ends_with(char::is_whitespace)
                }
            }
    }
}

impl fmt::Display for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.is_quoted() {
            return f.write_str(self.text);
        }
        f.write_char('"')?;
        for (i, part) in self.text.split('"').enumerate() {
            if i > 0 {
                f.write_str("\"\"")?;
            }
            f.write_str(part)?;
        }
        f.write_char('"')
    }
}

/// Fault of the quotes in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuoteFault {
    /// A quoted field does not end on the line.
    Open,
    /// Text follows the closing quote of a field.
    Behind,
}

/// Returns the fields of a line. Blanks around a field are dropped, those within double quotes are kept.
pub(crate) fn fields(line: &[u8], separator: u8) -> Result<Vec<Cow<'_, [u8]>>, QuoteFault> {
    let mut fields = Vec::new();
    let mut rest = Some(line);
    while let Some(text) = rest {
        let (field, behind) = first_field(text, separator)?;
        fields.push(field);
        rest = behind;
    }
    Ok(fields)
}

/// Returns the fields of a line with commas, as tables have them: blanks around a field are dropped, and a field with a
/// comma is in double quotes. Returns `None` if a double quote is not closed, or if text follows the closing one.
///
/// # Examples
///
/// ```
/// use warpbell::graph::split_fields;
///
/// assert_eq!(split_fields("\"Doe, John\", 7").unwrap(), ["Doe, John", "7"]);
/// assert_eq!(split_fields("\"Doe"), None);
/// ```
pub fn split_fields(line: &str) -> Option<Vec<String>> {
    let fields = fields(line.as_bytes(), b',').ok()?;
    // Fields end at bytes of ASCII, so they are UTF-8 as the line is.
    Some(fields.into_iter().map(|field| String::from_utf8_lossy(&field).into_owned()).collect())
}

/// Returns the first field of a text, and the text behind the separator that ends the field.
#[expect(clippy::type_complexity, reason = "the pair is taken apart where it is returned")]
fn first_field(text: &[u8], separator: u8) -> Result<(Cow<'_, [u8]>, Option<&[u8]>), QuoteFault> {
    let is_blank = |b: u8| b != separator && b.is_ascii_whitespace();
    let start = text.iter().position(|&b| !is_blank(b)).unwrap_or(text.len());
    let Some(quoted) = text[start..].strip_prefix(b"\"") else {
        let end = text.iter().position(|&b| b == separator);
        let field = text[..end.unwrap_or(text.len())].trim_ascii();
        return Ok((Cow::Borrowed(field), end.map(|end| &text[end + 1..])));
    };
    let mut field = Cow::Borrowed(&quoted[..0]);
    let mut rest = quoted;
    loop {
        let quote = rest.iter().position(|&b| b == b'"').ok_or(QuoteFault::Open)?;
        let doubled = rest.get(quote + 1) == Some(&b'"');
        // The first of two quotes belongs to the field.
        let part = &rest[..quote + usize::from(doubled)];
        match &mut field {
            Cow::Borrowed([]) => field = Cow::Borrowed(part),
            _ => field.to_mut().extend_from_slice(part),
        }
        rest = &rest[quote + 1 + usize::from(doubled)..];
        if !doubled {
            break;
        }
    }
    match rest.iter().position(|&b| !is_blank(b)) {
        None => Ok((field, None)),
        Some(at) if rest[at] == separator => Ok((field, Some(&rest[at + 1..]))),
        Some(_) => Err(QuoteFault::Behind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(line: &str, separator: u8) -> Result<Vec<String>, QuoteFault> {
        let fields = fields(line.as_bytes(), separator)?;
        Ok(fields.into_iter().map(|f| String::from_utf8(f.into_owned()).unwrap()).collect())
    }

    fn csv(text: &str) -> String {
        Field { text, separator: Separator::Comma }.to_string()
    }

    fn word(text: &str) -> String {
        Field { text, separator: Separator::Blank }.to_string()
    }

    #[test]
    fn lines_are_split_at_separators_outside_of_quotes() {
        for (line, expected) in [
            ("a,b", &["a", "b"][..]),
            (" a b\t, \"c, \"\"d\"\"\" ,\"\",", &["a b", "c, \"d\"", "", ""]),
            ("\" a \",x\"y", &[" a ", "x\"y"]),
            ("\"\"\"\"\"\"", &["\"\""]),
            ("\"a\"\"\"\"b\"", &["a\"\"b"]),
            ("", &[""]),
        ] {
            assert_eq!(read(line, b',').unwrap(), expected, "{line}");
        }
        assert_eq!(read("\ta\t\"b\tc\" \t", b'\t').unwrap(), ["", "a", "b\tc", ""]);
        for line in ["\"a", "a,\"b,c", "\"a\"\"", "\""] {
            assert_eq!(read(line, b','), Err(QuoteFault::Open), "{line}");
        }
        for line in ["\"a\"b,c", "\"a\" \"b\"", "\"a\" b"] {
            assert_eq!(read(line, b','), Err(QuoteFault::Behind), "{line}");
        }
    }

    #[test]
    fn only_ambiguous_texts_are_quoted() {
        for plain in ["a", "5", "O'Neil", "näive", "a#b", "a;b"] {
            assert_eq!((csv(plain), word(plain)), (plain.to_owned(), plain.to_owned()));
        }
        assert_eq!((csv("a b"), word("a b")), ("a b".to_owned(), "\"a b\"".to_owned()));
        assert_eq!((csv("a,b"), word("a,b")), ("\"a,b\"".to_owned(), "a,b".to_owned()));
        assert_eq!(word("a\u{a0}b"), "\"a\u{a0}b\"");
        for text in ["#a", "%", "\u{feff}a", "a\"b", "", " a", "a\t"] {
            assert!(csv(text).starts_with('"') && word(text).starts_with('"'), "{text}");
        }
        assert_eq!(csv("say \"hi\""), "\"say \"\"hi\"\"\"");
    }

    proptest! {
        #[test]
        fn what_is_quoted_is_read_back(texts in prop::collection::vec("[a-c,\"# \t\u{a0}é]{0,6}", 1..5)) {
            let line = texts.iter().map(|t| csv(t)).collect::<Vec<_>>().join(",");
            prop_assert_eq!(read(&line, b',').unwrap(), texts.clone());
            // Words in quotes are the only place of blanks.
            let line = texts.iter().map(|t| word(t)).collect::<Vec<_>>().join(" ");
            prop_assert_eq!(read(&line, b' ').unwrap(), texts);
        }

        #[test]
        fn no_line_makes_the_reader_panic(line in "[a,\"\t ]{0,20}", tabs: bool) {
            let _ = fields(line.as_bytes(), if tabs { b'\t' } else { b',' });
        }
    }
}
