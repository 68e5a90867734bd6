//! Layout of a table, and the header that stores it: a record of 128 bytes, with all numbers little-endian.

use super::TableError;
use crate::engine::abi;
use crate::storage::{Element, ElementType, Plan};
use bytemuck::{Pod, Zeroable};
use serde::Serialize;

/// Version of the format that this program writes and reads.
const VERSION: u32 = 1;
const MAGIC: [u8; 8] = *b"wb-table";
/// Bytes of a row.
const ROW_BYTES: std::ops::RangeInclusive<u64> = 64..=64 << 10;
/// Largest number of dimensions of a row.
const MOST_DIMENSIONS: usize = 8;
/// Arrays of a table. The separator is none of the names of tables and graphs.
const HEADER: &str = ":table";
const ROWS: &str = ":rows";

/// Header as it is stored. Fields of later versions take the place of zeros; other values are refused.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct Raw {
    magic: [u8; 8],
    version: u32,
    element: u32,
    row_bytes: u32,
    dimensions: u32,
    rows: u64,
    shape: [u64; MOST_DIMENSIONS],
    reserved: [u64; 4],
}

const _: () = assert!(size_of::<Raw>() == 128);

impl Element for Raw {
    const TYPE: ElementType = ElementType::Record;
}

/// Number, type and shape of a table's rows.
///
/// # Examples
///
/// ```
/// use warpbell::storage::{ElementType, TableLayout};
///
/// // 1000 rows of 16 x 8 numbers.
/// let layout = TableLayout::new(ElementType::F32, &[16, 8], 1000)?;
/// assert_eq!((layout.row_elements(), layout.row_bytes()), (128, 512));
/// // A row has 64 bytes at least.
/// assert!(TableLayout::new(ElementType::F32, &[8], 1000).is_err());
/// # Ok::<(), warpbell::storage::TableError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TableLayout {
    element: ElementType,
    shape: Vec<u64>,
    row_bytes: u32,
    rows: u64,
}

impl TableLayout {
    /// Describes `rows` rows, each of elements of this type in this shape, such as `[128]`.
    ///
    /// # Errors
    /// [`TableError::Layout`] if a row has not 64 to 65,536 bytes, or not a multiple of 4. Also for records, for more
    /// than 8 dimensions, and for 2^40 rows or more.
    pub fn new(element: ElementType, shape: &[u64], rows: u64) -> Result<Self, TableError> {
        let refuse = |why: String| Err(TableError::Layout(why));
        let Some(each) = element.bytes() else {
            return refuse("rows of records: describe a row by elements, for example of u8".to_owned());
        };
        if shape.is_empty() || shape.len() > MOST_DIMENSIONS {
            let found = shape.len();
            return refuse(format!("rows of {found} dimensions: a row has 1 to {MOST_DIMENSIONS}; join some of them"));
        }
        let bytes = shape.iter().try_fold(u64::from(each), |bytes, n| bytes.checked_mul(*n)).unwrap_or(u64::MAX);
        if !ROW_BYTES.contains(&bytes) || !bytes.is_multiple_of(4) {
            let (least, most) = (ROW_BYTES.start(), ROW_BYTES.end());
            return refuse(format!(
                "rows of {bytes} bytes ({shape:?} of {element}): a row has {least} to {most} bytes, a multiple of 4; pad or split the rows"
            ));
        }
        if rows >> abi::ROW_NUMBER_BITS != 0 {
            return refuse(format!("{rows} rows: a table has fewer than 2^40; use several tables"));
        }
        Ok(Self { element, shape: shape.to_vec(), row_bytes: bytes as u32, rows })
    }

    /// Returns the type of the elements.
    pub fn element(&self) -> ElementType {
        self.element
    }

    /// Returns true if elements of this type in a program hold those of the table: its own type, or
    /// [`ElementType::U16`] for the bits of floats of 16 bits, which Rust and C++ lack.
    pub fn is_held_by(&self, element: ElementType) -> bool {
        let is_bits = matches!(self.element, ElementType::F16 | ElementType::Bf16) && element == ElementType::U16;
        self.element == element || is_bits
    }

    /// Returns the dimensions of a row.
    pub fn row_shape(&self) -> &[u64] {
        &self.shape
    }

    /// Returns the number of elements of a row.
    pub fn row_elements(&self) -> u64 {
        self.shape.iter().product()
    }

    /// Returns the bytes of a row.
    pub fn row_bytes(&self) -> u64 {
        self.row_bytes.into()
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns the bytes of all rows.
    pub fn bytes(&self) -> u64 {
        self.rows.saturating_mul(self.row_bytes.into())
    }

    /// Returns the arrays that store a table of this layout.
    ///
    /// # Errors
    /// [`TableError::Name`] if no table can have this name.
    pub fn plan(&self, name: &str) -> Result<Plan, TableError> {
        check_name(name)?;
        let plan = Plan::new().records(&header_of(name), size_of::<Raw>() as u32, 1);
        Ok(plan.records(&rows_of(name), self.row_bytes, self.rows))
    }

    pub(super) fn to_raw(&self) -> Raw {
        let mut raw = Raw {
            magic: MAGIC,
            version: VERSION,
            element: self.element.code(),
            row_bytes: self.row_bytes,
            dimensions: self.shape.len() as u32,
            rows: self.rows,
            ..Zeroable::zeroed()
        };
        raw.shape[..self.shape.len()].copy_from_slice(&self.shape);
        raw
    }

    /// Parses a header, whose contents are untrusted.
    pub(super) fn parse(name: &str, raw: &Raw) -> Result<Self, TableError> {
        let unknown = |field, found, known| Err(TableError::Format { name: name.to_owned(), field, found, known });
        let damaged = |reason: String| TableError::Damaged { name: name.to_owned(), reason };
        if raw.magic != MAGIC {
            return Err(damaged("its header does not begin as that of a table".to_owned()));
        }
        if raw.version != VERSION {
            return unknown("version", raw.version.into(), "version 1");
        }
        if let Some(value) = raw.reserved.iter().find(|v| **v != 0) {
            return unknown("further fields, the first", *value, "none");
        }
        let Some(element) = ElementType::from_code(raw.element) else {
            return unknown("element type", raw.element.into(), "0 to 9, 11 and 12");
        };
        let (used, rest) = raw.shape.split_at((raw.dimensions as usize).min(MOST_DIMENSIONS));
        let layout = Self::new(element, used, raw.rows).map_err(|e| damaged(e.to_string()))?;
        if layout.row_bytes != raw.row_bytes || raw.dimensions as usize != used.len() || rest.iter().any(|n| *n != 0) {
            return Err(damaged(format!("its header has rows of {} bytes and another shape", raw.row_bytes)));
        }
        Ok(layout)
    }
}

pub(super) fn check_name(name: &str) -> Result<(), TableError> {
    if crate::storage::stored_name::is_name(name) { Ok(()) } else { Err(TableError::Name(name.to_owned())) }
}

pub(super) fn header_of(name: &str) -> String {
    format!("{name}{HEADER}")
}

pub(super) fn rows_of(name: &str) -> String {
    format!("{name}{ROWS}")
}

/// Returns the table that an array belongs to, if it is one of a table's arrays.
pub(super) fn table_of(array: &str) -> Option<&str> {
    let name = array.strip_suffix(HEADER).or_else(|| array.strip_suffix(ROWS))?;
    check_name(name).is_ok().then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_come_back_and_damage_is_told() {
        for element in [ElementType::F16, ElementType::Bf16] {
            let layout = TableLayout::new(element, &[64], 7).unwrap();
            assert_eq!(TableLayout::parse("t", &layout.to_raw()).unwrap(), layout);
        }
        let layout = TableLayout::new(ElementType::I16, &[4, 8, 2], 77).unwrap();
        let raw = layout.to_raw();
        assert_eq!(TableLayout::parse("t", &raw).unwrap(), layout);
        let refused = |raw: Raw| TableLayout::parse("t", &raw).unwrap_err().to_string();
        assert!(refused(Raw { magic: [0; 8], ..raw }).contains("does not begin"));
        assert!(refused(Raw { version: 2, ..raw }).contains("version 2"));
        assert!(refused(Raw { element: 99, ..raw }).contains("element type 99"));
        assert!(refused(Raw { element: ElementType::Record.code(), ..raw }).contains("records"));
        assert!(refused(Raw { row_bytes: 64, ..raw }).contains("64 bytes and another shape"));
        assert!(refused(Raw { dimensions: 2, ..raw }).contains("another shape"));
        assert!(refused(Raw { dimensions: 9, ..raw }).contains("damaged"));
        assert!(refused(Raw { dimensions: 0, ..raw }).contains("0 dimensions"));
        assert!(refused(Raw { rows: 1 << 40, ..raw }).contains("2^40"));
        assert!(refused(Raw { reserved: [0, 3, 0, 0], ..raw }).contains("further fields"));
    }

    #[test]
    fn rows_have_64_bytes_to_64_kib_in_words() {
        let new = |element, shape: &[u64]| TableLayout::new(element, shape, 1).map(|l| l.row_bytes());
        assert_eq!(new(ElementType::U8, &[64]), Ok(64));
        assert_eq!((new(ElementType::F16, &[32]), new(ElementType::Bf16, &[34])), (Ok(64), Ok(68)));
        assert_eq!(new(ElementType::F64, &[8192]), Ok(65536));
        for (element, shape) in [
            (ElementType::U8, &[60u64][..]),
            (ElementType::U8, &[66]),
            (ElementType::Bf16, &[33]),
            (ElementType::F64, &[8193]),
            (ElementType::F32, &[0]),
            (ElementType::U64, &[u64::MAX, u64::MAX]),
            (ElementType::U8, &[]),
            (ElementType::U8, &[2; 9]),
            (ElementType::Record, &[64]),
        ] {
            assert!(new(element, shape).is_err(), "{element} {shape:?}");
        }
    }

    #[test]
    fn arrays_belong_to_tables_by_their_names() {
        assert_eq!(table_of(&header_of("a.b")), Some("a.b"));
        assert_eq!(table_of(&rows_of("x")), Some("x"));
        assert_eq!(table_of("graph/offsets"), None);
        assert_eq!(table_of(":rows"), None);
        assert!(TableLayout::new(ElementType::U8, &[64], 1).unwrap().plan("a/b").is_err());
    }
}
