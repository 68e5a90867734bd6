//! A PE's part of a graph, and the algorithm over it.

use crate::args::Edges;
use crate::graph::{Job, Outcome, Runner, Vertices};
use crate::output::Failure;
use crate::workloads::report::PathReport;
use serde::Serialize;
use warpbell::graph::partition::{
    MirroredPart, Part, PartitionPlan, PartitionedBfs, PartitionedBfsOptions, PartitionedGraph,
};
use warpbell::graph::stored::StoredGraph;
use warpbell::graph::{GraphError, GraphOnEngine, Placement, PlacementOptions};
use warpbell::shmem::World;
use warpbell::storage::{Plan, Stats, Volume};
use warpbell::units::{Bytes, counted};

/// Facts about one PE's part, for text and JSON.
#[derive(Serialize)]
pub struct PartReport {
    pub vertices: u64,
    pub stored_edges: u64,
    pub edge_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<PathReport>,
}

/// Lists of a PE's vertices, as the algorithm needs them.
pub enum Lists {
    /// For breadth-first search, which keeps the values of own vertices.
    Search(Part),
    /// For algorithms that keep the values of all vertices.
    Mirrored(MirroredPart, PlacementOptions),
    /// For the same, in the PE's part of a stored graph, which stays on its volume if kernels read edges from storage.
    Stored(Box<StoredGraph>, Volume, PlacementOptions),
}

impl Lists {
    /// Returns the lists of a PE.
    ///
    /// # Errors
    /// [`Failure::Error`] if the graph has too many vertices for the algorithm.
    pub fn of(job: &Job, partition: &PartitionPlan<'_>, pe: usize) -> Result<Self, Failure> {
        Ok(if job.is_search() {
            Self::Search(partition.part(pe))
        } else {
            Self::Mirrored(partition.mirrored_part(pe)?, job.needs())
        })
    }

    /// Opens the part of a PE on its device.
    ///
    /// # Errors
    /// [`Failure::Error`] if the part has no weights that the algorithm reads, or its lists are to be read and cannot.
    pub fn stored(job: &Job, stored: StoredGraph, volume: Volume) -> Result<Self, Failure> {
        stored.check_weights(job.needs())?;
        Ok(if job.is_search() {
            Self::Search(Part::read(&stored, &volume)?)
        } else {
            Self::Stored(Box::new(stored), volume, job.needs())
        })
    }

    /// Returns the bytes of the edges that kernels read.
    ///
    /// # Errors
    /// [`GraphError::Storage`] if the volume of a stored part cannot be read.
    pub fn edge_bytes(&self) -> Result<u64, GraphError> {
        match self {
            Self::Search(part) => Ok(part.edge_bytes()),
            Self::Mirrored(part, needs) => Ok(part.edge_bytes(*needs)),
            Self::Stored(part, volume, needs) => part.edge_bytes(volume, *needs),
        }
    }

    /// Returns the volume that has the lists already, if there is one.
    pub fn own_volume(&self) -> Option<&Volume> {
        match self {
            Self::Stored(_, volume, _) => Some(volume),
            _ => None,
        }
    }

    /// Returns the arrays that placing the lists writes to a volume.
    pub fn plan(&self) -> Plan {
        match self {
            Self::Search(part) => part.plan(),
            Self::Mirrored(part, needs) => part.plan(*needs),
            Self::Stored(..) => Plan::new(),
        }
    }

    /// Checks that placing the lists overwrites no foreign data.
    ///
    /// # Errors
    /// As for [`GraphOnEngine::check_volume`].
    pub fn check_volume(&self, volume: &Volume) -> Result<(), GraphError> {
        match self {
            Self::Search(part) => part.check_volume(volume),
            Self::Mirrored(part, needs) => part.check_volume(volume, *needs),
            Self::Stored(..) => Ok(()),
        }
    }

    /// Returns the facts about the part.
    ///
    /// # Errors
    /// As for [`Lists::edge_bytes`].
    pub fn report(&self, volume: Option<&Volume>) -> Result<PartReport, GraphError> {
        let (vertices, stored_edges) = match self {
            Self::Search(part) => (part.vertices(), part.arcs()),
            Self::Mirrored(part, _) => (part.vertices(), part.arcs()),
            Self::Stored(part, ..) => (part.vertices_here(), part.arcs_here()),
        };
        let (edge_bytes, path) = (self.edge_bytes()?, volume.map(crate::device::path));
        Ok(PartReport { vertices, stored_edges, edge_bytes, path })
    }

    /// Places the lists where the PE's kernels reach them.
    ///
    /// # Errors
    /// As for [`GraphOnEngine::place`].
    pub fn place(&self, world: &World, placement: Placement) -> Result<Placed, GraphError> {
        Ok(match self {
            Self::Search(part) => Placed::Search(PartitionedGraph::place_part(world, part, placement)?),
            Self::Mirrored(part, needs) => {
                Placed::Mirrored(GraphOnEngine::place_mirrored(world, part, placement, *needs)?)
            }
            Self::Stored(part, volume, needs) => Placed::Mirrored(part.place_part(world, volume, placement, *needs)?),
        })
    }
}

/// Lists of a PE where its kernels reach them.
pub enum Placed {
    Search(PartitionedGraph),
    Mirrored(GraphOnEngine),
}

impl Placed {
    pub fn on_engine(&self) -> &GraphOnEngine {
        match self {
            Self::Search(graph) => graph.part(),
            Self::Mirrored(graph) => graph,
        }
    }
}

/// An algorithm with its memory, for any number of runs. Every PE makes the same calls.
pub enum Algorithm {
    Search(Box<PartitionedBfs>),
    Mirrored(Box<Runner>, World),
}

impl Algorithm {
    /// Allocates the memory of the algorithm. Collective.
    ///
    /// # Errors
    /// Those of the algorithm.
    pub fn new(job: &Job, graph: &Placed, world: &World, named: &Vertices) -> Result<Self, Failure> {
        Ok(match graph {
            Placed::Search(graph) => {
                let options = PartitionedBfsOptions::default().search(job.bfs_options(named));
                Self::Search(Box::new(PartitionedBfs::new(graph, &options)?))
            }
            Placed::Mirrored(graph) => Self::Mirrored(Box::new(job.runner(graph, named, false)?), world.clone()),
        })
    }

    /// Runs once from a source. Returns the counters of all PEs, the bytes that they put if they are counted, and the result;
    /// that of a search only on PE 0. Collective.
    ///
    /// # Errors
    /// Those of the algorithm.
    pub fn run(&mut self, source: Option<u64>) -> Result<Ran, GraphError> {
        match self {
            Self::Search(search) => {
                let result = search.run(source.unwrap_or_default())?;
                let (io, put_bytes) = (result.io, Some(result.put_bytes));
                Ok(Ran { io, put_bytes, outcome: search.gather(result)?.map(Outcome::Bfs) })
            }
            Self::Mirrored(runner, world) => {
                let outcome = runner.run(&[source])?;
                let own = outcome.io();
                let all = world.allgather(own.as_ref().map_or(&[], bytemuck::bytes_of))?;
                let stats = all.iter().filter_map(|b| bytemuck::try_pod_read_unaligned::<Stats>(b).ok());
                Ok(Ran { io: stats.reduce(|a, b| a + b), put_bytes: None, outcome: Some(outcome) })
            }
        }
    }
}

/// Result of a run, and its counters.
pub struct Ran {
    /// Counters of the storage and the caches of all PEs during the run, or `None` for edges in memory.
    pub io: Option<Stats>,
    /// Bytes that all PEs put to each other.
    pub put_bytes: Option<u64>,
    pub outcome: Option<Outcome>,
}

/// A PE's part of the graph where its kernels reach it, with the volume below it.
pub struct Store {
    pub graph: Placed,
    pub volume: Option<Volume>,
    pub report: PartReport,
}

impl Store {
    /// Returns a line such as `16,384 vertices  262,144 stored edges  1 MiB  soft:mem  queues host  ...`.
    pub fn line(&self, edges: Edges) -> String {
        let r = &self.report;
        let vertices = counted(r.vertices, "vertex", "vertices");
        let (arcs, bytes) = (counted(r.stored_edges, "stored edge", "stored edges"), Bytes(r.edge_bytes));
        let place = match (&self.volume, self.graph.on_engine().placement()) {
            (Some(v), Placement::Storage(cache)) => {
                format!("{}  {} x {} entries  cache {}", v.path(), v.queues(), v.depth(), Bytes(cache.bytes()))
            }
            _ if edges == Edges::Pinned => "pinned memory".to_owned(),
            _ => "engine's memory".to_owned(),
        };
        format!("{vertices}  {arcs} ({bytes})  {place}")
    }

    /// Converts the error of a failed run; adds the devices' error if there is one.
    pub fn explain(&self, e: GraphError) -> Failure {
        match (&e, self.volume.as_ref().map(Volume::check)) {
            (GraphError::OtherPe { .. }, _) => e.into(),
            (_, Some(Err(why))) => Failure::Error(format!("{e}; {why}")),
            _ => e.into(),
        }
    }
}
