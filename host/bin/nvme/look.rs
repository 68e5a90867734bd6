//! What the commands that only look at a controller share.

use crate::args::JsonArgs;
use crate::output::{Failure, line};
use clap::Args;
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use std::ffi::OsString;
use warpbell::storage::{DriveSpec, OpenController};
use warpbell::wire::nvme::fields::Field;

#[derive(Args, Clone, Debug)]
pub struct LookArgs {
    /// nvme:ADDRESS, soft:FILE or qtest:FILE, with options after commas (docs/devices.md)
    #[arg(value_name = "DEVICE")]
    pub device: OsString,
    #[command(flatten)]
    pub json: JsonArgs,
}

/// An open controller and what was asked of it.
pub struct Looked {
    /// The device as reports name it.
    pub device: String,
    pub spec: DriveSpec,
    pub open: OpenController,
}

impl LookArgs {
    pub fn open(&self) -> Result<Looked, Failure> {
        let spec = DriveSpec::named(&self.device)?;
        let open = spec.open_controller()?;
        Ok(Looked { device: spec.to_string(), spec, open })
    }
}

impl Looked {
    /// The namespaces to speak of: the one that the device's name chooses, or all that are active.
    pub fn namespaces(&self) -> Result<Vec<u32>, Failure> {
        match self.spec.nsid() {
            Some(nsid) => Ok(vec![nsid]),
            None => Ok(self.open.controller().namespaces()?),
        }
    }
}

/// A report: JSON if that was asked for, otherwise lines.
#[derive(Serialize)]
struct Report<'a, T: Serialize> {
    device: &'a str,
    #[serde(flatten)]
    rest: &'a T,
}

/// Prints a report on one device as text, or writes it as JSON.
pub fn print<T: Serialize>(
    command: &'static str,
    args: &LookArgs,
    looked: &Looked,
    report: &T,
    text: impl FnOnce(&T) -> Vec<String>,
) -> Result<(), Failure> {
    match &args.json.json {
        Some(path) => {
            let report = Report { device: &looked.device, rest: report };
            crate::output::write_json(command, &report, path)
        }
        None => text(report).iter().try_for_each(|l| line(format_args!("{l}"))),
    }
}

/// The fields of a data structure, as a map in their order.
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
    /// `mdts      : 7  largest transfer, ...`: name, value and what the field says.
    pub fn lines(&self) -> Vec<String> {
        let value = |f: &Field| f.value(&self.bytes).to_string();
        self.table
            .iter()
            .map(|f| format!("{:<9} : {:<22} {}", f.name, value(f), f.words).trim_end().to_owned())
            .collect()
    }
}
