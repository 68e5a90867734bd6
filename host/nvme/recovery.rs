//! What is done about commands without completion: Abort, then the queues deleted and created again, then a controller
//! reset, then a reset of the function; each step only when the one before did not help, each bounded.
//!
//! Nothing is submitted again before the controller has let go of it: a command that was aborted has completed, one whose
//! queue was deleted or whose controller was reset is no longer executed (NVMe Base 2.1, 3.7.2 and 5.2.4), so its memory is
//! the host's again and a repeated write cannot be overtaken by itself.

use super::admin::Wait;
use super::controller::{Controller, Ready};
use super::error::io_name;
use super::queues::QueueSet;
use super::{NvmeError, layout};
use crate::setters::setters;
use crate::wire::nvme::{CqEntry, SqEntry, Status, io, status};
use std::fmt;
use std::time::{Duration, Instant};

/// Commands that are aborted one by one. Where more are in flight, deleting their queue ends the rest at once.
const MOST_ABORTS: usize = 64;
/// How long aborted commands get to end unless told otherwise.
const ABORT_GRACE: Duration = Duration::from_secs(1);
/// How often a command is submitted in all unless told otherwise.
const ATTEMPTS: u32 = 3;
/// Commands that a report spells out.
const SPELLED_OUT: usize = 8;

/// What becomes of a command that had no completion once its queue works again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InFlight {
    /// It is submitted again.
    Requeue,
    /// It fails; whoever asked for it decides.
    Fail,
}

/// How commands without completion are dealt with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoveryPolicy {
    /// What becomes of them.
    pub in_flight: InFlight,
    /// How often a command is submitted in all before it fails, with [`InFlight::Requeue`].
    pub attempts: u32,
    /// How long commands that were aborted get to end.
    pub abort_grace: Duration,
}

setters!(RecoveryPolicy { in_flight: InFlight, attempts: u32, abort_grace: Duration });

impl Default for RecoveryPolicy {
    /// They fail.
    fn default() -> Self {
        Self { in_flight: InFlight::Fail, attempts: ATTEMPTS, abort_grace: ABORT_GRACE }
    }
}

impl RecoveryPolicy {
    /// They are submitted again.
    pub fn requeue() -> Self {
        Self { in_flight: InFlight::Requeue, ..Self::default() }
    }
}

/// A step of a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecoveryAction {
    /// Abort of each command in flight.
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

/// One step that was taken.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RecoveryStep {
    /// Which.
    pub action: RecoveryAction,
    /// How long it took.
    pub took: Duration,
    /// Why it did not help, if it did not.
    pub failed: Option<String>,
}

/// How a command without completion ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ending {
    /// Its completion had come, late.
    Completed(Status),
    /// Aborted.
    Aborted,
    /// Ended with the deletion of its queue.
    QueueDeleted,
    /// Aborted by a reset of the controller.
    ControllerReset,
    /// The device does not answer: nobody knows.
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
    /// Queue, as the controller counts.
    pub queue: u16,
    /// Command identifier.
    pub cid: u16,
    /// Opcode.
    pub opcode: u8,
    /// Namespace.
    pub nsid: u32,
    /// First logical block, where the command names one.
    pub lba: Option<u64>,
    /// Logical blocks, 0 where the command names none.
    pub blocks: u32,
    /// How it ended.
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

/// What a recovery found and did.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// Which device.
    pub device: String,
    /// What was wrong with the controller itself, if anything was.
    pub cause: Option<String>,
    /// What was done, in order; nothing where nothing had to be.
    pub steps: Vec<RecoveryStep>,
    /// Commands that had no completion, and how they ended.
    pub commands: Vec<Unfinished>,
}

impl RecoveryReport {
    fn new(device: &str) -> Self {
        Self { device: device.to_owned(), cause: None, steps: Vec::new(), commands: Vec::new() }
    }

    /// The step that the controller came back with, if one was needed.
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

/// The commands of one queue without completion.
pub(super) struct Pending {
    /// Which of the sets, and which queue of it.
    pub(super) set: usize,
    pub(super) index: u32,
    /// Completions taken so far.
    pub(super) head: u32,
    pub(super) commands: Vec<Unfinished>,
}

impl Controller<Ready> {
    /// Makes the queues of these sets, which are all of this controller, work again after time-outs: aborts what is in flight,
    /// and where that is not enough goes on to deleting and creating the queues, to a controller reset and to a function reset.
    /// No kernel may use the queues meanwhile. Tokens and commands of earlier runs are void afterwards.
    ///
    /// Other queues of the controller are only touched by the resets; each of their sets needs its own
    /// [`QueueSet::reset`](super::QueueSet::reset) then, which [`QueueSet::check`](super::QueueSet::check) tells.
    ///
    /// Bounded by the grace for aborted commands, and for each further step by the command deadline and the time that the
    /// controller names for becoming ready. The error holds the report.
    pub fn recover(&self, sets: &mut [&mut QueueSet], policy: &RecoveryPolicy) -> Result<RecoveryReport, NvmeError> {
        let mut pending = Vec::new();
        let mut idle = true;
        for (i, set) in sets.iter().enumerate() {
            for index in 0..set.count() {
                idle &= set.idle_ticket(index)?.is_some();
                pending.push(set.pending(i, index)?);
            }
        }
        climb(self, sets, pending, idle, policy)
    }
}

/// The ladder. `idle`: the queues themselves need nothing.
pub(super) fn climb(
    controller: &Controller<Ready>,
    sets: &mut [&mut QueueSet],
    mut pending: Vec<Pending>,
    idle: bool,
    policy: &RecoveryPolicy,
) -> Result<RecoveryReport, NvmeError> {
    let mut report = RecoveryReport::new(controller.name());
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
    // A controller that has failed, or was reset by somebody else, answers no command.
    let mut answers = controller.check().is_ok();
    if answers && outstanding(&pending) {
        let aborted = step(&mut report, RecoveryAction::Abort, || abort(controller, sets, &mut pending, policy));
        // Nor will one that does not answer this.
        answers = !matches!(aborted, Err(NvmeError::TimedOut { .. } | NvmeError::QueueStuck { .. }));
    }
    if answers {
        let rebuilt = step(&mut report, RecoveryAction::RebuildQueues, || rebuild(sets));
        if rebuilt.is_ok() {
            return Ok(finish(report, pending, Ending::QueueDeleted));
        }
    }
    let reset = |controller: &Controller<Ready>, sets: &mut [&mut QueueSet]| {
        controller.reset()?;
        rebuild(sets)
    };
    let mut outcome = step(&mut report, RecoveryAction::ResetController, || reset(controller, sets));
    if outcome.is_err() {
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

/// Whether nothing is known yet about a command's end.
fn is_open(ending: Ending) -> bool {
    ending == Ending::Unknown
}

/// Looks for completions that have come meanwhile.
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

/// Asks for each command to be aborted, and waits for the completions. Fails with the first Abort that does not come back, and
/// where commands are left.
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
    // Which of them the controller says that it aborts: the completions of those are worth waiting for.
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

/// Puts the commands into the report, those that are still open with this ending.
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
    /// What the words in kernel memory and the submission ring say is in flight. No kernel may use the queue.
    fn pending(&self, set: usize, index: u32) -> Result<Pending, NvmeError> {
        let words = self.kernel_words(index)?;
        let queue = self.queue_id(index).ok_or_else(|| self.no_queue(index))?;
        let (ring, first) = self.submission_ring(index);
        let mut commands = Vec::new();
        for slot in words.in_flight() {
            let at = ring.offset + first + slot as usize * size_of::<SqEntry>();
            let entry: SqEntry = ring.region.get(at)?;
            commands.push(Unfinished { cid: slot as u16, ..Unfinished::new(queue, &entry) });
        }
        Ok(Pending { set, index, head: words.head, commands })
    }

    /// Completions from `head` on that nobody has taken.
    fn completions(&self, index: u32, head: u32) -> Result<Vec<CqEntry>, NvmeError> {
        let (depth, ring, rings) = (self.depth(), layout::rings(self.depth()), self.ring_memory());
        let at = rings.offset + index as usize * ring.bytes + ring.cq_offset;
        let entries: Vec<CqEntry> = rings.region.get_slice(at, depth as usize)?;
        let place = |i: u32| head.wrapping_add(i);
        let is_new = |i: &u32| {
            let lap = place(*i) >> depth.trailing_zeros();
            // The first lap of a fresh ring is written with phase 1.
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
