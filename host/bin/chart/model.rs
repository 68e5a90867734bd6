//! Contents of a chart, before it is drawn: panels with axes and lines.

use super::axis::{Axis, Scale};

/// Largest number of lines that can be told apart in one panel.
pub const MOST_LINES: usize = 8;

/// A chart of one or several reports.
#[derive(Clone, Debug)]
pub struct Chart {
    /// Command and engine.
    pub title: String,
    /// Lines below the title: subject of the measurement, and settings that all lines have.
    pub facts: Vec<String>,
    pub groups: Vec<Group>,
    /// Lines below the panels.
    pub notes: Vec<String>,
}

/// Panels with one legend.
#[derive(Clone, Debug)]
pub struct Group {
    /// Settings of these lines that lines of other groups do not have.
    pub heading: Option<String>,
    /// Names of lines, by style.
    pub legend: Vec<String>,
    pub panels: Vec<Panel>,
}

/// A pair of axes with its lines.
#[derive(Clone, Debug)]
pub struct Panel {
    pub form: Form,
    pub x: Axis,
    pub y: Axis,
    pub lines: Vec<Line>,
}

/// Form in which the points of a panel are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Markers on lines. A range is a vertical bar.
    Lines,
    /// Lines through many points. Ranges are a band.
    Curves,
    /// Markers without lines. The x axis is the vertical one, and a range is a horizontal bar.
    Dots,
}

/// Points of one line.
#[derive(Clone, Debug)]
pub struct Line {
    /// Place in the legend.
    pub style: usize,
    pub statistic: Statistic,
    pub points: Vec<Point>,
}

/// Value of a distribution that a line shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statistic {
    /// Median, or the only value that there is.
    Middle,
    P99,
}

/// A point, in values of the axes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    pub x: f64,
    pub y: f64,
    /// Minimum and maximum of several measurements.
    pub range: Option<[f64; 2]>,
}

impl Point {
    /// Returns the point with the median of measurements, of which there is one at least.
    pub fn of(x: f64, values: &[f64]) -> Option<Self> {
        let spread = crate::workloads::spread::Spread::of(values.iter().copied())?;
        let range = (spread.min < spread.max).then_some([spread.min, spread.max]);
        Some(Self { x, y: spread.median, range })
    }
}

/// Removes the points that the scales cannot show, and lines without points. Returns the number of removed points.
pub fn retain(lines: &mut Vec<Line>, x: Scale, y: Scale) -> u64 {
    let mut removed = 0;
    for line in lines.iter_mut() {
        let before = line.points.len();
        line.points.retain(|point| x.holds(point.x) && y.holds(point.y));
        removed += (before - line.points.len()) as u64;
        for point in &mut line.points {
            point.range = point.range.filter(|range| range.iter().all(|end| y.holds(*end)));
        }
    }
    lines.retain(|line| !line.points.is_empty());
    removed
}

/// Returns the minimum and maximum of all values of the y axis, with the ranges. `None` without points.
pub fn extremes(lines: &[Line]) -> Option<[f64; 2]> {
    let of_point = |point: &Point| [Some([point.y, point.y]), point.range];
    let mut values = lines.iter().flat_map(|line| &line.points).flat_map(of_point).flatten().flatten();
    let first = values.next()?;
    Some(values.fold([first, first], |[low, high], value| [low.min(value), high.max(value)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(points: &[(f64, f64)]) -> Line {
        let points = points.iter().map(|(x, y)| Point { x: *x, y: *y, range: None }).collect();
        Line { style: 0, statistic: Statistic::Middle, points }
    }

    #[test]
    fn points_that_a_scale_cannot_show_are_removed_and_counted() {
        let mut lines = vec![line(&[(1.0, 0.0), (2.0, 5.0), (0.0, 5.0), (4.0, f64::NAN)]), line(&[(1.0, -1.0)])];
        lines[0].points[1].range = Some([0.0, 6.0]);
        assert_eq!(retain(&mut lines, Scale::Log2, Scale::Log10), 4);
        assert_eq!(lines.len(), 1);
        assert_eq!(lines[0].points, [Point { x: 2.0, y: 5.0, range: None }], "no bar to zero");
    }

    #[test]
    fn extremes_are_those_of_ranges_too() {
        let mut lines = vec![line(&[(1.0, 3.0), (2.0, 5.0)])];
        assert_eq!(extremes(&lines), Some([3.0, 5.0]));
        lines[0].points[0].range = Some([1.0, 9.0]);
        assert_eq!(extremes(&lines), Some([1.0, 9.0]));
        assert_eq!(extremes(&[]), None);
    }

    #[test]
    fn several_measurements_have_a_range() {
        assert_eq!(Point::of(1.0, &[4.0, 2.0, 3.0]), Some(Point { x: 1.0, y: 3.0, range: Some([2.0, 4.0]) }));
        assert_eq!(Point::of(1.0, &[4.0, 4.0]), Some(Point { x: 1.0, y: 4.0, range: None }));
        assert_eq!(Point::of(1.0, &[]), None);
    }
}
