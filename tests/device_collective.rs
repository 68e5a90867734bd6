//! Collectives of teams under stress, at each warp width, plain and under ThreadSanitizer.

#[path = "device/harness.rs"]
mod harness;

/// Warp widths, and how long the program goes on at each (lanes are threads: 32 of them are slow on two cores).
const WIDTHS: [(u32, &str); 3] = [(1, "4"), (4, "2"), (32, "1")];

/// By loads and stores; over adapters; some members one way, some the other.
const WAYS: [&str; 3] = ["stores", "network", "both"];

#[test]
fn collectives_under_stress() {
    for (width, scale) in WIDTHS {
        harness::stress_each("collective_stress.cpp", width, false, &WAYS.map(|w| vec![w, scale]));
    }
}

#[test]
fn collectives_under_stress_and_thread_sanitizer() {
    if !harness::has_sanitizer() {
        return;
    }
    for (width, scale) in WIDTHS {
        harness::stress_each("collective_stress.cpp", width, true, &["stores", "both"].map(|w| vec![w, scale]));
    }
}
