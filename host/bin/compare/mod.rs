//! Runs `warpbell compare`: two reports, or two sets of reports of one measurement each, row by row.

mod comparison;

use crate::args::CompareArgs;
use crate::output::{self, Failure, Text};
use crate::reports::{self, Figure, ReadError, Source, Subject, Unit};
use crate::rows::quoted;
use ::warpbell::file_identity::FileIdentity;
use ::warpbell::units::{counted, decimal_rate, si, three_digits};
use comparison::{Comparison, Outcome, Pair};
use serde::Serialize;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A set of reports of one measurement.
#[derive(Clone, Debug, Serialize)]
struct Side {
    reports: Vec<PathBuf>,
    tool: String,
    subject: Subject,
    device: Option<String>,
    #[serde(skip)]
    settings: Vec<(String, String)>,
    #[serde(skip)]
    figures: Vec<Figure>,
}

/// Report of the command.
#[derive(Serialize)]
struct Compared<'a> {
    a: &'a Side,
    b: &'a Side,
    /// Largest difference that counts as none, as a share.
    tolerance: f64,
    notes: &'a [String],
    #[serde(flatten)]
    comparison: &'a Comparison,
}

/// Compares two sets of reports, and prints a row for each figure.
///
/// # Errors
/// [`Failure::Error`] if a report cannot be read, nothing is in both, or a figure is worse.
pub fn run(args: &CompareArgs) -> Result<(), Failure> {
    let (text, csv) = Text::beside_lines(&args.output)?;
    let a = side(&args.a)?;
    let mut b = side(&args.b)?;
    for output in [&args.output.csv, &args.output.report.json].into_iter().flatten() {
        is_no_report(output, a.reports.iter().chain(&b.reports))?;
    }
    rename(&mut b.figures, &args.rows, &a.figures)?;
    let comparison = Comparison::of(&a.figures, &b.figures, args.tolerance.0);
    if comparison.pairs.is_empty() {
        return Err(nothing_in_both(&a, &b));
    }
    let notes = heading(&a, &b, &text)?;
    table(&comparison.pairs, true).iter().try_for_each(|line| text.line(format_args!("{line}")))?;
    for (name, only) in [("A", &comparison.only_a), ("B", &comparison.only_b)] {
        only.iter().try_for_each(|row| text.line(format_args!("# only in {name}: {row}")))?;
    }
    if let Some(to) = csv {
        output::write_lines(to, CSV_HEAD, &lines_of_csv(&comparison.pairs))?;
    }
    if let Some(path) = &args.output.report.json {
        let tolerance = args.tolerance.0;
        output::write_json(
            "compare",
            &Compared { a: &a, b: &b, tolerance, notes: &notes, comparison: &comparison },
            path,
        )?;
    }
    conclude(&comparison, &text)
}

/// Compares two measurements that were made in turn, and prints a row for each figure. No figure is judged: the two are not
/// versions of one program. Returns the comparison for a report.
///
/// # Errors
/// [`Failure::Error`] if no row is in both, [`Failure::BrokenPipe`] if standard output was closed.
pub fn in_turn(a: Source, b: Source, text: &Text) -> Result<Value, Failure> {
    let side = |source: Source| {
        let Source { tool, subject, device, settings, figures, .. } = source;
        Side { reports: Vec::new(), tool, subject, device, settings, figures }
    };
    let (a, b) = (side(a), side(b));
    let comparison = Comparison::of(&a.figures, &b.figures, 0.0);
    if comparison.pairs.is_empty() {
        return Err(nothing_in_both(&a, &b));
    }
    let notes = heading(&a, &b, text)?;
    let lines = table(&comparison.pairs, false);
    lines.iter().try_for_each(|line| text.line(format_args!("{line}")))?;
    let side = |side: &Side| json!({ "tool": side.tool, "subject": side.subject, "device": side.device });
    let mut pairs = serde_json::to_value(&comparison.pairs)?;
    for pair in pairs.as_array_mut().into_iter().flatten().filter_map(Value::as_object_mut) {
        pair.remove("outcome");
    }
    let Comparison { only_a, only_b, .. } = &comparison;
    Ok(json!({ "a": side(&a), "b": side(&b), "notes": notes, "pairs": pairs, "only_a": only_a, "only_b": only_b }))
}

impl std::fmt::Display for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}  {}", self.tool, self.subject)?;
        if let Some(device) = &self.device {
            write!(f, " {device}")?;
        }
        match self.reports.len() {
            0 => Ok(()),
            n => write!(f, "  {}", counted(n, "report", "reports")),
        }
    }
}

/// Returns the files that an argument names: itself, those of a folder, or those between its commas.
fn files(argument: &OsStr) -> Result<Vec<PathBuf>, Failure> {
    let path = Path::new(argument);
    if path.is_dir() {
        let entries = path.read_dir().map_err(|e| Failure::about(path.display(), e))?;
        let mut files: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).filter(|p| p.is_file()).collect();
        files.sort();
        return Ok(files);
    }
    if path.exists() {
        return Ok(vec![path.to_owned()]);
    }
    let parts = argument.as_bytes().split(|byte| *byte == b',').filter(|part| !part.is_empty());
    Ok(parts.map(|part| PathBuf::from(OsStr::from_bytes(part))).collect())
}

fn side(argument: &OsStr) -> Result<Side, Failure> {
    let reports = files(argument)?;
    let mut sources =
        reports.iter().map(|path| Ok((path, reports::read(path)?))).collect::<Result<Vec<_>, ReadError>>()?.into_iter();
    let Some((first, Source { tool, subject, device, settings, mut figures, .. })) = sources.next() else {
        let shown = argument.display();
        return Err(Failure::Error(format!("`{shown}` names no report; name a file, or a folder with files")));
    };
    for (path, source) in sources {
        if source.tool != tool || source.subject != subject {
            return Err(Failure::Error(format!(
                "{} is a report of {}, and {} one of {tool}; reports of one side are of one program and one command",
                path.display(),
                source.tool,
                first.display()
            )));
        }
        source.figures.into_iter().for_each(|figure| figure.add_to(&mut figures));
    }
    Ok(Side { reports, tool, subject, device, settings, figures })
}

/// Checks that an output is none of the files that were named by a folder or a list.
fn is_no_report<'a>(output: &Path, mut reports: impl Iterator<Item = &'a PathBuf>) -> Result<(), Failure> {
    let identity = FileIdentity::of_existing(output);
    match reports.find(|report| identity.is_some() && FileIdentity::of_existing(report) == identity) {
        Some(report) => Err(Failure::Usage(format!(
            "{} would replace the report {}; name another file",
            output.display(),
            report.display()
        ))),
        None => Ok(()),
    }
}

/// Gives rows of the second side the names of the first.
fn rename(figures: &mut [Figure], rows: &[String], of: &[Figure]) -> Result<(), Failure> {
    for pair in rows {
        let Some((a, b)) = pair.split_once('=') else {
            return Err(Failure::Usage(format!("--row {pair}: write the row of A, =, and the row of B")));
        };
        let mut found = figures.iter_mut().filter(|f| f.row == b).peekable();
        if found.peek().is_none() || !of.iter().any(|f| f.row == a) {
            let (which, row) = if of.iter().any(|f| f.row == a) { ("B", b) } else { ("A", a) };
            return Err(Failure::Error(format!(
                "--row {pair}: {which} has no row `{row}`; leave the option out to see the rows"
            )));
        }
        found.for_each(|figure| a.clone_into(&mut figure.row));
    }
    Ok(())
}

fn nothing_in_both(a: &Side, b: &Side) -> Failure {
    let rows = |side: &Side| {
        let mut rows: Vec<String> = side.figures.iter().map(|f| format!("`{}`", f.row)).collect();
        rows.dedup();
        let rest = rows.len().saturating_sub(5);
        rows.truncate(5);
        if rest > 0 { format!("{} and {rest} more", rows.join(", ")) } else { rows.join(", ") }
    };
    Failure::Error(format!(
        "no row is in both: A has {}, B has {}; join two rows by --row 'ROW OF A=ROW OF B', or compare reports of the same measurement",
        rows(a),
        rows(b)
    ))
}

/// Prints what is compared, and returns the notes about it.
fn heading(a: &Side, b: &Side, text: &Text) -> Result<Vec<String>, Failure> {
    for (name, side) in [("A", a), ("B", b)] {
        text.line(format_args!("# {name}  {side}"))?;
    }
    let notes = notes(a, b);
    notes.iter().try_for_each(|note| text.line(format_args!("# {note}")))?;
    Ok(notes)
}

/// Returns what makes a comparison weaker than it looks.
fn notes(a: &Side, b: &Side) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(note) = models(a, b) {
        notes.push(note);
    } else if a.subject != b.subject {
        notes.push(format!("A: {}, B: {}; a ratio of two programs is one of the same device", a.subject, b.subject));
    }
    for (name, of_a) in &a.settings {
        if let Some((_, of_b)) = b.settings.iter().find(|(other, of_b)| other == name && of_b != of_a) {
            notes.push(format!("{name} differs: {of_a} and {of_b}"));
        }
    }
    notes
}

/// Returns the note on a model beside something else.
fn models(a: &Side, b: &Side) -> Option<String> {
    const MEANING: &str = "times and rates of a model are its parameters, so";
    match (a.subject, b.subject) {
        (Subject::Model, Subject::Model) if a.device == b.device => None,
        (Subject::Model, Subject::Model) => {
            Some(format!("A: {}, B: {}; {MEANING} a ratio of two models compares parameters", device(a), device(b)))
        }
        (Subject::Model, other) => {
            Some(format!("A: {}, B: {other}; {MEANING} a ratio says how well the model of A fits", a.subject))
        }
        (other, Subject::Model) => {
            Some(format!("A: {other}, B: {}; {MEANING} a ratio says how well the model of B fits", b.subject))
        }
        _ => None,
    }
}

fn device(side: &Side) -> &str {
    side.device.as_deref().unwrap_or("no device")
}

/// Prints a value with its unit. A put takes fractions of a nanosecond.
fn value(unit: Unit, value: f64) -> String {
    match unit {
        Unit::BytesPerS => decimal_rate(value),
        Unit::PerS => format!("{}/s", si(value)),
        Unit::Ns if value < 1e3 => format!("{} ns", three_digits(value)),
        Unit::Ns if value < 1e6 => format!("{} us", three_digits(value / 1e3)),
        Unit::Ns if value < 1e9 => format!("{} ms", three_digits(value / 1e6)),
        Unit::Ns => format!("{} s", three_digits(value / 1e9)),
    }
}

/// Returns the lines of the table, with the outcome of each row if they are judged.
fn table(pairs: &[Pair], judged: bool) -> Vec<String> {
    let noise = |pair: &Pair| pair.noise.map_or_else(|| "-".to_owned(), |n| format!("{:.1} %", 100.0 * n));
    let head = ["row", "metric", "A", "B", "B/A", "noise", ""].map(str::to_owned);
    let rows: Vec<[String; 7]> = std::iter::once(head)
        .chain(pairs.iter().map(|pair| {
            [
                pair.row.clone(),
                pair.metric.clone(),
                value(pair.unit, pair.a),
                value(pair.unit, pair.b),
                format!("{:.3}", pair.ratio),
                noise(pair),
                if judged { pair.outcome.word().to_owned() } else { String::new() },
            ]
        }))
        .collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..7).map(width).collect();
    let line = |row: &[String; 7]| {
        let cells = row.iter().zip(&widths).enumerate().map(|(i, (cell, &width))| {
            if (2..6).contains(&i) { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

const CSV_HEAD: &str = "row,metric,unit,a,b,ratio,noise,outcome";

fn lines_of_csv(pairs: &[Pair]) -> Vec<String> {
    let line = |pair: &Pair| {
        let Pair { row, metric, unit, a, b, ratio, noise, outcome, .. } = pair;
        let noise = noise.map_or_else(String::new, |n| n.to_string());
        let (row, metric, word) = (quoted(row), quoted(metric), outcome.word().to_lowercase());
        format!("{row},{metric},{unit},{a},{b},{ratio},{noise},{word}")
    };
    pairs.iter().map(line).collect()
}

/// Prints the counts.
fn conclude(comparison: &Comparison, text: &Text) -> Result<(), Failure> {
    let all = counted(comparison.pairs.len(), "figure", "figures");
    let count = |outcome| comparison.count(outcome);
    let unclear = match count(Outcome::Unclear) {
        0 => String::new(),
        n => format!("; {n} unclear: measure more often, by --runs or by more reports"),
    };
    if count(Outcome::Worse) > 0 {
        return Err(Failure::Error(format!("{} of {all} worse than before{unclear}", count(Outcome::Worse))));
    }
    text.line(format_args!("{all}: none worse, {} better{unclear}", count(Outcome::Better)))
}
