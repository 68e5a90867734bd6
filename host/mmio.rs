//! Stores to registers of devices, from a CPU thread.
//!
//! A device reads memory when its register is written, so what it finds there must have been stored before; and a register whose page is
//! mapped write-combining (mlx5's BlueFlame registers, on x86-64) keeps a store in a buffer of the processor until something flushes it.
//! The fences of the language order threads, not devices: on ARM they are `dmb ish`, which says nothing to a device on the bus, and on
//! x86-64 a fence that flushes nothing is enough for threads.

use std::sync::atomic::{Ordering, fence};

/// Everything that this thread has stored is there for devices before what it stores afterwards; and what is in a write-combining buffer
/// leaves it.
#[inline]
pub(crate) fn flush() {
    // The compiler moves no store across either, and other processors have no more to say here.
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

/// Stores to a 64-bit register, behind all that was stored before, and at once.
///
/// # Safety
/// `register` must be mapped and a multiple of 8.
#[inline]
pub(crate) unsafe fn store64(register: *mut u64, value: u64) {
    flush();
    // SAFETY: the caller's promise.
    unsafe { register.write_volatile(value) };
    flush();
}
