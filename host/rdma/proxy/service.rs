//! The thread of an adapter, which runs all its queue pairs in turn.

use crate::idle::{Idle, Pace};
use crate::responsive::Responsive;
use parking_lot::Mutex;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Pauses of a thread that has no work.
const PACE: Pace =
    Pace { spin: Duration::ZERO, yields: 1_000, naps: [Duration::from_micros(20), Duration::from_micros(200)] };

/// A queue pair or a mailbox that the thread runs.
pub(in crate::rdma) trait RingUser: Send {
    /// Does the pending work. Returns true if there was any.
    fn step(&mut self) -> bool;
}

type Slot = Arc<Mutex<dyn RingUser>>;

#[derive(Default)]
struct Shared {
    all: Mutex<Vec<Slot>>,
    /// Number of changes of `all`.
    version: AtomicU64,
    stop: AtomicBool,
}

/// A thread with its ring users. Dropping the service ends the thread.
pub(in crate::rdma) struct Service {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Service {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system's error if no thread can be started.
    pub fn start(name: &str) -> io::Result<Arc<Self>> {
        let shared = Arc::<Shared>::default();
        let of_thread = shared.clone();
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || of_thread.run())?;
        Ok(Arc::new(Self { shared, thread: Some(thread) }))
    }

    /// Adds a ring user.
    pub fn add(&self, slot: Slot) {
        self.shared.all.lock().push(slot);
        self.shared.version.fetch_add(1, Ordering::Release);
    }

    /// Removes a ring user. The thread may be in its last step; a caller that then takes the user's lock has exclusive
    /// access.
    pub fn remove(&self, slot: &Slot) {
        self.shared.all.lock().retain(|s| !Arc::ptr_eq(s, slot));
        self.shared.version.fetch_add(1, Ordering::Release);
    }
}

impl Shared {
    fn run(&self) {
        let mut mine: Vec<Slot> = Vec::new();
        let mut version = u64::MAX;
        let _responsive = Responsive::enter();
        let mut idle = Idle::new(PACE);
        while !self.stop.load(Ordering::Acquire) {
            let now = self.version.load(Ordering::Acquire);
            if now != version {
                mine.clone_from(&self.all.lock());
                version = now;
            }
            let mut busy = false;
            for slot in &mine {
                // Skips users that their owner has locked.
                if let Some(mut s) = slot.try_lock() {
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
            // The thread never waits for longer than one pause.
            let _ = thread.join();
        }
    }
}
