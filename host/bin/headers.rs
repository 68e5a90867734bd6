//! Runs `warpbell include-dir`: finds the folder with the device library's headers.

use crate::output::{Failure, say};
use std::path::PathBuf;
use std::sync::OnceLock;

/// Folder of a package that has the program inside another executable.
static PACKAGED: OnceLock<PathBuf> = OnceLock::new();

/// Makes a folder the one that [`folder`] returns. Only the first call has an effect.
pub fn set_folder(folder: PathBuf) {
    let _ = PACKAGED.set(folder);
}

/// Returns the folder of the package, or `../include` beside the program if the headers are there, as in an installation, else the
/// folder of the build.
pub fn folder() -> PathBuf {
    if let Some(folder) = PACKAGED.get() {
        return folder.clone();
    }
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
