//! Congestion control of RoCE ports (DCQCN): the priorities in which it is enabled, and its counters.

use crate::pci::Sysfs;
use serde::Serialize;
use std::fmt;

/// Number of Ethernet priorities (IEEE 802.1Q, 6.9.3).
pub const PRIORITIES: u8 = 8;

/// A set of priorities, one bit each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Priorities(pub u8);

impl Priorities {
    /// Returns the priorities of the set in ascending order.
    pub fn iter(self) -> impl Iterator<Item = u8> {
        (0..PRIORITIES).filter(move |p| self.contains(*p))
    }

    /// Returns true if the set contains `priority`.
    pub fn contains(self, priority: u8) -> bool {
        priority < PRIORITIES && self.0 >> priority & 1 == 1
    }

    /// Returns true if the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the intersection of both sets.
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl fmt::Display for Priorities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("no priority"),
            u8::MAX => f.write_str("all priorities"),
            _ => {
                let all: Vec<_> = self.iter().map(|p| p.to_string()).collect();
                write!(f, "priority {}", all.join(" "))
            }
        }
    }
}

impl Serialize for Priorities {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_seq(self.iter())
    }
}

/// Priorities with congestion control, as NVIDIA's driver packages show them under `/sys/class/net/NETDEV/ecn`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CongestionControl {
    /// Priorities in which the receiver sends a notification for each marked packet (notification point).
    pub notifies: Priorities,
    /// Priorities in which the sender slows down after a notification (reaction point).
    pub reacts: Priorities,
}

impl CongestionControl {
    /// Reads the priorities of interface `netdev`; `None` if the driver does not show them.
    pub fn read(sysfs: &Sysfs, netdev: &str) -> Option<Self> {
        let side = |side: &str| {
            let folder = format!("/sys/class/net/{netdev}/ecn/{side}/enable");
            let mut all = Priorities::default();
            let mut known = false;
            for priority in 0..PRIORITIES {
                let Some(on) = sysfs.number(format!("{folder}/{priority}")) else { continue };
                known = true;
                all.0 |= u8::from(on != 0) << priority;
            }
            known.then_some(all)
        };
        Some(Self { notifies: side("roce_np")?, reacts: side("roce_rp")? })
    }

    /// Returns the priorities in which both sides take part.
    pub fn complete(self) -> Priorities {
        self.notifies.and(self.reacts)
    }
}

/// Counters of congestion control since the driver was loaded. A counter that the port lacks is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CongestionCounters {
    /// Packets received with a congestion mark.
    pub marked: Option<u64>,
    /// Notifications sent.
    pub notified: Option<u64>,
    /// Notifications that slowed down a queue pair.
    pub slowed: Option<u64>,
}

impl CongestionCounters {
    /// Reads the counters from `port`, a folder `/sys/class/infiniband/DEVICE/ports/PORT`.
    pub(super) fn read(sysfs: &Sysfs, port: &str) -> Self {
        let number = |name: &str| sysfs.number(format!("{port}/hw_counters/{name}"));
        Self {
            marked: number("np_ecn_marked_roce_packets"),
            notified: number("np_cnp_sent"),
            slowed: number("rp_cnp_handled"),
        }
    }

    /// Returns true if any packet was marked, or any notification sent or handled.
    pub fn is_at_work(self) -> bool {
        [self.marked, self.notified, self.slowed].into_iter().flatten().any(|n| n > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pci::fixture::Fixture;
    use proptest::prelude::*;

    #[test]
    fn both_sides_are_read() {
        let tree = Fixture::new();
        let read = || CongestionControl::read(&Sysfs::at(tree.root()), "ens1");
        assert_eq!(read(), None);
        for (side, on) in [("roce_np", [1, 1, 1, 1, 1, 1, 1, 1]), ("roce_rp", [0, 0, 0, 1, 0, 1, 0, 0])] {
            for (priority, on) in on.iter().enumerate() {
                tree.file(&format!("/sys/class/net/ens1/ecn/{side}/enable/{priority}"), format!("{on}\n"));
            }
        }
        let c = read().unwrap();
        assert_eq!(
            (c.notifies.to_string().as_str(), c.reacts.to_string().as_str()),
            ("all priorities", "priority 3 5")
        );
        assert_eq!(c.complete(), Priorities(1 << 3 | 1 << 5));
        assert_eq!(Priorities(0).to_string(), "no priority");
    }

    #[test]
    fn counters_tell_work_from_silence() {
        let tree = Fixture::new();
        let port = "/sys/class/infiniband/mlx5_0/ports/1";
        let read = || CongestionCounters::read(&Sysfs::at(tree.root()), port);
        assert_eq!(read(), CongestionCounters::default());
        tree.file(&format!("{port}/hw_counters/np_cnp_sent"), "0\n");
        assert!(!read().is_at_work());
        tree.file(&format!("{port}/hw_counters/rp_cnp_handled"), "12\n");
        assert!(read().is_at_work());
    }

    proptest! {
        #[test]
        fn a_set_has_its_bits(bits: u8) {
            let back = Priorities(bits).iter().fold(0u8, |all, p| all | 1 << p);
            prop_assert_eq!(back, bits);
            prop_assert!(!Priorities(bits).contains(PRIORITIES));
        }
    }
}
