//! Sealed frames: a length (u32, little-endian), then the frame's bytes in one or more records.
//!
//! An encrypted record has up to [`RECORD`] bytes of the frame, and the authenticator of AES-GCM. Its nonce is twice its
//! number, plus one if it is the last of its frame. A frame therefore cannot be shortened to whole records, although
//! its length is readable. After a fixed number of records both ends derive the next key from the last (Noise, 4.2).
//!
//! A plain frame ends with an XXH3 checksum over its bytes, seeded with the frame's number.

use super::greeting::{Protection, Protocol};
use parking_lot::RwLock;
use snow::StatelessTransportState;
use std::ops::RangeInclusive;
use std::sync::Arc;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Bytes of a frame's length field.
pub(crate) const LENGTH: usize = size_of::<u32>();
/// Bytes of the authenticator of a record.
pub(super) const AUTHENTICATOR: usize = 16;
/// Most bytes of a frame in one record: a message of Noise has up to 65535 bytes.
const RECORD: usize = 65535 - AUTHENTICATOR;
/// Bytes of the checksum of a plain frame.
const CHECKSUM: usize = size_of::<u64>();
/// Number that no record may reach, so that the nonces of Noise suffice.
const NO_RECORD: u64 = 1 << 62;

/// Error of a frame. Nothing behind a broken frame can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameError {
    /// The length is outside the accepted range.
    Length,
    /// This is not the other end's next frame.
    Tag,
    /// The connection has used up the numbers of its records.
    Exhausted,
}

/// Error: the connection has used up the numbers of its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exhausted;

/// Keys and number of the next record of one direction of a connection.
pub(crate) struct Seal {
    /// Keys of both directions. A seal changes those of its own direction only.
    channel: Arc<RwLock<StatelessTransportState>>,
    protection: Protection,
    records_per_key: u64,
    next: u64,
    end: u64,
}

/// Seals of both directions of a connection.
pub(crate) struct Seals {
    /// Seals the frames that this end sends.
    pub(crate) ours: Seal,
    /// Opens the frames that the other end sends.
    pub(crate) theirs: Seal,
}

impl Seals {
    pub(super) fn new(channel: StatelessTransportState, protocol: &Protocol, protection: Protection) -> Self {
        let channel = Arc::new(RwLock::new(channel));
        // The handshake has used number 0.
        let seal = || Seal {
            channel: channel.clone(),
            protection,
            records_per_key: protocol.records_per_key,
            next: 1,
            end: NO_RECORD,
        };
        Self { ours: seal(), theirs: seal() }
    }

    /// Creates the seals of both ends of a connection with publicly known keys, for tests and fuzzing.
    #[cfg(feature = "internals")]
    pub(crate) fn of_nobody(protocol: &'static Protocol, protection: Protection) -> Option<[Self; 2]> {
        use super::{Greeting, Initiator, Next, Parties, Responder, Terms};
        let terms = |key| Terms::new(protocol, b"everybody knows this", protection).fixed([key; 32]);
        let (mut a, hello) = Initiator::new(terms(1), Parties::default()).ok()?;
        let mut b = Responder::new(terms(2), 0);
        let read = |bytes: &[u8]| Greeting::read(protocol, bytes).ok().flatten().map(|(greeting, _)| greeting);
        let Next::Say(welcome) = b.read_message(&read(&hello)?).ok()? else { return None };
        let Next::Open { say, seals: ours, .. } = a.read_message(&read(&welcome)?).ok()? else { return None };
        let Next::Open { seals: theirs, .. } = b.read_message(&read(&say)?).ok()? else { return None };
        Some([*ours, *theirs])
    }
}

/// Returns the number of records of a frame of `bytes` bytes. An empty frame has one, too.
fn records(bytes: usize) -> usize {
    bytes.div_ceil(RECORD).max(1)
}

impl Seal {
    /// Returns the size of a frame with `bytes` bytes on the wire, with its length.
    pub(crate) fn frame_bytes(&self, bytes: usize) -> usize {
        LENGTH
            + bytes
            + match self.protection {
                Protection::Encrypted => records(bytes) * AUTHENTICATOR,
                Protection::Plain => CHECKSUM,
            }
    }

    /// Takes the numbers of a frame's records. Returns the first.
    fn take(&mut self, bytes: usize) -> Result<u64, Exhausted> {
        let count = match self.protection {
            Protection::Encrypted => records(bytes) as u64,
            Protection::Plain => 1,
        };
        let (first, next) = (self.next, self.next.saturating_add(count));
        if next > self.end {
            return Err(Exhausted);
        }
        self.next = next;
        Ok(first)
    }

    /// Returns true if record `number` is the first with a new key.
    fn has_new_key(&self, number: u64) -> bool {
        number.is_multiple_of(self.records_per_key)
    }

    /// Seals `bytes` as the next frame and appends the frame to `out`.
    ///
    /// # Errors
    /// [`Exhausted`] if the connection has no more numbers for the frame's records. Nothing was appended then.
    pub(crate) fn close(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Exhausted> {
        let first = self.take(bytes.len())?;
        let start = out.len();
        out.reserve(self.frame_bytes(bytes.len()));
        out.extend((bytes.len() as u32).to_le_bytes());
        if self.protection == Protection::Plain {
            out.extend_from_slice(bytes);
            out.extend(xxh3_64_with_seed(bytes, first).to_le_bytes());
            return Ok(());
        }
        for (number, last, part) in parts(first, bytes.len()) {
            if self.has_new_key(number) {
                self.channel.write().rekey_outgoing();
            }
            let (plain, at) = (&bytes[part], out.len());
            out.resize(at + plain.len() + AUTHENTICATOR, 0);
            // Fails only if a message is too long or a nonce is reserved, which sizes and numbers here never are.
            if self.channel.read().write_message(nonce(number, last), plain, &mut out[at..]).is_err() {
                out.truncate(start);
                return Err(Exhausted);
            }
        }
        Ok(())
    }

    /// Opens the next frame, which `stream` begins with. Writes the frame's bytes to `into`, in place of what is there.
    /// Returns the frame's size on the wire, or `None` while the frame is incomplete.
    ///
    /// # Errors
    /// * [`FrameError::Length`] if the frame's length is not in `lengths`.
    /// * [`FrameError::Tag`] if the frame is not the other end's next one. The frame's numbers then count as used.
    /// * [`FrameError::Exhausted`] if the connection has no more numbers for the frame's records.
    pub(crate) fn open(
        &mut self,
        stream: &[u8],
        lengths: RangeInclusive<usize>,
        into: &mut Vec<u8>,
    ) -> Result<Option<usize>, FrameError> {
        let Some((length, _)) = stream.split_first_chunk::<LENGTH>() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        if !lengths.contains(&length) {
            return Err(FrameError::Length);
        }
        let whole = self.frame_bytes(length);
        let Some(mut sealed) = stream.get(LENGTH..whole) else { return Ok(None) };
        let first = self.take(length).map_err(|Exhausted| FrameError::Exhausted)?;
        if self.protection == Protection::Plain {
            let (bytes, checksum) = sealed.split_at(length);
            if xxh3_64_with_seed(bytes, first).to_le_bytes() != checksum {
                return Err(FrameError::Tag);
            }
            into.clear();
            into.extend_from_slice(bytes);
            return Ok(Some(whole));
        }
        into.resize(length, 0);
        let mut intact = true;
        for (number, last, part) in parts(first, length) {
            if self.has_new_key(number) {
                self.channel.write().rekey_incoming();
            }
            let (record, rest) = sealed.split_at(part.len() + AUTHENTICATOR);
            sealed = rest;
            // Compares authenticators in constant time.
            intact = intact && self.channel.read().read_message(nonce(number, last), record, &mut into[part]).is_ok();
        }
        if !intact {
            // Records before the broken one are authentic, but the frame is not.
            into.clear();
            return Err(FrameError::Tag);
        }
        Ok(Some(whole))
    }

    /// Lets the numbers end after `records` more records.
    #[cfg(test)]
    pub(crate) fn run_out_after(&mut self, records: u64) {
        self.end = self.next + records;
    }
}

/// Returns the nonce of a record. `last` is true for the last record of a frame.
fn nonce(number: u64, last: bool) -> u64 {
    2 * number + u64::from(last)
}

/// Returns number, end mark and range of each record of a frame of `length` bytes.
fn parts(first: u64, length: usize) -> impl Iterator<Item = (u64, bool, std::ops::Range<usize>)> {
    let count = records(length);
    (0..count).map(move |i| (first + i as u64, i + 1 == count, i * RECORD..length.min((i + 1) * RECORD)))
}

#[cfg(test)]
mod tests {
    use super::super::greeting::tests::BOTH;
    use super::*;
    use proptest::prelude::*;

    const KINDS: [Protection; 2] = [Protection::Encrypted, Protection::Plain];

    /// Returns the two ends of one direction.
    fn ends(protocol: &'static Protocol, protection: Protection) -> (Seal, Seal) {
        let [a, b] = Seals::of_nobody(protocol, protection).unwrap();
        (a.ours, b.theirs)
    }

    fn encrypted() -> (Seal, Seal) {
        ends(BOTH[0], Protection::Encrypted)
    }

    fn sealed(seal: &mut Seal, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        seal.close(bytes, &mut out).unwrap();
        out
    }

    fn opened(seal: &mut Seal, frame: &[u8]) -> Result<Option<Vec<u8>>, FrameError> {
        let mut into = vec![7; 3];
        Ok(seal.open(frame, 0..=1 << 20, &mut into)?.map(|n| {
            assert_eq!(n, frame.len());
            into
        }))
    }

    #[test]
    fn a_frame_is_good_once_in_its_place() {
        for protection in KINDS {
            let fresh = || ends(BOTH[0], protection);
            let ((mut out, mut back), (_, mut other)) = (fresh(), fresh());
            let (first, second) = (sealed(&mut out, b"a"), sealed(&mut out, b"a"));
            assert_ne!(first, second);
            assert_eq!(opened(&mut back, &first), Ok(Some(b"a".to_vec())));
            assert_eq!(opened(&mut back, &first), Err(FrameError::Tag), "replayed");
            assert_eq!(opened(&mut other, &second), Err(FrameError::Tag), "reordered");
        }
        let [mut a, _] = Seals::of_nobody(BOTH[0], Protection::Encrypted).unwrap();
        let frame = sealed(&mut a.ours, b"text");
        assert_eq!(opened(&mut a.theirs, &frame), Err(FrameError::Tag), "reflected");
    }

    #[test]
    fn a_broken_frame_does_not_break_those_behind_it() {
        for protection in KINDS {
            let (mut out, mut back) = ends(BOTH[0], protection);
            // Three records, and across a change of keys.
            let long = vec![5; 2 * RECORD + 1];
            for at in [LENGTH, RECORD, RECORD + 3 * AUTHENTICATOR, 2 * RECORD + 10] {
                let mut frame = sealed(&mut out, &long);
                frame[at] ^= 1;
                assert_eq!(opened(&mut back, &frame), Err(FrameError::Tag));
                let frame = sealed(&mut out, b"next");
                assert_eq!(opened(&mut back, &frame), Ok(Some(b"next".to_vec())));
            }
        }
    }

    /// The readable length is the only part of a frame that no record contains.
    #[test]
    fn a_frame_cannot_be_shortened_or_joined() {
        let with_length = |n: usize, frame: &[u8]| [&(n as u32).to_le_bytes(), &frame[LENGTH..]].concat();
        let long = vec![5; 2 * RECORD];
        for n in [0, 1, RECORD - 1, RECORD, RECORD + 1, 2 * RECORD - 1] {
            let (mut out, mut back) = encrypted();
            let forged = with_length(n, &sealed(&mut out, &long));
            let mut into = Vec::new();
            assert_eq!(back.open(&forged, 0..=1 << 20, &mut into), Err(FrameError::Tag), "{n}");
            assert!(into.is_empty());
        }
        // Two frames as one.
        let (mut out, mut back) = encrypted();
        let (one, two) = (sealed(&mut out, &long[..RECORD]), sealed(&mut out, b"end"));
        let forged = with_length(RECORD + 3, &[&one, &two[LENGTH..]].concat());
        assert_eq!(opened(&mut back, &forged), Err(FrameError::Tag));
    }

    #[test]
    fn lengths_that_nobody_may_send_are_refused_before_the_bytes_come() {
        let (_, mut back) = encrypted();
        let mut into = Vec::new();
        assert_eq!(back.open(&[0; 4], 1..=9, &mut into), Err(FrameError::Length));
        assert_eq!(back.open(&10u32.to_le_bytes(), 1..=9, &mut into), Err(FrameError::Length));
        assert_eq!(back.open(&9u32.to_le_bytes(), 1..=9, &mut into), Ok(None));
        assert!(back.open(&u32::MAX.to_le_bytes(), 0..=u32::MAX as usize, &mut into).unwrap().is_none());
    }

    #[test]
    fn keys_change_and_old_ones_do_not_open_new_records() {
        let (mut out, mut back) = encrypted();
        let (mut stale, _) = encrypted();
        // A sender that keeps its first key.
        stale.records_per_key = u64::MAX;
        for i in 0..20u8 {
            let (old, new) = (sealed(&mut stale, &[i]), sealed(&mut out, &[i]));
            assert_eq!(old == new, i < 3, "record {}", i + 1);
            assert_eq!(opened(&mut back, &new), Ok(Some(vec![i])));
        }
    }

    #[test]
    fn numbers_that_are_used_up_are_an_error_and_never_used_again() {
        for protection in KINDS {
            let (mut out, mut back) = ends(BOTH[0], protection);
            out.run_out_after(2);
            back.run_out_after(1);
            let frames = [sealed(&mut out, b"a"), sealed(&mut out, b"b")];
            let mut none = Vec::new();
            for bytes in [&[][..], b"c", &[0; 3 * RECORD]] {
                assert_eq!(out.close(bytes, &mut none), Err(Exhausted));
            }
            assert!(none.is_empty());
            assert_eq!(opened(&mut back, &frames[0]), Ok(Some(b"a".to_vec())));
            assert_eq!(opened(&mut back, &frames[1]), Err(FrameError::Exhausted));
        }
        // A frame of three records does not fit where two are left.
        let (mut out, _) = encrypted();
        out.run_out_after(2);
        assert_eq!(out.close(&[0; 2 * RECORD + 1], &mut Vec::new()), Err(Exhausted));
        let (mut out, _) = encrypted();
        out.next = NO_RECORD - 1;
        assert!(out.close(b"last", &mut Vec::new()).is_ok());
        assert_eq!(out.close(b"none", &mut Vec::new()), Err(Exhausted));
    }

    proptest! {
        #[test]
        fn every_changed_bit_is_found(bytes in prop::collection::vec(any::<u8>(), 0..200), at in any::<prop::sample::Index>(), bit in 0..8u8, plain: bool) {
            let (mut out, mut back) = ends(BOTH[0], KINDS[usize::from(plain)]);
            let frame = sealed(&mut out, &bytes);
            let mut changed = frame.clone();
            changed[at.index(frame.len())] ^= 1u8 << bit;
            // A changed length may announce more than there is.
            prop_assert!(!matches!(opened(&mut back, &changed), Ok(Some(_))));
        }

        #[test]
        fn frames_come_back_whatever_their_length(lengths in prop::collection::vec(0..3 * RECORD, 1..6), plain: bool) {
            let (mut out, mut back) = ends(BOTH[0], KINDS[usize::from(plain)]);
            for (i, n) in lengths.into_iter().enumerate() {
                let bytes = vec![i as u8; n];
                let frame = sealed(&mut out, &bytes);
                prop_assert_eq!(frame.len(), out.frame_bytes(n));
                prop_assert_eq!(back.open(&frame[..frame.len() - 1], 0..=1 << 20, &mut Vec::new()), Ok(None));
                prop_assert_eq!(opened(&mut back, &frame), Ok(Some(bytes)));
            }
        }
    }
}
