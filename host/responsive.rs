//! Threads that poll, beside programs that compute. Uses no other module.
//!
//! A thread that has slept for some microseconds should go on at once. The system lets a thread run first that asked for a shorter time
//! slice than the one that runs, if it has had less of the processor than its share (Linux 6.12 and later; sched(7), `SCHED_OTHER`).
//! Earlier systems ignore the request.

use std::mem::MaybeUninit;

/// Timer slack of sleeps in nanoseconds. The default of 50 us would be several times the shortest sleep.
const TIMER_SLACK_NS: libc::c_ulong = 1_000;
/// Time slice in nanoseconds: the shortest that the system gives.
const SLICE_NS: u64 = 100_000;

/// Lets the calling thread go on soon after sleeps and yields, until it is dropped.
pub(crate) struct Responsive {
    /// Settings of the thread before, as far as they were changed.
    slack: Option<libc::c_ulong>,
    slice: Option<libc::sched_attr>,
    /// The settings are those of a thread.
    _thread: std::marker::PhantomData<*const ()>,
}

impl Responsive {
    pub(crate) fn enter() -> Self {
        // SAFETY: returns a property of the calling thread, or an error, and takes no pointers.
        let slack = unsafe { libc::prctl(libc::PR_GET_TIMERSLACK, 0, 0, 0, 0) };
        let slack = libc::c_ulong::try_from(slack).ok().filter(|slack| *slack > TIMER_SLACK_NS);
        if slack.is_some() {
            set_slack(TIMER_SLACK_NS);
        }
        Self { slack, slice: get().filter(shortened), _thread: std::marker::PhantomData }
    }
}

impl Drop for Responsive {
    fn drop(&mut self) {
        if let Some(slack) = self.slack {
            set_slack(slack);
        }
        if let Some(old) = &self.slice {
            set(old);
        }
    }
}

/// Shortens the slices of the calling thread, which has these settings. Returns false if it does not.
fn shortened(old: &libc::sched_attr) -> bool {
    // Systems that ignore the request report 0.
    old.sched_policy == libc::SCHED_OTHER as u32
        && old.sched_runtime > SLICE_NS
        && set(&libc::sched_attr { sched_runtime: SLICE_NS, ..*old })
}

fn set_slack(ns: libc::c_ulong) {
    // SAFETY: sets a property of the calling thread and takes no pointers.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, ns, 0, 0, 0) };
}

/// Returns the calling thread's settings, or `None` where the system, or its filter of system calls, does not tell.
fn get() -> Option<libc::sched_attr> {
    const SIZE: usize = size_of::<libc::sched_attr>();
    let mut attr = MaybeUninit::<libc::sched_attr>::zeroed();
    // SAFETY: the call writes at most SIZE bytes, which the value has.
    let answer = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, attr.as_mut_ptr(), SIZE, 0) };
    // SAFETY: all of its fields are integers, for which zeros are valid.
    (answer == 0).then(|| unsafe { attr.assume_init() })
}

/// Sets the calling thread's settings. Returns false if that is not allowed.
fn set(attr: &libc::sched_attr) -> bool {
    // SAFETY: the call reads the value, whose size it states.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, std::ptr::from_ref(attr), 0) == 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> (libc::c_int, Option<[u64; 3]>) {
        // SAFETY: returns a property of the calling thread and takes no pointers.
        let slack = unsafe { libc::prctl(libc::PR_GET_TIMERSLACK, 0, 0, 0, 0) };
        (slack, get().map(|a| [a.sched_policy.into(), a.sched_nice as u64, a.sched_runtime]))
    }

    #[test]
    fn a_thread_has_its_settings_back() {
        let before = settings();
        let outer = Responsive::enter();
        let inside = settings();
        assert_eq!(inside.0, TIMER_SLACK_NS as libc::c_int);
        if let (Some([policy, nice, slice]), Some(old)) = (inside.1, before.1) {
            assert_eq!([policy, nice], old[..2]);
            // 0 where the system knows no slices of threads; not granted where a filter forbids the call.
            assert!(slice == SLICE_NS || slice == old[2], "{slice} {old:?}");
        }
        // A second one changes nothing, and leaves the settings to the first.
        drop(Responsive::enter());
        assert_eq!(settings(), inside);
        drop(outer);
        assert_eq!(settings(), before);
    }
}
