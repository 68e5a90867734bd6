//! Neighbour lists of graphs, for kernels of the program.

use crate::error::{Error, WB_ERR_STATE, guard, wb_code};
use crate::graph::wb_graph_t;
use crate::options::Options;
use crate::pointer::{In, Out};
use bytemuck::Zeroable;
use std::ffi::c_void;
use std::ptr;
use warpbell::engine::abi::ArrayView as wb_array_view;
use warpbell::graph::PlacedNeighbours;

/// Outgoing edges of a graph.
pub const WB_LISTS_OUTGOING: u32 = 0;
/// Incoming edges: those of an undirected graph are its outgoing ones.
pub const WB_LISTS_INCOMING: u32 = 1;

/// Neighbour lists of a graph, as kernels read them. Addresses are those that kernels use.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct wb_graph_lists {
    /// `sizeof(wb_graph_lists)`, set by the program before the call.
    pub size: usize,
    /// Number of vertices.
    pub vertices: u64,
    /// Number of neighbours in all lists.
    pub arcs: u64,
    /// Bytes of an identifier: 4 or 8.
    pub id_bytes: u32,
    /// Neighbours at the front of each list that `hubs` has: a kernel that has used those goes on after them.
    pub hubs_first: u32,
    /// Index of each vertex's first neighbour: `[vertices + 1]`.
    pub offset: *const u64,
    /// Neighbours in memory, `[arcs]` identifiers; null if they are stored.
    pub memory: *const c_void,
    /// Neighbours that kernels read from storage through `array_ref<uint32_t>` or `array_ref<uint64_t>`; all zeroes if they are in memory.
    pub stored: wb_array_view,
    /// Up to four neighbours of each vertex with the highest degrees, the highest first: identifiers, `[vertices][4]`.
    /// Missing ones have the largest value.
    pub hubs: *const c_void,
    /// Bitmap of vertices without edges, and of bits past the last vertex: `[(vertices + 31) / 32]`.
    pub isolated: *const u32,
}

// SAFETY: numbers and pointers; the size comes first.
unsafe impl Options for wb_graph_lists {
    const NAME: &str = "wb_graph_lists";
}

/// Returns the neighbour lists of a graph, for kernels of the program. Pass the graph as `keep` of an argument, or to
/// `wb_run_keep`: the lists live as long as it.
///
/// @param direction `WB_LISTS_OUTGOING` or `WB_LISTS_INCOMING`.
/// @param lists Receives the lists, as many fields as its `size` says.
/// @return `WB_OK`; `WB_ERR_STATE` if the graph has no such lists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_graph_get_lists(
    graph: In<wb_graph_t>,
    direction: u32,
    lists: Out<wb_graph_lists>,
) -> wb_code {
    guard(|| {
        let graph = graph.get()?.on_engine();
        let found = match direction {
            WB_LISTS_OUTGOING => graph.lists(),
            WB_LISTS_INCOMING => graph.inward_lists(),
            other => {
                return Err(Error::argument(format!(
                    "`direction` is {other}; use WB_LISTS_OUTGOING or WB_LISTS_INCOMING"
                )));
            }
        };
        let found = found.ok_or_else(|| {
            Error::new(WB_ERR_STATE, "the graph has no lists in this direction; import or place it with them")
        })?;
        let (memory, stored) = match &found.neighbours {
            PlacedNeighbours::Memory(region) => (region.address() as *const c_void, wb_array_view::zeroed()),
            PlacedNeighbours::Narrow(array) => (ptr::null(), array.view()),
            PlacedNeighbours::Wide(array) => (ptr::null(), array.view()),
            _ => return Err(Error::new(WB_ERR_STATE, "the neighbours are in a place that this version does not know")),
        };
        let lists_of = wb_graph_lists {
            size: size_of::<wb_graph_lists>(),
            vertices: graph.vertices(),
            arcs: graph.arcs(),
            id_bytes: graph.id_bits() / 8,
            hubs_first: found.hubs_first,
            offset: found.offset.address() as *const u64,
            memory,
            stored,
            hubs: found.hubs.address() as *const c_void,
            isolated: found.isolated.address() as *const u32,
        };
        lists.fill("lists", lists_of)
    })
}
