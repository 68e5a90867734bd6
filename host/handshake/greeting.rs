//! The steps of a greeting as bytes: a magic word, the version (u16), the step (u8), 32 bytes, and, where a protocol's ends have
//! names, from whom it is and for whom (u128 each). Integers are little-endian.

use super::mac::TAG;

/// What tells one protocol from another.
#[derive(Debug)]
pub(crate) struct Protocol {
    /// What every greeting begins with.
    pub(crate) magic: [u8; 8],
    /// Both ends must have the same.
    pub(crate) version: u16,
    /// What proofs and keys call the end that connects.
    pub(crate) initiator: &'static str,
    /// And the one that it connects to.
    pub(crate) responder: &'static str,
    /// Whether each step says from whom it is and for whom; proofs then cover that.
    pub(crate) named: bool,
    /// Bytes of a frame's length as the frame's tag covers it. (Four of them travel.)
    pub(crate) length_bytes: usize,
}

impl Protocol {
    /// Bytes of a greeting.
    pub(crate) const fn greeting_bytes(&self) -> usize {
        let names = if self.named { 2 * size_of::<u128>() } else { 0 };
        self.magic.len() + size_of::<u16>() + 1 + TAG + names
    }
}

/// The steps of a greeting, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Initiator: my random number.
    Hello = 1,
    /// Responder: mine.
    Challenge = 2,
    /// Initiator: proof that I know the secret.
    Proof = 3,
    /// Responder: and I do.
    Welcome = 4,
    /// Responder: that was no proof, or not of my version.
    Denied = 5,
    /// Responder, where ends have names: I am not the one that is meant.
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

/// Who speaks, and who is meant; both 0 where ends have no names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parties {
    pub(crate) from: u128,
    pub(crate) to: u128,
}

/// One step of a greeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Greeting {
    pub(crate) version: u16,
    pub(crate) step: Step,
    /// A random number or a proof.
    pub(crate) bytes: [u8; TAG],
    pub(crate) parties: Parties,
}

/// Such bytes begin no greeting of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoGreeting;

impl Greeting {
    pub(crate) fn new(protocol: &Protocol, step: Step, bytes: [u8; TAG], parties: Parties) -> Self {
        Self { version: protocol.version, step, bytes, parties }
    }

    /// As bytes, [`Protocol::greeting_bytes`] of them.
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

    /// The one that a stream begins with, once all of it has come; it takes [`Protocol::greeting_bytes`].
    pub(crate) fn read(protocol: &Protocol, stream: &[u8]) -> Result<Option<Self>, NoGreeting> {
        // What does not begin like one never will be.
        let n = stream.len().min(protocol.magic.len());
        if stream[..n] != protocol.magic[..n] {
            return Err(NoGreeting);
        }
        match stream.get(n..protocol.greeting_bytes()) {
            None => Ok(None),
            Some(bytes) => Self::decode(protocol, bytes).map(Some).ok_or(NoGreeting),
        }
    }

    /// From what follows the magic word.
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

    /// A protocol whose ends have no names, and one whose ends do.
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
