//! Wire format of a handshake message: magic (8 bytes), version (u16), step (u8), 32 bytes of payload. If the protocol
//! is named, the sender's and the receiver's name follow (u128 each). Integers are little-endian.

use super::mac::TAG;

/// Constants that tell one protocol from another.
#[derive(Debug)]
pub(crate) struct Protocol {
    /// First bytes of every greeting.
    pub(crate) magic: [u8; 8],
    /// Protocol version. Both ends must have the same one.
    pub(crate) version: u16,
    /// Label of the connecting end in the input of proofs and keys.
    pub(crate) initiator: &'static str,
    /// Label of the accepting end in the input of proofs and keys.
    pub(crate) responder: &'static str,
    /// True if each greeting carries its sender's and receiver's names. Proofs then cover the names.
    pub(crate) named: bool,
    /// Bytes of a frame's length in the input of the frame's tag. (On the wire, the length always has four bytes.)
    pub(crate) length_bytes: usize,
}

impl Protocol {
    /// Returns the size of an encoded greeting in bytes.
    pub(crate) const fn greeting_bytes(&self) -> usize {
        let names = if self.named { 2 * size_of::<u128>() } else { 0 };
        self.magic.len() + size_of::<u16>() + 1 + TAG + names
    }
}

/// The steps of a handshake, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// From the initiator: its random number.
    Hello = 1,
    /// From the responder: its random number.
    Challenge = 2,
    /// From the initiator: proof that it knows the secret.
    Proof = 3,
    /// From the responder: proof that it knows the secret.
    Welcome = 4,
    /// From the responder: the proof is wrong, or the versions differ.
    Denied = 5,
    /// From the responder, in named protocols only: the hello names another receiver.
    Mistaken = 6,
}

impl Step {
    fn read(step: u8, protocol: &Protocol) -> Option<Self> {
        Some(match step {
            1 => Self::Hello,
            2 => Self::Challenge,
            3 => Self::Proof,
            4 => Self::Welcome,
            5 => Self::Denied,
            6 if protocol.named => Self::Mistaken,
            _ => return None,
        })
    }
}

/// Sender and receiver of a greeting. Both are 0 if the protocol is not named.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parties {
    pub(crate) from: u128,
    pub(crate) to: u128,
}

/// One message of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Greeting {
    pub(crate) version: u16,
    pub(crate) step: Step,
    /// A random number or a proof.
    pub(crate) bytes: [u8; TAG],
    pub(crate) parties: Parties,
}

/// Error: the bytes are not the start of a greeting of this protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoGreeting;

impl Greeting {
    /// Builds a greeting with the protocol's version.
    pub(crate) fn new(protocol: &Protocol, step: Step, bytes: [u8; TAG], parties: Parties) -> Self {
        Self { version: protocol.version, step, bytes, parties }
    }

    /// Encodes the greeting in [`Protocol::greeting_bytes`] bytes.
    pub(crate) fn encode(&self, protocol: &Protocol) -> Vec<u8> {
        let mut all = Vec::with_capacity(protocol.greeting_bytes());
        all.extend(protocol.magic);
        all.extend(self.version.to_le_bytes());
        all.push(self.step as u8);
        all.extend(self.bytes);
        if protocol.named {
            all.extend(self.parties.from.to_le_bytes());
            all.extend(self.parties.to.to_le_bytes());
        }
        all
    }

    /// Decodes the greeting at the start of `stream`. Returns `None` while fewer than [`Protocol::greeting_bytes`]
    /// bytes have arrived.
    ///
    /// # Errors
    /// [`NoGreeting`] if the bytes do not begin with the magic word, or name an undefined step.
    pub(crate) fn read(protocol: &Protocol, stream: &[u8]) -> Result<Option<Self>, NoGreeting> {
        // A wrong prefix is an error at once: more bytes cannot correct it.
        let n = stream.len().min(protocol.magic.len());
        if stream[..n] != protocol.magic[..n] {
            return Err(NoGreeting);
        }
        match stream.get(n..protocol.greeting_bytes()) {
            None => Ok(None),
            Some(bytes) => Self::decode(protocol, bytes).map(Some).ok_or(NoGreeting),
        }
    }

    /// Decodes the bytes that follow the magic word.
    fn decode(protocol: &Protocol, bytes: &[u8]) -> Option<Self> {
        let (version, rest) = bytes.split_first_chunk()?;
        let (step, rest) = rest.split_first()?;
        let (bytes, rest) = rest.split_first_chunk()?;
        let parties = if protocol.named {
            let (from, to) = rest.split_first_chunk()?;
            Parties { from: u128::from_le_bytes(*from), to: u128::from_le_bytes(to.try_into().ok()?) }
        } else {
            Parties::default()
        };
        let step = Step::read(*step, protocol)?;
        Some(Self { version: u16::from_le_bytes(*version), step, bytes: *bytes, parties })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// One unnamed and one named protocol.
    pub(in crate::handshake) const BOTH: [&Protocol; 2] = [
        &Protocol {
            magic: *b"testtest",
            version: 3,
            initiator: "asker",
            responder: "asked",
            named: false,
            length_bytes: 4,
        },
        &Protocol {
            magic: *b"testname",
            version: 7,
            initiator: "asker",
            responder: "asked",
            named: true,
            length_bytes: 8,
        },
    ];

    pub(in crate::handshake) fn greeting() -> impl Strategy<Value = Greeting> {
        let step = prop::sample::select(vec![
            Step::Hello,
            Step::Challenge,
            Step::Proof,
            Step::Welcome,
            Step::Denied,
            Step::Mistaken,
        ]);
        (any::<u16>(), step, any::<[u8; TAG]>(), any::<(u128, u128)>()).prop_map(
            |(version, step, bytes, (from, to))| Greeting { version, step, bytes, parties: Parties { from, to } },
        )
    }

    #[test]
    fn what_does_not_begin_like_one_is_refused_at_once() {
        for protocol in BOTH {
            assert_eq!(Greeting::read(protocol, b"GET / HT"), Err(NoGreeting));
            assert_eq!(Greeting::read(protocol, b"G"), Err(NoGreeting));
            assert_eq!(Greeting::read(protocol, b"test"), Ok(None));
            let step_of_none = [&protocol.magic[..], &[0; 100]].concat();
            assert_eq!(Greeting::read(protocol, &step_of_none), Err(NoGreeting));
        }
        let mistaken = Greeting::new(BOTH[0], Step::Mistaken, [0; TAG], Parties::default());
        assert_eq!(Greeting::read(BOTH[0], &mistaken.encode(BOTH[0])), Err(NoGreeting), "nobody has a name there");
    }

    proptest! {
        #[test]
        fn greetings_come_back_once_all_of_them_has_come(mut said in greeting(), named: bool, behind: [u8; 5]) {
            let protocol = BOTH[usize::from(named)];
            if !named {
                prop_assume!(said.step != Step::Mistaken);
                said.parties = Parties::default();
            }
            let bytes = said.encode(protocol);
            prop_assert_eq!(bytes.len(), protocol.greeting_bytes());
            for n in 0..bytes.len() {
                prop_assert_eq!(Greeting::read(protocol, &bytes[..n]), Ok(None));
            }
            prop_assert_eq!(Greeting::read(protocol, &[&bytes[..], &behind].concat()), Ok(Some(said)));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..100), named: bool) {
            let protocol = BOTH[usize::from(named)];
            let stream = [&protocol.magic[..], &bytes].concat();
            if let Ok(Some(read)) = Greeting::read(protocol, &stream) {
                prop_assert_eq!(&read.encode(protocol)[..], &stream[..protocol.greeting_bytes()]);
            }
        }
    }
}
