//! Lists of values in options: each combination of values is a point of a sweep.

use crate::output::Failure;
use crate::workloads::histogram::Latency;
use std::fmt::{self, Display};
use warpbell::units::three_digits;

/// Maximum number of points.
const MOST_POINTS: usize = 10_000;
/// Statistics in the latency columns of a table.
const TAIL: [f64; 3] = [50.0, 99.0, 99.9];

/// An option with its values.
pub struct Dimension<V> {
    name: &'static str,
    values: Vec<V>,
}

impl<V> Dimension<V> {
    /// Returns the option `name` with the values of a list, each as `value` makes it.
    pub fn new<T: Clone>(name: &'static str, list: &[T], value: impl Fn(T) -> V) -> Self {
        Self { name, values: list.iter().cloned().map(value).collect() }
    }
}

/// All options that take lists. The last one changes first.
pub struct Lists<V> {
    dimensions: Vec<Dimension<V>>,
}

impl<V: Display> Lists<V> {
    /// Takes the options, of which those without values are at their defaults.
    pub fn new(all: Vec<Dimension<V>>) -> Self {
        Self { dimensions: all.into_iter().filter(|d| !d.values.is_empty()).collect() }
    }

    /// Returns the names of the options that have several values.
    pub fn swept(&self) -> Vec<&'static str> {
        self.swept_dimensions().map(|d| d.name).collect()
    }

    /// Returns true if there are several points.
    pub fn is_swept(&self) -> bool {
        self.swept_dimensions().next().is_some()
    }

    /// Returns all points: for each a value of every option that has values, in the order of the options.
    ///
    /// # Errors
    /// [`Failure::Usage`] if there are too many points.
    pub fn points(&self) -> Result<Vec<Vec<&V>>, Failure> {
        let points = self.dimensions.iter().try_fold(1usize, |n, d| n.checked_mul(d.values.len()));
        if points.is_none_or(|n| n > MOST_POINTS) {
            let lists: Vec<String> =
                self.dimensions.iter().map(|d| format!("{} of {}", d.values.len(), d.name)).collect();
            return Err(Failure::Usage(format!(
                "the lists have more than {MOST_POINTS} combinations ({}); give shorter ones",
                lists.join(", ")
            )));
        }
        let mut points: Vec<Vec<&V>> = vec![Vec::new()];
        for Dimension { values, .. } in &self.dimensions {
            points = points.iter().flat_map(|point| values.iter().map(move |value| with(point, value))).collect();
        }
        Ok(points)
    }

    /// Checks that there is one point, which `option` needs.
    ///
    /// # Errors
    /// [`Failure::Usage`] if there are several.
    pub fn is_one_point_for(&self, option: &str) -> Result<(), Failure> {
        match self.is_swept() {
            true => Err(Failure::Usage(format!("{option} measures one point; give one value for each option"))),
            false => Ok(()),
        }
    }

    /// Returns the names of the table's columns of what is swept.
    pub fn head(&self) -> String {
        self.cells(str::to_owned)
    }

    /// Returns the cells of these columns, each with the text of its option.
    pub fn cells(&self, text: impl Fn(&'static str) -> String) -> String {
        let width = |d: &Dimension<V>| {
            let longest = d.values.iter().map(|v| v.to_string().len()).max().unwrap_or(0);
            longest.max(d.name.len()) + 2
        };
        self.swept_dimensions().map(|d| format!("{:<width$}", text(d.name), width = width(d))).collect()
    }

    fn swept_dimensions(&self) -> impl Iterator<Item = &Dimension<V>> {
        self.dimensions.iter().filter(|d| d.values.len() > 1)
    }
}

/// Value of an option, which changes a part of a setting `S`.
pub struct Change<S> {
    words: String,
    apply: Box<dyn Fn(&mut S)>,
}

impl<S> Display for Change<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

impl<S: 'static> Dimension<Change<S>> {
    /// Returns the option `name` with the values of a list, each of which `set` writes into a setting.
    pub fn setting<T: Copy + Display + 'static>(name: &'static str, list: &[T], set: fn(&mut S, T)) -> Self {
        Self::new(name, list, |value| Change {
            words: value.to_string(),
            apply: Box::new(move |setting| set(setting, value)),
        })
    }
}

impl<S: Clone> Lists<Change<S>> {
    /// Returns the settings of all points: `base`, with the values of the options.
    ///
    /// # Errors
    /// [`Failure::Usage`] if there are too many points.
    pub fn settings(&self, base: &S) -> Result<Vec<S>, Failure> {
        let at = |point: &Vec<&Change<S>>| {
            let mut setting = base.clone();
            point.iter().for_each(|change| (change.apply)(&mut setting));
            setting
        };
        Ok(self.points()?.iter().map(at).collect())
    }
}

/// Returns the settings without those that are in front of them already: options that have no effect beside others make
/// equal ones.
pub fn distinct<S: PartialEq>(all: impl IntoIterator<Item = S>) -> Vec<S> {
    all.into_iter().fold(Vec::new(), |mut kept, setting| {
        if !kept.contains(&setting) {
            kept.push(setting);
        }
        kept
    })
}

/// Returns a point with one value more.
fn with<'v, V>(point: &[&'v V], value: &'v V) -> Vec<&'v V> {
    [point, &[value]].concat()
}

/// Returns the names of the columns of [`latency_cells`].
pub fn latency_head(width: usize) -> String {
    format!("{:>mean$}{:>width$}{:>width$}{:>width$}", "mean us", "p50", "p99", "p99.9", mean = width + 1)
}

/// Returns mean and percentiles in microseconds, in columns of `width` characters; the one of the mean has one more.
pub fn latency_cells(latency: Option<&Latency>, width: usize) -> String {
    let us = |ns: Option<f64>| ns.map_or_else(|| "-".to_owned(), |ns| three_digits(ns / 1e3));
    let percentile = |percent: f64| {
        let found = latency.and_then(|l| l.percentiles_ns.iter().find(|(of, _)| *of == percent));
        format!("{:>width$}", us(found.map(|(_, ns)| *ns as f64)))
    };
    let mean = us(latency.map(|l| l.mean_ns));
    format!("{mean:>mean_width$}{}", TAIL.map(percentile).concat(), mean_width = width + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists(sizes: &[u32], depths: &[u32]) -> Lists<u32> {
        Lists::new(vec![Dimension::new("bs", sizes, |v| v), Dimension::new("iodepth", depths, |v| v)])
    }

    #[test]
    fn every_combination_is_a_point_and_the_last_option_changes_first() {
        let both = lists(&[512, 4096], &[1, 100_000_000]);
        assert_eq!(both.swept(), ["bs", "iodepth"]);
        let points = both.points().unwrap();
        assert_eq!(points, [[&512, &1], [&512, &100_000_000], [&4096, &1], [&4096, &100_000_000]]);
        assert_eq!(both.head(), "bs    iodepth    ");
        assert_eq!(both.cells(|name| name.len().to_string()), "2     7          ");
    }

    #[test]
    fn options_with_one_value_or_none_are_not_swept() {
        let one = lists(&[], &[7]);
        assert_eq!((one.swept().len(), one.is_swept(), one.head()), (0, false, String::new()));
        assert_eq!(one.points().unwrap(), [[&7]]);
        assert!(one.is_one_point_for("--compare").is_ok());
        let swept = lists(&[1], &[7, 8]);
        match swept.is_one_point_for("--compare") {
            Err(Failure::Usage(text)) => assert!(text.starts_with("--compare measures one point"), "{text}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn settings_have_the_values_of_their_point() {
        let lists: Lists<Change<(u32, u32)>> = Lists::new(vec![
            Dimension::setting("qp", &[1, 2], |s, n| s.0 = n),
            Dimension::setting("depth", &[7, 8], |s, n| s.1 = n),
        ]);
        assert_eq!(lists.settings(&(5, 5)).unwrap(), [(1, 7), (1, 8), (2, 7), (2, 8)]);
        assert_eq!(lists.cells(|name| name.to_owned()), "qp  depth  ");
        let default: Lists<Change<(u32, u32)>> = Lists::new(vec![Dimension::setting("qp", &[], |s, n| s.0 = n)]);
        assert_eq!(default.settings(&(5, 5)).unwrap(), [(5, 5)]);
        assert_eq!(distinct([3, 1, 3, 2, 1]), [3, 1, 2]);
    }

    #[test]
    fn latencies_have_a_column_each() {
        let percentiles_ns = vec![(50.0, 1_500), (99.0, 9_999_999_000)];
        let latency = Latency { samples: 2, min_ns: 1, mean_ns: 2_000.0, stddev_ns: 0.0, max_ns: 9, percentiles_ns };
        assert_eq!(latency_head(8), "  mean us     p50     p99   p99.9");
        assert_eq!(latency_cells(Some(&latency), 8), "     2.00    1.50 9999999       -");
        assert_eq!(latency_cells(None, 7), "       -      -      -      -");
    }
}
