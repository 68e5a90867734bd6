//! Passing of file descriptors between the ranks of a host.
//!
//! Each rank listens on a Unix socket with a random name in the abstract namespace. It sends the name and a random
//! token to all ranks through the bootstrap. A caller must show the token and belong to the same user; it then gets the
//! descriptor.

use crate::engine::abi::MAX_PES;
use crate::idle;
use crate::listener::{Accepted, Acceptor, Admission, Limits, Seldom, Source, Stranger, peer_user, warn_of_crowd};
use crate::this_host::descriptor_limit;
use socket2::{Domain, SockAddr, Socket, Type};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

/// Random bytes of a name or a token, before hex encoding.
const RANDOM_BYTES: usize = 16;
/// A caller that sends nothing for this long is not a rank of the world.
const SILENCE: Duration = Duration::from_secs(10);
/// Bytes of what a caller says: the token, and its rank.
const HELLO_BYTES: usize = 2 * RANDOM_BYTES + size_of::<u64>();
/// Most callers that have not shown their token, at most one in so many descriptors of the process.
const MOST_CALLERS: usize = 2 * MAX_PES;
const CALLER_SHARE: usize = 4;
/// Most callers that are accepted at a time.
const ACCEPTED: usize = 64;
/// The longest wait for room in the backlog of another rank, before this rank serves its own callers.
const ATTEMPT: Duration = Duration::from_millis(20);
/// Name of the listener in warnings.
const LISTENER: &str = "heap descriptors";
/// The longest wait for callers between two looks at the clock.
const LOOK: Duration = Duration::from_millis(200);

/// A listener from which other ranks get a descriptor.
#[derive(Debug)]
pub(in super::super) struct DescriptorListener {
    listener: UnixListener,
    /// Name of the socket.
    pub(in super::super) name: String,
    /// Token that callers must show.
    pub(in super::super) token: String,
}

/// The descriptor listener of another rank.
#[derive(Clone, Debug)]
pub(in super::super) struct Peer {
    /// The other rank.
    pub(in super::super) rank: usize,
    /// Name of its socket.
    pub(in super::super) name: String,
    /// Token that its listener expects.
    pub(in super::super) token: String,
}

/// Returns random bytes in hex that nobody can guess.
pub(in super::super) fn secret() -> io::Result<String> {
    crate::random::hex::<RANDOM_BYTES>()
}

/// Returns the abstract name of a listener's socket.
fn name_of(name: &str) -> String {
    format!("warpbell-{name}")
}

impl DescriptorListener {
    pub(in super::super) fn open() -> io::Result<Self> {
        let (name, token) = (secret()?, secret()?);
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name_of(&name))?)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, name, token })
    }

    /// Sends `mine` to every rank in `callers` and receives the descriptors of `givers`, in their order.
    ///
    /// All ranks call it at the same time. No cycle of waits is possible: a connection is established before it is accepted, and a rank
    /// accepts others while it waits for room in a backlog.
    pub(in super::super) fn exchange(
        &self,
        me: usize,
        mine: Option<BorrowedFd<'_>>,
        callers: &[usize],
        givers: &[Peer],
        within: Duration,
    ) -> Result<Vec<OwnedFd>, String> {
        let until = Instant::now() + within;
        let mut giving = mine.map(|mine| Giving::new(self, mine, callers));
        let mut asked = Vec::new();
        for peer in givers {
            let stream = loop {
                if let Some(stream) = ask(me, peer)? {
                    break stream;
                }
                // Programs of other users can fill the backlog of a rank, which empties it while it asks others.
                giving.as_mut().map_or(Ok(()), Giving::advance)?;
                if Instant::now() >= until {
                    let rank = peer.rank;
                    return Err(format!(
                        "rank {rank} accepted no connection in time: too many wait at its Unix socket"
                    ));
                }
            };
            asked.push((peer.rank, stream));
        }
        if let Some(mut giving) = giving {
            giving.finish(until)?;
        }
        let take = |(rank, stream): (usize, UnixStream)| {
            receive(&stream, until).map_err(|e| format!("received no heap from rank {rank}: {e}"))
        };
        asked.into_iter().map(take).collect()
    }
}

/// A caller that has not shown its token.
struct Caller {
    stream: UnixStream,
    since: Instant,
    hello: Vec<u8>,
}

/// The descriptor that a rank gives away, and its callers.
struct Giving<'a> {
    from: &'a DescriptorListener,
    fd: BorrowedFd<'a>,
    /// Ranks that have not called.
    left: Vec<usize>,
    acceptor: Acceptor,
    limits: Limits,
    crowd: Seldom,
    callers: Vec<Caller>,
}

impl<'a> Giving<'a> {
    fn new(from: &'a DescriptorListener, fd: BorrowedFd<'a>, left: &[usize]) -> Self {
        let limits = Limits::new(MOST_CALLERS, CALLER_SHARE, descriptor_limit());
        let (acceptor, crowd, callers) = (Acceptor::new(LISTENER), Seldom::default(), Vec::new());
        Self { from, fd, left: left.to_vec(), acceptor, limits, crowd, callers }
    }

    /// Serves callers until each rank has called.
    fn finish(&mut self, until: Instant) -> Result<(), String> {
        loop {
            self.advance()?;
            if self.left.is_empty() {
                return Ok(());
            }
            let remaining = until.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                let names: Vec<String> = self.left.iter().map(usize::to_string).collect();
                return Err(format!("rank {} did not ask for this rank's heap in time", names.join(", ")));
            }
            let is_paused = self.acceptor.paused_until().is_some_and(|until| Instant::now() < until);
            let listener = (!is_paused).then_some((self.from.listener.as_raw_fd(), false));
            let all: Vec<_> =
                listener.into_iter().chain(self.callers.iter().map(|c| (c.stream.as_raw_fd(), false))).collect();
            idle::wait(&all, remaining.min(LOOK));
        }
    }

    /// Accepts callers, and gives the descriptor to those that have shown the token. Does not wait.
    fn advance(&mut self) -> Result<(), String> {
        for _ in 0..ACCEPTED {
            let now = Instant::now();
            match self.acceptor.next(now, || self.from.listener.accept()) {
                Accepted::Connection((stream, _)) => self.add(stream, now, false),
                Accepted::Last((stream, _)) => self.add(stream, now, true),
                Accepted::Nothing => break,
            }
        }
        for mut caller in std::mem::take(&mut self.callers) {
            match self.heard(&mut caller) {
                Ok(None) => self.callers.push(caller),
                Ok(Some(rank)) => {
                    send(&caller.stream, self.fd).map_err(|e| format!("cannot send the heap to rank {rank}: {e}"))?;
                    self.left.retain(|r| *r != rank);
                }
                Err(reason) => tracing::debug!(reason, "rejected a request for the heap"),
            }
        }
        Ok(())
    }

    fn add(&mut self, stream: UnixStream, now: Instant, is_last: bool) {
        // SAFETY: has no preconditions.
        let own = unsafe { libc::geteuid() };
        if !peer_user(&stream).is_ok_and(|user| user == own) || stream.set_nonblocking(true).is_err() {
            return tracing::debug!("rejected a request for the heap: it is of another user");
        }
        let of =
            |c: &Caller| Stranger { source: Source::ThisHost, known: true, since: c.since, silent: c.hello.is_empty() };
        let all: Vec<Stranger> = self.callers.iter().map(of).collect();
        match self.limits.admit(&all, Source::ThisHost, true, is_last) {
            Admission::Keep => {}
            Admission::Refuse => return,
            Admission::Replace(goes) => {
                warn_of_crowd(&mut self.crowd, LISTENER, all.len(), self.limits, now);
                self.callers.swap_remove(goes);
            }
        }
        self.callers.push(Caller { stream, since: now, hello: Vec::new() });
    }

    /// Reads what a caller says. Returns its rank, if it is one of those that are left and has shown the token.
    fn heard(&self, caller: &mut Caller) -> Result<Option<usize>, String> {
        let mut bytes = [0; HELLO_BYTES];
        while caller.hello.len() < HELLO_BYTES {
            match caller.stream.read(&mut bytes[caller.hello.len()..]) {
                Ok(0) => return Err("it closed the connection".to_owned()),
                Ok(n) => {
                    let at = caller.hello.len();
                    caller.hello.extend_from_slice(&bytes[at..at + n]);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && caller.since.elapsed() < SILENCE => return Ok(None),
                Err(e) => return Err(e.to_string()),
            }
        }
        let (token, rank) = caller.hello.split_at(2 * RANDOM_BYTES);
        // Compares every byte, so that the time taken reveals nothing.
        let wrong = token.iter().zip(self.from.token.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
        if wrong != 0 {
            return Err("it sent a wrong token".to_owned());
        }
        let rank = rank.try_into().map(u64::from_le_bytes).map_err(|_| "it sent no rank")?;
        let rank = self
            .left
            .iter()
            .copied()
            .find(|r| *r as u64 == rank)
            .ok_or_else(|| format!("rank {rank} is not expected"))?;
        Ok(Some(rank))
    }
}

/// Connects to another rank and shows its token. Returns `None` if its backlog has been full for [`ATTEMPT`].
fn ask(me: usize, peer: &Peer) -> Result<Option<UnixStream>, String> {
    let connect = || -> io::Result<UnixStream> {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        // The limit of the time that `connect` waits, too.
        socket.set_write_timeout(Some(ATTEMPT))?;
        socket.connect(&SockAddr::unix(format!("\0{}", name_of(&peer.name)))?)?;
        let mut stream = UnixStream::from(OwnedFd::from(socket));
        stream.write_all(peer.token.as_bytes())?;
        stream.write_all(&(me as u64).to_le_bytes())?;
        Ok(stream)
    };
    match connect() {
        Ok(stream) => Ok(Some(stream)),
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
        Err(e) => Err(format!(
            "rank {} does not answer at its Unix socket: {e}; ranks of one host share a network namespace (containers: --network host, or \
             one container for all)",
            peer.rank
        )),
    }
}

/// Space for the control message of one descriptor, aligned like `cmsghdr`.
#[repr(C)]
struct Control {
    _align: [libc::cmsghdr; 0],
    bytes: [u8; CONTROL_BYTES],
}

/// `CMSG_SPACE(sizeof(int))`.
// SAFETY: only computes a size.
const CONTROL_BYTES: usize = unsafe { libc::CMSG_SPACE(size_of::<RawFd>() as u32) } as usize;

/// Calls `then` with a message of one byte and space for one descriptor.
fn with_message<T>(byte: &mut u8, then: impl FnOnce(&mut libc::msghdr) -> T) -> T {
    let mut control = Control { _align: [], bytes: [0; CONTROL_BYTES] };
    let mut part = libc::iovec { iov_base: std::ptr::from_mut(byte).cast(), iov_len: 1 };
    // SAFETY: all zero bytes are a valid value of this type.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.bytes.as_mut_ptr().cast();
    message.msg_controllen = CONTROL_BYTES as _;
    then(&mut message)
}

fn send(stream: &UnixStream, fd: BorrowedFd<'_>) -> io::Result<()> {
    let mut byte = 1;
    let sent = with_message(&mut byte, |message| {
        // SAFETY: the control buffer has space for one message with one descriptor.
        unsafe {
            let header = libc::CMSG_FIRSTHDR(message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as _;
            libc::CMSG_DATA(header).cast::<RawFd>().write_unaligned(fd.as_raw_fd());
            libc::sendmsg(stream.as_raw_fd(), message, libc::MSG_NOSIGNAL)
        }
    });
    if sent == 1 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn receive(stream: &UnixStream, until: Instant) -> io::Result<OwnedFd> {
    loop {
        // Fails when no time is left; a timeout of zero would mean no timeout.
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "it sent nothing in time"));
        }
        stream.set_read_timeout(Some(left))?;
        let mut byte = 0;
        let (got, fd) = with_message(&mut byte, |message| {
            // SAFETY: the message has one byte and space for one control message.
            unsafe {
                let got = libc::recvmsg(stream.as_raw_fd(), message, libc::MSG_CMSG_CLOEXEC);
                let header = if got > 0 { libc::CMSG_FIRSTHDR(message) } else { std::ptr::null_mut() };
                let is_fd = !header.is_null()
                    && (*header).cmsg_level == libc::SOL_SOCKET
                    && (*header).cmsg_type == libc::SCM_RIGHTS
                    && (*header).cmsg_len as usize >= libc::CMSG_LEN(size_of::<RawFd>() as u32) as usize;
                let fd = is_fd.then(|| libc::CMSG_DATA(header).cast::<RawFd>().read_unaligned());
                (got, fd)
            }
        });
        match (got, fd) {
            (_, Some(fd)) if fd >= 0 => {
                // SAFETY: a new descriptor that the system created for this message.
                return Ok(unsafe { OwnedFd::from_raw_fd(fd) });
            }
            (0, _) => {
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it closed the connection; check its output"));
            }
            (n, _) if n > 0 => {
                let text = "its answer has no file descriptor: this process may have too many open (ulimit -n)";
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
            _ => match io::Error::last_os_error() {
                e if e.kind() == io::ErrorKind::Interrupted => {}
                e if e.kind() == io::ErrorKind::WouldBlock => {}
                e => return Err(e),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsFd;
    use std::os::unix::fs::FileExt;

    const LONG: Duration = Duration::from_secs(30);

    fn file_with(text: &str) -> File {
        let mut f = tempfile::tempfile().unwrap();
        f.write_all(text.as_bytes()).unwrap();
        f
    }

    /// Reads at offset 0: descriptors of one file share its position.
    fn text_of(fd: OwnedFd) -> String {
        let mut text = [0; 64];
        let bytes = File::from(fd).read_at(&mut text, 0).unwrap();
        String::from_utf8(text[..bytes].to_vec()).unwrap()
    }

    fn peer(rank: usize, listener: &DescriptorListener) -> Peer {
        Peer { rank, name: listener.name.clone(), token: listener.token.clone() }
    }

    /// Connects and says nothing.
    fn silent(listener: &DescriptorListener) -> UnixStream {
        UnixStream::connect_addr(&SocketAddr::from_abstract_name(name_of(&listener.name)).unwrap()).unwrap()
    }

    #[test]
    fn full_backlogs_and_silent_callers_hold_no_rank_up() {
        let listeners = [DescriptorListener::open().unwrap(), DescriptorListener::open().unwrap()];
        let listeners = &listeners;
        // Connections that fill the backlogs: the next `connect` waits for room.
        let mut crowd = Vec::new();
        for l in listeners {
            // SAFETY: a system call with values. It lowers the backlog of a socket that listens.
            assert_eq!(unsafe { libc::listen(l.listener.as_raw_fd(), 8) }, 0);
            while let Some(stream) = ask(9, &Peer { token: String::new(), ..peer(0, l) }).unwrap() {
                crowd.push(stream);
                assert!(crowd.len() < 100, "a backlog without end");
            }
        }
        std::thread::scope(|s| {
            for me in 0..2 {
                s.spawn(move || {
                    let (other, mine) = (1 - me, file_with(&format!("file of {me}")));
                    let peers = [peer(other, &listeners[other])];
                    let got = listeners[me].exchange(me, Some(mine.as_fd()), &[other], &peers, LONG).unwrap();
                    assert_eq!(got.into_iter().map(text_of).collect::<Vec<_>>(), [format!("file of {other}")]);
                });
            }
        });
    }

    #[test]
    fn everybody_gets_everybodys_file() {
        let listeners: Vec<DescriptorListener> = (0..4).map(|_| DescriptorListener::open().unwrap()).collect();
        let listeners = &listeners;
        std::thread::scope(|s| {
            for me in 0..4 {
                s.spawn(move || {
                    let others: Vec<usize> = (0..4).filter(|r| *r != me).collect();
                    let peers: Vec<Peer> = others.iter().map(|r| peer(*r, &listeners[*r])).collect();
                    let mine = file_with(&format!("file of {me}"));
                    let got = listeners[me].exchange(me, Some(mine.as_fd()), &others, &peers, LONG).unwrap();
                    let texts: Vec<String> = got.into_iter().map(text_of).collect();
                    let expected: Vec<String> = others.iter().map(|r| format!("file of {r}")).collect();
                    assert_eq!(texts, expected);
                });
            }
        });
    }

    #[test]
    fn strangers_get_nothing_and_are_in_nobodys_way() {
        let listener = DescriptorListener::open().unwrap();
        let stranger = Peer { token: "0".repeat(2 * RANDOM_BYTES), ..peer(0, &listener) };
        let wrong_token = ask(1, &stranger).unwrap().unwrap();
        let wrong_rank = ask(7, &peer(0, &listener)).unwrap().unwrap();
        let hung_up = silent(&listener);
        drop(hung_up);
        let right = ask(1, &peer(0, &listener)).unwrap().unwrap();
        let twice = ask(1, &peer(0, &listener)).unwrap().unwrap();
        let mine = file_with("mine");
        listener.exchange(0, Some(mine.as_fd()), &[1], &[], LONG).unwrap();
        let until = Instant::now() + LONG;
        assert_eq!(text_of(receive(&right, until).unwrap()), "mine");
        drop(listener);
        for refused in [wrong_token, wrong_rank, twice] {
            assert!(receive(&refused, until).is_err());
        }
    }

    #[test]
    fn waits_end_and_name_the_rank() {
        let listener = DescriptorListener::open().unwrap();
        let mine = file_with("mine");
        let short = Duration::from_millis(20);
        let e = listener.exchange(0, Some(mine.as_fd()), &[3], &[], short).unwrap_err();
        assert!(e.contains("rank 3"), "{e}");
        let silent = DescriptorListener::open().unwrap();
        let e = listener.exchange(0, None, &[], &[peer(2, &silent)], short).unwrap_err();
        assert!(e.contains("rank 2") && e.contains("in time"), "{e}");
        let gone = peer(5, &silent);
        drop(silent);
        let e = listener.exchange(0, None, &[], &[gone], short).unwrap_err();
        assert!(e.contains("rank 5") && e.contains("network namespace"), "{e}");
    }
}
