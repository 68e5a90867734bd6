//! Tests graphs that are stored by name: imported once, read by several programs, never half there.

use super::program::*;
use std::fs;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use warpbell::engine::Engine;
use warpbell::graph::stored::{StoredGraph, stored_graphs};
use warpbell::storage::{Drive, Volume};

impl Image {
    fn import(&self, input: &str, name: &str, more: &[&str]) -> String {
        succeeds(&self.args(&["import", input, "--name", name], more))
    }

    fn list(&self) -> String {
        succeeds(&self.args(&["list"], &[]))
    }

    /// Returns the edges of a graph as `graph export` writes them.
    fn edges(&self, graph: &str, ending: &str) -> String {
        let out = self.folder.path().join(format!("exported.{ending}"));
        succeeds(&self.args(&["export", graph], &["--out", name(&out)]));
        fs::read_to_string(out).unwrap()
    }

    /// Returns the lines that `--out` writes.
    fn values(&self, command: &[&str], more: &[&str]) -> String {
        let out = self.folder.path().join("values");
        succeeds(&[&["graph"], command, &["--out", name(&out)], more].concat());
        fs::read_to_string(out).unwrap()
    }
}

#[test]
fn all_algorithms_write_the_same_files_as_from_the_text() {
    let image = Image::of("graph");
    image.import(UNIFORM, "drawn", &[]);
    let list = write(&image.folder, "list.el", image.edges("drawn", "el"));
    let text = image.import(&list, "list", &["--weights", "input"]);
    mentions(&text, &["4,096 vertices  65,323 edges", "stored:list on soft:", "read ", "write ", "peak memory "]);
    let stored = ["--device", &image.device];
    for more in [&["bfs", "--source", "1"][..], &["cc"], &["sssp", "--source", "1"]] {
        let with = |input| [&more[..1], &[input], &more[1..]].concat();
        let (from_text, from_stored) =
            (image.values(&with(list.as_str()), &[]), image.values(&with("stored:list"), &stored));
        assert_eq!(from_text.lines().count(), 4096);
        assert!(from_text == from_stored, "{more:?}: results differ");
    }
    // The lists are in another order, so sums of ranks may be rounded otherwise.
    let of = |text: String| -> Vec<(u64, f64)> {
        let pair = |l: &str| l.split_once(' ').map(|(id, rank)| (id.parse().unwrap(), rank.parse().unwrap()));
        text.lines().map(|l| pair(l).unwrap()).collect()
    };
    let ranks = of(image.values(&["pagerank", &list], &[]));
    let stored_ranks = of(image.values(&["pagerank", "stored:list"], &stored));
    assert_eq!(ranks.len(), 4096);
    for (a, b) in ranks.iter().zip(&stored_ranks) {
        assert!(a.0 == b.0 && (a.1 - b.1).abs() < 1e-12, "{a:?} {b:?}");
    }
}

#[test]
fn results_of_a_stored_graph_are_verified_on_request() {
    let image = Image::of("graph");
    image.import("kron:8", "kron", &["--weights", "reals", "--page-checksums"]);
    for algorithm in ["bc", "bfs", "cc", "cdlp", "pagerank", "sssp"] {
        let verified = if algorithm == "cdlp" { "verified (Graphalytics rules)" } else { "verified (GAP rules)" };
        let run = |more: &[&str]| succeeds(&image.args(&[algorithm, "stored:kron"], more));
        mentions(&run(&[]), &["not verified", "graphs.img"]);
        mentions(&run(&["--verify"]), &[verified, "bytes/edge"]);
        mentions(&run(&["--verify", "--edges", "pinned"]), &[verified, "edges in pinned memory"]);
    }
}

#[test]
fn several_programs_read_a_file_and_one_changes_it() {
    let image = Image::of("graph");
    image.import(UNIFORM, "uniform", &[]);
    // The pipe is too small for the edges, so this program has the file open until they are read here.
    let mut first = command(&image.args(&["export", "stored:uniform"], &["--out", "-"]))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = first.stdout.take().unwrap();
    let mut edges = vec![0; 1];
    pipe.read_exact(&mut edges).unwrap();
    let text = succeeds(&image.args(&["bfs", "stored:uniform"], &["--source", "1"]));
    mentions(&text, &["reached 4,096 in"]);
    for refused in [&["import", "kron:8", "--name", "kron"][..], &["delete", "uniform"]] {
        mentions(&fails(&image.args(refused, &[])), &["graphs.img", "locked"]);
    }
    assert!(first.try_wait().unwrap().is_none(), "the first reader has ended");
    pipe.read_to_end(&mut edges).unwrap();
    assert!(first.wait().unwrap().success());
    assert!(edges == image.edges("uniform", "el").into_bytes());
}

#[test]
fn a_reader_of_edges_that_leaves_is_not_an_error() {
    let image = Image::of("graph");
    image.import(UNIFORM, "uniform", &[]);
    for out in ["-", "/dev/stdout"] {
        let export = image.args(&["export", "stored:uniform"], &["--out", out]);
        let mut child = command(&export).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = [0; 8];
        child.stdout.take().unwrap().read_exact(&mut line).unwrap();
        let o = child.wait_with_output().unwrap();
        assert_eq!((o.status.code(), stderr(&o)), (Some(0), String::new()), "{out}");
    }
}

#[test]
fn an_export_tells_what_it_wrote() {
    let image = Image::of("graph");
    let input = write(&image.folder, "one.el", "1 2\n");
    image.import(&input, "one", &["--undirected"]);
    let out = image.folder.path().join("out");
    for (ending, words) in [("el", "1 line of 1 edge   "), ("csv", "2 lines of 1 edge (each in both directions)   ")] {
        let file = out.with_extension(ending);
        let told = succeeds(&image.args(&["export", "one"], &["--out", name(&file)]));
        mentions(&told, &["stored:one   ", words, name(&file)]);
        assert_eq!(told.lines().count(), 1);
    }
    assert_eq!(succeeds(&image.args(&["export", "one"], &["--out", "-"])), "# Undirected graph\n1 2\n");
}

#[test]
fn a_matrix_that_is_exported_is_read_back() {
    let image = Image::of("graph");
    let head = "%%MatrixMarket matrix coordinate";
    for (graph, text, more, expected) in [
        (
            "directed.el",
            "1 2\n2 3\n3 1\n",
            &["--directed"][..],
            format!("{head} pattern general\n3 3 3\n1 2\n2 3\n3 1\n"),
        ),
        ("loops.el", "1 1\n1 2\n", &["--undirected"], format!("{head} pattern symmetric\n2 2 2\n1 1\n2 1\n")),
        (
            "reals.wel",
            "1 2 0.1\n3 1 2.5\n",
            &["--undirected"],
            format!("{head} real symmetric\n3 3 2\n2 1 0.1\n3 1 2.5\n"),
        ),
        ("whole.wel", "1 2 7\n", &["--directed"], format!("{head} integer general\n2 2 1\n1 2 7\n")),
        (
            "alone.mtx",
            "%%MatrixMarket matrix coordinate pattern general\n3 3 0\n",
            &[],
            format!("{head} pattern symmetric\n3 3 0\n"),
        ),
    ] {
        let input = write(&image.folder, graph, text);
        let stored = graph.split_once('.').unwrap().0;
        image.import(&input, stored, more);
        let matrix = image.edges(stored, "mtx");
        assert_eq!(matrix, expected, "{graph}");
        let again = write(&image.folder, "again.mtx", &matrix);
        image.import(&again, &format!("{stored}-again"), &[]);
        assert_eq!(image.edges(&format!("{stored}-again"), "mtx"), matrix, "{graph}");
    }
    // Rows are numbered from 1.
    let zero = write(&image.folder, "zero.el", "0 1\n");
    image.import(&zero, "zero", &["--directed"]);
    let file = image.folder.path().join("zero.mtx");
    let o = warpbell(&image.args(&["export", "zero"], &["--out", name(&file)]));
    mentions(&stderr(&o), &["warning: rows of a matrix are numbered from 1: row 1 is vertex 0"]);
    assert_eq!(fs::read_to_string(&file).unwrap(), format!("{head} pattern general\n2 2 1\n1 2\n"));
    for (file, text, why) in [("gaps.el", "1 70\n", "without gaps"), ("names.el", "a b\n", "the vertices have names")] {
        let input = write(&image.folder, file, text);
        let stored = file.split_once('.').unwrap().0;
        image.import(&input, stored, &[]);
        let out = image.folder.path().join("refused.mtx");
        mentions(&fails(&image.args(&["export", stored], &["--out", name(&out)])), &[why, ".csv"]);
        assert!(!out.exists());
    }
}

#[test]
fn what_is_exported_is_the_graph_that_was_imported() {
    const ALONE: &str = "%%MatrixMarket matrix coordinate pattern general\n1 1 0\n";
    const BARE: &str = "%%MatrixMarket matrix coordinate pattern general\n3 3 0\n";
    let image = Image::of("graph");
    let exported = |graph: &str, ending: &str| image.edges(graph, ending);
    let lines = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let files = [
        ("directed.el", "1 2\n2 3\n3 1\n1 3\n", &["--directed"][..], "1 2\n1 3\n2 3\n3 1\n"),
        ("undirected.el", "1 2\n2 3\n", &["--undirected"], "# Undirected graph\n1 2\n2 3\n"),
        ("weighted.wel", "5 9 2.5\n9 5 0.1\n", &["--directed"], "5 9 2.5\n9 5 0.1\n"),
        ("gaps.wel", "10 18446744073709551614 7\n10 70 8\n", &["--directed"], "10 70 8\n10 18446744073709551614 7\n"),
        ("loops.el", "1 1\n1 2\n", &["--undirected"], "# Undirected graph\n1 1\n1 2\n"),
        ("alone.mtx", ALONE, &["--undirected"], "# Undirected graph\n"),
        ("bare.mtx", BARE, &["--directed"], ""),
    ];
    for (file, text, more, expected) in files {
        let (graph, ending) = file.split_once('.').unwrap();
        let ending = if ending == "mtx" { "el" } else { ending };
        let input = write(&image.folder, file, text);
        image.import(&input, graph, more);
        let stored = exported(graph, ending);
        assert_eq!(lines(&stored), lines(expected), "{file}");
        mentions(&succeeds(&image.args(&["verify", graph], &[])), &["is intact"]);
        if !stored.lines().any(|l| !l.starts_with('#')) {
            continue;
        }
        let again = write(&image.folder, &format!("again.{ending}"), &stored);
        image.import(&again, &format!("{graph}-again"), more);
        assert_eq!(exported(&format!("{graph}-again"), ending), stored, "{file}");
    }
    let info = succeeds(&image.args(&["info", "stored:gaps"], &[]));
    mentions(&info, &["3 vertices  2 edges (directed, as asked)", "weighted edge list"]);
    let o = warpbell(&image.args(&["export", "alone"], &["--out", "-"]));
    mentions(&stderr(&o), &["warning: 1 vertex without edges is not"]);
    mentions(&fails(&image.args(&["bfs", "stored:bare"], &[])), &["3 vertices have no edges"]);
    mentions(&succeeds(&image.args(&["cc", "stored:alone"], &["--verify"])), &["1 component in", "verified"]);
    let o = warpbell(&image.args(&["export", "gaps"], &["--out", "gaps.graphml"]));
    assert_eq!(o.status.code(), Some(2), "{}", stderr(&o));
    mentions(&stderr(&o), &["gaps.graphml", ".el, .wel, .csv or .mtx"]);
    // A table has an undirected edge in both directions, since it cannot say that edges have none.
    let undirected = exported("undirected", "csv");
    assert!(undirected.starts_with("source,target\n"), "{undirected}");
    assert_eq!(lines(&undirected), ["1,2", "2,1", "2,3", "3,2", "source,target"]);
    assert_eq!(exported("weighted", "csv"), "source,target,weight\n5,9,2.5\n9,5,0.1\n");
}

#[test]
fn nothing_stored_is_replaced_unless_the_file_is_named() {
    let image = Image::of("graph");
    mentions(&fails(&image.args(&["list"], &[])), &["graphs.img", "does not exist"]);
    image.import("kron:7", "a", &[]);
    image.import("kron:8", "b", &[]);
    let before = fs::read(&image.path).unwrap();
    let again = image.args(&["import", "urand:7", "--name", "a"], &[]);
    mentions(
        &fails(&again),
        &["`a` already; nothing was written; choose another name, or give --yes-destroy ", "graphs.img"],
    );
    // The name is refused before the input is read.
    let missing = image.args(&["import", "no-such-file.el", "--name", "a"], &[]);
    mentions(&fails(&missing), &["`a` already"]);
    assert!(fs::read(&image.path).unwrap() == before);
    mentions(&image.list(), &["a  ", "128 vertices", "b  ", "256 vertices"]);
    succeeds(&[&again[..], &["--yes-destroy", name(&image.path)]].concat());
    mentions(&succeeds(&image.args(&["info", "a"], &[])), &["uniform generator"]);
    mentions(&succeeds(&image.args(&["verify", "b"], &[])), &["is intact"]);
    // A file of another program is not taken.
    let other = write(&image.folder, "other.img", [7; 100_000]);
    let other = ["graph", "import", "kron:7", "--name", "a", "--device", &format!("soft:{other}")];
    mentions(&fails(&other), &["other.img", "not warpbell's", "--yes-destroy"]);
}

#[test]
fn deleted_graphs_leave_their_space() {
    let image = Image::of("graph");
    for graph in ["a", "b"] {
        image.import("kron:10", graph, &[]);
    }
    let bytes = fs::metadata(&image.path).unwrap().len();
    for _ in 0..3 {
        mentions(&succeeds(&image.args(&["delete", "a"], &[])), &["deleted stored:a"]);
        assert!(!image.list().contains("a  "));
        mentions(&fails(&image.args(&["bfs", "stored:a"], &[])), &["no stored graph is called `a`; there is `b`"]);
        image.import("kron:10", "a", &[]);
    }
    assert_eq!(fs::metadata(&image.path).unwrap().len(), bytes);
    image.import("kron:11", "c", &[]);
    assert!(fs::metadata(&image.path).unwrap().len() > bytes);
    for graph in ["a", "b", "c"] {
        succeeds(&image.args(&["verify", graph], &[]));
    }
}

#[test]
fn stripes_and_copies_hold_several_graphs() {
    for more in [&["--stripe-chunk", "8k"][..], &["--replicate"]] {
        let image = Image::of("graph");
        let second = format!("soft:{}", name(&image.folder.path().join("second.img")));
        let on = |command: &[&str]| image.args(command, &[&["--device", &second], more].concat()).join("\n");
        let run = |command: &[&str]| succeeds(&on(command).split('\n').collect::<Vec<_>>());
        run(&["import", UNIFORM, "--name", "uniform"]);
        run(&["import", "kron:9", "--name", "kron"]);
        mentions(&run(&["list"]), &["uniform  ", "4,096 vertices", "kron  "]);
        mentions(&run(&["bfs", "stored:uniform", "--source", "1", "--verify"]), &["reached 4,096 in", "verified (GAP"]);
        run(&["verify", "kron"]);
        run(&["delete", "uniform"]);
        assert!(!run(&["list"]).contains("uniform"));
        run(&["verify", "kron"]);
        if more.len() == 2 {
            mentions(&fails(&image.args(&["list"], &[])), &["over 2 drives", "opened on one drive"]);
        }
    }
}

#[test]
fn several_pes_search_a_stored_graph() {
    let image = Image::of("graph");
    image.import("kron:10", "kron", &["--weights", "integers"]);
    image.import(UNIFORM, "uniform", &[]);
    let before = fs::read(&image.path).unwrap();
    let alone = image.values(&["bfs", UNIFORM, "--source", "1"], &[]);
    let on = ["--source", "1", "--device", &image.device];
    for more in [&[][..], &["--edges", "gpu"], &["--edges", "pinned", "--warm"]] {
        for pes in ["1", "3"] {
            let out = image.folder.path().join("distances");
            let command =
                [&["graph", "bfs", "stored:uniform", "--pes", pes, "--out", name(&out)], &on[..], more].concat();
            mentions(&succeeds(&command), &["reached 4,096 in 4 levels", "verified (GAP rules)"]);
            assert_eq!(fs::read_to_string(&out).unwrap(), alone, "{command:?}");
        }
    }
    // Each launched process reads the file.
    let out = image.folder.path().join("ranks");
    let program = crate::tree::program();
    let ranks = ["run", "-n", "2", "--", name(&program), "graph", "bfs", "stored:uniform", "--out", name(&out)];
    mentions(&succeeds(&[&ranks[..], &on].concat()), &["PEs 2", "reached 4,096 in", "verified (GAP rules)"]);
    assert_eq!(fs::read_to_string(&out).unwrap(), alone);
    // A graph with weights and self-loops serves as one without.
    let sums = |more: &[&str]| image.values(&["bfs", "stored:kron", "--sources", "3", "--device", &image.device], more);
    assert_eq!(sums(&["--pes", "2"]), sums(&[]));
    assert!(fs::read(&image.path).unwrap() == before, "the search has changed the file");
    mentions(
        &fails(&image.args(&["bfs", "stored:none", "--pes", "2"], &[])),
        &["is called `none`", "`kron`, `uniform`"],
    );
    let o = warpbell(&["graph", "bfs", "stored:uniform", "--pes", "2"]);
    assert_eq!(o.status.code(), Some(2), "{}", stderr(&o));
    mentions(&stderr(&o), &["--device"]);
}

#[test]
fn choices_of_the_import_are_not_made_again() {
    let image = Image::of("graph");
    image.import("kron:7", "kron", &[]);
    for (option, more) in [
        ("--directed", &["bfs", "stored:kron", "--directed"][..]),
        ("--page-checksums", &["cc", "stored:kron", "--page-checksums"]),
        ("--weights", &["sssp", "stored:kron", "--weights", "reals"]),
        ("--undirected", &["bfs", "stored:kron", "--pes", "2", "--undirected"]),
    ] {
        let o = warpbell(&image.args(more, &[]));
        assert_eq!(o.status.code(), Some(2), "{more:?}: {}", stderr(&o));
        mentions(&stderr(&o), &[option, "stored:kron"]);
    }
    for edges in ["storage", "pinned", "gpu"] {
        let message = fails(&image.args(&["sssp", "stored:kron"], &["--edges", edges]));
        mentions(&message, &["`kron` has no weights", "import it with weights (graph import --weights integers"]);
    }
    let o = warpbell(&["graph", "import", "kron:7", "--name", "kron", "--device", "soft:mem"]);
    mentions(&stderr(&o), &["soft:mem ends with the program", "soft:graphs.img"]);
    let o = warpbell(&image.args(&["bfs", "stored:a/b"], &[]));
    mentions(&stderr(&o), &["`a/b` cannot be the name of a stored graph", "1 to 40"]);
}

#[test]
fn damaged_parts_are_named() {
    let image = Image::of("graph");
    image.import("kron:8", "kron", &["--weights", "integers"]);
    let whole = fs::read(&image.path).unwrap();
    let manifest = open(&image.device).manifest().unwrap();
    let parts = ["header", "order", "neighbours", "positions", "degrees", "hubs", "weighted-neighbours"];
    for part in parts {
        let array = format!("kron/{part}");
        let mut bytes = whole.clone();
        bytes[manifest.find(&array).unwrap().offset as usize + 20] ^= 4;
        fs::write(&image.path, bytes).unwrap();
        let message = fails(&image.args(&["verify", "kron"], &[]));
        mentions(&message, &["graphs.img", &format!("`{array}` is damaged")]);
    }
    fs::write(&image.path, whole).unwrap();
    succeeds(&image.args(&["verify", "kron"], &[]));
}

#[test]
fn a_file_that_cannot_grow_keeps_its_graphs() {
    let image = Image::of("graph");
    image.import("kron:8", "kept", &[]);
    let bytes = fs::metadata(&image.path).unwrap().len();
    let mut import = command(&image.args(&["import", UNIFORM, "--name", "uniform"], &[]));
    // SAFETY: both calls are allowed between fork and exec.
    unsafe {
        import.pre_exec(move || {
            libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
            let limit = libc::rlimit { rlim_cur: bytes + 65536, rlim_max: bytes + 65536 };
            libc::setrlimit(libc::RLIMIT_FSIZE, &limit);
            Ok(())
        });
    }
    let o = import.output().unwrap();
    assert_eq!(o.status.code(), Some(1), "{}", stdout(&o));
    mentions(&stderr(&o), &["graphs.img", "making it larger"]);
    assert!(!image.list().contains("uniform"));
    succeeds(&image.args(&["verify", "kept"], &[]));
}

fn open(device: &str) -> Volume {
    let drive = Drive::open(&format!("{device},read-only")).unwrap();
    Volume::on(&Engine::cpu().unwrap(), [drive]).build().unwrap()
}

/// Returns the names of the graphs in a file, after each was read completely and found intact.
fn intact(image: &Path) -> Vec<String> {
    let volume = open(&format!("soft:{}", name(image)));
    let graphs = stored_graphs(&volume).unwrap();
    let check = |graph: &warpbell::graph::stored::StoredEntry| {
        StoredGraph::open(&volume, &graph.name).unwrap().verify(&volume).unwrap();
        graph.name.to_string()
    };
    let names = graphs.iter().map(check).collect();
    if !graphs.is_empty() {
        // Page checksums, too.
        assert!(volume.verify(false).unwrap().is_intact());
    }
    names
}

/// Random times, of at most `longest` and a tenth more.
struct Moments {
    state: u32,
    longest: Duration,
}

impl Moments {
    fn next(&mut self) -> Duration {
        self.state = self.state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        self.longest.mul_f64(f64::from(self.state >> 16) / 60_000.0)
    }
}

/// Starts a command that says nothing.
fn start(args: &[&str]) -> Child {
    command(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn an_import_that_is_killed_leaves_none_of_the_graph_or_all_of_it() {
    kill_imports_beside_others(16);
}

#[test]
#[ignore = "takes minutes with the others like it: .ci/run soak"]
fn an_import_that_is_killed_100_times_leaves_none_of_the_graph_or_all_of_it() {
    kill_imports_beside_others(100);
}

fn kill_imports_beside_others(kills: u32) {
    for checksums in [&[][..], &["--page-checksums"]] {
        let image = Image::of("graph");
        image.import("kron:7", "kept", checksums);
        // Slow commands make writing the longest part.
        let device = format!("{},latency=4ms", image.device);
        let import = ["graph", "import", "kron:9", "--name", "new", "--device", &device];
        let started = Instant::now();
        assert!(start(&import).wait().unwrap().success());
        let mut moments = Moments { state: 0x9e37_79b9, longest: started.elapsed() };
        let (mut none, mut all) = (0, 0);
        for number in 0..kills / 2 {
            // Half of the kills hit an import that would replace the graph.
            let replaces = number % 2 == 1;
            let is_there = intact(&image.path) == ["kept", "new"];
            if is_there && !replaces {
                succeeds(&image.args(&["delete", "new"], &[]));
            }
            let seed = number.to_string();
            let child = start(&[&import[..], &["--yes-destroy", name(&image.path), "--seed", &seed]].concat());
            std::thread::sleep(moments.next());
            kill(child);
            match intact(&image.path).as_slice() {
                [kept] if kept == "kept" => {
                    assert!(!(is_there && replaces), "a graph was lost");
                    none += 1;
                }
                [kept, new] if kept == "kept" && new == "new" => all += 1,
                other => panic!("kill {number}: {other:?}"),
            }
        }
        println!("{none} imports left nothing, {all} left a graph");
        image.import("kron:8", "after", &[]);
        assert!(intact(&image.path).contains(&"after".to_owned()));
    }
}

#[test]
fn an_import_into_a_new_file_that_is_killed_leaves_no_file_or_all_of_the_graph() {
    kill_imports_into_a_new_file(8);
}

#[test]
#[ignore = "takes minutes with the others like it: .ci/run soak"]
fn an_import_into_a_new_file_that_is_killed_50_times_leaves_no_file_or_all_of_the_graph() {
    kill_imports_into_a_new_file(50);
}

fn kill_imports_into_a_new_file(kills: u32) {
    let image = Image::of("graph");
    let device = format!("{},latency=4ms", image.device);
    let import = ["graph", "import", "kron:9", "--name", "new", "--device", &device];
    let started = Instant::now();
    assert!(start(&import).wait().unwrap().success());
    let mut moments = Moments { state: 7, longest: started.elapsed() };
    for _ in 0..kills {
        fs::remove_file(&image.path).unwrap();
        let child = start(&import);
        std::thread::sleep(moments.next());
        kill(child);
        if image.path.exists() {
            assert_eq!(intact(&image.path), ["new"]);
        } else {
            image.import("kron:7", "next", &[]);
        }
        assert_eq!(fs::read_dir(image.folder.path()).unwrap().count(), 1, "something is left beside the file");
    }
}
