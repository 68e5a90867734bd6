//! Successor lists, as the bits of a BVGraph describe them (Boldi and Vigna, "The WebGraph Framework I: Compression
//! Techniques", WWW 2004, section 4).
//!
//! A list has its length, then the number of vertices by which an earlier list is in front, of which blocks are copied;
//! then intervals of successors, and then the others, each as its distance from the one before.

use super::bits::{BitOrder, Bits, Code};
use super::fault::Fault;
use std::ops::Range;

/// Codes of the parts of a list.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Codes {
    pub degrees: Code,
    pub references: Code,
    pub block_counts: Code,
    pub blocks: Code,
    pub intervals: Code,
    pub residuals: Code,
}

/// Properties that the lists of a graph have in common.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Shape {
    pub vertices: u64,
    pub arcs: u64,
    pub codes: Codes,
    /// Number of vertices up to which a list may refer back; 0 if none does.
    pub window: u64,
    /// Length of the shortest interval; 0 if there are no intervals.
    pub least_interval: u64,
}

/// The length of a list is no length of a list.
pub(super) const TOO_MANY: Fault = Fault::Wrong("has more successors than the graph has vertices");

/// Place for the successors of a vertex.
pub(super) trait Sink {
    /// Takes the length of the list.
    fn begin(&mut self, degree: u64) -> Result<(), Fault>;
    /// Chooses the list of an earlier vertex to copy from. Returns its length.
    fn refer(&mut self, vertex: u64) -> Result<u64, Fault>;
    /// Copies successors at these positions of the chosen list.
    fn copy(&mut self, positions: Range<u64>);
    /// Adds successors.
    fn add(&mut self, successors: Range<u64>);
}

/// Reads the list of a vertex, and returns its length. The sink gets as many successors, each smaller than the number of
/// vertices, but neither in order nor without duplicates.
pub(super) fn read<O: BitOrder>(
    bits: &mut Bits<'_, O>,
    shape: &Shape,
    vertex: u64,
    sink: &mut impl Sink,
) -> Result<u64, Fault> {
    let codes = &shape.codes;
    let degree = bits.read(codes.degrees)?;
    if degree > shape.vertices {
        return Err(TOO_MANY);
    }
    sink.begin(degree)?;
    if degree == 0 {
        return Ok(0);
    }
    let mut left = degree;
    let back = if shape.window > 0 { bits.read(codes.references)? } else { 0 };
    if back > shape.window.min(vertex) {
        return Err(Fault::Wrong("refers to the list of a vertex that is not in the window"));
    }
    if back > 0 {
        copies(bits, codes, vertex - back, &mut left, sink)?;
    }
    if left > 0 && shape.least_interval > 0 {
        intervals(bits, shape, vertex, &mut left, sink)?;
    }
    if left > 0 {
        let mut successor = first(bits.read_integer(codes.residuals)?, vertex, shape)?;
        sink.add(successor..successor + 1);
        for _ in 1..left {
            successor = next(bits.read(codes.residuals)?, successor + 1, shape)?;
            sink.add(successor..successor + 1);
        }
    }
    Ok(degree)
}

/// Reads which blocks of an earlier list are copied. Blocks that are copied and blocks that are left out take turns.
fn copies<O: BitOrder>(
    bits: &mut Bits<'_, O>,
    codes: &Codes,
    earlier: u64,
    left: &mut u64,
    sink: &mut impl Sink,
) -> Result<(), Fault> {
    const BEYOND: Fault = Fault::Wrong("copies beyond the end of another list");
    let length = sink.refer(earlier)?;
    let mut copy = |positions: Range<u64>, sink: &mut _| {
        let count = positions.end - positions.start;
        *left = left.checked_sub(count).ok_or(Fault::Wrong("copies more successors than it has"))?;
        Sink::copy(sink, positions);
        Ok(())
    };
    let count = bits.read(codes.block_counts)?;
    // Each block but the first has a position.
    if count > length + 1 {
        return Err(BEYOND);
    }
    let mut at = 0;
    for block in 0..count {
        let size = bits.read(codes.blocks)?.saturating_add(u64::from(block > 0));
        let end = at + size.min(length + 1);
        if end > length {
            return Err(BEYOND);
        }
        if block % 2 == 0 {
            copy(at..end, sink)?;
        }
        at = end;
    }
    if count % 2 == 0 { copy(at..length, sink) } else { Ok(()) }
}

fn intervals<O: BitOrder>(
    bits: &mut Bits<'_, O>,
    shape: &Shape,
    vertex: u64,
    left: &mut u64,
    sink: &mut impl Sink,
) -> Result<(), Fault> {
    let code = shape.codes.intervals;
    let mut behind = 0;
    for interval in 0..bits.read(code)? {
        let start = match interval {
            0 => first(bits.read_integer(code)?, vertex, shape)?,
            // Two intervals without a gap would be one.
            _ => next(bits.read(code)?, behind + 1, shape)?,
        };
        let length = bits.read(code)?.saturating_add(shape.least_interval);
        *left = left.checked_sub(length).ok_or(Fault::Wrong("has intervals of more successors than it has"))?;
        behind = start + length;
        if behind > shape.vertices {
            return Err(BEYOND_VERTICES);
        }
        sink.add(start..behind);
    }
    Ok(())
}

const BEYOND_VERTICES: Fault = Fault::Wrong("has a successor that is no vertex of the graph");

/// Returns the vertex that is `distance` behind another.
fn first(distance: i64, vertex: u64, shape: &Shape) -> Result<u64, Fault> {
    vertex.checked_add_signed(distance).filter(|&v| v < shape.vertices).ok_or(BEYOND_VERTICES)
}

/// Returns the vertex that is `distance` behind the first that it can be.
#[inline]
fn next(distance: u64, least: u64, shape: &Shape) -> Result<u64, Fault> {
    least.checked_add(distance).filter(|&v| v < shape.vertices).ok_or(BEYOND_VERTICES)
}
