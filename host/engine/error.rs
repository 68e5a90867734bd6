//! How engines and runs fail.

use super::abi;
use crate::memory::MemoryError;
use crate::remedy::{Remedies, Remedy, pass_on};
use crate::wire::mlx5::{Syndrome, VendorSyndrome};
use crate::wire::nvme::Status;
use std::fmt;
use std::time::Duration;

/// Why an engine could not be had, or a kernel not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The crate was built without nvcc.
    #[error("built without a GPU image: no nvcc was found at build time")]
    NoDeviceImage,
    /// The crate was built for documentation only.
    #[error("built without the CPU image (DOCS_RS is set); unset it and build again")]
    NoCpuImage,
    /// The driver library is missing, or there is no device, or a driver call failed.
    #[error(transparent)]
    Cuda(#[from] crate::cuda::CudaError),
    /// The number of processors cannot be read.
    #[error(transparent)]
    Processors(#[from] crate::processors::BadProcessors),
    /// Memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The image was compiled against other headers.
    #[error(
        "the kernels were compiled against other headers: their ABI fingerprint is {image:#018x}, this host's is {host:#018x}; compile them against the folder that `warpbell include-dir` prints"
    )]
    AbiMismatch {
        /// What the image says.
        image: u64,
        /// What this crate has.
        host: u64,
    },
    /// No such kernel.
    #[error("the image has no kernel `{0}`; export it with WB_EXPORT")]
    NoKernel(String),
    /// The arguments do not fit the kernel's parameters.
    #[error("kernel `{kernel}` takes parameters of {expected:?} bytes, the launch gives {given:?}")]
    Arguments {
        /// Kernel.
        kernel: String,
        /// Sizes that it takes.
        expected: Vec<u32>,
        /// Sizes given.
        given: Vec<u32>,
    },
    /// A grid without threads, or one that the engine cannot hold.
    #[error("kernel `{kernel}`: a grid of {blocks} blocks of {threads} threads cannot be launched: {reason}")]
    Grid {
        /// Kernel.
        kernel: String,
        /// Blocks.
        blocks: u32,
        /// Threads in each.
        threads: u32,
        /// Why.
        reason: String,
    },
    /// A stream of another engine.
    #[error("the stream belongs to another engine; launch on it through the engine that made it")]
    ForeignStream,
    /// No thread for a stream.
    #[error("no thread for a stream: {0}")]
    Thread(#[source] std::io::Error),
    /// Somebody called `Engine::cancel`.
    #[error("cancelled: this engine starts no more kernels")]
    Cancelled,
    /// Somebody called `Engine::stop_for`.
    #[error("this engine starts no more kernels: {reason}")]
    Stopped {
        /// Why.
        reason: String,
    },
    /// The engine holds a kernel that would not end.
    #[error("this engine holds a kernel that did not end when it was told to; start the program again")]
    Poisoned,
}

impl EngineError {
    /// Returns the fact and the cause without what to do next: the reason of a choice, where there is another way.
    pub fn reason(&self) -> String {
        match self {
            Self::Cuda(e) => e.reason(),
            other => other.to_string(),
        }
    }
}

impl Remedies for EngineError {
    fn remedies(&self) -> Vec<Remedy> {
        match self {
            Self::NoDeviceImage => vec![Remedy::step("install CUDA 12 or 13 (or set NVCC) and build again")],
            Self::Cuda(e) => e.remedies(),
            Self::Memory(e) => e.remedies(),
            _ => Vec::new(),
        }
    }
}

/// How an operation ended: `wb_kind` of `status.h`, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// Success.
    Done,
    /// The device failed the command.
    DeviceError(Status),
    /// No completion within the deadline.
    TimedOut,
    /// Told to end.
    Stopped,
    /// Every frame of a cache set stayed pinned.
    NoFrame,
    /// Outside the volume, misaligned, or too large.
    BadArgument,
    /// The page could not be read earlier.
    Poisoned,
    /// No transport does this operation with that PE.
    Unreachable,
    /// The RDMA adapter failed the work request.
    NetworkError {
        /// Why.
        syndrome: Syndrome,
        /// And in the vendor's own numbers.
        vendor: VendorSyndrome,
    },
    /// A page does not have the checksum that was stored for it, however often it is read.
    Damaged,
    /// A word that this version does not know.
    Unknown(u32),
}

impl Outcome {
    /// Decodes a status word.
    pub fn from_word(word: u32) -> Self {
        match word >> abi::STATUS_KIND_SHIFT {
            abi::STATUS_DONE => Self::Done,
            abi::STATUS_DEVICE_ERROR => Self::DeviceError(Status((word & abi::STATUS_NVME_MASK) as u16)),
            abi::STATUS_TIMED_OUT => Self::TimedOut,
            abi::STATUS_STOPPED => Self::Stopped,
            abi::STATUS_NO_FRAME => Self::NoFrame,
            abi::STATUS_BAD_ARGUMENT => Self::BadArgument,
            abi::STATUS_POISONED => Self::Poisoned,
            abi::STATUS_UNREACHABLE => Self::Unreachable,
            abi::STATUS_NETWORK_ERROR => {
                let [syndrome, vendor] = ((word & abi::STATUS_SYNDROME_MASK) as u16).to_le_bytes();
                Self::NetworkError { syndrome: Syndrome(syndrome), vendor: VendorSyndrome(vendor) }
            }
            abi::STATUS_DAMAGED => Self::Damaged,
            _ => Self::Unknown(word),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done => f.write_str("done"),
            Self::DeviceError(s) => write!(f, "device error: {s}"),
            Self::TimedOut => f.write_str("timed out"),
            Self::Stopped => f.write_str("stopped"),
            Self::NoFrame => f.write_str("no cache frame: every page of the set stayed pinned"),
            Self::BadArgument => f.write_str("bad argument: outside the volume, misaligned or too large"),
            Self::Poisoned => f.write_str("the page could not be read earlier"),
            Self::Unreachable => f.write_str("no transport does this with that PE"),
            Self::NetworkError { syndrome, vendor } => {
                write!(f, "{} (syndrome {:#04x}, vendor {:#04x})", syndrome.name(), syndrome.0, vendor.0)?;
                if syndrome.cause().is_empty() { Ok(()) } else { write!(f, ": {}", syndrome.cause()) }
            }
            Self::Damaged => f.write_str("the page does not have the checksum that was stored for it"),
            Self::Unknown(w) => write!(f, "unknown status word {w:#010x}"),
        }
    }
}

/// One operation that failed inside a kernel: a command of a device, or a call of `shmem.cuh` (an `opcode` from
/// `abi::SHMEM_OPCODE` on), which uses the same words in its own way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationError {
    /// How it ended.
    pub outcome: Outcome,
    /// Device of the volume, from 0. Call: the other PE, or `abi::NO_PE`.
    pub device: u32,
    /// Queue pair of the device, from 0. Call: the PE that made it.
    pub queue: u32,
    /// Command identifier. Call: the channel of a collective.
    pub command: u32,
    /// NVMe opcode. Call: `wb_shmem_call` of `status.h`.
    pub opcode: u32,
    /// First logical block. Call: offset in the symmetric heap.
    pub lba: u64,
    /// Logical blocks. Call: bytes.
    pub blocks: u32,
}

/// What the calls of `wb_shmem_call` are, by their number from `abi::SHMEM_OPCODE`, and how they name the other PE.
const CALLS: [(&str, Kind); 11] = [
    ("put", Kind::To),
    ("get", Kind::From),
    ("signal", Kind::To),
    ("atomic", Kind::To),
    ("wait_until", Kind::Wait),
    ("quiet", Kind::Wait),
    ("barrier", Kind::Collective),
    ("broadcast", Kind::Collective),
    ("reduce", Kind::Collective),
    ("fcollect", Kind::Collective),
    ("alltoall", Kind::Collective),
];

/// Kinds of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// To another PE.
    To,
    /// From another PE.
    From,
    /// For something to happen here.
    Wait,
    /// With the other members of a team.
    Collective,
}

impl OperationError {
    /// Writes it as what it is: a call between PEs.
    fn call(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, kind) = CALLS.get((self.opcode - abi::SHMEM_OPCODE) as usize).unwrap_or(&("call", Kind::To));
        let (pe, outcome) = (self.queue, self.outcome);
        let other = (self.device != abi::NO_PE).then_some(self.device);
        let place = format!("({} bytes at heap offset {:#x})", self.blocks, self.lba);
        if *kind == Kind::Collective {
            write!(f, "{name} on PE {pe}")?;
            if self.command != 0 {
                write!(f, " (channel {})", self.command)?;
            }
            match (other, outcome) {
                (Some(other), Outcome::TimedOut) => write!(f, ": PE {other} did not come within the deadline")?,
                (Some(other), _) => write!(f, ", waiting for PE {other}")?,
                (None, _) => {}
            }
        } else {
            match (kind, other) {
                (Kind::From, Some(other)) => write!(f, "{name} from PE {other} to PE {pe} {place}")?,
                (Kind::To, Some(other)) => write!(f, "{name} from PE {pe} to PE {other} {place}")?,
                (_, Some(other)) => write!(f, "{name} on PE {pe}, waiting for PE {other} {place}")?,
                (_, None) => write!(f, "{name} on PE {pe} {place}")?,
            }
        }
        match outcome {
            // The kind's own words are about a volume.
            Outcome::BadArgument => f.write_str(": no such PE or bad address"),
            _ => write!(f, ": {outcome}"),
        }
    }
}

impl fmt::Display for OperationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.opcode >= abi::SHMEM_OPCODE {
            return self.call(f);
        }
        let what = match self.opcode {
            0 => "flush",
            1 => "write",
            2 => "read",
            _ => "command",
        };
        write!(
            f,
            "{what} of {} block(s) at LBA {} on device {} (queue {}, command {}): {}",
            self.blocks, self.lba, self.device, self.queue, self.command, self.outcome
        )
    }
}

/// How a run failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// Operations inside the kernel failed; the first comes first.
    #[error("kernel `{kernel}`: {}{}", first(.errors), more(*.count))]
    Operations {
        /// Kernel.
        kernel: String,
        /// What the log holds.
        errors: Vec<OperationError>,
        /// How many there were, also those that the log had no room for.
        count: u32,
    },
    /// Somebody called `Engine::stop_for` while it ran.
    #[error("kernel `{kernel}` was stopped: {reason}")]
    Stopped {
        /// Kernel.
        kernel: String,
        /// Why.
        reason: String,
        /// The waits that ended by it, as far as the log holds them.
        errors: Vec<OperationError>,
    },
    /// The kernel did not end in time, and ended when it was told to.
    #[error("kernel `{kernel}` did not end within {within:?} and was stopped")]
    TimedOut {
        /// Kernel.
        kernel: String,
        /// The time given.
        within: Duration,
    },
    /// The kernel did not end even when it was told to.
    #[error(
        "kernel `{kernel}` did not end {}, nor when it was told to stop; its memory is kept until the process ends",
        late(*.within, .errors, *.count)
    )]
    Stuck {
        /// Kernel.
        kernel: String,
        /// The time given.
        within: Duration,
        /// Entries of the log: the cause, if the kernel went on after an error.
        errors: Vec<OperationError>,
        /// Number of errors, also those that the log had no room for.
        count: u32,
    },
    /// The kernel broke: a fault on the GPU, or a panic of the thread that ran it.
    #[error("kernel `{kernel}` broke: {reason}")]
    Broken {
        /// Kernel.
        kernel: String,
        /// The driver's words.
        reason: String,
    },
    /// Memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

pass_on!(RunError: Memory);

fn first(errors: &[OperationError]) -> String {
    errors.first().map_or_else(|| "failed".to_owned(), OperationError::to_string)
}

fn late(within: Duration, errors: &[OperationError], count: u32) -> String {
    match errors {
        [] => format!("within {within:?}"),
        _ => format!("after an error: {}{}", first(errors), more(count)),
    }
}

fn more(count: u32) -> String {
    if count > 1 { format!(" (and {} more)", count - 1) } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(name: &str) -> OperationError {
        let opcode = abi::SHMEM_OPCODE + CALLS.iter().position(|(n, _)| *n == name).unwrap() as u32;
        OperationError { outcome: Outcome::TimedOut, device: 2, queue: 1, command: 0, opcode, lba: 0x1040, blocks: 8 }
    }

    #[test]
    fn calls_are_named_as_the_header_numbers_them() {
        let header = include_str!("../../kernels/include/warpbell/status.h");
        let numbered = header.lines().filter_map(|l| {
            let (name, rest) = l.trim().strip_prefix("WB_CALL_")?.split_once(" = 0x")?;
            let number = u32::from_str_radix(rest.split([',', ' ']).next()?, 16).ok()?;
            Some((name.to_lowercase(), number))
        });
        let numbered: Vec<_> = numbered.collect();
        assert_eq!(numbered.len(), CALLS.len());
        for (name, number) in numbered {
            let ours = CALLS[(number - abi::SHMEM_OPCODE) as usize].0;
            assert_eq!(ours, if name == "wait" { "wait_until" } else { &name });
        }
    }

    #[test]
    fn calls_say_who_and_where() {
        let pe = |device, e: OperationError| OperationError { device, ..e };
        let outcome = |outcome, e: OperationError| OperationError { outcome, ..e };
        for (error, text) in [
            (call("barrier"), "barrier on PE 1: PE 2 did not come within the deadline: timed out"),
            (outcome(Outcome::Stopped, call("reduce")), "reduce on PE 1, waiting for PE 2: stopped"),
            (pe(abi::NO_PE, outcome(Outcome::Stopped, call("barrier"))), "barrier on PE 1: stopped"),
            (
                OperationError { command: 3, ..call("alltoall") },
                "alltoall on PE 1 (channel 3): PE 2 did not come within the deadline: timed out",
            ),
            (pe(abi::NO_PE, call("wait_until")), "wait_until on PE 1 (8 bytes at heap offset 0x1040): timed out"),
            (
                pe(9, outcome(Outcome::BadArgument, call("put"))),
                "put from PE 1 to PE 9 (8 bytes at heap offset 0x1040): no such PE or bad address",
            ),
            (
                outcome(Outcome::BadArgument, call("get")),
                "get from PE 2 to PE 1 (8 bytes at heap offset 0x1040): no such PE or bad address",
            ),
            (
                outcome(Outcome::from_word(8 << abi::STATUS_KIND_SHIFT), call("atomic")),
                "atomic from PE 1 to PE 2 (8 bytes at heap offset 0x1040): no transport does this with that PE",
            ),
            (
                OperationError { opcode: u32::MAX, ..call("put") },
                "call from PE 1 to PE 2 (8 bytes at heap offset 0x1040): timed out",
            ),
        ] {
            assert_eq!(error.to_string(), text);
        }
    }

    #[test]
    fn commands_of_devices_read_as_before() {
        let read = OperationError { opcode: 2, device: 0, queue: 3, command: 7, ..call("put") };
        assert_eq!(read.to_string(), "read of 8 block(s) at LBA 4160 on device 0 (queue 3, command 7): timed out");
    }
}
