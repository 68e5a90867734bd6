//! Mutual authentication of two ends that share a secret, and encryption of all frames that follow.
//!
//! The handshake is `NNpsk0` of the Noise Protocol Framework, with X25519, AES-256-GCM and SHA-256. The initiator sends
//! a new public key and proves that it knows the secret (hello). The responder does the same (welcome). The initiator
//! then proves that it has the private key of its hello (confirmation), so a recorded hello is of no use.
//!
//! Keys of frames come from both new keys and the secret. Each direction has its own. Frames therefore cannot be read,
//! changed, replayed, reordered, reflected, shortened or moved to another connection. Who learns the secret later
//! cannot read recorded frames (forward secrecy).
//!
//! Both ends know before the handshake if frames are encrypted ([`Protection`]). A hello for the other protection is
//! refused, and never followed.
//!
//! This module only transforms bytes; its users own the sockets. There are two [`Protocol`]s: the store of a world,
//! where ranks meet, and the software NIC.

mod greeting;
mod mac;
#[cfg(test)]
pub(crate) mod recorder;
mod seal;
mod steps;

#[cfg(test)]
pub(crate) use greeting::Step;
pub(crate) use greeting::{Greeting, Parties, Protection, Protocol};
pub(crate) use mac::keyed;
pub(crate) use seal::{FrameError, LENGTH, Seal, Seals};
pub(crate) use steps::{Fault, HandshakeError, Initiator, Next, Responder, Terms};
