//! Runs the program as its users do, and returns its output.

use crate::tree;
use serde_json::Value;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// A graph file in the folder in which [`command`] runs the program.
pub const ENRON: &str = "examples/data/email-enron.txt";
/// Vertices by SNAP's page for the data set, minus one: see examples/data/README.md.
pub const ENRON_VERTICES: usize = 36_691;
pub const ENRON_LARGEST_COMPONENT: usize = 33_695;

/// A smaller graph: 4,096 vertices of about equal degrees, all of which a search reaches. Its edges take 128 pages, each of
/// which a search reads.
pub const UNIFORM: &str = "urand:12:16";

pub fn command(args: &[&str]) -> Command {
    let mut c = Command::new(tree::program());
    c.current_dir(tree::root()).args(args).stdin(Stdio::null());
    c
}

/// Makes the command heed signals that its parent ignores: tests that a script starts in the background ignore interrupts, those under
/// nohup hang-ups, and child processes inherit that.
pub fn heed_signals(command: &mut Command) {
    let heed = || {
        for signal in [libc::SIGINT, libc::SIGHUP] {
            // SAFETY: a system call with values, which may be made between fork and exec.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        Ok(())
    };
    // SAFETY: the closure makes system calls alone and allocates nothing.
    unsafe { std::os::unix::process::CommandExt::pre_exec(command, heed) };
}

pub fn warpbell(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

pub fn stdout(o: &Output) -> String {
    String::from_utf8(o.stdout.clone()).unwrap()
}

pub fn stderr(o: &Output) -> String {
    String::from_utf8(o.stderr.clone()).unwrap()
}

/// Returns the output of a run, which must succeed.
pub fn succeeds(args: &[&str]) -> String {
    let o = warpbell(args);
    assert!(o.status.success(), "{args:?}: {}\n{}\n{}", o.status, stdout(&o), stderr(&o));
    stdout(&o)
}

/// Returns the lines on standard error but for warnings of the library, and progress on a busy machine.
pub fn messages(o: &Output) -> Vec<String> {
    let is_own = |l: &&str| !l.starts_with(" WARN warpbell::") && !l.starts_with(" INFO progress: ");
    stderr(o).lines().filter(is_own).map(str::to_owned).collect()
}

/// Returns the message of a run, which must fail: exit code 1, exactly one line beside warnings of the library, no result.
pub fn fails(args: &[&str]) -> String {
    let o = warpbell(args);
    let (out, err) = (stdout(&o), stderr(&o));
    assert_eq!(o.status.code(), Some(1), "{args:?}:\n{out}\n{err}");
    let messages = messages(&o);
    assert_eq!(messages.len(), 1, "{args:?}:\n{err}");
    assert!(!out.contains("verified"), "{args:?}:\n{out}");
    messages[0].strip_prefix("error: ").unwrap_or_else(|| panic!("{args:?}:\n{err}")).trim_end().to_owned()
}

/// Returns the words of a text on one line: reports break their lines.
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[track_caller]
pub fn mentions(message: &str, words: &[&str]) {
    for w in words {
        assert!(message.contains(w), "no `{w}` in: {message}");
    }
}

pub fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// A file that holds graphs or tables, in its own folder.
pub struct Image {
    /// Command of the program for what the file holds: `graph` or `table`.
    family: &'static str,
    pub folder: tempfile::TempDir,
    pub path: PathBuf,
    pub device: String,
}

impl Image {
    pub fn of(family: &'static str) -> Self {
        let folder = folder();
        let path = folder.path().join(format!("{family}s.img"));
        let device = format!("soft:{}", name(&path));
        Self { family, folder, path, device }
    }

    /// Returns the arguments of a command with the device and `more`.
    pub fn args<'a>(&'a self, command: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
        [&[self.family], command, &["--device", &self.device], more].concat()
    }
}

pub fn write(folder: &tempfile::TempDir, name: &str, content: impl AsRef<[u8]>) -> String {
    let path = folder.path().join(name);
    std::fs::write(&path, content).unwrap();
    path.to_str().unwrap().to_owned()
}

pub fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

/// Reads `ID VALUE` lines.
pub fn values(path: &Path) -> HashMap<u64, String> {
    let text = std::fs::read_to_string(path).unwrap();
    let lines: HashMap<_, _> = text
        .lines()
        .map(|l| {
            let (id, value) = l.split_once(' ').unwrap_or_else(|| panic!("`{l}`"));
            (id.parse().unwrap(), value.to_owned())
        })
        .collect();
    assert_eq!(lines.len(), text.lines().count(), "an identifier stands twice");
    lines
}

pub fn name(p: &Path) -> &str {
    p.to_str().unwrap()
}
