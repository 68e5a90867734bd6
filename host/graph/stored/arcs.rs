//! Reading of a stored graph's arcs in pieces, for graphs whose edges do not fit into memory.

use super::open::damaged;
use super::packed::PackedColumn;
use super::{StoredGraph, WeightType};
use crate::engine::EngineError;
use crate::graph::csr::CsrError;
use crate::graph::edges::{GraphError, NarrowEdge, WideEdge};
use crate::graph::order::Order;
use crate::graph::parallel;
use crate::graph::place::{IN_NEIGHBOURS, NEIGHBOURS, WEIGHTED};
use crate::storage::{ArrayReader, Element, StorageError, Volume};
use std::fmt;

/// Arcs of a piece.
pub(super) const ARCS_AT_ONCE: usize = 1 << 18;

/// An arc of a stored graph. Vertices are numbers from 0.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct StoredArc {
    /// Vertex from which the arc leads.
    pub from: u64,
    /// Vertex to which the arc leads.
    pub to: u64,
    /// Weight, if weights are read.
    pub weight: Option<StoredWeight>,
}

/// Weight of an arc, in the type in which it is stored. Displayed without loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StoredWeight {
    /// Integer.
    U32(u32),
    /// Single precision.
    F32(f32),
    /// Double precision.
    F64(f64),
}

impl StoredWeight {
    /// Returns the weight that the bits of a stored edge are. `wide` edges have 64 bits for a weight.
    fn of_bits(kind: WeightType, wide: bool, bits: u64) -> Self {
        match kind {
            WeightType::U32 => Self::U32(bits as u32),
            WeightType::F32 if wide => Self::F32(f64::from_bits(bits) as f32),
            WeightType::F32 => Self::F32(f32::from_bits(bits as u32)),
            WeightType::F64 => Self::F64(f64::from_bits(bits)),
        }
    }

    pub(super) fn real(self) -> f64 {
        match self {
            Self::U32(w) => w.into(),
            Self::F32(w) => w.into(),
            Self::F64(w) => w,
        }
    }
}

impl fmt::Display for StoredWeight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::U32(w) => w.fmt(f),
            Self::F32(w) => write!(f, "{w:?}"),
            Self::F64(w) => write!(f, "{w:?}"),
        }
    }
}

/// Reader of all arcs in the order of their lists. It holds at most 2^18 arcs in memory at a time.
///
/// # Examples
///
/// ```
/// use warpbell::engine::Engine;
/// use warpbell::graph::stored::{GraphToStore, StoredGraph};
/// use warpbell::graph::{Input, LoadOptions};
/// use warpbell::storage::{Drive, OverwritePolicy, Volume};
///
/// let loaded = "kron:8".parse::<Input>()?.load(&LoadOptions::default())?;
/// let graph = GraphToStore::new("links".parse()?, loaded);
/// let drive = Drive::create("soft:mem:1M", 1 << 20, &OverwritePolicy::none())?;
/// let volume = Volume::on(&Engine::cpu()?, [drive]).build()?;
/// graph.store(&volume, false, &mut |_written| ())?;
///
/// let stored = StoredGraph::open(&volume, graph.name())?;
/// let mut arcs = stored.arcs(&volume, false)?;
/// let mut seen = 0;
/// while let Some(piece) = arcs.next_piece()? {
///     seen += piece.arcs().filter(|arc| arc.from != arc.to).count() as u64;
/// }
/// assert_eq!(seen, stored.info().arcs);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ArcReader<'a> {
    graph: &'a StoredGraph,
    volume: &'a Volume,
    offsets: &'a [u64],
    /// Readers of the lists, and of the lists with weights; `None` after the end.
    columns: Option<Columns<'a>>,
    /// Neighbours with the bits of their weights, or with 0.
    arcs: Vec<(u64, u64)>,
    with_weights: Vec<(u64, u64)>,
    next: u64,
    at_once: usize,
}

struct Columns<'a> {
    neighbours: Box<dyn Column + Send + 'a>,
    weighted: Option<Box<dyn Column + Send + 'a>>,
}

impl<'a> ArcReader<'a> {
    /// Begins to read the lists (out-lists, or in-lists of a directed graph) in pieces of `at_once` arcs.
    pub(super) fn new(
        graph: &'a StoredGraph,
        volume: &'a Volume,
        inward: bool,
        weights: bool,
        at_once: usize,
    ) -> Result<Self, GraphError> {
        let (part, offsets) = match graph.in_offsets().filter(|_| inward) {
            Some(offsets) => (IN_NEIGHBOURS, offsets),
            None => (NEIGHBOURS, graph.list_offsets(false)),
        };
        let packed = |words, weighted| -> Result<Box<dyn Column + Send + 'a>, GraphError> {
            Ok(Box::new(PackedColumn::new(graph, volume, words, weighted)?))
        };
        let weighted = match weights {
            true if graph.has_packed_weights() => Some(packed(WEIGHTED, true)?),
            true if graph.info().wide_weights() => {
                Some(column(graph, volume, WEIGHTED, |e: WideEdge| (e.id, e.weight))?)
            }
            true => Some(column(graph, volume, WEIGHTED, |e: NarrowEdge| (e.id.into(), e.weight.into()))?),
            false => None,
        };
        let neighbours = match graph.info.neighbour_bytes {
            _ if graph.info.packed => packed(part, false)?,
            4 => column(graph, volume, part, |n: u32| (n.into(), 0))?,
            _ => column(graph, volume, part, |n: u64| (n, 0))?,
        };
        let columns = Some(Columns { neighbours, weighted });
        Ok(Self { graph, volume, offsets, columns, arcs: Vec::new(), with_weights: Vec::new(), next: 0, at_once })
    }

    /// Reads the next arcs. Returns `None` behind the last one, when the data has matched its checksums.
    ///
    /// # Errors
    /// * [`StoredError::Damaged`](super::StoredError::Damaged) if an arc leads to a vertex that does not exist, or if
    ///   lists with and without weights differ.
    /// * [`GraphError::Storage`] if the volume cannot be read, or a part does not match its checksum.
    /// * [`GraphError::Engine`] if the engine was cancelled.
    pub fn next_piece(&mut self) -> Result<Option<ArcPiece<'_>>, GraphError> {
        let (first, all) = (self.next, self.all());
        let Some(columns) = &mut self.columns else { return Ok(None) };
        if self.volume.engine().is_cancelled() {
            return Err(EngineError::Cancelled.into());
        }
        let count = (all - first).min(self.at_once as u64) as usize;
        if count == 0 {
            if let Some(columns) = self.columns.take() {
                columns.finish()?;
            }
            return Ok(None);
        }
        if let Err(fault) = columns.neighbours.read(count, &mut self.arcs) {
            return Err(self.or_checksum(fault));
        }
        let vertices = self.graph.info.vertices;
        if let Some(i) = parallel::position(self.arcs.len(), |i| self.arcs[i].0 >= vertices) {
            let (index, found) = (first + i as u64, self.arcs[i].0);
            let reason = CsrError::Neighbour { index, found, vertices }.to_string();
            return Err(self.or_checksum(damaged(self.graph.name(), reason)));
        }
        if let Some(weighted) = &mut columns.weighted {
            if let Err(fault) = weighted.read(count, &mut self.with_weights) {
                return Err(self.or_checksum(fault));
            }
            if !parallel::all(self.arcs.len(), |i| self.arcs[i].0 == self.with_weights[i].0) {
                let reason = "its weighted edges are not those of its lists".to_owned();
                return Err(self.or_checksum(damaged(self.graph.name(), reason)));
            }
            std::mem::swap(&mut self.arcs, &mut self.with_weights);
        }
        self.next += count as u64;
        let kind = columns.weighted.as_ref().and(self.graph.info.weights);
        let wide = self.graph.info().wide_weights();
        let order = self.graph.order();
        Ok(Some(ArcPiece { first, arcs: &self.arcs, offsets: self.offsets, order, kind, wide }))
    }

    /// Returns the number of arcs of the lists.
    fn all(&self) -> u64 {
        self.offsets.last().copied().unwrap_or_default()
    }

    /// Returns the error of a checksum, if the data has one, and otherwise `found`: data that a device has damaged also
    /// contradicts other data. Reads all that remains, for the checksums.
    pub(super) fn or_checksum(&mut self, found: GraphError) -> GraphError {
        if !matches!(found, GraphError::Stored(_)) {
            return found;
        }
        let finished = self.columns.take().map_or(Ok(()), Columns::finish);
        finished.err().map_or(found, GraphError::from)
    }
}

impl Columns<'_> {
    fn finish(self) -> Result<(), StorageError> {
        self.neighbours.finish()?;
        self.weighted.map_or(Ok(()), Column::finish)
    }
}

impl fmt::Debug for ArcReader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ArcReader({}, {} of {} arcs)", self.graph.name(), self.next, self.all())
    }
}

/// An array with one element for each arc.
trait Column {
    /// Reads elements as neighbours and bits of weights.
    fn read(&mut self, count: usize, out: &mut Vec<(u64, u64)>) -> Result<(), GraphError>;

    /// Reads what remains, and compares the checksum.
    fn finish(self: Box<Self>) -> Result<(), StorageError>;
}

struct Converted<'a, T> {
    reader: ArrayReader<'a, T>,
    buffer: Vec<T>,
    convert: fn(T) -> (u64, u64),
}

fn column<'a, T: Element + Send + Sync>(
    graph: &StoredGraph,
    volume: &'a Volume,
    part: &str,
    convert: fn(T) -> (u64, u64),
) -> Result<Box<dyn Column + Send + 'a>, GraphError> {
    let array = graph.name().array(part);
    let reader = volume.array_reader::<T>(&array)?;
    graph.check_count(&array, reader.len())?;
    Ok(Box::new(Converted { reader, buffer: Vec::new(), convert }))
}

impl Column for PackedColumn<'_> {
    fn read(&mut self, count: usize, out: &mut Vec<(u64, u64)>) -> Result<(), GraphError> {
        PackedColumn::read(self, count, out)
    }

    fn finish(self: Box<Self>) -> Result<(), StorageError> {
        PackedColumn::finish(*self)
    }
}

impl<T: Element + Send + Sync> Column for Converted<'_, T> {
    fn read(&mut self, count: usize, out: &mut Vec<(u64, u64)>) -> Result<(), GraphError> {
        self.buffer.resize(count, T::zeroed());
        self.reader.read(&mut self.buffer)?;
        out.clear();
        parallel::extend(out, count, |i| (self.convert)(self.buffer[i]));
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<(), StorageError> {
        while self.reader.remaining() > 0 {
            self.buffer.resize(self.reader.remaining().min(ARCS_AT_ONCE as u64) as usize, T::zeroed());
            self.reader.read(&mut self.buffer)?;
        }
        self.reader.finish()
    }
}

/// Arcs that follow each other in the lists of a stored graph.
#[derive(Clone, Copy, Debug)]
pub struct ArcPiece<'a> {
    /// Index of the first arc.
    pub(super) first: u64,
    /// Neighbours with the bits of their weights.
    pub(super) arcs: &'a [(u64, u64)],
    offsets: &'a [u64],
    order: Option<&'a Order>,
    kind: Option<WeightType>,
    wide: bool,
}

impl<'a> ArcPiece<'a> {
    /// Returns the arcs, in the order of the lists.
    pub fn arcs(&self) -> impl Iterator<Item = StoredArc> + use<'a> {
        let order = self.order;
        let outside = move |v| order.map_or(v, |order| order.outside(v));
        self.arcs_inside().map(move |arc| StoredArc { from: outside(arc.from), to: outside(arc.to), ..arc })
    }

    /// Returns the arcs, with the numbers that vertices have in the lists.
    pub(super) fn arcs_inside(&self) -> impl Iterator<Item = StoredArc> + use<'a> {
        let ArcPiece { first, arcs, offsets, kind, wide, .. } = *self;
        let mut from = offsets.partition_point(|&o| o <= first).saturating_sub(1);
        arcs.iter().zip(first..).map(move |(&(to, bits), arc)| {
            while offsets[from + 1] <= arc {
                from += 1;
            }
            let weight = kind.map(|kind| StoredWeight::of_bits(kind, wide, bits));
            StoredArc { from: from as u64, to, weight }
        })
    }

    /// Returns parts of at most `most` arcs.
    pub(super) fn parts(self, most: usize) -> Vec<ArcPiece<'a>> {
        let part = |(i, arcs)| ArcPiece { first: self.first + (i * most) as u64, arcs, ..self };
        self.arcs.chunks(most).enumerate().map(part).collect()
    }

    /// Appends the weights as numbers of one type.
    pub(super) fn append_weights<W: Send>(self, list: &mut Vec<W>, convert: impl Fn(StoredWeight) -> W + Sync) {
        let kind = self.kind.unwrap_or(WeightType::U32);
        parallel::extend(list, self.arcs.len(), |i| convert(StoredWeight::of_bits(kind, self.wide, self.arcs[i].1)));
    }
}
