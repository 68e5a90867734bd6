//! The machine as `warpbell doctor` reports it: the first step of every run.

use super::runner::{Call, Done, Runner};
use super::step::Outcome;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::Duration;

/// Time limit of the doctor.
const LIMIT: Duration = Duration::from_secs(120);

/// Report of the doctor, once the first step has run.
#[derive(Debug, Default)]
pub struct Machine {
    report: Value,
}

/// A check of the doctor.
pub struct Check<'a>(&'a Value);

impl Check<'_> {
    fn text(&self, key: &str) -> &str {
        self.0[key].as_str().unwrap_or_default()
    }

    /// Returns true if the check has this area, subject (any, if empty) and one of these names, and one of these states.
    fn is(&self, area: &str, subject: &str, names: &[&str], states: &[&str]) -> bool {
        let fits = subject.is_empty()
            || self.text("subject").split(':').next() == Some(subject)
            || self.text("subject") == subject;
        self.text("area") == area && fits && names.contains(&self.text("name")) && states.contains(&self.text("status"))
    }

    /// Returns the failure that the check is.
    pub fn as_failure(&self) -> Outcome {
        let title = [self.text("area"), self.text("subject"), self.text("name")];
        let title: Vec<&str> = title.into_iter().filter(|t| !t.is_empty()).collect();
        let remedy = self.0["fix"].as_str().map(str::to_owned);
        Outcome::Failed { error: format!("{}: {}", title.join(" "), self.text("detail")), remedy }
    }
}

impl Machine {
    /// Runs the doctor, and keeps its report. Returns its command, which may have failed.
    pub fn examine(&mut self, runner: &mut dyn Runner, require: &[&str], root: Option<&PathBuf>) -> Done {
        let mut call = Call::new("doctor", &["doctor", "--json", "-"], LIMIT);
        if !require.is_empty() {
            call = call.with(["--require", &require.join(",")]);
        }
        if let Some(root) = root {
            call = call.with(["--root".as_ref(), root.as_os_str()]);
        }
        let done = runner.run(&call);
        self.report = done.report.clone().unwrap_or_default();
        done
    }

    /// Returns the checks.
    fn checks(&self) -> impl Iterator<Item = Check<'_>> {
        self.report["checks"].as_array().into_iter().flatten().map(Check)
    }

    /// Returns the first check with one of these names and states.
    pub fn find(&self, area: &str, subject: &str, names: &[&str], states: &[&str]) -> Option<Check<'_>> {
        self.checks().find(|c| c.is(area, subject, names, states))
    }

    /// Returns the reason why no GPU runs kernels; `None` if one does.
    pub fn no_gpu(&self) -> Option<String> {
        let runs = |c: &Check<'_>| c.is("gpu", "", &["kernels"], &["ok", "warn"]);
        if self.report["gpus"].as_array().is_some_and(|g| !g.is_empty()) && self.checks().any(|c| runs(&c)) {
            return None;
        }
        Some(match self.report["no_gpu"].as_str() {
            Some(why) => format!("no GPU: {why}"),
            None => "no GPU that runs the kernels of this build".to_owned(),
        })
    }

    /// Returns how many checks have which state, in words.
    pub fn counts(&self) -> String {
        let count = |status: &str| self.checks().filter(|c| c.text("status") == status).count();
        format!("{} checks in order, {} warnings, {} closed", count("ok"), count("warn"), count("fail"))
    }

    /// Returns the RDMA devices, by name, with true for those that mlx5_core drives.
    pub fn nics(&self) -> Vec<(String, bool)> {
        let nics = self.report["nics"].as_array().into_iter().flatten();
        let name = |n: &Value| n["name"].as_str().map(str::to_owned);
        nics.filter_map(|n| Some((name(n)?, n["driver"].as_str().is_some_and(|d| d.starts_with("mlx5"))))).collect()
    }

    /// Returns versions and topology, for the head of a report.
    pub fn versions(&self) -> Value {
        let r = &self.report;
        let gpu_driver = self.checks().find(|c| c.is("gpu", "", &["driver"], &["ok", "warn", "fail"]));
        json!({
            "warpbell": r["version"],
            "host": r["host"],
            "gpu_driver": gpu_driver.map(|c| c.text("detail").to_owned()),
            "verbs_library": r["verbs_library"],
            "gpus": r["gpus"],
            "nics": r["nics"],
            "nvme": r["nvme"],
            "distances": r["distances"],
            "nic_distances": r["nic_distances"],
        })
    }
}
