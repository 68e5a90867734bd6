//! What each end says to what it hears, until both have proved themselves.

use super::greeting::{Greeting, Parties, Protocol, Step};
use super::mac::{TAG, keyed};
use super::seal::{Seal, Seals};
use crate::random;
use hmac::{Hmac, Mac};
use sha2::Sha256;

/// Why a greeting came to nothing.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The other end speaks this version of the protocol.
    Version(u16),
    /// The other end does not know the secret, or knows another.
    Secret,
    /// The end that was asked is not the one that is meant.
    Mistaken,
    /// A step came that is not the next one.
    OutOfTurn,
    /// The system gave no random number.
    Random(std::io::Error),
}

/// How a greeting goes on.
pub(crate) enum Next {
    /// Say this; the other end then says the next step.
    Say(Vec<u8>),
    /// Say this, if it is not empty: both have proved themselves.
    Open {
        /// The last step.
        say: Vec<u8>,
        /// For all that follows.
        seals: Box<Seals>,
        /// The other end's name, 0 where ends have none.
        peer: u128,
    },
}

/// The end of a greeting that came to nothing.
pub(crate) struct HandshakeError {
    /// Say this, if it is not empty, and close.
    pub(crate) say: Vec<u8>,
    /// Why.
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

/// What both ends know once their random numbers are exchanged.
struct Greeted {
    protocol: &'static Protocol,
    secret: Hmac<Sha256>,
    /// What was said so far, as proofs and keys cover it.
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

    /// What this end shows.
    fn proof(&self, end: End) -> [u8; TAG] {
        self.derive("proof of ", end).finalize().into_bytes().into()
    }

    /// Whether that is what this end shows, in a time that does not depend on how much of it is right.
    fn proves(&self, end: End, proof: &[u8; TAG]) -> bool {
        self.derive("proof of ", end).verify_slice(proof).is_ok()
    }

    fn seal(&self, end: End) -> Seal {
        Seal::new(&self.derive("key of ", end).finalize().into_bytes(), self.protocol)
    }
}

/// The end that connects.
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
    /// Begins: what to say, and who waits for the answer.
    pub(crate) fn new(protocol: &'static Protocol, secret: &[u8], parties: Parties) -> Result<(Self, Vec<u8>), Fault> {
        Ok(Self::with_number(protocol, secret, parties, random::bytes().map_err(Fault::Random)?))
    }

    /// With a number that must never have been said before.
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

    /// Takes the other end's next step.
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
            // Whoever answers knows no more of the secret than this end's proof tells.
            (Asking::Proves(_), Step::Welcome | Step::Denied) => Err(Fault::Secret),
            _ => Err(Fault::OutOfTurn),
        }
    }
}

/// The end that is connected to.
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
    /// Waits for a hello. `me` is its name, 0 where ends have none.
    pub(crate) fn new(protocol: &'static Protocol, secret: &[u8], me: u128) -> Self {
        Self { protocol, me, stage: ResponderStage::Waits(keyed(secret)) }
    }

    /// Takes the other end's next step.
    pub(crate) fn hear(&mut self, heard: &Greeting) -> Result<Next, HandshakeError> {
        self.hear_with(heard, || random::bytes().map_err(Fault::Random))
    }

    /// With a number that must never have been said before.
    pub(crate) fn hear_with(
        &mut self,
        heard: &Greeting,
        number: impl FnOnce() -> Result<[u8; TAG], Fault>,
    ) -> Result<Next, HandshakeError> {
        let (protocol, stage) = (self.protocol, std::mem::replace(&mut self.stage, ResponderStage::Over));
        let parties = Parties { from: self.me, to: heard.parties.from };
        let say = |step, bytes| Greeting::new(protocol, step, bytes, parties).encode(protocol);
        if heard.version != protocol.version {
            // The answer carries this one's version, and the other end says what to do.
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

    /// Both ends up to the proof.
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
            // A false welcome, and this end's own proof reflected.
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

        // Who changes a name on the way breaks the proof.
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
            // A direction's key is not the other's.
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
