//! Figures per second, from the counters of a process at two moments.

use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use warpbell::metrics::{Sample, Snapshot};
use warpbell::units::si;

/// Activity of a process between two moments.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Rates {
    /// Read and write commands per second.
    pub read_iops: f64,
    pub write_iops: f64,
    /// Bytes per second.
    pub read_bytes_per_s: f64,
    pub write_bytes_per_s: f64,
    /// Commands in flight at the second moment.
    pub in_flight: f64,
    /// Mean latency by Little's law: commands in flight by commands per second.
    pub latency_ns: Option<f64>,
    /// Shares of accesses by the tier that had the data, 0 to 1. Empty without accesses.
    pub hits: BTreeMap<String, f64>,
    /// Operations that failed, since the process began.
    pub errors: f64,
    /// Connections between PEs that have failed, and lost ranks.
    pub faults: f64,
    /// Blocks of work requests posted to other PEs per second.
    pub posted_per_s: f64,
}

/// Activity of one queue pair of a device.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct QueueRates {
    pub device: String,
    pub queue: String,
    pub iops: f64,
    pub in_flight: f64,
    pub depth: f64,
    pub latency_ns: Option<f64>,
}

/// Activity of one PE's connection to another.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PeRates {
    pub pe: String,
    pub peer: String,
    pub queue: String,
    pub posted_per_s: f64,
    pub in_flight: f64,
    pub has_failed: bool,
}

/// Counters of a process at two moments.
pub struct Interval<'a> {
    earlier: BTreeMap<Key<'a>, f64>,
    now: &'a Snapshot,
    seconds: f64,
}

type Key<'a> = (&'a str, Vec<(&'a str, &'a str)>);

fn key(sample: &Sample) -> Key<'_> {
    (&sample.name, sample.labels.iter().map(|(k, v)| (&**k, &**v)).collect())
}

impl<'a> Interval<'a> {
    pub fn new(earlier: &'a Snapshot, now: &'a Snapshot) -> Self {
        let seconds = (now.uptime_s - earlier.uptime_s).max(1e-9);
        Self { earlier: earlier.samples.iter().map(|s| (key(s), s.value)).collect(), now, seconds }
    }

    /// Returns the values of a family now.
    fn of(&self, name: &str) -> impl Iterator<Item = &'a Sample> + use<'a, '_> {
        let name = format!("warpbell_{name}");
        self.now.samples.iter().filter(move |s| s.name == name)
    }

    /// Returns the growth of a counter. A counter that is new has grown from 0, and so has one that was reset.
    fn growth(&self, sample: &Sample) -> f64 {
        let before = self.earlier.get(&key(sample)).copied().unwrap_or(0.0);
        if sample.value < before { sample.value } else { sample.value - before }
    }

    fn rate(&self, sample: &Sample) -> f64 {
        self.growth(sample) / self.seconds
    }

    /// Returns the mean of a gauge at the two moments.
    fn mean(&self, sample: &Sample) -> f64 {
        (self.earlier.get(&key(sample)).copied().unwrap_or(sample.value) + sample.value) / 2.0
    }

    pub fn rates(&self) -> Rates {
        let grown = |name: &str, label: (&str, &str)| -> f64 {
            let of = |s: &&Sample| label.0.is_empty() || s.label(label.0) == label.1;
            total(self.of(name).filter(of).map(|s| self.growth(s)))
        };
        let rate = |name: &str, op: &str| grown(name, ("op", op)) / self.seconds;
        let (read_iops, write_iops) = (rate("volume_commands_total", "read"), rate("volume_commands_total", "write"));
        let hit = |name: &str| grown(name, ("", ""));
        let (found, missed) = (hit("cache_hits_total"), hit("cache_misses_total"));
        let mut hits = BTreeMap::new();
        if found + missed > 0.0 {
            hits.insert("page".to_owned(), found / (found + missed));
        }
        let rows = hit("table_rows_total");
        for tier in ["duplicate", "hot", "cache", "host"] {
            let own = grown("table_rows_total", ("tier", tier));
            if rows > 0.0 && own > 0.0 {
                hits.insert(tier.to_owned(), own / rows);
            }
        }
        let now = |name: &str| total(self.of(name).map(|s| s.value));
        let mean = total(self.of("queue_in_flight").map(|s| self.mean(s)));
        Rates {
            read_iops,
            write_iops,
            read_bytes_per_s: rate("volume_bytes_total", "read"),
            write_bytes_per_s: rate("volume_bytes_total", "write"),
            in_flight: now("queue_in_flight"),
            latency_ns: latency(mean, read_iops + write_iops),
            hits,
            errors: now("volume_errors_total"),
            faults: now("world_connection_failed") + now("world_lost"),
            posted_per_s: hit("world_posted_blocks_total") / self.seconds,
        }
    }

    pub fn queues(&self) -> Vec<QueueRates> {
        let (gauges, depths) = (self.of("queue_in_flight"), self.of("queue_depth"));
        let each = self.of("queue_submitted_total").zip(gauges).zip(depths);
        each.map(|((submitted, gauge), depth)| {
            let iops = self.rate(submitted);
            QueueRates {
                device: submitted.label("device").to_owned(),
                queue: submitted.label("queue").to_owned(),
                iops,
                in_flight: gauge.value,
                depth: depth.value,
                latency_ns: latency(self.mean(gauge), iops),
            }
        })
        .collect()
    }

    pub fn pes(&self) -> Vec<PeRates> {
        let each = self.of("world_posted_blocks_total").zip(self.of("world_in_flight_blocks"));
        each.zip(self.of("world_connection_failed"))
            .map(|((posted, gauge), failed)| PeRates {
                pe: posted.label("pe").to_owned(),
                peer: posted.label("peer").to_owned(),
                queue: posted.label("queue").to_owned(),
                posted_per_s: self.rate(posted),
                in_flight: gauge.value,
                has_failed: failed.value != 0.0,
            })
            .collect()
    }
}

/// Adds values up. The sum of none is 0, where `sum` has -0.
fn total(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, |a, b| a + b)
}

fn latency(in_flight: f64, per_s: f64) -> Option<f64> {
    (in_flight > 0.0 && per_s > 0.0).then(|| in_flight / per_s * 1e9)
}

/// Prints a latency, or a dash where there is none.
pub fn time(ns: Option<f64>) -> String {
    ns.map_or_else(|| "-".to_owned(), |ns| format!("{:.1?}", Duration::from_nanos(ns as u64)))
}

impl Rates {
    /// Returns the shares of hits as text, or a dash.
    pub fn hit_text(&self) -> String {
        let all: Vec<String> = self.hits.iter().map(|(tier, share)| format!("{tier} {:.1}%", share * 100.0)).collect();
        if all.is_empty() { "-".to_owned() } else { all.join(" ") }
    }
}

/// Prints one line of statistics.
impl std::fmt::Display for Rates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "IOPS r {} w {}  MB/s r {:.1} w {:.1}  in flight {}  lat {}  hits {}  errors {}",
            si(self.read_iops),
            si(self.write_iops),
            self.read_bytes_per_s / 1e6,
            self.write_bytes_per_s / 1e6,
            self.in_flight,
            time(self.latency_ns),
            self.hit_text(),
            self.errors,
        )?;
        if self.posted_per_s > 0.0 || self.faults > 0.0 {
            write!(f, "  posted/s {}  faults {}", si(self.posted_per_s), self.faults)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn snapshot(uptime_s: f64, samples: &[(&str, serde_json::Value, f64)]) -> Snapshot {
        let of = |(name, labels, value): &(&str, serde_json::Value, f64)| json!({ "name": format!("warpbell_{name}"), "labels": labels, "value": value });
        let samples: Vec<_> = samples.iter().map(of).collect();
        serde_json::from_value(json!({ "uptime_s": uptime_s, "samples": samples })).unwrap()
    }

    fn moment(uptime_s: f64, n: f64) -> Snapshot {
        let (read, write) = (json!({ "id": "1", "op": "read" }), json!({ "id": "1", "op": "write" }));
        let queue = json!({ "device": "d", "queue": "0" });
        snapshot(
            uptime_s,
            &[
                ("volume_commands_total", read.clone(), 100.0 * n),
                ("volume_commands_total", write, 10.0 * n),
                ("volume_bytes_total", read, 409_600.0 * n),
                ("queue_submitted_total", queue.clone(), 110.0 * n),
                ("queue_in_flight", queue.clone(), 8.0 + 2.0 * n),
                ("queue_depth", queue, 64.0),
                ("cache_hits_total", json!({}), 30.0 * n),
                ("cache_misses_total", json!({}), 10.0 * n),
                ("table_rows_total", json!({ "tier": "hot" }), n),
                ("table_rows_total", json!({ "tier": "device" }), 3.0 * n),
                ("volume_errors_total", json!({}), n),
            ],
        )
    }

    #[test]
    fn figures_are_those_between_two_moments() {
        let (a, b) = (moment(10.0, 1.0), moment(12.0, 3.0));
        let interval = Interval::new(&a, &b);
        let r = interval.rates();
        assert_eq!(
            (r.read_iops, r.write_iops, r.read_bytes_per_s, r.in_flight, r.errors),
            (100.0, 10.0, 409_600.0, 14.0, 3.0)
        );
        assert_eq!(r.hits, BTreeMap::from([("hot".to_owned(), 0.25), ("page".to_owned(), 0.75)]));
        // 12 in flight on average, 110 commands a second.
        assert!((r.latency_ns.unwrap() - 12.0 / 110.0 * 1e9).abs() < 1.0);
        let queues = interval.queues();
        assert_eq!((queues.len(), queues[0].iops, queues[0].depth), (1, 110.0, 64.0));
        let line = r.to_string();
        assert!(line.contains("lat 109.1ms  hits hot 25.0% page 75.0%  errors 3"), "{line}");
    }

    #[test]
    fn counters_that_are_new_or_were_reset_have_grown_from_zero() {
        let (none, a, b) = (Snapshot::default(), moment(1.0, 5.0), moment(2.0, 2.0));
        assert_eq!(Interval::new(&none, &a).rates().read_iops, 500.0);
        assert_eq!(Interval::new(&a, &b).rates().read_iops, 200.0);
        assert_eq!(Interval::new(&none, &none).rates().hit_text(), "-");
    }
}
