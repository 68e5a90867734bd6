//! One row of the table.

use super::setting::{Setting, Shape};
use super::test::{CopyPath, Family, Test};
use crate::workloads::multiprocessors::GpuCost;
use crate::workloads::spread::Spread;
use serde::Serialize;
use std::fmt;
use warpbell::units::Bytes;

/// Results of a test for one size.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Test that was run.
    pub test: Test,
    /// Grid and numbers of operations.
    #[serde(flatten)]
    pub shape: Shape,
    /// Number of operations in one timed part of one PE.
    pub operations: u64,
    /// Figures with the library's calls.
    #[serde(flatten)]
    pub library: Figures,
    /// Figures with plain loads and stores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub raw: Option<Figures>,
    /// Path of the messages, if it is not that of the library's plain call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copy: Option<CopyPath>,
    /// Multiprocessors that the kernels were kept to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sms: Option<u32>,
    /// Share of PE 0's GPU that the library's kernel held, in the last run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<GpuCost>,
}

/// Figures over several runs.
#[derive(Clone, Debug, Serialize)]
pub struct Figures {
    /// Time of one operation in nanoseconds; of one iteration of all threads if each thread has its own operation; of
    /// half a round of a ping-pong.
    pub time_ns: Spread,
    /// Bytes per second that one PE put or got.
    pub bytes_per_s: Spread,
    /// Operations per second of one PE.
    pub operations_per_s: Spread,
    /// Percentiles of single operations in the last run; absent if operations overlap.
    #[serde(flatten)]
    pub percentiles: Option<Percentiles>,
    /// Number of wrong bytes, words, sums or rounds in all runs.
    pub wrong: u64,
}

/// Percentiles of the time of single operations in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Percentiles {
    /// Median.
    pub p50_ns: f64,
    /// 99th percentile.
    pub p99_ns: f64,
    /// 99.9th percentile.
    pub p99_9_ns: f64,
}

impl Percentiles {
    /// Computes the percentiles of samples in ticks of `ns_per_tick`; `None` if there are none.
    pub(super) fn of(samples: &mut [u32], ns_per_tick: f64) -> Option<Self> {
        if samples.is_empty() {
            return None;
        }
        samples.sort_unstable();
        // The smallest sample that `per_mille` in a thousand samples do not exceed.
        let at = |per_mille: usize| {
            let rank = (samples.len() * per_mille).div_ceil(1000).max(1);
            f64::from(samples[rank - 1]) * ns_per_tick
        };
        Some(Self { p50_ns: at(500), p99_ns: at(990), p99_9_ns: at(999) })
    }
}

impl Row {
    fn line(&self, f: &mut fmt::Formatter<'_>, name: &str, r: &Figures) -> fmt::Result {
        let (time, bytes) = (figure(r.time_ns.median / 1e3), figure(r.bytes_per_s.median / 1e9));
        let rate = figure(r.operations_per_s.median / 1e6);
        let (blocks, operations, width) = (self.shape.blocks, self.operations, operations_width(self.test));
        write!(f, " {name:>9} {blocks:>4} {operations:>width$} {time:>8} {bytes:>6} {rate:>7}")?;
        if self.test.is_sampled() {
            let of = |pick: fn(&Percentiles) -> f64| r.percentiles.map_or("-".to_owned(), |p| figure(pick(&p) / 1e3));
            write!(f, " {:>7} {:>7} {:>9}", of(|p| p.p50_ns), of(|p| p.p99_ns), of(|p| p.p99_9_ns))?;
        }
        write!(f, " {:>5}", r.wrong)
    }

    /// Returns the number of wrong values with the library's calls and with plain accesses together.
    pub fn wrong(&self) -> u64 {
        self.library.wrong + self.raw.as_ref().map_or(0, |r| r.wrong)
    }
}

/// Returns the head of a test's table: two lines that begin with `#`.
pub fn head(setting: &Setting, shape: &Shape, pes: usize) -> String {
    let test = setting.test;
    let who = match () {
        () if setting.everybody() && test.has_directions() => "every PE and the next one, at the same time".to_owned(),
        () if matches!(test.family(), Family::Barrier | Family::Collective) => format!("{pes} PEs"),
        () if pes == 1 => "PE 0 and itself".to_owned(),
        () => "PE 0 and PE 1".to_owned(),
    };
    let op = match test {
        Test::AtomicRate => format!("  op {}", setting.op),
        Test::Reduce => format!("  op sum  {}", setting.reduced()),
        _ => String::new(),
    };
    let window = setting.window_bytes.map_or_else(String::new, |bytes| format!("  window {}", Bytes(bytes)));
    let copy = setting.copy.map_or_else(String::new, |copy| format!("  copy {copy}"));
    let raw = if setting.raw { "  raw: plain loads and stores" } else { "" };
    let width = operations_width(test);
    let mut text = format!(
        "# {test}{op}{window}{copy}  scope {}  threads per CTA {}  {who}{raw}\n#{:>9} {:>4} {:>width$} {:>8} {:>6} {:>7}",
        shape.scope, shape.threads, "size(B)", "CTAs", "ops", "time(us)", "GB/s", "Mops/s"
    );
    if test.is_sampled() {
        text += &format!(" {:>7} {:>7} {:>9}", "p50(us)", "p99(us)", "p99.9(us)");
    }
    text + &format!(" {:>5}", "wrong")
}

/// Returns the width of the column of operations: tests without percentiles make more of them, and have more room.
fn operations_width(test: Test) -> usize {
    if test.is_sampled() { 8 } else { 12 }
}

/// Prints a number in six characters, with up to three decimals; in more if its whole part is longer.
fn figure(v: f64) -> String {
    match v {
        v if v >= 9_999.95 => format!("{v:.0}"),
        v if v >= 999.995 => format!("{v:.1}"),
        v if v >= 99.9995 => format!("{v:.2}"),
        v => format!("{v:.3}"),
    }
}

/// Prints the figures with the library's calls, and below them those with plain loads and stores.
impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.line(f, &self.shape.bytes.to_string(), &self.library)?;
        match &self.raw {
            Some(raw) => {
                f.write_str("\n")?;
                self.line(f, "raw", raw)
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_the_sorted_samples() {
        assert_eq!(Percentiles::of(&mut [], 1.0), None);
        let mut samples: Vec<u32> = (1..=1000).rev().collect();
        let p = Percentiles::of(&mut samples, 0.5).unwrap();
        assert_eq!((p.p50_ns, p.p99_ns, p.p99_9_ns), (250.0, 495.0, 499.5));
        let p = Percentiles::of(&mut [7], 2.0).unwrap();
        assert_eq!((p.p50_ns, p.p99_9_ns), (14.0, 14.0));
    }

    #[test]
    fn figures_fit_their_columns() {
        for (v, text) in [
            (0.0, "0.000"),
            (0.6124, "0.612"),
            (99.9994, "99.999"),
            (370.25, "370.25"),
            (8790.04, "8790.0"),
            (1e6, "1000000"),
        ] {
            assert_eq!(figure(v), text);
        }
    }
}
