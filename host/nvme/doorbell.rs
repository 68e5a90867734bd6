//! Doorbells from host threads: a thread forwards the values that kernels store in mailboxes to the device.

use super::{NvmeError, Port, PortError};
use crate::idle::{Idle, Pace};
use crate::memory::{Place, Region, Space};
use crate::responsive::Responsive;
use crate::wire::nvme::register;
use parking_lot::Mutex;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Size of a queue's mailbox in bytes: its own cache line, with the submission tail first, then the completion head.
const MAILBOX_BYTES: usize = 64;
const CQ_WORD: usize = 4;
/// Pauses of the thread while no value is new. It yields first, because a kernel may need its processor. A nap is the longest
/// delay of the first command on an idle queue.
const PACE: Pace = Pace { spin: Duration::ZERO, yields: 256, naps: [Duration::from_micros(50); 2] };

/// Forwards the mailboxes of one queue set to the doorbells. It may skip a value that a newer one has replaced, because
/// the device needs only the newest. It never writes an older value after a newer one.
pub(super) struct Forwarder {
    mailboxes: Region,
    host: NonNull<u8>,
    stop: Arc<AtomicBool>,
    error: Arc<Mutex<Option<PortError>>>,
    thread: Option<JoinHandle<()>>,
}

// SAFETY: `host` is the address of the mailboxes, which the forwarder owns; all access is by atomic words.
unsafe impl Send for Forwarder {}
// SAFETY: all access to the mailboxes is by atomic words, which threads may make at the same time.
unsafe impl Sync for Forwarder {}

/// A doorbell that the thread watches.
struct Watched {
    word: usize,
    register: u32,
    last: u32,
}

struct Mailboxes(NonNull<u8>);
// SAFETY: the thread holds a share of the region, and access is by atomic words.
unsafe impl Send for Mailboxes {}

impl Mailboxes {
    fn load(&self, offset: usize) -> u32 {
        // SAFETY: offsets lie within the mailboxes and are multiples of four; kernels store to the words concurrently.
        unsafe { AtomicU32::from_ptr(self.0.as_ptr().add(offset).cast()) }.load(Ordering::Acquire)
    }
}

impl Forwarder {
    /// Allocates mailboxes for the queues `ids`, whose doorbells are at 0, and starts the thread.
    pub(super) fn start(
        device: &str,
        port: Arc<dyn Port>,
        space: &Space,
        ids: &[u16],
        stride: u8,
    ) -> Result<Self, NvmeError> {
        let mailboxes = space.allocate(Place::Host, ids.len() * MAILBOX_BYTES)?;
        let refused = |reason: String| NvmeError::Forwarder { device: device.to_owned(), reason };
        let host = mailboxes.host().ok_or_else(|| refused("the mailboxes are not in host memory".to_owned()))?;
        // A queue's completion head is written before its submission tail, but read after it. So the controller never
        // sees a full completion queue that has free entries.
        let mut watched: Vec<(Watched, Watched)> = ids
            .iter()
            .enumerate()
            .map(|(i, &id)| {
                let word = i * MAILBOX_BYTES;
                (
                    Watched { word, register: register::sq_tail(id, stride), last: 0 },
                    Watched { word: word + CQ_WORD, register: register::cq_head(id, stride), last: 0 },
                )
            })
            .collect();
        let stop = Arc::new(AtomicBool::new(false));
        let error = Arc::new(Mutex::new(None));
        let (stopped, failed, kept) = (stop.clone(), error.clone(), mailboxes.clone());
        let view = Mailboxes(host);
        let thread = std::thread::Builder::new().name("wb-doorbell".to_owned()).spawn(move || {
            let (_kept, view) = (kept, view);
            let _responsive = Responsive::enter();
            let mut idle = Idle::new(PACE);
            while !stopped.load(Ordering::Relaxed) {
                match forward(&view, &mut watched, port.as_ref()) {
                    Ok(true) => idle.busy(),
                    Ok(false) => {}
                    Err(e) => {
                        // Kernels run into their deadlines; the error tells the cause.
                        tracing::warn!(error = %e, "doorbells are no longer forwarded");
                        *failed.lock() = Some(e);
                        return;
                    }
                }
                idle.rest();
            }
            // Forwards values that were stored before the stop.
            if let Err(e) = forward(&view, &mut watched, port.as_ref()) {
                *failed.lock() = Some(e);
            }
        });
        let thread = thread.map_err(|e| refused(format!("a thread cannot be started: {e}")))?;
        Ok(Self { mailboxes, host, stop, error, thread: Some(thread) })
    }

    /// Returns the kernel addresses of the submission mailbox and the completion mailbox of the queue at `index`.
    pub(super) fn addresses(&self, index: usize) -> (u64, u64) {
        let at = self.mailboxes.address() + (index * MAILBOX_BYTES) as u64;
        (at, at + CQ_WORD as u64)
    }

    /// Stores a doorbell value from the host.
    pub(super) fn store(&self, index: usize, completion: bool, value: u32) {
        let offset = index * MAILBOX_BYTES + if completion { CQ_WORD } else { 0 };
        // SAFETY: within the mailboxes, aligned, and only accessed by atomic accesses.
        unsafe { AtomicU32::from_ptr(self.host.as_ptr().add(offset).cast()) }.store(value, Ordering::Release);
    }

    /// Returns the reason why forwarding ended, if it did.
    pub(super) fn error(&self) -> Option<String> {
        self.error.lock().as_ref().map(PortError::to_string)
    }

    /// Stops the thread and waits for it. Port accesses are bounded in time, so this is too.
    pub(super) fn stop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::warn!("the doorbell thread panicked");
        }
    }
}

/// Forwards all mailboxes once. Returns true if any value was new.
fn forward(view: &Mailboxes, watched: &mut [(Watched, Watched)], port: &dyn Port) -> Result<bool, PortError> {
    let mut forwarded = false;
    for (sq, cq) in watched {
        let tail = view.load(sq.word);
        let head = view.load(cq.word);
        for (doorbell, value) in [(cq, head), (sq, tail)] {
            if value != doorbell.last {
                port.write32(doorbell.register, value)?;
                doorbell.last = value;
                forwarded = true;
            }
        }
    }
    Ok(forwarded)
}

impl fmt::Debug for Forwarder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Forwarder({:?})", self.mailboxes)
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nvme::DoorbellPages;
    use std::time::Instant;

    #[derive(Debug, Default)]
    struct Recorder {
        writes: Mutex<Vec<(u32, u32)>>,
        broken: AtomicBool,
    }

    impl Port for Recorder {
        fn read32(&self, _offset: u32) -> Result<u32, PortError> {
            Ok(0)
        }
        fn write32(&self, offset: u32, value: u32) -> Result<(), PortError> {
            if self.broken.load(Ordering::Relaxed) {
                return Err(PortError::Lost { device: "r".into(), offset, reason: "unplugged".into() });
            }
            self.writes.lock().push((offset, value));
            Ok(())
        }
        fn doorbells(&self) -> Option<DoorbellPages> {
            None
        }
        fn name(&self) -> String {
            "r".into()
        }
        fn kind(&self) -> &'static str {
            "fake"
        }
    }

    fn wait_for(mut done: impl FnMut() -> bool) {
        let started = Instant::now();
        while !done() {
            assert!(started.elapsed() < Duration::from_secs(20), "did not happen");
            std::thread::yield_now();
        }
    }

    #[test]
    fn the_newest_value_arrives_and_values_never_go_back() {
        let port = Arc::new(Recorder::default());
        let mut f = Forwarder::start("r", port.clone(), &Space::cpu(), &[1, 4], 0).unwrap();
        for v in 1..=5000u32 {
            f.store(0, false, v);
            f.store(1, true, v);
        }
        wait_for(|| {
            let w = port.writes.lock();
            w.contains(&(register::sq_tail(1, 0), 5000)) && w.contains(&(register::cq_head(4, 0), 5000))
        });
        f.store(1, false, 7);
        f.stop();
        let writes = port.writes.lock();
        assert_eq!(writes.last(), Some(&(register::sq_tail(4, 0), 7)));
        let of = |r| writes.iter().filter(|w| w.0 == r).map(|w| w.1).collect::<Vec<_>>();
        assert!(of(register::sq_tail(1, 0)).is_sorted() && of(register::cq_head(4, 0)).is_sorted());
        assert!(of(register::cq_head(1, 0)).is_empty());
    }

    #[test]
    fn a_port_error_is_remembered_and_the_thread_ends() {
        let port = Arc::new(Recorder::default());
        port.broken.store(true, Ordering::Relaxed);
        let mut f = Forwarder::start("r", port, &Space::cpu(), &[1], 0).unwrap();
        assert_eq!(f.error(), None);
        f.store(0, false, 1);
        wait_for(|| f.error().is_some());
        assert!(f.error().unwrap().contains("unplugged"));
        f.stop();
    }
}
