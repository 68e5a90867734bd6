//! A stream: kernels that run one after the other without the host in between.

use super::cpu_queue::CpuQueue;
use super::gpu::GpuQueue;
use super::run::{self, RunReport, STOP_GRACE};
use super::{Args, Backend, Engine, EngineError, Grid, RunError};
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// Kernels in the order of their launches: each starts when the one before it has ended.
///
/// What the launches borrow stays borrowed as long as the stream is there; [`Stream::synchronize`] waits for them and keeps the
/// stream for more. Dropping it tells the kernels in it to end and waits for that, a bounded time, as dropping a
/// [`Run`](super::Run) does.
///
/// After a kernel that failed, those behind it do not begin (CPU threads), or begin and find every wait at its end (a GPU); the
/// next `synchronize` answers the error, and the stream can be used again.
#[must_use = "dropping a stream stops its kernels; call synchronize"]
pub struct Stream<'a> {
    engine: Engine,
    state: Mutex<State>,
    /// Invariant: a stream of things that stay for long must not pass for one of things that go soon, take one, and outlive it.
    _borrowed: PhantomData<fn(&'a ()) -> &'a ()>,
}

struct State {
    queue: Queue,
    /// Whether kernels were launched that nobody has waited for; they then count as one run of the engine.
    busy: bool,
    /// Names of those kernels, without repetitions in a row.
    kernels: Vec<String>,
}

enum Queue {
    Cpu(CpuQueue),
    Gpu(GpuQueue),
}

impl Queue {
    fn wait(&mut self, within: Duration) -> Result<bool, String> {
        match self {
            Self::Cpu(c) => c.wait(within),
            Self::Gpu(g) => g.wait(within),
        }
    }
}

/// Kernels that an error names.
const NAMES: usize = 4;

impl<'a> Stream<'a> {
    pub(super) fn new(engine: &Engine) -> Result<Self, EngineError> {
        let queue = match &engine.0.backend {
            Backend::Cpu(_) => {
                let engine = engine.clone();
                // A log that cannot be read is not one without errors.
                Queue::Cpu(CpuQueue::new(move || engine.0.control.has_failed().unwrap_or(true))?)
            }
            Backend::Gpu(g) => Queue::Gpu(g.queue()?),
        };
        let state = Mutex::new(State { queue, busy: false, kernels: Vec::new() });
        Ok(Self { engine: engine.clone(), state, _borrowed: PhantomData })
    }

    /// The engine that it belongs to.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Adds a kernel, as [`Engine::launch_on`] does.
    pub fn launch(&self, kernel: &str, grid: Grid, args: Args<'a>) -> Result<(), EngineError> {
        let mut state = self.state();
        let mut active = run::begin(&self.engine)?;
        match (&mut state.queue, &self.engine.0.backend) {
            (Queue::Cpu(queue), Backend::Cpu(c)) => queue.launch(c.prepare(kernel, grid, args)?),
            (Queue::Gpu(queue), Backend::Gpu(g)) => g.enqueue(queue, kernel, grid, args)?,
            _ => return Err(EngineError::ForeignStream),
        }
        if !state.busy {
            state.busy = true;
            *active += 1;
        }
        if state.kernels.last().is_none_or(|last| last != kernel) {
            state.kernels.push(kernel.to_owned());
        }
        Ok(())
    }

    /// Waits until every kernel in it has ended, at most `within`. Past the limit they are told to stop, which is an error, as is
    /// what one of them raised.
    pub fn synchronize(&self, within: Duration) -> Result<RunReport, RunError> {
        let mut state = self.state();
        if !state.busy {
            return Ok(RunReport { elapsed: Duration::ZERO });
        }
        let ended = self.end(&mut state, within);
        let answer = ended.and_then(|in_time| {
            let skipped = match &mut state.queue {
                Queue::Cpu(c) => c.take_failed(),
                Queue::Gpu(_) => None,
            };
            let (kernel, skipped) = skipped.unwrap_or_else(|| (names(&state.kernels), 0));
            run::judge(&self.engine, &kernel, (!in_time).then_some(within))?;
            match skipped {
                0 => Ok(()),
                _ => Err(RunError::Stopped {
                    kernel,
                    reason: format!("the engine's kernels were told to end; {skipped} of the stream did not begin"),
                    errors: Vec::new(),
                }),
            }
        });
        self.retire(&mut state);
        answer.map(|()| RunReport {
            elapsed: match &state.queue {
                Queue::Cpu(c) => c.elapsed(),
                Queue::Gpu(g) => g.elapsed(),
            },
        })
    }

    /// Whether every kernel in it has ended. What they raised is for [`Stream::synchronize`] to tell.
    pub fn is_finished(&self) -> Result<bool, RunError> {
        let mut state = self.state();
        if !state.busy {
            return Ok(true);
        }
        state.queue.wait(Duration::ZERO).map_err(|reason| {
            let broken = run::broken(&self.engine, &names(&state.kernels), reason);
            self.retire(&mut state);
            broken
        })
    }

    /// Asks every wait inside its kernels, and inside the engine's others, to end.
    pub fn stop(&self) -> Result<(), RunError> {
        Ok(self.engine.0.control.stop()?)
    }

    /// Waits for the end; whether it came in time. If not, the kernels were told to stop.
    fn end(&self, state: &mut State, within: Duration) -> Result<bool, RunError> {
        let broken = |state: &State, reason| run::broken(&self.engine, &names(&state.kernels), reason);
        if state.queue.wait(within).map_err(|r| broken(state, r))? {
            return Ok(true);
        }
        self.stop()?;
        if state.queue.wait(STOP_GRACE).map_err(|r| broken(state, r))? {
            return Ok(false);
        }
        self.engine.space().poison();
        Err(RunError::Stuck { kernel: names(&state.kernels), within })
    }

    fn retire(&self, state: &mut State) {
        state.busy = false;
        state.kernels.clear();
        *self.engine.0.active.lock().unwrap_or_else(|e| e.into_inner()) -= 1;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}

fn names(kernels: &[String]) -> String {
    let mut names = kernels.iter().take(NAMES).map(String::as_str).collect::<Vec<_>>().join(", ");
    if kernels.len() > NAMES {
        names.push_str(&format!(", and {} more", kernels.len() - NAMES));
    }
    names
}

impl Drop for Stream<'_> {
    fn drop(&mut self) {
        let mut state = self.state();
        if !state.busy {
            return;
        }
        if let Err(e) = self.end(&mut state, Duration::ZERO) {
            tracing::warn!(kernels = names(&state.kernels), error = %e, "a dropped stream did not end well");
        }
        self.retire(&mut state);
    }
}

impl fmt::Debug for Stream<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stream({})", names(&self.state().kernels))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args;
    use crate::engine::abi;
    use crate::engine::testing;
    use crate::memory::{Place, Region};
    use bytemuck::Zeroable;

    const SOON: Duration = Duration::from_secs(20);

    fn one_warp(engine: &Engine) -> Grid {
        Grid { blocks: 1, threads: engine.info().warp_width }
    }

    #[test]
    fn kernels_run_in_order() {
        let engine = testing::engine(0);
        let out = engine.allocate(Place::Device, 1000 * 8).unwrap();
        let stream = engine.stream().unwrap();
        for round in 0..20u64 {
            // Later ones write less and sooner: out of order, or side by side, they would be overwritten.
            let n = 1000 - round * 50;
            engine.launch_on(&stream, "wb_iota", engine.grid(128, 1), args!(&out, n, round, 0u64)).unwrap();
        }
        stream.synchronize(SOON).unwrap();
        let got = out.get_slice::<u64>(0, 1000).unwrap();
        for (i, v) in got.iter().enumerate() {
            assert_eq!(*v, (999 - i as u64) / 50, "element {i}");
        }
        assert!(engine.is_idle() && stream.is_finished().unwrap());
        assert_eq!(stream.synchronize(SOON).unwrap().elapsed, Duration::ZERO);
    }

    #[test]
    fn wrong_launches_are_refused_at_once_and_disturb_nothing() {
        let (engine, other) = (testing::engine(0), testing::engine(0));
        let out = engine.allocate(Place::Device, 8).unwrap();
        let stream = engine.stream().unwrap();
        let grid = one_warp(&engine);
        let iota = |n: u64| args!(&out, n, 7u64, 0u64);
        assert!(matches!(engine.launch_on(&stream, "nothing", grid, args!()), Err(EngineError::NoKernel(_))));
        assert!(engine.is_idle());
        engine.launch_on(&stream, "wb_iota", grid, iota(1)).unwrap();
        assert!(matches!(stream.launch("wb_iota", grid, args!(1u32)), Err(EngineError::Arguments { .. })));
        assert!(matches!(other.launch_on(&stream, "wb_iota", grid, iota(1)), Err(EngineError::ForeignStream)));
        stream.synchronize(SOON).unwrap();
        assert_eq!(out.get::<u64>(0).unwrap(), 7);
    }

    /// The arguments of a kernel that waits until a word, which stays 0, is 5: the world is one PE, its heap the word.
    fn in_vain<'a>(engine: &Engine, word: &'a Region) -> Args<'a> {
        let mut args = Args::new();
        args.push_value(abi::World {
            control: engine.control_address(),
            heap: word.address(),
            heap_bytes: word.len() as u64,
            size: 1,
            flags: abi::WORLD_LOAD_STORE,
            ..abi::World::zeroed()
        });
        args.with(word).with(EQUAL).with(5u64)
    }

    /// `warpbell::cmp::eq`.
    const EQUAL: u32 = 0;
    const FOR_LONG: Duration = Duration::from_secs(3600);

    fn engine_with(deadline: Duration) -> (Engine, Region, Region) {
        let engine = testing::engine(0);
        engine.set_deadline(deadline).unwrap();
        let (word, out) = (engine.allocate(Place::Device, 8).unwrap(), engine.allocate(Place::Device, 8).unwrap());
        (engine, word, out)
    }

    #[test]
    fn an_error_in_the_middle_ends_what_is_behind_it_and_is_told_once() {
        let (engine, word, out) = engine_with(Duration::from_millis(50));
        let stream = engine.stream().unwrap();
        let grid = one_warp(&engine);
        stream.launch("wb_iota", grid, args!(&out, 1u64, 1u64, 0u64)).unwrap();
        stream.launch("wb_shmem_signal_wait", grid, in_vain(&engine, &word)).unwrap();
        stream.launch("wb_iota", grid, args!(&out, 1u64, 2u64, 0u64)).unwrap();
        let e = stream.synchronize(SOON).unwrap_err();
        // A GPU does not say which kernel it was, and begins what is behind it.
        let on_gpu = engine.kind() == "gpu";
        let named = if on_gpu { "wb_iota, wb_shmem_signal_wait, wb_iota" } else { "wb_shmem_signal_wait" };
        assert!(matches!(&e, RunError::Operations { kernel, .. } if kernel == named), "{e}");
        assert_eq!(out.get::<u64>(0).unwrap(), if on_gpu { 2 } else { 1 });
        stream.synchronize(SOON).unwrap();
        stream.launch("wb_iota", grid, args!(&out, 1u64, 3u64, 0u64)).unwrap();
        stream.synchronize(SOON).unwrap();
        assert_eq!(out.get::<u64>(0).unwrap(), 3);
    }

    #[test]
    fn what_runs_when_a_stream_is_dropped_is_stopped() {
        let (engine, word, out) = engine_with(FOR_LONG);
        let stream = engine.stream().unwrap();
        stream.launch("wb_shmem_signal_wait", one_warp(&engine), in_vain(&engine, &word)).unwrap();
        stream.launch("wb_iota", one_warp(&engine), args!(&out, 1u64, 2u64, 0u64)).unwrap();
        assert!(!stream.is_finished().unwrap());
        drop(stream);
        assert!(engine.is_idle());
        assert_eq!(out.get::<u64>(0).unwrap(), if engine.kind() == "gpu" { 2 } else { 0 });
        let stream = engine.stream().unwrap();
        stream.launch("wb_iota", one_warp(&engine), args!(&out, 1u64, 2u64, 0u64)).unwrap();
        stream.synchronize(SOON).unwrap();
    }

    #[test]
    fn kernels_that_are_late_are_stopped() {
        let (engine, word, _) = engine_with(FOR_LONG);
        let stream = engine.stream().unwrap();
        stream.launch("wb_shmem_signal_wait", one_warp(&engine), in_vain(&engine, &word)).unwrap();
        let e = stream.synchronize(Duration::from_millis(20)).unwrap_err();
        assert!(e.to_string().contains("wb_shmem_signal_wait"), "{e}");
        assert!(engine.is_idle());
    }

    #[test]
    fn kernels_that_did_not_begin_are_told() {
        let (engine, word, out) = engine_with(FOR_LONG);
        let stream = engine.stream().unwrap();
        stream.launch("wb_shmem_signal_wait", one_warp(&engine), in_vain(&engine, &word)).unwrap();
        stream.launch("wb_iota", one_warp(&engine), args!(&out, 1u64, 2u64, 0u64)).unwrap();
        stream.stop().unwrap();
        assert!(stream.synchronize(SOON).is_err());
        assert_eq!(out.get::<u64>(0).unwrap(), if engine.kind() == "gpu" { 2 } else { 0 });
    }

    #[test]
    fn names_are_few() {
        let kernels: Vec<String> = (0..6).map(|i| format!("k{i}")).collect();
        assert_eq!(names(&kernels[..2]), "k0, k1");
        assert_eq!(names(&kernels), "k0, k1, k2, k3, and 2 more");
    }
}
