//! Serves the counters of this process: to Prometheus over TCP, to `warpbell top` over a Unix socket.
//!
//! One thread waits for all connections. Their number, their time and the bytes of a request are bounded.

use super::Observed;
use super::http::{self, Refused};
use crate::output::Failure;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use warpbell::listener::{
    Accepted, Acceptor, Admission, KnownSources, Limits, Seldom, Source, Stranger, is_own_user, warn_of_crowd,
};

/// Name of the listeners in warnings.
const LISTENER: &str = "metrics";
/// Most connections at a time. A new one replaces the oldest one that has sent nothing, or the oldest.
const MOST_CONNECTIONS: usize = 32;
/// Longest time of a connection.
const LONGEST: Duration = Duration::from_secs(5);
/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;

const OK: Refused = Refused(200, "OK");
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
/// Path of the metrics for Prometheus.
const METRICS: &[u8] = b"/metrics";
/// Path of the counters for `warpbell top`.
pub const OBSERVE: &str = "/observe";

/// Socket that accepts connections, and who may use it.
pub struct Listener {
    socket: Socket,
    readers: Readers,
}

#[derive(Clone, Debug)]
enum Readers {
    /// Senders of the token, or everyone who reaches the address.
    Token(Option<Vec<u8>>),
    /// Processes of this user, and of root.
    User,
}

impl Listener {
    /// Listens on an address. Returns the address with its port, too.
    ///
    /// # Errors
    /// Those of the system, as for an address in use.
    pub fn tcp(address: SocketAddr, token: Option<Vec<u8>>) -> io::Result<(Self, SocketAddr)> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        // A port whose last connections have just ended is free.
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        let bound = socket.local_addr()?.as_socket().unwrap_or(address);
        Ok((Self::of(socket, Readers::Token(token))?, bound))
    }

    /// Listens on a path, for processes of this user.
    ///
    /// # Errors
    /// Those of the system.
    pub fn unix(path: &std::path::Path) -> io::Result<Self> {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.bind(&SockAddr::unix(path)?)?;
        Self::of(socket, Readers::User)
    }

    fn of(socket: Socket, readers: Readers) -> io::Result<Self> {
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        Ok(Self { socket, readers })
    }
}

/// Identity of the process in what is served.
#[derive(Clone, Debug)]
pub struct Shown {
    pub pid: u32,
    pub command: String,
}

/// A running server. Dropping it ends its thread.
pub struct Server {
    stop: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Starts the thread.
    ///
    /// # Errors
    /// [`Failure::Error`] if the thread cannot be started.
    pub fn start(listeners: Vec<Listener>, shown: Shown) -> Result<Self, Failure> {
        let (stop, stopped) = UnixStream::pair()?;
        let work = move || {
            let (connections, acceptor, known) = (Vec::new(), Acceptor::new(LISTENER), KnownSources::default());
            let (limits, crowd) = (Limits::new(MOST_CONNECTIONS, 1, usize::MAX), Seldom::default());
            Loop { listeners, stopped, shown, connections, acceptor, limits, known, crowd }.run();
        };
        let thread = std::thread::Builder::new().name("wb-metrics".to_owned()).spawn(work);
        let thread = thread.map_err(|e| Failure::about("the thread that shows counters cannot be started", e))?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The thread sees the end of the stream.
        let _ = self.stop.shutdown(Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}

struct Connection {
    socket: Socket,
    readers: Readers,
    source: Source,
    /// True if a reader of this source was allowed to read before.
    known: bool,
    since: Instant,
    input: Vec<u8>,
    /// The response, once there is one, and the bytes of it that were sent.
    output: Option<(Vec<u8>, usize)>,
    /// True if this reader was allowed to read.
    allowed: bool,
}

/// Next step of a connection.
#[derive(PartialEq, Eq)]
enum Next {
    Wait,
    Close,
}

struct Loop {
    listeners: Vec<Listener>,
    stopped: UnixStream,
    shown: Shown,
    connections: Vec<Connection>,
    acceptor: Acceptor,
    limits: Limits,
    known: KnownSources,
    crowd: Seldom,
}

impl Loop {
    fn run(mut self) {
        loop {
            let ready = self.wait();
            if ready[0] {
                return;
            }
            let (listening, talking) = ready[1..].split_at(self.listeners.len());
            let now = Instant::now();
            let Self { connections, shown, known, .. } = &mut self;
            let mut ready = talking.iter();
            connections.retain_mut(|c| {
                let is_ready = ready.next().copied().unwrap_or(false);
                let stays = c.since + LONGEST > now && (!is_ready || c.advance(shown) == Next::Wait);
                if c.allowed && !c.known {
                    c.known = true;
                    known.insert(c.source);
                }
                stays
            });
            for (index, _) in listening.iter().enumerate().filter(|(_, is_ready)| **is_ready) {
                self.accept(index);
            }
        }
    }

    /// Waits until something can be done: for the end, each listener and each connection, in this order.
    fn wait(&self) -> Vec<bool> {
        let entry = |fd: RawFd, events| libc::pollfd { fd, events, revents: 0 };
        let of = |c: &Connection| if c.is_sending() { libc::POLLOUT } else { libc::POLLIN };
        let mut all = vec![entry(self.stopped.as_raw_fd(), libc::POLLIN)];
        // During a pause a waiting connection must not wake this thread. `poll` ignores a negative descriptor.
        let pause = self.acceptor.paused_until().filter(|until| Instant::now() < *until);
        let listener = |l: &Listener| if pause.is_some() { -1 } else { l.socket.as_raw_fd() };
        all.extend(self.listeners.iter().map(|l| entry(listener(l), libc::POLLIN)));
        all.extend(self.connections.iter().map(|c| entry(c.socket.as_raw_fd(), of(c))));
        let soonest = self.connections.iter().map(|c| c.since + LONGEST).chain(pause).min();
        let within = soonest.map(|t| t.saturating_duration_since(Instant::now()).as_millis() as i32 + 1).unwrap_or(-1);
        // SAFETY: the array has as many entries as the call is told.
        unsafe { libc::poll(all.as_mut_ptr(), all.len() as libc::nfds_t, within) };
        // After a signal no entry is ready, and the next call waits again.
        all.iter().map(|e| e.revents != 0).collect()
    }
}

impl Loop {
    fn accept(&mut self, index: usize) {
        let Self { listeners, acceptor, connections, known, limits, crowd, .. } = self;
        let Listener { socket, readers } = &listeners[index];
        let now = Instant::now();
        let (socket, address, is_last) = match acceptor.next(now, || socket.accept()) {
            Accepted::Connection((socket, address)) => (socket, address, false),
            Accepted::Last((socket, address)) => (socket, address, true),
            Accepted::Nothing => return,
        };
        let is_welcome = match readers {
            Readers::User => is_own_user(&socket),
            Readers::Token(_) => true,
        };
        if !is_welcome || socket.set_nonblocking(true).is_err() {
            return;
        }
        let source = address.as_socket().map_or(Source::ThisHost, |a| Source::of(a.ip()));
        let is_known = known.has(source);
        let all: Vec<Stranger> = connections.iter().map(Connection::as_stranger).collect();
        match limits.admit(&all, source, is_known, is_last) {
            Admission::Keep => {}
            Admission::Refuse => return,
            Admission::Replace(goes) => {
                warn_of_crowd(crowd, LISTENER, all.len(), *limits, now);
                connections.remove(goes);
            }
        }
        let readers = readers.clone();
        connections.push(Connection {
            socket,
            readers,
            source,
            known: is_known,
            since: now,
            input: Vec::new(),
            output: None,
            allowed: false,
        });
    }
}

impl Connection {
    fn as_stranger(&self) -> Stranger {
        let silent = self.input.is_empty();
        Stranger { source: self.source, known: self.known, since: self.since, silent }
    }

    fn is_sending(&self) -> bool {
        self.output.as_ref().is_some_and(|(bytes, sent)| *sent < bytes.len())
    }

    /// Does what can be done without waiting.
    fn advance(&mut self, shown: &Shown) -> Next {
        let mut part = [0; 4096];
        loop {
            let Some((bytes, sent)) = &mut self.output else {
                match self.socket.read(&mut part) {
                    // The reader has left, or sends no more: there is no whole request.
                    Ok(0) => return Next::Close,
                    Ok(n) => self.input.extend_from_slice(&part[..n]),
                    Err(e) => return after(&e),
                }
                if let Some((bytes, allowed)) = respond(&self.input, &self.readers, shown) {
                    self.output = Some((bytes, 0));
                    self.allowed = allowed;
                }
                continue;
            };
            if *sent < bytes.len() {
                match self.socket.write(&bytes[*sent..]) {
                    Ok(n) => *sent += n,
                    Err(e) => return after(&e),
                }
                if *sent == bytes.len() {
                    let _ = self.socket.shutdown(Shutdown::Write);
                }
                continue;
            }
            // Bytes that nobody reads would make the system discard the response.
            match self.socket.read(&mut part) {
                Ok(0) => return Next::Close,
                Ok(_) => {}
                Err(e) => return after(&e),
            }
            // A sender without end waits for its turn, as all others do.
            return Next::Wait;
        }
    }
}

fn after(e: &io::Error) -> Next {
    match e.kind() {
        ErrorKind::WouldBlock | ErrorKind::Interrupted => Next::Wait,
        _ => Next::Close,
    }
}

/// Returns the response, and true if the reader may read, or `None` while the request is not complete.
fn respond(input: &[u8], readers: &Readers, shown: &Shown) -> Option<(Vec<u8>, bool)> {
    let request = match http::parse(input) {
        Ok(request) => request?,
        Err(refused) => return Some((http::response(refused, PLAIN, refused.1, false), false)),
    };
    let allowed = match readers {
        Readers::Token(token) => request.authorize(token.as_deref()),
        Readers::User => Ok(()),
    };
    let is_allowed = allowed.is_ok();
    let answer = allowed.and_then(|()| match request.path {
        METRICS => Ok((TEXT, shown.observe().text())),
        path if path == OBSERVE.as_bytes() => Ok((JSON, serde_json::to_string(&shown.observe()).unwrap_or_default())),
        _ => Err(http::NOT_FOUND),
    });
    let response = match answer {
        Ok((kind, body)) => http::response(OK, kind, &body, request.is_head),
        Err(refused) => http::response(refused, PLAIN, refused.1, request.is_head),
    };
    Some((response, is_allowed))
}

impl Observed {
    /// Returns the counters as Prometheus reads them, with the process's version and command.
    fn text(&self) -> String {
        let command: String = self.command.chars().filter(|c| !matches!(c, '"' | '\\' | '\n')).collect();
        format!(
            "# HELP warpbell_process_info 1, with the version and the command.\n# TYPE warpbell_process_info gauge\nwarpbell_process_info{{command=\"{command}\",version=\"{}\"}} 1\n{}",
            env!("CARGO_PKG_VERSION"),
            self.counters.to_text()
        )
    }
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
