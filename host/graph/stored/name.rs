//! Names of stored graphs, and of the arrays in which a volume holds them.

use super::StoredError;
use crate::storage::is_stored_name;
use std::fmt;
use std::str::FromStr;

/// Name of a stored graph: 1 to 40 ASCII letters, digits, `.`, `_` and `-`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GraphName(String);

impl GraphName {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the name of one of the graph's arrays.
    pub(super) fn array(&self, part: &str) -> String {
        format!("{}/{part}", self.0)
    }

    /// Returns the graph and the part that an array belongs to, if it is an array of a stored graph.
    pub(super) fn split(array: &str) -> Option<(Self, &str)> {
        let (name, part) = array.split_once('/')?;
        Some((name.parse().ok()?, part))
    }
}

impl FromStr for GraphName {
    type Err = StoredError;

    fn from_str(text: &str) -> Result<Self, StoredError> {
        if is_stored_name(text) { Ok(Self(text.to_owned())) } else { Err(StoredError::Name(text.to_owned())) }
    }
}

impl fmt::Display for GraphName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_words_without_separators() {
        for good in ["a", "web-2024.el_1", &"x".repeat(40)] {
            let name: GraphName = good.parse().unwrap();
            assert_eq!(GraphName::split(&name.array("offsets")), Some((name, "offsets")));
        }
        for bad in ["", "a/b", "a b", "ä", "a:b", &"x".repeat(41)] {
            let text = bad.parse::<GraphName>().unwrap_err().to_string();
            assert!(text.contains(&format!("`{bad}`")) && text.contains("1 to 40"), "{text}");
        }
        assert_eq!(GraphName::split("offsets"), None);
    }
}
