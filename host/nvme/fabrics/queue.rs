//! One queue pair of an association: its connection, and its commands without response.

use super::FabricsError;
use super::commands::{Command, Commands, Finished};
use super::driver_memory::DriverMemory;
use super::link::{Dialer, Link, QueueShape, User};
use crate::idle;
use crate::wire::nvme::fabrics::{Connect, ConnectData, demands_authentication, status};
use crate::wire::nvme::{SqEntry, Status};
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

/// Longest sleep of a wait for a response, after which it checks the time.
const SLICE: Duration = Duration::from_millis(50);
/// Sleep of such a wait if a response does not end it.
const SHORT_SLICE: Duration = Duration::from_micros(200);
/// Bytes that may wait to be sent before no further command is accepted.
const MOST_BACKLOG: usize = 1 << 20;

/// A connected queue pair.
pub(crate) struct Queue {
    id: u16,
    link: Box<dyn Link>,
    commands: Commands,
    /// Commands that ended while another one was waited for.
    finished: Vec<Finished>,
}

impl Queue {
    /// Opens a connection and connects a queue pair (NVMe Base 2.1, 6.3). Returns the identifier of the controller, too.
    pub(crate) fn connect(dialer: &Dialer, shape: QueueShape, user: User<'_>) -> Result<(Self, u16), FabricsError> {
        let Dialer { config, identity, transport } = dialer;
        let QueueShape { id, controller, entries } = shape;
        let link = transport.open(config, shape, user)?;
        let mut queue = Self { id, link, commands: Commands::new(entries, entries), finished: Vec::new() };
        let keep_alive = if id == 0 { u32::try_from(config.keep_alive.as_millis()).unwrap_or(u32::MAX) } else { 0 };
        let connect = Connect { queue: id, entries, attributes: 0, keep_alive_ms: keep_alive };
        let data = ConnectData {
            host_id: identity.id,
            controller,
            subsystem: config.subsystem.clone(),
            host: identity.nqn.clone(),
        };
        let command = Command::write(connect.entry(), data.bytes().to_vec());
        let done = queue.run(command, config.connect_timeout, &format!("Connect of queue {id}"))?;
        let peer = || config.peer();
        if done.status.without_flags() == status::AUTHENTICATION_REQUIRED
            || (done.status.is_success() && demands_authentication(done.result as u32))
        {
            return Err(FabricsError::AuthenticationRequired { peer: peer(), subsystem: config.subsystem.clone() });
        }
        if !done.status.is_success() {
            return Err(FabricsError::Refused {
                peer: peer(),
                subsystem: config.subsystem.clone(),
                queue: id,
                status: done.status,
                parameter: parameter(done.status, done.result as u32),
            });
        }
        Ok((queue, done.result as u16))
    }

    /// Returns the queue identifier.
    pub(crate) fn id(&self) -> u16 {
        self.id
    }

    /// Returns address and port of the target.
    pub(crate) fn peer(&self) -> String {
        self.link.peer().to_owned()
    }

    pub(crate) fn commands(&mut self) -> &mut Commands {
        &mut self.commands
    }

    pub(crate) fn link(&mut self) -> &mut dyn Link {
        &mut *self.link
    }

    /// Returns the connection, for kernels.
    pub(crate) fn into_link(self) -> Box<dyn Link> {
        self.link
    }

    pub(crate) fn outstanding(&self) -> usize {
        self.commands.outstanding()
    }

    /// Returns true if the queue accepts another command now.
    pub(crate) fn has_room(&self) -> bool {
        self.commands.has_room() && self.link.backlog() < MOST_BACKLOG
    }

    /// Returns the connection's descriptor, and true if bytes wait to be sent.
    pub(crate) fn descriptor(&self) -> (RawFd, bool) {
        (self.link.descriptor(), self.link.backlog() > 0)
    }

    /// Returns true if something waits for the connection, or for a caller.
    pub(crate) fn is_busy(&self) -> bool {
        self.outstanding() > 0 || self.link.backlog() > 0 || self.commands.has_finished() || !self.finished.is_empty()
    }

    /// Queues a command. Returns its identifier on the wire.
    ///
    /// # Errors
    /// The status with which the command fails at once, because its pages are not mapped or the queue is full; or the
    /// error of the connection.
    pub(crate) fn submit(
        &mut self,
        command: Command,
        memory: &DriverMemory<'_>,
    ) -> Result<Result<u16, Status>, FabricsError> {
        if let Err(status) = self.commands.check(&command, memory) {
            return Ok(Err(status));
        }
        match self.commands.add(command) {
            Some(cid) => {
                self.link.submit(cid, &mut self.commands, memory)?;
                Ok(Ok(cid))
            }
            None => Ok(Err(crate::wire::nvme::status::INTERNAL_ERROR)),
        }
    }

    /// Sends and receives without waiting. Returns true if bytes moved. The commands that ended are in `finished`.
    ///
    /// # Errors
    /// Those of the connection.
    pub(crate) fn progress(
        &mut self,
        memory: &DriverMemory<'_>,
        finished: &mut Vec<Finished>,
    ) -> Result<bool, FabricsError> {
        finished.append(&mut self.finished);
        let moved = self.link.progress(&mut self.commands, memory);
        // Responses that came before an error count.
        finished.append(&mut self.commands.take_finished());
        moved
    }

    /// Runs a command with a buffer of its own until its response.
    ///
    /// # Errors
    /// [`FabricsError::TimedOut`] without a response in time, and those of the connection.
    pub(crate) fn run(&mut self, command: Command, within: Duration, what: &str) -> Result<Finished, FabricsError> {
        let none = DriverMemory::none();
        let failed =
            |peer: &str, status| FabricsError::Command { peer: peer.to_owned(), command: what.to_owned(), status };
        let cid = self.submit(command, &none)?.map_err(|s| failed(self.link.peer(), s))?;
        let started = Instant::now();
        loop {
            let mut ended = Vec::new();
            let moved = self.link.progress(&mut self.commands, &none);
            ended.append(&mut self.commands.take_finished());
            if let Some(at) = ended.iter().position(|f| f.cid == cid) {
                let found = ended.swap_remove(at);
                self.finished.append(&mut ended);
                return Ok(found);
            }
            self.finished.append(&mut ended);
            moved?;
            let waited = started.elapsed();
            if waited >= within {
                let (peer, what) = (self.link.peer().to_owned(), what.to_owned());
                return Err(FabricsError::TimedOut { peer, what, waited });
            }
            let slice = if self.link.wakes() { SLICE } else { SHORT_SLICE };
            idle::wait(&[self.descriptor()], slice.min(within - waited));
        }
    }

    /// Runs a command, and fails unless its status is success.
    pub(crate) fn run_well(
        &mut self,
        command: Command,
        within: Duration,
        what: &str,
    ) -> Result<Finished, FabricsError> {
        let done = self.run(command, within, what)?;
        match done.status.is_success() {
            true => Ok(done),
            false => Err(FabricsError::Command {
                peer: self.link.peer().to_owned(),
                command: what.to_owned(),
                status: done.status,
            }),
        }
    }

    /// Takes all commands without response. The connection is not used any more.
    pub(crate) fn abandon(&mut self) -> Vec<Command> {
        self.commands.abandon()
    }
}

/// Returns the parameter that Connect Invalid Parameters names, as text (NVMe Base 2.1, 6.3: IPO and IATTR).
fn parameter(s: Status, result: u32) -> String {
    if s.without_flags() != status::INVALID_PARAMETERS {
        return String::new();
    }
    let (offset, in_data) = (result & 0xffff, result >> 16 & 1 != 0);
    let name = match (in_data, offset) {
        (true, 0) => "host identifier",
        (true, 16) => "controller identifier",
        (true, 256) => "name of the subsystem",
        (true, 512) => "name of the host",
        (false, 40) => "record format",
        (false, 42) => "queue identifier",
        (false, 44) => "queue size",
        (false, 46) => "attributes",
        (false, 48) => "Keep Alive Timeout",
        _ => return format!(" (byte {offset} of the {})", if in_data { "data" } else { "command" }),
    };
    format!(" ({name})")
}

/// Returns an admin command without data.
pub(crate) fn admin(opcode: u8, cdw10: u32, cdw11: u32) -> SqEntry {
    SqEntry { cdw10, cdw11, ..SqEntry::new(opcode, 0, 0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_parameters_are_named() {
        let bad = status::INVALID_PARAMETERS.dnr();
        assert_eq!(parameter(bad, 1 << 16 | 256), " (name of the subsystem)");
        assert_eq!(parameter(bad, 44), " (queue size)");
        assert_eq!(parameter(bad, 99), " (byte 99 of the command)");
        assert_eq!(parameter(status::INVALID_HOST, 256), "");
    }
}
