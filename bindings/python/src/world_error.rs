//! Errors of worlds as exceptions.

use crate::error::{Failure, Kind};
use warpbell::engine::{OperationError, Operations, RunError, abi};
use warpbell::failure::ErrorKind;
use warpbell::shmem::bootstrap::{BootstrapError, LostRank};
use warpbell::shmem::{ShmemError, World};

const LOST: &str = "open a new engine and build a world of the PEs that are left, or start the job again";
const LATE: &str = "find out what that PE does meanwhile, or allow more time by the engine's deadline";

/// Error of a call on a world: the world's own, or one of its arguments.
pub(crate) enum WorldFailure {
    World(ShmemError),
    Other(Failure),
}

impl WorldFailure {
    pub(crate) fn on(self, world: &World) -> Failure {
        match self {
            Self::World(e) => of_world(&e, world),
            Self::Other(failure) => failure,
        }
    }
}

impl From<ShmemError> for WorldFailure {
    fn from(e: ShmemError) -> Self {
        Self::World(e)
    }
}

impl From<RunError> for WorldFailure {
    fn from(e: RunError) -> Self {
        Self::World(e.into())
    }
}

impl From<Failure> for WorldFailure {
    fn from(failure: Failure) -> Self {
        Self::Other(failure)
    }
}

/// Converts the error of a call. Kernels that were stopped because a PE is gone name that PE.
fn of_world(e: &ShmemError, world: &World) -> Failure {
    of_lost(e, world).unwrap_or_else(|| Failure::from_world(e))
}

/// Converts the error of kernels that were stopped because a PE of the world is gone. Returns `None` for other errors.
pub(crate) fn of_lost(e: &impl Operations, world: &World) -> Option<Failure> {
    let lost = world.lost().filter(|_| matches!(e.kind(), ErrorKind::Stopped | ErrorKind::LostPe))?;
    Some(lost_pe(lost, e.to_string()))
}

fn lost_pe(lost: &LostRank, text: String) -> Failure {
    Failure::new(Kind::LostPe, text).with_fault(Some(lost.rank), lost.reason.clone()).or_remedy(LOST)
}

impl Failure {
    /// Converts an error of a world that is not built yet, or of a call.
    pub(crate) fn from_world(e: &ShmemError) -> Self {
        let made = Self::of(e, true);
        let first = e.operations().first();
        match e {
            ShmemError::Bootstrap(e) => of_bootstrap(e),
            ShmemError::Network { failures, .. } => made
                .with_fault(first.and_then(other_pe), failures.join("; "))
                .or_remedy("connect again by World.recover on all PEs"),
            ShmemError::OnRanks { failures, .. } => match failures.first() {
                Some((rank, reason)) => made.with_fault(Some(*rank), reason.clone()),
                None => made,
            },
            ShmemError::Run(_) => match (made.kind(), first) {
                (Kind::WorldTimeout, Some(first)) => {
                    made.with_fault(other_pe(first), first.outcome.to_string()).or_remedy(LATE)
                }
                (Kind::World, Some(first)) => made.with_fault(other_pe(first), first.outcome.to_string()),
                _ => made,
            },
            _ => made,
        }
    }
}

/// Converts the error of kernels. Their calls of a world have the errors that calls from the host have.
impl From<RunError> for Failure {
    fn from(e: RunError) -> Self {
        if e.operations().first().is_some_and(is_call) { Self::from_world(&e.into()) } else { Self::of(&e, false) }
    }
}

/// Returns true for a call of a world inside a kernel, and false for commands of devices.
pub(crate) fn is_call(operation: &OperationError) -> bool {
    (abi::SHMEM_OPCODE..abi::TABLE_OPCODE).contains(&operation.opcode)
}

/// Returns the name of the PE that a call inside a kernel was for, or of the one that made it.
pub(crate) fn name_of_pe(call: &OperationError) -> String {
    format!("PE {}", other_pe(call).unwrap_or(call.queue as usize))
}

/// Returns the other PE of a call inside a kernel.
fn other_pe(operation: &OperationError) -> Option<usize> {
    (operation.device != abi::NO_PE).then_some(operation.device as usize)
}

fn of_bootstrap(e: &BootstrapError) -> Failure {
    let made = Failure::of(e, true);
    match e {
        BootstrapError::Lost(lost) => lost_pe(lost, e.to_string()),
        BootstrapError::Missing { missing, within, .. } => made
            .with_fault(missing.first().copied(), format!("did not come within {within:?}"))
            .or_remedy("check the output of those ranks, or allow more time by the world's timeout"),
        BootstrapError::Connect { .. } => made
            .with_fault(Some(0), "could not be reached")
            .or_remedy("check that rank 0 runs and that this host reaches it"),
        _ => made,
    }
}

impl From<BootstrapError> for Failure {
    fn from(e: BootstrapError) -> Self {
        of_bootstrap(&e)
    }
}
