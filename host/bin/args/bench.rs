//! The words of `warpbell bench`.

use super::{DeviceArgs, EngineArgs, MeasureArgs, PageArgs, Pattern, ReportArgs, WorldArgs};
use crate::measure::rdma;
use crate::measure::shmem::{AtomicOp, Datatype, Scope, Test};
use clap::{Args, Subcommand, ValueEnum};
use std::str::FromStr;
use std::time::Duration;
use warpbell::suggest::hint;
use warpbell::units::{Bytes, parse_duration};

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
    #[command(flatten)]
    pub report: ReportArgs,
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
    #[command(flatten)]
    pub measure: MeasureArgs,
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
    /// Kernels have the functions that post inlined, instead of calling them as a put does
    #[arg(long)]
    pub inlined: bool,
    /// Posts in the timed part of a latency
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub iters: u32,
    #[command(flatten)]
    pub measure: MeasureArgs,
}

#[derive(Args, Clone, Debug)]
pub struct ArrayArgs {
    /// Bytes of the array, all of it in the cache [default: 8G on gpu, 16M on cpu]
    #[arg(long, value_name = "SIZE")]
    pub size: Option<Bytes>,
    #[command(flatten)]
    pub page: PageArgs,
    #[command(flatten)]
    pub measure: MeasureArgs,
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
    /// Rates: bytes of each heap that elements are spread over [default: 256M on gpu, 1M on cpu]; bandwidth: that messages go round
    /// in [default: each goes where the last one went]
    #[arg(long, value_name = "SIZE")]
    pub window: Option<Bytes>,
    /// Bandwidth and rates: every PE to the next one at the same time, instead of PE 0 to PE 1
    #[arg(long, visible_alias = "bidir")]
    pub bidirectional: bool,
    /// The same with plain loads and stores, side by side
    #[arg(long)]
    pub raw: bool,
    #[command(flatten)]
    pub world: WorldArgs,
    #[command(flatten)]
    pub measure: MeasureArgs,
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
    #[command(flatten)]
    pub report: ReportArgs,
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
