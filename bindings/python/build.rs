//! Copies the headers for kernels to where maturin takes them from (`include` of `pyproject.toml`).

use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let from = PathBuf::from(env::var_os("DEP_WARPBELL_INCLUDE").expect("the package `warpbell` sets it"));
    println!("cargo::rerun-if-changed={}", from.display());
    let to = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it")).join("include");
    // Files that are gone from the sources would stay.
    let _ = fs::remove_dir_all(&to);
    copy(&from, &to).expect("OUT_DIR is writable");
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
