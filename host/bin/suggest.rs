//! Parses the command line, with a suggestion for each misspelled word.

use crate::args::Cli;
use crate::command_line::CommandLine;
use crate::output::printable;
use crate::version;
use crate::workloads::nvme::Pattern;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, Command, CommandFactory, FromArgMatches, ValueEnum};
use std::borrow::Cow;
use std::ffi::OsString;
use warpbell::suggest::closest;

/// Parses a command line, whose first word names the program. Also returns it as words of the grammar. Prints the text and exits if help was
/// requested or the command line is wrong.
pub fn parse(words: Vec<OsString>) -> (Cli, CommandLine) {
    if version::is_asked_for(&words) {
        print!("{}", version::verbose());
        std::process::exit(0)
    }
    let mut root = Cli::command();
    let parsed = root
        .try_get_matches_from_mut(&words)
        .and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, CommandLine::of(&root, &matches))));
    parsed.unwrap_or_else(|e| {
        let error = improve(e, innermost(&root, &words), &words);
        let text = error.render().to_string();
        match printable(&text) {
            // The text contains a word with control characters, which clap would print as they are.
            Cow::Owned(plain) if error.use_stderr() => {
                eprint!("{plain}");
                std::process::exit(error.exit_code())
            }
            _ => error.exit(),
        }
    })
}

/// Adds suggestions that clap, which compares letters by position, misses: `bfs` for `bsf`, and `id` rather than `list`
/// for `isd`. `command` is the command in which parsing ended.
fn improve(mut error: clap::Error, command: &Command, words: &[OsString]) -> clap::Error {
    let text = |error: &clap::Error, kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let names: Vec<&str> = command.get_subcommands().flat_map(Command::get_name_and_visible_aliases).collect();
            let typed = text(&error, ContextKind::InvalidSubcommand).unwrap_or_default();
            if let Some(name) = closest(&typed, names) {
                let names = ContextValue::Strings(vec![name.to_owned()]);
                error.insert(ContextKind::SuggestedSubcommand, names);
            }
        }
        ErrorKind::UnknownArgument => {
            let typed = text(&error, ContextKind::InvalidArg).unwrap_or_default();
            let longs = command.get_arguments().filter(|a| !a.is_hide_set()).filter_map(clap::Arg::get_long);
            if let Some(name) = typed.strip_prefix("--").and_then(|typed| closest(typed, longs)) {
                error.insert(ContextKind::SuggestedArg, ContextValue::String(format!("--{name}")));
            }
        }
        ErrorKind::MissingRequiredArgument => {
            let missing = match error.get(ContextKind::InvalidArg) {
                Some(ContextValue::Strings(missing)) => missing.clone(),
                _ => Vec::new(),
            };
            let tips: Vec<StyledStr> = command.get_arguments().filter_map(|a| values_of(a, &missing)).collect();
            if !tips.is_empty() {
                error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
            }
        }
        ErrorKind::InvalidValue => {
            let typed = text(&error, ContextKind::InvalidValue).unwrap_or_default();
            let meant = match error.get(ContextKind::ValidValue) {
                Some(ContextValue::Strings(known)) => {
                    // clap's own suggestion may be a job that writes, too.
                    let harmless = known.iter().map(String::as_str).filter(|word| !writes(word));
                    closest(&typed, harmless)
                }
                _ => None,
            };
            let meant = meant.map(str::to_owned);
            error.remove(ContextKind::SuggestedValue);
            if let Some(meant) = meant {
                error.insert(ContextKind::SuggestedValue, ContextValue::String(meant));
            }
        }
        ErrorKind::InvalidUtf8 => {
            let word = words.iter().find(|w| w.to_str().is_none()).map(|w| w.to_string_lossy().into_owned());
            let advice =
                format!("`{}` is not UTF-8; only a FILE or a --device may have such a name", word.unwrap_or_default());
            error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![StyledStr::from(advice)]));
        }
        _ => {}
    }
    error
}

/// Returns true if a value makes a measurement write: no suggestion leads to data that is overwritten.
fn writes(value: &str) -> bool {
    Pattern::value_variants().iter().any(|pattern| pattern.read_percent(0) == 0 && pattern.to_string() == value)
}

/// Returns the values of an argument that is missing, if the grammar or the help text lists them, or words for the number
/// of ranks.
fn values_of(argument: &Arg, missing: &[String]) -> Option<StyledStr> {
    let name = argument.to_string();
    if !missing.iter().any(|m| m.trim_end_matches("...") == name.trim_end_matches("...")) {
        return None;
    }
    let values: Vec<String> = argument.get_possible_values().iter().map(|v| v.get_name().to_owned()).collect();
    let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
    match argument.get_short() {
        Some(short) => Some(format!("write it as -{short}, as in `-{short} 2`").into()),
        None if !values.is_empty() => Some(format!("{name} is one of {}", values.join(", ")).into()),
        None if argument.is_positional() && help.contains(',') => Some(format!("{name} is {help}").into()),
        None => None,
    }
}

/// Returns the innermost subcommand that the words name, up to the first misspelled one. Parsing has built it.
fn innermost<'a>(root: &'a Command, words: &[OsString]) -> &'a Command {
    let mut command = root;
    for word in words.iter().skip(1) {
        match command.find_subcommand(word) {
            Some(found) => command = found,
            None => break,
        }
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_argument_is_told_with_its_values() {
        for (words, told) in [
            (&["bench", "shmem"][..], &["put_bw", "alltoall"][..]),
            (&["bench", "rdma"], &["write_bw", "atomic_lat"]),
            (&["bench", "stream"], &["read, write, put"]),
            (&["completions"], &["bash, zsh, fish"]),
            (&["run", "-np", "2", "--", "true"], &["--ranks", "-n 2"]),
        ] {
            let text = message(words);
            told.iter().for_each(|word| assert!(text.contains(word), "{words:?}: {text}"));
        }
    }

    #[test]
    fn no_suggestion_is_a_job_that_writes() {
        for typed in ["rwx", "randomrw", "rand-write", "writes"] {
            let text = message(&["bench", "nvme", "--rw", typed]);
            assert!(
                text.contains("possible values: read, write") && !text.contains("similar value"),
                "{typed}: {text}"
            );
        }
        assert!(message(&["bench", "nvme", "--rw", "randraed"]).contains("'randread'"));
    }

    fn message(words: &[&str]) -> String {
        let words: Vec<OsString> = [&["warpbell"], words].concat().iter().map(OsString::from).collect();
        let mut root = Cli::command();
        let error = root.try_get_matches_from_mut(&words).unwrap_err();
        improve(error, innermost(&root, &words), &words).to_string()
    }

    #[test]
    fn every_misspelled_word_gets_a_suggestion() {
        for (words, meant) in [
            (&["grpah", "bfs"][..], "'graph'"),
            (&["graph", "bsf"], "'bfs'"),
            (&["graph", "pagernk"], "'pagerank'"),
            (&["bench", "nvem"], "'nvme'"),
            (&["nvme", "isd"], "exists: 'id'"),
            (&["nvme", "smart-lgo"], "'smart-log'"),
            (&["graph", "bfs", "kron:6", "--pse", "2"], "'--pes'"),
            (&["graph", "bfs", "kron:6", "--sorce", "2"], "'--source'"),
            (&["bench", "nvme", "--rw", "raed"], "'read'"),
            (&["bench", "nvme", "--doorbell", "gup"], "'gpu'"),
            (&["bench", "shmem", "put_wb"], "`put_bw`"),
            (&["bench", "shmem", "put_bw", "--scope", "wrap"], "`warp`"),
            (&["bench", "shmem", "put_bw", "--transport", "sfot"], "`soft`"),
            (&["bench", "rdma", "wrte_bw"], "`write_bw`"),
            (&["bench", "rdma", "atomic_bw", "--atomic_type", "FETCH_AD_ADD"], "`FETCH_AND_ADD`"),
            (&["graph", "bfs", "kron:6", "--engine", "cup"], "`cpu`"),
            (&["doctor", "--require", "gup"], "`gpu`"),
        ] {
            let text = message(words);
            assert!(text.contains(meant), "{words:?}: {text}");
        }
    }
}
