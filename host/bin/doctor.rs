//! `warpbell doctor`: what this machine can do, and what fixes it.

use crate::args::DoctorArgs;
use crate::output::{Failure, say};
use crate::remedy::in_options;
use warpbell::doctor::{GpuFacts, examine};
use warpbell::pci::Sysfs;

pub fn run(args: &DoctorArgs) -> Result<(), Failure> {
    let (sysfs, facts) = match &args.root {
        Some(root) => (Sysfs::at(root), GpuFacts::none("a recorded tree")),
        None => (Sysfs::system(), GpuFacts::gather()),
    };
    let report = examine(&sysfs, &facts, &args.require).with_remedies(in_options);
    match &args.json.json {
        Some(to) => crate::output::write_json("doctor", &report, to)?,
        None => say!("{report}")?,
    }
    match report.unmet() {
        Some(reason) => Err(Failure::Error(reason)),
        None => Ok(()),
    }
}
