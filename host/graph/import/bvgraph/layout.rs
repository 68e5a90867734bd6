//! Places of the lists of a BVGraph in its bits, and its division into segments that tasks decode.

use super::bits::{Big, BitOrder, Bits, Code};
use super::fault::Fault;
use super::record::{self, Shape, Sink};
use super::{Files, damaged};
use crate::graph::import::bytes::Bytes;
use crate::graph::import::error::ImportError;
use crate::graph::parallel;
use crate::units::grouped;
use std::ops::Range;

/// Bytes that are read at a time.
const SHARE: u64 = 1 << 20;

/// Lists that one task decodes.
#[derive(Clone, Debug)]
pub(super) struct Segment {
    pub vertices: Range<u64>,
    /// Positions of their arcs among all.
    pub arcs: Range<u64>,
}

impl Segment {
    pub(super) fn vertex_count(&self) -> usize {
        (self.vertices.end - self.vertices.start) as usize
    }

    pub(super) fn arc_count(&self) -> usize {
        (self.arcs.end - self.arcs.start) as usize
    }
}

/// Sizes at which a segment ends.
#[derive(Clone, Copy)]
pub(super) struct Sizes {
    pub arcs: u64,
    pub bits: u64,
    vertices: u64,
}

impl Sizes {
    /// Returns sizes with which bits, vertices and arcs of a segment take about `bytes` bytes each.
    pub(super) fn of(bytes: u64, shape: &Shape) -> Self {
        let eighth = (bytes / 8).max(1);
        // At the start of a segment, lists of a window in front may have to be decoded again.
        Self { arcs: eighth, vertices: eighth.max(4 * shape.window), bits: 8 * bytes }
    }
}

/// Places and segments of all lists.
pub(super) struct Layout {
    /// Bit at which the list of each vertex begins, and behind them the bit behind the last list.
    pub places: Vec<u64>,
    pub segments: Vec<Segment>,
}

impl Layout {
    /// Finds the lists by reading all of them, one behind the other.
    pub(super) fn scan<O: BitOrder>(
        files: &Files<'_>,
        sizes: Sizes,
        progress: &dyn Fn(u64),
    ) -> Result<Self, ImportError> {
        let shape = files.shape();
        let mut degrees = Degrees(vec![0; (shape.window.min(shape.vertices) + 1) as usize]);
        let (mut stream, mut cutter) = (Stream::new((files, files.graph), sizes, progress), Cutter::new(sizes, 0..0));
        let mut places = Vec::with_capacity(shape.vertices as usize + 1);
        places.push(0);
        for vertex in 0..shape.vertices {
            let read = |bits: &mut Bits<'_, O>| record::read(bits, shape, vertex, &mut degrees);
            let degree = stream.next(read)?.map_err(|fault| damaged(files, vertex, fault))?;
            *degrees.of(vertex) = degree;
            places.push(stream.at);
            cutter.push(degree, stream.at);
        }
        Self::new(files, places, cutter.finish())
    }

    /// Takes the places of the lists from a file of offsets. It has the distance between the lists as numbers, the first
    /// of which is 0.
    pub(super) fn of_offsets<O: BitOrder>(
        files: &Files<'_>,
        (offsets, code): (&Bytes<'_>, Code),
        sizes: Sizes,
    ) -> Result<Self, ImportError> {
        let shape = files.shape();
        let wrong = |what: String| {
            let graph = files.graph.path().display();
            let reason = format!("is not that of {graph}: {what}; remove it, since offsets are also found without it");
            ImportError::BvGraph { path: offsets.path().to_owned(), reason }
        };
        let mut stream = Stream::new((files, offsets), sizes, &|_| ());
        let mut next = |index: u64| -> Result<u64, ImportError> {
            let number = stream.next(|bits: &mut Bits<'_, Big>| bits.read(code))?;
            number.map_err(|_| wrong(format!("it ends in front of the offset of vertex {}", grouped(index))))
        };
        let (mut places, end) = (Vec::with_capacity(shape.vertices as usize + 1), 8 * files.graph.len());
        let mut at = next(0)?;
        places.push(at);
        // A segment's bits have to be read for the lengths of its lists.
        let mut cutter = Cutter::new(sizes, 0..0);
        for vertex in 0..shape.vertices {
            let length = next(vertex + 1)?;
            at = at
                .checked_add(length)
                .filter(|&at| length > 0 && at <= end)
                .ok_or_else(|| wrong(format!("the list of vertex {} would not lie in the file", grouped(vertex))))?;
            places.push(at);
            cutter.push(0, at);
        }
        if places[0] != 0 {
            return Err(wrong("the first list does not begin with the file".to_owned()));
        }
        let blocks = cutter.finish();
        let cut = |block: usize| -> Result<Vec<Segment>, ImportError> {
            let Range { start, end } = blocks[block].vertices;
            let mut cutter = Cutter::new(sizes, start..places[start as usize]);
            let (bytes, first) = files.bits(places[start as usize]..places[end as usize])?;
            for vertex in start..end {
                let mut bits = Bits::<O>::new(&bytes, places[vertex as usize] - first);
                let degree = bits.read(shape.codes.degrees).map_err(|fault| damaged(files, vertex, fault))?;
                if degree > shape.vertices {
                    return Err(damaged(files, vertex, record::TOO_MANY));
                }
                cutter.push(degree, places[vertex as usize + 1]);
            }
            Ok(cutter.finish())
        };
        let mut segments: Vec<Segment> = Vec::with_capacity(blocks.len());
        let mut before = 0;
        for cut in parallel::map(blocks.len(), cut) {
            for mut segment in cut? {
                segment.arcs = segment.arcs.start + before..segment.arcs.end + before;
                segments.push(segment);
            }
            before = segments.last().map_or(0, |last| last.arcs.end);
        }
        Self::new(files, places, segments)
    }

    fn new(files: &Files<'_>, places: Vec<u64>, segments: Vec<Segment>) -> Result<Self, ImportError> {
        let (expected, found) = (files.shape().arcs, segments.last().map_or(0, |last| last.arcs.end));
        if expected != found {
            let (expected, found) = (grouped(expected), grouped(found));
            let properties = files.properties.display();
            let reason = format!(
                "has {found} arcs, and {properties} names {expected}; they belong to different graphs, or were changed"
            );
            return Err(ImportError::BvGraph { path: files.graph.path().to_owned(), reason });
        }
        Ok(Self { places, segments })
    }

    /// Returns the bits of some lists.
    pub(super) fn bits_of(&self, vertices: Range<u64>) -> Range<u64> {
        self.places[vertices.start as usize]..self.places[vertices.end as usize]
    }
}

/// Lengths of the lists in the window.
struct Degrees(Vec<u64>);

impl Degrees {
    fn of(&mut self, vertex: u64) -> &mut u64 {
        let slots = self.0.len();
        &mut self.0[vertex as usize % slots]
    }
}

impl Sink for Degrees {
    fn begin(&mut self, _: u64) -> Result<(), Fault> {
        Ok(())
    }
    fn refer(&mut self, vertex: u64) -> Result<u64, Fault> {
        Ok(*self.of(vertex))
    }
    fn copy(&mut self, _: Range<u64>) {}
    fn add(&mut self, _: Range<u64>) {}
}

/// Division of lists, as they come, into segments.
struct Cutter {
    sizes: Sizes,
    segments: Vec<Segment>,
    last: Segment,
    /// First bit of the last segment.
    first_bit: u64,
}

impl Cutter {
    /// Begins with the vertex `from.start` at bit `from.end`.
    fn new(sizes: Sizes, from: Range<u64>) -> Self {
        let last = Segment { vertices: from.start..from.start, arcs: 0..0 };
        Self { sizes, segments: Vec::new(), last, first_bit: from.end }
    }

    /// Adds the next list, which has `degree` arcs and ends at bit `end`.
    fn push(&mut self, degree: u64, end: u64) {
        self.last.vertices.end += 1;
        self.last.arcs.end = self.last.arcs.end.saturating_add(degree);
        if self.last.arc_count() as u64 >= self.sizes.arcs
            || self.last.vertex_count() as u64 >= self.sizes.vertices
            || end - self.first_bit >= self.sizes.bits
        {
            self.cut(end);
        }
    }

    fn cut(&mut self, end: u64) {
        let next = Segment {
            vertices: self.last.vertices.end..self.last.vertices.end,
            arcs: self.last.arcs.end..self.last.arcs.end,
        };
        self.segments.push(std::mem::replace(&mut self.last, next));
        self.first_bit = end;
    }

    fn finish(mut self) -> Vec<Segment> {
        if !self.last.vertices.is_empty() {
            self.cut(0);
        }
        self.segments
    }
}

/// Bits of an input that are read one behind the other.
struct Stream<'a> {
    files: &'a Files<'a>,
    bytes: &'a Bytes<'a>,
    buffer: Vec<u8>,
    /// First byte of the buffer in the input.
    first: u64,
    /// Bytes to read at a time.
    share: u64,
    /// Next bit of the input.
    at: u64,
    progress: &'a dyn Fn(u64),
}

impl<'a> Stream<'a> {
    fn new((files, bytes): (&'a Files<'a>, &'a Bytes<'a>), sizes: Sizes, progress: &'a dyn Fn(u64)) -> Self {
        let share = (sizes.bits / 8).clamp(1, SHARE);
        Self { files, bytes, buffer: Vec::new(), first: 0, share, at: 0, progress }
    }

    /// Calls `read` with the next bits, and stops behind those that it takes. It is called again if it comes to the end of
    /// the buffer.
    fn next<O: BitOrder, T>(
        &mut self,
        mut read: impl FnMut(&mut Bits<'_, O>) -> Result<T, Fault>,
    ) -> Result<Result<T, Fault>, ImportError> {
        loop {
            let mut bits = Bits::new(&self.buffer, self.at - 8 * self.first);
            match read(&mut bits) {
                Err(Fault::Cut) if self.first + (self.buffer.len() as u64) < self.bytes.len() => self.refill()?,
                Ok(value) => {
                    self.at = 8 * self.first + bits.at();
                    return Ok(Ok(value));
                }
                Err(fault) => return Ok(Err(fault)),
            }
        }
    }

    fn refill(&mut self) -> Result<(), ImportError> {
        let next = self.at / 8;
        if next == self.first && !self.buffer.is_empty() {
            // One list is longer than the buffer.
            self.share *= 2;
        }
        let share = self.share.min(self.bytes.len() - next);
        // The buffer may have to be copied to grow.
        self.files.check(2 * share)?;
        self.first = next;
        self.buffer.resize(share as usize, 0);
        self.bytes.read(next, &mut self.buffer)?;
        (self.progress)(next);
        Ok(())
    }
}
