//! Commands of the host: on its own queues, or between runs on a queue of the kernels.

use super::Disk;
use crate::engine::EngineError;
use crate::nvme::{HostQueue, NvmeError, RecoveryPolicy, RetryBudget};
use crate::storage::error::StorageError;
use crate::wire::nvme::status;
use std::ffi::CString;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

impl Disk {
    /// Returns the recovery policy. The grace for an aborted command is at most the deadline of a command.
    pub(in crate::storage) fn policy(&self) -> RecoveryPolicy {
        let policy = *self.host.policy.lock();
        RecoveryPolicy { abort_grace: policy.abort_grace.min(self.engine.deadline()), ..policy }
    }

    /// Runs `use_it` on the host's queue of a device. If there is none, borrows a queue of the kernels.
    pub(in crate::storage) fn with_queue<T>(
        &self,
        device: usize,
        use_it: impl FnOnce(&mut HostQueue<'_>, &crate::nvme::Namespace) -> Result<T, NvmeError>,
    ) -> Result<T, StorageError> {
        let (namespace, file) = {
            let drive = self.drives[device].lock();
            (drive.namespace().clone(), drive.file().map(PathBuf::from))
        };
        let told = |outcome: Result<T, NvmeError>| outcome.map_err(|e| self.failed_command(device, e, file));
        let deadline = self.engine.deadline();
        let policy = self.policy();
        self.check_budget(device)?;
        let prepare = |queue: &mut HostQueue<'_>| {
            queue.set_deadline(deadline);
            queue.set_recovery(policy);
            queue.set_retry_budget(&self.host.budget);
            queue.stop_with(&self.engine);
        };
        if let Some(queue) = &self.host.queues[device] {
            let mut queue = queue.lock();
            prepare(&mut queue);
            let outcome = use_it(&mut queue, &namespace);
            // If the commands led to a controller reset, the kernels' queues are lost.
            self.revive(device);
            return told(outcome);
        }
        if !self.engine.is_idle() {
            let other = match self.queues {
                1 => "or use a device with two or more of them",
                _ => "or use one queue pair fewer",
            };
            let reason = format!(
                "running kernels use all queue pairs of its controller ({}); finish the run first, {other}",
                self.queues
            );
            let (what, device) = ("host access".to_owned(), self.name().to_owned());
            return Err(StorageError::NoPath { what, device, reason, remedies: Vec::new() });
        }
        let mut set = self.sets[device].lock();
        let mut queue = HostQueue::on(&mut set, 0)?;
        prepare(&mut queue);
        told(use_it(&mut queue, &namespace))
    }

    /// Fails for a device that left a command without completion when too little was left of the budget, until that is regained.
    fn check_budget(&self, device: usize) -> Result<(), StorageError> {
        let (host, engine) = (&self.host, &self.engine);
        let Some(command) = host.given_up[device].lock().clone() else { return Ok(()) };
        if engine.is_told_to_end() {
            return Err(told_to_end(engine.stopped_for()));
        }
        let deadline = engine.deadline();
        if host.budget.left(Instant::now(), deadline) >= RetryBudget::least(deadline) {
            host.take_in(device);
            return Ok(());
        }
        let allowed = RetryBudget::whole(deadline);
        Err(NvmeError::BudgetExhausted { device: self.names[device].clone(), command, allowed }.into())
    }

    /// Turns the error of a command into that of the volume. Notes a device that did not complete it, if nothing is left
    /// of the budget.
    fn failed_command(&self, device: usize, e: NvmeError, file: Option<PathBuf>) -> StorageError {
        let (host, engine) = (&self.host, &self.engine);
        if let Some(command) = e.uncompleted() {
            let is_told = engine.is_told_to_end();
            let deadline = engine.deadline();
            if is_told || host.budget.left(Instant::now(), deadline) < RetryBudget::least(deadline) {
                *host.given_up[device].lock() = Some(command.to_owned());
            }
            if is_told {
                return told_to_end(engine.stopped_for());
            }
        }
        no_space(e, file)
    }

    /// Creates the kernels' queues again if a controller reset removed them and no kernel runs.
    fn revive(&self, device: usize) {
        if !self.engine.is_idle() {
            return;
        }
        let mut set = self.sets[device].lock();
        if set.is_stale()
            && let Err(e) = set.reset()
        {
            tracing::warn!(device = self.names[device], error = %e, "queues for kernels were not created again");
        }
    }
}

/// Returns the error of a wait that ended because the engine was told to end its work.
fn told_to_end(reason: Option<&str>) -> StorageError {
    match reason {
        Some(reason) => EngineError::Stopped { reason: reason.to_owned() }.into(),
        None => EngineError::Cancelled.into(),
    }
}

/// Turns a device's capacity error into [`StorageError::NoSpace`] if the device is a file.
fn no_space(e: NvmeError, file: Option<PathBuf>) -> StorageError {
    match (&e, file) {
        (NvmeError::Command { status, .. }, Some(path)) if status.without_flags() == status::CAPACITY_EXCEEDED => {
            let free = free_bytes(path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new(".")));
            StorageError::NoSpace { path, free }
        }
        _ => e.into(),
    }
}

/// Returns the bytes that a file system has free for users.
fn free_bytes(folder: &Path) -> Option<u64> {
    let name = CString::new(folder.as_os_str().as_bytes()).ok()?;
    let mut found = MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: the name is zero-terminated, and both pointers are valid during the call.
    if unsafe { libc::statvfs(name.as_ptr(), found.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: the call succeeded, so it initialised the whole structure.
    let found = unsafe { found.assume_init() };
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}
