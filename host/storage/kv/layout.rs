//! Sizes of a store, and the configuration that stores them: a record of 128 bytes, with all numbers little-endian.

use super::extent;
use super::record::{Limits, RECORD};
use crate::storage::error::KvError;
use crate::storage::stored_name::is_name;
use crate::storage::{Element, ElementType, Plan};
use bytemuck::{Pod, Zeroable};
use serde::Serialize;

/// Version of the format that this program writes and reads.
const VERSION: u32 = 1;
const MAGIC: [u8; 8] = *b"wb-kv\0\0\0";
/// Smallest allocation unit in bytes.
const LEAST_UNIT: u64 = 4096;
/// Largest allocation unit that is read.
const LARGEST_UNIT: u64 = 1 << 20;
/// Largest object in bytes.
pub(super) const LARGEST_OBJECT: u64 = 1 << 30;
/// Largest number of objects.
const MOST_OBJECTS: u64 = 1 << 30;
/// The number of records is a multiple of this, so that they fill blocks of 4096 bytes.
const RECORDS_TOGETHER: u64 = 4096 / RECORD as u64;
/// Arrays of a store. The separator is none of the names of stores.
const CONFIGURATION: &str = ":kv";
const RECORDS: &str = ":objects";
const SLAB: &str = ":slab";

/// Sizes of a store, fixed when it is created.
///
/// # Examples
///
/// ```
/// use warpbell::storage::KvOptions;
///
/// // 100 GiB for at most 400,000 objects under SHA-256 hashes.
/// let options = KvOptions { key_bytes: 32, bytes: 100 << 30, objects: 400_000 };
/// assert_eq!(options.key_bytes, 32);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct KvOptions {
    /// Bytes of each key: 16 or 32.
    pub key_bytes: u32,
    /// Bytes of the space for data, rounded up to whole allocation units of 4096 bytes; at least one, fewer than 2^52. Each object occupies
    /// whole units.
    pub bytes: u64,
    /// Most objects at the same time, 1 to 2^30, rounded up to a multiple of 32. Each takes 128 bytes of the volume and
    /// about 70 bytes of memory.
    pub objects: u64,
}

/// Configuration as it is stored. Fields of later versions take the place of zeros; other values are refused.
#[repr(C)]
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
pub(super) struct Raw {
    magic: [u8; 8],
    version: u32,
    key_bytes: u32,
    unit: u32,
    record: u32,
    objects: u64,
    units: u64,
    reserved: [u64; 11],
}

const _: () = assert!(size_of::<Raw>() == 128);

impl Element for Raw {
    const TYPE: ElementType = ElementType::Record;
}

/// Sizes of a store in records and allocation units.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) limits: Limits,
    /// Number of records.
    pub(super) objects: u64,
}

impl Shape {
    /// Returns the sizes of a store on a volume with blocks of `block` bytes.
    ///
    /// # Errors
    /// [`KvError::Options`] if there can be no such store.
    pub(super) fn new(options: &KvOptions, block: usize) -> Result<Self, KvError> {
        let refuse = |why: String| Err(KvError::Options(why));
        let &KvOptions { key_bytes, bytes, objects } = options;
        if ![16, 32].contains(&key_bytes) {
            return refuse(format!(
                "keys of {key_bytes} bytes: a KV store has keys of 16 or 32 bytes; choose one of them"
            ));
        }
        if !(1..=MOST_OBJECTS).contains(&objects) {
            return refuse(format!("{objects} objects: a KV store has 1 to {MOST_OBJECTS}; use several stores"));
        }
        let unit = LEAST_UNIT.max(block as u64);
        let units = bytes.div_ceil(unit);
        if !(1..extent::UNITS).contains(&units) {
            let most = (extent::UNITS - 1).saturating_mul(unit);
            return refuse(format!("{bytes} bytes: a KV store has {unit} to {most}; choose such a size"));
        }
        let limits = Limits { key_bytes: key_bytes as usize, unit, units };
        Ok(Self { limits, objects: objects.next_multiple_of(RECORDS_TOGETHER) })
    }

    pub(super) fn options(&self) -> KvOptions {
        let Limits { key_bytes, unit, units } = self.limits;
        KvOptions { key_bytes: key_bytes as u32, bytes: unit * units, objects: self.objects }
    }

    /// Returns the bytes of the largest object.
    pub(super) fn largest(&self) -> u64 {
        LARGEST_OBJECT.min(self.limits.unit * self.limits.units)
    }

    /// Returns the arrays that store a store.
    pub(super) fn plan(&self, name: &str) -> Plan {
        Plan::new()
            .records(&configuration_of(name), size_of::<Raw>() as u32, 1)
            .self_checked(&records_of(name), RECORD as u32, self.objects)
            .self_checked(&slab_of(name), self.limits.unit as u32, self.limits.units)
    }

    pub(super) fn to_raw(self) -> Raw {
        let Limits { key_bytes, unit, units } = self.limits;
        Raw {
            magic: MAGIC,
            version: VERSION,
            key_bytes: key_bytes as u32,
            unit: unit as u32,
            record: RECORD as u32,
            objects: self.objects,
            units,
            reserved: [0; 11],
        }
    }

    /// Parses a configuration, whose contents are untrusted.
    pub(super) fn parse(name: &str, raw: &Raw) -> Result<Self, KvError> {
        let unknown = |field, found, known| Err(KvError::Format { name: name.to_owned(), field, found, known });
        let damaged = |reason: String| KvError::Damaged { name: name.to_owned(), reason };
        if raw.magic != MAGIC {
            return Err(damaged("its configuration does not begin as that of a KV store".to_owned()));
        }
        if raw.version != VERSION {
            return unknown("version", raw.version.into(), "version 1");
        }
        if let Some(value) = raw.reserved.iter().find(|v| **v != 0) {
            return unknown("further fields, the first", *value, "none");
        }
        if raw.record != RECORD as u32 {
            return unknown("records, in bytes, of", raw.record.into(), "records of 128 bytes");
        }
        let unit = u64::from(raw.unit);
        if !unit.is_power_of_two() || !(LEAST_UNIT..=LARGEST_UNIT).contains(&unit) {
            return Err(damaged(format!("its configuration has allocation units of {unit} bytes")));
        }
        let options =
            KvOptions { key_bytes: raw.key_bytes, bytes: raw.units.saturating_mul(unit), objects: raw.objects };
        let shape = Self::new(&options, raw.unit as usize).map_err(|e| damaged(e.to_string()))?;
        if shape.objects != raw.objects || shape.limits.units != raw.units {
            return Err(damaged(format!("its configuration has {} objects and {} units", raw.objects, raw.units)));
        }
        Ok(shape)
    }
}

pub(super) fn check_name(name: &str) -> Result<(), KvError> {
    if is_name(name) { Ok(()) } else { Err(KvError::Name(name.to_owned())) }
}

pub(super) fn configuration_of(name: &str) -> String {
    format!("{name}{CONFIGURATION}")
}

pub(super) fn records_of(name: &str) -> String {
    format!("{name}{RECORDS}")
}

pub(super) fn slab_of(name: &str) -> String {
    format!("{name}{SLAB}")
}

/// Returns the store that an array belongs to, if it is one of a store's arrays.
pub(super) fn store_of(array: &str) -> Option<&str> {
    let name = [CONFIGURATION, RECORDS, SLAB].iter().find_map(|suffix| array.strip_suffix(suffix))?;
    is_name(name).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configurations_come_back_and_damage_is_told() {
        let shape = Shape::new(&KvOptions { key_bytes: 32, bytes: 10_000, objects: 33 }, 512).unwrap();
        assert_eq!(shape.options(), KvOptions { key_bytes: 32, bytes: 12_288, objects: 64 });
        let raw = shape.to_raw();
        assert_eq!(Shape::parse("s", &raw).unwrap().options(), shape.options());
        let refused = |raw: Raw| Shape::parse("s", &raw).unwrap_err().to_string();
        assert!(refused(Raw { magic: [0; 8], ..raw }).contains("does not begin"));
        assert!(refused(Raw { version: 2, ..raw }).contains("version 2"));
        assert!(refused(Raw { record: 64, ..raw }).contains("128 bytes"));
        assert!(refused(Raw { key_bytes: 20, ..raw }).contains("keys of 20 bytes"));
        assert!(refused(Raw { unit: 0, ..raw }).contains("units of 0 bytes"));
        assert!(refused(Raw { unit: 5000, ..raw }).contains("units of 5000 bytes"));
        assert!(refused(Raw { units: 0, ..raw }).contains("0 bytes"));
        assert!(refused(Raw { units: u64::MAX, ..raw }).contains("damaged"));
        assert!(refused(Raw { objects: 33, ..raw }).contains("33 objects"));
        assert!(refused(Raw { objects: 0, ..raw }).contains("0 objects"));
        assert!(refused(Raw { reserved: [0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0], ..raw }).contains("further fields"));
    }

    #[test]
    fn sizes_that_cannot_be_are_refused_with_the_bounds() {
        let refused = |key_bytes, bytes, objects| {
            Shape::new(&KvOptions { key_bytes, bytes, objects }, 512).unwrap_err().to_string()
        };
        assert!(refused(8, 1 << 20, 10).contains("16 or 32"));
        assert!(refused(16, 0, 10).contains("4096 to"));
        assert!(refused(16, u64::MAX, 10).contains("4096 to"));
        assert!(refused(16, 1 << 20, 0).contains("1 to"));
        assert_eq!(store_of("a.b:slab"), Some("a.b"));
        assert_eq!((store_of("a:rows"), store_of(":kv")), (None, None));
    }
}
