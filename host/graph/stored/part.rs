//! A part of a graph that is stored in parts, as its PE opens it.

use super::{StoredError, StoredGraph};
use crate::graph::edges::GraphError;
use std::ops::Range;

impl StoredGraph {
    /// Returns the vertices, in the order of the lists, whose lists are here: all unless the graph is in parts.
    pub(crate) fn own_vertices(&self) -> Range<u64> {
        self.info.own_vertices()
    }

    /// Returns the number of edges that the lists here have: the in-lists of a directed graph if `inward` is set.
    pub(crate) fn own_arcs(&self, inward: bool) -> u64 {
        self.list_offsets(inward).last().copied().unwrap_or_default()
    }

    /// Returns the number of stored neighbours of the lists that are here, in one direction.
    #[cfg(feature = "internals")]
    pub fn arcs_here(&self) -> u64 {
        self.own_arcs(false)
    }

    /// Returns the number of vertices whose lists are here.
    #[cfg(feature = "internals")]
    pub fn vertices_here(&self) -> u64 {
        let own = self.own_vertices();
        own.end - own.start
    }

    /// Checks that all lists are here.
    pub(super) fn check_whole(&self) -> Result<(), GraphError> {
        match self.info.part {
            Some(own) => {
                Err(StoredError::Part { name: self.name().to_string(), part: own.part, parts: own.parts }.into())
            }
            None => Ok(()),
        }
    }
}
