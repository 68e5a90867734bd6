//! Processes of one run, and what they leave behind.

use crate::children::Meeting;
use crate::middle::{Middle, await_some};
use crate::program::{self, Running};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Variable that all processes of a run inherit.
const MARK: &str = "WARPBELL_CAMPAIGN_RUN";

/// Processes that have folders for temporary files and for sockets of their own.
pub struct Family {
    folder: tempfile::TempDir,
    mark: String,
}

impl Family {
    pub fn new() -> Self {
        static RUNS: AtomicU64 = AtomicU64::new(0);
        let folder = program::folder_in_memory();
        for name in ["temporary", "session"] {
            fs::create_dir(folder.path().join(name)).expect("a folder in an empty one");
        }
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        Self { folder, mark: format!("{}.{run}", std::process::id()) }
    }

    /// Returns the path of a file of the run.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the folder of the sockets of `warpbell top`.
    pub fn sockets(&self) -> PathBuf {
        self.folder.path().join("session/warpbell")
    }

    /// Returns a command of the program that belongs to this run.
    pub fn command<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = program::command(args);
        let path = |name: &str| self.folder.path().join(name);
        command.env("TMPDIR", path("temporary")).env("XDG_RUNTIME_DIR", path("session")).env(MARK, &self.mark);
        command
    }

    /// Returns the process of a launcher's rank, once there is one that runs the program.
    pub fn rank(&self, rank: usize) -> Option<u32> {
        let is_rank = format!("WARPBELL_RANK={rank}");
        let number = |p: &PathBuf| p.file_name()?.to_str()?.parse().ok();
        let is_rank = |p: &PathBuf| environment(p).iter().any(|word| *word == is_rank.as_bytes());
        let is_program = |p: &PathBuf| fs::read_to_string(p.join("comm")).is_ok_and(|name| name == "warpbell\n");
        processes(&self.mark).iter().filter(|p| is_program(p) && is_rank(p)).find_map(number)
    }

    /// Returns an error that names what the processes left behind, all of which have ended. Sockets of those that were
    /// killed are removed by the next command.
    pub fn check_left(&self, was_killed: bool) -> Result<(), String> {
        // Children of a process that was killed have a moment to end.
        let gone = await_some(Duration::from_secs(5), || processes(&self.mark).is_empty().then_some(()));
        let mut left: Vec<String> =
            if gone.is_some() { Vec::new() } else { processes(&self.mark).iter().map(|p| line(p)).collect() };
        left.extend(files(&self.path("temporary")));
        if !was_killed {
            left.extend(files(&self.sockets()));
        }
        let shared = fs::read_dir("/dev/shm").into_iter().flatten().flatten().map(|e| e.path());
        left.extend(shared.filter(|p| p.to_string_lossy().contains("warpbell")).map(|p| p.display().to_string()));
        if left.is_empty() { Ok(()) } else { Err(format!("left behind: {}", left.join(", "))) }
    }
}

fn files(folder: &Path) -> Vec<String> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path().display().to_string()).collect()
}

/// Returns the folders of the processes that have inherited a mark.
fn processes(mark: &str) -> Vec<PathBuf> {
    let wanted = format!("{MARK}={mark}");
    let all = fs::read_dir("/proc").into_iter().flatten().flatten().map(|e| e.path());
    all.filter(|p| environment(p).iter().any(|word| *word == wanted.as_bytes())).collect()
}

/// Returns the environment of a process; nothing of one that has ended.
fn environment(process: &Path) -> Vec<Vec<u8>> {
    let bytes = fs::read(process.join("environ")).unwrap_or_default();
    bytes.split(|b| *b == 0).map(<[u8]>::to_vec).collect()
}

/// Returns the number and the command line of a process.
fn line(process: &Path) -> String {
    let words = fs::read(process.join("cmdline")).unwrap_or_default();
    format!("{} ({})", process.display(), String::from_utf8_lossy(&words).replace('\0', " "))
}

/// Starts the ranks of a world without a launcher. One of them may have another address for the store.
pub fn start_world(
    size: usize,
    detour: Option<(usize, &Middle)>,
    command: impl Fn(usize) -> Command,
) -> Result<Vec<Running>, String> {
    let meeting = Meeting::new();
    let store = meeting.store();
    if let Some((_, middle)) = detour {
        middle.lead_to(store.parse().map_err(|e| format!("{store}: {e}"))?);
    }
    let start = |rank: usize| {
        let mut command = command(rank);
        let at = detour.filter(|(other, _)| *other == rank).map_or_else(|| store.clone(), |(_, m)| m.at.to_string());
        command.env("WARPBELL_RANK", rank.to_string()).env("WARPBELL_SIZE", size.to_string());
        command.env("WARPBELL_STORE", at).env("WARPBELL_SECRET", "the ranks of this campaign know it");
        if rank == 0 {
            meeting.hand_to(&mut command);
        }
        Running::start(&mut command)
    };
    (0..size).map(start).collect()
}

/// Sends a signal to a process of the run.
pub fn signal(process: u32, signal: i32) {
    // SAFETY: a system call with values. The process is one that this program has started and not waited for, or a child of
    // one that has not been waited for by its parent.
    unsafe { libc::kill(process as i32, signal) };
}
