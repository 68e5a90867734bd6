//! Ids by which ranks find each other that a program passes on by its own means.

use super::environment::Launched;
use super::secret::random;
use super::store::{Member, listen};
use super::{BootstrapError, Secret};
use crate::handshake::keyed;
use crate::this_host::{address_named, outward_address};
use hmac::Mac;
use parking_lot::Mutex;
use std::fmt;
use std::net::{IpAddr, SocketAddr, TcpListener, ToSocketAddrs};
use std::ops::Range;
use std::time::Duration;

/// The environment variable for the interface, or the address, by which other hosts reach this one.
pub(in crate::shmem) const INTERFACE_VARIABLE: &str = "WARPBELL_INTERFACE";

/// The first bytes of every id, with the version of its format.
const MAGIC: [u8; 8] = *b"wb-id\0\0\x01";
/// Places of the parts of an id: secret, length of the address, address, checksum.
const SECRET: Range<usize> = 8..40;
const LENGTH: usize = 40;
const STORE: Range<usize> = 41..124;
const CHECK: Range<usize> = 124..UniqueId::BYTES;

/// Sockets of ids that this process has created, until rank 0 joins. An id is bytes, which cannot own a socket.
static SOCKETS: Mutex<Vec<([u8; 32], TcpListener)>> = Mutex::new(Vec::new());

/// An id by which the ranks of one world find each other: the address of rank 0, and a secret.
///
/// Rank 0 creates the id. The program passes its bytes to all ranks: by MPI, a file, a socket. Each rank then builds
/// its world with [`WorldBuilder::unique_id`](crate::shmem::WorldBuilder::unique_id). An id serves one world.
///
/// The secret keeps strangers out of the world, so only its ranks may see the bytes.
#[derive(Clone, PartialEq, Eq)]
pub struct UniqueId {
    secret: [u8; 32],
    /// The address of rank 0's store, as `host:port`.
    store: String,
}

impl UniqueId {
    /// Bytes of an id.
    pub const BYTES: usize = 128;

    /// Creates an id, in the process of rank 0. This process listens at a free port from now on, so that ranks that come
    /// early wait there. The socket is closed when rank 0 leaves the world.
    ///
    /// `host` is the address, interface or host name by which all ranks reach this host. The default is
    /// `WARPBELL_INTERFACE`, otherwise the address of the route to the outside.
    ///
    /// # Errors
    /// - [`BootstrapError::UniqueId`] if `host` is no address or interface of this host and no name that resolves, or is
    ///   longer than 77 bytes. A name is not compared with this host's addresses.
    /// - [`BootstrapError::Variable`] if `WARPBELL_INTERFACE` does not.
    /// - [`BootstrapError::Listen`] if no socket can listen there, [`BootstrapError::System`] if the system has no random
    ///   bytes.
    pub fn create(host: Option<&str>) -> Result<Self, BootstrapError> {
        let host = match host {
            Some(host) => host_of(host).map_err(|reason| BootstrapError::UniqueId { reason })?,
            None => own_host()?,
        };
        let socket = listen(&format!("{host}:0"))?;
        let port = socket.local_addr().map_err(|e| BootstrapError::system("the socket of a unique id", &e))?.port();
        let store = format!("{host}:{port}");
        if store.len() > STORE.len() {
            let reason = format!("the host name `{host}` is longer than {} bytes; use an address", STORE.len() - 6);
            return Err(BootstrapError::UniqueId { reason });
        }
        let secret = random::<32>()?;
        SOCKETS.lock().push((secret, socket));
        Ok(Self { secret, store })
    }

    /// Returns the bytes of the id, which the program passes to all ranks.
    pub fn to_bytes(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..MAGIC.len()].copy_from_slice(&MAGIC);
        bytes[SECRET].copy_from_slice(&self.secret);
        bytes[LENGTH] = self.store.len() as u8;
        bytes[STORE][..self.store.len()].copy_from_slice(self.store.as_bytes());
        let check = check(&bytes);
        bytes[CHECK].copy_from_slice(&check);
        bytes
    }

    /// Returns the id with these bytes.
    ///
    /// # Errors
    /// [`BootstrapError::UniqueId`] if the bytes are not those of an id.
    pub fn from_bytes(bytes: &[u8; Self::BYTES]) -> Result<Self, BootstrapError> {
        let wrong = |reason: &str| BootstrapError::UniqueId { reason: reason.to_owned() };
        if bytes[..MAGIC.len()] != MAGIC {
            return Err(wrong("the bytes are not those of an id of this version; pass the id of rank 0 to all ranks"));
        }
        let damaged = || wrong("the bytes are damaged; pass all 128 bytes of rank 0's id to all ranks");
        if bytes[CHECK] != check(bytes) {
            return Err(damaged());
        }
        let store = bytes[STORE].get(..bytes[LENGTH].into()).and_then(|text| std::str::from_utf8(text).ok());
        let mut secret = [0; 32];
        secret.copy_from_slice(&bytes[SECRET]);
        Ok(Self { secret, store: store.ok_or_else(damaged)?.to_owned() })
    }

    /// Joins the other ranks as rank `rank` of `size`. Returns when all ranks have joined, at most after `within`.
    ///
    /// # Errors
    /// - [`BootstrapError::NoRank`] unless `rank` is less than `size`.
    /// - [`BootstrapError::UniqueId`] if this is rank 0, and its process has not created the id or has used it.
    /// - The errors of [`Member::join`].
    pub fn join(&self, rank: usize, size: usize, within: Duration) -> Result<Member, BootstrapError> {
        if rank >= size {
            return Err(BootstrapError::NoRank { rank, size });
        }
        let socket = (rank == 0).then(|| self.take_socket()).transpose()?;
        let launched = Launched {
            rank,
            size,
            local_rank: None,
            local_size: None,
            store: Some(self.store.clone()),
            listener: None,
            has_server: false,
            via: "unique id",
        };
        let secret = Secret::new(&self.secret).map_err(|e| BootstrapError::UniqueId { reason: e.to_string() })?;
        Member::join_with(&launched, socket, secret, within)
    }

    fn take_socket(&self) -> Result<TcpListener, BootstrapError> {
        let mut sockets = SOCKETS.lock();
        let at = sockets.iter().position(|(secret, _)| *secret == self.secret);
        at.map(|at| sockets.swap_remove(at).1).ok_or_else(|| BootstrapError::UniqueId {
            reason: format!(
                "rank 0 does not listen at {}: its own process has to create the id, and an id serves one world",
                self.store
            ),
        })
    }
}

impl fmt::Debug for UniqueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UniqueId({})", self.store)
    }
}

fn check(bytes: &[u8; UniqueId::BYTES]) -> [u8; 4] {
    let mac = keyed(&bytes[SECRET]).chain_update(&bytes[..CHECK.start]).finalize().into_bytes();
    [mac[0], mac[1], mac[2], mac[3]]
}

/// Returns the host part of an address: of an interface, or a host name that is resolved by each rank.
fn host_of(text: &str) -> Result<String, String> {
    match address_named(text) {
        Ok(address) => Ok(in_brackets(address)),
        // An address of another host has no name to look up.
        Err(reason) if text.parse::<IpAddr>().is_ok() => Err(reason),
        Err(reason) => match (text, 0).to_socket_addrs() {
            Ok(_) => Ok(text.to_owned()),
            Err(e) => Err(format!("{reason}, and no host name either ({e})")),
        },
    }
}

fn own_host() -> Result<String, BootstrapError> {
    let Some(value) = std::env::var(INTERFACE_VARIABLE).ok().filter(|v| !v.trim().is_empty()) else {
        return Ok(in_brackets(outward_address()));
    };
    let wrong =
        |expected| BootstrapError::Variable { variable: INTERFACE_VARIABLE.to_owned(), value: value.clone(), expected };
    address_named(value.trim()).map(in_brackets).map_err(wrong)
}

/// Returns an address as it stands before a colon and a port.
fn in_brackets(address: IpAddr) -> String {
    let text = SocketAddr::new(address, 0).to_string();
    text.trim_end_matches(":0").to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::Bootstrap;
    use super::*;

    /// A timeout far longer than any test takes.
    const LONG: Duration = Duration::from_secs(100);
    const SHORT: Duration = Duration::from_millis(50);

    fn id() -> UniqueId {
        UniqueId::create(Some("127.0.0.1")).unwrap()
    }

    fn error<T: fmt::Debug>(result: Result<T, BootstrapError>, part: &str) {
        let e = result.unwrap_err().to_string();
        assert!(e.contains(part), "{e}");
    }

    #[test]
    fn ranks_meet_by_the_bytes_and_early_ones_wait() {
        let bytes = id().to_bytes();
        std::thread::scope(|s| {
            for rank in [2, 1, 0] {
                s.spawn(move || {
                    let member = UniqueId::from_bytes(&bytes).unwrap().join(rank, 3, LONG).unwrap();
                    assert_eq!(member.allgather(&[rank as u8], LONG).unwrap(), [[0], [1], [2]]);
                    assert!(member.via().starts_with("unique id, store 127.0.0.1:"), "{}", member.via());
                    member.leave();
                });
                std::thread::sleep(SHORT / 5);
            }
        });
        // The id has served its world.
        let id = UniqueId::from_bytes(&bytes).unwrap();
        error(id.join(0, 3, SHORT), "an id serves one world");
        error(id.join(1, 3, SHORT), "rank 1 could not reach rank 0");
    }

    #[test]
    fn other_bytes_are_no_id() {
        let (id, bytes) = (id(), id().to_bytes());
        assert_eq!(UniqueId::from_bytes(&id.to_bytes()).unwrap(), id);
        for at in 0..UniqueId::BYTES {
            let mut wrong = bytes;
            wrong[at] ^= 0x10;
            error(UniqueId::from_bytes(&wrong), "of rank 0");
        }
        let mut long = bytes;
        long[LENGTH] = 255;
        let sum = check(&long);
        long[CHECK].copy_from_slice(&sum);
        error(UniqueId::from_bytes(&long), "damaged");
        let text = format!("{id:?}");
        assert!(text.starts_with("UniqueId(127.0.0.1:") && text.len() < 30, "{text}");
    }

    #[test]
    fn ids_of_two_worlds_do_not_mix_and_missing_ranks_are_named() {
        let (a, b) = (id(), id());
        std::thread::scope(|s| {
            let zero = s.spawn(|| a.join(0, 2, 4 * SHORT));
            // Nobody serves the other id, so its socket only takes the connection.
            error(b.join(1, 2, SHORT), "does not answer");
            error(zero.join().unwrap(), "for rank 1");
        });
        error(a.join(2, 2, SHORT), "rank 2 of a world of 2");
        // A secret that is not the store's.
        let c = id();
        let other = UniqueId { secret: [7; 32], ..c.clone() };
        std::thread::scope(|s| {
            let zero = s.spawn(|| c.join(0, 2, 4 * SHORT));
            error(other.join(1, 2, LONG), "different secrets");
            error(zero.join().unwrap(), "for rank 1");
        });
    }

    #[test]
    fn hosts_are_addresses_interfaces_or_names() {
        assert_eq!(in_brackets("fd00::2".parse().unwrap()), "[fd00::2]");
        assert_eq!(host_of("lo").unwrap(), "127.0.0.1");
        assert_eq!(host_of("localhost").unwrap(), "localhost");
        error(UniqueId::create(Some("192.0.2.77")), "192.0.2.77 is not an address of this host");
        error(UniqueId::create(Some("no.such.host.invalid")), "no host name either");
        let id = UniqueId::create(None).unwrap();
        assert!(id.store.parse::<SocketAddr>().is_ok(), "{id:?}");
        id.take_socket().unwrap();
    }
}
