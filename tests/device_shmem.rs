//! The calls of a world under stress, at each warp width, over each way to other PEs, plain and under ThreadSanitizer.

#[path = "device/harness.rs"]
mod harness;

const WIDTHS: [u32; 3] = [1, 4, 32];

/// By loads and stores; over adapters with a completion ring, with flushes behind what lands, with collapsed completions; and some PEs
/// one way, some the other.
const WAYS: [&str; 5] = ["stores", "network", "flushed", "collapsed", "both"];

#[test]
fn calls_under_stress() {
    for width in WIDTHS {
        harness::stress_each("shmem_stress.cpp", width, false, &WAYS.map(|w| vec![w]));
    }
}

#[test]
fn calls_under_stress_with_thread_sanitizer() {
    if !harness::has_sanitizer() {
        return;
    }
    for width in WIDTHS {
        harness::stress_each("shmem_stress.cpp", width, true, &["stores", "network", "both"].map(|w| vec![w]));
    }
}
