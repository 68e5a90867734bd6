//! Tests of RDMA alone: connection requests, keys, capsules of a wrong length, descriptors of another transport.

use super::*;
use crate::memory::{Place, Space};
use crate::nvme::fabrics::{FabricsError, FabricsTransport};
use crate::rdma::{
    ConnectError, Connection, ConnectionManager, CpuReceiveQueue, CpuSendQueue, Destination, PostRequests, QueuePlan,
    ReceivePlan, Registration, Rights,
};
use crate::soft::nic::SoftConnectionManager;
use crate::wire::mlx5::segment::DataSegment;
use crate::wire::mlx5::wqe::SendWith;
use crate::wire::mlx5::{Operation, Payload};
use crate::wire::nvme::fabrics::{ANY_CONTROLLER, Connect, ConnectData, descriptor, sgl};
use crate::wire::nvme::rdma::{self, Request, keyed, reject};
use crate::wire::nvme::{CqEntry, SqEntry, status};

/// A host that makes mistakes: one queue pair, which the test drives. Fields are dropped in order.
struct Hostile {
    send: CpuSendQueue,
    receives: CpuReceiveQueue,
    connection: Box<dyn Connection>,
    keys: Box<dyn Registration>,
    memory: crate::memory::Region,
    _manager: SoftConnectionManager,
}

fn request(queue: u16, entries: u32) -> Request {
    Request { queue, receives: entries as u16, entries, controller: 0 }
}

fn dial(e: &Exported, private: &[u8]) -> Result<Hostile, ConnectError> {
    let manager = SoftConnectionManager::new(|c| c).unwrap();
    let memory = Space::cpu().allocate(Place::Host, 64 << 10).unwrap();
    let keys = manager.adapter().register_region(&memory, Rights::ALL).unwrap();
    let receives = ReceivePlan { log_slots: 4, log_stride: 0, data_in_entries: true };
    let plan = QueuePlan::new(Space::cpu(), Place::Host).receives(Some(receives));
    let mut queue = manager.adapter().create(plan).unwrap();
    let mut receives = CpuReceiveQueue::new(&*queue).unwrap();
    for i in 0..16 {
        receives.post(&[DataSegment::new(memory.address() + i * 16, keys.local_key(), 16)]).unwrap();
    }
    let to = Destination { host: "127.0.0.1", port: e.target().address().port() };
    let (connection, told) = manager.connect(to, &mut *queue, private, GENEROUS)?;
    assert!(rdma::accepted(&told).is_some_and(|n| n > 0), "{told:?}");
    let send = CpuSendQueue::new(queue).unwrap();
    Ok(Hostile { send, receives, connection, keys, memory, _manager: manager })
}

impl Hostile {
    /// Sends a capsule.
    fn send(&mut self, bytes: &[u8]) {
        self.memory.write(4096, bytes).unwrap();
        let piece = [DataSegment::new(self.memory.address() + 4096, self.keys.local_key(), bytes.len() as u32)];
        let send = Operation::Send { payload: Payload::Pieces(&piece), with: SendWith::Nothing };
        self.send.post(send, true).unwrap();
        self.send.ring();
    }

    /// Waits for the next response, or for the failure of the queue pair.
    fn response(&mut self) -> Result<CqEntry, String> {
        let started = Instant::now();
        loop {
            let polled = self.receives.poll().map_err(|e| e.to_string())?;
            if let Some(m) = polled {
                assert_eq!(m.bytes, 16);
                // The NIC puts the response into the completion entry.
                return Ok(bytemuck::pod_read_unaligned(&m.in_entry.unwrap()[..16]));
            }
            if let Err(e) = self.send.poll() {
                return Err(e.to_string());
            }
            if let Some(reason) = self.connection.ended() {
                return Err(reason);
            }
            assert!(started.elapsed() < GENEROUS, "neither a response nor a failure");
            std::thread::yield_now();
        }
    }

    /// Returns a keyed data block for `bytes` bytes of this host's memory.
    fn block(&self, bytes: u32, flip: u32) -> (u64, u64) {
        keyed(self.memory.address() + 8192, bytes, self.keys.remote_key() ^ flip)
    }

    /// Sends Connect for a queue.
    fn connect(&mut self, queue: u16, entries: u32, flip: u32) -> Result<CqEntry, String> {
        let data = ConnectData {
            host_id: [7; 16],
            controller: ANY_CONTROLLER,
            subsystem: NQN.to_owned(),
            host: "nqn.2014-08.org.nvmexpress:uuid:1".to_owned(),
        };
        self.memory.write(8192, &data.bytes()).unwrap();
        let connect = Connect { queue, entries, attributes: 0, keep_alive_ms: 0 };
        let mut e = connect.entry();
        e.cdw0 |= crate::wire::nvme::fabrics::SGL_IN_USE | 3 << 16;
        (e.prp1, e.prp2) = self.block(1024, flip);
        self.send(bytemuck::bytes_of(&e));
        self.response()
    }
}

fn exported() -> Exported {
    Exported::new(TargetTransport::Soft, "soft:mem:1M,threads=1", |c| c)
}

#[test]
fn connection_requests_are_checked() {
    let e = exported();
    let bytes = |r: Request| r.bytes().to_vec();
    for (private, expected) in [
        (vec![0; 31], reject::LENGTH),
        (vec![1; 32], reject::FORMAT),
        (bytes(request(2000, 16)), reject::QUEUE),
        (bytes(request(0, 1)), reject::ENTRIES),
        (bytes(request(1, 200)), reject::ENTRIES),
        (bytes(Request { receives: 3, ..request(0, 16) }), reject::RECEIVES),
        (bytes(Request { controller: 77, ..request(1, 16) }), reject::CONTROLLER),
    ] {
        match dial(&e, &private) {
            Err(ConnectError::Rejected { private: told, .. }) => assert_eq!(rdma::rejected(&told), expected),
            other => panic!("{expected}: {:?}", other.map(drop)),
        }
    }
    // A sound request is accepted.
    let mut c = e.config();
    assert_eq!(c.transport, FabricsTransport::Soft);
    check(&c).unwrap();
    // A target that speaks TCP is no connection manager.
    let tcp = Exported::new(TargetTransport::Tcp, "soft:mem:1M,threads=1", |c| c);
    c.port = tcp.target().address().port();
    c.connect_timeout = Duration::from_secs(2);
    let error = check(&c).unwrap_err();
    assert!(matches!(error, FabricsError::Lost { .. } | FabricsError::TimedOut { .. }), "{error}");
}

#[test]
fn connect_must_be_that_of_its_request() {
    let e = exported();
    let mut h = dial(&e, &request(0, 16).bytes()).unwrap();
    let done = h.connect(0, 17, 0).unwrap();
    assert_eq!(done.status().without_flags(), crate::wire::nvme::fabrics::status::INVALID_PARAMETERS);
    assert_eq!(done.result, 44, "the parameter is SQSIZE");
    let done = h.connect(0, 16, 0).unwrap();
    assert!(done.status().is_success() && done.cid() == 3, "{done:?}");
    assert_eq!(e.target().hosts(), 1);
    drop(h);
    until("no host", || e.target().hosts() == 0);
}

#[test]
fn a_wrong_key_and_a_wrong_capsule_end_the_queue_pair() {
    let e = exported();
    let mut h = dial(&e, &request(0, 16).bytes()).unwrap();
    let said = h.connect(0, 16, 1).unwrap_err();
    assert!(said.contains("flushed") || said.contains("closed"), "{said}");
    // Shorter than a command, and longer than the receive of an admin queue.
    for bytes in [63, 65] {
        let mut h = dial(&e, &request(0, 16).bytes()).unwrap();
        h.send(&vec![0; bytes]);
        h.response().unwrap_err();
    }
    // Data in the capsule of an admin queue.
    let mut h = dial(&e, &request(0, 16).bytes()).unwrap();
    let mut entry = SqEntry::new(crate::wire::nvme::fabrics::OPCODE, 1, 1);
    entry.cdw0 |= crate::wire::nvme::fabrics::SGL_IN_USE;
    (entry.prp1, entry.prp2) = descriptor(sgl::IN_CAPSULE, 0, 1024);
    h.send(bytemuck::bytes_of(&entry));
    assert_eq!(h.response().unwrap().status().without_flags(), status::SGL_LENGTH_INVALID);
    // Another type of descriptor, that of TCP.
    (entry.prp1, entry.prp2) = descriptor(sgl::TRANSPORT, 0, 1024);
    h.send(bytemuck::bytes_of(&entry));
    assert_eq!(h.response().unwrap().status().without_flags(), status::SGL_TYPE_INVALID);
}

#[test]
fn other_bytes_and_closed_connections_are_survived() {
    use std::io::Write;
    let e = exported();
    for bytes in [&b""[..], b"GET / HTTP/1.1\r\n\r\n", b"WBCM\xff\xff\xff\xff", b"WBCM\x02\0\0\0{}"] {
        let mut stream = std::net::TcpStream::connect(e.target().address()).unwrap();
        stream.write_all(bytes).unwrap();
    }
    write_and_read(&e);
}

fn write_and_read(e: &Exported) {
    let r = e.connect();
    let mut q = r.queue();
    let data = pattern(4096, 9);
    q.write(&r.namespace, 0, &data).unwrap();
    let mut back = vec![0; data.len()];
    q.read(&r.namespace, 0, &mut back).unwrap();
    assert!(back == data);
}
