//! Commands of `graph`, and their options.

use super::{
    DeadlineArgs, DeviceArgs, EngineArgs, IdArgs, JsonArgs, MAX_RANKS, OutputFile, PageArgs, PathArgs, ReportArgs,
    SourceArgs, SourceList, TogetherArgs, TransportArgs, vertices,
};
use clap::{Args, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use warpbell::graph::import::{DEFAULT_SEED, FileFormat, Precision};
use warpbell::graph::stored::GraphName;
use warpbell::graph::{LEAST_TOLERANCE, ListForm, UNREACHED, VertexOrder};
use warpbell::units::{Bytes, BytesOrShare};

#[derive(Debug, Subcommand)]
pub enum GraphCommand {
    /// Breadth-first search: hops from a source
    #[command(
        after_help = "Examples:\n  warpbell graph bfs examples/data/karate.txt --source 1 --out -\n  warpbell graph bfs examples/data/karate.txt --source 17 --path 26\n  warpbell graph bfs kron:20 --sources 4 --cache 10% --verbose\n  warpbell graph bfs kron:20 --sources 64 --together\n  warpbell graph bfs kron:20 --pes 4"
    )]
    Bfs {
        #[command(flatten)]
        pes: PesArgs,
        #[command(flatten)]
        sources: SourceArgs,
        #[command(flatten)]
        together: TogetherArgs,
        #[command(flatten)]
        paths: PathArgs,
        /// Largest depth: vertices with more edges between them and the source count as unreached
        #[arg(long, value_name = "N", help_heading = "Paths", value_parser = clap::value_parser!(u32).range(..i64::from(UNREACHED)))]
        max_depth: Option<u32>,
        #[command(flatten)]
        graph: GraphArgs,
    },
    /// Betweenness centrality: sums of the dependencies of sources
    #[command(
        after_help = "Examples:\n  warpbell graph bc kron:16 --top 5\n  warpbell graph bc examples/data/karate.txt --all --out -"
    )]
    Bc {
        /// Take every vertex as a source
        #[arg(long, conflicts_with_all = ["source", "sources"], help_heading = "Sources")]
        all: bool,
        #[command(flatten)]
        sources: SourceArgs,
        #[command(flatten)]
        graph: GraphArgs,
    },
    /// Connected components (weakly connected when the graph is directed)
    #[command(
        after_help = "Examples:\n  warpbell graph cc kron:18 --json report.json\n  warpbell graph cc links.el --directed --strong\n  warpbell graph cc kron:18 --pes 2"
    )]
    Cc {
        /// Find strongly connected components: vertices that reach each other along directed edges
        #[arg(long)]
        strong: bool,
        #[command(flatten)]
        pes: PesArgs,
        #[command(flatten)]
        graph: GraphArgs,
    },
    /// Communities by label propagation (CDLP), as LDBC Graphalytics defines it
    #[command(
        after_help = "Examples:\n  warpbell graph cdlp kron:18\n  warpbell graph cdlp links.el --directed --iterations 5 --out labels.txt"
    )]
    Cdlp {
        /// Number of iterations; a run ends earlier if one changes no label
        #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100_000))]
        iterations: u32,
        #[command(flatten)]
        pes: PesArgs,
        #[command(flatten)]
        graph: GraphArgs,
    },
    /// PageRank; the ranks sum to 1
    #[command(
        after_help = "Examples:\n  warpbell graph pagerank kron:18 --iterations 20\n  warpbell graph pagerank links.el --directed --tolerance 1e-6 --out ranks.txt\n  warpbell graph pagerank examples/data/karate.txt --personalize 1,34\n  warpbell graph pagerank kron:18 --pes 2 --edges gpu"
    )]
    Pagerank {
        /// Damping factor: the probability of following an edge instead of jumping to a random vertex
        #[arg(long, default_value_t = 0.85, value_name = "D", value_parser = damping)]
        damping: f64,
        /// Run exactly N iterations instead of iterating until --tolerance is met
        #[arg(long, value_name = "N", conflicts_with = "tolerance", value_parser = clap::value_parser!(u32).range(1..=100_000))]
        iterations: Option<u32>,
        /// Stop when the sum of all changes of ranks in one iteration is below T [default: 1e-4]
        #[arg(long, value_name = "T", value_parser = change)]
        tolerance: Option<f64>,
        /// Jump to these vertices instead of to any vertex, also from vertices without out-edges: personalised PageRank.
        /// Separate several with commas, as for a source
        #[arg(long, value_name = "V", allow_negative_numbers = true, value_parser = vertices::vertices)]
        personalize: Vec<SourceList>,
        #[command(flatten)]
        pes: PesArgs,
        #[command(flatten)]
        graph: GraphArgs,
    },
    /// Triangle counting: all triangles of an undirected graph, and those of each vertex
    #[command(
        after_help = "Examples:\n  warpbell graph tc kron:16\n  warpbell graph tc links.el --undirected --out triangles.txt"
    )]
    Tc {
        #[command(flatten)]
        pes: PesArgs,
        #[command(flatten)]
        graph: GraphArgs,
    },
    /// Local clustering coefficient of each vertex
    #[command(after_help = "Example:\n  warpbell graph lcc kron:16 --out coefficients.txt")]
    Lcc {
        #[command(flatten)]
        pes: PesArgs,
        #[command(flatten)]
        graph: GraphArgs,
    },
    /// K-core decomposition: the core number of each vertex
    #[command(after_help = "Example:\n  warpbell graph kcore kron:18 --out cores.txt")]
    Kcore {
        #[command(flatten)]
        graph: GraphArgs,
    },
    /// Single-source shortest paths by edge weight
    #[command(
        after_help = "Examples:\n  warpbell graph sssp roads.wel --source 1\n  warpbell graph sssp roads.wel --source 1 --path 7\n  warpbell graph sssp kron:16 --weights reals --sources 8"
    )]
    Sssp {
        /// Bucket width, in units of edge weight [default: chosen from the weights]
        #[arg(long, value_name = "W", value_parser = tolerance)]
        delta: Option<f64>,
        #[command(flatten)]
        weights: WeightArgs,
        #[command(flatten)]
        sources: SourceArgs,
        #[command(flatten)]
        paths: PathArgs,
        /// Largest distance: vertices that are further away from the source count as unreached
        #[arg(long, value_name = "D", help_heading = "Paths", value_parser = distance, allow_negative_numbers = true)]
        max_distance: Option<f64>,
        #[command(flatten)]
        pes: PesArgs,
        #[command(flatten)]
        graph: GraphArgs,
    },
    /// Store a graph on a device under a name; the other commands open it as stored:NAME
    #[command(
        after_help = "Examples:\n  warpbell graph import links.el --name links --device soft:graphs.img\n  warpbell graph bfs stored:links --device soft:graphs.img --source 1\n  warpbell graph import kron:20 --name kron20 --weights integers --device nvme:0000:65:00.0"
    )]
    Import(ImportArgs),
    /// List the graphs that are stored on a device
    #[command(after_help = "Example:\n  warpbell graph list --device soft:graphs.img")]
    List(StoredListArgs),
    /// Show the sizes and the origin of a stored graph
    #[command(after_help = "Example:\n  warpbell graph info stored:links --device soft:graphs.img")]
    Info(StoredArgs),
    /// Read a stored graph completely, and compare its parts with their checksums and with each other
    #[command(after_help = "Example:\n  warpbell graph verify stored:links --device soft:graphs.img")]
    Verify(StoredArgs),
    /// Remove a stored graph; its space can be used again
    #[command(after_help = "Example:\n  warpbell graph delete stored:links --device soft:graphs.img")]
    Delete(StoredArgs),
    /// Write the edges of a stored graph to a file
    #[command(after_help = "Example:\n  warpbell graph export stored:links --device soft:graphs.img --out links.el")]
    Export(ExportArgs),
}

// For algorithms that run on several PEs.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "World")]
pub struct PesArgs {
    /// Distribute the graph over N PEs, each a thread of this program with its own engine and devices; under a launcher its
    /// ranks are the PEs. `{pe}` in a --device stands for the PE's number [default: 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MAX_RANKS))]
    pub pes: Option<u32>,
    #[command(flatten)]
    pub transport: TransportArgs,
}

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Graph, cache and results")]
pub struct GraphArgs {
    /// A graph file (.el .txt .edges .wel .csv .tsv .parquet .arrow .mtx .gr .col .graph .sg .wsg, KONECT's out.*, or an
    /// LDBC .v or .e, also with .gz or .zst), - for standard input, kron:SCALE or urand:SCALE, or stored:NAME for a graph that `graph import` stored on --device
    pub input: OsString,
    /// Format of the input, if its ending does not name it: el, txt, wel, csv, tsv, parquet, arrow, mtx, gr, graph,
    /// bvgraph, sg or wsg
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<FileFormat>,
    #[command(flatten)]
    pub ids: IdArgs,
    /// Treat the input's edges as directed
    #[arg(long, conflicts_with = "undirected")]
    pub directed: bool,
    /// Treat the input's edges as undirected: add the reverse of every edge
    #[arg(long)]
    pub undirected: bool,
    /// Where the edges are stored: on the device, in pinned host memory, or in GPU memory
    #[arg(long, value_enum, default_value_t = Edges::Storage)]
    pub edges: Edges,
    /// Empty the cache before each run (the default)
    #[arg(long, conflicts_with = "warm")]
    pub cold: bool,
    /// Keep the cache's contents from run to run
    #[arg(long)]
    pub warm: bool,
    /// Cache size, or a share of the edges [default: 25%, at least 1M]
    #[arg(long, value_name = "SIZE")]
    pub cache: Option<BytesOrShare>,
    #[command(flatten)]
    pub page: PageArgs,
    /// Store a checksum for each 4 KiB of edges; kernels compare it with every page that they read
    #[arg(long)]
    pub page_checksums: bool,
    /// Memory for reading the input, as in 2G: an input that needs more is refused [default: the free memory]
    #[arg(long, value_name = "BYTES")]
    pub memory: Option<Bytes>,
    /// Runs per source
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub runs: u32,
    /// Seed of generators, and of random sources and weights
    #[arg(long, value_name = "N", default_value_t = DEFAULT_SEED)]
    pub seed: u64,
    /// Do not check the result against a serial computation
    #[arg(long, conflicts_with = "verify")]
    pub no_verify: bool,
    /// Check the result also for a stored graph, whose edges are then read completely first
    #[arg(long)]
    pub verify: bool,
    /// Components, communities, ranks, scores or ranges of distances to show
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub top: usize,
    /// Write `ID VALUE` for every vertex to this file, or to standard output with -; `SOURCE ID VALUE` for several
    /// sources; a file that ends in .csv gets commas and headings, one in .parquet is a Parquet file
    #[arg(long, value_name = "FILE")]
    pub out: Option<OutputFile>,
    #[command(flatten)]
    pub report: ReportArgs,
    /// Print a line for each level or iteration, and the time of each phase
    #[arg(short = 'v', long, visible_alias = "levels")]
    pub verbose: bool,
    #[command(flatten)]
    pub engine: EngineArgs,
    #[command(flatten)]
    pub device: DeviceArgs,
}

#[derive(Args, Clone, Debug)]
pub struct ImportArgs {
    /// A graph file (.el .txt .edges .wel .csv .tsv .parquet .arrow .mtx .gr .col .graph .sg .wsg, KONECT's out.*, or an
    /// LDBC .v or .e, also with .gz or .zst), - for standard input, or kron:SCALE or urand:SCALE
    pub input: OsString,
    /// Format of the input, if its ending does not name it: el, txt, wel, csv, tsv, parquet, arrow, mtx, gr, graph,
    /// bvgraph, sg or wsg
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<FileFormat>,
    #[command(flatten)]
    pub ids: IdArgs,
    /// Name of the stored graph: 1 to 40 letters, digits, `.`, `_` and `-`
    #[arg(long)]
    pub name: GraphName,
    /// Treat the input's edges as directed
    #[arg(long, conflicts_with = "undirected")]
    pub directed: bool,
    /// Treat the input's edges as undirected: add the reverse of every edge
    #[arg(long)]
    pub undirected: bool,
    /// Edge weights to store
    #[arg(long, value_enum, default_value_t = ImportWeights::Auto)]
    pub weights: ImportWeights,
    /// Type of real weights
    #[arg(long, value_enum, value_name = "TYPE", default_value_t = WeightsType::Auto)]
    pub weights_type: WeightsType,
    /// Form of the neighbour lists
    #[arg(long, value_enum, value_name = "FORM", default_value_t = Lists::Packed)]
    pub lists: Lists,
    /// Order in which packed lists stand and name vertices; identifiers stay those of the input
    #[arg(long, value_enum, default_value_t = Order::Degree)]
    pub order: Order,
    /// Store the graph in N parts, one for each PE of a run, packed and in the order of degrees: on a device for each part. `{pe}`
    /// in a --device stands for the part's number
    #[arg(long, value_name = "N", conflicts_with_all = ["lists", "order"], value_parser = clap::value_parser!(u16).range(2..))]
    pub parts: Option<u16>,
    /// Seed of generators and random weights
    #[arg(long, value_name = "N", default_value_t = DEFAULT_SEED)]
    pub seed: u64,
    /// Store a checksum for each 4 KiB; kernels compare it with every page that they read
    #[arg(long)]
    pub page_checksums: bool,
    /// Memory for the import, as in 2G: a larger graph is sorted in temporary files [default: three quarters of the free
    /// memory]
    #[arg(long, value_name = "BYTES")]
    pub memory: Option<Bytes>,
    /// Folder of temporary files [default: $TMPDIR, or /var/tmp]
    #[arg(long, value_name = "FOLDER")]
    pub temp_dir: Option<PathBuf>,
    #[command(flatten)]
    pub json: JsonArgs,
    #[command(flatten)]
    pub wait: DeadlineArgs,
    #[command(flatten)]
    pub device: DeviceArgs,
}

/// Edge weights of a graph that is imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ImportWeights {
    /// The input's weights if it has some, otherwise none
    Auto,
    /// No weights
    None,
    /// The input's weights; 1 for each edge where it has none
    Input,
    /// Uniform integers from 1 to 255
    Integers,
    /// Uniform real numbers in [0, 1)
    Reals,
}

#[derive(Args, Clone, Debug)]
pub struct StoredListArgs {
    #[command(flatten)]
    pub json: JsonArgs,
    #[command(flatten)]
    pub wait: DeadlineArgs,
    #[command(flatten)]
    pub device: DeviceArgs,
}

#[derive(Args, Clone, Debug)]
pub struct StoredArgs {
    /// The stored graph, as in stored:NAME
    pub graph: OsString,
    #[command(flatten)]
    pub json: JsonArgs,
    #[command(flatten)]
    pub wait: DeadlineArgs,
    #[command(flatten)]
    pub device: DeviceArgs,
}

#[derive(Args, Clone, Debug)]
pub struct ExportArgs {
    /// The stored graph, as in stored:NAME
    pub graph: OsString,
    /// File for the edges: .el (two vertices on a line), .wel (with the weight), .csv (a table, with weights if the graph
    /// has some), or - for standard output as .el
    #[arg(long, value_name = "FILE")]
    pub out: OutputFile,
    #[command(flatten)]
    pub wait: DeadlineArgs,
    #[command(flatten)]
    pub device: DeviceArgs,
}

/// Place where the edges are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Edges {
    /// On the device; kernels read them through the cache
    Storage,
    /// In pinned host memory; kernels read them over the bus
    Pinned,
    /// In GPU memory
    Gpu,
}

/// Edge weights for shortest paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Weights {
    /// The input's weights
    Input,
    /// Uniform integers from 1 to 255
    Integers,
    /// Uniform real numbers in [0, 1)
    Reals,
}

/// Edge weights for shortest paths, and their type.
#[derive(Args, Clone, Copy, Debug)]
pub struct WeightArgs {
    /// Edge weights: the input's (1 where it has none; random integers on generated graphs), or random ones from --seed
    #[arg(long, value_enum, default_value_t = Weights::Input)]
    pub weights: Weights,
    /// Type of real weights
    #[arg(long, value_enum, value_name = "TYPE", default_value_t = WeightsType::Auto)]
    pub weights_type: WeightsType,
}

/// Type of the input's real weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum WeightsType {
    /// f32 if each weight is exactly such a number, otherwise f64
    Auto,
    /// 32 bits: weights are rounded
    F32,
    /// 64 bits
    F64,
}

impl WeightsType {
    /// Returns the precision with which weights are kept.
    pub fn precision(self) -> Precision {
        match self {
            Self::Auto => Precision::Auto,
            Self::F32 => Precision::Single,
            Self::F64 => Precision::Double,
        }
    }
}

/// Form of stored neighbour lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Lists {
    /// Gaps between neighbours, in few bits
    Packed,
    /// Identifiers of 32 or 64 bits
    Plain,
}

/// Order of packed lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Order {
    /// Vertices of the highest degree first: gaps are shortest
    Degree,
    /// As the identifiers of the input
    Input,
}

impl ImportArgs {
    /// Returns the form of the lists.
    pub fn form(&self) -> ListForm {
        match (self.lists, self.order) {
            (Lists::Plain, _) => ListForm::Plain,
            (Lists::Packed, Order::Degree) => ListForm::Packed(VertexOrder::Degree),
            (Lists::Packed, Order::Input) => ListForm::Packed(VertexOrder::Input),
        }
    }
}

fn damping(s: &str) -> Result<f64, String> {
    match s.parse::<f64>() {
        Ok(d) if (0.0..1.0).contains(&d) => Ok(d),
        _ => Err("write a number of at least 0 and less than 1, as in 0.85".to_owned()),
    }
}

fn change(s: &str) -> Result<f64, String> {
    match s.parse::<f64>() {
        Ok(t) if t >= LEAST_TOLERANCE && t.is_finite() => Ok(t),
        _ => {
            Err(format!("write a number from {LEAST_TOLERANCE:e} on, as in 1e-4: smaller changes are lost in rounding"))
        }
    }
}

fn distance(s: &str) -> Result<f64, String> {
    match s.parse::<f64>() {
        Ok(d) if d >= 0.0 && d.is_finite() => Ok(d),
        _ => Err("write a number of 0 or more, as in 2.5".to_owned()),
    }
}

fn tolerance(s: &str) -> Result<f64, String> {
    match s.parse::<f64>() {
        Ok(t) if t > 0.0 && t.is_finite() => Ok(t),
        _ => Err("write a number above 0, as in 1e-4".to_owned()),
    }
}
