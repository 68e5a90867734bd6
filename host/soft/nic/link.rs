//! Link from one service thread to another adapter: a connection that is established again after it was cut.

use super::config::{SoftNicConfig, Timeouts};
use super::endpoint::Endpoint;
use super::frame::Frame;
use super::wire::{Cut, Wire};
use socket2::{Domain, SockAddr, Socket, Type};
use std::os::fd::AsRawFd;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

/// Time limit of one attempt to connect, after which the next address is tried.
const ATTEMPT: Duration = Duration::from_secs(1);
/// Shortest and longest pause between rounds of attempts.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// A caller that waits for the first connection.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) reply: Sender<Result<(), String>>,
    pub(super) until: Instant,
}

pub(super) struct Link {
    pub(super) peer: Endpoint,
    addresses: Vec<SockAddr>,
    pub(super) wire: Option<Wire>,
    /// Number of connections opened so far.
    pub(super) generation: u64,
    open: bool,
    attempt: usize,
    next_try: Instant,
    pause: Duration,
    /// Time at which something was last received from the peer.
    pub(super) heard: Instant,
    /// Reason of the last failure, for messages.
    pub(super) why: String,
    /// True if the peer has rejected this side's key. Another attempt would fail too.
    pub(super) denied: bool,
    pub(super) waiters: Vec<Waiter>,
}

impl Link {
    pub(super) fn new(peer: Endpoint) -> Self {
        let mut addresses = Vec::new();
        if let Some(name) = peer.unix.as_ref().filter(|_| peer.is_near()) {
            // A name that begins with a zero byte is abstract: it is no file, and ends with its process.
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

    /// Returns true if frames can be sent now.
    pub(super) fn is_open(&self) -> bool {
        self.open && self.wire.is_some()
    }

    /// Returns the peer's process and addresses, for messages.
    pub(super) fn name(&self) -> String {
        let tcp: Vec<_> = self.peer.tcp.iter().map(|a| format!("tcp {a}")).collect();
        let unix = self.peer.unix.as_ref().filter(|_| self.peer.is_near()).map(|n| format!("Unix socket @{n}"));
        let at: Vec<_> = unix.into_iter().chain(tcp).collect();
        let at = if at.is_empty() { "no address that this host reaches".to_owned() } else { at.join(", ") };
        format!("the adapter of process {} at {at}", self.peer.process)
    }

    fn connect(&mut self, me: u128, config: &SoftNicConfig, now: Instant) -> Result<(), Cut> {
        let address = self.addresses.get(self.attempt % self.addresses.len().max(1));
        self.attempt += 1;
        let address = address.ok_or(Cut::Garbage(
            "it listens on no address that this host reaches: set SoftNicConfig::listen of that adapter",
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
        let protection = config.encryption.of(address.is_unix());
        let mut wire = Wire::initiate(socket, me, self.peer.nic, &config.key, protection);
        wire.pump()?;
        self.next_try = now + ATTEMPT;
        self.wire = Some(wire);
        Ok(())
    }

    /// Returns the reason if the peer counts as gone: it was connected once, and either was silent for the retry time
    /// or rejected this side.
    pub(super) fn loss(&self, t: &Timeouts, now: Instant) -> Option<String> {
        let silent = now.duration_since(self.heard);
        let gone = self.generation > 0 && !self.is_open() && (silent >= t.retry || self.denied);
        gone.then(|| format!("{} has been silent for {silent:.1?}: {}", self.name(), self.why))
    }

    /// Ends the connection. `pump` establishes another one if it is needed.
    pub(super) fn cut(&mut self, why: &Cut, now: Instant) {
        if self.wire.take().is_some() && self.open {
            tracing::debug!(peer = %self.name(), "connection lost: {why}");
            self.pause = FIRST_PAUSE;
        }
        self.open = false;
        self.denied |= matches!(why, Cut::Denied(_));
        self.why = why.to_string();
        // The next address is tried at once. After the last one, there is a pause.
        let round = self.attempt.is_multiple_of(self.addresses.len().max(1));
        self.next_try = if round { now + self.pause } else { now };
        if round {
            self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Drives the connection: connects if a connection is `wanted`, writes and reads. Returns true if bytes moved.
    pub(super) fn pump(&mut self, me: u128, config: &SoftNicConfig, wanted: bool, now: Instant) -> bool {
        let wanted = wanted || !self.waiters.is_empty();
        if self.wire.is_none()
            && wanted
            && !self.denied
            && now >= self.next_try
            && let Err(e) = self.connect(me, config, now)
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
        self.look_at_the_clock(&config.timeouts, now);
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
            // The caller may have given up.
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
                // This address works, so the next attempt begins with it.
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

/// Disables Nagle's algorithm on a TCP socket, so that it sends frames at once.
pub(super) fn prepare(socket: &Socket) -> std::io::Result<()> {
    socket.set_tcp_nodelay(true)
}

/// Returns the descriptor to poll, with the events to poll for.
pub(super) fn watch(wire: &Wire) -> libc::pollfd {
    let events = libc::POLLIN | if wire.wants_out() { libc::POLLOUT } else { 0 };
    libc::pollfd { fd: wire.fd().as_raw_fd(), events, revents: 0 }
}
