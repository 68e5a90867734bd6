//! Admin commands of a ready controller: Identify, Abort, queues.

use super::admin::Data;
use super::controller::{Controller, Ready};
use super::{Namespace, NvmeError};
use crate::memory::DmaRegion;
use crate::wire::nvme::identify::{IdentifyController, IdentifyNamespace, NAMESPACE_LIST_ENTRIES, namespace_list};
use crate::wire::nvme::{IDENTIFY_BYTES, SqEntry, admin, cns, feature, status};

/// Queue pairs asked for; a controller grants as many of them as it has.
const QUEUES_WANTED: u32 = 1024;
/// The namespace identifier that means all of them (NVMe Base 2.1, 3.2.1.2).
pub(super) const ALL_NAMESPACES: u32 = 0xffff_ffff;
/// Namespaces that are listed at most: no controller has more, and a list has to end.
const MAX_NAMESPACES: usize = 1 << 16;
/// Active namespace lists came with this version (NVMe Base 1.1, 5.11).
const LISTS_SINCE: (u16, u8, u8) = (1, 1, 0);
/// Queue entries are contiguous in the device's address space (PC of Create I/O Queue).
const PHYSICALLY_CONTIGUOUS: u32 = 1;

impl Controller<Ready> {
    pub(super) fn admin_read(&self, entry: SqEntry, out: &mut [u8], words: &str) -> Result<(), NvmeError> {
        self.admin().execute(entry, Data::In(out), words).map(|_| ())
    }

    pub(super) fn admin_plain(&self, entry: SqEntry, words: &str) -> Result<u32, NvmeError> {
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
        if self.core.quirks.no_namespace_list || self.version() < LISTS_SINCE {
            return self.namespaces_one_by_one();
        }
        let mut all: Vec<u32> = Vec::new();
        loop {
            let after = all.last().copied().unwrap_or(0);
            let mut bytes = vec![0; IDENTIFY_BYTES];
            let entry = SqEntry { cdw10: u32::from(cns::ACTIVE_NAMESPACES), ..SqEntry::new(admin::IDENTIFY, 0, after) };
            self.admin_read(entry, &mut bytes, &format!("active namespaces after {after}"))?;
            let list = namespace_list(&bytes);
            let full = list.len() == NAMESPACE_LIST_ENTRIES;
            // Lists that do not ascend, or are longer than a driver can be meant to walk, would never end.
            let ascends = list.first().is_some_and(|&first| first > after) && list.is_sorted_by(|a, b| a < b);
            if ascends {
                all.extend(&list);
            }
            if !full || !ascends || all.len() >= MAX_NAMESPACES {
                return Ok(all);
            }
        }
    }

    /// For controllers of version 1.0, which have no list.
    fn namespaces_one_by_one(&self) -> Result<Vec<u32>, NvmeError> {
        let last = self.state.identify.namespace_count().min(MAX_NAMESPACES as u32);
        let mut all = Vec::new();
        for nsid in 1..=last {
            if self.identify_namespace(nsid)?.is_some() {
                all.push(nsid);
            }
        }
        Ok(all)
    }

    /// What a controller says about a namespace, whatever its format; `None` where there is none.
    pub fn identify_namespace(&self, nsid: u32) -> Result<Option<IdentifyNamespace>, NvmeError> {
        let mut bytes = vec![0; IDENTIFY_BYTES];
        let entry = SqEntry { cdw10: u32::from(cns::NAMESPACE), ..SqEntry::new(admin::IDENTIFY, 0, nsid) };
        match self.admin_read(entry, &mut bytes, &format!("namespace {nsid}")) {
            Err(e) if e.status().is_some_and(|s| s.without_flags() == status::INVALID_NAMESPACE) => return Ok(None),
            other => other?,
        }
        let identify = IdentifyNamespace::new(&bytes);
        Ok((identify.blocks() != 0).then_some(identify))
    }

    /// One namespace. Refused unless its blocks are 512 to 4096 bytes with nothing beside the data.
    pub fn namespace(&self, nsid: u32) -> Result<Namespace, NvmeError> {
        match self.identify_namespace(nsid)? {
            Some(identify) => Namespace::new(self.name(), nsid, identify),
            None => {
                let active = self.namespaces()?;
                Err(NvmeError::NoNamespace { device: self.name().to_owned(), nsid, active })
            }
        }
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
