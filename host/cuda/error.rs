//! Errors of the CUDA driver, and their remedies.

use crate::remedy::{Remedies, Remedy};
use std::fmt;

/// Error of the CUDA driver: a call failed, or there is no driver or no GPU.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CudaError {
    /// libcuda is not installed.
    #[error("no CUDA driver: libcuda.so.1 not found")]
    NoDriver,
    /// The driver is present, but does not find this GPU.
    #[error("no GPU {ordinal}: the CUDA driver {}", found(*.count))]
    NoDevice {
        /// Ordinal that was requested, from 0.
        ordinal: usize,
        /// Number of GPUs that the driver finds.
        count: usize,
    },
    /// The driver lacks a function that this crate needs.
    #[error("the CUDA driver is too old: it has no {symbol}")]
    OldDriver {
        /// Name of the missing function.
        symbol: &'static str,
    },
    /// A driver call failed.
    #[error("{}{}", .0, next(.0))]
    Call(#[from] Box<FailedCall>),
    /// The GPU did not complete work within a time that is far longer than the work takes.
    #[error("{what}: the GPU did not answer within {seconds} s")]
    NoAnswer {
        /// Operation that was in progress.
        what: &'static str,
        /// Time that was waited, in seconds.
        seconds: u64,
    },
    /// The stream is being captured into a CUDA graph, so work on it would not run now.
    #[error("{what}: the stream is being captured into a CUDA graph")]
    Capturing {
        /// Operation that was requested.
        what: &'static str,
    },
    /// The handle is no stream that the context can use.
    #[error("stream {stream:#x} cannot be used: {reason}")]
    BadStream {
        /// Handle of the stream (`CUstream`), as a number.
        stream: usize,
        /// Cause, and what to pass instead.
        reason: &'static str,
    },
}

fn found(count: usize) -> String {
    match count {
        0 => "finds no GPU".to_owned(),
        1 => "finds one, GPU 0".to_owned(),
        n => format!("finds {n}, GPU 0 to {}", n - 1),
    }
}

fn next(call: &FailedCall) -> String {
    if call.next.is_empty() { String::new() } else { format!("; {}", call.next) }
}

impl CudaError {
    /// Returns fact and cause without the next step. For messages that say why an alternative was chosen.
    pub fn reason(&self) -> String {
        match self {
            Self::Call(call) => call.to_string(),
            other => other.to_string(),
        }
    }
}

impl Remedies for CudaError {
    fn remedies(&self) -> Vec<Remedy> {
        let step = match self {
            Self::NoDriver => "install the NVIDIA driver",
            Self::NoDevice { count: 0, .. } => {
                "check that lspci shows a GPU, that this user may open /dev/nvidia*, and that CUDA_VISIBLE_DEVICES is not empty"
            }
            Self::NoDevice { .. } => "choose one of those",
            Self::OldDriver { .. } => "update the NVIDIA driver (570, which is CUDA 12.8, or later)",
            Self::NoAnswer { .. } => LOOK_IN_LOG,
            Self::Capturing { .. } => {
                "end the capture first; kernels of the program itself may be captured, and their graph launched within Engine::external"
            }
            Self::BadStream { .. } => return Vec::new(),
            // The message of the failed call includes the next step.
            Self::Call(_) => return Vec::new(),
        };
        vec![Remedy::step(step)]
    }
}

/// A driver call that did not return `CUDA_SUCCESS`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedCall {
    /// Operation that was in progress.
    pub what: &'static str,
    /// Name of the driver function.
    pub call: &'static str,
    /// `CUresult` that it returned.
    pub code: i32,
    /// The code's name, as in `CUDA_ERROR_OUT_OF_MEMORY`.
    pub name: String,
    /// The driver's description of the code.
    pub text: String,
    /// Next step for the user; empty if no helpful one is known.
    pub next: String,
}

impl fmt::Display for FailedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} returned {} ({}), {}", self.what, self.call, self.name, self.code, self.text)
    }
}

impl std::error::Error for FailedCall {}

/// `CUresult` values that this crate checks for (cuda.h).
pub(super) mod code {
    pub const SUCCESS: i32 = 0;
    pub const INVALID_VALUE: i32 = 1;
    pub const OUT_OF_MEMORY: i32 = 2;
    pub const DEVICE_UNAVAILABLE: i32 = 46;
    pub const STUB_LIBRARY: i32 = 34;
    pub const NO_DEVICE: i32 = 100;
    pub const NO_BINARY_FOR_GPU: i32 = 209;
    pub const INVALID_PTX: i32 = 218;
    pub const UNSUPPORTED_PTX_VERSION: i32 = 222;
    pub const NOT_READY: i32 = 600;
    pub const ILLEGAL_ADDRESS: i32 = 700;
    pub const LAUNCH_OUT_OF_RESOURCES: i32 = 701;
    pub const LAUNCH_TIMEOUT: i32 = 702;
    pub const PEER_ACCESS_ALREADY_ENABLED: i32 = 704;
    pub const ALREADY_REGISTERED: i32 = 712;
    pub const LAUNCH_FAILED: i32 = 719;
    pub const NOT_PERMITTED: i32 = 800;
    pub const NOT_SUPPORTED: i32 = 801;
    pub const SYSTEM_NOT_READY: i32 = 802;
    pub const SYSTEM_DRIVER_MISMATCH: i32 = 803;
    pub const COMPAT_NOT_SUPPORTED: i32 = 804;
    pub const CAPTURE_IMPLICIT: i32 = 906;
    pub const UNKNOWN: i32 = 999;
}

const LOOK_IN_LOG: &str = "look for NVRM lines in dmesg";

/// Returns the next step for a `CUresult`; empty if no helpful one is known.
pub(super) fn next_step(code: i32) -> &'static str {
    match code {
        code::OUT_OF_MEMORY => "ask for less (a smaller cache, fewer queues), or free memory on the GPU (nvidia-smi)",
        code::STUB_LIBRARY => "this libcuda is the toolkit's stub: take its folder out of LD_LIBRARY_PATH",
        code::DEVICE_UNAVAILABLE => {
            "another process uses the GPU exclusively: end it, or change the compute mode (nvidia-smi -q -d COMPUTE shows it)"
        }
        code::NO_BINARY_FOR_GPU => {
            "the image has no code for this GPU: build again with WARPBELL_CUDA_ARCHS set to its generation"
        }
        code::INVALID_PTX => "the image is damaged, or PTX of a generation that this GPU lacks: build again",
        code::UNSUPPORTED_PTX_VERSION => {
            "the kernels were compiled by an nvcc newer than the driver: update the driver, or build with an older CUDA"
        }
        code::LAUNCH_OUT_OF_RESOURCES => {
            "the block is too large for the kernel's registers: use fewer threads per block"
        }
        code::LAUNCH_TIMEOUT => "the display's watchdog ended the kernel: use a GPU without a display",
        code::ALREADY_REGISTERED => "the range, or a part of it, is registered already",
        code::ILLEGAL_ADDRESS..=code::LAUNCH_FAILED => {
            "the kernel did something illegal: run under compute-sanitizer to see where; the GPU context is lost"
        }
        code::SYSTEM_NOT_READY => "the GPU fabric is not up: start nvidia-fabricmanager",
        code::SYSTEM_DRIVER_MISMATCH => "libcuda and the kernel module are of different versions: reload the module",
        code::COMPAT_NOT_SUPPORTED => "the compatibility package's libcuda does not run on this GPU: remove it",
        code::UNKNOWN => LOOK_IN_LOG,
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remedy::told;

    #[test]
    fn errors_name_the_call_the_code_and_the_next_step() {
        let failed = FailedCall {
            what: "allocating GPU memory",
            call: "cuMemAlloc_v2",
            code: code::OUT_OF_MEMORY,
            name: "CUDA_ERROR_OUT_OF_MEMORY".into(),
            text: "out of memory".into(),
            next: next_step(code::OUT_OF_MEMORY).into(),
        };
        let e = CudaError::from(Box::new(failed));
        assert!(!e.reason().contains("smaller cache") && e.remedies().is_empty(), "{e}");
        let text = e.to_string();
        for part in ["allocating GPU memory", "cuMemAlloc_v2", "CUDA_ERROR_OUT_OF_MEMORY (2)", "smaller cache"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn a_missing_gpu_is_counted() {
        let text = CudaError::NoDevice { ordinal: 3, count: 2 }.to_string();
        assert!(text.contains("no GPU 3") && text.contains("GPU 0 to 1"), "{text}");
        assert!(told(&CudaError::NoDevice { ordinal: 3, count: 2 }).ends_with("; choose one of those"));
        assert!(CudaError::NoDevice { ordinal: 0, count: 0 }.to_string().contains("finds no GPU"));
    }

    #[test]
    fn faults_of_kernels_point_at_the_sanitizer() {
        for c in [code::ILLEGAL_ADDRESS, code::LAUNCH_FAILED] {
            assert!(next_step(c).contains("compute-sanitizer"));
        }
        assert!(next_step(code::LAUNCH_TIMEOUT).contains("watchdog"));
    }
}
