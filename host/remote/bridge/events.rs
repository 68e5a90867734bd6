//! Asynchronous events. This thread keeps one request at the remote controller, and passes the events on to the driver's
//! requests, which it holds. It follows changes of access states (ANA) itself.

use super::manager::{Facts, Manager};
use crate::nvme::fabrics::{Access, Command, DriverMemory, Finished, Place, admin, read_log};
use crate::wire::nvme::ana::{AccessLog, CHANGE_EVENT, CHANGE_NOTICES};
use crate::wire::nvme::{Status, admin as opcode, feature, status};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Largest number of events that wait for a request of the driver.
const MOST_WAITING: usize = 64;

/// Time after which a log page that was refused is read again.
const READ_AGAIN: Duration = Duration::from_secs(1);

/// Requests and events.
#[derive(Debug, Default)]
pub(super) struct Events {
    /// Identifiers of the driver's requests without event.
    held: VecDeque<u16>,
    /// Events without request, oldest first, each once. The first request of a driver may come after an event.
    waiting: VecDeque<u32>,
    at_controller: ControllerEvents,
}

/// State of an association's events.
#[derive(Debug, Default)]
struct ControllerEvents {
    is_requested: bool,
    /// Status with which the controller refuses requests.
    refused: Option<Status>,
    /// True if the access states may have changed since the log page was read.
    access_changed: bool,
    reads_access: bool,
    /// Time before which the log page is not read again, after it was refused.
    read_after: Option<Instant>,
}

impl Events {
    /// Forgets the association. The driver's requests stay.
    pub(super) fn detach(&mut self) {
        self.at_controller = ControllerEvents::default();
    }

    /// Returns the driver's request for an event. Without a request, the event is kept.
    fn request_for(&mut self, event: u32) -> Option<u16> {
        let request = self.held.pop_front();
        if request.is_none() && self.waiting.len() < MOST_WAITING && !self.waiting.contains(&event) {
            self.waiting.push_back(event);
        }
        request
    }

    /// Removes a request of the driver. Returns false if it is none.
    pub(super) fn cancel(&mut self, cid: u16) -> bool {
        let found = self.held.iter().position(|held| *held == cid);
        found.and_then(|at| self.held.remove(at)).is_some()
    }
}

/// Returns true if the event tells a change of access states.
fn is_access_change(event: u32) -> bool {
    const TYPE_AND_INFORMATION: u32 = 0xff07;
    event & TYPE_AND_INFORMATION == CHANGE_EVENT & TYPE_AND_INFORMATION
}

impl Facts {
    /// Returns the value of a feature for the controller: the driver's, with the notices that this thread needs.
    pub(super) fn feature(&self, id: u8, value: u32) -> u32 {
        let needs_notices = id == feature::ASYNC_EVENT_CONFIG && self.access_bytes.is_some();
        value | if needs_notices { CHANGE_NOTICES } else { 0 }
    }
}

impl Manager {
    /// Takes a request of the driver.
    pub(super) fn request_event(&mut self, cid: u16) {
        if let Some(event) = self.events.waiting.pop_front() {
            return self.answer(cid, Ok(event));
        }
        if self.events.held.len() >= usize::from(self.facts.event_limit) {
            return self.answer(cid, Err(status::ASYNC_EVENT_LIMIT.dnr()));
        }
        match self.events.at_controller.refused {
            Some(status) => self.answer(cid, Err(status)),
            None => self.events.held.push_back(cid),
        }
    }

    /// Sends what the events need: a request, and a read of the access states after a change.
    pub(super) fn follow_events(&mut self) {
        let follows_access = self.facts.access_bytes;
        let e = &self.events.at_controller;
        let wants_event = e.refused.is_none() && (follows_access.is_some() || !self.events.held.is_empty());
        if !e.is_requested && wants_event && self.send(Command::plain(admin(opcode::ASYNC_EVENT_REQUEST, 0, 0))) {
            self.events.at_controller.is_requested = true;
        }
        let e = &self.events.at_controller;
        if e.access_changed
            && !e.reads_access
            && e.read_after.is_none_or(|t| Instant::now() >= t)
            && let Some(bytes) = follows_access
            && self.send(read_log(bytes))
        {
            self.events.at_controller.access_changed = false;
            self.events.at_controller.reads_access = true;
        }
    }

    /// Sends a command of this thread. Returns false if that is not possible now.
    fn send(&mut self, command: Command) -> bool {
        let Some(a) = self.up().filter(|a| a.admin.has_room()) else { return false };
        match a.admin.submit(command, &DriverMemory::none()) {
            Ok(sent) => sent.is_ok(),
            Err(error) => {
                self.core.report(error);
                false
            }
        }
    }

    /// Processes an event, or the refusal of a request.
    pub(super) fn on_event(&mut self, f: &Finished) {
        self.events.at_controller.is_requested = false;
        if !f.status.is_success() {
            tracing::debug!(device = %self.core.shell.name, status = %f.status, "an asynchronous event request failed");
            self.events.at_controller.refused = Some(f.status);
            for cid in std::mem::take(&mut self.events.held) {
                self.answer(cid, Err(f.status));
            }
            return;
        }
        let event = f.result as u32;
        if is_access_change(event) {
            self.events.at_controller.access_changed = true;
        }
        if let Some(cid) = self.events.request_for(event) {
            self.answer(cid, Ok(event));
        }
    }

    /// Processes the log page of access states. A port by which the namespace is not accessible any more is left.
    pub(super) fn on_access_log(&mut self, f: &Finished) {
        let e = &mut self.events.at_controller;
        e.reads_access = false;
        if !f.status.is_success() {
            // The controller tells no further change before the log page was read.
            tracing::warn!(device = %self.core.shell.name, status = %f.status, "the access states were not read");
            (e.access_changed, e.read_after) = (true, Some(Instant::now() + READ_AGAIN));
            return;
        }
        let log = match &f.command.place {
            Place::Owned(data) => AccessLog::read(data),
            _ => return,
        };
        match log {
            Ok(log) => {
                let access = Access::of(&log, self.core.config.namespace);
                tracing::debug!(device = %self.core.shell.name, ?access, "access states changed");
                if let Some(Err(error)) = access.map(|a| a.check(self.peer())) {
                    self.on_loss(error);
                }
            }
            Err(reason) => tracing::warn!(device = %self.core.shell.name, reason, "the access states were not read"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn access_changes_are_told_from_other_events() {
        assert!(is_access_change(CHANGE_EVENT));
        assert!(!is_access_change(2 | 4 << 16), "namespaces changed");
        assert!(!is_access_change(1 | 3 << 8), "health");
    }

    #[test]
    fn an_event_before_the_first_request_is_kept_once() {
        let mut e = Events::default();
        assert_eq!([CHANGE_EVENT, CHANGE_EVENT, 1].map(|event| e.request_for(event)), [None; 3]);
        assert_eq!(e.waiting, [CHANGE_EVENT, 1]);
        e.held.push_back(7);
        assert_eq!((e.request_for(CHANGE_EVENT), e.waiting.len()), (Some(7), 2));
    }

    #[test]
    fn a_request_is_cancelled_once() {
        let mut e = Events { held: [3, 5].into(), ..Events::default() };
        assert!(e.cancel(5) && !e.cancel(5) && !e.cancel(4));
        assert_eq!(e.held, [3]);
    }
}
