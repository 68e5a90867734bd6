//! XXH64, the 64-bit hash of the xxHash specification with seed 0, known to other tools (`xxhsum -H64`).

use std::fmt;
use xxhash_rust::xxh64::Xxh64;

/// Hash of bytes that are added in pieces.
#[derive(Clone)]
pub struct Checksum(Xxh64);

impl Default for Checksum {
    fn default() -> Self {
        Self(Xxh64::new(0))
    }
}

impl fmt::Debug for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Checksum({:#018x} so far)", self.finish())
    }
}

impl Checksum {
    /// Returns the hash of `bytes`.
    pub fn of(bytes: &[u8]) -> u64 {
        xxhash_rust::xxh64::xxh64(bytes, 0)
    }

    /// Adds bytes to the hash.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the hash of all bytes added so far.
    pub fn finish(&self) -> u64 {
        self.0.digest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Data stored by an earlier version has these hashes.
    #[test]
    fn published_values() {
        assert_eq!(Checksum::of(b""), 0xef46_db37_51d8_e999);
        assert_eq!(Checksum::of(b"a"), 0xd24e_c4f1_a98c_6e5b);
        let text = b"Nobody inspects the spammish repetition";
        assert_eq!(Checksum::of(text), 0xfbce_a83c_8a37_8bf1);
        let mut c = Checksum::default();
        text.chunks(7).for_each(|part| c.update(part));
        assert_eq!(c.finish(), 0xfbce_a83c_8a37_8bf1);
    }
}
