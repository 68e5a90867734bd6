//! Writes results.
