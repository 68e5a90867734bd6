//! Ranks that do not come, or are gone: what the others see of it.

use std::time::Duration;
use warpbell::args;
use warpbell::engine::{Grid, RunError};
use warpbell::shmem::World;

const ONE: Grid = Grid { blocks: 1, threads: 1 };

#[test]
fn a_kernel_that_waits_ends_with_the_reason_that_it_was_stopped_for() {
    let worlds = World::local(2).unwrap();
    let (waits, gone) = (&worlds[0], "rank 1 is gone: connection closed");
    let engine = waits.engine();
    // Far longer than the test: only the reason can end the wait.
    engine.set_deadline(Duration::from_secs(600)).unwrap();
    let run = engine.launch("wb_shmem_barrier", ONE, args!(waits)).unwrap();
    engine.stop_for(gone).unwrap();
    engine.stop_for("a later reason").unwrap();
    let error = run.finish_within(Duration::from_secs(60)).unwrap_err();
    assert_eq!(error.to_string(), format!("kernel `wb_shmem_barrier` was stopped: {gone}"));
    let RunError::Stopped { errors, .. } = error else { panic!("{error:?}") };
    assert_eq!(errors[0].to_string(), "barrier on PE 0, waiting for PE 1: stopped");

    let refused = engine.launch("wb_shmem_barrier", ONE, args!(waits)).unwrap_err();
    assert_eq!(refused.to_string(), format!("this engine starts no more kernels: {gone}"));
    assert_eq!(engine.stopped_for(), Some(gone));
}

#[test]
fn a_barrier_that_nobody_else_comes_to_names_who_is_missing() {
    let worlds = World::local(3).unwrap();
    let engine = worlds[1].engine();
    engine.set_deadline(Duration::from_millis(20)).unwrap();
    let run = engine.launch("wb_shmem_barrier", ONE, args!(&worlds[1])).unwrap();
    let error = run.finish().unwrap_err().to_string();
    assert!(error.contains("barrier on PE 1: PE "), "{error}");
    assert!(error.contains(" did not come within the deadline: timed out"), "{error}");
}
