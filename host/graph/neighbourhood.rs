//! Arcs between the neighbours of each vertex, which triangle counts and clustering coefficients consist of.

use super::batches;
use super::edges::{EdgeStore, GraphError, GraphOnEngine, Placement};
use super::launch::{Launcher, ValueKind, Values};
use super::near::Near;
use super::params::{
    CLUSTERING_FOUND, CLUSTERING_SCANNED, CLUSTERING_TAKEN, Clustering as ClusteringParameters, GRAPH_BAD_EDGES,
    GRAPH_MARKER_SLOTS, GraphReport, Near as NearParameters, TRIANGLES_FOUND, TRIANGLES_SCANNED, TRIANGLES_TAKEN,
    Triangles as TrianglesParameters,
};
use super::vertex_values::VertexValues;
use crate::args;
use crate::engine::Args;
use crate::memory::{Place, Region};
use bytemuck::Zeroable;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Report of one step of a count.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CountReport {
    /// Name of the step: `order` finds the neighbours of higher degree of each vertex, `count` intersects lists.
    pub name: &'static str,
    /// Number of vertices that the step took, on all PEs. A count goes over the vertices several times, each time with the
    /// lists of other neighbours, if the cache has not room for all lists, or the lists are distributed over PEs.
    pub vertices: u64,
    /// Number of edges read.
    pub scanned: u64,
    /// Number of triangles found; for a directed graph, number of arcs found between neighbours of a vertex.
    pub found: u64,
    /// Wall-clock time.
    pub elapsed: Duration,
}

/// Number of vertices of the first launch. Later ones have more while a launch is short, so that no launch takes longer
/// than the limit.
const FIRST_VERTICES: u64 = 1 << 16;
/// Launches that take less time are followed by one of twice as many vertices.
const SHORT: Duration = Duration::from_secs(1);
/// Launches that take more time are followed by one of half as many vertices.
const LONG: Duration = Duration::from_secs(10);
/// Bytes of marks that are allocated even for few vertices. Otherwise they take [`MARKS_OF_VERTEX`] bytes a vertex.
const LEAST_MARKS: usize = 256 << 20;
/// Bytes for each vertex that the marks of all blocks take at most: a quarter of a byte for each block.
const MARKS_OF_VERTEX: usize = 16;

/// Memory and kernels of a count.
#[derive(Debug)]
pub(super) struct NeighbourhoodCount {
    graph: GraphOnEngine,
    /// Name in errors.
    algorithm: &'static str,
    launcher: Launcher,
    method: Method,
    /// Lists of other PEs.
    near: Option<Near>,
}

/// Method by which lists are intersected.
#[derive(Debug)]
enum Method {
    /// `kernels/graph/triangles.cu`: by the neighbours of higher rank, which are the first of lists sorted by degree.
    Forward { above: Region, markers: Region },
    /// `kernels/graph/clustering.cu`: by marks of all neighbours, for lists in any order and in both directions.
    Marks { marks: Region, lists: Region, pairs: Option<Region>, turn: Region, neighbours: Option<Region>, blocks: u32 },
}

impl NeighbourhoodCount {
    /// Allocates the memory of a count for `algorithm`, as errors name it.
    pub(super) fn new(graph: &GraphOnEngine, algorithm: &'static str) -> Result<Self, GraphError> {
        graph.both_lists(algorithm)?;
        let forward = !graph.directed && graph.out.by_degree;
        let launcher = Launcher::across(graph, if forward { "wb_triangles_" } else { "wb_clustering_" })?;
        let device = |bytes: usize| graph.engine.allocate(Place::Device, bytes);
        let vertices = graph.vertices as usize;
        let set = GRAPH_MARKER_SLOTS * graph.id_bytes();
        let method = if forward {
            Method::Forward {
                above: device(vertices * size_of::<u32>())?,
                markers: device(launcher.warps() * 2 * set)?,
            }
        } else {
            let of_block = vertices.div_ceil(16).max(1) * size_of::<u32>();
            let most = (LEAST_MARKS.max(vertices * MARKS_OF_VERTEX) / of_block).max(1);
            let blocks = launcher.blocks().min(most);
            let warps = blocks * launcher.warps() / launcher.blocks();
            let both = |bytes: usize| graph.directed.then(|| device(bytes)).transpose();
            Method::Marks {
                marks: device(blocks * of_block)?,
                lists: device(warps * set)?,
                pairs: both(warps * GRAPH_MARKER_SLOTS * size_of::<u64>())?,
                turn: device(blocks * size_of::<u64>())?,
                neighbours: both(vertices * size_of::<u64>())?,
                blocks: blocks as u32,
            }
        };
        let near = Near::new(graph, &launcher)?;
        Ok(Self { graph: graph.clone(), algorithm, launcher, method, near })
    }

    /// Sends the values of own vertices to all PEs.
    pub(super) fn share(&self, values: &VertexValues) -> Result<(), GraphError> {
        self.launcher.share(Values { region: values.inside(), bytes: size_of::<u64>() })
    }

    /// Brings values of vertices into the order in which programs see them.
    pub(super) fn bring_outside(&self, values: &VertexValues) -> Result<(), GraphError> {
        self.launcher.bring_outside(&self.graph, values, ValueKind::Plain)
    }

    pub(super) fn graph(&self) -> &GraphOnEngine {
        &self.graph
    }

    /// Counts the arcs between the neighbours of each vertex; edges in an undirected graph, which are its triangles. The
    /// counts of own vertices are then complete. Returns the steps and the sum of the counts of all vertices.
    pub(super) fn run(&self, counts: &VertexValues) -> Result<(Vec<CountReport>, u64), GraphError> {
        self.launcher.reset()?;
        if self.graph.vertices == 0 {
            return Ok((Vec::new(), 0));
        }
        zero(counts.inside())?;
        let mut steps = Vec::new();
        let times = match &self.method {
            // Each triangle is found once, and counts at each of its vertices.
            Method::Forward { above, markers } => self.count_forward(&mut steps, counts, above, markers).map(|()| 3),
            Method::Marks { marks, neighbours, .. } => {
                self.count_by_marks(&mut steps, counts, marks, neighbours.as_ref()).map(|()| 1)
            }
        }?;
        self.launcher.add_up(counts.inside())?;
        let found = times * steps.iter().map(|s| s.found).sum::<u64>();
        Ok((steps, found))
    }

    /// Counts triangles by the neighbours of higher rank.
    fn count_forward(
        &self,
        steps: &mut Vec<CountReport>,
        counts: &VertexValues,
        above: &Region,
        markers: &Region,
    ) -> Result<(), GraphError> {
        let graph = &self.graph;
        zero(above)?;
        let p = TrianglesParameters {
            offset: graph.out.offset.address(),
            tile: graph.out.tile.address(),
            above: above.address(),
            found: counts.address(),
            markers: markers.address(),
            sums: self.launcher.sums_address(),
            report: self.launcher.report_address(),
            vertices: graph.vertices,
            edges: graph.arcs,
            first: 0,
            last: graph.vertices,
            near_first: 0,
            near_last: graph.vertices,
        };
        let (edges, _) = graph.both_lists(self.algorithm)?;
        let started = Instant::now();
        let order = match &self.near {
            Some(near) => args!(p, near.parameters(None), edges),
            None => args!(p, edges),
        };
        // SAFETY: these are the parameters of this kernel. The regions that they name belong to `self`, or the caller and
        // `self` share them.
        let report = unsafe { self.launcher.step(&self.kernel("wb_triangles_order", edges), order) }?;
        steps.push(report_of("order", graph.vertices, &report, started.elapsed()));
        self.launcher.share(Values { region: above, bytes: size_of::<u32>() })?;
        let kernel = self.kernel("wb_triangles_count", edges);
        self.each_pass(|range, received| {
            let args = |first, last| {
                let p = TrianglesParameters { first, last, near_first: range.start, near_last: range.end, ..p };
                received.map_or_else(|| args!(p, edges), |near| args!(p, near, edges))
            };
            // SAFETY: these are the parameters of this kernel, in regions of `self` or shared with the caller.
            unsafe { self.in_parts(steps, &kernel, args) }
        })
    }

    /// Counts the arcs between marked neighbours.
    fn count_by_marks(
        &self,
        steps: &mut Vec<CountReport>,
        counts: &VertexValues,
        marks: &Region,
        neighbours: Option<&Region>,
    ) -> Result<(), GraphError> {
        let graph = &self.graph;
        // A failed run may have left marks.
        zero(marks)?;
        let p = self.marks_parameters(counts)?;
        let (out, inward) = graph.both_lists(self.algorithm)?;
        let inward = inward.map_or(out, |i| i.edges);
        let kernel = self.kernel("wb_clustering_count", out);
        self.each_pass(|range, received| {
            // Each pass counts the neighbours of all own vertices.
            neighbours.map(zero).transpose()?;
            let args = |first, last| {
                let p = ClusteringParameters { first, last, near_first: range.start, near_last: range.end, ..p };
                received.map_or_else(|| args!(p, out, inward), |near| args!(p, near, out, inward))
            };
            // SAFETY: these are the parameters of this kernel, in regions of `self` or shared with the caller.
            unsafe { self.in_parts(steps, &kernel, args) }
        })
    }

    /// Calls `count` for each pass, with the vertices whose lists the pass reads as those of neighbours, and with what was
    /// received if they come from other PEs.
    fn each_pass(
        &self,
        mut count: impl FnMut(Range<u64>, Option<NearParameters>) -> Result<(), GraphError>,
    ) -> Result<(), GraphError> {
        let Some(near) = &self.near else {
            return self.ranges_of_passes()?.into_iter().try_for_each(|range| count(range, None));
        };
        near.messages().iter().try_for_each(|lists| {
            let received = near.bring(&self.graph, &self.launcher, lists)?;
            count(lists.vertices.clone(), Some(received))
        })
    }

    /// Returns the neighbours whose lists each pass of a count reads: so many that their lists stay in the cache, which has
    /// room for the lists of the vertices beside them. Otherwise each of a page's lists would bring the page again.
    fn ranges_of_passes(&self) -> Result<Vec<Range<u64>>, GraphError> {
        let graph = &self.graph;
        let (out, inward) = graph.both_lists(self.algorithm)?;
        let pages = out.pages().unwrap_or(0) + inward.as_ref().and_then(|i| i.edges.pages()).unwrap_or(0);
        let passes = match &graph.placement {
            Placement::Storage(cache) => passes_for(pages, cache.frames() as u64),
            _ => 1,
        };
        let all = 0..graph.vertices;
        if passes == 1 {
            return Ok(vec![all]);
        }
        let inward = inward.map(|i| &i.lists.offset);
        let edges = if inward.is_some() { 2 * graph.arcs } else { graph.arcs };
        let (batches, _) = batches::plan((&graph.out.offset, inward), all, edges.div_ceil(passes))?;
        Ok(batches.into_iter().map(|batch| batch.vertices).collect())
    }

    /// Divides the counts of a run by the number of pairs of neighbours.
    pub(super) fn divide(&self, counts: &VertexValues, coefficient: &VertexValues) -> Result<(), GraphError> {
        let p = ClusteringParameters { coefficient: coefficient.address(), ..self.marks_parameters(counts)? };
        // SAFETY: these are the parameters of this kernel. The regions that they name belong to `self`, or the caller and
        // `self` share them.
        unsafe { self.launcher.step("wb_clustering_divide", args!(p)) }?;
        Ok(())
    }

    fn marks_parameters(&self, counts: &VertexValues) -> Result<ClusteringParameters, GraphError> {
        let graph = &self.graph;
        let of = |region: Option<&Region>| region.map_or(0, Region::address);
        let (marks, lists, pairs, turn, neighbours, blocks) = match &self.method {
            Method::Forward { .. } => (None, None, None, None, None, 0),
            Method::Marks { marks, lists, pairs, turn, neighbours, blocks } => {
                (Some(marks), Some(lists), pairs.as_ref(), Some(turn), neighbours.as_ref(), *blocks)
            }
        };
        Ok(ClusteringParameters {
            offset: graph.out.offset.address(),
            in_offset: of(graph.inward.as_ref().filter(|_| graph.directed).map(|i| &i.offset)),
            loops: graph.loops_address(),
            neighbours: of(neighbours),
            arcs: counts.address(),
            marks: of(marks),
            lists: of(lists),
            pairs: of(pairs),
            turn: of(turn),
            coefficient: 0,
            sums: self.launcher.sums_address(),
            report: self.launcher.report_address(),
            vertices: graph.vertices,
            first: 0,
            last: graph.vertices,
            near_first: 0,
            near_last: graph.vertices,
            blocks,
            reserved: 0,
        })
    }

    fn kernel(&self, name: &str, edges: &EdgeStore) -> String {
        let part = if self.near.is_some() { "_part" } else { "" };
        format!("{name}{part}_{}_{}", edges.source(), self.graph.id_suffix())
    }

    /// Counts for parts of the vertices, each in a launch. A PE that has none left takes part in the exchanges until all have
    /// done theirs.
    ///
    /// # Safety
    /// As for [`Launcher::run`]: `args` returns those of vertices from the first number to the last.
    unsafe fn in_parts(
        &self,
        steps: &mut Vec<CountReport>,
        kernel: &str,
        args: impl Fn(u64, u64) -> Args,
    ) -> Result<(), GraphError> {
        let own = self.graph.own_vertices();
        let (mut first, mut count) = (own.start, FIRST_VERTICES);
        loop {
            let last = own.end.min(first.saturating_add(count));
            let started = Instant::now();
            let mut report = GraphReport { least: u64::MAX, ..GraphReport::zeroed() };
            if first < last {
                // SAFETY: the caller makes the same promise.
                report = unsafe { self.launcher.step_here(kernel, args(first, last)) }?;
            }
            let elapsed = started.elapsed();
            match elapsed {
                t if t < SHORT => count = count.saturating_mul(2),
                t if t > LONG => count = (count / 2).max(1),
                _ => {}
            }
            report.sum[TAKEN] = last - first;
            report.sum[LEFT] = u64::from(last < own.end);
            let all = self.launcher.end(report, 0, None)?;
            steps.push(report_of("count", all.sum[TAKEN], &all, elapsed));
            first = last;
            if all.sum[LEFT] == 0 {
                return Ok(());
            }
        }
    }
}

/// Most passes that the lists of neighbours are divided into by their size. Each reads all lists of the vertices.
const MOST_PASSES: u64 = 32;

/// Returns the number of passes over lists of so many pages: in each, half of the cache holds those of the neighbours.
fn passes_for(pages: u64, frames: u64) -> u64 {
    if pages <= frames { 1 } else { pages.div_ceil((frames / 2).max(1)).min(MOST_PASSES) }
}

/// Sum of the vertices that all PEs took in a step.
const TAKEN: usize = TRIANGLES_TAKEN;
/// Sum of the PEs that have vertices left after a step.
const LEFT: usize = TAKEN + 1;

// Both kernels report in the same places, and leave one to the host.
const _: () = assert!(
    TRIANGLES_FOUND == CLUSTERING_FOUND
        && TRIANGLES_SCANNED == CLUSTERING_SCANNED
        && TRIANGLES_TAKEN == CLUSTERING_TAKEN
        && LEFT < GRAPH_BAD_EDGES
);

fn zero(region: &Region) -> Result<(), GraphError> {
    Ok(region.fill(0, region.len(), 0)?)
}

fn report_of(name: &'static str, vertices: u64, report: &GraphReport, elapsed: Duration) -> CountReport {
    let sum = |which: usize| report.sum[which];
    CountReport { name, vertices, scanned: sum(TRIANGLES_SCANNED), found: sum(TRIANGLES_FOUND), elapsed }
}
