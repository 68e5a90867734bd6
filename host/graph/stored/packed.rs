//! Packed lists of a stored graph: their arrays, and reading them.

use super::arcs::ARCS_AT_ONCE;
use super::open::damaged;
use super::{GraphName, StoredGraph, WeightType};
use crate::graph::csr::check_offsets;
use crate::graph::edges::{EdgeStore, GraphError};
use crate::graph::order::Order;
use crate::graph::packed::{self, BLOCK_ARCS, Damage, MOST_BLOCK_WORDS};
use crate::graph::parallel;
use crate::graph::place;
use crate::graph::shape::GraphShape;
use crate::memory::Place;
use crate::storage::{ArrayReader, Cache, StorageError, Volume};

/// Number outside of each vertex: u32.
pub(super) const ORDER: &str = "order";

/// Returns the names of the arrays beside the words of packed lists, which have the name `words`: the first word of each
/// block, u64; the width of each group of packed degrees, u8; and their words, u32.
fn beside(words: &str) -> [&'static str; 3] {
    match words {
        place::IN_NEIGHBOURS => ["in-positions", "in-degree-widths", "in-degrees"],
        place::WEIGHTED => ["weighted-positions", "degree-widths", "degrees"],
        _ => ["positions", "degree-widths", "degrees"],
    }
}

/// Returns the name of the array with the first word of each block of packed lists.
pub(super) fn positions(words: &str) -> &'static str {
    beside(words)[0]
}

/// Returns the name of the array with the widths of packed degrees.
pub(super) fn degree_widths(words: &str) -> &'static str {
    beside(words)[1]
}

/// Returns the name of the array with packed degrees.
pub(super) fn degrees(words: &str) -> &'static str {
    beside(words)[2]
}

/// Reads the degrees of the lists `words`, as offsets.
pub(super) fn read_offsets(
    volume: &Volume,
    graph: &GraphName,
    words: &str,
    vertices: u64,
    arcs: u64,
) -> Result<Vec<u64>, GraphError> {
    let widths = volume.read_array::<u8>(&graph.array(degree_widths(words)))?;
    let packed = volume.read_array::<u32>(&graph.array(degrees(words)))?;
    let degrees = packed::unpack_values(&widths, &packed, vertices as usize)
        .ok_or_else(|| damaged(graph, format!("`{}` has not the degrees of {vertices} vertices", degrees(words))))?;
    let mut sum = 0;
    let ends = degrees.into_iter().map(|degree| {
        sum += u64::from(degree);
        sum
    });
    let offsets: Vec<u64> = std::iter::once(0).chain(ends).collect();
    check_offsets(&offsets, arcs, vertices).map_err(|e| damaged(graph, e.to_string()))?;
    Ok(offsets)
}

/// Reads the order of the vertices.
pub(super) fn read_order(volume: &Volume, graph: &GraphName, vertices: u64) -> Result<Order, GraphError> {
    let outside = volume.read_array::<u32>(&graph.array(ORDER))?;
    if outside.len() as u64 != vertices {
        return Err(damaged(graph, format!("`{ORDER}` has {} vertices, the header says {vertices}", outside.len())));
    }
    Order::from_outside(outside).ok_or_else(|| damaged(graph, format!("`{ORDER}` names a vertex twice")))
}

impl StoredGraph {
    /// Reads where the blocks of packed lists begin, and compares this with the number of words.
    fn positions(&self, volume: &Volume, words: &str, weighted: bool) -> Result<Vec<u64>, GraphError> {
        let positions = volume.read_array::<u64>(&self.name().array(positions(words)))?;
        let array = self.name().array(words);
        let count = volume.manifest()?.entries().iter().find(|e| e.name == array).map_or(0, |e| e.count);
        let blocks = packed::blocks(self.own_arcs(words == place::IN_NEIGHBOURS));
        let least = packed::least_block_words(weighted);
        let is_good = |b: usize| {
            positions[b + 1].checked_sub(positions[b]).is_some_and(|words| (least..=MOST_BLOCK_WORDS).contains(&words))
        };
        let ends = (positions.first().copied(), positions.last().copied());
        if positions.len() as u64 != blocks + 1
            || ends != (Some(0), Some(count))
            || !parallel::all(blocks as usize, is_good)
        {
            let reason = format!("`{words}` has {count} words, and its positions are not those of {blocks} blocks");
            return Err(damaged(self.name(), reason));
        }
        Ok(positions)
    }

    /// Makes packed lists readable for kernels: on the cache's volume, where they stay.
    pub(super) fn packed_on(&self, cache: &Cache, words: &str, weighted: bool) -> Result<EdgeStore, GraphError> {
        let positions = self.positions(cache.volume(), words, weighted)?;
        let positions = place::device(cache.volume().engine(), &positions)?;
        Ok(EdgeStore::PackedStorage { words: cache.open(&self.name().array(words))?, positions })
    }

    /// Copies packed lists to memory, and checks all of them: kernels do not check what is in memory.
    pub(super) fn packed_in_memory(
        &self,
        volume: &Volume,
        words: &str,
        weighted: bool,
        place: Place,
    ) -> Result<EdgeStore, GraphError> {
        let engine = volume.engine();
        let mut column = PackedColumn::new(self, volume, words, weighted)?;
        let positions = place::device(engine, &column.positions)?;
        let count = column.positions.last().copied().unwrap_or_default() as usize;
        let region = engine.allocate(place, count * size_of::<u32>())?;
        let mut at = 0;
        while let Some(read) = column.next_blocks()? {
            region.set_slice(at, read)?;
            at += size_of_val(read);
        }
        column.finish()?;
        Ok(EdgeStore::PackedMemory { words: region, positions })
    }

    /// Returns true if the lists with weights are packed, too.
    pub(super) fn has_packed_weights(&self) -> bool {
        self.info.packed && self.info.weights.is_some_and(|kind| kind != WeightType::F64)
    }
}

/// Packed lists that are read and decoded from the beginning to the end.
pub(super) struct PackedColumn<'a> {
    graph: &'a StoredGraph,
    name: String,
    reader: ArrayReader<'a, u32>,
    offsets: &'a [u64],
    positions: Vec<u64>,
    weighted: bool,
    block: usize,
    words: Vec<u32>,
    /// Arcs that were decoded: neighbours, and the bits of their weights or 0.
    arcs: Vec<(u32, u32)>,
    last: Option<u32>,
}

/// Blocks that are read at a time.
const BLOCKS_AT_ONCE: usize = 256;

impl<'a> PackedColumn<'a> {
    pub(super) fn new(
        graph: &'a StoredGraph,
        volume: &'a Volume,
        words: &str,
        weighted: bool,
    ) -> Result<Self, GraphError> {
        let offsets = graph.list_offsets(words == place::IN_NEIGHBOURS);
        let positions = graph.positions(volume, words, weighted)?;
        let reader = volume.array_reader::<u32>(&graph.name().array(words))?;
        let (words, name) = (Vec::new(), words.to_owned());
        Ok(Self { graph, name, reader, offsets, positions, weighted, block: 0, words, arcs: Vec::new(), last: None })
    }

    /// Reads and decodes the next blocks, and returns their words; `None` behind the last.
    fn next_blocks(&mut self) -> Result<Option<&[u32]>, GraphError> {
        let (first, last) = (self.block, (self.block + BLOCKS_AT_ONCE).min(self.positions.len() - 1));
        if first == last {
            return Ok(None);
        }
        let base = self.positions[first];
        self.words.resize((self.positions[last] - base) as usize, 0);
        self.reader.read(&mut self.words)?;
        let vertices = self.graph.vertices();
        let block =
            |b: usize| &self.words[(self.positions[b] - base) as usize..(self.positions[b + 1] - base) as usize];
        let decoded = parallel::map(last - first, |i| {
            let mut arcs = Vec::with_capacity(BLOCK_ARCS);
            let at = ((first + i) * BLOCK_ARCS) as u64;
            packed::decode_block(block(first + i), at, self.offsets, vertices, self.weighted, &mut arcs)?;
            Ok::<_, Damage>(arcs)
        });
        self.arcs.clear();
        for (arcs, b) in decoded.into_iter().zip(first..) {
            let at = (b * BLOCK_ARCS) as u64;
            let checked = packed::check_continuation(block(b), self.last, at, self.offsets);
            let arcs = checked
                .and(arcs)
                .map_err(|e| damaged(self.graph.name(), format!("block {b} of `{}` is damaged: {e}", self.name)))?;
            self.last = arcs.last().map(|arc| arc.0);
            self.arcs.extend_from_slice(&arcs);
        }
        self.block = last;
        Ok(Some(&self.words))
    }

    /// Reads `count` arcs.
    pub(super) fn read(&mut self, count: usize, out: &mut Vec<(u64, u64)>) -> Result<(), GraphError> {
        out.clear();
        while out.len() < count {
            if self.arcs.is_empty() && self.next_blocks()?.is_none() {
                break;
            }
            let some = (count - out.len()).min(self.arcs.len());
            out.extend(self.arcs.drain(..some).map(|(to, weight)| (to.into(), weight.into())));
        }
        Ok(())
    }

    /// Reads what remains, and compares the checksum.
    pub(super) fn finish(mut self) -> Result<(), StorageError> {
        while self.reader.remaining() > 0 {
            self.words.resize(self.reader.remaining().min(ARCS_AT_ONCE as u64) as usize, 0);
            self.reader.read(&mut self.words)?;
        }
        self.reader.finish()
    }
}
