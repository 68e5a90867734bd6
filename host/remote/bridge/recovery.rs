//! Loss of the association, and its establishment by the same or another port.

use super::kernels::KernelQueue;
use super::manager::{Facts, Link, Manager};
use super::{Flow, Message};
use crate::nvme::fabrics::{Command, Dialer, Established, FabricsError, First, Queue, QueueShape, admin};
use crate::wire::nvme::{Status, admin as opcode, status};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// An association with its I/O queues, each with the kernels that use it.
type Reestablished = (Box<Established>, Facts, Vec<(Option<Arc<KernelQueue>>, Box<Queue>)>);

impl Manager {
    /// Establishes an association, without I/O queues, preferably by the port in use.
    pub(super) fn associate(&mut self) -> Result<Box<Established>, FabricsError> {
        let (core, mut paths) = (self.core.clone(), self.paths.clone());
        let done = self.without_memory(|this| {
            paths.establish(
                First::Current,
                || core.shell.stops(),
                |dialer, mut e| {
                    let facts = this.accept(dialer, &mut e)?;
                    Ok((Box::new(e), facts))
                },
            )
        });
        let (established, facts) = done?;
        (self.paths, self.facts) = (paths, facts);
        Ok(established)
    }

    /// Requests the I/O queues of a controller, and checks that it is the one that the driver knows.
    fn accept(&self, dialer: &Dialer, e: &mut Established) -> Result<Facts, FabricsError> {
        let wanted = u32::from(self.core.pairs);
        let granted = e.association.request_queues(wanted)?;
        let (before, now) = (self.core.limits, e.limits);
        let unsupported = |reason: String| Err(FabricsError::Unsupported { peer: dialer.config.peer(), reason });
        if granted < wanted {
            return unsupported(format!("it grants {granted} I/O queues now, and granted {wanted} before"));
        }
        let too_few = self.core.registrar.is_some() && now.max_commands != 0 && now.max_commands < before.max_commands;
        if now.queue_entries < before.queue_entries || now.max_transfer_bytes != before.max_transfer_bytes || too_few {
            return unsupported("its limits are not those with which it was opened; open it again".to_owned());
        }
        let facts = Facts::new(e);
        // A target that was started anew may have another serial number. Two ports never have.
        let is_other_port = dialer.config.peer() != self.peer();
        if is_other_port && facts.subsystem != self.facts.subsystem {
            let (this, other) = (&facts.subsystem, &self.facts.subsystem);
            return unsupported(format!(
                "it is {this}, and the port {} is {other}: they are two subsystems of one name",
                self.peer()
            ));
        }
        Ok(facts)
    }

    /// Starts to use an association.
    pub(super) fn establish(&mut self, established: Box<Established>) {
        let access = established.access;
        tracing::debug!(device = %self.core.shell.name, port = self.peer(), ?access, "associated");
        self.core.namespace.store(access.map_or(0, |a| a.namespace), Ordering::Relaxed);
        *self.core.port.lock() = self.peer();
        // An answer of the last association may have come after its end.
        self.events.detach();
        self.link = Link::Up(established);
        self.established_at = Instant::now();
        self.next_keep_alive = Instant::now() + self.core.config.keep_alive / 2;
        self.pending_keep_alive = None;
        *self.core.failure.lock() = None;
        self.set_flow(Flow::Open);
    }

    /// Marks the controller as failed. Reads of CSTS fail with the reason.
    pub(super) fn fail(&mut self, reason: String) {
        tracing::debug!(device = %self.core.shell.name, reason, "the controller failed");
        self.link = Link::Failed;
        *self.core.failure.lock() = Some(reason);
        self.set_flow(Flow::Closed);
        self.close_kernels(true);
    }

    /// Ends all connections. Commands in flight complete with a status.
    pub(super) fn tear_down(&mut self, status: Status) {
        self.core.counters.losses.fetch_add(1, Ordering::Relaxed);
        self.set_flow(Flow::Waiting);
        self.pending_keep_alive = None;
        self.events.detach();
        if let Link::Up(mut e) = std::mem::replace(&mut self.link, Link::None) {
            for command in e.association.admin.abandon() {
                self.orphan(&command, status);
            }
        }
        let core = self.core.clone();
        for m in &core.shell.mail {
            core.shell.request(m, Message::Detach);
        }
        self.close_kernels(false);
        // The threads may have reported the same loss meanwhile.
        *core.loss.lock() = None;
    }

    /// Handles the loss of a connection, or of the access to the namespace. Either ends the association.
    pub(super) fn on_loss(&mut self, error: FabricsError) {
        match self.link {
            Link::Up(_) => {}
            Link::Prepared(_) => {
                self.link = Link::None;
                self.pending_keep_alive = None;
                return;
            }
            _ => return,
        }
        tracing::warn!(device = %self.core.shell.name, %error, "the association was lost");
        self.tear_down(status::HOST_PATHING_ERROR);
        let now = Instant::now();
        let reason = error.to_string();
        *self.core.last_loss.lock() = Some(reason.clone());
        if self.core.config.controller_loss == Some(Duration::ZERO) {
            return self.fail(reason);
        }
        let delay = self.core.config.reconnect_delay;
        // Another port is tried at once, unless ports are lost as soon as they are connected.
        let at_once = self.paths.are_several() && now - self.established_at >= delay;
        let next = if at_once { now } else { now + delay };
        self.link = Link::Down { since: now, next, last: reason.clone(), reason };
    }

    /// Connects again when it is time. Returns true after an attempt.
    pub(super) fn try_reconnect(&mut self) -> bool {
        let Link::Down { since, next, reason, last } = &self.link else { return false };
        let (since, reason, last) = (*since, reason.clone(), last.clone());
        let now = Instant::now();
        if self.core.config.controller_loss.is_some_and(|limit| now - since > limit) {
            self.fail(format!(
                "the association was lost {:.1?} ago ({reason}) and not established again: {last}; reset the controller when the target is back",
                now - since
            ));
            return true;
        }
        if now < *next {
            return false;
        }
        let before = self.peer();
        match self.reconnect() {
            Ok(()) => {
                let counters = &self.core.counters;
                counters.reconnects.fetch_add(1, Ordering::Relaxed);
                if self.peer() != before {
                    counters.port_changes.fetch_add(1, Ordering::Relaxed);
                }
                tracing::info!(device = %self.core.shell.name, port = self.peer(), after = ?since.elapsed(), "the association is established again");
            }
            Err(error) if error.is_for_good() => {
                self.fail(format!(
                    "the association was lost ({reason}), and every port has lost the namespace: {error}"
                ));
            }
            Err(error) => {
                tracing::debug!(device = %self.core.shell.name, %error, "no association yet");
                let next = Instant::now() + self.core.config.reconnect_delay;
                self.link = Link::Down { since, next, reason, last: error.to_string() };
            }
        }
        true
    }

    /// Establishes the association anew, preferably by another port, with all queues and features of the driver.
    fn reconnect(&mut self) -> Result<(), FabricsError> {
        let (core, mut paths) = (self.core.clone(), self.paths.clone());
        let done = self.without_memory(|this| {
            paths.establish(First::Next, || core.shell.stops(), |dialer, e| this.reestablish(dialer, e))
        });
        let (established, facts, queues) = done?;
        (self.paths, self.facts) = (paths, facts);
        self.establish(established);
        for (kernels, queue) in queues {
            let id = queue.id();
            match kernels {
                Some(k) => k.attach(queue.into_link()).unwrap_or_else(|error| self.core.report(error)),
                None => self.core.shell.thread_of(id).send(Message::Attach(id, queue)),
            }
        }
        Ok(())
    }

    fn reestablish(&self, dialer: &Dialer, mut e: Established) -> Result<Reestablished, FabricsError> {
        let facts = self.accept(dialer, &mut e)?;
        for (&id, &value) in &self.features {
            let entry = admin(opcode::SET_FEATURES, id.into(), facts.feature(id, value));
            e.association.run(Command::plain(entry), &format!("Set Features ({id:#04x})"))?;
        }
        let mut queues = Vec::new();
        let kernels = self.core.kernels.lock().clone();
        for (&id, setup) in &self.sqs {
            let by = kernels.get(&id);
            if by.is_some_and(|k| !k.wants_connection()) {
                continue;
            }
            if self.core.shell.stops() {
                let reason = "the controller is being closed".to_owned();
                return Err(FabricsError::Lost { peer: dialer.config.peer(), reason });
            }
            let shape = QueueShape { id, controller: e.association.controller, entries: setup.entries };
            let (queue, _) = Queue::connect(dialer, shape, facts.user(by.map(|k| &**k)))?;
            queues.push((by.cloned(), facts.prepared(queue)));
        }
        Ok((Box::new(e), facts, queues))
    }
}
