//! Graphs: imported, opened, or made of the program's memory.

use crate::cache::wb_cache_t;
use crate::engine::{as_json, wb_engine_t};
use crate::error::{Error, WB_ERR_STATE, guard, wb_code};
use crate::graph_input::{self, Callback, wb_csr, wb_graph_options};
use crate::object::object;
use crate::options::owned_text;
use crate::pointer::{In, Out, Owned, Text};
use crate::volume::wb_volume_t;
use serde_json::json;
use std::ffi::c_char;
use warpbell::engine::Engine;
use warpbell::graph::stored::{self, GraphName, GraphToStore, StoredInfo};
use warpbell::graph::{Csr, Graph, GraphOnEngine, Placement, PlacementOptions};

/// A graph that kernels can read, and the identifiers of its vertices. Vertices are numbered from 0;
/// `wb_graph_vertex_of` and `wb_graph_id_of` convert from and to identifiers of the input.
pub struct wb_graph_t {
    _private: (),
}

object!(wb_graph_t: Graph, "graph");

/// Edges in memory of the engine: of the GPU, or of this process for CPU threads.
pub const WB_EDGES_IN_DEVICE: u32 = 0;
/// Edges in pinned memory of the host, which kernels read over the bus.
pub const WB_EDGES_IN_HOST: u32 = 1;
/// Edges on a volume, read through a cache.
pub const WB_EDGES_IN_STORAGE: u32 = 2;

fn graph_name(name: Text) -> Result<GraphName, Error> {
    Ok(name.text("name")?.parse()?)
}

/// Reads or generates a graph, stores it on the volume below a cache, beside everything that the volume holds, and opens it.
///
/// @param name Name of the stored graph: 1 to 40 letters, digits, `.`, `_` and `-`.
/// @param input Path of a file, or a generator: `kron:SCALE`, `urand:SCALE`, both with `:EDGES` of each vertex behind it.
/// @param options Options, or null for the defaults.
/// @param graph Receives the graph, with one reference. It keeps the cache.
/// @return `WB_OK`; `WB_ERR_EXISTS` if the volume holds a graph of the name; `WB_ERR_NOT_FOUND` if there is no such file;
///   `WB_ERR_INPUT` with the line if it cannot be parsed; `WB_ERR_SPACE` if the volume is too small; `WB_ERR_MEMORY` if the
///   vertices do not fit into memory; `WB_ERR_STOPPED` on a cancelled engine; `WB_ERR_IO` or `WB_ERR_TIMEOUT` if a device
///   fails.
/// @note One call at a time for a volume. Writes changed pages of the cache, and empties it. Empty other caches of the volume
///   by `wb_cache_reset` if a graph or an array was removed or replaced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_graph_import(
    cache: In<wb_cache_t>,
    name: Text,
    input: Text,
    options: In<wb_graph_options>,
    graph: Out<*mut wb_graph_t>,
) -> wb_code {
    guard(|| {
        graph.check("graph")?;
        let (cache, name) = (cache.get()?, graph_name(name)?);
        let given = options.read()?;
        let callback = Callback::of(&given);
        let progress = |progress| callback.report(progress);
        let load = graph_input::load_options(&given)?.keep_self_loops(true).progress(Some(&progress));
        let input = graph_input::input(input, &load)?;
        if given.replace == 0 {
            // Reading the input may take long; the name is checked again when the graph is written.
            stored::check_name(cache.volume(), &name)?;
        }
        let read = GraphToStore::import(name, &input, &load)?.page_checksums(graph_input::wants_checksums(&given)?);
        graph.give(Graph::store(cache, read, given.replace != 0, &load)?)
    })
}

/// Opens a stored graph. Reads what grows with the number of vertices; kernels read the edges through the cache.
///
/// @param name Name of the graph.
/// @param graph Receives the graph, with one reference. It keeps the cache.
/// @return `WB_OK`; `WB_ERR_NOT_FOUND` if the volume holds no such graph, with the names of those that it holds;
///   `WB_ERR_DAMAGED` if a part is not as it was stored; `WB_ERR_UNSUPPORTED` if a later version wrote it; `WB_ERR_MEMORY` if
///   the vertices do not fit into memory; `WB_ERR_IO` or `WB_ERR_TIMEOUT` if a device fails.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_graph_open(cache: In<wb_cache_t>, name: Text, graph: Out<*mut wb_graph_t>) -> wb_code {
    guard(|| {
        graph.check("graph")?;
        let (cache, name) = (cache.get()?, graph_name(name)?);
        graph.give(Graph::open(cache, &name)?)
    })
}

/// Returns the placement that the arguments of a call name.
fn placement(engine: &Engine, placement: u32, cache: In<wb_cache_t>) -> Result<Placement, Error> {
    let cache = cache.optional()?;
    Ok(match (placement, cache) {
        (WB_EDGES_IN_DEVICE, None) => Placement::Gpu,
        (WB_EDGES_IN_HOST, None) => Placement::Pinned,
        (WB_EDGES_IN_STORAGE, Some(cache)) => {
            if !cache.volume().engine().space().same(engine.space()) {
                return Err(Error::argument("the cache belongs to another engine; open the volume on this one"));
            }
            Placement::Storage(cache.clone())
        }
        (WB_EDGES_IN_STORAGE, None) => {
            return Err(Error::argument("`cache` is null; edges on storage are read through a cache"));
        }
        (WB_EDGES_IN_DEVICE | WB_EDGES_IN_HOST, Some(_)) => {
            return Err(Error::argument("`cache` is given and not used; pass null, or WB_EDGES_IN_STORAGE"));
        }
        (other, _) => {
            return Err(Error::argument(format!(
                "`placement` is {other}; use WB_EDGES_IN_DEVICE, WB_EDGES_IN_HOST or WB_EDGES_IN_STORAGE"
            )));
        }
    })
}

/// Places a graph, if the volume below a cache has room for it.
fn place(engine: &Engine, csr: Csr, placement: Placement) -> Result<Graph, Error> {
    if let Placement::Storage(cache) = &placement {
        GraphOnEngine::check_volume(cache.volume(), &csr, PlacementOptions::all_of(csr.weights().is_some()))?;
    }
    Ok(Graph::from_csr(engine, csr, placement)?)
}

/// Reads or generates a graph without a name, for this program alone.
///
/// @param input As for `wb_graph_import`.
/// @param options Options, or null for the defaults.
/// @param placement `WB_EDGES_IN_DEVICE`, `WB_EDGES_IN_HOST` or `WB_EDGES_IN_STORAGE`.
/// @param cache Cache of the volume that the edges are written to, in place of everything that it holds; null for edges in
///   memory.
/// @param graph Receives the graph, with one reference.
/// @return `WB_OK`; `WB_ERR_EXISTS` if the volume holds other arrays and no `wb_volume_options.overwrite` names its devices;
///   otherwise as `wb_graph_import`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_graph_load(
    engine: In<wb_engine_t>,
    input: Text,
    options: In<wb_graph_options>,
    placement: u32,
    cache: In<wb_cache_t>,
    graph: Out<*mut wb_graph_t>,
) -> wb_code {
    guard(|| {
        graph.check("graph")?;
        let engine = engine.get()?;
        let given = options.read()?;
        let callback = Callback::of(&given);
        let progress = |progress| callback.report(progress);
        let placement = self::placement(engine, placement, cache)?;
        let load = graph_input::load_options(&given)?.progress(Some(&progress));
        let loaded = graph_input::input(input, &load)?.load(&load)?;
        graph.give(place(engine, loaded.csr, placement)?)
    })
}

/// Makes a graph of lists in the program's memory, which are copied.
///
/// @param csr The lists.
/// @param placement `WB_EDGES_IN_DEVICE`, `WB_EDGES_IN_HOST` or `WB_EDGES_IN_STORAGE`.
/// @param cache As for `wb_graph_load`.
/// @param graph Receives the graph, with one reference.
/// @return `WB_OK`; `WB_ERR_ARGUMENT` with the place in the lists if they are no graph; `WB_ERR_EXISTS` as `wb_graph_load`;
///   `WB_ERR_MEMORY` without memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_graph_from_csr(
    engine: In<wb_engine_t>,
    csr: In<wb_csr>,
    placement: u32,
    cache: In<wb_cache_t>,
    graph: Out<*mut wb_graph_t>,
) -> wb_code {
    guard(|| {
        graph.check("graph")?;
        let engine = engine.get()?;
        let placement = self::placement(engine, placement, cache)?;
        let csr = graph_input::csr(csr)?;
        graph.give(place(engine, csr, placement)?)
    })
}

/// Adds a reference to a graph.
///
/// @return The graph; null with an error if it is no graph.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_graph_retain(graph: Owned<wb_graph_t>) -> *mut wb_graph_t {
    graph.retain()
}

/// Gives a reference to a graph back. Results of algorithms do not need it.
///
/// @param graph The graph; null is ignored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_graph_release(graph: Owned<wb_graph_t>) {
    graph.release()
}

/// Returns the number of vertices.
///
/// @param vertices Receives the number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_graph_vertices(graph: In<wb_graph_t>, vertices: Out<u64>) -> wb_code {
    guard(|| {
        let found = graph.get()?.vertices();
        vertices.write("vertices", found)
    })
}

/// Returns the number of stored neighbours: the edges of a directed graph, twice the edges of an undirected one.
///
/// @param arcs Receives the number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_graph_arcs(graph: In<wb_graph_t>, arcs: Out<u64>) -> wb_code {
    guard(|| {
        let found = graph.get()?.arcs();
        arcs.write("arcs", found)
    })
}

/// Describes a graph as JSON: sizes, direction, weights, place of the edges, identifiers.
///
/// @param json Receives the text. Free it with `wb_string_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_graph_info(graph: In<wb_graph_t>, json: Out<*mut c_char>) -> wb_code {
    guard(|| {
        json.check("json")?;
        let graph = graph.get()?;
        let on_engine = graph.on_engine();
        let facts = json!({
            "vertices": graph.vertices(), "arcs": graph.arcs(), "directed": on_engine.directed(),
            "weighted": on_engine.is_weighted(), "neighbour_bits": on_engine.id_bits(),
            "placement": on_engine.placement().to_string(), "named": graph.ids().names().is_some(),
            "ids": graph.ids().bounds().map(|(low, high)| [low, high]),
        });
        json.write("json", owned_text(as_json(&facts)?))
    })
}

/// Reads the edges of a graph into its cache, as far as they fit. Does nothing for edges in memory.
///
/// @return `WB_OK`; `WB_ERR_OPERATION` if a page cannot be read, with its LBA; `WB_ERR_STOPPED` on a cancelled engine.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_graph_warm(graph: In<wb_graph_t>) -> wb_code {
    guard(|| Ok(graph.get()?.on_engine().warm()?))
}

/// Lists the graphs of a volume as JSON: name, bytes, sizes, direction, weights and input; or the error of a graph that
/// cannot be read.
///
/// @param json Receives a list. Free it with `wb_string_free`.
/// @return As `wb_volume_arrays`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_graph_list(volume: In<wb_volume_t>, json: Out<*mut c_char>) -> wb_code {
    guard(|| {
        json.check("json")?;
        let graphs = stored::stored_graphs(volume.get()?)?;
        let described = graphs.iter().map(|graph| match &graph.info {
            Ok(info) => described(graph.name.as_str(), graph.bytes, info),
            Err(e) => json!({ "name": graph.name.as_str(), "bytes": graph.bytes, "error": e.to_string() }),
        });
        let list: Vec<_> = described.collect();
        json.write("json", owned_text(as_json(&list)?))
    })
}

fn described(name: &str, bytes: u64, info: &StoredInfo) -> serde_json::Value {
    json!({
        "name": name, "bytes": bytes, "vertices": info.vertices, "arcs": info.arcs, "edges": info.edges,
        "directed": info.directed, "lists": if info.packed { "packed" } else { "plain" }, "neighbour_bytes": info.neighbour_bytes, "weighted": info.weights.is_some(),
        "named": info.has_names(), "format": info.input.format.to_string(),
        "orientation": info.input.orientation.to_string(), "weights": info.input.weights.to_string(),
    })
}

/// Removes a stored graph, which frees its space. The data itself is not erased. Graphs that are open must not be used any
/// more.
///
/// @param name Name of the graph.
/// @return `WB_OK`; `WB_ERR_NOT_FOUND` if the volume holds no such graph; `WB_ERR_IO` or `WB_ERR_TIMEOUT` if a device fails.
/// @note One call at a time for a volume.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_graph_remove(volume: In<wb_volume_t>, name: Text) -> wb_code {
    guard(|| {
        let (volume, name) = (volume.get()?, graph_name(name)?);
        Ok(stored::remove_stored_graph(volume, &name)?)
    })
}

/// Returns the vertex of an identifier that is a number.
///
/// @param id Identifier of the input.
/// @param vertex Receives the vertex.
/// @return `WB_OK`; `WB_ERR_NOT_FOUND` if there is none, with the range of the identifiers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_graph_vertex_of(graph: In<wb_graph_t>, id: u64, vertex: Out<u64>) -> wb_code {
    guard(|| {
        let found = graph.get()?.ids().find(id)?;
        vertex.write("vertex", found)
    })
}

/// Returns the vertex of a name. Digits are also the name of a vertex with that number.
///
/// @param name Name of the input.
/// @param vertex Receives the vertex.
/// @return `WB_OK`; `WB_ERR_NOT_FOUND` if there is none, with the range of the identifiers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_graph_vertex_of_name(graph: In<wb_graph_t>, name: Text, vertex: Out<u64>) -> wb_code {
    guard(|| {
        let (graph, name) = (graph.get()?, name.text("name")?);
        vertex.write("vertex", graph.ids().find(name)?)
    })
}

fn check_vertex(graph: &Graph, vertex: u64) -> Result<(), Error> {
    let vertices = graph.vertices();
    if vertex < vertices {
        return Ok(());
    }
    Err(warpbell::graph::GraphError::NoSuchVertex { source_vertex: vertex, vertices }.into())
}

/// Returns the identifier of a vertex, which is a number.
///
/// @param vertex The vertex, from 0.
/// @param id Receives the identifier of the input.
/// @return `WB_OK`; `WB_ERR_ARGUMENT` if there is no such vertex; `WB_ERR_STATE` if the vertices have names: use
///   `wb_graph_name_of`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_graph_id_of(graph: In<wb_graph_t>, vertex: u64, id: Out<u64>) -> wb_code {
    guard(|| {
        let graph = graph.get()?;
        check_vertex(graph, vertex)?;
        let found = graph.ids().id(vertex).number().ok_or_else(|| {
            Error::new(WB_ERR_STATE, "the vertices of the graph have names, not numbers; use wb_graph_name_of")
        })?;
        id.write("id", found)
    })
}

/// Returns the identifier of a vertex as text: its name, or its number in digits.
///
/// @param vertex The vertex, from 0.
/// @param name Receives the text. Free it with `wb_string_free`.
/// @return `WB_OK`; `WB_ERR_ARGUMENT` if there is no such vertex.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_graph_name_of(graph: In<wb_graph_t>, vertex: u64, name: Out<*mut c_char>) -> wb_code {
    guard(|| {
        name.check("name")?;
        let graph = graph.get()?;
        check_vertex(graph, vertex)?;
        let text = match graph.ids().names() {
            Some(names) => names.get(vertex).to_owned(),
            None => graph.ids().id(vertex).to_string(),
        };
        name.write("name", owned_text(text))
    })
}
