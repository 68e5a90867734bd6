//! Directions and order of a job's accesses: `rw`.

use super::error::Fault;
use super::given::{Given, LARGEST, Noun};
use std::fmt;
use warpbell::suggest::hint;

/// A value for reads and one for writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PerDirection<T> {
    /// Value for reads.
    pub read: T,
    /// Value for writes.
    pub write: T,
}

impl<T> PerDirection<T> {
    /// Returns the values of the directions that a job has.
    pub fn of(&self, access: &Access) -> impl Iterator<Item = &T> {
        let read = access.reads().then_some(&self.read);
        read.into_iter().chain(access.writes().then_some(&self.write))
    }
}

/// Returns the value for reads and that for writes. One value alone is for both; a third one is for trims.
pub fn for_read_and_write<T: Clone>(values: Vec<Option<T>>) -> (Option<T>, Option<T>) {
    let mut values = values.into_iter();
    let read = values.next().flatten();
    let write = values.next().unwrap_or_else(|| read.clone());
    (read, write)
}

/// Directions of a job's accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Reads alone.
    Read,
    /// Writes alone.
    Write,
    /// Reads and writes, in the proportion of `rwmixread`.
    Both,
}

/// Order of a job's accesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// One block behind the other. `gap` bytes are added to the position after each block: with a negative number, the
    /// job runs backwards.
    Sequential { gap: i64 },
    /// Blocks at random places. From each place, `run` blocks follow in sequence.
    Random { run: u32 },
}

/// Accesses of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Directions.
    pub direction: Direction,
    /// Order.
    pub order: Order,
}

/// Names of `rw`, the directions, and true for random places.
const NAMES: [(&str, Direction, bool); 7] = [
    ("read", Direction::Read, false),
    ("write", Direction::Write, false),
    ("randread", Direction::Read, true),
    ("randwrite", Direction::Write, true),
    ("rw", Direction::Both, false),
    ("readwrite", Direction::Both, false),
    ("randrw", Direction::Both, true),
];
/// Names of `rw` without writes.
const HARMLESS: [&str; 2] = ["read", "randread"];
/// Names of `rw` with trims.
const TRIMS: [&str; 4] = ["trim", "randtrim", "trimwrite", "randtrimwrite"];

impl Default for Access {
    fn default() -> Self {
        Self { direction: Direction::Read, order: Order::Sequential { gap: 0 } }
    }
}

impl Access {
    /// Returns true if the job reads.
    pub fn reads(&self) -> bool {
        self.direction != Direction::Write
    }

    /// Returns true if the job writes.
    pub fn writes(&self) -> bool {
        self.direction != Direction::Read
    }

    /// Returns true if the job accesses random places.
    pub fn is_random(&self) -> bool {
        matches!(self.order, Order::Random { .. })
    }

    /// Reads the value of `rw`.
    ///
    /// # Errors
    /// The value is no access that kernels can make.
    pub fn read(given: &mut Given<'_>) -> Result<Self, Fault> {
        let text = given.text()?;
        let (name, postfix) = text.split_once(':').map_or((text, None), |(name, postfix)| (name, Some(postfix.trim())));
        if TRIMS.contains(&name) {
            let fact = "a job with trims, which kernels do not send";
            return Err(given.fault(fact, "leave this job out, or write another rw"));
        }
        let Some((_, direction, random)) = NAMES.iter().find(|(known, ..)| *known == name) else {
            // No suggestion leads to data that is overwritten.
            let meant = hint(name, HARMLESS);
            let step = format!("write one of {}", NAMES.map(|(name, ..)| name).join(", "));
            return Err(given.fault(format_args!("fio has no `{name}` here{meant}"), step));
        };
        let order = match (random, postfix) {
            (false, None) => Order::Sequential { gap: 0 },
            (false, Some(postfix)) => {
                let size = postfix.strip_prefix('-').unwrap_or(postfix);
                let bytes = given.number_of(size, Noun::Bytes, 0..=LARGEST)?;
                let gap = i64::try_from(bytes).unwrap_or(i64::MAX);
                Order::Sequential { gap: if size == postfix { gap } else { -gap } }
            }
            (true, None) => Order::Random { run: 1 },
            (true, Some(postfix)) => {
                let run = given.whole_of(postfix, 1..=u64::from(u32::MAX))?;
                Order::Random { run: u32::try_from(run).unwrap_or(u32::MAX) }
            }
        };
        Ok(Self { direction: *direction, order })
    }
}

impl fmt::Display for Access {
    /// Prints the value of `rw`, as in `randread:8`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_random = self.is_random();
        let name = NAMES.iter().find(|(_, direction, random)| *direction == self.direction && *random == is_random);
        f.write_str(name.map_or("", |(name, ..)| name))?;
        match self.order {
            Order::Sequential { gap: 0 } | Order::Random { run: 1 } => Ok(()),
            Order::Sequential { gap } => write!(f, ":{gap}"),
            Order::Random { run } => write!(f, ":{run}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job_file::number::KbBase;

    fn read(value: &str) -> Result<(String, Vec<String>), String> {
        let mut given = Given::new("rw", Some(value), KbBase::Binary);
        let access = Access::read(&mut given).map_err(|fault| fault.0)?;
        Ok((access.to_string(), given.into_notes()))
    }

    #[test]
    fn postfixes_are_bytes_of_sequences_and_blocks_of_random_places() {
        for (value, means) in [
            ("read", "read"),
            ("readwrite", "rw"),
            ("read:4k", "read:4096"),
            ("read:-8k", "read:-8192"),
            ("write:0", "write"),
            ("randrw:8", "randrw:8"),
            ("randread:1", "randread"),
        ] {
            assert_eq!(read(value), Ok((means.to_owned(), vec![])), "{value}");
        }
        let (access, notes) = read("randread:4k").unwrap();
        assert_eq!(access, "randread:4");
        assert!(
            notes[0].starts_with("rw=randread:4k has `4k`, which is 4 to fio (a number ends before `k`)"),
            "{notes:?}"
        );
    }

    #[test]
    fn trims_and_unknown_accesses_are_refused() {
        for (value, says) in [
            ("trim", "rw=trim: a job with trims, which kernels do not send; leave this job out"),
            ("randtrimwrite", "trims"),
            ("raed", "fio has no `raed` here; did you mean `read`?; write one of read, write, randread"),
            ("writes", "fio has no `writes` here; write one of read, write"),
            ("READ", "fio has no `READ`"),
            (" read", "fio has no ` read`"),
            ("read,write", "fio has no `read,write`"),
            ("randread:0", "0 is not in the range of 1 to 4,294,967,295"),
            ("read:", "`` does not begin with a number"),
            ("read:10%", "a percentage"),
            ("", "rw=: a value is missing; write it behind `rw=`"),
        ] {
            let fault = read(value).unwrap_err();
            assert!(fault.contains(says), "{value}: {fault}");
        }
    }
}
