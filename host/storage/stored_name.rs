//! Names of things that a volume stores as several arrays: graphs and tables.

/// Longest name of a stored graph or table, in bytes.
pub const LONGEST_NAME: usize = 40;

/// Rule of these names, for messages.
pub(crate) const NAME_RULE: &str = "1 to 40 letters, digits, `.`, `_` and `-`";

/// Returns true if a stored graph or table can have this name.
pub(crate) fn is_name(text: &str) -> bool {
    let is_known = |c: u8| c.is_ascii_alphanumeric() || b"._-".contains(&c);
    (1..=LONGEST_NAME).contains(&text.len()) && text.bytes().all(is_known)
}

/// Lists names for a message: `none is stored there`, or the names.
pub(crate) fn listing(there: &[String]) -> String {
    match there {
        [] => "none is stored there".to_owned(),
        _ => {
            let names: Vec<String> = there.iter().map(|n| format!("`{n}`")).collect();
            format!("there {} {}", if names.len() == 1 { "is" } else { "are" }, names.join(", "))
        }
    }
}
