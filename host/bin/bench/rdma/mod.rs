//! Runs `warpbell bench rdma`: perftest's tests, with kernels and the CPU as initiators.

mod points;
mod report;

use crate::args::{AdapterKind, EngineArgs, EngineChoice, InitiatorChoice, RdmaArgs};
use crate::interrupt::Interrupt;
use crate::output::{Failure, Text};
use crate::workloads::rdma::{AdapterChoice, Initiator, Kind, RdmaBench, Setting, Side, agree, not_two, table};
use crate::{engine, world};
use points::Points;
use report::{Job, Table};
use serde_json::json;
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

/// Runs one test at all points with all chosen initiators, and prints a table for each.
///
/// # Errors
/// * [`Failure::Usage`] if options contradict each other or have no meaning here, or if a client or a server has no
///   `WARPBELL_SECRET`.
/// * [`Failure::BrokenPipe`] if standard output was closed.
/// * [`Failure::Error`] if the peer is absent or measures something else, an adapter, an engine or the measurement
///   fails, or a message arrived with wrong data. The rows before are in the files all the same.
pub fn run(args: &RdmaArgs, interrupt: &Interrupt) -> Result<(), Failure> {
    refuse_what_means_nothing(args)?;
    let points = Points::of(args)?;
    let choice = choice(args)?;
    let engine = open_engine(args)?;
    let _stop = interrupt.stops(&engine);
    let text = Text::of_measurement(&args.output)?;
    let bench = Bench { args, points, choice, engine };
    match rendezvous(args, &text)? {
        Rendezvous::Here => bench.in_this_process(&text),
        Rendezvous::Ranks { ranks, client } => {
            if ranks.size() != 2 {
                return Err(not_two(ranks.size()).into());
            }
            let speaks = ranks.rank() == client;
            let silent = Text::none();
            let choice = AdapterChoice { across: true, ..bench.choice.clone() };
            let (adapter, notes) = choice.open_with(bench.engine.space(), ranks.as_ref())?;
            let mut results = Results::new(if speaks { &text } else { &silent });
            let measured = bench.side(adapter.as_ref(), ranks.as_ref(), client, &notes, &mut results);
            measured.and(if speaks { bench.report(&results.tables) } else { report::checked(&results.tables) })
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

/// A measurement, as one side runs it.
struct Bench<'a> {
    args: &'a RdmaArgs,
    points: Points,
    choice: AdapterChoice,
    engine: Engine,
}

/// Output of one side, and its results.
struct Results<'t> {
    text: &'t Text,
    /// Tables that are complete, and the one at which a failure ended the measurement.
    tables: Vec<Table>,
}

impl<'t> Results<'t> {
    fn new(text: &'t Text) -> Self {
        Self { text, tables: Vec::new() }
    }
}

impl Bench<'_> {
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
        let (mut own, mut others) = (Results::new(text), Results::new(&silent));
        let (one, other) = std::thread::scope(|s| {
            let (adapter, others) = (adapter.as_ref(), &mut others);
            let thread = std::thread::Builder::new().name("wb-server".to_owned());
            let other = thread.spawn_scoped(s, move || self.side(adapter, &server, 0, &[], others))?;
            let one = self.side(adapter, &client, 0, &notes, &mut own);
            Ok((one, other.join().unwrap_or_else(|e| std::panic::resume_unwind(e))))
        })
        .map_err(|e: std::io::Error| Failure::about("the thread of the server side cannot be started", e))?;
        one.and(other).and(self.report(&own.tables))
    }

    /// Runs this side of the measurement: a table for each point and initiator. Leaves the world if all succeeded, so
    /// that the other side does not count this one as lost.
    fn side(
        &self,
        adapter: &dyn Adapter,
        ranks: &dyn Bootstrap,
        client: usize,
        notes: &[String],
        results: &mut Results<'_>,
    ) -> Result<(), Failure> {
        let side = Side { adapter, engine: &self.engine, ranks, client, deadline: self.args.engine.deadline };
        let initiators = self.initiators(adapter.path().transport);
        agree(&side, self.points.settings(), &initiators)?;
        let (test, text) = (self.args.test, results.text);
        text.line(format_args!("# warpbell {}  bench rdma {test}  engine {}", env!("CARGO_PKG_VERSION"), self.engine))?;
        for note in notes {
            text.line(format_args!("# not used: {note}"))?;
        }
        for setting in self.points.settings() {
            if let Some(title) = self.points.title(setting) {
                text.line(format_args!("# point: {title}"))?;
            }
            for initiator in &initiators {
                self.table(side, setting, *initiator, results)?;
            }
        }
        ranks.leave();
        Ok(())
    }

    /// Measures one point with one initiator, and prints its table.
    fn table(
        &self,
        side: Side<'_>,
        setting: &Setting,
        initiator: Initiator,
        results: &mut Results<'_>,
    ) -> Result<(), Failure> {
        let text = results.text;
        let mut bench = RdmaBench::new(side, setting.clone(), initiator)?;
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
        let list = match setting.test.kind {
            Kind::Bandwidth => format!("  post list {}", bench.post_list()),
            Kind::Latency => String::new(),
        };
        text.line(format_args!("# initiator {initiator}: {who}{list}  data in {}", bench.memory()))?;
        text.line(format_args!("{}", bench.head(&path)))?;
        text.line(format_args!("{}", table::columns(setting)))?;
        let table =
            results.tables.push_mut(Table { initiator, job: Job::of(setting), path: json!(path), rows: Vec::new() });
        for bytes in setting.sizes.clone() {
            let row = bench.measure(bytes)?;
            table.rows.push(row);
            text.line(format_args!("{}", row.figures.line(setting.report_gbits)))?;
            if row.wrong > 0 {
                text.line(format_args!("# wrong {} of {} messages of {bytes} bytes", row.wrong, row.verified))?;
            }
        }
        text.line(format_args!("{}", table::LINE))?;
        let (verified, wrong) = table.count();
        text.line(format_args!("# {verified} messages verified, wrong {wrong}"))
    }

    /// Writes what was measured, and fails if a message arrived with wrong data.
    fn report(&self, tables: &[Table]) -> Result<(), Failure> {
        report::write(self.args, &self.points, &self.engine, tables)?;
        report::checked(tables)
    }
}
