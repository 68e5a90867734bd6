//! BAR 0, mapped into this process: registers as volatile loads and stores.

use super::device::{Region, VfioDevice};
use super::error::VfioError;
use std::io;
use std::ptr::NonNull;

/// One mapped part of a BAR.
#[derive(Debug)]
struct Area {
    base: NonNull<u8>,
    /// Offset within the BAR.
    start: u64,
    bytes: usize,
}

/// The mapped parts of a BAR. They are unmapped on drop, while the device is still open.
#[derive(Debug)]
pub(super) struct Bar {
    areas: Vec<Area>,
    region: Region,
}

// SAFETY: addresses of device memory; all accesses are volatile loads and stores.
unsafe impl Send for Bar {}
// SAFETY: volatile loads and stores of device memory may be made by several threads at the same time.
unsafe impl Sync for Bar {}

impl Bar {
    /// Maps the mappable parts of region `index`.
    pub(super) fn map(device: &VfioDevice, index: u32) -> Result<Self, VfioError> {
        let refused = |reason: String| VfioError::Registers { device: device.bdf().to_string(), reason };
        let region = device.region(index)?;
        if region.size == 0 {
            return Err(refused("the system gave it no addresses (see dmesg for `BAR 0: no space`)".to_owned()));
        }
        let fd = device.raw_fd().map_err(|e| refused(e.to_string()))?;
        let mut bar = Self { areas: Vec::new(), region };
        for &(start, size) in &bar.region.mappable {
            let too_large = || refused(format!("{size} bytes cannot be mapped"));
            let bytes = usize::try_from(size).map_err(|_| too_large())?;
            let offset = libc::off_t::try_from(bar.region.offset + start).map_err(|_| too_large())?;
            let protection = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: a new shared mapping of the device's file, at an address that the kernel chooses.
            let base = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, libc::MAP_SHARED, fd, offset) };
            let base = match NonNull::new(base.cast::<u8>()) {
                Some(p) if base != libc::MAP_FAILED => p,
                _ => return Err(refused(format!("mapping it: {}", io::Error::last_os_error()))),
            };
            // A child process must neither write doorbells nor keep the device open.
            // SAFETY: the mapping made above.
            unsafe { libc::madvise(base.as_ptr().cast(), bytes, libc::MADV_DONTFORK) };
            bar.areas.push(Area { base, start, bytes });
        }
        Ok(bar)
    }

    /// Returns the size of the whole BAR in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.region.size
    }

    /// Returns the host address of `length` bytes at `offset`, if they are mapped.
    fn at(&self, offset: u64, length: usize) -> Option<NonNull<u8>> {
        let area = self.areas.iter().find(|a| {
            offset >= a.start && (offset - a.start).checked_add(length as u64).is_some_and(|end| end <= a.bytes as u64)
        })?;
        // SAFETY: within the mapping, as the search has checked.
        Some(unsafe { area.base.add((offset - area.start) as usize) })
    }

    /// Returns the host address of `offset`, and the number of mapped bytes from there to the end of their part.
    pub(super) fn window(&self, offset: u64) -> Option<(NonNull<u8>, usize)> {
        let base = self.at(offset, 1)?;
        let area = self.areas.iter().find(|a| offset >= a.start && offset - a.start < a.bytes as u64)?;
        Some((base, area.bytes - (offset - area.start) as usize))
    }

    /// Reads 32 bits at a multiple of four.
    pub(super) fn read32(&self, device: &VfioDevice, offset: u32) -> io::Result<u32> {
        if let Some(p) = self.at(offset.into(), 4) {
            // SAFETY: mapped, and aligned: mappings start at pages, and registers are accessed
            // at multiples of their size.
            return Ok(u32::from_le(unsafe { p.cast::<u32>().read_volatile() }));
        }
        let mut bytes = [0; 4];
        self.check(offset, 4)?;
        device.read_at(self.region.offset + u64::from(offset), &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// Reads 64 bits at a multiple of eight, in one access if they are mapped.
    pub(super) fn read64(&self, device: &VfioDevice, offset: u32) -> io::Result<u64> {
        if let Some(p) = self.at(offset.into(), 8) {
            // SAFETY: mapped, and aligned: mappings start at pages, and registers are accessed at multiples of their
            // size.
            return Ok(u64::from_le(unsafe { p.cast::<u64>().read_volatile() }));
        }
        Ok(u64::from(self.read32(device, offset)?) | u64::from(self.read32(device, offset + 4)?) << 32)
    }

    /// Writes 32 bits at a multiple of four.
    pub(super) fn write32(&self, device: &VfioDevice, offset: u32, value: u32) -> io::Result<()> {
        if let Some(p) = self.at(offset.into(), 4) {
            // SAFETY: mapped, and aligned: mappings start at pages, and registers are accessed at multiples of their
            // size.
            unsafe { p.cast::<u32>().write_volatile(value.to_le()) };
            return Ok(());
        }
        self.check(offset, 4)?;
        device.write_at(self.region.offset + u64::from(offset), &value.to_le_bytes())
    }

    /// Writes 64 bits at a multiple of eight, in one access if they are mapped.
    pub(super) fn write64(&self, device: &VfioDevice, offset: u32, value: u64) -> io::Result<()> {
        if let Some(p) = self.at(offset.into(), 8) {
            // SAFETY: mapped, and aligned: mappings start at pages, and registers are accessed at multiples of their
            // size.
            unsafe { p.cast::<u64>().write_volatile(value.to_le()) };
            return Ok(());
        }
        self.write32(device, offset, value as u32)?;
        self.write32(device, offset + 4, (value >> 32) as u32)
    }

    fn check(&self, offset: u32, length: u64) -> io::Result<()> {
        if u64::from(offset) + length > self.region.size {
            let reason = format!("offset {offset:#x} lies outside of BAR 0, which has {:#x} bytes", self.region.size);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        Ok(())
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        for area in &self.areas {
            // SAFETY: mapped in `map` with this length, and no address in it outlives the BAR.
            unsafe { libc::munmap(area.base.as_ptr().cast(), area.bytes) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(parts: &mut [(u64, Box<[u64]>)], size: u64) -> std::mem::ManuallyDrop<Bar> {
        let areas = parts
            .iter_mut()
            .map(|(start, m)| Area { base: NonNull::from(&mut m[0]).cast(), start: *start, bytes: m.len() * 8 })
            .collect();
        // Heap memory instead of mappings: it must not be unmapped.
        std::mem::ManuallyDrop::new(Bar { areas, region: Region { offset: 0, size, mappable: Vec::new() } })
    }

    #[test]
    fn offsets_find_their_part() {
        let mut parts = [(0, vec![0; 512].into_boxed_slice()), (0x3000, vec![0; 512].into_boxed_slice())];
        let b = bar(&mut parts, 0x4000);
        assert!(b.at(0xffc, 4).is_some() && b.at(0xffd, 4).is_none() && b.at(0x2000, 4).is_none());
        assert_eq!(b.at(0x3008, 8).unwrap().as_ptr() as usize, b.areas[1].base.as_ptr() as usize + 8);
        assert_eq!(b.window(0x3100).unwrap().1, 0xf00);
        assert!(b.window(0x1000).is_none() && b.at(u64::MAX, 4).is_none());
        assert!(b.check(0x3ffc, 4).is_ok() && b.check(0x3ffe, 4).is_err());
    }
}
