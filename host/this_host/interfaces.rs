//! The addresses of this host's interfaces.

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

/// An address of an interface that is up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InterfaceAddress {
    /// The interface's name.
    pub(crate) interface: String,
    pub(crate) address: IpAddr,
    /// It counts on one link only, and needs a scope that other hosts do not have (`fe80::`).
    pub(crate) scoped: bool,
}

/// All of them, in the system's order.
pub(crate) fn interface_addresses() -> io::Result<Vec<InterfaceAddress>> {
    let mut list: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: writes the head of a list, which is freed below.
    if unsafe { libc::getifaddrs(&mut list) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mut all = Vec::new();
    let mut at = list;
    while !at.is_null() {
        // SAFETY: an entry of the list, which stays until it is freed.
        let entry = unsafe { &*at };
        at = entry.ifa_next;
        if entry.ifa_addr.is_null() || entry.ifa_flags & libc::IFF_UP as libc::c_uint == 0 {
            continue;
        }
        // SAFETY: the name is a string, and every address begins with its family.
        let (name, family) =
            unsafe { (CStr::from_ptr(entry.ifa_name), libc::c_int::from((*entry.ifa_addr).sa_family)) };
        let (address, scoped) = match family {
            libc::AF_INET => {
                // SAFETY: the address has the length of its family's structure; read without alignment.
                let v4 = unsafe { entry.ifa_addr.cast::<libc::sockaddr_in>().read_unaligned() };
                (IpAddr::V4(Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr))), false)
            }
            libc::AF_INET6 => {
                // SAFETY: the address has the length of its family's structure; read without alignment.
                let v6 = unsafe { entry.ifa_addr.cast::<libc::sockaddr_in6>().read_unaligned() };
                (IpAddr::V6(Ipv6Addr::from(v6.sin6_addr.s6_addr)), v6.sin6_scope_id != 0)
            }
            _ => continue,
        };
        all.push(InterfaceAddress { interface: name.to_string_lossy().into_owned(), address, scoped });
    }
    // SAFETY: the list that getifaddrs made, once.
    unsafe { libc::freeifaddrs(list) };
    Ok(all)
}

/// Returns the address that a text names: an address of this host, or the name of an interface.
///
/// # Errors
/// The reason why it names none, with the addresses that there are.
pub(crate) fn address_named(text: &str) -> Result<IpAddr, String> {
    let all = interface_addresses().map_err(|e| format!("the interfaces of this host cannot be read: {e}"))?;
    named(text, &all)
}

/// Returns the address by which other hosts are likely to reach this one: that of the route to the outside, otherwise
/// the first that is not the loopback address, otherwise the loopback address.
pub(crate) fn outward_address() -> IpAddr {
    let usual = |a: &IpAddr| !a.is_loopback() && !a.is_unspecified();
    // Addresses of documentation. Connecting such a socket chooses a route and sends nothing.
    let routes = [("0.0.0.0:0", "192.0.2.1:9"), ("[::]:0", "[2001:db8::1]:9")];
    let route = routes.iter().find_map(|(from, to)| {
        let socket = UdpSocket::bind(from).ok()?;
        socket.connect(to).ok()?;
        Some(socket.local_addr().ok()?.ip()).filter(usual)
    });
    let first = || {
        let all = interface_addresses().unwrap_or_default();
        all.iter().filter(|a| !a.scoped).map(|a| a.address).find(usual)
    };
    route.or_else(first).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
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
    fn every_system_has_a_loopback_address() {
        let all = interface_addresses().unwrap();
        assert!(all.iter().any(|a| a.address.is_loopback() && !a.scoped && !a.interface.is_empty()), "{all:?}");
        // The address for other hosts is one of them.
        assert!(all.iter().any(|a| a.address == outward_address()), "{} {all:?}", outward_address());
        // Those of one link, and no others, have a scope.
        let link = |a: &IpAddr| matches!(a, IpAddr::V6(v6) if v6.is_unicast_link_local());
        assert!(all.iter().all(|a| a.scoped == link(&a.address)), "{all:?}");
    }
}
