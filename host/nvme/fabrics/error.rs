//! Errors of controllers of other machines. They name the address, the numbers and the cause.

use crate::remedy::{Remedies, Remedy};
use crate::wire::nvme::Status;
use crate::wire::nvme::ana::AccessState;
use crate::wire::nvme::fabrics::status;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Error of connecting to a controller of another machine, or of one of its connections.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FabricsError {
    /// The host name has no address.
    #[error("{host}: the name has no address: {source}")]
    Resolve {
        /// Name as given.
        host: String,
        /// Error of the resolver.
        source: io::Error,
    },
    /// No connection to the port.
    #[error("{peer}: no connection: {source}")]
    Unreachable {
        /// Address and port.
        peer: String,
        /// Error of the system call.
        source: io::Error,
    },
    /// The connection ended.
    #[error("{peer}: the connection was lost: {reason}")]
    Lost {
        /// Address and port.
        peer: String,
        /// Cause.
        reason: String,
    },
    /// The target did not reply in time.
    #[error("{peer}: no reply to {what} within {waited:?}")]
    TimedOut {
        /// Address and port.
        peer: String,
        /// Request without reply.
        what: String,
        /// Time limit that expired.
        waited: Duration,
    },
    /// The target violated the protocol. The connection was ended.
    #[error("{peer}: protocol error of the target: {reason}")]
    Protocol {
        /// Address and port.
        peer: String,
        /// Violation, with the numbers.
        reason: String,
    },
    /// The target ended the connection because of an error that it found in this host's messages.
    #[error("{peer}: the target ended the connection: {name} (status {status}, information {information:#x})")]
    Terminated {
        /// Address and port.
        peer: String,
        /// The specification's name of the status.
        name: &'static str,
        /// Fatal Error Status.
        status: u16,
        /// Fatal Error Information: usually the offset of a field.
        information: u32,
    },
    /// The target rejected the connection request of a queue.
    #[error("{peer}: {subsystem} rejected the connection of queue {queue}: {reason} (status {status})")]
    Rejected {
        /// Address and port.
        peer: String,
        /// Name of the subsystem.
        subsystem: String,
        /// Queue identifier, 0 for the admin queue.
        queue: u16,
        /// Status of the rejection.
        status: u16,
        /// The status in words.
        reason: &'static str,
    },
    /// A step with the RDMA adapter of this machine failed.
    #[error("{peer}: {reason}")]
    Adapter {
        /// Address and port.
        peer: String,
        /// The step, and its cause.
        reason: String,
    },
    /// The target refused Connect.
    #[error("{peer}: {subsystem} refused the connection of queue {queue}: {}{}", connect_status(*.status), .parameter)]
    Refused {
        /// Address and port.
        peer: String,
        /// Name of the subsystem.
        subsystem: String,
        /// Queue identifier, 0 for the admin queue.
        queue: u16,
        /// Status of the completion.
        status: Status,
        /// Invalid parameter, as text that follows the status; empty if unknown.
        parameter: String,
    },
    /// The target demands in-band authentication.
    #[error("{peer}: {subsystem} demands authentication (DH-HMAC-CHAP), which this host does not support")]
    AuthenticationRequired {
        /// Address and port.
        peer: String,
        /// Name of the subsystem.
        subsystem: String,
    },
    /// A command of the connection's set-up failed.
    #[error("{peer}: {command} failed: {status}")]
    Command {
        /// Address and port.
        peer: String,
        /// Name of the command.
        command: String,
        /// Status of the completion.
        status: Status,
    },
    /// The controller did not become ready, or reports a fatal status.
    #[error("{peer}: the controller {what} (CSTS is {csts:#010x})")]
    NotReady {
        /// Address and port.
        peer: String,
        /// State of the controller.
        what: &'static str,
        /// Last value of CSTS.
        csts: u32,
    },
    /// The target lacks a property that this host needs.
    #[error("{peer}: {reason}")]
    Unsupported {
        /// Address and port.
        peer: String,
        /// Property, with the numbers.
        reason: String,
    },
    /// The port does not execute commands for the namespace now (ANA).
    #[error("{peer}: namespace {namespace} is not accessible by this port: the state of ANA group {group} is {state}")]
    Inaccessible {
        /// Address and port.
        peer: String,
        /// Namespace identifier.
        namespace: u32,
        /// ANA Group Identifier.
        group: u32,
        /// State of the group.
        state: AccessState,
    },
    /// None of several ports can be used.
    #[error("no port of {subsystem} can be used: {}", joined(.causes))]
    NoPort {
        /// Name of the subsystem.
        subsystem: String,
        /// Error of each port that was tried.
        causes: Vec<FabricsError>,
    },
    /// The options are invalid.
    #[error("{reason}")]
    Options {
        /// Option, and the valid values.
        reason: String,
    },
    /// A file with the host's identity is invalid.
    #[error("{}: {reason}", path.display())]
    Identity {
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        reason: String,
    },
    /// Memory for doorbells, random bytes or a thread were not available.
    #[error("{what}: {source}")]
    System {
        /// Resource.
        what: &'static str,
        /// Error of the system call.
        source: io::Error,
    },
}

fn joined(causes: &[FabricsError]) -> String {
    let texts: Vec<_> = causes.iter().map(ToString::to_string).collect();
    match texts.is_empty() {
        true => "none was tried".to_owned(),
        false => texts.join("; "),
    }
}

impl FabricsError {
    /// Returns the error of the only port, or the one for several ports.
    pub(crate) fn of_ports(subsystem: &str, mut causes: Vec<Self>) -> Self {
        match causes.len() {
            1 => causes.remove(0),
            _ => Self::NoPort { subsystem: subsystem.to_owned(), causes },
        }
    }

    /// Returns true if no port will ever reach the namespace again.
    pub(crate) fn is_for_good(&self) -> bool {
        match self {
            Self::Inaccessible { state, .. } => *state == AccessState::PersistentLoss,
            Self::NoPort { causes, .. } => !causes.is_empty() && causes.iter().all(Self::is_for_good),
            _ => false,
        }
    }
}

fn connect_status(s: Status) -> String {
    match status::connect_name(s) {
        Some(name) => format!("{name} (type {:#x}, code {:#04x})", s.sct(), s.sc()),
        None => s.to_string(),
    }
}

impl Remedies for FabricsError {
    fn remedies(&self) -> Vec<Remedy> {
        let step = |words: &'static str| vec![Remedy::step(words)];
        match self {
            Self::Resolve { .. } => step("write an IP address, or add the name to /etc/hosts or DNS"),
            Self::Unreachable { source, .. } if source.kind() == io::ErrorKind::ConnectionRefused => {
                step("start the target, or correct the port: 4420 is usual for I/O and 8009 for discovery")
            }
            Self::Unreachable { .. } => step("check address, route and firewall (ping, ss -ltn at the target)"),
            Self::AuthenticationRequired { .. } => step(
                "permit this host without a key at the target (nvmet: write an empty dhchap_key to the host's folder; SPDK: add the host without --dhchap-key)",
            ),
            Self::Refused { status: s, .. } => match s.without_flags() {
                status::INVALID_HOST => {
                    step("permit this host at the target (nvmet: attr_allow_any_host, or a link in allowed_hosts)")
                }
                status::INVALID_PARAMETERS => step("list the target's subsystems, and compare the name"),
                status::CONTROLLER_BUSY => step("end other connections of this host, or try again later"),
                _ => Vec::new(),
            },
            Self::Inaccessible { state: AccessState::Change, .. } => step("try again: the state changes now"),
            Self::Inaccessible { .. } => {
                step("name another port of the subsystem (path=HOST:PORT), or change the state at the target")
            }
            Self::NoPort { causes, .. } => {
                let mut all: Vec<Remedy> = causes.iter().flat_map(Self::remedies).collect();
                all.dedup();
                all
            }
            _ => Vec::new(),
        }
    }
}
