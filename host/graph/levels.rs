//! Levels of a breadth-first search, on one PE or on several: the direction of each, and when the search ends.

use super::edges::{GraphError, GraphOnEngine};
use super::params::{
    BFS_DEGREES as DEGREES, BFS_FOUND as FOUND, BFS_HUB_HITS as HUB_HITS, BFS_ITEMS as ITEMS, BFS_SCANNED as SCANNED,
    GRAPH_SUMS,
};
use crate::setters::setters;
use std::fmt;
use std::time::{Duration, Instant};

/// Depth of a vertex that the search did not reach.
pub const UNREACHED: u32 = u32::MAX;

/// Direction in which a level was searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From each vertex of the frontier along its edges.
    TopDown,
    /// From each unreached vertex back to the frontier.
    BottomUp,
    /// First from unreached vertices to their hub neighbours in memory, then from the frontier for the remaining
    /// vertices.
    Both,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TopDown => "top-down",
            Self::BottomUp => "bottom-up",
            Self::Both => "both",
        })
    }
}

/// Options of a search.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct BfsOptions {
    /// True to record parents as well as depths.
    pub parents: bool,
    /// A level goes bottom-up if the frontier's edges exceed the unexplored edges divided by `alpha`. 0 always stays
    /// top-down. GAP uses 15. The default here is larger, since most vertices find their parent among the hub
    /// neighbours, which makes bottom-up steps cheaper.
    pub alpha: u64,
    /// The search goes top-down again if the frontier shrinks and is at most the vertices divided by `beta` (GAP: 18).
    /// It must also be smaller than the number of unreached vertices, which would otherwise read fewer lists than the
    /// frontier.
    pub beta: u64,
    /// True to record the bytes that each level reads from storage. This copies the counters from the engine's memory
    /// once per level.
    pub trace_io: bool,
    /// Vertex that ends the search: the last level is the one that reaches this vertex. Vertices further away stay
    /// unreached.
    pub target: Option<u64>,
    /// Largest depth. Vertices further away stay unreached.
    pub max_depth: Option<u32>,
}

setters!(BfsOptions {
    parents: bool,
    alpha: u64,
    beta: u64,
    trace_io: bool,
    target: Option<u64>,
    max_depth: Option<u32>,
});

impl Default for BfsOptions {
    fn default() -> Self {
        Self { parents: true, alpha: 40, beta: 18, trace_io: false, target: None, max_depth: None }
    }
}

/// Report of one level of a search.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct LevelReport {
    /// Depth of the vertices that the level found.
    pub level: u32,
    /// Direction of the search.
    pub direction: Direction,
    /// Vertices of the frontier from which the level started.
    pub frontier: u64,
    /// Vertices found.
    pub found: u64,
    /// Edges inspected.
    pub scanned: u64,
    /// Vertices found without reading an edge, since one of the hub neighbours kept in memory was in the frontier.
    pub hub_hits: u64,
    /// Bytes read from storage; `None` unless [`BfsOptions::trace_io`] is set and the edges are on storage.
    pub read_bytes: Option<u64>,
    /// Bytes that PEs put to each other, or `None` for a search of one PE.
    pub put_bytes: Option<u64>,
    /// Wall-clock time.
    pub elapsed: Duration,
}

/// Sums of a step: `BFS_*` of `kernels/graph/params.h`.
pub(super) type Sums = [u64; GRAPH_SUMS];

/// Kernels of a search. All PEs see the same sums, and so take the same steps.
pub(super) trait Steps {
    /// True if a step by hubs that leaves no vertex ends its level. On several PEs another step tells the others what it
    /// has found.
    const HUBS_END_A_LEVEL: bool;

    /// Marks all vertices as unreached but the source, which is queued.
    fn start(&mut self) -> Result<Sums, GraphError>;
    /// Expands the queue. `resumes` is true after a step by hubs of the same level.
    fn top_down(&mut self, level: u32, resumes: bool) -> Result<Sums, GraphError>;
    /// Looks for a seen neighbour of each unreached vertex. `resumes` is true after a step by hubs of the same level.
    fn bottom_up(&mut self, level: u32, resumes: bool) -> Result<Sums, GraphError>;
    /// Looks for a seen neighbour among those that are kept in memory.
    fn by_hubs(&mut self, level: u32) -> Result<Sums, GraphError>;
    /// Queues the vertices that the last bottom-up step found.
    fn collect(&mut self, level: u32) -> Result<Sums, GraphError>;
    fn has_reached_target(&self) -> Result<bool, GraphError>;
    /// Returns the lists of this PE, whose storage is counted.
    fn graph(&self) -> &GraphOnEngine;
    /// Returns the number of bytes that all PEs have put to each other in this search; `None` on one PE.
    fn put_bytes(&self) -> Option<u64>;
}

/// Sizes by which a search decides, on all PEs together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub vertices: u64,
    pub arcs: u64,
    /// Number of vertices that have edges.
    pub connected: u64,
    /// True if the lists for bottom-up steps are placed.
    pub inward: bool,
    /// Pages of the out-lists and of the lists for bottom-up steps, if edges are read in pages.
    pub pages: Option<[u64; 2]>,
    /// True if the lists stand in the order of degrees, the longest first.
    pub by_degree: bool,
}

impl Sizes {
    fn lists_in(&self, pages: u64) -> Pages {
        Pages { pages, arcs: self.arcs, by_degree: self.by_degree }
    }
}

/// Searches level by level. Returns the report of each level, and the number of vertices reached.
pub(super) fn search<S: Steps>(
    steps: &mut S,
    options: &BfsOptions,
    sizes: Sizes,
) -> Result<(Vec<LevelReport>, u64), GraphError> {
    let first = steps.start()?;
    let (mut items, mut degrees, mut frontier) = (first[ITEMS], first[DEGREES], 1);
    let (mut unexplored, mut reached, mut bottom_up) = (sizes.arcs, 1, false);
    let mut levels = Vec::new();
    for level in 1..=options.max_depth.unwrap_or(UNREACHED - 1) {
        if steps.has_reached_target()? {
            break;
        }
        let before = if options.trace_io { steps.graph().stats()? } else { None };
        let (started, put_before) = (Instant::now(), steps.put_bytes());
        let queued = !bottom_up;
        if queued {
            if items == 0 {
                break;
            }
            bottom_up = sizes.inward && options.alpha != 0 && degrees > unexplored / options.alpha;
            unexplored = unexplored.saturating_sub(degrees);
        }
        let (direction, sums) = match (bottom_up, sizes.pages) {
            (true, Some(pages)) if queued => {
                let [outward, inward] = pages.map(|pages| sizes.lists_in(pages));
                first_bottom_up(steps, level, outward.of_frontier(items, degrees), inward)?
            }
            (true, _) => (Direction::BottomUp, steps.bottom_up(level, false)?),
            (false, _) => {
                let sums = steps.top_down(level, false)?;
                (items, degrees) = (sums[ITEMS], sums[DEGREES]);
                (Direction::TopDown, sums)
            }
        };
        let found = sums[FOUND];
        reached += found;
        let small = found < frontier && found <= sizes.vertices / options.beta.max(1);
        if bottom_up && found != 0 && small && found < sizes.connected.saturating_sub(reached) {
            // The frontier is small again, also compared with the unreached vertices that a bottom-up step would
            // inspect. The next step is top-down and needs a queue.
            let sums = steps.collect(level)?;
            (items, degrees, bottom_up) = (sums[ITEMS], sums[DEGREES], false);
        }
        let elapsed = started.elapsed();
        levels.push(LevelReport {
            level,
            direction,
            frontier,
            found,
            scanned: sums[SCANNED],
            hub_hits: sums[HUB_HITS],
            read_bytes: steps.graph().stats_since(before)?.map(|io| io.read_bytes),
            put_bytes: steps.put_bytes().zip(put_before).map(|(now, before)| now - before),
            elapsed,
        });
        frontier = found;
        if found == 0 {
            break;
        }
    }
    Ok((levels, reached))
}

/// Lists of one direction that are read in pages.
#[derive(Clone, Copy, Debug)]
struct Pages {
    pages: u64,
    arcs: u64,
    by_degree: bool,
}

impl Pages {
    /// Returns about how many pages a stretch of so many edges has.
    fn of(self, edges: u64) -> u64 {
        let pages = u128::from(edges) * u128::from(self.pages) / u128::from(self.arcs.max(1));
        pages.min(self.pages.into()) as u64
    }

    /// Returns about how many pages a frontier of so many lists with so many edges has.
    fn of_frontier(self, lists: u64, edges: u64) -> u64 {
        // Long lists stand one behind the other in the order of degrees. Otherwise each may begin in a page of its own.
        if self.by_degree { self.of(edges) } else { self.of(edges).saturating_add(lists).min(self.pages) }
    }

    /// Returns about how many pages the lists have that a step by hubs has left.
    fn of_rest(self, by_hubs: &Sums) -> u64 {
        // In the order of degrees, lists that are left are the shortest, whose gaps are wide: measured on Kronecker graphs, their edges
        // have twice as many bits as those of a frontier.
        let stretch = self.of(by_hubs[DEGREES]);
        by_hubs[ITEMS].min(if self.by_degree { 2 * stretch } else { stretch })
    }
}

/// Does the first bottom-up step after top-down ones, for edges that are read in pages. It first uses the hub neighbours in
/// memory. What remains then decides between two ways. One reads the lists of the remaining vertices, in order of vertices;
/// the other reads the frontier's lists, which are about `frontier` pages. Neither reads a page twice, as both go through
/// the lists in order.
fn first_bottom_up<S: Steps>(
    steps: &mut S,
    level: u32,
    frontier: u64,
    inward: Pages,
) -> Result<(Direction, Sums), GraphError> {
    let by_hubs = steps.by_hubs(level)?;
    let (direction, mut sums) = if by_hubs[ITEMS] == 0 && S::HUBS_END_A_LEVEL {
        return Ok((Direction::BottomUp, by_hubs));
    } else if inward.of_rest(&by_hubs) <= frontier {
        (Direction::BottomUp, steps.bottom_up(level, true)?)
    } else {
        (Direction::Both, steps.top_down(level, true)?)
    };
    sums[FOUND] += by_hubs[FOUND];
    sums[HUB_HITS] += by_hubs[HUB_HITS];
    Ok((direction, sums))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A level of which a step by hubs leaves so many lists, in a stretch of so many edges.
    struct Left {
        lists: u64,
        edges: u64,
    }

    impl Steps for Left {
        const HUBS_END_A_LEVEL: bool = true;
        fn start(&mut self) -> Result<Sums, GraphError> {
            unreachable!("the search has begun")
        }
        fn top_down(&mut self, _: u32, resumes: bool) -> Result<Sums, GraphError> {
            assert!(resumes);
            Ok([0, 30, 0, 0, 0, 0])
        }
        fn bottom_up(&mut self, _: u32, resumes: bool) -> Result<Sums, GraphError> {
            assert!(resumes);
            Ok([0, 30, 0, 0, 0, 0])
        }
        fn by_hubs(&mut self, _: u32) -> Result<Sums, GraphError> {
            Ok([self.lists, 7, self.edges, 0, 7, 0])
        }
        fn collect(&mut self, _: u32) -> Result<Sums, GraphError> {
            unreachable!("the search goes on bottom-up")
        }
        fn has_reached_target(&self) -> Result<bool, GraphError> {
            Ok(false)
        }
        fn graph(&self) -> &GraphOnEngine {
            unreachable!("no counters are asked for")
        }
        fn put_bytes(&self) -> Option<u64> {
            None
        }
    }

    #[test]
    fn a_level_is_read_from_the_side_with_fewer_pages() {
        let pages = |by_degree| Pages { pages: 1000, arcs: 400_000, by_degree };
        for (by_degree, frontier, lists, edges, expected) in [
            // In the order of degrees, 10,000 short lists stand in 50 pages.
            (true, 100, 10_000, 20_000, Direction::BottomUp),
            (true, 99, 10_000, 20_000, Direction::Both),
            // In another order they lie in 50 pages at least, of which a stretch knows all.
            (false, 50, 10_000, 20_000, Direction::BottomUp),
            (false, 49, 10_000, 20_000, Direction::Both),
            (false, 1000, 10_000, 400_000, Direction::BottomUp),
            (false, 999, 10_000, 400_000, Direction::Both),
            // A list is in a page or two, however many edges are around it.
            (true, 3, 3, 400_000, Direction::BottomUp),
            (false, 3, 3, 400_000, Direction::BottomUp),
            (true, 0, 0, 0, Direction::BottomUp),
        ] {
            let (direction, sums) = first_bottom_up(&mut Left { lists, edges }, 2, frontier, pages(by_degree)).unwrap();
            assert_eq!(direction, expected, "{by_degree} {frontier} {lists} {edges}");
            assert_eq!(sums[FOUND], if lists == 0 { 7 } else { 37 });
        }
    }

    #[test]
    fn pages_of_a_frontier_are_at_most_all() {
        let sparse = Pages { pages: 1000, arcs: 400_000, by_degree: false };
        let dense = Pages { by_degree: true, ..sparse };
        assert_eq!((sparse.of_frontier(10, 40_000), dense.of_frontier(10, 40_000)), (110, 100));
        assert_eq!((sparse.of_frontier(950, 40_000), dense.of_frontier(1, u64::MAX)), (1000, 1000));
        let unknown = Pages { pages: u64::MAX, arcs: 3, by_degree: false };
        assert_eq!((unknown.of_frontier(u64::MAX, 3), unknown.of(0)), (u64::MAX, 0));
        assert_eq!(Pages { pages: 0, arcs: 0, by_degree: true }.of_frontier(0, 0), 0);
    }
}
