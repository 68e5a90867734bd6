//! Tests a program that has its own kernels, memory, threads and CUDA streams, and uses the library's devices and handles
//! from them. On GPUs `EMBEDDING_FATBIN` names the image, which nvcc has compiled from `device/embedding.cu`.
#![cfg(all(feature = "graph", feature = "shmem", feature = "soft", feature = "cpu-image"))]

mod driver;

use crate::image;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use warpbell::args;
use warpbell::engine::{Engine, EngineError, Grid, Image, Outcome, Run, RunError, Stream, abi};
use warpbell::graph::partition::{PartitionedBfs, PartitionedGraph};
use warpbell::graph::{Betweenness, Bfs, Cdlp, Components, Csr, CsrOptions, Graph, PageRank, Placement, Sssp};
use warpbell::memory::Place;
use warpbell::shmem::{Team, World};
use warpbell::storage::{Array, Cache, Drive, LandingChoice, OverwritePolicy, Volume};

const SOURCE: &str = "embedding.cu";
/// Environment variable that names the GPUs' image.
const FATBIN: &str = "EMBEDDING_FATBIN";
const LONG: Duration = Duration::from_secs(120);
const BLOCK: usize = 512;
/// Unrecovered Read Error (NVMe Base 2.1, 4.2.3.3: Media and Data Integrity Errors).
const UNRECOVERED_READ: u16 = 0x281;

fn library(folder: &Path) -> std::path::PathBuf {
    let library = folder.join("embedding.so");
    image::compile(SOURCE, 1, &[], &library);
    library
}

fn own_image(library: &Path) -> Image {
    Image::new("embedding").cpu(image::load(library, c"warpbell_embedding"))
}

/// Fails unless the run failed at block 331, which the device cannot read.
fn check_media_error(e: &RunError) {
    let RunError::Operations { kernel, errors, .. } = e else { panic!("{e:?}") };
    assert_eq!(kernel, "reads of the program");
    let first = &errors[0];
    assert_eq!((first.lba, first.blocks), (331, 1), "{e}");
    assert!(matches!(first.outcome, Outcome::DeviceError(s) if s.0 & 0x7ff == UNRECOVERED_READ), "{e}");
    assert!(e.to_string().contains("LBA 331"), "{e}");
}

fn numbers(volume: &Volume) -> Vec<u8> {
    (0..volume.bytes()).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 13) as u8).collect()
}

/// Compiles only if values of the type can be kept for any time, and moved to and used by any thread.
const fn is_owned<T: Send + Sync + 'static>() {}

/// Compiles only if values of the type can be kept for any time, and moved to any thread.
const fn moves<T: Send + 'static>() {}

/// Handles that programs and bindings keep. A run has the stream and events of one thread's launch: one thread at a time uses it.
const _: () = {
    is_owned::<Engine>();
    is_owned::<Stream>();
    moves::<Run>();
    is_owned::<Volume>();
    is_owned::<Cache>();
    is_owned::<Array<u32>>();
    is_owned::<World>();
    is_owned::<Team>();
    is_owned::<Graph>();
    is_owned::<Bfs>();
    is_owned::<Sssp>();
    is_owned::<Betweenness>();
    is_owned::<Cdlp>();
    is_owned::<PageRank>();
    is_owned::<Components>();
    is_owned::<PartitionedGraph>();
    is_owned::<PartitionedBfs>();
};

/// One engine has the program's kernels, those of graph algorithms, and those of a world's host calls.
#[test]
fn own_kernels_graph_algorithms_and_a_world_share_an_engine() {
    let folder = tempfile::tempdir().unwrap();
    let builder = Engine::builder().threads(2).image(own_image(&library(folder.path())));
    let engines: Vec<Engine> = (0..2).map(|_| builder.clone().cpu().unwrap()).collect();
    let worlds = World::local_on(engines, 4 << 20).unwrap();
    std::thread::scope(|s| {
        for world in &worlds {
            s.spawn(|| {
                let engine = world.engine();
                let edges: Vec<(u64, u64)> = (0..99).map(|i| (i, i + 1)).collect();
                let csr = Csr::from_edges(100, &edges, CsrOptions::default()).unwrap();
                let depth = Graph::from_csr(engine, csr, Placement::Gpu).unwrap().bfs(0).unwrap().depth;
                assert_eq!(depth, (0..100).collect::<Vec<u32>>());

                let inbox = world.calloc::<u64>(1).unwrap();
                let team = world.team_world();
                let (mine, grid) = (world.my_pe() as u64 + 40, Grid { blocks: 1, ..engine.grid(32, 1) });
                let mut args = args!();
                args.push_bytes(bytemuck::bytes_of(&world.view()));
                args.push_bytes(bytemuck::bytes_of(&team.view()));
                // SAFETY: the kernel's own arguments; world and team outlive the run.
                let run = unsafe { engine.launch("embedding_pass", grid, args.with(&inbox).with(mine)) };
                run.unwrap().finish_within(LONG).unwrap();
                assert_eq!(inbox.read(0, 1).unwrap(), [41 - world.my_pe() as u64]);

                let volume =
                    Volume::on(engine, [Drive::create("soft:mem", 1 << 20, &OverwritePolicy::none()).unwrap()]);
                let volume = volume.build().unwrap();
                volume.store_array("depth", &depth).unwrap();
                let cache = Cache::on(&volume).bytes(64 << 10).build().unwrap();
                let (array, sum) = (cache.open::<u32>("depth").unwrap(), engine.allocate(Place::Device, 8).unwrap());
                let mut args = args!();
                args.push_value(array.view());
                // SAFETY: the kernel's own arguments; the array outlives the run.
                unsafe { engine.launch("embedding_sum", engine.grid(32, 1), args.with(&sum)) }
                    .unwrap()
                    .finish()
                    .unwrap();
                assert_eq!(sum.get::<u64>(0).unwrap(), 99 * 100 / 2);
                // Host calls of arrays and worlds are shipped kernels.
                assert_eq!(array.read(98..100).unwrap(), [98, 99]);
                world.barrier_all().unwrap();
            });
        }
    });
}

#[test]
fn two_images_with_a_kernel_of_one_name_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let library = library(folder.path());
    let again = Image::new("another").cpu(image::load(&library, c"warpbell_embedding"));
    let e = Engine::builder().image(own_image(&library)).image(again).cpu().unwrap_err();
    let EngineError::DuplicateKernel { kernel, images } = &e else { panic!("{e}") };
    assert!(kernel.starts_with("embedding_") && images == &["embedding", "another"], "{e}");
    assert!(e.to_string().contains("`embedding`") && e.to_string().contains("`another`"), "{e}");
}

/// An interrupt comes at any time: during a kernel of a search, or between two.
#[test]
fn a_search_is_interrupted_wherever_it_is_and_the_engine_goes_on() {
    let engine = Engine::builder().threads(1).cpu().unwrap();
    let edges: Vec<(u64, u64)> = (0..399).map(|v| (v, v + 1)).collect();
    let graph = Graph::from_csr(&engine, Csr::from_edges(400, &edges, CsrOptions::default()).unwrap(), Placement::Gpu);
    let graph = graph.unwrap();
    for after in [0, 1, 3, 7] {
        let interrupt = std::thread::spawn({
            let engine = engine.clone();
            move || {
                std::thread::sleep(Duration::from_millis(after));
                engine.cancel().unwrap();
            }
        });
        let interrupted = (0..).find_map(|_| graph.bfs(0).err()).unwrap();
        assert!(
            interrupted.to_string().contains("cancel") || interrupted.to_string().contains("stop"),
            "{interrupted}"
        );
        interrupt.join().unwrap();
        engine.resume().unwrap();
        assert_eq!(graph.bfs(0).unwrap().depth, (0..400).collect::<Vec<u32>>());
    }
}

/// A thread of the program runs its kernel. Reads land in the program's own buffer, and errors are those of the run.
#[test]
fn a_program_reads_into_its_own_memory_on_its_own_thread() {
    let folder = tempfile::tempdir().unwrap();
    let library = library(folder.path());
    type Read = unsafe extern "C" fn(abi::VolumeView, u64, u64, *mut u8);
    // SAFETY: embedding.cu defines the function with this type.
    let read: Read = unsafe { std::mem::transmute(image::find(&library, c"embedding_read_here")) };
    let engine = Engine::builder().threads(1).image(own_image(&library)).cpu().unwrap();
    for landing in [LandingChoice::Direct, LandingChoice::Bounce] {
        let volume = |spec| Volume::on(&engine, [Drive::open(spec).unwrap()]).landing(landing).build().unwrap();
        let (good, bad) = (volume("soft:mem:256k"), volume("soft:mem:256k,media-error=331-331"));
        let data = numbers(&good);
        good.write_blocks(0, &data).unwrap();

        let mut buffer = vec![0u8; data.len()];
        let pointer = buffer.as_mut_ptr();
        let buffer = Arc::new(buffer);
        // SAFETY: the vector's elements do not move, and the region keeps them.
        let region = unsafe { engine.space().import_device(pointer as u64, data.len(), buffer.clone()) }.unwrap();
        let registered = [good.map(&region).unwrap(), bad.map(&region).unwrap()];
        let stream = engine.stream().unwrap();
        for (volume, first, fails) in [(&good, 0, false), (&bad, 300, true), (&good, 8, false)] {
            let mut run = engine.external("reads of the program", &stream).unwrap();
            run.keep(volume);
            run.keep(&region);
            let (view, n) = (volume.view(), volume.blocks() - first);
            let to = pointer as usize + first as usize * BLOCK;
            // SAFETY: the run keeps the volume; the buffer holds the blocks and outlives the thread.
            std::thread::spawn(move || unsafe { read(view, first, n, to as *mut u8) }).join().unwrap();
            match run.finish_within(LONG) {
                Err(e) if fails => check_media_error(&e),
                other => assert!(other.is_ok() && !fails, "{other:?}"),
            }
        }
        drop((registered, region));
        assert!(*buffer == data, "{landing:?}: what the device wrote is not what the host wrote");
    }
}

/// On a GPU, the program makes a context, a stream, a buffer and a module through the CUDA driver, and launches
/// its kernel with cuLaunchKernel.
#[test]
#[ignore = "needs a GPU"]
fn a_program_reads_into_its_own_gpu_memory_on_its_own_stream() {
    let (_, fatbin) = image::gpu_image(FATBIN, SOURCE, &[]);
    let cuda = driver::Program::start(&fatbin);
    let engine = Engine::builder().image(Image::new("embedding").gpu(fatbin)).gpu(0).unwrap();
    // SAFETY: the program keeps the stream.
    let stream = unsafe { engine.adopt_stream(cuda.stream(), cuda.clone()) }.unwrap();
    assert_eq!(stream.raw(), Some(cuda.stream()));

    let volume = |spec| Volume::on(&engine, [Drive::open(spec).unwrap()]).build().unwrap();
    let (good, bad) = (volume("soft:mem:256k"), volume("soft:mem:256k,media-error=331-331"));
    let data = numbers(&good);
    good.write_blocks(0, &data).unwrap();
    let buffer = cuda.allocate(data.len());
    // SAFETY: the program keeps the buffer.
    let region = unsafe { engine.space().import_device(buffer, data.len(), cuda.clone()) }.unwrap();
    region.reaches_devices().unwrap();
    let registered = [good.map(&region).unwrap(), bad.map(&region).unwrap()];

    // A kernel of the engine clears the memory, behind the program's work and before it, without the host.
    let own = engine.stream().unwrap();
    // SAFETY: the types of `wb_iota`: out, count, start, step.
    unsafe { own.launch("wb_iota", engine.grid(128, 1), args!(&region, data.len() as u64 / 8, 0u64, 0u64)) }.unwrap();
    stream.wait_for(&own).unwrap();
    for (volume, first, fails) in [(&good, 0, false), (&bad, 300, true), (&good, 8, false)] {
        let mut run = engine.external("reads of the program", &stream).unwrap();
        run.keep(volume);
        run.keep(&region);
        cuda.read(volume.view(), first, volume.blocks() - first, buffer + first * BLOCK as u64);
        match run.finish_within(LONG) {
            Err(e) if fails => {
                println!("{e}");
                check_media_error(&e);
            }
            other => println!("the program's kernel ran for {:?}", other.unwrap().elapsed),
        }
        // The flags of a failed run are reset when no other run is unfinished.
        own.synchronize(LONG).unwrap();
    }
    own.wait_for(&stream).unwrap();
    own.synchronize(LONG).unwrap();
    let mut found = vec![0; data.len()];
    region.read(0, &mut found).unwrap();
    assert!(found == data, "what the kernel read is not what the host wrote");

    // A run that is dropped is waited for.
    let run = engine.external("dropped", &stream).unwrap();
    cuda.read(good.view(), 0, good.blocks(), buffer);
    drop(run);
    assert!(engine.is_idle());

    // A stream that is being captured is refused by name, and the capture is not disturbed.
    let capture = cuda.capture();
    let e = engine.external("captured", &stream).unwrap_err();
    assert!(e.to_string().contains("being captured into a CUDA graph"), "{e}");
    drop(engine.allocate(Place::Device, 1 << 20).unwrap());
    cuda.read(good.view(), 0, good.blocks(), buffer);
    let graph = capture.end();
    let run = engine.external("a graph of the program", &stream).unwrap();
    graph.launch();
    run.finish_within(LONG).unwrap();

    // Memory of a pool is for kernels, not for devices.
    let pooled = cuda.allocate_from_pool(1 << 16);
    // SAFETY: the program allocated the memory and keeps it.
    let pooled = unsafe { engine.space().import_device(pooled, 1 << 16, cuda.clone()) }.unwrap();
    println!("{}", pooled.reaches_devices().unwrap_err());
    drop((registered, region, pooled, stream));
}
