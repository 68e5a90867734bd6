//! Proofs and keys: HMAC-SHA256 (RFC 2104, FIPS 180-4) keyed by the shared secret.

use crate::shmem::bootstrap::Secret;
use crate::shmem::bootstrap::secret::keyed;
use hmac::{Hmac, Mac};
use sha2::Sha256;

/// Bytes of a tag.
pub(super) const TAG: usize = 32;

/// What one end is in a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Member,
    Store,
}

impl End {
    fn name(self) -> &'static [u8] {
        match self {
            Self::Member => b"member",
            Self::Store => b"store",
        }
    }
}

/// What both ends of a connection know once their random numbers are exchanged.
pub(super) struct Greeted {
    secret: Secret,
    /// The version and both random numbers, the member's first.
    numbers: [u8; 2 + 32 + 32],
}

impl Greeted {
    pub(super) fn new(secret: &Secret, version: u16, member: &[u8; 32], store: &[u8; 32]) -> Self {
        let mut numbers = [0; 66];
        numbers[..2].copy_from_slice(&version.to_le_bytes());
        numbers[2..34].copy_from_slice(member);
        numbers[34..].copy_from_slice(store);
        Self { secret: secret.clone(), numbers }
    }

    fn derive(&self, purpose: &[u8], end: End) -> Hmac<Sha256> {
        keyed(self.secret.bytes()).chain_update(purpose).chain_update(end.name()).chain_update(self.numbers)
    }

    /// What this end sends to show that it knows the secret.
    pub(super) fn proof(&self, end: End) -> [u8; TAG] {
        self.derive(b"proof of ", end).finalize().into_bytes().into()
    }

    /// Whether that is the other end's proof, in a time that does not depend on how much of it is right.
    pub(super) fn proves(&self, end: End, proof: &[u8; TAG]) -> bool {
        self.derive(b"proof of ", end).verify_slice(proof).is_ok()
    }

    /// The seal of what this end says.
    pub(super) fn seal(&self, end: End) -> Seal {
        Seal { key: self.derive(b"key of ", end).finalize().into_bytes().into(), next: 0 }
    }
}

/// The authenticity of one direction of a connection: each message's tag covers its number.
pub(super) struct Seal {
    key: [u8; TAG],
    next: u64,
}

impl Seal {
    /// One that everybody has.
    pub(super) fn of_nobody() -> Self {
        Self { key: [0; TAG], next: 0 }
    }

    fn mac(&mut self, length: &[u8], bytes: &[u8]) -> Hmac<Sha256> {
        let number = self.next;
        self.next += 1;
        keyed(&self.key).chain_update(number.to_le_bytes()).chain_update(length).chain_update(bytes)
    }

    /// The tag of the next message.
    pub(super) fn tag(&mut self, length: &[u8], bytes: &[u8]) -> [u8; TAG] {
        self.mac(length, bytes).finalize().into_bytes().into()
    }

    /// Whether the next message is authentic.
    pub(super) fn opens(&mut self, length: &[u8], bytes: &[u8], tag: &[u8]) -> bool {
        self.mac(length, bytes).verify_slice(tag).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn greeted(secret: &str, member: u8, store: u8) -> Greeted {
        Greeted::new(&Secret::new(secret.as_bytes()).unwrap(), 1, &[member; 32], &[store; 32])
    }

    #[test]
    fn the_mac_is_the_standards() {
        // RFC 4231, test case 2.
        let tag: [u8; TAG] =
            keyed(b"Jefe").chain_update(b"what do ya want for nothing?").finalize().into_bytes().into();
        let hex: String = tag.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
        // Test case 6: a key of more than a block.
        let tag: [u8; TAG] = keyed(&[0xaa; 131])
            .chain_update("Test Using Larger Than Block-Size Key - Hash Key First")
            .finalize()
            .into_bytes()
            .into();
        let hex: String = tag.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
    }

    #[test]
    fn a_proof_is_good_for_one_secret_one_end_and_one_connection() {
        let a = greeted("0123456789abcdef", 1, 2);
        let proof = a.proof(End::Member);
        assert!(a.proves(End::Member, &proof));
        assert!(!a.proves(End::Store, &proof), "reflected");
        assert!(!greeted("0123456789abcdeg", 1, 2).proves(End::Member, &proof), "another secret");
        assert!(!greeted("0123456789abcdef", 1, 3).proves(End::Member, &proof), "replayed to another challenge");
        assert!(!greeted("0123456789abcdef", 3, 2).proves(End::Member, &proof));
    }

    #[test]
    fn a_message_is_good_once_in_its_place() {
        let a = greeted("0123456789abcdef", 1, 2);
        let (mut out, mut back) = (a.seal(End::Member), a.seal(End::Member));
        let (first, second) = (out.tag(&[1], b"a"), out.tag(&[1], b"a"));
        assert_ne!(first, second);
        assert!(back.opens(&[1], b"a", &first));
        assert!(!back.opens(&[1], b"a", &first), "replayed");
        let mut back = a.seal(End::Member);
        assert!(!back.opens(&[1], b"a", &second), "reordered");
        let mut other = a.seal(End::Store);
        assert!(!other.opens(&[1], b"a", &first), "reflected");
    }
}
