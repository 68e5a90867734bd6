//! Moving bytes and changing words that kernels read and write meanwhile.

use crate::wire::mlx5::Atomic;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

const WORD: usize = size_of::<u64>();
/// From here on one instruction moves the words; below it, setting it up takes longer than a loop.
#[cfg(target_arch = "x86_64")]
const STRING_BYTES: usize = 512;

/// Bytes up to the next multiple of a word.
fn head(address: usize, bytes: usize) -> usize {
    (address.wrapping_neg() % WORD).min(bytes)
}

/// Copies to memory that kernels read: whole words where the target is aligned, in rising order, so that no reader sees half of one.
/// What is stored with release order afterwards is seen after it.
///
/// # Safety
/// `to` must be writable and `from` readable for `bytes`. Either may be changed by others at any time.
pub(super) unsafe fn store(to: *mut u8, from: *const u8, bytes: usize) {
    let first = head(to as usize, bytes);
    let words = (bytes - first) / WORD;
    // SAFETY: the three parts together are the range that the caller promises; `to` is aligned where the words begin.
    unsafe {
        single(to, from, first);
        whole(to.add(first), from.add(first), words);
        let done = first + words * WORD;
        single(to.add(done), from.add(done), bytes - done);
    }
    fence(Ordering::Release);
}

/// Copies from memory that kernels write: whole words where the source is aligned.
///
/// # Safety
/// As [`store`].
pub(super) unsafe fn load(to: *mut u8, from: *const u8, bytes: usize) {
    fence(Ordering::Acquire);
    let first = head(from as usize, bytes);
    let words = (bytes - first) / WORD;
    // SAFETY: as in `store`; whole words need the alignment of one side only, and `from` is aligned where they begin.
    unsafe {
        single(to, from, first);
        whole_from(to.add(first), from.add(first), words);
        let done = first + words * WORD;
        single(to.add(done), from.add(done), bytes - done);
    }
}

/// # Safety
/// As [`store`].
unsafe fn single(to: *mut u8, from: *const u8, bytes: usize) {
    for i in 0..bytes {
        // SAFETY: within the ranges that the caller promises; bytes are always aligned.
        unsafe { AtomicU8::from_ptr(to.add(i)).store(from.add(i).read_volatile(), Ordering::Relaxed) };
    }
}

/// # Safety
/// As [`store`], for `words` words, and `to` is aligned.
unsafe fn whole(to: *mut u8, from: *const u8, words: usize) {
    #[cfg(target_arch = "x86_64")]
    if words * WORD >= STRING_BYTES {
        // SAFETY: the caller's promise; the direction flag is clear by the calling convention.
        unsafe { string(to, from, words) };
        return;
    }
    for i in 0..words {
        // SAFETY: within the ranges that the caller promises; `to` is aligned to a word.
        unsafe {
            let word = from.add(i * WORD).cast::<[u8; WORD]>().read_volatile();
            AtomicU64::from_ptr(to.add(i * WORD).cast()).store(u64::from_ne_bytes(word), Ordering::Relaxed);
        }
    }
}

/// # Safety
/// As [`store`], for `words` words, and `from` is aligned.
unsafe fn whole_from(to: *mut u8, from: *const u8, words: usize) {
    #[cfg(target_arch = "x86_64")]
    if words * WORD >= STRING_BYTES {
        // SAFETY: the caller's promise; the direction flag is clear by the calling convention.
        unsafe { string(to, from, words) };
        return;
    }
    for i in 0..words {
        // SAFETY: within the ranges that the caller promises; `from` is aligned to a word.
        unsafe {
            let word = AtomicU64::from_ptr(from.add(i * WORD).cast_mut().cast()).load(Ordering::Relaxed);
            to.add(i * WORD).cast::<[u8; WORD]>().write_volatile(word.to_ne_bytes());
        }
    }
}

/// Moves words by the processor's string instruction. An aligned word is one access.
///
/// # Safety
/// As [`store`], for `words` words.
#[cfg(target_arch = "x86_64")]
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

/// Carries an atomic operation out on a word that kernels may use meanwhile. Answers what it held; what was stored before is seen by
/// whoever sees the new value.
///
/// # Safety
/// `at` must be valid for [`Atomic::operand_bytes`] bytes and aligned to them.
pub(super) unsafe fn change(at: *mut u8, action: &Atomic) -> u64 {
    let next = |old: u64| Some(action.apply(old));
    if action.operand_bytes() as usize == size_of::<u32>() {
        // SAFETY: the caller's promise.
        let word = unsafe { AtomicU32::from_ptr(at.cast()) };
        let old = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, |v| next(v.into()).map(|n| n as u32));
        return old.unwrap_or_else(|v| v).into();
    }
    // SAFETY: the caller's promise.
    let word = unsafe { AtomicU64::from_ptr(at.cast()) };
    match *action {
        Atomic::FetchAdd { add } => word.fetch_add(add, Ordering::AcqRel),
        _ => word.fetch_update(Ordering::AcqRel, Ordering::Acquire, next).unwrap_or_else(|v| v),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_and_alignment_is_copied() {
        let from: Vec<u8> = (0..2048u32).map(|i| (i * 7 + i / 251) as u8).collect();
        for bytes in [0, 1, 7, 8, 9, 63, 511, 512, 1000] {
            for to_at in 0..9 {
                for from_at in [0, 1, 5, 8] {
                    for way in [store, load] {
                        let mut target = vec![0xee; 2048];
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
    fn words_are_changed_by_their_operation() {
        let mut words = [5u64, 0x1_0000_0007];
        let p = words.as_mut_ptr().cast::<u8>();
        // SAFETY: both words are in the array and aligned.
        unsafe {
            assert_eq!(change(p, &Atomic::FetchAdd { add: 2 }), 5);
            assert_eq!(change(p, &Atomic::CompareSwap { swap: 9, compare: 7 }), 7);
            assert_eq!(change(p.add(8), &Atomic::MaskedAdd32 { add: u32::MAX, boundary: 0 }), 7);
        }
        assert_eq!(words, [9, 0x1_0000_0006], "a 32-bit add leaves the other half alone");
    }
}
