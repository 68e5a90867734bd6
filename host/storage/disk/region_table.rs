//! Entries of `wb_volume` for registered regions, and the mappings that they keep.

use crate::engine::abi;
use crate::memory::{DmaRegion, Region};
use crate::storage::error::StorageError;
use parking_lot::Mutex;
use std::mem::offset_of;

/// Registered regions of a disk. `shared` is its `wb_volume` in all calls.
#[derive(Debug, Default)]
pub(in crate::storage) struct RegisteredRegions {
    /// For each entry in use, one mapping for each device.
    maps: Mutex<Vec<Option<Vec<DmaRegion>>>>,
}

/// Returns the byte of an entry in `wb_volume`.
const fn region_at(place: usize) -> usize {
    offset_of!(abi::Volume, window) + place * size_of::<abi::RegisteredRegion>()
}

impl RegisteredRegions {
    /// Takes a free entry. Kernels may be running, so the entry's length is written last. `by_capsules` returns true for
    /// a device whose commands kernels send as capsules.
    pub(in crate::storage) fn enter(
        &self,
        shared: &Region,
        maps: Vec<DmaRegion>,
        by_capsules: impl Fn(usize) -> bool,
    ) -> Result<usize, StorageError> {
        let mut all = self.maps.lock();
        // Bounce landing has no mappings to enter.
        let Some(first) = maps.first() else { return Ok(usize::MAX) };
        let free = all.iter().take(abi::MAX_REGISTERED_REGIONS).position(Option::is_none);
        let place = free.unwrap_or(all.len());
        if place >= abi::MAX_REGISTERED_REGIONS {
            let most = abi::MAX_REGISTERED_REGIONS;
            return Err(StorageError::Option(format!(
                "all {most} registered regions of this volume are in use: use fewer, larger buffers and caches"
            )));
        }
        let mut w: abi::RegisteredRegion = bytemuck::Zeroable::zeroed();
        w.base = first.address();
        for (i, map) in maps.iter().enumerate() {
            // Host threads that carry commands reach memory by its device address.
            let remote = map.remote.filter(|_| by_capsules(i));
            (w.iova[i], w.key[i]) = remote.map_or((map.iova, 0), |r| (r.address, r.key));
        }
        let at = region_at(place);
        shared.set(at, w)?;
        shared.set(at + offset_of!(abi::RegisteredRegion, bytes), first.bytes as u64)?;
        if free.is_none() {
            shared.set(offset_of!(abi::Volume, registered_region_count), place as u32 + 1)?;
            all.push(Some(maps));
        } else {
            all[place] = Some(maps);
        }
        Ok(place)
    }

    /// Returns the address by which a device reaches a byte of the memory of an entry, if there is such a mapping.
    pub(in crate::storage) fn device_address(&self, place: usize, device: usize, address: u64) -> Option<u64> {
        let all = self.maps.lock();
        let map = all.get(place)?.as_ref()?.get(device)?;
        Some(map.iova + (address - map.address()))
    }

    /// Closes an entry and frees it. Other entries never move, so kernels that use them are not disturbed.
    pub(in crate::storage) fn close(&self, shared: &Region, place: usize) {
        let mut all = self.maps.lock();
        let Some(maps) = all.get_mut(place) else { return };
        let closed = shared.set(region_at(place) + offset_of!(abi::RegisteredRegion, bytes), 0u64);
        match closed {
            Ok(()) => *maps = None,
            // Kernels can still translate addresses by this entry, so the memory must stay mapped.
            Err(error) => tracing::warn!(%error, "a registered region could not be removed; its memory stays mapped"),
        }
    }
}
