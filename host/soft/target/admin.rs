//! Admin and Fabrics commands of a host.

use super::Shared;
use super::connection::{Reply, Request};
use super::host::RemoteHost;
use super::identify;
use crate::nvme::NvmeError;
use crate::wire::nvme::fabrics::{self, DISCOVERY_LOG, KEEP_ALIVE_TIMER, fctype};
use crate::wire::nvme::{IDENTIFY_BYTES, SqEntry, Status, admin, ana, cns, feature, log_page, register, status};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const BAD_FIELD: Status = status::INVALID_FIELD.dnr();
/// Size of an error log entry, of the health log and of the firmware log, in bytes (NVMe Base 2.1, 5.1.12.1).
const ERROR_LOG_BYTES: usize = 64 * 64;
const LOG_BYTES: usize = 512;

/// The admin queue of a host.
pub(super) struct AdminQueue {
    shared: Arc<Shared>,
    host: Arc<RemoteHost>,
    /// Identifiers of outstanding Asynchronous Event Requests.
    events: Vec<u16>,
    /// Number of changes of the port's access state that the host was told of.
    told: u64,
    /// True until the host has read the log page of access states.
    is_masked: bool,
}

/// Result of a command: its data and dword 0 and 1 of its completion, or its error status.
type Answer = Result<(Vec<u8>, u64), Status>;

fn of_device(e: &NvmeError) -> Status {
    tracing::debug!(error = %e, "an admin command of the device failed");
    e.status().unwrap_or(status::INTERNAL_ERROR)
}

impl AdminQueue {
    pub(super) fn new(shared: Arc<Shared>, host: Arc<RemoteHost>) -> Self {
        let told = shared.ports[host.port].changes();
        Self { shared, host, events: Vec::new(), told, is_masked: false }
    }

    /// Executes a command. `reached` is the address that the host connected to. Returns `None` if the command gets no
    /// response now.
    pub(super) fn execute(&mut self, r: &Request, reached: IpAddr) -> Option<Reply> {
        self.host.on_command();
        let e = &r.entry;
        if e.opcode() == admin::KEEP_ALIVE {
            self.shared.keep_alives.fetch_add(1, Ordering::Relaxed);
            if self.shared.config.faults.ignore_keep_alive {
                return None;
            }
        }
        if e.opcode() == admin::ASYNC_EVENT_REQUEST && self.host.is_ready() {
            if self.events.len() < identify::EVENT_REQUESTS {
                self.events.push(e.cid());
                return None;
            }
            return Some(Reply::new(e.cid(), status::ASYNC_EVENT_LIMIT.dnr(), 0));
        }
        let answer = match e.opcode() {
            fabrics::OPCODE => self.fabrics(e),
            _ if !self.host.is_ready() => Err(status::SEQUENCE_ERROR.dnr()),
            _ => self.admin(r, reached),
        };
        let mut reply = Reply::new(e.cid(), status::SUCCESS, 0);
        match answer {
            Ok((data, result)) => (reply.data, reply.result) = (data, result),
            Err(status) => reply.status = status,
        }
        // The SGL has the length of the data.
        if reply.data.len() != r.length as usize && reply.status.is_success() {
            return Some(Reply::new(e.cid(), status::SGL_LENGTH_INVALID.dnr(), 0));
        }
        Some(reply)
    }

    /// Returns the response to an event request, if the access state of the port has changed.
    pub(super) fn event(&mut self) -> Option<Reply> {
        let changes = self.shared.ports[self.host.port].changes();
        let config = &self.shared.config;
        let is_due = self.told != changes && !self.is_masked && config.reports_access();
        if !is_due
            || config.faults.ignore_access_changes
            || self.host.events.load(Ordering::Relaxed) & ana::CHANGE_NOTICES == 0
        {
            return None;
        }
        let cid = self.events.pop()?;
        (self.told, self.is_masked) = (changes, true);
        Some(Reply::new(cid, status::SUCCESS, ana::CHANGE_EVENT.into()))
    }

    fn fabrics(&self, e: &SqEntry) -> Answer {
        let (wide, offset) = (e.cdw10 & 7 == 1, e.cdw11);
        match fabrics::fctype_of(e) {
            fctype::PROPERTY_GET => {
                if wide != fabrics::is_wide(offset) || e.cdw10 & 7 > 1 {
                    return Err(BAD_FIELD);
                }
                let value = match offset {
                    register::CAP => identify::capabilities(&self.shared),
                    register::VS => identify::VERSION.into(),
                    register::CC => self.host.cc().into(),
                    register::CSTS => self.host.csts().into(),
                    _ => return Err(BAD_FIELD),
                };
                Ok((Vec::new(), value))
            }
            fctype::PROPERTY_SET if offset == register::CC && !wide => {
                self.host.configure(e.cdw12);
                Ok((Vec::new(), 0))
            }
            fctype::PROPERTY_SET => Err(BAD_FIELD),
            // A second Connect on the same connection.
            fctype::CONNECT => Err(status::SEQUENCE_ERROR.dnr()),
            _ => Err(status::INVALID_OPCODE.dnr()),
        }
    }

    fn admin(&mut self, r: &Request, reached: IpAddr) -> Answer {
        let e = &r.entry;
        let plain = |result: u32| Ok((Vec::new(), u64::from(result)));
        match e.opcode() {
            admin::KEEP_ALIVE => plain(0),
            admin::IDENTIFY => Ok((self.identify(e)?, 0)),
            admin::GET_LOG_PAGE => Ok((self.log(e, reached)?, 0)),
            admin::SET_FEATURES => plain(self.set_feature(e)?),
            admin::GET_FEATURES => plain(self.get_feature(e)?),
            // Nothing is aborted: commands complete soon.
            admin::ABORT if !self.host.discovery => plain(1),
            _ => Err(status::INVALID_OPCODE.dnr()),
        }
    }

    fn identify(&self, e: &SqEntry) -> Result<Vec<u8>, Status> {
        let kind = e.cdw10 as u8;
        if kind == cns::CONTROLLER {
            return Ok(identify::controller(&self.shared, &self.host));
        }
        if self.host.discovery {
            return Err(BAD_FIELD);
        }
        let known = self.shared.namespaces.contains_key(&e.nsid);
        match kind {
            cns::ACTIVE_NAMESPACES if e.nsid < u32::MAX - 1 => {
                let ids = self.shared.namespaces.keys().filter(|id| **id > e.nsid).take(1024);
                let mut page: Vec<u8> = ids.flat_map(|id| id.to_le_bytes()).collect();
                page.resize(IDENTIFY_BYTES, 0);
                Ok(page)
            }
            cns::NAMESPACE | cns::NAMESPACE_DESCRIPTORS if !known => Err(status::INVALID_NAMESPACE.dnr()),
            cns::NAMESPACE | cns::NAMESPACE_DESCRIPTORS | cns::COMMAND_SET_CONTROLLER => {
                let mut page = vec![0; IDENTIFY_BYTES];
                let entry = SqEntry { cdw10: kind.into(), cdw11: e.cdw11, ..SqEntry::new(admin::IDENTIFY, 0, e.nsid) };
                self.shared.device.admin_read(entry, &mut page, "for a host").map_err(|e| of_device(&e))?;
                if kind == cns::NAMESPACE {
                    identify::adjust_namespace(&self.shared, &mut page);
                }
                Ok(page)
            }
            _ => Err(BAD_FIELD),
        }
    }

    fn log(&mut self, e: &SqEntry, reached: IpAddr) -> Result<Vec<u8>, Status> {
        let id = e.cdw10 as u8;
        let page = match (id, self.host.discovery) {
            (DISCOVERY_LOG, true) => identify::discovery(&self.shared, reached),
            (log_page::ASYMMETRIC_ACCESS, false) if self.shared.config.reports_access() => {
                self.is_masked = false;
                let log = self.shared.ports[self.host.port].access_log(self.shared.namespaces.keys().copied());
                let mut page = log.bytes();
                if self.shared.config.faults.wrong_access_log {
                    // The number of namespaces of the first group.
                    page[20..24].fill(0xff);
                }
                page
            }
            (log_page::ERROR, false) => self.device_log(id, ERROR_LOG_BYTES)?,
            (log_page::HEALTH | log_page::FIRMWARE_SLOT, false) => self.device_log(id, LOG_BYTES)?,
            _ => return Err(status::INVALID_LOG_PAGE.dnr()),
        };
        let dwords = u64::from(e.cdw10 >> 16) | u64::from(e.cdw11 & 0xffff) << 16;
        let bytes = (dwords + 1) * 4;
        let offset = u64::from(e.cdw12) | u64::from(e.cdw13) << 32;
        if bytes > u64::from(self.shared.config.max_transfer_bytes) || offset % 4 != 0 || offset > page.len() as u64 {
            return Err(BAD_FIELD);
        }
        let mut data = page[offset as usize..].to_vec();
        data.resize(bytes as usize, 0);
        Ok(data)
    }

    /// Reads a log page of the device, as much of it as one command returns.
    fn device_log(&self, id: u8, bytes: usize) -> Result<Vec<u8>, Status> {
        let mut page = vec![0; bytes.min(IDENTIFY_BYTES)];
        let dwords = (page.len() / 4 - 1) as u32;
        let entry = SqEntry { cdw10: u32::from(id) | dwords << 16, ..SqEntry::new(admin::GET_LOG_PAGE, 0, u32::MAX) };
        self.shared.device.admin_read(entry, &mut page, "for a host").map_err(|e| of_device(&e))?;
        Ok(page)
    }

    fn set_feature(&self, e: &SqEntry) -> Result<u32, Status> {
        let value = e.cdw11;
        match e.cdw10 as u8 {
            feature::NUMBER_OF_QUEUES if !self.host.discovery => {
                if self.host.has_io_queues() {
                    return Err(status::SEQUENCE_ERROR.dnr());
                }
                if value & 0xffff == 0xffff || value >> 16 == 0xffff {
                    return Err(BAD_FIELD);
                }
                // Pairs: the smaller number counts.
                let most = u32::from(self.shared.config.queues).min(self.shared.device.granted_queues());
                let granted = (value & 0xffff).min(value >> 16).min(most - 1);
                self.host.granted.store(granted + 1, Ordering::Relaxed);
                Ok(granted | granted << 16)
            }
            KEEP_ALIVE_TIMER => {
                self.host.set_keep_alive(value);
                Ok(0)
            }
            feature::ASYNC_EVENT_CONFIG => {
                self.host.events.store(value, Ordering::Relaxed);
                Ok(0)
            }
            id @ feature::VOLATILE_WRITE_CACHE if !self.host.discovery => {
                self.shared.device.set_feature(id, value).map_err(|e| of_device(&e))
            }
            _ => Err(BAD_FIELD),
        }
    }

    fn get_feature(&self, e: &SqEntry) -> Result<u32, Status> {
        match e.cdw10 as u8 {
            feature::NUMBER_OF_QUEUES if !self.host.discovery => {
                let n = self.host.granted.load(Ordering::Relaxed) - 1;
                Ok(n | n << 16)
            }
            KEEP_ALIVE_TIMER => Ok(self.host.keep_alive_ms()),
            feature::ASYNC_EVENT_CONFIG => Ok(self.host.events.load(Ordering::Relaxed)),
            id @ feature::VOLATILE_WRITE_CACHE if !self.host.discovery => {
                self.shared.device.feature(id).map_err(|e| of_device(&e))
            }
            _ => Err(BAD_FIELD),
        }
    }
}
