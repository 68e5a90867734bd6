//! Options about vertices: numbers or names, and the sources of searches.

use clap::Args;
use warpbell::graph::import::ColumnNames;
use warpbell::graph::{IdKind, split_fields};

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Sources")]
pub struct SourceArgs {
    /// Source vertices, by their numbers or names in the input; separate several with commas, and put a name with a
    /// comma in double quotes, as in '"Doe, John",alice'
    #[arg(long, value_name = "V", allow_negative_numbers = true, value_parser = vertices)]
    pub source: Vec<SourceList>,
    /// Start from N random vertices that have edges, drawn with --seed [default: without --source 1, of bc
    /// 4]
    #[arg(long, value_name = "N", conflicts_with = "source", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub sources: Option<u32>,
}

/// Options of several searches at once.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Sources")]
pub struct TogetherArgs {
    /// Search from up to 64 sources at once, which share each scan of the edges (MS-BFS), and report them as one run;
    /// more sources are searched 64 at a time
    #[arg(long, conflicts_with_all = ["parents", "target", "path", "pes"])]
    pub together: bool,
}

/// Options about the paths of a search.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Paths")]
pub struct PathArgs {
    /// Write the parent of each vertex as a further column of --out: the vertex before it on a shortest path
    #[arg(long)]
    pub parents: bool,
    /// End each search at this vertex: vertices that are further away from the source count as unreached
    #[arg(long, value_name = "V", allow_negative_numbers = true, value_parser = vertex)]
    pub target: Option<String>,
    /// Print a shortest path to this vertex, and its length; each search ends there, as with --target
    #[arg(long, value_name = "V", conflicts_with = "target", allow_negative_numbers = true, value_parser = vertex)]
    pub path: Option<String>,
}

impl PathArgs {
    /// Returns the vertex that ends a search, with the option that names it.
    pub fn end(&self) -> Option<(&'static str, &String)> {
        let path = self.path.as_ref().map(|v| ("--path", v));
        path.or(self.target.as_ref().map(|v| ("--target", v)))
    }
}

/// Vertices of one `--source` or `--personalize`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceList(Vec<String>);

impl SourceArgs {
    /// Returns the vertices of all `--source`.
    pub fn named(&self) -> impl Iterator<Item = &String> {
        self.source.iter().flat_map(SourceList::iter)
    }
}

impl SourceList {
    /// Returns the vertices.
    pub fn iter(&self) -> impl Iterator<Item = &String> {
        self.0.iter()
    }
}

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Graph, cache and results")]
pub struct IdArgs {
    /// Read the vertices of an edge list or a table as names, also those that look like numbers [default: as the first
    /// line with an edge shows]
    #[arg(long, conflicts_with = "numbers")]
    pub names: bool,
    /// Read the vertices of the input as numbers: a word is an error
    #[arg(long)]
    pub numbers: bool,
    /// Columns of an edge list or a table, by their names in its heading or by their positions from 1; each may be left
    /// out [default: by known names of a heading, or the first two and the weight behind them]
    #[arg(long, value_name = "src=NAME,dst=NAME,weight=NAME")]
    pub columns: Option<ColumnNames>,
    /// Number of vertices of an edge list or a table of numbers, which are then 0 to N - 1, also without edges [default:
    /// the vertices that occur]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub vertices: Option<u64>,
}

impl IdArgs {
    /// Returns the choice as the library has it.
    pub fn kind(&self) -> IdKind {
        match (self.names, self.numbers) {
            (true, _) => IdKind::Names,
            (_, true) => IdKind::Numbers,
            _ => IdKind::Auto,
        }
    }
}

pub(super) fn vertices(s: &str) -> Result<SourceList, String> {
    let list =
        split_fields(s).ok_or("a double quote is not closed, or text follows it; double quotes inside are doubled")?;
    match list.iter().any(String::is_empty) {
        false => Ok(SourceList(list)),
        true => Err("a vertex is named as in the input, by a number or a name, and one of them is empty".to_owned()),
    }
}

fn vertex(s: &str) -> Result<String, String> {
    match <[String; 1]>::try_from(vertices(s)?.0) {
        Ok([one]) => Ok(one),
        Err(_) => Err("name one vertex; a name with a comma is in double quotes, as in '\"Doe, John\"'".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_commas_are_quoted() {
        let list = |text: &str| vertices(text).map(|list| list.0);
        assert_eq!(list("\"Doe, J\", x y,-1").unwrap(), ["Doe, J", "x y", "-1"]);
        assert_eq!(list("7").unwrap(), ["7"]);
        for bad in ["", "1,,2", "\"a", "\"a\"b"] {
            assert!(list(bad).is_err() && vertex(bad).is_err(), "{bad}");
        }
        assert_eq!(vertex("\"Doe, J\"").unwrap(), "Doe, J");
        assert!(vertex("1,2").is_err());
    }
}
