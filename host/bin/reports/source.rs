//! Contents of a report, whichever program has written it.

use super::figure::{Figure, Subject};
use super::label::Label;
use serde_json::Value;

/// Contents of a report.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// Program, command and version, as in `warpbell 0.1.0 bench nvme`.
    pub tool: String,
    /// Command of this program, as in `bench nvme`, or the name of another program.
    pub command: String,
    /// Where kernels ran, as in `2 CPU threads` or the name of a GPU.
    pub engine: Option<String>,
    pub subject: Subject,
    /// Name of the subject, as in `soft:mem`.
    pub device: Option<String>,
    /// Settings that are not part of rows, with their values.
    pub settings: Vec<(String, String)>,
    /// Keys of the labels whose values the command went through.
    pub swept: Vec<String>,
    pub figures: Vec<Figure>,
    pub distributions: Vec<Distribution>,
    pub series: Vec<TimeSeries>,
    /// Figures without a finite number.
    pub missing: u64,
}

/// Latencies of one measurement of a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    pub labels: Vec<Label>,
    /// Pairs of percentile and nanoseconds, in ascending order of percentiles.
    pub percentiles: Vec<(f64, f64)>,
}

/// Rates and latencies of one measurement of a row, over time.
#[derive(Clone, Debug, PartialEq)]
pub struct TimeSeries {
    pub labels: Vec<Label>,
    pub interval_ns: f64,
    /// A value for each interval; `None` where the report has no number. The lists may differ in length.
    pub iops: Vec<Option<f64>>,
    pub bytes_per_s: Vec<Option<f64>>,
    pub mean_latency_ns: Vec<Option<f64>>,
}

impl Distribution {
    /// Reads percentiles: an object whose keys are percentiles, or pairs. Returns the number of values that are no
    /// finite numbers, too.
    pub fn read(labels: &[Label], percentiles: &Value) -> (Self, u64) {
        let pairs: Vec<(Option<f64>, Option<f64>)> = match percentiles {
            Value::Object(all) => all.iter().map(|(key, ns)| (key.parse().ok(), as_number(ns))).collect(),
            Value::Array(all) => {
                all.iter().map(|pair| (pair.get(0).and_then(as_number), pair.get(1).and_then(as_number))).collect()
            }
            _ => Vec::new(),
        };
        let all = pairs.len();
        let mut percentiles: Vec<(f64, f64)> = pairs
            .into_iter()
            .filter_map(|(percent, ns)| Some((percent?, ns?)))
            .filter(|(percent, _)| (0.0..=100.0).contains(percent))
            .collect();
        percentiles.sort_by(|a, b| a.0.total_cmp(&b.0));
        let missing = (all - percentiles.len()) as u64;
        (Self { labels: labels.to_vec(), percentiles }, missing)
    }
}

impl TimeSeries {
    /// Returns `None` if the value has no interval.
    pub fn read(labels: &[Label], series: &Value) -> Option<Self> {
        let interval_ns = number(series, "interval_ns").filter(|ns| *ns > 0.0)?;
        let values = |key: &str| -> Vec<Option<f64>> {
            series.get(key).and_then(Value::as_array).into_iter().flatten().map(as_number).collect()
        };
        Some(Self {
            labels: labels.to_vec(),
            interval_ns,
            iops: values("iops"),
            bytes_per_s: values("bytes_per_s"),
            // An interval without commands has none.
            mean_latency_ns: values("mean_latency_ns").into_iter().map(|ns| ns.filter(|ns| *ns > 0.0)).collect(),
        })
    }

    /// Returns the number of values that are no finite numbers.
    pub fn missing(&self) -> u64 {
        let rates = self.iops.iter().chain(&self.bytes_per_s).filter(|value| value.is_none()).count();
        let idle = |i: usize| self.iops.get(i) == Some(&Some(0.0));
        let latencies = self.mean_latency_ns.iter().enumerate().filter(|(i, value)| value.is_none() && !idle(*i));
        (rates + latencies.count()) as u64
    }
}

/// Returns a number of an object.
pub fn number(of: &Value, key: &str) -> Option<f64> {
    of.get(key).and_then(as_number)
}

/// Returns a number, also one that stands in quotes.
pub fn as_number(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str()?.trim().parse().ok()).filter(|n| n.is_finite())
}

/// Returns a text of an object.
pub fn text<'a>(of: &'a Value, key: &str) -> Option<&'a str> {
    of.get(key)?.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn percentiles_are_keys_or_pairs() {
        let expected = vec![(5.0, 1.0), (50.0, 2.0), (99.9, 3.0)];
        let keys = json!({ "50": 2, "5": 1, "99.9": "3", "99": null, "x": 4, "101": 5 });
        assert_eq!(Distribution::read(&[], &keys), (Distribution { labels: vec![], percentiles: expected.clone() }, 3));
        let pairs = json!([[5.0, 1], [50.0, 2], [99.9, 3], [99.99], 7]);
        assert_eq!(Distribution::read(&[], &pairs), (Distribution { labels: vec![], percentiles: expected }, 2));
        assert_eq!(Distribution::read(&[], &json!("none")).0.percentiles, []);
    }

    #[test]
    fn intervals_without_a_number_are_kept_and_counted() {
        let series = json!({ "interval_ns": 1e9, "iops": [1, null, "nan", 0], "bytes_per_s": [],
                             "mean_latency_ns": [5, null, 5, 0] });
        let series = TimeSeries::read(&[], &series).unwrap();
        assert_eq!(series.iops, [Some(1.0), None, None, Some(0.0)]);
        assert_eq!(series.missing(), 3, "nothing ran in the last interval");
        assert_eq!(TimeSeries::read(&[], &json!({ "interval_ns": 0, "iops": [1] })), None);
    }
}
