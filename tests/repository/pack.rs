//! Tests that test programs run on machines that have not built them: paths are found at run time, and `tests/pack/run`
//! counts the tests that it runs.

use crate::tree;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn paths_of_the_build_stand_in_one_file() {
    // Split, so that this file does not contain the names.
    let paths = [concat!("env!(\"CARGO_", "MANIFEST_DIR\")"), concat!("env!(\"CARGO_", "BIN_EXE_")];
    let mut found = Vec::new();
    // A pack has no `host`.
    for folder in ["host", "tests"].map(|f| tree::root().join(f)).iter().filter(|f| f.is_dir()) {
        sources(folder, &mut found);
    }
    found.retain(|f| !f.ends_with("tests/common/tree.rs"));
    assert!(!found.is_empty());
    found.retain(|f| paths.iter().any(|p| fs::read_to_string(f).unwrap().contains(p)));
    assert!(found.is_empty(), "these do not find their files on another machine; use tests/common/tree.rs: {found:?}");
}

#[test]
fn the_tree_is_the_nearest_above_a_program() {
    let folder = tempfile::tempdir().unwrap();
    let headers = folder.path().join("kernels/include/warpbell");
    fs::create_dir_all(&headers).unwrap();
    assert_eq!(tree::above(&folder.path().join("bin/tests/world")), None);
    fs::write(headers.join("abi.h"), "").unwrap();
    assert_eq!(tree::above(&folder.path().join("bin/tests/world")).as_deref(), Some(folder.path()));
}

/// Replaces a test program: three tests that run, and one that needs a GPU.
const PROGRAM: &str = r#"#!/bin/sh
case "$*" in
  *--list*--ignored*) echo "on_a_gpu: test" ;;
  *--list*) printf 'on_a_gpu: test\nworks: test\nskips: test\nlast: test\n' ;;
  "--exact on_a_gpu") echo "test on_a_gpu ... ignored, needs a GPU" ;;
  "--include-ignored --exact --show-output --skip on_a_gpu")
    printf 'test works ... ok\ntest skips ... ok\n'
    LAST
    printf '\nsuccesses:\n\n---- skips stdout ----\nSKIP: no machine for it\n\n'
    echo "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 1 filtered out; finished in 0.00s" ;;
  *) echo "not expected: $*"; exit 3 ;;
esac
"#;

/// Runs a pack of one such program, whose last test is this command. Returns the status and the output.
fn run_pack(last: &str) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().unwrap();
    let programs = folder.path().join("bin/tests");
    fs::create_dir_all(&programs).unwrap();
    fs::write(
        folder.path().join("manifest.json"),
        r#"{"profile":"debug","tests":["one"],"examples":[],"left_out":{}}"#,
    )
    .unwrap();
    fs::write(programs.join("one"), PROGRAM.replace("LAST", last)).unwrap();
    fs::set_permissions(programs.join("one"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::copy(tree::root().join("tests/pack/run"), folder.path().join("run")).unwrap();
    let mut run = Command::new("python3");
    run.current_dir(folder.path()).args(["run", "--limit", "3"]);
    let o = run.output().unwrap_or_else(|e| panic!("python3: {e}; install it"));
    (o.status.code(), format!("{}{}", String::from_utf8_lossy(&o.stdout), String::from_utf8_lossy(&o.stderr)))
}

#[test]
fn a_pack_adds_up_what_its_programs_say() {
    let (status, said) = run_pack("echo 'test last ... ok'");
    assert_eq!(status, Some(0), "{said}");
    for part in ["ignored: 1 (needs a GPU)", "passed without running: one skips: no machine for it"] {
        assert!(said.contains(part), "{said}");
    }
    assert!(said.contains("total: 3 passed, 0 failed, 1 ignored; 1 of those"), "{said}");
}

#[test]
fn a_test_that_hangs_is_named_and_fails() {
    let (status, said) = run_pack("sleep 600");
    assert_eq!(status, Some(1), "{said}");
    for part in ["not over: last", "FAILED one last", "total: 2 passed, 1 failed, 1 ignored"] {
        assert!(said.contains(part), "no `{part}` in:\n{said}");
    }
}
