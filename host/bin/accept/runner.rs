//! Runs commands of this program as processes of their own. A step that crashes or hangs then ends alone, and the run
//! goes on to restore what it changed.

use super::notes::{self, Notes};
use crate::workloads::report::nanoseconds;
use serde::Serialize;
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use warpbell::refused::RefusedCommand;
use warpbell::shmem::launcher::dies_with_this_process;

/// Time from SIGTERM to SIGKILL for a command that is over its limit.
const GRACE: Duration = Duration::from_secs(5);
/// Time for a killed process to leave the kernel.
const LEAVE: Duration = Duration::from_secs(20);
/// Interval of the checks for an interruption.
const LOOK: Duration = Duration::from_millis(20);
/// Largest number of bytes that are kept of each output of a command.
const MOST_OUTPUT: usize = 4 << 20;
/// Largest number of bytes of standard error in a report.
const MOST_ERROR: usize = 16 << 10;

/// Plan to kill a command under load, to see what its end leaves behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kill {
    /// Beginning of the line of output after which the load runs.
    pub after_line: &'static str,
    /// Time from that line to the end.
    pub later: Duration,
    /// Number of the rank that is killed, under a launcher; `None` for the command itself.
    pub rank: Option<usize>,
}

/// A command of this program.
#[derive(Clone, Debug, Default)]
pub struct Call {
    /// Purpose of the command, in a few words.
    pub name: String,
    /// Arguments, without the program's name.
    pub arguments: Vec<OsString>,
    /// Environment variables that it gets in addition.
    pub variables: Vec<(&'static str, String)>,
    /// Time limit.
    pub limit: Duration,
    /// If it is killed on purpose.
    pub kill: Option<Kill>,
}

impl Call {
    /// Returns a command with these arguments.
    pub fn new(name: impl Into<String>, arguments: &[&str], limit: Duration) -> Self {
        let arguments = arguments.iter().map(OsString::from).collect();
        Self { name: name.into(), arguments, limit, ..Self::default() }
    }

    /// Adds arguments.
    pub fn with(mut self, arguments: impl IntoIterator<Item = impl Into<OsString>>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Adds environment variables.
    pub fn set(mut self, variables: &[(&'static str, String)]) -> Self {
        self.variables.extend_from_slice(variables);
        self
    }
}

/// End of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum End {
    /// With this exit code.
    Exit(i32),
    /// By this signal.
    Signal(i32),
    /// By this program, as the step asks for.
    Killed,
    /// By this program, since its time was over.
    TimedOut,
    /// By this program, which was interrupted.
    Interrupted,
    /// It could not be started, or could not be ended.
    Lost(String),
}

/// A command that was run.
#[derive(Clone, Debug, Serialize)]
pub struct Done {
    /// Purpose of the command.
    pub name: String,
    /// The command line, as a shell reads it, with the variables before it.
    pub command: String,
    /// Its end.
    pub end: End,
    /// Time that it took, in nanoseconds.
    pub elapsed_ns: u64,
    /// Last bytes of its standard error.
    pub stderr: String,
    /// The report that it wrote, if it wrote one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report: Option<Value>,
    /// Commands that devices refused while it ran.
    pub refused: Vec<RefusedCommand>,
    /// Number of refused commands beyond those.
    pub more_refused: usize,
}

impl Done {
    /// Returns true if the command succeeded.
    pub fn is_success(&self) -> bool {
        self.end == End::Exit(0)
    }

    /// Returns the value at a path of the command's report; null if there is none.
    pub fn get(&self, pointer: &str) -> &Value {
        self.report.as_ref().and_then(|r| r.pointer(pointer)).unwrap_or(&Value::Null)
    }

    /// Returns the errors that the command printed, without their prefix, or how it ended. Only the ranks of a launcher
    /// print more than one.
    pub fn error(&self) -> String {
        let all: Vec<&str> = self.stderr.lines().filter_map(|l| l.strip_prefix("error: ")).collect();
        let first = Some(all.join("; ")).filter(|all| !all.is_empty());
        match (&self.end, first) {
            (End::TimedOut, first) => {
                let first = first.map(|l| format!(": {l}")).unwrap_or_default();
                format!(
                    "{} did not end in time and was ended after {} s{first}",
                    self.name,
                    self.elapsed_ns / 1_000_000_000
                )
            }
            (End::Interrupted, _) => format!("{} was interrupted", self.name),
            (End::Lost(why), _) => why.clone(),
            (End::Signal(signal), first) => {
                let first = first.map(|l| format!(": {l}")).unwrap_or_default();
                format!("{} was ended by signal {signal}{first}", self.name)
            }
            (_, Some(first)) => format!("{}: {first}", self.name),
            (end, None) => format!("{} ended without an error message ({end:?})", self.name),
        }
    }
}

/// Runs commands, and keeps them for the report.
pub trait Runner {
    /// Runs a command to its end.
    fn run(&mut self, call: &Call) -> Done;
    /// Returns the commands that were run since the last call of this function.
    fn take(&mut self) -> Vec<Done>;
    /// Returns true if the run was interrupted.
    fn is_interrupted(&self) -> bool;
    /// Returns the words that start this program, for commands that start it themselves.
    fn program(&self) -> Vec<OsString>;
}

/// A request to end the run, from a signal or from a time limit.
#[derive(Clone, Debug, Default)]
pub struct Stop {
    /// Number of the signal; 0 for none.
    signal: Arc<AtomicI32>,
    /// Time at which the run has to end.
    until: Option<Instant>,
}

impl Stop {
    /// Creates a request that is not made yet, and is made after this time.
    pub fn after(time: Option<Duration>) -> Self {
        Self { until: time.map(|t| Instant::now() + t), ..Self::default() }
    }

    /// Notes a signal.
    pub fn note(&self, signal: i32) {
        self.signal.store(signal, Ordering::Release);
    }

    /// Returns the signal that ended the run, if there was one.
    pub fn signal(&self) -> Option<i32> {
        Some(self.signal.load(Ordering::Acquire)).filter(|s| *s != 0)
    }

    /// Returns true if the time is over.
    pub fn is_late(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// Returns true if the run has to end.
    pub fn is_asked(&self) -> bool {
        self.signal().is_some() || self.is_late()
    }
}

/// Runs commands as processes.
pub struct Processes {
    program: Vec<OsString>,
    stop: Stop,
    done: Vec<Done>,
}

impl Processes {
    /// Creates a runner for this program. `words` is the number of this command line's words, the program's name
    /// included.
    ///
    /// # Errors
    /// [`io::Error`] if the system does not tell which program this is.
    pub fn new(words: usize, stop: Stop) -> io::Result<Self> {
        Ok(Self { program: this_program(words)?, stop, done: Vec::new() })
    }

    fn start(&self, call: &Call, notes: &Notes) -> io::Result<Child> {
        let mut words = self.program.iter();
        let mut command = Command::new(words.next().map_or(OsStr::new(""), OsString::as_os_str));
        command.args(words).args(&call.arguments).envs(call.variables.iter().map(|(k, v)| (*k, v)));
        command.env(notes::FOLDER, notes.folder());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        dies_with_this_process(&mut command);
        command.spawn()
    }
}

/// Returns the words that start this program. It may be a library inside another executable, whose words then come
/// first.
fn this_program(words: usize) -> io::Result<Vec<OsString>> {
    let mut line: Vec<OsString> = std::env::args_os().collect();
    let own = line.len().saturating_sub(words.saturating_sub(1)).max(1);
    line.truncate(own);
    let executable = std::env::current_exe()?;
    match line.first_mut() {
        Some(first) => *first = executable.into(),
        None => line.push(executable.into()),
    }
    Ok(line)
}

impl Runner for Processes {
    fn run(&mut self, call: &Call) -> Done {
        let started = Instant::now();
        let (end, out, err, notes) = self.attend(call, started);
        let (refused, more_refused) = notes.map(|n| n.read()).unwrap_or_default();
        let done = Done {
            name: call.name.clone(),
            command: shown(&self.program, call),
            end,
            elapsed_ns: nanoseconds(started.elapsed()),
            stderr: tail(&err, MOST_ERROR),
            report: serde_json::from_slice(&out).ok(),
            refused,
            more_refused,
        };
        self.done.push(done.clone());
        done
    }

    fn take(&mut self) -> Vec<Done> {
        std::mem::take(&mut self.done)
    }

    fn is_interrupted(&self) -> bool {
        self.stop.is_asked()
    }

    fn program(&self) -> Vec<OsString> {
        self.program.clone()
    }
}

impl Processes {
    /// Runs a command and waits for it. Returns how it ended, its output, and the notes that it left.
    fn attend(&self, call: &Call, started: Instant) -> (End, Vec<u8>, Vec<u8>, Option<Notes>) {
        let lost =
            |what: &str, e: io::Error| (End::Lost(format!("{}: {what}: {e}", call.name)), Vec::new(), Vec::new());
        if self.stop.is_asked() {
            return (End::Interrupted, Vec::new(), Vec::new(), None);
        }
        let notes = match Notes::new() {
            Ok(notes) => notes,
            Err(e) => {
                let (end, out, err) = lost("a folder for its notes cannot be created", e);
                return (end, out, err, None);
            }
        };
        let mut child = match self.start(call, &notes) {
            Ok(child) => child,
            Err(e) => {
                let (end, out, err) = lost("it cannot be started", e);
                return (end, out, err, Some(notes));
            }
        };
        let (lines, seen) = channel();
        let after = call.kill.as_ref().map_or("", |k| k.after_line);
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let reader = || std::thread::Builder::new().name("wb-output".to_owned());
        let out = reader().spawn(move || {
            stdout.map_or_else(Vec::new, |s| {
                gather(s, |line| after.is_empty() || !line.contains(after) || lines.send(()).is_ok())
            })
        });
        let err = reader().spawn(move || stderr.map_or_else(Vec::new, |s| gather(s, |_| true)));
        let (out, err) = match (out, err) {
            (Ok(out), Ok(err)) => (out, err),
            (Err(e), _) | (_, Err(e)) => {
                signal(child.id(), libc::SIGKILL);
                let _ = child.wait();
                let (end, out, err) = lost("its output cannot be read", e);
                return (end, out, err, Some(notes));
            }
        };
        let end = self.wait(call, &mut child, &seen, started);
        // Processes that a command leaves behind may hold its output open.
        signal(child.id(), libc::SIGKILL);
        let out = out.join().unwrap_or_default();
        let err = err.join().unwrap_or_default();
        (end, out, err, Some(notes))
    }

    fn wait(&self, call: &Call, child: &mut Child, seen: &Receiver<()>, started: Instant) -> End {
        let mut kill_at = None;
        loop {
            match child.try_wait() {
                Ok(Some(status)) => return of(status),
                Ok(None) => {}
                Err(e) => return End::Lost(format!("{}: waiting for it: {e}", call.name)),
            }
            if self.stop.is_asked() {
                self.end(child);
                return End::Interrupted;
            }
            if started.elapsed() > call.limit {
                return if self.end(child) {
                    End::TimedOut
                } else {
                    let (name, pid) = (&call.name, child.id());
                    End::Lost(format!(
                        "{name}: process {pid} does not end, even killed: a device keeps it in the kernel; see dmesg"
                    ))
                };
            }
            match (&call.kill, kill_at) {
                (Some(kill), None) => match seen.recv_timeout(LOOK) {
                    Ok(()) => kill_at = Some(Instant::now() + kill.later),
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => std::thread::sleep(LOOK),
                },
                (Some(kill), Some(at)) if Instant::now() >= at => match kill.rank {
                    None => {
                        let left = self.kill(child);
                        return if left { End::Killed } else { End::Lost(format!("{}: it does not end", call.name)) };
                    }
                    Some(rank) => {
                        let Some(pid) = rank_of(child.id(), rank) else {
                            self.end(child);
                            return End::Lost(format!("{}: rank {rank} is not found", call.name));
                        };
                        // SAFETY: a system call with values. The process is a child of the launcher, which reaps it only
                        // after its end.
                        unsafe { libc::kill(pid, libc::SIGKILL) };
                        // The launcher's end tells what the others noticed.
                        kill_at = Some(Instant::now() + call.limit);
                    }
                },
                _ => std::thread::sleep(LOOK),
            }
        }
    }

    /// Ends a command in order, or kills it. Returns false if it stays in the kernel.
    fn end(&self, child: &mut Child) -> bool {
        signal(child.id(), libc::SIGTERM);
        left_within(child, GRACE) || self.kill(child)
    }

    fn kill(&self, child: &mut Child) -> bool {
        signal(child.id(), libc::SIGKILL);
        left_within(child, LEAVE)
    }
}

fn of(status: ExitStatus) -> End {
    match (status.code(), status.signal()) {
        (Some(code), _) => End::Exit(code),
        (None, Some(signal)) => End::Signal(signal),
        (None, None) => End::Lost("it ended without a status".to_owned()),
    }
}

fn left_within(child: &mut Child, time: Duration) -> bool {
    let started = Instant::now();
    loop {
        if !matches!(child.try_wait(), Ok(None)) {
            return true;
        }
        if started.elapsed() > time {
            return false;
        }
        std::thread::sleep(LOOK);
    }
}

/// Sends a signal to a command's process group.
fn signal(pid: u32, number: i32) {
    if let Ok(group) = libc::pid_t::try_from(pid) {
        // SAFETY: a system call with values. An empty group is no error.
        unsafe { libc::kill(-group, number) };
    }
}

/// Returns the process of a rank that a launcher started.
fn rank_of(launcher: u32, rank: usize) -> Option<libc::pid_t> {
    let (parent, wanted) = (launcher.to_string(), format!("WARPBELL_RANK={rank}"));
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<libc::pid_t>().ok());
    pids.find(|pid| {
        // The name, in parentheses, may have blanks. The state and the parent follow it (proc_pid_stat(5)).
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let is_child = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)) == Some(&parent);
        let set = || std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        is_child && set().split(|b| *b == 0).any(|v| v == wanted.as_bytes())
    })
}

/// Reads a stream to its end, and calls `told` with each line.
fn gather(stream: impl Read, told: impl Fn(&str) -> bool) -> Vec<u8> {
    let (mut stream, mut all, mut line) = (BufReader::new(stream), Vec::new(), Vec::new());
    while stream.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
        told(&String::from_utf8_lossy(&line));
        if all.len() + line.len() <= MOST_OUTPUT {
            all.extend_from_slice(&line);
        }
        line.clear();
    }
    all
}

/// Returns the last `most` bytes as text.
fn tail(bytes: &[u8], most: usize) -> String {
    String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(most)..]).into_owned()
}

/// Returns a command as one types it.
fn shown(program: &[OsString], call: &Call) -> String {
    let quoted = |word: &OsStr| {
        let word = word.to_string_lossy();
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+{}".contains(c);
        match !word.is_empty() && word.chars().all(plain) {
            true => word.into_owned(),
            false => format!("'{}'", word.replace('\'', r"'\''")),
        }
    };
    let name = match program {
        [only] => PathBuf::from(only).file_name().map_or_else(|| "warpbell".into(), OsStr::to_owned),
        _ => "warpbell".into(),
    };
    let variables = call.variables.iter().map(|(k, v)| format!("{k}={}", quoted(OsStr::new(v))));
    let words = std::iter::once(quoted(&name)).chain(call.arguments.iter().map(|a| quoted(a)));
    variables.chain(words).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_shown_as_one_types_them() {
        let call = Call::new("x", &["bench", "nvme", "--device", "soft:a b.img"], GRACE)
            .set(&[("WARPBELL_HEAP", "host".to_owned())]);
        let program = [OsString::from("/usr/bin/warpbell")];
        assert_eq!(shown(&program, &call), "WARPBELL_HEAP=host warpbell bench nvme --device 'soft:a b.img'");
        let python = [OsString::from("/usr/bin/python3"), OsString::from("warpbell")];
        assert!(shown(&python, &call).contains(" warpbell bench"));
    }

    #[test]
    fn errors_name_the_command_and_how_it_ended() {
        let done = |end, stderr: &str| Done {
            name: "reads".to_owned(),
            command: String::new(),
            end,
            elapsed_ns: 2_000_000_000,
            stderr: stderr.to_owned(),
            report: None,
            refused: Vec::new(),
            more_refused: 0,
        };
        assert_eq!(done(End::Exit(1), "warning: a\nerror: b is c\n").error(), "reads: b is c");
        assert_eq!(done(End::Signal(11), "").error(), "reads was ended by signal 11");
        assert!(done(End::TimedOut, "error: b\n").error().contains("after 2 s: b"));
        assert!(done(End::Exit(3), "").error().contains("Exit(3)"));
    }

    #[test]
    fn this_program_is_the_executable_and_its_first_words() {
        let all = std::env::args_os().count();
        let words = this_program(all).unwrap();
        assert_eq!(words, [std::env::current_exe().unwrap()]);
    }
}
