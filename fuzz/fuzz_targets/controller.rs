//! Tests the driver against arbitrary bytes as a controller: its registers, its completions and its data. `cargo test`
//! runs the same with fewer inputs. Queues that such a controller does not delete are leaked on purpose: run this with
//! `ASAN_OPTIONS=detect_leaks=0`.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/common/hostile_controller.rs"]
mod hostile;

fuzz_target!(|input: &[u8]| hostile::run(input));
