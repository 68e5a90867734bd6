//! Passing of file descriptors between the ranks of a host.
//!
//! Each rank listens on a Unix socket with a random name in the abstract namespace. It sends the name and a random
//! token to all ranks through the bootstrap. A caller must show the token and belong to the same user; it then gets the
//! descriptor.

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

/// Random bytes of a name or a token, before hex encoding.
const RANDOM_BYTES: usize = 16;
/// A caller that sends nothing for this long is not a rank of the world.
const SILENCE: Duration = Duration::from_secs(10);
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

fn address(name: &str) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("warpbell-{name}"))
}

impl DescriptorListener {
    pub(in super::super) fn open() -> io::Result<Self> {
        let (name, token) = (secret()?, secret()?);
        let listener = UnixListener::bind_addr(&address(&name)?)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, name, token })
    }

    /// Sends `mine` to every rank in `callers` and receives the descriptors of `givers`, in their order.
    ///
    /// All ranks call it at the same time. No cycle of waits is possible, since a connection is established before it
    /// is accepted.
    pub(in super::super) fn exchange(
        &self,
        me: usize,
        mine: Option<BorrowedFd<'_>>,
        callers: &[usize],
        givers: &[Peer],
        within: Duration,
    ) -> Result<Vec<OwnedFd>, String> {
        let until = Instant::now() + within;
        let asked = givers.iter().map(|peer| ask(me, peer).map(|stream| (peer.rank, stream)));
        let asked = asked.collect::<Result<Vec<_>, _>>()?;
        if let Some(mine) = mine {
            self.serve(mine, callers, until)?;
        }
        let take = |(rank, stream): (usize, UnixStream)| {
            receive(&stream, until).map_err(|e| format!("received no heap from rank {rank}: {e}"))
        };
        asked.into_iter().map(take).collect()
    }

    fn serve(&self, fd: BorrowedFd<'_>, callers: &[usize], until: Instant) -> Result<(), String> {
        let mut left = callers.to_vec();
        while !left.is_empty() {
            let remaining = until.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                let names: Vec<String> = left.iter().map(usize::to_string).collect();
                return Err(format!("rank {} did not ask for this rank's heap in time", names.join(", ")));
            }
            match self.listener.accept() {
                Ok((stream, _)) => match self.admit(&stream, &left, remaining) {
                    Ok(rank) => {
                        send(&stream, fd).map_err(|e| format!("cannot send the heap to rank {rank}: {e}"))?;
                        left.retain(|r| *r != rank);
                    }
                    Err(reason) => tracing::debug!(reason, "rejected a request for the heap"),
                },
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                    wait_readable(self.listener.as_raw_fd(), remaining.min(LOOK));
                }
                Err(e) => return Err(format!("other ranks cannot connect to this one: {e}")),
            }
        }
        Ok(())
    }

    /// Returns the rank of the caller, if it is one of `left` and shows the token.
    fn admit(&self, stream: &UnixStream, left: &[usize], remaining: Duration) -> Result<usize, String> {
        let uid = peer_uid(stream).map_err(|e| e.to_string())?;
        // SAFETY: has no preconditions.
        let own = unsafe { libc::geteuid() };
        if uid != own {
            return Err(format!("user {uid} is not user {own}"));
        }
        stream.set_nonblocking(false).map_err(|e| e.to_string())?;
        stream.set_read_timeout(Some(remaining.min(SILENCE))).map_err(|e| e.to_string())?;
        let mut hello = [0u8; 2 * RANDOM_BYTES + size_of::<u64>()];
        (&*stream).read_exact(&mut hello).map_err(|e| e.to_string())?;
        let (token, rank) = hello.split_at(2 * RANDOM_BYTES);
        // Compares every byte, so that the time taken reveals nothing.
        let wrong = token.iter().zip(self.token.bytes()).fold(0, |all, (a, b)| all | (a ^ b));
        if wrong != 0 {
            return Err("it sent a wrong token".to_owned());
        }
        let rank = rank.try_into().map(u64::from_le_bytes).map_err(|_| "it sent no rank")?;
        left.iter().copied().find(|r| *r as u64 == rank).ok_or_else(|| format!("rank {rank} is not expected"))
    }
}

fn ask(me: usize, peer: &Peer) -> Result<UnixStream, String> {
    let connect = || -> io::Result<UnixStream> {
        let mut stream = UnixStream::connect_addr(&address(&peer.name)?)?;
        stream.write_all(peer.token.as_bytes())?;
        stream.write_all(&(me as u64).to_le_bytes())?;
        Ok(stream)
    };
    connect().map_err(|e| {
        format!(
            "rank {} does not answer at its Unix socket: {e}; ranks of one host share a network namespace (containers: \
             --network host, or one container for all)",
            peer.rank
        )
    })
}

fn peer_uid(stream: &UnixStream) -> io::Result<libc::uid_t> {
    let mut who = libc::ucred { pid: 0, uid: libc::uid_t::MAX, gid: libc::gid_t::MAX };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: writes one `ucred`.
    let answer = unsafe {
        libc::getsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut who).cast(), &mut bytes)
    };
    if answer == 0 { Ok(who.uid) } else { Err(io::Error::last_os_error()) }
}

fn wait_readable(fd: RawFd, within: Duration) {
    let mut one = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    let ms = within.as_millis().clamp(1, libc::c_int::MAX as u128) as libc::c_int;
    // SAFETY: one entry. The caller checks again whatever `poll` returns.
    unsafe { libc::poll(&mut one, 1, ms) };
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
        let wrong_token = ask(1, &stranger).unwrap();
        let wrong_rank = ask(7, &peer(0, &listener)).unwrap();
        let hung_up = UnixStream::connect_addr(&address(&listener.name).unwrap()).unwrap();
        drop(hung_up);
        let right = ask(1, &peer(0, &listener)).unwrap();
        let twice = ask(1, &peer(0, &listener)).unwrap();
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
