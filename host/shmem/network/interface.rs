//! The address by which PEs of other hosts reach this PE.

use super::super::ShmemError;
use super::super::bootstrap::Route;
use super::super::variable;
use crate::this_host::{InterfaceAddress, interface_addresses};
use std::net::IpAddr;

/// The environment variable for the interface, or the address, that PEs of other hosts shall use.
const VARIABLE: &str = "WARPBELL_INTERFACE";

/// Returns the address that `WARPBELL_INTERFACE` gives: as an address, or by the name of its interface.
pub(in super::super) fn address_of_setting() -> Result<Option<IpAddr>, ShmemError> {
    let Some(text) = variable::text(VARIABLE) else { return Ok(None) };
    let wrong = |reason: String| ShmemError::Setting { name: VARIABLE, reason };
    let all = interface_addresses().map_err(|e| wrong(format!("the interfaces of this host cannot be read: {e}")))?;
    named(text.trim(), &all).map(Some).map_err(wrong)
}

fn named(text: &str, all: &[InterfaceAddress]) -> Result<IpAddr, String> {
    if let Ok(address) = text.parse::<IpAddr>() {
        let is_here = all.iter().any(|f| f.address == address);
        return is_here
            .then_some(address)
            .ok_or_else(|| format!("{address} is not an address of this host: {}", listed(all)));
    }
    let of_it = || all.iter().filter(|f| f.interface == text && !f.scoped).map(|f| f.address);
    let found = of_it().find(IpAddr::is_ipv4).or_else(|| of_it().next());
    found.ok_or_else(|| format!("`{text}` is not an interface of this host with an address: {}", listed(all)))
}

fn listed(all: &[InterfaceAddress]) -> String {
    let text: Vec<String> = all.iter().map(|f| format!("{} has {}", f.interface, f.address)).collect();
    if text.is_empty() { "this host has none".to_owned() } else { text.join(", ") }
}

/// Returns the address by which the others reach PE `pe`, according to each rank's connection to the store.
///
/// Rank 0 may have reached its own store by the loopback address. Ranks on other hosts then know a better address.
pub(in super::super) fn reached_at(pe: usize, routes: &[Route]) -> Option<IpAddr> {
    let not_loopback = |a: &IpAddr| !a.is_loopback() && !a.is_unspecified();
    let own = routes.get(pe)?.own;
    let told = || routes.iter().filter_map(|r| r.first).find(not_loopback);
    match own.filter(not_loopback) {
        Some(address) => Some(address),
        None if pe == 0 => told().or(own),
        None => own,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(interface: &str, address: &str) -> InterfaceAddress {
        let scoped = address.starts_with("fe80:");
        InterfaceAddress { interface: interface.to_owned(), address: address.parse().unwrap(), scoped }
    }

    #[test]
    fn interfaces_are_found_by_name_and_by_address() {
        let all =
            [found("lo", "127.0.0.1"), found("ib0", "fe80::1"), found("ib0", "fd00::2"), found("eth0", "10.0.0.5")];
        assert_eq!(named("eth0", &all), Ok("10.0.0.5".parse().unwrap()));
        assert_eq!(named("ib0", &all), Ok("fd00::2".parse().unwrap()), "no address that needs a scope");
        assert_eq!(named("fd00::2", &all), Ok("fd00::2".parse().unwrap()));
        for (text, word) in [("eth1", "eth0 has 10.0.0.5"), ("10.0.0.6", "not an address of this host")] {
            let e = named(text, &all).unwrap_err();
            assert!(e.contains(text) && e.contains(word), "{e}");
        }
    }

    #[test]
    fn rank_0_is_where_the_others_found_it() {
        let ip = |text: &str| -> Option<IpAddr> { Some(text.parse().unwrap()) };
        let route = |own, first| Route { own: ip(own), first };
        let routes = [route("127.0.0.1", None), route("10.0.0.2", ip("10.0.0.1")), route("10.0.0.3", ip("10.0.0.1"))];
        let all: Vec<_> = (0..3).map(|pe| reached_at(pe, &routes)).collect();
        assert_eq!(all, [ip("10.0.0.1"), ip("10.0.0.2"), ip("10.0.0.3")]);
        // All ranks on one host.
        let here = [route("127.0.0.1", None), route("127.0.0.1", ip("127.0.0.1"))];
        assert_eq!((reached_at(0, &here), reached_at(1, &here)), (ip("127.0.0.1"), ip("127.0.0.1")));
        assert_eq!(reached_at(0, &[Route::default()]), None);
    }
}
