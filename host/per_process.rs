//! Values that a process has for itself, also after a fork. Uses no other module.
//!
//! A child that was forked has its parent's memory, but not its other threads: a lock that one of them held at that moment stays locked
//! there for ever, and lists name threads that do not run. So the child makes its values anew.

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// Number of forks between the first process and this one, as far as they happened after the first use.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// A value of each process, for a static. It is made at first use, and never freed: threads may use it until the process ends.
pub(crate) struct PerProcess<T: 'static> {
    current: AtomicPtr<Instance<T>>,
    make: fn() -> T,
}

struct Instance<T> {
    value: T,
    forks: u64,
}

impl<T: Send + Sync> PerProcess<T> {
    pub(crate) const fn new(make: fn() -> T) -> Self {
        Self { current: AtomicPtr::new(std::ptr::null_mut()), make }
    }

    /// Returns this process's value. A value of the parent is left as it is, with all that it owns.
    pub(crate) fn get(&self) -> &'static T {
        let made = self.current.load(Ordering::Acquire);
        // SAFETY: the pointer is null, or from `Box::into_raw` below, and is never freed.
        if let Some(made) = unsafe { made.as_ref() }
            && made.forks == FORKS.load(Ordering::Relaxed)
        {
            return &made.value;
        }
        self.renew(made)
    }

    #[cold]
    fn renew(&self, old: *mut Instance<T>) -> &'static T {
        watch();
        let forks = FORKS.load(Ordering::Relaxed);
        let new = Box::into_raw(Box::new(Instance { value: (self.make)(), forks }));
        match self.current.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: nothing frees the value from now on.
            Ok(_) => unsafe { &(*new).value },
            Err(theirs) => {
                // SAFETY: no other thread has seen `new`.
                drop(unsafe { Box::from_raw(new) });
                // SAFETY: another thread of this process has stored it, from `Box::into_raw` above, and it is never freed. A fork that is
                // newer than it has one thread, which runs this.
                unsafe { &(*theirs).value }
            }
        }
    }
}

/// Counts forks from now on. Each process has the count of its parent and one more.
fn watch() {
    static IS_WATCHED: AtomicU64 = AtomicU64::new(0);
    extern "C" fn child() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    if IS_WATCHED.load(Ordering::Acquire) == 0 {
        // Two threads may both come here, and the count then grows by two, which is as good. A lock could be held at a fork.
        // SAFETY: the handler only adds to a static, which a child may do. A failure for want of memory leaves forks uncounted.
        unsafe { libc::pthread_atfork(None, None, Some(child)) };
        IS_WATCHED.store(1, Ordering::Release);
    }
}

/// Forks, and returns what `run` returns in the child, or `None` if it takes longer than ten seconds, which nothing in it may.
#[cfg(test)]
pub(crate) fn in_forked_child(run: impl FnOnce() -> bool) -> Option<bool> {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::time::{Duration, Instant};
    // SAFETY: the child runs `run`, which the tests write for that, and ends without destructors or handlers of this process.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "{}", std::io::Error::last_os_error());
    if child == 0 {
        let good = catch_unwind(AssertUnwindSafe(run)).unwrap_or(false);
        // SAFETY: ends the process, which always may.
        unsafe { libc::_exit(if good { 0 } else { 1 }) };
    }
    let (started, mut status) = (Instant::now(), 0);
    loop {
        // SAFETY: writes one number; the child is this function's own.
        match unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) } {
            0 if started.elapsed() < Duration::from_secs(10) => std::thread::sleep(Duration::from_millis(1)),
            // SAFETY: the child has not been waited for, so the number is still its own.
            0 => unsafe {
                libc::kill(child, libc::SIGKILL);
                libc::waitpid(child, &mut status, 0);
                return None;
            },
            _ => return Some(status == 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;

    static VALUE: PerProcess<Mutex<Vec<u32>>> = PerProcess::new(|| Mutex::new(vec![7]));

    #[test]
    fn threads_share_a_value_that_a_forked_child_makes_anew() {
        let values: Vec<_> = std::thread::scope(|s| {
            let threads: Vec<_> = (0..8).map(|_| s.spawn(|| std::ptr::from_ref(VALUE.get()).addr())).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert!(values.iter().all(|v| *v == values[0]), "{values:?}");
        let mut held = VALUE.get().lock();
        held.push(8);
        let child = in_forked_child(|| {
            let own = *VALUE.get().lock() == [7] && std::ptr::eq(VALUE.get(), VALUE.get());
            // A child's child, too.
            let _held = VALUE.get().lock();
            own && in_forked_child(|| *VALUE.get().lock() == [7]) == Some(true)
        });
        assert_eq!(child, Some(true));
        assert_eq!(*held, [7, 8]);
    }
}
