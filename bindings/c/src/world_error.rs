//! Codes of the errors of worlds.

use crate::error::{
    Error, WB_ERR_ARGUMENT, WB_ERR_BUSY, WB_ERR_IO, WB_ERR_SPACE, WB_ERR_STATE, WB_ERR_TIMEOUT, WB_ERR_UNSUPPORTED,
    WB_ERR_WORLD, code_of_engine, code_of_memory, code_of_run, wb_code, with_run,
};
use warpbell::shmem::bootstrap::BootstrapError;
use warpbell::shmem::{ShmemError, World};

impl From<BootstrapError> for Error {
    fn from(e: BootstrapError) -> Self {
        Self::new(code_of_bootstrap(&e), e.to_string())
    }
}

fn code_of_bootstrap(e: &BootstrapError) -> wb_code {
    match e {
        BootstrapError::Missing { .. } | BootstrapError::Connect { .. } => WB_ERR_TIMEOUT,
        BootstrapError::Lost(_) | BootstrapError::Disagree(_) | BootstrapError::WrongSecret { .. } => WB_ERR_WORLD,
        BootstrapError::NotAStore { .. } | BootstrapError::Protocol { .. } => WB_ERR_WORLD,
        BootstrapError::Listen { .. } | BootstrapError::System { .. } => WB_ERR_IO,
        BootstrapError::Left { .. } => WB_ERR_STATE,
        _ => WB_ERR_ARGUMENT,
    }
}

impl From<ShmemError> for Error {
    fn from(e: ShmemError) -> Self {
        let run = match &e {
            ShmemError::Run(run) | ShmemError::Network { source: run, .. } => Some(run),
            _ => None,
        };
        with_run(Self::of(code_of(&e), &e), run)
    }
}

fn code_of(e: &ShmemError) -> wb_code {
    match e {
        ShmemError::Bootstrap(e) => code_of_bootstrap(e),
        ShmemError::Engine(e) => code_of_engine(e),
        ShmemError::Run(e) | ShmemError::Network { source: e, .. } => code_of_run(e),
        ShmemError::Memory(e) => code_of_memory(e),
        ShmemError::Unequal { .. } | ShmemError::OutOfStep { .. } | ShmemError::OnRanks { .. } => WB_ERR_WORLD,
        ShmemError::Crowded { .. } | ShmemError::Transport { .. } | ShmemError::OutOfReach { .. } => WB_ERR_UNSUPPORTED,
        ShmemError::ScatteredNode { .. } => WB_ERR_UNSUPPORTED,
        ShmemError::Heap { .. } | ShmemError::HeapFull { .. } | ShmemError::TeamLimit { .. } => WB_ERR_SPACE,
        ShmemError::InUse { .. } | ShmemError::Busy { .. } => WB_ERR_BUSY,
        _ => WB_ERR_ARGUMENT,
    }
}

/// Converts the error of a call of a world. A call that was stopped for a lost rank has the code of a lost rank.
pub(crate) fn of_world<T>(world: &World, result: Result<T, ShmemError>) -> Result<T, Error> {
    result.map_err(|e| Error::from(e).on_engine(world.engine()))
}

/// Returns a number of a PE or rank as the library takes it.
pub(crate) fn number(pe: u32) -> usize {
    pe as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{WB_ERR_OPERATION, guard, wb_last_error_operations};
    use warpbell::engine::{OperationError, Outcome, RunError};

    #[test]
    fn operations_of_a_run_inside_are_kept() {
        let one = OperationError {
            outcome: Outcome::TimedOut,
            device: 0,
            queue: 3,
            command: 0,
            opcode: 0,
            lba: 0,
            blocks: 0,
        };
        let run = || RunError::Operations { kernel: "k".to_owned(), errors: vec![one], count: 1 };
        for e in [ShmemError::Run(run()), ShmemError::Network { failures: vec!["PE 1".to_owned()], source: run() }] {
            assert_eq!(guard(|| Err(e.into())), WB_ERR_OPERATION);
            // SAFETY: nothing is written without space.
            assert_eq!(unsafe { wb_last_error_operations(std::ptr::null_mut(), 0) }, 1);
        }
    }
}
