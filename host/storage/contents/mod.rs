//! Contents of a disk: named arrays, as superblocks describe them.
//!
//! New content becomes valid with the last superblock of a generation. The order is data, Flush, superblocks, Flush,
//! commit. Until then the superblocks of the previous generation are intact in the other slot.
//!
//! A superblock names the copies that hold its content, its members. If one of them fails while superblocks are
//! written, another generation without it follows at once.
//!
//! Before the first write to stored arrays, the kernel or host thread that writes puts a mark on the medium. A flush
//! records in the manifest which arrays have changed since they were stored; their checksums are invalid from then on.
//! If a program ends between mark and flush, the mark remains. It tells interrupted arrays from damaged ones.
//!
//! An array with checksums of its own (`Plan::self_checked`) has neither mark nor checksum: whoever owns the array finds out
//! what a program that was killed left there.

mod add;
mod array_reader;
mod changes;
mod checksum_table;
#[cfg(test)]
mod content_tests;
#[cfg(test)]
mod crash_tests;
mod find;
mod manifest;
mod newest;
#[cfg(test)]
mod outdated_mirror_tests;
mod page_checksums;
#[cfg(test)]
mod page_checksums_tests;
mod plan;
mod publish;
mod restore;
#[cfg(test)]
mod self_checked_tests;
mod store;
mod stored;
mod superblock;
mod users;
mod verify;
mod writer;
mod writes;

pub use array_reader::ArrayReader;
pub use manifest::{Entry, Manifest};
pub use plan::Plan;
pub use stored::Stored;
pub use verify::{ArrayState, CheckedArray, DamagedRange, Verification};
pub use writer::VolumeWriter;

use crate::storage::disk::Disk;
use newest::Identity;
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use superblock::Superblock;
use users::ArrayUses;
pub(in crate::storage) use users::{ArrayUse, ArrayUser};

/// Content on which the superblocks agree.
#[derive(Clone, Debug)]
pub(in crate::storage) struct Content {
    pub(in crate::storage) block: Superblock,
    pub(in crate::storage) slot: usize,
    /// The latest generation that is on any drive.
    pub(in crate::storage) latest: u64,
    /// True if a program ended while it changed arrays.
    pub(in crate::storage) interrupted: bool,
    /// True if a copy that holds the content lacks its superblock or its commit.
    pub(in crate::storage) is_behind: bool,
}

/// The named arrays on a disk.
pub(in crate::storage) struct Contents {
    /// Content that was last found or published.
    pub(in crate::storage) content: Mutex<Option<Content>>,
    /// Content of a replicated disk that was last found or stored.
    pub(in crate::storage) known: Mutex<Option<Identity>>,
    /// Locked before `content`.
    uses: ArrayUses,
    /// Option [`VolumeBuilder::page_checksums`](crate::storage::VolumeBuilder::page_checksums).
    pub(in crate::storage) use_page_checksums: Option<bool>,
    pub(in crate::storage) disk: Arc<Disk>,
}

impl Contents {
    /// Makes the contents of a disk whose superblocks are not read yet.
    pub(in crate::storage) fn new(disk: Disk, use_page_checksums: Option<bool>) -> Self {
        Self {
            content: Mutex::new(None),
            known: Mutex::new(None),
            uses: ArrayUses::default(),
            use_page_checksums,
            disk: Arc::new(disk),
        }
    }
}

impl fmt::Debug for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Contents of {:?}", self.disk)
    }
}
