//! Tests kernels that go on after a page could not be read, on CPU threads, or on a GPU if `WARPBELL_TEST_ENGINE` is
//! `gpu`. `FAILING_KERNELS_FATBIN` then names the image, which nvcc has compiled from `device/failing.cu`.
#![cfg(all(feature = "storage", feature = "soft"))]

use crate::image;
use std::time::Duration;
use warpbell::args;
use warpbell::engine::{Engine, Image, Outcome, Run, RunError};
use warpbell::memory::{Place, Region};
use warpbell::storage::{Array, Cache, Drive, Volume};

/// Longer than a slow machine takes: only a kernel that does not end reaches this limit.
const LONG: Duration = Duration::from_secs(120);

const SOURCE: &str = "failing.cu";

fn engine() -> Engine {
    match std::env::var("WARPBELL_TEST_ENGINE").as_deref() {
        Ok("gpu") => {
            let (path, image) = image::gpu_image("FAILING_KERNELS_FATBIN", SOURCE, &[]);
            let builder = Engine::builder().image(Image::new("failing").gpu(image));
            return builder.gpu(0).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        }
        Ok(other) => panic!("WARPBELL_TEST_ENGINE is `{other}`: leave it out, or write gpu"),
        Err(_) => {}
    }
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join("failing.so");
    image::compile(SOURCE, 1, &[], &library);
    let image = Image::new("failing").cpu(image::load(&library, c"warpbell_failing"));
    Engine::builder().threads(2).image(image).cpu().unwrap()
}

fn start(engine: &Engine, spec: &str) -> (Run, Region) {
    let volume = Volume::on(engine, [Drive::open(spec).unwrap()]).build().unwrap();
    let cache = Cache::on(&volume).bytes(64 << 10).build().unwrap();
    let array: Array<u64> = cache.array(0, volume.bytes() / 8).unwrap();
    let rounds = engine.allocate(Place::Device, 8).unwrap();
    let grid = engine.grid(128, 1);
    // SAFETY: the kernel's own arguments; what they name is passed by reference, which keeps it.
    let run = unsafe { engine.launch("read_until_failed", grid, args!(&array, &rounds)) }.unwrap();
    (run, rounds)
}

#[test]
fn a_kernel_that_reads_on_sees_that_its_run_has_failed() {
    let engine = engine();
    let (run, rounds) = start(&engine, "soft:mem:256k,media-error=331-331");
    match run.finish_within(LONG) {
        Err(RunError::Operations { errors, .. }) => {
            let e = errors.iter().find(|e| matches!(e.outcome, Outcome::DeviceError(_))).expect("the cause");
            assert!((e.lba..e.lba + u64::from(e.blocks)).contains(&331), "{e:?}");
        }
        other => panic!("{other:?}"),
    }
    assert!(rounds.get::<u64>(0).unwrap() > 0);
}

#[test]
fn a_kernel_that_reads_on_sees_that_it_is_to_end() {
    let engine = engine();
    let (run, rounds) = start(&engine, "soft:mem:256k");
    run.stop().unwrap();
    run.finish_within(LONG).unwrap();
    assert!(rounds.get::<u64>(0).unwrap() > 0);
}
