//! Chart of rates and latencies over time.

use super::axis::{Axis, Scale};
use super::contents::{Contents, Input, Keyed, Unsuited, divided, left_out};
use super::model::{Form, Line, Panel, Point, Statistic, extremes, retain};
use super::names::Key;
use crate::reports::TimeSeries;

/// Largest number of points of a line: about as many as a chart has pixels. Neighbours are joined beyond it.
const MOST_POINTS: usize = 700;
/// Size of a command in bytes from which on bytes per second say more than commands per second.
const LARGE: f64 = 65_536.0;

/// Draws the rate, and below it the mean latency.
///
/// # Errors
/// The reason if the reports have too much for a chart, or nothing.
pub fn contents(inputs: &[Input]) -> Result<Contents, Unsuited> {
    let mut all: Keyed<Vec<&TimeSeries>> = Keyed::new();
    for input in inputs {
        for series in &input.source.series {
            let (report, labels) = (input.name.clone(), series.labels.clone());
            all.change(Key { report, labels, metric: String::new() }, |of| of.push(series));
        }
    }
    let sizes = || all.keys.iter().map(|key| key.labels.iter().find(|label| label.key == "bytes")?.as_number());
    let has_bytes = all.values.iter().flatten().all(|series| !series.bytes_per_s.is_empty());
    let of_bytes = has_bytes && sizes().all(|bytes| bytes.is_some_and(|bytes| bytes >= LARGE));
    let (mut removed, mut joined) = (0, 0);
    let mut contents = divided(&all.keys, |members| {
        let runs = || members.iter().filter_map(|place| all.values.get(*place)).enumerate();
        let mut lines = |values: fn(&TimeSeries) -> &[Option<f64>]| -> Vec<Line> {
            let line = |(style, runs): (usize, &Vec<&TimeSeries>)| {
                let (points, each) = over_time(runs, values);
                joined = joined.max(each);
                Line { style, statistic: Statistic::Middle, points }
            };
            runs().map(line).collect()
        };
        let mut of_rates = lines(if of_bytes { |of| &of.bytes_per_s } else { |of| &of.iops });
        let mut of_latencies = lines(|of| &of.mean_latency_ns);
        for lines in [&mut of_rates, &mut of_latencies] {
            removed += retain(lines, Scale::Linear, Scale::Linear);
        }
        let end = runs().flat_map(|(_, runs)| runs).map(|of| of.interval_ns * of.iops.len() as f64).fold(0.0, f64::max);
        let panel = |lines: Vec<Line>, y: fn(f64, bool) -> Axis| {
            let [_, max] = extremes(&lines)?;
            Some(Panel { form: Form::Curves, x: Axis::times("Time", end), y: y(max, of_bytes), lines })
        };
        let rate = |max, of_bytes| if of_bytes { Axis::byte_rates(max) } else { Axis::rates("IOPS", max) };
        let above = panel(of_rates, rate);
        above.into_iter().chain(panel(of_latencies, |max, _| Axis::times("Mean latency", max))).collect()
    })?;
    if joined > 1 {
        contents.notes.push(format!("each point is the mean of {joined} intervals"));
    }
    contents.notes.extend(left_out(removed));
    Ok(contents)
}

/// Returns the points of the runs of one row, each in the middle of its time, and the number of intervals in a point.
/// Intervals of another length than the first run's are left out.
fn over_time(runs: &[&TimeSeries], values: fn(&TimeSeries) -> &[Option<f64>]) -> (Vec<Point>, usize) {
    let interval_ns = runs.first().map_or(0.0, |run| run.interval_ns);
    let runs: Vec<&[Option<f64>]> =
        runs.iter().filter(|run| run.interval_ns == interval_ns).map(|run| values(run)).collect();
    let count = runs.iter().map(|run| run.len()).max().unwrap_or(0);
    let each = count.div_ceil(MOST_POINTS).max(1);
    let point = |first: usize| {
        let mean = |run: &&[Option<f64>]| {
            let part: Vec<f64> = run.iter().skip(first).take(each).flatten().copied().collect();
            (!part.is_empty()).then(|| part.iter().sum::<f64>() / part.len() as f64)
        };
        let of_runs: Vec<f64> = runs.iter().filter_map(mean).collect();
        let last = (first + each).min(count);
        Point::of(interval_ns * (first + last) as f64 / 2.0, &of_runs)
    };
    ((0..count).step_by(each).filter_map(point).collect(), each)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(interval_ns: f64, iops: Vec<Option<f64>>) -> TimeSeries {
        TimeSeries { labels: Vec::new(), interval_ns, iops, bytes_per_s: Vec::new(), mean_latency_ns: Vec::new() }
    }

    #[test]
    fn runs_are_a_median_with_a_range_over_time() {
        let first = series(10.0, vec![Some(1.0), Some(2.0), None]);
        let second = series(10.0, vec![Some(3.0), None, None, Some(4.0)]);
        let other = series(20.0, vec![Some(99.0)]);
        let (points, each) = over_time(&[&first, &second, &other], |of| &of.iops);
        let point = |x, y, range| Point { x, y, range };
        assert_eq!(points, [point(5.0, 2.0, Some([1.0, 3.0])), point(15.0, 2.0, None), point(35.0, 4.0, None)]);
        assert_eq!(each, 1);
        assert_eq!(over_time(&[], |of| &of.iops).0, []);
    }

    #[test]
    fn neighbours_of_long_series_are_joined() {
        let long = series(1.0, (0..2001).map(|i| Some(f64::from(i))).collect());
        let (points, each) = over_time(&[&long], |of| &of.iops);
        assert_eq!((points.len(), each), (667, 3));
        assert_eq!((points[0].x, points[0].y), (1.5, 1.0));
        assert_eq!((points[666].x, points[666].y), (1999.5, 1999.0));
    }
}
