//! Tests limits that the system sets on a process, and signals that end it: one line says what happened, and nothing is
//! left behind.

use super::program::*;
use super::tree;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Longest wait for what must come, however busy the machine is.
const PATIENT: Duration = Duration::from_secs(300);
/// A user that has no other processes: its limit of processes is that of the test.
const NOBODY: libc::uid_t = 54_321;

/// Makes the command run with a limit. Root is above the limit of processes, so that the command runs as another user.
fn limited(mut command: Command, resource: libc::__rlimit_resource_t, limit: u64) -> Command {
    // SAFETY: a system call without arguments, which does not fail.
    let is_root = unsafe { libc::geteuid() } == 0;
    let enter = move || {
        let both = libc::rlimit { rlim_cur: limit, rlim_max: limit };
        // SAFETY: async-signal-safe calls on values and on a structure that lives for the call.
        unsafe {
            if libc::setrlimit(resource, &both) != 0
                || is_root && resource == libc::RLIMIT_NPROC && libc::setuid(NOBODY) != 0
            {
                return Err(std::io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: the closure makes these calls only.
    unsafe { command.pre_exec(enter) };
    command
}

fn names(folder: &Path) -> Vec<String> {
    fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn a_result_beyond_the_limit_of_file_sizes_is_told_and_leaves_nothing() {
    let folder = folder();
    let out = folder.path().join("out.txt");
    let graph = ["graph", "bfs", "kron:8", "--source", "1", "--engine", "cpu", "--edges", "pinned"];
    for option in ["--out", "--json"] {
        let arguments = [&graph[..], &["--top", "100000", option, name(&out)]].concat();
        let o = limited(command(&arguments), libc::RLIMIT_FSIZE, 256).output().unwrap();
        assert_eq!(o.status.code(), Some(1), "{option}: {} {}", o.status, stderr(&o));
        mentions(&stderr(&o), &["out.txt: writing failed: File too large", "nothing was left behind", "ulimit -f"]);
        assert_eq!(names(folder.path()), [""; 0], "{option}");
    }
    // A program that is started does not inherit that.
    let o = limited(command(&["run", "-n", "1", "--", "sh", "-c", "trap"]), libc::RLIMIT_FSIZE, 256).output().unwrap();
    assert_eq!((o.status.code(), stdout(&o)), (Some(0), String::new()), "{}", stderr(&o));
}

#[test]
fn few_threads_are_an_error_that_names_the_limit() {
    // The other user may not reach the program where it was built.
    let folder = folder();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("warpbell");
    fs::copy(tree::program(), &program).unwrap();
    let mut refused = 0;
    // Two limits in turn with which all commands run: larger ones refuse nothing.
    let mut enough = 0;
    for limit in 1..24 {
        let before = refused;
        for line in
            ["graph bfs kron:6 --source 1", "graph bfs kron:6 --source 1 --pes 2", "bench shmem put_bw -n 5 --runs 1"]
        {
            let words = line.split(' ').chain(["--engine", "cpu", "--deadline", "60s"]);
            let mut c = Command::new(&program);
            c.args(words).current_dir(folder.path()).stdin(Stdio::null());
            let mut c = limited(c, libc::RLIMIT_NPROC, limit);
            // The copy is open for a moment if another test starts a process while the copy is written.
            let o = loop {
                match c.output() {
                    Err(e) if e.kind() == std::io::ErrorKind::ExecutableFileBusy => std::thread::yield_now(),
                    other => break other.unwrap(),
                }
            };
            let err = stderr(&o);
            assert!(!err.contains("panicked"), "{limit}, {line}: {err}");
            if o.status.success() {
                continue;
            }
            refused += 1;
            assert_eq!(o.status.code(), Some(1), "{limit}, {line}: {err}");
            let errors: Vec<&str> = err.lines().filter(|l| l.starts_with("error: ")).collect();
            assert_eq!(errors.len(), 1, "{limit}, {line}: {err}");
            mentions(errors[0], &["os error 11", "ulimit -u"]);
        }
        enough = if refused == before { enough + 1 } else { 0 };
        if enough == 2 {
            break;
        }
    }
    assert!(refused >= 3, "the limit of one process refuses all");
}

#[test]
fn memory_that_a_limit_leaves_is_told_with_the_limit() {
    let mut bfs = command(&["graph", "bfs", "kron:20", "--engine", "cpu"]);
    // Stacks of many threads would take all of it.
    bfs.env("WARPBELL_PROCESSORS", "2").env_remove("RAYON_NUM_THREADS");
    let o = limited(bfs, libc::RLIMIT_AS, 400 << 20).output().unwrap();
    assert_eq!(o.status.code(), Some(1), "{}", stdout(&o));
    mentions(&stderr(&o), &["is free", "400 MiB of addresses (ulimit -v)", "raise it"]);
}

/// Starts a command that reads a graph from a pipe without end, with its socket in `folder`, and waits for the socket.
fn reads_without_end(folder: &Path, more: &[&str]) -> Child {
    let mut c = command(&[&["graph", "cc", "-", "--format", "el"], more].concat());
    c.env("XDG_RUNTIME_DIR", folder).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    heed_signals(&mut c);
    let mut child = c.spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(b"1 2\n").unwrap();
    let start = Instant::now();
    while !folder.join(format!("warpbell/{}.sock", child.id())).exists() {
        assert!(start.elapsed() < PATIENT && child.try_wait().unwrap().is_none(), "no socket");
        std::thread::sleep(Duration::from_millis(5));
    }
    child
}

/// Returns the output of a child whose standard input stays open until it has ended.
fn output(mut child: Child) -> Output {
    let input = child.stdin.take();
    let o = child.wait_with_output().unwrap();
    drop(input);
    o
}

#[test]
fn a_command_that_is_ended_removes_its_socket() {
    for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
        let folder = folder();
        let child = reads_without_end(folder.path(), &[]);
        // SAFETY: a system call with values; the process is one that this test started.
        assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
        let o = output(child);
        assert_eq!(o.status.code(), Some(128 + signal), "{}", stderr(&o));
        assert_eq!(names(&folder.path().join("warpbell")), [""; 0]);
    }
    let folder = folder();
    let o = output(reads_without_end(folder.path(), &["--timeout", "10s"]));
    assert_eq!(o.status.code(), Some(124), "{}", stderr(&o));
    assert_eq!(names(&folder.path().join("warpbell")), [""; 0]);
}
