//! Graphs that WebGraph compressed (BVGraph): `.graph` with `.properties`, and `.offsets` if they are there.
//!
//! Files of Java's WebGraph and of the crate `webgraph` are read. Lists are decoded here and not by that crate, because
//! every number of an unknown file has to be checked before memory is taken for it; `tests/webgraph` compares both.
//!
//! The first pass finds where each list begins, or takes that from `.offsets`. Then tasks decode segments of the graph:
//! into the lists of a graph in memory, or into pieces of edges to be sorted in files. Every list has to end where the
//! next one begins, so wrong offsets are found.

mod bits;
mod decode;
mod fault;
mod layout;
mod properties;
mod record;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod writer;

use super::bytes::{Bytes, STDIN, STDIN_NAME};
use super::error::ImportError;
use super::raw::{self, RawEdges, Read};
use super::{
    Contents, FileFormat, Format, Loaded, Orientation, OrientationReason, Pieces, Progress, Reader, Stage, Summary,
    decompress, memory,
};
use crate::graph::build;
use crate::graph::csr::{Csr, MAX_NARROW_VERTICES, NeighbourOrder, VertexId};
use crate::graph::ids::Ids;
use crate::graph::parallel;
use crate::units::grouped;
use bits::{Big, BitOrder, Little};
use decode::{Decoder, Earlier, Failure, Lists};
use fault::Fault;
use layout::{Layout, Segment, Sizes};
use properties::Properties;
use record::Shape;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of a file that are read at a time without looking for memory.
const FEW: u64 = 8 << 20;
/// Bytes of a file that are looked at to find out that it is no text.
const LOOK: u64 = 1 << 10;

/// Returns the path of the properties of a graph, or of another file that belongs to it.
pub(super) fn beside(graph: &Path, ending: &str) -> PathBuf {
    decompress::uncompressed_name(graph).with_extension(ending)
}

/// Returns the format of a file: a name that METIS graphs have, too, is that of a BVGraph if its properties are there.
pub(super) fn format_of(path: &Path) -> Option<FileFormat> {
    match FileFormat::of(path) {
        Some(FileFormat::Graph) if beside(path, "properties").is_file() => Some(FileFormat::BvGraph),
        format => format,
    }
}

/// Returns the graph file of a name without an ending, as WebGraph's programs take it.
pub(super) fn of_basename(path: &Path) -> Option<PathBuf> {
    let with = |ending: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(ending);
        PathBuf::from(name)
    };
    let graph = with(".graph");
    (graph.is_file() && with(".properties").is_file()).then_some(graph)
}

/// Returns an error if a file that would be a METIS graph is no text.
pub(super) fn check_text(bytes: &Bytes<'_>) -> Result<(), ImportError> {
    let mut start = vec![0; bytes.len().min(LOOK) as usize];
    bytes.read(0, &mut start)?;
    if start.iter().all(|&byte| byte >= b' ' || byte.is_ascii_whitespace()) && std::str::from_utf8(&start).is_ok() {
        return Ok(());
    }
    let reason = format!(
        "is no text, as a METIS graph would be, and {} is not there, as for a BVGraph of WebGraph; put the properties of the graph there",
        beside(bytes.path(), "properties").display()
    );
    Err(wrong(bytes, reason))
}

/// Files of a graph.
struct Files<'a> {
    graph: &'a Bytes<'a>,
    /// Path of the properties.
    properties: PathBuf,
    read: Properties,
    /// Limit of the memory in bytes, if there is one.
    memory: Option<u64>,
}

impl Files<'_> {
    fn shape(&self) -> &Shape {
        &self.read.shape
    }

    /// Reads some bits. Returns their bytes, and the number of the first bit of these.
    fn bits(&self, range: Range<u64>) -> Result<(Vec<u8>, u64), ImportError> {
        let first = range.start / 8;
        let count = range.end.div_ceil(8) - first;
        self.check(count)?;
        let mut bytes = vec![0; count as usize];
        self.graph.read(first, &mut bytes)?;
        Ok((bytes, 8 * first))
    }

    /// Returns an error if so many bytes of a file do not fit into memory. Damage makes any list a long one.
    fn check(&self, bytes: u64) -> Result<(), ImportError> {
        if bytes <= FEW {
            return Ok(());
        }
        let (vertices, arcs) = (self.shape().vertices.into(), self.shape().arcs.into());
        memory::check(&self.graph.path().display().to_string(), vertices, arcs, bytes.into(), self.memory)
    }
}

/// Returns the error for the list of a vertex.
fn damaged(files: &Files<'_>, vertex: u64, fault: Fault) -> ImportError {
    let what = match fault {
        Fault::Cut => format!("goes beyond the end of the file, which has {} bytes", grouped(files.graph.len())),
        Fault::Large => "has a number that no graph has".to_owned(),
        Fault::Wrong(what) => what.to_owned(),
        Fault::Missing(other) => format!("needs that of vertex {}", grouped(other)),
    };
    let reason = format!(
        "the list of vertex {} {what}; the file is cut short or damaged, or {} is that of another graph",
        grouped(vertex),
        files.properties.display()
    );
    wrong(files.graph, reason)
}

/// Reads a graph from memory: the contents of `.graph`, of `.properties`, and of `.offsets` if it is given.
///
/// # Errors
/// As for [`load`](super::load), apart from errors of files.
#[cfg(any(test, feature = "internals"))]
pub fn load_bvgraph(
    graph: &[u8],
    properties: &[u8],
    offsets: Option<&[u8]>,
    options: &super::LoadOptions<'_>,
) -> Result<Loaded, ImportError> {
    let sizes = super::PieceSizes::of(super::text::PIECE);
    let reader = Reader::new(options, sizes, None);
    let contents = reader.bvgraph_in(graph, properties, offsets)?;
    reader.in_memory(contents)
}

impl Reader<'_> {
    /// Reads the graph of a file, or of a name without an ending.
    pub(super) fn bvgraph_at(&self, path: &Path) -> Result<Contents, ImportError> {
        if path.as_os_str() == STDIN {
            let reason =
                "a BVGraph cannot come from there, since its properties are in a file beside it; name its file";
            return Err(ImportError::BvGraph { path: STDIN_NAME.into(), reason: reason.to_owned() });
        }
        let graph = if path.is_file() { None } else { of_basename(path) };
        self.single(&Bytes::open(graph.as_deref().unwrap_or(path), self)?, FileFormat::BvGraph)
    }

    /// Reads a graph whose properties, and offsets if there are some, are in files beside it.
    pub(super) fn bvgraph(&self, graph: &Bytes<'_>) -> Result<Contents, ImportError> {
        let (properties, offsets) = (beside(graph.path(), "properties"), beside(graph.path(), "offsets"));
        if !properties.is_file() {
            return Err(ImportError::MissingPart { path: properties, beside: graph.path().to_owned() });
        }
        let offsets = offsets.is_file().then(|| Bytes::open(&offsets, self)).transpose()?;
        self.bvgraph_of(graph, &Bytes::open(&properties, self)?, offsets.as_ref())
    }

    /// Reads a graph of contents in memory: of the graph, its properties, and its offsets if they are given.
    #[cfg(any(test, feature = "internals"))]
    fn bvgraph_in(&self, graph: &[u8], properties: &[u8], offsets: Option<&[u8]>) -> Result<Contents, ImportError> {
        let of = |ending, bytes| Bytes::memory(&Path::new("g").with_extension(ending), bytes);
        let offsets = offsets.map(|bytes| of("offsets", bytes));
        self.bvgraph_of(&of("graph", graph), &of("properties", properties), offsets.as_ref())
    }

    /// Reads a graph of its properties and, if they are given, its offsets.
    fn bvgraph_of(
        &self,
        graph: &Bytes<'_>,
        properties: &Bytes<'_>,
        offsets: Option<&Bytes<'_>>,
    ) -> Result<Contents, ImportError> {
        let (path, read) = (properties.path().to_owned(), Properties::read(properties)?);
        let order = read.is_little_endian;
        let files = Files { graph, properties: path, read, memory: self.memory_limit() };
        if order { self.compressed::<Little>(&files, offsets) } else { self.compressed::<Big>(&files, offsets) }
    }

    fn compressed<O: BitOrder>(&self, files: &Files<'_>, offsets: Option<&Bytes<'_>>) -> Result<Contents, ImportError> {
        let shape = files.shape();
        let (vertices, bits) = (shape.vertices, 8 * u128::from(files.graph.len()));
        if vertices == 0 {
            return Err(Self::no_vertices(files.graph.path().to_owned(), files.graph.len()));
        }
        // Each list has a bit at least.
        if u128::from(vertices) > bits {
            let (nodes, properties) = (grouped(vertices), files.properties.display());
            let reason = format!(
                "has {} bytes, which cannot hold the {nodes} nodes that {properties} names; it is cut short",
                grouped(files.graph.len())
            );
            return Err(wrong(files.graph, reason));
        }
        let wide = self.options.wide || vertices > MAX_NARROW_VERTICES;
        let in_memory = self.fits(files, wide)?;
        let sizes = Sizes::of(self.piece_sizes.bytes, shape);
        let passes = if offsets.is_some() { 1 } else { 2 };
        let progress = |done: u64| {
            if let Some(progress) = self.options.progress {
                progress(Progress { stage: Stage::Read, done, total: passes * files.graph.len() });
            }
        };
        let layout = match offsets {
            Some(offsets) => Layout::of_offsets::<O>(files, (offsets, files.read.offsets), sizes)?,
            None => Layout::scan::<O>(files, sizes, &progress)?,
        };
        let (read, before) = (AtomicU64::new(0), (passes - 1) * files.graph.len());
        let decoded = |segment: &Segment| {
            let bits = layout.bits_of(segment.vertices.clone());
            let more = bits.end / 8 - bits.start / 8;
            progress(before + read.fetch_add(more, Ordering::Relaxed) + more);
        };
        let decoder = Decoder::<O>::new(files, &layout, sizes);
        let input = Input { files, segments: &layout.segments, decoder, decoded: &decoded };
        match (in_memory, wide, vertices > MAX_NARROW_VERTICES) {
            (true, false, _) => self.lists::<O, u32>(&input),
            (true, true, _) => self.lists::<O, u64>(&input),
            (false, _, false) => self.edges::<O, u32>(&input),
            (false, _, true) => self.edges::<O, u64>(&input),
        }
    }

    /// Returns true if the graph is made in memory, and false if its edges are sorted.
    fn fits(&self, files: &Files<'_>, wide: bool) -> Result<bool, ImportError> {
        let (vertices, arcs) = (u128::from(files.shape().vertices), u128::from(files.shape().arcs));
        let (width, what) = (if wide { 8 } else { 4 }, files.graph.path().display().to_string());
        // Where each list begins in the bits, and in the graph.
        let places = 16 * (vertices + 1);
        let mirrored = match self.options.orientation {
            Orientation::Undirected => build::peak_bytes(vertices, 2 * arcs, width, 0),
            _ => 0,
        };
        let needed = places + arcs * width + mirrored;
        match &self.budget {
            None => memory::check(&what, vertices, arcs, needed, self.options.memory).map(|()| true),
            Some(budget) if places > budget.memory.into() => {
                let needed = u64::try_from(places).unwrap_or(u64::MAX);
                Err(ImportError::SmallBudget { what, vertices: files.shape().vertices, needed, limit: budget.memory })
            }
            // The lists are turned round, too.
            Some(budget) => Ok(3 * needed <= budget.memory.into()),
        }
    }

    /// Decodes the lists to their places in memory.
    fn lists<O: BitOrder, V: VertexId>(&self, input: &Input<'_, O>) -> Result<Contents, ImportError> {
        let Shape { vertices, arcs, .. } = *input.files.shape();
        let (mut neighbours, mut offsets) = (vec![V::default(); arcs as usize], vec![0u64; vertices as usize + 1]);
        let loops = AtomicU64::new(0);
        let decode = |_, mut lists: Lists<'_, V>| {
            let own = input.decoder.segment(&mut lists, &mut Earlier::default())?;
            loops.fetch_add(own, Ordering::Relaxed);
            (input.decoded)(lists.segment);
            Ok(())
        };
        let loops = match parallel::try_each_part(input.parts(&mut neighbours, &mut offsets), decode) {
            Ok(()) => loops.into_inner(),
            Err(Failure::Import(e)) => return Err(e),
            Err(Failure::Deep) => {
                let mut earlier = Earlier::default();
                let parts = input.parts(&mut neighbours, &mut offsets).into_iter();
                parts.map(|mut lists| self.next_lists(input, &mut lists, &mut earlier)).sum::<Result<_, _>>()?
            }
        };
        let (neighbours, ids, keep) = (build::wrap(neighbours), Ids::dense(0, vertices), self.options.keep_self_loops);
        let csr = if loops == 0 || keep {
            Csr::stored(offsets, neighbours, None, true, ids, NeighbourOrder::ById)
        } else {
            Csr::from_parts_with(offsets, neighbours, None, true, ids, false)
                .map_err(|e| wrong(input.files.graph, e.to_string()))?
        };
        let (csr, orientation) = match self.options.orientation {
            Orientation::Auto => (csr, OrientationReason::Declared),
            Orientation::Directed => (csr, OrientationReason::Requested),
            Orientation::Undirected => (csr.mirrored(), OrientationReason::Requested),
        };
        let kept = if keep { loops } else { 0 };
        let duplicates = if csr.directed() { 0 } else { 2 * (arcs - loops) + kept - csr.arcs() };
        let weights = self.options.weights.source(false);
        let csr = raw::give_weights(csr, weights, self.options.seed);
        let (format, bytes) = (Format::BvGraph, input.files.graph.len());
        let summary = Summary { format, orientation, weights, input_edges: arcs, self_loops: loops, duplicates, bytes };
        Ok(Contents::Graph(Loaded::new(csr, summary)))
    }

    /// Decodes the lists to edges.
    fn edges<O: BitOrder, V: VertexId>(&self, input: &Input<'_, O>) -> Result<Contents, ImportError> {
        let pieces = match self.pieces_of::<O, V>(input, None) {
            Err(Failure::Deep) => self.pieces_of::<O, V>(input, Some(Earlier::default())),
            pieces => pieces,
        };
        let pieces = pieces.map_err(|failure| input.refused(failure))?;
        Ok(Contents::Edges(Read {
            format: Format::BvGraph,
            path: input.files.graph.path().to_owned(),
            pieces,
            ids: Some(Ids::dense(0, input.files.shape().vertices)),
            directed: Some(true),
            called_directed: false,
            mirrored: false,
            both_listed: false,
            translation: None,
            weighted: false,
            bytes: input.files.graph.len(),
        }))
    }

    /// Decodes the lists to pieces of edges, with `earlier` one after the other.
    fn pieces_of<O: BitOrder, V: VertexId>(
        &self,
        input: &Input<'_, O>,
        mut earlier: Option<Earlier<V>>,
    ) -> Result<Pieces, Failure> {
        let mut pieces = self.pieces();
        let piece = |segment: &Segment, earlier: Option<&mut Earlier<V>>| -> Result<RawEdges, Failure> {
            let mut out = vec![V::default(); segment.arc_count()];
            let mut ends = vec![0; segment.vertex_count()];
            let mut lists = Lists::new(segment, &mut out, &mut ends);
            match earlier {
                Some(earlier) => self.next_lists(input, &mut lists, earlier)?,
                None => input.decoder.segment(&mut lists, &mut Earlier::default())?,
            };
            let mut edges = RawEdges::with_capacity(segment.arc_count());
            for vertex in segment.vertices.clone() {
                lists.of(vertex).iter().for_each(|to| edges.push(vertex, to.number()));
            }
            (input.decoded)(segment);
            Ok(edges)
        };
        if earlier.is_some() {
            for segment in input.segments {
                pieces.push(piece(segment, earlier.as_mut())?, 0)?;
            }
            return Ok(pieces);
        }
        for group in input.segments.chunks(rayon::current_num_threads()) {
            let edges = parallel::map(group.len(), |i| piece(&group[i], None));
            // The first segment with an error decides, for any number of threads.
            edges.into_iter().try_for_each(|edges| Ok::<_, Failure>(pieces.push(edges?, 0)?))?;
        }
        Ok(pieces)
    }

    /// Decodes the next lists where all segments are decoded one after the other. `earlier` are the lists that they may
    /// refer to.
    fn next_lists<O: BitOrder, V: VertexId>(
        &self,
        input: &Input<'_, O>,
        lists: &mut Lists<'_, V>,
        earlier: &mut Earlier<V>,
    ) -> Result<u64, ImportError> {
        let loops = input.decoder.segment(lists, earlier).map_err(|failure| input.refused(failure))?;
        let needed = earlier.advance(lists, input.files.shape().window);
        let what = input.files.graph.path().display().to_string();
        memory::check(
            &what,
            lists.segment.vertices.end.into(),
            lists.segment.arcs.end.into(),
            needed.into(),
            self.memory_limit(),
        )?;
        Ok(loops)
    }
}

/// A graph that is decoded.
struct Input<'a, O> {
    files: &'a Files<'a>,
    segments: &'a [Segment],
    decoder: Decoder<'a, O>,
    /// Called with each segment that is decoded.
    decoded: &'a (dyn Fn(&Segment) + Sync),
}

impl<O> Input<'_, O> {
    /// Divides the place of neighbours, and that of offsets behind the first, among the segments.
    fn parts<'a, V>(&'a self, mut neighbours: &'a mut [V], offsets: &'a mut [u64]) -> Vec<Lists<'a, V>> {
        let mut offsets = &mut offsets[1..];
        let part = |segment: &'a Segment| {
            let (out, ends);
            (out, neighbours) = std::mem::take(&mut neighbours).split_at_mut(segment.arc_count());
            (ends, offsets) = std::mem::take(&mut offsets).split_at_mut(segment.vertex_count());
            Lists::new(segment, out, ends)
        };
        self.segments.iter().map(part).collect()
    }

    fn refused(&self, failure: Failure) -> ImportError {
        match failure {
            Failure::Import(e) => e,
            Failure::Deep => wrong(self.files.graph, "its lists depend on too many others".to_owned()),
        }
    }
}

fn wrong(bytes: &Bytes<'_>, reason: String) -> ImportError {
    ImportError::BvGraph { path: bytes.path().to_owned(), reason }
}
