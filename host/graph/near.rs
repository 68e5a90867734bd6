//! Lists of other PEs, which a count over a distributed graph reads beside its own. One PE after the other sends those of some of its
//! vertices to all.

use super::batches::{self, Batch, OFFSETS_AT_ONCE};
use super::edges::{GraphError, GraphOnEngine, Lists};
use super::launch::{Launcher, Values};
use super::params::{Near as Parameters, NearCopy as CopyParameters};
use crate::args;
use crate::memory::{Place, Region};
use std::ops::Range;

/// Memory of the lists that a PE has received, and what it knows of all lists.
#[derive(Debug)]
pub(super) struct Near {
    /// Place of each vertex in descending order of degree.
    rank: Region,
    /// Index of the first edge of each vertex among those of all PEs, one PE's after another's.
    offset: Region,
    in_offset: Option<Region>,
    edges: Region,
    /// Lists that one PE sends to all, in the order in which they are sent.
    messages: Vec<Batch>,
}

impl Near {
    /// Allocates the memory, and plans the messages; `None` if all lists are on this PE. Collective.
    pub(super) fn new(graph: &GraphOnEngine, launcher: &Launcher) -> Result<Option<Self>, GraphError> {
        let Some(mirrors) = launcher.mirrors() else { return Ok(None) };
        graph.engine.prepare("wb_near_")?;
        let rank = graph.engine.allocate(Place::Device, graph.vertices as usize * size_of::<u32>())?;
        rank.set_slice(0, &mirrors.ranks())?;
        let edges = graph.engine.allocate(Place::Device, mirrors.message_words() * size_of::<u32>())?;
        let offset = offsets_of_all(graph, launcher, &graph.out)?;
        let inward = graph.inward.as_ref().filter(|_| graph.directed);
        let in_offset = inward.map(|lists| offsets_of_all(graph, launcher, lists)).transpose()?;
        let most = mirrors.message_words() as u64;
        let mut messages = Vec::new();
        for ends in mirrors.firsts().windows(2) {
            let (batches, longest) = batches::plan((&offset, in_offset.as_ref()), ends[0]..ends[1], most)?;
            if longest > most {
                let range = "at most twice the number of vertices";
                return Err(GraphError::Parameter { name: "largest degree", value: longest as f64, range });
            }
            messages.extend(batches.into_iter().filter(|b| b.edges() > 0));
        }
        Ok(Some(Self { rank, offset, in_offset, edges, messages }))
    }

    /// Returns the messages that bring all lists.
    pub(super) fn messages(&self) -> &[Batch] {
        &self.messages
    }

    /// Brings the lists of a message to all PEs. Returns the parameters of a step that reads them. Collective.
    pub(super) fn bring(
        &self,
        graph: &GraphOnEngine,
        launcher: &Launcher,
        lists: &Batch,
    ) -> Result<Parameters, GraphError> {
        let Some(mirrors) = launcher.mirrors() else { return Ok(self.parameters(None)) };
        let (own, mut words) = (graph.own_vertices(), 0);
        if own.contains(&lists.vertices.start) {
            // Offsets among those of all PEs are behind those of the PEs before.
            let base = |offset: &Region| offset.get::<u64>(own.start as usize * size_of::<u64>());
            words += self.copy(graph, launcher, &graph.out, (&lists.out, base(&self.offset)?), words)?;
            if let (Some(inward), Some(in_offset)) = (&graph.inward, &self.in_offset) {
                words += self.copy(graph, launcher, inward, (&lists.inward, base(in_offset)?), words)?;
            }
        }
        mirrors.send(&self.edges, words)?;
        Ok(self.parameters(Some(lists)))
    }

    /// Returns the parameters of a step that reads these lists, or none.
    pub(super) fn parameters(&self, lists: Option<&Batch>) -> Parameters {
        let nothing = Batch { vertices: 0..0, out: 0..0, inward: 0..0 };
        let lists = lists.unwrap_or(&nothing);
        let out_bytes = (lists.out.end - lists.out.start) * size_of::<u32>() as u64;
        Parameters {
            rank: self.rank.address(),
            offset: self.offset.address(),
            in_offset: self.in_offset.as_ref().map_or(0, Region::address),
            edges: self.edges.address(),
            in_edges: self.edges.address() + out_bytes,
            base: lists.out.start,
            in_base: lists.inward.start,
        }
    }

    /// Copies own edges to the message, from its word `at` on. Returns their number.
    fn copy(
        &self,
        graph: &GraphOnEngine,
        launcher: &Launcher,
        lists: &Lists,
        (edges, base): (&Range<u64>, u64),
        at: usize,
    ) -> Result<usize, GraphError> {
        let Some(source) = &lists.edges else { return Ok(0) };
        let p = CopyParameters {
            offset: lists.offset.address(),
            tile: lists.tile.address(),
            to: self.edges.address() + (at * size_of::<u32>()) as u64,
            first: edges.start - base,
            last: edges.end - base,
            vertices: graph.vertices,
            sums: launcher.sums_address(),
            report: launcher.report_address(),
        };
        let kernel = format!("wb_near_copy_{}_{}", source.source(), graph.id_suffix());
        // SAFETY: these are the parameters of this kernel. The regions that they name belong to `self`, the graph and the
        // launcher.
        unsafe { launcher.step_here(&kernel, args!(p, source)) }?;
        Ok((edges.end - edges.start) as usize)
    }
}

/// Returns the index of the first edge of each vertex among those of all PEs, one PE's after another's. Collective.
fn offsets_of_all(graph: &GraphOnEngine, launcher: &Launcher, lists: &Lists) -> Result<Region, GraphError> {
    let region = graph.engine.allocate(Place::Device, (graph.vertices as usize + 1) * size_of::<u64>())?;
    let place = |v: u64| v as usize * size_of::<u64>();
    let parts = |vertices: Range<u64>| {
        let end = vertices.end;
        vertices.step_by(OFFSETS_AT_ONCE as usize).map(move |first| (first, OFFSETS_AT_ONCE.min(end - first) as usize))
    };
    // Lengths of own lists first, then those of all.
    for (first, count) in parts(graph.own_vertices()) {
        let offsets = lists.offset.get_slice::<u64>(place(first), count + 1)?;
        let lengths: Vec<u64> = offsets.windows(2).map(|w| w[1] - w[0]).collect();
        region.set_slice(place(first), &lengths)?;
    }
    launcher.share(Values { region: &region, bytes: size_of::<u64>() })?;
    let mut sum = 0;
    for (first, count) in parts(0..graph.vertices) {
        let mut values = region.get_slice::<u64>(place(first), count)?;
        for value in &mut values {
            sum += std::mem::replace(value, sum);
        }
        region.set_slice(place(first), &values)?;
    }
    region.set(place(graph.vertices), sum)?;
    Ok(region)
}
