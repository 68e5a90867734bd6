//! Host memory for a device behind an IOMMU.

use super::pages::{HostPages, LARGE_PAGE};
use crate::memory::{DmaAccess, DmaError, DmaRegion, IommuMap, MemoryError, Region, Space};
use crate::nvme::DmaSpace;
use std::sync::Arc;

/// Allocates host pages and maps them, or maps existing memory.
#[derive(Debug)]
pub(super) struct VfioDma {
    map: Arc<dyn IommuMap>,
    device: String,
}

/// One mapping. It is removed with its last share, before the memory is freed.
#[derive(Debug)]
struct Mapping {
    map: Arc<dyn IommuMap>,
    iova: u64,
    bytes: u64,
    _region: Region,
}

impl Drop for Mapping {
    fn drop(&mut self) {
        match self.map.unmap(self.iova, self.bytes) {
            Ok(()) => self.map.free_iova(self.iova, self.bytes),
            // The device may still access the pages, which the kernel keeps pinned. The device
            // addresses are not used again.
            Err(e) => tracing::warn!(error = %e, "memory was not unmapped; its device addresses are not used again"),
        }
    }
}

impl VfioDma {
    pub(super) fn new(map: Arc<dyn IommuMap>, device: String) -> Self {
        Self { map, device }
    }

    fn map_region(&self, region: Region) -> Result<DmaRegion, DmaError> {
        let Some(host) = region.host() else {
            let reason = "it is GPU memory without a mapping for the processor; put queues in host memory and use bounce landing";
            return Err(DmaError::Unreachable { device: self.device.clone(), reason: reason.to_owned() });
        };
        let bytes = region.len() as u64;
        let align = if bytes >= LARGE_PAGE { LARGE_PAGE } else { self.map.page_bytes() };
        let iova = self.map.allocate_iova(bytes, align)?;
        // SAFETY: the region owns the memory, and the mapping keeps the region until it is unmapped.
        if let Err(e) = unsafe { self.map.map_host(host, bytes, iova, DmaAccess::ReadWrite) } {
            self.map.free_iova(iova, bytes);
            return Err(e.into());
        }
        let guard = Arc::new(Mapping { map: self.map.clone(), iova, bytes, _region: region.clone() });
        Ok(DmaRegion { bytes: region.len(), region, offset: 0, iova, remote: None, guard })
    }
}

impl DmaSpace for VfioDma {
    fn allocate(&self, space: &Space, bytes: usize) -> Result<DmaRegion, DmaError> {
        let page = self.map.page_bytes() as usize;
        let no_memory = |source| MemoryError::Host { bytes, source };
        let too_much = || no_memory(std::io::ErrorKind::OutOfMemory.into());
        let length = bytes.max(1).checked_next_multiple_of(page).ok_or_else(too_much)?;
        let align = if length as u64 >= LARGE_PAGE { LARGE_PAGE as usize } else { page };
        let pages = Arc::new(HostPages::new(length, align).map_err(no_memory)?);
        let base = pages.base();
        // SAFETY: the pages are valid while their owner lives, which the region keeps.
        let region = unsafe { space.import_host(base, length, false, pages) }?;
        self.map_region(region)
    }

    fn map(&self, region: &Region) -> Result<DmaRegion, DmaError> {
        self.map_region(region.clone())
    }

    fn iommu(&self) -> Option<Arc<dyn IommuMap>> {
        Some(self.map.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::super::addresses::Addresses;
    use super::*;
    use crate::memory::{IommuError, IommuKind, Place};
    use crate::pci::Bdf;
    use parking_lot::Mutex;
    use std::os::fd::BorrowedFd;
    use std::ptr::NonNull;

    /// An IOMMU that only records mappings.
    #[derive(Debug)]
    struct Fake {
        addresses: Addresses,
        mapped: Mutex<Vec<(u64, u64)>>,
        refuses: bool,
    }

    impl Fake {
        fn new(page: u64, refuses: bool) -> Arc<Self> {
            let addresses = Addresses::new(std::slice::from_ref(&(0..1 << 36)), page);
            Arc::new(Self { addresses, mapped: Mutex::default(), refuses })
        }
    }

    impl IommuMap for Fake {
        fn allocate_iova(&self, bytes: u64, align: u64) -> Result<u64, IommuError> {
            self.addresses.take("fake", bytes, align)
        }
        fn free_iova(&self, iova: u64, bytes: u64) {
            self.addresses.give_back(iova, bytes);
        }
        unsafe fn map_host(&self, host: NonNull<u8>, bytes: u64, iova: u64, _: DmaAccess) -> Result<(), IommuError> {
            self.addresses.check("fake", bytes, host.as_ptr() as u64)?;
            if self.refuses {
                return Err(IommuError::NoEntry { device: "fake".into(), limit: 0 });
            }
            self.mapped.lock().push((iova, bytes));
            Ok(())
        }
        fn map_dmabuf(&self, _: BorrowedFd<'_>, _: u64, _: u64, _: u64, _: DmaAccess) -> Result<(), IommuError> {
            unreachable!("not asked for")
        }
        fn unmap(&self, iova: u64, bytes: u64) -> Result<(), IommuError> {
            let mut mapped = self.mapped.lock();
            let at = mapped.iter().position(|m| *m == (iova, bytes)).expect("what was mapped");
            mapped.remove(at);
            Ok(())
        }
        fn page_bytes(&self) -> u64 {
            self.addresses.page()
        }
        fn kind(&self) -> IommuKind {
            IommuKind::Type1
        }
        fn bdf(&self) -> Bdf {
            "65:00.0".parse().unwrap()
        }
        fn name(&self) -> String {
            "fake".into()
        }
    }

    #[test]
    fn memory_is_mapped_in_whole_pages_and_unmapped_with_the_last_share() {
        for page in [4096u64, 65536] {
            let fake = Fake::new(page, false);
            let dma = VfioDma::new(fake.clone(), "fake".into());
            let a = dma.allocate(&Space::cpu(), 5000).unwrap();
            assert_eq!(a.bytes as u64, 5000u64.next_multiple_of(page));
            assert_eq!(a.region.get::<u64>(0).unwrap(), 0);
            let large = dma.allocate(&Space::cpu(), 3 << 20).unwrap();
            assert!(large.iova.is_multiple_of(LARGE_PAGE) && (large.address()).is_multiple_of(LARGE_PAGE));
            let share = a.clone();
            drop((a, large));
            assert_eq!(*fake.mapped.lock(), [(share.iova, share.bytes as u64)]);
            let again = share.iova;
            drop(share);
            assert!(fake.mapped.lock().is_empty());
            assert_eq!(dma.allocate(&Space::cpu(), 1).unwrap().iova, again);
        }
    }

    #[test]
    fn memory_that_is_there_is_mapped_while_the_mapping_lives() {
        let fake = Fake::new(4096, false);
        let dma = VfioDma::new(fake.clone(), "fake".into());
        let region = Space::cpu().allocate(Place::Device, 10_000).unwrap();
        let mapped = dma.map(&region).unwrap();
        let weak = region.downgrade();
        drop(region);
        assert_eq!(mapped.bytes, 12_288);
        drop(mapped);
        assert!(weak.upgrade().is_none() && fake.mapped.lock().is_empty());
    }

    #[test]
    fn a_failure_gives_the_addresses_back() {
        let dma = VfioDma::new(Fake::new(4096, true), "fake".into());
        for _ in 0..3 {
            let text = dma.allocate(&Space::cpu(), 1 << 20).unwrap_err().to_string();
            assert!(text.starts_with("fake: all 0 DMA mappings"), "{text}");
        }
        assert_eq!(dma.map.allocate_iova(4096, 1).unwrap(), 1 << 32);
    }
}
