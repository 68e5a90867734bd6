//! Configuration of a software target: address, subsystem, limits, faults.

use crate::setters::setters;
use crate::wire::nvme::Status;
use crate::wire::nvme::fabrics::nqn_complaint;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Transport of a software target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TargetTransport {
    /// NVMe over TCP.
    Tcp,
    /// NVMe over RDMA, for hosts with software NICs. The address is that of their connection manager.
    #[cfg(feature = "shmem")]
    Soft,
}

/// Configuration of a software target.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TargetConfig {
    /// Transport.
    pub transport: TargetTransport,
    /// Address to listen at. Port 0 lets the system choose one.
    pub listen: SocketAddr,
    /// Addresses of further ports. A target with several ports reports in which state each reaches the namespaces (ANA).
    pub more_ports: Vec<SocketAddr>,
    /// Name of the subsystem (NQN).
    pub subsystem: String,
    /// Names of the hosts that may connect; `None` for all.
    pub hosts: Option<Vec<String>>,
    /// Entries of the largest queue: 2 to 4096.
    pub queue_entries: u32,
    /// I/O queues of one host: 1 to 1024. The device's own number limits them further.
    pub queues: u16,
    /// Largest in-capsule data of I/O commands in bytes: a multiple of 16, at most 65,536.
    pub in_capsule_bytes: u32,
    /// Largest transfer in bytes: a power of two, 8 KiB to 1 MiB. MDTS has no smaller value.
    pub max_transfer_bytes: u32,
    /// False to refuse digests that a host requests.
    pub digests: bool,
    /// Injected faults.
    pub faults: TargetFaults,
}

setters!(TargetConfig {
    transport: TargetTransport,
    listen: SocketAddr,
    hosts: Option<Vec<String>>,
    queues: u16,
    max_transfer_bytes: u32,
});
#[cfg(feature = "internals")]
setters!(TargetConfig {
    more_ports: Vec<SocketAddr>,
    queue_entries: u32,
    in_capsule_bytes: u32,
    digests: bool,
    faults: TargetFaults,
});

impl TargetConfig {
    /// Returns the configuration for a subsystem at a free port of the loopback interface.
    pub fn new(subsystem: impl Into<String>) -> Self {
        Self {
            transport: TargetTransport::Tcp,
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            more_ports: Vec::new(),
            subsystem: subsystem.into(),
            hosts: None,
            queue_entries: 128,
            queues: 64,
            in_capsule_bytes: 4096,
            max_transfer_bytes: 128 << 10,
            digests: true,
            faults: TargetFaults::default(),
        }
    }

    /// Returns true if hosts are told the access states of ports.
    pub(super) fn reports_access(&self) -> bool {
        !self.more_ports.is_empty()
    }

    /// Returns the first rule that the configuration violates, as a sentence.
    pub(super) fn complaint(&self) -> Option<String> {
        let transfer = self.max_transfer_bytes;
        let checks = [
            (
                !(2..=4096).contains(&self.queue_entries),
                format!("{} entries for a queue: choose 2 to 4096", self.queue_entries),
            ),
            (!(1..=1024).contains(&self.queues), format!("{} I/O queues: choose 1 to 1024", self.queues)),
            (
                self.in_capsule_bytes > 65_536 || !self.in_capsule_bytes.is_multiple_of(16),
                format!("{} bytes of in-capsule data: choose a multiple of 16, at most 65536", self.in_capsule_bytes),
            ),
            (
                !transfer.is_power_of_two() || !(8192..=1 << 20).contains(&transfer),
                format!("{transfer} bytes as the largest transfer: choose a power of two, 8k to 1M"),
            ),
        ];
        let name = nqn_complaint(&self.subsystem).map(|r| format!("subsystem NQN `{}`: {r}", self.subsystem));
        checks.into_iter().find(|(bad, _)| *bad).map(|(_, text)| text).or(name)
    }
}

/// Faults of a software target. Commands are I/O commands of all hosts, counted from 1 since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TargetFaults {
    /// Closes all connections at this command, before its response.
    pub close_at: Option<u64>,
    /// Sends nothing from this command on, for this time, and accepts no connection meanwhile.
    pub silent_at: Option<(u64, Duration)>,
    /// Each Nth response names a command identifier that is not in use.
    pub unknown_cid: Option<u64>,
    /// Each Nth response is sent twice.
    pub repeat_response: Option<u64>,
    /// Each Nth read sends half of its data, and reports success.
    pub short_data: Option<u64>,
    /// Each Nth response has a submission queue head outside of the queue.
    pub wrong_head: Option<u64>,
    /// Each Nth response is half as long as a response is. RDMA alone.
    pub short_response: Option<u64>,
    /// Each Nth response has a wrong header digest, if header digests are in use.
    pub wrong_header_digest: Option<u64>,
    /// Data of each Nth read has a wrong digest, if data digests are in use.
    pub wrong_data_digest: Option<u64>,
    /// Never responds to Keep Alive.
    pub ignore_keep_alive: bool,
    /// Reports controller fatal status from this command on, and completes no further command.
    pub fatal_at: Option<u64>,
    /// Reports no change of a port's access state: hosts learn of it by the status of their commands.
    pub ignore_access_changes: bool,
    /// The log page of access states has a group with more namespaces than it lists.
    pub wrong_access_log: bool,
    /// Never responds to I/O commands.
    pub ignore_io: bool,
    /// Demands in-band authentication.
    pub demand_authentication: bool,
    /// Refuses each Connect of an admin queue with this status.
    pub refuse: Option<Status>,
    /// Closes connections instead of processing Connect of I/O queues.
    pub close_io_connect: bool,
}

impl TargetFaults {
    /// Returns true if the fault that occurs at each Nth command occurs at command `count`.
    pub(super) fn due(every: Option<u64>, count: u64) -> bool {
        every.is_some_and(|n| n > 0 && count.is_multiple_of(n))
    }
}
