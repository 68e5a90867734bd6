//! Tests that the compiler rejects a launch by name outside `unsafe`, and a reset of queues that a launch holds a share
//! of. Each program of `tests/compile_fail` is compiled against the library of this build. It must be rejected with the
//! message in the file beside it.
#![cfg(feature = "storage")]

#[path = "common/tree.rs"]
mod tree;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use tree::root;

/// Lists features by name, each with true if this build has the feature.
macro_rules! features {
    ($($name:literal)*) => { &[$(($name, cfg!(feature = $name))),*] };
}

const FEATURES: &[(&str, bool)] = features![
    "default" "storage" "shmem" "graph" "parquet" "soft" "doctor" "cli" "nvml" "gpu-image" "cpu-image" "require-cuda" "checked" "cuda-12080"
    "cuda-13000"
];

/// Returns the program that an environment variable names, or the one on the path.
fn program(variable: &str, otherwise: &str) -> Command {
    let mut command = Command::new(std::env::var_os(variable).unwrap_or_else(|| OsString::from(otherwise)));
    command.current_dir(root());
    command
}

/// Returns the path of the library as cargo has built it for these tests. Cargo prints the path.
fn library() -> PathBuf {
    let features: Vec<&str> = FEATURES.iter().filter(|(_, on)| *on).map(|(name, _)| *name).collect();
    let mut cargo = program("CARGO", "cargo");
    // Requested as these tests are, so that nothing is left to build: `cargo build` leaves out what only tests depend
    // on.
    cargo.args(["test", "--no-run", "--test", "compile_fail", "--message-format=json"]);
    cargo.args(["--no-default-features", "--features", &features.join(",")]);
    let built = cargo.output().expect("cargo, which runs these tests, can be run");
    assert!(built.status.success(), "the library does not build:\n{}", String::from_utf8_lossy(&built.stderr));
    let messages = String::from_utf8_lossy(&built.stdout);
    let files = messages.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok()).filter(|m| {
        m["reason"] == "compiler-artifact"
            && m["target"]["kind"] == serde_json::json!(["lib"])
            && m["manifest_path"] == root().join("Cargo.toml").to_str().expect("a path")
    });
    let names: Vec<PathBuf> = files
        .flat_map(|m| m["filenames"].as_array().cloned().unwrap_or_default())
        .filter_map(|f| f.as_str().map(PathBuf::from))
        .collect();
    names.into_iter().find(|f| f.extension().is_some_and(|e| e == "rlib")).expect("cargo built a library")
}

/// Returns the compiler's messages about a program: one line for each error, with its place.
fn compiler_error(source: &Path, library: &Path, out: &Path) -> String {
    let dependencies = library.parent().expect("a folder");
    let mut rustc = program("RUSTC", "rustc");
    rustc.args(["--edition=2024", "--crate-type=bin", "--emit=metadata", "--error-format=short", "--out-dir"]).arg(out);
    rustc.arg("--extern").arg(format!("warpbell={}", library.display()));
    rustc.arg("-L").arg(format!("dependency={}", dependencies.display())).arg(source);
    let done = rustc.output().expect("rustc can be run");
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(!done.status.success(), "{} compiles, and must not:\n{said}", source.display());
    said.lines().filter(|l| !l.starts_with("error: aborting due to")).map(|l| format!("{l}\n")).collect()
}

#[test]
fn wrong_programs_are_refused() {
    let folder = Path::new("tests/compile_fail");
    let listed = std::fs::read_dir(root().join(folder)).expect("a folder of the package");
    let mut sources: Vec<PathBuf> = listed.map(|e| folder.join(e.expect("a file of it").file_name())).collect();
    sources.retain(|s| s.extension().is_some_and(|e| e == "rs"));
    sources.sort();
    assert!(!sources.is_empty(), "no programs in {}", folder.display());
    let library = library();
    let out = tempfile::tempdir().expect("a temporary folder");
    for source in sources {
        let expected =
            std::fs::read_to_string(root().join(source.with_extension("stderr"))).expect("what it says is beside it");
        let said = compiler_error(&source, &library, out.path());
        assert_eq!(said, expected, "{} is refused otherwise than it should", source.display());
        println!("{}: {}", source.display(), said.trim());
    }
}
