//! Steps of an acceptance run: what each one is called, what it proves, and how it ended.

use super::runner::{Done, Runner};
use crate::workloads::report::nanoseconds;
use serde::Serialize;
use serde_json::Value;
use std::fmt;
use std::time::Duration;

/// A step. Names are stable: scripts and `--until` use them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Name, unique within a run.
    pub name: &'static str,
    /// Statement that holds when the step passes.
    pub proves: &'static str,
    /// Remedy where the error itself names nothing better.
    pub remedy: &'static str,
}

/// Reason why a step was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SkipReason {
    /// The machine or the device lacks what the step tests. The run can still be accepted.
    Lacking,
    /// `--engine` leaves the step out. The run can still be accepted.
    Engine,
    /// The device holds data, and nobody permitted to overwrite it. The run is not complete.
    Overwrite,
}

/// Outcome of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The step passed; with a finding in a few words, which may be empty.
    Passed(String),
    /// The step was left out.
    Skipped(SkipReason, String),
    /// The step failed: the error, and a remedy if one is known that is better than the step's own.
    Failed {
        /// The error.
        error: String,
        /// The remedy.
        remedy: Option<String>,
    },
}

impl Outcome {
    /// Returns a failure whose remedy is that of the step.
    pub fn failed(error: impl fmt::Display) -> Self {
        Self::Failed { error: error.to_string(), remedy: None }
    }

    /// Returns the omission of a step for want of something.
    pub fn lacking(reason: impl Into<String>) -> Self {
        Self::Skipped(SkipReason::Lacking, reason.into())
    }
}

/// A kind of acceptance run: its steps, and how each is carried out. NVMe and RDMA have one each; another transport of
/// storage adds its own.
pub trait Procedure {
    /// Returns the steps in order, from the safest path to the fastest.
    fn steps(&self) -> &'static [Step];

    /// Carries out one step. All commands go through `runner`, which keeps them for the report.
    fn carry_out(&mut self, step: &Step, runner: &mut dyn Runner) -> Outcome;

    /// Undoes what earlier steps changed. Returns what was undone, each in words, or what could not be.
    ///
    /// # Errors
    /// The reason and the command that restores the rest by hand.
    fn restore(&mut self) -> Result<Vec<String>, String>;

    /// Returns what is under test, for the report: versions and the names of devices.
    fn subject(&self) -> Value;
}

/// State of a step in a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Status {
    /// It passed.
    Passed,
    /// It failed.
    Failed,
    /// It was left out; see `detail`.
    Skipped,
    /// The run ended before it.
    NotRun,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Passed => "ok",
            Self::Failed => "fail",
            Self::Skipped => "skip",
            Self::NotRun => "-",
        })
    }
}

/// A step in a report.
#[derive(Clone, Debug, Serialize)]
pub struct StepReport {
    /// Name of the step.
    pub name: &'static str,
    /// Statement that holds when it passes.
    pub proves: &'static str,
    /// Its state.
    pub status: Status,
    /// Finding, error, or the reason why it was left out.
    pub detail: String,
    /// Kind of the reason, if it was left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skipped: Option<SkipReason>,
    /// Remedy, if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// Time that it took, in nanoseconds.
    pub elapsed_ns: u64,
    /// Commands that it ran, each of which can be run by hand.
    pub commands: Vec<Done>,
}

impl StepReport {
    /// Returns the report of a step that was not reached.
    pub fn not_run(step: &Step) -> Self {
        Self::new(step, Status::NotRun, String::new())
    }

    fn new(step: &Step, status: Status, detail: String) -> Self {
        Self {
            name: step.name,
            proves: step.proves,
            status,
            detail,
            skipped: None,
            remedy: None,
            elapsed_ns: 0,
            commands: Vec::new(),
        }
    }

    /// Returns the report of a step that was carried out.
    pub fn of(step: &Step, outcome: Outcome, took: Duration, commands: Vec<Done>) -> Self {
        let this = match outcome {
            Outcome::Passed(detail) => Self::new(step, Status::Passed, detail),
            Outcome::Skipped(why, detail) => Self { skipped: Some(why), ..Self::new(step, Status::Skipped, detail) },
            Outcome::Failed { error, remedy } => {
                let remedy = Some(remedy.unwrap_or_else(|| step.remedy.to_owned()));
                Self { remedy, ..Self::new(step, Status::Failed, error) }
            }
        };
        Self { elapsed_ns: nanoseconds(took), commands, ..this }
    }
}
