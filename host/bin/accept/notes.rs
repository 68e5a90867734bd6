//! Hands the commands that devices refused from the processes of a run to the run: each process leaves a file.

use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use warpbell::refused::{self, RefusedCommand};

/// Environment variable that names the folder. Set by the run for the commands that it starts.
pub const FOLDER: &str = "WARPBELL_ACCEPT_NOTES";

#[derive(Serialize, Deserialize)]
struct Note {
    refused: Vec<RefusedCommand>,
    more: usize,
}

/// A folder that the processes of one command leave their notes in.
pub struct Notes(TempDir);

impl Notes {
    /// Creates the folder.
    ///
    /// # Errors
    /// [`io::Error`] if it cannot be created.
    pub fn new() -> io::Result<Self> {
        tempfile::Builder::new().prefix("warpbell-accept").tempdir().map(Self)
    }

    /// Returns its path.
    pub fn folder(&self) -> &Path {
        self.0.path()
    }

    /// Returns what the processes have left, and the number of commands beyond that.
    pub fn read(&self) -> (Vec<RefusedCommand>, usize) {
        let mut files: Vec<PathBuf> =
            std::fs::read_dir(self.folder()).into_iter().flatten().flatten().map(|e| e.path()).collect();
        files.sort();
        let (mut all, mut more) = (Vec::new(), 0);
        for file in files {
            let note: Option<Note> = std::fs::read(file).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
            if let Some(note) = note {
                all.extend(note.refused);
                more += note.more;
            }
        }
        (all, more)
    }
}

/// Leaves the commands that devices refused in this process, if a run has started it. Called at the end of a command.
pub fn hand_over() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let (refused, more) = refused::take();
    if refused.is_empty() {
        return;
    }
    let file = Path::new(&folder).join(format!("{}.json", std::process::id()));
    // The command's own outcome does not depend on its notes.
    if let Ok(text) = serde_json::to_vec(&Note { refused, more }) {
        let _ = std::fs::write(file, text);
    }
}
