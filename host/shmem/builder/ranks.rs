//! The others, while there is no world yet.

use super::super::ShmemError;
use super::super::bootstrap::Bootstrap;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::time::Duration;

/// The others, while there is no world yet.
#[derive(Clone, Copy)]
pub(super) struct Ranks<'a> {
    pub(super) bootstrap: &'a dyn Bootstrap,
    pub(super) within: Duration,
}

/// What each rank answered, or the ranks that failed and why.
pub(super) type Vote<T> = Result<Vec<T>, Vec<(usize, String)>>;

impl Ranks<'_> {
    pub(super) fn me(&self) -> usize {
        self.bootstrap.rank()
    }

    /// Tells everybody how this rank fared, and hears it of all: an answer from each, or who failed.
    pub(super) fn vote<T: Serialize + DeserializeOwned>(
        &self,
        mine: &Result<T, String>,
    ) -> Result<Vote<T>, ShmemError> {
        let bytes = serde_json::to_vec(mine).unwrap_or_default();
        let all = self.bootstrap.allgather(&bytes, self.within)?;
        let read = |bytes: &Vec<u8>| {
            let heard: Result<Result<T, String>, _> = serde_json::from_slice(bytes);
            heard.unwrap_or_else(|_| Err("it does not build a world, or is of another version".to_owned()))
        };
        let (mut answers, mut failures) = (Vec::with_capacity(all.len()), Vec::new());
        for (rank, answer) in all.iter().map(read).enumerate() {
            match answer {
                Ok(answer) => answers.push(answer),
                Err(reason) => failures.push((rank, reason)),
            }
        }
        Ok(if failures.is_empty() { Ok(answers) } else { Err(failures) })
    }
}

/// Who failed, in one line: each reason once, with the ranks that gave it.
pub(super) fn failed(failures: &[(usize, String)]) -> String {
    super::super::error::by_rank(failures.iter().map(|(rank, reason)| (*rank, reason.as_str())))
}
