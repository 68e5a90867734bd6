//! Reads arbitrary bytes as a job file of fio. `cargo test` runs the same with fewer inputs.
#![no_main]

use job_file::{Environment, parse};
use libfuzzer_sys::fuzz_target;

#[path = "../../tests/common/any_job_file.rs"]
mod any_job_file;
// The program reads files of the machine, too.
#[allow(dead_code)]
#[path = "../../host/bin/job_file/mod.rs"]
mod job_file;

fuzz_target!(|text: &[u8]| any_job_file::read_any(text));
