//! Strangers: connections whose other end has not proved yet that it belongs to the world. This module limits their
//! number and chooses which one to evict.
//!
//! Anybody can connect to an address that hosts can reach. A stranger costs a descriptor and a little memory until it
//! proves itself or its time is over, so their number is limited. A new stranger is never rejected in favour of older
//! ones; otherwise the first silent connections would keep all others out. Silent strangers are evicted first, because
//! a member sends its hello at once.

use socket2::{SockAddr, Socket};
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// Time limit for the handshake.
pub(super) const GREETING_LIMIT: Duration = Duration::from_secs(2);
/// Most strangers of one thread, and most of them from one address.
const MOST: usize = 64;
const MOST_OF_ONE_ADDRESS: usize = MOST / 2;
/// Fraction of the process's descriptors for strangers: one in this number.
const SHARE: usize = 8;

/// A connection that has not proved itself.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stranger {
    /// Address that it comes from; `None` for this host's Unix socket.
    pub(super) address: Option<IpAddr>,
    pub(super) since: Instant,
    /// True if it has sent nothing.
    pub(super) silent: bool,
}

/// Largest number of strangers at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limit {
    all: usize,
    of_one_address: usize,
}

impl Limit {
    /// Returns the limit for each of `threads` threads of a process that may open `descriptors` descriptors.
    pub(super) fn new(descriptors: usize, threads: usize) -> Self {
        let all = (descriptors / SHARE / threads.max(1)).clamp(2, MOST);
        Self { all, of_one_address: all.min(MOST_OF_ONE_ADDRESS) }
    }

    /// Returns the index of the stranger to evict before another one from `address` is kept. Returns `None` if none
    /// needs to be evicted.
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

/// Returns the address that a connection comes from, or `None` for a Unix socket.
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
    // SAFETY: takes no pointers and always succeeds.
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
