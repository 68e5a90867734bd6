//! Choice of the figures of rows that a chart shows: rates of one unit, and latencies.

use super::axis::{Axis, Scale};
use super::model::{Point, Statistic};
use crate::reports::{Figure, Samples, Unit};

/// Rates of one unit.
pub struct Rates {
    unit: Unit,
    /// Names of the figures, as in `plain loads per s`.
    metrics: Vec<String>,
    /// Words at the end of all names, as in `loads`.
    noun: String,
}

impl Rates {
    /// Chooses bytes per second if the rows differ in sizes, else operations per second. The other unit is taken where
    /// the rows have one alone. `None` if no figure is a rate.
    pub fn of(figures: &[&Figure], of_sizes: bool) -> Option<Self> {
        let has = |unit: Unit| figures.iter().any(|figure| figure.unit == unit);
        let order = if of_sizes { [Unit::BytesPerS, Unit::PerS] } else { [Unit::PerS, Unit::BytesPerS] };
        let unit = order.into_iter().find(|unit| has(*unit))?;
        let mut metrics: Vec<String> = Vec::new();
        for figure in figures.iter().filter(|figure| figure.unit == unit) {
            if !metrics.contains(&figure.metric) {
                metrics.push(figure.metric.clone());
            }
        }
        let noun = common_end(&metrics);
        Some(Self { unit, metrics, noun })
    }

    /// Returns true if the figure is one of these.
    pub fn has(&self, figure: &Figure) -> bool {
        figure.unit == self.unit
    }

    /// Returns the name of a figure among the others. Empty if there is one.
    pub fn name(&self, figure: &Figure) -> String {
        match &self.metrics[..] {
            [_] => String::new(),
            _ => counted_noun(&figure.metric).trim_end_matches(&self.noun).trim_end().to_owned(),
        }
    }

    /// Returns an axis up to `max`.
    pub fn axis(&self, max: f64) -> Axis {
        match (self.unit, &self.metrics[..], self.noun.as_str()) {
            (Unit::BytesPerS, ..) => Axis::byte_rates(max),
            (_, [one], _) if one == "iops" => Axis::rates("IOPS", max),
            (_, _, "") => Axis::rates("Operations/s", max),
            (_, _, noun) => Axis::rates(&format!("{}/s", capital(noun)), max),
        }
    }
}

/// Returns what a rate counts: `plain loads` of `plain loads per s`.
fn counted_noun(metric: &str) -> &str {
    metric.strip_suffix(" per s").unwrap_or(metric)
}

/// Returns the words with which what all rates count ends.
fn common_end(metrics: &[String]) -> String {
    let mut all = metrics.iter().map(|metric| counted_noun(metric).split(' ').rev().collect::<Vec<_>>());
    let first = all.next().unwrap_or_default();
    let length = all
        .fold(first.len(), |length, words| first.iter().zip(&words).take(length).take_while(|(a, b)| a == b).count());
    let mut end: Vec<&str> = first.into_iter().take(length).collect();
    end.reverse();
    end.join(" ")
}

/// Returns the text with a capital letter at its beginning.
pub fn capital(text: &str) -> String {
    let mut rest = text.chars();
    rest.next().into_iter().flat_map(char::to_uppercase).chain(rest).collect()
}

/// Latencies.
pub struct Latencies {
    /// Names of what was timed, as in `latency` or `post`.
    bases: Vec<String>,
    /// True if there are medians, or values that are not said to be means.
    has_middle: bool,
    has_p99: bool,
}

/// Kind of a time, by its name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Time {
    Median,
    P99,
    Mean,
    /// Another percentile.
    Tail,
    Plain,
}

impl Latencies {
    /// Chooses the times named latencies, or all others if there are none. `None` if no figure is a time.
    pub fn of(figures: &[&Figure]) -> Option<Self> {
        let times: Vec<(&str, Time)> = figures.iter().filter(|f| f.unit == Unit::Ns).map(|f| time(&f.metric)).collect();
        let has_latency = times.iter().any(|(base, _)| is_latency(base));
        let shown: Vec<(&str, Time)> = times.into_iter().filter(|(base, _)| !has_latency || is_latency(base)).collect();
        let mut bases: Vec<String> = Vec::new();
        for (base, _) in &shown {
            if !bases.iter().any(|known| known == base) {
                bases.push((*base).to_owned());
            }
        }
        let has = |of: &[Time]| shown.iter().any(|(_, time)| of.contains(time));
        let (has_middle, has_p99) = (has(&[Time::Median, Time::Plain]), has(&[Time::P99]));
        (!bases.is_empty()).then_some(Self { bases, has_middle, has_p99 })
    }

    /// Returns the name of a figure's time among the others, which is empty if there is one, and the statistic that the
    /// figure is. `None` if the chart does not show it.
    pub fn find(&self, figure: &Figure) -> Option<(String, Statistic)> {
        let (base, time) = time(&figure.metric);
        if figure.unit != Unit::Ns || !self.bases.iter().any(|known| known == base) {
            return None;
        }
        let statistic = match time {
            Time::Median | Time::Plain => Statistic::Middle,
            Time::Mean if !self.has_middle => Statistic::Middle,
            Time::P99 => Statistic::P99,
            Time::Mean | Time::Tail => return None,
        };
        Some((if self.bases.len() == 1 { String::new() } else { base.to_owned() }, statistic))
    }

    /// Returns the scale that suits values between these.
    pub fn scale(extremes: Option<[f64; 2]>) -> Scale {
        extremes.map_or(Scale::Linear, Axis::scale_of_latencies)
    }

    /// Returns an axis for values between these.
    pub fn axis(&self, scale: Scale, extremes: [f64; 2]) -> Axis {
        let title = match &self.bases[..] {
            [one] if !is_latency(one) => capital(one),
            _ if !self.has_middle && !self.has_p99 => "Mean latency".to_owned(),
            _ => "Latency".to_owned(),
        };
        match scale {
            Scale::Log10 => Axis::log_times(&title, extremes),
            _ => Axis::times(&title, extremes[1]),
        }
    }
}

fn is_latency(base: &str) -> bool {
    base.ends_with("latency")
}

/// Returns what was timed, and the kind of the time.
fn time(metric: &str) -> (&str, Time) {
    let kinds = [("p50", Time::Median), ("p99", Time::P99), ("p99.9", Time::Tail), ("mean", Time::Mean)];
    let found = kinds.into_iter().find_map(|(word, time)| Some((metric.strip_suffix(word)?.strip_suffix(' ')?, time)));
    found.unwrap_or((metric, Time::Plain))
}

/// Returns the point of a figure at `x`.
pub fn point(x: f64, samples: &Samples) -> Option<Point> {
    match samples {
        Samples::Values(values) => Point::of(x, values),
        Samples::Spread { min, median, max, .. } => {
            Some(Point { x, y: *median, range: (min < max).then_some([*min, *max]) })
        }
        Samples::Mean { mean, .. } => Some(Point { x, y: *mean, range: None }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(metric: &str, unit: Unit) -> Figure {
        Figure::one("row", metric, unit, 1.0)
    }

    #[test]
    fn rates_are_those_of_the_field() {
        let both = [figure("iops", Unit::PerS), figure("bytes per s", Unit::BytesPerS)];
        let both: Vec<&Figure> = both.iter().collect();
        assert_eq!(Rates::of(&both, false).unwrap().axis(1.0).title, "IOPS");
        let sized = Rates::of(&both, true).unwrap();
        assert_eq!(
            (sized.axis(5e9).title.as_str(), sized.has(both[0]), sized.name(both[1])),
            ("GiB/s", false, "".into())
        );
        let loads = [figure("plain loads per s", Unit::PerS), figure("cached loads per s", Unit::PerS)];
        let loads: Vec<&Figure> = loads.iter().collect();
        let rates = Rates::of(&loads, true).unwrap();
        assert_eq!(rates.axis(1.0).title, "Loads/s");
        assert_eq!((rates.name(loads[0]).as_str(), rates.name(loads[1]).as_str()), ("plain", "cached"));
        assert!(Rates::of(&[&figure("latency p50", Unit::Ns)], true).is_none());
        let mixed = [figure("rows per s", Unit::PerS), figure("reads per s", Unit::PerS)];
        assert_eq!(Rates::of(&mixed.iter().collect::<Vec<_>>(), false).unwrap().axis(1.0).title, "Operations/s");
    }

    #[test]
    fn latencies_are_medians_and_percentiles_where_there_are_some() {
        let all = ["time", "latency mean", "latency p50", "latency p99", "latency p99.9"].map(|m| figure(m, Unit::Ns));
        let latencies = Latencies::of(&all.iter().collect::<Vec<_>>()).unwrap();
        let found: Vec<_> = all.iter().map(|f| latencies.find(f).map(|(_, statistic)| statistic)).collect();
        assert_eq!(found, [None, None, Some(Statistic::Middle), Some(Statistic::P99), None]);
        let mean = figure("latency mean", Unit::Ns);
        let means = Latencies::of(&[&mean]).unwrap();
        assert_eq!(means.find(&mean), Some((String::new(), Statistic::Middle)));
        assert_eq!(means.axis(Scale::Linear, [1.0, 2.0]).title, "Mean latency (ns)");
        let stream = ["one", "one p99", "chained"].map(|m| figure(m, Unit::Ns));
        let times = Latencies::of(&stream.iter().collect::<Vec<_>>()).unwrap();
        let found: Vec<_> = stream.iter().filter_map(|f| times.find(f)).collect();
        let expected = [("one", Statistic::Middle), ("one", Statistic::P99), ("chained", Statistic::Middle)];
        assert_eq!(found, expected.map(|(name, statistic)| (name.to_owned(), statistic)));
    }
}
