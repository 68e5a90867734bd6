//! Vertices that options name, or that are drawn.

use super::{Algorithm, Job};
use crate::args::SourceList;
use crate::output::{self, Failure};
use warpbell::graph::{GraphShape, teps};
use warpbell::units::grouped;

/// Vertices of a command, as numbers from 0.
pub struct Vertices {
    /// Sources. Algorithms without a source have one `None`.
    pub sources: Vec<Option<u64>>,
    /// Vertex that ends each search.
    pub target: Option<u64>,
    /// Vertices of a personalised PageRank.
    personalize: Vec<u64>,
}

impl Vertices {
    /// Returns the vertices of a personalised PageRank, each with the same weight.
    pub fn personalization(&self) -> Vec<(u64, f64)> {
        self.personalize.iter().map(|v| (*v, 1.0)).collect()
    }
}

impl Job {
    /// Finds the vertices that options name, and draws sources if none is named.
    ///
    /// # Errors
    /// [`Failure::Error`] if the graph lacks a vertex that is named, or has no edges to draw a source from.
    pub fn vertices(&self, csr: &dyn GraphShape) -> Result<Vertices, Failure> {
        let target = self.paths.end().map(|(option, id)| self.vertex(csr, option, id)).transpose()?;
        let lists = match &self.algorithm {
            Algorithm::PageRank(_, personalize) => &personalize[..],
            _ => &[],
        };
        let personalize = lists.iter().flat_map(SourceList::iter);
        let personalize = personalize.map(|id| self.vertex(csr, "--personalize", id)).collect::<Result<_, _>>()?;
        Ok(Vertices { sources: self.sources(csr)?, target, personalize })
    }

    fn sources(&self, csr: &dyn GraphShape) -> Result<Vec<Option<u64>>, Failure> {
        // GAP's benchmark of betweenness centrality takes four sources.
        let usual = match self.algorithm {
            Algorithm::Betweenness { all: true } => return Ok((0..csr.vertices()).map(Some).collect()),
            Algorithm::Betweenness { all: false } => 4,
            Algorithm::Bfs { .. } | Algorithm::Sssp(..) => 1,
            _ => return Ok(vec![None]),
        };
        if self.sources.source.is_empty() {
            let count = self.sources.sources.unwrap_or(usual) as usize;
            let picked = teps::pick_sources(csr, count, self.graph.seed);
            if picked.is_empty() {
                let (input, vertices) = (self.graph.input.display(), grouped(csr.vertices()));
                return Err(Failure::Error(format!(
                    "{input}: its {vertices} vertices have no edges, so no source can be chosen; name one with --source"
                )));
            }
            return Ok(picked.into_iter().map(Some).collect());
        }
        self.sources.named().map(|id| self.vertex(csr, "--source", id).map(Some)).collect()
    }

    /// Returns the vertex that an option names.
    fn vertex(&self, csr: &dyn GraphShape, option: &str, id: &str) -> Result<u64, Failure> {
        csr.ids().vertex(id).ok_or_else(|| {
            let range = match csr.ids().bounds() {
                Some((low, high)) if csr.ids().names().is_some() => format!("its names go from {low} to {high}"),
                Some((low, high)) => format!("its identifiers are whole numbers from {low} to {high}"),
                None => "it has no vertices".to_owned(),
            };
            Failure::Error(format!("{option} {id}: {} has no such vertex; {range}", self.graph.input.display()))
        })
    }

    /// Warns about each vertex of `--source` without outgoing edges.
    pub fn warn(&self, csr: &dyn GraphShape, named: &Vertices) {
        let sources = if self.sources.source.is_empty() { &[] } else { &named.sources[..] };
        for source in sources.iter().flatten().filter(|v| csr.degree(**v) == 0) {
            let why = if csr.directed() { "no edge leaves the vertex" } else { "the vertex has no edges" };
            let id = csr.ids().id(*source);
            output::warn(format_args!("--source {id}: {why}, so the search reaches no other vertex"));
        }
    }
}
