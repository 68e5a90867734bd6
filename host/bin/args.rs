//! The grammar of the command line.

use crate::nvme::NvmeCommand;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;
use warpbell::bench::rdma;
use warpbell::bench::shmem::{AtomicOp, Datatype, Scope, Test};
use warpbell::bench::units::{Bytes, BytesOrShare, parse_duration};
use warpbell::doctor::Require;
use warpbell::graph::import::DEFAULT_SEED;
use warpbell::shmem::Transport;

/// Ranks of a world at most.
const MAX_RANKS: i64 = warpbell::engine::abi::MAX_PES as i64;

/// GPU kernels that do their own I/O.
#[derive(Debug, Parser)]
#[command(name = "warpbell", version, max_term_width = 110, subcommand_required = true, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a graph algorithm whose edges live on NVMe and are read by the kernels themselves
    #[command(subcommand)]
    Graph(GraphCommand),
    /// Measure devices, the queue core, RDMA adapters and posting to them, the cache, and what PEs do with each other's memory
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Start a program as the ranks of a world on this host
    Run(RunArgs),
    /// Controllers: bind and unbind, list, identify, logs
    #[command(subcommand)]
    Nvme(NvmeCommand),
    /// Say what this machine has and which paths are open
    Info(InfoArgs),
    /// Say what keeps this machine from better paths, and what mends it
    Doctor(DoctorArgs),
    /// Print the folder with the device library's headers
    IncludeDir,
}

#[derive(Debug, Subcommand)]
pub enum GraphCommand {
    /// Breadth-first search: hops from a source
    Bfs {
        #[command(flatten)]
        sources: SourceArgs,
        /// Deal the graph out to N PEs, threads of this program with an engine and devices each; under a launcher its ranks
        /// are the PEs. `{pe}` in a --device stands for the PE's number [default: 1]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
        pes: Option<u32>,
        /// How PEs reach each other: auto, peer (loads and stores), mlx5, verbs or soft (docs/shmem.md) [default:
        /// $WARPBELL_TRANSPORT, or auto]
        #[arg(long, value_name = "TRANSPORT")]
        transport: Option<Transport>,
        #[command(flatten)]
        graph: GraphArgs,
    },
    /// Connected components (weakly connected when the graph is directed)
    Cc {
        #[command(flatten)]
        graph: GraphArgs,
    },
    /// PageRank, ranks that sum to 1
    Pagerank {
        /// Chance of following an edge rather than jumping anywhere
        #[arg(long, default_value_t = 0.85, value_name = "D", value_parser = damping)]
        damping: f64,
        /// Exactly so many iterations, instead of going on until the tolerance is met
        #[arg(long, value_name = "N", conflicts_with = "tolerance", value_parser = clap::value_parser!(u32).range(1..=100_000))]
        iterations: Option<u32>,
        /// Stop when the ranks change by less than this in sum [default: 1e-4]
        #[arg(long, value_name = "T", value_parser = tolerance)]
        tolerance: Option<f64>,
        #[command(flatten)]
        graph: GraphArgs,
    },
    /// Shortest paths from a source by edge weight
    Sssp {
        #[command(flatten)]
        sources: SourceArgs,
        /// Width of a bucket in weight; chosen from the weights if not given
        #[arg(long, value_name = "W", value_parser = tolerance)]
        delta: Option<f64>,
        /// Weights: the input's (1 where it has none; random integers on generated graphs), or random ones by --seed
        #[arg(long, value_enum, default_value_t = Weights::Input)]
        weights: Weights,
        #[command(flatten)]
        graph: GraphArgs,
    },
}

#[derive(Args, Clone, Debug)]
pub struct SourceArgs {
    /// Where to start: identifiers as the input has them, several with commas
    #[arg(long, value_name = "V", value_delimiter = ',')]
    pub source: Vec<u64>,
    /// Start from N vertices drawn with --seed among those that have edges [default: 1 when there is no --source]
    #[arg(long, value_name = "N", conflicts_with = "source", value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub sources: Option<u32>,
}

#[derive(Args, Clone, Debug)]
pub struct GraphArgs {
    /// A graph file (.el .txt .wel .mtx .sg .wsg, or an LDBC .v or .e), or kron:SCALE or urand:SCALE
    pub input: String,
    /// Edges go one way, as the input has them
    #[arg(long, conflicts_with = "undirected")]
    pub directed: bool,
    /// Every edge also goes the other way
    #[arg(long)]
    pub undirected: bool,
    /// Where the edges live: on the device, in pinned host memory, or in GPU memory
    #[arg(long, value_enum, default_value_t = Edges::Storage)]
    pub edges: Edges,
    /// Empty the cache before each run (the default)
    #[arg(long, conflicts_with = "warm")]
    pub cold: bool,
    /// Keep what the cache holds from run to run
    #[arg(long)]
    pub warm: bool,
    /// Cache size, or a share of the edges [default: 25%, at least 1M]
    #[arg(long, value_name = "SIZE")]
    pub cache: Option<BytesOrShare>,
    /// Cache page, 512 to 64k
    #[arg(long, value_name = "SIZE", default_value = "4k")]
    pub page_size: Bytes,
    /// Runs of each source
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub runs: u32,
    /// Seed of generators and of drawn sources and weights
    #[arg(long, value_name = "N", default_value_t = DEFAULT_SEED)]
    pub seed: u64,
    /// Do not check the result against a serial computation
    #[arg(long)]
    pub no_verify: bool,
    /// Write `ID VALUE` for every vertex to this file (of the last run)
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Write the report as JSON to this file, or to standard output with -
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// A line for each level or iteration
    #[arg(short = 'v', long, visible_alias = "levels")]
    pub verbose: bool,
    #[command(flatten)]
    pub engine: EngineArgs,
    #[command(flatten)]
    pub device: DeviceArgs,
}

#[derive(Args, Clone, Debug)]
pub struct EngineArgs {
    /// Where kernels run: auto takes a GPU if there is one that works; gpu:N names one
    #[arg(long, value_name = "auto|gpu|cpu", default_value = "auto")]
    pub engine: EngineChoice,
    /// CPU engine: threads [default: as many as the machine has cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub threads: Option<u32>,
    /// How long one wait inside a kernel may last
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = parse_duration)]
    pub deadline: Duration,
}

#[derive(Args, Clone, Debug)]
pub struct WorldArgs {
    /// PEs, as threads of this program; under a launcher its ranks are the PEs [default: one for each GPU; 2 on cpu]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub pes: Option<u32>,
    /// How they reach each other: auto, peer (loads and stores), mlx5, verbs or soft (docs/shmem.md) [default: $WARPBELL_TRANSPORT, or auto]
    #[arg(long, value_name = "TRANSPORT")]
    pub transport: Option<Transport>,
}

/// The rungs of the mapping ladder.
const MAPPINGS: [&str; 8] =
    ["auto", "gdrdrv", "dma-buf-mmap", "iommufd", "libnvm", "dmabuf-import", "iommu-map-pa", "host"];

#[derive(Args, Clone, Debug)]
pub struct DeviceArgs {
    /// PEs whose devices share the processors.
    #[arg(skip = 1usize)]
    pub sharers: usize,
    /// soft:mem, soft:FILE or qtest:FILE, with options after commas (docs/devices.md); several are striped, or replicated [default: soft:mem]
    #[arg(long = "device", value_name = "SPEC")]
    pub devices: Vec<String>,
    /// Stripe over N devices of the one kind given (a file gets .0, .1, ... at its end)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=16))]
    pub stripe: Option<u32>,
    /// Bytes that go to one device before the next has its turn
    #[arg(long, value_name = "SIZE", default_value = "128k")]
    pub stripe_chunk: Bytes,
    /// Every device holds everything: reads are spread over the devices, writes go to all
    #[arg(long)]
    pub replicate: bool,
    /// Where data lands: where the kernel wants it, or in a host buffer that kernels copy from
    #[arg(long, value_name = "auto|direct|bounce", default_value = "auto", value_parser = ["auto", "direct", "bounce"])]
    pub landing: String,
    /// Where queues are; cmb puts submission queues into the controller's own memory
    #[arg(long, value_name = "auto|host|gpu|cmb", default_value = "auto", value_parser = ["auto", "host", "gpu", "cmb"])]
    pub queue_memory: String,
    /// Who rings: kernels on the GPU, or a host thread for them
    #[arg(long, value_name = "auto|gpu|cpu", default_value = "auto", value_parser = ["auto", "gpu", "cpu"])]
    pub doorbell: String,
    /// How devices reach GPU memory: the first way that works, or this one
    #[arg(long, value_name = "WAY", default_value = "auto", value_parser = MAPPINGS)]
    pub mapping: String,
    /// I/O queue pairs on each device [default: as the engine needs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=65_535))]
    pub queues: Option<u32>,
    /// Entries in each queue, a power of two
    #[arg(long, value_name = "N")]
    pub depth: Option<u32>,
    /// Overwrite what this device file or nvme: device holds (it must be named again here)
    #[arg(long, value_name = "DEVICE")]
    pub yes_destroy: Vec<PathBuf>,
    /// Take nvme: devices that no IOMMU guards: they can write to any memory of this machine
    #[arg(long)]
    pub unsafe_no_iommu: bool,
}

#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// fio's questions, asked from kernels: IOPS, bandwidth and latency of a device
    Nvme(NvmeArgs),
    /// The queue core alone, against an ideal controller made of kernels
    Queue(QueueArgs),
    /// Posting RDMA work requests, against an ideal adapter made of kernels
    Post(PostArgs),
    /// Element loads through the cache, hits only, against plain loads
    Array(ArrayArgs),
    /// Puts, gets, atomics, signals and barriers between PEs, timed inside kernels and verified
    Shmem(ShmemArgs),
    /// perftest's ib_write_bw and its kin: messages over an RDMA adapter, posted by kernels and by the CPU, side by side
    Rdma(RdmaArgs),
}

#[derive(Args, Clone, Debug)]
pub struct NvmeArgs {
    /// What to do
    #[arg(long, value_enum, default_value_t = Pattern::Randread)]
    pub rw: Pattern,
    /// Bytes in each command
    #[arg(long, value_name = "SIZE", default_value = "4k")]
    pub bs: Bytes,
    /// Commands in flight in all
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub iodepth: u32,
    /// How long to measure
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    pub runtime: Duration,
    /// Bytes of the device to touch [default: all of it]
    #[arg(long, value_name = "SIZE")]
    pub size: Option<Bytes>,
    /// Reads among randrw's commands, in percent
    #[arg(long, value_name = "PERCENT", default_value_t = 50, value_parser = clap::value_parser!(u32).range(0..=100))]
    pub rwmixread: u32,
    /// Fill the device with a pattern first and check every block that is read
    #[arg(long)]
    pub verify: bool,
    /// Seed of the addresses
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Times to measure; the median is reported
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    /// Write the report as JSON to this file, or to standard output with -
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    #[command(flatten)]
    pub engine: EngineArgs,
    #[command(flatten)]
    pub device: DeviceArgs,
}

#[derive(Args, Clone, Debug)]
pub struct QueueArgs {
    /// Queue pairs, several with commas [default: 1,8,32,128 on gpu, 1,2 on cpu]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub queues: Vec<u32>,
    /// Entries in each queue, a power of two
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub depth: u32,
    /// Threads that submit [default: by the number of queue pairs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 22))]
    pub submitters: Option<u32>,
    /// Commands of each submitting thread
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub commands: Option<u32>,
    /// Times to measure; the median is reported
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    /// Write the report as JSON to this file, or to standard output with -
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    #[command(flatten)]
    pub engine: EngineArgs,
}

#[derive(Args, Clone, Debug)]
pub struct PostArgs {
    /// Blocks of threads that post, several with commas [default: 1,2,4,8,16,32,64 on gpu, 1,2 on cpu]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub blocks: Vec<u32>,
    /// Threads in each block [default: 256 on gpu, one warp on cpu]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads_per_block: Option<u32>,
    /// Queue pairs, which blocks and their warps take in turn [default: 4 for each block on gpu, 1 on cpu]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub queues: Option<u32>,
    /// Blocks of 64 bytes in each send ring, a power of two from 4 to 32768
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub depth: u32,
    /// Posts of each thread
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub posts: Option<u32>,
    /// The 8 bytes to write are in the work request, which names them otherwise
    #[arg(long)]
    pub inline: bool,
    /// All completions in one entry, instead of a ring of them
    #[arg(long)]
    pub collapsed: bool,
    /// Posts in the timed part of a latency
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub iters: u32,
    /// Times to measure; the median is reported
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    /// Write the report as JSON to this file, or to standard output with -
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    #[command(flatten)]
    pub engine: EngineArgs,
}

#[derive(Args, Clone, Debug)]
pub struct ArrayArgs {
    /// Bytes of the array, all of it in the cache [default: 8G on gpu, 16M on cpu]
    #[arg(long, value_name = "SIZE")]
    pub size: Option<Bytes>,
    /// Cache page, 512 to 64k
    #[arg(long, value_name = "SIZE", default_value = "4k")]
    pub page_size: Bytes,
    /// Times to measure; the median is reported
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    /// Write the report as JSON to this file, or to standard output with -
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    #[command(flatten)]
    pub engine: EngineArgs,
}

#[derive(Args, Clone, Debug)]
pub struct ShmemArgs {
    /// put_bw, get_bw, put_latency, get_latency, p_rate, g_rate, atomic_rate, p_ping_pong, put_signal_ping_pong, barrier, sync,
    /// broadcast, reduce, fcollect or alltoall; or all, with few sizes
    pub test: ShmemTest,
    /// Least message
    #[arg(short = 'b', long, alias = "min_size", value_name = "SIZE")]
    pub min_size: Option<Bytes>,
    /// Greatest message [default: 4M on gpu, 64k on cpu]
    #[arg(short = 'e', long, alias = "max_size", value_name = "SIZE")]
    pub max_size: Option<Bytes>,
    /// Factor from one size to the next [default: 2; 64 with all]
    #[arg(short = 'f', long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..))]
    pub step: Option<u64>,
    /// Operations that are timed: messages, or elements of each thread [default: by test and size]
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    pub iters: Option<u32>,
    /// Operations before them [default: a tenth, at most 100]
    #[arg(short = 'w', long, alias = "warmup_iters", value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1 << 30))]
    pub warmup_iters: Option<u32>,
    /// Blocks (CTAs) [default on gpu: 64 for bandwidth, as many as fit for rates, by the size for collectives; 1 otherwise]
    #[arg(short = 'c', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub ctas: Option<u32>,
    /// Threads in each block [default: by test; 1 on cpu]
    #[arg(short = 't', long, alias = "threads_per_cta", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub threads_per_cta: Option<u32>,
    /// Who makes a call together: thread, warp or block [default: block]
    #[arg(short = 's', long, value_name = "SCOPE")]
    pub scope: Option<Scope>,
    /// atomic_rate: inc, add, set, and, or, xor, compare_swap, swap, fetch, fetch_inc, fetch_add, fetch_and, fetch_or or fetch_xor
    #[arg(short = 'a', long, alias = "atomic_op", value_name = "OP", default_value = "inc")]
    pub op: AtomicOp,
    /// Rates: uint32 or uint64 [default: both]; reduce: float or uint64 [default: float]
    #[arg(short = 'd', long, value_name = "TYPE")]
    pub datatype: Option<Datatype>,
    /// Rates: bytes of each heap that elements are spread over [default: 256M on gpu, 1M on cpu]
    #[arg(long, value_name = "SIZE")]
    pub window: Option<Bytes>,
    /// Bandwidth and rates: every PE to the next one at the same time, instead of PE 0 to PE 1
    #[arg(long, visible_alias = "bidir")]
    pub bidirectional: bool,
    /// The same with plain loads and stores, side by side
    #[arg(long)]
    pub raw: bool,
    /// Times to measure; the median is reported
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    /// Write the report as JSON to this file, or to standard output with -
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    #[command(flatten)]
    pub world: WorldArgs,
    #[command(flatten)]
    pub engine: EngineArgs,
}

#[derive(Args, Clone, Debug)]
pub struct RdmaArgs {
    /// write_bw, write_lat, read_bw, read_lat, atomic_bw or atomic_lat
    #[arg(value_name = "TEST")]
    pub test: rdma::Test,
    /// The other side: the host where the same command runs with --server [default: both sides in this program]
    #[arg(value_name = "HOST", conflicts_with = "server")]
    pub host: Option<String>,
    /// Wait for the other side, which gives this host's name
    #[arg(long)]
    pub server: bool,
    /// Port where the two sides meet
    #[arg(short = 'p', long, value_name = "PORT", default_value_t = 18_515)]
    pub port: u16,
    /// Bytes in each message [default: 65536 for bandwidth, 2 for latency, 8 for atomics]
    #[arg(short = 's', long, value_name = "SIZE", conflicts_with = "all")]
    pub size: Option<Bytes>,
    /// Sizes from 2 to 2^23
    #[arg(short = 'a', long)]
    pub all: bool,
    /// Messages on each queue pair [default: 5000 for write_bw, 1000 otherwise]
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "duration")]
    pub iters: Option<u64>,
    /// Instead: as many as go in so many seconds
    #[arg(short = 'D', long, value_name = "TIME", value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// Queue pairs
    #[arg(short = 'q', long = "qp", value_name = "N")]
    pub qp: Option<u32>,
    /// Messages in flight on each queue pair [default: 128]
    #[arg(short = 't', long, value_name = "N")]
    pub tx_depth: Option<u32>,
    /// Messages that one doorbell is rung for; of a kernel at most a warp's lanes
    #[arg(short = 'l', long, alias = "post_list", value_name = "N")]
    pub post_list: Option<u32>,
    /// The CPU asks for one completion in so many messages; a kernel for one with each doorbell [default: 100]
    #[arg(short = 'Q', long, value_name = "N")]
    pub cq_mod: Option<u32>,
    /// Writes of up to so many bytes carry their data in the work request [default: 28 for write_lat, 0 otherwise]
    #[arg(short = 'I', long, alias = "inline_size", value_name = "SIZE")]
    pub inline_size: Option<Bytes>,
    /// Atomics: FETCH_AND_ADD or CMP_AND_SWAP
    #[arg(short = 'A', long, alias = "atomic_type", value_name = "TYPE", default_value = "FETCH_AND_ADD")]
    pub atomic_type: rdma::Atomic,
    /// Bandwidth: both sides at the same time
    #[arg(short = 'b', long)]
    pub bidirectional: bool,
    /// Bandwidth: leave the peak out
    #[arg(short = 'N', long = "no-peak", alias = "noPeak")]
    pub no_peak: bool,
    /// Gb/sec (10^9 bits) in place of MB/sec (2^20 bytes)
    #[arg(long, alias = "report_gbits")]
    pub report_gbits: bool,
    /// Taken and ignored: no clock is read in cycles here
    #[arg(short = 'F', long = "CPU-freq")]
    pub cpu_freq: bool,
    /// The adapter; auto takes the first of mlx5, verbs and soft that both sides have [default: $WARPBELL_TRANSPORT, or auto]
    #[arg(long, value_enum, value_name = "auto|mlx5|verbs|soft")]
    pub transport: Option<AdapterKind>,
    /// RDMA device, as in mlx5_0 [default: the one nearest to the GPU]
    #[arg(short = 'd', long, value_name = "NAME")]
    pub ib_dev: Option<String>,
    /// Its port
    #[arg(short = 'i', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=254))]
    pub ib_port: Option<u32>,
    /// Index of the identifier to send from
    #[arg(short = 'x', long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=255))]
    pub gid_index: Option<u32>,
    /// Options of the software NIC (docs/measuring-rdma.md) [default: $WARPBELL_SOFT_NIC]
    #[arg(long, value_name = "OPTIONS")]
    pub soft: Option<String>,
    /// Who posts: kernels on the engine, the CPU on the same rings, the CPU by verbs calls, or one after the other
    #[arg(long, value_enum, default_value_t = InitiatorChoice::Both)]
    pub initiator: InitiatorChoice,
    /// Write the report as JSON to this file, or to standard output with -
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// perftest's flags that mean nothing here; each has its reason.
    #[arg(short = 'm', long, value_name = "BYTES", hide = true)]
    pub mtu: Option<u32>,
    #[arg(short = 'R', long = "rdma_cm", hide = true)]
    pub rdma_cm: bool,
    #[arg(short = 'c', long, value_name = "RC", hide = true)]
    pub connection: Option<String>,
    #[arg(short = 'e', long, hide = true)]
    pub events: bool,
    #[command(flatten)]
    pub engine: EngineArgs,
}

/// Which adapter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AdapterKind {
    /// The first of the others that both sides have
    Auto,
    /// An mlx5 NIC, driven by the GPU
    Mlx5,
    /// Any RDMA device, by verbs calls of a CPU thread
    Verbs,
    /// The software NIC
    Soft,
}

/// Who posts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum InitiatorChoice {
    /// Kernels, then the CPU; over verbs then the CPU by verbs calls
    Both,
    /// Kernels, on the engine
    Kernel,
    /// Kernels on a GPU
    Gpu,
    /// Kernels on CPU threads
    CpuEngine,
    /// The CPU, to the same kind of queue pair over the same adapter
    Host,
    /// The CPU, by verbs calls to the device (transport verbs)
    #[value(alias = "cpu")]
    Verbs,
}

/// One test, or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShmemTest {
    All,
    One(Test),
}

impl FromStr for ShmemTest {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        if s == "all" { Ok(Self::All) } else { s.parse().map(Self::One).map_err(|e| format!("{e}, and all")) }
    }
}

#[derive(Args, Clone, Debug)]
pub struct RunArgs {
    /// How many ranks
    #[arg(short = 'n', long = "ranks", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MAX_RANKS))]
    pub ranks: u32,
    /// End all ranks that are not done after this time (exit code 124)
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub timeout: Option<Duration>,
    /// How long ranks get to end once they were told to, before they are killed
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
    /// Write the report as JSON to this file, or to standard output with -
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

#[derive(Args, Clone, Debug)]
pub struct DoctorArgs {
    /// Exit with 1 unless this is possible: a GPU that kernels run on, an NVMe controller that can be driven, a way from the
    /// controller to GPU memory; several with commas
    #[arg(long, value_name = "gpu|nvme|p2p", value_delimiter = ',')]
    pub require: Vec<Require>,
    /// Write the report as JSON to this file, or to standard output with - or without a name
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<PathBuf>,
    /// Look at a recorded tree with sys, proc and dev below this folder; no driver is asked
    #[arg(long, value_name = "FOLDER", hide = true)]
    pub root: Option<PathBuf>,
}

/// Which engine was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineChoice {
    Auto,
    /// This GPU, or the first; the PEs of a world are dealt out over all GPUs unless one is named.
    Gpu(Option<usize>),
    Cpu,
}

impl FromStr for EngineChoice {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "auto" => Ok(Self::Auto),
            "gpu" => Ok(Self::Gpu(None)),
            "cpu" => Ok(Self::Cpu),
            _ => s
                .strip_prefix("gpu:")
                .and_then(|n| n.parse().ok())
                .map(|n| Self::Gpu(Some(n)))
                .ok_or_else(|| "write auto, gpu, gpu:N or cpu".to_owned()),
        }
    }
}

/// Where the edges live.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Edges {
    /// On the device, read by the kernels through the cache
    Storage,
    /// In pinned host memory, read by the kernels over the bus
    Pinned,
    /// In GPU memory
    Gpu,
}

/// Which weights shortest paths use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Weights {
    /// The input's
    Input,
    /// Uniform integers from 1 to 255
    Integers,
    /// Uniform real numbers in [0, 1)
    Reals,
}

/// fio's words for what is done to a device.
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
    /// Both at random addresses
    Randrw,
}

fn damping(s: &str) -> Result<f64, String> {
    match s.parse::<f64>() {
        Ok(d) if (0.0..1.0).contains(&d) => Ok(d),
        _ => Err("write a number from 0 to below 1, as in 0.85".to_owned()),
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
            Ok(Cli { command: Command::Graph(g) }) => Ok(g),
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
        assert_eq!(sources.source, [1]);
        assert_eq!(graph.edges, Edges::Storage);
        assert_eq!(graph.page_size, Bytes(4096));
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
        assert_eq!(sources.source, [1, 2, 9]);
        assert_eq!(graph.cache, Some(BytesOrShare::Share(0.25)));
        assert_eq!(graph.engine.engine, EngineChoice::Gpu(Some(1)));
    }

    #[test]
    fn contradictions_are_usage_errors() {
        use clap::error::ErrorKind;
        for (args, kind) in [
            (&["bfs", "g", "--directed", "--undirected"][..], ErrorKind::ArgumentConflict),
            (&["bfs", "g", "--cold", "--warm"], ErrorKind::ArgumentConflict),
            (&["bfs", "g", "--source", "1", "--sources", "2"], ErrorKind::ArgumentConflict),
            (&["pagerank", "g", "--iterations", "3", "--tolerance", "1"], ErrorKind::ArgumentConflict),
            (&["pagerank", "g", "--damping", "1"], ErrorKind::ValueValidation),
            (&["cc", "g", "--source", "1"], ErrorKind::UnknownArgument),
            (&["bfs", "g", "--cache", "lots"], ErrorKind::ValueValidation),
            (&["bfs", "g", "--source", "-1"], ErrorKind::UnknownArgument),
            (&["bfs", "g", "--engine", "tpu"], ErrorKind::ValueValidation),
            (&["bfs"], ErrorKind::MissingRequiredArgument),
        ] {
            assert_eq!(graph(args).unwrap_err(), kind, "{args:?}");
        }
    }
}
