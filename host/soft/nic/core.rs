//! State that an adapter's threads, its users, and other adapters of the same process share.

use super::config::SoftNicConfig;
use super::endpoint::{Endpoint, PairAddress};
use super::memory::Memory;
use super::pair::PairShared;
use super::wire::Wire;
use crate::listener::{KnownSources, Source};
use parking_lot::Mutex;
use socket2::Socket;
use std::collections::HashMap;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, OnceLock, Weak};

/// Message to a service thread.
#[derive(Debug)]
pub(super) enum Mail {
    /// Process this queue pair.
    Add(Arc<PairShared>),
    /// Connect a queue pair with its peer.
    Connect { number: u32, peer: PairAddress, reply: Sender<Result<(), String>> },
    /// Drop all requests of a queue pair and start anew.
    Reset { number: u32, reply: Sender<Result<(), String>> },
    /// A queue pair was closed.
    Close { number: u32 },
    /// Another adapter has connected. `is_last` is true if the connection has a spare descriptor.
    Incoming { socket: Socket, source: Source, is_last: bool },
}

/// Queue of messages to one thread.
#[derive(Debug)]
pub(super) struct Mailbox {
    messages: Mutex<Vec<Mail>>,
    waiting: AtomicBool,
    event: OwnedFd,
}

impl Mailbox {
    pub(super) fn new() -> std::io::Result<Self> {
        // SAFETY: creates a descriptor and takes no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: a new descriptor without another owner.
        let event = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Self { messages: Mutex::default(), waiting: AtomicBool::new(false), event })
    }

    /// Returns the descriptor that is readable while there are messages.
    pub(super) fn fd(&self) -> i32 {
        self.event.as_raw_fd()
    }

    pub(super) fn wake(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: reads 8 bytes that are borrowed for the call. A write to a full counter fails, but the descriptor is
        // then readable anyway.
        unsafe { libc::write(self.fd(), one.as_ptr().cast(), one.len()) };
    }

    fn put(&self, mail: Mail) {
        self.messages.lock().push(mail);
        self.waiting.store(true, Ordering::Release);
        self.wake();
    }

    pub(super) fn take(&self) -> Vec<Mail> {
        if !self.waiting.swap(false, Ordering::AcqRel) {
            return Vec::new();
        }
        let mut count = [0u8; 8];
        // SAFETY: writes at most 8 bytes to memory that is borrowed for the call.
        unsafe { libc::read(self.fd(), count.as_mut_ptr().cast(), count.len()) };
        std::mem::take(&mut *self.messages.lock())
    }
}

/// Counters since the adapter was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[cfg(feature = "internals")]
pub struct NicStatistics {
    /// Frames that were dropped because their integrity check failed.
    pub icrc_errors: u64,
    /// Commands that were sent again.
    pub retransmissions: u64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    icrc_errors: AtomicU64,
    pub(super) retransmissions: AtomicU64,
}

impl Counters {
    /// Adds the frames that a connection has dropped since the last call.
    pub(super) fn broken(&self, wire: &mut Wire) {
        self.icrc_errors.fetch_add(wire.take_broken(), Ordering::Relaxed);
    }

    #[cfg(feature = "internals")]
    pub(super) fn read(&self) -> NicStatistics {
        NicStatistics {
            icrc_errors: self.icrc_errors.load(Ordering::Relaxed),
            retransmissions: self.retransmissions.load(Ordering::Relaxed),
        }
    }
}

#[derive(Debug)]
pub(super) struct Core {
    pub(super) config: SoftNicConfig,
    pub(super) endpoint: Endpoint,
    pub(super) memory: Arc<Memory>,
    pub(super) pairs: Mutex<HashMap<u32, Arc<PairShared>>>,
    pub(super) mail: Vec<Mailbox>,
    pub(super) counters: Counters,
    /// Sources of peers that this adapter was told of, and of those that have proved themselves.
    pub(super) known: Mutex<KnownSources>,
    pub(super) stop: AtomicBool,
    /// True once the fault plan has stopped the adapter. It then processes no request and sends no response.
    pub(super) dead: AtomicBool,
}

impl Core {
    pub(super) fn post(&self, thread: usize, mail: Mail) {
        if let Some(box_) = self.mail.get(thread) {
            box_.put(mail);
        }
    }

    pub(super) fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    pub(super) fn pair(&self, number: u32) -> Option<Arc<PairShared>> {
        self.pairs.lock().get(&number).cloned()
    }
}

/// Returns the adapters of this process, which access each other directly.
fn adapters() -> &'static Mutex<HashMap<u128, Weak<Core>>> {
    static ADAPTERS: OnceLock<Mutex<HashMap<u128, Weak<Core>>>> = OnceLock::new();
    ADAPTERS.get_or_init(Mutex::default)
}

pub(super) fn announce(core: &Arc<Core>) {
    adapters().lock().insert(core.endpoint.nic, Arc::downgrade(core));
}

pub(super) fn withdraw(nic: u128) {
    adapters().lock().remove(&nic);
}

/// Returns the adapter with this number if it is in this process.
pub(super) fn of_this_process(nic: u128) -> Option<Arc<Core>> {
    adapters().lock().get(&nic).and_then(Weak::upgrade)
}
