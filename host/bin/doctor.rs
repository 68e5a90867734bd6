//! Runs `warpbell doctor`: shows which data paths this machine has, and how to fix what is missing.

use crate::args::DoctorArgs;
use crate::output::{Failure, checks};
use crate::remedy::in_options;
use std::ffi::OsString;
use warpbell::doctor::{GpuFacts, examine};
use warpbell::nvme::fabrics::FabricsConfig;
use warpbell::pci::Sysfs;
use warpbell::spec::DeviceSpec;

/// Examines the machine and prints the report.
///
/// # Errors
/// [`Failure::BrokenPipe`] if standard output was closed. [`Failure::Error`] if the report cannot be written, if
/// `--device` names no drive of another machine, or if something that `--require` names is not possible.
pub fn run(args: &DoctorArgs) -> Result<(), Failure> {
    let (sysfs, facts) = match &args.root {
        Some(root) => (Sysfs::at(root), GpuFacts::none("CUDA is not queried for a fixture")),
        None => (Sysfs::system(), GpuFacts::gather()),
    };
    let remote = |device: &OsString| Ok::<_, Failure>(FabricsConfig::try_from(&DeviceSpec::from_os_str(device)?)?);
    let remotes = args.device.iter().map(remote).collect::<Result<Vec<_>, _>>()?;
    let mut report = examine(&sysfs, &facts, &args.require);
    remotes.iter().for_each(|config| report.add_remote(config));
    let report = report.with_remedies(in_options);
    match &args.json.json {
        Some(to) => crate::output::write_json("doctor", &report, to)?,
        None => checks(&report.to_string())?,
    }
    match report.unmet() {
        Some(reason) => Err(Failure::Error(reason)),
        None => Ok(()),
    }
}
