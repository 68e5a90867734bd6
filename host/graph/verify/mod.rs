//! Checks results against serial references.
