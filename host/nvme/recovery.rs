//! Recovery from commands without completion. Each step is taken only if the one before did not help, and each is
//! bounded: Abort, then deletion and re-creation of the queues, then a controller reset, then a function reset.
//!
//! A command is submitted again only after the controller has released it. An aborted command has completed. A command
//! whose queue was deleted, or whose controller was reset, is no longer executed (NVMe Base 2.1, 3.7.2 and 5.2.4). Its
//! memory then belongs to the host again, and a repeated write cannot be overtaken by its first attempt.

use super::admin::Wait;
use super::controller::{Controller, Ready};
use super::error::io_name;
use super::queues::QueueSet;
use super::{NvmeError, layout};
use crate::setters::setters;
use crate::wire::nvme::{CqEntry, SqEntry, Status, io, status};
use std::fmt;
use std::time::{Duration, Instant};

/// Largest number of commands to abort one by one. If more are in flight, deleting their queue ends the rest at once.
const MOST_ABORTS: usize = 64;
/// Default time for aborted commands to complete.
const ABORT_GRACE: Duration = Duration::from_secs(1);
/// Default number of submissions of a command, including the first.
const ATTEMPTS: u32 = 3;
/// Largest number of commands that a report lists.
const SPELLED_OUT: usize = 8;

/// Treatment of a command without completion, once its queue works again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InFlight {
    /// The command is submitted again.
    Requeue,
    /// The command fails; the caller decides.
    Fail,
}

/// Policy for commands without completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoveryPolicy {
    /// Treatment of these commands.
    pub in_flight: InFlight,
    /// Number of submissions of a command, including the first, before it fails. Only with [`InFlight::Requeue`].
    pub attempts: u32,
    /// Time for aborted commands to complete.
    pub abort_grace: Duration,
    /// Time after which no further recovery step begins; `None` for no limit. The first step is always taken.
    pub steps_within: Option<Duration>,
}

setters!(RecoveryPolicy { in_flight: InFlight, attempts: u32, abort_grace: Duration, steps_within: Option<Duration> });

impl Default for RecoveryPolicy {
    /// Returns the policy that lets commands without completion fail.
    fn default() -> Self {
        Self { in_flight: InFlight::Fail, attempts: ATTEMPTS, abort_grace: ABORT_GRACE, steps_within: None }
    }
}

impl RecoveryPolicy {
    /// Returns the policy that submits commands without completion again.
    pub fn requeue() -> Self {
        Self { in_flight: InFlight::Requeue, ..Self::default() }
    }
}

/// Kind of a recovery step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecoveryAction {
    /// Each command in flight was aborted.
    Abort,
    /// The queues were deleted and created again.
    RebuildQueues,
    /// CC.EN was cleared and set again.
    ResetController,
    /// The whole function was reset.
    ResetFunction,
}

impl fmt::Display for RecoveryAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Abort => "abort",
            Self::RebuildQueues => "rebuild queues",
            Self::ResetController => "reset controller",
            Self::ResetFunction => "reset function",
        })
    }
}

/// One recovery step that was taken.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RecoveryStep {
    /// Kind of the step.
    pub action: RecoveryAction,
    /// Duration of the step.
    pub took: Duration,
    /// Reason why the step did not help; `None` if it did.
    pub failed: Option<String>,
}

/// Outcome of a command that had no completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ending {
    /// The command completed, late, with this status.
    Completed(Status),
    /// The command was aborted.
    Aborted,
    /// The command ended with the deletion of its queue.
    QueueDeleted,
    /// A reset of the controller aborted the command.
    ControllerReset,
    /// Unknown, because the device does not respond.
    Unknown,
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Completed(s) if s.is_success() => f.write_str("completed late"),
            Self::Completed(s) => write!(f, "completed late: {s}"),
            Self::Aborted => f.write_str("aborted"),
            Self::QueueDeleted => f.write_str("aborted by the deletion of its queue"),
            Self::ControllerReset => f.write_str("aborted by reset"),
            Self::Unknown => f.write_str("unknown: the device does not answer"),
        }
    }
}

/// A command that had no completion when recovery began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unfinished {
    /// Queue identifier, as the controller knows it.
    pub queue: u16,
    /// Command identifier.
    pub cid: u16,
    /// Opcode.
    pub opcode: u8,
    /// Namespace identifier.
    pub nsid: u32,
    /// First logical block; `None` if the command names none.
    pub lba: Option<u64>,
    /// Number of logical blocks; 0 if the command names none.
    pub blocks: u32,
    /// Outcome of the command.
    pub ending: Ending,
}

impl Unfinished {
    pub(super) fn new(queue: u16, entry: &SqEntry) -> Self {
        let ranged =
            matches!(entry.opcode(), io::READ | io::WRITE | io::WRITE_ZEROES | io::COMPARE | io::WRITE_UNCORRECTABLE);
        Self {
            queue,
            cid: entry.cid(),
            opcode: entry.opcode(),
            nsid: entry.nsid,
            lba: ranged.then(|| entry.slba()),
            blocks: if ranged { entry.blocks() } else { 0 },
            ending: Ending::Unknown,
        }
    }
}

impl fmt::Display for Unfinished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&io_name(self.opcode))?;
        if let Some(lba) = self.lba {
            write!(f, " of {} block(s) at LBA {lba}", self.blocks)?;
        }
        write!(f, " of namespace {} (queue {}, command {}): {}", self.nsid, self.queue, self.cid, self.ending)
    }
}

/// Report of a recovery.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// Name of the device.
    pub device: String,
    /// Error of the controller itself; `None` if it was in order.
    pub cause: Option<String>,
    /// Steps that were taken, in order; empty if none was needed.
    pub steps: Vec<RecoveryStep>,
    /// Commands that had no completion, with their outcomes.
    pub commands: Vec<Unfinished>,
}

impl RecoveryReport {
    fn new(device: &str) -> Self {
        Self { device: device.to_owned(), cause: None, steps: Vec::new(), commands: Vec::new() }
    }

    /// Returns the last step, after which the controller worked; `None` if no step was needed.
    #[cfg(feature = "internals")]
    pub fn last_action(&self) -> Option<RecoveryAction> {
        self.steps.last().map(|s| s.action)
    }
}

impl fmt::Display for RecoveryReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} command(s) without completion", self.device, self.commands.len())?;
        if let Some(cause) = &self.cause {
            write!(f, "; {cause}")?;
        }
        for step in &self.steps {
            write!(f, "; {} ", step.action)?;
            match &step.failed {
                None => write!(f, "took {:.1?}", step.took)?,
                Some(reason) => write!(f, "failed after {:.1?} ({reason})", step.took)?,
            }
        }
        for command in self.commands.iter().take(SPELLED_OUT) {
            write!(f, "; {command}")?;
        }
        match self.commands.len().saturating_sub(SPELLED_OUT) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

/// Commands of one queue without completion.
pub(super) struct Pending {
    /// Index of the queue set. `index` is the queue in it.
    pub(super) set: usize,
    pub(super) index: u32,
    /// Number of completions taken so far.
    pub(super) head: u32,
    pub(super) commands: Vec<Unfinished>,
}

impl Controller<Ready> {
    /// Makes queues work again after time-outs. All of `sets` must belong to this controller.
    ///
    /// Aborts the commands in flight. If that does not help, deletes and creates the queues, then resets the
    /// controller, then resets the function. No kernel may use the queues meanwhile. Tokens and commands of
    /// earlier runs are void afterwards.
    ///
    /// Only the resets affect other queues of the controller. After a reset, each other set needs its own
    /// [`QueueSet::reset`](super::QueueSet::reset). [`QueueSet::check`](super::QueueSet::check) then reports it.
    ///
    /// The grace for aborted commands bounds the first step. The command deadline, and the controller's time to become
    /// ready, bound each further step.
    ///
    /// # Errors
    /// - [`NvmeError::NotRecovered`] if no step helped, or the controller has left. It contains the report.
    /// - [`NvmeError::Memory`] if the words of a queue cannot be read.
    pub fn recover(&self, sets: &mut [&mut QueueSet], policy: &RecoveryPolicy) -> Result<RecoveryReport, NvmeError> {
        let mut pending = Vec::new();
        let mut idle = true;
        for (i, set) in sets.iter().enumerate() {
            for index in 0..set.count() {
                idle &= set.idle_ticket(index)?.is_some();
                pending.push(set.pending(i, index)?);
            }
        }
        climb(self, sets, pending, idle, policy, true)
    }
}

/// Takes the recovery steps. `idle` means that the queues themselves need none. The last argument is false if the
/// controller is known to complete no admin command.
pub(super) fn climb(
    controller: &Controller<Ready>,
    sets: &mut [&mut QueueSet],
    mut pending: Vec<Pending>,
    idle: bool,
    policy: &RecoveryPolicy,
    answers: bool,
) -> Result<RecoveryReport, NvmeError> {
    let began = Instant::now();
    let has_time = || policy.steps_within.is_none_or(|within| began.elapsed() < within);
    let mut report = RecoveryReport::new(controller.name());
    tracing::debug!(device = report.device, "recovery begins");
    let state = controller.check().and_then(|()| sets.iter().try_for_each(|s| s.check()));
    report.cause = state.as_ref().err().map(NvmeError::to_string);
    collect(sets, &mut pending);
    for p in pending.iter_mut().filter(|p| sets[p.set].is_stale()) {
        p.commands.iter_mut().filter(|c| is_open(c.ending)).for_each(|c| c.ending = Ending::ControllerReset);
    }
    let outstanding = |pending: &[Pending]| pending.iter().flat_map(|p| &p.commands).any(|c| is_open(c.ending));
    if idle && state.is_ok() && !outstanding(&pending) {
        return Ok(finish(report, pending, Ending::Unknown));
    }
    if let Err(source @ NvmeError::Gone { .. }) = state {
        return Err(failed(finish(report, pending, Ending::Unknown), source));
    }
    // A controller that has failed, or was reset by other software, completes no command.
    let mut answers = answers && controller.check().is_ok();
    let mut last = None;
    if answers && outstanding(&pending) {
        last = step(&mut report, RecoveryAction::Abort, || abort(controller, sets, &mut pending, policy)).err();
        // A controller that does not complete Abort completes no other admin command either.
        answers = !matches!(last, Some(NvmeError::TimedOut { .. } | NvmeError::QueueStuck { .. }));
    }
    if answers {
        match step(&mut report, RecoveryAction::RebuildQueues, || rebuild(sets)) {
            Ok(()) => return Ok(finish(report, pending, Ending::QueueDeleted)),
            Err(e) => last = Some(e),
        }
    }
    if let Some(e) = last.take_if(|_| !has_time()) {
        return Err(failed(finish(report, pending, Ending::Unknown), e));
    }
    let reset = |controller: &Controller<Ready>, sets: &mut [&mut QueueSet]| {
        controller.reset()?;
        rebuild(sets)
    };
    let mut outcome = step(&mut report, RecoveryAction::ResetController, || reset(controller, sets));
    if outcome.is_err() && has_time() {
        outcome = step(&mut report, RecoveryAction::ResetFunction, || {
            controller.port().reset_function()?;
            reset(controller, sets)
        });
    }
    match outcome {
        Ok(()) => Ok(finish(report, pending, Ending::ControllerReset)),
        Err(e) => Err(failed(finish(report, pending, Ending::Unknown), e)),
    }
}

fn step(
    report: &mut RecoveryReport,
    action: RecoveryAction,
    work: impl FnOnce() -> Result<(), NvmeError>,
) -> Result<(), NvmeError> {
    let started = Instant::now();
    let outcome = work();
    let failed = outcome.as_ref().err().map(NvmeError::to_string);
    tracing::debug!(device = report.device, %action, failed, "recovery");
    report.steps.push(RecoveryStep { action, took: started.elapsed(), failed });
    outcome
}

fn rebuild(sets: &mut [&mut QueueSet]) -> Result<(), NvmeError> {
    sets.iter_mut().try_for_each(|set| set.reset())
}

/// Returns true if the outcome of a command is still unknown.
fn is_open(ending: Ending) -> bool {
    ending == Ending::Unknown
}

/// Takes completions that have arrived meanwhile.
fn collect(sets: &[&mut QueueSet], pending: &mut [Pending]) {
    for p in pending {
        if !p.commands.iter().any(|c| is_open(c.ending)) {
            continue;
        }
        let Ok(entries) = sets[p.set].completions(p.index, p.head) else { continue };
        for done in entries {
            if let Some(c) = p.commands.iter_mut().find(|c| c.cid == done.cid() && is_open(c.ending)) {
                c.ending = match done.status() {
                    s if s.without_flags() == status::ABORT_REQUESTED => Ending::Aborted,
                    s => Ending::Completed(s),
                };
            }
        }
    }
}

/// Requests the abort of each command, and waits for the completions. Fails with the first Abort that does not
/// complete, and if commands remain without completion.
fn abort(
    controller: &Controller<Ready>,
    sets: &[&mut QueueSet],
    pending: &mut [Pending],
    policy: &RecoveryPolicy,
) -> Result<(), NvmeError> {
    let open: Vec<(u16, u16)> = pending
        .iter()
        .flat_map(|p| &p.commands)
        .filter(|c| is_open(c.ending))
        .map(|c| (c.queue, c.cid))
        .take(MOST_ABORTS)
        .collect();
    // Commands that the controller says it aborts: only their completions are worth waiting for.
    let mut promised = Vec::new();
    for &(queue, cid) in &open {
        if controller.abort(queue, cid)? {
            promised.push((queue, cid));
        }
    }
    let started = Instant::now();
    let mut wait = Wait::new();
    loop {
        collect(sets, pending);
        let left: Vec<(u16, u16)> =
            pending.iter().flat_map(|p| &p.commands).filter(|c| is_open(c.ending)).map(|c| (c.queue, c.cid)).collect();
        if left.is_empty() {
            return Ok(());
        }
        if started.elapsed() > policy.abort_grace || !promised.iter().any(|p| left.contains(p)) {
            let reason = format!("{} of {} command(s) did not end", left.len(), open.len());
            return Err(NvmeError::Options { device: controller.name().to_owned(), reason });
        }
        wait.pause();
    }
}

/// Moves the commands into the report. Commands with unknown outcome get `ending`.
fn finish(mut report: RecoveryReport, pending: Vec<Pending>, ending: Ending) -> RecoveryReport {
    for mut c in pending.into_iter().flat_map(|p| p.commands) {
        if is_open(c.ending) {
            c.ending = ending;
        }
        report.commands.push(c);
    }
    if !report.steps.is_empty() || !report.commands.is_empty() {
        tracing::info!("recovered: {report}");
    }
    report
}

fn failed(report: RecoveryReport, source: NvmeError) -> NvmeError {
    NvmeError::NotRecovered { report: Box::new(report), source: Box::new(source) }
}

impl QueueSet {
    /// Returns the commands in flight on a queue, from its words in kernel memory and its submission ring.
    /// No kernel may use the queue.
    fn pending(&self, set: usize, index: u32) -> Result<Pending, NvmeError> {
        let words = self.kernel_words(index)?;
        let queue = self.queue_id(index).ok_or_else(|| self.no_queue(index))?;
        let (ring, first) = self.submission_ring(index);
        let mut commands = Vec::new();
        for slot in words.in_flight() {
            let at = ring.offset + first + slot as usize * size_of::<SqEntry>();
            let entry: SqEntry = ring.region.get(at)?;
            let cid = if self.by_capsules() { entry.cid() } else { slot as u16 };
            commands.push(Unfinished { cid, ..Unfinished::new(queue, &entry) });
        }
        Ok(Pending { set, index, head: words.head, commands })
    }

    /// Returns the completions from `head` on that were not taken.
    fn completions(&self, index: u32, head: u32) -> Result<Vec<CqEntry>, NvmeError> {
        // Kernels match the responses of remote controllers, and leave none behind.
        if self.by_capsules() {
            return Ok(Vec::new());
        }
        let (depth, ring, rings) = (self.depth(), layout::rings(self.depth()), self.ring_memory());
        let at = rings.offset + index as usize * ring.bytes + ring.cq_offset;
        let entries: Vec<CqEntry> = rings.region.get_slice(at, depth as usize)?;
        let place = |i: u32| head.wrapping_add(i);
        let is_new = |i: &u32| {
            let lap = place(*i) >> depth.trailing_zeros();
            // The controller writes the first lap of a new ring with phase 1.
            entries[(place(*i) & (depth - 1)) as usize].phase() == (lap & 1 == 0)
        };
        Ok((0..depth).take_while(is_new).map(|i| entries[(place(i) & (depth - 1)) as usize]).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_read_well() {
        let mut entry = SqEntry::new(io::READ, 5, 1);
        entry.set_range(100, 8);
        let mut report = RecoveryReport::new("soft:mem");
        report.cause = Some("it is ill".to_owned());
        let took = Duration::from_millis(1500);
        report.steps = vec![
            RecoveryStep { action: RecoveryAction::Abort, took, failed: Some("no answer".to_owned()) },
            RecoveryStep { action: RecoveryAction::ResetController, took, failed: None },
        ];
        report.commands = vec![Unfinished { ending: Ending::ControllerReset, ..Unfinished::new(2, &entry) }; 9];
        let text = report.to_string();
        let begins = "soft:mem: 9 command(s) without completion; it is ill; abort failed after 1.5s (no answer); \
                      reset controller took 1.5s; read of 8 block(s) at LBA 100 of namespace 1 (queue 2, command 5): aborted by reset;";
        assert!(text.starts_with(begins), "{text}");
        assert!(text.ends_with("; and 1 more"), "{text}");
        assert_eq!(report.last_action(), Some(RecoveryAction::ResetController));
        let flush = Unfinished::new(1, &SqEntry::new(io::FLUSH, 3, 1)).to_string();
        assert_eq!(flush, "flush of namespace 1 (queue 1, command 3): unknown: the device does not answer");
    }
}
