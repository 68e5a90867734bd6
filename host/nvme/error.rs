//! How the driver fails: which device, which queue, which command, the numbers, and what to do next.

use super::{Port, PortError, RecoveryReport};
use crate::memory::{DmaError, MemoryError};
use crate::wire::nvme::{Status, admin, io, register};
use std::time::Duration;

/// What a controller or one of its queues could not do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NvmeError {
    /// A register access failed.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The device got no address for memory, or there was none.
    #[error(transparent)]
    Dma(#[from] DmaError),
    /// Memory for kernels.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// Registers read as all ones, which is what a bus answers for a device that left it, or as zero, which is what some
    /// virtual machines answer.
    #[error("{device}: the controller is gone ({register} reads as {value:#010x}); check the slot, then open it again")]
    Gone {
        /// Which device.
        device: String,
        /// The register that was read.
        register: &'static str,
        /// What it reads as: all ones, or zero.
        value: u32,
    },
    /// The registers are not those of an NVMe controller.
    #[error("{device} is not an NVMe controller: CAP is {cap:#018x} and VS {version:#010x}")]
    NotAController {
        /// Which device.
        device: String,
        /// CAP.
        cap: u64,
        /// VS.
        version: u32,
    },
    /// The controller has no 4 KiB pages.
    #[error(
        "{device}: its smallest memory page is {smallest} bytes; this driver needs pages of 4096 bytes (CAP.MPSMIN)"
    )]
    PageSize {
        /// Which device.
        device: String,
        /// The smallest page in bytes.
        smallest: u64,
    },
    /// The controller does not take the NVM command set.
    #[error("{device} does not support the NVM command set (CAP.CSS is {css:#04x}); only block storage can be driven")]
    CommandSet {
        /// Which device.
        device: String,
        /// CAP.CSS.
        css: u8,
    },
    /// Its queue entries are of other sizes.
    #[error(
        "{device}: its submission entries are of {} bytes and its completion entries of {} bytes at least (SQES, CQES); this driver has 64 and 16",
        power(*.sq_shift),
        power(*.cq_shift)
    )]
    EntrySizes {
        /// Which device.
        device: String,
        /// log2 of the submission entry that it requires.
        sq_shift: u8,
        /// log2 of the completion entry that it requires.
        cq_shift: u8,
    },
    /// It has no I/O queues.
    #[error("{device} is {kind}, which has no namespaces to read; name an I/O controller")]
    NotIo {
        /// Which device.
        device: String,
        /// `a discovery controller` or `an administrative controller`.
        kind: &'static str,
    },
    /// An optional command that the controller does not have.
    #[error("{device} does not support {command} ({bit} is clear); {next}")]
    Unsupported {
        /// Which device.
        device: String,
        /// The command.
        command: &'static str,
        /// The bit that says so, or the quirk.
        bit: &'static str,
        /// What to do instead.
        next: &'static str,
    },
    /// CSTS.RDY did not follow CC.EN.
    #[error(
        "{device} did not {what} within {waited:?} (CAP.TO), CSTS is {csts:#010x}; reset or power-cycle the device and open it again"
    )]
    NotReady {
        /// Which device.
        device: String,
        /// `become ready`, `become idle` or `finish its shutdown`.
        what: &'static str,
        /// How long it was given.
        waited: Duration,
        /// The last CSTS.
        csts: u32,
    },
    /// CSTS.RDY went away under the driver.
    #[error(
        "{device} is no longer ready (CSTS is {csts:#010x}): it was reset, or another program drives it; close it and open it again"
    )]
    NoLongerReady {
        /// Which device.
        device: String,
        /// CSTS.
        csts: u32,
    },
    /// CSTS.CFS.
    #[error(
        "{device} reports a fatal status {during} (CSTS is {csts:#010x}); close it and open it again, which resets it"
    )]
    Fatal {
        /// Which device.
        device: String,
        /// What was going on.
        during: String,
        /// CSTS.
        csts: u32,
    },
    /// The controller failed a command.
    #[error("{device}: {command} on {}: {status}", queue_name(*.queue))]
    Command {
        /// Which device.
        device: String,
        /// Queue identifier, 0 for the admin queue.
        queue: u16,
        /// The command in words, with its numbers.
        command: String,
        /// Opcode.
        opcode: u8,
        /// The controller's answer.
        status: Status,
    },
    /// No completion in time.
    #[error(
        "{device}: no completion of {command} on {} (command {cid}) within {waited:?}, CSTS is {csts:#010x}; {next}",
        queue_name(*.queue)
    )]
    TimedOut {
        /// Which device.
        device: String,
        /// Queue identifier, 0 for the admin queue.
        queue: u16,
        /// The command in words, with its numbers.
        command: String,
        /// Opcode.
        opcode: u8,
        /// Command identifier.
        cid: u16,
        /// How long it was given.
        waited: Duration,
        /// CSTS afterwards.
        csts: u32,
        /// What was done about it, or what to do.
        next: &'static str,
    },
    /// Every slot of a queue belongs to a command without completion.
    #[error(
        "{device}: {} holds {outstanding} commands without completion and takes no more; close the controller and open it again",
        queue_name(*.queue)
    )]
    QueueStuck {
        /// Which device.
        device: String,
        /// Queue identifier, 0 for the admin queue.
        queue: u16,
        /// Commands without completion.
        outstanding: usize,
    },
    /// A reset of the controller ended the queues.
    #[error("{device}: these queues went with a reset of the controller; reset them before they are used again")]
    QueuesLost {
        /// Which device.
        device: String,
    },
    /// Nothing helped.
    #[error("{report}; not recovered: {source}")]
    NotRecovered {
        /// What was tried.
        report: Box<RecoveryReport>,
        /// Why the last step failed.
        source: Box<NvmeError>,
    },
    /// A completion that belongs to no command.
    #[error("{device}: {} got a completion for command {cid}, which is not outstanding; reset the device", queue_name(*.queue))]
    StrayCompletion {
        /// Which device.
        device: String,
        /// Queue identifier, 0 for the admin queue.
        queue: u16,
        /// The identifier that it names.
        cid: u16,
    },
    /// No such namespace.
    #[error("{device} has no active namespace {nsid}; active are {active:?}")]
    NoNamespace {
        /// Which device.
        device: String,
        /// The one asked for.
        nsid: u32,
        /// Those that there are.
        active: Vec<u32>,
    },
    /// A namespace in a format that is not driven.
    #[error(
        "{device}: namespace {nsid} cannot be used: {reason}; format it with blocks of 512 or 4096 bytes without metadata"
    )]
    Format {
        /// Which device.
        device: String,
        /// Namespace.
        nsid: u32,
        /// What is in the way.
        reason: String,
    },
    /// A queue option that cannot be.
    #[error("{device}: {reason}")]
    Options {
        /// Which device.
        device: String,
        /// The option, its value, and the values that it may have.
        reason: String,
    },
    /// The depth is not a power of two between 2 and 65,536.
    #[error("{device}: a queue depth of {depth} is not a power of two from 2 to 65536")]
    Depth {
        /// Which device.
        device: String,
        /// Depth asked for.
        depth: u32,
    },
    /// The depth is beyond CAP.MQES.
    #[error(
        "{device}: a queue depth of {depth} is more than the controller's {most} entries (CAP.MQES); ask for {fits} or fewer"
    )]
    TooDeep {
        /// Which device.
        device: String,
        /// Depth asked for.
        depth: u32,
        /// MQES + 1.
        most: u32,
        /// The largest power of two in it.
        fits: u32,
    },
    /// More queues than the controller has left.
    #[error(
        "{device}: {asked} queue pairs asked for, the controller grants {granted} and {used} of them are in use; ask for {} or fewer",
        granted - used
    )]
    TooManyQueues {
        /// Which device.
        device: String,
        /// Pairs asked for.
        asked: u32,
        /// Pairs that the controller grants in all.
        granted: u32,
        /// Pairs in use.
        used: u32,
    },
    /// A transfer outside the namespace, or not of whole blocks.
    #[error("{device}: {bytes} bytes at block {lba} of namespace {nsid}: {reason}")]
    Range {
        /// Which device.
        device: String,
        /// Namespace.
        nsid: u32,
        /// First block.
        lba: u64,
        /// Length in bytes.
        bytes: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// The doorbell window is too small for a queue.
    #[error(
        "{device}: the doorbell of queue {queue} lies {offset} bytes into a window of {window}; ask for fewer queues"
    )]
    NoDoorbell {
        /// Which device.
        device: String,
        /// Queue identifier.
        queue: u16,
        /// Bytes from the first doorbell.
        offset: usize,
        /// Bytes in the window.
        window: usize,
    },
    /// The controller memory buffer cannot be used.
    #[error("{device}: no controller memory buffer for queues: {reason}")]
    NoMemoryBuffer {
        /// Which device.
        device: String,
        /// Why, and what to do.
        reason: String,
    },
    /// Kernels were to ring, and cannot.
    #[error("{device}: kernels cannot ring its doorbells: {reason}")]
    NoKernelDoorbell {
        /// Which device.
        device: String,
        /// Why, and what to do.
        reason: String,
    },
    /// The thread that forwards doorbells could not be started, or a register write of it failed.
    #[error("{device}: doorbells are not forwarded: {reason}; drop the queues and create them again")]
    Forwarder {
        /// Which device.
        device: String,
        /// Why.
        reason: String,
    },
}

crate::remedy::pass_on!(NvmeError: Dma, Memory);

impl NvmeError {
    /// Whether the device has left: nothing that is sent to it is answered any more.
    pub fn is_gone(&self) -> bool {
        match self {
            Self::Gone { .. } => true,
            Self::NotRecovered { source, .. } => source.is_gone(),
            _ => false,
        }
    }

    /// The status, if the controller failed a command.
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

/// A register that reads as nothing that it can hold.
pub(super) fn gone(device: &str, register: &'static str, value: u32) -> NvmeError {
    NvmeError::Gone { device: device.to_owned(), register, value }
}

/// Why CSTS.RDY is clear under the driver: VS, which never reads as zero or all ones, tells a device that left from one that was
/// reset.
pub(super) fn no_longer_ready(port: &dyn Port, device: &str, csts: u32) -> NvmeError {
    match port.read32(register::VS) {
        Ok(value @ (0 | u32::MAX)) => gone(device, "VS", value),
        Ok(_) => NvmeError::NoLongerReady { device: device.to_owned(), csts },
        Err(e) => e.into(),
    }
}

/// The specification's name of an admin opcode.
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

/// The specification's name of an I/O opcode.
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
