//! Stores to device registers from a CPU thread.
//!
//! A write to a register makes the device read memory, so everything that it reads must have been stored before. A page
//! may also be mapped write-combining (mlx5's BlueFlame registers on x86-64): the processor then buffers the store
//! until something flushes it. Rust's fences order threads, not devices. On ARM they are `dmb ish`, which does not
//! order accesses of a device on the bus. On x86-64 they need not flush the write-combining buffer.

use std::sync::atomic::{Ordering, fence};

/// Makes all earlier stores of this thread visible to devices before any later store, and flushes the processor's
/// write-combining buffers.
#[inline]
pub(crate) fn flush() {
    // Keeps the compiler from moving stores across the barriers below.
    fence(Ordering::SeqCst);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of x86-64; the instruction changes nothing.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier for the whole system, which changes nothing.
    unsafe {
        std::arch::asm!("dsb st", options(nostack, preserves_flags));
    }
}

/// Stores to a 64-bit register, after all earlier stores of this thread, and flushes the store at once.
///
/// # Safety
/// `register` must be a mapped address and a multiple of 8.
#[inline]
pub(crate) unsafe fn store64(register: *mut u64, value: u64) {
    flush();
    // SAFETY: this function's caller makes the same promise.
    unsafe { register.write_volatile(value) };
    flush();
}
