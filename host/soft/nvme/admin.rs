//! The admin command set (NVMe Base 2.1, 5.1 and 5.2).

use super::core::Message;
use super::identify;
use super::io::{ALL_NAMESPACES, scatter};
use super::log::{self, Event, Kind};
use super::manager::Manager;
use super::queue::Answer;
use crate::nvme::ring_service::{Lifecycle, RingSetup, new_queue};
use crate::wire::nvme::{IDENTIFY_BYTES, SqEntry, Status, admin, cns, feature, log_page, status};
use std::sync::atomic::Ordering;

/// PSDT and FUSE in dword 0. Admin commands on PCIe use PRPs, and none is fused.
const UNSUPPORTED_FLAGS: u32 = 3 << 14 | 3 << 8;
/// Asynchronous Event Configuration bit for temperature warnings.
const TEMPERATURE_EVENTS: u32 = 1 << 1;
/// Bit for temperature in the critical warning of the health log. It has the same position.
const TEMPERATURE_WARNING: u8 = 1 << 1;
const BAD_FIELD: Status = status::INVALID_FIELD.dnr();

/// Result of an admin command: dword 0 of its completion, or its error status. `None`: the command stays outstanding.
type Reply = Result<Option<u32>, Status>;

impl Manager {
    /// Executes an admin command.
    pub(super) fn execute(&mut self, e: &SqEntry) -> Reply {
        if e.cdw0 & UNSUPPORTED_FLAGS != 0 {
            return Err(BAD_FIELD);
        }
        let done = |r: Result<(), Status>| r.map(|()| Some(0));
        match e.opcode() {
            admin::DELETE_SQ => done(self.delete_sq(e)),
            admin::CREATE_SQ => done(self.create_sq(e)),
            admin::DELETE_CQ => done(self.delete_cq(e)),
            admin::CREATE_CQ => done(self.create_cq(e)),
            admin::GET_LOG_PAGE => done(self.get_log_page(e)),
            admin::IDENTIFY => done(self.identify(e)),
            admin::ABORT => Ok(Some(self.abort(e))),
            admin::SET_FEATURES => self.set_features(e).map(Some),
            admin::GET_FEATURES => self.features.get(e).map(Some),
            admin::ASYNC_EVENT_REQUEST => self.request_event(e),
            admin::KEEP_ALIVE => Ok(Some(0)),
            _ => Err(status::INVALID_OPCODE.dnr()),
        }
    }

    /// Returns the ring of the queue that a command creates, after checking its identifier and size.
    fn new_queue(&self, e: &SqEntry, granted: u16, exists: bool) -> Result<RingSetup, Status> {
        let setup = new_queue(e, granted, exists, self.core.config.max_queue_entries)?;
        match self.admin.entry_sizes_fit(e.opcode() == admin::CREATE_CQ) {
            true => Ok(setup),
            false => Err(status::INVALID_QUEUE_SIZE.dnr()),
        }
    }

    fn check_memory(&mut self, e: &SqEntry, setup: &RingSetup, entry_bytes: usize) -> Result<(), Status> {
        if self.admin.is_stale() {
            self.refresh();
        }
        self.admin.check_memory(e, setup, entry_bytes, self.core.page_shift.load(Ordering::Relaxed))
    }

    fn create_cq(&mut self, e: &SqEntry) -> Result<(), Status> {
        const INTERRUPTS: u32 = 1 << 1;
        let (_, granted) = self.features.granted();
        let setup = self.new_queue(e, granted, self.cqs.contains_key(&(e.cdw10 as u16)))?;
        if e.cdw11 & INTERRUPTS != 0 && e.cdw11 >> 16 > u32::from(self.core.config.max_queue_pairs) {
            return Err(status::INVALID_INTERRUPT_VECTOR.dnr());
        }
        self.check_memory(e, &setup, 16)?;
        self.clear_word(setup.id, true);
        self.core.shell.thread_of(setup.id).send(Message::AddCq(setup));
        self.core.shell.existing.set(setup.id, true, true);
        self.cqs.insert(setup.id, 0);
        Ok(())
    }

    fn create_sq(&mut self, e: &SqEntry) -> Result<(), Status> {
        let (granted, _) = self.features.granted();
        let setup = self.new_queue(e, granted, self.sqs.contains_key(&(e.cdw10 as u16)))?;
        let cqid = (e.cdw11 >> 16) as u16;
        if cqid == 0 || cqid > self.core.config.max_queue_pairs {
            return Err(status::INVALID_QUEUE_ID.dnr());
        }
        if !self.cqs.contains_key(&cqid) {
            return Err(status::INVALID_CQ.dnr());
        }
        self.check_memory(e, &setup, 64)?;
        self.clear_word(setup.id, false);
        self.core.shell.thread_of(cqid).send(Message::AddSq(setup, cqid));
        self.core.shell.existing.set(setup.id, false, true);
        self.sqs.insert(setup.id, cqid);
        *self.cqs.entry(cqid).or_default() += 1;
        Ok(())
    }

    fn clear_word(&self, queue: u16, completion: bool) {
        let d = &self.core.shell.doorbells;
        let word = if completion { d.cq_head(queue) } else { d.sq_tail(queue) };
        if let Some(w) = word {
            w.store(0, Ordering::SeqCst);
        }
    }

    fn delete_sq(&mut self, e: &SqEntry) -> Result<(), Status> {
        let id = e.cdw10 as u16;
        let cqid = self.sqs.remove(&id).ok_or(status::INVALID_QUEUE_ID.dnr())?;
        let removed = self.core.shell.request_for(cqid, |reply| Message::RemoveSq(id, reply));
        self.core.shell.existing.set(id, false, false);
        if let Some(n) = self.cqs.get_mut(&cqid) {
            *n -= 1;
        }
        removed.ok_or(status::INTERNAL_ERROR)
    }

    fn delete_cq(&mut self, e: &SqEntry) -> Result<(), Status> {
        let id = e.cdw10 as u16;
        match self.cqs.get(&id) {
            None => return Err(status::INVALID_QUEUE_ID.dnr()),
            Some(0) => self.cqs.remove(&id),
            Some(_) => return Err(status::INVALID_QUEUE_DELETION.dnr()),
        };
        let removed = self.core.shell.request_for(id, |reply| Message::RemoveCq(id, reply));
        self.core.shell.existing.set(id, true, false);
        removed.ok_or(status::INTERNAL_ERROR)
    }

    /// Writes data to the pages that a command names.
    fn give(&mut self, e: &SqEntry, data: &[u8]) -> Result<(), Status> {
        self.walk(e, data.len())?;
        // SAFETY: the walk resolved the extents in the snapshot that this thread has announced.
        unsafe { scatter(&self.extents, data) };
        Ok(())
    }

    fn identify(&mut self, e: &SqEntry) -> Result<(), Status> {
        let core = self.core.clone();
        let namespace = || {
            let index = e.nsid.wrapping_sub(1) as usize;
            core.namespaces.get(index).map(|n| (index, n)).ok_or(status::INVALID_NAMESPACE.dnr())
        };
        let page: identify::Page = match e.cdw10 as u8 {
            cns::NAMESPACE => identify::namespace(namespace()?.1),
            cns::CONTROLLER => identify::controller(&core),
            // No namespace can follow the two largest identifiers.
            cns::ACTIVE_NAMESPACES if e.nsid >= ALL_NAMESPACES - 1 => return Err(status::INVALID_NAMESPACE.dnr()),
            cns::ACTIVE_NAMESPACES => identify::active(&core, e.nsid),
            cns::NAMESPACE_DESCRIPTORS => identify::descriptors(&core, namespace()?.0),
            _ => return Err(BAD_FIELD),
        };
        const { assert!(size_of::<identify::Page>() == IDENTIFY_BYTES) };
        self.give(e, &page)
    }

    fn get_log_page(&mut self, e: &SqEntry) -> Result<(), Status> {
        const RETAIN_EVENT: u32 = 1 << 15;
        let id = e.cdw10 as u8;
        let warning = if self.features.too_warm_or_cold() { TEMPERATURE_WARNING } else { 0 };
        let hours = self.started.elapsed().as_secs() / 3600;
        let page = log::page(&self.core, id, hours, warning).ok_or(status::INVALID_LOG_PAGE.dnr())?;
        if ![0, ALL_NAMESPACES].contains(&e.nsid) {
            return Err(BAD_FIELD);
        }
        let dwords = u64::from(e.cdw10 >> 16) | u64::from(e.cdw11 & 0xffff) << 16;
        let bytes = (dwords + 1) * 4;
        let offset = u64::from(e.cdw12) | u64::from(e.cdw13) << 32;
        if bytes > u64::from(self.core.config.max_transfer_bytes) || offset % 4 != 0 || offset > page.len() as u64 {
            return Err(BAD_FIELD);
        }
        let mut data = page[offset as usize..].to_vec();
        data.resize(bytes as usize, 0);
        self.give(e, &data)?;
        if e.cdw10 & RETAIN_EVENT == 0 {
            match id {
                log_page::ERROR => self.masked.retain(|k| *k != Kind::Error),
                log_page::HEALTH => self.masked.retain(|k| *k != Kind::Health),
                _ => {}
            }
        }
        Ok(())
    }

    fn set_features(&mut self, e: &SqEntry) -> Result<u32, Status> {
        let queues_exist = !(self.sqs.is_empty() && self.cqs.is_empty());
        let result = self.features.set(e, queues_exist)?;
        self.core.write_through.store(self.features.write_through(), Ordering::Relaxed);
        let watched = [feature::TEMPERATURE_THRESHOLD, feature::ASYNC_EVENT_CONFIG].contains(&(e.cdw10 as u8));
        if watched && self.features.too_warm_or_cold() && self.features.wants_events(TEMPERATURE_EVENTS) {
            self.note(Event::Temperature);
        }
        Ok(result)
    }

    /// Executes an Abort. Returns dword 0 of its completion, whose bit 0 is clear if the command was aborted.
    fn abort(&mut self, e: &SqEntry) -> u32 {
        const NOT_ABORTED: u32 = 1;
        let (sqid, cid) = (e.cdw10 as u16, (e.cdw10 >> 16) as u16);
        if sqid == 0 {
            // Only event requests stay outstanding in the admin queue. Both completions need space.
            let at = self.event_requests.iter().position(|c| *c == cid);
            return match at.filter(|_| self.admin.has_room(2, &*self.core)) {
                Some(i) => {
                    self.event_requests.remove(i);
                    self.admin.post(cid, Answer { status: status::ABORT_REQUESTED, result: 0 });
                    0
                }
                None => NOT_ABORTED,
            };
        }
        let Some(cqid) = self.sqs.get(&sqid) else { return NOT_ABORTED };
        let aborted = self.core.shell.request_for(*cqid, |reply| Message::Abort(sqid, cid, reply));
        u32::from(aborted != Some(true))
    }

    fn request_event(&mut self, e: &SqEntry) -> Reply {
        if self.event_requests.len() >= identify::EVENT_REQUESTS {
            return Err(status::ASYNC_EVENT_LIMIT.dnr());
        }
        self.event_requests.push(e.cid());
        Ok(None)
    }
}
