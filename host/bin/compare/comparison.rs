//! Two sets of figures, row by row: ratios, noise, and what is worse.

use crate::reports::{Figure, Samples, Unit};
use serde::Serialize;

/// Difference of a figure from the one it is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Within the tolerance.
    Same,
    /// Better by more than tolerance and noise.
    Better,
    /// Worse by more than tolerance and noise.
    Worse,
    /// Beyond the tolerance, but not beyond the noise.
    Unclear,
}

impl Outcome {
    pub fn word(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Better => "better",
            Self::Worse => "WORSE",
            Self::Unclear => "unclear",
        }
    }
}

/// A figure of both reports.
#[derive(Clone, Debug, Serialize)]
pub struct Pair {
    pub row: String,
    pub metric: String,
    pub unit: Unit,
    /// Median of the first report.
    pub a: f64,
    /// Median of the second report.
    pub b: f64,
    /// `b / a`.
    pub ratio: f64,
    /// Uncertainty of the ratio, as a share of it; `null` if nothing was repeated.
    pub noise: Option<f64>,
    /// Measurements in each report.
    pub measurements: [u64; 2],
    pub outcome: Outcome,
}

/// All figures of two reports.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Comparison {
    pub pairs: Vec<Pair>,
    /// Figures of the first report that the second one lacks.
    pub only_a: Vec<String>,
    /// Figures of the second report that the first one lacks.
    pub only_b: Vec<String>,
}

impl Comparison {
    /// Compares figures of the same row, metric and unit.
    pub fn of(a: &[Figure], b: &[Figure], tolerance: f64) -> Self {
        let without = |of: &[Figure], other: &[Figure]| -> Vec<String> {
            of.iter().filter(|x| !other.iter().any(|y| x.is_same(y))).map(label).collect()
        };
        let pairs = a.iter().filter_map(|x| {
            let y = b.iter().find(|y| x.is_same(y))?;
            pair(x, y, tolerance)
        });
        Self { pairs: pairs.collect(), only_a: without(a, b), only_b: without(b, a) }
    }

    pub fn count(&self, outcome: Outcome) -> usize {
        self.pairs.iter().filter(|pair| pair.outcome == outcome).count()
    }
}

fn label(figure: &Figure) -> String {
    format!("{}: {}", figure.row, figure.metric)
}

/// Returns `None` if neither report has measured anything.
fn pair(x: &Figure, y: &Figure, tolerance: f64) -> Option<Pair> {
    let (a, b) = (x.samples.middle(), y.samples.middle());
    if !(a > 0.0 || b > 0.0) {
        return None;
    }
    let ratio = b / a;
    let noise = noise(&x.samples, &y.samples);
    let gain = if x.unit.grows() { ratio } else { ratio.recip() };
    let beyond = |limit: f64| gain > 1.0 + limit || gain < 1.0 / (1.0 + limit);
    let outcome = if !beyond(tolerance) {
        Outcome::Same
    } else if !beyond(noise.unwrap_or(0.0)) {
        Outcome::Unclear
    } else if gain > 1.0 {
        Outcome::Better
    } else {
        Outcome::Worse
    };
    Some(Pair {
        row: x.row.clone(),
        metric: x.metric.clone(),
        unit: x.unit,
        a,
        b,
        ratio,
        noise,
        measurements: [x.samples.count(), y.samples.count()],
        outcome,
    })
}

/// Returns the uncertainty of a ratio. A report without repetitions is taken to be as uncertain as the other.
fn noise(a: &Samples, b: &Samples) -> Option<f64> {
    let (a, b) = match (a.noise(), b.noise()) {
        (None, None) => return None,
        (Some(a), Some(b)) => (a, b),
        (Some(one), None) | (None, Some(one)) => (one, one),
    };
    Some(a.hypot(b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn figure(unit: Unit, values: &[f64]) -> Figure {
        Figure::new("read", "m", unit, Samples::Values(values.to_vec()))
    }

    fn outcome(unit: Unit, a: &[f64], b: &[f64]) -> Outcome {
        Comparison::of(&[figure(unit, a)], &[figure(unit, b)], 0.05).pairs[0].outcome
    }

    #[test]
    fn rates_grow_and_times_shrink() {
        assert_eq!(outcome(Unit::PerS, &[100.0], &[104.0]), Outcome::Same);
        assert_eq!(outcome(Unit::PerS, &[100.0], &[94.0]), Outcome::Worse);
        assert_eq!(outcome(Unit::PerS, &[100.0], &[106.0]), Outcome::Better);
        assert_eq!(outcome(Unit::Ns, &[100.0], &[94.0]), Outcome::Better);
        assert_eq!(outcome(Unit::Ns, &[100.0], &[106.0]), Outcome::Worse);
        assert_eq!(outcome(Unit::Ns, &[100.0], &[0.0]), Outcome::Better);
        assert_eq!(outcome(Unit::PerS, &[100.0], &[0.0]), Outcome::Worse);
        assert_eq!(outcome(Unit::PerS, &[0.0], &[5.0]), Outcome::Better);
    }

    #[test]
    fn noise_makes_a_difference_unclear_until_repetitions_clear_it() {
        let (a, b) = ([80.0, 100.0, 120.0], [70.0, 90.0, 110.0]);
        assert_eq!(outcome(Unit::PerS, &a, &b), Outcome::Unclear);
        assert_eq!(outcome(Unit::PerS, &a.repeat(40), &b.repeat(40)), Outcome::Worse);
        assert_eq!(outcome(Unit::PerS, &a, &[89.0]), Outcome::Unclear, "one run is as noisy as the others");
    }

    #[test]
    fn rows_and_units_have_to_be_the_same() {
        let mut other = figure(Unit::BytesPerS, &[1.0]);
        let found = Comparison::of(&[figure(Unit::PerS, &[1.0])], &[other.clone()], 0.05);
        assert!(found.pairs.is_empty());
        assert_eq!((found.only_a, found.only_b), (vec!["read: m".to_owned()], vec!["read: m".to_owned()]));
        other.row = "write".into();
        let found = Comparison::of(&[figure(Unit::BytesPerS, &[1.0])], &[other], 0.05);
        assert_eq!(found.only_b, ["write: m"]);
        assert!(Comparison::of(&[figure(Unit::PerS, &[0.0])], &[figure(Unit::PerS, &[0.0])], 0.05).pairs.is_empty());
    }

    proptest! {
        #[test]
        fn the_order_of_the_reports_turns_better_into_worse(
            a in prop::collection::vec(1.0f64..1e9, 1..6), b in prop::collection::vec(1.0f64..1e9, 1..6), rate: bool,
        ) {
            let unit = if rate { Unit::PerS } else { Unit::Ns };
            let opposite = match outcome(unit, &a, &b) {
                Outcome::Better => Outcome::Worse,
                Outcome::Worse => Outcome::Better,
                other => other,
            };
            prop_assert_eq!(outcome(unit, &b, &a), opposite);
            prop_assert_eq!(outcome(unit, &a, &a), Outcome::Same);
        }
    }
}
