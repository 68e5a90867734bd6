//! Results of algorithms: figures for the result line, values for files, and lines for each step.

use crate::output::{Failure, Text};
use crate::workloads::graph::{GraphRun, seconds};
use serde::Serialize;
use std::fmt;
use warpbell::graph::output::{Values, Written};
use warpbell::graph::verify::{self, VerifyError};
use warpbell::graph::{
    BetweennessResult, BfsResult, CdlpResult, ClusteringResult, ComponentsResult, CoresResult, Distances, GraphError,
    GraphShape, Ids, MultiBfsOnEngine, PageRankResult, SsspResult, TrianglesResult, UNREACHED, VertexName, teps,
};
use warpbell::storage::Stats;
use warpbell::units::{Bytes, grouped, real};

/// Result of searches from several sources at once.
pub struct Batch {
    /// Sources, as numbers from 0.
    pub sources: Vec<u64>,
    /// Number of vertices that each search reached.
    pub reached: Vec<u64>,
    /// Searches that reach each vertex.
    masks: Vec<u64>,
    pub found: MultiBfsOnEngine,
    /// Depths of each search, if they are to be written.
    depths: Vec<Vec<u32>>,
}

impl Batch {
    /// Takes the result of the searches from `sources`.
    ///
    /// # Errors
    /// [`GraphError::Memory`] if the engine's memory cannot be read.
    pub fn new(sources: Vec<u64>, found: MultiBfsOnEngine) -> Result<Self, GraphError> {
        Ok(Self { sources, reached: found.reached()?, masks: found.masks()?, found, depths: Vec::new() })
    }

    /// Checks the depths of each search by `check`, which takes its source. Copies those of one search at a time.
    ///
    /// # Errors
    /// The first error of `check`; [`Failure::Error`] if the engine's memory cannot be read.
    pub fn check(
        &self,
        check: impl Fn(u64, &[u32]) -> Result<(), VerifyError>,
    ) -> Result<Result<(), VerifyError>, Failure> {
        for (search, source) in self.sources.iter().enumerate() {
            if let Err(e) = check(*source, &self.found.depths_of(search)?) {
                return Ok(Err(e));
            }
        }
        Ok(Ok(()))
    }

    /// Returns the edges that all searches traversed, by Graph500's rule for each.
    fn traversed_edges(&self, csr: &dyn GraphShape) -> u64 {
        (0..self.sources.len())
            .map(|search| teps::traversed_edges(csr, |v| self.masks[v as usize] >> search & 1 == 1))
            .sum()
    }
}

/// Result of an algorithm.
pub enum Outcome {
    Betweenness(BetweennessResult),
    Bfs(BfsResult),
    MultiBfs(Batch),
    Cdlp(CdlpResult),
    Components(ComponentsResult),
    PageRank(PageRankResult),
    Triangles(TrianglesResult),
    Clustering(ClusteringResult),
    Cores(CoresResult),
    Sssp(SsspResult),
}

impl Outcome {
    /// Returns the time, the traversed edges and the other figures of the result line.
    pub fn figures(&self, csr: &dyn GraphShape) -> GraphRun {
        match self {
            Self::Betweenness(r) => {
                let edges: u64 = r.sources.iter().map(|s| s.edges).sum();
                let edges = if csr.directed() { edges } else { edges / 2 };
                GraphRun::new(r.elapsed, edges, (r.sources.len(), "sources"))
            }
            Self::Bfs(r) => {
                // Each level reads the edges of the vertices of the level before. A search that was ended has not read
                // those of its last vertices.
                let edges = teps::traversed_edges(csr, |v| (r.depth[v as usize] as usize) < r.levels.len());
                // The last level finds no vertices and is not counted.
                let levels = r.levels.iter().filter(|l| l.found > 0).count();
                GraphRun { reached: Some(r.reached), ..GraphRun::new(r.elapsed, edges, (levels, "levels")) }
            }
            Self::MultiBfs(batch) => {
                let levels = batch.found.levels.iter().filter(|l| l.found > 0).count();
                GraphRun {
                    reached: Some(batch.reached.iter().sum()),
                    sources: Some(batch.sources.iter().map(|v| csr.ids().id(*v).into_owned()).collect()),
                    ..GraphRun::new(batch.found.elapsed, batch.traversed_edges(csr), (levels, "levels"))
                }
            }
            Self::Cdlp(r) => GraphRun {
                communities: Some(r.communities),
                rules: "Graphalytics rules",
                ..GraphRun::new(
                    r.elapsed,
                    // Every iteration reads every edge.
                    teps::traversed_edges(csr, |_| true) * r.iterations.len() as u64,
                    (r.iterations.len(), "iterations"),
                )
            },
            Self::Components(r) => GraphRun {
                components: Some(r.components),
                ..GraphRun::new(r.elapsed, teps::traversed_edges(csr, |_| true), (r.phases.len(), "phases"))
            },
            Self::PageRank(r) => GraphRun {
                residual: r.iterations.last().map(|i| i.change),
                ..GraphRun::new(
                    r.elapsed,
                    // Every iteration reads every edge.
                    teps::traversed_edges(csr, |_| true) * r.iterations.len() as u64,
                    (r.iterations.len(), "iterations"),
                )
            },
            Self::Triangles(r) => GraphRun {
                triangles: Some(r.total),
                ..GraphRun::new(r.elapsed, teps::traversed_edges(csr, |_| true), (r.steps.len(), "steps"))
            },
            Self::Clustering(r) => GraphRun {
                mean_coefficient: r.mean(),
                rules: "LDBC rules",
                ..GraphRun::new(r.elapsed, teps::traversed_edges(csr, |_| true), (r.steps.len(), "steps"))
            },
            Self::Cores(r) => GraphRun {
                largest_core: Some(r.largest),
                rules: "serial peeling",
                ..GraphRun::new(r.elapsed, teps::traversed_edges(csr, |_| true), (r.levels.len(), "levels"))
            },
            Self::Sssp(r) => {
                let d = distances(&r.distance);
                let edges = teps::traversed_edges(csr, |v| d.reached(v as usize));
                let reached = (0..d.len()).filter(|v| d.reached(*v)).count() as u64;
                GraphRun { reached: Some(reached), ..GraphRun::new(r.elapsed, edges, (r.buckets.len(), "ranges")) }
            }
        }
    }

    /// Returns the counters of storage and caches during the run, or `None` for edges in memory.
    pub fn io(&self) -> Option<Stats> {
        match self {
            Self::Betweenness(r) => r.io,
            Self::Bfs(r) => r.io,
            Self::MultiBfs(batch) => batch.found.io,
            Self::Cdlp(r) => r.io,
            Self::Components(r) => r.io,
            Self::PageRank(r) => r.io,
            Self::Triangles(r) => r.io,
            Self::Clustering(r) => r.io,
            Self::Cores(r) => r.io,
            Self::Sssp(r) => r.io,
        }
    }

    /// Returns the result without the parents of a search.
    pub fn without_parents(mut self) -> Self {
        match &mut self {
            Self::Bfs(r) => r.parent = None,
            Self::Sssp(r) => r.parent = None,
            _ => {}
        }
        self
    }

    /// Copies what is written and is not in the host's memory yet.
    ///
    /// # Errors
    /// [`Failure::Error`] if the engine's memory cannot be read.
    pub fn in_host(mut self) -> Result<Self, Failure> {
        if let Self::MultiBfs(batch) = &mut self {
            let found = &mut batch.found;
            batch.depths = (0..found.depth.len()).map(|search| found.depths_of(search)).collect::<Result<_, _>>()?;
            // The next searches use the memory again.
            found.depth.clear();
        }
        Ok(self)
    }

    /// Returns the results to be written: one value for each vertex, with the source if there is one.
    pub fn written<'a>(&'a self, source: Option<&VertexName<'a>>, ids: &'a Ids) -> Vec<Written<'a>> {
        let values = match self {
            Self::Betweenness(r) => Values::Scores(&r.score),
            Self::Bfs(r) => Values::Depths(&r.depth),
            Self::MultiBfs(batch) => {
                let each = batch.sources.iter().zip(&batch.depths);
                let written = |(v, depth): (&u64, &'a Vec<u32>)| Written {
                    source: Some(ids.id(*v)),
                    values: Values::Depths(depth),
                    parents: None,
                };
                return each.map(written).collect();
            }
            Self::Cdlp(r) => Values::Labels(&r.label),
            Self::Components(r) => Values::WideComponents(&r.label),
            Self::PageRank(r) => Values::Ranks64(&r.rank),
            Self::Triangles(r) => Values::Triangles(&r.triangles),
            Self::Clustering(r) => Values::Coefficients(&r.coefficient),
            Self::Cores(r) => Values::Cores(&r.core),
            Self::Sssp(r) => Values::Distances(distances(&r.distance)),
        };
        vec![Written { source: source.cloned(), values, parents: self.parents() }]
    }

    /// Returns the number of the vertex before each vertex on a path from the source, if the result has parents.
    pub fn parents(&self) -> Option<&[u64]> {
        match self {
            Self::Bfs(r) => r.parent.as_deref(),
            Self::Sssp(r) => r.parent.as_deref(),
            _ => None,
        }
    }

    /// Returns the length of a shortest path to a vertex, or `None` if the search did not reach the vertex.
    pub fn length(&self, target: u64) -> Option<Length> {
        match self {
            Self::Bfs(r) => Some(r.depth[target as usize]).filter(|d| *d != UNREACHED).map(|d| Length::Whole(d.into())),
            Self::Sssp(r) => distances(&r.distance).real(target as usize).map(|real| match &r.distance {
                Distances::Integer(d) => Length::Whole(d[target as usize]),
                Distances::Real(_) => Length::Real(real),
            }),
            _ => None,
        }
    }

    /// Returns the vertices of a shortest path to a vertex, if the search reached the vertex and has parents.
    pub fn path(&self, target: u64) -> Option<Vec<u64>> {
        match self {
            Self::Bfs(r) => r.path_to(target),
            Self::Sssp(r) => r.path_to(target),
            _ => None,
        }
    }

    /// Prints a line for each level, phase, iteration, range or source.
    ///
    /// # Errors
    /// [`Failure::BrokenPipe`] if standard output was closed, [`Failure::Error`] if it cannot be written.
    pub fn steps(&self, ids: &Ids, text: &Text) -> Result<(), Failure> {
        match self {
            Self::Betweenness(r) => r.sources.iter().try_for_each(|s| {
                let (reached, scanned) = (grouped(s.reached), grouped(s.scanned));
                text.line(format_args!(
                    "source {:<12} reached {reached:>12} in {:>5} levels   scanned {scanned:>13}   {}",
                    ids.id(s.source).to_string(),
                    s.levels,
                    seconds(s.elapsed)
                ))
            }),
            Self::Bfs(BfsResult { levels, .. })
            | Self::MultiBfs(Batch { found: MultiBfsOnEngine { levels, .. }, .. }) => levels.iter().try_for_each(|l| {
                let (found, scanned) = (grouped(l.found), grouped(l.scanned));
                let put = l.put_bytes.map_or_else(String::new, |b| format!("   exchanged {}", Bytes(b)));
                text.line(format_args!(
                    "level {:<3} {:<10} found {found:>12}   scanned {scanned:>13}   by hub {:>12}   {}{put}",
                    l.level,
                    l.direction.to_string(),
                    grouped(l.hub_hits),
                    seconds(l.elapsed),
                ))
            }),
            Self::Cdlp(r) => r.iterations.iter().try_for_each(|i| {
                let (changed, scanned) = (grouped(i.changed), grouped(i.scanned));
                text.line(format_args!(
                    "iteration {:<4} changed {changed:>12}   scanned {scanned:>13}   {}",
                    i.iteration,
                    seconds(i.elapsed)
                ))
            }),
            Self::Components(r) => r.phases.iter().try_for_each(|p| {
                let (scanned, left) = (grouped(p.scanned), grouped(p.trees));
                text.line(format_args!(
                    "{:<12} scanned {scanned:>13}   left {left:>12}   {}",
                    p.name,
                    seconds(p.elapsed)
                ))
            }),
            Self::PageRank(r) => r.iterations.iter().try_for_each(|i| {
                let scanned = grouped(i.scanned);
                text.line(format_args!(
                    "iteration {:<4} change {:<10.3e} scanned {scanned:>13}   {}",
                    i.iteration,
                    i.change,
                    seconds(i.elapsed)
                ))
            }),
            Self::Triangles(TrianglesResult { steps, .. }) | Self::Clustering(ClusteringResult { steps, .. }) => {
                steps.iter().try_for_each(|s| {
                    let (vertices, scanned, found) = (grouped(s.vertices), grouped(s.scanned), grouped(s.found));
                    text.line(format_args!(
                        "{:<6} vertices {vertices:>12}   scanned {scanned:>13}   found {found:>13}   {}",
                        s.name,
                        seconds(s.elapsed)
                    ))
                })
            }
            Self::Cores(r) => r.levels.iter().try_for_each(|l| {
                let (vertices, scanned) = (grouped(l.vertices), grouped(l.scanned));
                text.line(format_args!(
                    "core {:<6} vertices {vertices:>12}   rounds {:<5} scanned {scanned:>13}   {}",
                    l.core,
                    l.rounds,
                    seconds(l.elapsed)
                ))
            }),
            Self::Sssp(r) => r.buckets.iter().try_for_each(|b| {
                let (items, scanned, lowered) = (grouped(b.items), grouped(b.scanned), grouped(b.lowered));
                text.line(format_args!(
                    "below {:<10} rounds {:<5} items {items:>12}   scanned {scanned:>13}   lowered {lowered:>12}   {}",
                    real(b.threshold),
                    b.rounds,
                    seconds(b.elapsed)
                ))
            }),
        }
    }
}

/// Length of a path.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(untagged)]
pub enum Length {
    Whole(u64),
    Real(f64),
}

impl fmt::Display for Length {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(length) => f.write_str(&grouped(*length)),
            Self::Real(length) => f.write_str(&real(*length)),
        }
    }
}

/// Returns distances in the form in which the verifiers and the writers take them.
pub fn distances(of: &Distances) -> verify::Distances<'_> {
    match of {
        Distances::Integer(d) => verify::Distances::U64(d),
        Distances::Real(d) => verify::Distances::F64(d),
    }
}
