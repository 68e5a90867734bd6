//! The graph behind an import: lists in memory or in temporary files, which are ordered while they are written.

use super::header::StoredIds;
use super::{StoredInfo, WeightType};
use crate::graph::csr::{self, Csr, NeighbourOrder, Neighbours, Weights};
use crate::graph::external::FileLists;
use crate::graph::hub;
use crate::graph::ids::Ids;
use crate::graph::import::{ImportError, Loaded, Notice, SortedGraph, Summary};
use crate::graph::order::Order;
use crate::graph::parallel;
use std::ops::Range;

/// Arcs of a graph in memory that are ordered at a time.
const ARCS_AT_ONCE: u64 = 1 << 22;

/// A graph that is to be stored.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) out: Lists,
    /// In-lists of a directed graph.
    pub(super) inward: Option<Lists>,
    pub(super) ids: Ids,
    /// Bitmap of the vertices with an edge to themselves; empty if there are none.
    pub(super) loops: Vec<u64>,
    directed: bool,
    weights: Option<WeightType>,
    /// The largest weight, if they are integers, and the mean.
    largest_and_mean: [f64; 2],
    summary: Summary,
    pub(super) notices: Vec<Notice>,
    pub(super) arcs_at_once: u64,
}

/// Neighbour lists in the order of the neighbours' numbers.
#[derive(Debug)]
pub(super) enum Lists {
    InMemory(Csr),
    InFiles(FileLists),
}

impl Lists {
    pub(super) fn offsets(&self) -> &[u64] {
        match self {
            Self::InMemory(csr) => csr.offsets(),
            Self::InFiles(lists) => lists.offsets(),
        }
    }

    pub(super) fn vertices(&self) -> u64 {
        self.offsets().len() as u64 - 1
    }

    pub(super) fn arcs(&self) -> u64 {
        self.offsets().last().copied().unwrap_or_default()
    }

    /// Returns the bytes of a neighbour.
    pub(super) fn width(&self) -> usize {
        match self {
            Self::InMemory(csr) => csr.neighbours().width(),
            Self::InFiles(lists) => lists.width(),
        }
    }

    /// Returns the lists of some vertices, with the best-connected neighbours first.
    fn ordered(&self, vertices: Range<usize>) -> Result<(Neighbours, Option<Weights>), ImportError> {
        let (mut neighbours, mut weights) = match self {
            Self::InFiles(lists) => lists.read(vertices.clone())?,
            Self::InMemory(csr) => {
                let arcs = csr.offsets()[vertices.start] as usize..csr.offsets()[vertices.end] as usize;
                let neighbours = match csr.neighbours() {
                    Neighbours::U32(list) => Neighbours::U32(list[arcs.clone()].to_vec()),
                    Neighbours::U64(list) => Neighbours::U64(list[arcs.clone()].to_vec()),
                };
                let weights = csr.weights().map(|weights| match weights {
                    Weights::U32(w) => Weights::U32(w[arcs].to_vec()),
                    Weights::F32(w) => Weights::F32(w[arcs].to_vec()),
                    Weights::F64(w) => Weights::F64(w[arcs].to_vec()),
                });
                (neighbours, weights)
            }
        };
        hub::order_lists(self.offsets(), vertices, &mut neighbours, weights.as_mut());
        Ok((neighbours, weights))
    }
}

/// Lists of some vertices as they are stored.
pub(super) struct Ordered {
    pub(super) neighbours: Neighbours,
    pub(super) weights: Option<Weights>,
    /// The first neighbours of each vertex.
    pub(super) hubs: Neighbours,
}

impl Source {
    pub(super) fn in_memory(loaded: Loaded) -> Self {
        let Loaded { csr, summary, notices, .. } = loaded;
        let loops: Vec<u64> = parallel::map(csr.vertices().div_ceil(64) as usize, |word| {
            let vertices = word as u64 * 64..csr.vertices().min(word as u64 * 64 + 64);
            vertices.fold(0, |bits, v| bits | u64::from(csr.has_self_loop(v)) << (v % 64))
        });
        let weights = csr.weights().map(|weights| match weights {
            Weights::U32(_) => WeightType::U32,
            Weights::F32(_) => WeightType::F32,
            Weights::F64(_) => WeightType::F64,
        });
        let mean = csr.weights().map_or(1.0, |w| w.sum() / csr.arcs().max(1) as f64);
        let largest = match csr.weights() {
            None => 1.0,
            Some(weights @ Weights::U32(_)) => weights.max(),
            Some(_) => 0.0,
        };
        Self {
            loops: if loops.iter().any(|word| *word != 0) { loops } else { Vec::new() },
            inward: csr.directed().then(|| Lists::InMemory(csr.transpose().without_weights())),
            ids: csr.ids().clone(),
            directed: csr.directed(),
            weights,
            largest_and_mean: [largest, mean],
            summary,
            notices,
            out: Lists::InMemory(csr),
            arcs_at_once: ARCS_AT_ONCE,
        }
    }

    pub(super) fn sorted(graph: SortedGraph) -> Self {
        Self {
            weights: graph.out.weights(),
            out: Lists::InFiles(graph.out),
            inward: graph.inward.map(Lists::InFiles),
            ids: graph.ids,
            loops: if graph.loops.iter().any(|word| *word != 0) { graph.loops } else { Vec::new() },
            directed: graph.directed,
            largest_and_mean: [graph.largest, graph.mean],
            summary: graph.summary,
            notices: graph.notices,
            arcs_at_once: graph.arcs_at_once,
        }
    }

    pub(super) fn info(&self) -> StoredInfo {
        let (vertices, arcs) = (self.out.vertices(), self.out.arcs());
        let loops = self.loops.iter().map(|word| u64::from(word.count_ones())).sum();
        let (ids, id_base) = match &self.ids {
            Ids::Dense { base, .. } => (StoredIds::Dense, *base),
            Ids::Sparse(_) => (StoredIds::Listed, 0),
            Ids::Named(_) => (StoredIds::Named, 0),
        };
        let [largest_weight, mean_weight] = self.largest_and_mean;
        StoredInfo {
            vertices,
            arcs,
            edges: if self.directed { arcs } else { (arcs - loops) / 2 + loops },
            directed: self.directed,
            neighbour_bytes: self.out.width(),
            packed: false,
            reordered: false,
            part: None,
            weights: self.weights,
            input: self.summary,
            order: NeighbourOrder::ByDegree,
            ids,
            id_base,
            loops,
            largest_weight,
            mean_weight,
        }
    }

    /// Returns the order of the vertices by descending degree: by the sum of both directions of a directed graph.
    pub(super) fn order_by_degree(&self) -> Order {
        let outside = self.out.offsets();
        let inward = self.inward.as_ref().map(Lists::offsets);
        let degree = |offsets: &[u64], v: usize| offsets[v + 1] - offsets[v];
        Order::by_degree(outside.len() - 1, |v| degree(outside, v) + inward.map_or(0, |offsets| degree(offsets, v)))
    }

    /// Calls `take` with all lists of one side in their order, those of some vertices at a time.
    pub(super) fn each<E: From<ImportError>>(
        &self,
        lists: &Lists,
        mut take: impl FnMut(Ordered) -> Result<(), E>,
    ) -> Result<(), E> {
        let offsets = lists.offsets();
        for vertices in csr::ranges(offsets, usize::MAX, self.arcs_at_once) {
            let (neighbours, weights) = lists.ordered(vertices.clone())?;
            let own = &offsets[vertices.start..=vertices.end];
            let hubs = match &neighbours {
                Neighbours::U32(list) => Neighbours::U32(hub::hubs_of_lists(own, list, true, |n| n)),
                Neighbours::U64(list) => Neighbours::U64(hub::hubs_of_lists(own, list, true, |n| n)),
            };
            take(Ordered { neighbours, weights, hubs })?;
        }
        Ok(())
    }
}
