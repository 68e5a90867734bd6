//! Recovery of the devices of a disk after a run that ended with time-outs, or after a controller failed.

use super::Disk;
#[cfg(feature = "internals")]
use crate::engine::{Outcome, RunError};
#[cfg(feature = "internals")]
use crate::nvme::RecoveryPolicy;
use crate::nvme::RecoveryReport;
use crate::storage::error::StorageError;
use std::time::{Duration, Instant};

/// Time in which kernels must end after they were told to stop. Their waits read the stop flag every few microseconds.
const STOP_GRACE: Duration = Duration::from_secs(10);
/// Interval at which the host checks that they have ended.
const LOOK_EVERY: Duration = Duration::from_millis(1);

impl Disk {
    /// Sets the policy for commands of the host that get no completion. The default submits them again.
    #[cfg(feature = "internals")]
    pub(in crate::storage) fn set_recovery(&self, policy: RecoveryPolicy) {
        self.host.set_policy(policy);
    }

    /// Keeps the bytes of the commands with which a run failed, for [`refused::take`](crate::refused::take). Finds those
    /// that the rings still hold. Call it after the run, before the queues are used again.
    #[cfg(feature = "internals")]
    pub(in crate::storage) fn keep_refused(&self, error: &RunError) {
        let RunError::Operations { errors, .. } = error else { return };
        for e in errors {
            let (Outcome::DeviceError(status), Some(set)) = (e.outcome, self.sets.get(e.device as usize)) else {
                continue;
            };
            set.lock().keep_refused(e.queue, e.command as u16, e.opcode as u8, e.lba, status);
        }
    }

    /// Aborts the commands that have no completion. Only if that is not enough, creates the queues again, resets the
    /// controller, and resets the function. No run is active. Copies that are left out and did not respond have no report.
    pub(in crate::storage) fn recover(&self) -> Result<Vec<RecoveryReport>, StorageError> {
        let policy = self.policy();
        let used = self.in_use()?;
        let mut devices = Vec::new();
        for (device, (drive, set)) in self.drives.iter().zip(&self.sets).enumerate() {
            let controller = drive.lock().controller().clone();
            let outcome = controller.recover(&mut [&mut set.lock()], &policy);
            match outcome {
                Ok(report) => {
                    devices.push(report);
                    self.host.take_in(device);
                    if !used.contains(&device) {
                        self.take_in(device)?;
                    }
                }
                // The volume continues with the remaining copies.
                Err(_) if !used.contains(&device) => {}
                Err(e) if self.is_replicated() && self.leave_out(device, e.to_string(), false)? => {}
                Err(e) => return Err(e.into()),
            }
        }
        // Two drives may be namespaces of one controller. A reset for the second drive removed the queues of the first.
        for set in &self.sets {
            let mut set = set.lock();
            if set.is_stale() && set.controller().check().is_ok() {
                set.reset()?;
            }
        }
        Ok(devices)
    }

    /// Stops all runs and waits until none is active. Returns true if there was a run.
    pub(in crate::storage) fn stop_runs(&self) -> Result<bool, StorageError> {
        let engine = &self.engine;
        if engine.is_idle() {
            return Ok(false);
        }
        engine.stop_runs()?;
        let started = Instant::now();
        while !engine.is_idle() {
            if started.elapsed() > STOP_GRACE {
                let reason = format!(
                    "runs were told to stop but are not finished after {STOP_GRACE:?}; finish or drop every run first"
                );
                return Err(StorageError::NoPath {
                    what: "recovery".to_owned(),
                    device: self.name().to_owned(),
                    reason,
                    remedies: Vec::new(),
                });
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(true)
    }
}
