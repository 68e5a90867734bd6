//! GPU memory in the CPU's address space, through GDRCopy's kernel module. Loads and stores of the CPU reach the memory
//! through BAR1, without a call of the driver.

use super::gdrdrv::{self, Pinned};
use super::site::{DriverDmaBuf, Site};
use super::syscalls::Mapping;
use super::{BackendError, Linux, MappingBackend, MappingError, Syscalls};
use crate::memory::{MemoryError, Region};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

/// Bytes of a wide load.
#[cfg(target_arch = "x86_64")]
const WIDE: usize = 16;
const WORD: usize = size_of::<u64>();

/// A CPU mapping of GPU memory. It keeps the memory.
///
/// # Examples
///
/// ```no_run
/// use warpbell::engine::Engine;
/// use warpbell::memory::Place;
/// use warpbell::memory::mapping::{CpuView, GPU_PAGE};
///
/// let region = Engine::gpu(0)?.allocate(Place::Device, GPU_PAGE)?;
/// let view = CpuView::open(&region)?;
/// let mut word = [0; 8];
/// view.read(0, &mut word)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct CpuView {
    cpu: Mapping,
    _pinned: Pinned,
    region: Region,
}

impl CpuView {
    /// Maps GPU memory of whole pages of 65,536 bytes ([`GPU_PAGE`](super::GPU_PAGE)) with GDRCopy's module.
    ///
    /// # Errors
    /// [`MappingError::MappingBackend`] if the module is missing or of another version, or refuses the memory; or if
    /// the CPU does not see in the mapping what the GPU wrote.
    pub fn open(region: &Region) -> Result<Self, MappingError> {
        Self::with(&(Arc::new(Linux) as Arc<dyn Syscalls>), region)
    }

    /// Maps GPU memory with other system calls.
    pub(super) fn with(sys: &Arc<dyn Syscalls>, region: &Region) -> Result<Self, MappingError> {
        let backend = MappingBackend::Gdrdrv;
        let site = Site { sys, export: &DriverDmaBuf, region, device: None };
        let mapped = site.whole_pages().and_then(|()| gdrdrv::map_into_cpu(&site));
        let (cpu, pinned) = mapped.map_err(|error: BackendError| MappingError::MappingBackend {
            device: "the CPU".to_owned(),
            backend,
            reason: error.to_string(),
            next: error.next(backend, sys.as_ref()),
        })?;
        Ok(Self { cpu, _pinned: pinned, region: region.clone() })
    }

    /// Copies bytes out of GPU memory by loads of the CPU. `offset` is in bytes. Loads are wide and do not fill the CPU's
    /// cache where the processor has such loads (x86 with SSE4.1) and `offset` is a multiple of 16.
    ///
    /// # Errors
    /// [`MemoryError::OutOfBounds`] if the range exceeds the memory.
    pub fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), MemoryError> {
        self.region.check(offset, out.len())?;
        // Loads that bypass the cache are ordered with earlier stores by a full fence only.
        fence(Ordering::SeqCst);
        // SAFETY: the range lies in the mapping, which lives as long as `self`.
        unsafe { copy_out(self.cpu.base.as_ptr().add(offset), out) };
        Ok(())
    }

    /// Copies bytes into GPU memory by stores of the CPU. `offset` is in bytes. Kernels that start afterwards see them.
    ///
    /// # Errors
    /// As for [`CpuView::read`].
    pub fn write(&self, offset: usize, data: &[u8]) -> Result<(), MemoryError> {
        self.region.check(offset, data.len())?;
        // SAFETY: the range lies in the mapping, which lives as long as `self`.
        unsafe { copy_in(self.cpu.base.as_ptr().add(offset), data) };
        // The mapping combines writes: the fence sends what the CPU has gathered.
        fence(Ordering::SeqCst);
        Ok(())
    }
}

impl std::fmt::Debug for CpuView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CpuView({:#x}, {} bytes)", self.region.address(), self.region.len())
    }
}

/// # Safety
/// `from` must have `out.len()` readable bytes.
unsafe fn copy_out(from: *const u8, out: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if from.addr().is_multiple_of(WIDE) && std::arch::is_x86_feature_detected!("sse4.1") {
        let wide = out.len() / WIDE * WIDE;
        // SAFETY: the processor has the instruction, and the address is a multiple of 16. The rest is the caller's promise.
        unsafe {
            copy_out_wide(from, &mut out[..wide]);
            return copy_out_words(from.add(wide), &mut out[wide..]);
        }
    }
    // SAFETY: this function's caller makes the same promise.
    unsafe { copy_out_words(from, out) }
}

/// # Safety
/// As [`copy_out`]; `from` is a multiple of 16, and so is the length.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "sse4.1")]
unsafe fn copy_out_wide(from: *const u8, out: &mut [u8]) {
    use std::arch::x86_64::{__m128i, _mm_storeu_si128, _mm_stream_load_si128};
    for (i, to) in out.chunks_exact_mut(WIDE).enumerate() {
        // SAFETY: 16 readable bytes at an aligned address, and 16 bytes of `out`.
        unsafe {
            let value = _mm_stream_load_si128(from.add(i * WIDE).cast::<__m128i>());
            _mm_storeu_si128(to.as_mut_ptr().cast::<__m128i>(), value);
        }
    }
}

/// # Safety
/// As [`copy_out`].
unsafe fn copy_out_words(from: *const u8, out: &mut [u8]) {
    let aligned = from.addr().is_multiple_of(WORD);
    let words = if aligned { out.len() / WORD * WORD } else { 0 };
    let (whole, rest) = out.split_at_mut(words);
    for (i, to) in whole.chunks_exact_mut(WORD).enumerate() {
        // SAFETY: an aligned word in the range.
        to.copy_from_slice(&unsafe { from.add(i * WORD).cast::<u64>().read_volatile() }.to_ne_bytes());
    }
    for (i, to) in rest.iter_mut().enumerate() {
        // SAFETY: a byte in the range.
        *to = unsafe { from.add(words + i).read_volatile() };
    }
}

/// # Safety
/// `to` must have `data.len()` writable bytes.
unsafe fn copy_in(to: *mut u8, data: &[u8]) {
    let words = if to.addr().is_multiple_of(WORD) { data.len() / WORD * WORD } else { 0 };
    let (whole, rest) = data.split_at(words);
    for (i, word) in whole.as_chunks::<WORD>().0.iter().enumerate() {
        // SAFETY: an aligned word in the range.
        unsafe { to.add(i * WORD).cast::<u64>().write_volatile(u64::from_ne_bytes(*word)) };
    }
    for (i, byte) in rest.iter().enumerate() {
        // SAFETY: a byte in the range.
        unsafe { to.add(words + i).write_volatile(*byte) };
    }
}
