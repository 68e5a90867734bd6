//! Recovery of a world's connections: what its PEs do together, and in which order.

use super::{ShmemError, World};
use crate::args;
use crate::engine::{Run, RunError};
use crate::shmem::network::{Recovery, Report, Reset, anew};
use crate::shmem::vote::{ballot, count};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::ops::Range;
use std::time::Duration;

/// How long what was sent on connections that work gets to arrive in a world with connections that have failed.
const DRAIN: Duration = Duration::from_secs(2);

/// The name of the call, for people.
const CALL: &str = "recover";

impl World {
    /// Recovers the connections of a world over adapters. Collective: all PEs meet, wait a moment for what is under way on connections that
    /// work, then reset the queue pairs that have failed at either end and connect them again. The words by which teams synchronise
    /// begin anew on all PEs. Afterwards all calls work, until the next failure, which is noticed again.
    ///
    /// What was under way on a failed connection when it failed has arrived or has not, or in part; heaps are as they are. No kernel
    /// that uses the world may be running or be in a stream on any PE. In a world whose PEs all reach each other by loads and stores
    /// there is nothing to do.
    ///
    /// # Errors
    /// [`ShmemError::Busy`] while kernels run. Ranks that are gone, that do not come within [`World::timeout`], or whose connections cannot
    /// be made are named, on all PEs; what failed before still counts as failed then, and the call may be made again.
    pub fn recover(&self) -> Result<Recovery, ShmemError> {
        let mine = match self.engine().is_idle() {
            true => self.complete().map_err(|e| e.to_string()),
            false => Err(ShmemError::Busy { what: CALL }.to_string()),
        };
        let reports: Vec<Report> = self.agree("the beginning of", &mine)?;
        let anew = anew(self.my_pe(), &reports);

        let reset = match self.network() {
            None => Ok(Reset::default()),
            Some(network) => self.begin_anew().and_then(|()| network.reset(anew.keys().copied())),
        };
        let resets: Vec<Reset> = self.agree("resetting queue pairs in", &reset)?;

        let connected = self.network().map_or(Ok(()), |n| n.connect_again(self.my_pe(), anew.keys().copied(), &resets));
        self.agree("connecting queue pairs in", &connected)?;
        if let Some(network) = self.network() {
            network.recovered(anew.keys().copied())?;
        }
        // Nobody posts to one who does not know yet that it may.
        self.meet(&format!("the end of {CALL}"), &[])?;
        Ok(Recovery::of(anew))
    }

    /// Returns what each PE has to say, if all went well on all PEs. `step` names the step for people.
    fn agree<T: Serialize + DeserializeOwned>(
        &self,
        step: &str,
        mine: &Result<T, String>,
    ) -> Result<Vec<T>, ShmemError> {
        let all = self.meet(&format!("{step} {CALL}"), &ballot(mine))?;
        let unreadable = |e| format!("it says something that cannot be read ({e})");
        count(&all, unreadable).map_err(|failures| ShmemError::OnRanks { what: CALL.to_owned(), failures })
    }

    /// Waits for what is under way where connections work, and says which do not.
    fn complete(&self) -> Result<Report, ShmemError> {
        let Some(network) = self.network() else { return Ok(Report::default()) };
        let known = network.set_aside()?;
        // SAFETY: it takes a world, which the arguments keep.
        let run = unsafe { self.engine().launch("wb_shmem_quiet", self.small_grid(), args!(self)) }?;
        match run.finish_within(DRAIN) {
            // What did not end is found by looking.
            Ok(_) | Err(RunError::Operations { .. } | RunError::TimedOut { .. }) => Ok(network.unfinished(known)?),
            Err(e) => Err(e.into()),
        }
    }

    /// The words of this PE's teams as they were when the teams were made. Nobody writes to them between two meetings.
    fn begin_anew(&self) -> Result<(), String> {
        let teams = self.teams();
        let clear = |(slot, room): (usize, Range<usize>)| {
            self.heap().clear(room.start, room.len()).and_then(|()| teams.reset(slot))
        };
        teams.in_use().into_iter().try_for_each(clear).map_err(|e| e.to_string())
    }
}

/// Waits for what a kernel does that waits for everything which was sent: at most `DRAIN` where connections have failed. Returns true
/// if all has arrived.
pub(super) fn drained(run: Run, has_failed: bool) -> bool {
    match has_failed {
        true => run.finish_within(DRAIN).is_ok(),
        false => run.finish().is_ok(),
    }
}
