//! Send queues of RDMA adapters under stress, at each warp width, plain and under ThreadSanitizer.

#[path = "device/harness.rs"]
mod harness;

const WIDTHS: [u32; 3] = [1, 4, 32];

#[test]
fn send_queues_under_stress() {
    for width in WIDTHS {
        harness::stress("send_queue_stress.cpp", width, false, &[]);
    }
}

#[test]
fn send_queues_under_stress_with_thread_sanitizer() {
    if !harness::has_sanitizer() {
        return;
    }
    for width in WIDTHS {
        harness::stress("send_queue_stress.cpp", width, true, &[]);
    }
}
