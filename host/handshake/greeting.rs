//! Wire format of a handshake message: magic (8 bytes), version (u16), step (u8), protection (u8), and one Noise message
//! of 48 bytes. If the protocol is named, the sender's and the receiver's name follow (u128 each). Integers are
//! little-endian.

/// Bytes of a Noise message: a public key and a tag, or an encrypted block of 32 bytes and a tag.
pub(crate) const NOISE: usize = 48;

/// Constants that tell one protocol from another.
#[derive(Debug)]
pub(crate) struct Protocol {
    /// First bytes of every greeting.
    pub(crate) magic: [u8; 8],
    /// Protocol version. Both ends must have the same one.
    pub(crate) version: u16,
    /// True if each greeting carries its sender's and receiver's names. The keys then depend on the names.
    pub(crate) named: bool,
    /// Number of records of one direction after which both ends derive its next key.
    pub(crate) records_per_key: u64,
}

impl Protocol {
    /// Returns the size of an encoded greeting in bytes.
    pub(crate) const fn greeting_bytes(&self) -> usize {
        let names = if self.named { 2 * size_of::<u128>() } else { 0 };
        self.magic.len() + size_of::<u16>() + 2 + NOISE + names
    }
}

/// Protection of the frames that follow a handshake. Both ends must have chosen the same one: there is no negotiation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protection {
    /// Encrypted and authenticated.
    Encrypted = 1,
    /// Readable, with a checksum against transmission errors only.
    Plain = 2,
}

/// The steps of a handshake, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// From the initiator: its public key, encrypted proof that it knows the secret.
    Hello = 1,
    /// From the responder: its public key, encrypted proof that it knows the secret.
    Welcome = 2,
    /// From the initiator: proof that the hello was not replayed.
    Confirm = 3,
    /// From the responder: a proof is wrong, or the versions differ.
    Denied = 5,
    /// From the responder, in named protocols only: the hello names another receiver.
    Mistaken = 6,
    /// From the responder: the hello asks for the other protection.
    Unlike = 7,
}

impl Step {
    fn read(step: u8, protocol: &Protocol) -> Option<Self> {
        Some(match step {
            1 => Self::Hello,
            2 => Self::Welcome,
            3 => Self::Confirm,
            5 => Self::Denied,
            6 if protocol.named => Self::Mistaken,
            7 => Self::Unlike,
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

impl Parties {
    /// Returns the parties of a reply.
    pub(super) fn reversed(self) -> Self {
        Self { from: self.to, to: self.from }
    }
}

/// One message of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Greeting {
    pub(crate) version: u16,
    pub(crate) step: Step,
    pub(crate) protection: Protection,
    /// A Noise message; zeroes if the step has none.
    pub(crate) noise: [u8; NOISE],
    pub(crate) parties: Parties,
}

/// Error: the bytes are not the start of a greeting of this protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoGreeting;

impl Greeting {
    /// Builds a greeting with the protocol's version.
    pub(crate) fn new(protocol: &Protocol, step: Step, protection: Protection, parties: Parties) -> Self {
        Self { version: protocol.version, step, protection, noise: [0; NOISE], parties }
    }

    /// Encodes the greeting in [`Protocol::greeting_bytes`] bytes.
    pub(crate) fn encode(&self, protocol: &Protocol) -> Vec<u8> {
        let mut all = Vec::with_capacity(protocol.greeting_bytes());
        all.extend(protocol.magic);
        all.extend(self.version.to_le_bytes());
        all.extend([self.step as u8, self.protection as u8]);
        all.extend(self.noise);
        if protocol.named {
            all.extend(self.parties.from.to_le_bytes());
            all.extend(self.parties.to.to_le_bytes());
        }
        all
    }

    /// Decodes the greeting at the start of `stream`. Returns the greeting and its length in bytes, or `None` while
    /// fewer than [`Protocol::greeting_bytes`] bytes have arrived. A greeting of another version may be shorter or
    /// longer: it is returned once its version has arrived, as a hello of all bytes so far.
    ///
    /// # Errors
    /// [`NoGreeting`] if the bytes do not begin with the magic word, or name an undefined step or protection.
    pub(crate) fn read(protocol: &Protocol, stream: &[u8]) -> Result<Option<(Self, usize)>, NoGreeting> {
        // A wrong prefix is an error at once: more bytes cannot correct it.
        let n = stream.len().min(protocol.magic.len());
        if stream[..n] != protocol.magic[..n] {
            return Err(NoGreeting);
        }
        let Some((version, _)) = stream[n..].split_first_chunk() else { return Ok(None) };
        let version = u16::from_le_bytes(*version);
        if version != protocol.version {
            let unread = Self::new(protocol, Step::Hello, Protection::Encrypted, Parties::default());
            return Ok(Some((Self { version, ..unread }, stream.len())));
        }
        match stream.get(n..protocol.greeting_bytes()) {
            None => Ok(None),
            Some(bytes) => {
                Self::decode(protocol, bytes).map(|g| Some((g, protocol.greeting_bytes()))).ok_or(NoGreeting)
            }
        }
    }

    /// Decodes the bytes that follow the magic word.
    fn decode(protocol: &Protocol, bytes: &[u8]) -> Option<Self> {
        let (version, rest) = bytes.split_first_chunk()?;
        let ([step, protection], rest) = rest.split_first_chunk()?;
        let (noise, rest) = rest.split_first_chunk()?;
        let parties = if protocol.named {
            let (from, to) = rest.split_first_chunk()?;
            Parties { from: u128::from_le_bytes(*from), to: u128::from_le_bytes(to.try_into().ok()?) }
        } else {
            Parties::default()
        };
        let protection = match protection {
            1 => Protection::Encrypted,
            2 => Protection::Plain,
            _ => return None,
        };
        let step = Step::read(*step, protocol)?;
        Some(Self { version: u16::from_le_bytes(*version), step, protection, noise: *noise, parties })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// One unnamed and one named protocol. Both change keys often.
    pub(in crate::handshake) const BOTH: [&Protocol; 2] = [
        &Protocol { magic: *b"testtest", version: 3, named: false, records_per_key: 4 },
        &Protocol { magic: *b"testname", version: 7, named: true, records_per_key: 5 },
    ];

    pub(in crate::handshake) fn greeting() -> impl Strategy<Value = Greeting> {
        let step = prop::sample::select(vec![
            Step::Hello,
            Step::Welcome,
            Step::Confirm,
            Step::Denied,
            Step::Mistaken,
            Step::Unlike,
        ]);
        let protection = prop::sample::select(vec![Protection::Encrypted, Protection::Plain]);
        (any::<u16>(), step, protection, any::<[[u8; NOISE / 2]; 2]>(), any::<(u128, u128)>()).prop_map(
            |(version, step, protection, noise, (from, to))| {
                let noise = noise.concat().try_into().unwrap();
                Greeting { version, step, protection, noise, parties: Parties { from, to } }
            },
        )
    }

    #[test]
    fn what_does_not_begin_like_one_is_refused_at_once() {
        for protocol in BOTH {
            assert_eq!(Greeting::read(protocol, b"GET / HT"), Err(NoGreeting));
            assert_eq!(Greeting::read(protocol, b"G"), Err(NoGreeting));
            assert_eq!(Greeting::read(protocol, b"test"), Ok(None));
            let version = protocol.version.to_le_bytes();
            for wrong in [[0, 1], [9, 1], [1, 0], [1, 3]] {
                let stream = [&protocol.magic[..], &version, &wrong, &[0; 100]].concat();
                assert_eq!(Greeting::read(protocol, &stream), Err(NoGreeting));
            }
        }
        let mistaken = Greeting::new(BOTH[0], Step::Mistaken, Protection::Plain, Parties::default());
        assert_eq!(Greeting::read(BOTH[0], &mistaken.encode(BOTH[0])), Err(NoGreeting), "nobody has a name there");
    }

    #[test]
    fn another_version_is_known_by_its_first_bytes() {
        for protocol in BOTH {
            // A greeting of version 1 had 43 bytes.
            let old = [&protocol.magic[..], &[1, 0, 5], &[0; 32]].concat();
            let (read, bytes) = Greeting::read(protocol, &old).unwrap().unwrap();
            assert_eq!((read.version, bytes), (1, old.len()));
            assert_eq!(Greeting::read(protocol, &old[..9]), Ok(None));
        }
    }

    proptest! {
        #[test]
        fn greetings_come_back_once_all_of_them_has_come(mut said in greeting(), named: bool, behind: [u8; 5]) {
            let protocol = BOTH[usize::from(named)];
            said.version = protocol.version;
            if !named {
                prop_assume!(said.step != Step::Mistaken);
                said.parties = Parties::default();
            }
            let bytes = said.encode(protocol);
            prop_assert_eq!(bytes.len(), protocol.greeting_bytes());
            for n in 0..bytes.len() {
                prop_assert_eq!(Greeting::read(protocol, &bytes[..n]), Ok(None));
            }
            prop_assert_eq!(Greeting::read(protocol, &[&bytes[..], &behind].concat()), Ok(Some((said, bytes.len()))));
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..120), named: bool, fits: bool) {
            let protocol = BOTH[usize::from(named)];
            let version = if fits { &protocol.version.to_le_bytes()[..] } else { &[] };
            let stream = [&protocol.magic[..], version, &bytes].concat();
            if let Ok(Some((read, n))) = Greeting::read(protocol, &stream)
                && read.version == protocol.version
            {
                prop_assert_eq!(&read.encode(protocol)[..], &stream[..n]);
            }
        }
    }
}
