//! Distributions of random addresses, as tables of equally probable zones.

use crate::workloads::params::{NVME_BENCH_ZONES, NvmeZone};
use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use warpbell::suggest::hint;

/// Zones of a table.
const ZONES: usize = NVME_BENCH_ZONES as usize;
/// Ranks of a Zipf distribution whose weights are added one by one. Those after them are integrated.
const EXACT: u32 = 1 << 16;

/// Distribution of random addresses over the units of a region, by fio's names.
#[derive(Clone, Debug, PartialEq)]
pub enum Distribution {
    /// All units are equally probable.
    Uniform,
    /// The unit of rank k has a weight of k to the power of minus `theta`.
    Zipf {
        /// Exponent, above 0.
        theta: f64,
        /// Place of the first rank, as a share of the region; `None` to scatter the ranks.
        center: Option<f64>,
    },
    /// A share of `h` of the units gets `1 - h` of the commands, and so on within (fio's `pareto`).
    Pareto {
        /// Share, above 0 and below 1.
        h: f64,
        /// Place of the first rank, as for [`Distribution::Zipf`].
        center: Option<f64>,
    },
    /// Consecutive zones of the region: percentage of the commands, and percentage of the region.
    Zoned(Vec<(f64, f64)>),
}

impl Distribution {
    /// Returns true if all units are equally probable.
    pub fn is_uniform(&self) -> bool {
        *self == Self::Uniform
    }

    /// Returns true if the zones are of ranks, which are scattered over the region.
    pub fn is_scattered(&self) -> bool {
        matches!(self, Self::Zipf { center: None, .. } | Self::Pareto { center: None, .. })
    }

    /// Returns the table of a kernel for `units` units; `None` for a uniform distribution.
    pub fn zones(&self, units: u32) -> Option<Vec<NvmeZone>> {
        let table = match self {
            Self::Uniform => return None,
            Self::Zipf { theta, center } => shifted(&ranks(&Zipf::new(*theta, units)), *center, units),
            Self::Pareto { h, center } => {
                let power = h.ln() / (1.0 - h).ln();
                let unit = |share: f64| (f64::from(units - 1) * share.powf(power)) as u32;
                shifted(&(0..=ZONES).map(|i| unit(i as f64 / ZONES as f64)).collect::<Vec<_>>(), *center, units)
            }
            Self::Zoned(zones) => {
                let first: Vec<u32> = (0..=ZONES).map(|i| place(zones, i as f64 / ZONES as f64, units)).collect();
                between(&first, units)
            }
        };
        Some(table)
    }
}

/// Returns the zones between consecutive first units.
fn between(first: &[u32], units: u32) -> Vec<NvmeZone> {
    let zone = |pair: &[u32]| {
        let from = pair[0].min(units - 1);
        NvmeZone { first: from, count: pair[1].saturating_sub(from).clamp(1, units - from) }
    };
    first.windows(2).map(zone).collect()
}

/// Returns the zones of ranks, with the first one at `center` of the region. A zone that passes the end is cut off there.
fn shifted(first: &[u32], center: Option<f64>, units: u32) -> Vec<NvmeZone> {
    let shift = center.map_or(0, |c| (f64::from(units) * c) as u64);
    let mut zones = between(first, units);
    for zone in &mut zones {
        zone.first = ((u64::from(zone.first) + shift) % u64::from(units)) as u32;
        zone.count = zone.count.min(units - zone.first);
    }
    zones
}

/// Returns the unit at which a share of the commands ends.
fn place(zones: &[(f64, f64)], share: f64, units: u32) -> u32 {
    let (mut commands, mut area) = (0.0, 0.0);
    for (percent, size) in zones {
        if share * 100.0 <= commands + percent && *percent > 0.0 {
            area += size * (share * 100.0 - commands) / percent;
            break;
        }
        commands += percent;
        area += size;
    }
    (f64::from(units) * area.min(100.0) / 100.0) as u32
}

/// Sums of the weights of a Zipf distribution.
struct Zipf {
    theta: f64,
    /// Sum of the weights of the first ranks, up to each of them.
    sums: Vec<f64>,
    total: f64,
}

impl Zipf {
    fn new(theta: f64, units: u32) -> Self {
        let mut sum = 0.0;
        let sums: Vec<f64> = (1..=units.min(EXACT))
            .map(|k| {
                sum += f64::from(k).powf(-theta);
                sum
            })
            .collect();
        let total = if units > EXACT { sum + integral(theta, EXACT.into(), units.into()) } else { sum };
        Self { theta, sums, total }
    }

    /// Returns the rank, from 0 on, at which a share of all weights ends.
    fn rank(&self, share: f64) -> u32 {
        let wanted = share * self.total;
        let exact = self.sums.partition_point(|sum| *sum <= wanted);
        let Some(last) = self.sums.last().filter(|_| exact == self.sums.len()) else { return exact as u32 };
        // The inverse of the integral.
        let (from, more, power) = (f64::from(EXACT) + 0.5, wanted - last, 1.0 - self.theta);
        let end = if power.abs() < 1e-9 {
            from * more.exp()
        } else {
            (from.powf(power) + more * power).max(0.0).powf(1.0 / power)
        };
        (end - 0.5) as u32
    }
}

/// Returns the integral that stands for the sum of the weights of the ranks after `from`, up to `to`.
fn integral(theta: f64, from: f64, to: f64) -> f64 {
    let (from, to, power) = (from + 0.5, to + 0.5, 1.0 - theta);
    if power.abs() < 1e-9 { (to / from).ln() } else { (to.powf(power) - from.powf(power)) / power }
}

fn ranks(zipf: &Zipf) -> Vec<u32> {
    (0..=ZONES).map(|i| zipf.rank(i as f64 / ZONES as f64)).collect()
}

impl FromStr for Distribution {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, values) = text.split_once(':').unwrap_or((text, ""));
        let number = |text: &str, example: &str| -> Result<f64, String> {
            text.parse::<f64>()
                .ok()
                .filter(|n| n.is_finite())
                .ok_or_else(|| format!("`{text}` is no number; write {example}"))
        };
        let centered = |example: &str| -> Result<(f64, Option<f64>), String> {
            let (value, center) = match values.split_once(':') {
                Some((value, center)) => (value, Some(number(center, example)?)),
                None => (values, None),
            };
            if center.is_some_and(|c| !(0.0..1.0).contains(&c)) {
                return Err(format!(
                    "the center is {}; give a share of the region, 0 to below 1",
                    center.unwrap_or(0.0)
                ));
            }
            Ok((number(value, example)?, center))
        };
        match name {
            "random" | "uniform" if values.is_empty() => Ok(Self::Uniform),
            "zipf" => match centered("zipf:1.1")? {
                (theta, center) if theta > 0.0 && theta <= 100.0 => Ok(Self::Zipf { theta, center }),
                (theta, _) => Err(format!("the exponent is {theta}; give one above 0, at most 100, as in zipf:1.1")),
            },
            "pareto" => match centered("pareto:0.2")? {
                (h, center) if h > 0.0 && h < 1.0 => Ok(Self::Pareto { h, center }),
                (h, _) => Err(format!("the share is {h}; give one between 0 and 1, as in pareto:0.2")),
            },
            "zoned" => zoned(values),
            _ => Err(format!(
                "write random, zipf:THETA, pareto:H or zoned:COMMANDS/AREA:...{}",
                hint(name, ["random", "zipf", "pareto", "zoned"])
            )),
        }
    }
}

/// Reads `60/10:30/20:10/70`: percentages of the commands and of the region.
fn zoned(text: &str) -> Result<Distribution, String> {
    const EXAMPLE: &str = "zoned:60/10:30/20:10/70, percent of the commands / percent of the region";
    let percent = |text: &str| text.parse::<f64>().ok().filter(|p| (0.0..=100.0).contains(p));
    let zone = |part: &str| {
        let (commands, area) = part.split_once('/')?;
        Some((percent(commands)?, percent(area)?))
    };
    let zones: Vec<(f64, f64)> = text
        .split(':')
        .map(|part| zone(part).ok_or_else(|| format!("`{part}` is no zone; write {EXAMPLE}")))
        .collect::<Result<_, _>>()?;
    let (commands, area) = zones.iter().fold((0.0, 0.0), |sum, zone| (sum.0 + zone.0, sum.1 + zone.1));
    for (sum, of) in [(commands, "commands"), (area, "region")] {
        if (sum - 100.0f64).abs() > 0.01 {
            return Err(format!("the zones have {sum} % of the {of}; write zones with 100 %, as in {EXAMPLE}"));
        }
    }
    if let Some((commands, _)) = zones.iter().find(|(commands, area)| *commands > 0.0 && *area == 0.0) {
        return Err(format!("a zone has {commands} % of the commands and nothing of the region; give it a part"));
    }
    Ok(Distribution::Zoned(zones))
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let center = |c: &Option<f64>| c.map_or_else(String::new, |c| format!(":{c}"));
        match self {
            Self::Uniform => f.write_str("random"),
            Self::Zipf { theta, center: c } => write!(f, "zipf:{theta}{}", center(c)),
            Self::Pareto { h, center: c } => write!(f, "pareto:{h}{}", center(c)),
            Self::Zoned(zones) => {
                f.write_str("zoned")?;
                zones.iter().try_for_each(|(commands, area)| write!(f, ":{commands}/{area}"))
            }
        }
    }
}

impl Serialize for Distribution {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(text: &str) -> Distribution {
        text.parse().unwrap()
    }

    /// Returns the probability of each unit by a table.
    fn weights(text: &str, units: u32) -> Vec<f64> {
        let zones = of(text).zones(units).unwrap();
        assert_eq!(zones.len(), ZONES);
        let mut weights = vec![0.0; units as usize];
        for zone in zones {
            for unit in zone.first..zone.first + zone.count {
                weights[unit as usize] += 1.0 / ZONES as f64 / f64::from(zone.count);
            }
        }
        weights
    }

    #[test]
    fn names_are_read_and_printed() {
        for text in ["random", "zipf:1.1", "zipf:1.2:0.5", "pareto:0.2", "zoned:60/10:30/20:10/70"] {
            assert_eq!(of(text).to_string(), text);
        }
        let refused = |text: &str| text.parse::<Distribution>().unwrap_err();
        assert!(refused("zip:1").contains("did you mean `zipf`"), "{}", refused("zip:1"));
        assert!(refused("zipf").contains("`` is no number; write zipf:1.1"));
        assert!(refused("zipf:0").contains("above 0"));
        assert!(refused("zipf:1:1").contains("below 1"));
        assert!(refused("pareto:1").contains("between 0 and 1"));
        assert!(refused("zoned:60/10").contains("60 % of the commands"));
        assert!(refused("zoned:100/60").contains("60 % of the region"));
        assert!(refused("zoned:50/0:50/100").contains("nothing of the region"));
        assert!(refused("zoned:x").contains("`x` is no zone"));
    }

    #[test]
    fn zipf_has_its_weights() {
        for theta in [0.5, 1.0, 1.3] {
            let weights = weights(&format!("zipf:{theta}"), 100);
            let total: f64 = (1..=100).map(|k| f64::from(k).powf(-theta)).sum();
            for (rank, weight) in (1..).zip(weights) {
                let expected = f64::from(rank).powf(-theta) / total;
                // A boundary of ranks lies within a zone.
                assert!((weight - expected).abs() <= 1.0 / ZONES as f64, "{theta} {rank}: {weight} {expected}");
            }
        }
    }

    /// The first ranks are added one by one, the others integrated: both together are the distribution.
    #[test]
    fn large_zipf_distributions_continue_smoothly() {
        for theta in [0.6, 1.0, 1.2] {
            let units = 1 << 20;
            let zipf = Zipf::new(theta, units);
            let exact: f64 = (1..=units).map(|k| f64::from(k).powf(-theta)).sum();
            assert!((zipf.total / exact - 1.0).abs() < 1e-6);
            for rank in [10, 1 << 15, 1 << 17, 1 << 19] {
                let share: f64 = (1..=rank).map(|k| f64::from(k).powf(-theta)).sum::<f64>() / exact;
                let found = zipf.rank(share * (1.0 + 1e-9));
                assert!(found.abs_diff(rank) <= 1 + rank / 10_000, "{theta} {rank}: {found}");
            }
        }
    }

    #[test]
    fn pareto_gives_a_share_of_the_units_the_rest_of_the_commands() {
        let weights = weights("pareto:0.2", 10_000);
        let first: f64 = weights[..2000].iter().sum();
        assert!((first - 0.8).abs() < 0.01, "{first}");
    }

    #[test]
    fn zones_have_their_commands_and_centers_their_places() {
        let weights_of = |text: &str| weights(text, 1000);
        let zoned = weights_of("zoned:60/10:30/20:10/70");
        let sums = [0..100, 100..300, 300..1000].map(|range| zoned[range].iter().sum::<f64>());
        for (sum, expected) in sums.into_iter().zip([0.6, 0.3, 0.1]) {
            assert!((sum - expected).abs() < 0.001, "{sums:?}");
        }
        let centered = weights_of("zipf:1.2:0.5");
        let most = (0..1000).max_by(|a, b| centered[*a].total_cmp(&centered[*b])).unwrap();
        assert_eq!(most, 500);
        assert!(of("zipf:1.2").is_scattered() && !of("zipf:1.2:0.5").is_scattered());
    }

    proptest! {
        #[test]
        fn zones_lie_within_the_units(units in 1u32.., theta in 0.01f64..4.0, h in 0.01f64..0.99, center in 0.0f64..1.0) {
            let zoned = Distribution::Zoned(vec![(h * 100.0, 10.0), ((1.0 - h) * 100.0, 90.0)]);
            for distribution in [
                Distribution::Zipf { theta, center: None },
                Distribution::Zipf { theta, center: Some(center) },
                Distribution::Pareto { h, center: None },
                zoned,
            ] {
                for zone in distribution.zones(units).unwrap() {
                    prop_assert!(zone.count >= 1 && u64::from(zone.first) + u64::from(zone.count) <= u64::from(units));
                }
            }
        }
    }
}
