//! Files that somebody cuts while they are mapped. A load behind the new end raises SIGBUS on the thread that makes it; what is done here
//! makes it a read of zeros that the store finds out about.
//!
//! Reading by system calls would need no signal, and costs a microsecond for 4 KiB, which is more than the rest of the command. So the
//! signal is answered, for addresses of these mappings alone: the missing page is replaced by one of zeros, and the place is noted. All
//! other SIGBUS go where they would have gone.

use parking_lot::Mutex;
use std::io;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

/// A mapping that is watched. It is never freed, as a handler may look at it at any time; later mappings use it again.
#[derive(Debug)]
struct Slot {
    start: AtomicUsize,
    /// The address behind it; 0: not in use.
    end: AtomicUsize,
    /// The first address that was found missing.
    missing: AtomicUsize,
    next: *const Slot,
}

/// All slots; new ones are put in front.
static SLOTS: AtomicPtr<Slot> = AtomicPtr::new(ptr::null_mut());
/// Held by whoever takes or adds a slot.
static CHANGES: Mutex<()> = Mutex::new(());
/// Disposition of SIGBUS before ours: those of others go there.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();
/// Bytes of a page, for the handler.
static PAGE: AtomicUsize = AtomicUsize::new(0);

/// Watches a mapping until it is dropped, which must be before the mapping goes.
#[derive(Debug)]
pub(super) struct Watch(&'static Slot);

// SAFETY: a slot has only atomics and a pointer to another slot that never changes.
unsafe impl Send for Watch {}
// SAFETY: as above.
unsafe impl Sync for Watch {}

impl Watch {
    /// Watches `bytes` bytes of a mapping from `start` on.
    ///
    /// # Errors
    /// The system's, if it takes no handler.
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

    /// Returns the offset of the first byte of the mapping that was found missing: from there on it holds zeros for good.
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
        // SAFETY: null, or a slot that lives for ever.
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
    // SAFETY: zero is a value for every field.
    let (mut action, mut before) = unsafe { (std::mem::zeroed::<libc::sigaction>(), std::mem::zeroed()) };
    // The one before is known before ours can be called.
    // SAFETY: only asks; `before` lives for the call.
    if unsafe { libc::sigaction(libc::SIGBUS, ptr::null(), &mut before) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let _ = BEFORE.set(before);
    action.sa_sigaction = on_bus_error as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: `on_bus_error` is a handler of three arguments, and calls nothing that is not safe in one.
    match unsafe { libc::sigaction(libc::SIGBUS, &action, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The handler: atomics and system calls, nothing else.
extern "C" fn on_bus_error(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives a valid structure, in which SIGBUS has an address.
    let address = unsafe { (*info).si_addr() } as usize;
    if !replace(address) {
        pass_on(signal, info, context);
    }
}

/// Puts a page of zeros where a watched mapping has none. False if the address is of no such mapping.
fn replace(address: usize) -> bool {
    let within = |s: &&Slot| (s.start.load(Ordering::Relaxed)..s.end.load(Ordering::Acquire)).contains(&address);
    let Some(slot) = slots().find(within) else { return false };
    let page = PAGE.load(Ordering::Relaxed).max(1);
    let start = address / page * page;
    // Before there is anything to read.
    slot.missing.fetch_min(start, Ordering::SeqCst);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: errno is this thread's own, and is put back for whoever was interrupted.
    let errno = unsafe { *libc::__errno_location() };
    // SAFETY: the page is of a mapping that its store reads and nobody else knows; its file has nothing there.
    let put = unsafe { libc::mmap(start as *mut _, page, libc::PROT_READ, flags, -1, 0) };
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    put != libc::MAP_FAILED
}

/// Gives the signal to whoever had it before; to the system where nobody had.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let before = BEFORE.get();
    let handler = before.map_or(libc::SIG_DFL, |b| b.sa_sigaction);
    if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
        // The load comes again, and ends the process as it would have.
        // SAFETY: a constant disposition, safe in a handler.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        return;
    }
    let with_info = before.is_some_and(|b| b.sa_flags & libc::SA_SIGINFO != 0);
    // SAFETY: the system told this address as a handler of that many arguments.
    unsafe {
        match with_info {
            true => std::mem::transmute::<usize, extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void)>(
                handler,
            )(signal, info, context),
            false => std::mem::transmute::<usize, extern "C" fn(libc::c_int)>(handler)(signal),
        }
    }
}
