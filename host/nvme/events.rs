//! Asynchronous events: what a controller reports on its own account (NVMe Base 2.1, 5.1.2).

use super::NvmeError;
use super::controller::{Controller, Ready};
use crate::wire::nvme::feature;
use crate::wire::nvme::log::AsyncEvent;

/// Requests that wait at a controller; more only help where several events come between two looks.
const REQUESTS: u16 = 4;
/// Asynchronous Event Configuration: the critical warnings of the health log (NVMe Base 2.1, 5.1.25.1.5).
const HEALTH_EVENTS: u32 = 0x1f;

impl Controller<Ready> {
    /// Asks to be told of errors, of every critical warning, and of the notices that the controller offers. The requests wait
    /// at the controller until [`Controller::events`] finds them answered; they survive a [`Controller::reset`].
    pub fn watch_events(&self) -> Result<(), NvmeError> {
        self.configure_events()?;
        let most = self.identify().event_limit().min(REQUESTS);
        self.admin().keep_event_requests(usize::from(most))
    }

    pub(super) fn configure_events(&self) -> Result<(), NvmeError> {
        let wanted = HEALTH_EVENTS | self.identify().optional_events();
        match self.set_feature(feature::ASYNC_EVENT_CONFIG, wanted) {
            // Controllers may refuse the choice; errors are reported by all.
            Err(e) if e.status().is_none() => Err(e),
            _ => Ok(()),
        }
    }

    /// What the controller has reported since the last call. Never waits. An event of a type is reported once until its log
    /// page is read ([`Controller::health`], [`Controller::error_log`], [`Controller::changed_namespaces`]).
    pub fn events(&self) -> Result<Vec<AsyncEvent>, NvmeError> {
        self.admin().take_events()
    }
}
