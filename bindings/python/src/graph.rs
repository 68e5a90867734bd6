//! Graphs and their algorithms.

use crate::cache::Cache;
use crate::call::{self, Shared};
use crate::engine::{Engine, as_python};
use crate::error::Failure;
use crate::graph_results::{
    BetweennessResult, BfsResult, CdlpResult, ClusteringResult, ComponentsResult, CoresResult, MultiBfsResult,
    PageRankResult, SsspResult, TrianglesResult,
};
use crate::held::Held;
use crate::host_array::Source;
use crate::progress::Progress;
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use serde_json::json;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use warpbell::engine;
use warpbell::graph::import::{ColumnNames, Notice, Precision};
use warpbell::graph::stored::{self, GraphToStore};
use warpbell::graph::{
    Betweenness, Bfs, BfsOptions, Cdlp, CdlpOptions, Clustering, Components, ComponentsOptions, Cores, Csr,
    GraphOnEngine, IdKind, Ids, Input, ListForm, LoadOptions, MultiBfs, MultiBfsOptions, Neighbours, Orientation,
    PageRank, PageRankOptions, Placement, PlacementOptions, Sssp, SsspOptions, Stage, Triangles, VertexOrder,
    WeightMode, Weights,
};

/// A graph near the kernels, or with its edges on storage.
///
/// Vertices are numbered from 0. ``vertex`` finds the number of a vertex by the name that it has in the input, ``id`` does the reverse.
#[pyclass(frozen, module = "warpbell")]
pub(crate) struct Graph {
    graph: Held<warpbell::graph::Graph>,
    shared: Arc<Shared>,
    /// Vertices of networkx in the order of their numbers, and their numbers.
    labels: Option<(Py<PyList>, Py<PyDict>)>,
    /// Decisions of the import.
    notices: Vec<String>,
}

/// An input, and how it is read.
#[derive(Clone)]
struct Reading {
    input: Input,
    format: Option<String>,
    ids: IdKind,
    columns: Option<ColumnNames>,
    vertices: Option<u64>,
    orientation: Orientation,
    weights: WeightMode,
    precision: Precision,
    keep_self_loops: bool,
    plain: Option<bool>,
    order: Option<VertexOrder>,
    seed: Option<u64>,
    memory: Option<u64>,
    temp_dir: Option<PathBuf>,
}

fn one_of<T: Copy>(word: &str, name: &str, words: &[(&str, T)]) -> Result<T, Failure> {
    let found = words.iter().find(|(w, _)| *w == word).map(|(_, value)| *value);
    found.ok_or_else(|| {
        let words: Vec<&str> = words.iter().map(|(w, _)| *w).collect();
        Failure::invalid(format!("{name} is `{word}`; use one of {}", words.join(", ")))
    })
}

impl Reading {
    /// Reads the options of a call.
    fn of(input: &Bound<'_, PyAny>, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let text: PathBuf = input.extract()?;
        let mut made = Self {
            input: Input::of(text.as_os_str()).map_err(Failure::from)?,
            format: None,
            ids: IdKind::Auto,
            columns: None,
            vertices: None,
            orientation: Orientation::Auto,
            weights: WeightMode::IfPresent,
            precision: Precision::Auto,
            keep_self_loops: true,
            plain: None,
            order: None,
            seed: None,
            memory: None,
            temp_dir: None,
        };
        for (name, value) in options.into_iter().flat_map(|options| options.iter()) {
            let name: String = name.extract()?;
            let word = || value.extract::<String>();
            match name.as_str() {
                "format" => made.format = value.extract()?,
                "ids" => made.ids = one_of(&word()?, &name, IDS)?,
                "columns" => {
                    made.columns = Some(word()?.parse().map_err(|e| Failure::invalid(format!("columns: {e}")))?)
                }
                "vertices" => made.vertices = value.extract()?,
                "orientation" => made.orientation = one_of(&word()?, &name, ORIENTATIONS)?,
                "weights" => made.weights = one_of(&word()?, &name, WEIGHTS)?,
                "weights_type" => made.precision = one_of(&word()?, &name, WEIGHT_TYPES)?,
                "self_loops" => made.keep_self_loops = value.extract()?,
                "lists" => made.plain = Some(one_of(&word()?, &name, LISTS)?),
                "order" => made.order = Some(one_of(&word()?, &name, ORDERS)?),
                "seed" => made.seed = value.extract()?,
                "memory" => made.memory = value.extract()?,
                "temp_dir" => made.temp_dir = value.extract()?,
                _ => {
                    let text = format!(
                        "`{name}` is no option of an input; there are format, ids, columns, vertices, orientation, weights, \
                         weights_type, self_loops, lists, order, seed, memory and temp_dir"
                    );
                    return Err(crate::error::wrong_type(text));
                }
            }
        }
        Ok(made)
    }

    /// Calls `then` with the options in the library's form.
    fn with<T>(
        &self,
        progress: &Progress,
        then: impl FnOnce(&LoadOptions<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let report = |p: warpbell::graph::Progress| progress.note(name_of(p.stage), p.done, p.total);
        let mut options = LoadOptions::default()
            .ids(self.ids)
            .columns(self.columns.as_ref())
            .vertices(self.vertices)
            .orientation(self.orientation)
            .weights(self.weights)
            .precision(self.precision)
            .keep_self_loops(self.keep_self_loops)
            .lists(match self.plain {
                Some(true) => ListForm::Plain,
                _ => ListForm::Packed(self.order.unwrap_or_default()),
            })
            .memory(self.memory)
            .temp_dir(self.temp_dir.as_deref())
            .progress(Some(&report));
        if let Some(seed) = self.seed {
            options = options.seed(seed);
        }
        if let Some(format) = &self.format {
            let format = FromStr::from_str(format).map_err(|e| Failure::invalid(format!("format: {e}")))?;
            options = options.format(Some(format));
        }
        let done = then(&options)?;
        progress.end().map(|()| done)
    }
}

const IDS: &[(&str, IdKind)] = &[("auto", IdKind::Auto), ("numbers", IdKind::Numbers), ("names", IdKind::Names)];
const ORIENTATIONS: &[(&str, Orientation)] =
    &[("auto", Orientation::Auto), ("directed", Orientation::Directed), ("undirected", Orientation::Undirected)];
const WEIGHTS: &[(&str, WeightMode)] = &[
    ("if-present", WeightMode::IfPresent),
    ("ignore", WeightMode::Ignore),
    ("input", WeightMode::Input),
    ("random-integers", WeightMode::RandomIntegers),
    ("random-reals", WeightMode::RandomReals),
];

const WEIGHT_TYPES: &[(&str, Precision)] =
    &[("auto", Precision::Auto), ("f32", Precision::Single), ("f64", Precision::Double)];
const LISTS: &[(&str, bool)] = &[("packed", false), ("plain", true)];
const ORDERS: &[(&str, VertexOrder)] = &[("degree", VertexOrder::Degree), ("input", VertexOrder::Input)];

fn name_of(stage: Stage) -> &'static str {
    match stage {
        Stage::Decompress => "decompress",
        Stage::Read => "read",
        Stage::Build => "build",
        Stage::Sort => "sort",
        Stage::Merge => "merge",
        Stage::Store => "store",
        _ => "other",
    }
}

fn in_words(notices: &[Notice]) -> Vec<String> {
    notices.iter().map(ToString::to_string).collect()
}

/// Returns the memory in which edges lie. Edges on storage are read through a cache.
fn placement(engine: &engine::Engine, edges: &str, cache: Option<&Cache>) -> Result<Placement, Failure> {
    match (edges, cache) {
        ("device", None) => Ok(Placement::Gpu),
        ("host", None) => Ok(Placement::Pinned),
        (_, Some(cache)) => {
            if !cache.get().volume().engine().is_same(engine) {
                return Err(Failure::invalid("the cache belongs to another engine; open its volume on this one"));
            }
            Ok(Placement::Storage(cache.get().clone()))
        }
        (other, None) => Err(Failure::invalid(format!(
            "edges is `{other}`; use device or host, or pass a cache for edges on storage"
        ))),
    }
}

fn place(engine: &engine::Engine, csr: Csr, placement: Placement) -> Result<warpbell::graph::Graph, Failure> {
    if let Placement::Storage(cache) = &placement {
        GraphOnEngine::check_volume(cache.volume(), &csr, PlacementOptions::all_of(csr.weights().is_some()))?;
    }
    Ok(warpbell::graph::Graph::from_csr(engine, csr, placement)?)
}

/// Returns weights in a type that graphs have: u32, f32 or f64.
fn weights_of(weights: &Bound<'_, PyAny>) -> PyResult<Weights> {
    let source = Source::of(weights, None, "weights")?;
    match source.typestr.as_str() {
        "<f4" => return Ok(Weights::F32(source.to_vec()?)),
        "<f8" => return Ok(Weights::F64(source.to_vec()?)),
        _ => {}
    }
    if !matches!(source.typestr.as_bytes(), [_, b'i' | b'u' | b'b', ..]) {
        return Err(Failure::invalid(format!(
            "weights: elements of type {}; use integers, float32 or float64",
            source.typestr
        ))
        .into());
    }
    let wide = Source::of(weights, Some("int64"), "weights")?.to_vec::<i64>()?;
    let narrow = wide.iter().map(|w| {
        let text = || Failure::invalid(format!("weights: {w} is no weight; integers are from 0 to {}", u32::MAX));
        u32::try_from(*w).map_err(|_| text())
    });
    Ok(Weights::U32(narrow.collect::<Result<_, _>>()?))
}

/// Returns the vertices of a list, each with weight 1, or those of a dict with its weights.
fn weighted_vertices(named: &Bound<'_, PyAny>) -> PyResult<Vec<(u64, f64)>> {
    let found: Vec<(u64, f64)> = match named.cast::<PyDict>() {
        Ok(weights) => weights.iter().map(|(v, w)| Ok((v.extract()?, w.extract()?))).collect::<PyResult<_>>()?,
        Err(_) => named.try_iter()?.map(|v| Ok((v?.extract()?, 1.0))).collect::<PyResult<_>>()?,
    };
    match found.is_empty() {
        true => Err(Failure::invalid("personalize is empty; name a vertex, or pass None for all vertices").into()),
        false => Ok(found),
    }
}

impl Graph {
    fn made(graph: warpbell::graph::Graph, shared: &Arc<Shared>) -> Self {
        Self { graph: Held::new(graph), shared: shared.clone(), labels: None, notices: Vec::new() }
    }

    /// Runs an algorithm. Errors name the devices of the volume, if edges are there.
    fn call<T: Send + 'static>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&GraphOnEngine) -> Result<T, warpbell::graph::GraphError> + Send + 'static,
    ) -> PyResult<T> {
        let graph = self.graph.on_engine().clone();
        call::call(py, &self.shared, move |_| {
            work(&graph).map_err(|e| match graph.placement() {
                Placement::Storage(cache) => Failure::from(e).on(cache.volume()),
                _ => e.into(),
            })
        })
    }

    fn check_vertex(&self, vertex: u64) -> Result<(), Failure> {
        let vertices = self.graph.vertices();
        if vertex < vertices {
            return Ok(());
        }
        Err(warpbell::graph::GraphError::NoSuchVertex { source_vertex: vertex, vertices }.into())
    }
}

#[pymethods]
impl Graph {
    /// Makes a graph of neighbour lists, as of a CSR matrix: the neighbours of vertex ``v`` are ``indices[indptr[v]:indptr[v + 1]]``.
    ///
    /// Without ``directed`` the lists hold both directions of each edge, with equal weights. ``edges`` is ``"device"`` or ``"host"``; with
    /// a ``cache`` the edges are stored on its volume, which holds nothing else.
    #[staticmethod]
    #[pyo3(signature = (engine, indptr, indices, weights = None, *, directed = true, edges = "device", cache = None))]
    #[expect(clippy::too_many_arguments, reason = "keywords of Python")]
    fn from_csr(
        py: Python<'_>,
        engine: &Engine,
        indptr: &Bound<'_, PyAny>,
        indices: &Bound<'_, PyAny>,
        weights: Option<&Bound<'_, PyAny>>,
        directed: bool,
        edges: &str,
        cache: Option<&Cache>,
    ) -> PyResult<Self> {
        let offsets = Source::of(indptr, Some("uint64"), "indptr")?.to_vec::<u64>()?;
        let found = Source::of(indices, None, "indices")?;
        let neighbours = match found.typestr.as_str() {
            "<i8" | "<u8" if offsets.len() as u64 > u64::from(u32::MAX) => Neighbours::U64(found.to_vec()?),
            "<i4" | "<u4" => Neighbours::U32(found.to_vec()?),
            // Numbers that do not fit are no vertices, and stay so.
            _ => {
                let wide = Source::of(indices, Some("uint64"), "indices")?.to_vec::<u64>()?;
                Neighbours::U32(wide.iter().map(|v| u32::try_from(*v).unwrap_or(u32::MAX)).collect())
            }
        };
        let weights = weights.map(weights_of).transpose()?;
        let vertices = (offsets.len() as u64).saturating_sub(1);
        let shared = engine.shared().clone();
        let on = shared.engine().clone();
        let placement = placement(&on, edges, cache)?;
        let graph = call::call(py, &shared, move |_| {
            let csr = Csr::from_parts(offsets, neighbours, weights, directed, Ids::dense(0, vertices))?;
            place(&on, csr, placement)
        })?;
        Ok(Self::made(graph, &shared))
    }

    /// Makes a graph of a sparse matrix or array of scipy: an entry in row ``i`` and column ``j`` is an edge from ``i`` to ``j``, and its
    /// value the weight if ``weighted``. Without ``directed`` edges go both ways.
    #[staticmethod]
    #[pyo3(signature = (engine, matrix, *, weighted = false, directed = true, edges = "device", cache = None))]
    fn from_scipy(
        py: Python<'_>,
        engine: &Engine,
        matrix: &Bound<'_, PyAny>,
        weighted: bool,
        directed: bool,
        edges: &str,
        cache: Option<&Cache>,
    ) -> PyResult<Self> {
        let parts = py.import("warpbell._convert")?.call_method1("from_scipy", (matrix, weighted, directed))?;
        let (indptr, indices, weights): (Bound<'_, PyAny>, Bound<'_, PyAny>, Option<Bound<'_, PyAny>>) =
            parts.extract()?;
        Self::from_csr(py, engine, &indptr, &indices, weights.as_ref(), directed, edges, cache)
    }

    /// Makes a graph of one of networkx, directed as that one. ``weight`` is the name of the edges' attribute with the weights. ``vertex``
    /// and ``id`` of the result translate between networkx's nodes and numbers.
    #[staticmethod]
    #[pyo3(signature = (engine, graph, *, weight = None, edges = "device", cache = None))]
    fn from_networkx(
        py: Python<'_>,
        engine: &Engine,
        graph: &Bound<'_, PyAny>,
        weight: Option<&str>,
        edges: &str,
        cache: Option<&Cache>,
    ) -> PyResult<Self> {
        let parts = py.import("warpbell._convert")?.call_method1("from_networkx", (graph, weight))?;
        type Lists<'py> =
            (Bound<'py, PyAny>, Bound<'py, PyAny>, Option<Bound<'py, PyAny>>, bool, Py<PyList>, Py<PyDict>);
        let (indptr, indices, weights, directed, nodes, numbers): Lists<'_> = parts.extract()?;
        let made = Self::from_csr(py, engine, &indptr, &indices, weights.as_ref(), directed, edges, cache)?;
        Ok(Self { labels: Some((nodes, numbers)), ..made })
    }

    /// Reads a graph file, or generates a graph such as ``"kron:16"``, without storing it.
    ///
    /// ``options`` are ``format``, ``ids`` (auto, numbers, names), ``columns`` (such as ``"src=a,dst=b,weight=c"``), ``vertices``,
    /// ``orientation`` (auto, directed, undirected), ``weights`` (if-present, ignore, input, random-integers, random-reals),
    /// ``weights_type`` (auto, f32, f64), ``self_loops``, ``seed``, ``memory`` and ``temp_dir``.
    #[staticmethod]
    #[pyo3(signature = (engine, input, *, edges = "device", cache = None, progress = None, **options))]
    fn load(
        py: Python<'_>,
        engine: &Engine,
        input: &Bound<'_, PyAny>,
        edges: &str,
        cache: Option<&Cache>,
        progress: Option<Py<PyAny>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let (reading, progress) = (Reading::of(input, options)?, Progress::new(progress));
        if reading.plain.is_some() || reading.order.is_some() {
            return Err(crate::error::wrong_type(
                "`lists` and `order` are options of import_file, which stores the graph; leave them out",
            ));
        }
        let shared = engine.shared().clone();
        let on = shared.engine().clone();
        let placement = placement(&on, edges, cache)?;
        let loaded =
            call::call_alone(py, move |_| reading.with(&progress, |options| Ok(reading.input.load(options)?)))?;
        let notices = in_words(&loaded.notices);
        let graph = call::call(py, &shared, move |_| place(&on, loaded.csr, placement))?;
        Ok(Self { notices, ..Self::made(graph, &shared) })
    }

    /// Reads a graph file, or generates a graph, and stores it under a name beside everything that the volume of ``cache`` holds. ``open``
    /// opens it later. The options are those of ``load``, and ``lists`` (packed, plain) and ``order`` of packed lists (degree, input).
    /// Graphs that do not fit into ``memory`` are sorted in files.
    #[staticmethod]
    #[pyo3(signature = (cache, name, input, *, replace = false, progress = None, **options))]
    fn import_file(
        py: Python<'_>,
        cache: &Cache,
        name: &str,
        input: &Bound<'_, PyAny>,
        replace: bool,
        progress: Option<Py<PyAny>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let name: stored::GraphName = name.parse().map_err(Failure::from)?;
        let (reading, progress) = (Reading::of(input, options)?, Arc::new(Progress::new(progress)));
        if !replace {
            // Reading the input may take long; the name is checked again when the graph is written.
            let wanted = name.clone();
            cache.call(py, move |cache| Ok(stored::check_name(cache.volume(), &wanted)?))?;
        }
        let (from, told) = (reading.clone(), progress.clone());
        let read = call::call_alone(py, move |_| {
            from.with(&told, |options| Ok(GraphToStore::import(name, &from.input, &options.keep_self_loops(true))?))
        })?;
        let notices = in_words(read.notices());
        let graph = cache.call(py, move |cache| {
            reading.with(&progress, |options| Ok(warpbell::graph::Graph::store(cache, read, replace, options)?))
        })?;
        Ok(Self { notices, ..Self::made(graph, cache.shared()) })
    }

    /// Opens a stored graph. Its edges are read through the cache.
    #[staticmethod]
    fn open(py: Python<'_>, cache: &Cache, name: &str) -> PyResult<Self> {
        let name = name.parse().map_err(|e: stored::StoredError| Failure::from(e))?;
        let graph = cache.call(py, move |cache| Ok(warpbell::graph::Graph::open(cache, &name)?))?;
        Ok(Self::made(graph, cache.shared()))
    }

    /// Number of vertices.
    #[getter]
    fn vertices(&self) -> u64 {
        self.graph.vertices()
    }

    /// Number of neighbours in all lists: twice the number of edges without direction.
    #[getter]
    fn arcs(&self) -> u64 {
        self.graph.arcs()
    }

    /// True if edges have a direction.
    #[getter]
    fn directed(&self) -> bool {
        self.graph.on_engine().directed()
    }

    /// True if edges have weights, which ``sssp`` needs.
    #[getter]
    fn weighted(&self) -> bool {
        self.graph.on_engine().is_weighted()
    }

    /// Decisions of ``load`` and ``import_file`` that change what is read, in words: weights that were rounded, columns that were not read.
    #[getter]
    fn notices(&self) -> Vec<String> {
        self.notices.clone()
    }

    /// Returns sizes and placement as a dict.
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let on = self.graph.on_engine();
        let facts = json!({
            "vertices": self.graph.vertices(), "arcs": self.graph.arcs(), "directed": on.directed(),
            "weighted": on.is_weighted(), "neighbour_bits": on.id_bits(), "placement": on.placement().to_string(),
            "named": self.graph.ids().names().is_some() || self.labels.is_some(),
        });
        as_python(py, &facts)
    }

    /// Returns the number of a vertex by its name: a number or text of the file, or a node of networkx.
    fn vertex(&self, py: Python<'_>, id: &Bound<'_, PyAny>) -> PyResult<u64> {
        if let Some((_, numbers)) = &self.labels {
            let found = numbers.bind(py).get_item(id)?;
            return found.ok_or_else(|| PyKeyError::new_err(id.clone().unbind()))?.extract();
        }
        let found = match id.extract::<u64>() {
            Ok(number) => self.graph.ids().find(number),
            Err(_) => self.graph.ids().find(id.extract::<String>()?.as_str()),
        };
        Ok(found.map_err(Failure::from)?)
    }

    /// Returns the name that a vertex has in the input.
    fn id<'py>(&self, py: Python<'py>, vertex: u64) -> PyResult<Bound<'py, PyAny>> {
        self.check_vertex(vertex)?;
        if let Some((nodes, _)) = &self.labels {
            return nodes.bind(py).get_item(vertex as usize);
        }
        let id = self.graph.ids().id(vertex);
        match id.number() {
            Some(number) => Ok(number.into_pyobject(py)?.into_any()),
            None => Ok(id.to_string().into_pyobject(py)?.into_any()),
        }
    }

    /// Reads edges on storage into the cache, as far as they fit.
    fn warm(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, |graph| graph.warm())
    }

    /// Breadth-first search from a vertex.
    ///
    /// The search ends at vertex ``target``, or at depth ``max_depth``: vertices further away count as not reached.
    #[pyo3(signature = (source, *, parents = true, target = None, max_depth = None))]
    fn bfs(
        &self,
        py: Python<'_>,
        source: u64,
        parents: bool,
        target: Option<u64>,
        max_depth: Option<u32>,
    ) -> PyResult<BfsResult> {
        let options = BfsOptions::default().parents(parents).target(target).max_depth(max_depth);
        let found = self.call(py, move |graph| Bfs::new(graph, &options)?.run_on_device(source))?;
        BfsResult::new(py, found, &self.shared)
    }

    /// Breadth-first searches from up to 64 vertices at once, which share their scans of the edges.
    ///
    /// Without ``depths`` only the vertices that each search reaches are found; depths take 4 bytes for each vertex and search.
    #[pyo3(signature = (sources, *, depths = true, max_depth = None))]
    fn multi_bfs(
        &self,
        py: Python<'_>,
        sources: Vec<u64>,
        depths: bool,
        max_depth: Option<u32>,
    ) -> PyResult<MultiBfsResult> {
        let options = MultiBfsOptions::default().depths(depths).max_depth(max_depth);
        let found = self.call(py, move |graph| {
            let found = MultiBfs::new(graph, &options)?.run_on_device(&sources)?;
            let reached = found.reached()?;
            Ok((found, reached))
        })?;
        MultiBfsResult::new(py, found, &self.shared)
    }

    /// Betweenness centrality: the sums of the dependencies of ``sources``, or of all vertices. The sums are not normalised.
    #[pyo3(signature = (sources = None))]
    fn bc(&self, py: Python<'_>, sources: Option<Vec<u64>>) -> PyResult<BetweennessResult> {
        let sources = sources.unwrap_or_else(|| (0..self.graph.vertices()).collect());
        let found = self.call(py, move |graph| Betweenness::new(graph)?.run_on_device(&sources))?;
        BetweennessResult::new(py, found, &self.shared)
    }

    /// Connected components: of a directed graph the weak ones, or with ``strong`` the strongly connected ones.
    #[pyo3(signature = (*, strong = false))]
    fn cc(&self, py: Python<'_>, strong: bool) -> PyResult<ComponentsResult> {
        let options = ComponentsOptions::default().strong(strong);
        let found = self.call(py, move |graph| Components::new(graph, &options)?.run_on_device())?;
        ComponentsResult::new(py, found, &self.shared)
    }

    /// Communities by synchronous label propagation (CDLP of LDBC Graphalytics). The run ends earlier if no label changes.
    #[pyo3(signature = (*, iterations = 10))]
    fn cdlp(&self, py: Python<'_>, iterations: u32) -> PyResult<CdlpResult> {
        let options = CdlpOptions::default().iterations(iterations);
        let found = self.call(py, move |graph| Cdlp::new(graph, &options)?.run_on_device())?;
        CdlpResult::new(py, found, &self.shared)
    }

    /// PageRank. The run ends when the changes of all ranks in an iteration sum to less than ``tolerance``.
    ///
    /// ``personalize`` is a list of vertices, or a dict of vertices and weights: what is not passed along edges goes to them, as with
    /// ``personalization`` of networkx.
    #[pyo3(signature = (*, damping = 0.85, tolerance = 1e-4, iterations = 1000, personalize = None))]
    fn pagerank(
        &self,
        py: Python<'_>,
        damping: f64,
        tolerance: Option<f64>,
        iterations: u32,
        personalize: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<PageRankResult> {
        let options = PageRankOptions::default()
            .damping(damping)
            .tolerance(tolerance)
            .iterations(iterations)
            .personalization(personalize.map_or(Ok(Vec::new()), weighted_vertices)?);
        let found = self.call(py, move |graph| PageRank::new(graph, &options)?.run_on_device())?;
        PageRankResult::new(py, found, &self.shared)
    }

    /// Triangles of an undirected graph: of each vertex, and all of them.
    fn triangles(&self, py: Python<'_>) -> PyResult<TrianglesResult> {
        let found = self.call(py, |graph| Triangles::new(graph)?.run_on_device())?;
        TrianglesResult::new(py, found, &self.shared)
    }

    /// Local clustering coefficients, in a directed graph by the rule of LDBC Graphalytics.
    fn clustering(&self, py: Python<'_>) -> PyResult<ClusteringResult> {
        let found = self.call(py, |graph| Clustering::new(graph)?.run_on_device())?;
        ClusteringResult::new(py, found, &self.shared)
    }

    /// Core numbers. In-edges and out-edges of a directed graph count together.
    fn cores(&self, py: Python<'_>) -> PyResult<CoresResult> {
        let found = self.call(py, |graph| Cores::new(graph)?.run_on_device())?;
        CoresResult::new(py, found, &self.shared)
    }

    /// Shortest paths from a vertex. ``delta`` is the width of the range of distances that is relaxed at a time.
    ///
    /// The search ends at vertex ``target``, or at ``max_distance``: vertices further away count as not reached.
    #[pyo3(signature = (source, *, delta = None, parents = false, target = None, max_distance = None))]
    fn sssp(
        &self,
        py: Python<'_>,
        source: u64,
        delta: Option<f64>,
        parents: bool,
        target: Option<u64>,
        max_distance: Option<f64>,
    ) -> PyResult<SsspResult> {
        let options = SsspOptions::default().delta(delta).parents(parents).target(target).max_distance(max_distance);
        let found = self.call(py, move |graph| Sssp::new(graph, &options)?.run_on_device(source))?;
        SsspResult::new(py, found, &self.shared)
    }

    fn __repr__(&self) -> String {
        let placement = self.graph.on_engine().placement();
        format!("Graph({} vertices, {} arcs, edges in {placement})", self.graph.vertices(), self.graph.arcs())
    }
}
