//! What both sides of a reliable connection tell each other, and the values that a queue pair is connected with.

use super::{DeviceChoice, Gid, LinkLayer, QueueAddress, RdmaError, TrafficClass, choice::ACK_TIMEOUT};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The longest message: two to the power of it.
pub const LOG_LONGEST_MESSAGE: u8 = 30;
/// Time that a sender waits for a receiver that is not ready: 20.48 ms (InfiniBand Architecture 1.7, vol. 1, 9.7.5.2.8).
pub const RNR_TIMER: u8 = 22;
/// Retransmissions before a peer counts as gone: the most that the field holds.
pub const RETRIES: u8 = 7;
/// Retries while the receiver is not ready: the most that end. 7 means for ever, and a queue pair that kernels drive has no receives, so
/// that a message for it would never fail.
pub const RNR_RETRIES: u8 = 6;
/// Routers that a packet may pass.
pub const HOP_LIMIT: u8 = 64;
/// First of the UDP source ports that RoCE v2 uses; the rest of the port spreads queue pairs over paths.
pub const UDP_SOURCE_FIRST: u16 = 0xc000;
/// Form of an [`Endpoint`] as bytes.
const FORM: u8 = 2;

/// Path MTU, as its field has it: 1 to 5 for 256 to 4096 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PathMtu(u8);

impl PathMtu {
    /// From the field; `None` if it is not 1 to 5.
    pub fn from_field(field: u32) -> Option<Self> {
        (1..=5).contains(&field).then_some(Self(field as u8))
    }

    /// As the field has it.
    pub fn field(self) -> u8 {
        self.0
    }

    /// Bytes.
    pub fn bytes(self) -> u32 {
        128 << self.0
    }
}

impl fmt::Display for PathMtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes().fmt(f)
    }
}

/// What a port is like for its queue pairs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortFacts {
    /// `mlx5_0 port 1`.
    pub name: String,
    /// Number, from 1.
    pub port: u8,
    /// What it travels on.
    pub link: LinkLayer,
    /// Largest path MTU now.
    pub mtu: PathMtu,
    /// Local identifier, on InfiniBand.
    pub lid: u16,
    /// Packets must have a global route header (`IBV_QPF_GRH_REQUIRED`).
    pub route_header: bool,
    /// Identifier to send from, and its index.
    pub gid: Option<(u8, Gid)>,
    /// Packets from that identifier are UDP's (RoCE v2); else they are Ethernet frames (RoCE v1) or InfiniBand's.
    pub udp: bool,
    /// Reads and atomics that a queue pair may have outstanding.
    pub reads_out: u8,
    /// Reads and atomics of its peer that a queue pair can hold.
    pub reads_in: u8,
}

/// One end of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    form: u8,
    /// Queue pair, 24 bits.
    pub number: u32,
    /// First packet number that it sends, 24 bits.
    pub psn: u32,
    /// On Ethernet.
    pub ethernet: bool,
    /// Local identifier, on InfiniBand.
    pub lid: u16,
    /// Identifier that it sends from.
    pub gid: Option<[u8; 16]>,
    /// It sends UDP packets.
    pub udp: bool,
    /// Packets to it must have a global route header.
    pub route_header: bool,
    /// Its largest path MTU.
    pub mtu: PathMtu,
    /// Reads and atomics that it may have outstanding.
    pub reads_out: u8,
    /// Reads and atomics of the other side that it can hold.
    pub reads_in: u8,
}

impl Endpoint {
    /// The end with this number, on this port.
    pub fn new(port: &PortFacts, number: u32, psn: u32) -> Self {
        Self {
            form: FORM,
            number,
            psn,
            ethernet: port.link == LinkLayer::Ethernet,
            lid: port.lid,
            gid: port.gid.map(|(_, gid)| gid.0),
            udp: port.udp,
            route_header: port.route_header,
            mtu: port.mtu,
            reads_out: port.reads_out,
            reads_in: port.reads_in,
        }
    }

    /// As bytes to hand over.
    pub fn to_address(&self) -> QueueAddress {
        // A structure of numbers always becomes text.
        QueueAddress(serde_json::to_vec(self).unwrap_or_default())
    }

    /// From the other side's bytes, for this queue pair.
    ///
    /// # Errors
    /// When they are no endpoint of a reliable connection.
    pub fn from_address(address: &QueueAddress, number: u32) -> Result<Self, RdmaError> {
        let refuse = |reason: String| RdmaError::Connect { number, peer: "its peer".to_owned(), reason };
        let this: Self = serde_json::from_slice(&address.0).map_err(|e| {
            refuse(format!(
                "its address is not that of a queue pair of an RDMA device ({e}); do both sides use the same transport?"
            ))
        })?;
        if this.form != FORM {
            return Err(refuse(format!("its address has form {}, this side knows {FORM}: use one version", this.form)));
        }
        let most = crate::wire::mlx5::MAX_24;
        if this.number == 0 || this.number > most || this.psn > most || PathMtu::from_field(this.mtu.0.into()).is_none()
        {
            return Err(refuse(format!("its address makes no sense: {this:?}")));
        }
        Ok(this)
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "queue pair {:#x} at ", self.number)?;
        match self.gid {
            Some(gid) if self.ethernet || self.lid == 0 => Gid(gid).fmt(f),
            _ => write!(f, "LID {}", self.lid),
        }
    }
}

/// What a queue pair is connected with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The other queue pair.
    pub remote: u32,
    /// First packet number to expect.
    pub receive_psn: u32,
    /// First packet number to send.
    pub send_psn: u32,
    /// The smaller of both.
    pub mtu: PathMtu,
    /// This side's port.
    pub port: u8,
    /// On Ethernet.
    pub ethernet: bool,
    /// The peer's local identifier, on InfiniBand.
    pub lid: u16,
    /// Index of this side's identifier, and the peer's, where packets have a global route header.
    pub global: Option<(u8, Gid)>,
    /// Traffic class; 0 where there is no header to put it into.
    pub traffic_class: TrafficClass,
    /// Service level, or priority on Ethernet.
    pub service_level: u8,
    /// Reads and atomics of this side that may be outstanding.
    pub reads_out: u8,
    /// Reads and atomics of the other side that may be.
    pub reads_in: u8,
    /// Retransmission timer.
    pub ack_timeout: u8,
    /// UDP source port; 0 where packets are not UDP's.
    pub udp_source: u16,
}

impl Route {
    /// The values for a connection between a queue pair of this port and its peer. `forced` is the traffic class that the driver forces on
    /// others, `priority` the priority that a class gets.
    ///
    /// # Errors
    /// When the two cannot reach each other.
    pub fn between(
        port: &PortFacts,
        own: &Endpoint,
        peer: &Endpoint,
        choice: &DeviceChoice,
        forced: Option<TrafficClass>,
        priority: impl Fn(TrafficClass) -> u8,
    ) -> Result<Self, RdmaError> {
        let refuse = |reason: String| RdmaError::Connect { number: own.number, peer: peer.to_string(), reason };
        let ethernet = port.link == LinkLayer::Ethernet;
        if ethernet != peer.ethernet {
            let word = |e| if e { "Ethernet" } else { "InfiniBand" };
            return Err(refuse(format!("this side is on {}, the other on {}", word(ethernet), word(peer.ethernet))));
        }
        if ethernet && port.udp != peer.udp {
            let word = |udp| if udp { "RoCE v2" } else { "RoCE v1" };
            return Err(refuse(format!(
                "this side sends {}, the other {}; name an identifier of one kind on both (WARPBELL_RDMA_GID_INDEX)",
                word(port.udp),
                word(peer.udp)
            )));
        }
        let header = ethernet || port.route_header || peer.route_header || peer.lid == 0;
        let global = match (header, port.gid, peer.gid) {
            (false, ..) => None,
            (true, Some((index, _)), Some(gid)) => Some((index, Gid(gid))),
            (true, None, _) => return Err(refuse(format!("{} has no identifier (GID) to send from", port.name))),
            (true, _, None) => return Err(refuse("the other side has no identifier (GID)".to_owned())),
        };
        let traffic_class = match global {
            None => TrafficClass(0),
            Some(_) => choice.traffic_class.or(forced).unwrap_or(TrafficClass(0)),
        };
        let of_class = if ethernet && traffic_class.0 != 0 { priority(traffic_class) } else { 0 };
        // One that takes none of the other's reads still needs a field that is not 0: reads then fail with a syndrome.
        let depth = |a: u8, b: u8| a.min(b).max(1);
        Ok(Self {
            remote: peer.number,
            receive_psn: peer.psn,
            send_psn: own.psn,
            mtu: own.mtu.min(peer.mtu),
            port: port.port,
            ethernet,
            lid: if ethernet { 0 } else { peer.lid },
            global,
            traffic_class,
            service_level: choice.service_level.unwrap_or(of_class),
            reads_out: depth(port.reads_out, peer.reads_in),
            reads_in: depth(port.reads_in, peer.reads_out),
            ack_timeout: choice.ack_timeout.unwrap_or(ACK_TIMEOUT),
            udp_source: if ethernet && port.udp { udp_source(own.number, peer.number) } else { 0 },
        })
    }
}

/// A port of the range that RoCE v2 uses, the same for both directions, that differs between queue pairs.
fn udp_source(a: u32, b: u32) -> u16 {
    let mixed = u64::from(a) * u64::from(b);
    let folded = (mixed ^ mixed >> 16 ^ mixed >> 32) as u16;
    UDP_SOURCE_FIRST | folded & !UDP_SOURCE_FIRST
}

/// A first packet number that others cannot guess: 24 random bits.
pub fn random_psn() -> u32 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    // Every state is seeded by the system.
    RandomState::new().build_hasher().finish() as u32 & crate::wire::mlx5::MAX_24
}

/// The part of a log2 field of 3 bits that holds so many reads.
pub fn log_reads(reads: u8) -> u8 {
    reads.max(1).ilog2().min(7) as u8
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;

    pub(crate) fn roce(number: u32) -> (PortFacts, Endpoint) {
        let gid: Gid = format!("::ffff:10.0.0.{number}").parse().unwrap();
        let port = PortFacts {
            name: "mlx5_0 port 1".to_owned(),
            port: 1,
            link: LinkLayer::Ethernet,
            mtu: PathMtu(5),
            lid: 0,
            route_header: false,
            gid: Some((3, gid)),
            udp: true,
            reads_out: 16,
            reads_in: 16,
        };
        let end = Endpoint::new(&port, 0x100 + number, 0xab_cdef);
        (port, end)
    }

    fn infiniband(lid: u16) -> (PortFacts, Endpoint) {
        let (port, _) = roce(1);
        let port = PortFacts { link: LinkLayer::InfiniBand, lid, udp: false, ..port };
        let end = Endpoint::new(&port, 0x200 + u32::from(lid), 1);
        (port, end)
    }

    fn between(a: &(PortFacts, Endpoint), b: &Endpoint, choice: &DeviceChoice) -> Result<Route, RdmaError> {
        Route::between(&a.0, &a.1, b, choice, Some(TrafficClass(106)), |c| c.default_priority())
    }

    #[test]
    fn roce_goes_by_gid_and_class() {
        let (a, mut b) = (roce(1), roce(2).1);
        b.mtu = PathMtu(3);
        b.reads_in = 4;
        let r = between(&a, &b, &DeviceChoice::default()).unwrap();
        assert_eq!((r.mtu.bytes(), r.lid, r.reads_out, r.reads_in), (1024, 0, 4, 16));
        assert_eq!(r.global, Some((3, "::ffff:10.0.0.2".parse().unwrap())));
        assert_eq!((r.traffic_class, r.service_level, r.ack_timeout), (TrafficClass(106), 3, 16));
        assert!(r.udp_source >= 0xc000);
        let choice = DeviceChoice { traffic_class: Some(TrafficClass(8)), ack_timeout: Some(14), ..Default::default() };
        let r = between(&a, &b, &choice).unwrap();
        assert_eq!((r.traffic_class, r.service_level, r.ack_timeout), (TrafficClass(8), 0, 14));
    }

    #[test]
    fn roce_v1_has_no_udp_port_and_reaches_no_roce_v2() {
        let ((mut a, own), mut b) = (roce(1), roce(2).1);
        a.udp = false;
        let between = |a: &PortFacts, b: &Endpoint| {
            Route::between(a, &own, b, &DeviceChoice::default(), None, |c| c.default_priority())
        };
        let text = between(&a, &b).unwrap_err().to_string();
        assert!(text.contains("this side sends RoCE v1, the other RoCE v2"), "{text}");
        b.udp = false;
        assert_eq!(between(&a, &b).unwrap().udp_source, 0);
    }

    #[test]
    fn infiniband_goes_by_lid_and_has_a_header_only_where_it_must() {
        let (a, b) = (infiniband(4), infiniband(5).1);
        let r = between(&a, &b, &DeviceChoice::default()).unwrap();
        assert_eq!((r.lid, r.global, r.traffic_class, r.udp_source), (5, None, TrafficClass(0), 0));
        let b = Endpoint { route_header: true, ..b };
        let r = between(&a, &b, &DeviceChoice::default()).unwrap();
        assert!(r.global.is_some() && r.traffic_class == TrafficClass(106));
        let text = between(&a, &Endpoint { gid: None, ..b }, &DeviceChoice::default()).unwrap_err().to_string();
        assert!(text.contains("no identifier"), "{text}");
    }

    #[test]
    fn what_cannot_be_connected_is_named() {
        let text = between(&roce(1), &infiniband(5).1, &DeviceChoice::default()).unwrap_err().to_string();
        assert!(text.contains("this side is on Ethernet, the other on InfiniBand"), "{text}");
        for bytes in [&b"{}"[..], b"", b"\xff"] {
            let e = Endpoint::from_address(&QueueAddress(bytes.to_vec()), 7).unwrap_err().to_string();
            assert!(e.contains("same transport"), "{e}");
        }
        let (_, end) = roce(1);
        assert_eq!(Endpoint::from_address(&end.to_address(), 7).unwrap(), end);
        for wrong in [
            Endpoint { form: FORM + 1, ..end.clone() },
            Endpoint { number: 0, ..end.clone() },
            Endpoint { psn: 1 << 24, ..end.clone() },
            Endpoint { mtu: PathMtu(6), ..end.clone() },
        ] {
            assert!(Endpoint::from_address(&wrong.to_address(), 7).is_err());
        }
    }

    #[test]
    fn depths_fit_their_field() {
        assert_eq!([0, 1, 2, 15, 16, 128, 255].map(log_reads), [0, 0, 1, 3, 4, 7, 7]);
        assert_eq!((PathMtu::from_field(0), PathMtu::from_field(6)), (None, None));
    }

    proptest! {
        #[test]
        fn both_directions_take_one_path(a in 1u32..1 << 24, b in 1u32..1 << 24) {
            prop_assert_eq!(udp_source(a, b), udp_source(b, a));
            prop_assert!(udp_source(a, b) >= UDP_SOURCE_FIRST);
        }

        #[test]
        fn no_address_panics(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = Endpoint::from_address(&QueueAddress(bytes), 1);
        }
    }
}
