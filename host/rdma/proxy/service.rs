//! The thread of a proxy: it serves all queue pairs of an adapter in turn.

use crate::idle::{Idle, Pace};
use parking_lot::Mutex;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Pauses of a thread that finds nothing to do.
const PACE: Pace =
    Pace { spin: Duration::ZERO, yields: 1_000, naps: [Duration::from_micros(20), Duration::from_micros(200)] };

/// What a thread serves.
pub(in crate::rdma) trait RingUser: Send {
    /// Does what there is to do; whether that was anything.
    fn step(&mut self) -> bool;
}

type Slot = Arc<Mutex<dyn RingUser>>;

#[derive(Default)]
struct Shared {
    all: Mutex<Vec<Slot>>,
    /// Counts the changes of `all`.
    version: AtomicU64,
    stop: AtomicBool,
}

/// A thread and what it serves. Dropped, the thread ends.
pub(in crate::rdma) struct Service {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Service {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system has no more threads.
    pub fn start(name: &str) -> io::Result<Arc<Self>> {
        let shared = Arc::<Shared>::default();
        let of_thread = shared.clone();
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || of_thread.run())?;
        Ok(Arc::new(Self { shared, thread: Some(thread) }))
    }

    /// Serves one more.
    pub fn add(&self, served: Slot) {
        self.shared.all.lock().push(served);
        self.shared.version.fetch_add(1, Ordering::Release);
    }

    /// Serves it no longer. The thread may be at it for the last time: whoever holds its lock is alone with it from then on.
    pub fn remove(&self, served: &Slot) {
        self.shared.all.lock().retain(|s| !Arc::ptr_eq(s, served));
        self.shared.version.fetch_add(1, Ordering::Release);
    }
}

impl Shared {
    fn run(&self) {
        let mut mine: Vec<Slot> = Vec::new();
        let mut version = u64::MAX;
        let mut idle = Idle::new(PACE);
        while !self.stop.load(Ordering::Acquire) {
            let now = self.version.load(Ordering::Acquire);
            if now != version {
                mine.clone_from(&self.all.lock());
                version = now;
            }
            let mut busy = false;
            for served in &mine {
                // One that its owner has taken hold of is left alone.
                if let Some(mut s) = served.try_lock() {
                    busy |= s.step();
                }
            }
            match busy {
                true => idle.busy(),
                false => idle.rest(),
            }
        }
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Service({} served)", self.shared.all.lock().len())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // It never waits for longer than a pace.
            let _ = thread.join();
        }
    }
}
