//! The ports of one subsystem, and the choice among them.
//!
//! One port is in use at a time. A port by which the namespace is optimized is preferred to one by which it is
//! non-optimized, and a port that was lost is the last to be tried again.

use super::access::Established;
use super::link::{Dialer, Transport};
use super::{FabricsConfig, FabricsError};
use std::sync::Arc;

/// Port that is tried first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum First {
    /// The one in use.
    Current,
    /// The one after it, because it was lost.
    Next,
}

/// Result of an attempt at one port.
enum Tried<T> {
    Done(T),
    /// The namespace is non-optimized by this port.
    Slower,
    /// The port does not report the namespace.
    Unlisted,
    Failed,
}

/// The ports of a subsystem.
#[derive(Clone, Debug)]
pub(crate) struct Paths {
    /// One for each port, in the order of the configuration.
    dialers: Vec<Dialer>,
    /// Index of the port in use, or of the last one.
    current: usize,
}

impl Paths {
    /// Checks the configuration, and reads the identity of this host.
    pub(crate) fn new(config: &FabricsConfig, transport: &Arc<dyn Transport>) -> Result<Self, FabricsError> {
        config.check()?;
        let identity = config.identity()?;
        let dialer = |config| Dialer { config, identity: identity.clone(), transport: transport.clone() };
        Ok(Self { dialers: config.for_each_port().map(dialer).collect(), current: 0 })
    }

    /// Returns all ports, in the order of the configuration.
    #[cfg(feature = "internals")]
    pub(crate) fn dialers(&self) -> &[Dialer] {
        &self.dialers
    }

    /// Returns the port in use, or the last one.
    pub(crate) fn dialer(&self) -> &Dialer {
        &self.dialers[self.current]
    }

    pub(crate) fn are_several(&self) -> bool {
        self.dialers.len() > 1
    }

    /// Establishes an association by the best port. `ready` completes it. Its failure is one of the port, and the next
    /// one is tried, unless `stops` returns true. The port of the association is the current one afterwards.
    ///
    /// # Errors
    /// The error of the only port, or [`FabricsError::NoPort`] with those of all ports.
    pub(crate) fn establish<T>(
        &mut self,
        first: First,
        stops: impl Fn() -> bool,
        mut ready: impl FnMut(&Dialer, Established) -> Result<T, FabricsError>,
    ) -> Result<T, FabricsError> {
        let count = self.dialers.len();
        let start = if first == First::Next { self.current + 1 } else { self.current };
        let mut causes = Vec::new();
        let (mut slower, mut unlisted) = (Vec::new(), Vec::new());
        let mut attempt = |index: usize, takes_slower: bool, causes: &mut Vec<FabricsError>| {
            let dialer = &self.dialers[index];
            let done = Established::open(dialer).and_then(|e| {
                e.check_access()?;
                // A connection that is not used ends here.
                match takes_slower || e.is_optimized() {
                    true => ready(dialer, e).map(Tried::Done),
                    false if e.is_listed => Ok(Tried::Slower),
                    false => Ok(Tried::Unlisted),
                }
            });
            done.unwrap_or_else(|error| {
                tracing::debug!(port = %dialer.config.peer(), %error, "no association by this port");
                causes.push(error);
                Tried::Failed
            })
        };
        for index in (start..start + count).map(|i| i % count) {
            if stops() {
                break;
            }
            match attempt(index, count == 1, &mut causes) {
                Tried::Done(done) => {
                    self.current = index;
                    return Ok(done);
                }
                Tried::Slower => slower.push(index),
                Tried::Unlisted => unlisted.push(index),
                Tried::Failed => {}
            }
        }
        for index in slower.into_iter().chain(unlisted) {
            if stops() {
                break;
            }
            if let Tried::Done(done) = attempt(index, true, &mut causes) {
                self.current = index;
                return Ok(done);
            }
        }
        Err(FabricsError::of_ports(&self.dialers[0].config.subsystem, causes))
    }
}
