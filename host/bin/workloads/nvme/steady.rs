//! Criterion by which a measurement ends once its rate is steady (fio's `steadystate`).

use crate::workloads::error::{MeasureError, refuse};
use crate::workloads::params::NvmeInterval;
use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use warpbell::suggest::hint;
use warpbell::units::{Bytes, si};

/// Intervals of a window, unless the time series has its own.
const SAMPLES: u32 = 10;
/// Minimum number of intervals of a window: a slope of fewer says nothing.
const LEAST: u32 = 4;

/// Rate that is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rate {
    Iops,
    Bandwidth,
}

/// Criterion of a steady rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Criterion {
    rate: Rate,
    /// True for the slope of a line through the samples, false for the largest distance from their mean.
    slope: bool,
    limit: f64,
    /// True if the limit is a percentage of the mean.
    percent: bool,
}

/// Criterion, and the time for which it has to hold.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SteadyState {
    /// Criterion of the rate.
    pub criterion: Criterion,
    /// Time for which the rate has to be steady.
    pub window: Duration,
}

/// Outcome of a run with a criterion.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Steadiness {
    /// True if the rate became steady, and the run ended there.
    pub attained: bool,
    /// Mean rate of the last window: commands, or bytes, per second.
    pub mean_per_s: f64,
    /// Deviation that the criterion is about, in the last window: the largest distance from the mean, or the slope per second.
    pub deviation_per_s: f64,
}

impl Criterion {
    /// Creates a criterion of the commands, or else of the bytes, per second: the slope per second, or the largest
    /// distance from the mean. `limit` is a percentage of the mean if its flag is set.
    pub fn new(of_iops: bool, slope: bool, (limit, percent): (f64, bool)) -> Self {
        Self { rate: if of_iops { Rate::Iops } else { Rate::Bandwidth }, slope, limit, percent }
    }
}

impl SteadyState {
    /// Returns the interval of the samples: `series`, if there is one.
    ///
    /// # Errors
    /// [`MeasureError::Refused`] if the window has too few of them.
    pub fn interval(&self, series: Option<Duration>) -> Result<Duration, MeasureError> {
        let Some(interval) = series else { return Ok(self.window / SAMPLES) };
        let least = interval.saturating_mul(LEAST);
        if self.window < least {
            let window = self.window;
            return refuse!(
                "--steady-state-duration {window:?} has fewer than {LEAST} intervals of --time-series {interval:?}; give {least:?} or more"
            );
        }
        Ok(interval)
    }

    /// Judges the last window of `samples`, which are consecutive intervals. Returns `None` before a window is full.
    pub fn judge(&self, samples: &[[NvmeInterval; 2]], interval: Duration, block_shift: u32) -> Option<Steadiness> {
        let needed = (self.window.as_secs_f64() / interval.as_secs_f64()).round() as usize;
        let window = samples.len().checked_sub(needed).map(|from| &samples[from..]).filter(|w| !w.is_empty())?;
        let seconds = interval.as_secs_f64();
        let rate = |both: &[NvmeInterval; 2]| {
            let amount = |i: &NvmeInterval| match self.criterion.rate {
                Rate::Iops => i.commands,
                Rate::Bandwidth => i.blocks << block_shift,
            };
            both.iter().map(amount).sum::<u64>() as f64 / seconds
        };
        let rates: Vec<f64> = window.iter().map(rate).collect();
        let mean = rates.iter().sum::<f64>() / rates.len() as f64;
        let deviation = if self.criterion.slope {
            slope(&rates, mean).abs() / seconds
        } else {
            rates.iter().map(|r| (r - mean).abs()).fold(0.0, f64::max)
        };
        let limit = if self.criterion.percent { self.criterion.limit / 100.0 * mean } else { self.criterion.limit };
        Some(Steadiness { attained: mean > 0.0 && deviation <= limit, mean_per_s: mean, deviation_per_s: deviation })
    }
}

/// Returns the slope of the line through the samples (least squares), for a step of one sample.
fn slope(samples: &[f64], mean: f64) -> f64 {
    let middle = (samples.len() - 1) as f64 / 2.0;
    let of = |(i, sample): (usize, &f64)| {
        let x = i as f64 - middle;
        (x * (sample - mean), x * x)
    };
    let (xy, xx) = samples.iter().enumerate().map(of).fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    if xx > 0.0 { xy / xx } else { 0.0 }
}

impl FromStr for Criterion {
    type Err = String;

    /// Reads `iops:5%`, `bw:100M`, `iops_slope:0.1%` or `bw_slope:1M`.
    fn from_str(text: &str) -> Result<Self, String> {
        const NAMES: [&str; 4] = ["iops", "bw", "iops_slope", "bw_slope"];
        let (name, value) = text.split_once(':').unwrap_or((text, ""));
        let (rate, slope) = match name {
            "iops" => (Rate::Iops, false),
            "bw" => (Rate::Bandwidth, false),
            "iops_slope" => (Rate::Iops, true),
            "bw_slope" => (Rate::Bandwidth, true),
            _ => return Err(format!("write iops, bw, iops_slope or bw_slope, as in iops:5%{}", hint(name, NAMES))),
        };
        let (limit, percent) = match (value.strip_suffix('%'), rate) {
            (Some(number), _) => (number.parse::<f64>().ok(), true),
            (None, Rate::Iops) => (value.parse::<f64>().ok(), false),
            (None, Rate::Bandwidth) => (value.parse::<Bytes>().ok().map(|b| b.0 as f64), false),
        };
        match limit.filter(|l| l.is_finite() && *l > 0.0) {
            Some(limit) => Ok(Self::new(rate == Rate::Iops, slope, (limit, percent))),
            None => Err(format!("`{value}` is no limit: write a percentage or a rate above 0, as in {name}:5%")),
        }
    }
}

impl fmt::Display for Criterion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.rate {
            Rate::Iops => "iops",
            Rate::Bandwidth => "bw",
        })?;
        f.write_str(if self.slope { "_slope:" } else { ":" })?;
        match (self.percent, self.rate) {
            (true, _) => write!(f, "{}%", self.limit),
            (false, Rate::Iops) => write!(f, "{}", self.limit),
            (false, Rate::Bandwidth) => write!(f, "{}", Bytes(self.limit as u64)),
        }
    }
}

impl fmt::Display for SteadyState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} for {:?}", self.criterion, self.window)
    }
}

impl Serialize for SteadyState {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl fmt::Display for Steadiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is = if self.attained { "attained" } else { "not attained" };
        let percent = if self.mean_per_s > 0.0 { 100.0 * self.deviation_per_s / self.mean_per_s } else { 0.0 };
        write!(f, "steady state {is}: mean {}/s, deviation {percent:.2} % of it", si(self.mean_per_s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steady(text: &str) -> SteadyState {
        SteadyState { criterion: text.parse().unwrap(), window: Duration::from_secs(4) }
    }

    fn samples(commands: &[u64]) -> Vec<[NvmeInterval; 2]> {
        let of = |n: &u64| [NvmeInterval { commands: *n, blocks: 8 * n, latency_ns: 0 }, bytemuck::Zeroable::zeroed()];
        commands.iter().map(of).collect()
    }

    fn judged(text: &str, commands: &[u64]) -> Option<(bool, f64, f64)> {
        let judged = steady(text).judge(&samples(commands), Duration::from_secs(1), 9)?;
        Some((judged.attained, judged.mean_per_s, judged.deviation_per_s))
    }

    #[test]
    fn the_last_window_decides() {
        assert_eq!(judged("iops:5%", &[100, 100, 100]), None);
        assert_eq!(judged("iops:5%", &[1, 100, 100, 104, 96]), Some((true, 100.0, 4.0)));
        assert_eq!(judged("iops:3%", &[100, 100, 104, 96]), Some((false, 100.0, 4.0)));
        assert_eq!(judged("iops:4", &[100, 100, 104, 96]), Some((true, 100.0, 4.0)));
        assert_eq!(judged("bw:16k", &[100, 100, 104, 96]), Some((true, 409_600.0, 16_384.0)));
        assert_eq!(judged("bw:15k", &[100, 100, 104, 96]), Some((false, 409_600.0, 16_384.0)));
        // The line through these rises by 10 a second.
        assert_eq!(judged("iops_slope:10%", &[85, 95, 105, 115]), Some((true, 100.0, 10.0)));
        assert_eq!(judged("iops_slope:9%", &[115, 105, 95, 85]), Some((false, 100.0, 10.0)));
        // Nothing that moves is not steady.
        assert_eq!(judged("iops:5%", &[0, 0, 0, 0]), Some((false, 0.0, 0.0)));
    }

    #[test]
    fn criteria_are_read_and_printed() {
        for text in ["iops:5%", "bw_slope:0.5%", "iops_slope:10", "bw:1 MiB"] {
            assert_eq!(text.parse::<Criterion>().map(|c| c.to_string()), Ok(text.to_owned()));
        }
        let refused = |text: &str| text.parse::<Criterion>().unwrap_err();
        assert!(refused("iop:5%").contains("did you mean `iops`"), "{}", refused("iop:5%"));
        assert!(refused("iops").contains("`` is no limit"));
        assert!(refused("bw:0").contains("above 0"));
    }

    #[test]
    fn windows_have_enough_intervals() {
        let of = |series: Option<u64>| steady("iops:5%").interval(series.map(Duration::from_secs));
        assert_eq!(of(None).unwrap(), Duration::from_millis(400));
        assert_eq!(of(Some(1)).unwrap(), Duration::from_secs(1));
        assert!(of(Some(2)).unwrap_err().to_string().contains("give 8s or more"));
    }
}
