//! Tests the repository's own files: its documents, the pack of test programs, and the virtual machine rig.

mod pack;
mod readme;
mod rig;
#[path = "../common/tree.rs"]
mod tree;
