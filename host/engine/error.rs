//! Errors of engines and of kernel runs.

use super::abi;
use crate::memory::MemoryError;
use crate::remedy::{Remedies, Remedy, pass_on};
use crate::wire::mlx5::{Syndrome, VendorSyndrome};
use crate::wire::nvme::Status;
use std::fmt;
use std::time::Duration;

/// Error of opening an engine or starting a kernel.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The crate was built without nvcc, so it has no GPU image.
    #[error("built without a GPU image: no nvcc was found at build time")]
    NoDeviceImage,
    /// The crate was built for documentation only, without the CPU image.
    #[error("built without the CPU image (DOCS_RS is set); unset it and build again")]
    NoCpuImage,
    /// The CUDA driver is missing, there is no such GPU, or a driver call failed.
    #[error(transparent)]
    Cuda(#[from] crate::cuda::CudaError),
    /// The environment variable for the number of processors has an invalid value.
    #[error(transparent)]
    Processors(#[from] crate::processors::BadProcessors),
    /// Memory could not be allocated or accessed.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// An image was compiled against other headers.
    #[error(
        "the kernels{} were compiled against other headers: their ABI fingerprint is {found:#018x}, this host's is {host:#018x}; compile them against the folder that `warpbell include-dir` prints",
        of_image(.image)
    )]
    AbiMismatch {
        /// Name of the image, if it has one yet.
        image: Option<String>,
        /// Fingerprint of the image; 0 if no part of it ends with `WB_IMAGE`.
        found: u64,
        /// Fingerprint of this crate.
        host: u64,
    },
    /// An image has no kernels for this kind of engine.
    #[error("image `{image}` has no kernels for {kind} engines; compile it for them too (`Image::cpu`, `Image::gpu`)")]
    MissingImage {
        /// Name of the image.
        image: String,
        /// Kind of engine that was to be opened.
        kind: super::EngineKind,
    },
    /// Two images have a kernel of one name.
    #[error(
        "kernel `{kernel}` is in image `{}` and in image `{}`; rename one of the two, or leave an image out",
        .images[0],
        .images[1]
    )]
    DuplicateKernel {
        /// Name of the kernel.
        kernel: String,
        /// Names of the images: equal if two parts of one image have the kernel.
        images: [String; 2],
    },
    /// The driver loaded a part of an image, and found no kernel there.
    #[error(
        "a part of image `{image}` has {bytes} bytes and no kernel, as a linker may return after it has rejected an input; check the result of each call that adds an input to it"
    )]
    EmptyImage {
        /// Name of the image.
        image: String,
        /// Bytes of the part.
        bytes: usize,
    },
    /// Images for CPU threads have warps of different widths.
    #[error(
        "image `{}` has warps of {} lanes and image `{}` of {}; compile both with one WB_WARP_WIDTH",
        .images[0],
        .widths[0],
        .images[1],
        .widths[1]
    )]
    WarpWidth {
        /// Names of the images.
        images: [String; 2],
        /// Their numbers of lanes in a warp.
        widths: [u32; 2],
    },
    /// No image of the engine has a kernel of this name.
    #[error("no image of this engine has a kernel `{0}`; export it with WB_EXPORT, or add its image to the engine")]
    NoKernel(String),
    /// The arguments do not match the kernel's parameters.
    #[error("kernel `{kernel}` takes parameters of {expected:?} bytes, the launch gives {given:?}")]
    Arguments {
        /// Name of the kernel.
        kernel: String,
        /// Sizes of its parameters, in bytes.
        expected: Vec<u32>,
        /// Sizes of the given arguments, in bytes.
        given: Vec<u32>,
    },
    /// The grid has no threads, its blocks are not whole warps, or it is larger than the engine supports.
    #[error("kernel `{kernel}`: a grid of {blocks} blocks of {threads} threads cannot be launched: {reason}")]
    Grid {
        /// Name of the kernel.
        kernel: String,
        /// Number of blocks.
        blocks: u32,
        /// Number of threads per block.
        threads: u32,
        /// Rule that the grid violates, or the error of starting a thread.
        reason: String,
    },
    /// The stream belongs to another engine.
    #[error("the stream belongs to another engine; use streams of one engine together")]
    ForeignStream,
    /// A CUDA stream was given to a CPU engine.
    #[error("a cpu engine has no CUDA streams; use a stream of the engine (`Engine::stream`)")]
    NoCudaStreams,
    /// Kernels are still in flight.
    #[error("{runs} run(s) of this engine are still in flight; finish or drop them first")]
    Busy {
        /// Number of runs, a stream with kernels in flight counting as one.
        runs: usize,
    },
    /// The thread of a stream could not be started.
    #[error("the thread of a stream cannot be started: {0}")]
    Thread(#[source] std::io::Error),
    /// `Engine::cancel` was called.
    #[error("cancelled: this engine starts no kernels until it is resumed")]
    Cancelled,
    /// `Engine::stop_for` was called.
    #[error("this engine starts no more kernels: {reason}")]
    Stopped {
        /// Reason that the caller gave.
        reason: String,
    },
    /// A kernel of this engine did not end when it was told to stop.
    #[error("a kernel of this engine did not end when it was told to stop; start the program again")]
    Poisoned,
}

fn of_image(name: &Option<String>) -> String {
    name.as_ref().map_or_else(String::new, |name| format!(" of image `{name}`"))
}

impl EngineError {
    /// Returns the fact and the cause, without the next step. For messages that say why an alternative was chosen.
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

/// Outcome of an operation: a decoded status word (`wb_kind` of `status.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The operation succeeded.
    Done,
    /// The device rejected or failed the command.
    DeviceError(Status),
    /// No completion arrived within the deadline.
    TimedOut,
    /// The host set the stop flag, or another thread raised the run's error.
    Stopped,
    /// Every frame of the page's cache set stayed pinned.
    NoFrame,
    /// The operation was outside the volume, misaligned, or too large.
    BadArgument,
    /// An earlier read of the page failed.
    Poisoned,
    /// No transport supports this operation with that PE.
    Unreachable,
    /// The RDMA adapter failed the work request.
    NetworkError {
        /// Syndrome of the completion.
        syndrome: Syndrome,
        /// Vendor syndrome of the completion.
        vendor: VendorSyndrome,
    },
    /// A page does not match its stored checksum, on repeated reads too.
    Damaged,
    /// The status word has a kind that this version does not know.
    Unknown(u32),
}

impl Outcome {
    /// Decodes a status word of a kernel (`status.h`).
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

impl Outcome {
    /// Encodes the outcome as a status word (`status.h`): the inverse of [`Outcome::from_word`].
    pub fn word(self) -> u32 {
        let (kind, detail) = match self {
            Self::Done => (abi::STATUS_DONE, 0),
            Self::DeviceError(status) => (abi::STATUS_DEVICE_ERROR, u32::from(status.0) & abi::STATUS_NVME_MASK),
            Self::TimedOut => (abi::STATUS_TIMED_OUT, 0),
            Self::Stopped => (abi::STATUS_STOPPED, 0),
            Self::NoFrame => (abi::STATUS_NO_FRAME, 0),
            Self::BadArgument => (abi::STATUS_BAD_ARGUMENT, 0),
            Self::Poisoned => (abi::STATUS_POISONED, 0),
            Self::Unreachable => (abi::STATUS_UNREACHABLE, 0),
            Self::NetworkError { syndrome, vendor } => {
                (abi::STATUS_NETWORK_ERROR, u32::from(u16::from_le_bytes([syndrome.0, vendor.0])))
            }
            Self::Damaged => (abi::STATUS_DAMAGED, 0),
            Self::Unknown(word) => return word,
        };
        kind << abi::STATUS_KIND_SHIFT | detail
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
            Self::Poisoned => f.write_str("an earlier read of the page failed"),
            Self::Unreachable => f.write_str("no transport supports this operation with that PE"),
            Self::NetworkError { syndrome, vendor } => {
                write!(f, "{} (syndrome {:#04x}, vendor {:#04x})", syndrome.name(), syndrome.0, vendor.0)?;
                if syndrome.cause().is_empty() { Ok(()) } else { write!(f, ": {}", syndrome.cause()) }
            }
            Self::Damaged => f.write_str("the page does not match its stored checksum"),
            Self::Unknown(w) => write!(f, "unknown status word {w:#010x}"),
        }
    }
}

/// One operation that failed inside a kernel: a command of a device, a call of `shmem.cuh`, or an index that is no row
/// of a table (`table_index`). Calls have an `opcode` from `abi::SHMEM_OPCODE` on, and give the other
/// fields the meaning that each names after "Call:".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationError {
    /// Outcome of the operation.
    pub outcome: Outcome,
    /// Index of the device in the volume, from 0. Call: the other PE, or `abi::NO_PE`.
    pub device: u32,
    /// Index of the device's queue pair, from 0. Call: the PE that made the call.
    pub queue: u32,
    /// Command identifier. Call: the channel of a collective.
    pub command: u32,
    /// NVMe opcode. Call: a value of `wb_shmem_call` of `status.h`.
    pub opcode: u32,
    /// First logical block. Call: offset in the symmetric heap, or in the window, in bytes.
    pub lba: u64,
    /// Number of logical blocks. Call: number of bytes.
    pub blocks: u32,
}

/// Name and kind of each call of `wb_shmem_call`, indexed by its number minus `abi::SHMEM_OPCODE`.
const CALLS: [(&str, Kind); 14] = [
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
    ("flush", Kind::Wait),
    // Of a window.
    ("put", Kind::To),
    ("get", Kind::From),
];

/// Kind of a call: the part that the other PE has in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Transfers to the other PE.
    To,
    /// Transfers from the other PE.
    From,
    /// Waits for an event on this PE.
    Wait,
    /// Involves all members of a team.
    Collective,
}

impl OperationError {
    /// Returns the entry of the error log that says the same.
    pub fn to_abi(&self) -> abi::ErrorEntry {
        let Self { outcome, device, queue, command, opcode, lba, blocks } = *self;
        abi::ErrorEntry { status: outcome.word(), device, queue, command, opcode, blocks, lba }
    }

    /// Returns position, index and number of rows, if the operation was to gather or write a row that a table does not
    /// have (`abi::TABLE_OPCODE`).
    pub(crate) fn table_index(&self) -> Option<(u64, u64, u64)> {
        let joined = |upper: u32, lower: u32| u64::from(upper) << 32 | u64::from(lower);
        let of_table = self.opcode == abi::TABLE_OPCODE && self.outcome == Outcome::BadArgument;
        of_table.then(|| (self.lba, joined(self.queue, self.command), joined(self.device, self.blocks)))
    }

    /// Writes the error of a call between PEs.
    fn call(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, kind) = CALLS.get((self.opcode - abi::SHMEM_OPCODE) as usize).unwrap_or(&("call", Kind::To));
        let (pe, outcome) = (self.queue, self.outcome);
        let other = (self.device != abi::NO_PE).then_some(self.device);
        let of_window = (abi::CALL_WINDOW_PUT..=abi::CALL_WINDOW_GET).contains(&self.opcode);
        let memory = if of_window { "window" } else { "heap" };
        let place = format!("({} bytes at {memory} offset {:#x})", self.blocks, self.lba);
        if *kind == Kind::Collective {
            write!(f, "{name} on PE {pe}")?;
            if self.command != 0 {
                write!(f, " (channel {})", self.command)?;
            }
            match (other, outcome) {
                (Some(other), Outcome::TimedOut) => write!(f, ": PE {other} did not arrive within the deadline")?,
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
            // The outcome's own text describes a volume.
            Outcome::BadArgument => f.write_str(": no such PE or bad address"),
            _ => write!(f, ": {outcome}"),
        }
    }
}

impl fmt::Display for OperationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((position, index, rows)) = self.table_index() {
            return write!(f, "index {index} at position {position} of the batch: the table has {rows} rows");
        }
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

/// Error of a kernel run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// Operations inside the kernel failed. Those that caused the others to end come first.
    #[error("kernel `{kernel}`: {}{}", first(.errors), more(*.count))]
    Operations {
        /// Name of the kernel.
        kernel: String,
        /// Entries of the error log.
        errors: Vec<OperationError>,
        /// Number of errors, including those for which the log had no space.
        count: u32,
    },
    /// `Engine::cancel` or `Engine::stop_for` was called while the kernel ran.
    #[error("kernel `{kernel}` was stopped: {reason}")]
    Stopped {
        /// Name of the kernel.
        kernel: String,
        /// Reason that the caller gave, or that the engine was cancelled.
        reason: String,
        /// Waits that ended because of the stop: the entries of the error log.
        errors: Vec<OperationError>,
    },
    /// The kernel did not end within its limit, but ended when it was told to stop.
    #[error("kernel `{kernel}` did not end within {within:?} and was stopped")]
    TimedOut {
        /// Name of the kernel.
        kernel: String,
        /// The limit.
        within: Duration,
    },
    /// The kernel did not end even when it was told to stop.
    #[error(
        "kernel `{kernel}` did not end {}, nor when it was told to stop; its memory is kept until the process ends",
        late(*.within, .errors, *.count)
    )]
    Stuck {
        /// Name of the kernel.
        kernel: String,
        /// The limit.
        within: Duration,
        /// Entries of the error log: the cause, if the kernel continued after an error.
        errors: Vec<OperationError>,
        /// Number of errors, including those for which the log had no space.
        count: u32,
    },
    /// The kernel broke: it faulted on the GPU, or a CPU thread that ran it panicked.
    #[error("kernel `{kernel}` failed: {reason}")]
    Broken {
        /// Name of the kernel.
        kernel: String,
        /// The driver's description, or that of the CPU engine.
        reason: String,
    },
    /// The flags or the error log could not be accessed.
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
            let name = name.trim_start_matches("window_");
            assert_eq!(ours, if name == "wait" { "wait_until" } else { name });
        }
    }

    #[test]
    fn calls_say_who_and_where() {
        let pe = |device, e: OperationError| OperationError { device, ..e };
        let outcome = |outcome, e: OperationError| OperationError { outcome, ..e };
        for (error, text) in [
            (call("barrier"), "barrier on PE 1: PE 2 did not arrive within the deadline: timed out"),
            (outcome(Outcome::Stopped, call("reduce")), "reduce on PE 1, waiting for PE 2: stopped"),
            (pe(abi::NO_PE, outcome(Outcome::Stopped, call("barrier"))), "barrier on PE 1: stopped"),
            (
                OperationError { command: 3, ..call("alltoall") },
                "alltoall on PE 1 (channel 3): PE 2 did not arrive within the deadline: timed out",
            ),
            (pe(abi::NO_PE, call("wait_until")), "wait_until on PE 1 (8 bytes at heap offset 0x1040): timed out"),
            (
                pe(9, outcome(Outcome::BadArgument, call("put"))),
                "put from PE 1 to PE 9 (8 bytes at heap offset 0x1040): no such PE or bad address",
            ),
            (
                OperationError { opcode: abi::CALL_WINDOW_GET, ..outcome(Outcome::BadArgument, call("get")) },
                "get from PE 2 to PE 1 (8 bytes at window offset 0x1040): no such PE or bad address",
            ),
            (
                outcome(Outcome::BadArgument, call("get")),
                "get from PE 2 to PE 1 (8 bytes at heap offset 0x1040): no such PE or bad address",
            ),
            (
                outcome(Outcome::from_word(8 << abi::STATUS_KIND_SHIFT), call("atomic")),
                "atomic from PE 1 to PE 2 (8 bytes at heap offset 0x1040): no transport supports this operation with that PE",
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
    fn outcomes_are_the_words_that_they_were_read_from() {
        for kind in 0..16u32 {
            for detail in [0, 0x281, 0x7fff] {
                let word = kind << abi::STATUS_KIND_SHIFT | detail;
                let decoded = Outcome::from_word(word);
                assert_eq!(Outcome::from_word(decoded.word()), decoded, "{word:#x}");
            }
        }
        assert_eq!(Outcome::from_word(0x2000_0281).word(), 0x2000_0281);
        assert_eq!(Outcome::from_word(0x9000_8113).word(), 0x9000_8113);
    }

    #[test]
    fn an_index_of_no_row_is_told_with_its_position() {
        let error = OperationError {
            outcome: Outcome::BadArgument,
            device: 1,
            queue: 2,
            command: 3,
            opcode: abi::TABLE_OPCODE,
            lba: 7,
            blocks: 5,
        };
        assert_eq!(error.to_string(), "index 8589934595 at position 7 of the batch: the table has 4294967301 rows");
    }

    #[test]
    fn commands_of_devices_read_as_before() {
        let read = OperationError { opcode: 2, device: 0, queue: 3, command: 7, ..call("put") };
        assert_eq!(read.to_string(), "read of 8 block(s) at LBA 4160 on device 0 (queue 3, command 7): timed out");
    }
}
