//! Messages of the library, metrics, lines of statistics and `warpbell top`.

use super::children::Child;
use super::program::*;
use serde_json::Value;
use std::cell::Cell;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// Longest wait for what must come, however busy the machine is.
const PATIENT: Duration = Duration::from_secs(300);

/// A search on two copies, of which one leaves the bus. The library warns of that.
const WARNED: [&str; 13] = [
    "graph",
    "bfs",
    UNIFORM,
    "--source",
    "1",
    "--engine",
    "cpu",
    "--replicate",
    "--device",
    "soft:mem",
    "--device",
    "soft:mem,disappear=after:30",
    "--deadline=1s",
];

/// Returns a command whose sockets for `warpbell top` are in a folder of the test.
fn apart(args: &[&str], folder: &Path) -> Command {
    let mut c = command(args);
    c.env("XDG_RUNTIME_DIR", folder);
    c
}

#[test]
fn warnings_of_the_library_are_lines_of_text() {
    let o = warpbell(&WARNED);
    assert!(o.status.success(), "{}", stderr(&o));
    let err = stderr(&o);
    let warning = err.lines().find(|l| l.contains(" WARN warpbell::storage::")).unwrap_or_else(|| panic!("{err}"));
    mentions(warning, &["a copy ", "device="]);
    assert!(!err.contains('\x1b') && !err.contains(" INFO warpbell"), "{err}");
    assert!(!stdout(&o).contains("WARN"), "{}", stdout(&o));
    let quiet = warpbell(&[&WARNED[..], &["--log", "off"]].concat());
    assert_eq!((quiet.status.code(), &*stderr(&quiet)), (Some(0), ""));
}

#[test]
fn warnings_of_the_library_are_lines_of_json() {
    let by_variables = command(&[&WARNED[..], &["--json", "-"]].concat())
        .env("WARPBELL_LOG", "info")
        .env("WARPBELL_LOG_FORMAT", "json")
        .output()
        .unwrap();
    let by_options = warpbell(&[&WARNED[..], &["--json", "-", "--log=info", "--log-format=json"]].concat());
    for o in [by_variables, by_options] {
        assert!(o.status.success(), "{}", stderr(&o));
        // Messages do not mix with the report.
        serde_json::from_slice::<Value>(&o.stdout).unwrap();
        let lines: Vec<Value> = stderr(&o).lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        let at = |level: &str| lines.iter().find(|l| l["level"] == level).cloned().unwrap_or_default();
        assert!(at("WARN")["message"].as_str().unwrap().starts_with("a copy "), "{lines:?}");
        assert!(at("WARN")["target"].as_str().unwrap().starts_with("warpbell::storage"), "{lines:?}");
        assert!(at("INFO")["timestamp"].is_string(), "{lines:?}");
    }
}

#[test]
fn a_filter_that_is_none_is_a_usage_error() {
    for (args, variable) in [(&["info", "--log", "warn,=,["][..], ""), (&["info"], "loud=loud=loud")] {
        let o = command(args).env("WARPBELL_LOG", variable).output().unwrap();
        assert_eq!(o.status.code(), Some(2), "{}", stderr(&o));
        mentions(&stderr(&o), &["--log", "warn,warpbell::nvme=debug"]);
    }
    assert!(command(&["info"]).env("WARPBELL_LOG", "").output().unwrap().status.success());
}

#[test]
fn ranks_print_messages_and_serve_metrics_of_their_own() {
    let run = ["--log=info", "--log-format=json", "--metrics=0", "run", "-n", "2", "--"];
    let program = crate::tree::program();
    let program = [program.to_str().unwrap(), "bench", "shmem", "put_bw", "--transport", "soft", "--engine", "cpu"];
    let more = ["--runs", "1", "--threads", "1", "--max-size", "64"];
    let o = warpbell(&[&run[..], &program, &more].concat());
    let err = stderr(&o);
    assert!(o.status.success(), "{err}");
    for rank in 0..2 {
        let prefix = format!("[{rank}] ");
        let own: Vec<&str> = err.lines().filter_map(|l| l.strip_prefix(&prefix)).collect();
        assert!(own.iter().any(|l| l.starts_with("metrics at http://127.0.0.1:")), "{err}");
        let of_json = own.iter().filter_map(|l| serde_json::from_str::<Value>(l).ok());
        let joined = |v: &Value| v["message"].as_str().is_some_and(|m| m.starts_with("joined a world"));
        assert_eq!(of_json.filter(joined).count(), 1, "{err}");
    }
}

#[test]
fn the_loss_of_a_rank_is_a_message_of_the_others() {
    let bench = format!(
        "echo pid $$; exec {} bench shmem put_bw --transport=soft --engine=cpu --threads=1 --runs=1000",
        crate::tree::program().display()
    );
    let run = ["--log=info", "--log-format=json", "run", "-n", "2", "--", "sh", "-c", &bench];
    let mut ranks = Child::start(command(&run));
    let (joined, pid) = (Cell::new(0), Cell::new(None));
    let pid = ranks.until(PATIENT, |l| {
        joined.set(joined.get() + usize::from(l.contains("\"joined a world")));
        let own = l.strip_prefix("[1] pid ").and_then(|n| n.parse::<i32>().ok());
        pid.set(pid.get().or(own));
        pid.get().filter(|_| joined.get() == 2)
    });
    // SAFETY: a system call with values. The process is a rank, which runs for longer than this test.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGKILL) }, 0);
    let (status, said) = ranks.finish(PATIENT);
    assert!(!status.success(), "{said}");
    let of_0 = said.lines().filter_map(|l| serde_json::from_str::<Value>(l.strip_prefix("[0] ")?).ok());
    let lost = |v: &Value| v["level"] == "WARN" && v["rank"] == 1;
    assert!(of_0.into_iter().any(|v| lost(&v)), "{said}");
}

/// Sends a request and returns the response.
fn ask(address: &str, text: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENT)).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Returns the sum of a family's values with this label.
fn value(text: &str, family: &str, label: &str) -> f64 {
    let of = |l: &&str| l.starts_with(&format!("warpbell_{family}{{")) && l.contains(label);
    text.lines().filter(of).map(|l| l.rsplit_once(' ').unwrap().1.parse::<f64>().unwrap()).sum()
}

#[test]
fn a_running_measurement_shows_its_counters() {
    let folder = folder();
    let bench = ["bench", "nvme", "--engine=cpu", "--size=4M", "--runtime=1h", "--threads=1", "--queues=1"];
    let shown = ["--metrics=0", "--stats-every=100ms"];
    let mut running = Child::start(apart(&[&bench[..], &shown].concat(), folder.path()));
    let address =
        running.until(PATIENT, |l| Some(l.strip_prefix("metrics at http://")?.strip_suffix("/metrics")?.to_owned()));
    running.until(PATIENT, |l| l.contains("IOPS r ").then_some(()));

    // Counters grow while the kernel runs.
    let end = Instant::now() + PATIENT;
    let mut seen = Vec::new();
    while seen.len() < 3 {
        assert!(Instant::now() < end, "{seen:?}");
        let text = ask(&address, "GET /metrics HTTP/1.1\r\n\r\n");
        let reads = value(&text, "volume_commands_total", "op=\"read\"");
        if reads > seen.last().copied().unwrap_or(0.0) {
            assert_eq!(value(&text, "volume_bytes_total", "op=\"read\"") % 4096.0, 0.0);
            assert!(value(&text, "queue_submitted_total", "queue=\"0\"") >= seen.last().copied().unwrap_or(0.0));
            assert_eq!(value(&text, "queue_depth", ""), 128.0);
            mentions(&text, &["warpbell_engine_info{", "kind=\"cpu\"", "command=\"bench nvme\""]);
            seen.push(reads);
        }
    }

    let top = |args: &[&str]| {
        let o = apart(&[&["top", "--once", "--interval=500ms"], args].concat(), folder.path()).output().unwrap();
        assert!(o.status.success(), "{}", stderr(&o));
        stdout(&o)
    };
    // A busy machine may give the kernel no time within one interval.
    let report = loop {
        let report: Value = serde_json::from_str(&top(&["--json", "--queues"])).unwrap();
        if report["processes"][0]["queues"][0]["iops"].as_f64().is_some_and(|iops| iops > 0.0) {
            break report;
        }
        assert!(Instant::now() < end, "{report}");
    };
    let process = &report["processes"][0];
    assert_eq!((process["command"].as_str(), report["processes"].as_array().unwrap().len()), (Some("bench nvme"), 1));
    assert!(process["read_iops"].as_f64().unwrap() > 0.0, "{report}");
    let pid = process["pid"].to_string();
    mentions(&top(&["--queues", &pid]), &["LATENCY", &pid, "bench nvme", "queue   0", "of 128"]);

    let sockets = folder.path().join("warpbell");
    assert_eq!(sockets.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    assert!(sockets.join(format!("{pid}.sock")).exists());
    // SAFETY: a system call with values; the process is a child that has not been waited for.
    assert_eq!(unsafe { libc::kill(pid.parse().unwrap(), libc::SIGTERM) }, 0);
    let (status, said) = running.finish(PATIENT);
    assert_eq!(status.code(), Some(143), "{said}");
    assert_eq!(std::fs::read_dir(sockets).unwrap().count(), 0);
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn connections_between_pes_are_shown_once_each() {
    let folder = folder();
    let bench = ["bench", "shmem", "put_bw", "--pes=2", "--transport=soft", "--engine=cpu", "--threads=1"];
    let mut running = Child::start(apart(&[&bench[..], &["--runs=1000", "--metrics=0"]].concat(), folder.path()));
    let address =
        running.until(PATIENT, |l| Some(l.strip_prefix("metrics at http://")?.strip_suffix("/metrics")?.to_owned()));
    let end = Instant::now() + PATIENT;
    let text = loop {
        let text = ask(&address, "GET /metrics HTTP/1.1\r\n\r\n");
        if value(&text, "world_posted_blocks_total", "peer=\"1\"") > 0.0 {
            break text;
        }
        assert!(Instant::now() < end, "{text}");
    };
    let names: Vec<&str> =
        text.lines().filter(|l| l.starts_with("warpbell_")).map(|l| l.rsplit_once(' ').unwrap().0).collect();
    let distinct: std::collections::HashSet<_> = names.iter().collect();
    assert_eq!(distinct.len(), names.len(), "{text}");
    assert_eq!(names.iter().filter(|n| n.contains("world_connection_failed{")).count(), 4, "{text}");
    assert_eq!(value(&text, "world_pes", ""), 4.0, "two PEs of two: {text}");
    let o = apart(&["top", "--once", "--interval=100ms", "--queues"], folder.path()).output().unwrap();
    mentions(&stdout(&o), &["bench shmem", "PE 0 to 1, queue 0  posted/s"]);
}

#[test]
fn a_killed_process_leaves_a_socket_that_top_skips_and_the_next_command_removes() {
    let folder = folder();
    let mut running = Child::start(apart(
        &["bench", "nvme", "--engine=cpu", "--size=4M", "--runtime=1h", "--stats-every=100ms"],
        folder.path(),
    ));
    running.until(PATIENT, |l| l.contains("IOPS r ").then_some(()));
    running.kill();
    running.finish(PATIENT);
    let sockets = folder.path().join("warpbell");
    let left: Vec<_> = std::fs::read_dir(&sockets).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(left.len(), 1);
    let top = |args: &[&str]| {
        apart(&[&["top", "--once", "--interval=100ms"], args].concat(), folder.path()).output().unwrap()
    };
    let o = top(&["--json"]);
    assert_eq!(
        serde_json::from_slice::<Value>(&o.stdout).unwrap()["processes"],
        serde_json::json!([]),
        "{}",
        stderr(&o)
    );
    let o = top(&[left[0].file_stem().unwrap().to_str().unwrap()]);
    assert_eq!(o.status.code(), Some(1));
    mentions(&stderr(&o), &["error: process ", "shows no counters"]);
    assert!(apart(&["graph", "bfs", "kron:6", "--engine=cpu"], folder.path()).output().unwrap().status.success());
    assert_eq!(std::fs::read_dir(sockets).unwrap().count(), 0);
}

#[test]
fn metrics_that_others_could_read_need_a_token() {
    let folder = folder();
    let run = |args: &[&str]| {
        apart(&[&["graph", "bfs", "kron:6", "--engine=cpu"], args].concat(), folder.path()).output().unwrap()
    };
    let o = run(&["--metrics", "0.0.0.0:0"]);
    assert_eq!(o.status.code(), Some(2));
    mentions(&stderr(&o), &["0.0.0.0:0 is not a loopback address", "--metrics-token-file"]);
    let file = folder.path().join("token");
    std::fs::write(&file, "0123456789abcdef0123\n").unwrap();
    let with = |mode| {
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        run(&["--metrics", "0.0.0.0:0", "--metrics-token-file", file.to_str().unwrap()])
    };
    let o = with(0o644);
    assert_eq!(o.status.code(), Some(1));
    mentions(&stderr(&o), &["mode 644", "chmod 600"]);
    let o = with(0o600);
    assert!(o.status.success(), "{}", stderr(&o));
    mentions(&stderr(&o), &["metrics at http://0.0.0.0:"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let o = run(&["--metrics", &taken.local_addr().unwrap().to_string()]);
    assert_eq!(o.status.code(), Some(1));
    mentions(&stderr(&o), &["error: --metrics 127.0.0.1:", "in use", "0 for a free one"]);
}
