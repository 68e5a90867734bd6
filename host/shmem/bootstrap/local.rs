//! Ranks that are threads of one process.

use super::{Bootstrap, BootstrapError, LostRank};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// One thread's part of a world in one process.
#[derive(Debug)]
pub struct LocalBootstrap {
    rank: usize,
    meeting: Arc<Meeting>,
}

#[derive(Debug)]
struct Meeting {
    size: usize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    /// Calls that are complete.
    round: u64,
    /// What came for the call under way.
    given: Vec<Option<Vec<u8>>>,
    /// The last complete call's bytes.
    all: Arc<Vec<Vec<u8>>>,
    left: Vec<bool>,
}

impl LocalBootstrap {
    /// The parts of `size` ranks.
    pub fn all(size: usize) -> Vec<Self> {
        let state = State { round: 0, given: vec![None; size], all: Arc::default(), left: vec![false; size] };
        let meeting = Arc::new(Meeting { size, state: Mutex::new(state), changed: Condvar::new() });
        (0..size).map(|rank| Self { rank, meeting: meeting.clone() }).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.meeting.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Bootstrap for LocalBootstrap {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.meeting.size
    }

    fn allgather(&self, bytes: &[u8], within: Duration) -> Result<Vec<Vec<u8>>, BootstrapError> {
        let until = Instant::now() + within;
        let mut state = self.state();
        let round = state.round;
        state.given[self.rank] = Some(bytes.to_vec());
        if state.given.iter().all(Option::is_some) {
            state.all = Arc::new(state.given.iter_mut().filter_map(Option::take).collect());
            state.round += 1;
            self.meeting.changed.notify_all();
            return Ok(state.all.to_vec());
        }
        while state.round == round {
            let absent = (0..self.meeting.size).filter(|r| state.given[*r].is_none());
            if let Some(gone) = absent.clone().find(|r| state.left[*r]) {
                return Err(BootstrapError::Lost(LostRank::new(gone, "it left the world")));
            }
            let Some(left) = until.checked_duration_since(Instant::now()) else {
                let missing = absent.collect();
                state.given[self.rank] = None;
                return Err(BootstrapError::Missing { rank: self.rank, size: self.meeting.size, missing, within });
            };
            state = self.meeting.changed.wait_timeout(state, left).unwrap_or_else(|e| e.into_inner()).0;
        }
        Ok(state.all.to_vec())
    }

    fn leave(&self) {
        self.state().left[self.rank] = true;
        self.meeting.changed.notify_all();
    }

    fn via(&self) -> String {
        "threads of one process".to_owned()
    }
}

impl Drop for LocalBootstrap {
    fn drop(&mut self) {
        self.leave();
    }
}
