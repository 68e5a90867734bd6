//! Addresses of adapters and queue pairs, encoded as bytes: all that another adapter needs to connect.

use crate::rdma::QueueAddress;
use crate::this_host::{self, Machine};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};

/// Version of the encoding.
const VERSION: u16 = 1;
/// Largest number of TCP addresses.
const MOST_ADDRESSES: usize = 32;
/// Longest abstract socket name in bytes (`sockaddr_un`, without the leading zero).
const MOST_NAME: usize = 107;

/// Address of an adapter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Endpoint {
    version: u16,
    /// Random number of the adapter.
    pub(super) nic: u128,
    /// Number of its machine and network namespace, in which abstract names are valid ([`Machine::number`]).
    pub(super) host: u128,
    /// Its process, for messages.
    pub(super) process: u32,
    /// Name of its abstract Unix socket.
    pub(super) unix: Option<String>,
    /// TCP addresses, in the order in which to try them.
    pub(super) tcp: Vec<SocketAddr>,
}

impl Endpoint {
    pub(super) fn new(nic: u128, unix: Option<String>, tcp: Vec<SocketAddr>) -> Self {
        Self { version: VERSION, nic, host: Machine::here().number(), process: std::process::id(), unix, tcp }
    }

    /// Returns true if this process can connect to the adapter's Unix socket.
    pub(super) fn is_near(&self) -> bool {
        self.unix.is_some() && self.host == Machine::here().number()
    }
}

/// Address of a queue pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PairAddress {
    pub(super) at: Endpoint,
    pub(super) number: u32,
    /// Random number that distinguishes the queue pair from an earlier one with the same `number`.
    pub(super) nonce: u64,
}

impl PairAddress {
    pub(super) fn to_queue_address(&self) -> QueueAddress {
        // Numbers, strings and addresses can always be encoded as JSON.
        QueueAddress(serde_json::to_vec(self).unwrap_or_default())
    }

    pub(super) fn read(address: &QueueAddress) -> Result<Self, String> {
        let this: Self = serde_json::from_slice(&address.0).map_err(|e| {
            format!(
                "its address is not that of a software NIC's queue pair ({e}); use the same transport on both sides"
            )
        })?;
        let at = &this.at;
        if at.version != VERSION {
            return Err(format!(
                "its address has version {}, and this side's has version {VERSION}: use the same warpbell on both sides",
                at.version
            ));
        }
        if at.tcp.len() > MOST_ADDRESSES || at.unix.as_ref().is_some_and(|n| n.is_empty() || n.len() > MOST_NAME) {
            return Err("its address has too many socket addresses, or one that is too long".to_owned());
        }
        Ok(this)
    }
}

/// Returns the addresses of this host's active interfaces, loopback last. Returns none if the system does not report
/// them.
pub(super) fn interface_addresses() -> Vec<IpAddr> {
    let all = this_host::interface_addresses().unwrap_or_default();
    let mut found: Vec<IpAddr> = all.into_iter().filter(|a| !a.scoped).map(|a| a.address).collect();
    found.sort_by_key(|a| (a.is_loopback(), a.is_ipv6()));
    found.truncate(MOST_ADDRESSES);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_come_back_and_strange_ones_are_refused() {
        let at = Endpoint::new(
            u128::MAX,
            Some("x".to_owned()),
            vec!["127.0.0.1:9".parse().unwrap(), "[::1]:9".parse().unwrap()],
        );
        assert!(at.is_near());
        assert!(!Endpoint { host: at.host ^ 1, ..at.clone() }.is_near());
        let pair = PairAddress { at, number: 7, nonce: u64::MAX };
        assert_eq!(PairAddress::read(&pair.to_queue_address()), Ok(pair.clone()));
        assert!(PairAddress::read(&QueueAddress(vec![1, 2])).unwrap_err().contains("not that of a software NIC"));
        let mut old = pair.clone();
        old.at.version = 9;
        assert!(PairAddress::read(&old.to_queue_address()).unwrap_err().contains("version 9"));
        let mut long = pair;
        long.at.unix = Some("x".repeat(200));
        assert!(PairAddress::read(&long.to_queue_address()).is_err());
    }

    #[test]
    fn loopback_comes_last() {
        let all = interface_addresses();
        assert!(!all.is_empty());
        assert!(all.is_sorted_by_key(|a| a.is_loopback()), "{all:?}");
    }
}
