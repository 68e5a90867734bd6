//! Host calls. Each host call launches a small kernel.
//!
//! Copies between host memory and PEs that loads and stores do not reach go through a bounce buffer in this PE's heap.

use super::{ShmemError, World};
use crate::args;
use crate::engine::{Args, Engine, EngineError, EngineKind, Grid, RunError, Stream, abi};

/// Threads of a block on a GPU. The kernels are compiled for this number (kernels/shmem/part.cuh).
const GPU_THREADS: u32 = 512;
/// Up to this many bytes, the part of each block fits the scratch of its channel.
const SMALL_BYTES: usize = 256 << 10;
/// Bytes for each block of a GPU up to [`SMALL_BYTES`].
const SMALL_PART: usize = 4 << 10;
/// Bytes for each block of a GPU above [`SMALL_BYTES`].
const LARGE_PART: usize = 16 << 10;
/// Bytes for each block on CPU threads. All PEs must use the same grid, even if their numbers of threads differ.
const CPU_PART: usize = 1 << 20;
/// The largest number of blocks on CPU threads.
const CPU_BLOCKS: usize = 4;

/// Returns a grid of one block of one warp.
pub(super) fn one_warp(engine: &Engine) -> Grid {
    Grid { blocks: 1, threads: engine.warp_width() }
}

impl World {
    /// Launches the kernel of a host call and waits for it, or enqueues the kernel on a stream.
    ///
    /// # Safety
    /// The arguments match the parameters of this kernel of `kernels/shmem`. The ranges in them lie within the memory
    /// that they refer to.
    pub(in crate::shmem) unsafe fn call(
        &self,
        on: Option<&Stream>,
        kernel: &str,
        grid: Grid,
        args: Args,
    ) -> Result<(), ShmemError> {
        match on {
            Some(stream) if !stream.engine().is_same(self.engine()) => return Err(EngineError::ForeignStream.into()),
            // SAFETY: the caller's promise; the arguments keep their memory alive.
            Some(stream) => unsafe { stream.launch(kernel, grid, args) }?,
            None => {
                // SAFETY: the caller's promise; the arguments keep their memory alive.
                let run = unsafe { self.engine().launch(kernel, grid, args) }?;
                run.finish().map_err(|e| self.explained(e))?;
            }
        }
        Ok(())
    }

    /// Returns the grid of a call that moves `bytes` bytes. The grid is the same on every PE.
    pub(in crate::shmem) fn call_grid(&self, bytes: usize) -> Grid {
        let warp = self.engine().warp_width();
        match self.engine().kind() {
            EngineKind::Gpu => Grid { blocks: gpu_blocks(bytes), threads: GPU_THREADS },
            EngineKind::Cpu => Grid { blocks: bytes.div_ceil(CPU_PART).clamp(1, CPU_BLOCKS) as u32, threads: warp },
        }
    }

    /// Returns the grid of a call that moves only a few bytes.
    pub(in crate::shmem) fn small_grid(&self) -> Grid {
        one_warp(self.engine())
    }

    /// Copies bytes out of the heap of `pe`, a PE of the world, by loads or through the network.
    pub(in crate::shmem) fn read_heap(&self, pe: usize, offset: usize, out: &mut [u8]) -> Result<(), ShmemError> {
        if self.heap().reaches(pe) {
            return self.heap().read(pe, offset, out);
        }
        let (room, heap, me) = (self.bounce(), self.heap().address(), self.my_pe());
        let mut at = heap + offset as u64;
        for part in out.chunks_mut(room.len().max(1)) {
            let here = heap + room.start as u64;
            let args = args!(self, here, at, part.len() as u64, pe as u32);
            // SAFETY: the arguments match the kernel's parameters and were checked above; they keep their memory alive.
            unsafe { self.call(None, "wb_shmem_get", self.call_grid(part.len()), args) }?;
            self.heap().read(me, room.start, part)?;
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Copies bytes into the heap of `pe`, a PE of the world, by stores or through the network. The copy is complete on
    /// return.
    pub(in crate::shmem) fn write_heap(&self, pe: usize, offset: usize, data: &[u8]) -> Result<(), ShmemError> {
        if self.heap().reaches(pe) {
            return self.heap().write(pe, offset, data);
        }
        let (room, heap, me) = (self.bounce(), self.heap().address(), self.my_pe());
        let mut at = heap + offset as u64;
        for part in data.chunks(room.len().max(1)) {
            self.heap().write(me, room.start, part)?;
            let here = heap + room.start as u64;
            let args = args!(self, at, here, part.len() as u64, pe as u32);
            // SAFETY: the arguments match the kernel's parameters and were checked above; they keep their memory alive.
            unsafe { self.call(None, "wb_shmem_put", self.call_grid(part.len()), args) }?;
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Returns each failed connection of this PE with the reason. Use it when a kernel fails with a network error.
    pub fn network_failures(&self) -> Vec<String> {
        self.network().map(|n| n.failures()).unwrap_or_default()
    }

    /// Adds the failed connections of this PE, if any, to the error of a call.
    pub(in crate::shmem) fn explained(&self, source: RunError) -> ShmemError {
        match self.network_failures() {
            none if none.is_empty() => source.into(),
            failures => ShmemError::Network { failures, source },
        }
    }
}

fn gpu_blocks(bytes: usize) -> u32 {
    let part = if bytes <= SMALL_BYTES { SMALL_PART } else { LARGE_PART };
    bytes.div_ceil(part).clamp(1, abi::CHANNELS) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_channels_and_small_parts_fit_the_scratch() {
        assert_eq!((gpu_blocks(0), gpu_blocks(1), gpu_blocks(SMALL_PART), gpu_blocks(SMALL_PART + 1)), (1, 1, 1, 2));
        assert_eq!(gpu_blocks(usize::MAX), abi::CHANNELS as u32);
        const { assert!(SMALL_PART <= abi::SCRATCH_BYTES / 2 && LARGE_PART > abi::SCRATCH_BYTES / 2) };
        const { assert!(SMALL_BYTES / SMALL_PART <= abi::CHANNELS) };
    }
}
