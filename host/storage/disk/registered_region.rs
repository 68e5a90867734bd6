//! Registered regions: memory that the devices of a volume address directly.

use super::Disk;
use super::path::{LandingPath, WritesOrder};
use crate::engine::{Args, KernelArg};
use crate::memory::{DmaError, DmaRegion, Place, Region, RemoteMemory, Space};
use crate::storage::error::StorageError;
use std::sync::Arc;

/// Memory that kernels may name in transfers with direct landing. Dropping it removes the mapping; no kernel may use
/// the memory by then.
pub struct RegisteredRegion {
    disk: Arc<Disk>,
    place: usize,
    region: Region,
}

impl RegisteredRegion {
    /// Returns the memory.
    pub fn region(&self) -> &Region {
        &self.region
    }
}

impl std::fmt::Debug for RegisteredRegion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RegisteredRegion({} on {:?})", self.place, self.region)
    }
}

impl Drop for RegisteredRegion {
    fn drop(&mut self) {
        // A kernel that does not end may still have commands in flight to this memory.
        if !self.disk.engine().space().is_poisoned() {
            self.disk.registered_regions.close(&self.disk.shared, self.place);
        }
    }
}

/// Memory for the data of kernels' reads and writes, on any data path of the volume. Kernels get the address of its
/// first byte.
#[derive(Debug)]
pub struct DataBuffer {
    region: Region,
    offset: usize,
    bytes: usize,
    /// Registration with the devices; dropping it removes the mapping.
    window: Option<Arc<RegisteredRegion>>,
}

impl DataBuffer {
    /// Returns the address of the first byte, as kernels see it.
    pub fn address(&self) -> u64 {
        self.region.address() + self.offset as u64
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Returns true if the memory is registered with the devices of this volume.
    pub(in crate::storage) fn is_mapped_for(&self, disk: &Arc<Disk>) -> bool {
        self.window.as_ref().is_some_and(|window| Arc::ptr_eq(&window.disk, disk))
    }

    /// Keeps the memory and its registration until a kernel has ended.
    pub(in crate::storage) fn keep(&self, args: &mut Args) {
        args.keep(self.region.owner());
        if let Some(window) = &self.window {
            args.keep(window.clone());
        }
    }

    /// Returns the memory of the buffer.
    pub(in crate::storage) fn region(&self) -> &Region {
        &self.region
    }

    /// Returns the address space of the memory.
    pub(in crate::storage) fn space(&self) -> &Space {
        self.region.space()
    }

    /// Returns false: buffers are never empty.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Copies bytes from byte `offset` of the buffer to `out`.
    ///
    /// # Errors
    /// [`StorageError::Memory`] if the range is not within the buffer, or the copy fails.
    pub fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), StorageError> {
        self.check(offset, out.len())?;
        Ok(self.region.read(self.offset + offset, out)?)
    }

    /// Copies `data` to byte `offset` of the buffer.
    ///
    /// # Errors
    /// [`StorageError::Memory`] if the range is not within the buffer, or the copy fails.
    pub fn write(&self, offset: usize, data: &[u8]) -> Result<(), StorageError> {
        self.check(offset, data.len())?;
        Ok(self.region.write(self.offset + offset, data)?)
    }

    /// Sets `bytes` bytes from byte `offset` on to `value`.
    ///
    /// # Errors
    /// [`StorageError::Memory`] if the range is not within the buffer, or the operation fails.
    pub fn fill(&self, offset: usize, bytes: usize, value: u8) -> Result<(), StorageError> {
        self.check(offset, bytes)?;
        Ok(self.region.fill(self.offset + offset, bytes, value)?)
    }

    /// Returns `count` values from byte `offset` on.
    ///
    /// # Errors
    /// [`StorageError::Memory`] if the range is not within the buffer, or the copy fails.
    pub fn get_slice<T: bytemuck::Pod>(&self, offset: usize, count: usize) -> Result<Vec<T>, StorageError> {
        self.check(offset, count.saturating_mul(size_of::<T>()))?;
        Ok(self.region.get_slice(self.offset + offset, count)?)
    }

    fn check(&self, offset: usize, bytes: usize) -> Result<(), StorageError> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.bytes => Ok(()),
            _ => Err(crate::memory::MemoryError::OutOfBounds { offset, bytes, len: self.bytes }.into()),
        }
    }
}

impl KernelArg for DataBuffer {
    fn push(&self, args: &mut Args) {
        args.push_value(self.address());
        self.keep(args);
    }
}

impl Disk {
    /// Maps existing memory for the volume's devices, so that kernels can name it in transfers. With bounce landing no
    /// mapping is needed, and the result is only a token.
    pub(in crate::storage) fn map(self: &Arc<Self>, region: &Region) -> Result<RegisteredRegion, StorageError> {
        let maps = match self.path.landing {
            LandingPath::Bounce => Vec::new(),
            LandingPath::Direct => {
                self.check_order(region.place(), region.len())?;
                self.map_for_each(region)?
            }
        };
        self.register_region(region.clone(), maps)
    }

    /// Makes existing memory a buffer for transfers: maps it as [`Disk::map`] does, and keeps it and the mapping. For
    /// memory of the program ([`Space::import_device`]).
    pub(in crate::storage) fn map_data(self: &Arc<Self>, region: &Region) -> Result<DataBuffer, StorageError> {
        let window = match self.path.landing {
            LandingPath::Bounce => None,
            LandingPath::Direct => Some(Arc::new(self.map(region)?)),
        };
        Ok(DataBuffer { region: region.clone(), offset: 0, bytes: region.len(), window })
    }

    /// Returns an error if data in this memory could be visible only after its completion.
    fn check_order(&self, place: Place, bytes: usize) -> Result<(), StorageError> {
        if keeps_order(self.path.order, place) {
            return Ok(());
        }
        Err(StorageError::Option(format!(
            "{bytes} bytes of host memory cannot be mapped: completions of this volume land in GPU memory, and one could arrive \
             before its data; map memory of the GPU, or build the volume with bounce landing"
        )))
    }

    fn map_for_each(&self, region: &Region) -> Result<Vec<DmaRegion>, StorageError> {
        self.drives.iter().map(|d| Ok(d.lock().controller().map_memory(region)?)).collect()
    }

    /// Allocates zeroed memory that kernels of this volume can read into and write from.
    pub(in crate::storage) fn allocate_data(self: &Arc<Self>, bytes: usize) -> Result<DataBuffer, StorageError> {
        if self.path.landing == LandingPath::Bounce {
            return self.allocate_unmapped(bytes);
        }
        self.check_order(Place::Device, bytes)?;
        let (region, offset, maps) = self.allocate_reachable(bytes)?;
        let window = self.register_region(region.clone(), maps)?;
        Ok(DataBuffer { region, offset, bytes, window: Some(Arc::new(window)) })
    }

    /// Allocates zeroed memory that all devices reach. Returns it, its first byte that may be used, and the mappings.
    fn allocate_reachable(&self, bytes: usize) -> Result<(Region, usize, Vec<DmaRegion>), StorageError> {
        let region = self.engine().allocate(Place::Device, bytes)?;
        match self.map_for_each(&region) {
            Ok(maps) => Ok((region, 0, maps)),
            // A device that only reaches memory of its own kind (consecutive physical pages) allocates some. The other
            // devices must reach that memory, too.
            Err(StorageError::Dma(DmaError::Unreachable { .. })) => {
                drop(region);
                let own = self.drives[0].lock().controller().dma().allocate(self.engine().space(), bytes)?;
                let (region, offset) = (own.region.clone(), own.offset);
                let mut maps = vec![own];
                for drive in &self.drives[1..] {
                    let whole = drive.lock().controller().map_memory(&region)?;
                    let iova = whole.iova + offset as u64;
                    let remote = whole.remote.map(|r| RemoteMemory { address: r.address + offset as u64, ..r });
                    maps.push(DmaRegion { offset, bytes: maps[0].bytes, iova, remote, ..whole });
                }
                Ok((region, offset, maps))
            }
            Err(e) => Err(e),
        }
    }

    /// Allocates zeroed memory that devices with direct landing do not reach.
    pub(in crate::storage) fn allocate_unmapped(&self, bytes: usize) -> Result<DataBuffer, StorageError> {
        let region = self.engine().allocate(Place::Device, bytes)?;
        Ok(DataBuffer { region, offset: 0, bytes, window: None })
    }

    fn register_region(
        self: &Arc<Self>,
        region: Region,
        maps: Vec<DmaRegion>,
    ) -> Result<RegisteredRegion, StorageError> {
        let place = self.enter_region(maps)?;
        Ok(RegisteredRegion { disk: self.clone(), place, region })
    }
}

/// Returns true if data in this memory is visible before its completion. The order depends on the memory of the
/// completions, and a bus keeps the order of a device's writes to one memory only.
fn keeps_order(order: WritesOrder, data: Place) -> bool {
    use WritesOrder::{GpuAll, GpuOwner, HostMemory, Processor};
    matches!((order, data), (Processor, _) | (HostMemory, Place::Host) | (GpuOwner | GpuAll, Place::Device))
}

impl Disk {
    /// Takes a free entry. Kernels may be running.
    fn enter_region(&self, maps: Vec<DmaRegion>) -> Result<usize, StorageError> {
        let by_capsules = |device: usize| self.sets[device].lock().by_capsules();
        self.registered_regions.enter(&self.shared, maps, by_capsules)
    }

    /// Returns the address by which a device reaches a byte of a mapped buffer.
    pub(in crate::storage) fn device_address(
        &self,
        buffer: &DataBuffer,
        device: usize,
        address: u64,
    ) -> Result<u64, StorageError> {
        let place = buffer.window.as_ref().map_or(usize::MAX, |window| window.place);
        let found = self.registered_regions.device_address(place, device, address);
        let none = || StorageError::Option(format!("device {device} of the volume does not reach the buffer"));
        found.ok_or_else(none)
    }

    /// Arranges that the mark `bytes` is written to `block` before the next write, if `pending`. The devices reach its
    /// memory like a registered region. The memory stays allocated as long as the volume.
    pub(in crate::storage) fn arm(&self, bytes: &[u8], block: u64, pending: bool) -> Result<(), StorageError> {
        let mut memory = self.mark.lock();
        if memory.is_none() {
            let (region, offset) = if self.path.landing == LandingPath::Direct {
                let (region, offset, maps) = self.allocate_reachable(bytes.len())?;
                self.enter_region(maps)?;
                (region, offset)
            } else {
                (self.engine.allocate(Place::Device, bytes.len())?, 0)
            };
            self.integrity.set_mark(region.address() + offset as u64, block)?;
            *memory = Some((region, offset));
        }
        if let Some((region, offset)) = memory.as_ref() {
            region.write(*offset, bytes)?;
        }
        Ok(self.integrity.set_pending(pending)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::{Engine, abi};
    use crate::storage::{Drive, LandingChoice, Volume};

    fn volume(landing: LandingChoice) -> Volume {
        let drives = [Drive::open("soft:mem:64k").unwrap(), Drive::open("soft:mem:64k").unwrap()];
        Volume::on(&Engine::cpu().unwrap(), drives).chunk(4096).landing(landing).build().unwrap()
    }

    fn registered_regions(v: &Volume) -> Vec<(u64, u64)> {
        let shared: abi::Volume = v.disk().shared.get(0).unwrap();
        shared.window[..shared.registered_region_count as usize].iter().map(|w| (w.base, w.bytes)).collect()
    }

    #[test]
    fn data_is_where_its_completion_is() {
        use WritesOrder as O;
        let keeps = |place| [O::Processor, O::HostMemory, O::GpuOwner, O::GpuAll].map(|o| keeps_order(o, place));
        assert_eq!(keeps(Place::Host), [true, true, false, false]);
        assert_eq!(keeps(Place::Device), [true, false, true, true]);
    }

    #[test]
    fn registered_regions_are_entered_and_keep_their_places() {
        let v = volume(LandingChoice::Direct);
        let a = v.allocate_data(5000).unwrap();
        let b = v.allocate_data(100).unwrap();
        assert_eq!(registered_regions(&v), [(a.address(), 8192), (b.address(), 4096)]);
        let there = b.address();
        drop(a);
        assert_eq!(registered_regions(&v)[1], (there, 4096));
        assert_eq!(registered_regions(&v)[0].1, 0);
        let c = v.allocate_data(1).unwrap();
        assert_eq!(registered_regions(&v)[0], (c.address(), 4096));
    }

    #[test]
    fn there_is_a_limit() {
        let v = volume(LandingChoice::Direct);
        let all: Vec<_> = (0..abi::MAX_REGISTERED_REGIONS).map(|_| v.allocate_data(1).unwrap()).collect();
        assert!(v.allocate_data(1).unwrap_err().to_string().contains("16 registered regions"));
        drop(all);
        assert!(v.allocate_data(1).is_ok());
    }

    #[test]
    fn bounce_needs_no_registered_regions() {
        let v = volume(LandingChoice::Bounce);
        let a = v.allocate_data(100).unwrap();
        a.write(10, b"hello").unwrap();
        let mut back = [0; 5];
        a.read(10, &mut back).unwrap();
        assert_eq!(&back, b"hello");
        assert!(a.write(98, b"xyz").is_err());
        assert!(registered_regions(&v).is_empty());
    }

    #[test]
    fn the_mark_is_in_memory_that_the_device_reaches() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.img");
        std::fs::File::create(&path).unwrap().set_len(1 << 20).unwrap();
        // QEMU's controller reaches memory of its own alone.
        let drive = match Drive::open(&format!("qtest:{},ram=64M", path.display())) {
            Ok(drive) => drive,
            Err(e) => return assert!(e.to_string().contains("qemu-system-x86"), "{e}"),
        };
        let v = Volume::on(&Engine::cpu().unwrap(), [drive]).build().unwrap();
        assert_eq!(v.path().landing, LandingPath::Direct);
        v.store_array("a", &[1u64; 1000]).unwrap();
        assert!(v.disk().integrity.is_pending().unwrap(), "no mark precedes the next write");
    }
}
