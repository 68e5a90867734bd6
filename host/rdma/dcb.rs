//! Data center bridging of an Ethernet interface: the lossless priorities, and the priority of each packet. The kernel
//! reports them through netlink only, to any process.

use super::congestion::{PRIORITIES, Priorities};
use super::tclass::TrafficClass;
use crate::pci::Sysfs;
use serde::Serialize;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Commands, attributes and selectors of linux/dcbnl.h.
mod dcbnl {
    pub const IEEE_GET: u8 = 21;
    pub const ATTR_IFNAME: u16 = 1;
    pub const ATTR_IEEE: u16 = 13;
    pub const IEEE_PFC: u16 = 2;
    pub const IEEE_APP_TABLE: u16 = 3;
    pub const IEEE_APP: u16 = 1;
    pub const APP_SELECTOR_DSCP: u8 = 5;
}

/// Size of `struct nlmsghdr`. `DCB_HEADER_BYTES` is the size of `struct dcbmsg`.
const HEADER_BYTES: usize = 16;
const DCB_HEADER_BYTES: usize = 4;
/// Size of `struct nlattr`. Attributes are padded to a multiple of it.
const ATTRIBUTE_BYTES: usize = 4;
/// Mask that removes the flags from an attribute's type: nested, network byte order.
const TYPE_MASK: u16 = 0x3fff;
/// Receive timeout. The kernel replies at once.
const DEADLINE: Duration = Duration::from_secs(1);
/// Size of the receive buffer. A reply has a few hundred bytes; 64 DSCP entries take 512.
const ANSWER_BYTES: usize = 16 << 10;
/// Longest name of an interface, including its NUL (linux/if.h, IFNAMSIZ).
const NAME_BYTES: usize = 16;

/// Priority settings of an interface (IEEE 802.1Q, clauses 36 and 38).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Bridging {
    /// Lossless priorities: a full receiver pauses the sender (priority-based flow control).
    pub lossless: Priorities,
    /// Pairs of differentiated services code point and priority, if the interface maps code points to priorities.
    pub by_dscp: Vec<(u8, u8)>,
}

impl Bridging {
    /// Queries the kernel about an interface; `None` if its driver has no such setting, or for a fixture tree.
    pub fn ask(sysfs: &Sysfs, netdev: &str) -> Option<Self> {
        if !sysfs.is_system() || netdev.is_empty() || netdev.len() >= NAME_BYTES {
            return None;
        }
        parse(&exchange(&request(netdev)).ok()?)
    }

    /// Returns the priority of packets with traffic class `class`.
    pub fn priority_of(&self, class: TrafficClass) -> u8 {
        let told = self.by_dscp.iter().find(|(dscp, _)| *dscp == class.dscp());
        told.map_or(class.default_priority(), |(_, priority)| *priority)
    }
}

impl Bridging {
    /// Returns a traffic class whose packets get `priority`. It is the customary class, unless the interface maps the
    /// customary code point elsewhere and another one to `priority`.
    pub fn class_for(&self, priority: u8) -> TrafficClass {
        let customary = TrafficClass::customary(priority);
        if self.priority_of(customary) == priority {
            return customary;
        }
        let mapped = self.by_dscp.iter().find(|(_, p)| *p == priority);
        mapped.map_or(customary, |(dscp, _)| TrafficClass::of_dscp(*dscp))
    }
}

fn padded(bytes: usize) -> usize {
    bytes.next_multiple_of(ATTRIBUTE_BYTES)
}

fn request(netdev: &str) -> Vec<u8> {
    let name = netdev.len() + 1;
    let total = HEADER_BYTES + DCB_HEADER_BYTES + ATTRIBUTE_BYTES + padded(name);
    let mut m = Vec::with_capacity(total);
    m.extend((total as u32).to_ne_bytes());
    m.extend(libc::RTM_GETDCB.to_ne_bytes());
    m.extend((libc::NLM_F_REQUEST as u16).to_ne_bytes());
    // Sequence number and port, which are irrelevant in a single exchange.
    m.extend([0; 8]);
    m.extend([libc::AF_UNSPEC as u8, dcbnl::IEEE_GET, 0, 0]);
    m.extend(((ATTRIBUTE_BYTES + name) as u16).to_ne_bytes());
    m.extend(dcbnl::ATTR_IFNAME.to_ne_bytes());
    m.extend(netdev.as_bytes());
    m.resize(total, 0);
    m
}

/// Sends one request and receives one reply.
fn exchange(request: &[u8]) -> io::Result<Vec<u8>> {
    let check = |n: isize| if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n as usize) };
    // SAFETY: takes plain numbers and returns a new descriptor or -1.
    let fd = unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_ROUTE) };
    check(fd as isize)?;
    // SAFETY: the descriptor is open and has no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let deadline = libc::timeval { tv_sec: DEADLINE.as_secs() as libc::time_t, tv_usec: 0 };
    // SAFETY: reads a `timeval` of the given size, which outlives the call.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_RCVTIMEO,
            (&raw const deadline).cast(),
            size_of::<libc::timeval>() as libc::socklen_t,
        )
    } as isize)?;
    // SAFETY: reads as many bytes as the slice has.
    check(unsafe { libc::send(socket.as_raw_fd(), request.as_ptr().cast(), request.len(), 0) })?;
    let mut answer = vec![0; ANSWER_BYTES];
    // SAFETY: writes at most as many bytes as the buffer has.
    let n = check(unsafe { libc::recv(socket.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0) })?;
    answer.truncate(n);
    Ok(answer)
}

/// Iterates over attributes as type without flags, and payload. Ends at the first attribute that does not fit.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let number = |at: usize| Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
        let (length, kind) = (usize::from(number(0)?), number(2)? & TYPE_MASK);
        let payload = bytes.get(ATTRIBUTE_BYTES..length)?;
        bytes = bytes.get(padded(length)..).unwrap_or_default();
        Some((kind, payload))
    })
}

/// Parses the reply to [`request`]; `None` for an error, and for a reply without the state of flow control.
fn parse(answer: &[u8]) -> Option<Bridging> {
    let length = u32::from_ne_bytes(answer.get(..4)?.try_into().ok()?) as usize;
    let kind = u16::from_ne_bytes(answer.get(4..6)?.try_into().ok()?);
    if kind != libc::RTM_GETDCB {
        return None;
    }
    let body = answer.get(HEADER_BYTES + DCB_HEADER_BYTES..length)?;
    let mut this = Bridging::default();
    let mut known = false;
    for (_, ieee) in attributes(body).filter(|(kind, _)| *kind == dcbnl::ATTR_IEEE) {
        for (kind, payload) in attributes(ieee) {
            match (kind, payload) {
                // struct ieee_pfc: the device's capability, then the enabled priorities.
                (dcbnl::IEEE_PFC, [_, enabled, ..]) => {
                    this.lossless = Priorities(*enabled);
                    known = true;
                }
                (dcbnl::IEEE_APP_TABLE, table) => {
                    this.by_dscp.extend(attributes(table).filter_map(|(kind, app)| application(kind, app)));
                }
                _ => {}
            }
        }
    }
    known.then_some(this)
}

/// Parses `struct dcb_app`: selector, priority and, for this selector, the code point in two bytes.
fn application(kind: u16, app: &[u8]) -> Option<(u8, u8)> {
    let [selector, priority, low, high] = *app else { return None };
    let dscp = u8::try_from(u16::from_ne_bytes([low, high])).ok()?;
    let right = kind == dcbnl::IEEE_APP && selector == dcbnl::APP_SELECTOR_DSCP && priority < PRIORITIES;
    right.then_some((dscp, priority))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn attribute(kind: u16, payload: &[u8]) -> Vec<u8> {
        let mut bytes = ((ATTRIBUTE_BYTES + payload.len()) as u16).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(payload);
        bytes.resize(padded(bytes.len()), 0);
        bytes
    }

    fn answer(kind: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = ((HEADER_BYTES + DCB_HEADER_BYTES + body.len()) as u32).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 10]);
        bytes.extend([0, dcbnl::IEEE_GET, 0, 0]);
        bytes.extend(body);
        bytes
    }

    fn app(selector: u8, priority: u8, protocol: u16) -> Vec<u8> {
        let [low, high] = protocol.to_ne_bytes();
        attribute(dcbnl::IEEE_APP, &[selector, priority, low, high])
    }

    /// Builds mlx5's reply with flow control in some priorities, and DSCP 59 in priority 5.
    fn usual(enabled: u8) -> Vec<u8> {
        let mut pfc = vec![8, enabled, 0, 0];
        pfc.resize(136, 0);
        let table = [app(dcbnl::APP_SELECTOR_DSCP, 5, 59), app(1, 3, 0x8915), app(dcbnl::APP_SELECTOR_DSCP, 9, 1)];
        let ieee = [
            attribute(1, &[0; 59]),
            attribute(dcbnl::IEEE_PFC, &pfc),
            attribute(dcbnl::IEEE_APP_TABLE | 0x8000, &table.concat()),
        ];
        let body = [attribute(dcbnl::ATTR_IFNAME, b"ens1\0"), attribute(dcbnl::ATTR_IEEE | 0x8000, &ieee.concat())];
        answer(libc::RTM_GETDCB, &body.concat())
    }

    #[test]
    fn flow_control_and_code_points_are_read() {
        let found = parse(&usual(1 << 5)).unwrap();
        assert_eq!((found.lossless, &found.by_dscp[..]), (Priorities(1 << 5), &[(59, 5)][..]));
        assert_eq!(found.priority_of(TrafficClass(236)), 5, "DSCP 59 was mapped");
        assert_eq!(found.priority_of(TrafficClass(106)), 3, "DSCP 26 was not");
        assert_eq!((found.class_for(5), found.class_for(3)), (TrafficClass(170), TrafficClass(106)));
        let moved = Bridging { by_dscp: vec![(59, 5), (42, 0)], ..found };
        assert_eq!(moved.class_for(5), TrafficClass(238), "DSCP 42, the customary one, is in priority 0");
    }

    #[test]
    fn an_error_or_no_flow_control_is_no_answer() {
        assert_eq!(parse(&answer(libc::NLMSG_ERROR as u16, &[0; 20])), None);
        assert_eq!(parse(&answer(libc::RTM_GETDCB, &attribute(dcbnl::ATTR_IEEE, &[]))), None);
        assert_eq!(parse(&[]), None);
    }

    #[test]
    fn a_request_has_the_kernels_shape() {
        let m = request("ens1");
        assert_eq!(m.len(), 32);
        assert_eq!(m[..4], 32u32.to_ne_bytes());
        assert_eq!(m[16..20], [0, 21, 0, 0]);
        assert_eq!(m[20..24], [9u16.to_ne_bytes(), 1u16.to_ne_bytes()].concat());
        assert_eq!(&m[24..], b"ens1\0\0\0\0");
    }

    #[test]
    fn an_interface_without_priorities_tells_nothing() {
        assert_eq!(Bridging::ask(&Sysfs::system(), "lo"), None);
        assert_eq!(Bridging::ask(&Sysfs::system(), "a-name-that-is-too-long"), None);
        assert_eq!(Bridging::ask(&Sysfs::at("/nowhere"), "lo"), None);
    }

    proptest! {
        #[test]
        fn no_answer_panics(bytes: Vec<u8>, body: Vec<u8>, at: prop::sample::Index, byte: u8) {
            let _ = parse(&bytes);
            let _ = parse(&answer(libc::RTM_GETDCB, &body));
            let mut damaged = usual(8);
            let at = at.index(damaged.len());
            damaged[at] = byte;
            let _ = parse(&damaged);
            damaged.truncate(at);
            let _ = parse(&damaged);
        }
    }
}
