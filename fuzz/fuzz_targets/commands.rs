//! Feeds arbitrary bytes as a command stream to the software NVMe controller. `cargo test` runs the same with fewer
//! inputs.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/common/command_bytes.rs"]
mod bytes;
// Tests use the remaining functions of this module.
#[allow(dead_code)]
#[path = "../../tests/common/nvme_driver.rs"]
mod driver;

fuzz_target!(|input: &[u8]| bytes::run(input));
