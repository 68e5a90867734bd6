//! The thread that accepts connections at all ports.

use super::handshakes::{Handshakes, LISTENER};
use super::ports::bind;
use super::{NAP, Shared};
use crate::idle;
use crate::listener::{Accepted, Acceptor};
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Instant;

/// Most connections of a port that are accepted in one round.
const ACCEPTED: usize = 64;

/// Accepts connections at all open ports until the target ends.
pub(super) fn accept(shared: &Arc<Shared>, listeners: Vec<TcpListener>) {
    let mut listeners: Vec<_> = listeners.into_iter().map(Some).collect();
    let mut handshakes = Handshakes::new(shared.clone());
    let mut acceptor = Acceptor::new(LISTENER);
    while !shared.stops() {
        for (port, listener) in shared.ports.iter().zip(&mut listeners) {
            match (port.is_open(), listener.is_some()) {
                (false, true) => *listener = None,
                // The address may be in use for a moment; the next round tries again.
                (true, false) => *listener = bind(port.address).ok(),
                _ => {}
            }
        }
        let is_paused = acceptor.paused_until().is_some_and(|until| Instant::now() < until);
        let heard = shared.ports.iter().zip(&listeners).filter(|(p, _)| !p.is_silent() && !is_paused);
        let mut all: Vec<_> = heard.filter_map(|(_, l)| l.as_ref()).map(|l| (l.as_raw_fd(), false)).collect();
        all.extend(handshakes.descriptors());
        match all.is_empty() {
            true => std::thread::sleep(NAP),
            false => idle::wait(&all, NAP),
        }
        handshakes.advance();
        for (port, listener) in listeners.iter().enumerate() {
            let Some(listener) = listener.as_ref().filter(|_| !shared.ports[port].is_silent()) else { continue };
            for _ in 0..ACCEPTED {
                match acceptor.next(Instant::now(), || listener.accept()) {
                    Accepted::Connection((stream, peer)) => handshakes.add(stream, peer, port, false),
                    Accepted::Last((stream, peer)) => handshakes.add(stream, peer, port, true),
                    Accepted::Nothing => break,
                }
            }
        }
    }
}
