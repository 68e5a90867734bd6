//! Tests graphs on two copies of which one has missed a store, and whose superblocks cannot be read.

use super::program::*;
use std::fmt::Write as _;
use std::path::Path;

const VERTICES: u64 = 1500;
/// A block of the superblocks that cannot be read.
const UNREAD: &str = ",media-error=read:11";

struct Graphs {
    folder: tempfile::TempDir,
    a: String,
    b: String,
    /// Distances of the graph that was stored last.
    right: String,
}

impl Graphs {
    /// Stores a graph three times with other weights. Copy `a` disappears during the last one.
    fn new() -> Self {
        let folder = folder();
        let copy = |file: &str| {
            let path = folder.path().join(file);
            std::fs::File::create(&path).unwrap().set_len(8 << 20).unwrap();
            format!("soft:{}", name(&path))
        };
        let graphs = Self { a: copy("a"), b: copy("b"), folder, right: String::new() };
        let Self { a, b, .. } = &graphs;
        graphs.import(1, a);
        succeeds(&["graph", "import", "kron:6", "--name", "h", "--device", a, "--device", b, "--replicate"]);
        graphs.import(2, a);
        graphs.import(3, &format!("{a},disappear=after:9"));
        let right = graphs.distances(a, b);
        Self { right, ..graphs }
    }

    fn import(&self, factor: u64, a: &str) {
        let mut edges = String::new();
        for i in 0..VERTICES {
            for (step, weight) in [(1, 1 + i * factor % 7), (31 + i % 17, 2 + i * factor % 11)] {
                writeln!(edges, "{} {} {weight}", i, (i + step) % VERTICES).unwrap();
            }
        }
        let input = write(&self.folder, "g.wel", edges);
        let b = &self.b;
        let devices = ["--device", a, "--device", b, "--replicate", "--yes-destroy", a, "--yes-destroy", b];
        succeeds(&[&["graph", "import", &input, "--name", "g", "--undirected"], &devices[..]].concat());
    }

    fn search<'a>(a: &'a str, b: &'a str, out: &'a str) -> [&'a str; 12] {
        ["graph", "sssp", "stored:g", "--source", "1", "--out", out, "--device", a, "--device", b, "--replicate"]
    }

    fn distances(&self, a: &str, b: &str) -> String {
        let out = self.folder.path().join("out");
        succeeds(&Self::search(a, b, name(&out)));
        std::fs::read_to_string(out).unwrap()
    }
}

#[test]
fn an_outdated_copy_that_cannot_be_read_gives_no_data() {
    let graphs = Graphs::new();
    let a = graphs.a.clone() + UNREAD;
    let text = succeeds(&[&Graphs::search(&a, &graphs.b, "/dev/null")[..], &["--verify"]].concat());
    mentions(
        &text,
        &["verified", "copies 1 of 2", &format!("degraded: {a} is left out: its superblock cannot be read")],
    );
    assert!(graphs.distances(&a, &graphs.b) == graphs.right);
    // A deletion in this state does not make the copy a member.
    succeeds(&["graph", "delete", "stored:h", "--device", &a, "--device", &graphs.b, "--replicate"]);
    assert!(graphs.distances(&graphs.a, &graphs.b) == graphs.right);
    let verify = ["volume", "verify", &graphs.a, &graphs.b, "--replicate"];
    mentions(&fails(&verify), &["is left out and was not read: it lacks generation", "--repair"]);
    mentions(&succeeds(&[&verify[..], &["--repair"]].concat()), &[&format!("restored: {} holds all data", graphs.a)]);
    succeeds(&verify);
    // The copy holds all data now.
    assert!(graphs.distances(&graphs.a, &graphs.b) == graphs.right);
    std::fs::write(Path::new(&graphs.b["soft:".len()..]), vec![0; 8 << 20]).unwrap();
    assert!(graphs.distances(&graphs.a, &graphs.b) == graphs.right);
}

#[test]
fn an_outdated_copy_is_not_used_in_place_of_one_that_cannot_be_read() {
    let graphs = Graphs::new();
    let (a, b) = (&graphs.a, graphs.b.clone() + UNREAD);
    let devices = ["--device", a, "--device", &b, "--replicate"];
    let out = graphs.folder.path().join("none");
    let searched = Graphs::search(a, &b, name(&out));
    let commands = [
        &searched[..],
        &[&["graph", "list"], &devices[..]].concat(),
        &[&["graph", "info", "stored:g"], &devices[..]].concat(),
        &[&["graph", "delete", "stored:g"], &devices[..]].concat(),
        &[&["graph", "import", "kron:5", "--name", "k"], &devices[..]].concat(),
        &["volume", "verify", a, &b, "--replicate", "--repair"],
    ];
    for command in commands {
        let message = fails(command);
        mentions(&message, &["b,media-error=read:11", "nrecovered read error", "try again"]);
    }
    mentions(&fails(&searched), &["newer data than generation", "name an empty device in place of"]);
    assert!(!out.exists());
    assert!(graphs.distances(a, &graphs.b) == graphs.right, "something was written");
    // The step that the message names.
    let empty = graphs.folder.path().join("empty");
    std::fs::File::create(&empty).unwrap().set_len(8 << 20).unwrap();
    let empty = format!("soft:{}", name(&empty));
    mentions(&succeeds(&Graphs::search(a, &empty, "/dev/null")), &["copies 1 of 2"]);
    succeeds(&["volume", "verify", a, &empty, "--replicate", "--repair"]);
    succeeds(&["volume", "verify", a, &empty, "--replicate"]);
}

#[test]
fn superblocks_that_cannot_be_read_are_no_empty_volume() {
    let graphs = Graphs::new();
    let [a, b] = [&graphs.a, &graphs.b].map(|d| d.clone() + UNREAD);
    let devices = ["--device", &a, "--device", &b, "--replicate"];
    let message = fails(&[&["graph", "list"], &devices[..]].concat());
    mentions(&message, &["it is unknown what is stored there", "nrecovered read error", "try again"]);
    assert!(!message.contains("no graph is stored"));
    let message = fails(&["volume", "verify", &a, &b, "--replicate"]);
    mentions(&message, &["nrecovered read error"]);
    assert!(!message.contains("store data first"));
    // One drive.
    let message = fails(&["graph", "list", "--device", &a]);
    mentions(&message, &["nrecovered read error"]);
}
