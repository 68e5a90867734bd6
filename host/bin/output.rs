//! Standard output, error lines and exit codes.

use crate::args::ReportArgs;
use crate::remedy;
use serde::Serialize;
use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use warpbell::destination::{Destination, DestinationError};
use warpbell::graph::Ids;
use warpbell::graph::output::{Output, OutputError, Values};

/// Why the program ends before its time.
#[derive(Debug)]
pub enum Failure {
    /// One line on standard error, exit code 1.
    Error(String),
    /// The arguments contradict each other in a way that the grammar cannot say: one line, exit code 2.
    Usage(String),
    /// One line, and the exit code of what it tells.
    Status(String, u8),
    /// Whoever read standard output has gone: nothing to say.
    BrokenPipe,
}

impl<E: Error + 'static> From<E> for Failure {
    fn from(e: E) -> Self {
        // An error names its cause itself (`{source}`), so the chain is not printed again.
        Self::Error(match remedy::of(&e) {
            Some(remedies) => format!("{e}; {remedies}"),
            None => e.to_string(),
        })
    }
}

impl Failure {
    /// An error that names what it was about.
    pub fn about(what: impl fmt::Display, e: impl fmt::Display) -> Self {
        Self::Error(format!("{what}: {e}"))
    }
}

/// Prints one line on standard output.
pub fn line(text: fmt::Arguments<'_>) -> Result<(), Failure> {
    let text = text.to_string();
    let mut out = io::stdout().lock();
    match out.write_all(printable(&text).as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Err(Failure::BrokenPipe),
        Err(e) => Err(Failure::about("standard output", e)),
    }
}

/// Prints a formatted line: `say!("{x}")?`.
macro_rules! say {
    ($($t:tt)*) => { $crate::output::line(format_args!($($t)*)) };
}
pub(crate) use say;

/// Lines for people, unless standard output is for a program.
pub struct Text {
    quiet: bool,
    /// What every line begins with.
    prefix: &'static str,
}

impl Text {
    /// Lines beside a report that `--json` asks for, whose file is checked here: none when it goes to standard output.
    pub fn beside(report: &ReportArgs) -> Result<Self, Failure> {
        Ok(Self::beside_results(report, None)?.0)
    }

    /// Lines beside such a report and the results that `--out` asks for. Both files are checked, and must differ.
    pub fn beside_results(report: &ReportArgs, out: Option<&Path>) -> Result<(Self, Option<Output>), Failure> {
        let report = report.json.as_deref().map(Destination::open).transpose()?;
        let out = out.map(Output::create).transpose()?;
        let results = out.as_ref().map(Output::destination);
        if let (Some(results), Some(report)) = (results, &report)
            && results.is_same(report)
        {
            return Err(Failure::Usage("--out and --json name the same file; name another for one of them".to_owned()));
        }
        let quiet = report.as_ref().into_iter().chain(results).any(Destination::is_standard_output);
        Ok((Self { quiet, prefix: "" }, out))
    }

    /// No lines: of a PE that another one speaks for.
    pub fn none() -> Self {
        Self { quiet: true, prefix: "" }
    }

    /// The same, for lines that are not results.
    pub fn commented(of: &Self) -> Self {
        Self { quiet: of.quiet, prefix: "# " }
    }

    /// Prints one line.
    pub fn line(&self, text: fmt::Arguments<'_>) -> Result<(), Failure> {
        if self.quiet { Ok(()) } else { line(format_args!("{}{text}", self.prefix)) }
    }
}

/// The number in `schema` of each JSON document. It grows by one when a key changes its meaning or goes away. Keys carry their units:
/// `_bytes`, `_ns`, `_per_s`.
const SCHEMA: u32 = 1;

/// A JSON document: the command that wrote it, and what the command reports.
#[derive(Serialize)]
struct Document<'a, T: Serialize> {
    schema: u32,
    command: &'static str,
    #[serde(flatten)]
    report: &'a T,
}

/// Writes the report of a command, such as `bench nvme`, as `--json` asks: to standard output for `-`, or where [`Destination`] leads.
pub fn write_json(command: &'static str, report: &impl Serialize, to: &Path) -> Result<(), Failure> {
    let document = Document { schema: SCHEMA, command, report };
    written(Destination::open(to).and_then(|to| {
        to.write(|out| {
            serde_json::to_writer_pretty(&mut *out, &document)?;
            out.write_all(b"\n")
        })
    }))
}

/// Writes results as `--out` asks.
pub fn write_values(values: Values<'_>, ids: &Ids, to: Output) -> Result<(), Failure> {
    match to.finish(ids, values) {
        Err(OutputError::Destination(e)) => written(Err(e)),
        other => Ok(other?),
    }
}

/// Results that nobody reads any more are no failure.
fn written(result: Result<(), DestinationError>) -> Result<(), Failure> {
    result.map_err(|e| if e.is_broken_pipe() { Failure::BrokenPipe } else { e.into() })
}

/// Prints a warning on standard error.
pub fn warn(text: fmt::Arguments<'_>) {
    eprintln!("warning: {}", one_line(&text.to_string()));
}

/// Whether standard error is a terminal, so that a progress bar makes sense.
pub fn has_terminal() -> bool {
    io::stderr().is_terminal()
}

/// Prints what went wrong, and answers the exit code.
pub fn conclude(result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) | Err(Failure::BrokenPipe) => ExitCode::SUCCESS,
        Err(Failure::Error(message)) => {
            eprintln!("error: {}", one_line(&message));
            ExitCode::from(1)
        }
        Err(Failure::Usage(message)) => {
            eprintln!("error: {}", one_line(&message));
            ExitCode::from(2)
        }
        Err(Failure::Status(message, code)) => {
            eprintln!("error: {}", one_line(&message));
            ExitCode::from(code)
        }
    }
}

/// Messages of other libraries may span lines; ours are one.
fn one_line(message: &str) -> String {
    printable(&message.split_whitespace().collect::<Vec<_>>().join(" ")).into_owned()
}

/// Writes control characters, but for line ends and tabs, as `\u{1b}`: names of files, and what devices and files call themselves,
/// must not command the terminal.
pub fn printable(text: &str) -> Cow<'_, str> {
    let commands = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
    if !text.contains(commands) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match commands(c) {
            true => out.extend(c.escape_unicode()),
            false => out.push(c),
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_written_out_and_nothing_else_is() {
        assert_eq!(printable("a\u{1b}[2Jb\u{9b}31m\r\u{7f}"), r"a\u{1b}[2Jb\u{9b}31m\u{d}\u{7f}");
        assert!(matches!(printable("line\n\tnäxt µs"), Cow::Borrowed(_)));
        assert_eq!(one_line("two\nlines \u{1b}]0;title\u{7}"), r"two lines \u{1b}]0;title\u{7}");
    }
}
