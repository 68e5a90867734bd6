//! A small TCP store where ranks meet. Rank 0 runs it, or the launcher does.
//!
//! A connection begins with a greeting in which both ends prove that they know the shared secret, the one that asks first;
//! before that nothing is said about ranks, addresses or keys. Afterwards every message is sealed: it cannot be changed,
//! replayed, reordered or moved to another connection. Messages are authenticated, not encrypted.
//!
//! A member's connection stands for its life: when it ends before the member left, the member is lost, and all others hear it.

mod client;
mod listener;
mod server;
mod session;
mod wire;

pub use client::Member;
pub use server::Server;
pub use wire::{Inbox, MAX_BYTES, Message};

#[cfg(test)]
mod tests;
