//! Lists of a graph that is to be stored, packed: in memory, or in temporary files if the graph is there, too.

use super::source::{Lists, Source};
use super::{HUBS, IN_HUBS, WeightType, gather, packed};
use crate::graph::build::{Arc, EdgeWeight};
use crate::graph::csr::{self, Neighbours, Weights};
use crate::graph::edges::GraphError;
use crate::graph::external::{Budget, FileLists, ListsWriter, Merge, Runs, Spill, SpillError};
use crate::graph::hub;
use crate::graph::import::ImportError;
use crate::graph::order::Order;
use crate::graph::packed::{Encoder, pack_values};
use crate::graph::parallel;
use crate::graph::place::{IN_NEIGHBOURS, Interleaved, NEIGHBOURS, WEIGHTED};
use crate::storage::{ElementType, Plan};
use std::cmp::Reverse;
use std::ops::Range;

/// Arcs that are packed at a time.
const ARCS_AT_ONCE: u64 = 1 << 22;

/// Bytes that are written once and read once.
#[derive(Debug)]
enum Bytes {
    InMemory(Vec<u8>),
    InFile(Spill),
}

impl Bytes {
    fn create(files: Option<&Budget>) -> Result<Self, SpillError> {
        files.map_or_else(|| Ok(Self::InMemory(Vec::new())), |files| Spill::create(&files.folder).map(Self::InFile))
    }

    fn append(&mut self, more: &[u8]) -> Result<(), SpillError> {
        match self {
            Self::InMemory(bytes) => bytes.extend_from_slice(more),
            Self::InFile(file) => drop(file.append(more)?),
        }
        Ok(())
    }

    fn len(&self) -> u64 {
        match self {
            Self::InMemory(bytes) => bytes.len() as u64,
            Self::InFile(file) => file.len(),
        }
    }

    /// Calls `take` with all bytes, some at a time.
    fn each(&self, mut take: impl FnMut(&[u8]) -> Result<(), GraphError>) -> Result<(), GraphError> {
        /// Bytes that are read from a file at a time.
        const SHARE: u64 = 16 << 20;
        let file = match self {
            Self::InMemory(bytes) => return take(bytes),
            Self::InFile(file) => file,
        };
        for at in (0..file.len()).step_by(SHARE as usize) {
            let mut share = vec![0; (file.len() - at).min(SHARE) as usize];
            file.read(at, &mut share).map_err(ImportError::from)?;
            take(&share)?;
        }
        Ok(())
    }
}

/// Packed lists: the first word of each block, and the words.
#[derive(Debug)]
struct Packed {
    positions: Vec<u64>,
    words: Bytes,
}

impl Packed {
    /// Calls `put` with the words, which have the name `words`, and their positions.
    fn put(
        &self,
        words: &str,
        mut put: impl FnMut(&str, ElementType, &[u8]) -> Result<(), GraphError>,
    ) -> Result<(), GraphError> {
        self.words.each(|bytes| put(words, ElementType::U32, bytes))?;
        put(packed::positions(words), ElementType::U64, bytemuck::cast_slice(&self.positions))
    }
}

/// The lists of one direction.
#[derive(Debug)]
struct Side {
    degrees: (Vec<u8>, Vec<u32>),
    lists: Packed,
    hubs: Bytes,
}

/// Lists with weights.
#[derive(Debug)]
enum Weighted {
    Packed(Packed),
    /// Edges of 16 bytes, since weights of 64 bits are not packed.
    Plain(Bytes),
}

/// A graph whose lists are packed.
#[derive(Debug)]
pub(super) struct PackedLists {
    order: Option<Order>,
    out: Side,
    inward: Option<Side>,
    weighted: Option<Weighted>,
}

impl PackedLists {
    /// Packs the lists of a graph whose neighbours have 32 bits: in the order of the identifiers, or in another one. With
    /// `own` only those of some vertices, by their numbers in that order. `files` are the limits of work with temporary
    /// files, for lists in files.
    pub(super) fn of(
        source: &Source,
        order: Option<Order>,
        own: Option<Range<u64>>,
        files: Option<&Budget>,
    ) -> Result<Self, ImportError> {
        let own = own.map_or(0..source.out.offsets().len() - 1, |own| own.start as usize..own.end as usize);
        let at_once = source.arcs_at_once.min(ARCS_AT_ONCE);
        let side = |lists| side(lists, order.as_ref(), own.clone(), at_once, files);
        let (out, weighted) = side(&source.out)?;
        let inward = source.inward.as_ref().map(side).transpose()?.map(|(side, _)| side);
        Ok(Self { order, out, inward, weighted })
    }

    /// Adds the arrays of the lists to a plan.
    pub(super) fn plan(&self, mut plan: Plan) -> Plan {
        let packed = |plan: Plan, words: &str, lists: &Packed| {
            let plan = plan.array::<u32>(words, lists.words.len() / size_of::<u32>() as u64);
            plan.array::<u64>(packed::positions(words), lists.positions.len() as u64)
        };
        for (side, words, hubs) in self.sides() {
            plan = packed(plan, words, &side.lists);
            let (widths, degrees) = &side.degrees;
            plan = plan.array::<u8>(packed::degree_widths(words), widths.len() as u64);
            plan = plan.array::<u32>(packed::degrees(words), degrees.len() as u64);
            plan = plan.array::<u32>(hubs, side.hubs.len() / size_of::<u32>() as u64);
        }
        plan = match &self.weighted {
            None => plan,
            Some(Weighted::Packed(lists)) => packed(plan, WEIGHTED, lists),
            Some(Weighted::Plain(edges)) => plan.records(WEIGHTED, 16, edges.len() / 16),
        };
        match &self.order {
            Some(order) => plan.array::<u32>(packed::ORDER, order.all_outside().len() as u64),
            None => plan,
        }
    }

    /// Calls `put` with the name, type and bytes of each array, in pieces.
    pub(super) fn each_array(
        &self,
        mut put: impl FnMut(&str, ElementType, &[u8]) -> Result<(), GraphError>,
    ) -> Result<(), GraphError> {
        for (side, words, hubs) in self.sides() {
            side.lists.put(words, &mut put)?;
            put(packed::degree_widths(words), ElementType::U8, &side.degrees.0)?;
            put(packed::degrees(words), ElementType::U32, bytemuck::cast_slice(&side.degrees.1))?;
            side.hubs.each(|bytes| put(hubs, ElementType::U32, bytes))?;
        }
        match &self.weighted {
            None => {}
            Some(Weighted::Packed(lists)) => lists.put(WEIGHTED, &mut put)?,
            Some(Weighted::Plain(edges)) => edges.each(|bytes| put(WEIGHTED, ElementType::Record, bytes))?,
        }
        match &self.order {
            Some(order) => put(packed::ORDER, ElementType::U32, bytemuck::cast_slice(order.all_outside())),
            None => Ok(()),
        }
    }

    fn sides(&self) -> impl Iterator<Item = (&Side, &'static str, &'static str)> {
        let inward = self.inward.iter().map(|side| (side, IN_NEIGHBOURS, IN_HUBS));
        std::iter::once((&self.out, NEIGHBOURS, HUBS)).chain(inward)
    }
}

/// Packs the lists of one direction that vertices of the range `own` have, and the lists with weights if they have some. Degrees
/// are those of all vertices.
fn side(
    lists: &Lists,
    order: Option<&Order>,
    own: Range<usize>,
    at_once: u64,
    files: Option<&Budget>,
) -> Result<(Side, Option<Weighted>), ImportError> {
    let sorted;
    let offsets = order.map_or_else(|| lists.offsets().to_vec(), |order| order.offsets_inside(lists.offsets()));
    let degrees: Vec<u32> = parallel::map(offsets.len() - 1, |v| (offsets[v + 1] - offsets[v]) as u32);
    let first = own.start;
    let offsets: Vec<u64> = offsets[first..=own.end].iter().map(|o| o - offsets[first]).collect();
    // Lists in files are brought into their order once, so that they are read from the beginning to the end.
    let lists = match (lists, order, files) {
        (Lists::InFiles(lists), Some(order), Some(files)) => {
            sorted = Lists::InFiles(reordered(lists, order, own, at_once, files)?);
            &sorted
        }
        _ => lists,
    };
    let (mut encoder, mut words, mut hubs) = (Encoder::new(false), Bytes::create(files)?, Bytes::create(files)?);
    let mut weighted = None;
    for vertices in csr::ranges(&offsets, usize::MAX, at_once) {
        let own = &offsets[vertices.start..=vertices.end];
        let (list, weights) = part(lists, order, &offsets, first, vertices.clone())?;
        words.append(bytemuck::cast_slice(&encoder.push(own, &list, None)))?;
        let best = match order {
            Some(_) => hub::hubs_of_lists(own, &list, true, |n| n),
            None => hub::hubs_of_lists(own, &list, false, |n: u32| (Reverse(degrees[n as usize]), n)),
        };
        hubs.append(bytemuck::cast_slice(&best))?;
        if let Some(weights) = weights {
            let weighted = match &mut weighted {
                Some(weighted) => weighted,
                none => none.insert(WeightedEncoder::create(files)?),
            };
            weighted.push(own, list, &weights)?;
        }
    }
    let (positions, rest) = encoder.finish();
    words.append(bytemuck::cast_slice(&rest))?;
    let side = Side { degrees: pack_values(&degrees), lists: Packed { positions, words }, hubs };
    Ok((side, weighted.map(WeightedEncoder::finish).transpose()?))
}

/// Encoder of lists with weights of any type.
struct WeightedEncoder {
    encoder: Encoder,
    bytes: Bytes,
    is_plain: bool,
}

impl WeightedEncoder {
    fn create(files: Option<&Budget>) -> Result<Self, SpillError> {
        Ok(Self { encoder: Encoder::new(true), bytes: Bytes::create(files)?, is_plain: false })
    }

    fn push(&mut self, offsets: &[u64], list: Vec<u32>, weights: &Weights) -> Result<(), SpillError> {
        let bits: &[u32] = match weights {
            Weights::U32(weights) => weights,
            Weights::F32(weights) => bytemuck::cast_slice(weights),
            Weights::F64(_) => {
                self.is_plain = true;
                let count = list.len();
                let edges = Interleaved::of(&Neighbours::U32(list), Some(weights), 0..count, true);
                return self.bytes.append(edges.bytes());
            }
        };
        self.bytes.append(bytemuck::cast_slice(&self.encoder.push(offsets, &list, Some(bits))))
    }

    fn finish(self) -> Result<Weighted, SpillError> {
        let Self { encoder, mut bytes, is_plain } = self;
        if is_plain {
            return Ok(Weighted::Plain(bytes));
        }
        let (positions, rest) = encoder.finish();
        bytes.append(bytemuck::cast_slice(&rest))?;
        Ok(Weighted::Packed(Packed { positions, words: bytes }))
    }
}

/// Returns the lists of some vertices in their order, ascending. `offsets` are those of the lists from vertex `first` on, from
/// which vertices are counted.
fn part(
    lists: &Lists,
    order: Option<&Order>,
    offsets: &[u64],
    first: usize,
    vertices: Range<usize>,
) -> Result<(Vec<u32>, Option<Weights>), ImportError> {
    match lists {
        Lists::InFiles(lists) => match lists.read(vertices)? {
            (Neighbours::U32(list), weights) => Ok((list, weights)),
            (Neighbours::U64(list), weights) => Ok((parallel::map(list.len(), |i| list[i] as u32), weights)),
        },
        Lists::InMemory(csr) => {
            let row = |v: usize| {
                let v = (first + vertices.start + v) as u64;
                csr.range(order.map_or(v, |order| order.outside(v)))
            };
            let neighbour = |i: usize| {
                let n = csr.neighbours().get(i);
                order.map_or(n, |order| order.inside(n)) as u32
            };
            Ok(gather::gathered(&offsets[vertices.start..=vertices.end], csr.weights(), row, neighbour))
        }
    }
}

/// Brings lists in files into an order, by sorting the arcs once more that vertices of the range `own` have.
fn reordered(
    lists: &FileLists,
    order: &Order,
    own: Range<usize>,
    at_once: u64,
    files: &Budget,
) -> Result<FileLists, SpillError> {
    match lists.weights() {
        None => sorted::<()>(lists, order, own, at_once, files),
        Some(WeightType::U32) => sorted::<u32>(lists, order, own, at_once, files),
        Some(WeightType::F32) => sorted::<f32>(lists, order, own, at_once, files),
        Some(WeightType::F64) => sorted::<f64>(lists, order, own, at_once, files),
    }
}

fn sorted<W: EdgeWeight>(
    lists: &FileLists,
    order: &Order,
    own: Range<usize>,
    at_once: u64,
    files: &Budget,
) -> Result<FileLists, SpillError> {
    let offsets = lists.offsets();
    let runs = Runs::<u32, W>::create(&files.folder)?;
    for vertices in csr::ranges(offsets, usize::MAX, at_once) {
        let (neighbours, weights) = lists.read(vertices.clone())?;
        let base = offsets[vertices.start];
        let mut arcs = Vec::with_capacity(if own.len() == offsets.len() - 1 { neighbours.len() } else { 0 });
        for v in vertices {
            let inside = order.inside(v as u64) as usize;
            if !own.contains(&inside) {
                continue;
            }
            let from = (inside - own.start) as u32;
            let list = (offsets[v] - base) as usize..(offsets[v + 1] - base) as usize;
            let to = |i| order.inside(neighbours.get(i)) as u32;
            arcs.extend(list.map(|i| Arc { from, to: to(i), weight: W::at(weights.as_ref(), i) }));
        }
        runs.add(&mut arcs)?;
    }
    let merge = Merge::new(vec![runs.finish()], at_once);
    let mut writer = ListsWriter::create::<u32>(&files.folder, own.len(), lists.weights())?;
    for range in 0..merge.ranges() {
        let arcs = merge.range(0, range)?;
        let list: Vec<u32> = arcs.iter().map(|arc| arc.to).collect();
        let weights = W::wrap(arcs.iter().map(|arc| arc.weight).collect());
        writer.append(&list, weights.as_ref())?;
        arcs.iter().for_each(|arc| writer.count(arc.from as usize, 1));
    }
    Ok(writer.finish())
}
