//! Detection of the launcher that started this process, and of its rank, from the variables that launchers set.

mod launchers;
#[cfg(test)]
mod tests;
mod values;

use self::launchers::{Found, INDEXED_JOB, RANK, ROWS, Row, SIZE, STORE};
use self::values::{address, get, half, number, size};
use super::BootstrapError;
use crate::units::parse_duration;
use std::collections::BTreeMap;
use std::time::Duration;

/// The variable that gives the descriptor of an inherited listening socket.
pub(super) const STORE_FD: &str = "WARPBELL_STORE_FD";

/// The environment variables of a process. A plain value, so that tests can try every launcher anywhere.
pub type Environment = BTreeMap<String, String>;

/// Returns the variables of this process that are valid text.
pub(super) fn of_this_process() -> Environment {
    std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?))).collect()
}

/// The facts that a launcher gives about this process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Launched {
    /// Number of this process, from 0.
    pub rank: usize,
    /// Number of processes.
    pub size: usize,
    /// Number of this process among those of its host, if the launcher gives it.
    pub local_rank: Option<usize>,
    /// Number of processes on this host, if the launcher gives it.
    pub local_size: Option<usize>,
    /// The address where ranks meet, as `host:port`.
    pub store: Option<String>,
    /// Descriptor of a socket that already listens at the store's address, from `WARPBELL_STORE_FD`. Rank 0 inherits
    /// it.
    pub listener: Option<i32>,
    /// True if the launcher itself runs the store; otherwise rank 0 does.
    pub has_server: bool,
    /// Name of the launcher.
    pub via: &'static str,
}

impl Launched {
    /// Detects the launcher of this process. Returns `None` without one.
    ///
    /// # Errors
    /// The errors of [`Launched::find`].
    pub fn of_this_process() -> Result<Option<Self>, BootstrapError> {
        Self::find(&of_this_process())
    }

    /// Detects the innermost launcher in `environment`. Returns `None` without one.
    ///
    /// Facts that this launcher does not give come from an outer launcher of the same ranks, or from `WARPBELL_SIZE`
    /// and `WARPBELL_STORE`. For example, `srun --mpi=pmix` sets PMIx's rank and all of Slurm's variables.
    ///
    /// # Errors
    /// - [`BootstrapError::Variable`] if a variable is invalid, or contradicts another one.
    /// - [`BootstrapError::HalfSet`] if a variable is missing, or the ranks are to meet and none has a number.
    pub fn find(environment: &Environment) -> Result<Option<Self>, BootstrapError> {
        let store = get(environment, STORE).map(|s| address(STORE, s)).transpose()?;
        let told = get(environment, SIZE).map(|s| size(SIZE, s)).transpose()?;

        let mut rows = ROWS.iter().filter(|row| row.applies(environment));
        let Some(first) = rows.next() else {
            return match (told, &store) {
                // An explicit world of one rank, or no world.
                (Some(1), _) | (None, None) => Ok(None),
                (None, Some(_)) => {
                    let next = "set WARPBELL_RANK and WARPBELL_SIZE for every rank, or unset WARPBELL_STORE for a process that is alone";
                    Err(half("no launcher is known", STORE, RANK, next))
                }
                (Some(_), _) => Err(half("WARPBELL_RANK", SIZE, RANK, "set both for every rank, or neither")),
            };
        };
        let mut found = first.read(environment)?;
        // An outer launcher only fills in missing facts, so its invalid variables do not matter.
        let outer: Vec<Found> =
            rows.filter_map(|r| r.read(environment).ok()).filter(|o| o.launched.rank == found.launched.rank).collect();

        if found.size.is_none() {
            found.size = outer.iter().find_map(|o| o.size);
        }
        match (told, found.size) {
            (Some(told), Some((size, variable))) if told != size => {
                let value = environment.get(SIZE).cloned().unwrap_or_default();
                let expected =
                    format!("{} gives {size} in {variable}; make them equal, or unset {SIZE}", found.launched.via);
                return Err(BootstrapError::Variable { variable: SIZE.to_owned(), value, expected });
            }
            (Some(told), None) => found.size = Some((told, SIZE)),
            _ => {}
        }
        let mut launched = found.launched;
        launched.listener = get(environment, STORE_FD).map(|fd| number(STORE_FD, fd)).transpose()?.map(as_descriptor);
        let Some((size, variable)) = found.size else {
            let next = "on every rank, set it to the total number of ranks";
            return Err(half(launched.via, first.rank, SIZE, next));
        };
        launched.size = size;
        launched.check(first, variable)?;

        if launched.store.is_none() {
            let same = outer.iter().find(|o| o.size.is_some_and(|(n, _)| n == size) && o.launched.store.is_some());
            launched.store = same.and_then(|o| o.launched.store.clone());
        }
        if let Some(store) = store {
            launched.store = Some(store);
        }
        Ok(Some(launched))
    }

    /// Returns the store's address, or the error that asks for it.
    pub(super) fn store_address(&self) -> Result<&str, BootstrapError> {
        let hint = if self.via == INDEXED_JOB {
            " (the host is <job>-0.<service> where the pods have a headless service)"
        } else {
            ""
        };
        self.store.as_deref().ok_or(BootstrapError::NoStore { via: self.via, hint })
    }

    fn check(&self, row: &Row, size: &'static str) -> Result<(), BootstrapError> {
        let wrong = |variable: &str, value: usize, expected: String| {
            Err(BootstrapError::Variable { variable: variable.to_owned(), value: value.to_string(), expected })
        };
        if self.rank >= self.size {
            let expected = format!("{size} says {}, so ranks are 0 to {}", self.size, self.size - 1);
            return wrong(row.rank, self.rank, expected);
        }
        let locals = (row.local_rank, self.local_rank, row.local_size, self.local_size);
        if let (Some(variable), Some(rank), Some(of), Some(count)) = locals
            && rank >= count
        {
            return wrong(variable, rank, format!("{of} says {count}, so local ranks are 0 to {}", count - 1));
        }
        if let (Some(variable), Some(rank)) = (row.local_rank, self.local_rank)
            && rank >= self.size
        {
            return wrong(variable, rank, format!("{size} says that there are {} ranks in all", self.size));
        }
        Ok(())
    }
}

/// Converts a number to a descriptor. A number that is too large becomes one that is not open.
fn as_descriptor(number: usize) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

/// Returns the time that ranks have to come, from `WARPBELL_TIMEOUT`.
pub(super) fn timeout(environment: &Environment) -> Result<Option<Duration>, BootstrapError> {
    const TIMEOUT: &str = "WARPBELL_TIMEOUT";
    let Some(value) = get(environment, TIMEOUT) else { return Ok(None) };
    parse_duration(value).map(Some).map_err(|_| BootstrapError::Variable {
        variable: TIMEOUT.to_owned(),
        value: value.to_owned(),
        expected: "write a time as in 500ms, 90s or 5m".to_owned(),
    })
}
