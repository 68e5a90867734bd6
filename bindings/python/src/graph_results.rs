//! Results of graph algorithms: a value for each vertex, in the engine's memory.

use crate::call::{self, Shared};
use crate::error::Failure;
use crate::tensor::{Memory, Tensor};
use pyo3::prelude::*;
use pyo3::types::PyList;
use std::sync::Arc;
use warpbell::graph::{
    BetweennessOnEngine, BfsOnEngine, CdlpOnEngine, ClusteringOnEngine, ComponentsOnEngine, CoresOnEngine, GraphError,
    MultiBfsOnEngine, PageRankOnEngine, SsspOnEngine, TrianglesOnEngine, VertexValues,
};
use warpbell::storage::ElementType;

/// Makes a tensor of values, of this type if it is given: one of as many bytes.
fn tensor(
    py: Python<'_>,
    values: VertexValues,
    as_type: Option<ElementType>,
    shared: &Arc<Shared>,
) -> PyResult<Py<Tensor>> {
    let element = as_type.unwrap_or(values.element_type());
    let memory = Memory::Region(values.region().clone());
    Py::new(py, Tensor::new(memory, vec![values.len() as u64], element, shared))
}

/// Returns the signed type for numbers of vertices, in which the mark for "none" is -1, if all fit.
fn signed(values: &VertexValues) -> Option<ElementType> {
    match values.element_type() {
        ElementType::U32 if values.len() <= i32::MAX as usize => Some(ElementType::I32),
        ElementType::U64 => Some(ElementType::I64),
        _ => None,
    }
}

/// Parents of a search, from which paths follow.
struct Parents {
    values: Option<VertexValues>,
    shared: Arc<Shared>,
}

impl Parents {
    fn path(&self, py: Python<'_>, target: u64) -> PyResult<Option<Vec<u64>>> {
        let Some(values) = self.values.clone() else {
            let text = "the search was asked for no parents, so there is no path; call it with parents=True";
            return Err(Failure::invalid(text).into());
        };
        let vertices = values.len() as u64;
        if target >= vertices {
            let missing = GraphError::NoSuchVertex { source_vertex: target, vertices };
            return Err(Failure::from(missing).into());
        }
        call::call(py, &self.shared, move |_| Ok(values.path_to(target)?))
    }
}

/// Returns parents as a tensor, and as what paths follow from.
fn with_parents(
    py: Python<'_>,
    values: Option<VertexValues>,
    shared: &Arc<Shared>,
) -> PyResult<(Option<Py<Tensor>>, Parents)> {
    let as_tensor = values.clone().map(|values| {
        let as_type = signed(&values);
        tensor(py, values, as_type, shared)
    });
    Ok((as_tensor.transpose()?, Parents { values, shared: shared.clone() }))
}

/// Betweenness centrality.
#[pyclass(frozen, module = "warpbell")]
pub(crate) struct BetweennessResult {
    /// Score of each vertex: the sum of the dependencies of all sources on it.
    #[pyo3(get)]
    score: Py<Tensor>,
    /// Number of sources.
    #[pyo3(get)]
    sources: usize,
    /// Time in seconds.
    #[pyo3(get)]
    elapsed: f64,
}

impl BetweennessResult {
    pub(crate) fn new(py: Python<'_>, found: BetweennessOnEngine, shared: &Arc<Shared>) -> PyResult<Self> {
        let score = tensor(py, found.score, None, shared)?;
        Ok(Self { score, sources: found.sources.len(), elapsed: found.elapsed.as_secs_f64() })
    }
}

#[pymethods]
impl BetweennessResult {
    fn __repr__(&self) -> String {
        format!("BetweennessResult({} sources, {:.6} s)", self.sources, self.elapsed)
    }
}

/// Result of a breadth-first search.
#[pyclass(frozen, module = "warpbell")]
pub(crate) struct BfsResult {
    /// Number of edges between the source and each vertex; -1 for a vertex that was not reached.
    #[pyo3(get)]
    depth: Py<Tensor>,
    /// Predecessor of each vertex, or ``None`` if there were to be no parents. The source is its own; a vertex that was not reached has -1.
    #[pyo3(get)]
    parent: Option<Py<Tensor>>,
    /// Number of vertices reached, including the source.
    #[pyo3(get)]
    reached: u64,
    /// Number of levels.
    #[pyo3(get)]
    levels: usize,
    /// Time in seconds.
    #[pyo3(get)]
    elapsed: f64,
    parents: Parents,
}

impl BfsResult {
    pub(crate) fn new(py: Python<'_>, found: BfsOnEngine, shared: &Arc<Shared>) -> PyResult<Self> {
        let (parent, parents) = with_parents(py, found.parent, shared)?;
        Ok(Self {
            // A path has fewer edges than 2^31: a graph with such a path has more levels than anybody waits for.
            depth: tensor(py, found.depth, Some(ElementType::I32), shared)?,
            parent,
            parents,
            reached: found.reached,
            levels: found.levels.len(),
            elapsed: found.elapsed.as_secs_f64(),
        })
    }
}

#[pymethods]
impl BfsResult {
    /// Returns the vertices of a shortest path from the source to ``target``, or ``None`` if it was not reached.
    fn path(&self, py: Python<'_>, target: u64) -> PyResult<Option<Vec<u64>>> {
        self.parents.path(py, target)
    }

    fn __repr__(&self) -> String {
        format!("BfsResult({} vertices in {} levels, {:.6} s)", self.reached, self.levels, self.elapsed)
    }
}

/// Result of breadth-first searches from several vertices.
#[pyclass(frozen, module = "warpbell")]
pub(crate) struct MultiBfsResult {
    /// For each search the number of edges between its source and each vertex, -1 for a vertex that was not reached; or ``None`` if there
    /// were to be no depths.
    depth: Option<Vec<Py<Tensor>>>,
    /// Searches that reach each vertex: bit i belongs to search i.
    #[pyo3(get)]
    reached_by: Py<Tensor>,
    /// Number of vertices that each search reached, including its source.
    #[pyo3(get)]
    reached: Vec<u64>,
    /// Number of levels.
    #[pyo3(get)]
    levels: usize,
    /// Time in seconds.
    #[pyo3(get)]
    elapsed: f64,
}

impl MultiBfsResult {
    pub(crate) fn new(
        py: Python<'_>,
        (found, reached): (MultiBfsOnEngine, Vec<u64>),
        shared: &Arc<Shared>,
    ) -> PyResult<Self> {
        let depth = found.depth.into_iter().map(|values| tensor(py, values, Some(ElementType::I32), shared));
        let depth = depth.collect::<PyResult<Vec<_>>>()?;
        Ok(Self {
            depth: (!depth.is_empty()).then_some(depth),
            reached_by: tensor(py, found.reached_by, None, shared)?,
            reached,
            levels: found.levels.len(),
            elapsed: found.elapsed.as_secs_f64(),
        })
    }
}

#[pymethods]
impl MultiBfsResult {
    /// Depth of each vertex for each search, a tensor each; -1 for vertices that the search did not reach. ``None`` if there were to be no
    /// depths.
    #[getter]
    fn depth<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyList>>> {
        self.depth.as_ref().map(|each| PyList::new(py, each.iter().map(|one| one.clone_ref(py)))).transpose()
    }

    fn __repr__(&self) -> String {
        let searches = self.reached.len();
        format!("MultiBfsResult({searches} searches in {} levels, {:.6} s)", self.levels, self.elapsed)
    }
}

/// Connected components.
#[pyclass(frozen, module = "warpbell")]
pub(crate) struct ComponentsResult {
    /// For each vertex the smallest vertex of its component.
    #[pyo3(get)]
    label: Py<Tensor>,
    /// Number of components.
    #[pyo3(get)]
    components: u64,
    /// Time in seconds.
    #[pyo3(get)]
    elapsed: f64,
}

impl ComponentsResult {
    pub(crate) fn new(py: Python<'_>, found: ComponentsOnEngine, shared: &Arc<Shared>) -> PyResult<Self> {
        let as_type = signed(&found.label);
        let label = tensor(py, found.label, as_type, shared)?;
        Ok(Self { label, components: found.components, elapsed: found.elapsed.as_secs_f64() })
    }
}

#[pymethods]
impl ComponentsResult {
    fn __repr__(&self) -> String {
        format!("ComponentsResult({} components, {:.6} s)", self.components, self.elapsed)
    }
}

/// Communities of label propagation.
#[pyclass(frozen, module = "warpbell")]
pub(crate) struct CdlpResult {
    /// Label of each vertex: the number of the vertex whose label it was at the start.
    #[pyo3(get)]
    label: Py<Tensor>,
    /// Number of communities, that is, of different labels.
    #[pyo3(get)]
    communities: u64,
    /// Number of iterations.
    #[pyo3(get)]
    iterations: usize,
    /// Time in seconds.
    #[pyo3(get)]
    elapsed: f64,
}

impl CdlpResult {
    pub(crate) fn new(py: Python<'_>, found: CdlpOnEngine, shared: &Arc<Shared>) -> PyResult<Self> {
        let as_type = signed(&found.label);
        let label = tensor(py, found.label, as_type, shared)?;
        let (communities, iterations) = (found.communities, found.iterations.len());
        Ok(Self { label, communities, iterations, elapsed: found.elapsed.as_secs_f64() })
    }
}

#[pymethods]
impl CdlpResult {
    fn __repr__(&self) -> String {
        let (communities, iterations) = (self.communities, self.iterations);
        format!("CdlpResult({communities} communities, {iterations} iterations, {:.6} s)", self.elapsed)
    }
}

/// Ranks of the vertices.
#[pyclass(frozen, module = "warpbell")]
pub(crate) struct PageRankResult {
    /// Rank of each vertex. The ranks sum to 1.
    #[pyo3(get)]
    rank: Py<Tensor>,
    /// Number of iterations.
    #[pyo3(get)]
    iterations: usize,
    /// True if the tolerance was reached, or there was none.
    #[pyo3(get)]
    converged: bool,
    /// Time in seconds.
    #[pyo3(get)]
    elapsed: f64,
}

impl PageRankResult {
    pub(crate) fn new(py: Python<'_>, found: PageRankOnEngine, shared: &Arc<Shared>) -> PyResult<Self> {
        Ok(Self {
            rank: tensor(py, found.rank, None, shared)?,
            iterations: found.iterations.len(),
            converged: found.converged,
            elapsed: found.elapsed.as_secs_f64(),
        })
    }
}

#[pymethods]
impl PageRankResult {
    fn __repr__(&self) -> String {
        let end = if self.converged { "converged" } else { "not converged" };
        format!("PageRankResult({} iterations, {end}, {:.6} s)", self.iterations, self.elapsed)
    }
}

/// Triangles of an undirected graph.
#[pyclass(frozen, module = "warpbell")]
pub(crate) struct TrianglesResult {
    /// Number of triangles that each vertex belongs to.
    #[pyo3(get)]
    triangles: Py<Tensor>,
    /// Number of triangles, each counted once.
    #[pyo3(get)]
    total: u64,
    /// Time in seconds.
    #[pyo3(get)]
    elapsed: f64,
}

impl TrianglesResult {
    pub(crate) fn new(py: Python<'_>, found: TrianglesOnEngine, shared: &Arc<Shared>) -> PyResult<Self> {
        let triangles = tensor(py, found.triangles, Some(ElementType::I64), shared)?;
        Ok(Self { triangles, total: found.total, elapsed: found.elapsed.as_secs_f64() })
    }
}

#[pymethods]
impl TrianglesResult {
    fn __repr__(&self) -> String {
        format!("TrianglesResult({} triangles, {:.6} s)", self.total, self.elapsed)
    }
}

/// Local clustering coefficients of the vertices.
#[pyclass(frozen, module = "warpbell")]
pub(crate) struct ClusteringResult {
    /// Coefficient of each vertex, from 0 to 1.
    #[pyo3(get)]
    coefficient: Py<Tensor>,
    /// Time in seconds.
    #[pyo3(get)]
    elapsed: f64,
}

impl ClusteringResult {
    pub(crate) fn new(py: Python<'_>, found: ClusteringOnEngine, shared: &Arc<Shared>) -> PyResult<Self> {
        let coefficient = tensor(py, found.coefficient, None, shared)?;
        Ok(Self { coefficient, elapsed: found.elapsed.as_secs_f64() })
    }
}

#[pymethods]
impl ClusteringResult {
    fn __repr__(&self) -> String {
        format!("ClusteringResult({:.6} s)", self.elapsed)
    }
}

/// Core numbers of the vertices.
#[pyclass(frozen, module = "warpbell")]
pub(crate) struct CoresResult {
    /// Core number of each vertex.
    #[pyo3(get)]
    core: Py<Tensor>,
    /// The largest core number: the degeneracy of the graph.
    #[pyo3(get)]
    largest: u64,
    /// Time in seconds.
    #[pyo3(get)]
    elapsed: f64,
}

impl CoresResult {
    pub(crate) fn new(py: Python<'_>, found: CoresOnEngine, shared: &Arc<Shared>) -> PyResult<Self> {
        let core = tensor(py, found.core, Some(ElementType::I64), shared)?;
        Ok(Self { core, largest: found.largest, elapsed: found.elapsed.as_secs_f64() })
    }
}

#[pymethods]
impl CoresResult {
    fn __repr__(&self) -> String {
        format!("CoresResult(largest core number {}, {:.6} s)", self.largest, self.elapsed)
    }
}

/// Distances from a vertex.
#[pyclass(frozen, module = "warpbell")]
pub(crate) struct SsspResult {
    /// Distance of each vertex: integers for integer weights, otherwise ``float64``.
    #[pyo3(get)]
    distance: Py<Tensor>,
    /// Distance of a vertex that was not reached: the largest integer of the type, or NaN.
    #[pyo3(get)]
    unreached: Py<PyAny>,
    /// Predecessor of each vertex, or ``None`` if there were to be no parents. The source is its own; a vertex that was not reached has -1.
    #[pyo3(get)]
    parent: Option<Py<Tensor>>,
    /// Time in seconds.
    #[pyo3(get)]
    elapsed: f64,
    parents: Parents,
}

impl SsspResult {
    pub(crate) fn new(py: Python<'_>, found: SsspOnEngine, shared: &Arc<Shared>) -> PyResult<Self> {
        let unreached = match found.distance.element_type() {
            ElementType::U32 => u32::MAX.into_pyobject(py)?.into_any(),
            ElementType::U64 => u64::MAX.into_pyobject(py)?.into_any(),
            _ => f64::NAN.into_pyobject(py)?.into_any(),
        };
        let distance = tensor(py, found.distance, None, shared)?;
        let (parent, parents) = with_parents(py, found.parent, shared)?;
        Ok(Self { distance, unreached: unreached.unbind(), parent, elapsed: found.elapsed.as_secs_f64(), parents })
    }
}

#[pymethods]
impl SsspResult {
    /// Returns the vertices of a shortest path from the source to ``target``, or ``None`` if it was not reached.
    fn path(&self, py: Python<'_>, target: u64) -> PyResult<Option<Vec<u64>>> {
        self.parents.path(py, target)
    }

    fn __repr__(&self) -> String {
        format!("SsspResult({:.6} s)", self.elapsed)
    }
}
