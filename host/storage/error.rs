//! How storage fails.

use super::manifest::ManifestError;
use crate::engine::{EngineError, RunError};
use crate::memory::{DmaError, MemoryError};
use crate::nvme::NvmeError;
use crate::remedy::{Remedies, Remedy};
use std::path::PathBuf;

/// Why a drive, a volume or an array could not be had or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// A device specification that cannot be read.
    #[error("device `{spec}`: {reason}")]
    Spec {
        /// As given.
        spec: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Two devices that are one.
    #[error("{}; name each device once", twice(.device, .first, .what))]
    Twice {
        /// The device as it was named the second time.
        device: String,
        /// The device as it was named first.
        first: String,
        /// The file or namespace that both are.
        what: String,
    },
    /// A file that does not exist.
    #[error("{}: {reason}", .path.display())]
    Missing {
        /// Which.
        path: PathBuf,
        /// The part that is missing, and the command that creates it.
        reason: String,
    },
    /// A word where another was expected.
    #[error(transparent)]
    Word(#[from] crate::data_path::UnknownWord),
    /// The driver.
    #[error(transparent)]
    Nvme(#[from] NvmeError),
    /// Opening a controller of this machine.
    #[error(transparent)]
    Vfio(crate::nvme::vfio::VfioError),
    /// A name that leads to no controller.
    #[error(transparent)]
    Find(#[from] crate::pci::FindError),
    /// Memory that a device should reach.
    #[error(transparent)]
    Dma(#[from] DmaError),
    /// Memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A kernel that storage runs itself, to flush a cache or to copy through it.
    #[error(transparent)]
    Run(#[from] RunError),
    /// What the volume holds.
    #[error("{device}: {source}")]
    Manifest {
        /// Which volume.
        device: String,
        /// What is wrong.
        source: ManifestError,
    },
    /// A file.
    #[error("{}: {doing}: {source}", .path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// The system's answer.
        source: std::io::Error,
    },
    /// Data of somebody else would be lost.
    #[error("{}: {found}; nothing was written", .path.display())]
    NotOurs {
        /// Which file or device.
        path: PathBuf,
        /// What it holds.
        found: String,
    },
    /// The system uses the device.
    #[error("{} is in use by this system (mounted, or part of another device); it is never written to", .0.display())]
    InUse(PathBuf),
    /// The file system has no space for what is written to a file.
    #[error("{}: it took no more data{}: its file system is full, or a quota or a limit on the size of files is reached; free some space, or put the file on another file system", .path.display(), with_free(*.free))]
    NoSpace {
        /// The file.
        path: PathBuf,
        /// Bytes that its file system has free; `None` where it does not tell.
        free: Option<u64>,
    },
    /// Too small.
    #[error("{device} holds {}, {what} needs {}: {next}", size(*.holds), size(*.needs))]
    Capacity {
        /// Which volume.
        device: String,
        /// Its bytes.
        holds: u64,
        /// What should be stored.
        what: String,
        /// Bytes that it takes.
        needs: u64,
        /// What to do.
        next: String,
    },
    /// Namespaces that cannot be one volume.
    #[error("{reason}")]
    Members {
        /// Why.
        reason: String,
    },
    /// A path that was asked for and is not open.
    #[error("{what} is not available on {device}: {reason}")]
    NoPath {
        /// What was asked for, as in `landing direct`.
        what: String,
        /// Which device.
        device: String,
        /// Why, and what to do where `remedies` do not say it.
        reason: String,
        /// The ways to open the path.
        remedies: Vec<Remedy>,
    },
    /// An option outside of what is possible.
    #[error("{0}")]
    Option(String),
    /// Blocks outside of the volume.
    #[error("blocks {first} to {} of {device}, which has {blocks}", .first.saturating_add(*.count))]
    Range {
        /// Which volume.
        device: String,
        /// First block.
        first: u64,
        /// Number of blocks.
        count: u64,
        /// Blocks that there are.
        blocks: u64,
    },
    /// No copy of a replicated volume gave or took the blocks.
    #[error("{what} of {blocks} block(s) at {first} of {device}: every copy failed ({}); replace the devices, or store the data again", .errors.join("; "))]
    NoCopy {
        /// Kind of command: `read`, `write`, `flush`, `change`.
        what: &'static str,
        /// Which volume.
        device: String,
        /// First block.
        first: u64,
        /// Number of blocks.
        blocks: u64,
        /// Errors of the copies that were tried.
        errors: Vec<String>,
    },
    /// More or fewer elements than were announced.
    #[error("array `{name}`: {given} elements were given, {planned} were announced")]
    Count {
        /// Which array.
        name: String,
        /// Elements given.
        given: u64,
        /// Elements announced.
        planned: u64,
    },
}

impl Remedies for StorageError {
    fn remedies(&self) -> Vec<Remedy> {
        match self {
            Self::NotOurs { path, .. } => vec![Remedy::step("choose another"), Remedy::Overwrite(path.clone())],
            Self::NoPath { remedies, .. } => remedies.clone(),
            Self::Nvme(e) => e.remedies(),
            Self::Vfio(e) => e.remedies(),
            Self::Dma(e) => e.remedies(),
            Self::Memory(e) => e.remedies(),
            Self::Engine(e) => e.remedies(),
            Self::Run(e) => e.remedies(),
            _ => Vec::new(),
        }
    }
}

fn twice(device: &str, first: &str, what: &str) -> String {
    if device == first {
        format!("device `{device}` names {what} twice")
    } else {
        format!("devices `{first}` and `{device}` are the same, {what}")
    }
}

fn with_free(bytes: Option<u64>) -> String {
    bytes.map_or_else(String::new, |bytes| format!(", with {} free", size(bytes)))
}

/// Bytes as people read them: `1.0 MiB`.
pub(super) fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let step = (bytes.ilog2() / 10).min(UNITS.len() as u32);
    let scaled = bytes as f64 / (1u64 << (10 * step)) as f64;
    format!("{scaled:.1} {}", UNITS[step as usize - 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_well() {
        let all = [0, 1023, 1024, 1 << 20, 3_565_158, 5 << 30, u64::MAX].map(size);
        assert_eq!(all, ["0 B", "1023 B", "1.0 KiB", "1.0 MiB", "3.4 MiB", "5.0 GiB", "16.0 EiB"]);
    }

    #[test]
    fn too_small_a_device_is_told_with_both_sizes() {
        let e = StorageError::Capacity {
            device: "soft:FILE".into(),
            holds: 1 << 20,
            what: "the graph".into(),
            needs: 3_565_158,
            next: "give a larger one".into(),
        };
        assert_eq!(e.to_string(), "soft:FILE holds 1.0 MiB, the graph needs 3.4 MiB: give a larger one");
    }
}
