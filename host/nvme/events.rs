//! Asynchronous events: reports of a controller about itself (NVMe Base 2.1, 5.1.2).

use super::NvmeError;
use super::controller::{Controller, Ready};
use crate::wire::nvme::feature;
use crate::wire::nvme::log::AsyncEvent;

/// Number of event requests in flight. More help only if several events come between two calls.
const REQUESTS: u16 = 4;
/// Asynchronous Event Configuration: the critical warnings of the health log (NVMe Base 2.1, 5.1.25.1.5).
const HEALTH_EVENTS: u32 = 0x1f;

impl Controller<Ready> {
    /// Subscribes to errors, every critical warning, and the notices that the controller supports. Keeps event requests
    /// in flight at the controller, also after a [`Controller::reset`]. [`Controller::events`] returns the events.
    ///
    /// # Errors
    /// As any admin command: see [`Controller::feature`].
    pub fn watch_events(&self) -> Result<(), NvmeError> {
        self.configure_events()?;
        let most = self.identify().event_limit().min(REQUESTS);
        self.admin().keep_event_requests(usize::from(most))
    }

    pub(super) fn configure_events(&self) -> Result<(), NvmeError> {
        let wanted = HEALTH_EVENTS | self.identify().optional_events();
        match self.set_feature(feature::ASYNC_EVENT_CONFIG, wanted) {
            // Controllers may refuse this configuration. All of them report errors.
            Err(e) if e.status().is_none() => Err(e),
            _ => Ok(()),
        }
    }

    /// Returns the events that the controller reported since the last call. Never waits.
    ///
    /// The controller reports an event type once, until its log page is read ([`Controller::health`],
    /// [`Controller::error_log`], [`Controller::changed_namespaces`]).
    ///
    /// # Errors
    /// [`NvmeError::StrayCompletion`] if the admin queue holds a completion of no command; [`NvmeError::Port`]
    /// if a register access fails.
    pub fn events(&self) -> Result<Vec<AsyncEvent>, NvmeError> {
        self.admin().take_events()
    }
}
