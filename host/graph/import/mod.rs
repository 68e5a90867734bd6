//! Reads graph files in several formats.
//!
//! | ending | format |
//! |---|---|
//! | `.el`, `.txt`, `.edges`, `out.*` | edge list: two vertices on a line (all but `.el` may have a weight in a third column) |
//! | `.wel` | weighted edge list: two vertices and a weight |
//! | `.csv`, `.tsv` | columns separated by commas, tabs, semicolons or vertical bars; a header line may name them (`source`, `target`, `weight`) |
//! | `.parquet`, `.arrow`, `.feather` | edge tables with columns `source`, `target` and `weight` (feature `parquet`) |
//! | `.mtx` | Matrix Market: coordinate; general or symmetric; pattern, integer or real |
//! | `.gr`, `.col` | DIMACS shortest paths (`p sp`, `a` lines), cliques and colouring (`p edge`, `e` lines) |
//! | `.graph` | METIS: the neighbours of one vertex on each line |
//! | `.graph` + `.properties` | BVGraph of WebGraph, with `.offsets` when there are some |
//! | `.v` + `.e` | LDBC Graphalytics: vertices, edges with an optional weight, and `.properties` when there is one |
//! | `.sg`, `.wsg` | GAP Benchmark Suite's serialized graph, without and with int32 weights |
//!
//! A BVGraph may also be named without `.graph`, as WebGraph's programs name it. Its labels are not read.
//!
//! A file may be compressed with gzip or zstd, and then ends in `.gz` or `.zst` behind its own ending. `-` is standard
//! input. [`LoadOptions::format`] chooses another format than the ending's.
//!
//! In edge lists `#` and `%` begin comment lines, and remarks behind an edge. Words are separated by blanks and tabs. Lines
//! end in LF or CR LF. Attributes of networkx may follow an edge. [`Loaded::notices`] has what a user should see: columns
//! that were not read, headings, weights that were rounded.
//!
//! # Vertices
//!
//! * Edge lists and tables have the vertices that occur in edges, or as many as [`LoadOptions::vertices`] says.
//! * Matrix Market, DIMACS and METIS files have the vertices from 1 to the number in their header.
//! * LDBC graphs have the vertices of the vertex file, or without one those that occur in the edge file.
//! * GAP graphs and BVGraphs have the vertices `0 .. vertices`.
//!
//! # Numbers or names
//!
//! Vertices of edge lists and tables are numbers or names; the first line with an edge decides ([`IdKind::Auto`]). Names
//! are UTF-8, of 1 to 4096 bytes without control characters other than tabs. Words of edge lists have no blanks. A field
//! of a table may have any, and is quoted where the name has a comma (RFC 4180). Names in ascending order of their bytes
//! number the vertices, so that results depend neither on the order of the lines nor on the number of threads.
//!
//! # Columns
//!
//! A header of a table, or of an edge list, has known names such as `source` and `dst_id`, or those that
//! [`LoadOptions::columns`] chooses. That option also takes positions. The raw folder of a graph of the Open Graph
//! Benchmark is read, too: `edge.csv.gz`, with the number of vertices in `num-node-list.csv.gz`.
//!
//! # Directed or undirected
//!
//! [`Orientation::Auto`] follows the file. Arcs of a BVGraph have a direction. Some files do not state the orientation: edge lists without SNAP's header,
//! Matrix Market `general`, LDBC without properties. Such a graph is directed, unless each edge occurs in both
//! directions with equal weights. Then the graph is undirected, and each such pair is one edge.
//!
//! SNAP's header is a comment in front of the first edge of `.el`, `.txt` and `.wel`. A file with `# Undirected graph`
//! lists each edge once, and the graph is undirected. A file with `# Directed graph` may list each edge in both
//! directions; such a graph is undirected, too. KONECT's header is the first line: `% sym`, `% asym` or `% bip`.

mod attributes;
mod bvgraph;
mod bytes;
#[cfg(feature = "parquet")]
mod columnar;
mod decompress;
mod dimacs;
mod edge_list;
mod error;
mod file_format;
mod headings;
mod konect;
mod ldbc;
mod line_fault;
mod matrix_market;
mod memory;
mod metis;
mod names;
mod notice;
mod ogb;
mod options;
mod pieces;
mod raw;
mod separated;
mod serialized;
mod sorted;
mod summary;
mod text;

#[cfg(any(test, feature = "internals"))]
pub use bvgraph::load_bvgraph;
pub use error::{ImportError, SerializedFault};
internal!(error::KNOWN_ENDINGS);
internal!(file_format::{FileFormat, UnknownFormat});
pub use headings::{ColumnNames, InvalidColumns};
pub use line_fault::LineFault;
pub(crate) use memory::check as check_memory;
pub use notice::Notice;
pub use options::{
    IdKind, ListForm, LoadOptions, Orientation, Precision, Progress, ProgressFn, Stage, VertexOrder, WeightMode,
};
internal!(options::DEFAULT_SEED);
pub(crate) use pieces::Pieces;
pub(crate) use raw::{RawEdges, Read, give_weights};
pub(crate) use sorted::{Imported, SortedGraph, budget, finish_or_sort};
pub use summary::{Format, Loaded, OrientationReason, Summary, WeightSource};

use super::build;
use super::external::Budget;
use bytes::Bytes;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use text::{Header, PieceSizes, Plan};

/// Sizes that the header of a file names.
struct Sizes {
    vertices: u64,
    /// Number of entries behind the header.
    entries: u64,
    /// Length of the shortest entry.
    least_entry_bytes: u64,
    /// True if an entry stands for two arcs.
    mirrored: bool,
    /// True if weights are read.
    weighted: bool,
}

/// State that all formats share while they read.
pub(crate) struct Reader<'a> {
    pub options: &'a LoadOptions<'a>,
    pub piece_sizes: PieceSizes,
    /// Limits within which edges are read that need not fit into memory. `None` if they must.
    pub budget: Option<Budget>,
    /// Decisions so far that a user should see.
    notices: Mutex<Vec<Notice>>,
    /// Number of vertices that a file beside the edges names, as the decision to use it.
    beside: OnceLock<Notice>,
}

/// Contents of an input.
pub(crate) enum Contents {
    /// Edges, in any order.
    Edges(Read),
    /// A file of neighbour lists.
    Graph(Loaded),
}

/// Reads the graph file at `path`, or standard input for `-`. The path of an LDBC graph is that of either file, or their
/// common prefix.
///
/// # Errors
/// * [`ImportError::Io`], [`ImportError::MissingPart`], [`ImportError::NotAFile`], [`ImportError::Empty`],
///   [`ImportError::Shrunk`] or [`ImportError::Compressed`] if a file cannot be read.
/// * [`ImportError::NumberedFormat`] if [`LoadOptions::ids`] asks for names in a format that has numbers.
/// * [`ImportError::UnknownEnding`] if the ending is that of no format; [`ImportError::NoFormat`] for standard input
///   without [`LoadOptions::format`].
/// * [`ImportError::Line`], [`ImportError::NoSizeLine`], [`ImportError::Entries`], [`ImportError::TooManyEntries`],
///   [`ImportError::Rows`], [`ImportError::Header`], [`ImportError::Serialized`] or [`ImportError::NoVertices`] if the
///   contents are wrong.
/// * [`ImportError::BvGraph`] if the files of a BVGraph are damaged, do not belong together, or are not supported.
/// * [`ImportError::Table`] or [`ImportError::Row`] if a Parquet or Arrow file is no edge table; [`ImportError::Feature`]
///   if this build does not read such files.
/// * [`ImportError::Memory`], [`ImportError::Refused`] or [`ImportError::LargeText`] if the graph does not fit into
///   memory.
pub fn load(path: &Path, options: &LoadOptions<'_>) -> Result<Loaded, ImportError> {
    let reader = Reader::new(options, PieceSizes::of(text::PIECE), None);
    let contents = reader.open(path)?;
    reader.in_memory(contents)
}

/// Reads the graph file at `path` as [`load`] does. A graph that does not fit into memory is sorted in temporary files.
///
/// # Errors
/// As for [`load`]; also [`ImportError::TemporaryFile`] if a temporary file cannot be written, and
/// [`ImportError::SmallBudget`] if the vertices alone do not fit into memory.
pub(crate) fn load_or_sort(path: &Path, options: &LoadOptions<'_>) -> Result<Imported, ImportError> {
    let budget = sorted::budget(options);
    let reader = Reader::new(options, PieceSizes::within(budget.memory), Some(budget.clone()));
    let mut imported = match reader.open(path)? {
        Contents::Edges(read) => sorted::finish_or_sort(read, options, &budget)?,
        Contents::Graph(loaded) => Imported::InMemory(Box::new(loaded)),
    };
    reader.add_notices(match &mut imported {
        Imported::InMemory(loaded) => &mut loaded.notices,
        Imported::Sorted(graph) => &mut graph.notices,
    });
    Ok(imported)
}

impl<'a> Reader<'a> {
    fn new(options: &'a LoadOptions<'a>, piece_sizes: PieceSizes, budget: Option<Budget>) -> Self {
        Self { options, piece_sizes, budget, notices: Mutex::default(), beside: OnceLock::new() }
    }
}

/// Returns the files that [`load`] may read for a path: itself, and those beside it that have parts of the same graph.
pub(crate) fn files(path: &Path) -> Vec<PathBuf> {
    if let Some(edges) = ogb::edges(path) {
        return files(&edges);
    }
    let parts = match bvgraph::format_of(path) {
        Some(FileFormat::Ldbc) => ldbc::Paths::of(path),
        Some(FileFormat::BvGraph) => {
            return [path.to_owned(), bvgraph::beside(path, "properties"), bvgraph::beside(path, "offsets")].into();
        }
        Some(_) => return ogb::list_beside(path).into_iter().chain([path.to_owned()]).collect(),
        None => {
            let parts = ldbc::Paths::from_prefix(path, "");
            match bvgraph::of_basename(path) {
                Some(graph) if !parts.are_there() => return files(&graph),
                _ => parts,
            }
        }
    };
    vec![path.to_owned(), parts.vertices, parts.edges, parts.properties]
}

impl Reader<'_> {
    /// Keeps a decision that a user should see.
    fn note(&self, notice: Notice) {
        self.notices.lock().push(notice);
    }

    /// Moves the decisions in front of the others.
    fn add_notices(&self, others: &mut Vec<Notice>) {
        others.splice(..0, std::mem::take(&mut *self.notices.lock()));
    }

    /// Returns the number of vertices that the options or a file beside the edges give.
    fn vertices(&self) -> Option<u64> {
        self.options.vertices.or_else(|| match self.beside.get() {
            Some(Notice::VerticesOf { vertices, .. }) => Some(*vertices),
            _ => None,
        })
    }

    fn in_memory(&self, contents: Contents) -> Result<Loaded, ImportError> {
        let mut loaded = match contents {
            Contents::Edges(read) => raw::finish(read, self.options)?,
            Contents::Graph(loaded) => loaded,
        };
        self.add_notices(&mut loaded.notices);
        Ok(loaded)
    }

    fn open(&self, path: &Path) -> Result<Contents, ImportError> {
        let is_stdin = path.as_os_str() == bytes::STDIN;
        if let Some(edges) = ogb::edges(path) {
            return self.open(&edges);
        }
        if self.options.vertices.is_none()
            && self.beside.get().is_none()
            && let Some(vertices) = self.vertices_beside(path)?
        {
            // Nobody else sets it.
            let _ = self.beside.set(vertices);
        }
        match self.options.format.or_else(|| bvgraph::format_of(path)) {
            Some(FileFormat::Ldbc) if !is_stdin => {
                self.check_choices(path, Format::Ldbc)?;
                Ok(Contents::Edges(self.ldbc(&ldbc::Paths::of(path))?))
            }
            Some(FileFormat::BvGraph) => self.bvgraph_at(path),
            Some(format) => {
                let bytes = Bytes::open(path, self)?;
                if format == FileFormat::Graph && self.options.format.is_none() {
                    bvgraph::check_text(&bytes)?;
                }
                self.single(&bytes, format)
            }
            None if is_stdin => Err(ImportError::NoFormat { formats: FileFormat::names() }),
            None => {
                let parts = ldbc::Paths::from_prefix(path, "");
                if parts.are_there() {
                    self.check_choices(path, Format::Ldbc)?;
                    return Ok(Contents::Edges(self.ldbc(&parts)?));
                }
                if bvgraph::of_basename(path).is_some() {
                    return self.bvgraph_at(path);
                }
                // A path that cannot be opened is reported before its ending is checked.
                Bytes::check(path)?;
                Err(ImportError::UnknownEnding { path: path.to_owned(), found: ending(path) })
            }
        }
    }
}

/// Reads a graph from memory, in the format of the ending of `name`. `.v` and `.e` are read as edge files alone.
///
/// # Errors
/// As for [`load`], apart from errors of files.
///
/// # Examples
///
/// ```
/// use warpbell::graph::import::{LoadOptions, load_bytes};
///
/// // An edge list, with identifiers of its own.
/// let loaded = load_bytes("pairs.el", b"10 20\n20 30\n", &LoadOptions::default())?;
/// assert_eq!(loaded.csr.vertices(), 3);
/// assert_eq!(loaded.csr.ids().vertex(30), Some(2));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn load_bytes(name: &str, bytes: &[u8], options: &LoadOptions<'_>) -> Result<Loaded, ImportError> {
    load_pieces(name, bytes, options, text::PIECE)
}

/// Reads a graph as [`load_bytes`] does, with pieces of a given size.
fn load_pieces(name: &str, bytes: &[u8], options: &LoadOptions<'_>, piece: u64) -> Result<Loaded, ImportError> {
    let (path, reader) = (Path::new(name), Reader::new(options, PieceSizes::of(piece), None));
    let Some(format) = options.format.or_else(|| FileFormat::of(path)) else {
        return Err(ImportError::UnknownEnding { path: path.to_owned(), found: ending(path) });
    };
    let contents = reader.single(&Bytes::decompressed(path, bytes.into(), &reader)?, format)?;
    reader.in_memory(contents)
}

/// Returns the ending of a path, in front of that of a compressed file, with its dot.
fn ending(path: &Path) -> String {
    let name = decompress::uncompressed_name(path);
    name.extension().map_or_else(String::new, |e| format!(".{}", e.to_string_lossy()))
}

impl Reader<'_> {
    /// Reads a graph of one file, which is the file of edges of an LDBC graph.
    fn single(&self, bytes: &Bytes<'_>, format: FileFormat) -> Result<Contents, ImportError> {
        if bytes.len() == 0 {
            return Err(Self::no_vertices(bytes.path().to_owned(), 0));
        }
        let kind = format.kind();
        self.check_choices(bytes.path(), kind)?;
        let read = match format {
            FileFormat::El => self.edge_list(bytes, kind, edge_list::Columns::Two),
            FileFormat::Wel => self.edge_list(bytes, kind, edge_list::Columns::Three),
            FileFormat::Txt => self.edge_list(bytes, kind, edge_list::Columns::AsFirstLine),
            FileFormat::Csv => self.separated(bytes, b','),
            FileFormat::Tsv => self.separated(bytes, b'\t'),
            #[cfg(feature = "parquet")]
            FileFormat::Parquet | FileFormat::Arrow => self.columnar(bytes, kind),
            #[cfg(not(feature = "parquet"))]
            FileFormat::Parquet | FileFormat::Arrow => {
                Err(ImportError::Feature { path: bytes.path().to_owned(), format: kind, feature: "parquet" })
            }
            FileFormat::Mtx => self.matrix_market(bytes),
            FileFormat::Gr => self.dimacs(bytes),
            FileFormat::Graph => self.metis(bytes),
            FileFormat::Ldbc => self.ldbc_edges_alone(bytes),
            FileFormat::BvGraph => return self.bvgraph(bytes),
            FileFormat::Sg => return self.serialized(bytes, false),
            FileFormat::Wsg => return self.serialized(bytes, true),
        };
        Ok(Contents::Edges(read?))
    }

    /// Returns a place for the pieces of an input.
    fn pieces(&self) -> Pieces {
        Pieces::new(self.budget.as_ref())
    }

    /// Parses lines of edges.
    fn parse(
        &self,
        bytes: &Bytes<'_>,
        plan: &Plan<'_>,
        line: impl Fn(&mut RawEdges, u64, &[u8]) -> Result<(), LineFault> + Sync,
    ) -> Result<Pieces, ImportError> {
        let mut pieces = self.pieces();
        text::parse(bytes, plan, line, |edges, in_front| pieces.push(edges, in_front))?;
        Ok(pieces)
    }

    /// Returns the range of all lines.
    fn whole(&self) -> Plan<'_> {
        self.lines_from(0, 1)
    }

    /// Returns the range of the lines from byte `start` on, of which the first has the number `first_line`.
    fn lines_from(&self, start: u64, first_line: u64) -> Plan<'_> {
        Plan { start, first_line, pieces: self.piece_sizes, progress: self.options.progress }
    }

    /// Returns the limit of the memory, if there is one.
    fn memory_limit(&self) -> Option<u64> {
        self.budget.as_ref().map_or(self.options.memory, |budget| Some(budget.memory))
    }

    /// Returns the memory that tables of identifiers may take.
    fn table_bytes(&self) -> u64 {
        self.budget.as_ref().map_or(u64::MAX, sorted::table_bytes)
    }

    /// Returns an error if the text's edges cannot fit into memory. The number of edges is not known yet. A line of two
    /// long numbers has about twice as many bytes as the numbers have in memory.
    fn check_text(&self, bytes: &Bytes<'_>) -> Result<(), ImportError> {
        match self.budget {
            Some(_) => Ok(()),
            None => memory::check_text(bytes.path(), bytes.len(), self.options.memory),
        }
    }

    /// Checks the sizes that a header names, before the entries behind it are read. Returns the range of their lines.
    fn plan_behind(&self, bytes: &Bytes<'_>, header: &Header<'_, '_>, sizes: &Sizes) -> Result<Plan<'_>, ImportError> {
        let (vertices, entries) = (sizes.vertices, sizes.entries);
        let most = (bytes.len() - header.offset()).div_ceil(sizes.least_entry_bytes);
        if entries > most {
            let path = bytes.path().to_owned();
            return Err(ImportError::TooManyEntries { path, entries, bytes: bytes.len(), most });
        }
        if vertices == 0 {
            return Err(Self::no_vertices(bytes.path().to_owned(), bytes.len()));
        }
        if self.budget.is_none() {
            let (vertices, entries) = (u128::from(vertices), u128::from(entries));
            let arcs = entries << u32::from(sizes.mirrored);
            let needed = build::peak_bytes(vertices, arcs, 4, if sizes.weighted { 4 } else { 0 });
            let what = bytes.path().display().to_string();
            check_memory(&what, vertices, entries, needed, self.options.memory)?;
        }
        Ok(self.lines_from(header.offset(), header.line() + 1))
    }

    /// Returns true if weights of the input are read.
    fn wants_weights(&self) -> bool {
        matches!(self.options.weights, WeightMode::Input | WeightMode::IfPresent)
    }

    fn no_vertices(path: PathBuf, bytes: u64) -> ImportError {
        if bytes == 0 { ImportError::Empty { path } } else { ImportError::NoVertices { path } }
    }
}

#[cfg(test)]
mod choice_tests;
#[cfg(test)]
mod format_tests;
#[cfg(test)]
mod list_tests;
#[cfg(test)]
mod name_tests;
#[cfg(test)]
mod serialized_tests;
#[cfg(test)]
mod tests;
