//! Crowds of silent connections, and processes with few descriptors, for tests of listeners.

use socket2::{Domain, Socket, Type};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Lines, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Deadline of what must happen, also on a busy machine.
const GENEROUS: Duration = Duration::from_secs(60);

/// Opens silent connections from 127.0.0.`from` until `over` is set, and holds the last of them. Counts them.
pub(crate) fn silent_crowd(from: u8, to: SocketAddr, held: usize, made: &AtomicUsize, over: &AtomicBool) {
    /// One address has about 28,000 ports, and a port stays in use for a while after its connection. Members need some too.
    const MOST: usize = 8000;
    let connect = || -> std::io::Result<TcpStream> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&SocketAddr::from(([127, 0, 0, from], 0)).into())?;
        socket.connect_timeout(&to.into(), Duration::from_secs(1))?;
        Ok(socket.into())
    };
    let mut open = VecDeque::new();
    for _ in 0..MOST {
        if over.load(Ordering::Relaxed) {
            return;
        }
        // The backlog of the port may be full for a moment.
        if let Ok(stream) = connect() {
            open.push_back(stream);
            made.fetch_add(1, Ordering::Relaxed);
        }
        open.drain(..open.len().saturating_sub(held));
    }
    while !over.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Silent crowds from several addresses.
pub(crate) struct Crowd {
    made: AtomicUsize,
    over: AtomicBool,
}

impl Crowd {
    /// Runs `work` while a crowd from each of the addresses 127.0.0.x connects to `to`.
    pub(crate) fn around(from: RangeInclusive<u8>, to: SocketAddr, work: impl FnOnce(&Self)) {
        /// Connections that each address holds.
        const HELD: usize = 400;
        let crowd = Self { made: AtomicUsize::new(0), over: AtomicBool::new(false) };
        let crowd = &crowd;
        std::thread::scope(|s| {
            for last in from {
                s.spawn(move || silent_crowd(last, to, HELD, &crowd.made, &crowd.over));
            }
            let worked = catch_unwind(AssertUnwindSafe(|| work(crowd)));
            crowd.over.store(true, Ordering::Relaxed);
            worked.unwrap_or_else(|e| resume_unwind(e));
        });
    }

    /// Returns the number of connections that were made so far.
    pub(crate) fn made(&self) -> usize {
        self.made.load(Ordering::Relaxed)
    }

    /// Waits until so many connections were made.
    pub(crate) fn wait_for(&self, connections: usize) {
        let began = Instant::now();
        while self.made() < connections {
            assert!(began.elapsed() < GENEROUS, "{} of {connections} connections", self.made());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A test that runs as a process of its own, and ends with this.
pub(crate) struct TestProcess {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

const ARGUMENT: &str = "WARPBELL_TEST_ARGUMENT";

impl TestProcess {
    /// Starts an ignored test of this program, by its whole name.
    pub(crate) fn start(name: &str, argument: &str) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([name, "--exact", "--ignored", "--nocapture", "--test-threads=1"]).env(ARGUMENT, argument);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// Returns what follows `begin` in the next line that begins so.
    pub(crate) fn line(&mut self, begin: &str) -> String {
        let found = self.lines.by_ref().map_while(Result::ok).find_map(|l| l.strip_prefix(begin).map(str::to_owned));
        found.unwrap_or_else(|| panic!("the process ended before `{begin}`"))
    }

    /// Ends the next [`wait_for_parent`] of the process.
    pub(crate) fn go_on(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }

    /// Waits for the end of a process that passes its test.
    pub(crate) fn pass(mut self) {
        self.line("test result: ok. 1 passed");
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for TestProcess {
    fn drop(&mut self) {
        // It has ended if its test passed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the argument of a test that runs as a process.
pub(crate) fn argument() -> String {
    std::env::var(ARGUMENT).unwrap_or_default()
}

/// Says a line to the test that started this process.
pub(crate) fn say(line: &str) {
    println!("\n{line}");
}

/// Waits for [`TestProcess::go_on`].
pub(crate) fn wait_for_parent() {
    std::io::stdin().lines().next();
}

/// Limits the descriptors of this process.
pub(crate) fn limit_descriptors(descriptors: u64) {
    let limit = libc::rlimit { rlim_cur: descriptors, rlim_max: descriptors };
    // SAFETY: the structure is borrowed for the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
}

/// Takes all descriptors of this process but `left`.
pub(crate) fn take_descriptors(left: usize) -> Vec<File> {
    let mut files = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        files.push(file);
    }
    files.truncate(files.len().saturating_sub(left));
    files
}
