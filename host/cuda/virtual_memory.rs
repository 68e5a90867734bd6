//! Virtual memory management: physical memory of a GPU, its handles for other processes, and address ranges that it is
//! mapped into (CUDA driver interface, "Virtual Memory Management").

use super::context::Context;
use super::driver::{CUdeviceptr, call};
use super::error::{CudaError, code, next_step};
use super::garbage::Garbage;
use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;

/// Size of a fabric handle in bytes (`CUmemFabricHandle`).
pub const FABRIC_HANDLE_BYTES: usize = 64;

/// `CUmemAllocationHandleType` values (cuda.h). They are bits of a request.
mod handle_type {
    pub const POSIX_FILE_DESCRIPTOR: i32 = 0x1;
    pub const FABRIC: i32 = 0x8;
}

/// `CU_MEM_ALLOCATION_TYPE_PINNED`.
const TYPE_PINNED: u32 = 1;
/// `CU_MEM_LOCATION_TYPE_DEVICE`.
const LOCATION_DEVICE: u32 = 1;
/// `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
const READ_WRITE: u32 = 3;
/// `CU_MEM_ALLOC_GRANULARITY_RECOMMENDED`.
const GRANULARITY_RECOMMENDED: c_int = 1;

/// `CUmemLocation`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Location {
    kind: u32,
    id: c_int,
}

/// `CUmemAllocationProp`. Declared here because its layout is equal in every version of cuda.h, but the binding's is
/// not.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Properties {
    kind: u32,
    handle_types: c_int,
    location: Location,
    win32_meta_data: *mut c_void,
    compression: u8,
    gpu_direct_rdma_capable: u8,
    usage: u16,
    reserved: [u8; 4],
}

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Access {
    location: Location,
    flags: u32,
}

const _: () = {
    use cudarc::driver::sys;
    assert!(size_of::<Properties>() == size_of::<sys::CUmemAllocationProp>());
    assert!(align_of::<Properties>() == align_of::<sys::CUmemAllocationProp>());
    assert!(size_of::<Access>() == size_of::<sys::CUmemAccessDesc>());
    assert!(size_of::<sys::CUmemFabricHandle>() == FABRIC_HANDLE_BYTES);
    assert!(size_of::<sys::CUmemGenericAllocationHandle>() == size_of::<u64>());
};

/// Processes with which physical memory can be shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Processes of this host, by file descriptor.
    Host,
    /// Processes of this host, and of hosts in one NVLink domain, by fabric handle.
    Fabric,
}

/// GPU memory without an address. It lives as long as it is mapped anywhere, or a process holds a handle of it.
#[derive(Debug)]
pub struct PhysicalMemory {
    context: Arc<Context>,
    handle: u64,
    bytes: usize,
}

fn properties(context: &Context, sharing: Sharing) -> Properties {
    let handle_types = match sharing {
        Sharing::Host => handle_type::POSIX_FILE_DESCRIPTOR,
        Sharing::Fabric => handle_type::POSIX_FILE_DESCRIPTOR | handle_type::FABRIC,
    };
    Properties {
        kind: TYPE_PINNED,
        handle_types,
        location: Location { kind: LOCATION_DEVICE, id: context.device() },
        win32_meta_data: std::ptr::null_mut(),
        compression: 0,
        gpu_direct_rdma_capable: u8::from(context.info().virtual_memory.gpu_direct_rdma),
        usage: 0,
        reserved: [0; 4],
    }
}

impl PhysicalMemory {
    /// Returns the granularity in bytes: the lengths and mapping offsets of such memory are multiples of it.
    ///
    /// # Errors
    /// [`CudaError::Call`] if the driver call fails.
    pub fn granularity(context: &Context, sharing: Sharing) -> Result<usize, CudaError> {
        let _current = context.current()?;
        let (driver, wanted) = (context.driver(), properties(context, sharing));
        let mut bytes = 0;
        // SAFETY: writes one size; `wanted` has the header's layout.
        unsafe {
            call!(
                driver,
                cuMemGetAllocationGranularity(&mut bytes, &wanted, GRANULARITY_RECOMMENDED),
                "querying the granularity of GPU memory"
            )
        }?;
        Ok(bytes.max(1))
    }

    /// Allocates `bytes` bytes, which must be a multiple of the granularity. The content is undefined.
    ///
    /// # Errors
    /// [`CudaError::Call`] if the GPU's memory is exhausted, or the GPU does not support this kind of sharing.
    pub fn create(context: &Arc<Context>, bytes: usize, sharing: Sharing) -> Result<Self, CudaError> {
        const WHAT: &str = "allocating GPU memory that peers can map";
        let (driver, wanted) = (context.driver(), properties(context, sharing));
        let mut handle = 0;
        let answer = {
            let _current = context.current()?;
            // SAFETY: writes one handle; flags must be 0.
            unsafe { (driver.cuMemCreate)(&mut handle, bytes, &wanted, 0) }
        };
        let next = match answer {
            code::SUCCESS => return Ok(Self { context: context.clone(), handle, bytes }),
            code::OUT_OF_MEMORY => {
                let free = context.memory().map_or(0, |(free, _)| free);
                format!(
                    "{bytes} bytes were requested, {free} are free; use a smaller heap, or free memory on the GPU (nvidia-smi)"
                )
            }
            code::NOT_PERMITTED | code::NOT_SUPPORTED if sharing == Sharing::Fabric => NO_FABRIC.to_owned(),
            other => next_step(other).to_owned(),
        };
        Err(driver.failed(answer, "cuMemCreate", WHAT, next).into())
    }

    /// Returns the physical memory that is mapped at address `at` for `bytes` bytes, whichever code created it.
    ///
    /// # Errors
    /// [`CudaError::Call`] if nothing is mapped there.
    pub fn mapped_at(context: &Arc<Context>, at: u64, bytes: usize) -> Result<Self, CudaError> {
        let (driver, pointer) = (context.driver(), at as *mut c_void);
        let _current = context.current()?;
        let mut handle = 0;
        // SAFETY: writes one handle; the driver looks the address up.
        unsafe {
            call!(driver, cuMemRetainAllocationHandle(&mut handle, pointer), "looking for the memory behind a mapping")
        }?;
        Ok(Self { context: context.clone(), handle, bytes })
    }

    /// Returns true if the memory was created so that a file descriptor can name it.
    ///
    /// # Errors
    /// [`CudaError::Call`] if the driver call fails.
    pub fn has_descriptor(&self) -> Result<bool, CudaError> {
        let driver = self.context.driver();
        let _current = self.context.current()?;
        let mut properties = properties(&self.context, Sharing::Host);
        // SAFETY: writes one structure of the header's layout; the handle is this value's own.
        unsafe {
            call!(
                driver,
                cuMemGetAllocationPropertiesFromHandle(&mut properties, self.handle),
                "looking at the properties of GPU memory"
            )
        }?;
        Ok(properties.handle_types & handle_type::POSIX_FILE_DESCRIPTOR != 0)
    }

    /// Exports the memory as a file descriptor for another process of this host.
    ///
    /// # Errors
    /// [`CudaError::Call`] if the driver fails to export the memory or returns no descriptor.
    pub fn export_descriptor(&self) -> Result<OwnedFd, CudaError> {
        const WHAT: &str = "exporting GPU memory as a file descriptor";
        let driver = self.context.driver();
        let _current = self.context.current()?;
        let mut fd: c_int = -1;
        // SAFETY: this handle type writes one int; the memory was created for it.
        unsafe {
            call!(
                driver,
                cuMemExportToShareableHandle((&raw mut fd).cast(), self.handle, handle_type::POSIX_FILE_DESCRIPTOR, 0),
                WHAT
            )
        }?;
        if fd < 0 {
            let next = "the driver returned no file descriptor";
            return Err(driver.failed(code::UNKNOWN, "cuMemExportToShareableHandle", WHAT, next).into());
        }
        // SAFETY: a new descriptor that nothing else owns.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Exports the memory as a fabric handle for hosts of the same NVLink domain. It must be
    /// created with [`Sharing::Fabric`].
    ///
    /// # Errors
    /// [`CudaError::Call`] if the driver fails to export the memory, for instance because nvidia-imex does not run.
    pub fn export_fabric(&self) -> Result<[u8; FABRIC_HANDLE_BYTES], CudaError> {
        const WHAT: &str = "exporting GPU memory as a fabric handle";
        let driver = self.context.driver();
        let _current = self.context.current()?;
        let mut handle = [0u8; FABRIC_HANDLE_BYTES];
        // SAFETY: this handle type writes a CUmemFabricHandle, which has `FABRIC_HANDLE_BYTES` bytes.
        let answer = unsafe {
            (driver.cuMemExportToShareableHandle)(handle.as_mut_ptr().cast(), self.handle, handle_type::FABRIC, 0)
        };
        if answer != code::SUCCESS {
            return Err(driver.failed(answer, "cuMemExportToShareableHandle", WHAT, NO_FABRIC).into());
        }
        Ok(handle)
    }

    /// Imports memory of another process by its descriptor `fd`, which may be closed afterwards.
    /// `bytes` is the memory's length.
    ///
    /// # Errors
    /// [`CudaError::Call`] if the driver refuses the import, for instance because this process
    /// does not see the peer's GPU.
    pub fn import_descriptor(context: &Arc<Context>, fd: BorrowedFd<'_>, bytes: usize) -> Result<Self, CudaError> {
        // For this handle type the pointer argument is the descriptor itself.
        let handle = std::ptr::without_provenance_mut(fd.as_raw_fd() as usize);
        let next = "check that this process sees the peer's GPU (CUDA_VISIBLE_DEVICES): let every rank see all GPUs of the host \
                    and choose its own by ordinal, or use a heap in host memory (WARPBELL_HEAP=host)";
        Self::import(context, handle, handle_type::POSIX_FILE_DESCRIPTOR, bytes, next)
    }

    /// Imports memory of another host by its fabric handle. `bytes` is the memory's length.
    ///
    /// # Errors
    /// [`CudaError::Call`] if the driver refuses the import, for instance outside the NVLink domain.
    pub fn import_fabric(
        context: &Arc<Context>,
        handle: &[u8; FABRIC_HANDLE_BYTES],
        bytes: usize,
    ) -> Result<Self, CudaError> {
        let mut handle = *handle;
        Self::import(context, handle.as_mut_ptr().cast(), handle_type::FABRIC, bytes, NO_FABRIC)
    }

    fn import(
        context: &Arc<Context>,
        from: *mut c_void,
        kind: c_int,
        bytes: usize,
        next: &'static str,
    ) -> Result<Self, CudaError> {
        const CALL: &str = "cuMemImportFromShareableHandle";
        let driver = context.driver();
        let _current = context.current()?;
        let mut handle = 0;
        // SAFETY: writes one handle; `from` matches the handle type: a descriptor, or the address of a fabric handle.
        let answer = unsafe { (driver.cuMemImportFromShareableHandle)(&mut handle, from, kind) };
        if answer != code::SUCCESS {
            return Err(driver.failed(answer, CALL, "importing a peer's GPU memory", next).into());
        }
        Ok(Self { context: context.clone(), handle, bytes })
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Returns false: there is no empty allocation.
    #[cfg(feature = "internals")]
    pub fn is_empty(&self) -> bool {
        false
    }
}

const NO_FABRIC: &str = "fabric handles need one NVLink domain, nvidia-imex on each of its hosts, and \
                         /dev/nvidia-caps-imex-channels/channel0 readable by this user";

impl Drop for PhysicalMemory {
    fn drop(&mut self) {
        self.context.release(Garbage::Physical(self.handle));
    }
}

/// Memory that is mapped into a range, and its address.
///
/// The driver keeps the memory while it is mapped, but not the context of the GPU that has it. When the last PE of a
/// GPU releases its memory, that context would close although a peer still has the memory mapped. So the mapping holds
/// the memory, and the memory holds its context.
#[derive(Debug)]
pub(super) struct Mapped {
    pub(super) at: CUdeviceptr,
    pub(super) memory: Arc<PhysicalMemory>,
}

/// A reserved range of addresses of one GPU, and its mappings.
///
/// If it is dropped while kernels run, it is unmapped after the last of them has ended.
#[derive(Debug)]
pub struct AddressRange {
    context: Arc<Context>,
    base: CUdeviceptr,
    bytes: usize,
    mapped: Vec<Mapped>,
}

impl AddressRange {
    /// Reserves `bytes` bytes of addresses at a multiple of `align`. Takes no memory.
    ///
    /// # Errors
    /// [`CudaError::Call`] if the driver fails to reserve the addresses.
    pub fn reserve(context: &Arc<Context>, bytes: usize, align: usize) -> Result<Self, CudaError> {
        let driver = context.driver();
        let _current = context.current()?;
        let mut base: CUdeviceptr = 0;
        // SAFETY: writes one address; no hint, and flags must be 0.
        unsafe {
            call!(
                driver,
                cuMemAddressReserve(&mut base, bytes, align, 0, 0),
                "reserving addresses for the heaps of all PEs"
            )
        }?;
        Ok(Self { context: context.clone(), base, bytes, mapped: Vec::new() })
    }

    /// Maps all of `memory` at byte `offset` of the range, for loads, stores and atomics of the range's GPU. `offset`
    /// and the memory's length must be multiples of the granularity.
    ///
    /// # Errors
    /// [`CudaError::Call`] if the memory does not fit at `offset`, something is mapped there already, or the
    /// GPU cannot reach the memory.
    pub fn map(&mut self, offset: usize, memory: &Arc<PhysicalMemory>) -> Result<(), CudaError> {
        const WHAT: &str = "mapping a peer's GPU memory";
        let (driver, at, bytes) = (self.context.driver(), self.base + offset as u64, memory.bytes);
        if offset.checked_add(bytes).is_none_or(|end| end > self.bytes) {
            let next = format!("bytes {offset} + {bytes} are not inside a range of {}", self.bytes);
            return Err(driver.failed(code::INVALID_VALUE, "cuMemMap", WHAT, next).into());
        }
        let _current = self.context.current()?;
        // SAFETY: addresses inside this reservation; the driver refuses addresses that are already mapped.
        unsafe { call!(driver, cuMemMap(at, bytes, 0, memory.handle, 0), WHAT) }?;
        self.mapped.push(Mapped { at, memory: memory.clone() });
        let access =
            Access { location: Location { kind: LOCATION_DEVICE, id: self.context.device() }, flags: READ_WRITE };
        // SAFETY: the range that was just mapped, and one access descriptor.
        let answer = unsafe { (driver.cuMemSetAccess)(at, bytes, &access, 1) };
        if answer != code::SUCCESS {
            let next = "the GPU cannot reach the memory of that peer's GPU (nvidia-smi topo -p2p r): use GPUs that NVLink or \
                        a PCIe switch connects, or a heap in host memory (WARPBELL_HEAP=host); from CUDA 13.5 on, IOMMU and ACS \
                        may be the cause (warpbell doctor: gpu peers)";
            return Err(driver.failed(answer, "cuMemSetAccess", WHAT, next).into());
        }
        Ok(())
    }

    /// Returns the address of the first byte for kernels of the GPU.
    pub fn address(&self) -> u64 {
        self.base
    }

    /// Returns the length in bytes.
    #[cfg(feature = "internals")]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Returns false: a reservation is never empty.
    #[cfg(feature = "internals")]
    pub fn is_empty(&self) -> bool {
        false
    }
}

impl Drop for AddressRange {
    fn drop(&mut self) {
        let mapped = std::mem::take(&mut self.mapped);
        self.context.release(Garbage::Range { base: self.base, bytes: self.bytes, mapped });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::sys;
    use std::mem::offset_of;

    #[test]
    fn numbers_and_offsets_are_the_headers() {
        assert_eq!(TYPE_PINNED, sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED as u32);
        assert_eq!(LOCATION_DEVICE, sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE as u32);
        assert_eq!(READ_WRITE, sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE as u32);
        assert_eq!(
            GRANULARITY_RECOMMENDED,
            sys::CUmemAllocationGranularity_flags::CU_MEM_ALLOC_GRANULARITY_RECOMMENDED as i32
        );
        assert_eq!(offset_of!(Properties, location), offset_of!(sys::CUmemAllocationProp, location));
        assert_eq!(offset_of!(Properties, compression), offset_of!(sys::CUmemAllocationProp, allocFlags));
        assert_eq!(offset_of!(Access, flags), offset_of!(sys::CUmemAccessDesc, flags));
    }

    /// Opens a GPU whose driver shares memory by file descriptor. Panics if there is none.
    fn open(ordinal: usize) -> Arc<Context> {
        let context = Context::open(ordinal).expect("a GPU");
        assert!(context.info().virtual_memory.descriptors, "GPU {ordinal} does not share memory by file descriptor");
        context
    }

    #[test]
    #[ignore = "needs a GPU"]
    fn memory_is_mapped_shared_and_read_back() {
        let context = open(0);
        let granularity = PhysicalMemory::granularity(&context, Sharing::Host).unwrap();
        let mine = Arc::new(PhysicalMemory::create(&context, granularity, Sharing::Host).unwrap());
        let mut range = AddressRange::reserve(&context, 2 * granularity, granularity).unwrap();
        range.map(0, &mine).unwrap();
        assert!(range.map(0, &mine).is_err(), "mapped twice");
        assert!(range.map(2 * granularity, &mine).is_err(), "outside");
        // A second handle of the memory, as a process that imports the descriptor gets it.
        let fd = mine.export_descriptor().unwrap();
        let again = PhysicalMemory::import_descriptor(&context, std::os::fd::AsFd::as_fd(&fd), granularity).unwrap();
        range.map(granularity, &Arc::new(again)).unwrap();
        drop((fd, mine));
        let (first, second) = (range.address(), range.address() + granularity as u64);
        context.fill(first, granularity, 0).unwrap();
        context.copy_to_device(first + 5, b"heap").unwrap();
        let mut back = [0; 4];
        context.copy_to_host(second + 5, &mut back).unwrap();
        assert_eq!(&back, b"heap");
    }

    #[test]
    #[ignore = "needs two GPUs"]
    fn the_context_of_a_peer_stays_open_while_its_memory_is_mapped() {
        let (context, peer) = (open(0), open(1));
        assert!(crate::cuda::peer_link(0, 1).unwrap().access, "GPU 0 does not reach GPU 1");
        let granularity = PhysicalMemory::granularity(&peer, Sharing::Host).unwrap();
        let theirs = Arc::new(PhysicalMemory::create(&peer, granularity, Sharing::Host).unwrap());
        let mut range = AddressRange::reserve(&context, granularity, granularity).unwrap();
        range.map(0, &theirs).unwrap();
        // From here only the mapping holds the memory, and thereby the context.
        let watched = Arc::downgrade(&theirs);
        drop((theirs, peer));
        assert!(watched.upgrade().is_some());
        context.copy_to_device(range.address(), b"heap").unwrap();
        let mut back = [0; 4];
        context.copy_to_host(range.address(), &mut back).unwrap();
        assert_eq!(&back, b"heap");
        drop(range);
        // Waits until no kernel of another test runs on the GPU.
        let asked = std::time::Instant::now();
        while watched.upgrade().is_some() && asked.elapsed() < std::time::Duration::from_secs(60) {
            context.collect();
            std::thread::yield_now();
        }
        assert!(watched.upgrade().is_none());
    }
}
