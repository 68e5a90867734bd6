//! Formats of graph files, by the names that files end in.

use super::Format;
use super::{decompress, konect};
use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// Format of a graph file, named as the ending of its files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FileFormat {
    /// `el`: edge list of two vertices on a line.
    El,
    /// `txt`: edge list with as many columns as its first line: two vertices, a weight, and others that are not read.
    /// KONECT's lists (`out.*`) are such lists, too.
    Txt,
    /// `wel`: edge list of two vertices and a weight on a line.
    Wel,
    /// `csv`: columns separated by commas, with or without a header line.
    Csv,
    /// `tsv`: columns separated by tabs, with or without a header line.
    Tsv,
    /// `parquet`: Apache Parquet, with feature `parquet`.
    Parquet,
    /// `arrow`, `feather`: Arrow IPC file, with feature `parquet`.
    Arrow,
    /// `mtx`: Matrix Market.
    Mtx,
    /// `gr`, `col`: DIMACS shortest paths, cliques and colouring.
    Gr,
    /// `graph`: METIS.
    Graph,
    /// `bvgraph`: BVGraph of WebGraph, whose files end in `.graph`, too. Its properties are in a file beside it.
    BvGraph,
    /// `v`, `e`: LDBC Graphalytics.
    Ldbc,
    /// `sg`: GAP serialized graph.
    Sg,
    /// `wsg`: GAP serialized graph with weights.
    Wsg,
}

const NAMES: [(&str, FileFormat); 20] = [
    ("el", FileFormat::El),
    ("txt", FileFormat::Txt),
    ("edges", FileFormat::Txt),
    ("edgelist", FileFormat::Txt),
    ("wel", FileFormat::Wel),
    ("csv", FileFormat::Csv),
    ("tsv", FileFormat::Tsv),
    ("parquet", FileFormat::Parquet),
    ("arrow", FileFormat::Arrow),
    ("feather", FileFormat::Arrow),
    ("mtx", FileFormat::Mtx),
    ("gr", FileFormat::Gr),
    ("col", FileFormat::Gr),
    ("graph", FileFormat::Graph),
    ("metis", FileFormat::Graph),
    ("bvgraph", FileFormat::BvGraph),
    ("e", FileFormat::Ldbc),
    ("v", FileFormat::Ldbc),
    ("sg", FileFormat::Sg),
    ("wsg", FileFormat::Wsg),
];

impl FileFormat {
    /// All formats but LDBC Graphalytics, whose files are known by their names.
    pub const SINGLE: [Self; 13] = [
        Self::El,
        Self::Txt,
        Self::Wel,
        Self::Csv,
        Self::Tsv,
        Self::Parquet,
        Self::Arrow,
        Self::Mtx,
        Self::Gr,
        Self::Graph,
        Self::BvGraph,
        Self::Sg,
        Self::Wsg,
    ];

    /// Returns the format that the ending of a path names, in front of `.gz` or `.zst`. Names of KONECT's lists begin
    /// with `out.` instead.
    pub fn of(path: &Path) -> Option<Self> {
        let path = decompress::uncompressed_name(path);
        let ending = path.extension()?.to_str()?.to_ascii_lowercase();
        ending.parse().ok().or_else(|| konect::is_name(&path).then_some(Self::Txt))
    }

    /// Returns the kind of input that this format is.
    pub(super) fn kind(self) -> Format {
        match self {
            Self::El | Self::Txt => Format::EdgeList,
            Self::Wel => Format::WeightedEdgeList,
            Self::Csv | Self::Tsv => Format::Separated,
            Self::Parquet => Format::Parquet,
            Self::Arrow => Format::Arrow,
            Self::Mtx => Format::MatrixMarket,
            Self::Gr => Format::Dimacs,
            Self::Graph => Format::Metis,
            Self::BvGraph => Format::BvGraph,
            Self::Ldbc => Format::Ldbc,
            Self::Sg => Format::Serialized,
            Self::Wsg => Format::WeightedSerialized,
        }
    }

    /// Returns the names of the formats that one file alone can have.
    pub fn names() -> String {
        Self::SINGLE.map(|f| f.to_string()).join(" ")
    }
}

impl fmt::Display for FileFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NAMES.iter().find(|(_, format)| format == self).map_or("", |(name, _)| name))
    }
}

/// A word that names no format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{found}` is not a format of graph files; these are: {}", FileFormat::names())]
pub struct UnknownFormat {
    /// The word.
    pub found: String,
}

impl FromStr for FileFormat {
    type Err = UnknownFormat;

    /// Parses a name such as `el`.
    ///
    /// # Errors
    /// [`UnknownFormat`] for any other word.
    fn from_str(text: &str) -> Result<Self, UnknownFormat> {
        let known = NAMES.iter().find(|(name, _)| *name == text).map(|(_, format)| *format);
        known.ok_or_else(|| UnknownFormat { found: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_endings_are_found_below_compression() {
        for format in FileFormat::SINGLE {
            assert_eq!(format.to_string().parse(), Ok(format));
            for path in [format!("dir.d/a.b.{format}"), format!("G.{format}.GZ"), format!("g.{format}.zst")] {
                assert_eq!(FileFormat::of(Path::new(&path)), Some(format), "{path}");
            }
        }
        for (path, format) in [
            ("out.ucidata-zachary", FileFormat::Txt),
            ("d/out.a.gz", FileFormat::Txt),
            ("out.csv", FileFormat::Csv),
            ("n03.edges", FileFormat::Txt),
            ("d.col", FileFormat::Gr),
        ] {
            assert_eq!(FileFormat::of(Path::new(path)), Some(format), "{path}");
        }
        for path in ["g", "g.gz", ".el", "g.elf", "el"] {
            assert_eq!(FileFormat::of(Path::new(path)), None, "{path}");
        }
        let text = "graphml".parse::<FileFormat>().unwrap_err().to_string();
        assert!(text.starts_with("`graphml` is not a format") && text.contains("csv"), "{text}");
    }
}
