//! Writes to standard output and standard error, and sets the exit code.

use crate::args::{ReportArgs, RowsArgs};
use crate::remedy;
use crate::reports::SCHEMA;
use crate::rows::Rows;
use crate::terminal::{self, Stream};
use serde::Serialize;
use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::path::Path;
use warpbell::destination::{Destination, DestinationError};
use warpbell::graph::Ids;
use warpbell::graph::output::{Output, OutputError, Written};
use warpbell::units::{Bytes, counted};

/// Reason why the program ends early.
#[derive(Debug)]
pub enum Failure {
    /// One line on standard error, exit code 1.
    Error(String),
    /// The arguments contradict each other in a way that clap's grammar cannot express: one line, exit code 2.
    Usage(String),
    /// One line, and the exit code given here.
    Status(String, u8),
    /// Each error has been printed when it occurred: nothing more is printed, and the exit code is the one given here.
    Printed(u8),
    /// The reader of standard output has closed it: nothing is printed, exit code 0.
    BrokenPipe,
}

impl<E: Error + 'static> From<E> for Failure {
    fn from(e: E) -> Self {
        Self::Error(with_remedy(&e))
    }
}

/// Returns an error as the program prints it: with its remedies, as options.
pub fn with_remedy(e: &(dyn Error + 'static)) -> String {
    // An error names its cause itself (`{source}`), so the chain is not printed again.
    match remedy::of(e) {
        Some(remedies) => format!("{e}; {remedies}"),
        None => e.to_string(),
    }
}

impl Failure {
    /// Returns an error that names its subject: `what: e`.
    pub fn about(what: impl fmt::Display, e: impl fmt::Display) -> Self {
        Self::Error(format!("{what}: {e}"))
    }
}

/// Prints one line on standard output.
///
/// # Errors
/// [`Failure::BrokenPipe`] if standard output was closed, [`Failure::Error`] if it cannot be written.
pub fn line(text: fmt::Arguments<'_>) -> Result<(), Failure> {
    let text = text.to_string();
    plain_or_styled(&Stream::Out.fitted(&printable(&text)))
}

/// Prints one line of a report on standard output: see [`Stream::report`].
///
/// # Errors
/// [`Failure::BrokenPipe`] if standard output was closed, [`Failure::Error`] if it cannot be written.
pub fn report_line(text: fmt::Arguments<'_>) -> Result<(), Failure> {
    plain_or_styled(&Stream::Out.report(&printable(&text.to_string())))
}

/// Prints a line that may have colours, which the caller has put into text that is safe to print.
///
/// # Errors
/// [`Failure::BrokenPipe`] if the reader has closed standard output, [`Failure::Error`] if it cannot be written.
pub fn plain_or_styled(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush()) {
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

/// Prints a formatted line of a report: `report!("{x}")?`.
macro_rules! report {
    ($($t:tt)*) => { $crate::output::report_line(format_args!($($t)*)) };
}
pub(crate) use report;

/// Text output of a command; silent if standard output carries a report or results for a program.
pub struct Text {
    quiet: bool,
    /// Text at the start of every line.
    prefix: &'static str,
    /// True if the lines are those of a report.
    is_report: bool,
}

impl Text {
    /// Returns the text output beside a report that `--json` requests; silent if the report goes to standard output.
    /// Checks that the report's file can be written.
    ///
    /// # Errors
    /// [`Failure::Error`] if the file cannot be written.
    pub fn beside(report: &ReportArgs) -> Result<Self, Failure> {
        Ok(Self::beside_results(report, None)?.0)
    }

    /// Returns the text output beside such a report and the results that `--out` requests, and the opened results.
    ///
    /// # Errors
    /// [`Failure::Error`] if a file cannot be written.
    pub fn beside_results(report: &ReportArgs, out: Option<&Path>) -> Result<(Self, Option<Output>), Failure> {
        let report = report.json.as_deref().map(Destination::open).transpose()?;
        let out = out.map(Output::create).transpose()?;
        let results = out.as_ref().map(Output::destination);
        let quiet = report.as_ref().into_iter().chain(results).any(Destination::is_standard_output);
        Ok((Self { quiet, prefix: "", is_report: false }, out))
    }

    /// Returns the text output beside a report and lines for a program (`--csv`), and the opened lines.
    ///
    /// # Errors
    /// [`Failure::Error`] if a file cannot be written.
    pub fn beside_lines(output: &RowsArgs) -> Result<(Self, Option<Destination>), Failure> {
        let lines = output.csv.as_deref().map(Destination::open).transpose()?;
        let mut text = Self::beside(&output.report)?;
        text.quiet |= lines.as_ref().is_some_and(Destination::is_standard_output);
        Ok((text, lines))
    }

    /// Returns the text output of a measurement, as a report: silent if rows or the JSON report go to standard output.
    ///
    /// # Errors
    /// [`Failure::Error`] if a file cannot be written.
    pub fn of_measurement(output: &RowsArgs) -> Result<Self, Failure> {
        Ok(Self::beside_lines(output)?.0.report())
    }

    /// Returns the text output beside this destination: silent if the destination is standard output.
    pub fn beside_output(to: &Destination) -> Self {
        Self { quiet: to.is_standard_output(), prefix: "", is_report: false }
    }

    /// Returns a silent output, for a PE whose results another PE prints.
    pub fn none() -> Self {
        Self { quiet: true, prefix: "", is_report: false }
    }

    /// Returns an output like `of` whose lines begin with `# `, for lines that are not results.
    pub fn commented(of: &Self) -> Self {
        Self { prefix: "# ", ..*of }
    }

    /// Makes the output a report, whose lines are wrapped also in files and pipes: see [`Stream::report`].
    pub fn report(self) -> Self {
        Self { is_report: true, ..self }
    }

    /// Prints one line unless the output is silent.
    ///
    /// # Errors
    /// [`Failure::BrokenPipe`] if standard output was closed, [`Failure::Error`] if it cannot be written.
    pub fn line(&self, text: fmt::Arguments<'_>) -> Result<(), Failure> {
        match (self.quiet, self.is_report) {
            (true, _) => Ok(()),
            (false, true) => report_line(format_args!("{}{text}", self.prefix)),
            (false, false) => line(format_args!("{}{text}", self.prefix)),
        }
    }
}

/// JSON document: the name of the command that wrote it, and the command's report.
#[derive(Serialize)]
struct Document<'a, T: Serialize> {
    schema: u32,
    command: &'static str,
    #[serde(flatten)]
    report: &'a T,
}

/// Writes the report of a command, such as `bench nvme`, as `--json` asks: to standard output for `-`, else to the
/// [`Destination`] that `to` names.
///
/// # Errors
/// [`Failure::BrokenPipe`] if standard output was closed, [`Failure::Error`] if the report cannot be written.
pub fn write_json(command: &'static str, report: &impl Serialize, to: &Path) -> Result<(), Failure> {
    write_document(&Document { schema: SCHEMA, command, report }, to)
}

/// Returns the report of a command as [`write_json`] writes it.
///
/// # Errors
/// [`serde_json::Error`] if it cannot be serialised.
pub fn document(command: &'static str, report: &impl Serialize) -> serde_json::Result<serde_json::Value> {
    serde_json::to_value(Document { schema: SCHEMA, command, report })
}

/// Writes a JSON document of another program's shape, as [`write_json`] writes a report.
///
/// # Errors
/// As [`write_json`].
pub fn write_document(document: &impl Serialize, to: &Path) -> Result<(), Failure> {
    written(Destination::open(to).and_then(|to| {
        to.write(|out| {
            serde_json::to_writer_pretty(&mut *out, document)?;
            out.write_all(b"\n")
        })
    }))
}

/// Writes lines for a program, as `--csv` asks, below a line that names their columns.
///
/// # Errors
/// [`Failure::BrokenPipe`] if standard output was closed, [`Failure::Error`] if the lines cannot be written.
pub fn write_lines(to: Destination, head: &str, lines: &[String]) -> Result<(), Failure> {
    written(to.write(|out| {
        writeln!(out, "{head}")?;
        lines.iter().try_for_each(|line| writeln!(out, "{line}"))
    }))
}

/// Writes the rows of a measurement, as `--csv` asks: to standard output for `-`, else to the [`Destination`] that `to`
/// names.
///
/// # Errors
/// [`Failure::BrokenPipe`] if standard output was closed, [`Failure::Error`] if the rows cannot be written.
pub fn write_rows(rows: &Rows, to: &Path) -> Result<(), Failure> {
    let (head, lines) = rows.lines();
    write_lines(Destination::open(to)?, &head, &lines)
}

/// Writes results, each with its source if lines name it, as `--out` asks.
///
/// # Errors
/// [`Failure::BrokenPipe`] if the reader has closed the output, [`Failure::Error`] if the results cannot be written.
pub fn write_values(results: &[Written<'_>], ids: &Ids, to: Output) -> Result<(), Failure> {
    match to.finish_all(ids, results) {
        Err(OutputError::Destination(e)) => written(Err(e)),
        other => Ok(other?),
    }
}

/// Converts a result of writing: a closed pipe becomes [`Failure::BrokenPipe`], which is no error of the program.
///
/// # Errors
/// [`Failure::BrokenPipe`] or [`Failure::Error`].
pub fn written(result: Result<(), DestinationError>) -> Result<(), Failure> {
    result.map_err(|e| if e.is_broken_pipe() { Failure::BrokenPipe } else { e.into() })
}

/// Prints a warning on standard error.
pub fn warn(text: fmt::Arguments<'_>) {
    complain("warning", &text.to_string());
}

/// Returns true if standard error is a terminal, so that a progress bar makes sense.
pub fn has_terminal() -> bool {
    io::stderr().is_terminal()
}

/// Prints the error of a failed command and returns the exit code.
pub fn conclude(result: Result<(), Failure>) -> u8 {
    match result {
        Ok(()) | Err(Failure::BrokenPipe) => 0,
        Err(Failure::Printed(code)) => code,
        Err(Failure::Error(message)) => {
            complain("error", &with_limit(message));
            1
        }
        Err(Failure::Usage(message)) => {
            complain("error", &message);
            2
        }
        Err(Failure::Status(message, code)) => {
            complain("error", &message);
            code
        }
    }
}

/// Text by which a refusal for lack of memory is known.
const NO_MEMORY: &str = " of memory";
/// Option of a shell that limits addresses, which some messages name themselves.
const ADDRESSES: &str = "ulimit -v";
/// Text by which the system's error of a thread or process that cannot be started is known (EAGAIN).
const NO_THREAD: &str = "(os error 11)";

/// Adds the limits that the user has set to the message of a command that could not start a thread, or lacks memory.
fn with_limit(message: String) -> String {
    let limit = |resource| {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: `limit` lives for the call.
        let is_known = unsafe { libc::getrlimit(resource, &mut limit) } == 0;
        (is_known && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
    };
    let of_user = limit(libc::RLIMIT_NPROC)
        .map(|n| format!("{} of this user (ulimit -u)", counted(n, "process or thread", "processes and threads")));
    // Each thread takes addresses for its stack.
    let of_addresses = limit(libc::RLIMIT_AS).map(|n| format!("{} of addresses ({ADDRESSES})", Bytes(n)));
    if message.contains(NO_MEMORY)
        && !message.contains(ADDRESSES)
        && let Some(limit) = &of_addresses
    {
        return format!("{message}; the limit of this process is {limit}, of which its threads take a part: raise it");
    }
    if !message.contains(NO_THREAD) {
        return message;
    }
    let limits: Vec<String> = of_user.into_iter().chain(of_addresses).collect();
    let limits = match &limits[..] {
        [] => "the number of processes here (pids.max of the control group)".to_owned(),
        some => some.join(", "),
    };
    format!("{message}; the limit is {limits}: raise it, or end other processes")
}

/// Prints a line on standard error.
fn complain(kind: &str, message: &str) {
    eprintln!("{}", Stream::Error.fitted(&format!("{kind}: {}", one_line(message))));
}

/// Prints a report of checks, with colours if standard output is a terminal.
///
/// # Errors
/// [`Failure::BrokenPipe`] if the reader has closed standard output, [`Failure::Error`] if it cannot be written.
pub fn checks(report: &str) -> Result<(), Failure> {
    let text = Stream::Out.report(&printable(report));
    plain_or_styled(&if Stream::Out.has_colour() { terminal::coloured_states(&text) } else { text })
}

/// Joins the lines of a message: messages of other libraries may span several lines.
fn one_line(message: &str) -> String {
    printable(&message.split_whitespace().collect::<Vec<_>>().join(" ")).into_owned()
}

/// Replaces control characters other than line ends and tabs by escapes such as `\u{1b}`. Names of files, and strings
/// that devices and files contain, must not control the terminal.
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
