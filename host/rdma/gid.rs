//! Global identifiers (GIDs): a port's table of them, and the choice of the source GID.

use super::LinkLayer;
use crate::pci::Sysfs;
use serde::Serialize;
use std::cmp::Reverse;
use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

/// A global identifier (GID): 128 bits, written as an IPv6 address (InfiniBand Architecture 1.7, vol. 1, 4.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Gid(pub [u8; 16]);

/// Error: a text is not a GID.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a global identifier; write it like an IPv6 address, as in fe80::e42:a1ff:feb2:c3d4")]
pub struct ParseGidError(String);

impl FromStr for Gid {
    type Err = ParseGidError;

    /// Parses the kernel's form (eight groups of four digits) and every other form of an IPv6 address.
    ///
    /// # Errors
    /// [`ParseGidError`] if the text is not an IPv6 address.
    fn from_str(text: &str) -> Result<Self, ParseGidError> {
        text.parse::<Ipv6Addr>().map(|a| Self(a.octets())).map_err(|_| ParseGidError(text.to_owned()))
    }
}

impl fmt::Display for Gid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address().fmt(f)
    }
}

impl Serialize for Gid {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

/// Reach of packets that are sent from an address, the farthest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reachability {
    /// An IPv4-mapped address (`::ffff:192.168.0.2`): routed like any IPv4 packet.
    Ipv4,
    /// A routable IPv6 address.
    Ipv6,
    /// A link-local IPv6 address, derived from the hardware address: not routed.
    LinkLocal,
}

impl fmt::Display for Reachability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ipv4 => "IPv4-mapped",
            Self::Ipv6 => "IPv6",
            Self::LinkLocal => "link-local IPv6",
        })
    }
}

impl Gid {
    /// Returns the GID as an IPv6 address.
    pub fn address(self) -> Ipv6Addr {
        Ipv6Addr::from(self.0)
    }

    /// Returns true if the GID marks an unused table entry.
    pub fn is_empty(self) -> bool {
        self.0 == [0; 16] || self.is_bare_prefix()
    }

    /// Returns true for a subnet prefix without a port identifier. InfiniBand ports show it before they have an
    /// identifier.
    fn is_bare_prefix(self) -> bool {
        self.0[8..] == [0; 8]
    }

    /// Returns the reach of packets from this GID.
    pub fn reachability(self) -> Reachability {
        let address = self.address();
        if address.to_ipv4_mapped().is_some() {
            Reachability::Ipv4
        } else if address.is_unicast_link_local() {
            Reachability::LinkLocal
        } else {
            Reachability::Ipv6
        }
    }
}

/// Kind of packets that a table entry stands for, in the kernel's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum GidKind {
    /// `IB/RoCE v1`: InfiniBand packets, or Ethernet frames without an IP header, which no router forwards.
    #[serde(rename = "IB/RoCE v1")]
    InfiniBandOrRoceV1,
    /// `RoCE v2`: UDP packets.
    #[serde(rename = "RoCE v2")]
    RoceV2,
}

impl GidKind {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "IB/RoCE v1" => Some(Self::InfiniBandOrRoceV1),
            "RoCE v2" => Some(Self::RoceV2),
            _ => None,
        }
    }
}

/// One used entry of a port's GID table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GidEntry {
    /// Index by which queue pairs name the entry.
    pub index: u32,
    /// The GID.
    pub gid: Gid,
    /// Kind of packets; `None` if the kernel does not report it.
    pub kind: Option<GidKind>,
    /// Network interface of the entry, on Ethernet.
    pub netdev: Option<String>,
}

impl GidEntry {
    /// Reads the used entries of a port by index. `port` is a folder `/sys/class/infiniband/DEVICE/ports/PORT`.
    pub(super) fn table(sysfs: &Sysfs, port: &str) -> Vec<Self> {
        let mut indices: Vec<u32> = sysfs.names(format!("{port}/gids")).iter().filter_map(|n| n.parse().ok()).collect();
        indices.sort_unstable();
        let text = |name: &str, index: u32| sysfs.text(format!("{port}/{name}/{index}")).ok().filter(|t| !t.is_empty());
        let entry = |index| {
            let gid: Gid = text("gids", index)?.parse().ok()?;
            let kind = || GidKind::parse(&text("gid_attrs/types", index)?);
            let netdev = || text("gid_attrs/ndevs", index);
            (!gid.is_empty()).then(|| Self { index, gid, kind: kind(), netdev: netdev() })
        };
        indices.into_iter().filter_map(entry).collect()
    }
}

/// The chosen source GID, with the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GidChoice {
    /// Index in the table.
    pub index: u32,
    /// The GID.
    pub gid: Gid,
    /// Kind and reach of the GID, as the reason of the choice.
    pub reason: String,
    /// True if packets from the GID are routed: on Ethernet, with RoCE v2 and no link-local address; on other links,
    /// always.
    pub routed: bool,
}

/// Chooses the source GID from a port's table. Returns `None` if the table has no used entry.
///
/// On Ethernet, RoCE v2 precedes RoCE v1, which no router forwards. Then an IPv4 address precedes a routable IPv6
/// address, and that a link-local one: peers most often share IPv4. Then the lowest index wins. On other links the
/// lowest index wins, which on InfiniBand is the port's own GID.
pub fn choose_gid(layer: LinkLayer, table: &[GidEntry]) -> Option<GidChoice> {
    let used = || table.iter().filter(|e| !e.gid.is_empty());
    if layer != LinkLayer::Ethernet {
        let entry = used().min_by_key(|e| e.index)?;
        let reason = match layer {
            LinkLayer::InfiniBand => "the port's own",
            _ => "the first",
        };
        return Some(GidChoice { index: entry.index, gid: entry.gid, reason: reason.to_owned(), routed: true });
    }
    let rank = |e: &GidEntry| (Reverse(e.kind == Some(GidKind::RoceV2)), e.gid.reachability());
    let entry = used().min_by_key(|e| (rank(e), e.index))?;
    let reach = entry.gid.reachability();
    let kind = match entry.kind {
        Some(GidKind::RoceV2) => "RoCE v2",
        Some(GidKind::InfiniBandOrRoceV1) => "RoCE v1",
        None => "of unknown kind",
    };
    let such = used().filter(|e| rank(e) == rank(entry)).count();
    let first = if such > 1 { format!(", the first of {such} such") } else { String::new() };
    Some(GidChoice {
        index: entry.index,
        gid: entry.gid,
        reason: format!("{kind}, {reach}{first}"),
        routed: entry.kind == Some(GidKind::RoceV2) && reach != Reachability::LinkLocal,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pci::fixture::Fixture;
    use GidKind::{InfiniBandOrRoceV1 as V1, RoceV2 as V2};
    use proptest::prelude::*;

    fn entry(index: u32, gid: &str, kind: Option<GidKind>) -> GidEntry {
        GidEntry { index, gid: gid.parse().unwrap(), kind, netdev: None }
    }

    const LOCAL: &str = "fe80::e42:a1ff:feb2:c3d4";

    #[test]
    fn ethernet_takes_roce_v2_from_ipv4_first() {
        let table = [
            entry(0, LOCAL, Some(V1)),
            entry(1, LOCAL, Some(V2)),
            entry(2, "::ffff:192.168.0.2", Some(V1)),
            entry(3, "::ffff:192.168.0.2", Some(V2)),
            entry(4, "2001:db8::2", Some(V2)),
            entry(5, "::ffff:10.0.0.2", Some(V2)),
        ];
        let chosen = |n: usize| choose_gid(LinkLayer::Ethernet, &table[..n]).unwrap();
        let all = chosen(6);
        assert_eq!((all.index, all.routed), (3, true));
        assert_eq!(all.reason, "RoCE v2, IPv4-mapped, the first of 2 such");
        assert_eq!(chosen(5).reason, "RoCE v2, IPv4-mapped");
        assert_eq!(choose_gid(LinkLayer::Ethernet, &table[4..5]).unwrap().reason, "RoCE v2, IPv6");
        // A routable kind of packets precedes a routable address.
        let two = chosen(3);
        assert_eq!((two.index, two.reason.as_str(), two.routed), (1, "RoCE v2, link-local IPv6", false));
        let one = chosen(1);
        assert_eq!((one.index, one.reason.as_str(), one.routed), (0, "RoCE v1, link-local IPv6", false));
    }

    #[test]
    fn elsewhere_the_first_is_taken() {
        let table = [entry(1, "fec0::2", Some(V1)), entry(0, "fe80::1:2", Some(V1))];
        assert_eq!(choose_gid(LinkLayer::InfiniBand, &table).unwrap().index, 0);
        assert_eq!(choose_gid(LinkLayer::Other, &table[..1]).unwrap().reason, "the first");
        assert_eq!(choose_gid(LinkLayer::InfiniBand, &[]), None);
    }

    #[test]
    fn entries_that_are_not_in_use_are_left_out() {
        let tree = Fixture::new();
        let port = "/sys/class/infiniband/mlx5_0/ports/1";
        for (i, gid) in ["fe80:0000:0000:0000:0e42:a1ff:feb2:c3d4", "0000:0000:0000:0000:0000:ffff:c0a8:0002"]
            .into_iter()
            .enumerate()
        {
            tree.file(&format!("{port}/gids/{}", 9 + i), format!("{gid}\n"));
            tree.file(&format!("{port}/gid_attrs/types/{}", 9 + i), "RoCE v2\n");
        }
        tree.file(&format!("{port}/gid_attrs/ndevs/10"), "ens1\n");
        tree.file(&format!("{port}/gids/11"), "0000:0000:0000:0000:0000:0000:0000:0000\n");
        tree.file(&format!("{port}/gids/12"), "fe80:0000:0000:0000:0000:0000:0000:0000\n");
        tree.file(&format!("{port}/gids/13"), "nonsense\n");
        let table = GidEntry::table(&Sysfs::at(tree.root()), port);
        assert_eq!(table.iter().map(|e| e.index).collect::<Vec<_>>(), [9, 10], "by number, not by name");
        assert_eq!((table[0].kind, table[0].netdev.as_deref()), (Some(V2), None));
        assert_eq!(
            (table[1].gid.to_string().as_str(), table[1].netdev.as_deref()),
            ("::ffff:192.168.0.2", Some("ens1"))
        );
        assert!(GidEntry::table(&Sysfs::at("/nowhere"), port).is_empty());
    }

    #[test]
    fn what_is_no_identifier_is_refused_by_name() {
        let e = "192.168.0.2".parse::<Gid>().unwrap_err();
        assert!(e.to_string().contains("`192.168.0.2` is not a global identifier"), "{e}");
        assert_eq!(GidKind::parse("RoCE v3"), None);
    }

    fn any_entry() -> impl Strategy<Value = GidEntry> {
        let kinds = prop::sample::select(vec![None, Some(V1), Some(V2)]);
        let gids = prop_oneof![
            any::<[u8; 16]>(),
            any::<[u8; 4]>().prop_map(|b| std::net::Ipv4Addr::from(b).to_ipv6_mapped().octets()),
            any::<[u8; 8]>().prop_map(|b| {
                let mut gid = [0; 16];
                gid[..2].copy_from_slice(&[0xfe, 0x80]);
                gid[8..].copy_from_slice(&b);
                gid
            }),
            Just([0; 16]),
        ];
        (0..64u32, gids, kinds).prop_map(|(index, gid, kind)| GidEntry { index, gid: Gid(gid), kind, netdev: None })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(gid: [u8; 16]) {
            prop_assert_eq!(Gid(gid).to_string().parse::<Gid>(), Ok(Gid(gid)));
            let kernel = Gid(gid).address().segments().map(|s| format!("{s:04x}")).join(":");
            prop_assert_eq!(kernel.parse::<Gid>(), Ok(Gid(gid)));
        }

        #[test]
        fn no_text_panics(text: String) {
            let _ = text.parse::<Gid>();
        }

        /// The chosen entry is used, does not depend on the order of the table, and no entry is better.
        #[test]
        fn nothing_is_better_than_what_is_chosen(
            (table, other) in prop::collection::vec(any_entry(), 0..12).prop_flat_map(|t| (Just(t.clone()), Just(t).prop_shuffle())),
            ethernet: bool,
        ) {
            let layer = if ethernet { LinkLayer::Ethernet } else { LinkLayer::InfiniBand };
            let chosen = choose_gid(layer, &table);
            let keys = |c: &GidChoice| (c.index, c.routed, c.reason.clone());
            let again = choose_gid(layer, &other);
            let mut indices: Vec<_> = table.iter().map(|e| e.index).collect();
            indices.sort_unstable();
            indices.dedup();
            if indices.len() == table.len() {
                prop_assert_eq!(chosen.as_ref().map(keys), again.as_ref().map(keys));
            }
            let Some(chosen) = chosen else {
                prop_assert!(table.iter().all(|e| e.gid.is_empty()));
                return Ok(());
            };
            let entry = table.iter().find(|e| e.index == chosen.index && e.gid == chosen.gid).unwrap();
            prop_assert!(!entry.gid.is_empty());
            for e in table.iter().filter(|e| !e.gid.is_empty()) {
                if !ethernet {
                    prop_assert!(entry.index <= e.index);
                    continue;
                }
                prop_assert!(entry.kind == Some(V2) || e.kind != Some(V2), "v2 goes first");
                if (e.kind == Some(V2)) == (entry.kind == Some(V2)) {
                    prop_assert!(entry.gid.reachability() <= e.gid.reachability(), "IPv4 goes first");
                    if e.gid.reachability() == entry.gid.reachability() {
                        prop_assert!(entry.index <= e.index);
                    }
                }
            }
        }
    }
}
