//! A transfer on its stream: waits for its groups, its end, its outcomes.

use super::memory::{Counters, Lists, Staging};
use super::{Inner, LOAD, STORE};
use crate::cuda::MemoryOperation;
use crate::engine::{Args, Awaited, OperationError, Outcome, RunError, Stream, abi};
use crate::storage::error::StorageError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// A transfer that is on its stream, or has ended. Dropping it neither waits nor stops it.
pub struct SegmentTransfer {
    queue: Arc<Inner>,
    launched: Launched,
}

/// Parts of a launched transfer.
pub(super) struct Launched {
    pub(super) number: u64,
    /// Failed waits of the stream before the launch.
    pub(super) failed_waits: u64,
    pub(super) groups: usize,
    pub(super) objects: usize,
    pub(super) lists: Lists,
    pub(super) counters: Counters,
    pub(super) staging: Arc<Staging>,
}

/// Outcome of the transfer of one object.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SegmentOutcome {
    /// Bytes that were transferred: all of the object, or less if there is an error or the transfer was told to stop.
    pub bytes: u64,
    /// Sum of the checksum terms of the bytes, without that of the length (`docs/kv-store.md`).
    pub terms: u64,
    /// The first command that failed.
    pub error: Option<OperationError>,
    /// Commands that were given up: their devices may still execute them.
    pub given_up: u32,
}

/// Device of the token of a command that was not submitted (`command_ring.cuh`), and those behind it.
const NO_DEVICE: u32 = 0xfffe;

impl SegmentOutcome {
    /// Decodes the outcome of an object of a volume whose queues have `depth` entries.
    fn new(o: &abi::SegmentObject, depth: u32) -> Self {
        let error = (o.word != 0).then(|| {
            let origin = if (o.origin >> 48) as u32 >= NO_DEVICE { 0 } else { o.origin };
            OperationError {
                outcome: Outcome::from_word(o.word),
                device: (origin >> 48) as u32,
                queue: (origin >> 32) as u32 & 0xffff,
                command: origin as u32 & depth.saturating_sub(1),
                opcode: o.opcode_blocks >> abi::RECORD_OPCODE_SHIFT,
                lba: o.lba,
                blocks: o.opcode_blocks & abi::RECORD_BLOCKS_MASK,
            }
        });
        Self { bytes: o.bytes, terms: o.terms, error, given_up: o.given_up }
    }

    /// Checks that all `bytes` bytes of the object were moved. `kernel` names the transfer in errors.
    ///
    /// # Errors
    /// [`RunError::Operations`] with the command that failed; [`RunError::Stopped`] if bytes were not moved.
    pub fn check(&self, kernel: &str, bytes: u64) -> Result<(), RunError> {
        let kernel = kernel.to_owned();
        if let Some(error) = &self.error {
            return Err(RunError::Operations { kernel, errors: vec![*error], count: 1 });
        }
        if self.bytes == bytes {
            return Ok(());
        }
        let reason = format!(
            "{} of {bytes} bytes of an object were moved before the kernel was told to stop; transfer it again",
            self.bytes
        );
        Err(RunError::Stopped { kernel, reason, errors: Vec::new() })
    }
}

impl SegmentTransfer {
    pub(super) fn new(queue: Arc<Inner>, launched: Launched) -> Self {
        Self { queue, launched }
    }

    /// Makes later work on a stream of the engine wait until the segments of a group are complete, or the transfer has ended. The host
    /// does not wait. [`Self::finish`] says whether the data is what was stored. A transfer of no objects, as of a load that finds none,
    /// has no group to wait for: nothing is added to the stream.
    ///
    /// As with other work, a stream that is dropped before the wait is over stops the kernels of the engine.
    ///
    /// # Errors
    /// [`StorageError::Option`] if the transfer has no such group, or the stream is of another engine. [`StorageError::Engine`] if the
    /// stream is being captured, or the driver refuses the step.
    pub fn wait_group(&self, stream: &Stream, group: u32) -> Result<(), StorageError> {
        let launched = &self.launched;
        let has = launched.groups;
        if group as usize >= has && launched.objects > 0 {
            return super::refuse(format!("group {group} of a transfer that has {has}; give less"));
        }
        if !stream.engine().is_same(self.queue.volume.engine()) {
            return super::refuse(
                "the stream belongs to another engine than the transfer; use one of its engine".to_owned(),
            );
        }
        if launched.objects == 0 {
            return Ok(());
        }
        let counters = launched.counters.clone();
        let (number, offset) = (launched.number, counters.flag(group as usize));
        let address = counters.region().address() + offset as u64;
        let step = MemoryOperation::AwaitAtLeast64 { address, value: number, flush: false };
        let kept = Args::new().with(counters.region()).take_kept();
        let wait = Arc::new(GroupWait { counters, offset, number });
        // SAFETY: the step names a word of the counters, which are kept with it.
        Ok(unsafe { stream.operate("a group of segments", wait, || (vec![step], kept)) }?)
    }

    /// Returns true if the transfer has ended and its outcomes are there.
    pub fn is_ended(&self) -> bool {
        self.launched.lists.ended() == self.launched.number
    }

    /// Returns true if the transfer has ended, or its kernel will never run: nothing of it is on the stream.
    pub(in crate::storage) fn is_over(&self) -> bool {
        self.is_ended() || self.queue.stream.drain(Duration::ZERO).is_ok_and(|over| over)
    }

    /// Waits at most `within` for the stream, and returns the outcome of each object.
    ///
    /// # Errors
    /// [`StorageError::Run`] if work on the stream failed or was told to stop before the transfer has ended; [`StorageError::Memory`] if
    /// the outcomes cannot be read.
    pub fn finish(self, within: Duration) -> Result<Vec<SegmentOutcome>, StorageError> {
        self.wait(within)
    }

    /// As [`Self::finish`], for an owner that keeps the transfer.
    pub(in crate::storage) fn wait(&self, within: Duration) -> Result<Vec<SegmentOutcome>, StorageError> {
        if !self.is_ended() {
            let waited = self.queue.stream.synchronize(within);
            self.queue.release(true);
            if !self.is_ended() {
                let replaced = self.queue.replace(&self.launched.staging);
                waited?;
                replaced?;
                let reason = match self.queue.stream.failed_waits() == self.launched.failed_waits {
                    true => "the kernel of the transfer did not run; transfer it again",
                    false => "an earlier wait for its stream has failed; transfer it again",
                };
                let (kernel, errors) = ("a transfer of segments".to_owned(), Vec::new());
                return Err(RunError::Stopped { kernel, reason: reason.to_owned(), errors }.into());
            }
        }
        if self.queue.release(false) {
            // The kernel ends a moment after its last store. Until then the engine is not idle, and its stream keeps the volume.
            self.queue.stream.collect_only(&[LOAD, STORE], within);
        }
        self.outcomes()
    }

    /// Returns the outcome of each object of a transfer that [has ended](Self::is_ended), and zeros before.
    ///
    /// # Errors
    /// [`StorageError::Memory`] if the outcomes cannot be read, or there is no memory in place of what a device may still access.
    pub fn outcomes(&self) -> Result<Vec<SegmentOutcome>, StorageError> {
        let Launched { lists, objects, .. } = &self.launched;
        let all = lists.outcomes(*objects)?;
        if self.is_ended() && lists.is_spoiled()? {
            self.queue.replace(&self.launched.staging)?;
        }
        let depth = self.queue.volume.depth();
        Ok(all.iter().map(|object| SegmentOutcome::new(object, depth)).collect())
    }
}

impl Drop for SegmentTransfer {
    fn drop(&mut self) {
        self.queue.state.lock().dropped.push((self.launched.number, self.launched.lists.clone()));
        self.queue.release(false);
    }
}

impl fmt::Debug for SegmentTransfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SegmentTransfer({} objects, ended: {})", self.launched.objects, self.is_ended())
    }
}

/// The wait of a stream for a group. The kernel that it waits for has a deadline in each of its own waits, and sets all flags at its end.
struct GroupWait {
    counters: Counters,
    offset: usize,
    number: u64,
}

impl Awaited for GroupWait {
    fn end_late(&self) {}

    fn release(&self) {
        let region = self.counters.region();
        let set = region.get::<u64>(self.offset).and_then(|flag| match flag < self.number {
            true => region.set(self.offset, self.number),
            // A later transfer has ended.
            false => Ok(()),
        });
        if let Err(error) = set {
            tracing::warn!(%error, "a stream that waits for a group of segments was not released");
        }
    }

    fn complete(&self) -> Vec<OperationError> {
        Vec::new()
    }
}
