//! Discovery of subsystems, and a check of one connection.

use super::access::Established;
use super::association::{Association, Limits};
use super::link::{Dialer, QueueShape, Transport, User};
use super::paths::Paths;
use super::queue::{Queue, admin};
use super::tcp::TcpTransport;
use super::{FabricsConfig, FabricsError, FabricsTransport};
use crate::spec::host_and_port;
use crate::wire::nvme::ana::AccessState;
use crate::wire::nvme::fabrics::{DISCOVERY_RECORD_BYTES, DiscoveryRecord};
use crate::wire::nvme::identify::namespace_list;
use crate::wire::nvme::tcp::{DISCOVERY_PORT, IO_PORT};
use crate::wire::nvme::{IDENTIFY_BYTES, SqEntry, admin as opcode, cns};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Number of times that a log is read again because it changed meanwhile.
const ATTEMPTS: u32 = 10;
/// Records in one command.
const AT_ONCE: u64 = 4;
/// Largest number of records that is read. A faulty header must not fill the memory.
const MOST_RECORDS: u64 = 65_536;
/// Time for a shutdown that nobody depends on.
const DISCONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Queue pairs and entries that a check asks for.
const CHECK_QUEUES: u32 = 1024;
const CHECK_ENTRIES: u32 = 32;

/// Returns the subsystems that the discovery controller at an address reports over TCP. `address` is `HOST[:PORT]`, with
/// `tcp://` before it or not; without a port, 8009 and 4420 are tried. `adjust` sets the other options.
///
/// # Errors
/// - [`FabricsError::Options`] for another form of address.
/// - [`FabricsError::Resolve`], [`FabricsError::Unreachable`] or [`FabricsError::Lost`] without a connection.
/// - [`FabricsError::Refused`] or [`FabricsError::AuthenticationRequired`] if the target does not accept this host.
/// - [`FabricsError::TimedOut`], [`FabricsError::Protocol`], [`FabricsError::Terminated`], [`FabricsError::Command`] or
///   [`FabricsError::NotReady`] if the target is faulty.
/// - [`FabricsError::Unsupported`] if its log changes all the time, or has another format.
pub fn discover(
    address: &str,
    adjust: impl Fn(FabricsConfig) -> FabricsConfig,
) -> Result<Vec<DiscoveryRecord>, FabricsError> {
    discover_over(FabricsTransport::Tcp, address, adjust, |_| Ok(Arc::new(TcpTransport::default())))
}

/// Discovers subsystems as [`discover`] does, over any transport, which `open` opens for an address.
pub(crate) fn discover_over(
    transport: FabricsTransport,
    address: &str,
    adjust: impl Fn(FabricsConfig) -> FabricsConfig,
    open: impl Fn(&FabricsConfig) -> Result<Arc<dyn Transport>, FabricsError>,
) -> Result<Vec<DiscoveryRecord>, FabricsError> {
    let wrong = |reason| FabricsError::Options { reason: format!("`{address}`: {reason}") };
    let scheme = format!("{transport}://");
    let address_only = address.strip_prefix(&scheme).unwrap_or(address).trim_end_matches('/');
    let (host, port) = host_and_port(address_only).map_err(wrong)?;
    let at = |port| {
        let config = adjust(FabricsConfig::discovery(host.as_str(), Some(port)).transport(transport));
        discover_at(&config, open(&config)?)
    };
    match port {
        Some(port) => at(port),
        None => match at(DISCOVERY_PORT) {
            Err(FabricsError::Unreachable { .. }) => at(IO_PORT),
            other => other,
        },
    }
}

fn discover_at(config: &FabricsConfig, transport: Arc<dyn Transport>) -> Result<Vec<DiscoveryRecord>, FabricsError> {
    let paths = Paths::new(config, &transport)?;
    let mut a = Association::open(paths.dialer())?;
    a.enable()?;
    let unsupported = |reason: String| FabricsError::Unsupported { peer: config.peer(), reason };
    for _ in 0..ATTEMPTS {
        let header = a.discovery_header()?;
        if header.format != 0 {
            return Err(unsupported(format!(
                "its discovery log has record format {}; this host reads format 0",
                header.format
            )));
        }
        if header.records > MOST_RECORDS {
            return Err(unsupported(format!(
                "its discovery log has {} records; the limit is {MOST_RECORDS}",
                header.records
            )));
        }
        let mut records = Vec::new();
        let mut next = 0;
        while next < header.records {
            let n = (header.records - next).min(AT_ONCE);
            let record = DISCOVERY_RECORD_BYTES as u64;
            let bytes = a.discovery_log((next + 1) * record, (n * record) as u32)?;
            records.extend(bytes.chunks_exact(DISCOVERY_RECORD_BYTES).map(DiscoveryRecord::read));
            next += n;
        }
        if a.discovery_header()?.generation == header.generation {
            // The target may close the connection first.
            let _ = a.disable(DISCONNECT_TIMEOUT);
            return Ok(records);
        }
    }
    Err(unsupported(format!("its discovery log changed {ATTEMPTS} times while it was read")))
}

/// A port of a subsystem that was tried for a check.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PortReport {
    /// Address and port.
    pub address: String,
    /// State in which the port reaches the namespace; `None` if the controller reports no such states (ANA).
    pub access: Option<AccessState>,
    /// Reason for which the port cannot be used now.
    pub failure: Option<String>,
}

/// Facts about a subsystem that was connected for a check.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConnectReport {
    /// All ports, in the order of the configuration.
    pub ports: Vec<PortReport>,
    /// Name of this host.
    pub host_nqn: String,
    /// Identifier of the controller that the target made.
    pub controller: u16,
    /// Version of the controller: major, minor, tertiary.
    pub version: (u16, u8, u8),
    /// Model number.
    pub model: String,
    /// Serial number.
    pub serial: String,
    /// Limits of the controller.
    pub limits: Limits,
    /// Number of I/O queue pairs that it grants.
    pub queues: u32,
    /// Entries of the I/O queue that was connected.
    pub entries: u32,
    /// Active namespaces.
    pub namespaces: Vec<u32>,
    /// Time for all connections.
    pub took: Duration,
    /// Time of one Identify command.
    pub round_trip: Duration,
}

/// Connects an admin queue at each port and one I/O queue at the first that can be used, identifies the controller, and
/// disconnects. Reads and writes no block.
///
/// # Errors
/// As [`discover`], and [`FabricsError::Options`] or [`FabricsError::Identity`] for invalid options;
/// [`FabricsError::Inaccessible`] or [`FabricsError::NoPort`] if no port executes commands for the namespace.
pub fn check(config: &FabricsConfig) -> Result<ConnectReport, FabricsError> {
    check_over(config, Arc::new(TcpTransport::default()))
}

/// Checks a connection as [`check`] does, over any transport.
pub(crate) fn check_over(config: &FabricsConfig, transport: Arc<dyn Transport>) -> Result<ConnectReport, FabricsError> {
    let paths = Paths::new(config, &transport)?;
    let (mut report, mut ports, mut causes) = (None, Vec::new(), Vec::new());
    for dialer in paths.dialers() {
        let started = Instant::now();
        let mut access = None;
        let checked = Established::open(dialer).and_then(|e| {
            access = e.access.map(|a| a.state);
            e.check_access()?;
            match &report {
                None => check_port(dialer, e, started).map(|r| report = Some(r)),
                Some(_) => Ok(()),
            }
        });
        let failure = checked.err().map(|e| {
            let text = e.to_string();
            causes.push(e);
            text
        });
        ports.push(PortReport { address: dialer.config.peer(), access, failure });
    }
    match report {
        Some(report) => Ok(ConnectReport { ports, ..report }),
        None => Err(FabricsError::of_ports(&config.subsystem, causes)),
    }
}

/// Connects an I/O queue, and collects the facts about the controller.
fn check_port(dialer: &Dialer, e: Established, started: Instant) -> Result<ConnectReport, FabricsError> {
    let Established { association: mut a, identify, limits, .. } = e;
    let at = Instant::now();
    a.identify()?;
    let round_trip = at.elapsed();
    let queues = a.request_queues(dialer.config.queues.map_or(CHECK_QUEUES, u32::from))?;
    let entries = CHECK_ENTRIES.min(limits.queue_entries);
    let io = Queue::connect(dialer, QueueShape { id: 1, controller: a.controller, entries }, User::Host(0))?;
    let took = started.elapsed();
    let namespaces = active_namespaces(&mut a)?;
    drop(io);
    // The checks are done; the target may close the connection first.
    let _ = a.shut_down();
    Ok(ConnectReport {
        ports: Vec::new(),
        host_nqn: dialer.identity.nqn.clone(),
        controller: a.controller,
        version: ((a.version >> 16) as u16, (a.version >> 8) as u8, a.version as u8),
        model: identify.model(),
        serial: identify.serial(),
        limits,
        queues,
        entries,
        namespaces,
        took,
        round_trip,
    })
}

/// Returns at most the first 1024 active namespaces.
fn active_namespaces(a: &mut Association) -> Result<Vec<u32>, FabricsError> {
    let entry = SqEntry { nsid: 0, ..admin(opcode::IDENTIFY, cns::ACTIVE_NAMESPACES.into(), 0) };
    Ok(namespace_list(&a.read(entry, IDENTIFY_BYTES as u32, "Identify (active namespaces)")?))
}
