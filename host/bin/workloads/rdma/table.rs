//! Prints perftest's tables (perftest_parameters.h 4.5: RESULT_FMT, REPORT_FMT and related) in 80 columns: with its words, and
//! with its figures in their order, so that tools that split its rows at spaces also read these.

use super::setting::{Atomic, Kind, Setting, Verb};
use super::statistics::{Bandwidth, GIGABIT, Latency, MEBIBYTE, MeanLatency};
use serde::{Deserialize, Serialize};
use std::fmt;
use warpbell::rdma::{AdapterPath, Transport};

/// Line above and below each table.
pub const LINE: &str = "--------------------------------------------------------------------------------";

/// Returns the names of the columns. Units of latencies stand above the names: rows follow the line with the names, as in
/// perftest's tables.
pub fn columns(setting: &Setting) -> &'static str {
    match (setting.test.kind, setting.report_gbits, setting.duration.is_some()) {
        (Kind::Bandwidth, false, _) => {
            " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]"
        }
        (Kind::Bandwidth, true, _) => {
            " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]"
        }
        (Kind::Latency, _, false) => {
            "                      [usec]  [usec]    [usec]  [usec]  [usec]  [usec]  [usec]\n #bytes  #iterations   t_min   t_max t_typical   t_avg t_stdev     99%   99.9%"
        }
        (Kind::Latency, _, true) => " #bytes        #iterations       t_avg[usec]    tps average",
    }
}

/// Figures of one row, of the kind that the setting requests.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
#[non_exhaustive]
pub enum Figures {
    /// Bandwidth.
    Bandwidth(Bandwidth),
    /// Latency from samples.
    Latency(Latency),
    /// Mean latency of a test that runs for a time.
    MeanLatency(MeanLatency),
}

impl Figures {
    /// Formats the figures as a line of the table; `gbits` selects gigabits instead of megabytes.
    pub fn line(&self, gbits: bool) -> String {
        match self {
            Self::Bandwidth(b) => bandwidth(b, gbits),
            Self::Latency(l) => format!(
                " {:<7} {:<11} {:>7} {:>7} {:>9} {:>7} {:>7} {:>7} {:>7}",
                l.bytes,
                l.iterations,
                usec(l.min_us),
                usec(l.max_us),
                usec(l.typical_us),
                usec(l.avg_us),
                usec(l.stdev_us),
                usec(l.p99_us),
                usec(l.p999_us)
            ),
            Self::MeanLatency(m) => {
                let (bytes, iterations, rate) = (m.bytes, m.iterations, m.messages_per_s);
                format!(" {bytes:<7}       {iterations:<17} {:<14.2} {rate:.2}", m.avg_us)
            }
        }
    }
}

fn bandwidth(b: &Bandwidth, gbits: bool) -> String {
    /// Rate in Gb/s below which perftest prints more digits; in MB/s it never does.
    const FEW: f64 = 0.1;
    let unit = if gbits { GIGABIT } else { MEBIBYTE };
    let (peak, average, mpps) = (b.peak_bytes_per_s / unit, b.average_bytes_per_s / unit, b.messages_per_s / 1e6);
    let (bytes, iterations) = (b.bytes, b.iterations);
    let decimals = if gbits && average < FEW { 6 } else { 2 };
    format!(" {bytes:<10} {iterations:<16} {peak:<18.decimals$} {average:<18.decimals$} {mpps:.6}")
}

/// Prints microseconds in seven characters, with up to two decimals; in more if their whole part is longer.
fn usec(us: f64) -> String {
    match us {
        us if us >= 99_999.95 => format!("{us:.0}"),
        us if us >= 9_999.995 => format!("{us:.1}"),
        us => format!("{us:.2}"),
    }
}

/// Text above a table, as perftest prints it. Unknown facts are left out.
pub struct Head<'a> {
    /// Parameters of the measurement.
    pub setting: &'a Setting,
    /// Path that work requests take.
    pub path: &'a AdapterPath,
    /// Maximum size of messages whose data is in the work request, in bytes; 0 for none.
    pub inline_bytes: u64,
    /// Messages per requested completion.
    pub cq_mod: u32,
    /// This side's queue pairs.
    pub local: Vec<Address>,
    /// The other side's queue pairs.
    pub remote: Vec<Address>,
}

/// One end of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Address {
    /// Number of the queue pair.
    pub number: u32,
    /// Remote key of the memory.
    pub key: u32,
    /// Start address of the memory, as work requests name it.
    pub address: u64,
}

impl fmt::Display for Head<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { setting: s, path, .. } = self;
        let verb = match s.test.verb {
            Verb::Write => "RDMA_Write",
            Verb::Read => "RDMA_Read",
            Verb::Send => "Send",
            Verb::Atomic => "Atomic",
        };
        writeln!(f, "{LINE}")?;
        write!(f, "                    {verb} ")?;
        if s.test.verb == Verb::Atomic {
            let atomic = match s.atomic {
                Atomic::FetchAdd => "FETCH_AND_ADD",
                Atomic::CompareSwap => "CMP_AND_SWAP",
            };
            write!(f, "{atomic} ")?;
        }
        if s.bidirectional {
            f.write_str("Bidirectional ")?;
        }
        if s.post_list > 1 {
            f.write_str("Post List ")?;
        }
        writeln!(f, "{} Test", if s.test.kind == Kind::Bandwidth { "BW" } else { "Latency" })?;
        writeln!(f, " Dual-port       : OFF\t\tDevice         : {}", path.device)?;
        let transport = if path.transport == Transport::Soft { "soft" } else { "IB" };
        writeln!(f, " Number of qps   : {}\t\tTransport type : {transport}", s.queue_pairs)?;
        writeln!(f, " Connection type : RC\t\tUsing SRQ      : OFF")?;
        writeln!(f, " TX depth        : {}", s.tx_depth)?;
        if s.post_list > 1 {
            writeln!(f, " Post List       : {}", s.post_list)?;
        }
        if s.test.kind == Kind::Bandwidth {
            writeln!(f, " CQ Moderation   : {}", self.cq_mod)?;
        }
        let link = Link::of(path);
        if let Some(mtu) = link.mtu {
            writeln!(f, " Mtu             : {mtu}[B]")?;
        }
        writeln!(f, " Link type       : {}", link.kind)?;
        if let Some(index) = link.gid_index {
            writeln!(f, " GID index       : {index}")?;
        }
        if matches!(s.test.verb, Verb::Write | Verb::Send) {
            writeln!(f, " Max inline data : {}[B]", self.inline_bytes)?;
        }
        writeln!(f, " rdma_cm QPs\t : OFF")?;
        writeln!(f, " Data ex. method : Ethernet")?;
        writeln!(f, "{LINE}")?;
        for (side, addresses) in [("local", &self.local), ("remote", &self.remote)] {
            for a in addresses {
                let side = format!(" {side} address:");
                writeln!(f, "{side} LID 0000 QPN {:#06x} PSN 0x000000 RKey {:#08x}", a.number, a.key)?;
                writeln!(f, "{:width$} VAddr {:#016x}", "", a.address, width = side.len())?;
            }
        }
        write!(f, "{LINE}")
    }
}

/// Parts of an adapter's one-line description of its link.
#[derive(Debug, PartialEq, Eq)]
struct Link<'a> {
    kind: &'a str,
    mtu: Option<u32>,
    gid_index: Option<u32>,
}

impl<'a> Link<'a> {
    fn of(path: &'a AdapterPath) -> Self {
        let number_after = |mark: &str| {
            let rest = path.link.split_once(mark)?.1.trim_start();
            let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            rest[..end].parse().ok()
        };
        let kind = match path.link.as_str() {
            l if l.starts_with("RoCE") => "Ethernet",
            l if l.starts_with("InfiniBand") => "IB",
            "" => "memory",
            other => other,
        };
        Self { kind, mtu: number_after("MTU"), gid_index: number_after("(index") }
    }
}

#[cfg(test)]
mod tests {
    use super::super::setting::Test;
    use super::*;

    fn path(transport: Transport, device: &str, link: &str) -> AdapterPath {
        let mut path = AdapterPath::new(transport, device);
        path.link = link.to_owned();
        path
    }

    #[test]
    fn rows_have_the_fields_of_perftests() {
        let b = Bandwidth {
            bytes: 65536,
            iterations: 5000,
            peak_bytes_per_s: 55.5 * MEBIBYTE,
            average_bytes_per_s: 54.25 * MEBIBYTE,
            messages_per_s: 868.0,
        };
        // printf(" %-7lu    %-10lu       %-7.2lf            %-7.2lf\t\t   %-7.6lf", ...), with spaces for tabs.
        let line = Figures::Bandwidth(b).line(false);
        assert_eq!(line, " 65536      5000             55.50              54.25              0.000868");
        let fast = Figures::Bandwidth(Bandwidth { average_bytes_per_s: 50e9, peak_bytes_per_s: 50e9, ..b });
        assert_eq!(fast.line(false), " 65536      5000             47683.72           47683.72           0.000868");
        // Gigabits, above and below 0.1 Gb/s.
        let gbits = Figures::Bandwidth(b).line(true);
        assert_eq!(gbits, " 65536      5000             0.47               0.46               0.000868");
        let few = Figures::Bandwidth(Bandwidth { average_bytes_per_s: 1e6, peak_bytes_per_s: 2e6, ..b }).line(true);
        assert_eq!(few, " 65536      5000             0.016000           0.008000           0.000868");
        let l = Latency {
            bytes: 2,
            iterations: 1000,
            min_us: 16.5,
            max_us: 99.0,
            typical_us: 18.25,
            avg_us: 20.0,
            stdev_us: 3.5,
            p99_us: 42.0,
            p999_us: 98.0,
        };
        let line = Figures::Latency(l).line(false);
        assert_eq!(line, " 2       1000          16.50   99.00     18.25   20.00    3.50   42.00   98.00");
        let late =
            Figures::Latency(Latency { bytes: 8 << 20, max_us: 1_234_567.8, p999_us: 45_678.9, ..l }).line(false);
        assert_eq!(late, " 8388608 1000          16.50 1234568     18.25   20.00    3.50   42.00 45678.9");
        let m = MeanLatency { bytes: 2, iterations: 12345, avg_us: 2.5, messages_per_s: 200_000.0 };
        assert_eq!(Figures::MeanLatency(m).line(false), " 2             12345             2.50           200000.00");
    }

    #[test]
    fn links_are_taken_apart() {
        let roce = path(Transport::Verbs, "rxe0 port 1", "RoCE v2 ::ffff:10.0.0.1 (index 3)  MTU 1024");
        assert_eq!(Link::of(&roce), Link { kind: "Ethernet", mtu: Some(1024), gid_index: Some(3) });
        let soft = path(Transport::Soft, "soft nic", "Unix socket");
        assert_eq!(Link::of(&soft), Link { kind: "Unix socket", mtu: None, gid_index: None });
    }

    #[test]
    fn the_head_names_the_test_and_the_device() {
        let setting = Setting::new(Test { verb: Verb::Atomic, kind: Kind::Bandwidth });
        let path = path(Transport::Verbs, "rxe0 port 1", "RoCE v2 ::ffff:10.0.0.1 (index 3)  MTU 1024");
        let address = Address { number: 0x11, key: 0x2a, address: 0x7f00_0000_1000 };
        let head = Head {
            setting: &setting,
            path: &path,
            inline_bytes: 0,
            cq_mod: 100,
            local: vec![address],
            remote: vec![address],
        };
        let text = head.to_string();
        for line in [
            LINE,
            "                    Atomic FETCH_AND_ADD BW Test",
            " Dual-port       : OFF\t\tDevice         : rxe0 port 1",
            " Number of qps   : 1\t\tTransport type : IB",
            " TX depth        : 128",
            " Mtu             : 1024[B]",
            " Link type       : Ethernet",
            " GID index       : 3",
            " local address: LID 0000 QPN 0x0011 PSN 0x000000 RKey 0x00002a",
            "                VAddr 0x007f0000001000",
        ] {
            assert!(text.lines().any(|l| l == line), "{line:?} is not in\n{text}");
        }
        assert!(!text.contains("inline"), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}
