//! Connections against a scripted identifier, and the identifier of librdmacm where this machine has no RDMA.

use super::event::{Event, Kind};
use super::manager::{ChosenAdapter, Deadline, Established, MOST_PRIVATE, OpenRoute, connect, find};
use super::*;
use crate::memory::{Place, Space};
use crate::rdma::{
    Adapter, AdapterPath, ConnectError, Connection, Destination, Endpoint, Gid, LinkLayer, MemoryRange, PathMtu,
    PortFacts, QueueAddress, QueuePair, QueuePlan, QueueRings, Registration, Rights, TrafficClass, Transport,
};
use std::collections::VecDeque;
use std::io::{ErrorKind, Read};
use std::net::{TcpListener, UdpSocket};
use std::os::fd::AsRawFd;

const NUMBER: u32 = 0x1234;
const PEER: &str = "10.0.0.2:4420";

/// An identifier that plays its script: each call takes the next event of its own.
#[derive(Debug)]
struct Scripted {
    /// Events, in the order in which calls make them.
    script: VecDeque<Event>,
    ready: VecDeque<Event>,
    place: Option<LocalEnd>,
    calls: Vec<String>,
    /// Never readable.
    socket: UdpSocket,
    refuse: Option<(&'static str, i32)>,
}

fn place(device: &str) -> LocalEnd {
    LocalEnd { device: device.to_owned(), port: 1, gid: Gid([2; 16]) }
}

fn event(kind: Kind, status: i32) -> Event {
    Event { kind, status, private: Vec::new() }
}

impl Scripted {
    fn new(script: impl IntoIterator<Item = Event>) -> Self {
        Self {
            script: script.into_iter().collect(),
            ready: VecDeque::new(),
            place: Some(place("rxe0")),
            calls: Vec::new(),
            socket: UdpSocket::bind("127.0.0.1:0").unwrap(),
            refuse: None,
        }
    }

    fn call(&mut self, name: &str, makes_event: bool) -> io::Result<()> {
        self.calls.push(name.to_owned());
        if let Some((_, errno)) = self.refuse.filter(|(n, _)| *n == name) {
            return Err(io::Error::from_raw_os_error(errno));
        }
        if makes_event {
            self.ready.extend(self.script.pop_front());
        }
        Ok(())
    }
}

impl Identifier for Scripted {
    fn resolve_address(&mut self, _: SocketAddr, _: Duration) -> io::Result<()> {
        self.call("address", true)
    }
    fn resolve_route(&mut self, _: Duration) -> io::Result<()> {
        self.call("route", true)
    }
    fn local_end(&self) -> Option<LocalEnd> {
        self.place.clone()
    }
    fn request(&mut self, r: Request<'_>) -> io::Result<()> {
        assert_eq!((r.queue, r.reads_in, r.private), (NUMBER, 3, &[7; 32][..]));
        self.call("request", true)
    }
    fn route(&mut self) -> Result<Route, RdmaError> {
        Ok(Route {
            remote: 0x99,
            receive_psn: 1,
            send_psn: 2,
            mtu: PathMtu::from_field(3).unwrap(),
            port: 1,
            ethernet: true,
            lid: 0,
            global: Some((1, Gid([1; 16]))),
            traffic_class: TrafficClass(0),
            service_level: 0,
            reads_out: 0,
            reads_in: 3,
            ack_timeout: 16,
            udp_source: 0,
        })
    }
    fn establish(&mut self) -> io::Result<()> {
        self.call("establish", false)
    }
    fn next(&mut self) -> io::Result<Option<Event>> {
        Ok(self.ready.pop_front())
    }
    fn descriptor(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

#[derive(Debug)]
struct Queue {
    memory: QueueRings,
    routes: Vec<Route>,
    refuse: bool,
}

impl Queue {
    fn new() -> Self {
        let plan = QueuePlan::new(Space::cpu(), Place::Host);
        Self { memory: QueueRings::new(plan, Place::Host).unwrap(), routes: Vec::new(), refuse: false }
    }
}

impl QueuePair for Queue {
    fn number(&self) -> u32 {
        NUMBER
    }
    fn address(&self) -> QueueAddress {
        let port = PortFacts {
            name: "rxe0 port 1".to_owned(),
            port: 1,
            link: LinkLayer::Ethernet,
            mtu: PathMtu::from_field(5).unwrap(),
            lid: 0,
            route_header: false,
            gid: Some((1, Gid([2; 16]))),
            udp: true,
            reads_out: 2,
            reads_in: 3,
        };
        Endpoint::new(&port, NUMBER, 5).to_address()
    }
    fn connect(&mut self, _: &QueueAddress) -> Result<(), RdmaError> {
        panic!("the connection manager has the route")
    }
    fn connect_along(&mut self, route: &Route) -> Result<(), RdmaError> {
        if self.refuse {
            let (peer, reason) = (PEER.to_owned(), "no".to_owned());
            return Err(RdmaError::Connect { number: NUMBER, peer, reason });
        }
        self.routes.push(route.clone());
        Ok(())
    }
    fn memory(&self) -> &QueueRings {
        &self.memory
    }
    fn flags(&self) -> u32 {
        0
    }
    fn failure(&self) -> Option<String> {
        None
    }
    fn reset(&mut self) -> Result<(), RdmaError> {
        Ok(())
    }
}

fn run(id: &mut Scripted, queue: &mut Queue, limit: Duration) -> Result<Vec<u8>, ConnectError> {
    let address = "10.0.0.2:4420".parse().unwrap();
    let to = OpenRoute { address, place: &place("rxe0"), transport: Transport::Verbs };
    connect(id, PEER, to, queue, &[7; 32], Deadline::new(limit))
}

const LONG: Duration = Duration::from_secs(60);

fn resolved() -> [Event; 2] {
    [event(Kind::ADDRESS_RESOLVED, 0), event(Kind::ROUTE_RESOLVED, 0)]
}

/// Runs a connection whose third event is this one.
fn reply(e: Event) -> ConnectError {
    run(&mut Scripted::new([&resolved()[..], &[e]].concat()), &mut Queue::new(), LONG).unwrap_err()
}

#[test]
fn a_connection_takes_its_route_between_the_reply_and_its_establishment() {
    let response = Event { private: vec![0, 0, 32, 0], ..event(Kind::RESPONSE, 0) };
    let mut id = Scripted::new([&resolved()[..], &[response]].concat());
    let mut queue = Queue::new();
    assert_eq!(run(&mut id, &mut queue, LONG).unwrap(), [0, 0, 32, 0]);
    assert_eq!(id.calls, ["address", "route", "request", "establish"]);
    assert_eq!(queue.routes.len(), 1);
    assert_eq!(queue.routes[0].remote, 0x99);
    // A queue pair that cannot take it is not announced as ready.
    let mut id = Scripted::new([&resolved()[..], &[event(Kind::RESPONSE, 0)]].concat());
    queue.refuse = true;
    assert!(matches!(run(&mut id, &mut queue, LONG), Err(ConnectError::Rdma(RdmaError::Connect { .. }))));
    assert_eq!(id.calls, ["address", "route", "request"]);
}

#[test]
fn rejections_are_told_apart() {
    let by_target = Event { private: vec![0, 0, 4, 0, 0, 0], ..event(Kind::REJECTED, 28) };
    match reply(by_target) {
        ConnectError::Rejected { private, .. } => assert_eq!(private[..4], [0, 0, 4, 0]),
        other => panic!("{other}"),
    }
    for status in [8, -libc::ECONNREFUSED] {
        match reply(event(Kind::REJECTED, status)) {
            ConnectError::Unreachable { source, .. } => assert_eq!(source.kind(), ErrorKind::ConnectionRefused),
            other => panic!("{other}"),
        }
    }
    for (status, word) in [(10, "stale connection (reason 10)"), (99, "not listed (reason 99)")] {
        let said = reply(event(Kind::REJECTED, status)).to_string();
        assert!(said.contains(word) && said.contains(PEER), "{said}");
    }
}

#[test]
fn an_address_without_a_path_says_why() {
    let at = |events: &[Event]| run(&mut Scripted::new(events.to_vec()), &mut Queue::new(), LONG).unwrap_err();
    let said = at(&[event(Kind::ADDRESS_ERROR, -libc::ENODEV)]).to_string();
    assert!(said.contains("no RDMA device"), "{said}");
    let said = at(&[event(Kind::ADDRESS_ERROR, -libc::EADDRNOTAVAIL)]).to_string();
    assert!(said.contains("no GID"), "{said}");
    match at(&[resolved()[0].clone(), event(Kind::ROUTE_ERROR, -libc::EHOSTUNREACH)]) {
        ConnectError::Unreachable { source, .. } => assert_eq!(source.raw_os_error(), Some(libc::EHOSTUNREACH)),
        other => panic!("{other}"),
    }
    // The address is resolved to a device that the identifier does not name.
    let mut id = Scripted::new(resolved());
    id.place = None;
    let found = find(&mut id, PEER, "10.0.0.2:1".parse().unwrap(), Deadline::new(LONG));
    assert!(matches!(found, Err(ConnectError::Unreachable { .. })), "{found:?}");
    // Calls that fail at once.
    for call in ["address", "route", "request"] {
        let mut id = Scripted::new([&resolved()[..], &[event(Kind::RESPONSE, 0)]].concat());
        id.refuse = Some((call, libc::ENETUNREACH));
        match run(&mut id, &mut Queue::new(), LONG).unwrap_err() {
            ConnectError::Unreachable { source, .. } => assert_eq!(source.raw_os_error(), Some(libc::ENETUNREACH)),
            other => panic!("{other}"),
        }
        assert_eq!(id.calls.last().map(String::as_str), Some(call));
    }
}

#[test]
fn a_target_that_does_not_reply_costs_the_limit_and_no_more() {
    let limit = Duration::from_millis(30);
    for events in 0..=2 {
        let mut id = Scripted::new(resolved().into_iter().take(events));
        match run(&mut id, &mut Queue::new(), limit).unwrap_err() {
            ConnectError::TimedOut { waited, .. } => assert_eq!(waited, limit),
            other => panic!("{other}"),
        }
    }
    assert!(matches!(reply(event(Kind::UNREACHABLE, -libc::ETIMEDOUT)), ConnectError::TimedOut { .. }));
    assert!(matches!(reply(event(Kind::UNREACHABLE, -libc::ENETDOWN)), ConnectError::Unreachable { .. }));
}

#[test]
fn events_out_of_order_end_the_attempt() {
    for (kind, word) in [
        (Kind::DISCONNECTED, "the other end closed it"),
        (Kind::DEVICE_REMOVED, "removed"),
        (Kind::ESTABLISHED, "not expected"),
        (Kind(77), "unknown (event 77)"),
    ] {
        match reply(event(kind, 0)) {
            ConnectError::Protocol { reason, .. } => assert!(reason.contains(word), "{reason}"),
            other => panic!("{other}"),
        }
    }
    // A device that is not the open one.
    let mut id = Scripted::new(resolved());
    id.place = Some(place("rxe1"));
    let said = run(&mut id, &mut Queue::new(), LONG).unwrap_err().to_string();
    assert!(said.contains("rxe1 port 1") && said.contains("rxe0 port 1"), "{said}");
    // More private data than a request carries.
    let address = "10.0.0.2:4420".parse().unwrap();
    let private = [0; MOST_PRIVATE + 1];
    let to = OpenRoute { address, place: &place("rxe0"), transport: Transport::Verbs };
    let long = connect(&mut id, PEER, to, &mut Queue::new(), &private, Deadline::new(LONG)).unwrap_err();
    assert!(long.to_string().contains("57 bytes"), "{long}");
}

#[test]
fn an_established_connection_tells_once_and_for_all_why_it_ended() {
    let mut id = Scripted::new([]);
    id.ready.push_back(event(Kind::ESTABLISHED, 0));
    let connection = Established::new(id);
    assert_eq!(connection.ended(), None);
    let mut id = Scripted::new([]);
    id.ready.extend([event(Kind::DISCONNECTED, 0), event(Kind::DEVICE_REMOVED, 0)]);
    let connection = Established::new(id);
    for _ in 0..2 {
        assert_eq!(connection.ended().as_deref(), Some("the other end closed it"));
    }
}

/// An adapter that has a path alone.
#[derive(Debug)]
struct Named(Transport, Option<&'static str>);

impl Adapter for Named {
    fn path(&self) -> AdapterPath {
        let mut path = AdapterPath::new(self.0, "mlx5_0 port 1");
        path.note = self.1.map(str::to_owned);
        path
    }
    unsafe fn register(&self, _: MemoryRange, _: Rights) -> Result<Box<dyn Registration>, RdmaError> {
        panic!("nothing is registered")
    }
    fn create(&self, _: QueuePlan) -> Result<Box<dyn QueuePair>, RdmaError> {
        panic!("nothing is created")
    }
}

#[test]
fn kernels_drive_an_mlx5_nic_and_a_thread_drives_any_other() {
    use Transport::{Mlx5, Verbs};
    // The adapters that are available, the requested one, the device, and the adapter with its note, or the error's text.
    type Case = (&'static [Transport], Option<Transport>, bool, Result<(Transport, &'static str), &'static str>);
    let cases: [Case; 8] = [
        (&[Mlx5, Verbs], None, true, Ok((Mlx5, "own note"))),
        (&[Mlx5, Verbs], None, false, Ok((Verbs, "own note"))),
        (&[Verbs], None, true, Ok((Verbs, "mlx5 adapter: not available; own note"))),
        (&[], None, true, Err("verbs adapter: not available")),
        (&[Mlx5, Verbs], Some(Verbs), true, Ok((Verbs, "own note"))),
        (&[Mlx5, Verbs], Some(Mlx5), true, Ok((Mlx5, "own note"))),
        (&[Verbs], Some(Mlx5), true, Err("mlx5 adapter: not available")),
        (&[Verbs], Some(Mlx5), false, Err("mlx5 adapter: not available")),
    ];
    for (available, only, is_mlx5, expected) in cases {
        let chosen = ChosenAdapter::open(only, is_mlx5, |transport| match available.contains(&transport) {
            true => Ok(Box::new(Named(transport, Some("own note"))) as Box<dyn Adapter>),
            false => Err(RdmaError::Unavailable { transport, reason: "not available".to_owned() }),
        });
        match (chosen, expected) {
            (Ok(chosen), Ok((transport, note))) => {
                let path = chosen.path();
                assert_eq!((path.transport, path.note.as_deref()), (transport, Some(note)));
            }
            (Err(e), Err(text)) => assert_eq!(e.to_string(), text),
            (chosen, expected) => panic!("{available:?} {only:?}: {chosen:?}, expected {expected:?}"),
        }
    }
}

#[test]
fn a_machine_without_rdma_is_told_what_is_missing() {
    if std::path::Path::new("/sys/class/infiniband").exists() {
        return;
    }
    // A listener that is no connection manager: TCP is not tried in place of RDMA.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    let e = DeviceConnectionManager::new(Destination { host: "127.0.0.1", port }, None, LONG).unwrap_err();
    match e {
        ConnectError::Rdma(RdmaError::Library { library, .. }) => assert_eq!(library, "librdmacm.so.1"),
        ConnectError::Rdma(RdmaError::Unavailable { transport: Transport::Verbs, reason }) => {
            assert!(reason.contains("rdma_cm") || reason.contains("identifier"), "{reason}");
        }
        other => panic!("{other}"),
    }
    match listener.accept() {
        Ok((mut stream, _)) => panic!("a connection of {:?}", stream.read(&mut [0])),
        Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
    }
}
