//! Sizes of a job's accesses: `bs`, `bsrange` and `bssplit`.

use super::access::{PerDirection, for_read_and_write};
use super::error::Fault;
use super::given::{Given, LARGEST, Noun};
use std::fmt;
use warpbell::units::grouped;

/// Most entries of a `bssplit`, as in fio.
const MOST_ENTRIES: usize = 64;

/// Sizes of the accesses of one direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blocks {
    /// This number of bytes.
    Fixed(u64),
    /// Sizes of a range. fio adds a uniform random number below `most` to `least`, rounds down to a multiple of `least`,
    /// and takes `most` for anything larger.
    Range { least: u64, most: u64 },
    /// Two or more sizes with their shares, the smallest share first. They are 100 percent together.
    Split(Vec<Share>),
}

/// A size and its share of the accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Bytes of an access.
    pub bytes: u64,
    /// Share of the accesses, 1 to 100.
    pub percent: u32,
}

impl Blocks {
    /// Returns the smallest size.
    pub fn least(&self) -> u64 {
        match self {
            Self::Fixed(bytes) | Self::Range { least: bytes, .. } => *bytes,
            Self::Split(shares) => shares.iter().map(|share| share.bytes).min().unwrap_or(0),
        }
    }

    /// Returns the option that the value belongs to.
    pub fn option(&self) -> &'static str {
        match self {
            Self::Fixed(_) => "bs",
            Self::Range { .. } => "bsrange",
            Self::Split(_) => "bssplit",
        }
    }
}

impl fmt::Display for Blocks {
    /// Prints the value of the option, as in `4096`, `4096-16384` or `4096/10:8192/90`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(bytes) => write!(f, "{bytes}"),
            Self::Range { least, most } => write!(f, "{least}-{most}"),
            Self::Split(shares) => {
                let shares: Vec<String> = shares.iter().map(|s| format!("{}/{}", s.bytes, s.percent)).collect();
                f.write_str(&shares.join(":"))
            }
        }
    }
}

/// Entry of a `bssplit`: a size, and a percentage unless it is left out.
type Entry = (u64, Option<u32>);

/// Options about the sizes of one direction, as fio keeps them.
#[derive(Clone, Debug)]
pub struct BlockOptions {
    bs: u64,
    /// Smallest and largest size of the last `bsrange` or `bssplit`.
    limits: Option<(u64, u64)>,
    split: Vec<Entry>,
}

impl Default for BlockOptions {
    fn default() -> Self {
        Self { bs: 4096, limits: None, split: Vec::new() }
    }
}

impl BlockOptions {
    /// Returns the sizes. A `bssplit` or a `bsrange` has precedence over `bs`.
    pub fn blocks(&self) -> Blocks {
        match self.limits {
            None => Blocks::Fixed(self.bs),
            Some((least, most)) if least == most => Blocks::Fixed(least),
            Some(_) if !self.split.is_empty() => match shares(&self.split).as_slice() {
                [share] => Blocks::Fixed(share.bytes),
                shares => Blocks::Split(shares.to_vec()),
            },
            Some((least, most)) => Blocks::Range { least, most },
        }
    }

    /// Returns true if `bs` has no effect.
    pub fn overrides_bs(&self) -> bool {
        self.limits.is_some()
    }
}

/// Reads `bs`.
///
/// # Errors
/// A size is no number above 0.
pub fn read_bs(options: &mut PerDirection<BlockOptions>, given: &mut Given<'_>) -> Result<(), Fault> {
    let (read, write) = for_read_and_write(given.directions(Noun::Bytes, 1..=LARGEST)?);
    options.read.bs = read.unwrap_or(options.read.bs);
    options.write.bs = write.unwrap_or(options.write.bs);
    Ok(())
}

/// Reads `bsrange`.
///
/// # Errors
/// A range does not have two sizes above 0.
pub fn read_range(options: &mut PerDirection<BlockOptions>, given: &mut Given<'_>) -> Result<(), Fault> {
    let mut ranges = Vec::new();
    for part in given.text()?.split(',') {
        let Some((one, other)) = part.split_once('-').or_else(|| part.split_once(':')) else {
            match part {
                "" => ranges.push(None),
                _ => return Err(given.fault(format_args!("`{part}` is no range"), "write one, as in 4k-16k")),
            }
            continue;
        };
        let one = given.number_of(one, Noun::Bytes, 1..=LARGEST)?;
        let other = given.number_of(other, Noun::Bytes, 1..=LARGEST)?;
        ranges.push(Some((one.min(other), one.max(other))));
    }
    if ranges.len() > 3 || ranges.iter().all(Option::is_none) {
        return Err(given.fault("no range for reads, writes or trims", "write one to three, as in 4k-16k,8k-32k"));
    }
    let (read, write) = for_read_and_write(ranges);
    options.read.limits = read.or(options.read.limits);
    options.write.limits = write.or(options.write.limits);
    Ok(())
}

/// Reads `bssplit`.
///
/// # Errors
/// An entry has no size, or the percentages cannot be resolved.
pub fn read_split(options: &mut PerDirection<BlockOptions>, given: &mut Given<'_>) -> Result<(), Fault> {
    let text = given.text()?.trim_start();
    let directions: Vec<&str> = text.splitn(3, ',').collect();
    let mut found = Vec::new();
    for part in &directions {
        let entries = entries(given, part)?;
        check(given, &entries)?;
        found.push((!entries.is_empty()).then_some(entries));
    }
    if found.iter().all(Option::is_none) {
        return Err(given.fault("no size", "write sizes with percentages, as in 4k/60:64k/40"));
    }
    let (read, write) = for_read_and_write(found);
    for (options, split) in [(&mut options.read, read), (&mut options.write, write)] {
        let Some(split) = split else { continue };
        let sizes = split.iter().map(|(bytes, _)| *bytes);
        options.limits = sizes.clone().min().zip(sizes.max());
        options.split = split;
    }
    Ok(())
}

/// Returns the entries of one direction, up to the first empty one.
fn entries(given: &mut Given<'_>, text: &str) -> Result<Vec<Entry>, Fault> {
    let mut entries = Vec::new();
    for entry in text.split(':').take_while(|entry| !entry.is_empty()) {
        let (size, percent) = entry.split_once('/').map_or((entry, None), |(size, percent)| (size, Some(percent)));
        let bytes = given.number_of(size, Noun::Bytes, 1..=LARGEST)?;
        let percent = match percent.filter(|percent| !percent.is_empty()) {
            None => None,
            Some(percent) => match given.whole_of(percent, 0..=100)? {
                0 => {
                    given.note(format_args!(
                        "has 0% for {}, which fio takes for a percentage that is left out",
                        grouped(bytes)
                    ));
                    None
                }
                percent => u32::try_from(percent).ok(),
            },
        };
        entries.push((bytes, percent));
    }
    match entries.len() {
        0..MOST_ENTRIES => Ok(entries),
        n => Err(given.fault(format_args!("{n} sizes"), format_args!("write less than {MOST_ENTRIES}"))),
    }
}

/// Checks that the percentages can be resolved, and notes what fio makes of a sum that is not 100.
fn check(given: &mut Given<'_>, entries: &[Entry]) -> Result<(), Fault> {
    let sum: u32 = entries.iter().filter_map(|(_, percent)| *percent).sum();
    let missing = entries.iter().filter(|(_, percent)| percent.is_none()).count();
    if sum > 100 && missing > 0 {
        return Err(
            given.fault(format_args!("percentages of {sum}, and a size without one"), "write percentages up to 100")
        );
    }
    let list = |shares: &[Share]| Blocks::Split(shares.to_vec()).to_string();
    let least = entries.iter().map(|(bytes, _)| *bytes).min().unwrap_or(1);
    if missing > 0 && each(sum, missing) == 0 {
        given.note("has sizes without a percentage, for which the others leave nothing");
    }
    if missing == 0 && sum != 100 && !entries.is_empty() {
        given.note(format_args!("has percentages of {sum}; fio makes {} of it", list(&shares(entries))));
    } else if entries.iter().any(|(bytes, _)| bytes % least != 0) {
        given.note(format_args!(
            "has sizes that fio rounds down to multiples of the smallest: {}",
            list(&shares(entries))
        ));
    }
    Ok(())
}

/// Returns the percentage of each of `missing` sizes that have none.
fn each(sum: u32, missing: usize) -> u32 {
    100u32.saturating_sub(sum) / u32::try_from(missing.max(1)).unwrap_or(u32::MAX)
}

/// Returns the shares as fio resolves them. Sizes without a percentage share the rest evenly. Then percentages count from
/// the smallest up, and the size with the largest one has the rest. Sizes are rounded down to multiples of the smallest.
fn shares(entries: &[Entry]) -> Vec<Share> {
    let sum: u32 = entries.iter().filter_map(|(_, percent)| *percent).sum();
    let missing = entries.iter().filter(|(_, percent)| percent.is_none()).count();
    let each = each(sum, missing);
    let least = entries.iter().map(|(bytes, _)| *bytes).min().unwrap_or(1).max(1);
    let mut sorted: Vec<Share> = entries
        .iter()
        .map(|(bytes, percent)| Share { bytes: bytes - bytes % least, percent: percent.unwrap_or(each) })
        .filter(|share| share.percent > 0)
        .collect();
    sorted.sort_by_key(|share| share.percent);
    let mut left = 100;
    let last = sorted.len().saturating_sub(1);
    for (i, share) in sorted.iter_mut().enumerate() {
        share.percent = if i == last { left } else { share.percent.min(left) };
        left -= share.percent;
    }
    let mut merged: Vec<Share> = Vec::new();
    for share in sorted.into_iter().filter(|share| share.percent > 0) {
        match merged.iter_mut().find(|other| other.bytes == share.bytes) {
            Some(other) => other.percent += share.percent,
            None => merged.push(share),
        }
    }
    merged.sort_by_key(|share| share.percent);
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job_file::number::KbBase;

    fn apply(options: &mut PerDirection<BlockOptions>, key: &'static str, value: &str) -> Result<Vec<String>, String> {
        let mut given = Given::new(key, Some(value), KbBase::Binary);
        let read = match key {
            "bs" => read_bs,
            "bsrange" => read_range,
            _ => read_split,
        };
        read(options, &mut given).map_err(|fault| fault.0)?;
        Ok(given.into_notes())
    }

    fn blocks(key: &'static str, value: &str) -> Result<(String, String, usize), String> {
        let mut options = PerDirection::default();
        let notes = apply(&mut options, key, value)?;
        Ok((options.read.blocks().to_string(), options.write.blocks().to_string(), notes.len()))
    }

    #[test]
    fn numbers_are_for_reads_writes_and_trims() {
        for (value, read, write, notes) in [
            ("8k", "8192", "8192", 0),
            ("4k,8k", "4096", "8192", 0),
            ("8k,", "8192", "4096", 0),
            (",8k", "4096", "8192", 0),
            ("8k,,16k", "8192", "4096", 0),
            ("1k,2k,16k", "1024", "2048", 0),
            ("4k-8k", "4096", "8192", 1),
            ("4k:8k", "4096", "8192", 1),
            (" 4k", "4", "4", 1),
        ] {
            assert_eq!(blocks("bs", value), Ok((read.into(), write.into(), notes)), "{value}");
        }
        for (value, says) in [
            ("0", "0 bytes is not in the range of 1 to"),
            (",", "no number"),
            ("1k,1k,1k,1k", "more than three numbers"),
            ("4k,x", "`x` does not begin with a number"),
            ("50%", "a percentage, where a number is read"),
            ("-4k", "a negative number"),
        ] {
            assert!(blocks("bs", value).unwrap_err().contains(says), "{value}: {:?}", blocks("bs", value));
        }
    }

    #[test]
    fn ranges_may_be_turned_round_and_may_be_for_one_direction() {
        for (value, read, write) in [
            ("4k-16k", "4096-16384", "4096-16384"),
            ("16k:4k", "4096-16384", "4096-16384"),
            ("4k-16k,1k-2k", "4096-16384", "1024-2048"),
            (",1k-2k", "4096", "1024-2048"),
            ("8k-8k", "8192", "8192"),
        ] {
            assert_eq!(blocks("bsrange", value), Ok((read.into(), write.into(), 0)), "{value}");
        }
        for value in ["4k", "4k-", "0-4k", ",", "4k-8k,4k-8k,4k-8k,4k-8k"] {
            assert!(blocks("bsrange", value).is_err(), "{value}");
        }
    }

    #[test]
    fn the_largest_percentage_has_what_is_left() {
        for (value, shares, notes) in [
            ("4k/10:8k/20", "4096/10:8192/90", 1),
            ("4k/20:8k/90:16k/50", "4096/20:8192/30:16384/50", 1),
            ("4k/60:8k/70:16k/80", "8192/40:4096/60", 1),
            ("4k/50:8k/50", "4096/50:8192/50", 0),
            ("4k/50:8k/:16k/", "8192/25:16384/25:4096/50", 0),
            ("4k:8k:16k", "4096/33:8192/33:16384/34", 0),
            ("4k/100:8k", "4096", 1),
            ("4k/50:8k/0", "4096/50:8192/50", 1),
            ("4k/50:6k/50", "4096", 1),
            ("4k/30::8k/70", "4096", 1),
        ] {
            assert_eq!(blocks("bssplit", value), Ok((shares.into(), shares.into(), notes)), "{value}");
        }
        let both = ("4096/50:8192/50".into(), "1024".into(), 0);
        assert_eq!(blocks("bssplit", "4k/50:8k/50,1k/100"), Ok(both));
        for value in ["4k/60:8k/60:16k", ":", ",", "x/50", "4k/-5", "4k/101", &"4k/1:".repeat(64)] {
            assert!(blocks("bssplit", value).is_err(), "{value}");
        }
    }

    #[test]
    fn the_last_of_range_and_split_has_the_limits_and_bs_none() {
        let mut options = PerDirection::default();
        for (key, value, means) in [
            ("bsrange", "4k-16k", "4096-16384"),
            ("bs", "64k", "4096-16384"),
            ("bssplit", "1k/50:2k/50", "1024/50:2048/50"),
            ("bsrange", "8k-8k", "8192"),
            ("bsrange", "8k-16k", "1024/50:2048/50"),
        ] {
            apply(&mut options, key, value).unwrap();
            assert_eq!(options.read.blocks().to_string(), means, "{key}={value}");
        }
    }
}
