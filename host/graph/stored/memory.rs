//! Memory that opening a stored graph takes.

use super::header::StoredIds;
use super::{GraphName, StoredInfo, names, open};
use crate::graph::edges::{GraphError, PlacementOptions};
use crate::graph::packed;
use crate::graph::params::{GRAPH_HUBS, GRAPH_PIECE_EDGES};
use crate::storage::Volume;

/// Memory in bytes that a stored graph takes once it is opened and placed, apart from the page cache and the values of
/// an algorithm. On the CPU engine both are memory of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpeningMemory {
    /// Memory of the host: offsets, identifiers or names, and self-loops.
    pub host: u64,
    /// Memory of the engine: offsets, the best-connected neighbours, the first vertex of each tile of edges, and a bitmap
    /// of vertices without edges. While it is filled, the host holds a copy of the largest part.
    pub engine: u64,
}

impl OpeningMemory {
    /// Returns the memory that [`StoredGraph::open`](super::StoredGraph::open) and
    /// [`StoredGraph::place`](super::StoredGraph::place) take. Reads the header of the graph.
    ///
    /// # Errors
    /// As for reading the header in [`StoredGraph::open`](super::StoredGraph::open).
    pub fn of(volume: &Volume, name: &GraphName, needs: PlacementOptions) -> Result<Self, GraphError> {
        let info = open::header(volume, name)?;
        let inward = info.directed && needs.inward;
        Ok(Self { host: saturated(host_bytes(volume, name, &info)?), engine: saturated(engine_bytes(&info, inward)) })
    }
}

/// Headers are untrusted, and their numbers may be too large for 64 bits.
fn saturated(bytes: u128) -> u64 {
    bytes.try_into().unwrap_or(u64::MAX)
}

fn lists(both: bool) -> u128 {
    if both { 2 } else { 1 }
}

/// Returns the bytes of the host that [`StoredGraph::open`](super::StoredGraph::open) takes.
pub(super) fn host_bytes(volume: &Volume, name: &GraphName, info: &StoredInfo) -> Result<u128, GraphError> {
    let vertices = u128::from(info.vertices);
    let ids = match info.ids {
        StoredIds::Dense => 0,
        StoredIds::Listed => vertices * 8,
        StoredIds::Named => names::bytes(volume, name)?.into(),
    };
    let loops = if info.loops > 0 { vertices.div_ceil(64) * 8 } else { 0 };
    let order = if info.reordered { (vertices + 1) * 8 + vertices * 8 } else { 0 };
    Ok((vertices + 1) * 8 * lists(info.directed) + ids + loops + order)
}

fn engine_bytes(info: &StoredInfo, inward: bool) -> u128 {
    let (vertices, width) = (u128::from(info.vertices), info.neighbour_bytes as u128);
    // Parts have about the same numbers of edges.
    let arcs = info.arcs / info.part.map_or(1, |own| own.parts as u64);
    let tiles = u128::from(arcs).div_ceil(GRAPH_PIECE_EDGES.into()) * width;
    let positions = if info.packed { u128::from(packed::blocks(arcs) + 1) * 8 } else { 0 };
    let side = (vertices + 1) * 8 + vertices * u128::from(GRAPH_HUBS) * width + tiles + positions;
    let order = if info.reordered { vertices * 4 } else { 0 };
    side * lists(inward) + vertices.div_ceil(32) * 4 + order
}
