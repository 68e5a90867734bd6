//! Recorded machines.
