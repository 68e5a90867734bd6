//! Events of a connection identifier, and the errors that they stand for.

use crate::rdma::ConnectError;
use std::fmt;
use std::io;
use std::time::Duration;

/// Kind of an event, by its number (rdma-core `rdma_cma.h`, `enum rdma_cm_event_type`).
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Kind(pub i32);

impl Kind {
    pub const ADDRESS_RESOLVED: Self = Self(0);
    pub const ADDRESS_ERROR: Self = Self(1);
    pub const ROUTE_RESOLVED: Self = Self(2);
    pub const ROUTE_ERROR: Self = Self(3);
    pub const RESPONSE: Self = Self(5);
    pub const CONNECT_ERROR: Self = Self(6);
    pub const UNREACHABLE: Self = Self(7);
    pub const REJECTED: Self = Self(8);
    pub const ESTABLISHED: Self = Self(9);
    pub const DISCONNECTED: Self = Self(10);
    pub const DEVICE_REMOVED: Self = Self(11);
    pub const ADDRESS_CHANGED: Self = Self(14);
    pub const TIME_WAIT_OVER: Self = Self(15);

    fn name(self) -> &'static str {
        match self {
            Self::ADDRESS_RESOLVED => "address resolved",
            Self::ADDRESS_ERROR => "address error",
            Self::ROUTE_RESOLVED => "route resolved",
            Self::ROUTE_ERROR => "route error",
            Self::RESPONSE => "connection response",
            Self::CONNECT_ERROR => "connection error",
            Self::UNREACHABLE => "unreachable",
            Self::REJECTED => "rejected",
            Self::ESTABLISHED => "established",
            Self::DISCONNECTED => "disconnected",
            Self::DEVICE_REMOVED => "device removed",
            Self::ADDRESS_CHANGED => "address changed",
            Self::TIME_WAIT_OVER => "time wait over",
            _ => "unknown",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (event {})", self.name(), self.0)
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub kind: Kind,
    /// 0, a negative error number, or the reason of a rejection.
    pub status: i32,
    /// Private data of the other end, which the connection manager may have padded.
    pub private: Vec<u8>,
}

/// Reasons of a rejection (InfiniBand Architecture 1.7, vol. 1, 12.6.7.2).
const INVALID_SERVICE: i32 = 8;
const BY_CONSUMER: i32 = 28;
const REASONS: [(i32, &str); 18] = [
    (1, "no queue pair available"),
    (3, "no resources available"),
    (4, "timeout"),
    (5, "unsupported request"),
    (10, "stale connection"),
    (13, "primary GID rejected"),
    (14, "primary LID rejected"),
    (15, "invalid service level"),
    (16, "invalid traffic class"),
    (17, "invalid hop limit"),
    (18, "invalid packet rate"),
    (24, "port and connection manager redirection"),
    (26, "invalid path MTU"),
    (27, "insufficient responder resources"),
    (29, "RNR retry count rejected"),
    (33, "unsupported extension"),
    (35, "vendor option"),
    (2, "no end-to-end context available"),
];

/// Returns the error of an event in place of the one that was expected. `waited` is the time since the request.
pub(super) fn failure(peer: &str, event: Event, waited: Duration) -> ConnectError {
    let peer = peer.to_owned();
    let unreachable = |source| ConnectError::Unreachable { peer: peer.clone(), source };
    let number = |status: i32| io::Error::from_raw_os_error(status.saturating_abs());
    match event.kind {
        Kind::ADDRESS_ERROR | Kind::ROUTE_ERROR => unreachable(no_path(number(event.status))),
        Kind::REJECTED => match event.status {
            BY_CONSUMER => ConnectError::Rejected { peer, private: event.private },
            // iWARP has TCP's error numbers.
            INVALID_SERVICE => unreachable(number(libc::ECONNREFUSED)),
            status if status < 0 => unreachable(number(status)),
            status => {
                let reason = REASONS.iter().find(|(n, _)| *n == status).map_or("a reason that is not listed", |r| r.1);
                unreachable(io::Error::other(format!(
                    "its connection manager rejected the request: {reason} (reason {status})"
                )))
            }
        },
        Kind::UNREACHABLE if event.status == -libc::ETIMEDOUT => ConnectError::TimedOut { peer, waited },
        Kind::UNREACHABLE | Kind::CONNECT_ERROR if event.status < 0 => unreachable(number(event.status)),
        Kind::UNREACHABLE | Kind::CONNECT_ERROR => {
            unreachable(io::Error::other(format!("the connection manager reports {}", event.kind)))
        }
        kind => {
            let reason = ended(kind).unwrap_or("the connection manager reported an event that was not expected");
            ConnectError::Protocol { peer, reason: format!("{reason}: {kind}") }
        }
    }
}

/// Adds the cause to the error of a search for a path.
pub(super) fn no_path(e: io::Error) -> io::Error {
    let cause = match e.raw_os_error() {
        Some(libc::ENODEV) => "the interface on the route to it has no RDMA device (`rdma link` lists them)",
        Some(libc::EADDRNOTAVAIL) => "the RDMA device on the route to it has no GID for this host's address",
        _ => return e,
    };
    io::Error::new(e.kind(), format!("{cause}: {e}"))
}

/// Returns the reason for which an event ends an established connection; `None` if it does not.
pub(super) fn ended(kind: Kind) -> Option<&'static str> {
    match kind {
        Kind::DISCONNECTED | Kind::TIME_WAIT_OVER => Some("the other end closed it"),
        Kind::DEVICE_REMOVED => Some("the RDMA device was removed"),
        Kind::ADDRESS_CHANGED => Some("the address of the network interface has changed"),
        Kind::CONNECT_ERROR | Kind::UNREACHABLE | Kind::REJECTED => Some("the connection manager reported an error"),
        _ => None,
    }
}
