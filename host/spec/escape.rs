//! Escapes of commas, backslashes and bytes that are not UTF-8 in names and values.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Splits a list at its commas and replaces the escapes: `\,` by a comma, `\\` by a backslash, `\xHH` by a byte that is
/// not ASCII. Every other backslash stands for itself.
pub(crate) fn fields(list: &[u8]) -> Vec<Vec<u8>> {
    let (mut fields, mut field, mut rest) = (Vec::new(), Vec::new(), list);
    while let Some((&first, tail)) = rest.split_first() {
        if let Some((byte, tail)) = escaped(rest) {
            field.push(byte);
            rest = tail;
            continue;
        }
        match first {
            b',' => fields.push(std::mem::take(&mut field)),
            byte => field.push(byte),
        }
        rest = tail;
    }
    fields.push(field);
    fields
}

/// Returns the byte for the escape at the start of `text`, and the text behind the escape; `None` without an escape.
fn escaped(text: &[u8]) -> Option<(u8, &[u8])> {
    match text.strip_prefix(b"\\")? {
        [byte @ (b',' | b'\\'), rest @ ..] => Some((*byte, rest)),
        [b'x', rest @ ..] => {
            let (digits, rest) = rest.split_at_checked(2)?;
            let byte = u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?;
            (!byte.is_ascii()).then_some((byte, rest))
        }
        _ => None,
    }
}

/// Writes a name or a value in a form that [`fields`] reads back.
pub(super) fn escape(text: &OsStr) -> String {
    let mut out = String::new();
    for chunk in text.as_bytes().utf8_chunks() {
        out += &chunk.valid().replace('\\', r"\\").replace(',', r"\,");
        chunk.invalid().iter().for_each(|byte| out += &format!("\\x{byte:02x}"));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_stand_for_commas_backslashes_and_bytes() {
        for (list, expected) in [
            (r"a\,b,c", &[&b"a,b"[..], b"c"][..]),
            (r"a\\,b", &[b"a\\", b"b"]),
            (r"a\\\,b", &[b"a\\,b"]),
            (r"a\b\", &[b"a\\b\\"]),
            (r"a\xff\xC3,", &[b"a\xff\xc3", b""]),
            (r"a\\xff", &[b"a\\xff"]),
            (r"\x41\xg0\xf", &[br"\x41\xg0\xf"]),
            ("", &[b""]),
        ] {
            assert_eq!(fields(list.as_bytes()), expected, "{list}");
        }
    }

    #[test]
    fn what_is_escaped_reads_back() {
        for name in [&b"a,b"[..], b"a\\", b"a\\,", b"a\\xff", b"a\xff\xc3", "ä\\ö".as_bytes()] {
            let text = escape(OsStr::from_bytes(name));
            assert_eq!(fields(text.as_bytes()), [name], "{text}");
        }
        assert_eq!(escape(OsStr::from_bytes(b"a\xff\\b.img,")), r"a\xff\\b.img\,");
    }
}
