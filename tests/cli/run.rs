//! Tests `warpbell run` as its users run it.

use super::program::heed_signals;
use crate::tree;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Far longer than any step takes.
const LONG: Duration = Duration::from_secs(60);

fn command(options: &[&str], script: &str) -> Command {
    let mut c = Command::new(tree::program());
    c.arg("run").args(options).args(["--", "sh", "-c", script]).stdin(Stdio::null());
    heed_signals(&mut c);
    c
}

fn run(options: &[&str], script: &str) -> Output {
    command(options, script).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// Returns the exit code and standard error of a run, which must fail.
fn fails(options: &[&str], script: &str) -> (i32, String) {
    let o = run(options, script);
    assert!(!o.status.success(), "{}", text(&o.stdout));
    (o.status.code().unwrap(), text(&o.stderr))
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// Starts the launcher with piped output.
fn start(options: &[&str], script: &str) -> Child {
    command(options, script).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Returns the next `n` lines of its output.
fn lines(child: &mut Child, n: usize) -> Vec<String> {
    let reader = BufReader::new(child.stdout.as_mut().unwrap());
    let lines: Vec<String> = reader.lines().take(n).map(Result::unwrap).collect();
    assert_eq!(lines.len(), n);
    lines
}

/// Returns the number after `pid ` in each line.
fn pids(lines: &[String]) -> Vec<i32> {
    lines.iter().map(|l| l.rsplit(' ').next().unwrap().parse().unwrap()).collect()
}

fn kill(pid: i32, signal: i32) {
    // SAFETY: a system call with values; the process is one that this test started.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
}

fn is_there(pid: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // A zombie that its new parent has not reaped counts as gone.
    status.rsplit(')').next().is_some_and(|s| !s.is_empty() && !s.trim_start().starts_with('Z'))
}

fn gone(pids: &[i32]) {
    let start = Instant::now();
    while pids.iter().any(|p| is_there(*p)) {
        assert!(start.elapsed() < LONG, "still there: {pids:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn finish(child: Child) -> (Option<i32>, String) {
    let o = child.wait_with_output().unwrap();
    (o.status.code(), text(&o.stderr))
}

#[test]
fn every_rank_knows_who_it_is_and_its_lines_say_so() {
    let script = "echo $WARPBELL_RANK of $WARPBELL_SIZE, $WARPBELL_LOCAL_RANK of $WARPBELL_LOCAL_SIZE here; echo e >&2";
    let o = run(&["-n", "3"], script);
    assert!(o.status.success());
    let expected = ["[0] 0 of 3, 0 of 3 here", "[1] 1 of 3, 1 of 3 here", "[2] 2 of 3, 2 of 3 here"];
    assert_eq!(sorted(&text(&o.stdout)), expected);
    assert_eq!(sorted(&text(&o.stderr)), ["[0] e", "[1] e", "[2] e"]);

    let plain = run(&["-n", "2", "--no-prefix"], "printf 'no end of line'");
    assert_eq!(text(&plain.stdout), "no end of line\nno end of line\n");
}

#[test]
fn lines_are_whole_however_they_are_written() {
    // Each line in two writes, with the other ranks' in between.
    let script = "i=0; while [ $i -lt 50 ]; do printf 'line of '; printf \"$WARPBELL_RANK\\n\"; i=$((i+1)); done";
    let o = run(&["-n", "4"], script);
    let out = text(&o.stdout);
    assert_eq!(out.lines().count(), 200);
    for line in out.lines() {
        let rank = line[1..].split(']').next().unwrap();
        assert_eq!(line, format!("[{rank}] line of {rank}"));
    }
}

#[test]
fn the_secret_is_fresh_and_in_no_command_line() {
    let script = "echo ${#WARPBELL_SECRET} $WARPBELL_SECRET; tr '\\0' ' ' </proc/$PPID/cmdline; tr '\\0' ' ' </proc/$$/cmdline; echo";
    let secrets: Vec<String> = (0..2)
        .map(|_| {
            let out = text(&run(&["-n", "1", "--no-prefix"], script).stdout);
            let (first, rest) = out.split_once('\n').unwrap();
            let secret = first.strip_prefix("64 ").unwrap().to_owned();
            assert!(rest.contains("run") && !rest.contains(&secret), "{rest}");
            secret
        })
        .collect();
    assert_ne!(secrets[0], secrets[1]);
}

#[test]
fn the_first_rank_reads_what_is_piped_in() {
    let mut child = command(&["-n", "2"], "cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"to the first\n").unwrap();
    assert_eq!(text(&child.wait_with_output().unwrap().stdout), "[0] to the first\n");
}

#[test]
fn the_status_is_that_of_the_rank_that_failed() {
    let (code, err) = fails(&["-n", "3"], "[ $WARPBELL_RANK != 1 ] || exit 7");
    assert_eq!((code, &*err), (7, "error: rank 1 ended with exit code 7\n"), "{err}");

    // The others do not end by themselves.
    let (code, err) = fails(&["-n", "3"], "[ $WARPBELL_RANK != 2 ] || kill -9 $$; sleep 1000");
    assert_eq!((code, &*err), (137, "error: rank 2 was ended by SIGKILL; the others were ended\n"));
    let (code, err) = fails(
        &["-n", "2", "--grace", "100ms"],
        "trap '' TERM; [ $WARPBELL_RANK != 0 ] || exit 3; while :; do sleep 1; done",
    );
    assert_eq!((code, &*err), (3, "error: rank 0 ended with exit code 3; the others were ended\n"));
}

#[test]
fn what_cannot_be_run_is_said_before_anything_runs() {
    let usage = |arguments: &[&str]| {
        let o = Command::new(tree::program()).arg("run").args(arguments).output().unwrap();
        assert_eq!(o.status.code(), Some(2), "{arguments:?}");
        text(&o.stderr)
    };
    assert!(
        usage(&["-n", "2", "--", "no-such-program-anywhere"])
            .contains("`no-such-program-anywhere`: there is no such program")
    );
    let folder = tempfile::tempdir().unwrap();
    for path in [folder.path().to_owned(), folder.path().join("no program")] {
        if !path.exists() {
            std::fs::write(&path, "text").unwrap();
        }
        let path = path.to_str().unwrap();
        assert!(usage(&["-n", "2", "--", path]).contains(&format!("cannot run `{path}`: ")));
    }
    for bad in ["0", "-1", "x", "1025", "", "1.5"] {
        let err = usage(&["-n", bad, "--", "true"]);
        assert!(err.contains("invalid value") || err.contains("unexpected argument"), "{bad}: {err}");
    }
    assert!(usage(&["--", "true"]).contains("--ranks"));
    assert!(usage(&["-n", "2"]).contains("PROGRAM"));
}

#[test]
fn a_limit_of_file_sizes_that_is_too_low_for_the_heap_is_named() {
    let script = format!(
        "trap '' XFSZ; ulimit -f 100; exec {} bench shmem put_bw -e 8 -n 5 --engine cpu --threads 1",
        tree::program().display()
    );
    let (code, err) = fails(&["-n", "2"], &script);
    assert_eq!(code, 1);
    assert!(err.contains("of shared memory: ") && err.contains("raise the limit of file sizes (ulimit -f)"), "{err}");
}

#[test]
fn what_takes_too_long_is_ended() {
    let (code, err) = fails(&["-n", "2", "--timeout", "200ms"], "[ $WARPBELL_RANK = 0 ] || exec sleep 1000");
    assert_eq!((code, &*err), (124, "error: the ranks did not end within 200ms: rank 1 still ran and was ended\n"));
}

#[test]
fn an_interrupt_is_passed_on_and_the_ranks_may_end_in_order() {
    let script = "trap 'echo bye; exit 0' INT; echo ready; while :; do sleep 0.02; done";
    let mut child = start(&["-n", "2"], script);
    assert_eq!(sorted(&lines(&mut child, 2).join("\n")), ["[0] ready", "[1] ready"]);
    kill(child.id() as i32, libc::SIGINT);
    assert_eq!(sorted(&lines(&mut child, 2).join("\n")), ["[0] bye", "[1] bye"]);
    assert_eq!(finish(child), (Some(0), String::new()));
}

#[test]
fn signals_end_what_does_not_end_by_itself() {
    // `sh` waits for its child before it looks at a signal, and the child gets the signal too.
    for (signal, name) in [(libc::SIGINT, "SIGINT"), (libc::SIGTERM, "SIGTERM")] {
        let mut child = start(&["-n", "2"], "echo pid $$; exec sleep 1000");
        let ranks = pids(&lines(&mut child, 2));
        kill(child.id() as i32, signal);
        let (code, err) = finish(child);
        assert_eq!(code, Some(128 + signal));
        assert!(err.contains(name), "{err}");
        gone(&ranks);
    }
    // Ranks that ignore signals: an interrupt, another one, and the end of the grace period.
    let mut child = start(&["-n", "1", "--grace", "100ms"], "trap '' INT TERM; echo pid $$; while :; do sleep 1; done");
    let ranks = pids(&lines(&mut child, 1));
    kill(child.id() as i32, libc::SIGINT);
    std::thread::sleep(Duration::from_millis(100));
    kill(child.id() as i32, libc::SIGINT);
    assert_eq!(finish(child), (Some(137), "error: rank 0 was ended by SIGKILL\n".to_owned()));
    gone(&ranks);
}

#[test]
fn a_launcher_that_is_killed_leaves_no_orphans() {
    let mut child = start(&["-n", "3"], "echo pid $$; exec sleep 1000");
    let ranks = pids(&lines(&mut child, 3));
    assert!(ranks.iter().all(|p| is_there(*p)));
    kill(child.id() as i32, libc::SIGKILL);
    child.wait().unwrap();
    gone(&ranks);
}

#[test]
fn what_a_rank_left_behind_ends_with_it() {
    let o = run(&["-n", "2", "--no-prefix"], "sleep 1000 & echo pid $!");
    assert!(o.status.success());
    gone(&pids(&text(&o.stdout).lines().map(str::to_owned).collect::<Vec<_>>()));
}

#[test]
fn a_reader_that_goes_away_ends_the_ranks() {
    let mut child = start(&["-n", "2"], "echo pid $$; while :; do echo more; sleep 0.01; done");
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    let ranks = pids(&[first.trim_end().to_owned()]);
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert!(child.wait().unwrap().success(), "{err}");
    gone(&ranks);
}

/// Returns a script that runs the program as a rank.
fn rank(arguments: &str) -> String {
    format!("exec {} {arguments} --engine cpu", tree::program().display())
}

#[test]
fn ranks_of_different_graphs_or_options_name_the_difference() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    for (name, edges) in [("0.el", "1 2\n2 3\n3 4\n"), ("1.el", "1 2\n2 4\n3 1\n")] {
        std::fs::write(path(name), edges).unwrap();
    }
    let inputs = rank(&format!("graph bfs {}/$WARPBELL_RANK.el --source 1 --out {}", path(""), path("out")));
    for (arguments, words) in [
        ("graph bfs kron:6 --seed $WARPBELL_RANK", &["--seed is 1 on rank 1, and 0 on rank 0"][..]),
        ("graph bfs kron:6 --source 1,2,$WARPBELL_RANK", &["--source is 1,2,1 on rank 1"]),
        ("graph bfs kron:6 --runs $((WARPBELL_RANK + 1))", &["--runs is 2 on rank 1"]),
        (
            "graph bfs kron:6 $([ $WARPBELL_RANK = 0 ] || echo --warm)",
            &["--warm is true on rank 1, and false on rank 0"],
        ),
        ("bench shmem put_bw -n 10 --runs 1 -e $((WARPBELL_RANK + 1))k", &["--max-size is 2k on rank 1"]),
        (
            "bench $([ $WARPBELL_RANK = 0 ] && echo shmem put_bw || echo stream put)",
            &["rank 1 runs `bench stream`, and rank 0 `bench shmem`"],
        ),
    ] {
        let (code, err) = fails(&["-n", "2"], &rank(arguments));
        assert_eq!(code, 1, "{arguments}: {err}");
        words.iter().for_each(|word| assert!(err.contains(word), "{arguments}: no `{word}` in: {err}"));
        assert!(err.contains("error: the ranks disagree: ") && err.contains("all ranks"), "{arguments}: {err}");
    }
    let (code, err) = fails(&["-n", "2"], &inputs);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("the graph of rank 1 is one of 4 vertices and 3 edges (digest "), "{err}");
    assert!(!folder.path().join("out").exists());
    // Each rank may have its own folder, devices and cache.
    std::fs::copy(path("0.el"), path("1.el")).unwrap();
    let own =
        format!("{inputs} --cache $((WARPBELL_RANK + 1))M --device soft:{}/{{pe}}.img --top $WARPBELL_RANK", path(""));
    let o = run(&["-n", "2"], &own);
    assert!(o.status.success(), "{}", text(&o.stderr));
    assert_eq!(std::fs::read_to_string(path("out")).unwrap(), "1 0\n2 1\n3 2\n4 3\n");
}

#[test]
fn algorithms_of_one_process_are_no_ranks() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    for algorithm in ["bc", "kcore", "cc --strong", "bfs --together"] {
        let (code, err) = fails(&["-n", "2"], &rank(&format!("graph {algorithm} kron:6 --out {}", out.display())));
        assert_eq!(code, 2, "{err}");
        assert!(err.contains(&format!("graph {algorithm} runs in one process")) && err.contains("2 ranks"), "{err}");
        assert!(!out.exists());
        assert!(run(&["-n", "1"], &rank(&format!("graph {algorithm} kron:6"))).status.success());
    }
}

#[test]
fn ranks_run_an_algorithm_together() {
    let folder = tempfile::tempdir().unwrap();
    for algorithm in ["cc", "cdlp --iterations 3", "lcc", "lcc --directed", "sssp --source 5 --parents --delta 1", "tc"]
    {
        let written = |ranks, name: &str| {
            let out = folder.path().join(name);
            let o =
                run(&["-n", ranks], &rank(&format!("graph {algorithm} kron:8 --edges gpu --out {}", out.display())));
            assert!(o.status.success(), "{}", text(&o.stderr));
            assert_eq!(text(&o.stdout).matches("verified").count(), 1, "one of them speaks");
            let values = std::fs::read_to_string(out).unwrap();
            // Of several parents any may be the one.
            values.lines().map(|l| l.splitn(3, ' ').take(2).collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
        };
        assert_eq!(written("2", "two"), written("1", "one"), "{algorithm}");
    }
    let (code, err) = fails(&["-n", "2"], &rank("graph cc kron:8 --seed $WARPBELL_RANK"));
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("--seed is 1 on rank 1, and 0 on rank 0"), "{err}");
}

#[test]
fn ranks_whose_numbers_are_at_a_port_are_no_worlds_of_one() {
    let graph = |variables: &[(&str, &str)]| {
        let mut c = Command::new(tree::program());
        c.args(["graph", "bfs", "kron:6", "--engine", "cpu"]).envs(variables.iter().copied());
        let o = c.stdin(Stdio::null()).output().unwrap();
        (o.status.code(), text(&o.stdout), text(&o.stderr))
    };
    let port = [("PMI_ID", "1"), ("PMI_PORT", "127.0.0.1:9"), ("WARPBELL_SECRET", "0123456789abcdef")];
    let store = [("WARPBELL_STORE", "127.0.0.1:9"), ("WARPBELL_SECRET", "0123456789abcdef")];
    for (variables, words) in [
        (&port[..], ["PMI_PORT is set and PMI_RANK is not", "WARPBELL_RANK (to PMI_ID)"]),
        (&store[..], ["WARPBELL_STORE is set and WARPBELL_RANK is not", "unset WARPBELL_STORE"]),
    ] {
        let (code, out, err) = graph(variables);
        assert_eq!((code, &*out), (Some(1), ""), "{err}");
        words.iter().for_each(|word| assert!(err.contains(word), "no `{word}` in: {err}"));
    }
}
