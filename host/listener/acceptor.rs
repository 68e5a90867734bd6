//! Accepts connections, also when the process has no descriptor left.

use super::seldom::Seldom;
use crate::this_host::descriptor_limit;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::time::{Duration, Instant};

/// Descriptors that a listener keeps for the moment at which the process has no other.
const SPARE: usize = 2;
/// Pause before the next `accept` after the system had no resources for a connection.
const PAUSE: Duration = Duration::from_millis(100);
/// Most connections that are passed over because they ended before they were accepted, at a time.
const MOST_ENDED: usize = 64;

/// Result of one `accept`.
#[derive(Debug)]
pub enum Accepted<T> {
    /// A connection.
    Connection(T),
    /// A connection that has a spare descriptor, since the process has no other. Only one that matters is kept.
    Last(T),
    /// None now.
    Nothing,
}

/// The accepting side of a listener.
#[derive(Debug)]
pub struct Acceptor {
    listener: &'static str,
    spare: Vec<File>,
    paused_until: Option<Instant>,
    seldom: Seldom,
}

impl Acceptor {
    /// Creates the acceptor of a listener. Warnings have its name. It takes its spare descriptors at the first call of
    /// [`Acceptor::next`].
    pub fn new(listener: &'static str) -> Self {
        Self { listener, spare: Vec::new(), paused_until: None, seldom: Seldom::default() }
    }

    /// Returns the end of a pause, if there is one. Until then the listener is not polled: it stays ready.
    pub fn paused_until(&self) -> Option<Instant> {
        self.paused_until
    }

    /// Accepts a connection by `accept`, which does not wait.
    pub fn next<T>(&mut self, now: Instant, mut accept: impl FnMut() -> io::Result<T>) -> Accepted<T> {
        if self.paused_until.is_some_and(|until| now < until) {
            return Accepted::Nothing;
        }
        self.paused_until = None;
        self.refill();
        let mut is_last = false;
        for _ in 0..MOST_ENDED {
            match accept() {
                Ok(connection) if is_last => return Accepted::Last(connection),
                Ok(connection) => return Accepted::Connection(connection),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Accepted::Nothing,
                Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(e) => {
                    self.warn(&e, now);
                    // A spare descriptor helps where there is none left. Another error comes again.
                    is_last = !is_last && is_out_of_descriptors(&e) && self.spare.pop().is_some();
                    if !is_last {
                        self.paused_until = Some(now + PAUSE);
                        return Accepted::Nothing;
                    }
                }
            }
        }
        Accepted::Nothing
    }

    fn warn(&mut self, error: &io::Error, now: Instant) {
        let Some(before) = self.seldom.due(now) else { return };
        let (listener, limit) = (self.listener, descriptor_limit());
        if is_out_of_descriptors(error) {
            tracing::warn!(
                listener,
                "a connection cannot be accepted: {error}; this process may have {limit} descriptors (ulimit -n), and failed {before} times \
                 since the last such message; raise the limit, or {}",
                super::NEXT_STEP
            );
        } else {
            tracing::warn!(
                listener,
                "a connection cannot be accepted: {error}; it failed {before} times since the last such message, and is tried again every \
                 {PAUSE:?}"
            );
        }
    }

    /// Opens the spare descriptors that are missing, as far as the system permits.
    fn refill(&mut self) {
        while self.spare.len() < SPARE
            && let Ok(file) = File::open("/dev/null")
        {
            self.spare.push(file);
        }
    }
}

fn is_out_of_descriptors(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}
