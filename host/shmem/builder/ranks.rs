//! Collective steps of the ranks before a world exists.

use super::super::ShmemError;
use super::super::bootstrap::Bootstrap;
use super::super::vote::{ballot, count, failed};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;

/// The ranks before a world exists.
#[derive(Clone, Copy)]
pub(super) struct Ranks<'a> {
    pub(super) bootstrap: &'a dyn Bootstrap,
    pub(super) within: Duration,
}

impl Ranks<'_> {
    pub(super) fn me(&self) -> usize {
        self.bootstrap.rank()
    }

    /// Tells all ranks the outcome of a step on this rank. Returns the value of each rank, or the failed ranks with
    /// their reasons.
    pub(super) fn vote<T: Serialize + DeserializeOwned>(
        &self,
        mine: &Result<T, String>,
    ) -> Result<Result<Vec<T>, String>, ShmemError> {
        let all = self.bootstrap.allgather(&ballot(mine), self.within)?;
        let unreadable = |_| "it does not build a world, or runs another version of warpbell".to_owned();
        Ok(count(&all, unreadable).map_err(|failures| failed(&failures)))
    }

    /// Returns this rank's value if no rank has failed, otherwise the failed ranks with their reasons.
    pub(super) fn agree<T>(&self, mine: Result<T, String>) -> Result<Result<T, String>, ShmemError> {
        let told = mine.as_ref().map(drop).map_err(String::clone);
        Ok(self.vote(&told)?.and(mine))
    }
}
