//! Time of each phase of a command, and the memory that the process took.

use super::graph::{GraphRun, seconds};
use super::report::nanoseconds;
use serde::Serialize;
use std::fmt;
use std::time::Duration;
use warpbell::units::Bytes;

/// Time of each phase in nanoseconds, and the largest memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Phases {
    /// Reading or generating the graph; for a stored graph, reading its offsets.
    pub load_ns: u64,
    /// Writing the edges to the device, if they are not there yet, and the rest to the engine's memory.
    pub place_ns: u64,
    /// All runs of the algorithm.
    pub run_ns: u64,
    /// All checks of results.
    pub verify_ns: u64,
    /// Writing the results.
    pub write_ns: u64,
    /// Largest resident memory of the process so far, in bytes; absent if the system does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<u64>,
}

impl Phases {
    /// Sets the times that are known when the results were written, which took `writing`, and the memory.
    pub fn end(&mut self, runs: &[GraphRun], writing: Duration) {
        self.run_ns = runs.iter().map(|r| r.elapsed_ns).sum();
        self.verify_ns = runs.iter().map(|r| r.verification_ns).sum();
        self.write_ns = nanoseconds(writing);
        self.peak_memory_bytes = peak_memory();
    }
}

impl fmt::Display for Phases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phases = [
            ("load", self.load_ns),
            ("place", self.place_ns),
            ("run", self.run_ns),
            ("verify", self.verify_ns),
            ("write", self.write_ns),
        ];
        f.write_str("phases")?;
        phases.iter().try_for_each(|(name, ns)| write!(f, "  {name} {}", seconds(Duration::from_nanos(*ns))))?;
        self.peak_memory_bytes.map_or(Ok(()), |bytes| write!(f, "   peak memory {}", Bytes(bytes)))
    }
}

/// Returns the largest resident memory of this process in bytes.
pub fn peak_memory() -> Option<u64> {
    peak(&std::fs::read_to_string("/proc/self/status").ok()?)
}

/// Reads the peak from the text of `/proc/PID/status` (proc_pid_status(5)).
fn peak(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_read_in_bytes() {
        assert_eq!(peak("Name:\twarpbell\nVmPeak:\t9 kB\nVmHWM:\t    1234 kB\n"), Some(1234 * 1024));
        assert_eq!(peak("Name:\twarpbell\nVmHWM:\t12 MB\n"), None);
        let own = peak_memory().unwrap();
        assert!((1 << 20..1 << 40).contains(&own), "{own}");
    }

    #[test]
    fn the_line_names_each_phase() {
        let phases = Phases { load_ns: 21_000_000, peak_memory_bytes: Some(3 << 20), ..Phases::default() };
        assert_eq!(
            phases.to_string(),
            "phases  load 0.021 s  place 0.0 us  run 0.0 us  verify 0.0 us  write 0.0 us   peak memory 3 MiB"
        );
    }
}
