//! End of a job by its steady state: `steadystate` and the options beside it.

use super::error::Fault;
use super::given::{Given, LARGEST, Noun};
use std::fmt;
use std::time::Duration;

/// Criterion of `steadystate`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Criterion {
    /// Values that are compared: operations per second, or bytes per second.
    pub of: Metric,
    /// True for the slope of a line through the values of each second, false for their largest deviation from the mean.
    pub slope: bool,
    /// Largest slope or deviation.
    pub limit: Limit,
}

/// Values that a criterion compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Operations per second.
    Iops,
    /// Bytes per second.
    Bandwidth,
}

/// Limit of a criterion.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// Percentage of the mean.
    Percent(f64),
    /// Operations or bytes per second.
    Rate(f64),
}

/// Steady state that ends a job.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SteadyState {
    /// Criterion that has to hold.
    pub criterion: Criterion,
    /// Time for which it has to hold, in whole seconds.
    pub duration: Duration,
    /// Time at the beginning that does not count.
    pub ramp_time: Duration,
}

/// Names of the criteria.
const NAMES: [(&str, Metric, bool); 4] = [
    ("iops", Metric::Iops, false),
    ("iops_slope", Metric::Iops, true),
    ("bw", Metric::Bandwidth, false),
    ("bw_slope", Metric::Bandwidth, true),
];

impl Default for Criterion {
    /// Returns the criterion of a job that has a duration alone.
    fn default() -> Self {
        Self { of: Metric::Iops, slope: true, limit: Limit::Percent(0.01) }
    }
}

impl Criterion {
    /// Reads the value of `steadystate`.
    ///
    /// # Errors
    /// The value is no criterion with a limit.
    pub fn read(given: &mut Given<'_>) -> Result<Self, Fault> {
        let text = given.text()?;
        let Some((name, limit)) = text.split_once(':') else {
            return Err(given.fault("a limit is missing", "write one, as in iops:5%"));
        };
        let Some((_, of, slope)) = NAMES.iter().find(|(known, ..)| *known == name) else {
            return Err(given.unknown(name, &NAMES.map(|(name, ..)| name)));
        };
        let limit = match limit.split_once('%') {
            Some((percent, _)) => Limit::Percent(given.real_of(percent.trim_end(), 0.0..=100.0)?),
            None if *of == Metric::Iops => Limit::Rate(given.real_of(limit, 0.0..=1e15)?),
            None => Limit::Rate(given.number_of(limit, Noun::Bytes, 0..=LARGEST)? as f64),
        };
        Ok(Self { of: *of, slope: *slope, limit })
    }
}

impl fmt::Display for Criterion {
    /// Prints the value of `steadystate`, as in `iops_slope:0.01%`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(_, of, slope)| *of == self.of && *slope == self.slope);
        f.write_str(name.map_or("", |(name, ..)| name))?;
        match self.limit {
            Limit::Percent(percent) => write!(f, ":{percent}%"),
            Limit::Rate(rate) => write!(f, ":{rate}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job_file::number::KbBase;

    fn read(value: &str) -> Result<String, String> {
        let mut given = Given::new("steadystate", Some(value), KbBase::Binary);
        Criterion::read(&mut given).map(|criterion| criterion.to_string()).map_err(|fault| fault.0)
    }

    #[test]
    fn limits_are_percentages_or_rates() {
        for (value, means) in [
            ("iops:5%", "iops:5%"),
            ("iops_slope:0.1 %", "iops_slope:0.1%"),
            ("iops:200", "iops:200"),
            ("bw:10m", "bw:10485760"),
            ("bw_slope:0%", "bw_slope:0%"),
        ] {
            assert_eq!(read(value), Ok(means.to_owned()), "{value}");
        }
        assert_eq!(Criterion::default().to_string(), "iops_slope:0.01%");
        for (value, says) in [
            ("iops", "a limit is missing; write one, as in iops:5%"),
            ("iop:5%", "did you mean `iops`?"),
            ("bw:5x%", ""),
            ("iops:101%", "101 is not in the range of 0 to 100"),
            ("bw:%", "does not begin with a number"),
        ] {
            match says {
                "" => assert_eq!(read(value), Ok("bw:5%".to_owned())),
                says => assert!(read(value).unwrap_err().contains(says), "{value}: {:?}", read(value)),
            }
        }
    }
}
