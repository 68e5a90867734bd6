//! Processes that a test starts: the socket at which ranks meet, and the output of each, which is shown when something
//! is missing.
#![allow(dead_code, reason = "each test program has a copy of this file and uses a part of it")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{self, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// A socket at which ranks meet. It listens before any rank starts, and rank 0 inherits it, so that no other program
/// gets its port.
pub struct Meeting(TcpListener);

impl Meeting {
    pub fn new() -> Self {
        Self(TcpListener::bind("127.0.0.1:0").unwrap())
    }

    /// Returns the value of `WARPBELL_STORE`.
    pub fn store(&self) -> String {
        self.0.local_addr().unwrap().to_string()
    }

    /// Lets a command inherit the socket. The command has to be started while this value exists.
    pub fn hand_to(&self, rank_0: &mut Command) {
        let descriptor = self.0.as_raw_fd();
        rank_0.env("WARPBELL_STORE_FD", descriptor.to_string());
        let keep = move || {
            // SAFETY: a system call with values, which may be made between fork and exec.
            match unsafe { libc::fcntl(descriptor, libc::F_SETFD, 0) } {
                -1 => Err(std::io::Error::last_os_error()),
                _ => Ok(()),
            }
        };
        // SAFETY: the closure makes one system call and allocates nothing.
        unsafe { rank_0.pre_exec(keep) };
    }
}

/// A process with its output on both streams, line by line. Killed when it is dropped.
pub struct Child {
    process: process::Child,
    lines: Receiver<String>,
    said: Vec<String>,
}

impl Child {
    #[track_caller]
    pub fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        let (sender, lines) = channel();
        let streams: [Box<dyn Read + Send>; 2] =
            [Box::new(process.stdout.take().unwrap()), Box::new(process.stderr.take().unwrap())];
        for stream in streams {
            let sender = sender.clone();
            std::thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    if sender.send(line).is_err() {
                        break;
                    }
                }
            });
        }
        Self { process, lines, said: Vec::new() }
    }

    /// Returns the first result of `take` for a line from now on. Fails the test if none comes within the time.
    #[track_caller]
    pub fn until<T>(&mut self, within: Duration, take: impl Fn(&str) -> Option<T>) -> T {
        let end = Instant::now() + within;
        loop {
            match self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    let taken = take(&line);
                    self.said.push(line);
                    if let Some(value) = taken {
                        return value;
                    }
                }
                Err(RecvTimeoutError::Timeout) => panic!("not said within {within:?}:\n{}", self.said.join("\n")),
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.process.wait().unwrap();
                    panic!("it ended ({status}) before it said that:\n{}", self.said.join("\n"))
                }
            }
        }
    }

    /// Writes a line to the process's standard input.
    pub fn tell(&mut self, line: &str) {
        let stdin = self.process.stdin.as_mut().unwrap();
        writeln!(stdin, "{line}").and_then(|()| stdin.flush()).unwrap();
    }

    /// Kills the process.
    pub fn kill(&mut self) {
        self.process.kill().unwrap();
    }

    /// Waits until the process has ended by itself. Returns its status and all its output.
    #[track_caller]
    pub fn finish(mut self, within: Duration) -> (ExitStatus, String) {
        let end = Instant::now() + within;
        loop {
            match self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => self.said.push(line),
                Err(RecvTimeoutError::Timeout) => panic!("it goes on after {within:?}:\n{}", self.said.join("\n")),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        // Both of its streams have ended, so the process has ended or is about to.
        (self.process.wait().unwrap(), self.said.join("\n"))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // The process has ended if this fails.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
