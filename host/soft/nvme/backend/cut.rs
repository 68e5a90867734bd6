//! Protection against files that are truncated while they are mapped. A load beyond the new end raises SIGBUS on the
//! loading thread. This module turns the load into a read of zeros, which the store detects afterwards.
//!
//! Reads by system calls would need no signal handler, but cost a microsecond for 4 KiB, more than the rest of the
//! command. The handler therefore treats addresses of these mappings only: it replaces the missing page by a page of
//! zeros, and records its address. It passes every other SIGBUS on to the previous handler.

use parking_lot::Mutex;
use std::io;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// A watched mapping. It is never freed, because the handler may read it at any time. Later mappings use it again.
#[derive(Debug)]
struct Slot {
    start: AtomicUsize,
    /// End address of the mapping; 0 if the slot is free.
    end: AtomicUsize,
    /// Lowest address that was found missing.
    missing: AtomicUsize,
    next: *const Slot,
}

/// List of all slots. New slots are added at its front.
static SLOTS: AtomicPtr<Slot> = AtomicPtr::new(ptr::null_mut());
/// Lock for taking or adding a slot.
static CHANGES: Mutex<()> = Mutex::new(());
/// Disposition of SIGBUS before this module's handler, which passes other signals on to it.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();
/// Page size in bytes, for the handler.
static PAGE: AtomicUsize = AtomicUsize::new(0);

/// Watches a mapping until it is dropped. It must be dropped before the mapping is removed.
#[derive(Debug)]
pub(super) struct Watch(&'static Slot);

// SAFETY: a slot has only atomics, and a pointer to another slot that never changes.
unsafe impl Send for Watch {}
// SAFETY: a slot has only atomics, and a pointer to another slot that never changes.
unsafe impl Sync for Watch {}

impl Watch {
    /// Watches the `bytes` bytes of a mapping at `start`.
    ///
    /// # Errors
    /// The system's error if the handler cannot be installed.
    pub(super) fn new(start: usize, bytes: usize) -> io::Result<Self> {
        let _changes = CHANGES.lock();
        install()?;
        let slot = free_slot().unwrap_or_else(|| {
            let next = SLOTS.load(Ordering::Relaxed).cast_const();
            let (start, end, missing) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
            let slot: &'static Slot = Box::leak(Box::new(Slot { start, end, missing, next }));
            SLOTS.store(ptr::from_ref(slot).cast_mut(), Ordering::Release);
            slot
        });
        slot.missing.store(usize::MAX, Ordering::Relaxed);
        slot.start.store(start, Ordering::Relaxed);
        slot.end.store(start + bytes, Ordering::Release);
        Ok(Self(slot))
    }

    /// Returns the offset of the first byte of the mapping that was found missing. From there on, reads may return
    /// zeros for good.
    #[inline]
    pub(super) fn missing(&self) -> Option<usize> {
        let at = self.0.missing.load(Ordering::Acquire);
        (at != usize::MAX).then(|| at - self.0.start.load(Ordering::Relaxed))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.end.store(0, Ordering::Release);
    }
}

fn slots() -> impl Iterator<Item = &'static Slot> {
    let mut next = SLOTS.load(Ordering::Acquire).cast_const();
    std::iter::from_fn(move || {
        // SAFETY: null, or a slot that is never freed.
        let slot: &'static Slot = unsafe { next.as_ref() }?;
        next = slot.next;
        Some(slot)
    })
}

fn free_slot() -> Option<&'static Slot> {
    slots().find(|s| s.end.load(Ordering::Relaxed) == 0)
}

/// Installs the handler, once.
fn install() -> io::Result<()> {
    if BEFORE.get().is_some() {
        return Ok(());
    }
    PAGE.store(crate::this_host::page_bytes(), Ordering::Relaxed);
    // SAFETY: zero is a valid value for every field.
    let (mut action, mut before) = unsafe { (std::mem::zeroed::<libc::sigaction>(), std::mem::zeroed()) };
    // Reads the previous disposition before this module's handler can be called.
    // SAFETY: only reads the disposition; `before` lives for the call.
    if unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &mut before) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let _ = BEFORE.set(before);
    action.sa_sigaction = on_bus_error as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: `on_bus_error` is a handler of three arguments, and calls only async-signal-safe functions.
    match unsafe { libc::sigaction(libc::SIGBUS, &action, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Signal handler. It uses only atomics and system calls.
extern "C" fn on_bus_error(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid structure, which has an address for SIGBUS.
    let address = unsafe { (*info).si_addr() } as usize;
    if !replace(address) {
        pass_on(signal, info, context);
    }
}

/// Maps a page of zeros where a watched mapping has none. Returns false if the address is in no watched mapping.
fn replace(address: usize) -> bool {
    let within = |s: &&Slot| (s.start.load(Ordering::Relaxed)..s.end.load(Ordering::Acquire)).contains(&address);
    let Some(slot) = slots().find(within) else { return false };
    let page = PAGE.load(Ordering::Relaxed).max(1);
    let start = address / page * page;
    // Recorded before the page of zeros can be read.
    slot.missing.fetch_min(start, Ordering::SeqCst);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: errno is this thread's own, and is restored for the code that was interrupted.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: only the store reads the mapping of this page, and its file has nothing there.
    let put = unsafe { libc::mmap(start as *mut _, page, libc::PROT_READ, flags, -1, 0) };
    // SAFETY: errno is this thread's own.
    unsafe { *libc::__errno_location() = errno };
    put != libc::MAP_FAILED
}

/// Calls the previous handler, or lets the default action take place if there was none.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let before = BEFORE.get();
    let handler = before.map_or(libc::SIG_DFL, |b| b.sa_sigaction);
    if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
        // The load is repeated, and ends the process as it would have without this module.
        // SAFETY: a constant disposition, safe in a handler.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        return;
    }
    let with_info = before.is_some_and(|b| b.sa_flags & libc::SA_SIGINFO != 0);
    // SAFETY: the system reported this address as a handler with this number of arguments.
    unsafe {
        match with_info {
            true => std::mem::transmute::<usize, extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void)>(
                handler,
            )(signal, info, context),
            false => std::mem::transmute::<usize, extern "C" fn(libc::c_int)>(handler)(signal),
        }
    }
}
