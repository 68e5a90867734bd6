//! The process of one rank.

use super::Event;
use super::output::{Lines, copy};
use parking_lot::Mutex;
use std::ffi::OsString;
use std::io::{self, IsTerminal, Read};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Interval between two checks if remaining output is still being written.
const LOOK: Duration = Duration::from_millis(20);

/// The end of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The rank exited with this code.
    Exit(i32),
    /// This signal ended the rank.
    Signal(i32),
}

impl End {
    /// Returns true unless the rank exited with code 0.
    pub fn is_failure(&self) -> bool {
        *self != Self::Exit(0)
    }

    /// Returns the exit code as a shell reports it: 128 plus the signal's number for a signal.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Exit(code) => *code as u8,
            Self::Signal(signal) => 128u8.wrapping_add(*signal as u8),
        }
    }
}

/// Returns the name of a signal.
pub(super) fn signal_name(signal: i32) -> Option<&'static str> {
    let names = [
        (libc::SIGHUP, "SIGHUP"),
        (libc::SIGINT, "SIGINT"),
        (libc::SIGQUIT, "SIGQUIT"),
        (libc::SIGILL, "SIGILL"),
        (libc::SIGTRAP, "SIGTRAP"),
        (libc::SIGABRT, "SIGABRT"),
        (libc::SIGBUS, "SIGBUS"),
        (libc::SIGFPE, "SIGFPE"),
        (libc::SIGKILL, "SIGKILL"),
        (libc::SIGUSR1, "SIGUSR1"),
        (libc::SIGSEGV, "SIGSEGV"),
        (libc::SIGUSR2, "SIGUSR2"),
        (libc::SIGPIPE, "SIGPIPE"),
        (libc::SIGALRM, "SIGALRM"),
        (libc::SIGTERM, "SIGTERM"),
        (libc::SIGXCPU, "SIGXCPU"),
        (libc::SIGSYS, "SIGSYS"),
    ];
    names.into_iter().find(|(n, _)| *n == signal).map(|(_, name)| name)
}

/// The settings of a rank's process.
pub(super) struct Setting<'a> {
    pub(super) rank: usize,
    pub(super) size: usize,
    pub(super) store: SocketAddr,
    pub(super) secret: &'a str,
    pub(super) prefix: bool,
    pub(super) grace: Duration,
}

/// A rank's process: the leader of a process group.
pub(super) struct Child {
    /// The process group; `None` once its leader is reaped, since the number may then belong to another process.
    group: Arc<Mutex<Option<libc::pid_t>>>,
    running: bool,
    waiter: Option<JoinHandle<()>>,
    /// Disconnected once the waiter thread has ended.
    done: Receiver<()>,
}

impl Child {
    /// Starts a rank. When the calling thread ends, the rank is killed.
    pub(super) fn start(
        program: &OsString,
        arguments: &[OsString],
        setting: &Setting<'_>,
        tell: &Sender<Event>,
        out: &Lines,
        err: &Lines,
    ) -> io::Result<Self> {
        let rank = setting.rank;
        let mut command = Command::new(program);
        command.args(arguments).process_group(0);
        command
            .env("WARPBELL_RANK", rank.to_string())
            .env("WARPBELL_SIZE", setting.size.to_string())
            .env("WARPBELL_LOCAL_RANK", rank.to_string())
            .env("WARPBELL_LOCAL_SIZE", setting.size.to_string())
            .env("WARPBELL_STORE", setting.store.to_string())
            .env("WARPBELL_SECRET", setting.secret)
            .env("WARPBELL_LAUNCHER", "run")
            .env_remove("WARPBELL_SECRET_FILE");
        // Rank 0 may read piped input. A terminal is not for process groups in the background.
        let reads = rank == 0 && !io::stdin().is_terminal();
        command.stdin(if reads { Stdio::inherit() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        dies_with_this_process(&mut command);
        let mut process = command.spawn()?;

        let pid = process.id() as libc::pid_t;
        let group = Arc::new(Mutex::new(Some(pid)));
        let prefix = if setting.prefix { format!("[{rank}] ") } else { String::new() };
        let (stdout, stderr) = (process.stdout.take(), process.stderr.take());
        let streams = [
            stdout.map(|s| (Box::new(s) as Box<dyn Read + Send>, out)),
            stderr.map(|s| (Box::new(s) as Box<dyn Read + Send>, err)),
        ];
        let output = Output::start(streams.into_iter().flatten(), &prefix);
        let (tell, grace, shared) = (tell.clone(), setting.grace, group.clone());
        let (alive, done) = channel::<()>();
        let wait = move || {
            let _alive = alive;
            let end = ended(pid);
            let _ = tell.send(Event::Ended(rank, end));
            // Ends the processes that the rank started and left behind. The leader is not reaped yet, so the group
            // number is its own.
            signal_group(pid, libc::SIGTERM);
            output.wait(grace);
            signal_group(pid, libc::SIGKILL);
            let mut group = shared.lock();
            *group = None;
            // The process has ended already, so this does not block.
            let _ = process.wait();
        };
        let waiter = std::thread::Builder::new().name(format!("wb-rank-{rank}")).spawn(wait);
        match waiter {
            Ok(waiter) => Ok(Self { group, running: true, waiter: Some(waiter), done }),
            Err(e) => {
                signal_group(pid, libc::SIGKILL);
                Err(e)
            }
        }
    }

    pub(super) fn is_running(&self) -> bool {
        self.running
    }

    pub(super) fn ended(&mut self) {
        self.running = false;
    }

    /// Sends a signal to the rank and to the processes that it started.
    pub(super) fn signal(&self, signal: i32) {
        let group = self.group.lock();
        if let (Some(group), true) = (*group, self.running) {
            signal_group(group, signal);
        }
    }

    /// Waits until the rank is reaped and its output is written, at most `within`.
    pub(super) fn finish(&mut self, within: Duration) {
        if self.done.recv_timeout(within) == Err(RecvTimeoutError::Disconnected)
            && let Some(waiter) = self.waiter.take()
        {
            let _ = waiter.join();
        }
    }
}

/// Makes the kernel kill the process of `command` when the thread that starts it ends. The process has no signals
/// blocked.
pub fn dies_with_this_process(command: &mut Command) {
    let launcher = std::process::id() as libc::pid_t;
    // SAFETY: the closure runs between fork and exec, and only makes system calls that are async-signal-safe.
    unsafe { command.pre_exec(move || prepare(launcher)) };
}

/// Prepares the child before the program starts. The child dies with the launcher, and has no signals blocked.
fn prepare(launcher: libc::pid_t) -> io::Result<()> {
    // SAFETY: plain system calls with values; the signal set lives in this function.
    unsafe {
        if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
            return Err(io::Error::last_os_error());
        }
        // The launcher may have ended before `prctl` took effect.
        if libc::getppid() != launcher {
            libc::_exit(1);
        }
        // The launcher blocks the signals that it waits for, and the child inherits that mask.
        let mut none = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&mut none);
        if libc::sigprocmask(libc::SIG_SETMASK, &none, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

fn signal_group(group: libc::pid_t, signal: i32) {
    // SAFETY: a system call with values. An empty group is no error.
    unsafe { libc::kill(-group, signal) };
}

/// Waits for the end of a process, without reaping it.
fn ended(pid: libc::pid_t) -> End {
    loop {
        // SAFETY: all zero bytes are a valid value of this type.
        let mut info = unsafe { std::mem::zeroed::<libc::siginfo_t>() };
        // SAFETY: the structure lives for the call.
        let waited = unsafe { libc::waitid(libc::P_PID, pid as libc::id_t, &mut info, libc::WEXITED | libc::WNOWAIT) };
        if waited == 0 {
            // SAFETY: `waitid` filled in the fields that belong to the end of a child.
            let status = unsafe { info.si_status() };
            return if info.si_code == libc::CLD_EXITED { End::Exit(status) } else { End::Signal(status) };
        }
        if io::Error::last_os_error().kind() != io::ErrorKind::Interrupted {
            // Another caller reaped the process, so its exit status is unknown.
            return End::Exit(1);
        }
    }
}

/// The threads that copy a rank's output.
struct Output {
    /// For each thread, true while it waits for the reader of the output.
    writing: Vec<Arc<AtomicBool>>,
    /// Disconnected when all threads are at the end of their streams.
    ended: Receiver<()>,
}

impl Output {
    fn start<'a>(streams: impl Iterator<Item = (Box<dyn Read + Send>, &'a Lines)>, prefix: &str) -> Self {
        let (alive, ended) = channel::<()>();
        let copies = streams.map(|(stream, lines)| {
            let writing = Arc::new(AtomicBool::new(false));
            let (state, alive, lines, prefix) = (writing.clone(), alive.clone(), lines.clone(), prefix.to_owned());
            let copying = std::thread::Builder::new().name("wb-rank-output".to_owned()).spawn(move || {
                let _alive = alive;
                copy(stream, &lines, &prefix, &state);
            });
            if let Err(error) = copying {
                tracing::warn!(%error, "the output of a rank is not shown: its thread cannot be started");
            }
            writing
        });
        Self { writing: copies.collect(), ended }
    }

    /// Waits until all output is written. Gives up on a process that still holds a stream but writes nothing for
    /// `idle`.
    fn wait(&self, idle: Duration) {
        let mut since = Instant::now();
        while self.ended.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
            if self.writing.iter().any(|w| w.load(Ordering::Relaxed)) {
                since = Instant::now();
            } else if since.elapsed() >= idle {
                return;
            }
        }
    }
}
