//! Edges as they were read, and their conversion to a graph.

use super::error::{ImportError, SerializedFault};
use super::line_fault::LineFault;
use super::memory;
use super::names::Translation;
use super::notice::Notice;
use super::pieces::Pieces;
use super::text::{self, Weight};
use super::{
    Format, LoadOptions, Loaded, Orientation, OrientationReason, Precision, Progress, Reader, Stage, Summary,
    WeightSource,
};
use crate::graph::build::{self, Chunk, EdgeWeight, Rule};
use crate::graph::csr::{Csr, CsrError, MAX_NARROW_VERTICES, VertexId, Weights};
use crate::graph::generate;
use crate::graph::ids::{Ids, Renumber};
use crate::graph::parallel;
use crate::memory::free_host_memory;
use parking_lot::Mutex;
use std::path::PathBuf;

/// Edges of one piece of a file.
#[derive(Default)]
#[cfg_attr(test, derive(Debug, PartialEq))]
pub(crate) struct RawEdges {
    pub(super) pairs: Pairs,
    pub(super) weights: RawWeights,
    pub(super) rounding: Rounding,
}

/// Loss of weights in 32-bit floats.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rounding {
    /// The first weight that such a float does not hold, and its line.
    pub first: Option<(u64, f64)>,
    /// The largest difference between a weight and its float.
    pub difference: f64,
}

impl Rounding {
    fn add(&mut self, line: u64, weight: Weight) {
        /// Integers up to here are floats, too.
        const EXACT: u32 = 1 << 24;
        let exact = match weight {
            Weight::Integer(w) if w <= EXACT => return,
            Weight::Integer(w) => w.into(),
            Weight::Real(w) => w,
        };
        let difference = (f64::from(exact as f32) - exact).abs();
        if difference > 0.0 {
            self.first.get_or_insert((line, exact));
            self.difference = self.difference.max(difference);
        }
    }

    /// Adds the loss of later lines, which `in_front` lines precede.
    pub(super) fn append(&mut self, later: Self, in_front: u64) {
        self.first = self.first.or(later.first.map(|(line, weight)| (line + in_front, weight)));
        self.difference = self.difference.max(later.difference);
    }
}

/// Pairs of vertices, in 32 bits as long as all fit.
#[cfg_attr(test, derive(Debug, PartialEq))]
pub(super) enum Pairs {
    Narrow(Vec<[u32; 2]>),
    Wide(Vec<[u64; 2]>),
}

impl Default for Pairs {
    fn default() -> Self {
        Self::Narrow(Vec::new())
    }
}

/// Weights, kept as integers until a real number occurs.
#[cfg_attr(test, derive(Debug, PartialEq))]
pub(super) enum RawWeights {
    Integer(Vec<u32>),
    Real(Vec<f64>),
}

impl Default for RawWeights {
    fn default() -> Self {
        Self::Integer(Vec::new())
    }
}

impl RawEdges {
    /// Makes an empty piece with a place for edges of 32-bit vertices.
    pub(super) fn with_capacity(edges: usize) -> Self {
        Self { pairs: Pairs::Narrow(Vec::with_capacity(edges)), ..Self::default() }
    }

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

    /// Parses and stores a weight of a line for the edge that is stored with it.
    pub(crate) fn push_weight(&mut self, word: &[u8], line: u64, precision: Precision) -> Result<(), LineFault> {
        let weight = text::weight(word)?;
        self.push_parsed(weight, line, precision).map_err(|_| LineFault::BeyondSingle { found: text::quote(word) })
    }

    /// Stores a weight of a line for the edge that is stored with it. The only fault is [`LineFault::BeyondSingle`].
    pub(crate) fn push_parsed(&mut self, weight: Weight, line: u64, precision: Precision) -> Result<(), LineFault> {
        self.rounding.add(line, weight);
        if let Weight::Real(value) = weight
            && precision == Precision::Single
            && !(value as f32).is_finite()
        {
            return Err(LineFault::BeyondSingle { found: value.to_string() });
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

    /// Stores an integer weight for the edge that is stored with it. All edges have one.
    pub(super) fn push_integer(&mut self, weight: u32) {
        if let RawWeights::Integer(list) = &mut self.weights {
            list.push(weight);
        }
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

    pub(super) fn pair(&self, i: usize) -> [u64; 2] {
        match &self.pairs {
            Pairs::Narrow(list) => list[i].map(u64::from),
            Pairs::Wide(list) => list[i],
        }
    }

    pub(super) fn integer(&self, i: usize) -> u32 {
        match &self.weights {
            RawWeights::Integer(list) => list[i],
            // This is unreachable: integers are asked for only if no piece holds a real number.
            RawWeights::Real(list) => list[i] as u32,
        }
    }

    pub(super) fn real(&self, i: usize) -> f64 {
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
        kept.rounding = self.rounding;
        kept
    }

    pub(super) fn is_real(&self) -> bool {
        matches!(self.weights, RawWeights::Real(_))
    }

    /// Returns the memory of the edges in bytes.
    pub(super) fn bytes(&self) -> u64 {
        let pairs = match &self.pairs {
            Pairs::Narrow(list) => size_of_val(list.as_slice()),
            Pairs::Wide(list) => size_of_val(list.as_slice()),
        };
        let weights = match &self.weights {
            RawWeights::Integer(list) => size_of_val(list.as_slice()),
            RawWeights::Real(list) => size_of_val(list.as_slice()),
        };
        (pairs + weights) as u64
    }
}

/// Edges that were read, and the facts about their input.
pub(crate) struct Read {
    pub format: Format,
    /// File or generator.
    pub path: PathBuf,
    pub pieces: Pieces,
    /// Identifiers of the vertices, if the edges hold vertex numbers already. `None` if the edges hold identifiers that
    /// are not numbered yet.
    pub ids: Option<Ids>,
    /// Vertices of the numbers that the edges hold, if these are provisional.
    pub translation: Option<Translation>,
    /// Direction that the file states, if it does.
    pub directed: Option<bool>,
    /// True if the file states that it is directed, but may have each edge in both directions.
    pub called_directed: bool,
    /// True if each entry stands for both directions, for any option.
    pub mirrored: bool,
    /// True if the file states that each edge of an undirected graph is there in both directions.
    pub both_listed: bool,
    /// True if weights of the edges were read.
    pub weighted: bool,
    /// Bytes read.
    pub bytes: u64,
}

/// Decision about the direction of edges.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Direction {
    Directed,
    Undirected,
    /// Undirected, and each edge must be there in both directions with equal weights.
    Symmetric,
    /// Undirected if each edge occurs in both directions with equal weights.
    AsEdgesShow,
}

/// Edges with numbers for their vertices: what a graph is built of.
pub(super) struct Numbered {
    pub format: Format,
    pub path: PathBuf,
    pub pieces: Pieces,
    pub numbers: Renumber,
    /// True if the edges hold numbers already.
    known: bool,
    translation: Option<Translation>,
    pub mirror: bool,
    pub direction: Direction,
    reason: OrientationReason,
    called_directed: bool,
    pub wide: bool,
    weighted: bool,
    /// True if weights of the input are real numbers.
    pub real: bool,
    /// True if real weights have 64 bits.
    pub double: bool,
    /// True if real weights that are rounded to 32 bits are kept in 64, too.
    exact: bool,
    bytes: u64,
}

impl Numbered {
    /// Gives vertices their numbers, and decides what the edges themselves need not decide. Tables of identifiers take at
    /// most `table_bytes`.
    pub(super) fn of(read: Read, options: &LoadOptions<'_>, table_bytes: u64) -> Result<Self, ImportError> {
        let pieces = read.pieces;
        let each = |i: usize, take: &mut dyn FnMut(u64)| pieces.with(i, &mut |piece| piece.each(take));
        let (numbers, known) = match read.ids {
            Some(ids) => (Renumber::known(ids), true),
            None => (Renumber::gather(pieces.len(), each, table_bytes)?, false),
        };
        let vertices = numbers.ids().len();
        if vertices == 0 {
            return Err(Reader::no_vertices(read.path, read.bytes));
        }
        let (mirror, direction, reason) = match (options.orientation, read.directed) {
            (Orientation::Directed, _) => (read.mirrored, Direction::Directed, OrientationReason::Requested),
            (Orientation::Undirected, Some(false)) if read.both_listed => {
                (false, Direction::Symmetric, OrientationReason::Requested)
            }
            (Orientation::Auto, Some(false)) if read.both_listed => {
                (false, Direction::Symmetric, OrientationReason::Declared)
            }
            (Orientation::Undirected, _) => (true, Direction::Undirected, OrientationReason::Requested),
            (Orientation::Auto, Some(true)) => (read.mirrored, Direction::Directed, OrientationReason::Declared),
            (Orientation::Auto, Some(false)) => (true, Direction::Undirected, OrientationReason::Declared),
            (Orientation::Auto, None) => (read.mirrored, Direction::AsEdgesShow, OrientationReason::OneWay),
        };
        let real = read.weighted && pieces.is_real();
        Ok(Self {
            format: read.format,
            path: read.path,
            real,
            double: match options.precision {
                Precision::Auto => pieces.rounding().first.is_some(),
                Precision::Single => false,
                Precision::Double => true,
            },
            exact: options.exact_weights && real && is_rounded(options, &pieces),
            pieces,
            numbers,
            known,
            translation: read.translation,
            mirror,
            direction,
            reason,
            called_directed: read.called_directed,
            wide: options.wide || vertices > MAX_NARROW_VERTICES,
            weighted: read.weighted,
            bytes: read.bytes,
        })
    }

    /// Returns the number of the vertex with an identifier.
    pub(super) fn vertex(&self, id: u64) -> u64 {
        match &self.translation {
            Some(translation) => translation.of(id),
            None if self.known => id,
            None => self.numbers.vertex(id).unwrap_or(0),
        }
    }

    /// Returns the bytes of identifiers that are not an addition, and of their translation.
    pub(super) fn id_bytes(&self) -> u64 {
        let translation = self.translation.as_ref().map_or(0, |_| 8 * self.numbers.ids().len());
        match self.numbers.ids() {
            Ids::Dense { .. } => 0,
            Ids::Sparse(ids) => 8 * ids.len() as u64,
            Ids::Named(names) => (names.text().len() + size_of_val(names.offsets())) as u64 + translation,
        }
    }

    /// Returns the number of arcs before duplicates are dropped.
    pub(super) fn arcs(&self) -> u128 {
        u128::from(self.pieces.edges()) << u32::from(self.mirror)
    }

    pub(super) fn width(&self) -> u64 {
        if self.wide { 8 } else { 4 }
    }

    /// Returns the bytes of a weight that was read, as lists are built with it.
    pub(super) fn weight_width(&self) -> u64 {
        match self.weighted {
            false => 0,
            true if self.real && self.is_built_double() => 8,
            true => 4,
        }
    }

    /// Returns true if lists are built with real weights of 64 bits.
    fn is_built_double(&self) -> bool {
        self.double || self.exact
    }

    /// Returns what a user should see of the conversion.
    pub(super) fn notices(&self, options: &LoadOptions<'_>) -> Vec<Notice> {
        let rounding = self.pieces.rounding();
        match rounding.first.filter(|_| self.real && is_rounded(options, &self.pieces)) {
            None => Vec::new(),
            Some((line, found)) => {
                let unit = if matches!(self.format, Format::Parquet | Format::Arrow) { "row" } else { "line" };
                vec![Notice::Rounded { unit, line, found, difference: rounding.difference }]
            }
        }
    }

    /// Returns the bytes of memory that [`Numbered::build`] takes.
    pub(super) fn peak_bytes(&self) -> u128 {
        let (vertices, weights) = (self.numbers.ids().len(), self.weight_width());
        let names = if self.translation.is_some() { self.id_bytes() } else { 0 };
        // The rounded weights are beside those in 64 bits when the lists are built.
        let rounded = if self.exact { 4 * self.arcs() } else { 0 };
        let lists = build::peak_bytes(vertices.into(), self.arcs(), self.width().into(), weights.into());
        lists + u128::from(names) + rounded
    }

    /// Returns true if the graph is directed, and the reason. `one_way` is an edge that does not occur in both directions
    /// with equal weights, and is looked at where the direction depends on it.
    pub(super) fn directed(
        &self,
        one_way: impl FnOnce() -> Option<(u64, u64)>,
        has_two_way: impl FnOnce() -> bool,
    ) -> Result<(bool, OrientationReason), ImportError> {
        Ok(match self.direction {
            Direction::Directed => (true, self.reason),
            Direction::Undirected => (false, self.reason),
            Direction::Symmetric => match one_way() {
                None => (false, self.reason),
                Some((from, to)) => {
                    let fault = SerializedFault::Graph(CsrError::OneWay { from, to });
                    return Err(ImportError::Serialized { path: self.path.clone(), fault });
                }
            },
            Direction::AsEdgesShow if one_way().is_none() => (false, OrientationReason::Symmetric),
            Direction::AsEdgesShow if self.called_directed => (true, OrientationReason::Declared),
            Direction::AsEdgesShow if !has_two_way() => (true, OrientationReason::Once),
            Direction::AsEdgesShow => (true, self.reason),
        })
    }

    /// Returns the source of the weights that the options ask for.
    pub(super) fn weight_source(&self, options: &LoadOptions<'_>) -> WeightSource {
        match self.format {
            Format::Kronecker | Format::Uniform => options.weights.generated(),
            _ => options.weights.source(self.weighted),
        }
    }

    pub(super) fn summary(
        &self,
        orientation: OrientationReason,
        weights: WeightSource,
        self_loops: u64,
        duplicates: u64,
    ) -> Summary {
        let input_edges = self.pieces.edges();
        Summary { format: self.format, orientation, weights, input_edges, self_loops, duplicates, bytes: self.bytes }
    }

    /// Makes the graph in memory.
    pub(super) fn build(self, options: &LoadOptions<'_>) -> Result<Loaded, ImportError> {
        let notices = self.notices(options);
        let kind = (self.weight_width(), self.real, self.is_built_double(), self.wide);
        let (csr, self_loops, duplicates) = match kind {
            (0, _, _, false) => self.lists::<u32, ()>(options, |_, _| ()),
            (0, _, _, true) => self.lists::<u64, ()>(options, |_, _| ()),
            (_, false, _, false) => self.lists::<u32, u32>(options, RawEdges::integer),
            (_, false, _, true) => self.lists::<u64, u32>(options, RawEdges::integer),
            (_, true, false, false) => self.lists::<u32, f32>(options, |piece, i| piece.real(i) as f32),
            (_, true, false, true) => self.lists::<u64, f32>(options, |piece, i| piece.real(i) as f32),
            (_, true, true, false) => self.lists::<u32, f64>(options, RawEdges::real),
            (_, true, true, true) => self.lists::<u64, f64>(options, RawEdges::real),
        }?;
        // From here on the graph is that of the rounded weights, as it is where nobody asks for the others.
        let (csr, exact) = if self.exact { rounded(csr) } else { (csr, None) };
        let (directed, reason) = self.directed(|| csr.one_way_edge(), || csr.has_two_way_edge())?;
        let summary = self.summary(reason, self.weight_source(options), self_loops, duplicates);
        let csr = if directed { csr } else { csr.into_undirected() };
        let exact_weights = exact.filter(|_| summary.weights == WeightSource::Input);
        let csr = give_weights(csr.with_ids(self.numbers.into_ids()), summary.weights, options.seed);
        Ok(Loaded { notices, exact_weights, ..Loaded::new(csr, summary) })
    }

    /// Builds a directed graph whose identifiers are its numbers. Returns the numbers of self-loops and duplicates, too.
    fn lists<V: VertexId, W: EdgeWeight>(
        &self,
        options: &LoadOptions<'_>,
        weight: impl Fn(&RawEdges, usize) -> W + Sync,
    ) -> Result<(Csr, u64, u64), ImportError> {
        let (vertices, count) = (self.numbers.ids().len(), self.pieces.edges() as usize);
        let rule = Rule { mirror: self.mirror, keep_self_loops: options.keep_self_loops };
        let progress = |done, total| {
            if let Some(progress) = options.progress {
                progress(Progress { stage: Stage::Build, done, total });
            }
        };
        let failed = Mutex::new(None);
        let built = build::build_parts(vertices as usize, count, self.pieces.len(), rule, &progress, |i| {
            // Each piece is taken once. Its memory is freed as soon as it is partitioned.
            let piece = self.pieces.take(i).unwrap_or_else(|e| {
                *failed.lock() = Some(e);
                RawEdges::default()
            });
            let mut chunk = Chunk::<V, W>::with_capacity(piece.len());
            for e in 0..piece.len() {
                let pair = piece.pair(e).map(|id| V::from_index(self.vertex(id) as usize));
                chunk.push(pair, weight(&piece, e));
            }
            chunk
        });
        if let Some(e) = failed.into_inner() {
            return Err(e.into());
        }
        let (self_loops, duplicates) = (built.self_loops, built.duplicates);
        Ok((Csr::assemble(built, true, Ids::dense(0, vertices)), self_loops, duplicates))
    }
}

/// Returns true if weights are rounded to 32 bits, and lose something.
fn is_rounded(options: &LoadOptions<'_>, pieces: &Pieces) -> bool {
    options.precision == Precision::Single && pieces.rounding().first.is_some()
}

/// Returns the graph with its weights rounded to 32 bits, and the weights that it had.
fn rounded(csr: Csr) -> (Csr, Option<Vec<f64>>) {
    let (csr, weights) = csr.take_weights();
    match weights {
        Some(Weights::F64(exact)) => {
            let rounded = parallel::map(exact.len(), |i| exact[i] as f32);
            (csr.with_weights(Weights::F32(rounded)), Some(exact))
        }
        Some(other) => (csr.with_weights(other), None),
        None => (csr, None),
    }
}

/// Makes the graph in memory from the edges that were read.
pub(crate) fn finish(read: Read, options: &LoadOptions<'_>) -> Result<Loaded, ImportError> {
    let mut numbered = Numbered::of(read, options, u64::MAX)?;
    let free = options.memory.or_else(free_host_memory).map_or(u128::MAX, u128::from);
    numbered.exact &= numbered.peak_bytes() <= free;
    let (vertices, edges) = (numbered.numbers.ids().len(), numbered.pieces.edges());
    let what = numbered.path.display().to_string();
    memory::check(&what, vertices.into(), edges.into(), numbered.peak_bytes(), options.memory)?;
    numbered.build(options)
}

/// Gives a graph weights that are not those of its edges.
pub(crate) fn give_weights(csr: Csr, source: WeightSource, seed: u64) -> Csr {
    match source {
        WeightSource::None => csr.without_weights(),
        WeightSource::Input => csr,
        WeightSource::Unit => {
            let ones = vec![1; csr.arcs() as usize];
            csr.with_weights(Weights::U32(ones))
        }
        WeightSource::RandomIntegers => generate::with_random_integers(csr, seed),
        WeightSource::RandomReals => generate::with_random_reals(csr, seed),
    }
}
