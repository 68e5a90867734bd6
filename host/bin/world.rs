//! Opens the world that a command line describes: one PE in each process of a launcher, or all PEs as threads of this
//! process.

use crate::agreement::{self, COMMAND, Facts};
use crate::args::{EngineArgs, EngineChoice, WorldArgs};
use crate::command_line::CommandLine;
use crate::engine;
use crate::interrupt::Interrupt;
use crate::output::Failure;
use parking_lot::Mutex;
use std::fmt;
use std::sync::OnceLock;
use warpbell::cuda::DeviceInfo;
use warpbell::engine::Engine;
use warpbell::shmem::bootstrap::{self, Bootstrap, Launched};
use warpbell::shmem::{Transport, World};

/// Default number of PEs on CPU threads: the minimum for communication.
const CPU_PES: usize = 2;

/// Command line of this process.
static COMMAND_LINE: OnceLock<CommandLine> = OnceLock::new();

/// Makes a command line the one that worlds compare between their ranks. Only the first call has an effect.
pub fn set_command_line(line: CommandLine) {
    let _ = COMMAND_LINE.set(line);
}

/// Plan of a world. [`Plan::run`] opens the world, when the size of its heaps is known.
pub struct Plan {
    /// Engines of this process's PEs, in the order of their numbers.
    engines: Vec<Engine>,
    /// Number of PEs of the world.
    pes: usize,
    /// Transport that the command line names.
    transport: Option<Transport>,
    /// Number of this process's first PE.
    first: usize,
    /// Bootstrap of this process's one PE, if a launcher started it. The world takes it.
    ranks: Mutex<Option<Box<dyn Bootstrap>>>,
}

/// Returns the launcher's description of this process, if a launcher started it as one of several ranks.
///
/// # Errors
/// [`Failure::Error`] if the launcher's environment variables are invalid.
pub fn launched() -> Result<Option<Launched>, Failure> {
    let variables = std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
    Ok(Launched::find(&variables.collect())?.filter(|l| l.size > 1))
}

impl Plan {
    /// Opens the engines of this process's PEs.
    ///
    /// # Errors
    /// [`Failure::Usage`] if `--pes` contradicts the launcher. [`Failure::Error`] if the launcher's variables are
    /// invalid, an engine cannot be opened, or the other ranks cannot be reached.
    pub fn new(args: &WorldArgs, engine: &EngineArgs) -> Result<Self, Failure> {
        let gpus = match engine.engine {
            EngineChoice::Cpu => 0,
            EngineChoice::Gpu(Some(_)) => 1,
            EngineChoice::Auto | EngineChoice::Gpu(None) => DeviceInfo::all().map_or(0, |all| all.len()),
        };
        if let Some(launched) = launched()? {
            return Self::of_rank(&launched, args, engine, gpus);
        }
        let pes = args.pes.map_or(if gpus > 1 { gpus } else { CPU_PES }, |n| n as usize);
        let engines = (0..pes).map(|pe| open(engine, pe, pes, gpus)).collect::<Result<_, _>>()?;
        Ok(Self { engines, pes, transport: args.transport.transport, first: 0, ranks: Mutex::new(None) })
    }

    /// Plans one PE: this process, with the launcher's rank. Connects to the other ranks, and compares their options.
    fn of_rank(launched: &Launched, args: &WorldArgs, engine: &EngineArgs, gpus: usize) -> Result<Self, Failure> {
        let size = launched.size;
        if let Some(asked) = args.pes.filter(|n| *n as usize != size) {
            return Err(Failure::Usage(format!(
                "--pes {asked}: {} started {size} ranks, and each is a PE; leave --pes out",
                launched.via
            )));
        }
        if launched.rank != 0 {
            // The rank of PE 0 says it.
            crate::progress::silence();
        }
        let place = launched.local_rank.unwrap_or(launched.rank);
        let engines = vec![open(engine, place, launched.local_size.unwrap_or(size), gpus)?];
        let ranks = bootstrap::from_env()?;
        if let (Some(ranks), Some(line)) = (&ranks, COMMAND_LINE.get()) {
            let mut facts = line.common_options().clone();
            facts.insert(COMMAND.to_owned(), line.name.clone());
            agreement::check(ranks.as_ref(), &facts, bootstrap::timeout_from_env()?)?;
        }
        let ranks = Mutex::new(ranks);
        Ok(Self { engines, pes: size, transport: args.transport.transport, first: launched.rank, ranks })
    }

    /// Compares a fact about what this rank has read with that of the other ranks, if there are other processes.
    /// Collective; call it before [`Plan::run`].
    ///
    /// # Errors
    /// [`Failure::Error`] if a rank has another value than rank 0, or cannot be reached.
    pub fn agree(&self, name: &str, value: impl FnOnce() -> String) -> Result<(), Failure> {
        match self.ranks.lock().as_deref() {
            Some(ranks) => {
                let facts = Facts::from([(name.to_owned(), value())]);
                agreement::check(ranks, &facts, bootstrap::timeout_from_env()?)
            }
            None => Ok(()),
        }
    }

    /// Returns the number of PEs of the world.
    pub fn pes(&self) -> usize {
        self.pes
    }

    /// Returns the engines of this process's PEs.
    pub fn engines(&self) -> &[Engine] {
        &self.engines
    }

    /// Returns the number of this process's first PE.
    pub fn first(&self) -> usize {
        self.first
    }

    /// Returns true if PE 0, which prints and writes the report, is in this process.
    pub fn speaks(&self) -> bool {
        self.first == 0
    }

    /// Runs `work` on every PE of this process, each on its own thread, in a world with heaps of `heap_bytes` bytes.
    /// Returns the results in the order of the PEs' numbers.
    ///
    /// # Errors
    /// The first error that `work` returned; the other PEs' kernels are then stopped. [`Failure::Error`] if the world
    /// cannot be opened.
    pub fn run<R: Send>(
        &self,
        heap_bytes: usize,
        interrupt: &Interrupt,
        work: impl Fn(&World) -> Result<R, Failure> + Sync,
    ) -> Result<Vec<R>, Failure> {
        let _stop = interrupt.stops_all(&self.engines);
        let ranks = self.ranks.lock().take();
        let worlds = match (ranks, self.engines.first()) {
            (Some(ranks), Some(own)) => {
                let mut builder = World::builder(own).heap_bytes(heap_bytes).bootstrap(ranks);
                if let Some(transport) = self.transport {
                    builder = builder.transport(transport);
                }
                vec![builder.build()?]
            }
            _ => match self.transport {
                Some(transport) => World::local_on_over(self.engines.clone(), heap_bytes, transport)?,
                None => World::local_on(self.engines.clone(), heap_bytes)?,
            },
        };
        let failure = Mutex::new(None);
        // The other PEs may be waiting for the one that failed inside their kernels.
        let stop = |e: Failure| {
            failure.lock().get_or_insert(e);
            for engine in &self.engines {
                // A kernel that cannot be stopped ends at its deadline.
                let _ = engine.cancel();
            }
        };
        let one = |world: World| match work(&world) {
            Ok(answer) => Some(answer),
            Err(e) => {
                // Kernels report their own errors to the other PEs, but nobody reports a signal: without it, ranks of
                // other processes would wait until their deadline.
                if interrupt.end().is_some() {
                    world.abandon();
                }
                stop(e);
                None
            }
        };
        let answers: Vec<Option<R>> = std::thread::scope(|s| {
            let one = &one;
            let start = |world| {
                let thread = std::thread::Builder::new().name("wb-pe".to_owned()).spawn_scoped(s, move || one(world));
                thread.map_err(|e| stop(Failure::about("a PE's thread cannot be started", e))).ok()
            };
            let threads: Vec<_> = worlds.into_iter().map_while(start).collect();
            threads.into_iter().map(|t| t.join().unwrap_or_else(|e| std::panic::resume_unwind(e))).collect()
        });
        match failure.into_inner() {
            Some(e) => Err(e),
            None => Ok(answers.into_iter().flatten().collect()),
        }
    }
}

/// Opens the engine of the PE with index `place` among `pes` PEs on this host. PEs take the GPUs in turn and share the
/// CPU threads.
fn open(args: &EngineArgs, place: usize, pes: usize, gpus: usize) -> Result<Engine, Failure> {
    let cores = warpbell::processors::count();
    let threads = args.threads.map_or((cores / pes).max(1), |n| n as usize);
    engine::open_on(args, place % gpus.max(1), threads)
}

/// Prints the number of PEs, the engines of this process's PEs, and a remark if some of them share a GPU.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names: Vec<String> = self.engines.iter().map(Engine::to_string).collect();
        let here = names.len();
        names.dedup();
        write!(f, "PEs {}  engine {}", self.pes, names.join(", "))?;
        let gpu = |e: &Engine| e.info().gpu.map(|g| g.ordinal);
        let mut gpus: Vec<_> = self.engines.iter().filter_map(gpu).collect();
        gpus.sort_unstable();
        gpus.dedup();
        match gpus.len() {
            0 => Ok(()),
            n if n == here => Ok(()),
            n => write!(
                f,
                "  ({here} PEs share {n} GPU{}: no link between GPUs is measured)",
                if n == 1 { "" } else { "s" }
            ),
        }
    }
}
