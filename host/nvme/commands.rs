//! Admin commands of a ready controller: Identify, features, log pages, Abort, queues.

use super::admin::Data;
use super::controller::{Controller, Ready};
use super::{Namespace, NvmeError};
use crate::memory::DmaRegion;
use crate::wire::nvme::identify::{
    ERROR_ENTRY_BYTES, ErrorLogEntry, HEALTH_BYTES, Health, IdentifyController, IdentifyNamespace,
    NAMESPACE_LIST_ENTRIES, namespace_list,
};
use crate::wire::nvme::{IDENTIFY_BYTES, SqEntry, admin, cns, feature, log_page, status};

/// Queue pairs asked for; a controller grants as many of them as it has.
const QUEUES_WANTED: u32 = 1024;
/// The namespace identifier that means all of them (NVMe Base 2.1, 3.2.1.2).
const ALL_NAMESPACES: u32 = 0xffff_ffff;
/// Entries of the error log that fit into one page of admin data.
const MAX_ERROR_ENTRIES: usize = IDENTIFY_BYTES / ERROR_ENTRY_BYTES;
/// Queue entries are contiguous in the device's address space (PC of Create I/O Queue).
const PHYSICALLY_CONTIGUOUS: u32 = 1;

impl Controller<Ready> {
    fn admin_read(&self, entry: SqEntry, out: &mut [u8], words: &str) -> Result<(), NvmeError> {
        self.admin().execute(entry, Data::In(out), words).map(|_| ())
    }

    fn admin_plain(&self, entry: SqEntry, words: &str) -> Result<u32, NvmeError> {
        Ok(self.admin().execute(entry, Data::None, words)?.result)
    }

    pub(super) fn read_identify(&self) -> Result<IdentifyController, NvmeError> {
        let mut bytes = vec![0; IDENTIFY_BYTES];
        let entry = SqEntry { cdw10: u32::from(cns::CONTROLLER), ..SqEntry::new(admin::IDENTIFY, 0, 0) };
        self.admin_read(entry, &mut bytes, "controller")?;
        Ok(IdentifyController::new(&bytes))
    }

    pub(super) fn negotiate_queues(&self) -> Result<u32, NvmeError> {
        let wanted = QUEUES_WANTED - 1;
        let answer = self.set_feature(feature::NUMBER_OF_QUEUES, wanted << 16 | wanted)?;
        // Submission queues in 15:0, completion queues in 31:16, both zero-based; more than was asked for is not ours.
        Ok(((answer & 0xffff).min(answer >> 16) + 1).min(QUEUES_WANTED))
    }

    /// What the controller says about itself.
    pub fn identify(&self) -> &IdentifyController {
        &self.state.identify
    }

    /// I/O queue pairs that the controller grants.
    pub fn granted_queues(&self) -> u32 {
        self.state.queues.granted()
    }

    /// I/O queue pairs that can still be created.
    pub fn free_queues(&self) -> u32 {
        self.state.queues.granted() - self.state.queues.used()
    }

    /// The most bytes that one command may move (MDTS), `None` where the controller names no limit.
    pub fn max_data_transfer(&self) -> Option<u64> {
        match self.state.identify.mdts() {
            0 => None,
            shift => 1u64.checked_shl(u32::from(shift) + self.core.cap.min_page_shift()),
        }
    }

    /// Identifiers of the active namespaces, ascending.
    pub fn namespaces(&self) -> Result<Vec<u32>, NvmeError> {
        let mut all: Vec<u32> = Vec::new();
        loop {
            let after = all.last().copied().unwrap_or(0);
            let mut bytes = vec![0; IDENTIFY_BYTES];
            let entry = SqEntry { cdw10: u32::from(cns::ACTIVE_NAMESPACES), ..SqEntry::new(admin::IDENTIFY, 0, after) };
            self.admin_read(entry, &mut bytes, &format!("active namespaces after {after}"))?;
            let list = namespace_list(&bytes);
            let full = list.len() == NAMESPACE_LIST_ENTRIES;
            // A list that does not ascend would never end.
            let ascends = list.first().is_some_and(|&first| first > after);
            if ascends {
                all.extend(&list);
            }
            if !full || !ascends {
                return Ok(all);
            }
        }
    }

    /// One namespace. Refused unless it has blocks of 512 or 4096 bytes without metadata.
    pub fn namespace(&self, nsid: u32) -> Result<Namespace, NvmeError> {
        let mut bytes = vec![0; IDENTIFY_BYTES];
        let entry = SqEntry { cdw10: u32::from(cns::NAMESPACE), ..SqEntry::new(admin::IDENTIFY, 0, nsid) };
        let missing = || -> Result<NvmeError, NvmeError> {
            Ok(NvmeError::NoNamespace { device: self.name().to_owned(), nsid, active: self.namespaces()? })
        };
        match self.admin_read(entry, &mut bytes, &format!("namespace {nsid}")) {
            Err(e) if e.status().is_some_and(|s| s.without_flags() == status::INVALID_NAMESPACE) => {
                return Err(missing()?);
            }
            other => other?,
        }
        let identify = IdentifyNamespace::new(&bytes);
        if identify.blocks() == 0 {
            return Err(missing()?);
        }
        Namespace::new(self.name(), nsid, identify)
    }

    /// The current value of a feature (NVMe Base 2.1, 5.1.11).
    pub fn feature(&self, id: u8) -> Result<u32, NvmeError> {
        let entry = SqEntry { cdw10: u32::from(id), ..SqEntry::new(admin::GET_FEATURES, 0, 0) };
        self.admin_plain(entry, &format!("feature {id:#04x}"))
    }

    /// Sets a feature until the next reset; answers dword 0 of the completion (NVMe Base 2.1, 5.1.25).
    pub fn set_feature(&self, id: u8, value: u32) -> Result<u32, NvmeError> {
        let entry = SqEntry { cdw10: u32::from(id), cdw11: value, ..SqEntry::new(admin::SET_FEATURES, 0, 0) };
        self.admin_plain(entry, &format!("feature {id:#04x} to {value:#x}"))
    }

    fn log(&self, page: u8, out: &mut [u8], words: &str) -> Result<(), NvmeError> {
        let dwords = (out.len() / 4 - 1) as u32;
        let mut entry = SqEntry::new(admin::GET_LOG_PAGE, 0, ALL_NAMESPACES);
        entry.cdw10 = u32::from(page) | (dwords & 0xffff) << 16;
        entry.cdw11 = dwords >> 16;
        self.admin_read(entry, out, words)
    }

    /// The SMART / Health Information log.
    pub fn health(&self) -> Result<Health, NvmeError> {
        let mut bytes = [0; HEALTH_BYTES];
        self.log(log_page::HEALTH, &mut bytes, "health")?;
        Ok(Health::new(&bytes))
    }

    /// The error log, newest first, without entries that are not in use.
    pub fn error_log(&self) -> Result<Vec<ErrorLogEntry>, NvmeError> {
        let entries = usize::from(self.state.identify.error_log_entries()).min(MAX_ERROR_ENTRIES);
        let mut bytes = vec![0; entries * ERROR_ENTRY_BYTES];
        self.log(log_page::ERROR, &mut bytes, "errors")?;
        Ok(bytes.chunks_exact(ERROR_ENTRY_BYTES).map(ErrorLogEntry::new).filter(|e| e.count != 0).collect())
    }

    /// Asks for a command to be aborted. Answers whether it was; either way its own completion still arrives
    /// (NVMe Base 2.1, 5.1.1).
    pub fn abort(&self, queue: u16, cid: u16) -> Result<bool, NvmeError> {
        let entry = SqEntry { cdw10: u32::from(queue) | u32::from(cid) << 16, ..SqEntry::new(admin::ABORT, 0, 0) };
        Ok(self.admin_plain(entry, &format!("command {cid} of queue {queue}"))? & 1 == 0)
    }

    pub(super) fn create_cq(&self, id: u16, depth: u32, ring: &DmaRegion, offset: usize) -> Result<(), NvmeError> {
        let mut entry = SqEntry::new(admin::CREATE_CQ, 0, 0);
        entry.prp1 = ring.iova + offset as u64;
        entry.cdw10 = u32::from(id) | (depth - 1) << 16;
        entry.cdw11 = PHYSICALLY_CONTIGUOUS;
        self.admin_plain(entry, &format!("{id}, {depth} entries")).map(|_| ())
    }

    pub(super) fn create_sq(&self, id: u16, depth: u32, ring: &DmaRegion, offset: usize) -> Result<(), NvmeError> {
        let mut entry = SqEntry::new(admin::CREATE_SQ, 0, 0);
        entry.prp1 = ring.iova + offset as u64;
        entry.cdw10 = u32::from(id) | (depth - 1) << 16;
        // Bits 31:16 name the completion queue, which has the same identifier.
        entry.cdw11 = u32::from(id) << 16 | PHYSICALLY_CONTIGUOUS;
        self.admin_plain(entry, &format!("{id}, {depth} entries")).map(|_| ())
    }

    pub(super) fn delete_sq(&self, id: u16) -> Result<(), NvmeError> {
        let entry = SqEntry { cdw10: u32::from(id), ..SqEntry::new(admin::DELETE_SQ, 0, 0) };
        self.admin_plain(entry, &id.to_string()).map(|_| ())
    }

    pub(super) fn delete_cq(&self, id: u16) -> Result<(), NvmeError> {
        let entry = SqEntry { cdw10: u32::from(id), ..SqEntry::new(admin::DELETE_CQ, 0, 0) };
        self.admin_plain(entry, &id.to_string()).map(|_| ())
    }
}
