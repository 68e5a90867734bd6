//! Errors of the NVMe driver. They name the device, queue and command, the numbers, and the next step.

use super::{Port, PortError, RecoveryReport};
use crate::memory::{DmaError, MemoryError};
use crate::refused::{self, Interface, RefusedCommand};
use crate::wire::nvme::{CqEntry, SqEntry, Status, admin, io, register};
use std::time::Duration;

/// Error of a controller or one of its queues.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NvmeError {
    /// A register access failed.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The device cannot access memory, or there was no memory.
    #[error(transparent)]
    Dma(#[from] DmaError),
    /// Memory of kernels was not allocated or not accessible.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The controller has left. Its registers read as all ones, as a bus returns for a missing device, or as zero, as
    /// some virtual machines return.
    #[error("{device}: the controller is gone ({register} reads as {value:#010x}); check the slot, then open it again")]
    Gone {
        /// Name of the device.
        device: String,
        /// The register that was read.
        register: &'static str,
        /// Value that was read: all ones, or zero.
        value: u32,
    },
    /// The registers are not those of an NVMe controller.
    #[error("{device} is not an NVMe controller: CAP is {cap:#018x} and VS {version:#010x}")]
    NotAController {
        /// Name of the device.
        device: String,
        /// Value of CAP.
        cap: u64,
        /// Value of VS.
        version: u32,
    },
    /// The controller does not support memory pages of 4 KiB.
    #[error(
        "{device}: its smallest memory page is {smallest} bytes; this driver needs pages of 4096 bytes (CAP.MPSMIN)"
    )]
    PageSize {
        /// Name of the device.
        device: String,
        /// Smallest page size that it supports, in bytes.
        smallest: u64,
    },
    /// The controller does not support the NVM command set.
    #[error("{device} does not support the NVM command set (CAP.CSS is {css:#04x}); only block storage is supported")]
    CommandSet {
        /// Name of the device.
        device: String,
        /// Value of CAP.CSS.
        css: u8,
    },
    /// The controller requires other sizes of queue entries.
    #[error(
        "{device}: it requires submission entries of {} bytes and completion entries of {} bytes (SQES, CQES); this driver uses 64 and 16",
        power(*.sq_shift),
        power(*.cq_shift)
    )]
    EntrySizes {
        /// Name of the device.
        device: String,
        /// log2 of the required size of a submission entry.
        sq_shift: u8,
        /// log2 of the required size of a completion entry.
        cq_shift: u8,
    },
    /// The controller has no I/O queues.
    #[error("{device} is {kind}, which has no namespaces to read; name an I/O controller")]
    NotIo {
        /// Name of the device.
        device: String,
        /// `a discovery controller` or `an administrative controller`.
        kind: &'static str,
    },
    /// The controller lacks an optional command.
    #[error("{device} does not support {command} ({bit}); {next}")]
    Unsupported {
        /// Name of the device.
        device: String,
        /// Name of the command.
        command: &'static str,
        /// Bit that reports the lack, or the quirk.
        bit: &'static str,
        /// Alternative for the user.
        next: &'static str,
    },
    /// The controller did not become ready or idle, or did not finish its shutdown, in time.
    #[error(
        "{device} did not {what} within {waited:?} (CAP.TO), CSTS is {csts:#010x}; reset or power-cycle the device and open it again"
    )]
    NotReady {
        /// Name of the device.
        device: String,
        /// `become ready`, `become idle` or `finish its shutdown`.
        what: &'static str,
        /// Time limit that expired.
        waited: Duration,
        /// Last value of CSTS.
        csts: u32,
    },
    /// CSTS.RDY was cleared, but not by this driver.
    #[error(
        "{device} is no longer ready (CSTS is {csts:#010x}): it was reset, or another program drives it; close it and open it again"
    )]
    NoLongerReady {
        /// Name of the device.
        device: String,
        /// Value of CSTS.
        csts: u32,
    },
    /// The controller reports a fatal status (CSTS.CFS).
    #[error(
        "{device} reports a fatal status {during} (CSTS is {csts:#010x}); close it and open it again, which resets it"
    )]
    Fatal {
        /// Name of the device.
        device: String,
        /// Operation that was in progress.
        during: String,
        /// Value of CSTS.
        csts: u32,
    },
    /// The controller completed a command with an error.
    #[error("{device}: {command} on {}: {status}", queue_name(*.queue))]
    Command {
        /// Name of the device.
        device: String,
        /// Queue identifier, 0 for the admin queue.
        queue: u16,
        /// Description of the command, with its numbers.
        command: String,
        /// Opcode.
        opcode: u8,
        /// Status of the completion.
        status: Status,
    },
    /// The controller did not complete a command in time.
    #[error(
        "{device}: no completion of {command} on {} (command {cid}) within {waited:?}, CSTS is {csts:#010x}; {next}",
        queue_name(*.queue)
    )]
    TimedOut {
        /// Name of the device.
        device: String,
        /// Queue identifier, 0 for the admin queue.
        queue: u16,
        /// Description of the command, with its numbers.
        command: String,
        /// Opcode.
        opcode: u8,
        /// Command identifier.
        cid: u16,
        /// Time since the command was submitted.
        waited: Duration,
        /// Value of CSTS afterwards.
        csts: u32,
        /// Measure that was taken, or the next step for the user.
        next: &'static str,
    },
    /// Every slot of a queue belongs to a command without completion.
    #[error(
        "{device}: {} holds {outstanding} commands without completion and takes no more; close the controller and open it again",
        queue_name(*.queue)
    )]
    QueueStuck {
        /// Name of the device.
        device: String,
        /// Queue identifier, 0 for the admin queue.
        queue: u16,
        /// Commands without completion.
        outstanding: usize,
    },
    /// Commands without completion took all the time that they may take, so the device gets no more commands for now.
    #[error(
        "{device}: no command is submitted to it for now, because those without completion, the last of them {command}, have taken more than {allowed:?} in all; check the device, or set a longer deadline"
    )]
    BudgetExhausted {
        /// Name of the device.
        device: String,
        /// The last command without completion, with its numbers.
        command: String,
        /// Time that commands without completion may take in all.
        allowed: Duration,
    },
    /// A reset of the controller ended the queues.
    #[error("{device}: a reset of the controller deleted these queues; reset them before they are used again")]
    QueuesLost {
        /// Name of the device.
        device: String,
    },
    /// No step of the recovery succeeded.
    #[error("{report}; not recovered: {source}")]
    NotRecovered {
        /// Steps that were taken.
        report: Box<RecoveryReport>,
        /// Error of the last step.
        source: Box<NvmeError>,
    },
    /// A completion names a command that is not in flight.
    #[error("{device}: {} got a completion for command {cid}, which is not outstanding; reset the device", queue_name(*.queue))]
    StrayCompletion {
        /// Name of the device.
        device: String,
        /// Queue identifier, 0 for the admin queue.
        queue: u16,
        /// Command identifier of the completion.
        cid: u16,
    },
    /// The namespace is not active.
    #[error("{device} has no active namespace {nsid}; active are {active:?}")]
    NoNamespace {
        /// Name of the device.
        device: String,
        /// Requested namespace.
        nsid: u32,
        /// Active namespaces.
        active: Vec<u32>,
    },
    /// The driver does not support the namespace's format.
    #[error(
        "{device}: namespace {nsid} cannot be used: {reason}; format it with blocks of 512 or 4096 bytes without metadata"
    )]
    Format {
        /// Name of the device.
        device: String,
        /// Namespace identifier.
        nsid: u32,
        /// Reason, as text.
        reason: String,
    },
    /// An option or argument is invalid, or an operation is not possible in the current state.
    #[error("{device}: {reason}")]
    Options {
        /// Name of the device.
        device: String,
        /// Cause, usually with the valid values.
        reason: String,
    },
    /// The depth is not a power of two between 2 and 65,536.
    #[error("{device}: a queue depth of {depth} is not a power of two from 2 to 65536")]
    Depth {
        /// Name of the device.
        device: String,
        /// Requested depth.
        depth: u32,
    },
    /// The depth exceeds CAP.MQES.
    #[error(
        "{device}: a queue depth of {depth} is more than the controller's {most} entries (CAP.MQES); ask for {fits} or fewer"
    )]
    TooDeep {
        /// Name of the device.
        device: String,
        /// Requested depth.
        depth: u32,
        /// Largest depth: MQES + 1.
        most: u32,
        /// Largest power of two that is not more than `most`.
        fits: u32,
    },
    /// Fewer queue pairs are free than were requested.
    #[error(
        "{device}: {asked} queue pairs were requested, the controller grants {granted} and {used} of them are in use; ask for {} or fewer",
        granted - used
    )]
    TooManyQueues {
        /// Name of the device.
        device: String,
        /// Requested queue pairs.
        asked: u32,
        /// Queue pairs that the controller grants in total.
        granted: u32,
        /// Pairs in use.
        used: u32,
    },
    /// A transfer reaches outside the namespace, or is not a multiple of the block size.
    #[error("{device}: {bytes} bytes at block {lba} of namespace {nsid}: {reason}")]
    Range {
        /// Name of the device.
        device: String,
        /// Namespace identifier.
        nsid: u32,
        /// First logical block.
        lba: u64,
        /// Length in bytes.
        bytes: usize,
        /// Reason, as text.
        reason: String,
    },
    /// The mapped doorbell pages are too small for a queue.
    #[error(
        "{device}: the doorbell of queue {queue} is at byte {offset} of the doorbell pages, of which {window} bytes are mapped; ask for fewer queues"
    )]
    NoDoorbell {
        /// Name of the device.
        device: String,
        /// Queue identifier.
        queue: u16,
        /// Offset from the first doorbell in bytes.
        offset: usize,
        /// Length of the mapped doorbell pages in bytes.
        window: usize,
    },
    /// The controller memory buffer cannot be used.
    #[error("{device}: no controller memory buffer for queues: {reason}")]
    NoMemoryBuffer {
        /// Name of the device.
        device: String,
        /// Cause and remedy.
        reason: String,
    },
    /// Kernels were chosen to write the doorbells, but cannot.
    #[error("{device}: kernels cannot ring its doorbells: {reason}")]
    NoKernelDoorbell {
        /// Name of the device.
        device: String,
        /// Cause and remedy.
        reason: String,
    },
    /// The thread that forwards doorbells was not started, or one of its register writes failed.
    #[error("{device}: doorbells are not forwarded: {reason}; drop the queues and create them again")]
    Forwarder {
        /// Name of the device.
        device: String,
        /// Cause, as text.
        reason: String,
    },
}

crate::remedy::pass_on!(NvmeError: Dma, Memory);

impl NvmeError {
    /// Returns true if the device has left. It will not complete anything any more.
    pub fn is_gone(&self) -> bool {
        match self {
            Self::Gone { .. } => true,
            Self::NotRecovered { source, .. } => source.is_gone(),
            _ => false,
        }
    }

    /// Returns true if the device did not complete commands within their deadline, also after a recovery.
    pub(crate) fn is_without_completion(&self) -> bool {
        self.uncompleted().is_some()
    }

    /// Returns the command that the device did not complete within its deadline.
    pub(crate) fn uncompleted(&self) -> Option<&str> {
        match self {
            Self::TimedOut { command, .. } | Self::BudgetExhausted { command, .. } => Some(command),
            Self::QueueStuck { .. } => Some("one of a full queue"),
            Self::NotRecovered { source, .. } => source.uncompleted(),
            _ => None,
        }
    }

    /// Returns the status if the controller completed a command with an error.
    pub fn status(&self) -> Option<Status> {
        match self {
            Self::Command { status, .. } => Some(*status),
            _ => None,
        }
    }
}

fn queue_name(queue: u16) -> String {
    if queue == 0 { "the admin queue".to_owned() } else { format!("queue {queue}") }
}

fn power(shift: u8) -> String {
    1u64.checked_shl(shift.into()).map_or_else(|| format!("2^{shift}"), |bytes| bytes.to_string())
}

/// Creates the error for a register whose value it can never hold.
pub(super) fn gone(device: &str, register: &'static str, value: u32) -> NvmeError {
    NvmeError::Gone { device: device.to_owned(), register, value }
}

/// Creates the error for a command that the controller completed with an error, and keeps the bytes of both entries.
pub(super) fn refused(
    interface: Interface,
    device: &str,
    queue: u16,
    command: String,
    entry: &SqEntry,
    done: &CqEntry,
) -> NvmeError {
    let status = done.status();
    refused::note(RefusedCommand {
        interface,
        device: device.to_owned(),
        command: command.clone(),
        input: refused::digits(bytemuck::bytes_of(entry)),
        output: refused::digits(bytemuck::bytes_of(done)),
        status: status.without_flags().0.into(),
        syndrome: None,
        meaning: status.to_string(),
    });
    NvmeError::Command { device: device.to_owned(), queue, command, opcode: entry.opcode(), status }
}

/// Creates the error for a CSTS.RDY that is clear unexpectedly. VS tells a device that left from one that was reset: on
/// a present device it never reads as zero or all ones.
pub(super) fn no_longer_ready(port: &dyn Port, device: &str, csts: u32) -> NvmeError {
    match port.read32(register::VS) {
        Ok(value @ (0 | u32::MAX)) => gone(device, "VS", value),
        Ok(_) => NvmeError::NoLongerReady { device: device.to_owned(), csts },
        Err(e) => e.into(),
    }
}

/// Returns the specification's name of an admin opcode.
pub(super) fn admin_name(opcode: u8) -> String {
    let name = match opcode {
        admin::DELETE_SQ => "delete I/O submission queue",
        admin::CREATE_SQ => "create I/O submission queue",
        admin::GET_LOG_PAGE => "get log page",
        admin::DELETE_CQ => "delete I/O completion queue",
        admin::CREATE_CQ => "create I/O completion queue",
        admin::IDENTIFY => "identify",
        admin::ABORT => "abort",
        admin::SET_FEATURES => "set features",
        admin::GET_FEATURES => "get features",
        admin::ASYNC_EVENT_REQUEST => "asynchronous event request",
        other => return format!("admin opcode {other:#04x}"),
    };
    name.to_owned()
}

/// Returns the specification's name of an I/O opcode.
pub(super) fn io_name(opcode: u8) -> String {
    let name = match opcode {
        io::FLUSH => "flush",
        io::WRITE => "write",
        io::READ => "read",
        io::WRITE_UNCORRECTABLE => "write uncorrectable",
        io::COMPARE => "compare",
        io::WRITE_ZEROES => "write zeroes",
        io::DATASET_MANAGEMENT => "dataset management",
        other => return format!("I/O opcode {other:#04x}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::nvme::status;

    #[test]
    fn errors_name_device_queue_command_and_status() {
        let e = NvmeError::Command {
            device: "qtest:a.img".into(),
            queue: 3,
            command: "read of 8 blocks at 100".into(),
            opcode: io::READ,
            status: status::LBA_OUT_OF_RANGE.dnr(),
        };
        assert_eq!(
            e.to_string(),
            "qtest:a.img: read of 8 blocks at 100 on queue 3: LBA out of range (type 0x0, code 0x80, do not retry)"
        );
        assert_eq!(e.status(), Some(status::LBA_OUT_OF_RANGE.dnr()));
        let e = NvmeError::TooManyQueues { device: "soft".into(), asked: 9, granted: 8, used: 2 };
        assert!(e.to_string().ends_with("ask for 6 or fewer"));
    }
}
