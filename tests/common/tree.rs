//! Paths of the tree and of the program that tests run. They are found at run time, so that test programs also run on a
//! machine that has not built them (`tests/pack`). The paths of the build are the last resort.

#![allow(dead_code, reason = "each test program has a copy of this file and uses a part of it")]

use std::path::{Path, PathBuf};

/// A file that only the root of the tree has.
const MARK: &str = "kernels/include/warpbell/abi.h";

/// Returns the folder with `kernels/`, `tests/` and `examples/`: cargo's, or the nearest one above this program.
pub fn root() -> PathBuf {
    let cargo = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let this = || above(&std::env::current_exe().ok()?);
    cargo.or_else(this).unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into())
}

/// Returns cargo's folder for files of these tests; `None` on a machine that has not built them.
pub fn build_folder() -> Option<PathBuf> {
    option_env!("CARGO_TARGET_TMPDIR").map(PathBuf::from).filter(|folder| folder.is_dir())
}

/// Returns the nearest folder above a program that is the root of a tree.
pub fn above(program: &Path) -> Option<PathBuf> {
    program.ancestors().skip(1).find(|f| f.join(MARK).is_file()).map(Path::to_owned)
}

/// Returns a file or folder of the tree, as text for a command line.
pub fn file(name: &str) -> String {
    root().join(name).into_os_string().into_string().expect("the tree's path is UTF-8")
}

/// Returns the path of the program `warpbell`: cargo's, or the one beside this program or in the folder above.
pub fn program() -> PathBuf {
    let cargo = std::env::var_os("CARGO_BIN_EXE_warpbell").map(PathBuf::from);
    let near =
        || std::env::current_exe().ok()?.ancestors().skip(1).take(2).map(|f| f.join("warpbell")).find(|p| p.is_file());
    let built = || option_env!("CARGO_BIN_EXE_warpbell").map(PathBuf::from);
    cargo.or_else(near).or_else(built).unwrap_or_else(|| "warpbell".into())
}
