//! Contents of a disk: named arrays, as superblocks describe them.

use super::content::Content;
use super::disk::Disk;
use super::newest::Identity;
use parking_lot::Mutex;
use std::sync::Arc;

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
