//! The graph kernels with many threads at once, at each warp width, plain and under ThreadSanitizer.

#[path = "device/harness.rs"]
mod harness;

/// Warp widths, and vertices at each (lanes are threads: 32 of them are slow on two cores). The first has a list of several pieces.
const WIDTHS: [(u32, &str); 3] = [(1, "3000"), (4, "300"), (32, "40")];

#[test]
fn graph_kernels_with_many_threads() {
    for (width, vertices) in WIDTHS {
        harness::stress("graph_stress.cpp", width, false, &[vertices]);
    }
}

#[test]
fn graph_kernels_under_thread_sanitizer() {
    if let Err(reason) = harness::sanitizer() {
        eprintln!("skipped: {reason}");
        return;
    }
    for (width, vertices) in WIDTHS {
        harness::stress("graph_stress.cpp", width, true, &[vertices]);
    }
}
