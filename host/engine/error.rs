//! How engines and runs fail.

use super::abi;
use crate::memory::MemoryError;
use crate::wire::nvme::Status;
use std::fmt;
use std::time::Duration;

/// Why an engine could not be had, or a kernel not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The crate was built without nvcc.
    #[error(
        "built without a GPU image: no nvcc was found at build time; install CUDA 12 or 13 (or set NVCC) and build again, or use --engine cpu"
    )]
    NoDeviceImage,
    /// The crate was built for documentation only.
    #[error("built without the CPU image (DOCS_RS is set); unset it and build again")]
    NoCpuImage,
    /// The driver library is missing, or there is no device, or a driver call failed.
    #[error(transparent)]
    Cuda(#[from] crate::cuda::CudaError),
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
    /// Somebody called `Engine::cancel`.
    #[error("cancelled: this engine starts no more kernels")]
    Cancelled,
    /// The engine holds a kernel that would not end.
    #[error("this engine holds a kernel that did not end when it was told to; start the program again")]
    Poisoned,
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
    /// A word that this version does not know.
    Unknown(u32),
}

impl Outcome {
    /// Decodes a status word.
    pub fn from_word(word: u32) -> Self {
        match word >> abi::STATUS_KIND_SHIFT {
            0 => Self::Done,
            2 => Self::DeviceError(Status((word & abi::STATUS_NVME_MASK) as u16)),
            3 => Self::TimedOut,
            4 => Self::Stopped,
            5 => Self::NoFrame,
            6 => Self::BadArgument,
            7 => Self::Poisoned,
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
            Self::Unknown(w) => write!(f, "unknown status word {w:#010x}"),
        }
    }
}

/// One operation that failed inside a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationError {
    /// How it ended.
    pub outcome: Outcome,
    /// Device of the volume, from 0.
    pub device: u32,
    /// Queue pair of the device, from 0.
    pub queue: u32,
    /// Command identifier.
    pub command: u32,
    /// NVMe opcode.
    pub opcode: u32,
    /// First logical block.
    pub lba: u64,
    /// Logical blocks.
    pub blocks: u32,
}

impl fmt::Display for OperationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
        "kernel `{kernel}` did not end within {within:?}, nor when it was told to stop; its memory is kept until the process ends"
    )]
    Stuck {
        /// Kernel.
        kernel: String,
        /// The time given.
        within: Duration,
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

fn first(errors: &[OperationError]) -> String {
    errors.first().map_or_else(|| "failed".to_owned(), OperationError::to_string)
}

fn more(count: u32) -> String {
    if count > 1 { format!(" (and {} more)", count - 1) } else { String::new() }
}
