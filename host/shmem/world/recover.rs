//! Recovery of a world's connections: the steps that all PEs perform together, in order.

use super::{ShmemError, World};
use crate::args;
use crate::engine::{Run, RunError};
use crate::shmem::network::{Recovery, Report, Reset, anew};
use crate::shmem::vote::{ballot, count};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ops::Range;
use std::time::Duration;

/// The longest wait for data in flight on connections that work, in a world where other connections have failed.
const DRAIN: Duration = Duration::from_secs(2);

/// The name of the call in messages.
const CALL: &str = "recover";

impl World {
    /// Recovers the connections of a world that uses adapters. Collective.
    ///
    /// All PEs meet and wait briefly for data in flight on connections that work. Then each PE resets the queue pairs
    /// that have failed at either end and connects them again. All PEs also reset the synchronisation words of their
    /// teams. Afterwards all calls work until the next failure, which is detected again.
    ///
    /// Operations in flight on a failed connection at the time of the failure may have completed, partly completed, or
    /// not. Recovery does not change the heaps. No kernel that uses the world may run or wait in a stream on any PE.
    /// The call does nothing if loads and stores reach all PEs.
    ///
    /// # Errors
    /// - [`ShmemError::Bootstrap`] if a rank is gone or does not call within [`World::timeout`],
    ///   [`ShmemError::OutOfStep`] if the ranks make different calls.
    /// - [`ShmemError::OnRanks`], on all PEs, with the reason of each rank that failed. One reason is
    ///   [`ShmemError::Busy`], if kernels run on a PE; another is a connection that cannot be made.
    /// - [`ShmemError::Memory`] if the state that kernels read cannot be updated.
    ///
    /// Connections that had failed before still count as failed after an error. The call may be repeated.
    pub fn recover(&self) -> Result<Recovery, ShmemError> {
        let mine = match self.engine().is_idle() {
            true => self.complete().map_err(|e| e.to_string()),
            false => Err(ShmemError::Busy { what: CALL }.to_string()),
        };
        let reports: Vec<Report> = self.agree(CALL, "the beginning of", &mine)?;
        let anew = anew(self.my_pe(), &reports);

        let reset = match self.network() {
            None => Ok(Reset::default()),
            Some(network) => self.begin_anew().and_then(|()| network.reset(anew.keys().copied())),
        };
        let resets: Vec<Reset> = self.agree(CALL, "resetting queue pairs in", &reset)?;

        let connected = self.network().map_or(Ok(()), |n| n.connect_again(self.my_pe(), anew.keys().copied(), &resets));
        self.agree(CALL, "connecting queue pairs in", &connected)?;
        if let Some(network) = self.network() {
            network.recovered(anew.keys().copied())?;
        }
        // No PE posts to a peer before that peer knows that the connection works.
        self.exchange(&format!("the end of {CALL}"), &[])?;
        Ok(Recovery::of(anew))
    }

    /// Returns the value of each PE if all PEs succeeded. `call` and `step` name the step in messages.
    pub(in crate::shmem) fn agree<T: Serialize + DeserializeOwned>(
        &self,
        call: &str,
        step: &str,
        mine: &Result<T, String>,
    ) -> Result<Vec<T>, ShmemError> {
        let all = self.exchange(&format!("{step} {call}"), &ballot(mine))?;
        let unreadable = |e| format!("its message cannot be decoded ({e})");
        count(&all, unreadable).map_err(|failures| ShmemError::OnRanks { what: call.to_owned(), failures })
    }

    /// Waits for data in flight on connections that work, and reports the connections that have failed.
    fn complete(&self) -> Result<Report, ShmemError> {
        let Some(network) = self.network() else { return Ok(Report::default()) };
        let known = network.set_aside()?;
        // SAFETY: the kernel takes a world, which the arguments keep alive.
        let run = unsafe { self.engine().launch("wb_shmem_quiet", self.small_grid(), args!(self)) }?;
        match run.finish_within(DRAIN) {
            // The network's state shows which operations did not complete.
            Ok(_) | Err(RunError::Operations { .. } | RunError::TimedOut { .. }) => Ok(network.unfinished(known)?),
            Err(e) => Err(e.into()),
        }
    }

    /// Resets the words of this PE's teams to their initial state. No PE writes to them between two meetings.
    fn begin_anew(&self) -> Result<(), String> {
        let teams = self.teams();
        let clear = |(slot, room): (usize, Range<usize>)| {
            self.heap().clear(room.start, room.len()).and_then(|()| teams.reset(slot))
        };
        teams.in_use().into_iter().try_for_each(clear).map_err(|e| e.to_string())
    }
}

/// Waits for a kernel that waits until all data sent has arrived: at most [`DRAIN`] if connections have failed. Returns
/// true if all data has arrived.
pub(super) fn drained(run: Run, has_failed: bool) -> bool {
    match has_failed {
        true => run.finish_within(DRAIN).is_ok(),
        false => run.finish().is_ok(),
    }
}
