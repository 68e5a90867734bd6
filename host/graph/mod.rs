//! Graphs on storage: import, generators, algorithms, verifiers.
