//! Figures of a report, in units that all programs share: per second, and nanoseconds.

use super::label::Label;
use serde::Serialize;
use std::fmt;

/// Unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    BytesPerS,
    /// Commands, messages, rows or loads: the metric says which.
    PerS,
    Ns,
}

impl Unit {
    /// Returns true if more is better.
    pub fn grows(self) -> bool {
        self != Self::Ns
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BytesPerS => "bytes/s",
            Self::PerS => "/s",
            Self::Ns => "ns",
        })
    }
}

/// Subject of the figures of a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// Hardware.
    Device,
    /// A device in software.
    SoftwareDevice,
    /// A device in software that has the timing of a model of a drive.
    Model,
    /// The report does not tell.
    #[default]
    Unknown,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Device => "device",
            Self::SoftwareDevice => "software device",
            Self::Model => "model of a drive",
            Self::Unknown => "subject unknown",
        })
    }
}

/// A figure, measured once or several times.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Operation that was measured and the settings that tell it from others, as in `read, 4096 bytes, depth 32`.
    pub row: String,
    /// Settings of the row one by one, where a report tells them apart.
    pub labels: Vec<Label>,
    /// Name of the value, as in `iops` or `latency p99`.
    pub metric: String,
    pub unit: Unit,
    pub samples: Samples,
}

impl Figure {
    /// Returns a figure of one value.
    pub fn one(row: impl Into<String>, metric: impl Into<String>, unit: Unit, value: f64) -> Self {
        Self::new(row, metric, unit, Samples::Values(vec![value]))
    }

    /// Returns a figure of a row that has no labels.
    pub fn new(row: impl Into<String>, metric: impl Into<String>, unit: Unit, samples: Samples) -> Self {
        Self { row: row.into(), labels: Vec::new(), metric: metric.into(), unit, samples }
    }

    /// Returns true if both are measurements of one value.
    pub fn is_same(&self, other: &Self) -> bool {
        self.row == other.row && self.metric == other.metric && self.unit == other.unit
    }

    /// Adds the figure to others: its measurements to those of the same figure, if that is there.
    pub fn add_to(self, figures: &mut Vec<Self>) {
        match figures.iter_mut().find(|known| known.is_same(&self)) {
            Some(known) => known.samples.extend(self.samples),
            None => figures.push(self),
        }
    }
}

/// Measurements of one figure.
#[derive(Clone, Debug, PartialEq)]
pub enum Samples {
    /// Each of them.
    Values(Vec<f64>),
    /// Spread of so many of them, where a report has kept no more.
    Spread { min: f64, median: f64, max: f64, count: u64 },
    /// Their mean, and their standard deviation as a share of it.
    Mean { mean: f64, deviation: f64, count: u64 },
}

impl Samples {
    /// Adds the measurements of another report of the same kind.
    pub fn extend(&mut self, other: Self) {
        let mut values = match std::mem::replace(self, Self::Values(Vec::new())) {
            Self::Values(values) => values,
            other => vec![other.middle()],
        };
        match other {
            Self::Values(more) => values.extend(more),
            other => values.push(other.middle()),
        }
        *self = Self::Values(values);
    }

    /// Returns the median, or the mean if there is no median.
    pub fn middle(&self) -> f64 {
        match self {
            Self::Values(values) => median(values),
            Self::Spread { median, .. } => *median,
            Self::Mean { mean, .. } => *mean,
        }
    }

    /// Returns the number of measurements.
    pub fn count(&self) -> u64 {
        match self {
            Self::Values(values) => values.len() as u64,
            Self::Spread { count, .. } | Self::Mean { count, .. } => *count,
        }
    }

    /// Returns the uncertainty of the middle as a share of it: half of its interval of 99 %. `None` for a single measurement.
    pub fn noise(&self) -> Option<f64> {
        let (middle, n) = (self.middle(), self.count());
        if n < 2 {
            return None;
        }
        let deviation = match self {
            Self::Values(values) => {
                let mean = values.iter().sum::<f64>() / n as f64;
                MEDIAN_ERROR * (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1) as f64).sqrt() / middle
            }
            Self::Spread { min, max, .. } => MEDIAN_ERROR * (max - min) / range_of(n) / middle,
            Self::Mean { deviation, .. } => *deviation,
        };
        let share = student(n - 1) * deviation / (n as f64).sqrt();
        (share.is_finite() && middle > 0.0).then_some(share)
    }
}

/// Standard error of a median of normal values, as a multiple of that of their mean: the root of pi / 2.
const MEDIAN_ERROR: f64 = 1.253_314_137;

/// Quantiles of 99.5 % of Student's distribution, for 1 to 10 degrees of freedom.
const STUDENT: [f64; 10] = [63.66, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169];

/// Returns the quantile for so many degrees of freedom, 1 at least. Beyond the table it is exact to one percent.
fn student(freedom: u64) -> f64 {
    STUDENT.get(freedom as usize - 1).copied().unwrap_or(2.576 + 5.3 / freedom as f64)
}

/// Mean ranges of 2 to 10 normal values, in standard deviations.
const RANGE: [f64; 9] = [1.128, 1.693, 2.059, 2.326, 2.534, 2.704, 2.847, 2.970, 3.078];

/// Returns the mean range of so many values. Beyond the table it is exact to 5 %, for 100 values and fewer.
fn range_of(count: u64) -> f64 {
    RANGE.get(count as usize - 2).copied().unwrap_or(3.078 + 0.95 * (count as f64 / 10.0).ln())
}

fn median(values: &[f64]) -> f64 {
    crate::workloads::spread::Spread::of(values.iter().copied()).map_or(f64::NAN, |spread| spread.median)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_shrinks_with_repetitions_and_is_unknown_for_one() {
        let few = Samples::Values(vec![90.0, 100.0, 110.0]);
        let many = Samples::Values([90.0, 100.0, 110.0].repeat(12));
        let (a, b) = (few.noise().unwrap(), many.noise().unwrap());
        assert!((a - 9.925 * MEDIAN_ERROR * 10.0 / 3f64.sqrt() / 100.0).abs() < 1e-12, "{a}");
        assert!(b < a / 10.0, "{a} {b}");
        // Quantiles for 20 and 30 degrees of freedom.
        assert!((student(20) - 2.845).abs() < 0.01 * 2.845 && (student(30) - 2.750).abs() < 0.01 * 2.750);
        assert_eq!(Samples::Values(vec![5.0]).noise(), None);
        assert_eq!(Samples::Values(vec![5.0, 5.0]).noise(), Some(0.0));
        let spread = |count| Samples::Spread { min: 90.0, median: 100.0, max: 110.0, count };
        // Three values with this range have nearly this deviation.
        assert!((spread(3).noise().unwrap() / a - 2.0 / 1.693).abs() < 1e-9);
        assert_eq!(spread(1).noise(), None);
        assert!((range_of(20) / 3.735 - 1.0).abs() < 0.01 && (range_of(100) / 5.015 - 1.0).abs() < 0.055);
        assert_eq!(Samples::Mean { mean: 8.0, deviation: 0.1, count: 100 }.noise(), Some(student(99) * 0.1 / 10.0));
        assert_eq!(Samples::Values(vec![0.0, 0.0]).noise(), None, "no share of nothing");
    }

    #[test]
    fn reports_of_one_kind_are_measurements_of_one_figure() {
        let mut all = Samples::Spread { min: 1.0, median: 2.0, max: 3.0, count: 5 };
        all.extend(Samples::Values(vec![4.0, 6.0]));
        all.extend(Samples::Mean { mean: 8.0, deviation: 0.1, count: 9 });
        assert_eq!(all, Samples::Values(vec![2.0, 4.0, 6.0, 8.0]));
        assert_eq!((all.middle(), all.count()), (5.0, 4));
    }
}
