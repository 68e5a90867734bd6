//! Options of the engine that the commands of a run get.

use super::step::{Outcome, SkipReason};
use crate::args::{DEADLINE, EngineArgs, EngineChoice};
use crate::workloads::report::nanoseconds;
use serde::Serialize;

/// Where the kernels of a step run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// On CPU threads, whatever `--engine` says: the step proves a path without a GPU.
    Cpu,
    /// On a GPU.
    Gpu,
    /// On the engine of `--engine`.
    Any,
}

/// Engine of a run, as the report names it.
#[derive(Clone, Debug, Serialize)]
pub struct EngineReport {
    /// Value of `--engine`.
    pub choice: String,
    /// Threads of a CPU engine, if `--threads` gives their number.
    pub threads: Option<u32>,
    /// Time limit of one wait inside a kernel, and of one command of the host.
    pub deadline_ns: u64,
}

impl EngineReport {
    /// Describes the engine that these arguments select.
    pub fn of(args: &EngineArgs) -> Self {
        Self { choice: args.engine.to_string(), threads: args.threads, deadline_ns: nanoseconds(args.deadline) }
    }
}

/// Returns the options of a command whose kernels run in this place. Limits come first: the options of a data path follow
/// those of the engine.
pub fn options(args: &EngineArgs, place: Place) -> Vec<String> {
    let engine = match (place, args.engine) {
        (Place::Cpu, _) => EngineChoice::Cpu,
        // With `--engine cpu`, steps of a GPU are left out.
        (Place::Gpu, EngineChoice::Auto | EngineChoice::Cpu) => EngineChoice::Gpu(None),
        (Place::Gpu | Place::Any, chosen) => chosen,
    };
    let threads = args.threads.map(|n| ["--threads".to_owned(), n.to_string()]);
    threads.into_iter().flatten().chain(deadline(args)).chain(["--engine".to_owned(), engine.to_string()]).collect()
}

/// Returns the option of the time limit, for commands that start no kernels; none for the limit that they have anyway.
pub fn deadline(args: &EngineArgs) -> Vec<String> {
    if args.deadline == DEADLINE {
        return Vec::new();
    }
    vec!["--deadline".to_owned(), format!("{}ms", args.deadline.as_millis())]
}

/// Returns what the doctor requires: a GPU if `--engine` names one.
pub fn required(args: &EngineArgs) -> Option<&'static str> {
    matches!(args.engine, EngineChoice::Gpu(_)).then_some("gpu")
}

/// Returns the omission of a step in this place, if `--engine` leaves it out.
pub fn left_out(args: &EngineArgs, place: Place) -> Option<Outcome> {
    let is_out = place == Place::Gpu && args.engine == EngineChoice::Cpu;
    is_out.then(|| Outcome::Skipped(SkipReason::Engine, "--engine cpu leaves the steps of a GPU out".to_owned()))
}
