//! Tests the flat device functions of `bindings/device` on CPU threads, or on a GPU: each is called against real arrays, volumes
//! and worlds. Kernels: `device/device_functions.cu`. With `WARPBELL_TEST_ENGINE=gpu`, `DEVICE_FUNCTIONS_FATBIN` names the image that
//! nvcc has compiled from it.
#![cfg(all(feature = "storage", feature = "shmem", feature = "soft"))]

use crate::image;
use crate::tree;
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;
use warpbell::args;
use warpbell::engine::{Args, CpuImage, Engine, Grid, Image, Outcome, RunError};
use warpbell::memory::{Place, Region};
use warpbell::shmem::{Transport, World};
use warpbell::storage::{Cache, Drive, Element, LandingChoice, OverwritePolicy, Volume};

const SOURCE: &str = "device_functions.cu";
const CHECKED: &str = "-DWB_CHECKED=1";
/// Limit of a kernel: CPU threads of a machine with other work take minutes.
const LONG: Duration = Duration::from_secs(600);
/// Widths of warps on CPU threads.
const WIDTHS: [u32; 2] = [1, 4];
/// Warps of the block that calls the functions.
const WARPS: u32 = 2;

fn is_on_gpu() -> bool {
    match std::env::var("WARPBELL_TEST_ENGINE").as_deref() {
        Ok("gpu") => true,
        Ok(other) => panic!("WARPBELL_TEST_ENGINE is `{other}`: leave it out, or write gpu"),
        Err(_) => false,
    }
}

/// Widths of warps to test: a GPU has its own.
fn widths() -> &'static [u32] {
    if is_on_gpu() { &[32] } else { &WIDTHS }
}

/// Returns the kernels for CPU threads, compiled once for each width.
fn cpu_image(width: u32) -> CpuImage {
    static IMAGES: OnceLock<Mutex<HashMap<u32, CpuImage>>> = OnceLock::new();
    let mut images = IMAGES.get_or_init(Mutex::default).lock().unwrap_or_else(|e| e.into_inner());
    *images.entry(width).or_insert_with(|| {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("device_functions.so");
        image::compile(SOURCE, width, &[CHECKED], &library);
        image::load(&library, c"warpbell_device_functions")
    })
}

/// Returns an engine with warps of `width` lanes; the GPU's, whatever `width` is.
fn engine(width: u32) -> Engine {
    if is_on_gpu() {
        let (_, fatbin) = image::gpu_image("DEVICE_FUNCTIONS_FATBIN", SOURCE, &[CHECKED]);
        return Engine::builder().image(Image::new("device functions").gpu(fatbin)).gpu(0).unwrap();
    }
    let image = Image::new("device functions").cpu(cpu_image(width));
    Engine::builder().shipped(false).threads(1).image(image).cpu().unwrap()
}

/// A block that runs kernels of the image, and their report.
struct Block {
    engine: Engine,
    report: Region,
    views: Region,
}

impl Block {
    fn new(engine: &Engine) -> Self {
        let region = |bytes| {
            let region = engine.allocate(Place::Device, bytes).unwrap();
            region.fill(0, bytes, 0).unwrap();
            region
        };
        Self { engine: engine.clone(), report: region(64), views: region(1024) }
    }

    fn threads(&self) -> u32 {
        WARPS * self.engine.warp_width()
    }

    /// Puts a view to memory that kernels see, and returns its address.
    fn view<T: bytemuck::Pod>(&self, slot: usize, view: T) -> u64 {
        self.views.write(slot * 512, bytemuck::bytes_of(&view)).unwrap();
        self.views.address() + slot as u64 * 512
    }

    fn launch(&self, kernel: &str, args: Args) -> Result<(), RunError> {
        let grid = Grid { blocks: 1, threads: self.threads() };
        // SAFETY: the kernel's own arguments; the caller keeps what they name until the run is over.
        unsafe { self.engine.launch(kernel, grid, args.with(&self.report)) }.unwrap().finish_within(LONG).map(drop)
    }

    /// Runs a kernel, whose checks must all hold. There are at least `least` of them.
    fn check(&self, kernel: &str, args: Args, least: u64) {
        self.report.fill(0, 24, 0).unwrap();
        self.launch(kernel, args).unwrap_or_else(|e| panic!("{kernel}: {e}"));
        let [checks, failures, line] = self.report.get::<[u64; 3]>(0).unwrap();
        assert_eq!(failures, 0, "{kernel}: {failures} of {checks} checks failed, one in line {line} of {SOURCE}");
        assert!(checks >= least, "{kernel}: {checks} checks");
    }

    /// Runs a call with a mistake. Returns its result and the error of the run.
    fn mistake(&self, which: u32, view: u64) -> (u64, RunError) {
        let error = self.launch("flat_mistake", args!(which, view)).expect_err("a mistake");
        (self.report.get(0).unwrap(), error)
    }
}

fn volume(engine: &Engine, landing: LandingChoice) -> Volume {
    let drive = Drive::create("soft:mem", 8 << 20, &OverwritePolicy::none()).unwrap();
    Volume::on(engine, [drive]).landing(landing).build().unwrap()
}

/// Elements of the arrays. Those of four bytes and more need more pages than the cache has.
const ELEMENTS: u64 = 1100;

fn element(i: u64) -> u8 {
    (i * 3 % 199 + 1) as u8
}

fn changed(i: u64) -> u8 {
    element(i) + u8::from(i % 4 < 2)
}

/// Stores an array, runs the kernels of its type, and reads the array again from the volume. `adds` is true for types with atomics.
fn check_array<T>(block: &Block, volume: &Volume, name: &str, of: impl Fn(u8) -> T, adds: bool)
where
    T: Element + Copy + PartialEq + std::fmt::Debug,
{
    let elements: Vec<T> = (0..ELEMENTS).map(|i| of(element(i))).collect();
    volume.store_array(name, &elements).unwrap();
    // Eight pages: others are evicted, and written back.
    let cache = Cache::on(volume).page(512).bytes(4 << 10).build().unwrap();
    let array = cache.open::<T>(name).unwrap();
    let view = block.view(0, array.view());
    block.check(&format!("flat_array_{name}"), args!(view, ELEMENTS), 3 * ELEMENTS);
    let mut wanted: Vec<T> = (0..ELEMENTS).map(|i| of(changed(i))).collect();
    if !name.starts_with('f') {
        let buffer = block.engine.allocate(Place::Device, ELEMENTS as usize * size_of::<T>()).unwrap();
        block.check(&format!("flat_read_{name}"), args!(view, ELEMENTS, &buffer), u64::from(block.threads()));
    }
    if adds {
        block.check(&format!("flat_add_{name}"), args!(view), u64::from(2 * block.threads()));
        wanted[0] = of(changed(0) + block.threads() as u8);
        wanted[1] = of(changed(1) + block.threads() as u8);
    }
    cache.flush().unwrap();
    volume.accept_changes().unwrap();
    assert_eq!(volume.read_array::<T>(name).unwrap(), wanted, "{name}");
}

#[test]
fn each_function_of_arrays_does_what_it_says() {
    for &width in widths() {
        let engine = engine(width);
        let (block, volume) = (Block::new(&engine), volume(&engine, LandingChoice::Auto));
        check_array::<u8>(&block, &volume, "u8", |v| v, false);
        check_array::<u16>(&block, &volume, "u16", u16::from, false);
        check_array::<u32>(&block, &volume, "u32", u32::from, true);
        check_array::<u64>(&block, &volume, "u64", u64::from, true);
        check_array::<f32>(&block, &volume, "f32", f32::from, false);
        check_array::<f64>(&block, &volume, "f64", f64::from, false);
    }
}

#[test]
fn each_function_of_volumes_does_what_it_says() {
    for &width in widths() {
        let engine = engine(width);
        let block = Block::new(&engine);
        // A software device does not write to the memory of a GPU.
        let landings = [LandingChoice::Bounce, LandingChoice::Direct];
        for &landing in if engine.is_gpu() { &landings[..1] } else { &landings[..] } {
            let volume = volume(&engine, landing);
            let bytes = 8 * block.threads() as usize * volume.block_bytes();
            // Whole pages of a GPU, so that its devices reach them.
            let buffer = engine.allocate(Place::Device, bytes.next_multiple_of(64 << 10)).unwrap();
            let registered = volume.map(&buffer).unwrap();
            let view = block.view(0, volume.view());
            let args = args!(view, volume.blocks(), volume.block_bytes() as u32, &buffer);
            block.check("flat_volume", args, 24 * u64::from(block.threads()));
            drop(registered);
        }
    }
}

/// Bytes of `symmetric` of the kernels.
const SYMMETRIC: usize = 32 * (3 * 8 + 2 * 192) + 8;

/// Runs a kernel on both PEs of a world, with zeroes in the heap before.
fn on_both(worlds: &[World], kernel: &str, with_team: bool) {
    std::thread::scope(|s| {
        for world in worlds {
            s.spawn(move || {
                let block = Block::new(world.engine());
                let heap = world.calloc::<u8>(SYMMETRIC).unwrap();
                let team = world.team_world();
                let mut args = args!(block.view(0, world.view()));
                if with_team {
                    args.push_value(block.view(1, team.view()));
                }
                world.barrier_host().unwrap();
                block.check(kernel, args.with(&heap), 4);
                world.barrier_host().unwrap();
            });
        }
    });
}

/// Transports between PEs: the machine's default, and the software adapter.
const TRANSPORTS: [Option<Transport>; 2] = [None, Some(Transport::Soft)];

#[test]
fn each_function_of_worlds_does_what_it_says() {
    for (&width, transport) in widths().iter().flat_map(|w| TRANSPORTS.map(|t| (w, t))) {
        let engines = vec![engine(width), engine(width)];
        let worlds = match transport {
            Some(transport) => World::local_on_over(engines, 4 << 20, transport),
            None => World::local_on(engines, 4 << 20),
        };
        let worlds = worlds.unwrap();
        for kernel in ["flat_values", "flat_memory", "flat_words_u32", "flat_words_u64"] {
            on_both(&worlds, kernel, false);
        }
        on_both(&worlds, "flat_meet", true);
    }
}

fn outcome_of(e: &RunError) -> Outcome {
    let RunError::Operations { errors, .. } = e else { panic!("{e:?}") };
    errors[0].outcome
}

/// A call with a mistake returns poison or a status word, and the run fails with a bad argument.
#[test]
fn mistakes_are_in_the_error_of_the_run() {
    const POISON: u64 = u64::MAX;
    /// WB_STOPPED and WB_BAD_ARGUMENT as status words (`status.h`).
    const STOPPED: u64 = 4 << 28;
    const BAD: u64 = 6 << 28;
    for &width in widths() {
        let engine = engine(width);
        let (block, volumes) = (Block::new(&engine), Block::new(&engine));
        let volume = volume(&engine, LandingChoice::Bounce);
        volume.store_array("numbers", &[1u32, 2, 3]).unwrap();
        let cache = Cache::on(&volume).bytes(64 << 10).build().unwrap();
        let array = cache.open::<u32>("numbers").unwrap();
        let worlds = World::local_on(vec![engine.clone()], 4 << 20).unwrap();
        let of_array = block.view(0, array.view());
        let of_world = block.view(1, worlds[0].view());
        let of_volume = volumes.view(0, volume.view());
        let calls = [
            (of_array, vec![(0, POISON >> 32), (1, POISON >> 48), (2, 1), (3, STOPPED), (4, STOPPED), (5, STOPPED)]),
            (of_volume, vec![(6, BAD), (7, BAD)]),
            (of_world, vec![(8, BAD), (9, BAD), (10, BAD), (11, 0), (12, 0), (13, 0)]),
        ];
        for (view, mistakes) in calls {
            for (which, result) in mistakes {
                let (found, error) = block.mistake(which, view);
                assert_eq!(outcome_of(&error), Outcome::BadArgument, "mistake {which}, width {width}: {error}");
                // With a share of the block's threads in the range, the first thread may see only that the run has failed.
                let stopped = which == 7 && found == STOPPED;
                assert!(found == result || stopped, "mistake {which}, width {width}: {found:#x}");
            }
        }
    }
}

/// The kernels call each function of the header: none is left without a test.
#[test]
fn each_function_of_the_header_is_called_here() {
    let root = tree::root();
    let header = std::fs::read_to_string(root.join("bindings/device/warpbell_device.h")).unwrap();
    let declared: BTreeSet<&str> = header.lines().filter_map(name_of_function).collect();
    assert!(declared.len() > 100, "{declared:?}");
    let mut command = Command::new(std::env::var_os("CXX").unwrap_or_else(|| "c++".into()));
    command.args(["-xc++", "-std=c++20", "-E", "-I"]).arg(root.join("kernels/include"));
    let output = command.arg(root.join("tests/device").join(SOURCE)).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let called: BTreeSet<&str> = lines_of_file(&text, SOURCE).flat_map(identifiers).collect();
    let missing: Vec<_> = declared.difference(&called).collect();
    assert!(missing.is_empty(), "{SOURCE} calls none of {missing:?}");
}

/// Expands the braces of a name in the documentation: `a{,_b}` is `a` and `a_b`.
fn expanded(name: &str) -> Vec<String> {
    let Some((before, rest)) = name.split_once('{') else { return vec![name.to_owned()] };
    let (choices, after) = rest.split_once('}').expect("a closing brace");
    choices.split(',').flat_map(|choice| expanded(&format!("{before}{choice}{after}"))).collect()
}

/// The table of the documentation has each function of the header once.
#[test]
fn the_table_of_the_documentation_is_complete() {
    let root = tree::root();
    let header = std::fs::read_to_string(root.join("bindings/device/warpbell_device.h")).unwrap();
    let mut declared: Vec<&str> = header.lines().filter_map(name_of_function).collect();
    let page = std::fs::read_to_string(root.join("docs/device-functions.md")).unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| `wbd_"));
    let mut listed: Vec<String> =
        rows.flat_map(|row| row.split('`').filter(|t| t.starts_with("wbd_"))).flat_map(expanded).collect();
    declared.sort_unstable();
    listed.sort_unstable();
    assert_eq!(listed, declared);
}

/// Returns the name of the function that a line of the header declares.
fn name_of_function(line: &str) -> Option<&str> {
    let (before, _) = line.strip_prefix("WB_FLAT ")?.split_once('(')?;
    before.split(' ').nth(1)
}

/// Returns the preprocessed lines that come from a file of this name.
fn lines_of_file<'a>(text: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    let mut here = false;
    text.lines().filter(move |line| {
        if let Some(marker) = line.strip_prefix("# ") {
            let path = marker.split('"').nth(1).unwrap_or_default();
            here = Path::new(path).file_name().is_some_and(|file| file == name);
        }
        here && !line.starts_with('#')
    })
}

fn identifiers(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
}
