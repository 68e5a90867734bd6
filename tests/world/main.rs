//! Tests worlds whose ranks are processes. A rank is this program again, or one that a launcher starts.
#![cfg(all(feature = "shmem", feature = "soft", feature = "cpu-image"))]

#[path = "../children/mod.rs"]
mod children;
mod launchers;
mod processes;
mod ranks;
#[path = "../common/tree.rs"]
mod tree;
