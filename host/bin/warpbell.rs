//! The command line: parse, call, print.

mod args;
mod info;
mod interrupt;
mod output;

use args::{Cli, Command};
use clap::Parser;
use output::Failure;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let interrupt = interrupt::watch();
    let result = run(cli.command);
    output::conclude(result, interrupt.happened())
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Info(args) => info::run(&args),
        Command::IncludeDir => output::line(format_args!("{}", warpbell::INCLUDE_DIR)),
        _ => Ok(()),
    }
}
