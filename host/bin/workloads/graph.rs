//! Results of one run of a graph algorithm, and of several runs together.

use super::report::nanoseconds;
use super::spread::Spread;
use serde::Serialize;
use std::fmt;
use std::time::Duration;
use warpbell::graph::VertexName;
use warpbell::graph::teps::harmonic_mean;
use warpbell::storage::Stats;
use warpbell::units::{Bytes, counted, grouped, si, three_digits};

/// Device I/O and cache accesses of one run.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Io {
    /// Read commands.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Write commands.
    pub writes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Commands per second.
    pub iops: f64,
    /// Bytes read per second.
    pub read_bytes_per_s: f64,
    /// Accesses that found their page in the cache.
    pub hits: u64,
    /// Accesses that did not find their page in the cache.
    pub misses: u64,
    /// Hits divided by all accesses; absent if there were no accesses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hit_ratio: Option<f64>,
    /// Pages read into the cache.
    pub fills: u64,
    /// Pages replaced in the cache.
    pub evictions: u64,
    /// Pages requested before their use.
    pub prefetches: u64,
    /// Doorbell writes for submissions.
    pub doorbells: u64,
    /// Bytes read for each stored edge of the traversed part; absent without edges.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_per_edge: Option<f64>,
    /// Pages read into the cache for each page of all lists; absent where they are not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reads_per_page: Option<f64>,
}

impl Io {
    /// Computes the figures from a run's counters, its duration, and the number of stored edges that it traversed.
    pub fn new(stats: &Stats, elapsed: Duration, stored_edges: u64) -> Self {
        let share = |part: f64, whole: f64| (whole > 0.0).then(|| part / whole);
        let seconds = elapsed.as_secs_f64();
        Self {
            reads: stats.reads,
            read_bytes: stats.read_bytes,
            writes: stats.writes,
            written_bytes: stats.write_bytes,
            iops: share((stats.reads + stats.writes) as f64, seconds).unwrap_or(0.0),
            read_bytes_per_s: share(stats.read_bytes as f64, seconds).unwrap_or(0.0),
            hits: stats.hits,
            misses: stats.misses,
            hit_ratio: share(stats.hits as f64, (stats.hits + stats.misses) as f64),
            fills: stats.fills,
            evictions: stats.evictions,
            prefetches: stats.prefetches,
            doorbells: stats.doorbells,
            bytes_per_edge: share(stats.read_bytes as f64, stored_edges as f64),
            reads_per_page: None,
        }
    }

    /// Adds the reads of a page, of the number of pages that the lists have.
    pub fn of_pages(self, pages: u64) -> Self {
        Self { reads_per_page: (pages > 0).then(|| self.fills as f64 / pages as f64), ..self }
    }
}

/// Results of one run.
#[derive(Clone, Debug, Serialize)]
pub struct GraphRun {
    /// Identifier of the source vertex in the input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<VertexName<'static>>,
    /// Identifiers of the sources of several searches at once. `reached` and `traversed_edges` are then sums over the
    /// searches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sources: Option<Vec<VertexName<'static>>>,
    /// Time from the first launch until the result is in kernel memory, in nanoseconds.
    pub elapsed_ns: u64,
    /// Edges of the traversed part, each counted once (Graph500, "Performance metrics").
    pub traversed_edges: u64,
    /// Traversed edges per second.
    pub teps: f64,
    /// Number of vertices with a value, that is, reached from the source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reached: Option<u64>,
    /// Number of components.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub components: Option<u64>,
    /// Number of communities.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub communities: Option<u64>,
    /// Number of triangles.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub triangles: Option<u64>,
    /// Mean of the clustering coefficients of all vertices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mean_coefficient: Option<f64>,
    /// Largest core number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub largest_core: Option<u64>,
    /// Number of levels, phases, iterations, ranges or steps: see `unit`.
    pub steps: u32,
    /// Name of a step in the plural, as in `levels`.
    pub unit: &'static str,
    /// Sum of the changes in the last iteration of PageRank.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub residual: Option<f64>,
    /// Device I/O; absent if the edges were in memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io: Option<Io>,
    /// Bytes of all puts between PEs; absent for one PE.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub put_bytes: Option<u64>,
    /// True if the result equals a serial computation's, by `rules`; false if it was not checked. A wrong result is an
    /// error and has no report.
    pub verified: bool,
    /// Name of the rules by which results are checked.
    pub rules: &'static str,
    /// Largest relative error that the check allows distances over rounded weights, of those over the weights of the
    /// file; absent where no weight was rounded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight_tolerance: Option<f64>,
    /// Duration of the check in nanoseconds.
    pub verification_ns: u64,
}

impl GraphRun {
    /// Creates the results of a run that took `elapsed` and traversed `traversed_edges` edges in `steps` steps called
    /// `unit`.
    pub fn new(elapsed: Duration, traversed_edges: u64, (steps, unit): (usize, &'static str)) -> Self {
        let seconds = elapsed.as_secs_f64();
        Self {
            source: None,
            sources: None,
            elapsed_ns: nanoseconds(elapsed),
            traversed_edges,
            teps: if seconds > 0.0 { traversed_edges as f64 / seconds } else { 0.0 },
            reached: None,
            components: None,
            triangles: None,
            mean_coefficient: None,
            largest_core: None,
            communities: None,
            steps: u32::try_from(steps).unwrap_or(u32::MAX),
            unit,
            residual: None,
            io: None,
            put_bytes: None,
            verified: false,
            rules: "GAP rules",
            weight_tolerance: None,
            verification_ns: 0,
        }
    }

    /// Returns the duration of the run.
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.elapsed_ns)
    }
}

impl fmt::Display for GraphRun {
    /// Prints `reached 33,696 in 11 levels   0.021 s   8.6 MTEPS`, then for device I/O
    /// `4.60 bytes/edge   hit 97.1 %   112k IOPS`, then `verified (GAP rules)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps = counted(self.steps, self.unit.trim_end_matches('s'), self.unit);
        match (self.reached, self.components.or(self.communities), self.residual) {
            (Some(n), ..) => write!(f, "reached {} in {steps}", grouped(n))?,
            (_, Some(n), _) if self.communities.is_some() => {
                write!(f, "{} in {steps}", counted(n, "community", "communities"))?;
            }
            (_, Some(n), _) => write!(f, "{} in {steps}", counted(n, "component", "components"))?,
            (.., Some(change)) => write!(f, "{steps}, last change {change:.1e}")?,
            _ => match (self.triangles, self.mean_coefficient, self.largest_core) {
                (Some(n), ..) => write!(f, "{} in {steps}", counted(n, "triangle", "triangles"))?,
                (_, Some(mean), _) => write!(f, "mean coefficient {mean:.4} in {steps}")?,
                (.., Some(core)) => write!(f, "largest core number {} in {steps}", grouped(core))?,
                _ => write!(f, "{steps}")?,
            },
        }
        write!(f, "   {}   {}TEPS", seconds(self.elapsed()), spaced(self.teps))?;
        if let Some(io) = &self.io {
            if let Some(b) = io.bytes_per_edge {
                write!(f, "   {} bytes/edge", three_digits(b))?;
            }
            // Pages that were read again are worth a word.
            if let Some(n) = io.reads_per_page.filter(|n| *n > 1.0) {
                write!(f, "   {} reads/page", three_digits(n))?;
            }
            if let Some(h) = io.hit_ratio {
                write!(f, "   hit {:.1} %", h * 100.0)?;
            }
            write!(f, "   {} IOPS", si(io.iops))?;
        }
        if let Some(bytes) = self.put_bytes {
            write!(f, "   exchanged {}", Bytes(bytes))?;
        }
        match (self.verified, self.weight_tolerance) {
            (false, _) => f.write_str("   not verified"),
            (true, None) => write!(f, "   verified ({})", self.rules),
            (true, Some(t)) => write!(f, "   verified ({}), and by the file's weights within {t:.1e}", self.rules),
        }
    }
}

/// Results of several runs together.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Summary {
    /// Number of runs.
    pub runs: usize,
    /// Durations in nanoseconds.
    pub elapsed_ns: Spread,
    /// Traversed edges per second.
    pub teps: Spread,
    /// Harmonic mean of the rates, which is the mean for rates.
    pub harmonic_mean_teps: f64,
    /// True if all runs were verified.
    pub verified: bool,
}

impl Summary {
    /// Summarizes `runs`; `None` if there are none.
    pub fn of(runs: &[GraphRun]) -> Option<Self> {
        // A source without edges traverses none. A zero among the rates would make the harmonic mean meaningless.
        let rates: Vec<f64> = runs.iter().map(|r| r.teps).filter(|t| *t > 0.0).collect();
        Some(Self {
            runs: runs.len(),
            elapsed_ns: Spread::of(runs.iter().map(|r| r.elapsed_ns as f64))?,
            teps: Spread::of(runs.iter().map(|r| r.teps))?,
            harmonic_mean_teps: harmonic_mean(&rates).unwrap_or(0.0),
            verified: runs.iter().all(|r| r.verified),
        })
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |ns: f64| seconds(Duration::from_nanos(ns as u64));
        let (t, r) = (self.elapsed_ns, self.teps);
        writeln!(f, "{} runs   time  min {}  median {}  max {}", self.runs, time(t.min), time(t.median), time(t.max))?;
        write!(
            f,
            "        rate  min {}TEPS  median {}TEPS  max {}TEPS  harmonic mean {}TEPS   {}",
            spaced(r.min),
            spaced(r.median),
            spaced(r.max),
            spaced(self.harmonic_mean_teps),
            if self.verified { "all verified" } else { "not verified" }
        )
    }
}

/// Returns `17.5 M` for 17.5e6: the prefix belongs to the unit that follows.
fn spaced(rate: f64) -> String {
    let text = si(rate);
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic()).len();
    format!("{} {}", &text[..digits], &text[digits..])
}

/// Returns a duration with a fixed number of digits: `12.4 s`, `0.021 s`, `7.51 ms`.
pub fn seconds(d: Duration) -> String {
    let s = d.as_secs_f64();
    match s {
        s if s >= 10.0 => format!("{s:.1} s"),
        s if s >= 0.01 => format!("{s:.3} s"),
        s if s >= 0.001 => format!("{:.2} ms", s * 1e3),
        s => format!("{:.1} us", s * 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enron() -> GraphRun {
        let elapsed = Duration::from_millis(21);
        let mut stats = Stats::default();
        (stats.reads, stats.read_bytes, stats.hits, stats.misses) = (400, 400 << 12, 971, 29);
        GraphRun {
            reached: Some(33_696),
            io: Some(Io::new(&stats, elapsed, 361_622)),
            ..GraphRun::new(elapsed, 180_811, (11, "levels"))
        }
    }

    #[test]
    fn the_line_says_what_was_done_and_whether_it_was_checked() {
        let mut run = enron();
        assert_eq!(
            run.to_string(),
            "reached 33,696 in 11 levels   0.021 s   8.61 MTEPS   4.53 bytes/edge   hit 97.1 %   19.0k IOPS   not verified"
        );
        assert!(GraphRun { steps: 1, ..run.clone() }.to_string().starts_with("reached 33,696 in 1 level   "));
        run.verified = true;
        assert!(run.to_string().ends_with("verified (GAP rules)"));
        for (fills, pages, again) in [(354, 354, false), (885, 354, true)] {
            let io = Io { fills, ..run.io.unwrap() };
            run.io = Some(io.of_pages(pages));
            assert_eq!(run.to_string().contains("   4.53 bytes/edge   2.50 reads/page   hit"), again, "{run}");
        }
    }

    #[test]
    fn one_unverified_run_makes_the_summary_unverified() {
        let (mut a, b) = (enron(), enron());
        a.verified = true;
        let all = Summary::of(&[a.clone(), a.clone()]).unwrap();
        assert!(all.verified && all.to_string().contains("all verified"));
        let mixed = Summary::of(&[a, b]).unwrap();
        assert!(!mixed.verified && mixed.to_string().ends_with("not verified"));
        assert!(Summary::of(&[]).is_none());
    }

    #[test]
    fn nothing_accessed_is_no_ratio() {
        let io = Io::new(&Stats::default(), Duration::ZERO, 0);
        assert_eq!((io.hit_ratio, io.bytes_per_edge, io.iops), (None, None, 0.0));
    }

    #[test]
    fn times_keep_three_digits() {
        assert_eq!(seconds(Duration::from_millis(21)), "0.021 s");
        assert_eq!(seconds(Duration::from_micros(7_510)), "7.51 ms");
        assert_eq!(seconds(Duration::from_secs(75)), "75.0 s");
        assert_eq!(seconds(Duration::from_nanos(4_200)), "4.2 us");
    }
}
