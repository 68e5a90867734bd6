//! Stored graphs: graphs that a volume holds by name. They are imported once and opened any number of times, by reading
//! offsets and not edges.
//!
//! A volume may hold several. Each consists of these arrays:
//!
//! | array | content | present |
//! |---|---|---|
//! | `NAME/header` | record of 256 bytes: version, sizes, facts about the input | always |
//! | `NAME/offsets`, `NAME/neighbours` | lists of out-neighbours, u64 and u32 or u64 | always |
//! | `NAME/hubs` | four best-connected neighbours of each vertex | always |
//! | `NAME/in-offsets`, `NAME/in-neighbours`, `NAME/in-hubs` | the same for in-neighbours | directed graphs |
//! | `NAME/weighted-neighbours` | neighbours with weights, interleaved | with weights |
//! | `NAME/self-loops` | bitmap of the vertices with an edge to themselves, u64 | if there are any |
//! | `NAME/ids` | identifier of each vertex, u64 | if the identifiers are numbers that leave gaps |
//! | `NAME/names`, `NAME/name-offsets` | names of the vertices one behind the other, u8, and the offset of each, u64 | if the vertices have names |

mod error;
mod header;
mod name;
mod names;
mod open;
#[cfg(test)]
mod tests;
mod verify;

pub use error::StoredError;
pub use header::{STORED_GRAPH_VERSION, StoredInfo, WeightType};
pub use name::{GraphName, LONGEST_NAME};
pub use open::StoredGraph;

use super::csr::Csr;
use super::edges::{GraphError, GraphOnEngine, PlacementOptions};
use super::hub::{hub_neighbours, order_by_degree};
use super::ids::Ids;
use super::import::Loaded;
use super::place::{self, each_array};
use super::{Neighbours, params::GRAPH_HUBS};
use crate::storage::{Element, Plan, Volume};
use header::Raw;
use rayon::prelude::*;

const HEADER: &str = "header";
const HUBS: &str = "hubs";
const IN_HUBS: &str = "in-hubs";
const SELF_LOOPS: &str = "self-loops";
const IDS: &str = "ids";

/// A graph that is ready to be written to a volume: its lists are sorted by degree, and a directed graph has its
/// in-lists.
///
/// # Examples
///
/// ```
/// use warpbell::engine::Engine;
/// use warpbell::graph::stored::{GraphToStore, StoredGraph};
/// use warpbell::graph::{Bfs, BfsOptions, Input, LoadOptions, PlacementOptions};
/// use warpbell::storage::{Cache, Drive, OverwritePolicy, Volume};
///
/// let loaded = "kron:8".parse::<Input>()?.load(&LoadOptions::default())?;
/// let graph = GraphToStore::new("links".parse()?, loaded);
///
/// let drive = Drive::create("soft:mem:1M", 1 << 20, &OverwritePolicy::none())?;
/// let volume = Volume::on(&Engine::cpu()?, [drive]).build()?;
/// graph.store(&volume, false, &mut |_written| ())?;
///
/// // From now on, no edge is read before an algorithm needs it.
/// let stored = StoredGraph::open(&volume, graph.name())?;
/// let cache = Cache::on(&volume).bytes(1 << 20).build()?;
/// let placed = stored.place(&cache, PlacementOptions::BFS)?;
/// let result = Bfs::new(&placed, &BfsOptions::default())?.run(0)?;
/// assert_eq!(result.depth[0], 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct GraphToStore {
    name: GraphName,
    csr: Csr,
    inward: Option<Csr>,
    info: StoredInfo,
    /// Bitmap of the vertices with an edge to themselves.
    loops: Vec<u64>,
    page_checksums: bool,
}

impl GraphToStore {
    /// Prepares a graph that was loaded. Breadth-first search reads least from lists that are sorted by degree, so the
    /// lists are sorted here.
    pub fn new(name: GraphName, loaded: Loaded) -> Self {
        let Loaded { mut csr, summary } = loaded;
        let loops: Vec<u64> = (0..csr.vertices().div_ceil(64))
            .into_par_iter()
            .map(|word| {
                let vertices = word * 64..csr.vertices().min(word * 64 + 64);
                vertices.fold(0, |bits, v| bits | u64::from(csr.has_self_loop(v)) << (v % 64))
            })
            .collect();
        let count = loops.iter().map(|w| u64::from(w.count_ones())).sum();
        order_by_degree(&mut csr);
        let (kind, mean) = place::weight_kind(&csr);
        let largest = match kind {
            super::edges::WeightKind::Integer { largest } => largest as f64,
            super::edges::WeightKind::Real => 0.0,
        };
        let info = StoredInfo::of(&csr, summary, count, [largest, mean]);
        let inward = place::transposed(&csr, PlacementOptions::BFS);
        Self { name, csr, inward, info, loops: if count > 0 { loops } else { Vec::new() }, page_checksums: false }
    }

    /// Sets whether a volume without page checksums gets them.
    pub fn page_checksums(self, wanted: bool) -> Self {
        Self { page_checksums: wanted, ..self }
    }

    /// Returns the name.
    pub fn name(&self) -> &GraphName {
        &self.name
    }

    /// Returns the facts that the header will hold.
    pub fn info(&self) -> &StoredInfo {
        &self.info
    }

    fn needs(&self) -> PlacementOptions {
        PlacementOptions { lists: true, inward: true, weighted: self.csr.weights().is_some() }
    }

    /// Returns the arrays of the graph.
    pub fn plan(&self) -> Plan {
        let hubs = self.csr.vertices() * u64::from(GRAPH_HUBS);
        let array = |plan: Plan, name| match self.csr.neighbours() {
            Neighbours::U32(_) => plan.array::<u32>(name, hubs),
            Neighbours::U64(_) => plan.array::<u64>(name, hubs),
        };
        let plan = GraphOnEngine::plan_of(&self.csr, self.inward.as_ref().map(Csr::arcs), self.needs());
        let mut plan = array(plan.records(HEADER, size_of::<Raw>() as u32, 1), HUBS);
        if self.inward.is_some() {
            plan = array(plan, IN_HUBS);
        }
        if !self.loops.is_empty() {
            plan = plan.array::<u64>(SELF_LOOPS, self.loops.len() as u64);
        }
        plan = match self.csr.ids() {
            Ids::Dense { .. } => plan,
            Ids::Sparse(ids) => plan.array::<u64>(IDS, ids.len() as u64),
            Ids::Named(list) => names::planned(plan, list),
        };
        plan.renamed(|part| self.name.array(part)).page_checksums(self.page_checksums)
    }

    /// Writes the graph to a volume, beside everything that the volume holds. The graph appears there when it is
    /// complete. `progress` is called with the bytes written so far.
    ///
    /// # Errors
    /// * [`StoredError::Exists`] if the volume holds a graph of this name, unless `replace` is set.
    /// * [`GraphError::Storage`] if the volume is too small, holds too many arrays, or a device fails.
    pub fn store(&self, volume: &Volume, replace: bool, progress: &mut dyn FnMut(u64)) -> Result<(), GraphError> {
        if !replace {
            check_name(volume, &self.name)?;
        }
        let old = arrays_of(volume, &self.name)?;
        let old: Vec<&str> = old.iter().map(String::as_str).collect();
        let mut writer = volume.replace(self.plan(), &format!("graph `{}`", self.name), &old)?;
        let mut written = 0;
        let mut put = |part: &str, kind, bytes: &[u8]| -> Result<(), GraphError> {
            // A share at a time, so that progress is seen.
            for piece in bytes.chunks(64 << 20) {
                writer.append_bytes(&self.name.array(part), kind, piece)?;
                written += piece.len() as u64;
                progress(written);
            }
            Ok(())
        };
        put(HEADER, Raw::TYPE, bytemuck::bytes_of(&self.info.to_raw()))?;
        each_array(&self.csr, self.inward.as_ref(), self.needs(), &mut put)?;
        let mut hubs = |csr: &Csr, part| match hub_neighbours(csr) {
            Neighbours::U32(list) => put(part, u32::TYPE, bytemuck::cast_slice(&list)),
            Neighbours::U64(list) => put(part, u64::TYPE, bytemuck::cast_slice(&list)),
        };
        hubs(&self.csr, HUBS)?;
        if let Some(inward) = &self.inward {
            hubs(inward, IN_HUBS)?;
        }
        if !self.loops.is_empty() {
            put(SELF_LOOPS, u64::TYPE, bytemuck::cast_slice(&self.loops))?;
        }
        match self.csr.ids() {
            Ids::Dense { .. } => {}
            Ids::Sparse(ids) => put(IDS, u64::TYPE, bytemuck::cast_slice(ids))?,
            Ids::Named(list) => names::each_array(list, &mut put)?,
        }
        writer.finish()?;
        Ok(())
    }
}

/// Checks that the volume holds no graph of this name.
///
/// # Errors
/// [`StoredError::Exists`] if it does; [`GraphError::Storage`] if the volume cannot be read.
pub fn check_name(volume: &Volume, name: &GraphName) -> Result<(), GraphError> {
    if arrays_of(volume, name)?.is_empty() {
        return Ok(());
    }
    let (device, name) = (volume.name().to_owned(), name.to_string());
    let protected = volume.stored()?.into_iter().map(|s| s.device).collect();
    Err(StoredError::Exists { device, name, protected }.into())
}

/// Returns the names of a graph's arrays on a volume.
fn arrays_of(volume: &Volume, name: &GraphName) -> Result<Vec<String>, GraphError> {
    let is_own = |array: &str| GraphName::split(array).is_some_and(|(graph, _)| graph == *name);
    Ok(entries(volume)?.into_iter().map(|e| e.name).filter(|array| is_own(array)).collect())
}

/// Returns the arrays of a volume; none if nothing is stored there.
fn entries(volume: &Volume) -> Result<Vec<crate::storage::Entry>, GraphError> {
    use crate::storage::{ManifestError, StorageError};
    match volume.manifest() {
        Ok(manifest) => Ok(manifest.entries().to_vec()),
        Err(StorageError::Manifest { source: ManifestError::Absent, .. }) => Ok(Vec::new()),
        Err(e) => Err(e.into()),
    }
}

/// A graph of a volume: [`stored_graphs`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StoredEntry {
    /// Name of the graph.
    pub name: GraphName,
    /// Facts about it, or the error of a header that cannot be read.
    pub info: Result<StoredInfo, StoredError>,
    /// Size of its arrays in bytes.
    pub bytes: u64,
}

/// Returns the graphs of a volume, in the order of their names.
///
/// # Errors
/// [`GraphError::Storage`] if the volume cannot be read.
pub fn stored_graphs(volume: &Volume) -> Result<Vec<StoredEntry>, GraphError> {
    let entries = entries(volume)?;
    let mut names: Vec<GraphName> = entries.iter().filter_map(|e| Some(GraphName::split(&e.name)?.0)).collect();
    names.sort();
    names.dedup();
    let of = |name: GraphName| {
        let own = entries.iter().filter(|e| GraphName::split(&e.name).is_some_and(|(graph, _)| graph == name));
        let bytes = own.map(|e| e.bytes()).sum();
        let info = match open::header(volume, &name) {
            Ok(info) => Ok(info),
            Err(GraphError::Stored(e)) => Err(e),
            Err(e) => return Err(e),
        };
        Ok(StoredEntry { name, info, bytes })
    };
    names.into_iter().map(of).collect()
}

/// Removes a graph from a volume. Its space can be used again; its data is not erased.
///
/// # Errors
/// [`StoredError::Unknown`] if the volume holds no such graph; [`GraphError::Storage`] if a device fails.
pub fn remove_stored_graph(volume: &Volume, name: &GraphName) -> Result<(), GraphError> {
    let arrays = arrays_of(volume, name)?;
    if arrays.is_empty() {
        return Err(open::unknown(volume, name)?.into());
    }
    volume.remove(&arrays.iter().map(String::as_str).collect::<Vec<_>>())?;
    Ok(())
}
