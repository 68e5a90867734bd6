//! A small TCP store where ranks meet. Rank 0 or the launcher runs it.
//!
//! A connection begins with a handshake in which both ends prove that they know the shared secret, the connecting end
//! first. Before that, neither end sends ranks, addresses or keys. Afterwards every message is encrypted: nobody else can
//! read, change, replay or reorder it, or move it to another connection.
//!
//! A member's connection represents its life. If the connection ends before the member has left, the member is lost,
//! and the store tells all others.

mod client;
mod listener;
mod server;
mod session;
mod wire;

internal!(client::Member);
pub(super) use listener::listen;
internal!(server::Server);
pub use wire::MAX_BYTES;
#[cfg(test)]
pub(in crate::shmem) use wire::terms;
internal!(wire::{Inbox, Message});

#[cfg(test)]
mod crowd_tests;
#[cfg(test)]
mod tests;
