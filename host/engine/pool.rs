//! Threads that run the blocks of kernels on the CPU. They stay for the next kernel: starting a thread takes longer than a
//! short kernel, and beside other programs a new thread waits for a time slice.

use crate::per_process::PerProcess;
use crate::responsive::Responsive;
use parking_lot::{Condvar, Mutex};
use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// Time after which a thread without work ends.
const KEPT: Duration = Duration::from_secs(5);

/// A job, whose result is dropped when its thread can be taken again.
type Job = Box<dyn FnOnce() -> Box<dyn Any> + Send>;

/// A thread of the pool that its owner gives one job. `None` once it has the job.
pub(super) struct Worker(Option<Arc<Slot>>);

#[derive(Default)]
struct Slot {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
enum State {
    #[default]
    Idle,
    Given(Job),
    /// The owner gives no job.
    Dropped,
}

/// Threads without work.
static IDLE: PerProcess<Mutex<Vec<Arc<Slot>>>> = PerProcess::new(Mutex::default);

/// Takes threads out of the pool, and starts those that are missing. All of them run at once.
///
/// # Errors
/// Those of starting a thread.
pub(super) fn take(count: usize) -> io::Result<Vec<Worker>> {
    let mut workers: Vec<Worker> = {
        let mut idle = IDLE.get().lock();
        let kept = idle.len().saturating_sub(count);
        idle.drain(kept..).map(|slot| Worker(Some(slot))).collect()
    };
    while workers.len() < count {
        let slot = Arc::new(Slot::default());
        let theirs = slot.clone();
        let name = format!("wb-{}", workers.len());
        // Threads that were taken so far go back if this fails.
        std::thread::Builder::new().name(name).spawn(move || work(&theirs))?;
        workers.push(Worker(Some(slot)));
    }
    Ok(workers)
}

impl Worker {
    /// Runs a job on the thread. Drops its result when the thread is in the pool again: who waits for that takes this thread next.
    pub(super) fn run<T: 'static>(mut self, job: impl FnOnce() -> T + Send + 'static) {
        if let Some(slot) = self.0.take() {
            slot.set(State::Given(Box::new(|| Box::new(job()))));
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Some(slot) = &self.0 {
            slot.set(State::Dropped);
        }
    }
}

impl Slot {
    fn set(&self, state: State) {
        *self.state.lock() = state;
        self.changed.notify_one();
    }
}

fn work(slot: &Arc<Slot>) {
    let _responsive = Responsive::enter();
    loop {
        let mut state = slot.state.lock();
        while matches!(*state, State::Idle) {
            let late = slot.changed.wait_for(&mut state, KEPT).timed_out();
            if late && matches!(*state, State::Idle) {
                // Takes no lock of the pool while it holds its own.
                drop(state);
                if leave(slot) {
                    return;
                }
                // An owner has taken this thread meanwhile.
                state = slot.state.lock();
            }
        }
        let job = std::mem::take(&mut *state);
        drop(state);
        let result = match job {
            // Values that the job captured report a panic.
            State::Given(job) => catch_unwind(AssertUnwindSafe(job)).ok(),
            _ => None,
        };
        IDLE.get().lock().push(slot.clone());
        drop(result);
    }
}

/// Leaves the pool. Returns false if the thread is not in the pool.
fn leave(slot: &Arc<Slot>) -> bool {
    let mut idle = IDLE.get().lock();
    let at = idle.iter().position(|s| Arc::ptr_eq(s, slot));
    at.map(|at| idle.remove(at)).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;

    #[test]
    fn jobs_of_one_call_run_at_once_and_a_panic_ends_none_of_the_next() {
        for round in 0..20 {
            let (count, (done, ended)) = (1 + round % 7, channel());
            let barrier = Arc::new(Barrier::new(count));
            for worker in take(count).unwrap() {
                let (barrier, done) = (barrier.clone(), done.clone());
                worker.run(move || {
                    barrier.wait();
                    done.send(()).unwrap();
                    std::panic::panic_any(())
                });
            }
            drop(done);
            assert_eq!(ended.iter().count(), count);
        }
    }

    #[test]
    fn every_job_runs_once() {
        let ran = Arc::new(AtomicUsize::new(0));
        for round in 1..=2_000 {
            let (done, ended) = channel::<()>();
            for worker in take(2).unwrap() {
                let (ran, done) = (ran.clone(), done.clone());
                worker.run(move || {
                    ran.fetch_add(1, Ordering::Relaxed);
                    done
                });
            }
            drop(done);
            assert!(ended.recv().is_err());
            assert_eq!(ran.load(Ordering::Relaxed), 2 * round);
        }
    }

    #[test]
    fn a_forked_child_has_threads_of_its_own_also_if_the_pool_was_in_use() {
        let _held = IDLE.get().lock();
        let child = crate::per_process::in_forked_child(|| {
            let (done, ended) = channel();
            for worker in take(3).unwrap() {
                let done = done.clone();
                worker.run(move || done.send(()).unwrap());
            }
            drop(done);
            ended.iter().count() == 3
        });
        assert_eq!(child, Some(true));
    }

    #[test]
    fn a_thread_that_got_no_job_is_taken_again() {
        let slots: Vec<_> = take(3).unwrap().iter().filter_map(|w| w.0.clone()).collect();
        // The threads go back to the pool, where other tests may take them.
        for slot in &slots {
            while matches!(*slot.state.lock(), State::Dropped) {
                std::thread::yield_now();
            }
        }
        let (done, ended) = channel();
        for (i, worker) in take(5).unwrap().into_iter().enumerate() {
            let done = done.clone();
            worker.run(move || done.send(i).unwrap());
        }
        drop(done);
        let mut all: Vec<_> = ended.iter().collect();
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2, 3, 4]);
    }
}
