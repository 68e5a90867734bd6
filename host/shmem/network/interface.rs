//! The address by which PEs of other hosts reach this PE.

use super::super::ShmemError;
use super::super::bootstrap::{INTERFACE_VARIABLE, Route};
use super::super::variable;
use crate::this_host::address_named;
use std::net::IpAddr;

/// Returns the address that `WARPBELL_INTERFACE` gives: as an address, or by the name of its interface.
pub(in super::super) fn address_of_setting() -> Result<Option<IpAddr>, ShmemError> {
    let Some(text) = variable::text(INTERFACE_VARIABLE) else { return Ok(None) };
    let wrong = |reason: String| ShmemError::Setting { name: INTERFACE_VARIABLE, reason };
    address_named(text.trim()).map(Some).map_err(wrong)
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
