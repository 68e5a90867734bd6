//! Tests the repository's own files: its documents, what images are built from, the pack of test programs, and the virtual machine rig.

mod container;
mod pack;
mod readme;
mod rig;
#[path = "../common/tree.rs"]
mod tree;
