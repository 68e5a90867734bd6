//! Work of software devices that waiting threads do themselves. Uses no other module.
//!
//! A thread that waits for a command of a software device hands its processor to the device's thread, and gets it back
//! when the command has ended. Beside other programs each of these changes takes a time slice. So a waiting thread
//! executes the commands itself: a thread of a kernel on the CPU, or a thread of the host.

use parking_lot::RwLock;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A part of a software device whose commands any thread may execute.
pub(crate) trait Assisted: Send + Sync {
    /// Executes a bounded number of commands, unless another thread is doing so. Never waits. Returns the number of
    /// commands.
    fn assist(&self) -> usize;
}

static LIST: RwLock<Vec<Arc<dyn Assisted>>> = RwLock::new(Vec::new());
/// Number of changes of the list.
static CHANGES: AtomicU64 = AtomicU64::new(0);
/// Number of kernel threads that run now.
static ASSISTANTS: AtomicUsize = AtomicUsize::new(0);
/// Number of threads that have looked at the list so far. They begin at different entries.
static LOOKERS: AtomicUsize = AtomicUsize::new(0);

/// Calls between two that begin at another entry than the one that had work last.
const TURN: usize = 8;

/// This thread's copy of the list.
struct Local {
    changes: u64,
    list: Vec<Arc<dyn Assisted>>,
    /// Entry that had work last.
    at: usize,
    calls: usize,
}

thread_local! {
    static LOCAL: RefCell<Local> = RefCell::new(Local {
        changes: 0,
        list: Vec::new(),
        at: LOOKERS.fetch_add(1, Ordering::Relaxed),
        calls: 0,
    });
}

impl Local {
    fn assist(&mut self) -> usize {
        let changes = CHANGES.load(Ordering::Acquire);
        if changes != self.changes {
            // The list may be newer than `changes`. The next call then reads it once more.
            self.list.clone_from(&LIST.read());
            self.changes = changes;
        }
        let entries = self.list.len();
        if entries == 0 {
            return 0;
        }
        self.calls = self.calls.wrapping_add(1);
        if self.calls.is_multiple_of(TURN) {
            self.at = self.at.wrapping_add(1);
        }
        // That entry, and one of the others in turn: looks of many threads at all entries would take the lines of their locks from
        // the threads that work.
        for i in 0..entries.min(2) {
            let step = if i == 0 { 0 } else { 1 + self.calls % (entries - 1) };
            let at = self.at.wrapping_add(step) % entries;
            let done = self.list[at].assist();
            if done > 0 {
                self.at = at;
                return done;
            }
        }
        0
    }
}

/// Executes commands that software devices of this process have not executed yet. Returns their number, or 0 if there
/// are none, or other threads are executing them. Never waits.
pub(crate) fn assist() -> usize {
    // A thread that ends has no list any more, and a device does not assist itself.
    LOCAL.try_with(|local| local.try_borrow_mut().map_or(0, |mut local| local.assist())).unwrap_or(0)
}

/// As [`assist`], for kernels.
pub(crate) extern "C" fn assist_kernel() -> u32 {
    // A panic must not unwind into a kernel. The device's thread reports its own.
    catch_unwind(AssertUnwindSafe(assist)).map_or(0, |done| done as u32)
}

/// Entry in the list, removed when dropped.
pub(crate) struct Registration(Arc<dyn Assisted>);

impl std::fmt::Debug for Registration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Registration")
    }
}

impl Registration {
    pub(crate) fn new(assisted: Arc<dyn Assisted>) -> Self {
        LIST.write().push(assisted.clone());
        CHANGES.fetch_add(1, Ordering::Release);
        Self(assisted)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        LIST.write().retain(|a| !Arc::ptr_eq(a, &self.0));
        CHANGES.fetch_add(1, Ordering::Release);
    }
}

/// Counts the calling thread as one that runs a kernel, until dropped.
pub(crate) struct Assistant(());

impl Assistant {
    pub(crate) fn enter() -> Self {
        ASSISTANTS.fetch_add(1, Ordering::Relaxed);
        Self(())
    }

    /// Returns the number of threads that run kernels now.
    pub(crate) fn count() -> usize {
        ASSISTANTS.load(Ordering::Relaxed)
    }
}

impl Drop for Assistant {
    fn drop(&mut self) {
        ASSISTANTS.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    /// Work that this test alone does: other tests of the process assist, too.
    struct Work {
        owner: std::thread::ThreadId,
        left: AtomicUsize,
        nested: AtomicBool,
    }

    impl Assisted for Work {
        fn assist(&self) -> usize {
            if std::thread::current().id() != self.owner || self.left.load(Ordering::Relaxed) == 0 {
                return 0;
            }
            self.nested.fetch_or(super::assist() != 0, Ordering::Relaxed);
            self.left.fetch_sub(1, Ordering::Relaxed);
            1
        }
    }

    #[test]
    fn work_is_done_until_its_registration_ends() {
        let owner = std::thread::current().id();
        let work = |left| Arc::new(Work { owner, left: AtomicUsize::new(left), nested: AtomicBool::new(false) });
        let (first, second) = (work(3), work(5));
        let registrations = [Registration::new(first.clone()), Registration::new(second.clone())];
        // Devices of other tests may have work in between.
        while first.left.load(Ordering::Relaxed) + second.left.load(Ordering::Relaxed) > 0 {
            assist();
        }
        assert!(!first.nested.load(Ordering::Relaxed), "a device that is assisted does not assist");
        drop(registrations);
        first.left.store(1, Ordering::Relaxed);
        for _ in 0..4 * TURN {
            assist();
        }
        assert_eq!(first.left.load(Ordering::Relaxed), 1);
    }
}
