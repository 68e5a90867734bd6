//! Verification of single-source shortest paths.

use super::rules::{self, Bitmap, FAR};
use super::{Found, Search, VerifyError, check_length, check_search, check_source, name};
use crate::graph::csr::{Csr, VertexId, Weights, with_neighbours};
use crate::graph::parallel;

/// Largest relative error of distances in single precision (LDBC Graphalytics' epsilon).
pub const REAL_TOLERANCE_SINGLE: f64 = 1e-4;
/// Largest relative error of distances in double precision. It allows a path of a million edges with one rounding each.
pub const REAL_TOLERANCE_DOUBLE: f64 = 1e-9;

/// Distances in the type in which they were computed. Vertices that are not reached have the largest integer, or
/// infinity.
#[derive(Clone, Copy, Debug)]
pub enum Distances<'a> {
    /// 32-bit integers.
    U32(&'a [u32]),
    /// 64-bit integers.
    U64(&'a [u64]),
    /// Single precision.
    F32(&'a [f32]),
    /// Double precision.
    F64(&'a [f64]),
}

impl Distances<'_> {
    /// Returns the number of vertices.
    pub fn len(&self) -> usize {
        match self {
            Self::U32(d) => d.len(),
            Self::U64(d) => d.len(),
            Self::F32(d) => d.len(),
            Self::F64(d) => d.len(),
        }
    }

    /// Returns true if there are no vertices.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns true if `v` was reached.
    ///
    /// # Panics
    /// If `v` is not below [`Distances::len`].
    pub fn reached(&self, v: usize) -> bool {
        match self {
            Self::U32(d) => d[v] != u32::MAX,
            Self::U64(d) => d[v] != u64::MAX,
            Self::F32(d) => d[v] != f32::INFINITY,
            Self::F64(d) => d[v] != f64::INFINITY,
        }
    }

    pub(super) fn integer(&self, v: usize) -> Option<u64> {
        match self {
            Self::U32(d) => (d[v] != u32::MAX).then_some(d[v].into()),
            Self::U64(d) => (d[v] != u64::MAX).then_some(d[v]),
            Self::F32(_) | Self::F64(_) => None,
        }
    }

    /// Returns the largest relative error of real distances, or `None` for integers, which are exact.
    pub(super) fn tolerance(&self) -> Option<f64> {
        match self {
            Self::U32(_) | Self::U64(_) => None,
            Self::F32(_) => Some(REAL_TOLERANCE_SINGLE),
            Self::F64(_) => Some(REAL_TOLERANCE_DOUBLE),
        }
    }

    /// Returns the distance of `v`, or `None` if `v` was not reached. Integers above 2^53 are rounded.
    ///
    /// # Panics
    /// If `v` is not below [`Distances::len`].
    pub fn real(&self, v: usize) -> Option<f64> {
        let value = match self {
            Self::U32(_) | Self::U64(_) => return self.integer(v).map(|d| d as f64),
            Self::F32(d) => d[v].into(),
            Self::F64(d) => d[v],
        };
        (value != f64::INFINITY).then_some(value)
    }
}

/// Evaluates an expression with the function that returns the key behind an arc, for integer weights. In graphs without
/// weights each edge has weight 1.
macro_rules! with_integers {
    ($csr:expr, $add:ident => $body:expr) => {
        match $csr.weights() {
            None => {
                let $add = |key: u64, _: usize| key.saturating_add(1);
                $body
            }
            Some(Weights::U32(w)) => {
                let $add = |key: u64, arc: usize| key.saturating_add(w[arc].into());
                $body
            }
            Some(Weights::F32(_) | Weights::F64(_)) => return Err(VerifyError::Kind),
        }
    };
}

/// Does the same in double precision, for all weights. The bits of non-negative numbers ascend with the numbers, so they
/// can be keys.
macro_rules! with_reals {
    ($csr:expr, $add:ident => $body:expr) => {{
        let sum = |key: u64, weight: f64| (f64::from_bits(key) + weight).to_bits();
        match $csr.weights() {
            None => {
                let $add = |key: u64, _: usize| sum(key, 1.0);
                $body
            }
            Some(Weights::U32(w)) => {
                let $add = |key: u64, arc: usize| sum(key, w[arc].into());
                $body
            }
            Some(Weights::F32(w)) => {
                let $add = |key: u64, arc: usize| sum(key, w[arc].into());
                $body
            }
            Some(Weights::F64(w)) => {
                let $add = |key: u64, arc: usize| sum(key, w[arc]);
                $body
            }
        }
    }};
}

/// Returns integer distances by Dijkstra's algorithm, with `u64::MAX` for vertices that are not reached. In graphs
/// without weights each edge has weight 1.
///
/// # Errors
/// [`VerifyError::Source`] if `source` is not a vertex; [`VerifyError::Kind`] if the weights are real numbers.
pub fn dijkstra(csr: &Csr, source: u64) -> Result<Vec<u64>, VerifyError> {
    with_integers!(csr, add => by_dijkstra(csr, source, add))
}

/// Returns distances by Dijkstra's algorithm in double precision, with infinity for vertices that are not reached.
///
/// # Errors
/// [`VerifyError::Source`] if `source` is not a vertex.
pub fn dijkstra_real(csr: &Csr, source: u64) -> Result<Vec<f64>, VerifyError> {
    let keys = with_reals!(csr, add => by_dijkstra(csr, source, add))?;
    Ok(keys.into_iter().map(|key| if key == FAR { f64::INFINITY } else { f64::from_bits(key) }).collect())
}

/// Checks distances against Dijkstra's algorithm. Integers must be equal. Real numbers must agree within
/// [`REAL_TOLERANCE_SINGLE`] or [`REAL_TOLERANCE_DOUBLE`], and no edge may shorten a path by more than that.
///
/// All threads check rules that hold for exactly Dijkstra's distances. Dijkstra's algorithm runs only if
/// a rule does not hold: for wrong distances, to determine the right one, and for real numbers that were rounded
/// otherwise.
///
/// # Errors
/// * [`VerifyError::Length`] if there is not one distance for each vertex; [`VerifyError::Source`] or
///   [`VerifyError::NoSuchVertex`] if one of the search is not a vertex.
/// * [`VerifyError::Distance`] for the first wrong distance; [`VerifyError::Relaxable`] for an edge that shortens a
///   path.
/// * [`VerifyError::Kind`] for integer distances of a graph with real weights.
pub fn sssp(csr: &Csr, search: impl Into<Search>, distances: Distances<'_>) -> Result<(), VerifyError> {
    let search = search.into();
    check_length(csr, distances.len())?;
    check_search(csr, search)?;
    match distances.tolerance() {
        None => integers(csr, search, distances),
        Some(tolerance) => reals(csr, search, distances, tolerance),
    }
}

/// Largest relative error of distances whose weights were rounded to 32 bits: half of the last place of each weight, and
/// [`REAL_TOLERANCE_DOUBLE`] for the sums.
pub const ROUNDED_WEIGHTS_TOLERANCE: f64 = HALF_PLACE + REAL_TOLERANCE_DOUBLE;
/// Largest relative error of a number that is rounded to 32 bits.
const HALF_PLACE: f64 = f32::EPSILON as f64 / 2.0;
/// Largest error of a number that is too small for that.
const HALF_LEAST: f64 = f32::MIN_POSITIVE as f64 * f32::EPSILON as f64 / 2.0;

/// Checks distances over weights that were rounded to 32 bits against the weights before that, of which `exact` has one
/// for each arc. They must agree with Dijkstra's algorithm within [`ROUNDED_WEIGHTS_TOLERANCE`].
///
/// All threads check rules that bound the error, and Dijkstra's algorithm runs only if one does not hold:
///
/// 1. The source has distance 0. No arc leads to a vertex further away than the arc's weight allows, of which the error
///    of its rounding is taken.
/// 2. Each other reached vertex has an arc that gives it its distance within that error, from a vertex that is nearer.
///
/// By 1, no distance exceeds the length of a shortest path by more than the errors of its arcs. By 2, a path leads back
/// to the source whose length exceeds the distance by no more than those.
///
/// # Errors
/// As for [`sssp`]; also [`VerifyError::Weights`] if there is not one exact weight for each arc.
pub fn sssp_of_exact_weights(
    csr: &Csr,
    exact: &[f64],
    search: impl Into<Search>,
    distances: Distances<'_>,
) -> Result<(), VerifyError> {
    let search = search.into();
    let source = search.source;
    check_length(csr, distances.len())?;
    check_search(csr, search)?;
    if exact.len() as u64 != csr.arcs() {
        return Err(VerifyError::Weights { found: exact.len() as u64, arcs: csr.arcs() });
    }
    // One rounding of a sum.
    const SUM: f64 = f64::EPSILON;
    let error = |weight: f64| HALF_PLACE * weight + HALF_LEAST;
    let distance = |v: u64| distances.real(v as usize);
    let last = search.last_distance(&distance);
    let shown = Bitmap::new(csr.vertices() as usize);
    shown.insert(source as usize);
    let bounded = |u: u64| {
        let Some(from) = distance(u) else { return true };
        csr.range(u).all(|arc| {
            let v = csr.neighbours().get(arc);
            let (weight, error) = (exact[arc], error(exact[arc]));
            let most = (from + weight + error) * (1.0 + SUM);
            let Some(to) = distance(v) else { return most > last };
            if from < to && to >= (from + weight - error) * (1.0 - SUM) {
                shown.insert(v as usize);
            }
            to <= most
        })
    };
    let vertices = csr.vertices() as usize;
    let is_reached = |v: usize| distance(v as u64).is_none() || shown.contains(v);
    if distance(source) == Some(0.0)
        && parallel::all(vertices, |v| bounded(v as u64))
        && parallel::all(vertices, is_reached)
    {
        return Ok(());
    }
    let keys = by_dijkstra(csr, source, |key, arc| (f64::from_bits(key) + exact[arc]).to_bits())?;
    let right = |v: u64| Some(keys[v as usize]).filter(|key| *key != FAR).map(f64::from_bits);
    let tiny = HALF_LEAST * csr.vertices() as f64;
    let error = |expected: f64| ROUNDED_WEIGHTS_TOLERANCE * expected + tiny;
    let last = search.last_distance(&right);
    let near = |v: u64| is_near(distance(v), right(v), last, error);
    parallel::position(vertices, |v| !near(v as u64)).map_or(Ok(()), |v| {
        let v = v as u64;
        let (found, expected) = (Found(distance(v)), Found(right(v)));
        Err(VerifyError::Distance { vertex: name(csr, v), found, expected })
    })
}

/// Returns true if a distance differs from the right one by at most `error`. Right distances beyond `last` stand for
/// unreached vertices, within the same error.
fn is_near(found: Option<f64>, expected: Option<f64>, last: f64, error: impl Fn(f64) -> f64) -> bool {
    match (found, expected) {
        // The comparison is written so that a distance that is NaN is not near.
        (Some(found), Some(expected)) => (found - expected).abs() <= error(expected) && found <= last + error(last),
        (None, Some(expected)) => last.is_finite() && expected >= last - error(last),
        (None, None) => true,
        (Some(_), None) => false,
    }
}

fn integers(csr: &Csr, search: Search, distances: Distances<'_>) -> Result<(), VerifyError> {
    let key = |v: usize| distances.integer(v).unwrap_or(FAR);
    let whole = |limit: f64| limit as u64;
    if with_integers!(csr, add => are_shortest(csr, search.source, search.last_key(whole, key), key, add)) {
        return Ok(());
    }
    let expected = dijkstra(csr, search.source)?;
    let last = search.last_key(whole, |v| expected[v]);
    let right = |v: usize| (expected[v] != FAR && expected[v] <= last).then_some(expected[v]);
    match parallel::position(expected.len(), |v| distances.integer(v) != right(v)) {
        None => Ok(()),
        Some(v) => Err(VerifyError::Distance {
            vertex: name(csr, v as u64),
            found: Found(distances.real(v)),
            expected: Found(right(v).map(|d| d as f64)),
        }),
    }
}

fn reals(csr: &Csr, search: Search, distances: Distances<'_>, tolerance: f64) -> Result<(), VerifyError> {
    // Numbers below 0, and those that are none, have keys that no shortest path has.
    let key = |v: usize| distances.real(v).map_or(FAR, f64::to_bits);
    // The sum makes a limit of -0.0 one of 0.0.
    let bits = |limit: f64| (limit + 0.0).to_bits();
    if with_reals!(csr, add => are_shortest(csr, search.source, search.last_key(bits, key), key, add)) {
        return Ok(());
    }
    let expected = dijkstra_real(csr, search.source)?;
    let right = |v: u64| Some(expected[v as usize]).filter(|d| *d != f64::INFINITY);
    let last = search.last_distance(&right);
    let error = |expected: f64| tolerance * expected;
    let near = |v: usize| is_near(distances.real(v), right(v as u64), last, error);
    if let Some(v) = parallel::position(expected.len(), |v| !near(v)) {
        let (found, expected) = (Found(distances.real(v)), Found(right(v as u64).filter(|d| *d <= last)));
        return Err(VerifyError::Distance { vertex: name(csr, v as u64), found, expected });
    }
    let weight = |arc: usize| match csr.weights() {
        None => 1.0,
        Some(Weights::U32(w)) => w[arc].into(),
        Some(Weights::F32(w)) => w[arc].into(),
        Some(Weights::F64(w)) => w[arc],
    };
    let too_far = |u: u64| {
        let from = distances.real(u as usize)?;
        csr.range(u).find_map(|arc| {
            let v = csr.neighbours().get(arc);
            let to = distances.real(v as usize);
            let most = (from + weight(arc)) * (1.0 + tolerance);
            to.map_or(most < last - error(last), |to| to > most).then(|| VerifyError::Relaxable {
                from: name(csr, u),
                to: name(csr, v),
                weight: weight(arc),
                from_distance: from,
                to_distance: Found(to),
            })
        })
    };
    parallel::find_first(csr.vertices() as usize, |u| too_far(u as u64)).map_or(Ok(()), Err)
}

fn are_shortest(
    csr: &Csr,
    source: u64,
    last: u64,
    key: impl Fn(usize) -> u64 + Sync,
    add: impl Fn(u64, usize) -> u64 + Sync,
) -> bool {
    with_neighbours!(csr.neighbours(), list => rules::are_shortest(csr, list, source, last, key, add))
}

/// Runs Dijkstra's algorithm over keys that ascend with the distance. `add` returns the key behind an arc.
fn by_dijkstra(csr: &Csr, source: u64, add: impl Fn(u64, usize) -> u64) -> Result<Vec<u64>, VerifyError> {
    check_source(csr, source)?;
    Ok(with_neighbours!(csr.neighbours(), list => dijkstra_in(csr, list, source as usize, add)))
}

fn dijkstra_in<V: VertexId>(csr: &Csr, list: &[V], source: usize, add: impl Fn(u64, usize) -> u64) -> Vec<u64> {
    let mut keys = vec![FAR; csr.vertices() as usize];
    let mut heap = RadixHeap::new();
    keys[source] = 0;
    heap.push(0, V::from_index(source));
    while let Some((key, u)) = heap.pop() {
        if keys[u.index()] < key {
            continue;
        }
        for arc in csr.range(u.number()) {
            let n = list[arc];
            let next = add(key, arc);
            let place = &mut keys[n.index()];
            if next < *place {
                *place = next;
                heap.push(next, n);
            }
        }
    }
    keys
}

/// A priority queue whose smallest key never decreases (Ahuja, Mehlhorn, Orlin, Tarjan, "Faster Algorithms for the
/// Shortest Path Problem", J. ACM 37, 1990). A key lies in the bucket of the highest bit in which it differs from the
/// last key taken out. It moves to lower buckets at most once for each bit.
struct RadixHeap<V> {
    last: u64,
    buckets: [Vec<(u64, V)>; u64::BITS as usize + 1],
}

impl<V: Copy> RadixHeap<V> {
    fn new() -> Self {
        Self { last: 0, buckets: std::array::from_fn(|_| Vec::new()) }
    }

    /// Inserts a value. `key` must not be smaller than the last key that was taken out.
    fn push(&mut self, key: u64, value: V) {
        self.buckets[(u64::BITS - (key ^ self.last).leading_zeros()) as usize].push((key, value));
    }

    fn pop(&mut self) -> Option<(u64, V)> {
        if self.buckets[0].is_empty() {
            let first = self.buckets.iter().position(|b| !b.is_empty())?;
            let mut entries = std::mem::take(&mut self.buckets[first]);
            self.last = entries.iter().map(|e| e.0).min()?;
            for &(key, value) in &entries {
                self.push(key, value);
            }
            // All entries went to lower buckets; the memory is reused.
            entries.clear();
            self.buckets[first] = entries;
        }
        self.buckets[0].pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::CsrOptions;
    use crate::graph::VertexName;
    use proptest::prelude::*;

    /// Returns the distances by the algorithm of Bellman and Ford: relaxes all edges until nothing changes.
    fn plain(csr: &Csr, source: u64) -> Vec<u64> {
        let Some(Weights::U32(weights)) = csr.weights() else { panic!("integer weights") };
        let mut distances = vec![FAR; csr.vertices() as usize];
        distances[source as usize] = 0;
        loop {
            let before = distances.clone();
            for u in 0..csr.vertices() {
                for arc in csr.range(u) {
                    let v = csr.neighbours().get(arc) as usize;
                    if distances[u as usize] != FAR {
                        distances[v] = distances[v].min(distances[u as usize] + u64::from(weights[arc]));
                    }
                }
            }
            if distances == before {
                return distances;
            }
        }
    }

    proptest! {
        #[test]
        fn dijkstra_agrees_with_bellman_and_ford(
            edges in prop::collection::vec((0u64..40, 0u64..40, prop_oneof![0u32..6, any::<u32>()]), 0..200),
            directed: bool, wide: bool, v in 0usize..40, change in 1u64..5,
        ) {
            let csr = Csr::from_weighted_edges(40, &edges, CsrOptions { directed, wide, ..Default::default() }).unwrap();
            let mut expected = plain(&csr, 7);
            prop_assert_eq!(&dijkstra(&csr, 7).unwrap(), &expected);
            prop_assert_eq!(sssp(&csr, 7, Distances::U64(&expected)), Ok(()));
            let reals: Vec<f64> = expected.iter().map(|&d| if d == FAR { f64::INFINITY } else { d as f64 }).collect();
            prop_assert_eq!(&dijkstra_real(&csr, 7).unwrap(), &reals);
            prop_assert_eq!(sssp(&csr, 7, Distances::F64(&reals)), Ok(()));
            expected[v] = expected[v].wrapping_add(change);
            match sssp(&csr, 7, Distances::U64(&expected)) {
                Err(VerifyError::Distance { vertex, .. }) => prop_assert_eq!(vertex, VertexName::from(v as u64)),
                other => prop_assert!(false, "{:?}", other),
            }
        }

        #[test]
        fn the_queue_gives_what_it_was_given_in_order(keys in prop::collection::vec(any::<u64>(), 0..200)) {
            let mut heap = RadixHeap::new();
            for &key in &keys {
                heap.push(key, ());
            }
            let mut out = Vec::new();
            while let Some((key, ())) = heap.pop() {
                out.push(key);
            }
            let mut sorted = keys;
            sorted.sort_unstable();
            prop_assert_eq!(out, sorted);
        }
    }

    #[test]
    fn real_distances_have_room_for_rounding_and_no_more() {
        let options = CsrOptions { directed: true, ..Default::default() };
        let csr = Csr::from_real_edges(4, &[(0, 1, 0.1), (1, 2, 0.2), (0, 2, 0.5)], options).unwrap();
        let far = f32::INFINITY;
        assert_eq!(sssp(&csr, 0, Distances::F32(&[0.0, 0.1, 0.300001, far])), Ok(()));
        let wrong = |distances: [f32; 4], vertex: u64| match sssp(&csr, 0, Distances::F32(&distances)) {
            Err(VerifyError::Distance { vertex: v, .. }) => assert_eq!(v, VertexName::from(vertex)),
            other => panic!("{other:?}"),
        };
        wrong([0.0, 0.1, 0.5, far], 2);
        wrong([0.0, 0.1, 0.2999, far], 2);
        wrong([0.0, 0.1, 0.3, 9.0], 3);
        wrong([0.0, f32::NAN, 0.3, far], 1);
        wrong([0.0, far, 0.3, far], 1);
        assert_eq!(sssp(&csr, 0, Distances::U32(&[0; 4])), Err(VerifyError::Kind));
    }

    proptest! {
        #[test]
        fn distances_over_rounded_weights_are_near_those_of_the_exact_ones(
            edges in prop::collection::vec((0u64..12, 0u64..12, prop_oneof![Just(0.0), 0.0f64..3.0, 1e7f64..1e9]), 1..40),
            source in 0u64..12, v in 0usize..12, change in prop_oneof![Just(1.0 - 2e-7), Just(1.0 + 2e-7), Just(2.0)],
        ) {
            let options = CsrOptions { directed: true, ..Default::default() };
            let real: Vec<(u64, u64, f32)> = edges.iter().map(|&(a, b, w)| (a, b, w as f32)).collect();
            let csr = Csr::from_real_edges(12, &real, options).unwrap();
            // The smallest of parallel edges is kept.
            let exact = |a: u64, b: u64| {
                edges.iter().filter(|e| (e.0, e.1) == (a, b)).map(|e| e.2).fold(f64::INFINITY, f64::min)
            };
            let exact: Vec<f64> = (0..12).flat_map(|u| csr.neighbours_of(u).map(move |n| (u, n))).map(|(u, n)| exact(u, n)).collect();
            let mut distances = dijkstra_real(&csr, source).unwrap();
            prop_assert_eq!(sssp_of_exact_weights(&csr, &exact, source, Distances::F64(&distances)), Ok(()));
            if distances[v] > 0.0 && distances[v].is_finite() {
                distances[v] *= change;
                match sssp_of_exact_weights(&csr, &exact, source, Distances::F64(&distances)) {
                    Err(VerifyError::Distance { vertex, .. }) => prop_assert_eq!(vertex, VertexName::from(v as u64)),
                    other => prop_assert!(false, "{:?}", other),
                }
            }
        }
    }

    #[test]
    fn distances_that_only_the_rounded_weights_give_are_wrong_beyond_the_rounding() {
        let options = CsrOptions { directed: true, ..Default::default() };
        let csr = Csr::from_real_edges(3, &[(0, 1, 16777216.0), (1, 2, 1.0)], options).unwrap();
        let check =
            |exact: [f64; 2]| sssp_of_exact_weights(&csr, &exact, 0, Distances::F64(&[0.0, 16777216.0, 16777217.0]));
        assert_eq!(check([16777217.0, 1.0]), Ok(()));
        let error = check([16777219.0, 1.0]).unwrap_err().to_string();
        assert_eq!(error, "vertex 1: distance 16777216, Dijkstra's algorithm has 16777219");
        let short = sssp_of_exact_weights(&csr, &[1.0], 0, Distances::F64(&[0.0; 3]));
        assert!(matches!(short, Err(VerifyError::Weights { found: 1, arcs: 2 })));
    }

    #[test]
    fn without_weights_each_edge_counts_one() {
        let csr = Csr::from_edges(3, &[(0, 1), (1, 2)], CsrOptions::default()).unwrap();
        assert_eq!(sssp(&csr, 0, Distances::U32(&[0, 1, 2])), Ok(()));
        let error = sssp(&csr, 0, Distances::U32(&[0, 1, u32::MAX])).unwrap_err();
        assert_eq!(error.to_string(), "vertex 2: distance unreached, Dijkstra's algorithm has 2");
    }
}
