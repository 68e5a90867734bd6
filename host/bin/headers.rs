//! Runs `warpbell include-dir`: finds the folder with the device library's headers.

use crate::output::{Failure, say};
use std::path::PathBuf;

/// Returns `../include` beside the program if the headers are there, as in an installation, else the folder of the build.
pub fn folder() -> PathBuf {
    let program = std::env::current_exe().ok();
    let installed = program.as_deref().and_then(|p| Some(p.parent()?.parent()?.join("include")));
    installed.filter(|f| f.join("warpbell/abi.h").is_file()).unwrap_or_else(|| warpbell::INCLUDE_DIR.into())
}

/// Prints the folder.
///
/// # Errors
/// [`Failure::BrokenPipe`] if standard output was closed, [`Failure::Error`] if the folder has no headers.
pub fn run() -> Result<(), Failure> {
    let folder = folder();
    if !folder.join("warpbell/abi.h").is_file() {
        return Err(Failure::Error(format!(
            "no device headers in {}, where this program was built; copy `kernels/include` of its sources to `include` next to the program's folder",
            folder.display()
        )));
    }
    say!("{}", folder.display())
}
