//! What members and the store say to each other, as bytes.
//!
//! A greeting has a fixed length. A sealed message is its length (u32), its bytes, and 32 bytes of HMAC. Integers are
//! little-endian.

use super::auth::{Seal, TAG};
use crate::shmem::bootstrap::LostRank;

/// Most bytes that one rank gives to an exchange.
pub const MAX_BYTES: usize = 64 << 20;
/// Most bytes of a message: those, the kind, a round and a rank.
const MAX_MESSAGE: usize = MAX_BYTES + 1 + 8 + 4;
/// Most bytes of a message from one whose rank is not known yet.
pub(super) const MAX_JOIN: usize = 1024;
/// Most bytes of a text in a message.
const MAX_TEXT: usize = 16 << 10;
/// Most bytes of an alert.
pub const MAX_ALERT: usize = 4 << 10;
/// Bytes of a message's length.
const LENGTH: usize = 4;

/// Version of the protocol.
pub(super) const PROTOCOL: u16 = 1;
const MAGIC: [u8; 8] = *b"warpbell";
/// Bytes of a greeting.
pub(super) const GREETING: usize = MAGIC.len() + 2 + 1 + 32;

/// The steps of a greeting, in their order, each with 32 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Member: my random number.
    Hello = 1,
    /// Store: mine.
    Challenge = 2,
    /// Member: proof that I know the secret.
    Proof = 3,
    /// Store: and I do.
    Welcome = 4,
    /// Store: that was no proof.
    Denied = 5,
}

/// A step of a greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Greeting {
    pub(super) version: u16,
    pub(super) step: Step,
    pub(super) bytes: [u8; 32],
}

impl Greeting {
    pub(super) fn new(step: Step, bytes: [u8; 32]) -> Self {
        Self { version: PROTOCOL, step, bytes }
    }

    pub(super) fn encode(&self) -> [u8; GREETING] {
        let mut all = [0; GREETING];
        all[..8].copy_from_slice(&MAGIC);
        all[8..10].copy_from_slice(&self.version.to_le_bytes());
        all[10] = self.step as u8;
        all[11..].copy_from_slice(&self.bytes);
        all
    }

    /// `None`: not of this protocol at all.
    pub(super) fn decode(all: &[u8; GREETING]) -> Option<Self> {
        let (magic, rest) = all.split_first_chunk::<8>()?;
        let (version, rest) = rest.split_first_chunk::<2>()?;
        let (step, bytes) = rest.split_first_chunk::<1>()?;
        let step = match step[0] {
            1 => Step::Hello,
            2 => Step::Challenge,
            3 => Step::Proof,
            4 => Step::Welcome,
            5 => Step::Denied,
            _ => return None,
        };
        let version = u16::from_le_bytes(*version);
        (*magic == MAGIC).then_some(Self { version, step, bytes: bytes.try_into().ok()? })
    }
}

/// A sealed message. Rounds count the exchanges of a world, from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Message {
    /// Member: who I am.
    Join {
        /// Rank.
        rank: u32,
        /// How many ranks there are.
        size: u32,
        /// Which layout of shared structures it was compiled with.
        fingerprint: u64,
        /// Which release of this crate it runs.
        version: String,
        /// Process and host, for people.
        who: String,
    },
    /// Member: my bytes of an exchange.
    Give {
        /// Which exchange.
        round: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// Member: I waited long enough; who is missing?
    Withdraw {
        /// Which exchange; [`Message::MEETING`] before the first.
        round: u64,
    },
    /// Member: I end in order.
    Leave,
    /// Store: all have come.
    Begin,
    /// Store: a rank's bytes of an exchange.
    Part {
        /// Which exchange.
        round: u64,
        /// Whose.
        rank: u32,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// Store: who is missing.
    Missing {
        /// In which exchange.
        round: u64,
        /// Who was turned away meanwhile, for people.
        note: String,
        /// The ranks.
        ranks: Vec<u32>,
    },
    /// Store: a rank ended before its time.
    Lost(LostRank),
    /// Store: a rank ended in order, after it took part in so many exchanges.
    Left {
        /// Which.
        rank: u32,
        /// How many.
        rounds: u64,
    },
    /// Store: this does not work out, and why.
    Refused(String),
    /// Out of turn, from one rank to another.
    Alert {
        /// Member: to whom. Store: from whom.
        rank: u32,
        /// At most [`MAX_ALERT`].
        bytes: Vec<u8>,
    },
}

impl Message {
    /// The `round` of the meeting before the first exchange.
    pub const MEETING: u64 = u64::MAX;

    /// As bytes.
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

    /// From bytes, all of which must belong to it. Allocates no more than the bytes given.
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
        // What others say of themselves is shown to people: one line, no control characters.
        std::str::from_utf8(text).ok().map(|t| t.replace(char::is_control, " "))
    }

    fn rest(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.0).to_vec()
    }
}

/// What cannot be read ends its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken(pub &'static str);

/// Bytes that came and are not read yet.
#[derive(Debug, Default)]
pub struct Inbox {
    bytes: Vec<u8>,
    /// What was read of `bytes`.
    read: usize,
}

impl Inbox {
    /// Adds what came.
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

    /// The next greeting, once all of it has come.
    pub(super) fn greeting(&mut self) -> Result<Option<Greeting>, Broken> {
        let Some(bytes) = self.waiting().first_chunk::<GREETING>() else {
            // What does not begin like one never will be.
            let n = self.waiting().len().min(MAGIC.len());
            return if self.waiting()[..n] == MAGIC[..n] { Ok(None) } else { Err(Broken("no greeting")) };
        };
        let greeting = Greeting::decode(bytes).ok_or(Broken("no greeting"))?;
        self.read += GREETING;
        Ok(Some(greeting))
    }

    /// The next sealed message of at most `most` bytes, once all of it has come.
    pub(super) fn message(&mut self, seal: &mut Seal, most: usize) -> Result<Option<Message>, Broken> {
        let Some((length, rest)) = self.waiting().split_first_chunk::<LENGTH>() else { return Ok(None) };
        let n = u32::from_le_bytes(*length) as usize;
        if n > most.min(MAX_MESSAGE) {
            return Err(Broken("a message that is too long"));
        }
        let Some(sealed) = rest.get(..n + TAG) else { return Ok(None) };
        let (bytes, tag) = sealed.split_at(n);
        if !seal.opens(length, bytes, tag) {
            return Err(Broken("a message that is not authentic"));
        }
        let message = Message::decode(bytes).ok_or(Broken("a message that cannot be read"))?;
        self.read += LENGTH + n + TAG;
        Ok(Some(message))
    }

    /// Fed with a stream as a stranger would send it, this never panics and keeps nothing more than what came: for fuzzing. How
    /// many messages were understood.
    #[doc(hidden)]
    pub fn digest(stream: &[u8]) -> usize {
        let (mut inbox, mut seal, mut understood) = (Self::default(), Seal::of_nobody(), 0);
        for piece in stream.chunks(97) {
            inbox.extend(piece);
            match inbox.greeting() {
                Ok(Some(_)) => understood += 1,
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

/// A message as it goes over the wire.
pub(super) fn sealed(message: &Message, seal: &mut Seal) -> Vec<u8> {
    let bytes = message.encode();
    let length = (bytes.len() as u32).to_le_bytes();
    let tag = seal.tag(&length, &bytes);
    [&length[..], &bytes, &tag].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
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
        assert_eq!(inbox.message(&mut Seal::of_nobody(), MAX_JOIN), Err(Broken("a message that is too long")));
        let mut inbox = Inbox::default();
        inbox.extend(&u32::MAX.to_le_bytes());
        assert!(inbox.message(&mut Seal::of_nobody(), usize::MAX).is_err());
    }

    #[test]
    fn texts_are_cut_to_what_may_be_sent() {
        let long = Message::Refused("ä".repeat(MAX_TEXT));
        let Some(Message::Refused(text)) = Message::decode(&long.encode()) else { panic!() };
        assert_eq!(text, "ä".repeat(MAX_TEXT / 2));
    }

    #[test]
    fn what_does_not_begin_like_a_greeting_is_refused_at_once() {
        let mut inbox = Inbox::default();
        inbox.extend(b"GET / HT");
        assert!(inbox.greeting().is_err());
        let mut inbox = Inbox::default();
        inbox.extend(b"warp");
        assert_eq!(inbox.greeting(), Ok(None));
    }

    proptest! {
        #[test]
        fn messages_come_out_as_they_went_in(message in message()) {
            prop_assert_eq!(Message::decode(&message.encode()), Some(message));
        }

        #[test]
        fn a_stream_of_messages_is_read_whatever_the_pieces(messages in prop::collection::vec(message(), 0..8), piece in 1usize..300) {
            let (mut out, mut back) = (Seal::of_nobody(), Seal::of_nobody());
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
            let mut stream = sealed(&message, &mut Seal::of_nobody());
            let at = at.index(stream.len());
            stream[at] ^= 1u8 << bit;
            let mut inbox = Inbox::default();
            inbox.extend(&stream);
            // A changed length may ask for more bytes than there are; nothing is ever understood.
            prop_assert!(!matches!(inbox.message(&mut Seal::of_nobody(), MAX_MESSAGE), Ok(Some(_))));
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
