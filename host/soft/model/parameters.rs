//! Parameters of a modelled drive, and the rules between them.

use super::latency::Percentiles;
use std::fmt;

/// Size of the commands to which latencies and the mixed rate refer, in bytes.
pub(super) const REFERENCE_BYTES: u64 = 4096;
/// Largest part of the time for which units may be busy at a rate that the model states. Commands choose units at random, so that
/// some units have several commands while others have none: beyond this load a depth of hundreds does not reach the rate.
const MOST_LOAD: f64 = 0.9;
/// Least and largest factor by which a mix of reads and writes changes the time of a command.
const MIX_FACTORS: [f64; 2] = [0.2, 10.0];

/// A modelled drive.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct DriveModel {
    /// Name, as in `optane-p5800x`.
    pub name: String,
    /// The drive that is modelled.
    pub drive: String,
    /// Documents and measurements that the figures come from.
    pub sources: Vec<String>,
    /// Parameters that are derived or assumed, and how.
    pub assumed: Vec<String>,
    /// Limits that the controller reports.
    pub queues: QueueLimits,
    /// Rate of the link to the host in bytes per nanosecond, in each direction.
    pub link: f64,
    /// Reads.
    pub read: Direction,
    /// Writes.
    pub write: Direction,
    /// Buffer of writes.
    pub buffer: WriteBuffer,
    /// Rate of a mix of reads and writes.
    pub mixed: Mixed,
    /// Parts that work independently of each other.
    pub units: Units,
}

/// Limits that the controller reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueLimits {
    /// Number of I/O queue pairs.
    pub pairs: u16,
    /// Number of entries of the largest queue.
    pub entries: u32,
    /// Size of the largest transfer in bytes.
    pub transfer_bytes: u32,
}

/// Reads, or writes.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Direction {
    /// Time of a command of 4 KiB at depth 1, from its fetch to its completion.
    pub(super) latency: Percentiles,
    /// Highest numbers of commands per second, by size in bytes, ascending.
    pub iops: Vec<(u64, f64)>,
    /// Highest number of bytes per nanosecond.
    pub bandwidth: f64,
}

/// Buffer of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WriteBuffer {
    /// Size in bytes; 0 for none.
    pub bytes: u64,
    /// True if buffered data survives a loss of power, so that a Flush has nothing to wait for.
    pub is_protected: bool,
}

/// Rate of a mix of reads and writes of 4 KiB.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Mixed {
    /// Percentage of reads.
    pub read_percent: f64,
    /// Commands per second, reads and writes together.
    pub iops: f64,
}

/// Parts of the drive that work independently of each other, such as dies.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Units {
    /// Number of units.
    pub count: u32,
    /// Consecutive bytes on one unit.
    pub stripe_bytes: u32,
    /// Time for which a read of a stripe, or of a part of one, occupies its unit, in nanoseconds.
    pub read_ns: f64,
    /// Time for which a program operation occupies its unit, in nanoseconds.
    pub program_ns: f64,
    /// Bytes that are written by one program operation.
    pub program_bytes: u32,
}

impl fmt::Display for DriveModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "model {}", self.name)
    }
}

impl Mixed {
    /// Returns the part of reads, 0 to 1.
    fn reads(self) -> f64 {
        self.read_percent / 100.0
    }

    /// Returns 1 for equally many reads and writes, and less for other mixes.
    fn weight(self) -> f64 {
        4.0 * self.reads() * (1.0 - self.reads())
    }
}

impl Direction {
    /// Returns the shortest time between two commands of this size that keeps to the highest rates, in nanoseconds. Between two
    /// sizes with a rate the time is interpolated.
    pub fn interval(&self, bytes: u64) -> f64 {
        let time = |(_, iops): &(u64, f64)| 1e9 / iops;
        let after = self.iops.partition_point(|(size, _)| *size < bytes);
        let by_count = match (after.checked_sub(1).map(|i| &self.iops[i]), self.iops.get(after)) {
            (Some(low), Some(high)) => {
                let part = (bytes - low.0) as f64 / (high.0 - low.0) as f64;
                time(low) + (time(high) - time(low)) * part
            }
            (Some(only), None) | (None, Some(only)) => time(only),
            (None, None) => 0.0,
        };
        by_count.max(bytes as f64 / self.bandwidth)
    }

    /// Returns the sizes in bytes at which the highest rates are stated: those with a number of commands, and `largest` for the
    /// bandwidth.
    fn sizes(&self, largest: u64) -> impl Iterator<Item = u64> {
        self.iops.iter().map(|(bytes, _)| *bytes).chain([largest])
    }
}

impl DriveModel {
    /// Returns the highest rates that the model has, as bytes of a command and commands per second.
    pub fn highest_rates(&self) -> impl Iterator<Item = (u64, f64)> {
        let of = |direction: &Direction| {
            let sizes: Vec<u64> = direction.sizes(self.queues.transfer_bytes.into()).collect();
            sizes.into_iter().map(|bytes| (bytes, 1e9 / direction.interval(bytes))).collect::<Vec<_>>()
        };
        let mixed = (REFERENCE_BYTES, self.mixed.iops);
        of(&self.read).into_iter().chain(of(&self.write)).chain([mixed])
    }

    /// Returns the factor minus 1 by which a mix of equally many reads and writes changes the time of a command. With the part
    /// `w` of writes it is `4 w (1 - w)` times that, which makes the mix that the model states as fast as stated.
    pub(super) fn mix_gain(&self) -> f64 {
        (self.shared_rate() / self.mixed.iops - 1.0) / self.mixed.weight()
    }

    /// Returns the rate of the stated mix in commands per second if reads and writes only shared the drive's time.
    fn shared_rate(&self) -> f64 {
        let reads = self.mixed.reads();
        1e9 / (reads * self.read.interval(REFERENCE_BYTES) + (1.0 - reads) * self.write.interval(REFERENCE_BYTES))
    }

    /// Returns the part of the time for which units are busy with reads, at this rate in commands per nanosecond.
    fn read_load(&self, bytes: u64, rate: f64) -> f64 {
        let stripes = bytes.div_ceil(self.units.stripe_bytes.into()) as f64;
        rate * stripes * self.units.read_ns / f64::from(self.units.count)
    }

    /// As [`Self::read_load`], for writes.
    fn write_load(&self, bytes: u64, rate: f64) -> f64 {
        let programs = bytes as f64 / f64::from(self.units.program_bytes);
        rate * programs * self.units.program_ns / f64::from(self.units.count)
    }

    /// Returns the first rule that the parameters violate, as a sentence.
    pub(super) fn contradiction(&self) -> Option<String> {
        self.unordered_times().or_else(|| self.overloaded_units()).or_else(|| self.impossible_mix())
    }

    fn impossible_mix(&self) -> Option<String> {
        let rate_at = |factor: f64| self.shared_rate() / (1.0 + (factor - 1.0) * self.mixed.weight());
        let [most, least] = MIX_FACTORS.map(rate_at);
        (!(least..=most).contains(&self.mixed.iops)).then(|| {
            format!(
                "mixed.iops is {:.0}; give {least:.0} to {most:.0} for read.iops and write.iops, which give {:.0} where neither \
                 disturbs the other",
                self.mixed.iops,
                self.shared_rate()
            )
        })
    }

    fn unordered_times(&self) -> Option<String> {
        let transfer = REFERENCE_BYTES as f64 / self.link;
        for (name, direction) in [("read", &self.read), ("write", &self.write)] {
            let Percentiles { p0, p50, p99, p99_9, p99_99 } = direction.latency;
            let all = [("p0", p0), ("p50", p50), ("p99", p99), ("p99_9", p99_9), ("p99_99", p99_99)];
            if let Some(pair) = all.windows(2).find(|pair| pair[0].1 > pair[1].1) {
                let [(low, a), (high, b)] = [pair[0], pair[1]];
                return Some(format!(
                    "{name}.latency_us.{low} is {}, more than {high} with {}; give percentiles in ascending order",
                    a / 1e3,
                    b / 1e3
                ));
            }
            if p0 < transfer {
                return Some(format!(
                    "{name}.latency_us.p0 is {}, and the link takes {:.3} us for 4096 bytes alone; give a longer time or a faster link",
                    p0 / 1e3,
                    transfer / 1e3
                ));
            }
        }
        None
    }

    fn overloaded_units(&self) -> Option<String> {
        let largest = self.queues.transfer_bytes.into();
        let reads = self.read.sizes(largest).map(|bytes| {
            let rate = self.read.interval(bytes).recip();
            (format!("reads of {bytes} bytes at {:.0}/s", 1e9 * rate), self.read_load(bytes, rate))
        });
        let writes = self.write.sizes(largest).map(|bytes| {
            let rate = self.write.interval(bytes).recip();
            (format!("writes of {bytes} bytes at {:.0}/s", 1e9 * rate), self.write_load(bytes, rate))
        });
        let (rate, part) = (self.mixed.iops / 1e9, self.mixed.reads());
        let mixed = (
            format!("the mix of {} % reads at {:.0}/s", self.mixed.read_percent, self.mixed.iops),
            self.read_load(REFERENCE_BYTES, rate * part) + self.write_load(REFERENCE_BYTES, rate * (1.0 - part)),
        );
        let (what, load) = reads.chain(writes).chain([mixed]).find(|(_, load)| *load > MOST_LOAD)?;
        Some(format!(
            "{what} keep {} units busy for {:.0} % of the time, and {:.0} % is the limit; give more units.count, shorter times of \
             units, or a lower rate",
            self.units.count,
            100.0 * load,
            100.0 * MOST_LOAD
        ))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Returns a model of 10,000 reads and 5,000 writes of 4 KiB per second, which any machine keeps up with.
    pub(crate) fn slow() -> DriveModel {
        let latency =
            |us: f64| Percentiles { p0: 0.9e3 * us, p50: 1e3 * us, p99: 1.5e3 * us, p99_9: 2e3 * us, p99_99: 5e3 * us };
        DriveModel {
            name: "slow".into(),
            drive: "a drive of tests".into(),
            sources: vec!["none".into()],
            assumed: Vec::new(),
            queues: QueueLimits { pairs: 8, entries: 1024, transfer_bytes: 128 << 10 },
            link: 0.2,
            read: Direction { latency: latency(800.0), iops: vec![(512, 12e3), (4096, 10e3)], bandwidth: 0.1 },
            write: Direction { latency: latency(200.0), iops: vec![(512, 5e3), (4096, 5e3)], bandwidth: 0.05 },
            buffer: WriteBuffer { bytes: 1 << 20, is_protected: true },
            mixed: Mixed { read_percent: 70.0, iops: 6e3 },
            units: Units { count: 32, stripe_bytes: 16384, read_ns: 600e3, program_ns: 2e6, program_bytes: 65536 },
        }
    }

    /// Times of commands at depth 1, in nanoseconds.
    pub(crate) struct Latencies {
        pub(crate) read_ns: f64,
        pub(crate) write_ns: f64,
    }

    impl DriveModel {
        /// Returns the model with these times, give or take a tenth.
        pub(crate) fn with_times(mut self, times: Latencies) -> Self {
            for (direction, ns) in [(&mut self.read, times.read_ns), (&mut self.write, times.write_ns)] {
                direction.latency =
                    Percentiles { p0: 0.9 * ns, p50: ns, p99: 1.1 * ns, p99_9: 1.1 * ns, p99_99: 1.1 * ns };
            }
            self
        }
    }

    #[test]
    fn intervals_are_those_of_the_stated_rates_and_between_them() {
        let read = slow().read;
        assert_eq!(read.interval(4096), 1e5);
        assert!((read.interval(512) - 1e9 / 12e3).abs() < 1e-6);
        assert_eq!(read.interval(1), read.interval(512));
        let between = read.interval(2304);
        assert!((between - (1e5 + 1e9 / 12e3) / 2.0).abs() < 1e-6, "{between}");
        assert_eq!(read.interval(65536), 655360.0);
    }

    #[test]
    fn a_mix_that_only_shares_the_time_has_no_gain() {
        let mut model = slow();
        model.mixed.iops = 1e9 / (0.7 * 1e5 + 0.3 * 2e5);
        assert!(model.mix_gain().abs() < 1e-9);
        assert_eq!(model.contradiction(), None);
        model.mixed.iops *= 1.2;
        assert!(model.mix_gain() < 0.0 && model.contradiction().is_none());
    }

    #[test]
    fn contradictions_name_the_parameters() {
        let said = |change: fn(&mut DriveModel)| {
            let mut model = slow();
            assert_eq!(model.contradiction(), None);
            change(&mut model);
            model.contradiction().unwrap()
        };
        let unordered = said(|m| m.read.latency.p99 = 1.0);
        assert!(unordered.contains("read.latency_us.p50 is 800, more than p99 with 0.001"), "{unordered}");
        let slow_link = said(|m| m.link = 0.001);
        assert!(slow_link.contains("read.latency_us.p0 is 720") && slow_link.contains("4096.000 us"), "{slow_link}");
        let few = said(|m| m.units.count = 4);
        assert!(few.contains("reads of 512 bytes at 12000/s keep 4 units busy for 180 %"), "{few}");
        let mixed = said(|m| m.mixed.iops = 1e2);
        assert!(mixed.contains("mixed.iops is 100; give 899 to 23452") && mixed.contains("7692"), "{mixed}");
    }
}
