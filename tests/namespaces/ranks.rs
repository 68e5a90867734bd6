//! Ranks of one world, one on each host, started by hand.

use super::hosts::Hosts;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

const SECRET: &str = "the ranks on both hosts know it";
/// Where rank 0 listens; each pair of hosts has its own ports.
const PORT: u16 = 4711;

/// A program on one host. Killed when it is dropped.
pub struct Rank {
    child: Child,
    lines: Receiver<String>,
    said: Vec<String>,
}

/// A program as both ranks of a world, rank 0 on the first host.
pub fn start(hosts: &Hosts, prepare: impl Fn(&mut Command)) -> [Rank; 2] {
    start_program(hosts, &std::env::current_exe().unwrap(), prepare)
}

/// Another program.
pub fn start_program(hosts: &Hosts, program: &std::path::Path, prepare: impl Fn(&mut Command)) -> [Rank; 2] {
    [0, 1].map(|rank| {
        let mut command = hosts.command(rank, program);
        let launchers = ["WARPBELL_", "OMPI_", "PMI", "MPI_", "MV2_", "SLURM_", "RANK", "WORLD_SIZE"];
        for (name, _) in std::env::vars_os() {
            if launchers.iter().any(|l| name.to_string_lossy().starts_with(l)) {
                command.env_remove(name);
            }
        }
        command.env("WARPBELL_RANK", rank.to_string()).env("WARPBELL_SIZE", "2").env("WARPBELL_LOCAL_RANK", "0");
        command.env("WARPBELL_STORE", format!("{}:{PORT}", hosts.address(0))).env("WARPBELL_SECRET", SECRET);
        prepare(&mut command);
        Rank::new(command)
    })
}

impl Rank {
    fn new(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        let (sender, lines) = channel();
        let streams: [Box<dyn std::io::Read + Send>; 2] =
            [Box::new(child.stdout.take().unwrap()), Box::new(child.stderr.take().unwrap())];
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
        Self { child, lines, said: Vec::new() }
    }

    /// The first line from now on that this takes, within a time in which it has to come.
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
                    panic!("it ended before it said that:\n{}", self.said.join("\n"))
                }
            }
        }
    }

    /// A line for it to read.
    pub fn tell(&mut self, line: &str) {
        let stdin = self.child.stdin.as_mut().unwrap();
        writeln!(stdin, "{line}").and_then(|()| stdin.flush()).unwrap();
    }

    /// Ends it without a word.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
    }

    /// Waits until it has ended by itself, and answers whether it was satisfied, and all it said.
    #[track_caller]
    pub fn finish(mut self, within: Duration) -> (bool, String) {
        let end = Instant::now() + within;
        loop {
            match self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => self.said.push(line),
                Err(RecvTimeoutError::Timeout) => panic!("it goes on after {within:?}:\n{}", self.said.join("\n")),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        // Both of its streams have ended, so it has, or is about to.
        let status = self.child.wait().unwrap();
        (status.success(), self.said.join("\n"))
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
