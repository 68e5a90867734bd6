//! Two ends of a connection prove to each other that they know one secret, and seal what they say from then on.
//!
//! The end that connects says a random number (hello), and the other answers with one of its own (challenge). Each then shows an
//! HMAC-SHA256 of both numbers with the secret as its key, the end that connects first (proof, welcome): whoever merely listens,
//! or answers a stranger, gives nothing else away. Afterwards everything is sealed: a frame carries an HMAC over its place in its
//! direction and its bytes, with a key for each direction that is made of the secret and of what the greeting said, so that frames
//! cannot be changed, replayed, reordered, reflected or moved to another connection. They are authenticated, not encrypted.
//!
//! Bytes in, bytes out: the sockets are the protocols' own. The store where ranks meet and the software NIC are two
//! [`Protocol`]s.

mod greeting;
mod mac;
mod seal;
mod steps;

#[cfg(test)]
pub(crate) use greeting::Step;
pub(crate) use greeting::{Greeting, Parties, Protocol};
pub(crate) use mac::{TAG, keyed};
pub(crate) use seal::{Broken, LENGTH, Seal, Seals};
pub(crate) use steps::{Fault, HandshakeError, Initiator, Next, Responder};
