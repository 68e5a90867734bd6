//! Sorting of edges that do not fit into memory: an external merge sort (Knuth, "The Art of Computer Programming",
//! volume 3, section 5.4).
//!
//! Arcs are sorted in pieces that fit into memory ([`Runs`]) and written to a temporary file. The runs are then merged
//! range by range of keys, several ranges at a time ([`Merge`]). Nothing has a name in the file system, so whatever ends
//! the program leaves nothing behind.

mod lists;
mod merge;
mod runs;
mod spill;

pub(crate) use lists::{FileLists, ListsWriter};
pub(crate) use merge::Merge;
pub(crate) use runs::Runs;
pub(crate) use spill::{Spill, SpillError};

use std::path::PathBuf;

/// Limits of work that uses temporary files.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    /// Memory in bytes.
    pub memory: u64,
    /// Folder of temporary files.
    pub folder: PathBuf,
}

/// Returns the folder for temporary files: `TMPDIR`, or `/var/tmp`, which is meant for large files, where `/tmp` is often
/// memory.
pub(crate) fn default_folder() -> PathBuf {
    let large = PathBuf::from("/var/tmp");
    match std::env::var_os("TMPDIR") {
        Some(folder) if !folder.is_empty() => folder.into(),
        _ if large.is_dir() => large,
        _ => std::env::temp_dir(),
    }
}
