//! Copies blocks from a store to the pages that a command names, and makes them visible before the command's
//! completion.
//!
//! A GPU reads the pages over PCIe, so caching them on the CPU would only evict useful data. Non-temporal stores, which
//! bypass the cache, are faster there. Kernels on CPU threads read the same pages from the cache, so they get ordinary
//! copies.

use std::sync::atomic::{Ordering, fence};

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64 as arch;

/// Widest non-temporal store that this processor has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mover {
    Plain,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

impl Mover {
    pub(crate) fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx512f") {
                return Self::Avx512;
            }
            if is_x86_feature_detected!("avx2") {
                return Self::Avx2;
            }
        }
        Self::Plain
    }

    /// Copies with non-temporal stores if the processor has them and `to` is aligned. [`publish`] orders the copy
    /// before later stores.
    ///
    /// # Safety
    /// `from` must be readable and `to` writable for `bytes`, and the two must not overlap.
    #[inline]
    pub(crate) unsafe fn stream(self, to: *mut u8, from: *const u8, bytes: usize) {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 if (to as usize).is_multiple_of(64) => {
                // SAFETY: `detect` found AVX-512F, `to` is aligned, and the caller vouches for the ranges.
                unsafe { stream_avx512(to, from, bytes) }
            }
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 if (to as usize).is_multiple_of(32) => {
                // SAFETY: `detect` found AVX2, `to` is aligned, and the caller vouches for the ranges.
                unsafe { stream_avx2(to, from, bytes) }
            }
            // SAFETY: this function's caller makes the same promise.
            _ => unsafe { std::ptr::copy_nonoverlapping(from, to, bytes) },
        }
    }
}

/// Copies with AVX-512 stores.
///
/// # Safety
/// As [`Mover::stream`]; the processor has AVX-512F and `to` is a multiple of 64.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn stream_avx512(to: *mut u8, from: *const u8, bytes: usize) {
    const STEP: usize = 64;
    let whole = bytes / STEP * STEP;
    let mut i = 0;
    while i < whole {
        // SAFETY: `i + 64 <= bytes`, `to + i` is aligned to 64, and the load needs no alignment.
        unsafe { arch::_mm512_stream_si512(to.add(i).cast(), arch::_mm512_loadu_si512(from.add(i).cast())) };
        i += STEP;
    }
    // SAFETY: the remainder of the same ranges.
    unsafe { std::ptr::copy_nonoverlapping(from.add(whole), to.add(whole), bytes - whole) };
}

/// Copies with AVX2 stores.
///
/// # Safety
/// As [`Mover::stream`]; the processor has AVX2 and `to` is a multiple of 32.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn stream_avx2(to: *mut u8, from: *const u8, bytes: usize) {
    const STEP: usize = 32;
    let whole = bytes / STEP * STEP;
    let mut i = 0;
    while i < whole {
        // SAFETY: `i + 32 <= bytes`, `to + i` is aligned to 32, and the load needs no alignment.
        unsafe { arch::_mm256_stream_si256(to.add(i).cast(), arch::_mm256_loadu_si256(from.add(i).cast())) };
        i += STEP;
    }
    // SAFETY: the remainder of the same ranges.
    unsafe { std::ptr::copy_nonoverlapping(from.add(whole), to.add(whole), bytes - whole) };
}

/// Orders all earlier data stores, non-temporal or not, before the completion entries that are stored afterwards.
#[inline]
pub(crate) fn publish() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of x86-64.
    unsafe {
        arch::_mm_sfence()
    };
    fence(Ordering::Release);
}

/// Largest block in bytes that is prefetched as a whole.
pub(crate) const SMALL: usize = 512;

/// Prefetches a block of `bytes` bytes: all of a small one, the first cache lines of a larger one. The processor's own prefetcher
/// continues from there.
#[inline]
pub(crate) fn prefetch(from: *const u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    for line in 0..if bytes <= SMALL { bytes.div_ceil(64) } else { 4 } {
        // SAFETY: a prefetch has no architectural effect, whatever the address.
        unsafe { arch::_mm_prefetch::<{ arch::_MM_HINT_T0 }>(from.wrapping_add(64 * line).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (from, bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mover_copies_every_length_and_alignment() {
        let from: Vec<u8> = (0..8192u32).map(|i| (i * 7 + i / 251) as u8).collect();
        #[allow(unused_mut)]
        let mut movers = vec![Mover::Plain];
        #[cfg(target_arch = "x86_64")]
        {
            movers.extend(is_x86_feature_detected!("avx2").then_some(Mover::Avx2));
            movers.extend(is_x86_feature_detected!("avx512f").then_some(Mover::Avx512));
        }
        for m in movers {
            for (to, at, bytes) in [(0, 0, 4096), (0, 1, 512), (64, 3, 100), (4, 0, 4092), (32, 8, 33), (0, 0, 0)] {
                let mut target = [u64::from_ne_bytes([0xee; 8]); 1024];
                let base = target.as_mut_ptr().cast::<u8>();
                // The array is aligned to 8 only, so the offset is relative to the first multiple of 64.
                let to = base.align_offset(64) + to;
                // SAFETY: both ranges lie within their arrays (at most 64 + 64 + 4096 bytes of 8192).
                unsafe { m.stream(base.add(to), from.as_ptr().add(at), bytes) };
                publish();
                let target: &[u8] = bytemuck::cast_slice(&target);
                assert_eq!(target[to..to + bytes], from[at..at + bytes], "{m:?}");
                assert!(target[..to].iter().chain(&target[to + bytes..]).all(|b| *b == 0xee), "{m:?} wrote outside");
            }
        }
    }
}
