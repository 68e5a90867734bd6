//! Inputs of graphs: files, generators and arrays of the program.

use crate::element::{WB_F32, WB_F64, WB_U32};
use crate::error::{Error, WB_ERR_MEMORY};
use crate::options::Options;
use crate::pointer::{In, Text};
use crate::volume::switch;
use std::ffi::c_void;
use std::path::Path;
use warpbell::graph::import::Precision;
use warpbell::graph::{
    Csr, IdKind, Ids, Input, ListForm, LoadOptions, Neighbours, Orientation, Progress, Stage, VertexOrder, WeightMode,
    Weights,
};

/// Vertices are numbers or names, as the first line with an edge shows.
pub const WB_IDS_AUTO: u32 = 0;
/// Vertices are whole numbers.
pub const WB_IDS_NUMBERS: u32 = 1;
/// Vertices are names, also those that look like numbers.
pub const WB_IDS_NAMES: u32 = 2;

/// Edges are directed or undirected, as the input states or its edges show.
pub const WB_EDGES_AUTO: u32 = 0;
/// Each edge leads from its first vertex to its second only.
pub const WB_EDGES_DIRECTED: u32 = 1;
/// Each edge leads in both directions.
pub const WB_EDGES_UNDIRECTED: u32 = 2;

/// No weights; those of the input are not read.
pub const WB_WEIGHTS_IGNORE: u32 = 0;
/// Weights of the input. Files without weights get 1 for each edge, generated graphs random integers.
pub const WB_WEIGHTS_INPUT: u32 = 1;
/// Weights of the input, if it has some.
pub const WB_WEIGHTS_IF_PRESENT: u32 = 2;
/// Uniform integers from 1 to 255.
pub const WB_WEIGHTS_RANDOM_INTEGERS: u32 = 3;
/// Uniform real numbers in [0, 1).
pub const WB_WEIGHTS_RANDOM_REALS: u32 = 4;

/// Real weights have 32 bits if each weight of the input is exactly such a number, otherwise 64.
pub const WB_WEIGHTS_TYPE_AUTO: u32 = 0;
/// Real weights have 64 bits.
pub const WB_WEIGHTS_TYPE_F64: u32 = 1;
/// Real weights are rounded to 32 bits.
pub const WB_WEIGHTS_TYPE_F32: u32 = 2;

/// Stored lists are gaps between neighbours, in few bits. Those of graphs with more than 2^32 - 2 vertices are plain.
pub const WB_LISTS_PACKED: u32 = 0;
/// Stored lists are identifiers of 32 or 64 bits.
pub const WB_LISTS_PLAIN: u32 = 1;

/// Packed lists are in the order of descending degrees, and gaps are shortest.
pub const WB_ORDER_DEGREE: u32 = 0;
/// Packed lists are in the order of the input's identifiers, for inputs whose order is a good one.
pub const WB_ORDER_INPUT: u32 = 1;

/// Progress: reading and decompressing, in compressed bytes.
pub const WB_STAGE_DECOMPRESS: u32 = 0;
/// Progress: reading and parsing, in bytes.
pub const WB_STAGE_READ: u32 = 1;
/// Progress: generating edges and building lists, in edges.
pub const WB_STAGE_BUILD: u32 = 2;
/// Progress: sorting edges that do not fit into memory, in edges.
pub const WB_STAGE_SORT: u32 = 3;
/// Progress: merging sorted edges, in ranges.
pub const WB_STAGE_MERGE: u32 = 4;
/// Progress: writing a graph to a volume, in bytes.
pub const WB_STAGE_STORE: u32 = 5;

/// Function that is told the progress of an import. `stage` is `WB_STAGE_DECOMPRESS` to `WB_STAGE_STORE`, or a later number.
///
/// Many threads call it, several at once, a few times for each megabyte. It may call `wb_engine_cancel`: the import then
/// returns `WB_ERR_STOPPED` before it writes to the volume again. No other call of this library is allowed in it.
pub type wb_progress_function = Option<unsafe extern "C" fn(argument: *mut c_void, stage: u32, done: u64, total: u64)>;

/// Options of `wb_graph_import` and `wb_graph_load`. All fields but `size` may be zero.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct wb_graph_options {
    /// `sizeof(wb_graph_options)`.
    pub size: usize,
    /// Format of the file as its ending: `el`, `wel`, `csv`, `parquet`, `mtx` and others; null for that of the file's name.
    pub format: Text,
    /// Vertices: `WB_IDS_AUTO`, `WB_IDS_NUMBERS` or `WB_IDS_NAMES`.
    pub ids: u32,
    /// Edges: `WB_EDGES_AUTO`, `WB_EDGES_DIRECTED` or `WB_EDGES_UNDIRECTED`.
    pub orientation: u32,
    /// Weights: `WB_WEIGHTS_IGNORE` to `WB_WEIGHTS_RANDOM_REALS`. Shortest paths need them.
    pub weights: u32,
    /// Type of real weights: `WB_WEIGHTS_TYPE_AUTO`, `WB_WEIGHTS_TYPE_F64` or `WB_WEIGHTS_TYPE_F32`.
    pub weights_type: u32,
    /// 1 for neighbours of 64 bits even where 32 suffice.
    pub wide: u32,
    /// 1 replaces a stored graph of the name, for `wb_graph_import`.
    pub replace: u32,
    /// `WB_ON` stores page checksums on a volume that has none, for `wb_graph_import`.
    pub page_checksums: u32,
    /// 1 drops edges from a vertex to itself, for `wb_graph_load`. They matter to PageRank only.
    pub drop_self_loops: u32,
    /// Seed of generators and random weights; 0 for that of the GAP Benchmark Suite.
    pub seed: u64,
    /// Limit of memory in bytes; 0 for what is free. `wb_graph_import` sorts larger graphs in temporary files.
    pub memory: u64,
    /// Folder of temporary files; null for the one that `TMPDIR` names, or `/var/tmp`.
    pub temp_dir: Text,
    /// Function that is told the progress, or null.
    pub progress: wb_progress_function,
    /// First argument of that function.
    pub progress_argument: *mut c_void,
    /// Form of stored lists, for `wb_graph_import`: `WB_LISTS_PACKED` or `WB_LISTS_PLAIN`.
    pub lists: u32,
    /// Order of packed lists, for `wb_graph_import`: `WB_ORDER_DEGREE` or `WB_ORDER_INPUT`.
    pub order: u32,
}

// SAFETY: numbers, pointers and an optional function; the size comes first.
unsafe impl Options for wb_graph_options {
    const NAME: &str = "wb_graph_options";
}

/// The program's function for progress.
pub(crate) struct Callback {
    function: wb_progress_function,
    argument: *mut c_void,
}

// SAFETY: the header says that many threads call the function.
unsafe impl Send for Callback {}
// SAFETY: the header says that many threads call the function, several at a time.
unsafe impl Sync for Callback {}

impl Callback {
    pub(crate) fn of(options: &wb_graph_options) -> Self {
        Self { function: options.progress, argument: options.progress_argument }
    }

    pub(crate) fn report(&self, progress: Progress) {
        let stage = match progress.stage {
            Stage::Decompress => WB_STAGE_DECOMPRESS,
            Stage::Read => WB_STAGE_READ,
            Stage::Build => WB_STAGE_BUILD,
            Stage::Sort => WB_STAGE_SORT,
            Stage::Merge => WB_STAGE_MERGE,
            Stage::Store => WB_STAGE_STORE,
            _ => u32::MAX,
        };
        if let Some(function) = self.function {
            // SAFETY: the program passed the two together.
            unsafe { function(self.argument, stage, progress.done, progress.total) };
        }
    }
}

/// Returns the value at a position of a list of constants that count from 0.
fn choice<T: Copy>(values: &[T], position: u32, name: &str, names: &str) -> Result<T, Error> {
    let found = values.get(position as usize).copied();
    found.ok_or_else(|| Error::argument(format!("`{name}` is {position}; use {names}")))
}

/// Returns the options for the library, without the progress.
pub(crate) fn load_options<'a>(options: &'a wb_graph_options) -> Result<LoadOptions<'a>, Error> {
    const IDS: &[IdKind] = &[IdKind::Auto, IdKind::Numbers, IdKind::Names];
    const EDGES: &[Orientation] = &[Orientation::Auto, Orientation::Directed, Orientation::Undirected];
    const WEIGHTS: &[WeightMode] = &[
        WeightMode::Ignore,
        WeightMode::Input,
        WeightMode::IfPresent,
        WeightMode::RandomIntegers,
        WeightMode::RandomReals,
    ];
    const TYPES: &[Precision] = &[Precision::Auto, Precision::Double, Precision::Single];
    const ORDERS: &[VertexOrder] = &[VertexOrder::Degree, VertexOrder::Input];
    let order = choice(ORDERS, options.order, "order", "WB_ORDER_DEGREE or WB_ORDER_INPUT")?;
    let lists = [ListForm::Packed(order), ListForm::Plain];
    let mut made = LoadOptions::default()
        .ids(choice(IDS, options.ids, "ids", "WB_IDS_AUTO, WB_IDS_NUMBERS or WB_IDS_NAMES")?)
        .orientation(choice(EDGES, options.orientation, "orientation", "WB_EDGES_AUTO, _DIRECTED or _UNDIRECTED")?)
        .weights(choice(WEIGHTS, options.weights, "weights", "WB_WEIGHTS_IGNORE to WB_WEIGHTS_RANDOM_REALS")?)
        .precision(choice(TYPES, options.weights_type, "weights_type", "WB_WEIGHTS_TYPE_AUTO, _F64 or _F32")?)
        .lists(choice(&lists, options.lists, "lists", "WB_LISTS_PACKED or WB_LISTS_PLAIN")?)
        .wide(options.wide != 0)
        .keep_self_loops(options.drop_self_loops == 0)
        .memory((options.memory != 0).then_some(options.memory));
    if options.seed != 0 {
        made = made.seed(options.seed);
    }
    if let Some(format) = options.format.optional("format")? {
        let format = format.parse().map_err(|e| Error::argument(format!("`format`: {e}")))?;
        made = made.format(Some(format));
    }
    let temp_dir = options.temp_dir.optional("temp_dir")?;
    Ok(made.temp_dir(temp_dir.map(Path::new)))
}

/// Parses the name of a file or a generator, and checks that the options fit.
pub(crate) fn input(text: Text, options: &LoadOptions<'_>) -> Result<Input, Error> {
    let input: Input = text.text("input")?.parse()?;
    if let Input::Generated(_) = input {
        let wrong = |name: &str| Err(Error::argument(format!("{input} is generated; leave `{name}` out")));
        if options.format.is_some() {
            return wrong("format");
        }
        if options.ids == IdKind::Names {
            return wrong("ids");
        }
    }
    Ok(input)
}

/// A graph of the program's memory: the neighbours of vertex `v` are `neighbours[offsets[v]]` to
/// `neighbours[offsets[v + 1] - 1]`. Vertices are numbered from 0.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct wb_csr {
    /// `sizeof(wb_csr)`.
    pub size: usize,
    /// Number of vertices.
    pub vertices: u64,
    /// Number of neighbours in all lists.
    pub arcs: u64,
    /// `vertices + 1` offsets, which ascend from 0 to `arcs`.
    pub offsets: In<u64>,
    /// Neighbours: `uint32_t` or `uint64_t`, below `vertices`. Lists need not be sorted; duplicates and edges from a vertex
    /// to itself are dropped.
    pub neighbours: In<c_void>,
    /// Bytes of a neighbour: 4 or 8.
    pub neighbour_bytes: u32,
    /// 1 if edges have a direction. Otherwise the lists hold both directions of each edge, with equal weights.
    pub directed: u32,
    /// A weight for each neighbour, of type `weight_dtype`: finite and not negative; or null.
    pub weights: In<c_void>,
    /// `WB_U32`, `WB_F32` or `WB_F64`; 0 without weights.
    pub weight_dtype: u32,
    /// Zero.
    pub reserved: u32,
}

// SAFETY: numbers and pointers; the size comes first.
unsafe impl Options for wb_csr {
    const NAME: &str = "wb_csr";
}

/// Copies a list, or fails where there is no memory for it.
fn copied<T: Copy>(list: &[T]) -> Result<Vec<T>, Error> {
    let mut copy = Vec::new();
    copy.try_reserve_exact(list.len()).map_err(|_| {
        let bytes = size_of_val(list);
        Error::new(
            WB_ERR_MEMORY,
            format!("no host memory for a copy of {bytes} bytes of the graph; store it by `wb_graph_import`"),
        )
    })?;
    copy.extend_from_slice(list);
    Ok(copy)
}

/// Copies a graph of the program's memory.
pub(crate) fn csr(csr: In<wb_csr>) -> Result<Csr, Error> {
    if csr.is_null() {
        return Err(Error::argument("`csr` is null; pass the graph"));
    }
    let g = csr.read()?;
    let size = |value: u64, name| {
        let size = usize::try_from(value).ok().filter(|size| *size < isize::MAX as usize);
        size.ok_or_else(|| Error::argument(format!("`{name}` is {value}, which no memory holds")))
    };
    let (vertices, arcs) = (size(g.vertices, "vertices")?, size(g.arcs, "arcs")?);
    let offsets = g.offsets.list(vertices + 1, "offsets").and_then(copied)?;
    let neighbours = match g.neighbour_bytes {
        4 => Neighbours::U32(g.neighbours.of(arcs, "neighbours").and_then(copied)?),
        8 => Neighbours::U64(g.neighbours.of(arcs, "neighbours").and_then(copied)?),
        other => return Err(Error::argument(format!("`neighbour_bytes` is {other}; use 4 or 8"))),
    };
    let weights = match g.weight_dtype {
        0 if g.weights.is_null() => None,
        WB_U32 => Some(Weights::U32(g.weights.of(arcs, "weights").and_then(copied)?)),
        WB_F32 => Some(Weights::F32(g.weights.of(arcs, "weights").and_then(copied)?)),
        WB_F64 => Some(Weights::F64(g.weights.of(arcs, "weights").and_then(copied)?)),
        other => {
            return Err(Error::argument(format!("`weight_dtype` is {other}; use WB_U32, WB_F32 or WB_F64")));
        }
    };
    Ok(Csr::from_parts(offsets, neighbours, weights, g.directed != 0, Ids::dense(0, g.vertices))?)
}

/// Returns true if a graph is stored with page checksums.
pub(crate) fn wants_checksums(options: &wb_graph_options) -> Result<bool, Error> {
    Ok(switch(options.page_checksums, "page_checksums")?.unwrap_or(false))
}
