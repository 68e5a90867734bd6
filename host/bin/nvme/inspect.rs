//! Shared parts of the commands that only read from a controller.

use crate::args::{DeadlineArgs, JsonArgs};
use crate::device;
use crate::output::{Failure, line};
use clap::Args;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use std::ffi::OsString;
use warpbell::storage::{DriveSpec, OpenController};
use warpbell::wire::nvme::fields::Field;

#[derive(Args, Clone, Debug)]
pub struct InspectArgs {
    /// nvme:ADDRESS, soft:FILE or qtest:FILE, with options after commas (docs/devices.md)
    #[arg(value_name = "DEVICE")]
    pub device: OsString,
    #[command(flatten)]
    pub wait: DeadlineArgs,
    #[command(flatten)]
    pub json: JsonArgs,
}

/// An open controller, and the device specification that led to it.
pub struct NamedController {
    /// Name of the device in reports.
    pub device: String,
    pub spec: DriveSpec,
    pub open: OpenController,
}

impl InspectArgs {
    /// Opens the controller.
    ///
    /// # Errors
    /// [`Failure::Error`] if the specification is invalid or the controller cannot be opened.
    pub fn open(&self) -> Result<NamedController, Failure> {
        let spec = device::to_look_at(&self.device)?;
        let open = spec.open_controller()?;
        open.set_deadline(self.wait.deadline);
        Ok(NamedController { device: spec.to_string(), spec, open })
    }
}

impl NamedController {
    /// Returns the namespaces to print: the one that the device specification selects, or all active ones.
    ///
    /// # Errors
    /// [`Failure::Error`] if the controller fails to list its namespaces.
    pub fn namespaces(&self) -> Result<Vec<u32>, Failure> {
        match self.spec.nsid() {
            Some(nsid) => Ok(vec![nsid]),
            None => Ok(self.open.controller().namespaces()?),
        }
    }
}

/// Report on one device.
#[derive(Serialize)]
struct Report<'a, T: Serialize> {
    device: &'a str,
    #[serde(flatten)]
    rest: &'a T,
}

/// Prints a report on one device as text, or writes it as JSON.
///
/// # Errors
/// [`Failure::BrokenPipe`] if standard output was closed, [`Failure::Error`] if the report cannot be written.
pub fn print<T: Serialize>(
    command: &'static str,
    args: &InspectArgs,
    opened: &NamedController,
    report: &T,
    text: impl FnOnce(&T) -> Vec<String>,
) -> Result<(), Failure> {
    match &args.json.json {
        Some(path) => {
            let report = Report { device: &opened.device, rest: report };
            crate::output::write_json(command, &report, path)
        }
        None => text(report).iter().try_for_each(|l| line(format_args!("{l}"))),
    }
}

/// A data structure with the table of its fields. Serializes as a map in the order of the table.
pub struct Structure {
    pub table: &'static [Field],
    pub bytes: Vec<u8>,
}

impl Serialize for Structure {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut map = s.serialize_map(Some(self.table.len()))?;
        for field in self.table {
            map.serialize_entry(field.name, &field.value(&self.bytes))?;
        }
        map.end()
    }
}

impl Structure {
    /// Returns a line for each field, as in `mdts      : 7  largest transfer, ...`: name, value and meaning.
    pub fn lines(&self) -> Vec<String> {
        let value = |f: &Field| f.value(&self.bytes).to_string();
        self.table
            .iter()
            .map(|f| format!("{:<9} : {:<22} {}", f.name, value(f), f.words).trim_end().to_owned())
            .collect()
    }
}
