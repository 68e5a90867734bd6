//! The others, while there is no world yet.

use super::super::ShmemError;
use super::super::bootstrap::Bootstrap;
use super::super::vote::{ballot, count, failed};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;

/// The others, while there is no world yet.
#[derive(Clone, Copy)]
pub(super) struct Ranks<'a> {
    pub(super) bootstrap: &'a dyn Bootstrap,
    pub(super) within: Duration,
}

impl Ranks<'_> {
    pub(super) fn me(&self) -> usize {
        self.bootstrap.rank()
    }

    /// Tells everybody how this rank fared, and hears it of all: an answer from each, or who failed and why.
    pub(super) fn vote<T: Serialize + DeserializeOwned>(
        &self,
        mine: &Result<T, String>,
    ) -> Result<Result<Vec<T>, String>, ShmemError> {
        let all = self.bootstrap.allgather(&ballot(mine), self.within)?;
        let unreadable = |_| "it does not build a world, or is of another version".to_owned();
        Ok(count(&all, unreadable).map_err(|failures| failed(&failures)))
    }

    /// Returns what this rank has if no rank has failed, or who failed and why.
    pub(super) fn agree<T>(&self, mine: Result<T, String>) -> Result<Result<T, String>, ShmemError> {
        let told = mine.as_ref().map(drop).map_err(String::clone);
        Ok(self.vote(&told)?.and(mine))
    }
}
