//! Tests of the seams for embedding: several images, streams and launches of the program, memory of the program. They run
//! on CPU threads, and on a GPU that is not there ([`fake`]).

use super::testing::{fake_gpu, start};
use super::{Args, Engine, EngineError, Grid, Image, OperationError, Outcome, RunError, abi};
use crate::args;
use crate::cuda::fake::{self, Allocation};
use crate::cuda::{CudaError, DeviceAccess};
use crate::memory::{MemoryError, Place};
use std::mem::offset_of;
use std::sync::Arc;
use std::time::{Duration, Instant};

const SOON: Duration = Duration::from_secs(20);
const AT_ONCE: Duration = Duration::from_millis(20);
const WARP: Grid = Grid { blocks: 1, threads: 32 };

/// An image with these kernels, each of which takes 8 bytes.
fn image(name: &str, kernels: &str) -> Image {
    Image::new(name).gpu(format!("wb_abi_fingerprint {kernels}").into_bytes())
}

fn gpu() -> (&'static fake::Gpu, Engine) {
    fake_gpu(&[image("mine", "mine")]).unwrap()
}

/// Enters an error in the engine's log, as a kernel does.
fn raise(engine: &Engine) {
    let status = abi::STATUS_DEVICE_ERROR << abi::STATUS_KIND_SHIFT | 0x281;
    let entry = abi::ErrorEntry { status, lba: 331, blocks: 8, opcode: 2, ..bytemuck::Zeroable::zeroed() };
    engine.0.control.log().set(offset_of!(abi::ErrorLog, entry), entry).unwrap();
    engine.0.control.log().set(offset_of!(abi::ErrorLog, count), 1u32).unwrap();
}

fn is_media_error(e: &RunError, name: &str) -> bool {
    let is_it = |e: &OperationError| e.lba == 331 && matches!(e.outcome, Outcome::DeviceError(s) if s.0 == 0x281);
    matches!(e, RunError::Operations { kernel, errors, count: 1 } if kernel == name && is_it(&errors[0]))
}

#[test]
fn a_gpu_engine_runs_the_kernels_of_several_images() {
    let (gpu, engine) = fake_gpu(&[image("a", "x"), image("b", "y z")]).unwrap();
    assert_eq!(engine.info().kernels, ["wb_abi_fingerprint", "x", "y", "z"]);
    for kernel in ["z", "x"] {
        start(&engine, kernel, WARP, args!(1u64)).unwrap().finish().unwrap();
    }
    assert_eq!(gpu.launches(), ["z", "x"]);
    let parts = Image::new("parts").gpu(&b"wb_abi_fingerprint x"[..]).gpu(&b"y"[..]);
    assert_eq!(fake_gpu(&[parts]).unwrap().1.info().kernels.len(), 3);
}

#[test]
fn images_that_cannot_stand_together_are_refused_by_name() {
    let refused = |images: &[Image]| fake_gpu(images).err().unwrap();
    let e = refused(&[image("a", "x y"), image("b", "z y")]);
    assert!(
        matches!(&e, EngineError::DuplicateKernel { kernel, images } if kernel == "y" && images == &["a", "b"]),
        "{e}"
    );
    let e = refused(&[image("a", "x"), image("old", "y other_headers")]);
    assert!(matches!(&e, EngineError::AbiMismatch { image: Some(name), .. } if name == "old"), "{e}");
    let e = refused(&[image("a", "x"), Image::new("bare").gpu(&b"y"[..])]);
    assert!(matches!(&e, EngineError::AbiMismatch { image: Some(name), found: 0, .. } if name == "bare"), "{e}");
    let e = refused(&[image("a", "x"), Image::new("for threads only")]);
    assert!(matches!(&e, EngineError::MissingImage { image, .. } if image == "for threads only"), "{e}");
    assert!(matches!(refused(&[]), EngineError::NoDeviceImage));
    // As nvJitLink returns it after PTX that it has rejected: an image that the driver loads.
    let linked = Image::new("linked").gpu(&b"wb_abi_fingerprint x"[..]).gpu(&b"  "[..]);
    let e = refused(&[image("a", "z"), linked]);
    assert!(matches!(&e, EngineError::EmptyImage { image, bytes: 2 } if image == "linked"), "{e}");
}

#[test]
fn a_shipped_kernel_and_one_of_its_name_are_named_on_cpu_threads() {
    let again = Image::new("again").cpu(super::CpuImage::shipped().unwrap());
    let e = Engine::builder().image(again.clone()).cpu().unwrap_err();
    assert!(matches!(&e, EngineError::DuplicateKernel { images, .. } if images == &["warpbell", "again"]), "{e}");
    let alone = Engine::builder().shipped(false).image(again).threads(1).cpu().unwrap();
    assert!(alone.info().kernels.contains(&"wb_iota".to_owned()) && alone.threads() == 1);
    let e = Engine::builder().image(image("mine", "x")).cpu().unwrap_err();
    assert!(matches!(&e, EngineError::MissingImage { image, .. } if image == "mine"), "{e}");
}

#[test]
fn work_of_the_program_is_a_run() {
    let (gpu, engine) = gpu();
    let raw = gpu.stream();
    let owner = Arc::new(());
    // SAFETY: streams of the fake stay until the process ends.
    let stream = unsafe { engine.adopt_stream(raw, owner.clone()) }.unwrap();
    assert_eq!(stream.raw(), Some(raw));
    let out = engine.allocate(Place::Device, 8).unwrap();
    let (weak, address) = (out.downgrade(), out.address());

    let mut run = engine.external("theirs", &stream).unwrap();
    assert!(!engine.is_idle());
    run.keep(&out);
    gpu.hold(raw, true);
    gpu.work_on(raw);
    drop((out, stream));
    assert!(!run.is_finished().unwrap());
    assert!(weak.upgrade().is_some() && Arc::strong_count(&owner) == 2, "the run keeps memory and stream");
    gpu.hold(raw, false);
    assert_eq!(run.finish().unwrap().elapsed, Duration::from_micros(1500));
    assert!(engine.is_idle() && weak.upgrade().is_none() && gpu.has_freed(address));
    assert_eq!(Arc::strong_count(&owner), 1);
}

#[test]
fn errors_of_the_programs_kernels_are_those_of_the_run() {
    let (gpu, gpu_engine) = gpu();
    let raw = gpu.stream();
    // SAFETY: streams of the fake stay until the process ends.
    let adopted = unsafe { gpu_engine.adopt_stream(raw, Arc::new(())) }.unwrap();
    let cpu = Engine::builder().threads(1).cpu().unwrap();
    for (engine, stream) in [(&gpu_engine, adopted), (&cpu, cpu.stream().unwrap())] {
        for round in 0..2 {
            let run = engine.external("theirs", &stream).unwrap();
            // The log of the round before is cleared.
            assert!(!engine.0.control.has_failed().unwrap(), "round {round}");
            raise(engine);
            let e = run.finish_within(SOON).unwrap_err();
            assert!(is_media_error(&e, "theirs"), "{e}");
        }
        engine.external("theirs", &stream).unwrap().finish().unwrap();
        assert!(engine.is_idle());
    }
}

#[test]
fn work_that_is_late_is_stopped_and_dropped_work_is_waited_for() {
    let (gpu, engine) = gpu();
    let stream = engine.stream().unwrap();
    let raw = stream.raw().unwrap();
    let later = |after: Duration| {
        let raw = raw as usize;
        std::thread::spawn(move || {
            std::thread::sleep(after);
            gpu.hold(raw as *mut _, false);
        })
    };
    gpu.hold(raw, true);
    let run = engine.external("late", &stream).unwrap();
    gpu.work_on(raw);
    let end = later(10 * AT_ONCE);
    let e = run.finish_within(AT_ONCE).unwrap_err();
    assert!(matches!(&e, RunError::TimedOut { kernel, .. } if kernel == "late"), "{e}");
    end.join().unwrap();

    gpu.hold(raw, true);
    let run = engine.external("dropped", &stream).unwrap();
    gpu.work_on(raw);
    let end = later(AT_ONCE);
    drop(run);
    assert!(gpu.is_done(raw) && engine.is_idle());
    end.join().unwrap();
}

#[test]
fn an_external_run_needs_a_stream_of_its_engine_that_is_not_captured() {
    let (gpu, engine) = gpu();
    let stream = engine.stream().unwrap();
    let raw = stream.raw().unwrap();
    let captured = |e: EngineError| matches!(e, EngineError::Cuda(CudaError::Capturing { .. }));
    gpu.capture(raw, true);
    assert!(captured(engine.external("theirs", &stream).unwrap_err()));
    assert!(engine.is_idle());
    // SAFETY: the fake's kernels do nothing.
    let e = unsafe { stream.launch("mine", WARP, args!(1u64)) }.unwrap_err();
    assert!(e.to_string().contains("being captured into a CUDA graph"), "{e}");
    assert!(captured(stream.wait_for(&engine.stream().unwrap()).unwrap_err()));
    gpu.capture(raw, false);

    // A capture that begins within the run delays its end.
    let run = engine.external("theirs", &stream).unwrap();
    gpu.capture(raw, true);
    let end = std::thread::spawn({
        let raw = raw as usize;
        move || {
            std::thread::sleep(AT_ONCE);
            gpu.capture(raw as *mut _, false);
        }
    });
    run.finish_within(SOON).unwrap();
    end.join().unwrap();

    let other = Engine::builder().threads(1).cpu().unwrap();
    assert!(matches!(engine.external("x", &other.stream().unwrap()), Err(EngineError::ForeignStream)));
    assert!(matches!(stream.wait_for(&other.stream().unwrap()), Err(EngineError::ForeignStream)));
}

#[test]
fn kernels_are_launched_on_a_stream_of_the_program() {
    let (gpu, engine) = gpu();
    let raw = gpu.stream();
    let owner = Arc::new(());
    // SAFETY: streams of the fake stay until the process ends.
    let stream = unsafe { engine.adopt_stream(raw, owner.clone()) }.unwrap();
    gpu.hold(raw, true);
    // SAFETY: the fake's kernels do nothing.
    unsafe { stream.launch("mine", WARP, args!(1u64)) }.unwrap();
    assert!(!stream.is_finished().unwrap());
    gpu.hold(raw, false);
    stream.clone().synchronize(SOON).unwrap();
    drop(stream);
    assert_eq!(Arc::strong_count(&owner), 1);
    assert_eq!(gpu.launches(), ["mine"]);
}

#[test]
fn streams_that_cannot_be_adopted_say_why() {
    let (_, engine) = gpu();
    // SAFETY: refused before any use.
    let adopt = |raw: usize| unsafe { engine.adopt_stream(raw as *mut _, Arc::new(())) }.err().map(|e| e.to_string());
    assert!(adopt(2).unwrap().contains("stream 0x2 cannot be used: it is the default stream of whichever thread"));
    assert!(adopt(0x1000).unwrap().contains("another context"));
    let cpu = Engine::builder().threads(1).cpu().unwrap();
    // SAFETY: refused before any use.
    let e = unsafe { cpu.adopt_stream(std::ptr::null_mut(), Arc::new(())) }.unwrap_err();
    assert!(matches!(e, EngineError::NoCudaStreams), "{e}");
    assert_eq!(cpu.stream().unwrap().raw(), None);
}

#[test]
fn streams_wait_for_each_other_without_the_host() {
    let (gpu, engine) = gpu();
    let theirs = gpu.stream();
    // SAFETY: streams of the fake stay until the process ends.
    let adopted = unsafe { engine.adopt_stream(theirs, Arc::new(())) }.unwrap();
    let own = engine.stream().unwrap();
    for (first, second) in [(&adopted, &own), (&own, &adopted)] {
        let (raw, later) = (first.raw().unwrap(), second.raw().unwrap());
        gpu.hold(raw, true);
        gpu.work_on(raw);
        second.wait_for(first).unwrap();
        gpu.work_on(later);
        assert!(!gpu.is_done(later));
        gpu.hold(raw, false);
        assert!(gpu.is_done(later));
    }
}

#[test]
fn streams_of_cpu_threads_wait_for_each_other() {
    let engine = super::testing::cpu();
    let out = engine.allocate(Place::Device, 1 << 20).unwrap();
    let (first, second) = (engine.stream().unwrap(), engine.stream().unwrap());
    let count = (out.len() / 8) as u64;
    for round in 0..20u64 {
        super::testing::put(&first, "wb_iota", engine.grid(128, 1), args!(&out, count, 2 * round, 0u64)).unwrap();
        second.wait_for(&first).unwrap();
        // Shorter: it would end before the kernel that it must follow.
        super::testing::put(&second, "wb_iota", engine.grid(128, 1), args!(&out, 1u64, 2 * round + 1, 0u64)).unwrap();
        first.wait_for(&second).unwrap();
    }
    first.synchronize(SOON).unwrap();
    second.synchronize(SOON).unwrap();
    assert_eq!(out.get::<u64>(0).unwrap(), 39);
    assert_eq!(out.get::<u64>(8).unwrap(), 38);
    first.wait_for(&first).unwrap();
    super::testing::put(&first, "wb_iota", engine.grid(128, 1), args!(&out, 1u64, 7u64, 0u64)).unwrap();
    first.synchronize(SOON).unwrap();
}

#[test]
fn gpu_memory_of_the_program_is_imported() {
    let (gpu, engine) = gpu();
    let space = engine.space();
    let plain = gpu.allocate(Allocation::plain(1 << 20));
    let owner = Arc::new(());
    // SAFETY: memory of the fake stays until the process ends.
    let import = |pointer, bytes| unsafe { space.import_device(pointer, bytes, owner.clone()) };
    let region = import(plain + 4096, 8192).unwrap();
    region.set(8184, 77u64).unwrap();
    // SAFETY: memory of the fake stays until the process ends.
    assert_eq!(unsafe { ((plain + 4096 + 8184) as *const u64).read() }, 77);
    assert_eq!((region.address(), region.reaches_devices().is_ok()), (plain + 4096, true));
    drop(region);
    assert!(Arc::strong_count(&owner) == 1 && !gpu.has_freed(plain), "it is the owner's to free");

    let pool = gpu.allocate(Allocation { pool: 9, ..Allocation::plain(1 << 16) });
    let mapped = gpu.allocate(Allocation { is_mapped: true, ..Allocation::plain(1 << 16) });
    for (at, cause) in [(pool, "stream-ordered pool"), (mapped, "gpuDirectRDMACapable")] {
        let region = import(at, 1 << 16).unwrap();
        region.set(0, 1u32).unwrap();
        let e = region.reaches_devices().unwrap_err();
        assert!(matches!(e, MemoryError::NotReachable { .. }) && e.to_string().contains(cause), "{e}");
        assert!(matches!(region.export_dma_buf(), Err(MemoryError::NotReachable { .. })));
    }
    let peer = gpu.allocate(Allocation { device: 1, ..Allocation::plain(1 << 16) });
    let host = gpu.allocate(Allocation { is_host: true, ..Allocation::plain(1 << 16) });
    for (at, bytes, cause) in [
        (peer, 64, "memory of GPU 1"),
        (host, 64, "import_host"),
        (plain, (1 << 20) + 1, "ends 1 bytes before"),
        (mapped, (1 << 16) + 1, "ends 1 bytes before"),
        (0x10, 64, "knows no memory at 0x10"),
        (plain, 0, "at least one byte"),
    ] {
        let e = import(at, bytes).unwrap_err();
        assert!(matches!(e, MemoryError::NotImportable { .. }) && e.to_string().contains(cause), "{e}");
    }
    let context = space.gpu_context().unwrap();
    assert_eq!(context.examine(plain, 64), Ok(Ok(DeviceAccess::Allowed)));
}

#[test]
fn a_guest_uses_no_default_stream_and_disturbs_no_capture() {
    let (gpu, engine) = gpu();
    let region = engine.allocate(Place::Device, 5 << 20).unwrap();
    region.fill(0, 4096, 1).unwrap();
    region.set_slice(0, &vec![7u8; 5 << 20]).unwrap();
    assert_eq!(region.get::<u8>((5 << 20) - 1).unwrap(), 7);
    drop(engine.allocate(Place::Host, 4096).unwrap());
    start(&engine, "mine", WARP, args!(1u64)).unwrap().finish().unwrap();
    let stream = engine.stream().unwrap();
    // SAFETY: the fake's kernels do nothing.
    unsafe { stream.launch("mine", WARP, args!(1u64)) }.unwrap();
    stream.synchronize(SOON).unwrap();
    engine.external("theirs", &stream).unwrap().finish().unwrap();
    drop((region, stream, engine));
    assert!(gpu.legacy_calls().is_empty(), "{:?}", gpu.legacy_calls());
    assert_eq!(gpu.refused_by_capture(), 0);
}

#[test]
fn a_capture_of_an_adopted_stream_is_not_invalidated() {
    let (gpu, engine) = gpu();
    let raw = gpu.stream();
    // SAFETY: streams of the fake stay until the process ends.
    let stream = unsafe { engine.adopt_stream(raw, Arc::new(())) }.unwrap();
    gpu.capture(raw, true);
    let region = engine.allocate(Place::Device, 8).unwrap();
    let address = region.address();
    drop(region);
    assert!(!gpu.has_freed(address) && gpu.invalidated() == 0);
    gpu.capture(raw, false);
    drop(stream);
    drop(engine.allocate(Place::Device, 8).unwrap());
    assert!(gpu.has_freed(address));
}

#[test]
fn the_stack_limit_is_restored_when_the_engine_is_gone() {
    let (gpu, engine) = fake_gpu(&[image("mine", "deep_4096")]).unwrap();
    assert_eq!((gpu.stack(), engine.info().stack_limit.unwrap().found), (4096, fake::STACK));
    drop(engine);
    assert_eq!(gpu.stack(), fake::STACK);
}

/// If the freeing call were made under a lock, the calls of this thread would never return.
#[test]
fn a_freeing_call_that_waits_for_other_code_holds_up_nobody_else() {
    let (gpu, engine) = gpu();
    let (first, second) = (engine.allocate(Place::Device, 8).unwrap(), engine.allocate(Place::Device, 8).unwrap());
    let address = second.address();
    gpu.hold_frees(true);
    let freeing = std::thread::spawn(move || drop(first));
    gpu.await_a_free();
    let began = Instant::now();
    drop(second);
    start(&engine, "mine", WARP, args!(1u64)).unwrap().finish().unwrap();
    let region = engine.allocate(Place::Device, 8).unwrap();
    region.set(0, 5u64).unwrap();
    assert!(began.elapsed() < SOON && !gpu.has_freed(address));
    gpu.hold_frees(false);
    freeing.join().unwrap();
    drop(region);
    assert!(gpu.has_freed(address), "what came meanwhile is freed too");
}

/// Memory waits while a kernel of other code runs, and its owner does not.
#[test]
fn memory_is_not_freed_behind_a_kernel_of_other_code() {
    let (gpu, engine) = gpu();
    let theirs = gpu.stream();
    gpu.hold(theirs, true);
    gpu.work_on(theirs);
    let region = engine.allocate(Place::Device, 8).unwrap();
    let address = region.address();
    drop(region);
    assert!(!gpu.has_freed(address));
    gpu.hold(theirs, false);
    drop(engine.allocate(Place::Device, 8).unwrap());
    assert!(gpu.has_freed(address));
}

#[test]
fn a_cancel_between_two_kernels_is_not_lost_and_can_be_taken_back() {
    let engine = super::testing::cpu();
    let out = engine.allocate(Place::Device, 8).unwrap();
    let launch = || start(&engine, "wb_iota", engine.grid(128, 1), args!(&out, 1u64, 7u64, 0u64));
    launch().unwrap().finish().unwrap();
    engine.cancel().unwrap();
    assert!(matches!(launch(), Err(EngineError::Cancelled)));
    assert!(matches!(engine.external("x", &engine.stream().unwrap()), Err(EngineError::Cancelled)));
    engine.resume().unwrap();
    out.set(0, 0u64).unwrap();
    launch().unwrap().finish().unwrap();
    assert_eq!(out.get::<u64>(0).unwrap(), 7);

    // Runs that were told to end have ended before others start.
    let run = launch().unwrap();
    engine.cancel().unwrap();
    let e = engine.resume().unwrap_err();
    assert!(matches!(e, EngineError::Busy { runs: 1 }) && engine.is_cancelled(), "{e}");
    let _ = run.finish();
    engine.resume().unwrap();
    launch().unwrap().finish().unwrap();
}

#[test]
fn handles_for_bindings_own_what_they_use() {
    fn is_owned<T: Send + 'static>() {}
    is_owned::<super::Run>();
    is_owned::<super::Stream>();
    is_owned::<Args>();
    is_owned::<Engine>();
    let mut args = Args::new();
    args.push_bytes(&[1; 160]);
    args.push_bytes(&[2; 3]);
    assert_eq!(args.sizes(), [160, 3]);
}

#[test]
fn small_regions_of_the_host_are_whole_pages_although_the_driver_packs_them() {
    let (_, engine) = gpu();
    let regions: Vec<_> = (0..8).map(|_| engine.space().allocate(Place::Host, 100).unwrap()).collect();
    for region in &regions {
        assert!(region.address().is_multiple_of(4096), "{:#x}", region.address());
        let mut bytes = [1; 100];
        region.read(0, &mut bytes).unwrap();
        assert_eq!(bytes, [0; 100]);
    }
}

#[cfg(all(feature = "storage", feature = "soft"))]
#[test]
fn transfers_of_a_captured_stream_are_refused_and_stay_prepared() {
    use crate::storage::{Drive, StreamQueue, Volume};
    let (gpu, engine) = gpu();
    let raw = gpu.stream();
    // SAFETY: a stream of the fake, which lives until the process ends.
    let stream = unsafe { engine.adopt_stream(raw, Arc::new(())) }.unwrap();
    let volume = Volume::on(&engine, [Drive::open("soft:mem:64k").unwrap()]).build().unwrap();
    let data = volume.allocate_data(512).unwrap();
    let queue = StreamQueue::new(&stream, &volume).unwrap();
    queue.prepare_read(0, 1, &data, 0).unwrap();
    gpu.capture(raw, true);
    let e = queue.trigger().unwrap_err().to_string();
    assert!(e.contains("being captured into a CUDA graph"), "{e}");
    assert!(engine.is_idle());
    gpu.capture(raw, false);
    stream.synchronize(SOON).unwrap();
}
