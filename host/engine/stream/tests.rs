use super::*;
use crate::args;
use crate::engine::abi;
use crate::engine::testing::{self, put};
use crate::memory::{Place, Region};
use bytemuck::Zeroable;
use std::time::Instant;

const SOON: Duration = Duration::from_secs(20);

fn one_warp(engine: &Engine) -> Grid {
    Grid { blocks: 1, threads: engine.info().warp_width }
}

#[test]
fn kernels_run_in_order() {
    let engine = testing::engine(0);
    let out = engine.allocate(Place::Device, 1000 * 8).unwrap();
    let stream = engine.stream().unwrap();
    for round in 0..20u64 {
        // Later kernels write fewer elements, so they would end sooner. Out of order or in parallel, earlier ones
        // would overwrite them.
        let n = 1000 - round * 50;
        put(&stream, "wb_iota", engine.grid(128, 1), args!(&out, n, round, 0u64)).unwrap();
    }
    stream.synchronize(SOON).unwrap();
    let got = out.get_slice::<u64>(0, 1000).unwrap();
    for (i, v) in got.iter().enumerate() {
        assert_eq!(*v, (999 - i as u64) / 50, "element {i}");
    }
    assert!(engine.is_idle() && stream.is_finished().unwrap());
    assert_eq!(stream.synchronize(SOON).unwrap().elapsed, Duration::ZERO);
}

#[test]
fn wrong_launches_are_refused_at_once_and_disturb_nothing() {
    let engine = testing::engine(0);
    let out = engine.allocate(Place::Device, 8).unwrap();
    let stream = engine.stream().unwrap();
    let grid = one_warp(&engine);
    let iota = |n: u64| args!(&out, n, 7u64, 0u64);
    assert!(matches!(put(&stream, "nothing", grid, args!()), Err(EngineError::NoKernel(_))));
    assert!(engine.is_idle());
    put(&stream, "wb_iota", grid, iota(1)).unwrap();
    assert!(matches!(put(&stream, "wb_iota", grid, args!(1u32)), Err(EngineError::Arguments { .. })));
    stream.synchronize(SOON).unwrap();
    assert_eq!(out.get::<u64>(0).unwrap(), 7);
}

/// Returns the arguments of a kernel that waits until a word equals 5. The word stays 0. The world is one PE, and
/// its heap is the word.
fn in_vain(engine: &Engine, word: &Region) -> Args {
    let mut args = Args::new();
    args.push_value(abi::World {
        control: engine.control_address(),
        heap: word.address(),
        heap_bytes: word.len() as u64,
        size: 1,
        flags: abi::WORLD_LOAD_STORE,
        ..abi::World::zeroed()
    });
    args.with(word).with(EQUAL).with(5u64).with(abi::NO_PE)
}

/// `warpbell::cmp::eq`.
const EQUAL: u32 = 0;
const FOR_LONG: Duration = Duration::from_secs(3600);

fn engine_with(deadline: Duration) -> (Engine, Region, Region) {
    let engine = testing::engine(0);
    engine.set_deadline(deadline).unwrap();
    let (word, out) = (engine.allocate(Place::Device, 8).unwrap(), engine.allocate(Place::Device, 8).unwrap());
    (engine, word, out)
}

#[test]
fn an_error_in_the_middle_ends_what_is_behind_it_and_is_told_once() {
    let (engine, word, out) = engine_with(Duration::from_millis(50));
    let stream = engine.stream().unwrap();
    let grid = one_warp(&engine);
    put(&stream, "wb_iota", grid, args!(&out, 1u64, 1u64, 0u64)).unwrap();
    put(&stream, "wb_shmem_signal_wait", grid, in_vain(&engine, &word)).unwrap();
    put(&stream, "wb_iota", grid, args!(&out, 1u64, 2u64, 0u64)).unwrap();
    let e = stream.synchronize(SOON).unwrap_err();
    // A GPU does not report which kernel failed, and starts the kernels behind it.
    let on_gpu = engine.is_gpu();
    let named = if on_gpu { "wb_iota, wb_shmem_signal_wait, wb_iota" } else { "wb_shmem_signal_wait" };
    assert!(matches!(&e, RunError::Operations { kernel, .. } if kernel == named), "{e}");
    assert_eq!(out.get::<u64>(0).unwrap(), if on_gpu { 2 } else { 1 });
    stream.synchronize(SOON).unwrap();
    put(&stream, "wb_iota", grid, args!(&out, 1u64, 3u64, 0u64)).unwrap();
    stream.synchronize(SOON).unwrap();
    assert_eq!(out.get::<u64>(0).unwrap(), 3);
}

#[test]
fn a_wait_in_pieces_ends_with_the_kernels_or_their_error() {
    let (engine, word, out) = engine_with(Duration::from_millis(300));
    let stream = engine.stream().unwrap();
    assert!(stream.wait(SOON).unwrap());
    put(&stream, "wb_iota", one_warp(&engine), args!(&out, 1u64, 7u64, 0u64)).unwrap();
    assert!(stream.wait(SOON).unwrap());
    stream.synchronize(SOON).unwrap();
    assert_eq!(out.get::<u64>(0).unwrap(), 7);
    put(&stream, "wb_shmem_signal_wait", one_warp(&engine), in_vain(&engine, &word)).unwrap();
    assert!(!stream.wait(Duration::from_millis(1)).unwrap());
    assert!(stream.wait(SOON).unwrap());
    assert!(matches!(stream.synchronize(SOON), Err(RunError::Operations { .. })));
    assert!(engine.is_idle());
}

#[test]
fn what_runs_when_a_stream_is_dropped_is_stopped() {
    let (engine, word, out) = engine_with(FOR_LONG);
    let stream = engine.stream().unwrap();
    put(&stream, "wb_shmem_signal_wait", one_warp(&engine), in_vain(&engine, &word)).unwrap();
    put(&stream, "wb_iota", one_warp(&engine), args!(&out, 1u64, 2u64, 0u64)).unwrap();
    assert!(!stream.is_finished().unwrap());
    drop(stream);
    assert!(engine.is_idle());
    assert_eq!(out.get::<u64>(0).unwrap(), if engine.is_gpu() { 2 } else { 0 });
    let stream = engine.stream().unwrap();
    put(&stream, "wb_iota", one_warp(&engine), args!(&out, 1u64, 2u64, 0u64)).unwrap();
    stream.synchronize(SOON).unwrap();
}

#[test]
fn kernels_that_are_late_are_stopped() {
    let (engine, word, _) = engine_with(FOR_LONG);
    let stream = engine.stream().unwrap();
    put(&stream, "wb_shmem_signal_wait", one_warp(&engine), in_vain(&engine, &word)).unwrap();
    let e = stream.synchronize(Duration::from_millis(20)).unwrap_err();
    assert!(e.to_string().contains("wb_shmem_signal_wait"), "{e}");
    assert!(engine.is_idle());
}

#[test]
fn kernels_that_did_not_begin_are_told() {
    let (engine, word, out) = engine_with(FOR_LONG);
    let stream = engine.stream().unwrap();
    put(&stream, "wb_shmem_signal_wait", one_warp(&engine), in_vain(&engine, &word)).unwrap();
    put(&stream, "wb_iota", one_warp(&engine), args!(&out, 1u64, 2u64, 0u64)).unwrap();
    stream.stop().unwrap();
    assert!(stream.synchronize(SOON).is_err());
    assert_eq!(out.get::<u64>(0).unwrap(), if engine.is_gpu() { 2 } else { 0 });
}

#[test]
fn a_stream_keeps_arguments_until_it_was_waited_for() {
    let engine = testing::engine(0);
    let out = engine.allocate(Place::Device, 8).unwrap();
    let weak = out.downgrade();
    let stream = engine.stream().unwrap();
    for i in 0..100u64 {
        put(&stream, "wb_iota", one_warp(&engine), args!(&out, 1u64, i, 0u64)).unwrap();
    }
    drop(out);
    assert_eq!(stream.0.state().kept.len(), 1, "one share of each thing");
    assert!(weak.upgrade().is_some());
    stream.synchronize(SOON).unwrap();
    assert!(weak.upgrade().is_none());
    let out = engine.allocate(Place::Device, 8).unwrap();
    let weak = out.downgrade();
    put(&stream, "wb_iota", one_warp(&engine), args!(&out, 1u64, 1u64, 0u64)).unwrap();
    let stream = std::mem::ManuallyDrop::new(stream);
    drop(out);
    assert!(weak.upgrade().is_some(), "a stream that is forgotten leaks it");
    drop(std::mem::ManuallyDrop::into_inner(stream));
    assert!(weak.upgrade().is_none());
}

#[test]
fn names_are_few() {
    let kernels: Vec<String> = (0..6).map(|i| format!("k{i}")).collect();
    assert_eq!(names(&kernels[..2]), "k0, k1");
    assert_eq!(names(&kernels), "k0, k1, k2, k3, and 2 more");
}

#[test]
fn what_is_kept_is_collected_once_all_kernels_have_ended() {
    let (engine, word, out) = engine_with(FOR_LONG);
    let stream = engine.stream().unwrap();
    assert!(stream.collect().unwrap());
    let weak = out.downgrade();
    put(&stream, "wb_shmem_signal_wait", one_warp(&engine), in_vain(&engine, &word)).unwrap();
    put(&stream, "wb_iota", one_warp(&engine), args!(&out, 1u64, 2u64, 0u64)).unwrap();
    drop(out);
    // It neither waits nor stops what runs.
    assert!(!stream.collect().unwrap() && !engine.is_idle() && !engine.0.control.is_stopped());
    word.set(0, 5u64).unwrap();
    let begun = Instant::now();
    while !stream.collect().unwrap() {
        assert!(begun.elapsed() < SOON);
        std::thread::yield_now();
    }
    assert!(engine.is_idle() && weak.upgrade().is_none());
}
