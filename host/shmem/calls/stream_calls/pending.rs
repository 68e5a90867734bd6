//! The steps that are prepared, and those that the stream has and the host has not waited for.

use crate::cuda::MemoryOperation;
use crate::engine::{Kept, OperationError, Outcome, abi};
use crate::memory::Region;
use crate::shmem::network::{PrepareError, StreamQueues};
use crate::shmem::{ShmemError, World};
use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[derive(Default)]
pub(super) struct Pending {
    steps: Vec<MemoryOperation>,
    kept: Kept,
    /// Waits among the steps: offset of the signal word in this PE's heap, and the value.
    waits: Vec<(usize, u64)>,
    triggers: Vec<Trigger>,
    last: u32,
    /// Queue pairs to PEs that loads and stores do not reach.
    queues: Option<StreamQueues>,
    /// True if waits have to flush writes of devices to GPU memory.
    flush: bool,
    /// Requests that the steps do not announce yet: the PE, and true if the last one is a get.
    open: Option<(usize, bool)>,
}

/// Steps that were triggered together.
struct Trigger {
    number: u32,
    waits: Vec<Wait>,
    /// Requests announced to each PE.
    ends: Vec<u64>,
    /// Time at which the host first saw that the stream had begun.
    begun: Option<Instant>,
    kept: Kept,
}

struct Wait {
    offset: usize,
    value: u64,
    ended: Option<Outcome>,
}

impl Pending {
    pub(super) fn new(queues: Option<StreamQueues>, flush: bool) -> Self {
        Self { queues, flush, ..Self::default() }
    }

    pub(super) fn queues(&self) -> Option<&StreamQueues> {
        self.queues.as_ref()
    }

    pub(super) fn take_queues(&mut self) -> Option<StreamQueues> {
        self.queues.take()
    }

    /// Adds a step behind all before it.
    pub(super) fn add(&mut self, step: MemoryOperation) {
        self.close();
        self.steps.push(step);
    }

    /// Keeps an owner of memory that the steps name.
    pub(super) fn keep(&mut self, owner: Arc<dyn Any + Send + Sync>) {
        self.kept.push(owner);
    }

    /// Adds a wait for a signal word.
    pub(super) fn wait(&mut self, address: u64, offset: usize, value: u64) {
        let flush = self.flush;
        self.add(MemoryOperation::AwaitAtLeast64 { address, value, flush });
        self.waits.push((offset, value));
    }

    /// Adds requests to PE `pe`, which `post` writes. Requests to one PE are announced together: they take effect in their order, except
    /// that a put does not wait for the data of a get before it.
    pub(super) fn request(
        &mut self,
        opcode: u32,
        pe: usize,
        post: impl FnOnce(&mut StreamQueues) -> Result<(), PrepareError>,
    ) -> Result<(), ShmemError> {
        let is_get = opcode == abi::CALL_GET;
        if self.open.is_some_and(|(of, was_get)| of != pe || was_get && !is_get) {
            self.close();
        }
        let Some(queues) = &mut self.queues else { return Err(ShmemError::OutOfReach { pe }) };
        post(queues).map_err(|e| match e {
            PrepareError::Full(requests, room, capacity) => ShmemError::StreamFull { pe, requests, room, capacity },
            PrepareError::Failed(reason) => ShmemError::StreamConnection { pe, reason },
        })?;
        self.open = Some((pe, is_get));
        Ok(())
    }

    /// Adds the steps that announce the open requests and wait for them.
    fn close(&mut self) {
        if let (Some((pe, _)), Some(queues)) = (self.open.take(), &mut self.queues) {
            self.steps.extend(queues.announce(pe, self.flush));
        }
    }

    /// Takes the prepared steps, and the owners of their memory. The stream stores the trigger's number to `begun` first.
    ///
    /// # Errors
    /// [`ShmemError::StreamConnection`] if a queue pair has failed. The steps are gone then.
    pub(super) fn take(&mut self, begun: u64) -> Result<(Vec<MemoryOperation>, Kept), ShmemError> {
        // A queue pair that failed has forgotten the requests that were not announced.
        let is_prepared = self.open.is_some() || !self.steps.is_empty();
        self.close();
        let mut steps = std::mem::take(&mut self.steps);
        let kept = std::mem::take(&mut self.kept);
        let waits: Vec<_> = self.waits.drain(..).map(|(offset, value)| Wait { offset, value, ended: None }).collect();
        if !is_prepared {
            return Ok((steps, kept));
        }
        if let Some((pe, reason)) = self.queues.as_ref().and_then(StreamQueues::failed) {
            return Err(ShmemError::StreamConnection { pe, reason: reason.to_owned() });
        }
        self.last = self.last.wrapping_add(1);
        let number = self.last;
        let ends = self.queues.as_ref().map_or_else(Vec::new, StreamQueues::announced);
        if !waits.is_empty() || !ends.is_empty() {
            steps.insert(0, MemoryOperation::Store32 { address: begun, value: number });
            self.triggers.push(Trigger { number, waits, ends, begun: None, kept: kept.clone() });
        }
        Ok((steps, kept))
    }

    /// Ends the waits of triggers that have begun longer than `deadline` ago.
    pub(super) fn end_late(&mut self, world: &World, begun: &Region, deadline: Duration) {
        self.note_begun(begun);
        let Self { triggers, queues, .. } = self;
        for trigger in triggers.iter_mut().filter(|t| t.begun.is_some_and(|begun| begun.elapsed() > deadline)) {
            trigger.end(world, Outcome::TimedOut);
            if let Some(queues) = queues.as_mut().filter(|queues| !queues.have_reached(&trigger.ends)) {
                queues.release();
            }
        }
    }

    /// Ends all waits.
    pub(super) fn release(&mut self, world: &World, begun: &Region) {
        self.note_begun(begun);
        for trigger in &mut self.triggers {
            let outcome = if trigger.begun.is_some() { Outcome::TimedOut } else { Outcome::Stopped };
            trigger.end(world, outcome);
        }
        if let Some(queues) = &mut self.queues {
            queues.release();
        }
    }

    /// Returns the waits and requests that failed, once the stream has executed all steps.
    pub(super) fn complete(&mut self, me: u32) -> Vec<OperationError> {
        let triggers = std::mem::take(&mut self.triggers);
        let mut failed = Vec::new();
        if let Some(queues) = &mut self.queues {
            let (ended, outcome) = queues.complete();
            for one in ended {
                let of = triggers.iter().find(|t| t.ends.get(one.pe).is_some_and(|end| one.call.index < *end));
                let late = if of.is_some_and(|t| t.begun.is_none()) { Outcome::Stopped } else { Outcome::TimedOut };
                failed.push(OperationError {
                    outcome: one.outcome(late),
                    device: one.pe as u32,
                    queue: me,
                    command: 0,
                    opcode: one.call.opcode,
                    lba: one.call.offset as u64,
                    blocks: u32::try_from(one.call.bytes).unwrap_or(u32::MAX),
                });
            }
            if let Err(error) = outcome {
                tracing::warn!(%error, "a queue pair of a stream cannot be reset: memory of its requests is not freed");
                triggers.iter().for_each(|trigger| std::mem::forget(trigger.kept.clone()));
            }
        }
        let waits = triggers.into_iter().flat_map(|t| t.waits);
        failed.extend(waits.filter_map(|wait| {
            Some(OperationError {
                outcome: wait.ended?,
                device: abi::NO_PE,
                queue: me,
                command: 0,
                opcode: abi::CALL_WAIT,
                lba: wait.offset as u64,
                blocks: size_of::<u64>() as u32,
            })
        }));
        failed
    }

    fn note_begun(&mut self, begun: &Region) {
        let begun: u32 = begun.get(0).unwrap_or(0);
        for trigger in &mut self.triggers {
            if begun.wrapping_sub(trigger.number) as i32 >= 0 {
                trigger.begun.get_or_insert_with(Instant::now);
            }
        }
    }
}

impl Trigger {
    /// Ends the waits that are not over: stores the value that they wait for.
    fn end(&mut self, world: &World, outcome: Outcome) {
        let (heap, pe) = (world.heap(), world.my_pe());
        for wait in self.waits.iter_mut().filter(|w| w.ended.is_none()) {
            let mut word = [0; 8];
            let is_over = heap.read(pe, wait.offset, &mut word).is_ok()
                && u64::from_ne_bytes(word).wrapping_sub(wait.value) as i64 >= 0;
            if is_over {
                continue;
            }
            wait.ended = Some(outcome);
            if let Err(error) = heap.write(pe, wait.offset, &wait.value.to_ne_bytes()) {
                tracing::warn!(%error, offset = wait.offset, "a stream's wait for a signal cannot be ended");
            }
        }
    }
}
