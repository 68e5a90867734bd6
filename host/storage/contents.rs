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

use super::disk::Disk;
use super::newest::Identity;
use super::superblock::Superblock;
use parking_lot::Mutex;
use std::sync::Arc;

/// Content on which the superblocks agree.
#[derive(Clone, Debug)]
pub(super) struct Content {
    pub(super) block: Superblock,
    pub(super) slot: usize,
    /// The latest generation that is on any drive.
    pub(super) latest: u64,
    /// True if a program ended while it changed arrays.
    pub(super) interrupted: bool,
    /// True if a copy that holds the content lacks its superblock or its commit.
    pub(super) is_behind: bool,
}

/// The named arrays on a disk.
#[derive(Debug)]
pub(super) struct Contents {
    /// Content that was last found or published.
    pub(super) content: Mutex<Option<Content>>,
    /// Content of a replicated disk that was last found or stored.
    pub(super) known: Mutex<Option<Identity>>,
    /// Option [`VolumeBuilder::page_checksums`](super::VolumeBuilder::page_checksums).
    pub(super) use_page_checksums: Option<bool>,
    pub(super) disk: Arc<Disk>,
}

impl Contents {
    /// Makes the contents of a disk whose superblocks are not read yet.
    pub(super) fn new(disk: Disk, use_page_checksums: Option<bool>) -> Self {
        Self { content: Mutex::new(None), known: Mutex::new(None), use_page_checksums, disk: Arc::new(disk) }
    }
}
