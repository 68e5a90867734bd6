//! GPU memory that other code allocated, in other contexts and in other processes.

use super::context::Context;
use super::driver::{CUdeviceptr, call};
use super::error::{CudaError, code, next_step};
use super::garbage::Garbage;
use super::pointer::Facts;
use super::virtual_memory::PhysicalMemory;
use std::sync::Arc;

/// Size of the handle of an allocation in bytes (`CUipcMemHandle`).
pub const IPC_HANDLE_BYTES: usize = 64;

/// `CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS` (cuda.h).
const LAZY_ENABLE_PEER_ACCESS: u32 = 1;

/// `CUipcMemHandle`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct IpcHandle([u8; IPC_HANDLE_BYTES]);

/// The memory that a range of GPU addresses is a part of.
#[derive(Clone, Debug)]
pub enum Backing {
    /// An allocation of cuMemAlloc (cudaMalloc).
    Allocation {
        /// Its first address.
        start: u64,
    },
    /// Physical memory that is mapped there, in the order of the addresses.
    Mapped {
        /// First address of the first mapping.
        start: u64,
        /// Memory of each mapping.
        memory: Vec<Arc<PhysicalMemory>>,
    },
}

/// Kind of memory that a range is a part of, and the first address of that memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Allocation(u64),
    Mapped(u64),
}

/// Decides on the kind of memory from the facts of a range's pieces; or returns why other contexts cannot get to it, and
/// the next step.
fn kind(pieces: &[Facts]) -> Result<Kind, &'static str> {
    match pieces {
        [] => Err("the GPU driver knows no memory there; pass memory that is not freed yet"),
        _ if pieces.iter().any(|p| p.pool != 0) => Err(
            "it is of a stream-ordered pool (cuMemAllocAsync), whose memory only its own context reaches; use memory of cuMemAlloc \
             (cudaMalloc), or World::malloc",
        ),
        [first, ..] if pieces.iter().all(|p| p.context == 0) => Ok(Kind::Mapped(first.start)),
        [one] => Ok(Kind::Allocation(one.start)),
        _ => Err(
            "it spans several allocations, and only one at a time is shared; use memory of one allocation, or World::malloc",
        ),
    }
}

impl Context {
    /// Returns the memory that a range of this context's GPU memory is a part of. The inner error says why other contexts
    /// and processes cannot get to it, and the next step.
    ///
    /// # Errors
    /// [`CudaError::Call`] if a driver call fails.
    pub fn backing(self: &Arc<Self>, pointer: u64, bytes: usize) -> Result<Result<Backing, &'static str>, CudaError> {
        let pieces = self.pieces(pointer, pointer.saturating_add(bytes as u64))?;
        Ok(match kind(&pieces) {
            Ok(Kind::Allocation(start)) => Ok(Backing::Allocation { start }),
            Ok(Kind::Mapped(start)) => {
                let memory = pieces.iter().map(|p| PhysicalMemory::mapped_at(self, p.start, p.bytes).map(Arc::new));
                Ok(Backing::Mapped { start, memory: memory.collect::<Result<_, _>>()? })
            }
            Err(reason) => Err(reason),
        })
    }

    /// Gives kernels of this context access to the allocations (cuMemAlloc) of another GPU's context in this process.
    ///
    /// # Errors
    /// [`CudaError::Call`] if this GPU cannot reach the memory of the other.
    pub fn access_peer(&self, owner: &Context) -> Result<(), CudaError> {
        const CALL: &str = "cuCtxEnablePeerAccess";
        let driver = self.driver();
        let _current = self.current()?;
        // SAFETY: a context that lives during the call; flags must be 0.
        let answer = unsafe { (driver.cuCtxEnablePeerAccess)(owner.raw().cast(), 0) };
        if matches!(answer, code::SUCCESS | code::PEER_ACCESS_ALREADY_ENABLED) {
            return Ok(());
        }
        let next = "use GPUs that NVLink or a PCIe switch connects (nvidia-smi topo -p2p r)";
        Err(driver.failed(answer, CALL, "reaching the memory of another GPU", next).into())
    }

    /// Returns the handle by which other processes of this host open the allocation (cuMemAlloc) that begins at `start`.
    ///
    /// # Errors
    /// [`CudaError::Call`] if the driver does not share the allocation.
    pub fn export_ipc(&self, start: u64) -> Result<[u8; IPC_HANDLE_BYTES], CudaError> {
        let driver = self.driver();
        let _current = self.current()?;
        let mut handle = IpcHandle([0; IPC_HANDLE_BYTES]);
        // SAFETY: writes one handle; the driver refuses an address that begins no allocation.
        unsafe { call!(driver, cuIpcGetMemHandle(&mut handle, start), "sharing GPU memory with other processes") }?;
        Ok(handle.0)
    }
}

/// An allocation (cuMemAlloc) of another process, mapped into the GPU of a context.
///
/// If it is dropped while kernels run, it is unmapped after the last of them has ended.
#[derive(Debug)]
pub struct IpcMemory {
    context: Arc<Context>,
    base: CUdeviceptr,
}

impl IpcMemory {
    /// Opens the allocation by the handle that its process exported.
    ///
    /// # Errors
    /// [`CudaError::Call`] if the driver refuses, for instance because this process does not see that GPU.
    pub fn open(context: &Arc<Context>, handle: [u8; IPC_HANDLE_BYTES]) -> Result<Self, CudaError> {
        let driver = context.driver();
        let _current = context.current()?;
        let mut base = 0;
        // SAFETY: writes one address; the driver checks the handle.
        let answer = unsafe { (driver.cuIpcOpenMemHandle_v2)(&mut base, IpcHandle(handle), LAZY_ENABLE_PEER_ACCESS) };
        if answer != code::SUCCESS {
            let hint = "check that this process sees the peer's GPU (CUDA_VISIBLE_DEVICES), and that the GPUs reach each other \
                        (nvidia-smi topo -p2p r)";
            let next = match next_step(answer) {
                "" => hint.to_owned(),
                known => format!("{known}; {hint}"),
            };
            return Err(driver
                .failed(answer, "cuIpcOpenMemHandle_v2", "mapping another process's GPU memory", next)
                .into());
        }
        Ok(Self { context: context.clone(), base })
    }

    /// Returns the address of the allocation's first byte, as the GPU's kernels see it.
    pub fn address(&self) -> u64 {
        self.base
    }
}

impl Drop for IpcMemory {
    fn drop(&mut self) {
        self.context.release(Garbage::Ipc(self.base));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::sys;

    /// An allocation or a mapping of 1 MiB at `mib` MiB.
    fn piece(mib: u64, pool: usize, context: usize) -> Facts {
        let mut facts = Facts::default();
        (facts.start, facts.bytes, facts.pool, facts.context) = (mib << 20, 1 << 20, pool, context);
        facts
    }

    #[test]
    fn the_handle_is_the_headers() {
        assert_eq!(size_of::<IpcHandle>(), size_of::<sys::CUipcMemHandle>());
        assert_eq!(align_of::<IpcHandle>(), align_of::<sys::CUipcMemHandle>());
        assert_eq!(LAZY_ENABLE_PEER_ACCESS, sys::CUipcMem_flags::CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS as u32);
    }

    #[test]
    fn each_kind_of_memory_is_shared_in_its_own_way() {
        let (plain, mapped) = (|mib| piece(mib, 0, 0xc0de), |mib| piece(mib, 0, 0));
        assert_eq!(kind(&[plain(16)]), Ok(Kind::Allocation(16 << 20)));
        assert_eq!(kind(&[mapped(16)]), Ok(Kind::Mapped(16 << 20)));
        assert_eq!(kind(&[mapped(16), mapped(17)]), Ok(Kind::Mapped(16 << 20)));
        for (pieces, part) in [
            (&[piece(16, 7, 0)][..], "pool"),
            (&[plain(16), plain(17)], "several allocations"),
            (&[mapped(16), plain(17)], "several allocations"),
            (&[], "no memory there"),
        ] {
            let e = kind(pieces).unwrap_err();
            assert!(e.contains(part) && e.contains("; "), "{e}");
        }
    }
}
