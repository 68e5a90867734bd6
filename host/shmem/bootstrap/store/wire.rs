//! The messages between members and the store, as bytes.
//!
//! Greetings and seals are those of [`crate::handshake`]. A sealed frame carries one message. Integers are
//! little-endian.

use crate::handshake::{self, Greeting, Next, Protocol, Responder, Seal, TAG};
use crate::shmem::bootstrap::LostRank;

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
pub(super) const PROTOCOL: Protocol = Protocol {
    magic: *b"warpbell",
    version: 1,
    initiator: "member",
    responder: "store",
    named: false,
    length_bytes: 4,
};
/// Bytes of a greeting.
pub(super) const GREETING: usize = PROTOCOL.greeting_bytes();

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
        /// The exchange, or [`Message::MEETING`] before the first.
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
    /// The `round` of the meeting before the first exchange.
    pub const MEETING: u64 = u64::MAX;

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
pub struct Broken(pub &'static str);

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
    pub(super) fn greeting(&mut self) -> Result<Option<Greeting>, Broken> {
        let greeting = Greeting::read(&PROTOCOL, self.waiting()).map_err(|_| Broken("no greeting"))?;
        self.read += if greeting.is_some() { GREETING } else { 0 };
        Ok(greeting)
    }

    /// Returns the next sealed message of at most `most` bytes, once it is complete.
    pub(super) fn message(&mut self, seal: &mut Seal, most: usize) -> Result<Option<Message>, Broken> {
        let opened = seal.open(self.waiting(), 0..=most.min(MAX_MESSAGE)).map_err(|e| match e {
            handshake::Broken::Length => Broken("a message that is too long"),
            handshake::Broken::Tag => Broken("a message that is not authentic"),
        })?;
        let Some(bytes) = opened else { return Ok(None) };
        let end = bytes.end + TAG;
        let message = Message::decode(&self.waiting()[bytes]).ok_or(Broken("a message that cannot be read"))?;
        self.read += end;
        Ok(Some(message))
    }

    /// Feeds a stream of an unauthenticated peer, for fuzzing, and returns the number of decoded messages. Never panics
    /// on any stream, and never keeps more bytes than it got.
    #[doc(hidden)]
    pub fn digest(stream: &[u8]) -> usize {
        let (mut inbox, mut seal, mut understood) = (Self::default(), Seal::of_nobody(&PROTOCOL), 0);
        let mut store = Responder::new(&PROTOCOL, b"a secret that strangers do not know", 0);
        for piece in stream.chunks(97) {
            inbox.extend(piece);
            match inbox.greeting() {
                Ok(Some(greeting)) => {
                    understood += 1;
                    let answer = store.hear_with(&greeting, || Ok([0; TAG]));
                    assert!(!matches!(answer, Ok(Next::Open { .. })), "a stranger is let in");
                }
                Ok(None) => {}
                Err(_) => match inbox.message(&mut seal, MAX_MESSAGE) {
                    Ok(Some(_)) => understood += 1,
                    Ok(None) => {}
                    Err(_) => return understood,
                },
            }
            assert!(inbox.bytes.len() <= stream.len());
        }
        understood
    }
}

/// Encodes and seals a message.
pub(super) fn sealed(message: &Message, seal: &mut Seal) -> Vec<u8> {
    let mut out = Vec::new();
    seal.close(&message.encode(), &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handshake::{Initiator, Parties};
    use proptest::prelude::*;

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
        assert_eq!(inbox.message(&mut Seal::of_nobody(&PROTOCOL), MAX_JOIN), Err(Broken("a message that is too long")));
        let mut inbox = Inbox::default();
        inbox.extend(&u32::MAX.to_le_bytes());
        assert!(inbox.message(&mut Seal::of_nobody(&PROTOCOL), usize::MAX).is_err());
    }

    #[test]
    fn texts_are_cut_to_what_may_be_sent() {
        let long = Message::Refused("ä".repeat(MAX_TEXT));
        let Some(Message::Refused(text)) = Message::decode(&long.encode()) else { panic!() };
        assert_eq!(text, "ä".repeat(MAX_TEXT / 2));
    }

    #[test]
    fn the_bytes_are_those_of_version_1() {
        let hex = |bytes: &[u8]| -> String { bytes.iter().map(|b| format!("{b:02x}")).collect() };
        let secret = b"0123456789abcdef";
        let mut inbox = Inbox::default();
        let mut next = |bytes: &[u8]| {
            inbox.extend(bytes);
            inbox.greeting().unwrap().unwrap()
        };
        let (mut member, hello) = Initiator::with_number(&PROTOCOL, secret, Parties::default(), [1; TAG]);
        assert_eq!(hex(&hello), format!("{}010001{}", hex(b"warpbell"), "01".repeat(32)));
        let mut store = Responder::new(&PROTOCOL, secret, 0);
        let Ok(Next::Say(challenge)) = store.hear_with(&next(&hello), || Ok([2; TAG])) else { panic!() };
        assert_eq!(hex(&challenge), format!("{}010002{}", hex(b"warpbell"), "02".repeat(32)));
        let Ok(Next::Say(proof)) = member.hear(&next(&challenge)) else { panic!() };
        assert_eq!(hex(&proof[11..]), "91cec36371dd2ef482a60170d6f70a5ece1190d026cb7dad987a22c5dcfd089a");
        let Ok(Next::Open { say: welcome, seals: mut stores, .. }) = store.hear(&next(&proof)) else { panic!() };
        assert_eq!(hex(&welcome[11..]), "71b6cc7f25432133b6d354492bb3eb7a594ffc5cf025db2384ce0559da82fee8");
        let Ok(Next::Open { seals: mut members, .. }) = member.hear(&next(&welcome)) else { panic!() };
        for (seal, tag) in [
            (&mut members.ours, "433206c9d8f0e4320423c40cfa5de04f405fcc504a8308e3e0e63ee84b76425f"),
            (&mut stores.ours, "0c18225c2358268db0f0c78acb42aeff64d4ef8f3b6c7ee443b518e4640847d9"),
        ] {
            assert_eq!(hex(&sealed(&Message::Leave, seal)), format!("0100000004{tag}"));
        }
    }

    proptest! {
        #[test]
        fn messages_come_out_as_they_went_in(message in message()) {
            prop_assert_eq!(Message::decode(&message.encode()), Some(message));
        }

        #[test]
        fn a_stream_of_messages_is_read_whatever_the_pieces(messages in prop::collection::vec(message(), 0..8), piece in 1usize..300) {
            let (mut out, mut back) = (Seal::of_nobody(&PROTOCOL), Seal::of_nobody(&PROTOCOL));
            let stream: Vec<u8> = messages.iter().flat_map(|m| sealed(m, &mut out)).collect();
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
            let mut stream = sealed(&message, &mut Seal::of_nobody(&PROTOCOL));
            let at = at.index(stream.len());
            stream[at] ^= 1u8 << bit;
            let mut inbox = Inbox::default();
            inbox.extend(&stream);
            // A changed length may announce more bytes than there are. No message is ever accepted.
            prop_assert!(!matches!(inbox.message(&mut Seal::of_nobody(&PROTOCOL), MAX_MESSAGE), Ok(Some(_))));
        }

        #[test]
        fn any_bytes_are_no_reason_to_panic(bytes in prop::collection::vec(any::<u8>(), 0..2000), kind in 0u8..13) {
            Inbox::digest(&bytes);
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
