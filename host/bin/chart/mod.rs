//! Runs `warpbell chart`: draws reports as SVG.

mod axis;
mod contents;
mod coordinate;
mod describe;
mod draw;
mod latency;
mod layout;
mod marker;
mod metrics;
mod model;
mod names;
mod subject;
mod svg;
mod sweep;
#[cfg(test)]
mod tests;
mod time;

use crate::args::{ChartArgs, ChartKind};
use crate::output::{Failure, written};
use crate::reports;
use contents::{Contents, Input, Unsuited};
use model::{Chart, MOST_LINES};
use serde_json::Value;
use std::ffi::OsString;
use std::path::Path;
use warpbell::destination::Destination;

/// Draws the reports of files.
///
/// # Errors
/// [`Failure::Error`] if a file is no report, the reports do not fit together or into a chart of this kind, or the chart
/// cannot be written. [`Failure::BrokenPipe`] if standard output was closed.
pub fn run(args: &ChartArgs) -> Result<(), Failure> {
    let read = |name: &OsString| {
        let path = Path::new(name);
        Ok((path.display().to_string(), reports::document_of(path)?))
    };
    write(&args.output, &args.reports.iter().map(read).collect::<Result<Vec<_>, Failure>>()?, args.kind)
}

/// Draws reports that are in memory, as `--json` would write them, to a file, or to standard output if `path` is `-`. Each
/// has a name, which is that of its file if there is one: it names the lines if there are several reports.
///
/// # Errors
/// [`Failure::Error`] if the reports do not fit together or into a chart of this kind, or the chart cannot be written.
/// [`Failure::BrokenPipe`] if standard output was closed.
pub fn write(path: &Path, reports: &[(String, Value)], kind: ChartKind) -> Result<(), Failure> {
    let read = |(name, document): &(String, Value)| {
        Ok(Input { name: name.clone(), source: reports::of_document(name, document)? })
    };
    let inputs = reports.iter().map(read).collect::<Result<Vec<_>, Failure>>()?;
    let text = draw::draw(&chart(inputs, kind).map_err(Failure::Error)?)?;
    written(Destination::open(path).and_then(|to| to.write(|out| out.write_all(text.as_bytes()))))
}

/// Returns the chart of reports.
fn chart(mut inputs: Vec<Input>, kind: ChartKind) -> Result<Chart, String> {
    is_one_command(&inputs)?;
    let names: Vec<String> = inputs.iter().map(|input| input.name.clone()).collect();
    inputs.iter_mut().zip(subject::short_names(&names)).for_each(|(input, short)| input.name = short);
    let kind = match kind {
        ChartKind::Auto => suited(&inputs),
        kind => has_kind(&inputs, &names, kind).map(|()| kind)?,
    };
    let contents = match kind {
        ChartKind::Time => time::contents(&inputs),
        ChartKind::Latency => latency::contents(&inputs),
        ChartKind::Sweep | ChartKind::Auto => sweep::contents(&inputs),
    };
    let Contents { groups, common, mut notes } = contents.map_err(|reason| message(&names, &reason))?;
    notes.extend(contents::not_finite(inputs.iter().map(|input| input.source.missing).sum()));
    notes.sort();
    notes.dedup();
    let mut facts = subject::facts(&inputs);
    facts.extend((!common.is_empty()).then(|| common.join(", ")));
    Ok(Chart { title: subject::title(&inputs), facts, groups, notes })
}

/// Checks that the figures of all reports mean the same: those of one command, or of fio and of the command in its terms.
fn is_one_command(inputs: &[Input]) -> Result<(), String> {
    let command = |input: &Input| match input.source.command.as_str() {
        "fio" => "bench nvme".to_owned(),
        other => other.to_owned(),
    };
    let Some(first) = inputs.first() else { return Err("no report is given; name one".to_owned()) };
    match inputs.iter().find(|input| command(input) != command(first)) {
        Some(other) => Err(format!(
            "{} is a report of {}, and {} one of {}; draw each command's reports by themselves",
            first.name, first.source.command, other.name, other.source.command
        )),
        None => Ok(()),
    }
}

/// Chooses the kind of chart that shows most of what all reports have.
fn suited(inputs: &[Input]) -> ChartKind {
    let all = |has: fn(&Input) -> bool| inputs.iter().all(has);
    if sweep::is_swept(inputs) {
        ChartKind::Sweep
    } else if all(has_series) {
        ChartKind::Time
    } else if all(has_distribution) {
        ChartKind::Latency
    } else {
        ChartKind::Sweep
    }
}

fn has_series(input: &Input) -> bool {
    let series = || input.source.series.iter();
    series().flat_map(|series| &series.iops).flatten().count() > 1
}

fn has_distribution(input: &Input) -> bool {
    input.source.distributions.iter().any(|distribution| distribution.percentiles.len() > 1)
}

/// Checks that each report has what this kind of chart shows.
fn has_kind(inputs: &[Input], names: &[String], kind: ChartKind) -> Result<(), String> {
    let (has, what): (fn(&Input) -> bool, _) = match kind {
        ChartKind::Time => (has_series, "time series"),
        ChartKind::Latency => (has_distribution, "latency percentiles"),
        ChartKind::Sweep | ChartKind::Auto => return Ok(()),
    };
    match inputs.iter().zip(names).find(|(input, _)| !has(input)) {
        Some((input, name)) => {
            let tool = &input.source.tool;
            Err(format!("{name}: this report of {tool} has no {what}; --kind auto draws what it has"))
        }
        None => Ok(()),
    }
}

/// Returns the message of reports that cannot be drawn.
fn message(names: &[String], reason: &Unsuited) -> String {
    let names = names.join(", ");
    match reason {
        Unsuited::Lines(count) => format!(
            "{names}: {count} lines are too many for a chart, whose panels have {MOST_LINES} each; draw fewer reports, or sweep fewer values"
        ),
        Unsuited::Rows(count) => {
            format!("{names}: {count} rows without a swept number are too many for a chart; measure fewer at once")
        }
        Unsuited::Nothing => {
            format!("{names}: no figure has a value that can be drawn; measure again, or name another report")
        }
    }
}
