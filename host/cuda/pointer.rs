//! Memory that other code allocated, as the driver describes it.

use super::context::Context;
use super::driver::{CUdeviceptr, call};
use super::error::{CudaError, code};
use cudarc::driver::sys::CUpointer_attribute as Attribute;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

/// Facts that the driver has of an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    /// `CUmemorytype`; 0 if the driver does not know the address.
    kind: u32,
    device: i32,
    is_managed: u32,
    /// First address of the allocation, or of the mapping, and its bytes.
    pub(super) start: u64,
    pub(super) bytes: usize,
    /// Pool of a stream-ordered allocation, or 0.
    pub(super) pool: usize,
    /// Context of the allocation. It is null for memory of a pool and for mapped physical memory.
    pub(super) context: usize,
    /// Not 0 if devices other than GPUs can access the memory.
    is_reachable: u32,
}

/// CU_MEMORYTYPE_HOST and CU_MEMORYTYPE_DEVICE (cuda.h).
const HOST: u32 = 1;
const DEVICE: u32 = 2;

/// Access of devices other than GPUs (storage controllers, RDMA adapters) to GPU memory that other code allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceAccess {
    /// Devices can access the memory.
    Allowed,
    /// Devices cannot access the memory.
    Refused {
        /// Property of the memory that excludes devices.
        cause: &'static str,
        /// Kind of memory to use instead.
        next: &'static str,
    },
}

const FROM_POOL: DeviceAccess = DeviceAccess::Refused {
    cause: "it is of a stream-ordered pool (cuMemAllocAsync), whose memory other devices do not reach",
    next: "use memory of cuMemAlloc (cudaMalloc), or bounce landing",
};
const WITHOUT_FLAG: DeviceAccess = DeviceAccess::Refused {
    cause: "it is mapped physical memory that was created without gpuDirectRDMACapable, as allocators with expandable \
            segments do",
    next: "set that flag of CUmemAllocationProp, turn expandable segments off, use memory of cuMemAlloc, or use bounce landing",
};
const IN_PIECES: DeviceAccess = DeviceAccess::Refused {
    cause: "it spans several mappings, and devices get access to one at a time",
    next: "import each mapping by itself, use memory of cuMemAlloc, or use bounce landing",
};
const NOT_CAPABLE: DeviceAccess = DeviceAccess::Refused {
    cause: "the GPU driver gives other devices no access to it (CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE is 0)",
    next: "use memory of cuMemAlloc on a GPU with GPUDirect RDMA, or bounce landing",
};

impl Context {
    /// Checks that `bytes` bytes of GPU memory at `pointer`, which other code allocated, are memory of this context's
    /// GPU. Returns the access that other devices have to them.
    ///
    /// # Errors
    /// - The outer error is a [`CudaError::Call`] if the driver call fails.
    /// - The inner error says why kernels of this context cannot use the memory, and the next step.
    pub fn examine(self: &Arc<Self>, pointer: u64, bytes: usize) -> Result<Result<DeviceAccess, String>, CudaError> {
        let end = match pointer.checked_add(bytes as u64) {
            Some(end) if bytes > 0 && pointer != 0 => end,
            _ => return Ok(Err("a range has an address other than 0 and at least one byte".to_owned())),
        };
        let pieces = self.pieces(pointer, end)?;
        Ok(judge(&pieces, (pointer, end), self.info().ordinal, self.raw() as usize))
    }

    /// Returns the facts of each allocation or mapping from `pointer` to `end`, up to the first gap.
    pub(super) fn pieces(&self, pointer: u64, end: u64) -> Result<Vec<Facts>, CudaError> {
        let mut pieces = Vec::new();
        let mut at = pointer;
        while at < end {
            let facts = self.facts(at)?;
            pieces.push(facts);
            match facts.start.checked_add(facts.bytes as u64) {
                Some(next) if next > at => at = next,
                _ => break,
            }
        }
        Ok(pieces)
    }

    fn facts(&self, at: CUdeviceptr) -> Result<Facts, CudaError> {
        let mut facts = Facts::default();
        let asked: [(Attribute, *mut c_void); 8] = [
            (Attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (&raw mut facts.kind).cast()),
            (Attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, (&raw mut facts.device).cast()),
            (Attribute::CU_POINTER_ATTRIBUTE_IS_MANAGED, (&raw mut facts.is_managed).cast()),
            (Attribute::CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, (&raw mut facts.start).cast()),
            (Attribute::CU_POINTER_ATTRIBUTE_RANGE_SIZE, (&raw mut facts.bytes).cast()),
            (Attribute::CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, (&raw mut facts.pool).cast()),
            (Attribute::CU_POINTER_ATTRIBUTE_CONTEXT, (&raw mut facts.context).cast()),
            (Attribute::CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE, (&raw mut facts.is_reachable).cast()),
        ];
        let (names, values) = (asked.map(|(a, _)| a as c_int), asked.map(|(_, value)| value));
        let _current = self.current()?;
        // SAFETY: each value has the size of its attribute's type, or is larger and zero. For an address that the driver
        // does not know, it writes zeros.
        unsafe {
            call!(
                self.driver(),
                cuPointerGetAttributes(names.len() as c_uint, names.as_ptr(), values.as_ptr(), at),
                "looking at memory of the program"
            )
        }?;
        if facts.kind == DEVICE && facts.context == 0 && facts.pool == 0 {
            // Of mapped memory (cuMemMap) the attributes give all reserved addresses, of which any part may be mapped.
            // SAFETY: writes one address and one length; the driver looks the address up.
            let answer = unsafe { (self.driver().cuMemGetAddressRange_v2)(&mut facts.start, &mut facts.bytes, at) };
            if answer != code::SUCCESS {
                return Ok(Facts::default());
            }
        }
        Ok(facts)
    }
}

/// Decides on the range from the facts of its pieces, in the order of their addresses. `gpu` is this context's GPU.
fn judge(pieces: &[Facts], (pointer, end): (u64, u64), gpu: usize, context: usize) -> Result<DeviceAccess, String> {
    let mut at = pointer;
    for piece in pieces {
        if piece.is_managed != 0 {
            return Err("it is managed memory, which the driver moves between GPU and host; use memory of cuMemAlloc (cudaMalloc)".to_owned());
        }
        if at > pointer && piece.kind != DEVICE {
            break;
        }
        match piece.kind {
            DEVICE => {}
            HOST => return Err("it is host memory; import it as host memory (Space::import_host)".to_owned()),
            _ => {
                return Err(format!(
                    "the GPU driver knows no memory at {at:#x}; pass the address that cuMemAlloc (cudaMalloc) returned, before it is freed"
                ));
            }
        }
        if piece.device != gpu as i32 {
            return Err(format!(
                "it is memory of GPU {}, and the engine is on GPU {gpu}; open the engine on that GPU, or copy the data to memory of this one",
                piece.device
            ));
        }
        if piece.context != 0 && piece.context != context {
            return Err("it was allocated in another context; allocate it in the primary context of the GPU, as the CUDA runtime does".to_owned());
        }
        let next = piece.start.saturating_add(piece.bytes as u64);
        if piece.start > at || next <= at {
            return Err(format!("the GPU driver describes no allocation at {at:#x}"));
        }
        at = next;
    }
    if at < end {
        return Err(format!("the allocation ends {} bytes before the range does; pass at most its length", end - at));
    }
    let is_reachable = pieces.iter().all(|p| p.is_reachable != 0);
    let access = match pieces.first() {
        Some(_) if pieces.iter().any(|p| p.pool != 0) => FROM_POOL,
        Some(first) if !is_reachable && first.context == 0 => WITHOUT_FLAG,
        _ if !is_reachable => NOT_CAPABLE,
        _ if pieces.len() > 1 => IN_PIECES,
        _ => DeviceAccess::Allowed,
    };
    Ok(access)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: usize = 0xc0de;
    /// Memory of cuMemAlloc: 1 MiB at 16 MiB.
    const PLAIN: Facts = Facts {
        kind: DEVICE,
        device: 0,
        is_managed: 0,
        start: 16 << 20,
        bytes: 1 << 20,
        pool: 0,
        context: OURS,
        is_reachable: 1,
    };

    fn decide(pieces: &[Facts], offset: u64, bytes: u64) -> Result<DeviceAccess, String> {
        let pointer = (16 << 20) + offset;
        judge(pieces, (pointer, pointer + bytes), 0, OURS)
    }

    #[test]
    fn a_range_of_one_allocation_is_reached() {
        for (offset, bytes) in [(0, 1 << 20), (4096, 8), ((1 << 20) - 1, 1)] {
            assert_eq!(decide(&[PLAIN], offset, bytes), Ok(DeviceAccess::Allowed));
        }
        let e = decide(&[PLAIN], 4096, 1 << 20).unwrap_err();
        assert!(e.contains("ends 4096 bytes before"), "{e}");
    }

    #[test]
    fn memory_that_kernels_cannot_use_is_refused_by_its_kind() {
        let refused = |piece: Facts| decide(&[piece], 0, 64).unwrap_err();
        for (piece, part) in [
            (Facts { kind: HOST, ..PLAIN }, "import_host"),
            (Facts { is_managed: 1, ..PLAIN }, "managed memory"),
            (Facts::default(), "knows no memory at 0x1000000"),
            (Facts { device: 3, ..PLAIN }, "memory of GPU 3, and the engine is on GPU 0"),
            (Facts { context: 0xbad, ..PLAIN }, "another context"),
        ] {
            let e = refused(piece);
            assert!(e.contains(part), "{e}");
        }
    }

    #[test]
    fn memory_that_devices_cannot_use_says_why() {
        let mapped = Facts { context: 0, is_reachable: 0, ..PLAIN };
        assert_eq!(decide(&[Facts { pool: 7, context: 0, is_reachable: 0, ..PLAIN }], 0, 64), Ok(FROM_POOL));
        assert_eq!(decide(&[mapped], 0, 64), Ok(WITHOUT_FLAG));
        assert_eq!(decide(&[Facts { is_reachable: 0, ..PLAIN }], 0, 64), Ok(NOT_CAPABLE));
        let second = Facts { context: 0, start: 17 << 20, ..PLAIN };
        assert_eq!(decide(&[Facts { context: 0, ..PLAIN }, second], 0, 2 << 20), Ok(IN_PIECES));
        assert_eq!(decide(&[Facts { context: 0, ..PLAIN }], 0, 1 << 20), Ok(DeviceAccess::Allowed));
        // Kernels use all of a gapless range; a gap is none.
        let gap = Facts { start: 18 << 20, ..second };
        assert!(decide(&[PLAIN, gap], 0, 2 << 20).is_err());
    }
}
