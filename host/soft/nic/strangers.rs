//! Connections whose other end has not shown that it belongs to the world: the limit on them, and the choice of one to evict.
//!
//! Anybody can connect to an address that hosts reach. Strangers cost a descriptor and a little memory until they prove themselves or
//! their time is over, so there are few of them; and a new one is never turned away for those that were there before, or whoever came
//! first and said nothing would keep all others out. Who has said nothing goes first: a member greets at once.

use socket2::{SockAddr, Socket};
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// Time limit for a greeting.
pub(super) const GREETING_LIMIT: Duration = Duration::from_secs(2);
/// Strangers of one thread, and those of them that come from one address.
const MOST: usize = 64;
const MOST_OF_ONE_ADDRESS: usize = MOST / 2;
/// Strangers get one descriptor of so many.
const SHARE: usize = 8;

/// One of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stranger {
    /// Where it comes from; `None` on this host's Unix socket.
    pub(super) address: Option<IpAddr>,
    pub(super) since: Instant,
    /// It has not said anything.
    pub(super) silent: bool,
}

/// The most there may be at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limit {
    all: usize,
    of_one_address: usize,
}

impl Limit {
    /// For each of so many threads of a process that may have so many descriptors.
    pub(super) fn new(descriptors: usize, threads: usize) -> Self {
        let all = (descriptors / SHARE / threads.max(1)).clamp(2, MOST);
        Self { all, of_one_address: all.min(MOST_OF_ONE_ADDRESS) }
    }

    /// Returns the index of the stranger to evict before another one from `address` is kept; `None` if there is room.
    pub(super) fn to_evict(self, all: &[Stranger], address: Option<IpAddr>) -> Option<usize> {
        let from_there = |s: &Stranger| address.is_some() && s.address == address;
        let crowd: Vec<usize> = if all.iter().filter(|s| from_there(s)).count() >= self.of_one_address {
            (0..all.len()).filter(|i| from_there(&all[*i])).collect()
        } else if all.len() >= self.all {
            (0..all.len()).collect()
        } else {
            return None;
        };
        crowd.into_iter().min_by_key(|i| (!all[*i].silent, all[*i].since))
    }
}

/// Returns the address that a connection comes from; `None` for a Unix socket.
pub(super) fn address_of(address: &SockAddr) -> Option<IpAddr> {
    address.as_socket().map(|a| a.ip().to_canonical())
}

/// Returns true if the process at the other end of a Unix socket runs as this one's user, or as root.
pub(super) fn is_own_user(socket: &Socket) -> bool {
    let mut peer = libc::ucred { pid: 0, uid: libc::uid_t::MAX, gid: 0 };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: writes at most `bytes` bytes of a structure that is borrowed for the call.
    let answer = unsafe {
        let to = (&raw mut peer).cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, to, &mut bytes)
    };
    // SAFETY: asks for a number.
    answer == 0 && (peer.uid == 0 || peer.uid == unsafe { libc::geteuid() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stranger(now: Instant, address: u8, age: u64, silent: bool) -> Stranger {
        let address = Some(IpAddr::from([10, 0, 0, address]));
        Stranger { address, since: now - Duration::from_secs(age), silent }
    }

    #[test]
    fn the_oldest_that_said_nothing_goes() {
        let (now, from) = (Instant::now(), |a: u8| Some(IpAddr::from([10, 0, 0, a])));
        let limit = Limit { all: 4, of_one_address: 2 };
        let mut all = vec![stranger(now, 1, 9, false), stranger(now, 2, 5, true), stranger(now, 3, 7, true)];
        assert_eq!(limit.to_evict(&all, from(4)), None);
        all.push(stranger(now, 2, 1, true));
        assert_eq!(limit.to_evict(&all, from(4)), Some(2), "the oldest of all that are silent");
        assert_eq!(limit.to_evict(&all, from(2)), Some(1), "its own address has too many");
        assert_eq!(limit.to_evict(&all, None), Some(2));
        for s in &mut all {
            s.silent = false;
        }
        assert_eq!(limit.to_evict(&all, from(4)), Some(0));
    }

    #[test]
    fn a_process_keeps_descriptors_for_others() {
        assert_eq!(Limit::new(1 << 20, 1), Limit { all: 64, of_one_address: 32 });
        assert_eq!(Limit::new(256, 2), Limit { all: 16, of_one_address: 16 });
        assert_eq!(Limit::new(0, 256), Limit { all: 2, of_one_address: 2 });
    }

    #[test]
    fn both_ends_of_ones_own_socket_are_of_one_user() {
        let (a, _b) = Socket::pair(socket2::Domain::UNIX, socket2::Type::STREAM, None).unwrap();
        assert!(is_own_user(&a));
    }
}
