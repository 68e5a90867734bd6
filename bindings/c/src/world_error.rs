//! Errors of calls of a world, and numbers of PEs.

use crate::error::Error;
use warpbell::shmem::{ShmemError, World};

/// Converts the error of a call of a world. A call that was stopped for a lost rank has the code of a lost rank.
pub(crate) fn of_world<T>(world: &World, result: Result<T, ShmemError>) -> Result<T, Error> {
    result.map_err(|e| Error::from(e).on_engine(world.engine()))
}

/// Returns a number of a PE or rank as the library takes it.
pub(crate) fn number(pe: u32) -> usize {
    pe as usize
}
