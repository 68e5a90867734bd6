//! Tests the scripts of `deploy/` as they are, under Slurm, Open MPI, MPICH and torchrun, on two nodes of this machine
//! (`tests/launchers/nodes.sh`). In each, four ranks search a partitioned graph; a job is cancelled, and a node dies.
//! For Kubernetes, whose manifests need a cluster, containers of this machine get the variables of the manifests.
//!
//! Needs root, namespaces, and the launchers; elsewhere the tests print that they do not run.
//! `WARPBELL_REQUIRE_LAUNCHERS` makes that an error. `WARPBELL_TORCHRUN` is the path of torchrun; without it a script
//! sets the variables that torchrun documents.
#![cfg(all(feature = "cli", target_os = "linux"))]

use crate::children::Child;
use crate::tree;
use std::process::{Command, Stdio};
use std::time::Duration;
use warpbell::shmem::launcher::dies_with_this_process;

/// Makes a missing launcher a failure.
const REQUIRED: &str = "WARPBELL_REQUIRE_LAUNCHERS";
/// Far longer than a scenario takes.
const LONG: Duration = Duration::from_secs(900);

/// Returns what is missing on this machine: a program that does not run, or namespaces.
fn missing(programs: &[&str]) -> Option<String> {
    let runs = |program: &str, arguments: &[&str]| {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    };
    if !runs("unshare", &["--pid", "--mount", "--fork", "--mount-proc", "--net", "--uts", "true"]) {
        return Some("namespaces (as root, with util-linux)".to_owned());
    }
    let absent = |program: &&&str| !runs("sh", &["-c", &format!("command -v {program}")]);
    ["ip", "nsenter", "setpriv", "pgrep"].iter().chain(programs).find(absent).map(|program| format!("`{program}`"))
}

/// Runs a scenario of `tests/launchers` that needs these programs.
#[track_caller]
fn run(scenario: &str, programs: &[&str], variables: &[(&str, &str)]) {
    if let Some(missing) = missing(programs) {
        assert!(std::env::var_os(REQUIRED).is_none(), "this machine has no {missing}");
        println!("SKIP: this machine has no {missing}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(tree::file("tests/launchers/run"));
    command.arg(scenario).arg(tree::program()).arg(folder.path()).envs(variables.iter().copied());
    // All that the scenario has started ends with it.
    dies_with_this_process(&mut command);
    let (ended, text) = Child::start(command).finish(LONG);
    println!("{text}");
    assert!(ended.success() && text.contains(&format!("passed: {scenario}")), "{scenario}: {ended}\n{text}");
}

#[test]
#[ignore = "takes minutes, and needs launchers: .ci/run launchers"]
fn open_mpi_starts_ranks_of_two_nodes() {
    run("mpirun", &["mpirun.openmpi"], &[("MPIRUN", "mpirun.openmpi")]);
}

#[test]
#[ignore = "takes minutes, and needs launchers: .ci/run launchers"]
fn mpich_starts_ranks_of_two_nodes() {
    run("mpirun", &["mpirun.mpich"], &[("MPIRUN", "mpirun.mpich")]);
}

#[test]
#[ignore = "takes minutes, and needs launchers: .ci/run launchers"]
fn torchrun_starts_ranks_of_two_nodes() {
    match std::env::var("WARPBELL_TORCHRUN") {
        Ok(path) => run("torchrun", &[&path], &[("TORCHRUN", &path)]),
        Err(_) => run("torchrun", &[], &[]),
    }
}

#[test]
#[ignore = "takes minutes, and needs launchers: .ci/run launchers"]
fn slurm_starts_ranks_of_two_nodes() {
    run("slurm", &["slurmctld", "slurmd", "sbatch", "munged"], &[]);
}

#[test]
#[ignore = "takes minutes: .ci/run launchers"]
fn pods_of_one_machine_are_two_hosts() {
    run("kubernetes", &[], &[]);
}
