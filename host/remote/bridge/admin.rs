//! Admin commands of the driver: those about queues are for this host, the others go to the remote controller.

use super::Message;
use super::manager::Manager;
use crate::nvme::fabrics::{Command, Direction, DriverMemory, Finished, PAGE_SHIFT, Place, Scratch};
use crate::nvme::ring_service::{Answer, RingSetup, new_queue};
use crate::wire::nvme::fabrics::OPCODE;
use crate::wire::nvme::identify::IdentifyNamespace;
use crate::wire::nvme::{IDENTIFY_BYTES, SqEntry, Status, admin, cns, feature, status};
use std::sync::atomic::Ordering;

/// Largest number of admin commands per round.
const BATCH: u32 = 16;
/// Largest part of a log page in one command.
const MOST_LOG_BYTES: u32 = 1 << 20;
/// Offset of MDTS in the Identify Controller data.
const MDTS: usize = 77;
/// Results of Abort.
const ABORTED: u32 = 0;
const NOT_ABORTED: u32 = 1;

impl Manager {
    /// Takes commands from the admin queue in memory. Returns true if there were any.
    pub(super) fn serve(&mut self) -> bool {
        let core = self.core.clone();
        let mut any = false;
        for _ in 0..BATCH {
            if !self.admin.has_command(&*core) {
                break;
            }
            if self.admin.is_stale() {
                return any;
            }
            if !self.up().is_none_or(|a| a.admin.has_room()) {
                break;
            }
            let Some(e) = self.admin.take() else { break };
            if let Some(r) = &mut self.admin.rings {
                r.cq.held += 1;
            }
            any = true;
            self.execute(&e);
        }
        any
    }

    fn execute(&mut self, e: &SqEntry) {
        let local = match e.opcode() {
            _ if e.psdt() != 0 || e.fuse() != 0 => Err(status::INVALID_FIELD.dnr()),
            admin::CREATE_CQ => self.create_cq(e),
            admin::CREATE_SQ => self.create_sq(e),
            admin::DELETE_SQ => self.delete_sq(e),
            admin::DELETE_CQ => self.delete_cq(e),
            _ => return self.forward(e),
        };
        self.answer(e.cid(), local.map(|()| 0));
    }

    pub(super) fn answer(&mut self, cid: u16, result: Result<u32, Status>) {
        let answer = match result {
            Ok(result) => Answer { status: status::SUCCESS, result },
            Err(status) => Answer { status, result: 0 },
        };
        self.post(cid, answer);
    }

    // --- queues ------------------------------------------------------------------------------------------------------

    /// Returns the ring of the queue that a command creates, after checking it.
    fn setup(&self, e: &SqEntry, exists: bool, entry_bytes: usize) -> Result<RingSetup, Status> {
        let setup = new_queue(e, self.core.pairs, exists, self.core.limits.queue_entries)?;
        self.admin.check_memory(e, &setup, entry_bytes, PAGE_SHIFT)?;
        Ok(setup)
    }

    fn create_cq(&mut self, e: &SqEntry) -> Result<(), Status> {
        let setup = self.setup(e, self.cqs.contains_key(&(e.cdw10 as u16)), 16)?;
        self.core.shell.doorbells.clear(setup.id);
        self.core.shell.existing.set(setup.id, true, true);
        self.cqs.insert(setup.id, setup);
        Ok(())
    }

    /// Creates a submission queue: connects the queue pair. Pairs are one to one, as on message-based transports.
    fn create_sq(&mut self, e: &SqEntry) -> Result<(), Status> {
        let setup = self.setup(e, self.sqs.contains_key(&(e.cdw10 as u16)), 64)?;
        let cq =
            *self.cqs.get(&setup.id).filter(|cq| e.cdw11 >> 16 == u32::from(cq.id)).ok_or(status::INVALID_CQ.dnr())?;
        let kernels = self.core.kernels.lock().get(&setup.id).cloned();
        let queue = self.connect_queue(setup.id, setup.entries, self.facts.user(kernels.as_deref()))?;
        match &kernels {
            Some(k) => k.attach(queue.into_link()).map_err(|error| {
                self.core.report(error);
                status::HOST_PATHING_ERROR
            })?,
            None => self.core.shell.thread_of(setup.id).send(Message::Add(setup, cq, queue)),
        }
        self.core.shell.existing.set(setup.id, false, true);
        self.sqs.insert(setup.id, setup);
        Ok(())
    }

    fn delete_sq(&mut self, e: &SqEntry) -> Result<(), Status> {
        let id = e.cdw10 as u16;
        self.sqs.remove(&id).ok_or(status::INVALID_QUEUE_ID.dnr())?;
        if self.core.end_kernel_queue(id) {
            self.core.shell.existing.set(id, false, false);
            return Ok(());
        }
        let removed = self.core.shell.request_for(id, |reply| Message::Remove(id, reply));
        self.core.shell.existing.set(id, false, false);
        removed.ok_or(status::INTERNAL_ERROR)
    }

    fn delete_cq(&mut self, e: &SqEntry) -> Result<(), Status> {
        let id = e.cdw10 as u16;
        if self.sqs.contains_key(&id) {
            return Err(status::INVALID_QUEUE_DELETION.dnr());
        }
        self.cqs.remove(&id).ok_or(status::INVALID_QUEUE_ID.dnr())?;
        // Of a queue that kernels were to drive, and that was not connected.
        self.core.end_kernel_queue(id);
        self.core.shell.existing.set(id, true, false);
        Ok(())
    }

    // --- commands for the remote controller --------------------------------------------------------------------------

    /// Sends a command to the remote controller, or completes it if that is not possible.
    pub(super) fn forward(&mut self, e: &SqEntry) {
        let command = match self.command(e) {
            Ok(Some(command)) => command,
            Ok(None) => return,
            Err(status) => return self.answer(e.cid(), Err(status)),
        };
        let table = self.admin.table.clone();
        let core = self.core.clone();
        let memory = DriverMemory::new(&table, core.shell.mover);
        let submitted = self.up().map(|a| a.admin.submit(command, &memory));
        match submitted {
            Some(Ok(Ok(_))) => {}
            Some(Ok(Err(status))) => self.answer(e.cid(), Err(status)),
            Some(Err(error)) => core.report(error),
            None => self.answer(e.cid(), Err(status::HOST_PATHING_ERROR)),
        }
    }

    /// Returns the command for the remote controller; `None` if it waits or was completed here.
    fn command(&mut self, e: &SqEntry) -> Result<Option<Command>, Status> {
        let up = self.up().is_some();
        let mut entry = *e;
        let bytes = match e.opcode() {
            admin::ASYNC_EVENT_REQUEST => {
                self.request_event(e.cid());
                return Ok(None);
            }
            admin::ABORT if e.cdw10 as u16 == 0 && self.events.cancel((e.cdw10 >> 16) as u16) => {
                self.answer((e.cdw10 >> 16) as u16, Err(status::ABORT_REQUESTED));
                self.answer(e.cid(), Ok(ABORTED));
                return Ok(None);
            }
            admin::ABORT if !up => {
                self.answer(e.cid(), Ok(NOT_ABORTED));
                return Ok(None);
            }
            _ if !up => return Err(status::HOST_PATHING_ERROR),
            admin::IDENTIFY => IDENTIFY_BYTES as u32,
            admin::GET_LOG_PAGE => {
                let dwords = u64::from(e.cdw10 >> 16) | u64::from(e.cdw11 & 0xffff) << 16;
                let bytes = u32::try_from((dwords + 1) * 4).ok().filter(|b| *b <= MOST_LOG_BYTES);
                bytes.ok_or(status::INVALID_FIELD.dnr())?
            }
            admin::ABORT => {
                let (queue, cid) = (e.cdw10 as u16, (e.cdw10 >> 16) as u16);
                let found = match queue {
                    0 => self.up().and_then(|a| a.admin.commands().find(cid)),
                    _ if !self.sqs.contains_key(&queue) => None,
                    // Kernels give commands the identifiers that are on the wire.
                    _ if self.core.kernels.lock().contains_key(&queue) => Some(cid),
                    _ => self.core.shell.request_for(queue, |reply| Message::Find(queue, cid, reply)).flatten(),
                };
                let Some(found) = found else {
                    self.answer(e.cid(), Ok(NOT_ABORTED));
                    return Ok(None);
                };
                entry.cdw10 = u32::from(queue) | u32::from(found) << 16;
                0
            }
            admin::SET_FEATURES if e.cdw10 as u8 == feature::NUMBER_OF_QUEUES => {
                // The number was requested when the association was established.
                if !self.sqs.is_empty() || !self.cqs.is_empty() {
                    return Err(status::SEQUENCE_ERROR.dnr());
                }
                let most = u32::from(self.core.pairs) - 1;
                self.answer(e.cid(), Ok((e.cdw11 & 0xffff).min(most) | (e.cdw11 >> 16).min(most) << 16));
                return Ok(None);
            }
            admin::SET_FEATURES => {
                entry.cdw11 = self.facts.feature(e.cdw10 as u8, e.cdw11);
                0
            }
            admin::GET_FEATURES | admin::KEEP_ALIVE => 0,
            _ => return Err(status::INVALID_OPCODE.dnr()),
        };
        Ok(Some(match bytes {
            0 => Command::new(entry, Direction::None, 0, Place::Prps),
            bytes => Command::new(entry, Direction::In, bytes, Place::Prps),
        }))
    }

    /// Completes a command of the driver whose association was lost.
    pub(super) fn orphan(&mut self, command: &Command, status: Status) {
        if command.is_the_drivers() {
            self.answer(command.entry.cid(), Err(status));
        }
    }

    /// Processes a response.
    pub(super) fn end(&mut self, f: Finished) {
        let e = f.command.entry;
        if !f.command.is_the_drivers() || e.opcode() == OPCODE {
            return self.on_response(&f);
        }
        if f.status.is_success() {
            match e.opcode() {
                admin::IDENTIFY => self.on_identify(&e),
                admin::SET_FEATURES => {
                    self.features.insert(e.cdw10 as u8, e.cdw11);
                }
                _ => {}
            }
        } else {
            self.core.counters.failed.fetch_add(1, Ordering::Relaxed);
        }
        let result = f.result as u32;
        self.post(e.cid(), Answer { status: f.status, result });
    }

    /// Learns the formats of namespaces from Identify data, and converts MDTS to the unit that the driver sees.
    fn on_identify(&mut self, e: &SqEntry) {
        let table = self.admin.table.clone();
        let memory = DriverMemory::new(&table, self.core.shell.mover);
        let (mut page, mut scratch) = (vec![0; IDENTIFY_BYTES], Scratch::default());
        let bytes = IDENTIFY_BYTES as u32;
        if memory.load(e, bytes, 0, &mut page, &mut scratch).is_err() {
            return;
        }
        match e.cdw10 as u8 {
            cns::NAMESPACE => self.core.formats.learn(e.nsid, &IdentifyNamespace::new(&page)),
            cns::CONTROLLER => {
                let unit = self.up().map_or(12, |a| a.cap.min_page_shift());
                if page[MDTS] != 0 && unit > 12 {
                    page[MDTS] = page[MDTS].saturating_add((unit - 12) as u8);
                    // The pages were mapped a moment ago, or nobody reads them.
                    let _ = memory.store(e, bytes, 0, &page, &mut scratch);
                }
            }
            _ => {}
        }
    }
}
