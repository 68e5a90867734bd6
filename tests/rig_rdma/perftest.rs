//! perftest's programs and `bench rdma`, one after the other on one device: the same tables, so that one may be held against the other.

use super::setting::{self, ADDRESS, DEVICE, GID_INDEX, LONG, two_ranks};
use super::tables::{Table, of_perftest};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Messages of each test.
const MESSAGES: &str = "200";
/// Where perftest's server listens (perftest(1), `-p`).
const PORT: u16 = 18515;

/// Whether a program on this machine listens at a port (proc(5), `/proc/net/tcp`: local address, state 0A).
fn listens(port: u16) -> bool {
    let sockets = std::fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    sockets.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.len() > 3 && fields[1].ends_with(&format!(":{port:04X}")) && fields[3] == "0A"
    })
}

/// A test of perftest's, between a server and a client: the client's table.
#[track_caller]
fn perftest(program: &str, options: &[&str]) -> Table {
    let side = || {
        let mut command = Command::new(program);
        command.args(["-d", DEVICE, "-x", GID_INDEX, "-F", "-n", MESSAGES]).args(options);
        command
    };
    let server = side().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let mut server = Server(server);
    let started = Instant::now();
    while !listens(PORT) {
        assert!(server.0.try_wait().unwrap().is_none(), "the server of {program} ended");
        assert!(started.elapsed() < LONG, "the server of {program} does not listen");
        std::thread::sleep(Duration::from_millis(50));
    }
    let client = setting::run(side().arg(ADDRESS));
    assert!(client.well && server.0.wait().unwrap().success(), "{program}");
    of_perftest(&client.out).unwrap_or_else(|| panic!("{program} printed no table"))
}

/// Ended with the test, whatever that comes to.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Kernel-initiated and CPU-initiated tables of the same test.
#[track_caller]
fn ours(test: &str, options: &[&str]) -> Vec<Table> {
    ["gpu", "cpu"]
        .into_iter()
        .map(|initiator| {
            let mut arguments = vec!["warpbell", "bench", "rdma", test, "--engine", "cpu", "-n", MESSAGES];
            arguments.extend(options);
            arguments.extend(["--initiator", initiator]);
            let done = setting::run(&mut two_ranks("verbs", &arguments));
            assert!(done.well, "{test}");
            of_perftest(&done.out).unwrap_or_else(|| panic!("{test} printed no table"))
        })
        .collect()
}

#[test]
fn tables_are_those_of_perftest() {
    if !setting::inside() {
        return;
    }
    for (test, options) in [
        ("write_bw", &["-s", "65536"][..]),
        ("write_lat", &["-s", "64"]),
        ("read_bw", &["-s", "4096"]),
        ("read_lat", &["-s", "64"]),
        ("atomic_bw", &[]),
        ("atomic_lat", &[]),
    ] {
        let theirs = perftest(&format!("ib_{test}"), options);
        for ours in ours(test, options) {
            assert_eq!(ours.head, theirs.head, "{test}");
            assert_eq!(ours.rows.len(), theirs.rows.len(), "{test}");
            for (ours, theirs) in ours.rows.iter().zip(&theirs.rows) {
                // Bytes and messages are the same, figures are as many.
                assert_eq!((&ours[..2], ours.len()), (&theirs[..2], theirs.len()), "{test}");
                let figures = ours[2..].iter().map(|f| f.parse::<f64>().unwrap());
                assert!(figures.clone().all(f64::is_finite) && figures.sum::<f64>() > 0.0, "{test}: {ours:?}");
            }
        }
    }
}
