//! Algorithms with their memory.

use super::outcome::Batch;
use super::{Algorithm, Job, Outcome, Vertices};
use crate::output::Failure;
use warpbell::graph::{
    Betweenness, Bfs, BfsOptions, Cdlp, Clustering, Components, Cores, GraphError, GraphOnEngine, MultiBfs,
    MultiBfsOptions, PageRank, PlacementOptions, Sssp, Triangles,
};

/// An algorithm with its memory, for any number of runs.
pub enum Runner {
    Betweenness(Betweenness, Vec<u64>),
    Bfs(Bfs),
    MultiBfs(MultiBfs),
    Cdlp(Cdlp),
    Components(Components),
    PageRank(PageRank),
    Triangles(Triangles),
    Clustering(Clustering),
    Cores(Cores),
    Sssp(Box<Sssp>),
}

impl Runner {
    /// Runs once from the sources of the run, of which algorithms without a source have one `None`.
    ///
    /// # Errors
    /// Those of the algorithm.
    pub fn run(&mut self, sources: &[Option<u64>]) -> Result<Outcome, GraphError> {
        let start = sources[0].unwrap_or_default();
        match self {
            Self::Betweenness(bc, sources) => bc.run(sources).map(Outcome::Betweenness),
            Self::Bfs(bfs) => bfs.run(start).map(Outcome::Bfs),
            Self::MultiBfs(searches) => {
                let sources: Vec<u64> = sources.iter().flatten().copied().collect();
                let found = searches.run_on_device(&sources)?;
                Ok(Outcome::MultiBfs(Batch::new(sources, found)?))
            }
            Self::Cdlp(cdlp) => cdlp.run().map(Outcome::Cdlp),
            Self::Components(components) => components.run().map(Outcome::Components),
            Self::PageRank(pagerank) => pagerank.run().map(Outcome::PageRank),
            Self::Triangles(triangles) => triangles.run().map(Outcome::Triangles),
            Self::Clustering(clustering) => clustering.run().map(Outcome::Clustering),
            Self::Cores(cores) => cores.run().map(Outcome::Cores),
            Self::Sssp(sssp) => sssp.run(start).map(Outcome::Sssp),
        }
    }
}

impl Job {
    /// Returns the parts of a graph that the algorithm reads.
    pub fn needs(&self) -> PlacementOptions {
        match &self.algorithm {
            Algorithm::Betweenness { .. } => PlacementOptions::BETWEENNESS,
            Algorithm::Bfs { .. } => PlacementOptions::BFS,
            Algorithm::Cdlp(_) => PlacementOptions::CDLP,
            Algorithm::Components(options) if options.strong => PlacementOptions::STRONG_COMPONENTS,
            Algorithm::Components(_) => PlacementOptions::COMPONENTS,
            Algorithm::PageRank(..) => PlacementOptions::PAGERANK,
            Algorithm::Triangles => PlacementOptions::TRIANGLES,
            Algorithm::Clustering => PlacementOptions::CLUSTERING,
            Algorithm::Cores => PlacementOptions::CORES,
            Algorithm::Sssp(..) => PlacementOptions::SSSP,
        }
    }

    /// Returns the options of breadth-first searches.
    pub fn bfs_options(&self, named: &Vertices) -> BfsOptions {
        let max_depth = match self.algorithm {
            Algorithm::Bfs { max_depth, .. } => max_depth,
            _ => None,
        };
        BfsOptions::default().target(named.target).max_depth(max_depth)
    }

    /// Returns an algorithm with its memory. `reads_depths` is true if depths of several searches are checked or written.
    pub fn runner(&self, graph: &GraphOnEngine, named: &Vertices, reads_depths: bool) -> Result<Runner, Failure> {
        Ok(match &self.algorithm {
            Algorithm::Betweenness { .. } => {
                Runner::Betweenness(Betweenness::new(graph)?, named.sources.iter().flatten().copied().collect())
            }
            Algorithm::Bfs { max_depth, together: true } => {
                let options = MultiBfsOptions::default().depths(reads_depths).max_depth(*max_depth);
                Runner::MultiBfs(MultiBfs::new(graph, &options)?)
            }
            Algorithm::Bfs { .. } => Runner::Bfs(Bfs::new(graph, &self.bfs_options(named))?),
            Algorithm::Cdlp(options) => Runner::Cdlp(Cdlp::new(graph, options)?),
            Algorithm::Components(options) => Runner::Components(Components::new(graph, options)?),
            Algorithm::PageRank(options, _) => {
                let options = options.clone().personalization(named.personalization());
                Runner::PageRank(PageRank::new(graph, &options)?)
            }
            Algorithm::Triangles => Runner::Triangles(Triangles::new(graph)?),
            Algorithm::Clustering => Runner::Clustering(Clustering::new(graph)?),
            Algorithm::Cores => Runner::Cores(Cores::new(graph)?),
            Algorithm::Sssp(options, _) => {
                Runner::Sssp(Box::new(Sssp::new(graph, &options.clone().target(named.target))?))
            }
        })
    }
}
