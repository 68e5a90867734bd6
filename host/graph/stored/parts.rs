//! Graphs that are stored in parts, one for each PE of a world.

use super::header::StoredPart;
use super::packing::PackedLists;
use super::source::Source;
use super::{Contents, GraphName, GraphToStore, StoredInfo};
use crate::graph::csr::NeighbourOrder;
use crate::graph::external::Budget;
use crate::graph::import::{ImportError, Imported, LoadOptions, budget};
use crate::graph::input::Input;
use crate::graph::order::Order;
use crate::graph::pe_order;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

/// A graph that is ready to be written to several volumes, in a part for each PE of a world. A part has the packed lists of its
/// vertices, and the degrees and identifiers of all. Its PE opens it alone
/// ([`StoredGraph::place_part`](super::StoredGraph::place_part)).
///
/// Vertices are assigned to the parts by descending degree, back and forth, as [`PartitionPlan`](crate::graph::partition::PartitionPlan)
/// does.
///
/// # Examples
///
/// ```
/// use warpbell::engine::Engine;
/// use warpbell::graph::partition::heap_bytes;
/// use warpbell::graph::stored::{GraphInParts, StoredGraph};
/// use warpbell::graph::{Input, LoadOptions, PageRankOptions, Placement, PlacementOptions, pagerank};
/// use warpbell::shmem::World;
/// use warpbell::storage::{Cache, Drive, OverwritePolicy, Volume};
///
/// let input: Input = "kron:8".parse()?;
/// let graph = GraphInParts::import("links".parse()?, &input, &LoadOptions::default(), 2)?;
///
/// // Each PE stores its part here, and reads no edge of the other's. Both get all ranks.
/// let ranks = |world: World| -> Result<f64, Box<dyn std::error::Error + Send + Sync>> {
///     let drive = Drive::create("soft:mem:1M", 1 << 20, &OverwritePolicy::none())?;
///     let volume = Volume::on(world.engine(), [drive]).build()?;
///     graph.part(world.my_pe())?.store(&volume, false, &mut |_written| ())?;
///     let stored = StoredGraph::open(&volume, &"links".parse()?)?;
///     let cache = Cache::on(&volume).bytes(1 << 20).build()?;
///     let placed = stored.place_part(&world, &volume, Placement::Storage(cache), PlacementOptions::PAGERANK)?;
///     Ok(pagerank(&placed, &PageRankOptions::default())?.rank.iter().sum())
/// };
/// std::thread::scope(|s| {
///     let heap = heap_bytes(256, 2, None);
///     let engines = vec![Engine::cpu()?, Engine::cpu()?];
///     let pes: Vec<_> = World::local_on(engines, heap)?.into_iter().map(|world| s.spawn(|| ranks(world))).collect();
///     for pe in pes {
///         assert!((pe.join().expect("no panic")? - 1.0).abs() < 1e-6);
///     }
///     Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
#[derive(Debug)]
pub struct GraphInParts {
    name: GraphName,
    source: Source,
    order: Order,
    /// First vertex of each part in that order, and the number of vertices.
    firsts: Vec<u64>,
    info: StoredInfo,
    files: Option<Budget>,
    /// Number that the parts have in common.
    import: u64,
    page_checksums: bool,
}

impl GraphInParts {
    /// Reads or generates a graph that is to be stored in `parts` parts. The form and order of the lists in `options` are not
    /// used. A graph that exceeds the memory is sorted in temporary files, once more for each part.
    ///
    /// # Errors
    /// * [`ImportError::PartCount`] unless there are 2 to 65,535 parts, and at most 2^32 - 2 vertices.
    /// * Otherwise as for [`GraphToStore::import`].
    pub fn import(
        name: GraphName,
        input: &Input,
        options: &LoadOptions<'_>,
        parts: usize,
    ) -> Result<Self, ImportError> {
        let refused = |vertices| ImportError::PartCount { parts, vertices };
        if !(2..=super::MOST_PARTS).contains(&parts) {
            return Err(refused(None));
        }
        let (source, files) = match input.load_or_sort(options)? {
            Imported::InMemory(loaded) => (Source::in_memory(*loaded), None),
            Imported::Sorted(graph) => (Source::sorted(*graph), Some(budget(options))),
        };
        let info = source.info();
        if info.neighbour_bytes != 4 {
            return Err(refused(Some(info.vertices)));
        }
        let order = pe_order::order(&source.order_by_degree(), parts);
        let firsts = pe_order::firsts(info.vertices, parts);
        let info = StoredInfo { packed: true, reordered: true, order: NeighbourOrder::ById, ..info };
        Ok(Self { name, source, order, firsts, info, files, import: random_number(), page_checksums: false })
    }

    /// Sets whether volumes without page checksums get them.
    #[cfg(feature = "internals")]
    pub fn page_checksums(self, wanted: bool) -> Self {
        Self { page_checksums: wanted, ..self }
    }

    /// Returns the number of parts.
    #[cfg(feature = "internals")]
    pub fn parts(&self) -> usize {
        self.firsts.len() - 1
    }

    /// Returns the facts about the whole graph.
    #[cfg(feature = "internals")]
    pub fn info(&self) -> &StoredInfo {
        &self.info
    }

    /// Returns the decisions of the import that a user should see.
    #[cfg(feature = "internals")]
    pub fn notices(&self) -> &[crate::graph::import::Notice] {
        &self.source.notices
    }

    /// Returns true if the lists are in temporary files, because the graph is larger than the memory for it.
    #[cfg(feature = "internals")]
    pub fn is_in_files(&self) -> bool {
        matches!(self.source.out, super::source::Lists::InFiles(_))
    }

    /// Packs the lists of a part.
    ///
    /// # Errors
    /// [`ImportError::TemporaryFile`] if a temporary file cannot be written.
    ///
    /// # Panics
    /// If there is no such part.
    pub fn part(&self, part: usize) -> Result<GraphToStore, ImportError> {
        let own: Range<u64> = self.firsts[part]..self.firsts[part + 1];
        let lists = PackedLists::of(&self.source, Some(self.order.clone()), Some(own), self.files.as_ref())?;
        Ok(GraphToStore {
            name: self.name.clone(),
            contents: Contents::Packed(lists),
            info: StoredInfo {
                part: Some(StoredPart { part, parts: self.firsts.len() - 1, import: self.import }),
                ..self.info
            },
            ids: self.source.ids.clone(),
            loops: self.source.loops.clone(),
            notices: self.source.notices.clone(),
            #[cfg(feature = "internals")]
            in_files: self.is_in_files(),
            page_checksums: self.page_checksums,
        })
    }
}

/// Returns a number by which imports differ; not 0.
fn random_number() -> u64 {
    RandomState::new().hash_one(std::process::id()).max(1)
}
