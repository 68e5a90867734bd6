//! Tests graphs that are stored in parts, which PEs open each for itself.

use super::program::*;
use crate::tree;
use std::fs;

const PARTS: &str = "part-{pe}.img";

/// Returns the device of all parts in a folder.
fn device(folder: &tempfile::TempDir) -> String {
    format!("soft:{}", name(&folder.path().join(PARTS)))
}

fn device_of(folder: &tempfile::TempDir, part: usize) -> String {
    device(folder).replace("{pe}", &part.to_string())
}

/// Returns the first two columns that `--out` writes.
fn values(folder: &tempfile::TempDir, command: &[&str]) -> Vec<(String, f64)> {
    let out = folder.path().join("values");
    succeeds(&[&["graph"], command, &["--out", name(&out)]].concat());
    let line = |line: &str| {
        let mut columns = line.split(' ');
        (columns.next().unwrap().to_owned(), columns.next().unwrap().parse().unwrap())
    };
    fs::read_to_string(out).unwrap().lines().map(line).collect()
}

#[test]
fn algorithms_over_parts_write_what_they_write_for_the_whole_graph() {
    let folder = folder();
    let device = device(&folder);
    let import = ["graph", "import", "kron:9", "--name", "links", "--parts", "2", "--weights", "integers"];
    let text = succeeds(&[&import[..], &["--device", &device]].concat());
    mentions(&text, &["512 vertices", "stored:links in 2 parts on soft:", "part-0.img", "part-1.img"]);
    for part in 0..2 {
        let device = device_of(&folder, part);
        let of = |command| succeeds(&["graph", command, "stored:links", "--device", &device]);
        mentions(&of("info"), &[&format!("part {part} of 2 of the graph"), "lists: packed in the order of degrees"]);
        mentions(&of("verify"), &["is intact"]);
        mentions(&succeeds(&["graph", "list", "--device", &device]), &[&format!("part {part} of 2")]);
    }
    for algorithm in [
        &["bfs", "--source", "1"][..],
        &["cc"],
        &["cdlp"],
        &["lcc"],
        &["pagerank"],
        &["sssp", "--weights", "integers", "--source", "1"],
        &["tc"],
    ] {
        let of = |input, more: &[&str]| values(&folder, &[&algorithm[..1], &[input], &algorithm[1..], more].concat());
        let expected = of("kron:9", &[]);
        // The import has chosen the weights.
        let rest: Vec<&str> =
            algorithm[1..].iter().copied().filter(|a| !["--weights", "integers"].contains(a)).collect();
        for more in [&["--pes", "2"][..], &["--pes", "2", "--edges", "gpu"]] {
            let parts = ["stored:links", "--device", &device];
            let found = values(&folder, &[&algorithm[..1], &parts, &rest, more].concat());
            let is_close =
                |(a, b): (&(String, f64), &(String, f64))| a.0 == b.0 && (a.1 == b.1 || (a.1 - b.1).abs() < 1e-12);
            assert!(found.len() == expected.len() && found.iter().zip(&expected).all(is_close), "{algorithm:?}");
        }
    }
    // Each rank of a launcher opens its own, too.
    let program = name(&tree::program()).to_owned();
    let out = folder.path().join("ranks");
    let text = succeeds(&[
        "run",
        "-n",
        "2",
        "--",
        &program,
        "graph",
        "cc",
        "stored:links",
        "--device",
        &device,
        "--out",
        name(&out),
    ]);
    mentions(&text, &["PE 0", "PE 1", "part-0.img", "part-1.img", "not verified"]);
    let lines = fs::read_to_string(out).unwrap();
    assert_eq!(lines.lines().count(), 512);
}

/// Returns the message of options that contradict each other or the graph.
fn misused(args: &[&str]) -> String {
    let o = warpbell(args);
    assert_eq!(o.status.code(), Some(2), "{}", stdout(&o));
    stderr(&o)
}

#[test]
fn what_needs_another_number_of_pes_or_all_parts_is_refused() {
    let folder = folder();
    let device = device(&folder);
    fn import<'a>(more: &[&'a str]) -> Vec<&'a str> {
        [&["graph", "import", "kron:6", "--name", "links"], more].concat()
    }
    let message = misused(&import(&["--parts", "2", "--device", &device_of(&folder, 0)]));
    mentions(&message, &["2 PEs need devices of their own", "{pe}"]);
    for other in [&["--lists", "plain"][..], &["--order", "input"]] {
        mentions(&misused(&[&import(&["--parts", "2", "--device", &device]), other].concat()), &["--parts"]);
    }
    succeeds(&import(&["--parts", "2", "--device", &device]));
    mentions(&fails(&import(&["--parts", "2", "--device", &device])), &["a stored graph is called `links` already"]);
    let refused = |more: &[&str]| misused(&[&["graph", "cc", "stored:links"], more].concat());
    let run = |more: &[&str]| fails(&[&["graph", "cc", "stored:links"], more].concat());
    mentions(&refused(&["--pes", "3", "--device", &device]), &["in 2 parts, and there are 3 PEs", "--pes 2"]);
    mentions(&refused(&["--pes", "2", "--verify", "--device", &device]), &["in 2 parts", "leave --verify out"]);
    let own = device_of(&folder, 1);
    mentions(&run(&["--device", &own]), &["part 1 of 2 here", "run the algorithm on 2 PEs"]);
    let out = folder.path().join("links.el");
    let message = fails(&["graph", "export", "stored:links", "--device", &own, "--out", name(&out)]);
    mentions(&message, &["part 1 of 2 here"]);
    assert!(!out.exists());
    // A part in the place of another one.
    let [first, second] = [0, 1].map(|part| folder.path().join(PARTS.replace("{pe}", &part.to_string())));
    let kept = fs::read(&second).unwrap();
    fs::copy(&first, &second).unwrap();
    mentions(&run(&["--pes", "2", "--device", &device]), &["part 0 here, and PE 1 needs part 1"]);
    // A part that is missing, by the name of its own device.
    fs::remove_file(&second).unwrap();
    let program = name(&tree::program()).to_owned();
    let o = warpbell(&["run", "-n", "2", "--", &program, "graph", "cc", "stored:links", "--device", &device]);
    assert!(!o.status.success());
    mentions(&stderr(&o), &[&format!("{}: it does not exist", second.display())]);
    fs::write(&second, kept).unwrap();
    // A whole graph is no part.
    let whole = device_of(&folder, 7);
    succeeds(&["graph", "import", "kron:6", "--name", "links", "--device", &whole]);
    fs::copy(folder.path().join("part-7.img"), &first).unwrap();
    mentions(&refused(&["--pes", "2", "--device", &device]), &["stored:links is whole", "without {pe}"]);
    // A part of another import of the same graph.
    succeeds(&["graph", "delete", "stored:links", "--device", &own]);
    let other = tempfile::tempdir().unwrap();
    let others = format!("soft:{}", name(&other.path().join(PARTS)));
    succeeds(&import(&["--parts", "2", "--device", &others]));
    fs::copy(other.path().join("part-1.img"), &second).unwrap();
    succeeds(&["graph", "delete", "stored:links", "--device", &device_of(&folder, 0)]);
    succeeds(&import(&["--parts", "2", "--device", &format!("soft:{}", name(&folder.path().join("again-{pe}.img")))]));
    fs::copy(folder.path().join("again-0.img"), &first).unwrap();
    mentions(&run(&["--pes", "2", "--device", &device]), &["different imports", "import the graph again"]);
}
