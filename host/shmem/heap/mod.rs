//! The symmetric heap: the same number of bytes on every PE, at the same offsets.
//!
//! Kernels reach the heap of PE `p` at their own heap's address plus `(p - me) * stride`. The heaps lie side by side in
//! one range of addresses, in the order of the PEs on every PE.

mod descriptors;
mod gpu;
mod host;

pub(super) use descriptors::{DescriptorListener, Peer, secret};
pub(super) use gpu::{DeviceMemory, Links, Source};
pub(super) use host::{HostMemory, file};

use super::ShmemError;
use crate::cuda;
use crate::memory::{MemoryError, Place, Region, Space};
use crate::rdma::MemoryRange;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ptr::NonNull;
use std::str::FromStr;
use std::sync::Arc;

/// Alignment of heaps as kernels see them, and so the largest alignment inside heaps: a large page, in bytes.
pub(super) const HEAP_ALIGN: usize = 2 << 20;

/// The kind of memory that heaps are in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum HeapKind {
    /// GPU memory if all GPUs reach each other's memory, otherwise pinned host memory. CPU engines use shared memory.
    #[default]
    Auto,
    /// GPU memory, which is the fastest for kernels. CPU engines use shared memory.
    Device,
    /// Host memory: pinned and mapped into each GPU.
    Host,
}

impl fmt::Display for HeapKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Device => "device",
            Self::Host => "host",
        })
    }
}

/// The error for a kind of heap that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no kind of heap: write auto, device or host")]
pub struct NoSuchHeapKind(String);

impl FromStr for HeapKind {
    type Err = NoSuchHeapKind;

    fn from_str(s: &str) -> Result<Self, NoSuchHeapKind> {
        match s.trim().to_ascii_lowercase().as_str() {
            "auto" => Ok(Self::Auto),
            "device" => Ok(Self::Device),
            "host" => Ok(Self::Host),
            _ => Err(NoSuchHeapKind(s.to_owned())),
        }
    }
}

/// One PE's view of all heaps.
#[derive(Debug)]
pub(super) struct Heap {
    memory: Memory,
    /// Address of the heap of PE 0, as this PE's kernels see it.
    base: u64,
    pe: usize,
    bytes: usize,
    stride: usize,
    /// For each PE, true if loads and stores reach its heap. Empty if they reach all heaps.
    near: Vec<bool>,
    space: Space,
}

#[derive(Debug)]
enum Memory {
    /// Host memory, with its registrations for the GPU if kernels run on one.
    Host {
        all: Arc<HostMemory>,
        _registered: Vec<Region>,
    },
    Device {
        _all: cuda::AddressRange,
        context: Arc<cuda::Context>,
    },
    /// Leaked on purpose: a kernel that did not end may still use the memory.
    Leaked,
}

impl Heap {
    /// Creates the view of PE `pe`, with its own heap in the host memory `all` that holds the heaps of all PEs.
    pub(super) fn in_host_memory(
        space: &Space,
        all: Arc<HostMemory>,
        pe: usize,
        bytes: usize,
        stride: usize,
    ) -> Result<Self, MemoryError> {
        let mut registered = Vec::new();
        let mut base = all.base().as_ptr() as u64;
        if space.gpu_context().is_some() {
            for (nth, part) in all.parts().iter().enumerate() {
                let at = NonNull::new(all.base().as_ptr().wrapping_add(part.start)).unwrap_or(all.base());
                // SAFETY: a mapped part of the memory, which stays mapped while `all.clone()`, a share of its owner,
                // lives.
                let region = unsafe { space.import_host(at, part.len(), false, all.clone()) }?;
                let from = region.address().wrapping_sub(part.start as u64);
                // Kernels compute addresses from one heap to the next, so the parts must have the same distances as on
                // the host.
                if nth > 0 && from != base {
                    let reason = "the GPU does not map heaps in host memory at contiguous addresses";
                    let source = std::io::Error::new(std::io::ErrorKind::Unsupported, reason);
                    return Err(MemoryError::Host { bytes: part.len(), source });
                }
                base = from;
                registered.push(region);
            }
        }
        Ok(Self {
            memory: Memory::Host { all, _registered: registered },
            base,
            pe,
            bytes,
            stride,
            near: Vec::new(),
            space: space.clone(),
        })
    }

    /// Creates the view of PE `pe`, with its own heap in the GPU address range `all` that holds the heaps of all PEs.
    pub(super) fn in_gpu_memory(
        space: &Space,
        context: &Arc<cuda::Context>,
        all: cuda::AddressRange,
        pe: usize,
        bytes: usize,
        stride: usize,
    ) -> Self {
        let base = all.address();
        let memory = Memory::Device { _all: all, context: context.clone() };
        Self { memory, base, pe, bytes, stride, near: Vec::new(), space: space.clone() }
    }

    /// Returns an empty heap, as a placeholder for one that was moved away.
    pub(super) fn none(space: &Space) -> Self {
        let memory = Memory::Leaked;
        Self { memory, base: 0, pe: 0, bytes: 0, stride: 0, near: Vec::new(), space: space.clone() }
    }

    /// Restricts the heap to PEs that loads and stores reach; `near` has one entry for each PE, or none if they reach
    /// all.
    pub(super) fn reaching(mut self, near: Vec<bool>) -> Self {
        self.near = near;
        self
    }

    /// Returns true if loads and stores reach the heap of `pe`.
    pub(super) fn reaches(&self, pe: usize) -> bool {
        self.near.is_empty() || self.near.get(pe).copied().unwrap_or(false)
    }

    /// Returns this PE's heap as a range that an adapter can register.
    pub(super) fn range(&self) -> MemoryRange {
        let host = match &self.memory {
            Memory::Host { all, .. } => NonNull::new(Self::host(all, self.pe * self.stride)),
            Memory::Device { .. } | Memory::Leaked => None,
        };
        MemoryRange { address: self.address(), bytes: self.stride, host, place: self.place() }
    }

    /// Returns the place of the memory: GPU or host.
    pub(super) fn place(&self) -> Place {
        if self.is_on_device() { Place::Device } else { Place::Host }
    }

    /// Returns the address of this PE's heap, as its kernels see it.
    pub(super) fn address(&self) -> u64 {
        self.address_of(self.pe)
    }

    /// Returns the address of the heap of `pe`, as this PE's kernels see it.
    pub(super) fn address_of(&self, pe: usize) -> u64 {
        self.base + (pe * self.stride) as u64
    }

    /// Returns the bytes of each heap.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the bytes from one heap to the next.
    pub(super) fn stride(&self) -> usize {
        self.stride
    }

    /// Returns true if the heap is in GPU memory.
    pub(super) fn is_on_device(&self) -> bool {
        matches!(self.memory, Memory::Device { .. })
    }

    /// Checks that the bytes are inside a heap that this PE's loads and stores reach.
    fn check(&self, pe: usize, offset: usize, bytes: usize) -> Result<(), ShmemError> {
        if !self.reaches(pe) {
            return Err(ShmemError::OutOfReach { pe });
        }
        Ok(self.bounds(offset, bytes)?)
    }

    fn bounds(&self, offset: usize, bytes: usize) -> Result<(), MemoryError> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.bytes => Ok(()),
            _ => Err(MemoryError::OutOfBounds { offset, bytes, len: self.bytes }),
        }
    }

    /// Returns the host address of byte `at` of all heaps, which must be in bounds.
    fn host(all: &HostMemory, at: usize) -> *mut u8 {
        all.base().as_ptr().wrapping_add(at)
    }

    /// Copies bytes out of the heap of `pe`, a PE of the world.
    pub(super) fn read(&self, pe: usize, offset: usize, out: &mut [u8]) -> Result<(), ShmemError> {
        self.check(pe, offset, out.len())?;
        match &self.memory {
            Memory::Host { all, .. } => {
                let from = Self::host(all, pe * self.stride + offset);
                // SAFETY: inside the mapping, which lives as long as `self`; `out` is a separate allocation.
                unsafe { std::ptr::copy_nonoverlapping(from, out.as_mut_ptr(), out.len()) };
            }
            Memory::Device { context, .. } => {
                let bytes = out.len();
                context.copy_to_host(self.address_of(pe) + offset as u64, out).map_err(|source| MemoryError::Cuda {
                    what: "copying from a symmetric heap",
                    bytes,
                    source,
                })?;
            }
            Memory::Leaked => {}
        }
        Ok(())
    }

    /// Copies bytes into the heap of `pe`, a PE of the world.
    pub(super) fn write(&self, pe: usize, offset: usize, data: &[u8]) -> Result<(), ShmemError> {
        self.check(pe, offset, data.len())?;
        match &self.memory {
            Memory::Host { all, .. } => {
                let to = Self::host(all, pe * self.stride + offset);
                // SAFETY: inside the mapping, which lives as long as `self`; `data` is a separate allocation.
                unsafe { std::ptr::copy_nonoverlapping(data.as_ptr(), to, data.len()) };
            }
            Memory::Device { context, .. } => {
                let bytes = data.len();
                context
                    .copy_to_device(self.address_of(pe) + offset as u64, data)
                    .map_err(|source| MemoryError::Cuda { what: "copying to a symmetric heap", bytes, source })?;
            }
            Memory::Leaked => {}
        }
        Ok(())
    }

    /// Zeroes bytes of this PE's heap.
    pub(super) fn clear(&self, offset: usize, bytes: usize) -> Result<(), ShmemError> {
        self.bounds(offset, bytes)?;
        match &self.memory {
            Memory::Host { all, .. } => {
                let at = Self::host(all, self.pe * self.stride + offset);
                // SAFETY: inside the mapping, which lives as long as `self`.
                unsafe { std::ptr::write_bytes(at, 0, bytes) };
            }
            Memory::Device { context, .. } => context
                .fill(self.address() + offset as u64, bytes, 0)
                .map_err(|source| MemoryError::Cuda { what: "clearing a symmetric heap", bytes, source })?,
            Memory::Leaked => {}
        }
        Ok(())
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        if self.space.is_poisoned() {
            std::mem::forget(std::mem::replace(&mut self.memory, Memory::Leaked));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_names() {
        for kind in [HeapKind::Auto, HeapKind::Device, HeapKind::Host] {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        assert!("gpu".parse::<HeapKind>().unwrap_err().to_string().contains("auto, device or host"));
    }

    #[test]
    fn heaps_lie_side_by_side() {
        let all = Arc::new(HostMemory::private(3 * HEAP_ALIGN).unwrap());
        let heap = |pe| Heap::in_host_memory(&Space::cpu(), all.clone(), pe, 1000, HEAP_ALIGN).unwrap();
        let heaps: Vec<Heap> = (0..3).map(heap).collect();
        heaps[0].write(2, 990, &[1; 10]).unwrap();
        heaps[2].write(0, 0, &[2; 4]).unwrap();
        let mut got = [0; 10];
        heaps[2].read(2, 990, &mut got).unwrap();
        assert_eq!(got, [1; 10]);
        heaps[0].read(0, 0, &mut got[..4]).unwrap();
        assert_eq!(got[..4], [2; 4]);
        for (pe, heap) in heaps.iter().enumerate() {
            assert_eq!(heap.address(), heaps[0].address() + (pe * HEAP_ALIGN) as u64);
            assert_eq!(heap.address() % HEAP_ALIGN as u64, 0);
        }
        assert!(heaps[1].write(0, 991, &[0; 10]).is_err());
        assert!(heaps[1].read(0, usize::MAX, &mut got).is_err());
        heaps[2].clear(990, 10).unwrap();
        heaps[0].read(2, 990, &mut got).unwrap();
        assert_eq!(got, [0; 10]);
    }
}
