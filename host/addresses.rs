//! Addresses of names. The connections of one association must go to one address, and a look-up has no time limit.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, ToSocketAddrs};

/// The address by which each host and port was reached last.
#[derive(Debug, Default)]
pub(crate) struct Addresses(Mutex<BTreeMap<(String, u16), SocketAddr>>);

impl Addresses {
    /// Connects to the address that was reached last. Only if there is none, or it is unreachable now, the name is looked
    /// up, and its other addresses are tried in order.
    ///
    /// # Errors
    /// * The first error of `connect` for which `is_unreachable` is false.
    /// * The last error of `connect` if all addresses are unreachable.
    /// * `failed` of the look-up's error, also if the name has no address.
    pub(crate) fn connect<T, E>(
        &self,
        host: &str,
        port: u16,
        failed: impl Fn(io::Error) -> E,
        is_unreachable: impl Fn(&E) -> bool,
        connect: impl FnMut(SocketAddr) -> Result<T, E>,
    ) -> Result<T, E> {
        self.connect_by((host, port), |key| Ok(key.to_socket_addrs()?.collect()), failed, is_unreachable, connect)
    }

    fn connect_by<T, E>(
        &self,
        name: (&str, u16),
        look_up: impl FnOnce((&str, u16)) -> io::Result<Vec<SocketAddr>>,
        failed: impl Fn(io::Error) -> E,
        is_unreachable: impl Fn(&E) -> bool,
        mut connect: impl FnMut(SocketAddr) -> Result<T, E>,
    ) -> Result<T, E> {
        let key = (name.0.to_owned(), name.1);
        let known = self.0.lock().get(&key).copied();
        let mut last = None;
        let mut attempt = |address| match connect(address) {
            Err(e) if is_unreachable(&e) => {
                last = Some(e);
                None
            }
            done => Some((address, done)),
        };
        let done = match known.and_then(&mut attempt) {
            Some(done) => Some(done),
            None => {
                let others = look_up(name).map_err(&failed)?.into_iter().filter(|a| Some(*a) != known);
                others.into_iter().find_map(attempt)
            }
        };
        match done {
            Some((address, Ok(connection))) => {
                self.0.lock().insert(key, address);
                Ok(connection)
            }
            Some((_, Err(e))) => Err(e),
            None => Err(last.unwrap_or_else(|| failed(ErrorKind::NotFound.into()))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Connects to `h:1`, whose addresses are `all`, of which only those of `open` are reached.
    fn connect(a: &Addresses, all: Option<&[u8]>, open: &[u8]) -> Result<u8, String> {
        let address = |n: &u8| SocketAddr::from(([10, 0, 0, *n], 1));
        a.connect_by(
            ("h", 1),
            |_| all.map(|all| all.iter().map(address).collect()).ok_or_else(|| ErrorKind::TimedOut.into()),
            |e| format!("look-up: {e}"),
            |e| e.starts_with("unreachable"),
            |to| {
                let SocketAddr::V4(to) = to else { unreachable!() };
                let n = to.ip().octets()[3];
                match (n, open.contains(&n)) {
                    (9, _) => Err("refused".to_owned()),
                    (_, true) => Ok(n),
                    (_, false) => Err(format!("unreachable {n}")),
                }
            },
        )
    }

    #[test]
    fn connections_stay_with_the_address_that_was_reached() {
        let a = Addresses::default();
        assert_eq!(connect(&a, Some(&[1, 2]), &[2]), Ok(2));
        assert_eq!(connect(&a, Some(&[1, 2]), &[1, 2]), Ok(2), "not the first");
        assert_eq!(connect(&a, None, &[2]), Ok(2), "without a look-up");
        assert_eq!(connect(&a, Some(&[1, 2]), &[1]), Ok(1), "another one if it is unreachable");
        assert_eq!(connect(&a, Some(&[1, 2]), &[]), Err("unreachable 2".to_owned()));
        assert_eq!(connect(&a, Some(&[1]), &[]), Err("unreachable 1".to_owned()));
        assert_eq!(connect(&a, Some(&[9, 1]), &[]), Err("refused".to_owned()), "other errors end the attempts");
    }

    #[test]
    fn failed_look_ups_are_errors() {
        let a = Addresses::default();
        assert!(connect(&a, None, &[1]).unwrap_err().starts_with("look-up: timed out"));
        assert!(connect(&a, Some(&[]), &[1]).unwrap_err().starts_with("look-up: "), "a name without addresses");
    }
}
