//! Recovery of a volume after a run that ended with time-outs, or after its controller failed, with a report.

use super::Volume;
use super::in_flight::Completed;
#[cfg(feature = "internals")]
use crate::engine::RunError;
#[cfg(feature = "internals")]
use crate::nvme::RecoveryPolicy;
use crate::nvme::RecoveryReport;
use crate::storage::error::StorageError;
use std::fmt;

/// Report of [`Volume::recover`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct VolumeRecovery {
    /// True if runs were in flight and were told to stop.
    pub stopped_runs: bool,
    /// Report of each device, in the volume's order. Copies that are left out and did not respond have none.
    pub devices: Vec<RecoveryReport>,
    /// Pages of caches whose read was dropped. The next access reads them again.
    pub pages_emptied: u64,
    /// Pages of caches whose write was dropped. They are dirty again.
    pub pages_dirty: u64,
}

impl VolumeRecovery {
    /// Returns true if nothing had to be done.
    pub fn is_empty(&self) -> bool {
        self.devices.iter().all(|d| d.steps.is_empty() && d.commands.is_empty())
            && self.pages_emptied == 0
            && self.pages_dirty == 0
    }
}

impl fmt::Display for VolumeRecovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, device) in self.devices.iter().enumerate() {
            let comma = if i == 0 { "" } else { "; " };
            write!(f, "{comma}{device}")?;
        }
        if self.pages_emptied + self.pages_dirty > 0 {
            write!(f, "; {} cached pages emptied, {} dirty again", self.pages_emptied, self.pages_dirty)?;
        }
        Ok(())
    }
}

impl Volume {
    /// Sets the policy for commands of the host that get no completion. The default submits them again.
    #[cfg(feature = "internals")]
    pub fn set_recovery(&self, policy: RecoveryPolicy) {
        self.disk().set_recovery(policy);
    }

    /// Keeps the bytes of the commands with which a run failed, for [`refused::take`](crate::refused::take). Finds those
    /// that the rings still hold. Call it after the run, before the queues are used again.
    #[cfg(feature = "internals")]
    pub fn keep_refused(&self, error: &RunError) {
        self.disk().keep_refused(error);
    }

    /// Makes the volume usable again after a run that ended with time-outs, or after its controller failed. It stops
    /// runs in flight, then aborts the commands that have no completion. Only if that is not enough, it creates the
    /// queues again, resets the controller, and resets the function. Pages of caches that were being read are emptied;
    /// those that were being written are dirty again.
    ///
    /// The failed run may then be repeated. Reads may always be repeated; writes only if writing the same data twice
    /// does no harm. The reports name each command that was in flight, with its queue and its first logical block. A
    /// copy of a replicated volume that did not respond to a kernel is used again, unless a write was made without it.
    ///
    /// The time is bounded: see [`Controller::recover`](crate::nvme::Controller::recover). Kernels in flight end with
    /// the outcome [`Stopped`](crate::engine::Outcome::Stopped) within microseconds. The holder of their run must
    /// finish or drop it.
    ///
    /// # Errors
    /// * [`StorageError::NoPath`] if a run is neither finished nor dropped within ten seconds.
    /// * [`StorageError::Nvme`] if a controller cannot be recovered. A failed copy is left out instead, unless it is
    ///   the last one.
    /// * [`StorageError::Memory`] if the memory of queues or caches cannot be accessed.
    pub fn recover(&self) -> Result<VolumeRecovery, StorageError> {
        let disk = self.disk();
        let stopped_runs = disk.stop_runs()?;
        let devices = disk.recover()?;
        let completed = self.complete_caches()?;
        let Completed { emptied: pages_emptied, dirty: pages_dirty } = completed;
        Ok(VolumeRecovery { stopped_runs, devices, pages_emptied, pages_dirty })
    }

    fn complete_caches(&self) -> Result<Completed, StorageError> {
        let caches: Vec<_> = {
            let mut known = self.0.caches.lock();
            known.retain(|c| c.strong_count() > 0);
            known.iter().filter_map(std::sync::Weak::upgrade).collect()
        };
        let mut sum = Completed::default();
        for cache in caches {
            let s = cache.complete()?;
            sum = Completed { emptied: sum.emptied + s.emptied, dirty: sum.dirty + s.dirty };
        }
        Ok(sum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args;
    use crate::engine::{Engine, Outcome};
    use crate::nvme::{Ending, RecoveryAction};
    use crate::storage::{Cache, Drive, LandingChoice};
    use std::time::Duration;

    /// Deadline for commands that get no completion: long enough that other commands seldom reach it, short enough to
    /// wait for.
    const SHORT: Duration = Duration::from_millis(300);
    /// Deadline for commands that complete, even on a busy machine.
    const LONG: Duration = Duration::from_secs(60);
    const BLOCKS: u64 = 512;

    fn volume(specs: &[&str]) -> Volume {
        let drives = specs.iter().map(|s| Drive::open(s).unwrap());
        let builder = Volume::on(&Engine::cpu().unwrap(), drives).chunk(4096).landing(LandingChoice::Bounce);
        builder.queues(2).depth(16).deadline(LONG).build().unwrap()
    }

    fn filled(specs: &[&str]) -> (Volume, Vec<u8>) {
        let v = volume(specs);
        let data: Vec<u8> = (0..BLOCKS << 9).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 13) as u8).collect();
        v.write_blocks(0, &data).unwrap();
        (v, data)
    }

    fn run(v: &Volume) -> Result<Vec<u8>, RunError> {
        let buffer = v.allocate_data((BLOCKS << 9) as usize).unwrap();
        let run = v.start_read(0, BLOCKS, 4, &buffer).unwrap();
        run.finish_within(LONG)?;
        let mut out = vec![0; (BLOCKS << 9) as usize];
        buffer.read(0, &mut out).unwrap();
        Ok(out)
    }

    #[test]
    fn a_volume_that_is_well_is_left_alone() {
        let (v, data) = filled(&["soft:mem:1M", "soft:mem:1M"]);
        assert!(run(&v).unwrap() == data);
        let done = v.recover().unwrap();
        assert!(done.is_empty() && !done.stopped_runs && done.devices.len() == 2, "{done}");
        assert!(run(&v).unwrap() == data);
    }

    #[test]
    fn after_lost_completions_the_run_can_be_repeated() {
        let (v, data) = filled(&["soft:mem:1M,lose-completion=1000-1000", "soft:mem:1M,lose-completion=every:400"]);
        v.set_deadline(SHORT).unwrap();
        let failed = (0..20).find_map(|_| run(&v).err()).expect("every 400th is lost");
        assert!(
            matches!(&failed, RunError::Operations { errors, .. }
            if errors.iter().any(|e| e.outcome == Outcome::TimedOut)),
            "{failed}"
        );
        let done = v.recover().unwrap();
        let text = done.to_string();
        let lost = &done.devices[1].commands;
        assert!(lost.iter().all(|c| c.lba.is_some() && c.blocks > 0 && c.ending != Ending::Unknown), "{text}");
        assert_eq!(done.devices[1].last_action(), Some(RecoveryAction::RebuildQueues), "{text}");
        v.check().unwrap();
        // The queues are new, so the next command is lost only after many others.
        v.set_deadline(LONG).unwrap();
        assert!(run(&v).is_ok_and(|d| d == data));
    }

    #[test]
    fn commands_that_were_lost_are_named() {
        let (v, _) = filled(&["soft:mem:1M,lose-completion=900-900"]);
        v.set_deadline(SHORT).unwrap();
        let buffer = v.allocate_data(4096).unwrap();
        let failed = v.start_read(896, 8, 8, &buffer).unwrap();
        assert!(failed.finish_within(LONG).is_err());
        let done = v.recover().unwrap();
        let [lost] = done.devices[0].commands[..] else { panic!("{done}") };
        assert_eq!((lost.lba, lost.blocks, lost.nsid, lost.ending), (Some(896), 8, 1, Ending::QueueDeleted), "{done}");
        let actions: Vec<_> = done.devices[0].steps.iter().map(|s| s.action).collect();
        assert_eq!(actions, [RecoveryAction::Abort, RecoveryAction::RebuildQueues], "{done}");
        assert!(done.to_string().contains("read of 8 block(s) at LBA 896 of namespace 1"), "{done}");
    }

    #[test]
    fn a_fatal_status_is_reset_and_the_data_is_there() {
        let (v, data) = filled(&["soft:mem:1M,fatal=900-900"]);
        v.set_deadline(SHORT).unwrap();
        let buffer = v.allocate_data(4096).unwrap();
        let failed = v.start_read(900, 8, 8, &buffer).unwrap();
        assert!(failed.finish_within(LONG).is_err());
        assert!(v.check().unwrap_err().to_string().contains("fatal"));
        let done = v.recover().unwrap();
        let report = &done.devices[0];
        assert!(report.cause.as_ref().unwrap().contains("fatal"), "{done}");
        assert_eq!(report.last_action(), Some(RecoveryAction::ResetController), "{done}");
        assert!(report.commands.iter().any(|c| c.ending == Ending::ControllerReset && c.lba == Some(900)), "{done}");
        v.check().unwrap();
        v.set_deadline(LONG).unwrap();
        assert!(run(&v).unwrap() == data);
    }

    #[test]
    fn a_device_that_left_is_told_apart_from_one_that_failed() {
        let (v, _) = filled(&["soft:mem:1M,disappear=900-900"]);
        v.set_deadline(SHORT).unwrap();
        let buffer = v.allocate_data(4096).unwrap();
        let failed = v.start_read(900, 8, 8, &buffer).unwrap();
        assert!(failed.finish_within(LONG).is_err());
        let e = v.recover().unwrap_err();
        let StorageError::Nvme(e) = &e else { panic!("{e}") };
        assert!(e.is_gone() && e.to_string().contains("LBA 900"), "{e}");
    }

    #[test]
    fn a_run_in_flight_is_stopped_and_ends_with_an_outcome() {
        let (v, data) = filled(&["soft:mem:1M,lose-completion=900-900"]);
        let buffer = v.allocate_data(4096).unwrap();
        std::thread::scope(|scope| {
            let run = v.start_read(900, 8, 8, &buffer).unwrap();
            let waiting = scope.spawn(move || run.finish_within(LONG));
            let done = v.recover().unwrap();
            assert!(done.stopped_runs);
            match waiting.join().unwrap() {
                Err(RunError::Operations { errors, .. }) => {
                    assert!(errors.iter().all(|e| e.outcome == Outcome::Stopped), "{errors:?}");
                }
                // The kernel may have been told to stop before it began to wait.
                Ok(_) => {}
                Err(other) => panic!("{other}"),
            }
        });
        assert!(run(&v).unwrap() == data);
    }

    #[test]
    fn pages_on_their_way_are_emptied_or_dirty_again() {
        let (v, data) = filled(&["soft:mem:1M,lose-completion=every:150"]);
        v.set_deadline(SHORT).unwrap();
        let cache = Cache::on(&v).bytes(64 << 10).build().unwrap();
        let mut recovered = 0;
        let mut passes = 0;
        let buffer = v.engine().allocate(crate::memory::Place::Host, data.len()).unwrap();
        while passes < 6 {
            let args = args!(&cache, 0u64, data.len() as u64, &buffer);
            // SAFETY: these are the arguments that this kernel takes, within the cache's pages.
            match unsafe { cache.run("wb_cache_read", args) } {
                Ok(()) => {
                    passes += 1;
                    assert!(buffer.get_slice::<u8>(0, data.len()).unwrap() == data);
                }
                Err(e) => {
                    recovered += 1;
                    assert!(recovered < 50, "{e}");
                    let done = v.recover().unwrap();
                    assert!(!done.is_empty());
                    let o = cache.occupancy().unwrap();
                    assert_eq!((o.busy, o.pinned), (0, 0), "{done}");
                }
            }
            buffer.fill(0, data.len(), 0).unwrap();
        }
        assert!(recovered > 0, "every 150th completion is lost");
    }
}
