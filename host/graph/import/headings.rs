//! Columns of edges: by the words of a heading, by names that the caller chooses, or by positions.

use super::error::ImportError;
use super::text;
use crate::graph::quoting::split_fields;
use crate::setters::setters;
use std::borrow::Cow;
use std::path::Path;
use std::str::FromStr;

/// Columns of an edge list or a table, by their names in its heading or by their positions from 1. Those without a name
/// here are found as in files whose columns nobody chooses; a weight is not taken by its position then.
///
/// # Examples
///
/// ```
/// use warpbell::graph::import::{ColumnNames, LoadOptions, load_bytes};
///
/// let columns: ColumnNames = "src=author,dst=cited,weight=times".parse()?;
/// let options = LoadOptions::default().columns(Some(&columns));
/// let loaded = load_bytes("papers.csv", b"cited,author,times\n7,5,2\n", &options)?;
/// assert_eq!(loaded.csr.ids().vertex(5), Some(0));
/// assert_eq!(loaded.csr.degree(0), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ColumnNames {
    /// Column of the vertices that edges leave.
    pub source: Option<String>,
    /// Column of the vertices that edges lead to.
    pub target: Option<String>,
    /// Column of the weights.
    pub weight: Option<String>,
}

setters!(ColumnNames { source: Option<String>, target: Option<String>, weight: Option<String> });

/// A text that names no columns.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{found}` names no columns; write them as in src=author,dst=cited,weight=times, or by position as in src=1,dst=2"
)]
pub struct InvalidColumns {
    /// The text.
    pub found: String,
}

impl FromStr for ColumnNames {
    type Err = InvalidColumns;

    /// Parses `src=NAME,dst=NAME,weight=NAME`, of which each part may be absent. A part whose name has a comma is in
    /// double quotes.
    ///
    /// # Errors
    /// [`InvalidColumns`] for any other text, and for a column that is named twice.
    fn from_str(text: &str) -> Result<Self, InvalidColumns> {
        let bad = || InvalidColumns { found: text.to_owned() };
        let mut columns = Self::default();
        for part in split_fields(text).ok_or_else(bad)? {
            let (role, name) = part.split_once('=').ok_or_else(bad)?;
            let place = match role.trim() {
                "src" | "source" => &mut columns.source,
                "dst" | "target" => &mut columns.target,
                "weight" => &mut columns.weight,
                _ => return Err(bad()),
            };
            if name.trim().is_empty() || place.replace(name.trim().to_owned()).is_some() {
                return Err(bad());
            }
        }
        Ok(columns)
    }
}

/// Positions of the columns that are read, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Columns {
    pub source: usize,
    pub target: usize,
    pub weight: Option<usize>,
    /// Number of columns of each line.
    pub count: usize,
}

/// Meaning of the first line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FirstLine {
    /// A heading, which names the columns.
    Heading(Columns),
    /// A heading if vertices below it are numbers.
    HeadingAboveNumbers(Columns),
    /// An edge. Columns are chosen by their positions.
    Edge(Option<Columns>),
}

/// Name of a column without case and marks, and without Neo4j's groups of vertices, as in `:START_ID(Person)`.
fn plain(name: &[u8]) -> String {
    let text = String::from_utf8_lossy(name);
    let name = text.split('(').next().unwrap_or_default();
    name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// Returns the name without what says that the column holds vertices, as in `source_id` and `FromNodeId`.
fn base(name: &str) -> &str {
    let name = name.strip_suffix("id").unwrap_or(name);
    let ends = ["node", "vertex"].iter().find_map(|end| name.strip_suffix(end).filter(|rest| !rest.is_empty()));
    ends.unwrap_or(name)
}

fn is_source(name: &str) -> bool {
    matches!(base(name), "source" | "src" | "from" | "start" | "origin")
}

fn is_target(name: &str) -> bool {
    matches!(base(name), "target" | "dst" | "dest" | "destination" | "to" | "end")
}

fn is_weight(name: &str) -> bool {
    matches!(name, "weight" | "weights" | "edgeweight" | "cost" | "distance" | "value" | "w")
}

/// Returns true for names such as `node_1`, `id1` and `Person2Id`. They may also be names of vertices.
fn is_numbered(name: &str, digit: char) -> bool {
    let name = name.strip_suffix("id").unwrap_or(name);
    let Some(rest) = name.strip_suffix(digit) else { return false };
    !rest.is_empty() && rest.chars().all(char::is_alphabetic)
}

/// Words of the first line, and where they come from.
pub(super) struct First<'a> {
    pub path: &'a Path,
    pub words: &'a [Cow<'a, [u8]>],
    /// True if one column with a known name makes a heading, as in tables; in edge lists two do.
    pub one_suffices: bool,
}

impl First<'_> {
    /// Decides whether the line is a heading, and which columns are read.
    ///
    /// # Errors
    /// [`ImportError::Header`] if a heading has a column twice, or lacks one; or if a chosen column is missing, or is both
    /// source and target.
    pub fn meaning(&self, chosen: Option<&ColumnNames>) -> Result<FirstLine, ImportError> {
        let meaning = self.columns(chosen)?;
        match meaning {
            FirstLine::Heading(c) | FirstLine::HeadingAboveNumbers(c) | FirstLine::Edge(Some(c))
                if c.source == c.target =>
            {
                let found = format!("column {} is source and target among {}", c.source + 1, self.list());
                Err(self.wrong(found))
            }
            meaning => Ok(meaning),
        }
    }

    fn columns(&self, chosen: Option<&ColumnNames>) -> Result<FirstLine, ImportError> {
        let names: Vec<String> = self.words.iter().map(|word| plain(word)).collect();
        let count = names.len();
        let known = |is: &dyn Fn(&str) -> bool| {
            let mut all = names.iter().enumerate().filter(|(_, name)| is(name)).map(|(i, _)| i);
            (all.next(), all.next())
        };
        let none = ColumnNames::default();
        let given = chosen.unwrap_or(&none);
        let source = self.chosen(given.source.as_deref())?;
        let target = self.chosen(given.target.as_deref())?;
        let weight = self.chosen(given.weight.as_deref())?;
        let by_name = [source, target, weight].iter().any(|place| matches!(place, Place::Named(_)));
        let (sources, targets, weights) = (known(&is_source), known(&is_target), known(&is_weight));
        let of = |place: Place, known: (Option<usize>, Option<usize>), what: &str| match (place, known) {
            (Place::Named(i) | Place::At(i), _) => Ok(Some(i)),
            (Place::Open, (Some(_), Some(_))) => {
                Err(self.wrong(format!("two columns of {what} among {}", self.list())))
            }
            (Place::Open, (first, _)) => Ok(first),
        };
        let is_known = match self.one_suffices {
            true => sources.0.is_some() || targets.0.is_some(),
            false => sources.0.is_some() && targets.0.is_some(),
        };
        if by_name || is_known {
            let missing = |what: &str| self.wrong(format!("no column of {what} among {}", self.list()));
            let columns = Columns {
                source: of(source, sources, "sources")?.ok_or_else(|| missing("sources"))?,
                target: of(target, targets, "targets")?.ok_or_else(|| missing("targets"))?,
                weight: of(weight, weights, "weights")?,
                count,
            };
            return Ok(FirstLine::Heading(columns));
        }
        let at = |place: Place, default: usize| match place {
            Place::At(i) | Place::Named(i) => i,
            Place::Open => default,
        };
        let numbered = match [known(&|name| is_numbered(name, '1')), known(&|name| is_numbered(name, '2'))] {
            [(Some(source), None), (Some(target), None)] => Some((source, target)),
            _ => None,
        };
        if let (None, Some((from, to))) = (chosen, numbered) {
            let weight = of(weight, weights, "weights")?;
            return Ok(FirstLine::HeadingAboveNumbers(Columns { source: from, target: to, weight, count }));
        }
        let weight = (weight != Place::Open).then(|| at(weight, 0));
        let places = Columns { source: at(source, 0), target: at(target, 1), weight, count };
        Ok(FirstLine::Edge(chosen.map(|_| places)))
    }

    /// Returns the place of a chosen column.
    fn chosen(&self, name: Option<&str>) -> Result<Place, ImportError> {
        let Some(name) = name else { return Ok(Place::Open) };
        let is = |word: &[u8]| word == name.as_bytes();
        let alike = |word: &[u8]| String::from_utf8_lossy(word).to_lowercase() == name.to_lowercase();
        let at = self.words.iter().position(|word| is(word)).or_else(|| self.words.iter().position(|w| alike(w)));
        match (at, name.parse::<usize>()) {
            // A number is a position, unless a heading has it among words.
            (Some(at), Err(_)) => Ok(Place::Named(at)),
            (_, Ok(position)) if (1..=self.words.len()).contains(&position) => Ok(Place::At(position - 1)),
            (Some(at), Ok(_)) => Ok(Place::Named(at)),
            (None, _) => Err(self.wrong(format!("no column `{name}` among {}", self.list()))),
        }
    }

    /// Returns the words as they are listed in messages.
    pub fn list(&self) -> String {
        const MOST: usize = 12;
        let mut list: Vec<String> =
            self.words.iter().take(MOST).map(|word| format!("`{}`", text::quote(word))).collect();
        if self.words.len() > MOST {
            list.push(format!("{} more", self.words.len() - MOST));
        }
        list.join(", ")
    }

    pub fn wrong(&self, found: String) -> ImportError {
        ImportError::Header { path: self.path.to_owned(), found }
    }
}

/// Place of one column.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Place {
    /// Not chosen.
    #[default]
    Open,
    /// Chosen by a name of the heading.
    Named(usize),
    /// Chosen by its position.
    At(usize),
}
