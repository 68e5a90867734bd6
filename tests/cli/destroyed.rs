//! Tests that no output option replaces what the command reads or stores on, whatever name leads to the file.

use super::program::*;
use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::process::{Output, Stdio};

/// Names in a folder that lead to one file: itself, two links, and a detour.
const NAMES: [&str; 4] = ["x.img", "hard", "soft", "../x/./x.img"];

/// A folder `x` with a stored graph `g` in `x.img`, links to it, and an edge list.
struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        let folder = Self(folder());
        fs::create_dir(folder.0.path().join("x")).unwrap();
        folder.put("in.el", "1 2\n2 3\n");
        assert_eq!(folder.run("graph import in.el --name g --device soft:x.img").status.code(), Some(0));
        fs::hard_link(folder.path("x.img"), folder.path("hard")).unwrap();
        symlink("x.img", folder.path("soft")).unwrap();
        folder
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join("x").join(name)
    }

    fn put(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Runs a command line in the folder.
    fn run(&self, line: &str) -> Output {
        let words: Vec<&str> = line.split(' ').collect();
        command(&words).current_dir(self.path("")).output().unwrap()
    }

    /// Runs a command line that has to be refused, with `name` in the message and nothing done. `name` keeps its content.
    #[track_caller]
    fn refuses(&self, line: &str, name: &str) {
        let before = fs::read(self.path(name)).ok();
        let entries = || fs::read_dir(self.path("")).unwrap().count();
        let count = entries();
        let o = self.run(line);
        assert!(matches!(o.status.code(), Some(1 | 2)), "{line}: {}\n{}", o.status, stdout(&o));
        assert_eq!(stdout(&o), "", "{line}");
        mentions(&stderr(&o), &[name]);
        assert!(fs::read(self.path(name)).ok() == before, "{line}: the file was changed");
        assert_eq!(entries(), count, "{line}");
    }
}

#[test]
fn a_device_is_not_replaced_by_a_result_or_a_report() {
    let folder = Folder::new();
    for name in NAMES {
        for line in [
            "graph bfs stored:g --source 1 --device soft:x.img --out",
            "graph bfs stored:g --source 1 --device soft:x.img --pes 2 --json",
            "graph pagerank stored:g --device soft:x.img --json",
            "graph list --device soft:x.img --json",
            "graph info stored:g --device soft:x.img --json",
            "graph verify stored:g --device soft:x.img --json",
            "graph delete stored:g --device soft:x.img --json",
            "graph import kron:6 --name h --device soft:x.img --json",
            "table list --device soft:x.img --json",
            "volume verify soft:x.img --json",
            "nvme id soft:x.img --json",
            "nvme smart soft:x.img --json",
            "nvme list --device soft:x.img --json",
            "nvme bench soft:x.img --runtime 10ms --json",
            "bench nvme --device soft:x.img --runtime 10ms --json",
            "bench gather --device soft:x.img --runtime 10ms --csv",
            "bench stream read --device soft:x.img --json",
            "bench stream read --device soft:x.img --csv",
            // Not a file of the command: the volume itself is recognised.
            "info --json",
            "graph cc in.el --out",
            "bench queue --runs 1 --commands 1 --json",
        ] {
            folder.refuses(&format!("{line} {name}"), name);
        }
    }
    for name in ["hard.el", "soft.csv", "x.mtx"] {
        let link = folder.path(name);
        if name.starts_with("soft") {
            symlink("x.img", link).unwrap()
        } else {
            fs::hard_link(folder.path("x.img"), link).unwrap()
        }
        folder.refuses(&format!("graph export stored:g --device soft:x.img --out {name}"), name);
    }
    mentions(&stdout(&folder.run("graph verify stored:g --device soft:x.img")), &["is intact"]);
}

#[test]
fn a_device_that_is_created_is_not_an_output() {
    let folder = Folder::new();
    symlink("new.img", folder.path("link")).unwrap();
    for name in ["new.img", "./new.img", "link"] {
        folder.refuses(&format!("graph import in.el --name g --device soft:new.img --json {name}"), name);
        folder.refuses(&format!("graph bfs kron:6 --source 1 --device soft:new.img --out {name}"), name);
    }
    folder.refuses("bench nvme --device soft:new.img --stripe 2 --rw write --size 64k --json new.img.1", "new.img.1");
}

#[test]
fn an_input_is_not_replaced_under_any_name() {
    let folder = Folder::new();
    folder.put("trace.txt", "1\n2\n");
    folder.put("g.v", "1\n2\n");
    folder.put("g.e", "1 2\n");
    folder.put("token", "0123456789abcdef0123456789abcdef\n");
    fs::hard_link(folder.path("in.el"), folder.path("hard.el")).unwrap();
    symlink("in.el", folder.path("soft.el")).unwrap();
    for name in ["in.el", "hard.el", "soft.el"] {
        for option in ["--out", "--json"] {
            folder.refuses(&format!("graph bfs in.el --source 1 {option} {name}"), name);
        }
        folder.refuses(&format!("graph import in.el --name h --device soft:y.img --json {name}"), name);
    }
    folder.refuses("graph cc g.v --out g.e", "g.e");
    folder.refuses("graph cc g --out g.v", "g.v");
    folder.refuses("bench gather --indices trace.txt --csv trace.txt", "trace.txt");
    folder.refuses("bench gather --indices trace.txt --runtime 10ms --csv a --json ./a", "--csv a");
    folder.refuses("info --metrics 0 --metrics-token-file token --json token", "token");
    // Input by a descriptor.
    let input = File::open(folder.path("in.el")).unwrap();
    let words = ["graph", "cc", "-", "--format", "el", "--out", "hard.el"];
    let o = command(&words).current_dir(folder.path("")).stdin(Stdio::from(input)).output().unwrap();
    assert_eq!(o.status.code(), Some(2), "{}", stdout(&o));
    assert_eq!(fs::read_to_string(folder.path("in.el")).unwrap(), "1 2\n2 3\n");
}

#[test]
fn pages_of_the_manual_do_not_replace_a_volume() {
    let folder = Folder::new();
    fs::create_dir(folder.path("man")).unwrap();
    fs::hard_link(folder.path("x.img"), folder.path("man/warpbell-graph.1")).unwrap();
    folder.refuses("man man", "man/warpbell-graph.1");
}

#[test]
fn names_that_only_look_alike_are_written() {
    let folder = Folder::new();
    folder.put("g", "an older report");
    for line in [
        "graph bfs stored:g --source 1 --device soft:x.img --out g",
        "graph import in.el --name h --device soft:x.img --json h",
        "graph cc kron:6 --out kron:6",
        "graph cc in.el --out /dev/null --json /dev/null",
    ] {
        let o = folder.run(line);
        assert!(o.status.success(), "{line}: {}", stderr(&o));
    }
    assert_eq!(fs::read_to_string(folder.path("g")).unwrap(), "1 0\n2 1\n3 2\n");
}
