//! Work of ranks, whose results they verify.

use crate::program::Ended;
use crate::random::Random;

/// A command of the program.
pub struct Work {
    pub args: Vec<&'static str>,
    is_graph: bool,
    runs: usize,
}

impl Work {
    pub fn of(random: &mut Random, ranks: usize) -> Self {
        const SHORT: [&str; 10] = ["-b", "8", "-e", "4k", "-f", "512", "-n", "20", "-w", "2"];
        const TESTS: [&str; 6] = ["all", "put_signal_ping_pong", "reduce", "fcollect", "alltoall", "broadcast"];
        let is_graph = random.once_in(2);
        let mut args = if is_graph {
            let algorithm = random.of(&["bfs", "sssp", "cc", "pagerank"]);
            vec!["graph", algorithm, random.of(&["kron:8", "kron:10", "urand:9"]), "--verify"]
        } else {
            // All tests take minutes where many ranks share few processors.
            let test = random.of(if ranks == 2 { &TESTS[..] } else { &TESTS[1..] });
            ["bench", "shmem", test].into_iter().chain(SHORT).collect()
        };
        let (runs, text) = if args.contains(&"all") { (1, "1") } else { random.of(&[(1, "1"), (2, "2"), (5, "5")]) };
        args.extend(["--runs", text, "--engine", "cpu", "--threads", "1"]);
        Self { args, is_graph, runs }
    }

    /// Returns an error if rank 0, which has ended well, does not say that all its results are right.
    pub fn check(&self, ended: &Ended) -> Result<(), String> {
        // The launcher puts the rank before each line.
        let lines = || ended.out.lines().map(|l| l.strip_prefix("[0] ").unwrap_or(l));
        let is_right = if self.is_graph {
            lines().filter(|l| l.contains("   verified (")).count() == self.runs
        } else {
            let mut rows = lines().filter(|l| !l.starts_with('#')).map(|l| l.split_whitespace().last()).peekable();
            rows.peek().is_some() && rows.all(|wrong| wrong == Some("0"))
        };
        if is_right {
            Ok(())
        } else {
            Err(format!("it ended well, and does not say that all is right:\n{}", ended.text()))
        }
    }
}

/// Returns true if a text names a rank, as in `rank 2`, `ranks 0, 2` or `PE 2`.
pub fn names_rank(text: &str, rank: usize) -> bool {
    let mut is_list = false;
    for word in text.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty()) {
        match word.parse::<usize>() {
            Ok(number) if is_list && number == rank => return true,
            Ok(_) => {}
            Err(_) => is_list = matches!(word, "rank" | "ranks" | "PE" | "PEs" | "and"),
        }
    }
    false
}
