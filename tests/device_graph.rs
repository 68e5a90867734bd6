//! The graph kernels with many threads at once, at each warp width, plain and under ThreadSanitizer.

#[path = "device/harness.rs"]
mod harness;

// Lanes are threads, and 32 of them are slow on two cores: fewer vertices for more lanes. Width 1 without the sanitizer is what
// every other test of the algorithms runs.
#[test]
fn graph_kernels_with_many_threads() {
    for (width, vertices) in [(4, "3000"), (32, "40")] {
        harness::stress("graph_stress.cpp", width, false, &[vertices]);
    }
}

#[test]
fn graph_kernels_under_thread_sanitizer() {
    if !harness::has_sanitizer() {
        return;
    }
    for (width, vertices) in [(1, "3000"), (4, "300")] {
        harness::stress("graph_stress.cpp", width, true, &[vertices]);
    }
}

#[test]
fn partitioned_searches_with_many_threads() {
    for (width, vertices) in [(1, "2400"), (4, "600"), (32, "36")] {
        harness::stress("partition_stress.cpp", width, false, &[vertices]);
    }
}

#[test]
fn partitioned_searches_under_thread_sanitizer() {
    if !harness::has_sanitizer() {
        return;
    }
    for (width, vertices) in [(1, "900"), (4, "150")] {
        harness::stress("partition_stress.cpp", width, true, &[vertices]);
    }
}
