//! Proofs and seals: HMAC-SHA256 (RFC 2104) with the key that all adapters of a world share.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Bytes of the key, of a random number, and of a tag.
pub(super) const KEY: usize = 32;
const BLOCK: usize = 64;

/// Which end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Initiator,
    Responder,
}

impl End {
    fn name(self) -> &'static [u8] {
        match self {
            Self::Initiator => b"initiator",
            Self::Responder => b"responder",
        }
    }
}

/// What both ends know once they have greeted.
#[derive(Clone)]
pub(super) struct Greeted {
    key: [u8; KEY],
    said: Vec<u8>,
}

impl Greeted {
    /// `said` is all that went over the wire before the proofs, in order.
    pub(super) fn new(key: &[u8; KEY], said: Vec<u8>) -> Self {
        Self { key: *key, said }
    }

    fn derive(&self, purpose: &[u8], end: End) -> Hmac<Sha256> {
        keyed(&self.key).chain_update(purpose).chain_update(end.name()).chain_update(&self.said)
    }

    /// Shows that this end knows the key.
    pub(super) fn proof(&self, end: End) -> [u8; KEY] {
        self.derive(b"proof of ", end).finalize().into_bytes().into()
    }

    /// Whether that is the end's proof.
    pub(super) fn proves(&self, end: End, proof: &[u8; KEY]) -> bool {
        self.derive(b"proof of ", end).verify_slice(proof).is_ok()
    }

    /// The seal of what this end says.
    pub(super) fn seal(&self, end: End) -> Seal {
        Seal { key: self.derive(b"key of ", end).finalize().into_bytes().into(), next: 0 }
    }
}

/// One direction of a connection: each frame's tag covers its number.
pub(super) struct Seal {
    key: [u8; KEY],
    next: u64,
}

impl Seal {
    fn mac(&mut self, bytes: &[u8]) -> Hmac<Sha256> {
        let number = self.next;
        self.next += 1;
        keyed(&self.key)
            .chain_update(number.to_le_bytes())
            .chain_update((bytes.len() as u64).to_le_bytes())
            .chain_update(bytes)
    }

    /// The tag of the next frame.
    pub(super) fn tag(&mut self, bytes: &[u8]) -> [u8; KEY] {
        self.mac(bytes).finalize().into_bytes().into()
    }

    /// Whether the next frame is authentic.
    pub(super) fn opens(&mut self, bytes: &[u8], tag: &[u8]) -> bool {
        self.mac(bytes).verify_slice(tag).is_ok()
    }
}

fn keyed(key: &[u8; KEY]) -> Hmac<Sha256> {
    // HMAC's own first step: a key shorter than a block is filled up with zeroes.
    let mut block = [0; BLOCK];
    block[..KEY].copy_from_slice(key);
    Hmac::new(&block.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mac_is_the_standards() {
        // RFC 4231, test case 1, whose key of 20 bytes is the same as one filled up with zeroes.
        let mut key = [0; KEY];
        key[..20].fill(0x0b);
        let tag = keyed(&key).chain_update(b"Hi There").finalize().into_bytes();
        let hex: String = tag.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    }

    #[test]
    fn proofs_and_frames_are_good_once_in_their_place() {
        let a = Greeted::new(&[1; KEY], b"hello".to_vec());
        let proof = a.proof(End::Initiator);
        assert!(a.proves(End::Initiator, &proof) && !a.proves(End::Responder, &proof));
        assert!(!Greeted::new(&[2; KEY], b"hello".to_vec()).proves(End::Initiator, &proof), "another key");
        assert!(!Greeted::new(&[1; KEY], b"hullo".to_vec()).proves(End::Initiator, &proof), "another connection");
        let (mut out, mut back) = (a.seal(End::Initiator), a.seal(End::Initiator));
        let (first, second) = (out.tag(b"x"), out.tag(b"x"));
        assert!(back.opens(b"x", &first) && !back.opens(b"x", &first), "replayed");
        let mut back = a.seal(End::Initiator);
        assert!(!back.opens(b"x", &second), "reordered");
        assert!(!a.seal(End::Responder).opens(b"x", &first), "reflected");
    }
}
