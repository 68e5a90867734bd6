//! Refuses processes that were forked from one that has used the library: threads and GPU contexts do not survive a fork.

use crate::error::{Failure, Kind};
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};

/// Process that uses the library, or 0. A child that was forked has its parent's value.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// Returns the process that this one was forked from, if that one has used the library.
pub(crate) fn foreign() -> Option<u32> {
    let owner = OWNER.load(Ordering::Relaxed);
    (owner != 0 && owner != process::id()).then_some(owner)
}

/// Notes that this process uses the library.
pub(crate) fn enter() -> Result<(), Failure> {
    check()?;
    OWNER.store(process::id(), Ordering::Relaxed);
    Ok(())
}

/// Checks that this process is not such a child.
pub(crate) fn check() -> Result<(), Failure> {
    let Some(owner) = foreign() else { return Ok(()) };
    let text = format!(
        "process {} was forked from process {owner}, which has opened a warpbell engine; threads and GPU contexts do not survive a fork: \
         start processes by multiprocessing.get_context(\"spawn\"), or open the first engine after the fork",
        process::id()
    );
    Err(Failure::new(Kind::Fork, text))
}
