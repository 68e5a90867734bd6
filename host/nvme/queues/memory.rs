//! Memory of queue pairs that the device accesses: rings, bounce buffers and PRP lists.

use super::options::{Landing, QueueOptions};
use crate::memory::{DmaError, DmaRegion, Place, Space};
use crate::nvme::NvmeError;
use crate::nvme::controller::{Controller, PAGE_BYTES, Ready};
use crate::nvme::layout;

/// All memory that the device may read or write. It is freed together or not at all.
#[derive(Debug)]
pub(super) struct DeviceMemory {
    pub(super) rings: DmaRegion,
    /// Submission rings in the controller memory buffer. If present, those in `rings` are not used.
    pub(super) submission: Option<DmaRegion>,
    pub(super) bounce: Option<DmaRegion>,
    pub(super) lists: Option<DmaRegion>,
}

impl DeviceMemory {
    /// Allocates memory for the pairs of `options`, whose commands move at most `max_transfer` bytes. Writes the
    /// PRP lists of bounce buffers. Commands that kernels post as capsules (`by_capsules`) have no lists.
    pub(super) fn allocate(
        controller: &Controller<Ready>,
        space: &Space,
        options: &QueueOptions,
        max_transfer: usize,
        by_capsules: bool,
    ) -> Result<Self, NvmeError> {
        let dma = controller.dma();
        // A remote controller reaches memory that is mapped, and no other.
        let for_data = |bytes: usize| match by_capsules {
            true => dma.map(&space.allocate(Place::Host, bytes)?),
            false => dma.allocate(space, bytes),
        };
        let (count, depth) = (options.count as usize, options.depth as usize);
        let too_much = || NvmeError::Options {
            device: controller.name().to_owned(),
            reason: format!("{count} queues of {depth} entries need more memory than can be addressed"),
        };
        let total = |each: usize| each.checked_mul(count).ok_or_else(too_much);
        let slots = total(depth)?;
        let ring_bytes = total(layout::rings(options.depth).bytes)?;
        let rings = match options.memory {
            Place::Host => dma.allocate(space, ring_bytes)?,
            Place::Device => {
                let region = space.allocate(Place::Device, ring_bytes)?;
                let mapped = controller.map_memory(&region)?;
                if !mapped.iova.is_multiple_of(PAGE_BYTES as u64) {
                    let reason = format!("the device's address {:#x} of the rings is not page aligned", mapped.iova);
                    return Err(DmaError::Unreachable { device: controller.name().to_owned(), reason }.into());
                }
                mapped
            }
        };
        let submission = match options.submission_in_buffer {
            true => {
                let bytes = total(layout::rings(options.depth).cq_offset)?;
                Some(controller.memory_buffer()?.allocate(controller.name(), space, bytes)?)
            }
            false => None,
        };
        let bounce = match options.landing {
            Landing::Direct => None,
            Landing::Bounce { bytes_per_slot } => {
                Some(for_data(slots.checked_mul(bytes_per_slot).ok_or_else(too_much)?)?)
            }
        };
        let lists = if !by_capsules && layout::needs_lists(max_transfer, bounce.is_some()) {
            Some(dma.allocate(space, slots.checked_mul(PAGE_BYTES).ok_or_else(too_much)?)?)
        } else {
            None
        };
        if let (Some(bounce), Some(lists), Landing::Bounce { bytes_per_slot }) = (&bounce, &lists, options.landing) {
            for slot in 0..slots {
                let list = layout::list_of(bounce.iova + (slot * bytes_per_slot) as u64, bytes_per_slot);
                lists.region.set_slice(lists.offset + slot * PAGE_BYTES, &list)?;
            }
        }
        Ok(Self { rings, submission, bounce, lists })
    }
}
