//! Errors of storage.

mod kv;
mod manifest;
mod table;

pub use kv::KvError;
pub use manifest::ManifestError;
pub use table::TableError;

use crate::engine::{EngineError, RunError};
use crate::memory::{DmaError, MemoryError};
use crate::nvme::NvmeError;
use crate::remedy::{Remedies, Remedy};
use std::path::PathBuf;

/// Error of opening or using a drive, a volume, a cache or an array.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StorageError {
    /// A device specification that cannot be parsed or opened.
    #[error("device `{spec}`: {reason}")]
    Spec {
        /// The specification as given.
        spec: String,
        /// Description of the mistake.
        reason: String,
    },
    /// Two specifications that name the same device.
    #[error("{}; name each device once", twice(.device, .first, .what))]
    Twice {
        /// The device as it was named the second time.
        device: String,
        /// The device as it was named first.
        first: String,
        /// The file or namespace that both name.
        what: String,
    },
    /// A file that does not exist.
    #[error("{}: {reason}", .path.display())]
    Missing {
        /// The path.
        path: PathBuf,
        /// The part that is missing, and the command that creates it.
        reason: String,
    },
    /// A word that is not a value of an option.
    #[error(transparent)]
    Word(#[from] crate::data_path::UnknownWord),
    /// The NVMe driver failed.
    #[error(transparent)]
    Nvme(#[from] NvmeError),
    /// A controller of another machine cannot be connected.
    #[error(transparent)]
    Fabrics(#[from] crate::nvme::fabrics::FabricsError),
    /// A controller of this machine cannot be opened.
    #[error(transparent)]
    Vfio(crate::nvme::vfio::VfioError),
    /// A name that matches no controller, or several.
    #[error(transparent)]
    Find(#[from] crate::pci::FindError),
    /// A device cannot address memory.
    #[error(transparent)]
    Dma(#[from] DmaError),
    /// Memory cannot be allocated or accessed.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The engine starts no kernel.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A kernel that storage runs itself, to flush a cache or to copy through it, failed.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The manifest of a volume is missing, invalid, or does not fit the request.
    #[error("{device}: {source}")]
    Manifest {
        /// Name of the volume.
        device: String,
        /// The manifest's error.
        source: ManifestError,
    },
    /// An operation on a file failed.
    #[error("{}: {doing}: {source}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The operation that failed.
        doing: &'static str,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The file or device holds data that is not warpbell's, so it was not overwritten.
    #[error("{}: {found}; nothing was written", .path.display())]
    NotOurs {
        /// The file or device.
        path: PathBuf,
        /// Description of its contents.
        found: String,
    },
    /// The operating system uses the device.
    #[error("{} is in use by this system (mounted, or part of another device); it is never written to", .0.display())]
    InUse(PathBuf),
    /// The file system has no space for data that is written to a file.
    #[error("{}: no more data can be written{}: the file system is full, or a quota or file size limit is reached; free some space, or put the file on another file system", .path.display(), with_free(*.free))]
    NoSpace {
        /// The file.
        path: PathBuf,
        /// Free bytes of its file system; `None` where the file system does not report them.
        free: Option<u64>,
    },
    /// The volume is too small.
    #[error("{device} holds {}, {what} needs {}: {next}", size(*.holds), size(*.needs))]
    Capacity {
        /// Name of the volume.
        device: String,
        /// Bytes of the volume.
        holds: u64,
        /// The data to be stored, in words.
        what: String,
        /// Bytes that the data needs.
        needs: u64,
        /// The remedy.
        next: String,
    },
    /// Namespaces that cannot form a volume.
    #[error("{reason}")]
    Members {
        /// The reason.
        reason: String,
    },
    /// A path or operation that was asked for and is not available.
    #[error("{what} is not available on {device}: {reason}")]
    NoPath {
        /// The choice or operation, as in `landing direct`.
        what: String,
        /// Name of the device or volume.
        device: String,
        /// The cause, and the remedy where `remedies` has none.
        reason: String,
        /// Ways to make the path available.
        remedies: Vec<Remedy>,
    },
    /// A table that does not exist, or does not fit the request.
    #[error(transparent)]
    Table(#[from] super::TableError),
    /// A store of objects failed.
    #[error(transparent)]
    Kv(#[from] KvError),
    /// An option or argument out of its range.
    #[error("{0}")]
    Option(String),
    /// Blocks that are not within the volume.
    #[error("blocks {first} to {} do not lie within {device}, which has {blocks} blocks", .first.saturating_add(*.count))]
    Range {
        /// Name of the volume.
        device: String,
        /// First block asked for.
        first: u64,
        /// Number of blocks asked for.
        count: u64,
        /// Blocks of the volume.
        blocks: u64,
    },
    /// No copy of a replicated volume completed a command.
    #[error("{what} of {blocks} block(s) at {first} of {device}: every copy failed ({}); replace the devices, or store the data again", .errors.join("; "))]
    NoCopy {
        /// Kind of command: `read`, `write`, `flush`, `change`.
        what: &'static str,
        /// Name of the volume.
        device: String,
        /// First block of the command.
        first: u64,
        /// Number of blocks of the command.
        blocks: u64,
        /// Error of each copy that was tried.
        errors: Vec<String>,
    },
    /// The superblock of a copy cannot be read, and that copy may hold newer data than the others. Nothing is read from
    /// the volume's arrays, and nothing is stored.
    #[error("{device}: {}the superblock of {} cannot be read ({})", doubt(.newest), .copies.join(", "), .errors.join("; "))]
    Unread {
        /// Name of the volume.
        device: String,
        /// Copies whose superblock cannot be read, as they were named.
        copies: Vec<String>,
        /// Error of each of these copies.
        errors: Vec<String>,
        /// Name and generation of the newest copy that can be read, if any holds data.
        newest: Option<(String, u64)>,
    },
    /// An array was given more or fewer elements than planned.
    #[error("array `{name}`: {given} elements were written, but {planned} were planned")]
    Count {
        /// Name of the array.
        name: String,
        /// Elements given.
        given: u64,
        /// Elements planned.
        planned: u64,
    },
}

impl Remedies for StorageError {
    fn remedies(&self) -> Vec<Remedy> {
        match self {
            Self::NotOurs { path, .. } => vec![Remedy::step("choose another device"), Remedy::Overwrite(path.clone())],
            Self::NoPath { remedies, .. } => remedies.clone(),
            Self::Unread { copies, newest: Some(_), .. } => {
                let instead = format!(
                    "name an empty device in place of {} if it is broken, which gives up what it alone holds",
                    copies.join(" and of ")
                );
                vec![Remedy::step("try again"), Remedy::step(instead)]
            }
            Self::Unread { .. } => vec![Remedy::step("try again"), Remedy::step("replace the devices")],
            Self::Nvme(e) => e.remedies(),
            Self::Fabrics(e) => e.remedies(),
            Self::Vfio(e) => e.remedies(),
            Self::Dma(e) => e.remedies(),
            Self::Memory(e) => e.remedies(),
            Self::Engine(e) => e.remedies(),
            Self::Run(e) => e.remedies(),
            Self::Table(e) => e.remedies(),
            Self::Kv(e) => e.remedies(),
            _ => Vec::new(),
        }
    }
}

fn doubt(newest: &Option<(String, u64)>) -> String {
    match newest {
        Some((name, generation)) => {
            format!("newer data than generation {generation} on {name} may exist, because ")
        }
        None => "it is unknown what is stored there, because ".to_owned(),
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

/// Formats a number of bytes for people: `1.0 MiB`.
pub(in crate::storage) fn size(bytes: u64) -> String {
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
