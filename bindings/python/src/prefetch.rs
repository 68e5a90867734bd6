//! Batches of rows in flight.

use crate::call::{self, InFlight, Shared};
use crate::engine::seconds;
use crate::error::{Failure, Kind};
use crate::fork;
use crate::held::Held;
use crate::tensor::{Memory, Tensor};
use crate::volume::Volume;
use parking_lot::Mutex;
use pyo3::prelude::*;
use std::sync::Arc;
use std::time::{Duration, Instant};
use warpbell::engine::NO_LIMIT;
use warpbell::memory::Region;
use warpbell::storage::{Gathering, Table};

/// Memory to which the rows of a batch come.
pub(crate) enum Landing {
    /// New memory of the engine.
    New(Memory),
    /// Memory of the caller.
    Caller,
    /// New memory of the engine, and memory of the host to which the rows are copied then.
    Host(Memory, Region),
}

/// A batch in flight.
pub(crate) struct Flight {
    table: Table,
    begun: Instant,
    state: Mutex<State>,
}

enum State {
    Flying(Gathering, Landing),
    Landed(Landing),
    Failed(Failure),
    Taken,
}

/// Time in which a batch ends that was told to stop.
const STOP_WITHIN: Duration = Duration::from_secs(5);

impl Flight {
    pub(crate) fn new(table: &Table, gathering: Gathering, landing: Landing) -> Self {
        let state = Mutex::new(State::Flying(gathering, landing));
        Self { table: table.clone(), begun: Instant::now(), state }
    }

    /// Waits for the rows, if they are still in flight. After `within` their reads are told to stop.
    fn finish(&self, within: Duration) {
        let mut state = self.state.lock();
        *state = match std::mem::replace(&mut *state, State::Taken) {
            State::Flying(gathering, landing) => match gathering.finish(within) {
                Ok(()) => State::Landed(landing),
                Err(e) => State::Failed(Failure::from(e).on(self.table.volume())),
            },
            other => other,
        };
    }
}

impl InFlight for Held<Flight> {
    fn wait(&self, within: Duration) -> bool {
        match &*self.state.lock() {
            // An error is that of `finish`.
            State::Flying(gathering, _) => gathering.wait(within).unwrap_or(true),
            _ => true,
        }
    }

    fn complete(&self) {
        self.finish(STOP_WITHIN);
    }
}

impl Held<Flight> {
    /// Waits at most `within` for the rows. Returns their memory, if it is new.
    pub(crate) fn land(&self, py: Python<'_>, shared: &Arc<Shared>, within: Duration) -> PyResult<Option<Memory>> {
        let in_time = call::await_in_flight(py, shared, self, within)?;
        Ok(py.detach(|| {
            self.finish(if in_time { NO_LIMIT } else { Duration::ZERO });
            match std::mem::replace(&mut *self.state.lock(), State::Taken) {
                State::Landed(Landing::New(memory)) => Ok(Some(memory)),
                State::Landed(Landing::Caller) => Ok(None),
                State::Landed(Landing::Host(memory, region)) => memory.copy_to(&region, region.len()).map(|()| None),
                State::Failed(_) if !in_time => Err(self.late(within)),
                State::Failed(failure) => Err(failure),
                _ => Err(Failure::invalid("the rows of this batch were taken already; prefetch them again")),
            }
        })?)
    }

    fn late(&self, within: Duration) -> Failure {
        let (name, begun) = (self.table.name(), self.begun.elapsed());
        let text = format!(
            "table `{name}`: the rows of a batch were not there within {within:?}, {begun:.1?} after its start, and their reads were stopped; \
             allow more time"
        );
        Failure::new(Kind::Timeout, text)
    }
}

/// Rows on their way to memory: ``Table.prefetch``. Dropping it waits for them.
#[pyclass(frozen, module = "warpbell")]
pub(crate) struct Prefetch {
    pub(crate) flight: Arc<Held<Flight>>,
    pub(crate) shape: Vec<u64>,
    pub(crate) volume: Py<Volume>,
}

#[pymethods]
impl Prefetch {
    /// Returns true if ``take`` would not wait.
    fn is_ready(&self, py: Python<'_>) -> PyResult<bool> {
        fork::check()?;
        Ok(py.detach(|| self.flight.wait(Duration::ZERO)))
    }

    /// Waits for the rows, at most ``timeout`` seconds, and returns them as a tensor. Reads that have not ended by then are stopped.
    #[pyo3(signature = (timeout = None))]
    fn take(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Tensor> {
        let within = timeout.map(|t| seconds(t, "timeout")).transpose()?.unwrap_or(NO_LIMIT);
        let shared = self.volume.get().shared();
        let memory = self.flight.land(py, shared, within)?;
        let memory = memory.ok_or_else(|| Failure::new(Kind::Internal, "a batch without rows"))?;
        Ok(Tensor::new(memory, self.shape.clone(), self.flight.table.layout().element(), shared))
    }

    fn __repr__(&self) -> String {
        format!("Prefetch({}, {:?})", self.flight.table.name(), self.shape)
    }
}
