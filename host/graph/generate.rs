//! Generated graphs and weights.
//!
//! All random numbers are functions of counters. Each block of edges has a random stream of its own, and a weight is a
//! function of its edge. The same seed therefore gives the same graph on any number of threads.

use super::build::{self, CHUNK_EDGES, Chunk, Rule};
use super::csr::{self, Csr, MAX_NARROW_VERTICES, VertexId, Weights, with_neighbours};
use super::ids::Ids;
use super::import::{
    self, Format, ImportError, Imported, LoadOptions, Loaded, Orientation, OrientationReason, Pieces, Progress,
    RawEdges, Read, Stage, Summary, WeightSource, check_memory, give_weights,
};
use crate::graph::parallel;
use std::ops::Range;

/// Default number of edges for each vertex (Graph500, GAP).
pub const DEFAULT_EDGE_FACTOR: u32 = 16;
/// Largest scale: at a larger one the offsets alone take 16 TiB or more.
pub const MAX_SCALE: u32 = 40;
/// Largest number of edges for each vertex.
pub const MAX_EDGE_FACTOR: u32 = 1 << 20;
/// Largest integer weight (GAP).
pub const MAX_INTEGER_WEIGHT: u32 = 255;

/// Quadrant probabilities of the Kronecker generator, A, B and C in parts of 2^32 (Graph500 1.2, GAP: 0.57, 0.19, 0.19).
const A: u64 = probability(57);
const A_B: u64 = probability(57 + 19);
const A_B_C: u64 = probability(57 + 19 + 19);

const fn probability(percent: u64) -> u64 {
    (percent << 32) / 100
}

/// Distribution of a generator's edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shape {
    /// Kronecker (R-MAT) graph of Graph500 and GAP: few vertices have most of the edges.
    Kronecker,
    /// Uniform graph: both ends of each edge are uniform over the vertices.
    Uniform,
}

/// Generator of a graph with `2^scale` vertices and `edge_factor * 2^scale` edges, before self-loops and duplicates are
/// dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Generator {
    /// Distribution of the edges.
    pub shape: Shape,
    /// log2 of the number of vertices, at most [`MAX_SCALE`].
    pub scale: u32,
    /// Edges for each vertex, from 1 to [`MAX_EDGE_FACTOR`].
    pub edge_factor: u32,
}

impl std::fmt::Display for Generator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = match self.shape {
            Shape::Kronecker => "kron",
            Shape::Uniform => "urand",
        };
        write!(f, "{name}:{}", self.scale)?;
        if self.edge_factor != DEFAULT_EDGE_FACTOR { write!(f, ":{}", self.edge_factor) } else { Ok(()) }
    }
}

impl Generator {
    /// Parses `kron:SCALE[:EDGEFACTOR]` or `urand:SCALE[:EDGEFACTOR]`. Returns `None` if the text begins otherwise.
    ///
    /// # Errors
    /// [`ImportError::Generator`] if a parameter is not a whole number, or is out of range.
    pub fn parse(text: &str) -> Option<Result<Self, ImportError>> {
        let (name, rest) = text.split_once(':')?;
        let shape = match name {
            "kron" => Shape::Kronecker,
            "urand" => Shape::Uniform,
            _ => return None,
        };
        Some(Self::parameters(shape, rest).map_err(|reason| ImportError::Generator { given: text.to_owned(), reason }))
    }

    fn parameters(shape: Shape, rest: &str) -> Result<Self, String> {
        let (scale, factor) = rest.split_once(':').map_or((rest, None), |(s, f)| (s, Some(f)));
        let number = |what: &str, text: &str, low: u32, high: u32| -> Result<u32, String> {
            let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            if !digits {
                return Err(format!("the {what} `{text}` is not a whole number"));
            }
            text.parse()
                .ok()
                .filter(|n| (low..=high).contains(n))
                .ok_or_else(|| format!("the {what} {text} is not between {low} and {high}"))
        };
        Ok(Self {
            shape,
            scale: number("scale", scale, 0, MAX_SCALE)?,
            edge_factor: match factor {
                Some(factor) => number("edge factor", factor, 1, MAX_EDGE_FACTOR)?,
                None => DEFAULT_EDGE_FACTOR,
            },
        })
    }

    /// Generates the graph. It is undirected unless the options ask for a directed one.
    ///
    /// # Errors
    /// * [`ImportError::Generator`] if the scale or the edge factor is out of range.
    /// * [`ImportError::Memory`] if the graph needs more memory than is free, and [`ImportError::Refused`] if the
    ///   system does not allocate it.
    pub fn load(&self, options: &LoadOptions<'_>) -> Result<Loaded, ImportError> {
        self.check()?;
        let (vertices, edges) = (self.vertices(), self.edges());
        check_memory(&self.to_string(), vertices.into(), edges.into(), self.peak_bytes(options), options.memory)?;
        let (mirror, wide) = (options.orientation != Orientation::Directed, self.is_wide(options));
        let weights = options.weights.generated();
        let rule = Rule { mirror, keep_self_loops: options.keep_self_loops };
        let (csr, self_loops, duplicates) =
            if wide { self.build::<u64>(rule, options) } else { self.build::<u32>(rule, options) };
        let csr = give_weights(csr, weights, options.seed);
        let asked = options.orientation != Orientation::Auto;
        let summary = Summary {
            format: self.format(),
            orientation: if asked { OrientationReason::Requested } else { OrientationReason::Declared },
            weights,
            input_edges: edges,
            self_loops,
            duplicates,
            bytes: 0,
        };
        Ok(Loaded::new(csr, summary))
    }

    /// Generates the graph as [`Generator::load`] does. One that does not fit into memory is sorted in temporary files.
    ///
    /// # Errors
    /// As for [`Generator::load`] and [`import::load_or_sort`].
    pub(crate) fn load_or_sort(&self, options: &LoadOptions<'_>) -> Result<Imported, ImportError> {
        self.check()?;
        let (edges, budget) = (self.edges(), import::budget(options));
        // The in-lists of a directed graph are built beside the lists.
        let sides = if options.orientation == Orientation::Directed { 2 } else { 1 };
        if sides * self.peak_bytes(options) <= budget.memory.into() {
            return Ok(Imported::InMemory(Box::new(self.load(&options.memory(Some(budget.memory)))?)));
        }
        let mut pieces = Pieces::new(Some(&budget));
        let scramble = Scramble::new(self.scale, options.seed);
        let blocks = edges.div_ceil(CHUNK_EDGES as u64);
        let group = 4 * rayon::current_num_threads() as u64;
        for first in (0..blocks).step_by(group as usize) {
            let generated = parallel::map((blocks - first).min(group) as usize, |i| {
                let from = (first + i as u64) * CHUNK_EDGES as u64;
                let mut edges_of_block = RawEdges::default();
                let range = from..edges.min(from + CHUNK_EDGES as u64);
                self.pairs(range, &scramble, options.seed).for_each(|[from, to]| edges_of_block.push(from, to));
                edges_of_block
            });
            generated.into_iter().try_for_each(|edges| pieces.push(edges, 0))?;
            if let Some(progress) = options.progress {
                progress(Progress { stage: Stage::Build, done: (first + group).min(blocks), total: blocks });
            }
        }
        let read = Read {
            format: self.format(),
            path: self.to_string().into(),
            pieces,
            ids: Some(Ids::dense(0, self.vertices())),
            directed: Some(false),
            called_directed: false,
            mirrored: false,
            both_listed: false,
            translation: None,
            weighted: false,
            bytes: 0,
        };
        import::finish_or_sort(read, options, &budget)
    }

    fn check(&self) -> Result<(), ImportError> {
        if self.scale > MAX_SCALE || !(1..=MAX_EDGE_FACTOR).contains(&self.edge_factor) {
            let reason = format!(
                "the scale must not exceed {MAX_SCALE}, the edge factor must lie between 1 and {MAX_EDGE_FACTOR}"
            );
            return Err(ImportError::Generator { given: self.to_string(), reason });
        }
        Ok(())
    }

    fn vertices(&self) -> u64 {
        1 << self.scale
    }

    fn edges(&self) -> u64 {
        self.vertices() * u64::from(self.edge_factor)
    }

    fn is_wide(&self, options: &LoadOptions<'_>) -> bool {
        options.wide || self.vertices() > MAX_NARROW_VERTICES
    }

    /// Returns the bytes of memory that generating and building take.
    fn peak_bytes(&self, options: &LoadOptions<'_>) -> u128 {
        let arcs = u128::from(self.edges()) << u32::from(options.orientation != Orientation::Directed);
        let weights = if options.weights.generated() == WeightSource::None { 0 } else { 4 * arcs };
        build::peak_bytes(self.vertices().into(), arcs, if self.is_wide(options) { 8 } else { 4 }, 0) + weights
    }

    fn format(&self) -> Format {
        match self.shape {
            Shape::Kronecker => Format::Kronecker,
            Shape::Uniform => Format::Uniform,
        }
    }

    /// Returns the edges of a block. A block is always the same range of edges, so its first index selects its random
    /// stream.
    fn pairs<'a>(
        &'a self,
        block: Range<u64>,
        scramble: &'a Scramble,
        seed: u64,
    ) -> impl Iterator<Item = [u64; 2]> + use<'a> {
        let mut random = Random::stream(seed, block.start);
        block.map(move |_| match self.shape {
            Shape::Kronecker => kronecker(self.scale, &mut random).map(|v| scramble.of(v)),
            Shape::Uniform => uniform(self.scale, &mut random),
        })
    }

    fn build<V: VertexId>(&self, rule: Rule, options: &LoadOptions<'_>) -> (Csr, u64, u64) {
        let (vertices, scramble) = (1usize << self.scale, Scramble::new(self.scale, options.seed));
        let progress = |done, total| {
            if let Some(progress) = options.progress {
                progress(Progress { stage: Stage::Build, done, total });
            }
        };
        let built = build::build(vertices, vertices * self.edge_factor as usize, rule, &progress, |range| {
            let mut chunk = Chunk::<V, ()>::with_capacity(range.len());
            let range = range.start as u64..range.end as u64;
            for pair in self.pairs(range, &scramble, options.seed) {
                chunk.push(pair.map(|v| V::from_index(v as usize)), ());
            }
            chunk
        });
        let (self_loops, duplicates) = (built.self_loops, built.duplicates);
        (Csr::assemble(built, !rule.mirror, Ids::dense(0, vertices as u64)), self_loops, duplicates)
    }
}

/// Returns one edge. Each level of the recursive matrix draws a quadrant, which is one bit of each end.
fn kronecker(scale: u32, random: &mut Random) -> [u64; 2] {
    let (mut from, mut to) = (0, 0);
    let mut bits = 0;
    for level in 0..scale {
        // One draw is enough for two levels.
        let draw = if level % 2 == 0 {
            bits = random.next();
            bits >> 32
        } else {
            bits & u64::from(u32::MAX)
        };
        // The processor could not predict branches here.
        let lower = u64::from(draw >= A_B);
        let right = u64::from(draw >= A) - lower + u64::from(draw >= A_B_C);
        from = from << 1 | lower;
        to = to << 1 | right;
    }
    [from, to]
}

fn uniform(scale: u32, random: &mut Random) -> [u64; 2] {
    let mut end = || if scale == 0 { 0 } else { random.next() >> (64 - scale) };
    [end(), end()]
}

/// SplitMix64 (Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014).
struct Random(u64);

/// Increment of the generator: the golden ratio in 64 bits.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Mixes a number: spreads every bit of the input over the output, one to one.
pub(super) fn mix(mut z: u64) -> u64 {
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

impl Random {
    /// Returns stream `index` of the family of `seed`.
    fn stream(seed: u64, index: u64) -> Self {
        Self(mix(mix(seed).wrapping_add(mix(index.wrapping_add(STEP)))))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mix(self.0)
    }
}

/// Permutation of `0 .. 2^scale`: rounds of odd multiplications and shifts, each of which is invertible. It replaces a
/// shuffled table of all vertices.
struct Scramble {
    mask: u64,
    shift: u32,
    rounds: [[u64; 2]; Self::ROUNDS],
}

impl Scramble {
    const ROUNDS: usize = 4;

    fn new(scale: u32, seed: u64) -> Self {
        /// Stream behind those of the edges.
        const STREAM: u64 = u64::MAX;
        let mut random = Random::stream(seed, STREAM);
        Self {
            mask: (1 << scale) - 1,
            shift: scale / 2 + 1,
            rounds: std::array::from_fn(|_| [random.next() | 1, random.next()]),
        }
    }

    fn of(&self, mut v: u64) -> u64 {
        for [factor, term] in self.rounds {
            v = v.wrapping_mul(factor).wrapping_add(term) & self.mask;
            v ^= v >> self.shift;
        }
        v
    }
}

/// Returns a random number that is the same for both directions of an edge.
fn of_edge(seed: u64, from: u64, to: u64) -> u64 {
    mix(mix(seed.wrapping_add(mix(from.min(to)))).wrapping_add(from.max(to).wrapping_mul(STEP)))
}

/// Returns the random integer of an edge, from 1 to [`MAX_INTEGER_WEIGHT`].
pub(crate) fn random_integer(seed: u64, from: u64, to: u64) -> u32 {
    (of_edge(seed, from, to) >> 32) as u32 % MAX_INTEGER_WEIGHT + 1
}

/// Returns the random real number of an edge, in [0, 1).
pub(crate) fn random_real(seed: u64, from: u64, to: u64) -> f32 {
    // The mantissa holds all of these bits, so rounding never gives 1.
    (of_edge(seed, from, to) >> (64 - f32::MANTISSA_DIGITS)) as f32 / (1u32 << f32::MANTISSA_DIGITS) as f32
}

fn for_each_arc<W: Copy + Default + Send + Sync>(csr: &Csr, weight: impl Fn(u64, u64) -> W + Sync) -> Vec<W> {
    let mut weights = vec![W::default(); csr.arcs() as usize];
    let parts = csr::blocks_mut(csr.offsets(), &mut weights);
    with_neighbours!(csr.neighbours(), list => parallel::each_part(parts, |(), _, (vertices, part)| {
        let arcs = vertices.flat_map(|v| csr.range(v as u64).map(move |i| (v as u64, i)));
        for (place, (v, i)) in part.iter_mut().zip(arcs) {
            *place = weight(v, list[i].number());
        }
    }));
    weights
}

/// Gives each edge an integer from 1 to [`MAX_INTEGER_WEIGHT`].
pub(crate) fn with_random_integers(csr: Csr, seed: u64) -> Csr {
    let weights = for_each_arc(&csr, |from, to| random_integer(seed, from, to));
    csr.with_weights(Weights::U32(weights))
}

/// Gives each edge a real number in [0, 1).
pub(crate) fn with_random_reals(csr: Csr, seed: u64) -> Csr {
    let weights = for_each_arc(&csr, |from, to| random_real(seed, from, to));
    csr.with_weights(Weights::F32(weights))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::WeightMode;
    use std::collections::HashSet;

    fn make(text: &str, options: &LoadOptions<'_>) -> Loaded {
        Generator::parse(text).unwrap().unwrap().load(options).unwrap()
    }

    #[test]
    fn scrambling_is_a_permutation() {
        for scale in 0..12 {
            let scramble = Scramble::new(scale, 7);
            let seen: HashSet<u64> = (0..1 << scale).map(|v| scramble.of(v)).collect();
            assert_eq!(seen.len(), 1 << scale);
            assert!(seen.iter().all(|v| *v < 1 << scale));
        }
    }

    #[test]
    fn any_number_of_threads_gives_the_same_graph() {
        let options = LoadOptions { weights: WeightMode::Input, ..Default::default() };
        let with = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| make("kron:14", &options))
        };
        let one = with(1);
        assert_eq!(one, with(3));
        assert_ne!(one, make("kron:14", &LoadOptions { seed: 1, ..options }));
    }

    #[test]
    fn quadrants_come_as_often_as_they_should() {
        let mut random = Random::stream(3, 0);
        let mut counts = [0u32; 4];
        const DRAWS: u32 = 100_000;
        for _ in 0..DRAWS {
            let [from, to] = kronecker(1, &mut random);
            counts[(2 * from + to) as usize] += 1;
        }
        for (count, expected) in counts.into_iter().zip([0.57, 0.19, 0.19, 0.05]) {
            let share = f64::from(count) / f64::from(DRAWS);
            // The limit is five standard deviations of the largest share.
            assert!((share - expected).abs() < 5.0 * (0.25f64 / f64::from(DRAWS)).sqrt(), "{counts:?}");
        }
    }

    #[test]
    fn kronecker_graphs_have_hubs_and_uniform_ones_do_not() {
        let largest = |text: &str| {
            let csr = make(text, &LoadOptions::default()).csr;
            (0..csr.vertices()).map(|v| csr.degree(v)).max().unwrap()
        };
        assert!(largest("kron:12") > 500);
        assert!(largest("urand:12") < 100);
    }

    #[test]
    fn the_numbers_of_edges_add_up() {
        for text in ["kron:10", "urand:10:4", "kron:0", "urand:0:1"] {
            for orientation in [Orientation::Auto, Orientation::Directed] {
                let Loaded { csr, summary, .. } = make(text, &LoadOptions { orientation, ..Default::default() });
                assert_eq!(csr.directed(), orientation == Orientation::Directed);
                let arcs = (summary.input_edges - summary.self_loops) * if csr.directed() { 1 } else { 2 };
                assert_eq!(csr.arcs() + summary.duplicates, arcs, "{text}");
                assert!(csr.directed() || csr.one_way_edge().is_none());
            }
        }
    }

    #[test]
    fn weights_lie_in_their_range_and_agree_in_both_directions() {
        let options = LoadOptions { weights: WeightMode::RandomIntegers, ..Default::default() };
        let csr = make("urand:10", &options).csr;
        assert!(csr.one_way_edge().is_none(), "directions weigh the same");
        let Some(Weights::U32(weights)) = csr.weights() else { panic!() };
        let seen: HashSet<u32> = weights.iter().copied().collect();
        assert_eq!(seen, (1..=MAX_INTEGER_WEIGHT).collect());
        let csr = make("urand:10", &LoadOptions { weights: WeightMode::RandomReals, ..options }).csr;
        assert!(csr.one_way_edge().is_none(), "directions weigh the same");
        let Some(Weights::F32(weights)) = csr.weights() else { panic!() };
        assert!(weights.iter().all(|w| (0.0..1.0).contains(w)));
        let mean = weights.iter().sum::<f32>() / weights.len() as f32;
        assert!((mean - 0.5).abs() < 0.02, "{mean}");
    }

    #[test]
    fn parameters_are_checked() {
        assert!(Generator::parse("graph.el").is_none());
        assert!(Generator::parse("krone:3").is_none());
        for (text, words) in [
            ("kron:", "scale `` is not a whole number"),
            ("kron:x", "scale `x` is not a whole number"),
            ("kron:-1", "scale `-1` is not a whole number"),
            ("kron:41", "scale 41 is not between 0 and 40"),
            ("kron:99999999999999", "is not between 0 and 40"),
            ("urand:3:0", "edge factor 0 is not between 1 and"),
            ("urand:3:4:5", "edge factor `4:5` is not a whole number"),
        ] {
            let error = Generator::parse(text).unwrap().unwrap_err().to_string();
            assert!(error.contains(words) && error.starts_with(&format!("`{text}`: ")), "{error}");
        }
        let options = LoadOptions { memory: Some(1 << 30), ..Default::default() };
        let error = Generator::parse("kron:40").unwrap().unwrap().load(&options).unwrap_err();
        assert!(matches!(error, ImportError::Memory { .. }), "{error}");
    }
}
