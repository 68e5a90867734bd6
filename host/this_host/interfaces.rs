//! The addresses of this host's interfaces.

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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
                // SAFETY: as above.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_system_has_a_loopback_address() {
        let all = interface_addresses().unwrap();
        assert!(all.iter().any(|a| a.address.is_loopback() && !a.scoped && !a.interface.is_empty()), "{all:?}");
        // Those of one link, and no others, have a scope.
        let link = |a: &IpAddr| matches!(a, IpAddr::V6(v6) if v6.is_unicast_link_local());
        assert!(all.iter().all(|a| a.scoped == link(&a.address)), "{all:?}");
    }
}
