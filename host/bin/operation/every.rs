//! Prints a line of statistics each interval (`--stats-every`).

use super::rates::Interval;
use crate::output::Failure;
use std::io::Write;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use warpbell::metrics;

/// The thread that prints. Dropping it ends the thread.
pub struct Every {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Every {
    /// Starts the thread.
    ///
    /// # Errors
    /// [`Failure::Error`] if the thread cannot be started.
    pub fn start(interval: Duration) -> Result<Self, Failure> {
        let (stop, stopped) = channel();
        let work = move || {
            let begun = Instant::now();
            let (mut earlier, mut next) = (metrics::snapshot(), begun + interval);
            while let Err(RecvTimeoutError::Timeout) =
                stopped.recv_timeout(next.saturating_duration_since(Instant::now()))
            {
                let now = metrics::snapshot();
                let line = format!("[{:.1?}] {}\n", Instant::now() - begun, Interval::new(&earlier, &now).rates());
                // Unlike `eprintln!`, it does not panic where standard error is closed.
                let _ = std::io::stderr().lock().write_all(line.as_bytes());
                earlier = now;
                next = (next + interval).max(Instant::now());
            }
        };
        let thread = std::thread::Builder::new().name("wb-statistics".to_owned()).spawn(work);
        let thread = thread.map_err(|e| Failure::about("the thread that prints statistics cannot be started", e))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Every {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}
