//! How PEs find each other: ranks, and one way to tell everybody something.
//!
//! [`from_env`] finds out which launcher started this process (`environment`), and has its ranks meet at a small TCP store
//! ([`store`]) whose messages are authenticated with a shared secret. [`LocalBootstrap`] is for threads of one process.

mod environment;
mod error;
mod local;
mod loss;
mod secret;
mod slurm;
pub mod store;

pub use environment::{DEFAULT_PORT, Environment, Launched};
pub use error::BootstrapError;
pub use local::LocalBootstrap;
pub use secret::{Secret, SecretLength};

use std::fmt;
use std::time::Duration;

/// Why a rank that left in order cannot be waited for.
const LEFT: &str = "it left the world";

/// What a world is built on. Programs that have MPI, or a launcher of their own, bring theirs; the calls are collective, and
/// matched by their order.
pub trait Bootstrap: Send + Sync + fmt::Debug {
    /// This process's (or thread's) number, from 0.
    fn rank(&self) -> usize;

    /// How many there are.
    fn size(&self) -> usize;

    /// Gives bytes to everybody and gets everybody's, in rank order. An error within `within` names the ranks that did not come.
    fn allgather(&self, bytes: &[u8], within: Duration) -> Result<Vec<Vec<u8>>, BootstrapError>;

    /// Returns when all have called it.
    fn barrier(&self, within: Duration) -> Result<(), BootstrapError> {
        self.allgather(&[], within).map(drop)
    }

    /// Calls `tell` when a rank is known to have ended before its time, once for each; for those known already at once. One that
    /// cannot notice does nothing: then a lost rank shows as one that does not come.
    fn on_loss(&self, tell: Box<dyn Fn(&LostRank) + Send + Sync>) {
        drop(tell);
    }

    /// Tells one other rank something that it does not wait for, soon and without waiting for it: a short message, such as that a
    /// connection to it has failed. One that cannot does nothing.
    fn alert(&self, rank: usize, bytes: &[u8]) {
        let _ = (rank, bytes);
    }

    /// Calls `tell` with what [`Bootstrap::alert`] of another rank says to this one, and that rank's number. What came before is lost.
    fn on_alert(&self, tell: AlertListener) {
        drop(tell);
    }

    /// This rank ends in order: its end is no loss to the others.
    fn leave(&self) {}

    /// A key that all ranks have and nobody else, another one for each purpose; for what ranks say to each other by ways of their own.
    /// One that has no secret has none: the variables `WARPBELL_SECRET` and `WARPBELL_SECRET_FILE` can give it instead.
    fn key(&self, purpose: &str) -> Option<[u8; 32]> {
        let _ = purpose;
        None
    }

    /// The address of this rank's host by which the others may reach it, and the one by which it reached rank 0, as far as is known.
    fn route(&self) -> Route {
        Route::default()
    }

    /// As [`Bootstrap::leave`] for a rank whose memory the others may still use: `what` stays until they have all said farewell too, left
    /// or are lost, at most `within`. `farewell` is what an exchange of the others finds instead of the bytes that it hoped for.
    fn leave_after_others(&self, leave: &[u8], what: Box<dyn std::any::Any + Send + Sync>, within: Duration) {
        // However it ends, this rank has waited.
        let _ = self.allgather(leave, within);
        drop(what);
        self.leave();
    }

    /// How the ranks were found, for people: `torchrun`, `local threads`.
    fn via(&self) -> String;
}

/// What is called with what another rank says out of turn: the rank's number, and its bytes.
pub type AlertListener = Box<dyn Fn(usize, &[u8]) + Send + Sync>;

/// Addresses of a rank, as its connection to the others shows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct Route {
    /// Of its own host.
    pub own: Option<std::net::IpAddr>,
    /// Of rank 0's host.
    pub first: Option<std::net::IpAddr>,
}

/// A key that nobody else has.
pub(super) fn random_key() -> Result<[u8; 32], BootstrapError> {
    secret::random()
}

/// A rank that ended before its time.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostRank {
    /// Which.
    pub rank: usize,
    /// What is known of its end.
    pub reason: String,
}

impl LostRank {
    /// A lost rank and why.
    pub fn new(rank: usize, reason: impl Into<String>) -> Self {
        Self { rank, reason: reason.into() }
    }
}

impl fmt::Display for LostRank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} is gone: {}", self.rank, self.reason)
    }
}

/// How long ranks wait for each other at first, unless `WARPBELL_TIMEOUT` says otherwise.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// Meets the other ranks of the launcher that started this process. `None`: no launcher did, or it started one rank only: a
/// world of one. See `docs/running.md` for the variables.
pub fn from_env() -> Result<Option<Box<dyn Bootstrap>>, BootstrapError> {
    Ok(from_env_within(None)?.0)
}

/// The same, with how long ranks wait for each other: `within` if the program says so, else what [`from_env`] goes by.
pub(super) fn from_env_within(
    within: Option<Duration>,
) -> Result<(Option<Box<dyn Bootstrap>>, Duration), BootstrapError> {
    let environment = environment::of_this_process();
    let within = match within {
        Some(within) => within,
        None => timeout(&environment)?,
    };
    Ok((from_environment(&environment, within)?, within))
}

/// How long ranks wait for each other, as `WARPBELL_TIMEOUT` says.
pub(super) fn timeout_from_env() -> Result<Duration, BootstrapError> {
    timeout(&environment::of_this_process())
}

fn timeout(environment: &Environment) -> Result<Duration, BootstrapError> {
    Ok(environment::timeout(environment)?.unwrap_or(DEFAULT_TIMEOUT))
}

/// The same with these variables; the ranks have `within` to come.
pub fn from_environment(
    environment: &Environment,
    within: Duration,
) -> Result<Option<Box<dyn Bootstrap>>, BootstrapError> {
    let Some(launched) = Launched::find(environment)? else { return Ok(None) };
    if launched.size == 1 {
        return Ok(None);
    }
    let secret = Secret::find(environment)?.ok_or(BootstrapError::NoSecret { via: launched.via })?;
    Ok(Some(Box::new(store::Member::join(&launched, secret, within)?)))
}
