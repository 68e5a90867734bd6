//! Puts, gets, atomics, signals and barriers between the PEs of a world, timed on the device and verified.

mod kernel;
mod measure;
mod row;
mod setting;
mod test;

pub use measure::ShmemBench;
pub use row::{Figures, Row, head};
pub use setting::{Setting, Shape};
pub use test::{AtomicOp, Datatype, Scope, Test, UnknownName};

use crate::engine::{EngineError, RunError};
use crate::memory::MemoryError;
use crate::shmem::ShmemError;

/// Why a world could not be measured.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShmemBenchError {
    /// The world.
    #[error(transparent)]
    Shmem(#[from] ShmemError),
    /// A launch.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Memory.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// Something that the test does not take.
    #[error("{test} does not take {flag}: {reason}")]
    Flag {
        /// Which test.
        test: Test,
        /// What was given.
        flag: &'static str,
        /// Why not.
        reason: String,
    },
    /// Nothing lies between.
    #[error("messages from {min} to {max} bytes: the least is the greater one")]
    Sizes {
        /// Least.
        min: u64,
        /// Greatest.
        max: u64,
    },
    /// Part of an element.
    #[error(
        "{test} moves whole elements of {element} bytes, and messages of {bytes} bytes are none: choose other sizes (-b, -e, -f)"
    )]
    Elements {
        /// Which test.
        test: Test,
        /// Asked for.
        bytes: u64,
        /// Bytes of one.
        element: u64,
    },
    /// A block that no multiprocessor holds.
    #[error(
        "blocks of {threads} threads do not fit: the kernel of {test} has too many registers for that; give fewer (-t)"
    )]
    Threads {
        /// Which test.
        test: Test,
        /// Asked for.
        threads: u32,
    },
    /// Blocks that would wait for others that never start.
    #[error(
        "{blocks} blocks of {threads} threads do not run at once, as the test needs: {}; give fewer (-c)",
        room(.most, .sharing)
    )]
    Blocks {
        /// Asked for.
        blocks: u32,
        /// Threads in each.
        threads: u32,
        /// What there is room for.
        most: u32,
        /// PEs on the GPU.
        sharing: usize,
    },
}

crate::remedy::pass_on!(ShmemBenchError: Shmem, Engine, Run, Memory);

fn room(most: &u32, sharing: &usize) -> String {
    match sharing {
        1 => format!("the GPU holds {most}"),
        n => format!("the GPU holds {most} for each of {n} PEs"),
    }
}
