//! Keys of objects.

use crate::storage::error::KvError;
use std::fmt;

/// Sizes of keys in bytes.
const SIZES: [usize; 2] = [16, 32];
/// Bytes of the largest key.
pub(super) const MOST: usize = 32;

/// Key of an object: 16 or 32 bytes, as many as those of all keys of its store. Servers use hashes of tokens.
///
/// # Examples
///
/// ```
/// use warpbell::storage::KvKey;
///
/// let key = KvKey::from([7u8; 16]);
/// assert_eq!(KvKey::new(&[7; 16])?, key);
/// assert_eq!(key.as_bytes(), [7; 16]);
/// assert!(KvKey::new(b"too short").is_err());
/// # Ok::<(), warpbell::storage::KvError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KvKey {
    /// The key's bytes, then zeros.
    bytes: [u8; MOST],
    len: u8,
}

impl KvKey {
    /// Makes a key of 16 or 32 bytes.
    ///
    /// # Errors
    /// [`KvError::KeyBytes`] for any other number of bytes.
    pub fn new(bytes: &[u8]) -> Result<Self, KvError> {
        if !SIZES.contains(&bytes.len()) {
            return Err(KvError::KeyBytes { given: bytes.len() });
        }
        let mut key = Self { bytes: [0; MOST], len: bytes.len() as u8 };
        key.bytes[..bytes.len()].copy_from_slice(bytes);
        Ok(key)
    }

    /// Returns the bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl From<[u8; 16]> for KvKey {
    fn from(bytes: [u8; 16]) -> Self {
        let mut key = Self { bytes: [0; MOST], len: 16 };
        key.bytes[..16].copy_from_slice(&bytes);
        key
    }
}

impl From<[u8; 32]> for KvKey {
    fn from(bytes: [u8; 32]) -> Self {
        Self { bytes, len: 32 }
    }
}

/// Hexadecimal digits.
impl fmt::Display for KvKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for KvKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KvKey({self})")
    }
}
