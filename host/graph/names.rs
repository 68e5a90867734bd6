//! Names of vertices: a vertex as the input names it, and the dictionary of a graph whose vertices have names.

use super::quoting::{Field, Separator};
use crate::graph::parallel;
use serde::Serialize;
use std::borrow::Cow;
use std::fmt;

/// Length of the longest name of a vertex, in bytes of UTF-8.
pub const LONGEST_VERTEX_NAME: usize = 4096;

/// A vertex as the input names it: by a number, or by a name.
///
/// As text, a name with blanks or double quotes is in double quotes, and double quotes inside are doubled. So is a name
/// that begins with `#` or `%`. In JSON a name is a string, and a number is a number.
///
/// # Examples
///
/// ```
/// use warpbell::graph::VertexName;
///
/// assert_eq!(VertexName::from(7).to_string(), "7");
/// assert_eq!(VertexName::from("alice").to_string(), "alice");
/// assert_eq!(VertexName::from("Doe, John").to_string(), "\"Doe, John\"");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(untagged)]
pub enum VertexName<'a> {
    /// A number.
    Number(u64),
    /// A name.
    Text(Cow<'a, str>),
}

impl VertexName<'_> {
    /// Returns the number, or `None` for a name.
    pub fn number(&self) -> Option<u64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Text(_) => None,
        }
    }

    /// Copies the name, so that it lives as long as it is needed.
    pub fn into_owned(self) -> VertexName<'static> {
        match self {
            Self::Number(number) => VertexName::Number(number),
            Self::Text(text) => VertexName::Text(Cow::Owned(text.into_owned())),
        }
    }

    /// Returns the form for a table with commas: a name with a comma or a double quote is in double quotes (RFC 4180).
    pub fn csv(&self) -> impl fmt::Display + '_ {
        Separated { name: self, separator: Separator::Comma }
    }

    /// Returns true if an edge list can have the name: it has no blanks, and does not begin a comment.
    pub fn is_word(&self) -> bool {
        match self {
            Self::Number(_) => true,
            // Double quotes are characters like any other there.
            Self::Text(text) => {
                let text = text.replace('"', "'");
                !Field { text: &text, separator: Separator::Blank }.is_quoted()
            }
        }
    }
}

struct Separated<'a> {
    name: &'a VertexName<'a>,
    separator: Separator,
}

impl fmt::Display for Separated<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name {
            VertexName::Number(number) => number.fmt(f),
            VertexName::Text(text) => Field { text, separator: self.separator }.fmt(f),
        }
    }
}

impl fmt::Display for VertexName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Separated { name: self, separator: Separator::Blank }.fmt(f)
    }
}

impl From<u64> for VertexName<'_> {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl<'a> From<&'a str> for VertexName<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl From<String> for VertexName<'_> {
    fn from(text: String) -> Self {
        Self::Text(Cow::Owned(text))
    }
}

/// Fault of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NameFault {
    /// The name is empty.
    #[error("the name of a vertex is empty; a name has 1 to {LONGEST_VERTEX_NAME} bytes")]
    Empty,
    /// The name is longer than [`LONGEST_VERTEX_NAME`].
    #[error("the name of a vertex has {bytes} bytes; a name has 1 to {LONGEST_VERTEX_NAME} bytes")]
    Long {
        /// Length of the name.
        bytes: usize,
    },
    /// The name has a control character other than a tab.
    #[error("the name of a vertex has the control character {byte:#04x}; remove it")]
    Control {
        /// The character.
        byte: u8,
    },
    /// The name is not UTF-8.
    #[error("the name of a vertex is not UTF-8; convert the file to UTF-8")]
    NotUtf8,
}

/// Returns the name that the bytes are.
pub(crate) fn check_name(bytes: &[u8]) -> Result<&str, NameFault> {
    if bytes.is_empty() {
        return Err(NameFault::Empty);
    }
    if bytes.len() > LONGEST_VERTEX_NAME {
        return Err(NameFault::Long { bytes: bytes.len() });
    }
    if let Some(&byte) = bytes.iter().find(|&&b| (b < 0x20 && b != b'\t') || b == 0x7f) {
        return Err(NameFault::Control { byte });
    }
    std::str::from_utf8(bytes).map_err(|_| NameFault::NotUtf8)
}

/// Names of all vertices of a graph, in ascending order of their bytes: one text and the offset of each name.
///
/// Takes the bytes of all names and 8 bytes for each. A lookup is a binary search.
#[derive(Clone, PartialEq, Eq)]
pub struct Names {
    text: String,
    /// Offset of each name, and the length of the text as the last element.
    offsets: Vec<u64>,
}

/// Error in a list of names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NamesError {
    /// The offsets do not begin at 0, descend, divide a character, or do not end with the text.
    #[error("the offset {found} of name {index} does not begin a name in {bytes} bytes")]
    Offset {
        /// Position of the offset, from 0.
        index: usize,
        /// The offset.
        found: u64,
        /// Length of the text in bytes.
        bytes: u64,
    },
    /// No offsets, which are one more than names.
    #[error("there are no offsets; there is one more than names")]
    NoOffsets,
    /// A name is not above the name before it.
    #[error("name {index} is not above the name before it")]
    Order {
        /// Position of the name, from 0.
        index: usize,
    },
    /// A name that no vertex can have.
    #[error("name {index}: {fault}")]
    Name {
        /// Position of the name, from 0.
        index: usize,
        /// The fault.
        fault: NameFault,
    },
}

impl Names {
    /// Makes the dictionary of a text that has all names in ascending order of their bytes, without text in between.
    /// `offsets` has the offset of each name in bytes, and the length of the text as the last element.
    ///
    /// # Errors
    /// [`NamesError`] with the first name or offset that is wrong.
    ///
    /// # Examples
    ///
    /// ```
    /// use warpbell::graph::Names;
    ///
    /// let names = Names::new("annbob".into(), vec![0, 3, 6])?;
    /// assert_eq!((names.get(1), names.find("bob")), ("bob", Some(1)));
    /// # Ok::<(), warpbell::graph::NamesError>(())
    /// ```
    pub fn new(text: String, offsets: Vec<u64>) -> Result<Self, NamesError> {
        let bytes = text.len() as u64;
        let wrong = |index: usize| Err(NamesError::Offset { index, found: offsets[index], bytes });
        let Some((&last, starts)) = offsets.split_last() else { return Err(NamesError::NoOffsets) };
        if offsets[0] != 0 {
            return wrong(0);
        }
        if last != bytes {
            return wrong(starts.len());
        }
        let is_bad = |i: usize| {
            let end = offsets[i + 1];
            end < offsets[i] || !usize::try_from(end).is_ok_and(|at| text.is_char_boundary(at))
        };
        if let Some(i) = parallel::position(starts.len(), is_bad) {
            return wrong(i + 1);
        }
        let names = Self { text, offsets };
        let fault = |v: usize| -> Option<NamesError> {
            let name = names.get(v as u64);
            if let Err(fault) = check_name(name.as_bytes()) {
                return Some(NamesError::Name { index: v, fault });
            }
            (v > 0 && names.get(v as u64 - 1) >= name).then_some(NamesError::Order { index: v })
        };
        match parallel::find_first(names.offsets.len() - 1, fault) {
            None => Ok(names),
            Some(error) => Err(error),
        }
    }

    /// Makes the dictionary of blocks of names, which ascend over all blocks. A block is a text and the length of each
    /// name. The caller has checked the names.
    pub(crate) fn from_blocks(blocks: Vec<(String, Vec<u32>)>) -> Self {
        let bytes = blocks.iter().map(|(text, _)| text.len()).sum();
        let count: usize = blocks.iter().map(|(_, lengths)| lengths.len()).sum();
        let (mut text, mut offsets) = (String::with_capacity(bytes), Vec::with_capacity(count + 1));
        let mut end = 0;
        offsets.push(0);
        for (part, lengths) in blocks {
            text.push_str(&part);
            for length in lengths {
                end += u64::from(length);
                offsets.push(end);
            }
        }
        Self { text, offsets }
    }

    /// Returns the number of names.
    pub fn len(&self) -> u64 {
        self.offsets.len() as u64 - 1
    }

    /// Returns true if there are no names.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the name of vertex `v`, which must be below [`Names::len`].
    ///
    /// # Panics
    /// If `v` is not a vertex.
    pub fn get(&self, v: u64) -> &str {
        let v = v as usize;
        &self.text[self.offsets[v] as usize..self.offsets[v + 1] as usize]
    }

    /// Returns the vertex with a name, if there is one.
    pub fn find(&self, name: &str) -> Option<u64> {
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.get(middle).cmp(name) {
                std::cmp::Ordering::Equal => return Some(middle),
                std::cmp::Ordering::Less => low = middle + 1,
                std::cmp::Ordering::Greater => high = middle,
            }
        }
        None
    }

    /// Returns the names in the order of the vertices.
    pub fn iter(&self) -> impl Iterator<Item = &str> + '_ {
        (0..self.len()).map(|v| self.get(v))
    }

    /// Returns all names one behind the other.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the offset of each name in [`Names::text`] in bytes, and its length as the last element.
    pub fn offsets(&self) -> &[u64] {
        &self.offsets
    }

    /// Returns the first name that an edge list cannot have, because the name has blanks or begins a comment.
    #[cfg(feature = "internals")]
    pub fn first_with_blanks(&self) -> Option<&str> {
        let first = parallel::position(self.len() as usize, |v| !VertexName::from(self.get(v as u64)).is_word());
        first.map(|v| self.get(v as u64))
    }
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn names(list: &[&str]) -> Result<Names, NamesError> {
        let mut offsets = vec![0];
        list.iter().for_each(|name| offsets.push(offsets[offsets.len() - 1] + name.len() as u64));
        Names::new(list.concat(), offsets)
    }

    #[test]
    fn wrong_dictionaries_are_refused() {
        let of = |text: &str, offsets: &[u64]| Names::new(text.to_owned(), offsets.to_vec()).unwrap_err();
        let offset = |index, found, bytes| NamesError::Offset { index, found, bytes };
        assert_eq!(of("", &[]), NamesError::NoOffsets);
        assert_eq!(of("ab", &[1, 2]), offset(0, 1, 2));
        assert_eq!(of("ab", &[0, 1]), offset(1, 1, 2));
        assert_eq!(of("ab", &[0, u64::MAX, 2]), offset(1, u64::MAX, 2));
        assert_eq!(of("abc", &[0, 2, 1, 3]), offset(2, 1, 3));
        assert_eq!(of("é", &[0, 1, 2]), offset(1, 1, 2));
        assert_eq!(of("ab", &[0, 1, 1, 2]), NamesError::Name { index: 1, fault: NameFault::Empty });
        assert_eq!(names(&["b", "a"]), Err(NamesError::Order { index: 1 }));
        assert_eq!(names(&["a", "b", "b"]), Err(NamesError::Order { index: 2 }));
        let control = NameFault::Control { byte: b'\n' };
        assert_eq!(names(&["a", "b\n"]), Err(NamesError::Name { index: 1, fault: control }));
        let long = "x".repeat(LONGEST_VERTEX_NAME + 1);
        assert!(names(&[&long[1..]]).is_ok());
        assert_eq!(
            names(&[&long]).unwrap_err().to_string(),
            "name 0: the name of a vertex has 4097 bytes; a name has 1 to 4096 bytes"
        );
        assert_eq!(check_name(b"\xff"), Err(NameFault::NotUtf8));
        assert!(names(&[]).unwrap().is_empty());
    }

    #[test]
    fn words_are_names_that_edge_lists_can_have() {
        for (name, is_word) in [("a", true), ("O\"Neil", true), ("a b", false), ("#a", false), ("a\u{a0}", false)] {
            assert_eq!(VertexName::from(name).is_word(), is_word, "{name}");
        }
        assert_eq!(names(&["a", "b c", "d e"]).unwrap().first_with_blanks(), Some("b c"));
        assert_eq!(names(&["a", "b"]).unwrap().first_with_blanks(), None);
    }

    #[test]
    fn json_tells_numbers_from_names() {
        let json = |name: VertexName<'_>| serde_json::to_string(&name).unwrap();
        assert_eq!(
            (json(7.into()), json("7".into()), json("a\"b".into())),
            ("7".into(), "\"7\"".into(), "\"a\\\"b\"".into())
        );
    }

    proptest! {
        #[test]
        fn lookups_are_those_of_a_set(list in prop::collection::btree_set("[a-cé ]{1,4}", 0..40), other in "[a-cé ]{1,4}") {
            let sorted: Vec<&str> = list.iter().map(String::as_str).collect();
            let dictionary = names(&sorted).unwrap();
            prop_assert_eq!(dictionary.iter().collect::<Vec<_>>(), sorted.clone());
            for (v, name) in sorted.iter().enumerate() {
                prop_assert_eq!(dictionary.find(name), Some(v as u64));
            }
            prop_assert_eq!(dictionary.find(&other).is_some(), list.contains(&other));
            let blocks = sorted.chunks(3).map(|b| (b.concat(), b.iter().map(|n| n.len() as u32).collect())).collect();
            prop_assert_eq!(Names::from_blocks(blocks), dictionary);
        }

        #[test]
        fn no_parts_make_a_dictionary_panic(text in "[a-cé\n]{0,12}", offsets in prop::collection::vec(0u64..14, 0..8)) {
            if let Ok(names) = Names::new(text, offsets) {
                let set: BTreeSet<&str> = names.iter().collect();
                prop_assert_eq!(set.len() as u64, names.len());
            }
        }
    }
}
