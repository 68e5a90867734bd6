//! HMAC-SHA256 (RFC 2104, FIPS 180-4).

use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};

/// Bytes of a derived key.
pub(super) const TAG: usize = 32;
/// Bytes of a SHA-256 block.
const BLOCK: usize = 64;

/// Creates an HMAC with a key of any length.
pub(crate) fn keyed(key: &[u8]) -> Hmac<Sha256> {
    // First step of HMAC (FIPS 198-1, 4): a key longer than a block is hashed, a shorter one is padded with zeroes.
    let mut block = [0; BLOCK];
    if key.len() <= BLOCK {
        block[..key.len()].copy_from_slice(key);
    } else {
        let digest = Sha256::digest(key);
        block[..digest.len()].copy_from_slice(&digest);
    }
    Hmac::new(&block.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_standards() {
        let hex = |key: &[u8], text: &str| -> String {
            let tag = keyed(key).chain_update(text).finalize().into_bytes();
            tag.iter().map(|b| format!("{b:02x}")).collect()
        };
        // RFC 4231, test cases 1, 2 and 6. The key of case 6 is longer than a block.
        assert_eq!(hex(&[0x0b; 20], "Hi There"), "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
        assert_eq!(
            hex(b"Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        assert_eq!(
            hex(&[0xaa; 131], "Test Using Larger Than Block-Size Key - Hash Key First"),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        );
    }
}
