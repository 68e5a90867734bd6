//! Fixtures of RDMA devices for tests, laid out like the kernel drivers' files.

use crate::pci::fixture::{Config, Device, Fixture};

/// Contents of a port's files.
#[derive(Clone, Debug)]
pub struct Link {
    state: &'static str,
    physical: &'static str,
    layer: &'static str,
    rate: &'static str,
    lid: u32,
    netdev: Option<&'static str>,
    mtu: u32,
    /// GIDs with their kinds, by index.
    gids: Vec<(String, &'static str)>,
}

const NO_GID: &str = "0000:0000:0000:0000:0000:0000:0000:0000";
const LOCAL: &str = "fe80:0000:0000:0000:0e42:a1ff:feb2:c3d4";
const V1: &str = "IB/RoCE v1";
const V2: &str = "RoCE v2";

fn mapped(ipv4: &str) -> String {
    let address: std::net::Ipv4Addr = ipv4.parse().unwrap();
    address.to_ipv6_mapped().segments().map(|s| format!("{s:04x}")).join(":")
}

impl Link {
    /// Creates an active InfiniBand port of 400 Gb/s.
    pub fn infiniband() -> Self {
        Self {
            state: "4: ACTIVE",
            physical: "5: LinkUp",
            layer: "InfiniBand",
            rate: "400 Gb/sec (4X NDR)",
            lid: 0x11,
            netdev: None,
            mtu: 0,
            gids: vec![(LOCAL.to_owned(), V1)],
        }
    }

    /// Creates an active RoCE port of 100 Gb/s whose interface has an IPv4 address. Each GID appears in both kinds.
    pub fn roce(netdev: &'static str, ipv4: &str) -> Self {
        let four = mapped(ipv4);
        Self {
            layer: "Ethernet",
            rate: "100 Gb/sec (4X EDR)",
            lid: 0,
            netdev: Some(netdev),
            mtu: 9000,
            gids: vec![(LOCAL.into(), V1), (LOCAL.into(), V2), (four.clone(), V1), (four, V2)],
            ..Self::infiniband()
        }
    }

    /// Creates a RoCE port that is down.
    pub fn down(netdev: &'static str) -> Self {
        Self {
            state: "1: DOWN",
            physical: "3: Disabled",
            rate: "40 Gb/sec (4X QDR)",
            gids: Vec::new(),
            mtu: 1500,
            ..Self::roce(netdev, "0.0.0.0")
        }
    }

    /// Creates a port of Soft-RoCE on an interface of the usual MTU, with RoCE v2 only.
    pub fn soft(netdev: &'static str, ipv4: &str) -> Self {
        Self {
            rate: "2.5 Gb/sec (1X SDR)",
            mtu: 1500,
            gids: vec![(LOCAL.into(), V2), (mapped(ipv4), V2)],
            ..Self::roce(netdev, ipv4)
        }
    }

    /// Creates a port with an unknown link layer.
    pub fn unknown_layer() -> Self {
        Self { layer: "Unknown", rate: "100 Gb/sec (4X EDR)", lid: 0, ..Self::infiniband() }
    }

    /// Sets the logical and the physical state.
    pub fn state(mut self, state: &'static str, physical: &'static str) -> Self {
        (self.state, self.physical) = (state, physical);
        self
    }

    /// Sets the MTU of the interface.
    pub fn mtu(mut self, mtu: u32) -> Self {
        self.mtu = mtu;
        self
    }

    /// Removes the GIDs from index `n` on.
    pub fn gids(mut self, n: usize) -> Self {
        self.gids.truncate(n);
        self
    }
}

/// An RDMA device.
#[derive(Clone, Debug)]
pub struct Nic {
    name: &'static str,
    place: Option<String>,
    pci: Device,
    firmware: &'static str,
    board: Option<&'static str>,
    node: u32,
    node_mode: Option<u32>,
    links: Vec<Link>,
    traffic_class: Option<&'static str>,
    ecn: Option<(u8, u8)>,
}

impl Nic {
    /// Creates a ConnectX-7 with an InfiniBand port.
    pub fn connectx7(name: &'static str) -> Self {
        let pci = Device {
            id: (0x15b3, 0x1021),
            class: 0x02_07_00,
            driver: Some("mlx5_core"),
            node: Some(0),
            link: Some(("32.0", 16, "32.0", 16)),
            bars: &[32 << 20],
            config: Some(Config::default()),
            ..Device::default()
        };
        Self {
            name,
            place: None,
            pci,
            firmware: "28.39.1002",
            board: Some("MT_0000000838"),
            node: 0,
            node_mode: Some(0o666),
            links: vec![Link::infiniband()],
            traffic_class: None,
            ecn: None,
        }
    }

    /// Creates a ConnectX-6 Dx without ports.
    pub fn connectx6dx(name: &'static str) -> Self {
        let this = Self::connectx7(name);
        let link = Some(("16.0", 16, "16.0", 16));
        let pci = Device { id: (0x15b3, 0x101d), class: 0x02_00_00, link, ..this.pci };
        Self { pci, firmware: "22.41.1000", board: Some("MT_0000000359"), links: Vec::new(), ..this }
    }

    /// Creates a Soft-RoCE device without ports.
    pub fn soft_roce(name: &'static str) -> Self {
        Self { firmware: "", board: None, links: Vec::new(), ..Self::connectx7(name) }
    }

    /// Creates Amazon's adapter: not mlx5, unknown link layer.
    pub fn efa(name: &'static str) -> Self {
        let this = Self::connectx7(name);
        let pci = Device { id: (0x1d0f, 0xefa1), class: 0x02_00_00, driver: Some("efa"), link: None, ..this.pci };
        Self { pci, firmware: "0.0.0.0", board: None, links: vec![Link::unknown_layer()], ..this }
    }

    /// Sets the place below `/sys/devices`.
    pub fn place(mut self, place: &str) -> Self {
        self.place = Some(place.to_owned());
        self
    }

    /// Sets the NUMA node and the IOMMU group.
    pub fn on(mut self, numa: u32, group: Option<u32>) -> Self {
        (self.pci.node, self.pci.group) = (Some(numa), group);
        self
    }

    /// Sets the number and the mode of the node under `/dev/infiniband`. Without a mode there is no node.
    pub fn node(mut self, number: u32, mode: Option<u32>) -> Self {
        (self.node, self.node_mode) = (number, mode);
        self
    }

    /// Adds a port. The first one replaces the default InfiniBand port.
    pub fn link(mut self, link: Link) -> Self {
        if self.links.iter().any(|l| l.layer == "InfiniBand") {
            self.links.clear();
        }
        self.links.push(link);
        self
    }

    /// Adds a traffic class file to each port.
    pub fn traffic_class(mut self, text: &'static str) -> Self {
        self.traffic_class = Some(text);
        self
    }

    /// Enables congestion control in these priorities: notifying, reacting.
    pub fn ecn(mut self, notifies: u8, reacts: u8) -> Self {
        self.ecn = Some((notifies, reacts));
        self
    }

    /// Writes the files.
    pub fn build(self, tree: &Fixture) {
        let name = self.name;
        let parent = match &self.place {
            Some(place) => {
                tree.pci(place, &self.pci);
                format!("/sys/devices/{place}")
            }
            None => "/sys/devices/virtual".to_owned(),
        };
        let at = format!("{parent}/infiniband/{name}");
        tree.folder(&at).link(&format!("/sys/class/infiniband/{name}"), &at);
        if self.place.is_some() {
            tree.link(&format!("{at}/device"), &parent);
        } else if let Some(netdev) = self.links.first().and_then(|l| l.netdev) {
            tree.file(&format!("{at}/parent"), format!("{netdev}\n"));
        }
        tree.file(&format!("{at}/fw_ver"), format!("{}\n", self.firmware));
        tree.file(&format!("{at}/node_guid"), "0c42:a103:00b2:c3d4\n");
        if let Some(board) = self.board {
            tree.file(&format!("{at}/board_id"), format!("{board}\n"));
        }
        tree.file(&format!("/sys/class/infiniband_verbs/uverbs{}/ibdev", self.node), format!("{name}\n"));
        if let Some(mode) = self.node_mode {
            tree.node(&format!("/dev/infiniband/uverbs{}", self.node), mode);
        }
        for (i, link) in self.links.iter().enumerate() {
            let port = format!("{at}/ports/{}", i + 1);
            let file = |name: &str, text: &str| {
                tree.file(&format!("{port}/{name}"), format!("{text}\n"));
            };
            file("state", link.state);
            file("phys_state", link.physical);
            file("link_layer", link.layer);
            file("rate", link.rate);
            file("lid", &format!("{:#x}", link.lid));
            file("sm_lid", if link.lid > 0 { "0x1" } else { "0x0" });
            // The table has unused entries behind the used ones.
            for index in 0..link.gids.len() + 2 {
                let entry = link.gids.get(index);
                file(&format!("gids/{index}"), entry.map_or(NO_GID, |(gid, _)| gid));
                if let Some((_, kind)) = entry {
                    file(&format!("gid_attrs/types/{index}"), kind);
                    if let Some(netdev) = link.netdev {
                        file(&format!("gid_attrs/ndevs/{index}"), netdev);
                    }
                }
            }
            if let Some(text) = self.traffic_class {
                tree.file(&format!("{at}/tc/{}/traffic_class", i + 1), text);
            }
            let Some(netdev) = link.netdev else { continue };
            tree.file(&format!("/sys/class/net/{netdev}/mtu"), format!("{}\n", link.mtu));
            if self.place.is_some() {
                tree.file(&format!("{parent}/net/{netdev}/dev_port"), format!("{i}\n"));
            }
            if let Some((notifies, reacts)) = self.ecn {
                for priority in 0..8 {
                    for (side, on) in [("roce_np", notifies), ("roce_rp", reacts)] {
                        let file = format!("/sys/class/net/{netdev}/ecn/{side}/enable/{priority}");
                        tree.file(&file, format!("{}\n", on >> priority & 1));
                    }
                }
            }
        }
    }
}
