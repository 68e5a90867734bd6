//! A port of an RDMA device: its state, its link and its addresses.

use super::congestion::{CongestionControl, CongestionCounters};
use super::dcb::Bridging;
use super::gid::{GidChoice, GidEntry, choose_gid};
use super::tclass::{ClassOverride, TrafficClass};
use crate::pci::Sysfs;
use serde::Serialize;
use std::fmt;

/// Link layer of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum LinkLayer {
    /// InfiniBand.
    InfiniBand,
    /// Ethernet: RoCE, or iWARP.
    Ethernet,
    /// Another link layer (the kernel writes `Unknown`), or the kernel does not report one.
    Other,
}

impl fmt::Display for LinkLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InfiniBand => "InfiniBand",
            Self::Ethernet => "Ethernet",
            Self::Other => "no known link layer",
        })
    }
}

/// Logical state of a port (InfiniBand Architecture 1.7, vol. 1, 14.2.5.6, PortInfo: PortState).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum PortState {
    /// The link is down.
    Down,
    /// The link is up, but the port is not configured: an InfiniBand port waits for its subnet manager.
    Init,
    /// The port is configured but not active.
    Armed,
    /// The port carries data.
    Active,
    /// The port is active, and its link has been lost for a moment.
    #[serde(rename = "ACTIVE_DEFER")]
    ActiveDefer,
}

impl PortState {
    /// Parses the kernel's text, as in `4: ACTIVE`; `None` if the number is not defined.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match leading_number(text)? {
            1 => Self::Down,
            2 => Self::Init,
            3 => Self::Armed,
            4 => Self::Active,
            5 => Self::ActiveDefer,
            _ => return None,
        })
    }
}

impl fmt::Display for PortState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Down => "down",
            Self::Init => "initializing",
            Self::Armed => "armed",
            Self::Active => "active",
            Self::ActiveDefer => "active, deferred",
        })
    }
}

/// State of a port's link (InfiniBand Architecture 1.7, vol. 1, 14.2.5.6, PortInfo: PortPhysicalState).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum PhysicalState {
    /// The port sleeps.
    Sleep,
    /// The port searches for a partner: no cable, or nothing at its other end.
    Polling,
    /// The port is disabled.
    Disabled,
    /// The port negotiates speed and width with its partner.
    Training,
    /// The link is up.
    LinkUp,
    /// The port recovers from errors.
    ErrorRecovery,
    /// The port is under test.
    PhyTest,
}

impl PhysicalState {
    /// Parses the kernel's text, as in `5: LinkUp`; `None` if the number is not defined.
    pub fn parse(text: &str) -> Option<Self> {
        Some(match leading_number(text)? {
            1 => Self::Sleep,
            2 => Self::Polling,
            3 => Self::Disabled,
            4 => Self::Training,
            5 => Self::LinkUp,
            6 => Self::ErrorRecovery,
            7 => Self::PhyTest,
            _ => return None,
        })
    }
}

impl fmt::Display for PhysicalState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sleep => "asleep",
            Self::Polling => "polling",
            Self::Disabled => "disabled",
            Self::Training => "training",
            Self::LinkUp => "link up",
            Self::ErrorRecovery => "recovering from errors",
            Self::PhyTest => "under test",
        })
    }
}

fn leading_number(text: &str) -> Option<u32> {
    text.split(':').next()?.trim().parse().ok()
}

/// Data rate of a port with lanes and speed: `400 Gb/sec (4X NDR)`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PortRate {
    /// Data rate in tenths of 10^9 bit/s.
    pub tenths_of_gbit: u32,
    /// Lanes and speed in InfiniBand's terms, as in `4X NDR`; empty if unknown.
    pub lanes: String,
}

impl PortRate {
    /// Parses the kernel's text; `None` if it has another form or the rate is 0.
    pub fn parse(text: &str) -> Option<Self> {
        let (number, rest) = text.split_once("Gb/sec")?;
        let number = number.trim();
        let (whole, tenth) = number.split_once('.').unwrap_or((number, "0"));
        let tenth: u32 = tenth.get(..1)?.parse().ok()?;
        let tenths = whole.parse::<u32>().ok()?.checked_mul(10)?.checked_add(tenth)?;
        let lanes = rest.trim().trim_start_matches('(').trim_end_matches(')').to_owned();
        (tenths > 0).then_some(Self { tenths_of_gbit: tenths, lanes })
    }
}

impl fmt::Display for PortRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, tenth) = (self.tenths_of_gbit / 10, self.tenths_of_gbit % 10);
        match tenth {
            0 => write!(f, "{whole} Gb/s")?,
            _ => write!(f, "{whole}.{tenth} Gb/s")?,
        }
        if self.lanes.is_empty() { Ok(()) } else { write!(f, " ({})", self.lanes) }
    }
}

/// Path MTUs (InfiniBand Architecture 1.7, vol. 1, 9.6.1.5), largest first.
const PATH_MTUS: [u32; 5] = [4096, 2048, 1024, 512, 256];
/// Bytes that the kernel subtracts from an interface's MTU for RoCE's headers and trailer. They are: routing 40, UDP 8,
/// base transport 12, XRC 4, atomic 28, checksum 4 (Linux, include/rdma/ib_addr.h, `iboe_get_mtu`).
const ROCE_OVERHEAD: u32 = 96;

/// Returns the path MTU of a RoCE port, in bytes, from its interface's MTU; `None` if not even the smallest path MTU
/// fits.
pub fn roce_mtu(netdev_mtu: u32) -> Option<u32> {
    let room = netdev_mtu.checked_sub(ROCE_OVERHEAD)?;
    PATH_MTUS.into_iter().find(|m| *m <= room)
}

/// A port as its files describe it. Unknown properties are `None`.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Port {
    /// Port number, from 1.
    pub number: u32,
    /// Logical state.
    pub state: Option<PortState>,
    /// State of the link.
    pub physical: Option<PhysicalState>,
    /// Link layer.
    pub link_layer: LinkLayer,
    /// Data rate.
    pub rate: Option<PortRate>,
    /// Local identifier (LID), on InfiniBand.
    pub lid: Option<u16>,
    /// Local identifier (LID) of the subnet manager, on InfiniBand.
    pub sm_lid: Option<u16>,
    /// Used entries of the GID table.
    pub gids: Vec<GidEntry>,
    /// The chosen source GID.
    pub gid: Option<GidChoice>,
    /// Network interface of the port: that of the chosen GID, else the device's own.
    pub netdev: Option<String>,
    /// MTU of that interface in bytes.
    pub netdev_mtu: Option<u32>,
    /// Traffic class that the driver forces on queue pairs.
    pub traffic_class: ClassOverride,
    /// Lossless priorities, and the mapping of code points to priorities.
    pub bridging: Option<Bridging>,
    /// Priorities with congestion control.
    pub congestion_control: Option<CongestionControl>,
    /// Counters of congestion control.
    pub congestion: CongestionCounters,
}

impl Port {
    /// Reads port `number` of `device`. `own_netdev` is the interface that the device itself names for the port.
    pub(super) fn read(sysfs: &Sysfs, device: &str, number: u32, own_netdev: Option<String>) -> Self {
        let folder = format!("/sys/class/infiniband/{device}/ports/{number}");
        let text = |name: &str| sysfs.text(format!("{folder}/{name}")).ok();
        // 0 stands for no identifier, 0xffff for one that InfiniBand does not assign. RoCE drivers show these values.
        let identifier = |name: &str| {
            let n = sysfs.number(format!("{folder}/{name}"))?;
            u16::try_from(n).ok().filter(|n| ![0, u16::MAX].contains(n))
        };
        let link_layer = match text("link_layer").as_deref() {
            Some("InfiniBand") => LinkLayer::InfiniBand,
            Some("Ethernet") => LinkLayer::Ethernet,
            _ => LinkLayer::Other,
        };
        let gids = GidEntry::table(sysfs, &folder);
        let gid = choose_gid(link_layer, &gids);
        let of_choice = gid.as_ref().and_then(|c| gids.iter().find(|e| e.index == c.index)?.netdev.clone());
        let netdev = of_choice.or(own_netdev);
        let about = |n: &String, file: &str| sysfs.number(format!("/sys/class/net/{n}/{file}"));
        Self {
            number,
            state: text("state").and_then(|t| PortState::parse(&t)),
            physical: text("phys_state").and_then(|t| PhysicalState::parse(&t)),
            link_layer,
            rate: text("rate").and_then(|t| PortRate::parse(&t)),
            lid: identifier("lid"),
            sm_lid: identifier("sm_lid"),
            netdev_mtu: netdev.as_ref().and_then(|n| about(n, "mtu")).and_then(|n| u32::try_from(n).ok()),
            traffic_class: ClassOverride::read(sysfs, device, number),
            bridging: netdev.as_ref().and_then(|n| Bridging::ask(sysfs, n)),
            congestion_control: netdev.as_ref().and_then(|n| CongestionControl::read(sysfs, n)),
            congestion: CongestionCounters::read(sysfs, &folder),
            gids,
            gid,
            netdev,
        }
    }

    /// Returns the priority of packets with the traffic class that the driver forces; `None` if the driver forces none.
    pub fn forced_priority(&self) -> Option<u8> {
        self.traffic_class.forced().map(|class| self.priority_of(class))
    }

    /// Returns the priority of packets with traffic class `class`.
    pub fn priority_of(&self, class: TrafficClass) -> u8 {
        self.bridging.as_ref().map_or(class.default_priority(), |b| b.priority_of(class))
    }

    /// Returns true if the port carries data.
    pub fn is_active(&self) -> bool {
        matches!(self.state, Some(PortState::Active | PortState::ActiveDefer))
    }

    /// Returns the path MTU that the port's interface allows, in bytes. `None` on InfiniBand: there the subnet manager
    /// sets it, and no file shows it.
    pub fn path_mtu(&self) -> Option<u32> {
        match self.link_layer {
            LinkLayer::Ethernet => roce_mtu(self.netdev_mtu?),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn states_are_read_by_their_numbers() {
        assert_eq!(PortState::parse("4: ACTIVE"), Some(PortState::Active));
        assert_eq!(PortState::parse("1: DOWN").unwrap().to_string(), "down");
        assert_eq!(PhysicalState::parse("5: LinkUp"), Some(PhysicalState::LinkUp));
        assert_eq!(PhysicalState::parse("3: Disabled").unwrap().to_string(), "disabled");
        for text in ["", "ACTIVE", "9: NEW", ": "] {
            assert_eq!((PortState::parse(text), PhysicalState::parse(text)), (None, None), "{text}");
        }
    }

    #[test]
    fn rates_keep_their_tenth() {
        let rate = |t: &str| PortRate::parse(t).map(|r| r.to_string());
        assert_eq!(rate("400 Gb/sec (4X NDR)").as_deref(), Some("400 Gb/s (4X NDR)"));
        assert_eq!(rate("2.5 Gb/sec (1X SDR)").as_deref(), Some("2.5 Gb/s (1X SDR)"));
        assert_eq!(rate("100 Gb/sec").as_deref(), Some("100 Gb/s"));
        for text in ["", "0 Gb/sec", "fast", "x Gb/sec", "1. Gb/sec", "1.\u{e9} Gb/sec"] {
            assert_eq!(PortRate::parse(text), None, "{text}");
        }
    }

    #[test]
    fn an_interface_of_1500_bytes_carries_1024() {
        assert_eq!(
            [1500, 4200, 9000, 4191, 352, 351, 0].map(roce_mtu),
            [Some(1024), Some(4096), Some(4096), Some(2048), Some(256), None, None]
        );
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".*|[0-9.]{0,12} Gb/sec.*|[0-9]{0,12}:.*") {
            let _ = (PortState::parse(&text), PhysicalState::parse(&text), PortRate::parse(&text).map(|r| r.to_string()));
        }

        #[test]
        fn a_path_mtu_fits_and_the_next_does_not(mtu in 0..70_000u32) {
            let path = roce_mtu(mtu);
            if let Some(path) = path {
                prop_assert!(path + ROCE_OVERHEAD <= mtu);
            }
            let next = PATH_MTUS.into_iter().rev().find(|m| path.is_none_or(|p| *m > p));
            prop_assert!(next.is_none_or(|n| n + ROCE_OVERHEAD > mtu));
        }
    }
}
