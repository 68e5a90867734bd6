//! Queues and data in the memory of another PCI device: the nearest thing to a GPU's BAR that an emulator has.

use super::machine::{self, MATE, PEER, bind};
use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};
use warpbell::args;
use warpbell::engine::Engine;
use warpbell::memory::{DmaAccess, DmaError, DmaRegion, FirstFit, IommuMap, Region, Space};
use warpbell::nvme::{Attachment, DmaSpace, HostQueue, HostQueueOptions};
use warpbell::storage::{Drive, Volume};

const PAGE: u64 = 4096;
/// Bytes of the peer's BAR 2.
const BAR_BYTES: usize = 16 << 20;

/// The peer's BAR, mapped into this process and for the drive.
struct Bar {
    base: NonNull<u8>,
    iova: u64,
    iommu: Arc<dyn IommuMap>,
    free: Mutex<FirstFit>,
}
