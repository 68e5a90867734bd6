//! Allocator of device addresses in one IOMMU address space.

use crate::memory::{FirstFit, IommuError};
use parking_lot::{Mutex, MutexGuard};
use std::ops::Range;

/// Addresses from here on are preferred. Below 4 GiB lie the windows of 32-bit BARs: a switch without ACS routes an
/// access to such an address to a neighbouring device instead of the IOMMU.
const PREFERRED: u64 = 1 << 32;
/// Smallest address to allocate. Address 0 is never allocated, so that it always indicates an error.
const LEAST: u64 = 1 << 16;

/// Allocates device addresses.
#[derive(Debug)]
pub(super) struct Addresses {
    free: Mutex<FirstFit>,
    page: u64,
}

impl Addresses {
    /// Creates an allocator for the ranges that the IOMMU translates, in pages of `page` bytes (a power of two).
    pub(super) fn new(ranges: &[Range<u64>], page: u64) -> Self {
        let whole = ranges.iter().map(|r| {
            let start = r.start.max(LEAST).checked_next_multiple_of(page).unwrap_or(u64::MAX);
            start..(r.end / page * page).max(start)
        });
        Self { free: Mutex::new(FirstFit::new(whole)), page }
    }

    fn free(&self) -> MutexGuard<'_, FirstFit> {
        self.free.lock()
    }

    /// Returns the page size in bytes.
    pub(super) fn page(&self) -> u64 {
        self.page
    }

    /// Takes `bytes` bytes, whole pages, at a multiple of `align`. Prefers addresses from 4 GiB on.
    pub(super) fn take(&self, device: &str, bytes: u64, align: u64) -> Result<u64, IommuError> {
        self.check(device, bytes, 0)?;
        let align = align.max(self.page);
        let mut free = self.free();
        let found = free.take_from(PREFERRED, bytes, align).or_else(|| free.take(bytes, align));
        found.ok_or_else(|| IommuError::NoAddress { device: device.to_owned(), bytes, free: free.free_bytes() })
    }

    /// Frees addresses that `take` returned.
    pub(super) fn give_back(&self, iova: u64, bytes: u64) {
        self.free().give_back(iova, bytes);
    }

    /// Fails unless length and address are whole pages.
    pub(super) fn check(&self, device: &str, bytes: u64, address: u64) -> Result<(), IommuError> {
        if bytes == 0 || !bytes.is_multiple_of(self.page) || !address.is_multiple_of(self.page) {
            return Err(IommuError::Unaligned { device: device.to_owned(), address, bytes, page: self.page });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_message_window_is_left_out_and_high_addresses_come_first() {
        let a = Addresses::new(&[0..0xfee0_0000, 0xfef0_0000..1 << 39], 4096);
        assert_eq!(a.take("d", 4096, 1).unwrap(), 1 << 32);
        assert_eq!(a.take("d", 4 << 20, 2 << 20).unwrap(), (1 << 32) + (2 << 20));
        // Everything above the preferred limit, then below it.
        let rest = (1u64 << 39) - (1 << 32) - (6 << 20);
        assert_eq!(a.take("d", rest, 1).unwrap(), (1 << 32) + (6 << 20));
        a.give_back(1 << 32, 4096);
        assert_eq!(a.take("d", 4 << 20, 4096).unwrap(), LEAST);
        assert_eq!(a.take("d", 4096, 1).unwrap(), 1 << 32);
    }

    #[test]
    fn pages_and_exhaustion_are_told() {
        let a = Addresses::new(std::slice::from_ref(&(0..1 << 20)), 4096);
        let text = a.take("0000:65:00.0", 100, 1).unwrap_err().to_string();
        assert_eq!(text, "0000:65:00.0: 100 bytes at 0x0 are not whole IOMMU pages of 4096 bytes");
        let text = a.take("0000:65:00.0", 1 << 20, 1).unwrap_err().to_string();
        assert!(text.contains("no 1048576 consecutive device addresses left (983040 free)"), "{text}");
        assert!(a.check("d", 8192, 0x1000).is_ok() && a.check("d", 0, 0).is_err() && a.check("d", 4096, 8).is_err());
    }

    proptest! {
        #[test]
        fn addresses_lie_in_a_range_on_whole_pages_and_never_overlap(
            starts in prop::collection::vec(0u64..1 << 34, 1..4),
            sizes in prop::collection::vec((1u64..600, 12u32..22), 1..60),
            page in prop::sample::select(vec![4096u64, 65536]),
        ) {
            let mut ranges: Vec<Range<u64>> = Vec::new();
            let mut sorted = starts;
            sorted.sort();
            for s in sorted {
                let s = s.max(ranges.last().map_or(0, |r| r.end));
                ranges.push(s..s + (300 << 12) + 77);
            }
            let a = Addresses::new(&ranges, page);
            let mut held: Vec<(u64, u64)> = Vec::new();
            for (pages, align) in sizes {
                let bytes = pages * page;
                let Ok(at) = a.take("d", bytes, 1 << align) else { continue };
                // The allocator merges ranges that touch, so only the ends are compared with them.
                prop_assert!(ranges.iter().any(|r| r.contains(&at)) && ranges.iter().any(|r| r.contains(&(at + bytes - 1))));
                prop_assert!(at >= LEAST && at % page == 0 && at % (1 << align) == 0);
                prop_assert!(held.iter().all(|(s, l)| at + bytes <= *s || s + l <= at));
                held.push((at, bytes));
            }
        }
    }
}
