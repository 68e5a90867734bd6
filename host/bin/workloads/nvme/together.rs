//! Jobs whose kernels run at the same time.

use super::{BLOCK_WARPS, NvmeBench, NvmeRun};
use crate::workloads::error::{MeasureError, refuse};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// Time between two looks at the engine while a job waits for its start.
const LOOK: Duration = Duration::from_millis(20);

/// A job, and its start.
pub struct Scheduled<'b, 'v> {
    /// The job, made for as many kernels as there are jobs ([`NvmeBench::beside`]).
    pub bench: &'b NvmeBench<'v>,
    /// Time from the start of all to the start of this one.
    pub delay: Duration,
}

/// Returns the warps of one of `kernels` kernels that a GPU holds at the same time, where it holds `warps` warps of one.
///
/// `warps` counts blocks of the largest kernel. So many blocks fit, whichever kernels they are of: as long as one is left, some
/// multiprocessor has fewer than it holds of the largest kernel, and has room for another block.
pub(super) fn share(warps: u32, kernels: u32) -> Result<u32, MeasureError> {
    match (kernels, warps / BLOCK_WARPS / kernels.max(1)) {
        (0 | 1, _) => Ok(warps),
        (_, 0) => refuse!(
            "{kernels} jobs at the same time, and the GPU holds {} blocks of their kernels; run fewer at the same time",
            warps / BLOCK_WARPS
        ),
        (_, blocks) => Ok(blocks * BLOCK_WARPS),
    }
}

/// Measures all jobs once, each from its start to its own end. Returns their results, in order. `origin` is the moment from
/// which the results count their starts.
///
/// A job that fails leaves the others running, but for those on its engine.
pub fn run(jobs: &[Scheduled<'_, '_>], origin: Instant) -> Vec<Result<NvmeRun, MeasureError>> {
    // Before the first start: the driver may wait for all running kernels when it loads another one.
    let prepared: Vec<_> = jobs.iter().map(|job| job.bench.prepare()).collect();
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (job, prepared) in jobs.iter().zip(prepared) {
            let measured = move || -> Result<NvmeRun, MeasureError> {
                job.bench.wait_until(begun + job.delay)?;
                let started = Instant::now().saturating_duration_since(origin);
                Ok(NvmeRun { started: Some(started), ..job.bench.measure()? })
            };
            threads.push(prepared.and_then(|()| {
                let thread = Builder::new().name("wb-job".to_owned()).spawn_scoped(scope, measured);
                thread.map_err(|e| MeasureError::Failed(format!("its thread cannot be started: {e}")))
            }));
        }
        let panicked = |_| Err(MeasureError::Failed("its thread panicked".to_owned()));
        threads.into_iter().map(|thread| thread?.join().unwrap_or_else(panicked)).collect()
    })
}

impl NvmeBench<'_> {
    /// Makes the kernel ready to start beside others: runs it without commands, and clears its counters.
    fn prepare(&self) -> Result<(), MeasureError> {
        self.warm_up()?;
        self.clear()
    }

    /// Waits for a moment, unless the engine is told to stop.
    fn wait_until(&self, at: Instant) -> Result<(), MeasureError> {
        loop {
            if self.volume.engine().is_cancelled() {
                return Err(MeasureError::Stopped);
            }
            match at.saturating_duration_since(Instant::now()) {
                Duration::ZERO => return Ok(()),
                left => std::thread::sleep(left.min(LOOK)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::nvme::sizes::Sizes;
    use crate::workloads::nvme::{NvmeJob, Pattern};
    use warpbell::engine::{Engine, RunError};
    use warpbell::storage::{Drive, OverwritePolicy, Volume};

    /// Longest time of a job that is told to end long before.
    const LONG: Duration = Duration::from_secs(120);
    const COMMANDS: u64 = 100;

    fn volume(engine: &Engine, more: &str) -> Volume {
        let drive = Drive::create(&format!("soft:mem{more}"), 1 << 20, &OverwritePolicy::none()).unwrap();
        Volume::on(engine, [drive]).build().unwrap()
    }

    fn engine() -> Engine {
        Engine::builder().threads(2).cpu().unwrap()
    }

    /// Commands that end after their number, or only when they are told to.
    fn job(volume: &Volume, rw: Pattern, io_bytes: Option<u64>) -> NvmeBench<'_> {
        let plain = NvmeJob::new(rw, Sizes::all(4096), 1 << 20);
        let job = NvmeJob { iodepth: 4, io_bytes, runtime: Some(LONG), ..plain };
        let bench = NvmeBench::beside(volume, job, 2).unwrap();
        bench.fill(|_, _| {}).unwrap();
        bench
    }

    /// Reads that end after their number.
    fn short(volume: &Volume) -> NvmeBench<'_> {
        job(volume, Pattern::Randread, Some(COMMANDS * 4096))
    }

    fn run_all(benches: [&NvmeBench<'_>; 2], delays: [Duration; 2]) -> Vec<Result<NvmeRun, MeasureError>> {
        let jobs: Vec<_> = benches.into_iter().zip(delays).map(|(bench, delay)| Scheduled { bench, delay }).collect();
        run(&jobs, Instant::now())
    }

    fn commands(run: &NvmeRun) -> u64 {
        run.read.as_ref().unwrap().commands
    }

    /// Checks that reads are made both before and after a write of the other job, neither of which ends by itself.
    fn reads_and_writes_take_turns(of_reads: &Volume, of_writes: &Volume) {
        let (reads, writes) = (job(of_reads, Pattern::Randread, None), job(of_writes, Pattern::Randwrite, None));
        let before = (of_reads.stats().unwrap().reads, of_writes.stats().unwrap().writes);
        let made = |of: &Volume| of.stats().unwrap();
        let results = std::thread::scope(|scope| {
            let running = scope.spawn(|| run_all([&reads, &writes], [Duration::ZERO; 2]));
            let begun = Instant::now();
            let until = |happened: &dyn Fn() -> bool| {
                while !happened() && begun.elapsed() < LONG / 2 {
                    std::thread::sleep(Duration::from_millis(1));
                }
                happened()
            };
            let first = until(&|| made(of_reads).reads > before.0) && until(&|| made(of_writes).writes > before.1);
            let seen = made(of_reads).reads;
            let again = first && until(&|| made(of_reads).reads > seen);
            [&reads, &writes].iter().for_each(|bench| bench.stop.set(0, 1u32).unwrap());
            assert!(again, "one job waits for the end of the other");
            running.join().unwrap()
        });
        let [reads, writes] = &results[..] else { panic!("{results:?}") };
        assert!(commands(reads.as_ref().unwrap()) > 0);
        assert!(writes.as_ref().unwrap().write.as_ref().unwrap().commands > 0);
    }

    #[test]
    fn jobs_run_at_the_same_time_on_one_device_and_on_two() {
        let (engine, other) = (engine(), engine());
        let shared = volume(&engine, "");
        reads_and_writes_take_turns(&shared, &shared);
        reads_and_writes_take_turns(&shared, &volume(&other, ""));
    }

    #[test]
    fn a_job_starts_after_its_delay() {
        let engine = engine();
        let volume = volume(&engine, "");
        let (one, other) = (short(&volume), short(&volume));
        let delay = Duration::from_millis(60);
        let results = run_all([&one, &other], [delay, Duration::ZERO]);
        let started: Vec<Duration> = results.into_iter().map(|run| run.unwrap().started.unwrap()).collect();
        assert!(started[0] >= delay, "{started:?}");
        // A job that waits for its start ends with the engine.
        engine.cancel().unwrap();
        let waits = one.wait_until(Instant::now() + LONG);
        assert!(matches!(waits, Err(MeasureError::Stopped)), "{waits:?}");
    }

    #[test]
    fn a_device_that_fails_leaves_jobs_of_another_engine_alone() {
        let (one, other) = (engine(), engine());
        let (bad, good) = (volume(&one, ":1M,media-error=read:0-2047"), volume(&other, ""));
        let results =
            run_all([&job(&bad, Pattern::Randread, None), &short(&good)], [Duration::ZERO, Duration::from_millis(20)]);
        let failed = results[0].as_ref().unwrap_err();
        assert!(matches!(failed, MeasureError::Run(RunError::Operations { .. })), "{failed}");
        assert_eq!(commands(results[1].as_ref().unwrap()), COMMANDS);
        // The engine starts kernels again.
        assert_eq!(commands(&short(&volume(&one, "")).run().unwrap()), COMMANDS);
    }

    #[test]
    fn kernels_of_a_gpu_have_whole_blocks_that_fit_together() {
        assert_eq!(share(2112, 1).unwrap(), 2112);
        for kernels in 2..=31 {
            let warps = share(2112, kernels).unwrap();
            assert!(warps > 0 && warps.is_multiple_of(BLOCK_WARPS) && warps * kernels <= 2112, "{kernels}: {warps}");
        }
        assert_eq!(share(8, 2).unwrap(), 4);
        let refused = share(8, 3).unwrap_err().to_string();
        assert!(refused.contains("3 jobs at the same time") && refused.contains("2 blocks"), "{refused}");
    }
}
