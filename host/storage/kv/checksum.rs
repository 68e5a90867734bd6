//! Checksum of an object's data: a sum that the threads of a GPU compute in any order.
//!
//! The data are words of 64 bits, little-endian. Zeros complete the last one. Numbers wrap around at 2^64:
//!
//! ```text
//! checksum(data) = mix(bytes) + sum over i of mix(word[i] + (i + 1) * STEP)
//!
//! mix(z):  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
//!          z = (z ^ (z >> 27)) * 0x94d049bb133111eb
//!          return z ^ (z >> 31)
//! ```
//!
//! `mix` is the output function of SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014),
//! `STEP` its increment. The length counts as word 0. A kernel gives each thread any words of the object. A warp adds the
//! terms of its lanes, and one lane adds this sum to the object's by an atomic. One thread adds `mix(bytes)`.
//!
//! `mix` is a bijection, so any change within one word changes the checksum: each flipped bit is found. Terms depend on the
//! place of the word, so exchanged words are found unless two sums of different terms are equal by chance, 1 in 2^64. A sum
//! of words times odd numbers would be cheaper by little, and would not find pairs of exchanges that cancel each other.

/// Increment of SplitMix64: 2^64 divided by the golden ratio, an odd number.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
const WORD: usize = size_of::<u64>();

/// Output function of SplitMix64, a bijection.
#[inline]
fn mix(z: u64) -> u64 {
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// Returns the sum of the terms of words from word `first` of an object on. `part` ends with a whole word or with the object.
fn terms(first: u64, part: &[u8]) -> u64 {
    let (words, rest) = part.as_chunks::<WORD>();
    let mut step = (first + 1).wrapping_mul(STEP);
    let mut sum = 0u64;
    for word in words {
        sum = sum.wrapping_add(mix(u64::from_le_bytes(*word).wrapping_add(step)));
        step = step.wrapping_add(STEP);
    }
    if !rest.is_empty() {
        let mut last = [0; WORD];
        last[..rest.len()].copy_from_slice(rest);
        sum = sum.wrapping_add(mix(u64::from_le_bytes(last).wrapping_add(step)));
    }
    sum
}

/// Returns the checksum of an object's data, as [`KvReservation::commit`](crate::storage::KvReservation::commit) takes it.
/// `docs/kv-store.md` has the definition, for kernels and other languages.
pub fn kv_checksum(data: &[u8]) -> u64 {
    of_terms(data.len() as u64, terms(0, data))
}

/// Returns the checksum of an object of `bytes` bytes from the sum of the terms of its words, as kernels compute it.
pub(super) fn of_terms(bytes: u64, terms: u64) -> u64 {
    mix(bytes).wrapping_add(terms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn block() -> Vec<u8> {
        (0..512u32).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 11) as u8).collect()
    }

    /// Objects stored by an earlier version have these checksums.
    #[test]
    fn values_stay() {
        assert_eq!(kv_checksum(b""), 0);
        assert_eq!(kv_checksum(&[0; 8]), mix(8).wrapping_add(mix(STEP)));
        assert_eq!(mix(STEP), 0xe220_a839_7b1d_cdaf, "the first number of SplitMix64 with seed 0");
        // Computed by a program in Python from the definition above.
        assert_eq!(kv_checksum(b"warpbell kv"), 0x44f3_3a6d_caec_818d);
    }

    #[test]
    fn each_flipped_bit_and_each_other_length_is_found() {
        let data = block();
        let sum = kv_checksum(&data);
        for bit in 0..data.len() * 8 {
            let mut other = data.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(kv_checksum(&other), sum, "bit {bit}");
        }
        // Words of zeros count, too.
        let zeros: std::collections::BTreeSet<u64> = (0..300).map(|n| kv_checksum(&vec![0; n])).collect();
        assert_eq!(zeros.len(), 300);
    }

    #[test]
    fn exchanged_words_are_found_also_in_pairs() {
        let data = block();
        let sum = kv_checksum(&data);
        for (i, j) in (0..64).flat_map(|i| (0..i).map(move |j| (i, j))) {
            let mut other = data.clone();
            for byte in 0..8 {
                other.swap(i * 8 + byte, j * 8 + byte);
            }
            assert!(other == data || kv_checksum(&other) != sum, "words {i} and {j}");
        }
        let (a, b) = ([1u8; 4096], [2u8; 4096]);
        assert_ne!(kv_checksum(&[a, b, b, a].concat()), kv_checksum(&[b, a, a, b].concat()));
    }

    proptest! {
        #[test]
        fn parts_add_up_in_any_order(data in prop::collection::vec(any::<u8>(), 0..2000), words in 1usize..40) {
            let parts = data.chunks(words * WORD).enumerate().rev();
            let sum = parts.fold(mix(data.len() as u64), |sum, (i, part)| {
                sum.wrapping_add(terms((i * words) as u64, part))
            });
            prop_assert_eq!(sum, kv_checksum(&data));
        }
    }
}
