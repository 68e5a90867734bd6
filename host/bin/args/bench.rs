//! Arguments of `warpbell bench`.

use super::{DeviceArgs, EngineArgs, KvArgs, MeasureArgs, NvmeArgs, OutputFile, PageArgs, RowsArgs, WorldArgs};
use crate::workloads::gather::{Choice, MOST_BATCHES};
use crate::workloads::rdma;
use crate::workloads::shmem::{AtomicOp, CopyPath, Datatype, Scope, Test};
use clap::{Args, Subcommand, ValueEnum};
use std::str::FromStr;
use std::time::Duration;
use warpbell::suggest::hint;
use warpbell::units::{Bytes, BytesOrShare, parse_duration};

#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    /// Measure a device from kernels as fio does: IOPS, bandwidth and latency
    #[command(
        after_help = "Examples:\n  warpbell bench nvme --rw randread --bs 4k --iodepth 64 --runtime 10s\n  warpbell bench nvme --device soft:disk.img,size=1G --rw write --verify\n  warpbell bench nvme --bs 512,4k,64k --iodepth 1,32,1024 --json sweep.json\n  warpbell bench nvme --device soft:disk.img --compare cufile"
    )]
    Nvme(Box<NvmeArgs>),
    /// Measure the queue core alone, against an ideal controller made of kernels
    #[command(
        after_help = "Examples:\n  warpbell bench queue --runs 7\n  warpbell bench queue --queues 1 --depth 64,1024 --submitters 1,32,1024"
    )]
    Queue(QueueArgs),
    /// Compare the CPU's loads and stores of GPU memory, through GDRCopy's module, with copies of the driver
    #[command(after_help = "Example:\n  warpbell bench mapping --max-size 64k")]
    Mapping(MappingArgs),
    /// Measure posting of RDMA work requests, against an ideal adapter made of kernels
    #[command(
        after_help = "Examples:\n  warpbell bench post --runs 7\n  warpbell bench post --inlined\n  warpbell bench post --capsules"
    )]
    Post(PostArgs),
    /// Compare element loads through the cache (hits only) with plain loads
    #[command(after_help = "Example:\n  warpbell bench array --size 4G")]
    Array(ArrayArgs),
    /// Gather rows of a table at random places into dense memory: rows per second, latency of a batch, hits by tier
    #[command(
        after_help = "Examples:\n  warpbell bench gather --row-size 512 --indices zipf:0.99 --cache 10%\n  warpbell bench gather --shape gids\n  warpbell bench gather --row-size 512,4k --batch 1024,65536 --json sweep.json\n  warpbell bench gather --indices requests.npy --batch 4096 --rows 1000000"
    )]
    Gather(Box<GatherArgs>),
    /// Measure and verify puts, gets, atomics, signals and barriers between PEs, timed inside kernels
    #[command(
        after_help = "Examples:\n  warpbell bench shmem put_bw --pes 2\n  warpbell bench shmem put_bw -c 1,8,64 -t 128,512 --json sweep.json\n  warpbell bench shmem all --pes 2 --transport soft"
    )]
    Shmem(ShmemArgs),
    /// Measure an RDMA adapter as perftest (ib_write_bw and others) does: posted by kernels and by the CPU
    #[command(
        after_help = "Examples:\n  warpbell bench rdma write_bw --transport soft\n  warpbell bench rdma write_bw -s 64,4k -q 1,4 -l 1,32 --json sweep.json"
    )]
    Rdma(RdmaArgs),
    /// Store and load the pages of KV caches, between GPU memory and a volume
    #[command(after_help = "Example:\n  warpbell bench kv --tokens 8192 --device soft:mem")]
    Kv(Box<KvArgs>),
    /// Transfer between two kernels of a stream: started by the host, by a kernel, and by the stream itself
    #[command(
        after_help = "Examples:\n  warpbell bench stream read --device soft:mem\n  warpbell bench stream put --pes 2 --bs 64k"
    )]
    Stream(StreamArgs),
}

#[derive(Args, Clone, Debug)]
pub struct QueueArgs {
    /// Queue pairs; several with commas, as for every option that says LIST, are measured one after another
    /// [default: 1,8,32,128 on gpu, 1,2 on cpu]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub queues: Vec<u32>,
    /// Entries in each queue, a power of two [default: 1024]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub depth: Vec<u32>,
    /// Threads that submit, in whole blocks; one takes the way of a single read [default: by the number of queue pairs]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1 << 22))]
    pub submitters: Vec<u32>,
    /// Multiprocessors of the GPU to use, the controller's included; a kernel that computes occupies the others, and the
    /// report says how much of it is left [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub sms: Vec<u32>,
    /// Commands per submitting thread
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub commands: Option<u32>,
    #[command(flatten)]
    pub measure: MeasureArgs,
}

#[derive(Args, Clone, Debug)]
pub struct MappingArgs {
    /// Smallest access, at least 4 bytes
    #[arg(short = 'b', long, value_name = "SIZE", default_value = "4")]
    pub min_size: Bytes,
    /// Largest access, at most 1M; each is four times the one before
    #[arg(short = 'e', long, value_name = "SIZE", default_value = "1M")]
    pub max_size: Bytes,
    #[command(flatten)]
    pub output: RowsArgs,
    #[command(flatten)]
    pub engine: EngineArgs,
}

#[derive(Args, Clone, Debug)]
pub struct PostArgs {
    /// Thread blocks that post; separate several values with commas [default: 1,2,4,8,16,32,64 on gpu, 1,2 on cpu]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub blocks: Vec<u32>,
    /// Threads in each block [default: 256 on gpu, one warp on cpu]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads_per_block: Option<u32>,
    /// Queue pairs, assigned to blocks and their warps in turn [default: 4 for each block on gpu, 1 on cpu]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub queues: Option<u32>,
    /// Entries (blocks of 64 bytes) in each send queue, a power of two from 4 to 32768
    #[arg(long, value_name = "N", default_value_t = 1024)]
    pub depth: u32,
    /// Posts per thread
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub posts: Option<u32>,
    /// Put the 8 bytes to write into the work request, instead of a reference to them
    #[arg(long)]
    pub inline: bool,
    /// Put all completions into one entry, instead of a ring of entries
    #[arg(long)]
    pub collapsed: bool,
    /// Store an entry that is announced alone to a BlueFlame register, instead of a plain doorbell
    #[arg(long)]
    pub blueflame: bool,
    /// Inline the posting functions into the kernels, instead of calling them as a put does
    #[arg(long)]
    pub inlined: bool,
    /// Post command capsules (NVMe over Fabrics) instead of writes, and wait for the response to each
    #[arg(long, conflicts_with_all = ["inline", "collapsed", "blueflame", "inlined"])]
    pub capsules: bool,
    /// Timed posts of a latency measurement
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub iters: u32,
    #[command(flatten)]
    pub measure: MeasureArgs,
}

#[derive(Args, Clone, Debug)]
pub struct ArrayArgs {
    /// Size of the array in bytes, all of it in the cache [default: 8G on gpu, 16M on cpu]
    #[arg(long, value_name = "SIZE")]
    pub size: Option<Bytes>,
    #[command(flatten)]
    pub page: PageArgs,
    #[command(flatten)]
    pub measure: MeasureArgs,
}

#[derive(Args, Clone, Debug)]
pub struct GatherArgs {
    /// Row size, batch and indices of a published workload; other options change single values
    #[arg(long, value_enum, value_name = "NAME")]
    pub shape: Option<GatherShape>,
    /// Bytes of a row, 64 to 64k, a multiple of 4; several with commas, as for every option that says LIST, are measured
    /// one after another [default: 512]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub row_size: Vec<Bytes>,
    /// Rows of the table [default: at least 1 GiB of rows on gpu, 64 MiB on cpu; for sampled indices one row for each
    /// vertex, for a trace as many as it names]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..1 << 40))]
    pub rows: Vec<u64>,
    /// Rows in a batch; for sampled indices, vertices that a batch starts from [default: 65536; 1024 for sampled indices]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    pub batch: Vec<u32>,
    /// Indices: uniform; zipf:EXPONENT, with popular rows anywhere in the table; sample:GRAPH, the neighbourhoods of
    /// random vertices of kron:SCALE or urand:SCALE; or a trace, a file in .npy or one number on a line
    #[arg(long, value_name = "CHOICE")]
    pub indices: Option<Choice>,
    /// Sampled indices: neighbours of each vertex for each layer [default: 10,5,5]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub fanout: Vec<u32>,
    /// Measured batches in a run [default: as many as fit into --runtime]
    #[arg(long, value_name = "N", conflicts_with = "runtime", value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    pub batches: Option<u32>,
    /// Duration of a run, without the time to choose indices and to check rows
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = parse_duration)]
    pub runtime: Duration,
    /// Batches that are not measured, before the first run: they fill caches
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=1 << 20))]
    pub warmup: u32,
    /// Batches in flight at the same time, at most 8
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1", value_parser = clap::value_parser!(u32).range(1..=MOST_BATCHES as i64))]
    pub in_flight: Vec<u32>,
    /// Reads of a batch in flight at the same time [default: 8192, or as many as the queues hold]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub iodepth: Vec<u32>,
    /// Multiprocessors of the GPU to use; a kernel that computes occupies the others, and the report says how much of it
    /// is left [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1024), conflicts_with = "overlap")]
    pub sms: Vec<u32>,
    /// Warps of a batch's kernel [default: 8 for each multiprocessor on gpu, as many as run at once on cpu]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub warps: Vec<u32>,
    /// Measure also a batch beside a kernel that computes as long as the batch takes alone
    #[arg(long)]
    pub overlap: bool,
    /// Row cache in memory near the kernels: a size, or a share of the table [default: none]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub cache: Vec<BytesOrShare>,
    /// Row cache in pinned host memory: a size, or a share of the table [default: none]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub host_cache: Vec<BytesOrShare>,
    /// Rows that stay in memory near the kernels, the most popular ones of the indices: a size, or a share of the table
    /// [default: none]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub hot: Vec<BytesOrShare>,
    /// Seed of the indices
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Number of measurements; the median is reported
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    /// Draw the figures as SVG to this file
    #[arg(long, value_name = "FILE")]
    pub chart: Option<OutputFile>,
    #[command(flatten)]
    pub output: RowsArgs,
    #[command(flatten)]
    pub engine: EngineArgs,
    #[command(flatten)]
    pub device: DeviceArgs,
}

/// A published workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum GatherShape {
    /// GraphBolt's feature fetch: 512-byte rows, 669,000 in a batch, uniform
    Graphbolt,
    /// GIDS: 4 KiB rows, neighbourhoods of 1,024 vertices with fan-out 10, 5, 5 on a generated graph
    Gids,
    /// Engram: 256-byte rows, 524,288 of them, 12,288 in a batch, uniform
    Engram,
    /// Blocks of a key-value cache: 32 KiB rows, 32,768 in a batch (1 GiB), uniform
    Kv,
}

#[derive(Args, Clone, Debug)]
pub struct ShmemArgs {
    /// put_bw, get_bw, put_latency, get_latency, p_rate, g_rate, atomic_rate, p_ping_pong, p_signal_ping_pong,
    /// put_signal_ping_pong, barrier, sync, broadcast, reduce, fcollect or alltoall; or all, with few sizes
    pub test: ShmemTest,
    /// Smallest message
    #[arg(short = 'b', long, alias = "min_size", value_name = "SIZE")]
    pub min_size: Option<Bytes>,
    /// Largest message [default: 4M on gpu, 64k on cpu]
    #[arg(short = 'e', long, alias = "max_size", value_name = "SIZE")]
    pub max_size: Option<Bytes>,
    /// Factor from one size to the next [default: 2; 64 with all]
    #[arg(short = 'f', long, value_name = "N", value_parser = clap::value_parser!(u64).range(2..))]
    pub step: Option<u64>,
    /// Timed operations: messages, or elements of each thread [default: by test and size]
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 30))]
    pub iters: Option<u32>,
    /// Untimed operations before them [default: a tenth, at most 100]
    #[arg(short = 'w', long, alias = "warmup_iters", value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1 << 30))]
    pub warmup_iters: Option<u32>,
    /// Blocks (CTAs); several with commas, as for every option that says LIST, are measured one after another
    /// [default on gpu: 64 for bandwidth, as many as fit for rates, by the size for collectives; 1 otherwise]
    #[arg(short = 'c', long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..))]
    pub ctas: Vec<u32>,
    /// Threads in each block [default: by test; 1 on cpu]
    #[arg(short = 't', long, alias = "threads_per_cta", value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub threads_per_cta: Vec<u32>,
    /// Threads that make a call together: thread, warp or block [default: block]
    #[arg(short = 's', long, value_name = "SCOPE")]
    pub scope: Option<Scope>,
    /// atomic_rate: inc, add, set, and, or, xor, compare_swap, swap, fetch, fetch_inc, fetch_add, fetch_and, fetch_or or fetch_xor
    #[arg(short = 'a', long, alias = "atomic_op", value_name = "OP", default_value = "inc")]
    pub op: AtomicOp,
    /// Rates: uint32 or uint64 [default: both]; reduce: float or uint64 [default: float]
    #[arg(short = 'd', long, value_name = "TYPE")]
    pub datatype: Option<Datatype>,
    /// Rates: bytes of each heap that the elements are spread over [default: 256M on gpu, 1M on cpu]; bandwidth: bytes
    /// of the heap that messages cycle through [default: every message goes to the same place]
    #[arg(long, value_name = "SIZE")]
    pub window: Option<Bytes>,
    /// Bandwidth: loads, bulk (the multiprocessors' copy engines, through 48 KiB of shared memory), buffer (the library's
    /// call with that memory, which chooses), or shared (puts from shared memory) [default: loads]
    #[arg(long, value_name = "PATH")]
    pub copy: Option<CopyPath>,
    /// Bandwidth and rates: every PE sends to the next one at the same time, instead of PE 0 to PE 1
    #[arg(long, visible_alias = "bidir")]
    pub bidirectional: bool,
    /// Multiprocessors of each PE's GPU to use; a kernel that computes occupies the others, and the report says how much
    /// of it is left [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub sms: Vec<u32>,
    /// Also measure plain loads and stores, side by side
    #[arg(long)]
    pub raw: bool,
    #[command(flatten)]
    pub measure: MeasureArgs,
    #[command(flatten)]
    pub world: WorldArgs,
}

#[derive(Args, Clone, Debug)]
pub struct StreamArgs {
    /// Transfer: read or write of a device, or put to another PE
    #[arg(value_enum)]
    pub test: StreamTest,
    /// Bytes of each transfer
    #[arg(long, value_name = "SIZE", default_value = "4k")]
    pub bs: Bytes,
    /// Transfers that are measured one by one
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=1 << 24))]
    pub iters: u32,
    /// Transfers behind one another on the stream, each with its own part of the device
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=1 << 16))]
    pub chained: u32,
    #[command(flatten)]
    pub output: RowsArgs,
    #[command(flatten)]
    pub engine: EngineArgs,
    #[command(flatten)]
    pub device: DeviceArgs,
    #[command(flatten)]
    pub world: WorldArgs,
}

/// A kind of transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StreamTest {
    Read,
    Write,
    Put,
}

impl std::fmt::Display for StreamTest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Put => "put",
        })
    }
}

#[derive(Args, Clone, Debug)]
pub struct RdmaArgs {
    /// write_bw, write_lat, read_bw, read_lat, atomic_bw or atomic_lat
    #[arg(value_name = "TEST")]
    pub test: rdma::Test,
    /// The peer: the host where the same command runs with --server [default: both sides in this program]
    #[arg(value_name = "HOST", conflicts_with = "server")]
    pub host: Option<String>,
    /// Wait for the peer, which names this host
    #[arg(long)]
    pub server: bool,
    /// TCP port where the two sides meet
    #[arg(short = 'p', long, value_name = "PORT", default_value_t = 18_515)]
    pub port: u16,
    /// Bytes in each message; several sizes are rows of one table [default: 65536 for bandwidth, 2 for latency, 8 for
    /// atomics]
    #[arg(short = 's', long, value_name = "LIST", value_delimiter = ',', conflicts_with = "all")]
    pub size: Vec<Bytes>,
    /// Measure all sizes from 2 to 2^23
    #[arg(short = 'a', long)]
    pub all: bool,
    /// Messages on each queue pair [default: 5000 for write_bw, 1000 otherwise]
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "duration")]
    pub iters: Option<u64>,
    /// Send for this time instead of a number of messages
    #[arg(short = 'D', long, value_name = "TIME", value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// Queue pairs; several with commas, as for every option that says LIST, are measured one after another, each
    /// combination with its own table
    #[arg(short = 'q', long = "qp", value_name = "LIST", value_delimiter = ',')]
    pub qp: Vec<u32>,
    /// Messages in flight on each queue pair [default: 128]
    #[arg(short = 't', long, value_name = "LIST", value_delimiter = ',')]
    pub tx_depth: Vec<u32>,
    /// Messages per doorbell write; a kernel's warp posts at most one for each of its lanes
    #[arg(short = 'l', long, alias = "post_list", value_name = "LIST", value_delimiter = ',')]
    pub post_list: Vec<u32>,
    /// The CPU requests one completion for so many messages; a kernel requests one for each doorbell write [default: 100]
    #[arg(short = 'Q', long, value_name = "LIST", value_delimiter = ',')]
    pub cq_mod: Vec<u32>,
    /// Carry the data of writes of up to so many bytes in the work request [default: 28 for write_lat, 0 otherwise]
    #[arg(short = 'I', long, alias = "inline_size", value_name = "LIST", value_delimiter = ',')]
    pub inline_size: Vec<Bytes>,
    /// Atomics: FETCH_AND_ADD or CMP_AND_SWAP
    #[arg(short = 'A', long, alias = "atomic_type", value_name = "TYPE", default_value = "FETCH_AND_ADD")]
    pub atomic_type: rdma::Atomic,
    /// Bandwidth: send from both sides at the same time
    #[arg(short = 'b', long)]
    pub bidirectional: bool,
    /// Bandwidth: omit the peak
    #[arg(short = 'N', long = "no-peak", alias = "noPeak")]
    pub no_peak: bool,
    /// Report Gb/sec (10^9 bits) instead of MB/sec (2^20 bytes)
    #[arg(long, alias = "report_gbits")]
    pub report_gbits: bool,
    /// Accepted and ignored: no clock is read in cycles here
    #[arg(short = 'F', long = "CPU-freq")]
    pub cpu_freq: bool,
    /// RDMA adapter; auto takes the first of mlx5, verbs and soft that both sides have
    /// [default: $WARPBELL_TRANSPORT, or auto]
    #[arg(long, value_enum, value_name = "auto|mlx5|verbs|soft")]
    pub transport: Option<AdapterKind>,
    /// RDMA device, as in mlx5_0 [default: the one nearest to the GPU]
    #[arg(short = 'd', long, value_name = "NAME")]
    pub ib_dev: Option<String>,
    /// Port of the RDMA device
    #[arg(short = 'i', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=254))]
    pub ib_port: Option<u32>,
    /// Index of the local GID
    #[arg(short = 'x', long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=255))]
    pub gid_index: Option<u32>,
    /// Options of the software NIC (docs/measuring-rdma.md) [default: $WARPBELL_SOFT_NIC]
    #[arg(long, value_name = "OPTIONS")]
    pub soft: Option<String>,
    /// Initiator that posts: kernels on the engine, the CPU on the same rings, the CPU by verbs calls, or one after the
    /// other
    #[arg(long, value_enum, default_value_t = InitiatorChoice::Both)]
    pub initiator: InitiatorChoice,
    #[command(flatten)]
    pub output: RowsArgs,
    /// Flag of perftest that has no meaning here; the error message of each such flag gives the reason.
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

/// RDMA adapter to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AdapterKind {
    /// The first of the others that both sides have
    Auto,
    /// An mlx5 NIC, driven by the GPU
    Mlx5,
    /// Any RDMA device; a CPU thread posts by verbs calls
    Verbs,
    /// The software NIC
    Soft,
}

/// Initiator that posts work requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum InitiatorChoice {
    /// Kernels, then the CPU; over verbs also the CPU by verbs calls
    Both,
    /// Kernels, on the engine
    Kernel,
    /// Kernels on a GPU
    Gpu,
    /// Kernels on CPU threads
    CpuEngine,
    /// The CPU, on the same kind of queue pair over the same adapter
    Host,
    /// The CPU, by verbs calls to the device (transport verbs)
    #[value(alias = "cpu")]
    Verbs,
}

/// One test of `bench shmem`, or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShmemTest {
    All,
    One(Test),
}

impl FromStr for ShmemTest {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let known = || Test::NAMES.iter().copied().chain(["all"]);
        match s.parse() {
            Ok(test) => Ok(Self::One(test)),
            Err(_) if s == "all" => Ok(Self::All),
            Err(_) => {
                let names = known().collect::<Vec<_>>().join(", ");
                Err(format!("`{s}` is no test: there are {names}{}", hint(s, known())))
            }
        }
    }
}
