//! I/O commands of a host on a queue pair of the device.

use super::Shared;
use super::connection::{Reply, Request};
use crate::nvme::{HostQueue, HostQueueOptions, NvmeError};
use crate::wire::nvme::{SqEntry, Status, io, status};
use std::collections::VecDeque;
use std::sync::Arc;

/// Size of a Dataset Management range in bytes (NVM Command Set 1.1, 3.3.3).
const RANGE_BYTES: u32 = 16;
/// Command bits that are passed on to the device: LR, FUA, PRINFO excluded; DEAC of Write Zeroes.
const PASSED_DWORD_12: u32 = 1 << 31 | 1 << 30 | 1 << 25 | 0xffff;

/// An I/O queue of a host.
pub(super) struct IoQueue {
    shared: Arc<Shared>,
    queue: HostQueue<'static>,
    /// The command of each slot, by the identifier that the host chose.
    running: Vec<Option<Request>>,
    waiting: VecDeque<Request>,
    count: usize,
}

impl IoQueue {
    /// Creates a queue pair of the device for a queue of `entries` entries.
    pub(super) fn new(shared: &Arc<Shared>, entries: u32) -> Result<Self, NvmeError> {
        let most = shared.device.cap().max_queue_entries();
        let depth = entries.next_power_of_two().min(1 << most.ilog2()).max(2);
        let bytes = shared.config.max_transfer_bytes as usize;
        let options = HostQueueOptions::default().depth(depth).bytes_per_command(bytes);
        let queue = HostQueue::create(&shared.device, options)?;
        let running = (0..queue.capacity()).map(|_| None).collect();
        Ok(Self { shared: shared.clone(), queue, running, waiting: VecDeque::new(), count: 0 })
    }

    pub(super) fn is_busy(&self) -> bool {
        self.count > 0
    }

    /// Checks a command and submits it. Returns the response if it ends at once.
    pub(super) fn submit(&mut self, request: Request) -> Option<Reply> {
        let cid = request.entry.cid();
        if let Err(status) = self.check(&request) {
            return Some(Reply::new(cid, status, 0));
        }
        if !self.waiting.is_empty() {
            self.waiting.push_back(request);
            return None;
        }
        self.start(request)
    }

    /// Compares the length of a command's SGL with its blocks.
    fn check(&self, r: &Request) -> Result<(), Status> {
        let e = &r.entry;
        let namespace = || self.shared.namespaces.get(&e.nsid).ok_or(status::INVALID_NAMESPACE.dnr());
        let wanted = match e.opcode() {
            io::READ | io::WRITE | io::COMPARE => u64::from(e.blocks()) << namespace()?.block_shift(),
            io::DATASET_MANAGEMENT => {
                namespace()?;
                u64::from(((e.cdw10 & 0xff) + 1) * RANGE_BYTES)
            }
            io::FLUSH if e.nsid == u32::MAX => 0,
            io::FLUSH | io::WRITE_ZEROES | io::WRITE_UNCORRECTABLE => {
                namespace()?;
                0
            }
            _ => return Err(status::INVALID_OPCODE.dnr()),
        };
        if wanted > u64::from(self.shared.config.max_transfer_bytes) {
            return Err(status::INVALID_FIELD.dnr());
        }
        match u64::from(r.length) == wanted {
            true => Ok(()),
            false => Err(status::SGL_LENGTH_INVALID.dnr()),
        }
    }

    fn start(&mut self, request: Request) -> Option<Reply> {
        let Some(slot) = self.queue.reserve() else {
            self.waiting.push_back(request);
            return None;
        };
        let e = &request.entry;
        let mut entry = SqEntry::new(e.opcode(), slot, e.nsid);
        (entry.cdw10, entry.cdw11) = (e.cdw10, e.cdw11);
        entry.cdw12 = e.cdw12 & PASSED_DWORD_12;
        let length = request.length as usize;
        let filled = if request.data.is_empty() { Ok(()) } else { self.queue.fill_buffer(slot, &request.data) };
        if length > 0 {
            (entry.prp1, entry.prp2) = self.queue.data_pointers(slot, length);
        }
        match filled.and_then(|()| self.queue.submit(slot, entry)) {
            Ok(()) => {
                self.running[usize::from(slot)] = Some(request);
                self.count += 1;
                None
            }
            Err(error) => {
                tracing::warn!(%error, "a command was not submitted");
                self.queue.release(slot);
                Some(Reply::new(e.cid(), status::INTERNAL_ERROR, 0))
            }
        }
    }

    /// Returns the responses of the commands that the device has completed.
    pub(super) fn poll(&mut self) -> Result<Vec<Reply>, NvmeError> {
        let mut replies = Vec::new();
        while let Some(done) = self.queue.poll()? {
            let slot = done.cid();
            if let Some(request) = self.running.get_mut(usize::from(slot)).and_then(Option::take) {
                self.count -= 1;
                let mut reply = Reply::new(request.entry.cid(), done.status(), done.result.into());
                if request.entry.opcode() == io::READ && done.status().is_success() {
                    reply.data = vec![0; request.length as usize];
                    self.queue.take_buffer(slot, &mut reply.data)?;
                }
                replies.push(reply);
            }
            self.queue.release(slot);
            while let Some(next) = self.waiting.pop_front() {
                let before = self.waiting.len();
                replies.extend(self.start(next));
                if self.waiting.len() > before {
                    // There was no slot; the command keeps its turn.
                    self.waiting.rotate_right(1);
                    break;
                }
            }
        }
        Ok(replies)
    }
}
