//! `warpbell completions` and `warpbell man`: what shells and man(1) know of the command line, made from its grammar.

use crate::args::{Cli, CompletionsArgs, ManArgs, Shell};
use crate::output::{Failure, line};
use clap::CommandFactory;
use std::fs;

/// Prints a completion script.
///
/// # Errors
///
/// [`Failure::Error`] if standard output cannot be written, [`Failure::BrokenPipe`] if its reader has closed it.
pub fn completions(args: &CompletionsArgs) -> Result<(), Failure> {
    let shell = match args.shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "warpbell", &mut script);
    line(format_args!("{}", String::from_utf8_lossy(&script).trim_end()))
}

/// Writes a man page for each command.
///
/// # Errors
///
/// [`Failure::Error`] if the folder cannot be created or a page not be written.
pub fn man(args: &ManArgs) -> Result<(), Failure> {
    let about = |e| Failure::about(args.folder.display(), e);
    fs::create_dir_all(&args.folder).map_err(about)?;
    clap_mangen::generate_to(Cli::command(), &args.folder).map_err(about)
}
