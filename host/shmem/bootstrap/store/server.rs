//! The store's end: one thread that polls all connections.

use super::session::{Id, Outcome, Worlds};
use super::wire::{Inbox, MAX_BYTES, MAX_JOIN, Message, sealed, terms};
use crate::engine::abi::MAX_PES;
use crate::handshake::{self, Fault, Greeting, HandshakeError, Responder, Seals};
use crate::listener::{
    Accepted, Acceptor, Admission, KnownSources, Limits, NEXT_STEP, Seldom, Source, Stranger, warn_of_crowd,
};
use crate::shmem::bootstrap::{BootstrapError, Secret};
use crate::this_host::descriptor_limit;
use socket2::{SockRef, TcpKeepalive};
use std::collections::{BTreeMap, VecDeque};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// The time that a connection gets to join a world.
const STRANGER: Duration = Duration::from_secs(10);
/// Most connections whose rank is not known yet, at most one in so many descriptors of the process: the others are left to ranks and to
/// the rest of the process.
const MOST_STRANGERS: usize = 2 * MAX_PES;
const STRANGER_SHARE: usize = 2;
/// Returns the limits for connections whose rank is not known yet. A whole world may come from one address.
pub(super) fn limits(descriptors: usize) -> Limits {
    let limits = Limits::new(MOST_STRANGERS, STRANGER_SHARE, descriptors);
    Limits { of_one_source: limits.all - limits.reserved, ..limits }
}

/// Name of the listener in warnings.
const LISTENER: &str = "store of the ranks";
/// Bytes of each read, and of each read before a rank has joined.
const CHUNK: usize = 64 << 10;
const STRANGER_CHUNK: usize = 4 << 10;
/// Most connections that are accepted in one round.
const ACCEPTED: usize = 64;
/// The largest number of rejected connections that messages name.
const NAMED: usize = 4;

/// Enables keep-alive, so that a host that lost its power is detected by its silent connection.
pub(super) fn keep_alive(stream: &TcpStream) -> std::io::Result<()> {
    const IDLE: Duration = Duration::from_secs(10);
    const EVERY: Duration = Duration::from_secs(5);
    const TRIES: u32 = 4;
    let socket = SockRef::from(stream);
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(IDLE).with_interval(EVERY).with_retries(TRIES))?;
    socket.set_tcp_user_timeout(Some(IDLE + EVERY * TRIES))
}

/// Describes the end of a connection.
pub(super) fn reason(e: &std::io::Error) -> String {
    match e.kind() {
        ErrorKind::UnexpectedEof | ErrorKind::BrokenPipe => CLOSED.to_owned(),
        ErrorKind::ConnectionReset => "connection reset".to_owned(),
        ErrorKind::TimedOut => "connection timed out".to_owned(),
        _ => format!("connection failed: {e}"),
    }
}

pub(super) const CLOSED: &str = "connection closed";

/// A store. Dropping it stops new connections; members that have joined continue until they leave.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    wake: UnixStream,
    /// Asks the store to stop accepting. The store replies through the given sender once everything is sent.
    close: Sender<Sender<()>>,
}

impl Server {
    /// Starts a store on `listener`, for members that know the secret.
    ///
    /// # Errors
    /// [`BootstrapError::System`] if a system call fails or the store's thread cannot be started.
    pub fn start(listener: TcpListener, secret: Secret) -> Result<Self, BootstrapError> {
        let system = |e| BootstrapError::system("the store", &e);
        let address = listener.local_addr().map_err(system)?;
        listener.set_nonblocking(true).map_err(system)?;
        let (wake, woken) = UnixStream::pair().map_err(system)?;
        woken.set_nonblocking(true).map_err(system)?;
        let (close, closing) = channel();
        let store = Store {
            secret,
            listener: Some(listener),
            acceptor: Acceptor::new(LISTENER),
            limits: limits(descriptor_limit()),
            known: KnownSources::default(),
            warnings: Default::default(),
            woken,
            closing,
            sent: Vec::new(),
            connections: BTreeMap::new(),
            next: 0,
            worlds: Worlds::default(),
            turned_away: Vec::new(),
        };
        let thread = std::thread::Builder::new().name("wb-store".to_owned());
        thread.spawn(move || store.serve()).map_err(system)?;
        Ok(Self { address, wake, close })
    }

    /// Returns the address at which the store listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Stops accepting connections, and waits until everything is sent, at most `within`.
    pub(super) fn stop_accepting(&self, within: Duration) {
        let (sent, all_sent) = channel();
        self.ask_to_close(sent);
        if let Err(RecvTimeoutError::Timeout) = all_sent.recv_timeout(within) {
            tracing::warn!("the store could not send all messages within {within:?}");
        }
    }

    fn ask_to_close(&self, sent: Sender<()>) {
        // Without the store's thread there is nothing to stop.
        if self.close.send(sent).is_ok() {
            let _ = (&self.wake).write(&[0]);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ask_to_close(channel().0);
    }
}

struct Store {
    secret: Secret,
    /// `None` once the store accepts no more connections.
    listener: Option<TcpListener>,
    acceptor: Acceptor,
    limits: Limits,
    /// Sources from which ranks have joined.
    known: KnownSources,
    /// Limits of the warnings of too many strangers, and of rejected ones.
    warnings: [Seldom; 2],
    woken: UnixStream,
    closing: Receiver<Sender<()>>,
    /// Callers that wait until everything is sent.
    sent: Vec<Sender<()>>,
    connections: BTreeMap<Id, Connection>,
    next: Id,
    worlds: Worlds,
    turned_away: Vec<String>,
}

struct Connection {
    stream: TcpStream,
    peer: SocketAddr,
    since: Instant,
    /// True if a rank had joined from the same source when it connected.
    known: bool,
    /// True until the first byte arrives.
    silent: bool,
    stage: Stage,
    inbox: Inbox,
    /// Bytes that are being sent. `gone` of them are already sent.
    outgoing: Vec<u8>,
    gone: usize,
    waiting: VecDeque<Arc<Message>>,
    /// True if the connection ends once everything is sent.
    ending: bool,
    /// True if the peer takes no more data. It may still have sent some.
    deaf: bool,
}

enum Stage {
    Greeting(Box<Responder>),
    Member { seals: Box<Seals>, joined: bool },
}

/// The next state of a connection after an event.
enum Next {
    Stay,
    /// The connection ends, for this reason.
    End(String),
}

impl Store {
    fn serve(mut self) {
        while self.listener.is_some() || !self.connections.is_empty() {
            let ready = self.poll();
            self.hear_the_owner();
            for id in ready {
                self.read(id);
            }
            self.accept();
            self.send_away_the_late();
            self.flush();
        }
    }

    /// Waits for events. Returns the connections that may have data to read.
    fn poll(&self) -> Vec<Id> {
        let now = Instant::now();
        let entry = |fd, events| libc::pollfd { fd, events, revents: 0 };
        let mut polled = vec![entry(self.woken.as_raw_fd(), libc::POLLIN)];
        let pause = self.acceptor.paused_until().filter(|until| now < *until);
        let listener = self.listener.as_ref().filter(|_| pause.is_none());
        // `poll` ignores a negative descriptor.
        polled.push(entry(listener.map_or(-1, AsRawFd::as_raw_fd), libc::POLLIN));
        for c in self.connections.values() {
            let out = if c.has_output() && !c.deaf { libc::POLLOUT } else { 0 };
            polled.push(entry(c.stream.as_raw_fd(), libc::POLLIN | out));
        }
        let strangers = self.connections.values().filter(|c| c.is_stranger()).map(|c| c.since + STRANGER);
        let until = strangers.chain(pause).min();
        let ms = until.map_or(-1, |u| u.saturating_duration_since(now).as_millis() as i32 + 1);
        // SAFETY: the array lives during the call, which writes only within its length.
        let n = unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, ms) };
        if n < 0 {
            // Interrupted, or short of memory for a moment: the next call reports the same events.
            std::thread::sleep(Duration::from_millis(1));
            return Vec::new();
        }
        self.connections.keys().zip(&polled[2..]).filter(|(_, p)| p.revents != 0).map(|(id, _)| *id).collect()
    }

    fn hear_the_owner(&mut self) {
        let mut buffer = [0; 64];
        while matches!((&self.woken).read(&mut buffer), Ok(n) if n > 0) {}
        loop {
            match self.closing.try_recv() {
                Ok(sent) => {
                    self.listener = None;
                    self.sent.push(sent);
                    // A connection that has not joined yet can join no world of this store any more.
                    self.connections.retain(|_, c| !c.is_stranger());
                }
                Err(_) => return,
            }
        }
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTED {
            let Some(listener) = &self.listener else { return };
            let now = Instant::now();
            let (stream, peer, is_last) = match self.acceptor.next(now, || listener.accept()) {
                Accepted::Connection((stream, peer)) => (stream, peer, false),
                Accepted::Last((stream, peer)) => (stream, peer, true),
                Accepted::Nothing => return,
            };
            if stream.set_nonblocking(true).and_then(|()| keep_alive(&stream)).is_err() {
                continue;
            }
            let source = Source::of(peer.ip());
            let known = self.known.has(source);
            let (ids, all): (Vec<Id>, Vec<Stranger>) =
                self.connections.iter().filter_map(|(id, c)| Some((*id, c.as_stranger()?))).unzip();
            match self.limits.admit(&all, source, known, is_last) {
                Admission::Keep => {}
                Admission::Refuse => continue,
                Admission::Replace(goes) => {
                    warn_of_crowd(&mut self.warnings[0], LISTENER, all.len(), self.limits, now);
                    self.connections.remove(&ids[goes]);
                }
            }
            self.connections.insert(self.next, Connection::new(stream, peer, known, &self.secret));
            self.next += 1;
        }
    }

    fn send_away_the_late(&mut self) {
        let now = Instant::now();
        self.connections.retain(|_, c| !(c.is_stranger() && c.since + STRANGER <= now));
    }

    fn read(&mut self, id: Id) {
        let Some(c) = self.connections.get_mut(&id) else { return };
        let mut buffer = vec![0; if c.is_stranger() { STRANGER_CHUNK } else { CHUNK }];
        let next = match c.stream.read(&mut buffer) {
            Ok(0) => Next::End(CLOSED.to_owned()),
            // A connection that is ending is not understood any more.
            Ok(_) if c.ending => Next::Stay,
            Ok(n) => {
                c.silent = false;
                c.inbox.extend(&buffer[..n]);
                self.understand(id)
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Next::Stay,
            Err(e) => Next::End(reason(&e)),
        };
        if let Next::End(why) = next {
            self.connections.remove(&id);
            let out = self.worlds.closed(id, &why);
            self.say(out);
        }
    }

    /// Handles all complete messages in the inbox.
    fn understand(&mut self, id: Id) -> Next {
        loop {
            let Some(c) = self.connections.get_mut(&id) else { return Next::Stay };
            if c.ending {
                return Next::Stay;
            }
            let Stage::Member { seals, joined } = &mut c.stage else {
                match c.inbox.greeting() {
                    Ok(Some(greeting)) => {
                        if let Next::End(why) = self.greet(id, greeting) {
                            return Next::End(why);
                        }
                        continue;
                    }
                    Ok(None) => return Next::Stay,
                    Err(broken) => return Next::End(broken.0.to_owned()),
                }
            };
            let most = if *joined { MAX_BYTES + MAX_JOIN } else { MAX_JOIN };
            let message = match c.inbox.message(&mut seals.theirs, most) {
                Ok(Some(message)) => message,
                Ok(None) => return Next::Stay,
                Err(broken) => return Next::End(format!("it sent {}", broken.0)),
            };
            if !std::mem::replace(joined, true) {
                self.known.insert_address(c.peer.ip());
            }
            let note = note(&self.turned_away);
            match self.worlds.message(id, message, &note) {
                Ok(out) => self.say(out),
                Err(violation) => return Next::End(violation.0.to_owned()),
            }
        }
    }

    fn greet(&mut self, id: Id, greeting: Greeting) -> Next {
        let Some(c) = self.connections.get_mut(&id) else { return Next::Stay };
        let Stage::Greeting(responder) = &mut c.stage else { return Next::Stay };
        match responder.read_message(&greeting) {
            Ok(handshake::Next::Say(bytes)) => c.outgoing.extend(bytes),
            Ok(handshake::Next::Open { say, seals, .. }) => {
                c.outgoing.extend(say);
                c.stage = Stage::Member { seals, joined: false };
            }
            Err(HandshakeError { say, fault }) => {
                c.outgoing.extend(say);
                c.ending = true;
                match fault {
                    Fault::Version(theirs) => self.turn_away(id, &format!("version {theirs} of the protocol")),
                    Fault::Secret => self.turn_away(id, "another secret"),
                    Fault::Random(e) => return Next::End(format!("no random bytes from the system: {e}")),
                    Fault::Protection => self.turn_away(id, "unencrypted messages"),
                    // The handshake has no names that could be mistaken.
                    Fault::OutOfTurn | Fault::Mistaken => return Next::End("an unexpected greeting".to_owned()),
                }
            }
        }
        Next::Stay
    }

    fn turn_away(&mut self, id: Id, why: &str) {
        let Some(c) = self.connections.get(&id) else { return };
        if let Some(before) = self.warnings[1].due(Instant::now()) {
            let ip = c.peer.ip();
            tracing::warn!(
                peer = %c.peer,
                "the store rejected a connection: {why}; {before} others were since the last such message; if {ip} is no host of this job, \
                 {NEXT_STEP}"
            );
        }
        let text = format!("{} ({why})", c.peer.ip());
        if self.turned_away.len() <= NAMED && !self.turned_away.contains(&text) {
            self.turned_away.push(text);
        }
    }

    fn say(&mut self, out: Outcome) {
        for (id, message) in out.send {
            if let Some(c) = self.connections.get_mut(&id) {
                c.waiting.push_back(message);
            }
        }
        for id in out.end {
            if let Some(c) = self.connections.get_mut(&id) {
                c.ending = true;
            }
        }
    }

    /// Sends as much as possible without blocking.
    fn flush(&mut self) {
        // The newest connection first. The oldest is usually rank 0, whose process may end, with this thread, once it
        // is told.
        self.connections.values_mut().rev().for_each(Connection::flush);
        self.connections.retain(|_, c| !(c.ending && (c.deaf || !c.has_output())));
        if self.connections.values().all(|c| c.deaf || !c.has_output()) {
            for sent in self.sent.drain(..) {
                // A caller that has stopped waiting needs no reply.
                let _ = sent.send(());
            }
        }
    }
}

/// Formats ` (rejected connections: 10.0.0.3 (another secret))`, or nothing.
fn note(turned_away: &[String]) -> String {
    match turned_away {
        [] => String::new(),
        all if all.len() > NAMED => format!(" (rejected connections: {} and others)", all[..NAMED].join(", ")),
        all => format!(" (rejected connections: {})", all.join(", ")),
    }
}

impl Connection {
    fn new(stream: TcpStream, peer: SocketAddr, known: bool, secret: &Secret) -> Self {
        Self {
            stream,
            peer,
            since: Instant::now(),
            known,
            silent: true,
            stage: Stage::Greeting(Box::new(Responder::new(terms(secret), 0))),
            inbox: Inbox::default(),
            outgoing: Vec::new(),
            gone: 0,
            waiting: VecDeque::new(),
            ending: false,
            deaf: false,
        }
    }

    fn is_stranger(&self) -> bool {
        !matches!(self.stage, Stage::Member { joined: true, .. })
    }

    fn as_stranger(&self) -> Option<Stranger> {
        let Self { peer, known, since, silent, .. } = self;
        let stranger = Stranger { source: Source::of(peer.ip()), known: *known, since: *since, silent: *silent };
        self.is_stranger().then_some(stranger)
    }

    fn has_output(&self) -> bool {
        self.gone < self.outgoing.len() || !self.waiting.is_empty()
    }

    fn flush(&mut self) {
        while !self.deaf {
            if self.gone == self.outgoing.len() {
                self.gone = 0;
                let (Stage::Member { seals, .. }, Some(message)) = (&mut self.stage, self.waiting.pop_front()) else {
                    self.outgoing.clear();
                    return;
                };
                match sealed(&message, &mut seals.ours) {
                    Some(bytes) => self.outgoing = bytes,
                    // The member learns that its connection is over.
                    None => {
                        tracing::warn!(peer = %self.peer, "a connection of the store has used up the numbers of its records");
                        (self.deaf, self.ending) = (true, true);
                        return;
                    }
                }
            }
            match self.stream.write(&self.outgoing[self.gone..]) {
                Ok(n) => self.gone += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                // The next read finds out how the connection ended, after the data before that.
                Err(_) => self.deaf = true,
            }
        }
    }
}
