//! Distribution of random places: `random_distribution`.

use super::access::{PerDirection, for_read_and_write};
use super::error::Fault;
use super::given::{Given, LARGEST, Noun};
use super::number::Amount;
use std::fmt;

/// Most zones of a direction, as in fio.
const MOST_ZONES: usize = 256;
/// Exponent of `zipf` without a number.
const ZIPF: f64 = 1.1;
/// Parameter of `pareto` without a number.
const PARETO: f64 = 0.2;
/// Largest exponent of a Zipf distribution: with it, nearly every access is to the same block.
const MOST_EXPONENT: f64 = 16.0;

/// Distribution of the places of random accesses.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Distribution {
    /// Each block is equally likely.
    #[default]
    Uniform,
    /// The block of rank k is accessed with a probability proportional to k to the power of minus `theta`. The blocks
    /// are scattered by a hash, or follow each other from `center` on.
    Zipf { theta: f64, center: Option<f64> },
    /// Pareto distribution with this parameter, above 0 and below 1.
    Pareto { h: f64, center: Option<f64> },
    /// Normal distribution with a deviation of `percent`, below 100.
    Normal { percent: f64, center: Option<f64> },
    /// Zones from the first block on, each with its share of the accesses.
    Zoned(PerDirection<Vec<Zone>>),
}

/// Zone of random accesses, which follows the zone before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Share of the accesses.
    pub percent: u32,
    /// Length: bytes, or a percentage of the whole.
    pub length: Amount,
}

/// Names of the distributions.
const NAMES: [&str; 6] = ["random", "zipf", "pareto", "normal", "zoned", "zoned_abs"];

impl Distribution {
    /// Reads the value of `random_distribution`.
    ///
    /// # Errors
    /// The value is no distribution of fio, or a number is out of range.
    pub fn read(given: &mut Given<'_>) -> Result<Self, Fault> {
        let text = given.text()?;
        let (name, parameters) = text.split_once(':').map_or((text, None), |(name, rest)| (name, Some(rest)));
        match name {
            "random" => Ok(Self::Uniform),
            "zipf" => {
                let (theta, center) = shape(given, parameters, ZIPF)?;
                if theta <= 0.0 || theta == 1.0 || theta > MOST_EXPONENT {
                    let range = format!("a number above 0 and up to {MOST_EXPONENT}, but not 1");
                    return Err(given.fault(format_args!("theta of {theta}"), format_args!("write {range}")));
                }
                Ok(Self::Zipf { theta, center })
            }
            "pareto" => {
                let (h, center) = shape(given, parameters, PARETO)?;
                match h {
                    h if h > 0.0 && h < 1.0 => Ok(Self::Pareto { h, center }),
                    h => Err(given.fault(format_args!("a parameter of {h}"), "write a number above 0 and below 1")),
                }
            }
            "normal" => {
                let (percent, center) = shape(given, parameters, 0.0)?;
                match percent {
                    percent if (0.0..100.0).contains(&percent) => Ok(Self::Normal { percent, center }),
                    percent => {
                        Err(given.fault(format_args!("a deviation of {percent}"), "write at least 0 and below 100"))
                    }
                }
            }
            "zoned" | "zoned_abs" => zones(given, parameters.unwrap_or_default(), name == "zoned_abs"),
            name => Err(given.unknown(name, &NAMES)),
        }
    }
}

/// Returns the number and the center, from 0 to 1, behind the name of a distribution.
fn shape(given: &mut Given<'_>, parameters: Option<&str>, default: f64) -> Result<(f64, Option<f64>), Fault> {
    let Some(parameters) = parameters else {
        return Ok((default, None));
    };
    let (number, center) =
        parameters.split_once(':').map_or((parameters, None), |(number, center)| (number, Some(center)));
    let center = center.map(|center| given.real_of(center, 0.0..=1.0)).transpose()?;
    Ok((given.real_of(number, f64::MIN..=f64::MAX)?, center))
}

fn zones(given: &mut Given<'_>, text: &str, absolute: bool) -> Result<Distribution, Fault> {
    let mut directions = Vec::new();
    for part in text.trim_end().splitn(3, ',') {
        let zones = zones_of(given, part, absolute)?;
        directions.push((!zones.is_empty()).then_some(zones));
    }
    match for_read_and_write(directions) {
        (None, None) => Err(given.fault("no zone", "write zones, as in zoned:80/20:20/80")),
        (read, write) => {
            Ok(Distribution::Zoned(PerDirection { read: read.unwrap_or_default(), write: write.unwrap_or_default() }))
        }
    }
}

/// Returns the zones of one direction, up to the first empty one.
fn zones_of(given: &mut Given<'_>, text: &str, absolute: bool) -> Result<Vec<Zone>, Fault> {
    let mut zones: Vec<(u32, Option<Amount>)> = Vec::new();
    for entry in text.split(':').take_while(|entry| !entry.is_empty()) {
        let (share, length) = entry.split_once('/').unwrap_or((entry, ""));
        let percent = u32::try_from(given.number_of(share, Noun::Count, 0..=100)?).unwrap_or(100);
        let length = match length {
            "" if absolute => return Err(given.fault(format_args!("`{entry}` has no size"), "write one, as in 80/20g")),
            "" => None,
            length if absolute => Some(Amount::Bytes(given.number_of(length, Noun::Bytes, 1..=LARGEST)?)),
            length => match given.whole_of(length, 0..=100)? {
                0 => None,
                percent => u32::try_from(percent).ok().map(Amount::Percent),
            },
        };
        zones.push((percent, length));
    }
    let accesses: u32 = zones.iter().map(|(percent, _)| percent).sum();
    if zones.len() >= MOST_ZONES {
        let step = format!("write less than {MOST_ZONES}");
        return Err(given.fault(format_args!("{} zones", zones.len()), step));
    }
    if accesses != 100 && !zones.is_empty() {
        return Err(
            given.fault(format_args!("the zones have {accesses}% of the accesses"), "write shares of 100% in all")
        );
    }
    let lengths = zones.iter().filter_map(|(_, length)| *length);
    let sum: u32 = lengths.map(|length| if let Amount::Percent(percent) = length { percent } else { 0 }).sum();
    let missing = zones.iter().filter(|(_, length)| length.is_none()).count();
    if sum > 100 {
        return Err(given.fault(format_args!("the zones have {sum}% of the blocks"), "write lengths of 100% at most"));
    }
    let each = (100 - sum) / u32::try_from(missing.max(1)).unwrap_or(u32::MAX);
    let zone =
        |(percent, length): (u32, Option<Amount>)| Zone { percent, length: length.unwrap_or(Amount::Percent(each)) };
    Ok(zones.into_iter().map(zone).collect())
}

impl fmt::Display for Distribution {
    /// Prints the value of `random_distribution`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, number, center) = match self {
            Self::Uniform => return f.write_str("random"),
            Self::Zoned(zones) => return fmt_zones(zones, f),
            Self::Zipf { theta, center } => ("zipf", theta, center),
            Self::Pareto { h, center } => ("pareto", h, center),
            Self::Normal { percent, center } => ("normal", percent, center),
        };
        write!(f, "{name}:{number}")?;
        center.map_or(Ok(()), |center| write!(f, ":{center}"))
    }
}

fn fmt_zones(zones: &PerDirection<Vec<Zone>>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let text = |zones: &[Zone]| {
        let entries = zones.iter().map(|zone| match zone.length {
            Amount::Bytes(bytes) => format!("{}/{bytes}", zone.percent),
            Amount::Percent(percent) => format!("{}/{percent}", zone.percent),
        });
        entries.collect::<Vec<_>>().join(":")
    };
    let mut all = zones.read.iter().chain(&zones.write);
    let name = if all.any(|zone| matches!(zone.length, Amount::Bytes(_))) { "zoned_abs" } else { "zoned" };
    match zones.read == zones.write {
        true => write!(f, "{name}:{}", text(&zones.read)),
        false => write!(f, "{name}:{},{}", text(&zones.read), text(&zones.write)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job_file::number::KbBase;

    fn read(value: &str) -> Result<String, String> {
        let mut given = Given::new("random_distribution", Some(value), KbBase::Binary);
        Distribution::read(&mut given).map(|d| d.to_string()).map_err(|fault| fault.0)
    }

    #[test]
    fn numbers_follow_the_name() {
        for (value, means) in [
            ("random", "random"),
            ("zipf", "zipf:1.1"),
            ("zipf:0.99", "zipf:0.99"),
            ("zipf:1.2:0.5", "zipf:1.2:0.5"),
            ("pareto", "pareto:0.2"),
            ("pareto:0.9:0", "pareto:0.9:0"),
            ("normal", "normal:0"),
            ("normal:20:1", "normal:20:1"),
            ("zoned:50/5:30/15:20/", "zoned:50/5:30/15:20/80"),
            ("zoned:60/10:40", "zoned:60/10:40/90"),
            ("zoned:100/30,50/10:50/20", "zoned:100/30,50/10:50/20"),
            ("zoned_abs:60/20G:40/1k", "zoned_abs:60/21474836480:40/1024"),
        ] {
            assert_eq!(read(value), Ok(means.to_owned()), "{value}");
        }
    }

    #[test]
    fn numbers_out_of_range_are_refused() {
        for (value, says) in [
            ("zipf:1", "theta of 1; write a number above 0 and up to 16, but not 1"),
            ("zipf:-1", "theta of -1"),
            ("zipf:nan", "`nan` does not begin with a number"),
            ("zipf:1.2:1.5", "1.5 is not in the range of 0 to 1"),
            ("pareto:1", "a parameter of 1; write a number above 0 and below 1"),
            ("normal:100", "a deviation of 100"),
            ("zoned:50/10:30/20", "the zones have 80% of the accesses"),
            ("zoned:50/60:50/50", "the zones have 110% of the blocks"),
            ("zoned", "no zone"),
            ("zoned_abs:100", "`100` has no size"),
            ("zipff", "did you mean `zipf`?"),
        ] {
            assert!(read(value).unwrap_err().contains(says), "{value}: {:?}", read(value));
        }
    }
}
