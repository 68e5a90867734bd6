//! One thing that was looked at, what was found, and what would mend it.

use crate::remedy::Remedy;
use serde::Serialize;
use std::fmt;

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// As it should be.
    Ok,
    /// It works, but not as well as it could.
    Warn,
    /// A path is closed by it.
    Fail,
    /// It does not apply here, or the kernel does not tell.
    Skip,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "fail",
            Self::Skip => "skip",
        })
    }
}

/// What a check is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Area {
    /// GPUs, their driver and its parameters.
    Gpu,
    /// NVMe controllers.
    Nvme,
    /// RDMA devices and their ports.
    Nic,
    /// The PCI tree between them.
    Pci,
    /// The kernel, and what this process may do.
    Host,
    /// The rungs of the mapping ladder.
    Path,
}

impl fmt::Display for Area {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Gpu => "gpu",
            Self::Nvme => "nvme",
            Self::Nic => "nic",
            Self::Pci => "pci",
            Self::Host => "host",
            Self::Path => "path",
        })
    }
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What it is about.
    pub area: Area,
    /// Which one of those: a GPU's number, a PCI address; empty where there is only one.
    pub subject: String,
    /// Name, unique within an area.
    pub name: &'static str,
    /// How it ended.
    pub status: Status,
    /// What was found. Begins with `unknown` where the kernel does not tell.
    pub detail: String,
    /// The command, the line of a file, or the setting that mends it; `None` where there is nothing to mend or no remedy.
    pub fix: Option<Remedy>,
    /// Where it is explained.
    pub docs: String,
}

impl Check {
    /// A check that ended so.
    pub fn new(
        area: Area,
        subject: impl Into<String>,
        name: &'static str,
        status: Status,
        detail: impl Into<String>,
    ) -> Self {
        let docs = format!("docs/doctor.md#{area}-{}", name.replace(' ', "-").to_lowercase());
        Self { area, subject: subject.into(), name, status, detail: detail.into(), fix: None, docs }
    }

    /// `gpu 0 doorbell`, as messages name it.
    pub fn title(&self) -> String {
        [self.area.to_string().as_str(), &self.subject, self.name]
            .iter()
            .filter(|part| !part.is_empty())
            .copied()
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// A remedy, or a step in words as one; or none.
pub(super) trait IntoFix {
    fn into_fix(self) -> Option<Remedy>;
}

impl IntoFix for String {
    fn into_fix(self) -> Option<Remedy> {
        Some(Remedy::step(self))
    }
}

impl IntoFix for Remedy {
    fn into_fix(self) -> Option<Remedy> {
        Some(self)
    }
}

impl IntoFix for Option<Remedy> {
    fn into_fix(self) -> Option<Remedy> {
        self
    }
}

/// The checks of one subject, under construction.
pub(super) struct Checks<'a> {
    area: Area,
    subject: String,
    all: &'a mut Vec<Check>,
}

impl<'a> Checks<'a> {
    pub(super) fn of(area: Area, subject: impl Into<String>, all: &'a mut Vec<Check>) -> Self {
        Self { area, subject: subject.into(), all }
    }

    fn add(&mut self, name: &'static str, status: Status, detail: impl Into<String>, fix: Option<Remedy>) {
        self.all.push(Check { fix, ..Check::new(self.area, self.subject.clone(), name, status, detail) });
    }

    pub(super) fn ok(&mut self, name: &'static str, detail: impl Into<String>) {
        self.add(name, Status::Ok, detail, None);
    }

    pub(super) fn warn(&mut self, name: &'static str, detail: impl Into<String>, fix: impl IntoFix) {
        self.add(name, Status::Warn, detail, fix.into_fix());
    }

    pub(super) fn fail(&mut self, name: &'static str, detail: impl Into<String>, fix: impl IntoFix) {
        self.add(name, Status::Fail, detail, fix.into_fix());
    }

    pub(super) fn skip(&mut self, name: &'static str, detail: impl Into<String>) {
        self.add(name, Status::Skip, detail, None);
    }

    pub(super) fn unknown(&mut self, name: &'static str, why: impl fmt::Display) {
        self.add(name, Status::Skip, format!("unknown: {why}"), None);
    }
}
