//! A graph with its identifiers, as programs hold it: one handle for all algorithms.

use super::betweenness::{Betweenness, BetweennessOnEngine, BetweennessResult};
use super::bfs::{Bfs, BfsOnEngine, BfsResult};
use super::cdlp::{Cdlp, CdlpOnEngine, CdlpOptions, CdlpResult};
use super::clustering::{Clustering, ClusteringOnEngine, ClusteringResult};
use super::components::{Components, ComponentsOnEngine, ComponentsOptions, ComponentsResult};
use super::cores::{Cores, CoresOnEngine, CoresResult};
use super::csr::Csr;
use super::edges::{GraphError, GraphOnEngine, Placement, PlacementOptions};
use super::hub;
use super::ids::Ids;
use super::import::{LoadOptions, Progress, Stage};
use super::input::Input;
use super::levels::BfsOptions;
use super::multi_bfs::{MultiBfs, MultiBfsOnEngine, MultiBfsOptions, MultiBfsResult};
use super::pagerank::{PageRank, PageRankOnEngine, PageRankOptions, PageRankResult};
use super::shape::GraphShape;
use super::sssp::{Sssp, SsspOnEngine, SsspOptions, SsspResult};
use super::stored::{GraphName, GraphToStore, StoredGraph};
use super::triangles::{Triangles, TrianglesOnEngine, TrianglesResult};
use crate::engine::Engine;
use crate::storage::Cache;
use std::sync::Arc;

/// A graph that kernels can read, and the identifiers of its vertices. Clones share both; the graph and the memory below
/// it are freed with the last of them.
///
/// Vertices are numbers from 0 here. [`Graph::ids`] converts them from and to the identifiers of the input.
///
/// Each call of an algorithm allocates its memory and frees it. For many searches, keep a [`Bfs`] or another algorithm,
/// made for [`Graph::on_engine`]. Methods that end in `_on_device` leave the values where the next kernel reads them.
///
/// # Examples
///
/// ```
/// use warpbell::engine::Engine;
/// use warpbell::graph::{Csr, CsrOptions, Graph, Placement};
///
/// let csr = Csr::from_edges(4, &[(0, 1), (1, 2), (2, 3)], CsrOptions::default())?;
/// let graph = Graph::from_csr(&Engine::cpu()?, csr, Placement::Gpu)?;
/// assert_eq!(graph.bfs(0)?.depth, [0, 1, 2, 3]);
/// assert_eq!(graph.components()?.components, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A graph is imported once, and opened by later programs without reading its edges:
///
/// ```
/// use warpbell::engine::Engine;
/// use warpbell::graph::{Graph, Input, LoadOptions};
/// use warpbell::storage::{Cache, Drive, OverwritePolicy, Volume};
///
/// let drive = Drive::create("soft:mem:4M", 4 << 20, &OverwritePolicy::none())?;
/// let volume = Volume::on(&Engine::cpu()?, [drive]).build()?;
/// let cache = Cache::on(&volume).bytes(1 << 20).build()?;
/// let input: Input = "kron:8".parse()?;
/// let graph = Graph::import(&cache, &"links".parse()?, &input, &LoadOptions::default())?;
/// drop(graph);
///
/// let graph = Graph::open(&cache, &"links".parse()?)?;
/// assert_eq!(graph.vertices(), 256);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Graph {
    on_engine: GraphOnEngine,
    ids: Arc<Ids>,
}

impl Graph {
    /// Loads an input, stores it under `name` on the volume below `cache`, beside everything that the volume holds, and
    /// opens it. The input may be larger than memory ([`GraphToStore::import`]). Self-loops are kept: PageRank uses them.
    /// [`LoadOptions::progress`] also reports [`Stage::Store`].
    ///
    /// # Errors
    /// * [`GraphError::Import`] if the input cannot be read, or temporary files cannot be written.
    /// * [`GraphError::Stored`] if the volume holds a graph of this name.
    /// * [`GraphError::Storage`] if the volume is too small or a device fails; otherwise as for [`Graph::open`].
    pub fn import(
        cache: &Cache,
        name: &GraphName,
        input: &Input,
        options: &LoadOptions<'_>,
    ) -> Result<Self, GraphError> {
        let graph = GraphToStore::import(name.clone(), input, &options.keep_self_loops(true))?;
        Self::store(cache, graph, false, options)
    }

    /// Stores a graph that was read on the volume below `cache`, beside everything that the volume holds, and opens it.
    /// With `replace` it takes the place of a stored graph of its name. [`LoadOptions::progress`] reports
    /// [`Stage::Store`]; other options have no effect.
    ///
    /// Writes changed pages of the cache first, and empties the cache afterwards: it may hold pages of a graph that was
    /// removed.
    ///
    /// # Errors
    /// As for [`GraphToStore::store`], [`Cache::flush`] and [`Graph::open`].
    pub fn store(
        cache: &Cache,
        graph: GraphToStore,
        replace: bool,
        options: &LoadOptions<'_>,
    ) -> Result<Self, GraphError> {
        let (name, total) = (graph.name().clone(), graph.plan().bytes());
        let mut stored = |done| {
            if let Some(progress) = options.progress {
                progress(Progress { stage: Stage::Store, done, total });
            }
        };
        cache.flush()?;
        graph.store(cache.volume(), replace, &mut stored)?;
        drop(graph);
        cache.reset()?;
        Self::open(cache, &name)
    }

    /// Opens a stored graph for all algorithms that it has the edges for. Reads what is of size O(vertices); kernels
    /// read the edges through the cache.
    ///
    /// # Errors
    /// As for [`StoredGraph::open`] and [`StoredGraph::place`].
    pub fn open(cache: &Cache, name: &GraphName) -> Result<Self, GraphError> {
        let stored = StoredGraph::open(cache.volume(), name)?;
        let needs = PlacementOptions::all_of(stored.info().weights.is_some());
        Ok(Self { on_engine: stored.place(cache, needs)?, ids: Arc::new(stored.ids().clone()) })
    }

    /// Places a graph of the host's memory, for all algorithms that it has the edges for. Its lists are sorted by degree
    /// first, which saves reads in searches.
    ///
    /// # Errors
    /// As for [`GraphOnEngine::place`].
    pub fn from_csr(engine: &Engine, mut csr: Csr, placement: Placement) -> Result<Self, GraphError> {
        hub::order_by_degree(&mut csr);
        let needs = PlacementOptions::all_of(csr.weights().is_some());
        let on_engine = GraphOnEngine::place(engine, &csr, placement, needs)?;
        Ok(Self { on_engine, ids: Arc::new(csr.ids().clone()) })
    }

    /// Returns the graph as algorithms take it.
    pub fn on_engine(&self) -> &GraphOnEngine {
        &self.on_engine
    }

    /// Returns the identifiers of the input.
    pub fn ids(&self) -> &Ids {
        &self.ids
    }

    /// Returns the number of vertices.
    pub fn vertices(&self) -> u64 {
        self.on_engine.vertices()
    }

    /// Returns the number of stored neighbours: see [`Csr::arcs`].
    pub fn arcs(&self) -> u64 {
        self.on_engine.arcs()
    }

    /// Searches breadth first from vertex `source`, with the default options.
    ///
    /// # Errors
    /// As for [`Bfs::new`] and [`Bfs::run`].
    pub fn bfs(&self, source: u64) -> Result<BfsResult, GraphError> {
        self.bfs_with(source, &BfsOptions::default())
    }

    /// Searches breadth first from vertex `source`.
    ///
    /// # Errors
    /// As for [`Bfs::new`] and [`Bfs::run`].
    pub fn bfs_with(&self, source: u64, options: &BfsOptions) -> Result<BfsResult, GraphError> {
        Bfs::new(&self.on_engine, options)?.run(source)
    }

    /// Searches breadth first from vertex `source`, and leaves depths and parents in the engine's memory.
    ///
    /// # Errors
    /// As for [`Bfs::new`] and [`Bfs::run_on_device`].
    pub fn bfs_on_device(&self, source: u64, options: &BfsOptions) -> Result<BfsOnEngine, GraphError> {
        Bfs::new(&self.on_engine, options)?.run_on_device(source)
    }

    /// Searches breadth first from up to 64 vertices at once. The searches share their scans of the edges.
    ///
    /// # Errors
    /// As for [`MultiBfs::new`] and [`MultiBfs::run`].
    pub fn multi_bfs(&self, sources: &[u64], options: &MultiBfsOptions) -> Result<MultiBfsResult, GraphError> {
        MultiBfs::new(&self.on_engine, options)?.run(sources)
    }

    /// Searches breadth first from up to 64 vertices at once, and leaves depths and masks in the engine's memory.
    ///
    /// # Errors
    /// As for [`MultiBfs::new`] and [`MultiBfs::run_on_device`].
    pub fn multi_bfs_on_device(
        &self,
        sources: &[u64],
        options: &MultiBfsOptions,
    ) -> Result<MultiBfsOnEngine, GraphError> {
        MultiBfs::new(&self.on_engine, options)?.run_on_device(sources)
    }

    /// Labels every vertex with the smallest vertex of its component.
    ///
    /// # Errors
    /// As for [`Components::new`] and [`Components::run`].
    pub fn components(&self) -> Result<ComponentsResult, GraphError> {
        Components::new(&self.on_engine, &ComponentsOptions::default())?.run()
    }

    /// Labels every vertex with the smallest vertex of its component, and leaves the labels in the engine's memory.
    ///
    /// # Errors
    /// As for [`Components::new`] and [`Components::run_on_device`].
    pub fn components_on_device(&self) -> Result<ComponentsOnEngine, GraphError> {
        Components::new(&self.on_engine, &ComponentsOptions::default())?.run_on_device()
    }

    /// Labels every vertex with the smallest vertex of its component, weak or strong.
    ///
    /// # Errors
    /// As for [`Components::new`] and [`Components::run`].
    pub fn components_with(&self, options: &ComponentsOptions) -> Result<ComponentsResult, GraphError> {
        Components::new(&self.on_engine, options)?.run()
    }

    /// Sums the dependencies of `sources` on every vertex: see [`betweenness`](super::betweenness()).
    ///
    /// # Errors
    /// As for [`Betweenness::new`] and [`Betweenness::run`].
    pub fn betweenness(&self, sources: &[u64]) -> Result<BetweennessResult, GraphError> {
        Betweenness::new(&self.on_engine)?.run(sources)
    }

    /// Sums the dependencies of `sources` on every vertex, and leaves the scores in the engine's memory.
    ///
    /// # Errors
    /// As for [`Betweenness::new`] and [`Betweenness::run_on_device`].
    pub fn betweenness_on_device(&self, sources: &[u64]) -> Result<BetweennessOnEngine, GraphError> {
        Betweenness::new(&self.on_engine)?.run_on_device(sources)
    }

    /// Ranks every vertex, with the default options.
    ///
    /// # Errors
    /// As for [`PageRank::new`] and [`PageRank::run`].
    pub fn pagerank(&self) -> Result<PageRankResult, GraphError> {
        self.pagerank_with(&PageRankOptions::default())
    }

    /// Ranks every vertex.
    ///
    /// # Errors
    /// As for [`PageRank::new`] and [`PageRank::run`].
    pub fn pagerank_with(&self, options: &PageRankOptions) -> Result<PageRankResult, GraphError> {
        PageRank::new(&self.on_engine, options)?.run()
    }

    /// Ranks every vertex, and leaves the ranks in the engine's memory.
    ///
    /// # Errors
    /// As for [`PageRank::new`] and [`PageRank::run_on_device`].
    pub fn pagerank_on_device(&self, options: &PageRankOptions) -> Result<PageRankOnEngine, GraphError> {
        PageRank::new(&self.on_engine, options)?.run_on_device()
    }

    /// Detects communities by label propagation, with the default options.
    ///
    /// # Errors
    /// As for [`Cdlp::new`] and [`Cdlp::run`].
    pub fn cdlp(&self) -> Result<CdlpResult, GraphError> {
        self.cdlp_with(&CdlpOptions::default())
    }

    /// Detects communities by label propagation.
    ///
    /// # Errors
    /// As for [`Cdlp::new`] and [`Cdlp::run`].
    pub fn cdlp_with(&self, options: &CdlpOptions) -> Result<CdlpResult, GraphError> {
        Cdlp::new(&self.on_engine, options)?.run()
    }

    /// Detects communities by label propagation, and leaves the labels in the engine's memory.
    ///
    /// # Errors
    /// As for [`Cdlp::new`] and [`Cdlp::run_on_device`].
    pub fn cdlp_on_device(&self, options: &CdlpOptions) -> Result<CdlpOnEngine, GraphError> {
        Cdlp::new(&self.on_engine, options)?.run_on_device()
    }

    /// Finds the shortest paths from vertex `source`, with the default options.
    ///
    /// # Errors
    /// As for [`Sssp::new`] and [`Sssp::run`].
    pub fn sssp(&self, source: u64) -> Result<SsspResult, GraphError> {
        self.sssp_with(source, &SsspOptions::default())
    }

    /// Finds the shortest paths from vertex `source`.
    ///
    /// # Errors
    /// As for [`Sssp::new`] and [`Sssp::run`].
    pub fn sssp_with(&self, source: u64, options: &SsspOptions) -> Result<SsspResult, GraphError> {
        Sssp::new(&self.on_engine, options)?.run(source)
    }

    /// Finds the shortest paths from vertex `source`, and leaves the distances in the engine's memory.
    ///
    /// # Errors
    /// As for [`Sssp::new`] and [`Sssp::run_on_device`].
    pub fn sssp_on_device(&self, source: u64, options: &SsspOptions) -> Result<SsspOnEngine, GraphError> {
        Sssp::new(&self.on_engine, options)?.run_on_device(source)
    }

    /// Counts the triangles of each vertex, and all triangles. The graph has to be undirected.
    ///
    /// # Errors
    /// As for [`Triangles::new`] and [`Triangles::run`].
    pub fn triangles(&self) -> Result<TrianglesResult, GraphError> {
        Triangles::new(&self.on_engine)?.run()
    }

    /// Counts the triangles of each vertex, and leaves the counts in the engine's memory.
    ///
    /// # Errors
    /// As for [`Triangles::new`] and [`Triangles::run_on_device`].
    pub fn triangles_on_device(&self) -> Result<TrianglesOnEngine, GraphError> {
        Triangles::new(&self.on_engine)?.run_on_device()
    }

    /// Computes the local clustering coefficient of each vertex: see [`clustering`](super::clustering()).
    ///
    /// # Errors
    /// As for [`Clustering::new`] and [`Clustering::run`].
    pub fn clustering(&self) -> Result<ClusteringResult, GraphError> {
        Clustering::new(&self.on_engine)?.run()
    }

    /// Computes the local clustering coefficients, and leaves them in the engine's memory.
    ///
    /// # Errors
    /// As for [`Clustering::new`] and [`Clustering::run_on_device`].
    pub fn clustering_on_device(&self) -> Result<ClusteringOnEngine, GraphError> {
        Clustering::new(&self.on_engine)?.run_on_device()
    }

    /// Computes the core number of each vertex: see [`cores`](super::cores()).
    ///
    /// # Errors
    /// As for [`Cores::new`] and [`Cores::run`].
    pub fn cores(&self) -> Result<CoresResult, GraphError> {
        Cores::new(&self.on_engine)?.run()
    }

    /// Computes the core numbers, and leaves them in the engine's memory.
    ///
    /// # Errors
    /// As for [`Cores::new`] and [`Cores::run_on_device`].
    pub fn cores_on_device(&self) -> Result<CoresOnEngine, GraphError> {
        Cores::new(&self.on_engine)?.run_on_device()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::import::{self, WeightMode};
    use crate::graph::{Distances, stored::StoredError, verify};
    use crate::storage::{Drive, Volume};
    use parking_lot::Mutex;
    use std::io::Write;

    fn cache(bytes: &str) -> Cache {
        let drive = Drive::open(&format!("soft:mem:{bytes}")).unwrap();
        let volume = Volume::on(&crate::engine::testing::cpu(), [drive]).build().unwrap();
        Cache::on(&volume).bytes(1 << 20).build().unwrap()
    }

    #[test]
    fn an_imported_graph_gives_the_results_of_one_in_memory() {
        let mut file = tempfile::Builder::new().suffix(".wel").tempfile().unwrap();
        for i in 0..600u64 {
            writeln!(file, "{} {} {}", 3 * (i % 90), 3 * (i * 7 % 83), 1 + i % 9).unwrap();
        }
        let cache = cache("8M");
        let seen = Mutex::new(Vec::new());
        let progress = |p: Progress| seen.lock().push(p);
        let options = LoadOptions::default().weights(WeightMode::Input).progress(Some(&progress));
        let name: GraphName = "a".parse().unwrap();
        let input = Input::File(file.path().to_owned());
        let stored = Graph::import(&cache, &name, &input, &options).unwrap();
        let last = seen.lock().iter().rfind(|p| p.stage == Stage::Store).copied().unwrap();
        assert!(last.done > 0 && last.done <= last.total, "{last:?}");

        let loaded = import::load(file.path(), &options.keep_self_loops(true)).unwrap();
        let memory = Graph::from_csr(cache.volume().engine(), loaded.csr.clone(), Placement::Gpu).unwrap();
        assert_eq!((stored.vertices(), stored.arcs(), stored.ids()), (memory.vertices(), memory.arcs(), memory.ids()));
        let source = stored.ids().vertex(3).unwrap();
        for graph in [&stored, &memory] {
            let bfs = graph.bfs(source).unwrap();
            verify::bfs_parents(&loaded.csr, source, &bfs.depth, &bfs.parent.unwrap()).unwrap();
            verify::components(&loaded.csr, &graph.components().unwrap().label).unwrap();
            assert!(graph.pagerank().unwrap().converged);
        }
        let distances = |graph: &Graph| match graph.sssp(source).unwrap().distance {
            Distances::Integer(d) => d,
            Distances::Real(_) => panic!("the weights are integers"),
        };
        assert_eq!(distances(&stored), distances(&memory));
        let again = Graph::import(&cache, &name, &input, &options).unwrap_err();
        assert!(matches!(again, GraphError::Stored(StoredError::Exists { .. })), "{again}");
    }

    #[test]
    fn a_graph_in_the_place_of_a_removed_one_is_not_read_from_old_pages() {
        let cache = cache("8M");
        let import = |name: &str, input: &str| {
            let options = LoadOptions::default();
            Graph::import(&cache, &name.parse().unwrap(), &input.parse().unwrap(), &options).unwrap()
        };
        drop(import("first", "kron:9").components().unwrap());
        let name: GraphName = "first".parse().unwrap();
        crate::graph::stored::remove_stored_graph(cache.volume(), &name).unwrap();
        let second = import("second", "urand:9");
        let csr = crate::graph::stored::StoredGraph::open(cache.volume(), &"second".parse().unwrap()).unwrap();
        let csr = csr.read(cache.volume()).unwrap();
        let bfs = second.bfs(0).unwrap();
        verify::bfs_parents(&csr, 0, &bfs.depth, &bfs.parent.unwrap()).unwrap();

        // A replaced graph, too, whose name stays.
        let third =
            GraphToStore::import("second".parse().unwrap(), &"kron:9".parse().unwrap(), &LoadOptions::default());
        let third = Graph::store(&cache, third.unwrap(), true, &LoadOptions::default()).unwrap();
        let csr = crate::graph::stored::StoredGraph::open(cache.volume(), &"second".parse().unwrap()).unwrap();
        verify::components(&csr.read(cache.volume()).unwrap(), &third.components().unwrap().label).unwrap();
    }

    #[test]
    fn a_graph_lives_as_long_as_its_algorithms() {
        let cache = cache("8M");
        let name: GraphName = "k".parse().unwrap();
        let graph = Graph::import(&cache, &name, &"kron:7".parse().unwrap(), &LoadOptions::default()).unwrap();
        let mut search = Bfs::new(graph.on_engine(), &BfsOptions::default()).unwrap();
        let clone = graph.clone();
        let on_engine = graph.on_engine().clone();
        drop((graph, cache));
        let source = (0..clone.vertices()).find(|&v| clone.bfs(v).unwrap().reached > 1).unwrap();
        drop(clone);
        assert!(search.run(source).unwrap().reached > 1);
        let unweighted = Sssp::new(&on_engine, &SsspOptions::default()).map(|_| ()).unwrap_err();
        assert!(matches!(unweighted, GraphError::NotPlaced { .. }), "{unweighted}");
    }
}
