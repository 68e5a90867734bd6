//! Places the edges of a graph where `--edges` says.

use super::subject::Described;
use super::{Algorithm, Job};
use crate::args::{Edges, GraphArgs, SourceList};
use crate::interrupt::Interrupt;
use crate::output::{Failure, Text};
use crate::workloads::report::nanoseconds;
use crate::{device, engine};
use serde_json::json;
use std::time::{Duration, Instant};
use warpbell::engine::Engine;
use warpbell::graph::stored::{GraphName, OpeningMemory, StoredGraph};
use warpbell::graph::{Csr, GraphError, GraphOnEngine, Loaded, Placement};
use warpbell::storage::{Cache, Volume};
use warpbell::units::{Bytes, BytesOrShare};

/// A graph placed where kernels reach it, with the volume below it.
pub(super) struct Store {
    pub(super) graph: GraphOnEngine,
    pub(super) storage: Option<Storage>,
    /// The whole graph, if the results of a stored one are to be checked.
    pub(super) csr: Option<Csr>,
}

/// Volume and cache of a graph whose edges are on devices.
pub(super) struct Storage {
    pub(super) volume: Volume,
    pub(super) cache: Cache,
    /// Pages of the lists that kernels read.
    pub(super) pages: u64,
}

impl Store {
    /// Converts the error of a failed run; adds the devices' error if there is one.
    pub(super) fn explain(&self, e: GraphError) -> Failure {
        match self.storage.as_ref().map(|s| s.volume.check()) {
            Some(Err(why)) => Failure::Error(format!("{e}; {why}")),
            _ => e.into(),
        }
    }
}

/// Minimum size of the cache in bytes, if `--cache` is absent.
const LEAST_CACHE: u64 = 1 << 20;
/// Share of the edges that the cache holds, if `--cache` is absent.
const DEFAULT_CACHE: BytesOrShare = BytesOrShare::Share(0.25);

/// Returns the size of the cache in bytes for `edges` bytes of edges.
pub fn cache_bytes(args: &GraphArgs, edges: u64) -> u64 {
    match args.cache {
        Some(asked) => asked.of(edges),
        None => DEFAULT_CACHE.of(edges).max(LEAST_CACHE),
    }
}

/// Returns the memory that opening a stored graph takes, in words.
pub(super) fn needed(memory: &OpeningMemory) -> String {
    format!(
        "{} of host memory and {} of the engine's, beside cache and results",
        Bytes(memory.host),
        Bytes(memory.engine)
    )
}

impl Job {
    /// Places the edges of a graph that was loaded.
    pub(super) fn store(&self, engine: &Engine, loaded: &Loaded, text: &Text) -> Result<Store, Failure> {
        let (args, csr) = (&self.graph, &loaded.csr);
        let edges = self.edge_bytes(&loaded.into());
        let (placement, storage) = match args.edges {
            Edges::Pinned => (Placement::Pinned, None),
            Edges::Gpu => (Placement::Gpu, None),
            Edges::Storage => {
                let plan = GraphOnEngine::plan(csr, self.needs()).page_checksums(args.page_checksums);
                let volume = device::volume(&args.device, engine, &plan, args.page.transfer())?;
                GraphOnEngine::check_volume(&volume, csr, self.needs())?;
                let storage = self.storage(volume, edges)?;
                (Placement::Storage(storage.cache.clone()), Some(storage))
            }
        };
        match &storage {
            None => text.line(format_args!("edges in {placement} memory ({})", Bytes(edges)))?,
            Some(storage) => self.announce(storage, edges, text)?,
        }
        let graph = GraphOnEngine::place(engine, csr, placement, self.needs())?;
        Ok(Store { graph, storage, csr: None })
    }

    /// Opens a stored graph, and places its edges: they stay on the device, or are read into memory. Returns the graph,
    /// its edges, and the time until it was open.
    pub(super) fn open(
        &self,
        engine: &Engine,
        name: &GraphName,
        text: &Text,
    ) -> Result<(StoredGraph, Store, Duration), Failure> {
        let args = &self.graph;
        let started = Instant::now();
        let volume = device::stored(&args.device, engine, args.page.transfer())?;
        text.line(format_args!("opening takes {}", needed(&OpeningMemory::of(&volume, name, self.needs())?)))?;
        let stored = StoredGraph::open(&volume, name)?;
        let opening = started.elapsed();
        stored.check_weights(self.needs())?;
        let edges = stored.edge_bytes(&volume, self.needs())?;
        let is_packed = stored.info().packed;
        let is_read = args.verify || args.edges != Edges::Storage && !is_packed;
        let csr = is_read.then(|| self.read(&stored, &volume)).transpose()?;
        let (graph, storage) = match (args.edges, &csr) {
            (Edges::Pinned, _) if is_packed => (stored.place_packed(&volume, Placement::Pinned, self.needs())?, None),
            (Edges::Gpu, _) if is_packed => (stored.place_packed(&volume, Placement::Gpu, self.needs())?, None),
            (Edges::Pinned, Some(csr)) => (self.placed(engine, csr, Placement::Pinned)?, None),
            (Edges::Gpu, Some(csr)) => (self.placed(engine, csr, Placement::Gpu)?, None),
            _ => {
                let storage = self.storage(volume, edges)?;
                (stored.place(&storage.cache, self.needs())?, Some(storage))
            }
        };
        match &storage {
            None => text.line(format_args!("edges in {} memory ({})", graph.placement(), Bytes(edges)))?,
            Some(storage) => self.announce(storage, edges, text)?,
        }
        Ok((stored, Store { graph, storage, csr: csr.filter(|_| args.verify) }, opening))
    }

    /// Reads a stored graph into memory, for PEs that search parts of it.
    ///
    /// # Errors
    /// * [`Failure::Usage`] if no device is named that keeps data.
    /// * [`Failure::Error`] if the device holds no such graph, or if the graph cannot be read.
    pub fn read_stored(&self, name: &GraphName, interrupt: &Interrupt) -> Result<Loaded, Failure> {
        let host = engine::for_host(self.graph.engine.deadline)?;
        let volume = device::stored(&self.graph.device, &host, self.graph.page.transfer())?;
        let _stop = interrupt.stops(volume.engine());
        let stored = StoredGraph::open(&volume, name)?;
        Ok(Loaded::new(self.read(&stored, &volume)?, stored.info().input))
    }

    fn read(&self, stored: &StoredGraph, volume: &Volume) -> Result<Csr, GraphError> {
        if self.needs().weighted { stored.read(volume) } else { stored.read_without_weights(volume) }
    }

    fn placed(&self, engine: &Engine, csr: &Csr, placement: Placement) -> Result<GraphOnEngine, Failure> {
        Ok(GraphOnEngine::place(engine, csr, placement, self.needs())?)
    }

    /// Builds the cache for lists of `edges` bytes.
    fn storage(&self, volume: Volume, edges: u64) -> Result<Storage, Failure> {
        let page = device::page(self.graph.page.page_size);
        let cache = Cache::on(&volume).bytes(cache_bytes(&self.graph, edges)).page(page).build()?;
        Ok(Storage { volume, cache, pages: edges.div_ceil(page as u64) })
    }

    fn announce(&self, storage: &Storage, edges: u64, text: &Text) -> Result<(), Failure> {
        let (page, cache) = (self.graph.page.page_size, Bytes(storage.cache.bytes()));
        let rest = format!("  page {page}  cache {cache} (of {} of edges)", Bytes(edges));
        device::announce(&storage.volume, &rest, self.graph.verbose, text)
    }

    /// Returns the size in bytes of the edges that the kernels read.
    fn edge_bytes(&self, graph: &Described<'_>) -> u64 {
        let needs = self.needs();
        let width = graph.width as u64;
        let mut bytes = 0;
        if needs.lists {
            bytes += width;
        }
        if needs.inward && graph.shape.directed() {
            bytes += width;
        }
        if needs.weighted {
            // A neighbour and its weight are adjacent, and each is as wide as the wider of the two.
            bytes += 2 * width.max(graph.weight_width as u64);
        }
        bytes * graph.shape.arcs()
    }

    /// Returns every setting that affects the figures, for the JSON report.
    pub(super) fn config(&self, store: &Store) -> serde_json::Value {
        let args = &self.graph;
        let mut config = json!({
            "input": args.input.to_string_lossy(),
            "seed": args.seed,
            "edges": args.edges,
            "runs": args.runs,
            "verify": !args.no_verify,
            "deadline_ns": nanoseconds(args.engine.deadline),
        });
        self.describe_search(&mut config);
        if let Some(s) = &store.storage {
            config["warm"] = json!(args.warm);
            config["page_bytes"] = json!(s.cache.page_bytes());
            config["cache_bytes"] = json!(s.cache.bytes());
        }
        config
    }

    /// Adds the options of the algorithm, which do not depend on the place of the edges.
    pub fn describe_search(&self, config: &mut serde_json::Value) {
        match &self.algorithm {
            Algorithm::Bfs { max_depth, together } => {
                config["max_depth"] = json!(max_depth);
                config["together"] = json!(together);
            }
            Algorithm::Triangles | Algorithm::Clustering | Algorithm::Cores => {}
            Algorithm::Betweenness { all } => config["all_sources"] = json!(all),
            Algorithm::Components(options) => config["strong"] = json!(options.strong),
            Algorithm::Cdlp(options) => config["iterations_at_most"] = json!(options.iterations),
            Algorithm::PageRank(options, personalize) => {
                config["damping"] = json!(options.damping);
                config["tolerance"] = json!(options.tolerance);
                config["iterations_at_most"] = json!(options.iterations);
                if !personalize.is_empty() {
                    config["personalize"] = json!(personalize.iter().flat_map(SourceList::iter).collect::<Vec<_>>());
                }
            }
            Algorithm::Sssp(options, weights) => {
                config["delta"] = json!(options.delta);
                config["max_distance"] = json!(options.max_distance);
                config["parents"] = json!(options.parents);
                config["weights"] = json!(weights.weights);
                config["weights_type"] = json!(weights.weights_type);
            }
        }
        if let Some((_, end)) = self.paths.end() {
            config["target"] = json!(end);
        }
    }
}
