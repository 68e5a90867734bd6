//! State machines of both ends of a handshake: each takes the other end's greeting and returns the reply.

use super::greeting::{Greeting, Parties, Protocol, Step};
use super::mac::{TAG, keyed};
use super::seal::{Seal, Seals};
use crate::random;
use hmac::{Hmac, Mac};
use sha2::Sha256;

/// Reason why a handshake failed.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The other end speaks this version of the protocol.
    Version(u16),
    /// The other end does not know the secret, or has another one.
    Secret,
    /// The responder is not the end that the hello names.
    Mistaken,
    /// A greeting arrived that is not the expected next step.
    OutOfTurn,
    /// The operating system returned no random number.
    Random(std::io::Error),
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

#[derive(Clone, Copy)]
enum End {
    Initiator,
    Responder,
}

/// State that both ends share after they have exchanged random numbers.
struct Greeted {
    protocol: &'static Protocol,
    secret: Hmac<Sha256>,
    /// Hello and challenge, as proofs and keys cover them.
    said: Vec<u8>,
}

impl Greeted {
    fn new(protocol: &'static Protocol, secret: Hmac<Sha256>, hello: &Greeting, challenge: &Greeting) -> Self {
        let said = if protocol.named {
            [hello.encode(protocol), challenge.encode(protocol)].concat()
        } else {
            [&protocol.version.to_le_bytes()[..], &hello.bytes, &challenge.bytes].concat()
        };
        Self { protocol, secret, said }
    }

    fn derive(&self, purpose: &str, end: End) -> Hmac<Sha256> {
        let end = match end {
            End::Initiator => self.protocol.initiator,
            End::Responder => self.protocol.responder,
        };
        self.secret.clone().chain_update(purpose).chain_update(end).chain_update(&self.said)
    }

    /// Returns the proof that this end sends.
    fn proof(&self, end: End) -> [u8; TAG] {
        self.derive("proof of ", end).finalize().into_bytes().into()
    }

    /// Returns true if `proof` is the proof of this end. Compares in constant time.
    fn proves(&self, end: End, proof: &[u8; TAG]) -> bool {
        self.derive("proof of ", end).verify_slice(proof).is_ok()
    }

    fn seal(&self, end: End) -> Seal {
        Seal::new(&self.derive("key of ", end).finalize().into_bytes(), self.protocol)
    }
}

/// The connecting end.
pub(crate) struct Initiator {
    protocol: &'static Protocol,
    parties: Parties,
    stage: Asking,
}

enum Asking {
    Greets(Hmac<Sha256>, Greeting),
    Proves(Greeted),
    Over,
}

impl Initiator {
    /// Starts a handshake. Returns the initiator and the bytes of its hello.
    ///
    /// # Errors
    /// [`Fault::Random`] if the operating system returns no random number.
    pub(crate) fn new(protocol: &'static Protocol, secret: &[u8], parties: Parties) -> Result<(Self, Vec<u8>), Fault> {
        Ok(Self::with_number(protocol, secret, parties, random::bytes().map_err(Fault::Random)?))
    }

    /// Starts a handshake with the given random number, which must never have been used before.
    pub(crate) fn with_number(
        protocol: &'static Protocol,
        secret: &[u8],
        parties: Parties,
        number: [u8; TAG],
    ) -> (Self, Vec<u8>) {
        let hello = Greeting::new(protocol, Step::Hello, number, parties);
        let say = hello.encode(protocol);
        (Self { protocol, parties, stage: Asking::Greets(keyed(secret), hello) }, say)
    }

    /// Handles the responder's next greeting.
    ///
    /// # Errors
    /// * [`Fault::Version`] if the responder has another protocol version.
    /// * [`Fault::Mistaken`] if the responder is not the end that the hello names.
    /// * [`Fault::Secret`] if the responder rejects the proof, or its own proof is wrong.
    /// * [`Fault::OutOfTurn`] if the greeting is not the expected next step.
    pub(crate) fn hear(&mut self, heard: &Greeting) -> Result<Next, Fault> {
        let stage = std::mem::replace(&mut self.stage, Asking::Over);
        if heard.version != self.protocol.version {
            return Err(Fault::Version(heard.version));
        }
        match (stage, heard.step) {
            (Asking::Greets(secret, hello), Step::Challenge) => {
                let greeted = Greeted::new(self.protocol, secret, &hello, heard);
                let proof = Greeting::new(self.protocol, Step::Proof, greeted.proof(End::Initiator), self.parties);
                self.stage = Asking::Proves(greeted);
                Ok(Next::Say(proof.encode(self.protocol)))
            }
            (Asking::Greets(..), Step::Mistaken) => Err(Fault::Mistaken),
            (Asking::Proves(greeted), Step::Welcome) if greeted.proves(End::Responder, &heard.bytes) => {
                let seals = Seals { ours: greeted.seal(End::Initiator), theirs: greeted.seal(End::Responder) };
                Ok(Next::Open { say: Vec::new(), seals: Box::new(seals), peer: self.parties.to })
            }
            // An impostor learns no more about the secret than this end's proof reveals.
            (Asking::Proves(_), Step::Welcome | Step::Denied) => Err(Fault::Secret),
            _ => Err(Fault::OutOfTurn),
        }
    }
}

/// The accepting end.
pub(crate) struct Responder {
    protocol: &'static Protocol,
    me: u128,
    stage: ResponderStage,
}

enum ResponderStage {
    Waits(Hmac<Sha256>),
    Challenges(Greeted, u128),
    Over,
}

impl Responder {
    /// Creates a responder that waits for a hello. `me` is its name, 0 if the protocol is not named.
    pub(crate) fn new(protocol: &'static Protocol, secret: &[u8], me: u128) -> Self {
        Self { protocol, me, stage: ResponderStage::Waits(keyed(secret)) }
    }

    /// Handles the initiator's next greeting.
    ///
    /// # Errors
    /// A [`HandshakeError`] with the bytes to send and one of these faults:
    /// * [`Fault::Version`] if the initiator has another protocol version.
    /// * [`Fault::Mistaken`] if the hello names another end.
    /// * [`Fault::Secret`] if the initiator's proof is wrong.
    /// * [`Fault::OutOfTurn`] if the greeting is not the expected next step.
    /// * [`Fault::Random`] if the operating system returns no random number.
    pub(crate) fn hear(&mut self, heard: &Greeting) -> Result<Next, HandshakeError> {
        self.hear_with(heard, || random::bytes().map_err(Fault::Random))
    }

    /// Handles a greeting like [`Self::hear`], with a random number from `number`, which must never repeat a number.
    pub(crate) fn hear_with(
        &mut self,
        heard: &Greeting,
        number: impl FnOnce() -> Result<[u8; TAG], Fault>,
    ) -> Result<Next, HandshakeError> {
        let (protocol, stage) = (self.protocol, std::mem::replace(&mut self.stage, ResponderStage::Over));
        let parties = Parties { from: self.me, to: heard.parties.from };
        let say = |step, bytes| Greeting::new(protocol, step, bytes, parties).encode(protocol);
        if heard.version != protocol.version {
            // The reply carries this end's version, from which the other end derives the remedy.
            return Err(HandshakeError { say: say(Step::Denied, [0; TAG]), fault: Fault::Version(heard.version) });
        }
        match (stage, heard.step) {
            (ResponderStage::Waits(_), Step::Hello) if heard.parties.to != self.me => {
                Err(HandshakeError { say: say(Step::Mistaken, [0; TAG]), fault: Fault::Mistaken })
            }
            (ResponderStage::Waits(secret), Step::Hello) => {
                let challenge = Greeting::new(protocol, Step::Challenge, number()?, parties);
                self.stage =
                    ResponderStage::Challenges(Greeted::new(protocol, secret, heard, &challenge), heard.parties.from);
                Ok(Next::Say(challenge.encode(protocol)))
            }
            (ResponderStage::Challenges(greeted, peer), Step::Proof) => {
                let parties = Parties { from: self.me, to: peer };
                let say = |step, bytes| Greeting::new(protocol, step, bytes, parties).encode(protocol);
                if heard.parties.from != peer || !greeted.proves(End::Initiator, &heard.bytes) {
                    return Err(HandshakeError { say: say(Step::Denied, [0; TAG]), fault: Fault::Secret });
                }
                let seals = Seals { ours: greeted.seal(End::Responder), theirs: greeted.seal(End::Initiator) };
                Ok(Next::Open { say: say(Step::Welcome, greeted.proof(End::Responder)), seals: Box::new(seals), peer })
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

    fn parties(protocol: &Protocol) -> Parties {
        if protocol.named { NAMES } else { Parties::default() }
    }

    fn asker(protocol: &'static Protocol, secret: &[u8]) -> (Initiator, Vec<u8>) {
        Initiator::new(protocol, secret, parties(protocol)).unwrap()
    }

    fn asked(protocol: &'static Protocol, secret: &[u8]) -> Responder {
        Responder::new(protocol, secret, parties(protocol).to)
    }

    fn read(protocol: &Protocol, bytes: &[u8]) -> Greeting {
        assert_eq!(bytes.len(), protocol.greeting_bytes());
        Greeting::read(protocol, bytes).unwrap().unwrap()
    }

    fn say<E>(next: Result<Next, E>) -> Vec<u8> {
        match next {
            Ok(Next::Say(bytes)) => bytes,
            _ => panic!("it does not say anything"),
        }
    }

    /// Runs both ends until the initiator has sent its proof.
    fn up_to_proof(protocol: &'static Protocol, secrets: [&[u8]; 2]) -> (Initiator, Responder, Vec<u8>) {
        let ((mut a, hello), mut b) = (asker(protocol, secrets[0]), asked(protocol, secrets[1]));
        let challenge = say(b.hear(&read(protocol, &hello)));
        let proof = say(a.hear(&read(protocol, &challenge)));
        (a, b, proof)
    }

    #[test]
    fn another_secret_is_found_by_both_and_shown_by_none() {
        for protocol in BOTH {
            let (mut a, mut b, proof) = up_to_proof(protocol, [b"0123456789abcdef", b"0123456789abcdeg"]);
            let Err(HandshakeError { say, fault: Fault::Secret }) = b.hear(&read(protocol, &proof)) else { panic!() };
            let denied = read(protocol, &say);
            assert_eq!((denied.step, denied.bytes), (Step::Denied, [0; TAG]));
            assert!(matches!(a.hear(&denied), Err(Fault::Secret)));
            // A forged welcome, and this end's own proof reflected.
            for bytes in [[7; TAG], read(protocol, &proof).bytes] {
                let (mut a, _, _) = up_to_proof(protocol, [b"a", b"a"]);
                let welcome = Greeting::new(protocol, Step::Welcome, bytes, Parties::default());
                assert!(matches!(a.hear(&welcome), Err(Fault::Secret)));
            }
        }
    }

    #[test]
    fn a_proof_is_good_for_one_connection_and_one_end() {
        for protocol in BOTH {
            let (_, _, proof) = up_to_proof(protocol, [b"secret", b"secret"]);
            let (_, mut b, _) = up_to_proof(protocol, [b"secret", b"secret"]);
            let replayed = b.hear(&read(protocol, &proof));
            assert!(matches!(replayed, Err(HandshakeError { fault: Fault::Secret, .. })));

            let (mut a, mut b, proof) = up_to_proof(protocol, [b"secret", b"secret"]);
            let reflected = Greeting { step: Step::Welcome, ..read(protocol, &proof) };
            assert!(matches!(a.hear(&reflected), Err(Fault::Secret)));
            assert!(b.hear(&read(protocol, &proof)).is_ok());
            assert!(
                matches!(b.hear(&read(protocol, &proof)), Err(HandshakeError { fault: Fault::OutOfTurn, .. })),
                "twice"
            );
        }
    }

    #[test]
    fn names_are_covered() {
        let protocol = BOTH[1];
        let (_, hello) = asker(protocol, b"secret");
        let elsewhere = Responder::new(protocol, b"secret", 10).hear(&read(protocol, &hello));
        let Err(HandshakeError { say, fault: Fault::Mistaken }) = elsewhere else { panic!() };
        let (mut a, _) = asker(protocol, b"secret");
        assert!(matches!(a.hear(&read(protocol, &say)), Err(Fault::Mistaken)));

        let (_, mut b, proof) = up_to_proof(protocol, [b"secret", b"secret"]);
        let mut another = read(protocol, &proof);
        another.parties.from = 6;
        assert!(matches!(b.hear(&another), Err(HandshakeError { fault: Fault::Secret, .. })));

        // A name that was changed in transit invalidates the proof.
        let ((mut a, hello), mut b) = (asker(protocol, b"secret"), asked(protocol, b"secret"));
        let mut changed = read(protocol, &hello);
        changed.parties.from = 6;
        let challenge = super::tests::say(b.hear(&changed));
        let mut proof = read(protocol, &super::tests::say(a.hear(&read(protocol, &challenge))));
        proof.parties.from = 6;
        assert!(matches!(b.hear(&proof), Err(HandshakeError { fault: Fault::Secret, .. })));
    }

    #[test]
    fn another_version_is_named_on_both_sides() {
        for protocol in BOTH {
            let (mut a, hello) = asker(protocol, b"secret");
            let newer = Greeting { version: 99, ..read(protocol, &hello) };
            let Err(HandshakeError { say, fault: Fault::Version(99) }) = asked(protocol, b"secret").hear(&newer) else {
                panic!()
            };
            let denied = read(protocol, &say);
            assert_eq!((denied.version, denied.step), (protocol.version, Step::Denied));
            assert!(matches!(a.hear(&Greeting { version: 98, ..denied }), Err(Fault::Version(98))));
        }
    }

    proptest! {
        #[test]
        fn both_ends_open_and_hear_each_other(secret in prop::collection::vec(any::<u8>(), 0..200), named: bool, text: [u8; 9]) {
            let protocol = BOTH[usize::from(named)];
            let (mut a, mut b, proof) = up_to_proof(protocol, [&secret, &secret]);
            let Ok(Next::Open { say, seals: mut theirs, peer }) = b.hear(&read(protocol, &proof)) else { panic!() };
            prop_assert_eq!(peer, parties(protocol).from);
            let Ok(Next::Open { say, seals: mut ours, peer }) = a.hear(&read(protocol, &say)) else { panic!() };
            prop_assert_eq!((say.len(), peer), (0, parties(protocol).to));
            for (from, to) in [(&mut ours.ours, &mut theirs.theirs), (&mut theirs.ours, &mut ours.theirs)] {
                let mut frame = Vec::new();
                from.close(&text, &mut frame);
                let bytes = to.open(&frame, 0..=9).unwrap().unwrap();
                prop_assert_eq!(&frame[bytes], &text);
            }
            // The two directions have different keys.
            let mut frame = Vec::new();
            ours.ours.close(&text, &mut frame);
            prop_assert!(ours.theirs.open(&frame, 0..=9).is_err());
        }

        #[test]
        fn who_does_not_know_the_secret_opens_nothing(said in prop::collection::vec(greeting(), 1..6), named: bool, fits: bool) {
            let protocol = BOTH[usize::from(named)];
            let ((mut a, _), mut b) = (asker(protocol, b"secret"), asked(protocol, b"secret"));
            for mut greeting in said {
                if fits {
                    greeting.version = protocol.version;
                    greeting.parties.to = parties(protocol).to;
                }
                let opens = matches!(a.hear(&greeting), Ok(Next::Open { .. }));
                prop_assert!(!opens);
                let opens = matches!(b.hear(&greeting), Ok(Next::Open { .. }));
                prop_assert!(!opens);
            }
        }
    }
}
