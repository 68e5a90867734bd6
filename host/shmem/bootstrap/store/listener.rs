//! Rank 0's listening socket: bound here, or inherited from the process that started the rank.

use crate::shmem::bootstrap::BootstrapError;
use crate::shmem::bootstrap::environment::STORE_FD;
use socket2::{Domain, Socket};
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// Returns a new descriptor for a listening socket that this process inherited.
///
/// The inherited descriptor stays open for later worlds, but programs that this process starts do not get it.
///
/// # Errors
/// [`BootstrapError::Variable`] if the number is not the descriptor of a listening TCP socket.
pub(super) fn inherited(descriptor: RawFd) -> Result<TcpListener, BootstrapError> {
    let wrong = || BootstrapError::Variable {
        variable: STORE_FD.to_owned(),
        value: descriptor.to_string(),
        expected: "rank 0 inherited no listening TCP socket with this descriptor; pass one, or unset the variable"
            .to_owned(),
    };
    // SAFETY: a system call with values, which fails for a number that is no descriptor.
    let own = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 3) };
    if own < 0 {
        return Err(wrong());
    }
    // SAFETY: the call above created this descriptor, and no other code knows it.
    let socket = Socket::from(unsafe { OwnedFd::from_raw_fd(own) });
    let is_tcp = matches!(socket.domain(), Ok(Domain::IPV4 | Domain::IPV6));
    if !is_tcp || !socket.is_listener().unwrap_or(false) {
        return Err(wrong());
    }
    // SAFETY: the descriptor is the one that the first call created. If this call fails, programs started later get the
    // descriptor, but do not use it.
    unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) };
    Ok(socket.into())
}

/// Binds rank 0's socket at `store`. A literal address is used as it is. A name may resolve differently for rank 0 than
/// for the other ranks, so rank 0 then listens on all addresses.
pub(in crate::shmem::bootstrap) fn listen(store: &str) -> Result<TcpListener, BootstrapError> {
    let failed = |reason| BootstrapError::Listen { store: store.to_owned(), reason };
    let (host, port) = store.rsplit_once(':').ok_or_else(|| failed("write host:port".to_owned()))?;
    let port: u16 = port.parse().map_err(|_| failed("the port is not a number up to 65535".to_owned()))?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let any = [SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)), SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))];
    let literal = match host.parse::<IpAddr>() {
        Ok(ip) => Some(ip),
        Err(_) => (host == "localhost").then_some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
    };
    let mut bound = literal.map_or_else(|| TcpListener::bind(any[0]), |ip| TcpListener::bind((ip, port)));
    for other in any {
        match &bound {
            Ok(_) => break,
            Err(e) if e.kind() == ErrorKind::AddrInUse => break,
            // The literal address is a translated one that only others use for this host, or the host has no IPv6.
            Err(_) => bound = TcpListener::bind(other),
        }
    }
    bound.map_err(|e| {
        failed(match e.kind() {
            ErrorKind::AddrInUse => format!("port {port} is in use; write another in WARPBELL_STORE"),
            _ => e.to_string(),
        })
    })
}

/// Returns the address by which this process itself reaches a socket that listens at `address`.
pub(super) fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}
