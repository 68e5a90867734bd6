//! State machines of both ends of a handshake: each takes the other end's greeting and returns the reply.
//!
//! The handshake is `NNpsk0` of the Noise Protocol Framework (revision 34): both ends send a new X25519 key, and the
//! shared secret is mixed in before the first. The names, the version and the protection are Noise's prologue.

use super::greeting::{Greeting, NOISE, Parties, Protection, Protocol, Step};
use super::mac::{TAG, keyed};
use super::seal::Seals;
use hmac::Mac;
use snow::{Builder, HandshakeState, StatelessTransportState};

const PATTERN: &str = "Noise_NNpsk0_25519_AESGCM_SHA256";
/// Number of the record in a confirmation. Frames have higher numbers.
const CONFIRMATION: u64 = 0;
/// Bytes of the block in a confirmation, all zero. They fill the greeting.
const BLOCK: usize = NOISE - super::seal::AUTHENTICATOR;

/// Reason why a handshake failed.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The other end speaks this version of the protocol.
    Version(u16),
    /// The other end does not know the secret, or has another one.
    Secret,
    /// The responder is not the end that the hello names.
    Mistaken,
    /// One end encrypts frames and the other does not.
    Protection,
    /// A greeting arrived that is not the expected next step.
    OutOfTurn,
    /// The operating system returned no random number.
    Random(std::io::Error),
}

impl From<snow::Error> for Fault {
    /// Converts an error of this end's own side of the handshake. Only its random numbers can fail.
    fn from(e: snow::Error) -> Self {
        Self::Random(std::io::Error::other(e))
    }
}

/// Next action of one end of a handshake.
pub(crate) enum Next {
    /// Send these bytes, then wait for the other end's next greeting.
    Say(Vec<u8>),
    /// Send `say` unless it is empty. Both ends are now authenticated.
    Open {
        /// The last greeting, or nothing.
        say: Vec<u8>,
        /// Seals of all frames that follow.
        seals: Box<Seals>,
        /// The other end's name; 0 if the protocol is not named.
        peer: u128,
    },
}

/// A failed handshake.
pub(crate) struct HandshakeError {
    /// Send these bytes unless there are none, then close the connection.
    pub(crate) say: Vec<u8>,
    /// Reason of the failure.
    pub(crate) fault: Fault,
}

impl From<Fault> for HandshakeError {
    fn from(fault: Fault) -> Self {
        Self { say: Vec::new(), fault }
    }
}

/// Common input of both ends: protocol, secret and protection.
#[derive(Clone)]
pub(crate) struct Terms {
    protocol: &'static Protocol,
    secret: [u8; TAG],
    protection: Protection,
    /// The end's private key in tests whose bytes have to repeat; otherwise random.
    fixed: Option<[u8; 32]>,
}

impl Terms {
    /// Creates the terms of a connection. `secret` has any length.
    pub(crate) fn new(protocol: &'static Protocol, secret: &[u8], protection: Protection) -> Self {
        let secret = keyed(secret).chain_update(protocol.magic).finalize().into_bytes().into();
        Self { protocol, secret, protection, fixed: None }
    }

    /// Uses `key` as this end's private key, which makes the handshake repeatable and worthless.
    #[cfg(feature = "internals")]
    pub(super) fn fixed(self, key: [u8; 32]) -> Self {
        Self { fixed: Some(key), ..self }
    }

    fn greeting(&self, step: Step, parties: Parties) -> Greeting {
        Greeting::new(self.protocol, step, self.protection, parties)
    }

    /// Starts Noise's state machine. Both ends derive the same prologue from the hello's parties.
    fn noise(&self, parties: Parties, initiates: bool) -> Result<HandshakeState, snow::Error> {
        let prologue = self.greeting(Step::Hello, parties).encode(self.protocol);
        let mut builder = Builder::new(PATTERN.parse()?).psk(0, &self.secret)?.prologue(&prologue)?;
        if let Some(key) = &self.fixed {
            builder = builder.fixed_ephemeral_key_for_testing_only(key);
        }
        if initiates { builder.build_initiator() } else { builder.build_responder() }
    }
}

/// Reads a Noise message without payload. Any error means that the other end does not know the secret.
fn read(noise: &mut HandshakeState, heard: &Greeting) -> Result<(), Fault> {
    // Noise asks for space for the payload and its tag.
    noise.read_message(&heard.noise, &mut [0; NOISE]).map(drop).map_err(|_| Fault::Secret)
}

/// The connecting end.
pub(crate) struct Initiator {
    terms: Terms,
    parties: Parties,
    /// `None` once the handshake is over.
    noise: Option<HandshakeState>,
}

impl Initiator {
    /// Starts a handshake. Returns the initiator and the bytes of its hello.
    ///
    /// # Errors
    /// [`Fault::Random`] if the operating system returns no random number.
    pub(crate) fn new(terms: Terms, parties: Parties) -> Result<(Self, Vec<u8>), Fault> {
        let mut noise = terms.noise(parties, true)?;
        let mut hello = terms.greeting(Step::Hello, parties);
        noise.write_message(&[], &mut hello.noise)?;
        let say = hello.encode(terms.protocol);
        Ok((Self { terms, parties, noise: Some(noise) }, say))
    }

    /// Handles the responder's reply to the hello.
    ///
    /// # Errors
    /// * [`Fault::Version`] if the responder has another protocol version.
    /// * [`Fault::Mistaken`] if the responder is not the end that the hello names.
    /// * [`Fault::Protection`] if the responder has the other protection.
    /// * [`Fault::Secret`] if the responder rejects the hello, or its own proof is wrong.
    /// * [`Fault::OutOfTurn`] if the greeting is not a reply to a hello.
    pub(crate) fn read_message(&mut self, heard: &Greeting) -> Result<Next, Fault> {
        let Self { terms, parties, noise } = self;
        let noise = noise.take();
        if heard.version != terms.protocol.version {
            return Err(Fault::Version(heard.version));
        }
        match (noise, heard.step) {
            (Some(mut noise), Step::Welcome) => {
                read(&mut noise, heard)?;
                if heard.protection != terms.protection || heard.parties != parties.reversed() {
                    return Err(Fault::Secret);
                }
                let channel = noise.into_stateless_transport_mode()?;
                let mut confirm = terms.greeting(Step::Confirm, *parties);
                channel.write_message(CONFIRMATION, &[0; BLOCK], &mut confirm.noise)?;
                let seals = Box::new(Seals::new(channel, terms.protocol, terms.protection));
                Ok(Next::Open { say: confirm.encode(terms.protocol), seals, peer: parties.to })
            }
            (Some(_), Step::Denied) => Err(Fault::Secret),
            (Some(_), Step::Mistaken) => Err(Fault::Mistaken),
            (Some(_), Step::Unlike) => Err(Fault::Protection),
            _ => Err(Fault::OutOfTurn),
        }
    }
}

/// The accepting end.
pub(crate) struct Responder {
    terms: Terms,
    me: u128,
    stage: Stage,
}

enum Stage {
    Waits,
    Welcomes(Box<StatelessTransportState>, Parties),
    Over,
}

impl Responder {
    /// Creates a responder that waits for a hello. `me` is its name, 0 if the protocol is not named.
    pub(crate) fn new(terms: Terms, me: u128) -> Self {
        Self { terms, me, stage: Stage::Waits }
    }

    /// Handles the initiator's next greeting.
    ///
    /// # Errors
    /// A [`HandshakeError`] with the bytes to send and one of these faults:
    /// * [`Fault::Version`] if the initiator has another protocol version.
    /// * [`Fault::Mistaken`] if the hello names another end.
    /// * [`Fault::Protection`] if the hello asks for the other protection.
    /// * [`Fault::Secret`] if a proof of the initiator is wrong.
    /// * [`Fault::OutOfTurn`] if the greeting is not the expected next step.
    /// * [`Fault::Random`] if the operating system returns no random number.
    pub(crate) fn read_message(&mut self, heard: &Greeting) -> Result<Next, HandshakeError> {
        let Self { terms, me, stage } = self;
        let protocol = terms.protocol;
        let reply = Parties { from: *me, to: heard.parties.from };
        let refuse = |step, fault| Err(HandshakeError { say: terms.greeting(step, reply).encode(protocol), fault });
        if heard.version != protocol.version {
            // The reply carries this end's version, from which the other end derives the remedy.
            return refuse(Step::Denied, Fault::Version(heard.version));
        }
        match (std::mem::replace(stage, Stage::Over), heard.step) {
            (Stage::Waits, Step::Hello) if heard.parties.to != *me => refuse(Step::Mistaken, Fault::Mistaken),
            (Stage::Waits, Step::Hello) if heard.protection != terms.protection => {
                refuse(Step::Unlike, Fault::Protection)
            }
            (Stage::Waits, Step::Hello) => {
                // Without the secret, a hello costs this end some hashes. The key exchange comes after its proof.
                let mut noise = terms.noise(heard.parties, false).map_err(Fault::from)?;
                if read(&mut noise, heard).is_err() {
                    return refuse(Step::Denied, Fault::Secret);
                }
                let mut welcome = terms.greeting(Step::Welcome, reply);
                noise.write_message(&[], &mut welcome.noise).map_err(Fault::from)?;
                let channel = noise.into_stateless_transport_mode().map_err(Fault::from)?;
                *stage = Stage::Welcomes(Box::new(channel), heard.parties);
                Ok(Next::Say(welcome.encode(protocol)))
            }
            (Stage::Welcomes(channel, parties), Step::Confirm) => {
                // Whoever replays a hello does not have its private key, and cannot confirm.
                let proof = channel.read_message(CONFIRMATION, &heard.noise, &mut [0; NOISE]);
                if proof.is_err() || heard.parties != parties || heard.protection != terms.protection {
                    return refuse(Step::Denied, Fault::Secret);
                }
                let seals = Box::new(Seals::new(*channel, protocol, terms.protection));
                Ok(Next::Open { say: Vec::new(), seals, peer: parties.from })
            }
            _ => Err(Fault::OutOfTurn.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::greeting::tests::{BOTH, greeting};
    use super::*;
    use proptest::prelude::*;

    const NAMES: Parties = Parties { from: 5, to: 9 };
    use Protection::{Encrypted, Plain};

    fn parties(protocol: &Protocol) -> Parties {
        if protocol.named { NAMES } else { Parties::default() }
    }

    fn initiator(protocol: &'static Protocol, secret: &[u8]) -> (Initiator, Vec<u8>) {
        Initiator::new(Terms::new(protocol, secret, Encrypted), parties(protocol)).unwrap()
    }

    fn responder(protocol: &'static Protocol, secret: &[u8]) -> Responder {
        Responder::new(Terms::new(protocol, secret, Encrypted), parties(protocol).to)
    }

    fn read(protocol: &Protocol, bytes: &[u8]) -> Greeting {
        let (greeting, n) = Greeting::read(protocol, bytes).unwrap().unwrap();
        assert_eq!((n, bytes.len()), (protocol.greeting_bytes(), n));
        greeting
    }

    fn say<E>(next: Result<Next, E>) -> Vec<u8> {
        match next {
            Ok(Next::Say(bytes)) => bytes,
            _ => panic!("it does not say anything"),
        }
    }

    /// Runs both ends until the initiator has sent its confirmation. Also returns the initiator's seals.
    fn up_to_confirm(protocol: &'static Protocol) -> (Responder, Vec<u8>, Box<Seals>) {
        let ((mut a, hello), mut b) = (initiator(protocol, b"secret"), responder(protocol, b"secret"));
        let welcome = say(b.read_message(&read(protocol, &hello)));
        let Ok(Next::Open { say: confirm, seals, .. }) = a.read_message(&read(protocol, &welcome)) else { panic!() };
        (b, confirm, seals)
    }

    fn denied(result: Result<Next, HandshakeError>, protocol: &Protocol) -> Greeting {
        let Err(HandshakeError { say, fault: Fault::Secret }) = result else { panic!("no wrong secret") };
        let said = read(protocol, &say);
        assert_eq!((said.step, said.noise), (Step::Denied, [0; NOISE]));
        said
    }

    #[test]
    fn another_secret_is_found_by_both_and_shown_by_none() {
        for protocol in BOTH {
            let ((mut a, hello), mut b) = (initiator(protocol, b"0123456789abcdef"), responder(protocol, b"other"));
            let said = denied(b.read_message(&read(protocol, &hello)), protocol);
            assert!(matches!(a.read_message(&said), Err(Fault::Secret)));
            // A forged welcome, and this end's own hello reflected.
            for noise in [[7; NOISE], read(protocol, &hello).noise] {
                let (mut a, _) = initiator(protocol, b"a");
                let forged = Greeting { step: Step::Welcome, noise, ..said };
                assert!(matches!(a.read_message(&forged), Err(Fault::Secret)));
            }
        }
    }

    #[test]
    fn a_replayed_transcript_opens_nothing() {
        for protocol in BOTH {
            let ((mut a, hello), mut b) = (initiator(protocol, b"secret"), responder(protocol, b"secret"));
            let welcome = say(b.read_message(&read(protocol, &hello)));
            let Ok(Next::Open { say: confirm, .. }) = a.read_message(&read(protocol, &welcome)) else { panic!() };
            assert!(matches!(b.read_message(&read(protocol, &confirm)), Ok(Next::Open { .. })));
            assert!(matches!(
                b.read_message(&read(protocol, &confirm)),
                Err(HandshakeError { fault: Fault::OutOfTurn, .. })
            ));
            // Another responder gives these bytes a welcome with another key, and no more.
            let mut again = responder(protocol, b"secret");
            let other = say(again.read_message(&read(protocol, &hello)));
            assert_ne!(other, welcome);
            denied(again.read_message(&read(protocol, &confirm)), protocol);
            // A responder's welcome is of no use to another initiator.
            let (mut a, _) = initiator(protocol, b"secret");
            assert!(matches!(a.read_message(&read(protocol, &welcome)), Err(Fault::Secret)));
        }
    }

    #[test]
    fn every_bit_of_every_greeting_counts() {
        for protocol in BOTH {
            let flipped = |bytes: &[u8], bit: usize| {
                let mut bytes = bytes.to_vec();
                bytes[bit / 8] ^= 1 << (bit % 8);
                Greeting::read(protocol, &bytes).ok().flatten()
            };
            for bit in 0..protocol.greeting_bytes() * 8 {
                let ((mut a, hello), mut b) = (initiator(protocol, b"secret"), responder(protocol, b"secret"));
                if let Some((hello, _)) = flipped(&hello, bit) {
                    assert!(responder(protocol, b"secret").read_message(&hello).is_err(), "bit {bit} of the hello");
                }
                let welcome = say(b.read_message(&read(protocol, &hello)));
                if let Some((welcome, _)) = flipped(&welcome, bit) {
                    assert!(a.read_message(&welcome).is_err(), "bit {bit} of the welcome");
                }
                let (mut b, confirm, _) = up_to_confirm(protocol);
                if let Some((confirm, _)) = flipped(&confirm, bit) {
                    assert!(b.read_message(&confirm).is_err(), "bit {bit} of the confirmation");
                }
            }
        }
    }

    #[test]
    fn names_are_covered() {
        let protocol = BOTH[1];
        let (_, hello) = initiator(protocol, b"secret");
        let elsewhere =
            Responder::new(Terms::new(protocol, b"secret", Encrypted), 10).read_message(&read(protocol, &hello));
        let Err(HandshakeError { say, fault: Fault::Mistaken }) = elsewhere else { panic!() };
        let (mut a, _) = initiator(protocol, b"secret");
        assert!(matches!(a.read_message(&read(protocol, &say)), Err(Fault::Mistaken)));
    }

    #[test]
    fn the_protection_is_never_negotiated() {
        for protocol in BOTH {
            for (mine, theirs) in [(Encrypted, Plain), (Plain, Encrypted)] {
                let end = |protection| Terms::new(protocol, b"secret", protection);
                let (mut a, hello) = Initiator::new(end(mine), parties(protocol)).unwrap();
                let mut b = Responder::new(end(theirs), parties(protocol).to);
                let Err(HandshakeError { say, fault: Fault::Protection }) = b.read_message(&read(protocol, &hello))
                else {
                    panic!()
                };
                assert!(matches!(a.read_message(&read(protocol, &say)), Err(Fault::Protection)));
                // An attacker who changes the wish of the hello has no success.
                let mut b = Responder::new(end(theirs), parties(protocol).to);
                denied(b.read_message(&Greeting { protection: theirs, ..read(protocol, &hello) }), protocol);
            }
        }
    }

    #[test]
    fn another_version_is_named_on_both_sides() {
        for protocol in BOTH {
            let (mut a, hello) = initiator(protocol, b"secret");
            let newer = Greeting { version: 99, ..read(protocol, &hello) };
            let Err(HandshakeError { say, fault: Fault::Version(99) }) =
                responder(protocol, b"secret").read_message(&newer)
            else {
                panic!()
            };
            let denied = read(protocol, &say);
            assert_eq!((denied.version, denied.step), (protocol.version, Step::Denied));
            assert!(matches!(a.read_message(&Greeting { version: 98, ..denied }), Err(Fault::Version(98))));
        }
    }

    /// Keys of a connection come from keys that exist only while it is made, so each connection has others, and the
    /// secret alone does not lead to them.
    #[test]
    fn each_connection_has_its_own_keys() {
        for protocol in BOTH {
            let (_, _, mut one) = up_to_confirm(protocol);
            let (mut b, confirm, _) = up_to_confirm(protocol);
            let Ok(Next::Open { seals: mut other, .. }) = b.read_message(&read(protocol, &confirm)) else { panic!() };
            let (mut frame, mut into) = (Vec::new(), Vec::new());
            one.ours.close(b"text", &mut frame).unwrap();
            assert!(other.theirs.open(&frame, 0..=9, &mut into).is_err());
        }
    }

    #[test]
    fn the_bytes_are_those_of_noise() {
        let hex = |bytes: &[u8]| -> String { bytes.iter().map(|b| format!("{b:02x}")).collect() };
        let protocol = BOTH[1];
        let end = |key| Terms::new(protocol, b"0123456789abcdef", Encrypted).fixed([key; 32]);
        let (mut a, hello) = Initiator::new(end(1), NAMES).unwrap();
        let mut b = Responder::new(end(2), 9);
        let welcome = say(b.read_message(&read(protocol, &hello)));
        let Ok(Next::Open { say: confirm, mut seals, .. }) = a.read_message(&read(protocol, &welcome)) else {
            panic!()
        };
        let mut frame = Vec::new();
        seals.ours.close(b"text", &mut frame).unwrap();
        let names = |from, to| hex(&[u128::to_le_bytes(from), u128::to_le_bytes(to)].concat());
        // Computed by another implementation: HMAC, X25519 and AES-GCM of Python, put together as the framework says.
        for (said, step, noise, names) in [
            (
                &hello,
                "01",
                "a4e09292b651c278b9772c569f5fa9bb13d906b46ab68c9df9dc2b4409f8a20939bb2d52954cfbbd7fff5ebedee574d1",
                names(5, 9),
            ),
            (
                &welcome,
                "02",
                "ce8d3ad1ccb633ec7b70c17814a5c76ecd029685050d344745ba05870e587d59e98534a5ed691341107fa1158a5718f6",
                names(9, 5),
            ),
            (
                &confirm,
                "03",
                "cf85ab779b364c2787cae1b4269e8f6d7aba803184aa702ab3da2383cb12dbc4d0851493ebe20d94efdeebaeb18b156d",
                names(5, 9),
            ),
        ] {
            assert_eq!(hex(said), format!("{}0700{step}01{noise}{names}", hex(b"testname")));
        }
        assert_eq!(hex(&frame), "04000000be80a93755995d68239509dc80b28fdfa284e4c9");
    }

    proptest! {
        #[test]
        fn both_ends_open_and_hear_each_other(secret in prop::collection::vec(any::<u8>(), 0..200), named: bool, plain: bool, text: [u8; 9]) {
            let protocol = BOTH[usize::from(named)];
            let end = || Terms::new(protocol, &secret, if plain { Plain } else { Encrypted });
            let (mut a, hello) = Initiator::new(end(), parties(protocol)).unwrap();
            let mut b = Responder::new(end(), parties(protocol).to);
            let welcome = say(b.read_message(&read(protocol, &hello)));
            let Ok(Next::Open { say, seals: mut ours, peer }) = a.read_message(&read(protocol, &welcome)) else { panic!() };
            prop_assert_eq!(peer, parties(protocol).to);
            let Ok(Next::Open { say, seals: mut theirs, peer }) = b.read_message(&read(protocol, &say)) else { panic!() };
            prop_assert_eq!((say.len(), peer), (0, parties(protocol).from));
            for (from, to) in [(&mut ours.ours, &mut theirs.theirs), (&mut theirs.ours, &mut ours.theirs)] {
                let (mut frame, mut into) = (Vec::new(), Vec::new());
                from.close(&text, &mut frame).unwrap();
                prop_assert_eq!(frame.windows(9).any(|w| w == text), plain, "readable on the way");
                prop_assert_eq!(to.open(&frame, 0..=9, &mut into), Ok(Some(frame.len())));
                prop_assert_eq!(&into[..], &text);
            }
        }

        #[test]
        fn who_does_not_know_the_secret_opens_nothing(said in prop::collection::vec(greeting(), 1..6), named: bool, fits: bool) {
            let protocol = BOTH[usize::from(named)];
            let ((mut a, _), mut b) = (initiator(protocol, b"secret"), responder(protocol, b"secret"));
            for mut greeting in said {
                if fits {
                    greeting.version = protocol.version;
                    greeting.parties.to = parties(protocol).to;
                }
                let opens = matches!(a.read_message(&greeting), Ok(Next::Open { .. }));
                prop_assert!(!opens);
                let opens = matches!(b.read_message(&greeting), Ok(Next::Open { .. }));
                prop_assert!(!opens);
            }
        }
    }
}
