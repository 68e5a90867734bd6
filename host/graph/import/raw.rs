//! Edges as they were read, and their conversion to a graph.

use super::bytes::Bytes;
use super::error::{ImportError, LineFault};
use super::memory;
use super::text::{self, Weight};
use super::{
    Format, LoadOptions, Loaded, Orientation, OrientationReason, Precision, Progress, Reader, Stage, Summary,
    WeightMode, WeightSource,
};
use crate::graph::build::{self, Built, Chunk, EdgeWeight, Rule};
use crate::graph::csr::{Csr, MAX_NARROW_VERTICES, VertexId, Weights};
use crate::graph::generate;
use crate::graph::ids::{Ids, Renumber};
use parking_lot::Mutex;

/// Edges of one piece of a file.
#[derive(Default)]
pub(crate) struct RawEdges {
    pairs: Pairs,
    weights: RawWeights,
}

/// Pairs of vertices, in 32 bits as long as all fit.
enum Pairs {
    Narrow(Vec<[u32; 2]>),
    Wide(Vec<[u64; 2]>),
}

impl Default for Pairs {
    fn default() -> Self {
        Self::Narrow(Vec::new())
    }
}

/// Weights, kept as integers until a real number occurs.
enum RawWeights {
    Integer(Vec<u32>),
    Real(Vec<f64>),
}

impl Default for RawWeights {
    fn default() -> Self {
        Self::Integer(Vec::new())
    }
}

impl RawEdges {
    pub(crate) fn push(&mut self, from: u64, to: u64) {
        if let Pairs::Narrow(list) = &mut self.pairs {
            if let (Ok(from), Ok(to)) = (u32::try_from(from), u32::try_from(to)) {
                return list.push([from, to]);
            }
            let wide = list.iter().map(|&[a, b]| [a.into(), b.into()]).collect();
            self.pairs = Pairs::Wide(wide);
        }
        if let Pairs::Wide(list) = &mut self.pairs {
            list.push([from, to]);
        }
    }

    /// Parses and stores a weight for the edge that is stored with it.
    pub(crate) fn push_weight(&mut self, word: &[u8], precision: Precision) -> Result<(), LineFault> {
        self.push_parsed(text::weight(word)?, precision).map_err(|_| LineFault::NotFinite { found: text::quote(word) })
    }

    /// Stores a weight for the edge that is stored with it. The only fault is a real number beyond the precision.
    pub(crate) fn push_parsed(&mut self, weight: Weight, precision: Precision) -> Result<(), LineFault> {
        if let Weight::Real(value) = weight
            && precision == Precision::Single
            && !(value as f32).is_finite()
        {
            return Err(LineFault::NotFinite { found: value.to_string() });
        }
        match (&mut self.weights, weight) {
            (RawWeights::Integer(list), Weight::Integer(w)) => list.push(w),
            (RawWeights::Integer(list), Weight::Real(w)) => {
                let mut reals: Vec<f64> = list.iter().map(|&w| w.into()).collect();
                reals.push(w);
                self.weights = RawWeights::Real(reals);
            }
            (RawWeights::Real(list), Weight::Integer(w)) => list.push(w.into()),
            (RawWeights::Real(list), Weight::Real(w)) => list.push(w),
        }
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        match &self.pairs {
            Pairs::Narrow(list) => list.len(),
            Pairs::Wide(list) => list.len(),
        }
    }

    /// Calls `take` with both vertices of each edge.
    pub(crate) fn each(&self, take: &mut dyn FnMut(u64)) {
        match &self.pairs {
            Pairs::Narrow(list) => list.as_flattened().iter().for_each(|&id| take(id.into())),
            Pairs::Wide(list) => list.as_flattened().iter().for_each(|&id| take(id)),
        }
    }

    fn pair(&self, i: usize) -> [u64; 2] {
        match &self.pairs {
            Pairs::Narrow(list) => list[i].map(u64::from),
            Pairs::Wide(list) => list[i],
        }
    }

    fn integer(&self, i: usize) -> u32 {
        match &self.weights {
            RawWeights::Integer(list) => list[i],
            // This is unreachable: integers are asked for only if no piece holds a real number.
            RawWeights::Real(list) => list[i] as u32,
        }
    }

    fn real(&self, i: usize) -> f64 {
        match &self.weights {
            RawWeights::Integer(list) => list[i].into(),
            RawWeights::Real(list) => list[i],
        }
    }

    /// Returns the first vertex of the last edge.
    pub(crate) fn last_from(&self) -> Option<u64> {
        let last = self.len().checked_sub(1)?;
        Some(self.pair(last)[0])
    }

    /// Returns the edges for which `keep` returns a pair, with that pair and their weights.
    pub(crate) fn retained(self, keep: impl Fn(u64, u64) -> Option<[u64; 2]>) -> Self {
        let mut kept = Self::default();
        let indices: Vec<usize> = (0..self.len())
            .filter(|&i| {
                let [from, to] = self.pair(i);
                keep(from, to).inspect(|&[from, to]| kept.push(from, to)).is_some()
            })
            .collect();
        kept.weights = match &self.weights {
            RawWeights::Integer(list) if list.is_empty() => RawWeights::default(),
            RawWeights::Integer(list) => RawWeights::Integer(indices.into_iter().map(|i| list[i]).collect()),
            RawWeights::Real(list) => RawWeights::Real(indices.into_iter().map(|i| list[i]).collect()),
        };
        kept
    }

    fn is_real(&self) -> bool {
        matches!(self.weights, RawWeights::Real(_))
    }
}

/// Input of [`finish`]: the edges that were read, and the facts about their file.
pub(crate) struct Read {
    pub format: Format,
    pub edges: Vec<RawEdges>,
    /// Identifiers of the vertices, if the edges hold vertex numbers already. `None` if the edges hold identifiers that
    /// are not numbered yet.
    pub ids: Option<Ids>,
    /// Direction that the file states, if it does.
    pub directed: Option<bool>,
    /// True if the file states that it is directed, but may have each edge in both directions.
    pub called_directed: bool,
    /// True if each entry stands for both directions, for any option.
    pub mirrored: bool,
    /// True if weights of the edges were read.
    pub weighted: bool,
    /// Bytes read.
    pub bytes: u64,
}

/// Makes the graph from the edges that were read.
pub(crate) fn finish(bytes: &Bytes<'_>, read: Read, options: &LoadOptions<'_>) -> Result<Loaded, ImportError> {
    finish_translated(bytes, read, &|vertex| vertex, options)
}

/// Makes the graph as [`finish`] does. If the identifiers are known, edges hold numbers that `translate` turns into
/// vertices.
pub(crate) fn finish_translated(
    bytes: &Bytes<'_>,
    read: Read,
    translate: &(dyn Fn(u64) -> u64 + Sync),
    options: &LoadOptions<'_>,
) -> Result<Loaded, ImportError> {
    let count: usize = read.edges.iter().map(RawEdges::len).sum();
    let (numbers, known) = match read.ids {
        Some(ids) => (Renumber::known(ids), true),
        None => (Renumber::gather(&read.edges, |piece, take| piece.each(take)), false),
    };
    let vertices = numbers.ids().len();
    if vertices == 0 {
        return Err(Reader::no_vertices(bytes));
    }
    let (mirror, directed, reason) = match (options.orientation, read.directed) {
        (Orientation::Directed, _) => (read.mirrored, Some(true), OrientationReason::Requested),
        (Orientation::Undirected, _) => (true, Some(false), OrientationReason::Requested),
        (Orientation::Auto, Some(true)) => (read.mirrored, Some(true), OrientationReason::Declared),
        (Orientation::Auto, Some(false)) => (true, Some(false), OrientationReason::Declared),
        (Orientation::Auto, None) => (read.mirrored, None, OrientationReason::OneWay),
    };
    let wide = options.wide || vertices > MAX_NARROW_VERTICES;
    let real = read.weighted && read.edges.iter().any(RawEdges::is_real);
    let weight_width = match (read.weighted, real, options.precision) {
        (false, ..) => 0,
        (true, true, Precision::Double) => 8,
        (true, ..) => 4,
    };
    let arcs = (count as u128) << u32::from(mirror);
    let needed = build::peak_bytes(vertices.into(), arcs, if wide { 8 } else { 4 }, weight_width);
    memory::check(&bytes.path().display().to_string(), vertices.into(), count as u128, needed, options.memory)?;

    let job = Job {
        pieces: read.edges.into_iter().map(|piece| Mutex::new(Some(piece))).collect(),
        count,
        vertices: vertices as usize,
        rule: Rule { mirror, keep_self_loops: options.keep_self_loops },
        vertex: &|id| if known { translate(id) } else { numbers.vertex(id).unwrap_or(0) },
        options,
    };
    let (csr, self_loops, duplicates) = match (weight_width, real, options.precision, wide) {
        (0, _, _, false) => job.build::<u32, ()>(|_, _| ()),
        (0, _, _, true) => job.build::<u64, ()>(|_, _| ()),
        (_, false, _, false) => job.build::<u32, u32>(RawEdges::integer),
        (_, false, _, true) => job.build::<u64, u32>(RawEdges::integer),
        (_, true, Precision::Single, false) => job.build::<u32, f32>(|piece, i| piece.real(i) as f32),
        (_, true, Precision::Single, true) => job.build::<u64, f32>(|piece, i| piece.real(i) as f32),
        (_, true, Precision::Double, false) => job.build::<u32, f64>(RawEdges::real),
        (_, true, Precision::Double, true) => job.build::<u64, f64>(RawEdges::real),
    };
    let csr = csr(numbers.into_ids());
    let (csr, reason) = match directed {
        Some(true) => (csr, reason),
        Some(false) => (csr.into_undirected(), reason),
        None if csr.one_way_edge().is_none() => (csr.into_undirected(), OrientationReason::Symmetric),
        None if read.called_directed => (csr, OrientationReason::Declared),
        None if !csr.has_two_way_edge() => (csr, OrientationReason::Once),
        None => (csr, reason),
    };
    let (csr, weights) = give_weights(csr, read.weighted, options);
    let summary = Summary {
        format: read.format,
        orientation: reason,
        weights,
        input_edges: count as u64,
        self_loops,
        duplicates,
        bytes: read.bytes,
    };
    Ok(Loaded { csr, summary })
}

/// Gives a graph from a file the weights that the options ask for.
pub(crate) fn give_weights(csr: Csr, weighted: bool, options: &LoadOptions<'_>) -> (Csr, WeightSource) {
    match options.weights {
        WeightMode::Ignore => (csr.without_weights(), WeightSource::None),
        WeightMode::Input if weighted => (csr, WeightSource::Input),
        WeightMode::Input => {
            let ones = vec![1; csr.arcs() as usize];
            (csr.with_weights(Weights::U32(ones)), WeightSource::Unit)
        }
        WeightMode::RandomIntegers => (generate::with_random_integers(csr, options.seed), WeightSource::RandomIntegers),
        WeightMode::RandomReals => (generate::with_random_reals(csr, options.seed), WeightSource::RandomReals),
    }
}

struct Job<'a> {
    pieces: Vec<Mutex<Option<RawEdges>>>,
    count: usize,
    vertices: usize,
    rule: Rule,
    vertex: &'a (dyn Fn(u64) -> u64 + Sync),
    options: &'a LoadOptions<'a>,
}

/// A graph without its identifiers (which are in use until it is built), and the numbers of self-loops and duplicates.
type Unnamed = (Box<dyn FnOnce(Ids) -> Csr>, u64, u64);

impl Job<'_> {
    fn build<V: VertexId, W: EdgeWeight>(&self, weight: impl Fn(&RawEdges, usize) -> W + Sync) -> Unnamed {
        let progress = |done, total| {
            if let Some(progress) = self.options.progress {
                progress(Progress { stage: Stage::Build, done, total });
            }
        };
        let built: Built<V, W> =
            build::build_parts(self.vertices, self.count, self.pieces.len(), self.rule, &progress, |i| {
                // Each piece is taken once. Its memory is freed as soon as it is partitioned.
                let piece = self.pieces[i].lock().take().unwrap_or_default();
                let mut chunk = Chunk::with_capacity(piece.len());
                for e in 0..piece.len() {
                    let pair = piece.pair(e).map(|id| V::from_index((self.vertex)(id) as usize));
                    chunk.push(pair, weight(&piece, e));
                }
                chunk
            });
        let (self_loops, duplicates) = (built.self_loops, built.duplicates);
        (Box::new(move |ids| Csr::assemble(built, true, ids)), self_loops, duplicates)
    }
}
