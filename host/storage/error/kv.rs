//! Errors of stores of objects.

use super::size;
use crate::remedy::{Remedies, Remedy};
use crate::storage::stored_name::{NAME_RULE, listing};

/// Error of a [`KvStore`](crate::storage::KvStore). Keys are in hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KvError {
    /// A name that no store can have.
    #[error("`{0}` cannot be the name of a KV store: {NAME_RULE}")]
    Name(String),
    /// No store has this name.
    #[error("{device}: no KV store is called `{name}`; {}", listing(.there))]
    Unknown {
        /// The volume.
        device: String,
        /// The name asked for.
        name: String,
        /// Names of the stores.
        there: Vec<String>,
    },
    /// Another store has this name.
    #[error("{device}: a KV store is called `{name}` already; nothing was written")]
    Exists {
        /// The volume.
        device: String,
        /// The name.
        name: String,
    },
    /// The store is open already, and would be changed by two handles that do not know of each other.
    #[error(
        "{device}: KV store `{name}` is open already; use a clone of that handle, or drop its clones, pins and reservations first"
    )]
    Open {
        /// The volume.
        device: String,
        /// The name.
        name: String,
    },
    /// The store's arrays were removed or replaced while it was open.
    #[error(
        "KV store `{name}` was removed from its volume while it was open; nothing more is written: drop this handle, and create the store again"
    )]
    Removed {
        /// Name of the store.
        name: String,
    },
    /// A part of the configuration has a value that this version does not know.
    #[error("KV store `{name}` has {field} {found}, and this program knows {known}: use a newer warpbell")]
    Format {
        /// Name of the store.
        name: String,
        /// The part of the configuration.
        field: &'static str,
        /// Its value.
        found: u64,
        /// Values that are known.
        known: &'static str,
    },
    /// The configuration and the arrays of a store contradict each other.
    #[error("KV store `{name}` is damaged: {reason}; remove it and create it again")]
    Damaged {
        /// Name of the store.
        name: String,
        /// Description of the contradiction.
        reason: String,
    },
    /// Sizes that no store can have.
    #[error("{0}")]
    Options(String),
    /// Bytes that are no key.
    #[error("{given} bytes are no key: a key has 16 or 32 bytes; hash longer or shorter names first")]
    KeyBytes {
        /// Bytes given.
        given: usize,
    },
    /// A key of another size than the store's.
    #[error("KV store `{name}` has keys of {stored} bytes, not {given}: use keys of that size")]
    KeySize {
        /// Name of the store.
        name: String,
        /// Bytes of the store's keys.
        stored: usize,
        /// Bytes of the key given.
        given: usize,
    },
    /// One call names a key twice.
    #[error("KV store `{name}`: key {key} is given twice in one call; give each key once")]
    Twice {
        /// Name of the store.
        name: String,
        /// The key.
        key: String,
    },
    /// No object has this key.
    #[error("KV store `{name}` holds no object with key {key}, or holds it no more; store it")]
    Absent {
        /// Name of the store.
        name: String,
        /// The key.
        key: String,
    },
    /// An object of a size that the store cannot hold.
    #[error(
        "KV store `{name}`: an object of {bytes} bytes, and objects of this store have 1 to {most} bytes; divide the object"
    )]
    Size {
        /// Name of the store.
        name: String,
        /// Bytes of the object.
        bytes: u64,
        /// Bytes of the largest object.
        most: u64,
    },
    /// Memory that is smaller than the object to be read.
    #[error(
        "KV store `{name}`: the object with key {key} has {bytes} bytes, and there is memory for {given}; give as many"
    )]
    Short {
        /// Name of the store.
        name: String,
        /// The key.
        key: String,
        /// Bytes of the object.
        bytes: u64,
        /// Bytes of memory given.
        given: u64,
    },
    /// Another number of checksums than of reserved objects.
    #[error("KV store `{name}`: {given} checksums for {objects} reserved objects; give one for each, in their order")]
    Checksums {
        /// Name of the store.
        name: String,
        /// Objects of the reservation.
        objects: usize,
        /// Checksums given.
        given: usize,
    },
    /// No space, although all objects that may be evicted would be.
    #[error(
        "KV store `{name}` has no space for {objects} object(s) of {}: it holds {} in {most} objects, of which pins and reservations keep {} in {kept} objects; drop pins or reservations, store less at once, or create a larger store",
        size(*.bytes), size(*.capacity), size(*.kept_bytes)
    )]
    Full {
        /// Name of the store.
        name: String,
        /// Number of objects that were to be stored.
        objects: u64,
        /// Their bytes, in whole allocation units.
        bytes: u64,
        /// Bytes of the store.
        capacity: u64,
        /// Most objects of the store.
        most: u64,
        /// Bytes that pins and reservations keep.
        kept_bytes: u64,
        /// Objects that pins and reservations keep.
        kept: u64,
    },
    /// Data that does not have the checksum of its object.
    #[error(
        "KV store `{name}`: the {bytes} bytes of the object with key {key}, from byte {offset} of the volume on, are damaged: checksum {computed:#018x}, stored {stored:#018x}; delete the object and store it again"
    )]
    Data {
        /// Name of the store.
        name: String,
        /// The key.
        key: String,
        /// Bytes of the object.
        bytes: u64,
        /// First byte of the object's first extent in the volume.
        offset: u64,
        /// Checksum of the object.
        stored: u64,
        /// Checksum of the data that was read.
        computed: u64,
    },
}

impl Remedies for KvError {
    fn remedies(&self) -> Vec<Remedy> {
        let Self::Exists { .. } = self else { return Vec::new() };
        vec![Remedy::step("choose another name"), Remedy::step("remove that store first")]
    }
}
