//! Messages to a thread that polls.

use parking_lot::Mutex;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;

/// Queue of messages to one service thread.
#[derive(Debug)]
pub(crate) struct Mailbox<M> {
    waiting: AtomicBool,
    messages: Mutex<Vec<M>>,
    pub(crate) thread: OnceLock<Thread>,
}

impl<M> Default for Mailbox<M> {
    fn default() -> Self {
        Self { waiting: AtomicBool::new(false), messages: Mutex::default(), thread: OnceLock::new() }
    }
}

impl<M> Mailbox<M> {
    pub(crate) fn send(&self, message: M) {
        self.messages.lock().push(message);
        self.waiting.store(true, Ordering::Release);
        self.wake();
    }

    /// Returns true if there are messages.
    #[inline]
    pub(crate) fn waits(&self) -> bool {
        self.waiting.load(Ordering::Acquire)
    }

    /// Takes all messages, oldest first.
    pub(crate) fn take(&self) -> Vec<M> {
        self.waiting.store(false, Ordering::SeqCst);
        std::mem::take(&mut *self.messages.lock())
    }

    pub(crate) fn wake(&self) {
        if let Some(t) = self.thread.get() {
            t.unpark();
        }
    }
}
