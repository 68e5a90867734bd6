//! Runs perftest's programs and `bench rdma`, one after the other on one device, and compares the columns of their
//! tables.

use super::setting::{self, ADDRESS, DEVICE, GID_INDEX, LONG, warpbell};
use super::tables::{Table, of_perftest};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Messages of each test.
const MESSAGES: &str = "200";
/// Port on which servers listen, perftest's (perftest(1), `-p`) and ours.
const PORT: u16 = 18515;

/// File with the server's output.
const SAID: &str = "/tmp/server";

/// Returns true if a program on this machine listens at a port (proc(5), `/proc/net/tcp`: local address, state 0A).
fn listens(port: u16) -> bool {
    let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    sockets.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.len() > 3 && fields[1].ends_with(&format!(":{port:04X}")) && fields[3] == "0A"
    })
}

/// Runs a test between a server and a client. Returns the tables that the client printed.
#[track_caller]
fn between(side: impl Fn() -> Command, server: &[&str], port: u16) -> Vec<Table> {
    let mut command = side();
    let said = std::fs::File::create(SAID).unwrap();
    command.args(server).stdin(Stdio::null()).stdout(said.try_clone().unwrap()).stderr(said);
    setting::show(&command);
    let mut server = Server(command.spawn().unwrap());
    let started = Instant::now();
    while !listens(port) {
        let ended = server.0.try_wait().unwrap();
        assert!(ended.is_none(), "the server ended: {}", std::fs::read_to_string(SAID).unwrap());
        assert!(started.elapsed() < LONG, "the server does not listen");
        std::thread::sleep(Duration::from_millis(50));
    }
    let client = setting::run(side().arg(ADDRESS));
    let server = server.0.wait().unwrap();
    assert!(client.well && server.success(), "the server said: {}", std::fs::read_to_string(SAID).unwrap());
    assert!(!client.out.contains("wrong") || client.out.contains("wrong 0"));
    of_perftest(&client.out)
}

/// Runs perftest's program, between two processes.
#[track_caller]
fn theirs(test: &str, options: &[&str]) -> Table {
    let side = || {
        let mut command = Command::new(format!("ib_{test}"));
        command.args(["-d", DEVICE, "-x", GID_INDEX, "-F", "-n", MESSAGES]).args(options);
        command
    };
    let mut tables = between(side, &[], PORT);
    assert_eq!(tables.len(), 1, "{tables:?}");
    tables.remove(0)
}

/// Returns our command: by kernels, by the CPU on the same rings, and by the CPU with perftest's verbs calls.
fn ours(test: &str, options: &[&str]) -> Command {
    let mut command = warpbell(&["bench", "rdma", test, "--transport", "verbs", "--engine", "cpu", "--threads", "1"]);
    command.args(["-d", DEVICE, "-x", GID_INDEX, "-F", "-n", MESSAGES, "--deadline", "60s"]).args(options);
    // Each process proves to the other that it knows the secret.
    command.env("WARPBELL_SECRET", "both sides of this test know it");
    command
}

/// A server that is ended with the test, whatever the result.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Checks that the tables have the same columns, sizes and messages, and figures in all of them.
#[track_caller]
fn comparable(ours: &[Table], theirs: &Table) {
    let [kernels, rings, verbs] = ours else { panic!("not three tables: {ours:?}") };
    for ours in [kernels, rings, verbs] {
        assert!(ours.has_columns_of(theirs), "{:?}, and perftest has {:?}", ours.head, theirs.head);
        assert_eq!(ours.rows.len(), theirs.rows.len());
        for (ours, theirs) in ours.rows.iter().zip(&theirs.rows) {
            assert_eq!((&ours[..2], ours.len()), (&theirs[..2], theirs.len()));
            let figures = ours[2..].iter().map(|f| f.parse::<f64>().unwrap());
            assert!(figures.clone().all(f64::is_finite) && figures.sum::<f64>() > 0.0, "{ours:?}");
        }
    }
}

#[test]
#[ignore = "needs the rig"]
fn tables_are_those_of_perftest() {
    setting::inside();
    for (test, options) in [
        ("write_bw", &["-s", "65536"][..]),
        ("write_lat", &["-s", "64"]),
        ("read_bw", &["-s", "4096"]),
        ("read_lat", &["-s", "64"]),
        ("atomic_bw", &[]),
        ("atomic_lat", &[]),
    ] {
        let theirs = theirs(test, options);
        // Both sides in one process.
        let done = setting::run(&mut ours(test, options));
        assert!(done.well && done.out.contains("wrong 0"), "{test}");
        comparable(&of_perftest(&done.out), &theirs);
    }
}

#[test]
#[ignore = "needs the rig"]
fn two_processes_measure_as_perftest_does() {
    setting::inside();
    for (test, options) in [("write_bw", &["-s", "4096"][..]), ("read_lat", &["-s", "64"])] {
        let theirs = theirs(test, options);
        comparable(&between(|| ours(test, options), &["--server"], PORT), &theirs);
    }
}
