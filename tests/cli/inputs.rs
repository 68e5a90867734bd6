//! Tests of input files as other programs write them: what is read, and which decisions the program shows.

use super::program::*;
use serde_json::Value;
use std::fs;

#[test]
fn rounded_weights_are_shown_and_results_are_checked_against_the_file() {
    let folder = folder();
    let file = write(&folder, "f.wel", "1 2 16777217.0\n1 3 16777216.0\n3 2 0.5\n");
    let note = "weights are rounded to 32 bits: 16777217 on line 1 becomes 16777216, the first of them; the largest difference is 1";
    let job = ["graph", "sssp", &file, "--source", "1", "--weights-type", "f32"];
    let text = succeeds(&job);
    mentions(&text, &[&format!("\nnote: {note}\n"), "verified (GAP rules), and by the file's weights within 6.1e-8\n"]);
    let report: Value = serde_json::from_str(&succeeds(&[&job[..], &["--json", "-"]].concat())).unwrap();
    assert_eq!(report["results"]["graph"]["notices"], serde_json::json!([note]));
    let tolerance = report["results"]["runs"][0]["weight_tolerance"].as_f64().unwrap();
    assert!(tolerance > 5.9e-8 && tolerance < 6.2e-8, "{tolerance}");
    // Without the check nothing is kept to check against, and the graph is the same.
    let unchecked = succeeds(&[&job[..], &["--no-verify"]].concat());
    mentions(&unchecked, &[&format!("\nnote: {note}\n"), "not verified"]);
    // Algorithms that read no weights round none.
    assert!(!succeeds(&["graph", "bfs", &file, "--source", "1"]).contains("note: "));
    let exact = write(&folder, "exact.wel", "1 2 0.5\n2 3 4\n");
    let text = succeeds(&["graph", "sssp", &exact, "--source", "1"]);
    assert!(text.contains("verified (GAP rules)\n") && !text.contains("note: "), "{text}");

    let device = format!("soft:{}/graphs.img", name(folder.path()));
    let import = |graph, more: &[&str]| {
        let import = ["graph", "import", &file, "--name", graph, "--device", &device, "--weights-type", "f32"];
        succeeds(&[&import, more].concat())
    };
    mentions(&import("a", &[]), &[&format!("\nnote: {note}\n"), "stored:a on "]);
    let report: Value = serde_json::from_str(&import("b", &["--json", "-"])).unwrap();
    assert_eq!(report["graph"]["notices"], serde_json::json!([note]));
}

#[test]
fn weights_that_32_bits_do_not_hold_have_64() {
    let folder = folder();
    let text = "1 2 123456789\n1 3 0.5\n3 4 1.79e308\n";
    let file = write(&folder, "f.wel", text);
    let device = format!("soft:{}/graphs.img", name(folder.path()));
    let imported = succeeds(&["graph", "import", &file, "--name", "a", "--device", &device]);
    assert!(!imported.contains("note: "), "{imported}");
    let out = write(&folder, "out.wel", "");
    succeeds(&["graph", "export", "stored:a", "--device", &device, "--out", &out]);
    let exported = fs::read_to_string(&out).unwrap();
    let weights: Vec<f64> = exported
        .lines()
        .filter(|l| !l.starts_with('#'))
        .map(|l| l.split_whitespace().last().unwrap().parse().unwrap())
        .collect();
    // The better connected neighbour stands first.
    assert_eq!(weights, [0.5, 123_456_789.0, 1.79e308], "{exported}");
    for (input, more) in [("stored:a", &["--device", &device, "--verify"][..]), (&file, &[])] {
        let distances = write(&folder, "distances.txt", "");
        let text = succeeds(&[&["graph", "sssp", input, "--source", "1", "--out", &distances], more].concat());
        mentions(&text, &["verified (GAP rules)\n"]);
        let lines = fs::read_to_string(&distances).unwrap();
        let found: Vec<f64> = lines.lines().map(|l| l.split_whitespace().last().unwrap().parse().unwrap()).collect();
        assert_eq!(found, [0.0, 123_456_789.0, 0.5, 1.79e308], "{lines}");
    }
    // Where 32 bits are asked for, a weight that they do not reach is an error, and the others are rounded.
    let refused = fails(&["graph", "sssp", &file, "--source", "1", "--weights-type", "f32"]);
    mentions(&refused, &["1.79e308", "line 3", "does not fit into 32 bits", "64 bits"]);
    let fits = write(&folder, "g.wel", "1 2 0.5\n2 3 4\n");
    for (more, expected) in [(&[][..], "32-bit"), (&["--weights-type", "f64"], "64-bit")] {
        succeeds(&[&["graph", "import", &fits, "--name", expected, "--device", &device], more].concat());
        let listed = succeeds(&["graph", "list", "--device", &device]);
        let line = listed.lines().find(|l| l.starts_with(expected)).unwrap();
        let words = format!("real weights ({expected})");
        mentions(line, &[&words]);
        let info = ["graph", "info", expected, "--device", &device];
        mentions(&succeeds(&info), &[&format!("bits a stored edge   {words}\n")]);
        let report: Value = serde_json::from_str(&succeeds(&[&info[..], &["--json", "-"]].concat())).unwrap();
        assert_eq!(report["graph"]["weight_type"], words);
    }
}

#[test]
fn columns_have_an_option_that_messages_name() {
    let folder = folder();
    let table = write(&folder, "own.csv", "origin_city,target_city,km\n1,2,5\n2,3,7\n");
    let message = fails(&["graph", "sssp", &table]);
    mentions(
        &message,
        &[
            "own.csv line 1: `origin_city`, `target_city`, `km` above a line of numbers is a heading",
            "known are source, src",
            "choose the columns, with --columns src=NAME,dst=NAME",
        ],
    );
    assert!(!message.contains("--names"), "{message}");
    let out = folder.path().join("out.txt");
    let job = ["graph", "sssp", &table, "--source", "1", "--out", name(&out)];
    let columns = "src=origin_city,dst=target_city,weight=km";
    mentions(
        &succeeds(&[&job[..], &["--columns", columns]].concat()),
        &["the input's weights", "verified (GAP rules)"],
    );
    assert_eq!(fs::read_to_string(&out).unwrap(), "1 0\n2 5\n3 12\n");
    let device = format!("soft:{}/graphs.img", name(folder.path()));
    let import = ["graph", "import", &table, "--name", "own", "--device", &device, "--columns", columns];
    mentions(&succeeds(&import), &["3 vertices  2 edges", "the input's weights"]);
    mentions(&fails(&["graph", "bfs", &table, "--columns", "src=town"]), &["no column `town` among `origin_city`"]);

    let near = write(&folder, "near.csv", "src,dst,dist\n1,2,5\n2,3,7\n");
    let job = ["graph", "sssp", &near, "--source", "1"];
    let note = "\nnote: no column is read as the weight; these hold numbers: `dist`; --columns weight=dist takes it\n";
    mentions(&succeeds(&job), &["weight 1 for each edge", note]);
    let text = succeeds(&[&job[..], &["--columns", "weight=dist"]].concat());
    assert!(text.contains("the input's weights") && !text.contains("note: "), "{text}");

    for (args, words) in [
        (&["bfs", "kron:6", "--columns", "src=1"][..], "--columns: kron:6 is generated"),
        (&["bfs", "kron:6", "--vertices", "9"], "--vertices: kron:6 is generated"),
        (&["bfs", "stored:x", "--columns", "src=1"], "--columns is a choice of `graph import`"),
        (&["bfs", "stored:x", "--vertices", "9"], "--vertices is a choice of `graph import`"),
        (&["bfs", &near, "--columns", "town"], "`town` names no columns; write them as in src="),
        (&["bfs", &near, "--vertices", "0"], "--vertices"),
    ] {
        let o = warpbell(&[&["graph"], args].concat());
        assert_eq!(o.status.code(), Some(2), "{args:?}: {}", stderr(&o));
        mentions(&stderr(&o), &[words]);
    }
}

#[test]
fn lists_of_other_programs_are_read_as_they_are() {
    let folder = folder();
    for (file, text, words) in [
        ("c06.csv", "node_1,node_2\n5,6\n6,7\n", &["3 vertices  2 edges"][..]),
        ("semicolons.csv", "1;2\n2;3\n", &["3 vertices  2 edges", "note: columns are separated by semicolons\n"]),
        ("d02.gr", "c x\np edge 4 3\ne 1 2\ne 2 3\ne 3 4\n", &["4 vertices  3 edges (undirected, as the input says)"]),
        ("d02.col", "p col 4 3\ne 1 2\ne 2 3\ne 3 4\n", &["4 vertices  3 edges (undirected, as the input says)"]),
        ("e05.el", "1 2 # trailing remark\n2 3\n", &["3 vertices  2 edges"]),
        ("e22.el", "1 2 {'weight': 3.0}\n2 3 {'weight': 1}\n1 4 {}\n", &["4 vertices  3 edges", "the input's weights"]),
        (
            "n03.edges",
            "1 2 4.0 1200000000\n2 3 1 1200000001\n",
            &["note: column 4 is not read; --columns src=1,dst=2,"],
        ),
        (
            "t01.txt",
            "1 2 1082040961\n2 3 1082155839\n",
            &["looks like a time (1082040961); --columns src=1,dst=2 leaves"],
        ),
        (
            "out.small",
            "% sym weighted\n% 2 3 3\n1 2 4 1100000000\n2 3 1 1100000001\n",
            &["(undirected, as the input says)"],
        ),
        (
            "out.bip",
            "% bip unweighted\n% 3 2 3\n1 1\n1 2\n2 3\n",
            &["5 vertices  3 edges", "note: bipartite: 2 is added"],
        ),
        ("m.mtx", "%MatrixMarket matrix coordinate unsigned-integer general\n2 2 1\n1 2 1\n", &["2 vertices  1 edge "]),
    ] {
        let input = write(&folder, file, text);
        mentions(&succeeds(&["graph", "sssp", &input]), &[words, &["verified (GAP rules)"]].concat());
    }
    let loops = write(&folder, "loops.graph", "3 2\n1 2\n1 3\n\n");
    mentions(
        &fails(&["graph", "cc", &loops]),
        &["loops.graph: vertex 1 is its own neighbour", "remove the self-loops"],
    );
    let short = write(&folder, "short.mtx", "%%MatrixMarket matrix coordinate real\n3 3 1\n1 2 1\n");
    mentions(&fails(&["graph", "cc", &short]), &["short.mtx line 1: ", "lacks the symmetry, which is `general`"]);
}

#[test]
fn vertices_without_edges_are_counted() {
    let folder = folder();
    let list = write(&folder, "edge.csv", "0,1\n1,2\n");
    mentions(&succeeds(&["graph", "cc", &list]), &["3 vertices  2 edges", "1 component in"]);
    mentions(&succeeds(&["graph", "cc", &list, "--vertices", "6"]), &["6 vertices  2 edges", "4 components in"]);
    let message = fails(&["graph", "cc", &list, "--vertices", "2"]);
    mentions(&message, &["edge.csv line 2: vertex 2 is not one of the 2 vertices that the graph has"]);
    let words = write(&folder, "words.el", "a b\n");
    mentions(&fails(&["graph", "cc", &words, "--vertices", "2"]), &["its vertices have names", "leave --vertices out"]);
    write(&folder, "num-node-list.csv", "5\n");
    for input in [&list, name(folder.path())] {
        let text = succeeds(&["graph", "cc", input]);
        mentions(&text, &["5 vertices  2 edges", "note: 5 vertices, as num-node-list.csv says\n", "3 components in"]);
    }
}

/// A Zstandard frame (RFC 8878) of `blocks` blocks, each of which repeats an end of line 128 Ki times.
fn long_frame(blocks: usize) -> Vec<u8> {
    const WINDOW: u8 = (20 - 10) << 3;
    const BYTES: u32 = 128 << 10;
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0, WINDOW];
    for block in 1..=blocks {
        let head = BYTES << 3 | 1 << 1 | u32::from(block == blocks);
        frame.extend(&head.to_le_bytes()[..3]);
        frame.push(b'\n');
    }
    frame
}

#[test]
fn decompression_stays_within_the_memory_of_the_option() {
    let folder = folder();
    let bytes = long_frame(2000);
    assert!(bytes.len() < 10 << 10);
    let file = write(&folder, "long.el.zst", bytes);
    let message = fails(&["graph", "cc", &file, "--memory", "16M"]);
    mentions(&message, &["long.el.zst: ", "of text need at least", "16.0 MiB is free"]);
    let mut limited = command(&["graph", "cc", &file, "--memory", "16M", "--engine", "cpu", "--threads", "1"]);
    let limit = || {
        // The text has 250 MiB.
        let limit = libc::rlimit { rlim_cur: 200 << 20, rlim_max: 200 << 20 };
        // SAFETY: an async-signal-safe call on a structure that lives for it.
        match unsafe { libc::setrlimit(libc::RLIMIT_DATA, &limit) } {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        }
    };
    // SAFETY: the closure only makes that call.
    let o = unsafe { std::os::unix::process::CommandExt::pre_exec(&mut limited, limit) }.output().unwrap();
    mentions(&stderr(&o), &["of text need at least"]);
    assert_eq!(o.status.code(), Some(1));
}
