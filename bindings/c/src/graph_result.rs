//! Graph algorithms: breadth-first search from one vertex or several, connected components, label propagation, PageRank,
//! betweenness centrality, triangles, clustering coefficients, cores, shortest paths.

use crate::engine::as_json;
use crate::error::{Error, guard, wb_code};
use crate::graph::wb_graph_t;
use crate::options::{self, Options};
use crate::pointer::{In, Out};
use crate::values::{Facts, Values, wb_report, wb_values_t};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use warpbell::graph::{
    Betweenness, Bfs, BfsOptions, BrandesReport, BucketReport, Cdlp, CdlpOptions, Clustering, Components,
    ComponentsOptions, CoreReport, Cores, CountReport, GraphOnEngine, IterationReport, LevelReport, MultiBfs,
    MultiBfsOptions, PageRank, PageRankOptions, PhaseReport, PropagationReport, Sssp, SsspOptions, Triangles,
    VertexValues,
};
use warpbell::storage::Stats;

/// Options of `wb_bfs`. All fields but `size` may be zero.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct wb_bfs_options {
    /// `sizeof(wb_bfs_options)`.
    pub size: usize,
    /// A level goes from unreached vertices back to the frontier if the frontier's edges exceed the unexplored ones divided by
    /// this; 0 for 40.
    pub alpha: u64,
    /// The search goes forward again if the frontier shrinks to the vertices divided by this; 0 for 18.
    pub beta: u64,
    /// 1 searches forward only.
    pub top_down: u32,
    /// 1 counts the bytes that each level reads from storage, for `wb_values_info`.
    pub trace_io: u32,
    /// Limit of one kernel; 0 for the default.
    pub kernel_seconds: f64,
    /// Vertex that ends the search if `has_target` is 1: vertices further away are unreached.
    pub target: u64,
    /// 1 if there is a target.
    pub has_target: u32,
    /// Largest depth: vertices further away are unreached; 0 for no limit.
    pub max_depth: u32,
}

// SAFETY: numbers; the size comes first.
unsafe impl Options for wb_bfs_options {
    const NAME: &str = "wb_bfs_options";
}

/// Options of `wb_multi_bfs`. All fields but `size` may be zero.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct wb_multi_bfs_options {
    /// `sizeof(wb_multi_bfs_options)`.
    pub size: usize,
    /// Largest depth: vertices further away are unreached; 0 for no limit.
    pub max_depth: u32,
    /// Zero.
    pub reserved: u32,
    /// Limit of one kernel; 0 for the default.
    pub kernel_seconds: f64,
}

// SAFETY: numbers; the size comes first.
unsafe impl Options for wb_multi_bfs_options {
    const NAME: &str = "wb_multi_bfs_options";
}

/// Options of `wb_components`. All fields but `size` may be zero.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct wb_components_options {
    /// `sizeof(wb_components_options)`.
    pub size: usize,
    /// Rounds at most that link one neighbour of every vertex; 0 for 2.
    pub rounds: u32,
    /// 1 finds strongly connected components: vertices that reach each other along the direction of the edges.
    pub strong: u32,
    /// Share of a sample that has to be in one component before the others are read completely, up to 1; 0 for 0.5.
    pub giant: f64,
    /// Limit of one kernel; 0 for the default.
    pub kernel_seconds: f64,
}

// SAFETY: numbers; the size comes first.
unsafe impl Options for wb_components_options {
    const NAME: &str = "wb_components_options";
}

/// Options of `wb_betweenness`. All fields but `size` may be zero.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct wb_betweenness_options {
    /// `sizeof(wb_betweenness_options)`.
    pub size: usize,
    /// Limit of one kernel; 0 for the default.
    pub kernel_seconds: f64,
}

// SAFETY: numbers; the size comes first.
unsafe impl Options for wb_betweenness_options {
    const NAME: &str = "wb_betweenness_options";
}

/// Options of `wb_cdlp`. All fields but `size` may be zero.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct wb_cdlp_options {
    /// `sizeof(wb_cdlp_options)`.
    pub size: usize,
    /// Bytes of the work space in the engine's memory; 0 for 16 MiB. It is larger if the longest list needs that.
    pub work_space: u64,
    /// Iterations at most; 0 for 10.
    pub iterations: u32,
    /// Zero.
    pub reserved: u32,
    /// Limit of one kernel; 0 for the default.
    pub kernel_seconds: f64,
}

// SAFETY: numbers; the size comes first.
unsafe impl Options for wb_cdlp_options {
    const NAME: &str = "wb_cdlp_options";
}

/// Options of `wb_pagerank`. All fields but `size` may be zero.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct wb_pagerank_options {
    /// `sizeof(wb_pagerank_options)`.
    pub size: usize,
    /// Share of a rank that is passed along the edges, up to 1; 0 for 0.85.
    pub damping: f64,
    /// The run ends when the changes of all ranks in an iteration sum to less: 1e-12 or more; 0 for 1e-4; negative for none.
    pub tolerance: f64,
    /// Iterations at most; 0 for 1000.
    pub iterations: u32,
    /// Zero.
    pub reserved: u32,
    /// Limit of one kernel; 0 for the default.
    pub kernel_seconds: f64,
    /// Vertices to which all goes that is not passed along edges (personalised PageRank); null for all vertices.
    pub personalize: In<u64>,
    /// Weight of each of these vertices, 0 or more; null for the same weight.
    pub personalize_weights: In<f64>,
    /// Number of these vertices.
    pub personalize_count: usize,
}

// SAFETY: numbers and pointers; the size comes first.
unsafe impl Options for wb_pagerank_options {
    const NAME: &str = "wb_pagerank_options";
}

/// Options of `wb_triangles`, `wb_clustering` and `wb_cores`. All fields but `size` may be zero.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct wb_graph_run_options {
    /// `sizeof(wb_graph_run_options)`.
    pub size: usize,
    /// Limit of one kernel; 0 for the default.
    pub kernel_seconds: f64,
}

// SAFETY: numbers; the size comes first.
unsafe impl Options for wb_graph_run_options {
    const NAME: &str = "wb_graph_run_options";
}

/// Options of `wb_sssp`. All fields but `size` may be zero.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct wb_sssp_options {
    /// `sizeof(wb_sssp_options)`.
    pub size: usize,
    /// Width of the range of distances that is relaxed at a time, in units of the weights; 0 for one that suits the graph.
    pub delta: f64,
    /// Rounds at most; 0 for no limit.
    pub rounds: u64,
    /// Limit of one kernel; 0 for the default.
    pub kernel_seconds: f64,
    /// Vertex that ends the search if `has_target` is 1: vertices further away are unreached.
    pub target: u64,
    /// 1 if there is a target.
    pub has_target: u32,
    /// Zero.
    pub reserved: u32,
    /// Largest distance: vertices further away are unreached; 0 for no limit.
    pub max_distance: f64,
}

// SAFETY: numbers; the size comes first.
unsafe impl Options for wb_sssp_options {
    const NAME: &str = "wb_sssp_options";
}

/// Returns the graph with the limit of one kernel.
fn limited(graph: In<wb_graph_t>, seconds: f64) -> Result<GraphOnEngine, Error> {
    let mut graph = graph.get()?.on_engine().clone();
    if let Some(limit) = options::seconds(seconds, "kernel_seconds")? {
        graph.set_launch_limit(limit);
    }
    Ok(graph)
}

/// Returns the vertex that ends a search, if there is one.
fn target(has_target: u32, target: u64) -> Result<Option<u64>, Error> {
    match (has_target, target) {
        (1, target) => Ok(Some(target)),
        (0, 0) => Ok(None),
        (0, _) => Err(Error::argument(format!("`target` is {target} and `has_target` is 0; set `has_target` to 1"))),
        (other, _) => Err(Error::argument(format!("`has_target` is {other}; use 0 or 1"))),
    }
}

/// Collects what all algorithms report.
fn facts(
    elapsed: Duration,
    io: Option<&Stats>,
    steps: &[Value],
    scanned: u64,
    report: wb_report,
) -> Result<Arc<Facts>, Error> {
    let elapsed_seconds = elapsed.as_secs_f64();
    let read_bytes = io.map_or(0, |io| io.read_bytes);
    let report = wb_report { elapsed_seconds, steps: steps.len() as u64, scanned, read_bytes, ..report };
    let json = as_json(&json!({
        "elapsed_seconds": elapsed_seconds, "scanned": scanned, "reached": report.reached,
        "components": report.components, "converged": report.converged != 0, "change": report.change,
        "triangles": report.triangles, "largest_core": report.largest_core,
        "delta": report.delta, "io": io, "steps": steps,
    }))?;
    Ok(Arc::new(Facts { report, json }))
}

fn handle(values: VertexValues, facts: &Arc<Facts>) -> Values {
    Values { values, facts: facts.clone() }
}

/// Describes the levels of a search.
fn levels(of: &[LevelReport]) -> Vec<Value> {
    let step = |l: &LevelReport| {
        json!({
            "level": l.level, "direction": l.direction.to_string(), "frontier": l.frontier, "found": l.found,
            "scanned": l.scanned, "hub_hits": l.hub_hits, "read_bytes": l.read_bytes,
            "elapsed_seconds": l.elapsed.as_secs_f64(),
        })
    };
    of.iter().map(step).collect()
}

/// Searches breadth first from a vertex.
///
/// @param source The vertex, from 0: `wb_graph_vertex_of` finds that of an identifier.
/// @param options Options, or null for the defaults.
/// @param depth Receives the number of edges from the source to each vertex, of type `WB_U32`, or `WB_UNREACHED`.
/// @param parent Receives the predecessor of each vertex, of type `WB_U32` or `WB_U64`: the source is its own, and unreached
///   vertices have none. Null for a search without parents.
/// @return `WB_OK`; `WB_ERR_ARGUMENT` if there is no such vertex; `WB_ERR_OPERATION` if an edge cannot be read, with its LBA;
///   `WB_ERR_TIMEOUT` or `WB_ERR_STOPPED` if a kernel was stopped; `WB_ERR_DAMAGED` if edges lead to vertices that do not
///   exist; `WB_ERR_MEMORY` without memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_bfs(
    graph: In<wb_graph_t>,
    source: u64,
    options: In<wb_bfs_options>,
    depth: Out<*mut wb_values_t>,
    parent: Out<*mut wb_values_t>,
) -> wb_code {
    guard(|| {
        depth.check("depth")?;
        let given = options.read()?;
        let mut chosen = BfsOptions::default().parents(!parent.is_null()).trace_io(given.trace_io != 0);
        if given.alpha != 0 {
            chosen = chosen.alpha(given.alpha);
        }
        if given.beta != 0 {
            chosen = chosen.beta(given.beta);
        }
        if given.top_down != 0 {
            chosen = chosen.alpha(0);
        }
        chosen = chosen.target(target(given.has_target, given.target)?);
        chosen = chosen.max_depth((given.max_depth != 0).then_some(given.max_depth));
        let graph = limited(graph, given.kernel_seconds)?;
        let found = Bfs::new(&graph, &chosen)?.run_on_device(source)?;
        let steps = levels(&found.levels);
        let scanned = found.levels.iter().map(|l| l.scanned).sum();
        let report = wb_report { reached: found.reached, ..Default::default() };
        let facts = facts(found.elapsed, found.io.as_ref(), &steps, scanned, report)?;
        if let Some(values) = found.parent {
            parent.give(handle(values, &facts))?;
        }
        depth.give(handle(found.depth, &facts))
    })
}

/// Searches breadth first from up to 64 vertices at once. In each level, the searches share one scan of the lists that they
/// read (MS-BFS: Then et al., VLDB 2014).
///
/// @param sources Vertices, from 0. A vertex may occur more than once.
/// @param count Number of sources, 1 to 64.
/// @param options Options, or null for the defaults.
/// @param depth Receives, for each source, the number of edges to each vertex, of type `WB_U32`, or `WB_UNREACHED`: space for
///   `count` handles. Null for searches without depths, which take 4 bytes x vertices x sources.
/// @param reached_by Receives a mask for each vertex, of type `WB_U64`: bit i is set if the search from source i reached it.
/// @return As `wb_bfs`; `WB_ERR_ARGUMENT` for another number of sources; `WB_ERR_MEMORY` with the numbers if the depths do not
///   fit. `wb_report.reached` is the sum over all searches.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_multi_bfs(
    graph: In<wb_graph_t>,
    sources: In<u64>,
    count: usize,
    options: In<wb_multi_bfs_options>,
    depth: Out<*mut wb_values_t>,
    reached_by: Out<*mut wb_values_t>,
) -> wb_code {
    guard(|| {
        reached_by.check("reached_by")?;
        let given = options.read()?;
        let chosen = MultiBfsOptions::default()
            .depths(!depth.is_null())
            .max_depth((given.max_depth != 0).then_some(given.max_depth));
        let graph = limited(graph, given.kernel_seconds)?;
        let found = MultiBfs::new(&graph, &chosen)?.run_on_device(sources.list(count, "sources")?)?;
        let scanned = found.levels.iter().map(|l| l.scanned).sum();
        let report = wb_report { reached: found.reached()?.iter().sum(), ..Default::default() };
        let facts = facts(found.elapsed, found.io.as_ref(), &levels(&found.levels), scanned, report)?;
        for (i, values) in found.depth.into_iter().enumerate() {
            depth.at(i).give(handle(values, &facts))?;
        }
        reached_by.give(handle(found.reached_by, &facts))
    })
}

/// Labels every vertex with the smallest vertex of its component. Components of a directed graph are the weakly connected
/// ones, unless `wb_components_options.strong` is 1.
///
/// @param options Options, or null for the defaults.
/// @param label Receives the labels, of type `WB_U32` or `WB_U64`.
/// @return As `wb_bfs`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_components(
    graph: In<wb_graph_t>,
    options: In<wb_components_options>,
    label: Out<*mut wb_values_t>,
) -> wb_code {
    guard(|| {
        label.check("label")?;
        let given = options.read()?;
        let mut chosen = ComponentsOptions::default().strong(given.strong != 0);
        if given.rounds != 0 {
            chosen = chosen.rounds(given.rounds);
        }
        if given.giant != 0.0 {
            if !(0.0..=1.0).contains(&given.giant) {
                return Err(Error::argument(format!("`giant` is {}; it must be from 0 to 1", given.giant)));
            }
            chosen = chosen.giant(given.giant);
        }
        let graph = limited(graph, given.kernel_seconds)?;
        let found = Components::new(&graph, &chosen)?.run_on_device()?;
        let step = |p: &PhaseReport| {
            json!({
                "name": p.name, "scanned": p.scanned, "trees": p.trees, "elapsed_seconds": p.elapsed.as_secs_f64(),
            })
        };
        let steps: Vec<_> = found.phases.iter().map(step).collect();
        let scanned = found.phases.iter().map(|p| p.scanned).sum();
        let report = wb_report { components: found.components, ..Default::default() };
        let facts = facts(found.elapsed, found.io.as_ref(), &steps, scanned, report)?;
        label.give(handle(found.label, &facts))
    })
}

/// Detects communities by synchronous label propagation (CDLP of LDBC Graphalytics). Each vertex starts with its own number as
/// its label, and takes the most frequent label of its neighbours in each iteration, of several the smallest. In a directed
/// graph in- and out-neighbours count, and a vertex that is both counts twice. The run ends earlier if no label changes.
///
/// @param options Options, or null for the defaults.
/// @param label Receives the labels, of type `WB_U32` or `WB_U64`: numbers of vertices. `wb_report.components` is the number of
///   communities.
/// @return As `wb_bfs`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_cdlp(
    graph: In<wb_graph_t>,
    options: In<wb_cdlp_options>,
    label: Out<*mut wb_values_t>,
) -> wb_code {
    guard(|| {
        label.check("label")?;
        let given = options.read()?;
        let mut chosen = CdlpOptions::default();
        if given.iterations != 0 {
            chosen = chosen.iterations(given.iterations);
        }
        if given.work_space != 0 {
            chosen = chosen.work_space(given.work_space);
        }
        let graph = limited(graph, given.kernel_seconds)?;
        let found = Cdlp::new(&graph, &chosen)?.run_on_device()?;
        let step = |i: &PropagationReport| {
            json!({
                "iteration": i.iteration, "changed": i.changed, "scanned": i.scanned,
                "elapsed_seconds": i.elapsed.as_secs_f64(),
            })
        };
        let steps: Vec<_> = found.iterations.iter().map(step).collect();
        let scanned = found.iterations.iter().map(|i| i.scanned).sum();
        let report = wb_report { components: found.communities, ..Default::default() };
        let facts = facts(found.elapsed, found.io.as_ref(), &steps, scanned, report)?;
        label.give(handle(found.label, &facts))
    })
}

/// Sums the dependencies of sources on every vertex, by Brandes' algorithm. The score of v is the sum, over the sources s and all
/// vertices t that differ from v, of the share of the shortest paths from s to t on which v lies. Paths are counted in edges. The
/// sums are not normalised; with all vertices as sources, an undirected graph has each pair of ends twice.
///
/// @param sources The sources, vertices from 0; null for all vertices.
/// @param count Number of sources; not read for all vertices.
/// @param options Options, or null for the defaults.
/// @param score Receives the scores, of type `WB_F64`.
/// @return As `wb_bfs`; `WB_ERR_INPUT` if more than 1.8e308 shortest paths lead to a vertex.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_betweenness(
    graph: In<wb_graph_t>,
    sources: In<u64>,
    count: usize,
    options: In<wb_betweenness_options>,
    score: Out<*mut wb_values_t>,
) -> wb_code {
    guard(|| {
        score.check("score")?;
        let given = options.read()?;
        let graph = limited(graph, given.kernel_seconds)?;
        let all: Vec<u64>;
        let chosen = if sources.is_null() {
            all = (0..graph.vertices()).collect();
            &all[..]
        } else {
            sources.list(count, "sources")?
        };
        let found = Betweenness::new(&graph)?.run_on_device(chosen)?;
        let step = |s: &BrandesReport| {
            json!({
                "source": s.source, "reached": s.reached, "levels": s.levels, "scanned": s.scanned,
                "elapsed_seconds": s.elapsed.as_secs_f64(),
            })
        };
        let steps: Vec<_> = found.sources.iter().map(step).collect();
        let scanned = found.sources.iter().map(|s| s.scanned).sum();
        let facts = facts(found.elapsed, found.io.as_ref(), &steps, scanned, wb_report::default())?;
        score.give(handle(found.score, &facts))
    })
}

/// Ranks every vertex by PageRank. The ranks sum to 1.
///
/// @param options Options, or null for the defaults.
/// @param rank Receives the ranks, of type `WB_F64`.
/// @return As `wb_bfs`; `WB_ERR_ARGUMENT` for an option that is outside its range. Iterations that end before the tolerance
///   is reached are no error: `wb_report.converged`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_pagerank(
    graph: In<wb_graph_t>,
    options: In<wb_pagerank_options>,
    rank: Out<*mut wb_values_t>,
) -> wb_code {
    guard(|| {
        rank.check("rank")?;
        let given = options.read()?;
        let mut chosen = PageRankOptions::default();
        if given.damping != 0.0 {
            chosen = chosen.damping(given.damping);
        }
        if given.tolerance != 0.0 {
            chosen = chosen.tolerance(Some(given.tolerance).filter(|t| t.is_nan() || *t > 0.0));
        }
        if given.iterations != 0 {
            chosen = chosen.iterations(given.iterations);
        }
        let named = given.personalize.list(given.personalize_count, "personalize")?;
        let weights = match given.personalize_weights.is_null() {
            true => &[],
            false => given.personalize_weights.list(given.personalize_count, "personalize_weights")?,
        };
        let weight = |i: usize| weights.get(i).copied().unwrap_or(1.0);
        chosen = chosen.personalization(named.iter().enumerate().map(|(i, v)| (*v, weight(i))).collect());
        let graph = limited(graph, given.kernel_seconds)?;
        let found = PageRank::new(&graph, &chosen)?.run_on_device()?;
        let step = |i: &IterationReport| {
            json!({
                "iteration": i.iteration, "change": i.change, "scanned": i.scanned,
                "elapsed_seconds": i.elapsed.as_secs_f64(),
            })
        };
        let steps: Vec<_> = found.iterations.iter().map(step).collect();
        let scanned = found.iterations.iter().map(|i| i.scanned).sum();
        let change = found.iterations.last().map_or(0.0, |i| i.change);
        let report = wb_report { converged: found.converged.into(), change, ..Default::default() };
        let facts = facts(found.elapsed, found.io.as_ref(), &steps, scanned, report)?;
        rank.give(handle(found.rank, &facts))
    })
}

fn count_steps(steps: &[CountReport]) -> (Vec<Value>, u64) {
    let step = |s: &CountReport| {
        json!({
            "name": s.name, "vertices": s.vertices, "scanned": s.scanned, "found": s.found,
            "elapsed_seconds": s.elapsed.as_secs_f64(),
        })
    };
    (steps.iter().map(step).collect(), steps.iter().map(|s| s.scanned).sum())
}

/// Counts the triangles of an undirected graph: those of each vertex, and all of them in `wb_report.triangles`, where each
/// counts once. Self-loops are in no triangle.
///
/// @param options Options, or null for the defaults.
/// @param triangles Receives the number of triangles of each vertex, of type `WB_U64`.
/// @return As `wb_bfs`; `WB_ERR_INPUT` if the graph is directed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_triangles(
    graph: In<wb_graph_t>,
    options: In<wb_graph_run_options>,
    triangles: Out<*mut wb_values_t>,
) -> wb_code {
    guard(|| {
        triangles.check("triangles")?;
        let graph = limited(graph, options.read()?.kernel_seconds)?;
        let found = Triangles::new(&graph)?.run_on_device()?;
        let (steps, scanned) = count_steps(&found.steps);
        let report = wb_report { triangles: found.total, ..Default::default() };
        let facts = facts(found.elapsed, found.io.as_ref(), &steps, scanned, report)?;
        triangles.give(handle(found.triangles, &facts))
    })
}

/// Computes the local clustering coefficient of each vertex: the arcs between its d neighbours in either direction, divided
/// by d (d - 1), and 0 for d < 2 (LDBC Graphalytics). An edge without direction is two arcs.
///
/// @param options Options, or null for the defaults.
/// @param coefficient Receives the coefficients, of type `WB_F64`.
/// @return As `wb_bfs`; `WB_ERR_STATE` if a directed graph was placed without in-neighbour lists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_clustering(
    graph: In<wb_graph_t>,
    options: In<wb_graph_run_options>,
    coefficient: Out<*mut wb_values_t>,
) -> wb_code {
    guard(|| {
        coefficient.check("coefficient")?;
        let graph = limited(graph, options.read()?.kernel_seconds)?;
        let found = Clustering::new(&graph)?.run_on_device()?;
        let (steps, scanned) = count_steps(&found.steps);
        let facts = facts(found.elapsed, found.io.as_ref(), &steps, scanned, wb_report::default())?;
        coefficient.give(handle(found.coefficient, &facts))
    })
}

/// Computes the core number of each vertex: the largest k for which the vertex is in a subgraph whose vertices all have at
/// least k edges within it. In-edges and out-edges of a directed graph count together. Self-loops are not counted.
///
/// @param options Options, or null for the defaults.
/// @param core Receives the core numbers, of type `WB_U64`. The largest is `wb_report.largest_core`.
/// @return As `wb_bfs`; `WB_ERR_STATE` if a directed graph was placed without in-neighbour lists.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_cores(
    graph: In<wb_graph_t>,
    options: In<wb_graph_run_options>,
    core: Out<*mut wb_values_t>,
) -> wb_code {
    guard(|| {
        core.check("core")?;
        let graph = limited(graph, options.read()?.kernel_seconds)?;
        let found = Cores::new(&graph)?.run_on_device()?;
        let step = |l: &CoreReport| {
            json!({
                "core": l.core, "vertices": l.vertices, "rounds": l.rounds, "scanned": l.scanned,
                "elapsed_seconds": l.elapsed.as_secs_f64(),
            })
        };
        let steps: Vec<_> = found.levels.iter().map(step).collect();
        let scanned = found.levels.iter().map(|l| l.scanned).sum();
        let report = wb_report { largest_core: found.largest, ..Default::default() };
        let facts = facts(found.elapsed, found.io.as_ref(), &steps, scanned, report)?;
        core.give(handle(found.core, &facts))
    })
}

/// Finds the shortest paths from a vertex, by the weights of the edges.
///
/// @param source The vertex, from 0: `wb_graph_vertex_of` finds that of an identifier.
/// @param options Options, or null for the defaults.
/// @param distance Receives the distances: of type `WB_U32` or `WB_U64` for integer weights, and `WB_F64` for real ones. All
///   bits of an unreached vertex's value are set; `wb_values_read` makes it infinity in `WB_F64`.
/// @param parent Receives the predecessor of each vertex on a shortest path, of type `WB_U32` or `WB_U64`: the source is its
///   own, and unreached vertices have none. Null for a search without parents, which reads fewer edges.
/// @return As `wb_bfs`; `WB_ERR_STATE` if the graph has no weights; `WB_ERR_INPUT` if distances might not fit into 64 bits.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn wb_sssp(
    graph: In<wb_graph_t>,
    source: u64,
    options: In<wb_sssp_options>,
    distance: Out<*mut wb_values_t>,
    parent: Out<*mut wb_values_t>,
) -> wb_code {
    guard(|| {
        distance.check("distance")?;
        let given = options.read()?;
        let given_or_none = |value: f64| (value != 0.0).then_some(value);
        let chosen = SsspOptions::default()
            .delta(given_or_none(given.delta))
            .rounds(given.rounds)
            .parents(!parent.is_null())
            .target(target(given.has_target, given.target)?)
            .max_distance(given_or_none(given.max_distance));
        let graph = limited(graph, given.kernel_seconds)?;
        let found = Sssp::new(&graph, &chosen)?.run_on_device(source)?;
        let step = |b: &BucketReport| {
            json!({
                "threshold": b.threshold, "rounds": b.rounds, "items": b.items, "scanned": b.scanned,
                "lowered": b.lowered, "elapsed_seconds": b.elapsed.as_secs_f64(),
            })
        };
        let steps: Vec<_> = found.buckets.iter().map(step).collect();
        let scanned = found.buckets.iter().map(|b| b.scanned).sum::<u64>() + found.parents_scanned;
        let report = wb_report { delta: found.delta, ..Default::default() };
        let facts = facts(found.elapsed, found.io.as_ref(), &steps, scanned, report)?;
        if let Some(values) = found.parent {
            parent.give(handle(values, &facts))?;
        }
        distance.give(handle(found.distance, &facts))
    })
}
