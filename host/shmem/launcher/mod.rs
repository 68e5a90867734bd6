//! Starts the ranks of a world on this host and waits for their end: `warpbell run`.
//!
//! The launcher runs the store where the ranks meet, so no port is chosen before it is bound. It also learns of the end
//! of every rank. Each rank leads its own process group; the processes that a rank started end with it.

mod child;
mod output;

pub use child::{End, dies_with_this_process};

use super::bootstrap::store::Server;
use super::bootstrap::{BootstrapError, Secret};
use crate::engine::abi::MAX_PES;
use child::{Child, Setting};
use output::Lines;
use std::ffi::OsString;
use std::fmt;
use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// The time that other ranks get to notice a failed rank and report it, before they are told to end.
const NOTICE: Duration = Duration::from_secs(1);
/// The default time that ranks get to end after they were told to.
const GRACE: Duration = Duration::from_secs(5);
/// The time that a killed rank gets to disappear: the kernel may be busy with the rank's memory.
const KILLED: Duration = Duration::from_secs(30);

/// An event that the launcher reacts to.
#[derive(Debug)]
pub enum Event {
    /// A rank ended. The fields are the rank and its end.
    Ended(usize, End),
    /// The launcher received this signal.
    Signal(i32),
    /// The reader of standard output is gone.
    OutputGone,
}

/// The reason why a launch failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// The number of ranks is not valid for a world.
    #[error("{0} ranks: a world has 1 to {MAX_PES}")]
    Ranks(usize),
    /// The program cannot be run.
    #[error("cannot run `{}`: {reason}", program.display())]
    Program {
        /// The program.
        program: OsString,
        /// The reason.
        reason: String,
    },
    /// The system did not start a rank.
    #[error("rank {rank} cannot be started: {reason}")]
    Start {
        /// The rank.
        rank: usize,
        /// The reason.
        reason: String,
    },
    /// The store where ranks meet failed.
    #[error(transparent)]
    Store(#[from] BootstrapError),
    /// A rank failed; it is the first that did.
    #[error("rank {rank} {end}{}", if *.others { "; the others were ended" } else { "" })]
    Failed {
        /// The rank.
        rank: usize,
        /// The end of the rank.
        end: End,
        /// True if other ranks were still running and had to be ended.
        others: bool,
    },
    /// The ranks did not end within the time limit.
    #[error("the ranks did not end within {within:?}: {} still ran and {} ended", list(.ranks), if .ranks.len() == 1 { "was" } else { "were" })]
    TimedOut {
        /// The time limit.
        within: Duration,
        /// Ranks that were still running.
        ranks: Vec<usize>,
    },
    /// Ranks were killed, but did not disappear.
    #[error("{} {} killed, but did not end within {KILLED:?}", list(.0), if .0.len() == 1 { "was" } else { "were" })]
    Stuck(Vec<usize>),
    /// The reader of standard output is gone, so the ranks were ended.
    #[error("the reader of standard output has ended")]
    OutputGone,
}

impl LaunchError {
    /// Returns the exit status for the launcher.
    ///
    /// The status is that of the rank that failed (128 plus the signal's number for a signal). It is 2 for a program
    /// that cannot be run or an invalid number of ranks, and 124 after the time limit (as in `timeout`). Otherwise it
    /// is 1.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Ranks(_) | Self::Program { .. } => 2,
            Self::Failed { end, .. } => end.exit_code(),
            Self::TimedOut { .. } => 124,
            _ => 1,
        }
    }
}

/// Formats ranks as `rank 3` or `ranks 1, 2`.
fn list(ranks: &[usize]) -> String {
    let names: Vec<String> = ranks.iter().map(usize::to_string).collect();
    format!("rank{} {}", if names.len() == 1 { "" } else { "s" }, names.join(", "))
}

/// The program to start as ranks, and the settings for it.
#[derive(Clone, Debug)]
pub struct Launcher {
    program: OsString,
    arguments: Vec<OsString>,
    ranks: usize,
    prefix: bool,
    timeout: Option<Duration>,
    notice: Duration,
    grace: Duration,
}

impl Launcher {
    /// Creates a launcher that starts `program` `ranks` times.
    pub fn new(program: impl Into<OsString>, arguments: Vec<OsString>, ranks: usize) -> Self {
        Self { program: program.into(), arguments, ranks, prefix: true, timeout: None, notice: NOTICE, grace: GRACE }
    }

    /// Enables or disables a prefix with the rank for each line of output, as in `[3] `. Enabled by default.
    pub fn prefix(self, prefix: bool) -> Self {
        Self { prefix, ..self }
    }

    /// Sets the longest time that the ranks may take. `None`, the default, means no limit.
    pub fn timeout(self, timeout: Option<Duration>) -> Self {
        Self { timeout, ..self }
    }

    /// Sets the time that ranks get to notice a failed rank and to report it, before they are told to end. The default is
    /// 1 s; more than the time of [`Self::grace`] has no effect.
    pub fn notice(self, notice: Duration) -> Self {
        Self { notice, ..self }
    }

    /// Sets the time that ranks get to end after they were told to, before they are killed. The default is 5 s.
    pub fn grace(self, grace: Duration) -> Self {
        Self { grace, ..self }
    }

    /// Creates the channel for events that the launcher reacts to. The caller sends [`Event::Signal`].
    pub fn events() -> (Sender<Event>, Receiver<Event>) {
        channel()
    }

    /// Starts the ranks and returns when all have ended. Their standard output and error go to `out` and `err` in whole
    /// lines. The ranks get SIGKILL if the calling thread ends first.
    ///
    /// # Errors
    /// - [`LaunchError::Ranks`] if the number of ranks is 0 or larger than a world can have.
    /// - [`LaunchError::Store`] if the store cannot be started.
    /// - [`LaunchError::Program`] if the program cannot be run, [`LaunchError::Start`] if the system does not start a
    ///   rank.
    /// - [`LaunchError::Failed`] if a rank fails, [`LaunchError::TimedOut`] if the ranks exceed the time limit.
    /// - [`LaunchError::OutputGone`] if the reader of standard output is gone, [`LaunchError::Stuck`] if killed ranks
    ///   do not disappear.
    pub fn run(
        &self,
        events: (Sender<Event>, Receiver<Event>),
        out: impl Write + Send + 'static,
        err: impl Write + Send + 'static,
    ) -> Result<(), LaunchError> {
        if !(1..=MAX_PES).contains(&self.ranks) {
            return Err(LaunchError::Ranks(self.ranks));
        }
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
        let listener = listener.map_err(|e| BootstrapError::system("cannot listen on a port for the store", &e))?;
        let secret = Secret::generate()?;
        let usable = Secret::new(secret.as_bytes());
        let usable =
            usable.map_err(|e| BootstrapError::BadSecret { variable: "WARPBELL_SECRET", reason: e.to_string() })?;
        let store = Server::start(listener, usable)?;

        let (tell, heard) = events;
        let (out, err) = (Lines::new(out, Some(tell.clone())), Lines::new(err, None));
        let mut ranks = Ranks { children: Vec::new(), grace: self.grace };
        for rank in 0..self.ranks {
            let setting = Setting {
                rank,
                size: self.ranks,
                store: store.address(),
                secret: &secret,
                prefix: self.prefix,
                grace: self.grace,
            };
            match Child::start(&self.program, &self.arguments, &setting, &tell, &out, &err) {
                Ok(child) => ranks.children.push(child),
                Err(e) => {
                    drop(ranks);
                    return Err(self.not_started(rank, &e));
                }
            }
        }
        let result = self.watch(&mut ranks, &heard);
        // Writes the last output of the ranks before anything reports how they ended.
        drop(ranks);
        result
    }

    fn not_started(&self, rank: usize, e: &std::io::Error) -> LaunchError {
        use std::io::ErrorKind::{IsADirectory, NotADirectory, NotFound, PermissionDenied};
        let program = self.program.clone();
        match e.kind() {
            NotFound => LaunchError::Program { program, reason: "there is no such program".to_owned() },
            PermissionDenied | IsADirectory | NotADirectory => LaunchError::Program { program, reason: e.to_string() },
            // A file that is no program: ENOEXEC has no `ErrorKind` of its own.
            _ if e.raw_os_error() == Some(libc::ENOEXEC) => LaunchError::Program { program, reason: e.to_string() },
            _ => LaunchError::Start { rank, reason: e.to_string() },
        }
    }

    /// Reacts to events until every rank has ended.
    fn watch(&self, ranks: &mut Ranks, events: &Receiver<Event>) -> Result<(), LaunchError> {
        let limit = self.timeout.map(|t| Instant::now() + t);
        let mut phase = Phase::Running;
        // The reason of the failure, if any: the first reason stays.
        let mut failure: Option<LaunchError> = None;
        let mut interrupted = false;
        while !ranks.running().is_empty() {
            let until = match phase {
                Phase::Running => limit,
                Phase::Noticing(until) | Phase::Ending(until) | Phase::Killed(until) => Some(until),
            };
            let event = match until {
                Some(until) => events.recv_timeout(until.saturating_duration_since(Instant::now())),
                None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            let end_now = match event {
                Ok(Event::Ended(rank, end)) => {
                    ranks.ended(rank);
                    if end.is_failure() {
                        // Ends arrive in any order. Before the launcher sends a signal, a rank that dies by a signal is
                        // the cause of the failure. Ranks that exit with an error may only be a consequence.
                        let is_cause = matches!(end, End::Signal(_))
                            && matches!(phase, Phase::Running | Phase::Noticing(_))
                            && matches!(failure, Some(LaunchError::Failed { end: End::Exit(_), .. }));
                        if failure.is_none() || is_cause {
                            failure = Some(LaunchError::Failed { rank, end, others: false });
                        }
                        if let Phase::Running = phase {
                            phase = Phase::Noticing(Instant::now() + self.notice.min(self.grace));
                        }
                    }
                    false
                }
                Ok(Event::Signal(libc::SIGINT)) if !interrupted => {
                    interrupted = true;
                    ranks.signal(libc::SIGINT);
                    false
                }
                Ok(Event::Signal(_)) => true,
                Ok(Event::OutputGone) => {
                    failure.get_or_insert(LaunchError::OutputGone);
                    true
                }
                Err(RecvTimeoutError::Timeout) => {
                    if let (Phase::Running, Some(within)) = (&phase, self.timeout) {
                        failure.get_or_insert(LaunchError::TimedOut { within, ranks: ranks.running() });
                    }
                    true
                }
                // The children hold senders while they run.
                Err(RecvTimeoutError::Disconnected) => break,
            };
            if end_now && !ranks.running().is_empty() {
                if let Some(LaunchError::Failed { others, .. }) = &mut failure {
                    *others = true;
                }
                phase = match phase {
                    Phase::Running | Phase::Noticing(_) => {
                        ranks.signal(libc::SIGTERM);
                        Phase::Ending(Instant::now() + self.grace)
                    }
                    Phase::Ending(_) => {
                        ranks.signal(libc::SIGKILL);
                        Phase::Killed(Instant::now() + KILLED)
                    }
                    Phase::Killed(until) if until > Instant::now() => Phase::Killed(until),
                    Phase::Killed(_) => return Err(LaunchError::Stuck(ranks.running())),
                };
            }
        }
        failure.map_or(Ok(()), Err)
    }
}

/// The progress of ending the ranks.
enum Phase {
    Running,
    /// A rank failed; the others may notice by themselves until this time.
    Noticing(Instant),
    /// The ranks were told to end by this time.
    Ending(Instant),
    Killed(Instant),
}

/// The ranks that were started. Dropping them kills those that still run.
struct Ranks {
    children: Vec<Child>,
    grace: Duration,
}

impl Ranks {
    fn running(&self) -> Vec<usize> {
        (0..self.children.len()).filter(|r| self.children[*r].is_running()).collect()
    }

    fn ended(&mut self, rank: usize) {
        self.children[rank].ended();
    }

    fn signal(&self, signal: i32) {
        self.children.iter().for_each(|c| c.signal(signal));
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        if self.children.iter().any(Child::is_running) {
            self.signal(libc::SIGKILL);
        }
        for child in &mut self.children {
            child.finish(self.grace + KILLED);
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit(code) => write!(f, "ended with exit code {code}"),
            Self::Signal(signal) => match child::signal_name(*signal) {
                Some(name) => write!(f, "was ended by {name}"),
                None => write!(f, "was ended by signal {signal}"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_read_well_and_have_the_status_of_what_they_tell() {
        let failed = |end, others| LaunchError::Failed { rank: 2, end, others };
        for (error, text, code) in [
            (failed(End::Exit(3), false), "rank 2 ended with exit code 3", 3),
            (failed(End::Signal(9), true), "rank 2 was ended by SIGKILL; the others were ended", 137),
            (failed(End::Signal(63), false), "rank 2 was ended by signal 63", 191),
            (
                LaunchError::TimedOut { within: Duration::from_secs(2), ranks: vec![1] },
                "the ranks did not end within 2s: rank 1 still ran and was ended",
                124,
            ),
            (LaunchError::Stuck(vec![0, 2]), "ranks 0, 2 were killed, but did not end within 30s", 1),
            (LaunchError::Ranks(0), "0 ranks: a world has 1 to 1024", 2),
        ] {
            assert_eq!(error.to_string(), text);
            assert_eq!(error.exit_code(), code, "{text}");
        }
    }

    #[test]
    fn ranks_that_cannot_be_are_refused() {
        for n in [0, MAX_PES + 1] {
            let run = Launcher::new("true", Vec::new(), n).run(Launcher::events(), std::io::sink(), std::io::sink());
            assert!(matches!(run, Err(LaunchError::Ranks(m)) if m == n));
        }
    }
}
