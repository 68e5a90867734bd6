//! Copies to and from memory that kernels and devices access concurrently. All accesses are atomic, so that a
//! race has a defined result.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

const WORD: usize = size_of::<u64>();
const HALF: usize = size_of::<u32>();
/// From this length on, one string instruction moves the words. Below it, the instruction's
/// setup takes longer than a loop. Miri runs no assembly, and has the loops for all lengths.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const STRING_BYTES: usize = 512;

/// Returns the number of bytes up to the next multiple of a word, at most `bytes`.
fn head(address: usize, bytes: usize) -> usize {
    (address.wrapping_neg() % WORD).min(bytes)
}

/// Copies to memory that kernels read. Where the target is aligned, it is written in whole words in rising order, so no
/// reader sees half of a word. A reader that sees a later release store also sees the copied bytes.
///
/// # Safety
/// `to` must be writable and `from` readable for `bytes` bytes. Other threads, kernels and devices may
/// change both ranges at any time.
pub(crate) unsafe fn store(to: *mut u8, from: *const u8, bytes: usize) {
    let first = head(to as usize, bytes);
    let words = (bytes - first) / WORD;
    // SAFETY: the three parts together are the range that the caller promises; `to` is aligned where the words begin.
    unsafe {
        narrow::<TO>(to, from, first);
        whole::<TO>(to.add(first), from.add(first), words);
        let done = first + words * WORD;
        narrow::<TO>(to.add(done), from.add(done), bytes - done);
    }
    fence(Ordering::Release);
}

/// Copies from memory that kernels write. Where the source is aligned, it is read in whole words.
///
/// # Safety
/// As [`store`].
pub(crate) unsafe fn load(to: *mut u8, from: *const u8, bytes: usize) {
    fence(Ordering::Acquire);
    let first = head(from as usize, bytes);
    let words = (bytes - first) / WORD;
    // SAFETY: the three parts together are the range that the caller promises. Whole words need the alignment of the
    // shared side only, and `from` is aligned where they begin.
    unsafe {
        narrow::<FROM>(to, from, first);
        whole::<FROM>(to.add(first), from.add(first), words);
        let done = first + words * WORD;
        narrow::<FROM>(to.add(done), from.add(done), bytes - done);
    }
}

/// Sets bytes that kernels read to one value, in whole words where they are aligned.
///
/// # Safety
/// `to` must be writable for `bytes` bytes. Other threads, kernels and devices may change the range at any time.
pub(crate) unsafe fn fill(to: *mut u8, value: u8, bytes: usize) {
    let first = head(to as usize, bytes);
    let words = (bytes - first) / WORD;
    let piece = [value; WORD];
    // SAFETY: the three parts together are the range that the caller promises; `to` is aligned where the words begin.
    unsafe {
        narrow::<TO>(to, piece.as_ptr(), first);
        repeat(to.add(first), u64::from_ne_bytes(piece), words);
        let done = first + words * WORD;
        narrow::<TO>(to.add(done), piece.as_ptr(), bytes - done);
    }
    fence(Ordering::Release);
}

/// Side of a copy that others access concurrently: the target or the source. Its accesses are atomic, in whole
/// words where it is aligned.
const TO: bool = true;
const FROM: bool = false;

/// Moves one value with the width of an unsigned integer.
macro_rules! piece {
    ($side:ident, $atomic:ty, $word:ty, $to:expr, $from:expr) => {
        if $side == TO {
            let value = $from.cast::<[u8; size_of::<$word>()]>().read_volatile();
            <$atomic>::from_ptr($to.cast()).store(<$word>::from_ne_bytes(value), Ordering::Relaxed);
        } else {
            let value = <$atomic>::from_ptr($from.cast_mut().cast()).load(Ordering::Relaxed);
            $to.cast::<[u8; size_of::<$word>()]>().write_volatile(value.to_ne_bytes());
        }
    };
}

/// Moves less than a word. Moves four bytes in one access where the shared side is aligned: flags
/// and counts have four bytes.
///
/// # Safety
/// As [`store`].
unsafe fn narrow<const SHARED: bool>(to: *mut u8, from: *const u8, bytes: usize) {
    let mut i = 0;
    while i < bytes {
        // SAFETY: within the ranges that the caller promises, and aligned.
        unsafe {
            let (to, from) = (to.add(i), from.add(i));
            let shared = if SHARED == TO { to as usize } else { from as usize };
            if bytes - i >= HALF && shared.is_multiple_of(HALF) {
                piece!(SHARED, AtomicU32, u32, to, from);
                i += HALF;
            } else {
                piece!(SHARED, AtomicU8, u8, to, from);
                i += 1;
            }
        }
    }
}

/// Moves whole words.
///
/// # Safety
/// As [`store`], for `words` words, and the shared side is aligned to a word.
unsafe fn whole<const SHARED: bool>(to: *mut u8, from: *const u8, words: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if words * WORD >= STRING_BYTES {
        // SAFETY: this function's caller makes the promise; the calling convention keeps the direction flag clear.
        unsafe { string(to, from, words) };
        return;
    }
    for at in (0..words).map(|i| i * WORD) {
        // SAFETY: within the ranges that the caller promises; the shared side is aligned.
        unsafe { piece!(SHARED, AtomicU64, u64, to.add(at), from.add(at)) };
    }
}

/// Sets whole words to one value.
///
/// # Safety
/// As [`fill`], for `words` words, and the range is aligned to a word.
unsafe fn repeat(to: *mut u8, value: u64, words: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if words * WORD >= STRING_BYTES {
        // SAFETY: writes the range that the caller promises, and nothing else. Each aligned word is one access. The
        // calling convention keeps the direction flag clear.
        unsafe {
            std::arch::asm!(
                "rep stosq",
                inout("rcx") words => _, inout("rdi") to => _, in("rax") value,
                options(nostack, preserves_flags),
            );
        }
        return;
    }
    for i in 0..words {
        // SAFETY: within the range that the caller promises, and aligned.
        unsafe { AtomicU64::from_ptr(to.add(i * WORD).cast()).store(value, Ordering::Relaxed) };
    }
}

/// Moves words with the processor's string instruction. Each aligned word is one access.
///
/// # Safety
/// As [`store`], for `words` words.
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn string(to: *mut u8, from: *const u8, words: usize) {
    // SAFETY: reads and writes the ranges that the caller promises, and nothing else.
    unsafe {
        std::arch::asm!(
            "rep movsq",
            inout("rcx") words => _, inout("rdi") to => _, inout("rsi") from => _,
            options(nostack, preserves_flags),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of a target beside those that are written. Few, as Miri takes most of its time for the comparison.
    const GUARD: usize = 24;

    #[test]
    fn every_length_and_alignment_is_copied() {
        let from: Vec<u8> = (0..2048u32).map(|i| (i * 7 + i / 251) as u8).collect();
        for bytes in [0, 1, 7, 8, 9, 63, 511, 512, 1000] {
            for to_at in 0..9 {
                for from_at in [0, 1, 5, 8] {
                    for way in [store, load] {
                        let mut target = vec![0xee; bytes + GUARD];
                        // SAFETY: both ranges lie in their vectors.
                        unsafe { way(target.as_mut_ptr().add(to_at), from.as_ptr().add(from_at), bytes) };
                        assert_eq!(target[to_at..to_at + bytes], from[from_at..from_at + bytes]);
                        assert!(target[..to_at].iter().chain(&target[to_at + bytes..]).all(|b| *b == 0xee));
                    }
                }
            }
        }
    }

    #[test]
    fn every_length_and_alignment_is_filled() {
        for bytes in [0, 1, 3, 4, 7, 8, 9, 100, 511, 512, 1000] {
            for at in 0..9 {
                let mut target = vec![0xee; bytes + GUARD];
                // SAFETY: the range lies in the vector.
                unsafe { fill(target.as_mut_ptr().add(at), 0x11, bytes) };
                assert!(target[at..at + bytes].iter().all(|b| *b == 0x11));
                assert!(target[..at].iter().chain(&target[at + bytes..]).all(|b| *b == 0xee));
            }
        }
    }
}
