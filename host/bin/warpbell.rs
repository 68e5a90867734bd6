//! Entry point of the `warpbell` program: parses the command line, runs the command, prints the outcome.

mod accept;
mod agreement;
mod args;
mod bench;
mod chart;
mod command_line;
mod compare;
mod device;
mod doctor;
mod engine;
mod graph;
mod headers;
mod info;
mod interrupt;
mod job_file;
mod manual;
mod nvme;
mod operation;
mod output;
mod partitioned;
mod progress;
mod remedy;
mod reports;
mod rows;
mod run;
#[cfg(test)]
#[path = "../../tests/common/schema_keys.rs"]
mod schema_keys;
mod suggest;
mod table;
mod terminal;
#[cfg(test)]
#[path = "../../tests/common/tree.rs"]
mod tree;
mod version;
mod volume;
mod workloads;
mod world;

use args::Command;
use interrupt::Interrupt;
use output::Failure;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use warpbell::cuda::{CONNECTIONS_VARIABLE, MOST_CONNECTIONS};
use warpbell::processors;

/// Runs the command of this process's command line.
pub fn main() -> ExitCode {
    ExitCode::from(main_with(std::env::args_os().collect(), None))
}

/// Runs the command that these words are, the first of which names the program. Returns the exit status.
///
/// Packages that have the program inside another executable call this as the first thing that their process does, with their folder of
/// device headers.
pub fn main_with(words: Vec<OsString>, headers: Option<PathBuf>) -> u8 {
    if let Some(folder) = headers {
        headers::set_folder(folder);
    }
    let count = words.len();
    let (cli, line) = suggest::parse(words);
    // The ranks of `run` are other programs, which make this setting themselves.
    if !matches!(cli.command, Command::Run(_)) && std::env::var_os(CONNECTIONS_VARIABLE).is_none() {
        // SAFETY: this is the only thread of the process.
        unsafe { std::env::set_var(CONNECTIONS_VARIABLE, MOST_CONNECTIONS.to_string()) };
    }
    if matches!(cli.command, Command::Run(_)) {
        // SAFETY: this is the only thread of the process.
        unsafe { cli.operation.pass_on() };
    }
    let interrupt = interrupt::watch();
    cli.operation.start_log();
    // Only the first rank of a world writes. An invalid launcher is reported by the command that needs it.
    let writes = world::launched().ok().flatten().is_none_or(|launched| launched.rank == 0);
    let started = line.check_outputs(writes).and_then(|()| cli.operation.start(&cli.command, &line.name));
    world::set_command_line(line);
    let result = match started {
        // The threads of the operation end before the program does.
        Ok(_operation) => run(cli.command, count, cli.timeout, &interrupt),
        Err(e) => Err(e),
    };
    accept::notes::hand_over();
    match interrupt.end() {
        Some(end) => interrupt.conclude(end),
        None => output::conclude(result),
    }
}

fn run(command: Command, words: usize, timeout: Option<Duration>, interrupt: &Interrupt) -> Result<(), Failure> {
    let threads = processors::replaced().map_err(|e| Failure::Usage(e.to_string()))?;
    if matches!(command, Command::Graph(_) | Command::Bench(_) | Command::Table(_) | Command::Volume(_)) {
        // Rayon would count the system's processors itself, and panic if its threads could not be started.
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.unwrap_or(0)).build_global();
        pool.map_err(|e| Failure::about("the threads of the program cannot be started", e))?;
    }
    // The launcher applies the time limit to its ranks itself, an acceptance run to its commands.
    if let (Some(timeout), false) = (timeout, matches!(command, Command::Run(_) | Command::Accept(_))) {
        let timer = interrupt.expires_after(timeout);
        timer.map_err(|e| Failure::about("the thread of --timeout cannot be started", e))?;
    }
    // Commands that start other programs, or show these to users, print what is asked for.
    if !matches!(command, Command::Run(_) | Command::Accept(_) | Command::Top(_)) {
        progress::print_lines();
    }
    match command {
        Command::Graph(command) => graph::run(*command, interrupt),
        Command::Bench(command) => bench::run(command, interrupt),
        Command::Compare(args) => compare::run(&args),
        Command::Chart(args) => chart::run(&args),
        Command::Nvme(command) => nvme::run(command, interrupt),
        Command::Volume(command) => volume::run(command, interrupt),
        Command::Table(command) => table::run(command, interrupt),
        Command::Run(args) => run::run(&args, timeout, interrupt),
        Command::Top(args) => operation::top::run(&args),
        Command::Accept(command) => accept::run(command, words, timeout, interrupt),
        Command::Info(args) => info::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::IncludeDir => headers::run(),
        Command::Completions(args) => manual::completions(&args),
        Command::Man(args) => manual::man(&args),
    }
}
