//! Runs `warpbell bench rdma`: perftest's tests, with kernels and the CPU as initiators.

use crate::args::{AdapterKind, EngineArgs, EngineChoice, InitiatorChoice, RdmaArgs};
use crate::interrupt::Interrupt;
use crate::output::{self, Failure, Text};
use crate::rows::Rows;
use crate::workloads::rdma::{
    ALL_SIZES, AdapterChoice, Initiator, Kind, RdmaBench, Row, Setting, Side, not_two, table,
};
use crate::workloads::report::{Report, nanoseconds};
use crate::{engine, world};
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use warpbell::engine::Engine;
use warpbell::rdma::{Adapter, DeviceChoice, Transport};
use warpbell::shmem::bootstrap::{self, Bootstrap, LocalBootstrap};

/// Time that a server waits for its client.
const RENDEZVOUS_LIMIT: Duration = Duration::from_secs(600);
/// Time that a client waits for its server.
const CLIENT_RENDEZVOUS_LIMIT: Duration = Duration::from_secs(30);
/// Environment variable that names the transport, if `--transport` is absent.
const TRANSPORT_VARIABLE: &str = "WARPBELL_TRANSPORT";
/// Environment variable with the options of the software NIC, if `--soft` is absent.
const SOFT_VARIABLE: &str = "WARPBELL_SOFT_NIC";

/// Runs one test with all chosen initiators, and prints a table for each.
///
/// # Errors
/// * [`Failure::Usage`] if options contradict each other or have no meaning here, or if a client or a server has no
///   `WARPBELL_SECRET`.
/// * [`Failure::BrokenPipe`] if standard output was closed.
/// * [`Failure::Error`] if the peer is absent, an adapter, an engine or the measurement fails, or a message arrived
///   with wrong data.
pub fn run(args: &RdmaArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    refuse_what_means_nothing(args)?;
    let setting = setting(args).with_defaults();
    setting.check().map_err(|e| Failure::Usage(e.to_string()))?;
    let choice = choice(args)?;
    let engine = open_engine(args)?;
    let _stop = interrupt.stops(&engine);
    let text = Text::of_measurement(&args.output)?;
    let job = Job { args, setting, choice, engine };
    match rendezvous(args, &text)? {
        Rendezvous::Here => job.in_this_process(&text),
        Rendezvous::Ranks { ranks, client } => {
            if ranks.size() != 2 {
                return Err(not_two(ranks.size()).into());
            }
            let speaks = ranks.rank() == client;
            let silent = Text::none();
            let text = if speaks { &text } else { &silent };
            let choice = AdapterChoice { across: true, ..job.choice.clone() };
            let (adapter, notes) = choice.open_with(job.engine.space(), ranks.as_ref())?;
            let rows = job.side(adapter.as_ref(), ranks.as_ref(), client, text, &notes)?;
            ranks.leave();
            if speaks { job.report(&rows) } else { checked(&rows) }
        }
    }
}

/// Arrangement of the two sides.
enum Rendezvous {
    /// Both are threads of this process.
    Here,
    /// The two ranks of a world. `client` is the client's rank.
    Ranks { ranks: Box<dyn Bootstrap>, client: usize },
}

fn rendezvous(args: &RdmaArgs, text: &Text) -> Result<Rendezvous, Failure> {
    let rank = match (&args.host, args.server) {
        (Some(_), _) => 1,
        (None, true) => 0,
        (None, false) => {
            return Ok(match world::launched()?.map(|_| bootstrap::from_env()).transpose()?.flatten() {
                Some(ranks) => Rendezvous::Ranks { ranks, client: 0 },
                None => Rendezvous::Here,
            });
        }
    };
    // A server and a client are the two ranks of a world, which meet at the server's port.
    let host = args.host.as_deref().unwrap_or("0.0.0.0");
    let host = if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host.to_owned() };
    let mut variables: BTreeMap<String, String> = ["WARPBELL_SECRET", "WARPBELL_SECRET_FILE"]
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), std::env::var(name).ok()?)))
        .collect();
    if variables.is_empty() {
        let how = "set WARPBELL_SECRET to the same value on both, as in WARPBELL_SECRET=$(openssl rand -hex 32)";
        return Err(Failure::Usage(format!("the two sides authenticate each other: {how}")));
    }
    for (name, value) in
        [("RANK", rank.to_string()), ("SIZE", "2".to_owned()), ("STORE", format!("{host}:{}", args.port))]
    {
        variables.insert(format!("WARPBELL_{name}"), value);
    }
    if args.server {
        text.line(format_args!("# waiting for a client at port {}", args.port))?;
    }
    let within = if args.server { RENDEZVOUS_LIMIT } else { CLIENT_RENDEZVOUS_LIMIT };
    let ranks = bootstrap::from_environment(&variables, within)?;
    ranks.map_or_else(|| Err(not_two(1).into()), |ranks| Ok(Rendezvous::Ranks { ranks, client: 1 }))
}

/// Rejects perftest's flags that have no meaning here, with the reason for each.
fn refuse_what_means_nothing(args: &RdmaArgs) -> Result<(), Failure> {
    let refused = [
        (args.mtu.is_some(), "-m: the MTU is the largest that both ports support; leave it out"),
        (args.rdma_cm, "-R: the two sides connect over TCP, without rdma_cm; leave it out"),
        (args.connection.as_deref().is_some_and(|c| c != "RC"), "-c: only reliable connections (RC) are supported"),
        (args.events, "-e: completions are polled; leave it out"),
    ];
    match refused.iter().find(|(given, _)| *given) {
        Some((_, why)) => Err(Failure::Usage((*why).to_owned())),
        None => Ok(()),
    }
}

fn setting(args: &RdmaArgs) -> Setting {
    let mut s = Setting::new(args.test);
    if !args.size.is_empty() {
        s.sizes = args.size.iter().map(|size| size.0).collect();
    }
    if args.all {
        s.sizes = ALL_SIZES.map(|log| 1 << log).collect();
    }
    s.iterations = args.iters.unwrap_or(s.iterations);
    s.duration = args.duration;
    s.queue_pairs = args.qp.unwrap_or(s.queue_pairs);
    s.tx_depth = args.tx_depth.unwrap_or(s.tx_depth);
    s.post_list = args.post_list.unwrap_or(s.post_list);
    s.cq_mod = args.cq_mod.unwrap_or(s.cq_mod);
    s.inline_bytes = args.inline_size.map_or(s.inline_bytes, |b| b.0);
    s.atomic = args.atomic_type;
    s.bidirectional = args.bidirectional;
    s.no_peak = args.no_peak;
    s.report_gbits = args.report_gbits;
    s
}

fn choice(args: &RdmaArgs) -> Result<AdapterChoice, Failure> {
    let transport = match args.transport {
        Some(AdapterKind::Auto) => None,
        Some(AdapterKind::Mlx5) => Some(Transport::Mlx5),
        Some(AdapterKind::Verbs) => Some(Transport::Verbs),
        Some(AdapterKind::Soft) => Some(Transport::Soft),
        None => match std::env::var(TRANSPORT_VARIABLE).ok().filter(|t| !t.trim().is_empty()) {
            Some(name) => {
                name.parse::<warpbell::shmem::Transport>().map_err(|e| Failure::about(TRANSPORT_VARIABLE, e))?.adapter()
            }
            None => None,
        },
    };
    let mut device =
        if transport == Some(Transport::Soft) { DeviceChoice::default() } else { DeviceChoice::from_environment()? };
    if let Some(name) = &args.ib_dev {
        device = device.named(name).map_err(|e| Failure::Usage(format!("--ib-dev {name}: {e}")))?;
    }
    device.port = args.ib_port.or(device.port);
    device.gid_index = args.gid_index.or(device.gid_index);
    let soft = args.soft.clone().or_else(|| std::env::var(SOFT_VARIABLE).ok()).unwrap_or_default();
    Ok(AdapterChoice { transport, device, soft, ..AdapterChoice::default() })
}

fn open_engine(args: &RdmaArgs) -> Result<Engine, Failure> {
    let asked = match (args.initiator, args.engine.engine) {
        (InitiatorChoice::Gpu, EngineChoice::Cpu) | (InitiatorChoice::CpuEngine, EngineChoice::Gpu(_)) => {
            return Err(Failure::Usage("--initiator and --engine name different engines".to_owned()));
        }
        (InitiatorChoice::Gpu, EngineChoice::Auto) => EngineChoice::Gpu(None),
        (InitiatorChoice::CpuEngine, _) => EngineChoice::Cpu,
        (_, engine) => engine,
    };
    engine::open(&EngineArgs { engine: asked, ..args.engine.clone() })
}

/// Row of a table, with the table's initiator.
#[derive(Serialize)]
struct Line<'a> {
    initiator: Initiator,
    #[serde(flatten)]
    row: &'a Row,
}

/// Results of one initiator.
struct Table {
    initiator: Initiator,
    rows: Vec<Row>,
    path: Value,
}

/// A measurement, as one side runs it.
struct Job<'a> {
    args: &'a RdmaArgs,
    setting: Setting,
    choice: AdapterChoice,
    engine: Engine,
}

impl Job<'_> {
    fn initiators(&self, transport: Transport) -> Vec<Initiator> {
        match self.args.initiator {
            InitiatorChoice::Both if transport == Transport::Verbs => {
                vec![Initiator::Kernel, Initiator::Host, Initiator::Verbs]
            }
            InitiatorChoice::Both => vec![Initiator::Kernel, Initiator::Host],
            InitiatorChoice::Verbs => vec![Initiator::Verbs],
            InitiatorChoice::Host => vec![Initiator::Host],
            _ => vec![Initiator::Kernel],
        }
    }

    /// Runs both sides as threads of this process, from one queue pair of an adapter to another queue pair of it.
    fn in_this_process(&self, text: &Text) -> Result<(), Failure> {
        let mut ranks = LocalBootstrap::all(2).into_iter();
        let (Some(client), Some(server)) = (ranks.next(), ranks.next()) else { return Ok(()) };
        let (adapter, notes) = self.choice.open(self.engine.space(), &client)?;
        let silent = Text::none();
        let (one, other) = std::thread::scope(|s| {
            let (adapter, notes, silent) = (adapter.as_ref(), &notes, &silent);
            let thread = std::thread::Builder::new().name("wb-server".to_owned());
            let other = thread.spawn_scoped(s, move || {
                let rows = self.side(adapter, &server, 0, silent, &[]);
                leave(&server, rows)
            })?;
            let one = self.side(adapter, &client, 0, text, notes);
            let one = leave(&client, one);
            Ok((one, other.join().unwrap_or_else(|e| std::panic::resume_unwind(e))))
        })
        .map_err(|e: std::io::Error| Failure::about("the thread of the server side cannot be started", e))?;
        let tables = one?;
        other?;
        self.report(&tables)
    }

    /// Runs this side of the measurement: one table for each initiator.
    fn side(
        &self,
        adapter: &dyn Adapter,
        ranks: &dyn Bootstrap,
        client: usize,
        text: &Text,
        notes: &[String],
    ) -> Result<Vec<Table>, Failure> {
        let (test, report_gbits) = (self.setting.test, self.setting.report_gbits);
        text.line(format_args!("# warpbell {}  bench rdma {test}  engine {}", env!("CARGO_PKG_VERSION"), self.engine))?;
        for note in notes {
            text.line(format_args!("# not used: {note}"))?;
        }
        let mut tables = Vec::new();
        for initiator in self.initiators(adapter.path().transport) {
            let side = Side { adapter, engine: &self.engine, ranks, client, deadline: self.args.engine.deadline };
            let mut bench = RdmaBench::new(side, self.setting.clone(), initiator)?;
            let path = bench.path();
            text.line(format_args!("# path {path}"))?;
            if let Some(note) = &path.note {
                text.line(format_args!("# note {note}"))?;
            }
            let who = match initiator {
                Initiator::Kernel => format!("kernels on {}, a warp for each queue pair", self.engine),
                Initiator::Verbs => "one CPU thread, by ibv_post_send".to_owned(),
                _ => "one CPU thread, on the same rings".to_owned(),
            };
            let list =
                if test.kind == Kind::Bandwidth { format!("  post list {}", bench.post_list()) } else { String::new() };
            text.line(format_args!("# initiator {initiator}: {who}{list}  data in {}", bench.memory()))?;
            text.line(format_args!("{}", bench.head(&path)))?;
            text.line(format_args!("{}", table::columns(&self.setting)))?;
            let mut rows = Vec::new();
            for bytes in self.setting.sizes.clone() {
                let row = bench.measure(bytes)?;
                text.line(format_args!("{}", row.figures.line(report_gbits)))?;
                if row.wrong > 0 {
                    text.line(format_args!("# wrong {} of {} messages of {bytes} bytes", row.wrong, row.verified))?;
                }
                rows.push(row);
            }
            text.line(format_args!("{}", table::LINE))?;
            let (verified, wrong) = count(&rows);
            text.line(format_args!("# {verified} messages verified, wrong {wrong}"))?;
            tables.push(Table { initiator, rows, path: json!(path) });
        }
        Ok(tables)
    }

    /// Writes the rows and the JSON report, then fails if a message arrived with wrong data.
    fn report(&self, tables: &[Table]) -> Result<(), Failure> {
        if let Some(to) = &self.args.output.csv {
            let lines = tables.iter().flat_map(|t| t.rows.iter().map(|row| Line { initiator: t.initiator, row }));
            output::write_rows(&Rows::of(lines)?, to)?;
        }
        if let Some(path) = &self.args.output.report.json {
            let config = json!({ "setting": self.setting, "deadline_ns": nanoseconds(self.args.engine.deadline) });
            let results: Vec<Value> =
                tables.iter().map(|t| json!({ "initiator": t.initiator, "path": t.path, "rows": t.rows })).collect();
            output::write_json("bench rdma", &Report::new(config, &self.engine, None, results), path)?;
        }
        checked(tables)
    }
}

/// Leaves the world if this side succeeded, so that the other side does not count it as lost.
fn leave(ranks: &LocalBootstrap, tables: Result<Vec<Table>, Failure>) -> Result<Vec<Table>, Failure> {
    if tables.is_ok() {
        ranks.leave();
    }
    tables
}

fn count(rows: &[Row]) -> (u64, u64) {
    rows.iter().fold((0, 0), |(verified, wrong), row| (verified + row.verified, wrong + row.wrong))
}

fn checked(tables: &[Table]) -> Result<(), Failure> {
    let wrong: u64 = tables.iter().map(|t| count(&t.rows).1).sum();
    if wrong > 0 {
        return Err(Failure::Error(format!("{wrong} messages arrived with wrong data: see the lines with `wrong`")));
    }
    Ok(())
}
