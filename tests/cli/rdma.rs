//! Tests `warpbell bench rdma` as its users run it, on CPU engines over the software NIC.

use crate::tree;
use serde_json::Value;
use std::process::{Command, Output, Stdio};

fn warpbell() -> Command {
    let mut c = Command::new(tree::program());
    for variable in ["WARPBELL_TRANSPORT", "WARPBELL_SOFT_NIC", "WARPBELL_SECRET", "WARPBELL_SECRET_FILE"] {
        c.env_remove(variable);
    }
    c.stdin(Stdio::null());
    c
}

/// Options of a test with the fewest threads.
const SMALL: [&str; 6] = ["--engine", "cpu", "--threads", "1", "--transport", "soft"];

fn bench(args: &[&str]) -> Output {
    warpbell().args(["bench", "rdma"]).args(args).args(SMALL).output().unwrap()
}

/// Returns the output of a run, which must succeed.
fn succeeds(args: &[&str]) -> String {
    let o = bench(args);
    let (out, err) = (String::from_utf8_lossy(&o.stdout), String::from_utf8_lossy(&o.stderr));
    assert!(o.status.success(), "{args:?}: {}\n{out}\n{err}", o.status);
    out.into_owned()
}

/// Returns the message and the exit code of a run, which must fail.
fn fails(args: &[&str]) -> (String, Option<i32>) {
    let o = bench(args);
    assert!(!o.status.success(), "{args:?}: {}", String::from_utf8_lossy(&o.stdout));
    (String::from_utf8(o.stderr).unwrap(), o.status.code())
}

const BANDWIDTH: &str = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]";
const LATENCY: &str = " #bytes  #iterations   t_min   t_max t_typical   t_avg t_stdev     99%   99.9%";

/// Returns the rows of each table under this head, as programs that parse perftest's output find them.
fn tables(text: &str, head: &str) -> Vec<Vec<Vec<f64>>> {
    let mut tables = Vec::new();
    let mut lines = text.lines();
    while lines.any(|l| l == head) {
        let rows = lines.by_ref().take_while(|l| !l.starts_with("----"));
        tables.push(rows.map(|l| l.split_whitespace().map(|w| w.parse().unwrap()).collect()).collect());
    }
    tables
}

#[test]
fn kernels_and_the_cpu_stand_side_by_side() {
    let text = succeeds(&["write_bw", "-s", "4096", "-n", "200", "-q", "2", "-F"]);
    assert!(text.contains("RDMA_Write BW Test") && text.contains(" Number of qps   : 2"), "{text}");
    let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what} is not in\n{text}"));
    assert!(at("# initiator kernel") < at("# initiator host"));
    let tables = tables(&text, BANDWIDTH);
    assert_eq!(tables.len(), 2, "{text}");
    for table in &tables {
        let row = &table[0];
        assert_eq!((table.len(), row.len()), (1, 5));
        assert_eq!((row[0], row[1]), (4096.0, 400.0), "iterations are those of all queue pairs");
        // A megabyte is 2^20 bytes. The table shows two decimals of the bandwidth and six of the message rate.
        let average = row[4] * 1e6 * 4096.0 / f64::from(1 << 20);
        assert!((average - row[3]).abs() <= 0.01 + average * 1e-3, "{row:?}");
        assert!(row[2] > 0.0, "{row:?}");
    }
    assert_eq!(text.matches("# 32 messages verified, wrong 0").count(), 2, "{text}");
}

#[test]
fn latency_tables_have_perftests_columns() {
    for test in ["write_lat", "ib_read_lat", "atomic_lat"] {
        let text = succeeds(&[test, "-n", "100"]);
        let tables = tables(&text, LATENCY);
        assert_eq!(tables.len(), 2, "{text}");
        for table in tables {
            let row = &table[0];
            assert_eq!((table.len(), row.len(), row[1]), (1, 9, 100.0), "{text}");
            assert!(row[2] <= row[4] && row[4] <= row[7] && row[7] <= row[8] && row[8] <= row[3], "{row:?}");
        }
    }
}

#[test]
fn all_sizes_are_powers_of_two() {
    let text = succeeds(&["read_bw", "-a", "-n", "5", "-t", "4", "--initiator", "cpu-engine", "--report_gbits"]);
    let head = BANDWIDTH.replace("MB/sec", "Gb/sec");
    let tables = tables(&text, &head);
    let sizes: Vec<f64> = tables[0].iter().map(|row| row[0]).collect();
    assert_eq!((tables.len(), sizes.len(), sizes[0], sizes[22]), (1, 23, 2.0, 8_388_608.0), "{text}");
    assert!(sizes.windows(2).all(|w| w[1] == 2.0 * w[0]));
}

#[test]
fn the_report_has_what_the_table_has() {
    let text = succeeds(&["atomic_bw", "-n", "64", "-A", "CMP_AND_SWAP", "--initiator", "host", "--json", "-"]);
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(report["command"], "bench rdma");
    let table = &report["results"][0];
    assert_eq!((&table["initiator"], &table["path"]["transport"]), (&Value::from("host"), &Value::from("soft")));
    let row = &table["rows"][0];
    assert_eq!(
        (row["bytes"].as_u64(), row["iterations"].as_u64(), row["wrong"].as_u64()),
        (Some(8), Some(64), Some(0))
    );
    assert!(row["average_bytes_per_s"].as_f64().unwrap() > 0.0, "{row}");
}

#[test]
fn two_processes_measure_with_each_other() {
    let args = ["write_lat", "-n", "50", "-s", "64"];
    let program = tree::program();
    let o = warpbell()
        .args(["run", "-n", "2", "--no-prefix", "--"])
        .arg(program)
        .args(["bench", "rdma"])
        .args(args)
        .args(SMALL)
        .output()
        .unwrap();
    let (text, err) = (String::from_utf8_lossy(&o.stdout), String::from_utf8_lossy(&o.stderr));
    assert!(o.status.success(), "{text}\n{err}");
    let tables = tables(&text, LATENCY);
    assert_eq!(tables.len(), 2, "one side prints: {text}");
    assert_eq!((tables[0][0][0], tables[0][0][1]), (64.0, 50.0));
}

/// Runs a server and a client with these options, and returns the outputs of both.
fn server_and_client(server: &[&str], client: &[&str]) -> [Output; 2] {
    // No other program gets the port while a socket that does not listen is bound to it.
    let reserved = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    reserved.set_reuse_address(true).unwrap();
    reserved.bind(&std::net::SocketAddr::from(([0, 0, 0, 0], 0)).into()).unwrap();
    let port = reserved.local_addr().unwrap().as_socket().unwrap().port().to_string();
    let side = |args: &[&str], more: &[&str]| {
        let mut c = warpbell();
        c.env("WARPBELL_SECRET", "of this test alone, and long enough for it");
        c.args(["bench", "rdma"]).args(args).args(["-p", &port]).args(SMALL).args(more);
        c.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let server = side(server, &["--server"]);
    let client = side(client, &["127.0.0.1"]).wait_with_output().unwrap();
    [server.wait_with_output().unwrap(), client]
}

#[test]
fn a_server_and_a_client_as_with_perftest() {
    let args = ["read_bw", "-n", "20", "-s", "1k"];
    let [server, client] = server_and_client(&args, &args);
    let text = String::from_utf8_lossy(&client.stdout);
    assert!(client.status.success(), "{text}\n{}", String::from_utf8_lossy(&client.stderr));
    assert!(server.status.success(), "{}", String::from_utf8_lossy(&server.stderr));
    assert_eq!(tables(&text, BANDWIDTH).len(), 2, "the client prints: {text}");
    assert!(tables(&String::from_utf8_lossy(&server.stdout), BANDWIDTH).is_empty());
}

/// Returns post list, initiator and number of rows of each table of a report.
fn measured(report: &Value) -> Vec<(u64, &str, usize)> {
    let of = |table: &'_ Value| table["job"]["post_list"].as_u64().unwrap();
    let all = report["results"].as_array().unwrap().iter();
    all.map(|t| (of(t), t["initiator"].as_str().unwrap(), t["rows"].as_array().unwrap().len())).collect()
}

#[test]
fn each_combination_of_lists_has_its_tables() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sweep.json");
    let text = succeeds(&[
        "write_bw",
        "-s",
        "64,256",
        "-q",
        "1,2",
        "-t",
        "16",
        "-l",
        "1,4",
        "-n",
        "20",
        "--json",
        path.to_str().unwrap(),
    ]);
    let points: Vec<&str> = text.lines().filter(|line| line.starts_with("# point")).collect();
    assert_eq!(
        points,
        [
            "# point: qp 1  post-list 1",
            "# point: qp 1  post-list 4",
            "# point: qp 2  post-list 1",
            "# point: qp 2  post-list 4"
        ]
    );
    let tables = tables(&text, BANDWIDTH);
    let messages: Vec<f64> = tables.iter().map(|table| table[1][1]).collect();
    assert_eq!(messages, [20.0, 20.0, 20.0, 20.0, 40.0, 40.0, 40.0, 40.0], "{text}");
    let report: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let of_one = [(1, "kernel", 2), (1, "host", 2), (4, "kernel", 2), (4, "host", 2)];
    assert_eq!(measured(&report), [of_one, of_one].concat());
    assert_eq!(report["config"]["swept"], serde_json::json!(["qp", "post-list", "size"]));
    assert_eq!(report["results"][4]["job"]["queue_pairs"], 2);
    // The setting has what all points have in common.
    let setting = &report["config"]["setting"];
    assert_eq!((setting["tx_depth"].as_u64(), setting.get("post_list")), (Some(16), None));
    assert!(!succeeds(&["write_bw", "-s", "64,256", "-n", "20"]).contains("# point"));
}

#[test]
fn a_combination_that_cannot_be_measured_is_refused_before_any_is() {
    for (args, says, status) in [
        (&["write_bw", "-t", "128,16", "-l", "1,32"][..], "a post list of 32 messages with a depth of 16", 2),
        (&["write_bw", "-I", "0,64"], "the limit is 28", 2),
        (&["write_lat", "-q", "1,2"], "leave --qp out", 2),
        (&["write_bw", "-q", "1,5000"], "a grid of 5000 blocks", 1),
    ] {
        let o = bench(args);
        let (out, err) = (String::from_utf8_lossy(&o.stdout), String::from_utf8_lossy(&o.stderr));
        assert!(err.contains(says) && out.is_empty(), "{args:?}: {out}{err}");
        assert_eq!(o.status.code(), Some(status), "{args:?}: {err}");
    }
}

#[test]
fn points_before_one_that_fails_are_in_the_report() {
    let folder = tempfile::tempdir().unwrap();
    let [report, rows] = ["sweep.json", "sweep.csv"].map(|file| folder.path().join(file));
    // The queue pairs of the first point are 0 and 1.
    let faults: Vec<String> =
        ["2", "3"].iter().map(|queue| format!("fault=syndrome:0x13/0x88@queue:{queue}+nth:70")).collect();
    let (text, code) = fails(&[
        "write_bw",
        "-s",
        "64,256",
        "-n",
        "50",
        "-l",
        "1,4,8",
        "--initiator",
        "host",
        "--soft",
        &faults.join(","),
        "--json",
        report.to_str().unwrap(),
        "--csv",
        rows.to_str().unwrap(),
    ]);
    assert!(text.contains("messages of 256 bytes") && text.contains("remote access error"), "{text}");
    assert_eq!(code, Some(1));
    let report: Value = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
    assert_eq!(measured(&report), [(1, "host", 2), (4, "host", 1)]);
    assert_eq!(std::fs::read_to_string(&rows).unwrap().lines().count(), 1 + 3);
}

#[test]
fn a_server_and_a_client_go_through_the_same_points() {
    let lists = |post_lists: &'static str| ["write_bw", "-n", "20", "-s", "1k", "-q", "1,2", "-l", post_lists];
    let [server, client] = server_and_client(&lists("1,4"), &lists("1,4"));
    let text = String::from_utf8_lossy(&client.stdout);
    assert!(client.status.success(), "{text}\n{}", String::from_utf8_lossy(&client.stderr));
    assert!(server.status.success(), "{}", String::from_utf8_lossy(&server.stderr));
    assert_eq!((tables(&text, BANDWIDTH).len(), text.matches("# point: ").count()), (8, 4), "{text}");
    // Differences are known before the first point, which both have in common.
    for (here, there, said) in [
        ("1,4", "1,8", ["here post-list 4, cq-mod 4, there post-list 8, cq-mod 8", "here post-list 8, cq-mod 8"]),
        ("1,4", "1", ["there qp 2", "here qp 2"]),
    ] {
        for (o, said) in server_and_client(&lists(here), &lists(there)).iter().zip(said) {
            let (out, err) = (String::from_utf8_lossy(&o.stdout), String::from_utf8_lossy(&o.stderr));
            assert_eq!(o.status.code(), Some(1), "{out}{err}");
            assert!(err.contains("the two sides have different settings") && err.contains(said), "{err}");
            assert!(tables(&out, BANDWIDTH).is_empty(), "{out}");
        }
    }
}

#[test]
fn wrong_flags_say_what_to_write() {
    for (args, says) in [
        (&["write"][..], "write_bw, write_lat"),
        (&["send_bw"], "measure write_bw or write_lat"),
        (&["atomic_bw", "-s", "16"], "have 8 bytes"),
        (&["write_lat", "-q", "2"], "leave --qp out"),
        (&["write_bw", "-l", "200"], "a depth of 128"),
        (&["write_bw", "-A", "FETCH"], "FETCH_AND_ADD or CMP_AND_SWAP"),
        (&["write_bw", "-R"], "rdma_cm"),
        (&["write_bw", "-c", "UD"], "reliable"),
        (&["write_bw", "-m", "1024"], "MTU"),
        (&["write_bw", "-n", "100", "-D", "1"], "cannot be used with"),
        (&["write_bw", "--initiator", "gpu"], "different engines"),
        (&["write_bw", "--server"], "WARPBELL_SECRET"),
    ] {
        let (text, code) = fails(args);
        assert!(text.contains(says), "{args:?}: {text}");
        assert_eq!(code, Some(2), "{args:?}: {text}");
    }
    let (text, code) = fails(&["write_bw", "--ib-dev", "mlx5_0"]);
    assert!(text.contains("leave --ib-dev") && code == Some(1), "{text}");
    let (text, _) = fails(&["write_bw", "--initiator", "verbs"]);
    assert!(text.contains("needs --transport verbs"), "{text}");
    let (text, _) = fails(&["write_bw", "--soft", "nonsense"]);
    assert!(text.contains("nonsense"), "{text}");
}

#[test]
fn an_injected_fault_is_named() {
    for initiator in ["cpu-engine", "host"] {
        let (text, code) =
            fails(&["write_bw", "-n", "50", "--initiator", initiator, "--soft", "fault=syndrome:0x13/0x88@nth:20"]);
        assert!(text.contains("remote access error (syndrome 0x13"), "{text}");
        assert!(text.contains("messages of 65536 bytes"), "{text}");
        assert_eq!((code, text.lines().count()), (Some(1), 1), "{text}");
        let lost =
            ["read_lat", "-n", "50", "--initiator", initiator, "--deadline", "200ms", "--soft", "fault=lose@nth:20"];
        let (text, code) = fails(&lost);
        assert!(
            text.contains("after 19 of them") && (text.contains("timed out") || text.contains("no completion")),
            "{text}"
        );
        assert_eq!(code, Some(1));
    }
}
