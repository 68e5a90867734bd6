//! A writer of BVGraphs for tests: any lists, with any choice of references, intervals and codes.

use super::bits::Code;
use super::record::{Codes, Shape};

/// Writer of bits.
#[derive(Default)]
pub(super) struct BitWriter {
    bits: Vec<bool>,
    is_little_endian: bool,
}

impl BitWriter {
    pub(super) fn new(is_little_endian: bool) -> Self {
        Self { bits: Vec::new(), is_little_endian }
    }

    pub(super) fn len(&self) -> u64 {
        self.bits.len() as u64
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        let bit = |set: &bool, place: usize| {
            let shift = if self.is_little_endian { place } else { 7 - place };
            u8::from(*set) << shift
        };
        self.bits.chunks(8).map(|byte| byte.iter().enumerate().map(|(i, set)| bit(set, i)).sum()).collect()
    }

    fn binary(&mut self, number: u64, bits: u32) {
        let places: Vec<u32> = if self.is_little_endian { (0..bits).collect() } else { (0..bits).rev().collect() };
        self.bits.extend(places.iter().map(|place| number >> place & 1 == 1));
    }

    pub(super) fn unary(&mut self, number: u64) {
        self.bits.extend((0..number).map(|_| false));
        self.bits.push(true);
    }

    pub(super) fn write(&mut self, code: Code, number: u64) {
        let behind = number + 1;
        let length = behind.ilog2();
        let rest = behind - (1 << length);
        match code {
            Code::Unary => self.unary(number),
            Code::Gamma => {
                self.unary(length.into());
                self.binary(rest, length);
            }
            Code::Delta => {
                self.write(Code::Gamma, length.into());
                self.binary(rest, length);
            }
            Code::Pi(k) => {
                self.unary(u64::from(length >> k));
                self.binary(u64::from(length) % (1 << k), k);
                self.binary(rest, length);
            }
            Code::Omega => {
                self.omega(behind);
                self.binary(0, 1);
            }
            Code::Zeta(k) => {
                let row = length / k;
                self.unary(row.into());
                let (first, bits) = (1 << (row * k), (row + 1) * k - 1);
                let number = behind - first;
                if number < first {
                    self.binary(number, bits);
                } else {
                    self.binary((number + first) >> 1, bits);
                    self.binary((number + first) & 1, 1);
                }
            }
        }
    }

    fn omega(&mut self, number: u64) {
        if number == 1 {
            return;
        }
        let length = number.ilog2();
        self.omega(length.into());
        // The bit that says that more follows is the highest of the number, also where the lowest bits come first.
        self.binary(1, 1);
        self.binary(number - (1 << length), length);
    }

    fn integer(&mut self, code: Code, number: i64) {
        let natural = if number >= 0 { 2 * number as u64 } else { 2 * number.unsigned_abs() - 1 };
        self.write(code, natural);
    }
}

/// Files of a graph.
pub(super) struct Written {
    pub graph: Vec<u8>,
    pub properties: String,
    pub offsets: Vec<u8>,
}

/// Writes lists, which ascend. `back` chooses the distance of the list to copy from, 0 for none, for a vertex.
pub(super) fn write(
    lists: &[Vec<u64>],
    shape: &Shape,
    is_little_endian: bool,
    mut back: impl FnMut(u64) -> u64,
) -> Written {
    let (mut bits, mut offsets) = (BitWriter::new(is_little_endian), BitWriter::new(false));
    offsets.write(Code::Gamma, 0);
    for (vertex, list) in (0u64..).zip(lists) {
        let start = bits.len();
        let back = back(vertex).min(shape.window).min(vertex);
        let earlier = &lists[(vertex - back) as usize];
        record(&mut bits, shape, vertex, list, (back, earlier));
        offsets.write(Code::Gamma, bits.len() - start);
    }
    let arcs: usize = lists.iter().map(Vec::len).sum();
    Written {
        properties: properties(shape, is_little_endian, lists.len(), arcs),
        graph: bits.into_bytes(),
        offsets: offsets.into_bytes(),
    }
}

fn record(bits: &mut BitWriter, shape: &Shape, vertex: u64, list: &[u64], (back, earlier): (u64, &[u64])) {
    let codes = &shape.codes;
    bits.write(codes.degrees, list.len() as u64);
    if list.is_empty() {
        return;
    }
    let mut rest = list.to_vec();
    if shape.window > 0 {
        bits.write(codes.references, back);
    }
    if back > 0 {
        let copied = |successor: &u64| list.binary_search(successor).is_ok();
        let mut blocks: Vec<usize> = earlier.chunk_by(|a, b| copied(a) == copied(b)).map(<[u64]>::len).collect();
        if !earlier.first().is_some_and(&copied) {
            blocks.insert(0, 0);
        }
        // The last block is known.
        blocks.pop();
        bits.write(codes.block_counts, blocks.len() as u64);
        blocks.iter().enumerate().for_each(|(i, size)| bits.write(codes.blocks, (size - usize::from(i > 0)) as u64));
        rest.retain(|successor| earlier.binary_search(successor).is_err());
    }
    if !rest.is_empty() && shape.least_interval > 0 {
        let runs: Vec<Vec<u64>> = rest
            .chunk_by(|a, b| a + 1 == *b)
            .filter(|run| run.len() as u64 >= shape.least_interval)
            .map(<[u64]>::to_vec)
            .collect();
        bits.write(codes.intervals, runs.len() as u64);
        let mut behind = None;
        for run in &runs {
            match behind {
                None => bits.integer(codes.intervals, run[0] as i64 - vertex as i64),
                Some(behind) => bits.write(codes.intervals, run[0] - behind - 1),
            }
            bits.write(codes.intervals, run.len() as u64 - shape.least_interval);
            behind = Some(run[0] + run.len() as u64);
        }
        rest.retain(|successor| !runs.iter().flatten().any(|other| other == successor));
    }
    let mut before = None;
    for successor in rest {
        match before {
            None => bits.integer(codes.residuals, successor as i64 - vertex as i64),
            Some(before) => bits.write(codes.residuals, successor - before - 1),
        }
        before = Some(successor);
    }
}

/// Returns properties as Java's WebGraph writes them, or with the order of the bits as the crate does.
fn properties(shape: &Shape, is_little_endian: bool, nodes: usize, arcs: usize) -> String {
    let name = |code| match code {
        Code::Unary => "UNARY".to_owned(),
        Code::Gamma => "GAMMA".to_owned(),
        Code::Delta => "DELTA".to_owned(),
        Code::Omega => "OMEGA".to_owned(),
        Code::Zeta(k) => format!("ZETA{k}"),
        Code::Pi(k) => format!("PI{k}"),
    };
    let Codes { degrees, references, block_counts, blocks, intervals, residuals } = shape.codes;
    let flags = [
        ("OUTDEGREES", degrees),
        ("REFERENCES", references),
        // Behind the blocks, as in the crate these have the code of their number.
        ("BLOCKS", blocks),
        ("BLOCK_COUNT", block_counts),
        ("INTERVALS", intervals),
        ("RESIDUALS", residuals),
    ]
    .map(|(part, code)| format!("{part}_{}", name(code)));
    let order = if is_little_endian { "endianness=little\nversion=1\n" } else { "version=0\n" };
    format!(
        "#BVGraph properties\ngraphclass=it.unimi.dsi.webgraph.BVGraph\n{order}nodes={nodes}\narcs={arcs}\nwindowsize={}\nminintervallength={}\ncompressionflags={}\n",
        shape.window,
        shape.least_interval,
        flags.join(" | ")
    )
}
