//! Stored graphs: graphs that a volume holds by name. They are imported once and opened any number of times, by reading
//! offsets and not edges.
//!
//! A volume may hold several. Each consists of these arrays:
//!
//! | array | content | present |
//! |---|---|---|
//! | `NAME/header` | record of 256 bytes: version, sizes, facts about the input | always |
//! | `NAME/offsets`, `NAME/neighbours` | lists of out-neighbours, u64 and u32 or u64 | unless lists are packed |
//! | `NAME/neighbours`, `NAME/positions` | packed lists of out-neighbours: words, u32, and the first word of each block, u64 | packed lists |
//! | `NAME/degrees`, `NAME/degree-widths` | degrees in groups of 32: words, u32, and the width of each group, u8 | packed lists |
//! | `NAME/order` | number of each vertex in the order of the identifiers, u32 | lists in the order of degrees |
//! | `NAME/hubs` | four best-connected neighbours of each vertex | always |
//! | `NAME/in-offsets`, `NAME/in-neighbours`, `NAME/in-hubs` | the same for in-neighbours | directed graphs |
//! | `NAME/weighted-neighbours` | neighbours with weights, interleaved | with weights |
//! | `NAME/self-loops` | bitmap of the vertices with an edge to themselves, u64 | if there are any |
//! | `NAME/ids` | identifier of each vertex, u64 | if the identifiers are numbers that leave gaps |
//! | `NAME/names`, `NAME/name-offsets` | names of the vertices one behind the other, u8, and the offset of each, u64 | if the vertices have names |
//!
//! A part of a partitioned graph ([`GraphInParts`]) has the same arrays. Header, degrees, order, self-loops, identifiers and names are
//! those of the whole graph. Lists and hubs are those of the part's vertices alone.

mod arcs;
mod error;
pub(crate) mod gather;
mod header;
mod memory;
mod name;
mod names;
#[cfg(feature = "shmem")]
mod on_pe;
mod open;
mod packed;
#[cfg(test)]
mod packed_tests;
mod packing;
mod part;
mod parts;
#[cfg(all(test, feature = "shmem"))]
mod parts_tests;
mod source;
#[cfg(test)]
mod tests;
mod verify;
#[cfg(test)]
mod verify_tests;

internal!(crate::storage::LONGEST_NAME);
internal!(arcs::{ArcPiece, ArcReader, StoredArc, StoredWeight});
pub use error::StoredError;
pub use header::{StoredInfo, StoredPart, WeightType};
internal!(header::{MOST_PARTS, STORED_GRAPH_VERSION});
pub use memory::OpeningMemory;
pub use name::GraphName;
#[cfg(feature = "shmem")]
pub(crate) use on_pe::check_import;
pub use open::StoredGraph;
pub use parts::GraphInParts;

use super::csr::NeighbourOrder;
use super::edges::{GraphError, NarrowEdge, WideEdge};
use super::external::Budget;
use super::ids::Ids;
use super::import::{ImportError, Imported, ListForm, LoadOptions, Loaded, Notice, VertexOrder, budget};
use super::input::Input;
use super::params::GRAPH_HUBS;
use super::place::{IN_NEIGHBOURS, IN_OFFSETS, Interleaved, NEIGHBOURS, OFFSETS, WEIGHTED};
use crate::storage::{Element, ElementType, Plan, Volume};
use header::Raw;
use packing::PackedLists;
use source::{Lists, Source};

const HEADER: &str = "header";
const HUBS: &str = "hubs";
const IN_HUBS: &str = "in-hubs";
const SELF_LOOPS: &str = "self-loops";
const IDS: &str = "ids";

/// A graph that is ready to be written to a volume.
///
/// # Examples
///
/// ```
/// use warpbell::engine::Engine;
/// use warpbell::graph::stored::{GraphToStore, StoredGraph};
/// use warpbell::graph::{Bfs, BfsOptions, Input, LoadOptions, PlacementOptions};
/// use warpbell::storage::{Cache, Drive, OverwritePolicy, Volume};
///
/// let input: Input = "kron:8".parse()?;
/// let graph = GraphToStore::import("links".parse()?, &input, &LoadOptions::default())?;
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
    contents: Contents,
    info: StoredInfo,
    ids: Ids,
    /// Bitmap of the vertices with an edge to themselves; empty if there are none.
    loops: Vec<u64>,
    notices: Vec<Notice>,
    #[cfg(feature = "internals")]
    in_files: bool,
    page_checksums: bool,
}

/// Lists of a graph that is to be stored.
#[derive(Debug)]
enum Contents {
    Plain(Source),
    Packed(PackedLists),
}

impl GraphToStore {
    /// Takes a graph that was loaded, with packed lists.
    pub fn new(name: GraphName, loaded: Loaded) -> Self {
        Self::with_lists(name, loaded, ListForm::default())
    }

    /// Takes a graph that was loaded, with lists in this form.
    pub fn with_lists(name: GraphName, loaded: Loaded, lists: ListForm) -> Self {
        let source = Source::in_memory(loaded);
        match Self::of(name, source, lists, None) {
            Ok(graph) => graph,
            Err(e) => unreachable!("lists in memory are packed without a file: {e}"),
        }
    }

    /// Reads or generates a graph that is to be stored. Within [`LoadOptions::memory`] it is built in memory. A larger one
    /// is sorted in temporary files in [`LoadOptions::temp_dir`]; then the memory has to hold what is of size
    /// O(vertices) alone: 8 bytes for each vertex, twice as much unless the graph is undirected, and 8 more if the
    /// identifiers leave gaps; packing the lists takes 16 more.
    ///
    /// # Errors
    /// * [`ImportError::SmallBudget`] if the memory does not suffice for that.
    /// * [`ImportError::TemporaryFile`] if a temporary file cannot be written.
    /// * Otherwise as for [`Input::load`].
    pub fn import(name: GraphName, input: &Input, options: &LoadOptions<'_>) -> Result<Self, ImportError> {
        match input.load_or_sort(options)? {
            Imported::InMemory(loaded) => Self::of(name, Source::in_memory(*loaded), options.lists, None),
            Imported::Sorted(graph) => Self::of(name, Source::sorted(*graph), options.lists, Some(&budget(options))),
        }
    }

    fn of(name: GraphName, mut source: Source, lists: ListForm, files: Option<&Budget>) -> Result<Self, ImportError> {
        let mut info = source.info();
        let (ids, loops) = (source.ids.clone(), std::mem::take(&mut source.loops));
        let notices = std::mem::take(&mut source.notices);
        #[cfg(feature = "internals")]
        let in_files = matches!(source.out, Lists::InFiles(_));
        let contents = match lists {
            ListForm::Packed(order) if info.neighbour_bytes == 4 => {
                (info.packed, info.reordered) = (true, order == VertexOrder::Degree);
                info.order = NeighbourOrder::ById;
                let order = info.reordered.then(|| source.order_by_degree());
                Contents::Packed(PackedLists::of(&source, order, None, files)?)
            }
            _ => Contents::Plain(source),
        };
        Ok(Self {
            name,
            contents,
            info,
            ids,
            loops,
            notices,
            #[cfg(feature = "internals")]
            in_files,
            page_checksums: false,
        })
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

    /// Returns the decisions of the import that a user should see.
    pub fn notices(&self) -> &[Notice] {
        &self.notices
    }

    /// Returns true if the lists are in temporary files, because the graph is larger than the memory for it.
    #[cfg(feature = "internals")]
    pub fn is_in_files(&self) -> bool {
        self.in_files
    }

    /// Returns the arrays of the graph.
    pub fn plan(&self) -> Plan {
        let info = &self.info;
        let plan = Plan::new();
        let mut plan = match &self.contents {
            Contents::Packed(lists) => lists.plan(plan),
            Contents::Plain(source) => self.plan_of_plain(plan, source),
        };
        plan = plan.records(HEADER, size_of::<Raw>() as u32, 1);
        if !self.loops.is_empty() {
            plan = plan.array::<u64>(SELF_LOOPS, self.loops.len() as u64);
        }
        plan = match &self.ids {
            Ids::Dense { .. } => plan,
            Ids::Sparse(ids) => plan.array::<u64>(IDS, ids.len() as u64),
            Ids::Named(list) => names::planned(plan, list),
        };
        debug_assert!(info.vertices == self.ids.len());
        plan.renamed(|part| self.name.array(part)).page_checksums(self.page_checksums)
    }

    /// Adds the arrays of lists that are not packed.
    fn plan_of_plain(&self, plan: Plan, source: &Source) -> Plan {
        let info = &self.info;
        let hubs = info.vertices * u64::from(GRAPH_HUBS);
        let ids = |plan: Plan, name: &str, count| match info.neighbour_bytes {
            4 => plan.array::<u32>(name, count),
            _ => plan.array::<u64>(name, count),
        };
        let lists = |plan: Plan, [offsets, neighbours]: [&str; 2]| {
            ids(plan.array::<u64>(offsets, info.vertices + 1), neighbours, info.arcs)
        };
        let mut plan = lists(plan, [OFFSETS, NEIGHBOURS]);
        if source.inward.is_some() {
            plan = lists(plan, [IN_OFFSETS, IN_NEIGHBOURS]);
        }
        if info.weights.is_some() {
            let bytes = if info.wide_weights() { size_of::<WideEdge>() } else { size_of::<NarrowEdge>() };
            plan = plan.records(WEIGHTED, bytes as u32, info.arcs);
        }
        plan = ids(plan, HUBS, hubs);
        if source.inward.is_some() {
            plan = ids(plan, IN_HUBS, hubs);
        }
        plan
    }

    /// Writes the graph to a volume, beside everything that the volume holds. The lists are sorted by degree meanwhile:
    /// breadth-first search reads least from such lists. The graph appears on the volume when it is complete. `progress`
    /// is called with the bytes written so far.
    ///
    /// # Errors
    /// * [`StoredError::Exists`] if the volume holds a graph of this name, unless `replace` is set.
    /// * [`GraphError::Storage`] if the volume is too small, holds too many arrays, or a device fails.
    /// * [`GraphError::Import`] if a temporary file cannot be read.
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
        match &self.contents {
            Contents::Packed(lists) => lists.each_array(&mut put)?,
            Contents::Plain(source) => {
                self.put_lists(source, &source.out, [OFFSETS, NEIGHBOURS, HUBS], &mut put)?;
                if let Some(inward) = &source.inward {
                    self.put_lists(source, inward, [IN_OFFSETS, IN_NEIGHBOURS, IN_HUBS], &mut put)?;
                }
            }
        }
        if !self.loops.is_empty() {
            put(SELF_LOOPS, u64::TYPE, bytemuck::cast_slice(&self.loops))?;
        }
        match &self.ids {
            Ids::Dense { .. } => {}
            Ids::Sparse(ids) => put(IDS, u64::TYPE, bytemuck::cast_slice(ids))?,
            Ids::Named(list) => names::each_array(list, &mut put)?,
        }
        writer.finish()?;
        Ok(())
    }

    /// Writes the lists of one side: offsets, neighbours and the first of them, and weights if the side has some.
    fn put_lists(
        &self,
        source: &Source,
        lists: &Lists,
        [offsets, neighbours, hubs]: [&str; 3],
        mut put: impl FnMut(&str, ElementType, &[u8]) -> Result<(), GraphError>,
    ) -> Result<(), GraphError> {
        let kind = if self.info.neighbour_bytes == 4 { u32::TYPE } else { u64::TYPE };
        put(offsets, u64::TYPE, bytemuck::cast_slice(lists.offsets()))?;
        source.each(lists, |part| {
            put(neighbours, kind, part.neighbours.bytes())?;
            put(hubs, kind, part.hubs.bytes())?;
            let Some(weights) = &part.weights else { return Ok(()) };
            let all = 0..part.neighbours.len();
            let edges = Interleaved::of(&part.neighbours, Some(weights), all, self.info.wide_weights());
            put(WEIGHTED, ElementType::Record, edges.bytes())
        })
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
