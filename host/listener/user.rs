//! The user at the other end of a Unix socket.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Returns the user of the process that made the other end of a Unix socket.
///
/// # Errors
/// That of the system, as for a socket of another kind.
pub fn peer_user(socket: &impl AsFd) -> io::Result<libc::uid_t> {
    let mut peer = libc::ucred { pid: 0, uid: libc::uid_t::MAX, gid: libc::gid_t::MAX };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: writes at most `bytes` bytes of a structure that is borrowed for the call.
    let result = unsafe {
        let to = (&raw mut peer).cast();
        libc::getsockopt(socket.as_fd().as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, to, &mut bytes)
    };
    if result == 0 { Ok(peer.uid) } else { Err(io::Error::last_os_error()) }
}

/// Returns true if the process at the other end of a Unix socket runs as this one's user, or as root.
pub fn is_own_user(socket: &impl AsFd) -> bool {
    // SAFETY: takes no pointers and always succeeds.
    let own = unsafe { libc::geteuid() };
    peer_user(socket).is_ok_and(|user| [own, 0].contains(&user))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn both_ends_of_ones_own_socket_are_of_one_user() {
        let (a, _b) = UnixStream::pair().unwrap();
        assert!(is_own_user(&a));
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(!is_own_user(&tcp), "without credentials nobody is welcome");
    }
}
