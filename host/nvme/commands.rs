//! Admin commands of a ready controller: Identify, Abort, queues.

use super::admin::Data;
use super::controller::{Controller, Ready};
use super::{Namespace, NvmeError};
use crate::memory::DmaRegion;
use crate::wire::nvme::identify::{IdentifyController, IdentifyNamespace, NAMESPACE_LIST_ENTRIES, namespace_list};
use crate::wire::nvme::{IDENTIFY_BYTES, SqEntry, admin, cns, feature, status};

/// Number of queue pairs to request. A controller grants fewer if it has fewer.
const QUEUES_WANTED: u32 = 1024;
/// The namespace identifier that stands for all namespaces (NVMe Base 2.1, 3.2.1.2).
pub(super) const ALL_NAMESPACES: u32 = 0xffff_ffff;
/// Largest number of namespaces to list. No controller has more, and a faulty list must not be endless.
const MAX_NAMESPACES: usize = 1 << 16;
/// Version that introduced active namespace lists (NVMe Base 1.1, 5.11).
const LISTS_SINCE: (u16, u8, u8) = (1, 1, 0);
/// PC bit of Create I/O Queue: the queue's entries are contiguous in the device's address space.
const PHYSICALLY_CONTIGUOUS: u32 = 1;

impl Controller<Ready> {
    /// Runs an admin command that reads at most a page of data. `words` describes the command in errors.
    pub(crate) fn admin_read(&self, entry: SqEntry, out: &mut [u8], words: &str) -> Result<(), NvmeError> {
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
        // Submission queues in 15:0, completion queues in 31:16, both zero-based. Uses no more than requested.
        Ok(((answer & 0xffff).min(answer >> 16) + 1).min(QUEUES_WANTED))
    }

    /// Returns the Identify Controller data.
    pub fn identify(&self) -> &IdentifyController {
        &self.state.identify
    }

    /// Returns the number of I/O queue pairs that the controller grants.
    pub fn granted_queues(&self) -> u32 {
        self.state.queues.granted()
    }

    /// Returns the number of I/O queue pairs that can still be created.
    pub fn free_queues(&self) -> u32 {
        self.state.queues.granted() - self.state.queues.used()
    }

    /// Returns the largest number of bytes that one command may transfer (MDTS), or `None` if
    /// the controller has no limit.
    pub fn max_data_transfer(&self) -> Option<u64> {
        match self.state.identify.mdts() {
            0 => None,
            shift => 1u64.checked_shl(u32::from(shift) + self.core.cap.min_page_shift()),
        }
    }

    /// Returns the identifiers of the active namespaces, ascending.
    ///
    /// # Errors
    /// As any admin command: see [`Controller::feature`].
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
            // A list that does not ascend, or that exceeds the limit, would never end.
            let ascends = list.first().is_some_and(|&first| first > after) && list.is_sorted_by(|a, b| a < b);
            if ascends {
                all.extend(&list);
            }
            if !full || !ascends || all.len() >= MAX_NAMESPACES {
                return Ok(all);
            }
        }
    }

    /// Finds namespaces without a list, for controllers of version 1.0.
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

    /// Returns the Identify data of a namespace in any format, or `None` if no namespace `nsid` is active.
    ///
    /// # Errors
    /// As any admin command: see [`Controller::feature`].
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

    /// Returns a namespace. Its blocks must have 512 to 4096 bytes and no metadata.
    ///
    /// # Errors
    /// - [`NvmeError::NoNamespace`] if no namespace `nsid` is active.
    /// - [`NvmeError::Format`] if it has metadata, end-to-end protection or another block size.
    /// - Otherwise as any admin command: see [`Controller::feature`].
    pub fn namespace(&self, nsid: u32) -> Result<Namespace, NvmeError> {
        match self.identify_namespace(nsid)? {
            Some(identify) => Namespace::new(self.name(), nsid, identify),
            None => {
                let active = self.namespaces()?;
                Err(NvmeError::NoNamespace { device: self.name().to_owned(), nsid, active })
            }
        }
    }

    /// Requests the abort of command `cid` on queue `queue`. Returns true if the controller aborted it. In both cases
    /// the command's own completion still arrives (NVMe Base 2.1, 5.1.1).
    ///
    /// # Errors
    /// As any admin command: see [`Controller::feature`].
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
        // Bits 31:16 hold the identifier of the completion queue, which is equal to that of the submission queue.
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
