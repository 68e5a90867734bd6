//! Tests the destinations of results and reports: no file of another program is lost, and a path that cannot be written
//! is reported at once.

use super::program::*;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::process::{Output, Stdio};

/// Expected output of `--out` for two vertices and an edge, from vertex 1.
const SMALL: &str = "1 0\n2 1\n";

/// Runs `graph bfs` on a small graph in `folder`, with standard output appended to a log that already has a line.
/// Returns the output and the log.
fn logged(folder: &tempfile::TempDir, more: &[&str]) -> (Output, String) {
    write(folder, "small.el", "1 2\n2 1\n");
    let path = folder.path().join("my.log");
    let mut log = File::create(&path).unwrap();
    log.write_all(b"log\n").unwrap();
    let args = [&["graph", "bfs", "small.el", "--source", "1"], more].concat();
    let o = command(&args).current_dir(folder.path()).stdout(log).stderr(Stdio::piped()).output().unwrap();
    (o, fs::read_to_string(&path).unwrap())
}

#[test]
fn results_go_on_where_standard_output_is() {
    for to in ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "-"] {
        let folder = folder();
        let (o, log) = logged(&folder, &["--out", to]);
        assert!(o.status.success(), "{to}: {}", stderr(&o));
        assert_eq!(log, format!("log\n{SMALL}"), "{to}");
        assert!(!folder.path().join("-").exists());
        let (o, log) = logged(&folder, &["--json", to]);
        assert!(o.status.success(), "{to}: {}", stderr(&o));
        let report = log.strip_prefix("log\n").unwrap_or_else(|| panic!("{to}: {log}"));
        assert_eq!(serde_json::from_str::<serde_json::Value>(report).unwrap()["command"], "graph bfs", "{to}");
    }
}

#[test]
fn the_file_that_standard_output_goes_to_is_not_replaced() {
    for option in ["--out", "--json"] {
        let folder = folder();
        let (o, log) = logged(&folder, &[option, "my.log"]);
        assert_eq!(o.status.code(), Some(1), "{option}: {log}");
        mentions(&stderr(&o), &["my.log", "standard output", "`-`"]);
        assert_eq!(log, "log\n");
    }
}

#[test]
fn names_do_not_command_the_terminal() {
    const NAME: &str = "a\u{1b}[2J\u{1b}]0;b\u{7}.el";
    let folder = folder();
    let graph = write(&folder, NAME, "0 1\n1 2\n");
    let device = format!("soft:{}", folder.path().join("d\u{1b}[31m.img").display());
    let report = folder.path().join("report.json");
    let o = warpbell(&["graph", "bfs", &graph, "--source", "0", "--device", &device, "--json", name(&report)]);
    let told = stdout(&o) + &stderr(&o);
    assert!(o.status.success() && told.contains(r"d\u{1b}[31m.img"), "{told:?}");
    assert_eq!(json(&report)["config"]["input"], graph, "JSON has the name as it is");
    let missing = warpbell(&["graph", "bfs", &format!("{graph}.el")]);
    let misspelled = warpbell(&["graph", "bfs", "kron:6", "--source\u{1b}[31m"]);
    for text in [told, stderr(&missing), stderr(&misspelled)] {
        assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
    }
    assert!(stderr(&missing).contains(r"a\u{1b}[2J\u{1b}]0;b\u{7}.el"), "{:?}", stderr(&missing));
}

#[test]
fn links_are_followed_within_their_folder_only() {
    for option in ["--out", "--json"] {
        let (here, there) = (folder(), folder());
        let input = write(&here, "small.el", "1 2\n2 1\n");
        let other = write(&there, "precious", "precious");
        let away = here.path().join("away");
        symlink(&other, &away).unwrap();
        let bfs = |to: &str| warpbell(&["graph", "bfs", &input, "--source", "1", option, to]);
        let o = bfs(name(&away));
        assert_eq!(o.status.code(), Some(1), "{option}");
        mentions(&stderr(&o), &["away", &other, "symbolic link"]);
        assert_eq!(fs::read(&other).unwrap(), b"precious", "{option}");
        let near = here.path().join("near");
        symlink("real", &near).unwrap();
        for _ in 0..2 {
            assert!(bfs(name(&near)).status.success(), "{option}");
            assert!(fs::symlink_metadata(&near).unwrap().is_symlink(), "{option} replaced the link");
            assert!(fs::metadata(here.path().join("real")).unwrap().len() > 0);
        }
    }
}

#[test]
fn results_and_report_are_not_written_to_one_place() {
    let folder = folder();
    write(&folder, "small.el", "1 2\n2 1\n");
    symlink("x", folder.path().join("link")).unwrap();
    let same = [("x", "x"), ("x", "./x"), ("x", "link"), ("-", "-"), ("/dev/stdout", "-"), ("-", "/dev/fd/1")];
    for (out, json) in same {
        let args = ["graph", "bfs", "small.el", "--source", "1", "--out", out, "--json", json];
        let o = command(&args).current_dir(folder.path()).output().unwrap();
        assert_eq!(o.status.code(), Some(2), "{out} {json}: {}", stdout(&o));
        mentions(&stderr(&o), &["--out", "--json"]);
        assert!(!folder.path().join("x").exists(), "{out} {json}");
    }
}

#[test]
fn a_report_that_cannot_be_written_is_known_before_the_measurement() {
    let measurements = [
        &["graph", "bfs", "kron:6", "--source", "1"][..],
        &["graph", "bfs", "kron:6", "--source", "1", "--pes", "2"],
        &["bench", "nvme", "--runtime", "50ms", "--size", "64k"],
        &["bench", "queue", "--commands", "100", "--runs", "1"],
        &["bench", "array", "--size", "64k", "--runs", "1"],
    ];
    for args in measurements {
        let o = warpbell(&[args, &["--json", "/nowhere/report.json"]].concat());
        assert_eq!(o.status.code(), Some(1), "{args:?}");
        assert_eq!(stdout(&o), "", "{args:?}");
        mentions(&stderr(&o), &["/nowhere/report.json", "a folder that exists"]);
    }
}

#[test]
fn a_full_file_system_is_named_with_what_to_do() {
    for option in ["--out", "--json"] {
        let o = warpbell(&["graph", "bfs", "kron:6", "--source", "1", option, "/dev/full"]);
        assert_eq!(o.status.code(), Some(1), "{option}");
        mentions(&stderr(&o), &["error: /dev/full: ", "No space left", "free some space"]);
    }
}

#[test]
fn a_reader_of_results_that_leaves_is_not_an_error() {
    let mut child = command(&["graph", "bfs", ENRON, "--source", "1", "--out", "-"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let o = child.wait_with_output().unwrap();
    assert_eq!((o.status.code(), stderr(&o)), (Some(0), String::new()));
}
