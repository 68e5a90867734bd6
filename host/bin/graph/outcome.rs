//! Results of algorithms: figures for the result line, values for files, and lines for each step.

use crate::output::{Failure, Text};
use crate::workloads::graph::{GraphRun, seconds};
use warpbell::graph::output::Values;
use warpbell::graph::verify;
use warpbell::graph::{
    BetweennessResult, BfsResult, CdlpResult, ClusteringResult, ComponentsResult, CoresResult, Distances, GraphShape,
    Ids, PageRankResult, SsspResult, TrianglesResult, UNREACHED, teps,
};
use warpbell::units::{Bytes, grouped, real};

/// Result of an algorithm.
pub enum Outcome {
    Betweenness(BetweennessResult),
    Bfs(BfsResult),
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
                let edges = teps::traversed_edges(csr, |v| r.depth[v as usize] != UNREACHED);
                // The last level finds no vertices and is not counted.
                let levels = r.levels.iter().filter(|l| l.found > 0).count();
                GraphRun { reached: Some(r.reached), ..GraphRun::new(r.elapsed, edges, (levels, "levels")) }
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

    /// Returns the result without what is not written: the parents of a search.
    pub fn without_parents(mut self) -> Self {
        if let Self::Bfs(r) = &mut self {
            r.parent = None;
        }
        self
    }

    /// Returns the result: one value for each vertex.
    pub fn values(&self) -> Values<'_> {
        match self {
            Self::Betweenness(r) => Values::Scores(&r.score),
            Self::Bfs(r) => Values::Depths(&r.depth),
            Self::Cdlp(r) => Values::Labels(&r.label),
            Self::Components(r) => Values::WideComponents(&r.label),
            Self::PageRank(r) => Values::Ranks64(&r.rank),
            Self::Triangles(r) => Values::Triangles(&r.triangles),
            Self::Clustering(r) => Values::Coefficients(&r.coefficient),
            Self::Cores(r) => Values::Cores(&r.core),
            Self::Sssp(r) => Values::Distances(distances(&r.distance)),
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
            Self::Bfs(r) => r.levels.iter().try_for_each(|l| {
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

/// Returns distances in the form in which the verifiers and the writers take them.
pub fn distances(of: &Distances) -> verify::Distances<'_> {
    match of {
        Distances::Integer(d) => verify::Distances::U64(d),
        Distances::Real(d) => verify::Distances::F64(d),
    }
}
