//! Definition of the command line: commands, options and their help texts.

mod bench;
mod chart;
mod common;
mod graph;
mod kv;
mod nvme;
mod vertices;

pub use bench::*;
pub use chart::*;
pub use common::*;
pub use graph::*;
pub use kv::*;
pub use nvme::*;
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
use std::str::FromStr;
use std::time::Duration;
use warpbell::doctor::Require;
use warpbell::nvme::RetryBudget;
use warpbell::units::{Bytes, parse_duration};

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
    Graph(Box<GraphCommand>),
    /// Measure devices, gathers of rows, the queue core, RDMA adapters and send queues, the page cache, and PE-to-PE
    /// operations
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Compare two reports, of warpbell or of other programs that measure; exit code 1 if a figure is worse
    #[command(
        after_help = "Examples:\n  warpbell compare before.json after.json\n  warpbell compare before/ after/ --tolerance 3%\n  warpbell compare fio.json warpbell.json"
    )]
    Compare(CompareArgs),
    /// Draw reports as a chart (SVG): rates and latencies over a swept setting, over time, or by percentile
    #[command(
        after_help = "Examples:\n  warpbell chart nvme.json --output nvme.svg\n  warpbell chart before.json after.json --kind latency --output latency.svg"
    )]
    Chart(ChartArgs),
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

#[derive(Args, Clone, Debug)]
pub struct CompareArgs {
    /// Report to compare with: a file, files with commas between them, or a folder of reports of one measurement
    #[arg(value_name = "A")]
    pub a: OsString,
    /// Report that is compared, likewise
    #[arg(value_name = "B")]
    pub b: OsString,
    /// Difference that counts as none, as in 5%
    #[arg(long, value_name = "SHARE", default_value = "5%")]
    pub tolerance: Tolerance,
    /// Compare a row of A with a row of B that has another name
    #[arg(long = "row", value_name = "ROW=ROW")]
    pub rows: Vec<String>,
    #[command(flatten)]
    pub output: RowsArgs,
}

/// A difference, as a share: 5% is 0.05.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance(pub f64);

impl FromStr for Tolerance {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let percent = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
        match percent.filter(|p| (0.0..=1000.0).contains(p)) {
            Some(percent) => Ok(Self(percent / 100.0)),
            None => Err(format!("`{text}` is no difference: write a percentage, as in 5%")),
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn graph(args: &[&str]) -> Result<GraphCommand, clap::error::ErrorKind> {
        match Cli::try_parse_from(["warpbell", "graph"].iter().chain(args)) {
            Ok(Cli { command: Command::Graph(g), .. }) => Ok(*g),
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
        assert_eq!(graph.cache, Some(warpbell::units::BytesOrShare::Share(0.25)));
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
