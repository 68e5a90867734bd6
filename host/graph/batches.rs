//! Batches of vertices whose lists fit into some memory together.

use super::edges::GraphError;
use crate::memory::Region;
use std::ops::Range;

/// Vertices, and their edges in each direction.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Batch {
    pub vertices: Range<u64>,
    pub out: Range<u64>,
    pub inward: Range<u64>,
}

impl Batch {
    /// Returns the number of edges in both directions.
    pub(super) fn edges(&self) -> u64 {
        (self.out.end - self.out.start) + (self.inward.end - self.inward.start)
    }
}

/// Number of offsets that are copied to the host at a time.
pub(super) const OFFSETS_AT_ONCE: u64 = 1 << 18;

/// Divides vertices into batches of at most `most` edges, or of one vertex that has more. `out` and `inward` are the indices of the
/// first edges of the lists in each direction. Returns also the largest number of edges of a vertex.
pub(super) fn plan(
    (out, inward): (&Region, Option<&Region>),
    vertices: Range<u64>,
    most: u64,
) -> Result<(Vec<Batch>, u64), GraphError> {
    let slice =
        |offsets: &Region, from: u64, count: usize| offsets.get_slice::<u64>(from as usize * size_of::<u64>(), count);
    let first = |offsets: &Region| Ok::<u64, GraphError>(slice(offsets, vertices.start, 1)?[0]);
    let mut start = [vertices.start, first(out)?, inward.map(first).transpose()?.unwrap_or(0)];
    let (mut batches, mut longest, mut before) = (Vec::new(), 0, start);
    let batch = |start: [u64; 3], end: [u64; 3]| Batch {
        vertices: start[0]..end[0],
        out: start[1]..end[1],
        inward: start[2]..end[2],
    };
    for part in vertices.clone().step_by(OFFSETS_AT_ONCE as usize) {
        let count = OFFSETS_AT_ONCE.min(vertices.end - part) as usize;
        // The ends of the lists of these vertices.
        let ends = |offsets: &Region| slice(offsets, part + 1, count);
        let out = ends(out)?;
        let inward = inward.map(ends).transpose()?;
        for i in 0..count {
            let end = [part + i as u64 + 1, out[i], inward.as_ref().map_or(0, |inward| inward[i])];
            let entries = |from: [u64; 3]| (end[1] - from[1]) + (end[2] - from[2]);
            longest = longest.max(entries(before));
            if entries(start) > most && before[0] > start[0] {
                batches.push(batch(start, before));
                start = before;
            }
            before = end;
        }
    }
    if before[0] > start[0] {
        batches.push(batch(start, before));
    }
    Ok((batches, longest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::testing;
    use crate::graph::{Csr, CsrOptions, GraphOnEngine, Placement, PlacementOptions};

    #[test]
    fn batches_hold_each_vertex_once_and_no_more_than_the_work_space() {
        let edges: Vec<_> = (1..40).map(|v| (0, v)).chain((0..30).map(|v| (v, v * 7 % 40))).collect();
        for directed in [false, true] {
            let csr = Csr::from_edges(50, &edges, CsrOptions { directed, ..Default::default() }).unwrap();
            let graph = GraphOnEngine::place(&testing::cpu(), &csr, Placement::Gpu, PlacementOptions::CDLP).unwrap();
            let offsets = (&graph.out.offset, graph.inward.as_ref().map(|lists| &lists.offset));
            let degree = |v: u64| csr.degree(v) + if directed { csr.transpose().degree(v) } else { 0 };
            for (first, most) in [(0, 1), (0, 5), (0, 45), (0, 1000), (7, 5), (50, 5)] {
                let (batches, longest) = plan(offsets, first..50, most).unwrap();
                assert_eq!(longest, (first..50).map(degree).max().unwrap_or(0));
                let mut next = first;
                for b in &batches {
                    assert_eq!(b.vertices.start, next);
                    let entries: u64 = b.vertices.clone().map(degree).sum();
                    assert_eq!(entries, (b.out.end - b.out.start) + (b.inward.end - b.inward.start));
                    assert!(entries <= most || b.vertices.end == next + 1, "{b:?}");
                    next = b.vertices.end;
                }
                assert_eq!(next, 50);
                assert_eq!(batches.len() == 1, most == 1000, "{first} {most}");
            }
        }
    }
}
