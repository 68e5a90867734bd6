//! Steps of a stream that no kernel executes: the GPU's front end stores words, waits for words and copies memory.

use super::driver::{CUstream, Driver, call};
use super::error::CudaError;
use std::ffi::c_uint;

/// One step of a stream, executed when all earlier work of the stream has ended. Addresses are as kernels see them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryOperation {
    /// Stores a 32-bit word, after all stores of earlier work.
    Store32 {
        /// Address of the word, a multiple of 4.
        address: u64,
        /// The new value.
        value: u32,
    },
    /// Waits until a bit of a 32-bit word has a value.
    AwaitBit {
        /// Address of the word, a multiple of 4.
        address: u64,
        /// A word with this bit alone.
        mask: u32,
        /// The value: true for 1.
        set: bool,
        /// True to wait also until what third-party devices have written to GPU memory is visible.
        flush: bool,
    },
    /// Stores a 64-bit word, after all stores of earlier work.
    Store64 {
        /// Address of the word, a multiple of 8.
        address: u64,
        /// The new value.
        value: u64,
    },
    /// Waits until a 64-bit word is at least a value, as `word - value` with sign says: words may wrap.
    AwaitAtLeast64 {
        /// Address of the word, a multiple of 8.
        address: u64,
        /// The value.
        value: u64,
        /// True to wait also until what third-party devices have written to GPU memory is visible.
        flush: bool,
    },
    /// Copies memory. The two ranges do not overlap.
    Copy {
        /// First byte of the destination.
        to: u64,
        /// First byte of the source.
        from: u64,
        /// Length in bytes.
        bytes: usize,
    },
}

/// Flags of cuStreamWaitValue (cuda.h): wait until `word - value` is not negative; until `word & value` is not 0; until
/// `~(word | value)` is not 0.
const WAIT_AT_LEAST: c_uint = 0;
const WAIT_AND: c_uint = 2;
const WAIT_NOR: c_uint = 3;
/// Bit of CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS (cuda.h): streams can flush remote writes.
pub const STREAMS_FLUSH: u32 = 2;
/// Flag for a flush of remote writes behind the wait.
const WAIT_FLUSH: c_uint = 1 << 30;

impl MemoryOperation {
    /// Puts the step on a stream of the current context.
    ///
    /// # Safety
    /// The stream must be alive, and the memory valid until the step has been executed.
    pub(super) unsafe fn enqueue(self, driver: &Driver, stream: CUstream) -> Result<(), CudaError> {
        // SAFETY: this function's caller makes the same promise.
        unsafe {
            match self {
                Self::Store32 { address, value } => {
                    call!(driver, cuStreamWriteValue32_v2(stream, address, value, 0), "storing a word from a stream")
                }
                Self::AwaitBit { address, mask, set, flush } => {
                    let (value, condition) = if set { (mask, WAIT_AND) } else { (!mask, WAIT_NOR) };
                    let flags = condition | if flush { WAIT_FLUSH } else { 0 };
                    call!(
                        driver,
                        cuStreamWaitValue32_v2(stream, address, value, flags),
                        "waiting for a word on a stream"
                    )
                }
                Self::Store64 { address, value } => {
                    call!(driver, cuStreamWriteValue64_v2(stream, address, value, 0), "storing a word from a stream")
                }
                Self::AwaitAtLeast64 { address, value, flush } => {
                    let flags = WAIT_AT_LEAST | if flush { WAIT_FLUSH } else { 0 };
                    call!(
                        driver,
                        cuStreamWaitValue64_v2(stream, address, value, flags),
                        "waiting for a word on a stream"
                    )
                }
                Self::Copy { to, from, bytes } => {
                    call!(driver, cuMemcpyAsync(to, from, bytes, stream), "copying memory on a stream")
                }
            }
        }
    }
}
