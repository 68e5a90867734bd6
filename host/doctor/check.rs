//! One check: its subject, its result, and how to fix it.

use crate::remedy::Remedy;
use serde::Serialize;
use std::fmt;

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Works as it should.
    Ok,
    /// Works, but could work better.
    Warn,
    /// Closes a data path.
    Fail,
    /// Does not apply here, or is unknown because the kernel does not report it.
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

/// Area of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Area {
    /// GPUs, their driver and its parameters.
    Gpu,
    /// NVMe controllers.
    Nvme,
    /// RDMA devices and their ports.
    Nic,
    /// Drives of other machines.
    Remote,
    /// The PCI tree between them.
    Pci,
    /// The kernel, and the rights of this process.
    Host,
    /// Mapping backends.
    Path,
}

impl fmt::Display for Area {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Gpu => "gpu",
            Self::Nvme => "nvme",
            Self::Nic => "nic",
            Self::Remote => "remote",
            Self::Pci => "pci",
            Self::Host => "host",
            Self::Path => "path",
        })
    }
}

/// One check with its result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Area of the check.
    pub area: Area,
    /// Subject within the area: a GPU's number or a PCI address; empty if there is only one subject.
    pub subject: String,
    /// Name, unique within an area.
    pub name: &'static str,
    /// Result.
    pub status: Status,
    /// Finding. Begins with `unknown` if the kernel does not report the fact.
    pub detail: String,
    /// Command, line of a file, or setting that fixes the problem; `None` without a problem or without a remedy.
    pub fix: Option<Remedy>,
    /// Section of the documentation that explains the check.
    pub docs: String,
}

impl Check {
    /// Creates a check without a remedy.
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

    /// Returns the name of the check in messages, as in `gpu 0 doorbell`.
    pub fn title(&self) -> String {
        [self.area.to_string().as_str(), &self.subject, self.name]
            .iter()
            .filter(|part| !part.is_empty())
            .copied()
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// Conversion into an optional remedy: from a remedy, from a step in words, or from none.
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

/// Collects the checks of one subject.
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
