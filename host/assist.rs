//! Work of software devices that waiting threads do themselves.
//!
//! A thread that waits for a command of a software device hands its processor to the device's thread, and gets it back
//! when the command has ended. Beside other programs each of these changes takes a time slice. So a waiting thread
//! executes the commands itself: a thread of a kernel on the CPU, or a thread of the host.

use crate::contention;
use crate::per_process::PerProcess;
use parking_lot::RwLock;
use std::cell::RefCell;
use std::panic::catch_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A part of a software device whose commands any thread may execute.
pub(crate) trait Assisted: Send + Sync {
    /// Executes a bounded number of commands, unless another thread is doing so. Never waits. Returns the number of
    /// commands.
    fn assist(&self) -> usize;

    /// Returns true if the doorbell at this address announces commands to this part.
    fn has_doorbell(&self, address: usize) -> bool;
}

/// State that the threads of a process share. A child that was forked has no service, and does nothing for those of its parent.
#[derive(Default)]
struct Shared {
    list: RwLock<Vec<Arc<dyn Assisted>>>,
    /// Number of changes of the list.
    changes: AtomicU64,
    /// Number of kernel threads that run now.
    assistants: AtomicUsize,
    /// Number of threads that have looked at the list so far. They begin at different entries.
    lookers: AtomicUsize,
}

static SHARED: PerProcess<Shared> = PerProcess::new(Shared::default);

/// Calls between two that begin at another entry than the one that had work last.
const TURN: usize = 8;

/// This thread's copy of the list.
struct Local {
    /// That of this process, unless it was forked since.
    shared: &'static Shared,
    changes: u64,
    list: Vec<Arc<dyn Assisted>>,
    /// The doorbell that this thread wrote last, and its entry.
    doorbell: usize,
    own: Option<usize>,
    /// Entry that had work last.
    at: usize,
    calls: usize,
}

thread_local! {
    static LOCAL: RefCell<Local> = RefCell::new(Local::new(SHARED.get()));
}

impl Local {
    fn new(shared: &'static Shared) -> Self {
        let at = shared.lookers.fetch_add(1, Ordering::Relaxed);
        Self { shared, changes: 0, list: Vec::new(), doorbell: 0, own: None, at, calls: 0 }
    }

    fn assist(&mut self, doorbell: usize) -> usize {
        let shared = SHARED.get();
        if !std::ptr::eq(shared, self.shared) {
            // Services of the parent, whose threads do not run here, would wait for these at their end.
            std::mem::forget(std::mem::replace(self, Self::new(shared)));
        }
        let changes = shared.changes.load(Ordering::Acquire);
        let is_new = changes != self.changes;
        if is_new {
            // The list may be newer than `changes`. The next call then reads it once more.
            self.list.clone_from(&shared.list.read());
            self.changes = changes;
        }
        let entries = self.list.len();
        if entries == 0 {
            return 0;
        }
        if is_new || doorbell != self.doorbell {
            self.own = self.list.iter().position(|entry| doorbell != 0 && entry.has_doorbell(doorbell));
            self.doorbell = doorbell;
        }
        // If each thread executes its own commands, none waits for a thread that has lost its processor.
        let done = self.own.map_or(0, |own| self.list[own].assist());
        if done > 0 {
            return done;
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
    assist_at(0)
}

/// As [`assist`], at first at the device with this doorbell, unless that is 0.
fn assist_at(doorbell: usize) -> usize {
    // A thread that ends has no list any more, and a device does not assist itself.
    LOCAL.try_with(|local| local.try_borrow_mut().map_or(0, |mut local| local.assist(doorbell))).unwrap_or(0)
}

/// Answer to a kernel for which there is no work, if other programs compute. `kernels/include/warpbell/cpu/pause.h` has it, too.
const CONTENDED: u32 = u32::MAX;

/// As [`assist`], for kernels. `yielded` is the length of the calling thread's last yield in nanoseconds, or 0, and `doorbell` the
/// address of the doorbell that it wrote last, or 0.
pub(crate) extern "C" fn assist_kernel(yielded: u64, doorbell: usize) -> u32 {
    // A panic must not unwind into a kernel. The device's thread reports its own.
    let done = catch_unwind(|| assist_at(doorbell)).map_or(0, |done| done as u32);
    let contention = contention::of_process();
    if yielded != 0 {
        contention.yielded(Duration::from_nanos(yielded), Instant::now());
    }
    if done == 0 && contention.holds() { CONTENDED } else { done }
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
        let shared = SHARED.get();
        shared.list.write().push(assisted.clone());
        shared.changes.fetch_add(1, Ordering::Release);
        Self(assisted)
    }

    #[cfg(test)]
    pub(crate) fn has_doorbell(&self, address: usize) -> bool {
        self.0.has_doorbell(address)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let shared = SHARED.get();
        shared.list.write().retain(|a| !Arc::ptr_eq(a, &self.0));
        shared.changes.fetch_add(1, Ordering::Release);
    }
}

/// Counts the calling thread as one that runs a kernel, until dropped.
pub(crate) struct Assistant(());

impl Assistant {
    pub(crate) fn enter() -> Self {
        SHARED.get().assistants.fetch_add(1, Ordering::Relaxed);
        Self(())
    }

    /// Returns the number of threads that run kernels now.
    pub(crate) fn count() -> usize {
        SHARED.get().assistants.load(Ordering::Relaxed)
    }
}

impl Drop for Assistant {
    fn drop(&mut self) {
        SHARED.get().assistants.fetch_sub(1, Ordering::Relaxed);
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

        fn has_doorbell(&self, address: usize) -> bool {
            address == std::ptr::from_ref(self) as usize
        }
    }

    #[test]
    fn a_thread_executes_the_commands_that_it_announced_first() {
        let owner = std::thread::current().id();
        let work = |left| Arc::new(Work { owner, left: AtomicUsize::new(left), nested: AtomicBool::new(false) });
        let all: Vec<_> = (0..5).map(|_| work(1_000)).collect();
        let _registrations: Vec<_> = all.iter().map(|work| Registration::new(work.clone())).collect();
        for own in [3, 0, 4] {
            while all[own].left.load(Ordering::Relaxed) > 0 {
                let before: Vec<_> = all.iter().map(|work| work.left.load(Ordering::Relaxed)).collect();
                assist_at(Arc::as_ptr(&all[own]) as usize);
                let after: Vec<_> = all.iter().map(|work| work.left.load(Ordering::Relaxed)).collect();
                assert!((0..5).all(|i| before[i] - after[i] == usize::from(i == own)), "{before:?} {after:?}");
            }
        }
        // Then it helps others.
        while all[1].left.load(Ordering::Relaxed) + all[2].left.load(Ordering::Relaxed) > 0 {
            assist_at(Arc::as_ptr(&all[4]) as usize);
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

    #[test]
    fn a_forked_child_assists_its_own_devices_only() {
        let owner = std::thread::current().id();
        let work = |left| Arc::new(Work { owner, left: AtomicUsize::new(left), nested: AtomicBool::new(false) });
        let parents = work(1_000_000);
        let _registration = Registration::new(parents.clone());
        while assist() == 0 {}
        let left = || parents.left.load(Ordering::Relaxed);
        // Another thread changes the list at the moment of the fork.
        let _held = SHARED.get().list.write();
        let child = crate::per_process::in_forked_child(|| {
            let (before, own) = (left(), work(1));
            let _registration = Registration::new(own.clone());
            (0..4 * TURN).map(|_| assist()).sum::<usize>() == 1 && left() == before
        });
        assert_eq!(child, Some(true));
    }
}
