//! Errors of worlds as exceptions.

use crate::error::{Failure, Kind, kind_of_engine, kind_of_memory, kind_of_run, operations_of};
use warpbell::engine::{EngineError, OperationError, Outcome, RunError, abi};
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
    let is_stopped = match e {
        ShmemError::Engine(EngineError::Stopped { .. }) => true,
        ShmemError::Run(run) | ShmemError::Network { source: run, .. } => kind_of_run(run) == Kind::Cancelled,
        _ => false,
    };
    match world.lost() {
        Some(lost) if is_stopped => lost_pe(lost, e.to_string()),
        _ => Failure::from_world(e),
    }
}

fn lost_pe(lost: &LostRank, text: String) -> Failure {
    Failure::new(Kind::LostPe, text).with_fault(Some(lost.rank), lost.reason.clone()).or_remedy(LOST)
}

impl Failure {
    /// Converts an error of a world that is not built yet, or of a call.
    pub(crate) fn from_world(e: &ShmemError) -> Self {
        match e {
            ShmemError::Bootstrap(e) => of_bootstrap(e),
            ShmemError::Run(run) => of_run(e, run),
            ShmemError::Network { failures, source } => {
                let pe = operations_of(source).first().and_then(other_pe);
                Self::of(Kind::World, e)
                    .with_run(Some(source))
                    .with_fault(pe, failures.join("; "))
                    .or_remedy("connect again by World.recover on all PEs")
            }
            ShmemError::Engine(inner) => Self::of(kind_of_engine(inner), e),
            ShmemError::Memory(inner) => Self::of(kind_of_memory(inner), e),
            ShmemError::OnRanks { failures, .. } => match failures.first() {
                Some((rank, reason)) => Self::of(Kind::World, e).with_fault(Some(*rank), reason.clone()),
                None => Self::of(Kind::World, e),
            },
            ShmemError::Heap { .. } | ShmemError::HeapFull { .. } => Self::of(Kind::OutOfMemory, e),
            ShmemError::Crowded { .. } | ShmemError::Transport { .. } | ShmemError::ScatteredNode { .. } => {
                Self::of(Kind::Unsupported, e)
            }
            ShmemError::OutOfReach { pe } => {
                Self::of(Kind::Unsupported, e).with_fault(Some(*pe), "out of reach of loads and stores")
            }
            ShmemError::Unequal { .. } | ShmemError::OutOfStep { .. } => Self::of(Kind::World, e),
            ShmemError::InUse { .. } | ShmemError::Busy { .. } | ShmemError::TeamLimit { .. } => {
                Self::of(Kind::World, e)
            }
            _ => Self::of(Kind::Invalid, e),
        }
    }
}

fn of_run(e: &ShmemError, run: &RunError) -> Failure {
    let first = operations_of(run).first();
    let kind = match (first.map(|o| o.outcome), kind_of_run(run)) {
        (Some(Outcome::NetworkError { .. }), _) => Kind::World,
        (Some(Outcome::Unreachable), _) => Kind::Unsupported,
        (Some(Outcome::BadArgument), _) => Kind::Invalid,
        (_, Kind::Timeout) => Kind::WorldTimeout,
        (_, kind) => kind,
    };
    let made = Failure::of(kind, e).with_run(Some(run));
    match (kind, first) {
        (Kind::WorldTimeout, Some(first)) => {
            made.with_fault(other_pe(first), first.outcome.to_string()).or_remedy(LATE)
        }
        (Kind::World, Some(first)) => made.with_fault(other_pe(first), first.outcome.to_string()),
        _ => made,
    }
}

/// Returns the other PE of a call inside a kernel.
fn other_pe(operation: &OperationError) -> Option<usize> {
    (operation.device != abi::NO_PE).then_some(operation.device as usize)
}

fn of_bootstrap(e: &BootstrapError) -> Failure {
    let text = e.to_string();
    match e {
        BootstrapError::Lost(lost) => lost_pe(lost, text),
        BootstrapError::Missing { missing, within, .. } => Failure::new(Kind::WorldTimeout, text)
            .with_fault(missing.first().copied(), format!("did not come within {within:?}"))
            .or_remedy("check the output of those ranks, or allow more time by the world's timeout"),
        BootstrapError::Connect { .. } => Failure::new(Kind::WorldTimeout, text)
            .with_fault(Some(0), "could not be reached")
            .or_remedy("check that rank 0 runs and that this host reaches it"),
        BootstrapError::Disagree(_) | BootstrapError::WrongSecret { .. } | BootstrapError::NotAStore { .. } => {
            Failure::new(Kind::World, text)
        }
        BootstrapError::Protocol { .. } | BootstrapError::Left { .. } => Failure::new(Kind::World, text),
        BootstrapError::Listen { .. } | BootstrapError::System { .. } => Failure::new(Kind::Device, text),
        _ => Failure::invalid(text),
    }
}

impl From<BootstrapError> for Failure {
    fn from(e: BootstrapError) -> Self {
        of_bootstrap(&e)
    }
}
