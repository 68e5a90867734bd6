//! Header of a stored graph: a record of 256 bytes, with all numbers little-endian.

use super::{GraphName, StoredError};
use crate::graph::csr::NeighbourOrder;
use crate::graph::import::{Format, OrientationReason, Summary, WeightSource};
use crate::graph::pe_order;
use crate::storage::{Element, ElementType};
use bytemuck::{Pod, Zeroable};
use std::ops::Range;

/// Version of the format that this program writes and reads.
pub const STORED_GRAPH_VERSION: u32 = 1;

/// Header as it is stored. Fields of later versions take the place of zeros; other values than these are refused.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct Raw {
    version: u32,
    /// Encoding of the neighbour lists: 0 for plain identifiers, 1 for packed lists.
    encoding: u32,
    /// Order of the lists: 0 for that of the identifiers, 1 for the one that an array lists.
    permutation: u32,
    /// Part of a partitioned graph: the number of parts, and from bit 16 on that of this part; 0 for a whole graph.
    partition: u32,
    directed: u32,
    /// Bytes of a neighbour.
    width: u32,
    order: u32,
    weights: u32,
    ids: u32,
    format: u32,
    orientation: u32,
    weight_source: u32,
    vertices: u64,
    arcs: u64,
    edges: u64,
    id_base: u64,
    /// Number of vertices with an edge to themselves.
    loops: u64,
    /// Largest weight: an integer, or the bits of a double.
    largest_weight: u64,
    /// Bits of a double.
    mean_weight: u64,
    input_edges: u64,
    input_self_loops: u64,
    duplicates: u64,
    input_bytes: u64,
    /// Number that the parts of one import have in common; 0 for a whole graph.
    import: u64,
    reserved: [u64; 14],
}

const _: () = assert!(size_of::<Raw>() == 256);

impl Element for Raw {
    const TYPE: ElementType = ElementType::Record;
}

/// Kind of the weights of a stored graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WeightType {
    /// Integers of 32 bits.
    U32,
    /// Real numbers in single precision.
    F32,
    /// Real numbers in double precision.
    F64,
}

impl WeightType {
    /// Returns the size of a weight in bytes.
    pub fn bytes(self) -> usize {
        match self {
            Self::U32 | Self::F32 => 4,
            Self::F64 => 8,
        }
    }
}

/// Part of a graph that is partitioned over the PEs of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredPart {
    /// Number of the part, from 0 on: that of its PE.
    pub part: usize,
    /// Number of parts.
    pub parts: usize,
    /// Number that the parts of one import have in common.
    pub import: u64,
}

/// Largest number of parts.
pub const MOST_PARTS: usize = u16::MAX as usize;

impl StoredPart {
    fn to_raw(self) -> u32 {
        (self.parts | self.part << 16) as u32
    }

    /// Parses a header; `None` if it has no part that there can be.
    fn parse(raw: &Raw) -> Option<Option<Self>> {
        let (part, parts) = ((raw.partition >> 16) as usize, (raw.partition & 0xffff) as usize);
        match raw.partition {
            0 => (raw.import == 0).then_some(None),
            // Lists of a part are packed, in an order of their own.
            _ => (raw.permutation == 1 && parts > 1 && part < parts).then_some(Some(Self {
                part,
                parts,
                import: raw.import,
            })),
        }
    }
}

/// Kind of the identifiers of a stored graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoredIds {
    /// Numbers without a gap, from the header's first identifier on.
    Dense,
    /// Numbers that an array lists.
    Listed,
    /// Names.
    Named,
}

/// Facts about a stored graph.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct StoredInfo {
    /// Number of vertices.
    pub vertices: u64,
    /// Number of stored neighbours: see [`Csr::arcs`](crate::graph::Csr::arcs).
    pub arcs: u64,
    /// Number of edges: see [`Csr::edges`](crate::graph::Csr::edges).
    pub edges: u64,
    /// True if edges have a direction.
    pub directed: bool,
    /// Bytes of an identifier of a neighbour, 4 or 8. Packed lists take fewer.
    pub neighbour_bytes: usize,
    /// True if neighbour lists are packed.
    pub packed: bool,
    /// True if lists stand in the order of their vertices' degrees, and not in that of the identifiers.
    pub reordered: bool,
    /// Part of a partitioned graph that this is; `None` for a whole one. All other facts are those of the whole graph.
    pub part: Option<StoredPart>,
    /// Kind of the weights; `None` without weights.
    pub weights: Option<WeightType>,
    /// Facts about the input, and decisions made when it was imported.
    pub input: Summary,
    pub(super) order: NeighbourOrder,
    pub(super) ids: StoredIds,
    pub(super) id_base: u64,
    pub(super) loops: u64,
    pub(super) largest_weight: f64,
    pub(super) mean_weight: f64,
}

/// Codes of an enumeration: the position in the list. Positions are stored, so new values are added at the end.
macro_rules! codes {
    ($name:ident: $type:ty = $($value:path),* $(,)?) => { const $name: &[$type] = &[$($value),*]; };
}
codes!(WEIGHTS: Option<WeightType> = NO_WEIGHTS, INTEGERS, SINGLE, DOUBLE);
codes!(ORDERS: NeighbourOrder = NeighbourOrder::ById, NeighbourOrder::ByDegree);
codes!(IDS: StoredIds = StoredIds::Dense, StoredIds::Listed, StoredIds::Named);
codes!(FORMATS: Format = Format::EdgeList, Format::WeightedEdgeList, Format::MatrixMarket, Format::Ldbc, Format::Serialized,
    Format::WeightedSerialized, Format::Kronecker, Format::Uniform, Format::Memory, Format::Separated,
    Format::Dimacs, Format::Metis, Format::Parquet, Format::Arrow, Format::BvGraph);
codes!(ORIENTATIONS: OrientationReason = OrientationReason::Requested, OrientationReason::Declared,
    OrientationReason::Symmetric, OrientationReason::OneWay, OrientationReason::Once);
codes!(SOURCES: WeightSource = WeightSource::None, WeightSource::Input, WeightSource::Unit, WeightSource::RandomIntegers,
    WeightSource::RandomReals);
const NO_WEIGHTS: Option<WeightType> = None;
const INTEGERS: Option<WeightType> = Some(WeightType::U32);
const SINGLE: Option<WeightType> = Some(WeightType::F32);
const DOUBLE: Option<WeightType> = Some(WeightType::F64);

fn code<T: PartialEq>(list: &[T], value: &T) -> u32 {
    list.iter().position(|v| v == value).unwrap_or(list.len()) as u32
}

impl StoredInfo {
    /// Returns true if weighted edges have 64-bit identifiers, which double weights need, too.
    pub(super) fn wide_weights(&self) -> bool {
        self.neighbour_bytes == 8 || self.weights == Some(WeightType::F64)
    }

    /// Returns true if the vertices have names.
    pub fn has_names(&self) -> bool {
        self.ids == StoredIds::Named
    }

    /// Returns the vertices, in the order of the lists, whose lists are here.
    pub(super) fn own_vertices(&self) -> Range<u64> {
        match self.part {
            Some(own) => {
                let firsts = pe_order::firsts(self.vertices, own.parts);
                firsts[own.part]..firsts[own.part + 1]
            }
            None => 0..self.vertices,
        }
    }

    pub(super) fn to_raw(self) -> Raw {
        Raw {
            version: STORED_GRAPH_VERSION,
            encoding: self.packed.into(),
            permutation: self.reordered.into(),
            partition: self.part.map_or(0, StoredPart::to_raw),
            import: self.part.map_or(0, |own| own.import),
            directed: self.directed.into(),
            width: self.neighbour_bytes as u32,
            order: code(ORDERS, &self.order),
            weights: code(WEIGHTS, &self.weights),
            ids: code(IDS, &self.ids),
            format: code(FORMATS, &self.input.format),
            orientation: code(ORIENTATIONS, &self.input.orientation),
            weight_source: code(SOURCES, &self.input.weights),
            vertices: self.vertices,
            arcs: self.arcs,
            edges: self.edges,
            id_base: self.id_base,
            loops: self.loops,
            largest_weight: self.largest_weight.to_bits(),
            mean_weight: self.mean_weight.to_bits(),
            input_edges: self.input.input_edges,
            input_self_loops: self.input.self_loops,
            duplicates: self.input.duplicates,
            input_bytes: self.input.bytes,
            ..Zeroable::zeroed()
        }
    }

    /// Parses a header, whose contents are untrusted.
    pub(super) fn parse(name: &GraphName, raw: &Raw) -> Result<Self, StoredError> {
        let unknown =
            |field, found: u64, known| Err(StoredError::Format { name: name.to_string(), field, found, known });
        if raw.version != STORED_GRAPH_VERSION {
            return unknown("version", raw.version.into(), "version 1");
        }
        if raw.encoding > 1 {
            return unknown("encoding", raw.encoding.into(), "0 and 1");
        }
        if raw.permutation > raw.encoding {
            return unknown("permutation", raw.permutation.into(), "0, and 1 of packed lists");
        }
        let Some(part) = StoredPart::parse(raw) else {
            return unknown(
                "partition",
                raw.partition.into(),
                "0, and parts of packed lists in the order of an import",
            );
        };
        if let Some(value) = raw.reserved.iter().find(|v| **v != 0) {
            return unknown("further fields, the first", *value, "none");
        }
        fn known<T: Copy>(list: &[T], code: u32) -> Option<T> {
            list.get(code as usize).copied()
        }
        let Some(order) = known(ORDERS, raw.order) else { return unknown("order", raw.order.into(), "0 and 1") };
        let Some(weights) = known(WEIGHTS, raw.weights) else {
            return unknown("weights", raw.weights.into(), "0 to 3");
        };
        let Some(format) = known(FORMATS, raw.format) else { return unknown("format", raw.format.into(), "0 to 13") };
        let Some(orientation) = known(ORIENTATIONS, raw.orientation) else {
            return unknown("orientation", raw.orientation.into(), "0 to 4");
        };
        let Some(source) = known(SOURCES, raw.weight_source) else {
            return unknown("weight source", raw.weight_source.into(), "0 to 4");
        };
        if raw.directed > 1 {
            return unknown("direction", raw.directed.into(), "0 and 1");
        }
        let Some(ids) = known(IDS, raw.ids) else { return unknown("identifiers", raw.ids.into(), "0 to 2") };
        if ![4, 8].contains(&raw.width) {
            return unknown("neighbour bytes", raw.width.into(), "4 and 8");
        }
        if raw.encoding == 1 && raw.width != 4 {
            return unknown("neighbour bytes", raw.width.into(), "4 for packed lists");
        }
        if raw.encoding == 1 && raw.order != 0 {
            return unknown("order", raw.order.into(), "0 for packed lists");
        }
        Ok(Self {
            packed: raw.encoding == 1,
            reordered: raw.permutation == 1,
            part,
            vertices: raw.vertices,
            arcs: raw.arcs,
            edges: raw.edges,
            directed: raw.directed == 1,
            neighbour_bytes: raw.width as usize,
            weights,
            input: Summary {
                format,
                orientation,
                weights: source,
                input_edges: raw.input_edges,
                self_loops: raw.input_self_loops,
                duplicates: raw.duplicates,
                bytes: raw.input_bytes,
            },
            order,
            ids,
            id_base: raw.id_base,
            loops: raw.loops,
            largest_weight: f64::from_bits(raw.largest_weight),
            mean_weight: f64::from_bits(raw.mean_weight),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn have_codes<T: Copy + PartialEq + std::fmt::Debug>(list: &[T]) {
        for (position, value) in list.iter().enumerate() {
            assert_eq!(code(list, value) as usize, position, "{value:?} is listed twice");
        }
    }

    #[test]
    fn every_value_has_a_code() {
        have_codes(WEIGHTS);
        have_codes(ORDERS);
        have_codes(IDS);
        have_codes(FORMATS);
        have_codes(ORIENTATIONS);
        have_codes(SOURCES);
        // A new variant does not compile here until it has a position, which is added to its list, too.
        let format = |format| match format {
            Format::EdgeList => 0,
            Format::WeightedEdgeList => 1,
            Format::MatrixMarket => 2,
            Format::Ldbc => 3,
            Format::Serialized => 4,
            Format::WeightedSerialized => 5,
            Format::Kronecker => 6,
            Format::Uniform => 7,
            Format::Memory => 8,
            Format::Separated => 9,
            Format::Dimacs => 10,
            Format::Metis => 11,
            Format::Parquet => 12,
            Format::Arrow => 13,
            Format::BvGraph => 14,
        };
        let ids = |ids| match ids {
            StoredIds::Dense => 0,
            StoredIds::Listed => 1,
            StoredIds::Named => 2,
        };
        let orientation = |orientation| match orientation {
            OrientationReason::Requested => 0,
            OrientationReason::Declared => 1,
            OrientationReason::Symmetric => 2,
            OrientationReason::OneWay => 3,
            OrientationReason::Once => 4,
        };
        let source = |source| match source {
            WeightSource::None => 0,
            WeightSource::Input => 1,
            WeightSource::Unit => 2,
            WeightSource::RandomIntegers => 3,
            WeightSource::RandomReals => 4,
        };
        assert!(FORMATS.iter().all(|f| code(FORMATS, f) == format(*f)));
        assert!(IDS.iter().all(|i| code(IDS, i) == ids(*i)));
        assert!(ORIENTATIONS.iter().all(|o| code(ORIENTATIONS, o) == orientation(*o)));
        assert!(SOURCES.iter().all(|s| code(SOURCES, s) == source(*s)));
    }
}
