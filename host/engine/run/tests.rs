use crate::args;
use crate::engine::testing::start;
use crate::engine::{Engine, EngineError, Grid, RunError, abi};
use crate::memory::Place;
use std::time::Duration;

#[test]
fn a_kernel_runs_on_cpu_threads() {
    let engine = Engine::cpu().unwrap();
    let out = engine.allocate(Place::Device, 1000 * 8).unwrap();
    let run = start(&engine, "wb_iota", engine.grid(128, 1), args!(&out, 1000u64, 5u64, 3u64)).unwrap();
    run.finish().unwrap();
    let got = out.get_slice::<u64>(0, 1000).unwrap();
    assert!(got.iter().enumerate().all(|(i, v)| *v == 5 + 3 * i as u64));
}

#[test]
fn a_kernel_that_goes_on_after_an_error_is_not_waited_for_for_ever() {
    use super::{LOOK, await_end};
    use std::cell::Cell;
    let hour = Duration::from_secs(3600);
    let waits = Cell::new(0);
    let never = |slice: Duration| {
        assert!(slice <= LOOK);
        waits.set(waits.get() + 1);
        Ok(false)
    };
    // The third check reports a failure, and the grace is 0.
    assert_eq!(await_end(hour, Duration::ZERO, || Ok(waits.get() >= 3), never), Ok(false));
    assert_eq!(waits.get(), 4);
    assert_eq!(await_end(Duration::ZERO, hour, || Ok(false), |_| Ok(false)), Ok(false));
    assert_eq!(await_end(hour, Duration::ZERO, || Ok(true), |_| Ok(true)), Ok(true), "an end is an end");
    assert_eq!(await_end(hour, hour, || Ok(false), |_| Err("broke".to_owned())), Err("broke".to_owned()));
}

/// Writes an entry to the engine's error log, and its number of errors.
fn log(engine: &Engine, status: u32, count: u32) {
    let entry = abi::ErrorEntry { status, lba: 331, blocks: 8, opcode: 2, ..bytemuck::Zeroable::zeroed() };
    engine.0.control.log.set(std::mem::offset_of!(abi::ErrorLog, entry), entry).unwrap();
    engine.0.control.log.set(std::mem::offset_of!(abi::ErrorLog, count), count).unwrap();
}

#[test]
fn a_stuck_kernel_keeps_the_cause() {
    let engine = Engine::cpu().unwrap();
    log(&engine, 3, 2);
    let e = super::stuck(&engine, "kernel".to_owned(), Duration::from_secs(1));
    let text = e.to_string();
    assert!(matches!(&e, RunError::Stuck { errors, count: 2, .. } if errors[0].lba == 331), "{e:?}");
    assert!(text.contains("after an error: ") && text.contains("331") && text.contains("and 1 more"), "{text}");
    assert!(matches!(start(&engine, "wb_iota", engine.grid(128, 1), args!()), Err(EngineError::Poisoned)));
}

#[test]
fn a_run_beyond_its_limit_has_no_other_error_than_that() {
    let engine = Engine::cpu().unwrap();
    let limit = Duration::from_secs(1);
    let judged = |kind: u32, late| {
        log(&engine, kind << abi::STATUS_KIND_SHIFT, 1);
        super::judge(&engine, "kernel", super::End { late, interrupted: false }, Vec::new()).unwrap_err()
    };
    assert!(matches!(judged(abi::STATUS_STOPPED, Some(limit)), RunError::TimedOut { .. }));
    assert!(matches!(judged(abi::STATUS_STOPPED, None), RunError::Operations { .. }));
    assert!(matches!(judged(abi::STATUS_TIMED_OUT, Some(limit)), RunError::Operations { .. }));
}

#[test]
fn nothing_starts_after_a_cancel() {
    let engine = Engine::cpu().unwrap();
    engine.cancel().unwrap();
    let launched = start(&engine, "wb_iota", engine.grid(128, 1), args!(0u64, 0u64, 0u64, 0u64));
    assert!(matches!(launched, Err(EngineError::Cancelled)));
}

#[test]
fn a_kernel_that_was_done_already_is_no_error() {
    let engine = Engine::cpu().unwrap();
    let out = engine.allocate(Place::Device, 8).unwrap();
    let mut run = start(&engine, "wb_iota", engine.grid(128, 1), args!(&out, 1u64, 5u64, 3u64)).unwrap();
    while !run.is_finished().unwrap() {
        std::thread::yield_now();
    }
    engine.stop_for("rank 1 is gone").unwrap();
    run.finish().unwrap();
}

#[test]
fn a_view_of_the_control_follows_the_deadline() {
    let engine = Engine::cpu().unwrap();
    engine.set_deadline(Duration::from_millis(3)).unwrap();
    let view = engine.control_with_fault(0x1000).unwrap();
    let read = || view.get::<abi::Control>(0).unwrap();
    assert_eq!((read().deadline_ns, read().fault), (3_000_000, 0x1000));
    assert_ne!(view.address(), engine.control_address());
    engine.set_deadline(Duration::from_secs(7)).unwrap();
    assert_eq!((read().deadline_ns, read().fault), (7_000_000_000, 0x1000));
    assert_ne!(read().stop, 0);
}

#[test]
fn wrong_launches_are_named() {
    let engine = Engine::cpu().unwrap();
    let grid = engine.grid(128, 1);
    assert!(matches!(start(&engine, "nothing", grid, args!()), Err(EngineError::NoKernel(n)) if n == "nothing"));
    assert!(matches!(start(&engine, "wb_iota", grid, args!(1u32)), Err(EngineError::Arguments { .. })));
    let out = engine.allocate(Place::Device, 8).unwrap();
    let none = Grid { blocks: 0, threads: 1 };
    assert!(matches!(start(&engine, "wb_iota", none, args!(&out, 1u64, 0u64, 0u64)), Err(EngineError::Grid { .. })));
}

#[test]
fn a_run_keeps_its_arguments_until_it_has_ended() {
    let engine = Engine::cpu().unwrap();
    let out = engine.allocate(Place::Device, 1000 * 8).unwrap();
    let weak = out.downgrade();
    let run = start(&engine, "wb_iota", engine.grid(128, 1), args!(&out, 1000u64, 5u64, 3u64)).unwrap();
    drop(out);
    let out = weak.upgrade().expect("the run has a share");
    run.finish().unwrap();
    assert_eq!(out.get::<u64>(8).unwrap(), 8);
    drop(out);
    assert!(weak.upgrade().is_none());
}
