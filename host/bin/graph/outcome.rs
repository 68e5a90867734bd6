//! Results of algorithms: figures for the result line, values for files, and lines for each step.

use crate::output::{Failure, Text};
use crate::workloads::graph::{GraphRun, seconds};
use serde::Serialize;
use std::fmt;
use warpbell::graph::output::Values;
use warpbell::graph::verify;
use warpbell::graph::{
    BfsResult, ComponentsResult, Distances, GraphShape, PageRankResult, SsspResult, UNREACHED, teps,
};
use warpbell::units::{Bytes, grouped, real};

/// Result of an algorithm.
pub enum Outcome {
    Bfs(BfsResult),
    Components(ComponentsResult),
    PageRank(PageRankResult),
    Sssp(SsspResult),
}

impl Outcome {
    /// Returns the time, the traversed edges and the other figures of the result line.
    pub fn figures(&self, csr: &dyn GraphShape) -> GraphRun {
        match self {
            Self::Bfs(r) => {
                // Each level reads the edges of the vertices of the level before. A search that was ended has not read
                // those of its last vertices.
                let edges = teps::traversed_edges(csr, |v| (r.depth[v as usize] as usize) < r.levels.len());
                // The last level finds no vertices and is not counted.
                let levels = r.levels.iter().filter(|l| l.found > 0).count();
                GraphRun { reached: Some(r.reached), ..GraphRun::new(r.elapsed, edges, (levels, "levels")) }
            }
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
            Self::Sssp(r) => {
                let d = distances(&r.distance);
                let edges = teps::traversed_edges(csr, |v| d.reached(v as usize));
                let reached = (0..d.len()).filter(|v| d.reached(*v)).count() as u64;
                GraphRun { reached: Some(reached), ..GraphRun::new(r.elapsed, edges, (r.buckets.len(), "ranges")) }
            }
        }
    }

    /// Returns the result without the parents of a search.
    pub fn without_parents(mut self) -> Self {
        match &mut self {
            Self::Bfs(r) => r.parent = None,
            Self::Sssp(r) => r.parent = None,
            Self::Components(_) | Self::PageRank(_) => {}
        }
        self
    }

    /// Returns the result: one value for each vertex.
    pub fn values(&self) -> Values<'_> {
        match self {
            Self::Bfs(r) => Values::Depths(&r.depth),
            Self::Components(r) => Values::WideComponents(&r.label),
            Self::PageRank(r) => Values::Ranks64(&r.rank),
            Self::Sssp(r) => Values::Distances(distances(&r.distance)),
        }
    }

    /// Returns the number of the vertex before each vertex on a path from the source, if the result has parents.
    pub fn parents(&self) -> Option<&[u64]> {
        match self {
            Self::Bfs(r) => r.parent.as_deref(),
            Self::Sssp(r) => r.parent.as_deref(),
            Self::Components(_) | Self::PageRank(_) => None,
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
            Self::Components(_) | Self::PageRank(_) => None,
        }
    }

    /// Returns the vertices of a shortest path to a vertex, if the search reached the vertex and has parents.
    pub fn path(&self, target: u64) -> Option<Vec<u64>> {
        match self {
            Self::Bfs(r) => r.path_to(target),
            Self::Sssp(r) => r.path_to(target),
            Self::Components(_) | Self::PageRank(_) => None,
        }
    }

    /// Prints a line for each level, phase, iteration or range.
    ///
    /// # Errors
    /// [`Failure::BrokenPipe`] if standard output was closed, [`Failure::Error`] if it cannot be written.
    pub fn steps(&self, text: &Text) -> Result<(), Failure> {
        match self {
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
            Self::Components(r) => r.phases.iter().try_for_each(|p| {
                let (scanned, trees) = (grouped(p.scanned), grouped(p.trees));
                text.line(format_args!(
                    "{:<12} scanned {scanned:>13}   trees {trees:>12}   {}",
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
