//! Faults of the bits of a BVGraph.

/// Reason why a list cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// The bits end in the list.
    Cut,
    /// A number is larger than any that a graph has.
    Large,
    /// The list contradicts itself, or the number of vertices.
    Wrong(&'static str),
    /// The list of this vertex is needed first.
    Missing(u64),
}
