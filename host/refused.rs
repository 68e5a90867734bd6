//! Commands that devices refused, with their bytes, for reports to vendors and maintainers.
//!
//! Drivers note each refused command. A program takes the notes when it writes a report. Not each of them is a fault:
//! drivers also ask for features that a device may lack.

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::fmt::Write;

/// Largest number of commands that are kept. Later ones are only counted.
pub const MOST_KEPT: usize = 256;

/// Interface that carried a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Interface {
    /// Admin queue of an NVMe controller: an entry of 64 bytes, a completion of 16.
    NvmeAdmin,
    /// I/O queue of an NVMe controller that the host drives: the same entries.
    NvmeIo,
    /// Command interface of an mlx5 NIC's firmware (DevX): mailboxes of each command's own lengths.
    Mlx5,
}

/// A command that a device refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RefusedCommand {
    /// Interface that carried the command.
    pub interface: Interface,
    /// Name of the device.
    pub device: String,
    /// Name of the command, as in `Set Features (Number of Queues)`.
    pub command: String,
    /// Bytes of the command as lower-case hexadecimal digits.
    pub input: String,
    /// Bytes of the device's reply as lower-case hexadecimal digits.
    pub output: String,
    /// Status of the reply. NVMe: bits 0 to 7 are the code, 8 to 10 its type. mlx5: the status.
    pub status: u32,
    /// Syndrome of the reply, in the firmware's own numbering. NVMe has none.
    pub syndrome: Option<u32>,
    /// Meaning of status and syndrome, or the system's error.
    pub meaning: String,
}

#[derive(Debug)]
struct Kept {
    commands: Vec<RefusedCommand>,
    more: usize,
}

static KEPT: Mutex<Kept> = Mutex::new(Kept { commands: Vec::new(), more: 0 });

/// Returns the commands that were refused since the last call in this process, oldest first, and the number of later ones
/// that were not kept.
#[cfg(feature = "internals")]
pub fn take() -> (Vec<RefusedCommand>, usize) {
    let mut kept = KEPT.lock();
    let more = std::mem::take(&mut kept.more);
    (std::mem::take(&mut kept.commands), more)
}

/// Keeps a refused command.
pub(crate) fn note(command: RefusedCommand) {
    let mut kept = KEPT.lock();
    // All tests of this library are one process.
    if kept.commands.len() < MOST_KEPT || cfg!(test) {
        kept.commands.push(command);
    } else {
        kept.more += 1;
    }
}

/// Returns bytes as hexadecimal digits.
pub(crate) fn digits(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns a copy of the commands that a device refused. Other tests of this process may keep some, too.
    pub(crate) fn of_device(device: &str) -> Vec<RefusedCommand> {
        KEPT.lock().commands.iter().filter(|c| c.device == device).cloned().collect()
    }

    #[test]
    fn bytes_are_written_in_their_order() {
        assert_eq!(digits(&[0x01, 0xff, 0x0a]), "01ff0a");
        assert_eq!(digits(&[]), "");
    }
}
