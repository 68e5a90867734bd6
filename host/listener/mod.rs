//! Limits of listeners, for all sockets on which this crate accepts connections.
//!
//! Anybody can connect to an address that hosts can reach. A connection costs a descriptor and some memory until its other end has
//! proved itself, or its time is over. Such a connection is a *stranger*. A listener has:
//!
//! * a limit of strangers, in all and of one source, and a part of it for sources that are known ([`Limits`], [`KnownSources`]);
//! * a limit of the connections behind the handshake ([`Slots`]);
//! * an [`Acceptor`], which keeps descriptors for the moment at which the process has none;
//! * warnings at most every ten seconds, however many connections there are ([`Seldom`]).
//!
//! A new stranger is never rejected in favour of older ones; otherwise the first silent connections would keep all others out. Silent
//! strangers go first, because a member sends its hello at once.

mod acceptor;
mod known;
mod limits;
mod seldom;
mod slots;
#[cfg(all(test, feature = "shmem"))]
pub(crate) mod testing;
#[cfg(all(test, feature = "shmem"))]
mod tests;
mod user;

pub use acceptor::{Accepted, Acceptor};
pub use known::KnownSources;
pub use limits::{Admission, Limits, Source, Stranger};
pub use seldom::Seldom;
pub use slots::{Slot, Slots};
pub use user::{is_own_user, peer_user};

use std::time::Instant;

/// Where the documentation tells which hosts need a port: the next step of each warning.
pub const NEXT_STEP: &str = "let only the hosts that need this port reach it, by a firewall (docs/ports.md)";

/// Warns that strangers are closed because there are too many, at most every ten seconds.
pub fn warn_of_crowd(seldom: &mut Seldom, listener: &str, strangers: usize, limits: Limits, now: Instant) {
    if let Some(before) = seldom.due(now) {
        let Limits { all, of_one_source, reserved } = limits;
        tracing::warn!(
            listener,
            "{strangers} connections are in their handshake (limits: {all}, {of_one_source} of one address, {reserved} kept for known \
             hosts); one was closed for a new one, and {before} since the last such message; {NEXT_STEP}"
        );
    }
}
