//! Runs `warpbell nvme error-log`: prints the error log, newest entry first.

use super::inspect::{InspectArgs, print};
use crate::output::Failure;
use serde::Serialize;
use warpbell::wire::nvme::log::ErrorLogEntry;

#[derive(Serialize)]
struct Log {
    /// Number of entries that the controller keeps.
    capacity: u16,
    errors: Vec<Entry>,
}

#[derive(Serialize)]
struct Entry {
    error_count: u64,
    sqid: u16,
    cmdid: u16,
    status_field: u16,
    status: String,
    parm_error_location: u16,
    lba: u64,
    nsid: u32,
    vs: u8,
    cs: u64,
}

/// Value of a field of an entry if the error belongs to no queue, no command, or no location in a command.
const NONE: u16 = u16::MAX;

/// Reads the error log and prints it.
///
/// # Errors
/// [`Failure::Error`] if the device cannot be opened, a command fails, or the report cannot be written.
/// [`Failure::BrokenPipe`] if standard output was closed.
pub fn run(args: &InspectArgs) -> Result<(), Failure> {
    let opened = args.open()?;
    let controller = opened.open.controller();
    let errors = controller.error_log()?.iter().map(Entry::new).collect();
    let log = Log { capacity: controller.identify().error_log_entries(), errors };
    print("nvme error-log", args, &opened, &log, |log| text(&opened.device, log))
}

impl Entry {
    fn new(e: &ErrorLogEntry) -> Self {
        Self {
            error_count: e.count,
            sqid: e.sqid,
            cmdid: e.cid,
            status_field: e.status.0,
            status: e.status.to_string(),
            parm_error_location: e.parameter,
            lba: e.lba,
            nsid: e.nsid,
            vs: e.vendor_log,
            cs: e.command_specific,
        }
    }

    fn line(&self) -> String {
        let number = |n: u16| if n == NONE { "-".to_owned() } else { n.to_string() };
        let mut line = format!(
            "error {:>6}  queue {:>3}  command {:>5}  nsid {}  LBA {}  {}",
            self.error_count,
            number(self.sqid),
            number(self.cmdid),
            self.nsid,
            self.lba,
            self.status
        );
        if self.parm_error_location != NONE {
            let (byte, bit) = (self.parm_error_location & 0xff, self.parm_error_location >> 8 & 7);
            line += &format!("  byte {byte} bit {bit} of the command");
        }
        line
    }
}

fn text(device: &str, log: &Log) -> Vec<String> {
    let (entries, capacity) = (log.errors.len(), log.capacity);
    let mut lines = vec![format!("Error Log Entries for device {device}: {entries} of at most {capacity}")];
    lines.extend(log.errors.iter().map(Entry::line));
    lines
}
