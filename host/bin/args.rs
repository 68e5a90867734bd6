//! Definition of the command line: commands, options and their help texts.

mod bench;
mod common;
mod vertices;

pub use bench::*;
pub use common::*;
pub use vertices::*;

use crate::accept::AcceptCommand;
use crate::nvme::NvmeCommand;
use crate::operation::OperationArgs;
use crate::operation::top::TopArgs;
use crate::table::TableCommand;
use crate::volume::VolumeCommand;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use warpbell::doctor::Require;
use warpbell::graph::import::{DEFAULT_SEED, FileFormat, Precision};
use warpbell::graph::stored::GraphName;
use warpbell::graph::{LEAST_TOLERANCE, ListForm, UNREACHED, VertexOrder};
use warpbell::nvme::RetryBudget;
use warpbell::units::{Bytes, BytesOrShare, parse_duration};

/// Maximum number of ranks of a world.
const MAX_RANKS: i64 = warpbell::engine::abi::MAX_PES as i64;

/// GPU kernels that do their own I/O.
#[derive(Debug, Parser)]
#[command(name = "warpbell", version, disable_version_flag = true, max_term_width = 110)]
#[command(subcommand_required = true, arg_required_else_help = true, after_help = EXAMPLES)]
pub struct Cli {
    /// Subcommand to run.
    #[command(subcommand)]
    pub command: Command,
    /// End the command in order when it is not done after this time (exit code 124)
    #[arg(long, global = true, value_name = "TIME", value_parser = parse_duration)]
    pub timeout: Option<Duration>,
    /// Print the version; with --verbose also commit, features, CUDA and GPU architectures
    #[arg(short = 'V', long, action = clap::ArgAction::Version)]
    version: Option<bool>,
    #[command(flatten)]
    pub operation: OperationArgs,
}

const EXAMPLES: &str = "Examples:
  warpbell graph bfs kron:16         search a graph whose edges are on storage
  warpbell doctor                    show what this machine lacks, and the fixes
  warpbell bench nvme --iodepth 64   measure reads that kernels submit";

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a graph algorithm; kernels read the edges from NVMe
    #[command(subcommand)]
    Graph(GraphCommand),
    /// Measure devices, gathers of rows, the queue core, RDMA adapters and send queues, the page cache, and PE-to-PE
    /// operations
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Start a program as the ranks of a world on this host
    #[command(after_help = "Example:\n  warpbell run -n 4 -- warpbell bench shmem put_bw")]
    Run(RunArgs),
    /// Manage NVMe controllers: bind and unbind, list, identify, logs
    #[command(subcommand)]
    Nvme(NvmeCommand),
    /// Store rows of files as tables, from which kernels gather rows by their numbers
    #[command(subcommand)]
    Table(TableCommand),
    /// Verify stored arrays
    #[command(subcommand)]
    Volume(VolumeCommand),
    /// Show the activity of running warpbell processes: IOPS, MB/s, latency, hits, faults
    #[command(after_help = "Examples:\n  warpbell top\n  warpbell top --queues 4711\n  warpbell top --once --json")]
    Top(TopArgs),
    /// Show what this machine has and which data paths are available
    #[command(after_help = "Examples:\n  warpbell info\n  warpbell info --json")]
    Info(InfoArgs),
    /// Show which better data paths this machine lacks, and the fix for each
    #[command(
        after_help = "Examples:\n  warpbell doctor\n  warpbell doctor --require gpu,nvme,p2p\n  warpbell doctor --device nvmf:rdma://10.0.0.2/nqn.2026-01.org.example:data"
    )]
    Doctor(DoctorArgs),
    /// Prove each hardware path of this machine, from the safest to the fastest, and report what fails in one file
    #[command(subcommand)]
    Accept(AcceptCommand),
    /// Print the folder with the device library's headers
    IncludeDir,
    /// Print a completion script for a shell
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions(CompletionsArgs),
    /// Write a man page for each command
    #[command(after_help = "Example:\n  warpbell man /usr/local/share/man/man1")]
    Man(ManArgs),
}

const COMPLETIONS_EXAMPLES: &str = "Examples:
  warpbell completions bash > ~/.local/share/bash-completion/completions/warpbell
  warpbell completions zsh > ~/.zfunc/_warpbell
  warpbell completions fish > ~/.config/fish/completions/warpbell.fish";

#[derive(Args, Clone, Debug)]
pub struct CompletionsArgs {
    /// Shell that the script is for
    #[arg(value_enum)]
    pub shell: Shell,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}

#[derive(Args, Clone, Debug)]
pub struct ManArgs {
    /// Folder for the pages, which is created if it is missing
    pub folder: PathBuf,
}

#[derive(Debug, Subcommand)]
pub enum GraphCommand {
    /// Breadth-first search: hops from a source
    #[command(
        after_help = "Examples:\n  warpbell graph bfs examples/data/karate.txt --source 1 --out -\n  warpbell graph bfs examples/data/karate.txt --source 17 --path 26\n  warpbell graph bfs kron:20 --sources 4 --cache 10% --verbose\n  warpbell graph bfs kron:20 --sources 64 --together\n  warpbell graph bfs kron:20 --pes 4"
    )]
    Bfs {
        /// Partition the graph over N PEs, each a thread of this program with its own engine and devices; under a
        /// launcher its ranks are the PEs. `{pe}` in a --device stands for the PE's number [default: 1]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MAX_RANKS))]
        pes: Option<u32>,
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
        transport: TransportArgs,
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
        after_help = "Examples:\n  warpbell graph cc kron:18 --json report.json\n  warpbell graph cc links.el --directed --strong"
    )]
    Cc {
        /// Find strongly connected components: vertices that reach each other along directed edges
        #[arg(long)]
        strong: bool,
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
        graph: GraphArgs,
    },
    /// PageRank; the ranks sum to 1
    #[command(
        after_help = "Examples:\n  warpbell graph pagerank kron:18 --iterations 20\n  warpbell graph pagerank links.el --directed --tolerance 1e-6 --out ranks.txt\n  warpbell graph pagerank examples/data/karate.txt --personalize 1,34"
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
        graph: GraphArgs,
    },
    /// Triangle counting: all triangles of an undirected graph, and those of each vertex
    #[command(
        after_help = "Examples:\n  warpbell graph tc kron:16\n  warpbell graph tc links.el --undirected --out triangles.txt"
    )]
    Tc {
        #[command(flatten)]
        graph: GraphArgs,
    },
    /// Local clustering coefficient of each vertex
    #[command(after_help = "Example:\n  warpbell graph lcc kron:16 --out coefficients.txt")]
    Lcc {
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

/// Values of `--mapping`: `auto`, then the mapping backends.
const MAPPINGS: [&str; 8] =
    ["auto", "gdrdrv", "dma-buf-mmap", "iommufd", "libnvm", "dmabuf-import", "iommu-map-pa", "host"];

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Devices and data path")]
pub struct DeviceArgs {
    /// Number of PEs whose devices share the host's processors.
    #[arg(skip = 1usize)]
    pub sharers: usize,
    /// Time that commands without completion may take, of all volumes that the program opens.
    #[arg(skip)]
    pub retry_budget: RetryBudget,
    /// soft:mem, soft:FILE or qtest:FILE, with options after commas (docs/devices.md); several are striped, or replicated [default: soft:mem]
    #[arg(long = "device", value_name = "SPEC", value_parser = DeviceArg::parser())]
    pub devices: Vec<DeviceArg>,
    /// Stripe over N devices of the one kind given (a file gets .0, .1, ... at its end)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16))]
    pub stripe: Option<u32>,
    /// Stripe size: bytes on one device before the next one follows
    #[arg(long, value_name = "SIZE", default_value = "128k")]
    pub stripe_chunk: Bytes,
    /// Mirror: every device holds all data. Reads are spread over the devices, writes go to all; a device that fails is
    /// left out or repaired
    #[arg(long)]
    pub replicate: bool,
    /// Where devices put data: directly where the kernel wants it, or in a host bounce buffer that kernels copy from
    #[arg(long, value_name = "auto|direct|bounce", default_value = "auto", value_parser = ["auto", "direct", "bounce"])]
    pub landing: String,
    /// Memory for queues; cmb puts submission queues into the controller's own memory
    #[arg(long, value_name = "auto|host|gpu|cmb", default_value = "auto", value_parser = ["auto", "host", "gpu", "cmb"])]
    pub queue_memory: String,
    /// Writer of the doorbells: kernels on the GPU, or a host thread on their behalf
    #[arg(long, value_name = "auto|gpu|cpu", default_value = "auto", value_parser = ["auto", "gpu", "cpu"])]
    pub doorbell: String,
    /// Mapping backend that gives devices access to GPU memory; auto takes the first that works
    #[arg(long, value_name = "BACKEND", default_value = "auto", value_parser = MAPPINGS)]
    pub mapping: String,
    /// I/O queue pairs on each device [default: as the engine needs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_535))]
    pub queues: Option<u32>,
    /// Entries in each queue, a power of two
    #[arg(long, value_name = "N")]
    pub depth: Option<u32>,
    /// Allow overwriting the data of this device file or nvme: device (name it again here)
    #[arg(long, value_name = "DEVICE")]
    pub yes_destroy: Vec<PathBuf>,
    /// Allow nvme: devices without an IOMMU: they can write to any memory of this machine
    #[arg(long)]
    pub unsafe_no_iommu: bool,
}

#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// Number of ranks
    #[arg(short = 'n', long = "ranks", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MAX_RANKS))]
    pub ranks: u32,
    /// Time that ranks get to report a failed rank before they are told to end; at most the time of --grace
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_duration)]
    pub notice: Duration,
    /// Time between telling ranks to end and killing them
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    pub grace: Duration,
    /// Do not put the rank, as in `[3] `, before each line of output
    #[arg(long)]
    pub no_prefix: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

#[derive(Args, Clone, Debug)]
pub struct InfoArgs {
    #[command(flatten)]
    pub json: JsonArgs,
}

#[derive(Args, Clone, Debug)]
pub struct DoctorArgs {
    /// Exit with 1 unless this is possible: a GPU that runs kernels, an NVMe controller that warpbell can drive, a data
    /// path from the controller to GPU memory (p2p); an RDMA device that carries data, by mlx5 or by verbs; separate
    /// several with commas
    #[arg(long, value_name = "gpu|nvme|p2p|rdma|mlx5|verbs", value_delimiter = ',')]
    pub require: Vec<Require>,
    /// Examine the connection to a drive of another machine, too: nvmf:tcp://HOST:PORT/NQN or nvmf:rdma://HOST:PORT/NQN
    #[arg(long, value_name = "DEVICE")]
    pub device: Vec<OsString>,
    #[command(flatten)]
    pub json: JsonArgs,
    /// Examine a fixture: a tree with sys, proc and dev below this folder; no driver is asked
    #[arg(long, value_name = "FOLDER", hide = true)]
    pub root: Option<PathBuf>,
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

/// Access pattern of `bench nvme`, by fio's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// Sequential reads
    Read,
    /// Sequential writes
    Write,
    /// Reads at random addresses
    Randread,
    /// Writes at random addresses
    Randwrite,
    /// Reads and writes at random addresses
    Randrw,
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn graph(args: &[&str]) -> Result<GraphCommand, clap::error::ErrorKind> {
        match Cli::try_parse_from(["warpbell", "graph"].iter().chain(args)) {
            Ok(Cli { command: Command::Graph(g), .. }) => Ok(g),
            Ok(other) => panic!("{other:?}"),
            Err(e) => Err(e.kind()),
        }
    }

    #[test]
    fn the_grammar_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_main_job_parses() {
        let GraphCommand::Bfs { sources, graph, .. } =
            graph(&["bfs", "examples/data/email-enron.txt", "--source", "1"]).unwrap()
        else {
            panic!("not bfs");
        };
        assert_eq!(sources.named().collect::<Vec<_>>(), ["1"]);
        assert_eq!(graph.edges, Edges::Storage);
        assert_eq!(graph.page.page_size, Bytes(4096));
        assert_eq!(graph.engine.engine, EngineChoice::Auto);
        assert_eq!(graph.engine.deadline, Duration::from_secs(10));
    }

    #[test]
    fn shares_and_lists_parse() {
        let GraphCommand::Sssp { sources, graph, .. } =
            graph(&["sssp", "kron:16", "--source", "1,2", "--source", "9", "--cache", "25%", "--engine", "gpu:1"])
                .unwrap()
        else {
            panic!("not sssp");
        };
        assert_eq!(sources.named().collect::<Vec<_>>(), ["1", "2", "9"]);
        assert_eq!(graph.cache, Some(BytesOrShare::Share(0.25)));
        assert_eq!(graph.engine.engine, EngineChoice::Gpu(Some(1)));
    }

    #[test]
    fn a_device_is_measured_once_and_everything_else_three_times() {
        let runs = |words: &[&str]| match Cli::try_parse_from([&["warpbell", "bench"], words].concat()).unwrap().command
        {
            Command::Bench(BenchCommand::Nvme(args)) => args.runs,
            Command::Bench(BenchCommand::Gather(args)) => args.runs,
            Command::Bench(BenchCommand::Queue(args)) => args.measure.runs,
            Command::Bench(BenchCommand::Post(args)) => args.measure.runs,
            Command::Bench(BenchCommand::Array(args)) => args.measure.runs,
            Command::Bench(BenchCommand::Shmem(args)) => args.measure.runs,
            other => panic!("{other:?}"),
        };
        for words in [&["queue"][..], &["post"], &["array"], &["shmem", "all"]] {
            assert_eq!(runs(words), 3, "{words:?}");
            assert_eq!(runs(&[words, &["--runs", "7"]].concat()), 7, "{words:?}");
        }
        assert_eq!((runs(&["nvme"]), runs(&["gather"])), (1, 1));
    }

    /// Commands whose devices are used by other hosts or processes, or are only connected.
    const WITHOUT_DEADLINE: [&str; 4] = ["serve", "connect-check", "doctor", "accept"];

    #[test]
    fn each_command_that_uses_devices_has_a_deadline() {
        fn check(command: &clap::Command, checked: &mut Vec<String>) {
            if WITHOUT_DEADLINE.contains(&command.get_name()) {
                return;
            }
            let has = |name: &str| command.get_arguments().any(|a| a.get_id() == name);
            if has("device") || has("devices") {
                assert!(has("deadline"), "{}", command.get_name());
                checked.push(command.get_name().to_owned());
            }
            command.get_subcommands().for_each(|c| check(c, checked));
        }
        let mut checked = Vec::new();
        check(&Cli::command(), &mut checked);
        for name in ["bfs", "import", "export", "verify", "delete", "list", "info", "nvme", "gather", "id", "smart"] {
            assert!(checked.iter().any(|c| c == name), "{name}: {checked:?}");
        }
    }

    #[test]
    fn contradictions_are_usage_errors() {
        use clap::error::ErrorKind;
        for (args, kind) in [
            (&["bfs", "g", "--directed", "--undirected"][..], ErrorKind::ArgumentConflict),
            (&["bfs", "g", "--cold", "--warm"], ErrorKind::ArgumentConflict),
            (&["bfs", "g", "--source", "1", "--sources", "2"], ErrorKind::ArgumentConflict),
            (&["bfs", "g", "--path", "1", "--target", "2"], ErrorKind::ArgumentConflict),
            (&["bfs", "g", "--target", "1,2"], ErrorKind::ValueValidation),
            (&["bfs", "g", "--together", "--path", "2"], ErrorKind::ArgumentConflict),
            (&["bfs", "g", "--together", "--pes", "2"], ErrorKind::ArgumentConflict),
            (&["bfs", "g", "--max-depth", "4294967295"], ErrorKind::ValueValidation),
            (&["sssp", "g", "--max-distance", "-1"], ErrorKind::ValueValidation),
            (&["sssp", "g", "--max-distance", "inf"], ErrorKind::ValueValidation),
            (&["pagerank", "g", "--iterations", "3", "--tolerance", "1"], ErrorKind::ArgumentConflict),
            (&["pagerank", "g", "--damping", "1"], ErrorKind::ValueValidation),
            (&["pagerank", "g", "--tolerance", "1e-16"], ErrorKind::ValueValidation),
            (&["cc", "g", "--source", "1"], ErrorKind::UnknownArgument),
            (&["bfs", "g", "--cache", "lots"], ErrorKind::ValueValidation),
            (&["bfs", "g", "--source", "1,,2"], ErrorKind::ValueValidation),
            (&["bfs", "g", "--source", "\"a"], ErrorKind::ValueValidation),
            (&["bfs", "g", "--names", "--numbers"], ErrorKind::ArgumentConflict),
            (&["bfs", "g", "--engine", "tpu"], ErrorKind::ValueValidation),
            (&["bfs"], ErrorKind::MissingRequiredArgument),
        ] {
            assert_eq!(graph(args).unwrap_err(), kind, "{args:?}");
        }
    }
}
