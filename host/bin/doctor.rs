//! Runs `warpbell doctor`: shows which data paths this machine has, and how to fix what is missing.

use crate::args::DoctorArgs;
use crate::output::{Failure, checks};
use crate::remedy::in_options;
use warpbell::doctor::{GpuFacts, examine};
use warpbell::pci::Sysfs;

/// Examines the machine and prints the report.
///
/// # Errors
/// [`Failure::BrokenPipe`] if standard output was closed. [`Failure::Error`] if the report cannot be written, or if
/// something that `--require` names is not possible.
pub fn run(args: &DoctorArgs) -> Result<(), Failure> {
    let (sysfs, facts) = match &args.root {
        Some(root) => (Sysfs::at(root), GpuFacts::none("CUDA is not queried for a fixture")),
        None => (Sysfs::system(), GpuFacts::gather()),
    };
    let report = examine(&sysfs, &facts, &args.require).with_remedies(in_options);
    match &args.json.json {
        Some(to) => crate::output::write_json("doctor", &report, to)?,
        None => checks(&report.to_string())?,
    }
    match report.unmet() {
        Some(reason) => Err(Failure::Error(reason)),
        None => Ok(()),
    }
}
