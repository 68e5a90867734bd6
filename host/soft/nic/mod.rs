//! A NIC that runs on CPU threads. Kernels use it like an mlx5 adapter: it has the same rings and completions, and its
//! doorbell is a word in host memory. Service threads parse work queue entries as strictly as an adapter does, and move
//! the data.
//!
//! The adapter that owns the memory checks keys, ranges and rights. Connections are reliable: the responder carries out
//! a queue pair's requests in order, each once. The first failure ends the queue pair, with the syndrome that an mlx5
//! adapter would report. [`QueuePair::failure`] returns the same as text.
//!
//! | syndrome | reason |
//! |---|---|
//! | 0x01 | a message longer than its receive |
//! | 0x02 | malformed work queue entry |
//! | 0x04 | this side's own memory |
//! | 0x05 | flushed behind another failure |
//! | 0x12 | misaligned atomic |
//! | 0x13 | the peer's key, range or right |
//! | 0x15 | the peer does not respond |
//! | 0x16 | the peer has posted no receive |
//!
//! Queue pairs of one process access each other's memory directly. Processes of one host use Unix sockets, and hosts
//! use TCP, all with one protocol. (A Unix socket is preferred to shared memory: an idle peer costs nothing, the kernel
//! reports at once when a process dies, and nothing is left behind.)
//!
//! Both sides prove that they know the world's key. Frames over TCP are encrypted, and those over Unix sockets have a
//! checksum ([`Encryption`]). All lengths and waits are bounded. A frame that was changed on the way counts as lost. The
//! requester establishes a broken connection again, and repeats the requests without a response. The responder keeps
//! its responses until they have arrived, so it carries out nothing twice. If nothing is received from a peer for
//! [`Timeouts::retry`], the requests that wait for it fail, and so do queue pairs without requests.
//!
//! GPU memory is accessed by copies. An atomic on it is a read and a write, which no other atomic of the same adapter
//! interrupts. Host memory is written in whole aligned words, in ascending order, and changed by the CPU's own atomics.
//!
//! ```
//! use std::ptr::NonNull;
//! use warpbell::memory::{Place, Space};
//! use warpbell::rdma::{Adapter, QueuePair, QueuePlan, Rights};
//! use warpbell::soft::nic::{SoftNic, SoftNicConfig};
//!
//! let nic = SoftNic::start(SoftNicConfig::new([7; 32]))?;
//! let space = Space::cpu();
//! let heap = space.allocate(Place::Host, 1 << 20)?;
//! let registered = nic.register_region(&heap, Rights::ALL)?;
//! let mut pair = nic.create(QueuePlan::new(space, Place::Host).log_blocks(8))?;
//! let myself = pair.address();      // bytes for the peer; here the queue pair is connected with itself
//! pair.connect(&myself)?;
//! let for_kernels = pair.memory().send_queue(pair.number(), pair.flags());
//! # let _ = (for_kernels, registered.remote_key());
//! # Ok::<(), warpbell::rdma::RdmaError>(())
//! ```

mod config;
mod connection_manager;
mod core;
mod endpoint;
mod execute;
mod fault;
mod frame;
mod job;
mod link;
mod memory;
mod pair;
mod requester;
mod service;
#[cfg(test)]
pub(crate) mod tests;
mod wire;

#[cfg(feature = "internals")]
pub use self::core::NicStatistics;
internal!(config::{Encryption, SoftNicConfig, Timeouts});
internal!(connection_manager::{Arriving, Incoming, SoftConnectionManager});
internal!(fault::{Action, Fault, FaultError, FaultPlan, Selector, Which});
internal!(frame::{Answer, Command, Frame, MAX_DATA});
internal!(pair::{Received, SoftQueuePair});

use self::core::{Core, Counters, Mail, Mailbox};
use crate::data_path::Doorbell;
use crate::memory::Place;
use crate::random;
use crate::rdma::{
    Adapter, AdapterPath, MemoryRange, QueuePair, QueuePlan, QueueRings, RdmaError, Registration, Rights, Transport,
};
use endpoint::Endpoint;
use memory::Memory;
use pair::{PairShared, PairState};
use parking_lot::Mutex;
use service::Service;
use socket2::{Domain, SockAddr, Socket, Type};
use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;

/// Largest number of connections that wait to be accepted.
const BACKLOG: i32 = 128;
/// Number of the first queue pair. Lower numbers are reserved on adapters.
const FIRST_NUMBER: u32 = 0x40;
const NUMBERS: u32 = 0xff_ffff - FIRST_NUMBER;

/// A software NIC. Dropping it ends its threads and its queue pairs. Drop the queue pairs and registrations first.
pub struct SoftNic {
    core: Arc<Core>,
    created: AtomicU32,
    threads: Vec<JoinHandle<()>>,
    links: String,
}

impl std::fmt::Debug for SoftNic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SoftNic({:032x}, {})", self.core.endpoint.nic, self.links)
    }
}

impl SoftNic {
    /// Starts a software NIC.
    ///
    /// # Errors
    /// - [`RdmaError::Unavailable`] if the configuration is invalid.
    /// - [`RdmaError::System`] if the NIC cannot listen on an address, or the system provides no random bytes, eventfd
    ///   or thread.
    pub fn start(config: SoftNicConfig) -> Result<Self, RdmaError> {
        let transport = Transport::Soft;
        if let Some(reason) = config.complaint() {
            return Err(RdmaError::Unavailable { transport, reason });
        }
        let system = |what: &str| {
            let what = what.to_owned();
            move |source| RdmaError::System { what, source }
        };
        let nic = u128::from_le_bytes(random::bytes().map_err(system("no random bytes from the system"))?);
        let mut listeners = Vec::new();
        let mut unix = None;
        if config.unix {
            let name = format!("warpbell-nic-{nic:032x}");
            // A name that begins with a zero byte is abstract: it is no file, and ends with its process.
            let listen = SockAddr::unix(format!("\0{name}")).and_then(|a| listen(Domain::UNIX, &a));
            listeners.push(listen.map_err(system("listening on a Unix socket"))?.0);
            unix = Some(name);
        }
        let mut tcp = Vec::new();
        if let Some(ip) = config.listen {
            let ports = config.ports.clone();
            let at = ports.as_ref().map_or(String::new(), |p| format!(", ports {} to {}", p.start(), p.end()));
            let (ip, socket, port) = listen_for_hosts(ip, ports.unwrap_or(0..=0))
                .map_err(system(&format!("listening on {ip}{at} for other hosts")))?;
            listeners.push(socket);
            let told = match (config.advertise.as_slice(), ip.is_unspecified()) {
                ([], true) => endpoint::interface_addresses().into_iter().filter(|a| fits(ip, *a)).collect(),
                ([], false) => vec![ip],
                (told, _) => told.to_vec(),
            };
            tcp = told.into_iter().map(|a| SocketAddr::new(a, port)).collect();
        }
        let mut links: Vec<_> = config.direct.then(|| "one process".to_owned()).into_iter().collect();
        links.extend(unix.as_ref().map(|_| "Unix socket".to_owned()));
        let off = config.encryption == Encryption::Off;
        links.extend(tcp.first().map(|a| format!("tcp {a}{}", if off { " insecure: not encrypted" } else { "" })));
        if off {
            tracing::warn!(
                "insecure: this software NIC does not encrypt its connections; whoever reads or changes what passes on \
                 the network reads and writes the memory of its world"
            );
        }
        let mail = (0..config.threads)
            .map(|_| Mailbox::new())
            .collect::<Result<_, _>>()
            .map_err(system("making an eventfd"))?;
        let core = Arc::new(Core {
            endpoint: Endpoint::new(nic, unix, tcp),
            memory: Arc::new(Memory::new(config.space.clone())),
            pairs: Mutex::new(HashMap::new()),
            mail,
            counters: Counters::default(),
            known: Mutex::default(),
            stop: AtomicBool::new(false),
            dead: AtomicBool::new(false),
            config,
        });
        let mut this = Self { core, created: AtomicU32::new(0), threads: Vec::new(), links: links.join(", ") };
        for index in 0..this.core.config.threads {
            let service = Service::new(this.core.clone(), index, std::mem::take(&mut listeners));
            let thread = std::thread::Builder::new().name(format!("soft-nic-{index}")).spawn(move || service.run());
            this.threads.push(thread.map_err(system("starting a service thread"))?);
        }
        self::core::announce(&this.core);
        Ok(this)
    }

    /// Returns the counters since the start.
    #[cfg(feature = "internals")]
    pub fn statistics(&self) -> NicStatistics {
        self.core.counters.read()
    }

    /// Creates a queue pair like [`Adapter::create`]. Its type has the functions that only a software NIC's queue pairs
    /// have.
    ///
    /// # Errors
    /// - [`RdmaError::Queue`] if the plan's ring size is not supported, or all queue pair numbers are in use.
    /// - [`RdmaError::Memory`] if the rings cannot be allocated.
    /// - [`RdmaError::System`] if the system provides no random bytes.
    pub fn create_pair(&self, plan: QueuePlan) -> Result<SoftQueuePair, RdmaError> {
        self.serve(Arc::new(QueueRings::new(plan, Place::Host)?))
    }

    /// Creates a queue pair over existing rings.
    pub(crate) fn serve(&self, memory: Arc<QueueRings>) -> Result<SoftQueuePair, RdmaError> {
        let blocks = memory.blocks();
        let mut pairs = self.core.pairs.lock();
        if pairs.len() >= NUMBERS as usize {
            return Err(RdmaError::Queue { blocks, reason: "all numbers of queue pairs are in use".to_owned() });
        }
        let (number, ordinal) = loop {
            let ordinal = self.created.fetch_add(1, Ordering::Relaxed);
            let number = FIRST_NUMBER + ordinal % NUMBERS;
            if !pairs.contains_key(&number) {
                break (number, ordinal);
            }
        };
        let state = PairState::new(&memory, number)?;
        let shared = Arc::new(PairShared {
            number,
            ordinal,
            memory,
            thread: ordinal as usize % self.core.config.threads,
            state: Mutex::new(state),
            closed: AtomicBool::new(false),
            failure: Mutex::default(),
            fault: Mutex::default(),
        });
        pairs.insert(number, shared.clone());
        drop(pairs);
        self.core.post(shared.thread, Mail::Add(shared.clone()));
        Ok(SoftQueuePair { core: self.core.clone(), shared })
    }
}

/// Returns true if a socket that listens on the unspecified address `any` accepts connections to `address`.
fn fits(any: IpAddr, address: IpAddr) -> bool {
    any.is_ipv6() || address.is_ipv4()
}

/// Listens on an address, at the first of `ports` that is free. If a host without IPv6 cannot listen on the unspecified
/// IPv6 address, listens on that of IPv4.
fn listen_for_hosts(ip: IpAddr, ports: RangeInclusive<u16>) -> std::io::Result<(IpAddr, Socket, u16)> {
    let on = |ip| {
        let mut result = Err(ErrorKind::AddrInUse.into());
        for port in ports.clone() {
            let address = SocketAddr::new(ip, port);
            result = listen(Domain::for_address(address), &address.into()).map(|(socket, port)| (ip, socket, port));
            if !matches!(&result, Err(e) if e.kind() == ErrorKind::AddrInUse) {
                break;
            }
        }
        result
    };
    let fallback = |_| on(Ipv4Addr::UNSPECIFIED.into());
    if ip == IpAddr::V6(Ipv6Addr::UNSPECIFIED) { on(ip).or_else(fallback) } else { on(ip) }
}

/// Returns a listening socket and its port, or 0 if it has none.
fn listen(domain: Domain, address: &SockAddr) -> std::io::Result<(Socket, u16)> {
    let socket = Socket::new(domain, Type::STREAM.nonblocking(), None)?;
    if domain == Domain::IPV6 {
        socket.set_only_v6(false)?;
    }
    if domain != Domain::UNIX {
        // A port of an adapter that has ended may be taken at once.
        socket.set_reuse_address(true)?;
    }
    socket.bind(address)?;
    socket.listen(BACKLOG)?;
    let port = socket.local_addr()?.as_socket().map_or(0, |a| a.port());
    Ok((socket, port))
}

impl Adapter for SoftNic {
    fn path(&self) -> AdapterPath {
        let gpu = self.core.config.space.gpu_context().is_some();
        AdapterPath {
            link: self.links.clone(),
            doorbell: if gpu { Doorbell::Cpu } else { Doorbell::CpuEngine },
            registration: if gpu { "copies" } else { "host" }.to_owned(),
            ..AdapterPath::new(Transport::Soft, "soft nic")
        }
    }

    unsafe fn register(&self, memory: MemoryRange, rights: Rights) -> Result<Box<dyn Registration>, RdmaError> {
        // SAFETY: this function's caller makes the same promise.
        unsafe { self.core.memory.register(memory, rights) }
    }

    fn create(&self, plan: QueuePlan) -> Result<Box<dyn QueuePair>, RdmaError> {
        Ok(Box::new(self.create_pair(plan)?))
    }
}

impl Drop for SoftNic {
    fn drop(&mut self) {
        self::core::withdraw(self.core.endpoint.nic);
        for pair in self.core.pairs.lock().values() {
            pair.closed.store(true, Ordering::Release);
        }
        self.core.stop.store(true, Ordering::Release);
        for mailbox in &self.core.mail {
            mailbox.wake();
        }
        for thread in self.threads.drain(..) {
            // A thread that panicked has printed its message.
            let _ = thread.join();
        }
    }
}
