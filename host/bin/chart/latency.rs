//! Chart of the distribution of latencies: latency over percentile.

use super::axis::{Axis, Scale};
use super::contents::{Contents, Input, Keyed, Unsuited, divided, left_out};
use super::model::{Form, Line, Panel, Point, Statistic, extremes, retain};
use super::names::Key;
use crate::reports::Distribution;

/// Draws one panel.
///
/// # Errors
/// The reason if the reports have too much for a chart, or nothing.
pub fn contents(inputs: &[Input]) -> Result<Contents, Unsuited> {
    let mut all: Keyed<Vec<&Distribution>> = Keyed::new();
    for input in inputs {
        for distribution in &input.source.distributions {
            let (report, labels) = (input.name.clone(), distribution.labels.clone());
            all.change(Key { report, labels, metric: String::new() }, |runs| runs.push(distribution));
        }
    }
    let mut removed = 0;
    let mut contents = divided(&all.keys, |members| {
        let runs = members.iter().filter_map(|place| all.values.get(*place)).enumerate();
        let line = |(style, runs): (usize, &Vec<&Distribution>)| Line {
            style,
            statistic: Statistic::Middle,
            points: by_percentile(runs),
        };
        let mut lines: Vec<Line> = runs.map(line).collect();
        removed += retain(&mut lines, Scale::Nines, Scale::Log10);
        let percentiles = lines.iter().flat_map(|line| &line.points).map(|point| point.x);
        let highest = percentiles.fold(0.0, f64::max);
        let Some(ends) = extremes(&lines) else { return Vec::new() };
        let (x, y) = (Axis::percentiles(highest), Axis::log_times("Latency", ends));
        vec![Panel { form: Form::Curves, x, y, lines }]
    })?;
    contents.notes.extend(left_out(removed));
    Ok(contents)
}

/// Returns a point for each percentile of the runs of one row. The maximum has no place on a scale of nines.
fn by_percentile(runs: &[&Distribution]) -> Vec<Point> {
    let mut percentiles: Vec<f64> = runs.iter().flat_map(|run| &run.percentiles).map(|(percent, _)| *percent).collect();
    percentiles.sort_by(f64::total_cmp);
    percentiles.dedup();
    let point = |percent: f64| {
        let pairs = runs.iter().flat_map(|run| &run.percentiles);
        let of_runs: Vec<f64> = pairs.filter(|(other, _)| *other == percent).map(|(_, ns)| *ns).collect();
        Point::of(percent, &of_runs)
    };
    percentiles.into_iter().filter(|percent| *percent < 100.0).filter_map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_a_median_with_a_range_at_each_percentile() {
        let run = |percentiles: &[(f64, f64)]| Distribution { labels: Vec::new(), percentiles: percentiles.to_vec() };
        let runs = [run(&[(50.0, 4.0), (99.0, 9.0), (100.0, 50.0)]), run(&[(50.0, 6.0), (99.9, 11.0)])];
        let points = by_percentile(&runs.iter().collect::<Vec<_>>());
        let point = |x, y, range| Point { x, y, range };
        assert_eq!(points, [point(50.0, 5.0, Some([4.0, 6.0])), point(99.0, 9.0, None), point(99.9, 11.0, None)]);
    }
}
