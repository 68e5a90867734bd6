//! Mutual authentication of two ends that share a secret, and authentication of all frames that follow.
//!
//! The initiator sends a random number (hello). The responder replies with its own (challenge). Each end then sends an
//! HMAC-SHA256 of both numbers, keyed with the secret: first the initiator (proof), then the responder (welcome). An
//! eavesdropper, or an impostor that replies to a hello, learns nothing else about the secret.
//!
//! Afterwards every frame is sealed: it carries an HMAC over its sequence number and its bytes. Each direction has its
//! own key, derived from the secret and the handshake's messages. Frames therefore cannot be changed, replayed,
//! reordered, reflected or moved to another connection. They are authenticated, not encrypted.
//!
//! This module only transforms bytes; its users own the sockets. There are two [`Protocol`]s: the store of a world,
//! where ranks meet, and the software NIC.

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
