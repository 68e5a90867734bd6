//! Parses arbitrary bytes as mlx5 send rings, receive slots, completions and commands. `cargo test` runs the same with
//! fewer inputs.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/common/entry_bytes.rs"]
mod bytes;

fuzz_target!(|input: &[u8]| bytes::run(input));
