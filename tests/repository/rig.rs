//! Runs the virtual machine rig as one test: `cargo test --test repository -- --ignored rig::`. It takes minutes, and builds a
//! kernel the first time. `tests/rig/run` does the same and shows the output at once.

use crate::tree;
use std::process::Command;

#[test]
#[ignore = "needs the rig"]
fn all_passes_in_the_virtual_machine() {
    let run = tree::root().join("tests/rig/run");
    let status = Command::new(&run).status().unwrap_or_else(|e| panic!("{}: {e}", run.display()));
    assert!(status.success(), "{}: {status}", run.display());
}
