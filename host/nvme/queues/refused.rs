//! Commands of kernels that the controller refused, as they are still in the rings after a run.

use super::QueueSet;
use crate::nvme::error::{io_name, refused};
use crate::nvme::layout;
use crate::refused::Interface;
use crate::wire::nvme::{CqEntry, SqEntry, Status};

impl QueueSet {
    /// Keeps the bytes of a command that failed on the queue pair with this index, if both rings still have them. No kernel
    /// may be using the queues.
    pub(crate) fn keep_refused(&self, index: u32, cid: u16, opcode: u8, lba: u64, status: Status) {
        let depth = self.options.depth as usize;
        if index >= self.count() {
            return;
        }
        let ring = layout::rings(self.options.depth);
        let (submission, at) = self.submission_ring(index);
        let sent = submission.region.get_slice::<SqEntry>(submission.offset + at, depth).unwrap_or_default();
        let rings = &self.memory.rings;
        let at = rings.offset + index as usize * ring.bytes + ring.cq_offset;
        let came = rings.region.get_slice::<CqEntry>(at, depth).unwrap_or_default();
        let sent = sent.iter().find(|e| e.cid() == cid && e.opcode() == opcode && e.slba() == lba);
        // A later command may have the identifier, too, but no later one failed with this status.
        let is_its = |e: &&CqEntry| e.cid() == cid && e.status().without_flags() == status.without_flags();
        let came = came.iter().find(is_its);
        if let (Some(entry), Some(done)) = (sent, came) {
            let (name, blocks, nsid) = (io_name(opcode), entry.blocks(), entry.nsid);
            let command = format!("{name} of {blocks} block(s) at LBA {lba} of namespace {nsid}");
            // The error that is made here is the run's already.
            let _ = refused(Interface::NvmeIo, self.controller.name(), self.ids[index as usize], command, entry, done);
        }
    }
}
