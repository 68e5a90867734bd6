//! The calls of a world under stress, at each warp width, plain and under ThreadSanitizer.

#[path = "device/harness.rs"]
mod harness;

const WIDTHS: [u32; 3] = [1, 4, 32];

#[test]
fn calls_under_stress() {
    for width in WIDTHS {
        harness::stress("shmem_stress.cpp", width, false, &[]);
    }
}

#[test]
fn calls_under_stress_with_thread_sanitizer() {
    if !harness::has_sanitizer() {
        return;
    }
    for width in WIDTHS {
        harness::stress("shmem_stress.cpp", width, true, &[]);
    }
}
