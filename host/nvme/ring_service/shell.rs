//! Registers, doorbells, an address table, and threads with messages to them: every controller in software has these.

use super::address::{AddressTable, Streaming};
use super::copy::Mover;
use super::doorbells::{Doorbells, QueueBits};
use super::mailbox::Mailbox;
use super::registers::{Registers, Written};
use parking_lot::Mutex;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

/// Longest time to wait for the threads when the controller is dropped.
const STOP_LIMIT: Duration = Duration::from_secs(10);
/// Longest time to wait for a service thread, which may be in a slow system call.
const THREAD_LIMIT: Duration = Duration::from_secs(5);
/// Interval at which that wait checks whether the controller is being dropped.
const SLICE: Duration = Duration::from_millis(10);

/// Registers and doorbells of a controller, and what its threads share. `M` is a message of the manager to a service
/// thread: a thread that has I/O queues. The manager has the registers and the admin queue.
#[derive(Debug)]
pub(crate) struct Shell<M> {
    pub(crate) name: String,
    pub(crate) registers: Registers,
    pub(crate) doorbells: Doorbells,
    pub(crate) table: Arc<AddressTable>,
    pub(crate) mover: Mover,
    /// Existing I/O submission and completion queues.
    pub(crate) existing: QueueBits,
    /// Messages to each service thread.
    pub(crate) mail: Box<[Mailbox<M>]>,
    manager: OnceLock<Thread>,
    stop: AtomicBool,
}

impl<M> Shell<M> {
    /// Creates the shell of a disabled controller with `threads` service threads and at most `pairs` I/O queue pairs,
    /// whose doorbells are `4 << stride` bytes apart.
    ///
    /// # Errors
    /// The error of the system call if there is no memory for the doorbells.
    pub(crate) fn new(
        name: String,
        registers: Registers,
        (pairs, stride): (u16, u8),
        streaming: Streaming,
        threads: usize,
    ) -> io::Result<Self> {
        Ok(Self {
            registers,
            doorbells: Doorbells::new(pairs, stride)?,
            // The manager is a reader too.
            table: Arc::new(AddressTable::new(name.clone(), streaming, threads + 1)),
            mover: Mover::detect(),
            existing: QueueBits::new(pairs),
            mail: (0..threads).map(|_| Mailbox::default()).collect(),
            manager: OnceLock::new(),
            stop: AtomicBool::new(false),
            name,
        })
    }

    /// Returns the service thread of a completion queue and of all submission queues that complete to it.
    pub(crate) fn thread_of(&self, cqid: u16) -> &Mailbox<M> {
        &self.mail[usize::from(cqid.wrapping_sub(1)) % self.mail.len()]
    }

    pub(crate) fn wake_manager(&self) {
        if let Some(t) = self.manager.get() {
            t.unpark();
        }
    }

    /// Returns true once the controller is being dropped.
    pub(crate) fn stops(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Asks the threads to end.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }

    /// Writes a register, or a doorbell, and wakes the thread whose work it is. Returns false if the queue of a doorbell
    /// does not exist.
    pub(crate) fn write(&self, offset: u32, value: u32) -> bool {
        match self.registers.write(offset, value) {
            Written::Configuration => self.wake_manager(),
            Written::Doorbell => return self.write_doorbell(offset, value),
            Written::Stored => {}
        }
        true
    }

    fn write_doorbell(&self, offset: u32, value: u32) -> bool {
        let target = self.doorbells.word(offset).zip(self.doorbells.which(offset));
        let Some((word, (queue, _))) = target.filter(|(_, (q, c))| self.existing.contains(*q, *c)) else {
            return false;
        };
        word.store(value, Ordering::Release);
        match queue {
            0 => self.wake_manager(),
            q => self.thread_of(q).wake(),
        }
        true
    }

    /// Forgets all queues, and sets their doorbells to 0.
    pub(super) fn delete_queues(&self) {
        for queue in self.existing.take() {
            self.doorbells.clear(queue);
        }
        self.doorbells.clear(0);
    }

    /// Sends a message about a queue to its service thread, and waits for the reply as [`Self::request`] does.
    pub(crate) fn request_for<T>(&self, cqid: u16, message: impl FnOnce(mpsc::Sender<T>) -> M) -> Option<T> {
        self.request(self.thread_of(cqid), message)
    }

    /// Sends a message to a service thread and waits for its reply. Returns `None` if no reply comes in time.
    pub(crate) fn request<T>(&self, to: &Mailbox<M>, message: impl FnOnce(mpsc::Sender<T>) -> M) -> Option<T> {
        let (sender, reply) = mpsc::channel();
        to.send(message(sender));
        let deadline = Instant::now() + THREAD_LIMIT;
        while Instant::now() < deadline && !self.stops() {
            match reply.recv_timeout(SLICE) {
                Ok(reply) => return Some(reply),
                Err(mpsc::RecvTimeoutError::Timeout) => to.wake(),
                Err(mpsc::RecvTimeoutError::Disconnected) => return None,
            }
        }
        None
    }
}

/// Threads of a controller: the service threads, then the manager.
#[derive(Debug, Default)]
pub(crate) struct Threads(Mutex<Vec<JoinHandle<()>>>);

impl Threads {
    /// Starts the service thread `index`, or the manager if `index` is the number of service threads.
    ///
    /// # Errors
    /// The error of the system call if the thread cannot be started.
    pub(crate) fn start<M>(
        &self,
        shell: &Shell<M>,
        index: usize,
        name: String,
        work: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        let thread = std::thread::Builder::new().name(name).spawn(work)?;
        // Each cell is set once, here.
        let _ = shell.mail.get(index).map_or(&shell.manager, |m| &m.thread).set(thread.thread().clone());
        self.0.lock().push(thread);
        Ok(())
    }

    /// Tells the address table which threads read it, once all are started.
    pub(crate) fn all_started<M>(&self, shell: &Shell<M>) {
        shell.table.set_readers(self.0.lock().iter().map(|t| t.thread().clone()).collect());
    }

    /// Waits until the threads have ended, which [`Shell::stop`] asks them for.
    pub(crate) fn join<M>(&self, shell: &Shell<M>) {
        let threads = std::mem::take(&mut *self.0.lock());
        let deadline = Instant::now() + STOP_LIMIT;
        while threads.iter().any(|t| !t.is_finished()) && Instant::now() < deadline {
            shell.wake_manager();
            shell.mail.iter().for_each(Mailbox::wake);
            std::thread::sleep(Duration::from_micros(50));
        }
        for t in threads {
            if !t.is_finished() {
                // It is in a system call that does not return. The thread keeps the memory that it uses.
                tracing::error!(device = %shell.name, "a thread did not end within {STOP_LIMIT:?}");
            } else if t.join().is_err() {
                tracing::error!(device = %shell.name, "a thread panicked");
            }
        }
    }
}
