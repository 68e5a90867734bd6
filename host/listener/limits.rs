//! Limit of strangers, and which one goes.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Instant;

/// Where a connection comes from, as far as limits tell sources apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// A process of this host and user, by a Unix socket.
    ThisHost,
    /// A host. IPv6 hosts of one network (/64) are one source, since each of them has all its addresses.
    Network(IpAddr),
}

impl Source {
    /// Returns the source of an address.
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(v6) => Self::Network(Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into()),
            v4 => Self::Network(v4),
        }
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::ThisHost => f.write_str("this host"),
            Self::Network(address @ IpAddr::V6(_)) => write!(f, "{address}/64"),
            Self::Network(address) => address.fmt(f),
        }
    }
}

/// A connection that has not proved itself.
#[derive(Clone, Copy, Debug)]
pub struct Stranger {
    /// Source of the connection.
    pub source: Source,
    /// True if the source was known when it connected.
    pub known: bool,
    /// Time of the connection.
    pub since: Instant,
    /// True if it has sent nothing.
    pub silent: bool,
}

/// Largest number of strangers at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Of all sources.
    pub all: usize,
    /// Of one source.
    pub of_one_source: usize,
    /// Number that unknown sources cannot take from known ones.
    pub reserved: usize,
}

/// Decision about a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// There is room.
    Keep,
    /// There is room once the stranger with this index is closed.
    Replace(usize),
    /// There is none.
    Refuse,
}

impl Limits {
    /// Returns the limits for `most` connections, or fewer if that is more than one in `share` of the process's `descriptors`. One
    /// source gets half of them, and known ones keep a quarter.
    pub fn new(most: usize, share: usize, descriptors: usize) -> Self {
        let all = (descriptors / share.max(1)).min(most).max(4);
        Self { all, of_one_source: all / 2, reserved: all / 4 }
    }

    /// Decides about another connection beside `all`. One that took a spare descriptor (`is_last`) is kept for another of an unknown
    /// source, or if its own source is known.
    pub fn admit(self, all: &[Stranger], source: Source, known: bool, is_last: bool) -> Admission {
        let unknown = || (0..all.len()).filter(|i| !all[*i].known).collect::<Vec<_>>();
        if is_last {
            return match Self::first_to_go(all, unknown()) {
                Some(goes) => Admission::Replace(goes),
                None if known => Admission::Keep,
                None => Admission::Refuse,
            };
        }
        let same = all.iter().filter(|s| s.source == source).count();
        let strangers = all.iter().filter(|s| !s.known).count();
        // Known ones beyond those that are reserved take the places of all.
        let beyond = (all.len() - strangers).saturating_sub(self.reserved);
        let is_reserved = known && all.len() - strangers < self.reserved;
        let crowd = if source != Source::ThisHost && same >= self.of_one_source {
            (0..all.len()).filter(|i| all[*i].source == source).collect()
        } else if is_reserved || strangers + beyond < self.all.saturating_sub(self.reserved) {
            return Admission::Keep;
        } else if beyond == 0 {
            unknown()
        } else {
            (0..all.len()).collect()
        };
        Self::first_to_go(all, crowd).map_or(Admission::Refuse, Admission::Replace)
    }

    /// Returns the oldest of those that said nothing, or the oldest of all.
    fn first_to_go(all: &[Stranger], crowd: Vec<usize>) -> Option<usize> {
        crowd.into_iter().min_by_key(|i| (!all[*i].silent, all[*i].since))
    }
}
