//! The bootstrap of worlds: ranks find each other and exchange bytes.
//!
//! [`from_env`] detects the launcher that started this process (`environment`). Its ranks meet at a small TCP store
//! ([`store`]), whose messages are authenticated with a shared secret. A [`UniqueId`] is for programs that pass a few
//! bytes to all ranks by their own means. [`LocalBootstrap`] is for threads of one process.

mod environment;
mod error;
mod local;
mod loss;
mod secret;
mod slurm;
pub mod store;
mod unique_id;

pub use environment::{Environment, Launched};
pub use error::BootstrapError;
pub use local::LocalBootstrap;
pub use secret::{Secret, SecretLength};
pub(super) use unique_id::INTERFACE_VARIABLE;
pub use unique_id::UniqueId;

use std::fmt;
use std::time::Duration;

/// The reason why a rank that left in order cannot take part.
const LEFT: &str = "it left the world";

/// The exchange between ranks on which a world is built.
///
/// Programs that have MPI, or their own launcher, can implement it. The calls of all ranks are matched by their order.
pub trait Bootstrap: Send + Sync + fmt::Debug {
    /// Returns the number of this process or thread, from 0.
    fn rank(&self) -> usize;

    /// Returns the number of ranks.
    fn size(&self) -> usize;

    /// Sends bytes to all ranks and returns the bytes of every rank, in rank order. Collective.
    ///
    /// # Errors
    /// - [`BootstrapError::Missing`] with the ranks that do not call within `within`.
    /// - [`BootstrapError::Lost`] if a rank is lost or has left.
    /// - [`BootstrapError::TooLarge`] if `bytes` exceeds the limit of the implementation (64 MiB for
    ///   [`store::Member`]).
    /// - [`BootstrapError::Left`] if this rank has left, [`BootstrapError::Connect`] if the store does not reply any
    ///   more.
    fn allgather(&self, bytes: &[u8], within: Duration) -> Result<Vec<Vec<u8>>, BootstrapError>;

    /// Returns when all ranks have called it. Collective.
    ///
    /// # Errors
    /// The errors of [`Bootstrap::allgather`].
    fn barrier(&self, within: Duration) -> Result<(), BootstrapError> {
        self.allgather(&[], within).map(drop)
    }

    /// Calls `tell` once for each rank that ends too early, and at once for those that are already known.
    ///
    /// A bootstrap that cannot detect a loss does nothing. A lost rank then shows as one that does not call.
    fn on_loss(&self, tell: Box<dyn Fn(&LostRank) + Send + Sync>) {
        drop(tell);
    }

    /// Sends a short message to rank `rank`, which does not wait for one, such as the failure of a connection to that
    /// rank.
    ///
    /// The message arrives soon; this call does not wait for that. A bootstrap that cannot send alerts does nothing.
    fn alert(&self, rank: usize, bytes: &[u8]) {
        let _ = (rank, bytes);
    }

    /// Calls `tell` with each [`Bootstrap::alert`] that another rank sends to this rank. Alerts that arrived before are
    /// lost.
    fn on_alert(&self, tell: AlertListener) {
        drop(tell);
    }

    /// Leaves the world in order, so that the other ranks do not treat the end of this rank as a loss.
    fn leave(&self) {}

    /// Returns a key that only the ranks of the world have, and that differs for each purpose. Ranks use it to
    /// authenticate connections of their own.
    ///
    /// A bootstrap without a secret returns `None`. The variables `WARPBELL_SECRET` and `WARPBELL_SECRET_FILE` can then
    /// provide one.
    fn key(&self, purpose: &str) -> Option<[u8; 32]> {
        let _ = purpose;
        None
    }

    /// Returns the addresses of this rank's host and of rank 0's host, as far as they are known.
    fn route(&self) -> Route {
        Route::default()
    }

    /// Leaves like [`Bootstrap::leave`], but first waits for the other ranks, which may still use this rank's memory
    /// (deferred close).
    ///
    /// Keeps `what` until all other ranks have also closed, have left, or are lost, at most `within`. An exchange of
    /// the others gets `leave` in place of the bytes that it expects.
    fn leave_after_others(&self, leave: &[u8], what: Box<dyn std::any::Any + Send + Sync>, within: Duration) {
        // The result does not matter: this rank has waited.
        let _ = self.allgather(leave, within);
        drop(what);
        self.leave();
    }

    /// Returns the mechanism by which the ranks found each other, for messages: `torchrun`, `local threads`.
    fn via(&self) -> String;
}

/// A callback for alerts. Its arguments are the rank that sent the alert, and the bytes.
pub type AlertListener = Box<dyn Fn(usize, &[u8]) + Send + Sync>;

/// The addresses of a rank, as its connection to the store shows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct Route {
    /// Address of the rank's own host.
    pub own: Option<std::net::IpAddr>,
    /// Address of rank 0's host, by which this rank reached the store.
    pub first: Option<std::net::IpAddr>,
}

/// Returns a random key.
pub(super) fn random_key() -> Result<[u8; 32], BootstrapError> {
    secret::random()
}

/// A rank that ended too early.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LostRank {
    /// The rank.
    pub rank: usize,
    /// The reason of its end, as far as it is known.
    pub reason: String,
}

impl LostRank {
    /// Creates a lost rank with the reason.
    pub fn new(rank: usize, reason: impl Into<String>) -> Self {
        Self { rank, reason: reason.into() }
    }
}

impl fmt::Display for LostRank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} is gone: {}", self.rank, self.reason)
    }
}

/// The default time that ranks wait for each other; `WARPBELL_TIMEOUT` overrides it.
pub(crate) const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// Meets the other ranks of the launcher that started this process. Returns `None` without a launcher, and if it
/// started one rank only. `docs/running.md` lists the variables.
///
/// # Errors
/// [`BootstrapError::Variable`] if `WARPBELL_TIMEOUT` is invalid, and the errors of [`from_environment`].
pub fn from_env() -> Result<Option<Box<dyn Bootstrap>>, BootstrapError> {
    Ok(from_env_within(None)?.0)
}

/// Meets the other ranks like [`from_env`]. Also returns the time that ranks wait for each other: `within`, otherwise
/// the default of [`from_env`].
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

/// Returns the time that ranks wait for each other, from `WARPBELL_TIMEOUT`.
///
/// # Errors
/// [`BootstrapError::Variable`] if the variable has no time.
pub fn timeout_from_env() -> Result<Duration, BootstrapError> {
    timeout(&environment::of_this_process())
}

fn timeout(environment: &Environment) -> Result<Duration, BootstrapError> {
    Ok(environment::timeout(environment)?.unwrap_or(DEFAULT_TIMEOUT))
}

/// Meets the other ranks like [`from_env`], with the variables in `environment`. The ranks must come within `within`.
///
/// # Errors
/// - [`BootstrapError::Variable`] or [`BootstrapError::HalfSet`] if a launcher's variables are invalid or incomplete.
/// - [`BootstrapError::NoSecret`], [`BootstrapError::BadSecret`] or [`BootstrapError::SecretFile`] if there is no valid
///   secret.
/// - The errors of [`store::Member::join`].
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
