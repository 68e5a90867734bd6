//! The calls of OpenSHMEM on the host: each launches a small kernel that makes the call on the device.
//!
//! A call returns when it is complete; its twin with `_on` puts it into a stream, behind what is in it. Collective calls of one team
//! are made one at a time: what a stream holds of them has to end before another stream, or a blocking call, begins one.

mod atomic;
mod collective;
mod reduction;
mod rma;

pub use atomic::{AtomicInteger, AtomicWord};
pub use reduction::{And, Max, Min, Or, Prod, Reducible, ReducibleInteger, Reduction, Sum, Xor};
pub use rma::{Cmp, LocalSlice, SignalOp};

use super::{ShmemError, World};
use crate::engine::{Args, EngineError, EngineKind, Grid, Stream, abi};

/// Threads of a block on a GPU: what the kernels are compiled for (kernels/shmem/part.cuh).
const GPU_THREADS: u32 = 512;
/// Threads of a block for a call that moves next to nothing.
const GPU_SMALL_THREADS: u32 = 32;
/// Up to this many bytes each block's part is small enough for the scratch of its channel.
const SMALL_BYTES: usize = 256 << 10;
/// Bytes for each block of a GPU up to there, and beyond.
const SMALL_PART: usize = 4 << 10;
const LARGE_PART: usize = 16 << 10;
/// Bytes for each block on CPU threads, and the most blocks. PEs of a world may have different numbers of threads, but must agree.
const CPU_PART: usize = 1 << 20;
const CPU_BLOCKS: usize = 4;

impl World {
    /// Makes a call now, or puts it into a stream.
    ///
    /// # Safety
    /// The arguments are those that this kernel of `kernels/shmem` takes, and what they name lies within the memory that they stand for.
    pub(super) unsafe fn call(
        &self,
        on: Option<&Stream>,
        kernel: &str,
        grid: Grid,
        args: Args,
    ) -> Result<(), ShmemError> {
        match on {
            Some(stream) if !stream.engine().is_same(self.engine()) => return Err(EngineError::ForeignStream.into()),
            // SAFETY: the caller's promise; the arguments keep what they stand for.
            Some(stream) => unsafe { stream.launch(kernel, grid, args) }?,
            None => {
                // SAFETY: as above.
                let run = unsafe { self.engine().launch(kernel, grid, args) }?;
                run.finish().map_err(|e| self.explained(e))?;
            }
        }
        Ok(())
    }

    /// The grid of a call that moves so many bytes: the same on every PE.
    pub(super) fn call_grid(&self, bytes: usize) -> Grid {
        let warp = self.engine().warp_width();
        match self.engine().kind() {
            EngineKind::Gpu => Grid { blocks: gpu_blocks(bytes), threads: GPU_THREADS },
            EngineKind::Cpu => Grid { blocks: bytes.div_ceil(CPU_PART).clamp(1, CPU_BLOCKS) as u32, threads: warp },
        }
    }

    /// One block.
    pub(super) fn small_grid(&self) -> Grid {
        let warp = self.engine().warp_width();
        Grid { blocks: 1, threads: if self.engine().is_gpu() { GPU_SMALL_THREADS } else { warp } }
    }
}

fn gpu_blocks(bytes: usize) -> u32 {
    let part = if bytes <= SMALL_BYTES { SMALL_PART } else { LARGE_PART };
    bytes.div_ceil(part).clamp(1, abi::CHANNELS) as u32
}

#[cfg(test)]
mod tests;
