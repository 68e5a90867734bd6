//! Attributes of edges as networkx writes them behind the two vertices: `{}`, `{'weight': 3.0, 'colour': 'red'}`.

use super::line_fault::LineFault;
use super::text;

/// Returns the weight among the attributes of an edge, or `None` if there is none. `text` is what follows the vertices.
///
/// # Errors
/// [`LineFault::Attributes`] if the text is no dictionary.
pub(super) fn weight(text: &[u8]) -> Result<Option<&[u8]>, LineFault> {
    let bad = || LineFault::Attributes { found: text::quote(text.trim_ascii()) };
    let inner = text.trim_ascii().strip_prefix(b"{").and_then(|t| t.strip_suffix(b"}")).ok_or_else(bad)?;
    let mut weight = None;
    let mut rest = inner.trim_ascii();
    while !rest.is_empty() {
        let (key, behind) = quoted(rest).ok_or_else(bad)?;
        let value = behind.trim_ascii_start().strip_prefix(b":").ok_or_else(bad)?;
        let end = end_of_value(value).ok_or_else(bad)?;
        if key == b"weight" {
            weight = Some(number(value[..end].trim_ascii()));
        }
        rest = value[end..].strip_prefix(b",").unwrap_or_default().trim_ascii();
    }
    Ok(weight)
}

/// Returns the text of a quoted key, and what follows it.
fn quoted(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let quote = *text.first().filter(|&&b| b == b'\'' || b == b'"')?;
    let end = end_of_quote(&text[1..], quote)?;
    Some((&text[1..=end], &text[end + 2..]))
}

/// Returns the position of the closing quote.
fn end_of_quote(text: &[u8], quote: u8) -> Option<usize> {
    let mut escaped = false;
    text.iter().position(|&b| {
        let closes = b == quote && !escaped;
        escaped = b == b'\\' && !escaped;
        closes
    })
}

/// Returns the position of the comma behind a value, or the length of the text. Brackets and quotes may contain commas.
fn end_of_value(text: &[u8]) -> Option<usize> {
    let (mut at, mut depth) = (0, 0usize);
    while at < text.len() {
        match text[at] {
            quote @ (b'\'' | b'"') => at += 1 + end_of_quote(&text[at + 1..], quote)?,
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.checked_sub(1)?,
            b',' if depth == 0 => break,
            _ => {}
        }
        at += 1;
    }
    (depth == 0).then_some(at)
}

/// Returns the number of a value such as `3`, or of one with its type, such as `np.float64(3.0)`.
fn number(value: &[u8]) -> &[u8] {
    match value.iter().position(|&b| b == b'(') {
        Some(open) if open > 0 => value[open + 1..].strip_suffix(b")").unwrap_or(value),
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_weight_is_found_among_other_attributes() {
        for (text, expected) in [
            ("{}", None),
            ("  { } \r", None),
            ("{'weight': 3.0}", Some("3.0")),
            ("{\"weight\":3}", Some("3")),
            ("{'a': 'weight: 9', 'weight': 1e-05, 'b': [1, {'weight': 7}]}", Some("1e-05")),
            ("{'weight': np.float64(2.5)}", Some("2.5")),
            ("{'x': 'it\\'s, {', 'weight': 4,}", Some("4")),
            ("{'weights': 9}", None),
        ] {
            let found = weight(text.as_bytes()).unwrap();
            assert_eq!(found.map(String::from_utf8_lossy).as_deref(), expected, "{text}");
        }
        for text in ["{", "}", "{'weight'}", "{'weight': 3", "{'weight': (3}", "{weight: 3}", "{'a: 3}", "{} 7", ""] {
            assert!(weight(text.as_bytes()).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_stops_the_parser(text in "[{}'\",:a\\\\( )\\[\\]]{0,24}") {
            let _ = weight(text.as_bytes());
        }

        #[test]
        fn a_weight_comes_back(weight_of in 0.0f64..1e9, before in "[a-z ,{}]{0,9}", named: bool) {
            let other = if named { format!("'{before}x': '{before}', ") } else { String::new() };
            let text = format!("{{{other}'weight': {weight_of}, 'z': None}}");
            let found = weight(text.as_bytes()).unwrap().unwrap();
            prop_assert_eq!(std::str::from_utf8(found).unwrap().parse::<f64>().unwrap(), weight_of);
        }
    }
}
