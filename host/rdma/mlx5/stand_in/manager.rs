//! Connection manager of a stand-in: it connects to targets of software NICs, and tells routes as rdma-core's does.

use super::rings::{KEY, Wire, watched};
use crate::rdma::{
    Adapter, ConnectError, Connection, ConnectionManager, Destination, DeviceChoice, Gid, PathMtu, QueueAddress,
    QueuePair, QueueRings, RdmaError, Route, TrafficClass,
};
use crate::soft::nic::SoftConnectionManager;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Creates a NIC and its connection manager for connections to a software target.
pub(crate) fn manager(choice: &DeviceChoice) -> Arc<dyn ConnectionManager> {
    let nic = watched(choice, "threads=1");
    let wire = nic.wire.clone();
    Arc::new(Manager { inner: SoftConnectionManager::of(Arc::new(nic), KEY), wire })
}

#[derive(Debug)]
struct Manager {
    inner: SoftConnectionManager,
    wire: Arc<Wire>,
}

impl ConnectionManager for Manager {
    fn adapter(&self) -> &Arc<dyn Adapter> {
        self.inner.adapter()
    }

    fn connect(
        &self,
        to: Destination<'_>,
        queue: &mut dyn QueuePair,
        private: &[u8],
        limit: Duration,
    ) -> Result<(Box<dyn Connection>, Vec<u8>), ConnectError> {
        self.inner.connect(to, &mut WireQueuePair { queue, wire: &self.wire }, private, limit)
    }
}

/// A queue pair of the stand-in, as software NICs see it.
#[derive(Debug)]
struct WireQueuePair<'a> {
    queue: &'a mut dyn QueuePair,
    wire: &'a Wire,
}

impl QueuePair for WireQueuePair<'_> {
    fn number(&self) -> u32 {
        self.queue.number()
    }
    fn address(&self) -> QueueAddress {
        self.wire.address(self.number()).expect("the software NIC has the queue pair")
    }
    fn connect(&mut self, peer: &QueueAddress) -> Result<(), RdmaError> {
        static NUMBERS: AtomicU32 = AtomicU32::new(1);
        let remote = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let gid = "::ffff:10.255.0.1".parse::<Gid>().expect("an identifier");
        Wire::announce(gid, remote, peer.clone());
        self.queue.connect_along(&Route {
            remote,
            receive_psn: 0x11_1111,
            send_psn: 0x22_2222,
            mtu: PathMtu::from_field(5).expect("an MTU"),
            port: 1,
            ethernet: true,
            lid: 0,
            global: Some((3, gid)),
            traffic_class: TrafficClass(0),
            service_level: 0,
            reads_out: 0,
            reads_in: 16,
            ack_timeout: 18,
            udp_source: 0,
        })
    }
    fn memory(&self) -> &QueueRings {
        self.queue.memory()
    }
    fn flags(&self) -> u32 {
        self.queue.flags()
    }
    fn failure(&self) -> Option<String> {
        self.queue.failure()
    }
    fn reset(&mut self) -> Result<(), RdmaError> {
        self.queue.reset()
    }
}
