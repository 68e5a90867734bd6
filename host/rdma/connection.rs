//! Connection data that both sides of a reliable connection exchange, and the resulting queue pair attributes.

use super::{DeviceChoice, Gid, LinkLayer, QueueAddress, RdmaError, TrafficClass, choice::ACK_TIMEOUT};
use serde::{Deserialize, Serialize};
use std::fmt;

/// log2 of the longest message in bytes.
pub const LOG_LONGEST_MESSAGE: u8 = 30;
/// Delay of a sender whose receiver is not ready: 22 stands for 20.48 ms (InfiniBand Architecture 1.7, vol. 1,
/// 9.7.5.2.8).
pub const RNR_TIMER: u8 = 22;
/// Retransmissions before a peer counts as lost: the largest value of the field.
pub const RETRIES: u8 = 7;
/// Retries while the receiver is not ready: the largest finite value. 7 means forever. A queue pair that kernels drive
/// has no receives, so with 7 a message to it would never fail.
pub const RNR_RETRIES: u8 = 6;
/// Largest number of routers that a packet may pass.
pub const HOP_LIMIT: u8 = 64;
/// First UDP source port of RoCE v2. The low bits of the port spread queue pairs over network paths.
pub const UDP_SOURCE_FIRST: u16 = 0xc000;
/// Version of the [`Endpoint`] format.
const FORM: u8 = 2;

/// Path MTU in the encoding of its field: 1 to 5 for 256 to 4096 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PathMtu(u8);

impl PathMtu {
    /// Decodes the field; `None` if it is not 1 to 5.
    pub fn from_field(field: u32) -> Option<Self> {
        (1..=5).contains(&field).then_some(Self(field as u8))
    }

    /// Returns the value of the field.
    pub fn field(self) -> u8 {
        self.0
    }

    /// Returns the MTU in bytes.
    pub fn bytes(self) -> u32 {
        128 << self.0
    }
}

impl fmt::Display for PathMtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.bytes().fmt(f)
    }
}

/// Properties of a port that its queue pairs need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortFacts {
    /// Device and port: `mlx5_0 port 1`.
    pub name: String,
    /// Port number, from 1.
    pub port: u8,
    /// Link layer.
    pub link: LinkLayer,
    /// Largest path MTU at present.
    pub mtu: PathMtu,
    /// Local identifier (LID), on InfiniBand.
    pub lid: u16,
    /// True if packets must have a global route header (`IBV_QPF_GRH_REQUIRED`).
    pub route_header: bool,
    /// Source GID, and its index.
    pub gid: Option<(u8, Gid)>,
    /// True if packets from that GID are UDP packets (RoCE v2). Otherwise they are Ethernet frames (RoCE v1) or
    /// InfiniBand packets.
    pub udp: bool,
    /// Largest number of outstanding reads and atomics of a queue pair.
    pub reads_out: u8,
    /// Largest number of the peer's reads and atomics that a queue pair can hold.
    pub reads_in: u8,
}

/// Connection data of one end of a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Endpoint {
    form: u8,
    /// Queue pair number, 24 bits.
    pub number: u32,
    /// First packet sequence number that this end sends, 24 bits.
    pub psn: u32,
    /// True on Ethernet, false on InfiniBand.
    pub ethernet: bool,
    /// Local identifier (LID), on InfiniBand.
    pub lid: u16,
    /// Source GID.
    pub gid: Option<[u8; 16]>,
    /// True if this end sends UDP packets (RoCE v2).
    pub udp: bool,
    /// True if packets to this end must have a global route header.
    pub route_header: bool,
    /// Largest path MTU of this end.
    pub mtu: PathMtu,
    /// Largest number of this end's outstanding reads and atomics.
    pub reads_out: u8,
    /// Largest number of the other end's reads and atomics that this end can hold.
    pub reads_in: u8,
}

impl Endpoint {
    /// Creates the connection data of queue pair `number` on this port. `psn` is its first packet sequence number.
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

    /// Encodes the connection data as bytes for the peer.
    pub fn to_address(&self) -> QueueAddress {
        // Serialising a structure of numbers cannot fail.
        QueueAddress(serde_json::to_vec(self).unwrap_or_default())
    }

    /// Decodes the peer's bytes. `number` is this side's queue pair, for error messages.
    ///
    /// # Errors
    /// [`RdmaError::Connect`] if the bytes are no endpoint of this format version, or a value is out of range.
    pub fn from_address(address: &QueueAddress, number: u32) -> Result<Self, RdmaError> {
        let refuse = |reason: String| RdmaError::Connect { number, peer: "its peer".to_owned(), reason };
        let this: Self = serde_json::from_slice(&address.0).map_err(|e| {
            refuse(format!("its address is not that of an RDMA queue pair ({e}); use the same transport on both sides"))
        })?;
        if this.form != FORM {
            return Err(refuse(format!(
                "its address has format {}, and this side supports {FORM}: use the same warpbell on both sides",
                this.form
            )));
        }
        let most = crate::wire::mlx5::MAX_24;
        if this.number == 0 || this.number > most || this.psn > most || PathMtu::from_field(this.mtu.0.into()).is_none()
        {
            return Err(refuse(format!("its address has a value that is out of range: {this:?}")));
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

/// Attributes of a queue pair for one connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The peer's queue pair number.
    pub remote: u32,
    /// First packet sequence number to expect.
    pub receive_psn: u32,
    /// First packet sequence number to send.
    pub send_psn: u32,
    /// The smaller path MTU of both ends.
    pub mtu: PathMtu,
    /// This side's port number.
    pub port: u8,
    /// True on Ethernet, false on InfiniBand.
    pub ethernet: bool,
    /// The peer's local identifier (LID), on InfiniBand.
    pub lid: u16,
    /// Index of this side's GID, and the peer's GID, if packets have a global route header.
    pub global: Option<(u8, Gid)>,
    /// Traffic class; 0 if packets have no header that carries it.
    pub traffic_class: TrafficClass,
    /// InfiniBand service level, or Ethernet priority.
    pub service_level: u8,
    /// Largest number of this side's outstanding reads and atomics.
    pub reads_out: u8,
    /// Largest number of the peer's outstanding reads and atomics.
    pub reads_in: u8,
    /// Retransmission timer: 4.096 us * 2^n.
    pub ack_timeout: u8,
    /// UDP source port; 0 if packets are not UDP packets.
    pub udp_source: u16,
}

impl Route {
    /// Computes the attributes of a connection between this port's queue pair `own` and `peer`. `forced` is the traffic
    /// class that the driver forces on queue pairs. `priority` maps a traffic class to its priority.
    ///
    /// # Errors
    /// [`RdmaError::Connect`] if the two cannot reach each other: link layers or RoCE versions differ, or a GID is
    /// missing.
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
                "this side sends {}, the other {}; choose GIDs of the same kind on both (WARPBELL_RDMA_GID_INDEX)",
                word(port.udp),
                word(peer.udp)
            )));
        }
        let header = ethernet || port.route_header || peer.route_header || peer.lid == 0;
        let global = match (header, port.gid, peer.gid) {
            (false, ..) => None,
            (true, Some((index, _)), Some(gid)) => Some((index, Gid(gid))),
            (true, None, _) => return Err(refuse(format!("{} has no GID to send from", port.name))),
            (true, _, None) => return Err(refuse("the other side has no GID".to_owned())),
        };
        let traffic_class = match global {
            None => TrafficClass(0),
            Some(_) => choice.traffic_class.or(forced).unwrap_or(TrafficClass(0)),
        };
        let of_class = if ethernet && traffic_class.0 != 0 { priority(traffic_class) } else { 0 };
        // The field must not be 0 even if the other side takes no reads. Reads then fail with a syndrome.
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

/// Returns a UDP source port in RoCE v2's range. It is the same for both directions, and differs between queue pairs.
pub fn udp_source(a: u32, b: u32) -> u16 {
    let mixed = u64::from(a) * u64::from(b);
    let folded = (mixed ^ mixed >> 16 ^ mixed >> 32) as u16;
    UDP_SOURCE_FIRST | folded & !UDP_SOURCE_FIRST
}

/// Returns an unpredictable first packet sequence number of 24 random bits.
pub fn random_psn() -> u32 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    // The system seeds every state.
    RandomState::new().build_hasher().finish() as u32 & crate::wire::mlx5::MAX_24
}

/// Returns log2 of `reads`, rounded down, as the value of a field of 3 bits.
pub fn log_reads(reads: u8) -> u8 {
    reads.max(1).ilog2().min(7) as u8
}

/// Returns log2 of `reads`, rounded up, as the value of a field of 3 bits: the peer may have all of them outstanding.
pub fn log_reads_in(reads: u8) -> u8 {
    log_reads(reads.checked_next_power_of_two().unwrap_or(u8::MAX))
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
        assert!(text.contains("no GID"), "{text}");
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
        assert_eq!([0, 1, 2, 3, 15, 16, 17, 129, 255].map(log_reads_in), [0, 0, 1, 2, 4, 4, 5, 7, 7]);
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
