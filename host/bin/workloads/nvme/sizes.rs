//! Sizes of the commands of a measurement: one, or several that random numbers choose among.

use crate::workloads::params::{NVME_BENCH_SIZES, NvmeSize};
use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;
use warpbell::units::Bytes;

/// Maximum number of sizes for each direction.
const MOST: usize = NVME_BENCH_SIZES as usize;

/// Bytes in commands.
#[derive(Clone, Debug, PartialEq)]
pub enum Sizes {
    /// Bytes in each read, and in each write.
    Fixed {
        /// Bytes in a read.
        read: u64,
        /// Bytes in a write.
        write: u64,
    },
    /// Sizes with their shares.
    Split {
        /// Sizes of reads.
        read: Split,
        /// Sizes of writes.
        write: Split,
    },
}

/// Sizes with the percentages of the commands that have them, which add up to 100.
#[derive(Clone, Debug, PartialEq)]
pub struct Split(Vec<(u64, f64)>);

impl Sizes {
    /// Returns one size for all commands.
    pub fn all(bytes: u64) -> Self {
        Self::Fixed { read: bytes, write: bytes }
    }

    /// Returns all sizes of the directions that are made.
    pub fn each(&self, reads: bool, writes: bool) -> Vec<u64> {
        let (read, write) = match self {
            Self::Fixed { read, write } => (vec![*read], vec![*write]),
            Self::Split { read, write } => (read.bytes().collect(), write.bytes().collect()),
        };
        let made = |made: bool, sizes: Vec<u64>| if made { sizes } else { Vec::new() };
        [made(reads, read), made(writes, write)].concat()
    }

    /// Returns the largest size of the directions that are made.
    pub fn most(&self, reads: bool, writes: bool) -> u64 {
        self.each(reads, writes).into_iter().max().unwrap_or(0)
    }

    /// Returns the smallest size of the directions that are made.
    pub fn least(&self, reads: bool, writes: bool) -> u64 {
        self.each(reads, writes).into_iter().min().unwrap_or(0)
    }

    /// Returns the mean size of a read and of a write.
    pub fn means(&self) -> (f64, f64) {
        match self {
            Self::Fixed { read, write } => (*read as f64, *write as f64),
            Self::Split { read, write } => (read.mean(), write.mean()),
        }
    }

    /// Returns the option that sets them, and its value for people.
    pub fn setting(&self) -> (&'static str, String) {
        let both = |one: String, other: String| {
            if one == other { one } else { format!("{one} of reads, {other} of writes") }
        };
        match self {
            Self::Fixed { read, write } => ("bs", both(Bytes(*read).to_string(), Bytes(*write).to_string())),
            Self::Split { read, write } => ("bssplit", both(read.to_string(), write.to_string())),
        }
    }

    /// Returns the tables of a kernel, reads first, for blocks of `2^block_shift` bytes; `None` if each direction has one
    /// size.
    pub fn tables(&self, block_shift: u32) -> Option<Vec<NvmeSize>> {
        match self {
            Self::Fixed { .. } => None,
            Self::Split { read, write } => Some([read.table(block_shift), write.table(block_shift)].concat()),
        }
    }
}

impl Serialize for Sizes {
    /// Writes `bytes`, or `read_bytes` and `write_bytes`, or `bssplit`.
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Fixed { read, write } if read == write => s.collect_map([("bytes", read)]),
            Self::Fixed { read, write } => s.collect_map([("read_bytes", read), ("write_bytes", write)]),
            Self::Split { read, write } if read == write => s.collect_map([("bssplit", read.to_string())]),
            Self::Split { read, write } => s.collect_map([("bssplit", format!("{read},{write}"))]),
        }
    }
}

impl FromStr for Sizes {
    type Err = String;

    /// Reads fio's `bssplit`: `4k/60:64k/40`, or one for reads and one for writes with a comma between.
    fn from_str(text: &str) -> Result<Self, String> {
        let (read, write) = text.split_once(',').unwrap_or((text, text));
        Ok(Self::Split { read: read.parse()?, write: write.parse()? })
    }
}

impl Split {
    /// Creates sizes with percentages.
    ///
    /// # Errors
    /// A text that says why: none or too many sizes, a size of 0, or a sum other than 100.
    pub fn new(sizes: Vec<(u64, f64)>) -> Result<Self, String> {
        if sizes.is_empty() || sizes.len() > MOST {
            return Err(format!("{} sizes: give 1 to {MOST}", sizes.len()));
        }
        if sizes.iter().any(|(bytes, _)| *bytes == 0) {
            return Err("a size of 0 bytes: give whole blocks".to_owned());
        }
        let sum: f64 = sizes.iter().map(|(_, percent)| percent).sum();
        if sizes.iter().any(|(_, percent)| *percent < 0.0) || (sum - 100.0).abs() > 0.01 {
            return Err(format!("the percentages add up to {sum}: give such that add up to 100"));
        }
        Ok(Self(sizes))
    }

    /// Creates the sizes of fio's `bsrange`: multiples of `least` up to `most`, each as probable as fio makes it.
    ///
    /// # Errors
    /// As [`Split::new`].
    pub fn range(least: u64, most: u64) -> Result<Self, String> {
        // fio adds a number below `most` to `least`, and rounds down; what is larger than `most` becomes `most`.
        let steps = most.checked_div(least).unwrap_or(0);
        if steps > MOST as u64 {
            return Err(format!("{steps} sizes: give a range of at most {MOST} multiples of its smallest size"));
        }
        let share = 100.0 * least as f64 / most.max(1) as f64;
        let mut sizes: Vec<(u64, f64)> = (1..=steps).map(|k| (k * least, share)).collect();
        let rest = 100.0 - share * steps as f64;
        match sizes.last_mut() {
            Some(last) if last.0 == most => last.1 += rest,
            _ => sizes.push((most, rest)),
        }
        Self::new(sizes)
    }

    fn bytes(&self) -> impl Iterator<Item = u64> {
        self.0.iter().map(|(bytes, _)| *bytes)
    }

    fn mean(&self) -> f64 {
        self.0.iter().map(|(bytes, percent)| *bytes as f64 * percent / 100.0).sum()
    }

    fn table(&self, block_shift: u32) -> Vec<NvmeSize> {
        let mut sum = 0.0;
        let mut table: Vec<NvmeSize> = self
            .0
            .iter()
            .map(|(bytes, percent)| {
                sum += percent;
                let up_to = (sum / 100.0 * (u64::from(u32::MAX) + 1) as f64).min(f64::from(u32::MAX)) as u32;
                NvmeSize { blocks: (bytes >> block_shift) as u32, up_to }
            })
            .collect();
        // The last size gets what rounding left, and the entries after it are never reached.
        if let Some(last) = table.last_mut() {
            last.up_to = u32::MAX;
            let last = *last;
            table.resize(MOST, last);
        }
        table
    }
}

impl FromStr for Split {
    type Err = String;

    /// Reads `4k/60:64k/40`. Sizes without a percentage share what the others leave.
    fn from_str(text: &str) -> Result<Self, String> {
        let mut sizes = Vec::new();
        for part in text.split(':') {
            let (size, percent) = part.split_once('/').unwrap_or((part, ""));
            let bytes = size.parse::<Bytes>().map_err(|e| e.to_string())?;
            let percent = match percent {
                "" => None,
                number => match number.parse::<f64>() {
                    Ok(p) if (0.0..=100.0).contains(&p) => Some(p),
                    _ => return Err(format!("`{number}` is no percentage: write 0 to 100, as in 4k/60:64k/40")),
                },
            };
            sizes.push((bytes.0, percent));
        }
        let given: f64 = sizes.iter().filter_map(|(_, percent)| *percent).sum();
        let open = sizes.iter().filter(|(_, percent)| percent.is_none()).count();
        let each = (100.0 - given).max(0.0) / open.max(1) as f64;
        Self::new(sizes.into_iter().map(|(bytes, percent)| (bytes, percent.unwrap_or(each))).collect())
    }
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, (bytes, percent)) in self.0.iter().enumerate() {
            let size = Bytes(*bytes).to_string().replace(' ', "").replace("iB", "").replace('B', "").to_lowercase();
            let size = if bytes.is_multiple_of(1024) && !size.contains('.') { size } else { bytes.to_string() };
            write!(f, "{}{size}/{percent}", if i > 0 { ":" } else { "" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(text: &str) -> Result<String, String> {
        text.parse::<Split>().map(|s| s.to_string())
    }

    #[test]
    fn shares_are_given_or_share_the_rest() {
        assert_eq!(split("4k/60:64k/40"), Ok("4k/60:64k/40".to_owned()));
        assert_eq!(split("4k/50:64k:1m"), Ok("4k/50:64k/25:1m/25".to_owned()));
        assert_eq!(split("512"), Ok("512/100".to_owned()));
        assert_eq!(split("4608/100"), Ok("4608/100".to_owned()));
        assert!(split("4k/60:64k/30").unwrap_err().contains("add up to 90"));
        assert!(split("4k/60:64k/x").unwrap_err().contains("`x` is no percentage"));
        assert!(split("0/100").unwrap_err().contains("0 bytes"));
        assert!(split(&["4k"; 17].join(":")).unwrap_err().contains("give 1 to 16"));
    }

    #[test]
    fn ranges_are_multiples_of_their_smallest_size() {
        let range = |least, most| Split::range(least, most).map(|s| s.to_string());
        assert_eq!(range(4096, 16_384), Ok("4k/25:8k/25:12k/25:16k/25".to_owned()));
        assert_eq!(range(4096, 4096), Ok("4k/100".to_owned()));
        assert_eq!(range(4096, 10_240), Ok("4k/40:8k/40:10k/20".to_owned()));
        assert!(range(512, 65_536).unwrap_err().contains("128 sizes"));
        assert!(range(0, 0).is_err());
    }

    #[test]
    fn tables_have_the_shares() {
        let sizes: Sizes = "4k/25:8k/75,512".parse().unwrap();
        let table = sizes.tables(9).unwrap();
        assert_eq!(table.len(), 2 * MOST);
        assert_eq!((table[0].blocks, table[0].up_to), (8, 1 << 30));
        assert!(table[1..MOST].iter().all(|s| (s.blocks, s.up_to) == (16, u32::MAX)));
        assert!(table[MOST..].iter().all(|s| (s.blocks, s.up_to) == (1, u32::MAX)));
        assert_eq!((sizes.most(true, true), sizes.least(true, true), sizes.least(true, false)), (8192, 512, 4096));
        assert_eq!(sizes.means(), (7168.0, 512.0));
        assert_eq!(Sizes::all(4096).tables(9).map(|t| t.len()), None);
    }

    #[test]
    fn reports_name_what_there_is() {
        let json = |sizes: &Sizes| serde_json::to_string(sizes).unwrap();
        assert_eq!(json(&Sizes::all(4096)), r#"{"bytes":4096}"#);
        assert_eq!(json(&Sizes::Fixed { read: 1, write: 2 }), r#"{"read_bytes":1,"write_bytes":2}"#);
        assert_eq!(json(&"4k,8k".parse().unwrap()), r#"{"bssplit":"4k/100,8k/100"}"#);
    }
}
