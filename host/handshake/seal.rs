//! Sealed frames: a length (u32, little-endian), that many bytes, and a tag over the frame's sequence number, length
//! and bytes.

use super::greeting::Protocol;
use super::mac::{TAG, keyed};
use hmac::{Hmac, Mac};
use sha2::Sha256;
use std::ops::{Range, RangeInclusive};

/// Bytes of a frame's length field.
pub(crate) const LENGTH: usize = size_of::<u32>();

/// Error of a frame. Nothing behind a broken frame can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// The length is outside the accepted range.
    Length,
    /// The tag is wrong: this is not the other end's next frame.
    Tag,
}

/// Key and sequence number of one direction of a connection.
pub(crate) struct Seal {
    mac: Hmac<Sha256>,
    next: u64,
    length_bytes: usize,
}

/// Seals of both directions of a connection.
pub(crate) struct Seals {
    /// Seals the frames that this end sends.
    pub(crate) ours: Seal,
    /// Checks the frames that the other end sends.
    pub(crate) theirs: Seal,
}

impl Seal {
    pub(super) fn new(key: &[u8], protocol: &Protocol) -> Self {
        Self { mac: keyed(key), next: 0, length_bytes: protocol.length_bytes }
    }

    /// Creates a seal with a publicly known key, for tests and fuzzing.
    pub(crate) fn of_nobody(protocol: &Protocol) -> Self {
        Self::new(&[0; TAG], protocol)
    }

    /// Computes the tag of the next frame and advances the sequence number.
    fn mac(&mut self, bytes: &[u8]) -> Hmac<Sha256> {
        let number = self.next;
        self.next += 1;
        let length = (bytes.len() as u64).to_le_bytes();
        let mac = self.mac.clone().chain_update(number.to_le_bytes());
        mac.chain_update(&length[..self.length_bytes]).chain_update(bytes)
    }

    /// Seals `bytes` as the next frame and appends the frame to `out`.
    pub(crate) fn close(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        out.reserve(LENGTH + bytes.len() + TAG);
        out.extend((bytes.len() as u32).to_le_bytes());
        out.extend_from_slice(bytes);
        out.extend(self.mac(bytes).finalize().into_bytes());
    }

    /// Checks the next frame, which `stream` begins with. Returns the range of the frame's bytes in `stream`; [`TAG`]
    /// bytes of tag follow them. Returns `None` while the frame is incomplete.
    ///
    /// # Errors
    /// * [`Broken::Length`] if the frame's length is not in `lengths`.
    /// * [`Broken::Tag`] if the tag is wrong.
    pub(crate) fn open(
        &mut self,
        stream: &[u8],
        lengths: RangeInclusive<usize>,
    ) -> Result<Option<Range<usize>>, Broken> {
        let Some((length, rest)) = stream.split_first_chunk::<LENGTH>() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        if !lengths.contains(&length) {
            return Err(Broken::Length);
        }
        let Some((bytes, tag)) = rest.get(..length + TAG).map(|frame| frame.split_at(length)) else { return Ok(None) };
        // Compares in constant time.
        self.mac(bytes).verify_slice(tag).map_err(|_| Broken::Tag)?;
        Ok(Some(LENGTH..LENGTH + length))
    }
}

#[cfg(test)]
mod tests {
    use super::super::greeting::tests::BOTH;
    use super::*;
    use proptest::prelude::*;

    fn sealed(seal: &mut Seal, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        seal.close(bytes, &mut out);
        out
    }

    #[test]
    fn a_frame_is_good_once_in_its_place() {
        for protocol in BOTH {
            let seal = || Seal::new(b"key", protocol);
            let (mut out, mut back) = (seal(), seal());
            let (first, second) = (sealed(&mut out, b"a"), sealed(&mut out, b"a"));
            assert_ne!(first, second);
            assert_eq!(back.open(&first, 0..=9), Ok(Some(4..5)));
            assert_eq!(back.open(&first, 0..=9), Err(Broken::Tag), "replayed");
            assert_eq!(seal().open(&second, 0..=9), Err(Broken::Tag), "reordered");
            assert_eq!(Seal::new(b"another", protocol).open(&first, 0..=9), Err(Broken::Tag));
        }
    }

    #[test]
    fn lengths_that_nobody_may_send_are_refused_before_the_bytes_come() {
        for (n, lengths) in [(0, 1..=9), (10, 0..=9), (u32::MAX, 0..=usize::MAX - 1)] {
            let broken = Seal::of_nobody(BOTH[0]).open(&n.to_le_bytes(), lengths.clone());
            assert_eq!(broken, if lengths.contains(&(n as usize)) { Ok(None) } else { Err(Broken::Length) });
        }
    }

    proptest! {
        #[test]
        fn frames_are_read_whatever_the_pieces(
            frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..8), piece in 1usize..300, named: bool,
        ) {
            let protocol = BOTH[usize::from(named)];
            let (mut out, mut back) = (Seal::of_nobody(protocol), Seal::of_nobody(protocol));
            let stream: Vec<u8> = frames.iter().flat_map(|f| sealed(&mut out, f)).collect();
            let (mut come, mut taken, mut got) = (Vec::new(), 0, Vec::new());
            for piece in stream.chunks(piece) {
                come.extend_from_slice(piece);
                while let Some(bytes) = back.open(&come[taken..], 0..=200).unwrap() {
                    got.push(come[taken..][bytes.clone()].to_vec());
                    taken += bytes.end + TAG;
                }
            }
            prop_assert_eq!(got, frames);
            prop_assert_eq!(taken, stream.len());
        }

        #[test]
        fn a_changed_bit_is_noticed(bytes in prop::collection::vec(any::<u8>(), 0..200), at: prop::sample::Index, bit in 0u8..8) {
            let mut stream = sealed(&mut Seal::of_nobody(BOTH[0]), &bytes);
            let at = at.index(stream.len());
            stream[at] ^= 1 << bit;
            // A changed length may announce more bytes than there are.
            prop_assert!(!matches!(Seal::of_nobody(BOTH[0]).open(&stream, 0..=usize::MAX), Ok(Some(_))));
        }
    }
}
