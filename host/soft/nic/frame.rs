//! Protocol of two adapters over a socket: a handshake, then sealed frames, both as in [`crate::handshake`]. Integers
//! are little-endian.

use crate::handshake::Protocol;
use crate::wire::mlx5::wqe::Remote;
use crate::wire::mlx5::{Atomic, Failure, Syndrome, VendorSyndrome};

/// Parameters of the handshake between two adapters.
pub(super) const PROTOCOL: Protocol =
    Protocol { magic: *b"warpbnic", version: 2, named: true, records_per_key: 1 << 16 };
/// Length of a handshake message in bytes.
pub(super) const GREETING: usize = PROTOCOL.greeting_bytes();
/// Largest number of data bytes in one frame. Longer messages are split.
pub const MAX_DATA: usize = 128 << 10;
/// Largest length of a frame in bytes.
pub(super) const MAX_FRAME: usize = MAX_DATA + 256;
/// Largest length of a text in bytes.
const MAX_TEXT: usize = 200;

/// Command that a responder carries out on its memory.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command<'a> {
    /// Writes one part of a message.
    Write {
        /// Destination of the whole message.
        remote: Remote,
        /// Length of the whole message in bytes.
        total: u64,
        /// Offset of the part in the message, in bytes.
        offset: u64,
        /// The part.
        data: &'a [u8],
        /// Immediate value, with the last part: it consumes a receive, whose completion has the value.
        immediate: Option<u32>,
    },
    /// Reads one part of a message.
    Read {
        /// Source of the whole message.
        remote: Remote,
        /// Length of the whole message in bytes.
        total: u64,
        /// Offset of the part in the message, in bytes.
        offset: u64,
        /// Length of the part in bytes.
        bytes: u32,
    },
    /// Sends one part of a message to a receive.
    Send {
        /// Length of the whole message in bytes.
        total: u64,
        /// Offset of the part in the message, in bytes.
        offset: u64,
        /// The part.
        data: &'a [u8],
        /// Immediate value, with the last part.
        immediate: Option<u32>,
    },
    /// Executes an atomic operation.
    Atomic {
        /// The word.
        remote: Remote,
        /// The operation.
        action: Atomic,
    },
}

/// Outcome of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer<'a> {
    /// Success.
    Done,
    /// Success. These bytes were read.
    Data(&'a [u8]),
    /// Success. The word held this value before.
    Old(u64),
    /// Failure. No later command of the queue pair will be carried out.
    Failed(Failure),
    /// No receive is posted. Nothing was done; the requester sends the command again.
    NotReady,
    /// The queue pair does not exist, or is not connected with the requester's. The text is the reason.
    Gone(&'a str),
}

/// A frame of the protocol, before it is sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Frame<'a> {
    /// Initiator: asks for a sign of life.
    Ping,
    /// Responder: replies to a ping.
    Pong,
    /// Initiator: asks for a command to be carried out.
    Request {
        /// Number of the responder's queue pair.
        pair: u32,
        /// Nonce of that queue pair.
        nonce: u64,
        /// Number of the requester's queue pair.
        from: u32,
        /// Nonce of that queue pair.
        from_nonce: u64,
        /// Sequence number of the command, from 0.
        sequence: u64,
        /// Acknowledgement: the responder may drop its responses to commands before this sequence number.
        answered: u64,
        /// The command.
        command: Command<'a>,
    },
    /// Responder: returns the outcome of a command.
    Response {
        /// Number of the requester's queue pair.
        pair: u32,
        /// Nonce of that queue pair.
        nonce: u64,
        /// Sequence number of the command.
        sequence: u64,
        /// Outcome of the command.
        answer: Answer<'a>,
    },
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(head)
    }
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }
    fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|b| b[0])
    }
    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }
    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }
    fn remote(&mut self) -> Option<Remote> {
        Some(Remote { address: self.u64()?, key: self.u32()? })
    }
    fn option(&mut self) -> Option<Option<u32>> {
        match (self.u8()?, self.u32()?) {
            (0, 0) => Some(None),
            (1, v) => Some(Some(v)),
            _ => None,
        }
    }
    /// Reads all remaining bytes as data. Returns `None` if they are more than one part may have.
    fn data(&mut self) -> Option<&'a [u8]> {
        let all = std::mem::take(&mut self.0);
        (all.len() <= MAX_DATA).then_some(all)
    }
    fn action(&mut self) -> Option<Atomic> {
        Some(match self.u8()? {
            0 => Atomic::FetchAdd { add: self.u64()? },
            1 => Atomic::CompareSwap { swap: self.u64()?, compare: self.u64()? },
            2 => Atomic::MaskedAdd32 { add: self.u32()?, boundary: self.u32()? },
            3 => Atomic::MaskedAdd64 { add: self.u64()?, boundary: self.u64()? },
            4 => Atomic::MaskedSwap32 {
                swap: self.u32()?,
                compare: self.u32()?,
                swap_mask: self.u32()?,
                compare_mask: self.u32()?,
            },
            5 => Atomic::MaskedSwap64 {
                swap: self.u64()?,
                compare: self.u64()?,
                swap_mask: self.u64()?,
                compare_mask: self.u64()?,
            },
            _ => return None,
        })
    }
}

fn put_remote(out: &mut Vec<u8>, r: Remote) {
    out.extend(r.address.to_le_bytes());
    out.extend(r.key.to_le_bytes());
}

fn put_option(out: &mut Vec<u8>, v: Option<u32>) {
    out.push(v.is_some().into());
    out.extend(v.unwrap_or(0).to_le_bytes());
}

fn put_action(out: &mut Vec<u8>, action: &Atomic) {
    let put32 = |out: &mut Vec<u8>, kind, words: &[u32]| {
        out.push(kind);
        out.extend(words.iter().flat_map(|w| w.to_le_bytes()));
    };
    let put64 = |out: &mut Vec<u8>, kind, words: &[u64]| {
        out.push(kind);
        out.extend(words.iter().flat_map(|w| w.to_le_bytes()));
    };
    match *action {
        Atomic::FetchAdd { add } => put64(out, 0, &[add]),
        Atomic::CompareSwap { swap, compare } => put64(out, 1, &[swap, compare]),
        Atomic::MaskedAdd32 { add, boundary } => put32(out, 2, &[add, boundary]),
        Atomic::MaskedAdd64 { add, boundary } => put64(out, 3, &[add, boundary]),
        Atomic::MaskedSwap32 { swap, compare, swap_mask, compare_mask } => {
            put32(out, 4, &[swap, compare, swap_mask, compare_mask])
        }
        Atomic::MaskedSwap64 { swap, compare, swap_mask, compare_mask } => {
            put64(out, 5, &[swap, compare, swap_mask, compare_mask])
        }
    }
}

impl<'a> Frame<'a> {
    /// Returns the frame's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(96);
        self.encode_to(&mut out);
        out
    }

    /// Appends the frame's bytes to `out`.
    pub fn encode_to(&self, out: &mut Vec<u8>) {
        match self {
            Self::Ping => out.push(1),
            Self::Pong => out.push(2),
            Self::Request { pair, nonce, from, from_nonce, sequence, answered, command } => {
                out.push(3);
                out.extend(pair.to_le_bytes());
                out.extend(nonce.to_le_bytes());
                out.extend(from.to_le_bytes());
                out.extend(from_nonce.to_le_bytes());
                out.extend(sequence.to_le_bytes());
                out.extend(answered.to_le_bytes());
                match command {
                    Command::Write { remote, total, offset, data, immediate } => {
                        out.push(1);
                        put_remote(out, *remote);
                        out.extend(total.to_le_bytes());
                        out.extend(offset.to_le_bytes());
                        put_option(out, *immediate);
                        out.extend_from_slice(data);
                    }
                    Command::Read { remote, total, offset, bytes } => {
                        out.push(2);
                        put_remote(out, *remote);
                        out.extend(total.to_le_bytes());
                        out.extend(offset.to_le_bytes());
                        out.extend(bytes.to_le_bytes());
                    }
                    Command::Send { total, offset, data, immediate } => {
                        out.push(3);
                        out.extend(total.to_le_bytes());
                        out.extend(offset.to_le_bytes());
                        put_option(out, *immediate);
                        out.extend_from_slice(data);
                    }
                    Command::Atomic { remote, action } => {
                        out.push(4);
                        put_remote(out, *remote);
                        put_action(out, action);
                    }
                }
            }
            Self::Response { pair, nonce, sequence, answer } => {
                out.push(4);
                out.extend(pair.to_le_bytes());
                out.extend(nonce.to_le_bytes());
                out.extend(sequence.to_le_bytes());
                match answer {
                    Answer::Done => out.push(1),
                    Answer::Data(data) => {
                        out.push(2);
                        out.extend_from_slice(data);
                    }
                    Answer::Old(v) => {
                        out.push(3);
                        out.extend(v.to_le_bytes());
                    }
                    Answer::Failed(f) => out.extend([4, f.syndrome.0, f.vendor.0, f.hardware.0, f.hardware.1]),
                    Answer::NotReady => out.push(5),
                    Answer::Gone(why) => {
                        out.push(6);
                        let end = (0..=why.len().min(MAX_TEXT)).rev().find(|i| why.is_char_boundary(*i)).unwrap_or(0);
                        out.extend_from_slice(&why.as_bytes()[..end]);
                    }
                }
            }
        }
    }

    /// Decodes a frame. Returns `None` if the bytes are not exactly one frame.
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let mut r = Reader(bytes);
        let frame = match r.u8()? {
            1 => Self::Ping,
            2 => Self::Pong,
            3 => {
                let (pair, nonce, from, from_nonce) = (r.u32()?, r.u64()?, r.u32()?, r.u64()?);
                let (sequence, answered) = (r.u64()?, r.u64()?);
                let command = match r.u8()? {
                    1 => Command::Write {
                        remote: r.remote()?,
                        total: r.u64()?,
                        offset: r.u64()?,
                        immediate: r.option()?,
                        data: r.data()?,
                    },
                    2 => Command::Read { remote: r.remote()?, total: r.u64()?, offset: r.u64()?, bytes: r.u32()? },
                    3 => Command::Send { total: r.u64()?, offset: r.u64()?, immediate: r.option()?, data: r.data()? },
                    4 => Command::Atomic { remote: r.remote()?, action: r.action()? },
                    _ => return None,
                };
                Self::Request { pair, nonce, from, from_nonce, sequence, answered, command }
            }
            4 => {
                let (pair, nonce, sequence) = (r.u32()?, r.u64()?, r.u64()?);
                let answer = match r.u8()? {
                    1 => Answer::Done,
                    2 => Answer::Data(r.data()?),
                    3 => Answer::Old(r.u64()?),
                    4 => {
                        let [syndrome, vendor, kind, hardware] = r.array()?;
                        let (syndrome, vendor) = (Syndrome(syndrome), VendorSyndrome(vendor));
                        Answer::Failed(Failure { syndrome, vendor, hardware: (kind, hardware) })
                    }
                    5 => Answer::NotReady,
                    6 => {
                        let text = std::str::from_utf8(std::mem::take(&mut r.0)).ok()?;
                        (text.len() <= MAX_TEXT).then_some(Answer::Gone(text))?
                    }
                    _ => return None,
                };
                Self::Response { pair, nonce, sequence, answer }
            }
            _ => return None,
        };
        r.0.is_empty().then_some(frame)
    }
}

impl Command<'_> {
    /// Returns true if the part's range is valid, so that later arithmetic needs no checks: nothing wraps, the part
    /// lies within the message, and only an empty message has an empty part.
    pub(super) fn is_sound(&self) -> bool {
        let (total, offset, bytes) = match self {
            Self::Write { total, offset, data, .. } | Self::Send { total, offset, data, .. } => {
                (*total, *offset, data.len() as u64)
            }
            Self::Read { total, offset, bytes, .. } => (*total, *offset, u64::from(*bytes)),
            Self::Atomic { .. } => return true,
        };
        bytes <= MAX_DATA as u64
            && offset.checked_add(bytes).is_some_and(|end| end <= total)
            && (bytes > 0 || total == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn action() -> impl Strategy<Value = Atomic> {
        (0..6, any::<[u64; 4]>()).prop_map(|(kind, [a, b, c, d])| match kind {
            0 => Atomic::FetchAdd { add: a },
            1 => Atomic::CompareSwap { swap: a, compare: b },
            2 => Atomic::MaskedAdd32 { add: a as u32, boundary: b as u32 },
            3 => Atomic::MaskedAdd64 { add: a, boundary: b },
            4 => {
                Atomic::MaskedSwap32 { swap: a as u32, compare: b as u32, swap_mask: c as u32, compare_mask: d as u32 }
            }
            _ => Atomic::MaskedSwap64 { swap: a, compare: b, swap_mask: c, compare_mask: d },
        })
    }

    proptest! {
        #[test]
        fn frames_come_back(
            kind in 0..4, pair: u32, nonce: u64, [sequence, answered, total, offset]: [u64; 4], immediate: Option<u32>,
            data in proptest::collection::vec(any::<u8>(), 0..300), action in action(), address: u64, key: u32, text in ".{0,60}",
        ) {
            let remote = Remote { address, key };
            let command = match kind {
                0 => Command::Write { remote, total, offset, data: &data, immediate },
                1 => Command::Read { remote, total, offset, bytes: key },
                2 => Command::Send { total, offset, data: &data, immediate },
                _ => Command::Atomic { remote, action },
            };
            let request = Frame::Request { pair, nonce, from: key, from_nonce: address, sequence, answered, command };
            let bytes = request.encode();
            prop_assert_eq!(Frame::decode(&bytes), Some(request));
            let failure = Failure { syndrome: Syndrome(key as u8), vendor: VendorSyndrome(pair as u8), hardware: (1, 2) };
            for answer in [Answer::Done, Answer::Data(&data), Answer::Old(total), Answer::Failed(failure), Answer::NotReady, Answer::Gone(&text)] {
                let response = Frame::Response { pair, nonce, sequence, answer };
                prop_assert_eq!(Frame::decode(&response.encode()).map(|f| f.encode()), Some(response.encode()));
            }
        }

        #[test]
        fn arbitrary_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            if let Some(frame) = Frame::decode(&bytes) {
                prop_assert_eq!(frame.encode(), bytes);
            }
        }
    }
}
