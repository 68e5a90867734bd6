//! Spread of repeated measurements.

use serde::Serialize;

/// Minimum, median and maximum of several measurements.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Minimum.
    pub min: f64,
    /// Median; for an even number of values, the mean of the two in the middle.
    pub median: f64,
    /// Maximum.
    pub max: f64,
}

impl Spread {
    /// Computes the spread of `values`; `None` if there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut v: Vec<f64> = values.into_iter().collect();
        v.sort_by(f64::total_cmp);
        let middle = v.len() / 2;
        let median = match v.len() {
            0 => return None,
            n if n.is_multiple_of(2) => (v[middle - 1] + v[middle]) / 2.0,
            _ => v[middle],
        };
        Some(Self { min: v[0], median, max: v[v.len() - 1] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreads_have_their_middle() {
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Some(Spread { min: 1.0, median: 2.0, max: 3.0 }));
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]).unwrap().median, 2.5);
    }
}
