//! Errors of manifests.

use crate::storage::element::ElementType;
use crate::storage::format::{MAX_ARRAYS, NAME_BYTES, VERSION, VERSION_WITHOUT_LAYOUT};

/// Error in the bytes of a manifest, in a new entry, or in a request for an array.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// Nothing was stored there, or another program stored it.
    #[error(
        "no manifest: the first bytes are not `warpbell`, so no warpbell data is stored there; store data first, or name another device"
    )]
    Absent,
    /// The manifest is cut off.
    #[error("the manifest is cut off: {bytes} bytes of {needed}; store the data again")]
    Truncated {
        /// Bytes given.
        bytes: usize,
        /// Bytes that the manifest needs.
        needed: usize,
    },
    /// Another version wrote the manifest.
    #[error("{}", other_version(*.0))]
    Version(u32),
    /// An extension of a kind that this version does not know, or that is cut off.
    #[error(
        "the manifest has an extension of kind {kind:#x} and {bytes} bytes, which this program cannot read: use a newer warpbell"
    )]
    Extension {
        /// Kind of the extension.
        kind: u32,
        /// Bytes of its data.
        bytes: usize,
    },
    /// The drives are not put together as they were when the data was stored.
    #[error("the data was stored {stored}, and is opened {asked}; open it as it was stored, or store it again")]
    Layout {
        /// Layout when the data was stored.
        stored: String,
        /// Layout of the volume that is open.
        asked: String,
    },
    /// A drive that belongs to another volume, or to another state of this one.
    #[error(
        "{drive} belongs to another volume, or holds another state of this one; name the drives that were stored together, or store the data again"
    )]
    Member {
        /// The drive as it was named.
        drive: String,
    },
    /// The manifest of the last generation that was stored completely is gone; an older one is there.
    #[error(
        "the manifest of generation {generation} is damaged or gone{}; what it described cannot be found: store the data again", before(*.found)
    )]
    Lost {
        /// Generation that was stored.
        generation: u64,
        /// Generation of the newest manifest that is intact; 0 if there is none.
        found: u64,
    },
    /// Two copies of which neither is older: each was changed without the other.
    #[error(
        "{first} and {second} were changed without each other, so neither is a copy of the other; name an empty device in place of the one whose data is to be given up"
    )]
    Diverged {
        /// One copy as it was named.
        first: String,
        /// The other copy as it was named.
        second: String,
    },
    /// A program ended while it changed the array.
    #[error(
        "array `{name}` was being changed by a program that ended before its flush: its data has checksum {computed:#018x}, what was stored has {found:#018x}; store it again, or accept the changes (`Volume::accept_changes`)"
    )]
    Interrupted {
        /// Name of the array.
        name: String,
        /// Checksum in the manifest.
        found: u64,
        /// Checksum of the data that was read.
        computed: u64,
    },
    /// The manifest does not have its checksum.
    #[error(
        "the manifest is damaged: its checksum is {found:#018x}, its contents have {computed:#018x}; store the data again"
    )]
    Checksum {
        /// Checksum in the header.
        found: u64,
        /// Checksum of the contents that were read.
        computed: u64,
    },
    /// More arrays than fit into a manifest.
    #[error("{0} arrays: a manifest names at most {MAX_ARRAYS}; remove stored arrays, or use another device")]
    TooMany(usize),
    /// An invalid name of an array.
    #[error("`{0}` cannot be an array's name: 1 to {NAME_BYTES} bytes, no control characters")]
    Name(String),
    /// Two arrays of the same name.
    #[error("two arrays are called `{0}`")]
    Twice(String),
    /// An entry with invalid or contradictory values.
    #[error("array `{name}`: {reason}")]
    Entry {
        /// Name of the array.
        name: String,
        /// Description of the contradiction.
        reason: String,
    },
    /// Arrays that share bytes.
    #[error("arrays `{first}` and `{second}` overlap at byte {at}")]
    Overlap {
        /// Name of the array that begins first.
        first: String,
        /// Name of the other array.
        second: String,
        /// First shared byte.
        at: u64,
    },
    /// Data that ends beyond the volume.
    #[error(
        "array `{name}` ends at byte {end}, the volume at {volume}: the data was stored on a larger volume, or with another stripe unit; open it as it was stored"
    )]
    Beyond {
        /// Name of the array.
        name: String,
        /// First byte after the array.
        end: u64,
        /// Bytes of the volume.
        volume: u64,
    },
    /// No array of this name.
    #[error("no array `{name}`; there {}", listing(.there))]
    Unknown {
        /// The name asked for.
        name: String,
        /// Names of the arrays that exist.
        there: Vec<String>,
    },
    /// An array of another type than asked for.
    #[error("array `{name}` holds {found}, not {asked}")]
    Type {
        /// Name of the array.
        name: String,
        /// Type of its elements.
        found: ElementType,
        /// Type asked for.
        asked: ElementType,
    },
    /// Data that does not have its checksum in the manifest.
    #[error(
        "array `{name}` is damaged: its data has checksum {computed:#018x}, the manifest says {found:#018x}; store it again"
    )]
    Data {
        /// Name of the array.
        name: String,
        /// Checksum in the manifest.
        found: u64,
        /// Checksum of the data that was read.
        computed: u64,
    },
}

fn other_version(version: u32) -> String {
    if version == VERSION_WITHOUT_LAYOUT {
        return format!(
            "the manifest has version {version}, which does not say how the data lies on its drives; this program reads version {VERSION}: store the data again"
        );
    }
    format!("the manifest has version {version}, this program reads version {VERSION}: use a newer warpbell")
}

fn before(found: u64) -> String {
    if found == 0 { String::new() } else { format!(", and generation {found} is older") }
}

fn listing(names: &[String]) -> String {
    match names {
        [] => "are none".to_owned(),
        [one] => format!("is `{one}`"),
        many => format!("are {}", many.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", ")),
    }
}
