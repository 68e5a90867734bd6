//! Decoding of segments. A list may be a copy of a list in front of its segment, which is then decoded, too.

use super::bits::{BitOrder, Bits};
use super::fault::Fault;
use super::layout::{Layout, Segment, Sizes};
use super::record::{self, Sink};
use super::{Files, damaged};
use crate::graph::csr::VertexId;
use crate::graph::import::error::ImportError;
use std::collections::HashMap;
use std::marker::PhantomData;
use std::ops::Range;

/// Lists in front of a segment that are decoded for it. A list that depends on more of them makes the lists be decoded one
/// after the other.
const MOST_LISTS: usize = 1 << 12;

/// Reason why a segment is not decoded.
pub(super) enum Failure {
    /// It depends on too many lists in front of it.
    Deep,
    Import(ImportError),
}

impl From<ImportError> for Failure {
    fn from(e: ImportError) -> Self {
        Self::Import(e)
    }
}

/// Lists in front of a segment, by their vertices.
pub(super) struct Earlier<V> {
    lists: HashMap<u64, Vec<V>>,
    arcs: u64,
    /// Bits that were read for them.
    bits: u64,
}

impl<V> Default for Earlier<V> {
    fn default() -> Self {
        Self { lists: HashMap::new(), arcs: 0, bits: 0 }
    }
}

impl<V: VertexId> Earlier<V> {
    fn add(&mut self, vertex: u64, list: Vec<V>) {
        self.arcs += list.len() as u64;
        self.lists.insert(vertex, list);
    }

    /// Replaces the lists by those that the segment behind the decoded one may refer to. Returns their bytes.
    pub(super) fn advance(&mut self, decoded: &Lists<'_, V>, window: u64) -> u64 {
        let mut next = Self::default();
        let (first, behind) = (decoded.segment.vertices.start, decoded.segment.vertices.end);
        for vertex in behind.saturating_sub(window)..behind {
            if vertex >= first {
                next.add(vertex, decoded.of(vertex).to_vec());
            } else if let Some(list) = self.lists.remove(&vertex) {
                next.add(vertex, list);
            }
        }
        *self = next;
        self.arcs * V::WIDTH as u64
    }
}

/// Lists of a segment as they are decoded.
pub(super) struct Lists<'a, V> {
    pub segment: &'a Segment,
    out: &'a mut [V],
    /// For each list the position among the arcs of all segments that is behind its last arc.
    ends: &'a mut [u64],
}

impl<'a, V> Lists<'a, V> {
    /// `out` has a place for each arc, and `ends` one for each vertex.
    pub(super) fn new(segment: &'a Segment, out: &'a mut [V], ends: &'a mut [u64]) -> Self {
        Self { segment, out, ends }
    }

    /// Returns the list of a vertex that is decoded.
    pub(super) fn of(&self, vertex: u64) -> &[V] {
        &self.out[self.range(vertex)]
    }

    fn range(&self, vertex: u64) -> Range<usize> {
        let end = |index: usize| match index {
            0 => 0,
            _ => (self.ends[index - 1] - self.segment.arcs.start) as usize,
        };
        let index = (vertex - self.segment.vertices.start) as usize;
        end(index)..end(index + 1)
    }
}

/// One list as it is decoded.
struct List<'a, 'b, V> {
    lists: &'a mut Lists<'b, V>,
    /// Position in `lists.out` of the next successor.
    at: usize,
    earlier: &'a Earlier<V>,
    /// The list to copy from.
    chosen: Chosen<'a, V>,
}

enum Chosen<'a, V> {
    /// Its first position in `out`.
    Decoded(usize),
    Earlier(&'a [V]),
}

impl<V: VertexId> Sink for List<'_, '_, V> {
    fn begin(&mut self, degree: u64) -> Result<(), Fault> {
        match self.lists.out.len() - self.at {
            free if degree <= free as u64 => Ok(()),
            _ => Err(Fault::Wrong("is longer than when the file was read first")),
        }
    }

    fn refer(&mut self, vertex: u64) -> Result<u64, Fault> {
        if vertex >= self.lists.segment.vertices.start {
            let own = self.lists.range(vertex);
            self.chosen = Chosen::Decoded(own.start);
            return Ok(own.len() as u64);
        }
        let list = self.earlier.lists.get(&vertex).ok_or(Fault::Missing(vertex))?;
        self.chosen = Chosen::Earlier(list);
        Ok(list.len() as u64)
    }

    fn copy(&mut self, positions: Range<u64>) {
        let range = positions.start as usize..positions.end as usize;
        let to = self.at..self.at + range.len();
        match &self.chosen {
            Chosen::Decoded(start) => self.lists.out.copy_within(start + range.start..start + range.end, to.start),
            Chosen::Earlier(list) => self.lists.out[to.clone()].copy_from_slice(&list[range]),
        }
        self.at = to.end;
    }

    fn add(&mut self, successors: Range<u64>) {
        for successor in successors {
            self.lists.out[self.at] = V::from_index(successor as usize);
            self.at += 1;
        }
    }
}

/// Decoder of the lists of a graph.
pub(super) struct Decoder<'a, O> {
    files: &'a Files<'a>,
    layout: &'a Layout,
    sizes: Sizes,
    order: PhantomData<O>,
}

impl<'a, O: BitOrder> Decoder<'a, O> {
    pub(super) fn new(files: &'a Files<'a>, layout: &'a Layout, sizes: Sizes) -> Self {
        Self { files, layout, sizes, order: PhantomData }
    }

    /// Decodes the lists of a segment. Returns the number of arcs from a vertex to itself.
    pub(super) fn segment<V: VertexId>(
        &self,
        lists: &mut Lists<'_, V>,
        earlier: &mut Earlier<V>,
    ) -> Result<u64, Failure> {
        let segment = lists.segment;
        let (bytes, first) = self.files.bits(self.layout.bits_of(segment.vertices.clone()))?;
        let (mut at, mut loops) = (0, 0);
        for vertex in segment.vertices.clone() {
            let mut bits = Bits::<O>::new(&bytes, self.layout.places[vertex as usize] - first);
            let degree = loop {
                match self.list(vertex, &mut bits, first, (lists, at), earlier)? {
                    Ok(degree) => break degree as usize,
                    Err(needed) => self.decode_earlier(needed, earlier)?,
                }
            };
            let list = &lists.out[at..at + degree];
            loops += u64::from(list.binary_search(&V::from_index(vertex as usize)).is_ok());
            at += degree;
            lists.ends[(vertex - segment.vertices.start) as usize] = segment.arcs.start + at as u64;
        }
        Ok(loops)
    }

    /// Decodes the list of a vertex in front of the segment, and those that it depends on.
    fn decode_earlier<V: VertexId>(&self, vertex: u64, earlier: &mut Earlier<V>) -> Result<(), Failure> {
        let mut waiting = vec![vertex];
        while let Some(&vertex) = waiting.last() {
            let bits = self.layout.bits_of(vertex..vertex + 1);
            // Beyond a few times the work of the segment, all lists are decoded in order.
            earlier.bits += bits.end - bits.start;
            if earlier.lists.len() + waiting.len() > MOST_LISTS || earlier.bits > 8 * self.sizes.bits {
                return Err(Failure::Deep);
            }
            let (bytes, first) = self.files.bits(bits)?;
            let at = self.layout.places[vertex as usize] - first;
            let degree = Bits::<O>::new(&bytes, at).read(self.files.shape().codes.degrees);
            let degree = degree.map_err(|fault| damaged(self.files, vertex, fault))?;
            if earlier.arcs.saturating_add(degree) > 4 * self.sizes.arcs {
                return Err(Failure::Deep);
            }
            let mut out = vec![V::default(); degree as usize];
            let segment = Segment { vertices: vertex..vertex + 1, arcs: 0..degree };
            let mut lists = Lists::new(&segment, &mut out, &mut []);
            match self.list(vertex, &mut Bits::new(&bytes, at), first, (&mut lists, 0), earlier)? {
                Ok(_) => {
                    earlier.add(vertex, out);
                    waiting.pop();
                }
                Err(needed) => waiting.push(needed),
            }
        }
        Ok(())
    }

    /// Decodes a list to position `at` of `lists.out`. Returns its length, or a vertex whose list is needed first; then
    /// the bits are where they were.
    fn list<V: VertexId>(
        &self,
        vertex: u64,
        bits: &mut Bits<'_, O>,
        first: u64,
        (lists, at): (&mut Lists<'_, V>, usize),
        earlier: &Earlier<V>,
    ) -> Result<Result<u64, u64>, ImportError> {
        let start = bits.at();
        let mut list = List { lists, at, earlier, chosen: Chosen::Earlier(&[]) };
        let degree = match record::read(bits, self.files.shape(), vertex, &mut list) {
            Ok(degree) => degree,
            Err(Fault::Missing(needed)) => {
                bits.seek(start);
                return Ok(Err(needed));
            }
            Err(fault) => return Err(damaged(self.files, vertex, fault)),
        };
        if first + bits.at() != self.layout.places[vertex as usize + 1] {
            return Err(damaged(self.files, vertex, Fault::Wrong("does not end where the next one begins")));
        }
        let list = &mut lists.out[at..at + degree as usize];
        // Copies, intervals and the others each ascend.
        if !list.is_sorted_by(|a, b| a < b) {
            list.sort();
            if !list.is_sorted_by(|a, b| a < b) {
                return Err(damaged(self.files, vertex, Fault::Wrong("has a successor twice")));
            }
        }
        Ok(Ok(degree))
    }
}
