//! Parameters of a measurement: perftest's tests, defaults and limits (perftest_parameters.h, DEF_* and MIN_*, MAX_*).

use crate::workloads::error::{MeasureError, refuse};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;
use warpbell::suggest::hint;

/// Sizes of `--all`, as exponents of powers of two.
pub const ALL_SIZES: std::ops::RangeInclusive<u32> = 1..=23;
/// Size of an atomic operation in bytes.
pub const ATOMIC_BYTES: u64 = 8;
/// Maximum number of messages in flight.
pub const MOST_TX_DEPTH: u32 = 15_000;
/// Maximum number of queue pairs.
pub const MOST_QUEUE_PAIRS: u32 = 16_384;
/// Minimum number of iterations.
pub const FEWEST_ITERATIONS: u64 = 5;
/// Maximum number of iterations.
pub const MOST_ITERATIONS: u64 = 100_000_000;
/// Maximum number of bytes that a work request of one block carries inline.
pub const MOST_INLINE: u64 = 28;
/// Bytes of the buffer that messages cycle through if they are smaller.
const WINDOW: u64 = 64 << 10;
/// Alignment of messages in the buffer, in bytes.
const ALIGNMENT: u64 = 64;

/// Operation of a test's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Verb {
    /// RDMA write.
    Write,
    /// RDMA read.
    Read,
    /// Fetch-and-add, or compare-and-swap, of 8 bytes.
    Atomic,
    /// Send.
    Send,
}

/// Quantity that a test measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Messages and bytes per second, with many messages in flight.
    Bandwidth,
    /// Time per message, with one message in flight.
    Latency,
}

/// A test, under perftest's name without the `ib_`: `write_bw`, `read_lat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Test {
    /// Operation of the messages.
    pub verb: Verb,
    /// Quantity that is measured.
    pub kind: Kind,
}

impl Test {
    /// All tests.
    pub const ALL: [Self; 8] = {
        const fn test(verb: Verb, kind: Kind) -> Test {
            Test { verb, kind }
        }
        [
            test(Verb::Write, Kind::Bandwidth),
            test(Verb::Write, Kind::Latency),
            test(Verb::Read, Kind::Bandwidth),
            test(Verb::Read, Kind::Latency),
            test(Verb::Atomic, Kind::Bandwidth),
            test(Verb::Atomic, Kind::Latency),
            test(Verb::Send, Kind::Bandwidth),
            test(Verb::Send, Kind::Latency),
        ]
    };

    /// Returns true if the other side replies to each message with one of its own before the next message.
    pub fn goes_there_and_back(self) -> bool {
        self.kind == Kind::Latency && matches!(self.verb, Verb::Write | Verb::Send)
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self.verb {
            Verb::Write => "write",
            Verb::Read => "read",
            Verb::Atomic => "atomic",
            Verb::Send => "send",
        };
        write!(f, "{verb}_{}", if self.kind == Kind::Bandwidth { "bw" } else { "lat" })
    }
}

impl FromStr for Test {
    type Err = String;

    /// Parses a name with or without perftest's `ib_`.
    fn from_str(s: &str) -> Result<Self, String> {
        let name = s.strip_prefix("ib_").unwrap_or(s);
        Self::ALL.into_iter().find(|t| t.to_string() == name).ok_or_else(|| {
            let names: Vec<String> = Self::ALL.iter().map(Self::to_string).collect();
            format!("write one of {}{}", names.join(", "), hint(name, names.iter().map(String::as_str)))
        })
    }
}

/// Atomic operation of an atomic test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Atomic {
    /// Adds 1.
    #[default]
    FetchAdd,
    /// Compares with the value that the previous operation wrote, and therefore always swaps.
    CompareSwap,
}

impl FromStr for Atomic {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "FETCH_AND_ADD" => Ok(Self::FetchAdd),
            "CMP_AND_SWAP" => Ok(Self::CompareSwap),
            _ => {
                let meant = hint(s, ["FETCH_AND_ADD", "CMP_AND_SWAP"]);
                Err(format!("write FETCH_AND_ADD or CMP_AND_SWAP{meant}"))
            }
        }
    }
}

/// Parameters of a measurement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Setting {
    /// Test to run.
    pub test: Test,
    /// Sizes of messages in bytes; each gives one row.
    #[serde(rename = "message_bytes")]
    pub sizes: Vec<u64>,
    /// Messages per queue pair.
    pub iterations: u64,
    /// Time during which messages are sent, instead of a number of messages.
    #[serde(rename = "duration_ns", with = "in_nanoseconds")]
    pub duration: Option<Duration>,
    /// Number of queue pairs.
    pub queue_pairs: u32,
    /// Maximum number of messages in flight per queue pair.
    pub tx_depth: u32,
    /// Messages per doorbell write.
    pub post_list: u32,
    /// Messages per requested completion.
    pub cq_mod: u32,
    /// Maximum size in bytes of writes whose data is in the work request.
    pub inline_bytes: u64,
    /// True if both sides send at the same time.
    pub bidirectional: bool,
    /// True to omit the peak.
    pub no_peak: bool,
    /// Operation of atomic tests.
    pub atomic: Atomic,
    /// True to report gigabits (10^9) instead of megabytes (2^20).
    pub report_gbits: bool,
}

mod in_nanoseconds {
    use crate::workloads::report::nanoseconds;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use std::time::Duration;

    pub fn serialize<S: Serializer>(time: &Option<Duration>, s: S) -> Result<S::Ok, S::Error> {
        time.map(nanoseconds).serialize(s)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Duration>, D::Error> {
        Ok(Option::<u64>::deserialize(d)?.map(Duration::from_nanos))
    }
}

impl Setting {
    /// Returns perftest's defaults for `test`.
    pub fn new(test: Test) -> Self {
        let bandwidth = test.kind == Kind::Bandwidth;
        let size = match (test.verb, bandwidth) {
            (Verb::Atomic, _) => ATOMIC_BYTES,
            (_, true) => 65_536,
            (_, false) => 2,
        };
        Self {
            test,
            sizes: vec![size],
            iterations: if test.verb == Verb::Write && bandwidth { 5000 } else { 1000 },
            duration: None,
            queue_pairs: 1,
            tx_depth: if bandwidth { 128 } else { 1 },
            post_list: 1,
            cq_mod: 100,
            inline_bytes: if test.goes_there_and_back() { MOST_INLINE } else { 0 },
            bidirectional: false,
            no_peak: false,
            atomic: Atomic::default(),
            report_gbits: false,
        }
    }

    /// Adapts `cq_mod` to the other parameters: every list, and every `tx_depth` messages, contain at least one message
    /// that requests a completion.
    pub fn with_defaults(mut self) -> Self {
        self.cq_mod = self.cq_mod.min(self.tx_depth);
        if self.post_list > 1 {
            self.cq_mod = self.post_list;
        }
        self
    }

    /// Checks that the setting can be measured.
    ///
    /// # Errors
    /// [`MeasureError::Refused`] with the first parameter that is out of range or contradicts the test.
    pub fn check(&self) -> Result<(), MeasureError> {
        let refuse = |reason: String| refuse!("{}: {reason}", self.test);
        let Test { verb, kind } = self.test;
        if verb == Verb::Send {
            return refuse(
                "a send needs a receive queue at the other side, and queue pairs that kernels drive have a send ring only; \
                 measure write_bw or write_lat"
                    .to_owned(),
            );
        }
        if verb == Verb::Atomic && self.sizes.iter().any(|s| *s != ATOMIC_BYTES) {
            return refuse(format!("atomic operations have {ATOMIC_BYTES} bytes; leave --size and --all out"));
        }
        if let Some(size) = self.sizes.iter().find(|s| !(1..=1 << 30).contains(*s)) {
            return refuse(format!("messages of {size} bytes: give 1 to 2^30"));
        }
        if self.sizes.is_empty() {
            return refuse("no message size is given".to_owned());
        }
        if self.duration.is_none() && !(FEWEST_ITERATIONS..=MOST_ITERATIONS).contains(&self.iterations) {
            return refuse(format!("{} iterations: give {FEWEST_ITERATIONS} to {MOST_ITERATIONS}", self.iterations));
        }
        if !(1..=MOST_TX_DEPTH).contains(&self.tx_depth) {
            return refuse(format!("a depth of {}: give 1 to {MOST_TX_DEPTH}", self.tx_depth));
        }
        if !(1..=MOST_QUEUE_PAIRS).contains(&self.queue_pairs) {
            return refuse(format!("{} queue pairs: give 1 to {MOST_QUEUE_PAIRS}", self.queue_pairs));
        }
        if self.post_list == 0 || self.post_list > self.tx_depth {
            return refuse(format!(
                "a post list of {} messages with a depth of {}: give a list of 1 to the depth",
                self.post_list, self.tx_depth
            ));
        }
        if self.cq_mod == 0 {
            return refuse("a completion every 0 messages: give at least 1".to_owned());
        }
        if self.inline_bytes > MOST_INLINE {
            return refuse(format!(
                "{} bytes of inline data do not fit in a work request; the limit is {MOST_INLINE}",
                self.inline_bytes
            ));
        }
        if kind == Kind::Latency {
            let alone = [
                (self.queue_pairs > 1, "one queue pair: leave --qp out"),
                (self.tx_depth > 1, "one message in flight: leave --tx-depth out"),
                (self.bidirectional, "one message in flight: leave --bidirectional out"),
            ];
            if let Some((_, why)) = alone.iter().find(|(wrong, _)| *wrong) {
                return refuse(format!("latency is measured with {why}"));
            }
        }
        Ok(())
    }

    /// Returns the distance in bytes from one message to the next in the buffer.
    pub(super) fn stride(bytes: u64) -> u64 {
        bytes.next_multiple_of(ALIGNMENT)
    }

    /// Returns the number of messages that have separate places in a queue pair's part of the buffer.
    pub(super) fn slots(&self, bytes: u64) -> u64 {
        (WINDOW / Self::stride(bytes)).clamp(1, self.tx_depth.into())
    }

    /// Returns the size in bytes of a queue pair's part of the buffer, large enough for every message size.
    pub(super) fn span(&self) -> u64 {
        self.sizes.iter().map(|s| self.slots(*s) * Self::stride(*s)).max().unwrap_or(ALIGNMENT)
    }

    /// Returns true if the times of every message are recorded.
    pub(super) fn stamps(&self) -> bool {
        self.duration.is_none()
            && (self.test.kind == Kind::Latency
                || (!self.no_peak
                    && self.iterations.saturating_mul(self.queue_pairs.into()) <= super::statistics::MOST_FOR_PEAK))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(name: &str) -> Setting {
        Setting::new(name.parse().unwrap()).with_defaults()
    }

    #[test]
    fn names_are_perftests() {
        for test in Test::ALL {
            assert_eq!(test.to_string().parse(), Ok(test));
            assert_eq!(format!("ib_{test}").parse(), Ok(test));
        }
        assert!("write".parse::<Test>().unwrap_err().contains("write_bw, write_lat"));
    }

    #[test]
    fn defaults_are_perftests() {
        let bw = setting("write_bw");
        assert_eq!((bw.sizes[0], bw.iterations, bw.tx_depth, bw.cq_mod), (65_536, 5000, 128, 100));
        let lat = setting("read_lat");
        assert_eq!((lat.sizes[0], lat.iterations, lat.tx_depth, lat.cq_mod), (2, 1000, 1, 1));
        assert_eq!(setting("atomic_bw").sizes, [8]);
        assert_eq!(setting("write_lat").inline_bytes, 28);
        for test in Test::ALL.into_iter().filter(|t| t.verb != Verb::Send) {
            setting(&test.to_string()).check().unwrap();
        }
    }

    #[test]
    fn what_cannot_be_is_refused_with_a_way_out() {
        let with = |name: &str, change: fn(&mut Setting)| {
            let mut s = setting(name);
            change(&mut s);
            s.check().unwrap_err().to_string()
        };
        assert!(with("send_bw", |_| ()).contains("measure write_bw"));
        assert!(with("atomic_lat", |s| s.sizes = vec![16]).contains("have 8 bytes"));
        assert!(with("write_lat", |s| s.queue_pairs = 2).contains("leave --qp out"));
        assert!(with("read_lat", |s| s.bidirectional = true).contains("--bidirectional"));
        assert!(with("write_bw", |s| s.post_list = 129).contains("a depth of 128"));
        assert!(with("write_bw", |s| s.inline_bytes = 64).contains("the limit is 28"));
        assert!(with("write_bw", |s| s.iterations = 4).contains("5 to"));
        assert!(with("write_bw", |s| s.sizes = vec![0]).contains("1 to 2^30"));
    }

    #[test]
    fn keys_have_units_and_the_other_side_reads_them() {
        let mut s = setting("write_lat");
        s.duration = Some(Duration::from_millis(1500));
        let json = serde_json::to_value(&s).unwrap();
        assert_eq!((&json["duration_ns"], &json["message_bytes"]), (&1_500_000_000.into(), &[2].into()));
        assert_eq!(serde_json::from_value::<Setting>(json).unwrap(), s);
    }

    #[test]
    fn small_messages_go_round_in_a_window() {
        let s = setting("write_bw");
        assert_eq!((s.slots(2), s.slots(1024), s.slots(65_536), s.slots(1 << 20)), (128, 64, 1, 1));
        let mut all = s.clone();
        all.sizes = ALL_SIZES.map(|log| 1 << log).collect();
        assert_eq!(all.span(), 8 << 20);
        assert!(s.stamps());
        let many = Setting { queue_pairs: 5, ..s };
        assert!(!many.stamps());
    }
}
