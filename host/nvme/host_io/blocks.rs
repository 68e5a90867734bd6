//! Commands that transfer no data of the caller: Flush, Write Zeroes, Dataset Management.

use super::transfer::MAX_COMMAND_BLOCKS;
use super::{HostQueue, Slot};
use crate::nvme::{Namespace, NvmeError};
use crate::wire::nvme::{SqEntry, io};
use std::ops::Range;

/// Write Zeroes: also deallocate, if the blocks then read as zeros (NVM Command Set 1.1, 3.3.8, dword 12, DEAC).
const DEALLOCATE_TOO: u32 = 1 << 25;
/// Dataset Management: deallocate (NVM Command Set 1.1, 3.3.3, dword 11, AD).
const DEALLOCATE: u32 = 1 << 2;
/// Size of a range in bytes, and largest number of ranges in one command (NVM Command Set 1.1, 3.3.3).
const RANGE_BYTES: usize = 16;
const MAX_RANGES: usize = 256;

impl HostQueue<'_> {
    /// Makes completed writes durable: submits a Flush. Does nothing if the controller has no volatile write cache, or
    /// it is off ([`Controller::write_cache`](crate::nvme::Controller::write_cache)).
    ///
    /// # Errors
    /// As [`Self::flush_always`], and those of [`Controller::write_cache`](crate::nvme::Controller::write_cache).
    pub fn flush(&mut self, namespace: &Namespace) -> Result<(), NvmeError> {
        if !self.controller().write_cache()?.needs_flush() {
            return Ok(());
        }
        self.flush_always(namespace)
    }

    /// Submits a Flush, whatever the state of the write cache.
    ///
    /// # Errors
    /// - [`NvmeError::Command`] if the controller completes the command with an error.
    /// - [`NvmeError::QueueStuck`] if no slot is free.
    /// - Those of [`Self::execute`], and of [`Self::recover`] with [`InFlight::Requeue`](crate::nvme::InFlight::Requeue).
    /// - Those of [`QueueSet::reset`](crate::nvme::QueueSet::reset) if a reset of the controller ended the queue.
    pub fn flush_always(&mut self, namespace: &Namespace) -> Result<(), NvmeError> {
        self.one(SqEntry::new(io::FLUSH, 0, namespace.id()), &[])
    }

    /// Makes `blocks` read as zeros. `deallocate` allows the controller to free their space, if they then read as
    /// zeros.
    ///
    /// # Errors
    /// - [`NvmeError::Unsupported`] if the controller has no Write Zeroes, or a quirk forbids it.
    ///   The caller can write zeros.
    /// - [`NvmeError::Range`] if the blocks do not lie within the namespace.
    /// - Otherwise as [`Self::flush_always`].
    pub fn write_zeroes(
        &mut self,
        namespace: &Namespace,
        blocks: Range<u64>,
        deallocate: bool,
    ) -> Result<(), NvmeError> {
        let controller = self.controller().clone();
        let unsupported = |bit| NvmeError::Unsupported {
            device: controller.name().to_owned(),
            command: "Write Zeroes",
            bit,
            next: "write zeros instead",
        };
        if controller.quirks().no_write_zeroes {
            return Err(unsupported("a quirk of this controller: Write Zeroes is not used"));
        }
        if !controller.identify().write_zeroes() {
            return Err(unsupported("ONCS bit 3 is clear"));
        }
        self.check_blocks(namespace, &blocks)?;
        let most = controller.limits()?.write_zeroes_blocks(namespace).min(MAX_COMMAND_BLOCKS as u64).max(1);
        let may = deallocate && namespace.identify().write_zeroes_deallocates();
        let mut at = blocks.start;
        while at < blocks.end {
            let count = (blocks.end - at).min(most);
            let mut entry = SqEntry::new(io::WRITE_ZEROES, 0, namespace.id());
            entry.set_range(at, count as u32);
            entry.cdw12 |= if may { DEALLOCATE_TOO } else { 0 };
            self.one(entry, &[])?;
            at += count;
        }
        Ok(())
    }

    /// Tells the controller that the contents of these ranges are not needed any more (`nvme dsm --ad`, TRIM).
    /// [`deallocated_reads_as`](crate::wire::nvme::identify::IdentifyNamespace::deallocated_reads_as) tells
    /// what they read as afterwards.
    ///
    /// # Errors
    /// - [`NvmeError::Unsupported`] if the controller has no Dataset Management.
    /// - [`NvmeError::Range`] if a range does not lie within the namespace.
    /// - Otherwise as [`Self::flush_always`].
    pub fn deallocate(&mut self, namespace: &Namespace, ranges: &[Range<u64>]) -> Result<(), NvmeError> {
        let controller = self.controller().clone();
        if !controller.identify().dataset_management() {
            return Err(NvmeError::Unsupported {
                device: controller.name().to_owned(),
                command: "Dataset Management",
                bit: "ONCS bit 2 is clear",
                next: "leave the blocks as they are, or write zeros",
            });
        }
        ranges.iter().try_for_each(|r| self.check_blocks(namespace, r))?;
        let limits = controller.limits()?;
        let room = (self.max_transfer_bytes() / RANGE_BYTES).min(MAX_RANGES);
        let at_once = limits.ranges().min(room).max(1);
        let longest = limits.range_blocks();
        // A command may be limited in the number of ranges, the blocks of each range, and the
        // blocks of all ranges together.
        let cut = ranges.iter().flat_map(|r| {
            let step = usize::try_from(longest).unwrap_or(usize::MAX);
            let end = r.end;
            r.clone().step_by(step).map(move |first| first..end.min(first.saturating_add(longest)))
        });
        let (mut list, mut sum): (Vec<Range<u64>>, u64) = (Vec::new(), 0);
        for range in cut {
            let blocks = range.end - range.start;
            if list.len() == at_once || (sum.saturating_add(blocks) > limits.deallocate_blocks() && !list.is_empty()) {
                self.deallocate_now(namespace, &list)?;
                list.clear();
                sum = 0;
            }
            sum += blocks;
            list.push(range);
        }
        if list.is_empty() { Ok(()) } else { self.deallocate_now(namespace, &list) }
    }

    fn deallocate_now(&mut self, namespace: &Namespace, ranges: &[Range<u64>]) -> Result<(), NvmeError> {
        let mut data = Vec::with_capacity(ranges.len() * RANGE_BYTES);
        for r in ranges {
            // Context attributes: none.
            data.extend(0u32.to_le_bytes());
            data.extend(((r.end - r.start) as u32).to_le_bytes());
            data.extend(r.start.to_le_bytes());
        }
        let mut entry = SqEntry::new(io::DATASET_MANAGEMENT, 0, namespace.id());
        entry.cdw10 = ranges.len() as u32 - 1;
        entry.cdw11 = DEALLOCATE;
        self.one(entry, &data)
    }

    fn check_blocks(&self, namespace: &Namespace, blocks: &Range<u64>) -> Result<(), NvmeError> {
        let bytes = blocks.end.saturating_sub(blocks.start).saturating_mul(namespace.block_bytes() as u64);
        if blocks.start <= blocks.end && blocks.end <= namespace.blocks() {
            return Ok(());
        }
        Err(NvmeError::Range {
            device: self.controller().name().to_owned(),
            nsid: namespace.id(),
            lba: blocks.start,
            bytes: usize::try_from(bytes).unwrap_or(usize::MAX),
            reason: format!(
                "the range ends at block {}, and the namespace has {} blocks",
                blocks.end,
                namespace.blocks()
            ),
        })
    }

    /// Runs one command until it completes, with `data` for the controller to read, and repeats it as the policy says.
    fn one(&mut self, entry: SqEntry, data: &[u8]) -> Result<(), NvmeError> {
        self.refresh()?;
        let mut tries = 0;
        loop {
            tries += 1;
            let cid = self.reserve().ok_or_else(|| self.full())?;
            let mut entry = entry;
            if !data.is_empty() {
                self.fill_buffer(cid, data)?;
                (entry.prp1, entry.prp2) = self.data_pointers(cid, data.len());
            }
            let done = self.execute(cid, entry);
            self.release(cid);
            match done {
                Ok(done) => match self.judge(&entry, &done) {
                    Err(e) if self.may_repeat(&e, tries) => {}
                    other => return other,
                },
                Err(e) if tries >= self.policy.attempts || !self.may_retry(&e) => return Err(e),
                // The command was aborted, or the queue was recovered.
                Err(_) if matches!(self.slots[usize::from(cid)], Slot::Free) => {}
                Err(_) => self.recover_in_budget()?,
            }
        }
    }
}
