//! Verification of breadth-first search: depths and parents.

use super::rules::{self, FAR};
use super::{Found, ParentFault, Search, VerifyError, check_length, check_search, check_source, name};
use crate::graph::csr::{Csr, VertexId, with_neighbours};
use crate::graph::parallel;

/// Depth of vertices that a search does not reach.
pub const UNREACHED: u32 = u32::MAX;

/// Returns the depth of each vertex, found by a serial search.
///
/// # Errors
/// [`VerifyError::Source`] if `source` is not a vertex.
pub fn breadth_first(csr: &Csr, source: u64) -> Result<Vec<u32>, VerifyError> {
    check_source(csr, source)?;
    let mut depths = vec![UNREACHED; csr.vertices() as usize];
    let mut sweep = Sweep::new(csr);
    with_neighbours!(csr.neighbours(), list => sweep.spread(list, source, &mut depths, UNREACHED, |level| level));
    Ok(depths)
}

/// Checks that `depths` are those of a serial search, with [`UNREACHED`] for vertices that it does not reach. All threads
/// check rules that hold for these depths alone. The serial search runs only if a rule does not hold, and then determines
/// the right depth.
///
/// # Errors
/// [`VerifyError::Length`] if there is not one depth for each vertex; [`VerifyError::Source`] or [`VerifyError::NoSuchVertex`]
/// if one of the search is not a vertex; [`VerifyError::Depth`] for the first wrong depth.
pub fn bfs(csr: &Csr, search: impl Into<Search>, depths: &[u32]) -> Result<(), VerifyError> {
    let search = search.into();
    check_length(csr, depths.len())?;
    check_search(csr, search)?;
    let key_of = |depth: u32| if depth == UNREACHED { FAR } else { depth.into() };
    let key = |v: usize| key_of(depths[v]);
    let last = |depths: &[u32]| search.last_key(|limit| limit as u64, |v| key_of(depths[v]));
    let one_more = |key: u64, _| key + 1;
    let shortest = with_neighbours!(csr.neighbours(), list => {
        rules::are_shortest(csr, list, search.source, last(depths), key, one_more)
    });
    if shortest {
        return Ok(());
    }
    let mut expected = breadth_first(csr, search.source)?;
    let last = last(&expected);
    expected.iter_mut().filter(|depth| key_of(**depth) > last).for_each(|depth| *depth = UNREACHED);
    let Some(v) = parallel::position(depths.len(), |v| depths[v] != expected[v]) else { return Ok(()) };
    let depth = |d: u32| Found((d != UNREACHED).then_some(d));
    Err(VerifyError::Depth { vertex: name(csr, v as u64), found: depth(depths[v]), expected: depth(expected[v]) })
}

/// Checks depths as [`bfs`] does, and that each parent is an in-neighbour one level up. The source must be its own
/// parent. Vertices that are not reached must have [`VertexId::NONE`].
///
/// # Errors
/// As for [`bfs`]; also [`VerifyError::Parent`] for the first wrong parent.
pub fn bfs_parents<P: VertexId>(
    csr: &Csr,
    search: impl Into<Search>,
    depths: &[u32],
    parents: &[P],
) -> Result<(), VerifyError> {
    let search = search.into();
    let source = search.source;
    check_length(csr, parents.len())?;
    bfs(csr, search, depths)?;
    let fault = |v: u64| -> Option<ParentFault> {
        let parent = parents[v as usize];
        let depth = depths[v as usize];
        if v == source {
            return (parent.number() != source).then_some(ParentFault::OfSource);
        }
        match (depth == UNREACHED, parent == P::NONE) {
            (true, true) => return None,
            (true, false) => return Some(ParentFault::OfUnreached),
            (false, true) => return Some(ParentFault::Missing),
            (false, false) => (),
        }
        if depths.get(parent.index()).is_none_or(|&above| above == UNREACHED || above + 1 != depth) {
            Some(ParentFault::Level)
        } else if has_edge(csr, parent.number(), v) {
            None
        } else {
            Some(ParentFault::NoEdge)
        }
    };
    match parallel::find_first(csr.vertices() as usize, |v| fault(v as u64).map(|reason| (v as u64, reason))) {
        None => Ok(()),
        Some((v, reason)) => {
            let parent = parents[v as usize];
            let known = parent.number() < csr.vertices();
            let parent =
                (parent != P::NONE).then(|| if known { name(csr, parent.number()) } else { parent.number().into() });
            Err(VerifyError::Parent { vertex: name(csr, v), parent: Found(parent), reason })
        }
    }
}

fn has_edge(csr: &Csr, from: u64, to: u64) -> bool {
    // Parents have long lists, and their children short ones.
    if csr.directed() { csr.has_arc(from, to) } else { csr.neighbours_of(to).any(|n| n == from) }
}

/// State of serial breadth-first searches that mark the vertices that they reach.
///
/// In undirected graphs wide levels are searched bottom-up (Beamer, Asanovic, Patterson, "Direction-Optimizing
/// Breadth-First Search", SC 2012). Each vertex without a mark looks for a neighbour in the level above and stops at
/// the first, which leaves most edges unread.
pub(super) struct Sweep<'a> {
    csr: &'a Csr,
    /// Number of arcs of vertices that no search has expanded yet.
    unexplored: u64,
    /// Bitmap of the vertices of a level.
    bits: Vec<u64>,
}

/// The search goes bottom-up if the level has more arcs than the unexplored ones divided by this (as in GAP).
const ALPHA: u64 = 15;
/// The search goes top-down again if a level has fewer vertices than all divided by this (as in GAP).
const BETA: u64 = 18;

impl<'a> Sweep<'a> {
    pub(super) fn new(csr: &'a Csr) -> Self {
        Self { csr, unexplored: csr.arcs(), bits: Vec::new() }
    }

    /// Marks the vertices that `source` reaches through vertices without a mark. A vertex has a mark if its value
    /// differs from `none`.
    pub(super) fn spread<V: VertexId, T: Copy + PartialEq>(
        &mut self,
        list: &[V],
        source: u64,
        marks: &mut [T],
        none: T,
        mark: impl Fn(u32) -> T,
    ) {
        let csr = self.csr;
        let offsets = csr.offsets();
        let arcs = |v: usize| &list[offsets[v] as usize..offsets[v + 1] as usize];
        let mut level = 0;
        marks[source as usize] = mark(level);
        let mut frontier = vec![V::from_index(source as usize)];
        let mut next = Vec::new();
        while !frontier.is_empty() {
            level += 1;
            let out: u64 = frontier.iter().map(|v| csr.degree(v.number())).sum();
            // A bottom-up step inspects all vertices, so it pays only if the level has a share of the arcs.
            if !csr.directed() && out > self.unexplored / ALPHA && out > csr.vertices() / ALPHA {
                self.spread_from_below(list, &mut frontier, marks, none, &mark, &mut level);
                continue;
            }
            self.unexplored -= out.min(self.unexplored);
            for u in &frontier {
                for &n in arcs(u.index()) {
                    let place = &mut marks[n.index()];
                    if *place == none {
                        *place = mark(level);
                        next.push(n);
                    }
                }
            }
            std::mem::swap(&mut frontier, &mut next);
            next.clear();
        }
    }

    /// Searches levels bottom-up as long as they are wide. `level` is the first level to search, and afterwards the
    /// last one searched.
    fn spread_from_below<V: VertexId, T: Copy + PartialEq>(
        &mut self,
        list: &[V],
        frontier: &mut Vec<V>,
        marks: &mut [T],
        none: T,
        mark: &impl Fn(u32) -> T,
        level: &mut u32,
    ) {
        let offsets = self.csr.offsets();
        self.bits.clear();
        self.bits.resize(marks.len().div_ceil(64), 0);
        for v in frontier.iter() {
            self.bits[v.index() / 64] |= 1 << (v.index() % 64);
        }
        let mut width = frontier.len();
        loop {
            frontier.clear();
            for v in 0..marks.len() {
                if marks[v] == none {
                    let arcs = &list[offsets[v] as usize..offsets[v + 1] as usize];
                    if arcs.iter().any(|n| self.bits[n.index() / 64] >> (n.index() % 64) & 1 == 1) {
                        marks[v] = mark(*level);
                        frontier.push(V::from_index(v));
                        self.unexplored -= (arcs.len() as u64).min(self.unexplored);
                    }
                }
            }
            let narrow = (frontier.len() as u64) < self.csr.vertices() / BETA;
            if frontier.is_empty() || (narrow && frontier.len() <= width) {
                return;
            }
            width = frontier.len();
            self.bits.fill(0);
            for v in frontier.iter() {
                self.bits[v.index() / 64] |= 1 << (v.index() % 64);
            }
            *level += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::VertexName;
    use crate::graph::{CsrOptions, hub};
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn plain(csr: &Csr, source: u64) -> Vec<u32> {
        let mut depths = vec![UNREACHED; csr.vertices() as usize];
        depths[source as usize] = 0;
        let mut queue = VecDeque::from([source]);
        while let Some(u) = queue.pop_front() {
            for n in csr.neighbours_of(u) {
                if depths[n as usize] == UNREACHED {
                    depths[n as usize] = depths[u as usize] + 1;
                    queue.push_back(n);
                }
            }
        }
        depths
    }

    fn parents(csr: &Csr, depths: &[u32], source: u64) -> Vec<u32> {
        let mut parents = vec![u32::NONE; depths.len()];
        parents[source as usize] = source as u32;
        for u in 0..csr.vertices() {
            for n in csr.neighbours_of(u) {
                if depths[u as usize] != UNREACHED && depths[n as usize] == depths[u as usize] + 1 {
                    parents[n as usize] = u as u32;
                }
            }
        }
        parents
    }

    proptest! {
        #[test]
        fn the_search_is_a_plain_search(
            edges in prop::collection::vec((0u64..60, 0u64..60), 0..400),
            source in 0u64..60, directed: bool, wide: bool,
        ) {
            let options = CsrOptions { directed, wide, ..Default::default() };
            let mut csr = Csr::from_edges(60, &edges, options).unwrap();
            let expected = plain(&csr, source);
            prop_assert_eq!(&breadth_first(&csr, source).unwrap(), &expected);
            let parents = parents(&csr, &expected, source);
            prop_assert_eq!(bfs_parents(&csr, source, &expected, &parents), Ok(()));
            hub::order_by_degree(&mut csr);
            prop_assert_eq!(bfs_parents(&csr, source, &expected, &parents), Ok(()));
        }

        #[test]
        fn any_wrong_depth_is_found(
            edges in prop::collection::vec((0u64..20, 0u64..20), 0..60), v in 0usize..20, wrong in prop_oneof![0u32..20, Just(UNREACHED)],
        ) {
            let csr = Csr::from_edges(20, &edges, CsrOptions::default()).unwrap();
            let mut depths = breadth_first(&csr, 3).unwrap();
            prop_assume!(depths[v] != wrong);
            depths[v] = wrong;
            match bfs(&csr, 3, &depths) {
                Err(VerifyError::Depth { vertex, .. }) => prop_assert_eq!(vertex, VertexName::from(v as u64)),
                other => prop_assert!(false, "{:?}", other),
            }
        }
    }

    #[test]
    fn wrong_parents_are_named() {
        // The edges are 0 - 1 - 2 - 3 and 0 - 4; vertex 5 has none.
        let csr = Csr::from_edges(6, &[(0, 1), (1, 2), (2, 3), (0, 4)], CsrOptions::default()).unwrap();
        let depths = breadth_first(&csr, 0).unwrap();
        let good = [0, 0, 1, 2, 0, u32::NONE];
        assert_eq!(bfs_parents(&csr, 0, &depths, &good), Ok(()));
        for (vertex, parent, fault) in [
            (0, 1, ParentFault::OfSource),
            (2, 3, ParentFault::Level),
            (2, 4, ParentFault::NoEdge),
            (3, u32::NONE, ParentFault::Missing),
            (3, 77, ParentFault::Level),
            (5, 0, ParentFault::OfUnreached),
        ] {
            let mut parents = good;
            parents[vertex] = parent;
            match bfs_parents(&csr, 0, &depths, &parents) {
                Err(VerifyError::Parent { vertex: v, reason, .. }) => {
                    assert_eq!((v, reason), (VertexName::from(vertex as u64), fault))
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn sources_and_lengths_are_checked() {
        let csr = Csr::from_edges(2, &[(0, 1)], CsrOptions::default()).unwrap();
        assert_eq!(bfs(&csr, 2, &[0, 1]), Err(VerifyError::Source { vertex: 2, vertices: 2 }));
        assert_eq!(bfs(&csr, 0, &[0]), Err(VerifyError::Length { found: 1, vertices: 2 }));
        assert_eq!(
            bfs(&csr, 0, &[0, UNREACHED]).unwrap_err().to_string(),
            "vertex 1: depth unreached, the serial search has 1"
        );
    }
}
