//! Regions: memory that kernels or devices may write at any time. No Rust reference to it exists, only copies.

use super::{MemoryError, Place, Space, copy};
use crate::cuda;
use bytemuck::Pod;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::any::Any;
use std::fmt;
use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

const ALIGN: usize = 4096;

/// A range of memory that is accessed by copy. Cheap to clone.
///
/// Kernels and devices may write to a region during a copy. The copy may then mix old and new bytes, but aligned words
/// of 4 and 8 bytes are never torn. The memory is freed with the last clone. A [`Run`](crate::engine::Run) holds a
/// clone of each region that its kernel uses.
///
/// # Examples
///
/// ```
/// use warpbell::engine::Engine;
/// use warpbell::memory::Place;
///
/// let engine = Engine::cpu()?;
/// let region = engine.allocate(Place::Host, 4096)?;
/// region.set_slice(0, &[1u32, 2, 3])?;
/// region.fill(2048, 2048, 0xff)?;
/// assert_eq!(region.get_slice::<u32>(4, 2)?, [2, 3]);
/// assert_eq!(region.get::<u8>(4095)?, 0xff);
/// // A range outside of the region is an error, and nothing is copied.
/// assert!(region.get::<u64>(4090).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Region(Arc<Memory>);

/// A weak handle of a region: it does not keep the memory.
#[derive(Clone, Debug)]
pub(crate) struct WeakRegion(Weak<Memory>);

impl WeakRegion {
    /// Returns the region, or `None` if its memory was freed.
    pub(crate) fn upgrade(&self) -> Option<Region> {
        self.0.upgrade().map(Region)
    }
}

struct Memory {
    space: Space,
    place: Place,
    address: u64,
    view: View,
    bytes: usize,
    owner: Owner,
}

/// Host's access to the bytes.
enum View {
    /// Directly, at this host address.
    Host(NonNull<u8>),
    /// By copies through this GPU context.
    Gpu(Arc<cuda::Context>),
}

enum Owner {
    Heap(Layout),
    Gpu {
        _memory: cuda::DeviceMemory,
    },
    Pinned {
        _memory: cuda::PinnedMemory,
    },
    Imported {
        _registered: Option<cuda::RegisteredMemory>,
        _keep: Arc<dyn Any + Send + Sync>,
    },
    ImportedDevice {
        access: cuda::DeviceAccess,
        _keep: Arc<dyn Any + Send + Sync>,
    },
    /// The memory is a part of another region's.
    Part(Region),
    /// Leaked on purpose: a kernel that did not end may still use the memory.
    Leaked,
}

// SAFETY: addresses and their owner; all access is by atomic copies, and the owners may be dropped on any thread.
unsafe impl Send for Memory {}
// SAFETY: atomic copies may run concurrently with each other and with kernels, and owners may be dropped on any thread.
unsafe impl Sync for Memory {}

impl Region {
    pub(super) fn allocate(space: &Space, place: Place, bytes: usize) -> Result<Self, MemoryError> {
        let page = if space.gpu_context().is_some() && place == Place::Device { cuda::GPU_PAGE } else { ALIGN };
        let bytes = bytes.max(1).checked_next_multiple_of(page);
        let bytes = bytes
            .ok_or_else(|| MemoryError::Host { bytes: usize::MAX, source: std::io::ErrorKind::OutOfMemory.into() })?;
        let (address, view, owner) = match (space.gpu_context(), place) {
            (None, _) => {
                let layout = Layout::from_size_align(bytes, ALIGN)
                    .map_err(|_| MemoryError::Host { bytes, source: std::io::ErrorKind::OutOfMemory.into() })?;
                // SAFETY: the layout's size is not zero.
                let p = unsafe { alloc_zeroed(layout) };
                let p = NonNull::new(p)
                    .ok_or_else(|| MemoryError::Host { bytes, source: std::io::ErrorKind::OutOfMemory.into() })?;
                (p.as_ptr() as u64, View::Host(p), Owner::Heap(layout))
            }
            (Some(context), Place::Device) => {
                let m = cuda::DeviceMemory::zeroed(context, bytes).map_err(|source| MemoryError::Cuda {
                    what: "GPU memory",
                    bytes,
                    source,
                })?;
                (m.address(), View::Gpu(context.clone()), Owner::Gpu { _memory: m })
            }
            (Some(context), Place::Host) => {
                let m = cuda::PinnedMemory::zeroed(context, bytes).map_err(|source| MemoryError::Cuda {
                    what: "pinned host memory",
                    bytes,
                    source,
                })?;
                (m.address(), View::Host(m.host()), Owner::Pinned { _memory: m })
            }
        };
        Ok(Self(Arc::new(Memory { space: space.clone(), place, address, view, bytes, owner })))
    }

    /// # Safety
    /// As [`Space::import_host`].
    pub(super) unsafe fn import_host(
        space: &Space,
        base: NonNull<u8>,
        bytes: usize,
        io_memory: bool,
        keep: Arc<dyn Any + Send + Sync>,
    ) -> Result<Self, MemoryError> {
        let (address, registered) = match space.gpu_context() {
            None => (base.as_ptr() as u64, None),
            Some(context) => {
                // SAFETY: the caller promises that the range stays valid while `keep` lives, and `keep` outlives it here.
                let r = unsafe { cuda::RegisteredMemory::new(context, base, bytes, io_memory, keep.clone()) }
                    .map_err(|source| MemoryError::Cuda { what: "mapping host memory into the GPU", bytes, source })?;
                (r.address(), Some(r))
            }
        };
        let owner = Owner::Imported { _registered: registered, _keep: keep };
        Ok(Self(Arc::new(Memory {
            space: space.clone(),
            place: Place::Host,
            address,
            view: View::Host(base),
            bytes,
            owner,
        })))
    }

    /// # Safety
    /// As [`Space::import_exported`].
    pub(super) unsafe fn import_exported(
        space: &Space,
        base: NonNull<u8>,
        bytes: usize,
        dma_buf: OwnedFd,
        keep: Arc<dyn Any + Send + Sync>,
    ) -> Result<Self, MemoryError> {
        let Some(context) = space.gpu_context() else {
            // SAFETY: the caller makes the same promise.
            return unsafe { Self::import_host(space, base, bytes, true, keep) };
        };
        let external = cuda::ExternalMemory::import(context, dma_buf, bytes, keep)
            .map_err(|source| MemoryError::Cuda { what: "mapping a dma-buf into the GPU", bytes, source })?;
        let address = external.address();
        let owner = Owner::Imported { _registered: None, _keep: Arc::new(external) };
        let (space, place, view) = (space.clone(), Place::Host, View::Host(base));
        Ok(Self(Arc::new(Memory { space, place, address, view, bytes, owner })))
    }

    /// # Safety
    /// As [`Space::import_device`].
    pub(super) unsafe fn import_device(
        space: &Space,
        pointer: u64,
        bytes: usize,
        keep: Arc<dyn Any + Send + Sync>,
    ) -> Result<Self, MemoryError> {
        let refuse = |reason| MemoryError::NotImportable { pointer, bytes, reason };
        let (view, access) = match space.gpu_context() {
            None => {
                let base = NonNull::new(pointer as *mut u8)
                    .filter(|_| bytes > 0 && pointer.checked_add(bytes as u64).is_some());
                let base =
                    base.ok_or_else(|| refuse("a range has an address other than 0 and at least one byte".to_owned()))?;
                (View::Host(base), cuda::DeviceAccess::Allowed)
            }
            Some(context) => {
                let examined = context.examine(pointer, bytes).map_err(|source| MemoryError::Cuda {
                    what: "importing GPU memory",
                    bytes,
                    source,
                })?;
                (View::Gpu(context.clone()), examined.map_err(refuse)?)
            }
        };
        let owner = Owner::ImportedDevice { access, _keep: keep };
        let (space, place) = (space.clone(), Place::Device);
        Ok(Self(Arc::new(Memory { space, place, address: pointer, view, bytes, owner })))
    }

    /// Returns the address of the first byte for kernels.
    pub fn address(&self) -> u64 {
        self.0.address
    }

    /// Checks that storage controllers and RDMA adapters can be given access to the memory. Only imported GPU memory may
    /// be of a kind for which they cannot ([`Space::import_device`]).
    ///
    /// # Errors
    /// [`MemoryError::NotReachable`] with the reason.
    pub fn reaches_devices(&self) -> Result<(), MemoryError> {
        match &self.0.owner {
            &Owner::ImportedDevice { access: cuda::DeviceAccess::Refused { cause, next }, .. } => {
                let (pointer, bytes) = (self.0.address, self.0.bytes);
                Err(MemoryError::NotReachable { pointer, bytes, cause, next })
            }
            Owner::Part(whole) => whole.reaches_devices(),
            _ => Ok(()),
        }
    }

    /// Returns the host address of the first byte, or `None` for GPU memory.
    pub fn host(&self) -> Option<NonNull<u8>> {
        match self.0.view {
            View::Host(p) => Some(p),
            View::Gpu(_) => None,
        }
    }

    /// Returns `bytes` bytes from byte `offset` on as a region of its own, which keeps the memory of this one.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`] if the range does not lie within the region.
    pub(crate) fn part(&self, offset: usize, bytes: usize) -> Result<Region, MemoryError> {
        self.check(offset, bytes)?;
        let view = match &self.0.view {
            // SAFETY: in bounds.
            View::Host(p) => View::Host(unsafe { p.add(offset) }),
            View::Gpu(context) => View::Gpu(context.clone()),
        };
        let (space, place) = (self.0.space.clone(), self.0.place);
        let (address, owner) = (self.0.address + offset as u64, Owner::Part(self.clone()));
        Ok(Self(Arc::new(Memory { space, place, address, view, bytes, owner })))
    }

    /// Returns a share of the memory for code that only keeps it alive.
    pub(crate) fn owner(&self) -> Arc<dyn Any + Send + Sync> {
        self.0.clone()
    }

    /// Returns a handle that does not keep the memory.
    pub(crate) fn downgrade(&self) -> WeakRegion {
        WeakRegion(Arc::downgrade(&self.0))
    }

    /// Returns true if no clone of the region exists, so that nobody else can access the memory from now on.
    pub(crate) fn is_unique(&mut self) -> bool {
        // Other than a count, this also orders accesses through dropped clones before those that follow.
        Arc::get_mut(&mut self.0).is_some()
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.0.bytes
    }

    /// Returns false: regions are never empty.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Returns the kind of memory that the region is in.
    pub fn place(&self) -> Place {
        self.0.place
    }

    /// Returns the address space that the region belongs to.
    pub fn space(&self) -> &Space {
        &self.0.space
    }

    /// Exports the whole region as a dma-buf. Only GPU memory has one.
    ///
    /// # Errors
    /// - [`MemoryError::NoDmaBuf`] if the region is host memory.
    /// - [`MemoryError::NotReachable`] if the region is imported memory that devices do not reach.
    /// - [`MemoryError::Cuda`] if the GPU driver fails to export it.
    pub fn export_dma_buf(&self) -> Result<OwnedFd, MemoryError> {
        self.reaches_devices()?;
        let (what, bytes) = ("exporting a dma-buf", self.0.bytes);
        match &self.0.view {
            View::Gpu(context) => context.export_dma_buf(self.0.address, bytes).map_err(|source| MemoryError::Cuda {
                what,
                bytes,
                source,
            }),
            View::Host(_) => Err(MemoryError::NoDmaBuf { bytes }),
        }
    }

    pub(super) fn check(&self, offset: usize, bytes: usize) -> Result<(), MemoryError> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.0.bytes => Ok(()),
            _ => Err(MemoryError::OutOfBounds { offset, bytes, len: self.0.bytes }),
        }
    }

    /// Copies bytes from byte `offset` of the region into `out`.
    ///
    /// # Errors
    /// - [`MemoryError::OutOfBounds`] if the range does not lie within the region.
    /// - [`MemoryError::Cuda`] if the region is GPU memory and the copy fails.
    pub fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), MemoryError> {
        self.check(offset, out.len())?;
        match &self.0.view {
            // SAFETY: in bounds, and `out` is a separate allocation.
            View::Host(p) => unsafe { copy::load(out.as_mut_ptr(), p.as_ptr().add(offset), out.len()) },
            View::Gpu(context) => {
                let bytes = out.len();
                context.copy_to_host(self.0.address + offset as u64, out).map_err(|source| MemoryError::Cuda {
                    what: "copying from the GPU",
                    bytes,
                    source,
                })?;
            }
        }
        Ok(())
    }

    /// Copies `data` to byte `offset` of the region.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn write(&self, offset: usize, data: &[u8]) -> Result<(), MemoryError> {
        self.check(offset, data.len())?;
        match &self.0.view {
            // SAFETY: in bounds, and `data` is a separate allocation.
            View::Host(p) => unsafe { copy::store(p.as_ptr().add(offset), data.as_ptr(), data.len()) },
            View::Gpu(context) => context
                .copy_to_device(self.0.address + offset as u64, data)
                .map_err(|source| MemoryError::Cuda { what: "copying to the GPU", bytes: data.len(), source })?,
        }
        Ok(())
    }

    /// Sets `bytes` bytes from byte `offset` on to `value`.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn fill(&self, offset: usize, bytes: usize, value: u8) -> Result<(), MemoryError> {
        self.check(offset, bytes)?;
        match &self.0.view {
            // SAFETY: in bounds.
            View::Host(p) => unsafe { copy::fill(p.as_ptr().add(offset), value, bytes) },
            View::Gpu(context) => context
                .fill(self.0.address + offset as u64, bytes, value)
                .map_err(|source| MemoryError::Cuda { what: "filling GPU memory", bytes, source })?,
        }
        Ok(())
    }

    /// Reads one value at a byte offset.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn get<T: Pod>(&self, offset: usize) -> Result<T, MemoryError> {
        let mut v = T::zeroed();
        self.read(offset, bytemuck::bytes_of_mut(&mut v))?;
        Ok(v)
    }

    /// Writes one value at a byte offset.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn set<T: Pod>(&self, offset: usize, value: T) -> Result<(), MemoryError> {
        self.write(offset, bytemuck::bytes_of(&value))
    }

    /// Reads `count` values, the first at a byte offset.
    ///
    /// # Errors
    /// As [`Self::read`], and [`MemoryError::Host`] if there is no memory for the result.
    pub fn get_slice<T: Pod>(&self, offset: usize, count: usize) -> Result<Vec<T>, MemoryError> {
        self.check(offset, count.saturating_mul(size_of::<T>()))?;
        let mut v = Vec::new();
        v.try_reserve_exact(count).map_err(|_| MemoryError::Host {
            bytes: count * size_of::<T>(),
            source: std::io::ErrorKind::OutOfMemory.into(),
        })?;
        v.resize(count, T::zeroed());
        self.read(offset, bytemuck::cast_slice_mut(&mut v))?;
        Ok(v)
    }

    /// Writes values, the first at a byte offset.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn set_slice<T: Pod>(&self, offset: usize, values: &[T]) -> Result<(), MemoryError> {
        self.write(offset, bytemuck::cast_slice(values))
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({:?} {:#x} + {})", self.0.place, self.0.address, self.0.bytes)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.space.is_poisoned() {
            std::mem::forget(std::mem::replace(&mut self.owner, Owner::Leaked));
        }
        if let (Owner::Heap(layout), View::Host(p)) = (&self.owner, &self.view) {
            // SAFETY: allocated with this layout in `allocate`, and freed only here.
            unsafe { dealloc(p.as_ptr(), *layout) };
        }
    }
}

/// Memory as a remote controller names it (NVMe over Fabrics by RDMA).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteMemory {
    /// Address of the first byte. The other bytes follow without gaps.
    pub address: u64,
    /// Remote key.
    pub key: u32,
}

/// A part of a region, and the device address at which a device accesses it.
#[derive(Clone, Debug)]
pub struct DmaRegion {
    /// Region that holds the memory.
    pub region: Region,
    /// Offset of the first byte within the region.
    pub offset: usize,
    /// Length in bytes.
    pub bytes: usize,
    /// Device address of the first byte. The other bytes follow without gaps.
    pub iova: u64,
    /// Address and key by which a remote controller accesses the first byte; `None` if only a device of this machine
    /// accesses the memory.
    pub remote: Option<RemoteMemory>,
    /// Keeps the device's mapping. The mapping is removed with the last clone.
    pub guard: Arc<dyn Any + Send + Sync>,
}

impl DmaRegion {
    /// Returns the address of the first byte for kernels.
    pub fn address(&self) -> u64 {
        self.region.address().wrapping_add(self.offset as u64)
    }

    /// Returns the host address of the first byte, or `None` for GPU memory.
    pub fn host(&self) -> Option<NonNull<u8>> {
        // Whoever makes a `DmaRegion` chooses the offset: without access to the memory, each address is allowed.
        self.region.host().and_then(|p| NonNull::new(p.as_ptr().wrapping_add(self.offset)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_unique_without_its_clones() {
        let mut region = Space::cpu().allocate(Place::Device, 8).unwrap();
        assert!(region.is_unique());
        let clone = region.clone();
        assert!(!region.is_unique());
        drop(clone);
        assert!(region.is_unique());
    }

    #[test]
    fn imported_memory_is_used_where_it_is_and_kept() {
        struct Buffer(Vec<u8>);
        let space = Space::cpu();
        let mut buffer = Buffer(vec![3; 1000]);
        let pointer = buffer.0.as_mut_ptr() as u64;
        let buffer = Arc::new(buffer);
        let weak = Arc::downgrade(&buffer);
        // SAFETY: the region keeps the buffer.
        let region = unsafe { space.import_device(pointer + 8, 500, buffer.clone()) }.unwrap();
        assert_eq!((region.address(), region.len(), region.place()), (pointer + 8, 500, Place::Device));
        region.set(492, 0x0102_0304_0506_0708u64).unwrap();
        assert!(matches!(region.get::<u64>(493), Err(MemoryError::OutOfBounds { .. })));
        assert!(region.reaches_devices().is_ok() && region.export_dma_buf().is_err());
        assert_eq!(buffer.0[500], 8);
        drop(buffer);
        let clone = region.clone();
        drop(region);
        assert!(weak.upgrade().is_some());
        drop(clone);
        assert!(weak.upgrade().is_none());
        for (pointer, bytes) in [(0, 8), (pointer, 0), (u64::MAX, 8)] {
            // SAFETY: refused before any use.
            let e = unsafe { space.import_device(pointer, bytes, Arc::new(())) }.unwrap_err();
            assert!(matches!(e, MemoryError::NotImportable { .. }), "{e}");
        }
    }

    #[test]
    fn values_come_back_and_bounds_hold() {
        let r = Space::cpu().allocate(Place::Host, 100).unwrap();
        assert_eq!(r.len(), 4096);
        assert_eq!(r.get::<u64>(8).unwrap(), 0);
        r.set(8, 0x1234_5678_9abc_def0u64).unwrap();
        assert_eq!(r.get::<u64>(8).unwrap(), 0x1234_5678_9abc_def0);
        r.set_slice(4088, &[7u32, 8]).unwrap();
        assert_eq!(r.get_slice::<u32>(4088, 2).unwrap(), [7, 8]);
        assert!(matches!(r.get::<u64>(4090), Err(MemoryError::OutOfBounds { .. })));
        assert!(r.read(usize::MAX, &mut [0]).is_err());
        assert!(r.get_slice::<u64>(0, usize::MAX / 2).is_err());
        r.fill(0, 16, 0xff).unwrap();
        assert_eq!(r.get::<u64>(8).unwrap(), u64::MAX);
    }

    #[test]
    fn a_part_has_bounds_of_its_own_and_keeps_the_memory() {
        let whole = Space::cpu().allocate(Place::Host, 4096).unwrap();
        assert!(matches!(whole.part(4090, 8), Err(MemoryError::OutOfBounds { .. })));
        let part = whole.part(96, 16).unwrap();
        part.set(8, 5u64).unwrap();
        assert!(matches!(part.get::<u64>(9), Err(MemoryError::OutOfBounds { .. })));
        assert_eq!((part.address(), whole.get::<u64>(104).unwrap()), (whole.address() + 96, 5));
        drop(whole);
        assert_eq!(part.get::<u64>(8).unwrap(), 5);
    }

    /// Its fields are public: an offset outside of the region has an address all the same.
    #[test]
    fn a_device_mapping_with_any_offset_has_addresses() {
        let region = Space::cpu().allocate(Place::Host, 4096).unwrap();
        let base = region.address();
        let mut mapping = DmaRegion { region, offset: 8, bytes: 8, iova: 0, remote: None, guard: Arc::new(()) };
        for (offset, address) in [(8, base + 8), (1 << 20, base + (1 << 20)), (usize::MAX, base - 1)] {
            mapping.offset = offset;
            assert_eq!(mapping.address(), address);
            assert_eq!(mapping.host().unwrap().as_ptr().addr() as u64, address);
        }
    }
}
