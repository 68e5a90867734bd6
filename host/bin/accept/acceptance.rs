//! Runs the steps of a procedure in order, up to the first that fails, restores what they changed, and reports.

use super::engine::EngineReport;
use super::runner::{Runner, Stop};
use super::step::{Outcome, Procedure, SkipReason, Status, Step, StepReport};
use crate::output::{Failure, Text};
use crate::workloads::report::nanoseconds;
use serde::Serialize;
use serde_json::Value;
use std::time::{Duration, Instant};

/// Width of the column of states, and of that of names.
const STATUS_WIDTH: usize = 6;
const NAME_WIDTH: usize = 14;

/// Report of an acceptance run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Version of this program.
    pub version: &'static str,
    /// True if every step that this machine can carry out on the engine has passed, up to the last one that was asked
    /// for.
    pub accepted: bool,
    /// Last step that was asked for, if not all were.
    pub until: Option<String>,
    /// Engine that was asked for. The reports of the commands name the one that they had.
    pub engine: EngineReport,
    /// Versions and names of what is under test.
    pub subject: Value,
    /// All steps, in order.
    pub steps: Vec<StepReport>,
    /// Changes that were undone, in words.
    pub restored: Vec<String>,
    /// Change that could not be undone, with the command that does it.
    pub not_restored: Option<String>,
    /// Reason why the run ended early, if it was interrupted.
    pub interrupted: Option<String>,
    /// Time of the whole run, in nanoseconds.
    pub elapsed_ns: u64,
}

/// A run of the steps of a procedure.
pub struct Acceptance<'a> {
    procedure: &'a mut dyn Procedure,
    runner: &'a mut dyn Runner,
    text: &'a Text,
    until: Option<String>,
    /// Tells why the run was interrupted.
    stop: Stop,
}

impl<'a> Acceptance<'a> {
    pub fn new(
        procedure: &'a mut dyn Procedure,
        runner: &'a mut dyn Runner,
        text: &'a Text,
        until: Option<String>,
        stop: Stop,
    ) -> Self {
        Self { procedure, runner, text, until, stop }
    }

    /// Runs all steps, restores what they changed, and returns the report, which names `engine`. Standard output that was
    /// closed ends nothing: what was changed is restored all the same.
    pub fn run(mut self, engine: EngineReport) -> (Report, Result<(), Failure>) {
        let started = Instant::now();
        let mut reports: Vec<StepReport> = Vec::new();
        let mut printed = Ok(());
        let mut over = false;
        for step in self.procedure.steps() {
            if over || self.runner.is_interrupted() {
                reports.push(StepReport::not_run(step));
                continue;
            }
            let report = self.step(step);
            if printed.is_ok() {
                printed = self.print(&report);
            }
            over = report.status == Status::Failed || self.until.as_deref() == Some(step.name);
            reports.push(report);
        }
        let (restored, not_restored) = match self.procedure.restore() {
            Ok(all) => (all, None),
            Err(e) => (Vec::new(), Some(e)),
        };
        let interrupted = self.runner.is_interrupted().then(|| match self.stop.signal() {
            Some(libc::SIGINT) => "interrupted by SIGINT".to_owned(),
            Some(signal) => format!("interrupted by signal {signal}"),
            None => "its time was over".to_owned(),
        });
        let mut report = Report {
            version: env!("CARGO_PKG_VERSION"),
            accepted: false,
            until: self.until.clone(),
            engine,
            subject: self.procedure.subject(),
            steps: reports,
            restored,
            not_restored,
            interrupted,
            elapsed_ns: nanoseconds(started.elapsed()),
        };
        report.accepted = report.obstacle().is_none();
        let printed = printed.and_then(|()| self.conclude(&report));
        (report, printed)
    }

    fn step(&mut self, step: &Step) -> StepReport {
        let started = Instant::now();
        let outcome = self.procedure.carry_out(step, self.runner);
        let outcome = match outcome {
            // Its commands were ended, which says nothing about the step.
            Outcome::Failed { error, .. } if self.runner.is_interrupted() => {
                Outcome::Failed { error, remedy: Some("run it again".to_owned()) }
            }
            other => other,
        };
        StepReport::of(step, outcome, started.elapsed(), self.runner.take())
    }

    fn print(&self, report: &StepReport) -> Result<(), Failure> {
        let took = format!("{:.1} s", Duration::from_nanos(report.elapsed_ns).as_secs_f64());
        let (status, name) = (report.status, report.name);
        self.text.line(format_args!("  {status:STATUS_WIDTH$}{name:NAME_WIDTH$}{took:>9}  {}", report.detail))?;
        if report.status != Status::Failed {
            return Ok(());
        }
        let indent = 2 + STATUS_WIDTH;
        self.text.line(format_args!("{:indent$}proves   {}", "", report.proves))?;
        self.text.line(format_args!("{:indent$}remedy   {}", "", report.remedy.as_deref().unwrap_or_default()))?;
        if let Some(command) = report.commands.iter().rev().find(|c| !c.is_success()) {
            self.text.line(format_args!("{:indent$}command  {}", "", command.command))?;
        }
        for refused in report.commands.iter().flat_map(|c| &c.refused) {
            let (device, command, meaning) = (&refused.device, &refused.command, &refused.meaning);
            self.text.line(format_args!("{:indent$}refused  {device}: {command}: {meaning}", ""))?;
            self.text.line(format_args!("{:indent$}         {}", "", refused.input))?;
        }
        Ok(())
    }

    fn conclude(&self, report: &Report) -> Result<(), Failure> {
        for line in &report.restored {
            self.text.line(format_args!("restored  {line}"))?;
        }
        let count = |status| report.steps.iter().filter(|s| s.status == status).count();
        let (passed, skipped) = (count(Status::Passed), count(Status::Skipped));
        let took = Duration::from_nanos(report.elapsed_ns).as_secs();
        if report.accepted {
            let until = report.until.as_ref().map(|u| format!(" up to {u}")).unwrap_or_default();
            self.text.line(format_args!("accepted{until}: {passed} steps passed, {skipped} skipped, in {took} s"))?;
        }
        Ok(())
    }
}

impl Report {
    /// Returns the reason why the run is no acceptance; `None` if it is one.
    pub fn obstacle(&self) -> Option<String> {
        if let Some(step) = self.steps.iter().find(|s| s.status == Status::Failed && self.interrupted.is_none()) {
            let remedy = step.remedy.as_deref().unwrap_or_default();
            return Some(format!("step {} failed: {}; {remedy}", step.name, step.detail));
        }
        if let Some(why) = &self.interrupted {
            return Some(why.clone());
        }
        if let Some(why) = &self.not_restored {
            return Some(why.clone());
        }
        if let Some(step) = self.steps.iter().find(|s| s.skipped == Some(SkipReason::Overwrite)) {
            return Some(format!("step {} and others that write were left out: {}", step.name, step.detail));
        }
        let last = self.steps.iter().find(|s| Some(s.name) == self.until.as_deref());
        match last {
            Some(step) if step.status == Status::Skipped => {
                Some(format!("step {} was asked for and left out: {}", step.name, step.detail))
            }
            _ => None,
        }
    }

    /// Returns the result of the command: success, or the first obstacle with its exit code.
    ///
    /// # Errors
    /// [`Failure::Status`] with 128 and the signal's number, or 124, if the run was interrupted. [`Failure::Error`] if it
    /// was not accepted for another reason.
    pub fn outcome(&self, stop: &Stop) -> Result<(), Failure> {
        const TIMED_OUT: u8 = 124;
        let Some(mut why) = self.obstacle() else { return Ok(()) };
        if let (Some(not), false) = (&self.not_restored, self.not_restored.as_ref() == Some(&why)) {
            why = format!("{why}; {not}");
        }
        match (self.interrupted.is_some(), stop.signal()) {
            (true, Some(signal)) => Err(Failure::Status(why, u8::try_from(128 + signal).unwrap_or(u8::MAX))),
            (true, None) => Err(Failure::Status(why, TIMED_OUT)),
            (false, _) => Err(Failure::Error(why)),
        }
    }
}
