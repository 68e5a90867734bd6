//! The virtual machine rig as one test, for those who want it in `cargo test`; `tests/rig/run` is the same with the output as it
//! comes. The other tests here that need the machine skip themselves outside of it.

#[path = "common/tree.rs"]
mod tree;

use std::process::Command;

#[test]
fn all_passes_in_the_virtual_machine() {
    if std::env::var_os("WARPBELL_RIG").is_none() {
        println!(
            "SKIP: set WARPBELL_RIG=1, or run tests/rig/run; it takes minutes, and the first time builds a kernel"
        );
        return;
    }
    let run = tree::root().join("tests/rig/run");
    let status = Command::new(&run).status().unwrap_or_else(|e| panic!("{}: {e}", run.display()));
    assert!(status.success(), "{}: {status}", run.display());
}
