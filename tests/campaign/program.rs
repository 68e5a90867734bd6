//! Runs the program as its users do, for a limited time.

use crate::tree;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Output and time of a run.
pub struct Ended {
    pub status: ExitStatus,
    pub out: String,
    pub err: String,
    pub took: Duration,
}

impl Ended {
    /// Returns true if the program reported a failure in order: exit code 1 or 124 with a message.
    pub fn reports_error(&self) -> bool {
        matches!(self.status.code(), Some(1 | 124)) && self.err.lines().any(|l| l.starts_with("error: "))
    }

    /// Returns an end that is wrong whatever was to be expected: a signal, a panic, an exit code without a message.
    pub fn disorder(&self) -> Option<String> {
        let what = if let Some(signal) = self.status.signal() {
            format!("ended by signal {signal}")
        } else if self.err.contains("panicked at") {
            "a thread panicked".to_owned()
        } else if !self.status.success() && !self.reports_error() {
            format!("{} without a message", self.status)
        } else {
            return None;
        };
        Some(format!("{what} after {:?}\n{}", self.took, self.text()))
    }

    /// Returns all that the program said.
    pub fn text(&self) -> String {
        format!("{}\n{}", self.out.trim_end(), self.err.trim_end())
    }
}

/// Returns a command of the program, without input. It is killed when the thread that has started it ends.
pub fn command<'a>(args: impl IntoIterator<Item = &'a str>) -> Command {
    let mut command = Command::new(tree::program());
    command.current_dir(tree::root()).args(args).stdin(Stdio::null());
    let end_together = || {
        // SAFETY: a system call with values, which may be made between fork and exec.
        match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } {
            -1 => Err(std::io::Error::last_os_error()),
            _ => Ok(()),
        }
    };
    // SAFETY: the closure makes one system call and allocates nothing.
    unsafe { command.pre_exec(end_together) };
    command
}

/// Runs a command that is killed after `limit`.
///
/// # Errors
/// What was wrong: it could not be started, or did not end within the limit.
pub fn run(command: &mut Command, limit: Duration) -> Result<Ended, String> {
    Running::start(command)?.end(limit)
}

/// A program that runs, and whose output is read. Killed when it is dropped.
pub struct Running {
    pub child: Child,
    readers: Option<[std::thread::JoinHandle<String>; 2]>,
    started: Instant,
    name: String,
}

impl Running {
    /// Starts a command.
    ///
    /// # Errors
    /// The reason why it cannot be started.
    pub fn start(command: &mut Command) -> Result<Self, String> {
        let name = format!("{command:?}");
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.map_err(|e| format!("{name}: {e}"))?;
        let readers = Some([reader(child.stdout.take()), reader(child.stderr.take())]);
        Ok(Self { child, readers, started: Instant::now(), name })
    }

    /// Waits for the end, and kills what runs for longer than `limit` from now.
    ///
    /// # Errors
    /// What it said, if it did not end within the limit.
    pub fn end(mut self, limit: Duration) -> Result<Ended, String> {
        let status = await_end(&mut self.child, Instant::now() + limit);
        let readers = self.readers.take();
        let [out, err] = readers.map_or_else(Default::default, |r| r.map(|r| r.join().unwrap_or_default()));
        let took = self.started.elapsed();
        match status {
            Some(status) => Ok(Ended { status, out, err, took }),
            None => Err(format!("not over after {limit:?}: {}\n{out}\n{err}", self.name)),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended if this fails.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits for the end of a process. Kills it at `until`, and returns `None` then.
pub fn await_end(child: &mut Child, until: Instant) -> Option<ExitStatus> {
    let mut pause = Duration::from_micros(200);
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        if Instant::now() >= until {
            // It has ended meanwhile if this fails.
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(5));
    }
}

/// Reads a stream to its end, in a thread of its own: a full pipe would hold the process up.
fn reader(stream: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // Shows the bytes that came before an error.
        let _ = stream.map(|mut s| s.read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Creates an empty folder in memory where the system has such a file system, and in the folder for temporary files elsewhere.
pub fn folder_in_memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a temporary folder")
}
