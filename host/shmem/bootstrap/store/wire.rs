//! The messages between members and the store, as bytes.
//!
//! Greetings and seals are those of [`crate::handshake`]. A sealed frame carries one message. Integers are
//! little-endian.

use crate::handshake::{self, Greeting, Protection, Protocol, Seal, Terms};
#[cfg(feature = "internals")]
use crate::handshake::{Responder, Seals};
use crate::shmem::bootstrap::LostRank;
use crate::shmem::bootstrap::Secret;

/// The most bytes that one rank can give to an exchange.
pub const MAX_BYTES: usize = 64 << 20;
/// The most bytes of a message: those of an exchange, the kind, a round and a rank.
const MAX_MESSAGE: usize = MAX_BYTES + 1 + 8 + 4;
/// The most bytes of a message on a connection whose rank is not known yet.
pub(super) const MAX_JOIN: usize = 1024;
/// The most bytes of a text in a message.
const MAX_TEXT: usize = 16 << 10;
/// The most bytes of an alert.
pub const MAX_ALERT: usize = 4 << 10;

/// The handshake between members and the store.
pub(super) const PROTOCOL: Protocol =
    Protocol { magic: *b"warpbell", version: 2, named: false, records_per_key: 1 << 16 };
/// Bytes of a greeting.
pub(super) const GREETING: usize = PROTOCOL.greeting_bytes();

/// Returns the terms of all connections to a store: they are always encrypted.
pub(in crate::shmem) fn terms(secret: &Secret) -> Terms {
    Terms::new(&PROTOCOL, secret.bytes(), Protection::Encrypted)
}

/// A message in a sealed frame. Rounds number the exchanges of a world, from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Message {
    /// Member: joins a world.
    Join {
        /// The member's rank.
        rank: u32,
        /// Number of ranks.
        size: u32,
        /// ABI fingerprint of the shared structures that the member was compiled with.
        fingerprint: u64,
        /// Release of this crate that the member runs.
        version: String,
        /// Process and host, for messages.
        who: String,
    },
    /// Member: gives its bytes for an exchange.
    Give {
        /// The exchange.
        round: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// Member: stops waiting, and asks for the missing ranks.
    Withdraw {
        /// The exchange, or [`Message::RENDEZVOUS`] before the first.
        round: u64,
    },
    /// Member: leaves in order.
    Leave,
    /// Store: all ranks have joined.
    Begin,
    /// Store: one rank's bytes of an exchange.
    Part {
        /// The exchange.
        round: u64,
        /// The rank that gave the bytes.
        rank: u32,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// Store: names the missing ranks, in reply to [`Message::Withdraw`].
    Missing {
        /// The exchange.
        round: u64,
        /// Connections that were turned away meanwhile, for messages.
        note: String,
        /// The missing ranks.
        ranks: Vec<u32>,
    },
    /// Store: a rank ended too early.
    Lost(LostRank),
    /// Store: a rank left in order.
    Left {
        /// The rank.
        rank: u32,
        /// Number of exchanges that the rank took part in.
        rounds: u64,
    },
    /// Store: the ranks contradict each other; the reason.
    Refused(String),
    /// An alert from one rank to another.
    Alert {
        /// The receiver, if a member sends the message; the sender, if the store does.
        rank: u32,
        /// The alert, at most 4 KiB.
        bytes: Vec<u8>,
    },
}

impl Message {
    /// The `round` of the rendezvous before the first exchange.
    pub const RENDEZVOUS: u64 = u64::MAX;

    /// Encodes the message.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Self::Join { rank, size, fingerprint, version, who } => {
                out.push(1);
                out.extend(rank.to_le_bytes());
                out.extend(size.to_le_bytes());
                out.extend(fingerprint.to_le_bytes());
                put_text(&mut out, version);
                put_text(&mut out, who);
            }
            Self::Give { round, bytes } => {
                out.reserve_exact(1 + 8 + bytes.len());
                out.push(2);
                out.extend(round.to_le_bytes());
                out.extend_from_slice(bytes);
            }
            Self::Withdraw { round } => {
                out.push(3);
                out.extend(round.to_le_bytes());
            }
            Self::Leave => out.push(4),
            Self::Begin => out.push(5),
            Self::Part { round, rank, bytes } => {
                out.reserve_exact(1 + 8 + 4 + bytes.len());
                out.push(6);
                out.extend(round.to_le_bytes());
                out.extend(rank.to_le_bytes());
                out.extend_from_slice(bytes);
            }
            Self::Missing { round, note, ranks } => {
                out.push(7);
                out.extend(round.to_le_bytes());
                put_text(&mut out, note);
                out.extend(ranks.iter().flat_map(|r| r.to_le_bytes()));
            }
            Self::Lost(lost) => {
                out.push(8);
                out.extend((lost.rank as u32).to_le_bytes());
                put_text(&mut out, &lost.reason);
            }
            Self::Left { rank, rounds } => {
                out.push(9);
                out.extend(rank.to_le_bytes());
                out.extend(rounds.to_le_bytes());
            }
            Self::Refused(why) => {
                out.push(10);
                put_text(&mut out, why);
            }
            Self::Alert { rank, bytes } => {
                out.push(11);
                out.extend(rank.to_le_bytes());
                out.extend_from_slice(bytes);
            }
        }
        out
    }

    /// Decodes a message. Returns `None` unless all bytes belong to it. Allocates no more than the length of `bytes`.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut at = Reader(bytes);
        let message = match at.array::<1>()?[0] {
            1 => Self::Join {
                rank: at.u32()?,
                size: at.u32()?,
                fingerprint: at.u64()?,
                version: at.text()?,
                who: at.text()?,
            },
            2 => Self::Give { round: at.u64()?, bytes: at.rest() },
            3 => Self::Withdraw { round: at.u64()? },
            4 => Self::Leave,
            5 => Self::Begin,
            6 => Self::Part { round: at.u64()?, rank: at.u32()?, bytes: at.rest() },
            7 => {
                let (round, note) = (at.u64()?, at.text()?);
                let mut ranks = Vec::with_capacity(at.0.len() / size_of::<u32>());
                while !at.0.is_empty() {
                    ranks.push(at.u32()?);
                }
                Self::Missing { round, note, ranks }
            }
            8 => Self::Lost(LostRank::new(at.u32()? as usize, at.text()?)),
            9 => Self::Left { rank: at.u32()?, rounds: at.u64()? },
            10 => Self::Refused(at.text()?),
            11 => Self::Alert { rank: at.u32()?, bytes: at.rest() },
            _ => return None,
        };
        at.0.is_empty().then_some(message)
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    let mut end = text.len().min(MAX_TEXT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    out.extend((end as u32).to_le_bytes());
    out.extend_from_slice(&text.as_bytes()[..end]);
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Option<String> {
        let n = self.u32()? as usize;
        if n > MAX_TEXT {
            return None;
        }
        let (text, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        // A peer's text appears in messages: one line, without control characters.
        std::str::from_utf8(text).ok().map(|t| t.replace(char::is_control, " "))
    }

    fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0).to_vec()
    }
}

/// The error for bytes that cannot be decoded. The connection must then end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedInput(pub &'static str);

/// Received bytes that are not decoded yet.
#[derive(Debug, Default)]
pub struct Inbox {
    bytes: Vec<u8>,
    /// Number of bytes at the beginning of `bytes` that are decoded.
    read: usize,
}

impl Inbox {
    /// Appends received bytes.
    pub fn extend(&mut self, bytes: &[u8]) {
        if self.read > 0 && self.read * 2 >= self.bytes.len() {
            self.bytes.drain(..self.read);
            self.read = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    fn waiting(&self) -> &[u8] {
        &self.bytes[self.read..]
    }

    /// Returns the next greeting, once it is complete.
    pub(super) fn greeting(&mut self) -> Result<Option<Greeting>, MalformedInput> {
        let greeting = Greeting::read(&PROTOCOL, self.waiting()).map_err(|_| MalformedInput("no greeting"))?;
        Ok(greeting.map(|(greeting, bytes)| {
            self.read += bytes;
            greeting
        }))
    }

    /// Returns the next sealed message of at most `most` bytes, once it is complete.
    pub(super) fn message(&mut self, seal: &mut Seal, most: usize) -> Result<Option<Message>, MalformedInput> {
        let mut bytes = Vec::new();
        let opened = seal.open(self.waiting(), 0..=most.min(MAX_MESSAGE), &mut bytes).map_err(|e| match e {
            handshake::FrameError::Length => MalformedInput("a message that is too long"),
            handshake::FrameError::Tag => MalformedInput("a message that is not authentic"),
            handshake::FrameError::Exhausted => MalformedInput("more messages than a connection has numbers for"),
        })?;
        let Some(end) = opened else { return Ok(None) };
        let message = Message::decode(&bytes).ok_or(MalformedInput("a message that cannot be read"))?;
        self.read += end;
        Ok(Some(message))
    }

    /// Feeds a stream of an unauthenticated peer, for fuzzing, and returns the number of decoded greetings. Never panics
    /// on any stream, and never keeps more bytes than it got.
    #[doc(hidden)]
    #[cfg(feature = "internals")]
    pub fn digest(stream: &[u8]) -> usize {
        let (mut inbox, mut understood) = (Self::default(), 0);
        let terms = Terms::new(&PROTOCOL, b"a secret that strangers do not know", Protection::Encrypted);
        let mut store = Responder::new(terms, 0);
        for piece in stream.chunks(97) {
            inbox.extend(piece);
            match inbox.greeting() {
                Ok(Some(greeting)) => {
                    understood += 1;
                    assert!(store.read_message(&greeting).is_err(), "a stranger gets more than a refusal");
                }
                Ok(None) => {}
                Err(_) => return understood,
            }
            assert!(inbox.bytes.len() <= stream.len());
        }
        understood
    }

    /// Feeds a stream of messages that was changed on the way, for fuzzing. `stream` begins with the place of the change
    /// and its kind; the rest are the messages. Never panics, and decodes only messages that were sent, in their order.
    #[doc(hidden)]
    #[cfg(feature = "internals")]
    pub fn digest_changed(stream: &[u8]) {
        let Some(([a, b, kind, length], rest)) = stream.split_first_chunk() else { return };
        let Some([mut ours, mut theirs]) = Seals::of_nobody(&PROTOCOL, Protection::Encrypted) else { return };
        let sent: Vec<Message> = rest
            .chunks(usize::from(*length).max(1))
            .enumerate()
            .map(|(i, bytes)| Message::Give { round: i as u64, bytes: bytes.to_vec() })
            .collect();
        let mut sealed: Vec<u8> = sent.iter().filter_map(|m| self::sealed(m, &mut ours.ours)).flatten().collect();
        let at = usize::from(u16::from_le_bytes([*a, *b])).min(sealed.len());
        match kind % 4 {
            0 => sealed.truncate(at),
            1 => drop(sealed.splice(at..at, rest.iter().copied())),
            2 => drop(sealed.drain(at..(at + usize::from(*length)).min(sealed.len()))),
            _ => sealed.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= length),
        }
        let mut inbox = Self::default();
        inbox.extend(&sealed);
        for sent in sent {
            match inbox.message(&mut theirs.theirs, MAX_MESSAGE) {
                Ok(Some(read)) => assert_eq!(read, sent, "a message that nobody sent, or out of turn"),
                Ok(None) | Err(_) => return,
            }
        }
    }
}

/// Encodes and seals a message. Returns `None` if the connection has no number for its records left.
pub(super) fn sealed(message: &Message, seal: &mut Seal) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    seal.close(&message.encode(), &mut out).ok()?;
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the two ends of one direction of a connection.
    fn ends() -> (Seal, Seal) {
        let [a, b] = Seals::of_nobody(&PROTOCOL, Protection::Encrypted).unwrap();
        (a.ours, b.theirs)
    }

    fn message() -> impl Strategy<Value = Message> {
        let text = || ".{0,40}".prop_map(|t: String| t.replace(char::is_control, " "));
        let bytes = || prop::collection::vec(any::<u8>(), 0..200);
        prop_oneof![
            (any::<u32>(), any::<u32>(), any::<u64>(), text(), text()).prop_map(
                |(rank, size, fingerprint, version, who)| Message::Join { rank, size, fingerprint, version, who }
            ),
            (any::<u64>(), bytes()).prop_map(|(round, bytes)| Message::Give { round, bytes }),
            any::<u64>().prop_map(|round| Message::Withdraw { round }),
            Just(Message::Leave),
            Just(Message::Begin),
            (any::<u64>(), any::<u32>(), bytes()).prop_map(|(round, rank, bytes)| Message::Part { round, rank, bytes }),
            (any::<u64>(), text(), prop::collection::vec(any::<u32>(), 0..20))
                .prop_map(|(round, note, ranks)| Message::Missing { round, note, ranks }),
            (any::<u32>(), text()).prop_map(|(rank, reason)| Message::Lost(LostRank::new(rank as usize, reason))),
            (any::<u32>(), any::<u64>()).prop_map(|(rank, rounds)| Message::Left { rank, rounds }),
            text().prop_map(Message::Refused),
            (any::<u32>(), bytes()).prop_map(|(rank, bytes)| Message::Alert { rank, bytes }),
        ]
    }

    #[test]
    fn lengths_that_nobody_may_send_end_the_connection_before_the_bytes_come() {
        let mut inbox = Inbox::default();
        inbox.extend(&(MAX_JOIN as u32 + 1).to_le_bytes());
        assert_eq!(inbox.message(&mut ends().1, MAX_JOIN), Err(MalformedInput("a message that is too long")));
        let mut inbox = Inbox::default();
        inbox.extend(&u32::MAX.to_le_bytes());
        assert!(inbox.message(&mut ends().1, usize::MAX).is_err());
    }

    #[test]
    fn texts_are_cut_to_what_may_be_sent() {
        let long = Message::Refused("ä".repeat(MAX_TEXT));
        let Some(Message::Refused(text)) = Message::decode(&long.encode()) else { panic!() };
        assert_eq!(text, "ä".repeat(MAX_TEXT / 2));
    }

    proptest! {
        #[test]
        fn messages_come_out_as_they_went_in(message in message()) {
            prop_assert_eq!(Message::decode(&message.encode()), Some(message));
        }

        #[test]
        fn a_stream_of_messages_is_read_whatever_the_pieces(messages in prop::collection::vec(message(), 0..8), piece in 1usize..300) {
            let (mut out, mut back) = ends();
            let stream: Vec<u8> = messages.iter().flat_map(|m| sealed(m, &mut out).unwrap()).collect();
            let (mut inbox, mut got) = (Inbox::default(), Vec::new());
            for piece in stream.chunks(piece) {
                inbox.extend(piece);
                while let Some(m) = inbox.message(&mut back, MAX_MESSAGE).unwrap() {
                    got.push(m);
                }
            }
            prop_assert_eq!(got, messages);
        }

        #[test]
        fn a_changed_bit_is_noticed(message in message(), at in any::<prop::sample::Index>(), bit in 0u8..8) {
            let (mut out, mut back) = ends();
            let mut stream = sealed(&message, &mut out).unwrap();
            let at = at.index(stream.len());
            stream[at] ^= 1u8 << bit;
            let mut inbox = Inbox::default();
            inbox.extend(&stream);
            // A changed length may announce more bytes than there are. No message is ever accepted.
            prop_assert!(!matches!(inbox.message(&mut back, MAX_MESSAGE), Ok(Some(_))));
        }

        #[test]
        fn any_bytes_are_no_reason_to_panic(bytes in prop::collection::vec(any::<u8>(), 0..2000), kind in 0u8..13) {
            Inbox::digest(&bytes);
            Inbox::digest_changed(&bytes);
            let mut bytes = bytes;
            if let Some(first) = bytes.first_mut() {
                *first = kind;
            }
            if let Some(message) = Message::decode(&bytes) {
                prop_assert!(message.encode().len() <= bytes.len());
            }
        }
    }
}
