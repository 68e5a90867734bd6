//! The tree of the repository, and the program that is built of it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Returns the root of the repository.
///
/// # Panics
/// If cargo does not run the tests.
pub fn root() -> PathBuf {
    PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo names the folder of the package")).join("../..")
}

/// Builds the program, once, in the folder in which this test was built. Returns its path.
///
/// # Panics
/// If the program cannot be built.
pub fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let own = std::env::current_exe().unwrap();
        // target/debug/deps/warpbell_schemas-HASH
        let target = own.ancestors().nth(3).unwrap();
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--quiet", "--locked", "--bin", "warpbell", "--target-dir"]).arg(target);
        let built = cargo.current_dir(root()).output().unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        target.join("debug/warpbell")
    })
}
