//! Chart of rates and latencies over a swept number, or by rows where no number was swept.

use super::axis::{Axis, Scale};
use super::contents::{Contents, Input, Keyed, Unsuited, divided, left_out};
use super::metrics::{Latencies, Rates, capital, point};
use super::model::{Form, Line, Panel, Point, Statistic, extremes, retain};
use super::names::{Key, names, shortened};
use crate::reports::{Figure, Label};
use std::collections::BTreeSet;
use warpbell::units::counted;

/// Largest number of rows in a panel that has no swept number.
const MOST_ROWS: usize = 24;
/// Longest name of such a row.
const LONGEST_ROW: usize = 32;
/// Labels that can be an axis. Of labels that have equally many values, the first is one.
const AXES: [&str; 18] = [
    "iodepth",
    "sms",
    "bytes",
    "depth",
    "blocks",
    "queues",
    "submitters",
    "threads",
    "lanes",
    "row_bytes",
    "batch",
    "rows",
    "in_flight",
    "warps",
    "queue_pairs",
    "tx_depth",
    "post_list",
    "cq_mod",
];
/// Labels that are the bytes of one operation: its rates are in bytes.
const SIZES: [&str; 2] = ["bytes", "row_bytes"];

/// Figures of a report that have the same labels.
struct Row<'a> {
    report: &'a str,
    labels: &'a [Label],
    figures: Vec<&'a Figure>,
}

impl Row<'_> {
    fn number(&self, key: &str) -> Option<f64> {
        self.labels.iter().find(|label| label.key == key)?.as_number()
    }

    /// Returns the labels without some.
    fn without(&self, left_out: &[&str]) -> Vec<Label> {
        self.labels.iter().filter(|label| !left_out.contains(&label.key.as_str())).cloned().collect()
    }
}

fn rows(inputs: &[Input]) -> Vec<Row<'_>> {
    let mut rows: Vec<Row<'_>> = Vec::new();
    for input in inputs {
        let first = rows.len();
        for figure in &input.source.figures {
            match rows[first..].iter_mut().find(|row| row.labels == figure.labels) {
                Some(row) => row.figures.push(figure),
                None => rows.push(Row { report: &input.name, labels: &figure.labels, figures: vec![figure] }),
            }
        }
    }
    rows
}

/// Returns true if a number was swept in a report.
pub fn is_swept(inputs: &[Input]) -> bool {
    axis(inputs, &rows(inputs)).is_some()
}

/// Draws rates and latencies over the swept number, or by rows.
///
/// # Errors
/// The reason if the reports have too much for a chart, or nothing.
pub fn contents(inputs: &[Input]) -> Result<Contents, Unsuited> {
    let rows = rows(inputs);
    match axis(inputs, &rows) {
        Some(key) => lines(inputs, &rows, &key),
        None => dots(&rows),
    }
}

/// Returns the key of the label that has the most values in one report: among those that reports say were swept, or
/// among those that may be.
fn axis(inputs: &[Input], rows: &[Row<'_>]) -> Option<String> {
    let count = |key: &str| {
        let of_report = |input: &Input| {
            let of_rows = rows.iter().filter(|row| row.report == input.name).filter_map(|row| row.number(key));
            of_rows.map(f64::to_bits).collect::<BTreeSet<u64>>().len()
        };
        inputs.iter().map(of_report).max().unwrap_or(0)
    };
    let preferred = |key: &str| AXES.iter().position(|known| *known == key).unwrap_or(AXES.len());
    let best = |keys: Vec<&str>| {
        let several = keys.into_iter().filter(|key| count(key) > 1);
        several.min_by_key(|key| (std::cmp::Reverse(count(key)), preferred(key))).map(str::to_owned)
    };
    let swept = inputs.iter().flat_map(|input| &input.source.swept).map(String::as_str).collect();
    best(swept).or_else(|| best(AXES.to_vec()))
}

/// Axis on which rows have a place, and how they are drawn along it.
struct Across<'a> {
    form: Form,
    scale: Scale,
    /// Makes the axis for some of the places.
    axis: &'a dyn Fn(&[f64]) -> Option<Axis>,
    /// True if rows of different sizes are compared.
    of_sizes: bool,
    /// Returns the labels of a row that tell its line from others.
    labels: &'a dyn Fn(&Row<'_>) -> Vec<Label>,
}

/// Draws a line for each setting that the axis does not show.
fn lines(inputs: &[Input], rows: &[Row<'_>], key: &str) -> Result<Contents, Unsuited> {
    // A barrier has a size of zero, which is none.
    let is_count = AXES.contains(&key);
    let number = |row: &Row<'_>| row.number(key).filter(|number| !is_count || *number > 0.0);
    let placed: Vec<(f64, &Row<'_>)> = rows.iter().filter_map(|row| Some((number(row)?, row))).collect();
    let (told, title) = (told_by(key, &placed), title(key, inputs));
    let scale = if is_count { Scale::Log2 } else { Scale::Linear };
    let mut contents = drawn(
        &placed,
        &Across {
            form: Form::Lines,
            scale,
            axis: &|values| Axis::swept(&title, key, values, scale),
            of_sizes: SIZES.contains(&key),
            labels: &|row| row.without(&told),
        },
    )?;
    if placed.len() < rows.len() {
        let without = counted(rows.len() - placed.len(), "row", "rows");
        contents.notes.push(format!("left out: {without} without {}", key.replace('_', " ")));
    }
    Ok(contents)
}

/// Draws a marker for each row.
fn dots(rows: &[Row<'_>]) -> Result<Contents, Unsuited> {
    let mut kinds: Vec<&[Label]> = Vec::new();
    for row in rows {
        if !kinds.contains(&row.labels) {
            kinds.push(row.labels);
        }
    }
    if kinds.len() > MOST_ROWS {
        return Err(Unsuited::Rows(kinds.len()));
    }
    let key = |labels: &&[Label]| Key { report: String::new(), labels: labels.to_vec(), metric: String::new() };
    let named = names(&kinds.iter().map(key).collect::<Vec<_>>());
    let labels: Vec<String> = named.lines.iter().map(|name| shortened(name, LONGEST_ROW)).collect();
    let place = |row: &Row<'_>| kinds.iter().rev().position(|labels| *labels == row.labels).unwrap_or(0) as f64;
    let placed: Vec<(f64, &Row<'_>)> = rows.iter().map(|row| (place(row), row)).collect();
    let contents = drawn(
        &placed,
        &Across {
            form: Form::Dots,
            scale: Scale::Linear,
            axis: &|_| Some(Axis::rows(&labels)),
            of_sizes: false,
            labels: &|_| Vec::new(),
        },
    )?;
    Ok(Contents { common: named.common, ..contents })
}

/// Points of one line.
#[derive(Default)]
struct Points {
    rates: Vec<Point>,
    medians: Vec<Point>,
    p99: Vec<Point>,
}

/// Draws a panel of rates, and below it one of latencies, where the rows have them.
fn drawn(placed: &[(f64, &Row<'_>)], across: &Across<'_>) -> Result<Contents, Unsuited> {
    let figures: Vec<&Figure> = placed.iter().flat_map(|(_, row)| row.figures.iter().copied()).collect();
    let (rates, latencies) = (Rates::of(&figures, across.of_sizes), Latencies::of(&figures));
    let mut all: Keyed<Points> = Keyed::new();
    for (x, row) in placed {
        let key = |metric| Key { report: row.report.to_owned(), labels: (across.labels)(row), metric };
        for figure in &row.figures {
            let Some(point) = point(*x, &figure.samples) else { continue };
            if let Some(rates) = rates.as_ref().filter(|rates| rates.has(figure)) {
                all.change(key(rates.name(figure)), |points| points.rates.push(point));
            } else if let Some((name, statistic)) = latencies.as_ref().and_then(|latencies| latencies.find(figure)) {
                all.change(key(name), |points| match statistic {
                    Statistic::Middle => points.medians.push(point),
                    Statistic::P99 => points.p99.push(point),
                });
            }
        }
    }
    for Points { rates, medians, p99 } in &mut all.values {
        [rates, medians, p99].into_iter().for_each(|points| points.sort_by(|a, b| a.x.total_cmp(&b.x)));
    }
    let mut removed = 0;
    let mut contents = divided(&all.keys, |members| {
        let lines = |statistic: Statistic, points: fn(&Points) -> &[Point]| -> Vec<Line> {
            let of_key = members.iter().filter_map(|place| all.values.get(*place)).enumerate();
            of_key.map(|(style, of)| Line { style, statistic, points: points(of).to_vec() }).collect()
        };
        let mut of_rates = lines(Statistic::Middle, |of| &of.rates);
        let mut of_latencies = lines(Statistic::Middle, |of| &of.medians);
        of_latencies.extend(lines(Statistic::P99, |of| &of.p99));
        let scale = Latencies::scale(extremes(&of_latencies));
        removed += retain(&mut of_rates, across.scale, Scale::Linear);
        removed += retain(&mut of_latencies, across.scale, scale);
        let points = of_rates.iter().chain(&of_latencies).flat_map(|line| &line.points);
        let Some(x) = (across.axis)(&points.map(|point| point.x).collect::<Vec<_>>()) else { return Vec::new() };
        let panel = |lines, y: Option<Axis>| Some(Panel { form: across.form, x: x.clone(), y: y?, lines });
        let y = extremes(&of_rates).and_then(|[_, max]| Some(rates.as_ref()?.axis(max)));
        let above = panel(of_rates, y);
        let y = extremes(&of_latencies).and_then(|ends| Some(latencies.as_ref()?.axis(scale, ends)));
        above.into_iter().chain(panel(of_latencies, y)).collect()
    })?;
    contents.notes.extend(left_out(removed));
    Ok(contents)
}

/// Returns the labels that do not tell lines apart: the axis, and numbers that its value tells, as in a benchmark with
/// two submitters for each queue.
fn told_by<'a>(axis: &'a str, rows: &[(f64, &Row<'a>)]) -> Vec<&'a str> {
    let mut keys: Vec<&'a str> = Vec::new();
    for label in rows.iter().flat_map(|(_, row)| row.labels) {
        // Names of jobs only repeat what their settings say.
        let is_droppable = label.as_number().is_some() || label.key == "job";
        if is_droppable && label.key != axis && !keys.contains(&label.key.as_str()) {
            keys.push(&label.key);
        }
    }
    let different = |left_out: &[&str]| {
        let words = |row: &Row<'_>| row.without(left_out).iter().map(Label::words).collect::<Vec<_>>();
        let all = rows.iter().map(|(x, row)| (row.report, x.to_bits(), words(row)));
        all.collect::<BTreeSet<_>>().len()
    };
    let is_constant = |key: &str| {
        let mut values = rows.iter().map(|(_, row)| row.labels.iter().find(|label| label.key == key));
        let first = values.next();
        values.all(|value| Some(value) == first)
    };
    let mut told = vec![axis];
    for key in keys.into_iter().rev().filter(|key| !is_constant(key)) {
        let mut more = told.clone();
        more.push(key);
        if different(&more) == rows.len() {
            told = more;
        }
    }
    told
}

fn title(axis: &str, inputs: &[Input]) -> String {
    let commands = || inputs.iter().map(|input| input.source.command.as_str());
    match axis {
        "iodepth" => "Queue depth".to_owned(),
        "sms" => "Multiprocessors".to_owned(),
        "tx_depth" => "TX depth".to_owned(),
        "cq_mod" => "CQ moderation".to_owned(),
        "inline_bytes" => "Inline size".to_owned(),
        "bytes" if commands().all(|command| ["bench nvme", "fio"].contains(&command)) => "Block size".to_owned(),
        "bytes" if commands().all(|command| command == "bench rdma") => "Message size".to_owned(),
        "bytes" => "Size".to_owned(),
        "row_bytes" => "Row size".to_owned(),
        other => capital(&other.strip_suffix("_bytes").unwrap_or(other).replace('_', " ")),
    }
}
