//! Serialized graphs of the GAP Benchmark Suite, `.sg` and `.wsg` (gapbs, `src/writer.h`).
//!
//! A file has one byte that is 1 if the graph is directed, then the number of edges and of vertices as int64. Then come
//! the offsets as int64 and the neighbours as int32, in `.wsg` each followed by an int32 weight. Directed graphs have
//! offsets and neighbours again, for the in-edges.

use super::bytes::Bytes;
use super::error::{ImportError, SerializedFault};
use super::raw::{self, RawEdges, Read};
use super::{Contents, Format, Loaded, Orientation, OrientationReason, Progress, Reader, Stage, Summary};
use crate::graph::csr::{self, Csr, CsrError, Neighbours, Weights};
use crate::graph::ids::Ids;
use crate::graph::parallel;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of the header: direction, edges, vertices.
const HEADER_BYTES: u64 = 1 + 8 + 8;
/// Largest number of vertices, which are int32.
const MAX_VERTICES: i64 = 1 << 31;

struct Layout {
    directed: bool,
    edges: u64,
    vertices: u64,
    format: Format,
}

impl Reader<'_> {
    pub(crate) fn serialized(&self, bytes: &Bytes<'_>, weighted: bool) -> Result<Contents, ImportError> {
        let fault = |fault| ImportError::Serialized { path: bytes.path().to_owned(), fault };
        let layout = layout(bytes, weighted)?;
        if layout.vertices == 0 {
            return Err(Self::no_vertices(bytes.path().to_owned(), bytes.len()));
        }
        let wanted = weighted && self.wants_weights();
        let (vertices, edges) = (u128::from(layout.vertices), u128::from(layout.edges));
        let needed = 8 * (vertices + 1) + edges * if self.options.wide || wanted { 8 } else { 4 };
        let what = bytes.path().display().to_string();
        if let Some(budget) = &self.budget {
            // The lists are sorted again, and turned round, if they are not in memory.
            if 3 * needed > u128::from(budget.memory) {
                return Ok(Contents::Edges(self.listed(bytes, &layout, weighted)?));
            }
        } else {
            super::check_memory(&what, vertices, edges, needed, self.options.memory)?;
        }

        let done = AtomicU64::new(HEADER_BYTES);
        let advance = |read: usize| {
            let done = done.fetch_add(read as u64, Ordering::Relaxed) + read as u64;
            if let Some(progress) = self.options.progress {
                progress(Progress { stage: Stage::Read, done, total: bytes.len() });
            }
        };
        let mut offsets = vec![0u64; layout.vertices as usize + 1];
        let piece = (self.piece_sizes.bytes as usize / 8).max(1);
        parallel::try_each_part(offsets.chunks_mut(piece).collect(), |i, part| {
            let part: &mut [u8] = bytemuck::cast_slice_mut(part);
            bytes.read(HEADER_BYTES + (i * piece * 8) as u64, part)?;
            advance(part.len());
            Ok::<_, ImportError>(())
        })?;
        let start = HEADER_BYTES + 8 * (layout.vertices + 1);
        let mut neighbours = vec![0u32; layout.edges as usize];
        let mut weights = vec![0u32; if wanted { layout.edges as usize } else { 0 }];
        if weighted {
            let parts = neighbours.chunks_mut(piece);
            let read = |i: usize, count: usize| -> Result<Vec<[u32; 2]>, ImportError> {
                let mut pairs = vec![[0u32; 2]; count];
                bytes.read(start + (i * piece * 8) as u64, bytemuck::cast_slice_mut(&mut pairs))?;
                advance(8 * count);
                Ok(pairs)
            };
            if wanted {
                let parts = parts.zip(weights.chunks_mut(piece)).collect();
                parallel::try_each_part(parts, |i, (ids, weights): (&mut [u32], &mut [u32])| {
                    for (at, [id, weight]) in read(i, ids.len())?.into_iter().enumerate() {
                        (ids[at], weights[at]) = (id, weight);
                    }
                    Ok::<_, ImportError>(())
                })?;
            } else {
                parallel::try_each_part(parts.collect(), |i, ids| {
                    for (at, [id, _]) in read(i, ids.len())?.into_iter().enumerate() {
                        ids[at] = id;
                    }
                    Ok::<_, ImportError>(())
                })?;
            }
        } else {
            parallel::try_each_part(neighbours.chunks_mut(piece).collect(), |i, part| {
                let part: &mut [u8] = bytemuck::cast_slice_mut(part);
                bytes.read(start + (i * piece * 4) as u64, part)?;
                advance(part.len());
                Ok::<_, ImportError>(())
            })?;
        }
        if let Some(index) = parallel::position(weights.len(), |i| (weights[i] as i32) < 0) {
            let found = weights[index] as i32;
            return Err(fault(SerializedFault::NegativeWeight { index: index as u64, found }));
        }
        let neighbours = if self.options.wide {
            Neighbours::U64(parallel::map(neighbours.len(), |i| neighbours[i].into()))
        } else {
            Neighbours::U32(neighbours)
        };
        let csr = Csr::from_parts_with(
            offsets,
            neighbours,
            wanted.then_some(Weights::U32(weights)),
            layout.directed,
            Ids::dense(0, layout.vertices),
            self.options.keep_self_loops,
        )
        .map_err(|error| fault(SerializedFault::Graph(error)))?;
        let duplicates = layout.edges - csr.arcs();
        let (csr, orientation) = match (self.options.orientation, layout.directed) {
            (Orientation::Auto, _) => (csr, OrientationReason::Declared),
            (Orientation::Directed, _) => (csr.into_directed(), OrientationReason::Requested),
            (Orientation::Undirected, true) => (csr.mirrored(), OrientationReason::Requested),
            (Orientation::Undirected, false) => (csr, OrientationReason::Requested),
        };
        let weights = self.options.weights.source(wanted);
        let csr = raw::give_weights(csr, weights, self.options.seed);
        let format = layout.format;
        let summary = Summary {
            format,
            orientation,
            weights,
            input_edges: layout.edges,
            self_loops: 0,
            duplicates,
            bytes: bytes.len(),
        };
        Ok(Contents::Graph(Loaded::new(csr, summary)))
    }

    /// Reads the lists as edges, piece by piece. The offsets are in memory.
    fn listed(&self, bytes: &Bytes<'_>, layout: &Layout, weighted: bool) -> Result<Read, ImportError> {
        let fault = |fault| ImportError::Serialized { path: bytes.path().to_owned(), fault };
        let wanted = weighted && self.wants_weights();
        let mut offsets = vec![0u64; layout.vertices as usize + 1];
        bytes.read(HEADER_BYTES, bytemuck::cast_slice_mut(&mut offsets))?;
        csr::check_offsets(&offsets, layout.edges, layout.vertices)
            .map_err(|error| fault(SerializedFault::Graph(error)))?;
        let (start, width) = (HEADER_BYTES + 8 * (layout.vertices + 1), if weighted { 8 } else { 4 });
        let piece = (self.piece_sizes.bytes / width).max(1);
        let mut pieces = self.pieces();
        let mut from = 0;
        for first in (0..layout.edges).step_by(piece as usize) {
            let count = piece.min(layout.edges - first);
            let mut values = vec![0u32; (count * width / 4) as usize];
            bytes.read(start + first * width, bytemuck::cast_slice_mut(&mut values))?;
            let mut edges = RawEdges::default();
            for (i, value) in values.chunks_exact(width as usize / 4).enumerate() {
                let index = first + i as u64;
                while offsets[from + 1] <= index {
                    from += 1;
                }
                if u64::from(value[0]) >= layout.vertices {
                    let (found, vertices) = (value[0].into(), layout.vertices);
                    return Err(fault(SerializedFault::Graph(CsrError::Neighbour { index, found, vertices })));
                }
                if wanted {
                    let found = value[1] as i32;
                    if found < 0 {
                        return Err(fault(SerializedFault::NegativeWeight { index, found }));
                    }
                    edges.push_integer(value[1]);
                }
                edges.push(from as u64, value[0].into());
            }
            pieces.push(edges, 0)?;
            if let Some(progress) = self.options.progress {
                progress(Progress { stage: Stage::Read, done: start + (first + count) * width, total: bytes.len() });
            }
        }
        Ok(Read {
            format: layout.format,
            path: bytes.path().to_owned(),
            pieces,
            ids: Some(Ids::dense(0, layout.vertices)),
            directed: Some(layout.directed),
            called_directed: false,
            mirrored: false,
            both_listed: true,
            translation: None,
            weighted: wanted,
            bytes: bytes.len(),
        })
    }
}

/// Parses the header, and compares it with the length of the file before anything is allocated.
fn layout(bytes: &Bytes<'_>, weighted: bool) -> Result<Layout, ImportError> {
    let fault = |fault| ImportError::Serialized { path: bytes.path().to_owned(), fault };
    if bytes.len() < HEADER_BYTES {
        return Err(fault(SerializedFault::Short { found: bytes.len() }));
    }
    let mut header = [0u8; HEADER_BYTES as usize];
    bytes.read(0, &mut header)?;
    let number = |at: usize| i64::from_ne_bytes(std::array::from_fn(|i| header[at + i]));
    let (direction, edges, vertices) = (header[0], number(1), number(9));
    if direction > 1 {
        return Err(fault(SerializedFault::Direction { found: direction }));
    }
    if !(0..=MAX_VERTICES).contains(&vertices) {
        let fault_of = SerializedFault::Count { what: "vertices", found: vertices, low: 0, high: MAX_VERTICES };
        return Err(fault(fault_of));
    }
    if edges < 0 {
        return Err(fault(SerializedFault::Count { what: "edges", found: edges, low: 0, high: i64::MAX }));
    }
    let (edges, vertices) = (edges as u64, vertices as u64);
    let one_way = 8 * (u128::from(vertices) + 1) + u128::from(edges) * if weighted { 8 } else { 4 };
    let expected = u128::from(HEADER_BYTES) + one_way * (1 + u128::from(direction));
    if expected != u128::from(bytes.len()) {
        let (other, ending) = if weighted { ("no", ".sg") } else { ("int32", ".wsg") };
        return Err(fault(SerializedFault::Length { vertices, edges, expected, found: bytes.len(), other, ending }));
    }
    let format = if weighted { Format::WeightedSerialized } else { Format::Serialized };
    Ok(Layout { directed: direction == 1, edges, vertices, format })
}
