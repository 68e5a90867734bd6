//! The way from one service thread to another adapter: a connection that is made anew when it is cut.

use super::config::{Key, Timeouts};
use super::endpoint::Endpoint;
use super::frame::Frame;
use super::wire::{Cut, Wire};
use socket2::{Domain, SockAddr, Socket, Type};
use std::os::fd::AsRawFd;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// One attempt, before the next address gets its turn.
const ATTEMPT: Duration = Duration::from_secs(1);
/// Pauses between attempts.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// Somebody who waits for the first connection.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) reply: Sender<Result<(), String>>,
    pub(super) until: Instant,
}

pub(super) struct Link {
    pub(super) peer: Endpoint,
    addresses: Vec<SockAddr>,
    pub(super) wire: Option<Wire>,
    /// Counts connections that were opened; 0: none yet.
    pub(super) generation: u64,
    open: bool,
    attempt: usize,
    next_try: Instant,
    pause: Duration,
    /// When the peer was last heard of.
    pub(super) heard: Instant,
    /// The last trouble, for people.
    pub(super) why: String,
    /// The peer has refused this side: nothing to be mended by trying again.
    pub(super) denied: bool,
    pub(super) waiters: Vec<Waiter>,
}

impl Link {
    pub(super) fn new(peer: Endpoint) -> Self {
        let mut addresses = Vec::new();
        if let Some(name) = peer.unix.as_ref().filter(|_| peer.is_near()) {
            // A name that begins with a zero byte is abstract: no file, and gone with the process.
            addresses.extend(SockAddr::unix(format!("\0{name}")).ok());
        }
        addresses.extend(peer.tcp.iter().map(|a| SockAddr::from(*a)));
        let now = Instant::now();
        Self {
            peer,
            addresses,
            wire: None,
            generation: 0,
            open: false,
            attempt: 0,
            next_try: now,
            pause: FIRST_PAUSE,
            heard: now,
            why: "no connection was tried yet".to_owned(),
            denied: false,
            waiters: Vec::new(),
        }
    }

    /// Whether frames go out now.
    pub(super) fn is_open(&self) -> bool {
        self.open && self.wire.is_some()
    }

    /// The peer and its addresses, for people.
    pub(super) fn name(&self) -> String {
        let tcp: Vec<_> = self.peer.tcp.iter().map(|a| format!("tcp {a}")).collect();
        let unix = self.peer.unix.as_ref().filter(|_| self.peer.is_near()).map(|n| format!("Unix socket @{n}"));
        let at: Vec<_> = unix.into_iter().chain(tcp).collect();
        let at = if at.is_empty() { "no address that this host reaches".to_owned() } else { at.join(", ") };
        format!("the adapter of process {} at {at}", self.peer.process)
    }

    fn connect(&mut self, me: u128, key: &Key, now: Instant) -> Result<(), Cut> {
        let address = self.addresses.get(self.attempt % self.addresses.len().max(1));
        self.attempt += 1;
        let address = address.ok_or(Cut::Garbage(
            "it listens on no address that this host reaches: give its adapter one to listen on",
        ))?;
        let socket = Socket::new(Domain::from(i32::from(address.family())), Type::STREAM.nonblocking(), None)?;
        if !address.is_unix() {
            prepare(&socket)?;
        }
        match socket.connect(address) {
            Ok(()) => {}
            Err(e) if e.raw_os_error() == Some(libc::EINPROGRESS) => {}
            Err(e) => return Err(e.into()),
        }
        let mut wire = Wire::initiate(socket, me, self.peer.nic, key);
        wire.pump()?;
        self.next_try = now + ATTEMPT;
        self.wire = Some(wire);
        Ok(())
    }

    /// Why the peer counts as gone: it was connected once, and has not been heard of for as long as requests wait for it.
    pub(super) fn loss(&self, t: &Timeouts, now: Instant) -> Option<String> {
        let silent = now.duration_since(self.heard);
        let gone = self.generation > 0 && !self.is_open() && (silent >= t.retry || self.denied);
        gone.then(|| format!("{} has not been heard of for {silent:.1?}: {}", self.name(), self.why))
    }

    /// Ends the connection; another is made if it is wanted.
    pub(super) fn cut(&mut self, why: &Cut, now: Instant) {
        if self.wire.take().is_some() && self.open {
            tracing::debug!(peer = %self.name(), "connection lost: {why}");
            self.pause = FIRST_PAUSE;
        }
        self.open = false;
        self.denied |= matches!(why, Cut::Denied(_));
        self.why = why.to_string();
        // The next address at once; a pause when all have been tried.
        let round = self.attempt.is_multiple_of(self.addresses.len().max(1));
        self.next_try = if round { now + self.pause } else { now };
        if round {
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Keeps the connection: makes it if it is `wanted`, writes and reads. Answers whether anything moved.
    pub(super) fn pump(&mut self, me: u128, key: &Key, t: &Timeouts, wanted: bool, now: Instant) -> bool {
        let wanted = wanted || !self.waiters.is_empty();
        if self.wire.is_none()
            && wanted
            && !self.denied
            && now >= self.next_try
            && let Err(e) = self.connect(me, key, now)
        {
            self.cut(&e, now);
        }
        let moved = match self.wire.as_mut().map(Wire::pump) {
            None => false,
            Some(Ok(moved)) => moved,
            Some(Err(e)) => {
                self.cut(&e, now);
                true
            }
        };
        self.look_at_the_clock(t, now);
        let denied = self.denied;
        let (open, why) = (self.is_open(), &self.why);
        let name = if self.waiters.is_empty() { String::new() } else { self.name() };
        self.waiters.retain(|w| {
            let answer = match open {
                true => Ok(()),
                false if denied => Err(format!("{name}: {why}")),
                false if now >= w.until => Err(format!("{name} could not be reached: {why}")),
                false => return true,
            };
            // Who asked may have given up.
            let _ = w.reply.send(answer);
            false
        });
        moved
    }

    fn look_at_the_clock(&mut self, t: &Timeouts, now: Instant) {
        let Some(wire) = &mut self.wire else { return };
        if wire.is_open() {
            if !self.open {
                self.open = true;
                self.generation += 1;
                self.pause = FIRST_PAUSE;
                // This address works: the next time it is tried first.
                self.attempt = self.attempt.saturating_sub(1);
            }
            if now.duration_since(wire.spoke()) >= t.heartbeat {
                wire.listen_to_the_kernel();
                wire.send(&Frame::Ping.encode());
            }
            self.heard = self.heard.max(wire.heard());
            if now.duration_since(wire.heard()) > t.silence {
                self.cut(&Cut::Silent(t.silence), now);
            }
        } else if now.duration_since(wire.started()) > ATTEMPT {
            self.cut(&Cut::Silent(ATTEMPT), now);
        }
    }
}

/// A TCP socket that sends at once, and whose kernel gives up on a dead peer.
pub(super) fn prepare(socket: &Socket) -> std::io::Result<()> {
    socket.set_tcp_nodelay(true)
}

/// The descriptor to watch, and what for.
pub(super) fn watch(wire: &Wire) -> libc::pollfd {
    let events = libc::POLLIN | if wire.wants_out() { libc::POLLOUT } else { 0 };
    libc::pollfd { fd: wire.fd().as_raw_fd(), events, revents: 0 }
}
