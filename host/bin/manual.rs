//! `warpbell completions` and `warpbell man`: what shells and man(1) know of the command line, made from its grammar.

use crate::args::{Cli, CompletionsArgs, ManArgs, Shell};
use crate::output::{Failure, line, written};
use clap::{Command, CommandFactory};
use std::fs;
use std::path::Path;
use warpbell::destination::Destination;

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
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    pages(&command, &args.folder)
}

/// Writes the page of a command, and those of its subcommands. A page replaces an older one as a whole.
fn pages(command: &Command, folder: &Path) -> Result<(), Failure> {
    command.get_subcommands().filter(|c| !c.is_hide_set()).try_for_each(|inner| pages(inner, folder))?;
    let page = clap_mangen::Man::new(command.clone());
    let to = Destination::open(&folder.join(page.get_filename()))?;
    written(to.write(|out| page.render(&mut &mut *out)))
}
