//! Environments of programs: worlds of CPU engines, with the tests' own image at several warp widths; or of this
//! machine's GPUs, if `WARPBELL_TEST_ENGINE` is `gpu`. `SHMEM_CALLS_FATBIN` then names the image, which nvcc has
//! compiled from `device/shmem_image.cu`.

use super::op::{Kind, OWN, Op};
use super::program::Program;
use super::raw::Limits;
use crate::{image, tree};
use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, OnceLock};
use warpbell::args;
use warpbell::cuda::DeviceInfo;
use warpbell::engine::{CpuImage, Engine, Grid, Image};
use warpbell::memory::Place as Memory;
use warpbell::shmem::{Transport, World};

/// Bytes of a heap: for the teams' data, and for the arena.
const HEAP: usize = 16 << 20;

/// Returns the kernels of `shmem_calls.cu` for CPU threads, compiled once for each width. Calls check their addresses.
pub fn image(width: u32) -> CpuImage {
    static IMAGES: OnceLock<Mutex<HashMap<u32, CpuImage>>> = OnceLock::new();
    let mut images = IMAGES.get_or_init(Mutex::default).lock().unwrap_or_else(|e| e.into_inner());
    *images.entry(width).or_insert_with(|| compile(width))
}

fn compile(width: u32) -> CpuImage {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let library = folder.path().join("calls.so");
    compile_to(&library, width);
    load(&library)
}

/// The source of the image, and its compiler options: tests make calls that only a checked build rejects.
const SOURCE: &str = "shmem_image.cu";
const CHECKED: &str = "-DWB_CHECKED=1";
/// Environment variable that names the GPUs' image.
const FATBIN: &str = "SHMEM_CALLS_FATBIN";

/// Compiles the image to a library.
pub fn compile_to(library: &Path, width: u32) {
    image::compile(SOURCE, width, &["-O0", CHECKED], library);
}

fn load(library: &Path) -> CpuImage {
    image::load(library, c"warpbell_shmem_calls")
}

/// Returns the GPUs of this machine in turn as an engine for each of `n` PEs.
fn gpu_engines(n: usize) -> Vec<Engine> {
    let (path, image) = image::gpu_image(FATBIN, SOURCE, &[CHECKED]);
    let gpus = DeviceInfo::all().expect("GPUs").len();
    let builder = Engine::builder().shipped(false).image(Image::new(SOURCE).gpu(image));
    let engine = |i: usize| builder.clone().gpu(i % gpus).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let engines: Vec<Engine> = (0..n).map(engine).collect();
    require_checks(&engines[0], &path).unwrap_or_else(|e| panic!("{e}"));
    engines
}

/// Fails if the engine's image, which is from this file, was compiled without checks. A call that must be rejected
/// would then access memory that does not exist, and no later test could use the GPU.
///
/// # Errors
///
/// Fails with a text that names the file and the command that compiles it with checks.
pub fn require_checks(engine: &Engine, path: &Path) -> Result<(), String> {
    if engine.is_checked() {
        return Ok(());
    }
    let make = image::nvcc_command(SOURCE, &[CHECKED]);
    Err(format!("{} was compiled without {CHECKED}; compile it with `{make}`", path.display()))
}

/// Returns an engine of one thread with the image's kernels alone: the shipped ones have warps of one lane.
fn cpu_engine(image: CpuImage) -> Engine {
    let builder = Engine::builder().shipped(false).threads(1).image(Image::new(SOURCE).cpu(image));
    builder.cpu().expect("a CPU engine")
}

fn cpu_engines(n: usize, width: u32) -> Vec<Engine> {
    (0..n).map(|_| cpu_engine(image(width))).collect()
}

/// Environment variable by which a rank of [`between_processes`] finds the image. All ranks have the same image, with
/// warps of one lane.
const LIBRARY: &str = "SHMEM_CALLS_LIBRARY";

/// Limit of one wait of a rank, and of all ranks, in seconds: longer than eight processes take on two processors that
/// have other work too. There, one rank's host came 10 s after the kernels of others.
const DEADLINE_S: u64 = 120;
const LIMIT_S: u64 = 600;

/// Runs a test of this program again as each rank of a world of `n` processes, and returns their output. All must
/// succeed.
pub fn between_processes(n: usize, test: &str, transport: &str) -> String {
    static FOLDER: OnceLock<tempfile::TempDir> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        compile_to(&folder.path().join("calls.so"), 1);
        folder
    });
    let this = std::env::current_exe().expect("this program has a name");
    let mut command = Command::new(tree::program());
    command.args(["run", "--timeout", &format!("{LIMIT_S}s"), "-n", &n.to_string(), "--"]).arg(this);
    command
        .args([test, "--exact", "--ignored", "--nocapture", "--test-threads=1"])
        .env(LIBRARY, folder.path().join("calls.so"));
    command.env("WARPBELL_TRANSPORT", transport).env("WARPBELL_QUEUES_PER_PEER", "4");
    let out = command.output().expect("the launcher starts");
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{n} ranks: {}\n{said}\n{}", out.status, String::from_utf8_lossy(&out.stderr));
    said
}

/// A world: all PEs if they are threads, one of them if they are processes.
pub struct Place {
    pub worlds: Vec<World>,
    pub grid: Grid,
}

impl Place {
    /// Creates `n` PEs on CPU threads, each with blocks of `warps` warps of `width`; or on GPUs in turn, with the GPU's
    /// warps.
    pub fn new(n: usize, width: u32, warps: u32) -> Self {
        Self::over(None, n, width, warps)
    }

    /// Creates a place with this transport between the PEs; without one, that of the environment.
    pub fn over(transport: Option<Transport>, n: usize, width: u32, warps: u32) -> Self {
        match std::env::var("WARPBELL_TEST_ENGINE").as_deref() {
            Ok("gpu") => Self::of(gpu_engines(n), transport, warps),
            Ok(other) => panic!("WARPBELL_TEST_ENGINE is `{other}`: leave it out, or write gpu"),
            Err(_) => Self::of(cpu_engines(n, width), transport, warps),
        }
    }

    /// Creates `n` PEs on CPU threads, whatever the environment says.
    pub fn on_cpu(n: usize, width: u32, warps: u32) -> Self {
        Self::of(cpu_engines(n, width), None, warps)
    }

    fn of(engines: Vec<Engine>, transport: Option<Transport>, warps: u32) -> Self {
        let threads = warps * engines[0].warp_width();
        let worlds = match transport {
            Some(transport) => World::local_on_over(engines, HEAP, transport),
            None => World::local_on(engines, HEAP),
        };
        Self { worlds: worlds.expect("a world"), grid: Grid { blocks: 1, threads } }
    }

    /// Returns this process as a rank that [`between_processes`] started.
    pub fn of_this_rank() -> Self {
        let library = std::env::var_os(LIBRARY).expect("an image, which the test that starts it names");
        let engine = cpu_engine(load(Path::new(&library)));
        engine.set_deadline(std::time::Duration::from_secs(DEADLINE_S)).expect("memory of this process");
        let world = World::builder(&engine).heap_bytes(HEAP).build().expect("a world");
        Self { worlds: vec![world], grid: Grid { blocks: 1, threads: 1 } }
    }

    /// Returns the number of PEs of the world.
    pub fn pes(&self) -> usize {
        self.worlds[0].n_pes()
    }

    pub fn limits(&self, arena: usize) -> Limits {
        let all_types = !self.worlds[0].engine().is_gpu();
        Limits { pes: self.pes(), arena, threads: self.grid.threads, all_types }
    }

    /// Runs something on every PE at once.
    pub fn on_all<T: Send>(&self, f: impl Fn(&World) -> T + Sync) -> Vec<T> {
        let f = &f;
        std::thread::scope(|s| {
            let threads: Vec<_> = self.worlds.iter().map(|w| s.spawn(move || f(w))).collect();
            threads.into_iter().map(|t| t.join().expect("a PE's thread")).collect()
        })
    }

    /// Runs a program, and compares its result with the model's.
    ///
    /// # Errors
    ///
    /// Fails with a text that describes the first difference, or the error of a kernel.
    pub fn check(&self, mut program: Program) -> Result<(), String> {
        // The last puts arrive before any PE compares.
        program.barrier();
        let program = &program;
        let differences = self.on_all(|world| run(world, self.grid, program));
        differences.into_iter().collect()
    }
}

/// Runs the part of one PE.
fn run(world: &World, grid: Grid, program: &Program) -> Result<(), String> {
    let me = world.my_pe();
    let before = &program.before[me];
    let arena = world.malloc::<u8>(before.arena.len()).expect("an arena");
    arena.write(0, &before.arena).expect("it is that long");
    let engine = world.engine();
    let own = engine.allocate(Memory::Device, before.own.len()).expect("memory");
    own.set_slice(0, &before.own).expect("it is that long");
    let calls: Vec<Op> = program.calls[me].iter().map(|op| at(op, arena.offset() as u64)).collect();
    let ops = engine.allocate(Memory::Device, std::mem::size_of_val(&calls[..]).max(8)).expect("memory");
    ops.set_slice(0, &calls).expect("it is that long");
    let answers = engine.allocate(Memory::Device, 8 * before.answers.len().max(1)).expect("memory");
    world.barrier_host().expect("all PEs come");
    let args = args!(world, &ops, calls.len() as u64, &own, &answers);
    // SAFETY: the kernel's own arguments; memory is passed by reference, which keeps it.
    let ran = unsafe { engine.launch("calls_run", grid, args) }.expect("a launch").finish();
    ran.map_err(|e| format!("PE {me}: {e}"))?;
    let after = &program.model.pes[me];
    let same = |what: &str, got: &[u8], expected: &[u8]| match got.iter().zip(expected).position(|(a, b)| a != b) {
        Some(i) => Err(format!("PE {me}: {what} byte {i}: {:#x} and not {:#x}", got[i], expected[i])),
        None => Ok(()),
    };
    let got = arena.read(0, before.arena.len()).expect("it is that long");
    same("arena", &got, &after.arena)?;
    same("private buffer", &own.get_slice::<u8>(0, before.own.len()).expect("it is that long"), &after.own)?;
    let got = answers.get_slice::<u64>(0, before.answers.len()).expect("it is that long");
    for op in &program.calls[me] {
        let range = op.answer as usize..(op.answer + op.answers()) as usize;
        let silent = matches!(op.kind(), Kind::Quiet | Kind::Flush | Kind::Barrier);
        let mut expected = after.answers.get(range.clone()).unwrap_or_default().to_vec();
        // The model loads through any address; there is none where loads do not reach.
        if op.kind() == Kind::Ptr && op.pe as usize != me && world.path().transport != "peer" {
            expected[0] = u64::MAX;
        }
        if !silent && got[range.clone()] != *expected {
            return Err(format!("PE {me}: {:?} returns {:?} and not {expected:?}: {op:?}", op.kind(), &got[range]));
        }
    }
    Ok(())
}

/// Returns a call with the arena's offset in the heap added to its addresses.
fn at(op: &Op, arena: u64) -> Op {
    let place = |address: u64| if address & OWN != 0 { address } else { address + arena };
    Op { to: place(op.to), from: place(op.from), sig: op.sig + arena, ..*op }
}
